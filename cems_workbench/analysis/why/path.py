"""Path of one memory through every stage of a trace, in words; the stage that lost it, and the cause in one sentence.

`analysis/ranks.py:loss` defines lost; the sentence names that stage first, then its effect on the memory. A memory is meant by its id, or
by a piece of its text: as written (ignoring case), else without punctuation and white space, else by its words, if the best of a lexical
search has most of them and no other has as many. Several that have the text are named, and none is taken.

The parameters that made the loss are its causes; a change of one of them is tried first, and where it works it is the fix to try first:

    dropped by a rule       the parameters of that rule
    pushed down by factors  those of adjust
    never read              what decides how many candidates the reranker reads
    in no list              the depths that would have held it
    missed by the graph     which index is searched, and how many candidates its graph keeps
    known mistakes          theirs; of results that one document fills, those of dedup and MMR

Parameters that weigh (weights, bands, k) are no cause: every memory is ranked by them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from rapidfuzz import process

from cems_workbench.analysis.known_mistakes import CROWDED
from cems_workbench.analysis.ranks import loss, stage_words
from cems_workbench.analysis.stage_mistakes import KnownMistake
from cems_workbench.config import field_specs
from cems_workbench.errors import InputError
from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.list_sources import SOURCES, list_label, ordinal
from cems_workbench.pipeline.recorded import NOT_READ, NOT_RETURNED
from cems_workbench.pipeline.stages import ADJUST, RERANK, SUPERSESSION
from cems_workbench.pipeline.stages.abstain import ABSTAIN
from cems_workbench.pipeline.stages.adjust import largest_cut
from cems_workbench.pipeline.stages.assembly import ASSEMBLY
from cems_workbench.pipeline.stages.lists import LISTS, ranks_text
from cems_workbench.pipeline.stages.rerank import unit_words
from cems_workbench.pipeline.stages.threshold import THRESHOLD
from cems_workbench.records import Memory
from cems_workbench.store import Selection, Store

if TYPE_CHECKING:
    from cems_workbench.pipeline.resources import Resources


MAX_NAMED = 4
"""Memories named where several have the text."""
LOOKED_AT = 50
"""Memories of the lexical search whose texts are compared."""
SHARE = 0.6
"""Least share of the words of the text that a memory has which is taken by its words."""
EXCERPT = 60


def stored_memory(named: str, resources: Resources) -> str:
    """The id of the memory of the store that is meant. Raises InputError with the nearest ids, or with those that have the text."""
    store = resources.store
    if store.memories.known([named]):
        return named
    if not _is_text(named):
        require_stored(named, store)
    found = store.memories.find(Selection(text=named.strip(), sort="id", descending=False), MAX_NAMED + 1)
    near = [memory_id for memory_id, _ in resources.indexes.lexical.search(named, LOOKED_AT)]
    return _meant(named, found.memories, list(store.memories.read(near).values()))


def known_memory(named: str, memories: Mapping[str, Memory], bound: str = "") -> str:
    """The same among the memories of an evidence; `bound` is why no other memory can be in it."""
    if not named.strip():
        raise InputError("name a memory")
    if named not in memories and not _is_text(named) and bound:
        raise InputError(bound)
    if named in memories or not _is_text(named):
        require_known(named, memories)
        return named
    every = sorted(memories.values(), key=lambda memory: memory.id)
    return _meant(named, [one for one in every if named.strip().casefold() in one.content.casefold()], every)


def taken(named: str, memory: Memory) -> str:
    """Which memory was taken for a piece of text: "“our notice”: m021, We gave notice …"; empty for an id."""
    return "" if named == memory.id else f"“{_cut(named)}”: {memory.id}, {_cut(memory.content)}"


def require_stored(memory_id: str, store: Store) -> None:
    """Raise InputError naming the nearest ids if the store has no such memory."""
    if not store.memories.known([memory_id]):
        require_known(memory_id, store.memories.ids())


def require_known(memory_id: str, known: Iterable[str]) -> None:
    """Raise InputError naming the nearest ids if there is no such memory."""
    ids = list(known)
    if memory_id in ids:
        return
    close = [match[0] for match in process.extract(memory_id, sorted(ids), limit=3, score_cutoff=50)]
    hint = f"; the nearest are {', '.join(close)}" if close else ""
    raise InputError(f"{memory_id}: no such memory{hint}")


def _is_text(named: str) -> bool:
    """Whether it may be a piece of text: several words, or one of a script without spaces."""
    return len(named.split()) > 1 or not named.isascii()


def _meant(named: str, exact: Sequence[Memory], near: Sequence[Memory]) -> str:
    plain, words = _plain(named), set(_plain(named).split())
    alike = [one for one in near if plain and plain in _plain(one.content)]
    for those in (exact, alike):
        if len(those) == 1:
            return those[0].id
        if those:
            raise InputError(f"several memories have “{_cut(named)}”: {_list(those)}")
    shared = {one.id: len(words & set(_plain(one.content).split())) for one in near}
    best = sorted((one for one in near if shared[one.id]), key=lambda one: -shared[one.id])
    if best and shared[best[0].id] >= SHARE * len(words):
        first = [one for one in best if shared[one.id] == shared[best[0].id]]
        if len(first) == 1:
            return first[0].id
    nearest = f"; the nearest are {_list(best)}" if best else ""
    raise InputError(f"no memory has “{_cut(named)}”{nearest}")


def _list(memories: Sequence[Memory]) -> str:
    more = f" and {len(memories) - MAX_NAMED} more" if len(memories) > MAX_NAMED else ""
    return "; ".join(f"{one.id} ({_cut(one.content)})" for one in memories[:MAX_NAMED]) + more


def _plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= EXCERPT else f"{line[: EXCERPT - 1]}…"


READING = frozenset(
    {
        "rerank.depth",
        "rerank.score_window",
        "rerank.expected_misses",
        "rerank.position",
        "rerank.skip_if_few",
        "rerank.below_depth",
        "rerank.brief.total_chars",
    }
)
"""Parameters that decide which candidates the reranker reads, and what becomes of the others."""
DIVERSITY = {
    ("dedup.enabled", True): ("dedup.similarity",),
    ("assembly.strategy", "mmr"): ("assembly.mmr_procedure", "assembly.mmr_similarity", "assembly.mmr_lambda"),
}
"""Switches that keep results apart, and the parameters that act only with them."""
_RULES: Mapping[str, tuple[str, ...]] = {
    "threshold": ("threshold.",),
    "filter": ("filter.",),
    "supersession": ("supersession.",),
    "gap": ("gap.ratio",),
    "dedup": ("dedup.similarity",),
    "abstain": ("abstain.",),
    "assembly": ("assembly.max_tokens", "assembly.min_vector_score", "assembly.mmr_min_value"),
}
"""By stage, how the parameters of the rule begin by which it drops a memory."""


def cause_parameters(trace: Trace, path: MemoryPath, mistakes: Iterable[KnownMistake]) -> frozenset[str]:
    """Paths of the parameters that made the loss; empty if the memory was only outranked."""
    found = {mistake.parameter for mistake in mistakes if mistake.parameter}
    if found & {CROWDED}:
        found |= {own for (switch, _), more in DIVERSITY.items() for own in (switch, *more)}
    if path.status == "in no list":
        found |= {own for place in path.places for values in place.deeper for own in values}
    if path.memory_id in trace.evidence.missed_by_graph:
        found |= {"lists.vector.index", "lists.vector.ef_search"}
    rules = _RULES.get(path.steps[-1].stage, ()) if path.status == "dropped" else ()
    if path.lost_at == ADJUST.name:
        rules = (*rules, "adjust.")
    found |= {spec.path for spec in field_specs() if spec.path.startswith(rules)}
    row = None if RERANK.is_off(trace.config) else trace.stage(RERANK).by_id.get(path.memory_id)
    if row is not None and row.outcome in ("tail", "not_read", "skipped"):
        found |= READING
    return frozenset(found)


def list_text(trace: Trace, memory_id: str, absent: Mapping[str, str] | None = None) -> str:
    """ "22nd in vector:0 (0.41), not in lexical:0": the memory's rank in each list that takes part. `absent` says, by
    list, why the memory is not in it."""
    lists = trace.stage(LISTS)
    return ranks_text(lists.fields, lists.by_id.get(memory_id), absent)


Status = Literal["in the top k", "below the top k", "dropped", "in no list"]


@dataclass(frozen=True, slots=True)
class Step:
    """A stage's effect on the memory: rank and score before and after it, and the same in words."""

    stage: str
    rank_in: int | None
    rank: int | None
    score_in: float | None
    score: float | None
    kept: bool
    words: str


