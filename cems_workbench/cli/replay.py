"""`replay`: an evidence bundle under a config, without store or model."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from cems_workbench.cli.options import ConfigOption, JsonOption, PresetOption, SetOption, chosen_config


def replay_command(
    bundle: Annotated[Path, typer.Argument(help="An evidence bundle.")],
    config: ConfigOption = None,
    preset: PresetOption = None,
    changes: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Replay an evidence bundle under a config.

    The same bundle and config give the same trace on any machine. No store and no model is needed.
    """
    chosen = chosen_config(preset, config, changes)
    from cems_workbench.cli.tracing import print_trace
    from cems_workbench.pipeline import read_bundle, replay

    print_trace(replay(read_bundle(bundle), chosen, clock=time.perf_counter), as_json)
