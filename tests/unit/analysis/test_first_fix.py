"""Which fix `why` names first, and its sentence, on small evidence computed by hand."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from cems_workbench.analysis.why import Counterfactual, LabelledSet, explain
from cems_workbench.analysis.why.counterfactual import Change
from cems_workbench.analysis.why.first_fix import NOT_GATHERED, first_fix, standing_of
from cems_workbench.analysis.why.side_effects import NDCG, LabelledEffect, SideEffects
from cems_workbench.evaluation.verdict import verdict_of_values
from cems_workbench.pipeline import Evidence, replay
from cems_workbench.pipeline.supersession import SUPERSEDED
from cems_workbench.ui.inspect.tools.why import cause_html
from tests.unit.pipeline.cases import NOW, configured, evidence

UNMOVED = SideEffects(1.0, 1.0)


def change(path: str, distance: float, differences: list[float] | None = None, **fields: Any) -> Counterfactual:
    """A change with these differences of nDCG@10 on the judged queries; None: not measured."""
    one = Counterfactual((Change(path, 1, 2, distance),), 3, UNMOVED, **fields)
    if differences is None:
        return one
    values = np.array(differences)
    verdict = verdict_of_values(("the change", "workbench"), NDCG, values)
    ends = (0.5, 0.5 + float(values.mean()), verdict.low, verdict.high)
    return replace(one, labelled=LabelledEffect(len(values), (), (), 0, 0, *ends, verdict))


PASSES = [0.1, 0.2] * 60
CANNOT_TELL = [0.5, -0.4] * 20
LOSES_PERHAPS = [0.4, -0.5] * 20
FAILS = [-0.1, -0.2] * 60


def named(*changes: Counterfactual) -> str:
    fix = first_fix("m", 10, changes)
    assert fix.change is not None
    return fix.change.changes[0].path


def test_smallest_change_without_a_loss_comes_first_and_a_fail_never_if_another_exists() -> None:
    kinds = [
        change(f"fusion.{name}", distance, own)
        for name, distance, own in [
            ("cannot", 0.8, CANNOT_TELL),
            ("pass", 0.9, PASSES),
            ("unknown", 0.7, None),
            ("perhaps", 0.6, LOSES_PERHAPS),
            ("fail", 0.5, FAILS),
        ]
    ]
    assert [standing_of(one) for one in kinds] == ["unharmed", "holds", "unknown", "doubtful", "harms"]
    for i in range(len(kinds)):
        assert named(*reversed(kinds[i:])) == kinds[i].changes[0].path


def test_parameter_that_the_cause_names_comes_before_others_unless_it_is_known_to_lose() -> None:
    other, cause = change("fusion.k", 0.1, PASSES), change("rerank.depth", 0.9, of_cause=True)
    assert named(other, cause) == "rerank.depth"
    assert named(other, change("rerank.depth", 0.9, FAILS, of_cause=True)) == "fusion.k"


def test_among_equals_the_smallest_change_and_first_what_puts_it_above_the_superseded() -> None:
    near, far = change("fusion.near", 0.1, PASSES), change("fusion.far", 0.2, PASSES)
    assert named(far, near) == "fusion.near"
    assert named(far, replace(near, stale_above="old")) == "fusion.far"
    pair = replace(near, changes=(*near.changes, Change("fusion.k", 1, 2, 0.0)))
    assert named(pair, far) == "fusion.far"


def test_a_loss_with_missing_scores_comes_after_the_unknown_and_other_words_after_a_setting() -> None:
    def unscored(path: str, distance: float, differences: list[float]) -> Counterfactual:
        one = change(path, distance, differences)
        assert one.labelled is not None
        return replace(one, labelled=replace(one.labelled, unscored=88))

    losing, other = unscored("fusion.losing", 0.1, FAILS), unscored("fusion.other", 0.9, CANNOT_TELL)
    assert (standing_of(losing), standing_of(other)) == ("doubtful", "unknown")
    assert named(losing, other) == "fusion.other"
    words = change("expansion.backend", 0.0, gathers=True, terms=("grew",))
    gathers = change("query.mode", 1.0, gathers=True)
    assert [named(words, gathers, other), named(words, gathers), named(losing, words)] == [
        "fusion.other",
        "query.mode",
        "fusion.losing",
    ]
    assert first_fix("m", 10, [words]).sentence.startswith(
        "No setting that was tried brings m into the first 10; for this query only: expansion.backend = 2 and search for “grew” too (needs "
        "a new search). m becomes 3rd; "
    )


def test_sentence_says_first_that_every_fix_harms() -> None:
    worse = change("fusion.worse", 0.1, [-0.3, -0.4] * 60)
    fix = first_fix("m", 10, [worse, change("fusion.bad", 0.9, FAILS)])
    assert fix.sentence == (
        "All 2 changes that bring m into the first 10 fail on the judged queries; the least loss: fusion.bad = 2. m becomes 3rd; "
        "on 120 judged queries nDCG@10 -0.150 [-0.159, -0.141] (Fail)."
    )
    assert first_fix("m", 1, [worse]).sentence.startswith(
        "The only change that brings m first fails on the judged queries: fusion.worse = 2. "
    )
    doubtful = first_fix("m", 10, [change("fusion.k", 0.1, LOSES_PERHAPS)]).sentence
    assert doubtful.startswith(
        "No change that brings m into the first 10 is known to spare the judged queries; the least loss: "
    )


def test_sentence_says_why_nothing_was_checked() -> None:
    fix = first_fix("m", 10, [change("fusion.k", 0.1)], unchecked=NOT_GATHERED)
    assert fix.sentence == "Fix: fusion.k = 2. m becomes 3rd; not checked on other queries: not gathered yet."
    gathers = first_fix("m", 10, [change("query.mode", 1.0, gathers=True)], unchecked=NOT_GATHERED)
    assert gathers.sentence == (
        "Fix: query.mode = 2 (needs a new search). m becomes 3rd; not checked on other queries: each would need a new search."
    )
    assert first_fix("m", 10, []).sentence == "No fix was found: nothing that was tried brings m into the first 10."


def test_words_that_are_searched_for_are_left_out_of_a_redacted_sentence() -> None:
    fix = first_fix("m", 10, [change("expansion.backend", 1.0, gathers=True, terms=("secret",))])
    assert "“secret”" in fix.sentence and "secret" not in fix.redacted.sentence


def superseding(order: str, **memories: dict[str, Any]) -> Evidence:
    """Evidence of one list in this order, in which t supersedes a."""
    scores = {name: 0.9 - 0.05 * i for i, name in enumerate(order)}
    note = {SUPERSEDED: {"a": [{"id": "t", "created_at": NOW.isoformat(), "kind": "supersedes"}]}}
    return evidence({"vector": scores}, memories=memories, notes=note)


def test_a_memory_below_the_one_it_supersedes_is_fixed_by_a_mode_of_supersession() -> None:
    subject, config = superseding("abct"), configured({"assembly.limit": 2})
    found = explain("t", subject, config)
    assert found.fix is not None and found.fix.change is not None
    assert found.fix.sentence.startswith("Fix: supersession.mode = follow. t becomes 1st; not checked on other queries")
    assert replay(subject, found.fix.change.config(config)).results[0].memory_id == "t"

    assert found.fix.sentence in " ".join(cause_html(found, "text of t").split())  # what the page draws

    # In the first 4 already, but a reader takes a for the truth.
    inside = explain("t", subject, configured({"assembly.limit": 4}))
    assert inside.path.status == "in the top k" and inside.fix is not None
    assert inside.fix.sentence.startswith("Fix: supersession.mode = follow. t becomes 1st")
    assert inside.verdict.endswith("would put it above a, which it supersedes.")
    assert {one.values["supersession.mode"] for one in inside.counterfactuals} == {"demote", "drop", "follow"}
    assert explain("b", subject, configured({"assembly.limit": 4})).fix is None


def test_sentence_says_when_no_change_puts_the_memory_above_what_it_supersedes() -> None:
    # t has expired, so that it takes nobody's rank; a is pinned by its priority, and only a larger limit brings t in.
    ages = {"a": {"priority": 9.0}, "t": {"valid_until": NOW - timedelta(days=1)}}
    subject = superseding("at", **ages)
    config = configured({"assembly.limit": 1, "adjust.priority": True})
    found = explain("t", subject, config, k=2)
    fix = found.fix
    assert fix is not None and fix.change is not None and fix.above == "a"
    without = [one for one in found.counterfactuals if one.stale_above is not None]
    kept = first_fix("t", 2, without, above="a")
    assert kept.sentence.endswith(" No change that was tried puts it above a, which it supersedes.")
    both = first_fix(
        "t", 2, [replace(without[0], changes=(Change("assembly.limit", 1, 2, 0.0),)), change("fusion.k", 0.1)]
    )
    assert "which it supersedes" not in both.sentence


def test_the_verdict_of_a_change_is_that_of_its_values() -> None:
    lists = {"vector": {"a": 0.9, "b": 0.8}, "lexical": {"b": 2.0, "a": 1.0}}
    labelled = LabelledSet(
        {f"q{i}": evidence(lists) for i in range(20)}, {f"q{i}": {"b": 3} for i in range(20)}, scope=" of 90"
    )
    before, after = configured({"lists.lexical.weight": 0.5}), configured({"lists.lexical.weight": 2.0})
    effect = labelled.effect(before, after, 10)
    assert effect.verdict.brief == f"nDCG@10 +{1 - 1 / np.log2(3):.3f} [+{effect.low:.3f}, +{effect.high:.3f}] (Pass)"
    assert effect.verdict.kind == "pass" and labelled.effect(before, before, 10).verdict.kind == "pass"
    fix = first_fix("b", 1, [replace(change("lists.lexical.weight", 0.5), labelled=effect)])
    assert "; on 20 of 90 judged queries nDCG@10 +0.369" in fix.sentence


@pytest.mark.parametrize("value", [0.1 + 0.2, 2 / 3, None, True, "follow", 7])
def test_the_value_of_a_sentence_is_the_value(value: object) -> None:
    from cems_workbench.config import parse_assignment

    one = Counterfactual((Change("fusion.k", 1, value, 0.1),), 1, UNMOVED)
    assert parse_assignment(one.assigned.replace(" = ", "=")) == ("fusion.k", value)
