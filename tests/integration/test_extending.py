"""docs/internals/extending.md is true: its examples are used in a copy of the package; and a plugin package beside the workbench works."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from cems_workbench.models.minilm_embedder import local_embedder
from cems_workbench.settings import Settings
from tests.strangers import install
from tests.thoroughly import first_of

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "internals" / "extending.md"
_PLACE = re.compile(r"`(cems_workbench/[\w./-]+)`")
Edit = tuple[str, str, str]
"""Path, language, text of one block of the page."""


def sections() -> dict[str, list[Edit]]:
    """By heading: the blocks that change a file, each with the file named last before it."""
    found: dict[str, list[Edit]] = {}
    title, place, language, block = "", "", "", list[str]()
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line == "```" and language:
            if language in ("python", "diff", "yaml"):
                found.setdefault(title, []).append((place, language, "\n".join(block) + "\n"))
            language, block = "", []
        elif language:
            block.append(line)
        elif line.startswith("```"):
            language = line[3:]
        elif line.startswith("## "):
            title = line[3:]
        elif match := _PLACE.fullmatch(line.strip()):
            place = match[1]
    return found


SECTIONS = sections()


def change(package: Path, edit: Edit) -> None:
    """Write a new file, or change one as the diff says: its old lines must be there once."""
    place, language, text = edit
    file = package / place
    if language != "diff":
        assert not file.exists(), f"{place} is there already"
        file.write_text(text, encoding="utf-8")
        return
    lines = text.splitlines(keepends=True)
    old = "".join(line[1:] for line in lines if line[0] in " -")
    new = "".join(line[1:] for line in lines if line[0] in " +")
    whole = file.read_text(encoding="utf-8")
    assert whole.count(old) == 1, f"{place} does not have these lines once:\n{old}"
    file.write_text(whole.replace(old, new), encoding="utf-8")


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of the package with everything on the page in it."""
    folder = tmp_path_factory.mktemp("extended")
    ignored = shutil.ignore_patterns("weights")
    for name in ("cems_workbench", "plugins"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", folder)
    for edits in SECTIONS.values():
        for edit in edits:
            change(folder, edit)
    yield folder


def test_the_page_says_how_many_files_each_takes() -> None:
    files = {title: len({place for place, _, _ in edits}) for title, edits in SECTIONS.items()}
    assert files == COUNTS
    for title, count in files.items():
        row = next(
            line for line in PAGE.read_text().splitlines() if line.startswith(f"| [{title[0].lower()}{title[1:]}]")
        )
        assert row.split("|")[2].strip().startswith(f"{count}:"), title


COUNTS = {
    "A measure": 1,
    "A format": 1,
    "A reranker": 1,
    "A retriever": 1,
    "A fusion method": 1,
    "A live source": 1,
    "A preset": 1,
    "A view": 1,
    "A stage": 6,
}
USES: Mapping[str, str] = {
    "A measure": """
from cems_workbench.evaluation.metrics import graded, parse_measure
rankings = graded([["a", "b", "c"]], [{"a": 1, "c": 1}])
assert abs(parse_measure("RBP").values(rankings)[0] - 0.2 * (1 + 0.8**2)) < 1e-12
assert abs(parse_measure("rbp@2").values(rankings)[0] - 0.2) < 1e-12
""",
    "A format": """
from pathlib import Path
from cems_workbench.formats import read
Path("team.notes").write_text("# a\\nfirst\\nline\\n# b\\nsecond\\n# b\\nagain\\n")
parsed = read(Path("team.notes"))
assert [(memory.id, memory.content) for memory in parsed.memories] == [("a", "first\\nline"), ("b", "second")]
assert [(error.row, error.field) for error in parsed.errors] == [(6, "id")]
""",
    "A reranker": """
from cems_workbench.config import field_spec, with_values, PipelineConfig
from cems_workbench.pipeline.rerankers import ScorerRequest, score_with
config = with_values(PipelineConfig(), {"rerank.backend": "shared_words"})
assert field_spec("rerank.backend").choices[-1] == "shared_words"
score = score_with("shared_words", ScorerRequest(None, config.rerank, None), lambda s: s.score("a b", ["b c", "d"]))
assert [pair.raw for pair in score[2]] == [0.5, 0.0]
""",
    "A retriever": """
from pathlib import Path
from types import SimpleNamespace
from cems_workbench.config import PipelineConfig, field_specs, list_depths, parse_config, dump_config, with_values
from cems_workbench.pipeline import Evidence, RankedList, Hit, replay
from cems_workbench.pipeline.retrievers import SearchRequest, added_lists
from cems_workbench.records import Memory
from cems_workbench.store import Filter
memories = {"a": Memory("a", "x", title="Release train"), "b": Memory("b", "y", title="Lunch")}
store = SimpleNamespace(memories=SimpleNamespace(read=lambda ids=None: memories))
config = with_values(PipelineConfig(), {"lists.titles.enabled": True, "lists.titles.weight": 2.0})
assert parse_config(dump_config(config)) == config and hash(parse_config(dump_config(config))) == hash(config)
assert list_depths(config)["titles"] == 50
request = SearchRequest("release notes", (), (), config, SimpleNamespace(store=store), Filter())
(titles,), warnings = added_lists(request, {"titles": 50})
assert titles.hits == (Hit("a", 0.5),) and warnings == []
trace = replay(Evidence("release notes", memories, lists=(titles,)), config)
assert [(term.list, term.weight) for term in trace.stage("fusion").rows[0].contributions] == [("titles", 2.0)]
""",
    "A live source": """
import json
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
import numpy as np
from cems_workbench.jobs.connecting import probe_source, SourceSpec, take_snapshot
from cems_workbench.sources.address import parse
from cems_workbench.sources.connect import open_source
from cems_workbench.sources.address import SOURCE_KINDS, address_forms
from cems_workbench.sources.source import EngineHit, EngineQuery
from cems_workbench.store import Store
rows = [
    {"id": "a", "text": "Run make ship.", "vector": [0.6, 0.8], "title": "Deploy"},
    {"id": "b", "text": "Lunch is at noon.", "vector": [1.0, 0.0], "scope": "shared"},
]
def write(rows):
    Path("notes.jsonl").write_text("".join(json.dumps(row) + "\\n" for row in rows))
write(rows)
assert "jsonl" in SOURCE_KINDS and "jsonl:/FOLDER/FILE.jsonl" in address_forms()
address = parse(f"jsonl:{Path.cwd()}/notes.jsonl")
info = probe_source(SourceSpec(address))
assert (info.memories, info.vectors, info.dimension, info.lists) == (2, 2, 2, ("vector",))
with closing(open_source(address)) as source, closing(Store.open(Path("store"))) as store:
    vector = np.array([0.0, 1.0], np.float32)
    (best,) = source.search(EngineQuery("deploy", vector, {"vector": 2}))
    assert [hit.memory_id for hit in best.hits] == ["a", "b"] and abs(best.hits[0].score - 0.8) < 1e-6
    (shared,) = source.search(EngineQuery("deploy", vector, {"vector": 2}, "shared"))
    assert shared.hits == (EngineHit("b", 0.0),)
    first = take_snapshot(store, source, datetime.now(UTC))
    assert (first.memories.added, first.vectors, first.problems) == (2, 2, ())
    assert store.memories.read(["a"])["a"].title == "Deploy"
    write([rows[0] | {"text": "Run make deploy."}])
    second = take_snapshot(store, source, datetime.now(UTC))
    assert (second.memories.updated, second.read, second.deleted) == (1, 1, 1)
    assert store.memories.read()["a"].content == "Run make deploy." and list(store.memories.read()) == ["a"]
""",
    "A fusion method": """
from cems_workbench.config import PipelineConfig, field_spec, parse_config, dump_config, with_values
from cems_workbench.pipeline import Evidence, Hit, RankedList, Variant, replay
from cems_workbench.pipeline.effects import idle_parameters
from cems_workbench.records import Memory
changes = {"fusion.method": "borda", "lists.lexical.weight": 2.0, "variants.original_weight": 1.0}
changes |= {"fusion.normalize": "none", "fusion.score_blend": 0.0}
config = with_values(PipelineConfig(), changes | {"lists.lexical.normalization": "none"})
assert parse_config(dump_config(config)) == config and "borda: Σ weight·(size" in field_spec("fusion.method").help
assert idle_parameters(config)["fusion.k"] == "No effect under borda"
memories = {key: Memory(key, key) for key in "abc"}
lists = (
    RankedList("vector:0", "vector", 0, (Hit("a", 0.9), Hit("b", 0.7), Hit("c", 0.5))),
    RankedList("lexical:0", "lexical", 0, (Hit("b", 4.0),)),
)
trace = replay(Evidence("q", memories, variants=(Variant("q"),), lists=lists), config)
raw = {row.memory_id: row.raw for row in trace.stage("fusion").rows}
assert all(abs(raw[key] - value) < 1e-12 for key, value in {"a": 1.0, "b": 2 / 3 + 2.0, "c": 1 / 3}.items()), raw
""",
    "A preset": """
from cems_workbench.config import preset, preset_names
assert "brief" in preset_names() and preset("brief").config.assembly.limit == 3
""",
    "A view": """
from streamlit.testing.v1 import AppTest
PAGE = '''
from cems_workbench.config import PipelineConfig
from cems_workbench.pipeline import Evidence, Hit, RankedList, Variant, replay
from cems_workbench.pipeline.gather import Request
from cems_workbench.records import Memory
from cems_workbench.ui.inspect.context import InspectContext
from cems_workbench.ui.kit.views import views_in
memories = {key: Memory(key, text) for key, text in (("a", "x" * 12), ("b", "x" * 4))}
lists = (RankedList("vector:0", "vector", 0, (Hit("a", 0.9), Hit("b", 0.8))),)
trace = replay(Evidence(query="q", memories=memories, variants=(Variant("q"),), lists=lists), PipelineConfig())
views = views_in("inspect.views")
assert list(views)[-1] == "Lengths"
views["Lengths"].draw(InspectContext(Request("q"), trace, None, {}, frozenset(), None, None))
'''
app = AppTest.from_string(PAGE, default_timeout=120).run()
assert not app.exception, app.exception
assert app.dataframe[0].value.values.tolist() == [["a", 3, 0.75], ["b", 1, 0.25]]
""",
    "A stage": """
from datetime import UTC, datetime
from cems_workbench.config import PipelineConfig, field_spec, with_values
from cems_workbench.pipeline import Evidence, Hit, RankedList, replay
from cems_workbench.pipeline.stages import STAGES
from cems_workbench.records import Memory
days = {"old": datetime(2026, 1, 1, tzinfo=UTC), "new": datetime(2026, 8, 30, tzinfo=UTC), "undated": None}
memories = {key: Memory(key, key, created_at=at) for key, at in days.items()}
lists = (RankedList("relations", "relations", None, tuple(Hit(key, 0.9 - n / 10) for n, key in enumerate(days))),)
evidence = Evidence("q", memories, lists=lists, as_of=datetime(2026, 9, 1, tzinfo=UTC))
base = {"lists.relations.enabled": True, "filter.min_score": None, "assembly.max_tokens": None}
stage = replay(evidence, with_values(PipelineConfig(), {**base, "age.max_days": 30.0})).stage("age")
assert {row.memory_id: row.reason for row in stage.rows if not row.kept} == {"old": "243 days old, at most 30"}
assert {row.memory_id for row in stage.rows if row.kept} == {"new", "undated"}
assert all(row.kept for row in replay(evidence, with_values(PipelineConfig(), base)).stage("age").rows)
assert field_spec("age.max_days").unit == "days" and [stage.name for stage in STAGES].index("age") == 8
""",
}


@pytest.mark.parametrize("title", first_of(USES, 4))
def test_what_the_page_adds_works(title: str, package: Path, tmp_path: Path) -> None:
    assert title in SECTIONS
    done = subprocess.run(
        [sys.executable, "-c", USES[title]],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(package)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of package, tests and documents with what the page adds in one new file each."""
    folder = tmp_path_factory.mktemp("tree")
    ignored = shutil.ignore_patterns("weights")
    for part in ("cems_workbench", "plugins", "tests", "docs", "benchmarks"):
        shutil.copytree(ROOT / part, folder / part, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", folder)
    for title, count in COUNTS.items():
        for edit in SECTIONS[title] if count == 1 else ():
            change(folder, edit)
    return folder


UNIT_TESTS = (
    "tests/unit/config",
    "tests/unit/sources",
    "tests/unit/test_extensions.py",
    "tests/unit/ui/test_inspect_state.py",
    "tests/unit/pipeline/test_fusion_stage.py",
    "tests/unit/pipeline/test_lists_stage.py",
    "tests/unit/analysis/test_sensitivity.py",
)


@pytest.mark.thorough  # each addition works in the tests above; this is every list that names what there is
def test_one_file_is_all_that_an_addition_takes(tree: Path) -> None:
    """The unit tests pass with the additions in the tree, so no list elsewhere names what there is."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *UNIT_TESTS],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout[-5000:]


def test_every_example_is_used() -> None:
    assert set(USES) == set(SECTIONS) == set(COUNTS)


PLUGIN = ROOT / "tests" / "plugin"
NOTES = {
    "deploy": "The release train leaves on Tuesday.",
    "lunch": "The kitchen closes at two.",
    "rollback": "roll a bad release back\nThen tell the channel.",
}
QUERY = "roll a release back"
SECONDS = 300

DRIVER = """
import contextlib, io, json, sys
from functools import lru_cache
from cems_workbench.cli import main
from cems_workbench.jobs import factory
factory.local_embedder = lru_cache(factory.local_embedder)  # the weights are read once
for arguments in json.load(sys.stdin):
    sys.argv, out, err = ["cems_workbench", *arguments], io.StringIO(), io.StringIO()
    code = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as stopped:
            code = int(stopped.code or 0)
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
"""


@dataclass(frozen=True)
class Finished:
    """A command that ended: exit code and what it wrote."""

    code: int
    out: str
    err: str


class Shell:
    """The command line in a process of its own, with a store and with what is installed in `site`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.site = folder, folder / "site-packages"
        self.site.mkdir()
        self.environment = {
            **os.environ,
            "PYTHONPATH": f"{self.site}{os.pathsep}{ROOT}",
            "HF_HUB_OFFLINE": "1",
            "COLUMNS": "200",
            "CEMS_WORKBENCH_STORE": str(folder / "store"),
        }

    def run(self, *commands: Sequence[str]) -> list[Finished]:
        """Each command after the other, in one process: loading a model takes seconds."""
        done = subprocess.run(
            [sys.executable, "-c", DRIVER],
            input=json.dumps(commands),
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        assert done.returncode == 0, done.stderr
        finished = [Finished(*json.loads(line)) for line in done.stdout.splitlines()]
        # What is read when the program starts, before the first command, is the first one's to report.
        return [replace(finished[0], err=done.stderr + finished[0].err), *finished[1:]]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_a_plugin_adds_a_format_a_measure_a_reranker_and_a_retriever(shell: Shell) -> None:
    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text())["project"]
    install(shell.site, project["name"], project["entry-points"], PLUGIN / "cems_workbench_example")
    (shell.folder / "team.notes").write_text("".join(f"# {key}\n{text}\n" for key, text in NOTES.items()))
    (shell.folder / "more.jsonl").write_text(
        '{"id": "titled", "title": "Roll release back", "content": "See the wiki."}\n'
    )
    asked = [{"qid": "q", "query": QUERY}]
    asked += [{"qid": f"p{n}", "query": QUERY, "project": f"p{n}"} for n in range(12)]  # tuning splits by project
    (shell.folder / "queries.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in asked))
    (shell.folder / "judged.qrels").write_text(
        "".join(f"{row['qid']} 0 {key} 1\n" for row in asked for key in ("rollback", "titled"))
    )

    sets = ["--preset", "cems", "--set", "lists.titles.enabled=true", "--set", "rerank.backend=shared_words"]
    sets += ["--set", "rerank.combine=replace", "--set", "rerank.raw_scale=identity", "--set", "filter.min_score=null"]
    *imports, written, searched, fused_by_borda, gathered, evaluated, tuned, exported, doctor = shell.run(
        *(["import", name] for name in ("team.notes", "more.jsonl", "queries.jsonl", "judged.qrels")),
        ["dataset", "--format", "headed-notes", "--out", "out.notes"],
        ["search", QUERY, *sets, "--json"],
        ["search", QUERY, "--preset", "cems", "--set", "fusion.method=borda", "--json"],
        ["gather", "all", *sets, "--out", "all.evidence"],
        ["evaluate", "all.evidence", *sets, "--metric", "RBP", "--metric", "RBP@1", "--json"],
        ["tune", "all.evidence", "--preset", "cems", "--metric", "RBP", "--trials", "2", "--out", "tuned.yaml"],
        ["export", "cems", "--format", "yaml"],
        ["doctor"],
    )
    assert [finished.code for finished in imports] == [0] * 4, imports
    assert written.code == 1  # the format has no place for a title
    assert "4 memories written to out.notes as headed-notes" in written.out
    assert (shell.folder / "out.notes").read_text() == "".join(
        f"# {key}\n{text}\n" for key, text in sorted([*NOTES.items(), ("titled", "See the wiki.")])
    )

    trace = json.loads(searched.out)
    stages = {stage["name"]: stage for stage in trace["stages"]}
    fused = {row["memory_id"]: row["contributions"] for row in stages["fusion"]["rows"]}
    (given,) = [term for term in fused["titled"] if term["list"] == "titles"]
    assert (given["rank"], given["weight"]) == (1, 1.0)
    assert given["base"] == pytest.approx(1 / 61)
    assert not any(term["list"] == "titles" for key in fused if key != "titled" for term in fused[key])
    scores = {row["memory_id"]: row["raw"] for row in stages["rerank"]["rows"]}
    assert scores["rollback"] == pytest.approx(1.0)  # roll, a, release, back
    assert scores["lunch"] == 0.0
    assert trace["results"][0]["memory_id"] == "rollback"

    stages = {stage["name"]: stage for stage in json.loads(fused_by_borda.out)["stages"]}
    assert stages["fusion"]["method"] == "borda"

    assert gathered.code == 0, gathered.err
    values = json.loads(evaluated.out)["evaluations"][0]["per_query"]["q"]
    assert values["RBP"] == pytest.approx(0.2 * (1 + 0.8**3))  # those that are relevant stand first and fourth
    assert values["RBP@1"] == pytest.approx(0.2)
    assert tuned.code == 0, tuned.err
    assert "titles: {enabled: false, depth: 50," in exported.out
    assert "retriever titles of cems-workbench-example 0.1" in " ".join(doctor.out.split())


PAGE_OF_A_PLUGIN = f"""
import os, sys
from cems_workbench.ui.kit.views import views_in
from streamlit.testing.v1 import AppTest
assert "cems_workbench_example.lengths" not in sys.modules
tools = views_in("inspect.tools")
assert list(tools)[-1] == "Lengths" and "Lengths" not in views_in("inspect.views")
page = AppTest.from_file("{ROOT}/pages/inspect.py", default_timeout=120)
page.session_state["inspect:query"] = "{QUERY}"
page.session_state["inspect:section"], page.session_state["inspect:tool"] = "Why, and what if", "Lengths"
page.run()
assert not page.exception, page.exception
print(page.dataframe[-1].value.columns.tolist())
tools["Lengths"].draw(None)
"""


def test_a_plugin_adds_a_command_and_a_tool_of_inspect(shell: Shell) -> None:
    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text())["project"]
    install(shell.site, project["name"], project["entry-points"], PLUGIN / "cems_workbench_example")
    (shell.folder / "team.notes").write_text("".join(f"# {key}\n{text}\n" for key, text in NOTES.items()))
    _, listed, helped, refused, doctor = shell.run(
        ["import", "team.notes"], ["longest", "--show", "2"], ["--help"], ["longest", "--show", "0"], ["doctor"]
    )
    assert [line.split() for line in listed.out.splitlines()] == [["46", "rollback"], ["36", "deploy"]]
    assert re.search(r"doctor .*\n +longest +List the memories with the longest texts\.", helped.out)
    assert refused.code == 2 and "longest --help" in refused.err
    said = " ".join(doctor.out.split())
    assert "command longest of cems-workbench-example 0.1; view lengths of cems-workbench-example 0.1" in said
    drawn = subprocess.run(
        [sys.executable, "-c", PAGE_OF_A_PLUGIN],
        cwd=shell.folder,
        env=shell.environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert "['memory', 'tokens', 'share']" in drawn.stdout, drawn.stderr
    assert "InputError: lengths of cems-workbench-example 0.1 failed: AttributeError" in drawn.stderr


def test_plugin_adds_a_live_source(shell: Shell) -> None:
    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text())["project"]
    install(shell.site, project["name"], project["entry-points"], PLUGIN / "cems_workbench_example")
    embedder = local_embedder(Settings().embedder)
    vectors = embedder.encode([*NOTES.values()]).tolist()
    rows = [{"id": id, "text": NOTES[id], "vector": vector} for id, vector in zip(NOTES, vectors, strict=True)]
    (shell.folder / "notes.jsonl").write_text("\n".join(map(json.dumps, rows)))
    address = f"jsonl:{shell.folder}/notes.jsonl"
    live = ["--set", "lists.answered_by=source", "--preset", "letta", "--json"]
    probed, kinds, connected, found, unknown, helped, doctor = shell.run(
        ["connect", address, "--probe", "--json"],
        ["connect", "--list-kinds", "--json"],
        ["connect", address],
        ["search", QUERY, *live],
        ["connect", "nosuch:/notes.db", "--probe"],
        ["connect", "--help"],
        ["doctor"],
    )
    info = json.loads(probed.out)
    assert (info["kind"], info["memories"], info["dimension"]) == ("jsonl", 3, 384)
    [added] = [kind for kind in json.loads(kinds.out) if kind["from"]]
    assert (added["kind"], added["from"], added["missing"]) == ("jsonl", "cems-workbench-example 0.1", None)
    assert connected.code == 0, connected.err
    assert found.code == 0, found.err
    assert json.loads(found.out)["results"][0]["memory_id"] == "rollback"
    assert unknown.code == 2 and "begins with 'nosuch'" in unknown.err and "jsonl:/FOLDER/FILE.jsonl" in unknown.err
    assert "jsonl:/FOLDER/FILE.jsonl" in helped.out
    assert "source jsonl of cems-workbench-example 0.1" in " ".join(doctor.out.split())


def test_without_the_plugin_its_names_are_unknown(shell: Shell) -> None:
    (refused,) = shell.run(["search", "q", "--set", "lists.titles.enabled=true"])
    assert refused.code == 2
    assert "lists.titles.enabled: unknown key" in refused.err
