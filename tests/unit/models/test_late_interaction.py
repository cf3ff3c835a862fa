"""Models that run here: late interaction by hand, where models of torch run, and whether an embedder reproduces vectors."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from cems_workbench.config import preset
from cems_workbench.errors import ModelError
from cems_workbench.jobs import device_match, diagnosis
from cems_workbench.jobs.device_match import Compared, reordered
from cems_workbench.models import device
from cems_workbench.models.device import BATCHES, TorchModel, chosen
from cems_workbench.models.embedder import TokenEmbedder
from cems_workbench.models.embedder_match import EmbedderMatch, match, other_dimension, other_model
from cems_workbench.models.late_interaction import (
    OVERHEAD_BYTES,
    LateInteraction,
    TokenMemory,
    WordpieceFrequencies,
    max_sim,
)
from cems_workbench.models.protocol import CAUSES, Float32
from cems_workbench.pipeline.resources import Resources, Servers
from cems_workbench.progress import Progress, silent
from cems_workbench.records import Memory, ParsedInput
from cems_workbench.settings import Settings
from cems_workbench.store import Store
from tests.small_store import HashEmbedder, empty_store, store

VOCABULARY = {"redis": (1, [1.0, 0.0]), "cache": (2, [0.0, 1.0]), "slow": (3, [0.6, 0.8]), "warm": (4, [-1.0, 0.0])}


class HandMadeEmbedder:
    """Token vectors in two dimensions; words it does not know have no wordpiece."""

    model_id, batch = "hand-made", 32

    def wordpieces(self, texts: Sequence[str]) -> list[list[int]]:
        return [[VOCABULARY[word][0] for word in text.split() if word in VOCABULARY] for text in texts]

    def truncated(self, texts: Sequence[str]) -> list[bool]:
        return [len(text.split()) > 40 for text in texts]

    def tokens(self, ids: Sequence[int]) -> list[str]:
        return [next(word for word, (number, _) in VOCABULARY.items() if number == token) for token in ids]

    def token_vectors(self, texts: Sequence[str]) -> list[tuple[list[int], Any]]:
        rows = [[VOCABULARY[word][1] for word in text.split() if word in VOCABULARY] for text in texts]
        vectors = [np.array(row, dtype=np.float32).reshape(-1, 2) for row in rows]
        return list(zip(self.wordpieces(texts), vectors, strict=True))


def reranker(documents: int = 10, **counts: int) -> LateInteraction:
    frequencies = WordpieceFrequencies(documents, {VOCABULARY[word][0]: count for word, count in counts.items()})
    return LateInteraction(HandMadeEmbedder(), frequencies)  # type: ignore[arg-type]


def raws(model: LateInteraction, query: str, texts: Sequence[str]) -> list[float | None]:
    return [score.raw for score in model.score(query, texts)]


@pytest.mark.parametrize(
    ("df", "idf"), [(0, math.log(1 + 10.5 / 0.5)), (1, math.log(1 + 9.5 / 1.5)), (10, math.log(1 + 0.5 / 10.5))]
)
def test_idf(df: int, idf: float) -> None:
    assert WordpieceFrequencies(10, {7: df}).idf(7) == pytest.approx(idf, rel=1e-15)


def test_frequencies_count_memories_not_occurrences() -> None:
    counted = WordpieceFrequencies.of(HandMadeEmbedder(), ["redis redis cache", "redis", "unknown"])  # type: ignore[arg-type]
    assert counted.documents == 3
    assert counted.counts == {1: 2, 2: 1}


def test_the_score_is_the_idf_weighted_mean_of_each_query_tokens_best_cosine() -> None:
    """Document "slow warm": redis meets slow at 0.6 (warm at −1), cache meets slow at 0.8."""
    model = reranker(redis=1, cache=4)
    redis, cache = math.log(1 + 9.5 / 1.5), math.log(1 + 6.5 / 4.5)
    expected = (redis * 0.6 + cache * 0.8) / (redis + cache)
    assert raws(model, "redis cache", ["slow warm"]) == [pytest.approx(expected, rel=1e-3)]


def test_a_query_or_text_without_wordpieces_has_no_score() -> None:
    assert raws(reranker(), "redis", ["", "unknown", "redis"]) == [None, None, pytest.approx(1.0)]
    assert raws(reranker(), "unknown", ["redis"]) == [None]
    failed, _ = reranker().score("redis", ["unknown", "redis"])
    assert failed.error is not None and failed.error.split(":")[0] in CAUSES
    assert max_sim(np.zeros((0, 1)), np.zeros(0)) is None


def test_scores_are_those_of_the_texts_in_their_order_across_batches() -> None:
    texts = ["redis", "warm"] * 40
    assert raws(reranker(), "redis", texts) == pytest.approx([1.0, -1.0] * 40)


def test_the_cache_key_changes_with_what_the_score_depends_on_and_with_nothing_else() -> None:
    key = reranker(redis=1).cache_model("redis")
    assert reranker(redis=1, cache=5).cache_model("redis") == key  # another word's frequency is no matter
    assert reranker(redis=2).cache_model("redis") != key
    assert reranker(11, redis=1).cache_model("redis") != key
    assert "hand-made" in key


def test_a_text_the_model_does_not_read_to_its_end_says_so() -> None:
    whole, cut = reranker().score("redis", ["redis", "redis " * 50])
    assert whole.detail is not None and "truncated" not in whole.detail
    assert cut.detail is not None and cut.detail["truncated"] is True


def test_the_alignment_says_which_token_of_the_text_each_query_token_met() -> None:
    (score,) = reranker(redis=1, cache=4).score("redis cache", ["slow warm"])
    assert score.detail is not None
    met = [(pair["query"], pair["text"], pair["cosine"]) for pair in score.detail["alignment"]]
    assert met == [("redis", "slow", pytest.approx(0.6, rel=1e-3)), ("cache", "slow", pytest.approx(0.8, rel=1e-3))]
    weights = [pair["idf"] for pair in score.detail["alignment"]]
    total = sum(w * cosine for w, (_, _, cosine) in zip(weights, met, strict=True)) / sum(weights)
    assert score.raw == pytest.approx(total, abs=1e-3)


def test_a_text_is_read_once_however_often_it_is_scored() -> None:
    embedder = HandMadeEmbedder()
    read: list[str] = []
    vectors = embedder.token_vectors

    def counted(texts: Sequence[str]) -> list[tuple[list[int], Any]]:
        read.extend(texts)
        return vectors(texts)

    embedder.token_vectors = counted  # type: ignore[method-assign]
    model = LateInteraction(embedder, WordpieceFrequencies(10, {}))  # type: ignore[arg-type]
    first = model.score("redis", ["slow", "warm", "slow"])
    assert model.score("redis", ["warm", "slow"]) == [first[1], first[0]]
    assert [text for text in read if text != "redis"] == ["slow", "warm"]


def test_what_was_read_is_kept_within_a_bound_the_last_used_longest() -> None:
    one = OVERHEAD_BYTES + len("redis") + 4 + 2 * 2
    memory = TokenMemory(HandMadeEmbedder(), limit=2 * one)  # type: ignore[arg-type]
    memory.read(["redis", "cache"])
    first = memory.read(["redis"])[0]
    assert (len(memory), memory.nbytes) == (2, 2 * one)
    memory.read(["cache!"])  # no word of it is known: it takes less, and still "cache" has to go
    assert memory.read(["redis"])[0] is first
    assert memory.nbytes <= 2 * one


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
    monkeypatch.setattr(device_match, "compared", lambda *_: found)
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


class Plane:
    """Turns every text into the vector (0.6, 0.8)."""

    model_id = "plane"
    dimension = 2

    def encode(self, texts: Sequence[str], progress: Progress = silent) -> Float32:
        return np.array([[0.6, 0.8]] * len(texts), np.float32)


def kept(*vectors: Sequence[float]) -> list[tuple[str, Float32]]:
    return [("text", np.asarray(vector, np.float32)) for vector in vectors]


def test_a_kept_vector_of_any_length_is_compared_by_its_direction() -> None:
    found = match(Plane(), kept([0.6, 0.8], [3.0, 4.0]))
    assert (found.asked, found.reproduced, found.same) == (2, 2, True)
    assert found.lowest == pytest.approx(1.0)


def test_the_lowest_cosine_is_that_of_the_worst_text() -> None:
    found = match(Plane(), kept([0.6, 0.8], [1.0, 0.0]))
    assert (found.asked, found.reproduced, found.same) == (2, 1, False)
    assert found.lowest == pytest.approx(0.6)
    assert str(found) == "1 of 2 stored vectors reproduced, lowest cosine 0.6000"


def test_a_vector_of_another_number_of_values_is_not_reproduced() -> None:
    assert match(Plane(), kept([0.6, 0.8, 0.0])) == EmbedderMatch(1, 0, 0.0)


def test_a_refusal_names_both_and_what_to_do() -> None:
    said = str(other_model("openai:a", 384, "openai:b"))
    for part in (
        "openai:a (384 values)",
        "openai:b",
        "CEMS_WORKBENCH_EMBEDDING_SAME_AS=openai:a",
        "cems_workbench reindex",
    ):
        assert part in said
    said = str(other_dimension("openai:a", 384, "openai:a", 256))
    assert "384 values" in said and "makes 256" in said and "SAME_AS" not in said
