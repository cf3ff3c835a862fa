"""Diversity: similarity of the results, dedup at its current and other thresholds, and MMR with other values of λ."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isnan
from typing import Any

import streamlit as st
from markupsafe import Markup

from cems_workbench.analysis.diversity import (
    LAMBDA_STEP,
    LOWEST_LIMIT,
    DedupThreshold,
    Duplicate,
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
from cems_workbench.ui.inspect.catalogue import View
from cems_workbench.ui.inspect.context import InspectContext
from cems_workbench.ui.kit.html import excerpt, render, write_stylesheet
from cems_workbench.ui.kit.tables import short_id
from cems_workbench.ui.kit.widgets import progress_in

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
    st.html(means_html(similar))
    st.html(matrix_html(context.trace, similar, config.similarity if config.enabled else None))
    if len(ids) > MAX_MATRIX_RESULTS:
        st.caption(f"The first {MAX_MATRIX_RESULTS} of {len(ids)} results; the means include all of them.")
    stretches = _stretches(context, LIMIT)
    present = current_interval(stretches, context.trace.config)
    st.markdown("## Duplicates", help="Memories dropped by dedup at its current limit.")
    st.html(duplicates_html(context.trace, dropped_duplicates(context.trace)))
    near = dedup_thresholds(stretches, present)
    st.markdown("## Duplicates at lower limits", help=LOWER_LIMIT_HELP)
    st.html(falls_html(context.trace, near))
    _draw_trial(context, merged(stretches), ids)


def _stretches(context: InspectContext, of: str) -> list[ResultInterval]:
    """The intervals of limit or λ with the same results, computed once."""
    place = st.empty()

    def make() -> list[ResultInterval]:
        if of == LIMIT:
            return limit_intervals(context.trace, context.variants_off)
        return lambda_intervals(context.trace, context.variants_off, progress_in(place))

    try:
        return context.remembered(f"diversity:{of}", make)
    finally:
        place.empty()


def means_html(similar: Pairwise) -> Markup:
    """Mean similarity of the results."""
    means = (("mean cosine", similar.mean_cosine), ("mean word overlap", similar.mean_overlap))
    shown = [(name, "–" if value is None else f"{value:.3f}") for name, value in means]
    return render("inspect/diversity/means.html", means=shown)


MAX_TINT = 53
"""Tint in percent at a cosine of 1; a stronger tint gives a contrast below 4.5 in the dark theme."""


@dataclass(frozen=True, slots=True)
class MatrixCell:
    """The texts of a similarity of two results; `tint` in percent, None without an embedding."""

    title: str
    number: str
    tint: str | None
    near: bool
    """Whether it is at or above the dedup limit."""


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """One result compared with all of them; the diagonal cell is None."""

    memory_id: str
    text: str
    cells: Sequence[MatrixCell | None]


def matrix_html(trace: Trace, similar: Pairwise, limit: float | None) -> Markup:
    """The similarity matrix of the first results: cosines above the diagonal, word overlaps below."""
    ids = similar.ids[:MAX_MATRIX_RESULTS]
    rows = [
        MatrixRow(memory_id, _text(trace, memory_id, 200), [_cell(similar, i, j, limit) for j in range(len(ids))])
        for i, memory_id in enumerate(ids)
    ]
    return render("inspect/diversity/matrix.html", rows=rows)


def _cell(similar: Pairwise, i: int, j: int, limit: float | None) -> MatrixCell | None:
    if i == j:
        return None
    above = j > i
    value = float((similar.cosine if above else similar.overlap)[i, j])
    title = f"{'cosine' if above else 'word overlap'} of {short_id(similar.ids[i])} and {short_id(similar.ids[j])}"
    if isnan(value):
        return MatrixCell(f"{title}: one has no embedding", "–", None, False)
    number = f"{value:.2f}".replace("0.", ".", 1)
    tint = f"{MAX_TINT * max(0.0, min(value, 1.0)):.0f}"
    return MatrixCell(f"{title}: {value:.4f}", number, tint, above and limit is not None and value >= limit)


@dataclass(frozen=True, slots=True)
class RankedMemory:
    """A memory with its rank in the results, if any."""

    memory_id: str
    rank: int | str
    text: str

    @property
    def short(self) -> str:
        """The shortened id."""
        return short_id(self.memory_id, 14)


@dataclass(frozen=True, slots=True)
class DuplicateRow:
    """A memory, the limit at which dedup drops it, the one it duplicates, and their cosine."""

    memory: RankedMemory
    when: str
    of: RankedMemory
    cosine: float


def duplicates_html(trace: Trace, gone: Sequence[Duplicate]) -> Markup:
    """The memories dropped by dedup, each with the memory it duplicates."""
    config = trace.config.dedup
    took = f"{len(gone)}" if gone else "nothing"
    line = f"Dedup dropped {took} at the limit of {config.similarity:g}." if config.enabled or gone else "Dedup is off."
    rows = [DuplicateRow(_named(trace, one.memory_id), "✕ dropped", _named(trace, one.of), one.cosine) for one in gone]
    return render("inspect/diversity/duplicates.html", line=line, rows=rows, other="duplicates")


def falls_html(trace: Trace, near: Sequence[DedupThreshold]) -> Markup:
    """The results that a lower limit would drop, each with the most similar one."""
    line = "" if near else f"No result would be dropped at any limit down to {LOWEST_LIMIT:g}."
    rows = [
        DuplicateRow(_named(trace, one.memory_id), f"at ≤ {one.limit:.4f}", _named(trace, one.of), one.limit)
        for one in near
    ]
    return render("inspect/diversity/duplicates.html", line=line, rows=rows, other="nearest to")


def _named(trace: Trace, memory_id: str) -> RankedMemory:
    rank = next((result.rank for result in trace.results if result.memory_id == memory_id), "")
    return RankedMemory(memory_id, rank, trace.evidence.memories[memory_id].content)


def _text(trace: Trace, memory_id: str, length: int = 160) -> str:
    return excerpt(trace.evidence.memories[memory_id].content, length)


def _draw_trial(context: InspectContext, limits: Sequence[ResultInterval], ids: Sequence[str]) -> None:
    """Draw the choice of a range of limit or λ, the results before and after, and Apply."""
    st.markdown("## Results with another value")
    of = st.segmented_control(
        "Parameter",
        (LIMIT, LAMBDA),
        default=LIMIT,
        required=True,
        key="inspect:diversity:of",
        label_visibility="collapsed",
    )
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


@dataclass(frozen=True, slots=True)
class SideRow:
    """A result: its grade as text, and the sign of a removed or added one."""

    memory_id: str
    grade: str
    sign: str
    text: str


@dataclass(frozen=True, slots=True)
class Side:
    """One of two result lists: its number of relevant results (None if not judged), and its rows."""

    title: str
    relevant: int | None
    rows: Sequence[SideRow]


def before_after_html(
    trace: Trace, before: Sequence[str], after: Sequence[str], grades: Mapping[str, int], relevant: Collection[str]
) -> Markup:
    """Both result lists side by side; removed and added results have signs."""
    sides = []
    for title, ids, changed, sign in (
        ("now", before, set(before) - set(after), "▼ removed"),
        ("then", after, set(after) - set(before), "▲ added"),
    ):
        shown = sum(memory_id in relevant for memory_id in ids) if grades else None
        rows = [
            SideRow(
                memory_id,
                f"grade {grades[memory_id]}" if memory_id in grades else "",
                sign if memory_id in changed else "",
                _text(trace, memory_id, 120),
            )
            for memory_id in ids
        ]
        sides.append(Side(title, shown, rows))
    return render("inspect/diversity/before_after.html", sides=sides)


VIEW = View("Diversity", 60, draw, "How similar are the results, and which would a more diverse selection add?")
