#!/usr/bin/env bash
# LanceDB: a full-text or hybrid search for words wholly in double quotes is an error over the default index, where the same quotes beside
# another word are ignored. With two full-text indexes it is another error, whatever the indexes have.
#
# Such a text is a phrase, which needs with_position=True. A user who quotes a whole question gets an exception instead of an answer, from
# the hybrid search too, whose vectors could answer.
#
# Seen in lancedb 0.40.0 (results, or the error):
#   deploy keys: 1
#   "deploy keys: 1
#   the "deploy keys" now: 1
#   "deploy keys": Invalid input, position is not found but required for phrase queries, try recreating the index with position
#   hybrid "deploy keys": Invalid input, position is not found but required for phrase queries, try recreating the index with position
#   two indexes, both with positions, "deploy keys": Invalid input, the column must be specified in the query
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check lancedb==0.40.0 pyarrow==26.0.1
LANCEDB_LOG=error "$folder/venv/bin/python" - "$folder" <<'PY'
import sys

import lancedb
from lancedb.index import FTS

rows = [
    {"title": "vault", "text": "the deploy keys are in the vault", "vector": [1.0, 0.0]},
    {"title": "menu", "text": "soup and bread", "vector": [0.0, 1.0]},
]
table = lancedb.connect(f"{sys.argv[1]}/db").create_table("t", rows)
table.create_index("text", config=FTS())


def outcome(name, search):
    try:
        found = str(len(search.limit(5).to_list()))
    except ValueError as error:
        found = str(error).splitlines()[0]
    print(f"{name}: {found}")
    return found


quoted = '"deploy keys"'
texts = ("deploy keys", '"deploy keys', f"the {quoted} now", quoted)
seen = [outcome(text, table.search(text, query_type="fts")) for text in texts]
seen.append(outcome(f"hybrid {quoted}", table.search(query_type="hybrid").vector([1.0, 0.0]).text(quoted)))
table.create_index("text", config=FTS(with_position=True), replace=True)
table.create_index("title", config=FTS(with_position=True))
seen.append(outcome(f"two indexes, both with positions, {quoted}", table.search(quoted, query_type="fts")))
phrase = "Invalid input, position is not found but required for phrase queries, try recreating the index with position"
column = "Invalid input, the column must be specified in the query"
sys.exit(0 if seen == ["1", "1", "1", phrase, phrase, column] else 1)
PY
