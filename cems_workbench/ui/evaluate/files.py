"""An evidence file opened on the Evaluate page: of this store it is used at once; of another, refused with the reason or used read-only."""

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
from cems_workbench.ui.kit.escape import plain

CHUNK = 1 << 20
MEGABYTES = 2000


def draw(resources: Resources) -> None:
    """A popover: a path or an upload, and what is wrong with it."""
    popover = st.popover(
        "Evidence file",
        icon=":material/folder_open:",
        key="evaluate:file",
        on_change="rerun",
        help="Measure on a file made by the command gather, here or elsewhere; no model is asked",
    )
    if not popover.open:
        return
    with popover, st.container(width=420):
        path = st.text_input(
            "Path",
            key="evaluate:file_path",
            placeholder="/…/team.evidence",
            persist_state="session",
            help="Where the app runs: in the folder of its store, or one of CEMS_WORKBENCH_FOLDERS",
        )
        upload = st.file_uploader("or upload it", key="evaluate:file_upload", max_upload_size=MEGABYTES)
        if st.button("Open the file", key="evaluate:file_open", disabled=not (path.strip() or upload)):
            _offer(path.strip(), upload, resources)
        _decide()


def _offer(typed: str, upload: IO[bytes] | None, resources: Resources) -> None:
    """Look into the file: use it when it is of this store, else remember why not."""
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
            raise InputError(f"{name}: it holds no judgments, so nothing can be measured on it")
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
    st.warning(
        plain(f"{offered.name} is not taken for evidence of this store: {offered.reason}."), icon=":material/block:"
    )
    st.button(
        "Use it read-only",
        key="evaluate:file_use",
        type="primary",
        on_click=use,
        args=(offered,),
        help="Configs are measured on what is in the file, with its own judgments. Nothing is added to it, and the store is "
        "not asked.",
    )


def use(file: OpenedFile) -> None:
    """Measure on this file from now on."""
    page.update(opened=file, offered=None, next_query_set=OPENED_FILE, close_file_box=True)


def close() -> None:
    """Measure on the store's query sets again."""
    page.update(opened=None)
    st.session_state.pop("evaluate:set", None)


def _saved(upload: IO[bytes] | None) -> Path:
    """The upload as a file that DuckDB can open, named by its content; it is gone with the session."""
    assert upload is not None
    folder = page.get().uploads or tempfile.TemporaryDirectory(prefix="cems-evidence-")
    page.update(uploads=folder)
    digest = hashlib.sha256()
    upload.seek(0)
    whole = Path(folder.name) / "upload"
    with output_path(whole) as part, part.open("wb") as out:
        while chunk := upload.read(CHUNK):
            digest.update(chunk)
            out.write(chunk)
    return whole.replace(Path(folder.name) / f"{digest.hexdigest()[:16]}.evidence")
