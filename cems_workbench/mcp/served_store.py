"""The store that a server serves, and what an agent may do with it.

It is opened when a tool first needs it, so that a server is there at once, and one whose store is missing or held by another process says
so in the reply to each call until that is mended. Who asks has the role of a reader, or with `write` that of a reviewer, as on the pages
(`runs.access`), and opens the files that a page may open.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cems_workbench.api.configs import load_config
from cems_workbench.api.evidence import LoadedEvidence, gather, load_evidence
from cems_workbench.api.open_store import OpenStore, open_store
from cems_workbench.builtin import preset_names
from cems_workbench.config import PipelineConfig
from cems_workbench.config.forms.reading import SUFFIXES
from cems_workbench.errors import InputError, nearest
from cems_workbench.evaluation.evidence_file import is_evidence_file
from cems_workbench.jobs.access import Role, allowed_path, require
from cems_workbench.jobs.catalogue import catalogue
from cems_workbench.jobs.query_set_evidence import ALL_QUERIES
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Cancelled, Progress
from cems_workbench.settings import Settings, settings_for
from cems_workbench.store.rows import check_name

MAX_NAMES = 20
"""Configs that are named to who asked for one that is not there."""


class ServedStore:
    """A store with the rights of who asks; methods may be called from any thread."""

    def __init__(self, path: Path | None = None, *, write: bool = False, judge: str = "agent") -> None:
        """`judge` is the name that labels are kept under. Raises InputError where it is none, or a setting does not fit."""
        check_name(judge)
        self.settings: Settings = settings_for(path)
        self.role: Role = "reviewer" if write else "reader"
        self.judge = judge
        self._opening = threading.Lock()
        self._measuring = threading.Lock()
        self._opened: OpenStore | None = None

    @property
    def store(self) -> OpenStore:
        """The open store. Raises StoreError, naming what is wrong, as often as it is asked for in vain."""
        with self._opening:
            if self._opened is None:
                self._opened = open_store(self.settings.store)
            return self._opened

    @property
    def resources(self) -> Resources:
        """The open store with its indexes and models."""
        return self.store.resources

    def close(self) -> None:
        """Release the store."""
        with self._opening:
            if self._opened is not None:
                self._opened.close()
                self._opened = None

    @contextmanager
    def measuring(self, seconds: float) -> Iterator[None]:
        """While the block runs nobody else measures here: two calls would search the same queries into one file.

        Raises Cancelled where another call still does after so many seconds.
        """
        if not self._measuring.acquire(timeout=seconds):
            raise Cancelled
        try:
            yield
        finally:
            self._measuring.release()

    def require_writing(self) -> None:
        """Raise InputError unless labels may be given."""
        require(self.role, "reviewer")

    def config(self, name: str, changes: Mapping[str, Any] | None = None) -> PipelineConfig:
        """The config of a name, with changes: a preset, one kept in the store, or that of a file; the default preset for none.

        Raises InputError, naming what there is.
        """
        if not name or name in preset_names():
            return load_config(name or None, changes)
        kept = catalogue(self.resources.store)
        if name in kept.configs:
            return load_config(kept.under_its_name(name), changes)
        if Path(name).suffix.lower() in SUFFIXES:
            return load_config(allowed_path(name, self.settings), changes)
        raise InputError(f"config: {_unknown(name, 'config', list(kept.configs))}, or name a config file")

    def kept_configs(self) -> list[str]:
        """The names of the configs kept in the store, beside the presets."""
        presets = set(preset_names())
        return [name for name in catalogue(self.resources.store).configs if name not in presets]

    def evidence(self, query_set: str, config: PipelineConfig, queries: int, progress: Progress) -> LoadedEvidence:
        """The judged queries of a set as the config asks for them, gathered where they are not yet; or an evidence file.

        `queries`: so many of them; 0 is all. Raises InputError, naming the sets there are, and whatever `progress` raises.
        """
        names = list(dict.fromkeys([*self.store.query_sets, ALL_QUERIES]))
        if query_set in names:
            return gather(self.store, query_set, config, limit=queries or None, progress=progress)
        if not Path(query_set).suffix and len(Path(query_set).parts) == 1:
            raise InputError(f"query_set: {_unknown(query_set, 'query set', names)}, or name an evidence file")
        path = allowed_path(query_set, self.settings)
        if not is_evidence_file(path):
            raise InputError(
                f"query_set: {path} is no evidence file, which the command gather writes; query sets: {', '.join(names)}"
            )
        if queries:
            raise InputError("queries: an evidence file is measured as a whole; leave it out")
        return load_evidence(path)


def _unknown(name: str, what: str, known: list[str]) -> str:
    close = nearest(name, known)
    said = f"no {what} is called {name[:100]!r}" + (f"; did you mean {close}" if close else "")
    more = f" and {len(known) - MAX_NAMES} more" if len(known) > MAX_NAMES else ""
    return f"{said}; there are {', '.join(known[:MAX_NAMES])}{more}"
