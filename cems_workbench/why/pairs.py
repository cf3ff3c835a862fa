"""Two parameters together, tried only when none alone rescues: a bounded number of replays, so that it ends.

The parameters that alone bring the memory's score nearest to the k-th are set to their best values, and under each of them every
other parameter is searched as if it were single. A pair that rescues is then made as small as it can be: both numbers are brought
back towards where they were, by the same share of the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cems_workbench.config import FieldSpec, PipelineConfig
from cems_workbench.progress import Progress, silent
from cems_workbench.why.rescue import Rescue, rescue_of
from cems_workbench.why.single import PRECISION, Attempt, Breakpoint, Found, best_attempt, nearest_value, round_values
from cems_workbench.why.trial import Trials, changed
from cems_workbench.why.values import distance

PROMISING = 2
KEPT = 5


def attempts(trials: Trials, config: PipelineConfig, active: Sequence[FieldSpec]) -> list[Attempt]:
    """The best attempt of each parameter, best first."""
    found = [attempt for spec in active if (attempt := best_attempt(trials, config, spec)) is not None]
    return sorted(found, key=lambda attempt: (attempt.reached, attempt.distance, attempt.spec.path))


def pair_rescues(
    trials: Trials, config: PipelineConfig, tried: Sequence[Attempt], progress: Progress = silent
) -> list[Rescue]:
    """At most `KEPT` pairs, the nearest of those that hold one of the `PROMISING` best attempts."""
    now = trials.outcome(config).distance
    promising = [attempt for attempt in tried if attempt.reached < now][:PROMISING]
    pairs: list[tuple[Attempt, Attempt]] = []
    for i, first in enumerate(promising):
        progress("trying pairs", i, len(promising))
        with_first = changed(config, first.spec.path, first.value)
        seen = {attempt.spec.path for attempt in promising[: i + 1]}
        for spec in (attempt.spec for attempt in tried if attempt.spec.path not in seen):
            found = nearest_value(trials, with_first, spec)
            if found is not None:
                pairs.append((first, Attempt(spec, found.value, now, found.distance)))
    progress("trying pairs", len(promising), len(promising))
    pairs.sort(key=lambda pair: (pair[0].distance + pair[1].distance, pair[0].spec.path, pair[1].spec.path))
    return [rescue_of(trials, config, shrunk(trials, config, pair)) for pair in pairs[:KEPT]]


def shrunk(trials: Trials, config: PipelineConfig, pair: Sequence[Attempt]) -> list[Found]:
    """The pair with the smallest share of the way that rescues. The two breakpoints belong together."""
    fails, succeeds = 0.0, 1.0
    if all(_at(config, attempt, fails) == attempt.value for attempt in pair):  # switches have no way to go
        return [Found(attempt.spec, attempt.value, attempt.distance, None) for attempt in pair]
    while succeeds - fails > PRECISION:
        middle = (fails + succeeds) / 2
        if trials.succeeds(_config(config, pair, [_at(config, attempt, middle) for attempt in pair])):
            succeeds = middle
        else:
            fails = middle
    exact = [_at(config, attempt, succeeds) for attempt in pair]
    points = [_point(config, attempt, fails, succeeds) for attempt in pair]
    values = list(exact)
    for i, (attempt, point) in enumerate(zip(pair, points, strict=True)):
        for rounded in round_values(attempt.spec, point) if point else []:
            tried = [*values[:i], rounded, *values[i + 1 :]]
            if trials.succeeds(_config(config, pair, tried)):
                values = tried
                break
    return [
        Found(attempt.spec, value, distance(attempt.spec, config.get(attempt.spec.path), reached), point)
        for attempt, value, reached, point in zip(pair, values, exact, points, strict=True)
    ]


def _at(config: PipelineConfig, attempt: Attempt, share: float) -> Any:
    """The value at a share of the way from the present one to the attempt's; a switch is there at once."""
    now, value = config.get(attempt.spec.path), attempt.value
    if attempt.spec.type not in (int, float) or now is None or value is None:
        return value
    between = now + share * (value - now)
    return round(between) if attempt.spec.type is int else float(between)


def _config(config: PipelineConfig, pair: Sequence[Attempt], values: Sequence[Any]) -> PipelineConfig:
    for attempt, value in zip(pair, values, strict=True):
        config = changed(config, attempt.spec.path, value)
    return config


def _point(config: PipelineConfig, attempt: Attempt, fails: float, succeeds: float) -> Breakpoint | None:
    below, above = _at(config, attempt, fails), _at(config, attempt, succeeds)
    return None if below == attempt.value else Breakpoint(below, above)
