#!/usr/bin/env bash
# mem0: a conversation that is added with its own date is extracted as if it took place today.
#
# The prompt says that relative times are resolved by the "Observation Date, when the conversation actually took place". `Memory.add` puts
# today there, whatever `created_at` the metadata has, and `timestamp` is refused. So "yesterday" in a talk of 2023 becomes a day of this
# year in the text, while the memory's `created_at` is of 2023. What helps: the date in the messages or in `prompt`.
# Reported as mem0ai/mem0 issues 4963 and 5894.
#
# Seen in mem0ai 2.2.1, the day being 2026-11-30:
#   asked with Observation Date 2026-11-30, stored with created_at 2023-01-20T16:04:00+00:00
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check mem0ai==2.2.1
MEM0_DIR="$folder" MEM0_TELEMETRY=False "$folder/venv/bin/python" - "$folder" <<'PY'
import sys
from datetime import datetime, timezone

from mem0 import Memory

SAID_AT = "2023-01-20T16:04:00+00:00"


class Model:
    """A language model that keeps its prompt and answers with one memory."""

    def generate_response(self, messages, **named):
        self.prompt = messages[-1]["content"]
        return '{"memory": [{"id": "0", "text": "Jon lost his job", "attributed_to": "user"}]}'


class Vectors:
    def embed(self, text, *rest):
        return [1.0, 0.0]

    def embed_batch(self, texts, *rest):
        return [[1.0, 0.0] for _ in texts]


key = {"provider": "openai", "config": {"api_key": "none"}}
store = {"provider": "qdrant", "config": {"path": f"{sys.argv[1]}/qdrant", "embedding_model_dims": 2}}
memory = Memory.from_config({"vector_store": store, "llm": key, "embedder": key, "history_db_path": f"{sys.argv[1]}/history.db"})
memory.llm, memory.embedding_model = Model(), Vectors()
said = [{"role": "user", "content": "I lost my job yesterday."}]
memory.add(said, user_id="jon", metadata={"created_at": SAID_AT})
lines = memory.llm.prompt.splitlines()
observed = lines[lines.index("## Observation Date") + 1]
stored = memory.get_all(filters={"user_id": "jon"})["results"][0]["created_at"]
print(f"asked with Observation Date {observed}, stored with created_at {stored}")
sys.exit(0 if (observed, stored) == (datetime.now(timezone.utc).date().isoformat(), SAID_AT) else 1)
PY
