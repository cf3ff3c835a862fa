"""The evidence of the judged queries, gathered in a thread of its own, so that a tool that measures on them finds it there.

It goes into an `EvidenceMemory`, a query at a time, and the reranker's scores into the store's cache. So what was gathered before a
stop, or by an earlier process, is gone on with. While a page is at work for somebody, it stands still (`giving_way`).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from cems_workbench.config import PipelineConfig
from cems_workbench.errors import WorkbenchError
from cems_workbench.jobs import background_priority
from cems_workbench.jobs.evidence_memory import EvidenceMemory, MemoryKey
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages import RERANK
from cems_workbench.progress import Cancelled
from cems_workbench.records import Query

THREAD_NAME = "judged-queries"
LOCAL_RERANKERS = ("none", "cross_encoder", "late_interaction")
"""Rerankers that run in this process: they cost nobody anything, so that nobody has to be asked."""


def may_start_unasked(config: PipelineConfig) -> bool:
    """May this gather begin without being asked for? Not where it asks a running system, a server or a language model."""
    own = RERANK.is_off(config) or config.rerank.backend in LOCAL_RERANKERS
    return own and searches_locally(config)


def searches_locally(config: PipelineConfig) -> bool:
    """Are the lists of a query found without asking a running system or a language model?"""
    return config.lists.answered_by == "workbench" and config.expansion.backend != "llm"


@dataclass(eq=False)
class BackgroundEvidence:
    """A gather at work, or over; `done` and `total` count queries, `problem` says why it ended early, `key` what it gathers."""

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
        """Begin, or go on with what is at hand."""
        self.total = len(self.queries)
        self.key = self.memory.key(self.config, self.resources)
        self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)
        self._thread.start()
        return self

    @property
    def over(self) -> bool:
        """Has it ended, whatever way?"""
        return self._thread is not None and not self._thread.is_alive()

    def stop(self) -> None:
        """End it after what it reads at the moment."""
        self._stop.set()

    def wait(self, seconds: float | None = None) -> None:
        """Until it has ended, or for so long."""
        if self._thread is not None:
            self._thread.join(seconds)

    def _run(self) -> None:
        try:
            self.memory.get(self.queries, self.config, self.resources, self._watch)
        except Cancelled:
            self.stopped = True
        except WorkbenchError as error:
            self.problem = str(error)
        except Exception as error:  # a thread has nobody above it who could show this
            self.problem = f"{type(error).__name__}: {error}"

    def _watch(self, label: str, done: int, total: int) -> None:
        self.done, self.total = done, total
        background_priority.FOREGROUND.wait_while_busy()
        if self._stop.is_set():
            raise Cancelled
