"""The path of one memory through every stage of a trace, and the stage that lost it.

A memory is lost where it was dropped; or, when nothing dropped it but the limit, in the stage after which it last stood
outside the first k having stood inside; when it never stood inside, in fusion, the first stage that ranks.

What a stage did to one memory, in words: from its row in the trace.

The cause in one plain sentence, which names the stage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from cems_workbench.config import PipelineConfig
from cems_workbench.pipeline import Trace

FACTORS = {"priority": "priority", "time_decay": "time decay", "pinned": "the pin", "project": "the project factor",
           "feedback": "feedback"}  # fmt: skip


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th, 11th, ..."""
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def stage_words(trace: Trace, stage: str, memory_id: str) -> str:
    """One short clause; the reason where the stage dropped the memory."""
    row = trace.stage(stage).by_id[memory_id]
    if not row["kept"]:
        return str(row["reason"])
    if stage == "lists":
        return list_words(trace, memory_id)
    if is_off(trace.config, stage):
        return "off"
    if stage == "fusion":
        given = ", ".join(f"{term['list']} {term['base'] + term['bonus']:.4f}" for term in row["contributions"])
        return f"{ordinal(row['rank_out'])} of {trace.stage(stage).candidates_out}: {given}"
    if stage == "rerank":
        return f"{rerank_words(row)}, {ordinal(row['rank_out'])}"
    if stage == "adjust":
        return f"{factor_words(row)}, {ordinal(row['rank_out'])}"
    if stage == "assembly":
        return f"{trace.stage(stage).fields['strategy']}, {ordinal(row['rank_out'])} of the results"
    return "kept"


def rerank_words(row: dict[str, Any]) -> str:
    """What the reranker made of it: its unit score, a failure and what stands for it, or nothing."""
    if row["unit"] is None:
        return "the reranker left it unscored"
    if row["flagged"]:
        return f"scoring it failed, which counts as {row['unit']:.3f}"
    return f"the reranker gave it {row['unit']:.3f}"


def is_off(config: PipelineConfig, stage: str) -> bool:
    """Does the config leave this stage out?"""
    return {
        "threshold": config.threshold.mode == "none",
        "rerank": config.rerank.backend == "none",
        "gap": config.gap.ratio == 0,
        "dedup": not config.dedup.enabled,
    }.get(stage, False)


def list_words(trace: Trace, memory_id: str, absent: Mapping[str, str] | None = None) -> str:
    """ "22nd in vector:0 (0.41), not in lexical:0": the memory's place in each list that takes part.

    `absent` says, by list, why the memory is not in it.
    """
    row = trace.stage("lists").by_id.get(memory_id)
    inside = {entry["list"]: entry for entry in row["lists"] if entry["kept"]} if row else {}
    why = dict(absent or {})
    parts = []
    for listed in trace.stage("lists").fields["lists"]:
        name = listed["name"]
        reason = why.pop(name, None)
        if not listed["active"]:
            continue
        if name in inside:
            parts.append(f"{ordinal(inside[name]['rank'])} in {name} ({inside[name]['raw']:.4g})")
        else:
            parts.append(f"not in {name}" + (f": {reason}" if reason else ""))
    parts += [f"{name}: {reason}" for name, reason in why.items()]  # lists that were not searched
    return ", ".join(parts) or "no list takes part"


def factor_words(row: dict[str, Any]) -> str:
    """ "× 0.36: time decay over 151 days 0.28, project 1.30": the factors that are not 1."""
    product = 1.0
    named = []
    for name, factor in row["factors"].items():
        product *= factor
        if factor != 1:
            named.append(f"{FACTORS[name]}{_over(name, row)} {factor:.2f}")
    return f"× {product:.2f}" + (f": {', '.join(named)}" if named else "")


def largest_cut(row: dict[str, Any]) -> str | None:
    """ "time decay over 151 days multiplied it by 0.28": the smallest factor below 1, None when there is none."""
    name = min(row["factors"], key=lambda key: row["factors"][key], default=None)
    if name is None or row["factors"][name] >= 1:
        return None
    return f"{FACTORS[name]}{_over(name, row)} multiplied it by {row['factors'][name]:.2f}"


def _over(name: str, row: dict[str, Any]) -> str:
    if name != "time_decay" or row["age_days"] is None:
        return ""
    days = max(0, round(row["age_days"]))
    return f" over {days} day{'' if days == 1 else 's'}"


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


