"""What-if on the sample store: an edited, absent or new memory gives the evidence that gathering makes after the real change."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from cems_workbench.analysis.edited_evidence import Edit, edited_evidence
from cems_workbench.analysis.vector_change import NDCG
from cems_workbench.analysis.what_if import absence, applied, new_memory, presence
from cems_workbench.config import PipelineConfig, preset, with_values
from cems_workbench.errors import InputError
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.jobs.evaluation import agreed
from cems_workbench.jobs.factory import servers
from cems_workbench.jobs.query_set_evidence import ALL_QUERIES, request_for, selected
from cems_workbench.jobs.vector_change import embedder_named, vector_change
from cems_workbench.models.minilm_embedder import local_embedder
from cems_workbench.models.resolve import EIGHT_BIT_ID
from cems_workbench.pipeline import Evidence, replay
from cems_workbench.pipeline.evidence import RankedList
from cems_workbench.pipeline.gather import Request, gather, gather_lists, gather_scores
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages import LISTS
from cems_workbench.records import Judgment, Memory, ParsedInput, Query
from cems_workbench.settings import Settings
from cems_workbench.store import Store
from tests.planted_source import Words
from tests.sample import FAILING, MOVING
from tests.thoroughly import first_of

RAM = Request("browser eats all the RAM if I leave it open until evening", as_of=datetime(2026, 8, 30, tzinfo=UTC))


def standings(evidence: Evidence) -> dict[str, list[str]]:
    return {ranked.name: [hit.memory_id for hit in ranked.hits] for ranked in evidence.lists}


def scores(evidence: Evidence, memory_id: str) -> dict[str, float]:
    return {ranked.name: hit.score for ranked in evidence.lists for hit in ranked.hits if hit.memory_id == memory_id}


def gathered(config: PipelineConfig, resources: Resources, request: Request = RAM) -> Evidence:
    return gather_lists(request, config, resources)


def change(edited: Memory, resources: Resources) -> Edit:
    return Edit(resources.store.memories.get(edited.id), edited, resources)


@pytest.fixture
def cems() -> Iterator[PipelineConfig]:
    yield preset("cems").config


def test_an_edit_of_nothing_gives_the_same_evidence(resources: Resources, cems: PipelineConfig) -> None:
    evidence = gathered(cems, resources)
    memory = evidence.memories["m089"]
    scratch = edited_evidence(change(memory, resources), evidence, cems, RAM)
    assert scratch.lists == evidence.lists
    assert dict(scratch.memories) == dict(evidence.memories)
    assert applied(change(memory, resources), evidence, cems, RAM).others() == []


@pytest.mark.parametrize(
    "edit",
    [{}, {"created_at": datetime(2026, 8, 29, tzinfo=UTC)}, {"content": "Nothing of it is left.", "title": None}],
    ids=["nothing", "dates", "a text without it"],
)
def test_lists_that_replay_makes_are_made_of_the_edit_too(resources: Resources, edit: dict[str, object]) -> None:
    config = preset("cems_head").config
    evidence = gathered(config, resources)
    edited = replace(evidence.memories["m089"], **edit)  # type: ignore[arg-type]
    outcome = applied(change(edited, resources), evidence, config, RAM)
    if not edit:
        assert outcome.before.evidence.lists == outcome.after.evidence.lists
        assert outcome.before.evidence.relations == outcome.after.evidence.relations
    resources.store.memories.update(edited)
    real = replay(gathered(config, resources), config)
    ours, theirs = (
        {entry.list: (entry.rank, entry.chunk) for entry in trace.stage(LISTS).by_id["m089"].lists}
        for trace in (outcome.after, real)
    )
    assert ours == theirs
    assert [row.memory_id for row in outcome.after.results] == [row.memory_id for row in real.results]


@pytest.mark.parametrize(
    "edit",
    [
        {"created_at": datetime(2026, 8, 29, tzinfo=UTC), "access_count": 900},
        {"project": "harbor/api", "scope": "shared"},
        {"content": "Nothing of it is left.", "title": None},
        {"content": "The browser eats RAM in the evening when it is left open: an EventSource leaks.", "priority": 2.0},
    ],
    ids=["dates", "project", "a text without it", "a text with it"],
)
def test_it_is_what_gathering_finds_after_a_real_edit(
    resources: Resources, cems: PipelineConfig, edit: dict[str, object]
) -> None:
    """Every list holds the same memories in the same order, but for neighbours in BM25 that its new statistics exchange."""
    evidence = gathered(cems, resources)
    edited = replace(evidence.memories["m089"], **edit)  # type: ignore[arg-type]
    scratch = edited_evidence(change(edited, resources), evidence, cems, RAM)
    resources.store.memories.update(edited)
    real = gathered(cems, resources)
    assert scores(scratch, "m089").keys() == scores(real, "m089").keys()
    for name, score in scores(real, "m089").items():
        assert scores(scratch, "m089")[name] == pytest.approx(score, rel=0.05, abs=1e-5), (
            name
        )  # idf and mean length follow
    ours, theirs = standings(scratch), standings(real)
    assert ours["vector:0"] == theirs["vector:0"]
    assert (
        abs(ours["lexical:0"].index("m089") - theirs["lexical:0"].index("m089")) <= 1
        if "m089" in theirs["lexical:0"]
        else True
    )
    assert scratch.memories.keys() == real.memories.keys() or len(scratch.memories.keys() ^ real.memories.keys()) <= 2


def test_a_text_that_says_it_brings_the_memory_to_the_top_and_the_store_stays_as_it_is(
    resources: Resources, cems: PipelineConfig
) -> None:
    evidence = gathered(cems, resources)
    before, version = resources.store.memories.read(), resources.store.content_version
    edited = replace(
        evidence.memories["m089"],
        content="The browser eats all the RAM when it is left open until evening.",
        created_at=datetime(2026, 8, 29, tzinfo=UTC),
    )
    found = applied(change(edited, resources), evidence, cems, RAM)
    before_rank, after_rank = found.rank
    assert before_rank is None and after_rank is not None and after_rank <= 3
    assert {name for name, _, _ in found.changes} == {"content", "created_at"}
    lists = {pair.name: pair for pair in found.lists()}
    assert lists["lexical:0"].after is not None and lists["lexical:0"].after.rank == 1
    assert found.approximated == ()
    assert found.others() and all(moved.memory_id != "m089" for moved in found.others())
    assert resources.store.memories.read() == before and resources.store.content_version == version


def test_a_memory_that_is_no_candidate_enters_the_lists_it_is_good_enough_for(resources: Resources) -> None:
    config = with_values(preset("cems").config, {"lists.vector.depth": 10, "lists.lexical.depth": 5})
    evidence = gathered(config, resources)
    stranger = next(memory for key, memory in resources.store.memories.read().items() if key not in evidence.memories)
    edited = replace(stranger, content="The browser eats all the RAM until evening.")
    scratch = edited_evidence(change(edited, resources), evidence, config, RAM)
    assert {"vector:0", "lexical:0", "recency"} <= scores(scratch, stranger.id).keys()
    for name, depth in (("vector:0", 10), ("lexical:0", 5)):
        assert len(standings(scratch)[name]) == depth
        assert standings(evidence)[name][-1] not in standings(scratch)[name]


def test_a_changed_text_is_asked_of_the_reranker_again(resources: Resources) -> None:
    config = with_values(preset("cems").config, {"rerank.backend": "late_interaction"})
    evidence = gather_scores(gathered(config, resources), config, resources, only="rerank")
    head = next(iter(evidence.model_scores.values()))
    memory_id = next(iter(sorted(head)))
    edited = replace(evidence.memories[memory_id], content="The browser eats all the RAM until evening.")
    found = applied(change(edited, resources), evidence, config, RAM)
    anew = next(iter(found.after.evidence.model_scores.values()))
    assert (anew[memory_id].chunk or "").startswith(edited.content) and anew[memory_id].good
    others = set(head) - {memory_id}
    assert {key: anew[key] for key in others} == {key: head[key] for key in others}
    assert not found.after.needs


@pytest.mark.parametrize(
    "edit",
    [{"content": "Shall the frontend stay open until the evening?"}, {"session": "another"}],
    ids=["words", "place"],
)
def test_what_follows_an_edited_question_is_read_with_it_as_edited(
    resources: Resources, edit: dict[str, object]
) -> None:
    config = with_values(preset("workbench").config, {"rerank.depth": 60})
    at = datetime(2026, 8, 20, tzinfo=UTC)
    question = Memory("asked", "What eats all the RAM of the browser?", session="a talk", created_at=at)
    answer = Memory(
        "answered",
        "The browser holds an event stream open until the evening.",
        session="a talk",
        created_at=at + timedelta(minutes=1),
    )
    resources.store.add(ParsedInput("a talk", "jsonl", memories=(question, answer)))
    evidence = gather(RAM, config, resources)
    assert evidence.questions["answered"] == question.content
    edited = replace(question, **edit)  # type: ignore[arg-type]
    ours = applied(change(edited, resources), evidence, config, RAM).after.evidence
    resources.store.memories.update(edited)
    real = gather(RAM, config, resources)
    assert ours.questions == real.questions
    [(model, theirs)] = real.model_scores.items()
    found = {key: (score.raw, score.chunk) for key, score in ours.model_scores[model].items() if key in theirs}
    assert found == {key: (score.raw, score.chunk) for key, score in theirs.items() if key in found}
    assert {"asked", "answered"} <= found.keys()
    assert found["answered"] != (
        evidence.model_scores[model]["answered"].raw,
        evidence.model_scores[model]["answered"].chunk,
    )


MOMENT = datetime(2026, 9, 1, tzinfo=UTC)
REQUESTS = [
    Request(FAILING, as_of=MOMENT),
    Request(MOVING, as_of=MOMENT),
    Request("postgres upgrade", "harbor/api", MOMENT, only_project=True),
    Request("where did we leave off", "harbor/dashboard", MOMENT),
]
PRESETS = first_of(("cems", "workbench", "cems_head", "ace", "mem0", "letta"))
NOTE = "The browser eats all the RAM when it is left open until evening: an EventSource leaks in the harbor dashboard."


def orders(evidence: Evidence) -> dict[str, list[str]]:
    return {ranked.name: [hit.memory_id for hit in ranked.hits] for ranked in evidence.lists}


def tied(ranked: RankedList) -> list[tuple[float, set[str]]]:
    """The memories by score, but for the last score, which the end of the list cuts."""
    scores = sorted({hit.score for hit in ranked.hits}, reverse=True)[:-1]
    return [(score, {hit.memory_id for hit in ranked.hits if hit.score == score}) for score in scores]


def assert_same(ours: Evidence, real: Evidence, config: PipelineConfig) -> None:
    """Every list has the same memories in the same order, and the stages rank them alike.

    Only PostgreSQL's order of equal ranks depends on where a row was written.
    """
    found, wanted = orders(ours), orders(real)
    for mine, theirs in zip(ours.lists, real.lists, strict=True):
        if mine.source == "ts_rank":
            assert tied(mine) == tied(theirs)
    if any(name.startswith("ts_rank") and found[name] != order for name, order in wanted.items()):
        assert found["vector:0"] == wanted["vector:0"] and found["lexical:0"] == wanted["lexical:0"]
        return
    assert found == wanted
    assert set(ours.memories) == set(real.memories)
    assert ours.superseded == real.superseded and ours.relations == real.relations
    assert [row.memory_id for row in replay(ours, config).results] == [
        row.memory_id for row in replay(real, config).results
    ]


def quick(name: str) -> PipelineConfig:
    """The preset without a model that reads pairs, which is tested elsewhere."""
    return with_values(preset(name).config, {"rerank.backend": "none", "judge.backend": "none"})


@pytest.mark.parametrize("name", PRESETS)
def test_absent_is_what_gathering_finds_after_a_deletion(resources: Resources, name: str) -> None:
    config, store = quick(name), resources.store
    for request in REQUESTS:
        evidence = gather_lists(request, config, resources)
        first = evidence.lists[0].hits[0].memory_id
        for memory_id in (first, max(evidence.memories.keys() - {first})):
            before = store.memories.read(), store.content_version
            ours = edited_evidence(absence(memory_id, resources), evidence, config, request)
            assert (store.memories.read(), store.content_version) == before
            stored = store.memories.get(memory_id)
            assert stored is not None and memory_id not in ours.memories
            store.memories.delete(memory_id)
            assert_same(ours, gather_lists(request, config, resources), config)
            store.memories.restore(memory_id)


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("text", [NOTE, "zwetschgen", "\n\n".join([NOTE] * 60)], ids=["matching", "alien", "long"])
def test_present_is_what_gathering_finds_after_an_import(resources: Resources, name: str, text: str) -> None:
    config, store = quick(name), resources.store
    evidences = [gather_lists(request, config, resources) for request in REQUESTS]
    before = store.memories.read(), store.content_version
    new = new_memory(text, resources, project="harbor/api", created_at=datetime(2026, 8, 20, tzinfo=UTC))
    edit = Edit(None, new, resources)
    ours = [
        edited_evidence(edit, evidence, config, request) for evidence, request in zip(evidences, REQUESTS, strict=True)
    ]
    assert (store.memories.read(), store.content_version) == before
    store.add(ParsedInput("a note", "jsonl", memories=(new,)))
    for request, found in zip(REQUESTS, ours, strict=True):
        assert_same(found, gather_lists(request, config, resources), config)


@pytest.mark.parametrize("name", first_of(("engram_search", "mem0_keyword")))
def test_a_list_that_is_not_searched_again_is_kept_and_named(resources: Resources, name: str) -> None:
    config, request = quick(name), REQUESTS[1]
    evidence = gather_lists(request, config, resources)
    kept = [ranked for ranked in evidence.lists if ranked.source in ("sparse", "fts5") and ranked.hits]
    memory_id = kept[0].hits[0].memory_id
    found = applied(absence(memory_id, resources), evidence, config, request)
    after = {ranked.name: [hit.memory_id for hit in ranked.hits] for ranked in found.after.evidence.lists}
    assert list(after) == [ranked.name for ranked in evidence.lists]
    for ranked in kept:
        assert after[ranked.name] == [hit.memory_id for hit in ranked.hits if hit.memory_id != memory_id]
        assert ranked.name in found.certainty
    new = applied(presence(new_memory("zwetschgen", resources), resources), evidence, config, request)
    assert orders(new.after.evidence)[kept[0].name] == orders(evidence)[kept[0].name]
    assert kept[0].name in new.certainty


@pytest.mark.parametrize(
    ("text", "said"), [("  \n", "text: it is empty"), ("x" * 100_001, "it has 100,001 characters, and at most 100,000")]
)
def test_a_text_that_cannot_be_tried_is_one_line(resources: Resources, text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        new_memory(text, resources)


def test_an_id_that_is_not_there_names_the_nearest_and_evidence_without_a_list_says_so(resources: Resources) -> None:
    config, request = quick("workbench"), REQUESTS[0]
    evidence = gather_lists(request, config, resources)
    with pytest.raises(InputError, match=r"m3122: no such memory; the nearest are .*m312"):
        absence("m3122", resources)
    with pytest.raises(InputError, match="has no list of a search"):
        applied(absence("m312", resources), replace(evidence, lists=()), config, request)
    with pytest.raises(InputError, match="m312: the store has such a memory"):
        presence(Memory("m312", "a text"), resources)


def test_a_note_of_another_project_is_not_found_where_the_search_is_restricted(resources: Resources) -> None:
    config, request = quick("workbench"), REQUESTS[2]
    evidence = gather_lists(request, config, resources)
    elsewhere = new_memory("postgres upgrade", resources, project="ostrow/tidemark")
    found = applied(presence(elsewhere, resources), evidence, config, request)
    assert found.rank == (None, None) and "no list would find it" in found.sentence and found.others() == []
    inside = applied(presence(replace(elsewhere, project="harbor/api"), resources), evidence, config, request)
    assert inside.rank[1] is not None and inside.left(10)[0].memory_id in inside.sentence


def test_what_comes_in_the_place_of_the_first_result(resources: Resources) -> None:
    config, request = quick("cems"), REQUESTS[1]
    evidence = gather_lists(request, config, resources)
    results = [row.memory_id for row in replay(evidence, config).results]
    found = applied(absence(results[0], resources), evidence, config, request)
    after = [row.memory_id for row in found.after.results]
    came = [key for key in after if key not in results]
    assert len(results) == len(after) == 10 and len(came) == 1 and results[0] not in after
    assert [one.memory_id for one in found.came(10)] == came and found.left(10) == []
    assert f"{came[0]} comes into the first 10" in found.sentence and found.approximated == ()


def test_another_embedder_is_estimated_and_one_that_is_none_is_one_line(
    resources: Resources, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cems_workbench.jobs.vector_change.PIPELINE_DRAWS", 4)
    share = 0.97  # of the sample 415 of 438 memories are judged
    config, other = quick("workbench"), local_embedder(EIGHT_BIT_ID)
    found = vector_change(ALL_QUERIES, resources, config, other=other, share=share)
    assert found.whole is not None
    for one in (found.alone, found.whole):
        assert one.low <= one.change <= one.high and one.high - one.low < 0.01
    assert (found.embedded, found.vectors, found.memories, found.queries) == (449, 463, 438, 121)
    with pytest.raises(InputError, match=r"memories are judged; embed at least 0\.9"):
        vector_change(ALL_QUERIES, resources, config, other=other)
    with pytest.raises(InputError, match=r"the store's vectors are of this model"):
        vector_change(ALL_QUERIES, resources, config, other=resources.embedder, share=share)
    with pytest.raises(InputError, match=r"--embedder nowhere: not found"):
        embedder_named("nowhere", Settings())
    with pytest.raises(InputError, match=r"chunks: 'cmes' is not one of .*did you mean cems"):
        vector_change(ALL_QUERIES, resources, config, rule="cmes")


def first_change(resources: Resources, changed: Resources, config: PipelineConfig) -> float:
    """How the config's nDCG@10 differs in a store that was changed in full."""
    values, moment = [], datetime.now(UTC)
    for side in (resources, changed):
        selection, judgments = selected(ALL_QUERIES, side, True)
        evidences = {one.qid: gather(request_for(one, moment), config, side) for one in selection.queries}
        batch = LabelledBatch(selection.queries, evidences, agreed(judgments, None).grades)
        values.append(float(np.nanmean(NDCG.values(batch.rankings(config).graded))))
    return values[1] - values[0]


