"""What why and fixes say holds when it is replayed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies import configs, evidences

from cems_workbench.analysis.ranks import kendall, rbo
from cems_workbench.analysis.why.counterfactual import PRECISION, span
from cems_workbench.analysis.why.first_fix import standing_of
from cems_workbench.analysis.why.path import cause, memory_path
from cems_workbench.analysis.why.report import explain
from cems_workbench.analysis.why.trial import LabelledSet, Trials
from cems_workbench.config import PipelineConfig, field_spec, parse_assignment, with_values
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.comparison import compare
from cems_workbench.evaluation.evaluate import evaluate
from cems_workbench.evaluation.metrics import parse_measure
from cems_workbench.evaluation.verdict import verdict_of
from cems_workbench.pipeline import Evidence, replay
from cems_workbench.pipeline.list_sources import ordinal
from cems_workbench.pipeline.stages import candidate_stages
from cems_workbench.pipeline.supersession import SUPERSEDED
from cems_workbench.records import Query
from tests.thoroughly import EXAMPLES


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
