"""Background priority: background jobs pause while a page works for a user.

Both need all cores and the one reranker: with a gather in the background, a typed query took 1.4 times as long until the order of its
lists was painted.

Background gather of the judged queries' evidence, so that a tool that measures on them need not wait.

Evidence goes into an `EvidenceMemory`, a query at a time, and reranker scores into the store's cache, so that a stopped gather resumes. The
thread pauses while a page works (`background_priority`).

Background search: a tuning search in a thread, which a page polls.

`progress` and `best` may be read while it runs, and `result` when it is over. Stopping ends it at the next config.

Ready-made queue: the first queue of a store, made in a background thread from its largest query set.

It holds the first results of the default preset without reranker and judge, so that the first card appears within seconds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from cems_workbench.config import PipelineConfig, asks_source, preset, with_values
from cems_workbench.config.presets import DEFAULT
from cems_workbench.errors import ClusterError, WorkbenchError
from cems_workbench.jobs.cluster import cluster_at
from cems_workbench.jobs.evidence_memory import EvidenceMemory, MemoryKey
from cems_workbench.jobs.labelling import QueuePlan, assemble
from cems_workbench.jobs.query_set_evidence import QuerySelection
from cems_workbench.jobs.tuning import MAIN_SEARCH, PlannedSearch, SearchResult, run_search, with_stability
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages import RERANK
from cems_workbench.progress import Cancelled
from cems_workbench.records import Query
from cems_workbench.tuning.optimizer import Trial, Watch

QUIET_S = 2.0
"""Background jobs resume after so much idle time: the browser still draws, and another key may follow."""
MAX_WAIT_S = 5.0
"""Maximum pause of one background step: foreground work may take minutes, and then both proceed."""


class ForegroundGate:
    """Counts the foreground work of a process, and lets background threads wait for it; thread-safe."""

    def __init__(self, quiet_s: float = QUIET_S, max_wait_s: float = MAX_WAIT_S) -> None:
        """Seconds, see `QUIET_S` and `MAX_WAIT_S`."""
        self._quiet, self._most = quiet_s, max_wait_s
        self._changed = threading.Condition()
        self.active = 0
        """Number of foreground tasks in progress."""
        self._ended = float("-inf")

    @contextmanager
    def foreground_work(self) -> Iterator[None]:
        """The block is foreground work."""
        with self._changed:
            self.active += 1
        try:
            yield
        finally:
            with self._changed:
                self.active -= 1
                self._ended = time.monotonic()
                self._changed.notify_all()

    def wait_while_busy(self) -> None:
        """Wait for `quiet_s` without foreground work, at most `max_wait_s`. Never called with a lock held."""
        latest = time.monotonic() + self._most
        with self._changed:
            while (now := time.monotonic()) < latest:
                until = latest if self.active else min(latest, self._ended + self._quiet)
                if until <= now:
                    return
                self._changed.wait(until - now)


FOREGROUND = ForegroundGate()
"""The gate of this process; its pages enter it."""


BACKGROUND_EVIDENCE_THREAD_NAME = "judged-queries"
LOCAL_RERANKERS = ("none", "cross_encoder", "late_interaction")
"""Rerankers that run in this process: they are free, so that no consent is needed."""


def may_start_unasked(config: PipelineConfig) -> bool:
    """Whether this gather may start without a request: not if it calls a running system, a server or a language model."""
    own = RERANK.is_off(config) or config.rerank.backend in LOCAL_RERANKERS
    return own and searches_locally(config)


def searches_locally(config: PipelineConfig) -> bool:
    """Whether the lists of a query are searched without a running system or a language model."""
    return not asks_source(config) and config.expansion.backend != "llm"


@dataclass(eq=False)
class BackgroundEvidence:
    """A running or finished gather; `done` and `total` count queries, `problem` is why it ended early, `key` identifies its evidence."""

    memory: EvidenceMemory
    queries: Sequence[Query]
    config: PipelineConfig
    resources: Resources
    done: int = 0
    total: int = 0
    problem: str = ""
    stopped: bool = False
    key: MemoryKey | None = None
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> BackgroundEvidence:
        """Start, or resume."""
        self.total = len(self.queries)
        self.key = self.memory.key(self.config, self.resources)
        self._thread = threading.Thread(target=self._run, name=BACKGROUND_EVIDENCE_THREAD_NAME, daemon=True)
        self._thread.start()
        return self

    @property
    def over(self) -> bool:
        """Whether it has ended: finished, stopped or failed."""
        return self._thread is not None and not self._thread.is_alive()

    def stop(self) -> None:
        """Stop it after the present batch."""
        self._stop.set()

    def wait(self, seconds: float | None = None) -> None:
        """Wait until it has ended, or for so many seconds."""
        if self._thread is not None:
            self._thread.join(seconds)

    def _run(self) -> None:
        try:
            self.memory.get(self.queries, self.config, self.resources, self._watch)
        except Cancelled:
            self.stopped = True
        except WorkbenchError as error:
            self.problem = str(error)
        except Exception as error:  # nothing above a thread could show it
            self.problem = f"{type(error).__name__}: {error}"

    def _watch(self, label: str, done: int, total: int) -> None:
        self.done, self.total = done, total
        FOREGROUND.wait_while_busy()
        if self._stop.is_set():
            raise Cancelled


STABILITY = "how far each value can move"
BACKGROUND_SEARCH_THREAD_NAME = "tune"


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
        self._thread = threading.Thread(target=self._run, name=BACKGROUND_SEARCH_THREAD_NAME, daemon=True)
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


MAX_QUERIES = 50
"""The first queries of the set: enough for an afternoon of labelling, gathered in seconds."""
READY_QUEUE_THREAD_NAME = "ready-queue"


def ready_plan(resources: Resources) -> QueuePlan | None:
    """The first results of the default preset for the first queries of the largest set; None for a store without queries."""
    largest = max(resources.store.query_sets.latest(), key=lambda known: (known.size, known.name), default=None)
    if largest is None or not largest.size:
        return None
    queries = tuple(resources.store.query_sets.queries(largest.name)[:MAX_QUERIES])
    selection = QuerySelection(largest.name, queries)
    return QueuePlan(f"{largest.name}-ready", selection, {DEFAULT: fast_config()}, ready_made=True)


def fast_config() -> PipelineConfig:
    """The default preset without the models that read every result."""
    return with_values(preset(DEFAULT).config, {"rerank.backend": "none", "judge.backend": "none"})


@dataclass(eq=False)
class BackgroundQueue:
    """A ready-made queue in progress or finished; `done` and `total` count queries, `problem` is why there is none."""

    resources: Resources
    plan: QueuePlan
    done: int = 0
    total: int = 0
    problem: str = ""
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> BackgroundQueue:
        """Start, or resume the gather of an earlier one."""
        self.total = len(self.plan.selection.queries)
        self._thread = threading.Thread(target=self._run, name=READY_QUEUE_THREAD_NAME, daemon=True)
        self._thread.start()
        return self

    @property
    def over(self) -> bool:
        """Has it ended: finished, stopped or failed?"""
        return self._thread is not None and not self._thread.is_alive()

    def stop(self) -> None:
        """Stop it after the present query."""
        self._stop.set()

    def wait(self, seconds: float | None = None) -> None:
        """Wait until it has ended, or for so many seconds."""
        if self._thread is not None:
            self._thread.join(seconds)

    def _run(self) -> None:
        try:
            self.resources.store.queues.save(assemble(self.plan, self.resources, self._watch))
        except Cancelled:
            self.problem = "It was stopped."
        except WorkbenchError as error:
            self.problem = str(error)
        except Exception as error:  # nothing above a thread could show it
            self.problem = f"{type(error).__name__}: {error}"

    def _watch(self, label: str, done: int, total: int) -> None:
        self.done, self.total = done, total
        if self._stop.is_set():
            raise Cancelled
