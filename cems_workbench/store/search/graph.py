"""Chroma's copy of an embedder's vectors: made and refreshed from the store's own, for its HNSW graph or for other readers of a server.

The `embedded` table has what the copy holds, by vector hash and labels, so a refresh writes only the difference.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from cems_workbench.models.protocol import Float32
from cems_workbench.progress import Progress
from cems_workbench.store import memories
from cems_workbench.store.database import Database
from cems_workbench.store.rows import portions, read_meta, write_meta
from cems_workbench.store.search import chroma, embedded
from cems_workbench.store.search.chroma import ChromaDirectory
from cems_workbench.store.search.entries import EntryId, key_of, parse_key
from cems_workbench.store.search.vector_files import VectorRecord
from cems_workbench.store.search.vector_segments import SegmentVectors

if TYPE_CHECKING:
    from chromadb.api.models.Collection import Collection


META_PREFIX = "graph:"
LABEL = "writing vectors to Chroma"
WRITE_ROWS = 512


def refresh(
    database: Database,
    directory: ChromaDirectory,
    name: str,
    embedder_id: str,
    record: VectorRecord,
    vectors: SegmentVectors,
    progress: Progress,
) -> Collection:
    """Make the collection `name` hold the vectors that `record` describes; returns it.

    Raises StoreError, and what `progress` raises: what was written then stays.
    """
    collection = directory.find(name) or directory.create(name, embedder_id)
    copy = str(collection.id)
    with database.reading() as cursor:
        state: dict[str, Any] = json.loads(read_meta(cursor, META_PREFIX + embedder_id) or "{}")
        rows = embedded.count(cursor, copy)
    with chroma.store_errors(chroma.READ_FAILED):
        complete = state.get("collection") == copy and collection.count() == rows
    if not complete:
        _reconcile(database, collection)
    with database.reading() as cursor:
        since = state.get("version") if complete else None
        changed = None if since is None else memories.changed_since(cursor, since)
        difference = embedded.difference(cursor, record.collection, copy, changed)
    total = len(difference.embed) + len(difference.relabel)
    for entry_ids in portions(difference.remove, WRITE_ROWS):
        with chroma.store_errors(chroma.WRITE_FAILED):
            # Chroma first: a crash in between repeats the batch and never skips it.
            collection.delete(ids=[key_of(entry_id) for entry_id in entry_ids])
        with database.transaction() as cursor:
            embedded.remove(cursor, copy, entry_ids)
    # By id: the batches then read neighbouring rows of the files.
    for done, entry_ids in enumerate(
        portions(sorted([*difference.embed, *difference.relabel], key=key_of), WRITE_ROWS)
    ):
        progress(LABEL, done * WRITE_ROWS, total)
        own = vectors.rows_of(list({memory_id for memory_id, _ in entry_ids}))
        wanted = set(entry_ids)
        rows_wanted = own.take([row for row, entry_id in enumerate(own.entry_ids) if entry_id in wanted])
        labels: list[Any] = [
            {"project": project, "scope": scope}
            for project, scope in zip(rows_wanted.projects, rows_wanted.scopes, strict=True)
        ]
        with chroma.store_errors(chroma.WRITE_FAILED):
            collection.upsert(
                ids=[key_of(entry_id) for entry_id in rows_wanted.entry_ids],
                embeddings=rows_wanted.vectors,
                metadatas=labels,
            )
        # Chroma rounds vectors: what it returns is what it can be recovered from.
        returned = chroma.read_vectors(collection, [key_of(entry_id) for entry_id in rows_wanted.entry_ids])
        hashes = {parse_key(key): embedded.vector_hash(vector) for key, vector in returned}
        with database.transaction() as cursor:
            embedded.remove(cursor, copy, entry_ids)
            embedded.copy(cursor, record.collection, copy, rows_wanted.entry_ids)
            embedded.set_hashes(cursor, copy, hashes)
    if total:
        progress(LABEL, total, total)
    with database.transaction() as cursor:
        write_meta(cursor, META_PREFIX + embedder_id, json.dumps({"collection": copy, "version": record.version}))
    return collection


def stored_vectors(
    database: Database, directory: ChromaDirectory, name: str, record: VectorRecord, entry_ids: Sequence[EntryId]
) -> Iterator[tuple[EntryId, Float32]]:
    """The vectors of these entries that Chroma holds. Raises StoreError.

    Only those that match their recorded hash, and whose text is the recorded one.
    """
    ids = list({memory_id for memory_id, _ in entry_ids})
    own = database.read(embedded.recorded, record.collection, ids)
    directory.verify()
    if directory.exists() and (collection := directory.find(name)) is not None:
        copied = database.read(embedded.recorded, str(collection.id), ids)
        keys = [key_of(each) for each in entry_ids if each in copied and copied[each].text_sha == own[each].text_sha]
        for key, vector in chroma.read_vectors(collection, keys):
            if copied[parse_key(key)].vector_hash == embedded.vector_hash(vector):
                yield parse_key(key), vector


def _reconcile(database: Database, collection: Collection) -> None:
    """Make the records agree with the keys that Chroma has."""
    name = str(collection.id)
    recorded = {key_of(entry_id): entry_id for entry_id in database.read(embedded.recorded_entries, name)}
    with chroma.store_errors(chroma.WRITE_FAILED):
        held = set(collection.get(include=[])["ids"])
        for unknown in portions(sorted(held - recorded.keys()), WRITE_ROWS):
            collection.delete(ids=list(unknown))
    with database.transaction() as cursor:
        embedded.remove(cursor, name, [recorded[key] for key in sorted(recorded.keys() - held)])
