"""Tables of LanceDB: what the source reads and answers is what LanceDB itself does."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import lancedb
import numpy as np
import pyarrow as pa
import pytest
from collection_rows import memories, taken
from lancedb.index import FTS, HnswPq, HnswSq, IvfFlat, IvfPq, IvfSq

from cems_workbench.errors import InputError
from cems_workbench.sources.address import parse
from cems_workbench.sources.collection import SCORES
from cems_workbench.sources.connect import open_source
from cems_workbench.sources.source import NO_TRIAL, EngineQuery, ListName, Source, SourceError, Trial
from workbench_stores.lancedb import SCORE_COLUMNS

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
    table.create_index("text", config=FTS())
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
    table.create_index("vector", config=IvfFlat(distance_type="cosine", num_partitions=8))
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


@pytest.mark.parametrize("config", [IvfPq, IvfSq, HnswSq, HnswPq], ids=lambda config: config.__name__)
def test_cosine_over_quantised_vectors_is_no_doubled_distance(folder: Path, config: Any) -> None:
    """lancedb 0.40.0, run on 2026-11-29: `_distance` is 2 × (1 − cosine) until a row is not in the index."""
    table = own(folder)
    more = {} if config in (IvfSq, HnswSq) else {"num_sub_vectors": 8}
    table.create_index("vector", config=config(distance_type="cosine", num_partitions=1, **more))
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
        table.create_index(column, config=FTS())
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
    table.create_index("text", config=FTS())
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
        table.create_index("text", config=FTS(with_position=True), replace=True)
        found = {each.name: each for each in source.search(asked)}["sparse"]
        assert found.hits and not found.notes
