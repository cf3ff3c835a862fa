"""How benchmarks/planted.py judges an answer."""

import pytest

from benchmarks.planted import cause_of
from benchmarks.planted_faults import Fault, Planted, Right, all_faults

FAULT = Fault(
    "gap", "", Right(frozenset({"gap"}), ("gap.ratio",), "0.9 × the top"), lambda store, folder: Planted(store)
)


@pytest.mark.parametrize(
    ("answer", "read", "judged"),
    [
        ({"lost_at": "gap", "cause": "score 0.87 is below 0.9 × the top score"}, "", "right"),
        ({"lost_at": "gap", "cause": "dropped", "fix": {"sentence": "", "changes": {"gap.ratio": 0.8}}}, "", "right"),
        ({"lost_at": "gap", "cause": "gap dropped it"}, "", "partly"),
        ({"lost_at": "gap", "cause": "gap dropped it"}, "doctor: gap.ratio is high", "right"),
        ({"lost_at": "gap", "cause": "gap dropped it"}, "known mistake: 0.9 ×\nthe top", "right"),
        ({"lost_at": "fusion", "cause": "gap.ratio"}, "", "wrong"),
        ({"lost_at": None, "status": "returned"}, "", "wrong"),
        ({}, "error", "cannot tell"),
    ],
)
def test_cause_is_judged_by_stage_and_by_what_is_named(answer: dict, read: str, judged: str) -> None:
    assert cause_of(FAULT, answer, read) == judged


def test_faults_have_names_of_their_own() -> None:
    names = [fault.name for fault in all_faults()]
    assert len(names) == len(set(names)) >= 24
