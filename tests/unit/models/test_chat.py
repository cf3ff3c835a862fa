"""Asking a chat model, on Ollama and on an OpenAI-compatible server: the wire, and everything that can go wrong on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from model_server import CUT, DRIP, HANG, HTML, SLAM, TRUNCATED, Answer, Reply, no_sleep, nobody, sent, serving

from cems_workbench.errors import ModelError
from cems_workbench.models.chat import Chat, OllamaChat, OpenAiChat

KEY = "sk-very-secret-1234"


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")


def ollama(url: str, **more: Any) -> Chat:
    return OllamaChat(url, "qwen3", **{"timeout_s": 30.0, "sleep": no_sleep, **more})


def openai(url: str, **more: Any) -> Chat:
    return OpenAiChat(url, "gpt", KEY, **{"timeout_s": 30.0, "sleep": no_sleep, **more})


BOTH = pytest.mark.parametrize("chat", [ollama, openai])
Make = Callable[..., Chat]


def said(content: Any) -> Reply:
    """The content in both servers' wire formats at once."""
    message = {"role": "assistant", "content": content}
    return sent({"model": "m", "message": message, "done": True, "choices": [{"index": 0, "message": message}]})


def in_turn(*replies: Reply) -> Answer:
    return lambda path, body, earlier: replies[min(earlier, len(replies) - 1)]


@BOTH
def test_the_reply_is_handed_on_as_it_is(chat: Make) -> None:
    with serving(lambda *_: said(" forty-two\n")) as server:
        assert chat(server.url).ask("be brief", "what is it?") == " forty-two\n"
        _, body, _ = server.asked[0]
    assert body["messages"] == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "what is it?"},
    ]
    assert body["stream"] is False


@BOTH
def test_text_that_no_json_can_carry_is_asked_all_the_same(chat: Make) -> None:
    with serving(lambda *_: said("yes")) as server:
        assert chat(server.url).ask("\udc00", 'a "quoted" \ud800\x00') == "yes"


def test_ollama_is_asked_at_temperature_zero_without_thinking_aloud() -> None:
    with serving(lambda *_: said("yes")) as server:
        ollama(server.url).ask("s", "u")
        path, body, _ = server.asked[0]
    assert (path, body["model"], body["think"], body["options"]) == ("/api/chat", "qwen3", False, {"temperature": 0})


@pytest.mark.parametrize(
    ("base", "path"),
    [("", "/v1/chat/completions"), ("/", "/v1/chat/completions"), ("/api/v1/", "/api/v1/chat/completions")],
)
def test_an_openai_server_is_asked_below_its_base_url_with_the_key(base: str, path: str) -> None:
    with serving(lambda *_: said("yes")) as server:
        openai(server.url + base).ask("s", "u")
        there, body, headers = server.asked[0]
    assert (there, body["model"], body["temperature"]) == (path, "gpt", 0)
    assert headers["authorization"] == f"Bearer {KEY}"


def test_without_a_key_none_is_sent() -> None:
    with serving(lambda *_: said("yes")) as server:
        OpenAiChat(server.url, "m", "  ").ask("s", "u")
        assert "authorization" not in server.asked[0][2]


def test_text_in_parts_is_joined() -> None:
    parts = [{"type": "text", "text": "forty-"}, {"type": "image"}, {"type": "text", "text": "two"}]
    with serving(lambda *_: said(parts)) as server:
        assert openai(server.url).ask("s", "u") == "forty-two"


@BOTH
@pytest.mark.parametrize(
    ("reply", "cause"),
    [
        (said(""), "empty reply"),
        (said(" \n"), "empty reply"),
        (said(None), "empty reply"),
        (said(8), "bad reply"),
        (said({"text": "yes"}), "bad reply"),
        (said(["yes"]), "bad reply"),
        (sent({}), "bad reply"),
        (sent([]), "bad reply"),
        (sent("yes"), "bad reply"),
        (sent({"choices": [], "message": None}), "bad reply"),
        (sent({"choices": [None], "message": []}), "bad reply"),
        (sent({"choices": {"0": 1}, "message": "yes"}), "bad reply"),
        (Reply(b""), "bad reply"),
        (Reply(b"\xff\xfe"), "bad reply"),
        (Reply(b"[" * 100_000), "bad reply"),
        (HTML, "bad reply"),
        (TRUNCATED, "bad reply"),
        (CUT, "server error"),
        (SLAM, "server error"),
        (Reply(b"", 500), "server error"),
        (Reply(HTML.body, 502), "server error"),
        (sent([], 503), "server error"),
        (sent({"error": {"message": "slow down"}}, 429), "rate limited"),
        (sent({"error": {"message": "no such model"}}, 404), "refused"),
        (sent({"detail": "too long"}, 400), "refused"),
    ],
)
def test_a_reply_that_cannot_be_used_is_one_line_with_its_cause(chat: Make, reply: Reply, cause: str) -> None:
    with serving(lambda *_: reply) as server, pytest.raises(ModelError) as caught:
        chat(server.url).ask("s", "u")
    assert str(caught.value).startswith(f"{cause}: ")
    assert len(str(caught.value).splitlines()) == 1


