"""An open store, configs, and the warnings that a result should be read with."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from cems_workbench.errors import InputError, counted, one_line
from cems_workbench.results import Report, Result, Table

if TYPE_CHECKING:
    from cems_workbench.config import PipelineConfig
    from cems_workbench.pipeline.resources import Resources
    from cems_workbench.records import Memory, Query
    from cems_workbench.store.imports import ImportEvent, Undo

    ConfigLike = PipelineConfig | str | Path
    """A config, the name of a shipped preset, or the path of a config file."""


class WorkbenchWarning(UserWarning):
    """What a result should be read with: a fallback, a skipped row, what a config file could not say."""


_collected: ContextVar[list[str] | None] = ContextVar("noted", default=None)


def warn(line: str) -> None:
    """Warn the caller of the API through `warnings`, or through `collect_warnings` if that is active."""
    noted = _collected.get()
    if noted is None:
        warnings.warn(one_line(line, 500), WorkbenchWarning, stacklevel=3)
    else:
        noted.append(one_line(line, 500))


@contextmanager
def collect_warnings() -> Iterator[list[str]]:
    """Collect this thread's warnings in the yielded list; `warnings.catch_warnings` would affect all threads."""
    lines: list[str] = []
    token = _collected.set(lines)
    try:
        yield lines
    finally:
        _collected.reset(token)


def presets() -> tuple[str, ...]:
    """The names of the shipped presets, each of which `load_config` takes."""
    from cems_workbench.builtin import preset_names

    return preset_names()


def load_config(source: ConfigLike | None = None, changes: Mapping[str, Any] | None = None) -> PipelineConfig:
    """The config of a preset or of a file, with some of its parameters changed.

    Args:
        source: name of a preset, path of a config file (YAML, JSON, TOML, `.env` or Python), or a config; None is the default preset,
            that of `CEMS_WORKBENCH_PRESET` or `workbench`.
        changes: new values by path, such as `{"fusion.k": 30, "rerank.backend": "none"}`.

    Returns:
        A frozen, validated config; `config.get("fusion.k")` reads a parameter, `config.name` its name.

    Raises:
        InputError: nothing is found under that name, or the file, a path or a value is not valid.

    What a file could not say is a `WorkbenchWarning`.
    """
    from cems_workbench.config import PipelineConfig, with_values

    config = source if isinstance(source, PipelineConfig) else _found(source)
    return with_values(config, dict(changes), source="changes") if changes else config


def _found(source: str | Path | None) -> PipelineConfig:
    from cems_workbench.builtin import DEFAULT_PRESET, default_preset
    from cems_workbench.jobs.catalogue import config_named
    from cems_workbench.settings import settings_for

    default, problem = (DEFAULT_PRESET, None) if source is not None else default_preset(settings_for().preset)
    found = config_named(None, None if source is None else Path(source), default)
    for line in (*([problem] if problem else []), *found.warnings):
        warn(line)
    return found.config


def save_config(config: ConfigLike, path: str | Path) -> Path:
    """Write a config with every key stated, in the form that the suffix says: yaml, json, toml, env or py.

    Args:
        config: a config, the name of a preset, or the path of a config file.
        path: the file to write; one that is there is replaced, whole or not at all.

    Returns:
        The path.

    Raises:
        InputError: the suffix is none of these, or the file cannot be written.

    What the form cannot express is listed in its comments, and is a `WorkbenchWarning`.
    """
    from cems_workbench.config.forms.files import SUFFIXES
    from cems_workbench.jobs.exporting import exported
    from cems_workbench.platform.atomic_write import write_text

    out = Path(path)
    form = SUFFIXES.get(out.suffix.lower())
    if form is None:
        raise InputError(f"{out}: expected a suffix of {', '.join(sorted(SUFFIXES))}")
    export = exported(load_config(config), form)
    write_text(out, export.text)
    if export.lost:
        warn(f"{out} cannot say {', '.join(name for name, _, _ in export.lost)}")
    return out


