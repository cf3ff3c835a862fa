#!/usr/bin/env bash
# Milvus: WeightedRanker gives a memory half marks for being in the vector list at all, so the depth of that list decides what is first.
#
# By default (norm_score) a cosine becomes (1 + cosine) / 2 and a BM25 score 2 / pi * atan(score), and a list that lacks a memory gives 0.
# A memory at a right angle to the query has 0.5 while it is listed and 0 once the list is cut before it: an unrelated memory with one
# keyword hit beats the exact vector match with depth 4, and loses to it with depth 1. Besides, a plain BM25 search reports scores with a
# minus sign (best is lowest), the hybrid search counts them as positive.
#
# Seen in milvus-lite 3.2.2 with pymilvus 3.0.2 (embedded; the server was not run):
#   bm25 alone: [(2, -1.1046)]
#   vector list of 4: [(2, 1.0316), (1, 1.0), (3, 0.6812), (4, 0.2919)]
#   vector list of 1: [(1, 1.0), (2, 0.5316)]
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check milvus-lite==3.2.2 pymilvus==3.0.2
"$folder/venv/bin/python" - "$folder/memories.db" 2>"$folder/log" <<'PY' || { cat "$folder/log" >&2; exit 1; }
import math
import sys

from pymilvus import AnnSearchRequest, DataType, Function, FunctionType, MilvusClient, WeightedRanker

MEMORIES = {1: ("the cat sleeps", 0.0), 2: ("deploy on Friday", math.pi / 2), 3: ("a red bicycle", 1.2), 4: ("soup", 2.0)}
client = MilvusClient(sys.argv[1])
schema = client.create_schema(auto_id=False)
schema.add_field("id", DataType.INT64, is_primary=True)
schema.add_field("text", DataType.VARCHAR, max_length=200, enable_analyzer=True)
schema.add_field("vector", DataType.FLOAT_VECTOR, dim=2)
schema.add_field("words", DataType.SPARSE_FLOAT_VECTOR)
schema.add_function(Function("bm25", FunctionType.BM25, ["text"], ["words"]))
indexes = client.prepare_index_params()
indexes.add_index("vector", index_type="FLAT", metric_type="COSINE")
indexes.add_index("words", index_type="SPARSE_INVERTED_INDEX", metric_type="BM25")
client.create_collection("memories", schema=schema, index_params=indexes)
client.insert("memories", [{"id": key, "text": text, "vector": [math.cos(a), math.sin(a)]} for key, (text, a) in MEMORIES.items()])
client.load_collection("memories")


def rows(found):
    return [(hit["id"], round(hit["distance"], 4)) for hit in found[0]]


def hybrid(depth):
    vector = AnnSearchRequest([[1.0, 0.0]], "vector", {"metric_type": "COSINE"}, depth)
    words = AnnSearchRequest(["deploy"], "words", {"metric_type": "BM25"}, 4)
    return rows(client.hybrid_search("memories", [vector, words], ranker=WeightedRanker(1.0, 1.0), limit=4))


alone = rows(client.search("memories", ["deploy"], anns_field="words", limit=4))
deep, short = hybrid(4), hybrid(1)
print("bm25 alone:", alone)
print("vector list of 4:", deep)
print("vector list of 1:", short)
half = dict(deep)[2] - dict(short)[2]
sys.exit(0 if alone[0][1] < 0 and deep[0][0] == 2 and short[0][0] == 1 and abs(half - 0.5) < 1e-3 else 1)
PY
