"""Gathering with the real store, the real indexes and the packaged models; exact recall, text evidence and supersession on the sample."""

from __future__ import annotations

import math
import shutil
import socket
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cems_workbench.analysis.graph_lists import recall_at
from cems_workbench.analysis.why.path import cause, memory_path
from cems_workbench.config import PipelineConfig, preset, with_values
from cems_workbench.errors import InputError
from cems_workbench.jobs.factory import open_resources
from cems_workbench.models.minilm_embedder import MiniLMEmbedder
from cems_workbench.models.minilm_judge import MODEL_ID, MiniLMJudge, available
from cems_workbench.pipeline import Evidence, read_bundle, replay, write_bundle
from cems_workbench.pipeline.gather import Request, gather, gather_lists
from cems_workbench.pipeline.list_sources import searched_lines
from cems_workbench.pipeline.rerankers import cross_encoder
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.understanding import SHIPPED
from cems_workbench.progress import Cancelled
from cems_workbench.settings import Settings
from cems_workbench.store import ANY, Filter
from cems_workbench.store.search.vector_index import VectorIndex
from cems_workbench.store.text_rule import searched_text
from tests.thoroughly import THOROUGH, partly, some
from workbench_inspect.index_check import embeddings_of, exact_ranking, largest_difference
from workbench_inspect.text_evidence import embedder_room, lexical_evidence, read_until

QUERY = "how do we roll back a failed deploy?"
UNCACHED = "which database did the team choose?"
"""Asked by one test alone, whose scores no other test has left in the cache."""
PACKAGED = pytest.mark.skipif(not available(), reason="this checkout has no weights of the packaged cross-encoder")
AS_OF = datetime(2026, 9, 1, tzinfo=UTC)
RERANK: dict[str, Any] = {
    "rerank__backend": "late_interaction",
    "rerank__raw_scale": "identity",
    "rerank__depth": 20,
}


def configured(**changes: Any) -> PipelineConfig:
    return with_values(PipelineConfig(), {path.replace("__", "."): value for path, value in changes.items()})


def evidence(resources: Resources, query: str = QUERY, variants: tuple[str, ...] = (), **changes: Any) -> Evidence:
    return gather(Request(query, as_of=AS_OF, variants=variants), configured(**changes), resources)


