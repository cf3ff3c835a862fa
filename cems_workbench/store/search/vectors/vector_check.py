"""Vector verification: compares the vectors in Chroma, all or a sample, with their hashes in the store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cems_workbench.errors import StoreError
from cems_workbench.store.database import Database
from cems_workbench.store.search.entries import EntryId, key_of, parse_key
from cems_workbench.store.search.vectors import chroma, embedded
from cems_workbench.store.search.vectors.write_buffer import BufferedCollection

if TYPE_CHECKING:
    from chromadb.api.models.Collection import Collection

SAMPLE_SIZE = 64


@dataclass(frozen=True, slots=True)
class VectorCheck:
    """The result: the problem (empty: none), lost or changed entries, unknown keys, and whether Chroma could not be read at all."""

    problem: str = ""
    lost: tuple[EntryId, ...] = ()
    unknown: tuple[str, ...] = ()
    unreadable: bool = False


def verify(database: Database, collection: Collection, whole: bool) -> VectorCheck:
    """Compare a collection with the store's records: every vector if `whole`, else the count and a sample.

    Pending changes of an interrupted refresh and concurrent writes of other processes do not count as damage.
    """
    name = str(collection.id)
    with database.reading() as cursor:
        if isinstance(collection, BufferedCollection):
            collection.reload(cursor)  # the buffer and the hashes from one transaction
        number = embedded.count(cursor, name)
        recorded = (
            embedded.recorded_hashes(cursor, name) if whole else embedded.sample_hashes(cursor, name, SAMPLE_SIZE)
        )
    lost: list[EntryId] = []
    unknown: list[str] = []
    unhashed: dict[EntryId, int] = {}
    seen: set[EntryId] = set()
    try:
        with chroma.store_errors(chroma.READ_FAILED):
            count = collection.count()
        for entry, vector in chroma.read_vectors(
            collection, None if whole else [key_of(entry_id) for entry_id in recorded]
        ):
            entry_id = _entry_id(entry)
            if entry_id is None or entry_id not in recorded:
                unknown.append(entry)
                continue
            seen.add(entry_id)
            found = embedded.vector_hash(vector)
            if recorded[entry_id] is None:
                unhashed[entry_id] = found
            elif recorded[entry_id] != found:
                lost.append(entry_id)
    except StoreError as error:
        return VectorCheck(str(error), unreadable=True)
    lost += [entry_id for entry_id in recorded if entry_id not in seen]
    if lost or unknown or count != number:
        with database.reading() as cursor:
            waiting, held = embedded.pending(cursor, name), embedded.recorded_hashes(cursor, name)
        unsettled = {*waiting.embed, *waiting.remove}
        # Another process may have written in the meantime, so only entries whose record is unchanged count.
        lost = [
            entry_id
            for entry_id in lost
            if entry_id not in unsettled and entry_id in held and held[entry_id] == recorded[entry_id]
        ]
        unknown = [entry for entry in unknown if _entry_id(entry) not in held and _entry_id(entry) not in unsettled]
        if not whole and (lost or (count not in (number, len(held)) and not unsettled)):
            return verify(database, collection, True)
    if unhashed and not lost:
        with database.transaction() as cursor:
            embedded.record_hashes(cursor, name, unhashed)
    return VectorCheck(_summary(len(lost), len(unknown), len(recorded)), tuple(lost), tuple(unknown))


def _entry_id(entry: str) -> EntryId | None:
    try:
        return parse_key(entry)
    except ValueError:
        return None


def _summary(lost: int, unknown: int, total: int) -> str:
    parts = [f"{lost} of {total} vectors are missing or changed"] if lost else []
    parts += [f"{unknown} vectors do not belong to this store"] if unknown else []
    return ", and ".join(parts)
