"""Coverage of a whole transcript by the memories of a store: where each memory came from, and what nothing covers.

Each turn is compared with the NEAREST memories and each memory with its NEAREST turns, by

    share(m, t)      sum of idf(x) over the terms of m that t has / sum of idf(x) over all of them                0..1
    nearness(m, t)   cosine of the embedded texts + share(m, t), less SPEAKER if m is about another speaker       -1.2..2

where idf(x) = log(N / n) for n of N texts of both that have x, and speakers' names weigh nothing. A memory is about its author, else
about the speaker whom it names first. A pair is compared twice (coverage.py): whether the turn says what the memory says, and the other
way round. A memory that no turn alone supports is compared with its nearest turn together with AROUND turns before it; where that
leaves it open, a nearness of NEAR decides. What a memory names as its source is recorded and stands first; all else is inferred
(below). A memory of a project that the transcript has meets the turns of this project alone.

    a memory   supported; says otherwise; nothing supports, if no nearness reaches FAR; else cannot tell
    a turn     covered; says otherwise; says little, such as a greeting or a question, if its idf sums up to less than that of LITTLE
               terms of one text alone; nothing covers, if no nearness reaches FAR; else cannot tell

Texts are read in portions; what is held of each is its terms' numbers, its nearest pairs and its verdict.

Source: our own. The thresholds were set by benchmarks/bench_coverage.py on three conversations of LoCoMo, and measured on two others.

Which turns a memory names itself, as its importer kept it: recorded, where everything else is inferred.

A memory names a turn by its own id (a store of raw turns), by its source reference, or by a tag. A turn's names are its id and the
reference that its file gives it, whole or from a colon or a slash on: "locomo:26:D1:3", "26:D1:3", "D1:3". Several are separated by
commas, semicolons or white space. A number alone names no turn. A name that several conversations have counts within the memory's project
alone.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from cems_workbench.analysis.memory_names import memory_name
from cems_workbench.errors import InputError, counted
from cems_workbench.models.protocol import Float32
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages.result import plain_fields
from cems_workbench.progress import Progress, silent
from cems_workbench.records import Memory
from cems_workbench.results import Result, Table
from cems_workbench.store.memories import Origin
from cems_workbench.store.rows import portions
from workbench_transcripts.coverage import Coverage, Pair, Point, Reading, compared, other_value, point_of, said
from workbench_transcripts.transcript import FEW_NEAR, unfit

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

    from cems_workbench.api.open_store import OpenStore


_BETWEEN = re.compile(r"[\s,;]+")
_PART = re.compile(r"[:/]")


class Provenance:
    """The names of a transcript's turns; a turn is known by a number."""

    def __init__(self) -> None:
        self._turns: defaultdict[str, dict[int, str | None]] = defaultdict(dict)

    def add(self, number: int, turn: Memory) -> None:
        """Take the names of a turn."""
        for name in {*_names(turn.id), *_names(turn.source_ref or "")}:
            self._turns[name][number] = turn.project

    def named_by(self, memory: Memory) -> list[int]:
        """The turns that a memory names, in their order; none if it names none."""
        given = [memory.id, *memory.tags, *_BETWEEN.split(memory.source_ref or "")]
        return sorted({number for name in given for number in self._found(name, memory.project)})

    def _found(self, name: str, project: str | None) -> Iterable[int]:
        known = self._turns.get(name, {})
        of_project = [number for number, of in known.items() if of == project]
        return of_project or (known if len(known) == 1 else ())


class Named:
    """The memories of a store that name turns by their source reference, or sessions."""

    def __init__(self, origins: Iterable[Origin]) -> None:
        self._turns, self._sessions = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
        for one in origins:
            for name in filter(None, _BETWEEN.split(one.source_ref or "")):
                self._turns[name].append(one.id)
            if one.session:
                self._sessions[one.session].append(one.id)

    def of(self, turn: Memory) -> list[str]:
        """The memories that name a turn; a store of raw turns has it itself."""
        names = dict.fromkeys((*_names(turn.id), *_names(turn.source_ref or "")))
        return list(dict.fromkeys([turn.id, *(one for name in names for one in self._turns.get(name, ()))]))

    def beside(self, turn: Memory) -> list[str]:
        """The memories that name the session of a turn."""
        return self._sessions.get(turn.session, []) if turn.session else []


