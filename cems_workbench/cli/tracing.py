"""How a trace is printed: the results, what is to be said of them, and the stages where they are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cems_workbench.analysis.expansion import VariantContribution, variant_contributions
from cems_workbench.analysis.known_mistakes import known_mistakes
from cems_workbench.analysis.ranks import nothing_returned
from cems_workbench.analysis.supersession import first_result_stale, first_result_words, result_staleness
from cems_workbench.cli.options import print_table
from cems_workbench.cli.terminal import put_json, say
from cems_workbench.config import PipelineConfig, depth_notes
from cems_workbench.pipeline import Evidence, Trace
from cems_workbench.pipeline.list_provenance import answered_lists, searched_lines
from cems_workbench.pipeline.request_effects import (
    as_of_effect,
    later_words,
    project_effect,
    results_written_later,
)
from cems_workbench.pipeline.stages.assembly import ASSEMBLY
from cems_workbench.pipeline.stages.judge import JUDGE
from cems_workbench.pipeline.stages.lists import LISTS
from cems_workbench.pipeline.stages.result import ScoreNeed

if TYPE_CHECKING:
    from cems_workbench.analysis.side_by_side import SideBySide

EXCERPT_CHARS = 160


def print_trace(
    trace: Trace,
    as_json: bool,
    *,
    stages: bool = False,
    explain: bool = False,
    grades: Mapping[str, int] | None = None,
    as_of_given: bool = True,
) -> None:
    """Print a trace as JSON (the form of docs/internals/specification.md) or as text: the ranking, then the remarks on it.

    With `explain` the parts of each score follow the ranking, with `stages` a row for each stage comes last; `grades` are by memory id. A
    moment that was not given, so that it is now, is not named unless it has an effect.
    """
    if explain:
        from cems_workbench.analysis.side_by_side import side_by_side
    if as_json:
        mistakes = [mistake.to_json() for mistake in known_mistakes(trace)]
        out_of_date = {memory_id: found.to_json() for memory_id, found in result_staleness(trace).items()}
        put_json(
            trace.to_json()
            | {"written_later": results_written_later(trace), "out_of_date": out_of_date, "known_mistakes": mistakes}
            | ({"side_by_side": side_by_side(trace, grades).to_json()} if explain else {})
        )
        return
    several = len(trace.evidence.variants) > 1
    shares = {found.memory_id: found for found in variant_contributions(trace)} if several else {}
    _print_results(trace, shares)
    if several:
        _print_queries(trace, list(shares.values()))
    if explain:
        _print_parts(side_by_side(trace, grades))
    _print_remarks(trace, as_of_given, stages or explain)
    if stages:
        _print_stages(trace)


def _print_results(trace: Trace, shares: Mapping[str, VariantContribution]) -> None:
    """The ranking, with what each query gave to a result where there are several, and which result is out of date."""
    stale = result_staleness(trace)
    results = [
        [
            result.rank,
            result.score,
            result.memory_id,
            *([_given(shares[result.memory_id])] if shares else []),
            *([stale[result.memory_id].words if result.memory_id in stale else ""] if stale else []),
            _excerpt(result.content),
        ]
        for result in trace.results
    ]
    if results:
        headings = [*(["given by query"] if shares else []), *(["out of date"] if stale else [])]
        print_table(["rank", "score", "memory", *headings, "content"], results)
    else:
        say(f"Nothing returned: {(nothing_returned(trace) or ('', ''))[1]}.")


def _print_parts(table: SideBySide) -> None:
    """Of each result its rank and score in every list and after every stage that did something, and what the score is made of."""
    from cems_workbench.analysis.side_by_side import parts_words

    rows: list[list[Any]] = []
    for row in table.rows:
        if row.final_rank is None:
            break
        head: list[Any] = [row.final_rank, row.memory_id]
        for key, cell in row.cells.items():
            column = table.column(key)
            made_of = [parts_words(column.kind, cell.parts), row.moved_words if column.kind == "rank" else ""]
            rows.append(
                [
                    *head,
                    "final" if column.kind == "rank" else key,
                    cell.rank,
                    cell.score,
                    "; ".join(filter(None, made_of)),
                ]
            )
            head = ["", ""]  # said once for each result
    if rows:
        say()
        print_table(["rank", "memory", "where", "rank there", "score", "made of"], rows)


def _print_remarks(trace: Trace, as_of_given: bool, judge_shown: bool) -> None:
    """The lines below the ranking; warnings and missing evidence on stderr. The judge, which moves nothing, warns only if it is shown."""
    if trace.external:
        say(f"\n{trace.tokens_used} tokens; stages as another pipeline recorded them: no config changes them")
        _print_mistakes_and_problems(trace, judge_shown)
        return
    budget = trace.stage(ASSEMBLY).fields.budget
    used = f"{trace.tokens_used} tokens" + (f" of {budget}" if budget is not None else "")
    skipped = f", {len(trace.skipped_for_budget)} memories did not fit" if trace.skipped_for_budget else ""
    say(f"\n{used}{skipped}; config {trace.config.name}")
    for note in depth_notes(trace.config):
        say(note)
    print_effects(trace.evidence, trace.config, as_of_given)
    for line in searched_lines(trace.evidence):
        say(line)
    if later := later_words(trace):
        say(later)
    if first := first_result_stale(trace):
        say(first_result_words(first))
    shown = trace.stage(LISTS).fields.shown(trace.config, inner=True)
    if answered := answered_lists(trace.evidence, [one.name for one in trace.evidence.lists if one.name in shown]):
        say(answered)
    if any(one.source == "source_hybrid" for one in trace.evidence.lists):
        from cems_workbench.analysis.engine_fusion import compare_fusions

        if fusions := compare_fusions(trace):
            say(fusions.line)
    _print_mistakes_and_problems(trace, judge_shown)


def _print_mistakes_and_problems(trace: Trace, judge_shown: bool) -> None:
    """Known mistakes; warnings and missing evidence on stderr."""
    mistakes = known_mistakes(trace)
    for mistake in mistakes:
        say(f"known mistake: {mistake.line}")
    said = {mistake.words for mistake in mistakes}
    for stage, text in trace.warnings:
        if text in said or (stage == JUDGE.name and not judge_shown):
            continue
        say(f"warning: {stage}: {text}", err=True)
    for need in trace.needs:
        what = f"{len(need.memory_ids)} scores of {need.model}" if isinstance(need, ScoreNeed) else need.parameter
        say(f"needs a gather: {need.stage}: {what}", err=True)


def _print_stages(trace: Trace) -> None:
    """A row for each stage: candidates in and out, and the time of the replay."""
    rows = [
        [stage.name, stage.candidates_in, stage.candidates_out, stage.elapsed_ms, len(stage.warnings)]
        for stage in trace.stages
    ]
    say()
    print_table(["stage", "in", "out", "ms", "warnings"], rows)


def print_effects(evidence: Evidence, config: PipelineConfig, as_of_given: bool = True) -> None:
    """Print what project and moment of the query do under the config, a line each; of a moment that was not given only an effect."""
    if evidence.project is not None:
        only = bool((evidence.notes.get("query") or {}).get("only_project"))
        say(f"project {evidence.project}: {project_effect(config, only).words}")
    if evidence.as_of is not None and (as_of_given or not as_of_effect(config).ignored):
        say(f"as of {evidence.as_of:%Y-%m-%d}: {as_of_effect(config).words}")


def _print_queries(trace: Trace, shares: list[VariantContribution]) -> None:
    """The queries that were searched at once, how many candidates each found, and how many of the results."""
    shown = {result.memory_id for result in trace.results}
    rows = []
    for i, variant in enumerate(trace.evidence.variants):
        found = [entry.memory_id for entry in shares if i in entry.by_variant]
        rows.append([i, variant.kind, _excerpt(variant.text), len(found), sum(key in shown for key in found)])
    say()
    print_table(["query", "kind", "text", "found", "in results"], rows)


def _given(shares: VariantContribution) -> str:
    """ "0: 0.0164, 2: 0.0161 ×1.1": what each query gave to the fused raw score, and the boost."""
    terms = ", ".join(f"{i}: {gave:.4f}{'*' if i == shares.decisive else ''}" for i, gave in shares.by_variant.items())
    return terms + (f" ×{shares.boost:g}" if shares.boost != 1 else "")


def _excerpt(content: str) -> str:
    line = " ".join(content.split())
    return line if len(line) <= EXCERPT_CHARS else line[: EXCERPT_CHARS - 1] + "…"
