"""One query: searched, explained, and rerun with other parameters or with a memory edited."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field

from cems_workbench.analysis.edited_evidence import Edit
from cems_workbench.analysis.ranks import RESULTS, RankDelta, dropped, loss, rank_deltas
from cems_workbench.analysis.side_by_side import FINAL, SideBySide, parts_words, side_by_side
from cems_workbench.analysis.supersession import stale_words
from cems_workbench.analysis.what_if import (
    BeforeAfter,
    EditedRank,
    absence,
    applied,
    new_memory,
    presence,
)
from cems_workbench.analysis.why import Counterfactual, explain, stored_memory
from cems_workbench.api import single_query
from cems_workbench.api.results import collect_warnings
from cems_workbench.api.single_query import Answer
from cems_workbench.config import PipelineConfig, with_values
from cems_workbench.errors import InputError
from cems_workbench.jobs.traced_sets import NOT_REPLAYED
from cems_workbench.jobs.traces import traced_mistakes, traced_path
from cems_workbench.mcp.arguments import (
    MOST_NAME,
    MOST_TEXT,
    AsOf,
    Changes,
    ConfigName,
    Explain,
    FollowedId,
    Limit,
    MemoryNamed,
    Offset,
    OnlyProject,
    Project,
    QueryText,
    Traced,
    Variants,
)
from cems_workbench.mcp.responses import UNTRUSTED, Paged, Reply, Text, page, rounded, text_of
from cems_workbench.mcp.served_store import ServedStore
from cems_workbench.pipeline import Trace, replay

NO_EFFECT = ("off", "kept")
"""Outcomes of a stage that did not affect a memory."""
EXCERPT_CHARS = 100
"""Characters of a text in rows that are about ranks."""


class ScoreRow(Reply):
    """A rank and score in one list or after one stage, and what the score is made of."""

    where: str
    rank: int | None = None
    score: float | None = None
    made_of: str = ""


class Candidate(Reply):
    """A candidate: its rank among the results, or the stage that dropped it, and why.

    `out_of_date`: by which memory it is superseded, and where that one is; when it expired.
    """

    memory_id: str
    rank: int | None = None
    score: float | None = None
    lost_at: str | None = None
    reason: str | None = None
    out_of_date: str | None = None
    scores: tuple[ScoreRow, ...] = ()
    untrusted: Text


class Searched(Paged):
    """The candidates of a query: the `results` first, then those that were dropped, nearest first."""

    config: str
    results: int
    candidates: tuple[Candidate, ...] = ()
    said: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    untrusted_note: str = UNTRUSTED


class WayStep(Reply):
    """What one stage did to a memory."""

    stage: str
    rank_before: int | None = None
    rank: int | None = None
    score: float | None = None
    what: str


class InList(Reply):
    """Where a search of the whole store ranks a memory."""

    name: str
    rank: int | None = None
    what: str


class CounterfactualRow(Reply):
    """Changes that bring a memory in, as `what_if` and `compare` take them, and what they do to the other results.

    `order_kept` is Kendall's tau of the others, 1 where their order stays; `others_dropped` are those that leave the results beyond the
    one that makes room; `gathers`: the query is searched again for it; `on_judged` is nDCG@10 of the judged queries, with the verdict.
    """

    changes: dict[str, Any]
    variants: tuple[str, ...] = ()
    every_project: bool | None = None
    searched: str | None = None
    rank: int | None = None
    order_kept: float | None = None
    others_dropped: int = 0
    gathers: bool | None = None
    scores_lacking: int | None = None
    on_judged: str | None = None


class Explained(Paged):
    """Why a memory is missing, and the smallest changes that return it.

    `fix` names the first of `counterfactuals`, the one to try, with its effect on the judged queries if these were gathered; then follow
    those with the most gain there, or the fewest side effects.
    """

    memory_id: str
    config: str
    status: str
    rank: int | None = None
    lost_at: str | None = None
    fix: str | None = None
    cause: str
    standing: str | None = None
    vector: str | None = None
    verdict: str
    way: tuple[WayStep, ...] = ()
    lists: tuple[InList, ...] = ()
    counterfactuals: tuple[CounterfactualRow, ...] = ()
    nearest: CounterfactualRow | None = None
    notes: tuple[str, ...] = ()


class RankMove(Reply):
    """A memory's rank after a change and before it; None: not among the results."""

    memory_id: str
    rank: int | None = None
    before: int | None = None
    untrusted: Text | None = None


