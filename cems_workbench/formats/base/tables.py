"""Tables as one JSON object: what pandas writes of a DataFrame in each of its orients, and columns as lists."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from cems_workbench.formats.base.files import Sample


def rows_of_table(value: Mapping[str, Any], known: Collection[str]) -> list[dict[str, Any]] | None:
    """The rows of a table, which has one of the `known` columns; None for an object that is none.

    Orients of `DataFrame.to_json` (pandas 2 and 3): columns, index, split and table; records are a list already.
    """
    columns, rows = value.get("columns"), value.get("data")
    if isinstance(columns, list) and isinstance(rows, list):
        names = [".".join(map(str, name)) if isinstance(name, list) else str(name) for name in columns]
        return [dict(zip(names, row, strict=False)) for row in rows if isinstance(row, list)]
    if isinstance(value.get("schema"), dict) and isinstance(rows, list):
        return [row for row in rows if isinstance(row, dict)]
    cells = list(value.values())
    if not cells:
        return None
    if not any(name in value for name in known):
        rows = [row for row in cells if isinstance(row, dict)]
        return rows if len(rows) == len(cells) and any(name in rows[0] for name in known) else None
    if all(isinstance(column, dict) and column.keys() == cells[0].keys() for column in cells):
        return [{name: column[key] for name, column in value.items()} for key in cells[0]]
    if all(isinstance(column, list) and len(column) == len(cells[0]) for column in cells) and cells[0]:
        return [dict(zip(value, row, strict=True)) for row in zip(*cells, strict=True)]
    return None


def sampled_rows(sample: Sample, known: Collection[str]) -> list[Mapping[str, Any]]:
    """The first objects of a file; of one that is a table its rows."""
    found: list[Mapping[str, Any]] = []
    for row in sample.rows:
        found += rows_of_table(row, known) or [row]
    return found
