"""The layout of a SQLite file, by its tables or as a mapping or `?table=` says; and a file whose vectors are in a Chroma folder beside it.

Of the latter memories are of the file, chunks with vectors and the vector list of Chroma. The two are not of one moment: a memory's marker
has the ids of its texts in Chroma, so a text that is added there makes the memory count as changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cems_workbench.errors import InputError, suggestion
from cems_workbench.formats.base.memory_fields import OPTIONAL_FIELDS
from cems_workbench.records import DELETED_MARK, Relation, place_of_chunk
from cems_workbench.sources import source as base
from cems_workbench.sources.address import Address, parse
from cems_workbench.sources.collection import CollectionSource, Row
from cems_workbench.sources.connect import check_options
from workbench_stores.sqlite import table
from workbench_stores.sqlite.file import DatabaseFile, Reader
from workbench_stores.sqlite.layout import Layout, SqliteLayout
from workbench_stores.sqlite.libraries import LIBRARIES
from workbench_stores.sqlite.schema import Schema, read_schema
from workbench_stores.sqlite.source import SqliteSource
from workbench_stores.sqlite.tools import TOOLS

ROWS_PER_READ = 1_000
NO_VECTORS = "no vectors"


def opened_beside(collection: str, address: Address, timeout: float) -> CollectionSource | str:
    """The collection in the Chroma folder of a file; why there is none, as a sentence. Raises InputError for a `?chroma=` that is wrong."""
    from cems_workbench.sources.chroma import open_address

    given = address.options.get("chroma")
    folder = Path(given or Path(address.path).parent / "chroma")
    try:
        # No option of the file's address is one of Chroma's.
        return open_address(parse(f"chroma:{quote(str(folder.resolve()))}/{collection}", {}), None, timeout)
    except InputError as error:
        if given is not None:
            raise
        return f"its vectors are not read: {error}; ?chroma=FOLDER says where they are"


@dataclass(frozen=True, slots=True)
class JoinedSource:
    """A file whose vectors are in a Chroma folder."""

    source: base.Source
    chroma: CollectionSource
    place: Callable[[str], tuple[str, int] | None]

    @property
    def address(self) -> str:
        return self.source.address

    def probe(self) -> base.SourceInfo:
        info, found = self.source.probe(), self.chroma.probe()
        missing = [each for each in info.missing if not each.startswith(NO_VECTORS)]
        note = f"vectors and the vector list are those of {self.chroma.address}, of which a copy is read"
        names = ("vectors", "dimension", "distance", "index", "model", "settings")
        theirs: dict[str, Any] = {name: getattr(found, name) for name in names}
        return replace(
            info,
            **theirs,
            engine=f"{info.engine}; {found.engine}",
            lists=(*found.lists, *info.lists),
            missing=tuple(missing),
            notes=(*info.notes, note),
        )

    @contextmanager
    def snapshot(self) -> Iterator[base.Snapshot]:
        rows: dict[str, list[tuple[int, str]]] = {}
        for page in self.chroma.row_ids():
            for row_id in page:
                if (found := self.place(row_id)) is not None:
                    rows.setdefault(found[0], []).append((found[1], row_id))
        with self.source.snapshot() as snapshot:
            yield _JoinedSnapshot(snapshot, self.chroma, {memory: sorted(each) for memory, each in rows.items()})

    def search(self, query: base.EngineQuery, trial: base.Trial = base.NO_TRIAL) -> tuple[base.EngineList, ...]:
        own: dict[base.ListName, int] = {name: rows for name, rows in query.depths.items() if name != "vector"}
        found = []
        # A row of Chroma has no scope.
        if rows := query.depths.get("vector", 0):
            for each in self.chroma.search(replace(query, depths={"vector": rows}), trial):
                hits = ((self.place(hit.memory_id), hit.score) for hit in each.hits)
                kept = tuple(base.EngineHit(at[0], score, at[1]) for at, score in hits if at is not None)
                found.append(replace(each, hits=kept))
        # Settings of a trial are Chroma's.
        return (*found, *(self.source.search(replace(query, depths=own)) if own else ()))

    def close(self) -> None:
        self.chroma.close()
        self.source.close()


@dataclass
class _JoinedSnapshot:
    snapshot: base.Snapshot
    chroma: CollectionSource
    rows: Mapping[str, Sequence[tuple[int, str]]]
    """(number, id in Chroma) of a memory's texts."""
    _markers: dict[str, str] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return self.snapshot.total

    def relations(self) -> Iterator[Sequence[Relation]]:
        return self.snapshot.relations()

    def batches(self, changed: base.Changed) -> Iterator[base.Batch]:
        def whole(ids: Sequence[str], markers: Sequence[str]) -> Sequence[str]:
            self._markers = {id: self._marker(id, marker) for id, marker in zip(ids, markers, strict=True)}
            return changed(ids, list(self._markers.values()))

        for batch in self.snapshot.batches(whole):
            wanted = [row_id for each in batch.taken for _, row_id in self.rows.get(each.memory.id, ())]
            found: dict[str, Row] = {}
            for start in range(0, len(wanted), ROWS_PER_READ):
                found |= {row.id: row for row in self.chroma.rows(wanted[start : start + ROWS_PER_READ])}
            problems = list(batch.problems)
            taken = [self._with_chunks(each, found, problems) for each in batch.taken]
            yield replace(batch, taken=taken, problems=problems)

    def _marker(self, memory_id: str, marker: str) -> str:
        deleted = marker.startswith(DELETED_MARK)
        said = f"{marker} {self.rows.get(memory_id, ())}"
        return (DELETED_MARK if deleted else "") + hashlib.blake2b(said.encode(), digest_size=16).hexdigest()

    def _with_chunks(
        self, taken: base.TakenMemory, found: Mapping[str, Row], problems: list[base.RowProblem]
    ) -> base.TakenMemory:
        chunks: list[base.TakenChunk] = []
        content = taken.memory.content
        for number, row_id in self.rows.get(taken.memory.id, ()):
            row = found.get(row_id)
            if row is not None and row.text:
                chunks.append(base.TakenChunk(number, row.text, row.vector, place_of_chunk(content, row.text, 0)))
        if not chunks:
            reason = "is missing: the row can be read and not found by its vector"
            problems.append(base.RowProblem(taken.memory.id, "vector", reason))
        return replace(taken, marker=self._markers[taken.memory.id], chunks=tuple(chunks))