def _names(reference: str) -> Iterator[str]:
    starts = [0, *(match.end() for match in _PART.finditer(reference))]
    yield from (name for start in starts if (name := reference[start:]) and not name.isdecimal())


NEAREST, AROUND, BLOCK, PORTION = 4, 2, 1024, 1024
"""Pairs of a text, turns that are read before one, texts whose pairs are looked for at once, and turns whose pairs are compared at once."""
SPEAKER, FLOOR, FAR, NEAR, LITTLE = 0.2, 0.4, 0.8, 1.15, 2.5
"""Less nearness of a memory about another speaker; the nearness below which a pair is not compared, below which two texts have nothing to
do with each other, and from which they have; the terms of one text alone whose weight a turn has at least that says more than little."""
LISTED = 200
"""Rows of a table."""
TurnVerdict = Literal["nothing covers", "says otherwise", "cannot tell", "covered", "says little"]
MemoryVerdict = Literal["nothing supports", "says otherwise", "cannot tell", "supported"]
TURN_VERDICTS: tuple[TurnVerdict, ...] = get_args(TurnVerdict)
MEMORY_VERDICTS: tuple[MemoryVerdict, ...] = get_args(MemoryVerdict)
"""The worst first."""
NO_SESSION = "no session"


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn and whether a memory covers it."""

    id: str
    session: str
    verdict: TurnVerdict


@dataclass(frozen=True, slots=True)
class Stored:
    """A memory and whether a turn supports it. `session` is that of the turn it came from, else its own; `recorded`: it names its turns."""

    id: str
    session: str
    verdict: MemoryVerdict
    recorded: bool


class Link(NamedTuple):
    """A turn and a memory of the same fact: "covers", "says otherwise" or "cannot tell", and why; `recorded` if the memory names the
    turn."""

    turn: str
    memory: str
    coverage: Coverage
    recorded: bool
    reason: str


@dataclass(frozen=True, eq=False, repr=False)
class TranscriptCoverage(Result):
    """The coverage of a transcript: its turns in order, the memories in the order of the turns that they came from, and the links.

    `words` are the first words of what the tables list."""

    turns: tuple[Turn, ...]
    memories: tuple[Stored, ...]
    links: tuple[Link, ...]
    words: Mapping[str, str]
    remarks: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Of what."""
        sessions = counted(len({turn.session for turn in self.turns}), "sessions")
        return f"{counted(len(self.turns), 'turns')} in {sessions}, against {counted(len(self.memories), 'memories')}"

    @property
    def lines(self) -> list[str]:
        """How many turns are covered, and how many memories supported."""
        turns, memories = (Counter[str](one.verdict for one in side) for side in (self.turns, self.memories))
        return [f"turns: {_counts(turns, TURN_VERDICTS)}", f"memories: {_counts(memories, MEMORY_VERDICTS)}"]

    @property
    def sessions(self) -> list[tuple[str, Counter[str], Counter[str]]]:
        """Of each session its turns and its memories by verdict; the session with most turns that nothing covers first."""
        turns, memories = defaultdict[str, Counter[str]](Counter), defaultdict[str, Counter[str]](Counter)
        for turn in self.turns:
            turns[turn.session][turn.verdict] += 1
        for memory in self.memories:
            memories[memory.session][memory.verdict] += 1
        named = [(name, counts, memories[name]) for name, counts in turns.items()]
        return sorted(named, key=lambda one: (-one[1]["nothing covers"], -one[1]["says otherwise"]))

    @property
    def tables(self) -> tuple[Table, ...]:
        """By session, the worst first; what nothing covers, what nothing supports, and what says otherwise, by their first words."""
        by_session = tuple(
            (
                name,
                turns.total(),
                *(turns[one] for one in TURN_VERDICTS),
                memories.total(),
                memories["nothing supports"],
            )
            for name, turns, memories in self.sessions
        )
        gaps = [(turn.session, self._words(turn.id)) for turn in self.turns if turn.verdict == "nothing covers"]
        invented = [(self._words(one.id),) for one in self.memories if one.verdict == "nothing supports"]
        wrong = {one.id for one in self.memories if one.verdict == "says otherwise"}
        other = [
            (self._words(one.turn), self._words(one.memory), one.reason)
            for one in self.links
            if one.coverage == "says otherwise" and one.memory in wrong
        ]
        return (
            Table(("session", "turns", *TURN_VERDICTS, "memories", "nothing supports"), by_session, "by session"),
            _listed(("session", "turn"), gaps, "nothing covers"),
            _listed(("memory",), invented, "nothing supports"),
            _listed(("turn", "memory", "there, and here"), other, "says otherwise"),
        )

    @property
    def notes(self) -> Sequence[str]:
        """What is inferred, and what it should be read with."""
        recorded = sum(one.recorded for one in self.memories)
        inferred = len(self.memories) - recorded
        how = [f"{counted(recorded, 'memories')} name their turns"] if recorded else []
        how += [f"of {counted(inferred, 'memories')} the turns are inferred"] if inferred else []
        return ["; ".join(how), *self.remarks]

    def to_json(self) -> dict[str, Any]:
        linked = defaultdict[str, list[dict[str, Any]]](list)
        for link in self.links:
            linked[link.memory].append(plain_fields(link, "turn coverage recorded reason"))
        return {
            "turns": [plain_fields(turn, "id session verdict") for turn in self.turns],
            "memories": [
                plain_fields(one, "id session verdict recorded") | {"turns": linked[one.id]} for one in self.memories
            ],
            "sessions": self.tables[0].records,
            "lines": self.lines,
            "notes": list(self.notes),
        }

    def _words(self, name: str) -> str:
        return self.words.get(name, name)


