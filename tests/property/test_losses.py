"""Loss maps: each relevant memory is in one branch, at the stage that why names, of own and traced evidence.

What why and fixes say holds when it is replayed.
"""

from __future__ import annotations

import json
import pickle
import random
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies import IDS, configs, evidences

from cems_workbench.analysis.losses_of_set import LossCollector, Losses, losses_of, with_words
from cems_workbench.analysis.ranks import NEVER_FOUND, branch_of, kendall, lost, rbo
from cems_workbench.analysis.why.counterfactual import PRECISION, span
from cems_workbench.analysis.why.first_fix import standing_of
from cems_workbench.analysis.why.path import cause, memory_path
from cems_workbench.analysis.why.report import explain
from cems_workbench.analysis.why.trial import LabelledSet, Trials
from cems_workbench.config import PipelineConfig, field_spec, parse_assignment, preset, with_values
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.comparison import compare
from cems_workbench.evaluation.evaluate import evaluate
from cems_workbench.evaluation.metrics import parse_measure
from cems_workbench.evaluation.verdict import verdict_of
from cems_workbench.pipeline import Evidence, evidence_from, replay
from cems_workbench.pipeline.bundle import bundle_from
from cems_workbench.pipeline.evidence import Hit, RankedList, Variant
from cems_workbench.pipeline.list_sources import ordinal
from cems_workbench.pipeline.recorded import RECORDED
from cems_workbench.pipeline.relations import possible_seeds
from cems_workbench.pipeline.replay import run, to_table
from cems_workbench.pipeline.stages import candidate_stages
from cems_workbench.pipeline.supersession import SUPERSEDED
from cems_workbench.pipeline.trace_spans import trace_spans
from cems_workbench.records import STAGE_KINDS, Chunk, Memory, Query
from tests.property.test_one_truth import CONFIGS
from tests.thoroughly import EXAMPLES
from tests.unit.formats.test_traced_spans import ROOT, documents, reranker, retriever, stage
from workbench_tools.spans import read_span
from workbench_tools.traced import TracedQuery, queries_of

BROUGHT_IN = "zz"
"""A successor that no list has."""


@st.composite
def superseding(draw: st.DrawFn) -> Evidence:
    """Evidence in which some memories supersede others; what supersedes may be in no list."""
    found = draw(evidences())
    ids = [*sorted(found.memories), BROUGHT_IN]
    older = draw(st.lists(st.sampled_from(ids[:-1]), unique=True)) if ids[:-1] else []
    noted = {
        key: [{"id": draw(st.sampled_from(ids[ids.index(key) + 1 :])), "created_at": None, "kind": "supersedes"}]
        for key in older
    }
    memories = {**found.memories, BROUGHT_IN: Memory(BROUGHT_IN, "text")}
    return replace(found, memories=memories, notes={**found.notes, "superseded": noted})


SETS = st.lists(evidences() | superseding(), min_size=1, max_size=4)
MODES = st.sampled_from(["off", "demote", "drop", "follow"])
LOSS_CONFIGS = st.builds(lambda config, mode: with_values(config, {"supersession.mode": mode}), CONFIGS, MODES)


def labelled(found: list[Evidence]) -> LabelledBatch:
    """A query for each evidence; every memory is judged, also one that no evidence has, by turns relevant."""
    queries = [Query(f"q{i}", one.query, type="ab"[i % 2], project="p") for i, one in enumerate(found)]
    ids = [*IDS, BROUGHT_IN, "nowhere"]
    grades = {query.qid: {key: (i + n) % 3 for n, key in enumerate(ids)} for i, query in enumerate(queries)}
    return LabelledBatch(queries, {query.qid: one for query, one in zip(queries, found, strict=True)}, grades)