LAYOUTS = (*TOOLS, *LIBRARIES)
OPTIONS = ("table", "user")
OTHER_KINDS = (("embeddings_queue", ("seq_id", "topic"), "chroma"), ("points", ("id", "point"), "qdrant"))
"""Tables of stores that another kind reads whole, by their folder."""


def open_address(address: Address, mapping: Mapping[str, Any] | None, timeout: float) -> base.Source:
    """Open a file: the table of a mapping or of `table=`, else a known layout, else the only table that looks like
    memories. Raises InputError for a file, an option or a mapping that does not fit, and SourceError."""
    file = DatabaseFile(address, timeout)
    try:
        with file.reading() as reader:
            schema = read_schema(reader)
            layout_of(reader, schema, address, mapping)
            known = known_layout(schema, address, mapping)
        chroma = opened_beside(known.beside, address, timeout) if known is not None and known.beside else ""

        def layout(reader: Reader) -> Layout:
            made = layout_of(reader, read_schema(reader), address, mapping)
            return replace(made, missing=(*made.missing, chroma)) if isinstance(chroma, str) and chroma else made

        source = SqliteSource(file, layout)
        return source if known is None or isinstance(chroma, str) else JoinedSource(source, chroma, known.place)
    except BaseException:
        file.close()
        raise


def known_layout(schema: Schema, address: Address, mapping: Mapping[str, Any] | None) -> SqliteLayout | None:
    """The layout that is known by the file's tables; None if a mapping or `table=` says another."""
    if "table" in address.options or "table" in (mapping or {}):
        return None
    return next((each for each in LAYOUTS if each.recognises(schema)), None)


def layout_of(reader: Reader, schema: Schema, address: Address, mapping: Mapping[str, Any] | None) -> Layout:
    """The layout. Raises InputError and SourceError."""
    known = known_layout(schema, address, mapping)
    check_options(address, (*OPTIONS, *(known.options if known is not None else ())))
    if known is not None:
        return corrected(known.read(reader, schema, address), mapping or {}, known.title)
    if mapping is not None and not table.corrects(mapping):
        return table.mapped(reader, schema, mapping)
    for name, columns, kind in OTHER_KINDS:
        if "table" not in address.options and schema.has(name, columns):
            raise InputError(f"{reader.plain}: is part of a folder of {kind}; connect to that folder, {kind}:/FOLDER")
    return table.guessed(reader, schema, address.options.get("table"), mapping)


def corrected(layout: Layout, mapping: Mapping[str, Any], title: str) -> Layout:
    """A known layout with fields from other columns, or from keys of those that hold JSON. Raises InputError for what is not there."""
    columns = dict(layout.columns)
    for name, path in mapping.items():
        if name not in OPTIONAL_FIELDS:
            hint = suggestion(str(name), OPTIONAL_FIELDS, ".")
            raise InputError(
                f"mapping: {name} is no field of a memory of {title}{hint} It may be one of "
                f"{', '.join(OPTIONAL_FIELDS)}; with table, id and text a mapping describes any other table"
            )
        head = str(path).partition(".")[0]
        if head in layout.more and head not in columns:
            columns[head] = layout.more[head]
        if path not in columns and head not in layout.json:
            known = ", ".join(dict.fromkeys([*layout.columns, *layout.more]))
            raise InputError(f"mapping: {name}: {title} has no column {path!r}; it may be one of {known}")
    unread = tuple(name for name in layout.unread if name not in columns)
    names = replace(layout.names, given={**layout.names.given, **mapping})
    return replace(layout, columns=columns, names=names, unread=unread)
