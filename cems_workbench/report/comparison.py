"""The report of a comparison: means, differences, who wins and loses, and the queries that lost most with both rankings.

Every figure is one of `evaluation.comparison.compare` and its evaluations.

The section of a report that shows where relevant memories are lost: a funnel for each config, and the memories behind it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import numpy as np

from cems_workbench.analysis.losses_of_set import Losses, LossMap
from cems_workbench.config import config_hash
from cems_workbench.errors import InputError
from cems_workbench.evaluation.assertions import Outcome
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.comparison import LEVEL, Comparison, ConfigComparison, MeasureDifference, significance
from cems_workbench.evaluation.evaluate import NO_TYPE, Evaluation, stale_lines
from cems_workbench.evaluation.evidence_file import Header
from cems_workbench.evaluation.evidence_stream import EvidenceStream
from cems_workbench.evaluation.metrics import Measure
from cems_workbench.evaluation.verdict import DEFAULT_TOLERANCE, Verdict, verdict_measure, verdicts_of
from cems_workbench.jobs.evaluation import LabelledEvidence
from cems_workbench.pipeline.evidence import Evidence
from cems_workbench.pipeline.list_sources import ordinal
from cems_workbench.pipeline.table import Floats
from cems_workbench.records import Query
from cems_workbench.report.figures import SHAPES, Scale, mark_at, number, scale_of, signed, tone
from cems_workbench.report.page import Facts, Row, Texts, evidence_facts, facts_of, made, render


def funnel(found: LossMap) -> tuple[Row, ...]:
    """A row for all relevant memories, one for each branch, and one for those that are returned; in percent of all of them, those that
    pass, and those that leave here, right of them."""

    def share(count: int) -> float:
        return round(100 * count / found.relevant, 2)

    rows: list[Row] = [{"label": "relevant memories", "passed": 100.0, "left": 0.0, "words": str(found.relevant)}]
    left = found.relevant
    for branch, count in found.branches.items():
        left -= count
        words = f"{count} lost, {left} pass"
        rows.append({"label": branch.words(found.k), "passed": share(left), "left": share(count), "words": words})
    label = f"returned in the first {found.k}"
    return (*rows, {"label": label, "passed": share(left), "left": 0.0, "words": str(left)})


MAX_RESULTS = 10
"""Results of each ranking that are shown, and by default queries."""
MAX_BARS = 1000
"""Queries whose differences are drawn at most, the largest; with a title each they are most of a report's bytes."""
FIGURE_HEIGHT_PX = 150
"""Height of the figure of all queries, in pixels."""


@dataclass(frozen=True)
class MadeOn:
    """The data of a config's evaluation that a report needs."""

    facts: Facts
    queries: Mapping[str, Query]
    """By qid, at least for the queries that the report shows; so are the others."""
    evidences: Mapping[str, Evidence]
    grades: Mapping[str, Mapping[str, int]]
    results: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, facts: Facts, batch: LabelledBatch, results: Sequence[Sequence[str]]) -> MadeOn:
        """The queries of a batch, with the results of each."""
        rows = list(zip(batch.qids, batch.queries, batch.evidences, batch.grades, results, strict=True))
        return cls(
            facts,
            {qid: query for qid, query, *_ in rows},
            {qid: evidence for qid, _, evidence, *_ in rows},
            {qid: grades for qid, *_, grades, _ in rows},
            {qid: ids for qid, *_, ids in rows},
        )


Both = tuple[MadeOn, MadeOn]
"""What the baseline and another config were measured on."""


@dataclass(frozen=True, slots=True)
class Asserted:
    """What was asserted of a changed config, and what of it changed."""

    outcomes: Sequence[Outcome]
    changes: Sequence[tuple[str, object, object]]
    note: str
    verdicts: Sequence[Verdict] = ()
    """Those on what is asserted, which are shown first; none is that on the measure that queries are ordered by."""


