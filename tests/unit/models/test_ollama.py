"""Models on Ollama and OpenAI-compatible servers: reranker, embedder, chat; what is asked, and everything that can go wrong on the wire."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from model_server import CUT, DRIP, HANG, HTML, SLAM, TRUNCATED, Answer, Reply, no_sleep, nobody, sent, serving

from cems_workbench.errors import ModelError
from cems_workbench.models.chat import Chat, OllamaChat, OpenAiChat
from cems_workbench.models.ollama import OllamaEmbedder, OllamaReranker, installed, models, number
from cems_workbench.models.protocol import CAUSES, PairScore


def said(text: Any, **more: Any) -> Reply:
    return sent({"model": "m", "response": text, "done": True, **more})


def by_document(replies: dict[str, Reply | list[Reply]]) -> Answer:
    """The reply to a pair by its document; a list is gone through try by try, the last again and again."""

    def answer(path: str, body: dict[str, Any], earlier: int) -> Reply:
        found = replies[body["prompt"].partition("\nDocument: ")[2]]
        return found if isinstance(found, Reply) else found[min(earlier, len(found) - 1)]

    return answer


def reranker(url: str, **more: Any) -> OllamaReranker:
    return OllamaReranker(url, "qwen3-reranker", **{"timeout_s": 30.0, "sleep": no_sleep, **more})


def plain(scores: list[PairScore]) -> list[float | str | None]:
    """The raw score, or the cause why there is none."""
    assert all((score.raw is None) != (score.error is None) for score in scores)
    return [score.raw if score.error is None else score.error.partition(":")[0] for score in scores]


# A number, and nothing else


@pytest.mark.parametrize(
    ("reply", "value"),
    [("7", 7.0), (" 7.25\n", 7.25), ("-0.5", -0.5), ("+3", 3.0), ("7.", 7.0), (".5", 0.5), ("1e-3", 0.001), ("0", 0.0)],
)
def test_a_reply_that_is_a_number_is_the_score(reply: str, value: float) -> None:
    assert number(reply) == value


@pytest.mark.parametrize(
    ("reply", "cause"),
    [
        ("", "empty reply"),
        (" \n\t", "empty reply"),
        ("NaN", "not finite"),
        ("-inf", "not finite"),
        ("1e999", "not finite"),
        ("yes", "not a number"),
        ("8/10", "not a number"),
        ("7 7", "not a number"),
        ("Score: 7", "not a number"),
        ("7,5", "not a number"),
        ("1_0", "not a number"),
        ("٧", "not a number"),
        ("0x10", "not a number"),
        ("7\x00", "not a number"),
    ],
)
def test_any_other_reply_names_its_cause(reply: str, cause: str) -> None:
    with pytest.raises(ModelError) as caught:
        number(reply)
    assert str(caught.value).startswith(f"{cause}: ")
    assert "\n" not in str(caught.value)


@given(st.text() | st.from_regex(r"[+-]?[0-9]*\.?[0-9]*([eE][+-]?[0-9]{1,4})?"))
@example("1" * 400)
def test_a_reply_is_a_finite_number_or_a_model_error(reply: str) -> None:
    try:
        value = number(reply)
    except ModelError as error:
        assert str(error).partition(":")[0] in CAUSES
    else:
        assert math.isfinite(value)
        assert float(reply) == value


# The wire


def test_a_pair_is_sent_as_query_and_document_at_temperature_zero() -> None:
    with serving(lambda *_: said("8")) as server:
        assert plain(reranker(server.url).score("where is it?", ["on the shelf"])) == [8.0]
        (body,) = server.bodies("/api/generate")
    assert body["prompt"] == "Query: where is it?\nDocument: on the shelf"
    assert body["model"] == "qwen3-reranker"
    assert body["options"]["temperature"] == 0
    assert body["stream"] is False
    assert "system" not in body


def test_an_instruction_is_the_system_text() -> None:
    with serving(lambda *_: said("8")) as server:
        reranker(server.url, instruction="retrieve facts").score("q", ["d"])
        assert server.bodies("/api/generate")[0]["system"] == "retrieve facts"


def test_scores_stand_in_the_order_of_the_texts_and_equal_texts_are_asked_once() -> None:
    with serving(by_document({str(i): said(str(i / 10)) for i in range(30)})) as server:
        texts = [str(i) for i in range(30)] + ["3", "3"]
        assert plain(reranker(server.url).score("q", texts)) == [i / 10 for i in range(30)] + [0.3, 0.3]
        assert len(server.asked) == 30


def test_nothing_to_score_asks_nothing() -> None:
    assert reranker(nobody()).score("q", []) == []


def test_text_that_no_json_can_carry_is_scored_all_the_same() -> None:
    with serving(lambda *_: said("1")) as server:
        assert plain(reranker(server.url).score("q \ud800", ["d \udfff", 'a "quoted"\x00\n'])) == [1.0, 1.0]


# What goes wrong


@pytest.mark.parametrize(
    ("reply", "cause"),
    [
        (said("yes"), "not a number"),
        (said("NaN"), "not finite"),
        (said(""), "empty reply"),
        (said("7.12345", done_reason="length"), "not a number"),
        (said(None), "bad reply"),
        (said(7.0), "bad reply"),
        (said(["7"]), "bad reply"),
        (sent({}), "bad reply"),
        (sent("7"), "bad reply"),
        (Reply(b""), "bad reply"),
        (Reply(b"\xff\xfe\x00"), "bad reply"),
        (Reply(b"[" * 100_000), "bad reply"),
        (Reply(b"not gzip", headers={"content-encoding": "gzip"}), "bad reply"),
        (HTML, "bad reply"),
        (TRUNCATED, "bad reply"),
        (CUT, "server error"),
        (SLAM, "server error"),
        (Reply(b"", 500), "server error"),
        (sent({"error": "out of memory"}, 500), "server error"),
        (Reply(HTML.body, 503), "server error"),
        (sent({"error": "slow down"}, 429), "rate limited"),
        (sent({"error": "slow down"}, 429, retry_after="3600"), "rate limited"),
        (sent({"error": "slow down"}, 429, retry_after="Wed, 21 Oct 2026 07:28:00 GMT"), "rate limited"),
        (sent({"error": "too long"}, 400), "refused"),
    ],
)
def test_a_pair_that_fails_is_flagged_and_the_others_keep_their_scores(reply: Reply, cause: str) -> None:
    replies: dict[str, Reply | list[Reply]] = {"a": said("9.5"), "bad": reply, "z": said("-1")}
    with serving(by_document(replies)) as server:
        scores = reranker(server.url, max_concurrent=1).score("q", ["a", "bad", "z"])
    assert plain(scores) == [9.5, cause, -1.0]
    assert len((scores[1].error or "").splitlines()) == 1
    assert len(scores[1].error or "") < 260


@pytest.mark.parametrize("reply", [HANG, DRIP], ids=["hangs", "drips for ever"])
def test_a_pair_that_takes_too_long_is_a_timeout_and_is_not_asked_again(reply: Reply) -> None:
    with serving(lambda *_: reply) as server:
        assert plain(reranker(server.url, timeout_s=0.15).score("q", ["slow", "slower"])) == ["timeout", "timeout"]
        assert len(server.asked) <= 2


@pytest.mark.parametrize("failure", [Reply(b"", 500), Reply(b"", 503), sent({}, 429), CUT, SLAM])
def test_what_may_pass_is_tried_again_with_growing_waits(failure: Reply) -> None:
    waits: list[float] = []
    with serving(by_document({"d": [failure, failure, said("4")]})) as server:
        assert plain(reranker(server.url, sleep=waits.append).score("q", ["d"])) == [4.0]
        assert len(server.asked) == 3
    assert waits == [0.25, 0.5]


def test_a_server_that_says_when_to_come_back_is_heard() -> None:
    waits: list[float] = []
    with serving(by_document({"d": [sent({}, 429, retry_after="2"), said("4")]})) as server:
        assert plain(reranker(server.url, sleep=waits.append).score("q", ["d"])) == [4.0]
    assert waits == [2.0]


@pytest.mark.parametrize(
    ("reply", "tries"), [(Reply(b"", 500), 3), (sent({}, 429, retry_after="3600"), 1), (sent({}, 400), 1), (HTML, 1)]
)
def test_a_failure_is_tried_as_often_as_that_may_help(reply: Reply, tries: int) -> None:
    with serving(lambda *_: reply) as server:
        reranker(server.url).score("q", ["d"])
        assert len(server.asked) == tries


def test_a_server_that_is_not_there_is_asked_for_one_pair_only() -> None:
    waits: list[float] = []
    scores = reranker(nobody(), max_concurrent=1, sleep=waits.append).score("q", [str(i) for i in range(50)])
    assert plain(scores) == ["refused"] * 50
    assert waits == [0.25, 0.5]
    assert "nothing answers" in (scores[0].error or "")
    assert "not asked" in (scores[49].error or "")


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_model_or_key_that_is_refused_is_not_asked_for_again(status: int) -> None:
    with serving(lambda *_: sent({"error": "model 'm' not found"}, status)) as server:
        scores = reranker(server.url, max_concurrent=1).score("q", ["a", "b", "c"])
        assert plain(scores) == ["refused"] * 3
        assert "model 'm' not found" in (scores[0].error or "")
        assert len(server.asked) == 1


def test_the_next_batch_asks_the_server_again() -> None:
    up: list[bool] = []
    with serving(lambda *_: said("5") if up else sent({"error": "not found"}, 404)) as server:
        asking = reranker(server.url, max_concurrent=1)
        assert plain(asking.score("q", ["a", "b"])) == ["refused", "refused"]
        up.append(True)
        assert plain(asking.score("q", ["a", "b"])) == [5.0, 5.0]


def test_no_more_pairs_are_under_way_than_allowed() -> None:
    lock, here, most, together = threading.Lock(), [0], [0], threading.Barrier(3)

    def answer(path: str, body: dict[str, Any], earlier: int) -> Reply:
        with lock:
            here[0] += 1
            most[0] = max(most[0], here[0])
        together.wait(20)  # goes on only once three are here
        with lock:
            here[0] -= 1
        return said("1")

    with serving(answer) as server:
        assert plain(reranker(server.url, max_concurrent=3).score("q", list("abcdefghi"))) == [1.0] * 9
    assert most[0] == 3


@pytest.mark.parametrize("url", ["", "ftp://host", "http://", "http://host:notaport", "http://user:secret@ho st"])
def test_a_url_that_is_none_is_a_model_error_without_its_secret(url: str) -> None:
    with pytest.raises(ModelError) as caught:
        reranker(url).score("q", ["d"])
    assert "secret" not in str(caught.value)


def test_a_model_that_is_not_set_is_a_model_error() -> None:
    with pytest.raises(ModelError, match="no reranker model is set"):
        OllamaReranker("http://localhost:11434", " ").score("q", ["d"])


def test_a_scheme_may_be_left_out_and_a_password_is_not_shown() -> None:
    assert OllamaReranker("localhost:11434/", "m").label == "m on Ollama at localhost:11434"
    assert OllamaReranker("http://user:secret@host:1", "m").label == "m on Ollama at host:1"


def test_scores_belong_to_model_revision_and_instruction_whatever_the_query_and_server() -> None:
    def key(url: str = "a", instruction: str = "i", revision: str = "", query: str = "q") -> str:
        return OllamaReranker(url, "m", instruction, revision=revision).cache_model(query)

    assert key() == key(url="b") == key(query="r")
    assert len({key(), key(instruction="j"), key(revision="sha256:1"), key(instruction="")}) == 4


def test_scoring_works_under_a_running_event_loop() -> None:
    async def notebook() -> list[PairScore]:
        return reranker(server.url).score("q", ["d"])

    # The test's own thread may have a running loop already: a browser's.
    with serving(lambda *_: said("3")) as server, ThreadPoolExecutor(1) as thread:
        assert plain(thread.submit(asyncio.run, notebook()).result()) == [3.0]


# Which models there are


def test_models_are_listed_by_name() -> None:
    found = {"models": [{"model": "z:latest", "digest": "2"}, {"model": "a:1b"}, {}]}
    with serving(lambda *_: sent(found)) as server:
        assert models(server.url, sleep=no_sleep) == ["a:1b", "z:latest"]
        assert installed(server.url, sleep=no_sleep) == {"z:latest": "2", "a:1b": ""}
        assert {path for path, _, _ in server.asked} == {"/api/tags"}


@pytest.mark.parametrize("reply", [HTML, sent([]), sent({"models": 3}), CUT])
def test_a_server_that_is_no_ollama_is_a_model_error(reply: Reply) -> None:
    with serving(lambda *_: reply) as server, pytest.raises(ModelError) as caught:
        models(server.url, sleep=no_sleep)
    assert server.url.removeprefix("http://") in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def embedding(*, length: int = 3, count: int | None = None) -> Answer:
    def answer(path: str, body: dict[str, Any], earlier: int) -> Reply:
        rows = [[float(len(text) + i) for i in range(length)] for text in body["input"]]
        return sent({"model": "m", "embeddings": rows if count is None else rows[:count]})

    return answer


def embedder(url: str, dimension: int | None = 3) -> OllamaEmbedder:
    return OllamaEmbedder(url, "minilm", dimension, timeout_s=20, sleep=no_sleep)


def test_vectors_have_length_one_and_stand_in_the_order_of_the_texts() -> None:
    with serving(embedding()) as server:
        vectors = embedder(server.url).encode(["abc", "a", "abc"])
    assert vectors.shape == (3, 3)
    assert vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1)
    assert np.allclose(vectors[0], np.array([3, 4, 5]) / math.sqrt(50))
    assert np.array_equal(vectors[0], vectors[2])


def test_the_dimension_is_asked_once_where_it_is_not_given() -> None:
    with serving(embedding(length=5)) as server:
        asking = embedder(server.url, dimension=None)
        assert (asking.dimension, asking.dimension) == (5, 5)
        assert len(server.asked) == 1
        assert asking.encode([]).shape == (0, 5)
        assert asking.encode_query("q").shape == (5,)


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (sent({"embeddings": [[1.0, "x", 3.0]]}), "bad reply"),
        (sent({"embeddings": [1.0, 2.0, 3.0]}), "bad reply"),
        (sent({"embedding": [1.0, 2.0, 3.0]}), "bad reply"),
        (sent({"error": "model 'minilm' not found"}, 404), "model 'minilm' not found"),
    ],
)
def test_vectors_that_cannot_be_used_are_one_line(reply: Reply, told: str) -> None:
    with serving(lambda *_: reply) as server, pytest.raises(ModelError) as caught:
        embedder(server.url).encode(["text"])
    assert told in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_an_embedder_without_a_server_is_a_model_error() -> None:
    with pytest.raises(ModelError, match="refused"):
        embedder(nobody()).encode(["text"])
    with pytest.raises(ModelError, match="no embedding model is set"):
        OllamaEmbedder("localhost:1", "").encode(["text"])


def test_the_embedder_is_named_by_model_and_revision() -> None:
    assert OllamaEmbedder("a", "m").model_id == "ollama:m"
    assert OllamaEmbedder("a", "m", revision="sha256:1").model_id == "ollama:m@sha256:1"


KEY = "sk-very-secret-1234"


def ollama(url: str, **more: Any) -> Chat:
    return OllamaChat(url, "qwen3", **{"timeout_s": 30.0, "sleep": no_sleep, **more})


def openai(url: str, **more: Any) -> Chat:
    return OpenAiChat(url, "gpt", KEY, **{"timeout_s": 30.0, "sleep": no_sleep, **more})


BOTH = pytest.mark.parametrize("chat", [ollama, openai])
Make = Callable[..., Chat]


def spoken(content: Any) -> Reply:
    """The content in both servers' wire formats at once."""
    message = {"role": "assistant", "content": content}
    return sent({"model": "m", "message": message, "done": True, "choices": [{"index": 0, "message": message}]})


