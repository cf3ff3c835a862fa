"""The tables of an evidence file, and evidence as their rows.

A memory stands once, with its embedding in single precision, as the vector index has it; lists and scores name it by its number.
A list is one row with its members and raw scores as arrays; texts that a model read stand once. Rows carry what `Evidence` has,
so that what is read back replays to the same numbers.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from cems_workbench.config.fields import packaged
from cems_workbench.errors import InputError, one_line, short
from cems_workbench.pipeline import Evidence, Hit, ModelScore, RankedList, Variant
from cems_workbench.pipeline.evidence import VariantKind, check_memories, check_query, check_query_set, fault
from cems_workbench.pipeline.explained import with_own_times
from cems_workbench.platform.parsing import json_values
from cems_workbench.platform.typed_json import Misread, reader
from cems_workbench.records import Chunk, Judgment, Memory, Query, Relation
from cems_workbench.store import memories as memories_table
from cems_workbench.store.duckdb_file import Columns
from cems_workbench.store.duckdb_file import columns as columns_there
from cems_workbench.store.queries import from_row as query_from_row
from cems_workbench.store.queries import given_text
from cems_workbench.store.rows import staged, to_aware, to_naive
from cems_workbench.store.search.entries import WHOLE_MEMORY

if TYPE_CHECKING:
    import duckdb

TABLES = Path(__file__).with_name("evidence.sql").read_text("utf-8")
"""`scores.role` is rerank or judge; `scores.text` numbers the text that the model read. `lists.chunks` is null where memories were found
whole, and -1 stands for such a one among chunks; `tokens` are null where they were not counted."""

KEYS = packaged("evaluation/evidence_keys.json")
"""By table what no two of its rows may have alike (`unique`), by column what another table must have too (`refers`), and by table the
columns that replay can see and their order (`replayed`); `faults` are (field, query for rows that are wrong, what is wrong)."""
FIRST_TIME, LAST_TIME = "0001-01-02", "9999-12-30"

TIMES = "ms of {}"
"""The key in `meta` of what parts of gathering a query took (`Evidence.ms`), which is not replayed."""

Role = Literal["rerank", "judge"]
ROLES: tuple[Role, ...] = ("rerank", "judge")
MAX_JSON_BYTES = 50_000_000
"""Characters of notes, variants, tags or details that are parsed."""


ROW_BYTES = 200
"""What a row takes besides its texts and arrays."""
_WIDTHS = {"VARCHAR": "strlen({})", "INTEGER[]": "4 * len({})", "DOUBLE[]": "8 * len({})", "FLOAT[]": "4 * len({})"}


def width(own: Columns) -> str:
    """An expression in SQL of the bytes of a row of a table with these columns."""
    return " + ".join(
        [str(ROW_BYTES), *(f"coalesce({_WIDTHS[kind].format(name)}, 0)" for name, kind, _ in own if kind in _WIDTHS)]
    )


@dataclass(frozen=True, slots=True)
class Portion:
    """Some of the queries of a file, by their number in the temporary table `portions` (see `cut`); all of them where
    that is None. `rows` are the first and last row of each table that are of them: others may stand between."""

    number: int | None = None
    rows: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def where(self, table: str) -> str:
        """The condition in SQL on the rows of a table that has a column qid, which is called by its name."""
        if self.number is None:
            return "true"
        first, last = self.rows.get(table, (0, -1))
        asked = f"(SELECT qid FROM portions WHERE portion = {self.number})"
        return f"{table}.rowid BETWEEN {first} AND {last} AND {table}.qid IN {asked}"


ALL = Portion()
LAST_ROW = 2**62


def cut(cursor: duckdb.DuckDBPyConnection, queries: int, most_bytes: int) -> list[Portion]:
    """Cut the queries into portions of so many, in their order, or of fewer where those hold more than `most_bytes`.
    The portions are noted in a temporary table. What a portion is made of is found in time that the others do not
    change, as long as the rows of a table stand about in the order of the queries."""
    there = columns_there(cursor)
    while True:
        cursor.execute(
            "CREATE OR REPLACE TEMP TABLE portions AS "
            f"SELECT qid, ((row_number() OVER (ORDER BY position) - 1) // {queries})::INTEGER AS portion FROM queries"
        )
        (last,) = cursor.execute("SELECT max(portion) FROM portions").fetchall()[0]
        rows: list[dict[str, tuple[int, int]]] = [{} for _ in range(0 if last is None else last + 1)]
        sizes = [0] * len(rows)
        for table in ("queries", "judgments", "evidence", "lists", "scores", "edges"):
            for number, first, end, size in cursor.execute(
                f"SELECT portion, min(number), max(number), sum(size) FROM (SELECT rowid AS number, qid, {width(there[table])} AS size "
                f"FROM {table}) JOIN portions USING (qid) GROUP BY portion"
            ).fetchall():
                rows[number][table] = first, end
                sizes[number] += int(size)
        largest = max(sizes, default=0)
        if largest <= most_bytes or queries == 1:
            return [Portion(number, of) for number, of in enumerate(rows)]
        queries = max(1, min(queries // 2, queries * most_bytes // largest))


CHOSEN = -1
"""The number of the portion of chosen queries."""


def choose(cursor: duckdb.DuckDBPyConnection, qids: Collection[str]) -> Portion:
    """The portion of these queries of a file, at any position; it holds no rows of other queries."""
    import pyarrow as pa

    cursor.execute("CREATE TEMP TABLE IF NOT EXISTS portions (qid VARCHAR, portion INTEGER)")
    cursor.execute(f"DELETE FROM portions WHERE portion = {CHOSEN}")
    with staged(cursor, "staged", pa.table({"qid": pa.array(list(qids), pa.string())})):
        cursor.execute(f"INSERT INTO portions SELECT qid, {CHOSEN} FROM staged JOIN queries USING (qid)")
    return Portion(CHOSEN, dict.fromkeys(columns_there(cursor), (0, LAST_ROW)))


class Known:
    """What the file already holds: numbers of memories and of texts."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection, source: str) -> None:
        self.memories: dict[str, tuple[int, Memory]] = read_memories(cursor, source)[0]
        self.chunks, self.tokens = read_chunks(cursor)
        self.texts = {text: number for number, text in cursor.execute("SELECT number, text FROM texts").fetchall()}