def comparison_report(
    comparison: Comparison,
    labelled: Sequence[LabelledEvidence],
    moment: datetime,
    *,
    by: str | None = None,
    shown: int = MAX_RESULTS,
    redact: bool = False,
    seed: int = 0,
    judges: str | None = None,
    asserted: Asserted | None = None,
    losses: Losses | None = None,
    tolerance: float = DEFAULT_TOLERANCE,
) -> str:
    """A comparison as one HTML page.

    Args:
        labelled: what each evaluation was made on, in their order, whose texts and grades are shown; the query set is the first's.
        moment: when the report is made.
        by: the measure that queries and types are reported by; None is nDCG@10, or the first.
        shown: queries that lost most to show, of each config.
        redact: leave texts out; ids stay.
        seed, judges: what the comparison was made with.
        asserted: what was asserted of it.
        losses: where the configs lose relevant memories; None leaves the section out.
        tolerance: the loss that the verdict tolerates.

    Raises InputError where `by` was not measured.
    """
    made_on = [
        MadeOn.of(evidence_facts(one), one.batch, evaluation.results)
        for one, evaluation in zip(labelled, comparison.evaluations, strict=True)
    ]
    called = _called(labelled[0].evidence.header, labelled[0].evidence.path)
    column = _column(comparison.evaluations[0], by)
    return _page(
        comparison, made_on, called, moment, column, shown, Texts(redact), seed, judges, asserted, losses, tolerance
    )


def streamed_report(
    comparison: Comparison,
    stream: EvidenceStream,
    answered: str,
    moment: datetime,
    *,
    by: str | None = None,
    shown: int = MAX_RESULTS,
    redact: bool = False,
    seed: int = 0,
    judges: str | None = None,
    losses: Losses | None = None,
    tolerance: float = DEFAULT_TOLERANCE,
) -> str:
    """A comparison that was made on a stream, as one HTML page: only the queries that it shows are read a second time.

    `answered` says who answered the lists, where that was a running system. Raises InputError as `comparison_report` does.
    """
    evaluations = comparison.evaluations
    column = _column(evaluations[0], by)
    told = {
        evaluations[0].qids[q]
        for one, compared in zip(evaluations[1:], comparison.compared, strict=True)
        for q in _told(evaluations[0], one, column, compared.differences[column].losses, shown)
    }
    batch = LabelledBatch.of(stream.of_queries(told), judges)
    name = f"{stream.names}, {len(evaluations[0].qids)} judged queries"
    facts = facts_of(name, stream.content_hash, stream.header, answered)
    made_on = [MadeOn.of(facts, batch, batch.result_ids(batch.rankings(one.config))) for one in evaluations]
    called = _called(stream.header, stream.path)
    return _page(
        comparison, made_on, called, moment, column, shown, Texts(redact), seed, judges, None, losses, tolerance
    )


def _called(header: Header, path: Path) -> str:
    return header.query_set or path.name


def _page(
    comparison: Comparison,
    made_on: Sequence[MadeOn],
    called: str,
    moment: datetime,
    column: int,
    shown: int,
    texts: Texts,
    seed: int,
    judges: str | None,
    asserted: Asserted | None,
    losses: Losses | None,
    tolerance: float,
) -> str:
    base = comparison.evaluations[0]
    others = tuple(
        _other(nth, base, evaluation, compared, column, (made_on[0], own), texts, shown)
        for nth, (evaluation, compared, own) in enumerate(
            zip(comparison.evaluations[1:], comparison.compared, made_on[1:], strict=True), 1
        )
    )
    ends = [end for one in comparison.evaluations for row in one.summaries for end in (row.low, row.high, row.mean)]
    scale = scale_of(ends)
    return render(
        "compare.html",
        title=_title(comparison),
        subtitle=f"{len(base.qids)} judged queries of {called}",
        names=tuple(
            zip((one.config.name for one in comparison.evaluations), _shapes(len(comparison.evaluations)), strict=True)
        ),
        means=tuple(_mean_row(comparison, m, scale) for m in range(len(base.measures))),
        scale=scale,
        others=others,
        by=str(base.measures[column]),
        level=LEVEL,
        asserted=asserted,
        losses=losses,
        funnel=funnel,
        texts=texts,
        verdicts=asserted.verdicts
        if asserted is not None and asserted.verdicts
        else verdicts_of(comparison, [(base.measures[column], None)], tolerance),
        remarks=_remarks(comparison.evaluations, texts.redact),
        origin=_origin(comparison, made_on, seed, judges) + made(moment),
        redact=texts.redact,
    )


def _title(comparison: Comparison) -> str:
    names = [one.config.name for one in comparison.evaluations]
    return f"{', '.join(names[1:])} against {names[0]}" if names[1:] else names[0]


def _shapes(count: int) -> list[str]:
    return [SHAPES[i % len(SHAPES)] for i in range(count)]


def _column(base: Evaluation, by: str | None) -> int:
    names = [str(measure) for measure in base.measures]
    if by is None:
        return base.measures.index(verdict_measure(base.measures))
    if by not in names:
        raise InputError(f"--sort-by {by}: it was not measured; there are {', '.join(names)}")
    return names.index(by)


