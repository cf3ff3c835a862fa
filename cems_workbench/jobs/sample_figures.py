"""Packaged figures of the sample set, for the first screens of a store that holds it and was not measured yet.

`sample_figures.json` has a comparison of presets in the format of an experiment, and a tuned config in the format of the history, so that
pages show them as saved ones. `python -m benchmarks.sample_figures` writes it from a real measurement, with the hashes of all that
the figures depend on: they are shown only for a store with exactly these memories, relations, queries and judgments, the same embedder
and unchanged presets.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import date, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cems_workbench.config import preset, preset_names
from cems_workbench.formats.memories import relation_row
from cems_workbench.platform.atomic_write import write_text
from cems_workbench.records import DEFAULT_TEXT_RULE, ENGLISH
from cems_workbench.store import ConfigRecord
from cems_workbench.tuning.scorer import config_digest

if TYPE_CHECKING:
    from cems_workbench.pipeline.resources import Resources
    from cems_workbench.store import Store

FILE = Path(__file__).with_name("sample_figures.json")


@dataclass(frozen=True, slots=True)
class Measured:
    """All that figures depend on; equal values give equal figures."""

    memories: int
    corpus: str
    """`corpus_digest` of the store."""
    queries: str
    """The digest of the query set."""
    embedder: str
    presets: Mapping[str, str]
    """`config_digest` of each preset, by name."""
    evidence: Mapping[str, str]
    """The content hash of each preset's evidence, by name."""


@dataclass(frozen=True, slots=True)
class SampleFigures:
    """The figures, with the workbench version and the day of the measurement."""

    version: str
    day: date
    measured: Measured
    experiment: ConfigRecord
    """A comparison of presets."""
    tuned: ConfigRecord
    """The result of a search, with its evidence card."""

    @property
    def presets_as_they_are(self) -> bool:
        """Are all presets unchanged since the measurement?"""
        known = preset_names()
        return all(
            name in known and config_digest(preset(name).config) == digest
            for name, digest in self.measured.presets.items()
        )


def sample_figures(resources: Resources, query_set: str | None = None) -> SampleFigures | None:
    """The packaged figures if they apply to the open store and its query set of this name, or of any name; else None."""
    figures = read_figures()
    store, measured = resources.store, figures.measured
    digests = [known.digest for known in store.query_sets.latest() if query_set is None or known.name == query_set]
    if measured.queries not in digests or measured.embedder != resources.embedder.model_id:
        return None
    if measured.memories != store.memories.count() or measured.corpus != corpus_digest(store):
        return None
    return figures if figures.presets_as_they_are else None


def corpus_digest(store: Store) -> str:
    """SHA-256, in hex, of the live memories, their relations, their judgments, the rule by which memories are cut
    into chunks, and the language where it is not English."""
    memories = store.memories.read()
    rows: list[Any] = [store.chunks.rule, *(asdict(memories[memory_id]) for memory_id in sorted(memories))]
    rows += [str(rule)] if (rule := store.texts.rule) != DEFAULT_TEXT_RULE else []
    rows += [spoken] if (spoken := store.language.current) != ENGLISH else []
    rows += [relation_row(relation) for relation in store.relations.read()]
    rows += [[row.qid, row.memory_id, row.judge, row.kind, row.grade] for row in store.judgments.read()]
    digest = hashlib.sha256()
    for row in rows:
        digest.update(json.dumps(row, ensure_ascii=False, default=_plain).encode() + b"\n")
    return digest.hexdigest()


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{value!r} is no part of a row")


@cache
def read_figures() -> SampleFigures:
    """The packaged file."""
    values = json.loads(FILE.read_text(encoding="utf-8"))
    return SampleFigures(
        values["version"],
        date.fromisoformat(values["day"]),
        Measured(**values["measured"]),
        _record(values["experiment"]),
        _record(values["tuned"]),
    )


def write_figures(figures: SampleFigures, file: Path = FILE) -> None:
    """Replace the file."""
    text = json.dumps(asdict(figures), ensure_ascii=False, indent=1, default=lambda value: value.isoformat())
    write_text(file, text + "\n")
    read_figures.cache_clear()


def _record(values: Mapping[str, Any]) -> ConfigRecord:
    return ConfigRecord(**{**values, "saved_at": datetime.fromisoformat(values["saved_at"])})