def _counts(counts: Counter[str], names: Sequence[str]) -> str:
    return ", ".join(f"{counts[name]:,} {name}" for name in names if counts[name])


def _listed(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]], title: str) -> Table:
    return Table(columns, tuple(rows[:LISTED]), title, left_out=max(0, len(rows) - LISTED))


class _Side:
    """The texts of one side by their number: ids, conversations, whom they are about, and the numbers of their terms."""

    def __init__(self, resources: Resources, ids: Sequence[str]) -> None:
        self.resources, self.ids = resources, ids
        self.number = {name: i for i, name in enumerate(ids)}
        self.project = np.full(len(ids), -1, np.int32)
        self.speaker = np.full(len(ids), -1, np.int32)
        self._terms: list[NDArray[np.int32]] = [np.zeros(0, np.int32)] * len(ids)

    def read(self, vocabulary: dict[str, int], reading: Reading, progress: Progress) -> Iterator[tuple[int, Memory]]:
        """Read each text once, and keep its terms."""
        for done, some in enumerate(portions(self.ids, PORTION)):
            progress("reading", done * PORTION, len(self.ids))
            for name, memory in self.resources.store.memories.read(some).items():
                i = self.number[name]
                terms = reading.terms(f"{memory.title or ''} {said(memory.content)}")
                self._terms[i] = np.array([vocabulary.setdefault(term, len(vocabulary)) for term in terms], np.int32)
                yield i, memory

    def matrix(self, width: int) -> csr_matrix:
        """(texts, terms) 1 where a text has a term."""
        from scipy.sparse import csr_matrix

        lengths = [len(terms) for terms in self._terms]
        places = np.concatenate([*self._terms, np.zeros(0, np.int32)])
        shape = (len(self.ids), width)
        return csr_matrix((np.ones(len(places), np.float32), places, np.cumsum([0, *lengths])), shape=shape)

    def vectors(self, first: int, last: int) -> Float32:
        """(texts, dimension) of some; one without a vector has zeros."""
        found = self.resources.indexes.vectors.embeddings(self.ids[first:last])
        rows = np.zeros((last - first, self.resources.embedder.dimension), np.float32)
        for name, vector in found.items():
            rows[self.number[name] - first] = vector
        return rows


