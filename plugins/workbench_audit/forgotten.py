"""Whether a deleted memory is gone: every place of a store is searched for its text; a receipt says what was searched and what holds it.

    tables          every table of the store, of its transcript, of the team's database and of each evidence file: rows with the text,
                    as it is, as in JSON or in lower case, and rows that only name the memory by its id or by the hash of its text
    indexes         whether the files of the lexical index have its words, and those of the vectors its vector, deleted or not
    Chroma          the records of each of the store's collections
    lists           whether a search for its own text returns it, by any list
    paraphrases     the memories and turns nearest to the text that say the same (workbench_transcripts/coverage.py)
    files           every file below the store's folder, byte by byte: freed pages of a database too, as long as they are not compressed

A text below MIN_CHARS characters is only compared with whole values. The receipt has no text of the memory: it has its SHA-256, and that of
each file that was searched. Copies elsewhere, such as backups, exports and the system that the memory came from, are not searched.

Removes a memory from the tables and indexes of a store for good; what it cannot reach the receipt of forgotten.py names.

What goes follows from the columns of each table, in the store's database and in the team's:

    a memory's id      (`id`, `…_id`) the row is removed, but for tables of KEPT, which only name the memory
    `…_cache`          rows are removed that have the text, or the hash of a text of the memory
    CUT, `results`     notes and states of labels, and recorded answers: the text is cut out, the rest stays

The database, the vectors and the lexical index are written again, as they keep bytes of what is deleted; Chroma's files are removed, and
written again from the vectors. An import or a live source that still has the memory brings it back.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from cems_workbench import __version__
from cems_workbench.api.open_store import load_config
from cems_workbench.config import PipelineConfig
from cems_workbench.errors import InputError, WorkbenchError, counted, nearest
from cems_workbench.evaluation import evidence_file
from cems_workbench.jobs.query_set_evidence import evidence_files
from cems_workbench.pipeline.gather import Request, gather_lists
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Progress, silent
from cems_workbench.records import Memory
from cems_workbench.results import Report, Table
from cems_workbench.store import memories
from cems_workbench.store.database import Database
from cems_workbench.store.rows import bump_content_version
from cems_workbench.store.team import CursorSession, Session
from workbench_audit import audit
from workbench_transcripts.coverage import compared, point_of
from workbench_transcripts.transcript import transcript_folder

if TYPE_CHECKING:
    from cems_workbench.api.open_store import ConfigLike, OpenStore


KEPT = {
    *("judgments", "judgments_before", "label_events", "adjudications", "label_queue_pairs", "label_queue_rankings"),
    *("embedded", "source_rows", "removed_memories"),
}
"""Tables whose rows name a memory and stay; those of the indexes go with them."""
CUT = {"note", "shown", "before", "why"}
"""Columns of which the text is cut out."""
OTHERS = {"model_id", "store_id"}
"""Ids of something else than a memory."""
TEXTS = ("VARCHAR", "TEXT", "CHARACTER VARYING")


def columns_of(session: Session) -> dict[str, list[tuple[str, str]]]:
    """By table of a database its columns with their types."""
    known: dict[str, list[tuple[str, str]]] = {}
    own = "FROM information_schema.columns WHERE table_schema = current_schema()"
    for table, column, kind in session.rows(f"SELECT table_name, column_name, data_type {own} ORDER BY 1, 2"):
        known.setdefault(table, []).append((column, kind))
    return known


def to_erase(search: Search, resources: Resources, own: Database) -> list[tuple[str, int]]:
    """The rows that `erase` removes or cuts, by table; nothing is changed."""
    with own.reading() as cursor:
        found = _rows(CursorSession(cursor), search, False)
    team = resources.store.team
    if team.place:
        with team.reading() as session:
            found += [(f"team {table}", count) for table, count in _rows(session, search, False)]
    return found


def erase_all(search: Search, resources: Resources, progress: Progress = silent) -> list[tuple[str, int]]:
    """Remove a memory for good; returns its rows by table. Raises StoreError, and what `progress` raises before anything is removed."""
    progress("erasing", 0, 1)
    store, of_team = resources.store, list[tuple[str, int]]()
    if store.team.place:
        with store.team.transaction() as session:
            of_team = [(f"team {table}", count) for table, count in _rows(session, search, True)]
    with closing(Database(store.path)) as own:
        with own.transaction() as cursor:
            found = _rows(CursorSession(cursor), search, True)
            memories.remove(cursor, [search.memory_id])
            bump_content_version(cursor)
        own.read(store.memories.reload_hidden)
        with resources.changing():
            mirrored = store.indexes.erase(search.memory_id)
        resources.refresh(progress)
        for embedder_id in mirrored:
            store.indexes.renew_chroma(embedder_id, progress)
        own.rewrite()
    return found + of_team


def _rows(session: Session, search: Search, change: bool) -> list[tuple[str, int]]:
    known, found = columns_of(session), Counter[str]()
    texts = {table: [name for name, kind in columns if kind.upper() in TEXTS] for table, columns in known.items()}
    ids = {table: [name for name in own if f"_{name}".endswith("_id") and name not in OTHERS] for table, own in texts.items()}
    its = {table: " OR ".join(f"{name} = ?" for name in own) for table, own in ids.items()}
    hashes = [
        sha
        for table, own in texts.items()
        if ids[table] and "text_sha" in own
        for (sha,) in session.rows(f'SELECT DISTINCT text_sha FROM "{table}" WHERE {its[table]}', [search.memory_id] * len(ids[table]))
    ]
    forms = search.forms or [search.text]

    def run(table: str, sql: str, given: Sequence[Any], condition: str, values: Sequence[Any]) -> None:
        if change:
            found[table] += session.change(f"{sql} WHERE {condition}", [*given, *values])
        else:
            found[table] += int(session.rows(f'SELECT count(*) FROM "{table}" WHERE {condition}', values)[0][0])

    def holds(column: str) -> str:
        return " OR ".join([f"strpos({column}, ?) > 0" if search.forms else f"{column} = ?"] * len(forms))

    for table, own in texts.items():
        if table.endswith("_cache"):
            conditions, values = [holds(f'"{name}"') for name in own], forms * len(own)
            if "text_sha" in own and hashes:
                conditions.append(f"text_sha IN ({', '.join('?' * len(hashes))})")
                values = values + hashes
            run(table, f'DELETE FROM "{table}"', [], " OR ".join(conditions), values)
        elif ids[table] and table not in KEPT:
            run(table, f'DELETE FROM "{table}"', [], its[table], [search.memory_id] * len(ids[table]))
        for column in CUT.intersection(own):
            name = cut = f'"{column}"'
            for _ in search.forms:
                cut = f"replace({cut}, ?, '')"
            run(table, f'UPDATE "{table}" SET {name} = {cut if search.forms else "NULL"}', search.forms, holds(name), forms)
    for table in (table for table, columns in known.items() if any("STRUCT" in kind for _, kind in columns)):
        said = f"x.content IS NOT NULL AND (x.memory_id = ? OR {holds('x.content')})"
        rest = f"{{memory_id: x.memory_id, score: x.score, content: CASE WHEN {said} THEN NULL ELSE x.content END}}"
        values = [search.memory_id, *forms]
        changed = f'UPDATE "{table}" SET results = list_transform(results, lambda x: {rest})'
        run(table, changed, values, f"list_bool_or(list_transform(results, lambda x: {said}))", values)
    return [(table, count) for table, count in found.items() if count]


MIN_CHARS = 12
SEARCHED = 12
"""Memories of each index that the text is compared with."""
SEARCHED_CHARS = 2_000
"""Characters of the text that the lists are searched for."""
BLOCK = 1 << 20

ADVICE = {
    "memories": "the row is kept so that Restore can bring it back; --erase removes it",
    **dict.fromkeys(("memories_before", "judged_texts", "chunks", "chunks_before", "recorded_answers", "reply_cache"), "--erase"),
    **dict.fromkeys(("lexical", "vectors", "chroma", "list"), "--erase writes it again"),
    "transcript": "what was said; delete the folder transcript to forget it",
    "evidence": "rm {path}; what needs it is gathered again",
    "paraphrase": "read it, and erase it too if it should go",
    "file": "its rows, as above, or bytes of deleted ones; --erase writes database and indexes again",
}
"""What to do, by table or kind of place."""


@dataclass(frozen=True, slots=True)
class Place:
    """A place that was searched. `searched` are its rows, records or bytes, `holds` how many of them have the text, `names` how many only
    name the memory; `problem` says why it could not be searched."""

    kind: str
    name: str
    searched: int
    holds: int = 0
    names: int = 0
    sha256: str = ""
    problem: str = ""

    def advice(self, folder: Path) -> str:
        """What to do about it; empty where nothing is held."""
        of = "transcript" if self.name.startswith("transcript ") else self.name if self.name in ADVICE else self.kind
        return ADVICE.get(of, "").format(path=quote(str(folder / "evidence" / self.name))) if self.holds else ""


@dataclass(frozen=True, eq=False, repr=False)
class Receipt(Report):
    """What was searched for a memory, and what still holds its text. `forgotten`: all was searched, and nothing does."""

    forgotten: bool = False


def forgotten(
    store: OpenStore,
    memory_id: str,
    text: str | None = None,
    config: ConfigLike | None = None,
    *,
    erase: bool = False,
    progress: Progress = silent,
) -> Receipt:
    """Whether a deleted memory is gone: every place that was searched, and what still holds its text or says the same.

    Args:
        store: an open store.
        memory_id: the memory.
        text: what it said, where the store has no row of it any more.
        config: whose lists are searched.
        erase: first remove what `to_erase` counts. It cannot be taken back.
        progress: called with a label, a count and a total.

    Raises:
        InputError: no row has its text and none was passed, or it is empty.
        StoreError: the database cannot be written again.
    """
    resources, remarks = store.resources, []
    resources.refresh(progress)
    with closing(Database(resources.store.path)) as own, audit.transcript_of(resources) as turns:
        search = search_of(memory_id, text, own, resources)
        if erase:
            gone = [f"{name} {count:,}" for name, count in erase_all(search, resources, progress)]
            remarks.append(f"erased, in rows: {', '.join(gone) or 'nothing was left'}")
        if not search.forms:
            remarks.append(
                f"a text of fewer than {MIN_CHARS} characters is only compared with whole values, and in no file"
            )
        places = [*_databases(search, resources, own, progress), *_indexes(search, resources)]
        places += _lists(search, resources, load_config(config))
        for kind, of in (("memories", resources), ("transcript", turns)):
            places += _paraphrases(search, kind, of, resources) if of is not None else []
    places += _files(search, resources.store.path, progress)
    remarks.append("backups, exports and the system that the memory came from were not searched")
    return _receipt(search, resources.store.path, places, remarks)


def would_erase(store: OpenStore, memory_id: str, text: str | None = None) -> Report:
    """What `forgotten` with `erase` would remove; nothing is changed. Raises InputError as `forgotten`."""
    with closing(Database(store.resources.store.path)) as own:
        search = search_of(memory_id, text, own, store.resources)
        rows = to_erase(search, store.resources, own)
    title = f"what would be erased of {memory_id}, whose text is from {search.known}; nothing was changed"
    files = "the database and the indexes would be written again; an app that has the store open would have to open it again"
    table = Table(("table", "rows"), tuple(rows), "rows")
    return Report(title, [files], [table], ["It cannot be taken back."], {"memory_id": memory_id, "rows": dict(rows)})


def _receipt(search: Search, folder: Path, places: Sequence[Place], remarks: Sequence[str]) -> Receipt:
    holding = [one for one in places if one.holds]
    named, broken = [one for one in places if one.names and not one.holds], [one for one in places if one.problem]
    gone, now = not holding and not broken, datetime.now(UTC)
    values: dict[str, Any] = {"memory_id": search.memory_id, "store": str(folder), "made_at": now.isoformat()}
    values |= {"by": f"cems_workbench {__version__}", "text_sha256": hashlib.sha256(search.text.encode()).hexdigest()}
    values |= {"text_from": search.known, "remarks": list(remarks), "forgotten": gone}
    values["places"] = [
        {
            name: one
            for name, one in (asdict(place) | {"advice": place.advice(folder)}).items()
            if one or name == "holds"
        }
        for place in places
    ]
    values["sha256"] = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
    rows = sum(one.searched for one in places if one.kind in ("table", "evidence"))
    files = counted(sum(one.kind == "file" for one in places), "files")
    where = f"{counted(len(places), 'places')}: {rows:,} rows of tables, {files} byte by byte"
    line = f"forgotten: none of {where} holds the text of {search.memory_id} or says the same"
    if not gone:
        line = f"not forgotten: {len(holding):,} of {where} hold the text of {search.memory_id} or say the same"
    columns = ("kind", "place", "searched", "hold it", "what to do")
    held = tuple((one.kind, one.name, one.searched, one.holds, one.advice(folder)) for one in holding)
    names = tuple((one.kind, one.name, one.searched, one.names) for one in named)
    title = "what only names it, by its id or the hash of its text"
    tables = [
        Table(columns, held, "what still holds it"),
        Table(("kind", "place", "searched", "name it"), names, title),
    ]
    problems = tuple((one.kind, one.name, one.problem) for one in broken)
    tables.append(Table(("kind", "place", "problem"), problems, "what could not be searched"))
    hashes = f"text: SHA-256 {values['text_sha256']}, from {search.known}; receipt: SHA-256 {values['sha256']}"
    title = f"{search.memory_id} in {folder}, {now:%Y-%m-%d %H:%M} UTC"
    return Receipt(title, [line], tables, [hashes, *remarks], values, gone)


def search_of(memory_id: str, text: str | None, own: Database, resources: Resources) -> Search:
    """What is looked for. Raises InputError for an id that no row has and no text, naming the nearest, and for an empty text."""
    live = own.rows("SELECT content, deleted_at, text_sha FROM memories WHERE id = ?", [memory_id])
    before = own.rows("SELECT content, input FROM memories_before WHERE id = ? ORDER BY input DESC", [memory_id])
    content, known, sha = text, "the text that was passed", live[0][2] if live else ""
    if text is None and live:
        content, deleted, sha = live[0]
        known = f"the row deleted {deleted:%Y-%m-%d %H:%M}" if deleted else "a row that is not deleted"
    elif text is None and before:
        content, known = before[0][0], f"what import {before[0][1]} replaced"
    elif text is None:
        close = nearest(memory_id, resources.store.memories.ids())
        hint = f"; did you mean {close}?" if close else ""
        raise InputError(f"{memory_id[:80]}: no row of the store has its text; pass it with --text FILE{hint}")
    if not (content or "").strip():
        raise InputError("text: it is empty; pass what the memory said")
    return Search(memory_id, content or "", sha, known)


@dataclass(frozen=True, slots=True)
class Search:
    """What is looked for."""

    memory_id: str
    text: str
    sha: str
    known: str
    """Where the text was taken from."""

    @property
    def forms(self) -> list[str]:
        """The forms of the text within a longer one; none of a short text."""
        written = [self.text, json.dumps(self.text)[1:-1], json.dumps(self.text, ensure_ascii=False)[1:-1]]
        written += [one.casefold() for one in written]
        return [*dict.fromkeys(written)] if len(self.text) >= MIN_CHARS else []

    def count(self, session: Session, table: str, columns: Sequence[tuple[str, str]]) -> tuple[int, int, int]:
        """The rows of a table, those with the text, and those that only name the memory."""
        has, names, values, named = list[str](), list[str](), list[Any](), list[Any]()
        for name, kind in columns:
            column = f'"{name}"'
            if "STRUCT" in kind:
                column = f"array_to_string(list_transform({column}, lambda x: concat_ws(chr(31), x.memory_id, x.content)), chr(30))"
            elif kind.upper() not in TEXTS:
                continue
            for form in self.forms:
                has.append(f"strpos({column}, ?) > 0")
                values.append(form)
            has.append(f"{column} = ?")
            names.append(f"{column} IN (?, ?)")
            values.append(self.text)
            named += [self.memory_id, self.sha or self.memory_id]
        if not has:
            return int(session.rows(f'SELECT count(*) FROM "{table}"')[0][0]), 0, 0
        own, other = " OR ".join(has), " OR ".join(names)
        sql = f'SELECT CASE WHEN {own} THEN 2 WHEN {other} THEN 1 ELSE 0 END AS holds, count(*) FROM "{table}" GROUP BY holds'
        found: dict[int, int] = dict(session.rows(sql, [*values, *named]))
        return sum(found.values()), found.get(2, 0), found.get(1, 0)

    def tables(self, session: Session, kind: str, where: str) -> Iterator[Place]:
        """The tables of a database."""
        for table, columns in columns_of(session).items():
            yield Place(kind, f"{where} {table}".strip(), *self.count(session, table, columns))


def _databases(search: Search, resources: Resources, own: Database, progress: Progress) -> Iterator[Place]:
    progress("searching tables", 0, 1)
    with own.reading() as cursor:
        yield from search.tables(CursorSession(cursor), "table", "")
    if resources.store.team.place:
        with resources.store.team.reading() as session:
            yield from search.tables(session, "table", "team")
    folder = transcript_folder(resources.store.path)
    if folder.exists():
        with closing(Database(folder)) as turns, turns.reading() as cursor:
            yield from search.tables(CursorSession(cursor), "table", "transcript")
    files = evidence_files(resources)
    for place, path in enumerate(files):
        progress("searching evidence", place, len(files))
        try:
            with evidence_file.opened(path) as connection:
                tables = [*search.tables(CursorSession(connection), "evidence", "")]
            counts = (sum(getattr(one, name) for one in tables) for name in ("searched", "holds", "names"))
            yield Place("evidence", path.name, *counts)
        except InputError as error:
            yield Place("evidence", path.name, 0, problem=str(error))


def _indexes(search: Search, resources: Resources) -> Iterator[Place]:
    indexes = resources.indexes
    for kind, index, size in (
        ("lexical", indexes.lexical, indexes.lexical.document_count),
        ("vectors", indexes.vectors, len(indexes.vectors)),
    ):
        yield Place(kind, f"{kind} index", size, int(index.keeps(search.memory_id)))
    text = search.text if search.forms else ""
    try:
        for name, records, holds in resources.store.indexes.held_in_chroma(search.memory_id, text):
            yield Place("chroma", name, records, holds)
    except WorkbenchError as error:
        yield Place("chroma", "Chroma", 0, problem=str(error))


def _lists(search: Search, resources: Resources, config: PipelineConfig) -> Iterator[Place]:
    evidence = gather_lists(Request(search.text[:SEARCHED_CHARS]), config, resources)
    for one in evidence.lists:
        yield Place("list", one.name, len(one.hits), sum(hit.memory_id == search.memory_id for hit in one.hits))


def _paraphrases(search: Search, kind: str, of: Resources, resources: Resources) -> Iterator[Place]:
    """The memories or turns that say the same; the place of each is its id."""
    vector, reading = resources.embedder.encode([search.text])[0], audit.reading_of(of)
    hits = [*of.indexes.lexical.search(search.text, SEARCHED), *of.indexes.vectors.search(vector, SEARCHED)]
    near = of.store.memories.read(list(dict.fromkeys(key for key, _ in hits)))
    if of is resources:
        near.pop(search.memory_id, None)
    cosines = {key: cosine for key, cosine, _ in reversed(of.cosines(vector, [*near]))}
    point = point_of(Memory(search.memory_id, search.text), "", "", reading)
    yield Place("nearest", kind, len(near))
    for key, one in near.items():
        if compared(point, one, cosines.get(key, 0.0), reading).coverage == "covers":
            yield Place("paraphrase", f"{'turn ' if kind == 'transcript' else ''}{key}", 1, 1)


def _files(search: Search, folder: Path, progress: Progress) -> Iterator[Place]:
    """Each file of a folder, with its hash."""
    forms = [form.encode() for form in search.forms]
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    longest = max(map(len, forms), default=1)
    for place, path in enumerate(files):
        progress("searching files", place, len(files))
        digest, size, found, rest, name = hashlib.sha256(), 0, False, b"", str(path.relative_to(folder))
        try:
            with path.open("rb") as file:
                while block := file.read(BLOCK):
                    digest.update(block)
                    size += len(block)
                    block = rest + block
                    found |= any(form in block for form in forms)
                    rest = block[1 - longest :] if longest > 1 else b""
            yield Place("file", name, size, int(found), sha256=digest.hexdigest())
        except OSError as error:
            yield Place("file", name, size, problem=error.strerror or "cannot be read")
