"""Counterfactuals: changes of one parameter, or of two, that bring the memory into the top k, ranked by what else they disturb.

values tried   the slider's range, walked outwards from the current value: numbers at growing distances on either side (all of them where
               they are few whole numbers), choices and switches one by one. A distance is a share of the slider's range; another
               choice is a whole range away.
one parameter  the nearest value that succeeds. A threshold of abstain is the value of its signal (several that refuse are lowered
               together); everything else is walked until a replay succeeds, and the breakpoint then bisected between the last failure
               and that success. A walk can step over an island of success narrower than its steps.
two            only when none alone succeeds, in a bounded number of replays. The parameters that alone bring the memory's score nearest
               to the k-th are set to their best values, and under each of them every other parameter is searched as if it were
               single. A pair that succeeds is made as small as it can be: both numbers move back towards the current values, by
               the same share of the way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

from cems_workbench.analysis.why.trial import UNMOVED, LabelledEffect, LabelledSet, SideEffects, Trials, side_effects
from cems_workbench.config import FieldSpec, PipelineConfig, assigned_value, field_spec, field_specs, with_values
from cems_workbench.config.model import changed as fresh
from cems_workbench.evaluation.comparison import interval_words
from cems_workbench.evaluation.evaluate import number
from cems_workbench.pipeline.evidence import Evidence
from cems_workbench.pipeline.gather import Request
from cems_workbench.pipeline.stages.abstain import ABSTAIN, CONFIDENCE_FEATURES
from cems_workbench.progress import Progress, silent

changed = lru_cache(maxsize=2048, typed=True)(fresh)
"""A search asks for the same change again and again; one object of each has its hash made once."""

SHARES = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 3 / 16, 1 / 4, 3 / 8, 1 / 2, 5 / 8, 3 / 4, 7 / 8, 1.0)
STEPS = (0, 4, 12, 24)
"""Where the values of a walk are parted that are replayed at once."""
HALVINGS = ((3, 3), (8, 2), (1_000, 1))
"""With so many bisections, how many halvings of each are replayed at once."""
MAX_CHOICES = 24
"""Ranges of at most this many whole numbers are tried in full."""

NOTHING: Mapping[str, Any] = {}

THRESHOLDS = frozenset(kind.path for kind in CONFIDENCE_FEATURES.values())
"""The thresholds of abstain."""
LOWER_LIMITS = THRESHOLDS | {
    *("filter.min_score", "fusion.importance_floor", "assembly.min_score", "assembly.min_vector_score"),
    "assembly.mmr_min_value",
}
"""Optional parameters whose null is below every number; the null of the others is above."""


def searched_specs() -> list[FieldSpec]:
    """The parameters that a search can vary: numbers, switches and choices that only replay reads. Depths (growth) are
    among them: lowering one is a replay, and so is raising it to what was gathered. The judge never changes the
    ranking."""
    return [
        spec
        for spec in field_specs()
        if spec.cost != "gather"
        and spec.section != "judge"
        and (spec.type in (int, float, bool) or len(spec.choices) > 1)
    ]


def slider(spec: FieldSpec, config: PipelineConfig, gathered: Mapping[str, Any] = NOTHING) -> tuple[float, float]:
    """The range of a number that is searched: the slider's, grown to the present value; a depth up to what was `gathered`."""
    low, high = spec.slider
    now = config.get(spec.path)
    if now is None:
        return low, high
    deepest = gathered.get(spec.path)
    held = max(now, deepest) if isinstance(deepest, int | float) else now
    return min(low, now), held if spec.cost == "deepen" else max(high, now)


def span(spec: FieldSpec) -> float:
    """The length of the slider, the unit of distances."""
    low, high = spec.slider
    return float(high - low) or 1.0


def distance(spec: FieldSpec, now: Any, value: Any) -> float:
    """Distance of a value from the present one, in slider ranges; 1 for another choice or a switch."""
    numbers = spec.type in (int, float) and now is not None and value is not None
    return abs(float(value) - float(now)) / span(spec) if numbers else 1.0


def origin(spec: FieldSpec, config: PipelineConfig) -> float:
    """Start of a walk: the present number; for null the end of the range that is nearest to it."""
    now = config.get(spec.path)
    low, high = slider(spec, config)
    if now is not None:
        return float(now)
    return low if spec.path in LOWER_LIMITS else high


