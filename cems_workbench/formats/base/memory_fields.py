"""Fields of memories in other systems: their usual names, and parsing of their values.

Names are those of this project, CEMS, mem0 (`data`, `user_id`, `run_id`), LangChain (`page_content`), Haystack (`content`) and LlamaIndex.
Values are of JSON or SQL. A value that does not parse is a `RowProblem`, and the field counts as missing; so does blank text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from cems_workbench.formats.base import fields
from cems_workbench.formats.base.fields import FieldError
from cems_workbench.formats.base.files import data_beside
from cems_workbench.records import CEMS_SCOPES, IMPORTANCE, TIMES, Memory, RowProblem, project_of

NAMES: Mapping[str, tuple[str, ...]] = data_beside(__file__, "names.json")["memory"]
"""Names by field, likelier ones first; `document` and `number` are those of a chunk."""
TIME_OF: Mapping[str, str] = {name: field for field in TIMES for name in NAMES[field][1:]}
"""The time of a memory by each of its names but its own."""
TEXTS = ("memory", "page_content", "fact", "data")
"""Names of a text that is a memory's; others, such as `text`, may be anything's."""
STATE_NAMES: Mapping[str, str] = data_beside(__file__, "names.json")["state"]
"""Names by what they say of a memory's state, by the systems' sources, not recorded: Letta's is_deleted; ACE's others, whose references are
to `original_id`."""
DELETED_AT = "deleted_at"
"""A column of tables with the time of a deletion, empty while the row is there."""
EXPIRATION_DATE = "expiration_date"
"""mem0's last valid day, as its stores have it."""
UNKNOWN_END = datetime(1970, 1, 1, tzinfo=UTC)
"""When a memory that is not active, and has no date, expired."""
OPTIONAL_FIELDS = tuple(field for field in NAMES if field not in ("content", "document", "number"))
"""All fields but id and content."""
SCOPES: Mapping[str, str] = {**CEMS_SCOPES, "public": "shared", "private": "personal", "user": "personal"}
"""Scope by the words other systems use."""
SHARED_WORDS = tuple(word for word, scope in SCOPES.items() if scope == "shared")
"""Values of the scope field of shared memories; all others are personal."""
UNITS = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3))
"""(least, by): numbers from `least` are nanoseconds, microseconds or milliseconds, `by` of which are a second; smaller ones are seconds."""
FEWEST_DIGITS = 9
"""Of a time since 1970 as text: 20240508 is a date."""

Row = Mapping[str, Any]


def memory_of(
    memory_id: str, content: str, values: Mapping[str, Any], names: Mapping[str, str] | None = None
) -> tuple[Memory, list[RowProblem]]:
    """The memory of these values by field, and problems, which call a field as `names` does. `active` and
    `superseded_at` may be among the values: a memory that is not active expired when it was superseded, else when it
    was changed last. A day from mem0's expiration_date is the last valid one."""
    problems: list[RowProblem] = []
    read: dict[str, Any] = {}
    called = names or {}
    for field, value in values.items():
        if field in STATE_NAMES or value is None or (isinstance(value, str) and (not value or value.isspace())):
            continue
        try:
            read[field] = value_of(field, value)
        except FieldError as error:
            problems.append(RowProblem(memory_id, called.get(field, field), error.reason))
    if read.get("valid_until") and called.get("valid_until", "").rpartition(".")[2] == EXPIRATION_DATE:
        read["valid_until"] = _end_of_day(read["valid_until"])
    active = values.get("active")
    if active is not None and is_false(active) and read.get("valid_until") is None:
        read["valid_until"] = _end_of_inactive(values.get("superseded_at"), read)
    if "valid_until" in read:
        try:
            read["valid_until"] = fields.known_end(read.get("valid_from"), read["valid_until"])
        except ValueError:
            del read["valid_until"]
            until = called.get("valid_until", "valid_until")
            problems.append(RowProblem(memory_id, until, "is before the memory is valid"))
    if "source_ref" in read and read.get("project") is None:
        read["project"] = project_of(read["source_ref"])
    return Memory(memory_id, content, **read), problems


def value_of(field: str, value: Any) -> Any:
    """The value of a field, neither None nor blank, as a memory has it. Raises FieldError."""
    reader = _READERS.get(field)
    if reader is not None:
        return reader({field: value}, field)
    return fields.storable(field, value) if type(value) is str else _text({field: value}, field)


