"""A log of what production answered: imported, kept, held against a config by `fidelity`, and sampled."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from workbench_tools.cems import searched

if TYPE_CHECKING:
    from conftest import Command

pytestmark = [pytest.mark.models]
ROOT = Path(__file__).resolve().parents[2]
RECORDING = ROOT / "tests" / "recordings" / "sample_cut.json"
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


@pytest.mark.thorough
def test_what_fits_no_memory_is_said_by_line_and_the_rest_is_kept(
    command: Command, store: Path, tmp_path: Path
) -> None:
    known = short("m001")
    strange = retrieval(details=[{"id": "00000000", "score": 0.5}, {"id": known, "score": 0.75}])
    path = hook_events(tmp_path, strange, retrieval(query=" ", details=[]), retrieval(details={}))
    imported = command("import", path, "--store", store)
    assert imported.code == 2
    assert "1 ids not in the store" in imported.out
    assert imported.err.splitlines() == [
        f"taken in part: {path}:12: details[0].id: no memory begins with '00000000'; the answer is kept with an unmatched result",
        f"left out: {path}:13: query: is empty",
        f"left out: {path}:14: details: must be a list of results, found an object",
    ]
    found = command("fidelity", "--recorded", "hook_events", "--store", store, "--json")
    (differing,) = [
        one for one in json.loads(found.out)["settings"][0]["differing"] if one["query"] == strange["query"]
    ]
    assert (differing["recorded"], differing["cause"]) == (["00000000", "m001"], "not here")
    measured = command("fidelity", path, "--store", store)
    assert measured.code == 0
    assert f"{path}:13: query: is empty (1 more such row)" in measured.err


@pytest.mark.thorough
def test_the_failing_ones_are_listed_first(
    command: Command, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    path = tmp_path / "asked.jsonl"
    asked = [
        ("how do we deploy?", ["m001"], [0.9]),
        ("how do I run the tests?", [], []),
        ("which port is it?", ["m002"], [0.1]),
    ]
    rows = [{"query": query, "results": ids, "scores": scores} for query, ids, scores in asked]
    path.write_text("\n".join(map(json.dumps, rows)))
    assert command("import", path, "--query-set", "asked", "--store", store).code == 0
    found = command("fidelity", "--recorded", "asked", "--store", store, "--json")
    assert json.loads(found.out)["settings"][0]["differing"][0]["query"] == "how do I run the tests?"
    listed = command("fidelity", "--recorded", "asked", "--store", store, "--order", "lowest").out
    shown = [line for line in listed.splitlines() if "asked-" in line]
    assert ["no results" in shown[0], "0.1" in shown[1], "0.9" in shown[2]] == [True, True, True], listed


def test_a_log_of_the_hook_is_sampled(command: Command, store: Path, tmp_path: Path) -> None:
    finished = command(
        "sample", hook_events(tmp_path), "--query-set", "few", "--strategy", "worst", "--size", 3, "--store", store
    )
    assert finished.code == 0, finished.err
    assert "query set few, version 1: 3 queries" in finished.out


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            [],
            "error: name a file of answers, a query set of the store with --recorded SET, or a server with --ask ADDRESS",
        ),
        (["--recorded", "none"], "error: no query set 'none' in the store"),
        (["--recorded", "x", "--data", "."], "error: --recorded: a --data folder keeps no answers; name a --store"),
        (["--recorded", "x", "--order", "best"], "error: --order: 'best' is not one of departing, lowest"),
        (
            ["--recorded", "sample_data"],
            "error: query set sample_data has no recorded answers; sets that have some: none",
        ),
    ],
)
def test_a_bad_choice_is_one_line(command: Command, store: Path, arguments: list[str], line: str) -> None:
    finished = command("fidelity", *arguments, *([] if "--data" in arguments else ["--store", store]))
    assert finished.code == 2
    assert finished.err.startswith(line) and len(finished.err.splitlines()) == 1
