"""The memories: reads and writes of the `memories` table.

A deleted memory keeps its row (`deleted_at` is set) and only `deleted` returns it. Importing it again updates the row but does not
restore it, so that a periodic import keeps a user's deletions. Every change of a memory increments the store's content version in the
same transaction.

`Memories` is the public interface; the functions work on a cursor, for callers with their own transaction.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from cems_workbench.errors import StoreError, nearest
from cems_workbench.records import DEFAULT_TEXT_RULE, TIMES, Memory, TextRule
from cems_workbench.store import rows as tables
from cems_workbench.store import statistics
from cems_workbench.store.database import Database
from cems_workbench.store.filter import ANY, Filter
from cems_workbench.store.statistics import Duplicates, Selection, Statistics
from cems_workbench.store.text_rule import searched_text, text_rule

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

FIELDS = tuple(each.name for each in dataclasses.fields(Memory))
COLUMNS = (*FIELDS, "text_sha", "size", "folded")
MANY_IDS = 500
"""From this many ids on, querying the ones that are not live is faster."""
BATCH_ROWS = 5_000
"""Rows per batch when all memories are read."""
MAX_CACHED_PAGE = 500
"""The largest page that is cached."""
MAX_KEPT = 2_000
"""Memories that are kept after a read."""
ROWS_PER_LOOKUP = 300
"""A lookup by key takes about as long as scanning this many rows."""
LOOKUP_BATCH = 2_000
"""Keys per statement: DuckDB uses the index for at most 2,048."""
FIELD_SEPARATOR = "\x1f"
"""Separates the fields of a folded text, so that no match spans two of them."""
_SET = ", ".join(f"{name} = s.{name}" for name in COLUMNS if name != "id")
_DIFFERS = " OR ".join(
    f"m.{name} IS DISTINCT FROM s.{name}" for name in COLUMNS if name not in ("id", "content", "folded")
)
"""Texts are compared by hash: comparing them directly, DuckDB would hold 2,048 in memory."""
_INDEXED_DIFFERS = " OR ".join(
    f"m.{name} IS DISTINCT FROM s.{name}" for name in ("text_sha", "title", "project", "scope")
)
"""Whether a change affects the indexes."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a selection, in its order, and the size of the selection."""

    memories: tuple[Memory, ...]
    total: int


@dataclass(frozen=True, slots=True)
class Facets:
    """The values in use with their number of live memories, most first; None is "has none"."""

    categories: tuple[tuple[str | None, int], ...]
    projects: tuple[tuple[str | None, int], ...]
    sessions: tuple[tuple[str | None, int], ...]
    authors: tuple[tuple[str | None, int], ...]


@dataclass(frozen=True, slots=True)
class DeletedMemory:
    memory: Memory
    deleted_at: datetime


class Origin(NamedTuple):
    id: str
    created_at: datetime | None
    project: str | None
    session: str | None
    author: str | None
    source_ref: str | None


