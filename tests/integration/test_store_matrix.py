"""The matrix: each store as its library wrote it is connected as a user would, and compared with the library's own answers.

Expectations come from answers.json, which the library gave (recorded_stores.py), and store_matrix.py says which are compared.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import postgres_server
import pytest
from collection_rows import memories, taken
from postgres_server import Server

from cems_workbench import extensions
from cems_workbench.errors import InputError
from cems_workbench.jobs.embedder_match import match_texts
from cems_workbench.models.protocol import Float32
from cems_workbench.progress import Progress, silent
from cems_workbench.records import DELETED_MARK
from cems_workbench.sources import address
from cems_workbench.sources.address import parse, source_kind
from cems_workbench.sources.connect import open_source
from cems_workbench.sources.rows import LLAMA_INDEX
from cems_workbench.sources.source import EngineQuery, Source, SourceError, Trial
from cems_workbench.store.sources import SampleText
from tests import recorded_stores as recorded
from tests import store_matrix
from tests.store_matrix import MATRIX
from tests.strangers import install, with_source_kinds

pytestmark = pytest.mark.skipif(postgres_server.missing() is not None, reason=str(postgres_server.missing()))
Opened = Callable[..., Source]

TOLERANCE = 1e-6
PARTS = 12
"""Rows of a live list asked for each memory, which may have as many parts."""
COSINES: Mapping[str, Callable[[float], float]] = {
    "cosine": lambda score: score,
    "max(0, cosine)": lambda score: score,
    "cosine distance": lambda score: 1 - score,
    "(1+cosine)/2": lambda score: 2 * score - 1,
    "squared l2": lambda score: 1 - score / 2,
    "exp(-squared l2)": lambda score: 1 + math.log(score) / 2,
    "1/(1+squared l2)": lambda score: 1 - (1 / score - 1) / 2,
}
"""A library's score of a vector search as the cosine that it stands for, of vectors of unit length."""
DISTANCES = ("l2", "l2, farthest first", "-l2")
"""Scores that are compared as distances, whatever their sign: single precision leaves fewer digits of the cosines."""
BM25: Mapping[str, Callable[[float], float]] = {
    "bm25": lambda score: -score,
    "bm25 of FTS5, negative, lower is better": lambda score: -score,
    "|bm25| / (1 + |bm25|)": lambda score: score / (1 - score),
}
"""A library's score of an FTS5 search as ours, of which higher is better."""


OTHER_METRIC = ("_l2", "_cosine", "_json", "_whole", "_default", "_hybrid")
"""How the name of a store ends that differs from another one by a setting: these are tried by `make thorough`, most of them."""
IN_HASTE = ("langchain_pgvectorstore_hybrid", "llamaindex_pg_hybrid", "sqlite_vec_cosine")
"""Those that `make test` tries nevertheless."""


def stores(*only: str) -> list[object]:
    """The names of the matrix; besides those that begin so, or are variants, all are left to `make thorough`."""
    return [
        pytest.param(name, marks=pytest.mark.thorough)
        if (name.endswith(OTHER_METRIC) and name not in IN_HASTE) or not name.startswith(only or ("",))
        else name
        for name in MATRIX
    ]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgres_server.running() as server:
        with server.connect() as connection:
            # A database for each store would be written out one by one, and waited for.
            connection.execute("ALTER SYSTEM SET fsync = off")
            connection.execute("SELECT pg_reload_conf()")
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
    """Opens a store at the address that its answers name, with a further option."""
    with ExitStack() as stack:

        def open_(name: str, option: str = "", collection: str = "memories") -> Source:
            form = recorded.answers(name)["address"].replace("collection=memories", f"collection={collection}")
            folder = tmp_path / name
            if not folder.exists():
                recorded.restore(name, folder)
            if "{url}" in form:
                text = database(name, (folder / "store.sql").read_text("utf-8"))
                text += form.removeprefix("{url}").replace("?", "&")
            else:
                text = form.format(path=folder)
            text += f"{'&' if '?' in text else '?'}{option}" if option else ""
            address = parse(text, {})
            pytest.importorskip(source_kind(address).package or "numpy")
            return stack.enter_context(closing(open_source(address)))

        yield open_


