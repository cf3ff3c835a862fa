#!/usr/bin/env bash
# DeepEval: a dataset saved as JSON lines joins the contexts of a golden with "|" and cuts them there when it is read, so a text
# with a pipe comes back as two.
#
# JSON has lists, and the "json" form keeps them; "jsonl" writes one text. A memory with a shell pipe or a Markdown table is no longer
# among the contexts, and a comparison by text finds neither half.
#
# Seen in deepeval 4.3.1, contexts that were read back:
#   json: ['Count lines with grep x | wc -l.', 'Only bash is supported.']
#   jsonl: ['Count lines with grep x ', ' wc -l.', 'Only bash is supported.']
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check deepeval==4.3.1
cd "$folder"
DEEPEVAL_TELEMETRY_OPT_OUT=YES "$folder/venv/bin/python" - "$folder" <<'PY'
import sys

from deepeval.dataset import EvaluationDataset, Golden

contexts = ["Count lines with grep x | wc -l.", "Only bash is supported."]
cut = ["Count lines with grep x ", " wc -l.", "Only bash is supported."]
saved = EvaluationDataset(goldens=[Golden(input="how do we count lines", context=contexts)])
found = {}
for form in ("json", "jsonl"):
    path = saved.save_as(file_type=form, directory=sys.argv[1], file_name="goldens")
    again = EvaluationDataset()
    getattr(again, f"add_goldens_from_{form}_file")(file_path=path)
    found[form] = again.goldens[0].context
    print(f"{form}: {found[form]}")
sys.exit(0 if found == {"json": contexts, "jsonl": cut} else 1)
PY
