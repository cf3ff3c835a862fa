"""LangGraph's PostgresStore: store(prefix, key, value) and store_vectors(prefix, key, field_name, embedding), a vector for each text.

A memory is an item: its id is `prefix/key`, its fields are the keys of `value` and the columns of `store`. `field_name` is the path of the
text that was embedded, `path.N` if a path has several texts, and `$` for the whole value as JSON. Each text is a chunk, unless it is the
only one and the content too. The live list is the search of the library before it keeps the best text of each item.

    ?namespace=a.b       items of this namespace and of those below it, as `store.search(("a", "b"))`
    ?user=ID             items of one author
    ?omit_expired=true   without items past expires_at, as with the library's `ttl={"omit_expired": True}`

Source: langgraph-checkpoint-postgres 3.2.0, store/postgres/base.py; langgraph-checkpoint 4.3.2, store/base/embed.py; run.
"""

from __future__ import annotations

import json
import re
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from psycopg import sql

from cems_workbench.errors import InputError
from cems_workbench.formats.base.fields import FieldError
from cems_workbench.formats.base.memory_fields import NAMES, OPTIONAL_FIELDS
from cems_workbench.formats.base.payload import Names, memory_of
from cems_workbench.records import Relation, TakenChunk, TakenMemory, place_of_chunk
from cems_workbench.sources.recognised import SAMPLE_ROWS, Recognised
from cems_workbench.sources.source import (
    NO_TRIAL,
    Batch,
    Changed,
    Distance,
    EngineHit,
    EngineList,
    EngineQuery,
    RowProblem,
    SourceError,
    SourceInfo,
    Trial,
    too_long,
)
from workbench_stores.langgraph_value import OUTERS, WHOLE, content_of, embedded_text, in_order, steps
from workbench_stores.postgres import catalog, plans
from workbench_stores.postgres.catalog import Table
from workbench_stores.postgres.connection import Database, Reader
from workbench_stores.postgres.layout import Layout, read_columns, recognise, relation
from workbench_stores.postgres.mapping import checked_distance, corrected
from workbench_stores.postgres.snapshot import (
    Page,
    batches,
    block_ranges,
    vector_literal,
    vectors,
    wrong_dimension,
)

if TYPE_CHECKING:
    from workbench_stores.postgres.connection import Row

KIND = "langgraph"
STORE_COLUMNS = ("prefix", "key", "value")
VECTOR_COLUMNS = ("prefix", "key", "field_name", "embedding")
NAMESPACE = "namespace"
"""The path of an item's namespace in a mapping; `namespace.2` is its second label."""
_LABEL = re.compile(rf"{NAMESPACE}(?:\.([1-9]\d?))?")


