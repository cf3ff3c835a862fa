"""How models run on this machine: those of torch on the processor, CUDA (NVIDIA's, and AMD's under ROCm) or Apple's MPS; the packaged
networks in sessions of onnxruntime, one text or pair per thread, with the same numbers on every processor.

torch takes seconds to import, so it is asked only where a driver is present. What the device refuses is never lost: a batch that does not
fit is halved, and after any other failure the model runs on the processor, with a warning.

In the packaged networks rounding to 8 bits amplifies: where one last digit differs before it, a score differs by up to 0.1. Processors
differ in two operators. Without VNNI sums of 8-bit products saturate at 16 bits, unless onnxruntime's precise mode is on, which takes 2.5
times as long where VNNI is. Softmax adds in an order that depends on the width of the registers; as a function of other operators it adds
as with AVX-512. So each network has recorded numbers, and runs here in the first of `WAYS` that gives them. The outcome is kept in the
user's cache folder, by processor, onnxruntime and network.

Source: `kOrtSessionOptionsAvx2PrecisionMode` of onnxruntime; its precise mode is a graph transformer of the extended level (1.32).
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import platform
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from ctypes.util import find_library
from dataclasses import asdict, dataclass
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal, TypeVar

from cems_workbench.errors import ModelError, one_line
from cems_workbench.models.resolve import MISSING_PACKAGE, loads_others
from cems_workbench.platform.atomic_write import write_atomically

log = logging.getLogger(__name__)
Device = Literal["cpu", "cuda", "mps"]
Choice = Literal["auto", "cpu", "cuda", "mps"]
"""auto: CUDA or MPS where torch has it, else the processor."""
NAMES: dict[Device, str] = {"cpu": "the processor", "cuda": "CUDA", "mps": "Apple's MPS"}
BATCHES: dict[Device, int] = {"cpu": 32, "cuda": 256, "mps": 64}
"""Texts or pairs at once."""
CUDA_DRIVERS = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")
"""Files of the drivers of NVIDIA, of NVIDIA under WSL, of AMD."""
Item = TypeVar("Item")


def driver() -> Device | None:
    """The kind of device that has a driver here; torch, which may be a build without it, is not imported."""
    if sys.platform == "darwin":
        return "mps" if platform.machine() == "arm64" else None
    cuda = any(Path(file).exists() for file in CUDA_DRIVERS) or (sys.platform == "win32" and find_library("nvcuda"))
    return "cuda" if cuda else None


def unavailable(device: Device) -> str | None:
    """Why models cannot run on a device here; None if they can. Imports torch only where a driver is present."""
    if device == "cpu":
        return None
    if driver() != device:
        return f"no driver of {NAMES[device]} was found here"
    if not loads_others():
        return MISSING_PACKAGE
    try:
        import torch
    except (ImportError, OSError) as error:  # OSError: a library of its driver is missing
        return f"torch cannot be imported: {one_line(str(error))}"
    found = torch.cuda.is_available() if device == "cuda" else torch.backends.mps.is_available()
    return None if found else f"torch {torch.__version__} finds no device of {NAMES[device]}"


def chosen(choice: Choice) -> Device:
    """The device for a choice. Raises ModelError for a named one that is not there."""
    device = driver() or "cpu" if choice == "auto" else choice
    problem = unavailable(device)
    if problem and choice != "auto":
        raise ModelError(f"CEMS_WORKBENCH_DEVICE is {choice}: {problem}; set it to auto or cpu")
    return "cpu" if problem else device


def possible(choice: Choice) -> bool:
    """Whether models may run elsewhere than on the processor; torch is not imported."""
    return choice in ("cuda", "mps") or (choice == "auto" and driver() is not None and loads_others())


def require_driver(choice: Choice) -> None:
    """Raises ModelError for a named device without a driver here; torch is not imported."""
    if choice not in ("auto", "cpu", driver()):
        chosen(choice)


def describe(device: Device) -> str:
    """The device's kind, model and memory, of one that is there."""
    if device != "cuda":
        return NAMES[device]
    import torch

    card = torch.cuda.get_device_properties(0)
    return f"{NAMES[device]}: {card.name}, {card.total_memory / 2**30:.0f} GiB"


