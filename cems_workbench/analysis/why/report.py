"""Why report: path, cause, counterfactuals in order, and the nearest change if none succeeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from cems_workbench.analysis.known_mistakes import crowding, known_mistakes, typos
from cems_workbench.analysis.ranks import target_rank
from cems_workbench.analysis.stage_mistakes import KnownMistake, with_those_of_set
from cems_workbench.analysis.supersession import standing_sentence
from cems_workbench.analysis.why.causes import cause_parameters
from cems_workbench.analysis.why.counterfactual import (
    Counterfactual,
    interval_text,
    moved_text,
    order_text,
    ordered,
    supersession_counterfactuals,
    with_labels,
)
from cems_workbench.analysis.why.exhaustive_ranks import list_ranks
from cems_workbench.analysis.why.first_fix import NO_STORE, NOT_GATHERED, NOT_JUDGED, FirstFix, first_fix
from cems_workbench.analysis.why.path import MemoryPath, cause, memory_path
from cems_workbench.analysis.why.search import Found, search_changes
from cems_workbench.analysis.why.side_effects import LabelledSet
from cems_workbench.analysis.why.stored_vector import StoredVector, stored_vector
from cems_workbench.analysis.why.trial import Trials
from cems_workbench.config import PipelineConfig
from cems_workbench.pipeline import Trace, replay
from cems_workbench.pipeline.evidence import Evidence
from cems_workbench.pipeline.gather import Request
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.wording import list_label, ordinal
from cems_workbench.progress import Progress, silent
from cems_workbench.results import Table

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
    """`counterfactuals` begins with the change of `fix`, and then is `ordered`. `nearest` is the change with the memory's best rank if no
    change succeeds; `replays` were made for the search.

    `mistakes` are those of the config and its stages in this query, and those of its set where that is known, whether or not they concern
    the memory.
    """

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

    @property
    def lines(self) -> tuple[str, ...]:
        """The fix, the cause, a vector that is not of the text, what supersedes it, known mistakes, and the verdict."""
        said = [self.fix and self.fix.sentence, self.cause, self.vector and self.vector.sentence, self.standing]
        said += [f"known mistake: {mistake.line}" for mistake in self.mistakes]
        return tuple(line for line in (*said, self.verdict) if line)

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
        """Its way: a row for each stage."""
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
        return Table(("stage", "rank in", "rank", "score", "what happened"), tuple(rows), "its way")

    @property
    def in_lists(self) -> Table:
        """Its place in each list when the whole store is searched."""
        rows = ((list_label(place.list), place.rank, place.score, place.words) for place in self.path.places)
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
        """The same without the words that were searched for."""
        return replace(
            self,
            fix=self.fix and self.fix.redacted,
            counterfactuals=tuple(one.redacted for one in self.counterfactuals),
            nearest=self.nearest and self.nearest.redacted,
        )

    def to_json(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {
            "query": self.query,
            "memory_id": self.path.memory_id,
            "fix": self.fix and self.fix.to_json(),
            "k": self.path.k,
            "status": self.path.status,
            "rank": self.path.rank,
            "lost_at": self.path.lost_at,
            "cause": self.cause,
            "standing": self.standing,
            "vector": self.vector and self.vector.to_json(),
            "path": [asdict(step) for step in self.path.steps],
            "places": [asdict(place) for place in self.path.places],
            "counterfactuals": [counterfactual.to_json() for counterfactual in self.counterfactuals],
            "nearest": self.nearest.to_json() if self.nearest else None,
            "verdict": self.verdict,
            "replays": self.replays,
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
    nearer = [
        counterfactual
        for counterfactual in missed
        if counterfactual.place is not None and (now is None or counterfactual.place < now)
    ]
    return min(
        nearer,
        key=lambda counterfactual: (counterfactual.rank is None, counterfactual.place, counterfactual.distance),
        default=None,
    )


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
    """What it changes, whatever the values."""
    return (*one.values, *one.terms)


def _kind(one: Counterfactual) -> str:
    return "pair" if one.parts > 1 else "gather change" if one.gathers else SINGLE


def _aim(k: int) -> str:
    return "first" if k == 1 else f"into the first {k}"
