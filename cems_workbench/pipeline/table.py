"""The tables of the pipeline: candidates as arrays with a query axis, their lists, and a ranking of them.

Axes: Q queries, L lists, C candidates (padded to the longest query; candidates of a query are sorted by memory id, so a
stable sort breaks every tie by id). One query is a batch of one. A stage takes the table and the ranking left by the stage before,
and returns `StageArrays` (stages/result.py); the trace is a view of those, made on demand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from itertools import count
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cems_workbench.pipeline.recorded import StageHead
from cems_workbench.records import Chunk, Memory

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Made = TypeVar("Made")
Number = TypeVar("Number", np.float64, np.int64)


NO_RANK = np.iinfo(np.int64).max
"""The rank of what is in no list, where the least rank counts."""
COUNTED_PER_QUERY = 4
"""With more candidates a query than these, sorting all of them is faster than counting who is ahead of each."""


@dataclass(frozen=True, eq=False)
class Places:
    """Ranks of candidates in lists. A memory of several chunks has the rank of its best chunk."""

    position: Ints
    """(Q, L, C) 1-based place among the memories of the list, 0 = not in it."""
    dense: Ints
    """(Q, L, C) 1-based rank in which equal scores share a rank, 0 = not in the list."""
    raw: Floats
    """(Q, L, C) raw score, 0 where absent."""
    chunk: Ints | None = None
    """(Q, L, C) the chunk that was found, by its `seq`, -1 for the whole memory; None: nothing but whole memories."""
    chunk_rank: Ints | None = None
    """(Q, L, C) 1-based place of that chunk among the chunks of the list, 0 = not in it; None: it is `position`."""


@dataclass(frozen=True, eq=False)
class NestedTable:
    """Input of nested lists: E chunks with their ranks in the two lists inside, and R edges from possible seeds."""

    slot: Ints
    """(E) query * L + the hybrid list that may contain the chunk."""
    candidate: Ints
    chunk: Ints
    """(E) -1 for the whole memory."""
    vector_rank: Floats
    """(E) 1-based among the chunks of the list by meaning, inf if the chunk is not in it."""
    text_rank: Floats
    """(E) the same in the list by ts_rank."""
    query: Ints
    """(R) the query of each edge."""
    source: Ints
    """(R) the candidate that it leads from, -1 for none."""
    target: Ints
    order: Ints
    """(R) 0-based place among the edges of its source."""
    weight: Floats
    """(R)"""
    occurrence_rows: Ints
    """(Q, N) the list that contains the first, second … Nth edge to a memory, -1 for none."""
    seed_rows: Mapping[str, Ints]
    """By source, (Q) the list of the original query whose first memories are the seeds, -1 for none."""


@dataclass(frozen=True, eq=False)
class ListTable:
    """The lists of Q queries, dense over candidates: those gathered, and empty rows for the nested. Nothing here depends on a config."""

    names: Sequence[Sequence[str]]
    """(Q)(L) list names; padded lists have none."""
    source: NDArray[np.int8]
    """(Q, L) index into `SOURCES`, -1 for padding."""
    variant: NDArray[np.int64]
    """(Q, L) index of the query variant, -1 for none."""
    kind: NDArray[np.int8]
    """(Q, L) index into `VARIANT_KINDS` of that variant, -1 for none."""
    words: Ints
    """(Q, L) words of the query as the list's engine counted them, else of the variant's text; of the query in a list of no variant."""
    gathered: Places
    nested: NestedTable | None = None
    """Input of the lists that replay makes; None without such lists."""


@dataclass(frozen=True, eq=False)
class ModelTable:
    """One model's scores: (Q, C) raw (NaN without a score) and state 0 absent, 1 good, 2 failed."""

    raw: Floats
    state: NDArray[np.int8]
    errors: Sequence[Mapping[int, str]]


@dataclass(frozen=True, eq=False)
class SuccessionTable:
    """Which candidates supersede which: E pairs of Q queries, of each superseded candidate one with every successor, latest first."""

    query: Ints
    older: Ints
    newer: Ints
    """(E) candidates."""
    level: Ints
    """(E) successors of the older one: fewer than any memory has that it supersedes."""