@dataclass(frozen=True, eq=False, repr=False)
class OpenStore(Result):
    """An open store of memories; a context manager that closes it.

    The app and commands may work on it at the same time; processes share the lock.

    Attributes:
        resources: the store with its indexes and models, as the functions of `cems_workbench.jobs` take it.
    """

    resources: Resources

    @property
    def path(self) -> Path:
        """The directory of the store."""
        return self.resources.store.path

    @property
    def query_sets(self) -> tuple[str, ...]:
        """The names of its query sets; `all` stands for every query besides."""
        return tuple(known.name for known in self.resources.store.query_sets.latest())

    def memory(self, memory_id: str) -> Memory:
        """One memory. Raises InputError, naming the nearest ids, where there is none of that id."""
        from cems_workbench.analysis.why.path import require_stored

        found = self.resources.store.memories.get(memory_id)
        if found is None:
            require_stored(memory_id, self.resources.store)
            raise InputError(f"{memory_id}: no such memory")
        return found

    def queries(self, query_set: str = "all", *, judged: bool = False) -> tuple[Query, ...]:
        """The queries of a set, of `all`, or of a file.

        Args:
            query_set: the name of a set, `all`, or the path of a file with queries.
            judged: only queries with a judgment, or judged to have no answer.

        Raises:
            InputError: there are none.
        """
        from cems_workbench.jobs.query_set_evidence import queries_named

        return tuple(queries_named(query_set, self.resources, judged)[0])

    def graph_recall(self, query_set: str = "all", *, cutoff: int = 10, ef_search: Sequence[int] = ()) -> Report:
        """What Chroma's graph finds of the exactly nearest memories of a query set, by ef_search, and which relevant ones it misses.

        Args:
            query_set: the name of a set, `all`, or the path of a file with queries.
            cutoff: how many of the nearest memories are compared.
            ef_search: the values that are tried beside the collection's own; by default 10, 20, 50, 100, 200 and 300.

        Raises:
            InputError: there are no queries, or a number is below 1.
            StoreError: the graph cannot be searched.

        The collection is not changed: a temporary copy of its files is searched.
        """
        from cems_workbench.jobs.graph_recall import recall_of_set

        return recall_of_set(query_set, self.resources, cutoff, ef_search)

    def imports(self) -> tuple[ImportEvent, ...]:
        """The imports on record, newest first: number, time, files with their counts, and when one was undone."""
        return tuple(self.resources.store.imports.read())

    def plan_undo(self, number: int | None = None) -> Undo:
        """What `undo_import` would do, as rows by kind and a line for what stays. Raises InputError for a number that is not on record."""
        from cems_workbench.jobs.importing import plan_undo

        return plan_undo(self.resources.store, number)

    def undo_import(self, number: int | None = None) -> Undo:
        """Undo an import: remove what it added, restore what it replaced; what was changed after it stays.

        Args:
            number: that of `imports`; None is the last that was not undone.

        Raises:
            InputError: no such import, or it was undone.
        """
        from cems_workbench.jobs.importing import undo_import

        return undo_import(self.resources.store, number)

    @property
    def title(self) -> str:
        """Where it is and how many memories it holds."""
        return f"store {self.path}: {counted(self.resources.store.memories.count(), 'memories')}"

    @property
    def tables(self) -> tuple[Table, ...]:
        """Its query sets with their sizes, the queries that can be measured, and the lowest grade that counts as relevant."""
        from cems_workbench.jobs.query_set_evidence import measurable

        sets, judgments = self.resources.store.query_sets, self.resources.store.judgments.read()
        rows = []
        for one in sets.latest():
            judged = len(measurable(sets.queries(one.name), judgments))
            rows.append((one.name, one.size, judged, one.version, one.scale.relevant_from))
        columns = ("query set", "queries", "judged", "version", "relevant from")
        return (Table(columns, tuple(rows), unshown=("judged",)),)

    def close(self) -> None:
        """Release the store; closing it twice is no error."""
        self.resources.close()

    def __enter__(self) -> OpenStore:
        """The store itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it, also after an error."""
        self.close()


def _without_bars() -> None:
    """In a notebook without ipywidgets tqdm warns when it is imported, as bm25s does; none of its bars is ever drawn here."""
    with warnings.catch_warnings(), suppress(ImportError):
        warnings.simplefilter("ignore")
        import_module("tqdm.auto")


def open_store(path: str | Path | None = None) -> OpenStore:
    """Open a store of memories; `python -m cems_workbench import PATH` fills one.

    Args:
        path: directory of the store; None is that of `CEMS_WORKBENCH_STORE`, or `.workbench/store`. Models and servers are those of the
            `CEMS_WORKBENCH_*` settings, and are loaded when they are first used.

    Returns:
        The open store; use it in a `with` statement, or close it.

    Raises:
        StoreLockedError: another process holds it for longer than is waited for.
        StoreError: it is not there, is empty, or cannot be opened.
        InputError: a setting does not fit.
    """
    from cems_workbench.jobs.factory import open_filled
    from cems_workbench.settings import settings_for

    _without_bars()
    store = OpenStore(open_filled(settings_for(None if path is None else Path(path))))
    for notice in store.resources.notices:
        warn(notice)
    return store