class TorchModel:
    """A model of torch on a device, loaded when first used; may be used by several threads, whose batches are serialised."""

    def __init__(self, name: str, load: Callable[[Device], Any], choice: Choice = "auto") -> None:
        """`load` loads the model on a device. `name` names it in warnings."""
        self.name, self.choice = name, choice
        self.problem = ""
        """Why it runs on the processor though a device was chosen."""
        self._load = load
        self._lock = threading.RLock()
        self._device: Device | None = None
        self._model: Any = None
        self._batch = 0

    @property
    def device(self) -> Device:
        """Where it runs. Raises ModelError for a device that is not there."""
        with self._lock:
            if self._device is None:
                self._use(chosen(self.choice))
            return self._device or "cpu"

    @property
    def batch(self) -> int:
        """Number of items that the device takes at once, as far as is known. Raises ModelError as `device` does."""
        return self._batch or BATCHES[self.device]

    @property
    def loaded(self) -> bool:
        return self._model is not None

    @property
    def place(self) -> str:
        """Where it runs, in words; nothing is loaded for that."""
        device = self._device or (driver() or "cpu" if self.choice == "auto" else self.choice)
        return self.problem or f"on {NAMES[device]}{'' if self._device or device == 'cpu' else ' if torch finds it'}"

    @property
    def model(self) -> Any:
        """The model. Raises ModelError when it cannot be loaded on the processor either."""
        with self._lock:
            while self._model is None:
                try:
                    self._model = self._load(self.device)
                except Exception as error:
                    self._give_up(error)
            return self._model

    def batches(
        self, items: Sequence[Item], run: Callable[[Any, Sequence[Item]], Any]
    ) -> Iterator[tuple[Sequence[Item], Any]]:
        """(items of a batch, `run(model, them)`) of each batch, in order. Raises what `run` raises on the processor."""
        start = 0
        while start < len(items):
            batch = items[start : start + self.batch]
            with self._lock:
                model = self.model
                try:
                    found = run(model, batch)
                except Exception as error:
                    # Dropped before the next attempt, so that its memory is free by then.
                    del model
                    if self.device != "cpu" and len(batch) > 1 and "out of memory" in str(error).lower():
                        self._batch = len(batch) // 2
                    else:
                        self._give_up(error)
                    continue
            yield batch, found
            start += len(batch)

    def _give_up(self, error: Exception) -> None:
        """Use the processor from now on, or raise the error if it was used already."""
        if self.device == "cpu":
            raise error
        reason = one_line(str(error)) or type(error).__name__
        self.problem = f"on the processor, because {NAMES[self.device]} failed: {reason}"
        log.warning("%s runs %s", self.name, self.problem)
        self._use("cpu")

    def _use(self, device: Device) -> None:
        self._device, self._batch, self._model = device, BATCHES[device], None


@lru_cache(maxsize=2)
def tokenizer_of(described: bytes) -> Any:
    """The `tokenizers.Tokenizer` of a tokenizer.json, without its padding and truncation; threads may share it. Raises
    what `tokenizers` raises."""
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
    """A session in the first way that gives the recorded numbers, or in the last one. `of` identifies the network and
    what is recorded of it; `errors` are a session's differences from that, none if nothing is recorded."""
    if (kept := kept_agreement(of, ways)) is not None:
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
    _keep(_path(of, ways), agreement)
    return session, agreement


def kept_agreement(of: Sequence[bytes], ways: Sequence[Way] = WAYS) -> Agreement | None:
    """What `first_agreeing` found in an earlier process; None if it was not asked. It loads no network."""
    try:
        read = json.loads(_path(of, ways).read_bytes())
        return Agreement(Way(bool(read["ordered"]), bool(read["precise"])), float(read["error"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _path(of: Sequence[bytes], ways: Sequence[Way]) -> Path:
    """Where what was found is kept; not absolute without a home folder."""
    parts = (processor().encode(), _version().encode(), repr(ways).encode(), *of)
    cache_folder = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "cems-workbench"
    return cache_folder / f"agreement-{hashlib.sha256(bytes(1).join(parts)).hexdigest()[:24]}.json"


def _version() -> str:
    """That of onnxruntime, which is imported only where it is installed under another name, such as onnxruntime-gpu."""
    if "onnxruntime" not in sys.modules:
        with suppress(PackageNotFoundError):
            return version("onnxruntime")
    import onnxruntime

    return str(onnxruntime.__version__)


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


def _keep(path: Path, agreement: Agreement) -> None:
    # Without a folder that can be written, each process compares again.
    if agreement.error is not None and path.is_absolute():
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            with write_atomically(path) as part:
                part.write_text(json.dumps({**asdict(agreement.way), "error": agreement.error}) + "\n")
