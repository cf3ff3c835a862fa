"""The yes/no formula against hand-computed numbers, and whatever else a server may reply."""

from __future__ import annotations

import math
from typing import Any

import pytest
from faulty_server import GOOD, said, written
from hypothesis import given
from hypothesis import strategies as st

from cems_workbench.models.llama_server import quoted, score_of_reply
from cems_workbench.models.protocol import CAUSES, PairScore


@pytest.mark.parametrize(
    ("reply", "p", "outcome"),
    [
        (said(("yes", -0.1), ("no", -2.5)), GOOD, "yes and no"),
        (said(("no", -0.1), ("yes", -3.0)), 1 / (1 + math.exp(2.9)), "yes and no"),
        (said((" Yes", -1.0), ("NO\n", -1.0)), 0.5, "yes and no"),
        (said(("The", -0.5), ("Yes", -3.0), ("yes", -1.0), ("No", -3.0), ("no", -9.0)), 0.5, "yes and no"),
        (said(("yes", -3.4028235e38), ("no", -0.1)), 0.0, "yes and no"),
        (said(("yes", -0.1), ("no", -3.4028235e38)), 1.0, "yes and no"),
        (said(("Yes", -0.1), ("maybe", -2.0)), 1.0, "generated token"),
        (said(("no", -0.1), ("maybe", -2.0)), 0.0, "generated token"),
        (said(token=" yes"), 1.0, "generated token"),
        (said(("maybe", -0.1), ("yes", -2.0)), 0.8, "only yes seen"),
        (said(("maybe", -0.1), ("no", -2.0)), 0.2, "only no seen"),
        (written("yes"), 1.0, "text prefix"),
        (written(" Yes, it does"), 1.0, "text prefix"),
        (written("No."), 0.0, "text prefix"),
        ({"choices": [{"message": {"content": "yes"}}]}, 1.0, "text prefix"),
    ],
)
def test_score_of_a_reply(reply: dict[str, Any], p: float, outcome: str) -> None:
    assert score_of_reply(reply) == PairScore(pytest.approx(p, abs=1e-15), detail={"outcome": outcome})


def test_the_examples_of_the_seed_document() -> None:
    likely, unlikely = said(("yes", -0.1), ("no", -2.5)), said(("no", -0.1), ("yes", -3.0))
    assert (score_of_reply(likely).raw or 0) > 0.8
    assert (score_of_reply(unlikely).raw or 1) < 0.2
    assert score_of_reply(written("yes")).raw == 1.0


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        ({"choices": []}, "empty reply: no choices"),
        (written(""), "empty reply: neither logprobs nor text"),
        (written(None), "empty reply: neither logprobs nor text"),
        ({"choices": [{"logprobs": {"content": []}}]}, "empty reply: no token was generated"),
        ({}, "bad reply: choices is not a list in {}"),
        ([1], "bad reply: choices is not a list in [1]"),
        (None, "bad reply: choices is not a list in None"),
        ({"choices": "yes"}, "bad reply: choices is not a list in {'choices': 'yes'}"),
        ({"choices": ["yes"]}, "bad reply: logprobs is not a dict in yes"),
        ({"choices": [{"logprobs": None}]}, "bad reply: message is not a dict in {'logprobs': None}"),
        (written("The document"), "not a number: neither yes nor no in 'The document'"),
        (written("Not at all"), "not a number: neither yes nor no in 'Not at all'"),
        (written("yesterday"), "not a number: neither yes nor no in 'yesterday'"),
        (
            said(("maybe", -0.1), ("perhaps", -2.0)),
            "not a number: neither yes nor no among the 2 likeliest tokens, 'maybe' first",
        ),
        (
            said(("yesterday", -0.1), ("now", -2.0)),
            "not a number: neither yes nor no among the 2 likeliest tokens, 'yesterday' first",
        ),
        (written(1), "bad reply: content is not a str in {'content': 1}"),
        ({"choices": [{"logprobs": [-0.1]}]}, "bad reply: logprobs is not a dict in {'logprobs': [-0.1]}"),
        ({"choices": [{"logprobs": {"content": [7]}}]}, "bad reply: token is not a str in 7"),
        (said(("yes", math.nan), ("no", -1.0)), "not finite: the logprob of 'yes' is nan"),
        (said(("yes", -1.0), ("no", None)), "not finite: the logprob of 'no' is None"),
        (said(("yes", -1.0), ("no", -math.inf)), "not finite: the logprob of 'no' is -inf"),
        (said(("maybe", None)), "not finite: the logprob of 'maybe' is None"),
        (said(("yes", "-1.0"), ("no", -1.0)), "not a number: the logprob of 'yes' is -1.0"),
        (said(("yes", True), ("no", -1.0)), "not a number: the logprob of 'yes' is True"),
    ],
)
def test_a_reply_without_an_answer_is_flagged(reply: Any, error: str) -> None:
    assert score_of_reply(reply) == PairScore(None, error)


def test_an_integer_too_large_for_a_float_is_not_finite() -> None:
    assert str(score_of_reply(said(("yes", -(10**400)), ("no", -1))).error).startswith("not finite: ")


LOGPROBS = st.floats(max_value=0, allow_nan=False, allow_infinity=False)


@given(LOGPROBS, LOGPROBS, LOGPROBS)
def test_a_probability_that_grows_with_the_logprob_of_yes(one: float, other: float, no: float) -> None:
    low, high = (score_of_reply(said(("yes", yes), ("no", no))).raw for yes in sorted((one, other)))
    assert low is not None and high is not None
    assert 0 <= low <= high <= 1


@given(LOGPROBS, LOGPROBS)
def test_yes_and_no_share_one_probability(yes: float, no: float) -> None:
    as_told = score_of_reply(said(("yes", yes), ("no", no))).raw
    swapped = score_of_reply(said(("yes", no), ("no", yes))).raw
    assert as_told is not None and swapped is not None
    assert as_told + swapped == pytest.approx(1)


KEYS = st.sampled_from(["choices", "logprobs", "message", "content", "token", "top_logprobs", "logprob"])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["yes", " No", "maybe", ""])
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4))


REPLIES = st.one_of(
    JSON,
    JSON.map(lambda choice: {"choices": [choice]}),
    JSON.map(lambda token: {"choices": [{"logprobs": {"content": [token]}}]}),
    JSON.map(lambda top: {"choices": [{"logprobs": {"content": [{"token": "?", "top_logprobs": top}]}}]}),
    JSON.map(lambda yes: said(("yes", yes), ("no", -1.0))),
)


@given(REPLIES)
def test_any_json_is_either_scored_or_flagged_with_a_known_cause(reply: Any) -> None:
    scored = score_of_reply(reply)
    if scored.raw is None:
        assert scored.error is not None and scored.error.split(": ")[0] in CAUSES
    else:
        assert 0 <= scored.raw <= 1 and scored.error is None and scored.detail is not None


def test_whatever_is_quoted_in_an_error_stays_on_one_short_line() -> None:
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    assert quoted(deep).startswith("[[[")
    assert quoted(" a\n b ") == "a b"
    assert len(quoted("x" * 1000)) == 120
