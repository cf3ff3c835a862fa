"""Every command ends with the next one to type, and each of those runs: the chain is followed from a handful of commands."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cems_workbench import trace
from cems_workbench.builtin import SAMPLE_QUERY
from cems_workbench.cli.main import commands

if TYPE_CHECKING:
    from conftest import Command

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ["python", "-m", "cems_workbench"]
ENDLESS = {"app", "mcp", "record", "serve"}
"""They serve until they are stopped, and print no result."""
NEED_MORE = {
    "connect",
    "team push",
    "team status",
    "fidelity",
    "sample",
    "ci check",
    "ci init",
    "fill-scores",
    "calibrate",
    "leak",
    "promise",
    "transcript",
    "coverage",
    "ways",
    "forgotten",
    "audit",
}
"""They need a server, a recording, a log, a repository, projects, a transcript, a deleted memory or more
judgments, and are tested with these."""
TEXTS = {
    "a": "Invoices are sent by the billing job on the first working day of the month.",
    "b": "The billing job failed in March because the disk of the mail server was full.",
    "c": "Since April invoices are sent on the fifteenth, by the ledger service.",
    "d": "The ledger service keeps a copy of every invoice for ten years.",
    "e": "Mira takes her coffee without milk.",
    "f": "The mail server moved to the new rack in May.",
}
QUERIES = {"q1": "when are invoices sent", "q2": "why did the billing job fail", "q3": "where are copies of invoices"}
GRADES = [
    ("q1", "c", 3),
    ("q1", "a", 0),
    ("q1", "e", 1),
    ("q2", "b", 3),
    ("q2", "f", 1),
    ("q3", "d", 3),
    ("q3", "e", 0),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Memories, queries and judgments that are imported together."""
    path = tmp_path / "notes"
    path.mkdir()
    memories = [
        {"id": key, "content": text, "created_at": f"2026-0{place}-01"}
        for place, (key, text) in enumerate(TEXTS.items(), 1)
    ]
    (path / "memories.jsonl").write_text("".join(json.dumps(row) + "\n" for row in memories))
    queries = [{"qid": qid, "query": query} for qid, query in QUERIES.items()]
    (path / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in queries))
    (path / "judgments.qrels").write_text("".join(f"{qid} 0 {key} {grade}\n" for qid, key, grade in GRADES))
    return path


def next_of(printed: str) -> list[list[str]]:
    """The words of each command that is proposed, of `blame` too, which has it below its reason."""
    lines = [line.strip().removeprefix("next: ") for line in printed.splitlines()]
    found = [shlex.split(line) for line in lines if line.startswith(shlex.join(PROGRAM))]
    assert all(words[:3] == PROGRAM for words in found)
    return [words[3:] for words in found]


def name_of(words: list[str]) -> str:
    return " ".join(words[:2]) if words[0] in ("report", "ci", "team") else words[0]


FEW = ["--set", "assembly.limit=2", "--set", "rerank.backend=none", "--set", "judge.backend=none", "--store", "s"]
FIRST = [
    ["import", "notes", "--store", "s"],
    ["search", QUERIES["q1"], *FEW, "--bundle", "q1.json"],
    ["gather", "all", *FEW, "--out", "all.evidence"],
    ["evaluate", "all.evidence", "--losses"],
]
OTHERS = [
    ["search", TEXTS["e"], *FEW],
    ["replay", "q1.json", "--set", "assembly.limit=2"],
    ["why", QUERIES["q1"], "e", *FEW],
    ["report", "why", QUERIES["q1"], "e", *FEW, "--out", "why.html"],
    ["what-if", QUERIES["q1"], "--without", "c", *FEW],
    ["memory", "b", *FEW],
    ["memory", "--hubs", *FEW],
    ["blame", "Invoices are sent by the ledger service on the fifteenth.", "--query", QUERIES["q1"], "--store", "s"],
    ["compare", "all.evidence", "--preset", "cems", "--preset", "qmd"],
    ["report", "compare", "all.evidence", "--preset", "cems", "--preset", "qmd", "--out", "compare.html"],
    ["power", "all", "--preset", "cems", "--preset", "mem0", "--store", "s"],
    ["drift", "all.evidence", "all.evidence"],
    ["tune", "all.evidence", "--out", "tuned.yaml"],
    ["watch", "notes", *FEW],
    ["export", "cems", "--out", "cems.yaml"],
    ["config-history", "--store", "s"],
    ["config-history", "--add", "cems", "--store", "s"],
    ["judgments", "--out", "labels.jsonl", "--store", "s"],
    ["agreement", "--store", "s"],
    ["dataset", "--format", "beir", "--out", "beir", "--store", "s"],
    ["supersessions", "--minimum", "0", "--store", "s"],
    ["graph-recall", "all", "--ef-search", "1", "--store", "s"],
    ["reindex", "--store", "s"],
    ["doctor", "--store", "s"],
    ["imports", "--store", "s"],
]


def form_of(words: list[str]) -> tuple[str, ...]:
    """A command without the values of its options: one of each form is run."""
    return (name_of(words), *sorted({word.partition("=")[0] for word in words if word.startswith("--")}))


