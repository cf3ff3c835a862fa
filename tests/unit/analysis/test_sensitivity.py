"""What a value, a part, a limit of similarity or a variant does to the results."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import isnan
from typing import Any

import numpy as np
import pytest

from cems_workbench.config import PipelineConfig, field_spec, with_values
from cems_workbench.pipeline import Evidence, Hit, ModelScore, RankedList, Variant
from cems_workbench.records import Memory, Relation
from tests.unit.pipeline.cases import evidence, trace
from workbench_inspect.breakpoints import BoundarySearch
from workbench_inspect.component_effects import Effect, component_effects, leave_one_variant_out, variant_parts
from workbench_inspect.diversity import mean, pairwise
from workbench_inspect.sweeps import grid, sweep, weight_map

NOW = datetime(2026, 9, 1, tzinfo=UTC)
BARE: dict[str, Any] = {
    "fusion.top_rank_bonus.rank1": 0.0,
    "fusion.top_rank_bonus.rank2_3": 0.0,
    "fusion.normalize": "none",
    "fusion.score_blend": 0.0,
    "filter.min_score": None,
    "adjust.priority": False,
    "adjust.time_decay.mode": "none",
    "adjust.project.enabled": False,
    "adjust.clamp": False,
    "adjust.pinned_factor": 1.0,
    "assembly.max_tokens": None,
    "assembly.strategy": "greedy",
    "variants.original_weight": 1.0,
}


def made(lists: dict[str, list[tuple[str, float]]], ages: dict[str, float] | None = None, **extra: Any) -> Evidence:
    ids = {key for hits in lists.values() for key, _ in hits}
    ages = ages or {}
    memories = {
        key: Memory(id=key, content="x" * 40, last_accessed=NOW - timedelta(days=ages.get(key, 0))) for key in ids
    }
    ranked = tuple(
        RankedList(f"{source}:0", source, 0, tuple(Hit(*hit) for hit in hits))  # type: ignore[arg-type]
        for source, hits in lists.items()
    )
    return Evidence(query="q", memories=memories, variants=(Variant("q"),), lists=ranked, as_of=NOW, **extra)


CROSSED = made({"vector": [("a", 0.9), ("b", 0.8), ("c", 0.7)], "lexical": [("b", 9.0), ("c", 5.0), ("a", 4.0)]})


def config(**values: Any) -> PipelineConfig:
    return with_values(PipelineConfig(), BARE | {path.replace("__", "."): value for path, value in values.items()})


def test_a_list_weight_has_its_breakpoints_where_two_fused_scores_are_equal() -> None:
    """a = w/61 + 1/63, b = w/62 + 1/61, c = w/63 + 1/62; a = b at w (1/61 - 1/62) = 1/61 - 1/63, so w = 124/63.

    a = c at w (1/61 - 1/63) = 1/62 - 1/63, so w = 61/124; b stays above c.
    """
    found = sweep(CROSSED, config(), "lists.vector.weight", 3)
    assert found.method == "solved"
    assert [one.results for one in found.segments] == [("b", "c", "a"), ("b", "a", "c"), ("a", "b", "c")]
    values = [point.value for point in found.breakpoints]
    assert values == pytest.approx([61 / 124, 124 / 63], abs=1e-8)
    swapped = found.breakpoints[1]
    assert (swapped.before, swapped.after) == (("b", "a", "c"), ("a", "b", "c"))
    assert found.present.results == ("b", "a", "c")


def test_half_life_exponential_crosses_where_the_decayed_scores_are_equal() -> None:
    """0.5 ** (2/h) / 61 = 1/62 at h = 2 ln 2 / ln(62/61)."""
    aged = made({"vector": [("a", 0.9), ("b", 0.8)]}, {"a": 2})
    decayed = config(adjust__time_decay__mode="exponential")
    found = sweep(aged, decayed, "adjust.time_decay.half_life_days", 2)
    assert found.method == "solved"
    assert [point.value for point in found.breakpoints] == pytest.approx(
        [2 * math.log(2) / math.log(62 / 61)], abs=1e-6
    )


def test_a_similarity_has_a_breakpoint_at_the_cosine_of_two_neighbours() -> None:
    vectors = {"a": [1.0, 0.0], "b": [0.6, 0.8], "c": [0.0, 1.0]}  # cosines 0.6, 0.8 and 0
    found = sweep(
        made({"vector": [("a", 0.9), ("b", 0.8), ("c", 0.7)]}, embeddings=vectors),
        config(dedup__enabled=True),
        "dedup.similarity",
        3,
    )
    assert found.method == "solved"
    assert [one.results for one in found.segments] == [("a", "c"), ("a", "b"), ("a", "b", "c")]
    assert [point.value for point in found.breakpoints] == pytest.approx([0.6, 0.8], abs=1e-8)


def test_every_value_of_a_switch_a_choice_and_a_small_whole_number_is_replayed() -> None:
    methods = sweep(CROSSED, config(), "fusion.method", 3)
    assert [one.first for one in methods.segments] == [*field_spec("fusion.method").choices]
    assert (methods.method, methods.breakpoints, methods.present.first) == ("every value", [], "rrf")
    switch = sweep(CROSSED, config(), "lists.lexical.enabled", 3)
    assert {one.first: one.results for one in switch.segments} == {False: ("a", "b", "c"), True: ("b", "a", "c")}
    limit = sweep(CROSSED, config(), "assembly.limit", 3)
    assert [(point.below, point.above) for point in limit.breakpoints] == [(1, 2), (2, 3)]
    assert (limit.method, limit.replays, limit.now) == ("every value", 51, 10)


def test_a_parameter_of_a_part_that_is_off_changes_nothing_and_that_is_certain() -> None:
    found = sweep(CROSSED, config(), "threshold.adaptive.min", 3)
    assert (found.method, found.breakpoints) == ("solved", [])


def test_what_is_no_line_is_bracketed_to_the_stated_tolerance() -> None:
    """combmax: b = max(0.8 w, 1), a = max(0.9 w, 4/9): a passes b at w = 1/0.9."""
    found = sweep(CROSSED, config(fusion__method="combmax"), "lists.vector.weight", 2)
    assert (found.method, found.tolerance) == ("bracketed", pytest.approx(3e-6))
    first = next(point for point in found.breakpoints if point.after[0] == "a")
    assert first.below <= 1 / 0.9 <= first.above and first.above - first.below <= 3e-6


def test_candidates_that_were_never_scored_are_counted() -> None:
    scores = {"cross_encoder": {"a": ModelScore(1.0)}}
    reranked = config(rerank__backend="cross_encoder", rerank__raw_scale="sigmoid", rerank__depth=2)
    found = sweep(
        made({"vector": [("a", 0.9), ("b", 0.8), ("c", 0.7)]}, model_scores=scores),
        reranked,
        "fusion.k",
        2,
    )
    assert found.unscored == 1


def test_the_present_value_on_a_tie_is_a_segment_of_its_own() -> None:
    """Mirrored lists at equal weights: three pairs meet at once, ties fall by id, on either side by the heavier list."""
    mirrored = made(
        {
            "vector": [("b", 0.9), ("a", 0.8), ("d", 0.7), ("c", 0.6)],
            "lexical": [("a", 9.0), ("b", 8.0), ("c", 7.0), ("d", 6.0)],
        }
    )
    found = sweep(mirrored, config(), "lists.vector.weight", 4)
    assert found.present.results == ("a", "b", "c", "d")
    assert found.segments[-1].results == ("b", "a", "d", "c")
    assert found.segments[-1].first == pytest.approx(1, abs=1e-6)


def test_closing_in_finds_each_change_between_two_samples() -> None:
    calls: list[float] = []

    def results(value: float) -> tuple[str, ...]:
        calls.append(value)
        return (str(sum(value > edge for edge in (0.21, 0.5, 0.77))),)

    segments, searched = BoundarySearch(results, 1e-6, False, 1e-9).segments([0.0, 1.0])
    assert [one.results for one in segments] == [("0",), ("1",), ("2",), ("3",)]
    assert searched == 1
    for one, edge in zip(segments[1:], (0.21, 0.5, 0.77), strict=True):
        assert edge < one.first <= edge + 1e-6
    assert len(calls) < 400


VECTOR, LEXICAL = "abcd", "bcad"


def parts_of(vector: str = VECTOR, lexical: str = LEXICAL) -> Evidence:
    found = made(
        {
            name: [(key, 9.0 - i) for i, key in enumerate(ids)]
            for name, ids in (("vector", vector), ("lexical", lexical))
        }
    )
    memories = {key: Memory(id=key, content="text", priority=1.0 + (key == "d")) for key in vector + lexical}
    return replace(found, memories=memories)


def by_name(effects: list[Effect]) -> dict[str, Effect]:
    return {effect.part.name: effect for effect in effects}


def test_a_list_left_out_leaves_the_order_of_the_other() -> None:
    """Weights 3 and 1: a = 3/61 + 1/63 = .06505, b = 3/62 + 1/61 = .06478, c = 3/63 + 1/62 = .06375, d last."""
    from scipy.stats import kendalltau  # a second: not while every worker collects

    found = component_effects(parts_of(), config(lists__vector__weight=3.0, lists__lexical__weight=1.0))
    assert [effect.part.name for effect in found] == ["vector:0", "lexical:0"]
    named = by_name(found)
    assert (named["vector:0"].nominal, named["lexical:0"].nominal) == (0.75, 0.25)
    assert named["lexical:0"].tau == 1.0 and named["lexical:0"].turned == 0.0
    assert named["vector:0"].tau == pytest.approx(1 - 2 * 2 / 6)  # abcd to bcad: a with b and a with c
    assert named["vector:0"].tau == pytest.approx(kendalltau([1, 2, 3, 4], [3, 1, 2, 4]).statistic)
    assert (named["vector:0"].share, named["lexical:0"].share) == (1.0, 0.0)
    assert named["vector:0"].moved == 3


def test_a_memory_that_only_one_list_found_goes_with_it() -> None:
    """Results a b c d (limit 4) of abcd and b: without vector b alone; the three that are gone stand below it, unordered.

    Pairs of {a, b, c, d}: b against a turned (1), b against c and d the same (0), the three pairs of a, c, d half each: 2.5 of 6.
    """
    found = by_name(component_effects(parts_of(lexical="b"), config(lists__vector__weight=100.0)))
    assert found["vector:0"].left == ("a", "c", "d") and found["vector:0"].entered == ()
    assert found["vector:0"].tau == pytest.approx(1 - 2 * 2.5 / 6)


def test_each_part_that_is_on_is_there_and_the_first_judged_rank_stands_beside_it() -> None:
    found = by_name(
        component_effects(
            parts_of(),
            config(adjust__priority=True, gap__ratio=0.1, fusion__score_blend=0.5),
            {"d": 3},
        )
    )
    assert list(found) == ["vector:0", "lexical:0", "score blend", "priority", "score gap"]
    assert (found["priority"].rank_now, found["priority"].rank_without) == (1, 4)
    assert found["priority"].nominal is None and found["priority"].share is None


def test_bonuses_without_rrf_and_a_filter_in_raw_mode_are_no_parts() -> None:
    values = {
        "fusion.method": "combsum",
        "fusion.top_rank_bonus.rank1": 0.05,
        "filter.min_score": 0.1,
        "query.raw": True,
    }
    assert list(by_name(component_effects(parts_of(), with_values(config(), values)))) == [
        "vector:0",
        "lexical:0",
    ]


def test_a_nested_list_is_left_out_by_variant_and_what_is_made_with_it_stays() -> None:
    """Two variants of a query, each with a list by meaning and one by ts_rank, fused in a hybrid list of share 0.4.

    Variant 0: by meaning a b, by ts_rank b; its hybrid list is b = 0.4/62 + 0.6/61, a = 0.4/61. Variant 1: by meaning c a, by ts_rank a;
    its hybrid list is a, c. With weights 1 on both: a = 1/62 + 1/61 from the hybrid lists and 1/61 from ts_rank:1, b = 1/61 + 1/61
    from variant 0, c = 1/62 from hybrid:1.
    """
    lists = [("vector:0", "ab"), ("ts_rank:0", "b"), ("vector:1", "ca"), ("ts_rank:1", "a")]
    subject = Evidence(
        query="q",
        memories={key: Memory(id=key, content="text") for key in "abc"},
        variants=(Variant("q"), Variant("r", "expansion")),
        lists=tuple(
            RankedList(name, name[:-2], int(name[-1]), tuple(Hit(key, 9.0 - i) for i, key in enumerate(ids)))
            for name, ids in lists
        ),
    )
    on = {f"lists.{name}.enabled": name in ("hybrid", "ts_rank") for name in ("vector", "lexical", "hybrid", "ts_rank")}
    found = by_name(component_effects(subject, with_values(config(variants__expansion_weight=1.0), on)))
    assert list(found) == ["hybrid:0", "ts_rank:0", "hybrid:1", "ts_rank:1"]
    assert {effect.nominal for effect in found.values()} == {0.25}
    # without hybrid:1 the order is a = 1/62 + 1/61 behind b = 2/61, and c is gone: one of three pairs turns
    assert found["hybrid:1"].left == ("c",) and found["hybrid:1"].tau == pytest.approx(1 - 2 * 1 / 3)
    # without ts_rank:1 hybrid:1 stays as it was made: b = 2/61 is ahead of a = 1/62 + 1/61, c is third
    assert found["ts_rank:1"].left == () and found["ts_rank:1"].moved == 2
    # without hybrid:0: a = 2/61, b = 1/61, c = 1/62
    assert found["hybrid:0"].turned == 0.0


def test_the_lists_of_relations_are_one_part() -> None:
    """C is led to by two edges, so that it stands in two lists; together they are what relations give."""
    subject = replace(
        parts_of("ab", "ab"),
        relations=(Relation("a", "c", "similar", 0.9), Relation("b", "c", "similar", 0.8)),
        memories={key: Memory(id=key, content="text") for key in "abc"},
    )
    on = {"lists.relations.enabled": True, "lists.relations.mode": "each"}
    found = by_name(component_effects(subject, with_values(config(), on)))
    assert found["relations"].part.lists == ("relations", "relations:2")
    assert found["relations"].nominal == pytest.approx(1.0 / 3)  # 0.5 twice, beside two lists of 1
    assert found["relations"].left == ("c",)


def test_the_grid_covers_the_slider_and_has_the_present_value() -> None:
    assert grid(field_spec("lists.vector.weight"), config(lists__vector__weight=1.1), 4) == [
        0.0,
        1.1,
        2.0,
        3.0,
    ]
    values = grid(field_spec("fusion.k"), config(fusion__k=60), 12)
    assert values[0] == 1 and values[-1] == 200 and 60 in values and values == sorted(set(values))


def test_the_map_says_who_is_first_and_where_the_relevant_one_stands() -> None:
    """Vector weight against lexical weight: a is first where w/61 + v/63 is more than w/62 + v/61, so w > 124/63 v."""
    found = weight_map(
        parts_of(),
        config(),
        "lists.vector.weight",
        "lists.lexical.weight",
        4,
        {"a": 3},
    )
    assert found.xs == found.ys == [0.0, 1.0, 2.0, 3.0]
    for i, v in enumerate(found.ys):
        for j, w in enumerate(found.xs):
            expected = "a" if w > 124 / 63 * v or (v == w == 0) else "b"
            assert found.first[i][j] == expected, (w, v)
            assert (found.rank[i, j] == 1) == (expected == "a")
    assert dict(found.winners) == {"a": 6, "b": 10}
    assert found.succeeds(1) == 6 and found.judged and found.now == (1.0, 1.0)


def test_pairs_are_compared_as_dedup_and_mmr_compare_them() -> None:
    words = {"a": {"content": "Red fox"}, "b": {"content": "red, DOG"}, "c": {"content": "bird"}}
    vectors = {"a": np.array([1.0, 0.0]), "b": np.array([3.0, 4.0])}
    subject = evidence({"vector": {"a": 0.9, "b": 0.8, "c": 0.7}}, memories=words, embeddings=vectors)
    found = pairwise(subject, ["b", "a", "c"])
    assert found.cosine[0, 1] == pytest.approx(0.6)
    assert found.overlap[0].tolist()[1:] == pytest.approx([1 / 3, 0])
    assert isnan(found.cosine[0, 2])  # c has no embedding
    assert isnan(found.overlap[1, 1])
    assert (mean(found.cosine), mean(found.overlap)) == pytest.approx((0.6, 1 / 9))


VARIANTS = (Variant("query"), Variant("more", "expansion"), Variant("other", "expansion"))


def three() -> Evidence:
    """a and b by the query; b and c by the first expansion; d by the second alone."""
    lists = {
        "vector": {"a": 0.9, "b": 0.8},
        "vector@1": {"c": 0.9, "b": 0.7},
        "lexical@1": {"c": 5.0},
        "vector@2": {"d": 0.9},
    }
    return evidence(lists, variants=VARIANTS)


def test_candidates_and_those_that_nobody_else_found_are_counted() -> None:
    parts = variant_parts(trace(three()))
    assert [(part.found, part.alone, part.on) for part in parts] == [
        (2, ("a",), True),
        (2, ("c",), True),
        (1, ("d",), True),
    ]


def test_the_shares_are_those_of_the_fused_scores_of_the_results() -> None:
    """rrf, k 60, weights 1: a 1/61, b 1/62 + 1/62, c 1/61 + 1/61, d 1/61."""
    total = 4 / 61 + 2 / 62
    shares = [part.share for part in variant_parts(trace(three()))]
    assert shares == pytest.approx([(1 / 61 + 1 / 62) / total, (2 / 61 + 1 / 62) / total, (1 / 61) / total])
    assert sum(shares) == pytest.approx(1)


def test_without_a_variant_its_own_candidates_leave() -> None:
    """Order with all: c, b, then a and d by id. Without 1: a, d, b. Without 0: c, d, b."""
    found = leave_one_variant_out(trace(three(), {"assembly.limit": 3}))
    assert [row.memory_id for row in trace(three()).results] == ["c", "b", "a", "d"]
    assert [toggled.results for toggled in found] == [("c", "d", "b"), ("a", "d", "b"), ("c", "b", "a")]
    assert [toggled.left for toggled in found] == [("a",), ("c",), ()]
    assert [toggled.entered for toggled in found] == [("d",), ("d",), ()]
    assert found[1].rbo < found[0].rbo < found[2].rbo == 1


def test_one_that_is_off_is_put_back() -> None:
    off = frozenset({2})
    subject = trace(three(), switched_off=off)
    parts, found = variant_parts(subject, off), leave_one_variant_out(subject, off)
    assert [part.on for part in parts] == [True, True, False]
    assert (parts[2].found, parts[2].share) == (0, 0)
    assert (found[2].entered, found[2].left) == (("d",), ())


def test_scores_that_the_reranker_lacks_are_counted() -> None:
    lists = {"vector": {"a": 0.9, "b": 0.8}, "vector@1": {"c": 0.9}}
    subject = evidence(lists, variants=VARIANTS[:2], model={"a": 0.5, "c": 0.9})
    changes = {"rerank.backend": "cross_encoder", "rerank.model": "oracle", "rerank.depth": 2}
    whole = trace(subject, changes)
    assert not whole.stage_needs  # a and c are the first two
    assert [toggled.unscored for toggled in leave_one_variant_out(whole)] == [0, 1]
