"""Evidence of any size, read some queries at a time from one or several files of a query set, and configs measured on it in one pass.

A file that is read whole takes some 35 kB of memory a query. Here portions of at most `PORTION_QUERIES` queries are read, each as a
small `EvidenceSet`, and forgotten: memory is that of one portion and of DuckDB's sort (`STREAM_LIMIT`), regardless of the file's size.
Checks and hashes are those of a file that is read whole.

Several files are the evidence of one set that was gathered in parts, perhaps on several machines: they were gathered from the same state
of the same store with the same parameters, and no query was gathered in two of them.

Time is linear in the queries. A portion is a `LabelledBatch`, replayed and measured as any other; what stays of it are its values, 8
bytes a query, measure and config, and who its queries are. Intervals, tests and measures of all queries together are then made of all
values as `evaluate` makes them, so that the figures are its. Only a batch in memory can give the results of every query, so they are left
out. So a comparison takes the overlap of results counted during the pass.

The worst and best case of what is not judged depends on the highest grade of all queries. The judgments' highest is taken for it; where
no query turns out to have it, since its judges agreed on a lower one, the pass is made once more.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from cems_workbench.config import PipelineConfig
from cems_workbench.errors import InputError, one_line
from cems_workbench.evaluation.batch import LabelledBatch, Rankings
from cems_workbench.evaluation.comparison import Comparison, compare, overlap_of
from cems_workbench.evaluation.evaluate import Evaluation, cost_of, not_improved, stale_queries, summarise
from cems_workbench.evaluation.evidence_file import EvidenceSet, PortionedFile, differences
from cems_workbench.evaluation.metrics import MEASURES, NO_GRADE, GradedRankings, Measure
from cems_workbench.evaluation.statistics import bootstrap, bounding_values, means
from cems_workbench.pipeline.evidence import Evidence
from cems_workbench.pipeline.list_sources import provenance
from cems_workbench.pipeline.stages.abstain import CONFIDENCE_FEATURES
from cems_workbench.pipeline.table import Bools, Floats, Ints
from cems_workbench.progress import Progress, silent


class EvidenceStream(AbstractContextManager["EvidenceStream"]):
    """The files of one set, open; close it, or use it in a `with`."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Raises InputError for a file that is none, and for files that are not parts of one set, naming what differs."""
        if len({path.resolve() for path in paths}) < len(paths):
            raise InputError("an evidence file is named twice")
        self._files: list[PortionedFile] = []
        try:
            for path in paths:
                self._files.append(PortionedFile(path))
            self._elsewhere = self._require_parts()
        except BaseException:
            self.close()
            raise
        files, first = self._files, self._files[0]
        self.header, self.path = first.header, first.path
        """Those of the first file."""
        self.names = first.path.name + (f" and {len(files) - 1} more" if len(files) > 1 else "")
        marks = [file.content_hash for file in files]
        self.content_hash = marks[0] if len(marks) == 1 else hashlib.sha256("\n".join(marks).encode()).hexdigest()
        """That of the file; of several, a hash of theirs in the order in which they were named."""
        self.external = any(file.external for file in files)
        """Whether the queries are external traces."""
        self.queries = sum(file.queries for file in files)
        self.highest_grade = max(file.highest_grade for file in files)
        gathered = sum(file.gathered for file in files)
        self.seconds_per_query = sum(file.seconds for file in files) / gathered if gathered else None
        """Time that gathering a query took on average; None where nothing was gathered."""

    def qids_of(self, text: str) -> list[str]:
        """The ids of the queries with these words or this id, in the order of the files."""
        return [qid for file in self._files for qid in file.qids_of(text)]

    def portions(self) -> Iterator[EvidenceSet]:
        """The queries of each file in their order, some at a time. A query that another file has the evidence of is
        left out. Raises InputError for a query that is not as evidence is."""
        for file, elsewhere in zip(self._files, self._elsewhere, strict=True):
            for portion in file.portions():
                yield _without(portion, elsewhere)

    def of_queries(self, qids: Collection[str]) -> EvidenceSet:
        """Those of the queries that are among these, as one set in the order of the files. Raises InputError as `portions` does."""
        files = zip(self._files, self._elsewhere, strict=True)
        parts = [_without(file.of_queries(qids), elsewhere) for file, elsewhere in files]
        own = zip(parts, ({query.qid for query in part.queries} for part in parts), strict=True)
        return replace(
            parts[0],
            queries=tuple(query for part in parts for query in part.queries),
            judgments=tuple(row for part, listed in own for row in part.judgments if row.qid in listed),
            evidences={qid: found for part in parts for qid, found in part.evidences.items()},
            seconds=sum(part.seconds for part in parts),
        )

    def close(self) -> None:
        """Release the files."""
        for file in self._files:
            file.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _require_parts(self) -> list[set[str]]:
        """Of each file the queries that it does not hold and another does; those that no file holds are of the first that lists them."""
        first = self._files[0]
        for file in self._files[1:]:
            was, now = first.header, file.header
            different = differences(was, now)
            if was.query_set != now.query_set:
                different.append(f"query set: {was.query_set}, then {now.query_set}")
            if was.relevant_from != now.relevant_from:
                different.append(f"relevant from grade: {was.relevant_from}, then {now.relevant_from}")
            if different:
                raise InputError(f"{file.path} is not a part of what {first.path} is: {'; '.join(different[:3])}")
        if len(self._files) == 1:
            return [set()]
        holder: dict[str, int] = {}
        for number, file in enumerate(self._files):
            for qid in file.qids("evidence"):
                if qid in holder:
                    raise InputError(
                        f"query {one_line(qid)} was gathered in {self._files[holder[qid]].path} and in {file.path}"
                    )
                holder[qid] = number
        return [
            {qid for qid in file.qids("queries") if holder.setdefault(qid, number) != number}
            for number, file in enumerate(self._files)
        ]


