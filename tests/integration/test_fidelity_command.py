"""`fidelity`: recorded answers, logs and a server beside what a config computes; `--nearest` finds the config that made them."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from model_server import Reply, sent, serving

from cems_workbench.config import PipelineConfig, load_config, preset, with_values
from cems_workbench.jobs import factory
from cems_workbench.pipeline import replay
from cems_workbench.pipeline.gather import Request, gather, gather_lists
from cems_workbench.pipeline.resources import Resources
from cems_workbench.records import Recording
from cems_workbench.store import Store
from tests.sample import answered_queries
from workbench_fidelity.fidelity import asked_queries, setting_for
from workbench_fidelity.nearest import MAX_SCORES, Nearest, find_nearest, halves
from workbench_fidelity.recordings import parse_recording
from workbench_tools.cems import searched

if TYPE_CHECKING:
    from conftest import Command, Finished

    from tests.sample import SampleEmbedder


ROOT = Path(__file__).resolve().parents[2]
RECORDING = ROOT / "tests" / "recordings" / "sample_cut.json"
"""Ten of the answers that CEMS 0.9.3 gave on the sample data, with its lexical lists."""
SHARED = ROOT.parent / "shared" / "cems"


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


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (
            {"query": "x", "results": [{"id": "m1", "score": "high"}]},
            "there are no answers: {path}:1: qid: must be a text",
        ),
        ({"qid": "q1", "query": "x", "results": ["elsewhere"]}, "none of its memories is in the store"),
    ],
)
def test_bad_answers_are_one_line(command: Command, store: Path, tmp_path: Path, answer: object, line: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(json.dumps({"answers": [answer]}))
    finished = command("fidelity", path, "--store", store)
    assert (finished.code, len(finished.err.splitlines())) == (2, 1) and line.format(path=path) in finished.err


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
    assert "nearest: mem0 with 1 changed parameter" in finished.out
    assert "nothing is held out of 6 queries" in " ".join(finished.out.split())
    assert load_config(out).assembly.limit == 3
    again = command("fidelity", path, "--config", out, "--store", store, "--json")
    (setting,) = json.loads(again.out)["settings"]
    assert setting["measures"]["same_order"]["mean"] == 1.0


LIMIT = 5


def short(memory_id: str) -> str:
    """What the hook logs of a memory that CEMS loaded from a file."""
    return hashlib.md5(memory_id.encode()).hexdigest()[:8]


def hook_events(folder: Path, *more: Any) -> Path:
    """What CEMS's hook would have logged of the answers that CEMS 0.9.3 gave on the sample data."""
    events = [{"ts": "2026-11-22T10:00:00+0000", "event": "SessionStart", "session_id": "s"}]
    for n, answer in enumerate(json.loads(RECORDING.read_text())["answers"]):
        details = [{"id": short(one["id"]), "score": round(one["score"], 3)} for one in answer["results"][:LIMIT]]
        events.append(
            {
                "ts": f"2026-11-22T10:{n:02}:00+0000",
                "event": "MemoryRetrieval",
                "session_id": "s",
                "query": answer["query"],
                "result_count": len(details),
                "details": details,
            }
        )
    path = folder / "hook_events.jsonl"
    path.write_text("\n".join(map(json.dumps, [*events, *more])))
    return path


def retrieval(**fields: Any) -> dict[str, Any]:
    return {
        "ts": "2026-11-22T12:00:00+0000",
        "event": "MemoryRetrieval",
        "session_id": "s",
        "query": "what is new here?",
    } | fields


def own_events(command: Command, store: Path, folder: Path) -> Path:
    """What CEMS's hook would have logged had the workbench answered under cems_head."""
    events = []
    for n, typed in enumerate(
        ("ok, how do we roll back a failed deploy?", "how do I run the tests?", "who is on call this week?")
    ):
        moment = f"2026-11-22T10:0{n}:00+00:00"
        arguments = ("--as-of", moment, "--preset", "cems_head", "--store", store, "--json")
        found = json.loads(command("search", searched(typed), *arguments).out)["results"][:LIMIT]
        details = [{"id": short(one["memory_id"]), "score": round(one["score"], 3)} for one in found]
        events.append(retrieval(ts=moment, query=typed, details=details))
    path = folder / "hook_events.jsonl"
    path.write_text("\n".join(map(json.dumps, events)))
    return path