@dataclass(frozen=True)
class _Nearest:
    """Of each text of one side the numbers of its nearest on the other, and their nearness and cosine, best first; -1 for none."""

    numbers: NDArray[np.int64]
    nearness: Float32
    cosines: Float32

    @classmethod
    def none(cls, count: int) -> _Nearest:
        shape = (count, NEAREST)
        return cls(np.full(shape, -1), np.full(shape, -np.inf, np.float32), np.zeros(shape, np.float32))

    def take(self, rows: slice, nearness: Float32, cosines: Float32, first: int) -> None:
        """Keep the best of what is there and of the columns, which are texts from `first` on."""
        few = min(NEAREST, nearness.shape[1])
        best = np.argpartition(-nearness, few - 1, axis=1)[:, :few]
        news = (best + first, np.take_along_axis(nearness, best, 1), np.take_along_axis(cosines, best, 1))
        kept: tuple[NDArray[Any], ...] = (self.numbers, self.nearness, self.cosines)
        both = [np.concatenate([old[rows], new], axis=1) for old, new in zip(kept, news, strict=True)]
        order = np.argsort(-both[1], axis=1, kind="stable")[:, :NEAREST]
        for old, new in zip(kept, both, strict=True):
            old[rows] = np.take_along_axis(new, order, 1)


def coverage_of(resources: Resources, transcript: Resources, progress: Progress = silent) -> TranscriptCoverage:
    """The coverage of a transcript by the live memories of a store, kept until either is written. Raises InputError without memories, and
    what `progress` raises: nothing is then kept."""
    key = ("coverage", transcript.store.content_identity, transcript.store.version)
    return resources.derived(key, lambda: _covered(resources, transcript, progress))


def coverage(store: OpenStore, *, progress: Progress = silent) -> TranscriptCoverage:
    """What of its transcript the memories of an open store have, as the command `coverage` does.

    Args:
        store: the open store; the command `transcript` imports what was said.
        progress: called with a label, a count and a total.

    Raises:
        InputError: the store has no transcript, or no memories.
    """
    from cems_workbench.settings import Settings
    from workbench_transcripts.transcript import opened_transcript

    with opened_transcript(store.resources, Settings()) as transcript:
        return coverage_of(store.resources, transcript, progress)


def _covered(resources: Resources, transcript: Resources, progress: Progress) -> TranscriptCoverage:
    if not (memory_ids := resources.store.memories.ids()):
        raise InputError(f"{resources.store.path} has no memories to compare the transcript with")
    resources.refresh(progress)
    ordered = _in_order(transcript)
    turns, memories = _Side(transcript, [name for name, _, _ in ordered]), _Side(resources, memory_ids)
    names, vocabulary, provenance = _Names(transcript), dict[str, int](), Provenance()
    analysis, language = resources.indexes.lexical.language, resources.store.language.current
    plain = Reading(lambda _: 1.0, language, analysis, names.words)
    for i, turn in turns.read(vocabulary, plain, progress):
        turns.project[i], turns.speaker[i] = names.project(turn.project), names.speaker(turn.author)
        provenance.add(i, turn)
    recorded = list[tuple[int, int]]()
    for i, memory in memories.read(vocabulary, plain, progress):
        memories.project[i], memories.speaker[i] = names.project(memory.project), names.about(memory)
        recorded += [(named, i) for named in provenance.named_by(memory)]
    of_turns, of_memories = turns.matrix(len(vocabulary)), memories.matrix(len(vocabulary))
    frequencies = np.asarray(of_turns.sum(axis=0) + of_memories.sum(axis=0)).ravel()
    weights = np.log((len(turns.ids) + len(memory_ids) + 1) / (frequencies + 1)).astype(np.float32)
    weights[[vocabulary[term] for term in plain.terms(" ".join(names.words)) if term in vocabulary]] = 0
    near_turns, near_memories = _nearest(turns, memories, of_turns, of_memories, weights, progress)
    rare = math.log(len(turns.ids) + len(memory_ids) + 1)

    def idf(term: str) -> float:
        return float(weights[vocabulary[term]]) if term in vocabulary else rare

    said_weight = (of_turns @ weights) / max(rare - math.log(2), 1e-6)
    found = _Compared(turns, memories, replace(plain, idf=idf), [session for _, session, _ in ordered])
    found.compare(near_turns, near_memories, recorded, progress)
    return found.result(
        near_turns, near_memories, said_weight, _remarks(near_turns, near_memories, ordered, resources, transcript)
    )


