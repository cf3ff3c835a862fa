"""Text for screen readers only: full names of buttons that share a word, and announcements.

The hidden part of a label is grey and bold, which the stylesheet hides; `assets/screen_reader.js` announces changes.
"""

from __future__ import annotations

import streamlit as st

from cems_workbench.ui.kit.escape import plain
from cems_workbench.ui.kit.templates import render


def full_label(word: str, what: str) -> str:
    """A label that shows `word` and has the accessible name `word` + `what`, so that several Apply buttons are distinguishable."""
    return f"{word} :gray[**{plain(what)}**]"


def announce(text: str) -> None:
    """Announce `text` to screen readers (aria-live polite) when it is new on the page; it is invisible."""
    st.html(render("kit/announced.html", text=text))
