"""The llama.cpp reranker against a server that misbehaves in every way."""

from __future__ import annotations

import math
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from faulty_server import GOOD, HEAD, FaultyServer, Handler, hangs

from cems_workbench.errors import ModelError
from cems_workbench.models import llama_server
from cems_workbench.models.llama_server import LlamaServerReranker
from cems_workbench.models.protocol import CAUSES


@pytest.fixture(scope="module", autouse=True)
def _no_proxy() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "127.0.0.1")
        yield


def running() -> Iterator[FaultyServer]:
    server = FaultyServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield server
    server.closing.set()
    server.shutdown()
    server.server_close()
    thread.join(timeout=10)


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    yield from running()


class Waits(list[float]):
    """A `sleep` that returns at once and remembers how long it should have been."""

    def __call__(self, seconds: float) -> None:
        self.append(seconds)


def scorer(server: FaultyServer | str, **options: Any) -> LlamaServerReranker:
    url = server if isinstance(server, str) else server.url
    return LlamaServerReranker(url, **{"timeout_s": 20, "sleep": Waits(), **options})


# (behaviour, the cause that its pair is flagged with, what the flag says, how often it is asked)
FAULTS = [
    ("500", "server error", "HTTP 500: out of slots", 3),
    ("500-html", "server error", "HTTP 502", 3),
    ("400", "refused", "HTTP 400: exceeds the context size", 1),
    ("429", "rate limited", "HTTP 429", 3),
    ("429-hour", "rate limited", "asks to wait 3600 s (HTTP 429", 1),
    ("cut-json", "bad reply", "not the JSON that was expected", 1),
    ("cut-connection", "server error", "the connection broke before the reply was complete", 3),
    ("no-reply", "server error", "the connection broke before the reply was complete", 3),
    ("html", "bad reply", "not the JSON that was expected", 1),
    ("not-text", "bad reply", "not the JSON that was expected", 1),
    ("bad-gzip", "bad reply", "", 1),
    ("deep", "bad reply", "not the JSON that was expected", 1),
    ("long", "bad reply", "", 1),
    ("blank", "bad reply", "not the JSON that was expected", 1),
    ("nan", "not finite", "the logprob of 'yes' is nan", 1),
    ("words", "not a number", "the logprob of 'yes' is high", 1),
    ("no-choices", "empty reply", "no choices", 1),
    ("shape", "bad reply", "choices is not a list in {'results': ", 1),
    ("moved", "bad reply", "", 1),
    ("hang", "timeout", "", 1),
    ("drip", "timeout", "", 1),
    ("drip-head", "timeout", "", 1),
]
RECOVERED = ["500-twice", "429-once"]
FINE = [f"good {number}" for number in range(6)]


class Batch:
    """One call over every fault, with good pairs between them."""

    def __init__(self, server: FaultyServer) -> None:
        faults = [name for name, *_ in FAULTS]
        texts = [FINE[0], *RECOVERED, *faults[:9], FINE[1], *faults[9:], *FINE[2:]]
        self.waits = Waits()
        scored = scorer(server, timeout_s=2, max_concurrent=len(texts), sleep=self.waits).score("q", texts)
        self.scored = dict(zip(texts, scored, strict=True))
        self.asked = server.asked


@pytest.fixture(scope="module")
def batch() -> Iterator[Batch]:
    for server in running():
        yield Batch(server)


def test_a_pair_that_fails_is_flagged_with_its_cause(batch: Batch, subtests: pytest.Subtests) -> None:
    for fault, cause, said, asked in FAULTS:
        with subtests.test(fault=fault):
            flagged = batch.scored[fault]
            assert flagged.raw is None
            assert flagged.error is not None and flagged.error.startswith(f"{cause}: ") and said in flagged.error
            assert cause in CAUSES and "\n" not in flagged.error
            assert flagged.detail is not None and flagged.detail["seconds"] >= 0
            assert batch.asked[fault] == asked


def test_good_pairs_beside_failing_ones_keep_their_scores(batch: Batch, subtests: pytest.Subtests) -> None:
    for text in FINE:
        with subtests.test(text=text):
            scored = batch.scored[text]
            assert scored.raw == pytest.approx(GOOD) and scored.error is None
            assert (
                scored.detail is not None and scored.detail["outcome"] == "yes and no" and scored.detail["seconds"] > 0
            )