def require_whole(cursor: duckdb.DuckDBPyConnection, source: str) -> None:
    """Raise InputError as `<source>: <table>.<column>: <what is wrong>` for rows that belong to no other, stand twice
    or do not fit. `pipeline.evidence` checks the rows when they are read."""
    for where, select, problem in _faults(columns_there(cursor)):
        found = cursor.execute(f"{select} LIMIT 1").fetchone()
        if found is not None:
            values = " ".join(short(value) for value in found)
            raise fault(source, where, f"{values}{problem}")


def _faults(tables: Mapping[str, Columns]) -> Iterator[tuple[str, str, str]]:
    """(field, query for rows that are wrong, what is wrong with their values), in the order in which they are looked for."""
    for table, columns in tables.items():
        for name, kind, _ in sorted(columns):
            if kind == "TIMESTAMP":
                outside = f"NOT {name} BETWEEN TIMESTAMP '{FIRST_TIME}' AND TIMESTAMP '{LAST_TIME}'"
                select = f"SELECT {name}::VARCHAR FROM {table} WHERE {outside}"
                yield f"{table}.{name}", select, " is no time of the calendar"
            elif kind.endswith("[]"):
                select = f"SELECT 1 FROM {table} WHERE list_count({name}) <> len({name})"
                yield f"{table}.{name}", select, ": an entry is empty"
    for table, keys in ((table, keys) for table, every in KEYS["unique"].items() for keys in every):
        twice = f"SELECT {keys} FROM {table} GROUP BY ALL HAVING count(*) > 1"
        yield f"{table}.{keys}", twice, " is in the file twice"
    for table, column, there in ((table, *pair) for table, pairs in KEYS["refers"].items() for pair in pairs.items()):
        other, key = there.split(".")
        strange = f"{column} IS NOT NULL AND {column} NOT IN (SELECT {key} FROM {other})"
        lost = f"SELECT {column} FROM {table} WHERE {strange}"
        yield f"{table}.{column}", lost, f" is not among {other}.{key}"
    yield from map(tuple, KEYS["faults"])


