"""Button that exports a result as one HTML file."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from cems_workbench.platform.atomic_write import safe_stem

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
    with st.popover("Report", icon=":material/article:", key=f"{key}:popover"):
        st.caption(
            f"One HTML file for people who do not run the app: {what}It opens from disk without a network and can be printed."
        )
        redact = texts and st.toggle(
            "Leave texts out",
            key=f"{key}:redact",
            persist_state="session",
            help="Leaves out queries, titles and contents; ids and numbers stay.",
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
