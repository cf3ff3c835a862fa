"""The table of what scores mean: every engine that is installed here answers as its row says, and every row explains what was seen."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from benchmarks.score_meanings import PROBES
from cems_workbench.sources.score_meanings import MEANINGS, differences, meaning_of, recorded

importlib.import_module("benchmarks.score_meanings.engines")
HERE = [name for name, probe in PROBES.items() if probe.run.__module__.endswith(".engines") and name != "pgvector"]
VECTOR_ROWS = [row for row in MEANINGS if row.group == "vector" and "opposite" in row.seen]


def compared(measured: dict[str, Any]) -> list[str]:
    assert measured
    return differences(measured)


@pytest.mark.parametrize("name", HERE)
def test_engine_that_is_installed_answers_as_the_table_says(name: str) -> None:
    if lacking := PROBES[name].lacking:
        pytest.skip(f"{', '.join(lacking)} not installed")
    assert compared(PROBES[name].run()) == []


def test_differences_name_fact_and_both_values() -> None:
    seen = dict(recorded()["chroma_l2"].seen)
    assert differences({"chroma_l2": seen}) == []
    assert differences({"chroma_l2": {**seen, "orthogonal": 1.4142}}) == [
        "chroma_l2: orthogonal: the table has 2.0, measured 1.4142"
    ]
    assert differences({"nobody": {}}) == ["nobody: was never recorded"]


def test_every_row_was_run_and_everything_that_was_run_has_a_row() -> None:
    assert sorted(row.key for row in MEANINGS) == sorted(recorded())
    assert len({row.key for row in MEANINGS}) == len(MEANINGS)


@pytest.mark.parametrize("row", VECTOR_ROWS, ids=lambda row: row.key)
def test_direction_of_a_row_is_that_of_its_facts(row: Any) -> None:
    equal, opposite = row.seen["equal"], row.seen["opposite"]
    if isinstance(opposite, str):
        pytest.skip("the opposite was not returned")
    # What the row says of two libraries is that their numbers are no relevance.
    assert (equal > opposite) == (row.best == "highest")


@pytest.mark.parametrize(
    ("engine", "distance", "name", "key"),
    [
        ("Chroma 1.5.9", "l2", "vector", "chroma_l2"),
        ("Chroma directory, read by Chroma 1.5.9", "cosine", "vector", "chroma_cosine"),
        ("Qdrant's local mode", "ip", "vector", "qdrant_dot"),
        ("PostgreSQL 18.4, pgvector 0.8.5", "cosine", "vector", "pgvector_cosine"),
        ("PostgreSQL 18.4, pgvector 0.8.5", "cosine", "ts_rank_cd", "postgres_ts_rank_cd"),
        ("a test 1.0", "cosine", "vector", None),
    ],
)
def test_row_of_an_engine_is_found_by_its_description(engine: str, distance: str, name: str, key: str | None) -> None:
    found = meaning_of(engine, distance, name)
    assert (found and found.key) == key
