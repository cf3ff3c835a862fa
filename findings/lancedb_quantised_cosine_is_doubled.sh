#!/usr/bin/env bash
# LanceDB: over an index of quantised vectors the cosine _distance is 2 × (1 − cosine), until one row is not in the index: then it is
# 1 − cosine for every row, and optimize() doubles it again.
#
# So a threshold of 0.5 keeps a cosine of 0.75 and more, and after an insert one of 0.5 and more, with no row of the answer changed. Without
# an index, over IVF_FLAT and with refine_factor(1) the distance is 1 − cosine; l2 and dot are not doubled.
#
# Seen in lancedb 0.40.0, _distance ÷ (1 − cosine) over 50 rows of 400:
#   IVF_FLAT: 1.00, with a new row 1.00, after optimize() 1.00
#   IVF_SQ: 2.00, with a new row 1.00, after optimize() 2.00
#   IVF_HNSW_SQ: 2.00, with a new row 1.00, after optimize() 2.00
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check lancedb==0.40.0 numpy==2.4.6 pyarrow==26.0.1
LANCEDB_LOG=error "$folder/venv/bin/python" - "$folder" <<'PY'
import sys

import lancedb
import numpy as np
from lancedb.index import HnswSq, IvfFlat, IvfSq

vectors = np.random.default_rng(1).normal(size=(401, 16)).astype(np.float32)
query = vectors[0]
cosines = vectors @ query / np.linalg.norm(vectors, axis=1) / np.linalg.norm(query)
database = lancedb.connect(f"{sys.argv[1]}/db")
kinds = {"IVF_FLAT": IvfFlat, "IVF_SQ": IvfSq, "IVF_HNSW_SQ": HnswSq}
right = True
for name, kind in kinds.items():
    table = database.create_table(name, [{"id": i, "vector": each} for i, each in enumerate(vectors[:400])])
    table.create_index("vector", config=kind(distance_type="cosine", num_partitions=1))

    def ratio():
        rows = table.search(query).distance_type("cosine").limit(50).to_list()
        true = np.array([1 - cosines[row["id"]] for row in rows])
        return float(np.dot([row["_distance"] for row in rows], true) / np.dot(true, true))

    seen = [ratio()]
    table.add([{"id": 400, "vector": vectors[400]}])
    seen.append(ratio())
    table.optimize()
    seen.append(ratio())
    print(f"{name}: {seen[0]:.2f}, with a new row {seen[1]:.2f}, after optimize() {seen[2]:.2f}")
    right &= [round(each) for each in seen] == ([1, 1, 1] if name == "IVF_FLAT" else [2, 1, 2])
sys.exit(0 if right else 1)
PY
