"""Labels: one per query, memory, judge and kind, with a history; nobody's is overwritten; conflicts are decided apart."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cems_workbench.errors import InputError
from cems_workbench.evaluation.evidence_file import EvidenceSet, Header
from cems_workbench.evaluation.grades import agreed_answerable, as_judged
from cems_workbench.evaluation.labelling.agreement import no_answer_agreement
from cems_workbench.jobs.evaluation import agreed
from cems_workbench.jobs.evaluation import labelled as labelled_evidence
from cems_workbench.jobs.labelling import give_no_answer
from cems_workbench.jobs.query_set_evidence import measurable
from cems_workbench.pipeline import Evidence, Hit, RankedList, Variant
from cems_workbench.records import DEFAULT_SCALE, WHOLE_STORE, GradeScale, Judgment, Memory, ParsedInput, Query
from cems_workbench.store import QueueRecord, RowCounts, Store
from cems_workbench.store.team.session import CLAIM_TIMEOUT_S, FileClaims

ANN, BO = "Ann", "Bo"
THEN = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def labelled(store: Store) -> Store:
    """Two queries and three memories to label."""
    memories = tuple(Memory(name, f"text of {name}") for name in ("m", "n", "o"))
    store.add(ParsedInput("team.jsonl", "t", memories=memories, queries=(Query("q", "what?"), Query("r", "who?"))))
    return store


def grades(store: Store) -> dict[tuple[str, str, str], int]:
    return {(one.qid, one.memory_id, one.judge): one.grade for one in store.judgments.read()}


def label(store: Store, memory_id: str, grade: int, judge: str = ANN, **more: object) -> None:
    store.labels.give(replace(Judgment("q", memory_id, grade, judge), **more))


def test_a_label_carries_its_author_time_note_and_what_was_shown(labelled):
    event = labelled.labels.give(
        Judgment("q", "m", 2, ANN, note="half of it"), {"query": "what?", "memory": "text of m"}
    )
    (kept,) = labelled.judgments.read()
    assert (kept.judge, kept.kind, kept.grade, kept.note) == (ANN, "human", 2, "half of it")
    assert kept.judged_at is not None and abs((datetime.now(UTC) - kept.judged_at).total_seconds()) < 60
    assert (event.action, event.before) == ("label", None)
    label(labelled, "m", 3)
    assert labelled.labels.history(ANN)[-1].before["shown"] == '{"query": "what?", "memory": "text of m"}'


def test_reviewers_and_models_do_not_overwrite_one_another(labelled):
    label(labelled, "m", 3)
    label(labelled, "m", 0, BO)
    labelled.labels.give(Judgment("q", "m", 1, ANN, "model"))
    assert [(one.judge, one.kind, one.grade) for one in labelled.judgments.read()] == [
        (ANN, "human", 3),
        (ANN, "model", 1),
        (BO, "human", 0),
    ]


def test_the_same_label_twice_is_one_event(labelled):
    label(labelled, "m", 3)
    assert labelled.labels.give(Judgment("q", "m", 3, ANN)) is None
    assert len(labelled.labels.history(ANN)) == 1


def test_a_change_of_mind_is_kept_and_undone_step_by_step(labelled):
    label(labelled, "m", 3, note="sure")
    label(labelled, "m", 1)
    label(labelled, "n", 2)
    assert labelled.judgments.read("q")[0].note == "sure"  # no note given leaves the one that is there
    assert labelled.labels.undo(ANN).memory_id == "n"
    assert grades(labelled) == {("q", "m", ANN): 1}
    assert labelled.labels.undo(ANN).grade == 1
    assert grades(labelled) == {("q", "m", ANN): 3}
    assert labelled.labels.undo(ANN).grade == 3
    assert grades(labelled) == {}
    assert labelled.labels.undo(ANN) is None
    assert [event.action for event in labelled.labels.history(ANN)] == ["label"] * 3 + ["undo"] * 3


def test_after_an_undo_a_new_label_can_be_given_and_undone(labelled):
    label(labelled, "m", 3)
    labelled.labels.undo(ANN)
    label(labelled, "m", 0)
    assert grades(labelled) == {("q", "m", ANN): 0}
    labelled.labels.undo(ANN)
    assert grades(labelled) == {}
    assert labelled.labels.undo(ANN) is None


def test_undo_takes_back_ones_own_only(labelled):
    label(labelled, "m", 3, BO)
    assert labelled.labels.undo(ANN) is None
    assert grades(labelled) == {("q", "m", BO): 3}


def test_skips_and_unclear_queries_are_marks_that_can_be_undone(labelled):
    labelled.labels.skip("q", "m", ANN, "not my field")
    labelled.labels.unclear("r", ANN, "who is meant?")
    marks = [(mark.action, mark.qid, mark.memory_id, mark.judge, mark.note) for mark in labelled.labels.marks()]
    assert marks == [("skip", "q", "m", ANN, "not my field"), ("unclear", "r", "", ANN, "who is meant?")]
    label(labelled, "n", 1)
    labelled.labels.undo(ANN)
    assert labelled.labels.undo(ANN).action == "unclear"
    assert [mark.action for mark in labelled.labels.marks()] == ["skip"]
    assert labelled.judgments.read() == []


@pytest.mark.parametrize(
    ("judgment", "reason"),
    [
        (Judgment("x", "m", 1, ANN), "no query 'x'"),
        (Judgment("q", "x", 1, ANN), "no memory 'x'"),
        (Judgment("q", "m", 4, ANN), "grade 4 is not on the scale of query set team, which has 0 to 3"),
        (Judgment("q", "m", 1, "  "), "not a name"),
        (Judgment("q", "m", 1, ANN, "robot"), "kind must be human or model"),
    ],
)
def test_what_cannot_be_a_label_is_refused_and_leaves_no_trace(labelled, judgment, reason):
    with pytest.raises(InputError, match=reason):
        labelled.labels.give(judgment)
    assert labelled.judgments.read() == []
    assert labelled.labels.history(judgment.judge) == []


def test_an_import_contradicting_a_label_given_here_is_a_conflict_of_its_row(labelled):
    label(labelled, "m", 3)
    found = ParsedInput("old.csv", "c", judgments=(Judgment("q", "m", 1, ANN), Judgment("q", "n", 1, ANN)))
    report = labelled.add(found)
    assert [(error.row, error.field, error.reason) for error in report.errors] == [
        (1, "grade", "Ann gave q m grade 3 here, which is kept")
    ]
    assert report.judgments == RowCounts(added=1)
    assert grades(labelled) == {("q", "m", ANN): 3, ("q", "n", ANN): 1}
    agreeing = replace(found, judgments=(Judgment("q", "m", 3, ANN),))
    assert labelled.add(agreeing).judgments == RowCounts(unchanged=1)


def test_an_import_over_an_import_replaces_and_keeps_what_it_was(labelled):
    labelled.add(ParsedInput("one.csv", "c", judgments=(Judgment("q", "m", 1, ANN, judged_at=THEN),)))
    report = labelled.add(ParsedInput("two.csv", "c", judgments=(Judgment("q", "m", 2, ANN),)))
    assert report.judgments == RowCounts(updated=1)
    (event,) = labelled.labels.history(ANN)
    assert (event.action, event.grade, event.source) == ("import", 2, "two.csv")
    assert (event.before["grade"], event.before["source"]) == (1, "one.csv")
    assert labelled.judgments.read() == [Judgment("q", "m", 2, ANN, judged_at=THEN)]


def test_a_label_over_an_import_can_be_undone_to_it(labelled):
    labelled.add(ParsedInput("one.csv", "c", judgments=(Judgment("q", "m", 1, ANN, note="from the file"),)))
    label(labelled, "m", 3, note="mine")
    labelled.labels.undo(ANN)
    assert labelled.judgments.read() == [Judgment("q", "m", 1, ANN, note="from the file")]
    assert labelled.add(ParsedInput("one.csv", "c", judgments=(Judgment("q", "m", 0, ANN),))).errors == ()


def test_model_judgments_are_recorded_in_bulk_and_people_are_not(labelled):
    judged = [Judgment("q", name, 2, "net", "model") for name in ("m", "n")]
    assert labelled.judgments.record(judged, "pre-labelling") == RowCounts(added=2)
    assert labelled.judgments.read(kind="human") == []
    assert len(labelled.judgments.read(kind="model")) == 2
    with pytest.raises(InputError, match="only judgments of a model"):
        labelled.judgments.record([Judgment("q", "m", 1)], "x")


def test_decisions_stand_beside_the_raw_labels_and_the_latest_counts(labelled):
    label(labelled, "m", 3)
    label(labelled, "m", 0, BO)
    labelled.decisions.decide("q", "m", 2, "Cy", "half")
    labelled.decisions.decide("q", "m", 3, "Cy")
    assert [(one.grade, one.decided_by) for one in labelled.decisions.read()] == [(3, "Cy")]
    assert grades(labelled) == {("q", "m", ANN): 3, ("q", "m", BO): 0}
    labelled.decisions.decide("q", "m", None, "Dee")
    assert labelled.decisions.read() == []
    assert [one.grade for one in labelled.decisions.history("q", "m")] == [2, 3, None]
    with pytest.raises(InputError, match="not on the scale"):
        labelled.decisions.decide("q", "m", 9, "Cy")


def test_feedback_of_labels_sets_the_counts_that_the_adjustment_reads(labelled):
    version = labelled.content_version
    assert labelled.memories.count_feedback({"m": (2, 1), "n": (0, 0), "gone": (1, 1)}) == 1
    memory = labelled.memories.get("m")
    assert (memory.relevant_count, memory.noise_count) == (2, 1)
    assert labelled.content_version == version + 1
    assert labelled.memories.count_feedback({"m": (2, 1)}) == 0
    assert labelled.content_version == version + 1


def test_a_queue_is_kept_in_order_replaced_and_forgotten(labelled):
    pairs = (("q", "n"), ("q", "m"), ("r", "m"))
    labelled.queues.save(QueueRecord("first", THEN, 2, {"depth": 10}, pairs))
    label(labelled, "m", 1)
    labelled.labels.give(Judgment("r", "o", 1, ANN))
    assert labelled.queues.pairs("first") == pairs
    assert labelled.queues.read() == [QueueRecord("first", THEN, 2, {"depth": 10})]
    assert [(one.qid, one.memory_id) for one in labelled.queues.labels("first")] == [("q", "m")]
    labelled.memories.delete("n")
    assert labelled.queues.pairs("first") == pairs[1:]
    labelled.queues.save(QueueRecord("first", THEN, 1, {}, pairs[:1]))
    assert labelled.queues.pairs("first") == ()
    assert labelled.queues.remove("first") and not labelled.queues.remove("first")
    assert len(labelled.judgments.read()) == 2


@pytest.mark.parametrize(
    "queue",
    [QueueRecord("", THEN, 1, {}), QueueRecord("x", THEN, 0, {}), QueueRecord("x", THEN, 1, {}, (("q", "m"),) * 2)],
)
def test_a_queue_that_cannot_work_is_refused(labelled, queue):
    with pytest.raises(InputError):
        labelled.queues.save(queue)


def test_a_scale_of_the_set_admits_its_own_grades(labelled):
    labelled.query_sets.set_scale("team", GradeScale(((0, "no"), (7, "yes"))))
    label(labelled, "m", 7)
    with pytest.raises(InputError, match="which has 0, 7"):
        label(labelled, "n", 1)


def test_a_claim_is_seen_by_others_and_ends_with_time():
    now = [0.0]
    claims = FileClaims(lambda: now[0])
    seen: list[dict[str, tuple[str, str]]] = []

    def take(others: dict[str, tuple[str, str]]) -> tuple[str, str]:
        seen.append(dict(others))
        return ("q", "m")

    claims.claim(ANN, take)
    claims.claim(BO, take)
    claims.claim(ANN, take)
    assert seen == [{}, {ANN: ("q", "m")}, {BO: ("q", "m")}]
    claims.release(BO)
    claims.claim(ANN, take)
    now[0] = CLAIM_TIMEOUT_S + 1
    claims.claim(BO, take)
    assert seen[3:] == [{}, {}]


def test_a_judge_called_wrong_is_a_mark_of_its_own_that_undo_of_labels_leaves_alone(labelled):
    labelled.labels.give(Judgment("q", "m", 3, "Ann"))
    mark = labelled.labels.call_judge_wrong("q", "m", "Ann", "minilm")
    assert [(one.qid, one.memory_id, one.judge, one.note) for one in labelled.labels.judged_wrong()] == [
        ("q", "m", "Ann", "minilm")
    ]
    assert labelled.labels.marks() == []
    assert labelled.labels.undo("Ann").action == "label"
    labelled.labels.take_back(mark)
    assert labelled.labels.judged_wrong() == []


def test_a_label_is_not_taken_back_as_a_mark(labelled):
    event = labelled.labels.give(Judgment("q", "m", 3, "Ann"))
    with pytest.raises(InputError, match="undo"):
        labelled.labels.take_back(event)


def test_the_scale_of_a_query_is_its_sets_and_the_default_outside_of_any(labelled):
    assert labelled.query_sets.scale_of("nowhere") == DEFAULT_SCALE


def test_that_nothing_answers_a_query_is_a_label_of_the_whole_store_and_can_be_undone(labelled):
    event = labelled.labels.give(Judgment("q", WHOLE_STORE, 0, ANN, note="searched twice"), {"looked_at": ["m"]})
    (kept,) = labelled.judgments.read()
    assert (kept.memory_id, kept.grade, kept.judge, kept.note) == (WHOLE_STORE, 0, ANN, "searched twice")
    assert [mark.id for mark in labelled.labels.marks()] == [event.id]
    assert labelled.labels.undo(ANN).id == event.id
    assert (labelled.judgments.read(), labelled.labels.marks()) == ([], [])
    with pytest.raises(InputError, match="0 or 1"):
        labelled.labels.give(Judgment("q", WHOLE_STORE, 3, ANN))


def test_what_a_person_looked_at_is_kept_with_that_nothing_answers(labelled):
    label(labelled, "m", 0)
    label(labelled, "o", 2, BO)
    labelled.labels.skip("q", "n", ANN)
    assert give_no_answer(labelled, "q", ANN, at_hand="n", shown={"query": "what?"}) == ["o"]
    give_no_answer(labelled, "q", ANN, at_hand="o", shown={}, note="again")
    before = json.loads(labelled.labels.history(ANN, "q", WHOLE_STORE)[-1].before["shown"])
    assert before == {"query": "what?", "looked_at": ["m", "n"]}


def test_people_go_before_models_then_most_say_and_a_tie_is_open():
    def said(*votes: tuple[str, str, int]) -> bool | None:
        return agreed_answerable([Judgment("q", WHOLE_STORE, grade, judge, kind) for judge, kind, grade in votes])["q"]

    assert said(("a", "human", 0)) is False
    assert said(("a", "human", 0), ("b", "human", 1)) is None
    assert said(("a", "human", 0), ("b", "human", 1), ("c", "human", 1)) is True
    assert said(("a", "human", 0), ("m", "model", 1), ("n", "model", 1)) is False
    assert agreed_answerable([Judgment("q", "m", 0)]) == {}
    asked = [Query("q", "w", answerable=True), Query("r", "w", answerable=False)]
    assert [one.answerable for one in as_judged(asked, {"q": None})] == [None, False]
    told = [Judgment("q", WHOLE_STORE, 0, "a"), Judgment("q", WHOLE_STORE, 0, "b"), Judgment("r", WHOLE_STORE, 0, "a")]
    line = str(no_answer_agreement([*told, Judgment("r", "m", 2, "b")], {}))
    assert (
        line
        == "2 queries are said to have no answer, 1 by two people or more; 1 with a memory judged relevant, which counts"
    )


def test_a_label_that_nothing_answers_counts_in_evidence_and_is_taken_back_with_it():
    hits = (Hit("m", 0.5),)
    found = Evidence(
        "what?", {"m": Memory("m", "t")}, (Variant("what?"),), (RankedList("vector:0", "vector", 0, hits),)
    )
    evidence = EvidenceSet(
        Path(), Header("s", "i", 1, "e", "", ""), (Query("q", "what?"),), (), {"q": found}, "h", True, 1.0
    )
    told = [Judgment("q", WHOLE_STORE, 0, ANN)]
    batch = labelled_evidence(evidence, agreed(told, None)).batch
    assert (batch.qids, batch.unanswerable.tolist(), batch.grades) == (["q"], [True], ({},))
    assert labelled_evidence(evidence, agreed([], None)).batch.qids == []
    assert agreed(told, None).digest != agreed([], None).digest
    assert measurable(evidence.queries, told) == list(evidence.queries)
