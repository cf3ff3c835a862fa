"""Edges, queries, grades, cached scores."""

from __future__ import annotations

import math

import pytest

from cems_workbench.models.protocol import PairScore
from cems_workbench.records import Judgment, Memory, Query, Relation
from cems_workbench.store import RowCounts
from cems_workbench.store.memories import MANY_IDS

MEMORIES = [Memory(name, name) for name in "abcd"]


def test_neighbours_count_in_both_directions_best_first_ties_by_id(store, rows):
    edges = [Relation("a", "b", weight=0.5), Relation("c", "a", weight=0.9), Relation("a", "d", weight=0.5)]
    store.add(rows(MEMORIES, edges))
    assert store.relations.neighbours(["a"], 9) == [("a", "c", 0.9), ("a", "b", 0.5), ("a", "d", 0.5)]
    assert store.relations.neighbours(["d", "a"], 1) == [("d", "a", 0.5), ("a", "c", 0.9)]
    assert store.relations.neighbours([], 5) == []


def test_edges_lead_one_way_each_by_itself_equal_ones_as_imported(store, rows):
    edges = [
        Relation("d", "c", "near", 0.5),
        Relation("d", "a", "near", 0.5),
        Relation("d", "a", "cites", 0.9),
        Relation("a", "b", "near", 0.4),
        Relation("c", "d", "near", 1.0),
    ]
    store.add(rows([Memory("c", "c"), Memory("b", "b"), Memory("a", "a"), Memory("d", "d")], edges))
    found = [(edge.source_id, edge.target_id, edge.weight) for edge in store.relations.leading_from(["a", "d"], 2)]
    assert found == [("a", "b", 0.4), ("d", "a", 0.9), ("d", "c", 0.5)]  # c was imported before a
    store.memories.delete("a")
    assert [edge.target_id for edge in store.relations.leading_from(["d"], 2)] == ["c"]


def test_a_pair_joined_twice_is_a_neighbour_once_by_its_best_weight(store, rows):
    edges = [Relation("a", "b", "cites", 0.2), Relation("b", "a", "near", 0.8), Relation("a", "a", "self", 1.0)]
    store.add(rows(MEMORIES, edges))
    assert store.relations.neighbours(["a"], 9) == [("a", "b", 0.8)]


def test_a_deleted_memory_is_nobodys_neighbour(store, rows):
    store.add(rows(MEMORIES, [Relation("a", "b")]))
    store.memories.delete("b")
    assert store.relations.neighbours(["a"], 9) == []


def test_relations_to_unknown_memories_are_reported_and_kept_out(store, rows):
    report = store.add(rows(MEMORIES, [Relation("a", "b"), Relation("a", "nobody"), Relation("nobody", "a")]))
    assert report.relations == RowCounts(added=1)
    assert [(error.row, error.field) for error in report.errors] == [(2, "target_id"), (3, "source_id")]
    assert "'nobody'" in report.errors[0].reason


def test_a_new_weight_updates_the_edge(store, rows):
    store.add(rows(MEMORIES, [Relation("a", "b", weight=0.5), Relation("a", "c")]))
    report = store.add(rows((), [Relation("a", "b", weight=0.7), Relation("a", "c")]))
    assert report.relations == RowCounts(updated=1, unchanged=1)
    assert store.relations.neighbours(["b"], 1) == [("b", "a", 0.7)]


def test_judgments_naming_unknown_queries_or_memories_are_reported(store, rows):
    judgments = [Judgment("q", "a", 1), Judgment("q?", "a", 1), Judgment("q", "m?", 1)]
    report = store.add(rows(MEMORIES, (), [Query("q", "text")], judgments))
    assert store.judgments.read() == [Judgment("q", "a", 1)]
    assert [(error.row, error.field) for error in report.errors] == [(2, "qid"), (3, "memory_id")]


def test_row_numbers_of_the_file_are_kept_in_errors(store, rows):
    from dataclasses import replace

    given = replace(rows(MEMORIES, [Relation("a", "x")]), extra={"rows": {"relations": [17]}})
    assert store.add(given).errors[0].row == 17


def test_another_grade_of_the_same_judge_replaces_the_old_one_with_a_note(store, rows):
    store.add(rows(MEMORIES, (), [Query("q", "text")], [Judgment("q", "a", 1), Judgment("q", "b", 0)]))
    report = store.add(rows((), (), (), [Judgment("q", "a", 3), Judgment("q", "a", 2, "Bo"), Judgment("q", "b", 0)]))
    assert report.judgments == RowCounts(added=1, updated=1, unchanged=1)
    assert report.notes == ("judgment q / a by human: grade 1 (from test) replaced by 3",)
    assert store.judgments.read("q") == [Judgment("q", "a", 2, "Bo"), Judgment("q", "a", 3), Judgment("q", "b", 0)]
    assert store.judgments.read("other") == []


