"""Evidence of any size: what is read some queries at a time, of one file or several, gives the figures of what is read whole."""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pytest
from sets import AS_LISTED, NOW, OTHER_WAY

from cems_workbench.cli import main
from cems_workbench.config import dump_config
from cems_workbench.errors import InputError
from cems_workbench.evaluation import evidence_file, statistics
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.comparison import compare
from cems_workbench.evaluation.evaluate import Evaluation, evaluate
from cems_workbench.evaluation.evidence_file import EvidenceFile, Header, read_evidence_file
from cems_workbench.evaluation.evidence_stream import EvidenceStream, evaluate_stream
from cems_workbench.evaluation.metrics import parse_measures
from cems_workbench.jobs import evaluation
from cems_workbench.pipeline import Evidence, Hit, ModelScore, RankedList, Variant, bundle_from
from cems_workbench.records import WHOLE_STORE, Chunk, Judgment, Memory, Query, Relation

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
QUERIES = [
    Query(
        f"q{RNG.randrange(10**6):06d}",
        f"query {i}",
        type=("a", "b", None)[i % 3],
        answerable=False if i % 11 == 0 else None,
    )
    for i in range(60)
]
EVIDENCE = {query.qid: found(query.query, RNG) for query in QUERIES[:57]}
JUDGMENTS = [
    Judgment(query.qid, key, RNG.choice([0, 1, 1, 2]), *RNG.choice([("anna", "human"), ("m", "model")]))
    for i, query in enumerate(QUERIES)
    if i % 11 and i % 9
    for key in RNG.sample(IDS, 3)
]
JUDGMENTS += [
    Judgment(QUERIES[1].qid, "m03", 3, "ben"),
    Judgment(QUERIES[1].qid, "m03", 1, "cleo"),
    Judgment(QUERIES[22].qid, WHOLE_STORE, 0),
]
"""The only grade 3 is not what its judges agree on; three queries were not gathered, some are not judged, some have no answer."""
HEADER = Header("mixed", "store1", 1, "minilm", dump_config(AS_LISTED), NOW.isoformat())


def write(path: Path, queries: list[Query], listed: list[Query] | None = None, header: Header = HEADER) -> Path:
    asked = {query.qid for query in listed or queries}
    with EvidenceFile.create(path, header, listed or queries, [row for row in JUDGMENTS if row.qid in asked]) as file:
        for query in queries:
            if query.qid in EVIDENCE:
                file.add(query.qid, EVIDENCE[query.qid], 0.5)
        file.finish()
    return path


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("evidence") / "whole.evidence", QUERIES)


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
    assert [query for portion in portions for query in portion.queries] == QUERIES
    assert max(len(portion.queries) for portion in portions) == 8
    read = {qid: one for portion in portions for qid, one in portion.evidences.items()}
    assert list(read) == list(EVIDENCE)
    for qid, one in read.items():
        assert bundle_from(one) == bundle_from(EVIDENCE[qid])


def test_a_portion_that_would_be_large_is_of_fewer_queries(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence_file, "PORTION_BYTES", 20_000)
    with EvidenceStream([whole]) as stream:
        sizes = [len(portion.queries) for portion in stream.portions()]
    assert sum(sizes) == len(QUERIES)
    assert max(sizes) < 20


def test_a_file_whose_rows_are_in_another_order_is_read_alike(whole: Path, tmp_path: Path) -> None:
    shuffled = tmp_path / "shuffled.evidence"
    shuffled.write_bytes(whole.read_bytes())
    with duckdb.connect(str(shuffled)) as database:
        for table in ("evidence", "lists", "scores", "judgments"):
            database.execute(f"CREATE TABLE kept AS FROM {table} ORDER BY hash(qid); DELETE FROM {table}")
            database.execute(f"INSERT INTO {table} FROM kept; DROP TABLE kept")
    with EvidenceStream([whole]) as one, EvidenceStream([shuffled]) as other:
        assert one.content_hash == other.content_hash
        ranked = [evaluate_stream(stream, [AS_LISTED], MEASURES).evaluations[0] for stream in (one, other)]
    same(*ranked)


