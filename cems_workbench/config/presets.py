"""The shipped presets: YAML files that state every key, headed by a comment with their source and known mistakes.

One that was tuned has its evidence card beside it: `NAME.card.json`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

from cems_workbench.builtin import REFERENCE, preset_names
from cems_workbench.config.evidence_card import EvidenceCard, read_card
from cems_workbench.config.forms.yaml_form import parse_config
from cems_workbench.config.model import PipelineConfig
from cems_workbench.errors import InputError, nearest
from cems_workbench.renamed import PRESETS

DEFAULT = REFERENCE


@dataclass(frozen=True, slots=True)
class Preset:
    """A shipped config and the comment at the head of its file."""

    name: str
    config: PipelineConfig
    notes: str
    card: EvidenceCard | None = None
    """What it was measured on, for one that was tuned."""

    @property
    def summary(self) -> str:
        """First line of the notes."""
        return self.notes.splitlines()[0] if self.notes else self.name


@cache
def preset(name: str) -> Preset:
    """Load a preset by name. Raises InputError naming the known ones and the nearest."""
    known = preset_names()
    name = PRESETS.get(name, name)
    if name not in known:
        close = nearest(name, known)
        hint = f"; did you mean {close}?" if close else ""
        raise InputError(f"preset {name}: unknown{hint} Known presets: {', '.join(known)}")
    folder = resources.files("cems_workbench.config") / "presets"
    text = (folder / f"{name}.yaml").read_text(encoding="utf-8")
    card = folder / f"{name}.card.json"
    notes = [line.removeprefix("#").strip() for line in text.splitlines() if line.startswith("#")]
    config = parse_config(text, source=f"presets/{name}.yaml")
    return Preset(name, config, "\n".join(notes), _card(card))


def _card(beside: Traversable) -> EvidenceCard | None:
    if not beside.is_file():
        return None
    with resources.as_file(beside) as path:
        return read_card(path)