@BOTH
def test_the_reply_is_handed_on_as_it_is(chat: Make) -> None:
    with serving(lambda *_: spoken(" forty-two\n")) as server:
        assert chat(server.url).ask("be brief", "what is it?") == " forty-two\n"
        _, body, _ = server.asked[0]
    assert body["messages"] == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "what is it?"},
    ]
    assert body["stream"] is False


def test_ollama_is_asked_at_temperature_zero_without_thinking_aloud() -> None:
    with serving(lambda *_: spoken("yes")) as server:
        ollama(server.url).ask("s", "u")
        path, body, _ = server.asked[0]
    assert (path, body["model"], body["think"], body["options"]) == ("/api/chat", "qwen3", False, {"temperature": 0})


@pytest.mark.parametrize(
    ("base", "path"),
    [("", "/v1/chat/completions"), ("/", "/v1/chat/completions"), ("/api/v1/", "/api/v1/chat/completions")],
)
def test_an_openai_server_is_asked_below_its_base_url_with_the_key(base: str, path: str) -> None:
    with serving(lambda *_: spoken("yes")) as server:
        openai(server.url + base).ask("s", "u")
        there, body, headers = server.asked[0]
    assert (there, body["model"], body["temperature"]) == (path, "gpt", 0)
    assert headers["authorization"] == f"Bearer {KEY}"


