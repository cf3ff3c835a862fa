"""Responses of a production system, in every form they come in; bad rows cost only themselves.

Runs of other tools: whatever form they have, the order is that of their ranks, equal ranks by score, and what contradicts is named.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cems_workbench.errors import InputError
from cems_workbench.formats.recorded_answers import parse_recording
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


SCORES = {"q1": {"m07": 0.2, "m01": 0.9, "m09": 0.5}, "q2": {"m02": 0.8, "m09": 0.1}}
ROWS = [(qid, docno, score) for qid, ranking in SCORES.items() for docno, score in ranking.items()]
FALLING = {"q1": ["m01", "m09", "m07"], "q2": ["m02", "m09"]}
AS_RANKED = {"q1": ["m07", "m01", "m09"], "q2": ["m02", "m09"]}
CONTRADICTED = (
    "the run is ordered by its ranks, which its scores contradict in 1 of 2 queries, such as q1: m07 (0.2) is before m01 (0.9); "
    "trec_eval orders by score"
)


def order(recording):
    return {answer.qid: [row.memory_id for row in answer.returned] for answer in recording.answers}


def trec(rank, separator=" ", docno="{}"):
    places = {qid: {name: n for n, name in enumerate(ranking, 1)} for qid, ranking in SCORES.items()}
    return "\n".join(
        separator.join([qid, "Q0", docno.format(name), str(rank(places[qid][name])), str(score), "t"])
        for qid, name, score in ROWS
    )


@pytest.mark.parametrize("separator", [" ", "\t", ",", ", ", "  "])
def test_ranks_that_contradict_the_scores_are_kept_and_named(separator):
    recording = parse_recording(trec(lambda place: place, separator))
    assert (recording.form, order(recording)) == ("TREC run", AS_RANKED)
    assert recording.doubts == (CONTRADICTED,)
    assert not recording.errors


def test_equal_ranks_are_in_the_order_of_the_scores():
    recording = parse_recording(trec(lambda place: 0))  # beir#212
    assert order(recording) == FALLING
    assert recording.doubts == ("the run is ordered by its ranks; equal ranks by their scores",)


def test_a_document_that_is_there_twice_is_named_with_its_query():
    recording = parse_recording("q1 Q0 m01 1 0.9 t\nq1 Q0 m01 2 0.8 t\nq1 Q0 m07 3 0.2 t\nq2 Q0 m01 1 0.8 t")
    assert order(recording) == {"q1": ["m01", "m07"], "q2": ["m01"]}
    assert [str(error) for error in recording.errors] == ["answers:2: 'm01' stands already in row 1 of query 'q1'"]


def table(delimiter):
    """The results of PyTerrier 1.0, as `DataFrame.to_csv` writes them: docid is a number of its index."""
    rows = [["", "qid", "docid", "docno", "rank", "score", "query"]]
    places = {qid: sorted(ranking, key=lambda name: -ranking[name]) for qid, ranking in SCORES.items()}
    for n, (qid, name, score) in enumerate(ROWS):
        rows.append([str(n), qid, str(n + 70), name, str(places[qid].index(name)), str(score), f"words of {qid}"])
    return "\n".join(delimiter.join(row) for row in rows)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (json.dumps(SCORES), None),  # ranx 0.3, BEIR 2, pytrec_eval
        (json.dumps([{"query_id": qid, "doc_id": name, "score": score} for qid, name, score in ROWS]), None),
        ("\n".join(json.dumps({"query_id": q, "doc_id": name, "score": s}) for q, name, s in ROWS), None),
        (table(","), "words of q1"),
        (table("\t"), "words of q1"),
    ],
    ids=["ranx", "json", "jsonl", "pyterrier-csv", "pyterrier-tsv"],
)
def test_other_forms_of_a_run(text, words):
    recording = parse_recording(text)
    assert order(recording) == FALLING
    assert recording.answers[0].query == words
    assert recording.doubts == (("the run is ordered by its scores; it has no ranks",) if words is None else ())
    assert not recording.errors


def test_three_columns_are_a_run_where_the_last_counts_from_1():
    assert order(parse_recording("q1\tm2\t1\nq1\tm1\t2\nq2\tm2\t1")) == {"q1": ["m2", "m1"], "q2": ["m2"]}


@pytest.mark.parametrize(
    "text", ['{"results": ["a", "b"]}', '["a", "b"]', "id,score\na,2\nb,1", "a\nb", '[{"id": "a"}, {"id": "b"}]']
)
def test_what_is_the_answer_to_one_query_is_no_run(text):
    recording = parse_recording(text)
    assert order(recording) == {"1": ["a", "b"]} and not recording.doubts


@pytest.mark.parametrize(
    ("text", "found", "faults"),
    [
        ("qid, docno, rank\nq1, m1, 1\nq1, m2, 2\n", {"q1": ["m1", "m2"]}, []),
        ("qid,docno,rank\nq1,'=m1,1\n", {"q1": ["=m1"]}, []),
        ('qid,docno,rank\nq1,"m1,1\nq1,m2,2\nq1,m3,3\n', {"q1": ["m2", "m3"]}, [2]),
        ('m1,0.5\n"m2,0.4\nm3,0.3', {"1": ["m1", "m3"]}, [2]),
    ],
    ids=["blanks", "guard", "open-quote", "open-quote-in-a-list"],
)
def test_cells_are_those_of_any_csv(text, found, faults):
    recording = parse_recording(text)
    assert order(recording) == found
    assert [error.row for error in recording.errors] == faults


@pytest.mark.parametrize("pairwise", [False, True])
def test_an_experiment_of_the_search_relevance_workbench_is_a_run_by_words(pairwise):
    """opensearch-project/dashboards-search-relevance, test data at a670d37f."""
    rows = []
    for words, ids in (("where is the key", ["a", "b"]), ("which lamp", [])):
        shots = [{"searchConfigurationId": "A", "docIds": ids}, {"searchConfigurationId": "B", "docIds": ["z"]}]
        if pairwise:
            rows.append({"queryText": words, "snapshots": shots})
        else:
            rows += [
                {
                    "searchText": words,
                    "documentIds": shot["docIds"],
                    "searchConfigurationId": shot["searchConfigurationId"],
                }
                for shot in shots
            ]
    text = json.dumps({"type": "EVALUATION", "results" if pairwise else "evaluationResultList": rows})
    recording = parse_recording(text)
    found = [(one.query, [row.memory_id for row in one.returned]) for one in recording.answers]
    assert found == [("where is the key", ["a", "b"]), ("which lamp", [])]
    assert recording.doubts[-1] == "answers of 2 search configurations: those of A were read"
