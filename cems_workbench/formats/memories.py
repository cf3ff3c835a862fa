"""Memories as JSON, as a table, as facts or as messages of a chat, and relations between them.

    memories-jsonl, memories-csv, facts-jsonl, messages-jsonl, relations-jsonl

    memories  {id, content, title?, category?, project?, session?, author?, tags?, priority?, pinned?, importance?, created_at?,
              last_accessed?, access_count?, relevant_count?, noise_count?, scope?, source_ref?, updated_at?, valid_from?, valid_until?},
              one a line, or a .json file with a list of them
    a table   the same fields as columns, in any order, under a header that names them; comma, semicolon or tab between cells. An empty cell
              is an absent field. `tags` are a JSON array or separated by `;`, booleans are true/false, yes/no or 1/0
    facts     {subject, predicate, object}, a memory that reads "subject predicate object". Graphiti's valid_at is valid_from; its
              invalid_at, else expired_at, is valid_until (by its source, not recorded). One without an id gets `f-` and a hash of what it
              says
    messages  {author|speaker|role, content|text}, a memory that reads "author: content". One without an id gets `m-` and a hash of what it
              says, and of its project, session and created_at where it has them: the same word said twice is two messages
    relations {source_id, target_id, kind?, weight?, author?}, an edge between two memories (`relations-jsonl`)

A field that is absent is read under the names that other systems give it (`base/memory_fields.py:NAMES`), also within `metadata`. A field
that cannot be read costs the field; without an id or content there is no memory. Any field of a memory may stand beside a fact or a
message.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, replace
from dataclasses import fields as dataclass_fields
from datetime import datetime
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

from cems_workbench.errors import counted
from cems_workbench.formats.base import csv_table, fields, format, memory_fields, payload
from cems_workbench.formats.base.csv_table import headers, open_table, read_rows, written
from cems_workbench.formats.base.fields import FieldError
from cems_workbench.formats.base.files import read_records
from cems_workbench.formats.base.memory_fields import NAMES, TEXTS
from cems_workbench.formats.base.records import MemoryRead, collect, derived_id, memories_of
from cems_workbench.progress import Progress
from cems_workbench.records import IMPORTANCE, TIMES, VALIDITY, Memory, ParsedInput, Relation, RowError, RowProblem

ANY_NAME = payload.names_of(None)
KNOWN = tuple(field.name for field in dataclass_fields(Memory))
REQUIRED = ("id", "content")
OTHERS = {"id": ("_id", "uuid"), "content": TEXTS}
"""Names that the two have as columns of other systems."""
_CASE = {name.lower(): name for names in NAMES.values() for name in names}
BEFORE_VALIDITY = tuple(name for name in KNOWN if name not in VALIDITY)
"""The columns of a file none of whose memories has these two: it is then that of earlier versions, byte for byte."""
NUMBERS = ("priority", "access_count", "relevant_count", "noise_count")
TRIMMED = ("importance", "scope", *TIMES)
OF_RELATION = ("source_id", "target_id", "kind", "weight", "author")
PARTS = ("subject", "predicate", "object")
SPEAKERS, SAID = ("author", "speaker", "role"), ("content", "text")
_MEMORY_ONLY = {"title", "category", "tags", "priority", "pinned", "importance", "scope", "source_ref"}
_READERS: dict[str, Callable[[fields.Row, str], Any]] = {
    "id": fields.identifier,
    "content": fields.required_text,
    **dict.fromkeys(("title", "category", "project", "session", "author", "source_ref"), fields.text),
    "tags": fields.tags,
    "priority": partial(fields.number, low=1.0, high=2.0, default=1.0),
    "pinned": fields.flag,
    "importance": partial(fields.choice, allowed=IMPORTANCE, default="normal"),
    **dict.fromkeys(("created_at", "last_accessed", "updated_at"), fields.moment),
    **dict.fromkeys(("access_count", "relevant_count", "noise_count"), fields.count),
    "scope": partial(fields.choice, allowed=("personal", "shared"), default="personal"),
}


def parse_memory(row: dict[str, Any]) -> Memory:
    """One memory, all of whose fields can be read under their own names; raises FieldError."""
    valid_from, valid_until = fields.validity(row)
    values = {field: read(row, field) for field, read in _READERS.items()}
    return Memory(**values, valid_from=valid_from, valid_until=valid_until)


def read_memory(row: dict[str, Any]) -> MemoryRead:
    """One memory under any of the known names, and its fields that could not be read; raises FieldError without id or content."""
    name, content = fields.identifier(row, "id"), fields.required_text(row, "content")
    found, values = payload.found_values(row, ANY_NAME)
    memory, problems = memory_fields.memory_of(name, content, values, found)
    if memory.project and "project" not in found:  # the one of source_ref, which CEMS alone means so
        memory = replace(memory, project=None)
    if isinstance(row.get("tags"), list) and not any(each.field == "tags" for each in problems):
        # Ours are kept as they are, blanks too.
        tags = tuple([tag for tag in row["tags"] if tag is not None])
        memory = memory if tags == memory.tags else replace(memory, tags=tags)
    return memory, problems


def unread(row: dict[str, Any]) -> list[str]:
    """The fields of such a row that no field of a memory is read from."""
    return payload.unread(row, ANY_NAME, REQUIRED)


def as_row(memory: Memory) -> dict[str, Any]:
    """The fields of a memory as JSON values; absent values and defaults are left out."""
    row: dict[str, Any] = {}
    for field in dataclass_fields(Memory):
        value = getattr(memory, field.name)
        if field.default is MISSING or value != field.default:
            row[field.name] = value.isoformat() if isinstance(value, datetime) else value
    return {**row, "tags": list(memory.tags)} if memory.tags else row


def _read_objects(
    name: str,
    parse: Callable[[dict[str, Any]], MemoryRead],
    left: Callable[[dict[str, Any]], Iterable[str]],
    path: Path,
    progress: Progress,
) -> ParsedInput:
    """Every good row of a file as a memory made by `parse`; `left` are a row's fields that are not read. Raises InputError."""
    errors: list[RowError] = []
    rows = read_records(path, errors, progress)
    return memories_of(path, rows, parse, left, errors).parsed(path, name, "memories", errors)


