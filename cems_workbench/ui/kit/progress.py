"""Progress of a job on a page: a bar with count and time left, and Cancel.

Streamlit stops the script at its next step when any widget is used, including Cancel. Jobs keep their finished work.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from cems_workbench.progress import Progress
from cems_workbench.ui.kit.escape import plain

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
    """`embedding: 12 of 1,200 · about 3 min left`, after `seconds` of work that started at step `first`.

    Reading counts bytes, shown as a percentage; without a total only the label is shown.
    """
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

    `on_cancel` is called before the script reruns.
    """
    area = place if place is not None else st.empty()
    try:
        with area.container():
            bar, button = st.columns([6, 1], vertical_alignment="center")
            button.button("Cancel", key=key, help=help, on_click=on_cancel, width="stretch")
            yield progress_in(bar.empty())
    finally:
        area.empty()
