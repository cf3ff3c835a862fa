"""Fusion methods: what each hit of a ranked list contributes to a memory's raw score, and how contributions combine.

A method is a module here that declares `FUSION_METHOD = FusionMethod(...)` and has the name that `fusion.method` gives it, or an entry
point of another package in the group `cems_workbench.fusion_methods`. They are discovered: the config reads the names, and, as help, the
first line of each module's docstring ("Reciprocal rank fusion: Σ weight/(k+rank)."); FUSION_METHODS loads the code. Everything else that
depends on the method (the stage, idle parameters, switches, sensitivity analysis, texts of the page) reads the record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from cems_workbench import extensions
from cems_workbench.config.sections import FusionConfig
from cems_workbench.errors import InputError
from cems_workbench.pipeline.table import Bools, Floats, Ints


@dataclass(frozen=True, eq=False)
class Hits:
    """The H hits that are fused, of Q queries with L lists and C candidates, ordered by query, candidate, list. A hit
    belongs to the list `slot` = q·L + list and to the candidate `cell` = q·C + candidate; `first` is the first hit of
    each of the distinct `cells`."""

    slot: Ints
    cell: Ints
    rank: Floats
    """1-based; whole numbers as floats, the type of the arithmetic."""
    score: Floats
    """After the list's normalisation."""
    cells: Ints
    first: Ints
    top: Ints
    """Indices of the hits at ranks 1 to 3."""
    alive: Bools
    """(Q, C) in at least one list."""
    queries: Ints
    """The queries with a hit, ascending; `starts` is where the `cells` of each begin."""
    starts: Ints
    lists: Ints
    """(Q, C) number of lists that contain the candidate."""
    best_rank: Ints
    """(Q, C) best rank; the largest integer for a candidate in no list."""


@dataclass(frozen=True, slots=True)
class Contribution:
    """Share of one list in a raw score: 1-based rank in it, weight of list and variant, base, and the bonus for ranks 1 to 3."""

    list: str
    rank: int
    weight: float
    base: float
    bonus: float


LEAST_DENOMINATOR = 1e-3
"""Least k + rank: 1/0 is no score, so a first place counts at most a thousand times its weight."""


def share_of_first(config: FusionConfig, later: float = 0) -> float:
    """1 / (k + rank) of a list's first hit, or of the one `later` ranks after it."""
    return 1 / max(config.k + config.rank_base + later, LEAST_DENOMINATOR)


def weight_times_score(term: Contribution, config: FusionConfig) -> str:
    """ "0.5 × list score 0.8000 = 0.4000" """
    score = term.base / term.weight if term.weight else 0
    return f"{term.weight:g} × list score {score:.4f} = {term.base:.4f}"


@dataclass(frozen=True, slots=True)
class FusionMethod:
    """One fusion method. `base(hits, weight, config)` returns (H) what each hit contributes; `weight` (H) is list
    weight × variant weight, a fresh array that may be overwritten."""

    name: str
    base: Callable[[Hits, Floats, FusionConfig], Floats]
    combine: Literal["sum", "max"] = "sum"
    """How the contributions to one candidate become its raw score."""
    reads: Literal["ranks", "scores"] = "scores"
    """A method that reads scores leaves out recency and access lists: their scores are dates and counts, not relevance."""
    linear: bool = False
    """Whether raw scores are linear in each list and variant weight, so that sensitivity analysis can solve instead of sample."""
    parameters: tuple[str, ...] = ()
    """Parameters and sections that affect this method and not every other one, such as `fusion.k`; the config page dims the rest."""
    explain: Callable[[Contribution, FusionConfig], str] = weight_times_score
    """How a base was computed, for the Contributions view."""

    def uses(self, parameter: str) -> bool:
        """Whether a parameter or section that not every method uses affects this one."""
        return parameter in self.parameters


FUSION_METHODS = extensions.Registry(
    extensions.FUSION_METHODS, FusionMethod, "cems_workbench.pipeline.fusion_methods", "FUSION_METHOD"
)
"""Every method by the name that `fusion.method` gives it."""


def fusion_method(config: FusionConfig) -> FusionMethod:
    """The configured method. Raises InputError if its package does not load."""
    if config.method not in FUSION_METHODS:
        raise InputError(f"fusion.method: {config.method} is not available; `doctor` says why")
    return FUSION_METHODS[config.method]


def hit_bases(method: FusionMethod, hits: Hits, weight: Floats, config: FusionConfig) -> Floats:
    """(H) what each hit contributes. Raises InputError if another package's method fails; a failure of ours is a bug."""
    with FUSION_METHODS.guarded(method.name, InputError):
        base = method.base(hits, weight, config)
        if base.shape != hits.score.shape:
            raise ValueError(f"base has shape {base.shape}; expected {hits.score.shape}, one number per hit")
    return base


def own_parameters() -> tuple[str, ...]:
    """Every parameter and section that some methods use and others do not."""
    return tuple(dict.fromkeys(path for method in FUSION_METHODS.values() for path in method.parameters))
