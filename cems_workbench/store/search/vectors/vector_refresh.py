"""Bringing the vectors of one embedder up to the store's entries, in steps that last.

Each step writes to Chroma first and to the `embedded` table after it, so a crash in between repeats the step and
never skips one. A cancelled refresh keeps what it has written; the next one goes on from there. Writing in a thread
beside the encoder was tried and is slower: the encoder's own threads wait for each other at every layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from cems_workbench.errors import StoreError
from cems_workbench.models.embedder_match import other_dimension
from cems_workbench.models.protocol import Embedder, Float32
from cems_workbench.progress import Progress
from cems_workbench.store import memories, sources
from cems_workbench.store.database import Database
from cems_workbench.store.precomputed_embeddings import GivenVectors
from cems_workbench.store.search import entries as entries_table
from cems_workbench.store.search.entries import Entry, Place, key, place_of
from cems_workbench.store.search.vectors import chroma, embedded
from cems_workbench.store.search.vectors.write_buffer import WaitingCollection

if TYPE_CHECKING:
    from chromadb.api.models.Collection import Collection


Row = TypeVar("Row")
STEP_TEXTS = 512
STEP_CHARS = 8_000_000
"""A step is written and recorded as a whole: at most this many texts, and about this many characters."""

FEW, FEW_AT_ONCE = 4_096, 128
"""Of so many vectors only some are written by one call of Chroma's, which lets no other thread of Python's go on: 0.1 s at a million, where
a step takes 0.5. Of more a whole step is: building takes 12 % longer in such parts (20,000 vectors)."""


def refresh_vectors(
    database: Database,
    collection: Collection,
    embedder: Embedder,
    progress: Progress,
    since: int | None = None,
    length: int | None = None,
    given: GivenVectors | None = None,
) -> tuple[int, int, int]:
    """Embed, relabel and remove what is pending; returns how many of each.

    `since`: the content version that the collection is of, where it is whole (`agree`): what was not changed later is not looked at.
    `length`: how many values its vectors have, where that is known.
    What came with a vector from a source gets that one, and a whole memory of `given` that, where it is what the embedder makes of it
    (InputError, where it is not). Raises what `progress` raises (Cancelled), StoreError when the embedder
    returns something unusable, EmbedderMismatchError when its vectors have another length than those that are there.
    """
    name = str(collection.id)
    if since is None:
        _reconcile(database, collection)
    with database.reading() as cursor:
        changed = None if since is None else memories.changed_since(cursor, since)
        waiting = embedded.pending(cursor, name, changed)
        rows = embedded.count(cursor, name)
    if changes := len(waiting.embed) + len(waiting.relabel) + len(waiting.remove):
        _expect(collection, changes, rows)
    for places in _slices(waiting.remove, STEP_TEXTS):
        with chroma.speaking(chroma.UNWRITTEN):
            collection.delete(ids=[key(place) for place in places])
        with database.transaction() as cursor:
            embedded.forget(cursor, name, places)
    for places in _slices(waiting.relabel, STEP_TEXTS):
        found = _read(database, places)
        with chroma.speaking(chroma.UNWRITTEN):
            collection.update(ids=[entry.key for entry in found], metadatas=[_labels(entry) for entry in found])
        _record(database, collection, found)
    if waiting.embed and (length := length or chroma.dimension(collection)) not in (None, embedder.dimension):
        raise other_dimension(embedder.model_id, length or 0, embedder.model_id, embedder.dimension)
    count = _embed(database, collection, embedder, waiting.embed, progress, given)
    return count, len(waiting.relabel), len(waiting.remove)


def _expect(collection: Collection, changes: int, rows: int) -> None:
    """Let so many changes of a collection of so many rows wait for the graph, where they may and there is room."""
    if isinstance(collection, WaitingCollection):
        with chroma.speaking(chroma.UNWRITTEN):
            collection.expect(changes, rows)


def _embed(
    database: Database,
    collection: Collection,
    embedder: Embedder,
    places: Sequence[Place],
    progress: Progress,
    made_before: GivenVectors | None,
) -> int:
    """Returns how many texts were encoded."""
    done = embedded_now = 0
    at_once = FEW_AT_ONCE if len(places) <= FEW else STEP_TEXTS
    for entries in (part for step in _slices(places, STEP_TEXTS) for part in _by_size(_read(database, step))):
        progress("embedding memories", done, len(places))
        with database.reading() as cursor:
            given, without = sources.given_vectors(cursor, {entry.place: entry.text_sha for entry in entries})
        came = [entry for entry in entries if entry.place in given]
        if came:
            vectors = np.stack([given[entry.place] for entry in came])
            _write(database, collection, came, _unit(_checked(vectors, len(came), embedder)), at_once)
        missing = [entry for entry in entries if entry.place not in given and entry.place not in without]
        if made_before is not None:
            ready = [entry for entry in missing if entry.place[1] is None and entry.place[0] in made_before]
            if ready:
                ids, texts = [entry.place[0] for entry in ready], [entry.text for entry in ready]
                vectors = _checked(made_before.take(ids, texts, embedder), len(ready), embedder)
                _write(database, collection, ready, vectors, at_once)
            missing = [entry for entry in missing if entry.place[1] is not None or entry.place[0] not in made_before]
        if missing:
            vectors = embedder.encode([entry.text for entry in missing], _shifted(progress, done, len(places)))
            _write(database, collection, missing, _checked(vectors, len(missing), embedder), at_once)
        embedded_now += len(missing)
        done += len(entries)
    if places:
        progress("embedding memories", done, len(places))
    return embedded_now


def _unit(vectors: Float32) -> Float32:
    """Each vector at length 1; one of zeros stays."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: Float32 = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return unit


