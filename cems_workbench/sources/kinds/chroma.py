"""Chroma: a collection on a server, or in a directory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cems_workbench.sources.address import SourceKind

if TYPE_CHECKING:
    from cems_workbench.sources.address import Address
    from cems_workbench.sources.source import Source


def open_collection(address: Address, mapping: Mapping[str, Any] | None, timeout: float) -> Source:
    from cems_workbench.sources.chroma import open_address

    return open_address(address, mapping, timeout)


SOURCE = SourceKind(
    name="chroma",
    title="Chroma",
    addresses=("chroma://HOST:8000/COLLECTION", "chroma:/FOLDER/COLLECTION"),
    description="a collection on a Chroma server, or in a folder of Chroma",
    schemes=("chroma", "chroma+https"),
    open=open_collection,
    credential_variable="CHROMA_API_KEY",
    place=20,
)
