"""Opening an evidence file on the Evaluate page: used if it matches this store; otherwise refused, or used read-only on request."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import IO

import streamlit as st

from cems_workbench.errors import InputError, WorkbenchError
from cems_workbench.jobs.access import allowed_path
from cems_workbench.jobs.query_set_evidence import store_mismatch
from cems_workbench.pipeline.resources import Resources
from cems_workbench.platform.atomic_write import output_path
from cems_workbench.settings import Settings
from cems_workbench.ui.evaluate.state import OPENED_FILE, OpenedFile, page, read_file
from cems_workbench.ui.kit.html import plain

CHUNK_BYTES = 1 << 20
MAX_UPLOAD_MB = 2000


def draw(resources: Resources) -> None:
    """Draw a popover with a path and an upload, and the reason if the file is refused."""
    popover = st.popover(
        "Evidence file",
        icon=":material/folder_open:",
        key="evaluate:file",
        on_change="rerun",
        help="Measure on a file written by the command gather, here or elsewhere; no models are called",
    )
    if not popover.open:
        return
    with popover, st.container(width=420):
        path = st.text_input(
            "Path",
            key="evaluate:file_path",
            placeholder="/…/team.evidence",
            persist_state="session",
            help="A path on the machine that runs the app: in the folder of its store, or in one of CEMS_WORKBENCH_FOLDERS",
        )
        upload = st.file_uploader("or upload it", key="evaluate:file_upload", max_upload_size=MAX_UPLOAD_MB)
        if st.button("Open the file", key="evaluate:file_open", disabled=not (path.strip() or upload)):
            _offer(path.strip(), upload, resources)
        _decide()


def _offer(typed: str, upload: IO[bytes] | None, resources: Resources) -> None:
    """Check the file: use it if it matches this store, else remember the reason."""
    page.update(offered=None)
    try:
        path = allowed_path(typed, Settings()) if typed else None
        name = path.name if path else str(getattr(upload, "name", "upload"))
        place = path or _saved(upload)
        try:
            evidence = read_file(OpenedFile(place, name, None))
        except InputError as error:
            raise InputError(str(error).replace(str(place), name)) from None
        if not evidence.judgments:
            raise InputError(f"{name}: it contains no judgments, so nothing can be measured on it")
        file = OpenedFile(place, name, store_mismatch(evidence.header, resources))
    except WorkbenchError as error:
        st.error(plain(str(error)), icon=":material/block:")
        return
    if file.reason is None:
        use(file)
        st.rerun()
    page.update(offered=file)


def _decide() -> None:
    offered = page.get().offered
    if offered is None:
        return
    st.warning(plain(f"{offered.name} does not match this store: {offered.reason}."), icon=":material/block:")
    st.button(
        "Use it read-only",
        key="evaluate:file_use",
        type="primary",
        on_click=use,
        args=(offered,),
        help="Configs are measured on the evidence and judgments in the file. The file is not changed, and the store is not "
        "searched.",
    )


def use(file: OpenedFile) -> None:
    """Measure on this file."""
    page.update(opened=file, offered=None, next_query_set=OPENED_FILE, close_file_box=True)


def close() -> None:
    """Measure on the store's query sets again."""
    page.update(opened=None)
    st.session_state.pop("evaluate:set", None)


def _saved(upload: IO[bytes] | None) -> Path:
    """Save the upload to a file for DuckDB, named by its hash; deleted with the session."""
    assert upload is not None
    folder = page.get().uploads or tempfile.TemporaryDirectory(prefix="cems-evidence-")
    page.update(uploads=folder)
    digest = hashlib.sha256()
    upload.seek(0)
    whole = Path(folder.name) / "upload"
    with output_path(whole) as part, part.open("wb") as out:
        while chunk := upload.read(CHUNK_BYTES):
            digest.update(chunk)
            out.write(chunk)
    return whole.replace(Path(folder.name) / f"{digest.hexdigest()[:16]}.evidence")