class Changed(Paged):
    """The results under changed parameters, and what left them."""

    config: str
    changes: dict[str, Any]
    said: tuple[str, ...] = ()
    results: tuple[RankMove, ...] = ()
    left: tuple[RankMove, ...] = ()
    notes: tuple[str, ...] = ()
    untrusted_note: str = UNTRUSTED


class PlaceMove(Reply):
    """The outcome of a list or stage for a memory, stored and edited."""

    where: str
    before: str | None = None
    after: str | None = None


class Edited(Reply):
    """The effect of another text of a memory; nothing is written."""

    memory_id: str
    config: str
    said: tuple[str, ...] = ()
    rank: int | None = None
    before: int | None = None
    moved: tuple[PlaceMove, ...] = ()
    others: tuple[RankMove, ...] = ()
    notes: tuple[str, ...] = ()


class QueryTools:
    """`search`, `why`, `what_if` and `what_if_memory` of a served store."""

    def __init__(self, served: ServedStore) -> None:
        self._served = served

    def search(
        self,
        query: QueryText,
        config: ConfigName = "",
        changes: Changes = None,
        project: Project = "",
        only_project: OnlyProject = False,
        as_of: AsOf = "",
        variants: Variants = None,
        explain: Explain = False,
        limit: Limit = 10,
        offset: Offset = 0,
    ) -> Searched:
        """The results of the pipeline for a query, then the dropped candidates, each with the stage and the reason."""
        answer, notes = self._asked(query, config, changes, project, only_project, as_of, variants)
        rows, counts = page(_in_order(answer.trace), offset, limit)
        table = side_by_side(answer.trace) if explain else None
        return Searched(
            config=answer.config.name,
            results=len(answer.trace.results),
            candidates=[_candidate(answer.trace, memory_id, table) for memory_id in rows],
            said=list(answer.lines),
            notes=notes,
            **counts,
        )

    def why(
        self,
        query: QueryText,
        memory_id: MemoryNamed,
        config: ConfigName = "",
        changes: Changes = None,
        project: Project = "",
        only_project: OnlyProject = False,
        as_of: AsOf = "",
        variants: Variants = None,
        k: Annotated[
            int, Field(ge=0, le=10_000, description="A memory below rank k counts as missing; 0: the config's limit.")
        ] = 0,
        traced: Traced = "",
        limit: Limit = 5,
        offset: Offset = 0,
    ) -> Explained:
        """Why a memory is missing from the results: the stage that dropped it, its path, and the smallest changes that return it."""
        if traced:
            if config or changes:
                raise InputError(f"traced: {traced} {NOT_REPLAYED}; pass neither config nor changes")
            evidence, chosen = self._served.traced(traced, query)
            memory_id = stored_memory(memory_id, self._served.resources)
            of_set = traced_mistakes(traced_path(self._served.resources.store.path, traced))
            found, name = explain(memory_id, evidence, chosen, k=k or None, of_set=of_set), chosen.name
            notes = [f"warning: {stage}: {text}" for stage, text in replay(evidence, chosen).warnings]
        else:
            answer, notes = self._asked(query, config, changes, project, only_project, as_of, variants)
            found = single_query.why(answer, memory_id, store=self._served.store, k=k or None).why
            name = answer.config.name
        rows, counts = page(found.counterfactuals, offset, limit)
        return Explained(
            memory_id=found.path.memory_id,
            config=name,
            status=found.path.status,
            rank=found.path.rank,
            lost_at=found.path.lost_at,
            fix=found.fix and found.fix.sentence,
            cause=found.cause,
            standing=found.standing or None,
            vector=found.vector and found.vector.sentence,
            verdict=found.verdict,
            way=[
                WayStep(
                    stage=step.stage,
                    rank_before=step.rank_in,
                    rank=step.rank,
                    score=rounded(step.score),
                    what=step.words,
                )
                for step in found.path.steps
                if step.words not in NO_EFFECT
            ],
            lists=[InList(name=place.list, rank=place.rank, what=place.words) for place in found.path.places],
            counterfactuals=[_counterfactual(one) for one in rows],
            nearest=found.nearest and _counterfactual(found.nearest),
            notes=[*(f"known mistake: {mistake.line}" for mistake in found.mistakes), *notes],
            **counts,
        )

    def what_if(
        self,
        query: QueryText,
        changes: Changes,
        memory_id: FollowedId = "",
        config: ConfigName = "",
        project: Project = "",
        only_project: OnlyProject = False,
        as_of: AsOf = "",
        variants: Variants = None,
        limit: Limit = 10,
        offset: Offset = 0,
    ) -> Changed:
        """Compare a query's results under changed parameters with the unchanged config: who came, moved and left. Nothing is saved.

        Use compare for the effect on other queries.
        """
        if not changes and not variants:
            raise InputError("changes: name at least one parameter; parameters lists them and why proposes some")
        if memory_id:
            self._served.store.memory(memory_id)
        before, _ = self._asked(query, config, None, project, only_project, as_of, None)
        after, notes = self._asked(query, config, changes, project, only_project, _moment(before), variants)
        deltas = rank_deltas(after.trace, before.trace, RESULTS)
        present = {key: delta for key, delta in deltas.items() if delta.now is not None}
        rows, counts = page(list(present), offset, limit)
        memories = after.evidence.memories
        return Changed(
            config=before.config.name,
            changes=changes or {},
            said=[*([_followed(memory_id, after.trace, before.trace)] if memory_id else []), _counted(deltas.values())],
            results=[
                RankMove(
                    memory_id=key,
                    rank=present[key].now,
                    before=present[key].before,
                    untrusted=text_of(memories[key], length=EXCERPT_CHARS),
                )
                for key in rows
            ],
            left=[
                RankMove(memory_id=key, before=delta.before) for key, delta in deltas.items() if delta.move == "gone"
            ],
            notes=notes,
            **counts,
        )

    def what_if_memory(
        self,
        query: QueryText,
        memory_id: FollowedId = "",
        content: Annotated[
            str,
            Field(
                max_length=MOST_TEXT,
                description="The text to try; empty: the stored one. Without a memory_id: a memory that does not exist yet.",
            ),
        ] = "",
        title: Annotated[str, Field(max_length=MOST_NAME, description="The title to try; empty: the stored one.")] = "",
        absent: Annotated[bool, Field(description="Leave the memory out instead: what comes in its place?")] = False,
        config: ConfigName = "",
        changes: Changes = None,
        project: Project = "",
        only_project: OnlyProject = False,
        as_of: AsOf = "",
    ) -> Edited:
        """A memory for a query with another text, absent, or not stored yet ("would this note be found?"). Nothing is written."""
        edit = self._edit(memory_id, content, title, absent, project)
        answer, notes = self._asked(query, config, changes, project, only_project, as_of, None)
        assert answer.request is not None
        found = applied(edit, answer.evidence, answer.config, answer.request)
        before, after = found.rank
        return Edited(
            memory_id=found.memory_id,
            config=answer.config.name,
            said=[_followed(found.memory_id, found.after, found.before), found.sentence],
            rank=after,
            before=before,
            moved=_moved([*found.lists(), *found.stages()]),
            others=[RankMove(memory_id=one.memory_id, rank=one.after, before=one.before) for one in found.others()],
            notes=[*notes, found.certainty],
        )

    def _edit(self, memory_id: str, content: str, title: str, absent: bool, project: str) -> Edit:
        resources = self._served.resources
        if absent:
            if not memory_id or content or title:
                raise InputError("absent: pass a memory_id, and neither content nor title")
            return absence(memory_id, resources)
        if not memory_id:
            new = new_memory(content, resources, title=title or None, project=project or None)
            return presence(new, resources)
        stored = self._served.store.memory(memory_id)
        edited = replace(stored, content=content or stored.content, title=title or stored.title)
        if edited == stored:
            raise InputError("content: pass a text or title that differs from the stored one")
        return Edit(stored, edited, resources)

    def _asked(
        self,
        query: str,
        config: str,
        changes: Mapping[str, Any] | None,
        project: str,
        only_project: bool,
        as_of: str,
        variants: Sequence[str] | None,
    ) -> tuple[Answer, list[str]]:
        """The results of a query, with its warnings."""
        with collect_warnings() as said:
            chosen = without_judge(self._served.config(config, changes))
            answer = single_query.search(
                self._served.store,
                query,
                chosen,
                project=project or None,
                only_project=only_project,
                as_of=as_of or None,
                variants=tuple(variants or ()),
            )
        return answer, [*said, *answer.notes]


