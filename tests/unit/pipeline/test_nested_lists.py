"""Lists that replay makes of others, chunks, and what CEMS does after them, by hand.

Four memories; L is long and has three chunks. By meaning: L/2, A, L/0, B, C. By ts_rank: B, L/2, C.
With share 0.4 and k 60 the chunks score

    L/2  0.4/61 + 0.6/62     B  0.4/64 + 0.6/61     A  0.4/62     L/0  0.4/63     C  0.4/65 + 0.6/63
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cems_workbench.config import PipelineConfig, preset, with_values
from cems_workbench.pipeline import Evidence, Trace, bundle_from, evidence_from, replay
from cems_workbench.pipeline.evidence import Hit, RankedList, Variant
from cems_workbench.pipeline.redact import redacted
from cems_workbench.records import Chunk, Memory, Relation

NOW = datetime(2026, 11, 22, tzinfo=UTC)
L2, B, A, L0, C = 0.4 / 61 + 0.6 / 62, 0.4 / 64 + 0.6 / 61, 0.4 / 62, 0.4 / 63, 0.4 / 65 + 0.6 / 63


def memory(name: str, **values: Any) -> Memory:
    return Memory(name, f"{name} " * 20, created_at=NOW, **values)


def evidence(query: str = "where is it", relations: tuple[Relation, ...] = (), **changed: Memory) -> Evidence:
    memories = {name: memory(name) for name in "ABCL"} | changed
    vector = (Hit("L", 0.9, 2), Hit("A", 0.8), Hit("L", 0.7, 0), Hit("B", 0.6), Hit("C", 0.5))
    text = (Hit("B", 0.06), Hit("L", 0.04, 2), Hit("C", 0.04))
    return Evidence(
        query=query,
        memories=memories,
        variants=(Variant(query),),
        lists=(RankedList("vector:0", "vector", 0, vector), RankedList("ts_rank:0", "ts_rank", 0, text)),
        as_of=NOW,
        chunks={"L": tuple(Chunk("L", seq, text, 0) for seq, text in enumerate(("one", "two", "three is long")))},
        relations=relations,
        tokens={"A": (5,), "B": (7,), "C": (4,), "L": (100, 1, 1, 3)},
    )


def config(**changes: Any) -> PipelineConfig:
    plain = {
        "filter.min_score": None,
        "gap.ratio": 0.0,
        "adjust.time_decay.mode": "none",
        "lists.relations.enabled": False,
    }
    return with_values(
        preset("cems_head").config, plain | {key.replace("__", "."): value for key, value in changes.items()}
    )


def hybrid(trace: Trace) -> dict[str, tuple[int, float, int | None]]:
    """Of each memory in the hybrid list, cut to its depth and pool, its rank, score and chunk."""
    entries = [(row.memory_id, entry) for row in trace.stage("lists").rows for entry in row.lists if entry.kept]
    return {key: (entry.rank, entry.raw, entry.chunk) for key, entry in entries if entry.list == "hybrid:0"}


def test_a_memory_stands_in_the_nested_list_by_its_best_chunk() -> None:
    found = hybrid(replay(evidence(), config()))
    expected = {"L": (1, L2, 2), "B": (2, B, None), "C": (3, C, None), "A": (4, A, None)}
    assert {key: (rank, chunk) for key, (rank, _, chunk) in found.items()} == {
        key: (rank, chunk) for key, (rank, _, chunk) in expected.items()
    }
    for key, (_, score, _) in expected.items():
        assert found[key][1] == pytest.approx(score, abs=1e-14)


def test_the_share_the_depths_and_the_pool_are_replayed() -> None:
    by_meaning = hybrid(replay(evidence(), config(lists__hybrid__vector_weight=1.0)))
    assert sorted(by_meaning, key=lambda key: by_meaning[key][0]) == ["L", "A", "B", "C"]
    # depth 1: of each inner list the first 2 chunks count, and one memory is kept
    short = hybrid(replay(evidence(), config(lists__hybrid__depth=1, lists__hybrid__inner_factor=2.0)))
    assert {key: (rank, chunk) for key, (rank, _, chunk) in short.items()} == {"L": (1, 2)}
    # of the best two chunks, both are of one memory when meaning decides and two more are behind
    pooled = hybrid(
        replay(
            evidence(), config(lists__hybrid__depth=2, lists__hybrid__pool_factor=1.0, lists__hybrid__vector_weight=0.4)
        )
    )
    assert set(pooled) == {"L", "B"}


def reasons(trace: Trace) -> dict[str, str | None]:
    """Why the lists dropped a memory."""
    return {row.memory_id: row.reason for row in trace.stage("lists").rows if not row.kept}


def test_what_a_hybrid_list_leaves_out_is_told_its_place_there() -> None:
    alone = {"lists__ts_rank__enabled": False}
    # in the order L, B, C, A by their best chunks, of which L/0 is the last
    assert reasons(replay(evidence(), config(lists__hybrid__depth=2, **alone))) == {
        "C": "hybrid:0: rank 3 is past the depth 2",
        "A": "hybrid:0: rank 4 is past the depth 2",
    }
    pooled = config(lists__hybrid__depth=4, lists__hybrid__pool_factor=0.5, **alone)
    assert reasons(replay(evidence(), pooled)) == {
        "C": "hybrid:0: its chunk is 3rd, past the pool of 2",
        "A": "hybrid:0: its chunk is 4th, past the pool of 2",
    }
    shallow = config(lists__hybrid__depth=2, lists__hybrid__inner_factor=1.0, **alone)
    assert reasons(replay(evidence(), shallow)) == {
        "A": "hybrid:0: rank 3 is past the depth 2",
        "C": "hybrid:0: 5th by meaning, past the first 2 and 3rd by ts_rank, past the first 2",
    }
    rows = config(lists__hybrid__index_rows=1, **alone)
    assert reasons(replay(evidence(), rows)) == {"A": "hybrid:0: 2nd by meaning, past the first 1"}


def test_a_seed_past_the_depth_of_the_hybrid_list_is_none() -> None:
    short = config(lists__relations__enabled=True, lists__relations__seeds=2, lists__hybrid__depth=1)
    entries = replay(evidence(relations=EDGES), short).stage("lists").by_id["C"].lists
    assert [entry.list for entry in entries if entry.list.startswith("relations")] == ["relations"]  # of L, not of B


def test_an_index_that_returns_few_rows_leaves_the_rest_to_the_words() -> None:
    found = hybrid(replay(evidence(), config(lists__hybrid__index_rows=1)))
    assert {key: score for key, (_, score, _) in found.items()} == {
        "L": pytest.approx(L2),
        "B": pytest.approx(0.6 / 61),
        "C": pytest.approx(0.6 / 63),
    }


def test_aggregation_queries_go_deeper() -> None:
    some = {"lists__hybrid__depth": 1, "lists__hybrid__inner_factor": 4.0}
    assert len(hybrid(replay(evidence(), config(**some)))) == 1
    assert len(hybrid(replay(evidence("how many are there"), config(**some)))) == 4  # at least 50


def test_ts_rank_keeps_the_order_it_was_given_and_reads_so_many_chunks() -> None:
    trace = replay(evidence(), config(lists__ts_rank__chunk_depth=2))
    listed = {
        row.memory_id: entry for row in trace.stage("lists").rows for entry in row.lists if entry.list == "ts_rank:0"
    }
    assert [(key, listed[key].rank, listed[key].kept) for key in ("B", "L", "C")] == [
        ("B", 1, True),
        ("L", 2, True),
        ("C", 3, False),
    ]
    assert listed["L"].chunk == 2 and listed["L"].normalized == pytest.approx(0.04 / 0.06)


EDGES = (
    Relation("L", "C", "similar", 0.9),
    Relation("L", "A", "similar", 0.3),
    Relation("B", "C", "follows", 0.8),
    Relation("A", "C", "similar", 0.7),
)


def test_a_memory_counts_as_often_as_relations_lead_to_it() -> None:
    trace = replay(evidence(relations=EDGES), config(lists__relations__enabled=True, lists__relations__seeds=2))
    row = trace.stage("fusion").by_id["C"]
    terms = {term.list: (term.rank, term.base, term.bonus) for term in row.contributions}
    # seeds L and B, the first of the hybrid list; their edges in order: C, A, C
    assert terms["relations"] == (1, pytest.approx(0.5 / 61), 0.05)
    assert terms["relations:2"] == (3, pytest.approx(0.5 / 63), 0.02)
    assert terms["hybrid:0"] == (3, pytest.approx(2 / 63), 0.02)
    assert row.raw == pytest.approx(2 / 63 + 0.02 + 2 / 63 + 0.02 + 0.5 / 61 + 0.05 + 0.5 / 63 + 0.02)
    assert row.best_list_score == pytest.approx(
        0.9
    )  # the strength of the relation, above C's share of the best ts_rank


def test_seeds_follow_the_share() -> None:
    shared = config(lists__relations__enabled=True, lists__relations__seeds=2, lists__hybrid__vector_weight=1.0)
    terms = replay(evidence(relations=EDGES), shared).stage("fusion").by_id["C"].contributions
    assert [term.rank for term in terms if term.list.startswith("relations")] == [1, 3]  # of L and A now


def test_the_text_counted_is_the_one_that_scored_best() -> None:
    tokens = {row.memory_id: row.tokens for row in replay(evidence(relations=EDGES), config()).stage("assembly").rows}
    assert tokens == {"L": 3, "A": 5, "B": 7, "C": 4}
    related = replay(evidence(relations=(Relation("B", "L", "similar", 1.0),)), config(lists__relations__enabled=True))
    assert related.stage("assembly").by_id["L"].tokens == 100  # a relation brings the whole memory
    assert replay(evidence(), config(assembly__text="memory")).stage("assembly").by_id["L"].tokens == 100


def test_what_a_relation_found_is_as_old_as_its_update_and_has_no_feedback() -> None:
    old = replace(
        memory("C", relevant_count=9, noise_count=1),
        created_at=NOW - timedelta(days=120),
        last_accessed=NOW,
        updated_at=NOW - timedelta(days=60),
    )
    given = evidence(relations=(Relation("L", "C", "similar", 1.0),), C=old)
    decay = {"adjust__time_decay__mode": "hyperbolic"}
    related = replay(given, config(lists__relations__enabled=True, **decay)).stage("adjust").by_id["C"]
    assert related.factors == {"time_decay": 0.5}
    searched = replay(given, config(**decay)).stage("adjust").by_id["C"]
    assert searched.factors["time_decay"] == 1.0 and searched.factors["feedback"] == pytest.approx(0.85 + 0.3 * 0.9)


def test_one_list_is_left_alone_only_when_no_other_was_searched() -> None:
    empty = replace(evidence(), lists=(evidence().lists[0], RankedList("ts_rank:0", "ts_rank", 0, ())))
    assert not replay(empty, config()).stage("fusion").fields.bypassed
    assert replay(empty, config(lists__ts_rank__enabled=False)).stage("fusion").fields.bypassed
    assert replay(empty, config(fusion__single_list="bypass")).stage("fusion").fields.bypassed


@pytest.mark.parametrize(
    ("source_ref", "project", "factor"),
    [
        ("project:org/repo2:file", None, 1.3),
        (None, "org/repo2", 1.3),
        ("project:other", "org/repo", 0.8),
        ("notes.md", "org/repo", 0.9),
        (None, None, 0.9),
    ],
)
def test_projects_are_compared_as_source_references_begin(source_ref, project, factor):
    given = evidence(A=memory("A", source_ref=source_ref, project=project))
    asked = replace(given, project="org/repo")
    for seen, key in ((asked, "A"), (redacted(asked, b"k" * 32), "m-001")):
        assert replay(seen, config()).stage("adjust").by_id[key].factors["project"] == factor


def test_a_bundle_and_one_without_texts_give_the_same_numbers() -> None:
    given, shown = evidence("how many are there", EDGES), config(lists__relations__enabled=True)
    scores = [row.score for row in replay(given, shown).stage("assembly").kept]
    for again in (evidence_from(bundle_from(given)), redacted(given, b"k" * 32)):
        assert [row.score for row in replay(again, shown).stage("assembly").kept] == scores
