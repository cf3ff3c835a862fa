"""Gathering a query set with the real store and models: cancel, resume, the command line; and a store of long documents."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cems_workbench.config import PipelineConfig, preset, with_values
from cems_workbench.errors import InputError
from cems_workbench.evaluation.evidence_file import EvidenceFile, read_evidence_file
from cems_workbench.jobs import query_set_evidence
from cems_workbench.jobs.evaluation import agreed
from cems_workbench.jobs.factory import open_resources
from cems_workbench.jobs.query_set_evidence import QuerySelection, gather_query_set, header_for, request_for
from cems_workbench.jobs.tuning import tuning_data
from cems_workbench.models import ollama, tokens
from cems_workbench.models.http import CircuitBreaker, ModelServer
from cems_workbench.pipeline import Evidence, replay
from cems_workbench.pipeline.bundle import read_bundle, write_bundle
from cems_workbench.pipeline.gather import Request, gather
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.scoring import given_chunks
from cems_workbench.pipeline.stages.rerank import model_key
from cems_workbench.progress import Cancelled
from cems_workbench.records import Judgment, Query
from cems_workbench.settings import Settings

if TYPE_CHECKING:
    from conftest import Command
    from ollama import AsyncClient


ROOT = Path(__file__).resolve().parents[2]
CONFIG = with_values(preset("cems").config, {"judge.backend": "none"})


def test_a_list_whose_stop_words_cannot_be_read_is_never_gathered(resources: Resources, tmp_path: Path) -> None:
    for name, words, reason in (
        ("fts5", "CHECKOUT/words.ts#STOP_WORDS", r"CHECKOUT/words\.ts: no such stop words"),
        ("fts5", "english", "english: no such stop words"),
        ("lexical", "beside:none/words.ts#STOP_WORDS", r"no none/words\.ts beside the store"),
    ):
        missing = with_values(
            preset("engram_head").config, {"lists.lexical.enabled": True, f"lists.{name}.stop_words": words}
        )
        with pytest.raises(InputError, match=rf"^engram_head: lists\.{name}\.stop_words: {reason}"):
            gather_query_set(tmp_path / "e.evidence", resources.store.queries.read()[:1], [], missing, resources)
    assert not (tmp_path / "e.evidence").exists()


def test_a_cancelled_gather_goes_on_without_repeating_what_was_finished(
    resources: Resources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = resources.store.queries.read()[:6]
    path = tmp_path / "sample.evidence"

    def stop_at_four(label: str, done: int, total: int) -> None:
        if done == 4:
            raise Cancelled

    with pytest.raises(Cancelled):
        gather_query_set(path, queries, [], CONFIG, resources, progress=stop_at_four)
    assert list(read_evidence_file(path).evidences) == [query.qid for query in queries[:4]]
    asked: list[str] = []

    def watched(request, config, resources):  # type: ignore[no-untyped-def]
        asked.append(request.query)
        return gather(request, config, resources)

    monkeypatch.setattr(query_set_evidence, "gather", watched)
    done = gather_query_set(path, queries, [], CONFIG, resources)
    assert (done.finished_before, done.gathered) == (4, 2)
    assert asked == [query.query for query in queries[4:]]
    found = read_evidence_file(path)
    assert found.complete and found.content_hash == done.content_hash
    for query in queries:  # the numbers are those of a single search, but for the last digits of a batch's embeddings
        alone = replay(gather(request_for(query, found.header.moment), CONFIG, resources), CONFIG).results
        kept, ms = replay(found.evidences[query.qid], CONFIG).results, found.evidences[query.qid].ms
        assert 0 < ms["vector"] < sum(ms.values()) - ms[""] < ms[""]  # the parts are of the whole
        assert [row.memory_id for row in kept] == [row.memory_id for row in alone]
        assert [row.score for row in kept] == pytest.approx([row.score for row in alone], abs=1e-5)


def test_what_queries_search_as_given_is_kept_in_the_file_and_refetched_alike(
    resources: Resources, tmp_path: Path
) -> None:
    first, second = resources.store.queries.read()[:2]
    given = replace(first, searched="postgres", engine_queries={"lexical": "upgrade"}, wordings=("deploy",))
    path = tmp_path / "given.evidence"
    gather_query_set(path, [given, second], [], CONFIG, resources)
    kept = read_evidence_file(path)
    assert kept.queries == (given, second)
    one, other = kept.evidences.values()
    assert [variant.text for variant in one.variants] == ["postgres", "deploy"]
    again = gather(request_for(kept.queries[0], kept.header.moment), CONFIG, resources)
    assert [[hit.memory_id for hit in ranked.hits] for ranked in again.lists] == [
        [hit.memory_id for hit in ranked.hits] for ranked in one.lists
    ]
    assert [variant.text for variant in other.variants] == [second.query]

    def file_of(*queries: Query) -> Path:
        return query_set_evidence.evidence_path(CONFIG, query_set_evidence.QuerySelection("sample", queries), resources)

    assert len({file_of(first), file_of(given), file_of(replace(first, wordings=("deploy",)))}) == 3
    assert file_of(replace(first, answer="by hand")) == file_of(first), "no search reads the answer"


def test_a_dead_model_server_is_found_out_once_and_the_evidence_says_so(
    resources: Resources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:  # bound and not listening: it refuses connections
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        resources.servers = replace(resources.servers, ollama_url=url)
        resources.breaker = CircuitBreaker(clock=lambda: 0.0)
        opened: list[str] = []
        real = ollama.open_client

        def counted(server: ModelServer) -> AsyncClient:
            opened.append(server.url)
            return real(server)

        monkeypatch.setattr(ollama, "open_client", counted)
        queries = resources.store.queries.read()[:5]
        path = tmp_path / "dead.evidence"
        config = preset("cems_qwen").config
        gather_query_set(path, queries[:1], [], config, resources)
        first = len(opened)
        done = gather_query_set(tmp_path / "more.evidence", queries, [], config, resources)
    assert first == len(opened) == 2, "the model's revision is asked for twice, then nothing more"
    assert done.gathered == len(queries)
    for evidence in read_evidence_file(tmp_path / "more.evidence").evidences.values():
        scores = evidence.model_scores[model_key(config.rerank)].values()
        assert scores and all("nothing answers at this address" in str(score.error) for score in scores)


def test_a_query_that_cannot_be_searched_is_left_out_and_said(resources: Resources, tmp_path: Path) -> None:
    queries = [Query("q1", "deploy"), Query("q2", "   ")]
    done = gather_query_set(tmp_path / "e", queries, [], CONFIG, resources, query_set="mine")
    assert done.gathered == 1
    assert [str(error) for error in done.left_out] == ["mine:2: q2: query: it is empty; type what you are looking for"]


def test_the_command_gathers_goes_on_and_refuses_another_store(command: Command, store: Path, tmp_path: Path) -> None:
    out = tmp_path / "sample.evidence"
    arguments = (
        "gather",
        "all",
        "--out",
        out,
        "--limit",
        "5",
        "--set",
        "judge.backend=none",
        "--store",
        store,
        "--json",
    )
    first = command(*arguments)
    assert first.code == 0, first.err
    values = json.loads(first.out)
    assert (values["queries"], values["gathered"], values["left_out"]) == (5, 5, [])
    again = json.loads(command(*arguments).out)
    assert (again["finished_before"], again["gathered"]) == (5, 0)
    assert again["content_hash"] == values["content_hash"]
    other = command(*arguments[:-1], "--per-query-project")
    assert other.code == 2
    assert "cannot be resumed: within each project only: False, then True" in other.err
    unknown = command("gather", "nothing", "--out", tmp_path / "x", "--store", store)
    assert unknown.code == 2 and "neither a query set of the store" in unknown.err
    assert not (tmp_path / "x").exists()


def test_what_was_gathered_of_a_file_is_the_evidence_of_the_set_it_was_imported_as(
    command: Command, store: Path, tmp_path: Path
) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text("".join(json.dumps({"qid": qid, "query": f"{qid} deploy"}) + "\n" for qid in ("f9", "f10")))
    for words in (("import", file), ("gather", file, "--preset", "recollection")):
        done = command(*words, "--store", store)
        assert done.code == 0, done.err
    opened = open_resources(Settings(store=store))
    try:
        selection = QuerySelection("mine", tuple(opened.store.query_sets.queries("mine")))
        assert query_set_evidence.read_evidence(preset("recollection").config, selection, opened) is not None
    finally:
        opened.close()


def test_what_the_command_writes_to_a_file_evaluate_and_tune_find_and_the_reverse(
    command: Command, store: Path, tmp_path: Path
) -> None:
    file, config = tmp_path / "both.jsonl", preset("recollection").config
    file.write_text("".join(json.dumps({"qid": qid, "query": f"{qid} deploy"}) + "\n" for qid in ("b1", "b2")))
    assert command("import", file, "--store", store).code == 0
    opened = open_resources(Settings(store=store))
    try:
        memory_id = next(iter(opened.store.memories.iterate())).id
        judgments = [Judgment(qid, memory_id, 2, "grader", "model") for qid in ("b1", "b2")]
        opened.store.judgments.record(judgments, "test")
    finally:
        opened.close()

    def gathered(out: str) -> tuple[int, int]:
        words = ("gather", "both", "--out", tmp_path / out, "--preset", "recollection", "--store", store, "--json")
        values = json.loads(command(*words).out)
        return values["finished_before"], values["gathered"]

    assert gathered("first.evidence") == (0, 2)
    opened = open_resources(Settings(store=store))
    try:
        # What the Tune page looks up, and with it Evaluate.
        selection = query_set_evidence.judged_selection("both", opened, judgments)
        grades = agreed(judgments, None)
        data = tuning_data(config, selection, grades, opened)
        assert data is not None and len(data.evidence.evidences) == 2
        query_set_evidence.discard_evidence(config, selection, opened)
        query_set_evidence.gather_evidence(config, selection, [], opened)
    finally:
        opened.close()
    assert gathered("second.evidence") == (2, 0)
    again = read_evidence_file(tmp_path / "second.evidence")
    assert again.complete and {row.qid for row in again.judgments} == {"b1", "b2"}


def test_queries_without_a_project_are_named_where_each_is_searched_in_its_own() -> None:
    queries = (Query("a", "text", "p"), Query("b", "text"))
    told = [QuerySelection("s", chosen, True).without_project for chosen in (queries, queries[:1], queries[1:])]
    assert told[1] is None and QuerySelection("s", queries).without_project is None
    assert str(told[0]).startswith("1 of 2 queries name no project: searched over all memories")
    assert str(told[2]).startswith("no query names a project")


@pytest.mark.thorough
def test_a_gather_killed_in_the_middle_of_a_query_is_gone_on_with(store: Path, tmp_path: Path) -> None:
    """SIGKILL from within: nothing is closed or flushed by anybody."""
    path = tmp_path / "killed.evidence"
    code = f"""