class Memories:
    """The memories of an open store. Thread-safe."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._cache = tables.VersionedCache(database)
        self._kept: tuple[int, dict[str, Memory]] = -1, {}
        with database.reading() as cursor:
            self.hidden = hidden_ids(cursor)
            """Ids of the deleted memories, and of those that an undo removed; open indexes share this set and filter their hits by it until
            the next refresh."""
        database.on_change(self.reload_hidden)

    def reload_hidden(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Reload the ids that no search returns, after a write of another process or an undo."""
        now = hidden_ids(cursor)
        # Changed in place, and never empty in between: open indexes filter by the same set.
        self.hidden.update(now)
        self.hidden.intersection_update(now)

    def get(self, memory_id: str) -> Memory | None:
        """The live memory with this id, or None."""
        return self.read([memory_id]).get(memory_id)

    def read(self, ids: Iterable[str] | None = None) -> dict[str, Memory]:
        """Live memories by id: those of `ids` in that order (unknown ids are absent), or all, sorted by id. The last
        few are kept until the content changes: queries that are gathered together have most candidates in common."""
        wanted = None if ids is None else list(dict.fromkeys(ids))
        if wanted is None or len(wanted) > MAX_KEPT:
            return self._database.read(read, wanted)
        at, kept = self._kept
        if at != (version := self._database.cached_content_version()):
            kept = {}
        if missing := [name for name in wanted if name not in kept]:
            with self._database.reading() as cursor:
                if (at := tables.read_content_version(cursor)) != version:  # another process has written since
                    kept, missing = {}, wanted
                found = read(cursor, missing)
            if len(kept) + len(found) > MAX_KEPT:
                kept = {name: kept[name] for name in wanted if name in kept}
            kept = kept | found
            self._kept = at, kept
        return {name: kept[name] for name in wanted if name in kept}

    def before(self, memories: Iterable[Memory], edited: Memory | None = None) -> dict[str, str]:
        """By id, the text of the previous live memory in the same session, by time. Absent if there is none, several
        have the same time, or its scope differs. `edited` replaces the stored memory with its id."""
        placed = [memory for memory in memories if memory.session is not None and memory.created_at is not None]
        return self._database.read(_before, placed, edited) if placed else {}

    def with_contents(self, contents: Sequence[str]) -> dict[str, str]:
        """By content the id of the memory that has it, the first of several; deleted ones are left out."""
        rows = self._database.rows(
            "SELECT content, min(id) FROM memories WHERE deleted_at IS NULL AND content IN (SELECT unnest(?)) GROUP BY content",
            [list(contents)],
        )
        return dict(rows)

    def stored(self, ids: Iterable[str]) -> set[str]:
        """Those of `ids` that have a row, deleted memories included."""
        return self._database.read(known_ids, list(ids))

    def known(self, ids: Iterable[str]) -> set[str]:
        return live(self._database, list(ids))

    def ids(self) -> list[str]:
        """Ids of the live memories, sorted."""
        return self._database.read(tables.column, "SELECT id FROM memories WHERE deleted_at IS NULL ORDER BY id")

    def origins(self) -> list[Origin]:
        """When and where each live memory was written, sorted by id; no texts are read."""
        rows = self._database.rows(
            "SELECT id, created_at, project, session, author, source_ref FROM memories WHERE deleted_at IS NULL ORDER BY id"
        )
        return [Origin(row[0], tables.to_aware(row[1]), *row[2:]) for row in rows]

    def iterate(self, project: str | None = None) -> Iterator[Memory]:
        """The live memories sorted by id, of one project or all, those of one moment; the database lock is released
        between batches. The ids are sorted first: sorting whole rows would load all texts into memory. Row numbers
        would be faster, but may change while the lock is released."""
        of_project = "SELECT id FROM memories WHERE deleted_at IS NULL AND coalesce(project = ?, ? IS NULL) ORDER BY id"
        ids = self._database.read(tables.column, of_project, [project, project])
        for some in tables.portions(ids, BATCH_ROWS):
            yield from self.read(some).values()

    def count(self) -> int:
        """Number of live memories."""
        return self._cache.get("count", count)

    def titled(self) -> int:
        """Number of live memories with a title that their content does not begin with."""
        condition = "deleted_at IS NULL AND title <> '' AND NOT starts_with(content, title)"
        return self._cache.get(
            "titled", lambda cursor: int(tables.scalar(cursor, f"SELECT count(*) FROM memories WHERE {condition}"))
        )

    def ids_by(self, author: str) -> frozenset[str]:
        """The ids of the live memories of an author."""
        command = "SELECT id FROM memories WHERE deleted_at IS NULL AND author = ?"
        return self._cache.get(("by", author), lambda cursor: frozenset(tables.column(cursor, command, [author])))

    def projects(self) -> list[tuple[str | None, int]]:
        """Projects (None: untagged) with their number of live memories, most first, ties by name."""
        return list(self._cache.get("projects", lambda cursor: statistics.counts(cursor, "project")))

    def project_problem(self, project: str | None) -> str | None:
        """An error with the nearest name if no memory is in this project; None if one is, or no project is given."""
        return self._problem("project", project, self.projects())

    def author_problem(self, author: str | None) -> str | None:
        """The same of an author."""
        return None if author is None or self.ids_by(author) else self._problem("author", author, self.facets().authors)

    def _problem(self, field: str, name: str | None, counts: Iterable[tuple[str | None, int]]) -> str | None:
        known = [each for each, _ in counts if each is not None]
        if name is None or name in known:
            return None
        close = nearest(name, known)
        hint = f"did you mean {close}?" if close else f"there are {', '.join(sorted(known)[:10]) or 'none'}"
        return f"no memory of {field} {name!r}; {hint}"

    def find(self, selection: Selection, limit: int, offset: int = 0) -> Page:
        """`limit` live memories of a selection from `offset` on, in its order, and the size of the selection."""

        def page(cursor: duckdb.DuckDBPyConnection) -> Page:
            # Ids only, because sorting whole rows would move every text.
            ids = f"SELECT id FROM memories WHERE {condition} ORDER BY {selection.order()} LIMIT ? OFFSET ?"
            found = read(cursor, tables.column(cursor, ids, [*parameters, limit, offset]))
            return Page(tuple(found.values()), self.matching(selection))

        condition, parameters = selection.sql()
        return (
            self._database.read(page) if limit > MAX_CACHED_PAGE else self._cache.get((selection, limit, offset), page)
        )

    def matching(self, selection: Selection) -> int:
        # The size is the same for every order, so all orders share one entry.
        unordered = replace(selection, sort="id", descending=False)
        condition, parameters = selection.sql()
        of_selection = f"SELECT count(*) FROM memories WHERE {condition}"
        return self._cache.get(
            ("matching", unordered), lambda cursor: int(tables.scalar(cursor, of_selection, parameters))
        )

    def facets(self, most: int = 500) -> Facets:
        """The categories, projects, sessions and authors in use with their number of memories; the `most` frequent of each."""
        columns = ("category", "project", "session", "author")
        return self._cache.get(
            f"facets {most}", lambda cursor: Facets(*(statistics.counts(cursor, column, most) for column in columns))
        )

    def filled(self) -> dict[str, int]:
        """How many live memories have a date, an access, a vote, a project, and high importance."""
        having = {
            "dates": "created_at IS NOT NULL",
            "accesses": "access_count > 0 OR last_accessed IS NOT NULL",
            "votes": "relevant_count + noise_count > 0",
            "projects": "project IS NOT NULL",
            "high importance": "importance = 'high'",
        }
        columns = ", ".join(f"count(*) FILTER ({condition})" for condition in having.values())
        row = self._database.rows(f"SELECT {columns} FROM memories WHERE deleted_at IS NULL")[0]
        return dict(zip(having, map(int, row), strict=True))

    def any_validity(self) -> bool:
        """Whether a live memory has a `valid_from` or a `valid_until`."""
        said = (
            "SELECT 1 FROM memories WHERE deleted_at IS NULL AND coalesce(valid_from, valid_until) IS NOT NULL LIMIT 1"
        )
        return self._cache.get("any validity", lambda cursor: bool(cursor.execute(said).fetchall()))

    def newest_by_access(self, size: int, where: Filter = ANY) -> list[str]:
        """Ids of the `size` most recently accessed memories (created, when never accessed; undated last), ties by id."""
        return self._newest("coalesce(last_accessed, created_at)", size, where)

    def newest_by_creation(self, size: int, where: Filter = ANY) -> list[str]:
        """Ids of the `size` most recently created memories (undated last), ties by id."""
        return self._newest("created_at", size, where)

    def _newest(self, moment: str, size: int, where: Filter) -> list[str]:
        condition, parameters = where.sql()
        order = f"ORDER BY {moment} DESC NULLS LAST, id LIMIT ?"
        newest = f"SELECT id FROM memories WHERE deleted_at IS NULL AND {condition} {order}"
        return self._database.read(tables.column, newest, [*parameters, size])

    def statistics(self) -> Statistics:
        """Counts by category, project, month and length."""
        return self._database.read(statistics.read)

    def exact_duplicates(self, limit: int) -> tuple[list[Duplicates], int]:
        """`limit` contents shared exactly by several live memories, most first, and the total number of such contents."""
        return self._cache.get(("duplicates", limit), lambda cursor: statistics.exact_duplicates(cursor, limit))

    def update(self, memory: Memory, expected: Memory | None = None) -> bool:
        """Replace the live memory with the id of `memory`; False if nothing differs. `expected` is the memory at the
        start of the edit. Raises StoreError if there is no such live memory, or if it no longer equals `expected`, so
        that concurrent changes are not overwritten."""
        with self._database.transaction() as cursor:
            present = read(cursor, [memory.id]).get(memory.id)
            if present is None:
                raise StoreError(f"memory {memory.id} no longer exists; it was deleted while you edited it")
            if expected is not None and present != expected:
                raise StoreError(
                    f"memory {memory.id} was changed while you edited it; open it again and repeat your edit"
                )
            if present == memory:
                return False
            upsert(cursor, staging([memory], rule=text_rule(cursor)))
            tables.bump_content_version(cursor)
        return True

    def count_feedback(self, counts: Mapping[str, tuple[int, int]]) -> int:
        """Set how often each memory was relevant and noise, which `adjust.feedback` reads; returns how many changed.
        `counts` (relevant, noise) by memory id come from `formats.judgments.counts`; other memories keep theirs."""
        if not counts:
            return 0
        table = tables.table_of(
            "id string, relevant int64, noise int64", [(key, *each) for key, each in counts.items()]
        )
        with self._database.transaction() as cursor, tables.staged(cursor, "staged_feedback", table):
            changed = tables.scalar(
                cursor,
                "UPDATE memories AS m SET relevant_count = s.relevant, noise_count = s.noise FROM staged_feedback AS s "
                "WHERE m.id = s.id AND m.deleted_at IS NULL AND (m.relevant_count <> s.relevant OR m.noise_count <> s.noise)",
            )
            if changed:
                tables.bump_content_version(cursor)
        return int(changed)

    def delete(self, memory_id: str) -> bool:
        """Mark a memory deleted until `restore`; False if there is no such live memory."""
        return self._set_deleted(memory_id, datetime.now(UTC))

    def restore(self, memory_id: str) -> bool:
        """Restore a deleted memory; False if it is not deleted."""
        return self._set_deleted(memory_id, None)

    def _set_deleted(self, memory_id: str, when: datetime | None) -> bool:
        """Mark a memory deleted at `when`, or live with None; False if nothing changes."""
        state = "IS NULL" if when is not None else "IS NOT NULL"
        with self._database.transaction() as cursor:
            set_deleted = f"UPDATE memories SET deleted_at = ?, changed = ? WHERE id = ? AND deleted_at {state}"
            changed = tables.scalar(
                cursor, set_deleted, [tables.to_naive(when), tables.next_version(cursor), memory_id]
            )
            if changed:
                tables.bump_content_version(cursor)
        if changed and when is None:
            self.hidden.discard(memory_id)
        elif changed:
            self.hidden.add(memory_id)
        return bool(changed)

    def deleted(self, limit: int, offset: int = 0) -> tuple[list[DeletedMemory], int]:
        """`limit` deleted memories from `offset` on, latest deletion first, and their total number."""
        with self._database.reading() as cursor:
            total = tables.scalar(cursor, "SELECT count(*) FROM memories WHERE deleted_at IS NOT NULL")
            rows = cursor.execute(
                f"SELECT deleted_at, {', '.join(FIELDS)} FROM memories WHERE deleted_at IS NOT NULL "
                "ORDER BY deleted_at DESC, id LIMIT ? OFFSET ?",
                [limit, offset],
            ).fetchall()
        return [DeletedMemory(record(row[1:]), row[0].replace(tzinfo=UTC)) for row in rows], int(total)