def test_a_graph_is_searched_on_request_and_its_list_says_what_it_missed(
    opened: Resources, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact, graph = evidence(opened), evidence(opened, lists__vector__index="graph")
    assert graph.lists[0].hits == tuple(
        replace(hit, score=pytest.approx(hit.score, abs=1e-5)) for hit in exact.lists[0].hits
    )
    whole = VectorIndex.graph_chunks
    monkeypatch.setattr(VectorIndex, "graph_chunks", lambda *asked: whole(*asked)[3:])
    lines = evidence(opened, lists__vector__index="graph").notes["warnings"]["lists"]
    assert "vector:0: Chroma's graph missed 3 of the 150 nearest memories" in lines


@pytest.fixture(scope="module")
def opened(sample_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Resources]:
    """A copy of the sample store, open for tests that change nothing in it."""
    folder = shutil.copytree(sample_store, tmp_path_factory.mktemp("opened") / "store")
    resources = open_resources(Settings(store=folder))
    yield resources
    resources.close()


@pytest.fixture(scope="module")
def reranked(opened: Resources) -> Evidence:
    """Evidence with the late-interaction scores of the first 20."""
    return evidence(opened, **RERANK)


def ids(evidence: Evidence, name: str) -> list[str]:
    return [hit.memory_id for ranked in evidence.lists if ranked.name == name for hit in ranked.hits]


def names(evidence: Evidence) -> list[str]:
    return [ranked.name for ranked in evidence.lists]


def test_every_source_is_gathered_whether_or_not_it_is_enabled(opened: Resources) -> None:
    found = evidence(opened)
    assert names(found) == ["vector:0", "lexical:0", "relations", "recency", "access"]
    assert len(set(ids(found, "vector:0"))) == 150
    assert replay(found, configured()).needs == []


def test_vector_scores_are_the_cosines_of_the_stored_embeddings(opened: Resources) -> None:
    found = evidence(opened)
    query = opened.embedder.encode_query(QUERY)
    (vector,) = [ranked for ranked in found.lists if ranked.name == "vector:0"]
    parts = opened.indexes.vectors.chunk_embeddings([hit.memory_id for hit in vector.hits[:20]])
    for hit in vector.hits[:20]:
        nearest = max(float(np.dot(part, query)) for part in parts[hit.memory_id].values())
        assert hit.score == pytest.approx(nearest, abs=1e-5)
    assert [hit.score for hit in vector.hits] == sorted((hit.score for hit in vector.hits), reverse=True)


def test_recency_and_access_rank_the_union_of_the_candidates(opened: Resources) -> None:
    found = evidence(opened)
    union = set(ids(found, "vector:0")) | set(ids(found, "lexical:0")) | set(ids(found, "relations"))
    dated = {key for key in union if found.memories[key].created_at}
    assert set(ids(found, "recency")) == dated
    assert set(ids(found, "access")) == union
    created = [found.memories[key].created_at for key in ids(found, "recency")]
    assert created == sorted(created, reverse=True)  # type: ignore[type-var]
    counts = [found.memories[key].access_count for key in ids(found, "access")]
    assert counts == sorted(counts, reverse=True)


@pytest.mark.parametrize(
    ("typed", "searched", "memories"),
    [("who knhow many services run?", "who know many services run?", 100), ("how maany run?", "how many run?", 10)],
    ids=["typed as one", "corrected to one"],
)
def test_lists_go_as_deep_as_replay_asks_by_the_query_as_it_was_typed(
    opened: Resources, typed: str, searched: str, memories: int
) -> None:
    """A hybrid list of 5 memories reads 10 chunks of each list in it; of an aggregation query, "how many", it has 50 and reads 100."""
    found = evidence(
        opened,
        typed,
        query__typo_correction__enabled=True,
        query__typo_correction__auto_learn=False,
        lists__vector__depth=5,
        lists__hybrid__enabled=True,
        lists__hybrid__depth=5,
        lists__hybrid__inner_factor=2.0,
        lists__hybrid__aggregation_factor=2.0,
    )
    assert found.notes["query"]["searched"] == searched
    assert len(set(ids(found, "vector:0"))) == memories


def test_the_recent_access_pool_is_the_newest_and_every_lexical_hit(opened: Resources) -> None:
    found = evidence(
        opened, lists__candidate_set__mode="recent_access", lists__candidate_set__size=5, lists__vector__depth=None
    )
    newest = opened.store.memories.newest_by_access(5)
    assert set(ids(found, "vector:0")) == set(newest) | set(ids(found, "lexical:0"))
    assert any("5 most recently accessed" in text for _, text in replay(found, preset("recollection").config).warnings)


def test_the_newest_created_are_three_times_the_limit_and_every_lexical_hit(opened: Resources) -> None:
    chosen = {"lists__candidate_set__mode": "newest_created", "lists__candidate_set__size": 1, "assembly__limit": 2}
    found = evidence(opened, **chosen, lists__candidate_set__size_factor=3, lists__vector__depth=None)
    newest = opened.store.memories.newest_by_creation(6)
    assert set(ids(found, "vector:0")) == set(newest) | set(ids(found, "lexical:0"))
    assert "the 6 most recently created memories and the lexical hits only" in str(found.notes["warnings"])


@pytest.mark.parametrize(("query", "lexical"), [(None, True), ("zzzqqq", False)])
def test_without_a_lexical_hit_the_newest_are_ranked_instead(
    opened: Resources, query: str | None, lexical: bool
) -> None:
    chosen = {"lists__candidate_set__mode": "lexical_or_newest", "lists__candidate_set__size": 4}
    found = evidence(opened, *([query] if query else []), **chosen, lists__vector__depth=None)
    hits = set(ids(found, "lexical:0"))
    assert bool(hits) == lexical
    assert set(ids(found, "vector:0")) == (hits or set(opened.store.memories.newest_by_creation(4)))


def test_relations_are_the_neighbours_of_the_first_seeds_of_a_fixed_fusion(opened: Resources) -> None:
    found = evidence(opened, lists__relations__seeds=3, lists__relations__per_seed=2)
    scores: dict[str, float] = {}
    for name in ("vector:0", "lexical:0"):
        for rank, key in enumerate(dict.fromkeys(ids(found, name)), 1):
            scores[key] = scores.get(key, 0) + 1 / (60 + rank)
    seeds = sorted(scores, key=lambda key: (-scores[key], key))[:3]
    assert set(ids(found, "relations")) == {
        neighbour for _, neighbour, _ in opened.store.relations.neighbours(seeds, 2)
    }
    assert ids(found, "relations")


def test_a_searched_text_is_searched_as_given_and_rerankers_read_the_query(opened: Resources) -> None:
    typed, given = "how do we rol back a failed deploy?", "postgres upgrade"
    settings: dict[str, Any] = {"query__typo_correction__enabled": True, "expansion__backend": "dictionary"}
    found = gather(Request(typed, as_of=AS_OF, searched=given), configured(**settings), opened)
    itself = evidence(opened, given)
    assert (found.query, found.searched) == (typed, given)
    assert [variant.text for variant in found.variants] == [given]
    assert [found.lists[i].hits for i in range(2)] == [itself.lists[i].hits for i in range(2)]
    assert found.corrected == evidence(opened, typed, **settings).searched != given
    assert searched_lines(found.notes) == [f"searched instead of the query, as given: {given}"]
    assert searched_lines(itself.notes) == [] and itself.corrected == given


def test_an_engine_query_is_what_that_list_alone_searches(opened: Resources) -> None:
    request = Request(
        QUERY, as_of=AS_OF, engine_queries={"lexical": "postgres", "lexical:1": "undo"}, variants=("x y",)
    )
    found = gather(request, configured(query__mode="hybrid"), opened)
    assert ids(found, "vector:0") == ids(evidence(opened), "vector:0")
    assert ids(found, "lexical:0") == ids(evidence(opened, "postgres", query__mode="hybrid"), "lexical:0")
    assert ids(found, "lexical:1") == ids(evidence(opened, "undo", query__mode="hybrid"), "lexical:0")
    assert [found.text_for("lexical", i) for i in range(2)] == ["postgres", "undo"]
    assert [found.text_for("vector", i) for i in range(2)] == [QUERY, "x y"]
    for name in ("recency", "lexcal", "lexical:x"):
        with pytest.raises(InputError, match="engine query"):
            gather(Request(QUERY, engine_queries={name: "a"}), configured(), opened)


def test_a_project_only_request_searches_that_project_alone(opened: Resources) -> None:
    project = next(name for name, _ in opened.store.memories.projects() if name)
    found = gather(Request(QUERY, project, AS_OF, only_project=True), configured(), opened)
    assert found.memories
    assert {memory.project for memory in found.memories.values()} == {project}


def test_every_list_searches_the_memories_of_one_author(opened: Resources) -> None:
    author, *_ = (name for name, _ in opened.store.memories.facets().authors if name)
    names = ("hybrid", "ts_rank", "fts5", "sparse", "ts_rank_cd")
    config = with_values(PipelineConfig(), {f"lists.{name}.enabled": True for name in names} | {"query.author": author})
    found = gather(Request(QUERY, as_of=AS_OF), config, opened)
    assert {ranked.source for ranked in found.lists if ranked.hits} >= {"vector", "lexical", *names[1:]}
    assert {memory.author for memory in found.memories.values()} == {author}
    nobody = gather(Request(QUERY, as_of=AS_OF), with_values(config, {"query.author": "nobody"}), opened)
    assert not nobody.memories
    assert any("no memory of author 'nobody'" in line for line in nobody.notes["warnings"]["lists"])


@pytest.mark.parametrize("query", ["", "  \n ", "caf\udce9"])
def test_a_query_that_is_empty_or_no_text_is_one_line(query: str, opened: Resources) -> None:
    with pytest.raises(InputError, match="query: it"):
        evidence(opened, query)


def test_gathered_evidence_replays_from_its_bundle_to_the_same_trace(reranked: Evidence, tmp_path: Path) -> None:
    found = reranked
    write_bundle(found, tmp_path / "bundle.json")
    again = read_bundle(tmp_path / "bundle.json")
    for name in ("cems", "cems_head", "qmd", "recollection"):
        assert replay(again, preset(name).config).to_json() == replay(found, preset(name).config).to_json()


def test_late_interaction_is_the_formula_over_the_stores_token_vectors(reranked: Evidence, opened: Resources) -> None:
    """Computed here from the model's raw token embeddings and a count over the store, without the reranker's code."""
    embedder = opened.embedder
    assert isinstance(embedder, MiniLMEmbedder)
    network, memories = embedder.network, opened.store.memories.read()

    def wordpieces(text: str) -> list[int]:
        return list(network.tokenizer.encode(text, add_special_tokens=False).ids)

    def tokens(text: str) -> tuple[list[int], Any]:
        numbers = wordpieces(text)[: embedder.room]
        rows = network.read([numbers])[0][1:-1]
        return numbers, rows / np.linalg.norm(rows, axis=1, keepdims=True)

    asked, query_vectors = tokens(QUERY)
    stored = [set(wordpieces(searched_text(memory))) for memory in memories.values()]
    frequencies = [sum(token in pieces for pieces in stored) for token in asked]
    weights = [math.log(1 + (len(memories) - df + 0.5) / (df + 0.5)) for df in frequencies]
    scores = reranked.model_scores["late_interaction"]
    assert len(scores) == RERANK["rerank__depth"]
    for key in list(scores)[:5]:
        _, document_vectors = tokens(scores[key].chunk or "")
        best = (query_vectors @ document_vectors.T).max(axis=1)
        assert scores[key].raw == pytest.approx(float(np.dot(weights, best) / sum(weights)), abs=1e-4)


def raws(found: Evidence) -> dict[str, float | None]:
    return {key: score.raw for key, score in found.model_scores["late_interaction"].items()}


def test_cancelled_reranking_keeps_what_was_finished_and_nothing_is_scored_twice(resources: Resources) -> None:
    """20 to score: one batch of 16 is finished before the cancel; then the other 4; then, deeper, 5 more."""
    seen: list[tuple[str, int, int]] = []

    def cancel(label: str, done: int, total: int) -> None:
        seen.append((label, done, total))
        if label == "reranking":
            raise Cancelled

    with pytest.raises(Cancelled):
        gather(Request(UNCACHED, as_of=AS_OF), configured(**RERANK), resources, cancel)
    assert seen[-1] == ("reranking", 16, 20)
    after, again = evidence(resources, UNCACHED, **RERANK), evidence(resources, UNCACHED, **RERANK)
    assert after.notes["rerank_scores"] == {"scored": 4, "cached": 16}
    assert again.notes["rerank_scores"] == {"scored": 0, "cached": 20}
    assert raws(again) == raws(after)
    deeper = evidence(resources, UNCACHED, **{**RERANK, "rerank__depth": 25})
    assert deeper.notes["rerank_scores"] == {"scored": 5, "cached": 20}
    searching = [(done, total) for label, done, total in seen if label == "searching"]
    assert searching == sorted(searching) and searching[-1][0] == searching[-1][1]


@pytest.mark.parametrize(
    ("backend", "named", "error"),
    [
        ("ollama", "some-model", "refused: "),
        ("llama_server", None, "refused: "),
        ("llm", None, "the backend llm needs a chat model"),
        ("ollama", None, "the backend ollama needs the name of a model"),
        ("late_interaction", "another", "late interaction reads the token vectors of the embedder"),
    ],
)
def test_a_reranker_that_cannot_be_had_flags_every_candidate_and_nothing_is_kept(
    resources: Resources, backend: str, named: str | None, error: str
) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        resources.servers = replace(resources.servers, ollama_url=url, llama_server_url=url, llm_model=None)
        changes = {"rerank__backend": backend, "rerank__model": named, "rerank__depth": 12}
        trace = replay(evidence(resources, **changes), configured(**changes))
    head = [row for row in trace.stage("rerank").rows if row.outcome != "tail"]
    assert len(head) == 12
    assert all(row.flagged and row.raw is None and error in row.error for row in head)
    said = next(warning for warning in trace.stage("rerank").warnings if warning.startswith("12 of 12 scores failed"))
    assert (url.removeprefix("http://") in said) == (error == "refused: "), said
    assert trace.results and not trace.needs


def asking(model: str) -> dict[str, Any]:
    return {**RERANK, "rerank__backend": "cross_encoder", "rerank__model": model}


def warned(found: Evidence, stage: str = "rerank", **changes: Any) -> str:
    return " ".join(replay(found, configured(**changes)).stage(stage).warnings)


@pytest.fixture
def without_weights(opened: Resources, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A checkout that left out the packaged cross-encoder's weights."""
    monkeypatch.setattr(cross_encoder, "MiniLMJudge", lambda: MiniLMJudge(tmp_path / "nowhere"))
    monkeypatch.setattr(opened, "_shared", {})


@PACKAGED
def test_a_cross_encoder_that_is_nowhere_or_does_not_load_gives_way_to_the_packaged_one(
    opened: Resources, tmp_path: Path
) -> None:
    found = evidence(opened, **asking("no-such/model"))
    said = warned(found, **asking("no-such/model"))
    assert "cross-encoder no-such/model was not found" in said
    assert f"cross-encoder {MODEL_ID} (packaged with the workbench) takes its place" in said
    assert MODEL_ID in found.notes["models"]["reranker"]
    asked_by_name = evidence(opened, **asking(MODEL_ID))
    assert asked_by_name.model_scores[MODEL_ID] == {
        key: replace(score, detail={**(score.detail or {}), "cached": True})
        for key, score in found.model_scores["no-such/model"].items()
    }
    assert "takes its place" not in warned(asked_by_name, **asking(MODEL_ID))
    (tmp_path / "config.json").write_text('{"model_type": "bert", "hidden_size": 8}')
    (tmp_path / "model.safetensors").write_bytes(b"\x00" * 9)
    found = evidence(opened, **asking(str(tmp_path)))
    assert all(score.good for score in found.model_scores[str(tmp_path)].values())
    said = warned(found, **asking(str(tmp_path)))
    assert f"cross-encoder {tmp_path} cannot be loaded: " in said
    assert f"{MODEL_ID} (packaged with the workbench) takes its place" in said


def test_without_the_packaged_weights_late_interaction_takes_the_place_and_every_reason_is_named(
    opened: Resources, without_weights: None
) -> None:
    found = evidence(opened, **asking("no-such/model"))
    said = warned(found, **asking("no-such/model"))
    assert "no-such/model was not found" in said and f"{MODEL_ID} is not in this checkout" in said
    assert "late interaction" in said
    expected = evidence(opened, **RERANK).model_scores["late_interaction"]
    assert {key: score.raw for key, score in found.model_scores["no-such/model"].items()} == {
        key: score.raw for key, score in expected.items()
    }


@PACKAGED
def test_every_result_is_judged_and_the_ranking_stays_as_it_was(resources: Resources) -> None:
    """`auto` without another cross-encoder is the packaged one, on the first `max_chars` characters, without a warning."""
    found = evidence(resources, QUERY, judge__max_chars=40)
    judged = found.judge_scores["cross_encoder"]
    assert "takes its place" not in warned(found, "judge", judge__max_chars=40)
    config = configured(judge__max_chars=40)
    trace = replay(found, config)
    assert set(judged) == {result.memory_id for result in trace.results}
    assert {score.chunk for score in judged.values()} == {found.memories[key].content[:40] for key in judged}
    assert [row.raw for row in trace.stage("judge").rows if row.kept] == [
        judged[result.memory_id].raw for result in trace.results
    ]
    unjudged = replay(replace(found, judge_scores={}), config)
    assert [result.memory_id for result in unjudged.results] == list(judged)
    label = f"cross-encoder {MODEL_ID} (packaged with the workbench)"
    scale = MiniLMJudge().scale
    fields = trace.stage("judge").fields.to_json()
    assert found.notes["models"]["judge"] == fields["label"] == label
    assert (fields["threshold"], fields["bands"]) == (scale.threshold, list(scale.bands))


def test_lexical_list_takes_other_weights_stems_and_stop_words(opened: Resources, tmp_path: Path) -> None:
    query = "what about releasing the deploys of the api"
    usual = evidence(opened, query)
    index = opened.indexes.lexical
    weighted = evidence(opened, query, lists__lexical__k1=0.0)
    first = next(hit for ranked in weighted.lists if ranked.name == "lexical:0" for hit in ranked.hits)
    matched = index.contributions(first.memory_id, ["releas", "deploy", "api"])
    # With k1 0 a word counts its idf, however often it occurs and however long the text is.
    rare = map(index.document_frequency, matched)
    idfs = [math.log(1 + (index.document_count - df + 0.5) / (df + 0.5)) for df in rare]
    assert first.score == pytest.approx(sum(idfs), rel=1e-6)
    as_written = opened.lexical(configured(lists__lexical__stemming="none").lists.lexical)
    assert {"releasing", "releases", "deploys"} & as_written.vocabulary.keys()
    assert "deploys" not in index.vocabulary
    assert ids(evidence(opened, query, lists__lexical__stemming="none"), "lexical:0") != ids(usual, "lexical:0")
    (tmp_path / "stop.txt").write_text("deploys\nreleasing\napi", encoding="utf-8")
    stopped = evidence(opened, query, lists__lexical__stop_words=str(tmp_path / "stop.txt"))
    assert ids(stopped, "lexical:0")  # by "the", which is no stop word now
    assert "the" in opened.lexical(configured(lists__lexical__stop_words="none").lists.lexical).vocabulary
    with pytest.raises(InputError, match="no such stop words"):
        evidence(opened, query, lists__lexical__stop_words=str(tmp_path / "none.txt"))


def gathered(resources: Resources, backend: str, fires: bool, **changes: Any) -> tuple[list[str], list[str]]:
    """Variant texts and what gathering said of them; the probe's thresholds decide whether it fires."""
    values = {
        "expansion.backend": backend,
        "expansion.skip_on_strong_signal.threshold": 0.0 if fires else 1.0,
        "expansion.skip_on_strong_signal.gap": 0.0,
        "expansion.skip_on_strong_signal.scale": "saturating",
        "query.mode": "hybrid",
        **{path.replace("__", "."): value for path, value in changes.items()},
    }
    manual = ("undo a release",) if backend == "manual" else ()
    request = Request("wired deploy rollback", variants=manual)
    evidence = gather_lists(request, with_values(PipelineConfig(), values), resources)
    assert evidence.notes["expansion"]["probe"]["fires"] is fires
    assert len([ranked for ranked in evidence.lists if ranked.source == "vector"]) == len(evidence.variants)
    return [variant.text for variant in evidence.variants], evidence.notes["warnings"].get("expansion", [])


@pytest.mark.parametrize("backend", ["feedback", "dictionary"])
def test_a_strong_signal_skips_expansion_and_says_so(opened: Resources, backend: str) -> None:
    texts, said = gathered(opened, backend, fires=False)
    assert len(texts) == 2 and said == []
    assert gathered(opened, backend, fires=True) == (
        ["wired deploy rollback"],
        ["the strong-signal probe fired: no expansion was made"],
    )


def test_a_strong_signal_skips_neither_what_was_typed_nor_anything_while_it_is_off(opened: Resources) -> None:
    assert gathered(opened, "manual", fires=True) == (["wired deploy rollback", "undo a release"], [])
    texts, _ = gathered(opened, "dictionary", fires=True, expansion__skip_on_strong_signal__enabled=False)
    assert texts == ["wired deploy rollback", f"{SHIPPED['wired']} deploy rollback"]


def test_a_conversational_query_gets_no_lexical_list_and_no_expansion(opened: Resources) -> None:
    skips = {"expansion__skip_if_conversational": True, "lists__lexical__skip_if_conversational": True}
    skips |= {"expansion__backend": "dictionary", "expansion__skip_on_strong_signal__enabled": False}
    for query, enabled, lexical, variants in (
        ("is this wired up and working in production", True, False, 1),
        ("is this wired up and working in production", False, True, 2),
        ("how does hybrid search work", True, True, 1),
    ):
        found = evidence(opened, query, query__conversational__enabled=enabled, **skips)
        assert ("lexical" in {ranked.source for ranked in found.lists}, len(found.variants)) == (lexical, variants)


def test_an_expansion_may_replace_what_is_searched_while_rerankers_read_the_query(opened: Resources) -> None:
    values = {
        "expansion.backend": "dictionary",
        "expansion.skip_on_strong_signal.enabled": False,
        "variants.search": "replaced",
        "query.mode": "hybrid",
    }
    expanded = f"{SHIPPED['wired']} deploy rollback"
    found = gather_lists(Request("wired deploy rollback"), with_values(PipelineConfig(), values), opened)
    alone = gather_lists(Request(expanded), with_values(PipelineConfig(), {"query.mode": "hybrid"}), opened)
    assert [(variant.text, variant.kind) for variant in found.variants] == [(expanded, "original")]
    assert found.lists[:2] == alone.lists[:2]
    assert (found.corrected, found.searched) == ("wired deploy rollback", expanded)
    assert searched_lines(found.notes) == [f"searched instead of the query, its expansion: {expanded}"]
    plain = gather_lists(Request("deploy rollback"), with_values(PipelineConfig(), values), opened)
    assert plain.searched == "deploy rollback" and searched_lines(plain.notes) == []
    given = gather_lists(Request("wired", searched="deploy"), with_values(PipelineConfig(), values), opened)
    assert given.searched == "deploy"


QUERIES = (
    "how do we roll back a failed deploy?",
    "how many different doctors did I visit?",
    "which database did the team choose?",
)


@pytest.mark.parametrize(
    "where", [ANY, Filter("harbor/api", True), Filter(scope="shared")], ids=("all", "project", "scope")
)
def test_the_list_of_a_small_store_is_the_exact_one(resources: Resources, where: Filter) -> None:
    vectors = resources.indexes.vectors
    ids = vectors.ids(where)
    assert ids == sorted(resources.store.memories.read()) or not where.trivial
    for text in QUERIES:
        query = resources.embedder.encode_query(text)
        exact = exact_ranking(query, ids, embeddings_of(vectors))
        assert len(exact) == len(ids)
        answer = vectors.search(query, 50, where)
        assert recall_at(exact, answer, 50).missed == ()
        assert [memory_id for memory_id, _ in answer[:5]] == list(exact.ids[:5])
        assert largest_difference(exact, answer) < 1e-6


@partly
def test_the_parts_of_every_hit_sum_to_its_raw_score(resources: Resources) -> None:
    lexical, memories = resources.indexes.lexical, resources.store.memories.read()
    checked = 0
    for query in some(resources.store.queries.read(), 12):
        for memory_id, score in lexical.search(query.query, 25):
            texts = resources.store.indexes.texts([memory_id])[memory_id]
            found = lexical_evidence(lexical, query.query, memories[memory_id], texts)
            assert found.score == pytest.approx(score, rel=1e-6, abs=1e-6), (query.query, memory_id)
            assert sum(map(found.share, found.terms)) == pytest.approx(1, abs=1e-6)
            assert all(term.count > 0 for term in found.matched)
            assert all(term.count == 0 for term in found.unmatched)
            checked += 1
    assert checked > (1200 if THOROUGH else 100)


def test_the_heat_has_the_cosines_that_the_score_was_made_of(resources: Resources) -> None:
    reader, query = resources.late_interaction(), "how do we roll back a failed deploy?"
    text = "Frontend rollback: pick the previous hash; no deploy is needed."
    found, score = reader.cosines(query, text), reader.score(query, [text])[0]
    assert found.cosine.shape == (len(found.query), len(found.text))
    assert score.raw == pytest.approx(float(found.idf @ found.cosine.max(axis=1) / found.idf.sum()), abs=1e-6)
    assert score.detail is not None
    met = [found.text[place] for place in np.argmax(found.cosine, axis=1)]
    assert [entry["text"] for entry in score.detail["alignment"]] == met


def test_the_embedder_reads_as_far_as_its_room_goes(resources: Resources) -> None:
    room = embedder_room(resources.embedder)
    assert room is not None
    long = "the deploy of the gateway failed again and was rolled back " * 60
    cut = read_until(long, room)
    assert cut is not None
    head, more = long[:cut], long[: cut + 10]
    assert room.count(head) <= room.tokens < room.count(f"{more} gateway")
    vectors = resources.embedder.encode([long, f"{head} an end that is never read"])
    assert float(vectors[0] @ vectors[1]) > 0.999


CEMS = with_values(
    preset("cems").config,
    {"adjust.time_decay.mode": "none", "adjust.priority": False, "assembly.limit": 50, "assembly.max_tokens": None},
)
REQUEST = Request("When are we moving house?", as_of=datetime(2026, 8, 20, tzinfo=UTC))


def under(mode):
    return with_values(CEMS, {"supersession.mode": mode})


def ranks(evidence, mode):
    return {result.memory_id: result.rank for result in replay(evidence, under(mode)).results}


def test_stale_first_result_gives_way_to_its_successor(resources: Resources) -> None:
    evidence = gather_lists(REQUEST, CEMS, resources)
    assert [one.memory_id for one in evidence.superseded["m249"]] == ["m312"]
    before = ranks(evidence, "off")
    assert "m249" in before and before["m249"] < before.get("m312", 99)
    follow = ranks(evidence, "follow")
    assert follow["m312"] == before["m249"] and "m249" not in follow
    demote = ranks(evidence, "demote")
    assert demote.get("m249", 99) > demote["m312"]
    trace = replay(evidence, under("follow"))
    assert "supersession dropped it: superseded by m312" in cause(memory_path(trace, "m249", 10), trace)
