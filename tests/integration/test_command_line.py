"""The command line from import to replay, its answer to bad input, hostile names, and vectors that were made beforehand."""

from __future__ import annotations

import json
import shlex
import socket
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cems_workbench.config import parse_config, preset
from cems_workbench.models.minilm_embedder import local_embedder
from cems_workbench.models.protocol import Float32
from cems_workbench.store import Store
from tests.planted import planted_file
from tests.processes import python
from tests.sample import MOVING, STAYING
from tests.thoroughly import partly, some

if TYPE_CHECKING:
    from conftest import Command, Finished


ROOT = Path(__file__).resolve().parents[2]
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


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return planted_file(tmp_path_factory.mktemp("planted"), 20)


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


BAD_ARGUMENTS: dict[str, str] = json.loads(Path(__file__).with_name("bad_arguments.json").read_text("utf-8"))
"""What is said of each line of arguments."""
OF_NO_STORE = ("retrieve", "replay", "export", "tune")


@pytest.mark.parametrize(("line", "part"), some(BAD_ARGUMENTS.items(), 2))
@partly
def test_a_bad_argument_is_one_line(
    command: Command, bundle: Path, evidence: Path, sample_store: Path, line: str, part: str
) -> None:
    recording = ROOT / "tests" / "recordings" / "sample_cut.json"
    words = shlex.split(line.format(bundle=bundle, evidence=evidence, recording=recording, this=__file__))
    alone = words[0] in OF_NO_STORE or {"--store", "--data"} & {*words}
    assert_refused(command(*words, *(() if alone else ("--store", sample_store))), part)


