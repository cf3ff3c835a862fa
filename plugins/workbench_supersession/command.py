"""`supersessions`: which memories seem to supersede earlier ones, proposed and decided."""

from __future__ import annotations

from pathlib import Path

import typer

from cems_workbench.cli.main import Command
from cems_workbench.cli.options import (
    IdsOption,
    JsonOption,
    StoreOption,
    account,
    filled_resources,
    given_options,
    present,
    print_parts,
    progress_bar,
)
from cems_workbench.cli.terminal import first_search, put_json, repeated, say, say_next, unused, words_of
from cems_workbench.errors import InputError, counted
from cems_workbench.platform.atomic_write import write_text

SOME_ROWS = 1


def supersessions_command(
    minimum: float | None = None,
    shown: int = 50,
    model: str | None = None,
    out: Path | None = None,
    accept: Path | None = None,
    script: Path | None = None,
    notes: Path | None = None,
    reviewer: str | None = None,
    ids: IdsOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Propose which memories supersede earlier ones, or save decisions on proposals. Nothing changes until a proposal
    is accepted, here or on the Label page. An accepted one becomes a relation `supersedes` under the reviewer's name.
    `--script` takes the accepted ones into the system that the memories are from."""
    with filled_resources(store) as resources:
        resources.store.supersessions.apply()
        if script is not None:
            from workbench_supersession.source_script import script_of

            text, count = script_of(resources.store, notes)
            write_text(script, text)
            said = f"wrote {script}: it retires {counted(count, 'memories')}, and changes nothing before --apply"
            put_json({"script": str(script), "retires": count}) if as_json else say(said)
            return
        if accept is not None:
            from workbench_supersession.verdicts import decide_from_file

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
                if decided.accepted and resources.store.sources.with_memories():
                    say_next(
                        words_of(
                            "supersessions", options=["--script", unused("retire.py"), *given_options(store=store)]
                        )
                    )
            for error in decided.errors:
                say(str(error), err=True)
            if decided.errors:
                raise typer.Exit(SOME_ROWS)
            return
        from cems_workbench.analysis.proposed_edges import MINIMUM
        from workbench_supersession.contradiction import ContradictionScorer
        from workbench_supersession.proposals import proposed_edges
        from workbench_supersession.verdicts import write_proposals

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
    if out is None or as_json:
        present(found if ids or as_json else found.in_words, as_json, titled=True)
    else:
        print_parts([found.title, *found.notes], (), ())
        say(
            f"wrote {len(found.edges)} to {out}: fill in the column verdict (accept, reject or swap), then save the verdicts"
        )
    if as_json:
        return
    if not found.edges:
        say_next(to_search)
    elif out is not None:
        say_next(words_of("supersessions", options=["--accept", str(out), *given_options(store=store)]))
    else:
        say_next(repeated("--out", unused("supersessions.csv")))


COMMAND = Command("supersessions", supersessions_command, place=235)
