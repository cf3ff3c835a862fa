"""Background gather of the judged queries' evidence, so that a tool that measures on them need not wait.

Evidence goes into an `EvidenceMemory`, a query at a time, and reranker scores into the store's cache, so that a stopped gather resumes. The
thread pauses while a page works (`background_priority`).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from cems_workbench.config import PipelineConfig, asks_source
from cems_workbench.errors import WorkbenchError
from cems_workbench.jobs import background_priority
from cems_workbench.jobs.evidence_memory import EvidenceMemory, MemoryKey
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages import RERANK
from cems_workbench.progress import Cancelled
from cems_workbench.records import Query

THREAD_NAME = "judged-queries"
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
        self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)
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
        background_priority.FOREGROUND.wait_while_busy()
        if self._stop.is_set():
            raise Cancelled
