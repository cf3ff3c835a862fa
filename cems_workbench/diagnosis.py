"""What is there and what will be used: the account that `doctor` and the page's footer give.

Nothing here loads a model; a check is quick and never hangs.
"""

from __future__ import annotations

import importlib.metadata
import platform
from dataclasses import dataclass
from typing import Literal

from cems_workbench.errors import StoreError, StoreLockedError
from cems_workbench.models.resolve import resolve
from cems_workbench.settings import Settings

Status = Literal["ok", "warning", "failed"]
PACKAGES = ("streamlit", "duckdb", "chromadb", "sentence-transformers", "torch", "bm25s")


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at: what it is, how it stands, what will happen, and how to better it."""

    name: str
    status: Status
    finding: str
    advice: str = ""


def diagnose(settings: Settings) -> list[Check]:
    """Every check, in the order a reader wants them."""
    return [_packages(), _embedder(settings), *_reranker(), *_store(settings)]


def _packages() -> Check:
    found, missing = [], []
    for name in PACKAGES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        return Check("packages", "failed", f"missing: {', '.join(missing)}", "run make setup")
    return Check("packages", "ok", f"Python {platform.python_version()}, {', '.join(found)}")


def _embedder(settings: Settings) -> Check:
    resolved = resolve(settings.embedder)
    advice = "set CEMS_WORKBENCH_EMBEDDER to a folder with the weights" if resolved.fallback else ""
    return Check("embedder", "warning" if resolved.fallback else "ok", resolved.line, advice)


def _reranker() -> list[Check]:
    return [Check("reranker", "ok", "late interaction on the embedder; no server is needed")]


def _store(settings: Settings) -> list[Check]:
    from cems_workbench.store import Store

    where = f"{settings.store}" + (f", Chroma at {settings.chroma_url}" if settings.chroma_url else "")
    try:
        store = Store.open(settings.store, create=False, chroma_url=settings.chroma_url)
    except StoreLockedError as error:
        return [Check("store", "warning", str(error), "close the app, or name another --store")]
    except StoreError as error:
        return [Check("store", "failed", str(error), "python -m cems_workbench import sample_data")]
    with store:
        count = store.count()
        content = f"{where}: {count} memories, {len(store.queries())} queries, {len(store.judgments())} judgments"
        checks = [Check("store", "ok" if count else "warning", content, "" if count else "import something")]
        for state in store.index_state(resolve(settings.embedder).model_id):
            note = state.note or f"content version {state.version}"
            status: Status = "ok" if state.fresh else "warning"
            advice = "" if state.fresh else "it is rebuilt at the next search"
            checks.append(Check(f"index {state.name}", status, f"{state.rows} rows, {note}", advice))
    return checks