def walks(spec: FieldSpec, config: PipelineConfig, gathered: Mapping[str, Any] = NOTHING) -> Iterator[list[Any]]:
    """The values of a number below and above the present one, each walk from near to far."""
    start = origin(spec, config)
    for end in slider(spec, config, gathered):
        if end == start:
            continue
        if spec.by_ones and abs(end - start) <= MAX_CHOICES:
            step = 1 if end > start else -1
            yield list(range(int(start) + step, int(end) + step, step))
            continue
        values = [start + share * (end - start) for share in SHARES]
        if spec.exclusive_low and spec.low is not None:
            values = [value for value in values if value > spec.low]
        yield list(dict.fromkeys(round(value) for value in values)) if spec.by_ones else values


def others(spec: FieldSpec, config: PipelineConfig) -> list[Any]:
    """The values of a switch or a choice other than the present one; null for a number that may be off."""
    now = config.get(spec.path)
    if spec.choices:
        return [choice for choice in spec.choices if choice != now]
    if spec.type is bool:
        return [not now]
    return [None] if spec.optional and now is not None and spec.cost != "deepen" else []


def ends(spec: FieldSpec, config: PipelineConfig, gathered: Mapping[str, Any] = NOTHING) -> list[Any]:
    """The most extreme values: if they change nothing, no value between does."""
    if spec.type not in (int, float):
        return others(spec, config)
    return [walk[-1] for walk in walks(spec, config, gathered)] + others(spec, config)


PRECISION = 1e-9
"""Precision of breakpoints of real numbers, in slider ranges."""
ROUNDING_STEPS = (1, 10, 100, 1000)


@dataclass(frozen=True, slots=True)
class Breakpoint:
    """Two neighbouring values: replaying `fails` leaves the memory out, replaying `succeeds` brings it in."""

    fails: float
    succeeds: float


@dataclass(frozen=True, slots=True)
class Change:
    """One parameter, from its present value to another; the distance is in slider ranges."""

    path: str
    was: Any
    now: Any
    distance: float
    breakpoint: Breakpoint | None = None
    solved: bool = False

    @property
    def spec(self) -> FieldSpec:
        return field_spec(self.path)


def change_of(
    config: PipelineConfig, path: str, value: Any, point: Breakpoint | None = None, solved: bool = False
) -> Change:
    """The change of one parameter; its distance is that of the breakpoint, if there is one."""
    was = config.get(path)
    return Change(path, was, value, distance(field_spec(path), was, point.succeeds if point else value), point, solved)


Attempt = tuple[tuple[int, float], Change]
"""A change that does not succeed after its `Outcome.distance`."""


def acts(trials: Trials, config: PipelineConfig, spec: FieldSpec) -> bool:
    """Does turning this parameter all the way change any result or its score?"""
    now = trials.outcome(config)
    return any(trials.outcome(one) != now for one in at_ends(trials, config, spec))


def at_ends(trials: Trials, config: PipelineConfig, spec: FieldSpec) -> list[PipelineConfig]:
    """The config with this parameter turned all the way."""
    return [changed(config, spec.path, value) for value in ends(spec, config, trials.gathered)]


def replay_walks(trials: Trials, config: PipelineConfig, specs: Sequence[FieldSpec], whole: bool = False) -> None:
    """Replay what `nearest_value` asks of these parameters, those of all at once: a few steps of each walk at a time,
    then bisections. With `whole` every step of the walks and no bisection."""
    trials.replay([config, *(one for spec in specs for one in at_ends(trials, config, spec))])
    walked = [(spec, walk) for spec in specs for walk in acting_walks(trials, config, spec)]
    found: list[tuple[FieldSpec, Any, Any]] = []
    for start, end in pairwise(STEPS):
        trials.replay(changed(config, spec.path, value) for spec, walk in walked for value in walk[start:end])
        further = []
        for spec, walk in walked:
            good = (i for i, value in enumerate(walk[:end]) if trials.succeeds(changed(config, spec.path, value)))
            if whole or (first := next(good, None)) is None:
                further.append((spec, walk))
            elif (fails := [config.get(spec.path), *walk][first]) is not None:
                found.append((spec, fails, walk[first]))
        walked = further
    while not whole and found:
        depth = next(deep for most, deep in HALVINGS if len(found) <= most)
        trials.replay(changed(config, one[0].path, middle) for one in found for middle in _middles(*one, depth))
        for _ in range(depth):
            halves = [(middle, *one) for one in found if (middle := _middle(*one)) is not None]
            found = [
                (spec, fails, half) if trials.succeeds(changed(config, spec.path, half)) else (spec, half, success)
                for half, spec, fails, success in halves
            ]


