"""Embedders that run here: loaded when first used, and shared by searches, imports and reranking."""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from cems_workbench.errors import ModelError
from cems_workbench.models.device import Choice, Device, TorchModel
from cems_workbench.models.http import sendable
from cems_workbench.models.protocol import Float32
from cems_workbench.models.resolve import FROM_HUB, Resolved
from cems_workbench.progress import Progress, silent

BATCH_SIZE = 32
MAX_CACHED_QUERIES = 256
MAX_CHARS = 100_000
"""Characters passed to the tokenizer; the models read only a few hundred wordpieces."""


class CachedQueries(ABC):
    """Base of embedders: caches the vectors of the last queries, and can embed queries ahead."""

    def __init__(self) -> None:
        self._recent: OrderedDict[str, Float32] = OrderedDict()

    @abstractmethod
    def encode(self, texts: Sequence[str], progress: Progress = silent) -> Float32:
        """Unit vectors, shape (len(texts), dimension), float32."""

    def encode_queries(self, texts: Sequence[str]) -> Float32:
        """Unit vectors of queries, as `encode`, with the query prefix if the model has one."""
        return self.encode(texts)

    def encode_query(self, text: str) -> Float32:
        """The unit vector of one query, shape (dimension,); the last few queries are remembered."""
        self.remember([text])
        return self._recent[text]

    def remember(self, texts: Sequence[str]) -> None:
        """Embed the next queries in one batch, at most `MAX_CACHED_QUERIES`, for `encode_query` to find. A batch
        differs from queries embedded one at a time in the last digit or two of single precision."""
        new = [text for text in dict.fromkeys(texts) if text not in self._recent][:MAX_CACHED_QUERIES]
        if new:
            self._recent.update(zip(new, self.encode_queries(new), strict=True))
        while len(self._recent) > MAX_CACHED_QUERIES:
            self._recent.popitem(last=False)


class TokenEmbedder(CachedQueries):
    """Base of local embedders: their tokens are known, and they return token vectors, for late interaction."""

    torch: TorchModel | None = None
    """The model on its device, if torch runs it."""

    def __init__(self, resolved: Resolved, same_as: str = "") -> None:
        """`same_as`: the id of the vectors in a store that this model has made too."""
        super().__init__()
        self.resolved = resolved
        self._same_as = same_as

    @property
    def model_id(self) -> str:
        """The declared id, or that of the model actually used."""
        return self._same_as or self.resolved.model_id

    @property
    def line(self) -> str:
        """The model in use, and the location of its weights."""
        return self.resolved.line + (f", stated to be {self._same_as}" if self._same_as else "")

    @property
    def doubt(self) -> str:
        """One line if its vectors are known to be other than the model's; otherwise empty."""
        return ""

    @property
    def place(self) -> str:
        """The device it runs on, in words."""
        return self.torch.place if self.torch else "on the processor"

    @property
    def batch(self) -> int:
        """How many texts are best read at once."""
        return self.torch.batch if self.torch and self.torch.loaded else BATCH_SIZE

    @property
    @abstractmethod
    def dimension(self) -> int:
        """Length of one vector."""

    @property
    @abstractmethod
    def loaded(self) -> bool:
        """Have the weights been read?"""

    @property
    @abstractmethod
    def room(self) -> int:
        """How many wordpieces of a text the model reads."""

    @abstractmethod
    def token_vectors(self, texts: Sequence[str]) -> list[tuple[list[int], Float32]]:
        """Per text its wordpiece ids and their unit vectors (tokens, dimension), without special tokens."""

    @abstractmethod
    def spans(self, texts: Sequence[str]) -> list[list[tuple[int, int]]]:
        """(begin, end) in characters of each wordpiece of each text; texts are not truncated."""

    @abstractmethod
    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Wordpieces in the model's notation: "##" marks a continuation of a word."""

    @abstractmethod
    def wordpieces(self, texts: Sequence[str]) -> list[list[int]]:
        """Wordpiece ids of each text without special tokens, not truncated."""

    def truncated(self, texts: Sequence[str]) -> list[bool]:
        """For each text, whether it exceeds the model's limit."""
        room = self.room
        return [len(ids) > room for ids in self.wordpieces(texts)]


