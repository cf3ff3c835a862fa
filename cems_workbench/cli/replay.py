"""`replay`: an evidence bundle under a config, without store or model."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from cems_workbench.cli.next_command import say_next
from cems_workbench.cli.options import (
    ConfigOption,
    ExplainOption,
    JsonOption,
    PresetOption,
    SetOption,
    StagesOption,
    chosen_config,
    given_options,
)
from cems_workbench.command_words import why_command


def replay_command(
    bundle: Annotated[Path, typer.Argument(help="An evidence bundle.")],
    config: ConfigOption = None,
    preset: PresetOption = None,
    changes: SetOption = None,
    explain: ExplainOption = False,
    stages: StagesOption = False,
    spans: Annotated[
        Path | None,
        typer.Option(
            "--spans",
            metavar="FILE",
            help="Also write the stages as OpenInference spans, which other tools and `import` read.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Replay an evidence bundle under a config.

    The same bundle and config give the same trace on any machine. No store and no model is needed.
    """
    chosen = chosen_config(preset, config, changes)
    from cems_workbench.cli.tracing import print_trace
    from cems_workbench.pipeline import read_bundle, replay
    from cems_workbench.pipeline.trace_spans import trace_spans
    from cems_workbench.platform.atomic_write import write_text

    evidence = read_bundle(bundle)
    trace = replay(evidence, chosen, clock=time.perf_counter)
    if spans is not None:
        write_text(spans, "".join(f"{line}\n" for line in trace_spans(trace)))
    print_trace(trace, as_json, stages=stages, explain=explain)
    if as_json:
        return
    returned = {row.memory_id for row in trace.results}
    missing = next((memory_id for memory_id in evidence.memories if memory_id not in returned), None)
    if missing is not None:
        options = ["--evidence", str(bundle), *given_options(preset, config, changes, None)]
        say_next(why_command(evidence.query, missing, options=options).words())
