"""A value of the config in a few characters, as pages and reports show it."""

from __future__ import annotations

from typing import Any

from cems_workbench.config.fields import Section


def short_value(value: Any) -> str:
    """A value of the config in a few characters."""
    if value is None:
        return "off"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple):
        return " ".join(_part(item) for item in value) or "none"
    text = str(value)
    return text if len(text) <= 40 else text[:39] + "…"


def _part(item: Any) -> str:
    if isinstance(item, tuple):
        return f"{item[0]} {item[1]:g}"
    if isinstance(item, Section):
        # The first number of a row is the last rank, or number of words, that it is for.
        return "/".join(f"{value:g}" for value in list(item.model_dump().values())[1:])
    return str(item)
