"""An evidence file opened on the Evaluate page: of this store it is used at once; of another, refused with the reason or used read-only."""

from __future__ import annotations

import hashlib
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import streamlit as st

from cems_workbench.errors import InputError, WorkbenchError
from cems_workbench.evaluation.evidence_file import EvidenceSet, read_evidence_file
from cems_workbench.pipeline.resources import Resources
from cems_workbench.runs.gathering import not_of_this_store
from cems_workbench.ui.kit.escape import plain

OPENED = "(opened evidence file)"
"""What the query set is called while an evidence file is measured on; no set can have a name with these brackets and be told apart."""
CHUNK = 1 << 20
MEGABYTES = 2000


@dataclass(frozen=True, slots=True)
class Opened:
    """An evidence file and, when it is not of the open store as it is now, why."""

    path: Path
    name: str
    reason: str | None


def opened() -> Opened | None:
    """The file that is measured on, None while there is none."""
    found: Opened | None = st.session_state.get("ev:opened")
    return found


def read(file: Opened) -> EvidenceSet:
    """The whole file, kept for all sessions as long as it is unchanged. Raises InputError."""
    try:
        changed = file.path.stat().st_mtime_ns
    except OSError:
        raise InputError(f"{file.name}: it is no longer there; open it again") from None
    return _read(file.path, changed)


@st.cache_resource(show_spinner="Reading the evidence file", max_entries=4)
def _read(path: Path, changed_ns: int) -> EvidenceSet:
    return read_evidence_file(path)


def draw(resources: Resources) -> None:
    """A popover: a path or an upload, and what is wrong with it."""
    if "ev:next_file" in st.session_state:
        st.session_state["ev:file"] = st.session_state.pop("ev:next_file")
    popover = st.popover("Evidence file", icon=":material/folder_open:", key="ev:file", on_change="rerun",
        help="Measure on a file made by the command gather, here or elsewhere; no model is asked")  # fmt: skip
    if not popover.open:
        return
    with popover, st.container(width=420):
        path = st.text_input("Path", key="ev:file_path", placeholder="/…/team.evidence", persist_state="session",
                             help="On the machine that runs the app")  # fmt: skip
        upload = st.file_uploader("or upload it", key="ev:file_upload", max_upload_size=MEGABYTES)
        if st.button("Open the file", key="ev:file_open", disabled=not (path.strip() or upload)):
            _offer(Path(path.strip()).expanduser() if path.strip() else None, upload, resources)
        _decide()


def _offer(path: Path | None, upload: IO[bytes] | None, resources: Resources) -> None:
    """Look into the file: use it when it is of this store, else remember why not."""
    st.session_state.pop("ev:offered", None)
    try:
        name = path.name if path else str(getattr(upload, "name", "upload"))
        place = path or _saved(upload)
        try:
            read_set = read(Opened(place, name, None))
        except InputError as error:
            raise InputError(str(error).replace(str(place), name)) from None
        if not read_set.judgments:
            raise InputError(f"{name}: it holds no judgments, so nothing can be measured on it")
        found = Opened(place, name, not_of_this_store(read_set.header, resources))
    except WorkbenchError as error:
        st.error(plain(str(error)), icon=":material/block:")
        return
    if found.reason is None:
        use(found)
        st.rerun()
    st.session_state["ev:offered"] = found


def _decide() -> None:
    offered: Opened | None = st.session_state.get("ev:offered")
    if offered is None:
        return
    st.warning(
        plain(f"{offered.name} is not taken for evidence of this store: {offered.reason}."), icon=":material/block:"
    )
    st.button("Use it read-only", key="ev:file_use", type="primary", on_click=use, args=(offered,),
        help="Configs are measured on what is in the file, with its own judgments. It is not gone on with, and the store is "
        "not asked.")  # fmt: skip


def use(file: Opened) -> None:
    """Measure on this file from now on."""
    st.session_state["ev:opened"] = file
    st.session_state["ev:next_set"] = OPENED
    st.session_state["ev:next_file"] = False  # the popover closes
    st.session_state.pop("ev:offered", None)


def close() -> None:
    """Measure on the store's query sets again."""
    st.session_state.pop("ev:opened", None)
    st.session_state.pop("ev:set", None)


def _saved(upload: IO[bytes] | None) -> Path:
    """The upload as a file that DuckDB can open, named by its content; it is gone with the session."""
    assert upload is not None
    folder: tempfile.TemporaryDirectory[str] = st.session_state.setdefault(
        "ev:uploads", tempfile.TemporaryDirectory(prefix="cems-evidence-")
    )
    digest = hashlib.sha256()
    upload.seek(0)
    partial = Path(folder.name) / "partial"
    with partial.open("wb") as out:
        while chunk := upload.read(CHUNK):
            digest.update(chunk)
            out.write(chunk)
    return partial.replace(Path(folder.name) / f"{digest.hexdigest()[:16]}.evidence")
