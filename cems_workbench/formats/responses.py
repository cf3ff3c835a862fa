"""What a retrieval system answered to one query: a search response, a list of ids, or a run.

    JSON       {"results": [{"memory_id", "content", "score"}, …]}, as CEMS answers, or the list itself; an item may be an id alone;
               what engines and memory libraries answer (`base/engine_answers.py` has the table); JSON lines too
    a run      the results of several queries, as evaluation tools write them: `formats.runs`
    a list     an id a line, or an id and its score behind a comma, a tab or blanks; a header line is passed over

Rows that cannot be used are reported and the others kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cems_workbench.errors import InputError
from cems_workbench.formats.base import engine_answers, payload
from cems_workbench.formats.base.csv_table import records
from cems_workbench.formats.base.engine_answers import finite
from cems_workbench.formats.base.files import parse_json, type_name
from cems_workbench.formats.base.payload import NESTED
from cems_workbench.formats.runs import Run, run_of
from cems_workbench.records import Returned, RowError

ID_FIELDS = engine_answers.IDS
PARTS_FIELDS = ("score_details", "parts")
"""Where a system that explains its scores puts what they are made of."""
SEARCH = "search response"
_HEADER = re.compile(r"(memory_?id|doc_?id|docno|id)([\s,;]+(score|relevance|similarity))?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Response:
    """A response in its order. `run` is the run that it is, by qid, or the answers to several queries by their number; `returned` is
    the response of the only or first query. `notes` are lines about how it was read."""

    form: str
    returned: tuple[Returned, ...]
    errors: tuple[RowError, ...] = ()
    run: Run | None = None
    notes: tuple[str, ...] = ()


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
        return _from_json(text, source, errors)
    else:
        lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
        form, rows = "list", _from_lines(lines, source, errors)
    returned = _unique(rows, source, errors)
    if not returned and run is None:
        raise _nothing(source, errors)
    return Response(form, returned, _in_order(errors), run)


def plain_text(text: str) -> str:
    """The text without a byte order mark and the blanks around it, but for a tab before a table."""
    plain = text.removeprefix("\ufeff").strip()
    return plain if plain[:1] in ("[", "{", "") else text.removeprefix("\ufeff").strip("\r\n ")


def _nothing(source: str, errors: list[RowError]) -> InputError:
    return InputError(f"{source}: no row of it can be used{f': {errors[0]}' if errors else ''}")


def _in_order(errors: list[RowError]) -> tuple[RowError, ...]:
    return tuple(sorted(errors, key=lambda error: error.row))


def _from_json(text: str, source: str, errors: list[RowError]) -> Response:
    try:
        found = engine_answers.answers_in(parse_json(text))
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
        answers, form = [items], SEARCH
    else:
        if found is None:
            raise InputError(f"{source}: has no list of results; looked for {', '.join(engine_answers.LISTS[:5])}")
        answers = [list(enumerate(rows, start=1)) for rows in found.rows]
        form = SEARCH if found.system == engine_answers.SEARCH else f"answer of {found.system}"
    named: dict[str, bool] = {}
    read, said = oriented([_unique(_items(rows, source, errors, named), source, errors) for rows in answers], named)
    if not any(read):
        raise _nothing(source, errors)
    run = Run(form, {str(n): rows for n, rows in enumerate(read, 1)}, notes=said) if len(read) > 1 else None
    return Response(form, read[0], _in_order(errors), run, said)


def oriented(
    answers: Sequence[tuple[Returned, ...]], named: Mapping[str, bool]
) -> tuple[list[tuple[Returned, ...]], tuple[str, ...]]:
    """The answers of one file with scores of which more is nearer, and a line that says what was turned.

    `named` are the fields of their scores and whether each is called a distance, whose negatives the answers have here. All answers of a
    file decide together: scores all of which rise are turned, and those called distances if more answers rise than fall.
    """
    courses = [engine_answers.course([row.score for row in answer if row.score is not None]) for answer in answers]
    rising, others = courses.count(1), courses.count(-1) + courses.count(0)
    called = bool(named) and all(named.values())
    turned = rising > courses.count(-1) if called else bool(rising) and not others and not any(named.values())
    if not any(row.score is not None for answer in answers for row in answer) or not (turned or called):
        return list(answers), ()
    name = " and ".join(sorted(named)) or "score"
    several = f" in {rising:,} of {len(answers):,} answers" if len(answers) > 1 and turned else ""
    if not turned:
        return list(answers), (f"{name} is smaller for what is nearer: its negative was read as the score",)
    line = (
        f"{name} falls from the first to the last result{several}, as a similarity does: it was read as the score"
        if called
        else f"{name} rises from the first to the last result{several}, as a distance does: its negative was read as the score"
    )
    return [
        tuple(row if row.score is None else replace(row, score=0.0 - row.score) for row in answer) for answer in answers
    ], (line,)


def parse_rows(
    values: Iterable[Any], source: str, errors: list[RowError], named: dict[str, bool] | None = None
) -> tuple[Returned, ...]:
    """The rows of one answer that is JSON already, each memory once; what cannot be used goes to `errors`, rows counted from 1.

    A field that a score is from is put into `named`, and whether it is called a distance, for `oriented`.
    """
    return _unique(_items(list(enumerate(values, 1)), source, errors, {} if named is None else named), source, errors)


def rows_of_answer(
    values: Iterable[Any],
    n: int,
    source: str,
    errors: list[RowError],
    field: str = "results",
    named: dict[str, bool] | None = None,
) -> tuple[Returned, ...]:
    """As `parse_rows`, of the answer number `n` of several: errors of a row are reported under that number, as `results[0].score`."""
    found: list[RowError] = []
    returned = parse_rows(values, source, found, named)
    for error in found:
        part = f"{field}[{error.row - 1}]"
        errors.append(RowError(source, n, error.reason, f"{part}.{error.field}" if error.field else part))
    return returned


def _items(
    rows: Sequence[tuple[int, Any]], source: str, errors: list[RowError], named: dict[str, bool]
) -> list[Returned]:
    fields = [engine_answers.flat(value) for _, value in rows]
    name = engine_answers.score_name(fields)
    items = (
        _item(row, value, each, name, source, errors, named) for (row, value), each in zip(rows, fields, strict=True)
    )
    return [one for one in items if one is not None]


def _item(
    row: int, value: Any, fields: Any, scored: str, source: str, errors: list[RowError], named: dict[str, bool]
) -> Returned | None:
    if isinstance(value, str) and not value.strip():
        errors.append(RowError(source, row, "must not be empty"))
        return None
    if isinstance(value, str | int) and not isinstance(value, bool):
        return Returned(row, str(value))
    if not isinstance(value, dict) and not engine_answers.is_scored(value):
        errors.append(RowError(source, row, f"must be an object or an id, found {type_name(value)}"))
        return None
    memory_id = next((str(fields[name]) for name in ID_FIELDS if isinstance(fields.get(name), str | int)), None)
    if memory_id is None:
        inner: Mapping[str, Any] = next((fields[name] for name in NESTED if isinstance(fields.get(name), dict)), {})
        names = engine_answers.METADATA_IDS
        memory_id = next((str(inner[name]) for name in names if isinstance(inner.get(name), str | int)), None)
    content = payload.text_of(None, fields, payload.ANY_NAMES)
    if not memory_id and not content:
        errors.append(RowError(source, row, f"has neither an id ({', '.join(ID_FIELDS[:3])}, …) nor a content"))
        return None
    name, distance = engine_answers.score_of(fields, scored) or ("", False)
    score = finite(fields[name]) if name else None
    if name and score is None:
        errors.append(
            RowError(source, row, f"must be a finite number, found {ascii(fields[name])[:60]}; it has no score", name)
        )
    elif name:
        named[name] = distance
    return Returned(row, memory_id or None, -score if distance and score else score, content, _parts(fields))


def _parts(fields: Mapping[str, Any]) -> dict[str, float]:
    """The numbers that a score was made of, by name; what is no number is no part."""
    said: Mapping[str, Any] = next((fields[name] for name in PARTS_FIELDS if isinstance(fields.get(name), dict)), {})
    numbers = ((str(name), finite(value)) for name, value in said.items() if isinstance(value, int | float))
    return {name: number for name, number in numbers if number is not None}


def _from_lines(lines: list[tuple[int, str]], source: str, errors: list[RowError]) -> list[Returned]:
    rows = []
    for place, (number, line) in enumerate(lines):
        if place == 0 and _HEADER.fullmatch(line.replace('"', "")):
            continue
        _, read = next(records([line], 0, "\t" if "\t" in line else ","))
        if isinstance(read, str):
            errors.append(RowError(source, number, read))
            continue
        cells = [cell.strip() for cell in read]
        if len(cells) == 1:
            words = line.split()
            cells = [" ".join(words[:-1]), words[-1]] if len(words) > 1 and finite(words[-1]) is not None else [line]
        if len(cells) > 2 or not cells[0]:
            errors.append(RowError(source, number, f"must be an id, or an id and a score, found {ascii(line)[:60]}"))
            continue
        score = finite(cells[1]) if len(cells) == 2 and cells[1] else None
        if len(cells) == 2 and cells[1] and score is None:
            errors.append(RowError(source, number, f"must be a finite number, found {ascii(cells[1])[:60]}", "score"))
            continue
        rows.append(Returned(number, cells[0], score))
    return rows


def _unique(rows: Iterable[Returned], source: str, errors: list[RowError]) -> tuple[Returned, ...]:
    first: dict[str, Returned] = {}
    for row in rows:
        key = row.memory_id if row.memory_id is not None else f"\0{row.content}"
        if key in first:
            shown = ascii(row.memory_id or row.content)[:60]
            errors.append(RowError(source, row.row, f"{shown} stands already in row {first[key].row}"))
        else:
            first[key] = row
    return tuple(first.values())
