"""The cross-encoder over a real, if tiny and untrained, model of its kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from cems_workbench.errors import ModelError
from cems_workbench.models.cross_encoder import CrossEncoderReranker

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
def test_nothing_to_score_is_no_error(tiny: CrossEncoderReranker) -> None:
    assert tiny.score(QUERY, []) == []


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


@pytest.mark.thorough
def test_a_folder_without_weights_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot be loaded") as caught:
        CrossEncoderReranker(str(tmp_path)).score(QUERY, TEXTS)
    assert "\n" not in str(caught.value)
