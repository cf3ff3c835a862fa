"""The cross-encoder that ships with the workbench, `workbench/minilm-judge`: all-MiniLM-L6-v2 trained to judge, in 8 bits.

It is an ONNX file of 24 MB that onnxruntime reads on the CPU, stored with its tokenizer, calibration and model card in
`weights/minilm_judge/`. It is the fallback for a cross-encoder that is not available. Raw scores are logits, about -10..10.
network.onnx is the same network, optimised by training/judge_graph.py over weights that are mapped from model.onnx; network.json says which
files it was made of. Where they are others, model.onnx itself is loaded. recorded.json has the logits of 16 pairs, by which the first load
on a processor finds how the network gives them there (device.py).

Every pair goes through the network alone. Its activations are rounded to 8 bits by the largest value of the whole tensor, so in a
batch a score would depend on which other pairs are in it: by 0.17 on average, by 1.1 at most (docs/internals/decisions/0007).

Source: training/ of this repository; the model card documents training data and quality.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from cems_workbench.errors import ModelError, one_line
from cems_workbench.models.device import (
    WAYS,
    Agreement,
    Way,
    first_agreeing,
    framing_tokens,
    kept_agreement,
    session_options,
    tokenizer_of,
    with_softmax,
)
from cems_workbench.models.protocol import INEXACT, TRUNCATED, PairScore
from cems_workbench.records import JudgeScale

MODEL_ID = "workbench/minilm-judge"
FOLDER = Path(__file__).parent / "weights" / "minilm_judge"
MODEL, TOKENIZER = "model.onnx", "tokenizer.json"
FILES = (MODEL, TOKENIZER, "calibration.json")
NETWORK, MADE_OF, RECORDED = "network.onnx", "network.json", "recorded.json"
SAMPLES, SAMPLE_BYTES = 64, 4096
"""Of model.onnx so many blocks are compared at a load: other training changes each of them."""
MAX_TOKENS = 512
MAX_QUERY_TOKENS = 448
"""Maximum tokens of a query, so that there is room for some of the text."""
TEXTS_KEPT, KEPT_CHARS = 4096, 4000
"""So many texts, of at most so many characters, have their wordpieces kept: queries of a set have most candidates in common."""
VERSION = "minilm-judge/3"


class MiniLMJudge:
    """A `PairScorer` over the packaged weights, which load when first used (some 0.2 s), once per process. May be used
    by several threads. Raises ModelError if the weights are missing: a checkout may lack them."""

    batch = 32
    label = f"cross-encoder {MODEL_ID} (packaged with the workbench)"

    def __init__(self, folder: Path = FOLDER, threads: int | None = None) -> None:
        missing = [name for name in FILES if not (folder / name).is_file()]
        if missing:
            raise ModelError(f"{MODEL_ID} is not in this checkout: no {missing[0]} in {folder}")
        self._folder = folder
        self._threads = threads or os.cpu_count() or 1
        self._lock = threading.Lock()
        self._loaded: Weights | None = None

    @property
    def scale(self) -> JudgeScale:
        """Threshold and bands that were fitted to this model. Raises ModelError when calibration.json cannot be read."""
        return self._weights().scale

    def cache_model(self, query: str) -> str:
        """Version and a digest of the weights. Raises ModelError when they cannot be loaded."""
        return f"{VERSION}:{self._weights().digest}"

    def score(self, query: str, texts: Sequence[str]) -> list[PairScore]:
        """The logit of each pair, independent of the other pairs. Equal texts are scored once. Raises ModelError in one
        line when the weights cannot be loaded."""
        if not texts:
            return []
        weights, unique = self._weights(), list(dict.fromkeys(texts))
        asked = weights.ids(query)
        # Pairs in parallel, never in a batch: 8-bit rounding depends on the whole tensor.
        scores = dict(zip(unique, self._pool.map(lambda text: weights.pair(asked, text), unique), strict=True))
        return [scores[text] for text in texts]

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._threads, "cross-encoder")

    @property
    def agreement(self) -> Agreement | None:
        """How its scores come out on this processor, as found before, else now. Raises ModelError when the weights cannot be loaded."""
        with suppress(OSError):
            if (kept := kept_agreement(*Files.read(self._folder).asked())) is not None:
                return kept
        return self._weights().agreement

    def _weights(self) -> Weights:
        with self._lock:
            if self._loaded is None:
                read_at = [(self._folder / name).stat() for name in FILES if (self._folder / name).is_file()]
                self._loaded = _cached(self._folder, tuple((one.st_size, one.st_mtime_ns) for one in read_at))
            return self._loaded


@dataclass(frozen=True, slots=True)
class Weights:
    """Session and tokenizer, which threads may share; `digest` identifies the contents of both files."""

    session: Any
    tokenizer: Any
    first: int
    between: int
    scale: JudgeScale
    digest: str
    agreement: Agreement | None = None

    def ids(self, text: str) -> list[int]:
        """The wordpieces of a text, without special tokens."""
        return (_kept_ids if len(text) <= KEPT_CHARS else _ids)(self.tokenizer, text)

    def pair(self, query: Sequence[int], text: str) -> PairScore:
        """The logit of [CLS] query [SEP] text [SEP], cut to `MAX_TOKENS`; truncation is noted in the detail."""
        asked, read = list(query[:MAX_QUERY_TOKENS]), self.ids(text)
        taken = read[: MAX_TOKENS - 3 - len(asked)]
        ids = [self.first, *asked, self.between, *taken, self.between]
        types = [0] * (len(asked) + 2) + [1] * (len(taken) + 1)
        fed = {"input_ids": ids, "attention_mask": [1] * len(ids), "token_type_ids": types}
        given = self.session.run(["logits"], {name: np.array([row], np.int64) for name, row in fed.items()})
        logit = float(given[0][0])
        if not math.isfinite(logit):
            return PairScore(None, f"not finite: the model gave {logit}")
        cut = len(asked) < len(query) or len(taken) < len(read)
        inexact = self.agreement is not None and self.agreement.inexact
        return PairScore(logit, detail={**(TRUNCATED if cut else {}), **(INEXACT if inexact else {})} or None)


def _ids(tokenizer: Any, text: str) -> list[int]:
    # A lone surrogate, which tokenizers refuses, becomes a question mark.
    sent = text.encode("utf-8", "replace").decode()
    ids: list[int] = tokenizer.encode(sent, add_special_tokens=False).ids
    return ids


_kept_ids = lru_cache(TEXTS_KEPT)(_ids)


def available(folder: Path = FOLDER) -> bool:
    """Whether the weights exist: a checkout may lack them."""
    return all((folder / name).is_file() for name in FILES)


@lru_cache(maxsize=1)
def _cached(folder: Path, _files: tuple[tuple[int, int], ...]) -> Weights:
    """The weights, loaded once per process and reloaded if their files have changed."""
    return loaded(folder)


def loaded(folder: Path, ways: Sequence[Way] = WAYS) -> Weights:
    """Raises ModelError in one line for every fault in the files."""
    import onnxruntime

    try:
        files = Files.read(folder)
        tokenizer = tokenizer_of((folder / TOKENIZER).read_bytes())
        first, between = framing_tokens(tokenizer)
        scale = calibrated(json.loads((folder / "calibration.json").read_bytes()))

        def opened(way: Way) -> Weights:
            options = session_options(way)
            if files.mapped:
                # onnxruntime maps the weights that network.onnx says are in this folder.
                options.add_session_config_entry(
                    "session.model_external_initializers_file_folder_path", str((folder / MODEL).resolve().parent)
                )
                # Precise mode is one of the extended optimisations; there is nothing else to optimise.
                levels = onnxruntime.GraphOptimizationLevel
                options.graph_optimization_level = levels.ORT_ENABLE_EXTENDED if way.precise else levels.ORT_DISABLE_ALL
            session = onnxruntime.InferenceSession(
                with_softmax(files.graph, way) if files.mapped else files.graph,
                options,
                providers=["CPUExecutionProvider"],
            )
            return Weights(session, tokenizer, first, between, scale, files.digest)

        def errors(weights: Weights) -> Iterator[float]:
            for query, text, logit in files.pairs:
                raw = weights.pair(weights.ids(query), text).raw
                yield math.inf if raw is None else abs(raw - logit)

        of, ways = files.asked(ways)
        weights, agreement = first_agreeing(of, opened, errors, ways)
    except Exception as error:  # onnxruntime and tokenizers raise their own exceptions, without a common base
        raise ModelError(f"{MODEL_ID} cannot be loaded: {one_line(str(error))}") from error
    return replace(weights, agreement=agreement)


@dataclass(frozen=True, slots=True)
class Files:
    """The graph that is run, whether its weights are mapped from model.onnx, `digest_of` them, and what is recorded of them."""

    graph: bytes
    mapped: bool
    digest: str
    pairs: list[tuple[str, str, float]]

    @classmethod
    def read(cls, folder: Path) -> Files:
        """Raises OSError."""
        model, recorded = (folder / MODEL).resolve(), recorded_digest(folder)
        digest, mapped = recorded or digest_of(folder), bool(recorded) and model.name == MODEL
        return cls((folder / NETWORK if mapped else model).read_bytes(), mapped, digest, recorded_pairs(folder, digest))

    def asked(self, ways: Sequence[Way] = WAYS) -> tuple[list[bytes], Sequence[Way]]:
        """What `first_agreeing` is asked: what identifies the network, and the ways to try."""
        of = [self.graph if self.mapped else b"", self.digest.encode(), repr(self.pairs).encode()]
        return of, ways if self.pairs else ways[-1:]


def recorded_pairs(folder: Path, digest: str) -> list[tuple[str, str, float]]:
    """Query, text and logit of the recorded pairs; empty if they are of other weights, or missing."""
    try:
        kept = json.loads((folder / RECORDED).read_bytes())
        pairs = [(str(query), str(text), float(logit)) for query, text, logit in kept["pairs"]]
        return pairs if kept["digest"] == digest else []
    except (OSError, ValueError, KeyError, TypeError):
        return []


def digest_of(folder: Path) -> str:
    """The contents of model and tokenizer, by which scores are cached."""
    return hashlib.sha256((folder / MODEL).read_bytes() + (folder / TOKENIZER).read_bytes()).hexdigest()[:16]


def samples_of(folder: Path) -> str:
    """Tokenizer, network.onnx, and size and evenly spaced blocks of model.onnx, in one digest. Raises OSError."""
    found = hashlib.sha256((folder / TOKENIZER).read_bytes() + (folder / NETWORK).read_bytes())
    with (folder / MODEL).open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        found.update(size.to_bytes(8, "little"))
        for block in range(SAMPLES):
            file.seek(block * max(size - SAMPLE_BYTES, 0) // (SAMPLES - 1))
            found.update(file.read(SAMPLE_BYTES))
    return found.hexdigest()


def recorded_digest(folder: Path) -> str:
    """`digest_of` as it was recorded with network.onnx; empty if that was made of other files, or is missing."""
    try:
        kept = json.loads((folder / MADE_OF).read_bytes())
        return str(kept["digest"]) if kept["samples"] == samples_of(folder) else ""
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def calibrated(fitted: Any) -> JudgeScale:
    """Threshold and bands of calibration.json; raises ValueError if they are invalid."""
    try:
        scale = JudgeScale(float(fitted["threshold"]), tuple(float(low) for low in fitted["bands"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"calibration.json needs threshold and bands, in numbers: {error!r}") from error
    falling = all(high >= low for high, low in zip(scale.bands, scale.bands[1:], strict=False))
    if len(scale.bands) != 3 or not falling or not all(map(math.isfinite, (scale.threshold, *scale.bands))):
        raise ValueError("calibration.json needs a threshold and three bands, the highest first")
    return scale
