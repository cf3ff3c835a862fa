"""The losses of a query set are those of `why`: every relevant memory is in one branch, at the stage that `why` names."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import IDS, evidences

from cems_workbench.analysis.losses import NEVER_FOUND, lost
from cems_workbench.analysis.losses_of_set import LossCollector, Losses, losses_of, with_words
from cems_workbench.analysis.ranks import branch_of
from cems_workbench.analysis.why import cause, memory_path
from cems_workbench.config import PipelineConfig, with_values
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.pipeline import Evidence, replay
from cems_workbench.pipeline.replay import run, to_table
from cems_workbench.records import Memory, Query
from tests.property.test_one_truth import CONFIGS as PLAIN_CONFIGS
from tests.thoroughly import EXAMPLES

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
CONFIGS = st.builds(lambda config, mode: with_values(config, {"supersession.mode": mode}), PLAIN_CONFIGS, MODES)


def labelled(found: list[Evidence]) -> LabelledBatch:
    """A query for each evidence; every memory is judged, also one that no evidence has, by turns relevant."""
    queries = [Query(f"q{i}", one.query, type="ab"[i % 2], project="p") for i, one in enumerate(found)]
    ids = [*IDS, BROUGHT_IN, "nowhere"]
    grades = {query.qid: {key: (i + n) % 3 for n, key in enumerate(ids)} for i, query in enumerate(queries)}
    return LabelledBatch(queries, {query.qid: one for query, one in zip(queries, found, strict=True)}, grades)


@settings(max_examples=EXAMPLES)
@given(SETS, CONFIGS, st.integers(1, 4))
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
@given(SETS, CONFIGS, CONFIGS, st.integers(1, 4))
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
@given(SETS, CONFIGS, st.integers(1, 4))
def test_some_candidates_are_decided_as_all_are(found: list[Evidence], config: PipelineConfig, k: int) -> None:
    table = to_table(found)
    every = lost(run(table, config), table, config, k)
    q, c = np.nonzero(table.valid)
    for few in (slice(0, 3), slice(None)):
        some = lost(run(table, config), table, config, k, (q[few], c[few]))
        for name in ("at", "dropped", "rank"):
            assert (getattr(some, name) == getattr(every, name)[q[few], c[few]]).all()
