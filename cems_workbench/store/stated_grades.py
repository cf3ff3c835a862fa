"""Grades by a mapping that the user states, for files whose ratings are fractions or words: `--grade 0.5..1=1`, `--grade Relevant=2`.

A key is one value (a number in any of the ways to write it, or a word in any case) or a range of numbers `LOW..HIGH`, where an end that
is left out is open. A range includes its low end, and its high end unless another range begins there; a single value comes before ranges.
A mapping applies to every rating of the input, whole numbers too: 1.0 among fractions is the best of them and no grade 1. Ratings that it
does not name stay as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal

from cems_workbench.errors import InputError, counted
from cems_workbench.platform.parsing import decimal_number
from cems_workbench.records import WHOLE_STORE, Judgment, ParsedInput, Query
from cems_workbench.store.judgments import capped

MAX_GRADE = 10**6


@dataclass(frozen=True, slots=True)
class _Range:
    key: str
    low: Decimal
    high: Decimal
    grade: int


def parse_grades(stated: Iterable[str]) -> dict[str, int]:
    """The mapping of texts VALUE=GRADE; raises InputError for one of another form and for a value that has two grades."""
    grades: dict[str, int] = {}
    for text in stated:
        key, _, grade = text.rpartition("=")
        key = key.strip()
        try:
            number = int(grade)
        except ValueError:
            number = MAX_GRADE + 1
        if not key or abs(number) > MAX_GRADE:
            raise InputError(f"--grade: {text!r} is not VALUE=GRADE, such as 0.5..1=1 or Relevant=2")
        if grades.setdefault(key, number) != number:
            raise InputError(f"--grade: {key} has the grades {grades[key]} and {number}")
    _Stated(grades)  # checks the ranges
    return grades


class _Stated:
    """A mapping, ready to be looked up, and how often each of its keys was used."""

    def __init__(self, grades: Mapping[str, int]) -> None:
        self.used: Counter[str] = Counter()
        self._words: dict[str, tuple[str, int]] = {}
        self._numbers: dict[Decimal, tuple[str, int]] = {}
        self._ranges: list[_Range] = []
        for key, grade in grades.items():
            low, dots, high = key.partition("..")
            number, known = decimal_number(key), (key, grade)
            if number is not None:
                known = self._numbers.setdefault(number, (key, grade))
            elif dots:
                self._ranges.append(_Range(key, _end(key, low, "-Infinity"), _end(key, high, "Infinity"), grade))
            else:
                known = self._words.setdefault(key.casefold(), (key, grade))
            if known[1] != grade:
                raise InputError(f"--grade: {key} has the grades {known[1]} and {grade}")
        self._ranges.sort(key=lambda one: (one.low, one.high))
        for one in self._ranges:
            if one.low >= one.high:
                raise InputError(f"--grade: the range {one.key} ends before it begins")
        for before, after in zip(self._ranges, self._ranges[1:], strict=False):
            if after.low < before.high:
                raise InputError(f"--grade: the ranges {before.key} and {after.key} overlap")

    def grade(self, value: str) -> int | None:
        """The stated grade of a rating; None if the mapping does not name it."""
        number = decimal_number(value)
        key, grade = (
            self._of_number(number) if number is not None else self._words.get(value.strip().casefold(), ("", None))
        )
        if grade is not None:
            self.used[key] += 1
        return grade

    def _of_number(self, number: Decimal) -> tuple[str, int | None]:
        if number in self._numbers:
            return self._numbers[number]
        inside = [one for one in self._ranges if one.low <= number <= one.high]
        # Where two ranges meet, the one that begins there is the later one.
        return (inside[-1].key, inside[-1].grade) if inside else ("", None)


def with_stated_grades(parsed: ParsedInput, grades: Mapping[str, int] | None) -> ParsedInput:
    """The input with the grades of a mapping, and a note of what each part of it was used for. Raises InputError for a wrong mapping."""
    if not grades:
        return replace(parsed, notes=(*parsed.notes, *_unmapped(parsed)))
    if not (parsed.judgments or parsed.ungraded):
        return parsed
    stated = _Stated(grades)
    kept = 0
    judgments: list[tuple[int, Judgment]] = []
    for number, judgment in parsed.numbered("judgments"):
        grade = stated.grade(str(judgment.grade)) if judgment.memory_id != WHOLE_STORE else judgment.grade
        kept += grade is None
        judgments.append((number, judgment if grade is None else replace(judgment, grade=grade)))
    asked = parsed.numbered("queries")
    there = {query.qid for query in parsed.queries}
    rescued: set[tuple[int, str]] = set()
    for one in parsed.ungraded:
        grade = stated.grade(one.value)
        if grade is None:
            continue
        judgments.append((one.row, replace(one.judgment, grade=grade)))
        rescued.add((one.row, one.field))
        if one.words is not None and one.judgment.qid not in there:
            there.add(one.judgment.qid)
            asked.append((one.row, Query(one.judgment.qid, one.words)))
    errors = [error for error in parsed.errors if (error.row, error.field) not in rescued]
    taken = parsed.with_rows(
        queries=sorted(asked, key=lambda row: row[0]), judgments=sorted(judgments, key=lambda row: row[0])
    )
    return replace(taken, errors=tuple(errors), ungraded=(), notes=(*parsed.notes, *_notes(stated, grades, kept)))


def _notes(stated: _Stated, grades: Mapping[str, int], kept: int) -> list[str]:
    used = [
        f"{key} is grade {grade} ({counted(count, 'rows')})"
        for key, grade in grades.items()
        if (count := stated.used[key])
    ]
    notes = [f"by --grade: {', '.join(capped(used, 'more'))}"] if used else []
    unused = [key for key in grades if not stated.used[key]]
    if unused:
        notes.append(f"--grade: no rating is {', '.join(capped(unused, 'more'))}")
    if kept:
        notes.append(f"{counted(kept, 'whole numbers')} that --grade does not name became grades as they are")
    return notes


def _end(key: str, text: str, left_out: str) -> Decimal:
    number = decimal_number(text) if text.strip() else Decimal(left_out)
    if number is None:
        raise InputError(f"--grade: {key} is no range of numbers, such as 0.5..1")
    return number


def _unmapped(parsed: ParsedInput) -> list[str]:
    """A note where whole numbers stand among fractions: they were taken for grades."""
    fractions = [
        one
        for one in parsed.ungraded
        if (number := decimal_number(one.value)) is not None and number != number.to_integral_value()
    ]
    if not fractions or not parsed.judgments:
        return []
    return [
        f"{counted(len(parsed.judgments), 'ratings')} in whole numbers became grades as they are, beside "
        f"{counted(len(fractions), 'fractions')}, such as {fractions[0].value}: if all are of one scale, "
        "state the grades of all of them with --grade"
    ]
