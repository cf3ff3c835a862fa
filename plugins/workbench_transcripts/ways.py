"""The way of a fact: said, written, found, ranked, in the context, in the answer; each question leaves it at exactly one place.

A question needs the turns that its judgments in the transcript name; without any, the turns that have the words of its answer, which is
marked as inferred. For each turn the memories nearest to its point are compared with it (coverage.py). Of a question with several turns
the first place at which one is lost counts.

    never said        no turn has the answer
    not written       turns have it, no memory does
    written wrongly   a memory says otherwise, or has the rest of the turn without the answer, and none says it
    gone              the memory that says it is deleted, expired, or superseded by one that exists
    lost              the pipeline loses it, at the stage that the loss map names (analysis/ranks.py)
    contradicted      it is returned, and the answer follows another result, which says otherwise or leaves the answer out
    not used          it is returned, and the answer does not have it
    cannot tell       a comparison is between its thresholds
    returned          it is within the first k results, and no answer was recorded or the answer has it

Where words leave a memory open, and none is sure, the packaged cross-encoder reads the question with the memory and with the turn. Of the
two logits

    memory - turn < -FAR    it does not say it
    memory - turn >= 0      it says it, if it has the answer's words and the question asks for no time; a cover in other words stays one
    between                 cannot tell

Source: our own; the cross-encoder is models/minilm_judge.py. FAR was set on five conversations of LoCoMo (benchmarks/bench_ways.py).

"not written" and "written wrongly" are replayed: the turn is put in as a memory, or in the place of the wrong one, and `would_be` is the
rank it then has. Where that is not within k, a second cause remains, and the reason says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from math import fsum
from typing import Any, Literal, NamedTuple, get_args

from cems_workbench.analysis.edited_evidence import Edit
from cems_workbench.analysis.memory_names import memory_name
from cems_workbench.analysis.ranks import loss, target_rank
from cems_workbench.analysis.supersession import stored_standings
from cems_workbench.analysis.text_evidence import idf
from cems_workbench.analysis.what_if import applied, new_memory, presence
from cems_workbench.config import PipelineConfig
from cems_workbench.errors import InputError, ModelError, counted
from cems_workbench.evaluation.evaluate import NO_TYPE
from cems_workbench.jobs.evidence_memory import EvidenceMemory
from cems_workbench.jobs.query_set_evidence import request_for
from cems_workbench.models.minilm_judge import MODEL_ID, MiniLMJudge
from cems_workbench.models.protocol import Float32
from cems_workbench.pipeline import Evidence, Trace, replay
from cems_workbench.pipeline.list_sources import ordinal
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages.result import plain_fields
from cems_workbench.progress import Progress, silent
from cems_workbench.records import ENGLISH, Memory, Query, Returned
from cems_workbench.results import Result, Table
from cems_workbench.store.rows import portions
from workbench_transcripts.answers import Answers
from workbench_transcripts.coverage import (
    ABOUT,
    COVERAGES,
    HALF_ABOUT,
    KEY,
    MOST,
    NEAR,
    SAME,
    Coverage,
    Pair,
    Point,
    Reading,
    compared,
    point_of,
    said,
    share_of,
)
from workbench_transcripts.transcript import FEW_NEAR, unfit
from workbench_transcripts.whole import Named

Place = Literal[
    "never said", "not written", "written wrongly", "gone", "lost", "contradicted", "not used", "cannot tell", "returned"
]  # fmt: skip
PLACES: tuple[Place, ...] = get_args(Place)
"""In the order of the way; what nobody can tell comes before what was returned."""
SEARCHED = 12
"""Memories of each index that are compared with a turn, and turns with an answer."""
BESIDE = 60
"""Memories of a turn's session that are compared with it."""
PORTION = 64
"""Questions whose turns are compared at once."""
MAX_DELETED = 10_000
"""Deleted memories that are compared."""
MERGED = 0.5
"""The share of a turn that a memory of it has which left the answer out."""
READ, FAR = 4, 2.0
"""Memories that the cross-encoder reads for a turn; how far below the turn a memory is that does not say the same."""
OTHERWISE: tuple[Coverage, ...] = ("says otherwise", "left out")
RECORDED = "context"
"""The stage of what a recorded context does not have."""
ANSWERED, NEWS = 0.6, 3.0
"""The share of the answer's words that a recorded answer has, from which it is right; and the idf of what else an answer says, from
which it can follow a memory."""


