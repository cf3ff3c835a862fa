"""A SQLite file whose vectors are in a Chroma folder beside it: memories are of the file, chunks with vectors and the vector list of
Chroma.

The two are not of one moment. A memory's marker has the ids of its texts in Chroma, so a text that is added there makes the memory
count as changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote

from cems_workbench.errors import InputError
from cems_workbench.records import DELETED_MARK, Relation, place_of_chunk
from cems_workbench.sources.address import Address, parse
from cems_workbench.sources.collection import CollectionSource, Row
from cems_workbench.sources.source import (
    NO_TRIAL,
    Batch,
    Changed,
    EngineHit,
    EngineList,
    EngineQuery,
    ListName,
    RowProblem,
    Snapshot,
    Source,
    SourceInfo,
    TakenChunk,
    TakenMemory,
    Trial,
)

ROWS_PER_READ = 1_000
NO_VECTORS = "no vectors"


@dataclass(frozen=True, slots=True)
class ChromaBeside:
    """Where the Chroma folder of a file is: `folder` beside it, or the address's `option`. `place` is (memory, number) of a row's id."""

    collection: str
    folder: str
    option: str
    place: Callable[[str], tuple[str, int] | None]

    def opened(self, address: Address, timeout: float) -> CollectionSource | str:
        """The folder of a file; why there is none, as a sentence. Raises InputError for an `option` that is wrong."""
        from cems_workbench.sources.chroma import open_address

        given = address.options.get(self.option)
        folder = Path(given or Path(address.path).parent / self.folder)
        try:
            # No option of the file's address is one of Chroma's.
            return open_address(parse(f"chroma:{quote(str(folder.resolve()))}/{self.collection}", {}), None, timeout)
        except InputError as error:
            if given is not None:
                raise
            return f"its vectors are not read: {error}; ?{self.option}=FOLDER says where they are"


@dataclass(frozen=True, slots=True)
class JoinedSource:
    """A file whose vectors are in a Chroma folder."""

    source: Source
    chroma: CollectionSource
    place: Callable[[str], tuple[str, int] | None]

    @property
    def address(self) -> str:
        return self.source.address

    def probe(self) -> SourceInfo:
        info, found = self.source.probe(), self.chroma.probe()
        missing = [each for each in info.missing if not each.startswith(NO_VECTORS)]
        return replace(
            info,
            engine=f"{info.engine}; {found.engine}",
            vectors=found.vectors,
            dimension=found.dimension,
            distance=found.distance,
            index=found.index,
            model=found.model,
            lists=(*found.lists, *info.lists),
            settings=found.settings,
            missing=tuple(missing),
            notes=(
                *info.notes,
                f"vectors and the vector list are those of {self.chroma.address}, of which a copy is read",
            ),
        )

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        rows: dict[str, list[tuple[int, str]]] = {}
        for page in self.chroma.row_ids():
            for row_id in page:
                if (found := self.place(row_id)) is not None:
                    rows.setdefault(found[0], []).append((found[1], row_id))
        with self.source.snapshot() as snapshot:
            yield _JoinedSnapshot(snapshot, self.chroma, {memory: sorted(each) for memory, each in rows.items()})

    def search(self, query: EngineQuery, trial: Trial = NO_TRIAL) -> tuple[EngineList, ...]:
        own: dict[ListName, int] = {name: rows for name, rows in query.depths.items() if name != "vector"}
        found = []
        # A row of Chroma has no scope.
        if rows := query.depths.get("vector", 0):
            for each in self.chroma.search(replace(query, depths={"vector": rows}), trial):
                hits = ((self.place(hit.memory_id), hit.score) for hit in each.hits)
                kept = tuple(EngineHit(at[0], score, at[1]) for at, score in hits if at is not None)
                found.append(replace(each, hits=kept))
        # Settings of a trial are Chroma's.
        return (*found, *(self.source.search(replace(query, depths=own)) if own else ()))

    def close(self) -> None:
        self.chroma.close()
        self.source.close()


@dataclass
class _JoinedSnapshot:
    snapshot: Snapshot
    chroma: CollectionSource
    rows: Mapping[str, Sequence[tuple[int, str]]]
    """(number, id in Chroma) of a memory's texts."""
    _markers: dict[str, str] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return self.snapshot.total

    def relations(self) -> Iterator[Sequence[Relation]]:
        return self.snapshot.relations()

    def batches(self, changed: Changed) -> Iterator[Batch]:
        def whole(ids: Sequence[str], markers: Sequence[str]) -> Sequence[str]:
            self._markers = {id: self._marker(id, marker) for id, marker in zip(ids, markers, strict=True)}
            return changed(ids, list(self._markers.values()))

        for batch in self.snapshot.batches(whole):
            wanted = [row_id for each in batch.taken for _, row_id in self.rows.get(each.memory.id, ())]
            found: dict[str, Row] = {}
            for start in range(0, len(wanted), ROWS_PER_READ):
                found |= {row.id: row for row in self.chroma.rows(wanted[start : start + ROWS_PER_READ])}
            problems = list(batch.problems)
            yield replace(
                batch, taken=[self._with_chunks(each, found, problems) for each in batch.taken], problems=problems
            )

    def _marker(self, memory_id: str, marker: str) -> str:
        deleted = marker.startswith(DELETED_MARK)
        said = f"{marker} {self.rows.get(memory_id, ())}"
        return (DELETED_MARK if deleted else "") + hashlib.blake2b(said.encode(), digest_size=16).hexdigest()

    def _with_chunks(self, taken: TakenMemory, found: Mapping[str, Row], problems: list[RowProblem]) -> TakenMemory:
        chunks: list[TakenChunk] = []
        content = taken.memory.content
        for number, row_id in self.rows.get(taken.memory.id, ()):
            row = found.get(row_id)
            if row is not None and row.text:
                chunks.append(TakenChunk(number, row.text, row.vector, place_of_chunk(content, row.text, 0)))
        if not chunks:
            problems.append(
                RowProblem(taken.memory.id, "vector", "is missing: the row can be read and not found by its vector")
            )
        return replace(taken, marker=self._markers[taken.memory.id], chunks=tuple(chunks))