@settings(max_examples=EXAMPLES)
@given(SETS, LOSS_CONFIGS, st.integers(1, 4))
def test_every_relevant_memory_is_in_one_branch_at_the_stage_that_why_names(found, config, k):
    batch = labelled(found)
    whole = losses_of([batch], [config], 1, k).maps[0]
    gathered = dict(zip(batch.qids, batch.evidences, strict=True))
    told = with_words(Losses((whole,), ()), [config], [lambda qids: {qid: gathered[qid] for qid in qids}], 99)
    words = {(row.qid, row.memory_id): row.words for row in told.maps[0].rows}
    rows = {(row.qid, row.memory_id): row for row in whole.rows}
    assert len(rows) == len(whole.rows) == whole.lost == sum(whole.branches.values())
    for qid, evidence, grades in zip(batch.qids, batch.evidences, batch.grades, strict=True):
        trace = replay(evidence, config)
        for memory_id in (key for key, grade in grades.items() if grade):
            path = memory_path(trace, memory_id, k)
            row = rows.get((qid, memory_id))
            assert words.get((qid, memory_id)) == (cause(path, trace) if row else None)
            assert (row.branch if row else None) == branch_of(trace, memory_id, k)
            if path.status == "in the top k":
                assert row is None
            elif path.status == "in no list":
                assert row is not None and row.branch == NEVER_FOUND
            else:
                assert row is not None and row.branch.stage == path.lost_at


@settings(max_examples=EXAMPLES)
@given(SETS, LOSS_CONFIGS, LOSS_CONFIGS, st.integers(1, 4))
def test_portions_add_up_and_a_difference_is_that_of_the_two_maps(found, one, other, k):
    batch = labelled(found)
    portions = LossCollector([one, other], 1, k)
    for qid in batch.qids:
        portions.add([batch.of_queries([qid])])
    whole = losses_of([batch], [one, other], 1, k)
    assert portions.finished() == whole == losses_of([batch, batch.of_queries(batch.qids)], [one, other], 1, k)
    before, after, change = *whole.maps, whole.differences[0]
    assert after.returned - before.returned == sum(change.saved.values()) - sum(change.broken.values())
    lost_by_both = sum(before.branches.values()) - sum(change.saved.values())
    assert lost_by_both == sum(after.branches.values()) - sum(change.broken.values())
    rows = [{(row.qid, row.memory_id): row.branch for row in one.rows} for one in whole.maps]
    assert {(row.qid, row.memory_id) for row in change.saved_rows} == rows[0].keys() - rows[1].keys()
    assert {(row.qid, row.memory_id): row.branch for row in change.broken_rows} == {
        key: rows[1][key] for key in rows[1].keys() - rows[0].keys()
    }
    for counts in (before.by_type, before.by_project):
        assert sum(row.relevant for row in counts.values()) == before.relevant
        assert sum(row.returned for row in counts.values()) == before.returned
    widths = [before.relevant - before.at(""), *before.after.values()]
    assert widths == sorted(widths, reverse=True) and widths[-1] == before.returned


@settings(max_examples=EXAMPLES)
@given(SETS, LOSS_CONFIGS, st.integers(1, 4))
def test_some_candidates_are_decided_as_all_are(found: list[Evidence], config: PipelineConfig, k: int) -> None:
    table = to_table(found)
    q, c = np.nonzero(table.valid)
    every = lost(run(table, config), table, config, k, (q, c))
    some = lost(run(table, config), table, config, k, (q[:3], c[:3]))
    for name in ("at", "dropped", "rank"):
        assert (getattr(some, name) == getattr(every, name)[:3]).all()


SCORES = st.none() | st.sampled_from([0.1, 0.5, 0.5, 2.0])
STRANGER = "stranger"


def hits(draw: st.DrawFn, among: list[str]) -> list[tuple[str, float | None]]:
    ids = draw(st.lists(st.sampled_from(among), unique=True)) if among else []
    return [(key, draw(SCORES)) for key in ids]


