"""Recordings at work: traces as evidence, recorded lists in replay, and fidelity runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cems_workbench.analysis.losses_of_set import LossCollector, Losses
from cems_workbench.analysis.why.report import explain
from cems_workbench.config import PipelineConfig, preset, with_values
from cems_workbench.errors import InputError
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.evidence_file import read_evidence_file
from cems_workbench.evaluation.evidence_stream import EvidenceStream
from cems_workbench.evaluation.metrics import parse_measures
from cems_workbench.jobs import traces
from cems_workbench.jobs.evaluation import agreed, evaluate_configs, labelled, measured_losses
from cems_workbench.jobs.importing import undo_import
from cems_workbench.jobs.recorded_answers import match_results, nearness
from cems_workbench.jobs.traces import add_input, inputs_of, read_traced, require_replayable, traced_path
from cems_workbench.pipeline import Evidence, replay
from cems_workbench.pipeline.evidence import Hit, RankedList, Variant
from cems_workbench.pipeline.resources import Resources
from cems_workbench.records import Judgment, Memory, ParsedInput, Query, RankedIds, RecordedAnswer, Recording, Returned
from cems_workbench.store import ImportOptions, ImportReport, Store
from cems_workbench.store.importing import DEFAULT_OPTIONS
from tests.unit.formats.test_traced_spans import BM25, FUSED, HYBRID, ROOT, reranker, retriever, stage
from tests.unit.pipeline.cases import evidence
from workbench_fidelity.fidelity import (
    BASE_PRESET,
    asked_queries,
    bad_rows,
    lexical_lists,
    limit_of,
    require_usable,
    setting_for,
    traced_recording,
)
from workbench_fidelity.lists import list_map, with_lists, with_map
from workbench_fidelity.recordings import parse_recording
from workbench_tools import traces as reader

LOST_AT_RERANK = Judgment("q1", "d", 2)


def import_traces(path: Path, store: Store, options: ImportOptions = DEFAULT_OPTIONS) -> ImportReport:
    return traces.import_traces(path, reader.NAME, store, options=options)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "store") as opened:
        yield opened


def written(path: Path, *queries: tuple[str, list[dict[str, Any]]]) -> Path:
    """A file with a trace for each (qid, spans), the spans of all traces in turns and children before their parents."""
    rows = []
    for qid, spans in queries:
        for one in reversed(spans):
            row = json.loads(json.dumps(one)) | {"trace_id": f"trace of {qid}"}
            if row["parent_id"] is None:
                row["attributes"]["workbench.query.id"] = qid
            rows.append(row)
    rows.sort(key=lambda row: row["name"])
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def contents(spans: list[dict[str, Any]], text: str) -> list[dict[str, Any]]:
    return json.loads(json.dumps(spans).replace("text of", text))


def test_a_file_becomes_a_set_with_memories_and_evidence(store: Store, tmp_path: Path) -> None:
    path = written(tmp_path / "mine.jsonl", ("q1", HYBRID), ("q2", HYBRID[:3]))
    (parsed,) = inputs_of(path, "auto")
    report = add_input(parsed, store)
    assert (report.memories.added, report.queries.added) == (4, 2) and not report.errors
    assert (
        "another pipeline" in report.notes[0]
        and "queries with stages that contradict themselves, which their traces name: 1" in report.notes[1]
    )
    assert [query.qid for query in store.query_sets.queries("mine")] == ["q1", "q2"]
    assert {key: one.content for key, one in store.memories.read().items()} == {key: f"text of {key}" for key in "abcd"}
    found = read_traced(store, "mine")
    assert found is not None and found.external and found.header.config.name == "traced"
    trace = replay(found.evidences["q1"], preset("cems").config)
    assert [stage.name for stage in trace.stages] == ["lists", "rrf", "cross-encoder"]
    assert [result.memory_id for result in trace.results] == ["b", "a"]
    assert read_traced(store, "other") is None


def test_the_portions_of_an_import_do_not_matter(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "mine.jsonl", *((f"q{i}", HYBRID) for i in range(7)))
    import_traces(path, store)
    whole = read_evidence_file(traced_path(store.path, "mine"))
    monkeypatch.setattr(reader, "PORTION_TRACES", 2)
    import_traces(path, store)
    again = read_evidence_file(traced_path(store.path, "mine"))
    assert again.replay_hash == whole.replay_hash and len(again.evidences) == 7


def test_no_memory_of_the_store_is_replaced_and_other_texts_are_said(store: Store, tmp_path: Path) -> None:
    kept = (Memory("a", "ours"), Memory("d", "deleted here"))
    store.add(ParsedInput("m", "memories-jsonl", memories=kept))
    store.memories.delete("d")
    report = import_traces(written(tmp_path / "mine.jsonl", ("q1", HYBRID)), store)
    assert store.memories.read()["a"].content == "ours" and set(store.memories.read()) == {"a", "b", "c"}
    assert any(line.startswith("memories with another text") and line.endswith("such as a") for line in report.notes)
    found = read_traced(store, "mine")
    assert found is not None and found.evidences["q1"].memories["a"].content == "ours"


def test_a_reranker_that_reads_the_beginnings_of_texts_is_named(store: Store, tmp_path: Path) -> None:
    """A reranker that was given 40 characters of each text; the import only said that the texts were others."""
    kept = tuple(Memory(key, f"text of {key}, and what follows it") for key in "abcd")
    store.add(ParsedInput("m", "memories-jsonl", memories=kept))
    spans = contents(HYBRID, "text of")
    report = import_traces(written(tmp_path / "mine.jsonl", ("q1", spans)), store)
    assert any("returned only the first 9 characters of" in line for line in report.notes)
    for one in spans:
        for name, text in one["attributes"].items():
            if str(text).startswith("text of") and "reranker.input" not in name:
                one["attributes"][name] = f"{text}, and what follows it"
    report = import_traces(written(tmp_path / "mine.jsonl", ("q1", spans)), store)
    (line,) = [line for line in report.notes if "characters" in line]
    assert line == "cross-encoder: reads only the first 9 characters of 3 texts in 1 query"
    found = read_traced(store, "mine")
    assert found is not None
    why = explain("d", found.evidences["q1"], preset("cems").config, k=1)
    assert line in [one.line for one in why.mistakes]


def test_a_query_of_the_store_keeps_its_project_and_moment(store: Store, tmp_path: Path) -> None:
    text = next(span for span in HYBRID if span["parent_id"] is None)["attributes"]["input.value"]
    judged = Query("q1", text, "harbor/api", datetime(2026, 9, 1, tzinfo=UTC), "identifier")
    other = Query("q2", "another text", None, None, "identifier")
    store.add(ParsedInput("s", "queries-jsonl", queries=(judged, other)), options=ImportOptions("sample"))
    report = import_traces(written(tmp_path / "mine.jsonl", ("q1", HYBRID), ("q2", HYBRID), ("q3", HYBRID)), store)
    assert (report.queries.added, report.queries.updated, report.queries.unchanged) == (1, 0, 1)
    assert store.query_sets.queries("sample") == [judged, other]
    assert [query.qid for query in store.query_sets.queries("mine")] == ["q1", "q3"]
    assert [error.reason for error in report.errors] == ["'q2' is another query in the store: 'another text'"]
    found = read_traced(store, "mine")
    assert found is not None and set(found.evidences) == {"q1", "q3"}
    import_traces(written(tmp_path / "mine.jsonl", ("q3", HYBRID)), store)
    assert store.query_sets.queries("sample") == [judged, other]


def test_a_document_without_an_id_is_the_memory_with_its_text(store: Store, tmp_path: Path) -> None:
    store.add(ParsedInput("m", "memories-jsonl", memories=(Memory("known", "text of a"),)))
    spans = json.loads(json.dumps(HYBRID))
    for one in spans:
        one["attributes"] = {k: v for k, v in one["attributes"].items() if not k.endswith("document.id")}
    import_traces(written(tmp_path / "mine.jsonl", ("q1", spans)), store)
    found = read_traced(store, "mine")
    assert found is not None
    assert next(key for key, _ in found.evidences["q1"].recorded.lists[0].hits) == "known"  # type: ignore[union-attr]
    assert store.memories.count() == 4


FOUND = {"q1": ["gate", "badge", "invoice"], "q2": ["invoice", "gate", "fork"], "q3": ["fork", "invoice", "badge"]}


def of_own_ids(ids: Callable[[str, str, int], str | None]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Three queries of two lists and their fusion; `ids` gives that of a text by its list and its place there."""
    traced = []
    for qid, texts in FOUND.items():
        named = [
            [(ids(name, text, i), text) for i, text in enumerate(own)]
            for name, own in (("v", texts), ("s", texts[::-1]))
        ]
        joined = list(dict.fromkeys((key or text, text) for pair in zip(*named, strict=True) for key, text in pair))
        spans = [ROOT]
        for at, (name, rows) in enumerate((("dense", named[0]), ("words", named[1]), ("hybrid", joined)), 1):
            found: list[tuple[str, float | None]] = [(str(key), 1 - i / 10) for i, (key, _) in enumerate(rows)]
            spans.append(stage(name, at, "fusion", found) if name == "hybrid" else retriever(name, at, found))
            for i, (_, text) in enumerate(rows):
                spans[-1]["attributes"][f"retrieval.documents.{i}.document.content"] = f"The {text} of the depot"
        traced.append((qid, spans))
    return traced


