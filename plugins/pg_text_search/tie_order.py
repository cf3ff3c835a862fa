"""PostgreSQL's order of rows with equal sort keys: its sort is not stable, but deterministic.

A full sort is the quicksort of Bentley and McIlroy ("Engineering a Sort Function", 1993): the middle of three as pivot, of three such
middles above 40 rows, insertion below 7; a stretch that is already in order stays. With a LIMIT, and more than twice as many
rows, a heap of that many rows is kept whose root is the worst, and read backwards. Both swap rows that do not compare, so
the order of ties depends on the rows around them. Known limit: rows that outgrow `work_mem` are merged from a file, in another order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def full_order(scores: NDArray[np.float32], k: int) -> list[int]:
    """Places of the first k of `scores` (in heap order) after `ORDER BY score DESC`."""
    keys = _keys(scores)
    places = list(range(len(keys)))
    _quicksort(places, keys, k)
    return places[:k]


def limited_order(scores: NDArray[np.float32], k: int) -> list[int]:
    """Places of the first k of `scores` (in heap order) after `ORDER BY score DESC LIMIT k`."""
    if k <= 0:
        return []
    # The server sorts fully unless there are more than twice as many rows as the limit.
    if len(scores) <= 2 * k:
        return full_order(scores, k)
    return _bounded_heap(_keys(scores), k)


def _keys(scores: NDArray[np.float32]) -> list[int]:
    """Ascending keys for descending scores; whole numbers compare faster."""
    return [int(key) for key in np.unique(-scores, return_inverse=True)[1].tolist()]


def _quicksort(rows: list[int], keys: Sequence[int], wanted: int) -> None:
    """Sort `rows` by their keys in place; ranges that begin after `wanted` stay unsorted."""
    pending = [(0, len(rows))]
    while pending:
        start, count = pending.pop()
        # Rows after `wanted` do not affect the order of those before.
        if start >= wanted or count < 2:
            continue
        if count < 7:
            _insertion_sort(rows, keys, start, count)
        elif not _in_order(rows, keys, start, count):
            less, greater = _partition(rows, keys, start, count)
            pending.append((start, less))
            pending.append((start + count - greater, greater))


def _insertion_sort(rows: list[int], keys: Sequence[int], start: int, count: int) -> None:
    for place in range(start + 1, start + count):
        row, key = rows[place], keys[rows[place]]
        while place > start and keys[rows[place - 1]] > key:
            rows[place] = rows[place - 1]
            place -= 1
        rows[place] = row


def _in_order(rows: list[int], keys: Sequence[int], start: int, count: int) -> bool:
    last = keys[rows[start]]
    for row in rows[start + 1 : start + count]:
        if keys[row] < last:
            return False
        last = keys[row]
    return True


def _partition(rows: list[int], keys: Sequence[int], start: int, count: int) -> tuple[int, int]:
    """Smaller rows to the left, equal ones into the middle, greater ones to the right; how many are smaller and greater."""
    end = start + count
    middle = _pivot(rows, keys, start, count)
    rows[start], rows[middle] = rows[middle], rows[start]
    pivot = keys[rows[start]]
    # Rows equal to the pivot gather at both ends, [start, equal_left) and (equal_right, end), and move to the middle after.
    equal_left = left = start + 1
    equal_right = right = end - 1
    while True:
        while left <= right and (key := keys[rows[left]]) <= pivot:
            if key == pivot:
                rows[equal_left], rows[left] = rows[left], rows[equal_left]
                equal_left += 1
            left += 1
        while left <= right and (key := keys[rows[right]]) >= pivot:
            if key == pivot:
                rows[right], rows[equal_right] = rows[equal_right], rows[right]
                equal_right -= 1
            right -= 1
        if left > right:
            break
        rows[left], rows[right] = rows[right], rows[left]
        left += 1
        right -= 1
    less, greater = left - equal_left, equal_right - right
    _exchange(rows, start, left, min(equal_left - start, less))
    _exchange(rows, left, end, min(greater, end - 1 - equal_right))
    return less, greater


def _exchange(rows: list[int], start: int, end: int, count: int) -> None:
    """Swap the first `count` rows from `start` with the last `count` before `end`."""
    if count:
        rows[start : start + count], rows[end - count : end] = rows[end - count : end], rows[start : start + count]


def _pivot(rows: list[int], keys: Sequence[int], start: int, count: int) -> int:
    left, middle, right = start, start + count // 2, start + count - 1
    if count > 40:
        step = count // 8
        left = _middle_of(rows, keys, left, left + step, left + 2 * step)
        middle = _middle_of(rows, keys, middle - step, middle, middle + step)
        right = _middle_of(rows, keys, right - 2 * step, right - step, right)
    return middle if count == 7 else _middle_of(rows, keys, left, middle, right)


def _middle_of(rows: list[int], keys: Sequence[int], a: int, b: int, c: int) -> int:
    """Which of three places holds the middle key; among equal ones, the server's choice."""
    first, second, third = keys[rows[a]], keys[rows[b]], keys[rows[c]]
    if first < second:
        return b if second < third else (c if first < third else a)
    return b if second > third else (a if first < third else c)


def _bounded_heap(keys: Sequence[int], size: int) -> list[int]:
    """The `size` smallest keys' places, best first, out of a heap with the worst at its root."""
    heap: list[int] = []
    for row, key in enumerate(keys):
        if len(heap) < size:
            _push(heap, row, keys)
        elif key < keys[heap[0]]:
            _sift_down(heap, row, keys)
    backwards = []
    while len(heap) > 1:
        backwards.append(heap[0])
        last = heap.pop()
        _sift_down(heap, last, keys)
    return heap + backwards[::-1]


def _push(heap: list[int], row: int, keys: Sequence[int]) -> None:
    place = len(heap)
    heap.append(row)
    while place and keys[heap[(place - 1) // 2]] < keys[row]:
        heap[place] = heap[(place - 1) // 2]
        place = (place - 1) // 2
    heap[place] = row


def _sift_down(heap: list[int], row: int, keys: Sequence[int]) -> None:
    """Replace the root by `row` and sift it down."""
    place, count, key = 0, len(heap), keys[row]
    while (child := 2 * place + 1) < count:
        if child + 1 < count and keys[heap[child]] < keys[heap[child + 1]]:
            child += 1
        if key >= keys[heap[child]]:
            break
        heap[place] = heap[child]
        place = child
    heap[place] = row
