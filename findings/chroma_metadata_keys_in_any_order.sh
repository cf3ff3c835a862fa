#!/usr/bin/env bash
# Chroma: get() returns the keys of a row's metadata in another order at every call, in one process and of one row.
#
# A text that is made of the metadata, as a prompt or a document to embed is, therefore differs from call to call, and so does its hash; an
# index that embeds again what has another hash never ends. Whoever needs one text sorts the keys.
#
# Seen in chromadb 1.5.9, persistent client, one row of eight keys: 20 orders in 20 calls, none of them that in which the keys were added.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check chromadb==1.5.9
"$folder/venv/bin/python" - "$folder/chroma" <<'PY'
import sys

import chromadb
from chromadb.config import Settings

KEYS = ("user", "hash", "kind", "lang", "page", "note", "topic", "agent")
client = chromadb.PersistentClient(sys.argv[1], settings=Settings(anonymized_telemetry=False))
rows = client.create_collection("memories")
rows.add(ids=["a"], documents=["text"], embeddings=[[1.0, 0.0]], metadatas=[{key: key for key in KEYS}])
orders = {tuple(rows.get(ids=["a"])["metadatas"][0]) for _ in range(20)}
print(f"{len(orders)} orders in 20 calls; as added: {'yes' if KEYS in orders else 'no'}")
sys.exit(0 if len(orders) > 10 else 1)
PY
