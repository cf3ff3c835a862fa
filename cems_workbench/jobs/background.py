"""Work in threads that pages poll: the evidence of judged queries, a tuning search, the first labelling queue of a store, and its Chroma
collection.

Evidence goes into an `EvidenceMemory`, a query at a time, and reranker scores into the store's cache, so that a stopped gather resumes.
The queue is of the largest query set: the first results of the app's preset without reranker and judge, so that the first card appears
within seconds.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Self

from cems_workbench.builtin import default_preset
from cems_workbench.config import PipelineConfig, asks_source, preset, with_values
from cems_workbench.errors import WorkbenchError
from cems_workbench.jobs.evidence_memory import EvidenceMemory, MemoryKey
from cems_workbench.jobs.foreground import FOREGROUND
from cems_workbench.jobs.labelling import QueuePlan, assemble
from cems_workbench.jobs.query_set_evidence import QuerySelection
from cems_workbench.jobs.tuning import MAIN_SEARCH, PlannedSearch, SearchResult, run_search, with_stability
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages import RERANK
from cems_workbench.progress import Cancelled
from cems_workbench.records import Query
from cems_workbench.settings import Settings
from cems_workbench.tuning.tune import Trial, Watch

EVIDENCE_THREAD, SEARCH_THREAD, QUEUE_THREAD, CHROMA_THREAD = "judged-queries", "tune", "ready-queue", "chroma"


@dataclass(eq=False)
class BackgroundWork:
    """Work in a thread, running or over: `done` of `total` steps, and `problem`, why it ended early. All may be read while it runs."""

    done: int = field(default=0, init=False)
    total: int = field(default=0, init=False)
    problem: str = field(default="", init=False)
    stopped: bool = field(default=False, init=False)
    _stop: threading.Event = field(default_factory=threading.Event, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)

    THREAD: ClassVar[str]
    STOPPED: ClassVar[str] = ""
    """The `problem` of work that was stopped."""

    def work(self) -> None:
        """Do it. Raises Cancelled once `stop` was called."""
        raise NotImplementedError

    def start(self) -> Self:
        """Start, or resume what an earlier one kept."""
        self._thread = threading.Thread(target=self._run, name=self.THREAD, daemon=True)
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
        """Stop it after the present step; what was done so far is kept."""
        self._stop.set()

    def wait(self, seconds: float | None = None) -> None:
        """Wait until it has ended, or for so many seconds."""
        if self._thread is not None:
            self._thread.join(seconds)

    def _run(self) -> None:
        try:
            self.work()
        except Cancelled:
            self.stopped, self.problem = True, self.STOPPED
        except WorkbenchError as error:
            self.problem = str(error)
        except Exception as error:  # nothing above a thread could show it
            self.problem = f"{type(error).__name__}: {error}"

    def _watch(self, label: str, done: int, total: int) -> None:
        self.done, self.total = done, total
        if self.stopping:
            raise Cancelled


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
class BackgroundEvidence(BackgroundWork):
    """A gather of queries; `key` identifies its evidence."""

    memory: EvidenceMemory
    queries: Sequence[Query]
    config: PipelineConfig
    resources: Resources
    key: MemoryKey = field(init=False)

    THREAD: ClassVar[str] = EVIDENCE_THREAD

    def __post_init__(self) -> None:
        self.total = len(self.queries)
        self.key = self.memory.key(self.config, self.resources)

    def work(self) -> None:
        """Gather every query, at a pause of the pages."""
        self.memory.get(self.queries, self.config, self.resources, self._watch)

    def _watch(self, label: str, done: int, total: int) -> None:
        FOREGROUND.wait_while_busy()
        super()._watch(label, done, total)


STABILITY = "how far each value can move"
PACED = 40
"""The last configs whose pace gives the time left."""


@dataclass(eq=False)
class BackgroundSearch(BackgroundWork):
    """A search for a better config; it stops at the next config, and the trials so far are kept."""

    planned: PlannedSearch
    result: SearchResult | None = None
    """Its result; before that, of the search before it."""
    part: str = MAIN_SEARCH
    """The part of the search that `done` and `total` are of."""
    best: list[float] = field(default_factory=list)
    """The best first objective after each config of the search over all open queries; the first is the baseline's."""
    tried: int = 0
    """Configs scored so far, including those of the folds."""
    moments: deque[float] = field(default_factory=lambda: deque(maxlen=PACED + 1))
    """When the last configs were scored."""

    THREAD: ClassVar[str] = SEARCH_THREAD
    STOPPED: ClassVar[str] = "Stopped before the baseline was scored."

    def work(self) -> None:
        """Search, then measure how far each value can move."""
        self.result = run_search(self.planned, self._scored)
        if not self.result.tuned.search.cancelled:
            self.result = with_stability(self.result, lambda _label, done, total: self._watch(STABILITY, done, total))
        if self.result.not_kept:
            self.problem = f"The scores could not be kept: {self.result.not_kept}"

    @property
    def seconds_left(self) -> float | None:
        """The time for the remaining configs, if none repeats, at the pace of the last ones; None before the fifth."""
        if len(self.moments) < 5:
            return None
        pace = (self.moments[-1] - self.moments[0]) / (len(self.moments) - 1)
        return pace * max(0, self.planned.most_configs - self.tried)

    def _scored(self, part: str) -> Watch:
        def watch(done: int, total: int, best: Trial) -> None:
            self.tried += 1
            self.moments.append(time.monotonic())
            if part == MAIN_SEARCH:
                self.best.append(float(self.planned.plan.goal.as_measured(best.reached)[0]))
            self._watch(part, done, total)

        return watch

    def _watch(self, label: str, done: int, total: int) -> None:
        self.part = label
        super()._watch(label, done, total)


