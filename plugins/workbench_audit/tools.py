"""The tools `audit`, `leak` and `forgotten` of the MCP server. Memories are named by their ids: `read_memory` reads them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mcp.server.mcpserver import Context
from pydantic import Field

from cems_workbench.mcp import protocol
from cems_workbench.mcp.query_sets import within_time
from cems_workbench.progress import Progress
from cems_workbench.results import Result
from workbench_audit.audit import audit as audited
from workbench_audit.forgotten import forgotten as searched
from workbench_audit.leaks import leak as asked_as_others

SECONDS = 40
"""Of a call that gathers queries; the next one goes on."""


class Audited(protocol.Page):
    """Arguments of `audit`."""

    query_set: protocol.Name = "all"
    config: protocol.Name = Field("", description="Name.")
    kind: protocol.Name = Field("", description="Such as near duplicate.")


class Leaking(protocol.Page):
    """Arguments of `leak`."""

    query_set: protocol.Name = "all"
    config: protocol.Name = Field("", description="Name.")
    by: protocol.Name = Field("project", description="project or author.")
    only_project: bool = Field(False, description="Search within the project.")


class Deleted(protocol.Arguments):
    """Arguments of `forgotten`."""

    memory_id: protocol.MemoryId


def audit(served: protocol.ServedStore, asked: Audited, context: Context) -> protocol.Reply:
    """Duplicates, contradictions, junk, secrets, invented, expired, hubs; the judged queries each kind costs, and what
    removing it would do. "searching": call again."""
    chosen = served.config(asked.config)
    name = asked.query_set if served.resources.store.judgments.read() else None

    def made(limit: Progress) -> Result:
        kinds = [asked.kind] if asked.kind else []
        return replace(audited(served.store, name, chosen, kinds=kinds, progress=limit), ids=True)

    return _shown(within_time(served, SECONDS, context, made), asked)


def leak(served: protocol.ServedStore, asked: Leaking, context: Context) -> protocol.Reply:
    """Judged queries asked as every other project or author: which memories cross, at which rank, by which list.
    "searching": call again."""
    chosen = served.config(asked.config)

    def made(limit: Progress) -> Result:
        how: Any = {"by": asked.by, "only_project": asked.only_project, "ids": True}
        return asked_as_others(served.store, asked.query_set, chosen, **how, progress=limit)

    return _shown(within_time(served, SECONDS, context, made), asked)


def forgotten(served: protocol.ServedStore, asked: Deleted) -> protocol.Reply:
    """Whether a deleted memory is gone: the tables, indexes, files and paraphrases that still hold its text."""
    return protocol.shown(searched(served.store, asked.memory_id), protocol.Page(limit=100))


def _shown(found: Result | protocol.Reply, page: protocol.Page) -> protocol.Reply:
    if isinstance(found, dict):
        return protocol.reply(state="searching", **found)
    return protocol.shown(found, page, state="found")


AUDIT = protocol.Tool(audit, "What the store should not hold", Audited)
LEAK = protocol.Tool(leak, "Whose memories cross", Leaking)
FORGOTTEN = protocol.Tool(forgotten, "Whether a memory is gone", Deleted)
