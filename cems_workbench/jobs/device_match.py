"""Models on a device compared with the processor, over judged queries and memories of the sample: cosines and orders, for `doctor`."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cems_workbench.builtin import SAMPLE_DATA
from cems_workbench.errors import ModelError
from cems_workbench.models.cross_encoder import CrossEncoderReranker
from cems_workbench.models.device import Device, TorchModel
from cems_workbench.models.embedder import SentenceTransformerEmbedder
from cems_workbench.models.minilm_embedder import local_embedder
from cems_workbench.models.minilm_judge import MODEL_ID
from cems_workbench.models.resolve import EIGHT_BIT_ID, locate, resolve

MIN_COSINE = 0.9999
"""Of a text's two vectors."""
COSINE_TIE, LOGIT_TIE = 1e-5, 1e-3
"""Scores on the processor that differ by less count as equal."""
TEXTS, PAIR_QUERIES, PAIR_TEXTS = 96, 4, 24
Scores = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Compared:
    """A model on the device and on the processor: how many of `queries` have another order; the smallest cosine of an embedder."""

    model: str
    queries: int
    reordered: int
    cosine: float | None = None

    @property
    def same(self) -> bool:
        """Whether it ranks as on the processor."""
        return not self.reordered and (self.cosine is None or self.cosine >= MIN_COSINE)

    def __str__(self) -> str:
        order = f"another order for {self.reordered}" if self.reordered else "the processor's order for all"
        cosines = "" if self.cosine is None else f"cosines with the processor's vectors from {self.cosine:.6f}, "
        return f"{self.model}: {cosines}{order} of {self.queries} judged queries of the sample"


def compared(embedder: str | None, cross_encoder: str | None, device: Device) -> list[Compared]:
    """Both models (None: not asked) on the device and on the processor, over judged queries and memories of the sample.
    A model in 8 bits, or one that is not here, is left out. Raises ModelError."""
    queries, texts = _sample()
    found = []
    if embedder is not None and (resolved := resolve(embedder)).model_id != EIGHT_BIT_ID:
        model = SentenceTransformerEmbedder(resolved, device=device)
        vectors = model.encode([*queries, *texts])
        _require_device(model.torch)
        own, n = local_embedder(embedder, device="cpu").encode([*queries, *texts]), len(queries)
        orders = reordered(_all_cosines(own[:n], own[n:]), _all_cosines(vectors[:n], vectors[n:]), COSINE_TIE)
        cosine = float((own.astype(np.float64) * vectors).sum(axis=1).min())
        found.append(Compared(resolved.model_id, n, orders, cosine))
    if cross_encoder is not None and cross_encoder != MODEL_ID and locate(cross_encoder) is not None:
        asked, read = queries[:PAIR_QUERIES], texts[:PAIR_TEXTS]
        scorer = CrossEncoderReranker(cross_encoder, device)
        there, processor = (
            np.array([[np.nan if one.raw is None else one.raw for one in model.score(query, read)] for query in asked])
            for model in (scorer, CrossEncoderReranker(cross_encoder, "cpu"))
        )
        _require_device(scorer.torch)
        found.append(Compared(cross_encoder, len(asked), reordered(processor, there, LOGIT_TIE)))
    return found


def reordered(processor: Scores, device: Scores, tie: float) -> int:
    """How many rows of scores (queries, texts) rank otherwise on the device: a text before one that the processor scores higher by
    more than `tie`."""
    order = np.argsort(-device, axis=1, kind="stable")
    scores = np.take_along_axis(processor, order, axis=1)
    highest_after = np.maximum.accumulate(scores[:, ::-1], axis=1)[:, ::-1]
    return int((highest_after - scores > tie).any(axis=1).sum())


def _require_device(model: TorchModel) -> None:
    """Raises ModelError if the processor was used instead, which would be compared with itself."""
    if model.problem:
        raise ModelError(f"{model.name} runs {model.problem}")


def _all_cosines(queries: NDArray[np.float32], texts: NDArray[np.float32]) -> Scores:
    return queries.astype(np.float64) @ texts.T.astype(np.float64)


def _sample() -> tuple[list[str], list[str]]:
    """The judged queries of the sample, and its first memories."""
    judged = {line.split()[0] for line in (SAMPLE_DATA / "judgments.qrels").read_text("utf-8").splitlines() if line}
    queries, memories = (
        [json.loads(line) for line in (SAMPLE_DATA / f"{name}.jsonl").read_text("utf-8").splitlines()]
        for name in ("queries", "memories")
    )
    return [row["query"] for row in queries if row["qid"] in judged], [row["content"] for row in memories[:TEXTS]]
