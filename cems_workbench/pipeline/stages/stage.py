"""Stage: a record with its texts, its switches and its function.

A stage file ends with its record. `stages/__init__.py` lists the records in order, and everything that lists stages (replay, the
sidebar, the strip, "is it off?", ablations, tooltips) is derived from that list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import Any, Generic, Literal, NamedTuple, TypeVar, cast

from cems_workbench.config import PipelineConfig
from cems_workbench.config.model import attribute_name
from cems_workbench.pipeline.stages.result import (
    FieldsT,
    RowT,
    StageArrays,
    StageFields,
    StageRow,
    StageTrace,
    pass_through,
)
from cems_workbench.pipeline.table import CandidateTable, ListArrays, Ranking

ArraysT = TypeVar("ArraysT", bound=StageArrays[StageRow, StageFields], covariant=True)


@dataclass(frozen=True)
class Switch:
    """A stage, or a part of one, that a config can leave out. `off` are the values, by path, that together switch it
    off. `applies` is whether other parameters let it have an effect: the top-rank bonus is one of some fusion methods
    only. `idle` is whether it did nothing for this query although it is on, by the stage's fields."""

    name: str
    off: Mapping[str, Any]
    title: str = ""
    applies: Callable[[PipelineConfig], bool] | None = None
    idle: Callable[[Any], bool] = lambda fields: False

    @property
    def words(self) -> str:
        """A longer name, for places with room for it."""
        return self.title or self.name

    def is_off(self, config: PipelineConfig) -> bool:
        """Whether the config leaves it out."""
        # Every replay asks of every switch: a loop, since generators would cost as much as a stage that is off.
        if self.applies is not None and not self.applies(config):
            return True
        for read, value in self._off:  # noqa: SIM110
            if read(config) != value:
                return False
        return True

    @cached_property
    def _off(self) -> tuple[tuple[Callable[[PipelineConfig], Any], Any], ...]:
        return _readers(self.off)


def _readers(values: Mapping[str, Any]) -> tuple[tuple[Callable[[PipelineConfig], Any], Any], ...]:
    return tuple(
        (attrgetter(".".join(attribute_name(part) for part in path.split("."))), value)
        for path, value in values.items()
    )


class StageInput(NamedTuple):
    """Input of a stage: the candidates, the config, and the ranking and lists after the stage before it."""

    table: CandidateTable
    config: PipelineConfig
    variants_off: frozenset[int]
    """Indices of query variants whose lists are left out."""
    ranking: Ranking
    lists: ListArrays
    lists_off: frozenset[str] = frozenset()
    """Names of lists that are left out."""
    by_row: Sequence[PipelineConfig] = ()
    """(Q) the config of each row, where they differ in what the stage reads by row; `config` is then the first."""


WorksOn = Literal["query", "lists", "ranking", "results"]
"""The effect of a stage: query stages report the search, `lists` cut the lists that fusion sums, `ranking` stages give every
candidate a rank or drop it, and result stages only annotate."""


def _kept(row: StageRow, stage: StageTrace[StageRow, StageFields]) -> str:
    return "kept"


def _no_detail(row: StageRow, config: PipelineConfig) -> str:
    return ""


@dataclass(frozen=True, eq=False, kw_only=True)
class Stage(Generic[RowT, FieldsT, ArraysT]):
    """The record of a stage."""

    name: str
    title: str
    description: str
    """One sentence: what it does."""
    works_on: WorksOn = "ranking"
    apply: Callable[[StageInput], ArraysT]
    when_off: Callable[[StageInput], ArraysT] | None = None
    """Replaces the stage while the switch is off; None: pass every candidate."""
    row: type[RowT]
    fields: type[FieldsT]
    sections: Mapping[str, str] = field(default_factory=dict)
    """Further sections of the config that have their controls after the stage's own, with their titles."""
    reads: tuple[str, ...] = ()
    """Sections and paths of the config of which alone `apply` and `when_off` read, () for all: configs that have the same share a run."""
    reads_by_row: tuple[str, ...] = ()
    """Further paths, which it reads of `StageInput.by_row` if there is one."""
    switch: Switch | None = None
    """The switch of the whole stage; None: it has none."""
    parts: tuple[Switch, ...] = ()
    """Parts of it that can be left out."""
    words: Callable[[RowT, StageTrace[RowT, FieldsT]], str] = _kept
    """row, trace of the stage -> what it did to a memory that it kept, as a clause."""
    detail: Callable[[RowT, PipelineConfig], str] = _no_detail
    """row, config -> the numbers it made of a memory, in one line."""

    def __call__(self, given: StageInput) -> ArraysT:
        """Run the stage under the config of the input."""
        if not self.is_off(given.config):
            return self.apply(given)
        if self.when_off is not None:
            return self.when_off(given)
        return cast(ArraysT, pass_through(given.ranking, self.row, self.fields))

    def read(self, config: PipelineConfig) -> tuple[Any, ...]:
        """What the stage reads of a config, and itself: equal for two configs with which it does the same to the same input."""
        return self, self.shared(config), self.by_row(config)

    @cached_property
    def shared(self) -> Callable[[PipelineConfig], Any]:
        """What all rows of a batch must have in common of their configs."""
        return attrgetter(*self.reads) if self.reads else lambda config: config

    @cached_property
    def by_row(self) -> Callable[[PipelineConfig], Any]:
        """What it takes of the config of each row."""
        return attrgetter(*self.reads_by_row) if self.reads_by_row else lambda config: None

    def is_off(self, config: PipelineConfig) -> bool:
        """Whether the config switches the whole stage off."""
        return self.switch is not None and self.switch.is_off(config)

    @property
    def switches(self) -> tuple[Switch, ...]:
        """Its own switch, if there is one, and those of its parts."""
        return self.parts if self.switch is None else (self.switch, *self.parts)


AnyStage = Stage[StageRow, StageFields, StageArrays[StageRow, StageFields]]
"""A stage with the columns of the row contract only."""


class PipelineRun:
    """What every stage did with a batch of Q queries."""

    def __init__(self, stages: Sequence[AnyStage], arrays: Mapping[str, StageArrays[StageRow, StageFields]]) -> None:
        self.stages = tuple(stages)
        """The stages that ran, in order: those of the config, or the recorded ones."""
        self._arrays = arrays

    @cached_property
    def candidate_stages(self) -> tuple[AnyStage, ...]:
        """The stages that can drop a memory."""
        return tuple(stage for stage in self.stages if stage.works_on in ("lists", "ranking"))

    @cached_property
    def ranking_stages(self) -> tuple[AnyStage, ...]:
        """The stages after which candidates have a rank."""
        return tuple(stage for stage in self.stages if stage.works_on == "ranking")

    @property
    def last(self) -> AnyStage:
        """The stage whose ranks are those of the results."""
        return self.ranking_stages[-1]

    @property
    def results(self) -> StageArrays[StageRow, StageFields]:
        """What the last ranking stage did."""
        return self._arrays[self.last.name]

    def has(self, stage: Stage[Any, Any, Any]) -> bool:
        """Whether this stage of ours ran: no recorded pipeline has one, but for the lists."""
        return any(one is stage for one in self.stages)

    def of(self, stage: Stage[Any, Any, ArraysT]) -> ArraysT:
        """What one stage did."""
        return cast(ArraysT, self._arrays[stage.name])

    def items(self) -> Iterator[tuple[str, StageArrays[StageRow, StageFields]]]:
        """Every stage by name with what it did, in order."""
        yield from self._arrays.items()
