"""Where judged memories are now: the text of each as it was judged, and the memories of the store that have it.

A memory is looked for by its id, then by exact text, by its words (case, marks and blanks aside), by spans, and by what it says:

    span      the words of the judged text that are in others in runs of RUN words: SPAN of them in one memory, or together in several,
              of which those count that have PIECE of them, or the largest
    says      sum of idf over the terms of both / sum of idf over the terms of the judged text (idf among memories
              and judged texts, as a rewrite may leave out a name everywhere), with every number and as many negations;
              sure from SURE, or from SAME_TURN where both come from the same turn; doubtful from MAYBE

A memory that still has its id is looked for elsewhere only if its text is another one. Memory in use: the text of every live memory and
what it has of the sought ones, if a text is found neither by id nor exactly.

Source: our own; idf as in BM25. benchmarks/bench_rebase.py measures the thresholds.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log
from typing import TYPE_CHECKING, Literal

from cems_workbench.store.search.tokenizer import normalised, tokenize

if TYPE_CHECKING:
    import duckdb

    from cems_workbench.store.database import Database

Status = Literal["valid", "moved", "merged", "split", "changed", "orphaned"]
RUN, SPAN, PIECE = 3, 0.9, 0.15
SURE, SAME_TURN, MAYBE = 0.85, 0.6, 0.5
CANDIDATES, RAREST, MOST_SHARED = 10, 8, 50
MANY, ROWS_PER_TEXT = 200, 3
SAME_TEXT = "same text"
_WORD, _DIGIT = re.compile(r"\w+"), re.compile(r"\d")
_NEGATIONS = frozenset({"not", "no", "never", "nor", "neither", "without", "cannot", "t", "nothing", "nobody", "none"})
"""With the t of a contracted "not"."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A text as it was judged, and the turn that it came from."""

    text: str
    source_ref: str | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """Where a judged memory is now: the memories that have its text, how that was told, and others that may have it.

    `changed`: its id has another text now, and no memory has the judged one; `orphaned`: neither its id nor its text is there. `reused`:
    the text has moved, and its id has another one now.
    """

    status: Status
    targets: tuple[str, ...] = ()
    how: str = ""
    doubtful: tuple[str, ...] = ()
    reused: bool = False


UNJUDGED = Found("valid")
"""Of a memory whose judged text is unknown."""


def keep(cursor: duckdb.DuckDBPyConnection, ids: Collection[str], rebase: int = 0) -> None:
    """Keep the present text of these memories as judged, unless one is kept; that of a rebase, by its number, counts until it is undone."""
    cursor.execute(
        "INSERT INTO judged_texts SELECT id, content, source_ref, $input FROM memories WHERE id IN (SELECT unnest($ids)) "
        + ("" if rebase else "AND id NOT IN (SELECT memory_id FROM judged_texts)"),
        {"ids": list(ids), "input": rebase},
    )


def keep_given(cursor: duckdb.DuckDBPyConnection, texts: Mapping[str, Judged], rebase: int) -> None:
    """Keep texts that came with a rebase as judged, until it is undone."""
    for key, one in texts.items():
        cursor.execute("INSERT OR IGNORE INTO judged_texts VALUES (?, ?, ?, ?)", [key, one.text, one.source_ref, rebase])


def keep_present(database: Database, ids: Collection[str]) -> None:
    """Keep the text of memories that are judged now; nothing is written where it is kept already."""
    with database.reading() as cursor:
        there, known = _texts(cursor, ids), _kept(cursor, frozenset(ids))
    changed = [key for key, one in there.items() if key not in known or known[key].text != one.text]
    if changed:
        with database.transaction() as cursor:
            cursor.execute("DELETE FROM judged_texts WHERE memory_id IN (SELECT unnest(?))", [changed])
            keep(cursor, changed)


def kept(cursor: duckdb.DuckDBPyConnection, ids: Collection[str]) -> dict[str, Judged]:
    """The texts of these memories as they were judged; else as they are, or were when they were deleted. Others are absent."""
    found = _kept(cursor, frozenset(ids))
    return found | _texts(cursor, [key for key in ids if key not in found])


def _kept(cursor: duckdb.DuckDBPyConnection, ids: Collection[str]) -> dict[str, Judged]:
    # Of a memory with several texts the latest, which comes last. All are of judged memories: many are read faster with the others.
    sql = "SELECT memory_id, content, source_ref FROM judged_texts {}ORDER BY input"
    if len(ids) < MANY:
        return _read(cursor, sql.format("WHERE memory_id IN (SELECT unnest(?)) "), ids)
    return {key: Judged(*row) for key, *row in cursor.execute(sql.format("")).fetchall() if key in ids}


def _texts(cursor: duckdb.DuckDBPyConnection, ids: Collection[str]) -> dict[str, Judged]:
    return _read(cursor, "SELECT id, content, source_ref FROM memories WHERE id IN (SELECT unnest(?))", ids)


