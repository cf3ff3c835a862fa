"""`doctor`: models, servers, store: what is there and what will be used."""

from __future__ import annotations

import dataclasses

import typer

from cems_workbench.cli.options import JsonOption, StoreOption, print_json, print_table, settings_for


def doctor_command(store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Look at packages, models and the store. Exit code 1 when something is missing that is needed."""
    from cems_workbench.diagnosis import diagnose

    checks = diagnose(settings_for(store))
    if as_json:
        print_json([dataclasses.asdict(check) for check in checks])
    else:
        print_table(["", "what", "finding", "advice"], [[c.status, c.name, c.finding, c.advice] for c in checks])
    if any(check.status == "failed" for check in checks):
        raise typer.Exit(1)