class SentenceTransformerEmbedder(TokenEmbedder):
    """`QueryEmbedder` over sentence-transformers."""

    def __init__(self, resolved: Resolved, same_as: str = "", device: Choice = "auto") -> None:
        """`same_as`: the id of the vectors in a store that this model has made too."""
        super().__init__(resolved, same_as)
        self.torch: TorchModel = TorchModel(f"embedder {resolved.model_id}", self._load, device)

    @cached_property
    def dimension(self) -> int:
        return int(self.model.get_embedding_dimension())

    @property
    def loaded(self) -> bool:
        return self.torch.loaded

    @property
    def model(self) -> Any:
        """The sentence-transformers model. Raises ModelError in one line when the weights cannot be loaded."""
        return self.torch.model

    def _load(self, device: Device) -> Any:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        logging.getLogger("sentence_transformers").setLevel(logging.WARNING)
        from sentence_transformers import SentenceTransformer
        from transformers.utils import logging as transformers_logging

        transformers_logging.disable_progress_bar()

        try:
            here = self.resolved.source != FROM_HUB
            model = SentenceTransformer(self.resolved.location, device=device, local_files_only=here)
        except (OSError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise ModelError(f"embedder {self.resolved.asked} cannot be loaded: {reason}") from error
        model.eval()
        return model

    def encode(self, texts: Sequence[str], progress: Progress = silent) -> Float32:
        """Unit vectors, shape (len(texts), dimension), float32; equal texts are embedded once. Batches are of similar
        length, so little is padded; `progress` is called after each."""
        unique = list(dict.fromkeys(texts))
        order = sorted(range(len(unique)), key=lambda i: -len(unique[i]))
        vectors, done = np.zeros((len(unique), self.dimension), dtype=np.float32), 0

        def embedded(model: Any, batch: Sequence[int]) -> Any:
            read = [sendable(unique[i][:MAX_CHARS]) for i in batch]
            return model.encode(read, batch_size=len(batch), normalize_embeddings=True, show_progress_bar=False)

        for batch, found in self.torch.batches(order, embedded):
            vectors[batch] = found
            done += len(batch)
            progress("embedding", done, len(order))
        place = {text: i for i, text in enumerate(unique)}
        return vectors[[place[text] for text in texts]]

    def token_vectors(self, texts: Sequence[str]) -> list[tuple[list[int], Float32]]:
        out, special = [], set(self.model.tokenizer.all_special_ids)
        asked = {"output_value": "token_embeddings", "convert_to_numpy": False, "show_progress_bar": False}

        def read_tokens(model: Any, batch: Sequence[str]) -> list[Float32]:
            rows = model.encode([sendable(text) for text in batch], batch_size=len(batch), **asked)
            return [np.asarray(one.cpu(), dtype=np.float32) for one in rows]

        vectors = [rows for _, found in self.torch.batches(texts, read_tokens) for rows in found]
        limit = self.model.max_seq_length
        for text, rows in zip(texts, vectors, strict=True):
            ids = self.model.tokenizer(sendable(text), truncation=True, max_length=limit)["input_ids"]
            keep = [i for i, token in enumerate(ids) if token not in special]
            kept = rows[: len(ids)][keep]
            norms = np.linalg.norm(kept, axis=1, keepdims=True)
            out.append(([ids[i] for i in keep], kept / np.maximum(norms, 1e-12)))
        return out

    @property
    def room(self) -> int:
        return int(self.model.max_seq_length) - 2  # the two special tokens

    def spans(self, texts: Sequence[str]) -> list[list[tuple[int, int]]]:
        tokenizer = self.model.tokenizer
        read = tokenizer(
            list(texts), add_special_tokens=False, truncation=False, return_offsets_mapping=True, verbose=False
        )
        return [[(int(begin), int(end)) for begin, end in spans] for spans in read["offset_mapping"]]

    def tokens(self, ids: Sequence[int]) -> list[str]:
        return list(self.model.tokenizer.convert_ids_to_tokens(list(ids)))

    def wordpieces(self, texts: Sequence[str]) -> list[list[int]]:
        tokenizer = self.model.tokenizer
        return list(tokenizer(list(texts), add_special_tokens=False, truncation=False, verbose=False)["input_ids"])