@pytest.mark.parametrize(
    ("ids", "renamed", "apart"),
    [
        (lambda name, text, i: f"{name}_{i}", 6, True),
        (lambda name, text, i: f"uuid of {text}", 4, False),
        (lambda name, text, i: f"{name} {text}", 8, True),
    ],
)
def test_ids_of_a_list_or_of_the_pipeline_are_the_stored_memories_of_their_texts(store, tmp_path, ids, renamed, apart):
    """Devwhisper#266 (2026-08-16) and langchain4j#5974 (2026-08-06): every retriever numbers the same texts in its own way."""
    kept = [Memory(f"n-{text}", f"The {text} of the depot") for text in ("gate", "badge", "invoice", "fork")]
    store.add(ParsedInput("m", "memories-jsonl", memories=tuple(kept)))
    report = import_traces(written(tmp_path / "mine.jsonl", *of_own_ids(ids)), store)
    assert store.memories.count() == 4 and report.memories.added == 0
    assert f"documents with the text of stored memories under another id, taken for these: {renamed}" in "".join(
        report.notes
    )
    found = read_traced(store, "mine")
    assert found is not None
    lists = {one.name: [key for key, _ in one.hits] for one in found.evidences["q2"].recorded.lists}  # type: ignore[union-attr]
    assert lists == {"dense": ["n-invoice", "n-gate", "n-fork"], "words": ["n-fork", "n-gate", "n-invoice"]}
    why = explain("n-gate", found.evidences["q1"], found.header.config, of_set=traces.traced_mistakes(found.path))
    named = [
        line for line in report.notes if line.startswith("hybrid: joins none of the 9 texts that several lists found")
    ]
    assert bool(named) is apart
    assert [one.line for one in why.mistakes if one.stage == "hybrid"] == named


