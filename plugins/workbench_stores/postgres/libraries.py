"""Tables as memory libraries make them in PostgreSQL, recognised by their columns. All were run, in the versions that are named.

mem0                     mem0ai 2.2.1, vector_stores/pgvector.py and memory/main.py (`_payload_is_expired`)
LangChain PGVector       langchain-postgres 0.0.19, vectorstores.py; earlier versions call the id `uuid`
LangChain PGVectorStore  langchain-postgres 0.0.19, v2/engine.py and v2/async_vectorstore.py
LlamaIndex               llama-index-vector-stores-postgres 0.9.0, base.py
Haystack                 pgvector-haystack 8.1.2, document_store.py
Letta                    letta 0.16.8, orm/passage.py and services/helpers/agent_manager_helper.py, ORM and managers on PostgreSQL

LangGraph's PostgresStore: store(prefix, key, value) and store_vectors(prefix, key, field_name, embedding), a vector for each text.

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
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from psycopg import sql

from cems_workbench.errors import InputError
from cems_workbench.formats.base.files import data_beside
from cems_workbench.formats.base.memory_fields import EXPIRATION_DATE, NAMES
from cems_workbench.formats.base.payload import SAMPLE_ROWS, Names, Payload
from cems_workbench.records import RowProblem, TakenChunk, place_of_chunk
from cems_workbench.sources.address import Address
from cems_workbench.sources.source import SourceError, Vector
from workbench_stores.mapping import OUTERS, WHOLE, content_of, embedded_text, in_order, steps
from workbench_stores.postgres import catalog, lexical
from workbench_stores.postgres.catalog import VECTOR_TYPES, Table
from workbench_stores.postgres.connection import Reader
from workbench_stores.postgres.layout import (
    EVERY,
    JSON_TYPES,
    TEXT_TYPES,
    Chunks,
    Layout,
    PostgresLayout,
    layouts,
    listed,
    read_columns,
    table_layout,
    text_at,
    wrong_choice,
)
from workbench_stores.postgres.mapping import guessed

LEMMATISED = "text_lemmatized"
"""The key of mem0's text that keyword searches read."""
EXPIRES = f"payload.{EXPIRATION_DATE}"


def _mem0(reader: Reader, table: Table, address: Address) -> Layout:
    """mem0 on pgvector: (id uuid, vector vector(N), payload jsonb), one row per memory. The text is the payload's
    `data`; a search is `ORDER BY vector <=> query`, for one user if the address has one. Past the day of
    `expiration_date` (UTC) a memory is in no search and no list of mem0, which keeps its row."""
    known = (f"payload.{LEMMATISED}",)
    given = {"valid_until": EXPIRES}
    made = table_layout(
        reader, "mem0", table, "id", "payload.data", "vector", columns=("payload",), given=given, known=known
    )
    hidden = sql.SQL(
        r"COALESCE({0} ~ '^\d\d\d\d-\d\d-\d\d$' AND {0} COLLATE "
        "\"C\" < to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD'), FALSE)"
    ).format(made.at(EXPIRES))
    made = replace(made, distance="cosine", hidden=hidden)
    text = sql.SQL("{} ->> {}").format(sql.Identifier("payload"), sql.Literal(LEMMATISED))
    first = "SELECT 1 FROM (SELECT payload FROM {} LIMIT {}) first WHERE {} IS NOT NULL LIMIT 1"
    readable = table.columns["payload"].readable
    if not readable or not reader.rows(sql.SQL(first).format(table.sql, sql.Literal(SAMPLE_ROWS), text)):
        return made
    note = "mem0 takes the lemmas of the query where spaCy is installed, here it is asked as typed"
    document = sql.SQL("to_tsvector('simple', {})").format(text)
    return replace(made, lexical=lexical.Lexical("ts_rank_cd", document, "simple", "plain", note))


def _mem0_tables(tables: Sequence[Table]) -> list[Table]:
    names = {(table.schema, table.name) for table in tables}
    return [
        table
        for table in tables
        if table.name != "mem0migrations"
        and not (table.name.endswith("_entities") and (table.schema, table.name.removesuffix("_entities")) in names)
    ]


