"""docs/reference/presets.md, written from the preset files: what each is, where it is from, and where it differs from `cems`.

    python -m cems_workbench.config.preset_docs

A test compares the file with what this gives, so that it is never stale.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from cems_workbench.builtin import preset_names
from cems_workbench.config.fields import Section
from cems_workbench.config.forms.yaml_form import difference
from cems_workbench.config.model import field_spec
from cems_workbench.config.presets import DEFAULT, Preset, preset
from cems_workbench.platform.atomic_write import write_text

COMMAND = "python -m cems_workbench.config.preset_docs"
PATH = Path(__file__).resolve().parents[2] / "docs" / "reference" / "presets.md"
HEAD = f"""\
# Presets

A preset is a config file that states every parameter; the head of the file says where its numbers come from and which
mistakes of its source it keeps, so that they can be seen. `python -m cems_workbench search "…" --preset NAME` searches with
one, `python -m cems_workbench export NAME --to yaml` prints it, and `python -m cems_workbench doctor --preset NAME` says
whether its models are there.

Written by `{COMMAND}` from cems_workbench/config/presets; change those files, not this one.
"""
_LABEL = re.compile(r"(Source|Known mistakes?(?:, kept visible)?|Differs from \w+): ")


def document() -> str:
    """The whole page as Markdown: an overview, then a section per preset, the default first."""
    presets = [preset(name) for name in preset_names()]
    return "\n".join([HEAD, _overview(presets), *(_section(one) for one in presets)])


def paragraphs(notes: str) -> list[str]:
    """The sentences of a preset's notes, its wrapped lines joined: a line that ends one and a capital begin a new one."""
    found: list[str] = []
    for line in notes.splitlines():
        if found and not (found[-1].endswith(".") and line[:1].isupper()):
            found[-1] = f"{found[-1]} {line}"
        elif line:
            found.append(line)
    return found


def shown(value: Any) -> str:
    """A parameter's value as it stands in the file, in YAML's flow style."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, Section):
        value = value.model_dump()
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {shown(inner)}' for key, inner in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(shown(inner) for inner in value)}]"
    return str(value)


def _overview(presets: list[Preset]) -> str:
    rows = ["| preset | what it is | reranker |", "|---|---|---|"]
    for one in presets:
        rerank = one.config.rerank
        model = f", {rerank.model}" if rerank.model else ""
        rows.append(f"| [{one.name}](#{one.name}) | {table_cell(paragraphs(one.notes)[0])} | {rerank.backend}{model} |")
    return "\n".join(rows) + "\n"


def _section(one: Preset) -> str:
    summary, *rest = paragraphs(one.notes)
    lines = [f"## {one.name}", "", summary, "", *("- " + _LABEL.sub(r"**\1:** ", line, count=1) for line in rest)]
    card = ["", "```", one.card.text, "```"] if one.card else []
    return "\n".join([*lines, *card, "", _table(one), ""])


def _table(one: Preset) -> str:
    """The parameters in which a preset differs from the default one."""
    if one.name == DEFAULT:
        return "The tables below say where the others differ from this one. A key that a config leaves out has its value here."
    changes = difference(preset(DEFAULT).config, one.config)
    if not changes:
        return f"It differs from {DEFAULT} in nothing."
    rows = [f"| parameter | {DEFAULT} | {one.name} | what it is |", "|---|---|---|---|"]
    rows += [
        f"| `{path}` | {code(was)} | {code(now)} | {table_cell(field_spec(path).label)} |" for path, was, now in changes
    ]
    return "\n".join(rows)


def code(value: Any) -> str:
    """A value as code in a cell of a table."""
    return f"`{table_cell(shown(value))}`"


def table_cell(text: str) -> str:
    """Text that no cell of a table ends within."""
    return text.replace("|", "\\|")


def main() -> int:
    """Write the page."""
    write_text(PATH, document())
    print(PATH.relative_to(Path.cwd()) if PATH.is_relative_to(Path.cwd()) else PATH)
    return 0


if __name__ == "__main__":
    sys.exit(main())
