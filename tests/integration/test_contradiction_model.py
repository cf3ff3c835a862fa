"""The contradiction model over a real, if tiny and untrained, model of its kind, and what it changes in proposals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cems_workbench.errors import ModelError
from cems_workbench.models.cross_encoder import ContradictionScorer
from tests.integration.test_cross_encoder import saved

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
