"""A config as the Python of mem0: the dictionary of its constructor and the arguments of its search.

What mem0 has no setting for is listed in comments, with the value that it has instead. Reading parses the two literals and runs nothing;
keys of the constructor that are no parameters, such as a path or an embedder, are passed over.

Source: mem0ai 2.2.1, `Memory.from_config` and `Memory.search`.
"""

from __future__ import annotations

import ast
import pprint
from collections.abc import Iterator, Mapping
from typing import Any

from cems_workbench.config.forms.codecs import Plain
from cems_workbench.config.forms.sheet import Reading, exported, filled, lay_over, leftover
from cems_workbench.config.forms.yaml_form import commented
from cems_workbench.config.model import PipelineConfig
from cems_workbench.errors import InputError, nearest, one_line
from cems_workbench.platform.parsing import python_assigned

CONSTRUCTOR, SEARCH = "config", "search"
"""The names of the two dictionaries, with which the export names begin."""
MARK = "from mem0 import Memory"
"""A line of every export: what a file is recognised by."""
RERANKER = "sentence_transformer"
"""mem0's name of a cross-encoder that runs locally."""
NOT_A_SETTING = (
    "Whether words count is no setting of mem0: it depends on what is installed (fastembed and spaCy with\nen_core_web_sm) and on the "
    "vector store."
)


def dump_mem0(config: PipelineConfig, header: str = "") -> str:
    """Python that opens mem0 and searches it. `header` (name, evidence card) comes first, as comments."""
    sheet = filled(config, "mem0", repr)
    parts = _nested({name: ast.literal_eval(text) for name, text in sheet.read.items()})
    constructor, search = parts.get(CONSTRUCTOR, {}), parts.get(SEARCH, {})
    if search.get("rerank"):
        constructor["reranker"] = {"provider": RERANKER} | constructor.get("reranker", {})
    snippet = (
        f"{MARK}\n\n{CONSTRUCTOR} = {_literal(constructor)}\n{SEARCH} = {_literal(search)}\n\n"
        f'memory = Memory.from_config({CONSTRUCTOR})\nanswer = memory.search("…", filters={{"user_id": "…"}}, **{SEARCH})\n'
    )
    return "\n".join(
        [commented(header), snippet, commented(f"{NOT_A_SETTING}\n\n{leftover(config, 'mem0', sheet, 'argument')}")]
    )


def read_mem0(text: str, present: PipelineConfig, source: str = "mem0.py") -> Reading:
    """Lay the dictionaries of a snippet over `present`. Raises InputError when it has none."""
    reading = Reading(present)
    known = {export.name: (spec, export) for spec, export in exported("mem0")}
    for section in (CONSTRUCTOR, SEARCH):
        values = python_assigned(text, source, section)
        if not isinstance(values, Mapping):
            raise InputError(f"{source}: {section}: expected a dictionary")
        for name, value in _leaves(values, f"{section}."):
            where = f"{source}: {one_line(name, 80)}"
            if name in known:
                lay_over(reading, known[name], str(value), where)
            elif section == SEARCH:
                close = nearest(name, known)
                hint = f"; the nearest known one is {close}" if close else ""
                reading.warnings.append(f"{where}: no parameter of the pipeline{hint}; left out")
            elif name == f"{CONSTRUCTOR}.reranker.provider" and value != RERANKER:
                reading.warnings.append(
                    f"{where}: {one_line(str(value), 40)} is no reranker of the workbench; left out"
                )
    return reading


def _nested(values: Mapping[str, Plain]) -> dict[str, dict[str, Any]]:
    """Values by dotted name as nested dictionaries."""
    tree: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        *parents, leaf = name.split(".")
        target: dict[str, Any] = tree
        for parent in parents:
            target = target.setdefault(parent, {})
        target[leaf] = value
    return tree


def _leaves(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _literal(value: Mapping[str, Any]) -> str:
    return pprint.pformat(dict(value), width=110, sort_dicts=False)
