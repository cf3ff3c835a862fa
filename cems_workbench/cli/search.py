"""`search`: one query through the whole pipeline."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cems_workbench.cli.next_command import repeated, request_options, say_next
from cems_workbench.cli.options import (
    AsOfOption,
    ConfigOption,
    EngineQueryOption,
    ExplainOption,
    JsonOption,
    PresetOption,
    ProjectOption,
    RestrictToProjectOption,
    SearchedOption,
    SetOption,
    StagesOption,
    StoreOption,
    VariantOption,
    WithoutVariantOption,
    chosen_config,
    filled_resources,
    given_options,
    progress_bar,
    request_and_config,
    require_variants,
    warn_unknown_project,
)
from cems_workbench.cli.terminal import say_wrapped
from cems_workbench.command_words import why_command, words_of
from cems_workbench.errors import InputError

if TYPE_CHECKING:
    from cems_workbench.analysis.next_step import NextStep
    from cems_workbench.pipeline import Trace
    from cems_workbench.pipeline.gather import Request


def search_command(
    query: Annotated[str, typer.Argument(help="The query.")],
    preset: PresetOption = None,
    config: ConfigOption = None,
    changes: SetOption = None,
    project: ProjectOption = None,
    restrict: RestrictToProjectOption = False,
    as_of: AsOfOption = None,
    variants: VariantOption = None,
    searched: SearchedOption = None,
    engine_queries: EngineQueryOption = None,
    bundle: Annotated[
        Path | None, typer.Option("--bundle", metavar="FILE", help="Also write the evidence bundle to this file.")
    ] = None,
    redact: Annotated[
        bool, typer.Option("--redact", help="Write the bundle without texts; it replays to the same numbers.")
    ] = False,
    without: WithoutVariantOption = None,
    explain: ExplainOption = False,
    stages: StagesOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run the pipeline for one query.

    Shows the ranking first, and what each stage did with --stages.
    """
    chosen = chosen_config(preset, config, changes)
    request, chosen = request_and_config(query, project, restrict, as_of, variants, chosen, searched, engine_queries)
    from cems_workbench.analysis.next_step import next_step
    from cems_workbench.cli.tracing import print_trace
    from cems_workbench.jobs.query_grades import QueryGrades, query_grades
    from cems_workbench.pipeline import replay, write_bundle
    from cems_workbench.pipeline.gather import gather

    if redact and bundle is None:
        raise InputError("--redact needs a --bundle to write")
    with progress_bar(as_json) as progress, filled_resources(store) as resources:
        warn_unknown_project(resources.store, project, restrict)
        evidence = gather(request, chosen, resources, progress)
        judged = QueryGrades() if as_json and not explain else query_grades(request, resources.store)
    left_out = require_variants(without, evidence)
    if bundle is not None:
        from cems_workbench.pipeline.redact import redacted

        write_bundle(redacted(evidence) if redact else evidence, bundle)
    trace = replay(evidence, chosen, switched_off=left_out, clock=time.perf_counter)
    print_trace(
        trace,
        as_json,
        stages=stages,
        explain=explain,
        grades=judged.grades,
        moment_given=request.as_of is not None,
    )
    if as_json:
        return
    step = next_step(trace, judged.grades, judged.relevant_from, judged.answerable)
    if step.kind not in ("nothing", "superseded", "expired"):  # printed with the ranking
        say_wrapped(step.words)
    label = words_of("app", options=given_options(None, None, None, store)) if step.place == "label" else None
    say_next(*_next_commands(step, trace, request, left_out, given_options(preset, config, changes, store)), label)


def _next_commands(
    step: NextStep, trace: Trace, request: Request, left_out: Sequence[int], options: Sequence[str]
) -> list[list[str]]:
    """The commands for a next step: what explains it, or for a query that is not judged the first memory that is not returned."""

    def why(memory_id: str, k: int | None = None) -> list[str]:
        asked = request_options(request, left_out)
        return why_command(request.query, memory_id, cutoff=k, options=asked).words(options)

    if step.place in ("why", "supersession") and step.memory_id is not None:
        return [why(step.memory_id, step.k)]
    if step.place in ("stages", "lists", "abstain"):
        return [repeated("--stages")] if "--stages" not in sys.argv else [words_of("doctor", options=options)]
    if step.place == "evaluate":
        return [words_of("evaluate", "all", options=["--losses", *options])]
    returned = {row.memory_id for row in trace.results}
    found = (hit.memory_id for ranked in trace.evidence.lists for hit in ranked.hits)
    below = next((memory_id for memory_id in found if memory_id not in returned), None)
    return [why(below)] if below is not None else [words_of("doctor", options=options)]
