"""`drift`: changed results of a config between two evidence files of the same queries, without store or model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cems_workbench.cli.evaluate import configs_for
from cems_workbench.cli.next_command import say_next, words_of
from cems_workbench.cli.options import (
    ConfigOption,
    JsonOption,
    SetOption,
    given_options,
    preset_help,
    print_table,
    read_evidence,
)
from cems_workbench.cli.terminal import put_json, say, say_wrapped

DRIFTED = 1


def drift_command(
    before: Annotated[Path, typer.Argument(help="An evidence file.")],
    after: Annotated[
        Path, typer.Argument(help="An evidence file of the same queries, gathered at another time or in another way.")
    ],
    config: ConfigOption = None,
    preset: Annotated[
        str | None,
        typer.Option("--preset", metavar="NAME", help=preset_help("the config the first file was gathered with")),
    ] = None,
    changes: SetOption = None,
    cutoff: Annotated[
        int, typer.Option("--cutoff", metavar="K", min=1, help="Number of top results per query to compare.")
    ] = 10,
    shown: Annotated[
        int, typer.Option("--show", metavar="N", min=0, help="Number of queries to list, largest change first.")
    ] = 10,
    least: Annotated[
        float | None,
        typer.Option("--assert-overlap", metavar="X", min=0, max=1, help="Exit with 1 if the mean overlap is below X."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show which queries' results changed, and how much.

    Measures change, not quality: no judgments are used.
    """
    from cems_workbench.analysis.drift import drift

    read = read_evidence(before)
    chosen, _ = configs_for(read.header, [config] if config else None, [preset] if preset else None, changes, None)[0]
    later = read_evidence(after)
    found = drift(read, later, chosen, cutoff)
    if as_json:
        put_json(found.to_json())
    else:
        say(f"{found.config}: {found.sentence}")
        for line in found.between:
            say(f"between them: {line}")
        rows = [
            [
                one.qid,
                one.overlap,
                one.score_change,
                len(one.came),
                len(one.new),
                "yes" if one.first_changed else "no",
                one.query,
            ]
            for one in found.queries[:shown]
            if one.overlap < 1
        ]
        if rows:
            print_table(["qid", "overlap", "score ±", "came", "new", "other first", "query"], rows)
        say("overlap: rank-biased, 1 the same; new: came and was no candidate before")
        for words, qids in (("before", found.only_before), ("after", found.only_after)):
            if qids:
                say_wrapped(f"only {words}, not compared: {', '.join(qids)}")
        options = given_options(preset, config, changes)
        if later.judgments:
            say_next(words_of("evaluate", after, options=["--losses", *options]))
        elif found.queries:
            say_next(words_of("search", found.queries[0].query, options=options))
    if least is not None and found.overlap < least:
        say(f"FAILED: mean overlap {found.overlap:.4f} is below {least}", err=True)
        raise typer.Exit(DRIFTED)
