"""Resources of a process that answers one command after another: opened by the first, open for those that follow.

Whatever could make an answer differ from that of a new process ends with the command: connections to other systems, the memory of servers
that failed, a model that replaces the one that was asked for, and a store whose file has changed in the meantime. Weights stay loaded.

Caches that a caller hands to a job: a page has one for all sessions or for one, a command has one while it runs, or none.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Hashable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from cems_workbench.errors import WorkbenchError

if TYPE_CHECKING:
    from cems_workbench.pipeline.resources import Resources
    from cems_workbench.settings import Settings


Made = TypeVar("Made")


class Cache(Protocol):
    """Returns the value of a key, made on the first call. What `make` raises passes through and is not cached."""

    def __call__(self, key: Hashable, make: Callable[[], Made], /) -> Made:
        """The value that `make` returned on the first call with this key."""


def uncached(key: Hashable, make: Callable[[], Made], /) -> Made:
    """No cache: make the value on every call."""
    return make()


class RecentCache:
    """The last `size` values by key, evicted in the order in which they were made."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._made: dict[Hashable, Any] = {}

    def __call__(self, key: Hashable, make: Callable[[], Made], /) -> Made:
        """The value of a key, made if it is absent."""
        if key not in self._made:
            value = make()
            while len(self._made) >= self._size:
                self._made.pop(next(iter(self._made)))
            self._made[key] = value
        known: Made = self._made[key]
        return known


log = logging.getLogger(__name__)
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
        from cems_workbench.store.database import FILE_NAME

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
        from cems_workbench.jobs.factory import open_filled

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
        from cems_workbench.jobs.factory import open_filled

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
        from cems_workbench.models.resolve import hub_reachable, resolve

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
        from cems_workbench.store.database import read_commits

        opened = self._opened
        if opened is None or opened.state != file_state(opened.database):
            return {}  # the command opens it again
        version = opened.resources.store.content_version
        place = os.path.realpath(opened.database.parent)
        return {place: (*read_commits(Path(place)), version)}

    @property
    def lost(self) -> bool:
        """Whether the open store was removed, moved or replaced: the process that keeps it should end."""
        opened = self._opened
        if opened is None or opened.state is None:
            return False
        now = file_state(opened.database)
        return now is None or now[:2] != opened.state[:2]

    def close(self) -> None:
        """Release what is kept."""
        opened, self._opened = self._opened, None
        if opened is not None:
            try:
                opened.resources.close()
            except WorkbenchError as error:  # its directory is gone
                log.warning("the store was not closed: %s", error)


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