def staging(
    memories: Sequence[Memory], sha: Callable[[str], str] = tables.text_sha, rule: TextRule = DEFAULT_TEXT_RULE
) -> pa.Table:
    """The rows as an Arrow table with COLUMNS; `sha` is `text_sha` or a caching version of it, `rule` that of the store."""
    import pyarrow as pa

    columns = zip(*map(_values_of, memories), strict=True) if memories else [()] * len(FIELDS)
    values: dict[str, Sequence[Any]] = dict(zip(FIELDS, columns, strict=True))
    written = {each: json.dumps(each, ensure_ascii=False) for each in set(map(tuple, values["tags"]))}
    values |= {
        "text_sha": [sha(searched_text(memory, rule)) for memory in memories],
        "size": list(map(len, values["content"])),
        "folded": list(map(folded, *(values[name] for name in ("id", "title", "content", "tags")))),
        "tags": [written[tuple(each)] for each in values["tags"]],
    }
    text, number, moment = pa.large_string(), pa.int64(), pa.timestamp("us", "UTC")
    kinds = {"priority": pa.float64(), "pinned": pa.bool_(), **dict.fromkeys(TIMES, moment)}
    kinds |= dict.fromkeys(("access_count", "relevant_count", "noise_count", "size"), number)
    made = {name: pa.array(values[name], kinds.get(name, text)) for name in COLUMNS}
    if memories:  # a cast loads what takes half a second
        made |= {name: made[name].cast(pa.timestamp("us")) for name in TIMES}  # UTC without a zone
    return pa.table(made).replace_schema_metadata({_RULE: str(rule)})


