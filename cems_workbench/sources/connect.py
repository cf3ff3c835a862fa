"""Opening a source by its address: a module for each kind, imported when one of its kind is opened."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol, cast

from cems_workbench.errors import InputError, install_extra
from cems_workbench.sources.address import Address
from cems_workbench.sources.source import Source

MODULES: Mapping[str, str] = {
    "postgresql": "cems_workbench.sources.postgres.connect",
    "chroma": "cems_workbench.sources.chroma",
    "qdrant": "cems_workbench.sources.qdrant",
}
"""By kind the module that has `open_address(address, mapping, timeout)`."""
PACKAGES: Mapping[str, tuple[str, str]] = {"postgresql": ("psycopg", "postgres"), "qdrant": ("qdrant_client", "qdrant")}
"""What is imported for a kind that not everybody has installed, and the extra that brings it."""
TIMEOUT_S = 60.0
"""How long a single statement or request may take."""


class _Module(Protocol):
    def open_address(self, address: Address, mapping: Mapping[str, Any] | None, timeout: float) -> Source: ...


def open_source(address: Address, mapping: Mapping[str, Any] | None = None, timeout: float = TIMEOUT_S) -> Source:
    """Open the source at an address; `mapping` says which columns are which where it is a table of its own.

    Raises InputError for an address that is of no source, or a mapping that does not fit, and SourceError when it cannot be reached.
    """
    if address.kind not in MODULES:
        raise InputError(
            f"{address.plain} has no memories to take: a CEMS server gives answers only; `fidelity --ask` asks for them"
        )
    package, extra = PACKAGES.get(address.kind, ("", ""))
    if package and find_spec(package) is None:
        raise InputError(f"{address.plain}: {install_extra(package, extra)}")
    module = cast(_Module, import_module(MODULES[address.kind]))
    return module.open_address(address, mapping, timeout)
