"""Stages that do nothing and lists that know nothing (analysis/stage_mistakes.py), of recorded and own pipelines alike."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cems_workbench.analysis.known_mistakes import known_mistakes
from cems_workbench.analysis.stage_mistakes import StageMistakes
from cems_workbench.jobs.traces import traced_config
from cems_workbench.pipeline import Evidence, replay
from cems_workbench.pipeline.evidence import ModelScore
from cems_workbench.pipeline.recorded import ASKED, RECORDED
from cems_workbench.pipeline.replay import run, to_table
from cems_workbench.records import Memory, RecordedList, RecordedStage, RecordedStages, Scored
from tests.unit.pipeline.cases import configured
from tests.unit.pipeline.cases import evidence as own_evidence

IDS = [f"m{i}" for i in range(8)]


def lines(evidences: Sequence[Evidence], config: Any = None, grades: Any = None) -> list[str]:
    found, chosen = StageMistakes(), config or traced_config()
    table = to_table(evidences)
    found.add(run(table, chosen), table, chosen, grades)
    return [one.line for one in found.found()]


def traced(q, lists, output, kind="rerank", texts=None):
    """A query whose lists a fusion passes on in the order of the first, to a stage that returns `output`."""
    joined = tuple((key, None) for key, _ in next(iter(lists.values())))
    stages = (RecordedStage("fuse", "fusion", joined), RecordedStage("last", kind, output))
    recorded = RecordedStages(tuple(RecordedList(name, hits) for name, hits in lists.items()), stages)
    memories = {key: Memory(key, (texts or {}).get(key, f"text of {key}")) for key in recorded.ids}
    return Evidence(f"query {q}", memories, notes={RECORDED: recorded.to_json()})


def shuffled(q: int, count: int = 8) -> list[str]:
    return random.Random(q).sample(IDS, count)


def scored(ids: Sequence[str], scores: Sequence[float] | None = None) -> Scored:
    return tuple(zip(ids, scores or [1 - i / 10 for i in range(len(ids))], strict=True))


def test_a_reranker_that_changes_nothing_is_named_with_its_queries() -> None:
    def asked(turned: bool) -> list[Evidence]:
        orders = [shuffled(q) for q in range(4)]
        return [
            traced(q, {"bm25": scored(ids)}, scored(ids[:5][:: -1 if turned else 1])) for q, ids in enumerate(orders)
        ]

    assert lines(asked(False)) == [
        "last: returns its input in the order of the input in 4 of 4 queries: it changes nothing"
    ]
    assert lines(asked(True)) == ["last: returns its input in the reverse order in 4 of 4 queries"]
    one_moves = [*asked(False), traced(4, {"bm25": scored(IDS)}, scored([IDS[1], IDS[0], *IDS[2:5]]))]
    assert lines(one_moves) == []
    assert lines(asked(False)[:1]) == [
        "last: its 5 candidates stay in the order of its input; one query alone does not show that it always does so"
    ]


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        ([1.0] * 8, "all 32 scores of 4 queries are 1: it tells nothing apart"),
        ([0.9, 0.8, 0.7, *[0.5] * 5], "20 of 32 scores of 4 queries are 0.5: it does not tell these apart"),
        (
            [0.9, 0.9, 0.8, 0.8, 0.7, 0.7, 0.6, 0.6],
            "its 32 scores of 4 queries are only 4 values: in 4 queries some are equal, in 4 the first two",
        ),
        (
            [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8],
            "its scores rise from first to last in 4 of 4 queries: its order is the reverse of its scores",
        ),
    ],
)
def test_scores_that_tell_nothing_or_little_apart_are_counted(scores: list[float], said: str) -> None:
    """agentmemory#724, 2026-05-29: one score for every document. Others: half constant, cut to few values, the order reversed."""
    asked = [traced(q, {"bm25": scored(shuffled(q))}, scored(shuffled(q + 50), scores)) for q in range(4)]
    assert lines(asked) == [f"last: {said}"]
    good = [traced(q, {"bm25": scored(shuffled(q))}, scored(shuffled(q + 50))) for q in range(4)]
    assert lines(good) == []


def test_equal_scores_of_one_query_are_a_warning_of_their_stage_too() -> None:
    trace = replay(traced(0, {"bm25": scored(IDS)}, scored(shuffled(1), [0.5] * 8)), traced_config())
    words = "all 8 scores are 0.5: it tells nothing apart"
    assert ("last", words) in trace.warnings and [one.words for one in known_mistakes(trace)] == [words]


def test_a_reranker_that_reads_only_the_head_gives_one_score_to_texts_that_begin_alike() -> None:
    head = "From the minutes of the meeting of the works council, "
    texts = {key: (head if i < 3 else f"{i} ") + f"item {i}" for i, key in enumerate(IDS)}

    def asked(apart: float) -> list[Evidence]:
        scores = [0.9, 0.9 - apart, 0.9 - 2 * apart, 0.5, 0.4, 0.3, 0.2, 0.1]
        return [traced(q, {"bm25": scored(shuffled(q))}, scored(IDS, scores), texts=texts) for q in range(4)]

    (line,) = lines(asked(0.0))
    assert line.startswith(f"last: 12 pairs of candidates begin with the same {len(head) + 5} characters, differ later")
    assert lines(asked(0.01)) == []


