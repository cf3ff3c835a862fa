"""LongMemEval and BEAM: turns are memories, questions are queries, evidence is judgments."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from cems_workbench.errors import InputError
from cems_workbench.formats import detect, read, read_path
from cems_workbench.records import Judgment

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
        (3, "question_id"),
    ]


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


def test_a_directory_that_is_no_conversation_is_refused(tmp_path):
    with pytest.raises(InputError, match="not BEAM"):
        read(tmp_path, "beam")
