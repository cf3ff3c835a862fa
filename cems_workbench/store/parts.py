"""Two stores, part by part: which memory of one is which of the other, what differs, and a store with some parts as another has them.

Memories are matched as labels follow their texts (`judged_texts`): by id with the same text, by text, then by what is left on both sides.
Each part is compared where the parts before it are the same: chunks of memories with the same text, vectors of the same chunks. `put_back`
writes parts of one store into a copy of the other. The indexes of the copy follow at their next refresh, with the vectors that the two
stores have (`StoredVectors`); other texts are embedded.

Memory: the ids of both stores, and the words of what is left, for which only ids and exact texts count from MOST_BY_WORDS on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from cems_workbench.models.protocol import Embedder, Float32
from cems_workbench.records import TIMES, Chunk, Relation, TextRule
from cems_workbench.store import chunks, language, memories, relations
from cems_workbench.store import rows as tables
from cems_workbench.store.database import Database
from cems_workbench.store.duckdb_file import open_file
from cems_workbench.store.judged_texts import Found, Judged, found_among
from cems_workbench.store.search.entries import Entry, EntryId, entry_id
from cems_workbench.store.search.vector_files import records
from cems_workbench.store.search.vector_index import VectorIndex
from cems_workbench.store.text_rule import text_rule

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

TEXTS, MEMORIES, CHUNKS, VECTORS = "memory texts", "new and gone memories", "chunks", "vectors"
LEXICAL, CONFIG, SUPERSESSION, DATES, FIELDS = "lexical settings", "config", "supersession", "dates", "other fields"
PARTS = (TEXTS, MEMORIES, CHUNKS, VECTORS, LEXICAL, CONFIG, SUPERSESSION, DATES, FIELDS)
"""In the order in which they are put back. Supersession is all edges between matched memories, dates are also counts of use, and edges of a
new memory come and go with it; the config is not of the store."""
COLUMNS: Mapping[str, Sequence[str]] = {
    TEXTS: ("content", "title"),
    DATES: (*TIMES, "access_count", "relevant_count", "noise_count"),
    FIELDS: ("category", "project", "session", "author", "tags", "priority", "pinned", "importance", "scope"),
}
"""The columns of a memory that are of a part."""
MOST_BY_WORDS = 50_000
"""With more memories left on both sides together, words are not compared."""
SORT_LIMIT = "1GB"
"""Memory of the join of both stores' ids; beyond it DuckDB spills."""
SAME_VECTOR = 0.9999
"""Two vectors of one text with this cosine are the same: batches and machines round differently."""
PORTION = 5_000


@dataclass(frozen=True)
class Difference:
    """What a second store has otherwise than a first."""

    pairs: Mapping[str, str] = field(default_factory=dict)
    """By id in the first store the id in the second, of memories that are the same one; one to one."""
    regrouped: Mapping[str, Found] = field(default_factory=dict)
    """Memories of the first store that were merged or split."""
    gone: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    """Ids of the second store."""
    changed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By part the ids, in the first store, of the pairs in which it differs; for supersession the edges of one store alone."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """By part what of the store as a whole differs: chunk rule, embedder, language."""
    by_words: bool = True
    """Whether what was left on both sides was compared by its words too."""

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts that differ, in the order of PARTS; those of evidence, which are none of a store, come first."""
        there = {part for part, ids in self.changed.items() if ids} | self.settings.keys()
        there |= {TEXTS} if self.regrouped else set()
        there |= {MEMORIES} if self.gone or self.new else set()
        return (*(part for part in self.settings if part not in PARTS), *(part for part in PARTS if part in there))

    @property
    def counts(self) -> dict[str, int]:
        """How many memories are the same, new, gone, changed …, in words of the command."""
        of = {part: len(ids) for part, ids in self.changed.items()}
        return {
            "matched": len(self.pairs),
            "under another id": sum(key != other for key, other in self.pairs.items()),
            "new": len(self.new),
            "gone": len(self.gone),
            "changed": of.get(TEXTS, 0),
            "merged or split": len(self.regrouped),
            "re-chunked": of.get(CHUNKS, 0),
            "re-embedded": of.get(VECTORS, 0),
            "with other dates": of.get(DATES, 0),
            "with other fields": of.get(FIELDS, 0),
            "edges": of.get(SUPERSESSION, 0),
        }

    @property
    def words(self) -> list[str]:
        """The counts that are not 0 in a line, then a line for each setting."""
        matched, *others = self.counts.items()
        said = [f"{count:,} {name}" for name, count in others if count]
        lines = [f"memories: {matched[1]:,} {matched[0]}" + (f"; {', '.join(said)}" if said else ", nothing differs")]
        if not self.by_words:
            lines.append(f"more than {MOST_BY_WORDS:,} memories have no equal text: a reworded one counts as gone and new")
        return [*lines, *(f"{part}: {what}" for part, what in self.settings.items() if what)]

    def to_json(self) -> dict[str, Any]:
        return {
            "counts": self.counts,
            "settings": dict(self.settings),
            "parts": list(self.parts),
            "new": list(self.new),
            "gone": list(self.gone),
            "regrouped": {key: [one.status, list(one.targets)] for key, one in self.regrouped.items()},
            "moved": {key: other for key, other in self.pairs.items() if key != other},
            **{part: list(ids) for part, ids in self.changed.items() if ids},
        }