MAX_QUERIES = 50
"""The first queries of the set: enough for an afternoon of labelling, gathered in seconds."""


def ready_plan(resources: Resources) -> QueuePlan | None:
    """The first results of the app's preset for the first queries of the largest set; None for a store without queries."""
    largest = max(resources.store.query_sets.latest(), key=lambda known: (known.size, known.name), default=None)
    if largest is None or not largest.size:
        return None
    selection = QuerySelection(largest.name, tuple(resources.store.query_sets.queries(largest.name)[:MAX_QUERIES]))
    name = default_preset(Settings().preset)[0]
    return QueuePlan(f"{largest.name}-ready", selection, {name: fast_config(name)}, ready_made=True)


def fast_config(name: str) -> PipelineConfig:
    """A preset without the models that read every result."""
    return with_values(preset(name).config, {"rerank.backend": "none", "judge.backend": "none"})


@dataclass(eq=False)
class BackgroundQueue(BackgroundWork):
    """A ready-made queue; `done` and `total` count queries."""

    resources: Resources
    plan: QueuePlan

    THREAD: ClassVar[str] = QUEUE_THREAD
    STOPPED: ClassVar[str] = "It was stopped."

    def __post_init__(self) -> None:
        self.total = len(self.plan.selection.queries)

    def work(self) -> None:
        """Gather, and keep the queue."""
        self.resources.store.queues.save(assemble(self.plan, self.resources, self._watch))


CHROMA_ROWS = 64
"""Records written to Chroma at a time: it keeps the interpreter to itself meanwhile, so that no page is drawn."""


@dataclass(eq=False)
class BackgroundChroma(BackgroundWork):
    """Brings the store's Chroma collection up to date with what is searched, and leaves it open; `done` and `total` count its changes."""

    resources: Resources
    version: int | None = field(default=None, init=False)
    """The content version that the collection was brought to, or is being brought to."""

    THREAD: ClassVar[str] = CHROMA_THREAD
    STOPPED: ClassVar[str] = "stopped"

    def work(self) -> None:
        """Write what is outstanding, at a pause of the pages."""
        while self.version != self.resources.indexed:
            self._watch("", 0, 0)
            self.version = self.resources.indexed
            indexes, embedder = self.resources.store.indexes, self.resources.embedder
            indexes.graph(embedder, self._watch, rows=CHROMA_ROWS).count()  # loads the graph: no page waits for it then

    def _watch(self, label: str, done: int, total: int) -> None:
        FOREGROUND.wait_while_busy()
        super()._watch(label, done, total)
