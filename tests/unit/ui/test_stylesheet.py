"""The stylesheet reaches the page: Streamlit's sanitiser throws a whole style element away for one thing that looks like a tag."""

from __future__ import annotations

import re

from cems_workbench.ui.kit.theme import STYLESHEET


def test_nothing_in_the_stylesheet_looks_like_a_tag() -> None:
    body = STYLESHEET.strip().removeprefix("<style>").removesuffix("</style>")
    assert not re.findall(r"<[/\w!]", body)


def test_every_brace_is_closed() -> None:
    assert STYLESHEET.count("{") == STYLESHEET.count("}")