@pytest.mark.parametrize("name", stores())
def test_connected_store_has_what_its_library_lists(name: str, opened: Opened) -> None:
    answer, batches = recorded.answers(name), taken(opened(name))
    found, now = memories(batches), datetime.now(UTC)
    expired, deleted = ({str(key) for key in answer[kind]} for kind in ("expired", "deleted"))
    shown = {
        key: each.memory
        for key, each in found.items()
        if not each.marker.startswith(DELETED_MARK) and not each.memory.expired(now)
    }
    listed = {str(row["id"]): store_matrix.flat(row) for row in answer["memories"]}
    assert set(shown) == set(listed) - expired - deleted
    assert set(found) - set(shown) <= expired | deleted
    for key, memory in shown.items():
        for field in store_matrix.compared(name):
            value, ours = store_matrix.expected(listed[key], field), getattr(memory, field)
            assert value is None or (ours.strip() if field == "content" else ours) == value, (key, field)
    without = {str(key) for key in answer.get("without_vector", ())}
    assert [each for batch in batches for each in batch.problems if each.memory_id not in without] == []


def fold(hits: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
    """The best hit of each memory."""
    best: dict[str, float] = {}
    for key, score in hits:
        best.setdefault(key, score)
    return [*best.items()]


def assert_same(ours: Sequence[tuple[str, float]], theirs: Sequence[tuple[str, float]]) -> None:
    """The same order up to ties, and the same scores; of a tie at the end any may have been cut."""
    assert len(ours) == len(theirs)
    assert [score for _, score in ours] == pytest.approx([score for _, score in theirs], abs=TOLERANCE)
    last = theirs[-1][1] if theirs else 0.0
    for _, score in theirs:
        if abs(score - last) > TOLERANCE:
            alike = {key for key, at in theirs if abs(at - score) <= TOLERANCE}
            assert {key for key, at in ours if abs(at - score) <= 2 * TOLERANCE} >= alike


def cosine_of(score: float, distance: str) -> float:
    """Our score of the vector list as a cosine."""
    return {"cosine": score, "l2": 1 - score * score / 2, "ip": score}[distance]


@pytest.mark.parametrize("name", stores())
def test_live_lists_are_the_librarys_own_searches(name: str, opened: Opened) -> None:
    answer, lists = recorded.answers(name), MATRIX[name].lists
    expired, deleted = ({str(key) for key in answer[kind]} for kind in ("expired", "deleted"))
    sources: dict[str, Source] = {}
    asked: list[str] = []
    for search in answer["searches"]:
        called, option = search.get("list"), search.get("option", "")
        if called not in lists or "filter" in search:
            continue
        source = sources.get(option) or sources.setdefault(option, opened(name, option))
        distance = source.probe().distance
        depth = PARTS * search["k"] if called == "vector" else search["k"]
        query = EngineQuery(search["query"], recorded.vector(search["query"]), {called: depth})
        (found,) = source.search(query)
        ours = fold(
            [(hit.memory_id, hit.score) for hit in found.hits if hit.memory_id.startswith(search.get("prefix", ""))]
        )
        hidden = deleted if search.get("shows_expired") else expired | deleted
        theirs = [(str(key), score) for key, score in search["hits"] if str(key) not in hidden]
        if called == "vector":
            label = search["score"]
            theirs, ours = theirs[:: -1 if "farthest" in label else 1], ours[: len(theirs)]
            if label in DISTANCES:
                theirs = [(key, -abs(score)) for key, score in theirs]
                ours = [(key, score if distance == "l2" else -math.sqrt(2 - 2 * score)) for key, score in ours]
            else:
                theirs = [(key, COSINES[label](score)) for key, score in theirs]
                ours = [(key, cosine_of(score, distance)) for key, score in ours]
                ours = [(key, max(0.0, score)) for key, score in ours] if label.startswith("max(0") else ours
        if called == "fts5":
            theirs = [(key, BM25[search["score"]](score)) for key, score in theirs]
        assert_same(ours, theirs)
        asked.append(called)
    assert all(asked.count(called) >= 5 for called in lists)


def test_another_collection_of_pgvector_is_apart(opened: Opened) -> None:
    other = recorded.answers("langchain_pgvector")["other"]
    source = opened("langchain_pgvector", collection=other["collection"])
    assert set(memories(taken(source))) == set(other["ids"])
    for search in other["searches"]:
        query = EngineQuery(search["query"], recorded.vector(search["query"]), {"vector": search["k"]})
        (found,) = source.search(query)
        assert_same(
            [(hit.memory_id, hit.score) for hit in found.hits],
            [(key, 1 - distance) for key, distance in search["hits"]],
        )


@pytest.mark.parametrize(
    "name", ["stranger", "langgraph_pg", "sqlite_vec", "langchain_qdrant", "lancedb", "mem0_faiss"]
)
def test_kinds_of_our_plugin_and_of_a_stranger_keep_the_same_protocol(
    name: str, opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "stranger":
        package = Path(__file__).parents[1] / "plugin" / "cems_workbench_example"
        install(tmp_path / "site", "stranger", {extensions.SOURCES: {"jsonl": f"{package.name}.jsonl:SOURCE"}}, package)
        with_source_kinds(tmp_path / "site", monkeypatch)
        rows = [
            {"id": f"m{n}", "text": text, "vector": recorded.vector(text).tolist()}
            for n, text in enumerate(recorded.texts()[:5])
        ]
        (tmp_path / "notes.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with closing(
        open_source(parse(f"jsonl:{tmp_path}/notes.jsonl", {})) if name == "stranger" else opened(name)
    ) as source:
        kind = source_kind(parse(source.address, {}))
        assert kind.name in extensions.declared(extensions.SOURCES) or name == "stranger"
        assert (address.SOURCE_KINDS.origin(kind.name) is None) == (name != "stranger")
        info, batches = source.probe(), taken(source)
        found = memories(batches)
        assert set(info.lists) <= set(kind.lists) and (kind.products.get(info.kind) or info.kind)
        assert sorted(id for batch in batches for id in batch.seen) == sorted(found) and len(found) >= 5
        for each in found.values():
            for vector in [chunk.vector for chunk in each.chunks] or [each.vector]:
                assert vector is None or vector.shape == (info.dimension,)
        known = {id: each.marker for id, each in found.items()}
        again = taken(
            source, lambda ids, markers: [id for id, m in zip(ids, markers, strict=True) if known.get(id) != m]
        )
        assert {id for batch in again for id in batch.seen} == set(found) and not memories(again)
        query = EngineQuery("deploy", recorded.vectors()[0], {called: 3 for called in info.lists})
        for answer in source.search(query):
            assert answer.name in info.lists and len(answer.hits) <= answer.asked == 3
            assert {hit.memory_id for hit in answer.hits} <= set(found)
            assert [hit.score for hit in answer.hits] == sorted((hit.score for hit in answer.hits), reverse=True)
        with pytest.raises((SourceError, InputError)):
            source.search(query, Trial({"no_such_setting": "1"}))
        with pytest.raises(InputError, match="no_such_option"):
            opened_with = parse(f"{source.address}{'&' if '?' in source.address else '?'}no_such_option=1", {})
            open_source(opened_with)


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


@pytest.mark.parametrize("name", stores("llamaindex", "mem0_pgvector", "sqlite_vec"))
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


def test_every_recorded_store_is_in_the_matrix_and_the_page_has_it() -> None:
    assert set(recorded.names()) == set(MATRIX)
    assert {each.name for each in store_matrix.TOOLS_RECORDINGS.iterdir()} == set(store_matrix.TOOLS)
    assert store_matrix.in_page(store_matrix.PAGE.read_text("utf-8")) == store_matrix.table()
