"""The evidence file: what is written is read back, a broken-off gather is gone on with, and a stranger's file is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from cems_workbench.config import PipelineConfig, dump_config, with_values
from cems_workbench.errors import InputError
from cems_workbench.evaluation.evidence_file import (
    EvidenceFile,
    Header,
    is_evidence_file,
    mismatch,
    read_evidence_file,
    read_header,
    replace_judgments,
)
from cems_workbench.pipeline import Evidence, Hit, ModelScore, RankedList, Variant, bundle_from, replay
from cems_workbench.records import Chunk, Judgment, Memory, Query, Relation

NOW = datetime(2026, 9, 1, 12, 30, 15, 123456, tzinfo=UTC)
HEADER = Header("sample", "store1", 3, "minilm", dump_config(PipelineConfig()), NOW.isoformat())
QUERIES = [Query("q2", "second", "org/repo", NOW, "temporal"), Query("q1", "first")]
SCORES = {
    "a": ModelScore(1.5, "text of a", None, {"cached": True}),
    "b": ModelScore(None, "text of b", "timeout: 30 s"),
    "c": ModelScore(float("nan")),
}
JUDGMENTS = [Judgment("q1", "a", 3), Judgment("q1", "b", 0, "anna"), Judgment("q2", "gone", 1, "m", "model")]


def evidence(query: str, ids: str = "abc", **fields: Any) -> Evidence:
    hits = tuple(Hit(key, 0.9 - 0.1 * i) for i, key in enumerate(ids))
    return Evidence(
        query=query,
        memories={key: Memory(key, f"text of {key}", tags=("x",), created_at=NOW, session="s") for key in ids},
        variants=(Variant(query), Variant("other", "expansion")),
        lists=(
            RankedList("vector:0", "vector", 0, hits),
            RankedList("lexical:1", "lexical", 1, ()),
            RankedList("recency", "recency", None, hits[1:]),
        ),
        as_of=NOW,
        project="org/repo",
        model_scores={"cross_encoder": {key: score for key, score in SCORES.items() if key in ids}},
        judge_scores={"judge": {"a": ModelScore(-3.25, "text of a")}},
        embeddings={key: np.array([ord(key), 0.5, 0.25], dtype=np.float32) for key in ids if key != "b"},
        notes={"query": {"route": "hybrid"}, "gathered": {"lists.vector.depth": 150}, "warnings": {"lists": ["é"]}},
        **fields,
    )


def write(path: Path, evidences: Mapping[str, Evidence], *, finish: bool = True, header: Header = HEADER) -> str | None:
    with EvidenceFile.create(path, header, QUERIES, JUDGMENTS) as file:
        for qid, one in evidences.items():
            file.add(qid, one, 0.25)
        return file.finish() if finish else None


BOTH = {"q1": evidence("first"), "q2": evidence("second", "cad")}


def test_a_file_reads_back_to_the_same_evidence(tmp_path: Path) -> None:
    path = tmp_path / "e.evidence"
    mark = write(path, BOTH)
    found = read_evidence_file(path)
    assert found.header == HEADER
    assert list(found.queries) == QUERIES
    assert sorted(found.judgments, key=str) == sorted(JUDGMENTS, key=str)
    assert list(found.evidences) == ["q2", "q1"]  # in the order of the query set
    assert (found.content_hash, found.complete, found.seconds) == (mark, True, 0.5)
    for qid, one in found.evidences.items():
        assert bundle_from(one) == bundle_from(BOTH[qid])
        assert replay(one, PipelineConfig()).same_as(replay(BOTH[qid], PipelineConfig()))
    assert found.evidences["q1"].memories["a"] is found.evidences["q2"].memories["a"]  # kept once


def test_a_memory_is_in_the_file_once_however_many_queries_found_it(tmp_path: Path) -> None:
    path = tmp_path / "e.evidence"
    write(path, BOTH)
    with duckdb.connect(str(path), read_only=True) as connection:
        assert connection.execute("SELECT count(*), count(DISTINCT id) FROM memories").fetchall() == [(4, 4)]


def test_what_was_added_before_a_kill_is_there_and_is_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "e.evidence"
    write(path, {"q1": BOTH["q1"]}, finish=False)
    assert not read_evidence_file(path).complete
    with EvidenceFile.resume(path, replace(HEADER, created_at="later"), QUERIES) as file:
        assert file.finished == {"q1"}
        assert file.header.created_at == HEADER.created_at
        file.add("q2", BOTH["q2"], 0.25)
        resumed = file.finish()
    whole = tmp_path / "whole.evidence"
    assert write(whole, BOTH) == resumed
    assert bundle_from(read_evidence_file(path).evidences["q2"]) == bundle_from(BOTH["q2"])


def test_an_addition_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "e.evidence"
    changed = replace(BOTH["q2"], memories={**BOTH["q2"].memories, "a": Memory("a", "other text")})
    with EvidenceFile.create(path, HEADER, QUERIES, JUDGMENTS) as file:
        file.add("q1", BOTH["q1"], 0.1)
        with pytest.raises(InputError, match="memory a is not the one"):
            file.add("q2", changed, 0.1)
        assert file.finished == {"q1"}
    assert list(read_evidence_file(path).evidences) == ["q1"]


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"store_id": "store2"}, r"gathered from another store \(store1; this one is store2\)"),
        ({"content_version": 4}, "the store has changed since: its content was version 3 and is 4 now"),
        ({"embedder": "nomic"}, "with the embedder minilm, and nomic is set now"),
        ({"only_project": True}, "over all projects"),
        (
            {"config_yaml": dump_config(with_values(PipelineConfig(), {"lists.vector.depth": 20}))},
            "other gather parameters: lists.vector.depth was 150 and is 20",
        ),
    ],
)
def test_a_file_gathered_with_something_else_is_refused_with_the_reason_and_can_be_read(tmp_path, other, reason):
    path = tmp_path / "e.evidence"
    write(path, BOTH)
    with pytest.raises(InputError, match=reason):
        EvidenceFile.resume(path, replace(HEADER, **other), QUERIES)
    assert len(read_evidence_file(path).evidences) == 2


def test_a_replay_parameter_may_differ() -> None:
    other = dump_config(with_values(PipelineConfig(), {"fusion.k": 10, "name": "other"}))
    assert mismatch(HEADER, replace(HEADER, config_yaml=other)) is None


def test_a_file_of_another_query_set_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "e.evidence"
    write(path, BOTH)
    for queries in (QUERIES[:1], [*QUERIES, Query("q3", "third")], [QUERIES[0], Query("q1", "another")]):
        with pytest.raises(InputError, match="another query set"):
            EvidenceFile.resume(path, HEADER, queries)


def test_a_file_that_was_changed_after_it_was_complete_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "e.evidence"
    write(path, BOTH)
    with duckdb.connect(str(path)) as connection:
        connection.execute("UPDATE lists SET scores = [0.95, 0.8, 0.7] WHERE qid = 'q1' AND name = 'vector:0'")
    with pytest.raises(InputError, match="its hash differs"):
        read_evidence_file(path)


def test_that_nothing_answers_a_query_is_in_the_file_and_in_its_hash(tmp_path: Path) -> None:
    path, other = tmp_path / "e.evidence", tmp_path / "o.evidence"
    mark = write(path, BOTH)
    said = [replace(QUERIES[0], answerable=False), *QUERIES[1:]]
    with EvidenceFile.create(other, HEADER, said, JUDGMENTS) as file:
        for qid, evidence in BOTH.items():
            file.add(qid, evidence, 0.5)
        assert file.finish() != mark
    assert read_evidence_file(other).queries == tuple(said)


def test_a_judgment_that_was_changed_is_found_and_one_that_is_brought_up_to_date_is_not(tmp_path: Path) -> None:
    path = tmp_path / "e.evidence"
    mark = write(path, BOTH)
    replace_judgments(path, [*JUDGMENTS, Judgment("q2", "a", 2)])
    assert read_evidence_file(path).content_hash != mark
    replace_judgments(path, JUDGMENTS)
    assert read_evidence_file(path).content_hash == mark
    with duckdb.connect(str(path)) as connection:
        connection.execute("UPDATE judgments SET grade = 1 WHERE grade = 3")
    with pytest.raises(InputError, match="its judgments or its header are not what was written"):
        read_evidence_file(path)
    with duckdb.connect(str(path)) as connection:
        connection.execute("DELETE FROM meta WHERE key = 'whole_hash'")
    with pytest.raises(InputError, match="its judgments or its header are not what was written"):
        read_evidence_file(path)


def test_what_is_no_evidence_file_is_said_in_one_line(tmp_path: Path) -> None:
    text, database, absent = tmp_path / "t.evidence", tmp_path / "d.duckdb", tmp_path / "none"
    text.write_text("not a database")
    with duckdb.connect(str(database)) as connection:
        connection.execute("CREATE TABLE t (x INTEGER)")
    assert is_evidence_file(database) and not is_evidence_file(text) and not is_evidence_file(absent)
    for path, reason in ((text, "is not an evidence file"), (database, "not an evidence file"), (absent, "no such")):
        with pytest.raises(InputError, match=reason):
            read_evidence_file(path)
    with pytest.raises(InputError, match="not an evidence file"):
        read_header(database)


def test_an_embedding_that_is_not_single_precision_is_refused(tmp_path: Path) -> None:
    with (
        EvidenceFile.create(tmp_path / "e.evidence", HEADER, QUERIES, JUDGMENTS) as file,
        pytest.raises(InputError, match="single precision"),
    ):
        file.add("q1", replace(BOTH["q1"], embeddings={"a": [0.1, 0.2, 0.3]}), 0.1)


def test_a_file_with_a_view_on_other_files_reads_none_of_them(tmp_path: Path) -> None:
    path, secret = tmp_path / "sly.evidence", tmp_path / "secret.csv"
    EvidenceFile.create(path, HEADER, QUERIES, JUDGMENTS).close()
    secret.write_text("qid,seconds\nq1,1\n")
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"DROP TABLE evidence; CREATE VIEW evidence AS SELECT * FROM read_csv('{secret}')")
    with pytest.raises(InputError, match="it has a view 'evidence'"):
        read_evidence_file(path)


def test_chunks_edges_and_tokens_come_back(tmp_path: Path) -> None:
    chunks = {"a": (Chunk("a", 0, "text", 0), Chunk("a", 1, "of a", None))}
    lists = (RankedList("vector:0", "vector", 0, (Hit("a", 0.9, 1), Hit("b", 0.8), Hit("a", 0.7, 0), Hit("c", 0.6))),)
    full = replace(
        evidence("first"),
        lists=lists,
        chunks=chunks,
        relations=(Relation("a", "b", "similar", 0.5), Relation("b", "c")),
        tokens={"a": (3, 1, 2), "b": (3,), "c": (3,)},
    )
    write(tmp_path / "e", {"q1": full})
    back = read_evidence_file(tmp_path / "e").evidences["q1"]
    assert (back.lists, back.chunks, back.relations, back.tokens) == (lists, chunks, full.relations, full.tokens)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            "UPDATE meta SET value = 'cems-workbench-evidence-set/1' WHERE key = 'format'",
            "format .*/1' is not known; this .*/2",
        ),
        (
            "ALTER TABLE memories DROP valid_until",
            "memories lacks the column 'valid_until' .*; if another version made it",
        ),
    ],
)
def test_a_file_of_another_version_is_one_line_with_what_to_do(tmp_path: Path, change: str, said: str) -> None:
    write(tmp_path / "e", BOTH)
    with duckdb.connect(str(tmp_path / "e")) as other:
        other.execute(change)
    for reading in (read_evidence_file, read_header, lambda path: EvidenceFile.resume(path, HEADER, QUERIES)):
        with pytest.raises(InputError, match=f"{said}.*gather it again$"):
            reading(tmp_path / "e")


def test_validity_comes_back(tmp_path: Path) -> None:
    plain = evidence("first", "ab")
    bounded = Memory("v", "Parking is free", valid_from=NOW, valid_until=datetime(2030, 1, 1, tzinfo=UTC))
    later = evidence("second", "abc")
    later = replace(later, memories={**later.memories, "v": bounded})
    write(tmp_path / "e", {"q1": plain, "q2": later})
    back = read_evidence_file(tmp_path / "e").evidences
    assert (back["q1"].memories, back["q2"].memories) == (plain.memories, later.memories)
