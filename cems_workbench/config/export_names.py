"""Export names: the variables of other systems that a parameter corresponds to, declared with the parameter.

`cems(...)`, `planned(...)` and `agent(...)` are written into a field's metadata (`param(..., exports=...)`); the `.env` writer
and reader derive from them, so that there is no second list of parameters. `codec` says how a value is written if it is
not the parameter's own; the codecs are in `forms/env_form.py`.

Source: docs/reference/formats.md (.env for CEMS, .env for the memory agent); CEMS plan, "Config Changes"; memory agent, feature 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Target = Literal["env", "reranker-env"]
TARGET_TITLES: dict[Target, str] = {"env": "CEMS", "reranker-env": "the memory agent"}
TARGET_PRESETS: dict[Target, str] = {"env": "cems_head", "reranker-env": "memory_agent"}
"""The preset that does what the target does when no variable is set."""

Codec = Literal["value", "llm", "cems_backend", "llama_server", "band"]


@dataclass(frozen=True, slots=True)
class ExportName:
    """One variable of a target.

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