def test_a_list_that_ignores_the_query_is_named_and_one_that_follows_it_is_not() -> None:
    def asked(q: int) -> Evidence:
        return traced(
            q, {"bm25": scored(shuffled(q)), "dense": scored(IDS[: 8 - q % 2]), "graph": ()}, scored(shuffled(q + 9))
        )

    assert lines([asked(q) for q in range(4)]) == [
        "lists: dense returns the same 8 memories in the same order in 4 of 4 queries, whatever they ask",
        "lists: graph is empty in 4 of 4 queries",
    ]
    same = asked(0)
    assert not lines([same, replace(same), replace(same)])[0].startswith("lists: dense")  # one query three times


def test_a_list_that_is_empty_in_many_queries_or_in_the_only_one_is_named() -> None:
    def asked(empty: int) -> list[Evidence]:
        lists = [
            {"dense": scored(shuffled(q)), "bm25": () if q < empty else scored(shuffled(q + 50))} for q in range(6)
        ]
        return [traced(q, own, scored(shuffled(q + 9))) for q, own in enumerate(lists)]

    assert lines(asked(3)) == ["lists: bm25 is empty in 3 of 6 queries"]
    assert lines(asked(2)) == []
    assert lines(asked(3)[:1]) == ["lists: bm25 is empty in this query"]
    nothing = [traced(q, {"dense": (), "bm25": ()}, ()) for q in range(6)]
    assert lines(nothing) == [] and lines(nothing[:1]) == []


def test_what_was_given_another_text_than_the_query_is_named() -> None:
    def asked(q: int) -> Evidence:
        found = traced(q, {"bm25": scored(shuffled(q))}, scored(shuffled(q + 50)))
        return replace(found, notes={**found.notes, ASKED: {"bm25": "quer", "last": "query before"} if q else {}})

    assert lines([asked(q) for q in range(4)]) == [
        "lists: bm25 searched “quer”, not the query, in 3 of 4 queries",
        "last: read “query before”, not the query, in 3 of 4 queries",
    ]
    assert lines([asked(1)]) == [
        "lists: bm25 searched “quer”, not the query",
        "last: read “query before”, not the query",
    ]


def test_a_filter_that_drops_all_is_named_and_a_floor_that_drops_nothing_is_not() -> None:
    """A floor that drops nothing was a known mistake, and stood beside the faults of other stages; a loose floor is none."""
    asked = [shuffled(q) for q in range(6)]
    idle = [traced(q, {"bm25": scored(ids)}, scored(ids), "filter") for q, ids in enumerate(asked)]
    assert lines(idle) == []
    strict = [traced(q, {"bm25": scored(ids)}, (), "filter") for q, ids in enumerate(asked)]
    assert lines(strict) == ["last: drops all of its input in 6 of 6 queries"]


def filtered(q: int, hits: Scored, kept: Scored) -> Evidence:
    stages = (RecordedStage("last", "filter", kept), RecordedStage("results", "other", kept))
    recorded = RecordedStages((RecordedList("dense", hits),), stages)
    return Evidence(f"query {q}", {key: Memory(key, key) for key in recorded.ids}, notes={RECORDED: recorded.to_json()})


def test_a_filter_that_leaves_few_is_named_unless_it_only_cuts() -> None:
    """A filter by project after the nearest of all projects."""
    asked = [shuffled(q) for q in range(8)]
    kept = [scored(ids)[1 : 1 + q % 4] for q, ids in enumerate(asked)]
    assert lines([filtered(q, scored(ids), kept[q]) for q, ids in enumerate(asked)]) == [
        "last: leaves 0 to 3 of 8 candidates in 8 of 8 queries: it acts after the search for the nearest 8"
    ]
    for own in ([scored(ids)[:3] for ids in asked], [scored(ids)[2:5] for ids in asked]):  # a limit, a choice of three
        assert lines([filtered(q, scored(ids), own[q]) for q, ids in enumerate(asked)]) == []


def test_a_floor_of_another_scale_is_named_by_the_scores_that_it_keeps() -> None:
    """A minimum for cosines on the logits of a cross-encoder."""
    hits = [scored(shuffled(q), [q - 4 - 1.5 * i for i in range(8)]) for q in range(8)]

    def asked(floor: float) -> list[Evidence]:
        return [filtered(q, own, tuple(hit for hit in own if (hit[1] or 0) >= floor)) for q, own in enumerate(hits)]

    assert lines(asked(0.3)) == [
        "last: keeps only scores from 0.5, of -14.5 to 3: drops the 1st of its input in 5 of 8 queries"
    ]
    assert lines(asked(-5)) == []


