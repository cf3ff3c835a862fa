"""Ready-made queue: the first queue of a store, made in a background thread from its largest query set.

It holds the first results of the default preset without reranker and judge, so that the first card appears within seconds.
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
"""The first queries of the set: enough for an afternoon of labelling, gathered in seconds."""
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
        self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)
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
