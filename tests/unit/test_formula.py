"""The formula behind printed scores, solved from explanations alone, of programs that are computed here and not by the pipeline."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cems_workbench.pipeline.replay import replay
from workbench_explanations.formula import Explained, Row, evidence_of, solve

Hits = Mapping[str, tuple[int, float]]
Score = Callable[[Hits, float], float]


def program(score: Score, rng: random.Random, queries: int = 6, digits: int = 15) -> list[Explained]:
    """Explanations of a program with the lists `vector` and `keyword`, whose score is a function of ranks, scores and an age."""
    found = []
    for q in range(queries):
        ids = [f"q{q}m{i:02}" for i in range(24)]
        lists = {
            name: {
                key: (rank, value)
                for rank, (key, value) in enumerate(
                    zip(
                        rng.sample(ids, 16),
                        sorted((rng.uniform(0.1, top) for _ in range(16)), reverse=True),
                        strict=True,
                    ),
                    1,
                )
            }
            for name, top in (("vector", 0.9), ("keyword", 14.0))
        }
        rows = []
        for key in ids:
            own = {name: hits[key] for name, hits in lists.items() if key in hits}
            if own:
                age = float(rng.randint(0, 200))
                rows.append((key, round(score(own, age), digits), own, {"age_days": age}))
        rows.sort(key=lambda row: (-row[1], row[0]))
        found.append(
            Explained(
                f"query {q}",
                [Row(key, final, rank, own, parts) for rank, (key, final, own, parts) in enumerate(rows, 1)],
            )
        )
    return found


@settings(max_examples=3, deadline=None, derandomize=True)
@given(st.sampled_from((1, 20, 60)), st.sampled_from((0.3, 0.7, 1.5)), st.sampled_from((0, 30)), st.integers(0, 99))
def test_formula_gives_the_scores_of_unseen_queries(k: int, weight: float, half_life: int, seed: int) -> None:
    def score(own: Hits, age: float) -> float:
        fused = sum((weight if name == "vector" else 1.0) / (k + rank) for name, (rank, _) in own.items())
        return fused * (0.5 ** (age / half_life) if half_life else 1.0)

    every = program(score, random.Random(seed), 7)
    solved = solve(every[:5])
    assert solved.config is not None, solved.unexplained
    assert (solved.verified, solved.unexplained) == (solved.of, "")
    assert solved.config.fusion.k == k
    assert {*solved.undetermined} <= {"the order of equal scores"}
    for one, evidence in zip(every[5:], evidence_of(every, solved.roles)[5:], strict=True):
        results = {result.memory_id: result.score for result in replay(evidence, solved.config).results}
        assert results == pytest.approx({row.id: row.final for row in one.rows}, rel=1e-6)


def test_formula_reads_normalised_sums_of_rounded_scores() -> None:
    def score(own: Hits, age: float) -> float:
        return (
            0.6 * own["vector"][1] * ("vector" in own) + 0.4 * own["keyword"][1] / (1 + own["keyword"][1])
            if len(own) == 2
            else sum(0.6 * value if name == "vector" else 0.4 * value / (1 + value) for name, (_, value) in own.items())
        )

    solved = solve(program(score, random.Random(3), digits=6))
    assert solved.config is not None, solved.unexplained
    assert "0.4·saturating(keyword) + 0.6·vector" in solved.formula


def test_formula_of_a_hidden_number_is_not_stated() -> None:
    hidden = random.Random(5)
    solved = solve(
        program(
            lambda own, age: sum(1 / (60 + rank) for rank, _ in own.values()) * math.log(1 + hidden.randint(1, 50)),
            random.Random(5),
        )
    )
    assert (solved.config, solved.formula) == (None, "")
    assert "no formula" in solved.unexplained


def test_formula_says_which_rows_it_does_not_explain() -> None:
    every = program(lambda own, age: sum(1 / (60 + rank) for rank, _ in own.values()), random.Random(2), 8)
    odd = [
        Row(row.id, (row.final or 0) * (1.01 + 0.001 * row.rank), row.rank, row.lists, row.parts)
        for row in every[0].rows
    ]
    solved = solve([Explained("odd", odd), *every[1:]])
    assert solved.config is None
    assert solved.verified == solved.of - len(odd)
    assert "the rest are of 1 of 8 queries" in solved.unexplained


def test_formula_needs_rows() -> None:
    assert "too few" in solve([Explained("q", [Row("a", 0.5, 1, {"vector": (1, 0.5)})])]).unexplained