import os, signal
from pathlib import Path
from cems_workbench.config import preset, with_values
from cems_workbench.jobs import query_set_evidence
from cems_workbench.jobs.evaluation import agreed
from cems_workbench.jobs.factory import open_resources
from cems_workbench.settings import Settings
resources = open_resources(Settings(store=Path({str(store)!r})))
config = with_values(preset("cems").config, {{"judge.backend": "none"}})
def dies(label, done, total):
    if done == 3:
        os.kill(os.getpid(), signal.SIGKILL)
query_set_evidence.gather_query_set(Path({str(path)!r}), resources.store.queries.read()[:5], [], config, resources, progress=dies)
"""
    died = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert len(read_evidence_file(path).evidences) == 3
    resources = open_resources(Settings(store=store))
    try:
        done = gather_query_set(path, resources.store.queries.read()[:5], [], CONFIG, resources)
    finally:
        resources.close()
    assert (done.finished_before, done.gathered) == (3, 2)
    assert read_evidence_file(path).complete


QUERY = "What did Caroline do at the LGBTQ support group?"


@pytest.fixture
def sessions(shared: Path) -> Path:
    """The long documents; skips where they are not beside the checkout."""
    folder = shared / "cems" / "sessions"
    if not folder.is_dir():
        pytest.skip("../shared/cems is not beside the checkout")
    return folder


@pytest.fixture
def cems(sessions: Path, command: Command, tmp_path: Path) -> Path:
    """A store of them, cut as CEMS cuts."""
    folder = tmp_path / "cems"
    finished = command("import", sessions / "memories.jsonl", "--chunks", "cems", "--store", folder)
    assert finished.code == 0
    assert "rule cems, 19 memories have" in finished.out
    return folder


@pytest.mark.thorough
def test_long_documents_have_several_chunks_and_lists_say_which(cems: Path, tmp_path: Path) -> None:
    resources = open_resources(Settings(store=cems))
    try:
        statistics = resources.store.chunks.statistics()
        assert statistics.memories == 19 and statistics.chunks > 19
        config = with_values(preset("workbench").config, {"rerank.text_source": "chunk"})
        evidence = gather(Request(QUERY), config, resources)
        _check_evidence(evidence, config)
        _check_files(evidence, tmp_path, resources)
        trace = replay(evidence, config)
        assert trace.results
    finally:
        resources.close()


def _check_evidence(evidence: Evidence, config: PipelineConfig) -> None:
    for ranked in evidence.lists:
        if ranked.source in ("vector", "lexical"):
            assert all(hit.chunk is not None for hit in ranked.hits)
            assert [hit.score for hit in ranked.hits] == sorted((hit.score for hit in ranked.hits), reverse=True)
    assert len({hit.memory_id for hit in evidence.lists[0].hits}) == 19 < len(evidence.lists[0].hits)
    for key, memory in evidence.memories.items():
        chunks = evidence.chunks[key]
        assert evidence.tokens[key] == (tokens.count(memory.content), *(tokens.count(chunk.text) for chunk in chunks))
        assert all(memory.content[chunk.start :].startswith(chunk.text) for chunk in chunks)
    given = given_chunks(evidence, config)
    for scores in evidence.model_scores.values():
        assert all(score.chunk is not None and score.chunk in given[key].text for key, score in scores.items())


def _check_files(evidence: Evidence, folder: Path, resources: Resources) -> None:
    write_bundle(evidence, folder / "bundle.json")
    assert read_bundle(folder / "bundle.json").lists == evidence.lists
    header = header_for(preset("workbench").config, resources, query_set="set", only_project=False)
    with EvidenceFile.create(folder / "set.duckdb", header, [Query("q", QUERY)], []) as file:
        file.add("q", evidence, 0.1)
        mark = file.finish()
    read = read_evidence_file(folder / "set.duckdb")
    back = read.evidences["q"]
    assert read.content_hash == mark
    assert (back.lists, back.chunks, back.tokens, back.memories) == (
        evidence.lists,
        evidence.chunks,
        evidence.tokens,
        evidence.memories,
    )
