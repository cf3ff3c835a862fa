"""Matching an input's queries, which it names by their words, with those of the store; and the envelope that an input's queries share,
such as the JSON of the message that each came in.

Words are the same if they are equal in NFC and without the blanks around them. Words that differ beyond that only by case, blanks within,
what guards a cell of a spreadsheet (a blank or an apostrophe before - = + @) or a final mark (. ? ! … and their full-width forms) are
*near*. `relaxed` takes the one query whose words are near, `exact` makes a new query of them; a note names each such pair either way.

Where the input has words beside ids, a query of the store with the same id is meant, if its words are the same or near.

Of several queries with the same words, or with near ones, that of the import's query set is taken if it has exactly one of them. If that
decides nothing, judgments of the same words are left out, because only an id tells those queries apart, and near words become a new
query, which keeps them. A set of queries with their answers has its own query then, under the id that its words make.

A note or an error names the queries. Words that are the id of a query of the store, and no query's words, are that id in
the wrong column: no query is made of them.

What half of the queries begin or end with is no part of what was asked, and takes part in every search. Half of the queries of the
sample, LoCoMo or ClapNQ share at most 5 characters; of single questions two share up to 91.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from cems_workbench.errors import InputError
from cems_workbench.records import Judgment, ParsedInput, Query, RowError
from cems_workbench.store import queries, query_sets
from cems_workbench.store.judgments import capped
from cems_workbench.store.team import Session

SHORTEST, SHORTEST_OF_FEW, FEW = 60, 100, 4
"""Characters from which on a shared beginning or end is reported, and of fewer than FEW queries."""
MAX_SHARED_SHOWN = 40
_NUMBERED = re.compile(r"\b[^\W\d]*\d\w*")


def envelope_notes(texts: Iterable[str]) -> list[str]:
    """A line each for the beginning and the end that at least half of the different queries, and two of them, share.
    Where they differ in words with a digit alone, as the ids of messages do, these count as one character."""
    exact = list(dict.fromkeys(texts))
    masked = [_NUMBERED.sub("0", text) for text in exact]
    notes = []
    for where in ("begin", "end"):
        for forms, but in ((exact, ""), (masked, " but for numbers")):
            shortest = SHORTEST if len(exact) >= FEW else SHORTEST_OF_FEW
            shared = _shared([form[::-1] if where == "end" else form for form in forms], shortest)
            if not shared:
                continue
            part = shared[::-1] if where == "end" else shared
            alike = sum(form.endswith(part) if where == "end" else form.startswith(part) for form in forms)
            shown = f"…{part[-MAX_SHARED_SHOWN:]}" if where == "end" else f"{part[:MAX_SHARED_SHOWN]}…"
            notes.append(
                f"{alike:,} queries {where} with the same {len(part):,} characters{but}, {shown!r}: if that is the envelope of a message, "
                'take it off, or give what is to be searched as "searched"'
            )
            break
    return notes


def _shared(forms: Sequence[str], shortest: int) -> str:
    """The beginning that the most texts have, at least half of them and two, if it is long enough; else empty."""
    forms, low, most = sorted(forms), max(2, -(-len(forms) // 2)), len(forms)
    found = _longest(forms, low)
    while len(found) >= shortest and low < most:  # of more texts it is no longer
        size = (low + most + 1) // 2
        wider = _longest(forms, size)
        if len(wider) >= shortest:
            found, low = wider, size
        else:
            most = size - 1
    return found if len(found) >= shortest else ""


def _longest(forms: Sequence[str], size: int) -> str:
    """The longest beginning of so many of the sorted texts: they are neighbours, and it is that of the first and the last."""
    ends = zip(forms, forms[size - 1 :], strict=False)
    return max((first[: _alike(first, last)] for first, last in ends), key=len, default="")


def _alike(one: str, other: str) -> int:
    """How many characters two texts have in common from their beginning on."""
    pairs = zip(one, other, strict=False)
    return next((n for n, (mine, its) in enumerate(pairs) if mine != its), min(len(one), len(other)))


Match = Literal["relaxed", "exact"]
MATCHES: tuple[Match, ...] = ("relaxed", "exact")
PORTION = 50_000
"""Queries of the store that are in memory at once while near words are looked for."""
WORDS_OF = "SELECT qid, query FROM queries WHERE qid IN (SELECT unnest(?::text[]))"
MAX_NAMED = 5
MAX_SHOWN = 60
_UNSEEN = re.compile("[\u00ad\u200b\u200e\u200f\u2060\ufeff]")
_GUARD = re.compile(r"^['\u2019\s]+(?=[-=+@])")
_FINAL = re.compile("[\\s.?!\u3002\u061f]+$")
_BLANKS = re.compile(r"\s+")


def parse_match(text: str) -> Match:
    """One of MATCHES; raises InputError."""
    for known in MATCHES:
        if text == known:
            return known
    raise InputError(f"--match: {text!r} is not one of {', '.join(MATCHES)}")


def same_words(text: str) -> str:
    """What equal words have in common: NFC without blanks around it."""
    return unicodedata.normalize("NFC", text).strip()


def near_words(text: str) -> str:
    """What near words have in common; words of nothing but marks stay as they are."""
    plain = _UNSEEN.sub("", unicodedata.normalize("NFKC", text)).strip()  # NFKC: full-width marks, … as three points
    return _BLANKS.sub(" ", _FINAL.sub("", _GUARD.sub("", plain))).casefold() or text


@dataclass(frozen=True, slots=True)
class _Found:
    """The queries of the store for one query of an input: those with the same words, else those with near ones."""

    qids: tuple[str, ...]
    near: bool = False
    words: str = ""
    """Those of the first of them."""


def resolve_words(session: Session, parsed: ParsedInput, query_set: str, match: Match) -> tuple[ParsedInput, list[str]]:
    """(the input with the store's qids and without the queries that the store has, notes) of an input that names
    queries by their words. Judgments of ambiguous words become errors; notes name near words. An input that names
    queries by id is returned unchanged."""
    if not parsed.extra.get("queries_by_words"):
        return parsed, []
    known: dict[str, str] = dict(session.rows(WORDS_OF, [[query.qid for query in parsed.queries]]))
    own = parsed.extra.get("own_ids", frozenset())
    a_set = parsed.extra.get("is_set", False)
    taken: dict[str, str] = {}
    others: dict[str, str] = {}
    for query in parsed.queries:
        if query.qid in own and query.qid in known:
            if near_words(known[query.qid]) == near_words(query.query):
                taken[query.qid] = query.qid
            else:
                others[query.qid] = f"query {query.qid} of the store has other words, {known[query.qid][:MAX_SHOWN]!r}"
    rest = [query for query in parsed.queries if query.qid not in taken and query.qid not in others]
    rest = [query for query in rest if not (a_set and query.qid in own)]
    found = _found(session, rest, query_set)
    ids: dict[str, str] = dict(session.rows(WORDS_OF, [[query.query for query in rest if query.qid not in found]]))
    judged = {judgment.qid for judgment in parsed.judgments}
    notes: list[str] = []
    for query in rest:
        there = found.get(query.qid, _Found(()))
        if query.query in ids:
            reason = f"{query.query!r} is the id of a query, {ids[query.query][:MAX_SHOWN]!r}, and no words: call the column qid"
            others[query.qid] = reason
            if query.qid not in judged:
                notes.append(reason)
        elif len(there.qids) == 1 and not (there.near and match == "exact"):
            taken[query.qid] = there.qids[0]
        elif there.qids and not there.near and a_set:
            if query.qid in known:  # else the set's query is a new one
                taken[query.qid] = query.qid
        elif there.qids and not there.near:
            others[query.qid] = (
                f"the queries {_named(there.qids)} have these words: --query-set names the set of the one that is meant, "
                "or a format that has qids"
            )
        if there.near:
            notes.append(_note(query, there, match))
        elif not there.qids and query.qid in known:  # its words were edited here
            taken[query.qid] = query.qid
    more = "more queries differ from known ones only by case, blanks or marks"
    stored = queries.of_qids(session, [*taken.values()]) if a_set else {}
    return _with_qids(parsed, taken, others, stored), capped(notes, more)


def _note(query: Query, found: _Found, match: Match) -> str:
    if len(found.qids) > 1:
        return f"{query.query!r} is a new query: {_named(found.qids)} differ from it only by case, blanks or marks"
    if match == "exact":
        return (
            f"{query.query!r} is a new query, though {found.qids[0]}, {found.words!r}, differs only by case, blanks or marks; "
            "--match relaxed takes them for one"
        )
    return f"{query.query!r} is taken for {found.qids[0]}, {found.words!r}; --match exact makes it a query by itself"


def _named(qids: Sequence[str]) -> str:
    more = f" and {len(qids) - MAX_NAMED} more" if len(qids) > MAX_NAMED else ""
    return ", ".join(qids[:MAX_NAMED]) + more


def _found(session: Session, queries: Sequence[Query], query_set: str) -> dict[str, _Found]:
    """By qid of the input, the queries of the store with its words; without those that have none."""
    equal: dict[str, list[str]] = {}
    words = [query.query for query in queries]
    for text, qid in session.rows(
        "SELECT query, qid FROM queries WHERE query IN (SELECT unnest(?::text[])) ORDER BY qid", [words]
    ):
        equal.setdefault(text, []).append(qid)
    found = {query.qid: _Found(tuple(equal[query.query])) for query in queries if query.query in equal}
    found |= _like(session, [query for query in queries if query.qid not in found])
    unsure = {qid for each in found.values() if len(each.qids) > 1 for qid in each.qids}
    if unsure:
        scales = query_sets.scales_of(session, list(unsure))
        here = {qid for qid, of_sets in scales.items() if query_set in of_sets}
        for qid, each in found.items():
            chosen = [one for one in each.qids if one in here]
            if len(each.qids) > 1 and len(chosen) == 1:
                found[qid] = replace(each, qids=(chosen[0],))
    return found


def _like(session: Session, queries: Sequence[Query]) -> dict[str, _Found]:
    """As `_found`, of words that no query of the store has to the letter."""
    if not queries:
        return {}
    near: dict[str, list[tuple[str, str]]] = {near_words(query.query): [] for query in queries}
    for qid, text in _all_words(session):
        matching = near.get(near_words(text))
        if matching is not None:
            matching.append((qid, text))
    found: dict[str, _Found] = {}
    for query in queries:
        there = near[near_words(query.query)]
        same = [each for each in there if same_words(each[1]) == same_words(query.query)]
        if there:
            found[query.qid] = _Found(tuple(qid for qid, _ in same or there), not same, (same or there)[0][1])
    return found


def _all_words(session: Session) -> Iterator[tuple[str, str]]:
    """(qid, words) of every query of the store, by qid."""
    last: str | None = None
    while True:
        rows = session.rows(
            f"SELECT qid, query FROM queries WHERE coalesce(qid > ?, TRUE) ORDER BY qid LIMIT {PORTION}", [last]
        )
        yield from rows
        if len(rows) < PORTION:
            return
        last = rows[-1][0]


def _with_qids(
    parsed: ParsedInput, taken: Mapping[str, str], others: Mapping[str, str], stored: Mapping[str, Query]
) -> ParsedInput:
    """The input with the store's qids, and an error for each judgment of `others`, queries without one, each with the
    reason. Of the queries that are taken for one of the store only those in `stored`, by the store's qid, stay in the
    input."""
    place = parsed.extra.get("fields", {}).get("qid", "query")
    judgments: list[tuple[int, Judgment]] = []
    problems: list[RowError] = []
    for number, judgment in parsed.numbered("judgments"):
        if judgment.qid in others:
            problems.append(RowError(parsed.source, number, others[judgment.qid], place))
        else:
            qid = taken.get(judgment.qid)
            judgments.append((number, judgment if qid is None else replace(judgment, qid=qid)))
    new = [
        (number, stored.get(taken.get(query.qid, ""), query))
        for number, query in parsed.numbered("queries")
        if query.qid not in others and (query.qid not in taken or taken[query.qid] in stored)
    ]
    with_ids = replace(parsed.with_rows(queries=new, judgments=judgments), errors=(*parsed.errors, *problems))
    pairs = [(taken.get(qid, qid), docid) for qid, docid in parsed.extra.get("pairs", ()) if qid not in others]
    known = () if stored else parsed.extra.get("listed", frozenset()) & taken.keys()
    return replace(with_ids, extra={**with_ids.extra, "pairs": pairs, "known": known})
