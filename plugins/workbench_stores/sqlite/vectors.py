"""Vectors as SQLite files have them: BLOBs of numbers, or JSON arrays; and their distances.

    cosine distance  =  1 - a·b / (|a| |b|)        l2  =  sqrt(sum (a - b)²)        ip  =  -a·b        hamming  =  bits that differ

Numbers are little-endian, as every library writes them. int8 and bits are read as numbers: a bit is 0 or 1.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from cems_workbench.sources.source import Distance, Vector

Encoding = Literal["float32", "float64", "float16", "int8", "bit", "json"]
ENCODINGS: tuple[Encoding, ...] = get_args(Encoding)
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
    """How these values are written, by their length and numbers; None if they are no vectors.

    Without a `dimension` it is the encoding whose numbers look like an embedding's, float32 first.
    """
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