def test_a_log_is_kept_as_a_query_set_and_held_against_a_config_from_there_or_from_the_file(
    command: Command, store: Path, tmp_path: Path
) -> None:
    path = own_events(command, store, tmp_path)
    results = sum(len(json.loads(line)["details"]) for line in path.read_text().splitlines())
    imported = command("import", path, "--store", store)
    assert imported.code == 0, imported.err
    assert "query set hook_events, version 1: 3 queries" in imported.out
    assert f"3 recorded answers with {results} results, 0 ids not in the store" in imported.out
    again = command("import", path, "--store", store, "--json")
    (counts,) = json.loads(again.out)["inputs"]
    assert counts["answers"] == {"added": 0, "updated": 0, "unchanged": 3}
    for brought, form in (([path], "cems-hook-events"), (["--recorded", "hook_events"], "query set")):
        (found,) = json.loads(command("fidelity", *brought, "--store", store, "--json").out)["settings"]
        assert (found["form"], found["queries"]) == (form, 3)
        assert found["measures"]["same_order"]["count"] == 3
        assert found["same_scores"] == {"queries": 3, "of": 3}  # as far as they were rounded
        assert 0 < found["score_difference"] <= 5e-4
        assert found["differing"] == []


ASKED = 4


@pytest.fixture
def answering(resources: Resources) -> Iterator[str]:
    """The address of a server that answers as `cems_head` does here, but the last query of the set by nothing; closes the store."""
    config = preset("cems_head").config
    queries = resources.store.queries.read()[:ASKED]
    replies: dict[str, list[dict[str, Any]]] = {}
    for query in queries:
        found = replay(gather_lists(Request(query.query, query.project), config, resources), config).results
        replies[query.query] = [{"memory_id": row.memory_id, "content": "…", "score": row.score} for row in found]
    replies[queries[-1].query] = []

    def answer(path: str, body: dict[str, Any], before: int) -> Reply:
        if server.asked[-1][2]["authorization"] != "Bearer the-key-4417":
            return sent({"error": "unauthorized"}, 401)
        return sent({"results": replies.get(body["query"], []), "mode": "vector"})

    resources.store.query_sets.put("few", queries, "a test")
    resources.close()
    with serving(answer) as server:
        yield f"{server.url}/?per_second=100"


def test_a_server_is_asked_and_measured(
    answering: str, store: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ("fidelity", "--ask", answering, "--query-set", "few", "--store", store)
    assert "set CEMS_API_KEY" in command(*asked).err
    monkeypatch.setenv("CEMS_API_KEY", "the-key-4418")
    refused = command(*asked)
    assert refused.code == 2 and "the key in CEMS_API_KEY is refused" in refused.err and "4418" not in refused.err
    monkeypatch.setenv("CEMS_API_KEY", "the-key-4417")
    finished = command(*asked, "--json")
    (setting,) = json.loads(finished.out)["settings"]
    assert setting["queries"] == ASKED
    assert setting["measures"]["same_order"]["mean"] == pytest.approx((ASKED - 1) / ASKED)
    assert len(setting["differing"]) == 1 and setting["differing"][0]["recorded"] == []


def test_a_promise_is_kept_where_the_system_gained_what_its_config_predicted(
    command: Command, store: Path, tmp_path: Path
) -> None:
    with Store.open(store) as opened:
        queries = [query for query in answered_queries(opened) if query.project is None][:4]
    asked = ("--as-of", "2026-11-22", "--store", store, "--json")
    tuned = tmp_path / "tuned.yaml"
    tuned.write_text("name: mem0-tuned\nextends: mem0\nthreshold: {fixed: 0.45}\n", "utf-8")

    def recorded(name: str, *config: Any) -> Path:
        answers = []
        for query in queries:
            found = json.loads(command("search", query.query, *asked, *config).out)["results"]
            results = [{"id": row["memory_id"], "score": row["score"]} for row in found]
            answers.append({"qid": query.qid, "query": query.query, "results": results})
        (tmp_path / name).write_text(json.dumps({"answered_at": "2026-11-22", "answers": answers}), "utf-8")
        return tmp_path / name

    before, after = recorded("before.json", "--preset", "mem0"), recorded("after.json", "--config", tuned)
    assert before.read_text() != after.read_text()
    finished = command("promise", before, after, "--config", tuned, "--store", store, "--json")
    found = json.loads(finished.out)
    assert (finished.code, found["kept"], found["recorded"]) == (0, True, found["predicted"])
    assert found["before"]["measures"]["same_order"]["mean"] == found["after"]["measures"]["same_order"]["mean"] == 1
    again = command("promise", before, before, "--config", tuned, "--store", store)
    assert again.code == 1 and "the promise is not kept" in again.out
    assert "Results that differ" in again.out and "threshold" in again.out
    told = ("promise", before, after, "--config", tuned, "--store", store)
    assert "noise@5: it has no value" in command(*told, "--metric", "noise@5").err
    rows = json.loads(after.read_text())
    after.write_text(json.dumps(rows | {"answers": rows["answers"][:1]}), "utf-8")
    assert "on 1 judged query\n" in (fewer := command(*told)).out and "3 answers of one recording" in fewer.out
    assert "nan" not in fewer.out
    tuned.write_text(tuned.read_text().replace("mem0-tuned", "mine"), "utf-8")
    assert "name the one that ran before" in command("promise", before, after, "--config", tuned, "--store", store).err
