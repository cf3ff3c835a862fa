"""What a team's retrieval must hold in CI: `hit@5>=0.80`, `temporal:hit@5>0.5`, and no loss of `temporal:hit@5` between two configs.

`Bound` is the part that any command with `--assert` shares: a name, a sign and a number.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from cems_workbench.errors import InputError
from cems_workbench.evaluation.comparison import Comparison
from cems_workbench.evaluation.evaluate import Evaluation
from cems_workbench.evaluation.metrics import Measure, parse_measure

_WRITTEN = re.compile(r"(?:(?P<type>[^<>]+):)?(?P<measure>[^<>:]+?)\s*(?P<sign>>=|<=|>|<)\s*(?P<bound>[-+.\deE]+)")
_SIGNS = {
    ">=": lambda value, bound: value >= bound,
    "<=": lambda value, bound: value <= bound,
    ">": lambda value, bound: value > bound,
    "<": lambda value, bound: value < bound,
}
ROUNDING = 1e-9
LEAST_SHOWN = 5e-4
"""A value below this is shown with its own digits."""


@dataclass(frozen=True, slots=True)
class Bound:
    """What was written: `name`, within `scope` where one is named, has to keep to a number."""

    text: str
    name: str
    sign: str
    number: float
    scope: str | None = None

    def outcome(self, value: float, of: str, on: str = "") -> Outcome:
        """Does the value keep to the bound? `of` says whose value it is, `on` what it was measured on."""
        slack = ROUNDING if self.sign == ">=" else -ROUNDING if self.sign == "<=" else 0.0
        holds = _SIGNS[self.sign](value + slack, self.number)
        shown = f"{value:.2g}" if 0 < abs(value) < LEAST_SHOWN else f"{value:.4f}"
        return Outcome(holds, f"{'holds' if holds else 'FAILED'}: {of}: {self.text} ({shown}{f'; {on}' if on else ''})")


@dataclass(frozen=True, slots=True)
class Assertion:
    """A bound on a mean, over the queries of one type where it is named."""

    bound: Bound
    measure: Measure


@dataclass(frozen=True, slots=True)
class Outcome:
    """Whether something asserted of a config holds, and the line that says so."""

    holds: bool
    line: str


def parse_bound(text: str, example: str) -> Bound:
    """`[SCOPE:]NAME>=NUMBER`; the error shows the example. Raises InputError."""
    match = _WRITTEN.fullmatch(text.strip())
    try:
        number = float(match["bound"]) if match else math.nan
    except ValueError:
        number = math.nan
    if match is None or math.isnan(number):
        raise InputError(f'--assert "{text}": expected a measure, one of >= <= > <, and a number, such as {example}')
    return Bound(text, match["measure"], match["sign"], number, match["type"])


def parse_assertion(text: str, grade: int = 1) -> Assertion:
    """`[TYPE:]MEASURE>=NUMBER`. Raises InputError."""
    bound = parse_bound(text, "hit@5>=0.80")
    return Assertion(bound, parse_measure(bound.name, grade))


def parse_scoped_measure(text: str, grade: int = 1) -> tuple[Measure, str | None]:
    """`[TYPE:]MEASURE`. Raises InputError."""
    kind, separator, name = text.rpartition(":")
    return parse_measure(name, grade), kind if separator else None


def check(assertion: Assertion, evaluation: Evaluation) -> Outcome:
    """Does the mean keep to its bound? Raises InputError when no query is of that type, or none can be measured."""
    value = _mean(evaluation, assertion.measure, assertion.bound.scope)
    on = f"relevant from grade {assertion.measure.grade}, {_counted(evaluation, assertion)} queries"
    return assertion.bound.outcome(value, evaluation.config.name, on)


def _counted(evaluation: Evaluation, assertion: Assertion) -> int:
    """The queries whose mean it is."""
    column = evaluation.values[:, evaluation.measures.index(assertion.measure)]
    kinds = zip(evaluation.types, column.tolist(), strict=True)
    return sum(assertion.bound.scope in (None, kind) and not math.isnan(value) for kind, value in kinds)


def check_no_loss(
    comparison: Comparison, measure: Measure, query_type: str | None, tolerance: float = 0.0
) -> list[Outcome]:
    """Per compared config: is its mean no worse than the baseline's, but for the tolerance? Raises as `check` does."""
    base = comparison.evaluations[0]
    before = _mean(base, measure, query_type)
    scope = f"{query_type}:{measure}" if query_type else str(measure)
    outcomes = []
    for other in comparison.evaluations[1:]:
        after = _mean(other, measure, query_type)
        holds = measure.direction * (after - before) >= -tolerance - ROUNDING
        word = "no loss" if holds else "LOSS"
        line = f"{word}: {scope} {before:.4f} under {base.config.name}, {after:.4f} under {other.config.name}"
        outcomes.append(Outcome(holds, line))
    return outcomes


def _mean(evaluation: Evaluation, measure: Measure, query_type: str | None) -> float:
    value = evaluation.mean(measure, query_type)
    if math.isnan(value):
        known = ", ".join(sorted({kind for kind in evaluation.types if kind})) or "none"
        where = f"no query of type {query_type!r}; types: {known}" if query_type else "no query can be measured"
        raise InputError(f"{measure}: {where}")
    return value
