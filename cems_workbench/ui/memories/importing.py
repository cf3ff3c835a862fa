"""The Import view: choose files, see what became of every row.

Importing uploaded files: each read on its own, so that a bad one costs only itself, and every row accounted for.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import IO, Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from cems_workbench import formats
from cems_workbench.errors import WorkbenchError
from cems_workbench.formats import FORMATS
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Progress
from cems_workbench.records import ParsedInput, RowError
from cems_workbench.store import ImportReport, Store
from cems_workbench.ui.inspect.gathering import SAMPLE_DATA
from cems_workbench.ui.kit.escape import csv_bytes, plain
from cems_workbench.ui.kit.tables import ROW
from cems_workbench.ui.memories import state

KINDS = ("memories", "relations", "queries", "judgments")
ERROR_COLUMNS = ("file", "row", "field", "reason")


@dataclass(frozen=True)
class Outcome:
    """What became of one file: the store's report, or the one line that says why nothing could be read."""

    name: str
    report: ImportReport | None = None
    problem: str = ""


def import_files(
    files: Iterable[tuple[str, IO[bytes]]], store: Store, progress: Progress, format: str = "auto"
) -> Iterator[Outcome]:
    """Import (name, content) files, memories before what refers to them; yields each outcome once it is committed.

    Raises what `progress` raises (Cancelled): the file at hand is then left out as a whole, those before it stay.
    """
    with tempfile.TemporaryDirectory(prefix="cems-upload-") as folder:
        kept = [_saved(Path(folder) / str(i), name, content) for i, (name, content) in enumerate(files)]
        for path in sorted(kept, key=lambda path: _order(path, format)):
            try:
                parsed = _named(formats.read(path, format, progress), path)
                yield Outcome(path.name, store.add(parsed, progress))
            except WorkbenchError as error:
                line = str(error).replace(str(path), path.name).replace("; pass one of ", "; the known ones are ")
                yield Outcome(path.name, problem=line)


