"""The Statistics view: counts, age, length, and duplicates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import streamlit as st
from markupsafe import Markup
from streamlit.delta_generator import DeltaGenerator

from cems_workbench.analysis.diversity import MAX_MEMORIES, NearDuplicates, near_duplicates
from cems_workbench.pipeline.resources import Resources
from cems_workbench.store import Duplicates, Statistics
from cems_workbench.ui.kit import html, widgets
from cems_workbench.ui.kit.charts import HOVERTEXT, LIST_COLOURS, bar_chart, draw_chart, layout
from cems_workbench.ui.kit.html import tick
from cems_workbench.ui.memories import across, state

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

COLUMN_HEIGHT_PX = 230
MAX_BARS = 12
COLOUR = LIST_COLOURS[0]
MAX_EXACT_GROUPS = 30
MAX_EXACT_IDS = 20
MAX_EXACT_CHARS = 2_000
DEFAULT_NEAR_COSINE = 0.92
HUBS = "memories:hubs"
COSINE_HELP = "Cosine of the two embeddings; 1: identical meaning to the model."
NUMBERS_HELP = {
    "memories": "Without deleted ones.",
    "pinned": "Never dropped because of their age.",
    "never accessed": "Never returned to an agent.",
    "deleted": "Hidden from every search; see Deleted.",
    "oldest": "Day of the earliest creation, UTC.",
    "newest": "Day of the latest creation, UTC.",
    "median length": "Half of the memories have at most this many characters.",
    "longest": "Characters of the longest content.",
}


def draw(resources: Resources, place: DeltaGenerator) -> None:
    """Draw numbers, charts and duplicates."""
    statistics, duplicates, duplicated = _cached_statistics(resources)
    if not statistics.memories:
        widgets.empty("Nothing to count yet", "Import memories first, under Import.")
        return
    st.html(numbers_html(statistics))
    left, right = st.columns(2, gap="large")
    _chart(
        left,
        "Categories",
        "Memories of each category.",
        first_and_rest(statistics.categories, "(none)"),
        bars,
    )
    _chart(
        right,
        "Projects",
        "Memories of each project; (none) belongs to no project.",
        first_and_rest(statistics.projects, "(none)"),
        bars,
    )
    undated = f" Without a date, and not shown: {statistics.undated:,}." if statistics.undated else ""
    left, right = st.columns(2, gap="large")
    months = [(f"{month:%Y-%m}", count) for month, count in statistics.months]
    _chart(left, "Created", f"Memories by month of creation.{undated}", months, columns)
    _chart(
        right,
        "Length",
        f"Characters of the content; half have at most {statistics.median_length:,}.",
        statistics.lengths,
        bars,
    )
    left, right = st.columns(2, gap="large")
    _chart(
        left,
        "Age",
        f"Time since creation, each bar up to the given age.{undated}",
        statistics.ages,
        bars,
    )
    with right:
        _exact(duplicates, duplicated)
    _near(resources, place)
    _hubs(resources)


def _hubs(resources: Resources) -> None:
    """Draw the memories that judged queries return too often, or never; counted while the panel is open."""
    st.markdown("## Hubs and orphans")
    st.caption(
        "Memories returned for many queries that judge them irrelevant, and memories that no judged query returns."
    )
    panel = st.expander("Count over a query set", key=HUBS, icon=":material/query_stats:", on_change="rerun")
    if panel.open:
        with panel:
            across.draw_hubs(resources, HUBS, _open_in_browse)


def _open_in_browse(memory_id: str) -> None:
    state.select(memory_id)
    st.session_state[state.VIEW] = "Browse"


def _cached_statistics(resources: Resources) -> state.Counted:
    """Statistics of the store, recomputed when its content or the day changes (ages depend on the day)."""
    now = datetime.now(UTC)
    key = (resources.store.content_version, now.date())
    counted = state.present().counted
    if counted is None or counted[0] != key:
        memories = resources.store.memories
        counted = (key, (memories.statistics(now), *memories.exact_duplicates(MAX_EXACT_GROUPS)))
        state.update(counted=counted)
    return counted[1]


def numbers_html(statistics: Statistics) -> Markup:
    """The strip of numbers at the top."""

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
    return widgets.numbers((name, value, NUMBERS_HELP[name]) for name, value in figures.items())


def _chart(
    place: DeltaGenerator, title: str, caption: str, counts: Sequence[tuple[str, int]], figure: Callable[..., Figure]
) -> None:
    with place:
        st.markdown(f"## {title}")
        st.caption(caption)
        draw_chart(
            figure(counts),
            key=f"memories:chart:{title}",
            alt=caption,
            table=lambda: [{title.lower(): name, "memories": count} for name, count in counts],
        )


def _exact(groups: list[Duplicates], total: int) -> None:
    st.markdown("## Exact duplicates")
    if not groups:
        st.caption("No two memories have the same content.")
        return
    shown = f" The {len(groups)} largest are shown." if len(groups) < total else ""
    texts = "content occurs" if total == 1 else "contents occur"
    st.caption(f"{total:,} {texts} in more than one memory, character by character.{shown}")
    st.html(exact_html(groups))


def exact_html(groups: Sequence[Duplicates]) -> Markup:
    """Each content shared by several memories, with their ids."""
    return html.render(
        "memories/exact_duplicates.html", groups=groups, most_ids=MAX_EXACT_IDS, most_chars=MAX_EXACT_CHARS
    )


def _near(resources: Resources, place: DeltaGenerator) -> None:
    st.markdown("## Near duplicates")
    slider, button = st.columns([4, 1], vertical_alignment="bottom", gap="medium")
    threshold = slider.slider(
        "Similarity from",
        0.80,
        1.0,
        DEFAULT_NEAR_COSINE,
        0.01,
        key="memories:near:threshold",
        help=f"{COSINE_HELP} Lower finds more pairs.",
    )
    asked = button.button(
        "Compare",
        key="memories:near:button",
        width="stretch",
        help=f"Compares all pairs of memories; in a larger store, the newest {MAX_MEMORIES:,}.",
    )
    key = (resources.store.content_version, resources.embedder.line, threshold)
    compared = state.present().compared
    if asked or (compared is not None and compared[0] != key):
        with state.cancellable_job(place, "near") as progress:
            resources.refresh(progress)
            compared = (key, near_duplicates(resources, threshold))
        state.update(compared=compared, indexes_behind=False)
    if compared is None:
        st.caption("Finds memories with nearly the same meaning. Press Compare.")
        return
    _pairs(compared[1], threshold, resources.store.memories.count())


def _pairs(near: NearDuplicates, threshold: float, total: int) -> None:
    """Draw the number of pairs, and the closest pairs side by side."""
    limited = (
        f" Only the newest {near.compared:,} of {total:,} memories were compared." if near.compared < total else ""
    )
    closest = near.closest
    if not closest.pairs:
        st.caption(f"No pair reaches {threshold:.2f}, not counting exact duplicates.{limited}")
        return
    shown = f" The {len(closest.pairs)} closest are shown." if len(closest.pairs) < closest.total else ""
    st.caption(
        f"{closest.total:,} pair{'s' if closest.total != 1 else ''} with a cosine of at least {threshold:.2f}.{shown}{limited}"
    )
    st.html(near_html(near))


def near_html(near: NearDuplicates) -> Markup:
    """Pairs side by side, with their cosine."""
    pairs = [(cosine, near.memories[first], near.memories[second]) for first, second, cosine in near.closest.pairs]
    return html.render("memories/near_duplicates.html", pairs=pairs, meaning=COSINE_HELP)


def first_and_rest(counts: Sequence[tuple[str | None, int]], none: str, most: int = MAX_BARS) -> list[tuple[str, int]]:
    """The `most` largest as (label, count), and the others as one entry; `none` labels a missing value."""
    shown = [(none if name is None else name, count) for name, count in counts[:most]]
    rest = counts[most:]
    return [*shown, (f"{len(rest)} others", sum(count for _, count in rest))] if rest else shown


def bars(counts: Sequence[tuple[str, int]]) -> Figure:
    """Horizontal bars with counts, in the given order from the top."""
    values = [count for _, count in counts]
    return bar_chart(
        [name for name, _ in counts],
        values,
        [f"{value:,}" for value in values],
        {"visible": False, "range": [0, max([*values, 1]) * 1.04]},
        marker={"color": COLOUR},
        **_hover(counts),
    )


def columns(counts: Sequence[tuple[str, int]], ticks: int = 8) -> Figure:
    """Vertical bars in the given order, with about `ticks` labels at most."""
    import plotly.graph_objects as go

    places = list(range(len(counts)))
    every = max(1, -(-len(counts) // ticks))
    figure = go.Figure()
    figure.add_bar(x=places, y=[count for _, count in counts], marker={"color": COLOUR}, **_hover(counts))
    small = {"tickfont": {"size": 11}}
    labels = [tick(name) for name, _ in counts][::every]
    x = {"tickvals": places[::every], "ticktext": labels, "showgrid": False} | small
    y = {"nticks": 4, "tickformat": ",d", "rangemode": "tozero"} | small
    figure.update_layout(layout(COLUMN_HEIGHT_PX, x, y, margin={"r": 8, "t": 8}, bargap=0.18))
    return figure


def _hover(counts: Sequence[tuple[str, int]]) -> dict[str, Any]:
    total = sum(count for _, count in counts) or 1
    texts = [f"{tick(name, 80)}: {count:,} memories ({count / total:.1%})" for name, count in counts]
    return {"hovertext": texts, "hovertemplate": HOVERTEXT}
