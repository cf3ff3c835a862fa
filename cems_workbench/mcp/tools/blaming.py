"""From what an agent said to the memories that say so."""

from __future__ import annotations

from cems_workbench.analysis.blame import BlamedClaim, BlamedMemory, Otherwise
from cems_workbench.api import single_query
from cems_workbench.api.blame import blame
from cems_workbench.api.results import collect_warnings
from cems_workbench.errors import InputError
from cems_workbench.mcp.arguments import (
    AsOf,
    Changes,
    ConfigName,
    ForQuery,
    Limit,
    Offset,
    OnlyProject,
    Project,
    SaidText,
)
from cems_workbench.mcp.responses import UNTRUSTED, Paged, Reply, Text, cut, page, rounded, text_of
from cems_workbench.mcp.served_store import ServedStore
from cems_workbench.mcp.tools.queries import without_judge

CLAIM_CHARS = 300


class OtherMemory(Reply):
    """A memory that says otherwise: a successor by a stored edge, or a near one that differs."""

    memory_id: str
    by: str
    newer: bool
    rank: int | None = None
    lost_at: str | None = None
    untrusted: Text


class SupportingMemory(Reply):
    """A memory that supports a claim or comes close: `verdict` is supports, cannot tell or no, with the `reason`; `support` is 0..1.

    What became of it is for the query; `next` names tools and what for.
    """

    memory_id: str
    verdict: str
    reason: str | None = None
    support: float | None
    rank: int | None = None
    lost_at: str | None = None
    stale: str | None = None
    judged_irrelevant: bool | None = None
    says_otherwise: tuple[OtherMemory, ...] = ()
    next: tuple[str, ...] = ()
    untrusted: Text


class ClaimRow(Reply):
    """A claim of the text, with the memories that support it, best first, then those that come close; `said` if none does for sure."""

    claim: str
    memories: tuple[SupportingMemory, ...] = ()
    said: str | None = None


class Blamed(Paged):
    """The claims of what an agent said."""

    config: str | None = None
    split_by: str
    claims: tuple[ClaimRow, ...] = ()
    notes: tuple[str, ...] = ()
    untrusted_note: str = UNTRUSTED


class BlamingTools:
    """`blame` of a served store."""

    def __init__(self, served: ServedStore) -> None:
        self._served = served

    def blame(
        self,
        text: SaidText,
        query: ForQuery = "",
        config: ConfigName = "",
        changes: Changes = None,
        project: Project = "",
        only_project: OnlyProject = False,
        as_of: AsOf = "",
        limit: Limit = 10,
        offset: Offset = 0,
    ) -> Blamed:
        """The memories that a wrong answer rests on: which support each claim, whether the query returns them, and which say otherwise."""
        if not query and (project or only_project or as_of):
            raise InputError("query: project, only_project and as_of belong to one; pass it")
        chosen = without_judge(self._served.config(config, changes))
        with collect_warnings() as said:
            answer = (
                single_query.search(
                    self._served.store,
                    query,
                    chosen,
                    project=project or None,
                    only_project=only_project,
                    as_of=as_of or None,
                )
                if query
                else None
            )
            report = blame(self._served.store, text, answer, None if answer else chosen)
        rows, counts = page(report.found.claims, offset, limit)
        return Blamed(
            config=chosen.name if query else None,
            split_by=report.found.split_by,
            claims=[_claim(one) for one in rows],
            notes=[*said, *report.notes],
            **counts,
        )


def _claim(blamed: BlamedClaim) -> ClaimRow:
    return ClaimRow(
        claim=cut(blamed.claim.text, CLAIM_CHARS),
        memories=[_memory(one) for one in blamed.memories],
        said=None if blamed.supporting else blamed.about,
    )


def _memory(one: BlamedMemory) -> SupportingMemory:
    steps = []
    if one.next is not None:
        steps.append(f"{one.next.proposed.name} for {one.next.memory_id}: {one.next.words}")
    if one.fix is not None:
        steps.append(f"search with changes {dict(one.fix.changes)}: {one.fix.words}")
    return SupportingMemory(
        memory_id=one.id,
        verdict=one.support.verdict,
        reason=one.support.reason or None,
        support=rounded(one.support.score),
        rank=one.standing and one.standing.rank,
        lost_at=(one.standing and one.standing.lost_at) or None,
        stale=one.stale,
        judged_irrelevant=one.irrelevant or None,
        says_otherwise=[_other(other) for other in one.otherwise],
        next=steps,
        untrusted=text_of(one.support.memory),
    )


def _other(other: Otherwise) -> OtherMemory:
    return OtherMemory(
        memory_id=other.memory.id,
        by=other.source,
        newer=other.newer,
        rank=other.standing and other.standing.rank,
        lost_at=(other.standing and other.standing.lost_at) or None,
        untrusted=text_of(other.memory),
    )
