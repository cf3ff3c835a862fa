"""Gathering a query set with the real store and models: cancel, resume, and the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cems_workbench.config import with_values
from cems_workbench.config.presets import preset
from cems_workbench.evaluation import gathering
from cems_workbench.evaluation.evidence_file import read_evidence_file
from cems_workbench.evaluation.gathering import drawn, gather_query_set, request_for
from cems_workbench.pipeline import replay
from cems_workbench.pipeline.gather import gather
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Cancelled
from cems_workbench.records import Query

if TYPE_CHECKING:
    from conftest import Command

pytestmark = [pytest.mark.models, pytest.mark.xdist_group("models")]
CONFIG = with_values(preset("cems").config, {"judge.backend": "none"})


def test_a_cancelled_gather_goes_on_without_repeating_what_was_finished(
    resources: Resources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = resources.store.queries()[:6]
    path = tmp_path / "sample.evidence"

    def stop_at_four(label: str, done: int, total: int) -> None:
        if done == 4:
            raise Cancelled

    with pytest.raises(Cancelled):
        gather_query_set(path, queries, [], CONFIG, resources, progress=stop_at_four)
    assert list(read_evidence_file(path).evidences) == [query.qid for query in queries[:4]]
    asked: list[str] = []

    def watched(request, *arguments):  # type: ignore[no-untyped-def]
        asked.append(request.query)
        return gather(request, *arguments)

    monkeypatch.setattr(gathering, "gather", watched)
    done = gather_query_set(path, queries, [], CONFIG, resources)
    assert (done.finished_before, done.gathered) == (4, 2)
    assert asked == [query.query for query in queries[4:]]
    found = read_evidence_file(path)
    assert found.complete and found.content_hash == done.content_hash
    for query in queries:  # the numbers are those of a single search, but for the last digits of a batch's embeddings
        alone = replay(gather(request_for(query, found.header.moment), CONFIG, resources), CONFIG).results
        kept = replay(found.evidences[query.qid], CONFIG).results
        assert [row["memory_id"] for row in kept] == [row["memory_id"] for row in alone]
        assert [row["score"] for row in kept] == pytest.approx([row["score"] for row in alone], abs=1e-5)


def test_a_query_that_cannot_be_searched_is_left_out_and_said(resources: Resources, tmp_path: Path) -> None:
    queries = [Query("q1", "deploy"), Query("q2", "   ")]
    done = gather_query_set(tmp_path / "e", queries, [], CONFIG, resources, query_set="mine")
    assert done.gathered == 1
    assert [str(error) for error in done.left_out] == ["mine:2: q2: query: it is empty; type what you are looking for"]


def test_the_command_gathers_goes_on_and_refuses_another_store(command: Command, store: Path, tmp_path: Path) -> None:
    out = tmp_path / "sample.evidence"
    arguments = (
        "gather",
        "all",
        "--out",
        out,
        "--limit",
        "5",
        "--set",
        "judge.backend=none",
        "--store",
        store,
        "--json",
    )
    first = command(*arguments)
    assert first.code == 0, first.err
    values = json.loads(first.out)
    assert (values["queries"], values["gathered"], values["left_out"]) == (5, 5, [])
    again = json.loads(command(*arguments).out)
    assert (again["finished_before"], again["gathered"]) == (5, 0)
    assert again["content_hash"] == values["content_hash"]
    other = command(*arguments[:-1], "--project-only")
    assert other.code == 2
    assert "cannot be gone on with: it was gathered over all projects" in other.err
    unknown = command("gather", "nothing", "--out", tmp_path / "x", "--store", store)
    assert unknown.code == 2 and "neither a query set of the store" in unknown.err
    assert not (tmp_path / "x").exists()


def test_drawing_is_seeded_and_keeps_the_order() -> None:
    queries = [Query(f"q{i}", "text") for i in range(50)]
    few = drawn(queries, 10, 3)
    assert few == drawn(queries, 10, 3) != drawn(queries, 10, 4)
    assert [query.qid for query in few] == sorted((query.qid for query in few), key=lambda qid: int(qid[1:]))
    assert drawn(queries, None, 0) == drawn(queries, 99, 0) == queries
