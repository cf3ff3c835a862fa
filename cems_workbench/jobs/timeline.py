"""What configs reached on a query set over time, and what became another between two measurements.

A measurement is an experiment that somebody kept, or one of `watch`. Its card says what it was made with (`Made`): where the part of two
neighbours differs, the line between them is not the config's doing alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any

from cems_workbench import __version__
from cems_workbench.config import PipelineConfig, original_yaml
from cems_workbench.errors import InputError
from cems_workbench.evaluation.metrics import Measure
from cems_workbench.evaluation.saved_comparison import read_comparison
from cems_workbench.jobs.evaluation import LabelledEvidence
from cems_workbench.store import ConfigRecord

MADE_KEY = "made"
"""Where a card has it."""


@dataclass(frozen=True, slots=True)
class Made:
    """What a measurement was made with; equal values are the same thing."""

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
        """The parts that are not the same, by name."""
        return tuple(part.name for part in fields(self) if getattr(self, part.name) != getattr(other, part.name))


@dataclass(frozen=True, slots=True)
class Point:
    """One measure of one config at one time, with its 95 % interval; `changed` since the point before of the same name."""

    when: datetime
    name: str
    mean: float
    low: float
    high: float
    queries: int
    changed: tuple[str, ...] | None
    """None for the first, and where one of the two does not say what it was made with."""
    note: str


def made_with(labelled: LabelledEvidence, config: PipelineConfig) -> dict[str, str]:
    """What a measurement of a config on labelled evidence is made with, for its card."""
    header = labelled.evidence.header
    parameters = original_yaml(config.model_copy(update={"name": ""}))
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
    """What a card says that it was made with; None where it does not say."""
    values = (card or {}).get(MADE_KEY)
    if not isinstance(values, dict) or values.keys() != {part.name for part in fields(Made)}:
        return None
    return Made(**{name: str(value) for name, value in values.items()})


def query_sets(records: Iterable[ConfigRecord]) -> list[str]:
    """The query sets that were measured, by name."""
    return sorted({str(record.card["query_set"]) for record in records if record.card and "query_set" in record.card})


def measures(records: Iterable[ConfigRecord], query_set: str) -> list[Measure]:
    """The measures that something on a query set was measured by, in the order they were first named."""
    found: dict[Measure, None] = {}
    for record in records:
        if record.card and record.card.get("query_set") == query_set:
            with suppress(InputError):
                found |= {row.measure: None for row in read_comparison(record.card).figures[-1].summaries}
    return list(found)


def points(records: Iterable[ConfigRecord], query_set: str, measure: Measure) -> list[Point]:
    """What each measured config reached, the earliest first; records of other sets, and without this measure, have no point."""
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