def test_ids_of_their_own_are_kept_where_no_memory_has_their_text(store: Store, tmp_path: Path) -> None:
    path = written(tmp_path / "mine.jsonl", *of_own_ids(lambda name, text, i: f"{name} {text}"))
    report = import_traces(path, store)
    assert store.memories.count() == 8 and not any("under another id" in line for line in report.notes)
    assert any(line.startswith("hybrid: joins none of the 9 texts") for line in report.notes)


def streamed_losses(stream: EvidenceStream, config: PipelineConfig, k: int) -> Losses:
    counted = LossCollector([config], 1, k)
    for portion in stream.portions():
        counted.add([LabelledBatch.of(portion)])
    return counted.finished()


def test_a_constant_reranker_is_named_on_import_in_losses_and_in_why(store: Store, tmp_path: Path) -> None:
    """agentmemory#724 (2026-05-29): a reranker that gives every document one score."""
    constant = reranker("cross-encoder", 4, FUSED, [(key, 1.0) for key, _ in FUSED])
    path = written(tmp_path / "mine.jsonl", *((f"q{i}", [*HYBRID[:4], constant]) for i in range(3)))
    line = "cross-encoder: all 12 scores of 3 queries are 1: it tells nothing apart"
    assert line in import_traces(path, store).notes
    found = read_traced(store, "mine")
    assert found is not None
    evidence = labelled(found, agreed([Judgment("q1", "c", 2)], None))
    own = found.header.config
    measured, _ = evaluate_configs([(own.name, own)], lambda _: evidence, parse_measures("hit@2", 1))
    assert (
        f"known mistake: {line.replace('12', '4').replace(' of 3 queries', '')}"
        in measured_losses(measured, 1, 2).mistakes
    )
    why = explain("c", found.evidences["q1"], own, of_set=traces.traced_mistakes(found.path))
    assert line in [one.line for one in why.mistakes]
    warned = setting_for(traced_recording(found, "mine"), own).warnings
    assert f"what ranked last: {line.removeprefix('cross-encoder: ')}" in warned


