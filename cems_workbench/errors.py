"""Errors a user can act on.

Every `WorkbenchError` carries one line that says what is wrong and where (file, row, field, allowed values). The CLI
prints that line and exits with 2; a page shows it in place. Anything else that escapes is a bug and keeps its traceback.
"""

from __future__ import annotations

import difflib
import errno
import json
import reprlib
from collections.abc import Iterable, Sequence


class WorkbenchError(Exception):
    """Base of every error whose message is meant for the user; `str(error)` is one line."""


class InputError(WorkbenchError):
    """A file, bundle, config or argument that is not valid."""


class StoreError(WorkbenchError):
    """A store that cannot be opened or written."""


class NoMemoriesError(StoreError):
    """No store, or one without memories: something has to be imported first."""


class StoreLockedError(StoreError):
    """Another process holds the lock on the store (`platform/process_lock.py`)."""


class ModelError(WorkbenchError):
    """A model or model server that cannot be loaded or reached."""


class EmbedderMismatchError(ModelError):
    """The stored vectors are of another embedder than the configured one."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name closest to a mistyped one, or None when nothing is close.

    `name` and each of `known` may be dotted paths; only the last segment is compared when the parents agree.
    """
    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=0.55)
    return matches[0] if matches else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """ " (did you mean title?)" for a mistyped name; empty if nothing is close."""
    like = nearest(name, known)
    return f" (did you mean {like}?)" if like else ""


def suggestion(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """ "; did you mean title?" for a mistyped name, else `otherwise`."""
    like = nearest(name, known)
    return f"; did you mean {like}?" if like else otherwise


def some(names: Sequence[str], most: int) -> str:
    """ "a, b and 3 more": the first names, and how many others there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def counted(count: int, kind: str) -> str:
    """ "1 memory", "2,000 memories"; of a kind such as "files of stages" the first noun is counted."""
    head, of, rest = kind.partition(" of ")
    one = f"{head[:-3]}y" if head.endswith("ies") else head.removesuffix("s")
    return f"{count:,} {kind if count != 1 else one + of + rest}"


def one_line(text: str, chars: int = 200) -> str:
    """Whitespace and control characters as single spaces, cut to `chars` characters."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= chars else f"{line[: chars - 1]}…"


def short(value: object, chars: int = 60) -> str:
    """A value as Python writes it, cut to `chars` characters; nothing that is nested, shared or long is ever written out for it."""
    try:
        text = _SHORT.repr(value)
    except ValueError:  # a whole number of more digits than Python writes
        return "a number of too many digits"
    return text if len(text) <= chars else f"{text[: chars - 3]}..."


_SHORT = reprlib.Repr()
_SHORT.maxlevel = 2
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = 60


def install_extra(package: str, extra: str) -> str:
    """The error for a package that an extra installs, and how to install it."""
    return f"{package} is not installed; pip install 'cems-workbench[{extra}]' brings it"


def server_message(text: str) -> str:
    """The message of a server's error response: that in its JSON, or its text."""
    text = text.strip()
    try:
        reply = json.loads(text)
    except (ValueError, RecursionError):
        return "a page of HTML" if text.startswith("<") else text or "no further words"
    if isinstance(reply, dict) and isinstance(reply.get("status"), dict):
        reply = reply["status"]
    for key in ("error", "message", "detail"):
        if isinstance(reply, dict) and key in reply:
            reply = reply[key]
    return reply if isinstance(reply, str) else json.dumps(reply)


_OF_ENVIRONMENT = "ENOSPC EDQUOT EFBIG EROFS EACCES EPERM EISDIR ENOTDIR ENAMETOOLONG EMFILE EIO"
ENVIRONMENT_ERRNOS = frozenset(getattr(errno, name) for name in _OF_ENVIRONMENT.split())
"""Errors of the machine, not of the program: a full or read-only disk, a name too long, no permission."""


def user_message(error: BaseException) -> str | None:
    """The one-line message for an error that ended a command or a call; None for a bug, which keeps its traceback."""
    if isinstance(error, WorkbenchError):
        return " ".join(str(error).split())
    if isinstance(error, OSError) and error.errno in ENVIRONMENT_ERRNOS:
        return f"{error.filename or 'a file'}: {error.strerror}; earlier data is unchanged"
    if type(error).__module__.partition(".")[0] in ("duckdb", "_duckdb"):
        said = " ".join(str(error).split())
        return f"the store's database cannot be read: {said}; doctor --recover-to NEW_STORE writes what can be into a new store"
    return None
