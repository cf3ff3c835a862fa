"""Which fields a table has, recognised in a sample of its rows: a row is a payload, whose columns are its names.

A column that holds JSON is an object of the payload, so its keys have dotted paths.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cems_workbench.formats.base.memory_fields import OPTIONAL_FIELDS, STATE_NAMES
from cems_workbench.formats.base.payload import (
    NESTED,
    USER_NAMES,
    Names,
    Payload,
    state_path,
    unread_note,
    used_names,
    user_path,
)

SAMPLE_ROWS = 200
"""Rows from which fields are recognised."""


@dataclass(frozen=True, slots=True)
class Recognised:
    """What a sample of the rows shows: the path of each field, of the user and of states, and what was not read."""

    fields: Mapping[str, str]
    user: str | None
    states: Mapping[str, str]
    unread: tuple[str, ...]

    @property
    def unread_note(self) -> str | None:
        """One line that names what was not read; None if there is nothing."""
        return unread_note(self.unread)

    @property
    def fields_note(self) -> str | None:
        """One line that names where each field comes from; None if there is none."""
        pairs = [field if field == path else f"{field} from {path}" for field, path in self.fields.items()]
        return f"fields taken: {', '.join(pairs)}" if pairs else None


def recognise(
    payloads: Sequence[Payload], names: Names, columns: Sequence[str], others: Sequence[str], known: Collection[str]
) -> Recognised:
    """Recognise the fields in a sample. `columns` are read of every row, `others` are not; `known` paths are not called unread."""
    # A column that is there counts although no row may have a value yet.
    empty = dict.fromkeys(columns, "")
    fields = {field: path for field in OPTIONAL_FIELDS if (path := names.found(empty, field)) is not None}
    fields |= {field: path for field, path in used_names(payloads, names).items() if field in OPTIONAL_FIELDS}
    states = {name: path for name in STATE_NAMES if (path := state_path(empty, name, names)) is not None}
    for payload in payloads:
        found = {name: path for name in STATE_NAMES if (path := state_path(payload, name, names)) is not None}
        states = found | states
    user = user_path(payloads, names) or next((name for name in USER_NAMES if name in columns), None)
    read = set(fields.values()) | set(states.values()) | set(known)
    for payload in payloads:
        read.update(path for field in OPTIONAL_FIELDS if (path := names.found(payload, field)) is not None)
    unread: dict[str, None] = {}
    for name in columns:
        for payload in payloads:
            unread |= dict.fromkeys(_paths_in(name, payload.get(name)))
    return Recognised(
        {field: fields[field] for field in OPTIONAL_FIELDS if field in fields},
        user or fields.get("author"),
        states,
        tuple(path for path in (*unread, *others) if path not in read),
    )


def _paths_in(path: str, value: Any) -> Iterator[str]:
    """The paths of the values in a column: itself, or its keys, and the keys of its nested metadata."""
    if not isinstance(value, Mapping):
        if value is not None and value != "" and value != []:
            yield path
        return
    for key, inner in value.items():
        if isinstance(inner, Mapping) and key not in NESTED and inner:
            yield f"{path}.{key}"
        else:
            yield from _paths_in(f"{path}.{key}", inner)
