"""The path of one memory through every stage of a trace, and the stage that lost it.

A memory is lost where it was dropped; or, when nothing dropped it but the limit, in the stage after which it last stood
outside the first k having stood inside; when it never stood inside, in fusion, the first stage that ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from cems_workbench.pipeline import Trace
from cems_workbench.why.words import stage_words

PATH_STAGES = ("lists", "threshold", "fusion", "filter", "rerank", "adjust", "gap", "dedup", "assembly")
RANKED_FROM = PATH_STAGES.index("fusion")

Status = Literal["in the top k", "below the top k", "dropped", "in no list"]


@dataclass(frozen=True, slots=True)
class Step:
    """What one stage did to the memory: rank and score before and after it, and the same in words."""

    stage: str
    rank_in: int | None
    rank: int | None
    score_in: float | None
    score: float | None
    kept: bool
    words: str


@dataclass(frozen=True, slots=True)
class ListPlace:
    """Where a search of the whole store ranks the memory, whatever the depth; rank None: it does not say."""

    list: str
    rank: int | None
    score: float | None
    depth: int | None
    returned: bool
    words: str


@dataclass(frozen=True)
class MemoryPath:
    """`lost_at` is the stage that lost the memory; None when it is in the top k or no list returned it."""

    memory_id: str
    k: int
    status: Status
    rank: int | None
    lost_at: str | None
    steps: tuple[Step, ...]
    places: tuple[ListPlace, ...] = ()

    def step(self, stage: str) -> Step | None:
        """What that stage did, None when the memory did not get there."""
        return next((step for step in self.steps if step.stage == stage), None)

    def to_json(self) -> dict[str, Any]:
        """The path as plain values."""
        return asdict(self)


def memory_path(trace: Trace, memory_id: str, k: int, places: Sequence[ListPlace] = ()) -> MemoryPath:
    """The path of `memory_id`; k counts results. `places` are shown with it, see `elsewhere.list_places`."""
    steps = tuple(
        Step(
            stage, row["rank_in"], row["rank_out"], row["score_in"], row["score"], row["kept"],
            stage_words(trace, stage, memory_id),
        )
        for stage in PATH_STAGES
        if (row := trace.stage(stage).by_id.get(memory_id)) is not None
    )  # fmt: skip
    last = steps[-1] if steps else None
    rank = last.rank if last is not None and last.stage == "assembly" else None
    if last is None:
        status: Status = "in no list"
    elif rank is not None and rank <= k:
        status = "in the top k"
    elif rank is not None or _past_the_limit(trace, memory_id):
        status = "below the top k"
    else:
        status = "dropped"
    lost_at = None
    if last is not None and status == "dropped":
        lost_at = last.stage
    elif status == "below the top k":
        lost_at = _overtaken_in(trace, steps, k)
    return MemoryPath(memory_id, k, status, rank, lost_at, steps, tuple(places))


def _past_the_limit(trace: Trace, memory_id: str) -> bool:
    row = trace.stage("assembly").by_id.get(memory_id)
    return row is not None and not row["kept"] and not row["skipped_for_budget"]


def _overtaken_in(trace: Trace, steps: Sequence[Step], k: int) -> str:
    lost = "fusion"
    inside = False
    for step in steps[RANKED_FROM:]:
        # What the limit leaves out has no rank; it is outside.
        now = step.rank is not None and step.rank <= k
        if inside and not now:
            lost = step.stage
        inside = now
    return lost
