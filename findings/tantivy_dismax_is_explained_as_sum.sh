#!/usr/bin/env bash
# tantivy: the explanation of a disjunction_max_query says "sum of", though its value is the largest of its parts.
#
# Whoever rebuilds the score from the explanation adds the parts and gets a larger number than the hit has. The value of the node tells:
# it is the sum of its details for a boolean query, and their maximum (plus tie_breaker times the others) for this one.
#
# Seen in tantivy 0.27.0 (Python), three documents of two fields, the word "tea" in either: the hit with both scores 0.8143, explained as
# "BooleanClause. sum of ..." with the parts 0.8143 and 0.3541, whose sum is 1.1684.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check tantivy==0.27.0
"$folder/venv/bin/python" - <<'PY'
import json
import sys

import tantivy

builder = tantivy.SchemaBuilder()
for field in ("title", "body"):
    builder.add_text_field(field, stored=True)
schema = builder.build()
index = tantivy.Index(schema)
writer = index.writer()
for title, body in (("tea house", "green tea in the old house"), ("coffee", "no tea here"), ("garden", "roses")):
    document = tantivy.Document()
    document.add_text("title", title)
    document.add_text("body", body)
    writer.add_document(document)
writer.commit()
index.reload()
words = [tantivy.Query.term_query(schema, field, "tea") for field in ("title", "body")]
query = tantivy.Query.disjunction_max_query(words)
searcher = index.searcher()
score, address = searcher.search(query, 1).hits[0]
explained = json.loads(query.explain(searcher, address).to_json())
parts = [part["value"] for part in explained["details"]]
print(f"score {score:.4f}, explained as {explained['description']!r} with the parts {[round(part, 4) for part in parts]}")
is_largest = abs(score - max(parts)) < 1e-6 and abs(score - sum(parts)) > 0.1
sys.exit(0 if is_largest and "sum of" in explained["description"] else 1)
PY
