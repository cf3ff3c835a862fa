"""Nearest job: the preset, and its parameters, that come closest to the recorded answers of a real system.

    half of the queries is held out -> every preset on a few queries -> the best of them on more -> a coordinate search from the
    best three (`parameters.py`) -> both halves measured under the preset and under what was found

Which queries are held out is decided by a digest of their text, so that a rerun decides the same and equal texts are in the same half. They
are not read until everything is decided.

Presets without a reranker come first. If one of them gives every recorded order, those with a reranker are not run; else their rerankers
read at most `most_scores` results in all, so that such a preset is measured on as many queries as fit. What that leaves out is reported.

A preset is measured as `fidelity.py` measures a config: with the settings and the limit that the recording states, which the search
leaves alone. Evidence of a few queries is kept in memory, once for configs that gather alike; that of the best presets is gathered into the
store's files. No judge is asked, as it moves nothing. So most trials are replays, and model scores are in the store's cache.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Any

from cems_workbench.config import PipelineConfig, difference, with_values
from cems_workbench.config.fields import short_value
from cems_workbench.errors import InputError, WorkbenchError, counted
from cems_workbench.evaluation.evaluate import number
from cems_workbench.evaluation.evidence_file import EvidenceSet
from cems_workbench.jobs.query_set_evidence import embed_ahead, ensure_evidence, request_for, require_answered
from cems_workbench.jobs.recorded_answers import Production
from cems_workbench.pipeline import Evidence
from cems_workbench.pipeline.gather import gather_lists, gather_scores
from cems_workbench.pipeline.missing_evidence import gather_parameters
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages import RERANK
from cems_workbench.pipeline.stages.rerank import model_key
from cems_workbench.pipeline.stages.result import plain_fields
from cems_workbench.progress import Progress, silent
from cems_workbench.records import Query, RecordedAnswer, Recording
from cems_workbench.results import Result, Table
from workbench_fidelity.fidelity import (
    FidelitySetting,
    MeasuredFidelity,
    as_recorded,
    causes_counted,
    compared,
    limit_of,
    precision_of,
    productions_in,
    selection_for,
    settled_as_recorded,
)
from workbench_fidelity.lists import WhichLists
from workbench_fidelity.measures import Lists
from workbench_fidelity.parameters import (
    MAX_CONFIGS,
    MIN_GAIN,
    NearAgreement,
    NearestParameters,
    NearReplays,
    best_part,
    nearest_parameters,
)

FEWEST_QUERIES = 10
"""With fewer, nothing is held out: five queries say nothing of a config."""
FIRST_QUERIES, MORE_QUERIES = 8, 24
"""Queries of the searched half that every preset is measured on, and the better ones."""
MORE_STARTS, STARTS = 8, 3
"""Presets that are measured on more queries, and that a search starts from."""
MAX_SCORES = 4_000
"""Results that rerankers read in a search: about a minute of a small cross-encoder on two cores."""
MOST_READ = 100
"""Results that a reranker without a depth is taken to read of a query."""
MAX_PRESETS = 5
"""Presets that are listed."""
FEWEST_RERANKED = 3
"""Queries of the searched half that a preset with a reranker is measured on at least."""


@dataclass(frozen=True, eq=False, repr=False)
class Nearest(Result):
    """The config that comes closest: a preset (`start`) with `changes`, (path, the preset's value, the value).

    `before` and `after` are the measured halves, the searched one first; the second is None if nothing is held out. `presets` has every
    preset that could be measured, unchanged, on queries of the searched half, that with the nearest part first; `left_out` the others with
    the reason. `configs` were replayed in `seconds` altogether, `gathered` times a query's evidence was gathered; rerankers read `scores`
    results, at most `most_scores`, and `unread` says what that left out, empty for nothing. `unfound` are recorded results of the reported
    half that no list here finds.
    """

    recording: Recording
    start: str
    config: PipelineConfig
    changes: tuple[tuple[str, Any, Any], ...]
    before: tuple[MeasuredFidelity, MeasuredFidelity | None]
    after: tuple[MeasuredFidelity, MeasuredFidelity | None]
    presets: tuple[tuple[str, NearAgreement], ...]
    left_out: Mapping[str, str]
    configs: int
    gathered: int
    seconds: float
    stopped: str
    unfound: int
    scores: int = 0
    most_scores: int = MAX_SCORES
    unread: str = ""

    @property
    def reported(self) -> tuple[MeasuredFidelity, MeasuredFidelity]:
        """Before and after, of the held-out half; of all queries if nothing is held out."""
        return self.before[1] or self.before[0], self.after[1] or self.after[0]

    def _halves(self, *names: str) -> Iterator[tuple[str, MeasuredFidelity, MeasuredFidelity]]:
        for name, before, after in zip(names, self.before, self.after, strict=True):
            if before is not None and after is not None:
                yield name, before, after

    @property
    def title(self) -> str:
        """The preset, and how many of its parameters are changed."""
        changed = f"with {counted(len(self.changes), 'changed parameters')}" if self.changes else "unchanged"
        return f"nearest: {self.start} {changed}"

    @property
    def lines(self) -> tuple[str, ...]:
        """What was found; pages, commands and the MCP server say the same."""
        rows, differences = self.reported[1].fidelity.queries, self.reported[1].differences
        differing = [one for one in differences if not one.query.up_to_ties]
        scores = [one for one in differences if one.query.same_order]
        why = "; ".join(f"{count} {words}" for words, count in causes_counted(differing))
        counts = {
            "other order, not explained": len(differing),
            "other order of equal scores": len(differences) - len(differing) - len(scores),
            "other scores": len(scores),
            "recorded results that no list here finds": self.unfound,
            "empty recorded answers": sum(not query.recorded for query in rows),
        }
        found = ", ".join(f"{words} {count}" for words, count in counts.items() if count)
        none = f"nothing is held out of {len(rows)} queries: the agreement is of the queries that were searched with"
        lines = (
            self.title,
            "" if self.after[1] else none,
            f"{'held-out ' if self.after[1] else ''}queries: {len(rows)}; {found or 'all as recorded'}",
            why and f"not explained: {why}",
            f"{self.configs:,} configs tried from {len(self.presets)} presets in {self.seconds:,.0f} s ({self.gathered:,} queries "
            f"gathered); stopped: {self.stopped}",
            self.unread,
        )
        return tuple(line for line in lines if line)

    @property
    def tables(self) -> tuple[Table, ...]:
        """The changed parameters; of each half its agreement, as the preset has it and with the changes; the nearest presets, unchanged."""
        halves = []
        for name, before, after in self._halves("searched with", "held out"):
            values = [[_share(one, measure) for measure in REPORTED] for one in (before, after)]
            shown = [f"{was} to {now}" for was, now in zip(*values, strict=True)] if self.changes else values[1]
            halves.append((name, len(after.fidelity.queries), *shown))
        presets = tuple((name, one.queries, one.same_order, one.overlap, one.rbo) for name, one in self.presets)
        changes = tuple((path, short_value(was), short_value(value)) for path, was, value in self.changes)
        title = f"Agreement of {self.start}{', and with the changes' if self.changes else ''}"
        near = ("preset", "queries", "same order", "overlap", "RBO")
        return (
            Table(("parameter", self.start, "nearest"), changes, "Changed parameters"),
            Table(("queries", "number", *REPORTED.values()), tuple(halves), title),
            Table(near, presets, "Nearest presets, unchanged", shown=MAX_PRESETS),
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """Presets that could not be measured, and what the config cannot express."""
        left_out = (f"{name} is left out: {why}" for name, why in self.left_out.items())
        return tuple(f"warning: {line}" for line in (*left_out, *self.reported[1].setting.warnings))

    def to_json(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {
            "answers": self.recording.name,
            "preset": self.start,
            "changes": {path: {"was": was, "value": value} for path, was, value in self.changes},
            "halves": {
                name: {"queries": len(after.fidelity.queries), "before": _measures(before), "after": _measures(after)}
                for name, before, after in self._halves("searched", "held_out")
            },
            "remaining": dict(causes_counted(self.reported[1].differences)),
            "in_no_list": self.unfound,
            "presets": [{"preset": name} | plain_fields(one, NEAR_FIELDS) for name, one in self.presets],
            "left_out": dict(self.left_out),
            "seconds": round(self.seconds, 1),
            **plain_fields(self, "configs gathered stopped scores most_scores unread"),
        }


NEAR_FIELDS = "queries same_order overlap rbo scores"
REPORTED: Mapping[str, str] = {
    "up_to_ties": "same order up to ties",
    "overlap": "overlap@k",
    "rbo": "RBO",
    "same_scores": "same scores",
}
"""The measures of a half, by name with their titles."""


def _share(measured: MeasuredFidelity, measure: str) -> str:
    value = measured.fidelity.value(measure)
    return "–" if math.isnan(value) else f"{value:.3f}"


def _measures(measured: MeasuredFidelity) -> dict[str, float | None]:
    return {name: number(measured.fidelity.value(name)) for name in REPORTED}


def lists_for(recording: Recording) -> WhichLists:
    """Whose lists are replayed unless something else is asked for: those of the recording, if it has any."""
    return "recorded" if any(answer.lists for answer in recording.answers) else "own"


def halves(recording: Recording) -> tuple[frozenset[str], frozenset[str]]:
    """The qids that are searched with, and those that are held out: every second query text in the order of a digest.
    With fewer than FEWEST_QUERIES texts, none is held out."""
    text_of = {answer.qid: answer.query or answer.qid for answer in recording.answers}
    texts = sorted(set(text_of.values()), key=_digest)
    held = set(texts[1::2]) if len(texts) >= FEWEST_QUERIES else set()
    return (
        frozenset(qid for qid, text in text_of.items() if text not in held),
        frozenset(qid for qid, text in text_of.items() if text in held),
    )


def _drawn(qids: Iterable[str], recording: Recording) -> list[str]:
    """The order in which queries are drawn: by a digest of their texts, answered ones and empty ones in turn."""
    answers = {answer.qid: answer for answer in recording.answers}
    order = sorted(qids, key=lambda qid: (_digest(answers[qid].query or qid), qid))
    of = ([qid for qid in order if bool(answers[qid].returned) is answered] for answered in (True, False))
    return [qid for pair in zip_longest(*of) for qid in pair if qid is not None]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()


@dataclass(eq=False)
class _Start:
    """A preset with its setting, its queries, what stays as it is, and the latest agreement: of all of it, and of its nearest part."""

    setting: FidelitySetting
    queries: tuple[Query, ...]
    fixed: frozenset[str] = frozenset()
    agreement: NearAgreement | None = None
    part: NearAgreement | None = None
    headroom: float = math.inf
    """How much nearer than its part anything can come on these queries."""

    @property
    def reranks(self) -> bool:
        return not RERANK.is_off(self.setting.searched)

    @property
    def name(self) -> str:
        return self.setting.config.name

    def of(self, qids: Iterable[str]) -> list[Query]:
        wanted = set(qids)
        return [query for query in self.queries if query.qid in wanted]


@dataclass(eq=False)
class _Search:
    recording: Recording
    resources: Resources
    productions: Mapping[str, Production]
    progress: Progress
    order: list[str]
    """The searched qids in the order in which they are drawn."""
    most_scores: int
    configs: int = 0
    gathered: int = 0
    read: dict[tuple[str, str], int] = field(default_factory=dict)
    """By reranker and query how many results it read at most."""
    kept: dict[tuple[str, Query], Evidence] = field(default_factory=dict)
    """Lists of single queries, once for configs that gather alike."""
    moment: datetime = field(default_factory=lambda: datetime.now(UTC))

    @cached_property
    def answers(self) -> dict[str, RecordedAnswer]:
        return {answer.qid: answer for answer in self.recording.answers}

    @property
    def spent(self) -> int:
        return sum(self.read.values())

    def within(self, start: _Start, qids: Iterable[str], most: int) -> list[str]:
        """The first of the queries whose results its reranker can read within so many scores, which are counted; without one all."""
        if not start.reranks:
            return list(qids)
        rerank = start.setting.searched.rerank
        found = []
        for qid in qids:
            lists = self.answers[qid].lists.values() if start.setting.which_lists == "recorded" else ()
            hits = {key for ranked in lists for variant in ranked for key, _ in variant}
            depth = rerank.depth or MOST_READ
            cost = min(depth, len(hits)) if hits else depth
            key = (repr(model_key(rerank)), qid)
            more = max(cost - self.read.get(key, 0), 0)
            if more > most:
                break
            most -= more
            self.read[key] = self.read.get(key, 0) + more
            found.append(qid)
        return found

    def scored(self, start: _Start, qid: str, evidence: Evidence) -> Evidence:
        """The evidence with what the reranker makes of our lists; recorded ones are scored where they are taken (`as_recorded`)."""
        if start.reranks and start.setting.which_lists == "recorded" and self.answers[qid].lists:
            return evidence
        return gather_scores(evidence, start.setting.searched, self.resources, self.progress, judge="decisive")

    def replays(self, start: _Start, qids: Sequence[str], evidences: Mapping[str, Evidence]) -> NearReplays:
        """The queries of a start on the evidence as the recording gives it."""
        setting, resources = start.setting, self.resources
        queries = [query for query in start.of(qids) if query.qid in evidences]
        taken = {}
        for query in queries:
            answer = self.answers[query.qid]
            found = as_recorded(evidences[query.qid], answer, setting, resources)
            taken[query.qid] = settled_as_recorded(found, answer, setting, resources)
        return NearReplays(
            queries,
            taken,
            self.productions,
            limit=limit_of(self.recording),
            precision=setting.tolerance or precision_of(self.recording),
            depth=setting.depth,
            before_cut={qid: dict(answer.scored) for qid, answer in self.answers.items() if answer.scored},
            score=lambda evidence, config: gather_scores(evidence, config, resources, judge="decisive"),
        )

    def screened(
        self, starts: Sequence[_Start], queries: int, left_out: dict[str, str], most_scores: int = 0
    ) -> list[_Start]:
        """The starts that can be measured, nearest first, on the first so many queries of the searched half. With a
        reranker they are measured on fewer, if it would read more than its share of `most_scores` results."""
        able = []
        share = most_scores // max(sum(start.reranks for start in starts), 1)
        for i, start in enumerate(starts):
            qids = self.within(start, self.order[:queries], share)
            self.progress(f"presets, {min(queries, len(self.order))} queries", i, len(starts))
            if len(qids) < min(FEWEST_RERANKED, len(self.order)):
                left_out[start.name] = "its reranker would read too many results (--scores)"
                continue
            try:
                replays = self.replays(start, qids, self._few(start, qids))
                _require_scores(start, replays.batch.evidences)
            except WorkbenchError as error:
                left_out[start.name] = str(error)
                continue
            start.agreement = replays.agreement(start.setting.searched)
            start.part = replays.agreement(best_part(replays, start.setting.searched, start.fixed))
            start.headroom = replays.headroom(start.part)
            self.configs += replays.count
            able.append(start)
        self.progress(f"presets, {min(queries, len(self.order))} queries", len(starts), len(starts))
        return sorted(able, key=_farness)

    def _few(self, start: _Start, qids: Sequence[str]) -> dict[str, Evidence]:
        """The evidence of a few queries under a start. Raises WorkbenchError if its reranker gives no score of the first."""
        config, found = start.setting.searched, {}
        queries = start.of(qids)
        embed_ahead(queries, self.resources)
        for query in queries:
            key = (repr(sorted(gather_parameters(config).items())), query)
            if key not in self.kept:
                try:
                    lists = gather_lists(request_for(query, self.moment), config, self.resources)
                    require_answered(lists, config)
                except InputError:  # one that cannot be searched, as in every gather
                    continue
                self.kept[key] = lists
                self.gathered += 1
            found[query.qid] = self.scored(start, query.qid, self.kept[key])
            _require_scores(start, [found[query.qid]])
        if not found:
            raise InputError("no query could be searched")
        return found


def _require_scores(start: _Start, evidences: Iterable[Evidence]) -> None:
    """Raises InputError if its reranker scored none of what it read."""
    if not start.reranks:
        return
    key = model_key(start.setting.searched.rerank)
    scores = [score for one in evidences for score in one.model_scores.get(key, {}).values()]
    if scores and not any(score.good for score in scores):
        raise InputError(next((score.error for score in scores if score.error), "its reranker gives no score"))


def _farness(start: _Start) -> tuple[float, float]:
    """By the nearest part of a preset, then by the whole of it."""
    part, whole = (0.0 if one is None else -round(one.nearness, 9) for one in (start.part, start.agreement))
    return part, whole


def find_nearest(
    recording: Recording,
    configs: Sequence[PipelineConfig],
    setting_of: Callable[[PipelineConfig], FidelitySetting],
    queries_of: Callable[[FidelitySetting], tuple[Query, ...]],
    resources: Resources,
    progress: Progress = silent,
    lists: Mapping[str, Lists] | None = None,
    *,
    most_configs: int = MAX_CONFIGS,
    most_scores: int = MAX_SCORES,
) -> Nearest:
    """Search all configs, usually every preset, for the one that comes closest to a recording, and its parameters.

    `setting_of` and `queries_of` say how a config is measured: `fidelity.setting_for` and `fidelity.asked_queries`. `lists` are those of
    `lexical_lists`. `most_configs` bounds the configs that are replayed, `most_scores` the results that rerankers read. The result depends
    on nothing but its arguments and the store. Raises InputError if no recorded memory is in the store
    or no config can be measured, and a `Cancelled` of `progress`; gathered evidence is kept.
    """
    begun = time.monotonic()
    resources.refresh()
    searched, held = halves(recording)
    order = _drawn(searched, recording)
    search = _Search(recording, resources, productions_in(resources, recording), progress, order, most_scores)
    left_out: dict[str, str] = {}
    starts = []
    for config in configs:
        setting = setting_of(config)
        # What the recording states, which is no guess: its settings, its limit, and that its scores are normalised already.
        stated = difference(config, setting.config) + difference(setting.config, setting.searched)
        starts.append(_Start(setting, queries_of(setting), frozenset(path for path, _, _ in stated)))
    cheap = [start for start in starts if not start.reranks]
    first = search.screened(cheap, FIRST_QUERIES, left_out)
    more = search.screened(first[:MORE_STARTS], MORE_QUERIES, left_out) if len(order) > FIRST_QUERIES else first
    costly = [start for start in starts if start.reranks]
    if costly and more and more[0].headroom < MIN_GAIN:
        left_out |= {start.name: f"not run, as {more[0].name} comes as close as can be" for start in costly}
        costly = []
    if costly:
        # A third for each of the two screenings, and the rest for the search.
        reranked = search.screened(costly, FIRST_QUERIES, left_out, most_scores // 3)
        first += reranked
        if len(order) > FIRST_QUERIES:
            better = sorted([*more, *reranked], key=_farness)[:MORE_STARTS]
            again = search.screened([one for one in better if one.reranks], MORE_QUERIES, left_out, most_scores // 3)
            more = sorted([*(one for one in better if not one.reranks), *again], key=_farness)
        else:
            more = sorted(first, key=_farness)
    if not first:
        why = "; ".join(f"{name}: {reason}" for name, reason in left_out.items())
        raise InputError(f"{recording.name}: no preset can be measured: {why}")
    best: tuple[tuple[float, int, int], _Start, NearestParameters, EvidenceSet] | None = None
    chosen = more[:STARTS]
    # Of both halves in turn, so that a reranker reads as many of each.
    both = [qid for pair in zip_longest(order, _drawn(held, recording)) for qid in pair if qid is not None]
    for i, start in enumerate(chosen):
        if best is not None and best[2].headroom < MIN_GAIN:
            break  # the rest cannot come nearer
        setting = start.setting
        selection = selection_for(setting, start.queries)
        evidence = ensure_evidence(_bare(setting.searched), selection, (), resources, progress)
        share = max(most_scores - search.spent, 0) // sum(one.reranks for one in chosen[i:]) if start.reranks else 0
        taken = search.within(start, both, share)
        known = ((qid, evidence.evidences[qid]) for qid in taken if qid in evidence.evidences)
        evidence = replace(evidence, evidences={qid: search.scored(start, qid, one) for qid, one in known})
        replays = search.replays(start, [qid for qid in order if qid in evidence.evidences], evidence.evidences)
        found = nearest_parameters(
            replays,
            setting.searched,
            start.fixed,
            most_configs=most_configs // len(chosen),
            progress=progress,
            label=f"{start.name} ({i + 1} of {len(chosen)})",
        )
        start.agreement = found.start
        search.configs += replays.count
        search.gathered += len(evidence.evidences)
        rank = (-round(found.reached.nearness, 9), len(found.changes), i)
        if best is None or rank < best[0]:
            best = (rank, start, found, evidence)
    assert best is not None  # one start at least
    _, start, found, evidence = best
    changed = {path: value for path, _, value in found.changes}
    config = with_values(start.setting.config, changed).model_copy(update={"name": f"nearest_{_stem(recording)}"})
    after = replace(start.setting, config=config, name=f"{_stem(recording)}, nearest")
    # The changes may bring other memories to a reranker than the preset does.
    scored, gathered = evidence, dict(evidence.evidences)
    if not RERANK.is_off(after.searched):
        for qid, one in gathered.items():
            gathered[qid] = gather_scores(one, after.searched, resources, progress, judge="decisive")
        scored = replace(evidence, evidences=gathered)

    def measured(setting: FidelitySetting, which: EvidenceSet, qids: frozenset[str]) -> MeasuredFidelity | None:
        if not (known := qids & gathered.keys()):
            return None
        return compared(setting, start.of(known), search.productions, which, resources, progress, lists)

    before_searched, after_searched = measured(start.setting, evidence, searched), measured(after, scored, searched)
    assert before_searched is not None  # a recording has an answer
    assert after_searched is not None
    after_held = measured(after, scored, held)
    ranked = [*sorted(chosen, key=_farness), *more[STARTS:], *(one for one in first if one not in more)]
    return Nearest(
        recording,
        start.name,
        config,
        tuple(difference(start.setting.config, config)),
        (before_searched, measured(start.setting, evidence, held)),
        (after_searched, after_held),
        tuple((one.name, one.agreement) for one in ranked if one.agreement is not None),
        left_out,
        search.configs,
        search.gathered,
        time.monotonic() - begun,
        found.stopped,
        _unfound(after_held or after_searched, search.productions),
        search.spent,
        most_scores,
        _unread(search, [one for one in first if one.reranks], start, len(evidence.evidences), len(start.queries)),
    )


def _bare(config: PipelineConfig) -> PipelineConfig:
    """The config without model scores, which are added to the queries whose results a reranker may read."""
    off = {} if config.abstain.judge is not None else {"judge.backend": "none"}
    return with_values(config, {"rerank.backend": "none", **off})


def _unread(search: _Search, measured: Sequence[_Start], chosen: _Start, taken: int, queries: int) -> str:
    """What the limit on scores left out; empty if nothing."""
    fewest = min((one.agreement.queries for one in measured if one.agreement is not None), default=FIRST_QUERIES)
    lines = []
    if fewest < min(FIRST_QUERIES, len(search.order)):
        lines.append(f"presets with a reranker were measured on as few as {fewest} queries")
    if taken < queries:
        lines.append(f"{chosen.name} was searched and measured on {taken} of {queries} queries")
    if not lines:
        return ""
    return f"rerankers read {search.spent:,} results, at most {search.most_scores:,}: {', and '.join(lines)}; --scores N raises that"


def _stem(recording: Recording) -> str:
    return Path(recording.name).stem or "answers"


def _unfound(measured: MeasuredFidelity, productions: Mapping[str, Production]) -> int:
    """Recorded results, of the queries that differ, that are memories of the store and in none of our lists."""
    count = 0
    for one in measured.differences:
        if not one.query.up_to_ties:
            lists = measured.evidence.evidences[one.query.qid].lists
            found = {hit.memory_id for ranked in lists for hit in ranked.hits}
            count += sum(key not in found for key in productions[one.query.qid].order)
    return count