def _without(portion: EvidenceSet, elsewhere: Collection[str]) -> EvidenceSet:
    if not elsewhere:
        return portion
    return replace(portion, queries=tuple(query for query in portion.queries if query.qid not in elsewhere))


LABEL = "measuring queries"
Each = Callable[[LabelledBatch, Sequence[Rankings]], None]
"""What else is done with a portion that was replayed: it and its rankings under each config."""


@dataclass(frozen=True, eq=False)
class StreamEvaluation:
    """Configs measured on a stream. The evaluations hold no results, and of the rankings what measures of all queries together read."""

    evaluations: tuple[Evaluation, ...]
    overlaps: tuple[float, ...]
    """Mean rank-biased overlap of the results of each config but the first with the first's."""
    answered: str
    """By whom and when the lists were answered, where that was a running system; else empty."""

    def compared(self, seed: int = 0) -> Comparison:
        """The configs against the first."""
        return compare(self.evaluations, seed=seed, overlaps=self.overlaps)


def evaluate_stream(
    stream: EvidenceStream,
    configs: Sequence[PipelineConfig],
    measures: Sequence[Measure],
    *,
    kind: str | None = None,
    seed: int = 0,
    each: Each | None = None,
    progress: Progress = silent,
) -> StreamEvaluation:
    """Replay every query of the stream under each config and measure the results, as `evaluate` does. `kind` is the
    kind of judge whose judgments count, human or model; None: human before model. Raises InputError for a query that is
    not as evidence is. `progress` may raise `Cancelled`."""
    highest = max(1, stream.highest_grade)
    run = _pass(stream, configs, measures, kind, highest, each, progress)
    if run.highest != highest:
        run = _pass(stream, configs, measures, kind, run.highest, None, progress)
    return run.finished(configs, measures, stream.seconds_per_query, seed)


@dataclass
class _OfConfig:
    """What has been measured of a config so far, a part a portion."""

    values: list[Floats] = field(default_factory=list)
    bounds: Floats = field(default_factory=lambda: np.zeros((2, 0)))
    """(2, M) sums of the worst and of the best case."""
    bounded: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """(M) of how many queries."""
    graded: list[GradedRankings] = field(default_factory=list)
    signals: list[dict[str, Floats]] = field(default_factory=list)
    sent: list[Ints] = field(default_factory=list)
    needs: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    cost: Counter[str] = field(default_factory=Counter)
    overlaps: list[Floats] = field(default_factory=list)
    stale: tuple[int, int] = (0, 0)
    """As `Evaluation.stale_queries`."""