def test_entries_that_are_not_imported_are_named_with_their_folder(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "talks"
    (folder / "more").mkdir(parents=True)
    (folder / "README.md").write_text("words only")
    (folder / "queries.jsonl").write_text('{"qid": "q1", "query": "where?"}\n')
    printed = " ".join(command("import", "talks", "--store", "s").out.split())
    assert "not imported from talks: README.md: markdown-notes is read from a file alone" in printed
    assert "not imported from talks: more: is a directory with nothing in it; import it by its own path" in printed
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


@pytest.mark.thorough
def test_the_issues_query_finds_the_support_group(command: Command, shared: Path) -> None:
    conversation = shared / "data" / "locomo" / "26.json"
    if not conversation.is_file():
        pytest.skip("the LoCoMo conversation is not there")
    assert command("import", conversation, "--store", "s").code == 0
    finished = command("search", "When did Caroline go to the LGBTQ support group?", "--store", "s", "--json")
    results = [row["memory_id"] for row in json.loads(finished.out)["results"]]
    assert "26/D1:3" in results


def test_the_app_says_how_to_open_it_where_its_port_is_taken(command: Command) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert_refused(
            command("app", "--headless", "--port", port), f"port {port} is in use", "--port ", "make run PORT="
        )


ESC = "\x1b]0;title\x07\x1b[31m\x9b2J\u202e\u2066"
SHOWN = "\u200d é 漢 🙂"


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A folder of memories, queries and judgments, and a config, with escapes in every text."""
    folder = tmp_path / f"in{ESC}"
    folder.mkdir()
    texts = {name: f"{name} {ESC} deploy {SHOWN}" for name in ("content", "title", "category", "project", "author")}
    rows = [{"id": f"m{n}{ESC[10:]}" if n == 2 else f"m{n}", "tags": [ESC], ESC: 1, **texts} for n in range(3)]
    (folder / f"memories{ESC}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + f'{{"{ESC}"')
    (folder / "queries.jsonl").write_text(json.dumps({"qid": "q1", "query": f"deploy {ESC}"}) + "\n")
    (folder / "judgments.jsonl").write_text(
        json.dumps({"qid": "q1", "memory_id": "m1", "grade": 3, "judge": "human:a"}) + "\n"
    )
    (tmp_path / "c.yaml").write_text(
        json.dumps({"name": f"mine {ESC}", "rerank": {"backend": "none"}, "judge": {"backend": "none"}})
    )
    (tmp_path / f"bad{ESC}.yaml").write_text(json.dumps({ESC: 1}))
    return folder


def test_no_command_writes_what_acts_on_a_terminal(command: Command, hostile: Path, tmp_path: Path) -> None:
    store, config, query = ("--store", tmp_path / "store"), tmp_path / "c.yaml", f"deploy {ESC}"
    evidence = tmp_path / "e.evidence"
    runs = (
        ("import", hostile, *store, "--query-set", "names"),
        ("config-history", "--add", config, *store),
        ("config-history", *store),
        ("search", query, "--config", config, "--project", ESC, *store),
        ("why", query, "m1", "--config", config, *store),
        ("search", query, "--config", tmp_path / f"bad{ESC}.yaml", *store),
        ("search", query, "--set", f"{ESC}=1", *store),
        ("gather", "names", "--out", evidence, "--config", config, *store),
        ("evaluate", evidence, "--config", config, *store),
        ("replay", tmp_path / f"none{ESC}"),
        ("judgments", "--query-set", ESC, *store),
        ("search", query, "--json", "--config", config, *store),
    )
    said = []
    for run in runs:
        finished = command(*run)
        said.append(finished.out + finished.err)
        acting = {c for c in said[-1] if unicodedata.category(c) in ("Cc", "Cf") and c not in "\n\u200d"}
        assert not acting and "Traceback" not in said[-1], (run[0], acting, said[-1])
    assert SHOWN in said[3] and ESC in json.loads(said[-1])["query"]


COUNT = 40
TEXTS = [
    f"note {i}: the {word} of harbor {i % 7} is kept in drawer {i}"
    for i, word in enumerate(["key", "plan", "bill", "map"] * 10)
]
IDS = [f"m{i}" for i in range(COUNT)]


@pytest.fixture(scope="module")
def vectors() -> Float32:
    """What the packaged embedder makes of the texts, each of another length."""
    made = local_embedder("sentence-transformers/all-MiniLM-L6-v2").encode(TEXTS)
    return made * np.linspace(0.5, 3, COUNT, dtype=np.float32)[:, None]


@pytest.fixture
def memories(tmp_path: Path) -> Path:
    path = tmp_path / "memories.jsonl"
    path.write_text("".join(json.dumps({"id": i, "content": text}) + "\n" for i, text in zip(IDS, TEXTS, strict=True)))
    return path


def parquet(path: Path, ids: list[Any], rows: list[Any], kind: pa.DataType | None = None) -> Path:
    pq.write_table(
        pa.table({"id": pa.array(ids, pa.string()), "vector": pa.array(rows, kind or pa.list_(pa.float64()))}), path
    )
    return path


def found(command: Command, memories: Path, store: Path, given: Path) -> tuple[int, dict[str, Any]]:
    ended = command("import", str(memories), "--vectors", str(given), "--store", str(store), "--json")
    return ended.code, json.loads(ended.out)


def test_given_vectors_are_found_by_as_embedded_ones_are(
    command: Command, memories: Path, vectors: Float32, tmp_path: Path
) -> None:
    np.save(tmp_path / "v.npy", vectors.astype(np.float16))
    order = np.random.default_rng(5).permutation(COUNT).tolist()
    fixed = parquet(
        tmp_path / "v.parquet",
        [IDS[i] for i in order] + ["stranger"],
        [vectors[i].tolist() for i in order] + [vectors[0].tolist()],
        pa.list_(pa.float32(), 384),
    )
    hits = []
    for name, given in (("npy", tmp_path / "v.npy"), ("parquet", fixed)):
        code, said = found(command, memories, tmp_path / name, given)
        assert (code, said["vectors_taken"], said["embedded"], said["problem"]) == (0, COUNT, 0, None)
        hits.append(ranked(command, tmp_path / name))
    assert command("import", str(memories), "--store", str(tmp_path / "embedded")).code == 0
    hits.append(ranked(command, tmp_path / "embedded"))
    assert [row[0] for row in hits[0]] == [row[0] for row in hits[1]] == [row[0] for row in hits[2]]
    np.testing.assert_allclose([row[1] for row in hits[1]], [row[1] for row in hits[2]], atol=1e-5)


def ranked(command: Command, store: Path) -> list[tuple[str, float]]:
    ended = command(
        "search", "which drawer has the plan of harbor 3", "--preset", "cems", "--store", str(store), "--json"
    )
    return [(row["memory_id"], row["score"]) for row in json.loads(ended.out)["results"]]


def test_bad_rows_are_named_and_what_has_no_vector_is_embedded(
    command: Command, memories: Path, vectors: Float32, tmp_path: Path
) -> None:
    rows: list[Any] = [vector.tolist() for vector in vectors]
    rows[3], rows[4], rows[5], rows[6] = rows[3][:7], None, [float("nan")] * 384, [0.0] * 384
    given = parquet(tmp_path / "v.parquet", [*IDS[:9], None, IDS[1]], [*rows[:9], rows[9], rows[1]])
    code, said = found(command, memories, tmp_path / "store", given)
    assert [(error["row"], error["field"]) for error in said["errors"]] == [
        (4, "vector"),
        (5, "vector"),
        (6, "vector"),
        (7, "vector"),
        (10, "id"),
        (11, "id"),
    ]
    assert "it has 7 values; the embedder's have 384" in said["errors"][0]["reason"]
    assert (code, said["vectors_taken"], said["embedded"], said["problem"]) == (2, 5, COUNT - 5, None)


def test_vectors_of_other_texts_are_refused_and_a_search_embeds_what_is_there(
    command: Command, memories: Path, vectors: Float32, tmp_path: Path
) -> None:
    given = parquet(tmp_path / "v.parquet", IDS, [vector.tolist() for vector in np.roll(vectors, 1, axis=0)])
    code, said = found(command, memories, tmp_path / "store", given)
    assert code == 2 and said["memories_in_store"] == COUNT
    assert "v.parquet: the vector of m" in said["problem"] and "the minimum 0.9" in said["problem"]
    assert len(ranked(command, tmp_path / "store")) > 0


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("v.csv", "the suffix must be .parquet or .npy"),
        ("none.parquet", "no such file"),
        ("text.npy", "it is no .npy file of numbers"),
        ("text.parquet", "it cannot be read as Parquet"),
        ("other.parquet", "it has no column 'vector'; it has id, embedding"),
        ("words.parquet", "not a list of floating point numbers"),
        ("short.npy", "it has 3 rows for 40 memories"),
        ("narrow.npy", "its vectors have 7 values; the embedder's have 384"),
    ],
)
def test_a_file_that_has_none_is_one_line(
    command: Command, memories: Path, tmp_path: Path, name: str, said: str
) -> None:
    given = tmp_path / name
    if name.startswith("text"):
        given.write_text("no vectors")
    elif name == "other.parquet":
        pq.write_table(pa.table({"id": ["a"], "embedding": [[0.5]]}), given)
    elif name == "words.parquet":
        pq.write_table(pa.table({"id": ["a"], "vector": ["0.5"]}), given)
    elif name.endswith(".npy"):
        np.save(given, np.ones((3, 384) if name == "short.npy" else (COUNT, 7), np.float32))
    ended = command("import", str(memories), "--vectors", str(given), "--store", str(tmp_path / "store"))
    assert ended.code == 2
    assert said in ended.err and len([line for line in ended.err.splitlines() if "--vectors" in line]) == 1


def test_search_why_and_doctor_load_no_chroma(store: Path) -> None:
    program = (
        "import sys; sys.argv[:1] = ['cems_workbench', '--no-serve']; from cems_workbench.cli import main\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "assert 'chromadb' not in sys.modules and 'duckdb' in sys.modules"
    )
    for arguments in (["search", MOVING], ["why", MOVING, STAYING], ["doctor"]):
        command = [sys.executable, "-c", program, *arguments, "--store", str(store)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT)
        assert ended.returncode == 0, f"{arguments}: {ended.stdout}{ended.stderr}"


def test_a_target_is_named_and_own_is_none(command: Command, tmp_path: Path) -> None:
    (tmp_path / "m.jsonl").write_text('{"id": "a", "content": "red foxes sleep"}\n')
    store = ("--store", tmp_path / "s")
    assert command("import", "m.jsonl", "--target", "langgraph", *store).code == 0
    assert '"langgraph"' in (tmp_path / "s" / "target.json").read_text()
    assert "program of your own" in command("import", "--target", "own", *store).out
    assert not (tmp_path / "s" / "target.json").exists()
    assert "langchain, own" in command("import", "m.jsonl", "--target", "graph", *store).err
