"""The shipped presets: YAML files that state every key, headed by a comment with their source and known mistakes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources

from cems_workbench.config.model import PipelineConfig
from cems_workbench.config.yaml_io import parse_config
from cems_workbench.errors import InputError, nearest

DEFAULT = "cems"


@dataclass(frozen=True, slots=True)
class Preset:
    """A shipped config and the comment at the head of its file."""

    name: str
    config: PipelineConfig
    notes: str

    @property
    def summary(self) -> str:
        """First line of the notes."""
        return self.notes.splitlines()[0] if self.notes else self.name


def preset_names() -> tuple[str, ...]:
    """Names of the shipped presets, the default first."""
    folder = resources.files("cems_workbench.config") / "presets"
    names = sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))
    return (DEFAULT, *(name for name in names if name != DEFAULT))


@cache
def preset(name: str) -> Preset:
    """Load a preset by name. Raises InputError naming the known ones and the nearest."""
    known = preset_names()
    if name not in known:
        close = nearest(name, known)
        hint = f"; did you mean {close}?" if close else ""
        raise InputError(f"preset {name}: unknown{hint} Known presets: {', '.join(known)}")
    text = (resources.files("cems_workbench.config") / "presets" / f"{name}.yaml").read_text(encoding="utf-8")
    notes = [line.removeprefix("#").strip() for line in text.splitlines() if line.startswith("#")]
    return Preset(name, parse_config(text, source=f"presets/{name}.yaml"), "\n".join(notes))
