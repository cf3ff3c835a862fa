#!/usr/bin/env bash
# LanceDB: bypass_vector_index() compares by squared L2 although the index compares by cosine, so the "exact" answer has another winner.
#
# The metric of a column is known to its index only. A plain search takes it from there, also for rows that are not indexed yet; with
# bypass_vector_index(), the way to measure recall, the default of L2 is used without a word. The first memory is lost, and recall against
# such an answer is wrong. distance_type("cosine") has to be given again.
#
# Seen in lancedb 0.40.0:
#   search: long 0.005, short 0.152
#   bypass_vector_index: short 0.290, other 2.020
#   distance_type("cosine") and bypass_vector_index: long 0.005, short 0.152
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check lancedb==0.40.0 pyarrow==26.0.1
"$folder/venv/bin/python" - "$folder/database" <<'PY'
import sys

import lancedb
import pyarrow as pa
from lancedb.index import IvfFlat

schema = pa.schema([("id", pa.string()), ("vector", pa.list_(pa.float32(), 2))])
memories = [("long", [3.0, 0.3]), ("short", [0.8, 0.5]), ("other", [0.1, 1.1])]
table = lancedb.connect(sys.argv[1]).create_table("memories", [{"id": id, "vector": vector} for id, vector in memories], schema=schema)
table.create_index("vector", config=IvfFlat(distance_type="cosine", num_partitions=1))
found = {
    "search": table.search([1.0, 0.0]),
    "bypass_vector_index": table.search([1.0, 0.0]).bypass_vector_index(),
    'distance_type("cosine") and bypass_vector_index': table.search([1.0, 0.0]).distance_type("cosine").bypass_vector_index(),
}
ids = []
for name, query in found.items():
    rows = query.limit(2).to_list()
    print(f"{name}: {', '.join('{} {:.3f}'.format(row['id'], row['_distance']) for row in rows)}")
    ids.append([row["id"] for row in rows])
sys.exit(0 if ids == [["long", "short"], ["short", "other"], ["long", "short"]] else 1)
PY
