"""Payloads of vector databases (Chroma: metadata) as memories.

Payloads have no schema, so fields are recognised by name (`memory_fields.NAMES`), also within `metadata` (LangChain) or `meta` (Haystack);
LlamaIndex has its text in `_node_content`, as JSON. The first name with a value counts. A mapping `{field: name in the payload}` overrides
the names; dots lead into objects.

A row with a document and a whole number in it is a chunk; any other row is a memory.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from cems_workbench.errors import InputError, some, suggestion
from cems_workbench.formats.base import fields, memory_fields
from cems_workbench.formats.base.fields import FieldError
from cems_workbench.formats.base.memory_fields import NAMES, STATE_NAMES, is_true
from cems_workbench.records import Memory, RowProblem

Payload = Mapping[str, Any]

USER_NAMES = ("user_id", "userId", "owner_id", "user")
"""Names of the field with the row's user, likelier ones first."""
NESTED = ("metadata", "meta")
"""Objects whose fields count as fields of the payload."""

MAX_LAYOUTS = 1_000
"""Of rows whose layout is kept: a file of rows with ever new keys fills no memory."""
_PLAIN = frozenset((str, int, float, bool, list))
"""Types of values that are no objects, and the commonest."""


@dataclass(frozen=True)
class Names:
    """Names of fields in payloads; those in `given` are from a mapping. `outers` are the paths of objects whose fields
    count as those of the payload. `closed`: no field is read but those of `given`."""

    given: Mapping[str, str]
    outers: tuple[str, ...] = NESTED
    closed: bool = False

    @cached_property
    def known(self) -> Mapping[str, tuple[str, ...]]:
        """Paths by field; a mapped field has only that one."""
        usual: dict[str, tuple[str, ...]] = dict.fromkeys(NAMES, ())
        if not self.closed:
            usual = {
                field: tuple(path for name in names for path in self.paths(name)) for field, names in NAMES.items()
            }
        return usual | {field: (name,) for field, name in self.given.items()}

    @cached_property
    def depth(self) -> int:
        """How many objects deep a field may be."""
        states = (path for name in STATE_NAMES.values() for path in self.paths(name))
        return max(path.count(".") for path in (*states, *self.outers, *(p for ps in self.known.values() for p in ps)))

    @cached_property
    def _layouts(self) -> dict[Any, Layout]:
        return {}

    def layout(self, payload: Payload) -> Layout:
        """Where the fields of a payload are, found once for all payloads with values at the same names."""
        shape = _shape(payload, self.depth)
        found = self._layouts.get(shape)
        if found is None:
            if len(self._layouts) >= MAX_LAYOUTS:
                self._layouts.clear()
            found = self._layouts[shape] = Layout.of(payload, self)
        return found

    def paths(self, name: str) -> Iterator[str]:
        """Where a name may be: in the payload itself, then in each of its `outers`."""
        yield name
        for outer in self.outers:
            yield f"{outer}.{name}"

    def found(self, payload: Payload, field: str) -> str | None:
        """The path at which the payload has the field, None if it has none. An object is a field only if a mapping says so."""
        return next((path for path in self.known[field] if self._is_value(field, value_at(payload, path))), None)

    def value(self, payload: Payload, field: str) -> Any:
        """The payload's value of the field, None if it has none."""
        values = (value_at(payload, path) for path in self.known[field])
        return next((value for value in values if self._is_value(field, value)), None)

    def _is_value(self, field: str, value: Any) -> bool:
        return value is not None and (field in self.given or not isinstance(value, Mapping))


@dataclass(frozen=True, slots=True)
class Layout:
    """The path of each optional field and of each of STATE_NAMES that a payload has, and of the values that neither is read from."""

    fields: Mapping[str, str]
    states: Mapping[str, str]
    unread: Sequence[str]

    @classmethod
    def of(cls, payload: Payload, names: Names) -> Layout:
        """The layout of a payload, and of all others that have values at the same names."""
        found = {field: path for field in NAMES if (path := names.found(payload, field)) is not None}
        states = {name: path for name in STATE_NAMES if (path := state_path(payload, name, names)) is not None}
        taken = {*found.values(), *(path for name in STATE_NAMES.values() for path in names.paths(name))}
        left: list[str] = []
        for name, value in payload.items():
            inner = value if name in names.outers and isinstance(value, Mapping) else None
            paths = [name] if inner is None else [f"{name}.{key}" for key, each in inner.items() if each is not None]
            left += [] if value is None else [path for path in paths if path not in taken]
        return cls({field: found[field] for field in memory_fields.OPTIONAL_FIELDS if field in found}, states, left)