def _mean_row(comparison: Comparison, m: int, scale: Scale) -> Row:
    marks = []
    for evaluation, shape in zip(comparison.evaluations, _shapes(len(comparison.evaluations)), strict=True):
        row = evaluation.summaries[m]
        words = f"{number(row.mean)} ({number(row.low)} to {number(row.high)})"
        marks.append(mark_at(evaluation.config.name, shape, row.mean, row.low, row.high, scale, words))
    return {"measure": str(comparison.evaluations[0].measures[m]), "marks": tuple(marks)}


def _other(
    nth: int,
    base: Evaluation,
    evaluation: Evaluation,
    compared: ConfigComparison,
    column: int,
    made_on: Both,
    texts: Texts,
    shown: int,
) -> Row:
    scale = scale_of([end for one in compared.differences for end in (one.low, one.high, one.difference)], True)
    found = compared.differences[column]
    lost = _lost_most(base, evaluation, column, found.losses)
    return {
        "name": compared.name,
        "overlap": number(compared.overlap, ".3f"),
        "rows": tuple(_difference_row(one, scale) for one in compared.differences),
        "scale": scale,
        "types": _types(base, evaluation, column, found),
        "lost": len(lost),
        "queries": tuple(_query(q, base, evaluation, column, made_on, texts) for q in lost[:shown]),
        "waterfall": _waterfall(
            base, evaluation, column, made_on[0], texts, {q: f"lost-{nth}-{i}" for i, q in enumerate(lost[:shown], 1)}
        ),
    }


def _difference_row(found: MeasureDifference, scale: Scale) -> Row:
    said = significance(found)
    words = (
        f"{signed(found.difference)} ({signed(found.low)} to {signed(found.high)}), p {number(found.p_holm)}: {said}"
    )
    cells = (
        str(found.measure),
        number(found.baseline),
        number(found.value),
        signed(found.difference),
        f"{signed(found.low)} to {signed(found.high)}",
        number(found.p_holm),
        number(found.effect, ".2f"),
        f"{len(found.wins)} / {len(found.losses)} / {found.ties}",
        said,
    )
    mark = mark_at(str(found.measure), "bar", found.difference, found.low, found.high, scale, words)
    return {"mark": mark, "tone": tone(said), "verdict": said, "cells": cells}


def _types(base: Evaluation, other: Evaluation, column: int, found: MeasureDifference) -> tuple[Row, ...]:
    kinds = {qid: kind or NO_TYPE for qid, kind in zip(base.qids, base.types, strict=True)}
    counts = {kind: [0, 0, 0] for kind in found.by_type}
    for place, qids in enumerate((found.wins, found.losses)):
        for qid in qids:
            counts[kinds[qid]][place] += 1
    measured = np.isfinite(other.values[:, column] - base.values[:, column])
    for qid, counted in zip(base.qids, measured.tolist(), strict=True):
        counts[kinds[qid]][2] += counted
    most = max((max(won, lost) for won, lost, _ in counts.values()), default=0) or 1
    return tuple(
        {
            "name": kind,
            "won": won,
            "lost": lost,
            "same": every - won - lost,
            "difference": signed(found.by_type[kind]),
            "left": 50 * lost / most,
            "right": 50 * won / most,
        }
        for kind, (won, lost, every) in counts.items()
    )


def _better(base: Evaluation, other: Evaluation, column: int) -> Floats:
    """(Q) what each query gained; positive is better, whichever way the measure goes, and NaN is not measured."""
    measure: Measure = base.measures[column]
    return measure.direction * (other.values[:, column] - base.values[:, column])


def _lost_most(base: Evaluation, other: Evaluation, column: int, lost: Sequence[str]) -> list[int]:
    """The places of the queries that lost, the largest loss first."""
    better, names = _better(base, other, column), set(lost)
    return sorted((q for q, qid in enumerate(base.qids) if qid in names), key=lambda q: (better[q], base.qids[q]))


def _changed_most(base: Evaluation, better: Floats) -> list[int]:
    """The places of the queries that changed, the largest change first, as many as are drawn."""
    changed = np.flatnonzero(np.isfinite(better) & (better != 0))
    return sorted(changed.tolist(), key=lambda q: (-abs(better[q]), base.qids[q]))[:MAX_BARS]


def _told(base: Evaluation, other: Evaluation, column: int, lost: Sequence[str], shown: int) -> list[int]:
    """The places of the queries of which more is shown than their values."""
    return _changed_most(base, _better(base, other, column)) + _lost_most(base, other, column, lost)[:shown]


