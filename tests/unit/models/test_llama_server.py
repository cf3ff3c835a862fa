"""The llama.cpp reranker: the yes/no formula by hand, what it asks, and its own failures; those of any call are in test_ollama."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_server import HANG, HTML, Answer, Reply, no_sleep, nobody, sent, serving

from cems_workbench.errors import ModelError
from cems_workbench.models import llama_server
from cems_workbench.models.llama_server import LlamaServerReranker, quoted, score_of_reply
from cems_workbench.models.protocol import CAUSES, PairScore

GOOD = 1 / (1 + math.exp(-2.4))
"""What `said(("yes", -0.1), ("no", -2.5))` is worth: 0.9168."""


def said(*top: tuple[str, Any], token: str | None = None) -> dict[str, Any]:
    """A reply whose one token has these likeliest alternatives; the first was generated, unless `token` was."""
    generated = token if token is not None else top[0][0]
    entries = [{"token": name, "logprob": logprob} for name, logprob in top]
    first = {"token": generated, "logprob": -0.1, "top_logprobs": entries}
    return {"choices": [{"message": {"content": generated}, "logprobs": {"content": [first]}}]}


def written(text: Any) -> dict[str, Any]:
    return {"choices": [{"message": {"content": text}, "logprobs": None}]}


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
        ({"choices": [{"message": {"content": "yes"}}]}, 1.0, "text prefix"),
    ],
)
def test_score_of_a_reply(reply: dict[str, Any], p: float, outcome: str) -> None:
    assert score_of_reply(reply) == PairScore(pytest.approx(p, abs=1e-15), detail={"outcome": outcome})


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        ({"choices": []}, "empty reply: no choices"),
        (written(""), "empty reply: neither logprobs nor text"),
        (written(None), "empty reply: neither logprobs nor text"),
        ({"choices": [{"logprobs": {"content": []}}]}, "empty reply: no token was generated"),
        ({}, "bad reply: choices is not a list in {}"),
        ({"choices": "yes"}, "bad reply: choices is not a list in {'choices': 'yes'}"),
        ({"choices": ["yes"]}, "bad reply: logprobs is not a dict in yes"),
        ({"choices": [{"logprobs": None}]}, "bad reply: message is not a dict in {'logprobs': None}"),
        (written("The document"), "not a number: neither yes nor no in 'The document'"),
        (written("yesterday"), "not a number: neither yes nor no in 'yesterday'"),
        (
            said(("maybe", -0.1), ("perhaps", -2.0)),
            "not a number: neither yes nor no among the 2 likeliest tokens, 'maybe' first",
        ),
        (written(1), "bad reply: content is not a str in {'content': 1}"),
        ({"choices": [{"logprobs": {"content": [7]}}]}, "bad reply: token is not a str in 7"),
        (said(("yes", math.nan), ("no", -1.0)), "not finite: the logprob of 'yes' is nan"),
        (said(("yes", -1.0), ("no", None)), "not finite: the logprob of 'no' is None"),
        (said(("yes", -1.0), ("no", -math.inf)), "not finite: the logprob of 'no' is -inf"),
        (said(("yes", "-1.0"), ("no", -1.0)), "not a number: the logprob of 'yes' is -1.0"),
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


def scorer(url: str, **options: Any) -> LlamaServerReranker:
    return LlamaServerReranker(url, **{"timeout_s": 20, "sleep": no_sleep, **options})


def by_document(replies: dict[str, Reply]) -> Answer:
    return lambda path, body, earlier: replies[body["messages"][1]["content"].split("<Document>: ")[1]]


def pages(**replies: Reply) -> Answer:
    """Answers GET /health and /v1/models with these, a missing one with 404."""
    return lambda path, body, earlier: replies.get(path.split("/")[-1], sent({"error": "no such page"}, 404))


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (sent(said(("yes", math.nan), ("no", -1.0))), "not finite: the logprob of 'yes' is nan"),
        (sent({"results": [{"relevance_score": 0.7}]}), r"bad reply: choices is not a list in \{'results': "),
        (Reply(b" " * 2_000_000), "bad reply: "),
    ],
)
def test_a_pair_that_fails_is_flagged_and_the_others_keep_their_scores(reply, error):
    good = sent(said(("yes", -0.1), ("no", -2.5)))
    with serving(by_document({"a": good, "bad": reply, "z": good})) as server:
        first, bad, last = scorer(server.url, timeout_s=1).score("q", ["a", "bad", "z"])
    assert (first.raw, last.raw) == (pytest.approx(GOOD), pytest.approx(GOOD))
    assert first.detail["outcome"] == "yes and no" and first.detail["seconds"] > 0
    assert bad.raw is None and re.match(error, bad.error) and "\n" not in bad.error


def test_the_prompt_and_the_settings_of_a_request():
    with serving(lambda *_: sent(said(("yes", -0.1)))) as server:
        scorer(server.url, model="qwen3-reranker", instruction="find it").score("who\n?", ["good \ud800 é"])
        scorer(server.url).score("who?", ["good"])
        named, unnamed = server.bodies("/v1/chat/completions")
    system, user = named.pop("messages")
    assert system["role"] == "system" and 'the answer can only be "yes" or "no"' in system["content"]
    assert user == {"role": "user", "content": "<Instruct>: find it\n<Query>: who\n?\n<Document>: good ? é"}
    settings = {"max_tokens": 1, "temperature": 0, "logprobs": True, "top_logprobs": 20}
    assert named == {**settings, "model": "qwen3-reranker"} and "model" not in unnamed
    assert unnamed["messages"][1]["content"].startswith(f"<Instruct>: {llama_server.INSTRUCTION}\n<Query>: who?\n")


def test_health_is_one_line_that_names_the_model():
    answer = pages(health=sent({"status": "ok"}), models=sent({"data": [{"id": "/models/qwen3-reranker.gguf"}]}))
    with serving(answer) as server:
        assert scorer(server.url).health() == f"llama.cpp server at {server.url}: ok, serves qwen3-reranker.gguf"
        assert scorer(server.url, model="mine").health() == f"llama.cpp server at {server.url}: ok, serves mine"


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (sent({"error": {"code": 503, "message": "Loading model"}}, 503), "server error: .*HTTP 503: Loading model$"),
        (sent(["fine"]), r"does not say that a llama.cpp server is ready: \['fine'\]"),
        (HTML, "bad reply: .*not the JSON that was expected"),
        (HANG, "timeout: "),
    ],
)
def test_health_of_what_is_not_ready(reply, error, monkeypatch):
    monkeypatch.setattr(llama_server, "HEALTH_TIMEOUT_S", 0.5)
    with serving(lambda *_: reply) as server, pytest.raises(ModelError, match=error):
        scorer(server.url).health()


def test_the_cache_names_model_prompt_and_instruction():
    with serving(pages(models=sent({"data": [{"id": "qwen3.gguf"}, {"id": "other"}]}))) as server:
        reported = scorer(server.url).cache_model("q")
        prefix, model, prompt, digest = reported.split(":")
        assert (prefix, model, prompt, len(digest)) == ("llama_server", "qwen3.gguf", "qwen3-reranker/1", 16)
        assert scorer(server.url).cache_model("another query") == reported
        assert scorer(server.url, instruction="find it").cache_model("q") != reported
        assert scorer(server.url, model="mine").cache_model("q") == f"llama_server:mine:qwen3-reranker/1:{digest}"


@pytest.mark.parametrize("reply", [{"data": []}, {"data": [{"id": None}]}, {"data": {"id": 1}}, [], {"data": [5]}])
def test_the_cache_names_the_url_of_a_server_that_names_no_model(reply):
    with serving(pages(models=sent(reply))) as server:
        assert scorer(server.url).cache_model("q").startswith(f"llama_server:{server.url}:qwen3-reranker/1:")


def test_a_password_in_the_url_is_shown_nowhere():
    model = scorer(nobody().replace("//", "//me:secret@") + "/base/")
    assert "secret" not in model.label + model.cache_model("q") + str(model.score("q", ["text"])[0].error)
    assert model.label.startswith("the model on the llama.cpp server at http://127.0.0.1:")


@pytest.mark.parametrize("url", ["", "localhost:8080", "ftp://localhost", "http://", "http://a:b"])
def test_a_url_that_is_none_is_an_error_at_once(url):
    with pytest.raises(ModelError, match=r"URL"):
        LlamaServerReranker(url)


@pytest.mark.parametrize("options", [{"timeout_s": 0}, {"timeout_s": math.nan}, {"max_concurrent": 0}])
def test_limits_that_would_wait_for_ever_are_an_error_at_once(options):
    with pytest.raises(ModelError, match=r"timeout_s must be above 0 and max_concurrent at least 1"):
        LlamaServerReranker("http://localhost:8080", **options)