def _middles(spec: FieldSpec, fails: Any, success: Any, depth: int) -> Iterator[Any]:
    """All middles that so many halvings may ask for."""
    middle = _middle(spec, fails, success)
    if depth and middle is not None:
        yield middle
        yield from _middles(spec, fails, middle, depth - 1)
        yield from _middles(spec, middle, success, depth - 1)


def acting_walks(trials: Trials, config: PipelineConfig, spec: FieldSpec) -> list[list[Any]]:
    """The walks of a number at whose end some result is another."""
    if spec.type not in (int, float):
        return []
    now = trials.outcome(config)
    every = walks(spec, config, trials.gathered)
    return [walk for walk in every if trials.outcome(changed(config, spec.path, walk[-1])) != now]


def nearest_value(trials: Trials, config: PipelineConfig, spec: FieldSpec) -> Change | None:
    """The nearest value of this parameter that succeeds, None if none does."""
    found = []
    if spec.type in (int, float):
        if spec.path in THRESHOLDS:
            found += _answering(trials, config, [spec])
        if not found:
            walked = acting_walks(trials, config, spec)
            found += [hit for walk in walked if (hit := _walked(trials, config, spec, walk))]
    found += [
        change_of(config, spec.path, value)
        for value in others(spec, config)
        if trials.succeeds(changed(config, spec.path, value))
    ]
    return min(found, key=lambda hit: hit.distance, default=None)


def best_attempt(trials: Trials, config: PipelineConfig, spec: FieldSpec) -> Attempt | None:
    """The value with the best rank of the memory, the nearest of several; None if the parameter has no other value."""
    tried = [value for walk in acting_walks(trials, config, spec) for value in walk]
    found = [
        (outcome.distance, change_of(config, spec.path, value))
        for value in [*tried, *others(spec, config)]
        if not trials.spoils(outcome := trials.outcome(changed(config, spec.path, value)))
    ]
    return min(found, key=lambda one: (one[0], one[1].distance), default=None)


def _walked(trials: Trials, config: PipelineConfig, spec: FieldSpec, walk: list[Any]) -> Change | None:
    fails: Any = config.get(spec.path)
    if fails is None:  # null cannot be bisected from
        fails, walk = walk[0], walk[1:]
        if trials.succeeds(changed(config, spec.path, fails)):
            return change_of(config, spec.path, fails)
    for value in walk:
        if trials.succeeds(changed(config, spec.path, value)):
            point = bisected(lambda v: trials.succeeds(changed(config, spec.path, v)), spec, fails, value)
            return _found(trials, config, spec, point, solved=False)
        fails = value
    return None


def bisected(succeeds: Callable[[Any], bool], spec: FieldSpec, fails: Any, success: Any) -> Breakpoint:
    """Bisect between a failing and a succeeding value, down to the precision."""
    while (middle := _middle(spec, fails, success)) is not None:
        if succeeds(middle):
            success = middle
        else:
            fails = middle
    return Breakpoint(fails, success)


def _middle(spec: FieldSpec, fails: Any, success: Any) -> Any:
    """The value between two, None if they are neighbours by the precision."""
    whole = spec.by_ones
    if abs(success - fails) <= (1 if whole else PRECISION * span(spec)):
        return None
    middle = (fails + success) // 2 if whole else (fails + success) / 2
    return None if middle in (fails, success) else middle


