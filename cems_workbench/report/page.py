"""The page around a report: autoescaping jinja2 templates, the style sheet, and the data that the figures were computed from.

A page loads nothing from the network and runs only our script, which its Content-Security-Policy allows by hash; it is complete without
scripts. Texts by others are shown literally, without bidi control characters; in a redacted report `Texts` says what replaces them.
"""

from __future__ import annotations

import base64
import hashlib
import platform
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from cems_workbench import __version__
from cems_workbench.errors import one_line
from cems_workbench.evaluation.evidence_file import Header
from cems_workbench.jobs.evaluation import LabelledEvidence
from cems_workbench.pipeline.list_sources import ordinal
from cems_workbench.platform.bidi import neutralise
from cems_workbench.report.figures import number, signed

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
    name = f"{evidence.path.name}, {len(labelled.batch.queries)} judged queries"
    return facts_of(name, labelled.content_hash, evidence.header, evidence.answered)


def facts_of(evidence: str, content_hash: str, header: Header, answered: str) -> Facts:
    """The same of evidence that is called this, and whose lists were answered so where that was a running system."""
    facts = [
        ("evidence", evidence),
        ("content hash", content_hash),
        ("query set", header.query_set or "a file"),
        ("gathered", f"{header.created_at}, with config {header.config.name}, SHA-256 {header.config_hash}"),
        ("store", f"{header.store_id}, content version {header.content_version}"),
        ("embedder", header.embedder),
    ]
    return (*facts, *([("lists", answered)] if answered else []))


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