@st.composite
def traces(draw: st.DrawFn) -> list[dict[str, Any]]:
    """The spans of one query in any order: lists and stages between one another, inputs said or not, strangers, a root with or without
    documents, one span that failed."""
    spans, known = [ROOT], list[str]()
    for at in range(draw(st.integers(1, 7))):
        form = draw(st.sampled_from(["list", "stage", "stage", "rerank"]))
        if form == "list" or not known:
            found = hits(draw, IDS)
            spans.append(retriever(f"list {at}", at + 1, found))
        else:
            found = hits(draw, [*dict.fromkeys(known), STRANGER])
            read = hits(draw, list(dict.fromkeys(known)))
            if form == "rerank":
                spans.append(reranker(f"rerank {at}", at + 1, read, found))
            else:
                given = documents("workbench.stage.input", read) if draw(st.booleans()) else {}
                kind = draw(st.sampled_from(STAGE_KINDS))
                spans.append(stage(f"stage {at}", at + 1, kind, found, **given))
        known += [key for key, _ in found]
    if draw(st.booleans()):
        spans[0] = ROOT | {"attributes": ROOT["attributes"] | documents("retrieval.documents", hits(draw, IDS))}
    failed = draw(st.integers(0, 3 * len(spans)))
    if 0 < failed < len(spans):
        spans[failed] = spans[failed] | {"status_code": "ERROR"}
    return draw(st.permutations(spans))


def read_back(spans: list[dict[str, Any]]) -> list[TracedQuery]:
    found = [read_span(row, json.loads(json.dumps(one))) for row, one in enumerate(spans, 1)]
    return list(queries_of([pickle.loads(pickle.dumps(one)) for one in found]))


def evidence_of(query: TracedQuery) -> Evidence:
    memories = {key: Memory(key, "text") for key in query.recorded.ids}
    evidence = Evidence(query.query, memories, notes={RECORDED: query.recorded.to_json(), "warnings": query.warnings})
    return evidence_from(json.loads(json.dumps(bundle_from(evidence))))


@settings(max_examples=4 * EXAMPLES)
@given(st.lists(traces(), min_size=1, max_size=4), st.integers(1, 4))
def test_every_relevant_memory_of_a_trace_is_in_one_branch_at_the_stage_that_why_names(found, k):
    queries = [query for spans in found for query in read_back(spans)]
    assert len(queries) == len(found)
    evidences_by_qid = {f"q{i}": evidence_of(query) for i, query in enumerate(queries)}
    ids = [*IDS, STRANGER, "nowhere"]
    grades = {qid: {key: (i + n) % 3 for n, key in enumerate(ids)} for i, qid in enumerate(evidences_by_qid)}
    batch = LabelledBatch([Query(qid, "q") for qid in evidences_by_qid], evidences_by_qid, grades)
    config = PipelineConfig()
    whole = losses_of([batch], [config], 1, k).maps[0]
    told = with_words(Losses((whole,), ()), [config], [lambda qids: {qid: evidences_by_qid[qid] for qid in qids}], 99)
    words = {(row.qid, row.memory_id): row.words for row in told.maps[0].rows}
    rows = {(row.qid, row.memory_id): row for row in whole.rows}
    assert len(rows) == len(whole.rows) == whole.lost == sum(whole.branches.values())
    widths = [whole.relevant - whole.at(""), *whole.after.values()]
    assert widths == sorted(widths, reverse=True) and widths[-1] == whole.returned
    for query, (qid, evidence) in zip(queries, evidences_by_qid.items(), strict=True):
        trace = replay(evidence, config)
        assert [result.memory_id for result in trace.results] == [key for key, _ in query.recorded.results]
        first = {key for key, _ in query.recorded.results[:k]}
        for memory_id in (key for key, grade in grades[qid].items() if grade):
            row, path = rows.get((qid, memory_id)), memory_path(trace, memory_id, k)
            assert (row is None) == (memory_id in first) == (path.status == "in the top k")
            assert (row.branch if row else None) == branch_of(trace, memory_id, k)
            assert words.get((qid, memory_id)) == (cause(path, trace) if row else None)
            if row is not None:
                known = memory_id in query.recorded.ids
                assert (row.branch == NEVER_FOUND) == (path.status == "in no list") == (not known)
                assert row.branch.stage == (path.lost_at or "")


