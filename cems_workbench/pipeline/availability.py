"""What this version can do of the whole parameter set.

A parameter that cannot work yet is absent from the page, and a config that asks for it all the same is told so in the
trace. Deleting a line here is the last step of building the thing.
"""

from __future__ import annotations

from cems_workbench.config import PipelineConfig, field_specs

CHOICES: dict[str, tuple[str, ...]] = {}
"""Parameters of which only some values work."""

NOT_YET: tuple[str, ...] = ()
"""Parameters, or groups of them, that no gathering acts on yet."""


def available(path: str) -> bool:
    """Does gathering act on this parameter in this version?"""
    return not any(path == name or path.startswith(f"{name}.") for name in NOT_YET)


def choices(path: str, declared: tuple[str, ...]) -> tuple[str, ...]:
    """The values of a parameter that work in this version."""
    return CHOICES.get(path, declared)


def refusals(config: PipelineConfig) -> dict[str, list[str]]:
    """Per stage, one line for each thing a config asks for that this version cannot do."""
    found: dict[str, list[str]] = {}
    for spec in field_specs():
        value = config.get(spec.path)
        if not available(spec.path) and spec.kind == "gather" and value != spec.default:
            found.setdefault(spec.section, []).append(f"{spec.path} is not available in this version and was left out")
        elif spec.path in CHOICES and value not in CHOICES[spec.path]:
            known = ", ".join(CHOICES[spec.path])
            line = f"{spec.path} {value} is not available in this version and was left out; available: {known}"
            found.setdefault(spec.section, []).append(line)
    return found
