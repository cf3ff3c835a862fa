"""Where a store's memories are used: the target that is saved with it, the rules of its texts, and an installation beside it.

choose    the target of a store: its preset, which app and commands use where none is named, its chunk and text rule, and the places
          in an installation that the preset reads, such as a list of stop words
of_probe  the target that writes a source, and the preset of its program
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cems_workbench.config import preset
from cems_workbench.config.forms.targets import SYSTEMS, System, system_of
from cems_workbench.errors import InputError
from cems_workbench.records import TextRule
from cems_workbench.settings import SavedTarget, save_target
from cems_workbench.store.search.stop_lists import files_beside, stop_list

if TYPE_CHECKING:
    from cems_workbench.sources.source import SourceInfo
    from cems_workbench.store import Store

SCALED = {"chroma": "inverse_l2", "faiss": "inverse_l2"}
"""How mem0 hands over the distances of stores that compare by L2."""


def of_probe(probe: SourceInfo) -> tuple[System, str, Mapping[str, Any]] | None:
    """The target that wrote a source, its preset, and what that sets otherwise; None of a source of no known target."""
    name = probe.preset or next((one.presets[0] for one in SYSTEMS.values() if probe.kind in one.kinds), None)
    system = system_of(name)
    if system is None or name is None:
        return None
    scale = SCALED.get(probe.kind) if system.name == "mem0" else None
    return system, name, {"lists.vector.scale": scale} if scale else {}


def choose(
    store: Store,
    system: System,
    name: str,
    values: Mapping[str, Any],
    beside: Sequence[Path] = (),
    *,
    texts: bool = True,
) -> list[str]:
    """Save the target of a store with its preset, and set the chunk and text rule that the preset knows, unless not
    `texts`. Returns a line about it, with what was found beside the store or what is missing, and one about rules that
    changed."""
    found = {path: place for path, at in system.needs.items() if (place := _found(at, beside)) and _lists(name, path)}
    rules = _rules(store, system) if texts else []
    try:
        save_target(store.path, SavedTarget(system.name, name, {**values, **found}))
    except InputError as error:
        return [f"runs in {system.title}, which could not be saved with the store: {error}", *rules]
    read = f"; read from it: {', '.join(found.values())}" if found else ""
    return [
        f"runs in {system.title}: ranked with preset {name}, of {system.version}, where none is named{read}",
        *rules,
    ]


def _rules(store: Store, system: System) -> list[str]:
    rule, changed = store.texts.rule, False
    if "chunks" in system.texts:
        changed = store.chunks.choose(system.texts["chunks"])
    if "title" in system.texts:
        changed |= store.texts.choose(TextRule(system.texts["title"], rule.fields, rule.first_tokens))
    words = f"{system.title} embeds texts so: chunks {store.chunks.rule}, {store.texts.rule}; what that changes is embedded again"
    return [words] if changed and store.memories.count() else []


def _lists(name: str, path: str) -> bool:
    return bool(preset(name).config.get(f"{path.rpartition('.')[0]}.enabled"))


def _found(place: str, beside: Sequence[Path]) -> str | None:
    """FILE#NAME in a checkout beside a folder, or in an installed package."""
    file, _, word = place.partition("#")
    for path in files_beside(file, beside):
        try:
            stop_list(f"{path}#{word}")
        except InputError:
            continue
        return f"{path}#{word}"
    return None
