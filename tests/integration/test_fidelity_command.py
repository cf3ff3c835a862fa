"""`fidelity`: recorded answers beside what a config computes, from a store or from files alone."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from cems_workbench.config import preset
from cems_workbench.formats.recorded_answers import read_recording
from cems_workbench.jobs import factory
from cems_workbench.jobs.fidelity import asked_queries, measure_fidelity, selection_for, setting_for
from cems_workbench.jobs.query_set_evidence import pending_gathers
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Cancelled

if TYPE_CHECKING:
    from conftest import Command, Finished

    from tests.sample import SampleEmbedder

ROOT = Path(__file__).resolve().parents[2]
RECORDING = ROOT / "tests" / "recordings" / "sample_cut.json"
"""Ten of the answers that CEMS 0.9.3 gave on the sample data, with its lexical lists."""

SHARED = ROOT.parent / "shared" / "cems"

pytestmark = [pytest.mark.models]


def refused(finished: Finished) -> str:
    """The one line of an input that cannot be used."""
    assert finished.code == 2
    assert len(finished.err.splitlines()) == 1, finished.err
    return finished.err.strip()


def measured(finished: Finished) -> dict[str, Any]:
    """The only setting of `--json`."""
    (setting,) = json.loads(finished.out)["settings"]
    return setting


@pytest.fixture(scope="module")
def own_answers(module_command: Command, sample_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of what the workbench itself computes under cems_head."""
    folder = tmp_path_factory.mktemp("own")
    store = shutil.copytree(sample_store, folder / "store")
    answers = []
    for row in json.loads(RECORDING.read_text())["answers"][:3]:
        asked = ["--project", row["project"]] if row["project"] else []
        out = module_command(
            "search", row["query"], *asked, "--as-of", "2026-11-22", "--preset", "cems_head", "--store", store, "--json"
        ).out
        results = [{"id": found["memory_id"], "score": found["score"]} for found in json.loads(out)["results"]]
        answers.append({"qid": row["qid"], "query": row["query"], "project": row["project"], "results": results})
    path = folder / "own.json"
    path.write_text(json.dumps({"answered_at": "2026-11-22", "answers": answers}))
    return path


def test_what_the_workbench_answers_itself_is_the_same_to_the_last_digit(
    command: Command, store: Path, own_answers: Path
) -> None:
    finished = command("fidelity", own_answers, "--store", store, "--json")
    assert finished.code == 0
    found = measured(finished)
    assert found["measures"]["same_order"] == {"mean": 1.0, "low": 1.0, "high": 1.0, "count": 3}
    assert (found["score_difference"], found["differing"]) == (0.0, [])


def test_a_recording_is_measured_and_its_differences_are_listed(command: Command, store: Path) -> None:
    finished = command("fidelity", RECORDING, "--preset", "recollection", "--store", store, "--json")
    assert finished.code == 0
    found = measured(finished)
    assert (found["queries"], found["form"], found["config"]) == (10, "recording", "recollection")
    assert found["applied"] == {"max_tokens": "4000"}
    differing = found["differing"]
    assert len(differing) == 10 - found["measures"]["same_order"]["count"] > 0
    assert [row["rbo"] for row in differing] == sorted(row["rbo"] for row in differing)
    assert all(row["stage"] and row["cause"] for row in differing)


def test_a_setting_stands_in_a_table_with_the_others_and_may_be_asserted(
    command: Command, store: Path, own_answers: Path
) -> None:
    shown = command("fidelity", own_answers, RECORDING, "--store", store, "--show", 1, "--assert", "overlap>=0")
    assert shown.code == 0
    assert "By setting" in shown.out
    assert "holds: own, cems_head: overlap>=0 (1.0000)" in shown.out
    failed = command(
        "fidelity", own_answers, "--preset", "recollection", "--store", store, "--assert", "score_difference<=1e-6"
    )
    assert failed.code == 1
    assert "FAILED: own, recollection: score_difference<=1e-6" in failed.out


def test_recorded_lists_and_a_second_recording(
    command: Command, store: Path, own_answers: Path, tmp_path: Path
) -> None:
    """A recording whose only list is its results: nothing else can be found, whatever the store has."""
    recording = json.loads(own_answers.read_text())
    for answer in recording["answers"]:
        answer["lists"] = {"dense": [row["id"] for row in answer["results"]]}
    path = tmp_path / "listed.json"
    path.write_text(json.dumps({**recording, "engine": {"name": "ours"}, "config": {"limit": None}}))
    off = [f"lists.{name}.enabled=false" for name in ("hybrid", "lexical", "relations")]
    changes = [part for change in ("lists.vector.enabled=true", *off) for part in ("--set", change)]
    more = ("--lists", "recorded", "--repeat", own_answers, "--store", store, "--json")
    found = measured(command("fidelity", path, *changes, *more))
    assert found["lists"] == {"which": "recorded", "recorded": {"dense": "vector"}}
    assert found["repeat"]["measures"]["same_order"] == {"mean": 1.0, "count": 3}
    assert found["differing"], "the config is not that of the recording"
    for row in found["differing"]:
        assert set(row["ours"]) <= set(row["recorded"])


