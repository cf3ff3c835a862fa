"""Where PostgreSQL puts the rows of CEMS's tables: the physical order of a table that one connection filled row by row.

`ts_rank` ties often, and PostgreSQL leaves ties in the order in which its sort met the rows, which is the order of the table's
pages. That differs from the order of insertion: a row that does not fit the page in use goes to another, and later, smaller rows
fill the holes. Both follow from the lengths of the rows, which are computed here to the byte:

1. A row is a header of 24 bytes (32 where a column is null) and its columns, each at its alignment. A value of variable length
   has a header of 1 byte up to 126 bytes, else one of 4 at a multiple of 4.
2. A row over 2,032 bytes is shortened: the largest value is compressed (`pglz`; vectors never are), or leaves the row at once
   where it alone is over the target; then the largest values leave until the row fits. One that left leaves 18 bytes behind.
3. A row goes to the page in use. Where it does not fit, the page's free space is noted in units of 32 bytes in the free space
   map, and the map names the next page, circling through the table; where it names none the table grows by a page.

Rows of a table that was updated, deleted from or vacuumed lie elsewhere; a connected source reads its `ctid` instead.

Compression is pglz with its default strategy. A value becomes items of one bit each, eight bits before the items they announce: a literal
byte, or a reference of 2 bytes (3 from a length of 18 on) to the same bytes less than 4,095 before. At each place the earlier places with
an equal hash of four bytes are visited, latest first, and the longest match counts; the search ends early when a match is good enough,
where "good enough" starts at 128 bytes and falls by a tenth with each place visited. Every byte enters the history, inside a reference
too, so the chains of equal hashes depend on the value alone and numpy finds them beforehand. A value stays uncompressed if it has fewer
than 32 bytes, if less than a quarter is saved, or if no reference appears in the first 1,024 bytes of output.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

MIN_VALUE_BYTES = 32
MAX_SIZE_PERCENT = 75
FIRST_REFERENCE_BYTES = 1024
WINDOW_BYTES = 4095
MAX_MATCH_BYTES = 273
GOOD_MATCH = 128
GOOD_MATCH_DROP_PERCENT = 10


def compressed_size(value: bytes, enough: int | None = None) -> int | None:
    """Bytes of the compressed value without a header, or None if it stays uncompressed.

    With `enough` the work ends once more than that many bytes are out; what is returned is then larger than `enough`, but not the size.
    """
    end = len(value)
    most = end * MAX_SIZE_PERCENT // 100
    if end < MIN_VALUE_BYTES:
        return None
    earlier, repeats = _chains(value)
    place = written = items = 0
    found = False
    while True:
        literals = repeats[place] - place
        written += literals
        items += literals
        place += literals
        size = written + (items + 7) // 8
        # Here the server gives up and keeps the value uncompressed.
        if size >= most or (not found and size >= FIRST_REFERENCE_BYTES):
            return None
        if place == end:
            return size
        if enough is not None and size > enough:
            return size
        length = _longest_match(value, place, earlier)
        items += 1
        # A reference takes 2 bytes, so shorter matches stay literal.
        if length > 2:
            written += 3 if length > 17 else 2
            place += length
            found = True
        else:
            written += 1
            place += 1


def _chains(value: bytes) -> tuple[list[int], list[int]]:
    """For each place the latest earlier one of equal hash (-1: none), and the first place from it on that has one in reach.

    The second list has one entry more, so that it may be asked at the end of the value.
    """
    end = len(value)
    slots = 512 if end < 128 else 1024 if end < 256 else 2048 if end < 512 else 4096 if end < 1024 else 8192
    # C's char has a sign, but not on ARM: there other than ASCII hashes otherwise.
    letters = np.frombuffer(value, dtype=np.int8).astype(np.int32)
    hashes = letters.copy()  # fewer than four bytes are left: the first stands for all
    hashes[:-3] = (letters[:-3] << 6) ^ (letters[1:-2] << 4) ^ (letters[2:-1] << 2) ^ letters[3:]
    hashes = (hashes & (slots - 1)).astype(np.int16)  # numpy sorts 16 bits by radix
    by_hash = np.argsort(hashes, kind="stable")
    earlier = np.full(end, -1)
    same = hashes[by_hash[1:]] == hashes[by_hash[:-1]]
    earlier[by_hash[1:][same]] = by_hash[:-1][same]
    places = np.arange(end)
    in_reach = (earlier >= 0) & (places - earlier < WINDOW_BYTES)
    repeats = np.minimum.accumulate(np.where(in_reach, places, end)[::-1])[::-1]
    return earlier.tolist(), [*repeats.tolist(), end]


def _longest_match(value: bytes, place: int, earlier: list[int]) -> int:
    length, good = 0, GOOD_MATCH
    room = min(MAX_MATCH_BYTES, len(value) - place)
    candidate = earlier[place]
    while candidate >= 0 and place - candidate < WINDOW_BYTES:
        if length < room and value[candidate + length] == value[place + length]:  # a longer match agrees here too
            agreed = 0
            while agreed < room and value[candidate + agreed] == value[place + agreed]:
                agreed += 1
            length = max(length, agreed)
        candidate = earlier[candidate]
        if candidate >= 0:
            if length >= good:
                break
            good -= good * GOOD_MATCH_DROP_PERCENT // 100
    return length


MAX_ROWS = 20_000
"""Beyond it the order of insertion is returned: computing the other takes about a millisecond a row."""

PAGE_BYTES = 8192
PAGE_HEADER = 24
LINE_POINTER = 4
ROW_HEADER = 24
MAX_ROW_BYTES = 2032
"""A quarter of a page, rounded: a longer row is shortened, and to this length."""

MAX_SHORT_VALUE_BYTES = 126
COMPRESSED_HEADER = 8
OUT_OF_LINE_BYTES = 18
MIN_TOAST_BYTES = 24
"""Values of at most this many bytes stay in the row: a pointer would not be shorter."""

MAP_UNIT = 32
MAP_LEAVES = 4069
MAP_INNER = 4095


@dataclass(frozen=True)
class HeapRow:
    """A row of `memory_chunks`: what decides its length."""

    content: str
    dimension: int
    """Of the embedding."""
    lexemes: Mapping[str, Sequence[int]]
    """Of content_tsv, with positions from 1 as PostgreSQL keeps them: ascending, at most 255 a lexeme and none above 16,383."""


@dataclass(frozen=True)
class DocumentRow:
    """A row of `memory_documents` that is neither deleted nor a team's: what decides its length."""

    content: str
    content_hash: str
    scope: str
    category: str
    tags: Sequence[str] = ()
    title: str | None = None
    source: str | None = None
    source_ref: str | None = None
    shown: bool = False
    """Whether `last_shown_at` has a value."""


