"""Which differences of parameters would explain what production returned: every preset, and every replay parameter alone.

Each is replayed on the evidence at hand and kept when it brings our results nearer to production's (rank-biased overlap of the two
orders, cut to production's length). Values of a number are those of `why.values`, on the slider's steps, and once more between the
neighbours of the best. `together` goes on from the best one, a parameter at a time, while that helps.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cems_workbench.analysis.fidelity import Agreement, agreement
from cems_workbench.config import FieldSpec, PipelineConfig, preset, preset_names, with_values
from cems_workbench.errors import InputError
from cems_workbench.pipeline import STAGES, Evidence
from cems_workbench.pipeline.encode import encode_one
from cems_workbench.pipeline.needs import unmet
from cems_workbench.pipeline.replay import run
from cems_workbench.progress import Progress, silent
from cems_workbench.why.trial import changed
from cems_workbench.why.values import distance, ends, others, searched_specs, walks

ASSEMBLY = STAGES.index("assembly")
LEAST_GAIN = 1e-6
WORTHWHILE = 0.005
"""Gain in rank-biased overlap below which another parameter explains nothing more."""
FINER = 6
MOST_STEPS = 3


@dataclass(frozen=True, slots=True)
class Explanation:
    """Parameters set anew, or a whole preset, and how far our results would then agree.

    `gathers`: the preset also asks for other evidence, so that only its replay parameters speak here.
    """

    changes: tuple[tuple[str, Any, Any], ...]
    agreement: Agreement
    distance: float
    preset: str | None = None
    gathers: bool = False


class Replays:
    """Our results under many configs, for one evidence and one answer of production's; each config is replayed once."""

    def __init__(self, production: Sequence[str], evidence: Evidence, switched_off: Collection[int] = ()) -> None:
        self.production = list(production)
        self.evidence = evidence
        self.off = tuple(sorted(switched_off))
        self.table = encode_one(evidence)
        self.count = 0
        self._kept: dict[PipelineConfig, tuple[tuple[str, ...], bytes]] = {}
        self._measured: dict[tuple[str, ...], Agreement] = {}

    def agreement(self, config: PipelineConfig) -> Agreement:
        """How far the results of a config agree with production's."""
        ours = self._outcome(config)[0][: len(self.production)]
        if ours not in self._measured:
            self._measured[ours] = agreement(self.production, ours)
        return self._measured[ours]

    def acts(self, config: PipelineConfig, spec: FieldSpec) -> bool:
        """Does turning this parameter all the way change any result or its score?"""
        now = self._outcome(config)
        return any(self._outcome(changed(config, spec.path, value)) != now for value in ends(spec, config))

    def _outcome(self, config: PipelineConfig) -> tuple[tuple[str, ...], bytes]:
        """The results and the bytes of their scores."""
        if config not in self._kept:
            self.count += 1
            after = run(self.table, config, self.off)[ASSEMBLY].after
            order = after.order(0)
            ids = tuple(self.table.ids[0][int(c)] for c in order)
            self._kept[config] = ids, after.score[0, order].tobytes()
        return self._kept[config]


def explanations(replays: Replays, config: PipelineConfig, progress: Progress = silent) -> list[Explanation]:
    """What brings our results nearer to production's, the most first: presets, and single parameters with their best value."""
    now = replays.agreement(config)
    found = [one for name in preset_names() if (one := _of_preset(replays, name)).agreement.rbo > now.rbo + LEAST_GAIN]
    specs = searched_specs()
    for i, spec in enumerate(specs):
        progress("trying parameters", i, len(specs))
        best = _best_value(replays, config, spec)
        if best is not None and best.agreement.rbo > now.rbo + LEAST_GAIN:
            found.append(best)
    progress("trying parameters", len(specs), len(specs))
    return sorted(found, key=_worth)


def together(
    replays: Replays, config: PipelineConfig, first: Explanation, progress: Progress = silent
) -> Explanation | None:
    """The best single change and up to two more on top of it, each the best then; None when a second one adds nothing."""
    if first.preset is not None:
        return None
    changes, reached = list(first.changes), first
    tuned = with_values(config, {path: value for path, _, value in changes})
    while len(changes) < MOST_STEPS:
        taken = {path for path, _, _ in changes}
        singles = []
        specs = [spec for spec in searched_specs() if spec.path not in taken]
        for i, spec in enumerate(specs):
            progress(f"trying a {('second', 'third')[len(changes) - 1]} parameter", i, len(specs))
            best = _best_value(replays, tuned, spec)
            singles += [best] if best is not None else []
        best = min(singles, key=_worth, default=None)
        if best is None or best.agreement.rbo < reached.agreement.rbo + WORTHWHILE:
            break
        changes += best.changes
        reached = Explanation(tuple(changes), best.agreement, reached.distance + best.distance)
        tuned = with_values(tuned, {path: value for path, _, value in best.changes})
    return reached if len(changes) > 1 else None


def _worth(one: Explanation) -> tuple[float, int, float, str]:
    return -round(one.agreement.rbo, 9), len(one.changes), one.distance, one.preset or one.changes[0][0]


def _of_preset(replays: Replays, name: str) -> Explanation:
    config = preset(name).config
    gathers = bool(unmet(config, replays.evidence.notes))
    return Explanation((), replays.agreement(config), 1.0, name, gathers)


def _best_value(replays: Replays, config: PipelineConfig, spec: FieldSpec) -> Explanation | None:
    """The value of one parameter that agrees best, the nearest of several; None when no value of it does anything."""
    if not replays.acts(config, spec):
        return None
    now = config.get(spec.path)
    tried = dict.fromkeys(_values(config, spec))
    found = [one for value in tried if (one := _of_value(replays, config, spec, value)) is not None]
    best = min(found, key=_worth, default=None)
    if best is None or spec.type not in (int, float) or best.changes[0][2] is None:
        return best
    at = best.changes[0][2]
    numbers = sorted({value for value in [*tried, now] if value is not None})
    place = numbers.index(at)
    for low, high in zip(numbers[max(0, place - 1) : place + 1], numbers[place : place + 2], strict=False):
        for step in range(1, FINER):
            value = _on_a_step(spec, low + (high - low) * step / FINER)
            if value not in tried and value != now and low < value < high:
                finer = _of_value(replays, config, spec, value)
                found += [finer] if finer is not None else []
    return min(found, key=_worth)


def _values(config: PipelineConfig, spec: FieldSpec) -> Iterator[Any]:
    now = config.get(spec.path)
    if spec.type in (int, float):
        for walk in walks(spec, config):
            yield from (value for raw in walk if (value := _on_a_step(spec, raw)) != now)
    yield from others(spec, config)


def _on_a_step(spec: FieldSpec, value: float) -> Any:
    if spec.type is int:
        return round(value)
    step = spec.step or 0.01
    return round(round(value / step) * step, 10)


def _of_value(replays: Replays, config: PipelineConfig, spec: FieldSpec, value: Any) -> Explanation | None:
    """None for a value that the config does not allow, alone or beside its others."""
    found = replays.agreement(changed(config, spec.path, value))
    now = config.get(spec.path)
    one = Explanation(((spec.path, now, value),), found, distance(spec, now, value))
    if found.rbo <= replays.agreement(config).rbo + LEAST_GAIN:
        return one
    try:
        with_values(config, {spec.path: value})
    except InputError:
        return None
    return one
