"""Configs as a Python snippet: one call with a literal. Reading it parses that literal and runs nothing."""

from __future__ import annotations

import pprint

from cems_workbench.config.forms.yaml_form import config_from, nested
from cems_workbench.config.model import PipelineConfig
from cems_workbench.platform.parsing import python_literal

CALL = "config_from"


def dump_python(config: PipelineConfig) -> str:
    """Python that builds the config; it needs this package and nothing else."""
    literal = pprint.pformat(nested(config), width=110, sort_dicts=False)
    return f"from cems_workbench.config import {CALL}\n\nconfig = {CALL}(\n{_indented(literal)}\n)\n"


def parse_python(text: str, source: str = "config") -> PipelineConfig:
    """The config of the one `config_from({...})` in a snippet, which is read, never executed. Raises InputError."""
    return config_from(python_literal(text, source, CALL), source)


def _indented(literal: str) -> str:
    # Not textwrap.indent: a text within the literal never spans lines, repr escapes its breaks.
    return "\n".join(f"    {line}" for line in literal.split("\n"))
