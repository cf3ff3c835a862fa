"""Known mistakes of lists that SQLite's FTS5 answers, gathered on the sample store; and where they are printed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cems_workbench.analysis.known_mistakes import known_mistakes
from cems_workbench.config import PipelineConfig, with_values
from cems_workbench.jobs.factory import open_resources
from cems_workbench.pipeline import replay
from cems_workbench.pipeline.gather import Request, gather
from cems_workbench.pipeline.resources import Resources
from cems_workbench.settings import Settings

Command = Callable[..., Any]
QUERY = "how do we roll back a failed deploy?"
AS_OF = datetime(2026, 9, 1, tzinfo=UTC)
BY_ROW = {"lists.fts5.enabled": True, "lists.fts5.cut": "row", "lists.fts5.depth": 20}


@pytest.fixture(scope="module")
def folder(sample_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shutil.copytree(sample_store, tmp_path_factory.mktemp("opened") / "store")


@pytest.fixture(scope="module")
def opened(folder: Path) -> Iterator[Resources]:
    resources = open_resources(Settings(store=folder))
    yield resources
    resources.close()


def words(resources: Resources, **changes: object) -> list[str]:
    config = with_values(PipelineConfig(), changes)
    return [
        mistake.words
        for mistake in known_mistakes(replay(gather(Request(QUERY, as_of=AS_OF), config, resources), config))
    ]


def test_oldest_matches_replace_the_best(opened: Resources) -> None:
    by_score = gather(
        Request(QUERY, as_of=AS_OF), with_values(PipelineConfig(), {**BY_ROW, "lists.fts5.cut": "score"}), opened
    )
    best = next(ranked for ranked in by_score.lists if ranked.name == "fts5:0").hits[0].memory_id
    count = by_score.notes["engines"]["fts5:0"]["matches"]
    assert words(opened, **BY_ROW) == [
        f"fts5:0 holds the 20 oldest of {count} matches; the best match, {best}, is not among them"
    ]


def test_every_word_must_occur(opened: Resources) -> None:
    found = words(opened, **{"lists.fts5.enabled": True, "lists.fts5.match": "all"})
    assert found == ["fts5:0 is empty: all 8 words must occur in one memory"]


def test_search_has_them_as_a_field(folder: Path, opened: Resources, module_command: Command) -> None:
    changes = [part for path, value in BY_ROW.items() for part in ("--set", f"{path}={json.dumps(value)}")]
    finished = module_command("search", QUERY, "--store", folder, "--as-of", "2026-09-01", "--json", *changes)
    found = json.loads(finished.out)["known_mistakes"]
    assert [(row["stage"], row["parameter"]) for row in found] == [("lists", "lists.fts5.cut")]
