"""Vectors that were made beforehand are taken at import where they are the embedder's of these texts, and refused where they are not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cems_workbench.models.minilm_embedder import local_embedder
from cems_workbench.models.protocol import Float32

if TYPE_CHECKING:
    from conftest import Command

pytestmark = [pytest.mark.models]
COUNT = 40
TEXTS = [
    f"note {i}: the {word} of harbor {i % 7} is kept in drawer {i}"
    for i, word in enumerate(["key", "plan", "bill", "map"] * 10)
]
IDS = [f"m{i}" for i in range(COUNT)]


@pytest.fixture(scope="module")
def vectors() -> Float32:
    """What the packaged embedder makes of the texts, each of another length."""
    made = local_embedder("sentence-transformers/all-MiniLM-L6-v2").encode(TEXTS)
    return made * np.linspace(0.5, 3, COUNT, dtype=np.float32)[:, None]


@pytest.fixture
def memories(tmp_path: Path) -> Path:
    path = tmp_path / "memories.jsonl"
    path.write_text("".join(json.dumps({"id": i, "content": text}) + "\n" for i, text in zip(IDS, TEXTS, strict=True)))
    return path


def parquet(path: Path, ids: list[Any], rows: list[Any], kind: pa.DataType | None = None) -> Path:
    pq.write_table(
        pa.table({"id": pa.array(ids, pa.string()), "vector": pa.array(rows, kind or pa.list_(pa.float64()))}), path
    )
    return path


def found(command: Command, memories: Path, store: Path, given: Path) -> tuple[int, dict[str, Any]]:
    ended = command("import", str(memories), "--vectors", str(given), "--store", str(store), "--json")
    return ended.code, json.loads(ended.out)


def test_given_vectors_are_found_by_as_embedded_ones_are(
    command: Command, memories: Path, vectors: Float32, tmp_path: Path
) -> None:
    np.save(tmp_path / "v.npy", vectors.astype(np.float16))
    order = np.random.default_rng(5).permutation(COUNT).tolist()
    fixed = parquet(
        tmp_path / "v.parquet",
        [IDS[i] for i in order] + ["stranger"],
        [vectors[i].tolist() for i in order] + [vectors[0].tolist()],
        pa.list_(pa.float32(), 384),
    )
    hits = []
    for name, given in (("npy", tmp_path / "v.npy"), ("parquet", fixed)):
        code, said = found(command, memories, tmp_path / name, given)
        assert (code, said["vectors_taken"], said["embedded"], said["problem"]) == (0, COUNT, 0, None)
        hits.append(ranked(command, tmp_path / name))
    assert command("import", str(memories), "--store", str(tmp_path / "embedded")).code == 0
    hits.append(ranked(command, tmp_path / "embedded"))
    assert [row[0] for row in hits[0]] == [row[0] for row in hits[1]] == [row[0] for row in hits[2]]
    np.testing.assert_allclose([row[1] for row in hits[1]], [row[1] for row in hits[2]], atol=1e-5)


def ranked(command: Command, store: Path) -> list[tuple[str, float]]:
    ended = command(
        "search", "which drawer has the plan of harbor 3", "--preset", "cems", "--store", str(store), "--json"
    )
    return [(row["memory_id"], row["score"]) for row in json.loads(ended.out)["results"]]


def test_bad_rows_are_named_and_what_has_no_vector_is_embedded(
    command: Command, memories: Path, vectors: Float32, tmp_path: Path
) -> None:
    rows: list[Any] = [vector.tolist() for vector in vectors]
    rows[3], rows[4], rows[5], rows[6] = rows[3][:7], None, [float("nan")] * 384, [0.0] * 384
    given = parquet(tmp_path / "v.parquet", [*IDS[:9], None, IDS[1]], [*rows[:9], rows[9], rows[1]])
    code, said = found(command, memories, tmp_path / "store", given)
    assert [(error["row"], error["field"]) for error in said["errors"]] == [
        (4, "vector"),
        (5, "vector"),
        (6, "vector"),
        (7, "vector"),
        (10, "id"),
        (11, "id"),
    ]
    assert "it has 7 values; the embedder's have 384" in said["errors"][0]["reason"]
    assert (code, said["vectors_taken"], said["embedded"], said["problem"]) == (2, 5, COUNT - 5, None)


def test_vectors_of_other_texts_are_refused_and_a_search_embeds_what_is_there(
    command: Command, memories: Path, vectors: Float32, tmp_path: Path
) -> None:
    given = parquet(tmp_path / "v.parquet", IDS, [vector.tolist() for vector in np.roll(vectors, 1, axis=0)])
    code, said = found(command, memories, tmp_path / "store", given)
    assert code == 2 and said["memories_in_store"] == COUNT
    assert "v.parquet: the vector of m" in said["problem"] and "the minimum 0.9" in said["problem"]
    assert len(ranked(command, tmp_path / "store")) > 0


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("v.csv", "the suffix must be .parquet or .npy"),
        ("none.parquet", "no such file"),
        ("text.npy", "it is no .npy file of numbers"),
        ("text.parquet", "it cannot be read as Parquet"),
        ("other.parquet", "it has no column 'vector'; it has id, embedding"),
        ("words.parquet", "not a list of floating point numbers"),
        ("short.npy", "it has 3 rows for 40 memories"),
        ("narrow.npy", "its vectors have 7 values; the embedder's have 384"),
    ],
)
def test_a_file_that_has_none_is_one_line(
    command: Command, memories: Path, tmp_path: Path, name: str, said: str
) -> None:
    given = tmp_path / name
    if name.startswith("text"):
        given.write_text("no vectors")
    elif name == "other.parquet":
        pq.write_table(pa.table({"id": ["a"], "embedding": [[0.5]]}), given)
    elif name == "words.parquet":
        pq.write_table(pa.table({"id": ["a"], "vector": ["0.5"]}), given)
    elif name.endswith(".npy"):
        np.save(given, np.ones((3, 384) if name == "short.npy" else (COUNT, 7), np.float32))
    ended = command("import", str(memories), "--vectors", str(given), "--store", str(tmp_path / "store"))
    assert ended.code == 2
    assert said in ended.err and len([line for line in ended.err.splitlines() if "--vectors" in line]) == 1
