"""Forms that pages share: the options of an import and its report as tables, and the fields of a memory.

Input is validated by the rules of the import, so a form accepts exactly what a file may contain.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import streamlit as st

from cems_workbench.errors import InputError
from cems_workbench.formats.base.fields import FieldError
from cems_workbench.formats.memories import parse_memory
from cems_workbench.jobs.importing import FileImport, import_options, took_nothing
from cems_workbench.records import Memory, RowError
from cems_workbench.store import ImportOptions, ImportReport
from cems_workbench.store.imports import KINDS
from cems_workbench.store.query_matching import MATCHES
from cems_workbench.store.rows import NO_ROWS, RowCounts
from cems_workbench.ui.kit.html import csv_bytes, excerpt
from cems_workbench.ui.kit.tables import Column, draw_table
from cems_workbench.ui.kit.widgets import download, errors_shown

REPLACE_HELP = (
    "Also change memories and queries that another file, a live source or an edit brought (`--replace`). Otherwise they stay and are "
    "listed. A file that was edited changes its own rows either way."
)
MATCH_HELP = (
    "Whether a query that a file names by its words is taken for one of the store that differs only by case, blanks or a final mark "
    "(`--match`)."
)


def draw_options(key: str) -> ImportOptions | None:
    """Draw the options of an import; None after an error, which is drawn. `key` begins the keys of the widgets."""
    replace = st.checkbox("Replace what others brought", key=f"{key}:replace", help=REPLACE_HELP)
    with st.expander("Query set, scale and grades", key=f"{key}:more"):
        name, scale, relevant, match, grades, queue = st.columns(
            [1.2, 0.8, 0.9, 0.9, 1.5, 1], vertical_alignment="bottom"
        )
        texts = {
            "query_set": name.text_input(
                "Query set",
                key=f"{key}:set",
                placeholder="as the file",
                help="Query set that receives the queries (`--query-set`).",
            ),
            "scale": scale.text_input(
                "Scale",
                key=f"{key}:scale",
                placeholder="0..3",
                help="Grade scale of the set, LOW..HIGH, such as -2..3 (`--scale`).",
            ),
            "relevant_from": relevant.text_input(
                "Relevant from",
                key=f"{key}:relevant",
                placeholder="1",
                help="Lowest grade of the set that counts as relevant (`--relevant-from`).",
            ),
            "match": match.selectbox("Match", MATCHES, key=f"{key}:match", help=MATCH_HELP),
            "queue": queue.text_input(
                "Queue",
                key=f"{key}:queue",
                placeholder="none",
                help="Labelling queue to make of the pairs that the file lists without a judgment (`--queue`).",
            ),
            "grades": grades.text_input(
                "Grades",
                key=f"{key}:grades",
                placeholder="0.5..1=1, Relevant=2",
                help="Grades of ratings that are fractions or words, VALUE=GRADE, with commas between them (`--grade`).",
            ),
        }
    with errors_shown():
        return import_options(
            texts["query_set"].strip() or None,
            texts["scale"].strip() or None,
            texts["match"],
            [each.strip() for each in texts["grades"].split(",") if each.strip()],
            texts["relevant_from"].strip() or None,
            replace=replace,
            queue=texts["queue"].strip() or None,
        )
    return None


CountRow = tuple[str, ImportReport | None, str, RowCounts]
"""A file, its report (only in its first row), a kind of rows, and how many were added, updated and unchanged."""

COUNTS: list[Column[CountRow]] = [
    Column("file", lambda row: row[0], "medium"),
    Column("format", lambda row: row[1].format if row[1] else "", "small", help="Format that the file was read in"),
    Column("rows", lambda row: row[2], "small", help="Kind of rows in the file"),
    Column("added", lambda row: row[3].added, help="New in this store"),
    Column("updated", lambda row: row[3].updated, help="Already here with other values"),
    Column("unchanged", lambda row: row[3].unchanged, help="Already here, unchanged"),
    Column(
        "left out",
        lambda row: len(row[1].errors) if row[1] else None,
        help="Rows that were left out, or taken in part, listed below",
    ),
]
ERRORS: list[Column[tuple[str, RowError]]] = [
    Column("file", lambda row: row[0], "medium"),
    Column("row", lambda row: row[1].row, 64, "%d", "Line or record number, from 1"),
    Column("field", lambda row: row[1].field or "", "small", help="Invalid field"),
    Column("reason", lambda row: row[1].reason, "large", help="Why the row was rejected"),
]


def count_rows(imports: Sequence[FileImport]) -> list[CountRow]:
    """One row per file and kind."""
    rows: list[CountRow] = []
    for imported in imports:
        if (report := imported.report) is not None:
            kinds = [(kind, getattr(report, kind)) for kind in KINDS]
            present = [(kind, counts) for kind, counts in kinds if counts.total] or [("none", NO_ROWS)]
            rows += [(imported.name, None if i else report, *each) for i, each in enumerate(present)]
    return rows


def problems(imports: Sequence[FileImport]) -> list[str]:
    """A line for each file that could not be read, and one if the others brought nothing."""
    nothing = took_nothing([imported.report for imported in imports if imported.report is not None])
    read = any(imported.report is not None for imported in imports)
    return [*(imported.problem for imported in imports if imported.problem), *([nothing] if nothing and read else [])]


def notes(imports: Sequence[FileImport]) -> list[str]:
    """The notes of the reports, without duplicates."""
    return list(dict.fromkeys(note for imported in imports if imported.report for note in imported.report.notes))


def error_rows(imports: Sequence[FileImport]) -> list[tuple[str, RowError]]:
    """Every row that was left out or taken in part, with the name of its file."""
    return [(imported.name, error) for imported in imports if imported.report for error in imported.report.errors]


def draw_errors(imports: Sequence[FileImport], title: str, key: str, file: str, most: int, shown: int) -> None:
    """Draw the rows that were left out or taken in part, the first `shown` of them, with a download of all; nothing without one."""
    errors = error_rows(imports)
    if not errors:
        return
    head, button = st.columns([4, 1], vertical_alignment="bottom")
    head.markdown(title.format(count=f"{len(errors):,} row{'s' if len(errors) != 1 else ''}"))
    if len(errors) > shown:
        head.caption(f"The first {shown:,} are shown; the CSV has all of them.")
    download(
        "Download as CSV",
        errors_csv(imports),
        file,
        f"{key}:csv",
        width="stretch",
        help="All rows that were left out, or taken in part, with reasons.",
        box=button,
    )
    draw_table(errors[:shown], ERRORS, key=key, most=most)


def errors_csv(imports: Sequence[FileImport]) -> bytes:
    """These rows as CSV, safe against formula injection."""
    return csv_bytes(
        [column.name for column in ERRORS], [[column.cell(row) for column in ERRORS] for row in error_rows(imports)]
    )


DATES = ("created_at", "last_accessed", "valid_from", "valid_until")
TEXTS = ("title", "session")
"""Optional text fields; a missing value is shown as an empty box."""
DAY_HELP = "UTC, as 2024-05-08 or 2024-05-08T13:56:00Z; empty when unknown."


def form_values(memory: Memory, labels: Mapping[str, str]) -> dict[str, Any]:
    """The initial values of a form's fields; `labels` maps field names to their labels."""
    values: dict[str, Any] = {name: getattr(memory, name) for name in labels}
    for name in labels:
        if name in DATES:
            values[name] = _typed_moment(values[name])
        elif name in TEXTS:
            values[name] = values[name] or ""
        elif name == "tags":
            values[name] = list(dict.fromkeys(memory.tags))
    return values


