"""The counts of a memory across queries are those of each query's own trace, however the queries are portioned."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import IDS, evidences

from cems_workbench.analysis.memory_use import MemoryUseCounter, memory_uses
from cems_workbench.analysis.ranks import branch_of
from cems_workbench.config import PipelineConfig
from cems_workbench.pipeline import Evidence, replay
from cems_workbench.pipeline.stages.lists import LISTS
from cems_workbench.records import Query
from tests.property.test_one_truth import CONFIGS
from tests.thoroughly import EXAMPLES
from tests.unit.evaluation.sets import AS_LISTED, evidence

SETS = st.lists(evidences(), min_size=1, max_size=4)
JUDGED = ["nowhere", *IDS]


@settings(max_examples=EXAMPLES)
@given(SETS, CONFIGS, st.integers(1, 4))
def test_every_count_is_that_of_the_traces(found: list[Evidence], config: PipelineConfig, k: int) -> None:
    queries = [Query(f"q{i}", one.query) for i, one in enumerate(found)]
    gathered = {query.qid: one for query, one in zip(queries, found, strict=True)}
    # Each memory is relevant, irrelevant and not judged by turns.
    grades = {
        query.qid: {key: (i + n) % 3 - 1 for n, key in enumerate(JUDGED) if (i + n) % 3}
        for i, query in enumerate(queries)
    }
    uses = memory_uses(queries, gathered, grades, config, 1, k=k, followed=JUDGED)
    portions = MemoryUseCounter(config, 1, k=k, followed=JUDGED)
    for query in queries:
        portions.add([query], gathered, grades)
    again = portions.finished()
    assert (again.uses, again.rows, again.expected) == (uses.uses, uses.rows, uses.expected)
    traces = {qid: replay(one, config) for qid, one in gathered.items()}
    for key in JUDGED:
        use, branches, statuses = uses.of(key), Counter[object](), Counter[str]()
        for qid, trace in traces.items():
            grade = grades[qid].get(key)
            returned = key in [row.memory_id for row in trace.results[:k]]
            if grade == 1 and not returned:
                branches[branch_of(trace, key, k)] += 1
                statuses["lost"] += 1
            elif returned:
                statuses["not judged" if grade is None else "found" if grade else "judged irrelevant"] += 1
        assert use.lost == branches
        assert Counter(row.status for row in uses.rows.get(key, ())) == statuses
        assert use.candidate == sum(key in trace.stage(LISTS).by_id for trace in traces.values())
        assert (use.found, use.irrelevant, use.unjudged) == (
            statuses["found"],
            statuses["judged irrelevant"],
            statuses["not judged"],
        )
        assert use.wanted == statuses["found"] + statuses["lost"]
    assert {use.memory_id for use in uses.orphans(JUDGED)} == {key for key in JUDGED if not uses.of(key).returned}


def test_a_hub_is_returned_for_many_queries_that_judge_it_irrelevant() -> None:
    counter = MemoryUseCounter(AS_LISTED, 1, k=2)
    queries = [Query(f"q{i}", f"query {i}") for i in range(4)]
    grades = {query.qid: {"a": 0, "b": int(i > 0)} for i, query in enumerate(queries)}
    counter.add(queries, {query.qid: evidence(query.query) for query in queries}, grades)
    uses = counter.finished()
    # a to h are candidates: bad k-occurrences 4, 1 and six times 0, mean 5/8, so that two deviations are 3.3 above none
    assert uses.expected == 5 / 8 and [use.memory_id for use in uses.hubs()] == ["a"]
    assert "It is a hub" in uses.sentence("a") and "hub" not in uses.sentence("b")
    assert [use.memory_id for use in uses.orphans()] == list("cdefgh")
