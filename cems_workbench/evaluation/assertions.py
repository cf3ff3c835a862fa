"""What a team's retrieval must hold in CI: `hit@5>=0.80`, `temporal:hit@5>0.5`, and no loss of `temporal:hit@5` between two configs.

`nDCG@10` asserts that a verdict on it is pass (`evaluation/verdict.py`); one that cannot tell is undecided unless the caller decides.
`nDCG@10 p<0.05` is a loss only where chance gives one as large less often than that: p of a paired test on the queries that the
assertion is of, two-sided and uncorrected, so that it does not depend on what else is asserted or measured. Then that test is the
verdict, and its sentence the only one. What was not measured fails, whatever decides.

`Bound` is the part that any command with `--assert` shares: a name, a sign and a number.

Assertions as JUnit XML, which CI systems of any make show as tests.

Source: the schema that Jenkins' xUnit plugin and GitLab document; only `testsuite`, `testcase`, `failure` and
`skipped` of it are used: a verdict that cannot tell has neither passed nor failed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal
from xml.etree import ElementTree as XML

from cems_workbench.errors import InputError
from cems_workbench.evaluation import verdict as verdicts
from cems_workbench.evaluation.comparison import Comparison, p_of
from cems_workbench.evaluation.evaluate import Evaluation
from cems_workbench.evaluation.metrics import Measure, parse_measure

_WRITTEN = re.compile(r"(?:(?P<type>[^<>]+):)?(?P<measure>[^<>:]+?)\s*(?P<sign>>=|<=|>|<)\s*(?P<bound>[-+.\deE]+)")
_NO_LOSS = re.compile(r"(?P<measure>.+?)(?:\s+p\s*<\s*(?P<level>\S+))?")
_SIGNS = {
    ">=": lambda value, bound: value >= bound,
    "<=": lambda value, bound: value <= bound,
    ">": lambda value, bound: value > bound,
    "<": lambda value, bound: value < bound,
}
ROUNDING = 1e-9
MIN_SHOWN = 5e-4
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
        shown = f"{value:.2g}" if 0 < abs(value) < MIN_SHOWN else f"{value:.4f}"
        return Outcome(
            holds, f"{'holds' if holds else 'FAILED'}: {of}: {self.text} ({shown}{f'; {on}' if on else ''})", self.text
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """Whether something asserted of a config holds, and the line that says so."""

    holds: bool
    line: str
    name: str = ""
    """The assertion as written: the same in every run."""
    verdict: verdicts.Verdict | None = None
    """What it was decided by, if it was a verdict; its sentence is the line."""
    undecided: bool = False
    """Could the verdict not tell, and nobody decided what to do then? It does not hold, but has not failed either."""

    @property
    def failed(self) -> bool:
        """Is it shown, or decided, that it does not hold?"""
        return not self.holds and not self.undecided


CannotTell = Literal["pass", "fail"]
"""What a verdict that cannot tell counts as."""


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


def parse_assertion(text: str, grade: int = 1) -> tuple[Bound, Measure]:
    """`[TYPE:]MEASURE>=NUMBER`: a bound on a mean, over the queries of one type where it is named. Raises InputError."""
    bound = parse_bound(text, "hit@5>=0.80")
    return bound, parse_measure(bound.name, grade)


@dataclass(frozen=True, slots=True)
class NoLoss:
    """That a measure, over the queries of one type where it is named, is no worse than the baseline's, or with a `level`
    not significantly worse."""

    measure: Measure
    query_type: str | None = None
    level: float | None = None

    @property
    def scoped(self) -> str:
        """The measure, with the type where it is of one."""
        return f"{self.query_type}:{self.measure}" if self.query_type else str(self.measure)

    def tested(self, found: verdicts.Verdict, p: Callable[[], float]) -> verdicts.Verdict:
        """The verdict where there is a level: a mean that is lower by more than the tolerance is a loss if `p`, that of
        a test, is below the level."""
        if self.level is None or found.unmeasured or found.kind == verdicts.PASS:
            return found
        lower = self.measure.direction * found.difference < -found.tolerance - ROUNDING
        chance = p() if lower else 1.0
        fails = lower and chance < self.level
        what, rises = f"{self.measure} against {found.baseline}", self.measure.lower_is_better
        less = f"more than {found.tolerance:g} " if found.tolerance else ""
        if fails:
            said = f"Fail: {found.config} {'adds' if rises else 'loses'} {less}{what}"
        elif lower:
            said = f"Pass: {found.config} shows no significant {'rise' if rises else 'loss'} of {less}{what}"
        else:
            said = f"Pass: {found.config} {'adds' if rises else 'loses'} no {less}{what}"
        counted = f"{found.queries:,} {f'{found.scope} ' if found.scope else ''}{'query' if found.queries == 1 else 'queries'}"
        by = f", p {chance:.2g}, {'below' if fails else 'not below'} {self.level:g}" if lower else ""
        sentence = f"{said}: {found.difference:+.3f} over {counted}{by}."
        return replace(found, kind=verdicts.FAIL if fails else verdicts.PASS, sentence=sentence, queries_needed=None)

    def decided(self, found: verdicts.Verdict, cannot_tell: CannotTell | None = None) -> Outcome:
        """The outcome of a verdict; `cannot_tell` decides what it counts as if it cannot tell."""
        if found.unmeasured:
            return Outcome(False, found.sentence, str(self), found)
        open_ = found.kind == verdicts.CANNOT_TELL
        holds = found.kind == verdicts.PASS or (open_ and cannot_tell == "pass")
        return Outcome(holds, found.sentence, str(self), found, open_ and cannot_tell is None)

    def __str__(self) -> str:
        """As written."""
        return self.scoped + ("" if self.level is None else f" p<{self.level:g}")


def parse_no_loss(text: str, grade: int = 1) -> NoLoss:
    """`[TYPE:]MEASURE[ p<LEVEL]`. Raises InputError."""
    written = _NO_LOSS.fullmatch(text.strip())
    level = None
    if written is not None and written["level"] is not None:
        try:
            level = float(written["level"])
        except ValueError:
            level = math.nan
        if not 0 < level < 1:
            raise InputError(f'--fail-on-regression "{text}": p is between 0 and 1, such as nDCG@10 p<0.05')
    kind, separator, name = (written["measure"] if written else text).rpartition(":")
    return NoLoss(parse_measure(name, grade), kind if separator else None, level)


def check(bound: Bound, measure: Measure, evaluation: Evaluation) -> Outcome:
    """Does the mean keep to its bound? Raises InputError when no query is of that type, or none can be measured."""
    value = _mean(evaluation, measure, bound.scope)
    kinds = zip(evaluation.types, evaluation.values[:, evaluation.measures.index(measure)].tolist(), strict=True)
    counted = sum(bound.scope in (None, kind) and not math.isnan(each) for kind, each in kinds)
    on = f"relevant from grade {measure.grade}, {counted} queries"
    return bound.outcome(value, evaluation.config.name, on)


def check_no_loss(
    comparison: Comparison, guard: NoLoss, tolerance: float | None = None, cannot_tell: CannotTell | None = None
) -> list[Outcome]:
    """Per compared config: is it no worse than the baseline? Without a level a verdict decides, `tolerance` None being
    its default. With one, the mean may be lower by the tolerance, None being 0, and by chance. Raises as `check` does,
    and InputError for a tolerance below 0."""
    measure, kind = guard.measure, guard.query_type
    default = verdicts.DEFAULT_TOLERANCE if guard.level is None else 0.0
    outcomes = []
    for place in range(len(comparison.compared)):
        if guard.level is not None:  # means alone would hide that there is nothing to test
            for one in (comparison.evaluations[0], comparison.evaluations[1 + place]):
                _mean(one, measure, kind)
        found = verdicts.verdict_of(comparison, place, measure, kind, default if tolerance is None else tolerance)
        outcomes.append(
            guard.decided(guard.tested(found, partial(p_of, comparison, place, measure, kind)), cannot_tell)
        )
    return outcomes


@dataclass(frozen=True, slots=True)
class Asserted:
    """What has to hold, as text: no loss of measures against the baseline, and bounds of measures. Raises InputError."""

    no_loss: Sequence[str] = ()
    bounds: Sequence[str] = ()
    tolerance: float | None = None
    cannot_tell: CannotTell | None = None

    def __post_init__(self) -> None:
        self.measures()

    def guards(self, grade: int = 1) -> list[NoLoss]:
        """What must not be lost; `grade` is the lowest relevant one."""
        return [parse_no_loss(text, grade) for text in self.no_loss]

    def measures(self, grade: int = 1) -> list[Measure]:
        """The measures that are asserted."""
        bounds = [parse_assertion(text, grade)[1] for text in self.bounds]
        return [*(guard.measure for guard in self.guards(grade)), *bounds]

    def of_bounds(self, evaluation: Evaluation) -> list[Outcome]:
        """Does an evaluation keep to the bounds? Raises InputError as `check` does."""
        return [check(*parse_assertion(text, evaluation.relevant_from), evaluation) for text in self.bounds]

    def of_losses(self, comparison: Comparison) -> list[Outcome]:
        """Is every compared config no worse than the baseline? Raises InputError as `check_no_loss` does."""
        guards = self.guards(comparison.evaluations[0].relevant_from)
        return [one for guard in guards for one in check_no_loss(comparison, guard, self.tolerance, self.cannot_tell)]

    def verdicts(self, comparison: Comparison, outcomes: Sequence[Outcome]) -> list[verdicts.Verdict]:
        """The verdicts that come first: those that decide what is asserted, or by default on nDCG@10 or the first measure."""
        decided = [one.verdict for one in outcomes if one.verdict is not None]
        tolerance = verdicts.DEFAULT_TOLERANCE if self.tolerance is None else self.tolerance
        return list(dict.fromkeys(decided)) or verdicts.verdicts_of(comparison, tolerance=tolerance)


def _mean(evaluation: Evaluation, measure: Measure, query_type: str | None) -> float:
    value = evaluation.mean(measure, query_type)
    if math.isnan(value):
        known = ", ".join(sorted({kind for kind in evaluation.types if kind})) or "none"
        where = f"no query of type {query_type!r}; types: {known}" if query_type else "no query can be measured"
        raise InputError(f"{measure}: {where}")
    return value


CHECK_FAILED, UNDECIDED = 1, 3
"""Exit codes: something asserted does not hold; nothing failed, but a verdict cannot tell."""


def exit_code(outcomes: Sequence[Outcome]) -> int:
    """0 where everything asserted holds, else `CHECK_FAILED` or `UNDECIDED`."""
    if any(outcome.failed for outcome in outcomes):
        return CHECK_FAILED
    return UNDECIDED if any(outcome.undecided for outcome in outcomes) else 0


def asserted_json(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Outcomes of what was asserted, as plain values."""
    said = ({} if one.verdict is None else {"verdict": one.verdict.kind} for one in outcomes)
    return {
        "assertions": [{"holds": one.holds, "line": one.line} | kind for one, kind in zip(outcomes, said, strict=True)]
    }


