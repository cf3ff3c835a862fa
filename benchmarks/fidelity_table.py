"""How close each preset comes to the system that it is of: a table of recordings, written into docs/fidelity.md.

    python -m benchmarks.fidelity_table RECORDINGS --data FOLDER [--data 'GLOB=FOLDER' …] [--out docs/fidelity.md] [--json FILE]

Every recording (*.json) in the folder and its subfolders is measured under the preset of its system, with the limit and the switches that
the recording states. `--data` names the folder of memories; GLOB, of the path below RECORDINGS, names those of some. `--repeat GLOB=FILE`
names a second recording of the same system. `--set GLOB:PARAMETER=VALUE` sets what a recording cannot say, such as the path of a list of
stop words in the user's own checkout. A folder is loaded once a rule of chunks: whole memories except for CEMS and OpenClaw.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from cems_workbench.config import preset, preset_names, with_values
from cems_workbench.errors import InputError
from cems_workbench.records import Recording
from cems_workbench.settings import Settings
from workbench_fidelity.fidelity import (
    BASE_PRESET,
    CHUNK_RULE,
    MeasuredFidelity,
    asked_queries,
    bad_rows,
    causes_counted,
    lexical_lists,
    measure_fidelity,
    read_answers,
    setting_for,
    stated_limit,
    store_of_folder,
)
from workbench_fidelity.lists import WhichLists

WHOLE, RULES = "whole", {"cems": CHUNK_RULE, "openclaw": "openclaw"}
TOLERANCES: Mapping[str, float] = {"engram": 1e-9}
"""Largest difference of equal scores where it is not 1e-6: engram computes in double precision throughout."""
QMD_SEARCH: Mapping[str, Any] = {
    "lists.vector.enabled": False,
    "fusion.method": "combsum",
    "fusion.top_rank_bonus.rank1": 0.0,
    "fusion.top_rank_bonus.rank2_3": 0.0,
    "variants.original_weight": 1.0,
    "rerank.backend": "none",
}
"""`qmd search` is the FTS5 list of QMD alone."""
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"


@dataclass(frozen=True, slots=True)
class Plan:
    """How a recording is measured: its system, the preset of that, and what the recording's own settings change in it."""

    system: str
    preset: str
    changes: Mapping[str, Any]
    which: WhichLists = "own"
    label: str = ""
    """Said instead of the changes, where they are many."""


def plans_of(recording: Recording) -> list[Plan]:
    """The presets of a recording, by what it says of its system; none for a system without one."""
    said = (recording.system or "").lower()
    own = recording.own_settings
    if said.startswith("cems"):
        return [Plan("CEMS", BASE_PRESET, {})]
    if "engram" in said:
        name = {"recall": "engram_recall", "search": "engram_search"}.get(own.get("path", ""), "engram_head")
        return [Plan("engram", name, {})]
    if said.startswith("ace"):
        return [Plan("ACE", name, changes) for name, changes in _of_ace(own)]
    if "openclaw" in said:
        return [Plan("OpenClaw", "openclaw", {})]
    if "mem0ai (npm)" in said:
        return [Plan("mem0 of npm", "mem0_npm", {})]
    if "mem0" in said:
        name, changes = _of_mem0(own)
        more = [Plan("mem0", name, changes, "recorded")] if name == "mem0_entities" else []
        return [Plan("mem0", name, changes), *more]
    if "graphiti" in said:
        return [
            Plan("Graphiti", "graphiti_edges", {}),
            Plan("Graphiti", "graphiti_edges", {}, "recorded"),
        ]
    if "qmd" in said:
        return [
            Plan(
                "QMD",
                "qmd_head",
                {**QMD_SEARCH, "lists.fts5.depth": stated_limit(recording) or 50},
                label="an FTS5 list alone, as `qmd search`",
            )
        ]
    if "knowledge_extraction" in said or "memory agent" in said:
        return [Plan("memory agent", *_of_agent(own))]
    return []


