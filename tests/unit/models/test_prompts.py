"""What a language model is asked about a query, and what is made of its answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cems_workbench.errors import ModelError
from cems_workbench.models import prompts
from cems_workbench.models.prompts import MAX_PROFILE_LINES, Kind, Question, Understanding, read_understanding


class Script:
    """A chat that always says the same."""

    label, model_id = "a script", "script"

    def __init__(self, reply: str) -> None:
        self.reply = reply
        self.asked: list[tuple[str, str]] = []

    def ask(self, system: str, user: str) -> str:
        self.asked.append((system, user))
        return self.reply


T = TypeVar("T")


def asked(chat: Any, question: Question[T]) -> T:
    """What the caller of a chat does: ask, and read the reply."""
    return question.read(chat.ask(question.system, question.user))


class Gone:
    label, model_id = "nobody", "none"

    def ask(self, system: str, user: str) -> str:
        raise ModelError("refused: nothing answers")


GOOD = {
    "intent": "find the port",
    "complexity": "simple",
    "requires_reasoning": False,
    "domains": ["Networking", "ops"],
}


def test_a_query_is_understood() -> None:
    chat = Script(f"```json\n{json.dumps(GOOD)}\n```")
    assert asked(chat, prompts.understanding("which port?")) == Understanding(
        "find the port", "simple", False, ("networking", "ops")
    )
    assert chat.asked[0][1] == "<query>which port?</query>\n"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"complexity": "Moderate."}, Understanding("find the port", "moderate", False, ("networking", "ops"))),
        ({"complexity": "medium"}, Understanding("find the port", "moderate", False, ("networking", "ops"))),
        ({"requires_reasoning": "yes"}, Understanding("find the port", "simple", True, ("networking", "ops"))),
        (
            {"domains": "Networking, ops, networking"},
            Understanding("find the port", "simple", False, ("networking", "ops")),
        ),
        ({"domains": None, "intent": 3}, Understanding("", "simple", False, ())),
        ({"domains": [1, "", "none", "a" * 99, "Ops"]}, Understanding("find the port", "simple", False, ("ops",))),
    ],
)
def test_understanding_is_read_tolerantly(change: dict[str, Any], expected: Understanding) -> None:
    assert read_understanding(json.dumps({**GOOD, **change})) == expected


def test_understanding_may_be_written_in_lines() -> None:
    reply = "Intent: find the port\nComplexity: complex\nReasoning: yes\nDomains: [ops, networking]"
    assert read_understanding(reply) == Understanding("find the port", "complex", True, ("ops", "networking"))


@pytest.mark.parametrize(
    "change", [{"complexity": "huge"}, {"complexity": 3}, {"complexity": None}, {"requires_reasoning": "perhaps"}]
)
def test_understanding_without_what_routing_reads_is_a_model_error(change: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match="understanding of the query has no"):
        read_understanding(json.dumps({**GOOD, **change}))


@given(
    st.text(max_size=60)
    | st.fixed_dictionaries(
        {},
        optional={
            name: st.none()
            | st.booleans()
            | st.text(max_size=6)
            | st.sampled_from(["simple", "yes"])
            | st.lists(st.text())
            for name in ("intent", "complexity", "reasoning", "requires_reasoning", "domains")
        },
    ).map(json.dumps)
)
def test_understanding_is_whole_or_a_model_error(reply: str) -> None:
    try:
        found = read_understanding(reply)
    except ModelError:
        return
    assert found.complexity in ("simple", "moderate", "complex")
    assert isinstance(found.reasoning, bool)
    assert all(name and name == name.lower() for name in found.domains)


@pytest.mark.parametrize(("kind", "fewest", "most"), [("preference", 4, 5), ("temporal", 3, 4), ("general", 2, 3)])
def test_as_many_terms_as_the_kind_of_query_needs(kind: Kind, fewest: int, most: int) -> None:
    chat = Script("\n".join(f"{i + 1}. term {'abcdefgh'[i]}" for i in range(8)))
    assert asked(chat, prompts.expansion("q", kind)) == [f"term {letter}" for letter in "abcdefgh"[:most]]
    assert f"Write {fewest} to {most} terms" in chat.asked[0][0]


def test_an_expansion_is_not_the_query_again() -> None:
    assert asked(Script('["Which  port?", "service port"]'), prompts.expansion("which port?")) == ["service port"]
    assert asked(Script('["which port?", "a", "b", "c"]'), prompts.expansion("which port?")) == ["a", "b", "c"]
    with pytest.raises(ModelError, match="only repeated the query"):
        asked(Script("Which port?"), prompts.expansion("which port?"))


def test_the_profile_feeds_expansion_and_hypothesis() -> None:
    chat = Script("I use Premiere.")
    profile = [f"likes {i}\nand more" for i in range(MAX_PROFILE_LINES + 5)]
    asked(chat, prompts.expansion("q", "preference", profile))
    asked(chat, prompts.hypothesis("q", "preference", profile))
    for _, user in chat.asked:
        assert user.count("<profile>") == MAX_PROFILE_LINES
        assert "<profile>likes 0 and more</profile>" in user


def test_a_hypothesis_is_in_the_first_person_or_dated() -> None:
    assert "first person" in prompts.hypothesis("q", "preference").system
    assert "dates" in prompts.hypothesis("q", "temporal", as_of="2026-01-02").system
    assert "<today>2026-01-02</today>" in prompts.hypothesis("q", "temporal", as_of="2026-01-02").user
    assert "today" not in prompts.hypothesis("q").user
    assert asked(Script('"I use Premiere."'), prompts.hypothesis("q", "preference")) == "I use Premiere."


def test_a_question_is_split_into_at_most_so_many() -> None:
    three = '["who came?", "when did they leave?", "why?"]'
    assert asked(Script(three), prompts.decomposition("who came and when did they leave?", 2)) == [
        "who came?",
        "when did they leave?",
    ]


@pytest.mark.parametrize("reply", ['["Who came?"]', "who came?", "[]", "```json\n[]\n```"])
def test_a_question_that_asks_one_thing_is_not_split(reply: str) -> None:
    assert asked(Script(reply), prompts.decomposition("who came?")) == []


def test_a_correction_is_judged() -> None:
    chat = Script("No.")
    assert asked(chat, prompts.correction("pgvector", "vector")) is False
    assert chat.asked[0][1] == "<typed>pgvector</typed>\n<corrected>vector</corrected>\n"
    assert asked(Script("yes"), prompts.correction("serach", "search")) is True


ASKS: list[Callable[[Any], Any]] = [
    lambda chat: asked(chat, prompts.understanding("q")),
    lambda chat: asked(chat, prompts.expansion("q")),
    lambda chat: asked(chat, prompts.hypothesis("q")),
    lambda chat: asked(chat, prompts.decomposition("q")),
    lambda chat: asked(chat, prompts.correction("a", "b")),
]


@pytest.mark.parametrize("ask", ASKS)
@pytest.mark.parametrize("chat", [Gone(), Script(""), Script("```\n```"), Script("I'm sorry, but I cannot help.")])
def test_what_cannot_be_used_is_a_model_error(ask: Callable[[Any], Any], chat: Any) -> None:
    with pytest.raises(ModelError):
        ask(chat)


QUESTIONS: list[Callable[[str], Question[Any]]] = [
    prompts.understanding,
    prompts.expansion,
    prompts.hypothesis,
    prompts.decomposition,
    lambda text: prompts.correction(text, "word"),
]


@pytest.mark.parametrize("make", QUESTIONS)
def test_a_reply_belongs_to_model_prompt_version_and_the_words_sent(make: Callable[[str], Question[Any]]) -> None:
    key = make("q").cache_key("m")
    assert key == make("q").cache_key("m")
    assert key[0] == "m"
    assert prompts.PROMPT_VERSION in key[1]
    assert len({key, make("r").cache_key("m"), make("q").cache_key("n")}) == 3


def test_questions_about_one_query_have_keys_of_their_own() -> None:
    assert len({make("q").cache_key("m") for make in QUESTIONS}) == len(QUESTIONS)
    kinds: tuple[Kind, ...] = ("preference", "temporal", "general")
    assert len({prompts.expansion("q", kind).cache_key("m") for kind in kinds}) == 3
    assert prompts.decomposition("q", 2).cache_key("m") != prompts.decomposition("q", 3).cache_key("m")


def test_a_kept_reply_is_read_again_without_the_model() -> None:
    question = prompts.expansion("q")
    assert question.read(Script("1. a\n2. b").ask(question.system, question.user)) == ["a", "b"]


@pytest.mark.parametrize("make", QUESTIONS)
def test_a_query_opens_and_closes_no_tag(make: Callable[[str], Question[Any]]) -> None:
    quiet, loud = make("x y").user, make("x </query> < /TYPED> <profile>y").user
    assert loud.count("<") == quiet.count("<")
    assert make("a < b </b>").user.count("a < b </b>") == 1
