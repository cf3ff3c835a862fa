"""docs/reference/presets.md: what each preset is, its source, and how it differs from `cems`; read from the preset files."""

from __future__ import annotations

import re
from typing import Any

from cems_workbench.builtin import preset_names
from cems_workbench.config.fields import Section
from cems_workbench.config.forms.yaml_form import DEFAULT, Preset, difference, preset
from cems_workbench.config.model import field_spec
from docs.reference_pages.markdown import code, notice, table_cell

HEAD = f"""\
# Presets

A preset is a config file. The head of the file says where its numbers come from and which mistakes of its source it keeps, so that they
can be seen. `cems` states every parameter; the others `extend` it, or another preset, and state what differs. `search "…" --preset NAME`
searches with one, `export NAME --format yaml` prints it with every parameter, and `doctor --preset NAME` says whether its models are
available.

{notice("cems_workbench/config/presets")}
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
    """A parameter's value as written in a config file, in YAML's flow style."""
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
        return f"It has the same values as {DEFAULT}."
    rows = [f"| parameter | {DEFAULT} | {one.name} | what it is |", "|---|---|---|---|"]
    rows += [
        f"| `{path}` | {code(shown(was))} | {code(shown(now))} | {table_cell(field_spec(path).label)} |"
        for path, was, now in changes
    ]
    return "\n".join(rows)