class LangGraphSource:
    """The items of a PostgresStore with their vectors."""

    def __init__(self, database: Database, vectors_table: str, mapping: Mapping[str, Any]) -> None:
        self._database, self._vectors_table, self._mapping = database, vectors_table, mapping
        self._omit_expired = _flag(database, "omit_expired")
        self._recognised: Recognised | None = None

    @property
    def address(self) -> str:
        """The address without any secret."""
        return self._database.address.plain

    def check(self) -> None:
        """Read the tables once. Raises SourceError, and InputError for a mapping or an option that does not fit."""
        with self._database.transaction() as reader:
            self._items(reader)

    def probe(self) -> SourceInfo:
        """Counts, fields, distance and index. Raises SourceError."""
        with self._database.transaction() as reader:
            engine = catalog.engine(reader, self._database)
            items = self._items(reader)
            count = sql.SQL("SELECT count(*), count(*) FILTER (WHERE {}) FROM {} s WHERE {}")
            memories, expired = reader.row(count.format(_expired(items.layout.table), items.store, items.where))
            found = sql.SQL("SELECT count(*), count(DISTINCT (s.prefix, s.key)) FROM {} WHERE {}")
            with_vector, searched = reader.row(found.format(items.joined, items.where))
            dimension = catalog.dimension(reader, items.vectors, items.vector)
            planned = _plan(reader, items, dimension)
            notes = [*items.notes, *planned.notes(with_vector)]
            if expired:
                notes.append(
                    f"items past expires_at and not yet swept: {expired:,}; the library returns them until then, as does the live list; "
                    "?omit_expired=true leaves them out, as its omit_expired does"
                )
            if items.layout.distance is None and planned.index is None:
                notes.append(
                    "no index tells the distance: cosine is assumed; ?distance=l2 or ?distance=ip says another"
                )
            if said := catalog.stated_note(self._database.address.options, "", planned.index):
                notes.append(said)
            missing = []
            if searched < memories:
                missing.append(
                    f"items without a vector: {memories - searched:,}, stored with index=False or without the indexed fields; no search by "
                    "vector finds them"
                )
            return SourceInfo(
                kind=KIND,
                engine=engine,
                memories=memories,
                vectors=with_vector,
                dimension=dimension,
                distance=planned.distance,
                index=planned.index_line,
                settings=catalog.settings(reader, planned.index),
                missing=tuple(missing),
                notes=tuple(notes),
            )

    @contextmanager
    def snapshot(self) -> Iterator[LangGraphSnapshot]:
        """The items as of now, on a separate connection. Raises SourceError."""
        own = self._database.new_connection()
        try:
            with own.transaction() as reader:
                yield LangGraphSnapshot(reader, self._items(reader))
        finally:
            own.close()

    def search(self, query: EngineQuery, trial: Trial = NO_TRIAL) -> tuple[EngineList, ...]:
        """The texts by distance, as the library's search finds them. Raises SourceError, InputError for an unknown setting."""
        asked = query.depths.get("vector")
        with self._database.transaction() as reader:
            catalog.engine(reader, self._database)
            items = self._items(reader, self._recognised)
            dimension = catalog.dimension(reader, items.vectors, items.vector)
            catalog.prepare(reader, query, trial, dimension, self.address)
            # No item says that it is shared.
            if not asked or query.scope == "shared":
                return ()
            distance = items.layout.distance or _plan(reader, items, dimension).distance
            if trial.exact:
                catalog.scan_exactly(reader)
            started = time.perf_counter()
            rows = reader.rows(
                _with_names(items, _search(items, distance)), {"vector": vector_literal(query.vector), "asked": asked}
            )
            seconds = time.perf_counter() - started
        high = 1.0 if distance == "cosine" else 0.0
        hits = [EngineHit(id, high - far, _number(name, names)) for id, far, name, names in rows if far is not None]
        return (EngineList("vector", asked, tuple(hits), seconds),)

    def close(self) -> None:
        """Close the connection."""
        self._database.close()

    def _items(self, reader: Reader, recognised: Recognised | None = None) -> _Items:
        """The tables, and the items of the address; fields are recognised again unless they are given.

        Raises SourceError and InputError.
        """
        of_vectors = catalog.table(reader, self._vectors_table)
        store = of_vectors and catalog.table(reader, f"{of_vectors.schema}.store")
        if store is None or of_vectors is None:
            raise SourceError(f"{self.address}: {self._vectors_table} has no table store beside it")
        for table, columns in ((store, STORE_COLUMNS), (of_vectors, VECTOR_COLUMNS)):
            if lacking := [name for name in columns if name not in table.columns]:
                raise SourceError(f"{self.address}: {table} lacks {', '.join(lacking)}")
            if not all(column.readable for column in table.columns.values()):
                raise SourceError(
                    f"{self.address}: {reader.role} may not read {table}; to allow it: GRANT SELECT ON {table} TO {reader.role}"
                )
        options = self._database.address.options
        labels, mapping = _label_fields(self._mapping)
        layout = corrected(_store_layout(reader, store, of_vectors), mapping)
        distance = checked_distance(options.get("distance"), f"{self.address}: distance=")
        layout = replace(layout, distance=distance or layout.distance)
        conditions: list[sql.Composable] = []
        if prefix := options.get(NAMESPACE):
            within = "(s.prefix = {0} OR starts_with(s.prefix, {0} || '.'))"
            conditions.append(sql.SQL(within).format(sql.Literal(prefix)))
        if self._omit_expired:
            conditions.append(sql.SQL("NOT {}").format(_expired(store)))
        items = _Items(layout, of_vectors, labels, _all(conditions))
        # `recognise` reads the table without an alias.
        sampled: sql.Composable = sql.SQL("TRUE")
        if conditions:
            among = "(prefix, key) IN (SELECT s.prefix, s.key FROM {} s WHERE {} LIMIT {})"
            sampled = sql.SQL(among).format(items.store, items.where, sql.Literal(SAMPLE_ROWS))
        self._recognised = recognised or recognise(reader, layout, sampled)
        items = replace(items, recognised=self._recognised)
        if user := options.get("user"):
            conditions.append(sql.SQL("{} = {}").format(items.author, sql.Literal(user)))
        return replace(items, where=_all(conditions))


