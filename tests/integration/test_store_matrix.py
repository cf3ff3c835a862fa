"""The matrix: each store as its library wrote it is connected as a user would, and compared with the library's own answers.

Expectations come from answers.json, which the library gave (recorded_stores.py), never from here. What the table in docs/use/sources.md
says of a store is checked against the same answers.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import postgres_server
import pytest
from collection_rows import memories, taken
from postgres_server import Server

from cems_workbench.jobs.embedder_match import match_texts
from cems_workbench.models.protocol import Float32
from cems_workbench.progress import Progress, silent
from cems_workbench.records import DELETED_MARK, TakenMemory
from cems_workbench.sources.address import parse
from cems_workbench.sources.connect import open_source
from cems_workbench.sources.embedded_text import LLAMA_INDEX
from cems_workbench.sources.source import EngineQuery, Source
from cems_workbench.store.sources import SampleText
from tests import recorded_stores as recorded

pytestmark = pytest.mark.skipif(postgres_server.missing() is not None, reason=str(postgres_server.missing()))
Opened = Callable[[str], Source]

TOLERANCE = 1e-6
FIELDS: Mapping[str, tuple[str, ...]] = {
    "content": ("content", "text", "memory", "data", "document"),
    "title": ("title",),
    "category": ("category",),
    "project": ("project",),
    "session": ("session_id", "run_id"),
    "author": ("user_id",),
    "tags": ("tags",),
    "created_at": ("created_at",),
    "updated_at": ("updated_at",),
    "last_accessed": ("last_accessed",),
    "access_count": ("access_count",),
    "priority": ("priority",),
    "pinned": ("pinned",),
}
"""Fields of a memory, and what the stores' writers called them."""
TIMES = ("created_at", "updated_at", "last_accessed")
COSINES: Mapping[str, Callable[[float], float]] = {
    "cosine": lambda score: score,
    "max(0, cosine)": lambda score: score,
    "cosine distance": lambda score: 1 - score,
    "(1+cosine)/2": lambda score: 2 * score - 1,
    "l2": lambda score: 1 - score * score / 2,
    "l2, farthest first": lambda score: 1 - score * score / 2,
    "-l2": lambda score: 1 - score * score / 2,
    "squared l2": lambda score: 1 - score / 2,
    "exp(-squared l2)": lambda score: 1 + math.log(score) / 2,
    "1/(1+squared l2)": lambda score: 1 - (1 / score - 1) / 2,
}
"""A score of a library as the cosine that it stands for, of vectors of unit length."""


NOT_YET: Mapping[str, str] = {
    **dict.fromkeys(("langchain_pgvector", "langchain_pgvector_l2"), "no ?collection="),
    **dict.fromkeys(
        ("langchain_pgvectorstore", "langchain_pgvectorstore_json", "langchain_pgvectorstore_hybrid"), "no JSON"
    ),
    **dict.fromkeys(("llamaindex_pg", "llamaindex_pg_hybrid", "haystack_pg", "haystack_pg_l2"), "no JSON"),
    **dict.fromkeys(("langgraph_pg", "langgraph_pg_whole"), "two tables"),
    **dict.fromkeys(("mem0_pgvector",), "expired memories are in live lists"),
    "txtai_hybrid": "the keyword index of txtai is not read",
}
"""Why a store does not work yet, by name."""
NO_KIND = ("sqlite",)
"""Kinds of sources that are not there yet."""


def stores() -> list[object]:
    """The recorded stores as parameters."""
    late = {name: recorded.answers(name)["kind"] for name in recorded.names()}
    reasons = {
        name: NOT_YET.get(name) or f"no kind {kind}"
        for name, kind in late.items()
        if name in NOT_YET or kind in NO_KIND
    }
    return [
        pytest.param(name, marks=pytest.mark.xfail(reason=reasons[name])) if name in reasons else name for name in late
    ]


BM25: Mapping[str, Callable[[float], float]] = {
    "bm25": lambda score: -score,
    "bm25 of FTS5, negative, lower is better": lambda score: -score,
    "|bm25| / (1 + |bm25|)": lambda score: score / (1 - score),
}
"""A score of a library's FTS5 search as ours: bm25 with higher as better."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgres_server.running() as server:
        yield server


@pytest.fixture(scope="module")
def database(server: Server) -> Callable[[str, str], str]:
    """The address of the database that a dump makes; it is made once."""
    made: set[str] = set()

    def restored(name: str, dump: str) -> str:
        if name not in made:
            with server.connect() as first:
                first.execute(f"CREATE DATABASE {name}")
            with server.connect(name) as connection:
                connection.execute(dump)
        made.add(name)
        return server.address(name, "postgres")

    return restored


@pytest.fixture
def opened(tmp_path: Path, database: Callable[[str, str], str]) -> Iterator[Opened]:
    """Opens a store at the address that its answers name."""
    with ExitStack() as stack:

        def open_(name: str) -> Source:
            form = recorded.answers(name)["address"]
            folder = recorded.restore(name, tmp_path / name)
            if "{url}" in form:
                text = database(name, (folder / "store.sql").read_text("utf-8"))
                text += form.removeprefix("{url}").replace("?", "&")
            else:
                text = form.format(path=folder)
            return stack.enter_context(closing(open_source(parse(text, {}))))

        yield open_


def flat(memory: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an answer's memory, with those of its metadata or value."""
    found = {key: value for key, value in memory.items() if not isinstance(value, dict)}
    for name in ("value", "data", "metadata"):
        inner = memory.get(name)
        if isinstance(inner, str) and inner.startswith("{"):
            inner = json.loads(inner)
        if isinstance(inner, dict):
            found = {**inner, **found}
    return found


