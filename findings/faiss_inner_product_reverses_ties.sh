#!/usr/bin/env bash
# FAISS: of equal inner products IndexFlatIP returns the vectors written last first, but the list of 1 is not the head of the list of 2.
#
# The k oldest of the equal vectors come, newest first: with k 1 the first one written wins, with k 2 it is last. So the best result of
# a search depends on how many were asked for. IndexFlatL2 over the same vectors keeps the order in which they were written.
#
# Seen in faiss-cpu 1.15.1, labels of five equal vectors for k 1, 2, 3 and 5:
#   IndexFlatIP: [0] [1, 0] [2, 1, 0] [4, 3, 2, 1, 0]
#   IndexFlatL2: [0] [0, 1] [0, 1, 2] [0, 1, 2, 3, 4]
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check faiss-cpu==1.15.1
"$folder/venv/bin/python" - <<'PY'
import sys

import faiss
import numpy as np

vectors = np.array([[0.0, 1.0]] * 5, np.float32)
query = np.array([[1.0, 1.0]], np.float32)
found = {}
for kind in (faiss.IndexFlatIP, faiss.IndexFlatL2):
    index = kind(2)
    index.add(vectors)
    found[kind.__name__] = [index.search(query, k)[1][0].tolist() for k in (1, 2, 3, 5)]
    print(f"{kind.__name__}: {' '.join(map(str, found[kind.__name__]))}")
rising = [list(range(k)) for k in (1, 2, 3, 5)]
sys.exit(0 if found == {"IndexFlatIP": [each[::-1] for each in rising], "IndexFlatL2": rising} else 1)
PY
