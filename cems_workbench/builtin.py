"""Built-ins: names of the shipped presets, and the folders of the app and the sample data."""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import Path

_CHECKOUT = Path(__file__).resolve().parents[1]
APP_ROOT = _CHECKOUT if (_CHECKOUT / "app.py").is_file() else Path(__file__).resolve().parent / "app"
"""The folder with app.py, pages and sample_data: the checkout, or that which setup.py puts into a wheel."""
SAMPLE_DATA = APP_ROOT / "sample_data"

SAMPLE_QUERY = "when are we moving house"
"""The query of the sample that README and the guide begin with: its first result is out of date, and the right one is missing."""

DEFAULT_PRESET = "workbench"
"""The preset that the app opens with and a command uses where none is named, unless CEMS_WORKBENCH_PRESET names another."""
REFERENCE_PRESET = "cems"
"""The preset whose values are the parameters' own defaults; it leads lists of presets."""


@cache
def preset_names() -> tuple[str, ...]:
    """Names of the shipped presets, the reference first."""
    folder = resources.files("cems_workbench") / "config" / "presets"
    names = sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))
    return (REFERENCE_PRESET, *(name for name in names if name != REFERENCE_PRESET))


def default_preset(name: str) -> tuple[str, str | None]:
    """The preset of this name from the settings, or the default one and a warning if there is none."""
    if name in preset_names():
        return name, None
    known = ", ".join(preset_names())
    return (
        DEFAULT_PRESET,
        f"CEMS_WORKBENCH_PRESET: there is no preset {name}; {DEFAULT_PRESET} is used. Known presets: {known}",
    )
