"""What each rule of a running system costs or gains against its plan: docs/presets.md.

    python -m benchmarks.preset_ladders [--work .workbench/ladders] [--only PLAN] [--ace RECORDING] [--engram FILE]

Imports the sample set, without titles and uncut, as the recorded systems were given it. Then a ladder per system: from the preset of the
plan to that of the running system, one config field at a time; the fields of a list that the plan lacks are one step. Each rung is measured
on the judged queries, as hit@3, hit@5 and nDCG@10, and compared with the rung before it. Differences are paired, with 95 % bootstrap
intervals.

A field that changes no result on its rung is named below the table. Models that need a server are left out on both sides (`NO_SERVER`).
ACE searches another text than the query, which only a recording has: with one its program is measured on that text as well. engram leaves
out stop words, which only its source has: with that file its program is measured with them as well.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.report import SAMPLE
from cems_workbench import __version__, formats
from cems_workbench.config import PipelineConfig, difference, field_specs, preset, preset_names, with_values
from cems_workbench.config.fields import short_value
from cems_workbench.errors import InputError
from cems_workbench.evaluation.comparison import MeasureDifference, compare
from cems_workbench.evaluation.evaluate import Evaluation
from cems_workbench.evaluation.metrics import parse_measures
from cems_workbench.jobs.evaluation import agreed, evaluate_configs, labelled_selection
from cems_workbench.jobs.factory import open_resources
from cems_workbench.jobs.query_set_evidence import QuerySelection, ensure_evidence, judged_selection
from cems_workbench.pipeline.resources import Resources
from cems_workbench.platform.atomic_write import write_text
from cems_workbench.settings import Settings
from cems_workbench.store import ImportOptions

PAGE = Path(__file__).resolve().parents[1] / "docs/presets.md"
MEASURES = "hit@3 hit@5 nDCG@10"
RELEVANT_FROM = 2
QUERY_SET = "sample_data"
NO_SERVER: Mapping[str, Any] = {"rerank.backend": "none", "expansion.backend": "none"}
"""What replaces a backend that needs a server, in the plan and in what runs."""
SERVERS = ("llama_server", "ollama", "llm")


@dataclass(frozen=True)
class Ladder:
    """A system: the preset of its plan and that of what runs. `order` places steps by path; REST is the place of the others."""

    system: str
    plan: str
    program: str
    order: tuple[str, ...] = ()


REST = "*"
LADDERS = (
    Ladder(
        "engram, recollection",
        "recollection",
        "engram_head",
        (
            "assembly.max_tokens",
            "lists.fts5",
            "lists.lexical.enabled",
            "lists.vector.ties",
            "lists.recency.ties",
            "lists.access.ties",
            REST,
            "lists.fts5.max_words",
            "lists.fts5.cut",
            "assembly.min_vector_score",
        ),
    ),
    Ladder("ACE, row A", "ace_a", "ace_row_a", ("lists.sparse", "lists.lexical.enabled", REST)),
    Ladder("the memory agent, facts", "memory_agent", "memory_agent_head", ("lists.lucene", REST)),
    Ladder("mem0: words added to the plain install", "mem0", "mem0_keyword"),
    Ladder("mem0: entities added to words", "mem0_keyword", "mem0_entities"),
    Ladder("mem0 of npm: words added to the vector list", "mem0", "mem0_npm"),
)
SPLIT_OFF = ("lists.fts5.cut", "lists.fts5.max_words")
"""Fields of a new list that have a separate step: the list is added with the default first."""


@dataclass(frozen=True)
class Step:
    """One step of a ladder: the fields that change, and the config after it."""

    changes: tuple[tuple[str, Any, Any], ...]
    config: PipelineConfig

    @property
    def title(self) -> str:
        """The change in words."""
        if self.list is not None and len(self.changes) > 1:
            rest = ", ".join(f"{path.rpartition('.')[2]} {_short(new)}" for path, _, new in self.changes[1:])
            return f"`{self.list}` searched: {rest}"
        return ", ".join(f"`{path}` {_short(old)} → {_short(new)}" for path, old, new in self.changes)

    @property
    def list(self) -> str | None:
        """The list that the step adds; None if it adds none."""
        path, _, new = self.changes[0]
        return (
            path.removesuffix(".enabled") if path.startswith("lists.") and path.endswith(".enabled") and new else None
        )


def _short(value: Any) -> str:
    return short_value(value)


def steps(plan: PipelineConfig, program: PipelineConfig, order: Sequence[str] = ()) -> Iterator[Step]:
    """The steps from one config to the other, those that `order` does not name in the order of the fields."""
    left = {path: (old, new) for path, old, new in difference(plan, program)}
    config = plan
    for paths in _groups(left, order):
        changes = tuple((path, *left[path]) for path in paths)
        config = with_values(config, {path: _plain(new) for path, _, new in changes})
        yield Step(changes, config)


def _groups(left: Mapping[str, Any], order: Sequence[str]) -> Iterator[list[str]]:
    """The changed paths by step: a list that is switched on brings its other fields with it."""
    paths = [path for path in (spec.path for spec in field_specs()) if path in left]
    groups: list[list[str]] = []
    for path in paths:
        section = path.removesuffix(".enabled")
        if path.startswith("lists.") and path.endswith(".enabled") and left[path][1]:
            own = [other for other in paths if other.startswith(f"{section}.") and other not in (path, *SPLIT_OFF)]
            groups.append([path, *own])
    grouped = {path for group in groups for path in group}
    groups += [[path] for path in paths if path not in grouped]
    place = {path: i for i, path in enumerate(order)}
    others = place.get(REST, len(order))

    def key(group: list[str]) -> tuple[int, int]:
        first = group[0]
        return place.get(first, place.get(first.removesuffix(".enabled"), others)), paths.index(first)

    yield from sorted(groups, key=key)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value.model_dump() if hasattr(value, "model_dump") else value


def without_servers(config: PipelineConfig) -> PipelineConfig:
    """The config without backends that need a server, and without a judge."""
    off = {path: value for path, value in NO_SERVER.items() if config.get(path) in SERVERS}
    return with_values(config, off | {"judge.backend": "none"})  # a judge moves nothing, and takes most of the time


@dataclass(frozen=True)
class Rung:
    """A config on the ladder, and how it differs from the one before; the first has no step."""

    step: Step | None
    evaluation: Evaluation
    differences: Sequence[MeasureDifference]


def climbed(ladder: Ladder, resources: Resources) -> list[Rung]:
    """Every rung of a ladder, measured."""
    store = resources.store
    judgments = store.judgments.read()
    selection = judged_selection(QUERY_SET, resources, judgments)
    plan, program = (without_servers(preset(name).config) for name in (ladder.plan, ladder.program))
    climbing = list(steps(plan, program, ladder.order))
    assert not climbing or not difference(climbing[-1].config, program), "the ladder ends at the program"
    configs = [("plan", plan), *((f"step {i}", step.config) for i, step in enumerate(climbing, 1))]
    for name, config in configs:
        ensure_evidence(config, selection, judgments, resources)
        print(f"{ladder.system}: {name} of {len(configs) - 1}", flush=True)
    grades = agreed(judgments, None)
    measures = parse_measures(MEASURES, RELEVANT_FROM)
    evaluated, missing = evaluate_configs(
        configs, lambda config: labelled_selection(config, selection, grades, resources), measures
    )
    assert not missing, missing
    rungs = [Rung(None, evaluated[0].evaluation, ())]
    for step, before, after in zip(climbing, evaluated, evaluated[1:], strict=False):
        found = compare([before.evaluation, after.evaluation]).compared[0]
        rungs.append(Rung(step, after.evaluation, found.differences))
    return rungs


def as_ace_searches(resources: Resources, recording: Path) -> str:
    """What ACE's program reaches on the query and on the text that ACE made of it, in a sentence."""
    store = resources.store
    judgments = store.judgments.read()
    typed = judged_selection(QUERY_SET, resources, judgments)
    answers = json.loads(recording.read_text(encoding="utf-8"))["answers"]
    made = {answer["qid"]: answer["understood"]["searched"] for answer in answers}
    given = QuerySelection(
        f"{QUERY_SET} as ACE searches it",
        tuple(replace(query, searched=made[query.qid]) for query in typed.queries if query.qid in made),
    )
    config, measures, grades = (
        preset("ace_row_a").config,
        parse_measures("hit@1 hit@5", RELEVANT_FROM),
        agreed(judgments, None),
    )
    found = []
    for selection in (given, typed):
        ensure_evidence(config, selection, judgments, resources)
        evaluated, _ = evaluate_configs(
            [("ace_row_a", config)],
            partial(labelled_selection, selection=selection, grades=grades, resources=resources),
            measures,
        )
        found.append(evaluated[0].evaluation)
    changed = sum(made[query.qid].lower() != query.query.lower() for query in given.queries)
    rows = compare(found).compared[0].differences
    moved = "; ".join(
        f"{name} {row.baseline:.3f} → {row.value:.3f}, {_difference(row)}"
        for name, row in zip(("hit@1", "hit@5"), rows, strict=True)
    )
    return (
        f"For {changed} of {len(given.queries)} queries ACE searches another text than the query: typos, terms and dictionary are on "
        "in every row. "
        f"Without all that, `ace_row_a` as typed against as ACE searches: {moved}."
    )


