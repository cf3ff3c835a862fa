"""Evaluating a config on a labelled batch: each measure with its confidence interval, its bounds, and its value per query and type.

A query without results counts as 0. A query that nothing answers is in the means of those measures alone that are of such queries. Any
other query without a relevant judgment says nothing of a ranking: it is counted and left out of the mean, where trec_eval and
ir-measures average a 0 for it; on queries that have one the values are theirs.

The ablations: what each part of a pipeline is worth: the documented tables, and each stage of a config switched off in turn.

`cems` are the phases of the CEMS retrieval improvements plan, each with all before it, in the values of the preset `cems`:

    phase 0  before the plan: vector search and expansions, unweighted, not clamped
    phase 1  + no expansion where a lexical probe finds a strong signal
    phase 2  + the lexical list, normalised
    phase 3  + weight 2 for the original query, and the top-rank bonus
    phase 4  + the reranker of the given config, or else the plan's
    phase 5  + scores clamped to 0..1
    phase 6  the given config: the plan's last phase is tuning

`ace` are rows A to D of ACE's A/B test, the shipped presets. The documents' figures cannot be reproduced: their data is not public.
Expansions and their probe are gathered: where the evidence was gathered otherwise, that is among what the evaluation lacks.

Source: CEMS plan, "Results Tracking"; ACE retrieval precision document, "A/B Test Results".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cems_workbench.config import PipelineConfig, nested, preset, with_values
from cems_workbench.config.fields import packaged
from cems_workbench.errors import InputError, counted
from cems_workbench.evaluation import grades
from cems_workbench.evaluation.batch import LabelledBatch, Rankings, missing_score_lines
from cems_workbench.evaluation.metrics import MEASURES, GradedRankings, Measure, relevance_words
from cems_workbench.evaluation.statistics import bootstrap, bounds, interval, means, resample
from cems_workbench.pipeline.list_sources import LIST_SOURCES
from cems_workbench.pipeline.stages import RERANK, candidate_stages
from cems_workbench.pipeline.table import Floats, Ints
from cems_workbench.results import Table

ACE = ("ace_a", "ace_b", "ace_c", "ace_d")

CEMS: Mapping[str, Mapping[str, Any]] = packaged("evaluation/cems_phases.json")
"""What the plan's phases add, taken away (`before`), and of each phase the parameters that it sets to their value in the plan."""

NAMES = ("stages", "cems", "ace")


def ablations(name: str, config: PipelineConfig) -> list[PipelineConfig]:
    """The configs of an ablation table, each named after what it leaves out or adds. Raises InputError for another name."""
    if name == "stages":
        return [config, *without_each_stage(config)]
    if name == "cems":
        return cems_phases(config)
    if name == "ace":
        return [preset(row).config for row in ACE]
    raise InputError(f"--ablate {name}: expected one of {', '.join(NAMES)}")


def without_each_stage(config: PipelineConfig) -> list[PipelineConfig]:
    """The config without each of its parts that is on, one at a time; what would leave no list is not tried."""
    found = []
    for switch in (switch for stage in candidate_stages(config) for switch in stage.switches):
        if switch.is_off(config):
            continue
        without = with_values(config, {**switch.off, "name": f"{config.name} without {switch.name}"})
        if any(getattr(without.lists, source.name).enabled for source in LIST_SOURCES if source.finds):
            found.append(without)
    return found


def cems_phases(config: PipelineConfig) -> list[PipelineConfig]:
    """The phases of the CEMS plan, ending in `config`."""
    reranker = config if not RERANK.is_off(config) else preset("cems_qwen").config
    plan = with_values(preset("cems").config, {"rerank": nested(reranker)["rerank"]})
    present = dict(CEMS["before"])
    found = []
    for name, adds in CEMS["phases"].items():
        present.update({path: plan.get(path) for path in adds})
        found.append(with_values(plan, {**present, "name": name}))
    return [*found, with_values(config, {"name": f"phase 6 ({config.name})"})]


NO_TYPE = "(no type)"
SUCCESSORS = "successors"
"""The word by which successors of relevant memories are credited."""
STALE_K = 10
"""Of how many results the summary says whether one is stale."""
SCORED_LATER = "scored_later"
"""The note of evidence with the number of pairs that were scored after gathering."""


@dataclass(frozen=True, slots=True)
class Summary:
    """One measure over the queries: mean, its confidence interval, and its bounds for what is not judged."""

    measure: Measure
    mean: float
    low: float
    high: float
    worst: float
    best: float
    queries: int


