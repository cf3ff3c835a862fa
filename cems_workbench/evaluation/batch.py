"""A labelled query set, encoded once, that every config is replayed on: config in, rankings of all queries out.

The queries are kept in blocks of like size, through which `pipeline.replay.run` goes one by one: the arithmetic of a stage is the one
of a single replay, little is padded, and the arrays of a block stay in the processor's cache.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from cems_workbench.config import PipelineConfig
from cems_workbench.errors import some
from cems_workbench.evaluation.evidence_file import EvidenceSet
from cems_workbench.evaluation.grades import agreed_answerable, agreed_grades, as_judged, own_document, without_own
from cems_workbench.evaluation.metrics import GradedRankings, ideal_grades
from cems_workbench.pipeline import Evidence
from cems_workbench.pipeline.list_sources import TIMED
from cems_workbench.pipeline.mismatches import mismatches_noted
from cems_workbench.pipeline.missing_evidence import SCORED_WITH, unmet
from cems_workbench.pipeline.recorded import merged_names
from cems_workbench.pipeline.replay import blocks_of, run, to_table
from cems_workbench.pipeline.stages import LISTS, candidate_stages
from cems_workbench.pipeline.stages.abstain import ABSTAIN, CONFIDENCE_FEATURES, asking_all
from cems_workbench.pipeline.stages.rerank import RERANK, model_key, reason
from cems_workbench.pipeline.stages.stage import PipelineRun
from cems_workbench.pipeline.stages.supersession import stale_results
from cems_workbench.pipeline.supersession import SUPERSEDED
from cems_workbench.pipeline.table import Bools, CandidateTable, Floats, Ints, Ranking
from cems_workbench.records import Query

BLOCK_QUERIES = 512
UNSCORED = "reranker scores of some candidates"
"""What evidence lacks where a config's reranker would read more than was scored."""
GATHERED = ": gathered with "
"""What follows a parameter that a config wants otherwise."""
UNREAD = "judge scores of some candidates"
"""What evidence lacks where the judge decides whether to answer, and would read more than it did."""
MAX_NAMES = 4


@dataclass(frozen=True, eq=False)
class Rankings:
    """The results of Q queries under one config, at most R each."""

    config: PipelineConfig
    order: Ints
    """(Q, R) candidate of the query at each rank, best first, -1 past the end."""
    score: Floats
    """(Q, R) its score, NaN past the end."""
    graded: GradedRankings
    needs: Mapping[str, int]
    """What the config asks for that the evidence does not hold, in words, with the number of queries."""
    sent: Ints
    """(Q) candidates that the config's reranker reads."""

    @property
    def unscored(self) -> int:
        """Queries that lack scores of the config's reranker."""
        return self.needs.get(UNSCORED, 0)

    @property
    def reranked(self) -> int:
        """Pairs that the config's reranker reads, all queries together."""
        return int(self.sent.sum())


@dataclass(frozen=True, eq=False)
class Block:
    """Some of the queries: their places in the batch, their table, and the grades of its candidates."""

    places: Ints
    table: CandidateTable
    grade: Ints
    judged: Bools