def without_judge(config: PipelineConfig) -> PipelineConfig:
    """The judge takes a second and affects no ranking, unless abstain uses its score."""
    return config if config.abstain.judge is not None else with_values(config, {"judge.backend": "none"})


def _moment(answer: Answer) -> str:
    """The requested time: both sides of a comparison use the same."""
    moment = answer.evidence.as_of
    return "" if moment is None else moment.isoformat()


def _in_order(trace: Trace) -> list[str]:
    """Every candidate: the results by rank, then the dropped ones, latest stage first, by their rank there."""
    results = [result.memory_id for result in trace.results]
    lost = []
    place = {stage.name: number for number, stage in enumerate(trace.candidate_stages)}
    for memory_id in trace.evidence.memories:
        end = dropped(trace, memory_id)
        if end is not None:
            lost.append((-place[end.stage], end.rank or len(trace.evidence.memories), memory_id))
    return [*results, *(memory_id for _, _, memory_id in sorted(lost))]


def _scores(table: SideBySide, memory_id: str) -> list[ScoreRow]:
    row = table.row(memory_id)
    cells = () if row is None else row.cells.items()
    return [
        ScoreRow(
            where="final" if key == FINAL else key,
            rank=cell.rank,
            score=rounded(cell.score),
            made_of=parts_words(table.column(key).kind, cell.parts),
        )
        for key, cell in cells
    ]


