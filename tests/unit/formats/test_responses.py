"""Responses of a production system, in every form they come in; bad rows cost only themselves."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cems_workbench.errors import InputError
from cems_workbench.formats.responses import Returned, parse_response

KEYS = ["results", "id", "score", "content", "memory", "x"]


def read(text: str) -> list[tuple[str | None, float | None]]:
    response = parse_response(text)
    assert response.errors == ()
    return [(one.memory_id, one.score) for one in response.returned]


@pytest.mark.parametrize(
    "document",
    [
        {
            "success": True,
            "results": [{"memory_id": "a", "content": "x", "score": 0.5}, {"memory_id": "b", "score": "0.25"}],
        },
        {"results": [{"id": "a", "memory": "x", "similarity": 0.5}, {"_id": "b", "_score": 0.25}]},
        {"data": {"memories": [{"doc_id": "a", "relevance_score": 0.5}, {"docno": "b", "final_score": 0.25}]}},
        [{"memory": {"id": "a", "content": "x"}, "score": 0.5}, {"memory": {"id": "b"}, "score": 0.25}],
    ],
    ids=["cems", "other names", "deeper", "memory inside"],
)
def test_a_search_response_is_read_under_the_names_it_may_have(document: object) -> None:
    assert read(json.dumps(document)) == [("a", 0.5), ("b", 0.25)]


@pytest.mark.parametrize(
    "text",
    [
        "a 0.5\nb 0.25",
        "a,0.5\nb,0.25\n",
        "memory_id,score\r\na,0.5\r\nb,0.25",
        "a\t0.5\n\nb\t0.25",
        '"a", 0.5\n"b", 0.25',
        '{"id": "a", "score": 0.5}\n{"id": "b", "score": 0.25}',
        "\ufeffid score\na 0.5\nb 0.25",
    ],
)
def test_a_list_of_ids_and_scores_is_read(text: str) -> None:
    assert read(text) == [("a", 0.5), ("b", 0.25)]


def test_ids_alone_are_read_also_with_blanks_in_them() -> None:
    assert read("first one\nb\n7") == [("first one", None), ("b", None), ("7", None)]
    assert read('["a", 7]') == [("a", None), ("7", None)]


def test_a_run_is_ordered_by_rank_and_split_by_query() -> None:
    response = parse_response("q1 Q0 b 2 0.4 x\nq1 Q0 a 1 0.9 x\nq2 Q0 c 1 7 x")
    assert response.form == "TREC run"
    assert [one.memory_id for one in response.returned] == ["a", "b"]
    assert response.run is not None
    assert {qid: [one.memory_id for one in rows] for qid, rows in response.run.results.items()} == {
        "q1": ["a", "b"],
        "q2": ["c"],
    }


def test_a_row_without_an_id_has_its_text() -> None:
    response = parse_response('{"results": [{"content": "hello"}, {"id": "", "text": "you"}]}')
    assert [(one.memory_id, one.content) for one in response.returned] == [(None, "hello"), (None, "you")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '[{"id": "a"}, 3.5, {"score": 1}]',
            [
                "response:2: must be an object or an id, found",
                "response:3: has neither an id (memory_id, id, document_id, …) nor a content",
            ],
        ),
        (
            '[{"id": "a", "score": "high"}]',
            ["response:1: score: must be a finite number, found 'high'; it has no score"],
        ),
        (
            "a 0.5\nb,nan\nc,1,2\n,4",
            [
                "response:2: score: must be a finite number, found 'nan'",
                "response:3: must be an id, or an id and a score, found 'c,1,2'",
                "response:4: must be an id, or an id and a score, found ',4'",
            ],
        ),
        (
            "q Q0 a 1 0.5 x\nq Q0 b 2 high x\nq Q0 c 3 0.1 x\nhello there\nq Q0 a 4 0 x",
            [
                "response:2: score: must be a finite number, found 'high'",
                "response:4: must have the 6 columns qid Q0 docno rank score tag, found 2",
                "response:5: 'a' stands already in row 1",
            ],
        ),
        ("a\nb\na", ["response:3: 'a' stands already in row 1"]),
    ],
)
def test_a_bad_row_is_one_line_and_the_others_stay(text: str, said: list[str]) -> None:
    response = parse_response(text)
    assert response.returned[0].memory_id == "a"
    found = [str(error) for error in response.errors]
    assert len(found) == len(said)
    for line, expected in zip(found, said, strict=True):
        assert line.startswith(expected)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it is empty"),
        ("  \n", "it is empty"),
        ('{"answer": 42}', "has no list of results"),
        ("[1.5]", "no row of it can be used"),
        ('{"results": [', "is not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ("[]", "no row of it can be used"),
    ],
)
def test_a_response_with_nothing_in_it_is_one_clear_line(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as error:
        parse_response(text, "file.json")
    assert "\n" not in str(error.value)
    assert str(error.value).startswith("file.json")


@given(
    st.text(max_size=200)
    | st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner),
        max_leaves=20,
    ).map(json.dumps)
)
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    try:
        response = parse_response(text)
    except InputError as error:
        assert "\n" not in str(error)
        return
    assert all(isinstance(one, Returned) and (one.memory_id or one.content) for one in response.returned)
    assert all("\n" not in str(error) for error in response.errors)
