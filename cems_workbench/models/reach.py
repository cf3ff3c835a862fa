"""Which servers could not be connected to, so that a thousand queries do not each find it out anew.

After a connection that failed, a server is not asked again for `SHARE` times as long as finding out took, at least `SHORTEST_S` and at
most `LONGEST_S`. Then one call probes it, with a single try, while others wait for what it finds; an answer of any kind ends the
matter. So a dead server costs a fraction of the time that passes, and one that comes back is used again.

Source: the circuit breaker of Nygard, Release It! (2007).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

SHORTEST_S = 1.0
LONGEST_S = 30.0
SHARE = 20.0
PROBE_SECONDS = 10.0
"""A probe of which nothing was heard for so long has ended without saying so."""


@dataclass
class _Down:
    said: str
    due: float
    probed_until: float = 0.0


class Reach:
    """What is known of servers by name; shared by all calls of a process, from several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._down: dict[str, _Down] = {}
        self._changed = threading.Condition()

    def down(self, server: str) -> bool:
        """Could it not be connected to when it was last tried?"""
        with self._changed:
            return server in self._down

    def refusal(self, server: str) -> str | None:
        """Why the server is not asked now; None when it is to be asked, and then `failed` or `answered` says how that went."""
        with self._changed:
            while (known := self._down.get(server)) is not None:
                now = self._clock()
                if now < known.probed_until:
                    self._changed.wait(known.probed_until - now)
                elif now < known.due:
                    return f"not asked, since {known.said}"
                else:
                    known.probed_until = now + PROBE_SECONDS
                    return None
            return None

    def failed(self, server: str, said: str, seconds: float) -> None:
        """It could not be connected to, which took so many seconds to find out."""
        with self._changed:
            pause = min(LONGEST_S, max(SHORTEST_S, SHARE * seconds))
            self._down[server] = _Down(said, self._clock() + pause)
            self._changed.notify_all()

    def answered(self, server: str) -> None:
        """Somebody is there, whatever was said."""
        with self._changed:
            if self._down.pop(server, None) is not None:
                self._changed.notify_all()
