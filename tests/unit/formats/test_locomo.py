"""LoCoMo conversations: turns are memories, questions are queries, evidence is judgments."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from cems_workbench.errors import InputError
from cems_workbench.formats import read
from cems_workbench.records import Judgment, Memory, Query

SHARED = Path(__file__).parents[4] / "shared" / "data" / "locomo"


def turn(number: str, text: str = "Hello", **more: object) -> dict[str, object]:
    return {"speaker": "Ann", "dia_id": number, "text": text, **more}


def conversation(**changes: object) -> dict[str, object]:
    return {
        "session_1_date_time": "1:56 pm on 8 May, 2023",
        "session_1": [turn("D1:1"), turn("D1:2", "Look", blip_caption="a duck")],
        "session_2_date_time": "12:05 am on 9 June, 2023",
        "session_2": [turn("D2:1", "Bye")],
        "session_3_date_time": "9:00 am on 1 July, 2023",
        "qa": [{"question": "When?", "answer": 2023, "evidence": ["D1:2"], "category": 2}],
        **changes,
    }


def judged(write, evidence):
    parsed = read(write("7.json", conversation(qa=[{"question": "q", "evidence": evidence, "category": 4}])))
    return [judgment.memory_id for judgment in parsed.judgments], [error.reason for error in parsed.errors]


def test_a_turn_is_a_memory_dated_by_its_session_and_its_place_in_it(write):
    parsed = read(write("7.json", conversation()))
    said = datetime(2023, 5, 8, 13, 56, 2, tzinfo=UTC)
    assert parsed.memories[1] == Memory(
        id="7/D1:2",
        content="Ann: Look [shared image: a duck]",
        project="locomo/7",
        session="7/session_1",
        author="Ann",
        created_at=said,
        last_accessed=said,
        source_ref="locomo:7:D1:2",
    )
    assert parsed.memories[2].created_at == datetime(2023, 6, 9, 0, 5, 1, tzinfo=UTC)
    assert parsed.errors == ()


def test_a_question_is_a_query_at_the_time_of_the_last_session_with_turns(write):
    parsed = read(write("7.json", conversation()))
    assert parsed.queries == (Query("7/q001", "When?", None, datetime(2023, 6, 9, 0, 5, tzinfo=UTC), "temporal"),)
    assert parsed.judgments == (Judgment("7/q001", "7/D1:2", 1),)


@pytest.mark.parametrize(
    ("category", "kind"),
    [
        (1, "multi-hop"),
        (2, "temporal"),
        (3, "open-domain"),
        (4, "single-hop"),
        (5, "adversarial"),
        (9, None),
        ("x", None),
    ],
)
def test_categories_are_named(write, category, kind):
    parsed = read(write("7.json", conversation(qa=[{"question": "q", "category": category}])))
    assert parsed.queries[0].type == kind


@pytest.mark.parametrize(
    ("evidence", "turns"),
    [
        (["D1:1", "D2:1"], ["7/D1:1", "7/D2:1"]),
        (["D1:1; D2:1"], ["7/D1:1", "7/D2:1"]),
        (["D1:1 D2:1", "D1:1"], ["7/D1:1", "7/D2:1"]),
        (["D:1:01"], ["7/D1:1"]),
        ("(D1:1)", ["7/D1:1"]),
        ([], []),
        (None, []),
    ],
)
def test_evidence_is_understood_where_it_can_be(write, evidence, turns):
    assert judged(write, evidence) == (turns, [])


@pytest.mark.parametrize(
    ("evidence", "reason"),
    [
        (["D1:1", "D"], "'D' is not a turn such as D1:3"),
        (["D1:1", "D9:9"], "no turn D9:9 in the conversation"),
        (["D1:1", 5], "'5' is not a turn such as D1:3"),
    ],
)
def test_evidence_that_names_no_turn_is_reported(write, evidence, reason):
    assert judged(write, evidence) == (["7/D1:1"], [reason])


def test_turns_and_questions_that_cannot_be_used_are_reported_with_their_place(write):
    broken = [turn("D1:1"), turn("D1:1"), {"speaker": "Ann"}, "text", {"speaker": "Ann", "dia_id": "D1:5"}]
    parsed = read(write("7.json", conversation(session_1=broken, qa=[{}, "x", {"question": "ok"}])))
    assert [memory.id for memory in parsed.memories] == ["7/D1:1", "7/D2:1"]
    assert [query.qid for query in parsed.queries] == ["7/q003"]
    assert [error.field for error in parsed.errors] == [
        "7 session_1[2].dia_id",
        "7 session_1[3].dia_id",
        "7 session_1[4]",
        "7 session_1[5].text",
        "7 qa[1].question",
        "7 qa[2]",
    ]


def test_a_session_without_a_readable_time_keeps_its_turns_undated(write):
    parsed = read(write("7.json", conversation(session_1_date_time="yesterday")))
    assert parsed.memories[0].created_at is None
    assert "1:56 pm on 8 May, 2023" in parsed.errors[0].reason


def test_the_published_list_of_conversations(write):
    rows = [{"sample_id": f"conv-{n}", "conversation": conversation(), "qa": conversation()["qa"]} for n in (1, 2)]
    parsed = read(write("locomo10.json", rows))
    assert {memory.project for memory in parsed.memories} == {"locomo/conv-1", "locomo/conv-2"}
    assert [query.qid for query in parsed.queries] == ["conv-1/q001", "conv-2/q001"]


@pytest.mark.parametrize("document", [{}, [], {"session_1": []}, {"session_1": "x"}, 5])
def test_a_document_without_sessions_is_an_input_error(write, document):
    with pytest.raises(InputError):
        read(write("7.json", document), "locomo")


@pytest.mark.skipif(not SHARED.exists(), reason="the shared data are not here")
@pytest.mark.parametrize(
    ("name", "counts"),
    [("26", (419, 199, 251, 0)), ("30", (369, 105, 131, 0)), ("42", (629, 260, 373, 2))],
)
def test_the_shared_conversations(name, counts):
    parsed = read(SHARED / f"{name}.json")
    assert (len(parsed.memories), len(parsed.queries), len(parsed.judgments), len(parsed.errors)) == counts
