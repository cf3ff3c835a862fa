"""The fix that `why` names does what its sentence says: typed as it stands, replayed and measured by `evaluate`."""

from __future__ import annotations

import re

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies import configs, evidences

from cems_workbench.analysis.why import LabelledSet, explain
from cems_workbench.analysis.why.first_fix import standing_of
from cems_workbench.config import parse_assignment, with_values
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.comparison import compare
from cems_workbench.evaluation.evaluate import evaluate
from cems_workbench.evaluation.metrics import parse_measure
from cems_workbench.evaluation.verdict import verdict_of
from cems_workbench.pipeline import replay
from cems_workbench.pipeline.list_sources import ordinal
from cems_workbench.records import Query
from tests.thoroughly import EXAMPLES

QUERIES = 12
NDCG = parse_measure("nDCG@10")
NAMED = (
    r"(?:Fix|.* the judged queries(?:; the least loss)?): (?P<changes>.+?)\. {memory_id} becomes (?P<rank>\w+); "
    r"on (?P<queries>\d+) judged quer(?:y|ies) (?P<verdict>nDCG@10 .+?\))(?P<rest>.*)\."
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