def _of_ace(own: Mapping[str, str]) -> list[tuple[str, dict[str, Any]]]:
    """ACE's recordings differ in two arguments of `retrieve`: the threshold and the cross-encoder."""
    name = own.get("name", "")
    if name.startswith("multistage"):
        return [("ace_multistage", {})]
    changes: dict[str, Any] = {}
    if "threshold" in own:
        changes["filter.min_score"] = float(own["threshold"])
    if own.get("use_cross_encoder") == "False":
        changes["rerank.backend"] = "none"
    return [("ace_row_a" if name.startswith("row_a") else "ace_head", {} if name.startswith("row_a") else changes)]


def _of_mem0(own: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    name = "mem0"
    if own.get("keyword") == "True":
        name = "mem0_entities" if own.get("infer") == "True" else "mem0_keyword"
    return name, {"lists.vector.scale": "inverse_l2"} if own.get("store") == "chroma" else {}


def _of_agent(own: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """The memory agent's recordings differ in the tool, and in arguments of it: a fixed threshold asks for `limit` rows of each list."""
    changes: dict[str, Any] = {}
    if own.get("adaptive_threshold") == "False":
        changes |= {"threshold.mode": "fixed", "threshold.fixed": float(own.get("similarity_threshold", "0.6"))}
        rows = int(own.get("limit", "10"))  # a factor of 1 would leave the depth at that of the preset, which is 1
        changes |= {
            f"lists.{name}.{key}": value
            for name in ("vector", "lucene")
            for key, value in (("depth", rows), ("first_stage_factor", 1))
        }
    if own.get("fusion_method") in ("score_sum", "score_max"):
        changes |= {"fusion.method": {"score_sum": "combsum", "score_max": "combmax"}[own["fusion_method"]]}
    if own.get("keyword_search") == "False":
        changes |= {"lists.lucene.enabled": False}
    return ("memory_agent_messages" if own.get("tool") == "messages" else "memory_agent_head"), changes


def _folder_of(path: str, given: Sequence[str]) -> Path | None:
    """The folder of a path among `GLOB=FOLDER` and plain folders; the last that fits."""
    found = None
    for one in given:
        glob, sign, folder = one.rpartition("=")
        if not sign or fnmatch(path, glob):
            found = Path(folder)
    return found


def measured_rows(
    folder: Path,
    data: Sequence[str],
    repeats: Sequence[str],
    names: Sequence[str] = ("*",),
    sets: Sequence[str] = (),
) -> list[tuple[str, Plan, MeasuredFidelity]]:
    """Every recording below a folder whose path fits one of the names, measured under its presets."""
    paths = sorted(path for path in folder.rglob("*.json") if "data" not in path.parent.name)
    recordings = {}
    for path in paths:
        named = str(path.relative_to(folder))
        if any(fnmatch(named, one) for one in names):
            try:
                recordings[named] = read_answers(path)
            except InputError as error:
                print(f"left out: {error}")
    known_lists = lexical_lists(list(recordings.values()))
    by_store: dict[tuple[Path, str], list[str]] = {}
    for named, recording in recordings.items():
        place = _folder_of(named, data)
        if place is not None:
            rule = next(
                (rule for system, rule in RULES.items() if (recording.system or "").lower().startswith(system)), WHOLE
            )
            by_store.setdefault((place, rule), []).append(named)
    rows = []
    for (place, rule), group in by_store.items():
        with store_of_folder(place, Settings(), chunk_rule=rule) as (resources, known):
            for named in group:
                recording = recordings[named]
                if line := bad_rows(recording):
                    print(line)
                second = _folder_of(named, repeats) if repeats else None
                for plan in plans_of(recording):
                    if plan.preset not in preset_names():
                        print(f"left out: {named}: there is no preset {plan.preset}")
                        continue
                    changed = [
                        one.partition(":")[2].partition("=") for one in sets if fnmatch(named, one.partition(":")[0])
                    ]
                    given = {parameter: value for parameter, _, value in changed}
                    config = with_values(preset(plan.preset).config, {**plan.changes, **given})
                    setting = setting_for(
                        recording, config, which_lists=plan.which, tolerance=TOLERANCES.get(plan.system)
                    )
                    queries = asked_queries(recording, known, setting=setting)
                    repeat = read_answers(second) if second is not None else None
                    found = measure_fidelity(setting, queries, resources, lists=known_lists, repeat=repeat)
                    rows.append((named, plan, found))
                    print(_line(named, plan, found), flush=True)
    return sorted(rows, key=lambda row: (row[1].system, row[0], row[1].which))


def _share(measured: MeasuredFidelity, name: str) -> str:
    value = measured.fidelity.value(name)
    return "–" if math.isnan(value) else f"{100 * value:.1f} %" if name != "overlap" else f"{value:.3f}"


def _scores(measured: MeasuredFidelity) -> str:
    """The share of recorded scores that are ours, and of those before the cut, where they are others."""
    same, of = measured.fidelity.counted("equal_scores")
    before, known = measured.fidelity.counted("equal_before_cut")
    said = f"{100 * same / of:.1f} %" if of else "–"
    return said + (f" (before the cut {100 * before / known:.1f} %)" if known and (before, known) != (same, of) else "")


def _causes(measured: MeasuredFidelity) -> str:
    """How many queries still differ, by cause."""
    return "; ".join(f"{count} {words}" for words, count in causes_counted(measured.differences)) or "none"


def _line(named: str, plan: Plan, found: MeasuredFidelity) -> str:
    changes = plan.label or ", ".join(f"{path}={value}" for path, value in plan.changes.items())
    name = f"{plan.preset}" + (f" ({changes})" if changes else "") + (", recorded lists" if plan.which != "own" else "")
    cells = [
        plan.system,
        named.removesuffix(".json"),
        name,
        str(len(found.fidelity.queries)),
        *(_share(found, measure) for measure in ("same_order", "up_to_ties")),
        _scores(found),
        *(_share(found, measure) for measure in ("same_scores", "same_first", "overlap")),
        _causes(found),
    ]
    if found.repeated is not None:
        cells[4] += f" (repeats itself {100 * found.repeated.value('same_order'):.1f} %)"
    return f"| {' | '.join(cells)} |"


HEAD = """| system | recording | preset | queries | same order | up to ties | scores by id | queries with all scores | same first | \
Jaccard@10 | queries that differ, and why |
|---|---|---|---|---|---|---|---|---|---|---|"""


def table(rows: Sequence[tuple[str, Plan, MeasuredFidelity]]) -> str:
    """The table in Markdown."""
    return "\n".join([HEAD, *(_line(*row) for row in rows)])


def main() -> None:
    """Measure, print, and write the table between its marks in a document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", type=Path)
    parser.add_argument("--data", action="append", required=True, metavar="FOLDER or GLOB=FOLDER")
    parser.add_argument("--repeat", action="append", default=[], metavar="GLOB=FILE")
    parser.add_argument("--set", dest="sets", action="append", default=[], metavar="GLOB:PARAMETER=VALUE")
    parser.add_argument("--only", action="append", default=[], metavar="GLOB")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--json", type=Path, default=None)
    given = parser.parse_args()
    rows = measured_rows(given.recordings, given.data, given.repeat, given.only or ("*",), given.sets)
    if given.json is not None:
        found = [{"recording": named, "preset": plan.preset, **one.to_json()} for named, plan, one in rows]
        given.json.write_text(json.dumps(found, indent=1, default=str), encoding="utf-8")
    if given.out is not None:
        text = given.out.read_text(encoding="utf-8")
        before, after = text.split(BEGIN)[0], text.split(END)[1]
        said = f"Measured {datetime.now(UTC):%Y-%m-%d}."
        given.out.write_text(f"{before}{BEGIN}\n{table(rows)}\n\n{said}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