def _langchain_pgvector(reader: Reader, table: Table, address: Address) -> Layout:
    """langchain_pg_embedding(id, collection_id, embedding, document, cmetadata) and langchain_pg_collection(uuid, name).

    All collections of a database share the two tables; `?collection=NAME` chooses one, `?collection=*` takes all. No column and no index
    says which distance the application was set to. Raises InputError if the address does not say which, and SourceError if there is none.
    """
    id = "id" if "id" in table.columns else "uuid"
    if id not in table.columns:
        raise SourceError(f"{address.plain}: {table} has neither id nor uuid")
    known = ("collection_id", "custom_id")
    made = table_layout(
        reader, "langchain_pgvector", table, id, "document", "embedding", columns=("cmetadata",), known=known
    )
    rows = reader.rows(
        "SELECT c.confrelid::int8 FROM pg_constraint c JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = c.conkey[1] "
        "WHERE c.conrelid = %(table)s::oid AND c.contype = 'f' AND a.attname = 'collection_id'",
        {"table": table.oid},
    )
    owner = catalog.table_of(reader, rows[0][0]) if rows else None
    owner = owner or catalog.table(reader, f"{table.schema}.langchain_pg_collection")
    if owner is None or not {"uuid", "name"} <= owner.columns.keys():
        raise SourceError(f"{address.plain}: {table} belongs to collections, and there is no table that names them")
    catalog.refuse_unless_readable(reader, owner, address.plain, ("uuid", "name"))
    # A name that is NULL, which early versions allow, cannot be asked for.
    query = sql.SQL("SELECT name, uuid::text FROM {} WHERE name IS NOT NULL ORDER BY 1, 2")
    uuids: dict[str, str] = dict(reader.rows(query.format(owner.sql)))
    if not uuids:
        raise SourceError(f"{address.plain}: {owner} has no collection yet")
    wanted = address.options.get("collection") or (next(iter(uuids)) if len(uuids) == 1 else None)
    if wanted in uuids:
        others = [name for name in uuids if name != wanted]
        note = f"the collection {wanted}" + (f"; others there: {listed(others)}" if others else "")
        of_one = sql.SQL("collection_id = {}::uuid").format(sql.Literal(uuids[wanted]))
        return replace(made, condition=of_one, notes=(note,))
    if wanted == EVERY:
        note = f"the documents of all {len(uuids)} collections are taken together: {listed(uuids)}"
        return replace(made, notes=(note,))
    counts = sql.SQL(
        "SELECT c.name, count(d.collection_id) FROM {} c LEFT JOIN {} d ON d.collection_id = c.uuid "
        "WHERE c.name IS NOT NULL GROUP BY c.uuid, c.name ORDER BY 2 DESC, 1"
    )
    raise wrong_choice(address, "collection", dict(reader.rows(counts.format(owner.sql, table.sql))))


ID, CONTENT, EMBEDDING, METADATA = "langchain_id", "content", "embedding", "langchain_metadata"
DEFAULT_CONFIG, TOP_K = "pg_catalog.english", 4
"""HybridSearchConfig's tsv_lang, and its primary_top_k and secondary_top_k."""


def _pgvectorstore(reader: Reader, table: Table, address: Address) -> Layout:
    """PGVectorStore: a separate table (langchain_id, content, embedding, own columns, langchain_metadata json). Every
    column can be renamed; a table with none of LangChain's names is guessed as any other, with the same fields. Raises
    InputError if it cannot tell which column has the text."""
    if {ID, CONTENT, EMBEDDING} <= table.columns.keys():
        made = table_layout(reader, "langchain_pgvectorstore", table, ID, CONTENT, EMBEDDING)
    else:
        made = replace(guessed(reader, table, address.plain), kind="langchain_pgvectorstore")
    assumed = f"its default {DEFAULT_CONFIG}"
    if words := lexical.over_texts(reader, table, "ts_rank_cd", "plain", DEFAULT_CONFIG, assumed):
        made = replace(made, lexical=words, fusion=lexical.Fusion("weighted_sum", TOP_K, TOP_K))
    sets = "PGVectorStore sets hnsw.ef_search if its program has index_query_options (40 by default)"
    return replace(made, client_sets=sets)


def _named_as_langchain_does(tables: Sequence[Table]) -> list[Table]:
    return [
        table
        for table in tables
        if ID in table.columns or (METADATA in table.columns and table.columns[METADATA].type in JSON_TYPES)
    ]


OF_NODES = ("_node_content", "_node_type", "doc_id", "document_id", "ref_doc_id")
"""Keys that LlamaIndex adds to a node's own metadata."""


def _llamaindex(reader: Reader, table: Table, address: Address) -> Layout:
    """data_NAME(id bigserial, text, metadata_ json or jsonb, node_id, embedding[, text_search_tsv]). A row is a node,
    and LlamaIndex returns it by its node_id; `id` is only a row number. Nodes with the same `ref_doc_id` are parts of
    one document, which LlamaIndex deletes together and never searches as one."""
    known = ("id", *(f"metadata_.{key}" for key in OF_NODES))
    made = table_layout(reader, "llamaindex", table, "node_id", "text", "embedding", known=known)
    if words := lexical.over_texts(reader, table, "ts_rank", "pieces"):
        made = replace(made, lexical=words, fusion=lexical.Fusion("appended"))
    return replace(made, client_sets="LlamaIndex sets hnsw.ef_search for each query (hnsw_kwargs)")


