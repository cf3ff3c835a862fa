"""A store, opened with the models that search it."""

from __future__ import annotations

import warnings
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from cems_workbench.api.results import warn
from cems_workbench.errors import InputError
from cems_workbench.results import Result, Table

if TYPE_CHECKING:
    from cems_workbench.pipeline.resources import Resources
    from cems_workbench.records import Memory, Query
    from cems_workbench.store.imports import ImportEvent, Undo


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
        from cems_workbench.analysis.why import require_stored

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
        return f"store {self.path}: {self.resources.store.memories.count()} memories"

    @property
    def tables(self) -> tuple[Table, ...]:
        """Its query sets with their sizes and the lowest grade that counts as relevant."""
        sets = self.resources.store.query_sets
        rows = [(known.name, known.size, known.version, sets.relevant_from(known.name)) for known in sets.latest()]
        return (Table(("query set", "queries", "version", "relevant from"), tuple(rows)),)

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