def test_without_a_key_none_is_sent() -> None:
    with serving(lambda *_: spoken("yes")) as server:
        OpenAiChat(server.url, "m", "  ").ask("s", "u")
        assert "authorization" not in server.asked[0][2]


@BOTH
@pytest.mark.parametrize(
    ("reply", "cause"),
    [
        (spoken(""), "empty reply"),
        (spoken(None), "empty reply"),
        (spoken(8), "bad reply"),
        (spoken(["yes"]), "bad reply"),
        (sent({}), "bad reply"),
        (sent({"choices": [], "message": None}), "bad reply"),
        (sent({"choices": [None], "message": []}), "bad reply"),
        (sent({"choices": {"0": 1}, "message": "yes"}), "bad reply"),
    ],
)
def test_a_reply_that_cannot_be_used_is_one_line_with_its_cause(chat: Make, reply: Reply, cause: str) -> None:
    with serving(lambda *_: reply) as server, pytest.raises(ModelError) as caught:
        chat(server.url).ask("s", "u")
    assert str(caught.value).startswith(f"{cause}: ")
    assert len(str(caught.value).splitlines()) == 1


def test_the_message_in_an_error_reply_is_passed_on() -> None:
    echo = sent({"error": {"message": "no such\nmodel", "code": 3}}, 404)
    with serving(lambda *_: echo) as server, pytest.raises(ModelError, match="HTTP 404: no such model"):
        openai(server.url).ask("s", "u")


