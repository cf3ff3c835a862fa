"""Vectors as SQLite files have them, BLOBs of numbers or JSON arrays, and their distances; and tables of sqlite-vec's module vec0, read
from the tables behind them, so that its extension is not needed.

A table T keeps its vectors in chunks of `chunk_size` rows: T_chunks (chunk_id, size, validity: a bit a row, rowids: int64 each,
partitionNN), T_vector_chunksNN (vectors, by chunk), T_metadatachunksNN (values, by chunk), T_metadatatextNN (texts of more than 12 bytes,
by row), T_auxiliary (valueNN, by row), and T_rowids (rowid, id: the primary key if that is a text, chunk_id, chunk_offset).

Source: sqlite-vec 0.1.9, the tables that it writes, seen by running it; https://alexgarcia.xyz/sqlite-vec/features/vec0.html

    cosine distance  =  1 - a·b / (|a| |b|)        l2  =  sqrt(sum (a - b)²)        ip  =  -a·b        hamming  =  bits that differ

Numbers are little-endian, as every library writes them. int8 and bits are read as numbers: a bit is 0 or 1.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cems_workbench.errors import InputError
from cems_workbench.sources.source import Distance, SourceError, Vector
from workbench_stores.sqlite.file import Reader
from workbench_stores.sqlite.schema import Schema, Table, quoted

Encoding = Literal["float32", "float64", "float16", "int8", "bit", "json"]
NUMBERS: Mapping[Encoding, np.dtype[Any]] = {
    "float32": np.dtype("<f4"),
    "float64": np.dtype("<f8"),
    "float16": np.dtype("<f2"),
    "int8": np.dtype("i1"),
}
MOST = 1e4
"""Numbers of an embedding are smaller; greater ones mean another encoding."""
MOST_SPREAD = 6.0
"""Distance of the quartiles of the numbers, in powers of 2: 1.9 for a normal distribution, 15 for float16 read as float32."""
Matrix = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class VectorForm:
    """How vectors are written: encoding, numbers in each, and the distance that its system ranks by (None if nothing says it)."""

    encoding: Encoding
    dimension: int
    distance: Distance | None = None

    @property
    def bytes(self) -> int:
        """Bytes of a vector; 0 for JSON, whose length varies."""
        if self.encoding == "json":
            return 0
        return self.dimension // 8 if self.encoding == "bit" else self.dimension * NUMBERS[self.encoding].itemsize

    def __str__(self) -> str:
        if self.encoding == "json":
            return f"JSON arrays of {self.dimension} numbers"
        return f"BLOBs of {self.bytes:,} bytes, {self.encoding}, so {self.dimension} numbers"


def decoded(value: Any, form: VectorForm) -> Vector | None:
    """The vector of a value, of another dimension if it has one; None if there is none or it is not as `form` says."""
    if value is None:
        return None
    if form.encoding == "json":
        return _from_json(value)
    if not isinstance(value, bytes):
        return None
    if form.encoding == "bit":
        return np.unpackbits(np.frombuffer(value, np.uint8), bitorder="little").astype(np.float32)
    number = NUMBERS[form.encoding]
    if not value or len(value) % number.itemsize:
        return None
    return np.frombuffer(value, number).astype(np.float32)


def matrix_of(values: Sequence[Any], form: VectorForm) -> tuple[Matrix, list[int]]:
    """The vectors of `form`'s dimension as rows, and the places that they are from."""
    if form.encoding in NUMBERS:
        places, size = list(range(len(values))), form.bytes
        if set(map(type, values)) != {bytes} or set(map(len, values)) != {size}:
            places = [i for i, each in enumerate(values) if isinstance(each, bytes) and len(each) == size]
            values = [values[i] for i in places]
        raw = np.frombuffer(b"".join(values), NUMBERS[form.encoding])
        return raw.reshape(len(places), form.dimension).astype(np.float32, copy=False), places
    found = [(i, made) for i, each in enumerate(values) if (made := decoded(each, form)) is not None]
    found = [(i, made) for i, made in found if made.size == form.dimension]
    rows = np.array([made for _, made in found], np.float32).reshape(len(found), form.dimension)
    return rows, [i for i, _ in found]


