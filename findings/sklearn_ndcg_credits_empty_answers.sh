#!/usr/bin/env bash
# scikit-learn: ndcg_score gives credit for memories that were not returned.
#
# It wants a score for every memory; what a search did not return gets the same filler, and equal scores share the average of their places.
# An answer of two wrong memories out of ten has nDCG@5 0.16 although the right one was not returned, and an empty answer 0.21 at 3. A search
# that returns less is thereby paid more than one that returns wrong memories. ignore_ties=True gives other credit, by position in the array.
# trec_eval gives 0 to both: only what is in the run counts.
#
# Seen in scikit-learn 1.9.1 with numpy 2.4.6:
#   two wrong of ten, at 5: 0.1647
#   nothing returned, at 3: 0.2131
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check scikit-learn==1.9.1 numpy==2.4.6
"$folder/venv/bin/python" - <<'PY'
import sys

from sklearn.metrics import ndcg_score

relevant = [[0, 0, 1, 0, 0, 0, 0, 0, 0, 0]]
wrong = ndcg_score(relevant, [[0.9, 0.8, 0, 0, 0, 0, 0, 0, 0, 0]], k=5)
nothing = ndcg_score(relevant, [[0.0] * 10], k=3)
print(f"two wrong of ten, at 5: {wrong:.4f}")
print(f"nothing returned, at 3: {nothing:.4f}")
sys.exit(0 if abs(wrong - 0.1647) < 1e-4 and abs(nothing - 0.2131) < 1e-4 else 1)
PY
