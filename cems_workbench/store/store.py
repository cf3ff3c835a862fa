"""The store as the rest of the workbench sees it: one directory, one object.

A thin facade: the SQL of each table family and the code of each index live in files of their own. Methods may be
called from any thread; each works on one committed state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from cems_workbench.errors import StoreError
from cems_workbench.models.protocol import Embedder, PairScore
from cems_workbench.progress import Progress, silent
from cems_workbench.records import GradeScale, Judgment, Memory, ParsedInput, Query, Relation
from cems_workbench.store import (
    browsing,
    experiment_rows,
    judgment_rows,
    learned_pairs,
    memory_rows,
    query_rows,
    relation_rows,
    reply_cache,
    saved_states,
    schema,
    score_cache,
    statistics,
)
from cems_workbench.store.browsing import DeletedMemory, Facets, Page, Selection
from cems_workbench.store.config_history import ConfigHistory
from cems_workbench.store.database import FILE_NAME, Database
from cems_workbench.store.filter import ANY, Filter
from cems_workbench.store.holdout_looks import HoldoutLooks
from cems_workbench.store.importing import import_rows
from cems_workbench.store.labels import Labels
from cems_workbench.store.learned_pairs import LearnedPair
from cems_workbench.store.query_sets import QuerySets
from cems_workbench.store.reports import Experiment, ImportReport, IndexState, QuerySet, RefreshReport
from cems_workbench.store.search.indexes import DerivedIndexes, Indexes
from cems_workbench.store.search.vocabulary import CurrentVocabulary, Vocabulary
from cems_workbench.store.statistics import Duplicates, Statistics


class Store:
    """An open store; a context manager. Open it with `Store.open`."""

    def __init__(self, path: Path, database: Database, chroma_url: str | None) -> None:
        self.path = path
        self._database = database
        with database.reading() as cursor:
            # Shared with the open indexes, which leave these out of their hits until a refresh removes them.
            self._deleted = memory_rows.deleted_ids(cursor)
            self.identity = schema.read_meta(cursor, "store_id") or ""
        self.sets = QuerySets(database)
        """Making and changing query sets."""
        self.labels = Labels(database)
        """Giving labels and taking them back, deciding conflicts, queues."""
        self.history = ConfigHistory(database)
        """Configs that were kept, with who, when, why and the evidence."""
        self.holdouts = HoldoutLooks(database)
        """How often the sealed queries of a set were looked at."""
        self._vocabulary = CurrentVocabulary(path / "lexical", database)
        self._derived = DerivedIndexes(path, database, self.identity, chroma_url, self._deleted)

    @classmethod
    def open(cls, path: Path, *, create: bool = True, chroma_url: str | None = None) -> Store:
        """Open the store in directory `path`, creating it unless `create` is False.

        `chroma_url` names a Chroma server to use in place of the embedded one. Raises StoreLockedError when another
        process has it open, StoreError for what is not a store, is damaged or comes from a newer version.
        """
        path = Path(path)
        _check_directory(path, create)
        return cls(path, Database(path), chroma_url)

    @staticmethod
    def exists(path: Path) -> bool:
        """Whether a directory holds a store, of whatever version."""
        return (Path(path) / FILE_NAME).is_file()

    def close(self) -> None:
        """Release the files; everything that was reported done is already on disk."""
        self._derived.close()
        self._database.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def content_version(self) -> int:
        """Grows by one with every transaction that changes a memory."""
        with self._database.reading() as cursor:
            return int(schema.read_meta(cursor, "content_version") or 0)

    def add(
        self,
        parsed: ParsedInput,
        progress: Progress = silent,
        query_set: str | None = None,
        scale: GradeScale | None = None,
        when: datetime | None = None,
    ) -> ImportReport:
        """Import one input in one transaction: all its good rows, or none when `progress` raises Cancelled.

        Its queries go into the set `query_set`, by default one named after the input; `scale` is what that set is graded
        on from now on. Inputs added with one `when` (default: now) make one version of a set together.
        """
        with self._database.transaction() as cursor:
            return import_rows(cursor, parsed, progress, when or datetime.now(UTC), query_set, scale)

    def update(self, memory: Memory, expected: Memory | None = None) -> bool:
        """Replace a live memory by `memory`, which has the same id; False when nothing differs.

        `expected` is the memory as it was when the editing began. Raises StoreError when there is no such live memory,
        or when it no longer is as `expected`, so that nobody's change is overwritten unseen.
        """
        with self._database.transaction() as cursor:
            present = memory_rows.read(cursor, [memory.id]).get(memory.id)
            if present is None:
                raise StoreError(f"memory {memory.id} is not there any more; it was deleted meanwhile")
            if expected is not None and present != expected:
                raise StoreError(f"memory {memory.id} was changed meanwhile; open it again and repeat your edit")
            if present == memory:
                return False
            memory_rows.upsert(cursor, [memory])
            schema.bump_content_version(cursor)
        return True

    def delete(self, memory_id: str) -> bool:
        """Hide a memory from everything until `restore`; False when there is no such live memory."""
        return self._set_deleted(memory_id, datetime.now(UTC))

    def restore(self, memory_id: str) -> bool:
        """Bring back a deleted memory; False when it is not deleted."""
        return self._set_deleted(memory_id, None)

    def _set_deleted(self, memory_id: str, when: datetime | None) -> bool:
        with self._database.transaction() as cursor:
            changed = memory_rows.set_deleted(cursor, memory_id, when)
            if changed:
                schema.bump_content_version(cursor)
        if changed and when is None:
            self._deleted.discard(memory_id)
        elif changed:
            self._deleted.add(memory_id)
        return changed

    def memory(self, memory_id: str) -> Memory | None:
        """One live memory, None when there is none of that id."""
        return self.memories([memory_id]).get(memory_id)

    def memories(self, ids: Iterable[str] | None = None) -> dict[str, Memory]:
        """Live memories by id: those of `ids` in that order (unknown ones are absent), or all, by id."""
        with self._database.reading() as cursor:
            return memory_rows.read(cursor, None if ids is None else list(ids))

    def each_memory(self, project: str | None = None) -> Iterator[Memory]:
        """The live memories by id, of one project or all, as of one moment; read in portions, for stores of any size."""
        with self._database.reading() as cursor:
            yield from memory_rows.each(cursor, project)

    def find(self, selection: Selection, limit: int, offset: int = 0) -> Page:
        """`limit` live memories of a selection from `offset` on, in its order, and the size of the whole selection."""
        with self._database.reading() as cursor:
            return browsing.find(cursor, selection, limit, offset)

    def facets(self, most: int = 500) -> Facets:
        """The categories, projects and sessions in use with their number of memories; the `most` frequent of each."""
        with self._database.reading() as cursor:
            return browsing.facets(cursor, most)

    def deleted(self, limit: int, offset: int = 0) -> tuple[list[DeletedMemory], int]:
        """`limit` deleted memories from `offset` on, latest deletion first, and how many there are in all."""
        with self._database.reading() as cursor:
            return browsing.deleted(cursor, limit, offset)

    def statistics(self, now: datetime) -> Statistics:
        """Counts by category, project, month, age (back from `now`) and length."""
        with self._database.reading() as cursor:
            return statistics.read(cursor, now)

    def exact_duplicates(self, limit: int) -> tuple[list[Duplicates], int]:
        """Contents that several live memories share to the character, most first, and how many there are in all."""
        with self._database.reading() as cursor:
            return statistics.exact_duplicates(cursor, limit)

    def count(self) -> int:
        """Number of live memories."""
        with self._database.reading() as cursor:
            return memory_rows.count(cursor)

    def projects(self) -> list[tuple[str | None, int]]:
        """Projects (None: untagged) with their number of memories, most first."""
        with self._database.reading() as cursor:
            return memory_rows.projects(cursor)

    def queries(self, set: str | None = None, version: int | None = None) -> list[Query]:
        """All stored queries by qid, or those of a query set as they were in one version of it (the latest when None).

        Raises StoreError when there is no such set or version.
        """
        if set is None:
            with self._database.reading() as cursor:
                return query_rows.read(cursor)
        return self.sets.queries(set, version)

    def query_sets(self) -> list[QuerySet]:
        """The latest version of every query set, by name."""
        return self.sets.latest()

    def query_set(self, name: str, version: int | None = None) -> QuerySet:
        """One query set in one version, the latest when None; raises StoreError when there is none."""
        return self.sets.one(name, version)

    def judgments(self, qid: str | None = None, kind: str | None = None) -> list[Judgment]:
        """Judgments of live memories, of one query or of all, of kind "human" or "model" or both."""
        with self._database.reading() as cursor:
            return judgment_rows.read(cursor, qid, kind)

    def judgments_of(self, memory_id: str) -> list[tuple[Judgment, str]]:
        """The judgments of one memory with the words of their queries, highest grade first."""
        with self._database.reading() as cursor:
            return judgment_rows.of_memory(cursor, memory_id)

    def relations(self) -> list[Relation]:
        """All relations between live memories."""
        with self._database.reading() as cursor:
            return relation_rows.read(cursor)

    def relations_of(self, memory_id: str) -> list[Relation]:
        """The relations from and to a memory (outgoing first, strongest first), those with deleted memories left out."""
        with self._database.reading() as cursor:
            return relation_rows.touching(cursor, memory_id)

    def remove_judgment(self, qid: str, memory_id: str, judge: str = "human", kind: str = "human") -> bool:
        """Take back one judgment; False when there was none. What it was stays in the judge's history."""
        with self._database.transaction() as cursor:
            return judgment_rows.remove(cursor, (qid, memory_id, judge, kind), datetime.now(UTC))

    def neighbours(self, seeds: Sequence[str], per_seed: int) -> list[tuple[str, str, float]]:
        """(seed, neighbour, weight): related memories in both directions, best weight first per seed, ties by id."""
        with self._database.reading() as cursor:
            return relation_rows.neighbours(cursor, seeds, per_seed)

    def newest_by_access(self, size: int, where: Filter = ANY) -> list[str]:
        """Ids of the `size` most recently accessed memories (created, when never accessed; undated last)."""
        with self._database.reading() as cursor:
            return memory_rows.newest_by_access(cursor, size, where)

    def cached_scores(self, model: str, query: str, texts: Sequence[str]) -> list[PairScore | None]:
        """Scores kept for exactly these texts; `model` names the model with its revision and prompt version."""
        with self._database.reading() as cursor:
            return score_cache.read(cursor, model, query, texts)

    def cache_scores(self, model: str, query: str, scored: Sequence[tuple[str, PairScore]]) -> None:
        """Keep (text, score) pairs; failures and scores that are not finite are left out."""
        with self._database.transaction() as cursor:
            score_cache.write(cursor, model, query, scored)

    def cached_reply(self, key: tuple[str, str, str]) -> str | None:
        """A language model's reply, kept by (model, prompt version, digest of what was sent); None when there is none."""
        with self._database.reading() as cursor:
            return reply_cache.read(cursor, key)

    def keep_reply(self, key: tuple[str, str, str], reply: str) -> None:
        """Keep a language model's reply."""
        with self._database.transaction() as cursor:
            reply_cache.write(cursor, key, reply)

    def vocabulary(self) -> Vocabulary:
        """The words of the live memories with the number of memories each stands in, computed once per content version."""
        return self._vocabulary.read()

    def learned_pairs(self) -> list[LearnedPair]:
        """The corrections of typos that were learned or refused, latest first."""
        with self._database.reading() as cursor:
            return learned_pairs.read(cursor)

    def learn_pairs(
        self, pairs: Iterable[tuple[str, str]], most: int, when: datetime | None = None
    ) -> list[tuple[str, str]]:
        """Count an acceptance (now, or `when`) of each (typo, correction), keep the `most` latest, return those learned.

        A typo's earlier correction is replaced; a refused pair is passed over.
        """
        with self._database.transaction() as cursor:
            return learned_pairs.learn(cursor, pairs, most, when or datetime.now(UTC))

    def refuse_pair(self, typo: str, correction: str, when: datetime | None = None) -> None:
        """Remember that a correction is wrong, so that it is neither used nor learned until it is forgotten."""
        with self._database.transaction() as cursor:
            learned_pairs.refuse(cursor, (typo, correction), when or datetime.now(UTC))

    def forget_pair(self, typo: str, correction: str) -> bool:
        """Take one learned or refused correction away; False when there was none."""
        with self._database.transaction() as cursor:
            return learned_pairs.forget(cursor, (typo, correction))

    def forget_learned(self) -> int:
        """Take all learned corrections away and return how many; what was refused stays refused."""
        with self._database.transaction() as cursor:
            return learned_pairs.forget_all(cursor)

    def save_experiment(
        self, name: str, config_yaml: str, note: str = "", evidence: dict[str, Any] | None = None
    ) -> int:
        """Keep a configuration with its evidence card (JSON values); returns its id."""
        with self._database.transaction() as cursor:
            return experiment_rows.save(cursor, name, config_yaml, note, evidence or {})

    def experiments(self) -> list[Experiment]:
        """All kept experiments, newest first."""
        with self._database.reading() as cursor:
            return experiment_rows.read(cursor)

    def keep_state(self, state: Mapping[str, Any]) -> str:
        """Keep a state of a page (JSON values) for good; its short id, which is the same for the same state."""
        with self._database.transaction() as cursor:
            return saved_states.keep(cursor, state)

    def kept_state(self, state_id: str) -> dict[str, Any] | None:
        """The state kept under a short id, None when there is none."""
        with self._database.reading() as cursor:
            return saved_states.read(cursor, state_id)

    def indexes(self, embedder: Embedder) -> Indexes:
        """The derived indexes as the last refresh left them; their `states` say whether that is up to date.

        Ask again after a refresh: the objects given before stay usable, but show the content before it.
        """
        return self._derived.open(embedder)

    def refresh(self, embedder: Embedder, progress: Progress = silent) -> RefreshReport:
        """Bring both derived indexes to the present content; a cancelled refresh is continued by the next."""
        return self._derived.refresh(embedder, progress)

    def rebuild(self, embedder: Embedder, progress: Progress = silent) -> RefreshReport:
        """Drop both derived indexes and build them anew from the memories; a cancelled one is continued by `refresh`.

        Indexes opened before may fail from then on; ask for them again afterwards.
        """
        return self._derived.rebuild(embedder, progress)

    def index_state(self, embedder_id: str | None = None) -> list[IndexState]:
        """The lexical index and the vectors of one embedder (of all known ones when None)."""
        return self._derived.states(embedder_id)


def _check_directory(path: Path, create: bool) -> None:
    """Make sure `path` is a store's directory or may become one; raises StoreError."""
    if path.exists() and not path.is_dir():
        raise StoreError(f"store {path} is a file, not a directory")
    if (path / FILE_NAME).exists():
        return
    if not create:
        raise StoreError(f"no store at {path}; import something with --store {path} first")
    try:
        path.mkdir(parents=True, exist_ok=True)
        strangers = sorted(entry.name for entry in path.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        raise StoreError(f"store {path} cannot be created: {error.strerror}") from error
    if strangers:
        raise StoreError(f"{path} is not a store (it has {strangers[0]} but no {FILE_NAME}); name an empty directory")
