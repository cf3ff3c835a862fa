"""Build of the full-text index for a content version; index_directory.py swaps it in."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cems_workbench.progress import Progress, silent
from cems_workbench.store.search.directory.index_directory import Manifest, publish, write_json
from cems_workbench.store.search.entries import WHOLE_MEMORY, Document
from cems_workbench.store.search.postgres import VERSION, ts_rank_index
from cems_workbench.store.search.postgres.ts_rank_index import ChunkIndex
from pg_text_search.heap import MAX_ROWS, HeapRow, heap_order
from pg_text_search.inverted_index import inverted_index
from pg_text_search.ts_rank import Lexemes, TextConfig, lexemes


@dataclass(frozen=True, slots=True)
class Chunk:
    """What the index keeps of a chunk: whose it is, its number within that memory, `WHOLE` for a memory that is searched as one
    text, its text, and what filters ask."""

    memory_id: str
    number: int
    text: str
    project: str | None
    scope: str


def in_server_order(documents: Iterable[Document], dimension: int) -> list[Chunk]:
    """The chunks of documents in the row order of a server that received them in this order."""
    chunks = [
        Chunk(document.id, number, text, document.project, document.scope)
        for document in documents
        for number, text in document.chunks or ((WHOLE_MEMORY, document.text),)
    ]
    # Computing lexemes and lengths takes about a millisecond a row.
    if len(chunks) > MAX_ROWS:
        return chunks
    rows = [HeapRow(chunk.text, dimension, lexemes(chunk.text)) for chunk in chunks]
    return [chunks[place] for place in heap_order(rows)]


def build(
    directory: Path, chunks: Iterable[Chunk], total: int, content_version: int, progress: Progress, identity: str = ""
) -> Manifest:
    """Index `chunks`, in the order of the server's rows, the content of this identity, and make the result current.

    Raises what `progress` raises (Cancelled), StoreError if it cannot be written; the previous index then stays current.
    """
    return publish(
        directory,
        content_version,
        VERSION,
        lambda target: _write(target, chunks, total, progress),
        identity,
    )


def _write(target: Path, chunks: Iterable[Chunk], total: int, progress: Progress) -> int:
    index = chunk_index(chunks, total, progress)
    for name, column in {**index.columns, **index.words.columns}.items():
        np.save(target / f"{name}.npy", column)
    write_json(target / ts_rank_index.LABELS, index.labels)
    write_json(target / ts_rank_index.TERMS, index.words.terms)
    write_json(target / ts_rank_index.IDS, index.ids)
    return index.words.size


def chunk_index(
    chunks: Iterable[Chunk], total: int, progress: Progress = silent, config: TextConfig = "english"
) -> ChunkIndex:
    """The index of chunks in their order, in memory."""
    ids: dict[str, int] = {}
    labels: dict[str, dict[str | None, int]] = {"projects": {}, "scopes": {}}
    rows, filters = array("i"), array("i")

    def documents() -> Iterator[Lexemes]:
        for row, chunk in enumerate(chunks):
            if row % 1_000 == 0:
                progress("indexing full text", row, total)
            rows.extend((ids.setdefault(chunk.memory_id, len(ids)), chunk.number))
            for name, value in (("projects", chunk.project), ("scopes", chunk.scope)):
                filters.append(labels[name].setdefault(value, len(labels[name])))
            yield lexemes(chunk.text, config)

    words = inverted_index(documents())
    progress("indexing full text", words.size, total)
    memories, numbers = np.frombuffer(rows, np.int32).reshape(-1, 2).T
    rank_of_id = np.empty(len(ids), np.int32)
    rank_of_id[[ids[memory_id] for memory_id in sorted(ids)]] = np.arange(len(ids), dtype=np.int32)
    by_id = np.empty(words.size, np.int32)
    by_id[np.lexsort((numbers, rank_of_id[memories]))] = np.arange(words.size, dtype=np.int32)
    columns = {
        "memories": memories,
        "chunks": numbers,
        "by_id": by_id,
        "filters": np.frombuffer(filters, np.int32).reshape(-1, 2),
    }
    return ChunkIndex(list(ids), {name: list(codes) for name, codes in labels.items()}, columns, words)
