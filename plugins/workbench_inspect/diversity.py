"""Diversity: how similar the results are to each other, as dedup and MMR compare them, and what dedup dropped.

Dedup compares by the cosine of the embeddings, MMR by the overlap of the words (Jaccard: shared words / all words of both).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan, nan

import numpy as np
import streamlit as st
from markupsafe import Markup

from cems_workbench.pipeline import Evidence, Trace
from cems_workbench.pipeline.replay import single_table
from cems_workbench.pipeline.stages.dedup import DEDUP
from cems_workbench.pipeline.table import Floats
from cems_workbench.ui.inspect.context import InspectContext
from cems_workbench.ui.kit.html import fixed, plain, render, write_stylesheet
from cems_workbench.ui.kit.tables import short_id
from cems_workbench.ui.kit.views import View

MAX_MATRIX_RESULTS = 15
"""Maximum results in the matrix, limited by the width of the numbers."""
MAX_TINT = 53
"""Tint in percent at a cosine of 1; a stronger tint gives a contrast below 4.5 in the dark theme."""
HELP = (
    "Above the diagonal: cosine of the embeddings, used by dedup. Below: word overlap, used by MMR. Underlined: at or above the present "
    "dedup limit. –: no embedding. Sensitivity has the results at every other limit and λ."
)


@dataclass(frozen=True, eq=False)
class Pairwise:
    """Similarities (n, n) of memories to each other; NaN on the diagonal, and for a pair without both embeddings."""

    ids: tuple[str, ...]
    cosine: Floats
    overlap: Floats


def pairwise(evidence: Evidence, ids: Sequence[str]) -> Pairwise:
    """Every pair of these candidates. Raises ValueError for an id that is no candidate."""
    table = single_table(evidence)
    places = [table.ids[0].index(memory_id) for memory_id in ids]
    cosines, has = table.cosines(0)
    known = np.outer(has[places], has[places])
    cosine = np.where(known, cosines[np.ix_(places, places)], nan)
    overlap = np.array([table.overlaps(0, place)[places] for place in places]).reshape(len(ids), len(ids))
    for matrix in (cosine, overlap):
        np.fill_diagonal(matrix, nan)
    return Pairwise(tuple(ids), cosine, overlap)


def mean(matrix: Floats) -> float | None:
    """Over all pairs with a value; None without such a pair."""
    known = matrix[~np.isnan(matrix)]
    return float(known.mean()) if len(known) else None


def draw(context: InspectContext) -> None:
    """Draw the matrix, its means, and what dedup dropped."""
    write_stylesheet("evidence")
    trace = context.trace
    ids = [result.memory_id for result in trace.results]
    if len(ids) < 2:
        st.info("Fewer than two results: nothing to compare.", icon=":material/search_off:")
        return
    similar = pairwise(trace.evidence, ids)
    limit = None if DEDUP.is_off(trace.config) else trace.config.dedup.similarity
    st.markdown("## Similarity of the results", help=HELP)
    st.html(matrix_html(trace, similar, limit))
    first = f" Shown: the first {MAX_MATRIX_RESULTS} of {len(ids)}." if len(ids) > MAX_MATRIX_RESULTS else ""
    means = f"Mean cosine {fixed(mean(similar.cosine), '.3f')}, word overlap {fixed(mean(similar.overlap), '.3f')}."
    st.caption(f"{means}{first}  \n{dropped_words(trace)}")


def dropped_words(trace: Trace) -> str:
    """Markdown: what dedup dropped, each with the memory it duplicates and their cosine."""
    if DEDUP.is_off(trace.config):
        return "Dedup is off."
    dropped = [
        f"{plain(short_id(row.memory_id))} (of {plain(short_id(row.duplicate_of))}, {fixed(row.similarity)})"
        for row in trace.stage(DEDUP).rows
        if row.duplicate_of is not None
    ]
    return f"Dedup dropped {', '.join(dropped) or 'nothing'} at the limit of {trace.config.dedup.similarity:g}."


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
    return render("workbench_inspect:matrix.html", ids=ids, memories=memories, cell=cell)


VIEW = View("Diversity", 60, draw, "How similar are the results, and what did dedup drop?")
