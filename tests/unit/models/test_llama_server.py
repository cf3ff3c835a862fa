"""The yes/no formula against hand-computed numbers, and the reranker against a server that misbehaves in every way."""

from __future__ import annotations

import json
import math
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cems_workbench.errors import ModelError
from cems_workbench.models import llama_server
from cems_workbench.models.llama_server import LlamaServerReranker
from cems_workbench.models.protocol import CAUSES, PairScore
from cems_workbench.models.yes_no_reply import one_line, score_of_reply

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


# The formula


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
        (said(("maybe", -0.1), ("perhaps", -2.0)), 0.5, "uncertain"),
        (said(("yesterday", -0.1), ("now", -2.0)), 0.5, "uncertain"),
        (written("yes"), 1.0, "text prefix"),
        (written(" Yes, it does"), 1.0, "text prefix"),
        (written("No."), 0.0, "text prefix"),
        (written("perhaps"), 0.5, "uncertain"),
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
    assert one_line(deep).startswith("[[[")
    assert one_line(" a\n b ") == "a b"
    assert len(one_line("x" * 1000)) == 120


# A server that misbehaves as the document asks


class Handler(BaseHTTPRequestHandler):
    """Answers as the text after `<Document>: ` says: the behaviour is its first word."""

    server: FaultyServer

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        document = request["messages"][1]["content"].split("<Document>: ")[1]
        with self.server.lock:
            self.server.requests.append(request)
            self.server.asked[document] += 1
            tries = self.server.asked[document]
        BEHAVIOURS[document.split()[0]](self, tries)

    def do_GET(self) -> None:
        self.server.get(self)

    def send(self, status: int, body: bytes, content_type: str = "application/json", **headers: object) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        for name, value in {"Content_Length": len(body), **headers}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        self.wfile.write(body)

    def send_json(self, reply: Any, status: int = 200, **headers: object) -> None:
        self.send(status, json.dumps(reply).encode(), **headers)

    def drip(self, head: bytes) -> None:
        """One byte every hundredth of a second, for longer than any test waits."""
        try:
            self.wfile.write(head)
            while not self.server.closing.wait(0.01):
                self.wfile.write(b"x")
        except OSError:
            pass

    def log_message(self, *arguments: object) -> None:
        pass


class FaultyServer(ThreadingHTTPServer):
    """Counts how often each document was asked and how many requests were open at once."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 50

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock = threading.Lock()
        self.requests: list[dict[str, Any]] = []
        self.asked: Counter[str] = Counter()
        self.closing = threading.Event()
        self.crowd = threading.Barrier(3)
        self.open_now = 0
        self.open_most = 0
        self.get: Callable[[Handler], None] = lambda handler: handler.send_json({"error": "no such page"}, 404)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that gave up is what some tests want."""


def good(handler: Handler, tries: int) -> None:
    handler.send_json(said(("yes", -0.1), ("no", -2.5)))


def together(handler: Handler, tries: int) -> None:
    """Answers only once three requests are open."""
    server = handler.server
    with server.lock:
        server.open_now += 1
        server.open_most = max(server.open_most, server.open_now)
    server.crowd.wait(timeout=20)
    with server.lock:
        server.open_now -= 1
    good(handler, tries)


def hangs(handler: Handler) -> None:
    handler.server.closing.wait()


def dies(handler: Handler, tries: int) -> None:
    """The whole server, without a reply."""
    handler.server.shutdown()
    handler.server.server_close()


BROKEN = {"error": {"code": 500, "message": "out of\nslots", "type": "server_error"}}
FULL = json.dumps(said(("yes", -0.1), ("no", -2.5))).encode()
HEAD = b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n"

