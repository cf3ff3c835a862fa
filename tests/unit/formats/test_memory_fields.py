"""Values of JSON and of SQL read as the same field of a memory, and those that no memory can have."""

from __future__ import annotations

import uuid
from dataclasses import fields
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pytest

from cems_workbench.formats.base.memory_fields import OPTIONAL_FIELDS, SCOPES, SHARED_WORDS, memory_of
from cems_workbench.records import Memory

MORNING = datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)


def test_every_field_of_a_memory_has_names() -> None:
    assert {"id", "content", *OPTIONAL_FIELDS} == {field.name for field in fields(Memory)}


@pytest.mark.parametrize(
    ("field", "values", "read"),
    [
        ("author", ["7", 7, Decimal(7)], "7"),
        ("session", [uuid.UUID(int=1), str(uuid.UUID(int=1))], str(uuid.UUID(int=1))),
        ("tags", [["a", None, " b ", ""], "a; b", "a,b", '["a", "b"]'], ("a", "b")),
        (
            "created_at",
            [
                MORNING,
                MORNING.replace(tzinfo=None),
                MORNING.astimezone(timezone(timedelta(hours=2))),
                MORNING.isoformat(),
                MORNING.timestamp(),
                MORNING.timestamp() * 1000,
            ],
            MORNING,
        ),
        ("updated_at", [date(2024, 1, 2), "2024-01-02"], datetime(2024, 1, 2, tzinfo=UTC)),
        ("access_count", [3, 3.0, "3", Decimal(3)], 3),
        ("priority", [1.5, "1.5", Decimal("1.5")], 1.5),
        ("pinned", [True, "true"], True),
        ("scope", SHARED_WORDS, "shared"),
        ("scope", ["personal", "private", "user"], "personal"),
        ("importance", ["high"], "high"),
        ("title", [None, "", "  "], None),
        ("importance", [None, " "], "normal"),
    ],
)
def test_the_forms_of_a_value_are_read_alike(field, values, read) -> None:
    for value in values:
        memory, problems = memory_of("1", "text", {field: value})
        assert (getattr(memory, field), problems) == (read, []), value


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("access_count", -4, "must be a whole number from 0, found -4"),
        ("access_count", "1.5", "must be a whole number from 0, found 1.5"),
        ("priority", "high", "must be a number 1.0–2.0, found 'high'"),
        ("priority", True, "must be a number 1.0–2.0, found True"),
        ("pinned", "yes", "must be true or false, found 'yes'"),
        ("scope", "galaxy", f"must be one of {', '.join(SCOPES)}, found 'galaxy'"),
        ("importance", 0.8, "must be one of low, normal, high, found 0.8"),
        ("tags", "[1", "begins like a list and is none"),
        ("title", ["T"], "must be a string, found a list"),
    ],
)
def test_a_value_that_no_memory_can_have_is_left_out_and_said(field, value, reason) -> None:
    memory, (problem,) = memory_of("1", "text", {field: value}, {field: "there"})
    assert memory == Memory("1", "text")
    assert (problem.memory_id, problem.field, problem.reason) == ("1", "there", reason)


def test_the_project_is_the_references_unless_it_is_there_itself() -> None:
    assert memory_of("1", "text", {"source_ref": "project:org/repo#7"})[0].project == "org/repo"
    assert memory_of("1", "text", {"source_ref": "project:org/repo", "project": "own"})[0].project == "own"


@pytest.mark.parametrize(
    ("given", "day"),
    [
        ("2026", "2026-01-01"),
        (2026, "2026-01-01"),
        ("2026-03", "2026-03-01"),
        ("2026/3", "2026-03-01"),
        ("2026-Q3", "2026-07-01"),
        ("August 2026", "2026-08-01"),
        ("Sept. 2026", "2026-09-01"),
        ("2026-W20", "2026-05-11"),
        ("2026-13", None),
        ("Ma 2026", None),
        ("Summer 2026", None),
    ],
)
def test_a_date_with_less_precision_is_the_first_moment_of_its_period(given, day):
    """vectorize-io/hindsight#3893, 2026-08-30: one rule for a year, a month and a week."""
    memory, problems = memory_of("m", "text", {"created_at": given}, {})
    assert (memory.created_at, len(problems)) == (day and datetime.fromisoformat(f"{day}T00:00:00+00:00"), day is None)