def test_the_cutoff_of_why_is_that_of_the_set_and_not_of_one_answer(store: Store, tmp_path: Path) -> None:
    none_left = [stage("floor", 5, "filter", [])]
    import_traces(written(tmp_path / "none.jsonl", *((f"q{i}", [*HYBRID, *none_left]) for i in range(3))), store)
    found = read_traced(store, "none")
    assert found is not None and found.header.config.assembly.limit == 10
    why = explain("a", found.evidences["q0"], found.header.config)
    assert (why.path.k, why.path.lost_at) == (10, "floor")
    import_traces(written(tmp_path / "none.jsonl", ("q0", [*HYBRID, *none_left]), ("q1", HYBRID)), store)
    found = read_traced(store, "none")
    assert (
        found is not None and found.header.config.assembly.limit == 10
    )  # not the two of its longest answer: losses count in 10


def test_a_text_that_comes_after_its_id_reaches_store_and_evidence(store, tmp_path, monkeypatch):
    monkeypatch.setattr(reader, "PORTION_TRACES", 1)
    bare = json.loads(json.dumps(HYBRID))
    for one in bare:
        one["attributes"] = {k: v for k, v in one["attributes"].items() if not k.endswith("document.content")}
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(f"{json.dumps(one | {'trace_id': 't0'})}\n" for one in bare))
    with path.open("a") as file:
        file.writelines(f"{json.dumps(one | {'trace_id': 't1'})}\n" for one in HYBRID)
    import_traces(path, store)
    found = read_traced(store, "mine")
    assert found is not None and store.memories.count() == 4
    assert {one.memories["a"].content for one in found.evidences.values()} == {"text of a"}


def test_another_file_adds_its_queries_and_replaces_those_it_has(store: Store, tmp_path: Path) -> None:
    import_traces(written(tmp_path / "one.jsonl", ("q1", HYBRID), ("q2", HYBRID)), store, options=ImportOptions("mine"))
    changed = [*HYBRID[:4], reranker("cross-encoder", 4, FUSED, [("d", 0.9)])]
    import_traces(
        written(tmp_path / "two.jsonl", ("q2", changed), ("q3", HYBRID)), store, options=ImportOptions("mine")
    )
    found = read_traced(store, "mine")
    assert found is not None and set(found.evidences) == {"q1", "q2", "q3"}
    assert found.evidences["q2"].recorded.results == (("d", 0.9),)  # type: ignore[union-attr]
    assert {query.qid for query in store.query_sets.queries("mine")} == {"q1", "q2", "q3"}


def test_an_undo_puts_back_the_stages_that_an_import_replaced(store: Store, tmp_path: Path) -> None:
    first = import_traces(written(tmp_path / "one.jsonl", ("q1", HYBRID)), store, options=ImportOptions("mine"))
    before = read_traced(store, "mine")
    changed = [*HYBRID[:4], reranker("cross-encoder", 4, FUSED, [("d", 0.9)])]
    import_traces(
        written(tmp_path / "two.jsonl", ("q1", changed), ("q2", HYBRID)), store, options=ImportOptions("mine")
    )
    assert undo_import(store, first.event).stay[0] == ("kept 1 query judged after it or put into a query set: q1")
    assert "1 file of recorded stages" in undo_import(store).done_words
    after = read_traced(store, "mine")
    assert after is not None and before is not None
    assert after.evidences["q1"].recorded == before.evidences["q1"].recorded


