"""The packaged embedder on onnxruntime beside sentence-transformers, which has the same weights."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cems_workbench.errors import ModelError
from cems_workbench.jobs import embedder_match
from cems_workbench.models import device, minilm_embedder
from cems_workbench.models.device import SOFTMAX
from cems_workbench.models.embedder import SentenceTransformerEmbedder
from cems_workbench.models.minilm_embedder import (
    EIGHT_BIT_GRAPH,
    GRAPH,
    MiniLMEmbedder,
    MiniLMOnDevice,
    is_packaged_model,
    loaded,
    local_embedder,
    read_evening,
)
from cems_workbench.models.resolve import EIGHT_BIT_ID, PACKAGED_ID, Resolved, resolve
from training import softmax
from training.embedder_graph import evening, network

pytestmark = [pytest.mark.models]

ROOT = Path(__file__).resolve().parents[2]
TEXTS = [
    "",
    "ok",
    "Postgres 16 runs on the nightly job",
    "naïve Ärger, 日本語 and emoji 🙂",
    "a [SEP] b [CLS] c [MASK]",
    "tab\tand\nline",
    "\udce4 lone surrogate",
    "getUserById() in src/api/users.py:42",
    "word " * 200,
    "long sentence, cut where the model stops. " * 120,
]


@pytest.fixture(scope="module")
def packaged() -> MiniLMEmbedder:
    embedder = local_embedder(PACKAGED_ID)
    assert isinstance(embedder, MiniLMEmbedder)
    return embedder


@pytest.fixture(scope="module")
def reference() -> SentenceTransformerEmbedder:
    return SentenceTransformerEmbedder(resolve(PACKAGED_ID))


@pytest.mark.thorough
def test_vectors_are_those_of_sentence_transformers(
    packaged: MiniLMEmbedder, reference: SentenceTransformerEmbedder
) -> None:
    texts = [text for text in TEXTS if text.isprintable() or "\t" in text]
    found, expected = packaged.encode(texts), reference.encode(texts)
    assert found.shape == expected.shape == (len(texts), packaged.dimension)
    assert (found * expected).sum(axis=1) == pytest.approx(1, abs=1e-5)
    assert np.abs(found - expected).max() < 1e-5


def test_in_eight_bits_it_is_an_embedder_of_its_own_with_nearly_the_same_vectors(packaged: MiniLMEmbedder) -> None:
    small = local_embedder(EIGHT_BIT_ID)
    assert isinstance(small, MiniLMEmbedder) and small.model_id == EIGHT_BIT_ID != packaged.model_id
    found = small.encode(TEXTS)
    assert np.linalg.norm(found, axis=1) == pytest.approx(1, abs=1e-5)
    near = (found * packaged.encode(TEXTS)).sum(axis=1)
    assert near.min() > 0.99 and near.mean() > 0.995
    assert not np.array_equal(found, packaged.encode(TEXTS))
    for text, vector in zip(TEXTS, found, strict=True):
        assert (small.encode([text])[0] == vector).all()


def test_many_texts_go_to_a_device_and_come_back_with_the_same_vectors(
    packaged: MiniLMEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device is the processor under another name: torch in its batches, without a card."""
    monkeypatch.setattr(device, "driver", lambda: "cuda")
    monkeypatch.setattr(device, "unavailable", lambda _: None)
    load = SentenceTransformerEmbedder._load
    monkeypatch.setattr(SentenceTransformerEmbedder, "_load", lambda self, _: load(self, "cpu"))
    embedder = local_embedder(PACKAGED_ID, device="cuda")
    assert isinstance(embedder, MiniLMOnDevice) and type(local_embedder(EIGHT_BIT_ID, device="cuda")) is MiniLMEmbedder
    assert (embedder.encode(TEXTS[:2]) == packaged.encode(TEXTS[:2])).all() and not embedder.on_device.loaded
    found = embedder.encode(TEXTS)
    assert embedder.on_device.loaded and embedder.place == "on CUDA; a single query on the processor"
    assert (found * packaged.encode(TEXTS)).sum(axis=1).min() > 0.999999
    for (ids, rows), (own, expected) in zip(embedder.token_vectors(TEXTS), packaged.token_vectors(TEXTS), strict=True):
        assert ids == own and np.abs(rows - expected).max(initial=0) < 1e-5
    monkeypatch.setattr(embedder_match, "_sample", lambda: (TEXTS[:3], TEXTS))
    (found,) = embedder_match.compared(PACKAGED_ID, None, "cuda")
    assert found.same and (found.queries, found.reordered) == (3, 0) and (found.cosine or 0) > 0.999999

    def broken(self: SentenceTransformerEmbedder, place: str) -> object:
        if place == "cuda":
            raise RuntimeError("no kernel image is available for execution on the device")
        return load(self, "cpu")

    monkeypatch.setattr(SentenceTransformerEmbedder, "_load", broken)
    with pytest.raises(ModelError, match="on the processor, because CUDA failed: no kernel image"):
        embedder_match.compared(PACKAGED_ID, None, "cuda")