def comparable(field: str, value: Any) -> Any:
    """A value of an answer as a memory has it; None where it says nothing."""
    if value is None or value == "":
        return None
    if field in TIMES:
        moment = datetime.fromtimestamp(value, UTC) if isinstance(value, float) else datetime.fromisoformat(value)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    if field == "tags":
        value = json.loads(value) if isinstance(value, str) and value.startswith("[") else value
        return tuple(value.split(",")) if isinstance(value, str) else tuple(value)
    return bool(value) if field == "pinned" else value


def differences(memory: TakenMemory, row: Mapping[str, Any]) -> list[tuple[str, object, object]]:
    """(field, ours, the library's) where they differ."""
    differ = []
    for field, names in FIELDS.items():
        expected = comparable(field, next((row[name] for name in names if row.get(name) is not None), None))
        ours = getattr(memory.memory, field)
        if expected is not None and ours != expected:
            differ.append((field, ours, expected))
    return differ


@pytest.mark.parametrize("name", stores())
def test_connected_store_has_what_its_library_lists(name: str, opened: Opened) -> None:
    answer, source = recorded.answers(name), opened(name)
    batches = taken(source)
    found = memories(batches)
    expired, deleted = ({str(key) for key in answer[kind]} for kind in ("expired", "deleted"))
    now = datetime.now(UTC)
    shown = {
        key: each
        for key, each in found.items()
        if not each.marker.startswith(DELETED_MARK) and not each.memory.expired(now)
    }
    listed = {str(row["id"]): flat(row) for row in answer["memories"] if str(row["id"]) not in expired}
    assert set(shown) == set(listed)
    assert set(found) - set(shown) <= expired | deleted
    differ = {key: found for key, row in listed.items() if (found := differences(shown[key], row))}
    assert differ == {}
    assert [problem for batch in batches for problem in batch.problems] == []


def fold(hits: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
    """The best hit of each memory."""
    best: dict[str, float] = {}
    for key, score in hits:
        best.setdefault(key, score)
    return list(best.items())


def assert_same(ours: Sequence[tuple[str, float]], theirs: Sequence[tuple[str, float]]) -> None:
    """The same order up to ties, and the same scores; of a tie at the end any may have been cut."""
    assert len(ours) == len(theirs)
    assert [score for _, score in ours] == pytest.approx([score for _, score in theirs], abs=TOLERANCE)
    last = theirs[-1][1] if theirs else 0.0
    for key, score in theirs:
        if abs(score - last) > TOLERANCE:
            alike = {other for other, at in theirs if abs(at - score) <= TOLERANCE}
            assert {other for other, at in ours if abs(at - score) <= 2 * TOLERANCE} >= alike, key


def cosine_of(score: float, distance: str) -> float:
    """Our score of the vector list as a cosine."""
    return {"cosine": score, "l2": 1 - score * score / 2, "ip": score}[distance]


@pytest.mark.parametrize("name", stores())
def test_live_lists_are_the_librarys_own_searches(name: str, opened: Opened) -> None:
    answer, source = recorded.answers(name), opened(name)
    probe, expired, asked = source.probe(), {str(key) for key in answer["expired"]}, set()
    for search in answer["searches"]:
        called = search.get("list")
        if called is None or "filter" in search or called not in probe.lists:
            continue
        theirs = [(str(key), score) for key, score in search["hits"] if str(key) not in expired]
        query = EngineQuery(search["query"], recorded.vector(search["query"]), {called: search["k"]})
        (found,) = source.search(query)
        ours = fold([(hit.memory_id, hit.score) for hit in found.hits])
        if called == "vector":
            label = search["score"]
            theirs = [(key, COSINES[label](score)) for key, score in theirs][:: -1 if "farthest" in label else 1]
            ours = [(key, cosine_of(score, probe.distance)) for key, score in ours]
            if label.startswith("max(0"):
                ours = [(key, max(0.0, score)) for key, score in ours]
        if called == "fts5":
            theirs = [(key, BM25[search["score"]](score)) for key, score in theirs]
        assert_same(ours[: len(theirs)], theirs)
        asked.add(called)
    assert asked >= {each["list"] for each in answer["searches"] if each.get("list") in probe.lists}
    assert "vector" in asked


class Recorded:
    """An embedder that knows the recorded texts; any other text is a random direction."""

    model_id = line = "recorded"
    dimension = recorded.vectors().shape[1]

    def encode(self, texts: Sequence[str], progress: Progress = silent) -> Float32:
        return np.stack([self.encode_query(text) for text in texts])

    def encode_query(self, text: str) -> Float32:
        if text in recorded.texts():
            return recorded.vector(text)
        found = np.random.default_rng(zlib.crc32(text.encode())).normal(size=self.dimension).astype(np.float32)
        return found / np.linalg.norm(found)


@pytest.mark.parametrize("name", stores())
def test_embedder_of_a_store_is_proven_by_the_text_that_its_library_embeds(name: str, opened: Opened) -> None:
    texts = []
    for each in memories(taken(opened(name))).values():
        title = each.memory.title
        if each.vector is not None:
            texts.append(SampleText((each.memory.id, None), each.memory.content, title, each.vector, each.embedded))
        for chunk in each.chunks:
            if chunk.vector is not None:
                key = (each.memory.id, chunk.seq)
                texts.append(SampleText(key, chunk.text, title, chunk.vector, chunk.embedded))
    match = match_texts(texts, Recorded())
    assert match.same, str(match)
    library = recorded.answers(name).get("embedded_text", {})
    assert {each.id[0]: each.of(match.form) for each in texts if each.id[0] in library} == library
    assert (match.form == LLAMA_INDEX) == name.startswith("llamaindex")
