"""The report of a comparison: means, differences, who wins and loses, and the queries that lost most with both rankings.

Every figure is one of `evaluation.comparison.compare` and its evaluations. A section shows where relevant memories are lost: a funnel for
each config, and the memories behind it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import cycle

import numpy as np

from cems_workbench.analysis.losses_of_set import Losses, LossMap
from cems_workbench.config import config_hash
from cems_workbench.errors import InputError, counted
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.comparison import LEVEL, Comparison, ConfigComparison, MeasureDifference, significance
from cems_workbench.evaluation.evaluate import NO_TYPE, Evaluation, stale_lines
from cems_workbench.evaluation.evidence_stream import EvidenceStream
from cems_workbench.evaluation.verdict import DEFAULT_TOLERANCE, verdict_measure, verdicts_of
from cems_workbench.jobs.evaluation import LabelledEvidence
from cems_workbench.jobs.regression import Regression
from cems_workbench.pipeline.evidence import Evidence
from cems_workbench.pipeline.table import Floats
from cems_workbench.records import Query
from cems_workbench.report import page

MAX_RESULTS = 10
"""Results of each ranking that are shown, and by default queries."""
MAX_BARS = 1000
"""Queries whose differences are drawn at most, the largest; with a title each they are most of a report's bytes."""
FIGURE_HEIGHT_PX = 150
"""Height of the figure of all queries, in pixels."""


def funnel(found: LossMap) -> tuple[page.Row, ...]:
    """A row for all relevant memories, one for each branch, and one for those that are returned; in percent of all of them, those that
    pass, and those that leave here, right of them."""

    def row(label: str, passed: int, left: int, words: str) -> page.Row:
        shares = (round(100 * count / found.relevant, 2) for count in (passed, left))
        return {"label": label, **dict(zip(("passed", "left"), shares, strict=True)), "words": words}

    rows, left = [row("relevant memories", found.relevant, 0, str(found.relevant))], found.relevant
    for branch, count in found.branches.items():
        left -= count
        rows.append(row(branch.words(found.k), left, count, f"{count} lost, {left} pass"))
    return (*rows, row(f"returned in the first {found.k}", left, 0, str(left)))


@dataclass(frozen=True)
class MadeOn:
    """What a config's evaluation was made on: at least the queries that the report shows, by qid, with all that is shown of them."""

    facts: page.Facts
    queries: Mapping[str, Query]
    evidences: Mapping[str, Evidence]
    grades: Mapping[str, Mapping[str, int]]
    results: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, facts: page.Facts, batch: LabelledBatch, results: Sequence[Sequence[str]]) -> MadeOn:
        """The queries of a batch, with the results of each."""
        columns = (batch.queries, batch.evidences, batch.grades, results)
        return cls(facts, *(dict(zip(batch.qids, column, strict=True)) for column in columns))  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class Pair:
    """A config and the baseline by one measure."""

    base: Evaluation
    other: Evaluation
    compared: ConfigComparison
    column: int

    @property
    def found(self) -> MeasureDifference:
        """The difference by the measure."""
        return self.compared.differences[self.column]

    @property
    def better(self) -> Floats:
        """(Q) what each query gained; positive is better, whichever way the measure goes, and NaN is not measured."""
        return self.found.measure.direction * (self.other.values[:, self.column] - self.base.values[:, self.column])

    def lost_most(self) -> list[int]:
        """The places of the queries that lost, the largest loss first."""
        better, names = self.better, set(self.found.losses)
        lost = (q for q, qid in enumerate(self.base.qids) if qid in names)
        return sorted(lost, key=lambda q: (better[q], self.base.qids[q]))

    def changed(self) -> list[int]:
        """The places of the queries that changed, the largest change first."""
        better = self.better
        changed = np.flatnonzero(np.isfinite(better) & (better != 0)).tolist()
        return sorted(changed, key=lambda q: (-abs(better[q]), self.base.qids[q]))

    def values(self, q: int) -> tuple[float, float]:
        """The value of a query under the baseline and under the config."""
        return float(self.base.values[q, self.column]), float(self.other.values[q, self.column])


