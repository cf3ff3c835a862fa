"""Stages that do nothing and lists that know nothing, over the queries of a set or in one: what their evidence alone shows, with counts.

    order        a reranker returns its input in the input's order, or in the reverse of it; or the first is the one with its lowest score
    scores       all scores of a stage or a list are equal, or half of them are, or so few values that some candidates of a query share one
    head         texts that begin alike have one score and differ later: the reranker reads no further
    same         a list returns the same memories, in one order, whatever the query; or nothing where others find something
    text         a list or a reranker of a trace was given another text than the query
    ids          lists have separate ids for the same texts, so that fusion does not join them
    limit        a threshold or a filter drops everything, or the best of its input in many queries; a filter leaves few of it
    beginnings   a stage reads the first characters of longer texts
    shares       a list has next to nothing of the score of a fusion: `analysis/fusion_shares.py`
    judged       a reranker ranks the judged memories worse than its input had them

All are read from the arrays of a replay, so that traced, recorded and own pipelines are asked alike. One query shows only that scores are
equal or ids differ, that a list of a trace is empty or was given another text, and that an order of many stayed; the rest takes at least
`FEW` queries. What evidence cannot show is left out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations, pairwise, takewhile
from typing import Any

import numpy as np

from cems_workbench.analysis.fusion_shares import FusionShares
from cems_workbench.pipeline.list_sources import LIST_SOURCES, SOURCES, equal_scores, list_label
from cems_workbench.pipeline.recorded import ASKED, HEADS, OWN_IDS, RECORDED
from cems_workbench.pipeline.stages.adjust import ADJUST
from cems_workbench.pipeline.stages.filter import FILTER
from cems_workbench.pipeline.stages.lists import LISTS
from cems_workbench.pipeline.stages.rerank import RERANK
from cems_workbench.pipeline.stages.result import StageArrays
from cems_workbench.pipeline.stages.stage import PipelineRun
from cems_workbench.pipeline.stages.threshold import THRESHOLD
from cems_workbench.pipeline.table import Bools, CandidateTable, Floats, Ints, RecordedTable

FEW = 3
"""Queries from which on a set shows something."""
MANY = 10
"""Scores of a list that must be equal to say so."""
LONE = 5
"""Candidates that one query alone must have kept in order: by chance that happens once in 120."""
CHANCE_BITS = 20.0
"""What the orders of a set must come to: by chance they are all kept once in a million."""
FEW_VALUES = 256
"""Of so many the scores may be those of 8 bits."""
MOSTLY_EMPTY = 0.4
"""Share of the queries from which on an empty list is named."""
MIN_HEAD = 40
"""Characters that texts must begin alike to say that a reranker reads no more."""
MEASURED = 10
"""The k of the measured nDCG."""
FINDING = frozenset(
    source.name for source in LIST_SOURCES if source.finds and source.name not in ("relations", "entities")
)
"""Sources whose lists must depend on the query, and are rarely empty."""


@dataclass(frozen=True, slots=True)
class KnownMistake:
    """A mistake in a query or a set: the stage and the parameter that make it (empty: none of ours), how many memories or queries it
    concerns, and a sentence."""

    stage: str
    parameter: str
    count: int
    words: str

    @property
    def line(self) -> str:
        """ "rerank: all 12 scores are 1: it tells nothing apart [rerank.backend]"."""
        return f"{self.stage}: {self.words}" + (f" [{self.parameter}]" if self.parameter else "")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def with_those_of_set(own: Sequence[KnownMistake], of_set: Sequence[KnownMistake]) -> tuple[KnownMistake, ...]:
    """The mistakes of a query, those of its set instead where they are of the same stage and parameter: more queries show more."""
    known = {(one.stage, one.parameter) for one in of_set}
    return (*(one for one in own if (one.stage, one.parameter) not in known), *of_set)


@dataclass
class _Scores:
    """The scores of a stage or a list over some queries."""

    values: Counter[float] = field(default_factory=Counter)
    queries: int = 0
    equal: int = 0
    tied: int = 0
    tied_first: int = 0

    def add(self, scores: Sequence[float]) -> None:
        """Those of one query, best first."""
        if len(scores) < 2:
            return
        self.queries += 1
        self.values.update(scores)
        distinct = len(set(scores))
        self.equal += distinct == 1
        self.tied += distinct < len(scores)
        self.tied_first += scores[0] == scores[1]

    def words(self) -> str:
        """The first that holds: all are equal, in every query all are, half are, or there are few values; empty if none does."""
        total, of = self.values.total(), "" if self.queries == 1 else f" of {self.queries} queries"
        if not total:
            return ""
        if len(self.values) == 1:
            return equal_scores(total, next(iter(self.values)), of)
        if self.queries >= FEW and self.equal == self.queries:
            return f"in each{of} all scores are equal: it tells nothing apart"
        value, count = self.values.most_common(1)[0]
        if count >= max(LONE, total / 2):
            return f"{count} of {total} scores{of} are {value:.4g}: it does not tell these apart"
        few = len(self.values) <= min(FEW_VALUES, total / 2)
        if self.queries < FEW or not few or 2 * self.tied < self.queries:
            return ""
        said = f"its {total} scores{of} are only {len(self.values)} values: in {self.tied} queries some are equal"
        return f"{said}, in {self.tied_first or 'none'} the first two"


@dataclass
class _Order:
    """What a stage that reranks did with the order of its input."""

    parameter: str
    queries: int = 0
    kept: int = 0
    turned: int = 0
    rising: int = 0
    scored: int = 0
    bits: float = 0.0
    most: int = 0
    scores: _Scores = field(default_factory=_Scores)
    heads: list[int] = field(default_factory=list)
    """Of each pair of equal score and other text, how many characters they begin alike."""
    apart: int = 0
    """The longest beginning that two texts of other scores have in common."""
    before: list[float] = field(default_factory=list)
    after: list[float] = field(default_factory=list)
    """Of each judged query the nDCG of as many of its input as it returned, and of what it returned."""

    def add(self, before: Ints, scores: Floats, texts: Sequence[str]) -> None:
        """One query: of what it returned, best first, the rank before and the score, NaN without one."""
        if len(before) < 2:
            return
        rises = np.diff(before) > 0
        self.queries += 1
        self.kept += bool(rises.all())
        self.turned += bool(not rises.any()) and len(before) > 2
        self.bits += math.log2(math.factorial(min(len(before), 100)))
        self.most = max(self.most, len(before))
        if np.isnan(scores).any():
            return
        values = scores.tolist()
        self.scores.add(values)
        self.scored += 1
        self.rising += values[0] < values[-1] and all(one <= other for one, other in pairwise(values))
        self._compare_heads(values, texts)

    def _compare_heads(self, values: Sequence[float], texts: Sequence[str]) -> None:
        by_score = Counter(values)
        if len(by_score) == len(values) or len(by_score) == 1 or len(values) > 50:
            return
        for i, j in combinations(range(len(values)), 2):
            if texts[i] != texts[j]:
                pairs = takewhile(lambda pair: pair[0] == pair[1], zip(texts[i], texts[j], strict=False))
                alike = sum(1 for _ in pairs)
                if values[i] == values[j]:
                    self.heads.append(alike)
                else:
                    self.apart = max(self.apart, alike)

    def lines(self) -> Iterator[tuple[int, str]]:
        """How many queries, and what happened in them."""
        scores = self.scores.words()
        if len(self.heads) >= FEW and min(self.heads) >= MIN_HEAD and min(self.heads) > self.apart:
            pairs = f"{len(self.heads)} pairs of candidates begin with the same {min(self.heads)} characters"
            yield self.queries, f"{pairs}, differ later and have equal scores: it reads no more of them"
        elif scores:
            yield self.queries, scores
        constant = len(self.scores.values) == 1 or (self.scores.queries and self.scores.equal == self.scores.queries)
        if self.queries == 1 and self.kept and self.most >= LONE and not constant:
            said = f"its {self.most} candidates stay in the order of its input"
            yield 1, f"{said}; one query alone does not show that it always does so"
        if self.queries < FEW:
            return
        of = f"in {self.queries} of {self.queries} queries"
        if self.bits >= CHANCE_BITS and not constant:
            if self.kept == self.queries:
                yield self.queries, f"returns its input in the order of the input {of}: it changes nothing"
            elif self.turned == self.queries:
                yield self.queries, f"returns its input in the reverse order {of}"
        if self.scored >= FEW and self.rising == self.scored:
            said = f"its scores rise from first to last in {self.scored} of {self.scored} queries"
            yield self.scored, f"{said}: its order is the reverse of its scores"

    def measured(self) -> str:
        """That it ranks the judged memories worse than its input; empty unless the 95 % interval says so."""
        before, after = np.array(self.before), np.array(self.after)
        if len(before) < FEW:
            return ""
        from cems_workbench.evaluation.statistics import paired_interval  # which a single query does without

        gain = (after - before)[:, None]
        low, high = paired_interval(gain)[:, 0]
        means = f"nDCG@{MEASURED} {before.mean():.4f} before it, {after.mean():.4f} after it"
        over = f"over {len(before)} judged queries ({gain.mean():+.4f} [{low:+.4f}, {high:+.4f}])"
        return f"ranks worse than its input: {means}, {over}" if high < 0 else ""


@dataclass
class _List:
    first: dict[str | None, Sequence[str]] = field(default_factory=dict)
    """By project the longest answer so far."""
    queries: dict[str | None, set[str]] = field(default_factory=dict)
    same: bool = True
    found: int = 0
    asked: int = 0
    empty: int = 0
    """Queries in which only others found something."""
    scores: _Scores = field(default_factory=_Scores)

    def add(self, table: CandidateTable, q: int, ids: Sequence[str], scores: Sequence[float], others: bool) -> None:
        """The answer to query q of a table, best first; scores are empty where some are not known. `others`: another list found some."""
        self.asked += 1
        if not ids:
            self.empty += others
            return
        self.found += 1
        self.scores.add(scores)
        project = None if table.recorded is not None else table.projects[q]
        first = self.first.setdefault(project, ids)
        self.queries.setdefault(project, set()).add(table.queries[q])
        self.same = self.same and _alike(first, ids)
        if len(ids) > len(first):
            self.first[project] = ids

    def line(self, name: str, traced: bool) -> str:
        """What it does in many queries; of a trace also that it is empty in the only one."""
        if traced and self.asked == self.empty == 1:
            return f"{name} is empty in this query"
        if self.empty and self.asked >= FEW and self.empty >= MOSTLY_EMPTY * self.asked:
            return f"{name} is empty in {self.empty} of {self.asked} queries"
        asked = max((len(queries) for queries in self.queries.values()), default=0)
        if self.same and asked >= FEW and self.found == self.asked:
            most = max(map(len, self.first.values()))
            what = "memory" if most == 1 else f"{most} memories in the same order"
            return f"{name} returns the same {what} in {self.found} of {self.found} queries, whatever they ask"
        scores = self.scores
        equal = scores.queries >= FEW and scores.values.total() >= MANY and len(scores.values) == 1
        return f"{name}: {scores.words()}" if equal else ""


def _alike(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether two answers are the same but for what a filter left out: four in five of the shorter one, in the same order."""
    if list(one) == list(other):
        return True
    places = {key: i for i, key in enumerate(one)}
    both = [places[key] for key in other if key in places]
    return len(both) >= max(FEW, 0.8 * min(len(one), len(other))) and all(a < b for a, b in pairwise(both))


