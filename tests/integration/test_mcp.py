"""The MCP server, asked by the SDK's own client: in memory, over standard input and output, and over HTTP."""

from __future__ import annotations

import http.client
import json
import os
import queue
import re
import shlex
import shutil
import socket
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest
import uvicorn
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from benchmarks.bench_mcp import listed_bytes
from cems_workbench.errors import InputError
from cems_workbench.mcp import memories, query_sets
from cems_workbench.mcp.protocol import EXCERPT, Arguments, ServedStore
from cems_workbench.mcp.server import TOOLS, WorkbenchServer, serve_http
from cems_workbench.platform import process_lock
from cems_workbench.store import Store
from tests.integration.mcp_store import FIRST_THREE, LONG, LOST, MILLION, ORDERS, QUERY, TEXTS, made
from tests.processes import ROOT, python

AS_OF = "2026-09-01"
ASKED = {"query": QUERY, "as_of": AS_OF}
CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("overview", {}),
    ("find_memories", {"words": "tomasz"}),
    ("read_memory", {"memory_id": LOST}),
    ("search", {**ASKED, "changes": FIRST_THREE}),
    ("why", {**ASKED, "memory_id": LOST, "changes": FIRST_THREE}),
    ("blame", {"text": TEXTS[LOST], **ASKED, "changes": FIRST_THREE}),
    ("what_if", {**ASKED, "changes": {"fusion.k": 1}, "memory_id": LOST}),
    ("what_if_memory", {**ASKED, "memory_id": "lunch", "content": TEXTS["release-train"]}),
    ("parameters", {"section": "fusion"}),
    ("evaluate", {"query_set": "t"}),
    ("compare", {"query_set": "t", "changes": FIRST_THREE}),
    ("memory", {"memory_id": LOST, "query_set": "t", "changes": FIRST_THREE}),
    ("losses", {"query_set": "t", "changes": FIRST_THREE}),
    ("label", {"memory_id": "argo", "grade": 2, "qid": "q1"}),
    ("undo_label", {}),
)
"""Every tool once, in an order in which each has something to do."""
MADE_ANEW = {"score_cache", "reply_cache", "embedded", "chunks", "chunked"}
"""Tables of what can be made again from the rest."""


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("mcp") / "store")


@pytest.fixture
def store(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "store"))


@pytest.fixture(scope="module")
def reader(original: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedStore]:
    served = ServedStore(shutil.copytree(original, tmp_path_factory.mktemp("read") / "store"))
    yield served
    served.close()