def recognised(values: Iterable[Any], dimension: int | None = None) -> VectorForm | None:
    """How these values are written, by their length and numbers; None if they are no vectors. Without a `dimension` it
    is the encoding whose numbers look like an embedding's, float32 first."""
    there = [each for each in values if isinstance(each, bytes | str) and each]
    if not there:
        return None
    texts = [made for each in there if (made := _from_json(each)) is not None and made.size > 1]
    if len(texts) * 2 > len(there):
        size = _most([made.size for made in texts])
        return VectorForm("json", size) if dimension in (None, size) else None
    blobs = [each for each in there if isinstance(each, bytes)]
    if len(blobs) * 2 <= len(there):
        return None
    length = _most([len(each) for each in blobs])
    blobs = [each for each in blobs if len(each) == length]
    for encoding, number in NUMBERS.items():
        size = length // number.itemsize
        if length % number.itemsize or size < 2 or dimension not in (None, size):
            continue
        if encoding == "int8" and dimension is None:
            # Every BLOB could be one.
            continue
        if encoding == "int8" or all(_plausible(np.frombuffer(each, number)) for each in blobs):
            return VectorForm(encoding, size)
    return VectorForm("bit", dimension) if dimension is not None and length * 8 == dimension else None


def distances(vectors: Matrix, query: Vector, distance: Distance) -> NDArray[np.float64]:
    """The distance of each row to the query; NaN where there is none, as that of a zero vector by cosine."""
    rows, against = vectors.astype(np.float64), query.astype(np.float64)
    if distance == "l2":
        found: NDArray[np.float64] = np.sqrt(((rows - against) ** 2).sum(axis=1))
        return found
    products: NDArray[np.float64] = rows @ against
    if distance == "ip":
        return -products
    with np.errstate(divide="ignore", invalid="ignore"):
        cosines: NDArray[np.float64] = products / (np.linalg.norm(rows, axis=1) * np.linalg.norm(against))
    return 1.0 - cosines


def score(distance: float, kind: Distance) -> float:
    """The score of a live list: the cosine, else the negated distance; for `ip` the product."""
    return 1.0 - distance if kind == "cosine" else -distance


def _from_json(value: Any) -> Vector | None:
    if isinstance(value, bytes):
        if value[:1] != b"[":
            return None
        try:
            value = value.decode()
        except UnicodeDecodeError:
            return None
    if not isinstance(value, str) or not value.lstrip().startswith("["):
        return None
    try:
        made = np.asarray(json.loads(value), np.float32)
    except (ValueError, TypeError, RecursionError):
        return None
    return made if made.ndim == 1 and made.size else None


def _plausible(numbers: NDArray[Any]) -> bool:
    if not np.isfinite(numbers).all():
        return False
    size = np.abs(numbers.astype(np.float64))
    if not size.any():
        return True
    # Bytes of another encoding make numbers of every order of magnitude. Quartiles: some are tiny in embeddings too.
    low, high = np.percentile(np.log2(size[size > 0]), (25, 75))
    return bool(size.max() < MOST and high - low < MOST_SPREAD)


def _most(numbers: Sequence[int]) -> int:
    return max(dict.fromkeys(numbers), key=list(numbers).count)


Role = Literal["vector", "partition", "metadata", "auxiliary"]
_TYPES: Mapping[str, Encoding] = {"float": "float32", "f32": "float32", "int8": "int8", "i8": "int8", "bit": "bit"}
_DISTANCES: Mapping[str, Distance] = {"l2": "l2", "cosine": "cosine"}
_VECTOR = re.compile(r"(\w+)\s+(float|f32|int8|i8|bit)\s*\[\s*(\d+)\s*\](.*)", re.I | re.S)
_METRIC = re.compile(r"distance_metric\s*=\s*(\w+)", re.I)


