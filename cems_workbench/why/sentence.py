"""The cause in one plain sentence, which names the stage."""

from __future__ import annotations

from typing import Any

from cems_workbench.pipeline import Trace
from cems_workbench.why.path import ListPlace, MemoryPath
from cems_workbench.why.words import largest_cut, list_words, ordinal, rerank_words


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