def write_evidence(
    cursor: duckdb.DuckDBPyConnection, qid: str, evidence: Evidence, seconds: float, known: Known
) -> None:
    """Add the evidence of one query, inside the caller's transaction. Raises InputError when a memory differs from the
    one of that id in the file, or an embedding is not single precision."""
    _write_memories(cursor, evidence, known)
    number = {key: known.memories[key][0] for key in evidence.memories}
    add_rows(cursor, "evidence", [_evidence_row(qid, evidence, number, seconds)])
    if evidence.ms:
        parts = {name: round(took, 3) for name, took in evidence.ms.items() if name}
        add_rows(cursor, "meta", [(TIMES.format(qid), _text(parts))])
    add_rows(cursor, "lists", [*_list_rows(qid, evidence, number)])
    edges = enumerate(evidence.relations)
    add_rows(cursor, "edges", [(qid, i, one.source_id, one.target_id, one.kind, one.weight) for i, one in edges])
    _write_scores(cursor, qid, evidence, number, known.texts)


def _list_rows(qid: str, evidence: Evidence, number: Mapping[str, int]) -> Iterator[tuple[Any, ...]]:
    for position, ranked in enumerate(evidence.lists):
        members = [number[hit.memory_id] for hit in ranked.hits]
        chunks = [WHOLE_MEMORY if hit.chunk is None else hit.chunk for hit in ranked.hits]
        found = chunks if any(chunk != WHOLE_MEMORY for chunk in chunks) else None
        yield qid, position, ranked.name, ranked.source, ranked.variant, members, [hit.score for hit in ranked.hits], found


def _evidence_row(qid: str, one: Evidence, number: Mapping[str, int], seconds: float) -> tuple[Any, ...]:
    members = [number[key] for key in one.memories]
    variants = _text([[variant.text, variant.kind] for variant in one.variants])
    return qid, one.query, one.project, to_naive(one.as_of), members, variants, _text(one.notes), seconds


def write_external(
    cursor: duckdb.DuckDBPyConnection, found: Sequence[tuple[str, Evidence]], numbers: dict[str, int]
) -> None:
    """Add the evidence of external traces and of explanations by qid, inside the caller's transaction; `numbers` are those of the memories
    in the file, and get the new ones. Many are written at once, no text stays in memory, and the first of a memory is kept."""
    fresh = {key: memory for _, one in found for key, memory in one.memories.items() if key not in numbers}
    if fresh:
        _add_memories(cursor, list(fresh.values()), len(numbers))
        numbers.update(zip(fresh, range(len(numbers), len(numbers) + len(fresh)), strict=True))
    add_rows(cursor, "evidence", [_evidence_row(qid, one, numbers, 0.0) for qid, one in found])
    add_rows(cursor, "lists", [row for qid, one in found for row in _list_rows(qid, one, numbers)])
    for qid, one in found:
        _write_scores(cursor, qid, one, numbers, {})


def remove_external(cursor: duckdb.DuckDBPyConnection, qids: Sequence[str]) -> None:
    """Remove what `write_external` added by qid, inside the caller's transaction; the memories stay."""
    for table in ("evidence", "lists", "scores") if qids else ():
        cursor.execute(f"DELETE FROM {table} WHERE qid IN (SELECT unnest(?))", [list(qids)])


def write_text(cursor: duckdb.DuckDBPyConnection, number: int, memory: Memory) -> None:
    """Replace the text of a memory of the file, inside the caller's transaction."""
    cursor.execute(
        "UPDATE memories SET content = ?, title = ? WHERE number = ?", [memory.content, memory.title, number]
    )


def _add_memories(cursor: duckdb.DuckDBPyConnection, memories: Sequence[Memory], first: int, **more: Any) -> None:
    import pyarrow as pa

    table = memories_table.staging(memories)
    rows = {"number": pa.array(range(first, first + len(memories)), pa.int32())}
    rows |= {name: table[name] for name in memories_table.FIELDS} | more
    columns = ", ".join(rows)
    with staged(cursor, "staged", pa.table(rows)):
        cursor.execute(f"INSERT INTO memories ({columns}) SELECT {columns} FROM staged")


