"""Folders with a FAISS index: what the source reads and answers is what FAISS itself does."""

from __future__ import annotations

import json
import math
import pickle
import re
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from collection_rows import memories, taken
from numpy.typing import NDArray

from cems_workbench.errors import InputError
from cems_workbench.sources.address import parse
from cems_workbench.sources.connect import open_source
from cems_workbench.sources.source import NO_TRIAL, EngineQuery, Source, SourceError, Trial
from tests import recorded_stores as recorded

DIMENSION, ROWS = 16, 400
QUERY = np.random.default_rng(9).normal(size=DIMENSION).astype(np.float32)
VECTORS = np.random.default_rng(3).normal(size=(ROWS, DIMENSION)).astype(np.float32)


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
    index = faiss.index_factory(DIMENSION, kind, metric)
    index.train(VECTORS)
    index.add_with_ids(VECTORS, np.arange(ROWS)) if kind.startswith("IDMap") else index.add(VECTORS)
    return index


def hits(source: Source, rows: int = 20, trial: Trial = NO_TRIAL) -> list[tuple[str, float]]:
    (found,) = source.search(EngineQuery("", QUERY, {"vector": rows}), trial)
    return [(hit.memory_id, hit.score) for hit in found.hits]


def own(index: Any, rows: int = 20, **setting: Any) -> list[tuple[str, float]]:
    numbers, labels = index.search(QUERY.reshape(1, -1), rows, **setting)
    turned = (lambda number: -math.sqrt(number)) if index.metric_type == faiss.METRIC_L2 else float
    return [
        (f"m{label}", turned(number)) for label, number in zip(labels[0].tolist(), numbers[0].tolist(), strict=True)
    ]


def all_rows() -> dict[int, dict[str, Any]]:
    return {i: payload(i) for i in range(ROWS)}


@pytest.mark.parametrize(
    "kind", ["Flat", "IDMap,Flat", "IVF8,Flat", "IDMap,IVF8,Flat", "HNSW8", "PCA8,Flat", "IVF8,SQ8"]
)
def test_live_lists_are_those_of_faiss(kind: str, tmp_path: Path) -> None:
    index = made(kind, faiss.METRIC_INNER_PRODUCT if kind == "Flat" else faiss.METRIC_L2)
    with closing(open_source(parse(f"faiss:{written(tmp_path / 'f', index, all_rows())}"))) as source:
        info = source.probe()
        assert (info.memories, info.vectors, info.dimension) == (ROWS, ROWS, DIMENSION)
        assert info.distance == ("ip" if kind == "Flat" else "l2")
        assert (info.index is None) == (kind in ("Flat", "IDMap,Flat"))
        assert hits(source) == own(index)
        found = memories(taken(source))
        assert (len(found), found["m1"].memory.author) == (ROWS, "mira")
        kept = np.stack([found[f"m{i}"].vector for i in range(ROWS)])
        assert np.array_equal(kept, VECTORS) == (kind not in ("PCA8,Flat", "IVF8,SQ8"))
        if "IVF" in kind:
            few = hits(source, trial=Trial({"nprobe": "4"}))
            assert few == own(index, params=faiss.SearchParametersIVF(nprobe=4)) != hits(source)
        with pytest.raises(SourceError, match="ef is no setting of this index"):
            hits(source, trial=Trial({"ef": "4"}))


