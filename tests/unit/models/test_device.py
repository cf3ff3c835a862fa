"""Where models of torch run, with a driver that is said to be there and models that fail as on a device; torch is not needed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from cems_workbench.config import preset
from cems_workbench.errors import ModelError
from cems_workbench.jobs import diagnosis, embedder_match
from cems_workbench.jobs.embedder_match import Compared, reordered
from cems_workbench.models import device
from cems_workbench.models.device import BATCHES, TorchModel, chosen
from cems_workbench.models.embedder import TokenEmbedder
from cems_workbench.pipeline.resources import Resources, Servers
from cems_workbench.records import Memory, ParsedInput
from cems_workbench.settings import Settings
from cems_workbench.store import Store
from tests.small_store import HashEmbedder, empty_store, store

__all__ = ["empty_store", "store"]


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "driver", lambda: "cuda")
    monkeypatch.setattr(device, "unavailable", lambda _: None)


@pytest.fixture
def no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # an import of it fails


def test_without_a_driver_auto_is_the_processor_and_torch_stays_unloaded(no_torch, monkeypatch) -> None:
    monkeypatch.setattr(device, "driver", lambda: None)
    assert chosen("auto") == chosen("cpu") == "cpu"
    with pytest.raises(ModelError, match=r"^CEMS_WORKBENCH_DEVICE is mps: no driver of Apple's MPS .* auto or cpu$"):
        chosen("mps")


def test_a_driver_without_a_torch_for_it_is_named(monkeypatch) -> None:
    class Torch:
        __version__ = "9.9+cpu"

        class cuda:
            is_available = staticmethod(lambda: False)

    monkeypatch.setattr(device, "driver", lambda: "cuda")
    monkeypatch.setattr(device, "loads_others", lambda: True)
    monkeypatch.setitem(sys.modules, "torch", Torch)
    assert chosen("auto") == "cpu"
    with pytest.raises(ModelError, match=r"CEMS_WORKBENCH_DEVICE is cuda: torch 9.9\+cpu finds no device of CUDA"):
        chosen("cuda")
    check = diagnosis._device(Settings(device="auto"), preset("workbench").config)
    assert check.status == "ok" or "finds no device" in check.finding


def doubled(room: int, sizes: list[int]) -> Any:
    def run(model: str, batch: Sequence[int]) -> list[int]:
        sizes.append(len(batch))
        if model == "cuda" and len(batch) > room:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")
        return [2 * item for item in batch]

    return run


def test_a_batch_that_does_not_fit_is_halved_and_stays_halved(cuda) -> None:
    loads: list[str] = []
    model = TorchModel("m", lambda place: loads.append(place) or place)
    sizes: list[int] = []
    items = list(range(300))
    found = [value for _, values in model.batches(items, doubled(100, sizes)) for value in values]
    assert found == [2 * item for item in items]
    assert sizes == [256, 128, 64, 64, 64, 64, 44]
    assert (loads, model.batch, model.problem) == (["cuda"], 64, "")
    assert model.place == "on CUDA"


def test_a_device_that_fails_is_replaced_by_the_processor_with_a_warning(cuda, caplog) -> None:
    loads: list[str] = []
    model = TorchModel("embedder m", lambda place: loads.append(place) or place)

    def run(loaded: str, batch: Sequence[int]) -> list[int]:
        if loaded == "cuda" and batch[0] >= 256:
            raise RuntimeError("CUDA error: unspecified launch failure\nfor debugging …")
        return list(batch)

    items = list(range(300))
    assert [value for _, values in model.batches(items, run) for value in values] == items
    assert (loads, model.device, model.batch) == (["cuda", "cpu"], "cpu", BATCHES["cpu"])
    assert model.place.startswith("on the processor, because CUDA failed: CUDA error: unspecified launch failure for")
    assert caplog.messages == [f"embedder m runs {model.place}"]
    with pytest.raises(ZeroDivisionError):
        list(model.batches(items, lambda *_: 1 / 0))


def test_a_single_text_that_does_not_fit_is_read_by_the_processor(cuda) -> None:
    model, sizes = TorchModel("m", lambda place: place, "cuda"), list[int]()
    assert [values for _, values in model.batches([7], doubled(0, sizes))] == [[14]]
    assert model.device == "cpu" and "out of memory" in model.place


class Failed(HashEmbedder, TokenEmbedder):
    """An embedder whose device failed."""

    loaded, model_id, dimension = True, "", 0  # set in __init__

    def __init__(self) -> None:
        super().__init__()
        self.torch = TorchModel("embedder m", str)
        self.torch.problem = "on the processor, because CUDA failed: x"


def test_a_refresh_and_a_rebuild_note_that_the_device_failed(store: Store, monkeypatch) -> None:
    monkeypatch.setattr(Failed, "__abstractmethods__", frozenset())
    store.add(ParsedInput("memories", "m", memories=[Memory("a", "a text")]))
    resources = Resources(store, Failed(), Servers("", "", "", None, None, None))
    note = "the embedder runs on the processor, because CUDA failed: x"
    for report in (resources.refresh(), resources.rebuild()):
        assert report is not None and note in report.notes


def test_orders_differ_where_the_processor_scores_a_later_text_higher_by_more_than_a_tie() -> None:
    processor = np.array([[0.9, 0.5, 0.50001], [0.9, 0.5, 0.4], [0.9, 0.5, 0.4]])
    there = np.array([[0.8, 0.6, 0.5], [0.9, 0.3, 0.4], [0.7, 0.2, 0.1]])
    assert reordered(processor, there, 0.001) == 1
    assert reordered(processor, there, 0.000001) == 2


def test_doctor_says_what_differs_on_the_device(cuda, monkeypatch) -> None:
    found = [Compared("m", 129, 0, 0.999999)]
    monkeypatch.setattr(diagnosis, "chosen", lambda _: "cuda")
    monkeypatch.setattr(diagnosis, "describe", lambda _: "CUDA: a card, 80 GiB")
    monkeypatch.setattr(embedder_match, "compared", lambda *_: found)
    check = diagnosis._device(Settings(), preset("workbench").config)
    assert (check.status, check.advice) == ("ok", "")
    assert check.finding.startswith("CUDA: a card, 80 GiB; ") and "from 0.999999" in check.finding
    found[0] = Compared("m", 129, 3, 0.98)
    check = diagnosis._device(Settings(), preset("workbench").config)
    assert check.status == "warning" and "another order for 3 of 129" in check.finding and "cpu" in check.advice


def test_doctor_refuses_a_device_that_is_not_there(monkeypatch) -> None:
    monkeypatch.setattr(device, "driver", lambda: None)
    check = diagnosis._device(Settings(device="cuda"), preset("workbench").config)
    assert check.status == "failed" and check.finding.startswith("CEMS_WORKBENCH_DEVICE is cuda: ")