@dataclass(frozen=True, slots=True)
class Held:
    """A turn that a question needs, and the memory that comes nearest to it."""

    turn: Memory
    pair: Pair
    memory: Memory | None
    place: Place
    reason: str
    stage: str = ""


@dataclass(frozen=True, slots=True)
class Way:
    """Where one question leaves the way. `held` are its turns; `inferred`: no judgment named them. `would_be` is the rank of what was
    swapped in, None where nothing was, 0 where it is not among the results."""

    query: Query
    place: Place
    reason: str
    held: tuple[Held, ...]
    inferred: bool = False
    stage: str = ""
    would_be: int | None = None
    proven: bool = False

    def to_json(self) -> dict[str, Any]:
        turns = [
            {"turn": one.turn.id, "text": one.turn.content, "memory_id": one.memory and one.memory.id}
            | {"memory": one.memory and one.memory.content, "coverage": one.pair.coverage, "place": one.place}
            | {"provenance": "recorded" if one.pair.recorded else "inferred"}
            for one in self.held
        ]
        of_query = {"qid": self.query.qid, "query": self.query.query, "answer": self.query.answer}
        return of_query | plain_fields(self, "place reason stage inferred would_be proven") | {"turns": turns}


@dataclass(frozen=True, eq=False, repr=False)
class Ways(Result):
    """The ways of a set's questions under a config."""

    name: str
    config: str
    k: int
    ways: tuple[Way, ...]
    remarks: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Of what."""
        return f"the way of {counted(len(self.ways), 'questions')} of {self.name}, with {self.config}, within the first {self.k}"

    @property
    def counts(self) -> Counter[tuple[str, Place]]:
        """Questions by type and place."""
        return Counter((way.query.type or NO_TYPE, way.place) for way in self.ways)

    @property
    def lines(self) -> list[str]:
        """How many leave at each place."""
        lost = Counter(way.place for way in self.ways)
        ended = lost.pop("returned", 0)
        said_where = ", ".join(f"{place} {lost[place]:,}" for place in PLACES if lost[place])
        return [f"{ended:,} of {len(self.ways):,} facts come through" + (f"; {said_where}" if said_where else "")]

    @property
    def tables(self) -> tuple[Table, ...]:
        """By type, and each question that leaves."""
        counts = self.counts
        kinds = sorted({kind for kind, _ in counts})
        used = [place for place in PLACES if any(counts[kind, place] for kind in kinds)]
        rows = tuple((kind, *(counts[kind, place] for place in used)) for kind in kinds)
        left = [way for way in sorted(self.ways, key=lambda way: PLACES.index(way.place)) if way.place != "returned"]
        each = tuple(
            (way.place, way.query.query, way.query.answer, _turn(way), _memory(way), way.reason) for way in left
        )
        columns = ("place", "question", "answer", "said", "memory", "what happened")
        return Table(("type", *used), rows, "by type"), Table(columns, each, "questions that lose their fact")

    @property
    def notes(self) -> Sequence[str]:
        """What was left out, and what is inferred."""
        inferred = sum(way.inferred for way in self.ways)
        said_of = (
            [f"the turns of {counted(inferred, 'questions')} were inferred from their answers"] if inferred else []
        )
        recorded = sum(held.pair.recorded for way in self.ways for held in way.held)
        turns = sum(len(way.held) for way in self.ways)
        named = (
            f"the memory of {recorded:,} of {counted(turns, 'turns')} names its turn; that of the others is inferred"
        )
        return [*said_of, *([named] if recorded else []), *self.remarks]

    def to_json(self) -> dict[str, Any]:
        places = Counter(way.place for way in self.ways)
        return {
            **plain_fields(self, "name config k"),
            "places": {place: places[place] for place in PLACES if places[place]},
            "ways": [way.to_json() for way in self.ways],
            "notes": list(self.notes),
        }


@dataclass(frozen=True, eq=False, repr=False)
class Between(Result):
    """The ways of the same questions in two stores of one transcript, A and B, by the stores' names."""

    a: Ways
    b: Ways
    names: tuple[str, str]

    @property
    def title(self) -> str:
        """Of what."""
        return f"{self.a.title}: A is {self.names[0]}, B is {self.names[1]}"

    @property
    def pairs(self) -> list[tuple[Way, Way]]:
        """The ways of each question in A and in B."""
        others = {way.query.qid: way for way in self.b.ways}
        return [(way, others[way.query.qid]) for way in self.a.ways if way.query.qid in others]

    @property
    def counts(self) -> Counter[tuple[Place, Place]]:
        """Questions by their place in A and in B."""
        return Counter((one.place, two.place) for one, two in self.pairs)

    @property
    def lines(self) -> list[str]:
        """How many come through, and where those leave that do so in one store alone."""
        whole, counts = len(self.pairs), self.counts
        came = [sum(count for pair, count in counts.items() if pair[side] == "returned") for side in (0, 1)]
        lines = [f"{came[0]:,} of {whole:,} facts come through in A, {came[1]:,} in B"]
        for side, (name, other) in enumerate((("A", "B"), ("B", "A"))):
            lost = {place: counts[(place, "returned") if side == 0 else ("returned", place)] for place in PLACES}
            split = ", ".join(f"{place} {count:,}" for place, count in lost.items() if count and place != "returned")
            lines += [f"lost in {name}, though {other} has them: {split}"] if split else []
        return lines

    @property
    def tables(self) -> tuple[Table, ...]:
        """Place in A by place in B; and each question that comes through in one store alone."""
        counts = self.counts
        rows, columns = ([place for place in PLACES if any(pair[side] == place for pair in counts)] for side in (0, 1))
        crossed = tuple((row, *(counts[row, column] for column in columns)) for row in rows)
        one_sided = [pair for pair in self.pairs if (pair[0].place == "returned") != (pair[1].place == "returned")]
        each = tuple(
            (one.place, two.place, one.query.query, one.query.answer, _turn(one), _memory(one), _memory(two))
            for one, two in one_sided
        )
        columns_of_each = ("A", "B", "question", "answer", "said", "memory in A", "memory in B")
        return (
            Table(("A \\ B", *columns), crossed, "place in A by place in B"),
            Table(columns_of_each, each, "questions that come through in one store alone"),
        )

    @property
    def notes(self) -> Sequence[str]:
        """Those of both."""
        return list(dict.fromkeys([*self.a.notes, *(f"B: {note}" for note in self.b.notes)]))

    def to_json(self) -> dict[str, Any]:
        pairs = [{"a": one, "b": two, "questions": count} for (one, two), count in sorted(self.counts.items())]
        return {
            "names": list(self.names),
            "places": pairs,
            "a": self.a.to_json(),
            "b": self.b.to_json(),
            "notes": list(self.notes),
        }