def _shifted(progress: Progress, done: int, total: int) -> Progress:
    """The embedder's progress within a step as progress of the whole."""

    def within(_: str, count: int, __: int) -> None:
        progress("embedding memories", done + count, total)

    return within


def _write(
    database: Database, collection: Collection, entries: Sequence[Entry], vectors: Float32, at_once: int
) -> None:
    with chroma.speaking(chroma.UNWRITTEN):
        for start in range(0, len(entries), at_once):
            some = entries[start : start + at_once]
            collection.upsert(
                ids=[entry.key for entry in some],
                embeddings=vectors[start : start + at_once],
                metadatas=[_labels(entry) for entry in some],
            )
    _record(database, collection, entries)


def _record(database: Database, collection: Collection, entries: Sequence[Entry]) -> None:
    """Write down what Chroma has now: its vectors are read back, because it may round what it is given."""
    hashes = {
        place_of(name): embedded.vector_hash(vector)
        for name, vector in chroma.read_vectors(collection, [entry.key for entry in entries])
    }
    if len(hashes) != len({entry.place for entry in entries}):
        raise StoreError(f"{chroma.UNWRITTEN}: Chroma took {len(hashes)} of {len(entries)}")
    with database.transaction() as cursor:
        embedded.record(cursor, str(collection.id), entries, hashes)


def _labels(entry: Entry) -> dict[str, str | None]:
    """What filters need; an untagged memory's project is null, which removes an earlier one."""
    return {"project": entry.project, "scope": entry.scope}


def _checked(vectors: Float32, rows: int, embedder: Embedder) -> Float32:
    if vectors.shape != (rows, embedder.dimension):
        raise StoreError(f"{embedder.model_id} returned shape {vectors.shape} for {rows} texts")
    if not np.isfinite(vectors).all():
        raise StoreError(f"{embedder.model_id} returned vectors with values that are not finite")
    return np.ascontiguousarray(vectors, np.float32)


def agree(database: Database, collection: Collection) -> bool:
    """Whether as many vectors are in the collection as are said to be."""
    with database.reading() as cursor, chroma.speaking(chroma.UNREADABLE):
        return embedded.count(cursor, str(collection.id)) == collection.count()


def _reconcile(database: Database, collection: Collection) -> None:
    """When the two counts disagree (a crash, a restored backup), believe Chroma about which entries it holds."""
    if agree(database, collection):
        return
    name = str(collection.id)
    with database.reading() as cursor:
        said = {key(place): place for place in embedded.held_places(cursor, name)}
    with chroma.speaking(chroma.UNWRITTEN):
        held = set(collection.get(include=[])["ids"])
        for names in _slices(sorted(held - said.keys()), STEP_TEXTS):
            collection.delete(ids=list(names))
    with database.transaction() as cursor:
        embedded.forget(cursor, name, [said[gone] for gone in sorted(said.keys() - held)])


def _read(database: Database, places: Sequence[Place]) -> list[Entry]:
    with database.reading() as cursor:
        return entries_table.read(cursor, places)


def _by_size(entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    """Split a step whose texts are huge, so that progress and cancelling stay responsive."""
    start = chars = 0
    for position, entry in enumerate(entries):
        chars += len(entry.text)
        if chars >= STEP_CHARS:
            yield entries[start : position + 1]
            start, chars = position + 1, 0
    if start < len(entries):
        yield entries[start:]


def _slices(rows: Sequence[Row], size: int) -> Iterator[Sequence[Row]]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]
