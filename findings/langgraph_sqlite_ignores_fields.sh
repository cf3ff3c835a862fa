#!/usr/bin/env bash
# LangGraph's SqliteStore: the index setting `fields`, which its own documentation shows, is not read; the whole value is embedded.
#
# Its code looks for `text_fields` instead, and takes the whole serialised value where that is missing. PostgresStore reads `fields`. So
# the same settings embed other texts in the two stores, and scores and order differ; nothing is said.
#
# Seen in langgraph-checkpoint-sqlite 3.1.2 with langgraph-checkpoint 4.3.2; what the embedder was given for one item:
#   fields: ['{"category": "drink", "content": "green tea"}']
#   text_fields: ['green tea']
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check langgraph-checkpoint-sqlite==3.1.2 langgraph-checkpoint==4.3.2 \
  pysqlite3-binary
"$folder/venv/bin/python" -W ignore - <<'PY'
import sys

import pysqlite3

# Some builds of Python have a sqlite3 that loads no extensions.
sys.modules["sqlite3"] = sys.modules["sqlite3.dbapi2"] = pysqlite3
from langgraph.store.sqlite import SqliteStore

seen = []
for name in ("fields", "text_fields"):
    texts = []

    def embed(some):
        texts.extend(some)
        return [[1.0, 0.0] for _ in some]

    connection = pysqlite3.connect(":memory:", isolation_level=None)
    store = SqliteStore(connection, index={"dims": 2, "embed": embed, name: ["content"]})
    store.setup()
    store.put(("memories",), "m1", {"category": "drink", "content": "green tea"})
    print(f"{name}: {texts}")
    seen.append(texts)
sys.exit(seen != [['{"category": "drink", "content": "green tea"}'], ["green tea"]])
PY
