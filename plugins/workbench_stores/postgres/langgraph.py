"""LangGraph's PostgresStore: store(prefix, key, value) and store_vectors(prefix, key, field_name, embedding), a vector for each text.

A memory is an item: its id is `prefix/key`, its fields are the keys of `value` and the columns of `store`. `field_name` is the path of the
text that was embedded, `path.N` if a path has several texts, and `$` for the whole value as JSON. Each text is a chunk, unless it is the
only one and the content too. The live list is the search of the library before it keeps the best text of each item.

    ?namespace=a.b       items of this namespace and of those below it, as `store.search(("a", "b"))`
    ?user=ID             items of one author
    ?omit_expired=true   without items past expires_at, as with the library's `ttl={"omit_expired": True}`

The author is that of the value, else the last label of the namespace. A mapping can take fields from labels: `namespace` is the whole one,
`namespace.2` its second label.

Source: langgraph-checkpoint-postgres 3.2.0, store/postgres/base.py; langgraph-checkpoint 4.3.2, store/base/embed.py; run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from psycopg import sql

from cems_workbench.errors import InputError
from cems_workbench.formats.base.memory_fields import NAMES
from cems_workbench.formats.base.payload import Names, Payload
from cems_workbench.records import RowProblem, TakenChunk, place_of_chunk
from cems_workbench.sources.address import Address
from cems_workbench.sources.source import SourceError, Vector
from workbench_stores.mapping import OUTERS, WHOLE, content_of, embedded_text, in_order, steps
from workbench_stores.postgres import catalog
from workbench_stores.postgres.catalog import VECTOR_TYPES, Table
from workbench_stores.postgres.connection import Reader
from workbench_stores.postgres.layout import TEXT_TYPES, Chunks, Layout, PostgresLayout, read_columns, text_at

COLUMNS = {"prefix": TEXT_TYPES, "key": TEXT_TYPES, "field_name": TEXT_TYPES, "embedding": VECTOR_TYPES}
_LABEL = re.compile(r"namespace(?:\.([1-9]\d?))?")


@dataclass(frozen=True, slots=True)
class _Texts(Chunks):
    """The embedded texts of an item, which are in its value."""

    WITHOUT_TEXT: ClassVar[str] = (
        "has a vector and no text in the value: it is of an earlier value, and the library finds it"
    )

    def number(self, place: Any) -> int | None:
        # The field_name of the hit, then all of its item.
        own, *names = place
        return sorted(names, key=in_order).index(own) if len(names) > 1 else None

    def label(self, name: Any) -> str:
        return str(name)

    def order(self, name: Any) -> Any:
        return in_order(name)

    def text_of(self, name: Any, text: str | None, payload: Payload) -> str | None:
        return embedded_text(payload.get("value"), name)

    def content(self, text: str | None, texts: Mapping[Any, str], payload: Payload) -> str:
        return content_of(payload.get("value"), texts)

    def numbered(self, content: str, parts: Sequence[tuple[int, Any, str, Vector | None]]) -> Sequence[TakenChunk]:
        if [text for *_, text, _ in parts] == [content]:
            return ()
        return [TakenChunk(number, text, vector, place_of_chunk(content, text, 0)) for number, _, text, vector in parts]


def layout(reader: Reader, table: Table, address: Address) -> Layout:
    """The items of such a store. Raises SourceError, and InputError for an option that does not fit."""
    store = catalog.table(reader, f"{table.schema}.store")
    if store is None:
        raise SourceError(f"{address.plain}: {table.schema}.{table.name} has no table store beside it")
    if lacking := [name for name in ("prefix", "key", "value") if name not in store.columns]:
        raise SourceError(f"{address.plain}: {store} lacks {', '.join(lacking)}")
    for each in (store, table):
        catalog.refuse_unless_readable(reader, each, address.plain)
    omit_expired = address.options.get("omit_expired", "false").lower()
    if omit_expired not in ("true", "false"):
        raise InputError(f"{address.plain}: omit_expired= must be true or false, found {omit_expired!r}")
    conditions: list[sql.Composable] = []
    if prefix := address.options.get("namespace"):
        within = "(m.prefix = {0} OR starts_with(m.prefix, {0} || '.'))"
        conditions.append(sql.SQL(within).format(sql.Literal(prefix)))
    known = "expires_at" in store.columns
    expired = sql.SQL("(m.expires_at IS NOT NULL AND m.expires_at <= now())" if known else "FALSE")
    if omit_expired == "true":
        conditions.append(sql.SQL("NOT {}").format(expired))
    rows = reader.rows(
        sql.SQL("SELECT DISTINCT field_name FROM (SELECT field_name FROM {} LIMIT 1000) s").format(table.sql)
    )
    keys = {steps(row[0])[0] for row in rows if row[0] != WHOLE}
    own = (f"{outer}.{name}" for name in (*NAMES["content"], *NAMES["author"]) for outer in OUTERS)
    times = [name for name in ("created_at", "updated_at", "expires_at") if name in store.columns]
    last = sql.SQL("CASE WHEN strpos(m.prefix, '.') > 0 THEN split_part(m.prefix, '.', -1) END")
    authors = [text_at(store, f"value.{name}") for name in NAMES["author"]]
    on = sql.SQL("c.prefix = m.prefix AND c.key = m.key")
    texts = _Texts(
        table,
        on,
        sql.SQL("c.field_name"),
        sql.SQL("NULL::text"),
        sql.SQL(
            "array_prepend(c.field_name, ARRAY(SELECT o.field_name FROM {} o WHERE o.prefix = c.prefix AND o.key = c.key))"
        ).format(table.sql),
        RowProblem("", "embedding", "is missing: the row can be read and not found by its vector"),
    )

    def counted(reader: Reader, where: sql.Composable) -> tuple[list[str], list[str]]:
        count = "SELECT count(*) FILTER (WHERE {}), count(*) FILTER (WHERE NOT EXISTS (SELECT FROM {} c WHERE {})) FROM {} m WHERE {}"
        late, without = reader.row(sql.SQL(count).format(expired, table.sql, on, store.sql, where))
        notes = [
            f"items past expires_at and not yet swept: {late:,}; the library returns them until then, as does the live list; "
            "?omit_expired=true leaves them out, as its omit_expired does"
        ]
        missing = [
            f"items without a vector: {without:,}, stored with index=False or without the indexed fields; no search by vector finds them"
        ]
        return notes if late else [], missing if without else []

    return Layout(
        LAYOUT.name,
        store,
        sql.SQL("(m.prefix || '/' || m.key)"),
        "text",
        False,
        sql.SQL("m.value::text"),
        table.columns["embedding"],
        None,
        {
            **read_columns(store, ["value", *times]),
            "author": sql.SQL("COALESCE({})").format(sql.SQL(", ").join([*authors, last])),
        },
        Names({"author": "author"}, OUTERS),
        condition=sql.SQL(" AND ").join(conditions) if conditions else None,
        known=frozenset(("prefix", "key", "ttl_minutes", *(f"value.{key}" for key in keys), *own)),
        notes=(
            "the author is that of the value, else the last label of the namespace; a mapping can say another (author: namespace.1), "
            "and a project (project: namespace)",
        ),
        chunks=texts,
        more=_label,
        counted=counted,
    )


def _label(path: str) -> sql.Composable | None:
    if (named := _LABEL.fullmatch(path)) is None:
        return None
    number = sql.Literal(int(named[1])) if named[1] else None
    return sql.SQL("m.prefix") if number is None else sql.SQL("split_part(m.prefix, '.', {})").format(number)


LAYOUT = PostgresLayout(
    "langgraph", "LangGraph", layout, COLUMNS, options=("namespace", "omit_expired"), joined=True, place=60
)