@dataclass(frozen=True, slots=True)
class Vec0Column:
    """A column besides the primary key: `place` counts those of its role from 0, as the names of the tables behind do."""

    name: str
    role: Role
    type: str
    place: int
    form: VectorForm | None = None
    metric: str = ""
    """distance_metric of a vector, in lower case."""


@dataclass(frozen=True, slots=True)
class Vec0Table:
    """A vec0 table as its CREATE VIRTUAL TABLE describes it."""

    name: str
    columns: tuple[Vec0Column, ...]
    key: str = "rowid"
    """The primary key's name."""
    text_key: bool = False

    @property
    def vectors(self) -> tuple[Vec0Column, ...]:
        """The columns of vectors."""
        return tuple(column for column in self.columns if column.role == "vector")

    @property
    def others(self) -> tuple[Vec0Column, ...]:
        """The other columns besides the key."""
        return tuple(column for column in self.columns if column.role != "vector")

    def vector(self, name: str | None = None) -> Vec0Column:
        """The column of vectors of this name, or the first. Raises InputError if there is none, or its metric is not read."""
        found = next((column for column in self.vectors if name in (None, column.name)), None)
        if found is None:
            names = ", ".join(column.name for column in self.vectors) or "none"
            raise InputError(f"{self.name} has no vectors {name}; it has {names}")
        return found

    def shadow(self, ending: str) -> str:
        """The name of a table behind it as SQL."""
        return quoted(f"{self.name}_{ending}")


def parsed(table: Table) -> Vec0Table:
    """The description of a vec0 table. Raises InputError if a column is not understood."""
    columns: list[Vec0Column] = []
    counts: dict[Role, int] = {}
    key, text_key = "rowid", False
    for each in table.arguments:
        text = re.sub(r"/\*.*?\*/", " ", each, flags=re.S).strip()
        if re.match(r"\w+\s*=", text):
            continue
        role: Role = "metadata"
        form, metric = None, ""
        if found := re.fullmatch(r"(\w+)\s+(text|integer|int)\s+primary\s+key", text, re.I):
            key, text_key = found[1], found[2].lower() == "text"
            continue
        if found := _VECTOR.fullmatch(text):
            role = "vector"
            named = _METRIC.search(found[4])
            metric = named[1].lower() if named else "hamming" if found[2].lower() == "bit" else "l2"
            form = VectorForm(_TYPES[found[2].lower()], int(found[3]), _DISTANCES.get(metric))
        elif found := re.fullmatch(r"\+\s*(\w+)\s+(\w+).*", text, re.S):
            role = "auxiliary"
        elif found := re.fullmatch(r"(\w+)\s+(\w+)\s+partition\s+key", text, re.I):
            role = "partition"
        elif not (found := re.fullmatch(r"(\w+)\s+(\w+).*", text, re.S)):
            raise InputError(f"the table {table.name}: {text!r} is no column of vec0 as sqlite-vec 0.1.9 writes it")
        place = counts.get(role, 0)
        counts[role] = place + 1
        columns.append(Vec0Column(found[1], role, found[2].lower(), place, form, metric))
    return Vec0Table(table.name, tuple(columns), key, text_key)


def tables(schema: Schema) -> list[Vec0Table]:
    """Every vec0 table of a schema. Raises InputError."""
    return [parsed(table) for table in schema.virtual("vec0")]


def chunks(
    reader: Reader, table: Vec0Table, column: Vec0Column, partition: Mapping[str, Any] | None = None
) -> Iterator[tuple[NDArray[np.int64], Matrix]]:
    """(rowids, their vectors as rows) chunk by chunk, of all partitions or those with these values by column. Raises SourceError."""
    where, values = "1", {}
    for name, value in (partition or {}).items():
        place = next(each.place for each in table.columns if each.name == name and each.role == "partition")
        where += f" AND c.partition{place:02d} = :p{place}"
        values[f"p{place}"] = value
    select = f"SELECT c.chunk_id FROM {table.shadow('chunks')} AS c WHERE {where} ORDER BY 1"
    for (chunk_id,) in reader.rows(select, values):
        if (chunk := _chunk(reader, table, column, chunk_id)) is not None and chunk[0].any():
            used, rowids, vectors = chunk
            yield rowids[used], vectors[used]


