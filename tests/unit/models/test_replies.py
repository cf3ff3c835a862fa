"""Reading a language model's words: lists, texts, fields, decisions, however they are wrapped."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cems_workbench.errors import ModelError
from cems_workbench.models.prompts import MAX_LINE_CHARS, MAX_TEXT_CHARS, decision, fields, lines, passage, yes_or_no

TERMS = ["video editing software", "Adobe Premiere Pro", "I use Final Cut"]


@pytest.mark.parametrize(
    "reply",
    [
        json.dumps(TERMS),
        json.dumps(TERMS, indent=2),
        f"```json\n{json.dumps(TERMS)}\n```",
        f"Here you are:\n\n{json.dumps(TERMS)}\n\nAnything else?",
        json.dumps({"terms": TERMS}),
        json.dumps({"query": "x", "result": {"expansions": TERMS}}),
        json.dumps([{"term": term} for term in TERMS]),
        '<think>what about ["cats"]?</think>' + json.dumps(TERMS),
        "1. video editing software\n2. Adobe Premiere Pro\n3. I use Final Cut",
        "1) \"video editing software\"\n2) 'Adobe Premiere Pro'\n3) “I use Final Cut”",
        "(1) video editing software\n(2) Adobe Premiere Pro\n(3) I use Final Cut",
        "Sure, here are three terms:\n\n- video editing software\n- **Adobe Premiere Pro**\n- `I use Final Cut`\n\nGood luck!",
        "* video editing software\n* *Adobe Premiere Pro*\n* I  use  Final Cut",
        "• video editing software\n• Adobe Premiere Pro\n\n• I use Final Cut",
        "video editing software\nAdobe Premiere Pro\nI use Final Cut",
        "Terms:\r\nvideo editing software\r\nAdobe Premiere Pro\r\nI use Final Cut\r\n",
        '"video editing software",\n"Adobe Premiere Pro",\n"I use Final Cut"',
        "video editing software\nVideo Editing Software\nAdobe Premiere Pro\nI use Final Cut",
        "- video editing software\n- " + "prose " * 80 + "\n- Adobe Premiere Pro\n- ---\n- I use Final Cut",
    ],
)
def test_a_list_is_read_however_it_is_written(reply: str) -> None:
    assert lines(reply, 5) == TERMS


def test_a_list_is_cut_to_what_is_wanted() -> None:
    assert lines("a\nb\nc", 2) == ["a", "b"]


def test_a_term_keeps_the_quotes_and_numbers_within_it() -> None:
    assert lines('- the "dark" theme\n- 3 days before\n- 2024. was good\n- don\'t', 9) == [
        'the "dark" theme',
        "3 days before",
        "2024. was good",
        "don't",
    ]


NOTHING = [
    "",
    " \n",
    "```\n```",
    "<think>a list",
    "I'm sorry, I can't help with that.",
    "Sorry, no.",
    "As an AI model, I",
    "***",
]


@pytest.mark.parametrize(
    "reply",
    [
        *NOTHING,
        "[]",
        "{}",
        "[1, 2]",
        '{"terms": []}',
        '["a", "b',
        '{"terms": [\n"a",\n',
        "Here are the terms:",
        "x" * (MAX_LINE_CHARS + 1),
    ],
)
def test_a_reply_without_a_list_is_a_model_error(reply: str) -> None:
    with pytest.raises(ModelError, match="reply holds no"):
        lines(reply, 3)


MEMORY = 'I use Adobe Premiere Pro, since it is "fast".'


@pytest.mark.parametrize(
    "reply",
    [
        MEMORY,
        f"  {MEMORY}\n",
        f"```\n{MEMORY}\n```",
        f"“{MEMORY}”",
        f"Hypothetical memory: {MEMORY}",
        f"**Memory:** {MEMORY}",
        f"Here is a hypothetical memory:\n\n{MEMORY}",
        f"<think>They ask for…</think>\n{MEMORY}",
        json.dumps({"memory": MEMORY}),
        json.dumps([MEMORY]),
    ],
)
def test_a_text_is_read_without_its_wrapping(reply: str) -> None:
    assert passage(reply) == MEMORY


def test_a_text_of_several_sentences_keeps_its_lines_and_ends_somewhere() -> None:
    assert passage("On March 15th I moved.\n\nThree days before, I packed.") == (
        "On March 15th I moved.\n\nThree days before, I packed."
    )
    assert len(passage("word " * 2000)) <= MAX_TEXT_CHARS


@pytest.mark.parametrize("reply", [*NOTHING, "[]", "{}", "--"])
def test_a_reply_without_a_text_is_a_model_error(reply: str) -> None:
    with pytest.raises(ModelError, match="reply holds no"):
        passage(reply)


@pytest.mark.parametrize(
    "reply",
    [
        '{"Complexity": "simple", "requires reasoning": false}',
        'Of course:\n```json\n{"complexity": "simple", "requires-reasoning": false}\n```',
        "- **Complexity**: simple\n- **Requires reasoning**: false",
        "complexity: simple\nrequires_reasoning: false",
    ],
)
def test_fields_are_read_as_json_or_as_lines(reply: str) -> None:
    found = {key: str(value).lower() for key, value in fields(reply).items()}
    assert found == {"complexity": "simple", "requires_reasoning": "false"}


@pytest.mark.parametrize("reply", [*NOTHING, "{}", "[]", "no colon here"])
def test_a_reply_without_fields_is_a_model_error(reply: str) -> None:
    with pytest.raises(ModelError, match="reply holds no"):
        fields(reply)


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("yes", True),
        ("No.", False),
        ("**Yes**", True),
        (' "no" ', False),
        ("YES\n", True),
        ("```\nno\n```", False),
        ("Yes, no doubt about it.", True),
        ("No, yes is wrong.", False),
        ("The answer is yes.", True),
        ("true", True),
        ('{"answer": "yes"}', True),
        ('{"misspelling": false}', False),
        ('["no"]', False),
        ('{"answer": 1}', True),
        ("<think>no?</think>yes", True),
        ('{"reason": "a typo", "answer": "yes"}', True),
    ],
)
def test_a_decision_is_read(reply: str, answer: bool) -> None:
    assert decision(reply) is answer


@pytest.mark.parametrize(
    "reply", [*NOTHING, "maybe", "perhaps yes, perhaps no", "yesterday", "7", '{"answer": "maybe"}', "не"]
)
def test_a_reply_that_decides_nothing_is_a_model_error(reply: str) -> None:
    with pytest.raises(ModelError, match="reply holds no"):
        decision(reply)


@pytest.mark.parametrize("value", [None, 2, 0.5, float("nan"), [], {}, "", "yes or no"])
def test_what_says_neither_is_neither(value: Any) -> None:
    assert yes_or_no(value) is (True if value == "yes or no" else None)


PIECES = st.sampled_from(
    [
        "1. ",
        "- ",
        "* ",
        "**",
        '"',
        "'",
        "```",
        "json",
        "\n",
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        "yes",
        "no",
        "true",
        "complexity",
        "simple",
        "reasoning",
        "<think>",
        "</think>",
        "memory:",
        "sorry",
        "“",
        "”",
        "7",
        "NaN",
        "\ud800",
        "\x00",
        " ",
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(st.text() | st.lists(PIECES, max_size=14).map("".join) | VALUES.map(json.dumps))
@example('{"a":' * 900 + "[" + "]" + "}" * 900)
@example("[" * 900 + "]" * 900)
@example("{" * 30_000)
@example("[" + "9" * 5000 + "]")
@example('"' * 5000)
@example("*" * 5000)
def test_a_reader_gives_what_it_promises_or_a_model_error(reply: str) -> None:
    for read in (lambda text: lines(text, 3), passage, fields, decision):
        try:
            found = read(reply)
        except ModelError as error:
            assert len(str(error).splitlines()) == 1
            continue
        if isinstance(found, list):
            assert 0 < len(found) <= 3
            assert all(text and len(text) <= MAX_LINE_CHARS and "\n" not in text for text in found)
        elif isinstance(found, str):
            assert 0 < len(found) <= MAX_TEXT_CHARS
        else:
            assert isinstance(found, (bool, dict))
