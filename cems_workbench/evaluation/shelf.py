"""The evidence files that a store keeps beside itself: one per query set, content and gather parameters.

A config finds the file that answers it, whoever gathered that; where none does, a gather for it has a name of its own, so that it is
gone on with when it was broken off, and configs that ask for the same share it.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cems_workbench.config import PipelineConfig
from cems_workbench.errors import InputError
from cems_workbench.evaluation.evidence_file import EvidenceSet, Header, mismatch, read_evidence_file, read_progress
from cems_workbench.evaluation.gathering import Gathered, gather_query_set, header_for
from cems_workbench.pipeline.needs import gather_parameters
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Progress, silent
from cems_workbench.records import Judgment, Query

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
