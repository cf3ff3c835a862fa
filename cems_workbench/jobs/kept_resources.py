"""Resources of a process that answers one command after another: opened by the first, open for those that follow.

Whatever could make an answer differ from that of a new process ends with the command: connections to other systems, the memory of servers
that failed, a model that replaces the one that was asked for, and a store whose file has changed in the meantime. Weights stay loaded.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from cems_workbench.jobs.factory import open_filled
from cems_workbench.models.resolve import hub_reachable, resolve
from cems_workbench.pipeline.resources import Resources
from cems_workbench.settings import Settings
from cems_workbench.store.database import FILE_NAME, read_commits

FileState = tuple[int, int, int, int]


@dataclass(slots=True)
class _Opened:
    """Resources with what they were opened for; `state` is that of the database file when the last command ended."""

    settings: Settings
    directory: str
    weights: list[FileState]
    resources: Resources
    state: FileState | None = None

    @property
    def database(self) -> Path:
        return Path(self.directory) / self.settings.store / FILE_NAME


class KeptResources:
    """The resources of one store, kept if the process serves. Not thread-safe: one command at a time."""

    def __init__(self) -> None:
        self._keeping = False
        self._opened: _Opened | None = None

    def keep(self) -> None:
        """Keep what is opened from now on, until `close`."""
        self._keeping = True

    @contextmanager
    def filled(self, settings: Settings) -> Iterator[Resources]:
        """The resources of an existing store with memories; closed at the end unless they are kept. Raises what `open_filled` does."""
        if not self._keeping:
            with closing(open_filled(settings)) as resources:
                yield resources
            return
        resources = self._fitting(settings)
        try:
            yield resources
        finally:
            self._rest(resources)

    def _fitting(self, settings: Settings) -> Resources:
        # A relative path stays one, since messages name it; it means the same in the same directory.
        asked = settings, os.getcwd(), _weights(settings)
        opened = self._opened
        alike = opened is not None and (opened.settings, opened.directory, opened.weights) == asked
        if opened is not None and alike and opened.state == file_state(opened.database):
            return opened.resources
        self.close()
        resources = open_filled(settings)
        if opened is not None and alike:
            resources.take_models(opened.resources)
        self._opened = _Opened(*asked, resources)
        return resources

    def _rest(self, resources: Resources) -> None:
        resources.rest()
        if resources.stand_in:  # the next command looks for the requested model again
            resolve.cache_clear()
            hub_reachable.cache_clear()
            self.close()

    def rested(self) -> None:
        """Note the state of the store's file, once it is closed; whatever changes it later belongs to another process."""
        if self._opened is not None:
            self._opened.state = file_state(self._opened.database)

    @property
    def empty(self) -> bool:
        """Whether nothing is kept."""
        return self._opened is None

    def states(self) -> dict[str, tuple[str, int, int]]:
        """(id, number of transactions, content version) of the open store, read now, by its directory."""
        opened = self._opened
        if opened is None or opened.state != file_state(opened.database):
            return {}  # the command opens it again
        version = opened.resources.store.content_version
        place = os.path.realpath(opened.database.parent)
        return {place: (*read_commits(Path(place)), version)}

    @property
    def lost(self) -> bool:
        """Whether the open store is no longer where it was."""
        opened = self._opened
        return opened is not None and not opened.database.exists()

    def close(self) -> None:
        """Release what is kept."""
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.resources.close()


def file_state(path: Path) -> FileState | None:
    """What changes when a file is written or replaced; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _weights(settings: Settings) -> list[FileState]:
    """The states of the files of models in folders, which somebody may be training."""
    folders = [Path(name) for name in (settings.embedder, settings.cross_encoder) if Path(name).is_dir()]
    return [state for folder in folders for file in sorted(folder.iterdir()) if (state := file_state(file))]


KEPT = KeptResources()
"""Those of this process."""
