"""What ships: the presets by name, which of them everything begins with, and where the app and the sample data lie."""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import Path

_CHECKOUT = Path(__file__).resolve().parents[1]
HOME = _CHECKOUT if (_CHECKOUT / "app.py").is_file() else Path(__file__).resolve().parent / "app"
"""The folder with app.py, pages and sample_data: the checkout, or that which setup.py puts into a wheel."""
SAMPLE_DATA = HOME / "sample_data"

FIRST = "workbench"
"""The preset that the app opens with and a command uses where none is named, unless CEMS_WORKBENCH_PRESET names another."""
REFERENCE = "cems"
"""The preset whose values are the parameters' own defaults; it leads lists of presets."""


@cache
def preset_names() -> tuple[str, ...]:
    """Names of the shipped presets, the reference first."""
    folder = resources.files("cems_workbench") / "config" / "presets"
    names = sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))
    return (REFERENCE, *(name for name in names if name != REFERENCE))


def default_preset(wanted: str) -> tuple[str, str | None]:
    """The preset to begin with where `wanted` is what the settings name, and what is wrong with that, if anything."""
    if wanted in preset_names():
        return wanted, None
    known = ", ".join(preset_names())
    return FIRST, f"CEMS_WORKBENCH_PRESET: there is no preset {wanted}; {FIRST} is used. Known presets: {known}"
