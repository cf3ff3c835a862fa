"""Panels of any page: a strip of figures; an empty page with what to do; and evidence that was not gathered yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import streamlit as st
from markupsafe import Markup

from cems_workbench.config import PipelineConfig
from cems_workbench.errors import WorkbenchError
from cems_workbench.jobs.sample_figures import SampleFigures
from cems_workbench.pipeline.request_effects import moment_effect, project_effect, several_effects
from cems_workbench.pipeline.stages import RERANK
from cems_workbench.progress import Progress
from cems_workbench.ui.kit.escape import plain
from cems_workbench.ui.kit.progress import cancellable, duration
from cems_workbench.ui.kit.templates import draw, render


def numbers(cells: Iterable[tuple[str, str, str]], columns: int | None = None) -> Markup:
    """Figures in a strip of cells, each (name, value, meaning); the meaning is its tooltip. Eight columns, or four on a narrow page."""
    return render("kit/numbers.html", numbers=cells, columns=columns)


def empty(title: str, text: str | Markup) -> None:
    """Say that there is nothing here yet, and what fills it. A text is escaped unless it is Markup, which only constants may be."""
    draw("kit/empty.html", title=title, text=text)


def answered_line(key: str, text: str, ask_again: Callable[[], None] | None) -> None:
    """Say which lists a running system answered and when, with a button to have it asked again; None: it cannot be.

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


def shipped_line(page: str, figures: SampleFigures, anew: str, choose: str, on_click: Callable[[], None]) -> None:
    """Say that figures come with the project, when and with what they were measured, and how to measure anew; a button chooses theirs."""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(
            f":material/inventory_2: Measured with CEMS Workbench {plain(figures.version)} on {figures.day.isoformat()}; these figures "
            f"come with the project. {anew}",
            width="stretch",
            help="They are shown because this store holds just the sample set: memories, relations, queries, judgments, embedder and "
            "presets are those that were measured. Times are of the machine that measured.",
        )
        st.button(choose, key=f"{page}:shipped", icon=":material/tune:", on_click=on_click)


def say_effects(configs: Mapping[str, PipelineConfig], project_only: bool = False) -> None:
    """Below the choice of configs, what project and day of each query do under them; nothing without any."""
    if not configs:
        return
    project = several_effects({name: project_effect(config, project_only) for name, config in configs.items()})
    moment = several_effects({name: moment_effect(config) for name, config in configs.items()})
    st.caption(f"**Project of a query** · {plain(project)}. **Its day** · {plain(moment)}.")


def not_gathered(page: str, message: str, gather: Callable[[Progress], None], *, begun: bool) -> bool:
    """Say what evidence is missing, and gather it on request, with progress and Cancel; True when it is there now.

    `message` is Markdown. `begun` says that a gather was broken off, which this one goes on with. An error is one line on the page.
    """
    return offered(
        f"{page}:gather",
        message,
        "Resume" if begun else "Gather",
        gather,
        icon=":material/pause_circle:" if begun else ":material/hourglass_empty:",
        cancel=f"{page}:cancel",
        kept="What was gathered is kept; gathering can be resumed.",
    )


def searched_once(total: int, left: float | None, configs: Iterable[PipelineConfig], word: str = "in all") -> str:
    """`Each of 129 queries is searched once, about 3 min in all`, with what is known of the time: `left` seconds, or what takes it."""
    said = f"Each of {total} queries is searched once"
    if left is not None:
        return f"{said}, about {duration(left)} {word}"
    every = list(configs)
    limits = [config.rerank.depth for config in every if not RERANK.is_off(config)]
    if not limits:
        return said
    read = "all candidates" if None in limits else f"up to {max(filter(None, limits))} candidates"
    who = "a reranker reads" if len(limits) == len(every) else "where a config reranks, its reranker reads"
    return f"{said}, and {who} {read} of each, which can take minutes (the bar tells how long)"


def offered(
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
    """A message with a button that does what it says is missing, with progress and Cancel; True when that is done.

    `message` is Markdown; `kept` says what a cancel leaves. An error is one line on the page.
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
