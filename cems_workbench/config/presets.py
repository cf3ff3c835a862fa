"""The shipped presets: YAML files with a comment at the head that names their source and known mistakes.

`cems` states every key. The others say which preset they extend and what differs:

    extends: cems
    name: brief
    assembly: {limit: 3}

A preset that was tuned has its evidence card next to it: `NAME.card.json`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from cems_workbench.builtin import REFERENCE_PRESET
from cems_workbench.config.forms.yaml_form import config_from, known_preset, preset_folder, preset_text, shipped_values
from cems_workbench.config.model import PipelineConfig

if TYPE_CHECKING:
    from cems_workbench.config.evidence_card import EvidenceCard


DEFAULT = REFERENCE_PRESET


@dataclass(frozen=True, slots=True)
class Preset:
    """A shipped config, and the comment at the head of its file."""

    name: str
    config: PipelineConfig
    notes: str

    @property
    def summary(self) -> str:
        """First line of the notes."""
        return self.notes.splitlines()[0] if self.notes else self.name

    @property
    def card(self) -> EvidenceCard | None:
        """What it was measured on, for one that was tuned; read when it is asked for."""
        path = preset_folder() / f"{self.name}.card.json"
        if not path.is_file():
            return None
        from cems_workbench.config.evidence_card import read_card

        with resources.as_file(path) as file:
            return read_card(file)


@cache
def preset(name: str) -> Preset:
    """Load a preset by name. Raises InputError naming the known ones and the nearest."""
    name = known_preset(name, "preset")
    notes = [line.removeprefix("#").strip() for line in preset_text(name).splitlines() if line.startswith("#")]
    config = config_from(shipped_values(name), source=f"presets/{name}.yaml")
    return Preset(name, config, "\n".join(notes))