def is_true(value: Any) -> bool:
    """Whether a flag is set: true, 1, or one of these as text."""
    return str(value).lower() in ("true", "1", "t")


def is_false(value: Any) -> bool:
    """Whether a flag is there and not set: false, 0, or one of these as text."""
    return str(value).lower() in ("false", "0", "f")


def mem0_hides(value: Any, today: date) -> bool:
    """Whether mem0 leaves a memory with this expiration_date out of its lists and searches: from the day after it, in UTC."""
    try:
        return bool(value) and date.fromisoformat(str(value)) < today
    except ValueError:
        return False


def _end_of_day(moment: datetime) -> datetime | None:
    """The midnight after a day; a moment within a day stays; None: it has no end."""
    if moment >= fields.NO_END:
        return None
    return moment + timedelta(days=1) if moment.time() == time() else moment


def _end_of_inactive(superseded_at: Any, read: Mapping[str, Any]) -> datetime:
    try:
        known = None if superseded_at is None else moment({"superseded_at": superseded_at}, "superseded_at")
    except FieldError:
        known = None
    return known or read.get("updated_at") or read.get("created_at") or UNKNOWN_END


def _text(row: Row, field: str) -> str | None:
    value = row[field]
    plain = value if isinstance(value, bool | list | tuple | dict) else str(value)
    return fields.text({field: plain}, field)


def _tags(row: Row, field: str) -> tuple[str, ...]:
    """A list of strings, a JSON array as text, or words separated by commas or semicolons."""
    value = row[field]
    value = fields.items_in(field, value, "[;,]") if isinstance(value, str) else value
    if isinstance(value, list):
        value = [tag for tag in value if tag is not None]
    return tuple([tag for each in fields.tags({field: value}, field) if (tag := each.strip())])


YEARS = range(1900, 2200)
"""Numbers that are a year, and no second of 1970."""


def moment(row: Row, field: str) -> datetime | None:
    """A time or date of SQL, ISO 8601, a year, or seconds, milliseconds, microseconds or nanoseconds since 1970, also
    as digits. UTC unless it has a zone. Raises FieldError."""
    value = row[field]
    if isinstance(value, date):
        value = value if isinstance(value, datetime) else datetime.combine(value, time())
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    if isinstance(value, str):
        number = _since_1970(value.strip())
        if number is None:
            return fields.moment(row, field)
    elif isinstance(value, bool) or not isinstance(value, int | float):
        return fields.moment(row, field)
    elif value in YEARS:
        return fields.moment({field: str(value)}, field)
    else:
        number = value
    by = next((by for least, by in UNITS if abs(number) >= least), 1.0)
    try:
        return datetime.fromtimestamp(number / by, UTC) if math.isfinite(number) else fields.moment(row, field)
    except (ValueError, OverflowError, OSError):
        raise FieldError(field, f"is no time: {value!r}"[:80]) from None


def _since_1970(text: str) -> float | None:
    """The number that a text of digits is; None if it is none, or too short."""
    if not text[:1].isdecimal() or text[4:5] == "-":  # as of most times, 2024-05-08
        return None
    whole, _, rest = text.partition(".")
    digits = whole.isdecimal() and whole.isascii() and len(whole) >= FEWEST_DIGITS
    return float(text) if digits and (not rest or (rest.isdecimal() and rest.isascii())) else None


def _numeric(row: Row, field: str) -> Row:
    """The row with the field as a number, if it is one as text or a decimal of SQL."""
    value = row[field]
    if isinstance(value, str | Decimal):
        try:
            number = int(value) if str(value).isdecimal() else float(value)
            return {field: number} if math.isfinite(number) else row
        except ValueError:
            pass
    return row


_FLAGS = {"true": True, "false": False}
_READERS: Mapping[str, Callable[[Row, str], Any]] = {
    "tags": _tags,
    "priority": lambda row, field: fields.number(_numeric(row, field), field, 1.0, 2.0, 1.0),
    "pinned": lambda row, field: fields.flag({field: _FLAGS.get(str(row[field]).lower(), row[field])}, field),
    "importance": lambda row, field: fields.choice(row, field, IMPORTANCE, "normal"),
    "scope": lambda row, field: SCOPES[fields.choice(row, field, SCOPES, "personal")],
    **dict.fromkeys(TIMES, moment),
    **dict.fromkeys(
        ("access_count", "relevant_count", "noise_count"), lambda row, field: fields.count(_numeric(row, field), field)
    ),
}
"""Parsers of fields that are not text. Each raises FieldError for a value that does not fit."""
