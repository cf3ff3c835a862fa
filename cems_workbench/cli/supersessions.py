"""`supersessions`: proposed `supersedes` edges, and decisions on them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cems_workbench.cli.next_command import first_search, repeated, say_next, unused, words_of
from cems_workbench.cli.options import (
    JsonOption,
    StoreOption,
    account,
    filled_resources,
    given_options,
    print_table,
    progress_bar,
)
from cems_workbench.cli.terminal import put_json, say
from cems_workbench.errors import InputError

SOME_ROWS = 1


def supersessions_command(
    minimum: Annotated[
        float | None,
        typer.Option("--minimum", metavar="X", help="Propose pairs with this score or more, 0 to 1 (default: 0.1)."),
    ] = None,
    shown: Annotated[int, typer.Option("--show", metavar="N", min=1, help="Number of proposals, best first.")] = 50,
    model: Annotated[
        str | None,
        typer.Option(
            "--contradiction-model",
            metavar="MODEL",
            help="Let this natural language inference cross-encoder read the best pairs: a folder or model id.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write the proposals as CSV with a column for verdicts."),
    ] = None,
    accept: Annotated[
        Path | None,
        typer.Option("--accept", metavar="FILE", help="Save the verdicts in such a CSV: accept, reject or swap."),
    ] = None,
    reviewer: Annotated[
        str | None, typer.Option("--reviewer", metavar="NAME", help="Who decides (default: the current account).")
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Propose which memories supersede earlier ones, or save decisions on proposals.

    Nothing changes until a proposal is accepted, here or on the Label page. An accepted one becomes a relation `supersedes` under the
    reviewer's name.
    """
    with filled_resources(store) as resources:
        resources.store.supersessions.apply()
        if accept is not None:
            from cems_workbench.jobs.supersessions import decide_from_file

            name = reviewer or account()
            if name is None:
                raise InputError("--reviewer: name who decides")
            with progress_bar() as progress:
                decided = decide_from_file(resources.store, accept, name, progress)
            if as_json:
                rows = [{"row": error.row, "reason": error.reason} for error in decided.errors]
                put_json({"accepted": decided.accepted, "rejected": decided.rejected, "errors": rows})
            else:
                say(f"{decided.sentence}; saved under {name}")
                say_next(first_search(resources.store, given_options(store=store)))
            for error in decided.errors:
                say(str(error), err=True)
            if decided.errors:
                raise typer.Exit(SOME_ROWS)
            return
        from cems_workbench.analysis.proposed_edges import MINIMUM, proposed_edges
        from cems_workbench.jobs.supersessions import write_proposals
        from cems_workbench.models.cross_encoder import ContradictionScorer

        with progress_bar() as progress:
            resources.refresh(progress)
            found = proposed_edges(
                resources,
                most=shown,
                minimum=MINIMUM if minimum is None else minimum,
                model=ContradictionScorer(model) if model else None,
                progress=progress,
            )
        to_search = None if as_json else first_search(resources.store, given_options(store=store))
    if out is not None:
        write_proposals(found, out)
    if as_json:
        return put_json(found.to_json())
    say(found.sentence)
    for note in found.notes:
        say(note)
    if out is not None:
        say(
            f"wrote {len(found.edges)} to {out}: fill in the column verdict (accept, reject or swap), then save the verdicts"
        )
    elif found.edges:
        print_table(
            ["newer", "older", "score", "why"], [[edge.newer, edge.older, edge.score, edge.why] for edge in found.edges]
        )
    if not found.edges:
        say_next(to_search)
    elif out is not None:
        say_next(words_of("supersessions", options=["--accept", str(out), *given_options(store=store)]))
    else:
        say_next(repeated("--out", unused("supersessions.csv")))