class LabelledBatch:
    """Queries with their evidence and the grades of their memories, ready to be replayed."""

    def __init__(
        self,
        queries: Sequence[Query],
        evidences: Mapping[str, Evidence],
        grades: Mapping[str, Mapping[str, int]],
        seconds_per_query: float | None = None,
        successors: bool = False,
    ) -> None:
        """Queries without evidence are left out, and are in `not_gathered`; those without a judgment in `not_judged`, but for those
        that are marked as having no answer. A query that is a memory of the store is without it: in `left_out`; one that has its id and
        other words is in `by_chance`.

        `seconds_per_query` is what gathering took, where that was recorded. With `successors` a relevant memory counts as found where one
        that supersedes it is returned, which nobody judged relevant.
        """
        self.successors = successors
        self.seconds_per_query = seconds_per_query
        self.not_gathered = tuple(query.qid for query in queries if query.qid not in evidences)
        gathered = [query for query in queries if query.qid in evidences]
        known = {query.qid for query in gathered if grades.get(query.qid) or query.answerable is False}
        self.not_judged = tuple(query.qid for query in gathered if query.qid not in known)
        self.queries = tuple(query for query in gathered if query.qid in known)
        self.grades: tuple[Mapping[str, int], ...] = tuple(grades.get(query.qid, {}) for query in self.queries)
        given = [evidences[query.qid] for query in self.queries]
        own = [own_document(*one) for one in zip(self.queries, given, self.grades, strict=True)]
        self.left_out = tuple(query.qid for query, what in zip(self.queries, own, strict=True) if what == "same")
        self.by_chance = tuple(query.qid for query, what in zip(self.queries, own, strict=True) if what == "other")
        self.evidences = tuple(
            without_own(evidence, query.qid) if what == "same" else evidence
            for query, evidence, what in zip(self.queries, given, own, strict=True)
        )
        self.ideal = ideal_grades([list(one.values()) for one in self.grades])
        self.unanswerable = np.array([query.answerable is False for query in self.queries], dtype=bool)
        self._alike = _gathered_alike(self.evidences)
        self._stale_known = np.array([_knows_stale(evidence) for evidence in self.evidences], dtype=bool)
        self._failed: dict[str, Counter[str]] = {}
        self.blocks = self._encode()

    def __reduce__(self) -> tuple[type[LabelledBatch], tuple[object, ...]]:
        """Encoded again after unpickling: tables hold functions, which cannot be pickled."""
        evidences = dict(zip(self.qids, self.evidences, strict=True))
        grades = dict(zip(self.qids, self.grades, strict=True))
        return LabelledBatch, (self.queries, evidences, grades, self.seconds_per_query, self.successors)

    @classmethod
    def of(cls, evidence: EvidenceSet, kind: str | None = None) -> LabelledBatch:
        """An evidence file with the judgments in it, of one kind of judge or, when None, human before model."""
        grades = agreed_grades(evidence.judgments, kind)
        queries = as_judged(evidence.queries, agreed_answerable(evidence.judgments, kind))
        return cls(queries, evidence.evidences, grades, evidence.seconds_per_query)

    @property
    def qids(self) -> list[str]:
        """The ids of the queries, in their order."""
        return [query.qid for query in self.queries]

    @property
    def types(self) -> list[str | None]:
        """The type of each query."""
        return [query.type for query in self.queries]

    @property
    def mismatches(self) -> list[str]:
        """What the preset that the evidence was gathered under wants of store and config."""
        return list(dict.fromkeys(line for one, _ in self._alike for line in mismatches_noted(one.notes)))

    def without_answer(self, grade: int) -> Bools:
        """(Q) was it said that nothing answers the query, and is no memory of at least this grade known? A judgment wins."""
        return self.unanswerable & ~(self.ideal >= grade).any(axis=1)

    def of_queries(self, qids: Collection[str]) -> LabelledBatch:
        """Those of the queries that are among these."""
        chosen = [query for query in self.queries if query.qid in qids]
        evidences = dict(zip(self.qids, self.evidences, strict=True))
        return LabelledBatch(chosen, evidences, dict(zip(self.qids, self.grades, strict=True)), self.seconds_per_query, self.successors)

    def runs(self, config: PipelineConfig, switched_off: Collection[int] = ()) -> Iterator[tuple[Block, PipelineRun]]:
        """What every stage does with the queries under a config, a block at a time."""
        for block in self.blocks:
            yield block, run(block.table, config, switched_off)

    def candidate_stages(self, config: PipelineConfig) -> tuple[str, ...]:
        """The names of the stages that can lose a memory of these queries, in order: those of the config, or the recorded ones."""
        own = tuple(stage.name for stage in candidate_stages(config))
        heads = {block.table.recorded.heads: None for block in self.blocks if block.table.recorded is not None}
        recorded = [(LISTS.name, *(head.name for head in one)) for one in heads]
        if len(self.blocks) and all(block.table.recorded is not None for block in self.blocks):
            return merged_names(recorded)
        return merged_names([own, *recorded])

    def rankings(self, config: PipelineConfig, switched_off: Collection[int] = ()) -> Rankings:
        """Replay every query under a config."""
        found, needs, own = [], dict(self.unmet(config)), {*self.left_out}
        sent = np.zeros(len(self.queries), dtype=np.int64)
        for block, stages in self.runs(config, switched_off):
            found.append(_ranked(block, stages.results.after))
            if self.successors:
                order, _, grade, judged, *_ = found[-1]
                self._credit(block, order, grade, judged)
            if stages.has(RERANK) and not RERANK.is_off(config):
                unscored = 0
                for q, place in enumerate(block.places.tolist()):
                    lacking = sum(len(need.memory_ids) for need in stages.of(RERANK).needs(q))
                    # Without its own document a query's reranker reads one candidate more than was scored, the last.
                    unscored += lacking > (self.queries[place].qid in own)
                if unscored:
                    needs[UNSCORED] = needs.get(UNSCORED, 0) + unscored
                sent[block.places] = stages.of(RERANK).sent()
            if stages.has(ABSTAIN) and not ABSTAIN.is_off(config):
                unread = sum(bool(stages.of(ABSTAIN).needs(q)) for q in range(len(block.places)))
                if unread:
                    needs[UNREAD] = needs.get(UNREAD, 0) + unread
        depth = max((part[0].shape[1] for part in found), default=0)
        shape = (len(self.queries), depth)
        order, grade = np.full(shape, -1, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        score, judged = np.full(shape, np.nan), np.zeros(shape, dtype=bool)
        tokens = np.zeros(shape, dtype=np.int64)
        stale = np.zeros(shape if self._stale_known.any() else (0, 0), dtype=bool)
        for block, part in zip(self.blocks, found, strict=True):
            width = part[0].shape[1]
            if len(stale):
                stale[block.places, :width] = stale_results(block.table, part[0])
            for whole, piece in zip((order, score, grade, judged, tokens), part, strict=True):
                whole[block.places, :width] = piece
        signals = cache(lambda: self.signals(config))
        graded = GradedRankings(
            grade,
            judged,
            order >= 0,
            self.ideal,
            self.unanswerable,
            score,
            lambda name: signals()[name],
            stale,
            self._stale_known if len(stale) else self._stale_known[:0],
            tokens,
            self._ms,
        )
        return Rankings(config, order, score, graded, needs, sent)

    @cached_property
    def _ms(self) -> dict[str, Floats]:
        """As `GradedRankings.ms`: 0 for a part that was not asked for."""
        parts = [evidence.ms for evidence in self.evidences]
        found = {name: np.array([ms.get(name, 0.0 if ms.keys() - {""} else np.nan) for ms in parts]) for name in TIMED}
        return found | {"": np.array([ms.get("", np.nan) for ms in parts])}

    def _credit(self, block: Block, order: Ints, grade: Ints, judged: Bools) -> None:
        """Give the first of a judged memory and its successors among the results the memory's grade, and the others of them none."""
        for row, q in enumerate(block.places.tolist()):
            rank = {block.table.ids[row][c]: place for place, c in enumerate(order[row].tolist()) if c >= 0}
            own = self.grades[q]
            for key, after in self.evidences[q].superseded.items():
                places = [rank[one.memory_id] for one in after if one.memory_id in rank and own.get(one.memory_id, 0) <= 0]
                if own.get(key, 0) > 0 and places and min(places) < rank.get(key, len(rank)):
                    grade[row, min(places)] = max(own[key], grade[row, min(places)])
                    judged[row, min(places)] = True
                    if key in rank:
                        grade[row, rank[key]] = 0

    def signals(self, config: PipelineConfig) -> dict[str, Floats]:
        """(Q) of each signal of abstain the value of every query under a config, regardless of thresholds; NaN if there is none."""
        asking = asking_all(config)
        found = {name: np.full(len(self.queries), np.nan) for name in CONFIDENCE_FEATURES}
        for block in self.blocks:
            stages = run(block.table, asking)
            if not stages.has(ABSTAIN):  # recorded stages have no signals
                continue
            arrays = stages.of(ABSTAIN)
            for name, values in found.items():
                values[block.places] = arrays.signals(name)
        return found

    def result_ids(self, rankings: Rankings) -> list[list[str]]:
        """The memory ids of every query's results, best first."""
        out: list[list[str]] = [[] for _ in self.queries]
        for block in self.blocks:
            for row, place in enumerate(block.places.tolist()):
                ids = block.table.ids[row]
                out[place] = [ids[c] for c in rankings.order[place].tolist() if c >= 0]
        return out

    def failed(self, config: PipelineConfig) -> Mapping[str, int]:
        """Why candidates have no score of the config's reranker although it was asked, with the number of queries; counted once."""
        if RERANK.is_off(config):
            return {}
        key = model_key(config.rerank)
        if key not in self._failed:
            found = self._failed[key] = Counter()
            for evidence in self.evidences:
                if evidence.external:
                    continue
                errors = {score.error for score in evidence.model_scores.get(key, {}).values() if score.error}
                found.update({reason(error) for error in errors})
        return self._failed[key]

    def _encode(self) -> list[Block]:
        blocks = []
        for places in blocks_of(self.evidences, BLOCK_QUERIES):
            table = to_table([self.evidences[q] for q in places])
            grade, judged = np.zeros(table.shape, dtype=np.int64), np.zeros(table.shape, dtype=bool)
            for row, q in enumerate(places.tolist()):
                given = self.grades[q]
                for c, key in enumerate(table.ids[row]):
                    if key in given:
                        judged[row, c], grade[row, c] = True, given[key]
            blocks.append(Block(places, table, grade, judged))
        return blocks

    def unmet(self, config: PipelineConfig) -> dict[str, int]:
        """Gather parameters that the config wants otherwise; asked once for queries that were gathered alike."""
        found: dict[str, int] = {}
        for evidence, count in self._alike:
            for need in unmet(config, evidence.notes, evidence.in_brief) if not evidence.external else ():
                words = f"{need.parameter}{GATHERED}{need.gathered}, wanted {need.wanted}"
                found[words] = found.get(words, 0) + count
        return found


def missing_score_lines(configs: Iterable[tuple[str, Mapping[str, int]]]) -> list[str]:
    """What configs ask for that the evidence does not hold, by name with `Rankings.needs`: on pages, in commands,
    reports and on cards. A line for each thing that is lacking, with the configs and the number of queries, scores
    first; configs that lack the same share one, and so do parameters of a config that were gathered otherwise, of which
    the first is named."""
    names: dict[str, list[str]] = {}
    for name, needs in configs:
        otherwise = [what for what in needs if GATHERED in what]
        brief = {what: count for what, count in needs.items() if what not in otherwise[1:]}
        if len(otherwise) > 1:
            several = f"what {len(otherwise)} parameters ask for, such as {otherwise[0]}"
            brief = {several if what == otherwise[0] else what: count for what, count in brief.items()}
        for what, count in brief.items():
            line = f"{count} {'query lacks' if count == 1 else 'queries lack'} {what}"
            names.setdefault(line, []).append(name)
    ordered = sorted(names.items(), key=lambda row: UNSCORED not in row[0])  # what can be scored first
    return [f"{some(list(dict.fromkeys(asking)), MAX_NAMES)}: {line}" for line, asking in ordered]


def _gathered_alike(evidences: Sequence[Evidence]) -> list[tuple[Evidence, int]]:
    """One of each kind of evidence, by all that `unmet` reads of it, and how many there are of it."""
    alike: dict[tuple[int, bool, str, bool], tuple[Evidence, int]] = {}
    for evidence in evidences:
        notes = evidence.notes
        key = (id(notes.get("gathered")), bool(evidence.chunks), repr(notes.get(SCORED_WITH)), SUPERSEDED in notes)
        first, count = alike.get(key, (evidence, 0))
        alike[key] = (first, count + 1)
    return list(alike.values())


def _knows_stale(evidence: Evidence) -> bool:
    """Whether it is known which memories are stale: edges were looked for, or some have a date of expiry."""
    if SUPERSEDED in evidence.notes:
        return True
    return evidence.as_of is not None and any(
        memory.valid_until or memory.valid_from for memory in evidence.memories.values()
    )


def _ranked(block: Block, results: Ranking) -> tuple[Ints, Floats, Ints, Bools, Ints]:
    """Candidate, score, grade, whether it is judged and its tokens, (Qb, R) each, by rank."""
    order = results.leading(results.alive.shape[1])
    filled = order >= 0
    order = order[:, : int(filled.sum(axis=1).max(initial=0))]
    filled, rows, there = filled[:, : order.shape[1]], np.arange(len(order))[:, None], np.maximum(order, 0)
    grade = np.where(filled, block.grade[rows, there], 0)
    score, tokens = np.where(filled, results.score[rows, there], np.nan), np.where(filled, block.table.tokens[rows, there], 0)
    return order, score, grade, filled & block.judged[rows, there], tokens


@dataclass(frozen=True, eq=False)
class SignalTable:
    """Of Q queries which have an answer and which have none, as far as that is known, and the value of each signal by
    its name. A query of which no relevant memory is known, and of which nobody said that it has no answer, is neither.
    NaN: it has no value."""

    qids: tuple[str, ...]
    answerable: Bools
    unanswerable: Bools
    values: Mapping[str, Floats]

    def of(self, name: str) -> tuple[Floats, Floats]:
        """The values of a signal where there is an answer, and where there is none."""
        values = self.values[name]
        known = ~np.isnan(values)
        return values[known & self.answerable], values[known & self.unanswerable]


def signal_table(batch: LabelledBatch, config: PipelineConfig, relevant_from: Mapping[str, int]) -> SignalTable:
    """The signals of every query of a batch under a config; `relevant_from` is the lowest relevant grade by qid, else 1."""
    least = np.array([relevant_from.get(qid, 1) for qid in batch.qids], dtype=np.int64)
    relevant: Bools = batch.ideal >= least[:, None]
    answerable: Bools = np.any(relevant, axis=1)
    return SignalTable(tuple(batch.qids), answerable, batch.unanswerable & ~answerable, batch.signals(config))
