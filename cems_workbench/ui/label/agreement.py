"""Agreement of reviewers, and conflicts: settled by a rule or by a named person, apart from the raw labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st

from cems_workbench.errors import WorkbenchError
from cems_workbench.evaluation.labelling.adjudication import Rule, adjudicate
from cems_workbench.evaluation.labelling.agreement import (
    Disagreement,
    Estimate,
    PairAgreement,
    alpha,
    alpha_by_type,
    disagreements,
    label_table,
    pairwise_kappa,
)
from cems_workbench.pipeline.resources import Resources
from cems_workbench.records import Judgment
from cems_workbench.ui.kit.escape import excerpt, plain
from cems_workbench.ui.kit.tables import ROW

RULES: dict[str, Rule] = {"Majority": "majority", "Strictest": "strictest"}
ALPHA = (
    "Agreement beyond chance over all reviewers; ordinal: grades far apart count more. 1 is full agreement, 0 is chance. "
    "Interval: bootstrap over queries."
)
SETTLING = (
    "Majority: the grade most gave; open on a tie. Strictest: the lowest. A decision by name goes before the rule. Raw labels stay "
    "as they are."
)


def draw(resources: Resources, who: str | None) -> None:
    """Coefficients, the conflicts, and the chosen one's decision."""
    labels = [one for one in resources.store.judgments.read() if one.kind == "human"]
    table = label_table(labels)
    whole = alpha(table) if labels else None
    if whole is None or not whole.pairs:
        st.info(
            "Agreement needs two reviewers who graded the same pairs. Make a queue with more than one reviewer a pair."
        )
        return
    st.markdown(
        f"Krippendorff’s alpha over all: **{_estimate(whole)}**",
        help=ALPHA,
    )
    columns = {
        "alpha": st.column_config.TextColumn("alpha", width=170),
        "kappa": st.column_config.TextColumn(
            "kappa", width=170, help="Weighted Cohen’s kappa, quadratic weights, with its 95 % interval"
        ),
    }
    left, right = st.columns(2)
    left.dataframe(
        [_kappa(one) for one in pairwise_kappa(table) if one.kappa.pairs],
        hide_index=True, key="lb:kappa", row_height=ROW, column_config=columns,
    )  # fmt: skip
    types = {query.qid: query.type or "" for query in resources.store.queries.read()}
    right.dataframe(
        [
            {"type": kind or "(no type)", "alpha": _estimate(one), "pairs": one.pairs}
            for kind, one in alpha_by_type(labels, types).items()
            if one.pairs
        ],
        hide_index=True, key="lb:alpha", row_height=ROW, column_config=columns,
    )  # fmt: skip
    conflicts(resources, labels, who)


def conflicts(resources: Resources, labels: list[Judgment], who: str | None) -> None:
    """The pairs that got different grades, and what the chosen rule or a person makes of each."""
    found = disagreements(labels)
    st.markdown(f"###### {len(found)} conflicts")
    if not found:
        st.caption("Nobody contradicts anybody.")
        return
    rule = st.segmented_control(
        "Rule",
        list(RULES),
        default="Majority",
        required=True,
        key="lb:rule",
        help=SETTLING,
    )
    rows = _rows(found, labels, RULES[rule or "Majority"], resources)
    event = st.dataframe(rows, hide_index=True, key="lb:conflicts", row_height=ROW, height=ROW * (min(len(rows), 10) + 1) + 4,
                         on_select="rerun", selection_mode="single-row")  # fmt: skip
    picked = [at for at in event["selection"]["rows"] if at < len(found)]
    if picked and who is not None:
        pair = found[picked[0]]
        _decide(resources, (pair.qid, pair.memory_id), rows[picked[0]], who)
    else:
        st.caption(
            "Select a conflict to decide it." if who else "Give your name on the Label view to decide conflicts."
        )


def _rows(
    found: Sequence[Disagreement], labels: list[Judgment], rule: Rule, resources: Resources
) -> list[dict[str, Any]]:
    """A row per conflict, with what the rule, or a person's decision, makes of it."""
    verdicts = {(one.qid, one.memory_id): one for one in adjudicate(labels, rule, resources.store.decisions.read())}
    queries = {query.qid: query.query for query in resources.store.queries.read()}
    memories = resources.store.memories.read([one.memory_id for one in found])
    rows: list[dict[str, Any]] = []
    for one in found:
        verdict = verdicts[one.qid, one.memory_id]
        grades = ", ".join(f"{name} {grade}" for name, grade in sorted(verdict.labels.items()))
        settled = "open" if verdict.grade is None else f"{verdict.grade}"
        text = excerpt(memories[one.memory_id].content) if one.memory_id in memories else ""
        rows.append(
            {
                "spread": one.spread,
                "grades": grades,
                "settled": settled,
                "query": queries.get(one.qid, one.qid),
                "memory": text,
            }
        )
    return rows


def _decide(resources: Resources, pair: tuple[str, str], row: dict[str, Any], who: str) -> None:
    memory = resources.store.memories.get(pair[1])
    if memory is None:
        st.caption("This memory is gone.")
        return
    st.markdown(f"**{plain(row['query'])}**")
    st.code(memory.content, language=None, wrap_lines=True)
    box = st.container(horizontal=True)
    for grade, meaning in resources.store.query_sets.scale_of(pair[0]).grades:
        if box.button(str(grade), key=f"lb:decide:{grade}", help=plain(meaning)):
            try:
                resources.store.decisions.decide(*pair, grade, who)
            except WorkbenchError as error:
                st.error(plain(str(error)))
                return
            st.rerun()


def _kappa(one: PairAgreement) -> dict[str, Any]:
    return {"reviewers": f"{one.first} and {one.second}", "kappa": _estimate(one.kappa), "pairs": one.kappa.pairs}


def _estimate(one: Estimate) -> str:
    if one.value is None:
        return "not defined"
    between = "" if one.low is None or one.high is None else f" ({one.low:.2f} to {one.high:.2f})"
    return f"{one.value:.2f}{between}"
