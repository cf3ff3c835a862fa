"""Stylesheets and scripts of the pages: static files in `ui/assets/`, read once; they never contain user input."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import streamlit as st
from markupsafe import Markup

FOLDER = Path(__file__).resolve().parents[1] / "assets"


@cache
def stylesheet(*names: str) -> Markup:
    """The `<style>` element with `ui/assets/<name>.css` for each name, in the given order."""
    return Markup("<style>\n{}</style>").format(Markup("".join(asset(f"{name}.css") for name in names)))  # noqa: S704 (files of ours)


def begin_page(title: str, *names: str) -> None:
    """Start a page: stylesheets, a heading for screen readers (the navigation already shows it), and a live region."""
    st.html(Markup('{}<h1 class="wb-sr-only">{}</h1>').format(stylesheet("workbench", *names), title))
    write_script("screen_reader")


def write_stylesheet(*names: str) -> None:
    """Add stylesheets to the page; they take no space."""
    st.html(stylesheet(*names))


def write_script(name: str) -> None:
    """Run `ui/assets/<name>.js` on the page; a script that must run only once per window guards against reruns itself."""
    st.html(f"<script>{asset(f'{name}.js')}</script>", unsafe_allow_javascript=True)


@cache
def asset(file: str) -> str:
    """The text of `ui/assets/<file>`."""
    return (FOLDER / file).read_text(encoding="utf-8")