def _write_memories(cursor: duckdb.DuckDBPyConnection, evidence: Evidence, known: Known) -> None:
    import pyarrow as pa

    fresh = []
    for key, memory in evidence.memories.items():
        if key not in known.memories:
            fresh.append(memory)
        elif (known.memories[key][1], known.chunks.get(key, ()), known.tokens.get(key)) != (
            memory,
            evidence.chunks.get(key, ()),
            evidence.tokens.get(key),
        ):
            raise InputError(f"memory {key} is not the one the evidence file has; gather into another file")
    if not fresh:
        return
    first = len(known.memories)
    vectors = [_single(memory.id, evidence.embeddings.get(memory.id)) for memory in fresh]
    counts = [evidence.tokens.get(memory.id) for memory in fresh]
    tokens = pa.array([None if count is None else count[0] for count in counts], pa.int32())
    _add_memories(cursor, fresh, first, embedding=pa.array(vectors, pa.list_(pa.float32())), tokens=tokens)
    chunks = []
    for number, (memory, count) in enumerate(zip(fresh, counts, strict=True), first):
        known.memories[memory.id] = number, memory
        if count is not None:
            known.tokens[memory.id] = tuple(count)
        if own := evidence.chunks.get(memory.id, ()):
            known.chunks[memory.id] = own
        for i, chunk in enumerate(own, 1):
            chunks.append((number, chunk.seq, chunk.start, chunk.text, None if count is None else count[i]))
    add_rows(cursor, "chunks", chunks)


def _single(memory_id: str, vector: Any) -> Any:
    if vector is None:
        return None
    exact = np.asarray(vector, dtype=np.float64)
    single = exact.astype(np.float32)
    if not np.array_equal(single.astype(np.float64), exact):
        raise InputError(f"the embedding of memory {memory_id} is not in single precision, as the vector index has it")
    return single


def _write_scores(
    cursor: duckdb.DuckDBPyConnection,
    qid: str,
    evidence: Evidence,
    number: Mapping[str, int],
    texts: dict[str, int],
) -> None:
    rows = []
    first = len(texts)
    for role, models in zip(ROLES, (evidence.model_scores, evidence.judge_scores), strict=True):
        for model, scores in models.items():
            for key, score in scores.items():
                if key in number:
                    text = None if score.chunk is None else texts.setdefault(score.chunk, len(texts))
                    detail = None if score.detail is None else _text(score.detail)
                    rows.append((qid, role, model, number[key], score.raw, text, score.error, detail))
    add_rows(cursor, "texts", [(n, text) for text, n in islice(texts.items(), first, None)])
    add_rows(cursor, "scores", rows)


def replace_scores(cursor: duckdb.DuckDBPyConnection, scored: Mapping[str, Evidence], source: str) -> None:
    """Replace the model scores and notes of these queries, by qid, inside the caller's transaction."""
    known = Known(cursor, source)
    for qid, evidence in scored.items():
        number = {key: known.memories[key][0] for key in evidence.memories}
        cursor.execute("DELETE FROM scores WHERE qid = ?", [qid])
        cursor.execute("UPDATE evidence SET notes = ? WHERE qid = ?", [_text(evidence.notes), qid])
        _write_scores(cursor, qid, evidence, number, known.texts)