def comparison_report(
    comparison: Comparison,
    source: Sequence[LabelledEvidence] | EvidenceStream,
    moment: datetime,
    *,
    by: str | None = None,
    shown: int = MAX_RESULTS,
    redact: bool = False,
    seed: int = 0,
    judges: str | None = None,
    asserted: Regression | None = None,
    losses: Losses | None = None,
    tolerance: float = DEFAULT_TOLERANCE,
    answered: str = "",
) -> str:
    """A comparison as one HTML page.

    Args:
        source: what each evaluation was made on, in their order, whose texts and grades are shown; the query set is the first's. Of a
            stream only the queries that the page shows are read a second time.
        moment: when the report is made.
        by: the measure that queries and types are reported by; None is nDCG@10, or the first.
        shown: queries that lost most to show, of each config.
        redact: leave texts out; ids stay.
        seed, judges: what the comparison was made with.
        asserted: what was asserted of it, with the verdicts that come first.
        losses: where the configs lose relevant memories; None leaves the section out.
        tolerance: the loss that the verdict tolerates.
        answered: who answered the lists of a stream, where that was a running system.

    Raises InputError where `by` was not measured.
    """
    evaluations, texts = comparison.evaluations, page.Texts(redact)
    base, names = evaluations[0], [one.config.name for one in evaluations]
    measures = [str(measure) for measure in base.measures]
    by = str(verdict_measure(base.measures)) if by is None else by
    if by not in measures:
        raise InputError(f"--sort-by {by}: it was not measured; there are {', '.join(measures)}")
    column = measures.index(by)
    pairs = [Pair(base, *one, column) for one in zip(evaluations[1:], comparison.compared, strict=True)]
    if isinstance(source, EvidenceStream):
        header, path = source.header, source.path
        told = {base.qids[q] for one in pairs for q in (*one.changed()[:MAX_BARS], *one.lost_most()[:shown])}
        batch = LabelledBatch.of(source.of_queries(told), judges)
        name = f"{source.names}, {counted(len(base.qids), 'judged queries')}"
        facts = page.facts_of(name, source.content_hash, header, answered)
        made_on = [MadeOn.of(facts, batch, batch.result_ids(batch.rankings(one.config))) for one in evaluations]
    else:
        header, path = source[0].evidence.header, source[0].evidence.path
        both = zip(source, evaluations, strict=True)
        made_on = [MadeOn.of(page.evidence_facts(one), one.batch, evaluation.results) for one, evaluation in both]
    scale = page.scale_of(
        [end for one in evaluations for row in one.summaries for end in (row.low, row.high, row.mean)]
    )
    shapes = [shape for shape, _ in zip(cycle(page.SHAPES), evaluations, strict=False)]
    configs = tuple((f"config {one.config.name}", f"SHA-256 {config_hash(one.config)}") for one in evaluations)
    facts = tuple(fact for own in dict.fromkeys(one.facts for one in made_on) for fact in own)
    return page.render(
        "compare.html",
        title=f"{', '.join(names[1:])} against {names[0]}" if names[1:] else names[0],
        subtitle=f"{counted(len(base.qids), 'judged queries')} of {header.query_set or path.name}",
        names=tuple(zip(names, shapes, strict=True)),
        means=tuple(_mean_row(comparison, m, shapes, scale) for m in range(len(base.measures))),
        scale=scale,
        others=tuple(_other(nth, pair, made_on[0], made_on[nth], texts, shown) for nth, pair in enumerate(pairs, 1)),
        by=by,
        level=LEVEL,
        asserted=asserted,
        losses=losses,
        funnel=funnel,
        texts=texts,
        verdicts=(asserted and asserted.verdicts)
        or verdicts_of(comparison, [(base.measures[column], None)], tolerance),
        remarks=_remarks(evaluations, redact),
        origin=(
            *facts,
            ("judges", judges or "people before models"),
            ("seed", str(seed)),
            *configs,
            *page.made(moment),
        ),
        redact=redact,
    )


def _mean_row(comparison: Comparison, m: int, shapes: Sequence[str], scale: page.Scale) -> page.Row:
    marks = []
    for evaluation, shape in zip(comparison.evaluations, shapes, strict=True):
        row = evaluation.summaries[m]
        words = f"{page.number(row.mean)} ({page.number(row.low)} to {page.number(row.high)})"
        marks.append(page.mark_at(evaluation.config.name, shape, row.mean, row.low, row.high, scale, words))
    return {"measure": str(comparison.evaluations[0].measures[m]), "marks": tuple(marks)}


def _other(nth: int, pair: Pair, before: MadeOn, now: MadeOn, texts: page.Texts, shown: int) -> page.Row:
    rows, lost = pair.compared.differences, pair.lost_most()
    scale = page.scale_of([end for one in rows for end in (one.low, one.high, one.difference)], True)
    positions = {q: f"lost-{nth}-{i}" for i, q in enumerate(lost[:shown], 1)}
    return {
        "name": pair.compared.name,
        "overlap": page.number(pair.compared.overlap, ".3f"),
        "rows": tuple(_difference_row(one, scale) for one in rows),
        "scale": scale,
        "types": _types(pair),
        "lost": len(lost),
        "queries": tuple(_query(q, pair, before, now) for q in lost[:shown]),
        "waterfall": _waterfall(pair, before, texts, positions),
    }