def edited_memory(memory: Memory, typed: Mapping[str, Any], labels: Mapping[str, str]) -> Memory:
    """The memory with the edited fields; raises InputError with one line that names the field.

    An untouched field keeps its exact value: browsers change line ends and drop characters they cannot show.
    """
    before = form_values(memory, labels)
    row: dict[str, Any] = {name: getattr(memory, name) for name in memory.__slots__}
    row["tags"] = list(memory.tags)
    for name in DATES:
        row[name] = None if row[name] is None else row[name].isoformat()
    for name in labels:
        if not _unedited(before[name], typed[name]):
            row[name] = typed[name]
    try:
        return parse_memory(row)
    except FieldError as error:
        raise InputError(f"{labels.get(error.field, error.field)} {_named(error.reason, labels)}") from error


def _named(reason: str, labels: Mapping[str, str]) -> str:
    """A reason that names another field, as the form calls it."""
    return reason.replace("valid_from", labels.get("valid_from", "valid_from"))


def optional_choice(label: str, key: str, values: Iterable[tuple[str | None, int]], help: str) -> None:
    """A select box of existing values (each with its count) that also accepts a new value or none."""
    options = dict.fromkeys(value for value, _ in values if value is not None)
    present = st.session_state[key]
    if present is not None:
        options[present] = None
    st.selectbox(
        label,
        list(options),
        index=None,
        key=key,
        accept_new_options=True,
        placeholder="none",
        help=f"{help} Type a new one.",
    )


def _unedited(before: Any, typed: Any) -> bool:
    """Whether a browser that received `before` may return `typed` without an edit by the user."""
    if isinstance(before, str) and isinstance(typed, str):
        return _browser_text(before) == _browser_text(typed)
    return bool(before == typed)


def _browser_text(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\x00", "")


def _typed_moment(moment: datetime | None) -> str:
    return "" if moment is None else moment.isoformat().replace("+00:00", "Z")


FIELDS = {
    "id": "Id of the memory in its store; select the row to see it in full.",
    "memory": "Title and first words of the content.",
    "category": "Kind of memory, such as preference or decision.",
    "project": "Project of the memory; empty: none.",
    "session": "Conversation it was written in.",
    "author": "Who said or wrote it.",
    "tags": "Keywords for this page.",
    "scope": "Who may find it: personal: only its owner; shared: everybody.",
    "created": "When it was written, UTC.",
    "last accessed": "When it was last returned to an agent, UTC.",
    "out of date": "By which memory it is superseded, and when it expired.",
    "valid from": "From when on it holds, UTC; empty: not known.",
    "valid until": "From this moment on it is expired, UTC; empty: not known to end.",
    "accesses": "How often it was returned to an agent.",
    "feedback": "How often it was marked relevant, and how often noise, after it was returned to an agent.",
    "priority": "1 to 2: a factor of the search score.",
    "importance": "How much it matters: low, normal or high.",
    "pinned": "A pinned memory is never dropped because of its age.",
    "source": "Where it was imported from, according to the file.",
    "length": "Characters of the content.",
}
"""Help text by field label."""


def title_and_text(memory: Memory) -> str:
    """Title and first words of the content, on one line."""
    return excerpt(f"{memory.title}: {memory.content}" if memory.title else memory.content)
