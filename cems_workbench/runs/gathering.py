"""Gathering a query set: the evidence of each query, added to one file as soon as it is there.

What was finished before a cancel or a kill stays in the file, and a later gather goes on after it. Queries are embedded some dozens
at a time. A query that cannot be searched is left out and reported; a score that fails is flagged in the evidence, as in a single search.

The evidence files that a store keeps beside itself: one per query set, content and gather parameters.

A config finds the file that answers it, whoever gathered that; where none does, a gather for it has a name of its own, so that it is
gone on with when it was broken off, and configs that ask for the same share it.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cems_workbench.config import PipelineConfig
from cems_workbench.errors import InputError
from cems_workbench.evaluation.evidence_file import (
    EvidenceFile,
    EvidenceSet,
    Header,
    config_text,
    mismatch,
    read_evidence_file,
    read_progress,
)
from cems_workbench.models.embedder import SentenceTransformerEmbedder
from cems_workbench.pipeline import Evidence
from cems_workbench.pipeline.gather import Request, gather
from cems_workbench.pipeline.needs import gather_parameters
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


FOLDER = "evidence"
SUFFIX = ".evidence"
NAME_LENGTH = 40


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a comparison measures on: the queries of a set, each within its own project or not."""

    query_set: str
    queries: tuple[Query, ...]
    project_only: bool = False


def path_for(config: PipelineConfig, wanted: Wanted, resources: Resources) -> Path:
    """Where the evidence of a config is, or would be; the name says what it is of, the digest what it was gathered with."""
    header = header_for(config, resources, query_set=wanted.query_set, project_only=wanted.project_only)
    parts = (
        header.store_id, header.content_version, header.embedder, wanted.project_only,
        sorted(gather_parameters(config).items()), wanted.queries,
    )  # fmt: skip
    digest = hashlib.sha256(repr(parts).encode()).hexdigest()[:12]
    name = re.sub(r"[^\w.-]+", "-", wanted.query_set).strip("-.")[:NAME_LENGTH] or "queries"
    return resources.store.path / FOLDER / f"{name}-{digest}{SUFFIX}"


def not_of_this_store(header: Header, resources: Resources) -> str | None:
    """Why a file is not evidence of the open store as it is now; None when it is."""
    here = header_for(header.config, resources, query_set=header.query_set, project_only=header.project_only)
    return mismatch(header, here)


def read_for(config: PipelineConfig, wanted: Wanted, resources: Resources) -> EvidenceSet | None:
    """The complete evidence of a config, None while there is none. Raises InputError for a file that is damaged."""
    path = path_for(config, wanted, resources)
    if not path.is_file():
        return None
    read = read_evidence_file(path)
    header = header_for(config, resources, query_set=wanted.query_set, project_only=wanted.project_only)
    return read if read.complete and mismatch(read.header, header) is None else None


def begun_for(config: PipelineConfig, wanted: Wanted, resources: Resources) -> tuple[int, float]:
    """Queries that a gather for this config finished before it was broken off, and the seconds they took; (0, 0.0) when none began."""
    path = path_for(config, wanted, resources)
    try:
        return read_progress(path) if path.is_file() else (0, 0.0)
    except InputError:  # it is being gathered right now, or is damaged, which a gather says
        return 0, 0.0


def gather_for(
    config: PipelineConfig, wanted: Wanted, judgments: Sequence[Judgment], resources: Resources,
    progress: Progress = silent,
) -> Gathered:  # fmt: skip
    """Gather the evidence of a config into its file, or go on with it.

    Raises as `gather_query_set` does, and InputError while another thread of this process gathers the same.
    """
    path = path_for(config, wanted, resources)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path.parent}: cannot be made: {error.strerror}") from None
    with _alone(path):
        return gather_query_set(
            path, wanted.queries, judgments, config, resources,
            query_set=wanted.query_set, project_only=wanted.project_only, progress=progress,
        )  # fmt: skip


_under_way: set[Path] = set()
_changing = threading.Lock()


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Two windows of one app would otherwise gather the same queries into one file."""
    with _changing:
        if path in _under_way:
            raise InputError("another window gathers just this; wait until it is done, or cancel it there")
        _under_way.add(path)
    try:
        yield
    finally:
        with _changing:
            _under_way.discard(path)