def fused(q: int, weights: Sequence[float], spread: float = 1.0) -> Evidence:
    """A fusion that adds the scores of two lists as they are."""
    chance = random.Random(q)
    lists = [{key: size * chance.random() for key in shuffled(2 * q + i)} for i, size in enumerate((spread, 1.0))]
    total = {key: sum(weight * own[key] for weight, own in zip(weights, lists, strict=True)) for key in IDS}
    hits = [tuple(sorted(one.items(), key=lambda hit: -hit[1])) for one in (*lists, total)]
    recorded = RecordedStages(
        (RecordedList("bm25", hits[0]), RecordedList("dense", hits[1])), (RecordedStage("mix", "fusion", hits[2]),)
    )
    return Evidence(f"query {q}", {key: Memory(key, key) for key in IDS}, notes={RECORDED: recorded.to_json()})


def test_a_list_with_next_to_nothing_of_a_fusion_is_named_unless_judgments_say_that_it_ranks_worse() -> None:
    """Weights that were swapped, and BM25 scores that were added to cosines without a common scale."""
    asked = [fused(q, (0.95, 0.05)) for q in range(8)]
    (line,) = lines(asked)
    assert line.startswith("mix: 0.95 × bm25 + 0.05 × dense (") and "dense has 5 % of the score" in line
    (line,) = lines([fused(q, (0.2, 0.8), 20.0) for q in range(8)])
    assert "0.2 × bm25 + 0.8 × dense (scores as they are, on different scales: in a query those of bm25" in line
    assert lines([fused(q, (0.5, 0.5)) for q in range(8)]) == []
    table = to_table(asked)
    assert table.recorded is not None
    for best, said in ((0, False), (1, True)):
        first = [next(c for c, hit in own[best].rank.items() if hit[0] == 1) for own in table.recorded.lists]
        grade = np.array([[int(c == one) for c in range(len(IDS))] for one in first])
        found = lines(asked, grades=(grade, np.ones((8, 1), dtype=np.int64)))
        assert any("ranks the judged memories as well: nDCG@10 of dense 1.0000" in one for one in found) is said
        assert any("0.05" in one for one in found) is said


def test_a_fusion_without_scores_that_follows_one_list_is_named() -> None:
    names = [f"m{i}" for i in range(30)]

    def asked(q: int, turned: bool) -> Evidence:
        one, other = (random.Random(2 * q + i).sample(names, 12) for i in range(2))
        first = [key for pair in zip(one, other, strict=True) for key in pair] if turned else [*one, *other]
        lists = {"bm25": tuple((key, None) for key in one), "dense": tuple((key, None) for key in other)}
        joined: Scored = tuple((key, None) for key in dict.fromkeys(first))
        recorded = RecordedStages(
            tuple(RecordedList(*own) for own in lists.items()), (RecordedStage("mix", "fusion", joined),)
        )
        return Evidence(f"query {q}", {key: Memory(key, key) for key in names}, notes={RECORDED: recorded.to_json()})

    assert lines([asked(q, False) for q in range(8)]) == ["mix: follows bm25: the same first 10 in 8 of 8 queries"]
    assert lines([asked(q, True) for q in range(8)]) == []


def test_a_stage_that_ranks_the_judged_worse_than_its_input_is_measured() -> None:
    orders = [[*[key for key in shuffled(q) if key != "m0"][:4], "m0"] for q in range(6)]
    asked = [traced(q, {"bm25": scored(IDS)}, scored(order)) for q, order in enumerate(orders)]
    table = to_table(asked)
    grade = np.array([[int(key == "m0") for key in ids] for ids in table.ids])
    line = lines(asked, grades=(grade, np.ones((6, 1), dtype=np.int64)))[-1]
    assert "ranks worse than its input: nDCG@10 1.0000 before it" in line and "over 6 judged queries" in line


def test_own_stages_and_lists_are_asked_by_the_same_functions() -> None:
    def asked(q: int, vector: Sequence[str], model: Mapping[str, ModelScore]) -> Evidence:
        lists = {"vector": dict(scored(vector)), "lexical": dict(scored(shuffled(q)))}
        return own_evidence(lists, query=f"query {q}", model=model)  # type: ignore[arg-type]

    changes = {"rerank.backend": "cross_encoder", "rerank.model": "oracle", "rerank.combine": "replace"}
    constant = dict.fromkeys(IDS, ModelScore(5.0))
    found = lines([asked(q, IDS, constant) for q in range(4)], configured(changes))
    assert found == [
        "lists: vector returns the same 8 memories in the same order in 4 of 4 queries, whatever they ask",
        "rerank: all 32 scores of 4 queries are 5: it tells nothing apart [rerank.backend]",
    ]
    limits = {"threshold.mode": "fixed", "threshold.fixed": 2.0, "threshold.applies_to": ["vector"]}
    found = lines([asked(q, shuffled(q + 9), {}) for q in range(4)], configured(limits))
    assert found == [
        "threshold: 2 is above every score of vector in 4 of 4 queries; the best of all is 1 [threshold.fixed]"
    ]
