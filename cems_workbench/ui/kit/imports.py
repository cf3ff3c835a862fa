"""Import on a page: the options, in the words of the command `import`, and its report as tables: counts, and rows left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st

from cems_workbench.errors import InputError
from cems_workbench.jobs.importing import FileImport, import_options, took_nothing
from cems_workbench.store import ImportOptions
from cems_workbench.store.imports import KINDS
from cems_workbench.store.query_matching import MATCHES
from cems_workbench.store.rows import NO_ROWS
from cems_workbench.ui.kit.html import csv_bytes, plain

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
    try:
        return import_options(
            texts["query_set"].strip() or None,
            texts["scale"].strip() or None,
            texts["match"],
            [each.strip() for each in texts["grades"].split(",") if each.strip()],
            texts["relevant_from"].strip() or None,
            replace=replace,
            queue=texts["queue"].strip() or None,
        )
    except InputError as error:
        st.error(plain(str(error)), icon=":material/block:")
        return None


ERROR_COLUMNS = ("file", "row", "field", "reason")


def counts_table(imports: Sequence[FileImport]) -> list[dict[str, Any]]:
    """One row per file and kind, with the format it was read in: added, updated, unchanged, and the rows left out or taken in part."""
    rows = []
    for imported in imports:
        if imported.report is None:
            continue
        kinds = [(kind, getattr(imported.report, kind)) for kind in KINDS]
        present = [(kind, counts) for kind, counts in kinds if counts.total] or [("none", NO_ROWS)]
        for i, (kind, counts) in enumerate(present):
            rows.append(
                {
                    "file": imported.name,
                    "format": imported.report.format if i == 0 else "",
                    "rows": kind,
                    "added": counts.added,
                    "updated": counts.updated,
                    "unchanged": counts.unchanged,
                    "left out": len(imported.report.errors) if i == 0 else None,
                }
            )
    return rows


def problems(imports: Sequence[FileImport]) -> list[str]:
    """A line for each file that could not be read, and one if the others brought nothing."""
    nothing = took_nothing([imported.report for imported in imports if imported.report is not None])
    read = any(imported.report is not None for imported in imports)
    return [*(imported.problem for imported in imports if imported.problem), *([nothing] if nothing and read else [])]


def notes(imports: Sequence[FileImport]) -> list[str]:
    """The notes of the reports, without duplicates."""
    return list(dict.fromkeys(note for imported in imports if imported.report for note in imported.report.notes))


def error_rows(imports: Sequence[FileImport]) -> list[tuple[str, int, str, str]]:
    """(file, row, field, reason) of every row that was left out or taken in part."""
    return [
        (imported.name, error.row, error.field or "", error.reason)
        for imported in imports
        if imported.report is not None
        for error in imported.report.errors
    ]


def errors_csv(imports: Sequence[FileImport]) -> bytes:
    """These rows as CSV, safe against formula injection."""
    return csv_bytes(ERROR_COLUMNS, error_rows(imports))
