"""Why report: path, cause, counterfactuals in order, and the nearest change if none succeeds.

The search for changes that bring one memory in: a change of one parameter by replay, then what needs a new search, then two together.

    read      with the store, the scores that decide what reading further does: of the memory, and of all that are ranked before it, at
              most `MAX_READ`; so rerank.depth and its like are replayed with measured scores
    singles   every parameter that replay reads, each alone
    sentence  of a long query the last sentence alone
    causes    the parameters that the cause names, also those that need a new search; with results of one document, dedup and MMR
    others    if nothing helped yet: deeper lists, then other new searches, then pairs, then a new search with one parameter
    words     last, if nothing else helped: words of the memory itself, which help this query only

What was found without some of the reranker's scores is replayed with them (`with_scores`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from cems_workbench.analysis.graph_lists import GraphPlace, graph_places
from cems_workbench.analysis.known_mistakes import crowding, known_mistakes, typos
from cems_workbench.analysis.ranks import target_rank
from cems_workbench.analysis.stage_mistakes import KnownMistake, with_those_of_set
from cems_workbench.analysis.supersession import standing_sentence
from cems_workbench.analysis.vector_origins import StoredVector, stored_vector
from cems_workbench.analysis.why.counterfactual import (
    Counterfactual,
    attempts,
    change_of,
    counterfactual_of,
    interval_text,
    moved_text,
    nearest_value,
    order_text,
    ordered,
    pair_counterfactuals,
    searched_specs,
    single_counterfactuals,
    supersession_counterfactuals,
    with_labels,
    with_scores,
)
from cems_workbench.analysis.why.first_fix import NO_STORE, NOT_GATHERED, NOT_JUDGED, FirstFix, first_fix
from cems_workbench.analysis.why.path import DIVERSITY, MemoryPath, cause, cause_parameters, memory_path
from cems_workbench.analysis.why.regather import (
    PROMISING,
    Missed,
    cause_tries,
    depth_tries,
    gather_counterfactuals,
    graph_tries,
    in_reach,
    list_ranks,
    nearest_missed,
    other_tries,
    others_only_lower,
    sentence_tries,
    with_a_parameter,
    with_own_score,
    word_tries,
)
from cems_workbench.analysis.why.trial import LabelledSet, Trials
from cems_workbench.config import PipelineConfig, field_spec, field_specs, with_values
from cems_workbench.config.model import changed
from cems_workbench.pipeline import Trace, replay
from cems_workbench.pipeline.evidence import Evidence
from cems_workbench.pipeline.gather import Request, gather_scores
from cems_workbench.pipeline.list_sources import list_label, ordinal
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages import FILTER, RERANK
from cems_workbench.pipeline.stages.rerank import model_key
from cems_workbench.pipeline.stages.result import plain_fields
from cems_workbench.progress import Progress, silent
from cems_workbench.results import Table

MAX_READ = 100
"""Most candidates before the memory that the reranker reads for a search of changes."""


@dataclass(frozen=True)
class Found:
    """The changes that succeed, and those that came near; `tried` parameters by replay, `searches` that were made again."""

    changes: list[Counterfactual]
    near: list[Counterfactual]
    tried: int
    searches: int
    replays: int

    @property
    def untried(self) -> str:
        """ "118 that need a new search, 5 that are lists or texts": the parameters that were not tried."""
        single = {spec.path for spec in searched_specs()}
        rest = [spec for spec in field_specs() if spec.path not in single and spec.section != "judge"]
        gather = sum(spec.cost == "gather" for spec in rest) - self.searches
        other = sum(spec.cost != "gather" for spec in rest)
        return f"{gather} that need a new search, and {other} that hold lists"


def search_changes(
    trials: Trials,
    config: PipelineConfig,
    path: MemoryPath,
    causes: Collection[str],
    open_store: tuple[Request, Resources] | None,
    progress: Progress = silent,
) -> Found:
    """The changes that bring the memory of `trials` in, in no order; `causes` are parameters that made the loss."""
    if open_store:
        trials = read_further(trials, config, path, open_store[1], progress)
    there = trials.column is not None
    found, active = single_counterfactuals(trials, config, progress) if there else ([], [])
    found += supersession_counterfactuals(trials, config, found)
    found += _cause_counterfactuals(trials, config, causes) if there else []
    missed: list[Missed] = []
    near: list[Counterfactual] = []
    searches = 0

    def gather(tries: Iterable[Counterfactual]) -> None:
        nonlocal searches
        assert open_store is not None
        listed = list(tries)
        searches += len({tuple(one.values) for one in listed})
        good, bad = gather_counterfactuals(trials, config, *open_store, listed, progress)
        found.extend(good)
        missed.extend(bad)

    if open_store:
        gather(cause_tries(config, causes))
        gather(graph_tries(trials, config, *open_store))
        gather(sentence_tries(config, open_store[0]))
        if not found or path.status == "in no list":
            gather(depth_tries(config, open_store[0], path.places))
        if not found:
            gather(other_tries(config, causes, path.places))
    if not found and there:
        tried = attempts(trials, config, active)
        found += pair_counterfactuals(trials, config, tried, progress)
        near += [counterfactual_of(trials, config, [best]) for _, best in tried[:1]]
    if open_store:
        score = partial(_scored, open_store[1], trials.switched_off, progress)
        if not found:
            missed, found = nearest_missed(missed, trials, config, open_store[1], PROMISING)
            found = found or with_a_parameter(missed, trials, config, score, progress)
        found = with_scores(found, trials, config, score)
        if not found:
            gather(word_tries(trials, config, open_store[1]))
        if not found:
            missed, found = nearest_missed(missed, trials, config, open_store[1], 1)
    near += [one.change for one in missed if one.read]
    found = [
        replace(one, of_cause=bool(one.values) and set(one.values) <= set(causes))
        for one in found
        if _holds(one, trials.k)
    ]
    return Found(found, near, len(searched_specs()), searches, trials.count)


def _holds(change: Counterfactual, k: int) -> bool:
    """Whether it was replayed with the memory among the first k, as a search shows it."""
    return change.rank is not None and change.rank <= k


def read_further(
    trials: Trials, config: PipelineConfig, path: MemoryPath, resources: Resources, progress: Progress = silent
) -> Trials:
    """The trials with the reranker's scores of the memory and of all candidates before it. Of the memory alone if those
    are more than `MAX_READ`, or if it is past the depth and would not come in without them either. The same trials
    where the reranker is off, or failed to read one of them."""
    if RERANK.is_off(config) or trials.column is None:
        return trials
    before = path.step(FILTER.name)
    deeper, limits = config, {}
    if before is not None and before.rank is not None and config.rerank.depth is not None:
        limits = {
            "rerank.depth": max(config.rerank.depth, before.rank),
            "rerank.score_window": 1.0,
            "rerank.brief.total_chars": field_spec("rerank.brief.total_chars").high,
        }
        every = {"rerank.position": "before_adjust", "rerank.expected_misses": None, "rerank.skip_if_few": False}
        deeper = with_values(config, limits | every)
        if before.rank > config.rerank.depth and others_only_lower(deeper):
            own = with_own_score(trials, config, resources)
            limits = limits if in_reach(own.outcome(deeper).stood, trials.k) else {}
    if not limits or trials.outcome(deeper).needs > MAX_READ:
        deeper, limits = config, {}
    known, key = trials.evidence, model_key(config.rerank)
    evidence = gather_scores(
        known, deeper, resources, progress, only="rerank", switched_off=trials.switched_off, also=[trials.memory_id]
    )
    fresh = evidence.model_scores.get(key, {}).keys() - known.model_scores.get(key, {}).keys()
    if not all(evidence.model_scores[key][one].good for one in fresh):
        return trials
    further = trials.on(evidence) if fresh else trials
    further.gathered = {**trials.gathered, **limits}
    return further


def _cause_counterfactuals(trials: Trials, config: PipelineConfig, causes: Collection[str]) -> Iterator[Counterfactual]:
    """Causes that no slider has: a list of names is emptied; a switch for diversity is turned on, and what acts with it searched."""
    for path in sorted(causes):
        now = config.get(path)
        names = isinstance(now, tuple) and bool(now) and all(isinstance(one, str) for one in now)
        if names and trials.succeeds(changed(config, path, ())):
            yield counterfactual_of(trials, config, [change_of(config, path, ())])
    for (path, value), further in DIVERSITY.items():
        on = changed(config, path, value)
        if path not in causes or trials.succeeds(on):
            continue
        switch = [] if on == config else [change_of(config, path, value)]
        for own in further:
            hit = nearest_value(trials, on, field_spec(own))
            if hit is not None and switch:
                yield counterfactual_of(trials, config, [*switch, hit])


def _scored(
    resources: Resources, switched_off: Collection[int], progress: Progress, evidence: Evidence, config: PipelineConfig
) -> Evidence:
    return gather_scores(evidence, config, resources, progress, only="rerank", switched_off=switched_off)


NO_FIX = (
    "This pipeline was traced, not run here, so no fix can be computed: that needs a pipeline that can be replayed. "
    "`fidelity --nearest` looks for the preset and parameters that come closest to it."
)
"""What `why` says instead of changes for an external trace."""


SINGLE = "single parameter"
MAX_CHANGES = 12
"""Changes that a person is shown."""


@dataclass(frozen=True)
class Why:
    """`counterfactuals` begins with the change of `fix`, and then is `ordered`. `nearest` is the change with the
    memory's best rank if no change succeeds; `replays` were made for the search. `mistakes` are those of the config and
    its stages in this query, and those of its set where that is known, whether or not they concern the memory."""

    query: str
    path: MemoryPath
    cause: str
    counterfactuals: tuple[Counterfactual, ...]
    nearest: Counterfactual | None
    verdict: str
    replays: int
    mistakes: tuple[KnownMistake, ...] = ()
    standing: str = ""
    """By which memory it is superseded, or which one it supersedes, and where that one is; or when it expired. Empty if none is so."""
    fix: FirstFix | None = None
    """The change to try first; None if the memory needs none."""
    vector: StoredVector | None = None
    """A vector of the memory that is not of its text; None if all are."""
    graph: tuple[GraphPlace, ...] = ()
    """Where a search of Chroma's graph has it; empty where this process does not have the graph open."""

    @property
    def lines(self) -> tuple[str, ...]:
        """The fix, the cause, a vector that is not of the text, what supersedes it, known mistakes, and the verdict."""
        said = [self.fix and self.fix.sentence, self.cause, self.vector and self.vector.sentence, self.standing]
        said += [f"known mistake: {mistake.line}" for mistake in self.mistakes]
        said += [self.graph_line]
        return tuple(line for line in (*said, self.verdict) if line)

    @property
    def graph_line(self) -> str:
        """That the graph misses it in every vector list that has it; empty if it does not."""
        missed = [one for one in self.graph if one.rank is None]
        return f"{missed[0].list}: {missed[0].words}." if missed and len(missed) == len(self.graph) else ""

    @property
    def tables(self) -> tuple[Table, ...]:
        """The changes if there are any, the way through the stages, and the place in each list if it is known."""
        return (*([self.changes] if self.changes else []), self.way, *([self.in_lists] if self.in_lists else []))

    @property
    def changes(self) -> Table:
        """The changes that bring the memory in, else what comes nearest, with what they do to the other results."""
        rows = tuple(_change(one) for one in self.counterfactuals or ([self.nearest] if self.nearest else []))
        title = "changes that bring it in" if self.counterfactuals else "what comes nearest"
        columns = ("change", "rank", "breakpoint", "side effects", "scores lacking", "on the judged queries")
        further = ("gathers", "tau of others", "others dropped", "gain nDCG@10")
        return Table((*columns, *further), rows, title, shown=MAX_CHANGES, unshown=further)

    @property
    def way(self) -> Table:
        """The path of the memory: a row for each stage."""
        rows = (
            (
                step.stage,
                step.rank_in,
                step.rank,
                step.score,
                ("lost here: " if step.stage == self.path.lost_at else "") + step.words,
            )
            for step in self.path.steps
        )
        return Table(("stage", "rank in", "rank", "score", "what happened"), tuple(rows), "path through the stages")

    @property
    def in_lists(self) -> Table:
        """Its place in each list when the whole store is searched."""
        rows: list[tuple[Any, ...]] = []
        for place in self.path.places:
            rows.append((list_label(place.list), place.rank, place.score, place.words))
            rows += [("its graph", one.rank, None, one.words) for one in self.graph if one.list == place.list]
        return Table(("list", "rank", "score", "whole store"), tuple(rows), "its place in each list")

    @property
    def notes(self) -> tuple[str, ...]:
        """How the changes are ordered, and what their columns say."""
        found, said = self.counterfactuals, []
        if found:
            said.append(order_text(found))
        if any(one.labelled for one in found):
            said.append(
                "on the judged queries: verdict and gain of mean nDCG@10, its 95 % interval, and those that gain and lose their only hit"
            )
        if any(one.needs for one in found):
            said.append("scores lacking: candidates that the reranker never scored; the result may differ once it has")
        return tuple(said)

    @property
    def redacted(self) -> Why:
        return replace(
            self,
            fix=self.fix and self.fix.redacted,
            counterfactuals=tuple(one.redacted for one in self.counterfactuals),
            nearest=self.nearest and self.nearest.redacted,
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "query": self.query,
            "memory_id": self.path.memory_id,
            **plain_fields(self, "fix"),
            **plain_fields(self.path, "k status rank lost_at"),
            **plain_fields(self, "cause standing vector"),
            **({"graph": [asdict(one) for one in self.graph]} if self.graph else {}),
            "path": plain_fields(self.path, "steps")["steps"],
            **plain_fields(self.path, "places"),
            **plain_fields(self, "counterfactuals nearest verdict replays"),
            "known_mistakes": [mistake.to_json() for mistake in self.mistakes],
        }


