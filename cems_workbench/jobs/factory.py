"""Resources of a process: store, embedder and model servers from the settings, and those that stay open for the commands that follow.

Only this module turns settings into objects of the library. Whatever could make an answer differ from that of a new process ends with the
command: connections to other systems, the memory of servers that failed, a model that replaces the one that was asked for, and a store
whose file has changed in the meantime. Weights stay loaded.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from cems_workbench.errors import NoMemoriesError, WorkbenchError
from cems_workbench.models.minilm_embedder import local_embedder
from cems_workbench.models.protocol import QueryEmbedder
from cems_workbench.pipeline.resources import Resources, Servers
from cems_workbench.settings import Settings
from cems_workbench.store import Store

if TYPE_CHECKING:
    from cems_workbench.models.server_embedder import OpenAiEmbedder, Wording


EMBED_TIMEOUT_S = 60.0


def open_resources(settings: Settings, *, create: bool = True) -> Resources:
    """Open the store and prepare the embedder (its weights load when first used). Raises StoreLockedError when another
    process holds the store, StoreError when it cannot be opened."""
    store = Store.open(settings.store, create=create, chroma_url=settings.chroma_url, team=settings.team)
    return Resources(store, embedder(for_store(settings, store)), servers(settings))


def open_filled(settings: Settings) -> Resources:
    """As `open_resources`, for an existing store with memories. Raises StoreError for another."""
    with ExitStack() as unless_filled:
        resources = unless_filled.enter_context(closing(open_resources(settings, create=False)))
        if not resources.store.memories.count():
            raise NoMemoriesError(f"the store {resources.store.path} is empty; import something first")
        unless_filled.pop_all()
    return resources


def for_store(settings: Settings, store: Store) -> Settings:
    """The settings with the embedder of the store's source, unless the user chose another."""
    made_by = [source.embedder for source in store.sources.with_memories() if source.embedder]
    if not made_by or "embedder" in settings.model_fields_set:
        return settings
    return settings.model_copy(update={"embedder": made_by[0]})


def embedder(settings: Settings) -> QueryEmbedder:
    """The embedder that the settings name; nothing is loaded and no server is called yet. A missing setting is an error
    on first use, so that a store can be inspected without an embedder."""
    same_as = settings.embedding_same_as.strip()
    if settings.served_embedder is None:
        return local_embedder(settings.embedder, same_as, settings.device)
    server, model = settings.served_embedder
    if server == "ollama":
        from cems_workbench.models.ollama import OllamaEmbedder

        return OllamaEmbedder(settings.ollama_url, model, same_as=same_as, revision=None, wording=wording(settings))
    return openai_embedder(settings)


def openai_embedder(settings: Settings, timeout_s: float = EMBED_TIMEOUT_S, tries: int = 3) -> OpenAiEmbedder:
    """The embedder on the OpenAI-compatible server that the settings name."""
    from cems_workbench.models.server_embedder import OpenAiEmbedder

    _, model = settings.served_embedder or ("openai", "")
    return OpenAiEmbedder(
        settings.embedding_url or "",
        model,
        settings.embedding_key,
        settings.embedding_dimension,
        settings.embedding_limit,
        settings.embedding_same_as.strip(),
        timeout_s,
        wording=wording(settings),
        tries=tries,
    )


def wording(settings: Settings) -> Wording:
    """The prefixes of texts and queries for the embedder on a server."""
    from cems_workbench.models.server_embedder import Wording

    by_model = settings.embedding_query_model.strip()
    return Wording(settings.embedding_text_prefix, settings.embedding_query_prefix, by_model)


def servers(settings: Settings) -> Servers:
    """The model servers that the settings name."""
    return Servers(**{field.name: getattr(settings, field.name) for field in fields(Servers)})


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
        if not self._keeping:
            with closing(open_filled(settings)) as resources:
                resources.of_command = True
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
