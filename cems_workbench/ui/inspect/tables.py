"""Tables, each a function from a trace to a data frame; cells are plain text, so content is shown literally."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cems_workbench.analysis.ranks import RANKED_STAGES, RESULTS, Against, lists_in_use
from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.stages.adjust import ADJUST, FACTORS
from cems_workbench.pipeline.stages.fusion import FUSION
from cems_workbench.pipeline.stages.lists import LISTS
from cems_workbench.pipeline.stages.rerank import RERANK
from cems_workbench.ui.inspect.baseline import COLUMN, sign

if TYPE_CHECKING:
    import pandas as pd

FOLLOWED = "rgba(0, 114, 178, 0.16)"
"""Tint of the followed memory's row; the sign ◆ says the same."""


def stage_options(trace: Trace) -> list[str]:
    """What can stand side by side: every list that takes part, then every stage that ranks."""
    return [*lists_in_use(trace), *RANKED_STAGES]


@dataclass(frozen=True, slots=True)
class StageRow:
    """A memory in a list or stage: its rank and score there, how it moved, its text, and why it was dropped, if it was."""

    rank: int | None
    move: str
    memory_id: str
    score: float | None
    excerpt: str
    reason: str | None = None


def stage_rows(trace: Trace, name: str, top: int, followed: str | None = None) -> list[StageRow]:
    """The first `top` of a list or stage. The followed memory stands at the end when it is further down."""
    every = _stage_rows(trace, name) if name in RANKED_STAGES else _list_rows(trace, name)
    return every[:top] + [row for row in every[top:] if row.memory_id == followed]


def _stage_rows(trace: Trace, name: str) -> list[StageRow]:
    out = []
    for row in trace.stage(name).rows:
        rank, before, memory_id = row.rank_out, row.rank_in, row.memory_id
        move = "" if not rank or not before else _move(before - rank)
        reason = None if row.kept else row.reason
        out.append(StageRow(rank, move, memory_id, row.score, _excerpt(trace, memory_id), reason))
    return out


def _list_rows(trace: Trace, name: str) -> list[StageRow]:
    found = [
        (entry.rank, row.memory_id, entry.normalized)
        for row in trace.stage(LISTS).rows
        for entry in row.lists
        if entry.list == name and entry.kept
    ]
    return [
        StageRow(rank, "", memory_id, score, _excerpt(trace, memory_id)) for rank, memory_id, score in sorted(found)
    ]


def list_table(trace: Trace, name: str) -> pd.DataFrame:
    """Every hit of one gathered list with its raw and normalised score; cut or switched-off hits have no normalised one."""
    import pandas as pd

    rows = [
        (entry.rank, row.memory_id, entry.raw, entry.normalized, _excerpt(trace, row.memory_id))
        for row in trace.stage(LISTS).rows
        for entry in row.lists
        if entry.list == name
    ]
    return pd.DataFrame(sorted(rows), columns=["#", "memory", "raw", "normalised", "content"])


def marked(frame: pd.DataFrame, memory_id: str | None) -> Any:
    """The frame with the followed memory's row marked by a sign and a tint; the frame itself when it is not in it."""
    if memory_id is None or memory_id not in set(frame["memory"]):
        return frame
    shown = frame.copy()
    shown["memory"] = [f"◆ {value}" if value == memory_id else value for value in frame["memory"]]
    tint = [f"background-color: {FOLLOWED}" if value == memory_id else "" for value in frame["memory"]]
    return shown.style.apply(lambda column: tint, axis=0)


def compared(frame: pd.DataFrame, against: Against | None, name: str, after: str) -> pd.DataFrame:
    """The frame with each memory's rank delta in the list or stage `name`, after the column `after`; itself without a baseline."""
    if against is not None and not frame.empty:
        deltas = [sign(against.delta(memory_id, name)) for memory_id in frame["memory"]]
        frame.insert(list(frame.columns).index(after) + 1, COLUMN, deltas)
    return frame


