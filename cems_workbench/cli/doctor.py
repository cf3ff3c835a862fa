"""`doctor`: models, servers, store: what is there and what will be used."""

from __future__ import annotations

import dataclasses

import typer

from cems_workbench.cli.options import (
    ConfigOption,
    JsonOption,
    PresetOption,
    StoreOption,
    chosen_config,
    print_json,
    print_table,
    settings_for,
)


def doctor_command(
    preset: PresetOption = None, config: ConfigOption = None, store: StoreOption = None, as_json: JsonOption = False
) -> None:
    """Look at packages, models, servers and the store: what is there, and what a preset or config will run with.

    Exit code 1 when something is missing that nothing can take the place of.
    """
    chosen = chosen_config(preset, config, None)
    from cems_workbench.runs.diagnosis import diagnose

    checks = diagnose(settings_for(store), chosen)
    if as_json:
        print_json([dataclasses.asdict(check) for check in checks])
    else:
        print_table(["", "what", "finding", "advice"], [[c.status, c.name, c.finding, c.advice] for c in checks])
    if any(check.status == "failed" for check in checks):
        raise typer.Exit(1)