def first_lost(way: Way) -> Held | None:
    """The turn at which a way ends."""
    return next((one for one in way.held if one.place == way.place), way.held[0] if way.held else None)


def _turn(way: Way) -> str:
    held = first_lost(way)
    return held.turn.content if held else ""


def _memory(way: Way) -> str:
    held = first_lost(way)
    return held.memory.content if held and held.memory and held.pair.coverage != "no" else ""


class _Transcript:
    """The turns of a transcript, and which of them a question needs."""

    def __init__(self, resources: Resources, queries: Sequence[Query]) -> None:
        self.resources, self.reading = resources, _reading(resources, frozenset())
        self.projects = frozenset(name for name, _ in resources.store.memories.projects())
        self._judged: dict[str, list[str]] = {}
        same = {query.qid: query.query for query in resources.store.queries.read()}
        words = {query.qid: query.query for query in queries}
        for judgment in resources.store.judgments.read():
            if judgment.grade > 0 and judgment.memory_id and same.get(judgment.qid) == words.get(judgment.qid):
                self._judged.setdefault(judgment.qid, []).append(judgment.memory_id)
        asked = {name for query in queries for name in self._judged.get(query.qid, ())}
        self._turns = resources.store.memories.read(asked)

    def turns_of(self, query: Query) -> tuple[list[Memory], bool, bool]:
        """The turns that hold the answer; whether they are inferred; whether a comparison left it open."""
        if judged := self._judged.get(query.qid):
            return [self._turns[one] for one in judged if one in self._turns], False, False
        words = self.reading.weights(query.answer or "")
        asked = {term: weight for term, weight in self.reading.weights(query.query).items() if term not in words}
        vector = self.resources.embedder.encode([text := f"{query.query} {query.answer}"])[0]
        best, turns = 0.0, list[Memory]()
        indexes = self.resources.indexes
        hits = indexes.lexical.search(text, SEARCHED) + indexes.vectors.search(vector, SEARCHED)
        for memory in self.resources.store.memories.read(one for one, _ in hits).values():
            if query.project in self.projects and memory.project != query.project:
                continue
            terms = self.reading.terms(said(memory.content))
            best = max(best, has := share_of(words, terms))
            if has >= KEY and (not asked or share_of(asked, terms) >= ABOUT):
                turns.append(memory)
        return turns[:1], True, not turns and best >= MOST