def test_of_a_query_traced_twice_the_last_trace_counts(store, tmp_path, monkeypatch):
    """A second run appended to the file of the first, in one portion and in two."""
    changed = [*HYBRID[:4], reranker("cross-encoder", 4, FUSED, [("d", 0.9)])]
    path = written(tmp_path / "mine.jsonl", ("q1", HYBRID), ("q2", HYBRID))
    with path.open("a") as file:
        for line in written(tmp_path / "again.jsonl", ("q1", changed)).read_text().splitlines():
            file.write(json.dumps(json.loads(line) | {"trace_id": "second run"}) + "\n")
    for portion in (256, 1):
        monkeypatch.setattr(reader, "PORTION_TRACES", portion)
        report = import_traces(path, store)
        assert "queries traced more than once, of which the last trace counts: 1, such as q1" in report.notes
        found = read_traced(store, "mine")
        assert found is not None and set(found.evidences) == {"q1", "q2"}
        assert found.evidences["q1"].recorded.results == (("d", 0.9),)  # type: ignore[union-attr]
        assert found.evidences["q2"].recorded.results != (("d", 0.9),)  # type: ignore[union-attr]


def test_measures_losses_and_why_name_the_recorded_stage(store: Store, tmp_path: Path) -> None:
    import_traces(written(tmp_path / "mine.jsonl", ("q1", HYBRID)), store)
    found = read_traced(store, "mine")
    assert found is not None
    evidence = labelled(found, agreed([LOST_AT_RERANK, Judgment("q1", "b", 2)], None))
    own = found.header.config
    measured, _ = evaluate_configs([(own.name, own)], lambda _: evidence, parse_measures("hit@2 recall@2", 1))
    assert measured[0].evaluation.summaries[1].mean == 0.5
    losses = measured_losses(measured, 1, 2)
    assert losses.sentences == ["lost 1 of 2 relevant memories from the first 2: cross-encoder 1"]
    assert losses.maps[0].rows[0].words.startswith("Lost at cross-encoder: d was not in bm25, 1st in faiss (0.9)")
    why = explain("d", found.evidences["q1"], own)
    assert why.path.lost_at == "cross-encoder" and "no fix can be computed" in why.verdict
    with EvidenceStream([found.path]) as stream, pytest.raises(InputError, match="no query has a relevant memory"):
        streamed_losses(stream, own, 10)
    judged = ParsedInput("j", "judgments-jsonl", judgments=(LOST_AT_RERANK, Judgment("q1", "b", 2)))
    store.add(judged)
    import_traces(tmp_path / "mine.jsonl", store)
    with EvidenceStream([found.path]) as stream:
        assert stream.external and streamed_losses(stream, own, 2).sentences == losses.sentences


def test_what_needs_a_replay_is_refused_in_one_line(store: Store, tmp_path: Path) -> None:
    import_traces(written(tmp_path / "mine.jsonl", ("q1", HYBRID)), store)
    found = read_traced(store, "mine")
    assert found is not None
    evidence = labelled(found, agreed([LOST_AT_RERANK], None))
    with pytest.raises(InputError, match=r"^mine was traced in another pipeline: .* choose none, nor an ablation$"):
        evaluate_configs([("cems", preset("cems").config)], lambda _: evidence, parse_measures("hit@2", 1))
    with pytest.raises(InputError, match=r"^mine was traced .*; tuning needs a pipeline that can be replayed"):
        require_replayable("mine", found.external, "tuning")


def test_a_file_that_cannot_be_used_says_why_and_leaves_the_former_one(store: Store, tmp_path: Path) -> None:
    path = written(tmp_path / "mine.jsonl", ("q1", HYBRID))
    import_traces(path, store)
    before = traced_path(store.path, "mine").read_bytes()
    empty = tmp_path / "empty.jsonl"
    empty.write_text(json.dumps(ROOT | {"name": "alone"}) + "\n")
    with pytest.raises(InputError, match="no query of it has lists or stages"):
        import_traces(empty, store, options=ImportOptions("mine"))
    assert traced_path(store.path, "mine").read_bytes() == before
    bad = [
        json.dumps(retriever("r", 1, BM25, None) | {"start_time": "noon"}),
        "{",
        json.dumps(retriever("s", 2, BM25, None)),
    ]
    (tmp_path / "bad.jsonl").write_text("\n".join(bad) + "\n")
    report = import_traces(tmp_path / "bad.jsonl", store)
    assert report.queries.added == 1 and [error.row for error in report.errors] == [1, 2]


