#!/usr/bin/env bash
# Tantivy: a fuzzy word scores 1.0 whatever it matched, so a typo ranks like the word itself, and BM25 is gone for that field.
#
# parse_query with fuzzy_fields, and fuzzy_term_query, give every memory that has a word within the distance the constant 1.0 for each word
# of the query: no frequency, no rarity, no length, no discount by edits. "deplay" and "deploy" tie, a rare word counts like a common one,
# and the scores of an answer are whole numbers. (Lucene weighs a fuzzy match by its edits and by BM25.)
#
# Seen in tantivy 0.27.0 (Python):
#   exact "deploy service": 1.5098 deploy the service, 1.138 deploy deploy deploy, 0.5565 deplay the service and much more
#   fuzzy "deploy service": 2.0 deploy the service, 2.0 deplay the service and much more, 1.0 deploy deploy deploy
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check tantivy==0.27.0
"$folder/venv/bin/python" - <<'PY'
import sys

import tantivy

TEXTS = ["deploy the service", "deplay the service and much more", "deploy deploy deploy", "nothing of it"]
builder = tantivy.SchemaBuilder()
builder.add_text_field("body", stored=True)
index = tantivy.Index(builder.build())
writer = index.writer(heap_size=15_000_000, num_threads=1)
for text in TEXTS:
    writer.add_document(tantivy.Document(body=text))
writer.commit()
index.reload()
searcher = index.searcher()


def ask(words, **options):
    found = searcher.search(index.parse_query(words, ["body"], **options), 10).hits
    return {searcher.doc(address)["body"][0]: round(score, 4) for score, address in found}


exact = ask("deploy service")
fuzzy = ask("deploy service", fuzzy_fields={"body": (False, 1, True)})
print('exact "deploy service":', ", ".join(f"{score} {text}" for text, score in exact.items()))
print('fuzzy "deploy service":', ", ".join(f"{score} {text}" for text, score in fuzzy.items()))
expected = {TEXTS[0]: 2.0, TEXTS[1]: 2.0, TEXTS[2]: 1.0}
sys.exit(0 if fuzzy == expected and exact[TEXTS[0]] != 2.0 else 1)
PY