@dataclass(frozen=True)
class Figures:
    """What a config reached, without the rankings it comes from: what tables and charts of means show, of a kept experiment too."""

    name: str
    summaries: tuple[Summary, ...]
    relevance: str
    """The relevance grade and the denominator, in words."""
    queries: int
    cost: Mapping[str, float]
    """As in `Evaluation`."""
    needs: Mapping[str, int]
    """What the evidence lacks, in words, and of how many queries."""
    failed: Mapping[str, int]
    """Why the reranker gave some candidates no score, with the number of queries."""
    not_gathered: int = 0
    stale: str = ""
    """As in `Evaluation`."""

    @property
    def measures(self) -> tuple[Measure, ...]:
        """Those of the summaries, in their order."""
        return tuple(summary.measure for summary in self.summaries)

    @property
    def from_cache(self) -> str:
        """How many queries were gathered with scores or replies from the cache, which the time of gathering depends on; or empty."""
        cached = int(self.cost.get("queries_from_cache", 0))
        return f"{cached} of {self.queries} queries with model results from the cache" if cached else ""

    @property
    def scored_later(self) -> str:
        """How many pairs a reranker scored after gathering, which the time of gathering leaves out; or empty."""
        pairs = int(self.cost.get("pairs_scored_later", 0))
        return f"{pairs} pairs that a reranker scored after gathering" if pairs else ""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What a config reaches on a batch."""

    config: PipelineConfig
    qids: tuple[str, ...]
    types: tuple[str | None, ...]
    measures: tuple[Measure, ...]
    values: Floats
    """(Q, M), NaN where a measure is not defined for the query."""
    summaries: tuple[Summary, ...]
    rankings: Rankings
    results: tuple[tuple[str, ...], ...]
    """The memory ids of every query's results, best first."""
    without_relevant: tuple[str, ...]
    """No relevant memory is known of these, and nobody said that nothing answers them: they are in no mean."""
    not_judged: tuple[str, ...] = ()
    not_gathered: tuple[str, ...] = ()
    cost: dict[str, float] = field(default_factory=dict)
    """All queries together: `llm_calls` of a language model and `llm_replies_cached` when the evidence was gathered, `reranked` pairs
    that this config's reranker reads; `ms_per_query` that gathering took on average, where that was recorded, and then
    `queries_from_cache`, how many queries took scores or replies of a model from the cache, which makes them quicker, and
    `pairs_scored_later`, where there are any, which the time leaves out."""
    failed: Mapping[str, int] = field(default_factory=dict)
    """Why the reranker gave some candidates no score, with the number of queries."""
    stale_queries: tuple[int, int] = (0, 0)
    """How many queries have a stale memory among the first `STALE_K` results, and of how many that is known."""
    unanswerable: tuple[str, ...] = ()
    """Marked as having no answer: only measures of such queries include them."""
    own_documents: tuple[Sequence[str], Sequence[str]] = ((), ())
    """Queries that are memories, left out of their results; queries that have the id of a memory by chance."""
    successors: bool = False
    """Whether successors of relevant memories are credited."""

    @property
    def lacking(self) -> tuple[str, Mapping[str, int]]:
        """The config by name with what the evidence does not hold of what it asks for, as `missing_score_lines` takes it."""
        return self.config.name, self.rankings.needs

    @property
    def relevant_from(self) -> int:
        """The lowest grade that counts as relevant."""
        return min((measure.grade for measure in self.measures), default=1)

    @property
    def relevance(self) -> str:
        """The relevance grade and the denominator, in words."""
        return relevance_words(self.relevant_from, self._counted, len(self.qids), len(self.unanswerable), self.successors)

    @property
    def _counted(self) -> int:
        """Queries with a relevant memory."""
        return len(self.qids) - len(self.without_relevant) - len(self.unanswerable)

    @property
    def figures(self) -> Figures:
        """What is shown of it in tables and charts of means."""
        return Figures(
            self.config.name,
            self.summaries,
            self.relevance,
            len(self.qids),
            self.cost,
            self.rankings.needs,
            self.failed,
            len(self.not_gathered),
            self.stale,
        )

    @property
    def stale(self) -> str:
        """How many queries have a stale memory among the first results, in words; empty where it is not known which memories are."""
        return stale_words(*self.stale_queries)

    @property
    def remarks(self) -> list[str]:
        """What was left out, and what the config asks for that the evidence does not hold."""
        lines = []
        if self.not_judged:
            lines.append(f"left out: {counted(len(self.not_judged), 'queries')} without a judgment")
        if self.not_gathered:
            lines.append(f"left out: {counted(len(self.not_gathered), 'queries')} not gathered")
        lines += grades.remarks(*self.own_documents, len(self.qids))
        untimed = [str(one.measure) for one in self.summaries if MEASURES[one.measure.family].timed and not one.queries]
        if untimed:
            lines.append(f"{', '.join(untimed)}: no time of this was recorded when it was gathered; gather it again")
        lines += [f"warning: {line}" for line in missing_score_lines([self.lacking])]
        return lines + [
            f"warning: the reranker failed in {counted(count, 'queries')}: {why}" for why, count in self.failed.items()
        ]

    def mean(self, measure: Measure, query_type: str | None = None) -> float:
        """The mean of a measure, over the queries of one type where it is named; NaN where there are none."""
        column = self.values[:, self.measures.index(measure)]
        if query_type is not None:
            column = column[np.array([kind == query_type for kind in self.types], dtype=bool)]
        return float(means(column[:, None])[0])

    @property
    def table(self) -> Table:
        """The measures with their 95 % intervals, and what they were if unjudged results were all irrelevant, or all relevant."""
        rows = (
            (str(one.measure), *map(number, (one.mean, one.low, one.high, one.worst, one.best)), one.queries)
            for one in self.summaries
        )
        columns = ("measure", "mean", "low", "high", "worst", "best", "queries")
        return Table(columns, tuple(rows), f"{self.config.name}: {counted(len(self.qids), 'queries')}{self._credit}")

    @property
    def _credit(self) -> str:
        return ", successors credited" if self.successors else ""

    @property
    def types_table(self) -> Table:
        """A row for each query type: how many queries count, and the mean of each measure."""
        names = [str(measure) for measure in self.measures]
        rows = ((kind, row["queries"], *(row[name] for name in names)) for kind, row in self.by_type().items())
        return Table(("type", "queries", *names), tuple(rows), f"{self.config.name}, by type of query{self._credit}")

    @property
    def tables(self) -> tuple[Table, ...]:
        """The measures; with several query types those of each."""
        by_type = self.types_table
        return (self.table, by_type) if len(by_type) > 1 else (self.table,)

    @property
    def notes(self) -> tuple[str, ...]:
        """What counts as relevant, how to read the measures, the cost, what was left out, and what the evidence lacks."""
        reading = "low and high: 95 % interval of the mean; worst and best: unjudged results taken for irrelevant, for relevant"
        return (self.relevance, *stale_lines([self]), reading, self.spent, *self.remarks)

    @property
    def spent(self) -> str:
        """The recorded cost of gathering, and the pairs that the config's reranker reads."""
        pace = self.cost.get("ms_per_query")
        said = f"{self.cost['llm_calls']:.0f} LLM calls, {self.cost['reranked']:.0f} pairs reranked"
        if pace is None:
            return said
        figures = self.figures
        cached = f" ({figures.from_cache})" if figures.from_cache else ""
        later = f", without {figures.scored_later}" if figures.scored_later else ""
        return f"{pace:.0f} ms/query when it was gathered{cached}{later}, {said}"

    def by_type(self) -> dict[str, dict[str, Any]]:
        """Per query type the number of queries that count and the mean of each measure (None where it is not defined)."""
        names = np.array([kind or NO_TYPE for kind in self.types], dtype=object)
        excluded = np.isin(self.qids, self.without_relevant)
        found = {}
        for name in sorted(set(names.tolist())):
            rows = self.values[names == name]
            average = means(rows)
            found[name] = {
                "queries": int((~excluded[names == name]).sum()),
                **{str(m): number(value) for m, value in zip(self.measures, average, strict=True)},
            }
        return found

    def to_json(self, per_query: bool = True) -> dict[str, Any]:
        """The evaluation as plain values; the values of the queries are left out unless they are asked for."""
        lists = ("without_relevant", "unanswerable", "not_judged", "not_gathered")
        found: dict[str, Any] = {
            "config": self.config.name,
            "relevant_from": self.relevant_from,
            **({"credit": SUCCESSORS} if self.successors else {}),
            "queries": len(self.qids),
            "counted": self._counted,
            **{name: list(getattr(self, name)) for name in lists},
            "needs": dict(self.rankings.needs),
            "failed_scores": dict(self.failed),
            "stale_queries": list(self.stale_queries),
            "cost": self.cost,
            "measures": {
                str(summary.measure): {
                    "mean": number(summary.mean),
                    "interval": [number(summary.low), number(summary.high)],
                    "unjudged_bounds": [number(summary.worst), number(summary.best)],
                    "queries": summary.queries,
                }
                for summary in self.summaries
            },
            "by_type": self.by_type(),
        }
        if per_query:
            names = [str(measure) for measure in self.measures]
            found["per_query"] = {
                qid: dict(zip(names, map(number, row), strict=True))
                for qid, row in zip(self.qids, self.values, strict=True)
            }
        return found


