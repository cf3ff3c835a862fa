"""One config that was tried, and all of them in their order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cems_workbench.config import PipelineConfig
from cems_workbench.pipeline.table import Floats
from cems_workbench.tuning.objective import Guard
from cems_workbench.tuning.space import Values


@dataclass(frozen=True, eq=False)
class Trial:
    """A config of the space with its scores.

    `reached` are its objectives. A config that was given up after some of the queries has scores of those alone, and an estimate
    of what it would have reached: the best so far plus the mean difference on what was scored.
    """

    values: Values
    config: PipelineConfig
    scores: Floats
    """(Q, M) or fewer rows where it was given up."""
    reached: Floats
    pruned: bool = False
    broken: tuple[Guard, ...] = ()
    phase: str = "search"

    @property
    def usable(self) -> bool:
        """Scored on every query, and breaking no guard."""
        return not self.pruned and not self.broken


@dataclass(frozen=True)
class Search:
    """What a search found. The first trial is the baseline itself."""

    trials: Sequence[Trial]
    cancelled: bool = False
    front: Sequence[int] = field(default_factory=tuple)
    """Which usable trials no other dominates."""

    @property
    def baseline(self) -> Trial:
        """The trial that everything is compared with."""
        return self.trials[0]

    @property
    def best(self) -> Trial:
        """The usable trial with the highest first objective, the earliest of equals; the baseline where none is usable."""
        usable = [trial for trial in self.trials if trial.usable]
        return max(usable, key=lambda trial: float(trial.reached[0])) if usable else self.baseline


Watch = Callable[[int, int, Trial], None]
"""Called as `watch(done, total, best so far)` after each trial; may raise `Cancelled`, and what was tried by then stays."""


def unwatched(done: int, total: int, best: Trial) -> None:
    """Nobody watches."""
