"""engram's presets against its formulas, written again over texts, dates and counts; FTS5 of Python's sqlite3 is the engine."""

from __future__ import annotations

import math
import random
import sqlite3
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any

import numpy as np
import pytest

from cems_workbench.config import preset
from cems_workbench.pipeline import replay
from cems_workbench.pipeline.gather import Request, gather_lists
from cems_workbench.pipeline.resources import Resources, Servers
from cems_workbench.records import Memory
from cems_workbench.store import Store
from tests.planted_source import Counting
from tests.small_store import empty_store, parsed, store

__all__ = ["empty_store", "store"]

NOW = datetime(2026, 9, 1, tzinfo=UTC)
WORDS = [f"word{number}" for number in range(12)]
QUERY = "word0 or Word3 word7"


def memories() -> list[Memory]:
    rng = random.Random(3)
    return [
        Memory(
            f"m{number:03}",
            " ".join(rng.choices(WORDS, range(12, 0, -1), k=rng.randint(2, 9))),
            importance="high" if number % 7 == 0 else "normal",
            created_at=NOW - timedelta(hours=rng.randint(1, 3_000)),
            last_accessed=NOW - timedelta(hours=rng.randint(1, 3_000)),
            access_count=rng.randint(0, 9),
        )
        for number in range(260)
    ]


@pytest.fixture
def resources(store: Store) -> Resources:
    store.add(parsed(memories()))
    return Resources(store, Counting(), Servers("", "", "", None, None, None))


def engine(own: list[Memory], end: str) -> list[tuple[Memory, float]]:
    """(memory, -bm25) of what has any word of the query."""
    with sqlite3.connect(":memory:") as table:
        table.execute("CREATE VIRTUAL TABLE t USING fts5(text)")
        table.executemany("INSERT INTO t VALUES (?)", [(one.content,) for one in own])
        rows = table.execute(f"SELECT rowid, bm25(t) FROM t WHERE t MATCH 'word0 OR Word3 OR word7' {end}").fetchall()
    return [(own[row - 1], -score) for row, score in rows]


def cosines(resources: Resources, own: list[Memory]) -> dict[str, float]:
    found = resources.cosines(resources.embedder.encode_query(QUERY), [one.id for one in own])
    return {memory_id: cosine for memory_id, cosine, _ in found}


def by_competition(values: dict[str, float]) -> dict[str, int]:
    ranks, place = {}, 1
    for _, group in groupby(sorted(values, key=lambda key: -values[key]), key=values.__getitem__):
        same = list(group)
        ranks |= dict.fromkeys(same, place)
        place += len(same)
    return ranks


def answered(resources: Resources, name: str) -> tuple[dict[str, float], Any]:
    config = preset(name).config
    trace = replay(gather_lists(Request(QUERY, as_of=NOW), config, resources), config)
    return {result.memory_id: result.score for result in trace.results}, config


def test_recollection_fuses_competition_ranks_of_the_pool_and_the_first_rows(resources: Resources) -> None:
    own = sorted(memories(), key=lambda one: one.created_at or NOW)
    rows = engine(own, "LIMIT 50")
    newest = sorted(own, key=lambda one: one.last_accessed or NOW, reverse=True)[:200]
    pool = {one.id: one for one in [*newest, *(one for one, _ in rows)]}
    cosine = cosines(resources, list(pool.values()))
    ranked = [
        (0.4, by_competition({one.id: score for one, score in rows})),
        (1.0, by_competition(cosine)),
        (0.6, by_competition({key: (one.created_at or NOW).timestamp() for key, one in pool.items()})),
        (0.4, by_competition({key: one.access_count for key, one in pool.items()})),
    ]
    score = {
        key: sum(weight / (60 + ranks[key]) for weight, ranks in ranked if key in ranks)
        + (1 / 61 - 1 / 71 if one.importance == "high" else 0)
        for key, one in pool.items()
    }
    first = sorted(score, key=lambda key: -score[key])[:3]
    found, _ = answered(resources, "engram_head")
    assert found == pytest.approx({key: score[key] for key in first if cosine[key] >= 0.25}, abs=1e-12)
    assert len(rows) == 50


def test_recall_sums_relevance_recency_and_use_of_the_best_and_the_newest(resources: Resources) -> None:
    own = sorted(memories(), key=lambda one: one.created_at or NOW)
    rows = engine(own, "ORDER BY 2, 1 LIMIT 15")
    pool = {one.id: one for one in [*own[-15:], *(one for one, _ in rows)]}
    cosine, bm25 = cosines(resources, list(pool.values())), {one.id: score for one, score in rows}
    least, spread = min(bm25.values()), max(bm25.values()) - min(bm25.values())
    most = max(1, *(one.access_count for one in pool.values()))

    def score(one: Memory) -> float:
        words = (bm25[one.id] - least) / spread if one.id in bm25 else 0.0
        relevance = max(0.7 * cosine[one.id] + 0.3 * words, 0.3 if one.importance == "high" else -math.inf)
        days = (NOW - (one.created_at or NOW)).total_seconds() / 86400
        return 0.5 * relevance + 0.3 * 0.5 ** (days / 30) + 0.2 * (one.access_count + 1) / (most + 1)

    scores = {key: score(one) for key, one in pool.items()}
    best = sorted(scores, key=lambda key: -scores[key])[:5]
    found, _ = answered(resources, "engram_recall")
    assert found == pytest.approx({key: scores[key] for key in best}, abs=1e-12)


def test_search_ranks_the_best_by_words_alone(resources: Resources) -> None:
    own = sorted(memories(), key=lambda one: one.created_at or NOW)
    rows = engine(own, "ORDER BY 2, 1 LIMIT 30")
    bm25 = {one.id: score for one, score in rows}
    cosine = cosines(resources, [one for one, _ in rows])
    least, spread = min(bm25.values()), max(bm25.values()) - min(bm25.values())
    days = {one.id: (NOW - (one.created_at or NOW)).total_seconds() / 86400 for one, _ in rows}
    score = {key: (0.7 * cosine[key] + 0.3 * (bm25[key] - least) / spread) * 0.5 ** (days[key] / 30) for key in bm25}
    found, config = answered(resources, "engram_search")
    assert len(found) == config.assembly.limit == 10
    assert found == pytest.approx({key: score[key] for key in found}, abs=1e-12)
    assert next(iter(found)) == max(score, key=score.__getitem__)
    assert np.isfinite(list(found.values())).all()