@dataclass(frozen=True, slots=True)
class ListEntry:
    """The memory's rank in an exhaustive search, regardless of depth; rank None: unknown. `depth` memories of the list
    count, and what the first `chunks` chunks hold; None is all. `deeper`: changes of depths, each of which would let
    the list hold the memory."""

    list: str
    rank: int | None
    score: float | None
    depth: int | None
    returned: bool
    words: str
    chunks: int | None = None
    deeper: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class MemoryPath:
    """`lost_at` is the stage that lost the memory (`ranks.loss`); None if it is in the top k or no list returned it."""

    memory_id: str
    k: int
    status: Status
    rank: int | None
    lost_at: str | None
    steps: tuple[Step, ...]
    places: tuple[ListEntry, ...] = ()
    in_lists: str = ""
    """ "below 10 in every list (best: 23rd in vector)" if that is how it was lost."""

    def step(self, stage: str) -> Step | None:
        """That stage's effect, None if the memory did not reach it."""
        return next((step for step in self.steps if step.stage == stage), None)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def memory_path(trace: Trace, memory_id: str, k: int, places: Sequence[ListEntry] = ()) -> MemoryPath:
    """The path of `memory_id`; k counts results. `places` are shown with it: what `list_ranks` returns."""
    steps = tuple(
        Step(
            stage.name,
            row.rank_in,
            row.rank_out,
            row.score_in,
            row.score,
            row.kept,
            stage_words(trace, stage, memory_id),
        )
        for stage in trace.candidate_stages
        if (row := trace.stage(stage).by_id.get(memory_id)) is not None
    )
    last = steps[-1] if steps else None
    rank = last.rank if last is not None and last.stage == trace.run.last.name else None
    end = trace.stage(trace.run.last.name).by_id.get(memory_id)
    past_limit = end is not None and not end.kept and trace.run.results.past_limit(0, trace.columns[memory_id])
    if last is None:
        status: Status = "in no list"
    elif rank is not None and rank <= k:
        status = "in the top k"
    elif rank is not None or past_limit:  # left out for its rank alone
        status = "below the top k"
    else:
        status = "dropped"
    lost = loss(trace, memory_id, k)
    in_lists = "" if lost is None else lost.in_lists
    return MemoryPath(memory_id, k, status, rank, lost.stage if lost else None, steps, tuple(places), in_lists)


