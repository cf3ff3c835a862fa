"""Recorded answers: recordings, responses of searches, runs; rows that cannot be used are named."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cems_workbench.errors import InputError
from cems_workbench.records import RankedIds, Recording, Returned
from workbench_fidelity.recordings import parse_recording, read_recording

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


KEYS = ["results", "id", "score", "content", "memory", "x"]


def read(text: str) -> list[tuple[str | None, float | None]]:
    recording = parse_recording(text)
    assert recording.errors == ()
    return [(one.memory_id, one.score) for one in recording.answers[0].returned]


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


def test_a_row_without_an_id_has_its_text() -> None:
    recording = parse_recording('{"results": [{"content": "hello"}, {"id": "", "text": "you"}]}')
    assert [(one.memory_id, one.content) for one in recording.answers[0].returned] == [(None, "hello"), (None, "you")]


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
    recording = parse_recording(text, "response")
    assert recording.answers[0].returned[0].memory_id == "a"
    found = [str(error) for error in recording.errors]
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
        parse_recording(text, "file.json")
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
        recording = parse_recording(text)
    except InputError as error:
        assert "\n" not in str(error)
        return
    rows = [row for answer in recording.answers for row in answer.returned]
    assert all(isinstance(one, Returned) and (one.memory_id or one.content) for one in rows)
    assert all("\n" not in str(error) for error in recording.errors)


SCORES = {"q1": {"m07": 0.2, "m01": 0.9, "m09": 0.5}, "q2": {"m02": 0.8, "m09": 0.1}}
ROWS = [(qid, docno, score) for qid, ranking in SCORES.items() for docno, score in ranking.items()]
FALLING = {"q1": ["m01", "m09", "m07"], "q2": ["m02", "m09"]}
AS_RANKED = {"q1": ["m07", "m01", "m09"], "q2": ["m02", "m09"]}
CONTRADICTED = (
    "the run is ordered by its ranks, which its scores contradict in 1 of 2 queries, such as q1: m07 (0.2) is before m01 (0.9); "
    "trec_eval orders by score"
)


def trec(rank, separator=" ", docno="{}"):
    places = {qid: {name: n for n, name in enumerate(ranking, 1)} for qid, ranking in SCORES.items()}
    return "\n".join(
        separator.join([qid, "Q0", docno.format(name), str(rank(places[qid][name])), str(score), "t"])
        for qid, name, score in ROWS
    )


@pytest.mark.parametrize("separator", [" ", "\t", ",", ", ", "  "])
def test_ranks_that_contradict_the_scores_are_kept_and_named(separator):
    recording = parse_recording(trec(lambda place: place, separator))
    assert (recording.form, ids(recording)) == ("TREC run", AS_RANKED)
    assert recording.doubts == (CONTRADICTED,)
    assert not recording.errors


def test_equal_ranks_are_in_the_order_of_the_scores():
    recording = parse_recording(trec(lambda place: 0))  # beir#212
    assert ids(recording) == FALLING
    assert recording.doubts == ("the run is ordered by its ranks; equal ranks by their scores",)


def test_a_document_that_is_there_twice_is_named_with_its_query():
    recording = parse_recording("q1 Q0 m01 1 0.9 t\nq1 Q0 m01 2 0.8 t\nq1 Q0 m07 3 0.2 t\nq2 Q0 m01 1 0.8 t")
    assert ids(recording) == {"q1": ["m01", "m07"], "q2": ["m01"]}
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
    assert ids(recording) == FALLING
    assert recording.answers[0].query == words
    assert recording.doubts == (("the run is ordered by its scores; it has no ranks",) if words is None else ())
    assert not recording.errors


@pytest.mark.parametrize(
    "text", ['{"results": ["a", "b"]}', '["a", "b"]', "id,score\na,2\nb,1", "a\nb", '[{"id": "a"}, {"id": "b"}]']
)
def test_what_is_the_answer_to_one_query_is_no_run(text):
    recording = parse_recording(text)
    assert ids(recording) == {"1": ["a", "b"]} and not recording.doubts


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
    assert ids(recording) == found
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


def test_one_score_is_read_of_all_rows_of_an_answer() -> None:
    """lancedb 0.40.0, run on 2026-11-29: with return_score="all" a hybrid search has `_score` where a word is found."""
    rows = [
        {"id": "a", "text": "a", "_relevance_score": 0.032, "_score": 1.05, "_distance": 0.4},
        {"id": "b", "text": "b", "_relevance_score": 0.016, "_score": None, "_distance": 0.2},
    ]
    assert [row.score for row in parse_recording(json.dumps(rows)).answers[0].returned] == [0.032, 0.016]
    # A score that one row lacks is no score of the answer.
    rows = [{"id": "a", "score": 7.0, "_distance": 0.1}, {"id": "b", "score": None, "_distance": 0.3}]
    assert [row.score for row in parse_recording(json.dumps(rows)).answers[0].returned] == [-0.1, -0.3]
