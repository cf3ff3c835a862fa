"""Reviewers of two apps at work while the database falls and comes back; `python -m benchmarks.team` is the whole of it."""

from __future__ import annotations

import pytest

from benchmarks.team import measured
from cems_workbench.store.team.session import TeamAwayError
from workbench_team.postgres import PostgresTables


def test_a_database_that_falls_while_eight_people_label_loses_and_doubles_nothing(team, server, tmp_path):
    outcome = measured(96, 2, 8, 0, server, tmp_path, team, kill=False)
    assert (outcome.labels, outcome.lost, outcome.doubled, outcome.unconfirmed) == (96, 0, 0, 0), outcome
    assert len(outcome.restarts) == 1


def test_a_change_that_a_crash_lost_is_not_taken_for_stored_though_its_number_is_another_ones_now(team, server):
    """A number that was not on disk yet is given again after a crash, and what became of it is told of the other one."""
    first, others = PostgresTables(team), PostgresTables(team)

    def last(tables: PostgresTables) -> int:
        with tables.transaction() as session:
            return int(session.rows("SELECT pg_current_xact_id()::text")[0][0])

    def put(number: int) -> None:
        with first.transaction(of="Ann") as session:
            session.change("INSERT INTO label_claims VALUES ('Ann', 'q', 'm', localtimestamp)")
            server.restart("immediate")
            while last(others) < number:
                pass

    with pytest.raises(TeamAwayError):
        put(last(others) + 1)
    with others.reading() as session:
        assert session.rows("SELECT * FROM label_claims") == []
    for tables in (first, others):
        tables.close()
