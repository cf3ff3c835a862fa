"""Who is looking at which card: so that two reviewers at work at once are not dealt the same pair.

Kept in memory only: one process holds a store, and a claim is worth nothing after it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

Pair = tuple[str, str]
SECONDS = 600.0
"""How long a claim holds without a label; a reviewer who left gives the card back by that."""


class Claims:
    """At most one claimed pair per reviewer; methods may be called from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._held: dict[str, tuple[Pair, float]] = {}

    def claim(self, reviewer: str, choose: Callable[[dict[str, Pair]], Pair | None]) -> Pair | None:
        """Let `choose` pick a pair, given what each of the *other* reviewers looks at now, and hold it for `reviewer`."""
        with self._lock:
            now = self._clock()
            self._held = {who: held for who, held in self._held.items() if now - held[1] < SECONDS}
            chosen = choose({who: pair for who, (pair, _) in self._held.items() if who != reviewer})
            if chosen is None:
                self._held.pop(reviewer, None)
            else:
                self._held[reviewer] = (chosen, now)
            return chosen

    def release(self, reviewer: str) -> None:
        """Give back what a reviewer holds."""
        with self._lock:
            self._held.pop(reviewer, None)