def with_stop_words_of_engram(resources: Resources, source: Path) -> str:
    """What engram's program reaches with the stop words of an installation, in a sentence."""
    judgments = resources.store.judgments.read()
    selection = judged_selection(QUERY_SET, resources, judgments)
    plan, without = (without_servers(preset(name).config) for name in ("recollection", "engram_head"))
    given = with_values(without, {"lists.fts5.stop_words": f"{source}#STOP_WORDS"})
    for config in (plan, without, given):
        ensure_evidence(config, selection, judgments, resources)
    grades = agreed(judgments, None)
    evaluated, _ = evaluate_configs(
        [("plan", plan), ("without", without), ("with", given)],
        lambda config: labelled_selection(config, selection, grades, resources),
        parse_measures("hit@3 nDCG@10", RELEVANT_FROM),
    )
    gained, lost = (compare([evaluated[i].evaluation, evaluated[2].evaluation]).compared[0].differences for i in (1, 0))
    moved = "; ".join(
        f"{name} {row.baseline:.3f} → {row.value:.3f}, {_difference(row)}, against the plan {_difference(total)}"
        for name, row, total in zip(("hit@3", "nDCG@10"), gained, lost, strict=True)
    )
    return (
        "The stop words of engram are in its source and in no preset. Where they are searched, many more memories match, and the oldest 50 "
        f"are listed. Left out, as read from an installation (`lists.fts5.stop_words`): {moved}."
    )