@dataclass(frozen=True, slots=True)
class _Items:
    """The tables, what the value's fields are called, and which items count."""

    layout: Layout
    """Of the table `store`."""
    vectors: Table
    labels: Mapping[str, int | None]
    """Fields that are the namespace, or a label of it from 1, by the mapping."""
    where: sql.Composable
    """Which items count, over `s`."""
    recognised: Recognised | None = None

    @property
    def vector(self) -> catalog.Column:
        return self.vectors.columns["embedding"]

    @property
    def store(self) -> sql.Composable:
        return relation(self.layout)

    @property
    def joined(self) -> sql.Composed:
        """The items `s` with their vectors `v`, joined as the library does."""
        table = sql.Identifier(self.vectors.schema, self.vectors.name)
        return sql.SQL("{} s JOIN {} v ON s.prefix = v.prefix AND s.key = v.key").format(self.store, table)

    @property
    def author(self) -> sql.Composable:
        """The text of an item's author."""
        if "author" in self.labels:
            return _label(self.labels["author"])
        if "author" in self.layout.names.given:
            return self.layout.at(self.layout.names.given["author"])
        keys = [self.layout.at(f"value.{name}") for name in NAMES["author"]]
        last = sql.SQL("CASE WHEN strpos(s.prefix, '.') > 0 THEN split_part(s.prefix, '.', -1) END")
        return sql.SQL("COALESCE({})").format(sql.SQL(", ").join([*keys, last]))

    @property
    def notes(self) -> list[str]:
        """What fields are taken from, and what is not read."""
        found = self.recognised
        if found is None:
            return []
        lines = [note for note in (found.fields_note, found.unread_note) if note]
        if "author" not in {**found.fields, **self.labels}:
            lines.append(
                "the author is the last label of the namespace; a mapping can say another (author: namespace.1), and a project "
                "(project: namespace)"
            )
        return lines

    def payload(self, prefix: str, values: Sequence[Any], id: str, problems: list[RowProblem]) -> dict[str, Any]:
        """The payload of an item: the columns, the value, and its namespace."""
        payload = self.layout.payload(values, id, problems)
        labels = prefix.split(".")
        for number in self.labels.values():
            payload[_path_of(number)] = prefix if number is None else next(iter(labels[number - 1 : number]), None)
        if len(labels) > 1 and "author" not in self.labels and self.layout.names.found(payload, "author") is None:
            payload["author"] = labels[-1]
        return payload

    @property
    def names(self) -> Names:
        """The names of fields, with those of the namespace."""
        given = {**self.layout.names.given, **{field: _path_of(number) for field, number in self.labels.items()}}
        return replace(self.layout.names, given=given)


