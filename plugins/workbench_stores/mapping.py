"""Mappings of columns to the fields of memories, in YAML, and values of LangGraph's stores: what SQLite files and PostgreSQL share.

Source: langgraph-checkpoint 4.3.2, store/base/embed.py, run
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, get_args

from cems_workbench.errors import InputError, did_you_mean
from cems_workbench.formats.base.memory_fields import NAMES, OPTIONAL_FIELDS, STATE_NAMES
from cems_workbench.formats.base.payload import NESTED, USER_NAMES
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


def given_fields(mapping: Mapping[str, Any], check: Callable[[str, str], None]) -> dict[str, str]:
    """The path of each field of a memory that a mapping has; `check` raises InputError for a (field, path) that the table lacks."""
    given = {field: mapping[field] for field in OPTIONAL_FIELDS if field in mapping}
    for pair in given.items():
        check(*pair)
    return given


def no_column(table: object, field: str, path: str, columns: Collection[str]) -> InputError:
    """The error of a path that begins with no column of a table."""
    hint = did_you_mean(path.partition(".")[0], columns)
    return InputError(f"mapping: {field}: {table} has no column {path!r}{hint}; it has {', '.join(columns)}")


WHOLE = "$"
"""The field_name of the whole value."""
OUTERS = ("value", *(f"value.{name}" for name in NESTED))
"""The objects whose keys are fields."""
_NUMBERED = re.compile(r"(.+)\.(\d+)")
_STEP = re.compile(r"\[[^\]]*\]|\{[^}]*\}|[^.\[{]+")
"""A step of a path: a key, `[0]`, `[*]`, `*` or `{a,b}`."""


def steps(path: str) -> list[str]:
    """The steps of a field_name."""
    return _STEP.findall(path)


def embedded_text(value: Any, name: str) -> str | None:
    """The text of a value that was embedded under a field_name; None if the value has none there."""
    if name == WHOLE:
        return whole_text(value)
    texts = _texts(value, steps(name))
    if len(texts) == 1:
        return texts[0]
    numbered = _NUMBERED.fullmatch(name)
    texts = _texts(value, steps(numbered[1])) if numbered else []
    number = int(numbered[2]) if numbered else 0
    # A path with one text has no number.
    return texts[number] if len(texts) > 1 and number < len(texts) else None


def _texts(value: Any, steps: Sequence[str]) -> list[str]:
    """The texts that a path leads to, as the library embeds them: other values than text, numbers and flags as JSON."""
    if not steps:
        if value is None:
            return []
        return [whole_text(value) if isinstance(value, list | dict) else str(value)]
    step, rest = steps[0], steps[1:]
    if step.startswith("["):
        if not isinstance(value, list):
            return []
        inner = step[1:-1]
        if inner == "*":
            return [text for each in value for text in _texts(each, rest)]
        try:
            return _texts(value[int(inner)], rest)
        except (ValueError, IndexError):
            return []
    if step.startswith("{"):
        paths = [part.strip() for part in step[1:-1].split(",")] if isinstance(value, dict) else []
        return [text for path in paths for text in _texts(value, [each for each in path.split(".") if each])]
    if step == "*":
        inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return [text for each in inside for text in _texts(each, rest)]
    return _texts(value[step], rest) if isinstance(value, dict) and step in value else []


def whole_text(value: Any) -> str:
    """The value as the library embeds it whole."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def in_order(name: str) -> tuple[str, int]:
    """Sorts the texts of a path by their numbers."""
    numbered = _NUMBERED.fullmatch(name)
    return (numbered[1], int(numbered[2])) if numbered else (name, -1)


def content_of(value: Any, texts: Mapping[str, str]) -> str:
    """The content of an item: the text under a usual name, else the embedded `texts` by field_name, else the value as JSON."""
    inside = [value, *(value.get(name) for name in NESTED)] if isinstance(value, dict) else []
    objects = [each for each in inside if isinstance(each, dict)]
    usual = (each.get(name) for name in NAMES["content"] for each in objects)
    named = next((text for text in usual if isinstance(text, str) and text.strip()), "")
    embedded = "\n".join(text for name, text in texts.items() if name != WHOLE)
    return named or embedded or (whole_text(value) if value else "")