def _shape(payload: Payload, depth: int) -> tuple[Any, ...]:
    """The names of a payload that have a value, in order; an object with those in it."""
    if _PLAIN.issuperset(map(type, payload.values())):
        return tuple(payload)
    # A name with a dot hides what is in an object, also if it has no value.
    return tuple(
        [
            name if type(value) in _PLAIN else _shape_of(name, value, depth)
            for name, value in payload.items()
            if value is not None or "." in name
        ]
    )


def _shape_of(name: str, value: Any, depth: int) -> Any:
    if isinstance(value, Mapping):
        return name, _shape(value, depth - 1) if depth else ()
    return name if value is not None else (name, None)


ANY_NAMES = Names({})


def names_of(mapping: Mapping[str, Any] | None) -> Names:
    """The names with a mapping; raises InputError for a field that memories do not have."""
    for field, name in (mapping or {}).items():
        if field not in NAMES:
            hint = suggestion(str(field), NAMES, ".")
            raise InputError(f"mapping: {field} is no field of a memory{hint} It may be one of {', '.join(NAMES)}")
        if not isinstance(name, str) or not name:
            raise InputError(f"mapping: {field}: must be the name of a field of the payload, found {name!r}")
    return Names(mapping or {})


def text_of(document: str | None, payload: Payload, names: Names) -> str | None:
    """The text of a row: its document, else that of the payload; None if there is none."""
    if document is not None and document.strip() and "content" not in names.given:
        return document
    text = names.value(payload, "content")
    if text is None and "content" not in names.given:
        text = _node_text(payload)
    return text if isinstance(text, str) and text.strip() else None


def chunk_key(payload: Payload, names: Names) -> tuple[str, int] | None:
    """(document, number) of a chunk; None for a row without both."""
    document, number = names.value(payload, "document"), names.value(payload, "number")
    # In Python a boolean is an int.
    if isinstance(document, bool) or not isinstance(document, str | int) or document == "":
        return None
    if isinstance(number, str) and number.isascii() and number.isdigit():
        number = int(number)
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 2**63:
        return None
    return str(document), number


def memory_of(memory_id: str, content: str, payload: Payload, names: Names) -> tuple[Memory, list[RowProblem]]:
    """The memory of a payload, and problems of fields, which count as missing. Raises FieldError if the id or the
    content cannot be stored."""
    found, values = found_values(payload, names)
    own = fields.identifier({"id": memory_id}, "id"), fields.required_text({"content": content}, "content")
    return memory_fields.memory_of(*own, values, found)


def found_values(payload: Payload, names: Names) -> tuple[dict[str, str], dict[str, Any]]:
    """(path, value) of each field that the payload has; among the values are also `active` and `superseded_at`."""
    layout = names.layout(payload)
    values = {field: value_at(payload, path) for field, path in layout.fields.items()}
    for name in ("active", "superseded_at"):
        if name in layout.states:
            values[name] = value_at(payload, layout.states[name])
    return dict(layout.fields), values


MOST_UNREAD = 12
"""Most columns and keys that the note of unread ones names."""


ONE_IMPORT, OTHER_TIMES = 60, 86_400
"""Seconds between the first and the last created_at of rows that one import wrote, and at least between those of another field."""
_DATE = re.compile(r"(?i)creat|dat(e|ed|um)|time|when|day$|_at$|(?<=[a-z])(At|On)$")
_OTHER_DATE = re.compile(r"(?i)expir|valid|delet|access|review|due|modif|updat|birth")


SAMPLE_ROWS = 200
"""Rows from which fields, and where dates are, are recognised."""


