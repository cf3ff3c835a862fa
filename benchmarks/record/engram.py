"""Record engram (claude-memory): its recollection, or the search over its notes, for every query.

    python -m benchmarks.record.engram --data FOLDER --out engram.json --checkout ~/claude-memory --embeddings http://127.0.0.1:8766/v1
    python -m benchmarks.record.engram --data FOLDER --out search.json --checkout ~/claude-memory --tool search

The checkout is run by bun as it is (seen with 10a2fe6 of 2026-02-25): a small program of ours imports its `writeRecollections` or `search`,
with a store of its schema in a temporary home. Memories are inserted in order of creation; before each query their dates of access
are set back, which a recollection changes. What engram asks of its full-text index is watched at the database: `fts_query` and `fts_rows`.
Ages are counted from each query's `as_of`, else from now. A recollection says no scores.
The tool `memory_recall` is part of the server and is not recorded here.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

from benchmarks.record.recording import (
    Row,
    arguments,
    asked,
    embedded,
    memories_of,
    milliseconds,
    queries_of,
    with_vectors,
)
from benchmarks.record.recording import written as write_recording

TOOLS = ("recollection", "search")
PROGRAM = """
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
const given = JSON.parse(fs.readFileSync(process.argv[2], 'utf-8'));
const from = file => import(path.join(given.checkout, file));
const { initDb } = await from('mcp/schema.ts');
const { packEmbedding } = await from('mcp/embeddings.ts');
const home = path.join(os.homedir(), '.claude-memory');
fs.mkdirSync(home, { recursive: true });
const db = initDb(path.join(home, 'memory.db'));
const named = m => (given.dated ? new Date(m.created).toISOString().slice(0, 10) + '-' : '') + m.id + '.md';
const blob = row => packEmbedding(Float32Array.from(row));

const episode = db.prepare(
  `INSERT INTO episodes (id, session_id, scope, summary, entities, importance, embedding, created_at, accessed_at, access_count)
   VALUES (?, 'recorder', 'global', ?, '[]', ?, ?, ?, ?, ?)`);
const note = db.prepare(
  `INSERT INTO chunks (id, path, layer, start_line, end_line, hash, text, embedding, updated_at)
   VALUES (?, ?, 'global', 1, 1, ?, ?, ?, ?)`);
db.transaction(() => {
  for (const m of given.memories) {
    if (given.tool === 'search') note.run(m.id, named(m), m.id, m.content, blob(m.vector), m.created);
    else episode.run(m.id, m.content, m.importance, blob(m.vector), m.created, m.accessed, m.count);
  }
})();

let watched = null;
const seen = statement => new Proxy(statement, {
  get: (target, name) => name !== 'all' ? (typeof target[name] === 'function' ? target[name].bind(target) : target[name])
    : (...values) => { const rows = target.all(...values); watched = { query: values[0], rows }; return rows; },
});
const store = new Proxy(db, {
  get: (target, name) => name !== 'prepare' ? (typeof target[name] === 'function' ? target[name].bind(target) : target[name])
    : sql => /\\b(episodes_fts|fts) MATCH/.test(sql) ? seen(target.prepare(sql)) : target.prepare(sql),
});
const table = given.tool === 'search' ? 'chunks' : 'episodes';
const ids = new Map(db.prepare(`SELECT rowid, id FROM ${table}`).all().map(row => [row.rowid, row.id]));
const reset = db.prepare('UPDATE episodes SET accessed_at = ? WHERE id = ?');
const answers = [];
const recollect = given.tool === 'search' ? null : (await from('processor/recollection-writer.ts')).writeRecollections;
const search = given.tool === 'search' ? (await from('mcp/search.ts')).search : null;
for (const [i, query] of given.queries.entries()) {
  watched = null;
  Date.now = () => query.moment;
  let results;
  if (search) {
    results = search(store, blob(query.vector), query.query, given.limit).map(row => ({ id: row.id, score: row.score }));
  } else {
    db.transaction(() => { for (const m of given.memories) reset.run(m.accessed, m.id); })();
    const provider = { embed: async texts => texts.map(() => Float32Array.from(query.vector)) };
    await recollect('recorder', query.query, String(i), null, null, provider, store, true, null);
    const file = path.join(home, 'recollections', 'recorder.json');
    results = JSON.parse(fs.readFileSync(file, 'utf-8')).bites.filter(one => one.type === 'episode').map(one => ({ id: one.id }));
  }
  const rows = (watched?.rows ?? []).map(row => [row.rowid, ids.get(row.rowid), row.score]);
  answers.push({ results, fts_query: watched?.query ?? null, fts_rows: rows });
}
fs.writeFileSync(process.argv[3], JSON.stringify(answers));
"""


def stored(memories: list[Row], vectors: list[list[float]], now: datetime) -> list[Row]:
    """The memories as engram's store has them: dates in milliseconds, importance high or normal."""
    return [
        {
            "id": row["id"],
            "content": row["content"],
            "importance": "high" if row.get("importance") == "high" else "normal",
            "vector": vector,
            "created": (created := milliseconds(row.get("created_at"), now)),
            "accessed": created if row.get("last_accessed") is None else milliseconds(row["last_accessed"], now),
            "count": row.get("access_count") or 0,
        }
        for row, vector in zip(memories, vectors, strict=True)
    ]


