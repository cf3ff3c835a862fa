"""A config as the `.env` file of CEMS, the memory agent or ACE.

Three parts: the variables that the target reads, those that its plan names and it does not read today, and, as comments, every
parameter that no variable carries, those first in which the config differs from what the target does anyway. Values are quoted
so that a plain dotenv parser, pydantic-settings and a shell read the same; what cannot be quoted so is listed instead.

Source: docs/reference/formats.md (.env for CEMS, .env for the memory agent); docs/use/cems.md.

Reading lays the variables of a `.env` over the present config.

A missing variable leaves the parameter unchanged. One that is unknown, unreadable or out of range is a warning that
names it, and the others count. Values of variables that are not parameters are never shown: a `.env` holds keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from cems_workbench.config.export_names import ENV_PREFIXES, TARGET_TITLES, ExportName, Target
from cems_workbench.config.fields import FieldSpec
from cems_workbench.config.forms.codecs import Inexpressible, Plain
from cems_workbench.config.forms.sheet import Reading, exported, filled, lay_over, leftover
from cems_workbench.config.forms.yaml_form import commented
from cems_workbench.config.model import PipelineConfig
from cems_workbench.errors import InputError, nearest, one_line
from cems_workbench.platform.parsing import env_bindings

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