@dataclass(frozen=True, eq=False)
class RecordedList:
    """A list of an external trace; `rank` and `score` by column, in its order; it does not keep those `left_out`."""

    name: str
    rank: Mapping[int, tuple[int, float | None]]
    left_out: frozenset[int] = frozenset()


@dataclass(frozen=True, eq=False)
class RecordedWay:
    """What a recorded stage did with Q queries of C candidates; ranks are 0 and scores NaN where there are none."""

    head: StageHead
    entered: Bools
    alive: Bools
    waiting: Bools
    """(Q, C) candidates that the stage does not have and no stage before it dropped."""
    rank_in: Ints
    rank_out: Ints
    score_in: Floats
    score_out: Floats
    lost: Sequence[Mapping[int, tuple[str, bool]]]
    """(Q) by column why a candidate was dropped, and whether only its rank was at fault."""
    ms: Sequence[float | None]


@dataclass(frozen=True, eq=False)
class RecordedTable:
    """The stages of Q external traces that have the same ones."""

    lists: Sequence[Sequence[RecordedList]]
    """(Q)"""
    found: Bools
    """(Q, C) is in a list."""
    kept: Bools
    """(Q, C) is in a list, and the lists pass it on."""
    best: Ints
    """(Q, C) the best rank in a list that keeps it, `NO_RANK` in none."""
    ways: Sequence[RecordedWay]

    @property
    def heads(self) -> tuple[StageHead, ...]:
        """The stages after the lists."""
        return tuple(way.head for way in self.ways)


@dataclass(frozen=True, eq=False)
class CandidateTable:
    """Everything the stages read about the candidates of Q queries."""

    queries: Sequence[str]
    ids: Sequence[Sequence[str]]
    valid: Bools
    lists: ListTable
    as_of: Floats
    """(Q) seconds since the epoch, NaN when unknown."""
    projects: Sequence[str | None]
    kinship: NDArray[np.int8]
    """(Q, C) the memory's project compared with the query's: 0 none, 1 another, 2 begins with the query's, 3 the same."""
    created: Floats
    accessed: Floats
    priority: Floats
    pinned: Bools
    important: Bools
    relevant: Floats
    noise: Floats
    tokens: Ints
    """(Q, C) tokens of the content by `chars4`."""
    memories: Sequence[Sequence[Memory]]
    """(Q)(C) the candidates themselves; data that few configs read is derived on demand."""
    chunks: Sequence[Mapping[str, Sequence[Chunk]]]
    """(Q) the chunks of the candidates that have any, by memory id."""
    cl100k: Sequence[Mapping[str, Sequence[int]]]
    """(Q) by memory id the cl100k tokens of the content, then of each chunk."""
    category: Ints
    """(Q, C) index into `categories`."""
    categories: Sequence[str | None]
    session: Ints
    """(Q, C) session of the memory; a memory without one gets a separate session."""
    models: Mapping[str, ModelTable]
    judges: Mapping[str, ModelTable]
    cosines: Callable[[int], tuple[Floats, Bools]]
    """q -> (C, C) cosine similarities of the embeddings and (C) which candidates have one."""
    vectors: Callable[[], tuple[NDArray[np.float32], Ints]]
    """() -> (N + 1, D) the distinct embeddings at length 1, and (Q, C) which of them a candidate has, N for none, whose row is zeros."""
    overlaps: Callable[[int, int], Floats]
    """q, c -> (C) Jaccard overlap of every candidate's words with candidate c's."""
    notes: Sequence[Mapping[str, Any]]
    succession: SuccessionTable | None = None
    """None if no candidate is superseded, or if that was not gathered."""
    recorded: RecordedTable | None = None
    """The stages of external traces; None if the stages are to be run."""
    single: CandidateTable | None = None
    """The table of the one query that all rows of this one are; see `times`."""
    memo: dict[Hashable, Any] = field(default_factory=dict, repr=False)
    """Values derived from this table and few parameters; see `memoized`."""

    @property
    def shape(self) -> tuple[int, int]:
        """(Q, C)."""
        return self.valid.shape[0], self.valid.shape[1]

    def of_memories(self, what: str, read: Callable[[Memory], float]) -> Floats:
        """(Q, C) a number of each candidate, 0 for padding; read once and kept as `what`."""

        def numbers() -> Floats:
            out = np.zeros(self.shape)
            for q, row in enumerate(self.memories):
                out[q, : len(row)] = [read(memory) for memory in row]
            return out

        if self.single is not None:
            return np.broadcast_to(self.single.of_memories(what, read), self.shape)
        return memoized(self.memo, what, None, numbers)

    def times(self, n: int) -> CandidateTable:
        """This table of one query n times, for n rankings of it; it has no nested lists."""
        return self if n == 1 else memoized(self.memo, "times", n, lambda: self._times(n), TIMES_KEPT)

    def _times(self, n: int) -> CandidateTable:
        lists, pairs = self.lists, self.succession
        if pairs is not None:
            query, level = np.repeat(np.arange(n), len(pairs.query)), np.tile(pairs.level, n)
            pairs = SuccessionTable(query, np.tile(pairs.older, n), np.tile(pairs.newer, n), level)
        return replace(
            _repeated(self, n),
            categories=self.categories,
            lists=replace(_repeated(lists, n), gathered=_repeated(lists.gathered, n), nested=None),
            models={key: _repeated(one, n) for key, one in self.models.items()},
            judges={key: _repeated(one, n) for key, one in self.judges.items()},
            cosines=lambda q: self.cosines(0),
            vectors=lambda: (self.vectors()[0], self.vectors()[1].repeat(n, axis=0)),
            overlaps=lambda q, c: self.overlaps(0, c),
            succession=pairs,
            single=self,
            memo={},
        )

    @property
    def expired(self) -> Bools:
        """(Q, C) whether a candidate does not hold at the query's moment: no longer, or not yet."""

        def made() -> Bools:
            until = self.of_memories(
                "valid until", lambda memory: np.inf if memory.valid_until is None else memory.valid_until.timestamp()
            )
            since = self.of_memories(
                "valid from", lambda memory: -np.inf if memory.valid_from is None else memory.valid_from.timestamp()
            )
            return self.valid & ((until <= self.as_of[:, None]) | (since > self.as_of[:, None]))

        return memoized(self.memo, "expired", None, made)


