"""`search`: gather the evidence of a query and replay it."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from cems_workbench.cli.options import (
    ConfigOption,
    JsonOption,
    PresetOption,
    SetOption,
    StoreOption,
    chosen_config,
    progress_bar,
    settings_for,
)
from cems_workbench.errors import InputError, StoreError


def search_command(
    query: Annotated[str, typer.Argument(help="What to look for.")],
    preset: PresetOption = None,
    config: ConfigOption = None,
    changes: SetOption = None,
    project: Annotated[str | None, typer.Option("--project", help="The query's project, org/repo.")] = None,
    only_project: Annotated[bool, typer.Option("--only-project", help="Search that project's memories only.")] = False,
    as_of: Annotated[
        str | None, typer.Option("--as-of", help="Moment ages are counted from, ISO 8601 (default: now).")
    ] = None,
    expand: Annotated[list[str] | None, typer.Option("--expand", help="A further query variant; repeatable.")] = None,
    bundle: Annotated[
        Path | None, typer.Option("--bundle", help="Also write the evidence bundle to this file.")
    ] = None,
    redact: Annotated[
        bool, typer.Option("--redact", help="Write the bundle without its texts; it replays with the same numbers.")
    ] = False,
    off: Annotated[
        list[int] | None,
        typer.Option("--off", min=0, help="Leave query variant N out (0: the query itself); repeatable."),
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run the pipeline for one query and show what every stage did."""
    chosen = chosen_config(preset, config, changes)
    moment = parse_moment(as_of)
    from cems_workbench.cli.tracing import print_trace
    from cems_workbench.config import with_values
    from cems_workbench.pipeline import replay, write_bundle
    from cems_workbench.pipeline.gather import Request, gather
    from cems_workbench.resources import open_resources

    if only_project and not project:
        raise InputError("--only-project needs a --project")
    if redact and bundle is None:
        raise InputError("--redact needs a --bundle to write")
    if expand and chosen.expansion.backend == "none":
        chosen = with_values(chosen, {"expansion.backend": "manual"})
    with progress_bar(as_json) as progress:
        resources = open_resources(settings_for(store), create=False)
        try:
            if not resources.store.count():
                raise StoreError(f"the store {resources.store.path} is empty; import something first")
            request = Request(query, project, moment, only_project, tuple(expand or ()))
            evidence = gather(request, chosen, resources, progress)
        finally:
            resources.close()
    missing = sorted(number for number in off or () if number >= len(evidence.variants))
    if missing:
        raise InputError(f"--off {missing[0]}: there are {len(evidence.variants)} query variants, counted from 0")
    if bundle is not None:
        from cems_workbench.pipeline.redact import redacted

        write_bundle(redacted(evidence) if redact else evidence, bundle)
    print_trace(replay(evidence, chosen, switched_off=off or (), clock=time.perf_counter), as_json)


def parse_moment(text: str | None) -> datetime | None:
    """An ISO 8601 moment in UTC (a bare date is its midnight). Raises InputError."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise InputError(f"--as-of {text}: expected an ISO 8601 date or time, such as 2026-09-01") from None