def number(value: float) -> float | None:
    """A float as JSON has it: None for NaN."""
    return None if np.isnan(value) else float(value)


def evaluate(
    batch: LabelledBatch,
    config: PipelineConfig,
    measures: Sequence[Measure],
    *,
    seed: int = 0,
    with_bounds: bool = True,
) -> Evaluation:
    """Replay every query of the batch under the config and measure the results; seeded, so that it gives the same again."""
    rankings = batch.rankings(config)
    values = np.stack([measure.values(rankings.graded) for measure in measures], axis=1)
    worst, best = bounds(rankings.graded, measures) if with_bounds else np.full((2, len(measures)), np.nan)
    summaries = summarise(values, measures, rankings.graded, bootstrap(values, seed), worst, best, seed)
    empty, without = not_improved(rankings.graded, measures)
    qids = tuple(batch.qids)
    return Evaluation(
        config,
        qids,
        tuple(batch.types),
        tuple(measures),
        values,
        summaries,
        rankings,
        tuple(map(tuple, batch.result_ids(rankings))),
        tuple(qids[q] for q in empty),
        batch.not_judged,
        batch.not_gathered,
        cost_of(batch, rankings),
        batch.failed(config),
        stale_queries(rankings.graded),
        tuple(qids[q] for q in without),
        (batch.left_out, batch.by_chance),
        batch.successors,
    )


