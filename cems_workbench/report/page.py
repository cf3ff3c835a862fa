"""The page of a report: autoescaping jinja2 templates, the style sheet, where its figures come from, and their geometry.

A page loads nothing from the network and runs only our script, which its Content-Security-Policy allows by hash; it is complete without
scripts. Texts by others are shown literally, without bidi control characters; in a redacted report `Texts` says what replaces them.
Figures are inline SVG without a view box: positions are percent of the width and pixels down, so that they fit any width and text keeps
its size.
"""

from __future__ import annotations

import base64
import hashlib
import math
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from cems_workbench import __version__
from cems_workbench.errors import counted, one_line
from cems_workbench.evaluation.comparison import BETTER, WORSE
from cems_workbench.evaluation.evidence_file import Header
from cems_workbench.jobs.evaluation import LabelledEvidence
from cems_workbench.pipeline.list_sources import ordinal
from cems_workbench.platform.bidi import neutralise
from cems_workbench.results import Result

SHAPES = ("circle", "square", "diamond", "triangle")
"""Of the configs in turn, so that nobody needs to tell their colours apart."""
DASH = "–"


@dataclass(frozen=True, slots=True)
class Scale:
    """A scale from `low` to `high`; `ticks` are (percent, number)."""

    low: float
    high: float

    def share(self, value: float) -> float:
        """A value as percent of the way, held within it; NaN has no position and must not be drawn."""
        return round(100 * min(1.0, max(0.0, (value - self.low) / (self.high - self.low))), 2)

    @property
    def ticks(self) -> tuple[tuple[float, str], ...]:
        """About five round numbers along the scale, each with its place."""
        span = self.high - self.low
        steps = (times * 10.0**power for power in range(-9, 10) for times in (1, 2, 5))
        step = next(one for one in steps if span / one <= 6)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return tuple((self.share(step * i), f"{step * i:.6g}".replace("-", "−")) for i in range(first, last + 1))


def scale_of(values: Sequence[float], around_zero: bool = False) -> Scale:
    """A scale that holds the values: 0 to 1 where that does, else with a little room; to both sides of 0 alike where asked."""
    found = [value for value in values if math.isfinite(value)]
    if around_zero:
        edge = max((abs(value) for value in found), default=0.0) * 1.1 or 0.1
        return Scale(-edge, edge)
    if not found or (min(found) >= 0 and max(found) <= 1):
        return Scale(0.0, 1.0)
    room = max((max(found) - min(found)) * 0.1, 0.01)
    return Scale(min(found) - room, max(found) + room)


@dataclass(frozen=True, slots=True)
class Mark:
    """A value with its interval along a scale: its shape at `x`, a line from `low` to `high`; `words` say the same."""

    name: str
    shape: str
    x: float
    low: float
    high: float
    words: str


def mark_at(name: str, shape: str, value: float, low: float, high: float, scale: Scale, words: str) -> Mark:
    """The mark of a value; it has no shape where there is no value, and no line where there is no interval."""
    if value != value:
        return Mark(name, "none", 0, 0, 0, words)
    ends = (low, high) if low == low and high == high else (value, value)
    return Mark(name, shape, scale.share(value), scale.share(ends[0]), scale.share(ends[1]), words)


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a stacked bar, from `x` over `width`; `colour` is a class of the style sheet."""

    x: float
    width: float
    colour: str
    words: str


def tone(said: str) -> str:
    """The class of the style sheet for a verdict: good or bad where it says so."""
    return {BETTER: "good", WORSE: "bad"}.get(said, "same")


def number(value: float | None, form: str = ".4f") -> str:
    """A figure with a true minus; a dash where there is none."""
    return DASH if value is None or not math.isfinite(value) else f"{value:{form}}".replace("-", "−")


def signed(value: float | None) -> str:
    """A difference, with its sign."""
    return number(value, "+.4f")


FOLDER = Path(__file__).resolve().parent
EXCERPT_CHARS = 200
"""Characters of a memory's text that are shown."""
REDACTED = "(text left out)"
Facts = tuple[tuple[str, str], ...]
"""Names and values, in their order."""
Row = dict[str, Any]
"""What a template draws of one thing, by name: positions are percent across and pixels down."""


@dataclass(frozen=True, slots=True)
class Texts:
    """What a report shows of texts: their beginning, or that they are left out."""

    redact: bool = False

    def line(self, text: str | None) -> str:
        """A short text, such as a query or a title, on one line."""
        return "" if not text else REDACTED if self.redact else one_line(text, 4 * EXCERPT_CHARS)

    def title(self, text: str | None) -> str:
        """The title of a memory; nothing where texts are left out, which its text says once."""
        return "" if self.redact else self.line(text)

    def excerpt(self, text: str | None) -> str:
        """The beginning of a text."""
        return self.line(text) if self.redact or not text else one_line(text, EXCERPT_CHARS)


def evidence_facts(labelled: LabelledEvidence) -> Facts:
    """Which evidence with which judgments, of which store, gathered when and with what."""
    evidence = labelled.evidence
    name = f"{evidence.path.name}, {counted(len(labelled.batch.queries), 'judged queries')}"
    return facts_of(name, labelled.content_hash, evidence.header, evidence.answered)


def facts_of(evidence: str, content_hash: str, header: Header, answered: str) -> Facts:
    """The same of evidence that is called this, and whose lists were answered so where that was a running system."""
    facts = [
        *(("evidence", evidence), ("content hash", content_hash), ("query set", header.query_set or "a file")),
        ("gathered", f"{header.created_at}, with config {header.config.name}, SHA-256 {header.config_hash}"),
        ("store", f"{header.store_id}, content version {header.content_version}"),
        ("embedder", header.embedder),
    ]
    return (*facts, *([("lists", answered)] if answered else []))


def result_report(result: Result, moment: datetime) -> str:
    """What an operation returns as one HTML page; `moment` is when the report is made."""
    parts = {name: getattr(result, name) for name in ("title", "lines", "tables", "notes")}
    return render("result.html", **parts, origin=made(moment), redact=False)


def made(moment: datetime) -> Facts:
    """With what a report was made, and when."""
    when = moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return (("made", when), ("versions", f"cems_workbench {__version__}, Python {platform.python_version()}"))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        finalize=lambda value: neutralise(value) if type(value) is str else value,
    )
    environment.filters |= {"number": number, "ordinal": ordinal, "signed": signed}
    return environment


def render(template: str, **values: Any) -> str:
    """The page of `templates/<template>` with these values, whole. Raises jinja2.UndefinedError for one that is missing."""
    style = (FOLDER / "report.css").read_text("utf-8")
    script = (FOLDER / "report.js").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    ours = {"style": style, "script": script, "script_hash": f"sha256-{digest}"}
    page = _environment().get_template(template).render(values | ours)
    return page.encode("utf-8", "replace").decode("utf-8")  # half a surrogate pair is no UTF-8
