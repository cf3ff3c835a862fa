"""Reading one field of a row: its type, its range, and what to say when it has neither.

Every function takes the row, the field's name and gives the value or raises `FieldError` naming the field and what it
may be. An absent field and null are the same; optional text that is blank is absent too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from cems_workbench.errors import counted
from cems_workbench.formats.base.files import parse_literal, type_name

MAX_COUNT = 2**63 - 1
NO_END = datetime(9999, 12, 30, tzinfo=UTC)
"""From here on a date says that there is no end, as 9999-12-31 does in many databases."""
MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_PERIOD = re.compile(r"(\d{4})(?:[-/](\d{1,2})|[- ]?Q([1-4]))?|([A-Za-z]+)\.?,? (\d{4})")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
Row = Mapping[str, Any]


class FieldError(ValueError):
    """A field that keeps its row from being imported; becomes a RowError."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(reason)
        self.field = field
        self.reason = reason


def text(row: Row, field: str) -> str | None:
    """Optional text."""
    value = row.get(field)
    if value is None:
        return None
    if not isinstance(value, str):
        raise FieldError(field, f"must be a string, found {type_name(value)}")
    return storable(field, value) if value and not value.isspace() else None


def required_text(row: Row, field: str) -> str:
    """Text that must be there and not blank."""
    value = text(row, field)
    if value is None:
        raise FieldError(field, "is missing" if row.get(field) is None else "is empty")
    return value


def identifier(row: Row, field: str) -> str:
    """A name other rows refer to: text without control characters, or an integer, taken as its digits."""
    value = row.get(field)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MAX_COUNT:
        return str(value)
    name = required_text(row, field)
    if _CONTROL.search(name):
        raise FieldError(field, "must not contain control characters")
    return name


def number(row: Row, field: str, low: float, high: float, default: float) -> float:
    """A finite number in low..high."""
    value = row.get(field)
    if value is None:
        return default
    allowed = f"must be a number {low}–{high}"
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:  # NaN is in no range
        raise FieldError(field, f"{allowed}, found {_shown(value)}")
    return float(value)


def count(row: Row, field: str) -> int:
    """A whole number from 0."""
    value = row.get(field)
    if value is None:
        return 0
    whole = isinstance(value, int) or (isinstance(value, float) and math.isfinite(value) and value.is_integer())
    if isinstance(value, bool) or not whole or not 0 <= value <= MAX_COUNT:
        raise FieldError(field, f"must be a whole number from 0, found {_shown(value)}")
    return int(value)


def finite(value: Any) -> float | None:
    """A finite number, also one written as text."""
    if isinstance(value, bool):
        return None
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def flag(row: Row, field: str) -> bool:
    """true or false; false where it is absent."""
    return said(row, field) or False


def said(row: Row, field: str) -> bool | None:
    """true or false; None where it is absent."""
    value = row.get(field)
    if value is not None and not isinstance(value, bool):
        raise FieldError(field, f"must be true or false, found {_shown(value)}")
    return value


def choice(row: Row, field: str, allowed: Iterable[str], default: str) -> str:
    """One of a few words."""
    value = row.get(field)
    if value is None:
        return default
    words = tuple(allowed)
    if not isinstance(value, str) or value not in words:
        raise FieldError(field, f"must be one of {', '.join(words)}, found {_shown(value)}")
    return value


def tags(row: Row, field: str) -> tuple[str, ...]:
    """A list of strings."""
    value = row.get(field)
    if value is None:
        return ()
    if not isinstance(value, list) or not all([isinstance(item, str) for item in value]):
        raise FieldError(field, f"must be a list of strings, found {_shown(value)}")
    return tuple([storable(field, item) for item in value])


def texts(row: Row, field: str) -> list[str]:
    """A list of texts, none of them empty; empty where it is absent."""
    value = row.get(field)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, str) and item.strip() for item in value):
        raise FieldError(field, f"must be a list of texts, found {_shown(value)}")
    return [storable(field, item) for item in value]


def items_in(field: str, cell: str, separator: str = "[;]") -> list[Any]:
    """The items of a cell: of a list in JSON or as Python writes it, else the parts between separators. Raises FieldError."""
    if not cell.lstrip().startswith("["):
        return [part for each in re.split(separator, cell) if (part := each.strip())]
    try:
        found = parse_literal(cell)
    except ValueError:
        raise FieldError(field, "begins like a list and is none") from None
    if not isinstance(found, list):
        raise FieldError(field, f"must be a list, found {type_name(found)}")
    return found


def texts_by_name(row: Row, field: str) -> dict[str, str]:
    """An object of texts; empty where it is absent."""
    value = row.get(field)
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise FieldError(field, f"must be an object of texts, found {_shown(value)}")
    return {storable(field, name): storable(field, item) for name, item in value.items()}