def _haystack(reader: Reader, table: Table, address: Address) -> Layout:
    """PgvectorDocumentStore: (id, embedding, content, blob_data, blob_meta, blob_mime_type, meta jsonb)."""
    made = table_layout(reader, "haystack", table, "id", "content", "embedding", columns=("meta",))
    sets = "Haystack sets hnsw.ef_search if its program has hnsw_ef_search"
    return replace(made, lexical=lexical.over_texts(reader, table, "ts_rank_cd", "plain"), client_sets=sets)


OWNERS = ("archive_id", "source_id")


def _letta(reader: Reader, table: Table, address: Address) -> Layout:
    """archival_passages and source_passages: text, embedding vector(4096), embedding_config, tags, metadata_, is_deleted, archive_id.

    Letta fills every vector up with zeros to 4,096 numbers; `embedding_config` says how many its model makes. They are cut to that number
    where the rest is zero. A query is filled up in the same way, so distances are those of the cut vectors; a search is by cosine distance.
    A deleted passage stays in the table. Here: project is the archive (of source_passages: the source), author the organisation; a mapping
    can choose others.
    """
    project = next(name for name in OWNERS if name in table.columns)
    columns = ("tags", "metadata_", "created_at", "updated_at", "file_name", "is_deleted", project, "organization_id")
    made = table_layout(
        reader,
        "letta",
        table,
        "id",
        "text",
        "embedding",
        columns=[name for name in columns if name in table.columns],
        given={"project": project, "author": "organization_id"},
        known=("embedding_config",),
    )
    made = replace(made, distance="cosine")
    rows = reader.rows(
        sql.SQL(
            "SELECT embedding_config ->> 'embedding_dim', embedding_config ->> 'embedding_model', count(*) FROM "
            "(SELECT embedding_config FROM {} WHERE embedding IS NOT NULL AND NOT is_deleted LIMIT {}) s GROUP BY 1, 2 ORDER BY 3 DESC, 1"
        ).format(table.sql, sql.Literal(SAMPLE_ROWS))
    )
    if not rows:
        return made
    width, model, _ = rows[0]
    if len(rows) > 1:
        named = ", ".join(f"{name} of {numbers} numbers ({count})" for numbers, name, count in rows)
        several = f"passages of several embedding models are in one table: {named}; a search compares all of them"
        made = replace(made, missing=(*made.missing, several))
    made = replace(made, model=model)
    stored = made.vector.dimension
    if width is None or not width.isdecimal() or stored is None or not 0 < int(width) < stored:
        return made
    padded = sql.SQL(
        "(embedding_config ->> 'embedding_dim' = {} AND vector_norm(subvector(embedding, {}, {})::vector) = 0)"
    ).format(sql.Literal(width), sql.Literal(int(width) + 1), sql.Literal(stored - int(width)))
    note = f"vectors are filled up with zeros to {stored:,} numbers: cut to {width}, as embedding_config says"
    return replace(made, width=int(width), padded=padded, notes=(*made.notes, note))


_HINDSIGHT: Mapping[str, Sequence[str]] = data_beside(__file__, "names.json")["hindsight"]
HINDSIGHT_READ, HINDSIGHT_UNUSED = _HINDSIGHT["read"], _HINDSIGHT["unused"]

"""Columns for its own bookkeeping."""
FACT_TYPES = ("world", "experience", "observation")
MOST_SHARING = 50
"""Facts of an entity from which on the entity relates none to another: all would be related to all."""