def date_elsewhere(payloads: Sequence[Payload], names: Names, unread: Iterable[str]) -> tuple[str, str] | None:
    """The unread path whose dates most rows have, where created_at is missing or that of one import, and a line on both; else None."""

    def dates(path: str) -> list[datetime]:
        found = []
        for value in (value_at(payload, path) for payload in payloads):
            with suppress(FieldError):
                found += [] if value in (None, "") else [memory_fields.value_of("created_at", value)]
        return found

    def span(moments: Sequence[datetime]) -> float:
        return (max(moments) - min(moments)).total_seconds() if moments else 0.0

    here = dates(used) if (used := used_names(payloads, names).get("created_at")) else []
    if "created_at" in names.given or len(payloads) < 2 or span(here) > ONE_IMPORT:
        return None
    paths = (path for path in dict.fromkeys(unread) if _DATE.search(path) and not _OTHER_DATE.search(path))
    path, others = max(((path, dates(path)) for path in paths), key=lambda each: len(each[1]), default=("", []))
    if 2 * len(others) < len(payloads) or span(others) < OTHER_TIMES:
        return None
    read = f"all created_at are within {span(here):.0f} s, the time of an import" if here else "no created_at"
    return path, f"{read}; {path}, not read, has dates from {min(others):%Y-%m-%d} to {max(others):%Y-%m-%d}"


def unread_note(paths: Iterable[str]) -> str | None:
    """One line that names columns and keys that were not read; None if there is none."""
    names = list(dict.fromkeys(paths))
    return f"not read: {some(names, MOST_UNREAD)}; a mapping can take them" if names else None


def state_path(payload: Payload, name: str, names: Names) -> str | None:
    """The path of one of STATE_NAMES, None if the payload has none."""
    return next((path for path in names.paths(STATE_NAMES[name]) if value_at(payload, path) is not None), None)


def unread(payload: Payload, names: Names, read: Collection[str] = ()) -> list[str]:
    """The paths of values that no field is read from, besides those in `read`; of `outers` what is in them."""
    return [path for path in names.layout(payload).unread if path not in read]


def state_of(payload: Payload, name: str, names: Names = ANY_NAMES) -> Any:
    """The payload's value of one of STATE_NAMES, None if it has none."""
    path = names.layout(payload).states.get(name)
    return None if path is None else value_at(payload, path)


_SAYS_DELETED = frozenset(
    part for path in ANY_NAMES.paths(STATE_NAMES["deleted"]) for part in (path, path.split(".")[0])
)


def is_deleted(payload: Payload) -> bool:
    """Whether the system that keeps the row has deleted it."""
    # Hardly a row says anything of it, and nearly every row is asked.
    return not _SAYS_DELETED.isdisjoint(payload) and is_true(state_of(payload, "deleted"))


def canonical(payload: Payload) -> str:
    """The payload as text, independent of the order of its fields."""
    return json.dumps(payload, sort_keys=True, ensure_ascii=False, default=str)


def used_names(payloads: Sequence[Payload], names: Names) -> dict[str, str]:
    """The most frequent path of each field; fields that no payload has are missing."""
    chosen: dict[str, str] = {}
    for field in NAMES:
        seen = [name for payload in payloads if (name := names.found(payload, field)) is not None]
        if seen:
            chosen[field] = max(dict.fromkeys(seen), key=seen.count)
    return chosen


def user_path(payloads: Sequence[Payload], names: Names) -> str | None:
    """The path of the user: that mapped as author, else the most frequent; None if no payload has one."""
    if "author" in names.given:
        return names.given["author"]
    paths = [path for name in USER_NAMES for path in names.paths(name)]
    counts = {path: sum(value_at(payload, path) is not None for payload in payloads) for path in paths}
    best = max(paths, key=lambda path: counts[path])
    return best if counts[best] else None


def value_at(payload: Payload, path: str) -> Any:
    """The value at a name or dotted path; None if there is none."""
    # First as it is: a name may itself contain dots.
    if path in payload:
        return payload[path]
    head, dot, rest = path.partition(".")
    inner = payload.get(head) if dot else None
    return value_at(inner, rest) if isinstance(inner, Mapping) else None


def _node_text(payload: Payload) -> str | None:
    raw = payload.get("_node_content")
    if not isinstance(raw, str):
        return None
    try:
        node = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    if not isinstance(node, dict):
        return None
    resource = node.get("text_resource")
    return node.get("text") or (resource.get("text") if isinstance(resource, dict) else None)