def _change(one: Counterfactual) -> tuple[Any, ...]:
    """A row of `Why.changes`."""
    effect, judged = one.labelled, None
    if effect is not None:
        unscored = f"; reranker has not read all in {effect.unscored}" if effect.unscored else ""
        hits = f"hits +{len(effect.gained)} −{len(effect.lost)}"
        judged = f"{effect.verdict.kind}: {effect.gain:+.3f}, {interval_text(effect)}; {hits}{unscored}"
    points = [f"{change.breakpoint.succeeds:.6g}" for change in one.changes if change.breakpoint]
    return (
        one.words,
        one.rank,
        ", ".join(points) or None,
        f"{moved_text(one.side_effects)}, {one.side_effects.gone or 'none'} dropped",
        one.needs or None,
        judged,
        one.gathers,
        one.side_effects.tau,
        one.side_effects.gone,
        effect and effect.gain,
    )


def explain(
    memory_id: str,
    evidence: Evidence,
    config: PipelineConfig,
    *,
    k: int | None = None,
    request: Request | None = None,
    resources: Resources | None = None,
    labelled: LabelledSet | None = None,
    switched_off: Collection[int] = (),
    of_set: Sequence[KnownMistake] = (),
    progress: Progress = silent,
) -> Why:
    """Why `memory_id` is not among the first k results, and the changes that would bring it there.

    Args:
        k: results that count; None is the config's limit.
        request, resources: the query and its store; with them lists are searched in full and gather changes are tried.
        labelled: kept evidence of labelled queries, to order counterfactuals by their effect there.
        switched_off: query variants left out, as in `replay`.
        of_set: what the stages show over the queries of the set that the query is of; by default over the labelled ones.

    A `Cancelled` from `progress` passes through.
    """
    k = k or target_rank(config)
    if evidence.external:
        return _of_external(memory_id, replay(evidence, config), k, of_set)
    open_store = None if request is None or resources is None else (replace(request, as_of=evidence.as_of), resources)
    places = list_ranks(memory_id, evidence, config, *open_store) if open_store else []
    trace = replay(evidence, config, switched_off=switched_off)
    path = memory_path(trace, memory_id, k, places)
    trials = Trials(evidence, memory_id, k, switched_off, config)
    of_set = of_set or (labelled.mistakes(config) if labelled else ())
    own = [*known_mistakes(trace), *crowding(trace, memory_id, k)]
    if open_store:
        own += typos(memory_id, evidence.searched, config, open_store[1])
    mistakes = with_those_of_set(own, of_set)
    above = trials.stale_above(config)
    inside = path.status == "in the top k"
    if inside:
        # It is where it was wanted, but a reader takes the older memory above it for the truth.
        found = Found(supersession_counterfactuals(trials, config), [], 1, 0, trials.count)
    else:
        found = search_changes(trials, config, path, cause_parameters(trace, path, mistakes), open_store, progress)
    changes = with_labels(found.changes, labelled, config, k, progress) if labelled else ordered(found.changes)
    nearest = None if changes or inside else _nearest(found.near, trials.shown(config).stood)
    vector = stored_vector(path, evidence, config, *open_store, switched_off, progress) if open_store else None
    verdict = _verdict(path, changes, nearest, found, open_store is not None, above, vector)
    fix = None
    if not inside or above is not None:
        unchecked = "" if labelled else _unchecked(resources)
        fix = first_fix(memory_id, k, changes, unchecked=unchecked, above=above, inside=inside, vector=vector)
        changes.sort(key=lambda one: one is not fix.change)
    return Why(
        evidence.query,
        path,
        cause(path, trace),
        tuple(changes),
        nearest,
        verdict,
        found.replays,
        mistakes,
        standing_sentence(trace, memory_id, k),
        fix,
        vector,
        graph_places(memory_id, evidence, config, *open_store) if open_store else (),
    )


