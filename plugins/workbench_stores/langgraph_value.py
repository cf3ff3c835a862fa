"""Values of LangGraph's stores: the texts in them that are embedded, and the one that is the memory's content.

Source: langgraph-checkpoint 4.3.2, store/base/embed.py, run
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from cems_workbench.formats.base.memory_fields import NAMES
from cems_workbench.formats.base.payload import NESTED

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
    named = _named_content(value) or "\n".join(text for name, text in texts.items() if name != WHOLE)
    return named or (whole_text(value) if value else "")


def _named_content(value: Any) -> str:
    """The text that the value has under a usual name of contents; empty if it has none."""
    inside = [value, *(value.get(name) for name in NESTED)] if isinstance(value, dict) else []
    objects = [each for each in inside if isinstance(each, dict)]
    found = (each.get(name) for name in NAMES["content"] for each in objects)
    return next((text for text in found if isinstance(text, str) and text.strip()), "")
