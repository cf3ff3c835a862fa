"""Mappings of columns to the fields of memories, in YAML: what those of SQLite files and of PostgreSQL share."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, get_args

from cems_workbench.errors import InputError, did_you_mean
from cems_workbench.formats.base.memory_fields import NAMES, OPTIONAL_FIELDS, STATE_NAMES
from cems_workbench.formats.base.payload import USER_NAMES
from cems_workbench.sources.source import Distance

FIELD_NAMES = frozenset(
    (*(name for field in OPTIONAL_FIELDS for name in NAMES[field]), *STATE_NAMES.values(), *USER_NAMES)
)
"""Names of columns that may be a field of a memory, its state or its user."""


def check_names(mapping: Mapping[str, Any], known: Collection[str], numbers: Collection[str] = ()) -> None:
    """Raise InputError for a name that is not `known` and a value that no mapping may have: `numbers` are whole numbers, others names."""
    for name, value in mapping.items():
        if name not in known:
            hint = did_you_mean(str(name), known)
            raise InputError(f"mapping: unknown field {str(name)!r}{hint}; known are {', '.join(known)}")
        if name in numbers:
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(f"mapping: {name}: must be a whole number from 1, found {value!r}")
        elif not isinstance(value, str) or not value:
            raise InputError(f"mapping: {name}: must be a name, found {value!r}")
    checked_distance(mapping.get("distance"), "mapping: distance")


def checked_distance(value: str | None, where: str) -> Distance | None:
    """The distance, None if none is given. Raises InputError."""
    known: Mapping[str, Distance] = {name: name for name in get_args(Distance)}
    if value is not None and value not in known:
        raise InputError(f"{where}: must be one of {', '.join(known)}, found {value!r}")
    return None if value is None else known[value]


def given_fields(mapping: Mapping[str, Any]) -> dict[str, str]:
    """The path of each field of a memory that a mapping has."""
    return {field: mapping[field] for field in OPTIONAL_FIELDS if field in mapping}


def no_column(table: object, field: str, path: str, columns: Collection[str]) -> InputError:
    """The error of a path that begins with no column of a table."""
    hint = did_you_mean(path.partition(".")[0], columns)
    return InputError(f"mapping: {field}: {table} has no column {path!r}{hint}; it has {', '.join(columns)}")
