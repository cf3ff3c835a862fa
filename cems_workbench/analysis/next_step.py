"""The next step for a query: one sentence on what the trace holds, and the place that explains it.

The first of these that is so:

    nothing      no result: the stage that left none
    unanswered   results for a query that is judged as not answered by the store
    superseded   the first result is superseded, and no successor ranks above it
    expired      the first result has expired
    missing      a memory judged relevant is not within the first k
    dropped      the first of the ranking that a stage got was dropped by it, and is not judged irrelevant
    low          a memory judged irrelevant ranks above the best of those judged relevant
    unjudged     no memory is judged for this query
    good         none of these

Page, command, API and MCP show this sentence; what they offer for it is their own. Everything is read from the trace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from cems_workbench.analysis.losses import NEVER_FOUND
from cems_workbench.analysis.ranks import branch_of, loss, nothing_returned, target_rank
from cems_workbench.analysis.supersession import first_result_stale, first_result_words
from cems_workbench.evaluation.grades import relevant
from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.stages import ABSTAIN, DEDUP, FUSION, SUPERSESSION, THRESHOLD
from cems_workbench.pipeline.stages.lists import LISTS
from cems_workbench.pipeline.stages.result import StageRow
from cems_workbench.pipeline.wording import ordinal
from cems_workbench.records import DEFAULT_SCALE

Kind = Literal[
    "nothing", "unanswered", "superseded", "expired", "missing", "dropped", "low", "unjudged", "good", "answered"
]
Place = Literal["why", "supersession", "stages", "lists", "abstain", "label", "evaluate"]
_NO_LOSS = frozenset({LISTS.name, THRESHOLD.name, FUSION.name, DEDUP.name, SUPERSESSION.name})
"""Stages that get no ranking, and those that drop a memory for another one, which stays."""


@dataclass(frozen=True, slots=True)
class NextStep:
    """What to do next for a query: a sentence, where it leads, and the memory that it is about.

    `place` explains the sentence: "why" a memory is not higher, "supersession" of the store, what the "stages" or "lists" did, when to
    "abstain", to "label" results, or to "evaluate" all judged queries. `memory_id` is None for a place that concerns no single memory.
    `k` is the rank that the memory should reach, None for the usual one.
    """

    kind: Kind
    words: str
    place: Place
    memory_id: str | None = None
    k: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values; absent ones are left out."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def next_step(
    trace: Trace,
    grades: Mapping[str, int] | None = None,
    relevant_from: int = DEFAULT_SCALE.relevant_from,
    answerable: bool | None = None,
    k: int | None = None,
) -> NextStep:
    """The next step for the query of a trace.

    `grades` are the query's judgments by memory id, relevant from `relevant_from` on; `answerable` is what people say about the query:
    whether the store answers it, None if unknown. `k` is the rank from which on a memory is missing, by default the result limit.
    """
    grades = grades or {}
    wanted = sorted(relevant(grades, relevant_from), key=lambda memory_id: (-grades[memory_id], memory_id))
    unanswered = answerable is False and not wanted
    if not trace.results:
        return _nothing(trace, wanted, unanswered)
    if unanswered:
        count = len(trace.results)
        returned = "a result is" if count == 1 else f"{count} results are"
        words = f"The store does not answer this query, by its judgments, but {returned} returned."
        return NextStep("unanswered", words, "abstain")
    return (
        _stale(trace)
        or _missing(trace, grades, wanted, target_rank(trace.config) if k is None else k, k)
        or _dropped(trace, grades, relevant_from)
        or _low(trace, grades, wanted)
        or _judged(trace, grades, wanted)
    )


def _nothing(trace: Trace, wanted: list[str], unanswered: bool) -> NextStep:
    stage, why = nothing_returned(trace) or ("", "")
    if unanswered:
        return NextStep("answered", f"Nothing returned, as judged: {why}.", "evaluate")
    words = f"Nothing returned: {why}."
    if wanted:
        return NextStep("nothing", words, "why", wanted[0])
    if stage in ("", "lists"):
        return NextStep("nothing", words, "lists")
    return NextStep("nothing", words, "abstain" if stage == ABSTAIN.name else "stages")


def _stale(trace: Trace) -> NextStep | None:
    found = first_result_stale(trace)
    if found is None:
        return None
    if found.successor is None:
        return NextStep("expired", first_result_words(found), "supersession", found.memory_id)
    return NextStep("superseded", first_result_words(found), "why", found.successor)


def _missing(trace: Trace, grades: Mapping[str, int], wanted: list[str], k: int, given: int | None) -> NextStep | None:
    shown = {result.memory_id for result in trace.results[:k]}
    missing = [memory_id for memory_id in wanted if memory_id not in shown]
    if not missing:
        return None
    # Of equal grades the one that came furthest: it shows most, and least is between it and the results.
    first = max(
        (memory_id for memory_id in missing if grades[memory_id] == grades[missing[0]]),
        key=lambda memory_id: _reached(trace, memory_id, k),
    )
    gone = "missing" if given is None else f"not within the first {k}"
    where = f"{first} (grade {grades[first]}), {_where(trace, first, k)}"
    if len(wanted) == 1:
        words = f"The memory judged relevant is {gone}: {where}."
    elif len(missing) == 1:
        words = f"1 of {len(wanted)} memories judged relevant is {gone}: {where}."
    else:
        words = f"{len(missing)} of {len(wanted)} memories judged relevant are {gone}; the best is {where}."
    return NextStep("missing", words, "why", first, given)


def _reached(trace: Trace, memory_id: str, k: int) -> tuple[int, int]:
    """How far a memory came: the place of the stage that lost it, the later the better, then its rank there."""
    found = loss(trace, memory_id, k)
    if found is None:
        return -1, 0
    return [stage.name for stage in trace.stages].index(found.stage), -(found.rank or 0)


def _where(trace: Trace, memory_id: str, k: int) -> str:
    """ "lost at rerank (12th)", "dropped by filter", "which no list found": a clause."""
    branch = branch_of(trace, memory_id, k)
    if branch is None or branch == NEVER_FOUND:
        return "which no list found"
    if branch.manner != "below":
        return branch.words(k)
    found = loss(trace, memory_id, k)
    assert found is not None
    rank = "" if found.in_lists or found.rank is None else f" ({ordinal(found.rank)})"
    return found.words + rank


def _dropped(trace: Trace, grades: Mapping[str, int], relevant_from: int) -> NextStep | None:
    """The first of a ranking that the stage after it dropped."""
    kept = {result.memory_id for result in trace.results}
    for stage in trace.stages:
        if stage.name in _NO_LOSS or stage.candidates_out >= stage.candidates_in:
            continue
        row = next((row for row in stage.rows if _first_and_dropped(row)), None)
        if row is None or row.memory_id in kept:
            continue
        if grades.get(row.memory_id, relevant_from) < relevant_from:
            return None  # judged irrelevant: what should be dropped is dropped
        reason = f": {row.reason}" if row.reason else ""
        words = f"The best candidate before {stage.name}, {row.memory_id}, was dropped by it{reason}."
        return NextStep("dropped", words, "why", row.memory_id)
    return None


def _first_and_dropped(row: StageRow) -> bool:
    return row.rank_in == 1 and not row.kept


def _low(trace: Trace, grades: Mapping[str, int], wanted: list[str]) -> NextStep | None:
    ranks = {result.memory_id: result.rank for result in trace.results}
    if not wanted:
        return None
    best = min(wanted, key=lambda memory_id: ranks[memory_id])
    above = [memory_id for memory_id in grades if memory_id not in wanted and ranks.get(memory_id, 0) > 0]
    first = min(above, key=lambda memory_id: ranks[memory_id], default=None)
    if first is None or ranks[first] > ranks[best]:
        return None
    words = (
        f"The best memory judged relevant, {best} (grade {grades[best]}), is {ordinal(ranks[best])}, below {first}, which is judged "
        f"irrelevant and {ordinal(ranks[first])}."
    )
    return NextStep("low", words, "why", best, ranks[first])


def _judged(trace: Trace, grades: Mapping[str, int], wanted: list[str]) -> NextStep:
    if not grades:
        first = trace.results[0].memory_id
        words = "No result is judged for this query: grade what answers it, and what it loses is counted and explained."
        return NextStep("unjudged", words, "label", first)
    if not wanted:
        judged = "The only judged memory" if len(grades) == 1 else f"Each of the {len(grades)} judged memories"
        words = f"{judged} is irrelevant to this query: grade the results."
        return NextStep("unjudged", words, "label", trace.results[0].memory_id)
    all_of = "The memory judged relevant is" if len(wanted) == 1 else f"All {len(wanted)} memories judged relevant are"
    words = f"{all_of} among the results: see which other queries lose theirs."
    return NextStep("good", words, "evaluate")
