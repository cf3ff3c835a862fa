"""`search`: one query through the whole pipeline."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from cems_workbench.cli.options import (
    AsOfOption,
    ConfigOption,
    EngineQueryOption,
    JsonOption,
    PresetOption,
    ProjectOption,
    RestrictToProjectOption,
    SearchedOption,
    SetOption,
    StoreOption,
    VariantOption,
    WithoutVariantOption,
    chosen_config,
    filled_resources,
    progress_bar,
    request_and_config,
    require_variants,
    warn_unknown_project,
)
from cems_workbench.errors import InputError


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
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run the pipeline for one query and show every stage."""
    chosen = chosen_config(preset, config, changes)
    request, chosen = request_and_config(query, project, restrict, as_of, variants, chosen, searched, engine_queries)
    from cems_workbench.cli.tracing import print_trace
    from cems_workbench.pipeline import replay, write_bundle
    from cems_workbench.pipeline.gather import gather

    if redact and bundle is None:
        raise InputError("--redact needs a --bundle to write")
    with progress_bar(as_json) as progress, filled_resources(store) as resources:
        warn_unknown_project(resources.store, project, restrict)
        evidence = gather(request, chosen, resources, progress)
    left_out = require_variants(without, evidence)
    if bundle is not None:
        from cems_workbench.pipeline.redact import redacted

        write_bundle(redacted(evidence) if redact else evidence, bundle)
    print_trace(replay(evidence, chosen, switched_off=left_out, clock=time.perf_counter), as_json)
