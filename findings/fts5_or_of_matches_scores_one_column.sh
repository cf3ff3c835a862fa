#!/usr/bin/env bash
# SQLite FTS5: columns searched by `title MATCH ? OR body MATCH ?` give each row the bm25 of the first column that matches, not of both.
#
# Each MATCH is a search of its own, and bm25() is that of the one that found the row first. A memory with the word in its title and twice
# in its body (1) gets the title's score and comes after one with the same body and no such title (3). With the conditions the other way
# round both score alike. One MATCH over both columns sums, and puts it first. basic-memory 0.24.1 searches title, stems and body by such
# an OR: of three notes made likewise its search_notes has the one with the word only in its body first.
#
# Seen in SQLite 3.53.1 (apsw 3.53.1.0):
#   m MATCH 'title: port OR body: port': 1 -5.258, 3 -3.030, 2 -2.145
#   title MATCH 'port' OR body MATCH 'port': 3 -3.030, 1 -2.228, 2 -2.145
#   body MATCH 'port' OR title MATCH 'port': 1 -3.030, 3 -3.030, 2 -2.145
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check apsw==3.53.1.0
"$folder/venv/bin/python" - <<'PY'
import sys

import apsw

BODY = "the tests use the port 5433, not port 5432"
MEMORIES = [
    ("Port", BODY),
    ("Port", "nothing of the word is said in here at all"),
    ("Tests", BODY),
    *((f"Note {number}", "some other text of about nine words is here") for number in range(20)),
]
database = apsw.Connection(":memory:")
database.execute("CREATE VIRTUAL TABLE m USING fts5(title, body)")
database.executemany("INSERT INTO m (title, body) VALUES (?, ?)", MEMORIES)
conditions = (
    "m MATCH 'title: port OR body: port'",
    "title MATCH 'port' OR body MATCH 'port'",
    "body MATCH 'port' OR title MATCH 'port'",
)
found = []
for condition in conditions:
    rows = list(database.execute(f"SELECT rowid, bm25(m) AS score FROM m WHERE {condition} ORDER BY score, rowid"))
    print(f"{condition}: {', '.join(f'{row} {score:.3f}' for row, score in rows)}")
    found.append([row for row, _ in rows])
    last = dict(rows)
sys.exit(0 if found == [[1, 3, 2], [3, 1, 2], [1, 3, 2]] and last[1] == last[3] else 1)
PY