def _read(cursor: duckdb.DuckDBPyConnection, sql: str, ids: Collection[str]) -> dict[str, Judged]:
    rows = cursor.execute(sql, [list(ids)]).fetchall() if ids else []
    return {memory_id: Judged(*row) for memory_id, *row in rows}


def found_in(
    cursor: duckdb.DuckDBPyConnection, judged: Mapping[str, Judged], sought: Sought | None = None
) -> dict[str, Found]:
    """Where these memories are in the store now, by the id under which they were judged."""
    live = "FROM memories WHERE deleted_at IS NULL"

    def others() -> dict[str, Judged]:
        rows = cursor.execute(f"SELECT id, content, source_ref {live}").fetchall()
        return {key: Judged(*row) for key, *row in sorted(rows)}

    ((count,),) = cursor.execute(f"SELECT count(*) {live}").fetchall()
    if count <= ROWS_PER_TEXT * len(judged):  # faster read than searched
        return found_among(judged, others(), sought)
    rows = cursor.execute(
        f"SELECT id, content {live} AND (id IN (SELECT unnest($ids)) OR content IN (SELECT unnest($texts)))",
        {"ids": list(judged), "texts": list({one.text for one in judged.values()})},
    ).fetchall()
    same: dict[str, list[str]] = defaultdict(list)
    for key, content in sorted(rows):
        same[content].append(key)
    return _found(judged, dict(rows), same, others, sought)


def found_among(
    judged: Mapping[str, Judged], now: Mapping[str, Judged], sought: Sought | None = None
) -> dict[str, Found]:
    """The same among these memories, by id."""
    same: dict[str, list[str]] = defaultdict(list)
    for key in sorted(now):
        same[now[key].text].append(key)
    return _found(judged, {key: one.text for key, one in now.items()}, same, lambda: now, sought)


def _found(
    judged: Mapping[str, Judged],
    present: Mapping[str, str],
    same: Mapping[str, Sequence[str]],
    others: Callable[[], Mapping[str, Judged]],
    sought: Sought | None,
) -> dict[str, Found]:
    """By the texts under their ids and the ids with a text; the other memories are read only if one has neither."""
    left = {key: one for key, one in judged.items() if present.get(key) != one.text}
    found = {key: Found("valid", (key,)) for key in judged if key not in left}
    found |= _in_turn(left, lambda key: same.get(left[key].text, []), SAME_TEXT)
    left = {key: one for key, one in left.items() if key not in found}
    if left:
        found |= _by_words(left, others(), sought or Sought(one.text for one in left.values()))
    met = Counter(target for one in found.values() for target in one.targets)
    for key, one in found.items():
        together = one.status == "moved" and one.how != SAME_TEXT and met[one.targets[0]] > 1
        reused = key in present and bool(one.targets) and one.status != "valid"
        if together or reused:
            found[key] = replace(one, status="merged" if together else one.status, reused=reused)
    return found


def _in_turn(left: Iterable[str], there: Callable[[str], Sequence[str]], how: str) -> dict[str, Found]:
    """The memories with the text of each, of several with one text each in turn."""
    found, taken = dict[str, Found](), Counter[str]()
    for key in sorted(left):
        if ids := there(key):
            at = min(taken[ids[0]], len(ids) - 1)
            taken[ids[0]] += 1
            found[key] = Found("valid", (key,)) if key in ids else Found("moved", (ids[at],), how)
    return found


def _words(text: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(normalised(text).casefold()))


Run = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Has:
    """What a text has of what is sought: all words of a sought text, runs, terms."""

    whole: tuple[str, ...] | None
    runs: tuple[Run, ...]
    terms: tuple[str, ...]


