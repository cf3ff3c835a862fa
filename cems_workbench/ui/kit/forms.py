"""Forms that pages share: the options of an import and its report as tables, and the fields of a memory.

Input is validated by the rules of the import, so a form accepts exactly what a file may contain.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import streamlit as st

from cems_workbench.errors import InputError, counted
from cems_workbench.formats.base.fields import FieldError
from cems_workbench.formats.memories import parse_memory
from cems_workbench.jobs.importing import FileImport, import_options, took_nothing
from cems_workbench.platform.bidi import neutralise
from cems_workbench.records import Memory, RowError
from cems_workbench.store import ImportOptions, ImportReport
from cems_workbench.store.imports import KINDS
from cems_workbench.store.query_matching import MATCHES
from cems_workbench.store.rows import NO_ROWS, RowCounts
from cems_workbench.ui.kit.html import csv_bytes, excerpt, plain
from cems_workbench.ui.kit.tables import HELP, Column, draw_table
from cems_workbench.ui.kit.widgets import download, errors_shown

OPTIONS = (
    ("set", "Query set", "as the file", "Query set that receives the queries (`--query-set`)."),
    ("scale", "Scale", "0..3", "Grade scale of the set, LOW..HIGH, such as -2..3 (`--scale`)."),
    ("relevant", "Relevant from", "1", "Lowest grade of the set that counts as relevant (`--relevant-from`)."),
    (
        "grades",
        "Grades",
        "0.5..1=1, Relevant=2",
        "Grades of ratings that are fractions or words, VALUE=GRADE, with commas between them (`--grade`).",
    ),
    (
        "queue",
        "Queue",
        "none",
        "Labelling queue to make of the pairs that the file lists without a judgment (`--queue`).",
    ),
)
"""Options of an import that are typed: key, label, placeholder and help."""


def draw_options(key: str) -> ImportOptions | None:
    """Draw the options of an import; None after an error, which is drawn. `key` begins the keys of the widgets."""
    replace = st.checkbox("Replace what others brought", key=f"{key}:replace", help=HELP["import:replace"])
    typed: dict[str, str] = {}
    with st.expander("Query set, scale and grades", key=f"{key}:more"):
        boxes = st.columns([1.2, 0.8, 0.9, 1.5, 1, 0.9], vertical_alignment="bottom")
        for box, (name, label, hint, help) in zip(boxes, OPTIONS, strict=False):
            typed[name] = box.text_input(label, key=f"{key}:{name}", placeholder=hint, help=help).strip()
        match = boxes[-1].selectbox("Match", MATCHES, key=f"{key}:match", help=HELP["import:match"])
    with errors_shown():
        return import_options(
            typed["set"] or None,
            typed["scale"] or None,
            match,
            [each.strip() for each in typed["grades"].split(",") if each.strip()],
            typed["relevant"] or None,
            replace=replace,
            queue=typed["queue"] or None,
        )
    return None


MAX_ERROR_ROWS = 1_000
MAX_NOTES = 5
"""More are drawn in a box that scrolls."""
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


def draw_report(imports: Sequence[FileImport], key: str, file: str) -> None:
    """Draw what an import brought: problems, counts, notes, and the rows that were left out or taken in part, with
    `file` to download. `key` begins the keys of the tables."""
    reports = [(imported.name, imported.report) for imported in imports if imported.report is not None]
    nothing = took_nothing([report for _, report in reports])
    for line in [*(one.problem for one in imports if one.problem), *([nothing] if nothing and reports else [])]:
        st.error(plain(line), icon=":material/block:")
    if rows := count_rows(imports):
        draw_table(rows, COUNTS, key=f"{key}:counts", most=len(rows))
    if notes := list(dict.fromkeys(note for _, report in reports for note in report.notes)):
        if len(notes) <= MAX_NOTES:
            st.caption("  \n".join(map(plain, notes)))
        else:
            st.caption(f"{len(notes)} notes on replaced, repeated or conflicting rows")
            draw_lines(notes)
    errors = _errors(imports)
    if not errors:
        return
    head, button = st.columns([4, 1], vertical_alignment="bottom")
    head.markdown(f"## {counted(len(errors), 'rows')} left out, or taken in part")
    if len(errors) > MAX_ERROR_ROWS:
        head.caption(f"The first {MAX_ERROR_ROWS:,} are shown; the CSV has all of them.")
    more: dict[str, Any] = {"help": "All rows that were left out, or taken in part, with reasons.", "width": "stretch"}
    download("Download as CSV", errors_csv(imports), file, f"{key}:errors:csv", button, **more)
    draw_table(errors[:MAX_ERROR_ROWS], ERRORS, key=f"{key}:errors", most=12)


def count_rows(imports: Sequence[FileImport]) -> list[CountRow]:
    """One row per file and kind."""
    rows: list[CountRow] = []
    for imported in imports:
        if (report := imported.report) is not None:
            kinds = [(kind, getattr(report, kind)) for kind in KINDS]
            present = [(kind, counts) for kind, counts in kinds if counts.total] or [("none", NO_ROWS)]
            rows += [(imported.name, None if i else report, *each) for i, each in enumerate(present)]
    return rows


def _errors(imports: Sequence[FileImport]) -> list[tuple[str, RowError]]:
    return [(imported.name, error) for imported in imports if imported.report for error in imported.report.errors]


def errors_csv(imports: Sequence[FileImport]) -> bytes:
    """The rows that were left out or taken in part as CSV, safe against formula injection."""
    cells = [[column.cell(row) for column in ERRORS] for row in _errors(imports)]
    return csv_bytes([column.name for column in ERRORS], cells)


def draw_lines(lines: Sequence[str]) -> None:
    """Draw lines in a box that scrolls."""
    height = min(200, 28 + 21 * len(lines))
    st.code(neutralise("\n".join(lines)), language=None, wrap_lines=True, height=height)


DATES = ("created_at", "last_accessed", "valid_from", "valid_until")
TEXTS = ("title", "session")
"""Optional text fields; a missing value is shown as an empty box."""
DAY_HELP = "UTC, as 2024-05-08 or 2024-05-08T13:56:00Z; empty when unknown."


def form_values(memory: Memory, labels: Mapping[str, str]) -> dict[str, Any]:
    """The initial values of a form's fields; `labels` maps field names to their labels."""
    values: dict[str, Any] = {name: getattr(memory, name) for name in labels}
    for name in labels:
        if name in DATES:
            moment = values[name]
            values[name] = "" if moment is None else moment.isoformat().replace("+00:00", "Z")
        elif name in TEXTS:
            values[name] = values[name] or ""
        elif name == "tags":
            values[name] = list(dict.fromkeys(memory.tags))
    return values


def edited_memory(memory: Memory, typed: Mapping[str, Any], labels: Mapping[str, str]) -> Memory:
    """The memory with the edited fields; raises InputError with one line that names the field. An untouched field keeps
    its exact value: browsers change line ends and drop characters they cannot show."""
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
        # A reason may name another field.
        reason = error.reason.replace("valid_from", labels.get("valid_from", "valid_from"))
        raise InputError(f"{labels.get(error.field, error.field)} {reason}") from error


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


FIELDS: Mapping[str, str] = HELP["memory:fields"]
"""Help text by field label."""


def title_and_text(memory: Memory) -> str:
    """Title and first words of the content, on one line."""
    return excerpt(f"{memory.title}: {memory.content}" if memory.title else memory.content)
