"""The state of the Inspect page as a value that a link keeps: what was asked, what was set, and what was looked at.

A state that another version kept is read as far as it can be; what had to be left out is said, a line each.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from cems_workbench.config import DEFAULT, PipelineConfig, nested, preset, preset_names
from cems_workbench.config.salvage import salvaged

PLACES = ("section", "view", "tool")


@dataclass(frozen=True, slots=True)
class PageState:
    """`as_of` None is now, whenever that is. `off` are switched-off query variants; `places` say what is looked at."""

    query: str
    preset: str
    config: PipelineConfig
    project: str | None = None
    only_project: bool = False
    as_of: date | None = None
    manual: str = ""
    off: tuple[int, ...] = ()
    places: tuple[tuple[str, str], ...] = ()
    follow: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values. The config is text, since the order of its half-life tiers counts and that of keys does not."""
        return {
            "version": 1,
            "query": self.query,
            "project": self.project,
            "only_project": self.only_project,
            "as_of": self.as_of.isoformat() if self.as_of else None,
            "manual": self.manual,
            "preset": self.preset,
            "config": json.dumps(nested(self.config), ensure_ascii=False),
            "off": list(self.off),
            "places": dict(self.places),
            "follow": self.follow,
        }


def read_state(values: Mapping[str, Any]) -> tuple[PageState, list[str]]:
    """The state of plain values, and a line for each thing that was left out."""
    said: list[str] = []

    def read(name: str, kind: type, default: Any) -> Any:
        value = values.get(name)
        if value is None or isinstance(value, kind):
            return default if value is None else value
        said.append(f"{name} could not be read and was left out")
        return default

    name = read("preset", str, DEFAULT)
    if name not in preset_names():
        said.append(f"the preset {name} is not there any more; {DEFAULT} stands in its place")
        name = DEFAULT
    as_of = read("as_of", str, None)
    places = read("places", dict, {})
    return PageState(
        query=read("query", str, ""),
        preset=name,
        config=_config(read("config", str, ""), name, said),
        project=read("project", str, None),
        only_project=read("only_project", bool, False),
        as_of=_day(as_of, said) if as_of else None,
        manual=read("manual", str, ""),
        off=tuple(item for item in read("off", list, []) if type(item) is int and item >= 0),
        places=tuple((place, str(places[place])) for place in PLACES if places.get(place)),
        follow=read("follow", str, None),
    ), said


def _day(text: str, said: list[str]) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        said.append(f"the day {text} could not be read and was left out")
        return None


def _config(text: str, name: str, said: list[str]) -> PipelineConfig:
    try:
        values = json.loads(text)
    except ValueError:
        values = None
    if not isinstance(values, dict):
        said.append(f"the parameters could not be read; those of the preset {name} are set")
        return preset(name).config
    config, left_out = salvaged(values)
    if left_out:
        said.append(f"not known, or not allowed, in this version and left out: {', '.join(left_out)}")
    return config