@dataclass(frozen=True)
class Side:
    """A store with refreshed indexes, as it is compared."""

    database: Database
    vectors: VectorIndex
    model_id: str

    @property
    def collection(self) -> str:
        """Under which the vectors are recorded."""
        return self.database.read(records)[self.model_id].collection


def compared(first: Side, second: Side) -> Difference:
    """What the second store has otherwise than the first."""
    with open_file(":memory:", memory_limit=SORT_LIMIT) as beside:
        for name, side in (("a", first), ("b", second)):
            beside.register(name, side.database.read(_rows))
        pairs: dict[str, str] = dict(beside.execute(_SAME).fetchall())
        ids = (("a", pairs.keys()), ("b", {*pairs.values()}))
        rest = [sorted(set(tables.column(beside, f"SELECT id FROM {name}")) - there) for name, there in ids]
        found = _left(first.database, second.database, *rest)
        taken = {*pairs.values()}
        for key, one in found.items():
            to = next(iter(one.targets), key if one.status == "changed" else "")
            if one.status in ("valid", "moved", "changed") and to and to not in taken:
                pairs[key] = to
                taken.add(to)
        regrouped = {key: one for key, one in found.items() if one.targets and key not in pairs}
        targets = {target for one in regrouped.values() for target in one.targets}
        gone = tuple(key for key in rest[0] if key not in pairs and key not in regrouped)
        new = tuple(key for key in rest[1] if key not in taken and key not in targets)
        beside.register("pairs", tables.table_of("a string, b string", list(pairs.items())))
        rows = beside.execute(_DIFFERS).fetchall()
    parts = (TEXTS, CHUNKS, DATES, FIELDS)
    changed = {part: tuple(row[0] for row in rows if row[at]) for at, part in enumerate(parts, 1)}
    of_texts = {*changed[TEXTS], *changed[CHUNKS]}
    alike = {key: other for key, other in pairs.items() if key not in of_texts}
    settings = _settings(first, second)
    changed[VECTORS] = tuple(alike) if VECTORS in settings else _re_embedded(first, second, alike)
    changed[SUPERSESSION] = _edges_between(first.database, second.database, pairs)
    if not changed[CHUNKS] and not (changed[TEXTS] or new or gone or regrouped):
        settings.pop(CHUNKS, None)  # another rule that cuts nothing otherwise
    return Difference(pairs, regrouped, gone, new, changed, settings, sum(map(len, rest)) <= MOST_BY_WORDS)


def _rows(cursor: duckdb.DuckDBPyConnection) -> pa.Table:
    """Of each live memory hashes of its content, text, chunks, dates and fields."""
    of = {name: f"hash({', '.join(COLUMNS[part])})" for name, part in (("text", TEXTS), ("dates", DATES), ("fields", FIELDS))}
    return cursor.sql(
        f"SELECT id, hash(content) AS content, {', '.join(f'{value} AS {name}' for name, value in of.items())}, "
        "hash(text_sha, c.shas) AS chunks FROM memories LEFT JOIN (SELECT memory_id, list(text_sha ORDER BY seq) AS shas "
        "FROM chunks GROUP BY memory_id) AS c ON c.memory_id = id WHERE deleted_at IS NULL"
    ).to_arrow_table()