def asserted_lines(outcomes: Sequence[Outcome]) -> list[str]:
    """The line of each outcome but those of verdicts, whose sentences come before them."""
    return [one.line for one in outcomes if one.verdict is None]


SUITE = "cems-workbench"


def junit_xml(outcomes: Sequence[Outcome], of: str) -> str:
    """A test a line of what was asserted; `of` is what it was measured on, such as the name of the evidence file."""
    failed, undecided = sum(outcome.failed for outcome in outcomes), sum(outcome.undecided for outcome in outcomes)
    counts = {"tests": str(len(outcomes)), "failures": str(failed), "errors": "0", "skipped": str(undecided)}
    suite = XML.Element("testsuite", {"name": SUITE} | counts)
    for outcome in outcomes:
        line = _writable(outcome.line)
        case = XML.SubElement(suite, "testcase", classname=_writable(of), name=_writable(outcome.name or outcome.line))
        if outcome.holds:
            XML.SubElement(case, "system-out").text = line
        elif outcome.undecided:
            XML.SubElement(case, "skipped", message=line)
        else:
            XML.SubElement(case, "failure", message=line).text = line
    XML.indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + XML.tostring(suite, encoding="unicode") + "\n"


def _writable(text: str) -> str:
    """Without the characters that XML 1.0 has no way to write."""
    return "".join(character if character.isprintable() else " " for character in text)
