"""A search in a thread of its own: what is seen of it while it runs, how it is stopped, and what it says when it fails."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from searches import planned

from cems_workbench.jobs.background import STABILITY, BackgroundSearch
from cems_workbench.jobs.tuning import run_search
from tests.planted import planted_file

WAIT = 60


@pytest.fixture
def evidence(tmp_path: Path) -> Path:
    return planted_file(tmp_path, 24)


def test_a_search_ends_as_one_in_the_foreground_with_stability_measured(evidence: Path) -> None:
    search = BackgroundSearch(planned(evidence))
    assert not search.over and search.result is None
    search.start().wait(WAIT)
    assert search.over and search.problem == ""
    assert search.result is not None and len(search.result.regions) == 2
    assert search.progress.part == STABILITY
    assert search.tried == len(search.best) == 15  # a grid is searched once, folds included
    assert search.best == sorted(search.best) and search.best[0] < search.best[-1]
    assert search.result.tuned.config == run_search(planned(evidence)).tuned.config


def test_a_search_that_is_stopped_at_once_has_a_result_or_says_why_not(evidence: Path) -> None:
    search = BackgroundSearch(planned(evidence))
    search.stop()
    search.start().wait(WAIT)
    assert search.over and search.stopping
    assert search.tried <= 1
    if search.result is None:
        assert search.problem == "Stopped before the baseline was scored."
    else:
        assert search.result.tuned.search.cancelled and search.result.regions == ()


def test_an_error_in_the_thread_becomes_a_line(evidence: Path) -> None:
    nothing: Any = None
    search = BackgroundSearch(replace(planned(evidence), score=nothing))
    search.start().wait(WAIT)
    assert search.over and search.result is None
    assert search.problem.startswith("AttributeError: ")
    assert "\n" not in search.problem
