"""Write what the packaged networks give for a few pairs and texts, by which a processor is tried when it first loads them.

    python -m training.recorded

In the last of `WAYS`, whose numbers are the same on every processor with fused multiply-add. To be run after the other scripts that write
into cems_workbench/models/weights; `training.export` writes that of the cross-encoder too.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from cems_workbench import formats
from cems_workbench.models import minilm_embedder, minilm_judge
from cems_workbench.models.device import WAYS
from cems_workbench.models.resolve import EIGHT_BIT_ID, PACKAGED_ID, packaged_minilm

SAMPLE = Path(__file__).parents[1] / "sample_data"
SHORT, CHARS = 15, 48
"""Of the sample so many texts are cut to so many characters, so that comparing takes a tenth of a second; one is long."""
LONG, LONG_TEXT = 1100, 300
"""Characters of the long text in a pair, and alone."""


def texts() -> list[str]:
    """16 memories of the sample, spread over it and cut; the last, with more than 256 wordpieces, of several."""
    memories = [memory.content for parsed in formats.read_path(SAMPLE) for memory in parsed.memories]
    spread = memories[:: len(memories) // SHORT][:SHORT]
    return [*(text[:CHARS] for text in spread), " ".join(memories[5:20])[:LONG]]


def write_pairs(folder: Path) -> None:
    """recorded.json: the logits of 16 pairs."""
    weights = minilm_judge.loaded(folder, WAYS[-1:])
    queries = [query.query for parsed in formats.read_path(SAMPLE) for query in parsed.queries]
    pairs = zip(queries[:: len(queries) // len(texts())], texts(), strict=False)
    kept = [[query, text, weights.pair(weights.ids(query), text).raw] for query, text in pairs]
    (folder / minilm_judge.RECORDED).write_text(json.dumps({"digest": weights.digest, "pairs": kept}, indent=1) + "\n")


def write_vectors() -> None:
    """recorded.npz: the vectors of 16 texts, by model."""
    read, found = [text[:LONG_TEXT] for text in texts()], {}
    for model_id in (PACKAGED_ID, EIGHT_BIT_ID):
        network = minilm_embedder.loaded(Path(packaged_minilm() or ""), model_id, model_id, WAYS[-1:])
        found[model_id] = np.array([network.vector(text) for text in read])
    np.savez(minilm_embedder.RECORDED, texts=np.array(read), **found)  # type: ignore[arg-type]


if __name__ == "__main__":
    write_pairs(minilm_judge.FOLDER)
    write_vectors()
    for file in (minilm_judge.FOLDER / minilm_judge.RECORDED, minilm_embedder.RECORDED):
        print(f"{file.name}: {file.stat().st_size:,} bytes")
