"""HTML of the pages: jinja2 templates with autoescape always on, in `ui/templates/<page>/`.

Every value is escaped where it is written, and loses what would turn it round, so untrusted text cannot become markup by being
forgotten. A value that is missing is an error, not an empty place. Templates hold markup alone: what is computed is computed in Python
and handed over; only ids and texts are shortened in place, by the filters `short_id` and `excerpt`.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import streamlit as st
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from cems_workbench.platform.bidi import neutralise
from cems_workbench.ui.kit.escape import excerpt
from cems_workbench.ui.kit.tables import short_id

FOLDER = Path(__file__).resolve().parents[1] / "templates"


def _ordered(value: Any) -> Any:
    """A value as a template writes it; the HTML of another template is in order already."""
    return neutralise(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=False,
        auto_reload=False,
        finalize=_ordered,
    )
    environment.filters |= {"short_id": short_id, "excerpt": excerpt}
    return environment


def render(template: str, **values: Any) -> Markup:
    """The HTML of `ui/templates/<template>` with these values; safe to be a value of another template.

    Raises jinja2.UndefinedError for a name that the template needs and was not given.
    """
    return Markup(_environment().get_template(template).render(values))  # noqa: S704 (the template escapes each value)


def draw(template: str, **values: Any) -> None:
    """Put the HTML of a template on the page."""
    st.html(render(template, **values))
