"""Config files of an earlier version: names that a later version of the config renamed are read as the present ones.

Version 1 is that of the pipeline's specification, in which configs outside this project are written. The next rename is a row under the
next number, which becomes `VERSION`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

VERSION: Literal[2] = 2
"""Of the config files that are written."""

PARAMETERS: Mapping[int, Mapping[str, str]] = {
    2: {
        "lists.vector.prefetch": "lists.vector.first_stage_factor",
        "lists.lexical.prefetch": "lists.lexical.first_stage_factor",
        "lists.pool": "lists.candidate_set",
        "lists.origin": "lists.answered_by",
        "lists.coarse_multiplier": "lists.first_stage_factor",
        "fusion.multi_query_boost": "fusion.multi_list_boost",
        "rerank.input_limit": "rerank.depth",
        "rerank.score_span": "rerank.score_window",
        "rerank.tail": "rerank.below_depth",
        "rerank.reads": "rerank.text_source",
        "rerank.question_before": "rerank.prepend_question",
    }
}
"""By the version that renamed it, the new path of a parameter, or of a section, by its old one; only the last part of a path changes."""

VALUES: Mapping[int, Mapping[str, Mapping[str, str]]] = {
    2: {
        "lists.answered_by": {"store": "workbench"},
        "fusion.method": {"score_sum": "combsum", "score_max": "combmax"},
    }
}
"""By the version that renamed it, the new value of a parameter by its old one, by the parameter's new path."""


def present_values(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The nested values of a config file under the names of `VERSION`, in their order; those of an unknown version as they are.

    Where a parameter is given under both names, the old one stays, as an unknown key.
    """
    version = values.get("version")
    if not isinstance(version, int) or not 1 <= version < VERSION:
        return values
    for number in range(version + 1, VERSION + 1):
        values = _renamed(values, PARAMETERS[number], VALUES[number])
    return {**values, "version": VERSION}


def present_path(path: str) -> str:
    """The present path of a parameter that an earlier version called otherwise; any other path as it is."""
    for number in sorted(PARAMETERS):
        path = PARAMETERS[number].get(path, path)
    return path


def _renamed(
    values: Mapping[str, Any], paths: Mapping[str, str], texts: Mapping[str, Mapping[str, str]], prefix: str = ""
) -> dict[str, Any]:
    renamed: dict[str, Any] = {}
    for key, value in values.items():
        path = f"{prefix}{key}"
        new = paths.get(path, path)
        name = key if new == path else new.rpartition(".")[2]
        if isinstance(value, Mapping):
            value = _renamed(value, paths, texts, f"{path}.")
        elif isinstance(value, str):
            value = texts.get(new, {}).get(value, value)
        renamed[key if name in values else name] = value
    return renamed
