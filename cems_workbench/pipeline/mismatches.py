"""Mismatches: what the preset behind a config knows of its target's texts and installation, and this store or config has otherwise.

A preset ranks as its target does where memories are embedded as the target embeds them, and with its own lists of words.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cems_workbench.config import PipelineConfig
from cems_workbench.config.forms.targets import System, is_there, preset_behind, system_behind
from cems_workbench.errors import InputError
from cems_workbench.store.search.stop_lists import NotInstalledError, stop_list

if TYPE_CHECKING:
    from cems_workbench.pipeline.resources import Resources

MARK = "preset "
"""The beginning of every line about a mismatch."""


def lacking(config: PipelineConfig, store: Path | None = None) -> list[str]:
    """A line for each list of the target's installation that is searched without its words: not named, or not found beside the store."""
    system, name = system_behind(config), preset_behind(config)
    if system is None:
        return []
    return [
        f"{MARK}{name} ranks without the words of {system.title}: --set {path}=FOLDER/{place}, or connect with FOLDER beside the store"
        for path, place in system.needs.items()
        if config.get(f"{path.rpartition('.')[0]}.enabled")
        and not (is_there(system, path, config.get(path)) and _installed(config.get(path), store))
    ]


def _installed(name: str, store: Path | None) -> bool:
    try:
        stop_list(name, store)
    except InputError as error:  # of a path that is named the search says what is wrong
        return not isinstance(error, NotInstalledError)
    return True


def mismatches(config: PipelineConfig, resources: Resources) -> list[str]:
    """A line for the texts of the store and one for what the config lacks, each with the command that mends it; none of no target."""
    system, name = system_behind(config), preset_behind(config)
    if system is None:
        return []
    of_texts: list[str] = resources.derived(
        ("mismatches", name), lambda: _of_texts(f"{MARK}{name}", name or "", system, resources)
    )
    return [*of_texts, *lacking(config, resources.store.path)]


def _of_texts(what: str, name: str, system: System, resources: Resources) -> list[str]:
    store, wanted = resources.store, system.texts
    cut, rule = store.chunks.statistics(), store.texts.rule
    said = []
    if wanted.get("chunks") == "whole" and cut.chunks > cut.given:
        said.append(f"whole, and {cut.memories:,} memories are searched in chunks here")
    elif wanted.get("chunks", cut.rule) not in (cut.rule, "whole"):
        said.append(f"in chunks by the rule {wanted['chunks']}, and the rule is {cut.rule} here")
    titled = (
        store.memories.titled() if wanted.get("title", rule.title) != rule.title and not store.sources.read() else 0
    )
    if titled:
        added = "" if wanted["title"] else " in their text"
        said.append(f"{'with' if wanted['title'] else 'without'} the title, which {titled:,} memories have{added} here")
    line = f"{what}: {system.title} embeds a memory {'; '.join(said)}: import --preset {name} embeds them so"
    return [line] if said else []


def mismatches_noted(notes: Mapping[str, Any]) -> list[str]:
    """The lines that gathering noted in evidence."""
    return [line for line in notes.get("warnings", {}).get("lists", ()) if line.startswith(MARK)]