def _hindsight(reader: Reader, table: Table, address: Address) -> Layout:
    """memory_units(id, bank_id, text, fact_type, dates, tags, embedding, search_vector), memory_links, entities, unit_entities.

    A memory is a fact of a bank. Hindsight searches each kind of fact by its own index, words joined by OR with ts_rank_cd, and follows
    links and shared entities. `?bank=NAME` chooses a bank, `?bank=*` takes all. Raises InputError if the address does not say which.
    """
    columns = [name for name in HINDSIGHT_READ if name in table.columns]
    given = {"category": "fact_type", "project": "bank_id", "source_ref": "document_id", "created_at": "mentioned_at"}
    given = {field: column for field, column in given.items() if column in columns}
    made = table_layout(
        reader, "hindsight", table, "id", "text", "embedding", columns=columns, given=given, known=HINDSIGHT_UNUSED
    )
    bank, note = _bank(reader, table, address)
    condition = None if bank is None else sql.SQL("m.bank_id = {}").format(sql.Literal(bank))
    if table.columns.get("search_vector") and table.columns["search_vector"].type == "tsvector":
        words = lexical.Lexical("ts_rank_cd", sql.Identifier("search_vector"), lexical.ENGLISH, "tokens")
        made = replace(made, lexical=words)
    notes = (
        note,
        "Hindsight embeds a text with its date and entities behind it, as in `(happened in June 2025) [Ann]`",
        "Hindsight leaves out what is below a cosine of 0.3 (semantic_min_similarity); the live list shows it",
    )
    return replace(
        made,
        distance="cosine",
        condition=condition,
        arms=tuple(sql.SQL("fact_type = {}").format(sql.Literal(each)) for each in FACT_TYPES),
        relations=tuple(_hindsight_links(reader, table, bank)),
        notes=notes,
    )


def _bank(reader: Reader, table: Table, address: Address) -> tuple[str | None, str]:
    """(bank, note) of the bank that the address names, or that is the only one; None for all."""
    catalog.refuse_unless_readable(reader, table, address.plain, ("bank_id",))
    facts, wanted = table.sql, address.options.get("bank")
    if wanted is not None and wanted != EVERY:
        # Not counted: each live search comes here.
        there = sql.SQL("SELECT EXISTS (SELECT FROM {} WHERE bank_id = {})").format(facts, sql.Literal(wanted))
        if reader.row(there)[0]:
            return wanted, f"the bank {wanted}"
    counts = sql.SQL("SELECT bank_id, count(*) FROM {} GROUP BY 1 ORDER BY 2 DESC, 1").format(facts)
    banks: dict[str, int] = dict(reader.rows(counts))
    if wanted in (None, EVERY) and (wanted or len(banks) < 2):
        named = listed([f"{name} ({count:,})" for name, count in banks.items()])
        return (next(iter(banks)), f"the only bank, {named}") if len(banks) == 1 else (None, f"the banks {named}")
    raise wrong_choice(address, "bank", banks)


def _hindsight_links(reader: Reader, table: Table, bank: str | None) -> list[sql.Composed]:
    """Queries of (source, target, kind, weight): the links between facts of the bank, and the facts that share an entity."""
    facts = sql.SQL("SELECT id FROM {} WHERE {}").format(
        table.sql, sql.SQL("TRUE") if bank is None else sql.SQL("bank_id = {}").format(sql.Literal(bank))
    )
    queries = []
    links = catalog.table(reader, f"{table.schema}.memory_links")
    if links is not None and all(column.readable for column in links.columns.values()):
        queries.append(
            sql.SQL(
                "SELECT from_unit_id::text, to_unit_id::text, link_type, weight::float8 FROM {} "
                "WHERE from_unit_id IN ({facts}) AND to_unit_id IN ({facts}) ORDER BY 1, 2, 3"
            ).format(links.sql, facts=facts)
        )
    shared = catalog.table(reader, f"{table.schema}.unit_entities")
    if shared is not None and all(column.readable for column in shared.columns.values()):
        queries.append(
            sql.SQL(
                "WITH few AS (SELECT entity_id, unit_id FROM (SELECT entity_id, unit_id, count(*) OVER (PARTITION BY entity_id) AS n "
                "FROM {} WHERE unit_id IN ({facts})) e WHERE n <= {most}) "
                "SELECT a.unit_id::text, b.unit_id::text, 'entity', tanh(0.5 * count(*))::float8 FROM few a JOIN few b "
                "ON a.entity_id = b.entity_id AND a.unit_id < b.unit_id GROUP BY 1, 2 ORDER BY 1, 2"
            ).format(shared.sql, facts=facts, most=sql.Literal(MOST_SHARING))
        )
    return queries


LIBRARIES = layouts(
    {
        "mem0": (_mem0, _mem0_tables),
        "hindsight": (_hindsight,),
        "langchain_pgvector": (_langchain_pgvector,),
        "langchain_pgvectorstore": (_pgvectorstore, _named_as_langchain_does),
        "llamaindex": (_llamaindex,),
        "haystack": (_haystack,),
        "letta": (_letta, lambda tables: [table for table in tables if not table.columns.keys().isdisjoint(OWNERS)]),
    }
)


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


def langgraph(reader: Reader, table: Table, address: Address) -> Layout:
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
        LANGGRAPH.name,
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


LANGGRAPH = PostgresLayout(
    "langgraph", "LangGraph", langgraph, COLUMNS, options=("namespace", "omit_expired"), joined=True, place=60
)
