"""Are the vectors in Chroma those that were written: each is compared with its hash in the store, or some where they are many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cems_workbench.errors import StoreError
from cems_workbench.store.database import Database
from cems_workbench.store.search.entries import Place, key, place_of
from cems_workbench.store.search.vectors import chroma, embedded
from cems_workbench.store.search.vectors.write_buffer import WaitingCollection

if TYPE_CHECKING:
    from chromadb.api.models.Collection import Collection

SPOT_CHECKS = 64


@dataclass(frozen=True, slots=True)
class VectorProof:
    """What is wrong with a collection, in words, empty when nothing is; which vectors are not as they were written; what nobody wrote.

    `unreadable`: Chroma cannot even say.
    """

    problem: str = ""
    lost: tuple[Place, ...] = ()
    strangers: tuple[str, ...] = ()
    unreadable: bool = False


def prove(database: Database, collection: Collection, whole: bool) -> VectorProof:
    """Compare a collection with what the store says was written to it: every vector when `whole`, else their number and some.

    What a refresh that was broken off has left to do is no damage, nor is what another process writes meanwhile.
    """
    name = str(collection.id)
    with database.reading() as cursor:
        if isinstance(collection, WaitingCollection):
            collection.look_again(cursor)  # what waits, and its hashes, of one moment
        number = embedded.count(cursor, name)
        said = embedded.held_hashes(cursor, name) if whole else embedded.spot_checks(cursor, name, SPOT_CHECKS)
    lost: list[Place] = []
    strangers: list[str] = []
    unknown: dict[Place, int] = {}
    seen: set[Place] = set()
    try:
        with chroma.speaking(chroma.UNREADABLE):
            count = collection.count()
        for entry, vector in chroma.read_vectors(collection, None if whole else [key(place) for place in said]):
            place = _place(entry)
            if place is None or place not in said:
                strangers.append(entry)
                continue
            seen.add(place)
            found = embedded.vector_hash(vector)
            if said[place] is None:
                unknown[place] = found
            elif said[place] != found:
                lost.append(place)
    except StoreError as error:
        return VectorProof(str(error), unreadable=True)
    lost += [place for place in said if place not in seen]
    if lost or strangers or count != number:
        with database.reading() as cursor:
            waiting, held = embedded.pending(cursor, name), embedded.held_hashes(cursor, name)
        unsettled = {*waiting.embed, *waiting.remove}
        # Another process may have written meanwhile: what it noted since is as it says now.
        lost = [place for place in lost if place not in unsettled and place in held and held[place] == said[place]]
        strangers = [entry for entry in strangers if _place(entry) not in held and _place(entry) not in unsettled]
        if not whole and (lost or (count not in (number, len(held)) and not unsettled)):
            return prove(database, collection, True)
    if unknown and not lost:
        with database.transaction() as cursor:
            embedded.adopt(cursor, name, unknown)
    return VectorProof(_words(len(lost), len(strangers), len(said)), tuple(lost), tuple(strangers))


def _place(entry: str) -> Place | None:
    try:
        return place_of(entry)
    except ValueError:
        return None


def _words(lost: int, strangers: int, said: int) -> str:
    parts = [f"{lost} of {said} vectors are missing or not as they were written"] if lost else []
    parts += [f"{strangers} vectors are not of this store"] if strangers else []
    return ", and ".join(parts)
