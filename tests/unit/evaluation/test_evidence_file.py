"""Evidence files: read back, gone on with, refused, read in portions, and forged ones."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from sets import AS_LISTED, NOW, OTHER_WAY, QUERIES
from sets import evidence_file as small_file

from benchmarks.forged_evidence import FORGED, forge
from cems_workbench.config import PipelineConfig, dump_config, with_values
from cems_workbench.errors import InputError, StoreError
from cems_workbench.evaluation import evidence_file, statistics
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.comparison import compare
from cems_workbench.evaluation.evaluate import Evaluation, evaluate
from cems_workbench.evaluation.evidence_file import (
    EvidenceFile,
    Header,
    is_evidence_file,
    read_evidence_file,
    read_header,
    replace_judgments,
)
from cems_workbench.evaluation.evidence_stream import EvidenceStream, evaluate_stream
from cems_workbench.evaluation.metrics import parse_measures
from cems_workbench.pipeline import Evidence, Hit, ModelScore, RankedList, Variant, bundle_from, replay
from cems_workbench.records import WHOLE_STORE, Chunk, Judgment, Memory, Query, Relation
from cems_workbench.store import Store
from tests.thoroughly import partly, some

THEN = datetime(2026, 9, 1, 12, 30, 15, 123456, tzinfo=UTC)
HEADER = Header("sample", "store1", 3, "minilm", dump_config(PipelineConfig()), THEN.isoformat())
ASKED = [Query("q2", "second", "org/repo", THEN, "temporal"), Query("q1", "first")]
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
        memories={key: Memory(key, f"text of {key}", tags=("x",), created_at=THEN, session="s") for key in ids},
        variants=(Variant(query), Variant("other", "expansion")),
        lists=(
            RankedList("vector:0", "vector", 0, hits),
            RankedList("lexical:1", "lexical", 1, ()),
            RankedList("recency", "recency", None, hits[1:]),
        ),
        as_of=THEN,
        project="org/repo",
        model_scores={"cross_encoder": {key: score for key, score in SCORES.items() if key in ids}},
        judge_scores={"judge": {"a": ModelScore(-3.25, "text of a")}},
        embeddings={key: np.array([ord(key), 0.5, 0.25], dtype=np.float32) for key in ids if key != "b"},
        notes={"query": {"route": "hybrid"}, "gathered": {"lists.vector.depth": 150}, "warnings": {"lists": ["é"]}},
        **fields,
    )


def write(path: Path, evidences: Mapping[str, Evidence], *, finish: bool = True, header: Header = HEADER) -> str | None:
    with EvidenceFile.create(path, header, ASKED, JUDGMENTS) as file:
        for qid, one in evidences.items():
            file.add(qid, one, 0.25)
        return file.finish() if finish else None


BOTH = {"q1": evidence("first", ms={"vector": 2.5}), "q2": evidence("second", "cad")}


def test_a_file_reads_back_to_the_same_evidence(tmp_path: Path) -> None:
    path = tmp_path / "e.evidence"
    mark = write(path, BOTH)
    found = read_evidence_file(path)
    assert found.header == HEADER
    assert list(found.queries) == ASKED
    assert sorted(found.judgments, key=str) == sorted(JUDGMENTS, key=str)
    assert list(found.evidences) == ["q2", "q1"]  # in the order of the query set
    assert (found.content_hash, found.complete, found.seconds) == (mark, True, 0.5)
    for qid, one in found.evidences.items():
        assert bundle_from(one) == bundle_from(BOTH[qid])
        assert replay(one, PipelineConfig()).to_json() == replay(BOTH[qid], PipelineConfig()).to_json()
    assert found.evidences["q1"].memories["a"] is found.evidences["q2"].memories["a"]  # kept once
    assert [one.ms for one in found.evidences.values()] == [{"": 250.0}, {"vector": 2.5, "": 250.0}]
    assert write(tmp_path / "quicker.evidence", {**BOTH, "q1": evidence("first")}) == mark  # times are no part of it


def test_milliseconds_are_those_of_gathering_and_one_line_says_that_there_are_none() -> None:
    def measured(**ms: float) -> Evaluation:
        batch = LabelledBatch(ASKED[1:], {"q1": evidence("first", ms=ms)}, {"q1": {"a": 1}})
        return evaluate(batch, PipelineConfig(), parse_measures("ms ms(by=vector) ms(by=rerank)"))

    timed = measured(vector=2.5, **{"": 250.0})
    assert [one.mean for one in timed.summaries] == [250.0, 2.5, 0.0] and not timed.remarks
    assert np.isnan(measured(vector=2.5).summaries[0].mean)
    (line,) = measured().remarks
    assert line == "ms, ms(by=vector), ms(by=rerank): no time of this was recorded when it was gathered; gather it again"


def test_a_memory_is_in_the_file_once_however_many_queries_found_it(tmp_path: Path) -> None:
    path = tmp_path / "e.evidence"
    write(path, BOTH)
    with duckdb.connect(str(path), read_only=True) as connection:
        assert connection.execute("SELECT count(*), count(DISTINCT id) FROM memories").fetchall() == [(4, 4)]


def test_what_was_added_before_a_kill_is_there_and_is_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "e.evidence"
    write(path, {"q1": BOTH["q1"]}, finish=False)
    assert not read_evidence_file(path).complete
    with EvidenceFile.resume(path, replace(HEADER, created_at="later"), ASKED) as file:
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
    with EvidenceFile.create(path, HEADER, ASKED, JUDGMENTS) as file:
        file.add("q1", BOTH["q1"], 0.1)
        with pytest.raises(InputError, match="memory a is not the one"):
            file.add("q2", changed, 0.1)
        assert file.finished == {"q1"}
    assert list(read_evidence_file(path).evidences) == ["q1"]


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"store_id": "store2"}, "another store: store1, then store2"),
        ({"content_version": 4}, "content of the store: version 3, then 4"),
        ({"embedder": "nomic"}, "embedder: minilm, then nomic"),
        ({"only_project": True}, "within each project only: False, then True"),
        (
            {"config_yaml": dump_config(with_values(PipelineConfig(), {"lists.vector.depth": 20}))},
            "lists.vector.depth: 150, then 20",
        ),
    ],
)
def test_a_file_gathered_with_something_else_is_refused_with_the_reason_and_can_be_read(tmp_path, other, reason):
    path = tmp_path / "e.evidence"
    write(path, BOTH)
    with pytest.raises(InputError, match=reason):
        EvidenceFile.resume(path, replace(HEADER, **other), ASKED)
    assert len(read_evidence_file(path).evidences) == 2


def test_a_file_of_another_query_set_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "e.evidence"
    write(path, BOTH)
    for queries in (
        ASKED[:1],
        [*ASKED, Query("q3", "third")],
        [ASKED[0], Query("q1", "another")],
    ):
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
    said = [replace(ASKED[0], answerable=False), *ASKED[1:]]
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
        EvidenceFile.create(tmp_path / "e.evidence", HEADER, ASKED, JUDGMENTS) as file,
        pytest.raises(InputError, match="single precision"),
    ):
        file.add("q1", replace(BOTH["q1"], embeddings={"a": [0.1, 0.2, 0.3]}), 0.1)


def test_a_file_with_a_view_on_other_files_reads_none_of_them(tmp_path: Path) -> None:
    path, secret = tmp_path / "sly.evidence", tmp_path / "secret.csv"
    EvidenceFile.create(path, HEADER, ASKED, JUDGMENTS).close()
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
    for reading in (
        read_evidence_file,
        read_header,
        lambda path: EvidenceFile.resume(path, HEADER, ASKED),
    ):
        with pytest.raises(InputError, match=f"{said}.*gather it again$"):
            reading(tmp_path / "e")


def test_validity_comes_back(tmp_path: Path) -> None:
    plain = evidence("first", "ab")
    bounded = Memory("v", "Parking is free", valid_from=THEN, valid_until=datetime(2030, 1, 1, tzinfo=UTC))
    later = evidence("second", "abc")
    later = replace(later, memories={**later.memories, "v": bounded})
    write(tmp_path / "e", {"q1": plain, "q2": later})
    back = read_evidence_file(tmp_path / "e").evidences
    assert (back["q1"].memories, back["q2"].memories) == (plain.memories, later.memories)


MEASURES = parse_measures(
    "hit@1 hit@5 recall@5 all@5 P@3 MRR nDCG@10 AP Judged@10 noise@5 answered refused AUROC AUPRC AURC@5 AUROC(by=vector) stale@5"
)
IDS = [f"m{i:02d}" for i in range(30)]
MEMORIES = {
    key: Memory(
        key, f"text of {key}", created_at=NOW, tags=("x",) if i % 3 else (), project="org/repo" if i % 4 else None
    )
    for i, key in enumerate(IDS)
}
CHUNKS = {key: (Chunk(key, 0, f"first of {key}", 0), Chunk(key, 1, f"second of {key}", 9)) for key in IDS[:6]}
VECTORS = {key: np.array([i, 1.0, i % 5], dtype=np.float32) for i, key in enumerate(IDS[:20])}


def found(query: str, rng: random.Random) -> Evidence:
    """Two lists of some of the memories, which overlap, with chunks, scores, an edge and notes of a gather."""
    vector, lexical = (rng.sample(IDS, rng.randint(0, 14)) for _ in range(2))
    hits = tuple(Hit(key, 0.9 - i / 50, rng.randint(0, 1) if key in CHUNKS else None) for i, key in enumerate(vector))
    words = tuple(Hit(key, 20.0 - i // 2) for i, key in enumerate(sorted(lexical)))
    every = sorted({*vector, *lexical, "m00", "m01"})
    raw = {key: ModelScore(rng.gauss(0, 3), f"text of {key}") for key in every if rng.random() < 0.6}
    return Evidence(
        query=query,
        memories={key: MEMORIES[key] for key in every},
        variants=(Variant(query),),
        as_of=NOW,
        lists=(RankedList("vector:0", "vector", 0, hits), RankedList("lexical:0", "lexical", 0, words)),
        model_scores={"cross_encoder": raw},
        relations=(Relation("m00", "m01", "similar", 0.5),),
        chunks={key: CHUNKS[key] for key in every if key in CHUNKS},
        embeddings={key: VECTORS[key] for key in every if key in VECTORS},
        notes={"gathered": {"lists.vector.depth": 150}, "llm": {"calls": 2, "cached": 1}, "models": {}}
        # Only some were gathered when edges were looked for.
        | ({"superseded": superseded(every)} if rng.random() < 0.7 else {}),
    )


def superseded(ids: list[str]) -> dict[str, list[dict[str, str | None]]]:
    """Every other memory supersedes the one before it."""
    return {
        older: [{"id": newer, "created_at": None, "kind": "supersedes"}]
        for older, newer in zip(ids[::2], ids[1::2], strict=False)
    }


RNG = random.Random(7)
STREAM_QUERIES = [
    Query(
        f"q{RNG.randrange(10**6):06d}",
        f"query {i}",
        type=("a", "b", None)[i % 3],
        answerable=False if i % 11 == 0 else None,
    )
    for i in range(60)
]
EVIDENCE = {query.qid: found(query.query, RNG) for query in STREAM_QUERIES[:57]}
STREAM_JUDGMENTS = [
    Judgment(query.qid, key, RNG.choice([0, 1, 1, 2]), *RNG.choice([("anna", "human"), ("m", "model")]))
    for i, query in enumerate(STREAM_QUERIES)
    if i % 11 and i % 9
    for key in RNG.sample(IDS, 3)
]
STREAM_JUDGMENTS += [
    Judgment(STREAM_QUERIES[1].qid, "m03", 3, "ben"),
    Judgment(STREAM_QUERIES[1].qid, "m03", 1, "cleo"),
    Judgment(STREAM_QUERIES[22].qid, WHOLE_STORE, 0),
]
"""The only grade 3 is not what its judges agree on; three queries were not gathered, some are not judged, some have no answer."""
STREAM_HEADER = Header("mixed", "store1", 1, "minilm", dump_config(AS_LISTED), NOW.isoformat())


def write_stream(
    path: Path, queries: list[Query], listed: list[Query] | None = None, header: Header = STREAM_HEADER
) -> Path:
    asked = {query.qid for query in listed or queries}
    with EvidenceFile.create(
        path, header, listed or queries, [row for row in STREAM_JUDGMENTS if row.qid in asked]
    ) as file:
        for query in queries:
            if query.qid in EVIDENCE:
                file.add(query.qid, EVIDENCE[query.qid], 0.5)
        file.finish()
    return path


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_stream(tmp_path_factory.mktemp("evidence") / "whole.evidence", STREAM_QUERIES)


def same(one: Evaluation, other: Evaluation) -> None:
    """Every figure alike to 1e-12."""
    for name in (
        "config",
        "qids",
        "types",
        "measures",
        "not_judged",
        "without_relevant",
        "unanswerable",
        "failed",
        "cost",
        "stale_queries",
    ):
        assert getattr(one, name) == getattr(other, name), name
    assert set(one.not_gathered) == set(other.not_gathered)
    assert one.rankings.needs == other.rankings.needs
    np.testing.assert_allclose(one.values, other.values, rtol=0, atol=1e-12)
    for had, has in zip(one.summaries, other.summaries, strict=True):
        assert (had.measure, had.queries) == (has.measure, has.queries)
        for name in ("mean", "low", "high", "worst", "best"):
            assert getattr(had, name) == pytest.approx(getattr(has, name), rel=0, abs=1e-12, nan_ok=True), (
                had.measure,
                name,
            )


@pytest.mark.parametrize("portion", [9, 2048])
def test_figures_of_a_stream_are_those_of_the_file_read_whole(whole, portion, monkeypatch):
    monkeypatch.setattr(evidence_file, "PORTION_QUERIES", portion)
    monkeypatch.setattr(evidence_file, "HASHED_WHOLE", 10)
    read = read_evidence_file(whole)
    batch = LabelledBatch.of(read)
    expected = [evaluate(batch, config, MEASURES, seed=3) for config in (AS_LISTED, OTHER_WAY)]
    with EvidenceStream([whole]) as stream:
        streamed = evaluate_stream(stream, [AS_LISTED, OTHER_WAY], MEASURES, seed=3)
        assert (stream.content_hash, stream.header) == (read.content_hash, read.header)
    for one, other in zip(streamed.evaluations, expected, strict=True):
        same(one, other)
    stale, known = expected[0].stale_queries
    assert 0 < stale < known < len(expected[0].qids)
    of_stream, of_batch = streamed.compared(3).compared[0], compare(expected, seed=3).compared[0]
    assert of_stream.overlap == pytest.approx(of_batch.overlap, abs=1e-12)
    for had, has in zip(of_stream.differences, of_batch.differences, strict=True):
        assert (had.wins, had.losses, had.ties) == (has.wins, has.losses, has.ties)
        assert (had.p, had.low, had.high) == pytest.approx((has.p, has.low, has.high), abs=1e-12, nan_ok=True)


def test_portions_hold_the_evidence_that_was_written(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence_file, "PORTION_QUERIES", 8)
    with EvidenceStream([whole]) as stream:
        portions = list(stream.portions())
    assert [query for portion in portions for query in portion.queries] == STREAM_QUERIES
    assert max(len(portion.queries) for portion in portions) == 8
    read = {qid: one for portion in portions for qid, one in portion.evidences.items()}
    assert list(read) == list(EVIDENCE)
    for qid, one in read.items():
        assert bundle_from(one) == bundle_from(EVIDENCE[qid])


def test_parts_of_a_set_are_measured_as_the_set(whole: Path, tmp_path: Path) -> None:
    parts = [
        write_stream(tmp_path / "1.evidence", STREAM_QUERIES[:20]),
        write_stream(tmp_path / "2.evidence", STREAM_QUERIES[20:25], STREAM_QUERIES),
        write_stream(tmp_path / "3.evidence", STREAM_QUERIES[25:]),
    ]
    with EvidenceStream(parts) as stream:
        of_parts = evaluate_stream(stream, [AS_LISTED], MEASURES).evaluations[0]
    with EvidenceStream([whole]) as stream:
        of_whole = evaluate_stream(stream, [AS_LISTED], MEASURES).evaluations[0]
    order = [of_parts.qids.index(qid) for qid in of_whole.qids]
    np.testing.assert_allclose(of_parts.values[order][:, :8], of_whole.values[:, :8], rtol=0, atol=1e-12)
    for had, has in zip(of_parts.summaries, of_whole.summaries, strict=True):
        assert had.mean == pytest.approx(has.mean, abs=1e-12)
    assert sorted(of_parts.not_gathered) == sorted(of_whole.not_gathered)


@pytest.mark.parametrize(
    ("header", "queries", "said"),
    [
        (STREAM_HEADER, STREAM_QUERIES[5:9], "was gathered in"),
        (replace(STREAM_HEADER, store_id="store2"), STREAM_QUERIES[9:12], "another store"),
        (
            replace(STREAM_HEADER, query_set="other"),
            STREAM_QUERIES[9:12],
            "query set: mixed, then other",
        ),
        (
            replace(STREAM_HEADER, relevant_from=2),
            STREAM_QUERIES[9:12],
            "relevant from grade: 1, then 2",
        ),
    ],
)
def test_files_that_are_not_parts_of_one_set_are_refused(tmp_path, header, queries, said):
    parts = [
        write_stream(tmp_path / "1.evidence", STREAM_QUERIES[:9]),
        write_stream(tmp_path / "2.evidence", queries, header=header),
    ]
    with pytest.raises(InputError, match=said):
        EvidenceStream(parts)


def test_a_query_that_is_no_evidence_is_named(whole: Path, tmp_path: Path) -> None:
    forged = tmp_path / "forged.evidence"
    forged.write_bytes(whole.read_bytes())
    with duckdb.connect(str(forged)) as database:
        database.execute("UPDATE lists SET source = 'oracle' WHERE qid = ?", [STREAM_QUERIES[40].qid])
        database.execute("DELETE FROM meta WHERE key LIKE '%hash'")
    with (
        EvidenceStream([forged]) as stream,
        pytest.raises(InputError, match=f"query {STREAM_QUERIES[40].qid}: .*'oracle' is not known"),
    ):
        evaluate_stream(stream, [AS_LISTED], MEASURES)


def test_what_is_drawn_in_portions_is_what_is_drawn_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    values, differences = rng.random((501, 3)), rng.normal(0.003, 0.1, size=(501, 3))
    values[::7, 1] = np.nan
    at_once = statistics.bootstrap(values, 3), statistics.randomisation_test(differences, 5)
    monkeypatch.setattr(statistics, "MAX_DRAWS_IN_MEMORY", 1000)
    monkeypatch.setattr(statistics, "BATCH_SIZE", 5000)
    in_portions = statistics.bootstrap(values, 3), statistics.randomisation_test(differences, 5)
    for one, other in zip(at_once, in_portions, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)


def one_line_of(read: Callable[[], object]) -> str:
    """What is said instead of reading; empty where it is read."""
    began = time.process_time()
    try:
        read()
    except InputError as error:
        took = time.process_time() - began
        return "" if "\n" in str(error) or len(str(error)) > 500 or took > 10 else str(error)
    return ""


@partly
def test_no_forged_file_is_taken_for_evidence(tmp_path: Path) -> None:
    whole, path = small_file(tmp_path), tmp_path / "forged.evidence"
    header = read_header(whole)
    taken = []
    for name, (script, words) in some(FORGED.items(), 8):
        forge(whole, path, script)
        said = one_line_of(lambda: read_evidence_file(path))
        if str(path) not in said or words not in said:
            taken.append(f"{name}: {said}")
    for name in some(FORGED, 24):
        forge(whole, path, FORGED[name][0])
        before = path.read_bytes()
        if not one_line_of(lambda: EvidenceFile.resume(path, header, QUERIES)) or path.read_bytes() != before:
            taken.append(f"{name} was gone on with")
    assert not taken


def test_a_file_is_looked_at_again_when_somebody_changed_it_and_only_then(tmp_path, monkeypatch):
    path = small_file(tmp_path)
    read_evidence_file(path)
    with monkeypatch.context() as patch:
        patch.setattr("cems_workbench.evaluation.evidence_file.differences", lambda *_: pytest.fail("looked at again"))
        read_evidence_file(path)
    with duckdb.connect(str(path)) as database:
        database.execute("CREATE VIEW beside AS SELECT 1")
    assert "it has a view 'beside'" in one_line_of(lambda: read_evidence_file(path))


def test_the_database_of_others_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "sales.duckdb"
    with duckdb.connect(str(path)) as database:
        database.execute("CREATE TABLE judgments (x INTEGER)")
    before = path.read_bytes()
    assert "not an evidence file" in one_line_of(lambda: replace_judgments(path, ()))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (
            "ALTER TABLE relations RENAME TO kept; CREATE VIEW relations AS SELECT * FROM read_text('/etc/hostname')",
            "a view 'relations'",
        ),
        ("CREATE TRIGGER undo AFTER INSERT ON relations FOR EACH STATEMENT DELETE FROM memories", "a trigger 'undo'"),
    ],
)
def test_a_store_whose_database_was_given_code_is_not_opened(script: str, words: str, tmp_path: Path) -> None:
    Store.open(tmp_path / "store").close()
    with duckdb.connect(str(tmp_path / "store" / "workbench.duckdb")) as database:
        database.execute(script)
    with pytest.raises(StoreError, match=f"its database has {words}, which no store has"):
        Store.open(tmp_path / "store")


def test_a_database_that_was_put_in_the_place_of_an_open_one_is_looked_at(tmp_path: Path) -> None:
    Store.open(tmp_path / "other").close()
    with duckdb.connect(str(tmp_path / "other" / "workbench.duckdb")) as database:
        database.execute("CREATE VIEW beside AS SELECT 1")
    with Store.open(tmp_path / "store"):
        (tmp_path / "other" / "workbench.duckdb").replace(tmp_path / "store" / "workbench.duckdb")
    with pytest.raises(StoreError, match="its database has a view 'beside'"):
        Store.open(tmp_path / "store")