def _answering(trials: Trials, config: PipelineConfig, specs: Sequence[FieldSpec]) -> list[Change]:
    """Refusing thresholds of abstain, each lowered to the value of its signal: exactly the largest that answers. Empty
    if that does not succeed."""
    deciding = {f"abstain.{one.name}": one for one in trials.stages(config).of(ABSTAIN).fields(0).deciding}
    if not all(spec.path in deciding for spec in specs):
        return []
    values = {spec.path: float(deciding[spec.path].value or 0.0) for spec in specs}
    lowered = config
    for path, value in values.items():
        lowered = changed(lowered, path, value)
    if not trials.succeeds(lowered):
        return []
    points = [Breakpoint(math.nextafter(values[spec.path], math.inf), values[spec.path]) for spec in specs]
    if len(specs) == 1:
        return [_found(trials, config, specs[0], points[0], solved=True)]
    return [
        change_of(config, spec.path, point.succeeds, point, solved=True)
        for spec, point in zip(specs, points, strict=True)
    ]


def answering_counterfactual(trials: Trials, config: PipelineConfig) -> Counterfactual | None:
    """All refusing thresholds of abstain, lowered together; None if one alone is enough, or all together are not."""
    fields = trials.stages(config).of(ABSTAIN).fields(0)
    specs = [field_spec(f"abstain.{one.name}") for one in fields.deciding]
    if not fields.abstained or fields.rule != "any" or len(specs) < 2:
        return None
    found = _answering(trials, config, specs)
    return counterfactual_of(trials, config, found) if found else None


def _found(trials: Trials, config: PipelineConfig, spec: FieldSpec, point: Breakpoint, solved: bool) -> Change:
    """The value to apply: a round one just past the breakpoint if that succeeds too, otherwise the breakpoint."""
    now = config.get(spec.path)
    value: Any = point.succeeds
    for rounded in round_values(spec, point):
        if rounded != now and trials.succeeds(changed(config, spec.path, rounded)):
            value = rounded
            break
    return change_of(config, spec.path, value, point, solved)


def round_values(spec: FieldSpec, point: Breakpoint) -> list[float]:
    """The next step of the slider past the breakpoint, then of finer and finer ones; inside the slider, so never its
    end. The ends of a slider are special: a list of weight 0 has no influence."""
    if not spec.step or spec.type is not float:
        return []
    low, high = spec.slider
    whole = math.ceil if point.succeeds > point.fails else math.floor
    steps = [spec.step / finer for finer in ROUNDING_STEPS]
    values = [round(float(whole(point.succeeds / step) * step), 10) for step in steps]
    return [value for value in values if low < value < high]


