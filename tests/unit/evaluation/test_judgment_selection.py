"""Which judgments are exported: by query, judge and kind, raw or one per pair."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cems_workbench.errors import InputError
from cems_workbench.evaluation.labelling.agreement import choose_judgments
from cems_workbench.records import Judgment, Memory, ParsedInput, Query
from cems_workbench.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "store") as opened:
        memories = (Memory("m", "one"), Memory("n", "two"))
        opened.add(ParsedInput("t.jsonl", "t", memories=memories, queries=(Query("q", "what?"), Query("r", "who?"))))
        for qid, memory_id, grade, judge in (
            ("q", "m", 3, "ann"),
            ("q", "m", 1, "bo"),
            ("q", "n", 2, "ann"),
            ("r", "m", 0, "bo"),
        ):
            opened.labels.give(Judgment(qid, memory_id, grade, judge))
        opened.judgments.record([Judgment("q", "m", 0, "minilm", "model")], "here")
        yield opened


def said(judgments: tuple[Judgment, ...]) -> list[tuple[str, str, int, str]]:
    return [(one.qid, one.memory_id, one.grade, one.judge) for one in judgments]


def test_people_alone_unless_models_are_asked_for(store: Store) -> None:
    assert {one.kind for one in choose_judgments(store, {"q", "r"}).judgments} == {"human"}
    assert said(choose_judgments(store, {"q", "r"}, kind="model").judgments) == [("q", "m", 0, "minilm")]
    assert len(choose_judgments(store, {"q", "r"}, kind="all").judgments) == 5


def test_of_some_queries_and_of_one_judge(store: Store) -> None:
    assert said(choose_judgments(store, {"r"}).judgments) == [("r", "m", 0, "bo")]
    assert said(choose_judgments(store, {"q", "r"}, judge="ann").judgments) == [
        ("q", "m", 3, "ann"),
        ("q", "n", 2, "ann"),
    ]


def test_a_rule_leaves_one_grade_a_pair_and_names_what_stays_open(store: Store) -> None:
    found = choose_judgments(store, {"q", "r"}, rule="majority")
    assert said(found.judgments) == [("q", "n", 2, "agreed"), ("r", "m", 0, "agreed")]
    assert found.still_open == ("q m: ann 3, bo 1",)
    strict = choose_judgments(store, {"q", "r"}, rule="strictest")
    assert (strict.still_open, len(strict.judgments)) == ((), 3)


def test_a_decision_by_name_settles_its_pair(store: Store) -> None:
    store.decisions.decide("q", "m", 2, "eve")
    assert ("q", "m", 2, "eve") in said(choose_judgments(store, {"q"}, rule="decided").judgments)


def test_an_unknown_judge_and_kind_are_one_clear_line(store: Store) -> None:
    with pytest.raises(InputError, match="no label of 'zoe'; there are labels of ann, bo, minilm"):
        choose_judgments(store, {"q"}, judge="zoe")
    with pytest.raises(InputError, match="kind: 'dogs'"):
        choose_judgments(store, {"q"}, kind="dogs")