def heap_order(rows: Sequence[HeapRow | DocumentRow]) -> list[int]:
    """Indices of the rows in table scan order, for rows of one table in insertion order.

    More than MAX_ROWS rows keep the order of insertion.
    """
    if len(rows) > MAX_ROWS:
        return list(range(len(rows)))
    return order_of_lengths([row_length(row) for row in rows])


def order_of_lengths(lengths: Iterable[int]) -> list[int]:
    """The same for rows whose lengths are known: some microseconds a row, so any number of them."""
    pages = _Pages()
    for index, length in enumerate(lengths):
        pages.insert(index, length)
    return [index for page in pages.rows for index in page]


def row_length(row: HeapRow | DocumentRow) -> int:
    """Bytes of a row on its page, after compression and with long values moved out of line."""
    columns = _columns(row)
    header = ROW_HEADER + (8 if None in columns else 0)
    present = [column for column in columns if column is not None]
    most = MAX_ROW_BYTES - header
    if _length(present) > most:
        _shorten(present, most)
    return header + _length(present)


def tsvector_bytes(lexemes: Mapping[str, Sequence[int]]) -> bytes:
    """A tsvector as PostgreSQL stores it, without its header: their number, 4 bytes a lexeme (whether it has positions, length,
    place), then the lexemes in the order of their bytes, each with its positions (their number and 2 bytes each, at an even place)."""
    entries = bytearray()
    texts = bytearray()
    for lexeme, positions in sorted((lexeme.encode(), positions) for lexeme, positions in lexemes.items()):
        entry = (len(texts) << 12) | (len(lexeme) << 1) | bool(positions)
        entries += entry.to_bytes(4, "little")
        texts += lexeme
        if positions:
            texts += bytes(len(texts) % 2)
            for number in (len(positions), *positions):
                texts += number.to_bytes(2, "little")
    return len(lexemes).to_bytes(4, "little") + bytes(entries) + bytes(texts)