BEHAVIOURS: dict[str, Callable[[Handler, int], None]] = {
    "good": good,
    "unsure": lambda handler, tries: handler.send_json(said(("maybe", -0.1))),
    "together": together,
    "dies": dies,
    "500": lambda handler, tries: handler.send_json(BROKEN, 500),
    "500-html": lambda handler, tries: handler.send(502, b"<h1>Bad Gateway</h1>", "text/html"),
    "500-twice": lambda handler, tries: handler.send_json(BROKEN, 500) if tries < 3 else good(handler, tries),
    "400": lambda handler, tries: handler.send_json({"error": {"message": "exceeds the context size"}}, 400),
    "429": lambda handler, tries: handler.send_json({}, 429),
    "429-once": lambda handler, tries: handler.send_json({}, 429, Retry_After=7) if tries < 2 else good(handler, tries),
    "429-hour": lambda handler, tries: handler.send_json({}, 429, Retry_After=3600),
    "cut-json": lambda handler, tries: handler.send(200, FULL[:40]),
    "cut-connection": lambda handler, tries: handler.send(200, FULL, Content_Length=len(FULL) + 9),
    "no-reply": lambda handler, tries: None,
    "html": lambda handler, tries: handler.send(200, b"<html>\n<title>Login</title></html>", "text/html"),
    "not-text": lambda handler, tries: handler.send(200, b"\xff\xfe\x00"),
    "bad-gzip": lambda handler, tries: handler.send(200, b"plain", Content_Encoding="gzip"),
    "deep": lambda handler, tries: handler.send(200, b"[" * 100_000),
    "long": lambda handler, tries: handler.send(200, b" " * 2_000_000),
    "blank": lambda handler, tries: handler.send(200, b""),
    "nan": lambda handler, tries: handler.send_json(said(("yes", math.nan), ("no", -1.0))),
    "words": lambda handler, tries: handler.send_json(said(("yes", "high"), ("no", -1.0))),
    "no-choices": lambda handler, tries: handler.send_json({"choices": []}),
    "shape": lambda handler, tries: handler.send_json({"results": [{"relevance_score": 0.7}]}),
    "moved": lambda handler, tries: handler.send(302, b"", Location="http://127.0.0.1:9/"),
    "hang": lambda handler, tries: hangs(handler),
    "drip": lambda handler, tries: handler.drip(HEAD + b"\r\n{"),
    "drip-head": lambda handler, tries: handler.drip(HEAD + b"X-Slow: "),
}


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

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


def scorer(server: FaultyServer | str, **options: Any) -> LlamaServerReranker:
    url = server if isinstance(server, str) else server.url
    return LlamaServerReranker(url, **{"timeout_s": 20, "sleep": Waits(), **options})


# (behaviour, what its pair is flagged with, how often it is asked)
FAULTS = [
    ("500", "server error: HTTP 500: out of slots", 3),
    ("500-html", "server error: HTTP 502: <h1>Bad Gateway</h1>", 3),
    ("400", "bad reply: HTTP 400: exceeds the context size", 1),
    ("429", "rate limited: HTTP 429: {}", 3),
    ("429-hour", "rate limited: the server asks to wait 3600 s (HTTP 429: {})", 1),
    ("cut-json", 'bad reply: not JSON (application/json): {"choices": [{"message": {"content": "y', 1),
    ("cut-connection", "server error: the connection broke before the reply ended (", 3),
    ("no-reply", "server error: the connection broke before the reply ended (", 3),
    ("html", "bad reply: not JSON (text/html): <html> <title>Login</title></html>", 1),
    ("not-text", "bad reply: not JSON (application/json): ", 1),
    ("bad-gzip", "bad reply: ", 1),
    ("deep", "bad reply: not JSON (application/json): [[[", 1),
    ("long", "bad reply: longer than 1,000,000 bytes", 1),
    ("blank", "empty reply: HTTP 200 without a body", 1),
    ("nan", "not finite: the logprob of 'yes' is nan", 1),
    ("words", "not a number: the logprob of 'yes' is high", 1),
    ("no-choices", "empty reply: no choices", 1),
    ("shape", "bad reply: choices is not a list in {'results': ", 1),
    ("moved", "bad reply: HTTP 302: ", 1),
    ("hang", "timeout: no reply within 4 s", 1),
    ("drip", "timeout: no reply within 4 s", 1),
    ("drip-head", "timeout: no reply within 4 s", 1),
]
RECOVERED = ["500-twice", "429-once"]
FINE = [f"good {number}" for number in range(6)]