@dataclass
class _Limit:
    parameter: str
    value: float | None
    queries: int = 0
    all_out: int = 0
    best: float = -math.inf
    worst: float = math.inf
    condition: bool = False
    """A filter of a trace, which may select by something else than the score."""
    first_out: int = 0
    kept_from: float = math.inf
    dropped_to: float = -math.inf
    """The lowest score that was kept, and the highest that was dropped; NaN where one is not known."""
    mixed: int = 0
    few: list[tuple[int, int]] = field(default_factory=list)
    """Candidates left and read, of the queries where few are left."""
    left: Counter[int] = field(default_factory=Counter)

    def add(self, before: int, after: int, scores: Floats) -> None:
        """Candidates of one query before and after, and their scores before it, NaN where there is none."""
        if not before:
            return
        self.queries += 1
        self.all_out += not after
        known = scores[~np.isnan(scores)]
        if len(known):
            self.best, self.worst = max(self.best, float(known.max())), min(self.worst, float(known.min()))

    def add_queries(self, entered: Bools, kept: Bools, scores: Floats) -> None:
        """(Q, C) whether candidates were read and kept, and their scores before."""
        for q in range(len(entered)):
            self.add(int(entered[q].sum()), int(kept[q].sum()), np.where(entered[q], scores[q], np.nan))

    def add_kept(self, kept: Bools, scores: Floats) -> None:
        """Whether each candidate of one query, best first, was kept, and its score."""
        if not len(kept):
            return
        left = int(kept.sum())
        self.first_out += not kept[0]
        self.mixed += bool(left and not kept[:left].all())
        self.left[left] += 1
        if 2 * left <= len(kept) and left < MEASURED:
            self.few.append((left, len(kept)))
        if left:
            self.kept_from = float(np.minimum(self.kept_from, scores[kept].min()))
        if left < len(kept):
            self.dropped_to = float(np.maximum(self.dropped_to, scores[~kept].max()))

    def few_left(self, depth: int) -> str:
        """That a condition, which no score explains, leaves few candidates in half of the queries."""
        count = len(self.few)
        usual = self.left[max(self.left, default=0)] * 2 > self.queries  # so many are chosen, in whatever way
        with_some = self.queries - self.left[0]
        if self.queries < FEW or 2 * count < self.queries or 2 * self.mixed < with_some or not self.mixed or usual:
            return ""
        left, of = (_range([pair[i] for pair in self.few]) for i in range(2))
        after = f": it acts after the search for the nearest {depth}" if self.condition and depth else ""
        return f"leaves {left} of {of} candidates in {count} of {self.queries} queries{after}"

    def floor(self) -> str:
        """That it keeps by score, and drops the best candidate, so all, in a fourth of the queries."""
        if self.queries < FEW or 4 * self.first_out < self.queries or not self.dropped_to < self.kept_from < math.inf:
            return ""
        return (
            f"keeps only scores from {self.kept_from:.4g}, of {self.worst:.4g} to {self.best:.4g}: drops the 1st of its input in "
            f"{self.first_out} of {self.queries} queries"
        )

    def line(self, subject: str, depth: int = 0) -> str:
        """ "0.45 is above every score of vector in 40 of 40 queries, the best is 0.38"; `depth`: the most that a list returned."""
        if self.queries < FEW:
            return ""
        bound = "it" if self.value is None else f"{self.value:g}"
        of = f"every score of {subject}"
        if 5 * self.all_out >= 4 * self.queries:
            said = f"drops all of {subject}" if self.value is None else f"{bound} is above {of}"
            best = f"; the best of all is {self.best:.4g}" if self.best > -math.inf else ""
            return f"{said} in {self.all_out} of {self.queries} queries{best}"
        return self.floor() or self.few_left(depth)


