"""Requests to a source: with a time limit, and errors of one line without any secret."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar

from cems_workbench.errors import InputError, one_line
from cems_workbench.platform.waiting import run_in_thread
from cems_workbench.sources.address import Address
from cems_workbench.sources.source import SourceError

T = TypeVar("T")

MAX_ERROR_CHARS = 300


def ask(address: Address, seconds: float, call: Callable[[], T], reason: Callable[[Exception], str | None]) -> T:
    """The result of `call`. Raises SourceError, one line without any secret, if it fails or takes longer than `seconds`."""
    from cems_workbench.platform.http_limits import ResponseError

    try:
        return run_in_thread(call).result(seconds)
    except (SourceError, InputError):
        raise
    except ResponseError as error:
        raise SourceError(f"{address.plain}: {one_line(address.hidden(str(error)), MAX_ERROR_CHARS)}") from None
    except TimeoutError:
        raise SourceError(f"{address.plain}: no answer in {seconds:g} s") from None
    except Exception as error:
        message = reason(error)
        if message is None:
            raise
        raise SourceError(f"{address.plain}: {one_line(address.hidden(message), MAX_ERROR_CHARS)}") from None


def check_options(address: Address, known: Collection[str]) -> None:
    """Raise InputError for an option that this kind of address does not have."""
    for name in address.options:
        if name not in known:
            hint = f"it may be {', '.join(known)}" if known else "there are none here"
            raise InputError(f"{address.plain}: {name} is no option of this address; {hint}")