def cause(path: MemoryPath, trace: Trace) -> str:
    """Why the memory is where it is, such as "Lost at adjust: m077 was 7th after fusion; time decay over 151 days …"."""
    of_list, rank = trace.evidence.missed_by_graph.get(path.memory_id, ("", 0))
    said = (
        f" Chroma's graph missed it: compared exactly it is {ordinal(rank)} in {list_label(of_list)}."
        if of_list
        else ""
    )
    return _cause(path, trace) + said


def _cause(path: MemoryPath, trace: Trace) -> str:
    name, k = path.memory_id, path.k
    if path.status == "in the top k":
        where = "the first result" if k == 1 else f"in the top {k}"
        return f"{name} is {where}" + ("." if k == 1 else f", at rank {path.rank}.")
    if path.status == "in no list":
        places = "; ".join(f"{list_label(place.list)}: {place.words}" for place in path.places)
        recorded = trace.evidence.recorded
        lost = [f"{one.name}: {one.lost}" for one in recorded.lists if one.lost] if recorded is not None else []
        if lost:
            return f"No recorded list has {name}, but the trace lacks documents of some ({'; '.join(lost)})."
        return f"No list returned {name}" + (f" ({places})." if places else ".")
    if trace.external:
        told = _traced(path, trace)
    elif path.in_lists:
        told = f"{path.in_lists}; {_fused(path, trace)}"
    elif path.lost_at == "lists":
        sources = [(place, source_of(place)) for place in path.places if not place.returned]
        on = [place for place, source in sources if source and trace.config.get(f"lists.{source}.enabled")]
        lacking = [f"{list_label(place.list)}: {place.words}" for place in on]
        told = f"no list keeps {name} ({'; '.join([*lacking, path.steps[-1].words])})"
    elif path.lost_at == ABSTAIN.name:
        stood = ordinal(path.steps[-1].rank_in or 0)
        told = f"nothing was returned because {path.steps[-1].words}; {name} stood {stood}. {answers_at(trace)}"
    elif path.lost_at == THRESHOLD.name:
        told = _thresholded(path, trace)
    else:
        told = _fused(path, trace) if path.lost_at == "fusion" else _later(path, trace)
    last = path.steps[-1]
    if path.status == "dropped" and last.stage != path.lost_at:
        told += f"; {last.stage} dropped it: {_drop_words(last, trace)}"
    return f"Lost at {path.lost_at}: {told}."