@pytest.mark.thorough
def test_tokens_their_places_and_their_vectors_too(
    packaged: MiniLMEmbedder, reference: SentenceTransformerEmbedder
) -> None:
    texts = [text for text in TEXTS if text.isprintable()]
    assert packaged.wordpieces(texts) == reference.wordpieces(texts)
    assert packaged.spans(texts) == reference.spans(texts)
    assert packaged.truncated(texts) == reference.truncated(texts)
    assert packaged.room == reference.room
    for (ids, rows), (numbers, expected) in zip(
        packaged.token_vectors(texts), reference.token_vectors(texts), strict=True
    ):
        assert ids == numbers
        assert rows.shape == expected.shape
        assert np.abs(rows - expected).max(initial=0) < 1e-5
        assert packaged.tokens(ids) == reference.tokens(numbers)


@given(
    st.lists(
        st.text(max_size=300) | st.text("a9_ .\t\n\x00\x85\u00a0\u200b\u0301é日[SEPMAK]", max_size=700), max_size=4
    )
)
def test_a_text_is_truncated_when_its_wordpieces_are_more_than_the_model_reads(
    packaged: MiniLMEmbedder, texts: list[str]
) -> None:
    assert packaged.truncated(texts) == [len(ids) > packaged.room for ids in packaged.wordpieces(texts)]


def test_a_vector_does_not_depend_on_what_else_is_embedded(packaged: MiniLMEmbedder) -> None:
    together = packaged.encode(TEXTS)
    assert np.isfinite(together).all()
    for text, vector in zip(TEXTS, together, strict=True):
        assert (packaged.encode([text])[0] == vector).all()


@pytest.mark.parametrize("model", [PACKAGED_ID, EIGHT_BIT_ID])
def test_weights_that_lie_elsewhere_in_their_file_are_copied(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mapped = local_embedder(model).encode(TEXTS[:4])
    monkeypatch.setattr(minilm_embedder, "LAYOUT", "another")
    assert (local_embedder(model).encode(TEXTS[:4]) == mapped).all()


def test_a_search_loads_no_torch(store: Path) -> None:
    code = (
        "import sys; from cems_workbench.cli import main\n"
        f"sys.argv = ['cems_workbench', 'search', 'where do we deploy', '--preset', 'workbench', '--store', {str(store)!r}]\n"
        "try:\n    main()\nexcept SystemExit as stopped:\n    assert not stopped.code, stopped.code\n"
        "print(sorted({'torch', 'transformers', 'sentence_transformers'} & set(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    assert ended.stdout.splitlines()[-1] == "[]", ended.stdout[-500:]


@pytest.mark.thorough
def test_the_graph_is_what_its_script_writes() -> None:
    assert GRAPH.read_bytes() == network()
    assert EIGHT_BIT_GRAPH.read_bytes() == network(eight_bits=True)
    assert (SOFTMAX / "plain.onnx").read_bytes() == softmax.plain()
    assert (SOFTMAX / "ordered.onnx").read_bytes() == softmax.ordered()
    found, kept = evening(), read_evening()
    assert found.keys() == kept.keys()
    assert all(kept[name] == pytest.approx(values, rel=0.01, abs=1e-3) for name, values in found.items())


def test_other_weights_are_left_to_sentence_transformers_and_damaged_ones_are_one_line(tmp_path: Path) -> None:
    assert not is_packaged_model(Resolved("x", PACKAGED_ID, str(tmp_path), "configured path"))
    there = Path(resolve(PACKAGED_ID).location)
    for file in there.iterdir():
        if file.is_file() and file.name != "config.json":
            (tmp_path / file.name).symlink_to(file)
    config = (there / "config.json").read_text()
    (tmp_path / "config.json").write_text(config.replace('"num_hidden_layers": 6', '"num_hidden_layers": 12'))
    assert not is_packaged_model(Resolved("x", PACKAGED_ID, str(tmp_path), "configured path"))
    (tmp_path / "config.json").write_text(config)
    assert is_packaged_model(Resolved("x", PACKAGED_ID, str(tmp_path), "configured path"))
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "model.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0{}      ")
    with pytest.raises(ModelError, match="embedder asked cannot be loaded: ") as raised:
        loaded(tmp_path, "asked")
    assert len(str(raised.value).splitlines()) == 1


def test_nothing_is_reported_of_what_is_embedded(tmp_path: Path) -> None:
    """onnxruntime keeps an id of the device and what it will send below the home folder, unless told before it is imported."""
    code = f"from cems_workbench.models.minilm_embedder import local_embedder as e\ne({PACKAGED_ID!r}).encode(['a'])"
    bare = {"HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}  # nothing by which it would see that it runs in tests or CI
    subprocess.run([sys.executable, "-c", code], check=True, env=bare, cwd=ROOT, timeout=120)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path.parent for path in files] == [tmp_path / ".cache" / "cems-workbench"]  # ours, see device.py
