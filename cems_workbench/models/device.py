"""The device that models of torch run on: the processor, CUDA (NVIDIA's, and AMD's under ROCm) or Apple's MPS.

torch takes seconds to import, so it is asked only where a driver is present. What the device refuses is never lost: a batch that does not
fit is halved, and after any other failure the model runs on the processor, with a warning.
"""

from __future__ import annotations

import logging
import platform
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from ctypes.util import find_library
from pathlib import Path
from typing import Any, Literal, TypeVar

from cems_workbench.errors import ModelError, one_line
from cems_workbench.models.resolve import MISSING_PACKAGE, loads_others

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
        """Have the weights been read?"""
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
