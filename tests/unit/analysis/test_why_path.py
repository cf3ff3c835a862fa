"""The path of a memory through the stages, and what would bring it in."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cems_workbench.analysis.ranks import branch_of
from cems_workbench.analysis.why.counterfactual import (
    Counterfactual,
    ordered,
    searched_specs,
    single_counterfactuals,
    with_scores,
)
from cems_workbench.analysis.why.path import ListEntry, cause, memory_path, require_known
from cems_workbench.analysis.why.report import Why, explain
from cems_workbench.analysis.why.trial import Trials
from cems_workbench.config import PipelineConfig
from cems_workbench.errors import InputError
from cems_workbench.pipeline import Evidence, ModelScore, Variant, replay
from cems_workbench.pipeline.stages import CANDIDATE_STAGES
from cems_workbench.progress import Cancelled
from tests.unit.pipeline.cases import NOW, configured, evidence, trace

VECTOR = {"vector": {"a": 0.9, "b": 0.8, "c": 0.7}}


def explained(subject, memory_id, k, changes=None):
    made = trace(subject, changes)
    path = memory_path(made, memory_id, k)
    return path, cause(path, made)


def test_steps_carry_rank_and_score_of_every_stage() -> None:
    path, _ = explained(evidence(VECTOR), "b", 2)
    assert [step.stage for step in path.steps] == [stage.name for stage in CANDIDATE_STAGES]
    fusion = path.step("fusion")
    assert fusion is not None
    assert (fusion.rank_in, fusion.rank, fusion.score) == (None, 2, pytest.approx(1 / 62))
    assert fusion.words == "2nd of 3: vector 0.0161"


def test_a_memory_in_no_list_has_no_path() -> None:
    path, sentence = explained(evidence(VECTOR), "z", 2)
    assert (path.status, path.rank, path.lost_at, path.steps) == ("in no list", None, None, ())
    assert sentence == "No list returned z."


def test_the_sentence_says_where_each_list_would_have_ranked_it() -> None:
    places = [
        ListEntry("vector:0", 163, 0.12, 150, False, "it would be 163rd (cosine 0.120), past the depth of 150"),
        ListEntry("lexical:0", None, 0.0, 50, False, "it shares no term with the query"),
    ]
    made = trace(evidence(VECTOR))
    assert cause(memory_path(made, "z", 2, places), made) == (
        "No list returned z (vector:0: it would be 163rd (cosine 0.120), past the depth of 150; "
        "lexical:0: it shares no term with the query)."
    )


LOST = json.loads(Path(__file__).with_name("lost.json").read_text("utf-8"))


@pytest.mark.parametrize("case", LOST, ids=[case["name"] for case in LOST])
def test_a_lost_memory(case: dict[str, Any]) -> None:
    ages = {key: {"last_accessed": NOW - timedelta(days=days)} for key, days in case.get("days", {}).items()}
    given = {name: case[name] for name in ("model", "embeddings") if name in case}
    subject = evidence(case.get("lists", VECTOR), memories=case.get("memories", ages), **given)
    path, sentence = explained(subject, case["memory"], case["k"], case.get("config"))
    assert (path.status, path.lost_at) == (case["status"], case["stage"])
    assert sentence == f"Lost at {case['stage']}: {case['sentence']}"


def test_lost_by_a_threshold_that_takes_it_from_the_list_that_has_it_within_k() -> None:
    lists = {"vector": {"a": 0.9, "b": 0.8, "c": 0.7}, "lexical": {"c": 3.0, "b": 2.0}}
    cut = {"threshold.mode": "fixed", "threshold.fixed": 2.5, "threshold.applies_to": ["lexical"]}
    raw = {"lists.lexical.normalization": "none"}
    path, sentence = explained(evidence(lists), "b", 1, raw | cut)
    assert path.lost_at == "lists"
    path, sentence = explained(evidence(lists), "c", 1, raw | cut | {"threshold.fixed": 3.5})
    assert path.lost_at == "threshold"
    assert sentence == (
        "Lost at threshold: it took c from lexical; "
        "c was 3rd after fusion (3rd in vector (0.7), 1st in lexical (3)); it ended 3rd."
    )


def test_a_list_that_was_not_searched_is_told() -> None:
    places = [ListEntry("lexical:0", 1, 9.0, 50, False, "it would be 1st (BM25 9.00), but this list was not searched")]
    made = trace(evidence(VECTOR))
    assert cause(memory_path(made, "c", 2, places), made) == (
        "Lost at lists: below 2 in every list (best: 3rd in vector); "
        "c was 3rd after fusion (3rd in vector (0.7), lexical:0: it would be 1st (BM25 9.00), but this list was not searched); "
        "it ended 3rd."
    )


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"assembly.min_vector_score": 0.75}, "vector score 0.7000: below the floor of 0.75, and nobody moves up"),
        ({"assembly.strategy": "mmr", "assembly.mmr_min_value": 0.9}, "is below the least of 0.9"),
    ],
)
def test_dropped_by_assembly_for_its_value_is_no_loss_of_rank(changes: dict[str, Any], why: str) -> None:
    made = trace(evidence(VECTOR), changes)
    path, branch = memory_path(made, "c", 3), branch_of(made, "c", 3)
    assert branch is not None and (branch.stage, branch.manner) == ("assembly", "dropped")
    assert (path.status, path.lost_at) == ("dropped", "assembly")
    assert cause(path, made).endswith(f"{why}.") and "assembly dropped it: " in cause(path, made)


def test_past_the_limit_is_lost_where_it_was_below_k_first() -> None:
    path, _ = explained(evidence(VECTOR), "c", 2, {"assembly.limit": 2})
    assert (path.status, path.rank, path.lost_at) == ("below the top k", None, "lists")


TWO_LISTS = {"vector": {"a": 0.9}, "lexical": {"t": 3.0}}


def why(subject: Evidence, k: int, changes: dict[str, Any] | None = None, **options: Any) -> Why:
    return explain("t", subject, configured(changes), k=k, **options)


def by_path(found: Why) -> dict[str, Counterfactual]:
    return {rescue.changes[0].path: rescue for rescue in found.counterfactuals if len(rescue.changes) == 1}


def test_a_list_weight_is_walked_and_bisected() -> None:
    # a: 1/61. t: w/61, and a tie goes to a: t is first from w = 1 on.
    found = why(evidence(TWO_LISTS), 1, {"lists.lexical.weight": 0.5})
    change = by_path(found)["lists.lexical.weight"].changes[0]
    assert change.breakpoint is not None
    assert change.breakpoint.fails == pytest.approx(1.0, abs=1e-8)
    assert change.breakpoint.succeeds == pytest.approx(1.0, abs=1e-8)
    assert change.now == 1.05  # the slider's next step
    assert change.distance == pytest.approx(0.5 / 3)


def test_a_refusal_is_told_with_the_threshold_that_answers_and_rescued_at_exactly_it() -> None:
    subject = evidence({"vector": {"t": 0.312, "a": 0.2}, "lexical": {"t": 3.0, "a": 1.0}})
    found = why(subject, 1, {"abstain.vector": 0.45})
    assert found.cause == (
        "Lost at abstain: nothing was returned because best vector score 0.312 is below 0.45; t stood 1st. "
        "It answers with abstain.vector at most 0.312."
    )
    change = by_path(found)["abstain.vector"].changes[0]
    assert change.solved and change.breakpoint is not None and change.now == 0.31
    assert change.breakpoint.succeeds == 0.312 < change.breakpoint.fails < 0.312 + 1e-15
    assert by_path(found)["abstain.vector"].side_effects.rbo == 1.0  # there was no other result to disturb


def test_two_thresholds_that_refuse_are_lowered_together() -> None:
    subject = evidence({"vector": {"t": 0.3}, "lexical": {"t": 3.0}})
    both = {"abstain.vector": 0.45, "abstain.lexical": 5.0}
    found = why(subject, 1, both)
    assert "abstain.vector at most 0.3 and abstain.lexical at most 3.0" in found.cause
    assert [rescue.values for rescue in found.counterfactuals] == [{"abstain.vector": 0.3, "abstain.lexical": 3.0}]
    alone = why(subject, 1, both | {"abstain.rule": "all"})
    assert {"abstain.vector", "abstain.lexical"} <= set(by_path(alone))


def test_the_breakpoint_of_a_weight_is_exact_through_normalisation_and_factors() -> None:
    """raw: a 1/61, b 1/62, t w/61; from w = 1 on t is highest and normalises to 1, and its age halves that.

    a normalises to (1/61 - 1/62) / (w/61 - 1/62), which is 1/2 at w = 2 - 61/62.
    """
    lists = {"vector": {"a": 0.9, "b": 0.8}, "lexical": {"t": 5.0}}
    ages = {"a": {"last_accessed": NOW}, "b": {"last_accessed": NOW}, "t": {"last_accessed": NOW - timedelta(days=60)}}
    changes = {"fusion.normalize": "minmax", "adjust.time_decay.mode": "hyperbolic", "lists.lexical.weight": 0.5}
    subject = evidence(lists, memories=ages)
    change = by_path(why(subject, 1, changes))["lists.lexical.weight"].changes[0]
    assert change.breakpoint is not None
    assert change.breakpoint.fails < 2 - 61 / 62 < change.breakpoint.succeeds


def test_half_life_is_walked_and_bisected() -> None:
    # a 1/62, t 1/61 · 1/(1 + 1/h): equal at h = 61
    ages = {"a": {"last_accessed": NOW}, "t": {"last_accessed": NOW - timedelta(days=1)}}
    subject = evidence({"vector": {"t": 0.9, "a": 0.8}}, memories=ages)
    found = by_path(why(subject, 1, {"adjust.time_decay.mode": "hyperbolic", "adjust.time_decay.half_life_days": 30.0}))
    change = found["adjust.time_decay.half_life_days"].changes[0]
    assert change.breakpoint is not None
    assert change.breakpoint.fails == pytest.approx(61.0, abs=1e-5)
    assert change.breakpoint.succeeds == pytest.approx(61.0, abs=1e-5)
    assert found["adjust.time_decay.mode"].changes[0].now == "none"


def test_a_lower_depth_is_a_replay() -> None:
    # x 6/61 + 1/67 = 0.1133, t 6/62 + 1/61 = 0.1132; at lexical depth 6 x has 6/61 = 0.0984 alone
    lists = {"vector": {"x": 0.9, "t": 0.8}, "lexical": {"t": 9.0, "a": 8, "b": 7, "c": 6, "d": 5, "e": 4, "x": 3}}
    found = by_path(why(evidence(lists), 1, {"lists.vector.weight": 6.0}))
    change = found["lists.lexical.depth"].changes[0]
    assert (change.was, change.now) == (50, 6)


PAIR_LISTS = {"lexical": {"a": 0.6, "t": 0.5}}
PAIR = {
    "fusion.method": "combsum",
    "lists.lexical.normalization": "none",
    "adjust.priority": True,
    "adjust.pinned_factor": 1.1,
}


def test_a_pair_when_no_single_parameter_rescues() -> None:
    # a: 0.6 · priority 2 · pin 1.1. Without priority 0.66, with the lowest pin 0.6; without both 0.6 · pin < 0.5 from 0.8333 on.
    subject = evidence(PAIR_LISTS, memories={"a": {"priority": 2.0, "pinned": True}})
    found = why(subject, 1, PAIR)
    assert found.verdict.startswith(
        f"1 pair would bring it first. None of the {len(searched_specs())} single parameters tried does. "
    )
    values = found.counterfactuals[0].values
    assert values == {"adjust.priority": False, "adjust.pinned_factor": 0.8}
    point = next(
        change for change in found.counterfactuals[0].changes if change.path == "adjust.pinned_factor"
    ).breakpoint
    assert point is not None and point.succeeds == pytest.approx(0.5 / 0.6, abs=1e-6)


def test_nothing_rescues_what_is_second_in_everything() -> None:
    found = why(evidence(PAIR_LISTS), 1, {"fusion.method": "combsum"})
    assert (found.counterfactuals, found.nearest) == ((), None)
    assert re.fullmatch(
        r"Nothing that was tried brings it any nearer\. Not tried without the store: \d+ that need a new search, and \d+ that hold lists\.",
        found.verdict,
    )


def test_what_comes_nearest_is_named() -> None:
    # c stands first by its priority alone, a is better in everything: without c, t is 2nd
    subject = evidence({"vector": {"a": 0.6, "t": 0.5, "c": 0.4}}, memories={"c": {"priority": 2.0}})
    found = why(subject, 1, PAIR)
    assert found.path.rank == 3 and not found.counterfactuals
    assert found.nearest is not None and found.nearest.place == 2
    assert found.verdict.startswith("Nothing that was tried brings it first; what comes nearest puts it 2nd.")


def test_a_variant_that_is_switched_off_stays_off() -> None:
    variants = (Variant("query"), Variant("other", "expansion"))
    subject = evidence({"vector": {"a": 0.9}, "lexical@1": {"t": 3.0}}, variants=variants)
    assert why(subject, 2).path.status == "in the top k"
    off = why(subject, 2, switched_off=[1])
    assert (off.path.lost_at, off.counterfactuals) == ("lists", ())


def test_the_progress_says_how_far_it_is_and_can_cancel() -> None:
    seen = []

    def watch(label: str, done: int, total: int) -> None:
        seen.append((label, done, total))
        if done == 10:
            raise Cancelled

    with pytest.raises(Cancelled):
        why(evidence(TWO_LISTS), 1, progress=watch)
    assert seen[0][:2] == ("trying parameters", 0) and seen[-1][1] == 10 < seen[-1][2]


def test_rescues_stand_by_how_little_they_disturb() -> None:
    lists = {
        "vector": {name: 0.9 - 0.01 * i for i, name in enumerate("abcdeft")},
        "lexical": {"t": 5.0, "f": 4.0, "b": 3.0},
    }
    found = why(evidence(lists), 1, {"lists.lexical.weight": 0.13})
    others = found.counterfactuals[1:]  # the first is the fix
    overlaps = [round(rescue.side_effects.rbo, 2) for rescue in others]
    assert len(others) > 2 and overlaps == sorted(overlaps, reverse=True)
    assert list(others) == ordered(reversed(others))


def test_a_change_that_empties_the_results_is_no_fix() -> None:
    # t is sixth of six by meaning and the only one by words: without the vector list it stands alone
    subject = evidence({"vector": {name: 0.9 - 0.01 * i for i, name in enumerate("abcdef")}, "lexical": {"t": 5.0}})
    found = why(subject, 1, {"lists.lexical.weight": 0.05})
    assert found.counterfactuals and "lists.vector.enabled" not in by_path(found)
    for rescue in found.counterfactuals:
        assert len(replay(subject, rescue.config(configured({"lists.lexical.weight": 0.05}))).results) >= 4


def test_missing_scores_are_fetched_and_what_they_undo_is_no_fix() -> None:
    # b is next to be read; without a score it keeps its place, and with the lowest it does not
    head = {"rerank.backend": "cross_encoder", "rerank.model": "oracle", "rerank.depth": 2}
    config = configured(head)
    subject = evidence({"vector": {"a": 0.9, "c": 0.8, "t": 0.7, "b": 0.6}}, model={"a": 0.9, "c": 0.8})
    trials = Trials(subject, "t", 2)
    rescues = [rescue for rescue in single_counterfactuals(trials, config)[0]]
    asked: list[PipelineConfig] = []

    def score(known: Evidence, wanted: PipelineConfig) -> Evidence:
        asked.append(wanted)
        scores = {key: ModelScore(value, key) for key, value in {"a": 0.9, "c": 0.8, "t": 0.1, "b": 0.0}.items()}
        return replace(known, model_scores={"oracle": scores})

    lacking = [rescue for rescue in rescues if rescue.needs]
    complete = with_scores(rescues, trials, config, score)
    assert lacking and len(asked) >= len(lacking)
    assert not [rescue for rescue in complete if rescue.needs]


def test_the_judge_and_gather_parameters_are_never_turned() -> None:
    paths = {spec.path for spec in searched_specs()}
    assert not [path for path in paths if path.startswith(("judge.", "query.", "expansion."))]
    assert {"fusion.k", "lists.vector.weight", "lists.vector.depth", "adjust.priority", "assembly.strategy"} <= paths


def test_an_unknown_memory_names_the_nearest() -> None:
    require_known("m077", ["m077"])
    with pytest.raises(InputError, match=r"m77: no such memory; the nearest are m077"):
        require_known("m77", ["m077", "x", "a-long-other-id"])
    with pytest.raises(InputError, match=r"^zzz: no such memory$"):
        require_known("zzz", ["m077"])