_values_of = attrgetter(*FIELDS)
_RULE = "text rule"
"""Of the metadata of a staged table: by which rule its `text_sha` were made."""


def folded(memory_id: str, title: str | None, content: str, tags: Sequence[str]) -> str:
    """The text of literal search: id, title, content and tags, case-folded."""
    return FIELD_SEPARATOR.join((memory_id, title or "", content, *tags)).casefold()


def upsert(
    cursor: duckdb.DuckDBPyConnection,
    rows: pa.Table,
    *,
    new: bool = False,
    same: bool = False,
    by: int | tables.Mark = tables.EDITED,
) -> tables.RowCounts:
    """Insert new rows of `staging` and update those that differ; their ids must be distinct.

    `new`: none of them has a row yet; `same`: none differs from its row.

    `by` is what writes them: an input on record, which keeps what it replaces, EDITED or FROM_SOURCE.
    Their `changed` is the content version that this transaction creates. Raises StoreError if the text rule was changed meanwhile.
    """
    rule = text_rule(cursor)
    if (rows.schema.metadata or {}).get(_RULE.encode(), str(rule).encode()) != str(rule).encode():
        raise StoreError("the text that is searched was changed while memories were imported; import them again")
    version, columns = tables.next_version(cursor), ", ".join(COLUMNS)
    writer = by.id if isinstance(by, tables.Mark) else by
    insert = (
        f"INSERT INTO memories ({columns}, changed, origin, added_by) SELECT {columns}, ?, ?, ? FROM staged_memories"
    )
    with tables.staged(cursor, "staged_memories", rows):
        # Without known rows a plain INSERT is enough. It keeps the input order, which is that of a server's
        # table; INSERT OR IGNORE would not keep it.
        if new or not cursor.execute("SELECT 1 FROM memories SEMI JOIN staged_memories USING (id) LIMIT 1").fetchall():
            cursor.execute(insert, [version, writer, writer])
            return tables.RowCounts(added=rows.num_rows)
        updated = 0 if same else _update(cursor, rows, rule, version, by)
        added = tables.scalar(cursor, f"{insert} WHERE id NOT IN (SELECT id FROM memories)", [version, writer, writer])
    return tables.RowCounts(added, updated, rows.num_rows - added - updated)