def journey_table(trace: Trace, top: int, followed: str | None = None, against: Against | None = None) -> pd.DataFrame:
    """One row per memory, one column per list and stage with its rank there; where it was lost, and why.

    With a baseline its results that are gone are among them, and every memory has its delta in the results.
    """
    import pandas as pd

    lists = lists_in_use(trace)
    shown = [row.memory_id for row in trace.results] + (against.gone() if against is not None else [])
    shown += [row.memory_id for row in trace.stage(FUSION).rows if row.memory_id not in shown][
        : max(0, top - len(shown))
    ]
    if followed is not None and followed not in shown:
        shown.append(followed)
    members = {
        row.memory_id: {entry.list: entry.rank for entry in row.lists if entry.kept} for row in trace.stage(LISTS).rows
    }
    rows = []
    for memory_id in shown:
        path = dict(trace.path(memory_id))
        lost, why = next(((stage, row.reason) for stage, row in path.items() if not row.kept), ("", ""))
        ranks = [path[stage].rank_out if stage in path else None for stage in RANKED_STAGES]
        rows.append(
            [
                memory_id,
                lost,
                *(members[memory_id].get(name) for name in lists),
                *ranks,
                why,
                _excerpt(trace, memory_id),
            ]
        )
    frame = pd.DataFrame(rows, columns=["memory", "lost at", *lists, *RANKED_STAGES, "why", "content"])
    return compared(frame.astype({name: "Int64" for name in [*lists, *RANKED_STAGES]}), against, RESULTS, "memory")


def rerank_table(trace: Trace, against: Against | None = None) -> pd.DataFrame:
    """The reranker's blend: what each side contributed to the score, what the model read, and the delta to a baseline."""
    import pandas as pd

    config = trace.config.rerank
    scores = trace.evidence.model_scores.get(config.model or config.backend, {})
    rows = []
    for row in trace.stage(RERANK).rows:
        weight, retrieval, unit = row.retrieval_weight, row.retrieval_score, row.unit
        retrieval_part = reranker_part = None
        if config.combine == "replace":
            reranker_part = unit
        elif weight is not None and retrieval is not None and unit is not None:
            retrieval_part, reranker_part = weight * retrieval, (1 - weight) * unit
        score = scores.get(row.memory_id)
        rows.append(
            {
                "before": row.rank_in,
                "after": row.rank_out,
                "memory": row.memory_id,
                "score": row.score if row.kept else None,
                "from retrieval": retrieval_part,
                "from reranker": reranker_part,
                "weight": None if retrieval_part is None else weight,
                "retrieval": retrieval,
                "unit": unit,
                "raw": row.raw,
                "outcome": row.outcome.replace("_", " ") + (f": {row.error}" if row.error else ""),
                "text read": score.chunk if score else None,
            }
        )
    return compared(pd.DataFrame(rows), against, "rerank", "after")


def adjust_table(trace: Trace, top: int, against: Against | None = None) -> pd.DataFrame:
    """The factor chain of each candidate: score in, each factor that applied, score out; and its delta to a baseline."""
    import pandas as pd

    names = list(FACTORS)
    rows = [
        {
            "rank": row.rank_out,
            "memory": row.memory_id,
            "score in": row.score_in,
            "score": row.score,
            **{name: row.factors.get(name) for name in names},
            "age (days)": row.age_days,
            "before clamp": row.unclamped,
            "content": _excerpt(trace, row.memory_id),
        }
        for row in trace.stage(ADJUST).rows[:top]
    ]
    frame = compared(pd.DataFrame(rows), against, "adjust", "rank")
    return frame.drop(columns=[name for name in names if name in frame and frame[name].isna().all()])


def _move(change: int) -> str:
    return "=" if change == 0 else f"▲ {change}" if change > 0 else f"▼ {-change}"


def _excerpt(trace: Trace, memory_id: str) -> str:
    text = " ".join(trace.evidence.memories[memory_id].content.split())
    return text if len(text) <= 160 else text[:159] + "…"
