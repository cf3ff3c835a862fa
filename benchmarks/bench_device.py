"""Texts embedded and pairs read a second on a device, beside `SentenceTransformer.encode` and `CrossEncoder.predict` on the same one.

    python -m benchmarks.bench_device [--device auto] [--texts 4000] [--pairs 4000] [--rounds 3] [--cross-encoder FOLDER_OR_ID]

Memories of the sample with a number before each, so that no two are equal. Ways alternate, and the best round counts.
Peers run with their default batch of 32 and with ours. Without `--cross-encoder` pairs are read by a network of ms-marco-MiniLM-L6's shape
with random weights, whose speed is the same. Ratios above 1 are ours faster; then `doctor`'s comparison of device and processor follows.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cems_workbench.builtin import SAMPLE_DATA
from cems_workbench.jobs.device_match import compared
from cems_workbench.models.cross_encoder import CrossEncoderReranker
from cems_workbench.models.device import chosen, describe
from cems_workbench.models.embedder import SentenceTransformerEmbedder
from cems_workbench.models.minilm_embedder import local_embedder
from cems_workbench.models.resolve import PACKAGED_ID, resolve

QUERY = "when does the nightly job start"


def texts(count: int) -> list[str]:
    """So many distinct texts."""
    rows = (SAMPLE_DATA / "memories.jsonl").read_text("utf-8").splitlines()
    contents = [json.loads(row)["content"] for row in rows]
    return [f"{i} {contents[i % len(contents)]}" for i in range(count)]


def random_cross_encoder(folder: Path) -> str:
    """A cross-encoder of six layers of 384 with random weights and the packaged tokenizer; returns its folder."""
    from transformers import BertConfig, BertForSequenceClassification

    packaged = Path(resolve(PACKAGED_ID).location)
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json"):
        if (packaged / name).is_file():
            shutil.copy(packaged / name, folder)
    config = BertConfig(
        hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536, num_labels=1
    )
    BertForSequenceClassification(config).save_pretrained(folder)
    return str(folder)


def measured(title: str, ways: dict[str, Callable[[Sequence[str]], Any]], given: Sequence[str], rounds: int) -> None:
    """Print items a second of each way, and how many times as many the first one does."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for way in ways.values():
        way(given[:512])
    for _ in range(rounds):
        for name, way in ways.items():
            began = time.perf_counter()
            way(given)
            seconds[name].append(time.perf_counter() - began)
    first = min(next(iter(seconds.values())))
    for name, found in seconds.items():
        print(f"{title:6s} {name:44s} {len(given) / min(found):9.1f}/s   ours / it {min(found) / first:.2f}")


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("auto", "cpu", "cuda", "mps"), default="auto")
    parser.add_argument("--texts", type=int, default=4_000)
    parser.add_argument("--pairs", type=int, default=4_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cross-encoder")
    options = parser.parse_args()
    device = chosen(options.device)
    print(f"{describe(device)}, best of {options.rounds} rounds")
    ours = SentenceTransformerEmbedder(resolve(PACKAGED_ID), device=device)
    model, batch = ours.model, ours.batch
    measured(
        "texts",
        {
            f"ours, batches of {batch}": ours.encode,
            "SentenceTransformer.encode, batches of 32": lambda read: model.encode(
                list(read), normalize_embeddings=True
            ),
            f"SentenceTransformer.encode, batches of {batch}": lambda read: model.encode(
                list(read), batch_size=batch, normalize_embeddings=True
            ),
            "ours on the processor (onnxruntime)": local_embedder(PACKAGED_ID, device="cpu").encode,
        },
        texts(options.texts),
        options.rounds,
    )
    with tempfile.TemporaryDirectory() as folder:
        reranker = CrossEncoderReranker(options.cross_encoder or random_cross_encoder(Path(folder)), device)
        reader, size = reranker.model, reranker.batch
        measured(
            "pairs",
            {
                f"ours, batches of {size}": lambda read: reranker.score(QUERY, read),
                "CrossEncoder.predict, batches of 32": lambda read: reader.predict([(QUERY, text) for text in read]),
                f"CrossEncoder.predict, batches of {size}": lambda read: reader.predict(
                    [(QUERY, text) for text in read], batch_size=size
                ),
            },
            texts(options.pairs),
            options.rounds,
        )
    for found in compared(PACKAGED_ID, options.cross_encoder, device):
        print(found)


if __name__ == "__main__":
    main()
