"""The queue that the Label page begins with: made in a thread of its own, of the largest query set of a store that has no queue yet.

It holds what the default preset ranks first, which needs neither a reranker nor a judge, so that the first card is there within seconds.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from cems_workbench.config import PipelineConfig, preset, with_values
from cems_workbench.config.presets import DEFAULT
from cems_workbench.errors import WorkbenchError
from cems_workbench.jobs.labelling import QueuePlan, assemble
from cems_workbench.jobs.query_set_evidence import QuerySelection
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Cancelled

MAX_QUERIES = 50
"""Of the set, in its order: enough for an afternoon of labelling, gathered in seconds."""
THREAD_NAME = "ready-queue"


def ready_plan(resources: Resources) -> QueuePlan | None:
    """The first results of the default preset for the first queries of the largest set; None for a store without queries."""
    largest = max(resources.store.query_sets.latest(), key=lambda known: (known.size, known.name), default=None)
    if largest is None or not largest.size:
        return None
    queries = tuple(resources.store.query_sets.queries(largest.name)[:MAX_QUERIES])
    selection = QuerySelection(largest.name, queries)
    return QueuePlan(f"{largest.name}-ready", selection, {DEFAULT: fast_config()}, ready_made=True)


def fast_config() -> PipelineConfig:
    """The default preset without what asks a model for every result."""
    return with_values(preset(DEFAULT).config, {"rerank.backend": "none", "judge.backend": "none"})


@dataclass(eq=False)
class BackgroundQueue:
    """A ready-made queue at work, or over; `done` and `total` count queries, `problem` says why there is none."""

    resources: Resources
    plan: QueuePlan
    done: int = 0
    total: int = 0
    problem: str = ""
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> BackgroundQueue:
        """Begin; what an earlier one gathered is gone on with."""
        self.total = len(self.plan.selection.queries)
        self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)
        self._thread.start()
        return self

    @property
    def over(self) -> bool:
        """Has it ended, whatever way?"""
        return self._thread is not None and not self._thread.is_alive()

    def stop(self) -> None:
        """End it after the query at hand."""
        self._stop.set()

    def wait(self, seconds: float | None = None) -> None:
        """Until it has ended, or for so long."""
        if self._thread is not None:
            self._thread.join(seconds)

    def _run(self) -> None:
        try:
            self.resources.store.queues.save(assemble(self.plan, self.resources, self._watch))
        except Cancelled:
            self.problem = "It was stopped."
        except WorkbenchError as error:
            self.problem = str(error)
        except Exception as error:  # a thread has nobody above it who could show this
            self.problem = f"{type(error).__name__}: {error}"

    def _watch(self, label: str, done: int, total: int) -> None:
        self.done, self.total = done, total
        if self._stop.is_set():
            raise Cancelled
