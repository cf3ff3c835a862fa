"""LanceDB: a table in a folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cems_workbench.sources.kinds import SourceKind

if TYPE_CHECKING:
    from cems_workbench.sources.address import Address
    from cems_workbench.sources.source import Source


def open_table(address: Address, mapping: Mapping[str, Any] | None, timeout: float) -> Source:
    """Open the table."""
    from cems_workbench.sources.lancedb import open_address

    return open_address(address, mapping, timeout)


SOURCE = SourceKind(
    name="lancedb",
    title="LanceDB",
    addresses=("lancedb:/FOLDER?table=TABLE", "lancedb:/FOLDER?table=TABLE&distance=cosine"),
    description="a table in a folder of LanceDB; `distance` (l2, cosine or ip) as its program searches it, if no index names one",
    schemes=("lancedb",),
    open=open_table,
    package="lancedb",
    extra="lancedb",
    lists=("vector", "sparse", "source_hybrid"),
    place=50,
)
