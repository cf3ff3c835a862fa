"""Configs in the words of systems that have settings: `.env` of CEMS, the memory agent and ACE, Python for mem0, constants of engram.

Each is written with what it has a name for; every parameter that no name carries is listed in comments, those first in which the config
differs from what the system does anyway. Values of a `.env` are quoted so that a plain dotenv parser, pydantic-settings and a shell read
the same. Reading lays what a file sets over the present config: a missing name leaves its parameter, one that is unknown, unreadable or out
of range is a warning that names it, and nothing is executed. Values of variables that are no parameters are never shown: a `.env` holds
keys.

Source: docs/reference/formats.md; mem0ai 2.2.1, `Memory.from_config` and `Memory.search`; engram at 10a2fe6, recollection-writer.ts.
"""

from __future__ import annotations

import ast
import json
import pprint
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cems_workbench.config.fields import (
    ENV_PREFIXES,
    RECOLLECTION,
    TARGET_PRESETS,
    TARGET_TITLES,
    ExportName,
    FieldSpec,
    Target,
)
from cems_workbench.config.forms.sheet import Inexpressible, Plain, Reading, exported, filled, lay_over, leftover
from cems_workbench.config.forms.yaml_form import commented
from cems_workbench.config.model import PipelineConfig
from cems_workbench.config.presets import preset
from cems_workbench.errors import InputError, nearest, one_line
from cems_workbench.platform.parsing import env_bindings, python_assigned

_MEANING = "CEMS_HYBRID_VECTOR_WEIGHT is the share inside CEMS's vector list, which is lists.hybrid here"
_BARE = re.compile(r"[A-Za-z0-9_./:@%+,-]+")
_NO_QUOTES_AGREE = "no quoting of this text is read alike by every reader of .env files"


def export_env(config: PipelineConfig, target: Target, header: str = "") -> str:
    """The `.env` text. `header` (name, evidence card) comes first, as comments."""
    sheet = filled(config, target, quoted)
    title = TARGET_TITLES[target]
    meaning = f"\n{_MEANING}" if target == "env" else ""
    parts = [commented(header), commented(f"Read by {title}{meaning}") + _assignments(sheet.read)]
    if sheet.planned:
        parts.append(commented(f"Not read by current {title}: named in its plan") + _assignments(sheet.planned))
    parts.append(commented(leftover(config, target, sheet, "variable")))
    return "\n".join(part for part in parts if part)


def quoted(value: Plain) -> str:
    """A value as every reader of .env files reads it. Raises Inexpressible."""
    if not isinstance(value, str):
        return str(value).lower() if isinstance(value, bool) else repr(value)
    if _BARE.fullmatch(value):
        return value
    if value.isprintable() and "\\" not in value and "${" not in value:
        if "'" not in value:
            return f"'{value}'"
        if not set('"$`!') & set(value):
            return f'"{value}"'
    raise Inexpressible(_NO_QUOTES_AGREE)


def _assignments(values: dict[str, str]) -> str:
    return "".join(f"{name}={text}\n" for name, text in values.items())


WORKBENCH_PREFIX = "CEMS_WORKBENCH_"
SERVER_VARIABLES = {
    "CEMS_OLLAMA_URL": f"{WORKBENCH_PREFIX}OLLAMA_URL",
    "RERANKER_BASE_URL": f"{WORKBENCH_PREFIX}LLAMA_SERVER_URL",
}
"""Where a server stands is a setting of the app, not a parameter of the pipeline."""


def targets_of(text: str, source: str = ".env") -> set[Target]:
    """Whose variables a `.env` text has. Raises InputError when it cannot be read at all."""
    names = [binding.key for binding in env_bindings(text, source) if binding.key]
    return {target for prefix, target in ENV_PREFIXES.items() for name in names if _is_ours(name, prefix)}


