#!/usr/bin/env bash
# LangChain's EnsembleRetriever: memories with equal text and different ids are one candidate, with the contributions of both.
#
# Weighted RRF sums by page_content unless id_key names a metadata field; Document.id is not read. A note that was saved twice (m2, m4)
# gets 1/62 twice, passes m1 and m3 which are first in a list, and m4 is gone.
#
# Seen in langchain-classic 1.0.8 with langchain-core 1.8.3:
#   lists: m1 m2 | m3 m4
#   fused: m2 m1 m3
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check langchain-classic==1.0.8 langchain-core==1.8.3
LANGSMITH_TRACING=false "$folder/venv/bin/python" - <<'PY'
import sys

from langchain_classic.retrievers import EnsembleRetriever
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever


class Fixed(BaseRetriever):
    found: list

    def _get_relevant_documents(self, query, *, run_manager):
        return self.found


def memory(id, text):
    return Document(id=id, page_content=text)


lists = [
    Fixed(found=[memory("m1", "the plan of the standup"), memory("m2", "standup at 09:30")]),
    Fixed(found=[memory("m3", "standup at 10:00"), memory("m4", "standup at 09:30")]),
]
fused = [document.id for document in EnsembleRetriever(retrievers=lists, weights=[0.5, 0.5]).invoke("standup")]
print(f"lists: {' | '.join(' '.join(document.id for document in one.found) for one in lists)}")
print(f"fused: {' '.join(fused)}")
sys.exit(0 if fused == ["m2", "m1", "m3"] else 1)
PY
