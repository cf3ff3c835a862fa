"""A password that opened a source is nowhere afterwards: not in the store, a bundle, a link, what was printed, or an error.

Nor is where the source is in what leaves the machine: bundles, redacted ones, traces, warnings, evidence files and what a link keeps.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, urlsplit

import duckdb
import postgres_server
import pytest
from postgres_server import LoadedChunk, Server, load, uuid_of

from cems_workbench.config import preset, with_values
from cems_workbench.evaluation.evidence_file import read_evidence_file
from cems_workbench.models.minilm_embedder import local_embedder
from cems_workbench.pipeline import bundle_from
from cems_workbench.settings import Settings
from cems_workbench.ui.inspect import state as inspect_state
from cems_workbench.ui.inspect.share import SETTING
from cems_workbench.ui.kit.address import written

if TYPE_CHECKING:
    from conftest import Command

pytestmark = [
    pytest.mark.skipif(postgres_server.missing() is not None, reason=str(postgres_server.missing())),
]
PASSWORD = "s3cret/of the+reader"
ROLE = "lector_of_notes"
TEXTS = {f"n{i}": f"the reader keeps note {i} about {word}" for i, word in enumerate(("deploys", "tea", "rollbacks"))}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgres_server.running() as running:
        running.add_role(ROLE, PASSWORD)
        with running.cems("kept") as connection:
            vectors = local_embedder(Settings().embedder).encode(list(TEXTS.values()))
            for (name, text), vector in zip(TEXTS.items(), vectors, strict=True):
                load(connection, {"id": name, "content": text}, [LoadedChunk(text, vector)])
            connection.execute("GRANT SELECT ON memory_documents, memory_chunks, memory_relations TO lector_of_notes")
            yield running


def forms(secret: str) -> list[str]:
    return [secret, quote(secret), quote(secret, safe=""), json.dumps(secret)[1:-1]]


def holding(folder: Path, secret: str) -> list[str]:
    """The files under a folder, and the tables of a store in it, that hold the secret in some form."""
    found = [
        str(file)
        for file in folder.rglob("*")
        if file.is_file()
        for form in forms(secret)
        if form.encode() in file.read_bytes()
    ]
    with duckdb.connect(str(folder / "workbench.duckdb"), read_only=True) as database:
        for (table,) in database.execute("SELECT table_name FROM duckdb_tables()").fetchall():
            rows = str(database.execute(f'SELECT * FROM "{table}"').fetchall())
            found += [table for form in forms(secret) if form in rows]
    return found


def test_a_password_is_written_nowhere(
    server: Server, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, bundle = tmp_path / "store", tmp_path / "bundle.json"
    plain = server.address("kept", ROLE)
    typed = plain.replace(f"{ROLE}@", f"{ROLE}:{quote(PASSWORD, safe='')}@")
    monkeypatch.setenv("NOTES_DATABASE", typed)
    said = []

    def run(code: int, *arguments: object) -> str:
        finished = command(*arguments)
        said.append(finished.out + finished.err)
        assert finished.code == code, said[-1]
        return said[-1]

    assert "3 of 3 stored vectors reproduced" in " ".join(run(0, "connect", typed, "--store", store).split())
    assert holding(store, PASSWORD) == []
    assert f"asks for {ROLE}'s password" in run(2, "connect", "--store", store)  # it was not kept
    run(0, "connect", "env:NOTES_DATABASE", "--store", store)
    asked = ("search", "who keeps tea", "--preset", "cems_head", "--set", "lists.answered_by=source", "--store", store)
    assert "the lists are the store's own" not in run(0, *asked, "--bundle", bundle, "--json")
    run(0, "doctor", "--store", store)
    monkeypatch.setenv("PGPASSWORD", PASSWORD + " and more")
    refused = run(2, "connect", plain, "--store", store)
    assert f"refused {ROLE}'s password (from PGPASSWORD)" in refused and "Traceback" not in refused
    run(2, "connect", typed.replace("/kept", "/lost"), "--store", store)
    run(2, "connect", typed.replace("postgresql", "mysql"), "--store", store)
    run(2, "connect", "--probe", typed + "&port=notaport", "--store", store)
    everything = "\n".join(said) + bundle.read_text("utf-8")
    assert [form for form in forms(PASSWORD) if form in everything] == []
    assert holding(store, PASSWORD) == []


def test_where_the_source_is_stands_in_nothing_that_leaves_the_machine(
    server: Server, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, plain = tmp_path / "store", server.address("kept", ROLE)
    directory = dict(parse_qsl(urlsplit(plain).query))["host"]
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    live = ("--preset", "cems_head", "--set", "lists.answered_by=source", "--store", store)
    queries = tmp_path / "queries.jsonl"
    queries.write_text(json.dumps({"qid": "q1", "query": "who keeps tea"}), "utf-8")
    kept: dict[str, str] = {}

    def asked(name: str, *more: object) -> str:
        finished = command("search", "who keeps tea", *live, "--bundle", tmp_path / f"{name}.json", *more)
        assert finished.code == 0, finished.err
        kept[name] = finished.out + finished.err
        kept[f"bundle {name}"] = (tmp_path / f"{name}.json").read_text("utf-8")
        return kept[name]

    assert command("connect", plain, "--store", store).code == 0
    assert re.search(r"vector:0, ts_rank:0: as answered by kept at 20\d\d-\d\d-\d\d \d\d:\d\d UTC", asked("tables"))
    note = json.loads(asked("trace", "--json"))["engine"]
    assert (note["source"], note["kind"]) == ("kept", "cems") and set(note["lists"]) == {"vector:0", "ts_rank:0"}
    asked("redacted", "--redact")
    assert json.loads(kept["bundle redacted"])["notes"]["engine"].keys() == {"kind", "at", "lists"}
    why = command("why", "who keeps tea", str(uuid_of("n1")), *live)
    kept["why"] = why.out + why.err
    assert "vector:0, ts_rank:0: as answered by kept at 20" in kept["why"]
    gathered = command("gather", queries, *live, "--out", tmp_path / "set.evidence")
    assert gathered.code == 0, gathered.err
    evidence = read_evidence_file(tmp_path / "set.evidence").evidences["q1"]
    kept["evidence file"] = json.dumps(bundle_from(evidence))
    with duckdb.connect(str(tmp_path / "set.evidence"), read_only=True) as file:
        tables = [name for (name,) in file.execute("SELECT table_name FROM duckdb_tables()").fetchall()]
        kept["its tables"] = str([file.execute(f'SELECT * FROM "{name}"').fetchall() for name in tables])
    inspect_state.use_config(with_values(preset("cems_head").config, {"fusion.k": 7}))
    kept["link"] = str(written([SETTING]))
    monkeypatch.setenv("PGPASSWORD", PASSWORD + " and more")
    refused = " ".join(asked("refused").split())
    assert "the lists are the store's own, not those of the running system: … refused …'s password" in refused
    assert "engine" not in json.loads(asked("refused trace", "--json"))
    asked("refused and redacted", "--redact")
    telling = [plain, quote(plain, safe=""), directory, quote(directory, safe=""), ROLE, *forms(PASSWORD)]
    found = {name: text for name, said in kept.items() for text in telling if text in said}
    assert found == {}
