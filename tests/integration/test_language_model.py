"""The query side with a language model: what is asked, what is searched, what is kept, and what happens without one.

The model is a local server that speaks the OpenAI wire format and answers what a test writes down.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from model_server import HTML, ModelServer, Reply, nobody, sent, serving

from cems_workbench.config import PipelineConfig, with_values
from cems_workbench.pipeline import Evidence, replay
from cems_workbench.pipeline.gather import Request, gather_lists
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.understanding import asker, validate

QUERY = "compare how we roll back a failed deploy with how we did it last year"
OFF: dict[str, Any] = {"expansion__skip_on_strong_signal__enabled": False}


def configured(**changes: Any) -> PipelineConfig:
    values = {"query__mode": "hybrid", **OFF, **changes}
    return with_values(PipelineConfig(), {path.replace("__", "."): value for path, value in values.items()})


@contextmanager
def model(resources: Resources, answer: Callable[[str], str | Reply]) -> Iterator[ModelServer]:
    """The server as the settings' LLM; `answer` gets the system text and gives the model's words."""

    def respond(path: str, body: dict[str, Any], earlier: int) -> Reply:
        said = answer(body["messages"][0]["content"])
        return said if isinstance(said, Reply) else sent({"choices": [{"message": {"content": said}}]})

    before = resources.servers
    with serving(respond) as server:
        resources.servers = replace(before, llm_url=server.url, llm_model="helper")
        yield server
    resources.servers = before


def found(resources: Resources, query: str = QUERY, **changes: Any) -> Evidence:
    return gather_lists(Request(query, as_of=datetime(2026, 9, 1, tzinfo=UTC)), configured(**changes), resources)


def texts(evidence: Evidence, kind: str) -> list[str]:
    return [variant.text for variant in evidence.variants if variant.kind == kind]


def said(evidence: Evidence, stage: str) -> str:
    return " | ".join(evidence.notes["warnings"].get(stage, ()))


def words(system: str) -> str:
    """What a well-behaved model says to each of the five questions."""
    if "search terms" in system:
        return '```json\n["rollback of a release", "helm rollback", "revert the deploy"]\n```'
    if "invent the note" in system:
        return "On 3 March we rolled the deploy back with one command."
    if "split a search query" in system:
        return "1. How do we roll back a failed deploy?\n2. How did we roll back last year?"
    if "spelling" in system:
        return "No."
    return json.dumps({"intent": "rollback", "complexity": "complex", "requires_reasoning": True, "domains": ["ops"]})


def test_expansion_sub_questions_and_hypothesis_are_searched_each_as_its_kind(resources: Resources) -> None:
    with model(resources, words):
        evidence = found(resources, expansion__backend="llm", expansion__decompose=True, expansion__hyde=True)
    assert texts(evidence, "expansion") == ["rollback of a release", "helm rollback", "revert the deploy"]
    assert texts(evidence, "decomposed") == ["How do we roll back a failed deploy?", "How did we roll back last year?"]
    assert texts(evidence, "hyde") == ["On 3 March we rolled the deploy back with one command."]
    assert {ranked.variant for ranked in evidence.lists if ranked.source == "vector"} == set(range(7))
    assert evidence.notes["llm"]["calls"] == 3
    weights = {row.list: row.weight for row in replay(evidence, configured()).stage("fusion").rows[0].contributions}
    assert set(weights.values()) <= {2.0, 1.0, 1.5}


def test_a_second_run_asks_nothing_and_finds_the_same(resources: Resources) -> None:
    changes = {"expansion__backend": "llm", "expansion__hyde": True}
    with model(resources, words) as server:
        first = found(resources, **changes)
        asked = len(server.asked)
        second = found(resources, **changes)
        assert len(server.asked) == asked
    assert second.variants == first.variants
    assert (second.notes["llm"]["calls"], second.notes["llm"]["cached"]) == (0, 2)


def test_auto_routes_by_what_the_model_says_of_the_query(resources: Resources) -> None:
    simple = json.dumps({"complexity": "simple", "requires_reasoning": False, "domains": []})
    with model(resources, lambda system: simple):
        evidence = found(resources, query__mode="auto")
    assert evidence.notes["query"]["route"] == "vector"
    assert "simple, no reasoning; says helper" in evidence.notes["query"]["route_reason"]


@pytest.mark.parametrize("reply", ["", "I cannot help with that.", HTML, Reply(status=404)])
def test_a_reply_that_cannot_be_used_is_said_kept_nowhere_and_feedback_takes_over(
    resources: Resources, reply: str | Reply
) -> None:
    with model(resources, lambda system: reply):
        evidence = found(resources, expansion__backend="llm", expansion__max_expansions=1, expansion__hyde=True)
    if reply != "I cannot help with that.":  # which is a passage, if a useless one
        assert texts(evidence, "hyde") == []
        assert "no hypothetical memory is searched" in said(evidence, "expansion")
    if "feedback is used instead" in said(evidence, "expansion"):
        (expansion,) = texts(evidence, "expansion")
        assert expansion.startswith(QUERY)
    with model(resources, words):
        again = found(resources, expansion__backend="llm")
    assert texts(again, "expansion")[0] == "rollback of a release"


def test_a_server_that_is_not_there_is_asked_once_and_everything_still_runs(resources: Resources) -> None:
    resources.servers = replace(resources.servers, llm_url=nobody(), llm_model="helper")
    evidence = found(
        resources, query__mode="auto", expansion__backend="llm", expansion__decompose=True, expansion__hyde=True
    )
    assert replay(evidence, configured()).results
    assert "the intent comes from the words" in said(evidence, "query")
    lines = evidence.notes["warnings"]["expansion"]
    assert len(lines) == 3 and all("refused" in line for line in lines)
    assert evidence.notes["llm"]["calls"] == 0


def test_a_typo_is_corrected_learned_and_forgotten_for_good_when_the_model_refuses_it(resources: Resources) -> None:
    typed, on = "how does elasticsaerch fail", {"query__typo_correction__enabled": True}
    found(resources, typed, **on, query__typo_correction__auto_learn=False)
    assert resources.store.corrections.read() == []
    evidence = found(resources, typed, **on)
    assert evidence.query == typed
    assert evidence.searched == evidence.notes["query"]["searched"] == "how does elasticsearch fail"
    (pair,) = resources.store.corrections.read()
    assert (pair.typo, pair.correction, pair.count) == ("elasticsaerch", "elasticsearch", 1)
    with model(resources, words):
        llm = asker(resources)
        assert llm is not None
        validate([("elasticsaerch", "elasticsearch")], resources, llm)
    assert [learned.refused for learned in resources.store.corrections.read()] == [True]
    assert found(resources, typed, **on).searched == typed