def _candidate(trace: Trace, memory_id: str, table: SideBySide | None = None) -> Candidate:
    memory = trace.evidence.memories[memory_id]
    result = next((one for one in trace.results if one.memory_id == memory_id), None)
    lost = None if result else loss(trace, memory_id)
    return Candidate(
        memory_id=memory_id,
        rank=result and result.rank,
        score=rounded(result.score if result else lost.score if lost else None),
        lost_at=lost.stage if lost else None,
        reason=lost.reason if lost else None,
        out_of_date=stale_words(trace, memory_id),
        scores=[] if table is None else _scores(table, memory_id),
        untrusted=text_of(memory),
    )


def _counterfactual(one: Counterfactual) -> CounterfactualRow:
    return CounterfactualRow(
        changes=one.values,
        variants=list(one.terms),
        every_project=one.everywhere or None,
        searched=one.searched or None,
        rank=one.rank,
        order_kept=rounded(one.side_effects.tau),
        others_dropped=one.side_effects.gone,
        gathers=one.gathers or None,
        scores_lacking=one.needs or None,
        on_judged=one.labelled and one.labelled.verdict.brief,
    )


def _followed(memory_id: str, now: Trace, before: Trace) -> str:
    """The rank of a memory after and before a change, in a sentence."""
    return f"{memory_id}: {_stands(memory_id, now)}; before: {_stands(memory_id, before)}."


def _stands(memory_id: str, trace: Trace) -> str:
    rank = next((result.rank for result in trace.results if result.memory_id == memory_id), None)
    if rank is not None:
        return f"rank {rank} of {len(trace.results)}"
    lost = loss(trace, memory_id)
    return f"not returned, {lost.words}" if lost else "in no list"


def _counted(deltas: Iterable[RankDelta]) -> str:
    moves = Counter(delta.move for delta in deltas)
    if set(moves) <= {"same"}:
        return "The results do not change."
    return f"{moves['new']} came, {moves['gone']} left, {moves['up']} went up, {moves['down']} down, {moves['same']} stayed."


def _moved(pairs: Sequence[BeforeAfter]) -> list[PlaceMove]:
    """The differences, without stages that affect the memory on neither side."""
    return [
        PlaceMove(where=pair.name, before=_words(pair.before), after=_words(pair.after))
        for pair in pairs
        if not pair.same and not all(place is None or place.words in NO_EFFECT for place in (pair.before, pair.after))
    ]


def _words(place: EditedRank | None) -> str | None:
    if place is None:
        return None
    score = "" if place.score is None else f" ({place.score:.4g})"
    stood = "" if place.rank is None else f"rank {place.rank}{score}"
    return "; ".join(part for part in (stood, place.words) if part)
