"""Parts that pages share: a strip of numbers, an empty state, an offer to gather, the switch between views, progress, and a report.

Progress of a job is a bar with count and time left, and Cancel. Streamlit stops the script at its next step when any widget is used,
Cancel too. Jobs keep their finished work.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import PurePath
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import streamlit as st
from markupsafe import Markup
from streamlit.delta_generator import DeltaGenerator

from cems_workbench.errors import WorkbenchError
from cems_workbench.platform.atomic_write import safe_stem
from cems_workbench.progress import Progress
from cems_workbench.results import Table, as_text
from cems_workbench.ui.kit.html import draw, plain, render
from cems_workbench.ui.kit.tables import HELP

if TYPE_CHECKING:
    from cems_workbench.config import PipelineConfig
    from cems_workbench.jobs.background import BackgroundWork
    from cems_workbench.jobs.catalogue import SampleFigures
    from cems_workbench.jobs.query_set_evidence import QuerySelection
    from cems_workbench.pipeline.resources import Resources
    from cems_workbench.records import Judgment

Option = TypeVar("Option")


REDRAW_INTERVAL_S = 0.7
"""Interval between redraws of work in the background."""


def remembered(key: str, help: str | None = None) -> dict[str, Any]:
    """Arguments of a widget whose value survives a visit to another page; without `help` its tooltip is that of its key in help.json."""
    return {"key": key, "help": help or HELP.get(key), "persist_state": "session"}


def switch(
    label: str,
    options: Sequence[Option],
    key: str,
    first: Option | None = None,
    *,
    remember: bool = True,
    labelled: bool = False,
    box: Any = st,
    **more: Any,
) -> Option:
    """The chosen one of `options`, initially `first`, or the first. With `remember` the choice survives a visit to
    another page. To choose from code, set `st.session_state[key]` before this is drawn. `more` goes to Streamlit. The
    tooltip is that of the key in help.json."""
    first = options[0] if first is None else first
    if st.session_state.get(key) not in options:
        st.session_state[key] = first
    chosen: Option | None = box.segmented_control(
        label,
        options,
        required=True,
        key=key,
        label_visibility="visible" if labelled else "collapsed",
        persist_state="session" if remember else None,
        **{"help": HELP.get(key), **more},
    )
    return first if chosen is None else chosen


def opened_popover(
    label: str, key: str, icon: str, help: str, width: int | None = None, **more: Any
) -> DeltaGenerator | None:
    """A popover that is drawn only while it is open: its content, or None."""
    popover = st.popover(label, icon=icon, key=key, on_change="rerun", help=help, **more)
    if not popover.open:
        return None
    return popover if width is None else popover.container(width=width)


KINDS = {".yaml": "text/yaml", ".json": "application/json", ".html": "text/html", ".csv": "text/csv"}
"""MIME types of downloads by the ending of their name; text otherwise."""


def download(
    label: str, content: Any, file: str, key: str, box: Any = st, icon: str = ":material/download:", **more: Any
) -> None:
    """A button that downloads a file without a rerun; a function as `content` is called when it is pressed."""
    kind = KINDS.get(PurePath(file).suffix, "text/plain")
    box.download_button(label, content, file, kind, key=key, on_click="ignore", icon=icon, **more)


def numbers(cells: Iterable[tuple[str, str, str]], columns: int | None = None) -> Markup:
    """A strip of (name, value, meaning) cells; the meaning is the tooltip. Eight columns, or four on a narrow page."""
    return render("kit/numbers.html", numbers=cells, columns=columns)


def empty(title: str, text: str | Markup) -> None:
    """Draw an empty state: what is missing and how to get it. Text is escaped unless it is Markup; only constants may be Markup."""
    draw("kit/empty.html", title=title, text=text)


def show(
    lines: Sequence[str],
    tables: Sequence[Table],
    notes: Sequence[str] = (),
    about: Mapping[str, str] = MappingProxyType({}),
    marked: str = "",
) -> None:
    """Draw what an operation returns: its lines, its tables, each below its title (empty ones are left out), and its
    notes. `about` are the tooltips of columns by name; rows with a cell that begins with `marked` are tinted."""
    drawn = [as_text(table) for table in tables if table]
    draw("kit/result.html", lines=lines, tables=drawn, about=about, marked=marked)
    for note in notes:
        st.caption(plain(note))


def draw_provenance(key: str, text: str, ask_again: Callable[[], None] | None) -> None:
    """Draw which lists a live system returned and when, with a button that requests them again (none if `ask_again` is
    None). `ask_again` is called before the next run of the page."""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(plain(text), width="content")
        if ask_again is not None:
            help = "The running system may answer differently now. Discards its earlier answers and gathers these lists again."
            more: Any = {"type": "tertiary", "icon": ":material/refresh:", "on_click": ask_again}
            st.button("Ask again", f"{key}:ask_again", help, **more)


def draw_bundled_notice(
    page: str, figures: SampleFigures, measure_hint: str, choose: str, on_click: Callable[[], None]
) -> None:
    """Draw that the results shown are bundled with the project, when they were measured, and how to measure again."""
    help = (
        "Shown because this store holds exactly the sample set: the same memories, relations, queries, judgments, embedder and presets as "
        "in that measurement. Times were measured on another machine."
    )
    when = f"Measured with CEMS Workbench {plain(figures.version)} on {figures.day.isoformat()}"
    text = f":material/inventory_2: {when}; these results are bundled with the project. {measure_hint}"
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(text, width="stretch", help=help)
        st.button(choose, key=f"{page}:shipped", icon=":material/tune:", on_click=on_click)


def draw_effects(configs: Mapping[str, PipelineConfig], only_project: bool = False) -> None:
    """Draw how the chosen configs use each query's project and date, where one of them does."""
    from cems_workbench.pipeline.effects import as_of_effect, project_effect, several_effects

    of = {
        "project": {name: project_effect(config, only_project) for name, config in configs.items()},
        "date": {name: as_of_effect(config) for name, config in configs.items()},
    }
    used = {part: effects for part, effects in of.items() if not all(effect.ignored for effect in effects.values())}
    if used:
        st.caption(" ".join(f"**Each query's {part}** · {plain(several_effects(used[part]))}." for part in used))


