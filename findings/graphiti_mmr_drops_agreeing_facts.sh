#!/usr/bin/env bash
# Graphiti: the recipe EDGE_HYBRID_SEARCH_MMR drops the facts that answer best, when two of them say nearly the same.
#
# Each fact scores lambda * cosine - (1 - lambda) * (largest cosine to ANY other candidate, taken or not), in one pass. Two facts that agree
# push each other down: 0.5 * 0.999 - 0.5 * 1.000 is negative. The recipe's own reranker_min_score is 0, so both are dropped, and a fact at a
# right angle to the query, which scores exactly 0, is the only result. A greedy MMR returns one of the two first.
#
# Seen in graphiti-core 0.31.2, its function with the values of its recipe (no graph database was run):
#   lambda 0.5, least score 0.0: ['a dinner in May']
#   lambda 0.5, no least score: ['a dinner in May', 'Ada moved to Oslo', 'Ada lives in Oslo'], scores 0.0, -0.0006, -0.0009
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check graphiti-core==0.31.2 httpx==0.28.1
"$folder/venv/bin/python" - <<'PY'
import sys

from graphiti_core.search.search_config_recipes import EDGE_HYBRID_SEARCH_MMR as recipe
from graphiti_core.search.search_utils import maximal_marginal_relevance

query = [1.0, 0.0, 0.0]
facts = {"Ada moved to Oslo": [1.0, 0.05, 0.0], "Ada lives in Oslo": [1.0, 0.06, 0.0], "a dinner in May": [0.0, 0.0, 1.0]}
weight, least = recipe.edge_config.mmr_lambda, float(recipe.reranker_min_score)
kept, _ = maximal_marginal_relevance(query, facts, weight, least)
every, scores = maximal_marginal_relevance(query, facts, weight)
print(f"lambda {weight}, least score {least}: {kept}")
print(f"lambda {weight}, no least score: {every}, scores {', '.join(f'{score:.4f}' for score in scores)}")
sys.exit(0 if kept == ["a dinner in May"] and every[0] == "a dinner in May" and max(scores[1:]) < 0 else 1)
PY
