"""Mismatches: what the preset behind a config knows of its target's texts and installation, and this store or config has otherwise.

A preset ranks as its target does where memories are embedded as the target embeds them, and with its own lists of words.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cems_workbench.config import PipelineConfig
from cems_workbench.config.forms.targets import System, is_there, preset_behind, system_behind
from cems_workbench.errors import InputError
from cems_workbench.store.search.stop_lists import NotInstalledError, file_of, stop_list

if TYPE_CHECKING:
    from cems_workbench.pipeline.resources import Resources

MARK = "preset "
"""The beginning of every line about a mismatch."""
NO_STOP_WORDS = "no stop words are left out"
"""What the warning about a list of an installation that was not found begins with."""


def lacking(config: PipelineConfig, store: Path | None = None) -> list[str]:
    """A line for each list of the target's installation that is searched without its words, not named or not found beside
    the store, or that another version or an edited one has."""
    system, name = system_behind(config), preset_behind(config)
    said = []
    for path, place in system.needs.items() if system else ():
        if system is None or not config.get(f"{path.rpartition('.')[0]}.enabled"):
            continue
        value = config.get(path)
        if not (is_there(system, path, value) and _installed(value, store)):
            mend = f"--set {path}=FOLDER/{place}, or connect with FOLDER beside the store"
            said.append(f"{MARK}{name} ranks without the words of {system.title}: {mend}")
        elif another := _otherwise(system, file_of(value, store)):
            of = system.version if " " in system.version else f"{system.title} {system.version}"
            said.append(f"{MARK}{name} is of {of}, and {another}: fidelity says whether it ranks alike")
    return said


def _installed(name: str, store: Path | None) -> bool:
    try:
        stop_list(name, store)
    except InputError as error:  # of a path that is named the search says what is wrong
        return not isinstance(error, NotInstalledError)
    return True


def _otherwise(system: System, file: Path) -> str | None:
    package = next((one / "package.json" for one in file.parents if one.parent.name == "node_modules"), None)
    try:
        changed = [(one.stat().st_mtime_ns, one.stat().st_size) for one in (file, package) if one]
    except OSError:
        return None
    return _another(system.version, system.digest, file, package, tuple(changed))


@lru_cache(maxsize=32)
def _another(version: str, digest: str, file: Path, package: Path | None, changed: Hashable) -> str | None:
    """How a file of an installation differs from the one that the preset was recorded from; None if it does not, or cannot be read."""
    try:
        text = file.read_bytes().replace(b"\r\n", b"\n")
        said = package and json.loads(package.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    installed = said.get("version") if isinstance(said, dict) else None
    if isinstance(installed, str) and installed not in version.split():
        return f"{package} says {installed}"
    edited = bool(digest) and not hashlib.sha256(text).hexdigest().startswith(digest)
    return f"{file} is edited, or of another version" if edited else None


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
    """The lines about texts and missing words that gathering noted in evidence."""
    said = notes.get("warnings", {}).get("lists", ())
    return [line for line in said if line.startswith(MARK) or NO_STOP_WORDS in line]