def _chunk(
    reader: Reader, table: Vec0Table, column: Vec0Column, chunk_id: int
) -> tuple[NDArray[np.bool_], NDArray[np.int64], Matrix] | None:
    """(is there, rowid, vector) of every place of a chunk; None if it was removed meanwhile."""
    assert column.form is not None
    # The name of the column is rowid, which is not the rowid of that table.
    found = reader.rows(
        f"SELECT c.validity, c.rowids, v.vectors FROM {table.shadow('chunks')} AS c "
        f"JOIN {table.shadow(f'vector_chunks{column.place:02d}')} AS v ON v.rowid = c.chunk_id WHERE c.chunk_id = ?",
        (chunk_id,),
    )
    if not found:
        return None
    validity, rowids, vectors = found[0]
    numbers = np.frombuffer(rowids, "<i8").astype(np.int64)
    width = column.form.bytes
    if len(vectors) != numbers.size * width or len(validity) * 8 < numbers.size:
        wrong = f"chunk {chunk_id} of {table.name} has not the size of its description"
        raise SourceError(f"{reader.plain}: {wrong}; is it damaged?")
    used = np.unpackbits(np.frombuffer(validity, np.uint8), bitorder="little")[: numbers.size].astype(bool)
    rows, _ = matrix_of([vectors[i : i + width] for i in range(0, len(vectors), width)], column.form)
    return used, numbers, rows


@dataclass
class Vec0Vectors:
    """Vectors by rowid; the latest chunks are kept, because neighbours usually are in the same one."""

    reader: Reader
    table: Vec0Table
    column: Vec0Column
    most: int = 4
    _kept: dict[int, tuple[NDArray[np.bool_], NDArray[np.int64], Matrix] | None] = field(default_factory=dict)

    def take(self, rowids: Sequence[int]) -> dict[int, NDArray[np.float32]]:
        """The vectors of these rows; rows without one are missing. Raises SourceError."""
        places: dict[int, list[tuple[int, int]]] = {}
        rows = _by(self.reader, self.table, "rowid, chunk_id, chunk_offset", rowids)
        for rowid, chunk_id, offset in (row for row in rows if row[1] is not None):
            places.setdefault(chunk_id, []).append((rowid, offset))
        found: dict[int, NDArray[np.float32]] = {}
        for chunk_id in sorted(places):
            if chunk_id not in self._kept:
                while len(self._kept) >= self.most:
                    self._kept.pop(next(iter(self._kept)))
                self._kept[chunk_id] = _chunk(self.reader, self.table, self.column, chunk_id)
            chunk = self._kept[chunk_id]
            if chunk is not None:
                used, numbers, vectors = chunk
                for rowid, offset in places[chunk_id]:
                    # Another place may have been given to the row between two steps.
                    if offset < numbers.size and used[offset] and numbers[offset] == rowid:
                        found[rowid] = vectors[offset]
        if self.reader.stepped:
            self._kept.clear()
        return found


def rowids_of(reader: Reader, table: Vec0Table, ids: Sequence[str]) -> dict[str, int]:
    """Rowids by primary key of a table whose key is a text. Raises SourceError."""
    return dict(_by(reader, table, "id, rowid", ids))


def ids_of(reader: Reader, table: Vec0Table, rowids: Sequence[int]) -> dict[int, str]:
    """Primary keys, as text, by rowid. Raises SourceError."""
    if not table.text_key:
        return {rowid: str(rowid) for rowid in rowids}
    return dict(_by(reader, table, "rowid, id", rowids))


def _by(reader: Reader, table: Vec0Table, columns: str, values: Sequence[Any]) -> list[Any]:
    """These columns of the rows that exist, of which the first has one of the values."""
    key, source = columns.partition(",")[0], table.shadow("rowids")
    select = f"SELECT {columns} FROM {source} WHERE {key} IN (SELECT value FROM json_each(?))"
    return reader.rows(select, (json.dumps(list(values)),))
