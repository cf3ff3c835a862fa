"""docs/reference/parameters.md: every parameter of a config, read from the config model."""

from __future__ import annotations

from itertools import groupby

from cems_workbench.config.fields import COST_HELP, FieldSpec
from cems_workbench.config.model import field_specs
from cems_workbench.sources.score_meanings import THRESHOLDS, threshold_help
from docs.reference_pages.markdown import code, notice, table, table_cell
from docs.reference_pages.presets import shown

HEAD = f"""\
# Parameters

Every parameter of a config, in the order of the pipeline. Set one with `--set PATH=VALUE`, in a config file, or in the sidebar.
[The specification](../internals/specification.md) has the formulas.

{notice("the config model, cems_workbench/config/sections")}
"""


def tables() -> str:
    """A table for each section of the config, in its order."""
    header = ("parameter", "default", "allowed", "cost", "meaning")
    blocks = [
        f"## {section}\n\n{table(header, map(_row, specs))}"
        for section, specs in groupby(field_specs(), key=lambda spec: spec.section)
    ]
    return "\n\n".join([_costs(), *blocks])


def _costs() -> str:
    return "\n".join(f"- *{cost}*: {what}" for cost, what in COST_HELP.items())


def _row(spec: FieldSpec) -> tuple[str, ...]:
    unit = f" ({spec.unit})" if spec.unit else ""
    scales = f" {threshold_help()}" if spec.path in THRESHOLDS else ""
    null = f" (null: {spec.null})" if spec.optional else ""
    cells = (spec.range_text, spec.cost, f"{spec.label}{unit}. {spec.help}{scales}{null}")
    return code(spec.path), code(shown(spec.default)), *map(table_cell, cells)


def document() -> str:
    """The whole page as Markdown."""
    return f"{HEAD}\n{tables()}\n"
