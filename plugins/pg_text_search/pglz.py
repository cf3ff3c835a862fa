"""How long a value is after PostgreSQL's own compression, pglz with its default strategy.

A value becomes items of one bit each, eight bits before the items they announce: a literal byte, or a reference of 2 bytes
(3 from a length of 18 on) to the same bytes less than 4,095 before. At each place the earlier places with an equal hash
of four bytes are visited, latest first, and the longest match counts; the search ends early when a match is good enough,
where "good enough" starts at 128 bytes and falls by a tenth with each place visited. Every byte enters the history,
inside a reference too, so the chains of equal hashes depend on the value alone and numpy finds them beforehand.

A value stays uncompressed if it has fewer than 32 bytes, if less than a quarter is saved, or if no reference
appears in the first 1,024 bytes of output.
"""

from __future__ import annotations

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
    letters = np.frombuffer(value, dtype=np.int8).astype(
        np.int32
    )  # C's char has a sign, but not on ARM: there other than ASCII hashes otherwise
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