def read_env(text: str, present: PipelineConfig, source: str = ".env", *, planned: bool = True) -> Reading:
    """Lay a `.env` over `present`; variables that the target does not read yet are left out unless `planned`.

    Raises InputError when no variable of a target is in it.
    """
    variables, warnings = _variables(text, source)
    known = _known()
    if not any(_is_ours(name, prefix) for name in variables for prefix in ENV_PREFIXES):
        titles = [TARGET_TITLES[target] for target in ENV_PREFIXES.values()]
        raise InputError(f"{source}: no variable of {', '.join(titles[:-1])} or {titles[-1]} is set in it")
    reading = Reading(present, warnings)
    for name, (line, value) in variables.items():
        where = f"{source}: line {line}: {one_line(name, 80)}"
        if name in known:
            if planned or known[name][1].read:
                lay_over(reading, known[name], value, where)
        elif warning := _unknown(name, known):
            reading.warnings.append(f"{where}: {warning}")
    return reading


def _known() -> dict[str, tuple[FieldSpec, ExportName]]:
    return {export.name: (spec, export) for target in ENV_PREFIXES.values() for spec, export in exported(target)}


def _variables(text: str, source: str) -> tuple[dict[str, tuple[int, str]], list[str]]:
    variables: dict[str, tuple[int, str]] = {}
    warnings = []
    for binding in env_bindings(text, source):
        line = binding.original.line + _blank_lines(binding.original.string)
        if binding.error:
            warnings.append(f"{source}: line {line}: not readable, and left out")
        elif binding.key and binding.value is not None:
            if binding.key in variables:
                warnings.append(f"{source}: line {line}: {one_line(binding.key, 80)} is set again; the last one counts")
            variables[binding.key] = (line, binding.value)
    return variables, warnings


def _blank_lines(text: str) -> int:
    """The parser counts the blank lines before a variable as part of it."""
    return text[: len(text) - len(text.lstrip())].count("\n")


def _is_ours(name: str, prefix: str) -> bool:
    return name.startswith(prefix) and not name.startswith(WORKBENCH_PREFIX)


def _unknown(name: str, known: Iterable[str]) -> str | None:
    if name in SERVER_VARIABLES:
        return f"where a server stands is a setting of this app: {SERVER_VARIABLES[name]}"
    if not any(_is_ours(name, prefix) for prefix in ENV_PREFIXES):
        return None
    close = nearest(name, known)
    hint = f"; the nearest known one is {close}" if close else ""
    return f"no parameter of the pipeline{hint}; left out"


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


HEAD = "10a2fe6"
INTRODUCTION = (
    f"Constants of engram's recollection at {HEAD}: FILE: CONSTANT = VALUE. engram has no setting for them;\nedit the file and restart the "
    "daemon. memory_recall (mcp/server.ts) and memory_search (mcp/search.ts)\nhave separate constants, which these do not change."
)
_LINE = re.compile(rf"^({re.escape(RECOLLECTION)}: .+?) = (.+?)(?:\s+# .*)?$", re.MULTILINE)


def dump_engram(config: PipelineConfig, header: str = "") -> str:
    """The constants, a line each. `header` (name, evidence card) comes first, as comments."""
    sheet = filled(config, "engram", _written)
    usual = filled(preset(TARGET_PRESETS["engram"]).config, "engram", _written).read
    lines = [
        f"{name} = {text}" + (f"   # {usual[name]} at {HEAD}" if usual.get(name, text) != text else "")
        for name, text in sheet.read.items()
    ]
    return "\n".join(
        [
            commented(f"{header}\n{INTRODUCTION}"),
            "\n".join(lines) + "\n",
            commented(leftover(config, "engram", sheet, "constant")),
        ]
    )


def read_engram(text: str, present: PipelineConfig, source: str = "engram.txt") -> Reading:
    """Lay the constants over `present`. Raises InputError when there is none."""
    reading = Reading(present)
    known = {export.name: (spec, export) for spec, export in exported("engram")}
    found = _LINE.findall(text)
    if not found:
        raise InputError(f"{source}: no constant of engram is set in it")
    for name, value in found:
        if name in known:
            lay_over(reading, known[name], value.strip('"'), f"{source}: {name}")
        else:
            reading.warnings.append(f"{source}: {name[:80]}: no parameter of the pipeline; left out")
    return reading


def has_engram(text: str) -> bool:
    """Whether a text has a constant of engram."""
    return _LINE.search(text) is not None


def _written(value: Plain) -> str:
    return value if isinstance(value, str) else json.dumps(value)