def _reading(resources: Resources, speakers: frozenset[str]) -> Reading:
    index = resources.indexes.lexical

    def weight(term: str) -> float:
        return idf(index.document_frequency(term), index.document_count)

    return Reading(weight, resources.store.language.current, index.language, speakers)


class _Compared(NamedTuple):
    """A turn that a question needs, its point, and the memories that were compared with it, best first."""

    turn: Memory
    point: Point
    rated: Sequence[tuple[Pair, Memory]]


class _Store:
    """The memories of a store, live and deleted, as they are compared with turns."""

    def __init__(self, resources: Resources, transcript: _Transcript) -> None:
        authors = transcript.resources.store.memories.facets().authors
        names = (name.lower() for author, _ in authors if author for name in (author, *author.split()))
        self.resources, self.conversations = resources, transcript.projects
        self.reading = _reading(resources, frozenset(names))
        self.provenance = Named(resources.store.memories.origins())
        rows, total = resources.store.memories.deleted(MAX_DELETED)
        self.deleted = {row.memory.id: (row.memory, self.reading.terms(row.memory.content)) for row in rows}
        over = f"the latest {MAX_DELETED:,} of {total:,} deleted memories are compared"
        self.remarks = [over] if total > MAX_DELETED else []
        self.scorer: MiniLMJudge | None = None
        try:  # it reads English
            self.scorer = resources.shared(MODEL_ID, MiniLMJudge) if self.reading.language == ENGLISH else None
        except ModelError as error:
            self.remarks.append(f"what words leave open stays open: {error}")

    def memories_of(self, given: Sequence[Returned]) -> list[Memory]:
        """What a system was given, as memories of the store or as texts; empty if none can be known."""
        known = self.resources.store.memories.read([one.memory_id for one in given if one.memory_id])
        texts = [known.get(one.memory_id or "") or Memory(one.memory_id or "", one.content or "") for one in given]
        return [memory for memory in texts if memory.content]

    def compared(self, asked: Sequence[tuple[Query, Memory]]) -> list[_Compared]:
        """Each turn that a question needs with the memories nearest to its point and to the answer, and those that name it or its
        session: the indexes and the store are asked once for all."""
        resources, indexes = self.resources, self.resources.indexes
        points = [point_of(turn, query.query, query.answer or "", self.reading) for query, turn in asked]
        texts = list(
            dict.fromkeys(
                text
                for (_, turn), point in zip(asked, points, strict=True)
                for text in (point.text, said(turn.content))
            )
        )
        vectors = dict(zip(texts, resources.embedder.encode(texts), strict=True))
        hits = dict(zip(texts, indexes.vectors.search_many(list(vectors.values()), SEARCHED), strict=True))
        near = []
        for (query, turn), point in zip(asked, points, strict=True):
            by_word = [indexes.lexical.search(text, SEARCHED) for text in (point.text, f"{query.query} {query.answer}")]
            found = (one for some in (*by_word, hits[point.text], hits[said(turn.content)]) for one, _ in some)
            near.append([*self.provenance.of(turn), *self.provenance.beside(turn)[:BESIDE], *found])
        known = resources.store.memories.read(one for ids in near for one in ids)
        return [
            _Compared(
                turn,
                point,
                self._settled(
                    query.query,
                    turn,
                    self._rated(turn, point, vectors[point.text], {one: known[one] for one in ids if one in known}),
                ),
            )
            for (query, turn), point, ids in zip(asked, points, near, strict=True)
        ]

    def _settled(
        self, question: str, turn: Memory, rated: Sequence[tuple[Pair, Memory]]
    ) -> Sequence[tuple[Pair, Memory]]:
        """The same where the cross-encoder decides what the words leave open: how well a memory answers the question beside its turn."""
        left = [one for one in rated if one[0].weak or (one[0].answered and one[0].coverage in ("left out", "no"))]
        open_ = left[:READ]
        if self.scorer is None or not open_ or any(pair.coverage == "covers" and not pair.weak for pair, _ in rated):
            return rated
        own, *scores = self.scorer.score(question, [turn.content, *(memory.content for _, memory in open_)])
        decided = {
            memory.id: _decided(pair, score.raw - own.raw)
            for (pair, memory), score in zip(open_, scores, strict=True)
            if score.raw is not None and own.raw is not None
        }
        return sorted(((decided.get(memory.id, pair), memory) for pair, memory in rated), key=_best_first)

    def _rated(self, turn: Memory, point: Point, vector: Float32, near: dict[str, Memory]) -> list[tuple[Pair, Memory]]:
        """How far each memory covers a point, best first."""
        named = self.provenance.of(turn)
        others = self.conversations - {turn.project, None}  # a memory of another conversation says nothing of this one
        near = {one: memory for one, memory in near.items() if memory.project not in others}
        cosines = {one: cosine for one, cosine, _ in reversed(self.resources.cosines(vector, list(near)))}
        alone = len(self.conversations) < 2  # else a reference such as D1:3 names a turn of each conversation
        rated = [
            (
                compared(
                    point,
                    memory,
                    cosines.get(one, 0.0),
                    self.reading,
                    one in named and (alone or memory.project == turn.project),
                ),
                memory,
            )
            for one, memory in near.items()
        ]
        for memory, terms in self.deleted.values():
            if share_of(point.weights, terms) >= ABOUT:  # what covers a point has that much of it
                pair = compared(point, memory, 0.0, self.reading)
                rated += [(pair, memory)] if pair.coverage == "covers" else []
        return sorted(rated, key=_best_first)


