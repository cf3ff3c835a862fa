"""How much of the same a test tries: a part by `make test`, and all by `make thorough`
(docs/internals/decisions/0027-test-tiers.md)."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

import pytest

T = TypeVar("T")

THOROUGH = bool(os.environ.get("THOROUGH"))
EXAMPLES = int(os.environ.get("PROPERTY_EXAMPLES", 60 if THOROUGH else 10))
"""What a property is tried on, where it does not say how often."""

partly = pytest.mark.partly
"""Of a test that tries a part; all properties have it."""


def some(of: Iterable[T], every: int) -> list[T]:
    """Every so many of these, or all."""
    return list(of)[:: 1 if THOROUGH else every]


def first_of(values: Iterable[object], count: int = 1) -> list[object]:
    """Parameters of which `make test` tries the first few."""
    return [
        value if place < count else pytest.param(value, marks=pytest.mark.thorough)
        for place, value in enumerate(values)
    ]