def follow(command: Command, words: list[str], done: dict[tuple[str, ...], list[str]]) -> None:
    """Run a command, then what it proposes."""
    if words[0] in ENDLESS or form_of(words) in done:
        return
    done[form_of(words)] = words
    if words[0] == "gather" and Path(words[words.index("--out") + 1]).exists():  # taken since it was proposed
        words = [word if not word.endswith(".evidence") else f"{len(done)}.evidence" for word in words]
    if words[0] == "fill-scores" and "--store" not in words:  # an evidence file does not say where its store is
        words = [*words, "--store", "s"]
    finished = command(*words, *(["--trials", "3"] if words[0] == "tune" else []))
    assert finished.code == 0, f"{shlex.join(words)}: {finished.err}"
    proposed = next_of(finished.out)
    document = "--cron" in words or (words[0] == "export" and "--out" not in words)
    assert bool(proposed) != document, f"{shlex.join(words)}: {finished.out}"
    for following in proposed:
        follow(command, following, done)


def test_first_commands_lead_from_one_to_the_next(command: Command, folder: Path) -> None:
    done: dict[tuple[str, ...], list[str]] = {}
    for words in FIRST:
        follow(command, words, done)
    assert {"import", "search", "why", "gather", "evaluate", "compare"} <= {name for name, *_ in done}


@pytest.mark.thorough
def test_every_command_proposes_commands_that_run(command: Command, folder: Path) -> None:
    done: dict[tuple[str, ...], list[str]] = {}
    for words in FIRST + OTHERS:
        follow(command, words, done)
    assert {name for name in typer_names() if name not in NEED_MORE | ENDLESS} <= {name for name, *_ in done}


def typer_names() -> set[str]:
    """The name of every command, of a group with its own."""
    plain = {one.name or "" for one in commands.registered_commands}
    grouped = {
        f"{group.name or group.typer_instance.info.name} {one.name}"
        for group in commands.registered_groups
        if group.typer_instance is not None
        for one in group.typer_instance.registered_commands
    }
    return plain | grouped


def test_import_of_a_trace_leads_to_why_and_to_the_nearest_preset(command: Command, tmp_path: Path) -> None:
    """Without judgments: what needs some is not proposed."""

    @trace.retrieval
    def retrieve(query: str) -> list[str]:
        with trace.stage("dense", kind="list") as stage:
            stage.documents(
                [{"id": key, "score": score, "text": TEXTS[key]} for key, score in (("a", 0.9), ("b", 0.8))]
            )
        return ["a"]

    with trace.to(tmp_path / "mine.jsonl"):
        retrieve(QUERIES["q1"])
    at = ["--store", "s"]
    imported = next_of(command("import", tmp_path / "mine.jsonl", *at).out)
    why = ["why", QUERIES["q1"], "b", "--evidence=mine", *at]
    assert imported == [why, ["fidelity", str(tmp_path / "mine.jsonl"), "--nearest", *at]]
    explained = command(*why)
    assert explained.code == 0 and "Lost at " in explained.out
    assert next_of(explained.out) == [["fidelity", "--recorded=mine", "--nearest", *at]]


def test_json_and_documents_end_without_a_next_command(command: Command, folder: Path) -> None:
    imported = command("import", "notes", "--store", "s", "--json")
    assert json.loads(imported.out)["memories_in_store"] == len(TEXTS)
    found = command("search", QUERIES["q1"], "--store", "s", "--json")
    assert json.loads(found.out)["results"]
    for document in (("export", "cems"), ("judgments", "--store", "s"), ("watch", "notes", "--cron", "@daily")):
        shown = command(*document, *(["--store", "s"] if document[0] == "watch" else []))
        assert shown.code == 0 and shown.out and "next:" not in shown.out


def test_no_argument_says_what_to_type_first(command: Command, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CEMS_WORKBENCH_STORE", "mine")
    assert next_of(command().out) == [["import", "sample_data"]]
    assert command("import", "notes").code == 0
    assert next_of(command().out) == [["search", QUERIES["q1"]], ["app"]]


def test_a_mistyped_command_gets_the_nearest_one(command: Command) -> None:
    refused = command("saerch", "tea")
    assert (refused.code, len(refused.err.splitlines())) == (2, 1)
    assert "Did you mean 'search'?" in refused.err and "python -m cems_workbench --help" in refused.err
    assert "python -m cems_workbench search --help" in command("search").err


def test_readme_leads_from_the_sample_to_why(command: Command, sample_store: Path) -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    typed = [shlex.split(line)[1:] for line in lines if line.startswith("    .venv/bin/cems-workbench ")]
    assert typed[:2] == [["import", "sample_data"], ["search", SAMPLE_QUERY]]
    at = ("--store", str(sample_store))
    assert next_of(command("import", "sample_data", *at).out) == [["search", SAMPLE_QUERY, *at]]
    found = command(*typed[1], "--preset", "workbench", *at)
    assert next_of(found.out) == [["why", SAMPLE_QUERY, "m312", "--preset", "workbench", *at]]
    assert "warning" not in found.err
