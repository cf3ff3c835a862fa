"""Near duplicates: the same pairs as a comparison of every memory with every other."""

from __future__ import annotations

import numpy as np
import pytest

from cems_workbench.analysis.diversity import near_pairs


def test_near_pairs_are_those_a_full_comparison_finds(monkeypatch):
    monkeypatch.setattr("cems_workbench.analysis.diversity.BLOCK_ROWS", 7)
    vectors = np.random.default_rng(3).normal(size=(40, 4)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    ids = [f"m{i:02}" for i in range(40)]
    contents = [str(i // 2) for i in range(40)]
    cosines = vectors @ vectors.T
    expected = sorted(
        (-float(cosines[i, j]), ids[i], ids[j])
        for i in range(40)
        for j in range(i + 1, 40)
        if cosines[i, j] >= 0.8 and contents[i] != contents[j]
    )
    found = near_pairs(ids, vectors, contents, 0.8, 10)
    assert found.total == len(expected) > 10
    assert [pair[:2] for pair in found.pairs] == [(a, b) for _, a, b in expected[:10]]
    assert [pair[2] for pair in found.pairs] == pytest.approx([-score for score, _, _ in expected[:10]], abs=1e-6)


def test_no_memories_have_no_near_pairs():
    assert near_pairs([], np.empty((0, 3), np.float32), [], 0.9, 5).total == 0