_SAME = (
    "WITH own AS (SELECT a.id FROM a JOIN b USING (id, content)), "
    "x AS (SELECT id, content, row_number() OVER (PARTITION BY content ORDER BY id) AS n FROM a WHERE id NOT IN (FROM own)), "
    "y AS (SELECT id, content, row_number() OVER (PARTITION BY content ORDER BY id) AS n FROM b WHERE id NOT IN (FROM own)) "
    "SELECT id, id FROM own UNION ALL SELECT x.id, y.id FROM x JOIN y USING (content, n)"
)
_DIFFERS = (
    "SELECT * FROM (SELECT p.a, a.text <> b.text AS text, a.text = b.text AND a.chunks <> b.chunks AS chunks, "
    "a.dates <> b.dates AS dates, a.fields <> b.fields AS fields FROM pairs AS p JOIN a ON a.id = p.a JOIN b ON b.id = p.b) "
    "WHERE text OR chunks OR dates OR fields ORDER BY a"
)


def _left(first: Database, second: Database, ours: Sequence[str], theirs: Sequence[str]) -> dict[str, Found]:
    """Where the memories are that no exact text was found of."""
    if not ours or not theirs:
        return {}
    if len(ours) + len(theirs) > MOST_BY_WORDS:
        return {key: Found("changed") for key in {*ours} & {*theirs}}

    def read(cursor: duckdb.DuckDBPyConnection, ids: Sequence[str]) -> dict[str, Judged]:
        return {row[0]: Judged(*row[1:]) for row in memories.rows_of(cursor, "id, content, source_ref", ids)}

    now = second.read(read, theirs)
    return found_among(first.read(read, ours), now)


def _settings(first: Side, second: Side) -> dict[str, str]:
    """What of the stores as a whole differs, by part."""

    def of(cursor: duckdb.DuckDBPyConnection) -> tuple[str, str]:
        return f"rule {chunks.rule(cursor)}{_text_words(text_rule(cursor))}", language.language(cursor)

    was, now = (side.database.read(of) for side in (first, second))
    both = {CHUNKS: (was[0], now[0]), VECTORS: (first.model_id, second.model_id), LEXICAL: (was[1], now[1])}
    return {part: f"{before}, then {after}" for part, (before, after) in both.items() if before != after}


def _text_words(rule: TextRule) -> str:
    return f" of {rule}" if rule != TextRule() else ""


def _re_embedded(first: Side, second: Side, pairs: Mapping[str, str]) -> tuple[str, ...]:
    """The memories with another vector of the same text, by the same model."""

    def hashes(side: Side) -> dict[EntryId, int]:
        sql = "SELECT memory_id, seq, vector_hash FROM embedded WHERE collection = ?"
        return {entry_id(key, seq): value for key, seq, value in side.database.rows(sql, [side.collection])}

    was, now = hashes(first), hashes(second)
    differing = sorted({key for (key, seq), value in was.items() if key in pairs and now.get((pairs[key], seq)) != value})
    found = list[str]()
    for some in tables.portions(differing, PORTION):
        ours, theirs = first.vectors.chunk_embeddings(some), second.vectors.chunk_embeddings([pairs[key] for key in some])
        for key in some:
            one, other = ours.get(key, {}), theirs.get(pairs[key], {})
            if one.keys() != other.keys() or any(float(one[seq] @ other[seq]) < SAME_VECTOR for seq in one):
                found.append(key)
    return tuple(found)


_EDGES = "SELECT source_id, target_id, kind, weight FROM relations"


def _edges_between(first: Database, second: Database, pairs: Mapping[str, str]) -> tuple[str, ...]:
    """The edges that one store alone has, between memories that both have."""
    there, back = {*pairs.values()}, {other: key for key, other in pairs.items()}
    was = {(source, target, *rest) for source, target, *rest in first.rows(_EDGES) if {source, target} <= pairs.keys()}
    rows = [row for row in second.rows(_EDGES) if {row[0], row[1]} <= there]
    now = {(back[source], back[target], *rest) for source, target, *rest in rows}
    return tuple(sorted(f"{source} → {target} ({kind})" for source, target, kind, _ in was ^ now))