TIMES_KEPT = 8
"""Tables of one query several times that its table keeps."""
Rows = TypeVar("Rows", bound="CandidateTable | ListTable | ModelTable | Places | ListArrays")


def _repeated(one: Rows, n: int) -> Rows:
    """Every array and sequence of one query n times."""
    again: dict[str, Any] = {}
    for each in fields(one):
        value = getattr(one, each.name)
        if isinstance(value, np.ndarray):
            again[each.name] = np.broadcast_to(value, (n, *value.shape[1:]))
        elif isinstance(value, list | tuple):
            again[each.name] = list(value) * n
    return replace(one, **again)


def chars4(text: str) -> int:
    """Tokens by the `chars4` counter: ceil(characters / 4), at least 1."""
    return max(1, -(-len(text) // 4))


_SCRIPTS = [
    (re.compile(f"[{characters}]"), tokens)
    for characters, tokens in (
        (  # Han
            "\u2e80-\u2fff\u3001-\u3029\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff01-\uff60\U00020000-\U0003ffff",
            1.25,
        ),
        ("\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f", 0.9),  # kana
        ("\u1100-\u11ff\u3130-\u318f\uac00-\ud7af", 1.2),  # Hangul
        ("\u0370-\u03ff\u0590-\u05ff\u0900-\u0dff\u0e00-\u0eff", 1.0),  # Greek, Hebrew, scripts of India, Thai, Lao
        ("\u0600-\u06ff", 0.8),  # Arabic
        ("\u0400-\u052f", 0.45),  # Cyrillic
    )
]
"""cl100k tokens of a character by script: of 60 to 160 characters of notes on each, counted with `models/tokens.py`."""


def tokens_by_script(text: str) -> float:
    """About how many cl100k tokens a text has: characters / 4, but for those of scripts of which one is more."""
    if text.isascii():
        return len(text) / 4
    counts = [(len(script.findall(text)), each) for script, each in _SCRIPTS]
    return (len(text) - sum(count for count, _ in counts)) / 4 + sum(count * each for count, each in counts)


@dataclass(frozen=True, eq=False)
class Ranking:
    """The ranking after a stage: (Q, C) alive and score, and the order of the living.

    `placing` returns the sort key, (Q, C), smaller is better, ties by candidate index; it is only called by a stage
    or a view that needs the order, since sorting is the most expensive operation of a stage. `lead` is that order, candidate indices best
    first and then -1, if the stage has it.
    """

    alive: Bools
    score: Floats
    placing: Callable[[], Floats | Ints]
    lead: Ints | None = None
    """(Q, n), n the largest number alive."""
    stable: bool = False
    """Whether equal scores stay in this order instead of the order of ids."""
    placed: bool = False
    """Whether candidates were placed beside others of the same score, so that no later stage may order equal scores by id."""

    @cached_property
    def key(self) -> Floats:
        """(Q, C) sort key of the living, inf for the others."""
        return np.where(self.alive, self.placing(), np.inf)

    @cached_property
    def rank(self) -> Ints:
        """(Q, C) 1-based rank, 0 for dropped candidates."""
        if self.lead is not None:
            return _ranks(self.lead, self.alive)
        return np.where(self.alive, _places(self.key), 0)

    def rank_of(self, q: Ints, c: Ints) -> Ints:
        """(P) 1-based ranks of some candidates, 0 for the dropped; few of them are counted instead of ranking all."""
        if "rank" in self.__dict__ or (self.lead is None and len(q) > COUNTED_PER_QUERY * len(self.alive)):
            return self.rank[q, c]
        if self.lead is not None:
            found = self.lead[q] == c[:, None]
            place: Ints = (
                np.where(found.any(axis=1), found.argmax(axis=1) + 1, 0) if found.shape[1] else np.zeros_like(q)
            )
            return place
        keys = self.key[q]
        own = keys[np.arange(len(c)), c][:, None]
        ahead = (keys < own) | ((keys == own) & (np.arange(keys.shape[1]) < c[:, None]))
        return np.where(self.alive[q, c], ahead.sum(axis=1) + 1, 0)

    def order(self, q: int) -> Ints:
        """Candidate indices of query q that are alive, best first."""
        alive = np.flatnonzero(self.alive[q])
        return alive[np.argsort(self.key[q, alive], kind="stable")]

    def leading(self, count: int) -> Ints:
        """(Q, at most count) candidate indices of the best, best first; -1 where fewer are alive."""
        if self.lead is not None:
            return self.lead[:, :count]
        return _leading(self.key, min(count, self.alive.shape[1]))


class Unranked(Ranking):
    """A ranking before fusion: no candidate has a rank, and the living are in the order of their ids."""

    @cached_property
    def rank(self) -> Ints:
        """(Q, C) zeros."""
        return np.zeros(self.alive.shape, dtype=np.int64)

    def rank_of(self, q: Ints, c: Ints) -> Ints:
        """(P) zeros."""
        return np.zeros(len(q), dtype=np.int64)

    def order(self, q: int) -> Ints:
        """Candidate indices of query q that are alive, by id."""
        return np.flatnonzero(self.alive[q])


@dataclass(frozen=True, eq=False)
class ListArrays:
    """The lists as fusion sees them."""

    places: Places
    present: Bools
    """(Q, L, C) is in the list, which takes part, within its depth (and above the threshold, after that stage)."""
    score: Floats
    """(Q, L, C) normalised score, 0 where not present."""
    active: Bools
    """(Q, L) takes part, whether or not anything is in it."""
    own_scale: Bools | None = None
    """(Q, L) has scores on the scale of the source that answered it, which nothing made comparable; None: no list."""
    memo: dict[Hashable, Any] = field(default_factory=dict, repr=False)
    """Values that fusion derived from these lists and few parameters; see `memoized`."""


class GivenRanking(Ranking):
    """A ranking whose ranks are as recorded: `placing` gives them, and they may have gaps or stand twice."""

    @cached_property
    def rank(self) -> Ints:
        """(Q, C) 1-based rank, 0 for those without."""
        return np.where(self.alive, self.placing(), 0).astype(np.int64)

    def rank_of(self, q: Ints, c: Ints) -> Ints:
        """(P) ranks of some candidates."""
        return self.rank[q, c]


def memoized(memo: dict[Hashable, Any], what: str, key: Hashable, make: Callable[[], Made], slots: int = 4) -> Made:
    """The result of `make`, cached per `key` with the arrays it was made from. A key has one slot that it shares with
    others; the last one stays. So memory is bounded, and threads need no lock: a slot is one tuple that is read and
    replaced as a whole."""
    slot = (what, hash(key) % slots)
    found = memo.get(slot)
    if found is None or found[0] != key:
        memo[slot] = found = (key, make())
    made: Made = found[1]
    return made


def word_overlaps(
    text: Callable[[int, int], str], counts: Sequence[int], width: int, word: re.Pattern[str]
) -> Callable[[int, int], Floats]:
    """q, c -> (C) Jaccard overlap of the `word`s of every candidate's text with those of candidate c's; `counts` (Q)
    candidates. A text is read for words once, whichever queries found it; words are numbered in order of occurrence."""
    numbers: dict[str, int] = {}
    fresh = count()  # not the size of the dict, which two threads could read at once
    words_of: dict[str, Ints] = {}

    def words(text: str) -> Ints:
        found = words_of.get(text)
        if found is None:
            distinct = set(word.findall(text.lower()))
            found = words_of[text] = np.array([numbers.setdefault(one, next(fresh)) for one in distinct], np.int64)
        return found

    @lru_cache(maxsize=64)
    def held(q: int) -> tuple[Sequence[Ints], Ints, Ints, Ints]:
        """The words of each candidate, all of them one after the other, the candidate of each, and the number of each candidate's."""
        each = [words(text(q, c)) for c in range(counts[q])]
        sizes = np.zeros(width, dtype=np.int64)
        sizes[: len(each)] = [len(row) for row in each]
        return each, np.concatenate([np.zeros(0, np.int64), *each]), np.repeat(np.arange(width), sizes), sizes

    def of(q: int, c: int) -> Floats:
        each, every, owner, sizes = held(q)
        own = np.zeros(int(every.max(initial=0)) + 1, dtype=bool)
        if c < len(each):
            own[each[c]] = True
        shared = np.bincount(owner[own[every]], minlength=width).astype(np.float64)
        union = sizes + sizes[c] - shared
        overlap: Floats = np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)
        return overlap

    return of


def recalled(memo: Mapping[Hashable, Any], what: str, key: Hashable, slots: int = 4) -> Any:
    """What `memoized` kept for a key, None if it kept nothing."""
    found = memo.get((what, hash(key) % slots))
    return found[1] if found is not None and found[0] == key else None


class _SeveralLists(ListArrays):
    """The lists of several rows, an array of all made when a stage reads it: few do."""

    def __init__(self, parts: Sequence[ListArrays]) -> None:
        own = [np.zeros_like(one.active) if one.own_scale is None else one.own_scale for one in parts]
        scales = None if all(one.own_scale is None for one in parts) else np.concatenate(own)
        self.__dict__.update(parts=parts, own_scale=scales, memo={})

    def __getattr__(self, name: str) -> Any:
        if name not in ("places", "present", "score", "active"):
            raise AttributeError(name)
        each = [getattr(one, name) for one in self.__dict__["parts"]]
        made = self.__dict__[name] = _places_of(each) if name == "places" else np.concatenate(each)
        return made


def _places_of(each: Sequence[Places]) -> Places:
    """The places of one query each as those of as many rows."""
    whole = all(one.chunk is None for one in each), all(one.chunk_rank is None for one in each)
    chunks = [np.full_like(one.position, -1) if one.chunk is None else one.chunk for one in each]
    ranks = [one.position if one.chunk_rank is None else one.chunk_rank for one in each]
    position, dense, raw = (
        np.concatenate([getattr(one, name) for one in each]) for name in ("position", "dense", "raw")
    )
    return Places(
        position, dense, raw, None if whole[0] else np.concatenate(chunks), None if whole[1] else np.concatenate(ranks)
    )


def several_lists(lists: Sequence[ListArrays]) -> ListArrays:
    """The lists of one query each as those of as many rows."""
    return lists[0] if len(lists) == 1 else _SeveralLists(lists)


def gathered_lists(table: CandidateTable) -> ListArrays:
    """The gathered lists with their raw scores, independent of the config."""
    return memoized(table.memo, "gathered", None, lambda: _as_gathered(table.lists.gathered))


def _as_gathered(places: Places) -> ListArrays:
    return ListArrays(places, places.position > 0, places.raw, np.ones(places.position.shape[:2], dtype=bool))


def ranked(score: Floats, alive: Bools, ties: Callable[[], Floats | Ints] | None = None) -> Ranking:
    """Rank the living by descending score; equal scores by `ties`, smaller first, else by candidate index, the order of
    memory ids. With `ties` the ranking is marked as stable: ranking it again keeps the order of equal scores."""
    if ties is None:
        return Ranking(alive, score, lambda: -score)
    return Ranking(alive, score, lambda: _places_by(-score, ties()), stable=True)


def chosen_in_order(alive: Bools, score: Floats, order: Ints) -> Ranking:
    """The living in a given (Q, n) order, independent of their scores."""
    return Ranking(alive, score, lambda: _ranks(order, alive), order)


def unranked(alive: Bools, score: Floats) -> Ranking:
    """A ranking before fusion, without ranks."""
    return Unranked(alive, score, lambda: score)


def reranked_by(alive: Bools, before: Ranking) -> Ranking:
    """Close the gaps of dropped candidates: the others keep their order."""
    return Ranking(alive, before.score, lambda: before.key, stable=before.stable, placed=before.placed)


def _ranks(order: Ints, alive: Bools) -> Ints:
    """(Q, C) 1-based ranks of the candidates in (Q, n) of an order, 0 for the others."""
    ranks = np.zeros(alive.shape, dtype=np.int64)
    queries, places = np.nonzero(order >= 0)
    ranks[queries, order[queries, places]] = places + 1
    return ranks


def _leading(key: Floats, count: int) -> Ints:
    """(Q, count) columns of the smallest finite keys of each row, ascending, ties by column; -1 for padding."""
    queries, width = key.shape
    # A partition saves time only if few of the columns are wanted.
    if count == 0 or 4 * count > width:
        order = np.argsort(key, axis=1, kind="stable")[:, :count]
        return np.where(along(key, order) < np.inf, order, -1)
    last = np.partition(key, count - 1, axis=1)[:, count - 1, None]
    # All ties of the last place stay, so that the stable sort below can settle them by column.
    first = key <= last
    if last.size and last.max() == np.inf:  # a row with fewer than `count`
        first &= key < np.inf
    flat = np.flatnonzero(first)  # more than `count` if the last place is tied
    row, column = np.divmod(flat, width)
    held = np.bincount(row, minlength=queries)
    place = np.arange(len(row)) - np.repeat(np.cumsum(held) - held, held)
    few = np.full((queries, max(count, int(held.max(initial=0)))), np.inf)
    columns = np.full(few.shape, -1)
    few[row, place], columns[row, place] = key[row, column], column
    order = np.argsort(few, axis=1, kind="stable")[:, :count]
    return along(columns, order)


def along(values: NDArray[Number], columns: Ints) -> NDArray[Number]:
    """(Q, n) values at n columns of each row."""
    taken: NDArray[Number] = values[np.arange(len(values))[:, None], columns]
    return taken


def _places_by(key: Floats, ties: Floats | Ints) -> Ints:
    """(Q, C) 1-based place of each candidate by ascending key, equal keys by `ties`."""
    order = np.argsort(ties, axis=1, kind="stable")
    rows = np.arange(len(key))[:, None]
    # The second sort is stable, so equal keys keep the order of the ties.
    order = order[rows, np.argsort(key[rows, order], axis=1, kind="stable")]
    places = np.empty(key.shape, dtype=np.int64)
    places[rows, order] = np.arange(1, key.shape[1] + 1)
    return places


def _places(key: Floats | Ints) -> Ints:
    """(Q, C) 1-based place of each candidate by ascending key, ties by candidate index."""
    order = np.argsort(key, axis=1, kind="stable")
    places = np.empty(key.shape, dtype=np.int64)
    places[np.arange(len(key))[:, None], order] = np.arange(1, key.shape[1] + 1)
    return places
