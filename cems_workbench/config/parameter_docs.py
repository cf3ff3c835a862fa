"""docs/reference/parameters.md, written from the config model: `python -m cems_workbench.config.parameter_docs`."""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path

from cems_workbench.config.fields import KIND_HELP, FieldSpec
from cems_workbench.config.model import field_specs
from cems_workbench.config.preset_docs import code, table_cell
from cems_workbench.platform.atomic_write import write_text

COMMAND = "python -m cems_workbench.config.parameter_docs"
PATH = Path(__file__).resolve().parents[2] / "docs" / "reference" / "parameters.md"
HEAD = f"""\
# Parameters

Every parameter of a config, in the order of the pipeline. Set one with `--set PATH=VALUE`, in a config file, or in the sidebar.
[The specification](../internals/specification.md) has the formulas.

Written by `{COMMAND}` from the config model; change the model, not this page.
"""


def tables() -> str:
    """One table a section of the config, in its order: path, default, what is allowed, when a change takes effect, what it is."""
    blocks = [
        "\n".join(
            [
                f"## {section}",
                "",
                "| parameter | default | allowed | kind | what it is |",
                "|---|---|---|---|---|",
                *(_row(spec) for spec in specs),
            ]
        )
        for section, specs in groupby(field_specs(), key=lambda spec: spec.section)
    ]
    return "\n\n".join([_kinds(), *blocks])


def _kinds() -> str:
    return "\n".join(f"- *{kind}*: {what}" for kind, what in KIND_HELP.items())


def _row(spec: FieldSpec) -> str:
    unit = f" ({spec.unit})" if spec.unit else ""
    null = f" (null: {spec.null})" if spec.optional else ""
    cells = (spec.range_text, spec.kind, f"{spec.label}{unit}. {spec.help}{null}")
    return f"| `{spec.path}` | {code(spec.default)} | {' | '.join(map(table_cell, cells))} |"


def document() -> str:
    """The whole page as Markdown."""
    return f"{HEAD}\n{tables()}\n"


def main() -> int:
    """Write the page."""
    write_text(PATH, document())
    print(PATH.relative_to(Path.cwd()) if PATH.is_relative_to(Path.cwd()) else PATH)
    return 0


if __name__ == "__main__":
    sys.exit(main())