def _update(
    cursor: duckdb.DuckDBPyConnection, rows: pa.Table, rule: TextRule, version: int, by: int | tables.Mark
) -> int:
    """Update the memories from which staged rows differ; an input keeps their values before. Returns their number."""
    if isinstance(by, tables.Mark):
        cursor.execute(
            f"INSERT INTO memories_before (input, origin, {', '.join(FIELDS)}) "
            f"SELECT ?, m.origin, {', '.join(f'm.{name}' for name in FIELDS)} FROM memories AS m "
            f"JOIN staged_memories AS s USING (id) WHERE ({_changes(rows, rule)}) AND {tables.FOREIGN.format('m')}",
            [by.id, by.inputs],
        )
    writer = by.id if isinstance(by, tables.Mark) else by
    updated = tables.scalar(
        cursor,
        f"UPDATE memories AS m SET {_SET}, origin = ?, changed = CASE WHEN {_INDEXED_DIFFERS} THEN ? ELSE m.changed END "
        f"FROM staged_memories AS s WHERE m.id = s.id AND ({_DIFFERS})",
        [writer, version],
    )
    # The indexed text is the same whether the content repeats the title or not, and past its first tokens: `text_sha` misses this.
    if rows["title"].null_count < rows.num_rows or rule.first_tokens is not None:
        updated += tables.scalar(
            cursor,
            f"UPDATE memories AS m SET {_SET}, origin = ?, changed = ? FROM staged_memories AS s "
            "WHERE m.id = s.id AND (s.title <> '' OR ?) AND m.content <> s.content",
            [writer, version, rule.first_tokens is not None],
        )
    return int(updated)


def _changes(rows: pa.Table, rule: TextRule) -> str:
    """The condition that a staged memory `s` differs from the stored `m`."""
    if rule.first_tokens is not None:
        return f"{_DIFFERS} OR m.content <> s.content"
    titled_rows = rows["title"].null_count < rows.num_rows
    return f"{_DIFFERS} OR (s.title <> '' AND m.content <> s.content)" if titled_rows else _DIFFERS