def test_a_page_of_html_is_not_quoted() -> None:
    with serving(lambda *_: Reply(HTML.body, 400)) as server, pytest.raises(ModelError, match="a page of HTML"):
        openai(server.url).ask("s", "u")


def test_a_key_stands_in_no_message_label_or_identity() -> None:
    echo = sent({"error": {"message": f"Incorrect API key provided: {KEY}"}}, 401)
    with serving(lambda *_: echo) as server, pytest.raises(ModelError, match=r"provided: \*\*\*") as caught:
        openai(server.url).ask("s", "u")
    chat = openai(f"http://user:{KEY}@host/v1")
    assert all(KEY not in text for text in (str(caught.value), chat.label, chat.model_id, repr(chat)))


def test_a_model_that_is_not_set_is_a_model_error_in_chat() -> None:
    with pytest.raises(ModelError, match="no chat model is set"):
        OllamaChat("localhost:1", "").ask("s", "u")
    with pytest.raises(ModelError, match="no chat model is set"):
        OpenAiChat("localhost:1", " ").ask("s", "u")


def test_labels_and_identities() -> None:
    assert OllamaChat("localhost:11434", "qwen3").label == "qwen3 on Ollama at localhost:11434"
    assert OllamaChat("localhost:11434", "qwen3", revision="sha256:1").model_id == "ollama:qwen3@sha256:1"
    assert OpenAiChat("https://host/api/v1/", "gpt").label == "gpt at host/api/v1"
    assert OpenAiChat("https://host/api/v1/", "gpt").model_id == "openai:host/api/v1:gpt"
