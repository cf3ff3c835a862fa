"""Tables of LanceDB and folders with a FAISS index: what the source reads and answers is what the library does."""

from __future__ import annotations

import json
import math
import pickle
import re
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pyarrow as pa
import pytest
from collection_rows import memories, taken
from numpy.typing import NDArray

from cems_workbench.errors import InputError
from cems_workbench.sources.address import parse
from cems_workbench.sources.collection import SCORES
from cems_workbench.sources.connect import open_source
from cems_workbench.sources.source import NO_TRIAL, EngineQuery, ListName, Source, SourceError, Trial
from tests import recorded_stores as recorded
from tests.lazily import Lazy
from workbench_stores.lancedb import SCORE_COLUMNS

lancedb, indexes = Lazy("lancedb"), Lazy("lancedb.index")
DIMENSION = 16
ROWS = 300
QUERY = np.random.default_rng(7).normal(size=DIMENSION).astype(np.float32)
ENGINE_NAMES = {"l2": "l2", "cosine": "cosine", "ip": "dot"}


def row(number: int) -> dict[str, Any]:
    rng = np.random.default_rng(number)
    vector = np.zeros(DIMENSION, np.float32) if number == 5 else rng.normal(size=DIMENSION).astype(np.float32)
    meta = {"user_id": "mira" if number % 3 else "o'neil", "tags": ["a", "b"], "n": number}
    words = " ".join(rng.choice(["dog", "cat", "ships", "deploys", "port", "night"], 4 + number % 5))
    return {"id": f"r{number}", "text": f"{words} {number}", "vector": vector, "metadata": meta, "raw": b"\0"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lancedb.connect(tmp_path / "db").create_table("notes", data=[row(i) for i in range(ROWS)])
    return tmp_path / "db"


def own(folder: Path) -> Any:
    return lancedb.connect(folder).open_table("notes")


def opened(folder: Path, options: str = "") -> Source:
    return open_source(parse(f"lancedb:{folder}?table=notes{options}"))


def hits(source: Source, name: ListName = "vector", trial: Trial = NO_TRIAL, rows: int = 20) -> list[tuple[str, float]]:
    (found,) = source.search(EngineQuery("ships dog", QUERY, {name: rows}), trial)
    assert (found.name, found.asked) == (name, rows)
    return [(hit.memory_id, hit.score) for hit in found.hits]


def scored(
    rows: list[dict[str, Any]], name: ListName, score: Callable[[float], float] = float
) -> list[tuple[str, float]]:
    return [(each["id"], score(each[SCORE_COLUMNS[name]])) for each in rows]


@pytest.mark.parametrize("distance", ["l2", "cosine", "ip"])
def test_live_lists_are_lancedbs_own(folder: Path, distance: str) -> None:
    table, called = own(folder), ENGINE_NAMES[distance]
    table.create_index("text", config=indexes.FTS())
    exact = scored(table.search(QUERY).distance_type(called).limit(20).to_list(), "vector", SCORES[distance])
    every = table.search(QUERY).distance_type(called).limit(ROWS).to_list()
    with closing(opened(folder, f"&distance={distance}")) as source:
        info = source.probe()
        assert (info.memories, info.vectors, info.dimension, info.distance, info.index) == (
            ROWS,
            ROWS,
            16,
            distance,
            None,
        )
        assert info.lists == ("vector", "sparse", "source_hybrid")
        assert hits(source) == exact
        # A row of zeros is nowhere under cosine, however long the list; that is said.
        assert len(hits(source, rows=ROWS)) == len(every) == (ROWS - 1 if distance == "cosine" else ROWS)
        assert any("vector of zeros" in note for note in info.notes) == (distance == "cosine")
        assert hits(source, "sparse") == scored(
            table.search("ships dog", query_type="fts").limit(20).to_list(), "sparse"
        )
        hybrid = table.search(query_type="hybrid").vector(QUERY).text("ships dog").distance_type(called).limit(20)
        assert hits(source, "source_hybrid") == scored(hybrid.to_list(), "source_hybrid")


def test_an_index_names_the_distance_and_can_be_tried(folder: Path) -> None:
    table = own(folder)
    table.create_index("vector", config=indexes.IvfFlat(distance_type="cosine", num_partitions=8))
    with closing(opened(folder)) as source:
        info = source.probe()
        assert (info.distance, info.index) == ("cosine", "IVF_FLAT vector_idx")
        assert [(each.name, each.value) for each in info.settings] == [("nprobes", "20")]
        asked = table.search(QUERY).distance_type("cosine").limit(20)
        assert hits(source) == scored(asked.to_list(), "vector", SCORES["cosine"])
        few = hits(source, trial=Trial({"nprobes": "1"}))
        assert few == scored(asked.nprobes(1).to_list(), "vector", SCORES["cosine"])
        exact = hits(source, trial=Trial(exact=True))
        every = hits(source, trial=Trial({"nprobes": "8"}))
        # Without the index LanceDB adds numbers in another order.
        assert [key for key, _ in few] != [key for key, _ in exact] == [key for key, _ in every]
        assert [score for _, score in exact] == pytest.approx([score for _, score in every], abs=1e-6)
        with pytest.raises(
            SourceError, match="ef_search is no setting of a search; it may be nprobes, ef, refine_factor"
        ):
            hits(source, trial=Trial({"ef_search": "9"}))
    with closing(opened(folder, "&distance=l2")) as source:
        assert source.probe().index is None
        assert any("compares by cosine, so a search by l2 does not use it" in note for note in source.probe().notes)


def test_a_snapshot_is_of_one_version_and_writes_nothing(folder: Path) -> None:
    table = own(folder)
    table.delete("id IN ('r0', 'r1')")
    before = sorted(folder.rglob("*"))
    with closing(opened(folder)) as source:
        with source.snapshot() as snapshot:
            assert snapshot.total == ROWS - 2
            assert sorted(folder.rglob("*")) == before
            # What is written meanwhile is for the next snapshot.
            table.delete("id = 'r2'")
            table.add([row(ROWS)])
            found = {each.memory.id: each for batch in snapshot.batches(lambda ids, _: ids) for each in batch.taken}
        assert set(found) == {f"r{i}" for i in range(2, ROWS)}
        first = found["r7"]
        assert (first.memory.author, first.memory.tags, first.memory.content) == ("mira", ("a", "b"), row(7)["text"])
        assert first.vector is not None and np.array_equal(first.vector, row(7)["vector"])
        again = memories(taken(source))
        assert set(again) == {f"r{i}" for i in range(3, ROWS + 1)}
        assert {key: each.marker for key, each in again.items() if key in found} == {
            key: found[key].marker for key in again if key in found
        }
        assert any("columns not read" in note and "raw" in note for note in source.probe().notes)


def test_only_the_rows_of_a_user_are_read_and_searched(folder: Path) -> None:
    with closing(opened(folder, "&user=o%27neil")) as source:
        assert source.probe().memories == ROWS // 3
        assert set(memories(taken(source))) == {f"r{i}" for i in range(0, ROWS, 3)}
        assert {int(key[1:]) % 3 for key, _ in hits(source)} == {0}


def test_a_table_without_ids_has_row_numbers(tmp_path: Path) -> None:
    rows = [{"body": f"text {i}", "vector": np.full(4, i + 1, np.float32)} for i in range(3)]
    lancedb.connect(tmp_path / "db").create_table("notes", data=rows)
    with closing(open_source(parse(f"lancedb:{tmp_path / 'db'}"))) as source:
        found = memories(taken(source))
        assert {key: each.memory.content for key, each in found.items()} == {
            "0": "text 0",
            "1": "text 1",
            "2": "text 2",
        }
        (near,) = source.search(EngineQuery("", np.full(4, 3, np.float32), {"vector": 2}))
        assert [(hit.memory_id, hit.score) for hit in near.hits] == [("2", 0.0), ("1", -2.0)]


def test_the_model_of_an_embedding_function_is_named(folder: Path) -> None:
    # As LanceDB's own registry writes it (0.40.0).
    functions = [{"name": "openai", "model": {"name": "m-1"}, "source_column": "text", "vector_column": "vector"}]
    for written, named in ((json.dumps(functions), "m-1 (openai)"), ("[{}]", None), ("no json", None)):
        schema = pa.schema({"text": pa.string(), "vector": pa.list_(pa.float32(), 2)}, {"embedding_functions": written})
        lancedb.connect(folder).create_table("made", schema=schema, mode="overwrite")
        with closing(open_source(parse(f"lancedb:{folder}?table=made"))) as source:
            assert source.probe().model == named


def test_an_address_that_does_not_fit_is_one_line(folder: Path, tmp_path: Path) -> None:
    lancedb.connect(folder).create_table("others", data=[{"id": "a", "text": "no vector"}])
    (tmp_path / "empty").mkdir()
    for address, said in (
        (f"lancedb:{tmp_path / 'absent'}", "no such folder"),
        (f"lancedb:{tmp_path / 'empty'}", "no folder of LanceDB"),
        (f"lancedb:{folder}", "several tables: add table= with one of notes, others"),
        (f"lancedb:{folder}?table=note", "no table note; did you mean notes?"),
        (f"lancedb:{folder}?table=others", "has no column of vectors"),
        (f"lancedb:{folder}?table=notes&distance=dot", "it may be l2, cosine, ip"),
        (f"lancedb:{folder}?table=notes&id=key", "no column key"),
        (f"lancedb:{folder}?table=notes&limit=3", "it may be table, distance, id, vector, text, user"),
    ):
        with pytest.raises(InputError, match=said.replace("?", r"\?")):
            open_source(parse(address))


@pytest.mark.parametrize("config", ["IvfPq", "IvfSq", "HnswSq", "HnswPq"])
def test_cosine_over_quantised_vectors_is_no_doubled_distance(folder: Path, config: str) -> None:
    """lancedb 0.40.0, run on 2026-11-29: `_distance` is 2 × (1 − cosine) until a row is not in the index."""
    table = own(folder)
    more = {} if config in ("IvfSq", "HnswSq") else {"num_sub_vectors": 8}
    table.create_index("vector", config=getattr(indexes, config)(distance_type="cosine", num_partitions=1, **more))
    vectors = {f"r{i}": row(i)["vector"] for i in range(ROWS + 1) if i != 5}
    cosines = {key: float(each @ QUERY / np.linalg.norm(each) / np.linalg.norm(QUERY)) for key, each in vectors.items()}

    def error(found: list[tuple[str, float]]) -> float:
        return sum(abs(cosines[key] - score) for key, score in found) / len(found)

    with closing(opened(folder)) as source:
        raw = [each["_distance"] for each in table.search(QUERY).distance_type("cosine").limit(20).to_list()]
        found = hits(source)
        assert np.allclose([1 - score for _, score in found], np.asarray(raw) / 2)
        assert error(found) < error([(key, 1 - far) for (key, _), far in zip(found, raw, strict=True)]) / 2
        assert error(hits(source, trial=Trial(exact=True))) < 1e-5
        assert any("2 × (1 − cosine)" in note for note in source.probe().notes)
        table.add([row(ROWS)])
        assert error(hits(source)) < 1e-5


def test_two_full_text_indexes_are_searched_together_unless_one_is_named(tmp_path: Path) -> None:
    """lancedb 0.40.0, run on 2026-11-29: a search that names no column asks every full-text index."""
    words = [("deploy keys", "in the vault"), ("lunch", "deploy in July"), ("garage", "the code of the door")]
    rows = [
        {"id": f"r{i}", "title": title, "text": text, "vector": np.eye(3)[i]} for i, (title, text) in enumerate(words)
    ]
    table = lancedb.connect(tmp_path / "db").create_table("notes", data=rows)
    for column in ("title", "text"):
        table.create_index(column, config=indexes.FTS())
    asked = EngineQuery("deploy", np.ones(3, np.float32), {"sparse": 9, "source_hybrid": 9})
    for options, found in (("", ["r0", "r1"]), ("&text=title", ["r0"]), ("&text=text", ["r1"])):
        with closing(open_source(parse(f"lancedb:{tmp_path / 'db'}?table=notes{options}"))) as source:
            sparse, hybrid = source.search(asked)
            assert sorted(hit.memory_id for hit in sparse.hits) == found
            assert {hit.memory_id for hit in hybrid.hits[: len(found)]} == set(found)
            assert any("text and title are searched together" in note for note in source.probe().notes) != bool(options)
    with pytest.raises(InputError, match="body has no full-text index; there are text, title"):
        open_source(parse(f"lancedb:{tmp_path / 'db'}?table=notes&text=body")).probe()


def test_a_text_in_double_quotes_costs_only_the_lists_of_its_words(folder: Path) -> None:
    """lancedb 0.40.0, run on 2026-11-29: a phrase needs positions in the index, else it is an error."""
    table = own(folder)
    table.create_index("text", config=indexes.FTS())
    asked = EngineQuery('"ships dog"', QUERY, {"vector": 5, "sparse": 5, "source_hybrid": 5})
    with closing(opened(folder)) as source:
        lists = {each.name: each for each in source.search(asked)}
        assert len(lists["vector"].hits) == 5 and not lists["vector"].notes
        for name in ("sparse", "source_hybrid"):
            assert (
                not lists[name].hits
                and "refuses this text: Invalid input, position is not found" in lists[name].notes[0]
            )
        assert len(hits(source, "sparse", rows=5)) == 5
        table.create_index("text", config=indexes.FTS(with_position=True), replace=True)
        found = {each.name: each for each in source.search(asked)}["sparse"]
        assert found.hits and not found.notes


FAISS_DIMENSION, FAISS_ROWS = 16, 400
FAISS_QUERY = np.random.default_rng(9).normal(size=FAISS_DIMENSION).astype(np.float32)
VECTORS = np.random.default_rng(3).normal(size=(FAISS_ROWS, FAISS_DIMENSION)).astype(np.float32)


def payload(number: int) -> dict[str, Any]:
    return {
        "data": f"memory {number}",
        "user_id": "mira" if number % 4 else "lena",
        "created_at": "2026-01-02T03:04:05Z",
    }


def written(folder: Path, index: Any, rows: Mapping[int, Mapping[str, Any]], name: str = "mem0") -> Path:
    """The files as mem0 writes them."""
    folder.mkdir(exist_ok=True)
    faiss.write_index(index, str(folder / f"{name}.faiss"))
    beside = {"docstore": {f"m{i}": each for i, each in rows.items()}, "index_to_id": {str(i): f"m{i}" for i in rows}}
    (folder / f"{name}.json").write_text(json.dumps(beside), "utf-8")
    return folder


def made(kind: str, metric: int = faiss.METRIC_L2) -> Any:
    index = faiss.index_factory(FAISS_DIMENSION, kind, metric)
    index.train(VECTORS)
    index.add_with_ids(VECTORS, np.arange(FAISS_ROWS)) if kind.startswith("IDMap") else index.add(VECTORS)
    return index


def faiss_hits(source: Source, rows: int = 20, trial: Trial = NO_TRIAL) -> list[tuple[str, float]]:
    (found,) = source.search(EngineQuery("", FAISS_QUERY, {"vector": rows}), trial)
    return [(hit.memory_id, hit.score) for hit in found.hits]


def own_faiss(index: Any, rows: int = 20, **setting: Any) -> list[tuple[str, float]]:
    numbers, labels = index.search(FAISS_QUERY.reshape(1, -1), rows, **setting)
    turned = (lambda number: -math.sqrt(number)) if index.metric_type == faiss.METRIC_L2 else float
    return [
        (f"m{label}", turned(number)) for label, number in zip(labels[0].tolist(), numbers[0].tolist(), strict=True)
    ]


def all_rows() -> dict[int, dict[str, Any]]:
    return {i: payload(i) for i in range(FAISS_ROWS)}


@pytest.mark.parametrize(
    "kind", ["Flat", "IDMap,Flat", "IVF8,Flat", "IDMap,IVF8,Flat", "HNSW8", "PCA8,Flat", "IVF8,SQ8"]
)
def test_live_lists_are_those_of_faiss(kind: str, tmp_path: Path) -> None:
    index = made(kind, faiss.METRIC_INNER_PRODUCT if kind == "Flat" else faiss.METRIC_L2)
    with closing(open_source(parse(f"faiss:{written(tmp_path / 'f', index, all_rows())}"))) as source:
        info = source.probe()
        assert (info.memories, info.vectors, info.dimension) == (
            FAISS_ROWS,
            FAISS_ROWS,
            FAISS_DIMENSION,
        )
        assert info.distance == ("ip" if kind == "Flat" else "l2")
        assert (info.index is None) == (kind in ("Flat", "IDMap,Flat"))
        assert faiss_hits(source) == own_faiss(index)
        found = memories(taken(source))
        assert (len(found), found["m1"].memory.author) == (FAISS_ROWS, "mira")
        kept = np.stack([found[f"m{i}"].vector for i in range(FAISS_ROWS)])
        assert np.array_equal(kept, VECTORS) == (kind not in ("PCA8,Flat", "IVF8,SQ8"))
        if "IVF" in kind:
            few = faiss_hits(source, trial=Trial({"nprobe": "4"}))
            assert few == own_faiss(index, params=faiss.SearchParametersIVF(nprobe=4)) != faiss_hits(source)
        with pytest.raises(SourceError, match="ef is no setting of this index"):
            faiss_hits(source, trial=Trial({"ef": "4"}))


def test_deleted_memories_and_those_of_others_take_no_place_in_a_list(tmp_path: Path) -> None:
    rows = {i: each for i, each in all_rows().items() if i >= FAISS_ROWS // 2}
    folder = written(tmp_path / "f", made("Flat"), rows)
    nearest = [key for key, _ in own_faiss(made("Flat"), FAISS_ROWS) if int(key[1:]) >= FAISS_ROWS // 2]
    with closing(open_source(parse(f"faiss:{folder}"))) as source:
        assert any("200 vectors of the index belong to no memory" in note for note in source.probe().notes)
        assert [key for key, _ in faiss_hits(source)] == nearest[:20]
    with closing(open_source(parse(f"faiss:{folder}?user=lena"))) as source:
        assert source.probe().memories == FAISS_ROWS // 8
        within = [key for key in nearest if int(key[1:]) % 4 == 0]
        assert [key for key, _ in faiss_hits(source, trial=Trial({"filter": "within"}))] == within[:20]
        # mem0 takes twice as many as it is asked for, deleted ones too, and filters by user then.
        taken = [key for key, _ in own_faiss(made("Flat"), 40)]
        assert [key for key, _ in faiss_hits(source)] == [key for key in within if key in taken]


def test_a_user_far_from_the_query_gets_what_mem0_returns_and_is_told(tmp_path: Path) -> None:
    """mem0#6998 (2026-08-16) and #7072 (2026-08-22); as mem0ai 2.2.1 answers: 40 of another user are nearer than all six of this one."""
    order = [int(key[1:]) for key, _ in own_faiss(made("Flat"), FAISS_ROWS)]
    rows = {i: payload(i) | {"user_id": "alice" if i in order[40:46] else "bob"} for i in range(FAISS_ROWS)}
    folder = written(tmp_path / "f", made("Flat"), rows)
    with closing(open_source(parse(f"faiss:{folder}?user=alice"))) as source:
        info = source.probe()
        assert any(note.startswith("mem0 takes the nearest 2 k vectors of all users") for note in info.notes)
        assert [(each.name, each.value, each.tries) for each in info.settings] == [("filter", "after", ("within",))]
        found = {rows: source.search(EngineQuery("", FAISS_QUERY, {"vector": rows}))[0] for rows in (5, 20, 21, 23)}
        assert [len(one.hits) for one in found.values()] == [0, 0, 2, 6]
        assert found[5].notes == (
            "mem0 takes the nearest 10 of all users and filters by user after that: 0 of the 6 memories that pass are among these; "
            "the first is at rank 41 of all",
        )
        assert not found[23].notes
        assert [key for key, _ in faiss_hits(source, 5, Trial({"filter": "within"}))] == [f"m{i}" for i in order[40:45]]


def test_a_partitioned_index_is_read_after_a_deletion(tmp_path: Path) -> None:
    index = made("IVF8,Flat")
    index.remove_ids(np.arange(3))
    folder = written(tmp_path / "f", index, {i: each for i, each in all_rows().items() if i >= 3})
    with closing(open_source(parse(f"faiss:{folder}"))) as source:
        found = memories(taken(source))
        assert np.array_equal(np.stack([found[f"m{i}"].vector for i in range(3, FAISS_ROWS)]), VECTORS[3:])
        assert faiss_hits(source) == own_faiss(index)


def test_files_that_change_are_read_again(tmp_path: Path) -> None:
    folder = written(tmp_path / "f", made("Flat"), {0: payload(0)})
    with closing(open_source(parse(f"faiss:{folder}"))) as source:
        assert [key for key, _ in faiss_hits(source)] == ["m0"]
        before = sorted(folder.iterdir())
        written(folder, made("Flat"), {0: payload(0), 1: payload(1)})
        assert {key for key, _ in faiss_hits(source)} == {"m0", "m1"} == set(memories(taken(source)))
        assert sorted(folder.iterdir()) == before


class Trap:
    """What a pickle does when it is read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("trap"),)


def test_a_pickle_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "f"
    folder.mkdir()
    faiss.write_index(made("Flat"), str(folder / "index.faiss"))
    (folder / "index.pkl").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(InputError, match=r"the documents are in index\.pkl; a pickle runs what it says .* NAME\.json"):
        open_source(parse(f"faiss:{folder}"))
    assert not (tmp_path / "trap").exists()


def test_a_folder_of_another_form_is_one_line(tmp_path: Path) -> None:
    index: NDArray[np.float32] = made("Flat")
    both = written(written(tmp_path / "both", index, {0: payload(0)}), index, {0: payload(0)}, "other")
    damaged = written(tmp_path / "damaged", index, {0: payload(0)})
    (damaged / "mem0.faiss").write_bytes(b"IxF2" + b"\xff" * 40)
    torn = written(tmp_path / "torn", index, {0: payload(0)})
    (torn / "mem0.json").write_text('{"docstore": {', "utf-8")
    listed = written(tmp_path / "listed", index, {0: payload(0)})
    (listed / "mem0.json").write_text('{"docstore": ["a"], "index_to_id": {"0": "a"}}', "utf-8")
    (tmp_path / "empty").mkdir()
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "embeddings").write_bytes(b"")
    for error, address, said in (
        (InputError, tmp_path / "absent", "no such folder"),
        (InputError, tmp_path / "empty", "no folder of FAISS that is known"),
        (InputError, bare, "without its texts; index with content=True"),
        (InputError, both, r"several indexes \(mem0, other\); add name="),
        (InputError, f"{both}?name=third", "no third.faiss"),
        (InputError, f"{both}?table=a", "it may be name, user"),
        (SourceError, damaged, "FAISS cannot read the index"),
        (SourceError, torn, f"faiss:{torn}: mem0.json is no docstore of mem0"),
        (SourceError, listed, "mem0.json is no docstore of mem0"),
    ):
        with pytest.raises(error, match=said):
            open_source(parse(f"faiss:{address}"))
    with closing(open_source(parse(f"faiss:{both}?name=other"))) as source:
        assert source.probe().memories == 1


def test_txtai_keeps_its_texts_beside_the_index(tmp_path: Path) -> None:
    folder = recorded.restore("txtai", tmp_path) / "txtai"
    before = {each.name: each.read_bytes() for each in folder.iterdir()}
    with closing(open_source(parse(f"faiss:{folder}"))) as source:
        found = memories(taken(source))
        assert len(found) == 44 and found["tx-m001"].memory.tags == ("style",)
        assert found["tx-m001"].memory.created_at is not None
    assert {each.name: each.read_bytes() for each in folder.iterdir()} == before


@pytest.mark.parametrize(("kind", "widest"), [("HNSW8", "efSearch 400"), ("IVF8,Flat", "nprobe 8")])
def test_a_filter_far_from_the_query_is_searched_wider_and_said(tmp_path: Path, kind: str, widest: str) -> None:
    """faiss-cpu 1.15.1, run on 2026-11-29: a graph and partitions are searched near the query, where nothing passes."""
    far = [int(key[1:]) for key, _ in own_faiss(made("Flat"), FAISS_ROWS)[-20:]]
    rows = {i: payload(i) | {"user_id": "noor" if i in far else "mira"} for i in range(FAISS_ROWS)}
    index = made(kind)
    folder = written(tmp_path / "f", index, rows)
    with closing(open_source(parse(f"faiss:{folder}?user=noor"))) as source:
        (found,) = source.search(EngineQuery("", FAISS_QUERY, {"vector": 5}), Trial({"filter": "within"}))
        assert [hit.memory_id for hit in found.hits] == [f"m{i}" for i in far[:5]]
        (note,) = found.notes
        short = f"of the 20 memories that pass the filter, FAISS found [0-4] near the query with its own {widest.split()[0]}"
        assert re.match(short, note)
        assert f"asked again with {widest}, which looks at all" in note
        # A setting that is tried is what is asked.
        name, value = source.probe().settings[0].name, source.probe().settings[0].value
        assert len(faiss_hits(source, 5, Trial({name: value, "filter": "within"}))) < 5
        assert widest.split()[1] == source.probe().settings[0].tries[-1]
    with closing(open_source(parse(f"faiss:{folder}?user=mira"))) as source:
        (found,) = source.search(EngineQuery("", FAISS_QUERY, {"vector": 5}), Trial({"filter": "within"}))
        assert len(found.hits) == 5 and not found.notes