def _best_first(one: tuple[Pair, Memory]) -> tuple[int, bool, float, float, str]:
    pair, memory = one
    return COVERAGES.index(pair.coverage), not pair.recorded, -pair.share, -pair.cosine, memory.id


def _decided(pair: Pair, beside: float) -> Pair:
    """A pair that words leave open, by how far above its turn the cross-encoder puts the memory."""
    if beside < -FAR:
        return pair if pair.coverage in ("left out", "no") else pair._replace(coverage="no", reason="no memory is about it")
    if beside < 0.0:
        return pair._replace(coverage="cannot tell") if pair.coverage == "covers" else pair
    return pair._replace(coverage="covers", reason="in other words") if pair.answered and not pair.stranger else pair


def ways_of(
    name: str,
    queries: Sequence[Query],
    resources: Resources,
    transcript: Resources,
    config: PipelineConfig,
    answers: Answers | None = None,
    progress: Progress = silent,
    gathered: EvidenceMemory | None = None,
) -> Ways:
    """The way of each question, with what a system answered; evidence in `gathered` is used. Raises InputError where none has its right
    answer, and as `gather` does."""
    asked = [query for query in queries if query.answerable is not False and query.answer]
    if not asked:
        raise InputError(f"{name}: none of its queries has its right `answer`; import them again with one")
    evidences = (gathered or EvidenceMemory()).get(asked, config, resources, progress)
    turns, k = _Transcript(transcript, asked), target_rank(config)
    store, answers = _Store(resources, turns), answers or Answers({})
    said_by, contexts = answers.by_qid, answers.contexts
    found = []
    for some in portions(range(len(asked)), PORTION):
        progress("following the facts", some[0], len(asked))
        needed = [turns.turns_of(asked[i]) for i in some]
        pairs = iter(
            store.compared([(asked[i], turn) for i, (of, *_) in zip(some, needed, strict=True) for turn in of])
        )
        for i, (of, inferred, open_) in zip(some, needed, strict=True):
            query, held = asked[i], list(islice(pairs, len(of)))
            if held:
                given = store.memories_of(contexts[query.qid]) if query.qid in contexts else None
                found.append(_way(query, evidences[i], held, inferred, store, config, k, said_by.get(query.qid), given))
            else:
                why = "a turn has some of the answer's words" if open_ else "no turn has the answer's words"
                found.append(Way(query, "cannot tell" if open_ else "never said", why, (), inferred))
    remarks = [*store.remarks, *answers.notes]
    turns_held = [one for way in found for one in way.held]
    near = sum(one.pair.coverage != "no" for one in turns_held)
    if turns_held and near <= FEW_NEAR * len(turns_held):
        remarks.append(unfit(near, len(turns_held), resources, transcript))
    if read := sum(query.qid in contexts for query in asked):
        remarks.append(
            f"what the system read is recorded, and used instead of our results: {counted(read, 'questions')}"
        )
    if len(asked) < len(queries):
        remarks.append(f"left out, as they have no answer: {counted(len(queries) - len(asked), 'questions')}")
    if said_by and (silent_on := sum(query.qid not in said_by for query in asked)):
        remarks.append(f"followed to the results alone, as no answer was recorded: {counted(silent_on, 'questions')}")
    return Ways(name, config.name, k, tuple(found), tuple(remarks))


