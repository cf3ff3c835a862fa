"""FAISS: an index in a folder, with the memories beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cems_workbench.sources.kinds import SourceKind

if TYPE_CHECKING:
    from cems_workbench.sources.address import Address
    from cems_workbench.sources.source import Source


def open_folder(address: Address, mapping: Mapping[str, Any] | None, timeout: float) -> Source:
    """Open the folder; its files say which library wrote it."""
    from cems_workbench.sources.faiss.connect import open_address

    return open_address(address, mapping, timeout)


SOURCE = SourceKind(
    name="faiss",
    title="FAISS",
    addresses=("faiss:/FOLDER",),
    description="a folder with a FAISS index as mem0 (NAME.faiss, NAME.json) or txtai (embeddings, documents) writes it",
    schemes=("faiss",),
    open=open_folder,
    package="faiss",
    extra="faiss",
    place=60,
)
