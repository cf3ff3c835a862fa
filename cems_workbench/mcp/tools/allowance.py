"""The time limit of a call that searches a query set, and what a call says that reached it.

Gathering some hundred queries takes minutes, and a client waits about one. So a call works for `seconds`, saves what it gathered in the
store's evidence cache, and reports its progress; the next call with the same arguments resumes.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic

from anyio import from_thread
from mcp.server.mcpserver import Context

from cems_workbench.jobs.query_set_evidence import PROGRESS_LABEL
from cems_workbench.mcp.responses import Reply
from cems_workbench.progress import Cancelled

PROGRESS_INTERVAL_S = 1.0


class Searching(Reply):
    """Progress of searching a query set."""

    queries_searched: int
    queries_in_all: int


@dataclass
class Allowance:
    """Progress of work with a time limit: reports to the client, and cancels at the limit.

    The time counts from the first query, so that each call makes progress, however busy the machine is.
    """

    seconds: int
    context: Context
    done: int = 0
    total: int = 0
    _ends: float | None = None
    _told: float = 0.0

    def __call__(self, label: str, done: int, total: int) -> None:
        """Count a step. Raises Cancelled at the time limit, or if the client cancelled the call."""
        if label != PROGRESS_LABEL:
            return
        self.done, self.total, now = done, total, monotonic()
        self._ends = now + self.seconds if self._ends is None else self._ends
        from_thread.check_cancelled()
        if now > self._told + PROGRESS_INTERVAL_S:
            self._told = now
            from_thread.run(self.context.report_progress, done, total, label)
        if now > self._ends and done < total:
            raise Cancelled


def unfinished(allowance: Allowance) -> dict[str, object]:
    """What a call replies that has not searched all queries."""
    left = allowance.total - allowance.done
    if not allowance.total:
        return {"said": ["Another call is still searching this store; call again with the same arguments."]}
    return {
        "searching": Searching(queries_searched=allowance.done, queries_in_all=allowance.total),
        "said": [
            f"{left} of {allowance.total} queries are not searched yet; progress is saved. Call again with the same arguments to resume, "
            "or with `queries` for a sample."
        ],
    }