@settings(max_examples=2 * EXAMPLES)
@given(evidences(), CONFIGS, st.integers(1, 4), st.integers(0, 9))
def test_a_trace_of_ours_written_as_spans_and_read_back_loses_the_same_memories(evidence, config, k, seed):
    before = replay(evidence, config)
    spans = [json.loads(line) for line in trace_spans(before)]
    random.Random(seed).shuffle(spans)
    if not evidence.searched.strip():
        assert not read_back(spans)  # nothing was asked
        return
    (query,) = read_back(spans)
    after = replay(evidence_of(query), PipelineConfig())
    assert [stage.name for stage in after.candidate_stages] == [stage.name for stage in before.candidate_stages]
    assert [result.memory_id for result in after.results] == [result.memory_id for result in before.results]
    for memory_id in [*evidence.candidate_ids, "nowhere"]:
        assert branch_of(after, memory_id, k) == branch_of(before, memory_id, k)
        one, other = (memory_path(trace, memory_id, k) for trace in (before, after))
        assert (one.status, one.rank, one.lost_at) == (other.status, other.rank, other.lost_at)
        # Before a stage ranks, ours has the best score of the lists, which no span has.
        ways = [
            [(step.stage, step.rank_in, step.rank, step.rank and step.score, step.kept) for step in path.steps]
            for path in (one, other)
        ]
        assert ways[0] == ways[1]


CHUNKS = [(memory_id, chunk) for memory_id in "ABCDEF" for chunk in (0, 1)]
ORDERS = st.permutations(CHUNKS).flatmap(lambda order: st.integers(0, len(order)).map(lambda size: order[:size]))


@given(
    meaning=ORDERS,
    text=ORDERS,
    share=st.floats(0, 1),
    k=st.integers(0, 100),
    depth=st.integers(1, 6),
    seeds=st.integers(1, 3),
)
def test_every_seed_is_among_the_possible_ones(meaning, text, share, k, depth, seeds):
    lists = tuple(
        RankedList(
            f"{source}:0", source, 0, tuple(Hit(key, 1 - i / 100, chunk) for i, (key, chunk) in enumerate(order))
        )
        for source, order in (("vector", meaning), ("ts_rank", text))
    )
    evidence = Evidence(
        "q",
        {key: Memory(key, key) for key in "ABCDEF"},
        (Variant("q"),),
        lists,
        chunks={key: tuple(Chunk(key, seq, key) for seq in (0, 1)) for key in "ABCDEF"},
    )
    config = with_values(
        preset("cems_head").config,
        {"lists.hybrid.vector_weight": share, "lists.hybrid.k": k, "lists.hybrid.depth": depth},
    )
    found = [
        (entry.rank, row.memory_id)
        for row in replay(evidence, config).stage("lists").rows
        for entry in row.lists
        if entry.list == "hybrid:0"
    ]
    possible = possible_seeds(lists, seeds)
    # Where the share leaves one list out, chunks that only it has stand last, equal; any of them may come first.
    assert {key for rank, key in found if rank <= seeds} <= set(possible) or share in (0.0, 1.0)


def brought_in(evidence: Evidence, config: PipelineConfig, memory_id: str, k: int) -> bool:
    return memory_id in [row.memory_id for row in replay(evidence, config).results[:k]]


def candidate(data: st.DataObject, evidence: Evidence) -> str:
    assume(evidence.candidate_ids)
    return data.draw(st.sampled_from(evidence.candidate_ids))


