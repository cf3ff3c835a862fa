#!/usr/bin/env bash
# qdrant-client, local mode: closing and opening a folder changes the order of equal scores, and with it who wins a fused answer.
#
# Among equal scores the point written last comes first, until the folder is reopened; then another order holds. RRF counts places, so the
# scores of the fused answer change too: the memory that was first before is second after, and no memory was written. Both answers stay
# the same when asked again, so that a test passes until its folder is reopened.
#
# Seen in qdrant-client 1.20.0 with numpy 2.4.6:
#   before: list 7 1 9 3 5; fused 1 0.833, 7 0.700, 3 0.533, 9 0.417, 5 0.417
#   after: list 5 3 9 1 7; fused 5 0.750, 1 0.700, 3 0.667, 9 0.417, 7 0.367
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check qdrant-client==1.20.0 numpy==2.4.6
"$folder/venv/bin/python" - "$folder/qdrant" <<'PY'
import sys

from qdrant_client import QdrantClient, models

IDS = (5, 3, 9, 1, 7)
SIZE = models.VectorParams(size=2, distance=models.Distance.COSINE)


def opened():
    return QdrantClient(path=sys.argv[1])


def asked(client, when):
    listed = client.query_points("memories", query=[1.0, 0.0], using="same", limit=5).points
    both = [models.Prefetch(query=[1.0, 0.0], using=name, limit=5) for name in ("same", "other")]
    fused = client.query_points("memories", prefetch=both, query=models.FusionQuery(fusion=models.Fusion.RRF), limit=5).points
    print(f"{when}: list {' '.join(str(p.id) for p in listed)}; fused {', '.join(f'{p.id} {p.score:.3f}' for p in fused)}")
    assert {round(point.score, 6) for point in listed} == {1.0}
    return [point.id for point in listed], fused[0].id


client = opened()
client.create_collection("memories", vectors_config={"same": SIZE, "other": SIZE})
client.upsert("memories", [models.PointStruct(id=id, vector={"same": [1.0, 0.0], "other": [1.0, id / 10]}) for id in IDS])
before = asked(client, "before")
client.close()
client = opened()
after = asked(client, "after")
client.close()
sys.exit(0 if (before, after) == (([7, 1, 9, 3, 5], 1), ([5, 3, 9, 1, 7], 5)) else 1)
PY
