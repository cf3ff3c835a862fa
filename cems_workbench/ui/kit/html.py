"""HTML of the pages: templates, stylesheets, scripts, the icon of the tab, and escaped text.

Jinja2 templates are in `ui/templates/<page>/`, autoescape always on: every value is escaped and its bidi controls are neutralised. A
missing value is an error. Templates take domain objects and hold markup only: values are computed in Python, except that the filters
`short_id` and `excerpt` shorten ids and texts, and `known` and `fixed` show numbers, a missing one as –. Assets are static files in
`ui/assets/`, read once; they never contain user input. The hidden part of a label is grey and bold, which the stylesheet hides for all
but screen readers; `assets/screen_reader.js` announces changes. Untrusted text that no template draws is shown literally, bidi controls
neutralised.
"""

from __future__ import annotations

import csv
import io
import json
import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import streamlit as st
from jinja2 import Environment, FileSystemLoader, PackageLoader, StrictUndefined
from markupsafe import Markup
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.PageConfig_pb2 import PageConfig
from streamlit.runtime.scriptrunner_utils.script_run_context import enqueue_message

from cems_workbench.errors import InputError
from cems_workbench.platform.bidi import neutralise
from cems_workbench.ui.kit.tables import short_id

if TYPE_CHECKING:
    from streamlit.runtime.uploaded_file_manager import UploadedFile

_PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")
_LINK = re.compile(r"(://|\bwww(?=\.)|@(?=[-\w]+\.))")
JOINER = "\u2060"
"""Zero-width, non-breaking: inserted where Markdown would turn a bare address into a link."""


def plain(text: str) -> str:
    """Escape text for Streamlit's Markdown, on one line."""
    whole = _LINK.sub(rf"\1{JOINER}", " ".join(neutralise(text).split()))
    return _PUNCTUATION.sub(r"\\\1", whole)


def excerpt(text: str, length: int = 160) -> str:
    """The start of a text, on one line."""
    line = " ".join(neutralise(text[: 4 * length]).split())
    return line if len(line) <= length else line[: length - 1] + "…"


def capital(text: str) -> str:
    """The text with its first letter large."""
    return text[:1].upper() + text[1:]


def tick(text: str, length: int = 28) -> str:
    """A label for Plotly, which interprets some HTML. Long names lose their middle, since their ends often distinguish them."""
    line = " ".join(text.split())
    if len(line) > length:
        line = f"{line[: length // 2]}…{line[1 + length // 2 - length :]}"
    return literal(line)


def literal(text: str) -> str:
    """The full text escaped for Plotly; use `tick` for labels, which must be short."""
    return neutralise(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def known(value: object) -> object:
    """The value; – if it is None."""
    return "–" if value is None else value


def fixed(value: float | None, form: str = ".4f") -> str:
    """A number in a format; – if it is None."""
    return "–" if value is None else format(value, form)


def csv_bytes(header: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    """A CSV file in UTF-8 with a byte order mark (Excel asks for one), every text cell guarded against formulas."""
    from cems_workbench.formats.base.csv_table import guarded

    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(header)
    writer.writerows([guarded(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)
    return out.getvalue().encode("utf-8-sig")


def uploaded_text(upload: UploadedFile) -> str:
    """The text of an uploaded file. Raises InputError, with its name, if it is not UTF-8."""
    try:
        return upload.getvalue().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{upload.name}: not UTF-8 text") from error


ASSETS = Path(__file__).resolve().parents[1] / "assets"


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


def write_script(name: str, **settings: Sequence[str]) -> None:
    """Run `ui/assets/<name>.js` on the page, which has `settings` of ours in `window.wbSettings`; a script that must run only once per
    window guards against reruns itself."""
    given = f"window.wbSettings = {json.dumps(settings)};" if settings else ""
    st.html(f"<script>{given}{asset(f'{name}.js')}</script>", unsafe_allow_javascript=True)


@cache
def asset(file: str) -> str:
    """The text of `ui/assets/<file>`."""
    return (ASSETS / file).read_text(encoding="utf-8")


def draw_identity() -> None:
    """Set icon and logo as `st.set_page_config(page_icon=…)` and `st.logo` do, which import an imaging library to look at a file."""
    icon, logo = ForwardMsg(), ForwardMsg()
    config = icon.page_config_changed
    config.favicon = _data_url("icon.png", "png")
    # What is not set here would go back to its default.
    config.layout, config.initial_sidebar_state = PageConfig.LAYOUT_UNSET, PageConfig.SIDEBAR_UNSET
    logo.logo.image, logo.logo.size = _data_url("logo.svg", "svg+xml"), "large"
    enqueue_message(icon)
    enqueue_message(logo)


@cache
def _data_url(file: str, kind: str) -> str:
    return f"data:image/{kind};base64,{b64encode((ASSETS.parent / file).read_bytes()).decode()}"


def full_label(word: str, what: str) -> str:
    """A label that shows `word` and has the accessible name `word` + `what`, so that several Apply buttons are distinguishable."""
    return f"{word} :gray[**{plain(what)}**]"


def announce(text: str) -> None:
    """Announce `text` to screen readers (aria-live polite) when it is new on the page; it is invisible."""
    st.html(render("kit/announced.html", text=text))


TEMPLATES = Path(__file__).resolve().parents[1] / "templates"


def _neutralised(value: Any) -> Any:
    """Neutralise bidi controls in an output value; Markup from another template has been processed already."""
    return neutralise(value) if isinstance(value, str) and not isinstance(value, Markup) else value


class _Templates(FileSystemLoader):
    """Those of `ui/templates/`, and as `PACKAGE:NAME.html` those in the folder `templates/` of another package."""

    def get_source(self, environment: Environment, template: str) -> Any:
        package, _, name = template.rpartition(":")
        return (
            PackageLoader(package).get_source(environment, name) if package else super().get_source(environment, name)
        )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=_Templates(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=False,
        auto_reload=False,
        finalize=_neutralised,
    )
    environment.filters |= {"short_id": short_id, "excerpt": excerpt, "known": known, "fixed": fixed}
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "allow_nan": False, "separators": (",", ":")}
    return environment


def render(template: str, **values: Any) -> Markup:
    """The HTML of `ui/templates/<template>` with these values; it may be passed as a value to another template. Raises
    jinja2.UndefinedError if a value is missing."""
    return Markup(_environment().get_template(template).render(values))  # noqa: S704 (the template escapes each value)


def draw(template: str, **values: Any) -> None:
    """Draw a template on the page."""
    st.html(render(template, **values))