class Differing(NamedTuple):
    """The rows of `staging` that differ from their memory: by id what brought those of others, and whether there are `own` ones."""

    others: dict[str, str]
    own: bool


def differing(cursor: duckdb.DuckDBPyConnection, rows: pa.Table, own: Sequence[int]) -> Differing | None:
    """The rows of `staging` that differ from their memory, which one of the inputs `own` wrote or another; None if all rows are new."""
    with tables.staged(cursor, "staged_memories", rows):
        if not cursor.execute("SELECT 1 FROM memories SEMI JOIN staged_memories USING (id) LIMIT 1").fetchall():
            return None
        found = cursor.execute(
            f"SELECT m.id, {tables.FOREIGN.format('m')}, m.origin, i.brought_by FROM memories AS m JOIN staged_memories AS s USING (id) "
            f"LEFT JOIN (SELECT id, {tables.BROUGHT_BY} AS brought_by FROM imports) AS i ON i.id = m.origin "
            f"WHERE {_changes(rows, text_rule(cursor))} ORDER BY m.id",
            [list(own)],
        ).fetchall()
        others = {
            memory_id: tables.AN_EDIT if origin == tables.EDITED else brought_by or tables.NOT_RECORDED
            for memory_id, of_others, origin, brought_by in found
            if of_others
        }
        if tables.NOT_RECORDED in others.values():
            others |= cursor.execute(
                "SELECT r.memory_id, o.address FROM source_rows AS r JOIN sources AS o ON o.id = r.source_id "
                "WHERE r.marker IS NOT NULL AND r.memory_id IN (SELECT unnest(?)) ORDER BY o.id",
                [[memory_id for memory_id, who in others.items() if who == tables.NOT_RECORDED]],
            ).fetchall()
    return Differing(others, len(others) < len(found))


def known_ids(cursor: duckdb.DuckDBPyConnection, ids: Sequence[str]) -> set[str]:
    """Those of `ids` that have a row, deleted ones included."""
    if len(ids) >= MANY_IDS:
        return _but_those_not_in(cursor, ids, "memories")
    return {*tables.column(cursor, "SELECT id FROM memories WHERE id IN (SELECT unnest(?))", [list(ids)])}


_PATH = r"regexp_replace(lower(regexp_replace({}, '^(qmd://|\./|/)|\.(md|mdx|markdown|txt)$', '', 'g')), '[^\pL\pN/]+', '-', 'g')"


def of_paths(cursor: duckdb.DuckDBPyConnection, paths: Collection[str]) -> dict[str, str]:
    """The one memory whose id is a file's path, or ends in it, or is its end: without ending, in any case, marks as hyphens."""
    mine, given = _PATH.format("id"), _PATH.format("g.path")
    rows = cursor.execute(
        f"WITH g AS (SELECT path, {given} AS name FROM (SELECT unnest(?::VARCHAR[]) AS path) AS g), "
        f"m AS (SELECT id, {mine} AS name FROM memories) "
        "SELECT g.path, list(m.id ORDER BY m.name = g.name DESC), count(*) FILTER (m.name = g.name) FROM g JOIN m "
        "ON m.name = g.name OR ends_with(m.name, '/' || g.name) OR ends_with(g.name, '/' || m.name) GROUP BY g.path",
        [list(paths)],
    ).fetchall()
    return {path: ids[0] for path, ids, equal in rows if len(ids) == 1 or equal == 1}


def _but_those_not_in(cursor: duckdb.DuckDBPyConnection, ids: Collection[str], table: str) -> set[str]:
    """Those of many ids that a table has. Nearly all are, and to read the others takes half the time (3.4 instead of 7.1 ms for 5,000)."""
    with tables.staged(cursor, "asked_ids", tables.table_of("id string", [(each,) for each in ids])):
        return set(ids) - {*tables.column(cursor, f"SELECT id FROM asked_ids ANTI JOIN {table} AS m USING (id)")}


def live(database: Database, ids: Collection[str]) -> set[str]:
    """Those of `ids` that are live memories of a store."""
    if not ids:
        return set()
    with database.reading() as cursor:
        rows = tables.scalar(cursor, "SELECT count(*) FROM memories") if len(ids) >= MANY_IDS else 0
        if len(ids) * ROWS_PER_LOOKUP <= rows or len(ids) < MANY_IDS:
            return live_ids(cursor, ids)
        return _but_those_not_in(cursor, ids, "(SELECT id FROM memories WHERE deleted_at IS NULL)")