def test_a_passing_failure_is_tried_again(batch: Batch, subtests: pytest.Subtests) -> None:
    for text in RECOVERED:
        with subtests.test(text=text):
            assert batch.scored[text].raw == pytest.approx(GOOD)


def test_the_waits_grow_and_follow_retry_after(batch: Batch) -> None:
    """Five pairs fail three times, 500-twice fails twice, 429-once is told to wait 7 s."""
    tried_thrice = sum(asked == 3 for *_, asked in FAULTS) + 1
    assert Counter(batch.waits) == {0.25: tried_thrice, 0.5: tried_thrice, 7.0: 1}


# Batches


def test_texts_come_back_in_order_and_equal_ones_are_asked_once(server: FaultyServer) -> None:
    scored = scorer(server).score("q", ["good a", "unsure", "good a", "400", "unsure", "good b"])
    assert [pair.raw for pair in scored] == [
        pytest.approx(GOOD),
        None,
        pytest.approx(GOOD),
        None,
        None,
        pytest.approx(GOOD),
    ]
    assert server.asked == {"good a": 1, "unsure": 1, "400": 1, "good b": 1}


def test_no_text_asks_nothing() -> None:
    assert scorer("http://127.0.0.1:9").score("q", []) == []


def test_as_many_requests_are_open_as_allowed_and_no_more(server: FaultyServer) -> None:
    """The server answers only in threes, so fewer than three at once would never end."""
    scored = scorer(server, max_concurrent=3).score("q", [f"together {number}" for number in range(9)])
    assert all(pair.raw == pytest.approx(GOOD) for pair in scored)
    assert server.open_most == 3


def test_a_server_that_refuses_connections_is_given_up_after_one_pairs_retries() -> None:
    waits = Waits()
    with socket.socket() as bound:  # bound, but not listening: every connection is refused
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        scored = scorer(url, max_concurrent=1, sleep=waits).score("q", [f"text {number}" for number in range(30)])
    assert [str(pair.error).split(": ")[0] for pair in scored] == ["refused"] * 30
    assert str(scored[0].error).startswith(f"refused: {url}: nothing answers at this address")
    assert str(scored[29].error).startswith(f"refused: not asked, since refused: {url}: nothing answers")
    assert waits == [0.25, 0.5]


def test_a_server_that_dies_within_a_batch_leaves_what_it_said_before(server: FaultyServer) -> None:
    texts = ["good a", "good b", "dies", "good c", "good d"]
    scored = scorer(server, max_concurrent=1).score("q", texts)
    assert [pair.raw for pair in scored] == [pytest.approx(GOOD), pytest.approx(GOOD), None, None, None]
    assert [str(pair.error).split(": ")[0] for pair in scored[2:]] == ["refused"] * 3


def test_the_next_call_asks_again(server: FaultyServer) -> None:
    model = scorer(server, max_concurrent=1)
    assert model.score("q", ["500", "good"])[1].raw == pytest.approx(GOOD)
    assert model.score("q", ["good"])[0].raw == pytest.approx(GOOD)
    assert server.asked["good"] == 2


def test_a_bug_is_not_taken_for_a_failing_pair(server: FaultyServer) -> None:
    def broken(seconds: float) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        scorer(server, sleep=broken).score("q", ["good", "500"])


def test_it_works_in_a_thread_that_has_no_event_loop(server: FaultyServer) -> None:
    with ThreadPoolExecutor(1) as thread:
        scored = thread.submit(scorer(server).score, "q", ["good"]).result(timeout=60)
    assert scored[0].raw == pytest.approx(GOOD)


def test_the_prompt_and_the_settings_of_a_request(server: FaultyServer) -> None:
    scorer(server, model="qwen3-reranker", instruction="find it").score("who\n?", ["good \ud800 é"])
    scorer(server).score("who?", ["good"])
    named, unnamed = server.requests
    system, user = named.pop("messages")
    assert system == {
        "role": "system",
        "content": "Judge whether the Document meets the requirements based on the Query and the Instruct provided. "
        'Note that the answer can only be "yes" or "no".',
    }
    assert user == {"role": "user", "content": "<Instruct>: find it\n<Query>: who\n?\n<Document>: good ? é"}
    settings = {"max_tokens": 1, "temperature": 0, "logprobs": True, "top_logprobs": 20}
    assert named == {**settings, "model": "qwen3-reranker"}
    assert "model" not in unnamed
    assert unnamed["messages"][1]["content"].startswith(
        "<Instruct>: Given a query, retrieve relevant facts that answer the query\n<Query>: who?\n"
    )


