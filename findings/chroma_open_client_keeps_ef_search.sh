#!/usr/bin/env bash
# Chroma: collection.modify() takes another ef_search and max_neighbors, and the collection reports them, but searches go on as before.
#
# A process that has searched the collection keeps its ef_search, through get_collection too; the next process searches with the new one.
# max_neighbors is reported by every process and by none applied: the graph stays as it was built. Who tunes recall in a running service
# reads settings that its answers do not have.
#
# Seen in chromadb 1.5.9, persistent client, 6,000 vectors of 64 values in 40 clusters, 4 neighbours, recall of the ten nearest over 40
# queries: 0.57 with ef_search 10; after modify(ef_search=500) still 0.57 while 500 is reported; 0.95 in a new process. After
# modify(max_neighbors=64) a new process has the 0.57 of 4 neighbours, a collection made with 64 has 0.97.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check chromadb==1.5.9
cat > "$folder/recall.py" <<'PY'
import sys

import chromadb
import numpy as np
from chromadb.config import Settings

generator = np.random.default_rng(1)
centres = generator.normal(size=(40, 64))
vectors = centres[generator.integers(0, 40, 6_000)] + 0.35 * generator.normal(size=(6_000, 64))
vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
queries = vectors[:: 150] + 0.02 * generator.normal(size=(40, 64))
nearest = np.argsort(-(queries @ vectors.T), axis=1)[:, :10]
client = chromadb.PersistentClient(sys.argv[1], settings=Settings(anonymized_telemetry=False))


def made(name, neighbours):
    rows = client.create_collection(
        name,
        embedding_function=None,
        configuration={
            "hnsw": {"space": "cosine", "ef_search": 10, "max_neighbors": neighbours, "ef_construction": 20, "sync_threshold": 100}
        },
    )
    for start in range(0, len(vectors), 2_000):
        part = vectors[start : start + 2_000]
        rows.add(ids=[str(start + i) for i in range(len(part))], embeddings=part)
    return rows


def recall(rows):
    found = rows.query(query_embeddings=queries, n_results=10, include=[])["ids"]
    return float(np.mean([len(set(map(int, ids)) & set(true)) / 10 for ids, true in zip(found, nearest)]))


def reported(rows, name):
    return client.get_collection(rows.name, embedding_function=None).configuration["hnsw"][name]


match sys.argv[2]:
    case "open":
        rows = made("memories", 4)
        before = recall(rows)
        rows.modify(configuration={"hnsw": {"ef_search": 500}})
        after = recall(client.get_collection("memories", embedding_function=None))
        print(f"{before:.3f} {after:.3f} {reported(rows, 'ef_search')}")
    case "again":
        print(f"{recall(client.get_collection('memories', embedding_function=None)):.3f}")
    case "neighbours":
        rows = client.get_collection("memories", embedding_function=None)
        rows.modify(configuration={"hnsw": {"ef_search": 10, "max_neighbors": 64}})
        print(reported(rows, "max_neighbors"))
    case "other":
        print(f"{recall(made('other', 64)):.3f}")
PY
run() { "$folder/venv/bin/python" "$folder/recall.py" "$folder/chroma" "$1"; }
read -r before after said <<<"$(run open)"
again=$(run again)
echo "ef_search 10: recall $before; modified to $said, same process: $after; new process: $again"
neighbours=$(run neighbours)
kept=$(run again)
other=$(run other)
echo "max_neighbors modified from 4 to $neighbours, new process: $kept; a collection made with 64: $other"
"$folder/venv/bin/python" - "$before" "$after" "$again" "$kept" "$other" "$said" "$neighbours" <<'PY'
import sys

before, after, again, kept, other = map(float, sys.argv[1:6])
assert sys.argv[6:] == ["500", "64"], sys.argv[6:]
sys.exit(0 if abs(after - before) < 0.02 < again - before and abs(kept - before) < 0.02 < other - kept else 1)
PY
