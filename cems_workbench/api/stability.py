"""Stability marks of the Python API: a note in the docstring, and one warning when the name is first used.

A name without a mark is covered by the promise in CONTRIBUTING.md, "Versions". Modelled on Optuna's `experimental_func` and
`deprecated_func`.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

Marked = TypeVar("Marked", bound=Callable[..., Any])


class ExperimentalWarning(UserWarning):
    """A name may change in any version; it is outside the promise of CONTRIBUTING.md."""


def experimental(*, since: str) -> Callable[[Marked], Marked]:
    """Mark a function, method or class that may change in any version.

    Args:
        since: the version that added it.
    """

    def mark(target: Marked) -> Marked:
        line = f"{target.__qualname__} is experimental since {since}: it may change in any version"
        return _mark(target, f"Experimental since {since}: may change in any version.", line, ExperimentalWarning)

    return mark


def deprecated(*, since: str, use: str, removed_in: str) -> Callable[[Marked], Marked]:
    """Mark a function, method or class that another one replaces. It still works.

    Args:
        since: the version that deprecated it.
        use: the name to use instead.
        removed_in: the version that removes it.

    The warning is a FutureWarning, which Python shows to users by default; a DeprecationWarning is hidden outside `__main__`.
    """

    def mark(target: Marked) -> Marked:
        rest = f"deprecated since {since} and is removed in {removed_in}: use {use}"
        note = f"Deprecated since {since}, removed in {removed_in}: use `{use}`."
        return _mark(target, note, f"{target.__qualname__} is {rest}", FutureWarning)

    return mark


def _mark(target: Marked, note: str, line: str, category: type[Warning]) -> Marked:
    target.__doc__ = f"{inspect.cleandoc(target.__doc__ or '')}\n\n{note}".lstrip()
    function: Callable[..., Any] = target.__init__ if isinstance(target, type) else target  # type: ignore[misc]
    warned = False

    @functools.wraps(function)
    def wrapper(*args: Any, **values: Any) -> Any:
        nonlocal warned
        if not warned:
            warned = True
            warnings.warn(line, category, stacklevel=2)
        return function(*args, **values)

    if not isinstance(target, type):
        return wrapper  # type: ignore[return-value]
    target.__init__ = wrapper  # type: ignore[misc]
    return target
