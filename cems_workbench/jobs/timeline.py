"""Timeline: the measures of configs on a query set over time, and what changed between two measurements.

A measurement is a saved experiment, or one of `watch`. Its card records its conditions (`Made`): if they differ between two neighbours,
the config alone does not explain the difference.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any

from cems_workbench import __version__
from cems_workbench.config import PipelineConfig, portable_yaml
from cems_workbench.errors import InputError
from cems_workbench.evaluation.metrics import Measure
from cems_workbench.evaluation.report import read_comparison
from cems_workbench.jobs.evaluation import LabelledEvidence
from cems_workbench.store import ConfigRecord

MADE_KEY = "made"
"""The key in a card."""


@dataclass(frozen=True, slots=True)
class Made:
    """The conditions of a measurement."""

    memories: str
    """Store and content version."""
    embedder: str
    config: str
    """Hash of every parameter."""
    judgments: str
    """Hash of the grades."""
    queries: str
    """Hash of the queries that were measured."""
    workbench: str

    def changed_since(self, other: Made) -> tuple[str, ...]:
        """The names of the conditions that differ."""
        return tuple(part.name for part in fields(self) if getattr(self, part.name) != getattr(other, part.name))


@dataclass(frozen=True, slots=True)
class Point:
    """One measure of one config at one time, with its 95 % interval; `changed` names the conditions that differ from the previous point."""

    when: datetime
    name: str
    mean: float
    low: float
    high: float
    queries: int
    changed: tuple[str, ...] | None
    """None for the first, and if one of the two has no conditions."""
    note: str


def made_with(labelled: LabelledEvidence, config: PipelineConfig) -> dict[str, str]:
    """The conditions of a measurement of a config on labelled evidence, for its card."""
    header = labelled.evidence.header
    parameters = portable_yaml(config.model_copy(update={"name": ""}))
    return asdict(
        Made(
            f"{header.store_id}/{header.content_version}",
            header.embedder,
            _hash(parameters),
            labelled.grades.digest,
            _hash("\0".join(labelled.batch.qids)),
            __version__,
        )
    )


def read_made(card: Mapping[str, Any] | None) -> Made | None:
    """The conditions in a card; None without any."""
    values = (card or {}).get(MADE_KEY)
    if not isinstance(values, dict) or values.keys() != {part.name for part in fields(Made)}:
        return None
    return Made(**{name: str(value) for name, value in values.items()})


def query_sets(records: Iterable[ConfigRecord]) -> list[str]:
    """The query sets that were measured, by name."""
    return sorted({str(record.card["query_set"]) for record in records if record.card and "query_set" in record.card})


def measures(records: Iterable[ConfigRecord], query_set: str) -> list[Measure]:
    """The measures of the measurements on a query set, in the order of first use."""
    found: dict[Measure, None] = {}
    for record in records:
        if record.card and record.card.get("query_set") == query_set:
            with suppress(InputError):
                found |= {row.measure: None for row in read_comparison(record.card).figures[-1].summaries}
    return list(found)


def points(records: Iterable[ConfigRecord], query_set: str, measure: Measure) -> list[Point]:
    """The points of a measure on a query set, the earliest first; records of other sets, or without this measure, have none."""
    found, last = [], dict[str, Made | None]()
    for record in sorted(records, key=lambda record: (record.saved_at, record.id)):
        try:
            kept = read_comparison(record.card or {})
        except InputError:
            continue
        summary = next((row for row in kept.figures[-1].summaries if row.measure == measure), None)
        if kept.query_set != query_set or summary is None:
            continue
        now = read_made(record.card)
        before = last.get(record.name)
        changed = now.changed_since(before) if now is not None and before is not None else None
        last[record.name] = now
        found.append(
            Point(
                record.saved_at,
                record.name,
                summary.mean,
                summary.low,
                summary.high,
                summary.queries,
                changed,
                record.why,
            )
        )
    return found


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
