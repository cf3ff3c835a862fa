"""Background search: a tuning search in a thread, which a page polls.

`progress` and `best` may be read while it runs, and `result` when it is over. Stopping ends it at the next config.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from cems_workbench.errors import ClusterError
from cems_workbench.jobs.cluster import cluster_at
from cems_workbench.jobs.tuning import MAIN_SEARCH, PlannedSearch, SearchResult, run_search, with_stability
from cems_workbench.progress import Cancelled
from cems_workbench.tuning.optimizer import Trial, Watch

STABILITY = "how far each value can move"
THREAD_NAME = "tune"


@dataclass(frozen=True, slots=True)
class SearchProgress:
    """The part of a search that runs, and its progress."""

    part: str = MAIN_SEARCH
    done: int = 0
    total: int = 1


@dataclass(eq=False)
class BackgroundSearch:
    """A running or finished search."""

    planned: PlannedSearch
    dask: str = ""
    """Address of a Dask scheduler whose workers score; empty for this process."""
    progress: SearchProgress = field(default_factory=SearchProgress)
    best: list[float] = field(default_factory=list)
    """The best first objective after each config of the search over all open queries; the first is the baseline's."""
    tried: int = 0
    """Configs scored so far, including those of the folds."""
    result: SearchResult | None = None
    problem: str = ""
    started: float = field(default_factory=time.monotonic)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> BackgroundSearch:
        """Start, or resume from the kept scores."""
        self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)
        self._thread.start()
        return self

    @property
    def over(self) -> bool:
        """Whether it has ended: finished, stopped or failed."""
        return self._thread is not None and not self._thread.is_alive()

    @property
    def stopping(self) -> bool:
        """Whether a stop has been requested."""
        return self._stop.is_set()

    def stop(self) -> None:
        """Stop it after the present config; the trials so far are kept."""
        self._stop.set()

    def wait(self, seconds: float | None = None) -> None:
        """Wait until it has ended, or for so many seconds."""
        if self._thread is not None:
            self._thread.join(seconds)

    def _run(self) -> None:
        try:
            with cluster_at(self.dask) as cluster:
                self.result = run_search(self.planned, self._watch, cluster)
            if not self.result.tuned.search.cancelled:
                self.result = with_stability(self.result, self._measuring)
        except Cancelled:
            self.problem = "Stopped before the baseline was scored."
        except ClusterError as error:
            self.problem = str(error)
        except Exception as error:  # nothing above a thread could show it
            self.problem = f"The search ended with an error: {type(error).__name__}: {error}"
        if self.result is not None and self.result.not_kept:
            self.problem = self.problem or f"The scores could not be kept: {self.result.not_kept}"

    def _watch(self, part: str) -> Watch:
        def watch(done: int, total: int, best: Trial) -> None:
            self.progress = SearchProgress(part, done, total)
            self.tried += 1
            if part == MAIN_SEARCH:
                self.best.append(float(self.planned.plan.goal.as_measured(best.reached)[0]))
            self._obey()

        return watch

    def _measuring(self, label: str, done: int, total: int) -> None:
        self.progress = SearchProgress(STABILITY, done, total)
        self._obey()

    def _obey(self) -> None:
        if self._stop.is_set():
            raise Cancelled
