"""The systems whose explanations are read: how each looks, and what of it is which list, part and setting.

| system | what it printed | replayed by |
| mem0 | `search(explain=True)`: `results` with `score_details` | mem0, mem0_keyword, mem0_entities |

A document may name its query beside the answer (`query`). Each reader takes the rows that can be used; a row without a number that it
needs is reported, and a document that lacks the fields of every row is of another version, which the error names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cems_workbench.errors import short, some
from cems_workbench.formats.base.fields import FieldError, finite
from cems_workbench.formats.base.names import ANSWER
from cems_workbench.formats.base.payload import ANY_NAMES, text_of
from cems_workbench.formats.base.records import reported
from cems_workbench.formats.responses import IDS, flat
from cems_workbench.records import RowError
from workbench_explanations.explained import Explained, Row, contradictions

QUERIES = ("query", "q", "query_text", "question")
"""Names under which a document says its query."""
Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Reading:
    """One document while it is read: its rows that could be used, and where the others are reported."""

    number: int
    source: str
    errors: list[RowError]

    def each(self, rows: Any, where: str) -> Iterator[tuple[int, Document]]:
        """The objects of a list by their place, from 1; others are reported."""
        if not isinstance(rows, list):
            raise FieldError(where, f"must be a list, found {short(rows)}")
        for place, row in enumerate(rows, 1):
            with reported(self.errors, self.source, self.number, f"{where}[{place - 1}]"):
                if not isinstance(row, dict):
                    raise FieldError("", f"must be an object, found {short(row)}")
                yield place, row


@dataclass(frozen=True, slots=True)
class System:
    """A system: whether a document may be one of its explanations, and the reader."""

    name: str
    fits: Callable[[Any], bool]
    read: Callable[[Any, Reading], Iterator[Explained]]


def number(row: Document, name: str, where: str = "") -> float:
    """A number that a row must have. Raises FieldError."""
    if row.get(name) is None:
        raise FieldError(f"{where}{name}", "is missing")
    found = finite(row[name])
    if found is None:
        raise FieldError(f"{where}{name}", f"must be a finite number, found {short(row[name])}")
    return found


def identity(row: Document) -> tuple[str, str]:
    """The id and the text of a row. Raises FieldError without an id."""
    fields = flat(dict(row))
    key = next((str(fields[name]) for name in IDS if isinstance(fields.get(name), str | int)), "")
    if not key:
        raise FieldError("id", "is missing")
    return key, text_of(None, fields, ANY_NAMES) or ""


def object_of(row: Document, name: str) -> Document:
    """An object that a row must have. Raises FieldError."""
    found = row.get(name)
    if not isinstance(found, dict):
        raise FieldError(name, "is missing" if found is None else f"must be an object, found {short(found)}")
    return found


def ranked(rows: Sequence[tuple[str, Mapping[str, float], Row]], source: Mapping[str, str]) -> list[Row]:
    """Rows with a rank in each list, of its score among those shown, for systems that print scores alone: by list the part that it is."""
    lists: dict[str, dict[str, tuple[int, float | None]]] = {key: {} for key, _, _ in rows}
    for part, name in source.items():
        held = sorted(((own[part], key) for key, own, _ in rows if part in own), key=lambda pair: -pair[0])
        for rank, (score, key) in enumerate(held, 1):
            lists[key][name] = (rank, score)
    return [replace(row, lists=lists[key]) for key, _, row in rows]


def lacking(rows: Sequence[Document], names: Sequence[str], system: str, version: str) -> None:
    """Raise FieldError where no row has one of these fields: the explanation is of another version."""
    missing = [name for name in names if rows and all(name not in row for row in rows)]
    if missing:
        raise FieldError("", f"{system} of another version than {version}: lacks {some(missing, 4)}")


def _mem0(document: Document, reading: Reading) -> Iterator[Explained]:
    """mem0 2.2.1: (semantic + keyword + entities) / the most that is possible, above a threshold on the semantic score."""
    given = [
        (place, row, object_of(row, "score_details")) for place, row in reading.each(document["results"], "results")
    ]
    names = ("semantic_score", "bm25_score", "entity_boost", "max_possible_score", "threshold")
    lacking([details for _, _, details in given], names, "mem0", "2.2")
    found = []
    for place, row, details in given:
        with reported(reading.errors, reading.source, reading.number, f"results[{place - 1}]."):
            key, text = identity(row)
            parts = {name: number(details, name, "score_details.") for name in names}
            final = number(row, "score")
            shown = {name: value for name, value in parts.items() if value or name == "semantic_score"}
            found.append((key, shown, Row(key, final, place, {}, parts, text)))
    parts = found[0][2].parts if found else {}
    most = parts.get("max_possible_score", 1.0)
    words, entities = most in (2.0, 2.5), most in (1.5, 2.5)
    sources = {"semantic_score": "vector:0"} | ({"bm25_score": "sparse:0"} if words else {})
    rows = ranked(found, sources | ({"entity_boost": "entities"} if entities else {}))
    changes: dict[str, Any] = {"threshold.fixed": parts.get("threshold", 0.1)}
    changes |= {"lists.sparse.normalization": "none"} if words else {}
    active = {name for row in rows for name in row.lists}
    doubts = (
        []
        if not words or "sparse:0" in active
        else ["its keyword hits are all outside what it shows, so that its scores are halved"]
    )
    preset = "mem0_entities" if entities else "mem0_keyword" if words else "mem0"
    taken = {part.rpartition("_")[0]: name for part, name in sources.items()}
    yield Explained("", rows, "mem0", preset, changes, taken=taken, doubts=tuple(doubts))


def _of_rows_with(name: str) -> Callable[[Any], bool]:
    """Whether the first row of `results`, or of a list, has an object of that name."""

    def fits(document: Any) -> bool:
        rows = document.get("results") if isinstance(document, dict) else document
        first = rows[0] if isinstance(rows, list) and rows else None
        return isinstance(first, dict) and isinstance(first.get(name), dict)

    return fits


SYSTEMS: tuple[System, ...] = (System("mem0", _of_rows_with("score_details"), _mem0),)


def of_rows(row: Document) -> bool:
    """Whether an object is a row of an answer, not an answer."""
    return system_of(row) is None and system_of([row]) is not None


def system_of(document: Any) -> System | None:
    """The system that a document is of; None for none."""
    return next((system for system in SYSTEMS if system.fits(_answer(document))), None)


def explained_in(
    document: Any, number: int, source: str, errors: list[RowError], query: str = ""
) -> Iterator[Explained]:
    """The explanations in a document, each with its query, where that is said or given. Raises FieldError for a document of no system
    that is read, or of another version of one."""
    system = system_of(document)
    if system is None:
        empty = isinstance(document, dict) and next((name for name in ANSWER["lists"] if document.get(name) == []), "")
        known = f"is no explanation of {', '.join(one.name for one in SYSTEMS)}"
        raise FieldError(empty or "", "is empty: nothing was returned" if empty else known)
    said, qid = _asked(document)
    answer = _answer(document)
    answer = {"results": answer} if isinstance(answer, list) else answer
    before = len(errors)
    for i, one in enumerate(system.read(answer, Reading(number, source, errors))):
        if not one.returned and len(errors) > before:
            continue  # each of its rows is reported
        name = one.query or said or query or f"explanation {number}{f'.{i + 1}' if i else ''}"
        doubts = (*one.doubts, *contradictions(one.rows))
        yield replace(one, query=name, qid=one.qid or qid or str(number), doubts=doubts)


def _answer(document: Any) -> Any:
    """The answer that a document is, or that it has beside its query."""
    if not isinstance(document, dict):
        return document
    within = next(
        (document[name] for name in ("response", "answer", "explanation", "trace") if name in document), document
    )
    return within if isinstance(within, dict | list) else document


def _asked(document: Any) -> tuple[str, str]:
    """The query and its id that a document says."""
    if not isinstance(document, dict):
        return "", ""
    said = (document.get(name) for name in QUERIES)
    query = next((text.strip() for text in said if isinstance(text, str) and text.strip()), "")
    qid = document.get("qid")
    return query, str(qid) if isinstance(qid, str | int) and not isinstance(qid, bool) else ""