def deleted_ids(cursor: duckdb.DuckDBPyConnection) -> set[str]:
    return {*tables.column(cursor, "SELECT id FROM memories WHERE deleted_at IS NOT NULL")}


def hidden_ids(cursor: duckdb.DuckDBPyConnection) -> set[str]:
    """The ids that an index may still have and that no search returns: of deleted memories, and of those that an undo removed."""
    gone = tables.column(cursor, "SELECT memory_id FROM removed_memories ANTI JOIN memories ON id = memory_id")
    return deleted_ids(cursor).union(gone)


def forget_removed(cursor: duckdb.DuckDBPyConnection, version: int) -> list[str]:
    """Drop the record of memories that were removed up to a content version, as no index has them any more; returns their ids."""
    return tables.column(cursor, "DELETE FROM removed_memories WHERE changed <= ? RETURNING memory_id", [version])


def changed_since(cursor: duckdb.DuckDBPyConnection, version: int) -> list[str]:
    """Sorted ids of the memories, deleted and removed ones included, whose indexed data changed after a content version."""
    removed = "SELECT memory_id FROM removed_memories WHERE changed > $since"
    changed = f"SELECT id FROM memories WHERE changed > $since UNION {removed} ORDER BY 1"
    return tables.column(cursor, changed, {"since": version})


def remove(cursor: duckdb.DuckDBPyConnection, ids: Sequence[str]) -> None:
    """Remove the rows of memories and of their chunks; the indexes drop them at their next refresh."""
    version = tables.next_version(cursor)
    cursor.execute("DELETE FROM removed_memories WHERE memory_id IN (SELECT unnest(?))", [ids])
    cursor.execute("INSERT INTO removed_memories SELECT unnest(?), ?", [ids, version])
    for table, key in (("chunks", "memory_id"), ("chunked", "memory_id"), ("memories", "id")):
        cursor.execute(f"DELETE FROM {table} WHERE {key} IN (SELECT unnest(?))", [ids])


def mark_changed(cursor: duckdb.DuckDBPyConnection, ids: Sequence[str], version: int) -> None:
    """Mark the indexed data of these memories as changed in a content version."""
    cursor.execute("UPDATE memories SET changed = ? WHERE id IN (SELECT unnest(?))", [version, list(ids)])


def count(cursor: duckdb.DuckDBPyConnection) -> int:
    return int(tables.scalar(cursor, "SELECT count(*) FROM memories WHERE deleted_at IS NULL"))


def read(cursor: duckdb.DuckDBPyConnection, ids: Sequence[str] | None = None) -> dict[str, Memory]:
    """The live memories with these ids, by id and in their order; all, sorted by id, if None. A few ids are looked up
    by key. For more, the id column gives row numbers, and reading by row number skips the text blocks in between, which
    a single query would decompress (24 ms instead of 8 for 300 of 100,000)."""
    columns = ", ".join(FIELDS)
    if ids is None:
        rows = cursor.execute(f"SELECT {columns} FROM memories WHERE deleted_at IS NULL ORDER BY id").fetchall()
        return {row[0]: record(row) for row in rows}
    wanted = list(dict.fromkeys(ids))
    by_id = {row[0]: record(row) for row in rows_of(cursor, columns, wanted)}
    return {name: by_id[name] for name in wanted if name in by_id}


class Texts(NamedTuple):
    """What a memory's indexed text is made of (`text_columns` of it), and its `text_sha`."""

    memory: Memory
    sha: str


def texts(cursor: duckdb.DuckDBPyConnection, ids: Sequence[str]) -> dict[str, Texts]:
    """The texts of the live memories with these ids, by id."""
    columns = text_columns(text_rule(cursor))
    rows = rows_of(cursor, f"{', '.join(columns)}, text_sha", ids)
    return {row[0]: Texts(partial_record(columns, row[:-1]), row[-1]) for row in rows}


def text_columns(rule: TextRule) -> tuple[str, ...]:
    """The columns that a memory's text is made of under a rule, its id first."""
    return ("id", "content", "title", *rule.fields)