@settings(max_examples=EXAMPLES // 2)
@given(evidences(), configs(), st.integers(1, 3), st.data())
def test_every_breakpoint_and_every_rescue_holds_when_replayed(evidence, config, k, data):
    memory_id = candidate(data, evidence)
    found = explain(memory_id, evidence, config, k=k)
    trials = Trials(evidence, memory_id, k, present=config)
    assert (found.path.status == "in the top k") == brought_in(evidence, config, memory_id, k)
    for rescue in found.counterfactuals:
        applied = rescue.config(config)
        assert brought_in(evidence, applied, memory_id, k), rescue
        assert rescue.rank is not None and rescue.rank <= k
        assert -1 <= rescue.side_effects.tau <= 1 and 0 <= rescue.side_effects.rbo <= 1 + 1e-9
        points = {change.path: change.breakpoint for change in rescue.changes if change.breakpoint is not None}
        if not points:
            continue
        others = {path: value for path, value in rescue.values.items() if path not in points}
        below = with_values(config, others | {path: point.fails for path, point in points.items()})
        above = with_values(config, others | {path: point.succeeds for path, point in points.items()})
        assert not trials.succeeds(below), rescue
        assert trials.succeeds(above) and brought_in(evidence, above, memory_id, k), rescue
        if len(rescue.changes) == 1:
            (path, point), spec = next(iter(points.items())), field_spec(next(iter(points)))
            apart = abs(point.fails - point.succeeds)
            assert apart <= (1 if spec.by_ones else 1.01 * PRECISION * span(spec)), path


@given(evidences(), configs(), st.integers(1, 3), st.data())
def test_the_path_agrees_with_the_trace(evidence, config, k, data):
    memory_id = candidate(data, evidence)
    trace = replay(evidence, config)
    path = memory_path(trace, memory_id, k)
    assert [step.stage for step in path.steps] == [stage.name for stage in candidate_stages(config)[: len(path.steps)]]
    ranks = [row.memory_id for row in trace.results]
    assert path.rank == (ranks.index(memory_id) + 1 if memory_id in ranks else None)
    assert (path.lost_at is None) == (path.status in ("in the top k", "in no list"))
    sentence = cause(path, trace)
    assert memory_id in sentence and sentence.endswith(".") and "\n" not in sentence
    if path.lost_at is not None:
        assert path.lost_at in sentence


LISTS = st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=8)


@given(LISTS, LISTS)
def test_both_overlaps_are_symmetric_and_one_only_for_equal_lists(old: list[str], new: list[str]) -> None:
    assert kendall(old, new) == pytest.approx(kendall(new, old))
    assert rbo(old, new) == pytest.approx(rbo(new, old))
    assert rbo(old, old) == pytest.approx(1.0)
    assert -1 <= kendall(old, new) <= kendall(old, old) == 1.0
    if old != new:
        assert rbo(old, new) < 1


def renamed(subject: Evidence, names: Mapping[str, str]) -> Evidence:
    """The same evidence with other ids; nothing else moves."""

    def keyed(values: Mapping[str, Any]) -> dict[str, Any]:
        return {names[key]: value for key, value in values.items()}

    lists = [
        replace(ranked, hits=tuple(replace(hit, memory_id=names[hit.memory_id]) for hit in ranked.hits))
        for ranked in subject.lists
    ]
    superseded = {
        names[key]: [{**one, "id": names[one["id"]]} for one in own]
        for key, own in subject.notes.get(SUPERSEDED, {}).items()
    }
    return replace(
        subject,
        memories={names[key]: replace(memory, id=names[key]) for key, memory in subject.memories.items()},
        lists=tuple(lists),
        embeddings=keyed(subject.embeddings),
        chunks={
            names[key]: tuple(replace(chunk, memory_id=names[key]) for chunk in own)
            for key, own in subject.chunks.items()
        },
        model_scores={name: keyed(scores) for name, scores in subject.model_scores.items()},
        judge_scores={name: keyed(scores) for name, scores in subject.judge_scores.items()},
        relations=tuple(
            replace(edge, source_id=names[edge.source_id], target_id=names[edge.target_id])
            for edge in subject.relations
        ),
        tokens=keyed(subject.tokens),
        notes={**subject.notes, SUPERSEDED: superseded} if SUPERSEDED in subject.notes else subject.notes,
    )


