"""Circuit breaker: skips calls to servers that could not be reached lately.

A failed connection opens a server's circuit for `PAUSE_FACTOR` times as long as the failure took, at least `MIN_PAUSE_S` and at most
`MAX_PAUSE_S`. Then the circuit is half open: one call tries the server, once, while other calls wait for its outcome. Any response closes
the circuit. A dead server thus costs a fraction of the elapsed time, and one that returns is used again.

Source: Nygard, Release It! (2007), circuit breaker.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

MIN_PAUSE_S = 1.0
MAX_PAUSE_S = 30.0
PAUSE_FACTOR = 20.0
TRIAL_TIMEOUT_S = 10.0
"""A half-open trial that takes longer is taken to have ended without an outcome."""


@dataclass
class _OpenCircuit:
    reason: str
    due: float
    trial_until: float = 0.0


class CircuitBreaker:
    """A circuit per server, by name; shared by all calls of a process, from several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._open: dict[str, _OpenCircuit] = {}
        self._changed = threading.Condition()

    def is_open(self, server: str) -> bool:
        """Whether the last attempt to connect failed."""
        with self._changed:
            return server in self._open

    def refusal(self, server: str) -> str | None:
        """Why the server is not asked now; None when it is to be asked, and then `failed` or `answered` says how that went.

        Waits up to `TRIAL_TIMEOUT_S` while another call tries the server.
        """
        with self._changed:
            while (circuit := self._open.get(server)) is not None:
                now = self._clock()
                if now < circuit.trial_until:
                    # Another call tries the server: its outcome is this call's too.
                    self._changed.wait(circuit.trial_until - now)
                elif now < circuit.due:
                    return f"not asked, since {circuit.reason}"
                else:
                    circuit.trial_until = now + TRIAL_TIMEOUT_S
                    return None
            return None

    def failed(self, server: str, reason: str, seconds: float) -> None:
        """Connecting failed after this many seconds: open its circuit."""
        with self._changed:
            pause = min(MAX_PAUSE_S, max(MIN_PAUSE_S, PAUSE_FACTOR * seconds))
            self._open[server] = _OpenCircuit(reason, self._clock() + pause)
            self._changed.notify_all()

    def answered(self, server: str) -> None:
        """The server responded, with any status: close its circuit."""
        with self._changed:
            if self._open.pop(server, None) is not None:
                self._changed.notify_all()
