"""How a trace is printed: the pipeline strip, its warnings, the results."""

from __future__ import annotations

import typer

from cems_workbench.cli.options import print_json, print_table
from cems_workbench.pipeline import Trace

EXCERPT = 160


def print_trace(trace: Trace, as_json: bool) -> None:
    """Print a trace as JSON (the form of PIPELINE.md) or as tables."""
    if as_json:
        print_json(trace.to_json())
        return
    rows = [
        [stage.name, stage.candidates_in, stage.candidates_out, stage.elapsed_ms, len(stage.warnings)]
        for stage in trace.stages
    ]
    print_table(["stage", "in", "out", "ms", "warnings"], rows)
    typer.echo()
    results = [[row["rank"], row["score"], row["memory_id"], _excerpt(row["content"])] for row in trace.results]
    if results:
        print_table(["rank", "score", "memory", "content"], results)
    else:
        typer.echo("No results.")
    budget = trace.config.assembly.max_tokens
    used = f"{trace.tokens_used} tokens" + (f" of {budget}" if budget is not None else "")
    skipped = f", {len(trace.skipped_for_budget)} memories did not fit" if trace.skipped_for_budget else ""
    typer.echo(f"\n{used}{skipped}; config {trace.config.name}")
    for stage, text in trace.warnings:
        typer.echo(f"warning: {stage}: {text}", err=True)
    for need in trace.needs:
        what = need.get("parameter") or f"{len(need['memory_ids'])} scores of {need['model']}"
        typer.echo(f"needs a gather: {need['stage']}: {what}", err=True)


def _excerpt(content: str) -> str:
    line = " ".join(content.split())
    return line if len(line) <= EXCERPT else line[: EXCERPT - 1] + "…"
