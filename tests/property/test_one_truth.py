"""What two screens say of one memory is the same: the stage that lost it, and the score that orders it."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from markupsafe import escape
from strategies import configs, evidences

from cems_workbench.analysis.ranks import rank_flow, target_rank
from cems_workbench.analysis.why.path import cause, memory_path
from cems_workbench.analysis.why.report import Why
from cems_workbench.config import PipelineConfig, preset, preset_names, with_values
from cems_workbench.jobs.recorded_answers import match_results
from cems_workbench.pipeline import Evidence, Trace, replay
from cems_workbench.pipeline.stages import ADJUST, FUSION, RERANK, THRESHOLD, candidate_stages
from cems_workbench.pipeline.stages.lists import LISTS
from cems_workbench.records import Returned
from cems_workbench.ui.inspect.searched import path_html
from cems_workbench.ui.inspect.views.contributions import contributions_figure, parts_rows
from cems_workbench.ui.inspect.views.rank_flow import rank_rows
from tests.thoroughly import EXAMPLES
from workbench_fidelity.lists import placements

PRESETS = st.sampled_from([preset(name).config for name in preset_names()])
CONFIGS = configs() | st.builds(
    lambda config, limit: with_values(config, {"assembly.limit": limit}), PRESETS, st.sampled_from([1, 2, 3, None])
)


def lost_by_definition(trace: Trace, memory_id: str, k: int) -> str | None:
    """The stage after the last one that left it within k, in a list or in the ranking; without one what dropped it, else the lists.

    What dropped it, too, if a reranker behind would still have read it.
    """
    stages, config = candidate_stages(trace.config), trace.config.rerank
    while memory_id not in trace.stage(stages[0]).by_id:  # in no list: it may be fetched later
        stages = stages[1:]
    ranks: dict[str, int] = {}
    within, dropped = -1, None
    for i, stage in enumerate(stages):
        row = trace.stage(stage).by_id.get(memory_id)
        if row is None:  # dropped before; a successor may be fetched again
            continue
        if stage.name == LISTS.name:
            ranks = {entry.list: entry.rank for entry in row.lists if entry.kept}
        elif stage.name == THRESHOLD.name:
            ranks = {
                name: rank for name, rank in ranks.items() if name not in [e.list for e in row.lists if not e.kept]
            }
        rank = min(ranks.values(), default=0) if row.rank_out is None else row.rank_out
        if row.kept and rank <= k:
            within = i
        elif not row.kept and not str(row.reason).startswith("past the result limit"):
            dropped = stage.name
            read = (config.depth or math.inf) if config.backend != "none" and RERANK in stages[i + 1 :] else 0
            if (row.rank_in or math.inf) <= read:
                return dropped
    if within < 0 and stages[0].name == LISTS.name:
        return dropped or LISTS.name
    return stages[within + 1].name if within + 1 < len(stages) else None


@settings(max_examples=4 * EXAMPLES)
@given(evidences(), CONFIGS, st.none() | st.integers(1, 4))
def test_every_screen_and_the_command_name_the_same_lost_stage(evidence, config, asked):
    trace = replay(evidence, config)
    k = asked or target_rank(config)
    ids = [key for key in evidence.candidate_ids if trace.path(key)]  # some successors are in no list
    expected = {memory_id: lost_by_definition(trace, memory_id, k) for memory_id in ids}
    flow = {line.memory_id: line.loss.stage if line.loss else None for line in rank_flow(trace, 40, ids, asked).lines}
    assert flow == expected
    if ids:
        rows = rank_rows(rank_flow(trace, 40, ids, asked))
        assert {row["memory"]: row["lost at"] for row in rows} == expected
        production = match_results([Returned(0, key) for key in ids], lambda _: evidence.memories)
        assert {one.memory_id: one.lost_at for one in placements(production, trace, asked)} == expected
    for memory_id in ids[:2]:
        stage = expected[memory_id]
        path = memory_path(trace, memory_id, k)
        assert path.lost_at == stage
        sentence = cause(path, trace)
        assert sentence.startswith(f"Lost at {stage}: ") if stage else not sentence.startswith("Lost")
        rows = str(path_html(trace, memory_id, asked)).split("<tr")
        assert [row.split("<th>")[1].split("<")[0] for row in rows if "lost here" in row] == ([stage] if stage else [])
    if ids:
        way = Why("", path, sentence, (), None, "", 0).way
        assert [row[0] for row in way.rows if row[-1].startswith("lost here:")] == ([stage] if stage else [])


@settings(max_examples=4 * EXAMPLES)
@given(evidences(), CONFIGS)
def test_bars_words_and_the_followed_row_add_up_to_the_score_that_orders(evidence, config):
    trace = replay(evidence, config)
    fusion = trace.stage(FUSION)
    for row in fusion.kept:
        assert math.isclose(
            sum(part.value for part in fusion.score_parts(row.memory_id)), row.score, rel_tol=1e-9, abs_tol=1e-12
        )
    drawn = contributions_figure(trace, len(fusion.kept))
    totals = np.sum([bar.x for bar in drawn.data], axis=0) if drawn.data else np.zeros(len(fusion.kept))
    np.testing.assert_allclose(totals, [row.score for row in fusion.kept], rtol=1e-9, atol=1e-12)
    assert not np.any(np.diff(totals) > 1e-12)
    for told in parts_rows(trace, len(fusion.kept)):
        assert math.isclose(
            sum(value or 0.0 for name, value in told.items() if name not in ("rank", "memory", "score")),
            told["score"],
            abs_tol=1e-12,
        )
    for row in fusion.kept[:1]:
        told = FUSION.words(row, fusion)
        printed = [float(part.split()[-1]) for part in told.split(": ", 1)[1].split(" = ")[0].split(" + ") if part]
        assert abs(sum(printed) - row.score) <= 0.00006 * (len(printed) + 1) + 1e-9
        assert str(escape(told)) in str(path_html(trace, row.memory_id))


@given(evidences(), CONFIGS)
def test_the_age_in_adjust_is_that_since_the_date_it_names(evidence: Evidence, config: PipelineConfig) -> None:
    trace = replay(evidence, config)
    for row in trace.stage(ADJUST).rows:
        memory = evidence.memories[row.memory_id]
        dates = {
            "creation": memory.created_at,
            "last access": memory.last_accessed,
            "last update": memory.updated_at,
        }
        since = dates[row.age_from]
        if row.age_days is None or since is None or evidence.as_of is None:
            assert row.age_days is None
            continue
        days = (evidence.as_of - since).total_seconds() / 86400
        assert abs(row.age_days - (math.floor(days) if config.adjust.time_decay.whole_days else days)) < 1e-6
