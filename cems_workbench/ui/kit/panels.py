"""Shared panels: a strip of numbers, an empty state, and an offer to gather missing evidence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import streamlit as st
from markupsafe import Markup

from cems_workbench.errors import WorkbenchError
from cems_workbench.pipeline.request_effects import moment_effect, project_effect, several_effects
from cems_workbench.ui.kit.escape import plain
from cems_workbench.ui.kit.progress import cancellable, duration
from cems_workbench.ui.kit.templates import draw, render

if TYPE_CHECKING:
    from cems_workbench.config import PipelineConfig
    from cems_workbench.jobs.sample_figures import SampleFigures
    from cems_workbench.progress import Progress


def numbers(cells: Iterable[tuple[str, str, str]], columns: int | None = None) -> Markup:
    """A strip of (name, value, meaning) cells; the meaning is the tooltip. Eight columns, or four on a narrow page."""
    return render("kit/numbers.html", numbers=cells, columns=columns)


def empty(title: str, text: str | Markup) -> None:
    """Draw an empty state: what is missing and how to get it. Text is escaped unless it is Markup; only constants may be Markup."""
    draw("kit/empty.html", title=title, text=text)


def draw_provenance(key: str, text: str, ask_again: Callable[[], None] | None) -> None:
    """Draw which lists a live system returned and when, with a button that requests them again (none if `ask_again` is None).

    `ask_again` is called before the next run of the page.
    """
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(plain(text), width="content")
        if ask_again is not None:
            st.button(
                "Ask again",
                key=f"{key}:ask_again",
                type="tertiary",
                icon=":material/refresh:",
                on_click=ask_again,
                help="The running system may answer differently now. Discards its earlier answers and gathers these lists again.",
            )


def draw_bundled_notice(
    page: str, figures: SampleFigures, measure_hint: str, choose: str, on_click: Callable[[], None]
) -> None:
    """Draw that the results shown are bundled with the project, when they were measured, and how to measure again."""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(
            f":material/inventory_2: Measured with CEMS Workbench {plain(figures.version)} on {figures.day.isoformat()}; these results "
            f"are bundled with the project. {measure_hint}",
            width="stretch",
            help="Shown because this store holds exactly the sample set: the same memories, relations, queries, judgments, embedder and "
            "presets as in that measurement. Times were measured on another machine.",
        )
        st.button(choose, key=f"{page}:shipped", icon=":material/tune:", on_click=on_click)


def draw_effects(configs: Mapping[str, PipelineConfig], project_only: bool = False) -> None:
    """Draw how the chosen configs use each query's project and date; nothing without configs."""
    if not configs:
        return
    project = several_effects({name: project_effect(config, project_only) for name, config in configs.items()})
    moment = several_effects({name: moment_effect(config) for name, config in configs.items()})
    st.caption(f"**Project of a query** · {plain(project)}. **Date of a query** · {plain(moment)}.")


def offer_gather(page: str, message: str, gather: Callable[[Progress], None], *, resumable: bool) -> bool:
    """Offer to gather missing evidence, with progress and Cancel; True once it has been gathered.

    `message` is Markdown. `resumable`: an earlier gather was interrupted and will be resumed. An error becomes one line on the page.
    """
    return offer_job(
        f"{page}:gather",
        message,
        "Resume" if resumable else "Gather",
        gather,
        icon=":material/pause_circle:" if resumable else ":material/hourglass_empty:",
        cancel=f"{page}:cancel",
        kept="What was gathered is kept; gathering can be resumed.",
    )


def search_cost_text(total: int, left: float | None, configs: Iterable[PipelineConfig], word: str = "in all") -> str:
    """`Each of 129 queries is searched once, about 3 min in all`: the time in `left` seconds if known, else what it depends on."""
    text = f"Each of {total} queries is searched once"
    if left is not None:
        return f"{text}, about {duration(left)} {word}"
    from cems_workbench.pipeline.stages import RERANK

    every = list(configs)
    limits = [config.rerank.depth for config in every if not RERANK.is_off(config)]
    if not limits:
        return text
    read = "all candidates" if None in limits else f"up to {max(filter(None, limits))} candidates"
    who = "a reranker reads" if len(limits) == len(every) else "where a config reranks, its reranker reads"
    return f"{text}, and {who} {read} of each, which can take minutes (the progress bar estimates the time)"


def offer_job(
    key: str,
    message: str,
    label: str,
    work: Callable[[Progress], None],
    *,
    icon: str,
    kept: str,
    cancel: str = "",
    warn: bool = False,
    help: str | None = None,
) -> bool:
    """A message with a button that starts the missing work, with progress and Cancel; True once it is done.

    `message` is Markdown; `kept` describes what remains after a cancel. An error becomes one line on the page.
    """
    left, right = st.columns([5, 1], vertical_alignment="center")
    (left.warning if warn else left.info)(message, icon=icon)
    if not right.button(label, key=key, type="primary", icon=":material/play_arrow:", width="stretch", help=help):
        return False
    try:
        with cancellable(cancel or f"{key}:cancel", kept) as progress:
            work(progress)
    except WorkbenchError as error:
        st.error(plain(str(error)), icon=":material/block:")
        return False
    return True