class Asked:
    """A connected client whose calls give what a tool gave, or the line that it refused with."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def __call__(self, name: str, **arguments: Any) -> Any:
        found = await self.client.call_tool(name, arguments)
        text = found.content[0].text  # type: ignore[union-attr]
        if found.is_error:
            return text
        assert json.loads(text) == found.structured_content
        return found.structured_content


def in_a_thread(run: Callable[..., Coroutine[Any, Any, Any]], *arguments: Any) -> Any:
    """What comes of a coroutine in a thread of its own: in this one a browser of other tests may have a loop that runs."""
    with ThreadPoolExecutor(1) as one:
        return one.submit(anyio.run, run, *arguments).result()


def asked(served: ServedStore, ask: Callable[[Asked], Coroutine[Any, Any, Any]]) -> Any:
    """What comes of asking a server in this process; what `ask` raises is raised once all is closed, and not in groups."""
    raised: list[Exception] = []

    async def run() -> Any:
        async with Client(WorkbenchServer(served)) as client:
            try:
                return await ask(Asked(client))
            except Exception as error:
                raised.append(error)

    found = in_a_thread(run)
    for error in raised:
        raise error
    return found


async def all_called(client: Client) -> dict[str, Any]:
    """Every tool that is listed, called."""
    names = [tool.name for tool in (await client.list_tools()).tools]
    call = Asked(client)
    return {name: await call(name, **arguments) for name, arguments in CALLS if name in names}


def people_keep(store: Path) -> dict[str, Any]:
    """The rows and a digest of every table but those of what can be made anew."""
    with Store.open(store, create=False) as opened, opened._database.reading() as cursor:
        tables = [row[0] for row in cursor.execute("SELECT table_name FROM duckdb_tables()").fetchall()]
        return {
            table: cursor.execute(f'SELECT count(*), bit_xor(hash(each)) FROM "{table}" AS each').fetchone()
            for table in sorted({*tables} - MADE_ANEW - {"workbench_meta"})
        }


def test_an_agent_finds_what_lost_a_memory_and_what_brings_it_back(reader: ServedStore) -> None:
    async def ask(call: Asked) -> None:
        found = await call("search", **ASKED, changes=FIRST_THREE)
        assert found["results"] == 3 and [row["rank"] for row in found["candidates"][:3]] == [1, 2, 3]
        lost = next(row for row in found["candidates"] if row["memory_id"] == LOST)
        assert "rank" not in lost and lost["lost_at"] == "adjust"
        explained = (await call("search", **ASKED, changes=FIRST_THREE, explain=True))["candidates"][0]
        assert [row["where"] for row in explained["scores"]][-1] == "final"
        assert "base" in next(row["made_of"] for row in explained["scores"] if row["where"] == "fusion")
        (there,) = (await call("find_memories", words="by a script that TOMASZ"))["memories"]
        why = await call("why", **ASKED, memory_id=there["memory_id"], changes=FIRST_THREE)
        assert why["lost_at"] == "adjust" and "time decay" in why["cause"]
        rescue = why["counterfactuals"][0]["changes"]
        tried = await call("what_if", **ASKED, memory_id=LOST, changes=FIRST_THREE | rescue)
        assert re.match(rf"{LOST}: \d\w\w of 3 results; before: ", tried["said"][0])
        same = await call("what_if", **ASKED, changes={"judge.threshold": 0.5})
        assert same["said"] == ["The results do not change."] and "moved" not in same
        worded = await call("what_if_memory", **ASKED, memory_id="lunch", content=QUERY, changes=FIRST_THREE)
        assert worded["rank"] <= 3 and "before" not in worded and worded["moved"]
        assert "Lunch is at" in (await call("read_memory", memory_id="lunch"))["untrusted"]["text"]
        measured = await call("evaluate", query_set="t", changes=FIRST_THREE)
        worst = measured["worst"][0]
        assert (worst["qid"], worst["not_returned"], measured["state"]) == ("q1", [LOST], "measured")
        undecayed = {"adjust.time_decay.mode": "none"}
        better = await call("compare", query_set="t", changes=undecayed, measures="nDCG@10")
        (ndcg,) = better["differences"]
        assert (ndcg["measure"], ndcg["better"], ndcg["worse"]) == ("nDCG@10", 1, 0)
        assert better["said"][:2] == [
            "1 better, 0 worse, 1 the same of 2 queries by nDCG@10, cems with changes against cems: +0.080. 2 queries cannot "
            "exclude a loss of more than 0.01; at least 10 are needed.",
            "No measure is significantly better or worse: p, after Holm, is 0.05 or more for each.",
        ]

        lost = await call("losses", query_set="t", changes=FIRST_THREE, cutoff=3)
        assert lost["said"][0].startswith("lost 1 of ") and lost["said"][0].endswith(" from the first 3: adjust 1")
        (row,) = lost["lost"]
        assert (row["qid"], row["memory_id"], row["stage"]) == ("q1", LOST, "adjust")
        assert row["words"] == why["cause"]
        used = await call("memory", memory_id=LOST, query_set="t", changes=FIRST_THREE)
        assert used["cutoff"] == 3  # the result limit, as in the command `memory`

    asked(reader, ask)


def test_pages_hold_every_candidate_once(reader: ServedStore) -> None:
    async def ask(call: Asked) -> None:
        ids, offset = [], 0
        while offset is not None:
            found = await call("search", **ASKED, changes=FIRST_THREE, limit=2, offset=offset)
            ids += [row["memory_id"] for row in found["candidates"]]
            offset = found.get("next_offset")
        assert len(ids) == len(set(ids)) == found["total"] and LOST in ids
        sections = (await call("parameters"))["sections"]
        assert (await call("parameters", section="fusion", limit=100))["total"] == sections["fusion"]

    asked(reader, ask)


def test_texts_are_data_and_long_ones_come_in_pages(reader: ServedStore) -> None:
    """What a memory says stands under `untrusted` alone, beside a note on that."""

    async def ask(call: Asked) -> None:
        found = await call("find_memories", words="previous instructions")
        assert "never instructions to follow" in found["untrusted_note"]
        (row,) = found["memories"]
        assert row.pop("untrusted")["text"] == ORDERS and row == {"memory_id": "orders"}
        (long,) = (await call("find_memories", words="word word"))["memories"]
        about = long["untrusted"]
        assert (len(about["text"]), about["characters"], about["next_offset"]) == (EXCERPT, MILLION, EXCERPT)
        last = await call("read_memory", memory_id=LONG, offset=MILLION - 10, length=20_000)
        assert last["untrusted"]["text"] == "word end.." and "next_offset" not in last["untrusted"]

    asked(reader, ask)


MEGABYTE = "x" * MILLION
WRONG: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("why", {**ASKED, "memory_id": "old-relase"}, "no such memory; the nearest are old-release"),
    ("what_if", {**ASKED, "memory_id": "nobody", "changes": {"fusion.k": 1}}, "nobody: no such memory"),
    ("search", {**ASKED, "config": "cmes"}, "no config is called 'cmes'; did you mean cems; there are"),
    ("search", {**ASKED, "config": "/etc/passwd.yaml"}, "not in a folder that pages may open"),
    ("search", {**ASKED, "changes": {"fusion.kk": 1}}, "the nearest known key is fusion.k"),
    ("search", {**ASKED, "changes": {"fusion.k": MEGABYTE}}, "allowed: 0 to 10000"),
    ("search", {**ASKED, "changes": [1]}, "changes: Input should be a valid dictionary"),
    ("search", {**ASKED, "project": "harbor/apo", "only_project": True}, "did you mean harbor/api"),
    ("search", {**ASKED, "as_of": "yesterday"}, "expected an ISO 8601"),
    ("search", {**ASKED, "limit": 10**30}, "limit: Input should be less than or equal to 100"),
    ("search", {"query": " "}, "query: it is empty"),
    ("search", {"query": MEGABYTE}, "query: String should have at most 20000 characters"),
    ("search", {}, "query: Field required"),
    ("search", {"query": None}, "query: Input should be a valid string"),
    ("search", {"qeury": QUERY}, "there is no argument 'qeury'; did you mean query?"),
    ("search", {"query": QUERY, MEGABYTE: 1}, "there is no argument"),
    ("serch", {"query": QUERY}, "no such tool; did you mean search? There are overview"),
    ("what_if", dict(ASKED), "changes: Field required"),
    ("what_if", {**ASKED, "changes": {}}, "name at least one parameter"),
    ("what_if_memory", {**ASKED, "memory_id": LOST}, "pass a text or title"),
    ("what_if_memory", {**ASKED}, "content: pass the text of a new memory"),
    ("what_if_memory", {**ASKED, "absent": True}, "absent: pass a memory_id"),
    ("what_if_memory", {**ASKED, "memory_id": LOST, "content": MEGABYTE}, "content: String should have at most"),
    ("read_memory", {"memory_id": LOST, "offset": 10_000}, "characters, counted from 0"),
    ("find_memories", {"words": "x", "project": "nowhere"}, "no memory of project"),
    ("parameters", {"section": "fuson"}, "there are query, expansion"),
    ("evaluate", {"query_set": "tt"}, "no query set is called 'tt'; did you mean t; there are t, all"),
    ("evaluate", {"query_set": "/etc/passwd"}, "not in a folder that pages may open"),
    ("evaluate", {"query_set": "t", "measures": "ndgc@10"}, "nDCG"),
    ("compare", {"query_set": "t"}, "nothing to compare"),
    ("label", {"memory_id": LOST, "grade": 3, "qid": "q1"}, "restart it with --write"),
)


def test_what_is_wrong_is_said_in_one_line_that_says_what_to_do(reader: ServedStore, subtests: pytest.Subtests) -> None:
    async def ask(call: Asked) -> None:
        for name, arguments, words in WRONG:
            with subtests.test(msg=f"{name}: {words}"):
                line = await call(name, **arguments)
                assert isinstance(line, str) and words in line
                assert len(line) < 800 and "\n" not in line and "xxxxxxxxxx" * 10 not in line

    asked(reader, ask)


def test_the_list_of_tools_is_short_and_says_what_each_needs(reader: ServedStore) -> None:
    tools = in_a_thread(WorkbenchServer(reader).list_tools)
    assert len(tools) == 18 and listed_bytes(tools) <= 15_500
    for tool in tools:
        assert tool.description and tool.output_schema is None
        for name, about in tool.input_schema["properties"].items():
            assert about["type"] and (about.get("description") or "default" in about), (tool.name, name)
    assert {"maximum": 100, "default": 5}.items() <= tools[4].input_schema["properties"]["limit"].items()


def test_a_reader_may_not_label_however_it_asks(reader: ServedStore) -> None:
    asked = memories.Label(memory_id="argo", grade=3, qid="q1")
    for give, given in ((memories.label, asked), (memories.undo_label, Arguments())):
        with pytest.raises(InputError, match="a reader may not label"):
            give(reader, given)


def test_with_write_labels_are_those_of_a_model_and_can_be_taken_back(store: Path) -> None:
    served = ServedStore(store, write=True, judge="fable")
    labels = served.resources.store.judgments

    async def ask(call: Asked) -> None:
        given = await call("label", memory_id=LOST, grade=1, qid="q1", note="out of date")
        assert given["said"] == ["People graded this pair 3: that counts, not this grade."]
        new = await call("label", memory_id="pager", grade=2, query="whose pager", query_set="agents")
        (row,) = labels.read(new["qid"])
        assert (row.memory_id, row.grade, row.judge, row.kind) == ("pager", 2, "fable", "model")
        assert (await call("label", memory_id="pager", grade=3, query="whose pager"))["replaced"] == 2
        assert (await call("undo_label"))["grade_again"] == 2
        assert [one["query_set"] for one in (await call("overview"))["query_sets"]] == ["agents", "t"]
        for arguments, words in (
            ({"grade": 7, "qid": "q1"}, "not on the scale"),
            ({"grade": 1, "qid": "q11"}, "did you mean q1"),
            ({"grade": 1}, "pass the text of the query"),
            ({"grade": 1, "query": "new", "query_set": " "}, "is not a name"),
        ):
            assert words in await call("label", memory_id=LOST, **arguments)

    try:
        asked(served, ask)
        assert [row.kind for row in labels.read("q1") if row.memory_id == LOST] == ["model", "human"]
    finally:
        served.close()
    with pytest.raises(InputError, match="is not a name"):
        ServedStore(store, write=True, judge=" ")


def test_a_store_that_another_process_holds_is_said_and_tried_again(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = python(
        "import sys; from pathlib import Path; from cems_workbench.store import Store\n"
        "store = Store.open(Path(sys.argv[1]))\n"
        "with store._database.lock(): print('open', flush=True); sys.stdin.read()",
        store,
    )
    assert holder.stdout is not None and holder.stdout.readline() == "open\n"
    monkeypatch.setattr(process_lock, "ACQUIRE_TIMEOUT_S", 0.2)
    served = ServedStore(store)

    async def ask(call: Asked) -> None:
        line = await call("search", **ASKED)
        assert f"is held by another process: pid {holder.pid}" in line and "\n" not in line
        holder.communicate()
        assert (await call("overview"))["memories"] == len(TEXTS) + 1

    try:
        asked(served, ask)
    finally:
        holder.kill()
        served.close()
    nothing = ServedStore(tmp_path / "nothing")
    assert "import something" in asked(nothing, lambda call: call("overview"))


def test_a_search_of_a_set_that_takes_too_long_goes_on_at_the_next_call(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = ServedStore(store)
    clock = iter([0.0, 50.0, *range(100, 120)])
    monkeypatch.setattr(query_sets, "monotonic", lambda: next(clock))
    try:
        first, second = asked(served, lambda call: both(call))
    finally:
        served.close()
    assert (first["state"], first["searching"]) == ("searching", {"queries_searched": 1, "queries_in_all": 2})
    assert second["state"] == "measured" and second["queries"] == 2


def test_a_store_is_audited_and_a_memory_that_is_kept_is_found(reader: ServedStore) -> None:
    async def ask(call: Asked) -> Any:
        audit = await call("audit", query_set="t", kind="never returned")
        return audit, await call("leak", query_set="t"), await call("forgotten", memory_id=LOST)

    audit, leak, forgotten = asked(reader, ask)
    assert audit["state"] == "found" and "never returned" in json.dumps(audit)
    assert "leaks need memories of two projects; the store has harbor/api" in leak
    assert "not forgotten: " in json.dumps(forgotten) and TEXTS[LOST] not in json.dumps(forgotten)


def test_a_call_waits_for_one_that_still_searches_and_says_so(reader: ServedStore) -> None:
    with reader.measuring(0):
        found = asked(reader, lambda call: call("compare", query_set="t", changes=FIRST_THREE, seconds=1))
    assert found["state"] == "searching" and found["said"][0].startswith("Another call is still searching")


async def both(call: Asked) -> tuple[Any, Any]:
    return await call("evaluate", query_set="t"), await call("evaluate", query_set="t")


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def test_standard_output_holds_the_protocol_and_nothing_else(store: Path, tmp_path: Path) -> None:
    """What the SDK's client starts, through a `tee` that keeps every line."""
    command = shlex.join([sys.executable, "-m", "cems_workbench", "mcp", "--write", "--store", str(store)])
    kept = tmp_path / "out"
    server = StdioServerParameters(
        command="sh", args=["-c", f"{command} 2>{tmp_path}/err | tee {kept}"], env=environment(), cwd=ROOT
    )

    async def run() -> dict[str, Any]:
        async with Client(
            server, mode="legacy"
        ) as client:  # as most clients begin; over HTTP the client tries the newest way
            return await all_called(client)

    before = people_keep(store)
    given = in_a_thread(run)
    assert people_keep(store) != before, "a label and its undoing leave their history"
    assert [*given] == [name for name, _ in CALLS] and all(isinstance(found, dict) for found in given.values()), given
    lines = kept.read_text("utf-8").splitlines()
    assert len(lines) > len(CALLS) and {json.loads(line)["jsonrpc"] for line in lines} == {"2.0"}
    assert (tmp_path / "err").read_text() == ""