BASE = with_values(
    preset("cems_head").config,
    {
        "lists.hybrid.enabled": False,
        "lists.vector.enabled": True,
        "lists.lexical.enabled": True,
        "lists.lexical.normalization": "max",
        "filter.min_score": None,
        "gap.ratio": 0.0,
    },
)


def answered(**lists: RankedIds) -> Recording:
    return Recording(
        "a.json", "recording", (RecordedAnswer(1, "q", "x", None, (), {k: (v,) for k, v in lists.items()}),)
    )


def store_of(memories: Mapping[str, Memory]) -> Resources:
    """Resources whose store has these memories, without chunks or embeddings."""

    def read(ids: Iterable[str]) -> dict[str, Memory]:
        return {key: memories[key] for key in ids if key in memories}

    none = SimpleNamespace(read=lambda ids: {})
    vectors = SimpleNamespace(embeddings=lambda ids: {})
    fake: Any = SimpleNamespace(
        store=SimpleNamespace(memories=SimpleNamespace(read=read), chunks=none),
        indexes=SimpleNamespace(vectors=vectors),
    )
    return cast(Resources, fake)


def test_a_recorded_list_stands_for_ours_by_what_systems_call_it() -> None:
    rows = (("a", 1.0),)
    found = list_map(answered(semantic=rows, keyword=rows, keyword_unit=rows, entity=rows, access=rows), BASE)
    assert found.sources == {"semantic": "vector", "keyword": "lexical", "access": "access"}
    assert found.doubts == ("the recorded list entity is not used: no list of the config stands for it",)
    assert list_map(answered(dense=rows), BASE, {"dense": "relations"}).sources == {"dense": "relations"}
    with pytest.raises(InputError, match="no list bm25; its lists: dense"):
        list_map(answered(dense=rows), BASE, {"bm25": "lexical"})


def test_scores_that_are_normalised_already_are_not_normalised_again() -> None:
    found = list_map(answered(keyword_unit=(("a", 0.9),)), BASE)
    assert with_map(BASE, found) == {"lists.lexical.normalization": "none"}
    assert with_map(BASE, list_map(answered(keyword=(("a", 9.0),)), BASE)) == {}


def test_recorded_lists_are_replayed_in_the_recorded_order_with_memories_that_ours_lack() -> None:
    """Equal scores stand as recorded, not by id; z is a memory of the store that no list of ours found, and n of none."""
    ours = evidence({"vector": {"a": 0.9, "b": 0.8}, "lexical": {"a": 3.0}})
    recording = answered(vector=(("z", 0.5), ("b", 0.5), ("n", 0.5), ("a", 0.5)), lexical=())
    found = with_lists(
        ours, recording.answers[0], list_map(recording, BASE), "recorded", BASE, store_of({"z": Memory("z", "new")})
    )
    assert [row.memory_id for row in replay(found, BASE).results] == ["z", "b", "a"]
    assert found.memories["z"].content == "new"
    assert [(one.name, len(one.hits)) for one in found.lists if one.variant is not None] == [
        ("vector:0", 3),
        ("lexical:0", 0),
    ]


def test_a_list_that_another_query_has_is_empty_for_this_one() -> None:
    ours = evidence({"vector": {"a": 0.9}, "lexical": {"b": 3.0}})
    recording = Recording(
        "a.json",
        "recording",
        (
            RecordedAnswer(1, "q", "x", None, (), {"vector": ((("a", 0.9),),)}),
            RecordedAnswer(2, "r", "x", None, (), {"lexical": ((("b", 0.9),),)}),
        ),
    )
    found = with_lists(ours, recording.answers[0], list_map(recording, BASE), "recorded", BASE, store_of({}))
    assert [row.memory_id for row in replay(found, BASE).results] == ["a"]