class Sought:
    """Judged texts as they are sought in others. What a text has of them is kept: stores that are compared have most texts in common."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.words = {text: _words(text) for text in texts}
        self.terms = {text: tuple(dict.fromkeys(tokenize(text))) for text in self.words}
        self.places: dict[Run, list[tuple[str, int]]] = defaultdict(list)
        for text, words in self.words.items():
            for at in range(len(words) - RUN + 1):
                self.places[words[at : at + RUN]].append((text, at))
        self._whole, self._terms = frozenset(self.words.values()), frozenset[str]().union(*self.terms.values())
        self._known: dict[int, _Has] = {}

    def of(self, text: str) -> _Has:
        """What a text has of the judged ones, by its hash."""
        mark = hash(text)
        found = self._known.get(mark)
        if found is None:
            words = _words(text)
            runs = set(zip(*(words[at:] for at in range(RUN)), strict=False)) & self.places.keys()
            terms = tuple(term for term in dict.fromkeys(tokenize(text)) if term in self._terms)
            found = self._known[mark] = _Has(words if words in self._whole else None, tuple(runs), terms)
        return found


def _by_words(left: Mapping[str, Judged], now: Mapping[str, Judged], sought: Sought) -> dict[str, Found]:
    """As `found_in`, of the texts that no memory has exactly."""
    theirs = {key: sought.of(one.text) for key, one in now.items()}
    same: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for key, has in theirs.items():
        if has.whole:
            same[has.whole].append(key)
    found = _in_turn(left, lambda key: same.get(sought.words[left[key].text], []), "same words")
    ours = {key: one.text for key, one in left.items() if key not in found}
    covered = _covered(frozenset(ours.values()), theirs, sought) if ours else {}
    index = None
    for key, text in ours.items():
        one = _spans(key, sought.words[text], covered.get(text, {}))
        if one.status in ("orphaned", "split"):
            index = index or _Index(now, left, theirs, sought)
            said = index.saying(key, left[key])
            doubtful = () if one.targets else tuple(dict.fromkeys((*one.doubtful, *said.doubtful)))
            one = said if said.targets else replace(one, doubtful=doubtful)
        found[key] = replace(one, status="changed") if key in now and not one.targets else one
    return found


def _covered(
    ours: Collection[str], theirs: Mapping[str, _Has], sought: Sought
) -> dict[str, dict[str, set[int]]]:
    """Of each judged text the places of its words that are in a memory in a run, by memory."""
    covered: dict[str, dict[str, set[int]]] = {}
    for other, has in theirs.items():
        for run in has.runs:
            places = [place for place in sought.places[run] if place[0] in ours]
            for text, at in places if len(places) <= MOST_SHARED else ():
                covered.setdefault(text, {}).setdefault(other, set()).update(range(at, at + RUN))
    return covered


def _spans(key: str, words: Sequence[str], covered: Mapping[str, set[int]]) -> Found:
    """The memories that hold a text of these words together, the fewest; its own id first. No number or negation may be missing."""
    size, values = len(words), {at for at, word in enumerate(words) if _DIGIT.search(word) or word in _NEGATIONS}

    def holds(places: set[int]) -> bool:
        return len(places) >= SPAN * size > 0 and values <= places

    if holds(covered.get(key, set())):
        return Found("valid", (key,))
    gains, held = dict[str, int](), set[int]()
    while covered and len(held) < size:
        best = max(covered, key=lambda other: len(covered[other] - held))
        if not covered[best] - held:
            break
        gains[best] = len(covered[best] - held)
        held |= covered[best]
    first = next(iter(gains), "")
    if not holds(held):
        return Found("orphaned", doubtful=(first,) if len(held) >= MAYBE * size > 0 else ())
    if holds(covered[first]):
        return Found("moved", (first,), "its words")
    return Found("split", tuple(other for other, gain in gains.items() if gain >= min(PIECE * size, gains[first])), "pieces")


class _Index:
    """The search terms of the memories, to find those that say what a text says."""

    def __init__(
        self, now: Mapping[str, Judged], left: Mapping[str, Judged], theirs: Mapping[str, _Has], sought: Sought
    ) -> None:
        self._now, self._theirs, self._sought = now, theirs, sought
        self._total, self._asked = len(now) + len(left), Counter[str]()
        for judged in left.values():
            self._asked.update(sought.terms[judged.text])
        self._having: dict[str, list[str]] = defaultdict(list)
        for key, has in theirs.items():
            for term in has.terms:
                self._having[term].append(key)

    def _weight(self, term: str) -> float:
        having = len(self._having.get(term, ())) + self._asked[term]
        return log(1 + (self._total - having + 0.5) / (having + 0.5))

    def saying(self, key: str, judged: Judged) -> Found:
        """The memory that says most of a text, if it says enough of it; its own id first."""
        weights = {term: self._weight(term) for term in self._sought.terms[judged.text]}
        total, met = sum(weights.values()), dict[str, float]()
        for term in sorted((term for term in weights if term in self._having), key=lambda term: (-weights[term], term))[:RAREST]:
            for other in self._having[term]:
                met[other] = met.get(other, 0.0) + weights[term]
        if not total or not met:
            return Found("orphaned")
        near = {*sorted(met, key=lambda other: (-met[other], other))[:CANDIDATES], *({key} & met.keys())}
        shares = {
            other: sum(weights.get(term, 0.0) for term in self._theirs[other].terms) / total for other in near
        }
        own = shares.get(key, 0.0)
        best = key if own >= SURE else max(sorted(shares), key=lambda other: shares[other])
        said, share = self._now[best], shares[best]
        turn = judged.source_ref is not None and judged.source_ref == said.source_ref
        if share >= (SAME_TURN if turn else SURE) and _values(judged.text) == _values(said.text):
            if best == key:
                return Found("valid", (key,))
            if key not in self._now:
                return Found("moved", (best,), f"says {share:.0%} of it")
        return Found("orphaned", doubtful=(best,) if share >= MAYBE and best != key else ())


def _values(text: str) -> tuple[frozenset[str], bool]:
    """The words of a text that have a digit, and whether it negates something."""
    words = _words(text)
    return frozenset(filter(_DIGIT.search, words)), bool(_NEGATIONS.intersection(words))