class LangGraphSnapshot:
    """The items in physical order."""

    def __init__(self, reader: Reader, items: _Items) -> None:
        self._reader, self._items = reader, items
        self._dimension = catalog.dimension(reader, items.vectors, items.vector)
        said = json.dumps([items.layout.digest, dict(items.names.given)], sort_keys=True)
        (self._form,) = reader.row("SELECT to_hex(hashtext(%(said)s))", {"said": said})
        count = sql.SQL("SELECT count(*) FROM {} s WHERE {}").format(items.store, items.where)
        self._total: int = reader.row(count)[0]
        self._places: dict[str, tuple[str, str]] = {}
        """(prefix, key) of the page that is being read, by id."""

    @property
    def total(self) -> int:
        """Number of items."""
        return self._total

    def batches(self, changed: Changed) -> Iterator[Batch]:
        """Every item as seen, and changed ones with their texts. Raises SourceError."""
        return batches(self._pages(), changed, self._read)

    def relations(self) -> Iterator[Sequence[Relation]]:
        """None: a store has no relations."""
        return iter(())

    def _pages(self) -> Iterator[Page]:
        items = self._items
        table = sql.Identifier(items.vectors.schema, items.vectors.name)
        query = sql.SQL(
            "SELECT s.prefix, s.key, s.xmin::text, octet_length(s.value::text), v.* FROM {} s LEFT JOIN LATERAL "
            "(SELECT count(*), sum(xmin::text::bigint)::text FROM {} o WHERE o.prefix = s.prefix AND o.key = s.key) v ON TRUE "
            "WHERE s.ctid >= %(from)s::tid AND s.ctid < %(to)s::tid AND {} ORDER BY s.ctid"
        ).format(items.store, table, items.where)
        for place in block_ranges(self._reader, items.layout.table.oid):
            yield self._page(self._reader.rows(query, place))

    def _page(self, rows: Sequence[Row]) -> Page:
        width = 4 * (self._dimension or 0)
        self._places = {}
        good, problems = [], []
        for row in rows:
            id = f"{row[0]}/{row[1]}"
            if id in self._places:
                problems.append(RowProblem(id, "key", "is the id of two items; the first was imported", duplicate=True))
            elif problem := too_long(id, row[3]):
                problems.append(problem)
            else:
                self._places[id] = row[0], row[1]
                good.append(row)
        return Page(
            [f"{row[0]}/{row[1]}" for row in good],
            [f"{self._form}.{row[2]}.{row[4]}.{row[5] or 0}" for row in good],
            # The texts are in the value and again in the chunks.
            [2 * row[3] + row[4] * width for row in good],
            problems,
        )

    def _read(self, ids: Sequence[str], markers: Sequence[str]) -> tuple[list[TakenMemory], list[RowProblem]]:
        items, places = self._items, [self._places[id] for id in ids]
        wanted = {"prefixes": [prefix for prefix, _ in places], "keys": [key for _, key in places]}
        # LATERAL with OFFSET 0: the planner looks each item up by the primary key and never reads a whole table.
        looked_up = sql.SQL(
            "SELECT w.prefix, w.key, found.* FROM unnest(%(prefixes)s::text[], %(keys)s::text[]) AS w (prefix, key) CROSS JOIN LATERAL "
            "(SELECT {} FROM {} WHERE prefix = w.prefix AND key = w.key OFFSET 0) found"
        )
        columns = sql.SQL(", ").join(items.layout.columns.values())
        rows = self._reader.rows(looked_up.format(columns, items.store), wanted)
        values = {(row[0], row[1]): row[2:] for row in rows}
        table = sql.Identifier(items.vectors.schema, items.vectors.name)
        embedded = self._reader.rows(looked_up.format(sql.SQL("field_name, embedding"), table), wanted)
        named: dict[tuple[str, str], dict[str, Any]] = defaultdict(dict)
        for row, vector in zip(embedded, vectors([row[3] for row in embedded], items.vector.type), strict=True):
            named[row[0], row[1]][row[2]] = vector
        problems: list[RowProblem] = []
        taken = []
        for id, place, marker in zip(ids, places, markers, strict=True):
            made = self._memory(id, place[0], values[place], named[place], marker, problems)
            taken += [made] if made is not None else []
        return taken, problems

    def _memory(
        self,
        id: str,
        prefix: str,
        values: Sequence[Any],
        named: Mapping[str, Any],
        marker: str,
        problems: list[RowProblem],
    ) -> TakenMemory | None:
        """The memory of an item; None, with a problem, if it has no text."""
        payload = self._items.payload(prefix, values, id, problems)
        value = payload.get("value")
        texts: dict[str, str] = {}
        order = sorted(named, key=in_order)
        for name in order:
            text = embedded_text(value, name)
            if text is None or not text.strip():
                problems.append(
                    RowProblem(
                        id,
                        name,
                        "has a vector and no text in the value: it is of an earlier value, and the library finds it",
                    )
                )
            else:
                texts[name] = text
        content = content_of(value, texts)
        try:
            memory, found = memory_of(id, content, payload, self._items.names)
        except FieldError as error:
            problems.append(RowProblem(id, error.field, f"{error.reason}; it was left out"))
            return None
        problems += found
        if not named:
            problems.append(RowProblem(id, "embedding", "has no vector: a search by vector does not find it"))
            return TakenMemory(memory, marker)
        if len(named) == 1 and list(texts.values()) == [content]:
            return TakenMemory(memory, marker, vector=self._vector(id, next(iter(named.items())), problems))
        chunks, start = [], 0
        for number, name in enumerate(order):
            if name in texts:
                place = place_of_chunk(content, texts[name], start)
                chunks.append(TakenChunk(number, texts[name], self._vector(id, (name, named[name]), problems), place))
        return TakenMemory(memory, marker, tuple(chunks))

    def _vector(self, id: str, named: tuple[str, Any], problems: list[RowProblem]) -> Any:
        name, vector = named
        if vector is None:
            problems.append(RowProblem(id, name, "has no vector"))
        elif len(vector) != self._dimension:
            problems.append(RowProblem(id, name, wrong_dimension(vector, self._dimension)))
            return None
        return vector