def _range(values: Sequence[int]) -> str:
    """ "3", or "0 to 5"."""
    low, high = min(values), max(values)
    return f"{low}" if low == high else f"{low} to {high}"


def _by_rank(there: Bools, rank: Ints) -> Ints:
    """The places that are there, by rank."""
    places = np.flatnonzero(there)
    ordered: Ints = places[np.argsort(rank[places], kind="stable")]
    return ordered


class StageMistakes:
    """Collects the runs of one config over the queries of a set, a portion at a time."""

    def __init__(self) -> None:
        self._orders: dict[str, _Order] = {}
        self._lists: dict[str, _List] = {}
        self._limits: dict[tuple[str, str], _Limit] = {}
        self._apart: dict[str, list[dict[str, Any]]] = {}
        self._heads: dict[str, list[dict[str, Any]]] = {}
        self._fusions: dict[str, FusionShares] = {}
        self._texts: dict[str, list[str]] = {}
        self._ran: Counter[tuple[str, str]] = Counter()
        """By stage, and of `lists` the list, its queries."""
        self._queries = 0

    def add(
        self, done: PipelineRun, table: CandidateTable, config: Any, grades: tuple[Ints, Ints] | None = None
    ) -> None:
        """What the stages did with Q queries under `config`, or as recorded; `grades` are (Q, C) of the candidates and (Q, J) of all
        judged memories, highest first."""
        self._queries += len(table.ids)
        for note in table.notes:
            if found := note.get(OWN_IDS):
                self._apart.setdefault(found["stage"], []).append(found)
            for one in note.get(HEADS) or ():
                self._heads.setdefault(one["stage"], []).append(one)
            for name, text in note.get(ASKED, {}).items():
                self._texts.setdefault(name, []).append(text)
        if table.recorded is not None:
            self._add_recorded(done, table, grades)
        else:
            self._add_own(done, table, config, grades)

    def _add_recorded(self, done: PipelineRun, table: CandidateTable, grades: tuple[Ints, Ints] | None) -> None:
        recorded = table.recorded
        assert recorded is not None
        self._ran.update({(head.name, head.name): len(table.ids) for head in recorded.heads})
        for q, lists in enumerate(recorded.lists):
            for one, said in zip(lists, table.notes[q][RECORDED].get("lists", ()), strict=True):
                self._ran[LISTS.name, one.name] += 1
                if not one.rank and said.get("lost"):  # what it found is not known
                    continue
                ranked = sorted(one.rank.items(), key=lambda hit: hit[1][0])
                scores = [score for _, (_, score) in ranked if score is not None]
                ids = [table.ids[q][c] for c, _ in ranked]
                own = self._lists.setdefault(one.name, _List())
                own.add(table, q, ids, scores if len(scores) == len(ids) else (), any(x.rank for x in lists))
        arrays = dict(done.items())
        for head in recorded.heads:
            found = arrays[head.name]
            if head.kind in ("rerank", "adjust") and head.ranks_in and head.ranks_out:
                self._add_order(head.name, "", found, table, list(found.after.score[: len(table.ids)]), grades)
            if head.kind == "fusion" and head is recorded.heads[0]:
                self._add_fusion(head.name, found, recorded, grades)
            if head.kind in ("filter", "dedup"):
                limit = _Limit("", None, condition=head.kind == "filter")
                limit = self._limits.setdefault((head.name, "its input"), limit)
                limit.add_queries(found.entered, found.after.alive & found.entered, found.before.score)
                for q in range(len(table.ids) if head.ranks_in else 0):
                    there = _by_rank(found.entered[q], found.before.rank[q])
                    limit.add_kept(found.after.alive[q, there], found.before.score[q, there])

    def _add_fusion(
        self, name: str, found: StageArrays[Any, Any], recorded: RecordedTable, grades: tuple[Ints, Ints] | None
    ) -> None:
        """Each query whose fusion reads all that the lists found."""
        from cems_workbench.evaluation.metrics import discounts

        shares = self._fusions.setdefault(name, FusionShares())
        for q, lists in enumerate(recorded.lists):
            if (recorded.found[q] & ~found.entered[q]).any():
                continue
            there = _by_rank(found.after.alive[q], found.after.rank[q])
            shares.add({one.name: one.rank for one in lists}, there, found.after.score[q, there])
            if grades is None or tuple(one.name for one in lists) != shares.names:
                continue
            grade, ideal = (np.maximum(one[q], 0) for one in grades)
            weights = discounts(MEASURED)
            if best := float(ideal[:MEASURED] @ weights[: len(ideal)]):
                top = [{rank: grade[c] for c, (rank, _) in one.rank.items() if rank <= MEASURED} for one in lists]
                shares.gains.append([sum(g * weights[rank - 1] for rank, g in one.items()) / best for one in top])

    def _add_own(self, done: PipelineRun, table: CandidateTable, config: Any, grades: tuple[Ints, Ints] | None) -> None:
        lists = done.of(LISTS).lists
        cut = None if THRESHOLD.is_off(config) else done.of(THRESHOLD)
        for q, names in enumerate(table.lists.names):
            for i, name in enumerate(names):
                source = SOURCES[table.lists.source[q, i]]
                if lists is None or not lists.active[q, i] or source not in FINDING:
                    continue
                there = _by_rank(lists.present[q, i], lists.places.position[q, i])
                raw = lists.places.raw[q, i, there].tolist()
                own = self._lists.setdefault(list_label(name), _List())
                found = [table.ids[q][c] for c in there.tolist()]
                own.add(table, q, found, raw, bool(lists.present[q].any()))
                if cut is not None and cut.lists is not None and source in config.threshold.applies_to:
                    search = cut.fields(q).search
                    fixed = config.threshold.mode == "fixed"
                    path = "threshold.fixed" if fixed else "threshold.adaptive.max"
                    limit = _Limit(path, search.final if search and fixed else None)
                    limit = self._limits.setdefault((THRESHOLD.name, list_label(name)), limit)
                    limit.add(len(there), int(cut.lists.present[q, i].sum()), lists.score[q, i, there])
        if not FILTER.is_off(config) and config.filter.min_score is not None:
            kept = done.of(FILTER)
            limit = _Limit("filter.min_score", config.filter.min_score)
            limit = self._limits.setdefault((FILTER.name, "the candidates"), limit)
            limit.add_queries(kept.before.alive, kept.after.alive, kept.before.score)
        if not RERANK.is_off(config):
            reranked = done.of(RERANK)
            parts = map(reranked.parts, range(len(table.ids)))
            raws = [next((part.values for part in of if part.kind == "raw"), None) for of in parts]
            self._add_order(RERANK.name, "rerank.backend", reranked, table, raws, grades)
        if not ADJUST.is_off(config):
            self._add_gain(self._orders.setdefault(ADJUST.name, _Order("")), done.of(ADJUST), grades)

    def _add_order(
        self,
        name: str,
        parameter: str,
        found: StageArrays[Any, Any],
        table: CandidateTable,
        scores: Sequence[Floats | None],
        grades: tuple[Ints, Ints] | None,
    ) -> None:
        order = self._orders.setdefault(name, _Order(parameter))
        for q, score in enumerate(scores):
            if score is None:  # too few candidates, so that it read none
                continue
            read = found.after.alive[q] & (found.before.rank[q] > 0)
            if parameter:  # of ours those past the depth follow as they were
                read &= ~np.isnan(score)
            there = _by_rank(read, found.after.rank[q])
            texts = [table.memories[q][c].content for c in there.tolist()]
            order.add(found.before.rank[q, there], score[there], texts)
        self._add_gain(order, found, grades)

    def _add_gain(self, order: _Order, found: StageArrays[Any, Any], grades: tuple[Ints, Ints] | None) -> None:
        """The nDCG of what a stage returned, and of as many of its input: a stage that also cuts is not blamed for having cut."""
        if grades is None or found.passed:
            return
        from cems_workbench.evaluation.metrics import discounts

        grade, ideal = (np.maximum(one, 0) for one in grades)
        weights = discounts(MEASURED)
        best = ideal[:, :MEASURED] @ weights[: ideal.shape[1]]
        returned = found.after.alive.sum(axis=1)
        kept = np.arange(MEASURED) < returned[:, None]
        gained = []
        for ranking in (found.before, found.after):
            lead = ranking.leading(MEASURED)
            gains = np.where(lead >= 0, np.take_along_axis(grade, np.maximum(lead, 0), axis=1), 0)
            gained.append((gains * kept[:, : lead.shape[1]]) @ weights[: lead.shape[1]])
        for q in np.flatnonzero((best > 0) & (returned > 0)).tolist():
            order.before.append(float(gained[0][q] / best[q]))
            order.after.append(float(gained[1][q] / best[q]))

    def found(self) -> list[KnownMistake]:
        """What all queries so far show, lists first, then the stages in their order."""
        mistakes = [
            KnownMistake(LISTS.name, "", one.asked, line)
            for name, one in self._lists.items()
            if (line := one.line(name, bool(self._ran)))
        ]
        for name, texts in self._texts.items():
            ran = self._ran[LISTS.name, name]
            stage, did = (LISTS.name, f"{name} searched") if ran else (name, "read")
            several = "" if self._queries == 1 else f", in {len(texts)} of {ran or self._ran[name, name]} queries"
            mistakes.append(KnownMistake(stage, "", len(texts), f"{did} “{texts[0]}”, not the query{several}"))
        for stage, apart in self._apart.items():
            mistakes.append(KnownMistake(stage, "", len(apart), self._apart_words(apart)))
        for stage, heads in self._heads.items():
            if words := _heads_words(heads):
                own = (LISTS.name, f"{stage} returned {words}") if heads[0]["list"] else (stage, f"reads {words}")
                mistakes.append(KnownMistake(own[0], "", len(heads), own[1]))
        for stage, shares in self._fusions.items():
            if line := shares.words():
                mistakes.append(KnownMistake(stage, "", len(shares.fused), line))
        depth = max((len(ids) for one in self._lists.values() for ids in one.first.values()), default=0)
        for (stage, subject), limit in self._limits.items():
            if line := limit.line(subject, depth):
                mistakes.append(KnownMistake(stage, limit.parameter, limit.queries, line))
        for stage, order in self._orders.items():
            mistakes += [KnownMistake(stage, order.parameter, count, line) for count, line in order.lines()]
            if line := order.measured():
                mistakes.append(KnownMistake(stage, order.parameter, len(order.before), line))
        return mistakes

    def _apart_words(self, apart: Sequence[dict[str, Any]]) -> str:
        texts, split = sum(one["texts"] for one in apart), sum(one["apart"] for one in apart)
        joined = "joins none" if split == texts else f"does not join {split}"
        several = "" if self._queries == 1 else f" in {len(apart)} of {self._queries} queries"
        such = f"each list has separate ids for them, such as {', '.join(apart[0]['ids'])} for one text"
        return f"{joined} of the {texts} texts that several lists found{several}: {such}"


def _heads_words(heads: Sequence[dict[str, Any]]) -> str:
    """ "the first 40 characters of 347 texts"; empty if it has as many longer texts whole, or few are cut."""
    cut, whole = (sum(one[name] for one in heads) for name in ("cut", "whole"))
    if cut < FEW or cut < 4 * whole:
        return ""
    size = _range([one[name] for one in heads for name in ("least", "most")])
    of = f"{len(heads)} {'query' if len(heads) == 1 else 'queries'}"
    return f"only the first {size} characters of {cut} texts in {of}"
