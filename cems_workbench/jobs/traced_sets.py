"""Which query sets are external traces or explained answers, and where their evidence is; `jobs/traces.py` writes and reads it."""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from cems_workbench.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cems_workbench.config import PipelineConfig
    from cems_workbench.evaluation.evidence_file import Header
    from cems_workbench.store import Store

FOLDER, SUFFIX = "evidence", "-traced.evidence"
MAX_NAME_CHARS = 40
CONFIG_NAME = "traced"
"""The name of the config of external traces, in tables and drawings."""
NOT_REPLAYED = "was traced in another pipeline: its stages are recorded, and no config changes them"


def traced_path(folder: Path, query_set: str) -> Path:
    """The file with the recorded stages of a set of the store in a folder, whether or not there is one."""
    # The name comes from a user: no separator and no leading dot may reach the path, and two names no file may share.
    name = re.sub(r"[^\w.-]+", "-", query_set).strip("-.")[:MAX_NAME_CHARS] or "queries"
    digest = hashlib.sha256(query_set.encode()).hexdigest()[:8]
    return folder / FOLDER / f"{name}-{digest}{SUFFIX}"


def is_traced(store: Store, query_set: str) -> bool:
    """Whether the queries of a set are external traces or explained answers."""
    return traced_header(store.path, query_set) is not None


def is_external(header: Header | None) -> bool:
    """Whether it is the header of external traces, whose stages no config changes."""
    return header is not None and header.config.name == CONFIG_NAME


def traced_header(folder: Path, query_set: str) -> Header | None:
    """The header of the recorded stages of a set of the store in a folder; None without any. Raises InputError for a damaged file."""
    path = traced_path(folder, query_set)
    if not path.is_file():
        return None
    from cems_workbench.evaluation.evidence_file import read_header

    header = read_header(path)
    return header if header.query_set == query_set else None


def traced_sets(store: Store) -> dict[str, int]:
    """The query sets of external traces, by name with their number of queries."""
    if not any((store.path / FOLDER).glob(f"*{SUFFIX}")):  # the page asks at every rerun
        return {}
    return {one.name: one.size for one in store.query_sets.latest() if is_traced(store, one.name)}


AS_EXPLAINED = "{}, as explained"
"""The name of the config that replays the explained answers of a set."""


def explained_configs(store: Store) -> dict[str, PipelineConfig]:
    """By name the configs that replay the sets of explained answers."""
    found = {}
    for name in traced_sets(store):
        with suppress(InputError):  # a damaged file says so where it is read
            header = traced_header(store.path, name)
            if header is not None and not is_external(header):
                found[AS_EXPLAINED.format(name)] = header.config
    return found


def require_no_config(name: object, header: Header, external: bool, configs: Iterable[PipelineConfig]) -> None:
    """Raises InputError if external traces are to be measured under a config."""
    own = header.config
    if external and any(config != own for config in configs):
        raise InputError(f"{name} {NOT_REPLAYED}; choose none, nor an ablation")
