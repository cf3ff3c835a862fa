"""The heat of a text's tokens, on a matrix of cosines made by hand."""

from __future__ import annotations

import numpy as np
import pytest

from cems_workbench.analysis.text_evidence import token_similarity
from cems_workbench.models.late_interaction import TokenCosines

COSINES = TokenCosines(
    ("rare", "common"), np.array([4.0, 1.0]), ("x", "y", "z"), np.array([[0.5, 0.1, -0.3], [0.2, 0.8, 0.6]])
)


def test_a_rare_token_warms_more_than_a_common_one() -> None:
    heat = token_similarity(COSINES)
    assert heat.strength.tolist() == pytest.approx(
        [0.5, 0.2, 0.15]
    )  # max of 0.5 and 0.2/4, of 0.1 and 0.8/4, of 0 and 0.6/4
    assert heat.nearest.tolist() == [0, 1, 1]
    assert heat.cosine.tolist() == pytest.approx([0.5, 0.8, 0.6])


def test_a_query_token_meets_the_nearest_text_token() -> None:
    assert token_similarity(COSINES).met_by == ((0,), (1,), ())


def test_one_token_alone_shows_its_own_cosines_and_meeting() -> None:
    heat = token_similarity(COSINES, only=0)
    assert heat.strength.tolist() == pytest.approx([0.5, 0.1, 0.0])
    assert heat.nearest.tolist() == [0, 0, 0]
    assert heat.met_by == ((0,), (), ())


def test_words_without_any_rarity_leave_the_text_cold() -> None:
    heat = token_similarity(TokenCosines(("a",), np.array([0.0]), ("x",), np.array([[0.9]])))
    assert heat.strength.tolist() == [0.0]
