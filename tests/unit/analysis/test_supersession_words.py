"""Which memory supersedes a ranked one, in words: where that one is, how much later it was written, what has expired."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from cems_workbench.analysis.blame import standing
from cems_workbench.analysis.supersession import (
    days_later,
    first_result_stale,
    first_result_words,
    stale_badges,
    stale_words,
    staleness,
    standing_sentence,
    stored_standings,
)
from cems_workbench.analysis.why import explain
from cems_workbench.api.single_query import Answer
from cems_workbench.config import PipelineConfig, with_values
from cems_workbench.mcp.queries import _candidate
from cems_workbench.pipeline import Evidence, Hit, RankedList, Variant, replay
from cems_workbench.pipeline.supersession import EXCLUDED, SUPERSEDED
from cems_workbench.records import Memory
from cems_workbench.report.investigation import investigation_report
from cems_workbench.store.relations import SupersedingEdge

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)
CONFIG = with_values(
    PipelineConfig(),
    {
        "lists.lexical.enabled": False,
        "filter.min_score": 0.0,
        "rerank.backend": "none",
        "gap.ratio": 0.0,
        "dedup.enabled": False,
        "assembly.limit": 2,
        "assembly.max_tokens": None,
    },
)


def traced(order, newer, until=None, ages=None, config=CONFIG):
    """A trace of one list in this order; `newer` are the successors by older id, `ages` days before NOW."""
    ids = sorted({*order, *newer, *(one for own in newer.values() for one in own)})
    memories = {
        key: Memory(key, f"text of {key}", created_at=NOW - timedelta(days=(ages or {}).get(key, 1))) for key in ids
    }
    for key, moment in (until or {}).items():
        memories[key] = replace(memories[key], valid_until=moment)
    note = {
        key: [{"id": one, "created_at": memories[one].created_at.isoformat(), "kind": "supersedes"} for one in own]
        for key, own in newer.items()
    }
    hits = tuple(Hit(key, 0.9 - 0.05 * place) for place, key in enumerate(order))
    evidence = Evidence(
        query="q",
        memories=memories,
        variants=(Variant("q"),),
        lists=(RankedList("vector:0", "vector", 0, hits),),
        as_of=NOW,
        notes={SUPERSEDED: note} if note else {},
    )
    return replay(evidence, config)


@pytest.mark.parametrize(
    ("order", "limit", "words", "stale"),
    [
        ("abc", 3, "superseded by b (9 days later), which is 2nd", True),
        ("bac", 3, "superseded by b (9 days later), which is 1st", False),
        ("acb", 2, "superseded by b (9 days later), which is below 2 in every list (best: 3rd in vector:0)", True),
        ("acd", 2, "superseded by b (9 days later), which no list found", True),
    ],
)
def test_words_say_where_the_successor_is(order, limit, words, stale):
    config = with_values(CONFIG, {"assembly.limit": limit})
    trace = traced(order, {"a": ["b"]}, ages={"a": 10}, config=config)
    assert stale_words(trace, "a") == words
    assert staleness(trace, "a").stale is stale and (first_result_stale(trace) is not None) is stale
    assert stale_words(trace, "c") is None


def test_best_ranked_successor_is_named_else_the_latest_that_has_not_expired():
    ranked = traced("axb", {"a": ["c", "b"]}, config=with_values(CONFIG, {"assembly.limit": 3}))
    assert staleness(ranked, "a").successor == "b"
    away = traced("ax", {"a": ["c", "b"]}, until={"c": NOW - timedelta(days=1)})
    assert staleness(away, "a").successor == "b"


def test_expired_is_said_from_its_moment_on():
    gone = traced("ab", {}, until={"a": NOW, "b": NOW + timedelta(seconds=1)})
    assert (stale_words(gone, "a"), stale_words(gone, "b")) == ("expired 2026-07-01", None)
    assert first_result_words(first_result_stale(gone)) == "The first result, a, expired 2026-07-01."
    both = traced("ab", {"a": ["b"]}, until={"a": NOW})
    assert stale_words(both, "a") == "superseded by b (the same day), which is 2nd; expired 2026-07-01"


def test_sentence_names_what_a_memory_supersedes_too():
    trace = traced("abc", {"a": ["b"], "b": ["c"]}, ages={"a": 30, "b": 20, "c": 10})
    assert first_result_words(first_result_stale(trace)) == (
        "The first result, a, is superseded by b (10 days later), which is 2nd."
    )
    assert standing_sentence(trace, "b") == (
        "b is superseded by c (10 days later), which is below 2 in every list (best: 3rd in vector:0); it supersedes a, which is 1st."
    )
    assert standing_sentence(traced("ab", {}), "a") == ""


def test_same_words_are_in_the_answer_the_report_and_mcp():
    trace = traced("acb", {"a": ["b"]}, ages={"a": 10})
    words = "superseded by b (9 days later), which is below 2 in every list (best: 3rd in vector:0)"
    answer = Answer(trace)
    assert answer.lines == (f"The first result, a, is {words}.",)
    assert [row[4] for row in answer.tables[0].rows] == [words, None]
    assert answer.to_json()["out_of_date"]["a"] == {"words": words, "stale": True, "superseded_by": "b"}
    assert _candidate(trace, "a")["out_of_date"] == words and "out_of_date" not in _candidate(trace, "c")
    found = explain("a", trace.evidence, trace.config)
    assert found.standing == f"a is {words}."
    report = investigation_report(found, trace, NOW)
    assert f"<p>a is {words}.</p>" in report and f'<span class="tag">{words}</span>' in report


@pytest.mark.parametrize(
    ("days", "words"),
    [(1, "1 day later"), (157, "157 days later"), (0, "the same day"), (-2, "2 days earlier, by its date")],
)
def test_distance_is_in_calendar_days(days, words):
    assert days_later(NOW, NOW + timedelta(days=days)) == words
    assert days_later(None, NOW) == days_later(NOW, None) == ""


def test_stored_memories_say_their_latest_successor_at_the_moment():
    old = Memory("a", "x", created_at=NOW - timedelta(days=9), valid_until=NOW)
    edges = [SupersedingEdge("a", "b", "supersedes", None, NOW - timedelta(days=2), None, "personal", True)]
    assert stored_standings([old], edges, NOW) == {"a": "superseded by b (7 days later); expired 2026-07-01"}
    assert stored_standings([old], edges, NOW - timedelta(days=3)) == {}


def test_a_successor_that_the_scope_excludes_is_named_with_it():
    """obsidian-mind#199 (2026-08-03): a correction is kept in one project, and a search of the shared scope gets what it corrects."""
    before = traced(["old", "other"], {})
    newer = Memory("new", "text of new", created_at=NOW, scope="personal")
    note = {"old": {"id": "new", "created_at": NOW.isoformat(), "kind": "supersedes", "excluded_by": "scope"}}
    config = with_values(before.config, {"query.scope": "shared", "supersession.mode": "drop"})
    trace = replay(replace(before.evidence, notes={**before.evidence.notes, EXCLUDED: note}), config)
    found = first_result_stale(trace)
    assert found.words == "superseded by new (1 day later), which the query's scope excludes"
    assert found.excluded and not found.in_a_list and stale_badges(trace) == {"old": "superseded by new"}
    assert standing(trace, newer).words == "excluded by the scope"
    assert standing(trace, replace(newer, scope="shared")).words == "no list found it"