def _difference_row(found: MeasureDifference, scale: page.Scale) -> page.Row:
    said, ends = significance(found), f"{page.signed(found.low)} to {page.signed(found.high)}"
    words = f"{page.signed(found.difference)} ({ends}), p {page.number(found.p_holm)}: {said}"
    mark = page.mark_at(str(found.measure), "bar", found.difference, found.low, found.high, scale, words)
    return {"mark": mark, "tone": page.tone(said), "verdict": said, "found": found, "ends": ends}


def _types(pair: Pair) -> tuple[page.Row, ...]:
    found = pair.found
    kinds = {qid: kind or NO_TYPE for qid, kind in zip(pair.base.qids, pair.base.types, strict=True)}
    counts = {kind: [0, 0, 0] for kind in found.by_type}
    measured = [qid for qid, known in zip(pair.base.qids, np.isfinite(pair.better).tolist(), strict=True) if known]
    for place, qids in enumerate((found.wins, found.losses, measured)):
        for qid in qids:
            counts[kinds[qid]][place] += 1
    most = max((max(won, lost) for won, lost, _ in counts.values()), default=0) or 1
    rows = []
    for kind, (won, lost, every) in counts.items():
        row = {"name": kind, "won": won, "lost": lost, "same": every - won - lost, "difference": found.by_type[kind]}
        rows.append(row | {"left": 50 * lost / most, "right": 50 * won / most})
    return tuple(rows)


def _waterfall(pair: Pair, made_on: MadeOn, texts: page.Texts, positions: Mapping[int, str]) -> page.Row:
    """`positions` are those of the queries that the report shows."""
    base, better, changed = pair.base, pair.better, pair.changed()
    drawn = sorted(changed[:MAX_BARS], key=lambda q: (-better[q], base.qids[q]))
    scale = page.scale_of(better[drawn].tolist(), around_zero=True)

    def down(share: float) -> float:
        return round(FIGURE_HEIGHT_PX * (100 - share) / 100, 1)

    zero, bars = down(scale.share(0.0)), []
    for place, q in enumerate(drawn):
        top, end = sorted((zero, down(scale.share(float(better[q])))))
        was, now = pair.values(q)
        kind = f" ({base.types[q]})" if base.types[q] else ""
        asked = texts.excerpt(made_on.queries[base.qids[q]].query)
        words = f"{page.signed(now - was)}, {page.number(was)} → {page.number(now)}: {base.qids[q]}{kind} {asked}"
        bar: page.Row = {"x": round(100 * place / len(drawn), 3), "width": round(100 / len(drawn), 3), "top": top}
        bar |= {"height": max(1.0, round(end - top, 1)), "tone": "good" if better[q] > 0 else "bad"}
        bars.append(bar | {"words": words, "to": positions.get(q, "")})
    won, measured = int((better[changed] > 0).sum()), int(np.isfinite(better).sum())
    return {
        "bars": tuple(bars),
        "bars_words": f"{won} won, {len(changed) - won} lost, {measured - len(changed)} are the same.",
        "changed": len(changed),
        "measured": measured,
        "up": tuple((down(share), words) for share, words in scale.ticks),
        "zero": zero,
        "tall": FIGURE_HEIGHT_PX,
    }


def _query(q: int, pair: Pair, before: MadeOn, now: MadeOn) -> page.Row:
    query, rankings = before.queries[pair.base.qids[q]], []
    for own, other, evaluation in ((before, now, pair.base), (now, before, pair.other)):
        there = {key: rank for rank, key in enumerate(other.results[query.qid], 1)}
        memories, grades, ids = own.evidences[query.qid].memories, own.grades[query.qid], own.results[query.qid]
        shown = enumerate(ids[:MAX_RESULTS], 1)
        ranking = [(rank, memories[key], grades.get(key), there.get(key)) for rank, key in shown]
        rankings.append((evaluation.config.name, ranking, len(ids)))
    values = pair.values(q)
    return {"query": query, "was_now": values, "rankings": rankings, "relevant_from": pair.base.relevant_from}


def _remarks(evaluations: Sequence[Evaluation], redact: bool) -> tuple[str, ...]:
    """What counts as relevant and what was left out; why a reranker failed may quote a text."""
    lines = [evaluations[0].relevance, *stale_lines(evaluations)]
    for one in evaluations:
        lines += (replace(one, failed={}) if redact else one).remarks
        if redact and one.failed:
            lines.append(f"warning: the reranker of {one.config.name} failed in some queries")
    return tuple(dict.fromkeys(lines))
