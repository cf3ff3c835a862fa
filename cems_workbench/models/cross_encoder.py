"""The cross-encoder: query and text read together by one model, which gives a logit per pair.

Raw scores are the model's logits, regardless of the activation it was saved with: ms-marco models give about -12..12. They need
`sigmoid` to become 0..1.

Source: Nogueira & Cho 2019 (passage re-ranking with BERT); ACE, which ranks by the sigmoid of ms-marco-MiniLM-L6-v2.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

from cems_workbench.errors import ModelError, one_line
from cems_workbench.models.device import Choice, Device, TorchModel
from cems_workbench.models.protocol import TRUNCATED, PairScore
from cems_workbench.models.resolve import FROM_HUB, MISSING_PACKAGE, Resolved, loads_others, locate
from cems_workbench.records import MS_MARCO, JudgeScale

VERSION = "cross-encoder/1"


class CrossEncoderReranker:
    """A `PairScorer` over sentence-transformers' CrossEncoder; its weights load when first used. Raises ModelError when
    `asked`, a path or hub id, is neither in a folder nor in the local cache nor to be reached."""

    def __init__(self, asked: str, device: Choice = "auto") -> None:
        name = _cross_encoder_named(asked)
        self.resolved, self.torch = find_weights(asked, name), TorchModel(name, self._load, device)

    @property
    def batch(self) -> int:
        """Pairs that the device takes at once."""
        return self.torch.batch

    @property
    def scale(self) -> JudgeScale | None:
        """The documented scale of ms-marco logits; other models have no scale."""
        return MS_MARCO if "ms-marco" in self.resolved.model_id.lower() else None

    @property
    def label(self) -> str:
        on_device = self.torch.loaded and (self.torch.problem or self.torch.device != "cpu")
        return _cross_encoder_named(self.resolved.line) + (f", {self.torch.place}" if on_device else "")

    def cache_model(self, query: str) -> str:
        """Version, model and the folder its weights come from, which for a cached model names the revision."""
        return f"{VERSION}:{self.resolved.model_id}:{os.path.basename(self.resolved.location)}"

    @property
    def model(self) -> Any:
        """The sentence-transformers CrossEncoder. Raises ModelError in one line when it cannot be loaded."""
        return self.torch.model

    def _load(self, device: Device) -> Any:
        model = load_cross_encoder(self.resolved, self.torch.name, device)
        if model.num_labels != 1:
            raise ModelError(f"{self.torch.name} has {model.num_labels} outputs; a reranker has one")
        return model

    def score(self, query: str, texts: Sequence[str]) -> list[PairScore]:
        """The logit of each pair; equal texts are scored once, and batches are of like length so that little is padded."""
        import torch

        # Batches of like length are padded little; ties by text keep the batches the same.
        unique = sorted(dict.fromkeys(texts), key=lambda text: (-len(text), text))
        if not unique:
            return []

        def logits_of(model: Any, batch: Sequence[str]) -> Any:
            return model.predict(
                [(query, text) for text in batch],
                batch_size=len(batch),
                show_progress_bar=False,
                # Some models are saved with a sigmoid; raw scores are logits for all.
                activation_fn=torch.nn.Identity(),
                convert_to_numpy=True,
            )

        logits = [logit for _, found in self.torch.batches(unique, logits_of) for logit in found]
        tokenizer, room = self.model.tokenizer, self.model.max_length
        read = tokenizer([query] * len(unique), unique, truncation=False, verbose=False)["input_ids"]
        scores = {
            text: _pair(float(logit), cut=bool(room) and len(ids) > room)
            for text, logit, ids in zip(unique, logits, read, strict=True)
        }
        return [scores[text] for text in texts]


def find_weights(asked: str, name: str) -> Resolved:
    """The weights of `asked`, a path or hub id; raises ModelError, which calls the model `name`, if they are not available."""
    resolved = locate(asked)
    if resolved is None:
        missing = "was not found: no such folder, not in the local cache, no model hub"
        raise ModelError(f"{name} {missing if loads_others() else f'cannot be loaded: {MISSING_PACKAGE}'}")
    return resolved


def load_cross_encoder(resolved: Resolved, name: str, device: Device = "cpu") -> Any:
    """The sentence-transformers CrossEncoder, without progress bars. Raises ModelError in one line, which calls the model `name`."""
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    from sentence_transformers import CrossEncoder
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    try:
        return CrossEncoder(resolved.location, device=device, local_files_only=resolved.source != FROM_HUB)
    except Exception as error:  # a broken file raises its reader's exception: json, safetensors, torch
        reason = one_line(str(error)) or type(error).__name__
        raise ModelError(f"{name} cannot be loaded: {reason}") from error


def _cross_encoder_named(model: str) -> str:
    """The model's name and type, unless the name contains the type: "cross-encoder/ms-marco-MiniLM-L6-v2" does."""
    return model if model.startswith("cross-encoder") else f"cross-encoder {model}"


def _pair(logit: float, *, cut: bool) -> PairScore:
    if math.isfinite(logit):
        return PairScore(logit, detail=TRUNCATED if cut else None)
    return PairScore(None, f"not finite: the model gave {logit}")