@settings(max_examples=EXAMPLES // 2)
@given(evidences(), configs(fusion__tie_break="id"), st.integers(1, 3), st.randoms(use_true_random=False), st.data())
def test_other_ids_change_no_outcome(subject, config, k, drawn, data):
    assume(subject.candidate_ids)
    memory_id = data.draw(st.sampled_from(subject.candidate_ids))
    ids = sorted({*subject.memories, *(edge.source_id for edge in subject.relations)})
    names = dict(zip(ids, drawn.sample(ids, len(ids)), strict=True))
    one, other = Trials(subject, memory_id, k), Trials(renamed(subject, names), names[memory_id], k)
    for path, value in [("fusion.k", 7), ("lists.vector.weight", 0.0), ("fusion.cap", 0.0), ("dedup.enabled", True)]:
        changed = with_values(config, {path: value})
        before, after = one.outcome(changed), other.outcome(changed)
        assert (after.rank, after.stood, after.levels) == (before.rank, before.stood, before.levels), path
        assert after.results == tuple(names[key] for key in before.results), path


QUERIES = 12
NDCG = parse_measure("nDCG@10")
NAMED = (
    r"(?:Fix|.* the judged queries(?:; the least loss)?): (?P<changes>.+?)\. {memory_id} becomes (?P<rank>\w+); "
    r"on (?P<queries>\d+) quer(?:y|ies) with a relevant memory: (?P<verdict>.+?\))(?P<rest>.*)\."
)
LOSES = ("doubtful", "harms")


@settings(max_examples=EXAMPLES // 3)
@given(evidences(), st.lists(evidences(), min_size=1, max_size=3), configs(), st.integers(1, 3), st.data())
def test_fix_applied_by_replay_has_the_rank_and_the_measure_of_its_sentence(evidence, others, config, k, data):
    assume(evidence.candidate_ids and any(one.candidate_ids for one in others))
    memory_id = data.draw(st.sampled_from(evidence.candidate_ids))
    judged = {f"q{i:02}": others[i % len(others)] for i in range(QUERIES)}
    grades = {
        qid: {key: (position + i) % 3 for position, key in enumerate(sorted(one.memories))}
        for i, (qid, one) in enumerate(judged.items())
    }
    found = explain(memory_id, evidence, config, k=k, labelled=LabelledSet(judged, grades))
    older = {key for key, own in evidence.superseded.items() if any(one.memory_id == memory_id for one in own)}
    before = [row.memory_id for row in replay(evidence, config).results]
    fix = found.fix
    if fix is None:
        assert memory_id in before[:k] and not older & set(before[: before.index(memory_id)])
        return
    assert bool(found.counterfactuals) == (fix.change is not None)
    if fix.change is None:
        assert fix.sentence.startswith("No fix was found: ") and memory_id in fix.sentence
        return

    assert found.counterfactuals[0] is fix.change
    standings = [standing_of(one) for one in found.counterfactuals]
    loses = [LOSES.index(one) if one in LOSES else -1 for one in standings]
    assert loses[0] == min(loses)
    assert fix.sentence.startswith("Fix: ") == (loses[0] < 0)

    said = re.fullmatch(NAMED.format(memory_id=re.escape(memory_id)), fix.sentence)
    queries = [Query(qid, qid) for qid in judged]
    batch = LabelledBatch(queries, judged, grades)
    measured = any(grade for own in grades.values() for grade in own.values())
    if not measured:
        assert "not checked on other queries" in fix.sentence
        return
    assert said is not None, fix.sentence
    applied = with_values(config, dict(parse_assignment(one) for one in said["changes"].split(" and ")))
    after = [row.memory_id for row in replay(evidence, applied).results]
    assert (
        ordinal(after.index(memory_id) + 1) == said["rank"] and memory_id in after[: max(k, after.index(memory_id) + 1)]
    )

    evaluations = [evaluate(batch, one, [NDCG]) for one in (config, with_values(applied, {"name": "the fix"}))]
    verdict = verdict_of(compare(evaluations), 0)
    assert (said["verdict"], said["queries"]) == (verdict.brief, str(verdict.queries))
    stays_below = any(key in after[: after.index(memory_id)] for key in older)
    assert stays_below == ("which it supersedes" in said["rest"])