def _way(
    query: Query,
    evidence: Evidence,
    needed: Sequence[_Compared],
    inferred: bool,
    store: _Store,
    config: PipelineConfig,
    k: int,
    answer: str | None,
    given: Sequence[Memory] | None,
) -> Way:
    trace = replay(evidence, config)
    held = [_held(one.turn, one.rated, trace, store, k) for one in needed]
    first = min(held, key=lambda one: PLACES.index(one.place))
    way = Way(query, first.place, first.reason, tuple(held), inferred, first.stage)
    if first.place in ("not written", "written wrongly"):
        return _swapped(way, first, evidence, store.resources, config, k)
    if answer is None or first.place not in ("returned", "lost"):
        return way
    if given is None:
        shown = [(result.rank, trace.evidence.memories[result.memory_id]) for result in trace.results]
        return _used(way, answer, needed[0].turn, shown, store) if first.place == "returned" else way
    missing = [one for one in needed if not _is_given(one.point, given, store)]
    if missing:
        what = f"none of the {counted(len(given), 'recorded texts')} that the system read has it"
        return replace(way, place="lost", stage=RECORDED, reason=what)
    return _used(
        replace(way, place="returned", stage="", reason="it is in the recorded context"),
        answer,
        needed[0].turn,
        [*enumerate(given, 1)],
        store,
    )


def _is_given(point: Point, given: Sequence[Memory], store: _Store) -> bool:
    """Whether what a system was given has a turn's answer."""
    return any(compared(point, memory, NEAR, store.reading).coverage == "covers" for memory in given)


def _held(turn: Memory, rated: Sequence[tuple[Pair, Memory]], trace: Trace, store: _Store, k: int) -> Held:
    covering = [(pair, memory) for pair, memory in rated if pair.coverage == "covers"]
    own = next((one for one in rated if one[0].coverage == "says otherwise" and one[0].share >= SAME), None)
    if covering and own and (likest := covering[0][0].share) < min(SAME, own[0].share - HALF_ABOUT):
        # own is the memory of this turn, it seems; another may say it in other words
        if likest < MOST:
            return Held(turn, *own, "written wrongly", own[0].reason)
        return Held(turn, *own, "cannot tell", f"{own[0].reason}; {memory_name(covering[0][1])} may say it")
    if not covering:
        if not rated:
            return Held(turn, Pair("no", 0.0, None, 0.0, ""), None, "not written", "no memory is near it")
        has = [
            one
            for one in rated
            if one[0].coverage == "cannot tell" and (one[0].key or 0.0) >= KEY and one[0].cosine >= ABOUT
        ]
        pair, memory = has[0] if has and rated[0][0].coverage != "says otherwise" else rated[0]
        place: dict[Coverage, Place] = {"says otherwise": "written wrongly", "cannot tell": "cannot tell"}
        merged = max(rated, key=lambda one: (one[0].half and one[0].whole >= ABOUT, one[0].whole))
        without = merged[0].share < MOST if merged[0].key is None else merged[0].key < KEY
        if pair.coverage == "left out" and pair.part and pair.share >= MOST and not has:
            return Held(turn, pair, memory, "written wrongly", "it is a part of the turn, without the answer")
        kept = merged[0].whole >= (ABOUT if merged[0].half else MERGED)
        if pair.coverage != "says otherwise" and not has and without and kept:
            return Held(turn, *merged, "written wrongly", "a memory has the rest of the turn, without the answer")
        return Held(turn, pair, memory, place.get(pair.coverage, "not written"), pair.reason)
    moment = trace.evidence.as_of or datetime.now(UTC)
    gone, lost = list[Held](), list[Held]()
    live = [memory for _, memory in covering if memory.id not in store.deleted]
    edges = store.resources.store.relations.superseding([memory.id for memory in live])
    stale = stored_standings(live, edges, moment)
    for pair, memory in covering:
        rank = trace.ranks.get(memory.id)
        if rank is not None and rank <= k:
            return Held(turn, pair, memory, "returned", f"{ordinal(rank)} of the results")
        if memory.id in store.deleted:
            gone.append(Held(turn, pair, memory, "gone", "deleted"))
        elif memory.expired(moment) or memory.id in stale:
            gone.append(Held(turn, pair, memory, "gone", stale.get(memory.id) or memory.out_of_date(moment)))
        else:
            where = loss(trace, memory.id, k)
            stage, words = (where.stage, where.reason) if where else ("", "never a candidate")
            lost.append(Held(turn, pair, memory, "lost", words, stage))
    if gone and lost and gone[0].pair.share >= SAME > lost[0].pair.share:  # the one that is gone says it in these words
        return gone[0]
    return [*lost, *gone][0]