@contextmanager
def errors_shown() -> Iterator[None]:
    """A context in which an error becomes one line on the page; the statements after it are then reached."""
    try:
        yield
    except WorkbenchError as error:
        st.error(plain(str(error)), icon=":material/block:")


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """A context with a progress bar here, which disappears when it ends."""
    place = st.empty()
    try:
        yield progress_in(place)
    finally:
        place.empty()


@st.fragment(run_every=REDRAW_INTERVAL_S)
def watch_work(
    works: Callable[[], Mapping[str, BackgroundWork]],
    name: str,
    key: str,
    text: str | Callable[[], str],
    stop: str,
    help: str | None = None,
    more: Callable[[], None] = lambda: None,
) -> None:
    """Draw the progress of the work of this name, a button `stop` and what `more` draws, as a fragment; reruns the page
    when it ends. A `text` that is given as it is has the places {done} and {total}; `key` is the button's."""
    at_work = works().get(name)
    if at_work is None or at_work.over:
        st.rerun()
    bar, button = st.columns([5, 1], vertical_alignment="center")
    said = text.format(done=at_work.done, total=at_work.total) if isinstance(text, str) else text()
    bar.progress(min(1.0, at_work.done / max(1, at_work.total)), text=said)
    label = "Stopping…" if at_work.stopping else stop
    icon, stopping = ":material/stop:", at_work.stopping
    button.button(label, on_click=at_work.stop, width="stretch", disabled=stopping, icon=icon, key=key, help=help)
    more()


Wanted: TypeAlias = "Sequence[tuple[str, PipelineConfig, QuerySelection]]"
"""Configs whose evidence is wanted, under their names, each with its queries."""


def offer_gather(
    page: str,
    wanted: Wanted,
    then: str,
    resources: Resources,
    *,
    judgments: Sequence[Judgment] | None = None,
    paces: Sequence[tuple[PipelineConfig, float]] = (),
) -> bool:
    """Offer to gather missing evidence, or to resume that, with progress and Cancel; True once it has been gathered.
    `then` says what it is good for; `paces` are the seconds per query of other configs. An error becomes one line on
    the page."""
    from cems_workbench.jobs.query_set_evidence import pending_gathers, seconds_left

    pending = [pending_gathers([(name, config)], selection, resources)[0] for name, config, selection in wanted]
    resumable = any(one.finished for one in pending)
    names = ", ".join(
        plain(one.name) + (f" ({one.finished} of {one.total} are there)" if one.finished else "") for one in pending
    )
    sizes = {selection.query_set: len(selection.queries) for _, _, selection in wanted}
    cost = search_cost_text(sum(sizes.values()), seconds_left(pending, paces), [config for _, config, _ in wanted])
    return offer_job(
        f"{page}:gather",
        f"Not gathered yet: {names}. {cost}; {then}.",
        "Resume" if resumable else "Gather",
        lambda progress: gather_wanted(wanted, resources, progress, judgments),
        icon=":material/pause_circle:" if resumable else ":material/hourglass_empty:",
        cancel=f"{page}:cancel",
        kept="What was gathered is kept; gathering can be resumed.",
    )