def test_a_judgment_can_be_taken_back(store, rows):
    store.add(rows(MEMORIES, (), [Query("q", "text")], [Judgment("q", "a", 2)]))
    assert store.judgments.remove("q", "a")
    assert not store.judgments.remove("q", "a")
    assert store.judgments.read() == []


def test_judgments_of_deleted_memories_are_absent(store, rows):
    store.add(rows(MEMORIES, (), [Query("q", "text")], [Judgment("q", "a", 1)]))
    store.memories.delete("a")
    assert store.judgments.read() == []


def test_judged_queries_are_counted_anew_only_where_something_was_written(store, rows, monkeypatch):
    judgments = [Judgment("q", "a", 1), Judgment("r", "b", 1)]
    store.add(rows(MEMORIES, (), [Query("q", "text"), Query("r", "other")], judgments))
    assert store.judgments.count_queries("human") == 2
    with monkeypatch.context() as patch:
        patch.setattr("cems_workbench.store.memories.live", lambda *_: pytest.fail("they were counted again"))
        assert store.judgments.count_queries("human") == 2
    store.judgments.remove("q", "a")
    assert store.judgments.count_queries("human") == 1
    store.memories.delete("b")
    assert store.judgments.count_queries("human") == 0


def test_queries_round_trip_and_update(store, rows):
    from datetime import UTC, datetime

    asked = [Query("q1", "when?", "p", datetime(2024, 1, 1, tzinfo=UTC), "temporal"), Query("q2", "what?")]
    assert store.add(rows((), (), asked)).queries == RowCounts(added=2)
    assert store.queries.read() == asked
    assert store.add(rows((), (), [Query("q2", "how?")])).queries == RowCounts(updated=1)
    assert store.queries.read()[1] == Query("q2", "how?")


def test_scores_are_cached_by_model_query_and_exact_text_with_what_the_model_said(store):
    half, low = PairScore(0.5, detail={"outcome": "yes and no"}), PairScore(-3.0)
    store.scores.of("model@1", "q").write([("text", half), ("other", low)])
    assert store.scores.of("model@1", "q").read(["other", "text", "Text", "text"]) == [low, half, None, half]
    assert store.scores.of("model@2", "q").read(["text"]) == [None]
    assert store.scores.of("model@1", "r").read(["text"]) == [None]
    store.scores.of("model@1", "q").write([("text", PairScore(0.75))])
    assert store.scores.of("model@1", "q").read(["text"]) == [PairScore(0.75)]


def test_a_score_that_an_earlier_version_kept_for_a_reply_without_an_answer_is_asked_anew(store):
    kept = [
        ("text", PairScore(0.5, detail={"outcome": "uncertain"})),
        ("read", PairScore(0.8, detail={"truncated": True})),
    ]
    store.scores.of("m", "q").write(kept)
    assert store.scores.of("m", "q").read(["text", "read"]) == [None, kept[1][1]]


@pytest.mark.parametrize(
    "bad",
    [PairScore(math.nan), PairScore(math.inf), PairScore(-math.inf), PairScore(None), PairScore(0.5, "timeout: 30 s")],
)
def test_failures_and_scores_that_are_not_finite_are_never_cached(store, bad):
    store.scores.of("m", "q").write([("bad", bad), ("good", PairScore(1.0))])
    assert store.scores.of("m", "q").read(["bad", "good"]) == [None, PairScore(1.0)]


def test_of_many_judged_memories_the_deleted_ones_are_left_out_too(store, rows):
    names = [f"m{number}" for number in range(MANY_IDS + 1)]
    judged = [Judgment("q", name, 1) for name in names]
    store.add(rows([Memory(name, name) for name in names], queries=[Query("q", "what?")], judgments=judged))
    store.memories.delete("m7")
    assert {one.memory_id for one in store.judgments.read()} == {*names} - {"m7"}


@pytest.mark.parametrize("most", [0, 250_000])
def test_superseding_edges_are_read_along_the_chain_in_every_kind(store, rows, monkeypatch, most):
    monkeypatch.setattr("cems_workbench.store.relations.MOST_CACHED", most)
    memories = tuple(Memory(name, f"text of {name}", project="p") for name in "abcde")
    edges = [
        Relation("b", "a", "supersedes"),
        Relation("b", "c", "replaced_by"),
        Relation("d", "c", "related"),
        Relation("a", "e", "superseded_by"),
    ]
    store.add(rows(memories, edges))
    assert store.relations.has_superseding()
    found = store.relations.superseding(["a", "d"])
    assert [(edge.older, edge.newer, edge.kind) for edge in found] == [
        ("a", "b", "supersedes"),
        ("a", "e", "superseded_by"),
        ("b", "c", "replaced_by"),
    ]
    assert {(edge.live, edge.project, edge.scope) for edge in found} == {(True, "p", "personal")}
    store.memories.delete("b")
    assert [edge.newer for edge in store.relations.superseding(["a"]) if edge.live] == ["e", "c"]
    assert store.relations.superseding(["d"]) == []
