"""A memory taken out, and one that does not exist yet: the evidence is what gathering makes after a real deletion and a real import."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from cems_workbench.analysis.edited_evidence import Edit, edited_evidence
from cems_workbench.analysis.what_if import absence, applied, new_memory, presence
from cems_workbench.config import PipelineConfig, preset, with_values
from cems_workbench.errors import InputError
from cems_workbench.pipeline import Evidence, replay
from cems_workbench.pipeline.evidence import RankedList
from cems_workbench.pipeline.gather import Request, gather_lists
from cems_workbench.pipeline.resources import Resources
from cems_workbench.records import Memory, ParsedInput
from tests.sample import FAILING, MOVING
from tests.thoroughly import first_of

pytestmark = [pytest.mark.models]
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
