"""How an answer of `why` is printed: the cause, the path, the rescues."""

from __future__ import annotations

from typing import Any

import typer

from cems_workbench.cli.options import print_table
from cems_workbench.why import Rescue, Why

SHOWN = 12


def print_why(found: Why) -> None:
    """Print the cause in a sentence, the memory's path and the rescues, best first."""
    path = found.path
    typer.echo(found.cause)
    typer.echo()
    if path.steps:
        rows = [
            [step.stage, step.rank_in, step.rank, step.score, ("lost here: " if step.stage == path.lost_at else "") + step.words]
            for step in path.steps
        ]  # fmt: skip
        print_table(["stage", "rank in", "rank", "score", "what happened"], rows)
        typer.echo()
    if path.places:
        print_table(["list", "rank", "score", "whole store"], [[p.list, p.rank, p.score, p.words] for p in path.places])
        typer.echo()
    typer.echo(found.verdict)
    shown = list(found.rescues[:SHOWN]) or ([found.nearest] if found.nearest else [])
    if shown:
        labelled = any(rescue.labelled for rescue in shown)
        columns = ["change", "rank", "breakpoint", "tau", "RBO", "gone", "distance", *(["judged"] if labelled else [])]
        print_table(columns, [_row(rescue, labelled) for rescue in shown])
        typer.echo(
            "tau, RBO: how far the other results stay as they are, 1 = exactly; gone: how many of them no longer come; "
            "distance in slider ranges."
        )
        if labelled:
            typer.echo("judged: judged queries that gain and lose a hit among the first results.")
    if len(found.rescues) > SHOWN:
        typer.echo(f"and {len(found.rescues) - SHOWN} more; --json lists them all")
    if any(rescue.needs for rescue in shown):
        typer.echo("* some candidates were never scored by the reranker under this change; its word is still out")


def _row(rescue: Rescue, labelled: bool) -> list[Any]:
    moved = rescue.disturbance
    return [
        what(rescue) + ("*" if rescue.needs else ""),
        rescue.rank,
        ", ".join(_point(change.breakpoint.succeeds) for change in rescue.changes if change.breakpoint) or None,
        f"{moved.tau:.2f}",
        f"{moved.rbo:.2f}",
        moved.gone,
        f"{rescue.distance:.2f}",
        *([_judged(rescue)] if labelled else []),
    ]


def what(rescue: Rescue) -> str:
    """ "fusion.k 60 → 83": the changes in a line; what needs a gather says so."""
    parts = [f"{change.path} {_value(change.was)} → {_value(change.now)}" for change in rescue.changes]
    parts += [f"search for “{term}” too" for term in rescue.terms]
    parts += ["search every project"] if rescue.everywhere else []
    return " and ".join(parts) + (" (gathers)" if rescue.gathers else "")


def _judged(rescue: Rescue) -> str | None:
    effect = rescue.labelled
    if effect is None:
        return None
    return f"+{len(effect.gained)} −{len(effect.lost)}"


def _value(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _point(value: float) -> str:
    return f"{value:.6g}"
