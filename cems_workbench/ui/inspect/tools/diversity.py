"""Diversity: how alike the results are, what dedup took or would take, and what another limit or λ would show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, isnan
from typing import Any

import streamlit as st
from markupsafe import Markup

from cems_workbench.analysis.diversity import (
    LOWEST,
    STEP,
    Duplicate,
    Fall,
    Pairwise,
    Stretch,
    falls,
    lambda_stretches,
    lambda_value,
    limit_stretches,
    limit_value,
    merged,
    pairwise,
    present_place,
    taken,
)
from cems_workbench.pipeline import Trace
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect.look import Look
from cems_workbench.ui.kit.assets import write_stylesheet
from cems_workbench.ui.kit.escape import excerpt
from cems_workbench.ui.kit.progress import progress_in
from cems_workbench.ui.kit.tables import short_id
from cems_workbench.ui.kit.templates import render

SHOWN = 15
"""Results in the matrix: more have no room for their numbers."""
LIMIT, LAMBDA = "Dedup limit", "MMR λ"
HELP = (
    "Above the diagonal: cosine of the embeddings, which dedup compares. Below it: overlap of the words (Jaccard: shared words / all "
    "words of the two), which MMR compares. Underlined: at or above the present limit of dedup. –: no embedding."
)
FALL_HELP = (
    "Dedup walks down the ranking and drops a memory whose cosine with a kept one reaches the limit. At this limit, and not above it, it "
    "drops this one: exact, from the cosines, each checked by a replay."
)
TRY_HELP = {
    LIMIT: "Each choice is a range of limits with the same results; its ends are exact.",
    LAMBDA: f"MMR = λ × score − (1 − λ) × overlap with what is selected. Looked at every {STEP}; a change between two is bisected.",
}


def draw(look: Look) -> None:
    """The matrix, the duplicates, and what another limit or λ shows."""
    write_stylesheet("evidence")
    ids = [result.memory_id for result in look.trace.results]
    if len(ids) < 2:
        st.info("There are fewer than two results: nothing to compare.", icon=":material/search_off:")
        return
    similar = pairwise(look.trace.evidence, ids)
    config = look.trace.config.dedup
    st.markdown("###### How alike the results are", help=HELP)
    st.html(_means_html(similar))
    st.html(matrix_html(look.trace, similar, config.similarity if config.enabled else None))
    if len(ids) > SHOWN:
        st.caption(f"The first {SHOWN} of {len(ids)} results; the means are of all of them.")
    stretches: list[Stretch] = _kept(look, LIMIT)
    present = present_place(stretches, look.trace.config)
    st.markdown("###### Duplicates", help=FALL_HELP)
    st.html(duplicates_html(look.trace, taken(look.trace), falls(stretches, present)))
    _draw_trial(look, merged(stretches), ids)


def _kept(look: Look, of: str) -> Any:
    """The stretches of limit or λ, computed once per evidence, config and switched-off variants."""
    off = state.variants_off(look.request)
    key, slot = (look.trace.evidence, look.trace.config, off), f"diversity:{of}"
    kept = st.session_state.get(slot)
    if kept is None or kept[0][0] is not key[0] or kept[0][1:] != key[1:]:
        area = st.empty()
        found = (
            limit_stretches(look.trace, off)
            if of == LIMIT
            else lambda_stretches(look.trace, off, progress_in(area))
        )  # fmt: skip
        area.empty()
        kept = st.session_state[slot] = (key, found)
    return kept[1]


def _means_html(similar: Pairwise) -> Markup:
    means = (("mean cosine", similar.mean_cosine), ("mean word overlap", similar.mean_overlap))
    return render("inspect/tools/diversity_means.html", means=means)


def matrix_html(trace: Trace, similar: Pairwise, limit: float | None) -> Markup:
    """The first results against each other: cosines above the diagonal, overlaps below; a number in every cell."""
    ids = similar.ids[:SHOWN]
    rows = [
        {
            "memory_id": memory_id,
            "excerpt": _text(trace, memory_id, 200),
            "short": short_id(memory_id, 12),
            "cells": [_cell(similar, i, j, limit) for j in range(len(ids))],
        }
        for i, memory_id in enumerate(ids)
    ]
    return render("inspect/tools/diversity_matrix.html", rows=rows)


def _cell(similar: Pairwise, i: int, j: int, limit: float | None) -> dict[str, Any] | None:
    """A cell for the template, its value None without an embedding; None on the diagonal."""
    if i == j:
        return None
    above = j > i
    value = float((similar.cosine if above else similar.overlap)[i, j])
    about = f"{'cosine' if above else 'word overlap'} of {short_id(similar.ids[i])} and {short_id(similar.ids[j])}"
    if isnan(value):
        return {"about": about, "value": None}
    return {
        "about": about,
        "value": value,
        "shown": f"{value:.2f}".replace("0.", ".", 1),
        "tint": 65 * max(0.0, min(value, 1.0)),
        "near": above and limit is not None and value >= limit,
    }


def duplicates_html(trace: Trace, gone: Sequence[Duplicate], near: Sequence[Fall]) -> Markup:
    """What dedup takes now, and which results a lower limit takes, each with the memory it duplicates."""
    config = trace.config.dedup
    if gone:
        summary = f"Dedup took {len(gone)} at the limit of {config.similarity:g}."
    else:
        summary = f"Dedup took nothing at the limit of {config.similarity:g}." if config.enabled else "Dedup is off."
    if not near:
        summary += f" No result is a duplicate of another at any limit down to {LOWEST:g}."
    taken_now = [(duplicate.memory_id, "✕ taken", duplicate.cosine, duplicate.of) for duplicate in gone]
    at_lower = [(fall.memory_id, f"falls at ≤ {fall.limit:.4f}", fall.limit, fall.of) for fall in near]
    rows = [
        {
            "memory": _named(trace, memory_id),
            "when": when,
            "of": _named(trace, of),
            "cosine": cosine,
            "content": _text(trace, memory_id, 90),
        }
        for memory_id, when, cosine, of in taken_now + at_lower
    ]
    return render("inspect/tools/diversity_duplicates.html", summary=summary, rows=rows)


def _named(trace: Trace, memory_id: str) -> dict[str, Any]:
    """A memory for the template: its rank in the results, where it is there, its id, whole and in short, and its text."""
    rank = next((row.rank for row in trace.results if row.memory_id == memory_id), "")
    return {"rank": rank, "memory_id": memory_id, "short": short_id(memory_id, 14), "text": _text(trace, memory_id)}


def _text(trace: Trace, memory_id: str, length: int = 160) -> str:
    return excerpt(trace.evidence.memories[memory_id].content, length)


def _draw_trial(look: Look, limits: Sequence[Stretch], ids: Sequence[str]) -> None:
    """Choose a range of limit or λ, see the results before and after, and apply it."""
    st.markdown("###### What another value would show")
    of = st.segmented_control(
        "Parameter", (LIMIT, LAMBDA), default=LIMIT, required=True, key="diversity:of", label_visibility="collapsed"
    )
    stretches = list(limits) if of == LIMIT else _kept(look, LAMBDA)
    others = [i for i, stretch in enumerate(stretches) if set(stretch.results) != set(ids)]
    if not others:
        least = f" down to {LOWEST:g}" if of == LIMIT else ""
        st.caption(f"No other {'limit' if of == LIMIT else 'λ'}{least} shows other results.")
        return
    similar = {i: pairwise(look.trace.evidence, stretches[i].results) for i in others}
    chosen = st.selectbox(
        "Range", others, key=f"diversity:range:{of}:{hash(look.request)}:{len(stretches)}", help=TRY_HELP[of],
        format_func=lambda i: _option(of, stretches[i], ids, similar[i]),
    )  # fmt: skip
    st.html(before_after_html(look.trace, ids, stretches[chosen].results, look.grades))
    values = _values(of, stretches[chosen])
    said = ", ".join(
        f"{path} {'on' if value is True else 'off' if value is False else value}" for path, value in values.items()
    )
    st.button(f"Apply: {said}", key="diversity:apply", type="primary", on_click=state.apply, args=(values,))


def _option(of: str, stretch: Stretch, ids: Sequence[str], similar: Pairwise) -> str:
    if stretch.high == inf:
        where = "dedup off" if stretch.low < 0 else f"off, or above {stretch.low:.4f}"
    elif of == LIMIT:
        where = f"{stretch.low:.4f} to {stretch.high:.4f}"
    else:
        where = f"λ {stretch.low:.3f} to {stretch.high:.3f}"
    left, entered = len(set(ids) - set(stretch.results)), len(set(stretch.results) - set(ids))
    mean = "" if similar.mean_cosine is None else f" · mean cosine {similar.mean_cosine:.3f}"
    return f"{where} · {left} leave, {entered} enter{mean}"


def _values(of: str, stretch: Stretch) -> dict[str, Any]:
    """The parameters that give these results."""
    if of == LAMBDA:
        return {"assembly.strategy": "mmr", "assembly.mmr_lambda": lambda_value(stretch)}
    limit = limit_value(stretch)
    return {"dedup.enabled": False} if limit is None else {"dedup.enabled": True, "dedup.similarity": limit}


def before_after_html(trace: Trace, before: Sequence[str], after: Sequence[str], grades: Mapping[str, int]) -> Markup:
    """The results now and then, side by side; who leaves and who enters is marked by a sign."""
    columns = []
    for title, ids, changed, sign in (
        ("now", before, set(before) - set(after), "▼ leaves"),
        ("then", after, set(after) - set(before), "▲ enters"),
    ):
        judged = f" · {sum(grades.get(memory_id, 0) > 0 for memory_id in ids)} judged relevant" if grades else ""
        rows = [
            {
                "memory_id": memory_id,
                "short": short_id(memory_id),
                "grade": f"grade {grades[memory_id]}" if memory_id in grades else "",
                "sign": sign if memory_id in changed else "",
                "text": _text(trace, memory_id, 120),
            }
            for memory_id in ids
        ]
        columns.append({"title": f"{title}{judged}", "rows": rows})
    return render("inspect/tools/diversity_trial.html", columns=columns)