def _value(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


MAX_LABELLED = 40
"""Counterfactuals measured on the labelled queries: those that disturb this query least."""
GAIN_DIGITS = 4
"""Decimals to which gains of mean nDCG@10 are compared; side effects decide between equal ones."""


@dataclass(frozen=True, slots=True)
class Counterfactual:
    """Changes that, applied together, put the memory at `rank` of the results (None: not among them).

    `place` is that rank, or the one before assembly; None if a stage dropped it.
    `gathers`: they need new evidence, of `request`; `searched` is a part of the query that is searched instead of it. `needs` scores of the
    reranker are missing under them, so that its effect is unknown. `labelled` is None if it was not measured. `stale_above` is the best
    ranked of the memories that it supersedes and that are above it under them; None if none is. `of_cause`: the cause names all
    parameters that they change.
    """

    changes: tuple[Change, ...]
    rank: int | None = None
    side_effects: SideEffects = UNMOVED
    place: int | None = None
    gathers: bool = False
    terms: tuple[str, ...] = ()
    everywhere: bool = False
    searched: str = ""
    needs: int = 0
    labelled: LabelledEffect | None = None
    stale_above: str | None = None
    of_cause: bool = False

    @property
    def distance(self) -> float:
        """Of all changes together, in slider ranges; a typed query is one."""
        return sum(change.distance for change in self.changes) + len(self.terms) + self.everywhere + bool(self.searched)

    @property
    def parts(self) -> int:
        """Number of changes; switching manual expansion on counts as part of adding its term."""
        switches = sum(change.path == "expansion.backend" for change in self.changes) if self.terms else 0
        return len(self.changes) - switches + len(self.terms) + self.everywhere + bool(self.searched)

    @property
    def words(self) -> str:
        """ "fusion.k 60 → 83": the changes in a line, with a remark if they need a gather."""
        parts = [f"{change.path} {_value(change.was)} → {_value(change.now)}" for change in self.changes]
        return " and ".join([*parts, *self.searches]) + (" (gathers)" if self.gathers else "")

    @property
    def redacted(self) -> Counterfactual:
        return replace(self, terms=tuple("…" for _ in self.terms), searched="…" if self.searched else "")

    @property
    def searches(self) -> list[str]:
        words = [f"search for “{term}” too" for term in self.terms]
        words += [f"search its last sentence alone, “{self.searched}”"] if self.searched else []
        return words + (["search every project"] if self.everywhere else [])

    @property
    def assigned(self) -> str:
        """ "fusion.k = 83": the new values in a line, unrounded, with a remark if they need a gather."""
        parts = [f"{path} = {assigned_value(value)}" for path, value in self.values.items()]
        return " and ".join([*parts, *self.searches]) + (" (needs a new search)" if self.gathers else "")

    @property
    def values(self) -> dict[str, Any]:
        return {change.path: change.now for change in self.changes}

    def config(self, config: PipelineConfig) -> PipelineConfig:
        """The config with the counterfactual applied, validated."""
        return _applied(config, tuple(self.values.items()))

    def request(self, request: Request) -> Request:
        """The request to gather with it."""
        return replace(
            request,
            variants=(*request.variants, *self.terms),
            only_project=request.only_project and not self.everywhere,
            searched=self.searched or request.searched,
        )

    def to_json(self) -> dict[str, Any]:
        values = asdict(self)
        values["distance"] = self.distance
        if self.labelled is not None:
            ends = {"low": number(self.labelled.low), "high": number(self.labelled.high)}
            values["labelled"] |= {"verdict": self.labelled.verdict.kind, **ends}
        for change, about in zip(self.changes, values["changes"], strict=True):
            about["label"] = change.spec.label
        return values


@lru_cache(maxsize=64)
def _applied(config: PipelineConfig, values: Sequence[tuple[str, Any]]) -> PipelineConfig:
    return with_values(config, dict(values), source="counterfactual")


def single_counterfactuals(
    trials: Trials, config: PipelineConfig, progress: Progress = silent
) -> tuple[list[Counterfactual], list[FieldSpec]]:
    """One counterfactual per replay parameter that has one, and the parameters with any effect."""
    specs, counterfactuals = searched_specs(), list[Counterfactual]()
    trials.replay(one for spec in specs for one in at_ends(trials, config, spec))
    active = [spec for spec in specs if acts(trials, config, spec)]
    replay_walks(trials, config, active)
    for i, spec in enumerate(active):
        progress("trying parameters", i, len(active))
        found = nearest_value(trials, config, spec)
        if found is not None:
            counterfactuals.append(counterfactual_of(trials, config, [found]))
    progress("trying parameters", len(active), len(active))
    together = answering_counterfactual(trials, config)
    return ([*counterfactuals, together] if together else counterfactuals), active


def counterfactual_of(trials: Trials, config: PipelineConfig, found: Sequence[Change]) -> Counterfactual:
    """The counterfactual of these values together, replayed and measured."""
    one = measured(Counterfactual(tuple(found)), trials, trials, config)
    return replace(one, needs=max(0, trials.outcome(one.config(config)).needs - trials.outcome(config).needs))


def measured(one: Counterfactual, trials: Trials, inner: Trials, config: PipelineConfig) -> Counterfactual:
    """The counterfactual with its effect on the evidence of `inner`, compared with the current results."""
    after = one.config(config)
    outcome = inner.shown(after)
    moved = side_effects(trials.shown(config).results, outcome.results, trials.memory_id)
    above = inner.stale_above(after)
    return replace(one, rank=outcome.rank, place=outcome.stood, side_effects=moved, stale_above=above)


def supersession_counterfactuals(
    trials: Trials, config: PipelineConfig, known: Sequence[Counterfactual] = ()
) -> list[Counterfactual]:
    """One counterfactual per further mode of supersession that succeeds and puts the memory above what it supersedes.
    Of a choice `nearest_value` names one value; but the modes are equally near, and do different things. The `known`
    ones are left out."""
    if trials.stale_above(config) is None:
        return []
    spec = field_spec("supersession.mode")
    found = [
        counterfactual_of(trials, config, [change_of(config, spec.path, mode)])
        for mode in others(spec, config)
        if trials.succeeds(changed(config, spec.path, mode))
    ]
    there = [one.values for one in known]
    return [one for one in found if one.stale_above is None and one.values not in there]


def ordered(found: Iterable[Counterfactual]) -> list[Counterfactual]:
    """The order on pages and the command line: by gain on the labelled queries, then by least side effects. Measured
    ones come before unmeasured ones, and those with all reranker scores before both."""
    return sorted(
        found,
        key=lambda one: (
            one.needs > 0,
            one.labelled is None,
            one.labelled is not None and one.labelled.unscored > 0,
            -round(one.labelled.gain, GAIN_DIGITS) if one.labelled is not None else 0.0,
            -round(one.side_effects.rbo, 2),
            one.parts,
            one.distance,
            [change.path for change in one.changes],
            one.terms,
        ),
    )


def order_text(counterfactuals: Sequence[Counterfactual]) -> str:
    """The order of counterfactuals after the first, which is the fix to try first, in a sentence."""
    judged = any(counterfactual.labelled is not None for counterfactual in counterfactuals)
    first = "most gain on the judged queries first, then fewest side effects" if judged else "fewest side effects first"
    return f"After the fix: {first}. Ranking kept: the rank-biased overlap of the other results before and after."


def moved_text(moved: SideEffects) -> str:
    """ "ranking kept 95 %": how far the other results keep their order, in whole percent; 100 only if nothing moved."""
    share = 100 if moved.rbo >= 1 - 1e-9 else min(99, round(100 * moved.rbo))
    return f"ranking kept {share} %"


def interval_text(effect: LabelledEffect) -> str:
    """ "−0.003 to +0.031": the 95 % interval of the gain on the judged queries; a dash where there is none."""
    return interval_words(effect.low, effect.high).replace("-", "−")


def with_labels(
    counterfactuals: Sequence[Counterfactual],
    labelled: LabelledSet,
    config: PipelineConfig,
    k: int,
    progress: Progress = silent,
) -> list[Counterfactual]:
    """The counterfactuals with their effect on the labelled queries, the first `MAX_LABELLED` of those that need no gather."""
    todo = [one for one in ordered(counterfactuals) if not one.gathers]
    found = [*todo[MAX_LABELLED:], *(one for one in counterfactuals if one.gathers)]
    for i, one in enumerate(todo[:MAX_LABELLED]):
        progress("measuring on labelled queries", i, len(todo[:MAX_LABELLED]))
        found.append(replace(one, labelled=labelled.effect(config, one.config(config), k)))
    return ordered(found)


SCORING_ROUNDS = 3
"""Maximum rounds of scoring: new scores move the value that succeeds, and another value may need further scores."""


def with_scores(
    counterfactuals: Sequence[Counterfactual],
    trials: Trials,
    config: PipelineConfig,
    score: Callable[[Evidence, PipelineConfig], Evidence],
) -> list[Counterfactual]:
    """The counterfactuals of replay parameters with the missing reranker scores added; those that no longer succeed are
    dropped. `score` returns the evidence with the scores that a config lacks."""
    found = list(counterfactuals)
    for _ in range(SCORING_ROUNDS):
        lacking = [one for one in found if one.needs and not one.gathers]
        if not lacking:
            break
        evidence = trials.evidence
        for one in lacking:
            evidence = score(evidence, one.config(config))
        trials = trials.on(evidence)
        replay_walks(trials, config, [one.changes[0].spec for one in lacking if _has_breakpoint(one)])
        found = [one for one in found if one not in lacking]
        found += [again for one in lacking if (again := _again(one, trials, config)) is not None]
    return found


def _has_breakpoint(one: Counterfactual) -> bool:
    return len(one.changes) == 1 and one.changes[0].breakpoint is not None


def _again(counterfactual: Counterfactual, trials: Trials, config: PipelineConfig) -> Counterfactual | None:
    """The counterfactual on evidence with more scores: of a number the value that succeeds now, otherwise the same values."""
    if _has_breakpoint(counterfactual):
        hit = nearest_value(trials, config, field_spec(counterfactual.changes[0].path))
        return None if hit is None else counterfactual_of(trials, config, [hit])
    if not trials.succeeds(counterfactual.config(config)):
        return None
    return counterfactual_of(
        trials, config, [replace(one, breakpoint=None, solved=False) for one in counterfactual.changes]
    )


PROMISING_ATTEMPTS = 2
MAX_COUNTERFACTUALS = 5


def attempts(trials: Trials, config: PipelineConfig, active: Sequence[FieldSpec]) -> list[Attempt]:
    """The best attempt of each parameter, best first."""
    replay_walks(trials, config, active, whole=True)
    found = [attempt for spec in active if (attempt := best_attempt(trials, config, spec)) is not None]
    return sorted(found, key=lambda one: (one[0], one[1].distance, one[1].path))


def pair_counterfactuals(
    trials: Trials, config: PipelineConfig, tried: Sequence[Attempt], progress: Progress = silent
) -> list[Counterfactual]:
    """At most `MAX_COUNTERFACTUALS` pairs, the nearest of those with one of the `PROMISING_ATTEMPTS` best attempts."""
    now = trials.outcome(config).distance
    promising = [change for reached, change in tried if reached < now][:PROMISING_ATTEMPTS]
    pairs: list[tuple[Change, Change]] = []
    for i, first in enumerate(promising):
        progress("trying pairs", i, len(promising))
        with_first = changed(config, first.path, first.now)
        seen = {change.path for change in promising[: i + 1]}
        second = [change.spec for _, change in tried if change.path not in seen]
        replay_walks(trials, with_first, second)
        for spec in second:
            found = nearest_value(trials, with_first, spec)
            if found is not None:
                pairs.append((first, found))
    progress("trying pairs", len(promising), len(promising))
    pairs.sort(key=lambda pair: (pair[0].distance + pair[1].distance, pair[0].path, pair[1].path))
    return [counterfactual_of(trials, config, shrunk(trials, config, pair)) for pair in pairs[:MAX_COUNTERFACTUALS]]


def shrunk(trials: Trials, config: PipelineConfig, pair: Sequence[Change]) -> list[Change]:
    """The pair with the smallest share of the way that succeeds. The two breakpoints belong together."""
    fails, succeeds = 0.0, 1.0
    if all(_at(config, one, fails) == one.now for one in pair):  # switches cannot be moved back partly
        return [replace(one, breakpoint=None, solved=False) for one in pair]
    while succeeds - fails > PRECISION:
        middle = (fails + succeeds) / 2
        if trials.succeeds(_config(config, pair, [_at(config, change, middle) for change in pair])):
            succeeds = middle
        else:
            fails = middle
    exact = [_at(config, change, succeeds) for change in pair]
    points = [_point(config, change, fails, succeeds) for change in pair]
    values = list(exact)
    for i, (change, point) in enumerate(zip(pair, points, strict=True)):
        for rounded in round_values(change.spec, point) if point else []:
            tried = [*values[:i], rounded, *values[i + 1 :]]
            if trials.succeeds(_config(config, pair, tried)):
                values = tried
                break
    return [
        replace(change_of(config, change.path, reached), now=value, breakpoint=point)
        for change, value, reached, point in zip(pair, values, exact, points, strict=True)
    ]


def _at(config: PipelineConfig, change: Change, share: float) -> Any:
    """The value at a share of the way from the present one to the attempt's; a switch has the attempt's value at any share."""
    now, value = config.get(change.path), change.now
    if change.spec.type not in (int, float) or now is None or value is None:
        return value
    between = now + share * (value - now)
    return round(between) if change.spec.by_ones else float(between)


def _config(config: PipelineConfig, pair: Sequence[Change], values: Sequence[Any]) -> PipelineConfig:
    for change, value in zip(pair, values, strict=True):
        config = changed(config, change.path, value)
    return config


def _point(config: PipelineConfig, change: Change, fails: float, succeeds: float) -> Breakpoint | None:
    below, above = _at(config, change, fails), _at(config, change, succeeds)
    return None if below == change.now else Breakpoint(below, above)