def counts_table(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """A row per file and kind of row: added, updated, unchanged; and what was left out of each file."""
    rows = []
    for outcome in outcomes:
        if outcome.report is None:
            continue
        kinds = [(kind, getattr(outcome.report, kind)) for kind in KINDS]
        present = [(kind, counts) for kind, counts in kinds if counts.total] or kinds[:1]
        for i, (kind, counts) in enumerate(present):
            left_out = len(outcome.report.errors) if i == 0 else None
            rows.append(
                {
                    "file": outcome.name,
                    "rows": kind,
                    "added": counts.added,
                    "updated": counts.updated,
                    "unchanged": counts.unchanged,
                    "left out": left_out,
                }
            )
    return rows


def error_rows(outcomes: Sequence[Outcome]) -> list[tuple[str, int, str, str]]:
    """(file, row, field, reason) of every row that was left out."""
    return [
        (outcome.name, error.row, error.field or "", error.reason)
        for outcome in outcomes
        if outcome.report is not None
        for error in outcome.report.errors
    ]


def errors_csv(outcomes: Sequence[Outcome]) -> bytes:
    """The rows that were left out as a CSV, safe against formula injection."""
    return csv_bytes(ERROR_COLUMNS, error_rows(outcomes))


def _saved(folder: Path, name: str, content: IO[bytes]) -> Path:
    """The upload in a folder of its own (two may have one name) under its own name, which formats look at."""
    folder.mkdir()
    base = PurePosixPath(name.replace("\\", "/")).name.replace("\0", "").lstrip(".")
    path = folder / (base[-120:] or "upload")
    with path.open("wb") as file:
        shutil.copyfileobj(content, file)
    return path


def _order(path: Path, format: str) -> int:
    """When its rows can be imported: memories first; an unreadable file is met again, and reported, when it is read."""
    try:
        return FORMATS[formats.detect(path) if format == "auto" else format].order
    except WorkbenchError:
        return 0


def _named(parsed: ParsedInput, path: Path) -> ParsedInput:
    """The same rows as coming from the file's name, not from where it lay for a moment."""

    def renamed(error: RowError) -> RowError:
        return replace(error, source=path.name)

    return replace(parsed, source=path.name, errors=tuple(renamed(error) for error in parsed.errors))


SHOWN_ERRORS = 1_000
AUTO = "recognise"


def draw(resources: Resources, place: DeltaGenerator) -> None:
    """The uploader, and the report on the last import. Progress is shown in `place`."""
    files = st.file_uploader(
        "Files to import",
        accept_multiple_files=True,
        key=f"mem:upload:{state.get('generation')}",
        help="Memories, relations, queries or judgments, one or several files, in any order. "
        "Importing a file again changes nothing; changed rows are updated.",
    )
    kind, button, sample = st.columns([2, 1, 2], vertical_alignment="bottom")
    chosen = kind.selectbox(
        "Format",
        [AUTO, *FORMATS],
        key="mem:format",
        help="Which format the files have. “recognise” looks at each file.\n\n"
        + "\n".join(f"- `{reader.name}`: {plain(reader.description)}" for reader in FORMATS.values()),
    )
    start = button.button(
        "Import", key="mem:import", type="primary", disabled=not files, width="stretch",
        help="Import the files above. Rows that cannot be used are listed; all others are kept.",
    )  # fmt: skip
    if start and files:
        _run([(file.name, file) for file in files], resources, place, "auto" if chosen == AUTO else chosen)
    if not resources.store.memories.count() and SAMPLE_DATA.is_dir():
        with sample:
            offer_sample(resources, place, "import")
    _report(state.get("outcomes"))


def offer_sample(resources: Resources, place: DeltaGenerator, key: str) -> None:
    """A button that imports the sample data of this project."""
    if st.button(
        "Load the sample memories", key=f"mem:sample:{key}", help="Memories of a made-up engineer, with judged queries."
    ):
        with ExitStack() as stack:
            names = [path for path in sorted(SAMPLE_DATA.iterdir()) if path.suffix in (".jsonl", ".qrels")]
            files = [(path.name, stack.enter_context(path.open("rb"))) for path in names]
            _run(files, resources, place, "auto")


def _run(files: Iterable[tuple[str, IO[bytes]]], resources: Resources, place: DeltaGenerator, format: str) -> None:
    state.put(outcomes=(), undo=None)
    with state.work(place, "import") as progress:
        for outcome in import_files(files, resources.store, progress, format):
            # Kept one by one: an import that is interrupted still reports what it finished.
            state.put(outcomes=(*state.get("outcomes"), outcome), due=True)
        resources.refresh(progress)
    state.changed()
    state.put(due=False)
    st.rerun()


def _report(outcomes: tuple[Outcome, ...]) -> None:
    if not outcomes:
        st.html(
            '<p class="wb-mem-hint">One record a line: <code>{"id": "m1", "content": "…", "category": "preference"}</code>, '
            "or a CSV with such columns. Only id and content are needed. All formats: the help of Format, and "
            "<code>docs/formats.md</code>.</p>"
        )
        return
    st.markdown("###### Last import")
    for outcome in outcomes:
        if outcome.problem:
            st.error(plain(outcome.problem), icon=":material/block:")
    rows = counts_table(outcomes)
    if rows:
        number = st.column_config.NumberColumn
        st.dataframe(
            rows, hide_index=True, row_height=ROW, placeholder="", key="mem:counts", height=ROW * (len(rows) + 1) + 4,
            column_config={
                "file": st.column_config.TextColumn("file", width="medium"),
                "rows": st.column_config.TextColumn("rows", width="small", help="What the rows of the file are"),
                "added": number("added", help="New in this store"),
                "updated": number("updated", help="Already here, with other values"),
                "unchanged": number("unchanged", help="Already here, the same"),
                "left out": number("left out", help="Rows of the file that could not be used; listed below"),
            },
        )  # fmt: skip
    for note in dict.fromkeys(note for outcome in outcomes if outcome.report for note in outcome.report.notes):
        st.caption(plain(note))
    errors = error_rows(outcomes)
    if errors:
        _errors(outcomes, errors)


def _errors(outcomes: tuple[Outcome, ...], errors: list[tuple[str, int, str, str]]) -> None:
    title, button = st.columns([4, 1], vertical_alignment="bottom")
    title.markdown(f"###### {len(errors):,} row{'s' if len(errors) != 1 else ''} left out")
    if len(errors) > SHOWN_ERRORS:
        title.caption(f"The first {SHOWN_ERRORS:,} are shown; the CSV has all of them.")
    button.download_button(
        "Download as CSV", errors_csv(outcomes), "left-out-rows.csv", "text/csv", key="mem:errors:csv",
        on_click="ignore", icon=":material/download:", width="stretch", help="Every row that was left out, and why.",
    )  # fmt: skip
    shown = [dict(zip(ERROR_COLUMNS, row, strict=True)) for row in errors[:SHOWN_ERRORS]]
    st.dataframe(
        shown, hide_index=True, row_height=ROW, placeholder="", key="mem:errors",
        height=ROW * (min(len(shown), 12) + 1) + 4,
        column_config={
            "file": st.column_config.TextColumn("file", width="medium"),
            "row": st.column_config.NumberColumn("row", width=64, format="%d", help="Line or record number, from 1"),
            "field": st.column_config.TextColumn("field", width="small", help="The field that is wrong"),
            "reason": st.column_config.TextColumn("reason", width="large", help="Why the row cannot be used"),
        },
    )  # fmt: skip
