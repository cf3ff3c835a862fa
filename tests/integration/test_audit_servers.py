"""`leak` and `forgotten` where memories are on servers: a live source that filters by nobody, Chroma's mirror."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import chroma_server
import pytest

from cems_workbench.api.open_store import open_store
from cems_workbench.jobs.factory import local_embedder
from cems_workbench.models.resolve import PACKAGED_ID

if TYPE_CHECKING:
    from conftest import Command

SAID = {
    "m1": ("ann", "Ann keeps the key of the boathouse under the blue pot."),
    "m2": ("bob", "Bob keeps the key of the boathouse in his jacket."),
    "m3": ("ann", "Ann sails on Sundays."),
}
ASKED = {"qid": "q1", "query": "Where is the key of the boathouse?", "project": "ann"}


def imported(command: Command, at: Path, name: str, *rows: dict[str, object]) -> None:
    (at / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    assert command("import", at / f"{name}.jsonl", "--store", at / "s").code == 0


def memories(command: Command, at: Path) -> None:
    imported(
        command, at, "memories", *({"id": key, "content": text, "project": of} for key, (of, text) in SAID.items())
    )


@pytest.mark.thorough
def test_a_live_source_that_filters_by_nobody_leaks(command: Command, tmp_path: Path) -> None:
    import chromadb

    texts = [text for _, text in SAID.values()]
    with chroma_server.running(tmp_path / "db") as port:
        collection = chromadb.HttpClient("127.0.0.1", port).create_collection("notes", embedding_function=None)
        embedder = local_embedder(PACKAGED_ID)
        of = [{"project": name} for name, _ in SAID.values()]
        collection.add(ids=[*SAID], documents=texts, embeddings=embedder.encode(texts), metadatas=of)
        assert command("connect", f"chroma://127.0.0.1:{port}/notes", "--store", tmp_path / "s").code == 0
        imported(command, tmp_path, "queries", ASKED)
        imported(
            command, tmp_path, "judgments", {"qid": "q1", "memory_id": "m1", "grade": 1, "judge": "me", "kind": "human"}
        )
        live = ("leak", "all", "--store", tmp_path / "s", "--set", "lists.answered_by=source", "--json")
        found, kept = command(*live), command(*live, "--only-project")
    crossings = json.loads(found.out)["crossings"]
    assert (
        found.code == 1
        and {one["memory_id"] for one in crossings} == {"m1", "m3"}
        and "vector:0" in crossings[0]["lists"]
    )
    assert kept.code == 0 and "after its cut" in json.loads(kept.out)["notes"][-1]


@pytest.mark.thorough
def test_an_erased_memory_is_gone_from_the_mirror_on_a_server(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with chroma_server.running(tmp_path / "db") as port:
        monkeypatch.setenv("CEMS_WORKBENCH_CHROMA_URL", f"http://127.0.0.1:{port}")
        memories(command, tmp_path)
        held = json.loads(command("forgotten", "m2", "--store", tmp_path / "s", "--json").out)
        assert [one["holds"] for one in held["places"] if one["kind"] == "chroma"] == [1], held["places"]
        erased = command("forgotten", "m2", "--erase", "--apply", "--store", tmp_path / "s", "--json")
        with open_store(tmp_path / "s") as opened:
            indexes, model = opened.resources.store.indexes, opened.resources.embedder.model_id
            assert indexes.catch_up_chroma(model) == "" and indexes.compare_chroma(model) == (2, [])
    receipt = json.loads(erased.out)
    assert erased.code == 0, [one for one in receipt["places"] if one["holds"] or one.get("problem")]
    assert [one["holds"] for one in receipt["places"] if one["kind"] == "chroma"] == [0]
