"""Memories, queries, relations and BEIR's folder: what is written is read again as it was, and what is not is named."""

from __future__ import annotations

import csv
import io
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records import MEMORIES, QUERIES, RELATIONS, judgments

from cems_workbench.formats import DataSet, detect, read, write_dataset
from cems_workbench.formats.base import cells

SUFFIX = {"memories-csv": "csv", "beir": "folder", "mteb": "folder"}
SOME_MEMORIES = st.lists(MEMORIES, min_size=1, max_size=5, unique_by=lambda one: one.id)
SOME_QUERIES = st.lists(QUERIES, max_size=4, unique_by=lambda one: one.qid)


def through(form, dataset):
    """What was said of the writing, what is read again, and what the file is taken for when nobody says."""
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / f"file.{SUFFIX.get(form, 'jsonl')}"
        done = write_dataset(form, dataset, path)
        return done, read(path, form), form if path.is_dir() else detect(path)


@pytest.mark.parametrize("form", ["memories-jsonl", "memories-csv"])
@given(memories=SOME_MEMORIES)
def test_memories_lose_nothing(form, memories):
    done, parsed, found = through(form, DataSet(memories))
    assert parsed.memories == tuple(memories)
    assert (done.left_out, done.not_kept, parsed.errors, parsed.notes) == ((), (), (), ())
    assert (done.rows, found) == ({"memories": len(memories)}, form)


@given(queries=st.lists(QUERIES, min_size=1, max_size=5, unique_by=lambda one: one.qid))
def test_queries_lose_nothing(queries):
    done, parsed, found = through("queries-jsonl", DataSet((), queries=queries))
    assert parsed.queries == tuple(queries)
    assert (done.left_out, done.not_kept, parsed.errors, found) == ((), (), (), "queries-jsonl")


@given(
    relations=st.lists(
        RELATIONS, min_size=1, max_size=5, unique_by=lambda one: (one.source_id, one.target_id, one.kind)
    )
)
def test_relations_lose_nothing(relations):
    done, parsed, found = through("relations-jsonl", DataSet((), relations=relations))
    assert parsed.relations == tuple(relations)
    assert (done.left_out, done.not_kept, parsed.errors, found) == ((), (), (), "relations-jsonl")


@pytest.mark.parametrize("form", ["beir", "mteb"])
@given(data=st.data(), memories=SOME_MEMORIES, queries=SOME_QUERIES)
def test_beir_and_mteb_lose_nothing_of_memories_and_queries_and_of_judgments_only_what_they_name(
    form, data, memories, queries
):
    labels = []
    if queries:
        pairs = judgments(st.sampled_from([one.qid for one in queries]), st.sampled_from([one.id for one in memories]))
        labels = data.draw(st.lists(pairs, max_size=5, unique_by=lambda one: (one.qid, one.memory_id, one.judge)))
    done, parsed, _ = through(form, DataSet(memories, queries=queries, judgments=labels))
    assert (parsed.memories, parsed.queries, parsed.errors) == (tuple(memories), tuple(queries), ())
    assert all("judgments" in line for line in done.not_kept)
    grades = {}
    for one in labels:
        grades.setdefault((one.qid, one.memory_id), set()).add(one.grade)
    back = {(one.qid, one.memory_id): one.grade for one in parsed.judgments}
    assert all(grades[pair] == {grade} for pair, grade in back.items())
    missing = {pair for pair in grades if pair not in back}
    assert len(missing) == len(done.left_out)
    for qid, memory_id in missing:  # judges differ, or a line of columns cannot hold the id
        blank = any(name.strip() != name for name in (qid, memory_id))
        assert len(grades[qid, memory_id]) > 1 or blank


@given(memories=SOME_MEMORIES)
def test_no_cell_of_the_memories_is_a_formula(memories):
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "m.csv"
        write_dataset("memories-csv", DataSet(memories), path)
        rows = list(csv.reader(io.StringIO(path.read_bytes().decode(), newline="")))
    for row in rows:
        for cell in row:
            assert not cell.startswith(("=", "+", "-", "@", "\t", "\r"))
            assert cells.guarded(cells.restored(cell)) == cell
