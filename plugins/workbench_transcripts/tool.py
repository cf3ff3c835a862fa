"""`coverage` for agents: what of the transcript the memories have."""

from __future__ import annotations

from collections import defaultdict
from typing import Literal

from cems_workbench.mcp import protocol
from workbench_transcripts.transcript import opened_transcript
from workbench_transcripts.whole import Link, coverage_of


class CoverageOf(protocol.Page):
    """Arguments of `coverage`."""

    rows: Literal["sessions", "nothing covers", "nothing supports", "says otherwise"] = "sessions"


def coverage(served: protocol.ServedStore, asked: CoverageOf) -> protocol.Reply:
    """Turns of the imported conversation that nothing covers, memories that nothing supports, and what they say otherwise."""
    resources = served.resources
    with opened_transcript(resources, served.settings) as transcript:
        found = coverage_of(resources, transcript)
        links = defaultdict[str, list[Link]](list)
        for link in found.links:
            links[link.memory].append(link)
        gaps = [(turn.id, "", "") for turn in found.turns if turn.verdict == "nothing covers"]
        stored = [
            (turn, one.id, reason)
            for one in found.memories
            if one.verdict == asked.rows
            for turn, reason in [(each.turn, each.reason) for each in links[one.id] if each.coverage == asked.rows]
            or [("", "")]
        ]
        chosen, counts = protocol.page(gaps if asked.rows == "nothing covers" else stored, asked)
        said = transcript.store.memories.read([turn for turn, _, _ in chosen if turn])
        memories = resources.store.memories.read([memory for _, memory, _ in chosen if memory])
    if asked.rows == "sessions":
        sessions, counts = protocol.page(found.tables[0].rows, asked)
        rows = [dict(zip(found.tables[0].columns, row, strict=True)) for row in sessions]
    else:
        rows = [
            protocol.reply(turn=turn, memory_id=memory)
            | {
                "untrusted": protocol.reply(
                    said=protocol.cut(said[turn].content, protocol.EXCERPT) if turn in said else None,
                    text=protocol.cut(memories[memory].content, protocol.EXCERPT) if memory in memories else None,
                    reason=reason,
                )
            }
            for turn, memory, reason in chosen
        ]
    return protocol.reply(**counts, said=found.lines, rows=rows, notes=found.notes)


TOOL = protocol.Tool(coverage, "What of a conversation the memories have", CoverageOf)