def text_array_bytes(texts: Sequence[str]) -> bytes:
    """A text[] as PostgreSQL stores it, without its header: dimensions, no nulls, the type's number; then size and first index,
    and the texts, each with a header of 4 bytes and filled up to a multiple of 4."""
    text_type = 25
    numbers = (1, 0, text_type, len(texts), 1) if texts else (0, 0, text_type)
    stored = bytearray().join(number.to_bytes(4, "little") for number in numbers)
    for text in texts:
        value = text.encode()
        stored += ((len(value) + 4) << 2).to_bytes(4, "little") + value + bytes(-len(value) % 4)
    return bytes(stored)


class _Fixed(NamedTuple):
    """A column of fixed length."""

    size: int
    alignment: int


class _Value:
    """A value of variable length in a row: plain, compressed or out of line."""

    def __init__(self, value: bytes, compressible: bool = True) -> None:
        short = len(value) <= MAX_SHORT_VALUE_BYTES
        self.size = len(value) + (1 if short else 4)
        self.alignment = 1 if short else 4
        self.out_of_line = False
        self.tried = False
        """Whether compression was tried or is out of the question."""
        self._value = value
        self._compressible = compressible

    def compress(self, most: int) -> None:
        """Compress where that helps; a size beyond `most` is not to the byte, since such a value leaves the row."""
        self.tried = True
        size = compressed_size(self._value, enough=most) if self._compressible else None
        if size is not None and size + COMPRESSED_HEADER < len(self._value) - 2:
            self.size = size + COMPRESSED_HEADER
            self.alignment = 4

    def move_out(self) -> None:
        self.tried = self.out_of_line = True
        self.size = OUT_OF_LINE_BYTES
        self.alignment = 1


_Column = _Fixed | _Value
_UUID, _INT, _TIME = _Fixed(16, 1), _Fixed(4, 4), _Fixed(8, 8)


def _columns(row: HeapRow | DocumentRow) -> list[_Column | None]:
    content = _Value(row.content.encode())
    if isinstance(row, HeapRow):
        embedding = _Value(bytes(4 + 4 * row.dimension), compressible=False)
        content_tsv = _Value(tsvector_bytes(row.lexemes))
        seq, pos, tokens, size = [_INT] * 4
        return [_UUID, _UUID, seq, pos, content, embedding, tokens, size, _TIME, content_tsv]
    named = [row.scope, row.category, row.title, row.source, row.source_ref]
    texts = [None if text is None else _Value(text.encode()) for text in named]
    tags, content_hash = _Value(text_array_bytes(row.tags)), _Value(row.content_hash.encode())
    user, team, deleted_at, last_shown_at = _UUID, None, None, _TIME if row.shown else None
    size, shown_count, relevant_count, noise_count = [_INT] * 4
    made = [*texts, tags, content, content_hash, size, _TIME, _TIME]
    return [_UUID, user, team, *made, deleted_at, shown_count, last_shown_at, relevant_count, noise_count]