def table(ladder: Ladder, rungs: Sequence[Rung]) -> str:
    """The section of a ladder."""
    names = MEASURES.split()
    lines = [
        f"## {ladder.system[:1].upper()}{ladder.system[1:]}",
        "",
        f"From `{ladder.plan}` to `{ladder.program}`.",
        "",
        f"| step | {' | '.join(f'{name} | Δ' for name in names)} |",
        "|---|" + "---|---|" * len(names),
    ]
    same: list[str] = []
    for rung in rungs:
        title = f"`{ladder.plan}`" if rung.step is None else rung.step.title
        if rung.step is not None and _unchanged(rung, rungs):
            same += [f"`{path}`" for path, _, _ in rung.step.changes]
            continue
        cells = []
        for i, summary in enumerate(rung.evaluation.summaries):
            moved = rung.differences[i] if rung.differences else None
            cells += [f"{summary.mean:.3f}", _difference(moved)]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    total = compare([rungs[0].evaluation, rungs[-1].evaluation]).compared[0].differences
    ends = [
        cell
        for i, row in enumerate(rungs[-1].evaluation.summaries)
        for cell in (f"{row.mean:.3f}", _difference(total[i]))
    ]
    lines.append(f"| **`{ladder.program}`**, against the plan | {' | '.join(ends)} |")
    if same:
        lines += ["", f"No result changes with {', '.join(same)}."]
    return "\n".join(lines)


