"""Reviewer agreement, and conflicts resolved by a rule or a named person; raw labels stay unchanged."""

from __future__ import annotations

import streamlit as st

from cems_workbench.errors import WorkbenchError
from cems_workbench.evaluation.labelling.agreement import (
    ALPHA_NAME,
    KAPPA_NAME,
    Disagreement,
    Estimate,
    Rule,
    Verdict,
    adjudicate,
    alpha,
    alpha_by_type,
    alpha_reading,
    disagreements,
    kappa_reading,
    label_table,
    no_answer_agreement,
    pairwise_kappa,
)
from cems_workbench.formats.base.judgments import of_memories
from cems_workbench.pipeline.resources import Resources
from cems_workbench.platform.bidi import neutralise
from cems_workbench.records import Judgment, Query
from cems_workbench.ui.kit.html import excerpt, plain
from cems_workbench.ui.kit.session import reviewer
from cems_workbench.ui.kit.tables import Column, draw_table, pick_row

RULES: dict[str, Rule] = {"Majority": "majority", "Strictest": "strictest"}
ALPHA_HELP = (
    "Agreement beyond chance over all reviewers; ordinal: grades far apart count more. 1 is full agreement, 0 is chance. "
    "Interval: bootstrap over queries. Usually read as reliable from 0.8, tentative from 0.667 (Krippendorff, 2004)."
)
KAPPA_HELP = (
    "Agreement of two reviewers beyond chance; weighted: grades far apart count more, by the square. 1 is full agreement, 0 is chance. "
    "Interval: bootstrap over queries. Usually read as slight up to 0.2, fair to 0.4, moderate to 0.6, substantial to 0.8, then almost "
    "perfect (Landis and Koch, 1977)."
)
RULE_HELP = (
    "Majority: the most frequent grade; open on a tie. Strictest: the lowest. A named decision overrides the rule. Raw labels are "
    "unchanged."
)


def draw(resources: Resources) -> None:
    """Agreement coefficients, the conflicts, and the form to decide the selected one."""
    every = resources.store.judgments.read(kind="human")
    labels, of_store = of_memories(every)
    relevant_from = resources.store.query_sets.relevant_from_of([judgment.qid for judgment in of_store])
    if whole_queries := str(no_answer_agreement(every, relevant_from)):
        st.caption(f"{whole_queries}.")
    table = label_table(labels)
    whole = alpha(table) if labels else None
    if whole is None or not whole.pairs:
        st.info(
            "Agreement needs two reviewers who graded the same pairs. Create a queue with more than one reviewer per pair."
        )
        return
    st.markdown(f"{ALPHA_NAME} over all: **{whole}**, {alpha_reading(whole)}.", help=ALPHA_HELP)
    st.markdown(f"## {KAPPA_NAME}, weighted, per pair of reviewers", help=KAPPA_HELP)
    agreements = [
        (f"{one.first} and {one.second}", one.kappa, kappa_reading(one.kappa))
        for one in pairwise_kappa(table)
        if one.kappa.pairs
    ]
    draw_table(agreements, _estimate_columns("reviewers"), key="label:kappa")
    queries = {query.qid: query for query in resources.store.queries.read()}
    types = {qid: query.type or "" for qid, query in queries.items()}
    st.markdown(f"## {ALPHA_NAME} by query type", help=ALPHA_HELP)
    alphas = [
        (kind or "(no type)", estimate, alpha_reading(estimate))
        for kind, estimate in alpha_by_type(labels, types).items()
        if estimate.pairs
    ]
    draw_table(alphas, _estimate_columns("type"), key="label:alpha", most=8)
    _conflicts(resources, labels, queries)


def _conflicts(resources: Resources, labels: list[Judgment], queries: dict[str, Query]) -> None:
    """The pairs with different grades, and the grade that the rule or a person's decision gives each."""
    conflicts = disagreements(labels)
    st.markdown(f"## {len(conflicts)} conflicts")
    if not conflicts:
        st.caption("No two reviewers disagree.")
        return
    rule = st.segmented_control(
        "Rule",
        list(RULES),
        default="Majority",
        required=True,
        key="label:rule",
        help=RULE_HELP,
    )
    decisions = resources.store.decisions.read()
    verdicts = {(one.qid, one.memory_id): one for one in adjudicate(labels, RULES[rule or "Majority"], decisions)}
    memories = resources.store.memories.read([conflict.memory_id for conflict in conflicts])

    def verdict(one: Disagreement) -> Verdict:
        return verdicts[one.qid, one.memory_id]

    def query(one: Disagreement) -> str:
        return queries[one.qid].query if one.qid in queries else one.qid

    columns: list[Column[Disagreement]] = [
        Column("spread", lambda one: one.spread),
        Column(
            "grades", lambda one: ", ".join(f"{name} {grade}" for name, grade in sorted(verdict(one).labels.items()))
        ),
        Column("settled", lambda one: "open" if verdict(one).grade is None else f"{verdict(one).grade}"),
        Column("query", query),
        Column("memory", lambda one: excerpt(memories[one.memory_id].content) if one.memory_id in memories else ""),
    ]
    picked = pick_row(conflicts, columns, key="label:conflicts", most=10)
    name = reviewer()
    if picked is not None and name is not None:
        _decide(resources, picked, query(picked), name)
    else:
        st.caption(
            "Select a conflict to decide it." if name else "Enter your name in the Label view to decide conflicts."
        )


def _decide(resources: Resources, conflict: Disagreement, query: str, reviewer: str) -> None:
    """The conflict in full, and a button per grade to decide it."""
    memory = resources.store.memories.get(conflict.memory_id)
    if memory is None:
        st.caption("This memory no longer exists.")
        return
    st.markdown(f"**{plain(query)}**")
    st.code(neutralise(memory.content), language=None, wrap_lines=True)
    box = st.container(horizontal=True)
    for grade, meaning in resources.store.query_sets.scale_of(conflict.qid).grades:
        if box.button(str(grade), key=f"label:decide:{grade}", help=plain(meaning)):
            try:
                resources.store.decisions.decide(conflict.qid, conflict.memory_id, grade, reviewer)
            except WorkbenchError as error:
                st.error(plain(str(error)))
                return
            st.rerun()


def _estimate_columns(first: str) -> list[Column[tuple[str, Estimate, str]]]:
    return [
        Column(first, lambda row: row[0]),
        Column("coefficient", lambda row: str(row[1]), 240),
        Column("pairs", lambda row: row[1].pairs, 60, help="Graded by both, or by two or more"),
        Column("read as", lambda row: row[2], help="In brackets: the readings at both ends of the interval"),
    ]
