"""What is measured of a recording: its settings over a config, what was asked, and where ours are cut."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from cems_workbench.analysis.fidelity.answer import RecordedResult, match_results
from cems_workbench.config import preset, with_values
from cems_workbench.errors import InputError
from cems_workbench.formats.recorded_answers import Recording, parse_recording
from cems_workbench.jobs.fidelity import (
    BASE_PRESET,
    asked_queries,
    bad_rows,
    lexical_lists,
    limit_of,
    nearness,
    require_usable,
    setting_for,
)
from cems_workbench.pipeline import Evidence
from cems_workbench.pipeline.evidence import Hit, RankedList, Variant
from cems_workbench.records import Memory, Query, RecordedAnswer, Returned

HEAD = preset(BASE_PRESET).config
THEN = datetime(2026, 11, 22, 15, tzinfo=UTC)


def recorded(**changes: Any) -> Recording:
    answers = [{"qid": "q1", "query": "what?", "project": "p", "results": ["a"]}]
    return parse_recording(json.dumps({"answers": answers, "answered_at": THEN.isoformat()} | changes), "dir/a.json")


def test_settings_of_a_recording_are_laid_over_the_config_as_variables_of_cems() -> None:
    settings = {"relevance_threshold": "0.1", "rrf_original_weight": "1.0"}
    setting = setting_for(recorded(config=settings, max_tokens=1200), HEAD)
    assert setting.config.filter.min_score == 0.1
    assert setting.config.variants.original_weight == 1.0
    assert setting.config.assembly.max_tokens == 1200
    assert dict(setting.applied) == {**settings, "max_tokens": "1200"}
    assert (setting.name, setting.warnings) == ("a, cems_head", ())


def test_as_chosen_leaves_the_config_alone() -> None:
    setting = setting_for(recorded(config={"relevance_threshold": "0.1"}, max_tokens=1200), HEAD, as_chosen=True)
    assert setting.config == HEAD
    assert setting.applied == ()


def test_a_setting_that_no_parameter_has_is_a_warning_that_names_it() -> None:
    setting = setting_for(recorded(config={"relevance_treshold": "0.1", "score_gap_ratio": "much"}), HEAD)
    unknown, refused = setting.warnings
    assert unknown.startswith("a.json: config: CEMS_RELEVANCE_TRESHOLD: no parameter")
    assert "CEMS_RELEVANCE_THRESHOLD" in unknown
    assert refused.startswith("a.json: config: CEMS_SCORE_GAP_RATIO: 'much' is not allowed")


def test_a_setting_cannot_set_another_one() -> None:
    setting = setting_for(recorded(config={"x": "1'\nCEMS_RELEVANCE_THRESHOLD='0.9"}), HEAD)
    assert setting.config.filter.min_score == HEAD.filter.min_score


def test_a_recording_says_what_was_asked_and_when() -> None:
    stored = {"q1": Query("q1", "another", "q", datetime(2020, 1, 1, tzinfo=UTC))}
    assert asked_queries(recorded(), stored) == (Query("q1", "what?", "p", THEN),)
    later = datetime(2027, 1, 1, tzinfo=UTC)
    assert asked_queries(recorded(), stored, later) == (Query("q1", "what?", "p", later),)


def test_a_run_is_of_the_queries_of_the_store() -> None:
    run = parse_recording("q1 Q0 a 1 0.9 x\nq2 Q0 b 1 0.9 x", "a.run")
    stored = {"q1": Query("q1", "one", "p", THEN), "q2": Query("q2", "two")}
    assert asked_queries(run, stored) == (Query("q1", "one", "p", THEN), Query("q2", "two"))
    with pytest.raises(InputError) as refused:
        asked_queries(run, {"q1": stored["q1"]})
    assert str(refused.value) == "a.run:2: query: unknown; the store has no query 'q2'"


def test_plain_ids_need_a_query_by_text_or_by_qid() -> None:
    plain = parse_recording("m1\nm2", "ids.txt")
    stored = {"q7": Query("q7", "seven", "p", THEN)}
    assert asked_queries(plain, stored, query="free text") == (Query("1", "free text"),)
    assert asked_queries(plain, stored, query="q7") == (Query("1", "seven", "p", THEN),)
    with pytest.raises(InputError, match=r"ids\.txt:1: query: unknown; name it with --query"):
        asked_queries(plain, stored)


def test_a_recording_is_whole_and_other_answers_are_cut_at_the_longest() -> None:
    assert limit_of(recorded()) is None
    assert limit_of(parse_recording("q1 Q0 a 1 0.9 x\nq2 Q0 b 1 0.9 x\nq2 Q0 c 2 0.8 x")) == 2


def test_good_rows_are_measured_and_one_line_says_what_was_left_out() -> None:
    bad = recorded(answers=[{"qid": "q1", "query": "x", "results": [{}, "a", {}]}])
    require_usable(bad)
    assert [row.memory_id for row in bad.answers[0].returned] == ["a"]
    line = bad_rows(bad)
    assert line is not None
    assert line.startswith("left out: dir/a.json:1: results[0]: has neither an id")
    assert line.endswith("(1 more such row)")
    assert bad_rows(recorded()) is None
    with pytest.raises(InputError) as refused:
        require_usable(recorded(answers=["x"]))
    assert str(refused.value) == "dir/a.json: there are no answers: dir/a.json:1: must be an answer, found 'x'"


def test_what_a_recording_says_was_searched_is_taken_as_given_unless_own_searches_are_asked_for() -> None:
    answer = {"qid": "q1", "query": "x", "results": ["a"], "searched": "x y", "queries": ["x", "z", "x"]}
    given = recorded(answers=[{**answer, "fts_query": "x OR y", "path": "dense"}])
    setting = setting_for(given, HEAD)
    (query,) = asked_queries(given, {}, setting=setting)
    assert (query.searched, query.wordings) == ("x y", ("z", "x"))
    assert dict(query.engine_queries) == {}  # cems_head has no list of that engine
    assert setting.given == {"searched text": 1, "wordings": 1, "vector alone": 1}
    own = setting_for(given, HEAD, own_searches=True)
    assert asked_queries(given, {}, setting=own) == (Query("q1", "x", None, THEN),)
    assert own.given == {}


def test_the_lexical_list_of_a_query_is_found_in_the_recording_that_has_it() -> None:
    lists = {"lexical": [[["a", 0.5]]], "vector": [[["b", 0.1]]]}
    first = recorded(answers=[{"qid": "q1", "query": "x", "results": [], "lists": lists}])
    second = recorded(answers=[{"qid": "q1", "query": "x", "results": []}, {"qid": "q2", "query": "y", "results": []}])
    assert lexical_lists([second, first]) == {"x": {"lexical": ((("a", 0.5),),)}}


def test_another_mode_than_the_one_that_is_computed_is_a_warning() -> None:
    assert setting_for(recorded(mode="vector"), HEAD).warnings == ()
    assert setting_for(recorded(mode="hybrid"), HEAD).warnings == ("answered in mode hybrid; this computes vector",)


def test_a_result_known_by_its_text_alone_counts_as_the_memory_whose_text_it_is() -> None:
    memories = {name: Memory(name, f"what memory {name} says, at some length") for name in "abc"}
    answers = (
        RecordedAnswer(1, "q1", "x", None, (Returned(1, None, None, memories["b"].content), Returned(2, "a"))),
        RecordedAnswer(
            2, "q2", "x", None, (Returned(1, None, None, "no such text"), Returned(2, None, None, "nor this"))
        ),
    )
    productions = {
        answer.qid: match_results(
            [RecordedResult(row.memory_id, row.content) for row in answer.returned],
            lambda ids: memories if ids is None else {key: memories[key] for key in ids if key in memories},
        )
        for answer in answers
    }
    assert [productions[qid].recorded for qid in ("q1", "q2")] == [("b", "a"), ("no id", "no id")]
    hits = (Hit("b", 0.9), Hit("a", 0.8), Hit("c", 0.7))
    asked = Evidence(
        "x", memories, (Variant("x"),), (RankedList("vector:0", "vector", 0, hits),), datetime(2026, 11, 1, tzinfo=UTC)
    )
    config = with_values(
        preset("cems_head").config,
        {
            "lists.hybrid.enabled": False,
            "lists.vector.enabled": True,
            "filter.min_score": None,
            "gap.ratio": 0.0,
        },
    )
    near = nearness(Recording("log", "query set", answers), productions, [asked, asked], config)
    assert near == {"q1": pytest.approx(1.0), "q2": 0.0}  # ours are cut at two, the longest answer