def source_of(place: ListEntry) -> str:
    """The source of the list: "fts5" of "fts5:0"; empty of an entry that is about every list."""
    name = place.list.split(":")[0]
    return name if name in SOURCES else ""


def _traced(path: MemoryPath, trace: Trace) -> str:
    """Lost by a recorded stage: where the lists had it, its rank before the stage, and what the stage did."""
    name, stage = path.memory_id, str(path.lost_at)
    step = path.step(stage)
    assert step is not None
    told = f"{name} was {list_text(trace, name)}"
    if stage == LISTS.name:
        return f"{path.in_lists}; {told}" if path.in_lists else f"{told}; the lists did not pass it on"
    if step.rank_in is not None:
        told += f", {ordinal(step.rank_in)} before {stage}"
    if not step.kept:
        return f"{told}; {stage} dropped it: {_drop_words(step, trace)}"
    scored = "" if step.score is None else f" with the score {step.score:.4g}"
    return f"{told}; {stage} put it {ordinal(step.rank or 0)}{scored}"


def _drop_words(step: Step, trace: Trace) -> str:
    """Why a stage dropped it; where a trace gives no reason, what the stage kept of its input: the first of it, or how many it dropped."""
    if step.words != NOT_RETURNED:
        return step.words
    read = [row for row in trace.stage(step.stage).rows if row.reason != NOT_READ]
    kept = sorted(row.rank_in or 0 for row in read if row.kept)
    if kept and kept == list(range(1, len(kept) + 1)):
        return f"{step.words} (it keeps the first {len(kept)} of {len(read)})"
    return f"{step.words} (it drops {len(read) - len(kept)} of {len(read)})"


def _thresholded(path: MemoryPath, trace: Trace) -> str:
    """Dropped by the threshold, or kept in a list that has it below k."""
    name, row = path.memory_id, trace.stage(THRESHOLD).by_id[path.memory_id]
    if not row.kept:
        return f"{name} was {list_text(trace, name)}; its {row.reason}"
    taken = ", ".join(list_label(entry.list) for entry in row.lists if not entry.kept)
    return f"it took {name} from {taken}; {_fused(path, trace)}"


def answers_at(trace: Trace) -> str:
    """Which thresholds of abstain would have returned something: "It answers with abstain.vector at most 0.31"; empty if it did."""
    fields = trace.stage(ABSTAIN).fields
    if not fields.abstained:
        return ""
    joined = " and " if fields.rule == "any" else " or "
    at = [f"abstain.{signal.name} at most {signal.value!r}" for signal in fields.deciding]
    return f"It answers with {joined.join(at)}"


