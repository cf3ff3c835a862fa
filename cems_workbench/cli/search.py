"""`search`: one query through the whole pipeline."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from cems_workbench.cli.next_command import after_search, say_next
from cems_workbench.cli.options import (
    AsOfOption,
    ConfigOption,
    EngineQueryOption,
    ExplainOption,
    JsonOption,
    OnlyProjectOption,
    PresetOption,
    ProjectOption,
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
from cems_workbench.command_words import words_of
from cems_workbench.errors import InputError


def search_command(
    query: Annotated[str, typer.Argument(help="The query.")],
    preset: PresetOption = None,
    config: ConfigOption = None,
    changes: SetOption = None,
    project: ProjectOption = None,
    only_project: OnlyProjectOption = False,
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
    request, chosen = request_and_config(
        query, project, only_project, as_of, variants, chosen, searched, engine_queries
    )
    from cems_workbench.analysis.next_step import next_step
    from cems_workbench.cli.tracing import print_trace
    from cems_workbench.jobs.query_grades import QueryGrades, query_grades
    from cems_workbench.pipeline import replay, write_bundle
    from cems_workbench.pipeline.gather import gather

    if redact and bundle is None:
        raise InputError("--redact needs a --bundle to write")
    with progress_bar(as_json) as progress, filled_resources(store) as resources:
        warn_unknown_project(resources.store, project, only_project)
        evidence = gather(request, chosen, resources, progress)
        judged = QueryGrades() if as_json and not explain else query_grades(request, resources.store)
    left_out = require_variants(without, evidence.variants)
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
        as_of_given=request.as_of is not None,
    )
    if as_json:
        return
    step = next_step(trace, judged.grades, judged.relevant_from, judged.answerable)
    if step.kind not in ("nothing", "superseded", "expired"):  # printed with the ranking
        say_wrapped(step.words)
    label = words_of("app", options=given_options(None, None, None, store)) if step.place == "label" else None
    say_next(*after_search(step, trace, request, left_out, given_options(preset, config, changes, store)), label)
