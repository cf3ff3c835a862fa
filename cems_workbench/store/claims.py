"""Claims on cards, so that two concurrent reviewers do not get the same pair.

A reviewer claims at most one pair, until the next one or for CLAIM_TIMEOUT_S. Claims are in a file of the store's directory, which its
other processes read; with a team's database they are in a table there.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

Pair = tuple[str, str]
"""(qid, memory_id)"""
Choose = Callable[[dict[str, Pair]], Pair | None]
CLAIMS_FILE = ".workbench.claims"
CLAIM_TIMEOUT_S = 600.0
"""A claim without a label expires after this, which releases the card of a reviewer who left."""


class Claims(Protocol):
    """At most one claimed pair per reviewer. Thread-safe."""

    def claim(self, reviewer: str, choose: Choose) -> Pair | None:
        """Claim for `reviewer` the pair that `choose` returns, given the claims of the *other* reviewers."""

    def release(self, reviewer: str) -> None:
        """Release a reviewer's claim."""


class FileClaims:
    """Claims in a file; claims of ended processes are ignored."""

    def __init__(
        self,
        clock: Callable[[], float] = time.time,
        path: Path | None = None,
        process_lock: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """`process_lock` is held while a pair is chosen; without a `path` no other process claims."""
        self._clock = clock
        self._path = path
        self._process_lock = process_lock
        self._lock = threading.RLock()
        self._held: dict[str, _Held] = {}

    def claim(self, reviewer: str, choose: Choose) -> Pair | None:
        with self._process_lock(), self._lock:
            held = self._read()
            held.pop(reviewer, None)
            chosen = choose({who: each.pair for who, each in held.items()})
            self._write(held if chosen is None else {**held, reviewer: _Held(chosen, self._clock(), os.getpid())})
            return chosen

    def release(self, reviewer: str) -> None:
        with self._process_lock(), self._lock:
            held = self._read()
            held.pop(reviewer, None)
            self._write(held)

    def _read(self) -> dict[str, _Held]:
        """All claims: this process's from memory, the others' from the file."""
        found = dict[str, _Held]()
        if self._path is not None:
            # A damaged file counts as no claims: at worst two people see the same card.
            with suppress(OSError, ValueError, TypeError, AttributeError):
                written = json.loads(self._path.read_text("utf-8"))
                found = {who: _Held((str(q), str(m)), float(at), int(pid)) for who, (q, m, at, pid) in written.items()}
        mine, now = os.getpid(), self._clock()
        # This process's claims are from memory: on a full disk they are not in the file.
        found = {who: each for who, each in found.items() if each.pid != mine and _alive(each.pid)} | self._held
        return {who: each for who, each in found.items() if now - each.since < CLAIM_TIMEOUT_S}

    def _write(self, held: dict[str, _Held]) -> None:
        self._held = {who: each for who, each in held.items() if each.pid == os.getpid()}
        if self._path is not None:
            text = json.dumps({who: [*each.pair, each.since, each.pid] for who, each in held.items()})
            with suppress(OSError):  # full disk: two processes may then show the same card
                self._path.write_text(text, "utf-8")


@dataclass(frozen=True, slots=True)
class _Held:
    """A claimed pair, the time of the claim, and its process."""

    pair: Pair
    since: float
    pid: int


def _alive(pid: int) -> bool:
    try:
        # Signal 0 only asks whether the process exists.
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
