"""How the queries of a store or of evidence files use its memories (`analysis/memory_use.py`), for page, command, API and MCP."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from cems_workbench.analysis.memory_use import MemoryUse, MemoryUses, memory_uses, stream_memory_uses
from cems_workbench.analysis.why import require_known
from cems_workbench.config import PipelineConfig
from cems_workbench.errors import InputError
from cems_workbench.evaluation.evidence_stream import EvidenceStream
from cems_workbench.evaluation.grades import agreed_grades
from cems_workbench.jobs.caching import Cache, uncached
from cems_workbench.jobs.query_set_evidence import ALL_QUERIES, QuerySelection, ensure_evidence, queries_named
from cems_workbench.jobs.traced_sets import require_no_config
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Progress, silent


@dataclass(frozen=True, eq=False)
class UsesOf:
    """The uses of memories by the queries of `name`, and the memories that there are."""

    name: str
    uses: MemoryUses
    external: bool = False
    """Whether the queries are external traces."""
    known: Collection[str] | None = None
    """Ids of the store; None of evidence files, which have only what a list found."""

    def orphans(self) -> list[MemoryUse]:
        """The memories that no query returns."""
        return self.uses.orphans(self.known)

    @property
    def orphans_sentence(self) -> str:
        """How many memories no query returns, and of which this is known."""
        found = self.orphans()
        wanted = sum(use.wanted > 0 for use in found)
        of = len(self.uses.uses) if self.known is None else len(self.known)
        among = "that a list found or a query judges" if self.known is None else "of the store"
        more = f"; {wanted:,} of them are wanted by a query" if wanted else ""
        return (
            f"{len(found):,} of the {of:,} memories {among} are not within the first {self.uses.k} of any of "
            f"{self.uses.queries:,} queries{more}."
        )

    @property
    def hubs_sentence(self) -> str:
        """How many memories are returned for many queries that judge them irrelevant."""
        return self.uses.hubs_sentence


def uses_in_store(
    config: PipelineConfig,
    resources: Resources,
    query_set: str = ALL_QUERIES,
    *,
    kind: str | None = None,
    k: int | None = None,
    followed: Collection[str] = (),
    progress: Progress = silent,
    cache: Cache = uncached,
) -> UsesOf:
    """How the judged queries of a set use the memories of the store, with its evidence, which is gathered if it is missing.

    `kind` is that of the judges, human or model; None: human before model. Raises InputError for a followed memory that is not in the
    store, before anything is gathered, and as `ensure_evidence` does.
    """
    known = resources.store.memories.ids()
    for memory_id in followed:
        require_known(memory_id, known)
    queries, judgments = queries_named(query_set, resources, True)
    evidence = ensure_evidence(config, QuerySelection(query_set, tuple(queries)), judgments, resources, progress, cache)
    relevant_from = resources.store.query_sets.relevant_from(query_set)
    config = evidence.header.config if evidence.external else config
    found = memory_uses(
        queries, evidence.evidences, agreed_grades(judgments, kind), config, relevant_from, k=k, followed=followed
    )
    return UsesOf(query_set, found, evidence.external, frozenset(known))


def uses_in_files(
    paths: Sequence[Path],
    config: PipelineConfig | None = None,
    *,
    kind: str | None = None,
    k: int | None = None,
    followed: Collection[str] = (),
    progress: Progress = silent,
) -> UsesOf:
    """How the queries of evidence files use the memories that their lists have; `config` is the one they were gathered with by default.

    Raises InputError for a followed memory of which the evidence knows nothing, and as `EvidenceStream` does.
    """
    with EvidenceStream(paths) as stream:
        chosen = config or stream.header.config
        require_no_config(stream.names, stream.header, stream.external, [chosen])
        counted = stream_memory_uses(stream, chosen, k=k, kind=kind, followed=followed, progress=progress)
        found = UsesOf(stream.names, counted, stream.external)
    if not found.uses.queries:
        raise InputError(f"{found.name}: none of its queries has evidence")
    for memory_id in followed:
        try:
            require_known(memory_id, found.uses.uses)
        except InputError as error:
            raise InputError(
                f"{error}; no query of {found.name} judges it and none of its lists has it; name no evidence to read the store"
            ) from None
    return found
