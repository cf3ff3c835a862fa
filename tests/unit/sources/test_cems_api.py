"""Answers of a CEMS server: what is asked, what is kept, and what goes wrong, over real HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from cems_workbench.errors import InputError
from cems_workbench.progress import Cancelled
from cems_workbench.records import Query, RowError
from cems_workbench.sources.address import parse
from cems_workbench.sources.source import SourceError
from workbench_stores.cems_api import Answer, CemsApi, SearchOptions

KEY = "cems_ak_nobody-shows-this"
QUERIES = [Query("q1", "where are the keys", "org/repo"), Query("q2", "what is slow")]
REPLY = {
    "success": True,
    "count": 2,
    "mode": "vector",
    "results": [
        {
            "memory_id": "b",
            "content": "in the safe",
            "score": 0.9,
            "scope": "personal",
            "tags": [],
            "truncated": True,
            "full_length": 900,
        },
        {"memory_id": "a", "content": "lost", "score": 0.5, "scope": "shared", "category": "notes"},
    ],
}


class Server:
    """Answers every search with what `replies` gives next, the last one for ever: a status, headers and a body."""

    def __init__(self) -> None:
        self.replies: list[tuple[int, dict[str, str], str]] = [(200, {}, json.dumps(REPLY))]
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.paths: list[str] = []
        self.held = threading.Event()
        self.held.set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                outer.keys.append(self.headers["Authorization"])
                outer.paths.append(self.path)
                outer.held.wait(20)
                status, headers, body = outer.replies[0] if len(outer.replies) == 1 else outer.replies.pop(0)
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body.encode())), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        self.port = self.http.server_address[1]


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.held.set()
    server.http.shutdown()
    server.http.server_close()


Api = Callable[..., CemsApi]


@pytest.fixture
def api(server: Server) -> Iterator[Api]:
    """A client of the server that does not really wait; `waits` of the function are the seconds it would have."""
    opened: list[CemsApi] = []

    def make(options: str = "", timeout: float = 10.0) -> CemsApi:
        address = parse(f"http://127.0.0.1:{server.port}/{options}", {"CEMS_API_KEY": KEY})
        opened.append(CemsApi(address, timeout=timeout, sleep=make.waits.append))  # type: ignore[attr-defined]
        return opened[-1]

    make.waits = []  # type: ignore[attr-defined]
    yield make
    for each in opened:
        each.close()


def test_an_answer_is_kept_with_how_it_came_about(server, api) -> None:
    given = list(api().answers(QUERIES))
    first = given[0]
    assert isinstance(first, Answer)
    assert [(each.memory_id, each.score, each.content) for each in first.recorded.returned] == [
        ("b", 0.9, "in the safe"),
        ("a", 0.5, "lost"),
    ]
    assert (first.recorded.qid, first.recorded.query, first.recorded.project, first.recorded.row) == (
        "q1",
        "where are the keys",
        "org/repo",
        1,
    )
    assert first.mode == "vector" and len(given) == 2


def test_what_is_asked_is_the_query_its_project_and_the_options(server, api) -> None:
    list(api("?limit=5&max_tokens=900&mode=hybrid&raw=true&enable_graph=false").answers(QUERIES))
    assert server.paths == ["/api/memory/search"] * 2 and server.keys == [f"Bearer {KEY}"] * 2
    assert server.asked[0] == {
        "query": "where are the keys",
        "project": "org/repo",
        "limit": 5,
        "max_tokens": 900,
        "scope": "both",
        "mode": "hybrid",
        "raw": True,
        "enable_graph": False,
        "enable_query_synthesis": False,
        "enable_hyde": False,
        "enable_decomposition": True,
    }
    assert "project" not in server.asked[1]


def test_a_recording_says_whether_its_answers_are_whole(server, api) -> None:
    whole, cut = api("?max_tokens=900"), api("?limit=2")
    recording = whole.recording(list(whole.answers(QUERIES)))
    assert (recording.whole, recording.max_tokens, recording.mode, recording.system) == (True, 900, "vector", "CEMS")
    assert [answer.qid for answer in recording.answers] == ["q1", "q2"] and recording.answered_at is not None
    assert not cut.recording(list(cut.answers(QUERIES))).whole


def test_the_rate_is_kept(server, api) -> None:
    list(api("?per_second=0.1").answers(QUERIES * 2))
    assert 55 < sum(api.waits) <= 60, "no time passes here but what asking takes, so that it is 10, 20 and 30 seconds"


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_failure_that_passes_is_waited_for(server, api, status) -> None:
    server.replies = [(status, {"Retry-After": "7"}, '{"error": "later"}'), (200, {}, json.dumps(REPLY))]
    assert all(isinstance(each, Answer) for each in api("?per_second=1000").answers(QUERIES))
    assert len(server.asked) == 3
    assert (sum(api.waits) >= 7) == (status == 429)


@pytest.mark.parametrize(
    ("status", "headers", "body", "asked", "line"),
    [
        (
            401,
            {},
            json.dumps({"error": f"Invalid API key {KEY}"}),
            1,
            "the key in CEMS_API_KEY is refused: Invalid API key …",
        ),
        (403, {}, '{"error": "User account is deactivated"}', 1, "is refused: User account is deactivated"),
        (
            429,
            {"Retry-After": "3600"},
            "",
            1,
            "too many requests (HTTP 429: no further words); lower per_second; it asks to wait 3600 s",
        ),
        (
            429,
            {},
            "",
            12,
            "too many requests (HTTP 429: no further words); lower per_second; 3 queries in a row failed",
        ),
        (500, {}, '{"error": "Internal\\nserver error"}', 12, "HTTP 500: Internal server error; 3 queries in a row"),
        (404, {}, "<html>", 1, "HTTP 404 at /api/memory/search: is a CEMS server there?"),
        (400, {}, '{"error": "query is required"}', 3, "HTTP 400: query is required; 3 queries in a row"),
        (200, {}, f"<html>{KEY}", 3, "its answer is not JSON: <html>…; 3"),
        (200, {}, "[1]", 3, "its answer has no list of results, found a list"),
        (200, {}, '{"results": {}}', 3, "its answer has no list of results, found results an object"),
        (200, {}, '{"success": false}', 3, "its answer has no list of results, found results null"),
    ],
)
def test_what_goes_wrong_is_one_line_without_the_key(server, api, status, headers, body, asked, line) -> None:
    server.replies = [(status, headers, body)]
    with pytest.raises(SourceError) as error:
        list(api("?per_second=1000").answers(QUERIES * 3))
    said = str(error.value)
    assert line in said and KEY not in said and "\n" not in said
    assert said.startswith(f"http://127.0.0.1:{server.port}/")
    assert len(server.asked) == asked


def test_a_query_that_fails_alone_is_named_and_the_others_are_answered(server, api) -> None:
    server.replies = [(200, {}, "{"), (200, {}, json.dumps(REPLY))]
    one = api("?per_second=1000")
    given = list(one.answers([*QUERIES, Query("q3", "  ")]))
    assert [type(each) for each in given] == [RowError, Answer, RowError]
    assert "its answer is not JSON" in given[0].reason and given[2].reason == "the query is empty; it was not asked"
    recording = one.recording(given)
    assert [answer.qid for answer in recording.answers] == ["q2"] and [error.row for error in recording.errors] == [
        1,
        3,
    ]


def test_a_row_that_cannot_be_used_is_reported_under_its_answer(server, api) -> None:
    server.replies = [
        (200, {}, json.dumps({"results": [{"memory_id": "a", "score": "high"}, 1.5, {"memory_id": "b", "score": 0.1}]}))
    ]
    one = api()
    recording = one.recording(list(one.answers(QUERIES[:1])))
    assert [each.memory_id for each in recording.answers[0].returned] == ["a", "b"]
    assert [(error.row, error.reason[:10]) for error in recording.errors] == [(1, "results[0]"), (1, "results[1]")]


def test_a_server_that_hangs_is_one_line(server, api) -> None:
    server.held.clear()
    with pytest.raises(SourceError, match=r"no answer in 0.3 s|did not answer in time"):
        list(api(timeout=0.3).answers(QUERIES[:1]))


def test_a_server_that_is_away_is_one_line() -> None:
    address = parse("http://127.0.0.1:9", {"CEMS_API_KEY": KEY})
    with (
        closing(CemsApi(address)) as api,
        pytest.raises(SourceError, match=r"http://127.0.0.1:9: nothing answers at this address$"),
    ):
        list(api.answers(QUERIES[:1]))


@pytest.mark.parametrize("allowed", [1, 3])
def test_it_is_cancelled_between_queries_and_while_it_waits(server, api, allowed) -> None:
    server.replies = [(200, {}, json.dumps(REPLY)), (429, {"Retry-After": "20"}, "")]
    calls: list[int] = []

    def progress(label: str, done: int, total: int) -> None:
        calls.append(done)
        if len(calls) > allowed:
            raise Cancelled

    answers, kept = api("?per_second=1000").answers(QUERIES, progress), []
    with pytest.raises(Cancelled):
        for each in answers:
            kept.append(each)
    assert [type(each) for each in kept] == [Answer]
    assert len(server.asked) == min(allowed, 2) and sum(api.waits) < 5


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ("?limt=5", "limt is not an option of a CEMS server; options: limit, max_tokens"),
        ("?limit=0", "limit: input should be greater than or equal to 1, found 0"),
        ("?mode=slow", "mode: input should be 'auto', 'vector' or 'hybrid', found slow"),
    ],
)
def test_an_option_that_is_none_is_refused(options, line) -> None:
    with pytest.raises(InputError, match=line):
        CemsApi(parse(f"https://cems.example/{options}", {"CEMS_API_KEY": KEY}))


def test_without_a_key_nothing_is_asked() -> None:
    with pytest.raises(InputError, match="set CEMS_API_KEY"):
        CemsApi(parse("https://cems.example", {}))
    with pytest.raises(InputError, match="was it pasted whole"):
        CemsApi(parse("https://cems.example", {"CEMS_API_KEY": "ключ"}))


def test_options_have_the_defaults_of_cems() -> None:
    assert SearchOptions().body(Query("q", "text")) == {
        "query": "text",
        "limit": 1000,
        "max_tokens": 4000,
        "scope": "both",
        "mode": "vector",
        "raw": False,
        "enable_graph": True,
        "enable_query_synthesis": False,
        "enable_hyde": False,
        "enable_decomposition": True,
    }