def test_ties_of_our_lists_stand_in_the_recorded_order_and_others_stay() -> None:
    ours = evidence({"vector": {"a": 0.9, "b": 0.5, "c": 0.5, "d": 0.4}})
    recording = answered(vector=(("c", 0.5), ("b", 0.5), ("d", 0.4), ("a", 0.1)))
    found = with_lists(ours, recording.answers[0], list_map(recording, BASE), "ties", BASE, store_of({}))
    assert [row.memory_id for row in replay(found, BASE).results] == ["a", "c", "b", "d"]
    assert with_lists(ours, recording.answers[0], list_map(recording, BASE), "own", BASE, store_of({})) is ours


def test_a_recorded_vector_score_is_on_the_scale_of_the_config() -> None:
    config: PipelineConfig = with_values(BASE, {"lists.vector.scale": "half_cosine"})
    ours = evidence({"vector": {"a": 0.9}})
    recording = answered(vector=(("a", 0.75),))
    found = with_lists(ours, recording.answers[0], list_map(recording, config), "recorded", config, store_of({}))
    (vector,) = [one for one in found.lists if one.source == "vector"]
    assert vector.hits[0].score == 0.5


HEAD = preset(BASE_PRESET).config
THEN = datetime(2026, 11, 22, 15, tzinfo=UTC)


def recorded(**changes: Any) -> Recording:
    answers = [{"qid": "q1", "query": "what?", "project": "p", "results": ["a"]}]
    return parse_recording(json.dumps({"answers": answers, "answered_at": THEN.isoformat()} | changes), "dir/a.json")


def test_settings_of_a_recording_are_laid_over_the_config_as_variables_of_cems() -> None:
    settings = {"relevance_threshold": "0.1", "rrf_original_weight": "1.0"}
    setting = setting_for(recorded(config=settings, max_tokens=1200), HEAD)
    assert setting.config.filter.min_score == 0.1
    assert setting.config.variants.original_weight == 1.0
    assert setting.config.assembly.max_tokens == 1200
    assert dict(setting.applied) == {**settings, "max_tokens": "1200"}
    assert (setting.name, setting.warnings) == ("a, cems_head", ())


def test_a_config_stays_as_chosen_where_that_is_asked_and_no_setting_sets_another_one() -> None:
    setting = setting_for(recorded(config={"relevance_threshold": "0.1"}, max_tokens=1200), HEAD, as_chosen=True)
    assert (setting.config, setting.applied) == (HEAD, ())
    setting = setting_for(recorded(config={"x": "1'\nCEMS_RELEVANCE_THRESHOLD='0.9"}), HEAD)
    assert setting.config.filter.min_score == HEAD.filter.min_score


def test_a_setting_that_no_parameter_has_is_a_warning_that_names_it() -> None:
    setting = setting_for(recorded(config={"relevance_treshold": "0.1", "score_gap_ratio": "much"}), HEAD)
    unknown, refused = setting.warnings
    assert unknown.startswith("a.json: config: CEMS_RELEVANCE_TRESHOLD: no parameter")
    assert "CEMS_RELEVANCE_THRESHOLD" in unknown
    assert refused.startswith("a.json: config: CEMS_SCORE_GAP_RATIO: 'much' is not allowed")


def test_a_recording_says_what_was_asked_and_when() -> None:
    stored = {"q1": Query("q1", "another", "q", datetime(2020, 1, 1, tzinfo=UTC))}
    assert asked_queries(recorded(), stored) == (Query("q1", "what?", "p", THEN),)
    later = datetime(2027, 1, 1, tzinfo=UTC)
    assert asked_queries(recorded(), stored, later) == (Query("q1", "what?", "p", later),)


def test_a_run_is_of_the_queries_of_the_store() -> None:
    run = parse_recording("q1 Q0 a 1 0.9 x\nq2 Q0 b 1 0.9 x", "a.run")
    stored = {"q1": Query("q1", "one", "p", THEN), "q2": Query("q2", "two")}
    assert asked_queries(run, stored) == (Query("q1", "one", "p", THEN), Query("q2", "two"))
    with pytest.raises(InputError) as refused:
        asked_queries(run, {"q1": stored["q1"]})
    assert str(refused.value) == "a.run:2: query: unknown; the store has no query 'q2'"