def test_deleted_memories_and_those_of_others_take_no_place_in_a_list(tmp_path: Path) -> None:
    rows = {i: each for i, each in all_rows().items() if i >= ROWS // 2}
    folder = written(tmp_path / "f", made("Flat"), rows)
    nearest = [key for key, _ in own(made("Flat"), ROWS) if int(key[1:]) >= ROWS // 2]
    with closing(open_source(parse(f"faiss:{folder}"))) as source:
        assert any("200 vectors of the index belong to no memory" in note for note in source.probe().notes)
        assert [key for key, _ in hits(source)] == nearest[:20]
    with closing(open_source(parse(f"faiss:{folder}?user=lena"))) as source:
        assert source.probe().memories == ROWS // 8
        within = [key for key in nearest if int(key[1:]) % 4 == 0]
        assert [key for key, _ in hits(source, trial=Trial({"filter": "within"}))] == within[:20]
        # mem0 takes twice as many as it is asked for, deleted ones too, and filters by user then.
        taken = [key for key, _ in own(made("Flat"), 40)]
        assert [key for key, _ in hits(source)] == [key for key in within if key in taken]


def test_a_user_far_from_the_query_gets_what_mem0_returns_and_is_told(tmp_path: Path) -> None:
    """mem0#6998 (2026-08-16) and #7072 (2026-08-22); as mem0ai 2.2.1 answers: 40 of another user are nearer than all six of this one."""
    order = [int(key[1:]) for key, _ in own(made("Flat"), ROWS)]
    rows = {i: payload(i) | {"user_id": "alice" if i in order[40:46] else "bob"} for i in range(ROWS)}
    folder = written(tmp_path / "f", made("Flat"), rows)
    with closing(open_source(parse(f"faiss:{folder}?user=alice"))) as source:
        info = source.probe()
        assert any(note.startswith("mem0 takes the nearest 2 k vectors of all users") for note in info.notes)
        assert [(each.name, each.value, each.tries) for each in info.settings] == [("filter", "after", ("within",))]
        found = {rows: source.search(EngineQuery("", QUERY, {"vector": rows}))[0] for rows in (5, 20, 21, 23)}
        assert [len(one.hits) for one in found.values()] == [0, 0, 2, 6]
        assert found[5].notes == (
            "mem0 takes the nearest 10 of all users and filters by user after that: 0 of the 6 memories that pass are among these; "
            "the first is at rank 41 of all",
        )
        assert not found[23].notes
        assert [key for key, _ in hits(source, 5, Trial({"filter": "within"}))] == [f"m{i}" for i in order[40:45]]


def test_a_partitioned_index_is_read_after_a_deletion(tmp_path: Path) -> None:
    index = made("IVF8,Flat")
    index.remove_ids(np.arange(3))
    folder = written(tmp_path / "f", index, {i: each for i, each in all_rows().items() if i >= 3})
    with closing(open_source(parse(f"faiss:{folder}"))) as source:
        found = memories(taken(source))
        assert np.array_equal(np.stack([found[f"m{i}"].vector for i in range(3, ROWS)]), VECTORS[3:])
        assert hits(source) == own(index)


def test_files_that_change_are_read_again(tmp_path: Path) -> None:
    folder = written(tmp_path / "f", made("Flat"), {0: payload(0)})
    with closing(open_source(parse(f"faiss:{folder}"))) as source:
        assert [key for key, _ in hits(source)] == ["m0"]
        before = sorted(folder.iterdir())
        written(folder, made("Flat"), {0: payload(0), 1: payload(1)})
        assert {key for key, _ in hits(source)} == {"m0", "m1"} == set(memories(taken(source)))
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
    far = [int(key[1:]) for key, _ in own(made("Flat"), ROWS)[-20:]]
    rows = {i: payload(i) | {"user_id": "noor" if i in far else "mira"} for i in range(ROWS)}
    index = made(kind)
    folder = written(tmp_path / "f", index, rows)
    with closing(open_source(parse(f"faiss:{folder}?user=noor"))) as source:
        (found,) = source.search(EngineQuery("", QUERY, {"vector": 5}), Trial({"filter": "within"}))
        assert [hit.memory_id for hit in found.hits] == [f"m{i}" for i in far[:5]]
        (note,) = found.notes
        short = f"of the 20 memories that pass the filter, FAISS found [0-4] near the query with its own {widest.split()[0]}"
        assert re.match(short, note)
        assert f"asked again with {widest}, which looks at all" in note
        # A setting that is tried is what is asked.
        name, value = source.probe().settings[0].name, source.probe().settings[0].value
        assert len(hits(source, 5, Trial({name: value, "filter": "within"}))) < 5
        assert widest.split()[1] == source.probe().settings[0].tries[-1]
    with closing(open_source(parse(f"faiss:{folder}?user=mira"))) as source:
        (found,) = source.search(EngineQuery("", QUERY, {"vector": 5}), Trial({"filter": "within"}))
        assert len(found.hits) == 5 and not found.notes