@pytest.mark.thorough
def test_a_change_that_explains_a_recording_is_found(command: Command, store: Path, own_answers: Path) -> None:
    finished = command("fidelity", own_answers, "--set", "gap.ratio=0.95", "--store", store, "--explain", "--json")
    found = measured(finished)
    assert found["measures"]["same_order"]["count"] < 3
    assert "gap.ratio" in [row["parameter"] for row in found["explanations"] if row["same_order"] == 3]


def test_files_alone_do(command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    lines = (ROOT / "sample_data" / "memories.jsonl").read_text().splitlines()[:30]
    (folder / "memories.jsonl").write_text("\n".join(lines))
    (folder / "queries.jsonl").write_text('{"qid": "q01", "query": "how do I run the tests?"}')
    run = tmp_path / "a.run"
    loaded = str(UUID(hashlib.md5(b"m002").hexdigest()))  # what CEMS calls it
    run.write_text(f"q01 Q0 m001 1 0.9 prod\nq01 Q0 {loaded} 2 0.8 prod\n")
    finished = command("fidelity", run, "--data", folder, "--as-of", "2026-11-22", "--json")
    assert finished.code == 0, finished.err
    assert measured(finished)["form"] == "TREC run"
    (differing,) = measured(finished)["differing"]
    assert (differing["qid"], differing["recorded"]) == ("q01", ["m001", "m002"])


def test_bad_input_is_one_line(command: Command, store: Path, tmp_path: Path) -> None:
    def answered(text: str) -> Path:
        path = tmp_path / "bad.json"
        path.write_text(text)
        return path

    at = ("--store", store)
    assert (
        refused(command("fidelity", tmp_path / "none.json", *at)) == f"error: {tmp_path / 'none.json'} does not exist"
    )
    bad = answered('{"answers": [{"query": "x", "results": [{"id": "m1", "score": "high"}]}]}')
    assert refused(command("fidelity", bad, *at)).startswith(
        f"error: {bad}: there are no answers: {bad}:1: qid: must be a text"
    )
    strange = answered('{"answers": [{"qid": "q1", "query": "x", "results": ["elsewhere"]}]}')
    assert "none of its memories is in the store" in refused(command("fidelity", strange, *at))
    assert "same_oder is no measure of fidelity" in refused(
        command("fidelity", RECORDING, "--assert", "same_oder>=1", *at)
    )
    assert "not both" in refused(command("fidelity", RECORDING, "--data", ROOT / "sample_data", *at))
    assert "no such folder" in refused(command("fidelity", RECORDING, "--data", tmp_path / "none"))
    assert "name a --preset or" not in refused(command("fidelity", RECORDING, "--preset", "none", *at))


@pytest.mark.thorough
def test_recordings_of_the_sample_are_reproduced_from_the_files_alone(
    command: Command, sample_embedder: SampleEmbedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every sixth answer of that with the most ties where it is beside the checkout; the ten in the tests anyway."""
    monkeypatch.setattr(factory, "local_embedder", lambda *_: sample_embedder)
    recordings = [RECORDING]
    if (whole := SHARED / "sample_c.json").is_file():
        recording = json.loads(whole.read_text())
        recordings.append(tmp_path / "sixth.json")
        recordings[-1].write_text(json.dumps(recording | {"answers": recording["answers"][::6]}))
    asserted = ("--assert", "same_order>=0.93", "--assert", "same_first>=0.97", "--assert", "score_difference<=1e-3")
    finished = command("fidelity", *recordings, "--data", ROOT / "sample_data", *asserted, "--json")
    assert finished.code == 0, finished.out[-2000:]
    for setting in json.loads(finished.out)["settings"]:
        assert (setting["warnings"], setting["not_gathered"]) == ([], [])
        assert {row["cause"] for row in setting["differing"]} <= {"equal relations", "equal ts_rank", "equal hybrid"}


def test_a_run_that_was_cancelled_goes_on_where_it_was(resources: Resources) -> None:
    recording = read_recording(RECORDING)
    setting = setting_for(recording, preset("recollection").config)
    queries = asked_queries(recording, {})
    steps: list[tuple[str, int]] = []

    def report(label: str, done: int, total: int) -> None:
        steps.append((label, done))
        if (label, done) == ("gathering queries", 4):
            raise Cancelled

    with pytest.raises(Cancelled):
        measure_fidelity(setting, queries, resources, report)
    (pending,) = pending_gathers([("x", setting.searched)], selection_for(setting, queries), resources)
    assert pending.finished == 4
    measured = measure_fidelity(setting, queries, resources)
    assert len(measured.fidelity.queries) == len(queries) == 10
    assert measured.to_json() == measure_fidelity(setting, queries, resources).to_json()
