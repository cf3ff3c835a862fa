"""LanceDB: a table in a folder, read by LanceDB's own client.

    lancedb:/FOLDER?table=TABLE   …&distance=cosine   …&user=ID   …&id=COLUMN   …&vector=COLUMN   …&text=COLUMN

A table is a series of versions, and reading one writes nothing: a snapshot reads the version that it began with, a search the latest. Each
search names how vectors are compared; an index fixes it for searches that use the index, and without one LanceDB's default is the
squared L2 distance. `distance` is for programs that ask for another.

The list `sparse` is LanceDB's full-text search (BM25), `source_hybrid` its hybrid search: reciprocal rank fusion of both, each cut to the
limit before. Both search every full-text index, as a search that names no column, unless `text` names one. Under cosine LanceDB leaves
rows with a vector of zeros out of its answers, and over an index of quantised vectors `_distance` is 2 × (1 − cosine), but 1 − cosine
while a row is not in the index: the vectors of the hits say which (`_doubled`).

Source: lancedb 0.40.0, recorded by running it; https://docs.lancedb.com/search
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from cems_workbench.errors import InputError, suggestion
from cems_workbench.formats.base.memory_fields import SHARED_WORDS
from cems_workbench.formats.base.payload import Payload
from cems_workbench.sources import collection
from cems_workbench.sources.address import Address
from cems_workbench.sources.connect import ask, check_options
from cems_workbench.sources.source import Distance, ListName, Setting, SourceError, SourceInfo, Trial, Vector

OPTIONS = ("table", "distance", "id", "vector", "text", "user")
SUFFIX = ".lance"
CREWAI_METADATA, CREWAI_OWN = "metadata_str", ("scope", "importance")
"""CrewAI's column of JSON, and those that mean something else than a memory's fields of that name (crewai 1.15.30, run)."""
ID_NAMES = ("id", "memory_id", "doc_id", "uuid", "key", "_id")
"""Names of the column with a row's id, likelier ones first."""
ROW_ID = "_rowid"
"""LanceDB's number of a row: the id of the rows of a table without such a column."""
PAGE_ROWS = 10_000
"""Rows of a page of ids."""
ENGINE_DISTANCES: Mapping[str, Distance] = {"l2": "l2", "cosine": "cosine", "dot": "ip"}
"""Distances by LanceDB's names."""
QUANTISED = ("PQ", "SQ", "RQ")
"""What the type of an index ends with whose vectors are quantised."""
REFUSED = "Invalid input"
"""How LanceDB's error about the text of a query begins."""
SCORE_COLUMNS: Mapping[ListName, str] = {"vector": "_distance", "sparse": "_score", "source_hybrid": "_relevance_score"}
FUNCTIONS = b"embedding_functions"
"""Where the schema has the functions that fill columns of vectors, as JSON."""
SETTINGS = ("nprobes", "ef", "refine_factor")
DEFAULT_NPROBES = 20
"""LanceDB's own, for a search that names none."""


def open_address(address: Address, mapping: Mapping[str, Any] | None, timeout: float) -> collection.CollectionSource:
    """Open a table. Raises InputError if it does not exist, or an option or a mapping does not fit, and SourceError."""
    check_options(address, OPTIONS)
    return collection.CollectionSource(address, mapping, timeout, LanceTable)