@BOTH
@pytest.mark.parametrize("reply", [HANG, DRIP], ids=["hangs", "drips for ever"])
def test_a_reply_that_does_not_end_is_given_up(chat: Make, reply: Reply) -> None:
    with serving(lambda *_: reply) as server, pytest.raises(ModelError, match="timeout"):
        chat(server.url, timeout_s=0.15).ask("s", "u")


@BOTH
def test_a_failure_that_passes_is_not_noticed(chat: Make) -> None:
    waits: list[float] = []
    with serving(in_turn(Reply(b"", 500), SLAM, said("yes"))) as server:
        assert chat(server.url, sleep=waits.append).ask("s", "u") == "yes"
    assert waits == [0.25, 0.5]


@BOTH
def test_a_server_that_is_not_there_is_named(chat: Make) -> None:
    url = nobody()
    with pytest.raises(ModelError, match="refused") as caught:
        chat(url).ask("s", "u")
    assert url.removeprefix("http://") in str(caught.value)


def test_the_message_in_an_error_reply_is_passed_on() -> None:
    echo = sent({"error": {"message": "no such\nmodel", "code": 3}}, 404)
    with serving(lambda *_: echo) as server, pytest.raises(ModelError, match="HTTP 404: no such model"):
        openai(server.url).ask("s", "u")


def test_a_page_of_html_is_not_quoted() -> None:
    with serving(lambda *_: Reply(HTML.body, 400)) as server, pytest.raises(ModelError, match="a page of HTML"):
        openai(server.url).ask("s", "u")


def test_a_redirect_is_not_followed_with_the_key() -> None:
    with serving(lambda *_: said("yes")) as other:
        away = Reply(b"", 302, {"location": f"{other.url}/v1/chat/completions"})
        with (
            serving(lambda *_: away) as server,
            pytest.raises(ModelError, match=r"sends to another host, .*: not followed"),
        ):
            openai(server.url).ask("s", "u")
        assert not other.asked


def test_a_key_stands_in_no_message_label_or_identity() -> None:
    echo = sent({"error": {"message": f"Incorrect API key provided: {KEY}"}}, 401)
    with serving(lambda *_: echo) as server, pytest.raises(ModelError, match=r"provided: \*\*\*") as caught:
        openai(server.url).ask("s", "u")
    chat = openai(f"http://user:{KEY}@host/v1")
    assert all(KEY not in text for text in (str(caught.value), chat.label, chat.model_id, repr(chat)))


@pytest.mark.parametrize("key", ["schlüssel", "two\nlines"])
def test_a_key_that_no_header_can_carry_is_a_model_error_without_it(key: str) -> None:
    with pytest.raises(ModelError) as caught:
        OpenAiChat("http://localhost:1", "m", key).ask("s", "u")
    assert key not in str(caught.value)


def test_a_model_that_is_not_set_is_a_model_error() -> None:
    with pytest.raises(ModelError, match="no chat model is set"):
        OllamaChat("localhost:1", "").ask("s", "u")
    with pytest.raises(ModelError, match="no chat model is set"):
        OpenAiChat("localhost:1", " ").ask("s", "u")


@BOTH
def test_a_url_that_is_none_is_a_model_error(chat: Make) -> None:
    with pytest.raises(ModelError, match="not the URL of a server"):
        chat("ftp://host").ask("s", "u")


def test_labels_and_identities() -> None:
    assert OllamaChat("localhost:11434", "qwen3").label == "qwen3 on Ollama at localhost:11434"
    assert OllamaChat("localhost:11434", "qwen3", revision="sha256:1").model_id == "ollama:qwen3@sha256:1"
    assert OpenAiChat("https://host/api/v1/", "gpt").label == "gpt at host/api/v1"
    assert OpenAiChat("https://host/api/v1/", "gpt").model_id == "openai:host/api/v1:gpt"
