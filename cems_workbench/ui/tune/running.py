"""A search that runs in a thread of its own, so that the page stays alive; what it scored is kept in a file after each part of it.

The page reads `progress` and `curve` while it runs, and `outcome` when it is over. Stopping ends it at the next config.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, replace

from cems_workbench.progress import Cancelled
from cems_workbench.tuning.scorer import read_scores, write_scores
from cems_workbench.tuning.search import Trial, Watch
from cems_workbench.tuning.stability import stability
from cems_workbench.tuning.tune import tune
from cems_workbench.ui.tune.state import Found, Order

SEARCH, STABILITY = "search", "how far each value can move"
NAME = "tune"
"""The name of the thread."""


@dataclass(frozen=True, slots=True)
class Part:
    """Which part is at work, and how far it is."""

    name: str = SEARCH
    done: int = 0
    total: int = 1


@dataclass(eq=False)
class Running:
    """A search at work, or over."""

    order: Order
    progress: Part = field(default_factory=Part)
    curve: list[float] = field(default_factory=list)
    """The best first objective after each config of the search over all open queries; the baseline's is first."""
    tried: int = 0
    """Configs scored so far, those of the folds included."""
    outcome: Found | None = None
    problem: str = ""
    started: float = field(default_factory=time.monotonic)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> Running:
        """Begin, or go on with what is known of it."""
        self._thread = threading.Thread(target=self._run, name=NAME, daemon=True)
        self._thread.start()
        return self

    @property
    def over(self) -> bool:
        """Has it ended, whatever way?"""
        return self._thread is not None and not self._thread.is_alive()

    @property
    def stopping(self) -> bool:
        """Was it told to stop?"""
        return self._stop.is_set()

    def stop(self) -> None:
        """End it after the config at hand; what was tried stays."""
        self._stop.set()

    def wait(self, seconds: float | None = None) -> None:
        """Until it has ended, or for so long."""
        if self._thread is not None:
            self._thread.join(seconds)

    def _run(self) -> None:
        try:
            self._searched()
        except Cancelled:
            self.problem = "Stopped before the baseline was scored."
        except Exception as error:  # a thread has nobody above it who could show this
            self.problem = f"The search ended with an error: {type(error).__name__}: {error}"
        try:
            self._keep()
        except OSError as error:
            self.problem = self.problem or f"The scores could not be kept: {error.strerror}"

    def _searched(self) -> None:
        order = self.order
        order.score.recall(read_scores(order.scores_path, order.belongs_to))
        tuned = tune(order.plan, order.score, self._watch)
        lacking = order.batch.rankings(tuned.proposal.config).needs
        found = Found(order, tuned, needs=[f"{count} queries lack {words}" for words, count in lacking.items()])
        self.outcome = found
        if not tuned.found.cancelled:
            self._keep()
            try:
                self.outcome = replace(found, regions=stability(tuned, order.score, progress=self._heard))
            except Cancelled:
                return

    def _keep(self) -> None:
        write_scores(self.order.scores_path, self.order.belongs_to, self.order.score.known())

    def _watch(self, part: str) -> Watch:
        if part != SEARCH:
            self._keep()

        def watch(done: int, total: int, best: Trial) -> None:
            self.progress = Part(part, done, total)
            self.tried += 1
            if part == SEARCH:
                self.curve.append(float(best.reached[0]))
            if self._stop.is_set():
                raise Cancelled

        return watch

    def _heard(self, label: str, done: int, total: int) -> None:
        self.progress = Part(STABILITY, done, total)
        if self._stop.is_set():
            raise Cancelled
