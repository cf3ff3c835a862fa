"""The button that takes a finding away as one HTML file."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from cems_workbench.platform.atomic_write import safe_stem

NAME_MOST = 60


def report_button(key: str, name: str, write: Callable[[bool], str], *, texts: bool = True, what: str = "") -> None:
    """A button that opens what can be said of the file, and in it the download; it is written when that is pressed.

    Args:
        key: of the widgets.
        name: of the file, without its suffix.
        write: makes the page; it is told whether to leave texts out.
        texts: whether there are texts that can be left out.
        what: what stands in the file, after "one file that opens without a network".
    """
    file = safe_stem(name, "report", NAME_MOST)
    with st.popover("Report", icon=":material/article:", key=f"{key}:popover"):
        st.caption(
            f"One HTML file for people who do not run the app: {what}It opens from disk without a network, and prints."
        )
        redact = texts and st.toggle(
            "Leave texts out",
            key=f"{key}:redact",
            persist_state="session",
            help="Queries, titles and contents; ids and figures stay.",
        )
        st.download_button(
            "Download HTML",
            lambda: write(redact),
            f"{file}.html",
            "text/html",
            key=f"{key}:html",
            on_click="ignore",
            icon=":material/download:",
            type="primary",
        )