def test_plain_ids_need_a_query_by_text_or_by_qid() -> None:
    plain = parse_recording("m1\nm2", "ids.txt")
    stored = {"q7": Query("q7", "seven", "p", THEN)}
    assert asked_queries(plain, stored, query="free text") == (Query("1", "free text"),)
    assert asked_queries(plain, stored, query="q7") == (Query("1", "seven", "p", THEN),)
    with pytest.raises(InputError, match=r"ids\.txt:1: query: unknown; name it with --query"):
        asked_queries(plain, stored)


def test_a_recording_is_whole_and_other_answers_are_cut_at_the_longest() -> None:
    assert limit_of(recorded()) is None
    assert limit_of(parse_recording("q1 Q0 a 1 0.9 x\nq2 Q0 b 1 0.9 x\nq2 Q0 c 2 0.8 x")) == 2


def test_good_rows_are_measured_and_one_line_says_what_was_left_out() -> None:
    bad = recorded(answers=[{"qid": "q1", "query": "x", "results": [{}, "a", {}]}])
    require_usable(bad)
    assert [row.memory_id for row in bad.answers[0].returned] == ["a"]
    line = bad_rows(bad)
    assert line is not None
    assert line.startswith("left out: dir/a.json:1: results[0]: has neither an id")
    assert line.endswith("(1 more such row)")
    assert bad_rows(recorded()) is None
    with pytest.raises(InputError) as refused:
        require_usable(recorded(answers=["x"]))
    assert str(refused.value) == "dir/a.json: there are no answers: dir/a.json:1: must be an answer, found 'x'"


def test_what_a_recording_says_was_searched_is_taken_as_given_unless_own_searches_are_asked_for() -> None:
    answer = {"qid": "q1", "query": "x", "results": ["a"], "searched": "x y", "queries": ["x", "z", "x"]}
    given = recorded(answers=[{**answer, "fts_query": "x OR y", "path": "dense"}])
    setting = setting_for(given, HEAD)
    (query,) = asked_queries(given, {}, setting=setting)
    assert (query.searched, query.wordings) == ("x y", ("z", "x"))
    assert dict(query.engine_queries) == {}  # cems_head has no list of that engine
    assert setting.given == {"searched text": 1, "wordings": 1, "vector alone": 1}
    own = setting_for(given, HEAD, own_searches=True)
    assert asked_queries(given, {}, setting=own) == (Query("q1", "x", None, THEN),)
    assert own.given == {}


def test_the_lexical_list_of_a_query_is_found_in_the_recording_that_has_it() -> None:
    lists = {"lexical": [[["a", 0.5]]], "vector": [[["b", 0.1]]]}
    first = recorded(answers=[{"qid": "q1", "query": "x", "results": [], "lists": lists}])
    second = recorded(answers=[{"qid": "q1", "query": "x", "results": []}, {"qid": "q2", "query": "y", "results": []}])
    assert lexical_lists([second, first]) == {"x": {"lexical": ((("a", 0.5),),)}}


def test_a_result_known_by_its_text_alone_counts_as_the_memory_whose_text_it_is() -> None:
    memories = {name: Memory(name, f"what memory {name} says, at some length") for name in "abc"}
    answers = (
        RecordedAnswer(1, "q1", "x", None, (Returned(1, None, None, memories["b"].content), Returned(2, "a"))),
        RecordedAnswer(
            2, "q2", "x", None, (Returned(1, None, None, "no such text"), Returned(2, None, None, "nor this"))
        ),
    )
    productions = {
        answer.qid: match_results(
            answer.returned,
            lambda ids: memories if ids is None else {key: memories[key] for key in ids if key in memories},
        )
        for answer in answers
    }
    assert [productions[qid].recorded for qid in ("q1", "q2")] == [("b", "a"), ("no id", "no id")]
    hits = (Hit("b", 0.9), Hit("a", 0.8), Hit("c", 0.7))
    asked = Evidence(
        "x", memories, (Variant("x"),), (RankedList("vector:0", "vector", 0, hits),), datetime(2026, 11, 1, tzinfo=UTC)
    )
    config = with_values(
        preset("cems_head").config,
        {
            "lists.hybrid.enabled": False,
            "lists.vector.enabled": True,
            "filter.min_score": None,
            "gap.ratio": 0.0,
        },
    )
    near = nearness(answers, productions, [asked, asked], config)
    assert near == {"q1": pytest.approx(1.0), "q2": 0.0}  # ours are cut at two, the longest answer
