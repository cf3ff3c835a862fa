"""Published data sets: LoCoMo, LongMemEval, BEAM, ConvoMem, MemoryAgentBench, BEIR and MTEB, read and written."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cems_workbench.errors import InputError
from cems_workbench.formats import (
    DataSet,
    detect,
    read,
    read_path,
    write_dataset,
)
from cems_workbench.progress import Cancelled
from cems_workbench.records import Judgment, Memory, Query


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


QUESTION = {
    "question_id": "q7",
    "question_type": "temporal-reasoning",
    "question": "when did I move?",
    "answer": "in May",
    "question_date": "2023/05/30 (Tue) 23:40",
    "haystack_session_ids": ["s1", "s2"],
    "haystack_dates": ["2023/05/20 (Sat) 02:21", "nonsense"],
    "haystack_sessions": [
        [{"role": "user", "content": "I moved", "has_answer": True}, {"role": "assistant", "content": "Nice"}],
        [{"role": "user", "content": "Hello", "has_answer": False}, {"role": "user"}],
    ],
}


def test_a_question_is_asked_of_its_own_haystack(write):
    abstention = {**QUESTION, "question_id": "q8_abs", "haystack_sessions": [[]]}
    parsed = read(write("oracle.json", [QUESTION, abstention, {"question_id": "q7"}]))
    assert parsed.format == "longmemeval"
    assert [memory.id for memory in parsed.memories] == ["q7/s1/1", "q7/s1/2", "q7/s2/1"]
    first = parsed.memories[0]
    assert (first.content, first.project, first.session) == ("user: I moved", "longmemeval/q7", "q7/s1")
    assert first.created_at == datetime(2023, 5, 20, 2, 21, 1, tzinfo=UTC)
    assert parsed.memories[2].created_at is None
    asked, unanswerable = parsed.queries
    assert (asked.qid, asked.type, asked.project) == ("q7", "temporal-reasoning", "longmemeval/q7")
    assert asked.as_of == datetime(2023, 5, 30, 23, 40, tzinfo=UTC)
    assert unanswerable.type == "abstention"
    assert (asked.answerable, unanswerable.answerable) == (None, False)
    assert parsed.judgments == (Judgment("q7", "q7/s1/1", 1),)
    assert [(error.row, error.field) for error in parsed.errors] == [
        (1, "haystack_sessions[2][2].content"),
        (1, "haystack_dates"),
        (3, "question_id"),
    ]
    assert "1 of 2 are no times such as '1:56 pm" in parsed.errors[1].reason
    assert "'nonsense'" in parsed.errors[1].reason


def said(content, **more):
    return {"role": "user", "content": content, **more}


def haystack(qid="q", **changes):
    """A question with the sessions s1 of two turns and s2 of one."""
    row = {**QUESTION, "question_id": qid, "haystack_sessions": [[said("I moved"), said("Nice")], [said("Hello")]]}
    return {**row, "haystack_dates": ["2023-05-20T02:21:00", "2023-05-21T04:00:00+02:00"], **changes}


def test_iso_dates_and_the_list_and_lines_of_questions_are_read(write):
    rows = [haystack("a", question_date="2023-05-30T21:56:00Z"), haystack("b", question_date=1685483760)]
    in_list, in_lines, wrapped = (
        read(write(*form)) for form in (("x.json", rows), ("x.jsonl", *rows), ("y.json", {"data": rows}))
    )
    assert in_list.memories == in_lines.memories == wrapped.memories
    assert in_list.memories[2].created_at == datetime(2023, 5, 21, 2, 0, 1, tzinfo=UTC)
    assert {query.as_of for query in in_lines.queries} == {datetime(2023, 5, 30, 21, 56, tzinfo=UTC)}
    assert in_list.errors == in_lines.errors == ()


def test_a_field_that_cannot_be_read_costs_the_field(write):
    row = haystack(
        question_date="someday", question_type=5, haystack_dates=["", "2023/13/01"], haystack_session_ids=[7, None]
    )
    parsed = read(
        write(
            "x.json",
            [{**row, "answer_session_ids": [7, "gone"]}, {**row, "question_id": "r", "haystack_sessions": "x"}],
        )
    )
    assert [memory.id for memory in parsed.memories] == ["q/7/1", "q/7/2", "q/session_2/1"]
    assert [(query.qid, query.type, query.as_of) for query in parsed.queries] == [("q", None, None), ("r", None, None)]
    assert [(error.row, error.field) for error in parsed.errors] == [
        (1, "question_type"),
        (1, "question_date"),
        (1, "haystack_dates"),
        (1, "answer_session_ids"),
        (2, "question_type"),
        (2, "question_date"),
        (2, "haystack_sessions"),
    ]
    assert "1 sessions have no date; nor have their turns" in parsed.notes
    assert [judgment.memory_id for judgment in parsed.judgments] == ["q/7/1", "q/7/2"]


MARKED, DENIED = said("yes", has_answer=True), said("no", has_answer=False)


@pytest.mark.parametrize(
    ("sessions", "named", "judged", "note"),
    [
        ([[MARKED, DENIED], [said("x")]], ["s1"], ["q/s1/1"], ""),
        ([[said("x"), said("y")], [said("z")]], ["s1"], ["q/s1/1", "q/s1/2"], "1 questions name sessions"),
        ([[MARKED, said("y")], [said("z")]], ["s1", "s2"], ["q/s1/1", "q/s2/1"], "1 questions name sessions"),
        ([[MARKED], [DENIED, DENIED]], ["s1", "s2"], ["q/s1/1"], ""),
        ([[DENIED], [said("x")]], "s1", ["q/s1/1"], "1 questions name sessions"),
        ([[said("x")], [said("x", has_answer="true")]], [], ["q/s2/1"], ""),
        ([[said("x")], [said("y")]], None, [], "1 questions name no turn or session"),
    ],
)
def test_gold_is_of_turns_and_where_no_turn_says_it_of_sessions(write, sessions, named, judged, note):
    parsed = read(write("x.json", [haystack(haystack_sessions=sessions, answer_session_ids=named)]))
    assert [judgment.memory_id for judgment in parsed.judgments] == judged
    assert any(line.startswith(note) for line in parsed.notes)
    assert bool(note) == any("questions name" in line for line in parsed.notes)


def test_labels_of_questions_without_an_answer_are_not_taken(write):
    row = haystack("q_abs", haystack_sessions=[[MARKED], [said("x")]], answer_session_ids=["s1", "s2"])
    parsed = read(write("x.json", [row]))
    assert (parsed.judgments, parsed.queries[0].answerable) == ((), False)
    assert any(line.startswith("1 turns of questions without an answer have has_answer") for line in parsed.notes)


V2 = {
    "questions.jsonl": {
        "id": "1",
        "question_type": "static",
        "question": "which?",
        "answer": "a",
        "eval_function": "exact",
    },
    "trajectories.jsonl": {"id": "t", "goal": "export", "states": [{"url": "u"}]},
    "haystacks/lme_v2_small.json": {"1": ["t"]},
}


def test_each_file_of_longmemeval_v2_is_named_with_what_it_is(tmp_path):
    (tmp_path / "haystacks").mkdir()
    for name, row in V2.items():
        (tmp_path / name).write_text(json.dumps(row))
    with pytest.raises(
        InputError, match=r"haystacks is which .*questions.jsonl is its .*trajectories.jsonl is what agents did"
    ):
        read_path(tmp_path)
    for name in V2:
        with pytest.raises(InputError, match="LongMemEval-V2, which names no memory that answers"):
            read_path(tmp_path / name)


CHAT = [
    {
        "batch_number": 1,
        "turns": [
            [
                {"role": "user", "id": 0, "time_anchor": "March-15-2024", "content": "I use Flask ->-> 1,1"},
                {"role": "assistant", "id": 1, "content": "Good"},
            ],
            [{"role": "user", "id": 2, "content": "Never mind"}, {"role": "user", "id": 2, "content": "again"}],
        ],
    }
]
QUESTIONS = {
    "contradiction_resolution": [{"question": "Do I use Flask?", "source_chat_ids": {"first": [0], "second": [1, 0]}}],
    "event_ordering": [{"question": "In which order?", "source_chat_ids": [2, 9]}, {"answer": "no question"}],
}


@pytest.mark.parametrize("form", ["folder", "object", "json text", "python text"])
def test_a_conversation_of_beam_in_each_of_its_forms(tmp_path, form):
    if form == "folder":
        home = tmp_path / "100K" / "7"
        (home / "probing_questions").mkdir(parents=True)
        (home / "chat.json").write_text(json.dumps(CHAT))
        (home / "probing_questions" / "probing_questions.json").write_text(json.dumps(QUESTIONS))
        (home / "topic.json").write_text("{}")
        parsed = read_path(home)[0]
        name = "100K-7"
    else:
        told = {"object": QUESTIONS, "json text": json.dumps(QUESTIONS), "python text": repr(QUESTIONS)}[form]
        path = tmp_path / "chats.json"
        path.write_text(json.dumps([{"conversation_id": "c", "chat": CHAT, "probing_questions": told}]))
        assert detect(path) == "beam"
        parsed, name = read(path), "c"
    assert [memory.id for memory in parsed.memories] == [f"{name}/{turn}" for turn in ("0", "1", "2", "2.2")]
    assert parsed.memories[0].content == "user: I use Flask"
    assert parsed.memories[3].created_at == datetime(2024, 3, 15, 0, 0, 4, tzinfo=UTC)
    qid = f"{name}/contradiction_resolution-1"
    assert [query.type for query in parsed.queries] == ["contradiction_resolution", "event_ordering"]
    assert parsed.judgments == (Judgment(qid, f"{name}/0", 1), Judgment(qid, f"{name}/1", 1))
    assert [error.reason for error in parsed.errors] == [
        "2 turns have the id 2; which is meant is open",
        "no turn 9 in the chat",
        "is missing",
    ]
    assert f"{name}: 1 turns have the id of another" in parsed.notes


def beam_folder(home, chat, questions=QUESTIONS, name="chat.json"):
    (home / "probing_questions").mkdir(parents=True, exist_ok=True)
    (home / name).write_text(json.dumps(chat))
    (home / "probing_questions" / "probing_questions.json").write_text(json.dumps(questions))


def test_the_chat_of_beam_is_the_one_that_its_own_answering_reads(tmp_path):
    beam_folder(tmp_path / "1", [*CHAT, {"role": "user", "id": 3, "content": "beyond the stated size"}])
    beam_folder(tmp_path / "1", CHAT, name="chat_trunecated.json")
    parsed = read_path(tmp_path / "1")[0]
    assert [memory.id.rpartition("/")[2] for memory in parsed.memories] == ["0", "1", "2", "2.2"]
    assert any("chat_trunecated.json" in note and "chat.json is longer" in note for note in parsed.notes)


def test_a_folder_of_conversations_of_beam_is_one_input(tmp_path):
    home = tmp_path / "500K"
    for number in (10, 2):
        beam_folder(home / str(number), CHAT)
    (home / "topics.json").write_text("[]")
    parsed = read_path(home)
    assert [(part.format, len(part.queries)) for part in parsed] == [("beam", 4)]
    assert list(dict.fromkeys(memory.project for memory in parsed[0].memories)) == ["beam/500K-2", "beam/500K-10"]
    assert [line.partition(":")[0] for line in parsed[0].skipped] == ["topics.json"]
    (home / "2" / "chat.json").write_text("[")
    assert [len(read_path(home)[0].queries), str(read_path(home)[0].errors[0]).count("2/chat.json")] == [2, 1]


def test_ids_that_begin_again_in_each_plan_of_beam_are_moved_as_its_download_moves_them(tmp_path):
    def plan(*ids):
        return [{"turns": [[{"role": "user", "id": i, "content": f"turn {i}"} for i in ids]]}]

    plans = [{"plan-1": plan(0, 1), "plan-2": None}, {"plan-1": None, "plan-2": plan(0, 1, 2)}, {"plan-3": plan(0)}]
    asked = {"event_ordering": [{"question": "when?", "source_chat_ids": [3.0, "5"]}, {"question": "and?"}]}
    row = {"conversation_id": "c", "chat": plans, "probing_questions": repr(asked)}
    rows = [row, row | {"conversation_id": "d", "chat": plans[1:]}]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    parsed = read(tmp_path / "rows.jsonl")
    assert [memory.id for memory in parsed.memories[:6]] == [f"c/{number}" for number in range(6)]
    assert [judgment.memory_id for judgment in parsed.judgments] == ["c/3", "c/5", "d/3"]
    assert [error.reason for error in parsed.errors] == ["no turn 5 in the chat"]
    assert "2 questions name no turn and have no judgment: c/event_ordering-2, d/event_ordering-2" in parsed.notes


def messages(*texts, name="c1"):
    speakers = ("User", "Assistant")
    return {"id": name, "messages": [{"speaker": speakers[n % 2], "text": text} for n, text in enumerate(texts)]}


def item(question, *evidences, conversations=(), **more):
    told = [{"speaker": "user", "text": text} for text in evidences]
    return {"question": question, "message_evidences": told, "conversations": list(conversations), **more}


ABOUT_TEA = messages(
    "I drink green tea – never coffee.",
    "Noted: green tea.",
    "I moved to Porto in May, and my flat",
    "Nice!",
    "is on the hill",
)


def test_evidence_of_convomem_is_found_by_its_words(tmp_path):
    home = tmp_path / "user_evidence" / "2_evidence"
    home.mkdir(parents=True)
    items = [
        item(
            "What do I drink?",
            "I drink green tea - never coffee",
            conversations=[ABOUT_TEA],
            category="Food",
            answer="tea",
        ),
        item("Where is my flat?", "I moved to Porto in May, and my flat is on the hill", conversations=[ABOUT_TEA]),
        item(
            "Which tea?",
            "green tea",
            "I drink cocoa at night",
            conversations=[messages("green tea one", "", "a green tea two")],
        ),
    ]
    (home / "p1_Nurse.json").write_text(json.dumps({"evidence_items": items, "checkpoint": "abc"}))
    parsed = read_path(home)[0]
    case = "user_evidence-2_evidence-p1_Nurse-1-"
    assert parsed.memories[0].content == "user: I drink green tea – never coffee."
    assert (parsed.memories[0].id, parsed.memories[0].project) == (f"{case}1/1/1", f"convomem/{case}1")
    assert [(query.qid, query.project, query.type) for query in parsed.queries] == [
        (f"{case}{n}/q1", f"convomem/{case}{n}", "user_evidence") for n in (1, 2, 3)
    ]
    assert [(judgment.qid, judgment.memory_id) for judgment in parsed.judgments] == [
        (f"{case}1/q1", f"{case}1/1/1"),
        (f"{case}2/q1", f"{case}2/1/3"),
        (f"{case}2/q1", f"{case}2/1/5"),
    ]
    assert [(error.field.rpartition("/")[2], error.reason) for error in parsed.errors] == [
        ("2.text", "is empty"),
        ("q1.message_evidences[1]", "its words are in 2 messages; which is meant is open"),
        ("q1.message_evidences[2]", "no message of its conversations has these words"),
    ]
    assert f"1 questions have no judgment: {case}3/q1" in parsed.notes


def test_a_mixed_case_of_convomem_is_one_haystack_of_all_its_questions(write):
    tea, other = ABOUT_TEA, messages("I drink green tea – never coffee.", name="filler")
    case = {
        "evidenceItems": [
            item("What do I drink?", "I drink green tea – never coffee.", conversations=[tea]),
            item("Where do I work?", "Noted: green tea.", conversations=[tea], category="abstention_evidence"),
        ],
        "conversations": [other, tea],
        "contextSize": 2,
    }
    parsed = read(write("batched_000.json", [case, {"contextSize": 1}]))
    assert parsed.format == "convomem"
    assert {memory.project for memory in parsed.memories} == {"convomem/batched_000-1"}
    assert parsed.judgments == (Judgment("batched_000-1/q1", "batched_000-1/2/1", 1),)
    assert [query.answerable for query in parsed.queries] == [None, False]
    assert "1 questions of abstention have no answer; the messages that they name are not judged" in parsed.notes
    assert [error.reason for error in parsed.errors] == ["is neither an item with conversations nor a test case"]


def test_filler_conversations_of_convomem_are_memories(write):
    parsed = read(
        write("fillers.json", {"evidence_items": [{"conversations": [ABOUT_TEA]}, item("", conversations=[ABOUT_TEA])]})
    )
    assert (len(parsed.memories), parsed.queries, parsed.errors) == (10, (), ())
    assert "2 items ask nothing: their conversations are memories" in parsed.notes


def test_memoryagentbench_judges_turns_and_guesses_no_passage_from_an_answer(write):
    chat = [
        "Chat Time: 2023/05/21 (Sun) 16:10",
        [{"role": "user", "content": "My cat is called Mo"}, {"role": "assistant", "content": "Hello, Mo"}],
        "Chat Time: 2023/05/22 (Mon) 09:00",
        [{"role": "user", "content": "I moved"}],
    ]
    marked = [[[{"role": "user", "content": "My cat is called Mo", "has_answer": True}]], [[]]]
    rows = [
        {
            "context": "Here is a list of facts:\n0. Oslo is in Norway.\n1. Oslo is in Sweden.\n",
            "questions": ["Where is Oslo?"],
            "answers": [["Sweden"]],
            "metadata": {"source": "factconsolidation_sh_6k", "qa_pair_ids": ["factconsolidation_sh_6k_no0"]},
        },
        {
            "context": repr(chat),
            "questions": ["What is my cat called?", "When?", "Where is my dog?", ""],
            "answers": [["Mo"], ["May"], ["?"], ["?"]],
            "metadata": {
                "source": "longmemeval_s*",
                "haystack_sessions": marked,
                "question_types": ["single-session-user"],
                "question_ids": ["a1", "a2", "a3_abs"],
                "question_dates": ["2023/06/01 (Thu) 10:00"],
            },
        },
        {"context": "Document 1:\nOne.\nDocument 2:\nTwo.", "questions": "Which?", "answers": "two"},
        {"context": "A long tale. " * 400, "questions": ["What next?"], "answers": [["b"]], "metadata": None},
        {"context": 5},
    ]
    parsed = read(write("rows.json", rows))
    assert parsed.format == "memoryagentbench"
    texts = {memory.id: memory.content for memory in parsed.memories}
    assert texts["factconsolidation_sh_6k/1"] == "1. Oslo is in Sweden."
    assert texts["longmemeval_s*/1/2"] == "assistant: Hello, Mo"
    assert texts["rows-3/2"] == "Document 2:\nTwo."
    assert [len(text) for name, text in texts.items() if name.startswith("rows-4/")] == [1988, 1988, 1221]
    assert parsed.judgments == (Judgment("longmemeval_s*/q1", "longmemeval_s*/1/1", 1),)
    asked = {query.qid: query for query in parsed.queries}
    assert asked["factconsolidation_sh_6k_no0"].project == "memoryagentbench/factconsolidation_sh_6k"
    cat = asked["longmemeval_s*/q1"]
    assert (cat.type, cat.as_of) == ("single-session-user", datetime(2023, 6, 1, 10, tzinfo=UTC))
    assert [(error.row, error.field) for error in parsed.errors] == [(2, "questions[4]"), (5, None)]
    assert asked["longmemeval_s*/q3"].answerable is False
    assert parsed.notes[:3] == (
        "no judgments for factconsolidation_sh_6k, rows-3, rows-4: their gold labels are answers, not passages",
        "1 questions name no turn with has_answer and have no judgment: longmemeval_s*/q2",
        "the contexts of rows-4 are passages of whole sentences, of at most 2,000 characters",
    )


CORPUS = [{"_id": "4983", "title": "T", "text": "words"}, {"_id": "d 2", "title": "Only a title", "text": ""}]
QUERIES = [{"_id": "1", "text": "what?", "metadata": {}}, {"_id": "2", "text": "why?"}]
HEADER = "query-id\tcorpus-id\tscore"


def lines(*rows):
    return "\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows)


@pytest.fixture
def folder(tmp_path):
    """`folder(name, test=..., ...)`: a BEIR folder with the given qrels."""

    def make(name="set", **qrels):
        home = tmp_path / name
        (home / "qrels").mkdir(parents=True)
        (home / "corpus.jsonl").write_text(lines(*CORPUS))
        (home / "queries.jsonl").write_text(lines(*QUERIES))
        for split, rows in qrels.items():
            (home / "qrels" / f"{split}.tsv").write_text(lines(HEADER, *rows), newline="\r\n")
        return home

    return make


def problems(parsed):
    return [(Path(error.source).name, error.row, error.field, error.reason) for error in parsed.errors]


def test_a_folder_is_read_as_one(folder):
    (parsed,) = read_path(folder(test=["1\t4983\t1", "2\td 2\t0"]))
    assert parsed.memories == (Memory("4983", "words", "T"), Memory("d 2", "Only a title", "Only a title"))
    assert parsed.queries == (Query("1", "what?", type="beir"), Query("2", "why?", type="beir"))
    assert parsed.judgments == (Judgment("1", "4983", 1), Judgment("2", "d 2", 0))
    assert (parsed.format, parsed.errors) == ("beir", ())
    assert parsed.notes == ("the judgments are those of qrels/test.tsv",)
    assert parsed.extra["rows"] == {"memories": [1, 2], "queries": [1, 2], "judgments": [2, 3]}


@pytest.mark.parametrize(
    ("splits", "note"),
    [
        (("train", "dev", "test"), "qrels/test.tsv; import qrels/dev.tsv and qrels/train.tsv by name"),
        (("train", "dev"), "qrels/dev.tsv; import qrels/train.tsv by name"),
        (("train",), "qrels/train.tsv"),
    ],
)
def test_one_split_is_read_test_before_dev_before_train(folder, splits, note):
    (parsed,) = read_path(folder(**{split: [f"1\t{split}\t1"] for split in splits}))
    assert parsed.judgments[0].memory_id == note[6:].split(".")[0]
    assert parsed.notes == (
        f"the judgments are those of {note}",
        f"1 of 2 queries have no judgment in {note.split(';')[0]}",
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("test.csv", "query-id,corpus-id,score\n1,4983,1\n"),
        ("test.tsv", "1 0 4983 1\n"),
        ("test.tsv", "query_id\tdoc_id\trelevance\titeration\n1\t4983\t1\t0\n"),
    ],
)
def test_judgments_of_a_folder_may_be_a_table_of_other_tools(folder, name, text):
    home = folder()
    (home / "qrels").mkdir(exist_ok=True)
    (home / "qrels" / name).write_text(text)
    (parsed,) = read_path(home)
    assert (parsed.judgments, parsed.errors) == ((Judgment("1", "4983", 1),), ())


def test_a_folder_without_judgments_says_so(folder):
    (parsed,) = read_path(folder())
    assert parsed.notes == ("there are no judgments: qrels has none of test, dev and train as .tsv or .jsonl",)


def test_the_rest_of_a_folder_is_read_by_its_own_readers_or_noted(folder):
    home = folder(test=["1\t4983\t1"])
    (home / "relations.jsonl").write_text(lines({"source_id": "4983", "target_id": "d 2"}))
    (home / "README.md").write_text("words")
    (home / "more").mkdir()
    parsed = read_path(home)
    assert [one.format for one in parsed] == ["beir", "relations-jsonl"]
    assert "README.md: markdown-notes is read from a file alone" in parsed[0].skipped[0]
    assert parsed[0].skipped[1] == "more: is a directory with nothing in it; import it by its own path"


def test_folders_in_a_directory_are_read_and_other_directories_are_not_descended_into(folder, tmp_path):
    folder("b", test=["1\t4983\t1"])
    folder("a")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "memories.jsonl").write_text(lines({"id": "x", "content": "y"}))
    parsed = read_path(tmp_path)
    assert [Path(one.source).name for one in parsed] == ["a", "b"]
    assert parsed[0].skipped == ("c: is a directory of 1 .jsonl; import it by its own path",)
    assert len(read_path(tmp_path, "beir")) == 2
    with pytest.raises(InputError, match="has no file to read"):
        read_path(tmp_path, "memories-jsonl")


def test_rows_that_cannot_be_used_are_reported_with_their_file(folder):
    home = folder(test=["1\t4983", "1\t4983\thigh", "1\t4983\t1", "1\t4983\t2", "1\t4983\t1"])
    (home / "corpus.jsonl").write_text(
        lines({"_id": 7, "text": "x", "metadata": {"a": 1}}, {"text": "x"}, {"_id": "e", "title": " "}, "{")
    )
    (home / "queries.jsonl").write_text(lines({"_id": "1", "text": "x"}, {"_id": "1", "text": "y"}, {"_id": "3"}))
    (parsed,) = read_path(home)
    assert [memory.id for memory in parsed.memories] == ["7"]
    assert problems(parsed) == [
        ("corpus.jsonl", 2, "_id", "is missing"),
        ("corpus.jsonl", 3, "text", "is missing"),
        ("corpus.jsonl", 4, None, "is not JSON: Expecting property name enclosed in double quotes at column 2"),
        ("queries.jsonl", 2, "_id", "'1' stands already in row 1"),
        ("queries.jsonl", 3, "text", "is missing"),
        ("test.tsv", 2, None, "must have the 3 columns query-id corpus-id score, found 2"),
        ("test.tsv", 3, "score", "must be a whole number, found 'high'; state its grade: --grade high=1"),
    ]
    assert parsed.notes[:2] == (
        "corpus.jsonl: field 'metadata' is not known and was left out (1 rows)",
        "test.tsv: row 6 repeats row 4",
    )


@pytest.mark.parametrize(
    ("name", "rows", "counts"),
    [
        ("corpus.jsonl", [{"_id": "1", "text": "x"}], (1, 0, 0)),
        ("queries.jsonl", QUERIES, (0, 2, 0)),
        ("nq_docs.jsonl", CORPUS, (2, 0, 0)),
        ("nq_questions.jsonl", QUERIES, (0, 2, 0)),
        ("dev.tsv", [HEADER, "1\t4983\t1"], (0, 0, 1)),
        ("qrels.txt", ["query-id corpus-id score", "1 4983 1"], (0, 0, 1)),
    ],
)
def test_a_single_file(write, name, rows, counts):
    path = write(name, *rows)
    parsed = read(path)
    assert (len(parsed.memories), len(parsed.queries), len(parsed.judgments)) == counts
    assert (parsed.format, parsed.errors) == ("beir", ())
    assert detect(path) == "beir"


def test_a_directory_that_is_no_beir_folder_is_an_input_error(tmp_path, write):
    write("corpus.jsonl", {"id": "a", "content": "x"})
    with pytest.raises(InputError, match=r"no corpus\.jsonl whose rows have an _id"):
        read(tmp_path, "beir")
    assert [one.format for one in read_path(tmp_path)] == ["memories-jsonl"]


def parquet(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)


TABLE = [{"_id": "d1", "title": "", "text": "one"}, {"_id": "d2", "title": "Two", "text": "two"}]
JUDGED = [{"query-id": "q1", "corpus-id": "d2", "score": 1.0}]


@pytest.mark.parametrize("ids", ["_id", "id"])
@pytest.mark.parametrize("qrels", ["data", "qrels", "default"])
def test_tables_of_mteb_are_read_a_split_of_each(tmp_path, ids, qrels):
    home = tmp_path / "nfcorpus"
    rows = [{ids: row["_id"], "title": row["title"], "text": row["text"]} for row in TABLE]
    for number, row in enumerate(rows):
        parquet(home / "corpus" / f"corpus-0000{number}-of-00002.parquet", [row])
    parquet(home / "queries" / "test-00000-of-00001.parquet", [{ids: "q1", "text": "which?"}])
    parquet(home / "queries" / "dev-00000-of-00001.parquet", [{ids: "q9", "text": "other?"}])
    parquet(home / qrels / "test-00000-of-00001.parquet", JUDGED)
    parquet(home / qrels / "dev-00000-of-00001.parquet", [{"query-id": "q9", "corpus-id": "d1", "score": 2}])
    parquet(home / "top_ranked" / "test-00000-of-00001.parquet", [{"query-id": "q1", "corpus-ids": ["d1", "d2"]}])
    (home / "README.md").write_text("# card")
    (parsed,) = read_path(home)
    assert parsed.format == "beir"
    assert [(memory.id, memory.title, memory.content) for memory in parsed.memories] == [
        ("d1", None, "one"),
        ("d2", "Two", "two"),
    ]
    assert [(query.qid, query.query) for query in parsed.queries] == [("q1", "which?")]
    assert parsed.judgments == (Judgment("q1", "d2", 1),)
    assert parsed.notes == (
        "top_ranked is not read: what a first search found for each query, for rerankers",
        "of queries test is read; import dev by name",
        f"the judgments are those of {qrels}/test-00000-of-00001.parquet; import {qrels}/dev-00000-of-00001.parquet by name",
    )
    assert [line.partition(":")[0] for line in parsed.skipped] == ["README.md"]
    (dev,) = read_path(home / qrels / "dev-00000-of-00001.parquet")
    assert dev.judgments == (Judgment("q9", "d1", 2),)


def test_one_of_several_data_sets_is_read_and_several_are_refused(tmp_path):
    for name in ("go", "python"):
        parquet(tmp_path / f"{name}-corpus" / "test-00000-of-00001.parquet", TABLE)
        parquet(tmp_path / f"{name}-queries" / "test-00000-of-00001.parquet", [{"_id": "q1", "text": "which?"}])
        parquet(tmp_path / f"{name}-qrels" / "test-00000-of-00001.parquet", JUDGED)
    with pytest.raises(InputError, match=r"holds 2 data sets, go, python: put the folders of one \(go-corpus"):
        read_path(tmp_path)
    for table in ("corpus", "queries", "qrels"):
        (tmp_path / f"go-{table}").rename(tmp_path / f".go-{table}")
    (parsed,) = read_path(tmp_path)
    assert (len(parsed.memories), len(parsed.queries), parsed.judgments) == (2, 1, (Judgment("q1", "d2", 1),))


def test_judgments_beside_the_corpus_are_those_of_its_splits(folder):
    home = folder()
    (home / "qrels").rmdir()
    for split, grade in (("test", 1), ("train", 2)):
        (home / f"{split}.tsv").write_text(lines(HEADER, f"1\t4983\t{grade}"))
    (parsed,) = read_path(home)
    assert parsed.judgments == (Judgment("1", "4983", 1),)
    assert parsed.notes[0] == "the judgments are those of test.tsv; import train.tsv by name"


def test_a_pointer_of_git_lfs_is_named(tmp_path):
    (tmp_path / "corpus.jsonl").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n")
    with pytest.raises(InputError, match="is a pointer of Git LFS and not the file itself: git lfs pull brings it"):
        read_path(tmp_path / "corpus.jsonl")


DATA = Path(__file__).parents[4] / "shared" / "data"
SAID = datetime(2023, 5, 8, 13, 56, tzinfo=UTC)


def test_what_is_wrong_with_our_fields_in_beirs_metadata_costs_that_row_alone(write):
    bad = {"_id": "a", "text": "x", "metadata": {"cems_workbench": {"priority": 9}, "url": "u"}}
    parsed = read(
        write("corpus.jsonl", bad, {**bad, "_id": "b", "metadata": {"cems_workbench": 1}}, {"_id": "c", "text": "x"})
    )
    assert [memory.id for memory in parsed.memories] == ["c"]
    assert [(error.row, error.field) for error in parsed.errors] == [(1, "priority"), (2, "metadata.cems_workbench")]


def test_a_failure_leaves_what_was_there(tmp_path):
    (tmp_path / "m.jsonl").write_text("mine")

    def stop(label: str, done: int, total: int) -> None:
        raise Cancelled

    with pytest.raises(Cancelled):
        write_dataset("memories-jsonl", DataSet([Memory("m", "x")], 1), tmp_path / "m.jsonl", stop)
    with pytest.raises(InputError, match="no memories to write"):
        write_dataset("memories-jsonl", DataSet([]), tmp_path / "m.jsonl")
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("m.jsonl", "mine")]


@pytest.mark.parametrize(
    ("form", "name", "part"),
    [
        ("beir", "full", "new or an empty directory"),
        ("memories-jsonl", "full", "is a directory"),
        ("memories-csv", "none/m.csv", "cannot be written"),
        ("memories_csv", "m.csv", "did you mean memories-csv"),
        ("qrels", "q.txt", "judgments --format qrels"),
    ],
)
def test_what_cannot_be_written_is_one_line(tmp_path, form, name, part):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "kept").write_text("x")
    with pytest.raises(InputError, match=part) as said:
        write_dataset(form, DataSet([Memory("m", "x")], 1), tmp_path / name)
    assert "\n" not in str(said.value)
    assert (tmp_path / "full" / "kept").read_text() == "x"


def test_memories_are_gone_through_once_and_not_gathered(tmp_path):
    alive = 0
    most = 0

    class Counted(str):
        def __new__(cls, text):
            nonlocal alive, most
            alive += 1
            most = max(most, alive)
            return super().__new__(cls, text)

        def __del__(self):
            nonlocal alive
            alive -= 1

    memories = (Memory(f"m{n}", Counted(f"text {n}")) for n in range(3_000))
    assert write_dataset("memories-jsonl", DataSet(memories, 3_000), tmp_path / "m.jsonl").rows == {"memories": 3_000}
    assert most < 10


@pytest.mark.skipif(not DATA.exists(), reason="the shared data are not here")
@pytest.mark.parametrize(
    ("name", "counts"),
    [("locomo/26.json", (419, 199, 251)), ("locomo/42.json", (629, 260, 373)), ("scifact", (5183, 1409, 339))],
)
def test_the_shared_data_are_read_written_and_read_again(tmp_path, name, counts):
    (first,) = read_path(DATA / name)
    dataset = DataSet(first.memories, len(first.memories), (), first.queries, first.judgments)
    done = write_dataset("beir", dataset, tmp_path / "beir")
    (second,) = read_path(tmp_path / "beir")
    assert (done.left_out, done.not_kept, done.notes) == ((), (), ())
    assert tuple(done.rows.values()) == counts == (len(second.memories), len(second.queries), len(second.judgments))
    assert (second.memories, second.queries, second.judgments) == (first.memories, first.queries, first.judgments)


@pytest.mark.parametrize("form", ["memories-jsonl", "memories-csv"])
def test_validity_comes_back_and_takes_no_place_where_no_memory_has_it(tmp_path, form):
    plain, bounded = (
        Memory("p", "always"),
        Memory("b", "for a day", valid_from=SAID, valid_until=SAID + timedelta(days=1)),
    )
    write_dataset(form, DataSet([plain, bounded], 2), tmp_path / "both")
    assert read(tmp_path / "both", form).memories == (plain, bounded)
    done = write_dataset(form, DataSet([plain], 1, validity=False), tmp_path / "plain")
    assert "valid" not in (tmp_path / "plain").read_text() and not done.not_kept