def moment(row: Row, field: str) -> datetime | None:
    """An ISO 8601 date or time as aware UTC; one without a zone is UTC already. A year, quarter, month or week is its first moment."""
    value = row.get(field)
    if value is None or value == "":
        return None
    allowed = "must be an ISO 8601 date or time such as 2024-05-08T13:56:00Z"
    if not isinstance(value, str):
        raise FieldError(field, f"{allowed}, found {_shown(value)}")
    try:
        parsed = _period(value.strip()) or datetime.fromisoformat(value.strip())
        return parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed.astimezone(UTC)
    except (ValueError, OverflowError):
        raise FieldError(field, f"{allowed}, found {_shown(value)}") from None


def _period(text: str) -> datetime | None:
    """The first moment of a year, quarter or month; None for anything else: of a week `fromisoformat` gives it. Raises ValueError."""
    found = _PERIOD.fullmatch(text)
    if found is None:
        return None
    year, month, quarter, name, of_name = found.groups()
    if name is not None:
        month = next((n for n, full in enumerate(MONTHS, 1) if len(name) > 2 and full.startswith(name.lower())), 0)
    return datetime(int(year or of_name), int(month or 3 * int(quarter or 1) - 2) if name is None else int(month), 1)


def validity(row: Row) -> tuple[datetime | None, datetime | None]:
    """From when until before when the row holds."""
    begin, end = moment(row, "valid_from"), moment(row, "valid_until")
    try:
        return begin, known_end(begin, end)
    except ValueError:
        found = f"found {_shown(row['valid_until'])} and {_shown(row['valid_from'])}"
        raise FieldError("valid_until", f"must not be before valid_from, {found}") from None


def known_end(begin: datetime | None, end: datetime | None) -> datetime | None:
    """The end; None for a last day of the calendar, which stands for no end. Raises ValueError if it is before the begin."""
    if end is None or end >= NO_END:
        return None
    if begin is not None and end < begin:
        raise ValueError
    return end


def storable(field: str, value: str) -> str:
    """The text itself; half a surrogate pair is not text that UTF-8, and so a store, can hold."""
    if value.isascii():  # which Python knows of a text without reading it
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        raise FieldError(field, "contains half of a surrogate pair, which is not text") from None
    return value


def _shown(value: Any) -> str:
    """A value in an error message: short, one line, printable."""
    if isinstance(value, dict | list):
        return type_name(value)
    shown = ascii(value) if isinstance(value, str) else repr(value)[:60]
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


class UnknownFields:
    """Counts what is left out of rows, for one note each: fields a format does not know, all but the last of a key that
    stands twice, and the digits of a time past the microsecond."""

    MAX_NOTES = 20

    def __init__(self, known: Iterable[str], says: Mapping[str, str] = MappingProxyType({})) -> None:
        """`says` is the time of a memory by each of its names: a row that has two names of one time is read by the likelier."""
        self._known, self._says = frozenset(known), says
        self._rows: dict[str, int] = {}
        self._repeated: dict[str, int] = {}
        self._cut: dict[str, int] = {}

    def see(self, row: Row, unread: Iterable[str] | None = None) -> None:
        """Count what is left out of a row; `unread` are the names of those fields if they depend on the row."""
        for name in getattr(row, "repeated", ()):
            self._repeated[name] = self._repeated.get(name, 0) + 1
        for name in self._known.intersection(row):
            value = row[name]
            if type(value) is str and len(value) < 50 and _FINER.search(value):
                self._cut[name] = self._cut.get(name, 0) + 1
        for name in row.keys() - self._known if unread is None else unread:
            self._rows[name] = self._rows.get(name, 0) + 1

    def notes(self) -> tuple[str, ...]:
        """One note per field, the most frequent first."""
        faults = {name: f"says {said}, as another field of the row does," for name, said in self._says.items()}
        unknown = [
            f"field {_shown(name)} {faults.get(name, 'is not known')} and was left out ({counted(rows, 'rows')})"
            for name, rows in _ranked(self._rows)
        ]
        again = "stands more than once in an object; the last one counts"
        repeated = [f"key {_shown(name)} {again} ({counted(rows, 'rows')})" for name, rows in _ranked(self._repeated)]
        finer = "are kept to the microsecond; finer digits were cut"
        cut = [f"times in {_shown(name)} {finer} ({counted(rows, 'rows')})" for name, rows in _ranked(self._cut)]
        if len(unknown) > self.MAX_NOTES:
            unknown[self.MAX_NOTES :] = [f"left out: {counted(len(unknown) - self.MAX_NOTES, 'more unknown fields')}"]
        return (*unknown, *repeated[: self.MAX_NOTES], *cut)


_FINER = re.compile(r"^\s*\d{4}-?\d\d-?\d\d.\d\d:?\d\d:?\d\d[.,]\d{6}\d*[1-9]")


def _ranked(rows: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(rows.items(), key=lambda item: (-item[1], item[0]))
