#!/usr/bin/env bash
# Chroma: rows that are newer than the last synchronisation are put into the graph anew at each start, in another way each time.
#
# The same query over an unchanged folder therefore has other answers after a restart, until sync_threshold rows (1,000 by default) have been
# written after it; a small collection never gets there. Who compares two runs compares two graphs.
#
# Seen in chromadb 1.5.9, persistent client, 900 vectors of 64 values in 40 clusters, ef_search 10 and 4 neighbours, 40 queries for ten: 19
# have the same answer in three starts; all 40 where sync_threshold is 900.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check chromadb==1.5.9
cat > "$folder/answers.py" <<'PY'
import json
import sys

import chromadb
import numpy as np
from chromadb.config import Settings

COUNT = 900
generator = np.random.default_rng(1)
centres = generator.normal(size=(40, 64))
vectors = centres[generator.integers(0, 40, COUNT)] + 0.35 * generator.normal(size=(COUNT, 64))
queries = vectors[: 40] + 0.02 * generator.normal(size=(40, 64))
client = chromadb.PersistentClient(sys.argv[1], settings=Settings(anonymized_telemetry=False))


def make(name, threshold):
    hnsw = {"space": "cosine", "ef_search": 10, "max_neighbors": 4, "ef_construction": 20, "sync_threshold": threshold}
    client.create_collection(name, embedding_function=None, configuration={"hnsw": hnsw}).add(
        ids=[str(i) for i in range(COUNT)], embeddings=vectors
    )


if sys.argv[2] == "make":
    make("recent", 1_000)
    make("synchronised", 900)
else:
    rows = client.get_collection(sys.argv[2], embedding_function=None)
    print(json.dumps(rows.query(query_embeddings=queries, n_results=10, include=[])["ids"]))
PY
run() { "$folder/venv/bin/python" "$folder/answers.py" "$folder/chroma" "$1"; }
run make
for start in 1 2 3; do
    run recent > "$folder/recent.$start"
    run synchronised > "$folder/synchronised.$start"
done
"$folder/venv/bin/python" - "$folder" <<'PY'
import json
import sys
from pathlib import Path


def same(name):
    first, second, third = (json.loads((Path(sys.argv[1]) / f"{name}.{i}").read_text()) for i in (1, 2, 3))
    return sum(a == b == c for a, b, c in zip(first, second, third))


recent, synchronised = same("recent"), same("synchronised")
print(f"queries of 40 with the same ten in three starts: {recent} recent, {synchronised} synchronised")
sys.exit(0 if recent < 40 == synchronised else 1)
PY
