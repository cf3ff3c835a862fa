"""Whether vectors were made by an embedder: cosines worked out by hand, and what a refusal says."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from cems_workbench.models.embedder_match import EmbedderMatch, match, other_dimension, other_model
from cems_workbench.models.protocol import Float32
from cems_workbench.progress import Progress, silent


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


def test_a_vector_of_zeros_is_not_reproduced() -> None:
    assert match(Plane(), kept([0.0, 0.0])).reproduced == 0


def test_nothing_to_compare_is_no_match() -> None:
    found = match(Plane(), [])
    assert not found.same
    assert str(found) == "no stored vector to compare with"


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
