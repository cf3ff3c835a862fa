"""Gathering a query set: the evidence of each query, added to one file as soon as it is there.

What was finished before a cancel or a kill stays in the file, and a later gather goes on after it. Queries are embedded some dozens
at a time. A query that cannot be searched is left out and reported; a score that fails is flagged in the evidence, as in a single search.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cems_workbench.config import PipelineConfig
from cems_workbench.errors import InputError
from cems_workbench.evaluation.evidence_file import EvidenceFile, Header, config_text
from cems_workbench.models.embedder import SentenceTransformerEmbedder
from cems_workbench.pipeline import Evidence
from cems_workbench.pipeline.gather import Request, gather
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Progress, silent
from cems_workbench.records import Judgment, Query, RowError

LABEL = "gathering queries"
AHEAD = 64
"""Queries embedded at a time. Alone each costs a call of the model; with all cores busy a call takes as long as sixty texts."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """What a gather did: queries found finished, gathered now and left out, and the file's content hash."""

    path: Path
    finished_before: int
    gathered: int
    left_out: tuple[RowError, ...]
    content_hash: str
    seconds: float


def request_for(query: Query, moment: datetime, project_only: bool = False) -> Request:
    """What is asked for a query of a set: its project alone where it has one and that is wanted; `moment` where it has no as_of."""
    return Request(query.query, query.project, query.as_of or moment, project_only and query.project is not None)


def header_for(
    config: PipelineConfig, resources: Resources, *, query_set: str = "", project_only: bool = False
) -> Header:
    """What a gather with these would write at the head of its file."""
    store = resources.store
    embedder = resources.embedder.model_id
    now = datetime.now(UTC).isoformat()
    return Header(query_set, store.identity, store.content_version, embedder, config_text(config), now, project_only)


def gather_query_set(
    path: Path, queries: Sequence[Query], judgments: Sequence[Judgment], config: PipelineConfig, resources: Resources, *,
    query_set: str = "", project_only: bool = False, progress: Progress = silent,
) -> Gathered:  # fmt: skip
    """Gather the evidence of every query into the file at `path`, which is made, or gone on with when it is there.

    Raises InputError when the file is of another store, set or config, naming what differs. A `Cancelled` from `progress` passes
    through; what was finished by then is in the file.
    """
    started = time.monotonic()
    resources.refresh()
    header = header_for(config, resources, query_set=query_set, project_only=project_only)
    there = path.exists()
    with (
        EvidenceFile.resume(path, header, queries)
        if there
        else EvidenceFile.create(path, header, queries, judgments) as file
    ):
        before = len(file.finished)
        gathered = 0
        left_out: list[RowError] = []
        moment = file.header.moment
        for i, query in enumerate(queries):
            progress(LABEL, i, len(queries))
            if query.qid in file.finished:
                continue
            if i % AHEAD == 0 or not gathered:
                _embed_ahead(queries[i : i - i % AHEAD + AHEAD], resources)
            begun = time.monotonic()
            try:
                evidence = gather(request_for(query, moment, project_only), config, resources)
            except InputError as error:
                left_out.append(RowError(query_set or "queries", i + 1, str(error), query.qid))
                continue
            file.add(query.qid, evidence, time.monotonic() - begun)
            gathered += 1
        mark = file.finish()
        progress(LABEL, len(queries), len(queries))
    return Gathered(path, before, gathered, tuple(left_out), mark, time.monotonic() - started)


def gather_for_once(
    queries: Sequence[Query], config: PipelineConfig, resources: Resources, *, project_only: bool = False,
    progress: Progress = silent,
) -> dict[str, Evidence]:  # fmt: skip
    """The evidence of every query by qid, kept nowhere. A query that cannot be searched is absent. Raises as `gather` does."""
    resources.refresh()
    moment = datetime.now(UTC)
    found = {}
    for i, query in enumerate(queries):
        progress(LABEL, i, len(queries))
        if i % AHEAD == 0:
            _embed_ahead(queries[i : i + AHEAD], resources)
        with contextlib.suppress(InputError):
            found[query.qid] = gather(request_for(query, moment, project_only), config, resources)
    progress(LABEL, len(queries), len(queries))
    return found


def _embed_ahead(queries: Sequence[Query], resources: Resources) -> None:
    """Variants and corrected queries are embedded when they are searched; those as typed are known before."""
    if isinstance(resources.embedder, SentenceTransformerEmbedder):
        resources.embedder.remember([query.query.strip() for query in queries])


def drawn(queries: Sequence[Query], limit: int | None, seed: int) -> list[Query]:
    """The queries in their order, or `limit` of them drawn without replacement with a seed, in their order."""
    if limit is None or limit >= len(queries):
        return list(queries)
    chosen = sorted(random.Random(seed).sample(range(len(queries)), limit))
    return [queries[i] for i in chosen]