def _length(columns: Sequence[_Column]) -> int:
    """Bytes of the columns; the header before them is a multiple of 8, so places count from here."""
    length = 0
    for column in columns:
        length = _align(length, column.alignment) + column.size
    return length


def _shorten(columns: Sequence[_Column], most: int) -> None:
    values = [column for column in columns if isinstance(column, _Value)]
    while _length(columns) > most:
        largest = _largest([value for value in values if not value.tried])
        if largest is None:
            break
        largest.compress(most)
        # Even compressed it is over the target alone, so it leaves at once.
        if largest.size > most:
            largest.move_out()
    while _length(columns) > most:
        largest = _largest([value for value in values if not value.out_of_line])
        if largest is None:
            break
        largest.move_out()


def _largest(values: Sequence[_Value]) -> _Value | None:
    """The first of the largest values, or None if none is worth shortening."""
    largest = max(values, key=lambda value: value.size, default=None)
    return largest if largest is not None and largest.size > MIN_TOAST_BYTES else None


def _align(length: int, alignment: int) -> int:
    return -(-length // alignment) * alignment


class _Pages:
    """The pages of a table that only grows, filled by one connection."""

    def __init__(self) -> None:
        self.rows: list[list[int]] = []
        self._free: list[int] = []
        self._maps: list[_FreeSpaceMap] = []
        self._current = -1

    def insert(self, index: int, length: int) -> None:
        """Put a row of so many bytes on the page PostgreSQL chooses."""
        # PostgreSQL aligns each row to 8 bytes.
        length = _align(length, 8)
        page = self._current
        while page >= 0 and self._free[page] - LINE_POINTER < length:
            page = self._another(page, length)
        if page < 0:
            page = len(self._free)
            self._free.append(PAGE_BYTES - PAGE_HEADER)
            self.rows.append([])
        self._free[page] -= length + LINE_POINTER
        self.rows[page].append(index)
        self._current = page

    def _another(self, page: int, length: int) -> int:
        """Record a page's free space and return a page with room for `length`; -1 if the map has none.

        Only the map page that covers the current page is searched: links between map pages are written by VACUUM.
        """
        number, leaf = divmod(page, MAP_LEAVES)
        while len(self._maps) <= number:
            self._maps.append(_FreeSpaceMap())
        free_space_map = self._maps[number]
        # The map counts whole units: free space is rounded down, the demand below up.
        free_space_map.note(leaf, max(self._free[page] - LINE_POINTER, 0) // MAP_UNIT)
        found = free_space_map.find(-(-length // MAP_UNIT))
        return -1 if found < 0 else number * MAP_LEAVES + found


class _FreeSpaceMap:
    """A page of the free space map: a binary tree over table pages, each node the largest of the units of free space below it."""

    def __init__(self) -> None:
        self._nodes = bytearray(MAP_INNER + MAP_LEAVES)
        self._next = 0

    def note(self, leaf: int, units: int) -> None:
        node = MAP_INNER + leaf
        self._nodes[node] = units
        while node > 0:
            node = (node - 1) // 2
            largest = max(self._nodes[2 * node + 1 : 2 * node + 3])
            # Nothing above changes either.
            if self._nodes[node] == largest:
                break
            self._nodes[node] = largest

    def find(self, units: int) -> int:
        """The first leaf with that many units, searched circularly after the last one found; -1 if there is none."""
        nodes = self._nodes
        if nodes[0] < units:
            return -1
        node = MAP_INNER + (self._next if self._next < MAP_LEAVES else 0)
        while node > 0 and nodes[node] < units:
            node += 1  # the neighbour to the right, or the first of this level
            if node & (node + 1) == 0:
                node = (node - 1) // 2
            node = (node - 1) // 2
        while node < MAP_INNER:
            node = 2 * node + 1
            if nodes[node] < units:
                node += 1
        self._next = node - MAP_INNER + 1
        return node - MAP_INNER
