"""Opening a source by its address, with the kind that its scheme names."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from cems_workbench.errors import InputError, install_extra
from cems_workbench.sources.address import Address, source_kind
from cems_workbench.sources.kinds import SOURCE_KINDS, SourceKind
from cems_workbench.sources.source import Source, SourceError

TIMEOUT_S = 60.0
"""How long a single statement or request may take."""


def open_source(address: Address, mapping: Mapping[str, Any] | None = None, timeout: float = TIMEOUT_S) -> Source:
    """Open the source at an address; `mapping` names the columns of a table, or the fields of a payload.

    Raises InputError for an address of no source or a mapping that does not fit, and SourceError if the source cannot be reached.
    """
    kind = source_kind(address)
    if kind.open is None:
        raise InputError(
            f"{address.plain} has no memories to take: a {kind.title} gives answers only; `fidelity --ask` asks for them"
        )
    if kind.package and find_spec(kind.package) is None:
        raise InputError(f"{address.plain}: {_installation(kind)}")
    with SOURCE_KINDS.guarded(kind.name, SourceError):
        return kind.open(address, mapping, timeout)


def _installation(kind: SourceKind) -> str:
    if kind.extra:
        return install_extra(kind.package, kind.extra)
    return f"{kind.package} is not installed; {kind.title} needs it"
