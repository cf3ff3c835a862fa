"""The stylesheets reach the page: Streamlit's sanitiser drops a whole style element for one thing that looks like a tag."""

from __future__ import annotations

import re

from cems_workbench.ui.kit.html import ASSETS, stylesheet


def test_every_stylesheet_is_one_style_element_with_nothing_in_it_that_looks_like_a_tag() -> None:
    sheets = sorted(file.stem for file in ASSETS.glob("*.css"))
    assert sheets
    for sheet in sheets:
        body = stylesheet(sheet).strip().removeprefix("<style>").removesuffix("</style>")
        assert not re.findall(r"<[/\w!]", body), sheet
        assert body.count("{") == body.count("}"), sheet
