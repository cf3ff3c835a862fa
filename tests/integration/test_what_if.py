"""What-if on a memory of the sample store: the evidence that the library makes is the one that gathering makes after a real edit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from cems_workbench.analysis import text_evidence as bm25
from cems_workbench.analysis.edited_evidence import Edit, edited_evidence
from cems_workbench.analysis.what_if import absence, applied
from cems_workbench.config import PipelineConfig, preset, with_values
from cems_workbench.errors import InputError
from cems_workbench.pipeline import Evidence, replay
from cems_workbench.pipeline.gather import Request, gather, gather_lists, gather_scores
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages import LISTS
from cems_workbench.records import Memory, ParsedInput

pytestmark = [pytest.mark.models]
RAM = Request("browser eats all the RAM if I leave it open until evening", as_of=datetime(2026, 8, 30, tzinfo=UTC))
QUERIES = (
    "postgres upgrade pool",
    "which package manager does the frontend use",
    "v1.2.3 release ORA-00942 useInvoiceStream",
)


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


def test_bm25_of_every_unchanged_text_is_that_of_the_index(resources: Resources) -> None:
    memories = resources.store.memories.read()
    index = resources.indexes.lexical
    texts = resources.store.indexes.texts(list(memories))
    compared = 0
    for query in QUERIES:
        for memory_id, found in index.search(query, index.document_count):
            own = max(bm25.score(index, query, text) for text in texts[memory_id].values())
            assert own == pytest.approx(found, rel=1e-6, abs=1e-6), (query, memory_id)
            compared += 1
    assert compared > 100


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


def test_a_memory_that_falls_out_of_a_list_makes_room_for_the_next(resources: Resources) -> None:
    config = with_values(preset("cems").config, {"lists.vector.depth": 5})
    evidence = gathered(config, resources)
    first = standings(evidence)["vector:0"][0]
    edited = replace(evidence.memories[first], content="Zwetschgen.", title=None)
    scratch = edited_evidence(change(edited, resources), evidence, config, RAM)
    assert first not in standings(scratch)["vector:0"]
    assert standings(scratch)["vector:0"][:4] == standings(evidence)["vector:0"][1:]
    assert len(standings(scratch)["vector:0"]) == 5


def test_a_project_that_is_not_searched_takes_the_memory_out_of_every_list(
    resources: Resources, cems: PipelineConfig
) -> None:
    request = Request("postgres upgrade", "harbor/api", RAM.as_of, only_project=True)
    evidence = gathered(cems, resources, request)
    first = standings(evidence)["vector:0"][0]
    elsewhere = replace(evidence.memories[first], project="ostrow/tidemark")
    found = applied(change(elsewhere, resources), evidence, cems, request)
    assert scores(found.after.evidence, first) == {} and found.rank[1] is None


def test_the_pool_of_recent_accesses_takes_and_leaves_it_by_its_date(
    resources: Resources, cems: PipelineConfig
) -> None:
    config = with_values(
        cems, {"lists.candidate_set.mode": "recent_access", "lists.candidate_set.size": 20, "query.mode": "vector"}
    )
    evidence = gathered(config, resources)
    pool = set(standings(evidence)["vector:0"])
    old = next(memory for key, memory in resources.store.memories.read().items() if key not in pool)
    opened = replace(old, last_accessed=datetime(2027, 1, 1, tzinfo=UTC))
    scratch = edited_evidence(change(opened, resources), evidence, config, RAM)
    assert old.id in standings(scratch)["vector:0"] and len(set(standings(scratch)["vector:0"])) == len(pool)
    resources.store.memories.update(opened)
    assert standings(scratch) == standings(gathered(config, resources))


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


def test_a_memory_that_is_gone_is_one_line(resources: Resources) -> None:
    with pytest.raises(InputError, match="nobody: no such memory"):
        absence("nobody", resources)


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
