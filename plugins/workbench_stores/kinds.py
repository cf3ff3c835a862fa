"""The kinds of sources of this package, which pyproject.toml declares as entry points; a store's driver is imported when one is opened."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cems_workbench.progress import Progress
from cems_workbench.sources.address import SourceKind

if TYPE_CHECKING:
    from cems_workbench.records import Query, Recording
    from cems_workbench.sources.address import Address
    from cems_workbench.sources.source import Source


Open = Callable[["Address", Mapping[str, Any] | None, float], "Source"]
ROWS: Mapping[str, Mapping[str, Any]] = json.loads(Path(__file__).with_name("kinds.json").read_text("utf-8"))
"""By name the fields of `SourceKind`: what addresses look like, what they are, which lists a source answers."""


def _kind(name: str, open: Open | None = None, **further: Any) -> SourceKind:
    further |= {field: tuple(value) if isinstance(value, list) else value for field, value in ROWS[name].items()}
    return SourceKind(name=name, open=open, **further)


def _opened_by(module: str) -> Open:
    def opened(address: Address, mapping: Mapping[str, Any] | None, timeout: float) -> Source:
        source: Source = import_module(f"workbench_stores.{module}").open_address(address, mapping, timeout)
        return source

    return opened


def _ask_cems(address: Address, queries: Sequence[Query], progress: Progress) -> Recording:
    from workbench_stores.cems_api import CemsApi

    with CemsApi(address) as server:
        return server.recording(list(server.answers(queries, progress)))


POSTGRESQL = _kind("postgresql", _opened_by("postgres.connect"))
QDRANT = _kind("qdrant", _opened_by("qdrant"))
CEMS = _kind("cems", ask=_ask_cems)
SQLITE = _kind("sqlite", _opened_by("sqlite.connect"))
LANCEDB = _kind("lancedb", _opened_by("lancedb"))
FAISS = _kind("faiss", _opened_by("faiss"))
