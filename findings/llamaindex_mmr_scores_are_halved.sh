#!/usr/bin/env bash
# LlamaIndex: in MMR mode the simple vector store reports the MMR value as the similarity, so a similarity cutoff drops the exact match.
#
# The first result has threshold * cosine, 0.5 for an exact match at the default of 0.5, and a near neighbour of it 0.0 or less. The order is
# that of MMR, but SimilarityPostprocessor(similarity_cutoff=0.6), which reads this number as a similarity, leaves nothing. (Qdrant reports
# the plain similarity with MMR.)
#
# Seen in llama-index-core 0.14.25:
#   default mode: exact 1.0, near 0.995, other 0.3624; over the cutoff 0.6: ['exact', 'near']
#   mmr mode: exact 0.5, near 0.0, other -0.0456; over the cutoff 0.6: []
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check llama-index-core==0.14.25
"$folder/venv/bin/python" - <<'PY'
import math
import sys

from llama_index.core.postprocessor import SimilarityPostprocessor
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.core.vector_stores.simple import SimpleVectorStore
from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode

ANGLES = {"exact": 0.0, "near": 0.1, "other": 1.2}
store = SimpleVectorStore()
store.add([TextNode(id_=name, text=name, embedding=[math.cos(a), math.sin(a)]) for name, a in ANGLES.items()])
passed, first = {}, {}
for mode in (VectorStoreQueryMode.DEFAULT, VectorStoreQueryMode.MMR):
    answer = store.query(VectorStoreQuery(query_embedding=[1.0, 0.0], similarity_top_k=3, mode=mode))
    scores = {name: round(float(score), 4) + 0.0 for name, score in zip(answer.ids, answer.similarities, strict=True)}
    nodes = [NodeWithScore(node=TextNode(id_=name, text=name), score=score) for name, score in scores.items()]
    passed[mode] = [row.node.node_id for row in SimilarityPostprocessor(similarity_cutoff=0.6).postprocess_nodes(nodes)]
    first[mode] = scores["exact"]
    listed = ", ".join(f"{name} {score}" for name, score in scores.items())
    print(f"{mode.value} mode: {listed}; over the cutoff 0.6: {passed[mode]}")
mmr, default = VectorStoreQueryMode.MMR, VectorStoreQueryMode.DEFAULT
sys.exit(0 if passed[mmr] == [] and passed[default] == ["exact", "near"] and first[mmr] == 0.5 else 1)
PY