def _fused(path: MemoryPath, trace: Trace) -> str:
    """Its rank after fusion with those in the lists, and what later stages made of it."""
    name = path.memory_id
    step = path.step("fusion")
    if step is None or step.rank is None:
        return f"{name} is {path.steps[-1].words}"
    told = f"{name} was {ordinal(step.rank)} after fusion ({list_text(trace, name, _absent(path.places))})"
    later = [_reranked(trace, name), _adjusted(trace, name)]
    if trace.config.rerank.position == "returned":
        later.reverse()
    end = [clause for clause in later if clause]
    if path.rank is not None and not end:
        end = [f"it ended {ordinal(path.rank)}"]
    return "; ".join([told, *end])


def _later(path: MemoryPath, trace: Trace) -> str:
    """Lost after fusion: its rank before the stage, and the stage's effect."""
    name, stage = path.memory_id, str(path.lost_at)
    step = path.step(stage)
    fusion = path.step("fusion")
    assert step is not None
    if fusion is not None and fusion.rank is not None:
        told = f"{name} was {ordinal(fusion.rank)} after fusion"
        if step.rank_in is not None and step.rank_in != fusion.rank:
            told += f" and {ordinal(step.rank_in)} before {stage}"
    elif step.rank_in is not None:
        told = f"{name}, which no list kept, was {ordinal(step.rank_in)} before {stage}"
    else:
        told = f"{name} was kept by no list"
    if stage == SUPERSESSION.name and step.kept and step.words != "kept":
        return f"{told}; it {'is ' if step.words.startswith('superseded') else ''}{step.words}"
    if stage == RERANK.name and step.kept:
        return f"{told}; {_reranked(trace, name)}"
    if stage == ADJUST.name and step.kept:
        return f"{told}; {_adjusted(trace, name)}"
    if stage == ASSEMBLY.name and path.status != "dropped" and trace.stage(ASSEMBLY).fields.strategy == "mmr":
        return f"{told}; assembly chose for diversity (mmr) and {_mmr(path, trace)}"
    if step.kept:
        return f"{told}; {stage} put it {ordinal(step.rank or 0)}"
    return f"{told}; {stage} dropped it: {step.words}"


def _reranked(trace: Trace, memory_id: str) -> str | None:
    """The effect of rerank, None if the rank did not change."""
    row = trace.stage(RERANK).by_id.get(memory_id)
    if row is None or row.rank_out == row.rank_in or row.rank_out is None:
        return None
    return f"{unit_words(row)} and put it {ordinal(row.rank_out)}"


def _adjusted(trace: Trace, memory_id: str) -> str | None:
    """The effect of adjust, None if the rank did not change."""
    row = trace.stage(ADJUST).by_id.get(memory_id)
    if row is None or row.rank_out == row.rank_in or row.rank_out is None or row.rank_in is None:
        return None
    place = f"put it {ordinal(row.rank_out)}"
    if row.rank_out < row.rank_in:
        return f"its factors lifted it and {place}"
    cut = largest_cut(row)
    return f"{cut} and {place}" if cut else f"{_passed(trace, row.rank_in, row.rank_out)} and {place}"


def _passed(trace: Trace, rank_in: int, rank_out: int) -> str:
    """The memories that overtook one in adjust that no factor lowered."""
    passed = [
        other
        for other in trace.stage(ADJUST).rows
        if (other.rank_in or 0) > rank_in and other.rank_out is not None and other.rank_out < rank_out
    ]
    return f"the factors of others, {passed[0].memory_id} first among them, lifted them past it"


def _mmr(path: MemoryPath, trace: Trace) -> str:
    session = trace.evidence.memories[path.memory_id].session
    ahead = [result.memory_id for result in trace.results if session and result.session == session]
    ahead = [other for other in ahead if other != path.memory_id]
    place = f"put it {ordinal(path.rank)}" if path.rank is not None else "left it out"
    if ahead and (path.rank is None or (trace.stage(ASSEMBLY).by_id[ahead[0]].rank_out or 0) < path.rank):
        return f"{place}: {ahead[0]} stands for its session {session}"
    return f"{place}: others are less like what was chosen"


def _absent(places: tuple[ListEntry, ...]) -> dict[str, str]:
    """Results of a search of the whole store, by list, if the memory was not returned."""
    return {place.list: place.words for place in places if not place.returned}
