"""The command line from import to replay, and its answer to bad input: exit code 2 and one line."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cems_workbench.config import parse_config, preset
from cems_workbench.store import Store
from tests.processes import python

if TYPE_CHECKING:
    from conftest import Command, Finished

ROOT = Path(__file__).resolve().parents[2]
MODELS = [pytest.mark.models]
QUERY = "how do we roll back a failed deploy?"
GOOD_BUNDLE: dict[str, Any] = {
    "format": "cems-workbench-evidence/1",
    "query": "q",
    "memories": {"a": {"content": "text of a"}, "b": {"content": "half an emoji \ud83d"}},
    "lists": [
        {"name": "v", "source": "vector", "hits": [{"memory_id": "a", "score": 0.9}, {"memory_id": "b", "score": 0.5}]}
    ],
}


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    path = tmp_path / "bundle.json"
    path.write_text(json.dumps(GOOD_BUNDLE))
    return path


def untimed(values: dict[str, Any]) -> dict[str, Any]:
    """A trace without the time its stages took."""
    for stage in values["stages"]:
        stage.pop("elapsed_ms")
    return values


def assert_refused(finished: Finished, *parts: str) -> None:
    """Exit code 2 and one line on stderr that says these things."""
    assert finished.code == 2
    lines = finished.err.splitlines()
    assert len(lines) == 1, finished.err
    assert lines[0].startswith("error: ")
    assert "Traceback" not in finished.err
    for part in parts:
        assert part in lines[0]


def test_replay_prints_the_trace_of_a_bundle(command: Command, bundle: Path) -> None:
    finished = command("replay", bundle, "--json")
    assert finished.code == 0
    trace = json.loads(finished.out)
    assert [row["memory_id"] for row in trace["results"]] == ["a", "b"]
    assert all(stage["elapsed_ms"] >= 0 for stage in trace["stages"])
    assert "a" in command("replay", bundle).out


def test_replay_takes_a_preset_a_file_and_changes(command: Command, bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("fusion: {k: 9}\n")
    for arguments in (["--set", "fusion.k=9"], ["--config", "c.yaml"], ["--config", "cems", "--set", "fusion.k=9"]):
        trace = json.loads(command("replay", bundle, *arguments, "--json").out)
        row = next(stage for stage in trace["stages"] if stage["name"] == "fusion")["rows"][0]
        assert row["contributions"][0]["base"] == 2.0 / 10


BAD_CONFIG = {
    "unknown key": (["--set", "fusion.kk=3"], ["fusion.kk: unknown key", "fusion.k"]),
    "bad range": (["--set", "fusion.k=-1"], ["fusion.k: -1 is not allowed", "0 to 10000"]),
    "no assignment": (["--set", "fusion.k"], ["expected KEY=VALUE"]),
    "unknown preset": (["--preset", "cemss"], ["preset cemss: unknown", "cems_head"]),
    "missing file": (["--config", "none.yaml"], ["none.yaml: no such config file"]),
    "no such preset or file": (["--config", "none"], ["neither a config file nor a preset"]),
    "preset and file": (["--preset", "cems", "--config", "cems"], ["not both"]),
    "unknown option": (["--preserve", "cems"], ["No such option: --preserve"]),
    "option without value": (["--preset"], ["--preset"]),
}


@pytest.mark.parametrize(("arguments", "parts"), BAD_CONFIG.values(), ids=BAD_CONFIG.keys())
def test_a_bad_config_argument_is_one_line(
    command: Command, bundle: Path, arguments: list[str], parts: list[str]
) -> None:
    assert_refused(command("replay", bundle, *arguments), *parts)


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("{", "not JSON"),
        ("", "not JSON"),
        ("[]", "expected a JSON object"),
        (json.dumps(GOOD_BUNDLE | {"format": "x"}), "format: 'x'"),
    ],
    ids=["cut off", "empty", "array", "wrong format"],
)
def test_a_bad_bundle_is_one_line(command: Command, tmp_path: Path, content: str, part: str) -> None:
    (tmp_path / "b.json").write_text(content)
    assert_refused(command("replay", "b.json"), "b.json", part)


BAD_ARGUMENTS = {
    "missing bundle": (["replay", "none.json"], "none.json: no such bundle"),
    "no bundle named": (["replay"], "Missing argument"),
    "unknown command": (["retrieve"], "No such command 'retrieve'"),
    "unknown export form": (["export", "cems", "--format", "xml"], "'xml'"),
    "export to nowhere": (["export", "cems", "--out", "no/such/file"], "cannot be written"),
    "search without a store": (["search", "x", "--store", "none"], "no store at none"),
    "bad as-of": (["search", "x", "--as-of", "2026-13-01"], "--as-of 2026-13-01: expected an ISO 8601"),
    "missing input": (["import", "none.jsonl", "--store", "s"], "none.jsonl does not exist"),
    "unknown input format": (["import", __file__, "--format", "xml", "--store", "s"], "format: 'xml' is not one of"),
    "unrecognised input": (["import", __file__, "--store", "s"], "not recognised"),
}


@pytest.mark.parametrize(("arguments", "part"), BAD_ARGUMENTS.values(), ids=BAD_ARGUMENTS.keys())
def test_a_bad_argument_is_one_line(command: Command, arguments: list[str], part: str) -> None:
    assert_refused(command(*arguments), part)


def test_an_empty_input_is_one_line_and_makes_no_store(command: Command, tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    assert_refused(command("import", "empty.jsonl", "--store", "s"), "empty.jsonl is empty")
    assert not (tmp_path / "s").exists()


def test_entries_that_are_not_imported_are_named_with_their_folder(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "talks"
    (folder / "more").mkdir(parents=True)
    (folder / "README.md").write_text("words only")
    (folder / "queries.jsonl").write_text('{"qid": "q1", "query": "where?"}\n')
    printed = command("import", "talks", "--store", "s").out
    assert "note: not imported from talks: README.md: markdown-notes is read from a file alone" in printed
    assert (
        "note: not imported from talks: more: is a directory with nothing in it; import it by its own path\n" in printed
    )
    assert len(json.loads(command("import", "talks", "--store", "s", "--json").out)["inputs"][0]["notes"]) == 2
    monkeypatch.setattr("cems_workbench.cli.import_.SAMPLE_DATA", folder)
    monkeypatch.setattr("cems_workbench.cli.import_.SAMPLE_FILES", ("queries.jsonl",))
    assert "not imported" not in command("import", "talks", "--store", "s").out, "the bundled sample is known to us"


def test_an_empty_store_is_one_line(command: Command, tmp_path: Path) -> None:
    from cems_workbench.store import Store

    Store.open(tmp_path / "s").close()
    assert_refused(command("search", "x", "--store", "s"), "is empty; import something first")


def test_a_broken_env_file_is_one_line(command: Command, tmp_path: Path) -> None:
    (tmp_path / ".env").write_bytes(b"\xff\xfe")
    assert_refused(command("doctor"), ".env")


@pytest.mark.parametrize("form", ["yaml", "json"])
@pytest.mark.parametrize("name", ["cems", "recollection"])
def test_an_exported_config_is_read_back_equal(command: Command, form: str, name: str, tmp_path: Path) -> None:
    printed = command("export", name, "--format", form)
    assert printed.code == 0
    assert parse_config(printed.out) == preset(name).config
    assert command("export", name, "--format", form, "--out", "c.txt").code == 0
    assert (tmp_path / "c.txt").read_text(encoding="utf-8") == printed.out
    again = command("export", "c.txt", "--format", form)
    assert again.out == printed.out


def test_an_export_states_the_changes(command: Command) -> None:
    assert parse_config(command("export", "cems", "--set", "fusion.k=7").out).fusion.k == 7


def test_help_and_version_are_no_errors(command: Command) -> None:
    assert command("--version").out.startswith("cems_workbench ")
    assert "Commands:" in command("--help").out
    assert command().code == 0
    for name in ("import", "search", "replay", "export", "doctor"):
        shown = command(name, "--help")
        assert (shown.code, shown.err) == (0, "") and "Usage:" in shown.out


def test_doctor_fails_without_a_store_and_says_what_to_do(command: Command) -> None:
    finished = command("doctor", "--store", "none", "--json")
    assert finished.code == 1
    checks = {check["name"]: check for check in json.loads(finished.out)}
    assert checks["store"]["status"] == "failed" and "import" in checks["store"]["advice"]
    assert checks["embedder"]["status"] == "ok" and "packaged" in checks["embedder"]["finding"]


def test_the_module_runs_as_a_program(bundle: Path) -> None:
    run = [sys.executable, "-m", "cems_workbench", "replay"]
    good = subprocess.run([*run, str(bundle), "--json"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (good.returncode, good.stderr) == (0, "")
    assert json.loads(good.stdout)["results"][1]["content"] == "half an emoji \ud83d"
    bad = subprocess.run(
        [*run, str(bundle), "--set", "fusion.kk=1"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert bad.returncode == 2 and "Traceback" not in bad.stderr
    assert len(bad.stderr.splitlines()) == 1 and "unknown key" in bad.stderr


class TestWithTheRealModel:
    """Import, search and what holds a store; these embed."""

    pytestmark = MODELS

    def test_a_search_written_as_a_bundle_replays_to_the_same_trace(self, command: Command, store: Path) -> None:
        settings = ["--preset", "qmd", "--set", "rerank.depth=8"]
        searched = command(
            "search", QUERY, "--store", store, "--json", "--as-of", "2026-09-01", "--bundle", "b.json", *settings
        )
        assert searched.code == 0, searched.err
        replayed = command("replay", "b.json", "--json", *settings)
        trace = untimed(json.loads(searched.out))
        assert untimed(json.loads(replayed.out)) == trace
        assert trace["results"] and trace["needs"] == []
        assert trace["as_of"] == "2026-09-01T00:00:00+00:00"

    def test_a_search_prints_the_ranking_first_and_the_stages_last(self, command: Command, sample_store: Path) -> None:
        asked = ("search", QUERY, "--store", sample_store, "--as-of", "2026-09-01")
        short, full = command(*asked), command(*asked, "--stages")
        assert (short.code, full.code) == (0, 0)
        assert short.out.startswith("rank ") and full.out.startswith("rank ")
        assert "tokens of 2000" in short.out and "assembly" not in short.out
        table = full.out[full.out.index("stage ") :]
        assert "fusion" in table and "assembly" in table and "tokens of" not in table

    def test_explain_shows_of_each_result_what_its_scores_are_made_of(
        self, command: Command, sample_store: Path
    ) -> None:
        asked = ("search", QUERY, "--preset", "cems", "--explain", "--store", str(sample_store))
        values = json.loads(command(*asked, "--json").out)
        results = [row for row in values["side_by_side"]["rows"] if row["final_rank"]]
        assert [row["memory_id"] for row in results] == [row["memory_id"] for row in values["results"]]
        printed = " ".join(command(*asked).out.split())
        for row in results:
            parts = row["cells"]["fusion"]["parts"]
            assert parts and all(f"{label} {value:.4f}" in printed for label, value in parts.items())

    def test_expansions_typed_by_hand_are_searched(self, command: Command, sample_store: Path) -> None:
        finished = command("search", QUERY, "--variant", "revert a release", "--store", sample_store, "--json")
        lists = next(stage for stage in json.loads(finished.out)["stages"] if stage["name"] == "lists")["lists"]
        assert {"vector:0", "vector:1"} <= {entry["name"] for entry in lists}

    @pytest.mark.parametrize("query", ["", "   "])
    def test_an_empty_query_is_one_line(self, command: Command, sample_store: Path, query: str) -> None:
        assert_refused(command("search", query, "--store", sample_store), "query: it is empty")

    def test_a_bundle_that_cannot_be_written_is_one_line(self, command: Command, sample_store: Path) -> None:
        finished = command("search", QUERY, "--store", sample_store, "--bundle", "no/such/b.json")
        assert_refused(finished, "cannot be written")

    def test_broken_rows_are_listed_and_the_rest_is_imported(self, command: Command, tmp_path: Path) -> None:
        rows = ['{"id": "a", "content": "redis cache"}', "{broken", '{"id": "c"}', '{"id": "d", "content": "blue sky"}']
        (tmp_path / "memories.jsonl").write_text("\n".join(rows))
        finished = command("import", "memories.jsonl", "--store", "s")
        assert finished.code == 2
        listed = [line for line in finished.err.splitlines() if line.startswith("left out: ")]
        assert len(listed) == 2
        assert "memories.jsonl:2" in listed[0] and "memories.jsonl:3: content" in listed[1]
        assert "2 memories in the store" in finished.out
        found = json.loads(command("search", "redis", "--store", "s", "--json").out)
        assert found["results"][0]["memory_id"] == "a"

    def test_importing_twice_changes_nothing(self, command: Command, tmp_path: Path) -> None:
        (tmp_path / "memories.jsonl").write_text('{"id": "a", "content": "redis cache"}\n')
        assert command("import", "memories.jsonl", "--store", "s").code == 0
        again = json.loads(command("import", "memories.jsonl", "--store", "s", "--json").out)
        assert again["inputs"][0]["memories"]["unchanged"] == 1
        assert again["embedded"] == 0

    def test_doctor_is_content_with_an_imported_store(self, command: Command, sample_store: Path) -> None:
        finished = command("doctor", "--store", sample_store, "--json")
        assert finished.code == 0
        assert {check["status"] for check in json.loads(finished.out)} <= {"ok", "optional"}

    def test_a_misspelt_project_gets_its_nearest_name(self, command: Command, sample_store: Path) -> None:
        asked = ["--project", "harbor/apii", "--only-project", "--store", sample_store]
        assert_refused(command("search", QUERY, *asked), "'harbor/apii'; did you mean harbor/api?")
        told = command("search", QUERY, *asked[:2], *asked[3:])
        assert told.code == 0
        assert (
            "warning: --project: no memory of project 'harbor/apii'; did you mean harbor/api?" in told.err.splitlines()
        )


HOLDER = """
import sys
from pathlib import Path
from cems_workbench.jobs.factory import open_resources
from cems_workbench.settings import Settings
resources = open_resources(Settings(store=Path(sys.argv[1])))
print(len(resources.indexes.vectors), resources.store.memories.count(), flush=True)
sys.stdin.readline()
print(len(resources.indexes.vectors.embeddings(["one more"])), resources.store.memories.count(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def shared_store(store: Path) -> Iterator[tuple[Path, Callable[[], list[int]]]]:
    """A store that another process has open, and what that process sees: how many vectors or new ones, how many memories."""
    holder = python(HOLDER, store)
    assert holder.stdout is not None and holder.stdin is not None
    answers, asking = holder.stdout, holder.stdin

    def seen() -> list[int]:
        asking.write("\n")
        asking.flush()
        return [int(number) for number in answers.readline().split()]

    try:
        assert len(answers.readline().split()) == 2
        yield store, seen
    finally:
        holder.communicate(timeout=20)


@pytest.mark.models
def test_commands_work_on_a_store_that_another_process_has_open(
    command: Command, shared_store: tuple[Path, Callable[[], list[int]]], tmp_path: Path
) -> None:
    store, seen = shared_store
    (tmp_path / "more.jsonl").write_text('{"id": "one more", "content": "it came while the app was open"}\n')
    query = ("it came while the app was open", "--preset", "recollection")
    for arguments in (
        ("import", tmp_path / "more.jsonl"),
        ("search", *query),
        ("why", query[0], "one more", *query[1:]),
        ("judgments", "--format", "qrels", "--out", tmp_path / "qrels"),
    ):
        finished = command(*arguments, "--store", store)
        assert finished.code == 0, finished.err
    checks = json.loads(command("doctor", "--store", store, "--json").out)
    assert {check["status"] for check in checks} <= {"ok", "optional"}
    with Store.open(store) as now:
        assert seen() == [1, now.memories.count()]


@pytest.mark.models
@pytest.mark.thorough
def test_the_issues_query_finds_the_support_group(command: Command, shared: Path) -> None:
    conversation = shared / "data" / "locomo" / "26.json"
    if not conversation.is_file():
        pytest.skip("the LoCoMo conversation is not there")
    assert command("import", conversation, "--store", "s").code == 0
    finished = command("search", "When did Caroline go to the LGBTQ support group?", "--store", "s", "--json")
    results = [row["memory_id"] for row in json.loads(finished.out)["results"]]
    assert "26/D1:3" in results


@pytest.mark.models
def test_several_queries_at_once_say_what_each_of_them_found(command: Command, store: Path) -> None:
    asked = ["--variant", "argo rollouts", "--variant", "deploy on friday", "--set", "rerank.backend=none"]
    done = command("search", QUERY, "--preset", "memory_agent", *asked, "--set", "judge.backend=none", "--store", store)
    assert done.code == 0, done.err
    assert "vector goes 30 deep: oversample 3 × limit 10, more than the 10 set" in done.out
    assert "given by query" in done.out
    assert re.search(r"2 +expansion +deploy on friday +\d+ +\d+", done.out)


def test_the_app_says_how_to_open_it_where_its_port_is_taken(command: Command) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert_refused(
            command("app", "--headless", "--port", port), f"port {port} is in use", "--port ", "make run PORT="
        )
