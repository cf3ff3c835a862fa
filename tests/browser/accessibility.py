"""Violations found by axe-core on a drawn page, in light and dark themes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files

from playwright.sync_api import Page

from .pages import DRAWN

RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
"""The rules of WCAG 2.2 on level AA, and axe's best practices."""
STREAMLITS = (
    ("target-size", 'aria-label="Clear value"'),
    ("presentation-role-conflict", "stFileUploaderDropzone"),
    ("empty-table-header", 'role="columnheader"'),
)
"""Rule and a part of the element: what Streamlit's own widgets break, which no page can mend."""
STILL = """*, *::before, *::after {transition:none !important; animation:none !important;}
:has(> .st-key-inspect-row_actions) {position:static !important;}"""
MAIN = {"include": ['[data-testid="stMain"]'], "exclude": [".wb-results", ".wb-strip", ".js-plotly-plot svg"]}
"""The part that differs between views: without elements common to all views, and without charts, which have alternative texts."""
WHOLE = {"include": ["html"]}
PREFERS = "scheme => matchMedia(`(prefers-color-scheme: ${scheme})`).matches"
RUN = """([place, rules]) => axe.run(place, {runOnly: rules, resultTypes: ["violations"]}).then(found =>
  found.violations.flatMap(rule => rule.nodes.map(node => [
    rule.id, node.target.join(" "), node.html.slice(0, 160), node.failureSummary.split("\\n").slice(1).join(" ").trim(),
  ].join(": "))))"""


@cache
def _script() -> str:
    return (files("axe_playwright_python") / "axe.min.js").read_text("utf-8")


def violations(page: Page, place: Mapping[str, Sequence[str]] = WHOLE) -> list[str]:
    """Each rule that an element in this place breaks, and contrasts in the other scheme too: scheme, rule, element, what is wrong."""
    if not page.evaluate("typeof axe === 'object'"):
        page.evaluate(_script())
        # Skip colours in transition; elements under the action bar are scrolled clear of it.
        page.add_style_tag(content=STILL)
    found: dict[str, None] = {}
    # All rules in the current theme; the other one stays for the next view, since a change redraws the whole page.
    schemes = sorted(("light", "dark"), key=lambda scheme: not page.evaluate(PREFERS, scheme))
    for scheme, rules in zip(schemes, (RULES, ["color-contrast"]), strict=True):
        if not page.evaluate(PREFERS, scheme):
            page.emulate_media(color_scheme=scheme)
            page.evaluate(DRAWN)
        found |= dict.fromkeys(f"{scheme}: {line}" for line in page.evaluate(RUN, [place, rules]))
    return [line for line in found if not any(rule in line and part in line for rule, part in STREAMLITS)]
