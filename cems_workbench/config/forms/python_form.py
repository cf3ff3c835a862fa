"""Configs as a Python snippet: one call with a literal. Reading it parses that literal and runs nothing."""

from __future__ import annotations

import ast
import pprint

from cems_workbench.config.forms.yaml_form import config_from, nested
from cems_workbench.config.model import PipelineConfig
from cems_workbench.errors import InputError

CALL = "config_from"


def dump_python(config: PipelineConfig) -> str:
    """Python that builds the config; it needs this package and nothing else."""
    literal = pprint.pformat(nested(config), width=110, sort_dicts=False)
    return f"from cems_workbench.config import {CALL}\n\nconfig = {CALL}(\n{_indented(literal)}\n)\n"


def parse_python(text: str, source: str = "config") -> PipelineConfig:
    """The config of the one `config_from({...})` in a snippet, which is read, never executed. Raises InputError."""
    try:
        tree = ast.parse(text)
        calls = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == CALL and node.args
        ]
        if len(calls) != 1:
            raise InputError(f"{source}: expected one {CALL}({{...}}), found {len(calls)}")
        values = ast.literal_eval(calls[0].args[0])
    except SyntaxError as error:
        raise InputError(f"{source}: line {error.lineno}: not readable as Python: {error.msg}") from None
    except (ValueError, TypeError, RecursionError, MemoryError):
        raise InputError(f"{source}: {CALL} needs a literal: text, numbers, lists and mappings only") from None
    return config_from(values, source)


def _indented(literal: str) -> str:
    # Not textwrap.indent: a text within the literal never spans lines, repr escapes its breaks.
    return "\n".join(f"    {line}" for line in literal.split("\n"))
