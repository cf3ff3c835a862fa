"""LoCoMo conversations: turns are memories, questions are queries, evidence is judgments."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cems_workbench.errors import InputError
from cems_workbench.formats import detect, read, read_path
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
    assert parsed.queries == (Query("7/q001", "When?", "locomo/7", datetime(2023, 6, 9, 0, 5, tzinfo=UTC), "temporal"),)
    assert parsed.judgments == (Judgment("7/q001", "7/D1:2", 1),)


@pytest.mark.parametrize(
    ("category", "kind"),
    [
        (1, "multi-hop"),
        (2, "temporal"),
        (3, "open-domain"),
        (4, "single-hop"),
        (5, "adversarial"),
        ("4", "single-hop"),
        (3.0, "open-domain"),
        ("Multi_Hop", "multi-hop"),
        ("temporal reasoning", "temporal"),
        (9, "9"),
        ("commonsense", "commonsense"),
        ([1], None),
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
        ("['D1:1', 'd2:1']", ["7/D1:1", "7/D2:1"]),
        ([["D1: 1"], {"dia_id": "D2:1"}, " "], ["7/D1:1", "7/D2:1"]),
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
        "7 session_1[3].text",
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


ASKED = {"question": "What was shown?", "answer": ["a duck"], "evidence": ["D1:2", "D2:1"], "category": "4"}
RAG_TURNS = [
    {"timestamp": time, "speaker": "Ann", "text": said}
    for time, said in (("1:56 pm on 8 May, 2023", "Hello"), ("1:56 pm on 8 May, 2023", "Look"), ("9 June, 2023", "Bye"))
]
LISTED = {
    "sample_id": "c",
    "sessions": [
        {"session_index": 1, "date_time": "1:56 pm on 8 May, 2023", "messages": [turn("D1:1"), turn("D1:2", "Look")]},
        {"session_index": 2, "date_time": "2023-06-09T00:00:00Z", "messages": [turn("D2:1", "Bye")]},
    ],
}


def flat(field: str) -> list[dict[str, object]]:
    """The turns in one list, each with the number of its session or its id."""
    named = {"session_id": ("session_1", "session_1", "session_2"), "dia_id": ("D1:1", "D1:2", "D2:1")}[field]
    return [{**said, field: name} for said, name in zip(RAG_TURNS, named, strict=True)]


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("x.json", [{"c": {"conversation": RAG_TURNS, "question": [ASKED]}}]),
        ("x.json", [[{"sample_id": "c", "conversation": RAG_TURNS, "qa": [ASKED]}]]),
        ("x.json", [{"data": [{**LISTED, "qa": [ASKED]}]}]),
        ("x.jsonl", [{**LISTED, "qa": [ASKED]}]),
        ("x.jsonl", [{**LISTED, **ASKED}]),
        ("x.jsonl", [LISTED, {"sample_id": "c", **ASKED}]),
        ("x.json", [[{"sample_id": "c", "conversation": flat("session_id"), "qa": [ASKED]}]]),
        ("x.json", [[{"sample_id": "c", "conversation": flat("dia_id"), "qa": [ASKED]}]]),
    ],
)
def test_other_forms_give_what_the_published_one_gives(write, name, rows):
    path = write(name, *rows) if name == "x.jsonl" else write(name, rows[0])
    assert detect(path) == "locomo"
    parsed = read(path)
    assert [(one.id, one.content, one.session) for one in parsed.memories] == [
        ("c/D1:1", "Ann: Hello", "c/session_1"),
        ("c/D1:2", "Ann: Look", "c/session_1"),
        ("c/D2:1", "Ann: Bye", "c/session_2"),
    ]
    assert parsed.memories[1].created_at == datetime(2023, 5, 8, 13, 56, 2, tzinfo=UTC)
    last = datetime(2023, 6, 9, tzinfo=UTC)
    assert parsed.queries == (Query("c/q001", "What was shown?", "locomo/c", last, "single-hop"),)
    assert parsed.judgments == (Judgment("c/q001", "c/D1:2", 1), Judgment("c/q001", "c/D2:1", 1))
    assert parsed.errors == ()


def test_sessions_counted_from_0_and_timestamps_of_each_turn(write):
    converted = {
        "session_0": [turn("D0:0")],
        "session_0_date_time": "2023/05/08 (Mon) 13:56",
        "session_1": [turn("D1:0")],
    }
    asked = {"question_id": "e4", "question": "q", "evidence": ["D0:0"], "category": "multi-session"}
    numbers = [{"session_id": number, "turns": [{"speaker": "Ann", "text": "x"}]} for number in (0, 1)]
    own = [{"speaker": "Ann", "text": "x", "timestamp": f"2023-05-08T13:5{minute}:00Z"} for minute in (6, 7)]
    parsed = [
        read(write("x.json", [{"sample_id": "c", "conversation": said, "qa": [asked]}]), "locomo")
        for said in (converted, numbers, own)
    ]
    assert [[memory.id for memory in one.memories] for one in parsed] == [
        ["c/D0:0", "c/D1:0"],
        ["c/D0:1", "c/D1:1"],
        ["c/D1:1", "c/D1:2"],
    ]
    assert [memory.created_at for memory in parsed[2].memories] == [
        datetime(2023, 5, 8, 13, 56, 1, tzinfo=UTC),
        datetime(2023, 5, 8, 13, 57, tzinfo=UTC),
    ]
    assert (parsed[0].queries[0].qid, parsed[0].queries[0].type) == ("c/e4", "multi-session")
    assert parsed[0].judgments == (Judgment("c/e4", "c/D0:0", 1),)


def test_conversations_and_questions_in_two_files_are_one_data_set(tmp_path):
    question = {"qa_id": "c#q0000", "sample_id": "c", **ASKED, "evidence": ["D1:2", "D9:9"]}
    (tmp_path / "conversations.jsonl").write_text(json.dumps(LISTED))
    (tmp_path / "questions.jsonl").write_text(json.dumps(question))
    (parsed,) = read_path(tmp_path)
    assert [query.qid for query in parsed.queries] == ["c#q0000"]
    assert parsed.judgments == (Judgment("c#q0000", "c/D1:2", 1),)
    assert [(Path(error.source).name, error.reason) for error in parsed.errors] == [
        ("questions.jsonl", "no turn D9:9 in the conversation")
    ]
    alone = read(tmp_path / "questions.jsonl")  # the turns may be in the store
    assert [judgment.memory_id for judgment in alone.judgments] == ["c/D1:2", "c/D9:9"]


def test_what_is_not_read_is_named_once(write):
    rows = [
        {"sample_id": name, "conversation": conversation(session_1_date_time=None), "qa": [{"question": "q"}]}
        for name in ("a", "b")
    ]
    for row in rows:
        row |= {"event_summary": {}, "observation": {}, "extra": 1}
        row["conversation"]["session_1_summary"] = "s"
    assert read(write("x.json", rows)).notes == (
        "each query names the project of its conversation; evaluate --per-query-project searches it there alone",
        "conversations: field 'extra' is not known and was left out (2 rows)",
        "not read, being neither turns nor questions: session_N_summary, event_summary, observation of conversations",
        "2 sessions have no date; nor have their turns",
        "2 questions name no turn that answers them and so have no judgment, e.g. a/q001",
    )


def test_a_second_conversation_of_one_name_is_reported(write):
    rows = [
        {"sample_id": "a", "conversation": conversation(session_2=[])},
        {"sample_id": "a", **conversation()},
        {"x": 1},
    ]
    parsed = read(write("x.json", rows))
    assert (len(parsed.memories), [error.row for error in parsed.errors]) == (2, [3, 2])
    assert "has this name" in parsed.errors[1].reason


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
