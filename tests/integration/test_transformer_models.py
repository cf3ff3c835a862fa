"""Cross-encoders and the contradiction model over a real, if tiny and untrained, model of their kind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cems_workbench.errors import ModelError
from cems_workbench.models.cross_encoder import CrossEncoderReranker
from workbench_supersession.contradiction import ContradictionScorer

QUERY = "where does the service run"
TEXTS = ["the service runs in the cluster", "redis", "", "the service runs in the cluster", "word " * 200]


def saved(folder: Path, outputs: int = 1) -> str:
    """A BERT of one layer with seeded weights and a vocabulary of letters, saved as sentence-transformers reads it."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    letters = "abcdefghijklmnopqrstuvwxyz"
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters)]
    (folder / "vocab.txt").write_text("\n".join(pieces))
    torch.manual_seed(3)
    config = BertConfig(
        vocab_size=len(pieces),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=128,
        num_labels=outputs,
    )
    BertForSequenceClassification(config).save_pretrained(folder)
    BertTokenizerFast(vocab_file=str(folder / "vocab.txt"), model_max_length=128).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> CrossEncoderReranker:
    return CrossEncoderReranker(saved(tmp_path_factory.mktemp("tiny")))


@pytest.mark.thorough
def test_scores_are_the_logits_of_the_pairs_in_the_order_of_the_texts(tiny: CrossEncoderReranker) -> None:
    import torch

    scores = tiny.score(QUERY, TEXTS)
    alone = [tiny.model.predict([(QUERY, text)], activation_fn=torch.nn.Identity())[0] for text in TEXTS]
    assert [score.raw for score in scores] == pytest.approx([float(value) for value in alone], abs=1e-5)
    assert scores[0] == scores[3]
    assert len({score.raw for score in scores}) == 4


@pytest.mark.thorough
def test_a_pair_longer_than_the_model_reads_says_so(tiny: CrossEncoderReranker) -> None:
    assert [score.detail for score in tiny.score(QUERY, TEXTS)] == [None, None, None, None, {"truncated": True}]


@pytest.mark.thorough
def test_the_cache_key_names_model_and_revision(tiny: CrossEncoderReranker, tmp_path: Path) -> None:
    other = CrossEncoderReranker(saved(tmp_path))
    assert tiny.cache_model(QUERY) == tiny.cache_model("another")
    assert tiny.cache_model(QUERY) != other.cache_model(QUERY)


def test_weights_that_are_nowhere_are_one_line_and_load_nothing() -> None:
    with pytest.raises(ModelError, match="cross-encoder no-such/model was not found"):
        CrossEncoderReranker("no-such/model")


@pytest.mark.thorough
def test_a_classifier_of_several_outputs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="has 3 outputs; a reranker has one"):
        CrossEncoderReranker(saved(tmp_path, 3)).score(QUERY, TEXTS)


PAIRS = [("the limit is 20", "the limit is 50"), ("redis", "postgres"), ("the limit is 20", "the limit is 50")]


def nli(folder: Path, names: tuple[str, ...]) -> str:
    """A tiny model with outputs of these names."""
    path = saved(folder, outputs=len(names))
    file = folder / "config.json"
    config = json.loads(file.read_text())
    config["id2label"] = {str(place): name for place, name in enumerate(names)}
    config["label2id"] = {name: place for place, name in enumerate(names)}
    file.write_text(json.dumps(config))
    return path


@pytest.mark.thorough
def test_the_column_is_found_by_its_name_and_is_a_probability(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    first = ContradictionScorer(nli(folders[0], ("contradiction", "entailment", "neutral")))
    other = ContradictionScorer(nli(folders[1], ("entailment", "Contradiction", "neutral")))
    scores = first.contradictions(PAIRS)
    assert scores[0] == pytest.approx(scores[2], abs=1e-6) and all(0 < score < 1 for score in scores)
    assert other.contradictions(PAIRS) != pytest.approx(scores), "another column of the same weights"
    assert first.contradictions([]) == [] and "contradiction model" in first.label


@pytest.mark.thorough
@pytest.mark.parametrize("names", [("yes", "no"), ("LABEL_0",)])
def test_a_model_without_that_output_is_refused_in_a_line(tmp_path: Path, names: tuple[str, ...]) -> None:
    with pytest.raises(ModelError, match="one must be contradiction") as caught:
        ContradictionScorer(nli(tmp_path, names)).contradictions(PAIRS)
    assert len(str(caught.value).splitlines()) == 1


def test_a_model_that_is_nowhere_is_refused_when_it_is_named() -> None:
    with pytest.raises(ModelError, match=r"was not found|cannot be loaded"):
        ContradictionScorer("no/such-model")