def stale_queries(graded: GradedRankings) -> tuple[int, int]:
    """As `Evaluation.stale_queries`."""
    return int(graded.stale[:, :STALE_K].any(axis=1).sum()), int(graded.stale_known.sum())


def stale_words(count: int, known: int) -> str:
    """ "17 of 30 queries have a stale memory in the first 10"; empty if it is known of none."""
    if not known:
        return ""
    of = counted(known, "queries")
    return f"{count} of {of} {'has' if count == 1 else 'have'} a stale memory in the first {STALE_K}"


def stale_lines(measured: Sequence[Evaluation] | Sequence[Figures]) -> list[str]:
    """The line on stale memories of each config where it is known, with the config's name if there are several."""
    if len(measured) == 1:
        return [one.stale for one in measured if one.stale]
    names = [one.config.name if isinstance(one, Evaluation) else one.name for one in measured]
    said = [one.stale for one in measured]
    return [f"{name}: {words}" for name, words in zip(names, said, strict=True) if words]


def summarise(
    values: Floats,
    measures: Sequence[Measure],
    graded: GradedRankings,
    ends: Floats,
    worst: Floats,
    best: Floats,
    seed: int,
) -> tuple[Summary, ...]:
    """The measures of (Q, M) values; `ends` (2, M): their bootstrap interval; `graded`: input of measures over all queries."""
    low, high = ends.copy()
    for m, measure in enumerate(measures):
        sampled = resample(measure, graded, seed)
        if sampled is not None:
            low[m], high[m] = interval(sampled)
    counts = (~np.isnan(values)).sum(axis=0)
    rows = zip(measures, means(values), low, high, worst, best, counts.tolist(), strict=True)
    return tuple(Summary(*row) for row in rows)


def not_improved(graded: GradedRankings, measures: Sequence[Measure]) -> tuple[Ints, Ints]:
    """The numbers of the queries of which no relevant memory is known, and of those marked as having no answer."""
    least = min((measure.grade for measure in measures), default=1)
    without = graded.without_answer(least)
    return np.flatnonzero(~graded.answerable(least) & ~without), np.flatnonzero(without)


def cost_of(batch: LabelledBatch, rankings: Rankings) -> dict[str, float]:
    """As `Evaluation.cost`."""
    asked = [evidence.notes.get("llm") or {} for evidence in batch.evidences]
    found = {
        "llm_calls": float(sum(notes.get("calls", 0) for notes in asked)),
        "llm_replies_cached": float(sum(notes.get("cached", 0) for notes in asked)),
        "reranked": float(rankings.reranked),
    }
    if batch.seconds_per_query is None:
        return found
    read = ([evidence.notes.get(what) or {} for what in ("rerank_scores", "llm")] for evidence in batch.evidences)
    cached = sum(any(notes.get("cached", 0) > 0 for notes in both) for both in read)
    later = sum(evidence.notes.get(SCORED_LATER, 0) for evidence in batch.evidences)
    found |= {"ms_per_query": 1000 * batch.seconds_per_query, "queries_from_cache": float(cached)}
    return found | ({"pairs_scored_later": float(later)} if later else {})