class Batch:
    """One call over every fault, with good pairs between them."""

    def __init__(self, server: FaultyServer) -> None:
        faults = [name for name, _, _ in FAULTS]
        texts = [FINE[0], *RECOVERED, *faults[:9], FINE[1], *faults[9:], *FINE[2:]]
        self.waits = Waits()
        scored = scorer(server, timeout_s=4, max_concurrent=len(texts), sleep=self.waits).score("q", texts)
        self.scored = dict(zip(texts, scored, strict=True))
        self.asked = server.asked


@pytest.fixture(scope="module")
def batch() -> Iterator[Batch]:
    for server in running():
        yield Batch(server)


@pytest.mark.parametrize(("fault", "error", "asked"), FAULTS, ids=[fault for fault, _, _ in FAULTS])
def test_a_pair_that_fails_is_flagged_with_its_cause(batch: Batch, fault: str, error: str, asked: int) -> None:
    flagged = batch.scored[fault]
    assert flagged.raw is None
    assert flagged.error is not None and flagged.error.startswith(error)
    assert flagged.error.split(": ")[0] in CAUSES and "\n" not in flagged.error
    assert flagged.detail is not None and flagged.detail["seconds"] >= 0
    assert batch.asked[fault] == asked


@pytest.mark.parametrize("text", FINE)
def test_good_pairs_beside_failing_ones_keep_their_scores(batch: Batch, text: str) -> None:
    scored = batch.scored[text]
    assert scored.raw == pytest.approx(GOOD) and scored.error is None
    assert scored.detail is not None and scored.detail["outcome"] == "yes and no" and scored.detail["seconds"] > 0


@pytest.mark.parametrize("text", RECOVERED)
def test_a_passing_failure_is_tried_again(batch: Batch, text: str) -> None:
    assert batch.scored[text].raw == pytest.approx(GOOD)


def test_the_waits_grow_and_follow_retry_after(batch: Batch) -> None:
    """Five pairs fail three times, 500-twice fails twice, 429-once is told to wait 7 s."""
    tried_thrice = sum(asked == 3 for _, _, asked in FAULTS) + 1
    assert Counter(batch.waits) == {0.25: tried_thrice, 0.5: tried_thrice, 7.0: 1}


# Batches


def test_texts_come_back_in_order_and_equal_ones_are_asked_once(server: FaultyServer) -> None:
    scored = scorer(server).score("q", ["good a", "unsure", "good a", "400", "unsure", "good b"])
    assert [pair.raw for pair in scored] == [
        pytest.approx(GOOD),
        0.5,
        pytest.approx(GOOD),
        None,
        0.5,
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
    assert str(scored[0].error).startswith(f"refused: {url} takes no connection (")
    assert str(scored[29].error).startswith(f"refused: not asked, {url} takes no connection (")
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
    async def broken(seconds: float) -> None:
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
    assert user == {"role": "user", "content": "<Instruct>: find it\n<Query>: who\n?\n<Document>: good \ud800 é"}
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
    with pytest.raises(ModelError, match=r"No llama.cpp server answers at .*: server error: HTTP 503: Loading model$"):
        scorer(server).health()


def test_health_of_something_else(server: FaultyServer) -> None:
    serving(server, health=(["fine"],))
    with pytest.raises(ModelError, match=r"does not say that a llama.cpp server is ready: \['fine'\]"):
        scorer(server).health()
    server.get = lambda handler: handler.send(200, b"<html>", "text/html")
    with pytest.raises(ModelError, match=r"bad reply: not JSON \(text/html\): <html>"):
        scorer(server).health()


def test_health_of_a_server_that_hangs_drips_or_refuses(server: FaultyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama_server, "HEALTH_S", 0.3)
    server.get = hangs
    with pytest.raises(ModelError, match=r"timeout: no reply within 0.3 s"):
        scorer(server).health()
    server.get = lambda handler: handler.drip(HEAD + b"\r\n{")
    with pytest.raises(ModelError, match=r"timeout: no reply within 0.3 s"):
        scorer(server).health()
    monkeypatch.setattr(llama_server, "HEALTH_S", 5.0)
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
