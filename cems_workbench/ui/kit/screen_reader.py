"""What a screen reader is told beyond what is seen: whole names of buttons that share a word, and news of the page.

A hidden part of a label is grey and bold, which the stylesheet takes out of sight there; `assets/heard.js` reads news aloud.
"""

from __future__ import annotations

import streamlit as st

from cems_workbench.ui.kit.escape import plain
from cems_workbench.ui.kit.templates import render


def named(word: str, what: str) -> str:
    """A label that shows `word` and is called `word` and `what`: several buttons may say Apply, and none is called like another."""
    return f"{word} :gray[**{plain(what)}**]"


def announce(text: str) -> None:
    """Have `text` read aloud, politely, when it is new on the page; nothing is seen of it."""
    st.html(render("kit/announced.html", text=text))