def _unchanged(rung: Rung, rungs: Sequence[Rung]) -> bool:
    """Whether a step leaves every query's results as they were."""
    return rung.evaluation.results == rungs[rungs.index(rung) - 1].evaluation.results


def _difference(moved: MeasureDifference | None) -> str:
    if moved is None:
        return ""
    return f"{moved.difference:+.3f} [{moved.low:+.3f}, {moved.high:+.3f}]".replace("-", "−")


def page(sections: Sequence[str], queries: int, memories: int) -> str:
    """The page."""
    return f"""# Plan and program: what each rule costs

A preset is a **plan**, made from a document, or a **program**, recorded from the running system. Here one config field at a time changes
from the plan of a system to what it does. Measured on the sample set: {queries} judged queries, {memories} memories with their content
alone, whole, embedded by all-MiniLM-L6-v2; a memory is relevant from grade 2. Δ is the difference from the step before it, paired, with its
95 % bootstrap interval: an interval that holds 0 is no evidence of a change. The steps depend on their order: another one divides the same
total otherwise. Where a plan or a program has a model that needs a server, it is left out on both sides.

Generated by `python -m benchmarks.preset_ladders` with version {__version__}.

{chr(10).join(f"{section}{chr(10)}" for section in sections)}"""


def filled_store(work: Path) -> Resources:
    """The sample set, without titles and uncut, in a store in the work folder."""
    resources = open_resources(Settings(store=work / "store"))
    store = resources.store
    store.chunks.choose("whole")
    if not store.memories.count():
        for parsed in formats.read_path(SAMPLE):
            bare = tuple(replace(memory, title=None) for memory in parsed.memories)
            store.add(replace(parsed, memories=bare), options=ImportOptions(QUERY_SET))
    resources.refresh()
    return resources


def main() -> None:
    """Measure every ladder whose presets exist, and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--work", type=Path, default=Path(".workbench/ladders"))
    parser.add_argument("--only", help="Print the ladder of this plan preset, and write no page.")
    parser.add_argument("--ace", type=Path, help="A recording of ACE, whose searched texts are measured as well.")
    parser.add_argument(
        "--engram", type=Path, help="engram's recollection-writer.ts, whose stop words are measured as well."
    )
    options = parser.parse_args()
    known = set(preset_names())
    resources = filled_store(options.work)
    sections = []
    try:
        for ladder in LADDERS:
            if options.only not in (None, ladder.plan):
                continue
            if not {ladder.plan, ladder.program} <= known:
                raise InputError(f"{ladder.system}: there is no preset {ladder.plan} or {ladder.program}")
            rungs = climbed(ladder, resources)
            sections.append(table(ladder, rungs))
            if ladder.program == "engram_head" and options.engram is not None:
                sections[-1] += f"\n\n{with_stop_words_of_engram(resources, options.engram)}"
            if ladder.program == "ace_row_a" and options.ace is not None:
                sections[-1] += f"\n\n{as_ace_searches(resources, options.ace)}"
        queries = len(rungs[0].evaluation.qids)
        text = page(sections, queries, resources.store.memories.count())
    finally:
        resources.close()
    if options.only:
        print(text)
    else:
        write_text(PAGE, text)


if __name__ == "__main__":
    main()