def _read_csv(path: Path, progress: Progress) -> ParsedInput:
    """Read the memories of a table; raises InputError when its header lacks a required column."""
    errors: list[RowError] = []
    empty: list[int] = []
    known = (*KNOWN, *_CASE.values(), "_id", "uuid")
    table = open_table(path, REQUIRED, known, columns=_columns, hint=f"; known columns are {', '.join(KNOWN)}")
    rows = (
        (line, {column: cell for column, cell in row.items() if cell.strip() or column not in KNOWN})
        for line, row in read_rows(table, errors, progress, empty=empty)
    )
    collected = memories_of(path, rows, _read_cells, unread, errors)
    notes = (f"left out: {counted(len(empty), 'rows')} without a value in any column",) if empty else ()
    return collected.parsed(path, "memories-csv", "memories", errors, notes)


def _columns(header: Sequence[str]) -> list[str]:
    """The columns of a header, as `KNOWN` and `NAMES` have them; `column N` for one without a name."""
    lower = [name.lower() or f"column {number}" for number, name in enumerate(header, start=1)]
    columns = [_CASE.get(name, name) for name in lower]
    for required, others in OTHERS.items():
        there = [name for name in others if name in columns]
        if required not in columns and there:
            columns[columns.index(there[0])] = required
    return columns


def _read_cells(row: dict[str, Any]) -> MemoryRead:
    """One memory, and its fields that could not be read; raises FieldError without id or content."""
    typed = _typed(row)
    problems = []
    try:
        typed |= {"tags": fields.items_in("tags", row["tags"])} if "tags" in row else {}
    except FieldError as error:
        problems.append(RowProblem(typed.get("id", ""), "tags", error.reason))
        del typed["tags"]
    memory, more = read_memory(typed)
    return memory, [*problems, *more]


def _typed(row: dict[str, Any]) -> dict[str, Any]:
    """The values of cells, but for tags."""
    typed = {**row, **{column: csv_table.number(row[column]) for column in NUMBERS if column in row}}
    typed |= {column: row[column].strip() for column in TRIMMED if column in row}
    return typed | ({"pinned": csv_table.flag(row["pinned"])} if "pinned" in row else {})


def _write_csv(dataset: format.DataSet, path: Path, progress: Progress) -> format.Exported:
    columns = KNOWN if dataset.validity else BEFORE_VALIDITY

    def line(memory: Memory) -> tuple[str, Memory]:
        row = as_row(memory)
        if memory.tags:
            row["tags"] = json.dumps(row["tags"], ensure_ascii=False)
        made = ["true" if row.get(name) is True else str(row.get(name, "")) for name in columns]
        back = {column: cell for column, cell in zip(columns, made, strict=True) if cell.strip()}
        tags = {"tags": fields.items_in("tags", back["tags"])} if "tags" in back else {}
        return written([made]).removesuffix("\n"), parse_memory(_typed(back) | tags)

    return format.write_rows(dataset.counted(progress, path.name), line, "memories", path, header=written([columns]))