def answers(queries: list[Row], found: list[Row]) -> Iterator[Row]:
    """Each query with what engram answered, and its full-text rows as a list, best first."""
    for query, one in zip(queries, found, strict=True):
        # FTS5's bm25 is smaller for a better match; the lists of a recording have the best first.
        hits = sorted(((memory_id, -score) for _, memory_id, score in one["fts_rows"]), key=lambda hit: -hit[1])
        yield asked(query, **one, lists={"lexical": [list(hit) for hit in hits]})


def main() -> None:
    """Fill an engram store, ask it, and write the recording."""
    parser = with_vectors(arguments("Record the answers of engram (claude-memory)."))
    parser.add_argument("--checkout", type=Path, required=True, help="the checkout of claude-memory")
    parser.add_argument("--tool", choices=TOOLS, default=TOOLS[0])
    parser.add_argument("--bun", default="bun", help="the command")
    parser.add_argument("--limit", type=int, default=10, help="of the search")
    parser.add_argument(
        "--dated", action="store_true", help="of the search: files named by date, whose scores fall with age"
    )
    given = parser.parse_args()
    memories, queries = memories_of(given.data), queries_of(given.data, given.first)
    now = datetime.now(timezone.utc)  # noqa: UP017
    vectors = embedded([row["content"] for row in memories], given.embeddings, given.model)
    asking = embedded([row["query"] for row in queries], given.embeddings, given.model)
    with tempfile.TemporaryDirectory(prefix="record-engram-") as home:
        program, task, out = (Path(home) / name for name in ("program.mts", "task.json", "answers.json"))
        program.write_text(PROGRAM, encoding="utf-8")
        searched = [
            {"query": row["query"], "vector": vector, "moment": milliseconds(row.get("as_of"), now)}
            for row, vector in zip(queries, asking, strict=True)
        ]
        task.write_text(
            json.dumps(
                {
                    "checkout": str(given.checkout.resolve()),
                    "tool": given.tool,
                    "limit": given.limit,
                    "dated": given.dated,
                    "memories": stored(memories, vectors, now),
                    "queries": searched,
                }
            ),
            encoding="utf-8",
        )
        command = [given.bun, str(program), str(task), str(out)]
        subprocess.run(command, env=dict(os.environ) | {"HOME": home}, check=True)
        found = json.loads(out.read_text(encoding="utf-8"))
    head = subprocess.run(
        ["git", "-C", str(given.checkout), "rev-parse", "--short", "HEAD"], stdout=subprocess.PIPE, text=True
    ).stdout.strip()
    config: Row = {"path": given.tool, "insertion_order": "created"}
    if given.tool == "search":
        config |= {"limit": given.limit, "dated": given.dated}
    count = write_recording(
        given.out, f"engram (claude-memory) {head}".strip(), config, answers(queries, found), given.model
    )
    print(f"{count} answers in {given.out}")


if __name__ == "__main__":
    main()