@dataclass
class _Pass:
    """A pass over a stream: what has been measured so far."""

    configs: list[_OfConfig]
    highest: int = 1
    qids: list[str] = field(default_factory=list)
    types: list[str | None] = field(default_factory=list)
    not_judged: list[str] = field(default_factory=list)
    not_gathered: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    by_chance: list[str] = field(default_factory=list)
    answered: dict[str, tuple[Evidence, Evidence]] = field(default_factory=dict)
    """By the running system that answered lists, the first and the last evidence of which it did."""

    def finished(
        self, configs: Sequence[PipelineConfig], measures: Sequence[Measure], seconds: float | None, seed: int
    ) -> StreamEvaluation:
        """Everything that is of all queries together."""
        values = [np.concatenate([np.zeros((0, len(measures))), *one.values]) for one in self.configs]
        graded = [_joined(one) for one in self.configs]
        together = [m for m, measure in enumerate(measures) if MEASURES[measure.family].resampled is not None]
        for of_config, whole in zip(values, graded, strict=True):
            for m in together:
                of_config[:, m] = measures[m].values(whole)
        ends = np.split(bootstrap(np.concatenate(values, axis=1), seed), len(values), axis=1)
        types = {kind: kind for kind in self.types}  # each kept once
        evaluations = []
        for i, (config, one) in enumerate(zip(configs, self.configs, strict=True)):
            worst, best = np.divide(
                one.bounds, one.bounded, out=np.full((2, len(measures)), np.nan), where=one.bounded > 0
            )
            for m in together:
                if not MEASURES[measures[m].family].reads_judgments:  # what is not judged does not move them
                    worst[m] = best[m] = means(values[i][:, [m]])[0]
            empty, without = not_improved(graded[i], measures)
            sent = np.concatenate([np.zeros(0, dtype=np.int64), *one.sent])
            nothing = np.zeros((len(self.qids), 0))
            rankings = Rankings(config, nothing.astype(np.int64), nothing, graded[i], dict(one.needs), sent)
            cost = dict(one.cost) | ({} if seconds is None else {"ms_per_query": 1000 * seconds})
            evaluations.append(
                Evaluation(
                    config,
                    tuple(self.qids),
                    tuple(types[kind] for kind in self.types),
                    tuple(measures),
                    values[i],
                    summarise(values[i], measures, graded[i], ends[i], worst, best, seed),
                    rankings,
                    (),
                    tuple(self.qids[q] for q in empty),
                    tuple(self.not_judged),
                    tuple(self.not_gathered),
                    cost,
                    one.failed,
                    one.stale,
                    tuple(self.qids[q] for q in without),
                    (self.left_out, self.by_chance),
                )
            )
        overlaps = tuple(float(np.concatenate(one.overlaps).mean()) for one in self.configs[1:] if one.overlaps)
        return StreamEvaluation(
            tuple(evaluations), overlaps, provenance(*(one.notes for pair in self.answered.values() for one in pair))
        )


def _pass(
    stream: EvidenceStream,
    configs: Sequence[PipelineConfig],
    measures: Sequence[Measure],
    kind: str | None,
    highest: int,
    each: Each | None,
    progress: Progress,
) -> _Pass:
    run = _Pass([_OfConfig() for _ in configs])
    done, total = 0, stream.queries
    for portion in stream.portions():
        progress(LABEL, done, total)
        batch = LabelledBatch.of(portion, kind)
        done += len(portion.queries)
        for name in ("qids", "types", "not_judged", "not_gathered", "left_out", "by_chance"):
            getattr(run, name).extend(getattr(batch, name))
        run.highest = max(run.highest, int(batch.ideal.max(initial=1)))
        found = [batch.rankings(config) for config in configs]
        results = [batch.result_ids(rankings) for rankings in found] if len(found) > 1 else []
        for i, (one, rankings) in enumerate(zip(run.configs, found, strict=True)):
            _measure(one, batch, rankings, measures, highest)
            if i:
                one.overlaps.append(overlap_of(results[0], results[i]))
        if each is not None:
            each(batch, found)
        for evidence in portion.evidences.values():
            if engine := evidence.notes.get("engine"):
                first, last = run.answered.get(
                    name := provenance(evidence.notes).rpartition(" at ")[0], (evidence, evidence)
                )
                at = [str(one.notes["engine"].get("at")) for one in (first, last)]
                when = str(engine.get("at"))
                run.answered[name] = evidence if when < at[0] else first, evidence if when > at[1] else last
    progress(LABEL, total, total)
    return run


