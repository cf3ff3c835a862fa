#!/usr/bin/env bash
# SQLite FTS5 with the porter tokenizer: a longer prefix of a word finds nothing where a shorter one and the whole word find it.
#
# The prefix is stemmed as if it were a word, then compared with the stems of the index. "organization" is indexed as "organ"; the prefix
# "organi" keeps its i and is longer than the stem, so it matches no memory until the word is complete. A search that joins words as prefixes
# by AND (as-you-type search, QMD) loses the memory in the middle of the word. Without porter every prefix finds it.
#
# Seen in SQLite 3.53.1 (apsw 3.53.1.0); the same in SQLite 3.40.1:
#   porter unicode61: organ* 1, organi* 0, organiza* 0, organization* 1
#   unicode61: organ* 1, organi* 1, organiza* 1, organization* 1
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check apsw==3.53.1.0
"$folder/venv/bin/python" - <<'PY'
import sys

import apsw

found = {}
for tokenizer in ("porter unicode61", "unicode61"):
    database = apsw.Connection(":memory:")
    database.execute(f"CREATE VIRTUAL TABLE memories USING fts5(content, tokenize='{tokenizer}')")
    database.execute("INSERT INTO memories VALUES ('the organization of the database')")
    found[tokenizer] = {
        word: database.execute("SELECT count(*) FROM memories WHERE memories MATCH ?", (f'"{word}"*',)).fetchone()[0]
        for word in ("organ", "organi", "organiza", "organization")
    }
    print(f"{tokenizer}: {', '.join(f'{word}* {count}' for word, count in found[tokenizer].items())}")
same = list(found["porter unicode61"].values()) == [1, 0, 0, 1] and set(found["unicode61"].values()) == {1}
sys.exit(0 if same else 1)
PY