class LanceTable(collection.CollectionClient):
    """A table of LanceDB."""

    def __init__(self, address: Address, timeout: float) -> None:
        """Open it. Raises InputError for a folder, a table or a column that is not there, and SourceError."""
        self._address = address
        self._name = _table_name(address)
        self._stated = _stated_distance(address)
        self._table = ask(address, timeout, self._opened, self.reason)
        self._frozen: Any = None
        self._row_ids: dict[str, int] = {}
        self._id = self._id_column()
        self._vector = self._vector_column()

    def _opened(self) -> Any:
        # Its engine warns on stderr about what LanceDB itself calls (0.40.0); it reads this once, at the import.
        os.environ.setdefault("LANCEDB_LOG", "error")
        import lancedb

        return lancedb.connect(self._address.path).open_table(self._name)

    def reason(self, error: Exception) -> str | None:
        """LanceDB raises plain exceptions; the first line says what happened."""
        known = isinstance(error, RuntimeError | ValueError | OSError | KeyError | NotImplementedError)
        return (str(error).strip() or type(error).__name__).splitlines()[0] if known else None

    def describe(self) -> SourceInfo:
        table = self._latest()
        index, stats = self._vector_index()
        distance, notes = self._distance(), []
        if self._stated is None and stats is None:
            notes.append(
                "no index names a distance: LanceDB compares by l2 unless a search says otherwise, and so is it compared here; add "
                "distance=cosine to the address if its program does"
            )
        if stats is not None and not self._indexed(stats):
            compares = f"the index {index.name} compares by {stats.distance_type}"
            notes.append(f"{compares}, so a search by {distance} does not use it")
        elif stats is not None and stats.num_unindexed_rows:
            notes.append(f"{stats.num_unindexed_rows:,} rows are newer than the index; they are compared one by one")
        if stats is not None and self._quantised(stats):
            notes.append(
                f"by cosine, LanceDB's _distance over an index of quantised vectors ({stats.index_type}) is 2 × (1 − cosine), and "
                "1 − cosine while a row is not in the index: here both are read as cosines; a distance_range of its program cuts what came"
            )
        if distance == "cosine":
            notes.append("LanceDB leaves rows with a vector of zeros out of a search by cosine")
        if texts := self._text_columns():
            notes.append(
                "the list sparse is its full-text search (BM25), source_hybrid its hybrid search, which cuts both lists to the limit first"
            )
        if len(texts) > 1:
            notes.append(
                f"its full-text indexes of {' and '.join(texts)} are searched together, as by a search that names no column; add text= "
                "with one of them to the address if its program names that"
            )
        left_out = [name for name in self._schema.names if name not in (*self._columns, self._vector)]
        if left_out:
            notes.append(f"columns not read, because they are vectors or binary: {', '.join(left_out)}")
        where = self._where()
        with_vector = f"{_quoted(self._vector)} IS NOT NULL" + (f" AND {where}" if where else "")
        used = stats is not None and self._indexed(stats)
        return SourceInfo(
            kind="lancedb",
            engine=f"LanceDB {metadata.version('lancedb')}, version {table.version} of the table",
            memories=table.count_rows(where),
            vectors=table.count_rows(with_vector),
            dimension=self._schema.field(self._vector).type.list_size,
            distance=distance,
            index=f"{stats.index_type} {index.name}" if used else None,
            model=self._model(),
            lists=self.lists(),
            settings=_settings(stats.index_type) if used else (),
            notes=tuple(notes),
        )

    def lists(self) -> tuple[ListName, ...]:
        return ("vector", "sparse", "source_hybrid") if self._text_columns() else ("vector",)

    def sample(self, rows: int) -> Sequence[collection.Row]:
        self._latest()
        query = self._table.search().select(self._columns)
        if self._id == ROW_ID:
            query = query.with_row_id(True)
        if where := self._where():
            query = query.where(where)
        return self._rows(query.limit(rows).to_arrow())

    def list_rows(self, names: Sequence[str]) -> Iterator[Sequence[tuple[str, Payload]]]:
        # Its own handle stays at the version that it opened, whatever is written meanwhile.
        self._frozen, self._row_ids = self._opened(), {}
        columns = self._asked_columns(names)
        query = self._frozen.search().with_row_id(True).select(columns)
        if where := self._where():
            query = query.where(where)
        for batch in query.limit(self._frozen.count_rows(where) or 1).to_batches(PAGE_ROWS):
            numbers = batch.column(ROW_ID).to_pylist()
            page = []
            for number, payload in zip(numbers, batch.drop_columns([ROW_ID]).to_pylist(), strict=True):
                row_id = str(number if self._id == ROW_ID else payload[self._id])
                self._row_ids.setdefault(row_id, number)
                page.append((row_id, payload))
            yield page

    def take(self, ids: Sequence[str]) -> Sequence[collection.Row]:
        numbers = [self._row_ids[each] for each in ids]
        query = self._frozen.take_row_ids(numbers).with_row_id()
        return self._rows(query.select([*self._columns, self._vector]).to_arrow())

    def search(self, query: collection.ClientQuery) -> Sequence[collection.ClientHit]:
        table = self._latest()
        if query.name != "vector" and (query.trial.settings or query.trial.exact):
            raise SourceError(f"{self._address.plain}: only its vector list takes settings and an exact search")
        columns = self._asked_columns(query.names)
        score = SCORE_COLUMNS[query.name]
        if query.name == "vector":
            asked = self._tried(table.search(query.vector, vector_column_name=self._vector), query.trial)
            asked = asked.distance_type(self._engine_distance())
        elif query.name == "sparse":
            asked = table.search(query.text, query_type="fts", fts_columns=self._text_columns())
        else:
            asked = table.search(query_type="hybrid", vector_column_name=self._vector, fts_columns=self._text_columns())
            asked = asked.vector(query.vector).text(query.text).distance_type(self._engine_distance())
        scope = None
        if query.scope is not None:
            words = ", ".join(_literal(word) for word in SHARED_WORDS)
            path = _path(query.scope_field)
            shared = f"{path} IN ({words})"
            scope = shared if query.scope == "shared" else f"({path} IS NULL OR NOT ({shared}))"
        if where := self._where(scope):
            asked = asked.where(where, prefilter=True)
        if query.name != "source_hybrid":
            # The hybrid search selects the scores itself, and drops them.
            columns = [*columns, score]
        if self._id == ROW_ID:
            asked = asked.with_row_id(True)
        _, stats = self._vector_index() if query.name == "vector" else (None, None)
        vectors = [self._vector] if stats is not None and self._quantised(stats) else []
        asked = asked.select([name for name in [*columns, *vectors] if name != ROW_ID]).limit(query.rows)
        try:
            found = asked.to_list()
        except ValueError as error:
            if query.name == "vector" or not str(error).startswith(REFUSED):
                raise
            # A text wholly in double quotes is a phrase, and an index without positions has none.
            raise collection.RefusedTextError(f"LanceDB refuses this text: {self.reason(error)}") from None
        scored = collection.SCORES[self._distance()] if query.name == "vector" else float
        numbers = [float(row[score]) for row in found]
        if vectors and _doubled(numbers, [row.pop(self._vector) for row in found], query.vector):
            numbers = [number / 2 for number in numbers]
        return [
            collection.ClientHit(str(row[self._id]), {name: row[name] for name in row if name != score}, scored(number))
            for row, number in zip(found, numbers, strict=True)
        ]

    def _tried(self, asked: Any, trial: Trial) -> Any:
        """The search with the settings of a trial. Raises SourceError for one that it does not have."""
        if trial.exact:
            return asked.bypass_vector_index()
        for name, value in trial.settings.items():
            if name not in SETTINGS:
                known = ", ".join(SETTINGS)
                raise SourceError(f"{self._address.plain}: {name} is no setting of a search; it may be {known}")
            asked = getattr(asked, name)(int(value))
        return asked

    def _latest(self) -> Any:
        self._table.checkout_latest()
        return self._table

    def _rows(self, found: pa.Table) -> list[collection.Row]:
        vectors: Sequence[Vector | None] = [None] * found.num_rows
        if self._vector in found.column_names:
            vectors = _vectors(found.column(self._vector))
        kept = [name for name in found.column_names if name in self._columns]
        payloads = found.select(kept).to_pylist()
        ids = found.column(self._id).to_pylist()
        rows = []
        for row_id, payload, vector in zip(ids, payloads, vectors, strict=True):
            payload.pop(self._id, None)
            rows.append(collection.Row(str(row_id), _unpacked(payload), None, vector))
        return rows

    def _asked_columns(self, paths: Sequence[str]) -> list[str]:
        own = [] if self._id == ROW_ID else [self._id]
        return [*dict.fromkeys([*own, *(path.partition(".")[0] for path in paths)])]

    @cached_property
    def _schema(self) -> pa.Schema:
        return self._table.schema

    @cached_property
    def _columns(self) -> list[str]:
        """The columns that are read: neither vectors nor bytes."""
        tests = (_is_vector, pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
        return [field.name for field in self._schema if not any(test(field.type) for test in tests)]

    def _id_column(self) -> str:
        names = self._schema.names
        if stated := self._address.options.get("id"):
            if stated not in names:
                raise InputError(f"{self._address.plain}: the table has no column {stated}; it has {', '.join(names)}")
            return stated
        return next((name for name in ID_NAMES if name in names), ROW_ID)

    def _vector_column(self) -> str:
        found = [field.name for field in self._schema if _is_vector(field.type)]
        stated = self._address.options.get("vector")
        if stated is not None and stated not in found:
            known = ", ".join(found) or "none"
            raise InputError(f"{self._address.plain}: {stated} is no vector column; there are {known}")
        if not found:
            raise InputError(f"{self._address.plain}: the table {self._name} has no column of vectors")
        if stated is None and len(found) > 1:
            raise InputError(
                f"{self._address.plain}: several columns have vectors: add vector= with one of {', '.join(found)}"
            )
        return stated or found[0]

    def _model(self) -> str | None:
        """The model of the embedding function that fills the vectors, if the table has one."""
        try:
            functions = json.loads((self._schema.metadata or {}).get(FUNCTIONS, b"[]"))
            own = next(each for each in functions if each["vector_column"] == self._vector)
            return f"{own['model']['name']} ({own['name']})"
        except (ValueError, KeyError, TypeError, StopIteration):
            return None

    def _text_columns(self) -> list[str]:
        """The columns of the full-text indexes, or the one that the address names. Raises InputError."""
        found = sorted(each.columns[0] for each in self._table.list_indices() if each.index_type == "FTS")
        stated = self._address.options.get("text")
        if stated is not None and stated not in found:
            known = ", ".join(found) or "none"
            raise InputError(f"{self._address.plain}: {stated} has no full-text index; there are {known}")
        return found if stated is None else [stated]

    def _vector_index(self) -> tuple[Any, Any]:
        for each in self._table.list_indices():
            if self._vector in each.columns and (stats := self._table.index_stats(each.name)) is not None:
                return each, stats
        return None, None

    def _quantised(self, stats: Any) -> bool:
        """Whether a search uses an index of quantised vectors, and by cosine: whose distances may be doubled."""
        return self._distance() == "cosine" and self._indexed(stats) and str(stats.index_type).endswith(QUANTISED)

    def _indexed(self, stats: Any) -> bool:
        return ENGINE_DISTANCES.get(str(stats.distance_type)) == self._distance()

    def _distance(self) -> Distance:
        """As the address says, else as the index says, else LanceDB's default."""
        if self._stated is not None:
            return self._stated
        _, stats = self._vector_index()
        return "l2" if stats is None else ENGINE_DISTANCES.get(str(stats.distance_type), "l2")

    def _engine_distance(self) -> str:
        wanted = self._distance()
        return next(name for name, distance in ENGINE_DISTANCES.items() if distance == wanted)

    def _where(self, further: str | None = None) -> str | None:
        conditions = [further] if further else []
        if self.owner is not None:
            numbers = pa.types.is_integer(self._type_of(self.owner.field))
            values = [value for value in self.owner.values if isinstance(value, int) == numbers]
            listed = ", ".join(_literal(value) for value in values)
            conditions.append(f"{_path(self.owner.field)} IN ({listed})" if values else "FALSE")
        return " AND ".join(conditions) or None

    def _type_of(self, path: str) -> pa.DataType:
        head, _, rest = path.partition(".")
        found = self._schema.field(path if path in self._schema.names else head).type
        while rest and path not in self._schema.names:
            head, _, rest = rest.partition(".")
            found = found.field(head).type
        return found


def _unpacked(payload: dict[str, Any]) -> Payload:
    """The payload with the metadata of CrewAI, JSON as text, as an object; its scope is a path and its importance a number."""
    text = payload.get(CREWAI_METADATA)
    if not isinstance(text, str):
        return payload
    try:
        metadata = json.loads(text)
    except (ValueError, RecursionError):
        return payload
    own = {name: payload[name] for name in CREWAI_OWN if name in payload}
    rest = {name: value for name, value in payload.items() if name not in (*CREWAI_OWN, CREWAI_METADATA)}
    return rest | {"metadata": metadata, "crewai": own}


def _table_name(address: Address) -> str:
    folder = Path(address.path)
    tables = sorted(each.name.removesuffix(SUFFIX) for each in folder.glob(f"*{SUFFIX}") if each.is_dir())
    if address.host or not folder.is_dir():
        raise InputError(f"{address.plain}: no such folder; an address is lancedb:/FOLDER?table=TABLE")
    if not tables:
        raise InputError(f"{address.plain}: no folder of LanceDB: it has no TABLE{SUFFIX} in it")
    name = address.options.get("table")
    if name is None and len(tables) > 1:
        raise InputError(f"{address.plain}: several tables: add table= with one of {', '.join(tables)}")
    if name is not None and name not in tables:
        hint = suggestion(name, tables, f"; it has {', '.join(tables)}")
        raise InputError(f"{address.plain}: no table {name}{hint}")
    return name or tables[0]


def _stated_distance(address: Address) -> Distance | None:
    stated = address.options.get("distance")
    allowed = tuple(ENGINE_DISTANCES.values())
    if stated is not None and stated not in allowed:
        raise InputError(f"{address.plain}: distance is {stated!r}; it may be {', '.join(allowed)}")
    return stated


def _settings(index_type: str) -> tuple[Setting, ...]:
    """What a search may change of an approximate index. LanceDB sets `ef` by the limit unless a search does."""
    if not index_type.startswith("IVF"):
        return ()
    probes = Setting("nprobes", str(DEFAULT_NPROBES), "partitions looked at", ("1", "50", "200"))
    if "HNSW" in index_type:
        return (probes, Setting("ef", "1.5 times the limit", "nodes of the graph looked at", ("100", "400")))
    if "PQ" in index_type or "RQ" in index_type or "SQ" in index_type:
        return (probes, Setting("refine_factor", "none", "times the limit compared with whole vectors", ("5", "20")))
    return (probes,)


def _doubled(distances: Sequence[float], vectors: Sequence[Sequence[float] | None], query: Vector) -> bool:
    """Whether these distances are 2 × (1 − cosine) of their vectors, all together. A quantised vector is not the stored
    one, and the nearest by it are those that it puts too near: the ratio may be far below 2. Where they are not doubled
    they are 1 − cosine of the stored vectors, as lancedb 0.40.0 computes them again then."""
    given = np.array([each if each is not None else np.full(query.size, np.nan) for each in vectors], np.float64)
    with np.errstate(invalid="ignore"):
        far = 1.0 - given @ query / (np.linalg.norm(given, axis=-1) * np.linalg.norm(query)) if len(given) else given
    ratio = np.nansum(np.asarray(distances) * far) / max(float(np.nansum(far * far)), 1e-12)
    return bool(ratio > 1.1)


def _vectors(column: pa.ChunkedArray) -> list[Vector | None]:
    found: list[Vector | None] = []
    for chunk in column.chunks:
        size = chunk.type.list_size
        rows = iter(np.asarray(chunk.flatten(), np.float32).reshape(-1, size))
        found += [next(rows).copy() if valid else None for valid in chunk.is_valid().to_pylist()]
    return found


def _is_vector(kind: pa.DataType) -> bool:
    return bool(pa.types.is_fixed_size_list(kind) and pa.types.is_floating(kind.value_type))


def _path(path: str) -> str:
    return ".".join(_quoted(part) for part in path.split("."))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _literal(value: str | int) -> str:
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"
