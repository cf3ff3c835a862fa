"""Across queries: what the judged queries of a set do with one memory, and the store's hubs and orphans; on Memories and on Inspect.

All judged queries of a set are replayed under one config. That is done when the panel is opened; for large sets on request.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import streamlit as st

from cems_workbench.analysis.memory_use import MemoryUses, UseRow, memory_uses
from cems_workbench.analysis.ranks import target_rank
from cems_workbench.config import PipelineConfig
from cems_workbench.evaluation.evidence_file import Header
from cems_workbench.jobs.catalogue import PRESENT_NAME, named
from cems_workbench.jobs.evaluation import agreed, labelled_selection
from cems_workbench.jobs.query_set_evidence import judged_selection, measurable, request_for
from cems_workbench.pipeline.gather import Request
from cems_workbench.pipeline.resources import Resources
from cems_workbench.ui.evaluate.state import chosen_comparison, config_options
from cems_workbench.ui.kit.html import plain
from cems_workbench.ui.kit.session import for_all_sessions
from cems_workbench.ui.kit.tables import HELP, Column, draw_table
from cems_workbench.ui.kit.widgets import offer_gather, remembered
from cems_workbench.ui.memories import state

MAX_QUERIES_UNASKED = 1_000
"""With more queries they are counted on request: the replay takes longer than a page may."""
MAX_ROWS = 8


@dataclass(frozen=True)
class Counted:
    """The use of memories by the judged queries of a set under a config."""

    query_set: str
    config: PipelineConfig
    header: Header
    uses: MemoryUses


def draw(
    resources: Resources,
    memory_id: str,
    key: str,
    open_row: Callable[[Request, PipelineConfig, tuple[str, int]], None],
    first: str | None = None,
) -> None:
    """Draw the choice of set and config, what the queries do with a memory, and a table of them; a selected row is opened by `open_row`.

    `open_row` is called before the next run of the page, with the request as it was measured, the config, and the memory with the rank that
    counts as returned. `first` is the name of the config that is chosen at first.
    """
    counted = count(resources, key, (memory_id,), first)
    if counted is None:
        return
    use, uses = counted.uses.of(memory_id), counted.uses
    st.markdown(plain(uses.sentence(memory_id)))
    rows = uses.rows.get(memory_id, ())
    if not rows:
        st.caption(
            "No list finds it for any of these queries."
            if not use.candidate
            else f"{use.candidate:,} of these queries find it, and none wants it or returns it within the first {uses.k}."
        )
        return
    header, config = counted.header, counted.config

    def opened(row: UseRow) -> None:
        open_row(request_for(row.query, header.moment, header.only_project), config, (row.memory_id, uses.k))

    key = f"{key}:rows:{memory_id}:{state.present().generation}"
    draw_table(rows, _columns(uses.k), key=key, on_pick=opened, most=MAX_ROWS, placeholder="–")
    st.caption("Tick the box of a row to open its query in Inspect, with this memory and why it has its rank.")


def count(resources: Resources, key: str, followed: tuple[str, ...], first: str | None = None) -> Counted | None:
    """Draw the choice and count; None while something is missing, which is drawn in place."""
    sets = {one.name: one for one in resources.store.query_sets.latest()}
    judgments = resources.store.judgments.read()
    if not sets or not measurable(resources.store.queries.read(), judgments):
        st.caption(
            "No query of this store is judged. With judgments, this shows which of them want, return and lose a memory."
        )
        return None
    configs, compared = dict(config_options(resources).configs), chosen_comparison()
    names, options, at = sorted(sets), list(configs), 0
    kept = first or PRESENT_NAME
    if compared is not None:
        at = names.index(compared.query_set) if compared.query_set in sets else 0
        kept = first or (compared.configs[0] if compared.configs[0] in configs else PRESENT_NAME)
    boxes = st.columns([3, 3, 2], vertical_alignment="bottom")
    query_set = boxes[0].selectbox("Query set", names, at, **remembered(f"{key}:set", HELP["memories:across:set"]))
    common = remembered(f"{key}:config", HELP["memories:across:config"])
    name = boxes[1].selectbox("Config", options, options.index(kept), **common)
    limit, common = target_rank(configs[name]), remembered(f"{key}:k", HELP["memories:across:k"])
    k = boxes[2].number_input("Within the first", 1, 1000, None, placeholder=str(limit), **common)
    selection = judged_selection(query_set, resources, judgments)
    if not selection.queries:
        st.caption("No query of this set is judged yet. Judge some results on the Label page, or import judgments.")
        return None
    config, relevant_from = named(name, configs[name]), resources.store.query_sets.relevant_from(query_set)
    labelled = labelled_selection(config, selection, agreed(judgments, None), resources, for_all_sessions)
    if labelled is None:
        wanted = [(name, config, selection)]
        if offer_gather(key, wanted, "Evaluate and Tune use the same evidence", resources):
            st.rerun()
        return None
    k = k or limit
    cached, total = (*labelled.key, config, k, relevant_from, followed), len(selection.queries)
    if total > MAX_QUERIES_UNASKED and state.present().last_use != cached:
        label, help = f"Count over {total:,} queries", "Replays every judged query of the set under the config."
        if not st.button(label, key=f"{key}:count", icon=":material/query_stats:", help=help):
            return None
        state.update(last_use=cached)
    batch = labelled.batch

    def uses() -> MemoryUses:
        evidences = dict(zip(batch.qids, batch.evidences, strict=True))
        grades = dict(zip(batch.qids, batch.grades, strict=True))
        return memory_uses(batch.queries, evidences, grades, config, relevant_from, k=k, followed=followed)

    return Counted(query_set, config, labelled.evidence.header, state.present().uses(cached, uses))


def _columns(k: int) -> list[Column[UseRow]]:
    return [
        Column("query", lambda row: row.query.query, 260),
        Column("grade", lambda row: row.grade, 58, "%d", "Of this memory for the query; empty: not judged"),
        Column("rank", lambda row: row.rank, 52, "%d", f"Within the first {k}; empty: not among them"),
        Column("outcome", lambda row: row.status, 120, help="lost and found: the query judges it relevant"),
        Column("what happened", lambda row: row.words, 300),
        Column("type", lambda row: row.query.type, 104),
        Column("project", lambda row: row.query.project, 104),
        Column("qid", lambda row: row.query.qid, 64),
    ]
