"""Export names: what a parameter is called in other systems, declared with the parameter.

`cems(...)`, `planned(...)`, `agent(...)`, `ace(...)`, `mem0(...)` and `engram(...)` are written into a field's metadata
(`param(..., exports=...)`); the writers and readers derive from them, so that there is no second list of parameters. `codec` says how a
value is written if it is not the parameter's own; the codecs are in `forms/codecs.py`.

Source: docs/reference/formats.md, "Configs"; CEMS plan, "Config Changes"; memory agent, feature 2; mem0ai 2.2.1, `Memory.search`; engram
at 10a2fe6, processor/recollection-writer.ts; ACE at f60bd48.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Target = Literal["env", "reranker-env", "ace-env", "mem0", "engram"]
TARGET_TITLES: dict[Target, str] = {
    "env": "CEMS",
    "reranker-env": "the memory agent",
    "ace-env": "ACE",
    "mem0": "mem0",
    "engram": "engram",
}
TARGET_PRESETS: dict[Target, str] = {
    "env": "cems_head",
    "reranker-env": "memory_agent",
    "ace-env": "ace_head",
    "mem0": "mem0",
    "engram": "engram_head",
}
"""The preset that does what the target does when nothing is set."""
ENV_PREFIXES: dict[str, Target] = {"CEMS_": "env", "RERANKER_": "reranker-env", "ACE_": "ace-env"}
"""The targets that read environment variables, by how their names begin."""

Codec = Literal[
    "value",
    "llm",
    "cems_backend",
    "llama_server",
    "band",
    "mem0_threshold",
    "mem0_rerank",
    "mem0_store",
    "bonus_constant",
    "row_order",
]


@dataclass(frozen=True, slots=True)
class ExportName:
    """One variable of a target; of mem0 an argument or a key of its configuration, of engram a constant and the file it is in.

    `low`..`high` are the values the target can use where that is less than the parameter allows (CEMS checks no range, so the
    export does); `null` is the value that comes nearest to null there, None when nothing does; `read` is false for a variable
    that a plan names and the current system does not read; `place` is the index of the band whose share it is.
    """

    target: Target
    name: str
    codec: Codec = "value"
    low: float | None = None
    high: float | None = None
    null: float | None = None
    read: bool = True
    place: int = 0


def cems(
    name: str, *, codec: Codec = "value", low: float | None = None, high: float | None = None, null: float | None = None
) -> tuple[ExportName, ...]:
    """A variable that CEMS reads today."""
    return (ExportName("env", f"CEMS_{name}", codec, low, high, null),)


def planned(name: str, *, codec: Codec = "value", place: int = 0) -> tuple[ExportName, ...]:
    """A variable of the CEMS plan that current CEMS does not read."""
    return (ExportName("env", f"CEMS_{name}", codec, read=False, place=place),)


def agent(name: str, *, codec: Codec = "value") -> tuple[ExportName, ...]:
    """A variable of the memory agent."""
    return (ExportName("reranker-env", f"RERANKER_{name}", codec),)


def ace(name: str) -> tuple[ExportName, ...]:
    """A variable of ACE."""
    return (ExportName("ace-env", f"ACE_{name}"),)


def mem0(
    name: str, *, codec: Codec = "value", low: float | None = None, high: float | None = None
) -> tuple[ExportName, ...]:
    """An argument of mem0's search (`search.NAME`), or a key of its configuration (`config.SECTION.NAME`)."""
    return (ExportName("mem0", name, codec, low, high),)


RECOLLECTION = "processor/recollection-writer.ts"
"""The file of engram's source that ranks what a prompt gets."""


def engram(
    name: str, *, codec: Codec = "value", low: float | None = None, high: float | None = None
) -> tuple[ExportName, ...]:
    """A constant of engram's recollection."""
    return (ExportName("engram", f"{RECOLLECTION}: {name}", codec, low, high),)