# Who is asked


def serving(server: FaultyServer, **pages: Any) -> None:
    """Answer GET /health and /v1/models with these replies, a missing one with 404."""

    def get(handler: Handler) -> None:
        page = handler.path.split("/")[-1]
        handler.send_json(*pages[page]) if page in pages else handler.send_json({"error": "no such page"}, 404)

    server.get = get


def test_health_is_one_line_that_names_the_model(server: FaultyServer) -> None:
    serving(server, health=({"status": "ok"},), models=({"data": [{"id": "/models/qwen3-reranker.gguf"}]},))
    assert scorer(server).health() == f"llama.cpp server at {server.url}: ok, serves qwen3-reranker.gguf"
    assert scorer(server, model="mine").health() == f"llama.cpp server at {server.url}: ok, serves mine"


def test_health_while_the_model_loads(server: FaultyServer) -> None:
    serving(server, health=({"error": {"code": 503, "message": "Loading model"}}, 503))
    with pytest.raises(
        ModelError, match=r"No llama.cpp server answers at .*: server error: .*HTTP 503: Loading model$"
    ):
        scorer(server).health()


def test_health_of_something_else(server: FaultyServer) -> None:
    serving(server, health=(["fine"],))
    with pytest.raises(ModelError, match=r"does not say that a llama.cpp server is ready: \['fine'\]"):
        scorer(server).health()
    server.get = lambda handler: handler.send(200, b"<html>", "text/html")
    with pytest.raises(ModelError, match=r"bad reply: .*not the JSON that was expected"):
        scorer(server).health()


def test_health_of_a_server_that_hangs_drips_or_refuses(server: FaultyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama_server, "HEALTH_TIMEOUT_S", 0.3)
    server.get = hangs
    with pytest.raises(ModelError, match=r"timeout: "):
        scorer(server).health()
    server.get = lambda handler: handler.drip(HEAD + b"\r\n{")
    with pytest.raises(ModelError, match=r"timeout: "):
        scorer(server).health()
    monkeypatch.setattr(llama_server, "HEALTH_TIMEOUT_S", 5.0)
    with socket.socket() as bound, pytest.raises(ModelError, match=r"refused: "):
        bound.bind(("127.0.0.1", 0))
        scorer(f"http://127.0.0.1:{bound.getsockname()[1]}").health()


def test_the_cache_names_model_prompt_and_instruction(server: FaultyServer) -> None:
    serving(server, models=({"data": [{"id": "qwen3.gguf"}, {"id": "other"}]},))
    reported = scorer(server).cache_model("q")
    prefix, model, prompt, digest = reported.split(":")
    assert (prefix, model, prompt, len(digest)) == ("llama_server", "qwen3.gguf", "qwen3-reranker/1", 16)
    assert scorer(server).cache_model("another query") == reported
    assert scorer(server, instruction="find it").cache_model("q") != reported
    assert scorer(server, model="mine").cache_model("q") == f"llama_server:mine:qwen3-reranker/1:{digest}"


@pytest.mark.parametrize("reply", [{"data": []}, {"data": [{"id": None}]}, {"data": {"id": 1}}, [], {"data": [5]}])
def test_the_cache_names_the_url_of_a_server_that_names_no_model(server: FaultyServer, reply: Any) -> None:
    serving(server, models=(reply,))
    assert scorer(server).cache_model("q").startswith(f"llama_server:{server.url}:qwen3-reranker/1:")


def test_a_password_in_the_url_is_shown_nowhere() -> None:
    model = scorer("http://me:secret@127.0.0.1:9/base/", timeout_s=5)
    assert "secret" not in model.label + model.cache_model("q") + str(model.score("q", ["text"])[0].error)
    assert model.label == "the model on the llama.cpp server at http://127.0.0.1:9/base"


@pytest.mark.parametrize("url", ["", "localhost:8080", "ftp://localhost", "http://", "http://a:b", "8080"])
def test_a_url_that_is_none_is_an_error_at_once(url: str) -> None:
    with pytest.raises(ModelError, match=r"URL"):
        LlamaServerReranker(url)


@pytest.mark.parametrize("options", [{"timeout_s": 0}, {"timeout_s": math.nan}, {"max_concurrent": 0}])
def test_limits_that_would_wait_for_ever_are_an_error_at_once(options: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match=r"timeout_s must be above 0 and max_concurrent at least 1"):
        LlamaServerReranker("http://localhost:8080", **options)
