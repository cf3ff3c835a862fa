"""Grades as files of judgments have them: whole numbers in every way of writing them. What else there is needs a stated grade.

3, "3", 3.0, "3,0" of a German or French spreadsheet, 3e0, +3 and full-width digits are the same grade. A fraction, a word and a truth value
are never rounded or guessed: `store/stated_grades.py` takes them by a mapping that the user states.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

from cems_workbench.formats.base.fields import FieldError
from cems_workbench.formats.base.files import type_name
from cems_workbench.platform.parsing import decimal_number
from cems_workbench.records import Judgment

MAX_DIGITS = 18
MAX_SHOWN = 60
_DIGITS = frozenset("0123456789")


class NoGradeError(FieldError):
    """A row that is a judgment but for its grade; `judgment` is the rest of it, `value` what is in the grade's field."""

    def __init__(self, field: str, reason: str, judgment: Judgment, value: str, words: str | None) -> None:
        super().__init__(field, reason)
        self.judgment = judgment
        self.value = value
        self.words = words


class TakenInPartError(FieldError):
    """A judgment that is whole but for a field beside its grade; `judgment` is without that field."""

    def __init__(self, error: FieldError, judgment: Judgment) -> None:
        super().__init__(error.field, error.reason)
        self.judgment = judgment


def graded(field: str, value: Any, make: Callable[[int], Judgment], words: str | None = None) -> Judgment:
    """The judgment that `make` gives of a grade; raises FieldError, and NoGradeError if only the grade is unusable."""
    grade = whole_grade(value)
    if grade is not None:
        return make(grade)
    if value is None or (isinstance(value, str) and not value.strip()):
        raise FieldError(field, "is missing")
    if isinstance(value, dict | list):
        raise FieldError(field, f"must be a whole number, found {type_name(value)}")
    text = str(value).lower() if isinstance(value, bool) else str(value).strip()
    found = ascii(value) if not isinstance(value, bool) else text
    reason = f"must be a whole number, found {found[:MAX_SHOWN]}"
    if len(text) > MAX_SHOWN or not text.isprintable():
        raise FieldError(field, reason)
    raise NoGradeError(field, f"{reason}; {_way(text)}", make(0), text, words)


def whole_grade(value: Any) -> int | None:
    """A whole number in any of the ways to write one; None for anything else."""
    if isinstance(value, str):
        if value in _DIGITS:  # nearly all
            return int(value)
        text = value.strip()
        digits = text[1:] if text[:1] in ("-", "+") else text
        if digits.isascii() and digits.isdigit() and len(digits) <= MAX_DIGITS:
            return int(text)
        number = decimal_number(text)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        number = decimal_number(str(value))
    else:
        return None
    if number is None or number.adjusted() >= MAX_DIGITS or number != number.to_integral_value():
        return None
    return int(number)


def _way(text: str) -> str:
    number = decimal_number(text)
    if number is not None and 0 <= number <= 1:
        return "state the grades of such values: --grade 0..0.5=0 --grade 0.5..1=1"
    return f"state its grade: --grade {shlex.quote(f'{text}=1')}"