@pytest.mark.parametrize("name", ["cems", "openclaw", "engram_recall"])  # fused; with chunks as results; of a pool
def test_with_all_vectors_the_change_is_that_of_a_store_that_was_changed_in_full(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cems_workbench.jobs.vector_change.PIPELINE_DRAWS", 4)
    chance, words = random.Random(1), [f"word{i}" for i in range(300)]
    texts = [" ".join(chance.choices(words, k=chance.choice((20, 300, 600)))) for _ in range(120)]
    memories = tuple(Memory(f"m{i}", text) for i, text in enumerate(texts))
    queries = tuple(Query(f"q{i}", " ".join(text.split()[:6])) for i, text in enumerate(texts[:10]))
    judgments = tuple(Judgment(query.qid, f"m{i}", 1) for i, query in enumerate(queries))
    config = with_values(quick(name), {"lists.vector.depth": 20})
    with Store.open(tmp_path / "store") as store:
        store.add(ParsedInput("memories", "test", memories=memories))
        store.add(ParsedInput("labels", "test", queries=queries, judgments=judgments))
        resources = Resources(store, Words(), servers(Settings()))
        resources.refresh()
        store.copy(tmp_path / "cut")
        with Store.open(tmp_path / "cut") as copy:
            copy.chunks.choose("openclaw")
            cut = Resources(copy, Words(), resources.servers)
            cut.refresh()
            true = first_change(resources, cut, config)
        found = vector_change(ALL_QUERIES, resources, config, rule="openclaw", share=1).whole
        assert found is not None and found.low == found.high == pytest.approx(true) and true != 0
        assert vector_change(ALL_QUERIES, resources, config, rule="openclaw", share=0.5).embedded < 200
        assert store.chunks.rule == "embedder"
