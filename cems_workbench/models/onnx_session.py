"""onnxruntime sessions of the packaged networks: one text or pair per thread, and the same numbers on every processor.

Rounding to 8 bits amplifies: where one last digit differs before it, a score differs by up to 0.1. Processors differ in two operators.
Without VNNI sums of 8-bit products saturate at 16 bits, unless onnxruntime's precise mode is on, which takes 2.5 times as long where VNNI
is. Softmax adds in an order that depends on the width of the registers; as a function of other operators it adds as with AVX-512.
So each network has recorded numbers, and runs here in the first of `WAYS` that gives them. The outcome is kept in the user's cache folder,
by processor, onnxruntime and network.

Source: `kOrtSessionOptionsAvx2PrecisionMode` of onnxruntime; its precise mode is a graph transformer of the extended level (1.32).

The wordpiece tokenizer that both packaged networks read with, parsed once per process.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeVar

from cems_workbench.platform.atomic_write import write_atomically


@lru_cache(maxsize=2)
def tokenizer_of(described: bytes) -> Any:
    """The `tokenizers.Tokenizer` of a tokenizer.json, without its padding and truncation; threads may share it.

    Raises what `tokenizers` raises.
    """
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(described.decode())
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def framing_tokens(tokenizer: Any) -> tuple[int, int]:
    """The ids of [CLS] and [SEP]. Raises ValueError if it has none."""
    first, last = tokenizer.token_to_id("[CLS]"), tokenizer.token_to_id("[SEP]")
    if first is None or last is None:
        raise ValueError("tokenizer.json has no [CLS] and [SEP]")
    return first, last


SOFTMAX = Path(__file__).parent / "weights" / "softmax"
"""The functions that a graph's nodes workbench.Softmax may call; training/softmax.py writes them."""
TOLERANCE = 1e-3
Session = TypeVar("Session")


@dataclass(frozen=True, slots=True)
class Way:
    """How a network is run: Softmax in the order of AVX-512 on every processor, and onnxruntime's precise mode."""

    ordered: bool = False
    precise: bool = False


WAYS = (Way(), Way(ordered=True), Way(ordered=True, precise=True))
"""The fastest first; the last gives the same numbers on every processor with fused multiply-add."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """The way a network runs here, and by how much its numbers differ from those recorded; None if none are recorded of it."""

    way: Way
    error: float | None

    @property
    def inexact(self) -> bool:
        """Whether other numbers come out than those recorded."""
        return self.error is not None and self.error > TOLERANCE

    def __str__(self) -> str:
        if self.error is None:
            return "nothing is recorded of these weights"
        if self.inexact:
            return f"this processor computes other numbers than those recorded, by up to {self.error:.2g}"
        slower = ", in 8 bits exactly, which takes longer here" * self.way.precise
        return f"as recorded (differences up to {self.error:.0e}{slower})"


def session_options(way: Way) -> Any:
    """`onnxruntime.SessionOptions` for a session on one thread, because texts and pairs run in parallel; without log output."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    if way.precise:
        options.add_session_config_entry("session.x64quantprecision", "1")
    return options


def with_softmax(graph: bytes, way: Way) -> bytes:
    """A graph with the function that its nodes workbench.Softmax call. Raises OSError."""
    # Messages of protobuf are merged by writing one behind the other.
    return graph + (SOFTMAX / ("ordered.onnx" if way.ordered else "plain.onnx")).read_bytes()


def first_agreeing(
    of: Sequence[bytes],
    opened: Callable[[Way], Session],
    errors: Callable[[Session], Iterable[float]],
    ways: Sequence[Way] = WAYS,
) -> tuple[Session, Agreement]:
    """A session in the first way that gives the recorded numbers, or in the last one.

    `of` identifies the network and what is recorded of it; `errors` are a session's differences from that, none if nothing is recorded.
    """
    import onnxruntime

    parts = (processor().encode(), onnxruntime.__version__.encode(), repr(ways).encode(), *of)
    path = _cache_folder() / f"agreement-{hashlib.sha256(bytes(1).join(parts)).hexdigest()[:24]}.json"
    if (kept := _kept(path)) is not None:
        return opened(kept.way), kept
    for way in ways:
        session, worst = opened(way), None
        for error in errors(session):
            worst = max(worst or 0.0, error if error == error else math.inf)
            if not error <= TOLERANCE and way != ways[-1]:
                break  # the rest would take time
        agreement = Agreement(way, worst)
        if worst is not None and not agreement.inexact:
            break
    _keep(path, agreement)
    return session, agreement


@cache
def processor() -> str:
    """Name of this processor and its instruction sets, as this process sees them: an emulator shows the name of another."""
    import numpy as np

    name = ""
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        name = next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), "")
    features = getattr(getattr(np, "_core", None), "_multiarray_umath", None)
    has = sorted(each for each, there in getattr(features, "__cpu_features__", {}).items() if there)
    return " ".join([platform.machine(), name or platform.processor(), *has])  # which may start a process


def _cache_folder() -> Path:
    """Where what was found is kept; not absolute without a home folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "cems-workbench"


def _kept(path: Path) -> Agreement | None:
    try:
        read = json.loads(path.read_bytes())
        return Agreement(Way(bool(read["ordered"]), bool(read["precise"])), float(read["error"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _keep(path: Path, agreement: Agreement) -> None:
    # Without a folder that can be written, each process compares again.
    if agreement.error is not None and path.is_absolute():
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            with write_atomically(path) as part:
                part.write_text(json.dumps({**asdict(agreement.way), "error": agreement.error}) + "\n")
