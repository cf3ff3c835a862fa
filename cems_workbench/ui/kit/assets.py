"""Stylesheets and scripts of the pages: files in `ui/assets/`, read once. They hold nothing that anybody typed."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import streamlit as st
from markupsafe import Markup

FOLDER = Path(__file__).resolve().parents[1] / "assets"


@cache
def stylesheet(*names: str) -> Markup:
    """The `<style>` element with `ui/assets/<name>.css` of each name, in their order."""
    return Markup("<style>\n{}</style>").format(Markup("".join(_text(f"{name}.css") for name in names)))  # noqa: S704 (files of ours)


def begin_page(title: str, *names: str) -> None:
    """Begin a page: its heading for those who hear it, since the navigation shows it to others, its stylesheets, and a voice."""
    st.html(Markup('{}<h1 class="wb-heard">{}</h1>').format(stylesheet("workbench", *names), title))
    write_script("heard")


def write_stylesheet(*names: str) -> None:
    """Put stylesheets on the page; they take no room."""
    st.html(stylesheet(*names))


def write_script(name: str) -> None:
    """Run `ui/assets/<name>.js` on the page; a script that must run once per window sees to that itself."""
    st.html(f"<script>{_text(f'{name}.js')}</script>", unsafe_allow_javascript=True)


@cache
def _text(file: str) -> str:
    return (FOLDER / file).read_text(encoding="utf-8")