def add_rows(cursor: duckdb.DuckDBPyConnection, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """Add rows that have a value for each column of a table, in their order, inside the caller's transaction."""
    import pyarrow as pa

    if rows:
        schema = arrow(cursor, f"SELECT * FROM {table} LIMIT 0").schema
        columns = zip(zip(*rows, strict=True), schema, strict=True)
        insert(cursor, table, pa.table([pa.array(values, field.type) for values, field in columns], schema=schema))


def insert(cursor: duckdb.DuckDBPyConnection, table: str, rows: Any) -> None:
    """Add the rows of an Arrow table, whose columns are those of the table, inside the caller's transaction."""
    with staged(cursor, "staged", rows):
        cursor.execute(f"INSERT INTO {table} SELECT * FROM staged")


def write_query_set(
    cursor: duckdb.DuckDBPyConnection, queries: Sequence[Query], judgments: Sequence[Judgment], source: str
) -> None:
    """Write the queries, in their order, and the judgments. Raises InputError if they could not be read later."""
    check_query_set(queries, (), source)
    rows = [
        (i, one.qid, one.query, one.project, to_naive(one.as_of), one.type, one.answerable, given_text(one))
        for i, one in enumerate(queries)
    ]
    add_rows(cursor, "queries", rows)
    write_judgments(cursor, judgments, source)


def write_judgments(cursor: duckdb.DuckDBPyConnection, judgments: Sequence[Judgment], source: str) -> None:
    """Replace the judgments of the file. Raises InputError if they could not be read later."""
    rows = list(dict.fromkeys((one.qid, one.memory_id, one.grade, one.judge, one.kind) for one in judgments))
    check_query_set((), [Judgment(*row) for row in rows], source)
    cursor.execute("DELETE FROM judgments")
    add_rows(cursor, "judgments", rows)


def read_query_set(
    cursor: duckdb.DuckDBPyConnection, source: str, portion: Portion = ALL
) -> tuple[list[Query], list[Judgment]]:
    """The queries in their order, and the judgments. Raises InputError naming `source` where they are not as they should be."""
    queries = cursor.execute(
        "SELECT qid, query, project, as_of, type, answerable, given FROM queries "
        f"WHERE {portion.where('queries')} ORDER BY position"
    ).fetchall()
    judgments = cursor.execute(
        f"SELECT qid, memory_id, grade, judge, kind FROM judgments WHERE {portion.where('judgments')} ORDER BY qid, memory_id, judge"
    ).fetchall()
    found = [query_from_row(row) for row in queries], [Judgment(*row) for row in judgments]
    check_query_set(*found, source)
    return found


VARIANTS = tuple[tuple[str, VariantKind], ...]
WANTED = "wanted"
"""The name of a table of numbers of memories, while some of them are read."""


def read_memories(
    cursor: duckdb.DuckDBPyConnection, source: str, some: bool = False
) -> tuple[dict[str, tuple[int, Memory]], dict[str, Any]]:
    """Number and record of every memory by id, and the embeddings, each of shape (dimension,); of `some`, those in `WANTED`."""
    where = f"WHERE number IN (SELECT number FROM {WANTED})" if some else ""
    columns = ", ".join(memories_table.FIELDS)
    rows = cursor.execute(f"SELECT {columns} FROM memories {where} ORDER BY number").fetchall()
    place = memories_table.FIELDS.index("tags")
    for row in rows:
        if row[place] != "[]":
            _read_as(tuple[str, ...], row[place], source, f"memories.{row[0]}.tags")
    records = [memories_table.record(row) for row in rows]
    vectors = arrow(cursor, f"SELECT number, embedding FROM memories {where} ORDER BY number")
    found = {}
    values, starts = flat(vectors["embedding"])
    for i, memory in enumerate(records):
        if starts[i + 1] > starts[i]:
            found[memory.id] = values[starts[i] : starts[i + 1]]
    numbers = vectors["number"].to_pylist()
    return {memory.id: (number, memory) for number, memory in zip(numbers, records, strict=True)}, found


def read_chunks(
    cursor: duckdb.DuckDBPyConnection, some: bool = False
) -> tuple[dict[str, tuple[Chunk, ...]], dict[str, tuple[int, ...]]]:
    """By memory id the chunks of those that have any, and the tokens of those that were counted; of `some`, as `read_memories`."""
    where = f"m.number IN (SELECT number FROM {WANTED})" if some else "true"
    tokens = {
        memory_id: [count]
        for memory_id, count in cursor.execute(
            f"SELECT id, tokens FROM memories AS m WHERE tokens IS NOT NULL AND {where}"
        ).fetchall()
    }
    chunks: dict[str, list[Chunk]] = {}
    rows = cursor.execute(
        "SELECT m.id, c.seq, c.content, c.start, c.tokens FROM chunks AS c JOIN memories AS m ON m.number = c.member "
        f"WHERE {where} ORDER BY c.member, c.seq"
    ).fetchall()
    for *values, count in rows:
        chunk = Chunk(*values)
        chunks.setdefault(chunk.memory_id, []).append(chunk)
        if count is not None:
            tokens.setdefault(chunk.memory_id, []).append(count)
    return (
        {memory_id: tuple(own) for memory_id, own in chunks.items()},
        {memory_id: tuple(counts) for memory_id, counts in tokens.items()},
    )


def _read_edges(cursor: duckdb.DuckDBPyConnection, portion: Portion) -> dict[str, list[Relation]]:
    found: dict[str, list[Relation]] = {}
    rows = cursor.execute(
        f"SELECT qid, source_id, target_id, kind, weight FROM edges WHERE {portion.where('edges')} ORDER BY qid, position"
    ).fetchall()
    for qid, *values in rows:
        found.setdefault(qid, []).append(Relation(*values))
    return found


def read_evidence(cursor: duckdb.DuckDBPyConnection, source: str, portion: Portion = ALL) -> dict[str, Evidence]:
    """The evidence of every finished query by qid, in the order of the queries; the rows are whole (`require_whole`).
    Raises InputError naming `source` where something of it is not as evidence is."""
    ordered = f"FROM evidence JOIN queries USING (qid) WHERE {portion.where('evidence')} ORDER BY queries.position"
    rows = cursor.execute(
        "SELECT qid, evidence.query, evidence.project, evidence.as_of, evidence.variants, evidence.notes, seconds " + ordered
    ).fetchall()
    timed = f"SELECT qid, value FROM evidence JOIN meta ON key = '{TIMES.format('')}' || qid WHERE {portion.where('evidence')}"
    times = dict(cursor.execute(timed).fetchall())
    members, starts = flat(arrow(cursor, f"SELECT evidence.members {ordered}")["members"])
    listed = arrow(
        cursor,
        "SELECT qid, name, source, variant, members, scores, chunks FROM lists "
        f"WHERE {portion.where('lists')} ORDER BY qid, position",
    )
    scored = cursor.execute(
        f"SELECT qid, role, model, member, raw, text, error, detail FROM scores WHERE {portion.where('scores')}"
    ).fetchall()
    some = portion.number is not None
    if some:
        _want(cursor, [members, flat(listed["members"])[0], np.array([row[3] for row in scored], dtype=np.int32)])
    numbered, embeddings = read_memories(cursor, source, some)
    records = {number: memory for number, memory in numbered.values()}
    ids = np.empty(max(records, default=-1) + 1, dtype=object)
    ids[list(records)] = [memory.id for memory in records.values()]
    lists = _read_lists(listed, ids)
    scores = _read_scores(cursor, scored, ids, source, portion)
    chunks, tokens = read_chunks(cursor, some)
    check_memories(records.values(), embeddings, chunks, tokens, source)
    edges = _read_edges(cursor, portion)
    found: dict[str, Evidence] = {}
    gathered: Any = None
    for i, (qid, query, project, as_of, variants, notes_text, seconds) in enumerate(rows):
        own = f"{source}: query {one_line(qid)}"
        parts = _read_as(dict[str, float], times.get(qid, "{}"), own, "ms")
        notes = _object(notes_text, own, "notes")
        if gathered is not None and notes.get("gathered") == gathered:  # kept once: it is the same for the whole set
            notes["gathered"] = gathered
        gathered = notes.get("gathered")
        memories = with_own_times({records[n].id: records[n] for n in members[starts[i] : starts[i + 1]].tolist()}, notes)
        found[qid] = Evidence(
            query=query,
            memories=memories,
            variants=tuple(starmap(Variant, _read_as(VARIANTS, variants, own, "variants"))),
            lists=tuple(lists.get(qid, ())),
            as_of=to_aware(as_of),
            project=project,
            model_scores=scores.get((qid, "rerank"), {}),
            judge_scores=scores.get((qid, "judge"), {}),
            embeddings={key: embeddings[key] for key in memories if key in embeddings},
            chunks={key: chunks[key] for key in memories if key in chunks},
            relations=tuple(edges.get(qid, ())),
            tokens={key: tokens[key] for key in memories if key in tokens},
            notes=notes,
            ms={**parts, "": 1000 * seconds} if seconds else parts,
        )
        check_query(found[qid], own)
    return found


def _read_as(kind: Any, text: str, source: str, where: str) -> Any:
    """JSON text as values of a type. Raises InputError that names where they are not."""
    try:
        return reader(kind)(json_values(text, f"{source}: {where}", MAX_JSON_BYTES))
    except Misread as problem:
        raise fault(source, where + problem.where, problem.problem) from None


def _object(text: str, source: str, where: str) -> dict[str, Any]:
    values = json_values(text, f"{source}: {where}", MAX_JSON_BYTES)
    if not isinstance(values, dict):
        raise fault(source, where, f"expected an object, found {short(values)}")
    return values


def _want(cursor: duckdb.DuckDBPyConnection, members: Sequence[Any]) -> None:
    """Have `WANTED` hold the numbers of these memories, each once."""
    import pyarrow as pa

    numbers = np.unique(np.concatenate([part.astype(np.int32) for part in members]))
    with staged(cursor, "staged", pa.table({"number": numbers})):
        cursor.execute(f"CREATE OR REPLACE TEMP TABLE {WANTED} AS SELECT number FROM staged")


def _read_lists(table: Any, ids: Any) -> dict[str, list[RankedList]]:
    members, starts = flat(table["members"])
    values, _ = flat(table["scores"])
    hits = list(map(Hit, ids[members].tolist(), values.tolist()))
    if table["chunks"].null_count < len(table):
        for i, numbers in enumerate(table["chunks"].to_pylist()):
            for place, number in enumerate(numbers or (), start=int(starts[i])):
                hits[place] = Hit(hits[place].memory_id, hits[place].score, None if number == WHOLE_MEMORY else number)
    found: dict[str, list[RankedList]] = {}
    heads = zip(*(table[name].to_pylist() for name in ("qid", "name", "source", "variant")), strict=True)
    for i, (qid, name, source, variant) in enumerate(heads):
        found.setdefault(qid, []).append(RankedList(name, source, variant, tuple(hits[starts[i] : starts[i + 1]])))
    return found


def _read_scores(
    cursor: duckdb.DuckDBPyConnection, rows: Sequence[tuple[Any, ...]], ids: Any, source: str, portion: Portion
) -> dict[tuple[str, str], dict[str, dict[str, ModelScore]]]:
    read = "true" if portion.number is None else f"number IN (SELECT text FROM scores WHERE {portion.where('scores')})"
    texts = dict(cursor.execute(f"SELECT number, text FROM texts WHERE {read}").fetchall())
    found: dict[tuple[str, str], dict[str, dict[str, ModelScore]]] = {}
    for qid, role, model, member, raw, text, error, detail in rows:
        where = f"{'model' if role == 'rerank' else role}_scores.{model}.{ids[member]}"
        details = None if detail is None else _object(detail, f"{source}: query {one_line(qid)}", f"{where}.detail")
        score = ModelScore(raw, texts.get(text), error, details)
        found.setdefault((qid, role), {}).setdefault(model, {})[ids[member]] = score
    return found


def flat(column: Any) -> tuple[Any, Any]:
    """The values of a column of arrays one after the other, and where each row begins (rows + 1)."""
    array = column.combine_chunks()
    if not len(array):
        return np.zeros(0, dtype=np.int64), np.zeros(1, dtype=np.int64)
    lengths = array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    return array.flatten().to_numpy(zero_copy_only=False), np.concatenate(([0], np.cumsum(lengths)))


def _text(values: Any) -> str:
    return json.dumps(values, ensure_ascii=False)


def arrow(cursor: duckdb.DuckDBPyConnection, select: str) -> Any:
    """The result of a query as an Arrow table."""
    return cursor.sql(select).to_arrow_table()