def test_parts_of_a_set_are_measured_as_the_set(whole: Path, tmp_path: Path) -> None:
    parts = [
        write(tmp_path / "1.evidence", QUERIES[:20]),
        write(tmp_path / "2.evidence", QUERIES[20:25], QUERIES),
        write(tmp_path / "3.evidence", QUERIES[25:]),
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
        (HEADER, QUERIES[5:9], "was gathered in"),
        (replace(HEADER, store_id="store2"), QUERIES[9:], "another store"),
        (replace(HEADER, query_set="other"), QUERIES[9:], "it is of the query set 'other', not 'mixed'"),
        (replace(HEADER, relevant_from=2), QUERIES[9:], "it counts grades from 2 as relevant, not from 1"),
    ],
)
def test_files_that_are_not_parts_of_one_set_are_refused(tmp_path, header, queries, said):
    parts = [write(tmp_path / "1.evidence", QUERIES[:9]), write(tmp_path / "2.evidence", queries, header=header)]
    with pytest.raises(InputError, match=said):
        EvidenceStream(parts)


def test_a_query_that_is_no_evidence_is_named(whole: Path, tmp_path: Path) -> None:
    forged = tmp_path / "forged.evidence"
    forged.write_bytes(whole.read_bytes())
    with duckdb.connect(str(forged)) as database:
        database.execute("UPDATE lists SET source = 'oracle' WHERE qid = ?", [QUERIES[40].qid])
        database.execute("DELETE FROM meta WHERE key LIKE '%hash'")
    with (
        EvidenceStream([forged]) as stream,
        pytest.raises(InputError, match=f"query {QUERIES[40].qid}: .*'oracle' is not known"),
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


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["cems_workbench", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            main()
        return int(stopped.value.code or 0), *capsys.readouterr()

    monkeypatch.setenv("COLUMNS", "160")
    return run


def test_commands_take_several_files(whole, tmp_path, command, monkeypatch):
    parts = [write(tmp_path / f"{i}.evidence", QUERIES[i::2]) for i in range(2)]
    configs = []
    for config in (AS_LISTED, OTHER_WAY):
        path = tmp_path / f"{config.name}.yaml"
        path.write_text(dump_config(config), encoding="utf-8")
        configs += ["--config", path]
    run, run_of_whole = tmp_path / "run.txt", tmp_path / "whole.txt"
    code, out, _ = command("evaluate", *parts, "--json", "--run-out", run)
    of_parts = json.loads(out)["evaluations"][0]
    of_whole = json.loads(command("evaluate", whole, "--json", "--run-out", run_of_whole)[1])["evaluations"][0]
    assert code == 0
    assert of_parts["per_query"] == of_whole["per_query"]
    assert sorted(run.read_text().splitlines()) == sorted(run_of_whole.read_text().splitlines())
    code, out, _ = command("compare", *parts, *configs, "--metric", "nDCG@10")
    assert code == 0
    assert "other_way against as_listed" in out
    assert command("evaluate", *parts, "--compare-judges")[0] == 2
    code, _, said = command("evaluate", parts[0], "nowhere")
    assert code == 2
    assert "nowhere: of several names each has to be an evidence file" in said
    for files, page in ((parts, tmp_path / "parts.html"), ([whole], tmp_path / "whole.html")):
        monkeypatch.setattr(evaluation, "MAX_QUERIES_IN_MEMORY", 10)
        assert command("report", "compare", *files, *configs, "--out", page)[0] == 0
    monkeypatch.undo()
    command("report", "compare", whole, *configs, "--out", tmp_path / "read.html")
    streamed, of_parts, read = (
        re.sub(r"made</dt>.*?</dd>", "", (tmp_path / f"{name}.html").read_text("utf-8"))
        for name in ("whole", "parts", "read")
    )
    assert streamed == read and read.count("grade 1") > 3 and "queries differ" in read
    assert of_parts.count("grade 1") == read.count("grade 1") and "0.evidence and 1 more" in of_parts
