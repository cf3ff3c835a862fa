"""Folders that Chroma wrote: a store made of one, and one written of a store, through which nothing is lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from collection_rows import files_of

from cems_workbench.errors import InputError
from cems_workbench.jobs.chroma_export import COLLECTION, export_chroma
from cems_workbench.jobs.connecting import connect, folder_address, source_specs
from cems_workbench.jobs.factory import servers
from cems_workbench.jobs.store_status import ask_sources
from cems_workbench.models.protocol import Float32
from cems_workbench.pipeline.resources import Resources
from cems_workbench.records import Memory, ParsedInput, Relation
from cems_workbench.settings import Settings
from cems_workbench.sources.source import SourceError
from cems_workbench.store import Store
from tests.small_store import HashEmbedder

if TYPE_CHECKING:
    from conftest import Command

MEMORIES = (
    Memory("a", "the harbor crane", "Crane", project="port", tags=("dock", "iron"), session="s1", author="ann"),
    Memory("b", "Crane parts are kept in hall two", "Crane", pinned=True, importance="high", access_count=3),
    Memory("c", " ".join(f"word{n}, line {n}.\n\n" for n in range(400)), "A long one", scope="shared", priority=1.5),
    Memory("d 1", "an id with a blank", created_at=datetime(2026, 5, 1, 12, 30, tzinfo=UTC), category="note"),
)
EDGES = (Relation("b", "a", "supersedes"), Relation("a", "c", "related", 0.25, "ann"))


def resources(path: Path) -> Resources:
    return Resources(Store.open(path), HashEmbedder(), servers(Settings()))


def taken_from(folder: Path, to: Resources, **options: Any) -> Any:
    address = folder_address(folder, re_embed=options.pop("re_embed", False))
    return connect(to, Settings(), source_specs(to, address), only_searchable=True, **options)


def everything(found: Resources) -> Sequence[Any]:
    store = found.store
    ids = store.memories.ids()
    query: Float32 = HashEmbedder().encode(["crane"])[0]
    texts = store.indexes.texts(ids)
    hits = [memory_id for memory_id, _ in found.indexes.vectors.search(query, 10)]
    return (
        store.memories.read(),
        store.chunks.read(ids),
        texts,
        store.relations.read(),
        hits,
        found.indexes.lexical.search("crane", 9),
    )


def test_a_store_through_a_folder_of_chroma_is_the_same_and_embeds_no_memory(tmp_path: Path) -> None:
    import chromadb

    with closing(resources(tmp_path / "one")) as one, closing(resources(tmp_path / "two")) as two:
        one.store.add(ParsedInput("a.jsonl", "test", memories=MEMORIES, relations=EDGES))
        with pytest.raises(InputError, match="no current vectors of hash-16"):
            export_chroma(one.store, one.embedder, tmp_path / "out")
        one.store.chunks.choose("cems")
        one.refresh()
        report = export_chroma(one.store, one.embedder, tmp_path / "out")
        before = files_of(tmp_path / "out")
        refreshed, refresh = [], two.refresh
        two.refresh = lambda *given: refreshed.append(refresh(*given))  # type: ignore[method-assign]
        taken_from(tmp_path / "out", two)
        assert [each.embedded for each in refreshed] == [0]
        two.refresh = refresh  # type: ignore[method-assign]
        assert files_of(tmp_path / "out") == before
        for here, there in zip(everything(two), everything(one), strict=True):
            assert here == there
        chunks = two.store.chunks.statistics().chunks
        assert chunks > len(MEMORIES) and report.values["vectors"] == chunks
        assert [(each.problem, each.difference) for each in ask_sources(two.store)()] == [("", 0)]
        assert (two.refresh(), taken_from(tmp_path / "out", two).sources[0].read) == (None, 0)
        with pytest.raises(InputError, match="must be a new or empty folder"):
            export_chroma(one.store, one.embedder, tmp_path / "out")
    client = chromadb.PersistentClient(str(tmp_path / "out"))
    collection = client.get_collection(COLLECTION)
    assert (collection.count(), collection.metadata["embedder"]) == (chunks, "hash-16")
    found = collection.get(where={"tags": {"$contains": "iron"}})
    assert (found["ids"], found["documents"]) == (["a\x1f0"], ["the harbor crane"])
    nearest: Any = collection.query(query_embeddings=HashEmbedder().encode(["the harbor crane"]), n_results=1)
    assert (nearest["ids"], nearest["distances"][0][0]) == ([["a\x1f0"]], pytest.approx(0, abs=1e-6))


def folder_of(path: Path, rows: Mapping[str, str], vectors: Float32, names: Sequence[str] = ("notes",)) -> Path:
    import chromadb

    client: Any = chromadb.PersistentClient(str(path))
    for name in names:
        collection = client.create_collection(name, embedding_function=None, configuration={"hnsw": {"space": "l2"}})
        collection.add(ids=list(rows), documents=list(rows.values()), embeddings=vectors)
    client.close()
    return path


TEXTS = {"x": "one text", "y": "another", "z": "a third"}


def test_vectors_that_are_longer_than_1_are_searched_as_they_are(tmp_path: Path) -> None:
    embedder = HashEmbedder()
    folder = folder_of(tmp_path / "chroma", TEXTS, embedder.encode(list(TEXTS.values())) * 7)
    with closing(resources(tmp_path / "store")) as to:
        report = taken_from(folder / "notes", to)
        assert "3 of 3 stored vectors reproduced" in report.sources[0].embedder
        ((memory_id, cosine), *_) = to.indexes.vectors.search(embedder.encode(["another"])[0], 3)
        assert (memory_id, cosine) == ("y", pytest.approx(1.0, abs=1e-6))


@pytest.mark.parametrize("dimension", [16, 24])
def test_vectors_of_another_embedder_change_nothing_unless_the_texts_are_embedded_here(
    dimension: int, tmp_path: Path
) -> None:
    vectors = np.random.default_rng(0).normal(size=(3, dimension)).astype(np.float32)
    folder = folder_of(tmp_path / "chroma", TEXTS, vectors)
    with closing(resources(tmp_path / "store")) as to:
        to.store.add(ParsedInput("a.jsonl", "test", memories=MEMORIES[:1]))
        to.refresh()
        with pytest.raises(InputError, match=r"nothing was imported: --embedder MODEL .* --re-embed"):
            taken_from(folder, to)
        assert (to.store.memories.ids(), to.store.sources.read(), to.refresh()) == (["a"], [], None)
        taken_from(folder, to, re_embed=True)
        assert to.indexes.vectors.search(HashEmbedder().encode(["another"])[0], 1)[0][0] == "y"


def test_a_folder_that_cannot_be_imported_is_one_line(command: Command, tmp_path: Path) -> None:
    two = folder_of(tmp_path / "two", TEXTS, np.eye(3, dtype=np.float32), ("one", "other"))
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "chroma.sqlite3").write_bytes(b"not a database " * 999)
    (empty := tmp_path / "empty").mkdir()
    said = {
        (two,): "names no collection: add its name, as in chroma:",
        (two / "ohter",): "did you mean other? There are: one, other",
        (two / "one", "--language", "german"): "only --embedder, --re-embed and --store are for one",
        (tmp_path / "damaged",): "file is not a database",
        (empty,): "it is empty",
        (empty, "--re-embed"): "is no folder of Chroma",
    }
    for words, line in said.items():
        done = command("import", *words, "--store", tmp_path / "store")
        assert (done.code, done.out) == (2, "") and line in done.err.splitlines()[-1], words
    done = command("export", "--store", tmp_path / "store")
    assert done.code == 2 and "--chroma DIR" in done.err


def test_the_texts_of_a_folder_without_its_vectors_can_still_be_taken(tmp_path: Path) -> None:
    rows = {f"r{n}": f"text {n}" for n in range(1_100)}  # from a thousand on Chroma writes files of vectors
    folder = folder_of(tmp_path / "chroma", rows, np.random.default_rng(0).normal(size=(1_100, 16)).astype(np.float32))
    for file in folder.glob("*/*"):
        file.unlink()
    with closing(resources(tmp_path / "store")) as to:
        with pytest.raises(SourceError, match=r"files of its vectors are damaged; import --re-embed"):
            taken_from(folder, to)
        assert (to.store.memories.count(), to.store.sources.read()) == (0, [])
        assert taken_from(folder, to, re_embed=True).sources[0].memories.added == len(rows)
