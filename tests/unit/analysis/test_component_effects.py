"""Leave-one-out effects and the map over two parameters, against numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cems_workbench.analysis.component_effects import Effect, component_effects
from cems_workbench.analysis.sensitivity.scan import grid, weight_map
from cems_workbench.config import PipelineConfig, field_spec, with_values
from cems_workbench.pipeline import Evidence, Hit, RankedList, Variant
from cems_workbench.records import Memory, Relation

OFF: dict[str, Any] = {
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
VECTOR, LEXICAL = "abcd", "bcad"


def evidence(vector: str = VECTOR, lexical: str = LEXICAL) -> Evidence:
    memories = {key: Memory(id=key, content="text", priority=1.0 + (key == "d")) for key in vector + lexical}
    lists = [("vector", vector), ("lexical", lexical)]
    return Evidence(
        query="q",
        memories=memories,
        variants=(Variant("q"),),
        lists=tuple(
            RankedList(f"{source}:0", source, 0, tuple(Hit(key, 9.0 - i) for i, key in enumerate(ids)))  # type: ignore[arg-type]
            for source, ids in lists
        ),
    )


def config(**values: Any) -> PipelineConfig:
    return with_values(PipelineConfig(), OFF | {path.replace("__", "."): value for path, value in values.items()})


def by_name(effects: list[Effect]) -> dict[str, Effect]:
    return {effect.part.name: effect for effect in effects}


def test_a_list_left_out_leaves_the_order_of_the_other() -> None:
    """Weights 3 and 1: a = 3/61 + 1/63 = .06505, b = 3/62 + 1/61 = .06478, c = 3/63 + 1/62 = .06375, d last."""
    from scipy.stats import kendalltau  # a second: not while every worker collects

    found = component_effects(evidence(), config(lists__vector__weight=3.0, lists__lexical__weight=1.0))
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
    found = by_name(component_effects(evidence(lexical="b"), config(lists__vector__weight=100.0)))
    assert found["vector:0"].left == ("a", "c", "d") and found["vector:0"].entered == ()
    assert found["vector:0"].tau == pytest.approx(1 - 2 * 2.5 / 6)


def test_each_part_that_is_on_is_there_and_the_first_judged_rank_stands_beside_it() -> None:
    found = by_name(
        component_effects(evidence(), config(adjust__priority=True, gap__ratio=0.1, fusion__score_blend=0.5), {"d": 3})
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
    assert list(by_name(component_effects(evidence(), with_values(config(), values)))) == ["vector:0", "lexical:0"]


def test_nothing_found_has_no_parts_but_switches_that_move_nothing() -> None:
    found = component_effects(Evidence(query="q", memories={}), config(gap__ratio=0.5))
    assert [(effect.part.name, effect.tau) for effect in found] == [("score gap", 1.0)]


def test_a_switched_off_variant_is_no_part() -> None:
    assert component_effects(evidence(), config(), switched_off=(0,)) == []


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
        evidence("ab", "ab"),
        relations=(Relation("a", "c", "similar", 0.9), Relation("b", "c", "similar", 0.8)),
        memories={key: Memory(id=key, content="text") for key in "abc"},
    )
    on = {"lists.relations.enabled": True, "lists.relations.mode": "each"}
    found = by_name(component_effects(subject, with_values(config(), on)))
    assert found["relations"].part.lists == ("relations", "relations:2")
    assert found["relations"].nominal == pytest.approx(1.0 / 3)  # 0.5 twice, beside two lists of 1
    assert found["relations"].left == ("c",)


def test_the_grid_covers_the_slider_and_has_the_present_value() -> None:
    assert grid(field_spec("lists.vector.weight"), config(lists__vector__weight=1.1), 4) == [0.0, 1.1, 2.0, 3.0]
    values = grid(field_spec("fusion.k"), config(fusion__k=60), 12)
    assert values[0] == 1 and values[-1] == 200 and 60 in values and values == sorted(set(values))


def test_the_map_says_who_is_first_and_where_the_relevant_one_stands() -> None:
    """Vector weight against lexical weight: a is first where w/61 + v/63 is more than w/62 + v/61, so w > 124/63 v."""
    found = weight_map(evidence(), config(), "lists.vector.weight", "lists.lexical.weight", 4, {"a": 3})
    assert found.xs == found.ys == [0.0, 1.0, 2.0, 3.0]
    for i, v in enumerate(found.ys):
        for j, w in enumerate(found.xs):
            expected = "a" if w > 124 / 63 * v or (v == w == 0) else "b"
            assert found.first[i][j] == expected, (w, v)
            assert (found.rank[i, j] == 1) == (expected == "a")
    assert dict(found.winners) == {"a": 6, "b": 10}
    assert found.succeeds(1) == 6 and found.judged and found.now == (1.0, 1.0)


def test_a_map_without_judgments_says_so() -> None:
    found = weight_map(evidence(), config(), "lists.vector.weight", "fusion.k", 3)
    assert not found.judged and found.succeeds(10) == 0
    assert len(found.first) == 3
