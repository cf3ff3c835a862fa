"""Reviewers of two apps at work while the database falls and comes back; `python -m benchmarks.team` is the whole of it."""

from __future__ import annotations

from pathlib import Path

from benchmarks.team import measured
from tests.integration.postgres_server import Server


def test_a_database_that_falls_while_eight_people_label_loses_and_doubles_nothing(
    team: str, server: Server, tmp_path: Path
) -> None:
    outcome = measured(96, 2, 8, 0, server, tmp_path, team, kill=False)
    assert (outcome.labels, outcome.lost, outcome.doubled, outcome.unconfirmed) == (96, 0, 0, 0), outcome
    assert len(outcome.restarts) == 1
