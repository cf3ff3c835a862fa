"""Qdrant: a collection on a server, or in a directory of its local mode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cems_workbench.sources.kinds import SourceKind

if TYPE_CHECKING:
    from cems_workbench.sources.address import Address
    from cems_workbench.sources.source import Source


def open_collection(address: Address, mapping: Mapping[str, Any] | None, timeout: float) -> Source:
    """Open the collection."""
    from cems_workbench.sources.qdrant import open_address

    return open_address(address, mapping, timeout)


SOURCE = SourceKind(
    name="qdrant",
    title="Qdrant",
    addresses=("qdrant://HOST:6333/COLLECTION", "qdrant:/FOLDER/COLLECTION", "qdrant:/SHARD"),
    description="a collection on a Qdrant server, in a folder of its local mode, or in a shard of Qdrant Edge",
    schemes=("qdrant", "qdrant+https"),
    open=open_collection,
    credential_variable="QDRANT_API_KEY",
    package="qdrant_client",
    extra="qdrant",
    lists=("vector", "sparse", "source_hybrid"),
    place=30,
)
