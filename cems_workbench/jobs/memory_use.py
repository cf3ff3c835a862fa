"""Memories and the queries of a store or of evidence files, for page, command, API and MCP: how queries use memories
(`analysis/memory_use.py`), what an edit of one does to the judged queries, and blame: what became of the memories that support a text.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cems_workbench.analysis.blame import Blame, BlamedMemory, blame
from cems_workbench.analysis.edited_evidence import Edit
from cems_workbench.analysis.memory_use import MemoryUse, MemoryUses, memory_uses, stream_memory_uses
from cems_workbench.analysis.support import split_claims
from cems_workbench.analysis.what_if import SetEffect, set_effect
from cems_workbench.analysis.why.path import require_known
from cems_workbench.config import PipelineConfig
from cems_workbench.errors import InputError
from cems_workbench.evaluation.evidence_stream import EvidenceStream
from cems_workbench.evaluation.grades import agreed_answerable, agreed_grades, as_judged
from cems_workbench.evaluation.metrics import parse_measures
from cems_workbench.jobs.evidence_memory import EvidenceMemory
from cems_workbench.jobs.query_grades import query_grades
from cems_workbench.jobs.query_set_evidence import ALL_QUERIES, ensure_evidence, queries_named, selected
from cems_workbench.jobs.traced_sets import require_no_config
from cems_workbench.pipeline import Trace, replay
from cems_workbench.pipeline.gather import Request, gather_lists, gather_scores
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.understanding import NO_LLM, asker
from cems_workbench.progress import Progress, silent
from cems_workbench.results import Result, Table

MAX_SHOWN = 40
"""Memories or queries that a person is shown."""


@dataclass(frozen=True, eq=False, repr=False)
class MemoryReport(Result):
    """How judged queries use the memories, and the queries of one memory.

    Attributes:
        name: that of the queries.
        uses: the counts of every memory.
        external: whether the queries are external traces.
        known: ids of the store; None of evidence files, which have only what a list found.
        memory_id: the memory whose queries are listed; None for none.
        options: those of the commands that explain a query.
    """

    name: str
    uses: MemoryUses
    external: bool = False
    known: Collection[str] | None = None
    memory_id: str | None = None
    options: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Of which memory, queries and config it is."""
        uses, of = self.uses, f"{self.memory_id} across" if self.memory_id else "memories of"
        return f"{of} {uses.queries} queries under {uses.config_name}"

    @property
    def lines(self) -> tuple[str, ...]:
        """What the queries do with the memory, under which config, and how many of them are judged; how many hubs and orphans there are."""
        uses = self.uses
        if self.memory_id is None:
            return uses.hubs_sentence, self.orphans_sentence
        judged = f"config {uses.config_name}, {uses.judged:,} of {uses.queries:,} queries have a judged memory"
        return uses.sentence(self.memory_id), judged

    @property
    def hubs(self) -> Table:
        """The memories returned for many queries that judge them irrelevant, those of most queries first."""
        return self._counts(self.uses.hubs(), "hubs")

    @property
    def orphans(self) -> Table:
        """The memories that no query returns, those that most queries want first."""
        return self._counts(self.unreturned(), "orphans")

    def _counts(self, uses: list[MemoryUse], title: str) -> Table:
        k, rows = self.uses.k, []
        for use in uses:
            lost = ", ".join(f"{count:,} {branch.words(k)}" for branch, count in use.lost.items()) or None
            rows.append((use.memory_id, use.candidate, use.returned, use.irrelevant, use.wanted, use.found, lost))
        columns = ("memory", "candidate", "returned", "judged irrelevant", "wanted", "found", "lost")
        return Table(columns, tuple(rows), title, shown=MAX_SHOWN)

    @property
    def tables(self) -> tuple[Table, ...]:
        """The queries of the memory, each with the command that explains it; without a memory hubs and orphans."""
        if self.memory_id is None:
            return self.hubs, self.orphans
        rows = []
        for row in self.uses.rows.get(self.memory_id, ()):
            then = row.next_command(self.options)
            rows.append((row.query.qid, row.query.query, row.status, row.grade, row.rank, row.words, then))
        columns = ("qid", "query", "status", "grade", "rank", "what happened", "next")
        return (Table(columns, tuple(rows), shown=MAX_SHOWN, unshown=("query",)),)

    def unreturned(self) -> list[MemoryUse]:
        """The memories that no query returns."""
        return self.uses.orphans(self.known)

    @property
    def orphans_sentence(self) -> str:
        """How many memories no query returns, and of which this is known."""
        found = self.unreturned()
        wanted = sum(use.wanted > 0 for use in found)
        of = len(self.uses.uses) if self.known is None else len(self.known)
        among = "that a list found or a query judges" if self.known is None else "of the store"
        more = f"; {wanted:,} of them are wanted by a query" if wanted else ""
        return (
            f"{len(found):,} of the {of:,} memories {among} are not within the first {self.uses.k} of any of "
            f"{self.uses.queries:,} queries{more}."
        )

    def to_json(self) -> dict[str, Any]:
        """The counts as plain values, as `memory --json` prints them."""
        uses = self.uses
        if self.memory_id is not None:
            return uses.to_json(self.memory_id, self.options)
        listed = {"hubs": uses.hubs(), "orphans": self.unreturned()}
        return uses.over() | {name: [use.to_json(uses.k) for use in found] for name, found in listed.items()}


