"""What a retrieval system answered to one query: a search response, a list of ids, or a run.

    JSON       {"results": [{"memory_id", "content", "score"}, …]}, as CEMS answers, or the list itself; common other names of the
               fields are known; an item may be an id alone; JSON lines too
    a run      the results of several queries, as evaluation tools write them: `formats.runs`
    a list     an id a line, or an id and its score behind a comma, a tab or blanks; a header line is passed over

Rows that cannot be used are reported and the others kept.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cems_workbench.errors import InputError
from cems_workbench.formats.base.files import parse_json, type_name
from cems_workbench.formats.runs import Run, run_of
from cems_workbench.records import Returned, RowError

LIST_FIELDS = ("results", "memories", "hits", "documents", "items", "matches", "data", "response")
ID_FIELDS = ("memory_id", "id", "document_id", "doc_id", "docid", "docno", "_id")
SCORE_FIELDS = ("score", "relevance_score", "final_score", "similarity", "relevance", "_score")
TEXT_FIELDS = ("content", "memory", "text", "chunk", "document", "_source")
PARTS_FIELDS = ("score_details", "parts")
"""Where a system that explains its scores puts what they are made of."""
MAX_DEPTH = 3
_HEADER = re.compile(r"(memory_?id|doc_?id|docno|id)([\s,;]+(score|relevance|similarity))?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Response:
    """A response in its order. `run` is the run that it is, by qid; `returned` is the response of the only or first query."""

    form: str
    returned: tuple[Returned, ...]
    errors: tuple[RowError, ...] = ()
    run: Run | None = None


def parse_response(text: str, source: str = "response") -> Response:
    """Read a response in any known form. Raises InputError when nothing in it can be used."""
    text = plain_text(text)
    if not text:
        raise InputError(f"{source}: it is empty")
    errors: list[RowError] = []
    run = run_of(text, source, errors)
    if run is not None:
        form, rows = run.form, list(next(iter(run.results.values()), ()))
    elif text[0] in "[{":
        form, rows = _from_json(text, source, errors)
    else:
        lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
        form, rows = "list", _from_lines(lines, source, errors)
    returned = _unique(rows, source, errors)
    if not returned and run is None:
        first = f": {errors[0]}" if errors else ""
        raise InputError(f"{source}: no row of it can be used{first}")
    return Response(form, returned, tuple(sorted(errors, key=lambda error: error.row)), run)


def plain_text(text: str) -> str:
    """The text without a byte order mark and the blanks around it, but for a tab before a table."""
    plain = text.removeprefix("\ufeff").strip()
    return plain if plain[:1] in ("[", "{", "") else text.removeprefix("\ufeff").strip("\r\n ")


def _from_json(text: str, source: str, errors: list[RowError]) -> tuple[str, list[Returned]]:
    try:
        items = _items(parse_json(text))
    except ValueError as error:
        lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
        if len(lines) < 2 or not all(line.lstrip().startswith("{") for _, line in lines):
            raise InputError(f"{source}: {error}") from None
        items = []
        for number, line in lines:
            try:
                items.append((number, parse_json(line)))
            except ValueError as problem:
                errors.append(RowError(source, number, str(problem)))
    rows = [_item(row, value, source, errors) for row, value in items]
    return "search response", [row for row in rows if row is not None]


def parse_rows(values: Iterable[Any], source: str, errors: list[RowError]) -> tuple[Returned, ...]:
    """The rows of one answer that is JSON already, each memory once; what cannot be used goes to `errors`, rows counted from 1."""
    rows = [_item(row, value, source, errors) for row, value in enumerate(values, 1)]
    return _unique([row for row in rows if row is not None], source, errors)


def rows_of_answer(
    values: Iterable[Any], n: int, source: str, errors: list[RowError], field: str = "results"
) -> tuple[Returned, ...]:
    """As `parse_rows`, of the answer number `n` of several: errors of a row are reported under that number, as `results[0].score`."""
    found: list[RowError] = []
    returned = parse_rows(values, source, found)
    for error in found:
        part = f"{field}[{error.row - 1}]"
        errors.append(RowError(source, n, error.reason, f"{part}.{error.field}" if error.field else part))
    return returned


def _items(value: Any, depth: int = 0) -> list[tuple[int, Any]]:
    """The rows of a document: a list, or the list under one of the names it usually has; raises ValueError."""
    if isinstance(value, list):
        return list(enumerate(value, start=1))
    if isinstance(value, dict) and depth < MAX_DEPTH:
        for name in LIST_FIELDS:
            if isinstance(value.get(name), list | dict):
                return _items(value[name], depth + 1)
    raise ValueError(f"has no list of results; looked for {', '.join(LIST_FIELDS[:5])}")


def _item(row: int, value: Any, source: str, errors: list[RowError]) -> Returned | None:
    if isinstance(value, str | int) and not isinstance(value, bool):
        return Returned(row, str(value))
    if not isinstance(value, dict):
        errors.append(RowError(source, row, f"must be an object or an id, found {type_name(value)}"))
        return None
    inner = value.get("memory")
    fields = (
        {**inner, **{key: item for key, item in value.items() if key != "memory"}} if isinstance(inner, dict) else value
    )
    memory_id = next((str(fields[name]) for name in ID_FIELDS if isinstance(fields.get(name), str | int)), None)
    content = next((fields[name] for name in TEXT_FIELDS if isinstance(fields.get(name), str)), None)
    if not memory_id and not content:
        errors.append(RowError(source, row, f"has neither an id ({', '.join(ID_FIELDS[:3])}, …) nor a content"))
        return None
    name = next((name for name in SCORE_FIELDS if fields.get(name) is not None), None)
    score = _number(fields[name]) if name else None
    if name and score is None:
        errors.append(
            RowError(source, row, f"must be a finite number, found {ascii(fields[name])[:60]}; it has no score", name)
        )
    return Returned(row, memory_id or None, score, content, _parts(fields))


def _parts(fields: Mapping[str, Any]) -> dict[str, float]:
    """The numbers that a score was made of, by name; what is no number is no part."""
    said: Mapping[str, Any] = next((fields[name] for name in PARTS_FIELDS if isinstance(fields.get(name), dict)), {})
    numbers = ((str(name), _number(value)) for name, value in said.items() if isinstance(value, int | float))
    return {name: number for name, number in numbers if number is not None}


def _from_lines(lines: list[tuple[int, str]], source: str, errors: list[RowError]) -> list[Returned]:
    rows = []
    for place, (number, line) in enumerate(lines):
        if place == 0 and _HEADER.fullmatch(line.replace('"', "")):
            continue
        cells = [cell.strip() for cell in next(csv.reader([line], delimiter="\t" if "\t" in line else ","))]
        if len(cells) == 1:
            words = line.split()
            cells = [" ".join(words[:-1]), words[-1]] if len(words) > 1 and _number(words[-1]) is not None else [line]
        if len(cells) > 2 or not cells[0]:
            errors.append(RowError(source, number, f"must be an id, or an id and a score, found {ascii(line)[:60]}"))
            continue
        score = _number(cells[1]) if len(cells) == 2 and cells[1] else None
        if len(cells) == 2 and cells[1] and score is None:
            errors.append(RowError(source, number, f"must be a finite number, found {ascii(cells[1])[:60]}", "score"))
            continue
        rows.append(Returned(number, cells[0], score))
    return rows


def _unique(rows: Iterable[Returned], source: str, errors: list[RowError]) -> tuple[Returned, ...]:
    """Each memory once, where it stands first."""
    first: dict[str, Returned] = {}
    for row in rows:
        key = row.memory_id if row.memory_id is not None else f"\0{row.content}"
        if key in first:
            shown = ascii(row.memory_id or row.content)[:60]
            errors.append(RowError(source, row.row, f"{shown} stands already in row {first[key].row}"))
        else:
            first[key] = row
    return tuple(first.values())


def _number(value: Any) -> float | None:
    """A finite number, also one written as text."""
    if isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
