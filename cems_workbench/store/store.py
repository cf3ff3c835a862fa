"""The public interface of the store: one directory, one object.

DuckDB is the source of truth; each aggregate (memories, queries, judgments, labels, configs …) is an attribute that owns its tables
and methods. A team's tables can be in PostgreSQL instead (`team`). The indexes are derived and can be rebuilt. All methods are
thread-safe; each reads one committed state.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from weakref import WeakSet

from cems_workbench.errors import InputError, NoMemoriesError, StoreError, one_line
from cems_workbench.platform import start_up
from cems_workbench.progress import Progress, silent
from cems_workbench.records import ParsedInput
from cems_workbench.store import judged_texts
from cems_workbench.store.caches import Corrections, ReplyCache, ScoreCache
from cems_workbench.store.chunks import Chunks
from cems_workbench.store.configs import Configs, Holdouts
from cems_workbench.store.database import FILE_NAME, Database
from cems_workbench.store.importing import DEFAULT_OPTIONS, ImportOptions, ImportReport, import_input
from cems_workbench.store.imports import Imports
from cems_workbench.store.judged_texts import Found, Judged, Sought
from cems_workbench.store.judgments import Judgments
from cems_workbench.store.labels import Decisions, Labels
from cems_workbench.store.language import Language, TextRules
from cems_workbench.store.memories import Memories
from cems_workbench.store.parts import Difference, Side, put_back
from cems_workbench.store.queries import Queries
from cems_workbench.store.query_sets import QuerySets
from cems_workbench.store.queues import Queues
from cems_workbench.store.rebase import Rebase, plan
from cems_workbench.store.recorded_answers import RecordedAnswers
from cems_workbench.store.relations import Relations, Supersessions
from cems_workbench.store.rows import STORE_ID, content_identity, read_meta
from cems_workbench.store.search.indexes import DerivedIndexes, Indexes
from cems_workbench.store.search.vector_files import records
from cems_workbench.store.sources import Sources
from cems_workbench.store.team import ENV_VARIABLE, SHARED_TABLES, EmbeddedTables, PushReport, SharedTables, TeamTables

log = logging.getLogger(__name__)


class Store:
    """An open store; a context manager. Open it with `Store.open`."""

    def __init__(self, path: Path, database: Database, team: TeamTables, chroma_url: str | None) -> None:
        self.path = path
        self._database = database
        self.team = team
        self.identity = database.read(read_meta, STORE_ID) or ""
        self.memories = Memories(database)
        self.chunks = Chunks(database)
        self.language = Language(database)
        self.texts = TextRules(database)
        self.relations = Relations(database)
        self.imports = Imports(database, team, self.identity, self.memories)
        self.sources = Sources(database, self.memories.hidden)
        self.queries = Queries(team)
        self.query_sets = QuerySets(team)
        self.recorded_answers = RecordedAnswers(database, team)
        self.judgments = Judgments(database, team)
        self.labels = Labels(database, team)
        self.decisions = Decisions(database, team)
        self.supersessions = Supersessions(database, team)
        self.queues = Queues(database, team)
        self.configs = Configs(team)
        self.holdouts = Holdouts(team)
        self.corrections = Corrections(database)
        self.scores = ScoreCache(database)
        self.replies = ReplyCache(database)
        self.indexes = DerivedIndexes(path, database, self.identity, chroma_url, self.memories.hidden)
        _open.add(self)

    @classmethod
    def open(cls, path: Path, *, create: bool = True, chroma_url: str | None = None, team: str | None = None) -> Store:
        """Open the store in directory `path`, creating it unless `create` is False.

        `chroma_url` is a Chroma server to use instead of the embedded one, `team` a PostgreSQL with the team's tables (connected on first
        use). Raises StoreLockedError if another process has the store open, StoreError if it is not a store, damaged, or from a newer
        version, and InputError for an invalid address.
        """
        path = Path(path)
        # Before the directory is created: an invalid address must not leave an empty store behind.
        shared = _shared().open(team) if team else None
        _check_directory(path, create)
        database = Database(path)
        return cls(path, database, shared or EmbeddedTables(database), chroma_url)

    @staticmethod
    def exists(path: Path) -> bool:
        """Whether a directory contains a store, of any version."""
        return (Path(path) / FILE_NAME).is_file()

    def close(self) -> None:
        """Release the files; all completed changes are already on disk."""
        _open.discard(self)
        with ExitStack() as closing:  # an error of one does not keep the others open
            # Callbacks run in reverse: the indexes close first.
            closing.callback(self._database.close)
            closing.callback(self.team.close)
            closing.callback(self.indexes.close)

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def notices(self) -> tuple[str, ...]:
        """Damage found since the store was opened and its repair, a line each; also logged as warnings."""
        return tuple(line for line in (self._database.notice, *self.indexes.notices) if line)

    def unreadable(self) -> dict[str, str]:
        """Read the whole database; returns the error of each unreadable table by name."""
        return self._database.unreadable()

    @property
    def content_version(self) -> int:
        """Incremented by every transaction that changes a memory."""
        return self._database.cached_content_version()

    @property
    def version(self) -> tuple[object, ...]:
        """Which store, and a value that changes with every write, of memories or of what people make."""
        return self.path, self.team.version(), self.content_version

    @property
    def content_identity(self) -> str:
        """The identity of the content; it differs between diverged copies of a store, even at the same version."""
        return self._database.read(content_identity)

    def push(self) -> PushReport:
        """Copy labels, sets, configs and looks from this store's own database to the team's, each once. Raises InputError without a team,
        and StoreError."""
        if not self.team.place:
            raise InputError(f"no team database is configured: set {ENV_VARIABLE} to {_shared().address_form}")
        return _shared().push(EmbeddedTables(self._database), self.team, self.identity)

    def not_pushed(self) -> int:
        """Number of queries in this store's own database that the team's lacks; 0 without a team."""
        return _shared().missing(EmbeddedTables(self._database), self.team) if self.team.place else 0

    def add(
        self, parsed: ParsedInput, progress: Progress = silent, options: ImportOptions = DEFAULT_OPTIONS
    ) -> ImportReport:
        """Import one input in one transaction: all valid rows, or none if `progress` raises Cancelled; a large input in several."""
        with start_up.paused(), self._database.long_log():  # rows have no cycles
            report = import_input(self._database, self.team, parsed, progress, options)
        if self.memories.hidden and report.memories.total:  # one that an undo removed may be back
            with self._database.reading() as cursor:
                self.memories.reload_hidden(cursor)
        return report

    def side(self, indexes: Indexes, model_id: str) -> Side:
        """This store as one of two that are compared, with its open indexes."""
        return Side(self._database, indexes.vectors, model_id)

    def judged_texts(self, ids: Collection[str]) -> dict[str, Judged]:
        """The texts of these memories as they were judged, of those that have one."""
        return self._database.read(judged_texts.kept, ids)

    def find_judged(self, judged: Mapping[str, Judged], sought: Sought | None = None) -> dict[str, Found]:
        """Where these texts are here, by the id under which they were judged; `sought` has these texts, for several stores."""
        return self._database.read(judged_texts.found_in, judged, sought)

    def embedders(self) -> list[str]:
        """The models whose vectors this store has, the latest last."""
        found = self._database.read(records)
        return sorted(found, key=lambda name: (found[name].version or 0, name))

    def copy(self, path: Path) -> None:
        """Copy this store to a new folder, without gathered evidence and Chroma. Raises StoreError."""
        left_out = shutil.ignore_patterns("evidence", "chroma", "*.lock", "*.new")
        try:
            with self._database.writing():
                shutil.copytree(self.path, path, ignore=left_out)
        except (OSError, shutil.Error) as error:
            raise StoreError(f"{self.path} cannot be copied to {path}: {one_line(str(error))}") from error

    def put_back(self, source: Side, of: Difference, parts: Collection[str]) -> None:
        """Write parts of another store into this copy (`parts.put_back`)."""
        put_back(self._database, source.database, of, parts)
        with self._database.reading() as cursor:
            self.memories.reload_hidden(cursor)

    def plan_rebase(self, texts: Mapping[str, str] | None = None, *, by_itself: bool = False) -> Rebase:
        """Where the judged memories are now, and which judgments move; nothing is changed (`rebase.plan`)."""
        with start_up.paused():
            return self.team.persist(lambda: plan(self._database, self.team, texts, by_itself))

    def rebase(self, planned: Rebase) -> ImportReport:
        """Move the judgments of a plan, as an import on record; the doubtful pairs become a labelling queue."""
        parsed, queue = planned.as_input()
        return self.add(parsed, options=ImportOptions(queue=queue, outcome=planned.outcome))


def _check_directory(path: Path, create: bool) -> None:
    """Raise StoreError unless `path` is a store's directory or can become one."""
    if path.exists() and not path.is_dir():
        raise StoreError(f"store {path} is a file, not a directory")
    if (path / FILE_NAME).exists():
        return
    if not create:
        raise NoMemoriesError(f"no store at {path}; import something with --store {path} first")
    try:
        path.mkdir(parents=True, exist_ok=True)
        strangers = sorted(entry.name for entry in path.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        raise StoreError(f"store {path} cannot be created: {error.strerror}") from error
    if strangers:
        raise StoreError(f"{path} is not a store (it has {strangers[0]} but no {FILE_NAME}); name an empty directory")


_open: WeakSet[Store] = WeakSet()


def _close_all() -> None:
    """Close open stores at process exit, as the app leaves them open."""
    # A copy: closing removes the store from the set.
    for store in list(_open):
        try:
            store.close()
        except Exception as error:  # no caller is left; close the others too
            log.warning("store %s was not closed: %s", store.path, error)


atexit.register(_close_all)
# A forked child must not close the parent's stores when it exits.
os.register_at_fork(after_in_child=_open.clear)


def _shared() -> SharedTables:
    return next(iter(SHARED_TABLES.values()))
