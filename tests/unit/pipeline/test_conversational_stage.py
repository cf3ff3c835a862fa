"""Stopword ratio, domain signal, code, and the conversational query (docs/internals/specification.md, "query")."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cems_workbench.config.sections.gathering import Conversational
from cems_workbench.errors import InputError
from cems_workbench.pipeline.stages.query import PatternMatch, QueryFeatures, features, is_conversational
from cems_workbench.pipeline.understanding import shipped_terms, technical_terms

TERMS = shipped_terms()
WIRED, HYBRID, TOKEN = (
    "is this wired up and working in production",
    "how does hybrid search work",
    "what is the token limit",
)


def marks(count: int) -> tuple[PatternMatch, ...]:
    return (PatternMatch("x", "x", 0, 1),) * count


def kinds(query: str) -> set[str]:
    return {match.signal for match in features(query, TERMS).code}


@pytest.mark.parametrize(
    ("query", "domain", "stopwords", "conversational"),
    [(WIRED, 1 / 8, 7 / 8, True), (HYBRID, 0 / 5, 2 / 5, False), (TOKEN, 1 / 5, 2 / 5, False)],
)
def test_the_three_queries_of_the_ace_document(query, domain, stopwords, conversational):
    found = features(query, TERMS)
    assert (found.domain_signal, found.stopword_ratio, found.has_code) == (domain, stopwords, False)
    assert is_conversational(found, Conversational()) is conversational


def test_the_words_that_matched_are_shown_where_they_stand() -> None:
    found = features("Is the API's latency_ms ok, Tokens?", TERMS)
    assert [(match.signal, match.start, match.end) for match in found.stopwords] == [("is", 0, 2), ("the", 3, 6)]
    assert [(match.signal, match.start, match.end) for match in found.terms] == [("api", 7, 12), ("token", 28, 34)]
    assert found.code == (PatternMatch("code", "underscore", 13, 23),)


@pytest.mark.parametrize(
    ("domain", "stopwords", "conversational"),
    [(14, 41, True), (15, 41, False), (14, 40, False), (0, 100, True), (100, 0, False)],
)
def test_both_bounds_are_strict(domain: int, stopwords: int, conversational: bool) -> None:
    found = QueryFeatures(100, marks(stopwords), marks(domain))
    assert is_conversational(found, Conversational()) is conversational


def test_code_makes_a_query_not_conversational() -> None:
    assert is_conversational(features("is it up and working in the", TERMS), Conversational())
    assert not is_conversational(features("is it up and working in `the`", TERMS), Conversational())


@pytest.mark.parametrize("query", ["", "  ", "? - …"])
def test_a_query_without_words_has_ratios_of_zero_and_is_not_conversational(query: str) -> None:
    found = features(query, TERMS)
    assert (found.words, found.stopword_ratio, found.domain_signal, found.has_code) == (0, 0.0, 0.0, False)
    assert not is_conversational(found, Conversational())


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ("what does `git add` do", "backticks"),
        ("where is src/api/handlers", "path"),
        ("clear ~/.cache/pip now", "path"),
        (r"look in C:\temp", "path"),
        ("open https://example.org/x", "path"),
        ("who wrote main.py", "file name"),
        ("why DATABASE_URL", "underscore"),
        ("why __init__", "underscore"),
        ("where is getUserById", "camel case"),
        ("where is UserService", "camel case"),
        ("what does foo() give", "call"),
        ("is items[0] right", "brackets"),
        ("why {}", "brackets"),
        ("a <div> in it", "brackets"),
        ("what is os.path.join", "dotted name"),
        ("if a == b", "operator"),
        ("what is std::move", "operator"),
        ("what is --force for", "option"),
        ("where is $HOME", "variable"),
        ("what is 0xFF", "number in hex"),
        ("SELECT name FROM memories", "SQL"),
    ],
)
def test_how_a_query_shows_code(query: str, kind: str) -> None:
    assert kind in kinds(query)


@pytest.mark.parametrize(
    "query",
    [
        "and/or",
        "he/she/they",
        "open 24/7",
        "on 12/05/2024.",
        "version 1.2.3",
        "the file(s)",
        "e.g. this",
        "U.S. law",
        "MacDonald",
        "my iPhone",
        "PostgreSQL and GitHub",
        "Node.js",
        "[note] this",
        "well-known",
        "C++ or C#",
        "it's $50",
        "wait... what",
        "select from these",
        "rock'n'roll",
        "8:30",
    ],
)
def test_what_is_only_written_like_code_is_none(query: str) -> None:
    assert kinds(query) == set()


@given(st.text(max_size=200))
def test_ratios_lie_in_0_to_1_and_matches_in_the_query(query: str) -> None:
    found = features(query, TERMS)
    assert 0 <= found.stopword_ratio <= 1
    assert 0 <= found.domain_signal <= 1
    assert found.words <= len(query.split())
    for match in (*found.stopwords, *found.terms, *found.code):
        assert 0 <= match.start < match.end <= len(query)


def test_the_lexicon_is_in_lower_case_and_has_some_hundreds_of_terms() -> None:
    assert len(TERMS) > 500
    assert all(term == term.lower() for term in TERMS)
    assert not {"search", "work", "limit", "hybrid", "the"} & TERMS


def test_a_project_dictionary_adds_its_words(tmp_path) -> None:
    file = tmp_path / "terms.txt"
    file.write_text("# ours\nFlurbo  gizmo-server\n", encoding="utf-8")
    terms = technical_terms(file)
    assert terms == TERMS | {"flurbo", "gizmo-server"}
    assert features("the flurbos of it", terms).domain_signal == 1 / 4
    assert technical_terms(tmp_path / "none.txt") == TERMS == technical_terms()


def test_a_project_dictionary_that_is_no_text_is_an_error(tmp_path) -> None:
    file = tmp_path / "terms.txt"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"terms.txt: not readable as a list of words"):
        technical_terms(file)