def _number(name: str, names: Sequence[str]) -> int | None:
    """The number of a text's chunk among those of its item; None if it is the only one."""
    return sorted(names, key=in_order).index(name) if len(names) > 1 else None


def _store_layout(reader: Reader, store: Table, of_vectors: Table) -> Layout:
    """The layout of the table of items; keys whose text is embedded are known."""
    name = sql.Identifier(of_vectors.schema, of_vectors.name)
    rows = reader.rows(sql.SQL("SELECT DISTINCT field_name FROM (SELECT field_name FROM {} LIMIT 1000) s").format(name))
    embedded = {steps(row[0])[0] for row in rows if row[0] != WHOLE}
    times = [name for name in ("created_at", "updated_at", "expires_at") if name in store.columns]
    contents = (f"{outer}.{name}" for name in NAMES["content"] for outer in OUTERS)
    return Layout(
        KIND,
        store,
        sql.SQL("prefix || '/' || key"),
        "text",
        True,
        sql.SQL("value::text"),
        of_vectors.columns["embedding"],
        None,
        read_columns(store, ["value", *times]),
        Names({}, OUTERS),
        known=frozenset(("prefix", "key", "ttl_minutes", *(f"value.{key}" for key in embedded), *contents)),
    )


def _plan(reader: Reader, items: _Items, dimension: int | None) -> plans.SearchPlan:
    values = {"vector": vector_literal(np.zeros(dimension or 1, np.float32)), "asked": plans.PLANNED_ROWS}
    return plans.plan(reader, lambda distance: _search(items, distance), values, items.layout.distance)


def _search(items: _Items, distance: Distance) -> sql.Composed:
    """The inner statement of the library's search, with the parameters `vector` and `asked`."""
    return sql.SQL(
        "SELECT s.prefix, s.key, v.field_name, v.embedding {operator} %(vector)s::{type} AS distance FROM {joined} WHERE {where} "
        "ORDER BY distance LIMIT %(asked)s"
    ).format(
        operator=sql.SQL(catalog.OPERATORS[distance]),
        type=sql.SQL("halfvec" if items.vector.type == "halfvec" else "vector"),
        joined=items.joined,
        where=items.where,
    )


def _with_names(items: _Items, search: sql.Composed) -> sql.Composed:
    """Id, distance, field_name and all field_names of the items that a search finds."""
    return sql.SQL(
        "SELECT f.prefix || '/' || f.key, f.distance, f.field_name, "
        "(SELECT array_agg(o.field_name) FROM {} o WHERE o.prefix = f.prefix AND o.key = f.key) FROM ({}) f ORDER BY f.distance"
    ).format(sql.Identifier(items.vectors.schema, items.vectors.name), search)


def _expired(store: Table) -> sql.SQL:
    """Whether an item `s` is past its time."""
    known = "expires_at" in store.columns
    return sql.SQL("(s.expires_at IS NOT NULL AND s.expires_at <= now())") if known else sql.SQL("FALSE")


def _all(conditions: Sequence[sql.Composable]) -> sql.Composed:
    return sql.SQL(" AND ").join([*conditions] or [sql.SQL("TRUE")])


def _label_fields(mapping: Mapping[str, Any]) -> tuple[dict[str, int | None], dict[str, Any]]:
    """The fields that a mapping takes from the namespace, and the rest of the mapping."""
    labels: dict[str, int | None] = {}
    for field, path in mapping.items():
        if field in OPTIONAL_FIELDS and isinstance(path, str) and (found := _LABEL.fullmatch(path)):
            labels[field] = int(found[1]) if found[1] else None
    return labels, {field: path for field, path in mapping.items() if field not in labels}


def _path_of(number: int | None) -> str:
    return NAMESPACE if number is None else f"{NAMESPACE}.{number}"


def _label(number: int | None) -> sql.Composable:
    """The namespace of an item `s`, or a label of it."""
    return (
        sql.SQL("s.prefix") if number is None else sql.SQL("split_part(s.prefix, '.', {})").format(sql.Literal(number))
    )


def _flag(database: Database, option: str) -> bool:
    given = database.address.options.get(option, "false").lower()
    if given not in ("true", "false"):
        raise InputError(f"{database.address.plain}: {option}= must be true or false, found {given!r}")
    return given == "true"
