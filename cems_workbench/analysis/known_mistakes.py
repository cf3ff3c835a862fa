"""Known mistakes of a query, in words with a number, and the next step for it.

    row cut              an engine's list has the first rows that match, not the best
    every word           an engine's list is empty because all words of the query must occur in one memory
    threshold too high   no vector score reaches the threshold
    candidates           hits that may not enter, because candidates come from other lists
    divisor              scores of a query are divided by what its lists weigh
    rank threshold       a minimum score on a rank fusion: one list alone passes only down to some rank
    weights              one list of the query weighs many times another
    no share             the reranker is on, and has no share in the score
    typos                a word of the query that no memory has, where the missing memory has one that is nearly the same
    vector floor         results are dropped after the limit, and nobody moves up
    crowded              most of the first results are chunks of one document, or of one session, that the missing memory is not of
    stages               what stages and lists show of themselves: `analysis/stage_mistakes.py`

Each is computed from the trace of the query and its evidence, whatever the config is called; one that does not happen is not listed.

Source: seen in running systems: engram (row cut, vector floor), QMD (every word), the memory agent (threshold), ACE (rank threshold), mem0
(candidates, divisor); reports on note stores (crowded).

The next step is the first of these that is so, with the place that explains it:

    nothing      no result: the stage that left none
    unanswered   results for a query that is judged as not answered by the store
    superseded   the first result, else another that is not judged relevant, is superseded, and no successor ranks above it
    expired      it has expired
    missing      a memory judged relevant is not within the first k
    dropped      the first of the ranking that a stage got was dropped by it, and is not judged irrelevant
    low          a memory judged irrelevant ranks above the best of those judged relevant
    unjudged     no memory is judged for this query
    good         none of these
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal

from cems_workbench.analysis.ranks import NEVER_FOUND, branch_of, loss, nothing_returned, target_rank
from cems_workbench.analysis.stage_mistakes import FINDING, KnownMistake, StageMistakes
from cems_workbench.analysis.supersession import first_result_stale, first_result_words
from cems_workbench.config import PipelineConfig
from cems_workbench.evaluation.grades import relevant
from cems_workbench.pipeline.explained import not_shown
from cems_workbench.pipeline.fusion_methods import fusion_method
from cems_workbench.pipeline.list_sources import as_cosine, list_label, ordinal
from cems_workbench.pipeline.replay import Trace
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages import ABSTAIN, DEDUP, SUPERSESSION
from cems_workbench.pipeline.stages.assembly import ASSEMBLY
from cems_workbench.pipeline.stages.filter import FILTER
from cems_workbench.pipeline.stages.fusion import FUSION, FusionRow
from cems_workbench.pipeline.stages.lists import LISTS, ListUse
from cems_workbench.pipeline.stages.query import QUERY
from cems_workbench.pipeline.stages.rerank import RERANK
from cems_workbench.pipeline.stages.threshold import THRESHOLD
from cems_workbench.pipeline.understanding import corrected
from cems_workbench.records import DEFAULT_SCALE, PROJECT_REFERENCE, Memory


def known_mistakes(trace: Trace) -> list[KnownMistake]:
    """The mistakes of this query, those of its config in the order of the stages, then what its stages show of
    themselves. Of an external trace, whose parameters are not known, only these."""
    stages = StageMistakes()
    stages.add(trace.run, trace.table, trace.config)
    if trace.external:
        return stages.found()
    return [
        *_of_engines(trace),
        *_unreached_threshold(trace),
        *_shut_out(trace),
        *_divided(trace),
        *_rank_threshold(trace),
        *_unequal_weights(trace),
        *_without_share(trace),
        *_below_floor(trace),
        *stages.found(),
    ]


MANY_TIMES = 8.0
"""Weights that differ by more are named; those of the shipped presets differ by less."""


def _unequal_weights(trace: Trace) -> Iterator[KnownMistake]:
    """Lists that search the query as it was typed, one of which weighs many times another."""
    if trace.config.fusion.method == "combmax":
        return
    weights = {
        use.name: float(trace.config.get(f"lists.{use.source}.weight"))
        for use in trace.stage(LISTS).fields.lists
        if use.active and use.variant == 0 and use.used and use.source in FINDING
    }
    least, most = min(weights, key=weights.__getitem__, default=""), max(weights, key=weights.__getitem__, default="")
    if most and weights[most] > MANY_TIMES * max(weights[least], 1e-9):
        most_of, least_of = (f"lists.{name.split(':')[0]}.weight" for name in (most, least))
        # The one that is furthest from the default of 1 was turned.
        odd = most_of if weights[most] >= 1 / max(weights[least], 1e-9) else least_of
        words = f"{list_label(most)} weighs {weights[most]:g}, {list_label(least)} {weights[least]:g}"
        yield KnownMistake(FUSION.name, odd, 1, words)


def _without_share(trace: Trace) -> Iterator[KnownMistake]:
    """A reranker whose scores count for nothing in every band."""
    rerank = trace.config.rerank
    blends = rerank.combine == "position_bands" and not RERANK.is_off(trace.config)
    if blends and all(band.retrieval >= 1 for band in rerank.bands):
        words = "retrieval has all of the score in every band: the reranker changes nothing"
        yield KnownMistake(RERANK.name, "rerank.bands", 1, words)


def typos(memory_id: str, query: str, config: PipelineConfig, resources: Resources) -> list[KnownMistake]:
    """Words of the query that no memory has, where this memory has one that is nearly the same; none if typos are corrected."""
    settings, memory = config.query.typo_correction, resources.store.memories.get(memory_id)
    if settings.enabled or memory is None:
        return []
    settings = settings.model_copy(update={"enabled": True, "auto_learn": False, "validate_": False})
    own = set(re.findall(r"\w+", resources.store.texts.of(memory).lower()))
    found = [one for one in corrected(query, settings, resources, None).corrections if one.correction in own]
    if not found:
        return []
    pairs = ", ".join(f"“{one.typo}” ({memory_id}: “{one.correction}”)" for one in found)
    return [KnownMistake(QUERY.name, "query.typo_correction.enabled", len(found), f"no memory has {pairs}")]


def _of_engines(trace: Trace) -> Iterator[KnownMistake]:
    """Lists of lexical engines that were cut by row, or are empty because every word must occur."""
    answers = trace.evidence.notes.get("engines") or {}
    for use in trace.stage(LISTS).fields.lists:
        answer = answers.get(use.name)
        if not use.active or not isinstance(answer, Mapping):
            continue
        matches, words = int(answer.get("matches", 0)), int(answer.get("words", 0))
        if answer.get("cut") == "row" and matches > use.gathered:
            yield _row_cut(trace, use, matches, answer)
        section = getattr(trace.config.lists, use.source)
        if getattr(section, "match", "") == "all" and not matches and words > 1:
            said = f"{list_label(use.name)} is empty: all {words} words must occur in one memory"
            yield KnownMistake(LISTS.name, f"lists.{use.source}.match", words, said)


def _row_cut(trace: Trace, use: ListUse, matches: int, answer: Mapping[str, Any]) -> KnownMistake:
    first = "oldest" if trace.config.get(f"lists.{use.source}.rows") == "created" else "first imported"
    missed = answer.get("best_match")
    counted, best = f"{matches}", "; the best match is among them"
    if missed:
        best = f"; the best match, {missed}, is not among them"
    elif answer.get("more_matches"):
        counted, best = f"more than {matches:,}", ""
    words = f"{list_label(use.name)} holds the {use.gathered} {first} of {counted} matches{best}"
    return KnownMistake(LISTS.name, f"lists.{use.source}.cut", matches - use.gathered, words)


def _unreached_threshold(trace: Trace) -> Iterator[KnownMistake]:
    """A threshold above the best score of every vector list that it cuts."""
    search = trace.stage(THRESHOLD).fields.search
    if search is None or "vector" not in trace.config.threshold.applies_to:
        return
    vector = {use.name for use in trace.stage(LISTS).fields.lists if use.source == "vector" and use.active}
    scores, others = [], 0
    for row in trace.stage(THRESHOLD).rows:
        scores += [entry.normalized for entry in row.lists if entry.list in vector]
        others += any(entry.kept for entry in row.lists if entry.list not in vector)
    if not scores or max(scores) >= search.final:
        return
    remarks = ((score, as_cosine(trace.config, score)) for score in (search.final, max(scores)))
    least, best = (f"{score:.4g}" + (f" ({remark})" if remark else "") for score, remark in remarks)
    instead = f"; the {others} that remain are from other lists" if others else ""
    words = f"no vector score can reach {least}: the best of {len(scores)} is {best}{instead}"
    path = "threshold.adaptive.max" if trace.config.threshold.mode == "adaptive" else "threshold.fixed"
    yield KnownMistake(THRESHOLD.name, path, len(scores), words)


def _shut_out(trace: Trace) -> Iterator[KnownMistake]:
    """Hits of lists from which no candidate may come."""
    allowed = trace.config.fusion.candidates_from
    if not allowed:
        return
    uses = {use.name: use for use in trace.stage(LISTS).fields.lists if use.active and use.used}
    refused = {row.memory_id for row in trace.stage(FUSION).rows if not row.kept}
    out = Counter(
        entry.list
        for row in trace.stage(LISTS).kept
        if row.memory_id in refused
        for entry in row.lists
        if entry.kept and entry.list in uses and uses[entry.list].source not in allowed
    )
    if not out:
        return
    hits = ", ".join(f"{count} of the {uses[name].used} hits of {list_label(name)}" for name, count in out.items())
    inside = " and ".join(f"the {use.used} of {list_label(use.name)}" for use in uses.values() if use.source in allowed)
    words = f"{hits} cannot enter: outside {inside or 'lists that are empty'}, from which alone candidates come"
    yield KnownMistake(FUSION.name, "fusion.candidates_from", len(refused), words)


def _divided(trace: Trace) -> Iterator[KnownMistake]:
    divisor = trace.stage(FUSION).fields.divisor
    if divisor <= 1:
        return
    uses = (use for use in trace.stage(LISTS).fields.lists if use.active and use.used)
    hits = ", ".join(f"{use.used} in {list_label(use.name)}" for use in uses)
    by = "halved" if divisor == 2 else f"divided by {divisor:g}"
    words = f"all scores of this query are {by} because its lists have hits ({hits}): they cannot be compared with those of a query that "
    words += "has hits in fewer lists"
    yield KnownMistake(FUSION.name, "fusion.divisor", len(trace.stage(FUSION).kept), words)


def _rank_threshold(trace: Trace) -> Iterator[KnownMistake]:
    """A minimum score on a score that is a sum of rank shares."""
    config, least = trace.config, trace.config.filter.min_score
    fields = trace.stage(FUSION).fields
    by_rank = fusion_method(config.fusion).reads == "ranks" and config.fusion.normalize == "none"
    if least is None or not by_rank or fields.bypassed or fields.score_blend or FILTER.is_off(config):
        return
    rows = trace.stage(FUSION).kept
    alone = [row for row in rows if len(row.contributions) == 1]
    dropped = [row for row in alone if row.score is not None and row.score < least]
    if not dropped:
        return
    lasts = _last_passing(rows, least * fields.divisor, trace)
    if not any(lasts.values()):
        passes = "never passes"
    elif len(set(lasts.values())) == 1:
        (last,) = set(lasts.values())
        passes = "passes only as its first" if last == 1 else f"passes only in its first {last}"
    else:
        passes = "passes only down to rank " + ", ".join(f"{last} of {name}" for name, last in lasts.items())
    words = f"minimum {least:g} on a score of rank shares ({config.fusion.method}): a memory found by one list {passes}"
    words += f"; {len(dropped)} of the {len(alone)} found by one list are dropped"
    yield KnownMistake(FILTER.name, "filter.min_score", len(dropped), words)


def _last_passing(rows: list[FusionRow], least: float, trace: Trace) -> dict[str, int]:
    """By label of a list the last rank whose share alone reaches `least`, 0 for none."""
    bonus = trace.config.fusion.top_rank_bonus
    once = bonus.mode == "best_rank"
    lasts: dict[str, int] = {}
    for row in rows:
        for part in row.contributions:
            share = part.base + part.bonus
            if once and part.rank <= 3:
                share += bonus.rank1 if part.rank == 1 else bonus.rank2_3
            passing = part.rank if share >= least else 0
            lasts[list_label(part.list)] = max(lasts.get(list_label(part.list), 0), passing)
    return lasts


def _below_floor(trace: Trace) -> Iterator[KnownMistake]:
    fields, floor = trace.stage(ASSEMBLY).fields, trace.config.assembly.min_vector_score
    below = fields.below_vector_floor
    if not below:
        return
    left, what = len(trace.results), "result fell" if len(below) == 1 else "results fell"
    words = f"{len(below)} {what} below the vector floor of {floor:g} after the limit, and nobody moved up"
    words += f": {left} {'is' if left == 1 else 'are'} left"
    yield KnownMistake(ASSEMBLY.name, "assembly.min_vector_score", len(below), words)


CROWDED = "assembly.strategy"
"""The parameter that results of one document name."""
MIN_CROWD = 3
"""Least results of one document that are a crowd; they are also at least half."""
_CHUNK_ID = re.compile(r"(.+?)[-_.:/#]+(?:chunk|part)?[-_.:/#]*\d+$")


def crowding(trace: Trace, memory_id: str, k: int) -> list[KnownMistake]:
    """That one document or session fills the first k results, if this memory is not of it; empty otherwise, or of an external trace."""
    if trace.external or memory_id not in trace.evidence.memories:
        return []
    memories = trace.evidence.memories
    first = [result.memory_id for result in trace.results[:k]]
    counted = Counter(group for key in first for group in _groups(memories[key]))
    own = _groups(memories[memory_id])
    most = next((one for one in counted.most_common() if one[0] not in own), None)
    if memory_id in first or most is None or most[1] < max(MIN_CROWD, len(first) / 2):
        return []
    (what, name, _), count = most
    words = f"{count} of the first {len(first)} are {what} {name}, {memory_id} is not"
    return [KnownMistake(ASSEMBLY.name, CROWDED, count, words)]


def _groups(memory: Memory) -> list[tuple[str, str, datetime | None]]:
    """The documents and the session that a memory is of; numbered ids are chunks of one document if they were made at one moment."""
    numbered = _CHUNK_ID.match(memory.id)
    document = None if (memory.source_ref or "").startswith(PROJECT_REFERENCE) else memory.source_ref
    found = [("chunks of", numbered[1], memory.created_at)] if numbered else []
    found += [("from", document, None)] if document else []
    return [*found, *([("of the session", memory.session, None)] if memory.session else [])]


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
    """The next step for the query of a trace. `grades` are the query's judgments by memory id, relevant from
    `relevant_from` on; `answerable` is what people say about the query: whether the store answers it, None if unknown.
    `k` is the rank from which on a memory is missing, by default the result limit."""
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
        or _stale(trace, wanted)
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


def _stale(trace: Trace, wanted: list[str] | None = None) -> NextStep | None:
    """That the first result is stale; with `wanted`, that any is which people do not judge relevant."""
    found = first_result_stale(trace, anywhere=wanted is not None)
    if found is None or found.memory_id in (wanted or ()):
        return None
    words = first_result_words(found)
    if found.successor is None:
        return NextStep("expired", words, "supersession", found.memory_id)
    return NextStep("superseded", words, "why", found.successor)


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
        bound = not_shown(trace.evidence, "which") if memory_id not in trace.evidence.memories else ""
        return bound or "which no list found"
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
        row = next((row for row in stage.rows if row.rank_in == 1 and not row.kept), None)
        if row is None or row.memory_id in kept:
            continue
        if grades.get(row.memory_id, relevant_from) < relevant_from:
            return None  # judged irrelevant: what should be dropped is dropped
        reason = f": {row.reason}" if row.reason else ""
        words = f"The best candidate before {stage.name}, {row.memory_id}, was dropped by it{reason}."
        return NextStep("dropped", words, "why", row.memory_id)
    return None


def _low(trace: Trace, grades: Mapping[str, int], wanted: list[str]) -> NextStep | None:
    ranks = trace.ranks
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
    ranked = [result.memory_id for result in trace.results]
    if not grades:
        words = "No result is judged for this query: grade what answers it, and what it loses is counted and explained."
        return NextStep("unjudged", words, "label", ranked[0])
    if not wanted:
        judged = "The only judged memory" if len(grades) == 1 else f"Each of the {len(grades)} judged memories"
        words = f"{judged} is irrelevant to this query: grade the results."
        return NextStep("unjudged", words, "label", next((key for key in ranked if key not in grades), ranked[0]))
    all_of = "The memory judged relevant is" if len(wanted) == 1 else f"All {len(wanted)} memories judged relevant are"
    words = f"{all_of} among the results: see which other queries lose theirs."
    return NextStep("good", words, "evaluate")