def partial_record(columns: Sequence[str], values: Sequence[Any]) -> Memory:
    """A memory of some columns, the others at their defaults."""
    found = dict(zip(columns, values, strict=True))
    if "tags" in found:
        found["tags"] = tuple(json.loads(found["tags"]))
    if "created_at" in found:
        found["created_at"] = tables.to_aware(found["created_at"])
    return Memory(**found)


def _before(cursor: duckdb.DuckDBPyConnection, memories: Sequence[Memory], edited: Memory | None) -> dict[str, str]:
    given: dict[str, Any] = {
        "ids": [memory.id for memory in memories],
        "projects": [memory.project or "" for memory in memories],
        "sessions": [memory.session for memory in memories],
        "times": [tables.to_naive(memory.created_at) for memory in memories],
        "scopes": [memory.scope for memory in memories],
    }
    said = (
        "SELECT rowid AS place, project, session, created_at, scope FROM memories"
        " WHERE deleted_at IS NULL AND session IN (SELECT unnest($sessions)) AND created_at IS NOT NULL"
    )
    if edited is not None:
        # -1 is no row number: it stands for the edited memory.
        said += " AND id <> $id UNION ALL SELECT -1, $project, $session, $created_at::TIMESTAMP, $scope"
        given |= {name: getattr(edited, name) for name in ("id", "project", "session", "scope")}
        given["created_at"] = tables.to_naive(edited.created_at)
    # Row numbers first, as in `read`, so that the texts of whole sessions are not read. Lists, because an Arrow table would import pandas.
    places = cursor.execute(
        "WITH placed AS ("
        "  SELECT unnest($ids) AS id, unnest($projects) AS project, unnest($sessions) AS session, unnest($times) AS created_at,"
        "    unnest($scopes) AS scope"
        ") SELECT w.id, p.place FROM placed AS w ASOF JOIN ("
        "  SELECT coalesce(project, '') AS project, session, created_at, min(place) AS place, count(*) AS together, min(scope) AS scope"
        f"  FROM ({said}) GROUP BY ALL"
        ") AS p ON w.project = p.project AND w.session = p.session AND w.created_at > p.created_at"
        " WHERE p.together = 1 AND p.scope = w.scope",  # access to one does not imply access to the other
        given,
    ).fetchall()
    numbers = sorted({place for _, place in places})
    contents = dict(
        cursor.execute("SELECT rowid, content FROM memories WHERE rowid IN (SELECT unnest(?))", [numbers]).fetchall()
    )
    if edited is not None:
        contents[-1] = edited.content
    return {memory_id: contents[place] for memory_id, place in places}


def live_ids(cursor: duckdb.DuckDBPyConnection, ids: Iterable[str]) -> set[str]:
    return {row[0] for row in rows_of(cursor, "id", list(ids))}


def rows_of(cursor: duckdb.DuckDBPyConnection, columns: str, ids: Sequence[str]) -> list[tuple[Any, ...]]:
    """These columns of the live memories with these ids, unordered."""
    if len(ids) * ROWS_PER_LOOKUP <= tables.scalar(cursor, "SELECT count(*) FROM memories"):
        rows: list[tuple[Any, ...]] = []
        for some in tables.portions(ids, LOOKUP_BATCH):
            # With another condition, or a list as one parameter, DuckDB would scan all rows.
            found = cursor.execute(
                f"SELECT {columns}, deleted_at FROM memories WHERE id IN ({', '.join('?' * len(some))})", some
            )
            rows += [row[:-1] for row in found.fetchall() if row[-1] is None]
        return rows
    places = cursor.execute(
        "SELECT rowid, id FROM memories WHERE id IN (SELECT unnest(?)) AND deleted_at IS NULL", [ids]
    ).fetchall()
    if columns == "id":
        return [row[1:] for row in places]
    return cursor.execute(
        f"SELECT {columns} FROM memories WHERE rowid IN (SELECT unnest(?))", [[place for place, _ in places]]
    ).fetchall()


def record(row: Sequence[Any]) -> Memory:
    values = list(row)
    values[_TAGS] = () if row[_TAGS] == "[]" else tuple(json.loads(row[_TAGS]))
    for place in _MOMENTS:
        values[place] = tables.to_aware(row[place])
    return Memory(*values)


_TAGS, _MOMENTS = FIELDS.index("tags"), [FIELDS.index(name) for name in TIMES]
