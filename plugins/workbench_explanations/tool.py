"""The tool `explanation` of the MCP server: what a live system explained, replayed under other settings; no store is opened."""

from __future__ import annotations

import io

from pydantic import Field

from cems_workbench.analysis.why.path import known_memory
from cems_workbench.analysis.why.report import explain
from cems_workbench.config import with_values
from cems_workbench.errors import InputError
from cems_workbench.mcp import protocol
from cems_workbench.pipeline import replay
from cems_workbench.pipeline.explained import explained_config, not_shown, read_explanations, said_of
from cems_workbench.records import RowError

ROWS = 20
"""Results of a reply."""


class Explaining(protocol.Page):
    """Arguments of `explanation`."""

    explanation: str = Field(
        min_length=1, max_length=10 * protocol.MAX_TEXT, description="JSON, as the system printed it."
    )
    query: str = Field("", max_length=protocol.MAX_QUERY, description="If it does not say its query.")
    changes: protocol.Changes = None
    memory_id: protocol.FollowedId = ""


def explanation(served: protocol.ServedStore, asked: Explaining) -> protocol.Reply:
    """Replays an answer that mem0, QMD, Hindsight, Qdrant or a search engine explained, under changes; why memory_id is missing."""
    errors: list[RowError] = []
    evidence = next(read_explanations(io.StringIO(asked.explanation), "explanation", errors), None)
    config = None if evidence is None else explained_config(evidence)
    if evidence is None or config is None:
        raise InputError(str(errors[0]) if errors else "explanation: explains no memory")
    chosen = with_values(config, asked.changes, source="changes") if asked.changes else config
    trace = replay(evidence, chosen)
    found = None
    if asked.memory_id:
        found = explain(
            known_memory(asked.memory_id, evidence.memories, not_shown(evidence, asked.memory_id)), evidence, chosen
        )
    return protocol.reply(
        said=[*said_of(evidence), *map(str, errors[:5])],
        results=[
            protocol.reply(memory_id=row.memory_id, rank=row.rank, score=row.score)
            | {"untrusted": protocol.text_of(evidence.memories[row.memory_id], length=100)}
            for row in trace.results[:ROWS]
        ],
        cause=found and found.cause,
        fix=found and found.fix and found.fix.sentence,
        verdict=found and found.verdict,
    )


TOOL = protocol.Tool(explanation, "Replay an explanation", Explaining)
