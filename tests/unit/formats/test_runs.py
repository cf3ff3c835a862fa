"""Runs of other tools: whatever form they have, the order is that of their ranks, equal ranks by score, and what contradicts is named."""

from __future__ import annotations

import json

import pytest

from cems_workbench.formats.recorded_answers import parse_recording

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
