"""HTML of the pages: Jinja2 templates in `ui/templates/<page>/`, autoescape always on.

Every value is escaped and its bidi controls are neutralised on output. A missing value is an error. Templates hold markup only:
values are computed in Python, except that the filters `short_id` and `excerpt` shorten ids and texts.
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


def _neutralised(value: Any) -> Any:
    """Neutralise bidi controls in an output value; Markup from another template has been processed already."""
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
        finalize=_neutralised,
    )
    environment.filters |= {"short_id": short_id, "excerpt": excerpt}
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "allow_nan": False, "separators": (",", ":")}
    return environment


def render(template: str, **values: Any) -> Markup:
    """The HTML of `ui/templates/<template>` with these values; it may be passed as a value to another template.

    Raises jinja2.UndefinedError if a value is missing.
    """
    return Markup(_environment().get_template(template).render(values))  # noqa: S704 (the template escapes each value)


def draw(template: str, **values: Any) -> None:
    """Draw a template on the page."""
    st.html(render(template, **values))