def _swapped(way: Way, held: Held, evidence: Evidence, resources: Resources, config: PipelineConfig, k: int) -> Way:
    """The way with the rank that the turn would have, had it been written."""
    wrong = held.memory if held.place == "written wrongly" else None
    if wrong is None:
        about = {"project": way.query.project, "created_at": held.turn.created_at, "author": held.turn.author}
        edit = presence(new_memory(held.turn.content, resources, **about), resources)
    else:
        edit = Edit(wrong, replace(wrong, content=held.turn.content), resources)
    moment = evidence.as_of or datetime.now(UTC)
    after = applied(edit, evidence, config, request_for(way.query, moment)).after
    rank = after.ranks.get(edit.memory_id, 0)
    missing = sum(one.place != "returned" for one in way.held)
    if 0 < rank <= k:
        first = f"; it is 1 of {missing} turns that are missing" if missing > 1 else ""
        reason = f"{held.reason}; had it been written, it would be {ordinal(rank)}{first}"
        return replace(way, would_be=rank, proven=missing == 1, reason=reason)
    where = loss(after, edit.memory_id, k)
    then = where.stage if where else "the lists"
    return replace(way, would_be=rank, reason=f"{held.reason}; one of two causes: written, it would be lost at {then}")


def _used(way: Way, answer: str, turn: Memory, shown: Sequence[tuple[int, Memory]], store: _Store) -> Way:
    """The way of a returned fact up to the answer."""
    reading = store.reading
    point = point_of(turn, way.query.query, way.query.answer or "", reading, few=1)
    own = compared(point, Memory("answer", answer), 0.0, reading)
    if not point.gold and own.share < MOST:  # "No": how it is said decides
        return replace(way, place="cannot tell", reason="the right answer has no words to look for in the system's")
    right = share_of(point.gold, reading.terms(answer)) if point.gold else own.share
    adds = reading.terms(answer) - point.gold.keys()  # the right answer itself is right, however it may be read
    if right >= ANSWERED and (own.coverage != "says otherwise" or not adds):
        return way
    held = {one.memory.id for one in way.held if one.memory is not None}
    asked = reading.terms(way.query.query)
    news = {term: weight for term, weight in reading.weights(answer).items() if term not in asked}
    if right < ANSWERED:
        news = {term: weight for term, weight in news.items() if term not in point.weights} or news
    for rank, memory in shown if fsum(news.values()) >= NEWS else ():  # "I do not know that" follows nothing
        followed = share_of(news, reading.terms(memory.content)) >= ANSWERED
        if followed and memory.id not in held and compared(point, memory, 0.0, reading).coverage in OTHERWISE:
            reason = f"the answer follows the {ordinal(rank)}, {memory_name(memory)}"
            return replace(way, place="contradicted", reason=reason)
    return replace(way, place="not used", reason="it was returned, and the answer does not have it")