def cause(path: MemoryPath, trace: Trace) -> str:
    """Why the memory is where it is, such as "m077 was 17th after fusion; time decay over 151 days …"."""
    name, k = path.memory_id, path.k
    if path.status == "in the top k":
        where = "the first result" if k == 1 else f"in the top {k}"
        return f"{name} is {where}" + ("." if k == 1 else f", at rank {path.rank}.")
    if path.status == "in no list":
        places = "; ".join(f"{place.list}: {place.words}" for place in path.places)
        return f"No list returned {name}" + (f" ({places})." if places else ".")
    if path.lost_at == "lists":
        return f"The lists lost {name}: {path.steps[-1].words}."
    if path.lost_at == "threshold":
        return f"{name} was {list_words(trace, name)}; the threshold cut it: its {path.steps[-1].words}."
    if path.lost_at == "fusion":
        return _fusion(path, trace)
    return _later(path, trace)


def _fusion(path: MemoryPath, trace: Trace) -> str:
    name = path.memory_id
    step = path.step("fusion")
    if step is None or step.rank is None:
        return f"{name} was dropped by fusion: {path.steps[-1].words}."
    told = f"{name} was {ordinal(step.rank)} after fusion ({list_words(trace, name, _absent(path.places))})"
    later = _moved_by(trace, name, "rerank"), _moved_by(trace, name, "adjust")
    end = [clause for clause in later if clause]
    if path.rank is not None and not end:
        end = [f"it ended {ordinal(path.rank)}"]
    return "; ".join([told, *end]) + "."


def _later(path: MemoryPath, trace: Trace) -> str:
    """Lost after fusion: where it stood when it reached the stage, and what that stage did."""
    name, stage = path.memory_id, str(path.lost_at)
    step = path.step(stage)
    fusion = path.step("fusion")
    assert step is not None and fusion is not None and fusion.rank is not None
    told = f"{name} was {ordinal(fusion.rank)} after fusion"
    if step.rank_in is not None and step.rank_in != fusion.rank:
        told += f" and {ordinal(step.rank_in)} before {stage}"
    if stage in ("rerank", "adjust") and step.kept:
        return f"{told}; {stage}: {_moved_by(trace, name, stage)}."
    if stage == "assembly" and trace.stage(stage).fields["strategy"] == "mmr":
        return f"{told}; assembly chose for diversity (mmr) and {_mmr(path, trace)}."
    if step.kept:
        return f"{told}; {stage} put it {ordinal(step.rank or 0)}."
    return f"{told}; {stage} dropped it: {step.words}."


def _moved_by(trace: Trace, name: str, stage: str) -> str | None:
    """What rerank or adjust did, None when it left the rank as it was."""
    row = trace.stage(stage).by_id.get(name)
    if row is None or row["rank_out"] == row["rank_in"] or row["rank_out"] is None:
        return None
    place = f"put it {ordinal(row['rank_out'])}"
    if stage == "rerank":
        return f"{rerank_words(row)} and {place}"
    cut = largest_cut(row) if row["rank_out"] > row["rank_in"] else None
    if cut:
        return f"{cut} and {place}"
    return f"{_raised(trace, row)} and {place}"


def _raised(trace: Trace, row: dict[str, Any]) -> str:
    """Whoever passed it in adjust with the largest factor; or that its own factors lifted it."""
    if row["rank_out"] < row["rank_in"]:
        return "its factors lifted it"
    passed = [
        other for other in trace.stage("adjust").rows
        if other["rank_in"] > row["rank_in"] and other["rank_out"] < row["rank_out"]
    ]  # fmt: skip
    first = passed[0]
    return f"the factors of others, {first['memory_id']} first among them, lifted them past it"


def _mmr(path: MemoryPath, trace: Trace) -> str:
    session = trace.evidence.memories[path.memory_id].session
    ahead = [row["memory_id"] for row in trace.results if session and row["session"] == session]
    ahead = [other for other in ahead if other != path.memory_id]
    place = f"put it {ordinal(path.rank)}" if path.rank is not None else "left it out"
    if ahead and (path.rank is None or trace.stage("assembly").by_id[ahead[0]]["rank_out"] < path.rank):
        return f"{place}: {ahead[0]} stands for its session {session}"
    return f"{place}: others are less like what was chosen"


def _absent(places: tuple[ListPlace, ...]) -> dict[str, str]:
    """What a search of the whole store says, by list, where the memory was not returned."""
    return {place.list: place.words for place in places if not place.returned}