def _of_external(memory_id: str, trace: Trace, k: int, of_set: Sequence[KnownMistake]) -> Why:
    """Where an external trace loses a memory. There is nothing to try: no config changes recorded stages."""
    path = memory_path(trace, memory_id, k)
    verdict = "It needs no change." if path.status == "in the top k" else NO_FIX
    standing = standing_sentence(trace, memory_id, k)
    mistakes = with_those_of_set(known_mistakes(trace), of_set)
    return Why(trace.evidence.query, path, cause(path, trace), (), None, verdict, 0, mistakes, standing)


def _unchecked(resources: Resources | None) -> str:
    """Why no change was measured on judged queries."""
    if resources is None:
        return NO_STORE
    return NOT_GATHERED if resources.store.judgments.count_queries("human") else NOT_JUDGED


def _nearest(missed: Sequence[Counterfactual], now: int | None) -> Counterfactual | None:
    """The attempt with the memory's best rank, in the results first; None if none improves it."""
    nearer = [one for one in missed if one.place is not None and (now is None or one.place < now)]
    return min(nearer, key=lambda one: (one.rank is None, one.place, one.distance), default=None)


def _verdict(
    path: MemoryPath,
    changes: list[Counterfactual],
    nearest: Counterfactual | None,
    found: Found,
    with_store: bool,
    above: str | None,
    vector: StoredVector | None,
) -> str:
    if path.status == "in the top k":
        if above is None:
            return (
                "It needs no change."
                if vector is None
                else "It needs no other config, but another vector: re-embed it."
            )
        modes = ", ".join(f"{one.assigned}" for one in changes)
        return (
            f"{modes} would put it above {above}, which it supersedes."
            if modes
            else f"No mode of supersession puts it above {above}, which it supersedes."
        )
    untried = f" Not tried: {found.untried}." if with_store else f" Not tried without the store: {found.untried}."
    if changes:
        kinds = Counter(kind for kind, _ in {(_kind(one), _parameters(one)) for one in changes})
        alone = kinds.pop(SINGLE, 0)
        listed = [f"{alone} of {found.tried} {SINGLE}s tried"] if alone else []
        listed += [f"{count} {kind}{'s' if count != 1 else ''}" for kind, count in kinds.items()]
        none = "" if alone else f" None of the {found.tried} {SINGLE}s tried does."
        return f"{' and '.join(listed)} would bring it {_aim(path.k)}.{none}{untried}"
    if nearest is None:
        return f"Nothing that was tried brings it any nearer.{untried}"
    left_out = "" if nearest.rank is not None else ", still left out of the results"
    return (
        f"Nothing that was tried brings it {_aim(path.k)}; what comes nearest puts it "
        f"{ordinal(nearest.place or 0)}{left_out}.{untried}"
    )


def _parameters(one: Counterfactual) -> tuple[str, ...]:
    return (*one.values, *one.terms)


def _kind(one: Counterfactual) -> str:
    return "pair" if one.parts > 1 else "gather change" if one.gathers else SINGLE


def _aim(k: int) -> str:
    return "first" if k == 1 else f"into the first {k}"
