"""The Statistics view: how many, how old, how long, and what stands there twice.

The bars of the Statistics view: quiet axes, counts where they are read.

Memories that say almost the same: pairs whose vectors are close, found in blocks of a matrix product.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import streamlit as st
from numpy.typing import NDArray
from streamlit.delta_generator import DeltaGenerator

from cems_workbench.models.protocol import Float32
from cems_workbench.pipeline.resources import Resources
from cems_workbench.records import Memory
from cems_workbench.store import Duplicates, Selection, Statistics
from cems_workbench.ui.kit import panels
from cems_workbench.ui.kit.escape import tick
from cems_workbench.ui.kit.theme import LIST_COLOURS
from cems_workbench.ui.memories import state
from cems_workbench.ui.memories.terms import COSINE, NUMBERS

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

BAR = 27
COLUMN_HEIGHT = 230
BARS = 12
COLOUR = LIST_COLOURS[0]
FAINT = "rgba(128,128,128,0.22)"


def first_and_rest(counts: Sequence[tuple[str | None, int]], none: str, most: int = BARS) -> list[tuple[str, int]]:
    """The `most` largest as (label, count), and the others as one more; `none` names what has no value."""
    shown = [(none if name is None else name, count) for name, count in counts[:most]]
    rest = counts[most:]
    return [*shown, (f"{len(rest)} others", sum(count for _, count in rest))] if rest else shown


def bars(counts: Sequence[tuple[str, int]]) -> Figure:
    """Horizontal bars, in the given order from the top, each with its count."""
    import plotly.graph_objects as go

    places = list(range(len(counts)))
    values = [count for _, count in counts]
    figure = go.Figure()
    figure.add_bar(
        y=places, x=values, orientation="h", marker={"color": COLOUR}, text=[f"{value:,}" for value in values],
        textposition="outside", cliponaxis=False, **_hover(counts),
    )  # fmt: skip
    figure.update_layout(
        height=BAR * max(len(counts), 2) + 16, margin={"l": 8, "r": 44, "t": 4, "b": 4}, bargap=0.34, showlegend=False,
        xaxis={"visible": False, "range": [0, max([*values, 1]) * 1.04], "fixedrange": True},
        yaxis={
            "autorange": "reversed", "automargin": True, "tickvals": places, "showgrid": False, "fixedrange": True,
            "ticktext": [f"{tick(name)}  " for name, _ in counts], "tickfont": {"size": 12},
        },
    )  # fmt: skip
    return figure


def columns(counts: Sequence[tuple[str, int]], ticks: int = 8) -> Figure:
    """Vertical bars in the given order; at most about `ticks` of the labels are written."""
    import plotly.graph_objects as go

    places = list(range(len(counts)))
    every = max(1, -(-len(counts) // ticks))
    figure = go.Figure()
    figure.add_bar(x=places, y=[count for _, count in counts], marker={"color": COLOUR}, **_hover(counts))
    figure.update_layout(
        height=COLUMN_HEIGHT, margin={"l": 8, "r": 8, "t": 8, "b": 8}, bargap=0.18, showlegend=False,
        xaxis={
            "tickvals": places[::every], "ticktext": [tick(name) for name, _ in counts][::every], "automargin": True,
            "tickfont": {"size": 11}, "showgrid": False, "fixedrange": True,
        },
        yaxis={
            "nticks": 4, "tickformat": ",d", "rangemode": "tozero", "gridcolor": FAINT, "automargin": True,
            "tickfont": {"size": 11}, "fixedrange": True, "zeroline": False,
        },
    )  # fmt: skip
    return figure


def _hover(counts: Sequence[tuple[str, int]]) -> dict[str, Any]:
    total = sum(count for _, count in counts) or 1
    texts = [f"{tick(name, 80)}: {count:,} memories ({count / total:.1%})" for name, count in counts]
    return {"hovertext": texts, "hovertemplate": "%{hovertext}<extra></extra>"}


BLOCK = 512


@dataclass(frozen=True)
class NearPairs:
    """The closest pairs of distinct memories as (id, id, cosine), closest first, and how many reach the threshold."""

    pairs: tuple[tuple[str, str, float], ...]
    total: int


def near_pairs(ids: Sequence[str], vectors: Float32, contents: Sequence[str], threshold: float, most: int) -> NearPairs:
    """Pairs with cosine ≥ `threshold`, at most `most` of them, ties by the order of `ids`.

    `vectors` are unit vectors, shape (len(ids), dimension). Pairs of equal content are left out: they are exact
    duplicates, which are listed apart.
    """
    _, same = np.unique(np.asarray(contents, object), return_inverse=True)
    total = 0
    best = np.empty((0, 3))
    for start in range(0, len(ids), BLOCK):
        left, right, cosines = _block(vectors, np.asarray(same).reshape(-1), start, threshold)
        total += len(cosines)
        best = np.vstack([best, np.column_stack([left, right, cosines])])
        best = best[np.lexsort((best[:, 1], best[:, 0], -best[:, 2]))][:most]
    return NearPairs(tuple((ids[int(a)], ids[int(b)], float(cosine)) for a, b, cosine in best), total)


def _block(
    vectors: Float32, same: NDArray[np.intp], start: int, threshold: float
) -> tuple[NDArray[np.intp], NDArray[np.intp], Float32]:
    """The pairs (i, j > i) of BLOCK rows from `start` with the rows from there on."""
    rows = vectors[start : start + BLOCK]
    cosines = np.minimum(rows @ vectors[start:].T, 1.0)
    cosines[same[start : start + BLOCK, None] == same[None, start:]] = -1.0
    left, right = np.nonzero(cosines >= threshold)
    later = right > left
    left, right = left[later], right[later]
    return left + start, right + start, cosines[left, right]


def pairs_html(pairs: Sequence[tuple[str, str, float]], memories: Mapping[str, Memory]) -> str:
    """The pairs side by side with their cosine; texts are escaped."""
    rows = []
    for first, second, cosine in pairs:
        sides = "".join(_side(memories[name]) for name in (first, second))
        rows.append(
            f'<div class="wb-mem-pair"><div class="wb-mem-cosine" title="{COSINE}">{cosine:.3f}</div>{sides}</div>'
        )
    return f'<div class="wb-mem-pairs">{"".join(rows)}</div>'


def _side(memory: Memory) -> str:
    created = memory.created_at.date().isoformat() if memory.created_at else None
    facts = "".join(f"<span>{escape(fact)}</span>" for fact in (memory.category, memory.project, created) if fact)
    title = f"<b>{escape(memory.title)}</b>\n" if memory.title else ""
    return (
        f'<div><div class="wb-facts"><code>{escape(memory.id)}</code>{facts}</div>'
        f'<div class="wb-text wb-mem-scroll">{title}{escape(memory.content)}</div></div>'
    )


EXACT_SHOWN = 30
NEAR_SHOWN = 30
NEAR_MEMORIES = 5_000
NEAR_COSINE = 0.92


def draw(resources: Resources, place: DeltaGenerator) -> None:
    """Numbers, charts and duplicates."""
    statistics = resources.store.memories.statistics(datetime.now(UTC))
    if not statistics.memories:
        st.html(
            '<div class="wb-empty"><h3>Nothing to count yet</h3><p>Import memories first, under Import; here they are counted.</p></div>'
        )
        return
    st.html(numbers_html(statistics))
    left, right = st.columns(2, gap="large")
    _chart(
        left,
        "Categories",
        "Memories of each category.",
        bars(first_and_rest(statistics.categories, "(none)")),
    )
    _chart(
        right, "Projects", "Memories of each project; (none) belongs to no project.",
        bars(first_and_rest(statistics.projects, "(none)")),
    )  # fmt: skip
    undated = f" Without a date, and not shown: {statistics.undated:,}." if statistics.undated else ""
    left, right = st.columns(2, gap="large")
    months = [(f"{month:%Y-%m}", count) for month, count in statistics.months]
    _chart(left, "Created", f"Memories by the month they were created in.{undated}", columns(months))
    _chart(
        right, "Length", f"Characters of the content; half have at most {statistics.median_length:,}.",
        bars(statistics.lengths),
    )  # fmt: skip
    left, right = st.columns(2, gap="large")
    _chart(
        left,
        "Age",
        f"Time since creation, each up to the age named.{undated}",
        bars(statistics.ages),
    )
    with right:
        _exact(*resources.store.memories.exact_duplicates(EXACT_SHOWN))
    _near(resources, place)


def numbers_html(statistics: Statistics) -> str:
    """The figures on top, in cells."""

    def day(moment: datetime | None) -> str:
        return "–" if moment is None else moment.date().isoformat()

    figures = {
        "memories": f"{statistics.memories:,}",
        "pinned": f"{statistics.pinned:,}",
        "never accessed": f"{statistics.never_accessed:,}",
        "deleted": f"{statistics.deleted:,}",
        "oldest": day(statistics.first_created),
        "newest": day(statistics.last_created),
        "median length": f"{statistics.median_length:,}",
        "longest": f"{statistics.longest:,}",
    }
    return panels.numbers((name, value, NUMBERS[name]) for name, value in figures.items())


def _chart(place: DeltaGenerator, title: str, caption: str, figure: Figure) -> None:
    place.markdown(f"###### {title}")
    place.caption(caption)
    place.plotly_chart(figure, key=f"mem:chart:{title}", config={"displayModeBar": False}, alt=caption)


def exact_html(groups: list[Duplicates]) -> str:
    """Each content that several memories share, with their ids; escaped."""
    rows = []
    for group in groups:
        ids = " ".join(f"<code>{escape(name)}</code>" for name in group.ids[:20])
        more = f" and {len(group.ids) - 20:,} more" if len(group.ids) > 20 else ""
        rows.append(
            f'<div><div class="wb-facts"><span><b>{len(group.ids):,}×</b></span><span>{ids}{more}</span></div>'
            f'<div class="wb-text wb-mem-scroll">{escape(group.content[:2_000])}</div></div>'
        )
    return f'<div class="wb-mem-exact">{"".join(rows)}</div>'


def _exact(groups: list[Duplicates], total: int) -> None:
    st.markdown("###### Exact duplicates")
    if not groups:
        st.caption("No two memories have the same content.")
        return
    shown = f" The {len(groups)} largest are shown." if len(groups) < total else ""
    texts = "content stands" if total == 1 else "contents stand"
    st.caption(f"{total:,} {texts} in more than one memory, character for character.{shown}")
    st.html(exact_html(groups))


def _near(resources: Resources, place: DeltaGenerator) -> None:
    st.markdown("###### Near duplicates")
    slider, button = st.columns([4, 1], vertical_alignment="bottom", gap="medium")
    threshold = slider.slider(
        "Similarity from", 0.80, 1.0, NEAR_COSINE, 0.01, key="mem:near:threshold",
        help=f"{COSINE} Lower finds more pairs.",
    )  # fmt: skip
    asked = button.button(
        "Compare", key="mem:near:button", width="stretch",
        help=f"Compares every memory with every other, the newest {NEAR_MEMORIES:,} of a larger store.",
    )  # fmt: skip
    label = (resources.store.content_version, resources.embedder.line, threshold)
    found: tuple[Any, NearPairs, dict[str, Memory], int] | None = state.get("near")
    if asked or (found is not None and found[0] != label):
        with state.work(place, "near") as progress:
            resources.refresh(progress)
            found = (label, *find_near(resources, threshold))
        state.put(near=found, due=False)
    if found is None:
        st.caption("Finds memories that say almost the same in other words. Press Compare.")
        return
    _, result, memories, compared = found
    total = resources.store.memories.count()
    limited = f" Only the newest {compared:,} of {total:,} memories were compared." if compared < total else ""
    if not result.pairs:
        st.caption(f"No pair reaches {threshold:.2f}; exact duplicates aside.{limited}")
        return
    shown = f" The {len(result.pairs)} closest are shown." if len(result.pairs) < result.total else ""
    st.caption(f"{result.total:,} pair{'s' if result.total != 1 else ''} from {threshold:.2f} on.{shown}{limited}")
    st.html(pairs_html(result.pairs, memories))


def find_near(resources: Resources, threshold: float) -> tuple[NearPairs, dict[str, Memory], int]:
    """The near pairs of the newest memories, the memories in them, and how many were compared."""
    newest = resources.store.memories.find(Selection(), NEAR_MEMORIES).memories
    by_id = {memory.id: memory for memory in newest}
    vectors = resources.indexes.vectors.embeddings(list(by_id))
    ids = list(vectors)
    matrix = np.stack(list(vectors.values())) if ids else np.empty((0, 1), np.float32)
    matrix = matrix / np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), 1e-12)
    result = near_pairs(ids, matrix, [by_id[name].content for name in ids], threshold, NEAR_SHOWN)
    return result, {name: by_id[name] for pair in result.pairs for name in pair[:2]}, len(ids)
