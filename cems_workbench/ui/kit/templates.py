"""HTML of the pages: jinja2 templates with autoescape always on, in `ui/templates/<page>/`.

Every value is escaped where it is written, so untrusted text cannot become markup by being forgotten. A value that is missing is an
error, not an empty place. Templates hold markup alone: what is computed is computed in Python and handed over.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import streamlit as st
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

FOLDER = Path(__file__).resolve().parents[1] / "templates"


@cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=False,
        auto_reload=False,
    )


def render(template: str, **values: Any) -> Markup:
    """The HTML of `ui/templates/<template>` with these values; safe to be a value of another template.

    Raises jinja2.UndefinedError for a name that the template needs and was not given.
    """
    return Markup(_environment().get_template(template).render(values))


def draw(template: str, **values: Any) -> None:
    """Put the HTML of a template on the page."""
    st.html(render(template, **values))
