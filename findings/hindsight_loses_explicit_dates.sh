#!/usr/bin/env bash
# Hindsight 1.1.0 as a fresh install brings it, with dateparser 1.5.0: a question with an explicit date has no temporal constraint. The
# analyser calls a private method of dateparser whose result has three parts since, unpacks two, and recall goes on without the arm of time
# ("Temporal query analysis raised ValueError"). "Yesterday" and months still work. hindsight-api-slim asks for dateparser>=1.2.2.
# Exits with 1 if that changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q hindsight-api-slim==1.1.0 dateparser==1.5.0
HINDSIGHT_API_LLM_PROVIDER=none HINDSIGHT_API_EMBEDDINGS_PROVIDER=tei HINDSIGHT_API_RERANKER_PROVIDER=rrf "$folder/venv/bin/python" - <<'PYTHON'
import sys
from datetime import datetime, timezone

from hindsight_api.engine.search.temporal_extraction import extract_temporal_constraint

now = datetime(2026, 9, 1, tzinfo=timezone.utc)
found = {}
for query in ("What did Ana decide yesterday?", "What did Ana decide on 3 May 2026?", "Which model did we use 3 days ago?"):
    found[query] = extract_temporal_constraint(query, reference_date=now)
    print(f"{query:40} {found[query]}")
yesterday, dated, ago = found.values()
sys.exit(0 if yesterday is not None and dated is None and ago is None else 1)
PYTHON
