"""What people decide is kept with its author and can be undone: labels, supersessions, imports; and looks at hold-outs."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

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
from cems_workbench.records import (
    DEFAULT_SCALE,
    SUPERSEDES,
    WHOLE_STORE,
    Chunk,
    GradeScale,
    Judgment,
    Memory,
    ParsedInput,
    Query,
    RecordedAnswer,
    Relation,
    Returned,
)
from cems_workbench.store import ImportOptions, QueueRecord, RowCounts, Store
from cems_workbench.store.claims import CLAIM_TIMEOUT_S, FileClaims
from tests.thoroughly import THOROUGH

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
    label(labelled, "n", 1)
    labelled.labels.give(Judgment("r", "o", 1, ANN))
    assert labelled.queues.pairs("first") == pairs
    assert labelled.queues.read() == [QueueRecord("first", THEN, 2, {"depth": 10})]
    assert [(one.qid, one.memory_id) for one in labelled.queues.labels("first")] == [*pairs[:2]]
    labelled.memories.delete("n")
    assert labelled.queues.pairs("first") == pairs[1:]
    assert [(one.qid, one.memory_id) for one in labelled.queues.labels("first")] == [("q", "m")]
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


@pytest.fixture
def three(store: Store) -> Store:
    """Three memories, and an edge of a file from c to a."""
    memories = tuple(Memory(name, f"text of {name}") for name in ("a", "b", "c"))
    store.add(ParsedInput("m.jsonl", "t", memories=memories, relations=(Relation("c", "a", SUPERSEDES, 0.5),)))
    return store


def edges(store: Store) -> list[Relation]:
    return store.relations.read()


FILE_EDGE = Relation("c", "a", SUPERSEDES, 0.5)


def test_an_accepted_pair_is_an_edge_under_its_author_until_it_is_undone(three):
    version = three.content_version
    three.supersessions.decide("b", "a", "accepted", ANN, why="another number")
    assert edges(three) == [Relation("b", "a", SUPERSEDES, 1.0, ANN), FILE_EDGE]
    assert three.content_version == version + 1
    assert three.supersessions.undo(ANN).why == "another number"
    assert edges(three) == [FILE_EDGE]
    assert three.supersessions.undo(ANN) is None


def test_the_latest_decision_counts_and_undo_restores_the_one_before(three):
    three.supersessions.decide("b", "a", "accepted", ANN)
    three.supersessions.decide("a", "b", "accepted", BO)
    assert Relation("a", "b", SUPERSEDES, 1.0, BO) in edges(three) and len(edges(three)) == 2
    three.supersessions.decide("b", "a", "rejected", BO)
    assert edges(three) == [FILE_EDGE]
    three.supersessions.undo(BO)
    three.supersessions.undo(BO)
    assert edges(three) == [Relation("b", "a", SUPERSEDES, 1.0, ANN), FILE_EDGE]
    assert [one.author for one in three.supersessions.history("a", "b")] == [
        ANN,
        BO,
        BO,
    ]


def test_a_skip_is_of_one_person_and_changes_no_verdict(three):
    three.supersessions.decide("b", "a", "accepted", ANN)
    three.supersessions.decide("b", "a", "skipped", BO)
    assert [one.verdict for one in three.supersessions.standing()] == ["accepted"]
    assert [one.author for one in three.supersessions.skipped(BO)] == [BO] and not three.supersessions.skipped(ANN)
    three.supersessions.undo(BO)
    assert not three.supersessions.skipped(BO)


def test_a_rejected_edge_of_a_file_stays(three):
    three.supersessions.decide("c", "a", "rejected", ANN)
    assert edges(three) == [FILE_EDGE] and three.supersessions.apply() == 0


def test_the_decision_of_a_colleague_becomes_an_edge_of_this_store(three):
    three.supersessions.decide("b", "a", "skipped", BO)
    with three.team.transaction() as session:
        session.change("UPDATE supersession_decisions SET verdict = 'accepted' WHERE decided_by = ?", [BO])
    assert three.supersessions.apply() == 1 and three.supersessions.apply() == 0
    assert Relation("b", "a", SUPERSEDES, 1.0, BO) in edges(three)


@pytest.mark.parametrize(
    ("newer", "older", "author", "words"),
    [
        ("a", "a", ANN, "cannot supersede itself"),
        ("a", "x", ANN, "no memory 'x'"),
        ("a", "b", " ", "is not a name"),
    ],
)
def test_what_cannot_be_decided_is_refused_in_a_line(three, newer, older, author, words):
    with pytest.raises(InputError, match=words):
        three.supersessions.decide(newer, older, "accepted", author)
    assert edges(three) == [FILE_EDGE] and three.supersessions.standing() == []


def test_looks_are_counted_per_query_set_and_survive_closing(tmp_path):
    with Store.open(tmp_path / "s") as store:
        assert store.holdouts.count("set", ["q1", "q2"]) == 0
        assert store.holdouts.look("set", ["q1", "q2"]) == 1
    with Store.open(tmp_path / "s") as store:
        assert store.holdouts.look("set", ["q2", "q1"]) == 2
        assert store.holdouts.count("another", ["q1"]) == 0
        assert store.holdouts.count("set", ["q3"]) == 0
        assert store.holdouts.count("set", []) == 0


def test_a_hold_out_that_shares_a_query_with_an_earlier_one_goes_on_counting(store):
    store.holdouts.look("set", ["q1", "q2"])
    store.holdouts.look("set", ["q1", "q2"])
    assert store.holdouts.count("set", ["q2", "q3"]) == 2
    assert store.holdouts.look("set", ["q2", "q3"]) == 3
    assert [store.holdouts.count("set", [qid]) for qid in ("q1", "q2", "q3")] == [2, 3, 1]


def test_a_query_that_is_named_twice_is_looked_at_once(store):
    assert store.holdouts.look("set", ["q1", "q1"]) == 1


def test_who_looked_is_kept_with_the_set(tmp_path):
    with Store.open(tmp_path / "store") as store:
        for who in ("ada", "bo", "ada", ""):
            store.holdouts.look("set", ["q1"], who)
        assert store.holdouts.lookers("set") == {"ada": 2, "bo": 1}
        assert store.holdouts.lookers("other") == {}
        assert store.holdouts.count("set", ["q1"]) == 4


FILES = ("a/memories.jsonl", "b/memories.jsonl", "upload.jsonl")
WIDE = GradeScale(tuple((grade, f"Grade {grade}") for grade in range(-1, 5)))
SEQUENCES = 300 if THOROUGH else 5


def random_input(chance: random.Random) -> ParsedInput:
    """A file with some rows of every kind, whose ids meet those of other files."""

    def some(names: str, most: int) -> list[str]:
        return chance.sample(names, chance.randint(0, most))

    def word() -> str:
        return f"text {chance.randint(1, 4)}"

    memories = tuple(
        Memory(key, word(), title=chance.choice((None, "text 1")), tags=tuple(some("tu", 2)))
        for key in some("mnopqrs", 5)
    )
    queries = tuple(Query(f"q{key}", word(), type=chance.choice((None, "fact"))) for key in some("1234", 4))
    return ParsedInput(
        chance.choice(FILES),
        "test",
        memories=memories,
        relations=tuple(
            Relation(one, other, weight=chance.random()) for one, other in zip(some("mno", 2), "op", strict=False)
        ),
        queries=queries,
        judgments=tuple(
            Judgment(f"q{key}", chance.choice("mnop"), chance.randint(0, 3), chance.choice(("ada", "bo")))
            for key in some("1234", 3)
        ),
        chunks=tuple(Chunk(each.id, seq, word(), None) for each in memories[:2] for seq in range(chance.randint(0, 2))),
        answers=tuple(
            RecordedAnswer(row, each.qid, each.query, None, (Returned(1, chance.choice("mnop"), chance.random()),))
            for row, each in enumerate(queries[:2], 1)
        ),
    )


def content(store: Store) -> dict[str, Any]:
    """What a user has in a store: everything that an import can bring. A set that became empty is none."""
    sets = store.query_sets.latest()
    with store._database.reading() as cursor:
        rows = (
            "SELECT k.*, c.seq, c.content FROM chunked AS k JOIN chunks AS c USING (memory_id) WHERE k.rule = 'given'"
        )
        answers = "SELECT set_name, qid, source, row, results FROM recorded_answers"
        marks = "SELECT id, origin, added_by FROM memories UNION ALL SELECT source_id || target_id, origin, added_by FROM relations"
        own = [cursor.execute(f"SELECT * FROM ({sql}) ORDER BY ALL").fetchall() for sql in (rows, answers, marks)]
    return {
        "memories": store.memories.read(),
        "relations": store.relations.read(),
        "queries": store.queries.read(),
        "judgments": store.judgments.read(),
        "sets": {one.name: (one.scale, store.query_sets.queries(one.name), one.sources) for one in sets if one.size},
        "own": own,
    }


@pytest.mark.parametrize("seed", range(SEQUENCES))
def test_imports_undone_in_reverse_order_leave_the_store_as_before(store: Store, seed: int) -> None:
    chance = random.Random(seed)
    before = [content(store)]
    for _ in range(chance.randint(2, 5)):
        options = ImportOptions(
            query_set=chance.choice((None, "set")),
            scale=chance.choice((None, None, WIDE)),
            replace=chance.random() < 0.6,
        )
        event = store.add(random_input(chance), options=options).event
        now = content(store)
        assert (now != before[-1]) >= bool(event)
        if event:
            before.append(now)
    for former in reversed(before[:-1]):
        store.imports.undo()
        assert content(store) == former
    assert all(event.undone_at for event in store.imports.read())
