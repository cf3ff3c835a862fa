"""One query: searched, explained, traced back from a wrong answer, and rerun with other parameters or with a memory edited."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from pydantic import Field

from cems_workbench.analysis.blame import BlamedMemory, standing
from cems_workbench.analysis.edited_evidence import Edit
from cems_workbench.analysis.of_query import Operation
from cems_workbench.analysis.ranks import RESULTS, RankDelta, loss, rank_deltas
from cems_workbench.analysis.side_by_side import FINAL, SideBySide, parts_words, side_by_side
from cems_workbench.analysis.supersession import stale_words
from cems_workbench.analysis.what_if import absence, applied, new_memory, presence
from cems_workbench.analysis.why.counterfactual import Counterfactual
from cems_workbench.analysis.why.path import stored_memory
from cems_workbench.analysis.why.report import explain
from cems_workbench.api import single_query
from cems_workbench.api.memories import blame as blamed
from cems_workbench.api.single_query import Answer
from cems_workbench.config import PipelineConfig, with_values
from cems_workbench.errors import InputError
from cems_workbench.jobs.traced_sets import NOT_REPLAYED
from cems_workbench.jobs.traces import traced_mistakes, traced_path
from cems_workbench.mcp import protocol
from cems_workbench.pipeline import Trace
from cems_workbench.records import Memory

PLACE = "rank lost_at"
EXCERPT_CHARS, CLAIM_CHARS = 100, 300
"""Characters of a text in rows that are about ranks, and of a claim."""


class OfQuery(protocol.Page, protocol.Asked):
    """Arguments of an operation on an answered query."""

    variants: protocol.Variants = None


def operation_tool(operation: Operation) -> protocol.Tool:
    """The tool of an operation on an answered query."""

    def answer(served: protocol.ServedStore, asked: OfQuery) -> protocol.Reply:
        return protocol.shown(_answer(served, asked, asked.variants).ask(operation.name), asked)

    answer.__name__, answer.__doc__ = operation.name.replace("-", "_"), operation.question
    return protocol.Tool(answer, operation.question, OfQuery)


class Search(OfQuery):
    """Arguments of `search`."""

    explain: bool = Field(False, description="Also ranks and scores of every stage.")


def search(served: protocol.ServedStore, asked: Search) -> protocol.Reply:
    """Results for a query, then the candidates dropped: lost_at (the stage), reason, score. out_of_date: what supersedes
    the memory and where that one is, or when it expired."""
    answer = _answer(served, asked, asked.variants)
    table = side_by_side(answer.trace)
    rows, counts = protocol.page(table.memory_ids, asked)
    return protocol.reply(
        **counts,
        config=answer.config.name,
        results=len(answer.trace.results),
        candidates=[_candidate(answer.trace, key, table if asked.explain else None) for key in rows],
        said=answer.lines,
        notes=answer.notes,
    )


class Why(protocol.Page, protocol.Asked):
    """Arguments of `why`."""

    memory_id: str = Field(min_length=1, max_length=protocol.MAX_QUERY, description="Or a piece of its text.")
    variants: protocol.Variants = None
    k: int = Field(0, ge=0, le=10_000, description="Missing below it; 0: the config's limit.")
    traced: protocol.Name = Field("", description="Set of external traces or explained answers.")
    limit: int = Field(5, ge=1, le=100)


def why(served: protocol.ServedStore, asked: Why) -> protocol.Reply:
    """Why a memory is missing: the stage that lost it, its rank in each list, and the smallest changes that return it.

    fix: the counterfactual to try first. Of each: rank then; order_kept (Kendall's tau of the others); others_dropped beyond
    the one that makes room; gathers: searches again; on_judged: nDCG@10.
    """
    if asked.traced:
        evidence, named = served.traced(asked.traced, asked.query), asked.config or asked.changes
        if named and evidence.external:
            raise InputError(f"traced: {asked.traced} {NOT_REPLAYED}; pass neither config nor changes")
        answer = single_query.replay(evidence, served.config(asked.config, asked.changes) if named else None)
        memory_id = stored_memory(asked.memory_id, served.resources)
        of_set = traced_mistakes(traced_path(served.resources.store.path, asked.traced))
        found = explain(memory_id, answer.evidence, answer.config, k=asked.k or None, of_set=of_set)
    else:
        answer = _answer(served, asked, asked.variants)
        found = single_query.why(answer, asked.memory_id, store=served.store, k=asked.k or None).why
    rows, counts = protocol.page(found.counterfactuals, asked)
    path = found.path
    return protocol.reply(
        **counts,
        **protocol.picked(path, "memory_id status rank lost_at"),
        **protocol.picked(found, "cause standing verdict"),
        config=answer.config.name,
        fix=found.fix and found.fix.sentence,
        vector=found.vector and found.vector.sentence,
        way=protocol.rows_of(found.way),
        lists=protocol.rows_of(found.in_lists),
        counterfactuals=[_counterfactual(one) for one in rows],
        nearest=found.nearest and _counterfactual(found.nearest),
        notes=[*(f"known mistake: {mistake.line}" for mistake in found.mistakes), *answer.notes],
    )


class Blame(protocol.Page, protocol.Asked):
    """Arguments of `blame`."""

    text: str = Field(min_length=1, max_length=protocol.MAX_TEXT, description="What the agent said.")
    query: str = Field("", max_length=protocol.MAX_QUERY, description="What it was asked; empty: only find support.")


def blame(served: protocol.ServedStore, asked: Blame) -> protocol.Reply:
    """From a wrong answer to the memories behind it, by claim: support (0..1), verdict (supports, cannot tell, no); for
    the query: rank or lost_at, stale, says_otherwise (what contradicts or follows it), next (tools to call)."""
    if not asked.query and (asked.project or asked.only_project or asked.as_of):
        raise InputError("query: project, only_project and as_of belong to one; pass it")
    answer = _answer(served, asked) if asked.query else None
    report = blamed(served.store, asked.text, answer, None if answer else _without_judge(served, asked))
    rows, counts = protocol.page(report.found.claims, asked)
    return protocol.reply(
        **counts,
        config=answer and answer.config.name,
        split_by=report.found.split_by,
        claims=[
            protocol.reply(
                claim=protocol.cut(one.claim.text, CLAIM_CHARS),
                memories=[_supporting(memory) for memory in one.memories],
                said=None if one.supporting else one.about,
            )
            for one in rows
        ],
        notes=report.notes,
    )


class WhatIf(protocol.Page, protocol.Asked):
    """Arguments of `what_if`."""

    changes: protocol.Changes
    memory_id: protocol.FollowedId = ""
    variants: protocol.Variants = None


def what_if(served: protocol.ServedStore, asked: WhatIf) -> protocol.Reply:
    """A query's results under changed parameters, with the rank before. Nothing is saved. Effect on other queries: compare."""
    if not asked.changes and not asked.variants:
        raise InputError("changes: name at least one parameter; parameters lists them and why proposes some")
    memory = served.store.memory(asked.memory_id) if asked.memory_id else None
    before = _answer(served, asked.model_copy(update={"changes": None}))
    moment = before.evidence.as_of  # both sides count ages from the same time
    after = _answer(served, asked.model_copy(update={"as_of": moment and moment.isoformat()}), asked.variants)
    deltas = rank_deltas(after.trace, before.trace, RESULTS)
    rows, counts = protocol.page([(key, delta) for key, delta in deltas.items() if delta.now is not None], asked)
    followed = [_followed(memory, after.trace, before.trace)] if memory else []
    return protocol.reply(
        **counts,
        config=before.config.name,
        changes=asked.changes,
        said=[*followed, _counted(deltas.values())],
        results=[
            protocol.reply(memory_id=key, rank=delta.now, before=delta.before)
            | {"untrusted": protocol.text_of(after.evidence.memories[key], length=EXCERPT_CHARS)}
            for key, delta in rows
        ],
        left=[
            protocol.reply(memory_id=key, before=delta.before) for key, delta in deltas.items() if delta.move == "gone"
        ],
        notes=after.notes,
    )


class WhatIfMemory(protocol.Asked):
    """Arguments of `what_if_memory`."""

    memory_id: protocol.Name = Field("", description="Empty: a new one.")
    content: str = Field("", max_length=protocol.MAX_TEXT, description="Empty: the stored one.")
    title: protocol.Name = Field("", description="Empty: the stored one.")
    absent: bool = Field(False, description="Leave it out.")


def what_if_memory(served: protocol.ServedStore, asked: WhatIfMemory) -> protocol.Reply:
    """The rank of a memory for a query if it had another text, were absent or new. moved: its ranks by list and stage;
    others: results whose rank changes. Nothing is written."""
    edit = _edit(served, asked)
    answer = _answer(served, asked)
    assert answer.request is not None
    found = applied(edit, answer.evidence, answer.config, answer.request)
    before, after = found.rank
    others, in_lists, through_stages = map(protocol.rows_of, found.tables)
    return protocol.reply(
        memory_id=found.memory_id,
        config=answer.config.name,
        said=[_followed(edit.either, found.after, found.before), found.sentence],
        rank=after,
        before=before,
        moved=[*in_lists, *through_stages],
        others=others,
        notes=[*answer.notes, found.certainty],
    )


def _edit(served: protocol.ServedStore, asked: WhatIfMemory) -> Edit:
    resources, content, title = served.resources, asked.content, asked.title
    if asked.absent:
        if not asked.memory_id or content or title:
            raise InputError("absent: pass a memory_id, and neither content nor title")
        return absence(asked.memory_id, resources)
    if not asked.memory_id:
        if not content.strip():
            raise InputError("content: pass the text of a new memory, or the memory_id of a stored one")
        new = new_memory(content, resources, title=title or None, project=asked.project or None)
        return presence(new, resources)
    stored = served.store.memory(asked.memory_id)
    edited = replace(stored, content=content or stored.content, title=title or stored.title)
    if edited == stored:
        raise InputError("content: pass a text or title that differs from the stored one")
    return Edit(stored, edited, resources)


def _answer(served: protocol.ServedStore, asked: protocol.Asked, variants: Sequence[str] | None = None) -> Answer:
    return single_query.search(
        served.store,
        asked.query,
        _without_judge(served, asked),
        project=asked.project or None,
        only_project=asked.only_project,
        as_of=asked.as_of or None,
        variants=variants or (),
    )


def _without_judge(served: protocol.ServedStore, asked: protocol.Asked) -> PipelineConfig:
    """The judge takes a second and affects no ranking, unless abstain uses its score."""
    config = served.config(asked.config, asked.changes)
    return config if config.abstain.judge is not None else with_values(config, {"judge.backend": "none"})


def _candidate(trace: Trace, memory_id: str, table: SideBySide | None = None) -> protocol.Reply:
    result = next((one for one in trace.results if one.memory_id == memory_id), None)
    lost = None if result else loss(trace, memory_id)
    scores = []
    if table is not None and (row := table.row(memory_id)) is not None:
        for key, cell in row.cells.items():
            made_of = parts_words(table.column(key).kind, cell.parts)
            scores.append(protocol.picked(cell, "rank score", where="final" if key == FINAL else key, made_of=made_of))
    found = protocol.picked(result, "rank score", memory_id=memory_id)
    found |= protocol.picked(lost, "score reason", lost_at=lost and lost.stage)
    text = protocol.text_of(trace.evidence.memories[memory_id])
    return found | protocol.reply(out_of_date=stale_words(trace, memory_id), scores=scores, untrusted=text)


def _counterfactual(one: Counterfactual) -> protocol.Reply:
    return protocol.picked(
        one,
        "searched rank",
        changes=one.values,
        variants=one.terms,
        every_project=one.everywhere or None,
        order_kept=one.side_effects.tau,
        others_dropped=one.side_effects.gone,
        gathers=one.gathers or None,
        scores_lacking=one.needs or None,
        on_judged=one.labelled and one.labelled.verdict.brief,
    )


def _supporting(one: BlamedMemory) -> protocol.Reply:
    steps = []
    if one.next is not None:
        steps.append(f"{one.next.proposed.name} for {one.next.memory_id}: {one.next.words}")
    if one.fix is not None:
        steps.append(f"search with changes {dict(one.fix.changes)}: {one.fix.words}")
    otherwise = [
        protocol.picked(other.standing, PLACE, memory_id=other.memory.id, by=other.source, newer=other.newer)
        | {"untrusted": protocol.text_of(other.memory)}
        for other in one.otherwise
    ]
    return (
        protocol.reply(memory_id=one.id)
        | protocol.picked(one.support, "verdict reason", support=one.support.score)
        | protocol.picked(one.standing, PLACE, stale=one.stale, judged_irrelevant=one.irrelevant or None)
        | protocol.reply(says_otherwise=otherwise, next=steps, untrusted=protocol.text_of(one.support.memory))
    )


def _followed(memory: Memory, now: Trace, before: Trace) -> str:
    """Where a memory is after and before a change, in a sentence."""
    return f"{memory.id}: {standing(now, memory).words}; before: {standing(before, memory).words}."


def _counted(deltas: Iterable[RankDelta]) -> str:
    moves = Counter(delta.move for delta in deltas)
    if set(moves) <= {"same"}:
        return "The results do not change."
    return f"{moves['new']} came, {moves['gone']} left, {moves['up']} went up, {moves['down']} down, {moves['same']} stayed."