def uses_in_store(
    config: PipelineConfig,
    resources: Resources,
    query_set: str = ALL_QUERIES,
    *,
    kind: str | None = None,
    k: int | None = None,
    followed: Collection[str] = (),
    progress: Progress = silent,
) -> MemoryReport:
    """How the judged queries of a set use the memories of the store, with its evidence, which is gathered if it is
    missing. `kind` is that of the judges, human or model; None: human before model. Raises InputError for a followed
    memory that is not in the store, before anything is gathered, and as `ensure_evidence` does."""
    known = resources.store.memories.ids()
    for memory_id in followed:
        require_known(memory_id, known)
    selection, judgments = selected(query_set, resources, True)
    evidence = ensure_evidence(config, selection, judgments, resources, progress)
    relevant_from = resources.store.query_sets.relevant_from(query_set)
    config = evidence.header.config if evidence.external else config
    grades = agreed_grades(judgments, kind)
    found = memory_uses(selection.queries, evidence.evidences, grades, config, relevant_from, k=k, followed=followed)
    return MemoryReport(query_set, found, evidence.external, frozenset(known))


def uses_in_files(
    paths: Sequence[Path],
    config: PipelineConfig | None = None,
    *,
    kind: str | None = None,
    k: int | None = None,
    followed: Collection[str] = (),
    progress: Progress = silent,
) -> MemoryReport:
    """How the queries of evidence files use the memories that their lists have; `config` is the one they were gathered
    with by default. Raises InputError for a followed memory of which the evidence knows nothing, and as
    `EvidenceStream` does."""
    with EvidenceStream(paths) as stream:
        chosen = config or stream.header.config
        require_no_config(stream.names, stream.header, stream.external, [chosen])
        counted = stream_memory_uses(stream, chosen, k=k, kind=kind, followed=followed, progress=progress)
        found = MemoryReport(stream.names, counted, stream.external)
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


FEW_MEASURES = "nDCG@10 hit@5 recall@5"
"""What is measured where a table of every measure would be too long: the effect of an edit, and the answers for agents."""


def effect_on_queries(
    edit: Edit,
    config: PipelineConfig,
    query_set: str = ALL_QUERIES,
    *,
    progress: Progress = silent,
    memory: EvidenceMemory | None = None,
) -> SetEffect:
    """What the edit does to the judged queries of a set, on evidence in `memory` or kept in files; else it is gathered.
    Raises as `EvidenceMemory.get` and `set_effect` do."""
    resources = edit.resources
    queries, judgments = queries_named(query_set, resources, True)
    found = (memory or EvidenceMemory()).get(queries, config, resources, progress)
    evidences = {query.qid: evidence for query, evidence in zip(queries, found, strict=True)}
    judged, grades = as_judged(queries, agreed_answerable(judgments)), agreed_grades(judgments)
    measures = parse_measures(FEW_MEASURES, resources.store.query_sets.relevant_from(query_set))
    return set_effect(edit, judged, evidences, grades, config, measures, progress=progress)


def blame_answer(
    text: str,
    resources: Resources,
    config: PipelineConfig,
    request: Request | None = None,
    *,
    trace: Trace | None = None,
    returned: bool = False,
    progress: Progress = silent,
) -> Blame:
    """The memories that support a text, and what became of them for a request, if there is one.

    `trace` is the replay of this request under this config, if the caller has it. `returned`, without a request: name the judged queries
    of the store that return each memory; their evidence is gathered if it is missing.

    Raises InputError for a text without a claim, an empty query, or `returned` with a request, and as `gather` does.
    """
    if request is not None and returned:
        raise InputError("the queries that return a memory are named without a query; leave out one of the two")
    llm = asker(resources)
    split = split_claims(text, resources.indexes.lexical.language, llm)
    if llm is None:
        split = replace(split, notes=(*split.notes, NO_LLM))
    if request is not None and trace is None:
        lists = gather_lists(request, config, resources)
        trace = replay(gather_scores(lists, config, resources, progress, judge="decisive"), config)
    if request is None:
        found = blame(split, resources, config, progress=progress)
        return _with_queries(found, resources, config, progress) if returned else found
    judged = query_grades(request, resources.store)
    grades, least = judged.grades, judged.relevant_from
    return blame(split, resources, config, trace, grades=grades, relevant_from=least, progress=progress)


def _with_queries(found: Blame, resources: Resources, config: PipelineConfig, progress: Progress) -> Blame:
    """With the judged queries that return each memory within the config's limit."""
    ids = {memory.id for blamed in found.claims for memory in blamed.memories}
    if not ids:
        return found
    used = uses_in_store(config, resources, ALL_QUERIES, followed=ids, progress=progress).uses

    def returned(one: BlamedMemory) -> BlamedMemory:
        rows = used.rows.get(one.id, ())
        return replace(one, returned_for=tuple(row.query.query for row in rows if row.rank is not None))

    claims = (replace(blamed, memories=tuple(map(returned, blamed.memories))) for blamed in found.claims)
    return replace(found, claims=tuple(claims))
