"""Rescues: changes that bring the memory into the top k, found one parameter at a time, ranked by what else they disturb."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from cems_workbench.config import FieldSpec, PipelineConfig, field_spec, with_values
from cems_workbench.pipeline.gather import Request
from cems_workbench.progress import Progress, silent
from cems_workbench.why.disturbance import Disturbance, disturbance
from cems_workbench.why.labelled import LabelledEffect, LabelledSet
from cems_workbench.why.single import Breakpoint, Found, acts, nearest_value
from cems_workbench.why.trial import Trials
from cems_workbench.why.values import searched_specs

LABELLED_AT_MOST = 12
"""Rescues measured on the labelled queries: those that disturb this query least."""


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
    def label(self) -> str:
        """The parameter's name on its control."""
        return field_spec(self.path).label


@dataclass(frozen=True, slots=True)
class Rescue:
    """Changes that, applied together, put the memory at `rank` of the results (None: not among them).

    `place` is that rank, or the one before assembly; None when a stage dropped it.
    `gathers`: they need new evidence, of `request`. `needs` scores of the reranker are missing under them, so that its word
    is still out. `labelled` is None where it was not measured.
    """

    changes: tuple[Change, ...]
    rank: int | None
    disturbance: Disturbance
    place: int | None = None
    gathers: bool = False
    terms: tuple[str, ...] = ()
    everywhere: bool = False
    needs: int = 0
    labelled: LabelledEffect | None = None

    @property
    def distance(self) -> float:
        """Of all changes together, in slider ranges; a typed query is one."""
        return sum(change.distance for change in self.changes) + len(self.terms) + self.everywhere

    @property
    def parts(self) -> int:
        """How many things are changed; what switches manual expansion on belongs to the term it is for."""
        switches = sum(change.path == "expansion.backend" for change in self.changes) if self.terms else 0
        return len(self.changes) - switches + len(self.terms) + self.everywhere

    @property
    def values(self) -> dict[str, Any]:
        """New values by path."""
        return {change.path: change.now for change in self.changes}

    def config(self, config: PipelineConfig) -> PipelineConfig:
        """The config with the rescue applied, validated."""
        return with_values(config, self.values, source="rescue")

    def request(self, request: Request) -> Request:
        """What to gather with it."""
        return replace(
            request,
            manual=(*request.manual, *self.terms),
            project_only=request.project_only and not self.everywhere,
        )

    def to_json(self) -> dict[str, Any]:
        """The rescue as plain values."""
        values = asdict(self) | {"distance": self.distance}
        for change, about in zip(self.changes, values["changes"], strict=True):
            about["label"] = change.label
        return values


def single_rescues(
    trials: Trials, config: PipelineConfig, progress: Progress = silent
) -> tuple[list[Rescue], list[FieldSpec]]:
    """One rescue per replay parameter that has one, and the parameters that change anything at all."""
    specs = searched_specs()
    rescues, active = [], []
    for i, spec in enumerate(specs):
        progress("trying parameters", i, len(specs))
        if not acts(trials, config, spec):
            continue
        active.append(spec)
        found = nearest_value(trials, config, spec)
        if found is not None:
            rescues.append(rescue_of(trials, config, [found]))
    progress("trying parameters", len(specs), len(specs))
    return rescues, active


def rescue_of(trials: Trials, config: PipelineConfig, found: Sequence[Found]) -> Rescue:
    """The rescue these values make together, replayed and measured."""
    changes = tuple(
        Change(hit.spec.path, config.get(hit.spec.path), hit.value, hit.distance, hit.breakpoint, hit.solved)
        for hit in found
    )
    rescue = Rescue(changes, None, Disturbance(1.0, 1.0))
    after = rescue.config(config)
    outcome = trials.outcome(after)
    moved = disturbance(trials.outcome(config).results, outcome.results, trials.memory_id)
    needs = max(0, trials.needs(after) - trials.needs(config))
    return replace(rescue, rank=outcome.rank, place=outcome.stood, disturbance=moved, needs=needs)


def ordered(rescues: Iterable[Rescue]) -> list[Rescue]:
    """Complete ones first; then by labelled hits lost, by what they disturb on this query, by distance."""
    return sorted(
        rescues,
        key=lambda rescue: (
            rescue.needs > 0,
            rescue.labelled.net_lost if rescue.labelled is not None else 0,
            -round(rescue.disturbance.rbo, 2),
            rescue.parts,
            rescue.distance,
            [change.path for change in rescue.changes],
            rescue.terms,
        ),
    )


def with_labels(
    rescues: Sequence[Rescue], labelled: LabelledSet, config: PipelineConfig, k: int, progress: Progress = silent
) -> list[Rescue]:
    """The rescues with their effect on the labelled queries, the first `LABELLED_AT_MOST` of those that need no gather."""
    measured = []
    todo = [rescue for rescue in ordered(rescues) if not rescue.gathers]
    for i, rescue in enumerate(todo[:LABELLED_AT_MOST]):
        progress("measuring on labelled queries", i, min(len(todo), LABELLED_AT_MOST))
        measured.append(replace(rescue, labelled=labelled.effect(config, rescue.config(config), k)))
    rest = [*todo[LABELLED_AT_MOST:], *(rescue for rescue in rescues if rescue.gathers)]
    return [*ordered(measured), *ordered(rest)]
