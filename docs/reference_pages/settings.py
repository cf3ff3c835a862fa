"""docs/reference/settings.md: every environment variable, read from `settings.Settings`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cems_workbench.settings import PREFIX, Settings
from docs.reference_pages.markdown import code, notice, table, table_cell

HEAD = f"""\
# Settings

Environment variables, or lines of a `.env` file in the working directory. They say where the store is and which models and
servers to use. Parameters of the pipeline are part of a [config](parameters.md). Keys and tokens are never written to a store, bundle,
link or message.

{notice("cems_workbench/settings.py and docs/reference_pages/settings.json")}
"""
NOTES = """
## Embedders

A store records which embedder made its vectors and their dimension. Another embedder is refused before anything is searched, in one
line that names both. `reindex`, or Rebuild on the Memories page, re-embeds the memories and keeps the vectors of the previous embedder, so
that you can switch back.

- `sentence-transformers/all-MiniLM-L6-v2` is bundled and needs no network.
- `workbench/minilm-8bit` is the same model in 8 bits: three times as fast as sentence-transformers, twice as fast on a processor
  without VNNI. Its vectors are not interchangeable with the fp32 model's.
- `ollama:MODEL` runs on the Ollama server, `openai:MODEL` on any OpenAI-compatible server: llama.cpp, vLLM, OpenRouter, Ollama, OpenAI.
- Servers may name one model differently. `CEMS_WORKBENCH_EMBEDDING_SAME_AS` declares two names the same model; it is accepted if the
  dimensions match, and `doctor` verifies it by embedding 20 stored texts.
- Late interaction needs an embedder that runs locally.

## Device

The packaged models need no card. With the extra `[torch]`, the embedder, late interaction and cross-encoders of sentence-transformers
run on CUDA (NVIDIA, or AMD with torch for ROCm) or on Apple's MPS where torch finds it; `CEMS_WORKBENCH_DEVICE` is `cpu`, `cuda` or
`mps` to choose. Memories and `doctor` show the device.

- The packaged embedder begins on the processor, and moves to the device when a process has embedded 1,000 texts, since torch takes
  seconds to import; with `cuda` or `mps`, at once. Single queries stay on the processor. Models in 8 bits, the packaged cross-encoder
  among them, always run on the processor.
- Vectors and scores are in single precision, as on the processor. `doctor` computes both and compares them: cosines of 0.9999 or more,
  and the same order for the judged queries of the sample. Otherwise it warns.
- A batch that does not fit the device's memory is halved. After any other failure the model runs on the processor, with a warning.
- A device that is named and not there is refused in one line.

`python -m benchmarks.bench_device` measures texts and pairs a second beside sentence-transformers on the same device.

## Fallbacks

A local model that is missing or does not load is replaced by the bundled one; the page, the trace and `doctor` report it. Server models
have no fallback: the command or page says which server did not answer.
"""


def document() -> str:
    """The whole page as Markdown."""
    meanings: dict[str, str] = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
    rows = [
        (code(f"{PREFIX}{name.upper()}"), table_cell(meanings[name]), code(_default(field)))
        for name, field in Settings.model_fields.items()
    ]
    return f"{HEAD}\n{table(('variable', 'meaning', 'default'), rows)}\n{NOTES}"


def _default(field: Any) -> str:
    if field.default is None or field.default == "":
        return ""
    return str(field.default).lower() if isinstance(field.default, bool) else str(field.default)