@contextmanager
def serving(server: WorkbenchServer, token: str) -> Iterator[str]:
    """The address of a server that listens, in a thread of this process."""
    addresses: queue.Queue[str] = queue.Queue()
    running: list[uvicorn.Server] = []

    class Kept(uvicorn.Server):
        def __init__(self, config: uvicorn.Config) -> None:
            super().__init__(config)
            running.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uvicorn, "Server", Kept)
        thread = threading.Thread(target=serve_http, args=(server, 0, token, addresses.put))
        thread.start()
        said = addresses.get(timeout=30)
    assert token not in said
    try:
        yield re.findall(r"http://127\.0\.0\.1:\d+/mcp", said)[0]
    finally:
        running[0].should_exit = True
        thread.join(timeout=30)


def test_http_serves_who_has_the_token_and_writes_nothing_without_write(store: Path) -> None:
    before = people_keep(store)
    served = ServedStore(store)
    try:
        with serving(WorkbenchServer(served), "secret") as url:
            given = in_a_thread(over_http, url)
            assert [*given] == [tool.name for tool in TOOLS if not tool.writes]
            assert all(isinstance(found, dict) for found in given.values()), given
            port = urlsplit(url).port
            right = {"Authorization": "Bearer secret", "Host": f"localhost:{port}"}
            for headers, status in (
                ({**right, "Authorization": "Bearer guess"}, 401),
                ({"Host": right["Host"]}, 401),
                ({**right, "Host": f"evil.example:{port}"}, 421),
                ({**right, "Origin": "http://evil.example"}, 403),
                ({**right, "Origin": "http://localhost:3000"}, 403),
                (right, 200),
            ):
                assert posted(port, headers) == status, headers
    finally:
        served.close()
    assert people_keep(store) == before


def test_a_port_that_is_taken_is_a_line(reader: ServedStore) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(InputError, match="in use; name another one with --port"):
            serve_http(WorkbenchServer(reader), taken.getsockname()[1], None, print)


async def over_http(url: str) -> dict[str, Any]:
    client = create_mcp_http_client(headers={"Authorization": "Bearer secret"})
    async with client, Client(streamable_http_client(url, http_client=client)) as connected:
        return await all_called(connected)


def posted(port: int | None, headers: Mapping[str, str]) -> int:
    """The status that a request to begin is answered with."""
    begin = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    }
    kinds = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("POST", "/mcp", json.dumps(begin), {**kinds, **headers})
        return connection.getresponse().status
    finally:
        connection.close()