class _Names:
    """The conversations and speakers of a transcript by number."""

    def __init__(self, transcript: Resources) -> None:
        known = transcript.store.memories
        self._projects = {name: i for i, (name, _) in enumerate(known.projects()) if name is not None}
        authors = [author for author, _ in known.facets().authors if author]
        self._speakers = {author.lower(): i for i, author in enumerate(authors)}
        self.words = frozenset(word for author in self._speakers for word in (author, *author.split()))
        self._named = re.compile(rf"\b(?:{'|'.join(map(re.escape, self._speakers)) or '(?!)'})\b", re.IGNORECASE)

    def project(self, name: str | None) -> int:
        return self._projects.get(name, -1) if name else -1

    def speaker(self, name: str | None) -> int:
        return self._speakers.get((name or "").lower(), -1)

    def about(self, memory: Memory) -> int:
        """The author if he speaks in the transcript, else the first speaker whom the memory names."""
        own, named = self.speaker(memory.author), self._named.search(memory.content)
        return own if own >= 0 or named is None else self.speaker(named[0])


def _in_order(transcript: Resources) -> list[tuple[str, str, bool]]:
    """(id, session, whether it has a time) of each turn as it was said: sessions by their first turns, one without times by its ids."""

    def natural(name: str) -> list[tuple[int, str]]:
        return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]

    sessions = defaultdict[tuple[str, str], list[Any]](list)
    for one in transcript.store.memories.origins():
        at = one.created_at.timestamp() if one.created_at else math.inf
        sessions[one.project or "", one.session or one.project or NO_SESSION].append((at, natural(one.id), one.id))
    found = list[tuple[str, str, bool]]()
    for (_, session), rows in sorted(sessions.items(), key=lambda one: (one[0][0], min(one[1])[:2])):
        found += [(name, session, at < math.inf) for at, _, name in sorted(rows)]
    return found


def _nearest(
    turns: _Side, memories: _Side, of_turns: csr_matrix, of_memories: csr_matrix, weights: Float32, progress: Progress
) -> tuple[_Nearest, _Nearest]:
    """Of each turn its nearest memories, and of each memory its nearest turns."""
    by_turn, by_memory = _Nearest.none(len(turns.ids)), _Nearest.none(len(memories.ids))
    whole = np.maximum(of_memories @ weights, 1e-6)
    weighed, wide = of_memories.multiply(weights).tocsr(), 4 * BLOCK
    for first in range(0, len(memories.ids), wide):
        here = slice(first, min(first + wide, len(memories.ids)))
        theirs, terms = memories.vectors(here.start, here.stop), weighed[here].T.tocsc()
        for start in range(0, len(turns.ids), BLOCK):
            progress(
                "finding the nearest",
                first * len(turns.ids) + start * (here.stop - first),
                len(turns.ids) * len(memories.ids),
            )
            rows = slice(start, min(start + BLOCK, len(turns.ids)))
            cosines: Float32 = turns.vectors(rows.start, rows.stop) @ theirs.T
            nearness = cosines + (of_turns[rows] @ terms).toarray() / whole[here]
            speaks, about = turns.speaker[rows, None], memories.speaker[None, here]
            nearness -= np.float32(SPEAKER) * ((speaks != about) & (about >= 0))
            others = memories.project[None, here]
            nearness[(others >= 0) & (others != turns.project[rows, None])] = -np.inf
            by_turn.take(rows, nearness, cosines, first)
            by_memory.take(here, nearness.T, cosines.T, start)
    return by_turn, by_memory


