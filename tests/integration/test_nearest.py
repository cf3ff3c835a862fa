"""`fidelity --nearest`: the config that made recorded answers is found again, from another preset's values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cems_workbench.config import PipelineConfig, load_config, preset, with_values
from cems_workbench.formats.recorded_answers import Recording, parse_recording
from cems_workbench.jobs.fidelity import asked_queries, setting_for
from cems_workbench.jobs.nearest import MAX_SCORES, Nearest, find_nearest, halves
from cems_workbench.pipeline import replay
from cems_workbench.pipeline.gather import Request, gather
from cems_workbench.pipeline.resources import Resources
from tests.sample import answered_queries

if TYPE_CHECKING:
    from conftest import Command

pytestmark = [pytest.mark.models]

STARTS = ("mem0", "engram_head", "engram_search", "recollection")
CHANGES: dict[str, Any] = {"lists.recency.weight": 0.9, "fusion.k": 5.0}


def answered_by(config: PipelineConfig, resources: Resources, count: int) -> Recording:
    """What a config answers to queries of the store, as a recording without lists."""
    answers = []
    for query in answered_queries(resources.store)[:count]:
        request = Request(query.query, query.project, query.as_of)
        results = replay(gather(request, config, resources), config).results
        rows = [{"id": row.memory_id, "score": row.score} for row in results]
        moment = query.as_of.isoformat() if query.as_of else None
        answers.append(
            {"qid": query.qid, "query": query.query, "project": query.project, "as_of": moment, "results": rows}
        )
    return parse_recording(json.dumps({"engine": "elsewhere", "answers": answers}), "elsewhere.json")


def nearest_of(
    recording: Recording, names: tuple[str, ...], resources: Resources, most_scores: int = MAX_SCORES
) -> Nearest:
    return find_nearest(
        recording,
        [preset(name).config for name in names],
        lambda config: setting_for(recording, config),
        lambda setting: asked_queries(recording, {}, setting=setting),
        resources,
        most_scores=most_scores,
    )


@pytest.mark.thorough
def test_a_preset_with_two_changed_parameters_is_found_again(resources: Resources) -> None:
    made = with_values(preset("engram_head").config, CHANGES)
    recording = answered_by(made, resources, 30)
    found = nearest_of(recording, STARTS, resources)
    assert found.start == "engram_head"
    assert {path: value for path, _, value in found.changes} == CHANGES
    before, after = found.reported
    searched, held = halves(recording)
    assert {query.qid for query in after.fidelity.queries} == held
    assert len(searched | held) == 30
    assert abs(len(searched) - len(held)) <= 4, "equal texts are in one half"
    assert before.fidelity.value("up_to_ties") < 0.9
    assert after.fidelity.value("up_to_ties") == 1.0
    again = nearest_of(recording, STARTS, resources)
    assert (again.to_json() | {"seconds": 0}) == (found.to_json() | {"seconds": 0})


@pytest.mark.thorough
def test_rerankers_read_as_much_as_is_allowed_and_what_is_left_out_is_said(resources: Resources) -> None:
    recording = answered_by(with_values(preset("mem0").config, CHANGES), resources, 12)
    none = nearest_of(recording, ("engram_search", "workbench"), resources, most_scores=0)
    assert none.scores == 0 and "too many results (--scores)" in none.left_out["workbench"]
    few = nearest_of(recording, ("workbench",), resources, most_scores=600)
    assert 0 < few.scores <= 600 and "--scores N raises that" in few.lines[-1]
    assert len(few.after[0].fidelity.queries) < len(halves(recording)[0])
    made = answered_by(preset("engram_search").config, resources, 12)
    same = nearest_of(made, ("engram_search", "workbench"), resources)
    assert same.scores == 0 and "engram_search comes as close as can be" in same.left_out["workbench"]


def test_the_config_is_written_and_reproduces_the_answers(command: Command, store: Path, tmp_path: Path) -> None:
    """The command on a recording that states nothing, from one preset: few answers, so nothing is held out."""
    made = with_values(preset("mem0").config, {"assembly.limit": 3, "judge.backend": "none"})
    from cems_workbench.jobs.factory import open_resources
    from cems_workbench.settings import Settings

    resources = open_resources(Settings(store=store))
    recording = answered_by(made, resources, 6)
    resources.close()
    path = tmp_path / "few.json"
    answers = [
        {"qid": one.qid, "query": one.query, "project": one.project, "results": [row.memory_id for row in one.returned]}
        for one in recording.answers
    ]
    path.write_text(json.dumps({"engine": "elsewhere", "answers": answers}))
    out = tmp_path / "nearest.yaml"
    finished = command("fidelity", path, "--nearest", "--preset", "mem0", "--out", out, "--store", store)
    assert finished.code == 0, finished.err
    assert "nearest: mem0, changed parameters: 1" in finished.out
    assert "nothing is held out of 6 queries" in " ".join(finished.out.split())
    assert load_config(out).assembly.limit == 3
    again = command("fidelity", path, "--config", out, "--store", store, "--json")
    (setting,) = json.loads(again.out)["settings"]
    assert setting["measures"]["same_order"]["mean"] == 1.0


def test_bad_input_is_one_line(command: Command, store: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"answers": [{"qid": "q1", "query": "x", "results": ["m001"]}]}))
    for options, line in (
        ([path, path, "--nearest"], "--nearest: name one file of answers, query set or server"),
        ([path, "--nearest", "--explain"], "--nearest: it takes no --explain"),
        ([path, "--out", tmp_path / "x.yaml"], "--out: only with --nearest"),
        ([path, "--scores", "9"], "--scores: only with --nearest"),
        ([path, "--nearest", "--lists", "theirs"], "--lists: 'theirs' is not one of own, ties, recorded"),
        ([path, "--nearest", "--preset", "none"], "none"),
    ):
        finished = command("fidelity", *options, "--store", store)
        assert (finished.code, len(finished.err.splitlines())) == (2, 1), finished.err
        assert line in finished.err