def gather_wanted(
    wanted: Wanted, resources: Resources, progress: Progress, judgments: Sequence[Judgment] | None = None
) -> None:
    """Gather evidence with these judgments, else those of the store; a message that stays names each query that is left out."""
    from cems_workbench.jobs.query_set_evidence import gather_evidence

    def under(name: str) -> Progress:
        return lambda _, done, total: progress(name, done, total)

    graded = resources.store.judgments.read() if judgments is None else judgments
    for i, (name, config, selection) in enumerate(wanted):
        which = f"{name} ({i + 1} of {len(wanted)})" if len(wanted) > 1 else name
        for row in gather_evidence(config, selection, graded, resources, under(which)).left_out:
            st.toast(plain(f"{row} (left out)"), icon=":material/warning:", duration="infinite")


def search_cost_text(total: int, left: float | None, configs: Sequence[PipelineConfig]) -> str:
    """`Each of 129 queries is searched once, about 3 min in all`: the time in `left` seconds if known, else what it depends on."""
    text = f"Each of {total} queries is searched once" if total > 1 else "The query is searched once"
    if left is not None:
        return f"{text}, about {duration(left)} in all"
    from cems_workbench.pipeline.stages import RERANK

    limits = [config.rerank.depth for config in configs if not RERANK.is_off(config)]
    if not limits:
        return text
    read = "all candidates" if None in limits else f"up to {max(filter(None, limits))} candidates"
    who = "a reranker reads" if len(limits) == len(configs) else "where a config reranks, its reranker reads"
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
    """A message with a button that starts the missing work, with progress and Cancel; True once it is done. `message`
    is Markdown; `kept` describes what remains after a cancel. An error becomes one line on the page."""
    left, right = st.columns([3, 1], vertical_alignment="center")
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


ESTIMATE_AFTER_S = 2.0
"""Seconds of work before the time left is shown."""


def duration(seconds: float) -> str:
    """`12 s`, or `3 min` from a minute and a half on."""
    return f"{max(1, round(seconds))} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def time_left(seconds: float, done: int, rest: int) -> str:
    """Estimate for `rest` steps after `done` took `seconds`, as ` · about 12 s left`; empty while there is too little data."""
    if seconds < ESTIMATE_AFTER_S or done <= 0 or rest <= 0:
        return ""
    return f" · about {duration(seconds * rest / done)} left"


def progress_text(label: str, done: int, total: int, seconds: float, first: int = 0) -> str:
    """`embedding: 12 of 1,200 · about 3 min left`, after `seconds` of work that started at step `first`. Reading counts
    bytes, shown as a percentage; without a total only the label is shown."""
    if not total and not label.startswith("reading"):
        return label
    count = f"{100 * done // total if total else 0} %" if label.startswith("reading") else f"{done:,} of {total:,}"
    return f"{label}: {count}{time_left(seconds, done - first, total - done)}"


def progress_in(place: DeltaGenerator) -> Progress:
    """A progress callback that draws its bar in `place`, with the time left once it can be estimated."""
    started: dict[str, tuple[float, int]] = {}

    def report(label: str, done: int, total: int) -> None:
        start, first = started.setdefault(label, (time.monotonic(), done))
        text = progress_text(label, done, total, time.monotonic() - start, first)
        place.progress(min(done / total, 1.0) if total else 0.0, text=plain(text))

    return report


@contextmanager
def cancellable(
    key: str,
    help: str = "Stops now. Finished work is kept.",
    *,
    place: DeltaGenerator | None = None,
    on_cancel: Callable[[], None] | None = None,
) -> Iterator[Progress]:
    """A context with a progress bar and Cancel, in `place` or here; both disappear when it ends, also on an error.
    `on_cancel` is called before the script reruns."""
    area = place if place is not None else st.empty()
    try:
        with area.container():
            bar, button = st.columns([6, 1], vertical_alignment="center")
            button.button("Cancel", key=key, help=help, on_click=on_cancel, width="stretch")
            yield progress_in(bar.empty())
    finally:
        area.empty()


MAX_NAME_CHARS = 60


def report_button(key: str, name: str, write: Callable[[bool], str], *, texts: bool = True, what: str = "") -> None:
    """A popover with the report's options and its download button; the file is written when that is pressed.

    Args:
        key: of the widgets.
        name: of the file, without its suffix.
        write: returns the HTML; its argument: whether to leave texts out.
        texts: whether there are texts that can be left out.
        what: description of the contents, after "One HTML file for people who do not run the app:".
    """
    file = safe_stem(name, "report", MAX_NAME_CHARS)
    help = "Leaves out queries, titles and contents; ids and numbers stay."
    with st.popover("Report", icon=":material/article:", key=f"{key}:popover"):
        st.caption(f"One HTML file for people who do not run the app: {what}It opens from disk without a network.")
        redact = texts and st.toggle("Leave texts out", **remembered(f"{key}:redact", help))
        download("Download HTML", lambda: write(redact), f"{file}.html", f"{key}:html", type="primary")
