"""Build of the full-text index for a content version; index_directory.py swaps it in."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cems_workbench.progress import Progress, silent
from cems_workbench.store.search.directory.index_directory import Manifest, publish, write_json
from cems_workbench.store.search.entries import WHOLE_MEMORY, Document
from cems_workbench.store.search.postgres import postgres_text, ts_rank_index
from cems_workbench.store.search.postgres.postgres_heap import MAX_ROWS, HeapRow, heap_order
from cems_workbench.store.search.postgres.postgres_text import TextConfig
from cems_workbench.store.search.postgres.ts_rank_index import InvertedIndex

Column = NDArray[Any]


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
    rows = [HeapRow(chunk.text, dimension, postgres_text.lexemes(chunk.text)) for chunk in chunks]
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
        postgres_text.VERSION,
        lambda target: _write(target, chunks, total, progress),
        identity,
    )


def _write(target: Path, chunks: Iterable[Chunk], total: int, progress: Progress) -> int:
    index = inverted_index(chunks, total, progress)
    for name in ts_rank_index.COLUMNS:
        np.save(target / f"{name}.npy", index.columns[name])
    write_json(target / ts_rank_index.LABELS, index.labels)
    write_json(target / ts_rank_index.TERMS, index.terms)
    write_json(target / ts_rank_index.IDS, index.ids)
    return len(index.columns["memories"])


def inverted_index(
    chunks: Iterable[Chunk], total: int, progress: Progress = silent, config: TextConfig = "english"
) -> InvertedIndex:
    """The inverted index of chunks in their order, in memory."""
    ids: dict[str, int] = {}
    labels: dict[str, dict[str | None, int]] = {"projects": {}, "scopes": {}}
    terms: dict[str, int] = {}
    rows, filters = array("i"), array("i")
    postings, counts, positions = array("i"), array("B"), array("H")
    sizes = array("i")
    for row, chunk in enumerate(chunks):
        if row % 1_000 == 0:
            progress("indexing full text", row, total)
        rows.extend((ids.setdefault(chunk.memory_id, len(ids)), chunk.number))
        for name, value in (("projects", chunk.project), ("scopes", chunk.scope)):
            filters.append(labels[name].setdefault(value, len(labels[name])))
        found = postgres_text.lexemes(chunk.text, config)
        sizes.append(len(found))
        for lexeme, places in found.items():
            postings.append(terms.setdefault(lexeme, len(terms)))
            counts.append(len(places))
            positions.extend(places)
    progress("indexing full text", len(sizes), total)

    # By bytes, as PostgreSQL: a prefix search is then one range.
    ordered = sorted(terms, key=str.encode)
    columns = _inverted(
        np.array([terms[term] for term in ordered], np.int64),
        np.frombuffer(postings, np.int32),
        np.repeat(np.arange(len(sizes), dtype=np.int32), np.frombuffer(sizes, np.int32)),
        np.frombuffer(counts, np.uint8),
        np.frombuffer(positions, np.uint16),
    )
    memories, numbers = np.frombuffer(rows, np.int32).reshape(-1, 2).T
    columns |= {"memories": memories, "chunks": numbers, "filters": np.frombuffer(filters, np.int32).reshape(-1, 2)}
    rank_of_id = np.empty(len(ids), np.int32)
    rank_of_id[[ids[memory_id] for memory_id in sorted(ids)]] = np.arange(len(ids), dtype=np.int32)
    columns["by_id"] = np.empty(len(sizes), np.int32)
    columns["by_id"][np.lexsort((numbers, rank_of_id[memories]))] = np.arange(len(sizes), dtype=np.int32)
    return InvertedIndex(list(ids), ordered, {name: list(codes) for name, codes in labels.items()}, columns)


def _inverted(
    ordered: Column, postings: Column, documents: Column, counts: Column, positions: Column
) -> dict[str, Column]:
    """The postings by term, in the order of `ordered` (numbers of terms), each term's by document."""
    place_of = np.empty(len(ordered), np.int64)
    place_of[ordered] = np.arange(len(ordered))
    term = place_of[postings]
    order = np.argsort(term, kind="stable")
    begins = np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))[:-1][order]
    lengths = counts[order].astype(np.int64)
    places = np.concatenate(([0], np.cumsum(lengths)))
    # Position i of the result comes from where its posting's positions began, plus how far into the posting it is.
    moved = np.repeat(begins - places[:-1], lengths) + np.arange(len(positions))
    starts = np.concatenate(([0], np.cumsum(np.bincount(term, minlength=len(ordered)))))
    return {
        "starts": starts.astype(np.int64),
        "documents": documents[order],
        "counts": counts[order],
        "places": places,
        "positions": positions[moved],
    }