def put_back(into: Database, source: Database, of: Difference, parts: Collection[str]) -> None:
    """Write parts of the first store (`source`) into a copy of the second. Vectors and config are not of its tables."""
    named = dict(of.pairs)
    own = {*of.pairs.values(), *of.new, *(target for one in of.regrouped.values() for target in one.targets)}
    back = [*(of.gone if MEMORIES in parts else ()), *(of.regrouped if TEXTS in parts else ())]
    for key in back:
        name = key
        while name in own:
            name += "*"  # another memory has this id there
        named[key] = name
        own.add(name)
    columns = [name for part in parts for name in COLUMNS.get(part, ())]
    altered = sorted({key for part in parts if part in COLUMNS for key in of.changed[part]})
    cut = {*back, *(of.changed[TEXTS] if TEXTS in parts and (CHUNKS in parts or CHUNKS not in of.parts) else ())}
    cut |= {*of.changed[CHUNKS]} if CHUNKS in parts else set()
    targets = {target for one in of.regrouped.values() for target in one.targets} - {*of.pairs.values()}
    removed = [*(of.new if MEMORIES in parts else ()), *(targets if TEXTS in parts else ())]
    if CHUNKS in parts:
        chunks.Chunks(into).choose(source.read(chunks.rule))
        language.TextRules(into).choose(source.read(text_rule))
    with source.reading() as read, into.transaction() as cursor:
        if LEXICAL in parts:
            language.record(cursor, language.Choice(language.language(read), "as compared"))
        if VECTORS in parts:
            cursor.execute("DELETE FROM source_vectors")
            cursor.execute("UPDATE sources SET dimension = NULL")
        rule = text_rule(cursor)
        if removed:
            memories.remove(cursor, removed)
        for some in tables.portions([*altered, *back], PORTION):
            ours, theirs = memories.read(read, some), memories.read(cursor, [named[key] for key in some])
            rows = [
                replace(theirs[named[key]], **{name: getattr(one, name) for name in columns})
                if named[key] in theirs
                else replace(one, id=named[key])
                for key, one in ours.items()
            ]
            memories.upsert(cursor, memories.staging(rows, rule=rule))
        again = [named[key] for key in back]
        cursor.execute("UPDATE memories SET deleted_at = NULL WHERE id IN (SELECT unnest(?))", [again])
        memories.mark_changed(cursor, again, tables.next_version(cursor))
        for some in tables.portions(sorted(cut), PORTION):
            _put_chunks(read, cursor, some, named)
        if SUPERSESSION in parts:
            of_both = "(SELECT unnest($ids))"
            cursor.execute(
                f"DELETE FROM relations WHERE source_id IN {of_both} AND target_id IN {of_both}", {"ids": [*of.pairs.values()]}
            )
        if SUPERSESSION in parts or back:
            edges = [row for row in read.execute(_EDGES).fetchall() if row[0] in named and row[1] in named]
            brought = [row for row in edges if SUPERSESSION in parts or not {row[0], row[1]} <= of.pairs.keys()]
            relations.upsert(cursor, [Relation(named[a], named[b], *more) for a, b, *more in brought])
        tables.bump_content_version(cursor)


def _put_chunks(
    read: duckdb.DuckDBPyConnection, cursor: duckdb.DuckDBPyConnection, ids: Sequence[str], named: Mapping[str, str]
) -> None:
    """Give the memories the chunks that they have in the first store; none to those that are indexed whole there."""
    found = read.execute(
        "SELECT memory_id, seq, content, start, titled, text_sha FROM chunks WHERE memory_id IN (SELECT unnest(?)) ORDER BY 1, 2",
        [list(ids)],
    ).fetchall()
    given: dict[str, list[tuple[Chunk, bool, str]]] = {}
    for key, seq, text, start, titled, sha in found:
        given.setdefault(named[key], []).append((Chunk(named[key], seq, text, start), titled, sha))
    rows = memories.rows_of(cursor, "id, content", [named[key] for key in ids])
    chunks.put_given(cursor, *chunks.given_tables(given, {key: tables.text_sha(content) for key, content in rows}))


class StoredVectors:
    """The vectors of stores by the text that they were made of."""

    def __init__(self, sides: Iterable[Side]) -> None:
        self._sides = [(side, side.collection) for side in sides]

    def of(self, entries: Sequence[Entry], embedder: Embedder) -> dict[EntryId, Float32]:
        """The unit vectors of those of these entries whose text one of the stores has embedded, by entry; the first store counts."""
        found: dict[str, Float32] = {}
        for side, collection in reversed(self._sides):
            rows = side.database.rows(
                "SELECT text_sha, memory_id, seq FROM embedded WHERE collection = ? AND text_sha IN (SELECT unnest(?)) ORDER BY memory_id",
                [collection, [entry.text_sha for entry in entries]],
            )
            vectors = side.vectors.chunk_embeddings([*dict.fromkeys(map(itemgetter(1), rows))])
            for sha, key, seq in rows:
                vector = vectors.get(key, {}).get(entry_id(key, seq)[1])
                if vector is not None:
                    found[sha] = np.asarray(vector, np.float32)
        return {entry.id: found[entry.text_sha] for entry in entries if entry.text_sha in found}