def _waterfall(
    base: Evaluation, other: Evaluation, column: int, made_on: MadeOn, texts: Texts, told: Mapping[int, str]
) -> Row:
    """`told` has the positions of the queries that the report shows."""
    better = _better(base, other, column)
    changed = np.flatnonzero(np.isfinite(better) & (better != 0))
    largest = _changed_most(base, better)
    drawn = sorted(largest, key=lambda q: (-better[q], base.qids[q]))
    scale = scale_of(better[drawn].tolist(), around_zero=True)

    def down(share: float) -> float:
        return round(FIGURE_HEIGHT_PX * (100 - share) / 100, 1)

    zero, bars = down(scale.share(0.0)), []
    for place, q in enumerate(drawn):
        ends = sorted((zero, down(scale.share(float(better[q])))))
        was, now = float(base.values[q, column]), float(other.values[q, column])
        kind = f" ({base.types[q]})" if base.types[q] else ""
        asked = texts.excerpt(made_on.queries[base.qids[q]].query)
        words = f"{signed(now - was)}, {number(was)} → {number(now)}: {base.qids[q]}{kind} {asked}"
        bars.append(
            {
                "x": round(100 * place / len(drawn), 3),
                "width": round(100 / len(drawn), 3),
                "top": ends[0],
                "height": max(1.0, round(ends[1] - ends[0], 1)),
                "tone": "good" if better[q] > 0 else "bad",
                "words": words,
                "to": told.get(q, ""),
            }
        )
    won = int((better[changed] > 0).sum())
    said = f"{won} won, {len(changed) - won} lost, {int(np.isfinite(better).sum()) - len(changed)} are the same."
    up = tuple((down(share), words) for share, words in scale.ticks)
    return {
        "bars": tuple(bars),
        "bars_words": said,
        "changed": len(changed),
        "measured": int(np.isfinite(better).sum()),
        "up": up,
        "zero": zero,
        "tall": FIGURE_HEIGHT_PX,
    }


def _query(q: int, base: Evaluation, other: Evaluation, column: int, made_on: Both, texts: Texts) -> Row:
    query = made_on[0].queries[base.qids[q]]
    was, now = float(base.values[q, column]), float(other.values[q, column])
    old, new = (one.results[query.qid] for one in made_on)
    least = base.relevant_from
    return {
        "qid": query.qid,
        "query": texts.line(query.query),
        "type": base.types[q] or "",
        "before": number(was),
        "after": number(now),
        "difference": signed(now - was),
        "rankings": (
            (base.config.name, _ranking(query.qid, old, new, made_on[0], least, texts), len(old)),
            (other.config.name, _ranking(query.qid, new, old, made_on[1], least, texts), len(new)),
        ),
    }


def _ranking(
    qid: str, ids: Sequence[str], others: Sequence[str], made_on: MadeOn, least: int, texts: Texts
) -> tuple[Row, ...]:
    memories, grades = made_on.evidences[qid].memories, made_on.grades[qid]
    places = {key: rank for rank, key in enumerate(others, 1)}
    rows = []
    for rank, key in enumerate(ids[:MAX_RESULTS], 1):
        memory, grade, there = memories[key], grades.get(key), places.get(key)
        move = "only here" if there is None else "same rank" if there == rank else f"{ordinal(there)} in the other"
        said = "not judged" if grade is None else f"grade {grade}"
        relevant = grade is not None and grade >= least
        rows.append(
            {
                "rank": rank,
                "memory_id": key,
                "title": texts.title(memory.title),
                "text": texts.excerpt(memory.content),
                "grade": said,
                "relevant": relevant,
                "move": move,
            }
        )
    return tuple(rows)


def _remarks(evaluations: Sequence[Evaluation], redact: bool) -> tuple[str, ...]:
    """What counts as relevant and what was left out; why a reranker failed may quote a text."""
    lines = [evaluations[0].relevance, *stale_lines(evaluations)]
    for one in evaluations:
        lines += (replace(one, failed={}) if redact else one).remarks
        if redact and one.failed:
            lines.append(f"warning: the reranker of {one.config.name} failed in some queries")
    return tuple(dict.fromkeys(lines))


def _origin(comparison: Comparison, made_on: Sequence[MadeOn], seed: int, judges: str | None) -> Facts:
    configs = [(f"config {one.config.name}", f"SHA-256 {config_hash(one.config)}") for one in comparison.evaluations]
    facts = [fact for own in dict.fromkeys(one.facts for one in made_on) for fact in own]
    return (*facts, ("judges", judges or "people before models"), ("seed", str(seed)), *configs)