def _measure(
    one: _OfConfig, batch: LabelledBatch, rankings: Rankings, measures: Sequence[Measure], highest: int
) -> None:
    graded = rankings.graded
    per_query = [MEASURES[measure.family].resampled is None for measure in measures]
    values = np.full((len(batch.queries), len(measures)), np.nan)
    for m, (measure, own) in enumerate(zip(measures, per_query, strict=True)):
        if own:
            values[:, m] = measure.values(graded)
    one.values.append(values)
    mean_of = [measure for measure, own in zip(measures, per_query, strict=True) if own]
    if not one.bounded.size:
        one.bounds, one.bounded = np.zeros((2, len(measures))), np.zeros(len(measures), dtype=np.int64)
    if mean_of:
        low_high = np.stack(bounding_values(graded, mean_of, highest))
        columns = np.flatnonzero(per_query)
        one.bounds[:, columns] += np.nansum(low_high, axis=1)
        one.bounded[columns] += (~np.isnan(low_high[0])).sum(axis=0)
    one.graded.append(_read_together(graded, [m for m, own in zip(measures, per_query, strict=True) if not own]))
    signals = {measure.signal for measure, own in zip(measures, per_query, strict=True) if measure.signal and not own}
    if signals:
        every = batch.signals(rankings.config)
        one.signals.append({name: every[name] for name in signals})
    count, known = stale_queries(graded)
    one.stale = one.stale[0] + count, one.stale[1] + known
    one.sent.append(rankings.sent)
    one.needs.update(rankings.needs)
    one.failed.update(batch.failed(rankings.config))
    one.cost.update({name: value for name, value in cost_of(batch, rankings).items() if name != "ms_per_query"})


def _read_together(graded: GradedRankings, measures: Sequence[Measure]) -> GradedRankings:
    """Of the rankings what measures of all queries together read: nothing where there are none."""
    depth: int | None = 0
    for measure in measures:
        reads = 1 if MEASURES[measure.family].reads_first else measure.k
        depth = None if reads is None or depth is None else max(depth, reads)
    ideal = graded.ideal if measures else graded.ideal[:, :1].copy()  # the highest says whether there is an answer
    return GradedRankings(
        graded.grade[:, :depth].copy(),
        graded.judged[:, :depth].copy(),
        graded.filled[:, :depth].copy(),
        ideal,
        graded.unanswerable,
        graded.score[:, :depth].copy(),
    )


def _joined(one: _OfConfig) -> GradedRankings:
    parts = one.graded
    signals = {
        name: np.concatenate([part[name] for part in one.signals])
        for name in CONFIDENCE_FEATURES
        if one.signals and name in one.signals[0]
    }
    return GradedRankings(
        _stacked([part.grade for part in parts], 0),
        _stacked([part.judged for part in parts], False),
        _stacked([part.filled for part in parts], False),
        _stacked([part.ideal for part in parts], NO_GRADE),
        np.concatenate([np.zeros(0, dtype=bool), *(part.unanswerable for part in parts)]),
        _stacked([part.score for part in parts], np.nan),
        signals.__getitem__ if signals else None,
    )


def _stacked(parts: Sequence[Floats | Ints | Bools], fill: float) -> np.ndarray:
    width = max((part.shape[1] for part in parts), default=0)
    rows = [np.pad(part, ((0, 0), (0, width - part.shape[1])), constant_values=fill) for part in parts]
    return np.concatenate(rows) if rows else np.zeros((0, 0))