class _Compared:
    """The links of turns and memories, by their numbers."""

    def __init__(self, turns: _Side, memories: _Side, reading: Reading, sessions: Sequence[str]) -> None:
        self.turns, self.memories, self.reading, self.sessions = turns, memories, reading, sessions
        self.links: dict[tuple[int, int], tuple[Coverage, bool, str]] = {}
        self._points: dict[int, Point] = {}

    def compare(
        self, by_turn: _Nearest, by_memory: _Nearest, recorded: Sequence[tuple[int, int]], progress: Progress
    ) -> None:
        """Compare each recorded pair, and each pair of nearest texts, turn by turn."""
        named, cosines = set(recorded), dict[tuple[int, int], float]()
        for side, nearest in enumerate((by_turn, by_memory)):
            for i, k in zip(*np.nonzero(nearest.nearness >= FLOOR), strict=True):
                pair = (int(i), int(nearest.numbers[i, k]))
                cosines[pair if side == 0 else pair[::-1]] = float(nearest.cosines[i, k])
        pairs = sorted(named | cosines.keys())
        for done, some in enumerate(portions(pairs, PORTION)):
            progress("comparing", done * PORTION, len(pairs))
            turns, memories = _texts(self.turns, {t for t, _ in some}), _texts(self.memories, {m for _, m in some})
            points = {t: point_of(turn, "", "", self.reading) for t, turn in turns.items()}
            for t, m in some:
                if t in turns and m in memories:
                    found = self._both_ways(points[t], turns[t], m, memories[m], cosines.get((t, m), 0.0))
                    self.links[t, m] = (found.coverage, (t, m) in named, found.reason)
        self._read_around(by_memory, progress)

    def _both_ways(self, point: Point, turn: Memory, m: int, memory: Memory, cosine: float) -> Pair:
        """Whether the turn says what the memory says, else whether the memory says what the turn says."""
        supports = compared(self._point(m, memory), replace(turn, author=None), cosine, self.reading)
        supports = supports._replace(reason=supports.other.turned().line) if supports.other else supports
        covers = supports if supports.coverage == "covers" else compared(point, memory, cosine, self.reading)
        pair = covers if covers.coverage in ("covers", "says otherwise") else supports
        other = other_value(turn, memory, self.reading) if pair.coverage == "covers" else None
        return pair._replace(coverage="says otherwise", reason=other.line) if other else pair

    def _point(self, m: int, memory: Memory) -> Point:
        if len(self._points) > 4 * PORTION:
            self._points.clear()
        if m not in self._points:
            stated = f"{memory.title}. {memory.content}" if memory.title else memory.content
            self._points[m] = point_of(replace(memory, content=stated, author=None), "", "", self.reading)
        return self._points[m]

    def _read_around(self, by_memory: _Nearest, progress: Progress) -> None:
        """Compare what no turn alone supports with its nearest turn and those before it."""
        supported = {m for (_, m), (coverage, recorded, _) in self.links.items() if coverage == "covers" or recorded}
        left = [m for m in range(len(self.memories.ids)) if m not in supported and by_memory.nearness[m, 0] >= FLOOR]
        for done, some in enumerate(portions(left, PORTION)):
            progress("reading around", done * PORTION, len(left))
            before = {m: self._before(int(by_memory.numbers[m, 0])) for m in some}
            memories, turns = (
                _texts(self.memories, some),
                _texts(self.turns, {t for row in before.values() for t in row}),
            )
            for m, memory in memories.items():
                near = before[m][-1]
                if near not in turns or self.links.get((near, m), ("no",))[0] == "says otherwise":
                    continue
                around = "\n".join(turns[t].content for t in before[m] if t in turns)
                passage = replace(turns[near], content=around, author=None)
                pair = compared(self._point(m, memory), passage, float(by_memory.cosines[m, 0]), self.reading)
                if pair.coverage == "covers":
                    self.links[near, m] = ("covers", False, f"{pair.reason}, with the turns before")
                elif by_memory.nearness[m, 0] >= NEAR and not other_value(turns[near], memory, self.reading):
                    self.links[near, m] = ("covers", False, "the nearest turn, in other words")

    def _before(self, t: int) -> list[int]:
        return [i for i in range(max(0, t - AROUND), t + 1) if self.sessions[i] == self.sessions[t]]

    def result(
        self, by_turn: _Nearest, by_memory: _Nearest, weights: Float32, remarks: Iterable[str]
    ) -> TranscriptCoverage:
        """The verdicts, and the links that they rest on."""
        of_turn, of_memory = defaultdict[int, set[str]](set), defaultdict[int, set[str]](set)
        sources, named = dict[int, int](), set[int]()
        for (t, m), (coverage, recorded, _) in sorted(self.links.items()):
            found = "covers" if recorded and coverage != "says otherwise" else coverage
            of_turn[t].add(found)
            of_memory[m].add(found)
            if recorded or coverage == "covers":
                sources.setdefault(m, t)
            if recorded:
                named.add(m)
        turns = []
        for t, name in enumerate(self.turns.ids):
            near, far = of_turn[t], by_turn.nearness[t, 0] < FAR
            verdict: TurnVerdict = (
                "covered" if "covers" in near else "says otherwise" if "says otherwise" in near else "cannot tell"
            )
            if verdict == "cannot tell" and (far or weights[t] < LITTLE):
                verdict = "says little" if weights[t] < LITTLE else "nothing covers"
            turns.append(Turn(name, self.sessions[t], verdict))
        stored = list[tuple[int, Stored]]()
        for m, name in enumerate(self.memories.ids):
            near = of_memory[m]
            of: MemoryVerdict = (
                "supported" if "covers" in near else "says otherwise" if "says otherwise" in near else "cannot tell"
            )
            if of == "cannot tell" and by_memory.nearness[m, 0] < FAR:
                of = "nothing supports"
            likely = int(by_memory.numbers[m, 0]) if of in ("says otherwise", "cannot tell") else -1
            at = sources.get(m, likely)
            stored.append((at, Stored(name, self.sessions[at] if at >= 0 else NO_SESSION, of, m in named)))
        stored.sort(key=lambda one: (one[0] < 0, one[0]))
        best = {(int(numbers[0]), m) for m, numbers in enumerate(by_memory.numbers)}
        links = [
            Link(self.turns.ids[t], self.memories.ids[m], coverage, recorded, reason)
            for (t, m), (coverage, recorded, reason) in sorted(self.links.items())
            if recorded or coverage in ("covers", "says otherwise") or (coverage == "cannot tell" and (t, m) in best)
        ]
        memories = tuple(one for _, one in stored)
        return TranscriptCoverage(
            tuple(turns), memories, tuple(links), self._words(turns, memories, links), tuple(remarks)
        )

    def _words(self, turns: Sequence[Turn], memories: Sequence[Stored], links: Sequence[Link]) -> dict[str, str]:
        other = [one for one in links if one.coverage == "says otherwise"][:LISTED]
        gaps = [one.id for one in turns if one.verdict == "nothing covers"][:LISTED]
        invented = [one.id for one in memories if one.verdict == "nothing supports"][:LISTED]
        sides = (
            (self.memories, [*invented, *(one.memory for one in other)]),
            (self.turns, [*gaps, *(one.turn for one in other)]),
        )
        return {
            name: memory_name(memory, 90)
            for side, ids in sides
            for name, memory in side.resources.store.memories.read(ids).items()
        }


def _texts(side: _Side, numbers: set[int] | Sequence[int]) -> dict[int, Memory]:
    found = side.resources.store.memories.read([side.ids[i] for i in sorted(numbers)])
    return {side.number[name]: memory for name, memory in found.items()}


def _remarks(
    by_turn: _Nearest,
    by_memory: _Nearest,
    ordered: Sequence[tuple[str, str, bool]],
    resources: Resources,
    transcript: Resources,
) -> Iterator[str]:
    """Lines on a transcript that fits no memory, and on turns without a time."""
    if np.count_nonzero(by_memory.nearness[:, 0] >= FAR) <= FEW_NEAR * len(by_memory.nearness):
        yield unfit(int(np.count_nonzero(by_turn.nearness[:, 0] >= FAR)), len(ordered), resources, transcript)
    if undated := sum(not dated for _, _, dated in ordered):
        yield f"{counted(undated, 'turns')} without a time stand in the order of their ids"
