"""What every table of the app has in common: dense rows that are still easy to read, and ids that fit."""

from __future__ import annotations

ROW = 30
"""Height of a table row in pixels."""


def table_height(rows: int, most: int) -> int:
    """Height in pixels of a table with its header, that scrolls past `most` rows."""
    return ROW * (min(max(rows, 1), most) + 1) + 4


def short_id(memory_id: str, length: int = 18) -> str:
    """A long id without its middle: what tells ids apart stands at either end."""
    half = length // 2
    return memory_id if len(memory_id) <= length else f"{memory_id[:half]}…{memory_id[half - length + 1 :]}"
