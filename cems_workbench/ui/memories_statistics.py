"""The Statistics view: how many, how old, how long, and what stands there twice."""

from __future__ import annotations

from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from cems_workbench.pipeline.resources import Resources
from cems_workbench.records import Memory
from cems_workbench.store import Duplicates, Selection, Statistics
from cems_workbench.ui import memories_charts as charts
from cems_workbench.ui import memories_state as state
from cems_workbench.ui.memories_duplicates import NearPairs, near_pairs, pairs_html
from cems_workbench.ui.memories_terms import COSINE, NUMBERS

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

EXACT_SHOWN = 30
NEAR_SHOWN = 30
NEAR_MEMORIES = 5_000
NEAR_COSINE = 0.92


def draw(resources: Resources, place: DeltaGenerator) -> None:
    """Numbers, charts and duplicates."""
    statistics = resources.store.statistics(datetime.now(UTC))
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
        charts.bars(charts.first_and_rest(statistics.categories, "(none)")),
    )
    _chart(
        right, "Projects", "Memories of each project; (none) belongs to no project.",
        charts.bars(charts.first_and_rest(statistics.projects, "(none)")),
    )  # fmt: skip
    undated = f" Without a date, and not shown: {statistics.undated:,}." if statistics.undated else ""
    left, right = st.columns(2, gap="large")
    months = [(f"{month:%Y-%m}", count) for month, count in statistics.months]
    _chart(left, "Created", f"Memories by the month they were created in.{undated}", charts.columns(months))
    _chart(
        right, "Length", f"Characters of the content; half have at most {statistics.median_length:,}.",
        charts.bars(statistics.lengths),
    )  # fmt: skip
    left, right = st.columns(2, gap="large")
    _chart(
        left,
        "Age",
        f"Time since creation, each up to the age named.{undated}",
        charts.bars(statistics.ages),
    )
    with right:
        _exact(*resources.store.exact_duplicates(EXACT_SHOWN))
    _near(resources, place)


def numbers_html(statistics: Statistics) -> str:
    """The figures on top, in cells."""

    def day(moment: datetime | None) -> str:
        return "–" if moment is None else moment.date().isoformat()

    cells = [
        ("memories", f"{statistics.memories:,}"),
        ("pinned", f"{statistics.pinned:,}"),
        ("never accessed", f"{statistics.never_accessed:,}"),
        ("deleted", f"{statistics.deleted:,}"),
        ("oldest", day(statistics.first_created)),
        ("newest", day(statistics.last_created)),
        ("median length", f"{statistics.median_length:,}"),
        ("longest", f"{statistics.longest:,}"),
    ]
    body = "".join(
        f'<div title="{escape(NUMBERS[name])}"><span>{name}</span><b>{escape(value)}</b></div>' for name, value in cells
    )
    return f'<div class="wb-mem-numbers">{body}</div>'


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
    total = resources.store.count()
    limited = f" Only the newest {compared:,} of {total:,} memories were compared." if compared < total else ""
    if not result.pairs:
        st.caption(f"No pair reaches {threshold:.2f}; exact duplicates aside.{limited}")
        return
    shown = f" The {len(result.pairs)} closest are shown." if len(result.pairs) < result.total else ""
    st.caption(f"{result.total:,} pair{'s' if result.total != 1 else ''} from {threshold:.2f} on.{shown}{limited}")
    st.html(pairs_html(result.pairs, memories))


def find_near(resources: Resources, threshold: float) -> tuple[NearPairs, dict[str, Memory], int]:
    """The near pairs of the newest memories, the memories in them, and how many were compared."""
    newest = resources.store.find(Selection(), NEAR_MEMORIES).memories
    by_id = {memory.id: memory for memory in newest}
    vectors = resources.indexes.vectors.embeddings(list(by_id))
    ids = list(vectors)
    matrix = np.stack(list(vectors.values())) if ids else np.empty((0, 1), np.float32)
    matrix = matrix / np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), 1e-12)
    result = near_pairs(ids, matrix, [by_id[name].content for name in ids], threshold, NEAR_SHOWN)
    return result, {name: by_id[name] for pair in result.pairs for name in pair[:2]}, len(ids)
