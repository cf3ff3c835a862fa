"""Diversity: similarity of the results, dedup at its current and other thresholds, and MMR with other values of λ."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import inf, isnan
from typing import Any

import streamlit as st
from markupsafe import Markup

from cems_workbench.analysis.diversity import (
    LAMBDA_STEP,
    LOWEST_LIMIT,
    Pairwise,
    ResultInterval,
    current_interval,
    dedup_thresholds,
    dropped_duplicates,
    lambda_intervals,
    lambda_value,
    limit_intervals,
    limit_value,
    merged,
    pairwise,
)
from cems_workbench.pipeline import Trace
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect.context import InspectContext
from cems_workbench.ui.kit.html import draw as draw_template
from cems_workbench.ui.kit.html import render, write_stylesheet
from cems_workbench.ui.kit.tables import short_id
from cems_workbench.ui.kit.views import View
from cems_workbench.ui.kit.widgets import switch

MAX_MATRIX_RESULTS = 15
"""Maximum results in the matrix, limited by the width of the numbers."""
LIMIT, LAMBDA = "Dedup limit", "MMR λ"
HELP = (
    "Above the diagonal: cosine of the embeddings, used by dedup. Below: word overlap (Jaccard: shared words / all words of both), "
    "used by MMR. Underlined: at or above the current dedup limit. –: no embedding."
)
LOWER_LIMIT_HELP = (
    "Dedup goes down the ranking and drops each memory whose cosine with a kept one reaches the limit. Shown is the highest limit at "
    "which it drops this memory: exact, from the cosines, and verified by replay."
)
TRY_HELP = {
    LIMIT: "Each choice is a range of limits with the same results, with exact ends.",
    LAMBDA: f"MMR = λ × score − (1 − λ) × overlap with selected results. In steps of {LAMBDA_STEP}; changes are located by bisection.",
}


def draw(context: InspectContext) -> None:
    """Draw the matrix, the duplicates, and the results with another limit or λ."""
    write_stylesheet("evidence")
    ids = [result.memory_id for result in context.trace.results]
    if len(ids) < 2:
        st.info("Fewer than two results: nothing to compare.", icon=":material/search_off:")
        return
    similar = pairwise(context.trace.evidence, ids)
    config = context.trace.config.dedup
    st.markdown("## Similarity of the results", help=HELP)
    means = (("mean cosine", similar.mean_cosine), ("mean word overlap", similar.mean_overlap))
    draw_template("inspect/diversity/means.html", means=means)
    st.html(matrix_html(context.trace, similar, config.similarity if config.enabled else None))
    if len(ids) > MAX_MATRIX_RESULTS:
        st.caption(f"The first {MAX_MATRIX_RESULTS} of {len(ids)} results; the means include all of them.")
    stretches = _stretches(context, LIMIT)
    present = current_interval(stretches, context.trace.config)
    st.markdown("## Duplicates", help="Memories dropped by dedup at its current limit.")
    gone = dropped_duplicates(context.trace)
    line = f"Dedup dropped {len(gone) or 'nothing'} at the limit of {config.similarity:g}."
    dropped = [(one.memory_id, "✕ dropped", one.of, one.cosine) for one in gone]
    _draw_duplicates(context.trace, line if config.enabled or gone else "Dedup is off.", dropped, "duplicates")
    near = dedup_thresholds(stretches, present)
    st.markdown("## Duplicates at lower limits", help=LOWER_LIMIT_HELP)
    line = "" if near else f"No result would be dropped at any limit down to {LOWEST_LIMIT:g}."
    falls = [(one.memory_id, f"at ≤ {one.limit:.4f}", one.of, one.limit) for one in near]
    _draw_duplicates(context.trace, line, falls, "nearest to")
    _draw_trial(context, merged(stretches), ids)


def _stretches(context: InspectContext, of: str) -> list[ResultInterval]:
    """The intervals of limit or λ with the same results, computed once."""
    if of == LIMIT:
        return context.remembered("diversity:limit", lambda _: limit_intervals(context.trace, context.variants_off))
    return context.remembered(
        "diversity:lambda", lambda progress: lambda_intervals(context.trace, context.variants_off, progress)
    )


MAX_TINT = 53
"""Tint in percent at a cosine of 1; a stronger tint gives a contrast below 4.5 in the dark theme."""


def matrix_html(trace: Trace, similar: Pairwise, limit: float | None) -> Markup:
    """The similarity matrix of the first results: cosines above the diagonal, word overlaps below; those from `limit` on underlined."""

    def cell(i: int, j: int) -> tuple[str, str, str | None, bool]:
        """Tooltip, number, tint in percent (None without an embedding), and whether it is at or above the limit."""
        above = j > i
        value = float((similar.cosine if above else similar.overlap)[i, j])
        title = f"{'cosine' if above else 'word overlap'} of {short_id(similar.ids[i])} and {short_id(similar.ids[j])}"
        if isnan(value):
            return f"{title}: one has no embedding", "–", None, False
        tint = f"{MAX_TINT * max(0.0, min(value, 1.0)):.0f}"
        near = above and limit is not None and value >= limit
        return f"{title}: {value:.4f}", f"{value:.2f}".replace("0.", ".", 1), tint, near

    ids, memories = similar.ids[:MAX_MATRIX_RESULTS], trace.evidence.memories
    return render("inspect/diversity/matrix.html", ids=ids, memories=memories, cell=cell)


def _draw_duplicates(trace: Trace, line: str, rows: Sequence[tuple[str, str, str, float]], other: str) -> None:
    """Draw memories, each with when dedup drops it, the memory it duplicates or is nearest to, and their cosine."""
    ranks = trace.ranks
    memories = trace.evidence.memories
    draw_template(
        "inspect/diversity/duplicates.html", line=line, rows=rows, other=other, ranks=ranks, memories=memories
    )


def _draw_trial(context: InspectContext, limits: Sequence[ResultInterval], ids: Sequence[str]) -> None:
    """Draw the choice of a range of limit or λ, the results before and after, and Apply."""
    st.markdown("## Results with another value")
    of = switch("Parameter", (LIMIT, LAMBDA), "inspect:diversity:of", LIMIT)
    stretches = list(limits) if of == LIMIT else _stretches(context, LAMBDA)
    others = [i for i, stretch in enumerate(stretches) if set(stretch.results) != set(ids)]
    if not others:
        least = f" down to {LOWEST_LIMIT:g}" if of == LIMIT else ""
        st.caption(f"No other {'limit' if of == LIMIT else 'λ'}{least} changes the results.")
        return
    similar = {i: pairwise(context.trace.evidence, stretches[i].results) for i in others}
    chosen = st.selectbox(
        "Range",
        others,
        key=f"inspect:diversity:range:{of}:{hash(context.request)}:{len(stretches)}",
        help=TRY_HELP[of],
        format_func=lambda i: _option(of, stretches[i], ids, similar[i]),
    )
    st.html(before_after_html(context.trace, ids, stretches[chosen].results, context.grades, context.relevant))
    values = _values(of, stretches[chosen])
    changes = ", ".join(
        f"{path} {'on' if value is True else 'off' if value is False else value}" for path, value in values.items()
    )
    st.button(f"Apply: {changes}", key="inspect:diversity:apply", type="primary", on_click=state.apply, args=(values,))


def _option(of: str, stretch: ResultInterval, ids: Sequence[str], similar: Pairwise) -> str:
    if stretch.high == inf:
        where = "dedup off" if stretch.low < 0 else f"off, or above {stretch.low:.4f}"
    elif of == LIMIT:
        where = f"{stretch.low:.4f} to {stretch.high:.4f}"
    else:
        where = f"λ {stretch.low:.3f} to {stretch.high:.3f}"
    left, entered = len(set(ids) - set(stretch.results)), len(set(stretch.results) - set(ids))
    mean = "" if similar.mean_cosine is None else f" · mean cosine {similar.mean_cosine:.3f}"
    return f"{where} · {left} removed, {entered} added{mean}"


def _values(of: str, stretch: ResultInterval) -> dict[str, Any]:
    """The parameters with these results."""
    if of == LAMBDA:
        return {"assembly.strategy": "mmr", "assembly.mmr_lambda": lambda_value(stretch)}
    limit = limit_value(stretch)
    return {"dedup.enabled": False} if limit is None else {"dedup.enabled": True, "dedup.similarity": limit}


def before_after_html(
    trace: Trace, before: Sequence[str], after: Sequence[str], grades: Mapping[str, int], relevant: Collection[str]
) -> Markup:
    """Both result lists side by side; removed and added results have signs."""
    sides = (
        ("now", before, set(before) - set(after), "▼ removed"),
        ("then", after, set(after) - set(before), "▲ added"),
    )
    memories = trace.evidence.memories
    return render(
        "inspect/diversity/before_after.html", sides=sides, memories=memories, grades=grades, relevant=relevant
    )


VIEW = View("Diversity", 60, draw, "How similar are the results, and which would a more diverse selection add?")
