"""`audit`, `leak` and `forgotten`: what was planted in a store is found, and nothing else, with the packaged models."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

if TYPE_CHECKING:
    from conftest import Command

TOKEN = "ghp_" + "abcdefghijklmnopqrstuvwxyz0123456789"
SAID = {
    "m1": "Mira signed the lease for the flat in Pankow, the rent is 940 euros.",
    "m2": "Jo's knee surgery is at the Charité on 12 June.",
    "m3": "Elias works as a baker in Flensburg.",
    "m4": "Jo adopted a greyhound named Pixel from the shelter.",
    "zoltan": "The piano teacher Zoltan lives above the pharmacy.",
    "m6": f"The deploy token of the website is {TOKEN}.",
    "m7": "The gym membership of Jo lasts until March.",
}
PLANTED = {
    "exact": SAID["m3"],
    "near": "Jo adopted a greyhound named Pixel from a shelter.",
    "otherwise": "Mira signed the lease for the flat in Pankow, the rent is 490 euros.",
    "question": "Where is Jo's knee surgery?",
    "word": "Okay",
    "result": f"- {SAID['m3']}\n- {SAID['m2']}",
    "phrase": "As an AI language model I cannot remember anything about the two of them.",
    "open": "Jo went to the market in Kreuzberg because",
    "invented": "Mira won the chess tournament of Lisbon against a grandmaster.",
}
ASKED = {"q1": "Where is Jo's knee surgery?", "q2": "What is the rent of Mira's flat?", "q3": "What does Elias work as?"}
RIGHT = {"q1": "m2", "q2": "m1", "q3": "m3"}


def lines(*rows: dict[str, Any]) -> str:
    return "\n".join(map(json.dumps, rows))


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory, module_command: Command) -> Path:
    folder = tmp_path_factory.mktemp("imported")
    at = folder / "s"
    (folder / "talk.txt").write_text("\n".join(f"Mira: {text}" for text in SAID.values()), "utf-8")
    expired = {"m7": {"valid_until": "2023-06-01T00:00:00Z"}}
    rows = [
        {"id": key, "content": text, "project": "b" if key in ("m4", "near") else "a", **expired.get(key, {})}
        for key, text in (SAID | PLANTED).items()
    ]
    judged = [{"qid": qid, "memory_id": key, "grade": 1} for qid, key in RIGHT.items()]
    judged += [{"qid": qid, "memory_id": "m7", "grade": 0} for qid in ASKED]
    for name, text in {
        "memories": lines(*rows),
        "queries": lines(*({"qid": qid, "query": text, "project": "a"} for qid, text in ASKED.items())),
        "judgments": lines(*(row | {"judge": "me", "kind": "human"} for row in judged)),
    }.items():
        (folder / f"{name}.jsonl").write_text(text, "utf-8")
        assert module_command("import", folder / f"{name}.jsonl", "--store", at).code == 0
    assert module_command("transcript", folder / "talk.txt", "--format", "messages", "--store", at).code == 0
    return folder


@pytest.fixture
def store(imported: Path, tmp_path: Path) -> Path:
    """A copy of the imported store, beside the files that it is from."""
    shutil.copytree(imported, tmp_path, dirs_exist_ok=True)
    return tmp_path / "s"


def test_each_planted_kind_is_found_and_nothing_else(command: Command, store: Path) -> None:
    found = json.loads(command("audit", "all", "--store", store, "--json").out)
    by_kind: dict[str, set[str]] = {}
    for one in found["findings"]:
        by_kind.setdefault(one["kind"], set()).update(one["remove"])
    by_kind.pop("never returned", None)
    assert by_kind.pop("possible contradiction") <= {"m1", "otherwise"}
    assert by_kind.pop("exact duplicate") == {"exact"} and by_kind.pop("near duplicate") == {"near"}
    assert by_kind == {
        "junk": {"question", "word", "result", "phrase", "open"},
        "secret": {"m6"},
        "expired": {"m7"},
        "possibly invented": {"invented", "phrase", "open", "word"},
        "hub": {"m7"},
    }
    effect = found["kinds"]["junk"]["measures"][0]
    assert effect["after"] > effect["before"] and found["kinds"]["junk"]["better"] >= 1, "the question stood first"
    text = command("audit", "all", "--store", store, "--kind", "secret").out
    assert "•••" in text and TOKEN not in text
    refused = command("audit", "--kind", "hubs", "--store", store)
    assert refused.code == 2 and "did you mean hub?" in refused.err


def test_a_removal_is_what_a_real_deletion_gives(command: Command, store: Path) -> None:
    from cems_workbench.api.open_store import load_config, open_store
    from workbench_audit.leaks import JudgedSet

    with open_store(store) as opened:
        tried = JudgedSet.read("all", load_config(), opened.resources).without({"question", "m7"})
        for key in ("question", "m7"):
            opened.resources.store.memories.delete(key)
        again = JudgedSet.read("all", load_config(), opened.resources)
    assert again.values.mean(axis=0).tolist() == pytest.approx([row[2] for row in tried.rows])
    assert len(tried.changed) == 3


def test_what_crosses_is_told_and_a_filter_keeps_it_out(command: Command, store: Path) -> None:
    found = command("leak", "all", "--store", store, "--json")
    crossings = json.loads(found.out)["crossings"]
    assert found.code == 1 and {(one["owner"], one["asker"]) for one in crossings} == {("a", "b")}
    assert all(one["rank"] >= 1 and one["lists"] for one in crossings)
    kept = command("leak", "all", "--store", store, "--only-project", "--json")
    assert kept.code == 0 and json.loads(kept.out)["total"] == 0
    late = json.loads(command("leak", "all", "--store", store, "--set", "assembly.limit=1", "--json").out)["after_the_cut"]
    assert all(row["before the cut"] >= row["after the cut"] for row in late["measures"])
    refused = command("leak", "all", "--by", "agent", "--store", store)
    assert refused.code == 2 and "expected project or author" in refused.err


def test_a_deleted_memory_is_found_in_what_is_left_of_it(command: Command, store: Path) -> None:
    assert command("evaluate", "all", "--store", store).code == 0
    from cems_workbench.api.open_store import open_store

    with open_store(store) as opened:
        opened.resources.store.memories.delete("m4")
        opened.resources.refresh()
    found = command("forgotten", "m4", "--store", store, "--json")
    receipt = json.loads(found.out)
    holding = {(one["kind"], one["name"].split("-")[0]) for one in receipt["places"] if one["holds"]}
    assert found.code == 1 and not receipt["forgotten"]
    assert {("table", "memories"), ("evidence", "all"), ("paraphrase", "near")} <= holding
    assert SAID["m4"] not in found.out and all(one.get("sha256") for one in receipt["places"] if one["kind"] == "file")
    refused = command("forgotten", "m44", "--store", store)
    assert refused.code == 2 and "pass it with --text FILE" in refused.err


def test_a_table_that_is_new_is_erased_too(command: Command, store: Path) -> None:
    """Which tables are erased follows from the schema: a row that names the memory goes, unless its table only names memories."""
    with duckdb.connect(str(store / "workbench.duckdb")) as own:
        own.execute("CREATE TABLE summaries (about_id VARCHAR, content VARCHAR)")
        own.execute("INSERT INTO summaries VALUES ('m4', 'about a dog'), ('m3', 'about a baker')")
        own.execute("CREATE TABLE summary_cache (prompt VARCHAR, reply VARCHAR)")
        own.execute("INSERT INTO summary_cache VALUES (?, 'a dog'), ('else', 'else')", [f"shorten: {SAID['m4']}"])
    dry = json.loads(command("forgotten", "m4", "--erase", "--store", store, "--json").out)
    assert dry["rows"] == {"memories": 1, "summaries": 1, "summary_cache": 1}
    command("forgotten", "m4", "--erase", "--apply", "--store", store)
    with duckdb.connect(str(store / "workbench.duckdb")) as own:
        assert own.execute("SELECT about_id FROM summaries").fetchall() == [("m3",)]
        assert own.execute("SELECT prompt FROM summary_cache").fetchall() == [("else",)]


def test_an_erased_memory_is_nowhere(command: Command, store: Path) -> None:
    from cems_workbench.api.open_store import open_store
    from cems_workbench.records import Judgment

    with open_store(store) as opened:
        memories = opened.resources.store.memories
        asked = opened.resources.store.queries.read()[0].qid
        opened.resources.store.judgments.record([Judgment(asked, "zoltan", 1, "a model", "model")], "test")
        memories.delete("zoltan")
        kept = memories.read()
        vectors = opened.resources.indexes.vectors.embeddings([*kept])
    command("import", store.parent / "memories.jsonl", "--store", store)
    dry = json.loads(command("forgotten", "zoltan", "--erase", "--store", store, "--json").out)
    assert dry["rows"] == {"judged_texts": 1, "memories": 1}
    held = command("forgotten", "zoltan", "--store", store, "--json")
    assert held.code == 1 and not json.loads(held.out)["forgotten"], "the dry run changed nothing"
    (store / "transcript").rename(store.parent / "said")  # which has it too, as a turn
    erased = command("forgotten", "zoltan", "--erase", "--apply", "--store", store, "--json")
    receipt = json.loads(erased.out)
    assert erased.code == 0 and receipt["forgotten"], [one for one in receipt["places"] if one["holds"]]
    assert SAID["zoltan"].encode() not in b"".join(path.read_bytes() for path in store.rglob("*") if path.is_file())
    with open_store(store) as opened:
        assert opened.resources.store.memories.read() == kept
        again = opened.resources.indexes.vectors.embeddings([*kept])
        assert all((again[key] == vectors[key]).all() for key in kept) and len(again) == len(vectors)
    (store.parent / "zoltan.txt").write_text(SAID["zoltan"], "utf-8")
    assert command("forgotten", "zoltan", "--text", store.parent / "zoltan.txt", "--store", store).code == 0
    assert command("forgotten", "zoltan", "--apply", "--store", store).code == 2
