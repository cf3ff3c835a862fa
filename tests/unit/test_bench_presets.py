"""The measures of benchmarks/bench_presets.py against numbers worked out by hand, and what its table says."""

from __future__ import annotations

import math
import sys

import pytest

from benchmarks.bench_presets import Tally, hit_at, main, ndcg_at
from cems_workbench.pipeline import Evidence, ModelScore


@pytest.mark.parametrize(
    ("k", "ranked", "relevant", "expected"),
    [
        (1, "abc", "a", 1.0),
        (1, "abc", "b", 0.0),
        (2, "abc", "b", 1.0),
        (5, "abc", "z", 0.0),
        (5, "", "a", 0.0),
        (5, "abc", "", 0.0),
        (5, "abc", "abc", 1.0),
    ],
)
def test_a_hit_is_one_relevant_id_among_the_first_k(k: int, ranked: str, relevant: str, expected: float) -> None:
    assert hit_at(k, list(ranked), set(relevant)) == expected


@pytest.mark.parametrize(
    ("k", "ranked", "relevant", "expected"),
    [
        (10, "abc", "a", 1.0),
        (10, "abc", "b", 1 / math.log2(3)),  # 0.6309
        (10, "abc", "c", 0.5),  # log2(4) = 2
        (2, "abc", "c", 0.0),
        (10, "abc", "ac", (1 + 0.5) / (1 + 1 / math.log2(3))),  # 0.9197
        (10, "abc", "az", 1 / (1 + 1 / math.log2(3))),  # what was never returned counts in the ideal ranking
        (1, "abc", "az", 1.0),  # the best one place can hold is one relevant id
        (10, "ba", "ab", 1.0),  # binary: the order among the relevant does not matter
        (10, "", "a", 0.0),
        (10, "abc", "", 0.0),
        (10, "aab", "a", 1.0),  # an id counts once
        (10, "abab", "ab", 1.0),
    ],
)
def test_ndcg_by_hand(k: int, ranked: str, relevant: str, expected: float) -> None:
    assert ndcg_at(k, list(ranked), set(relevant)) == pytest.approx(expected, abs=1e-12)


def test_a_row_says_which_reranker_ran_and_how_many_scores_failed() -> None:
    tally = Tally()
    scores = {"m": {"a": ModelScore(0.5), "b": ModelScore(None, error="refused: nobody"), "c": ModelScore(math.nan)}}
    tally.count(["a", "b"], {"b"}, Evidence("q", {}, model_scores=scores, notes={"models": {"reranker": "it"}}), 0.02)
    tally.count(["b", "a"], {"b"}, Evidence("q", {}, notes={"models": {}}), 0.04)
    row = tally.row("mine")
    assert row == ["mine", "0.500", "1.000", "0.815", "30", "2", "it; none", "2 of 3 (refused, not finite)"]


def test_without_the_data_it_skips_and_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["bench_presets", "--data", str(tmp_path / "none")])
    assert main() == 0
    assert capsys.readouterr().out.startswith("skipped: no LoCoMo conversations")
