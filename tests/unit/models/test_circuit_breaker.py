"""A server that is away is found out once, not once a query; one that comes back is asked again."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from model_server import no_sleep, nobody

from cems_workbench.models import ollama
from cems_workbench.models.chat import OllamaChat
from cems_workbench.models.http import MAX_PAUSE_S, MIN_PAUSE_S, PAUSE_FACTOR, CircuitBreaker, ModelServer
from cems_workbench.models.llama_server import LlamaServerReranker
from cems_workbench.models.ollama import OllamaReranker, digest
from cems_workbench.models.protocol import PairScorer

if TYPE_CHECKING:
    from ollama import AsyncClient

AWAY = "nothing answers at this address"


class Clock:
    """A time that passes only when it is told to."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> CircuitBreaker:
    return CircuitBreaker(clock)


def test_nothing_is_known_of_a_server_at_first(breaker: CircuitBreaker) -> None:
    assert breaker.refusal("a") is None and not breaker.is_open("a")


def test_a_server_that_failed_is_not_asked_until_it_is_time(breaker: CircuitBreaker, clock: Clock) -> None:
    breaker.failed("a", AWAY, 0.01)
    assert breaker.refusal("a") == f"not asked, since {AWAY}"
    assert breaker.refusal("b") is None
    clock.now += MIN_PAUSE_S
    assert breaker.refusal("a") is None and breaker.is_open("a")


def test_what_took_long_to_find_out_is_looked_into_less_often(breaker: CircuitBreaker, clock: Clock) -> None:
    breaker.failed("slow", AWAY, 0.5)
    breaker.failed("slower", AWAY, 5.0)
    clock.now += PAUSE_FACTOR * 0.5
    assert breaker.refusal("slow") is None and breaker.refusal("slower") is not None
    clock.now += MAX_PAUSE_S
    assert breaker.refusal("slower") is None


def test_an_answer_ends_the_matter(breaker: CircuitBreaker, clock: Clock) -> None:
    breaker.failed("a", AWAY, 0.0)
    breaker.answered("a")
    assert breaker.refusal("a") is None and not breaker.is_open("a")


@pytest.mark.parametrize("comes_back", [True, False])
def test_one_probes_and_the_others_wait_for_what_it_finds(breaker, clock, comes_back):
    breaker.failed("a", AWAY, 0.0)
    clock.now += MIN_PAUSE_S
    assert breaker.refusal("a") is None  # this one probes
    said: list[str | None] = []
    others = [threading.Thread(target=lambda: said.append(breaker.refusal("a"))) for _ in range(3)]
    for other in others:
        other.start()
    assert all(other.is_alive() for other in others)
    if comes_back:
        breaker.answered("a")
    else:
        breaker.failed("a", AWAY, 0.0)
    for other in others:
        other.join(5)
    assert said == [None if comes_back else f"not asked, since {AWAY}"] * 3


@pytest.fixture
def sleeping_server() -> Iterator[tuple[str, Callable[[], None]]]:
    """A URL that refuses connections until the function is called; from then on Ollama and llama.cpp answer 7 and yes there."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer({"status": "ok", "data": []})

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            choice = {"message": {"content": "yes"}}
            self.answer({"response": "7", "choices": [choice], "message": {"role": "assistant", "content": "hello"}})

        def answer(self, values: dict[str, Any]) -> None:
            body = json.dumps(values).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler, bind_and_activate=False)
    http.daemon_threads = True
    http.server_bind()
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    def wake() -> None:
        http.server_activate()
        thread.start()

    yield f"http://127.0.0.1:{http.server_address[1]}", wake
    if thread.is_alive():
        http.shutdown()
    http.server_close()


def over_ollama(url: str, breaker: CircuitBreaker) -> PairScorer:
    return OllamaReranker(url, "m", sleep=no_sleep, breaker=breaker)


def over_llama_cpp(url: str, breaker: CircuitBreaker) -> PairScorer:
    return LlamaServerReranker(url, "m", sleep=no_sleep, breaker=breaker)


@pytest.mark.parametrize("make", [over_ollama, over_llama_cpp])
def test_a_server_that_comes_back_scores_every_text_of_the_next_batch(make, sleeping_server, breaker, clock):
    url, wake = sleeping_server
    texts = [f"text {number}" for number in range(12)]
    assert all(pair.raw is None for pair in make(url, breaker).score("q", texts))
    wake()
    early = make(url, breaker).score("q", texts)  # another scorer, as every query makes its own
    assert {pair.error is not None and pair.error.startswith("refused: not asked, since") for pair in early} == {True}
    clock.now += MAX_PAUSE_S
    back = make(url, breaker).score("q", texts)
    assert [pair.error for pair in back] == [None] * len(texts)
    assert not breaker.refusal(url)


def test_a_hundred_queries_try_a_dead_server_as_often_as_one(breaker, monkeypatch):
    url = nobody()
    opened: list[str] = []
    real = ollama.open_client

    def counted(server: ModelServer) -> AsyncClient:
        opened.append(server.url)
        return real(server)

    monkeypatch.setattr(ollama, "open_client", counted)

    def query(number: int) -> None:
        try:
            digest(url, "m", sleep=no_sleep, breaker=breaker)
        except Exception as error:
            assert AWAY in str(error)
        scorer = OllamaReranker(url, "m", max_concurrent=4, sleep=no_sleep, breaker=breaker)
        assert all(pair.error and AWAY in pair.error for pair in scorer.score(f"q{number}", ["a", "b", "c", "d"]))

    query(0)
    first = len(opened)
    for number in range(1, 100):
        query(number)
    assert 0 < first == len(opened)


def test_a_chat_model_on_a_dead_server_is_asked_once(breaker: CircuitBreaker) -> None:
    url = nobody()
    waits: list[float] = []
    chat = OllamaChat(url, "m", sleep=waits.append, breaker=breaker)
    for _ in range(5):
        with pytest.raises(Exception, match=AWAY):
            chat.ask("s", "u")
    assert len(waits) == 2  # between the three tries of the first question
