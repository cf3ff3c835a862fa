"""Recorded answers of a set of queries: every form, and every bad input as one line with file, row and field."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cems_workbench.errors import InputError
from cems_workbench.formats.recorded_answers import Recording, parse_recording, read_recording
from cems_workbench.records import RankedIds

RESULTS = [{"id": "a", "score": 0.5, "content": "x"}, {"id": "b", "score": 0.25}]


def recorded(**changes: Any) -> str:
    answers = changes.pop("answers", [{"qid": "q1", "query": "what?", "project": "p", "results": RESULTS}])
    return json.dumps({"config": {}, "answers": answers} | changes)


def ids(recording: Recording) -> dict[str, list[str | None]]:
    return {answer.qid: [row.memory_id for row in answer.returned] for answer in recording.answers}


def test_a_recording_has_its_settings_its_moment_and_whole_answers() -> None:
    settings = {"hybrid_vector_weight": "0.7", "enable_lexical_in_inference": False, "max_candidates_per_query": 40}
    recording = parse_recording(
        recorded(config=settings, max_tokens=1200, answered_at="2026-11-22T15:01:13+01:00", cems="0.9.3"), "a.json"
    )
    assert dict(recording.settings) == {
        "hybrid_vector_weight": "0.7",
        "enable_lexical_in_inference": "false",
        "max_candidates_per_query": "40",
    }
    assert (recording.max_tokens, recording.whole, recording.form) == (1200, True, "recording")
    assert recording.answered_at == datetime(2026, 11, 22, 14, 1, 13, tzinfo=UTC)
    (answer,) = recording.answers
    assert (answer.qid, answer.query, answer.project) == ("q1", "what?", "p")
    assert [(row.memory_id, row.score, row.content) for row in answer.returned] == [("a", 0.5, "x"), ("b", 0.25, None)]


def test_an_empty_answer_is_an_answer() -> None:
    assert ids(parse_recording(recorded(answers=[{"qid": "q1", "query": "q", "results": []}]))) == {"q1": []}


def test_the_lists_of_a_recording_are_kept_as_they_are_ranked() -> None:
    answer = {"qid": "q1", "query": "q", "results": [], "lists": {"lexical": [[["b", 0.5], ["a", 0.1]]]}}
    assert parse_recording(recorded(answers=[answer])).answers[0].lists == {"lexical": ((("b", 0.5), ("a", 0.1)),)}


def lists_of(lists: Any) -> dict[str, tuple[RankedIds, ...]]:
    recording = parse_recording(recorded(answers=[{"qid": "q1", "query": "q", "results": [], "lists": lists}]))
    assert recording.errors == ()
    return dict(recording.answers[0].lists)


@pytest.mark.parametrize(
    "rows",
    [
        [["a", 2], ["b", 1]],
        [[["a", 2], ["b", 1]]],
        [{"id": "a", "score": 2}, {"id": "b", "score": 1}],
        [{"memory_id": "a"}, "b"],  # without scores: they fall with the place
    ],
)
def test_a_list_of_rows_has_one_meaning_in_every_form(rows: Any) -> None:
    assert lists_of({"x": rows}) == {"x": ((("a", 2.0), ("b", 1.0)),)}


def test_numbered_lists_are_those_of_the_variants_and_bm25_is_a_name() -> None:
    found = lists_of({"vector1": [["a", 1]], "vector2": [], "bm25": [["b", 1]], "keyword1": {"error": "too many"}})
    assert found == {"vector": ((("a", 1.0),), ()), "bm25": ((("b", 1.0),),), "keyword": ((),)}


def test_what_the_system_made_of_the_query_is_read() -> None:
    answer = {
        "qid": "q1",
        "query": "q",
        "results": ["a"],
        "as_of": "2026-09-01T00:00:00Z",
        "understood": {"searched": "q and more", "conversational": True},
        "fts_query": "q OR more",
        "lucene_query": None,
        "fused": [{"id": "a", "score": 0.5}],
    }
    (found,) = parse_recording(recorded(answers=[answer, {"qid": "q2", "results": [], "queries": ["x", "y"]}])).answers[
        :1
    ]
    assert (found.searched, found.engine_queries, found.by_vector_alone) == ("q and more", {"fts5": "q OR more"}, True)
    assert (found.asked_at, found.scored) == (datetime(2026, 9, 1, tzinfo=UTC), (("a", 0.5),))


def test_the_settings_of_another_system_are_no_settings_of_cems() -> None:
    engine = {"real": "agent 1", "lucene": "9.9.1"}
    config = {"limit": 10, "path": None, "input": {"k": 1}}
    own = parse_recording(recorded(engine=engine, config=config, tool="facts", pool=["a"], embedder={"name": "x"}))
    assert (own.system, dict(own.settings), own.doubts) == ("agent 1", {}, ())
    assert dict(own.own_settings) == {"tool": "facts", "limit": "10", "k": "1"}
    cems = parse_recording(recorded(cems="0.9", config={"x": [1], "y": None, "z": 1}))
    assert (dict(cems.settings), cems.doubts) == (
        {"z": "1"},
        ("config: x: left out: must be a text, a number or true or false, found a list",),
    )


def test_explained_scores_of_mem0_are_read_with_their_parts_and_lists() -> None:
    """The shape of `Memory.search(explain=True)` of mem0ai 2.2.1, whose response does not say its query."""
    details = {"semantic_score": 0.4, "bm25_score": 0.9, "entity_boost": 0.0, "raw_score": 1.3, "max_possible_score": 2}
    other = {**details, "semantic_score": 0.5, "bm25_score": 0.0, "raw_score": 0.5}
    results = [
        {"id": "a", "memory": "x", "score": 0.65, "score_details": details},
        {"id": "b", "memory": "y", "score": 0.25, "score_details": other},
    ]
    (answer,) = parse_recording(json.dumps([{"query": "q", "results": results}])).answers
    assert answer.returned[0].parts == details
    assert answer.lists == {
        "semantic": ((("b", 0.5), ("a", 0.4)),),
        "keyword_unit": ((("a", 0.9),),),
        "entity": ((),),
    }


def test_a_response_of_cems_says_its_query() -> None:
    response = {"success": True, "queries_used": ["what?"], "results": [{"memory_id": "a", "score": 1}]}
    recording = parse_recording(json.dumps(response))
    assert ids(recording) == {"1": ["a"]}
    assert recording.answers[0].query == "what?"
    assert not recording.whole


@pytest.mark.parametrize("lines", [False, True], ids=["list", "lines"])
def test_several_responses_stand_in_a_list_or_a_line_each(lines: bool) -> None:
    rows = [{"query": "x", "results": ["a", "b"]}, {"qid": "q7", "query": "y", "project": "p", "results": []}]
    recording = parse_recording("\n".join(map(json.dumps, rows)) if lines else json.dumps(rows))
    assert ids(recording) == {"1": ["a", "b"], "q7": []}
    assert [(answer.query, answer.project) for answer in recording.answers] == [("x", None), ("y", "p")]


def test_a_run_has_an_answer_for_each_of_its_queries() -> None:
    recording = parse_recording("q1 Q0 b 2 0.4 x\nq1 Q0 a 1 0.9 x\nq2 Q0 c 1 7 x")
    assert ids(recording) == {"q1": ["a", "b"], "q2": ["c"]}
    assert {answer.query for answer in recording.answers} == {None}


def test_plain_ids_are_one_answer() -> None:
    assert ids(parse_recording("m1\nm2 0.5")) == {"1": ["m1", "m2"]}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "a.json: it is empty"),
        ('{"answers": ', "a.json: is not JSON: Expecting value at column 12"),
        (recorded(answers=[]), "a.json: answers: must be a list of answers, found a list"),
        (recorded(answers={"q1": []}), "a.json: answers: must be a list of answers, found an object"),
        (recorded(config=["x"]), "a.json: config: must be an object of settings, found a list"),
        (recorded(max_tokens="many"), "a.json: max_tokens: must be a whole number from 1, found 'many'"),
        (recorded(max_tokens=0), "a.json: max_tokens: must be a whole number from 1, found 0"),
        (recorded(answered_at="yesterday"), "a.json: answered_at: must be an ISO 8601 time, found 'yesterday'"),
        (recorded(answered_at=7), "a.json: answered_at: must be an ISO 8601 time, found 7"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line(text: str, line: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_recording(text, "a.json")
    assert str(refused.value) == line


GOOD = {"qid": "q1", "query": "q", "results": ["a"]}


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        ("x", "a.json:2: must be an answer, found 'x'"),
        ({"query": "q", "results": []}, "a.json:2: qid: must be a text, found null"),
        ({"qid": "q2", "query": 0.5, "results": []}, "a.json:2: query: must be a text, found 0.5"),
        (
            {"qid": "q2", "query": "q", "project": ["p"], "results": []},
            "a.json:2: project: must be a text, found a list",
        ),
        ({"qid": "q2", "query": "q"}, "a.json:2: results: must be a list of results, found null"),
        (
            {"qid": "q2", "results": [{"score": 1}]},
            "a.json:2: results[0]: has neither an id (memory_id, id, document_id, …) nor a content",
        ),
        (
            {"qid": "q2", "results": ["a", {"id": "b", "score": "high"}]},
            "a.json:2: results[1].score: must be a finite number, found 'high'; it has no score",
        ),
        ({"qid": "q2", "results": ["a", "b", "a"]}, "a.json:2: results[2]: 'a' stands already in row 1"),
        ({"qid": "q1", "query": "q", "results": []}, "a.json:2: qid: 'q1' stands already in row 1"),
        (
            {"qid": "q2", "results": [], "lists": {"lexical": [[["a", "x"], ["b", 1], "c", None]]}},
            "a.json:2: lists.lexical[0]: left out: must be [id, score], {id, score} or an id, found a list, and 1 more rows of it",
        ),
        (
            {"qid": "q2", "results": [], "lists": [1]},
            "a.json:2: lists: must be lists by the name of their source, found a list",
        ),
        ({"qid": "q2", "results": [], "as_of": "soon"}, "a.json:2: as_of: left out: must be an ISO 8601 time"),
    ],
)
def test_a_row_that_cannot_be_used_is_named_by_row_and_field(answer: Any, line: str) -> None:
    recording = parse_recording(recorded(answers=[GOOD, answer]), "a.json")
    assert [str(error) for error in recording.errors] == [line]
    assert ids(recording)["q1"] == ["a"]


def test_a_file_that_is_not_text_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b'{"answers": "\xff"}')
    with pytest.raises(InputError, match=r"a\.json:1: is not UTF-8"):
        read_recording(path)
    with pytest.raises(InputError, match="does not exist"):
        read_recording(tmp_path / "b.json")