def _parse_fact(row: dict[str, Any]) -> MemoryRead:
    """One fact, and its fields that could not be read; raises FieldError."""
    content = " ".join(_word(row, part) for part in PARTS)
    given = {name: value for name, value in row.items() if name not in PARTS} | {"content": content}
    if row.get("id") is None:
        given["id"] = derived_id("f", content)
    return read_memory(given)


def _word(row: dict[str, Any], part: str) -> str:
    """A part of the triple; a number keeps its written form."""
    value = row.get(part)
    if isinstance(value, int | float) and not isinstance(value, bool):
        fields.number(row, part, -sys.float_info.max, sys.float_info.max, 0.0)  # Refuses NaN and infinity.
        return str(value)
    return fields.required_text(row, part).strip()


def _unread_of_fact(row: dict[str, Any]) -> list[str]:
    rest = {name: value for name, value in row.items() if name not in PARTS}
    return [*unread(rest), *(["content"] if row.get("content") is not None else [])]


def _parse_message(row: dict[str, Any]) -> MemoryRead:
    """One message, and its fields that could not be read; raises FieldError."""
    author, said = _first(row, SPEAKERS), _first(row, SAID)
    content = f"{author}: {said}"
    given = {**row, "author": author, "content": content}
    if row.get("id") is None:
        said_at = (row.get(name) for name in ("project", "session", "created_at"))
        given["id"] = derived_id("m", content, *(part for part in said_at if isinstance(part, str)))
    return read_memory(given)


def _first(row: dict[str, Any], names: tuple[str, ...]) -> str:
    name = next((name for name in names if row.get(name) is not None and row.get(name) != ""), None)
    if name is None:
        raise FieldError(names[0], f"is missing, and so is {' and '.join(names[1:])}")
    return fields.required_text(row, name)


def _is_message(row: dict[str, Any]) -> bool:
    """Whether a row says who said what, and is no memory with an author."""
    keys = row.keys()
    if not keys & {*SAID} or keys & _MEMORY_ONLY or "_id" in keys:
        return False
    return bool(keys & {"speaker", "role"}) or ("author" in keys and ("text" in keys or "id" not in keys))


def parse_relation(row: dict[str, Any]) -> Relation:
    """One relation; raises FieldError."""
    source, target = fields.identifier(row, "source_id"), fields.identifier(row, "target_id")
    if source == target:
        raise FieldError("target_id", "must not be the source itself")
    return Relation(
        source,
        target,
        kind=fields.text(row, "kind") or "related",
        weight=fields.number(row, "weight", 0.0, 1.0, 1.0),
        author=fields.text(row, "author"),
    )


def relation_row(relation: Relation) -> dict[str, Any]:
    """The fields of an edge as JSON values, its author only if it has one."""
    row = {name: getattr(relation, name) for name in OF_RELATION}
    return row if relation.author else {name: value for name, value in row.items() if name != "author"}


def _read_relations(path: Path, progress: Progress) -> ParsedInput:
    errors: list[RowError] = []
    rows, key = read_records(path, errors, progress), OF_RELATION[:3]
    collected = collect(str(path), rows, parse_relation, attrgetter(*key), ", ".join(key), OF_RELATION, errors)
    return collected.parsed(path, "relations-jsonl", "relations", errors)


FORMAT = (
    format.described(
        __file__,
        "memories-jsonl",
        format.rows_with(*REQUIRED),
        partial(_read_objects, "memories-jsonl", read_memory, unread),
        dataset=format.objects_writer("memories", as_row, parse_memory, place=1),
    ),
    format.described(
        __file__,
        "memories-csv",
        lambda sample: any({*REQUIRED} <= {*_columns(names)} for names in headers(sample.header)),
        _read_csv,
        dataset=format.DatasetWriter(_write_csv, ("memories",), place=2),
    ),
    format.described(
        __file__,
        "facts-jsonl",
        format.rows_with(*PARTS, without="content"),
        partial(_read_objects, "facts-jsonl", _parse_fact, _unread_of_fact),
    ),
    format.described(
        __file__,
        "messages-jsonl",
        lambda sample: sum(map(_is_message, sample.rows)) * 2 > len(sample.rows),
        partial(
            _read_objects,
            "messages-jsonl",
            _parse_message,
            lambda row: [name for name in unread(row) if name not in (*SPEAKERS, *SAID)],
        ),
    ),
    format.described(
        __file__,
        "relations-jsonl",
        format.rows_with("source_id", "target_id"),
        _read_relations,
        dataset=format.objects_writer("relations", relation_row, parse_relation, place=3),
    ),
)
