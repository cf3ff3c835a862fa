"""Recorded lists in place of ours: which stands for which, and what replay makes of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cems_workbench.config import PipelineConfig, preset, with_values
from cems_workbench.errors import InputError
from cems_workbench.formats.recorded_answers import Recording
from cems_workbench.jobs.recorded_lists import list_map, with_lists, with_map, without_words
from cems_workbench.pipeline import replay
from cems_workbench.pipeline.resources import Resources
from cems_workbench.records import Memory, RankedIds, RecordedAnswer
from tests.unit.pipeline.cases import evidence

BASE = with_values(
    preset("cems_head").config,
    {
        "lists.hybrid.enabled": False,
        "lists.vector.enabled": True,
        "lists.lexical.enabled": True,
        "lists.lexical.normalization": "max",
        "filter.min_score": None,
        "gap.ratio": 0.0,
    },
)


def answered(**lists: RankedIds) -> Recording:
    return Recording(
        "a.json", "recording", (RecordedAnswer(1, "q", "x", None, (), {k: (v,) for k, v in lists.items()}),)
    )


def store_of(memories: Mapping[str, Memory]) -> Resources:
    """Resources whose store has these memories, without chunks or embeddings."""

    def read(ids: Iterable[str]) -> dict[str, Memory]:
        return {key: memories[key] for key in ids if key in memories}

    none = SimpleNamespace(read=lambda ids: {})
    vectors = SimpleNamespace(embeddings=lambda ids: {})
    fake: Any = SimpleNamespace(
        store=SimpleNamespace(memories=SimpleNamespace(read=read), chunks=none),
        indexes=SimpleNamespace(vectors=vectors),
    )
    return cast(Resources, fake)


def test_a_recorded_list_stands_for_ours_by_what_systems_call_it() -> None:
    rows = (("a", 1.0),)
    found = list_map(answered(semantic=rows, keyword=rows, keyword_unit=rows, entity=rows, access=rows), BASE)
    assert found.sources == {"semantic": "vector", "keyword": "lexical", "access": "access"}
    assert found.doubts == ("the recorded list entity is not used: no list of the config stands for it",)
    assert list_map(answered(dense=rows), BASE, {"dense": "relations"}).sources == {"dense": "relations"}
    with pytest.raises(InputError, match="no list bm25; its lists: dense"):
        list_map(answered(dense=rows), BASE, {"bm25": "lexical"})


def test_scores_that_are_normalised_already_are_not_normalised_again() -> None:
    found = list_map(answered(keyword_unit=(("a", 0.9),)), BASE)
    assert with_map(BASE, found) == {"lists.lexical.normalization": "none"}
    assert with_map(BASE, list_map(answered(keyword=(("a", 9.0),)), BASE)) == {}


def test_recorded_lists_are_replayed_in_the_recorded_order_with_memories_that_ours_lack() -> None:
    """Equal scores stand as recorded, not by id; z is a memory of the store that no list of ours found, and n of none."""
    ours = evidence({"vector": {"a": 0.9, "b": 0.8}, "lexical": {"a": 3.0}})
    recording = answered(vector=(("z", 0.5), ("b", 0.5), ("n", 0.5), ("a", 0.5)), lexical=())
    found = with_lists(
        ours, recording.answers[0], list_map(recording, BASE), "recorded", BASE, store_of({"z": Memory("z", "new")})
    )
    assert [row.memory_id for row in replay(found, BASE).results] == ["z", "b", "a"]
    assert found.memories["z"].content == "new"
    assert [(one.name, len(one.hits)) for one in found.lists if one.variant is not None] == [
        ("vector:0", 3),
        ("lexical:0", 0),
    ]


def test_a_list_that_another_query_has_is_empty_for_this_one() -> None:
    ours = evidence({"vector": {"a": 0.9}, "lexical": {"b": 3.0}})
    recording = Recording(
        "a.json",
        "recording",
        (
            RecordedAnswer(1, "q", "x", None, (), {"vector": ((("a", 0.9),),)}),
            RecordedAnswer(2, "r", "x", None, (), {"lexical": ((("b", 0.9),),)}),
        ),
    )
    found = with_lists(ours, recording.answers[0], list_map(recording, BASE), "recorded", BASE, store_of({}))
    assert [row.memory_id for row in replay(found, BASE).results] == ["a"]


def test_ties_of_our_lists_stand_in_the_recorded_order_and_others_stay() -> None:
    ours = evidence({"vector": {"a": 0.9, "b": 0.5, "c": 0.5, "d": 0.4}})
    recording = answered(vector=(("c", 0.5), ("b", 0.5), ("d", 0.4), ("a", 0.1)))
    found = with_lists(ours, recording.answers[0], list_map(recording, BASE), "ties", BASE, store_of({}))
    assert [row.memory_id for row in replay(found, BASE).results] == ["a", "c", "b", "d"]
    assert with_lists(ours, recording.answers[0], list_map(recording, BASE), "own", BASE, store_of({})) is ours


def test_a_recorded_vector_score_is_on_the_scale_of_the_config() -> None:
    config: PipelineConfig = with_values(BASE, {"lists.vector.scale": "half_cosine"})
    ours = evidence({"vector": {"a": 0.9}})
    recording = answered(vector=(("a", 0.75),))
    found = with_lists(ours, recording.answers[0], list_map(recording, config), "recorded", config, store_of({}))
    (vector,) = [one for one in found.lists if one.source == "vector"]
    assert vector.hits[0].score == 0.5


def test_lists_without_scores_keep_the_scores_of_ours() -> None:
    ours = evidence({"vector": {"a": 0.9, "b": 0.8}})
    recording = answered(vector=(("b", 0.0), ("a", 0.0), ("z", 0.0)))
    found = with_lists(
        ours, recording.answers[0], list_map(recording, BASE), "recorded", BASE, store_of({"z": Memory("z", "")})
    )
    (vector,) = [one for one in found.lists if one.source == "vector"]
    assert [(hit.memory_id, hit.score) for hit in vector.hits] == [("b", 0.8), ("a", 0.9), ("z", 0.9)]


def test_a_query_that_was_searched_by_vector_alone_has_no_list_by_words() -> None:
    found = without_words(evidence({"vector": {"a": 0.9}, "lexical": {"b": 3.0}}))
    assert [one.source for one in found.lists if one.variant is not None] == ["vector"]
