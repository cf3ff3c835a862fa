"""`blame`: the memories that support what an agent said, and what became of them."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from cems_workbench.cli.next_command import say_next
from cems_workbench.cli.options import (
    AsOfOption,
    ConfigOption,
    JsonOption,
    OnlyProjectOption,
    PresetOption,
    ProjectOption,
    SetOption,
    StoreOption,
    chosen_config,
    filled_resources,
    given_options,
    print_table,
    progress_bar,
    request_and_config,
    warn_unknown_project,
)
from cems_workbench.cli.terminal import put_json, say
from cems_workbench.command_words import command_line, words_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cems_workbench.analysis.blame import Blame, BlamedMemory

MARGIN = 60
"""Characters of a text that are printed before the first and after the last word in common."""
MAX_TEXT = 320


def blame_command(
    text: Annotated[str, typer.Argument(help="What the agent said, one sentence or more; - reads it from stdin.")],
    query: Annotated[
        str | None,
        typer.Option("--query", metavar="QUERY", help="What it was asked: also say what became of each memory for it."),
    ] = None,
    preset: PresetOption = None,
    config: ConfigOption = None,
    changes: SetOption = None,
    project: ProjectOption = None,
    only_project: OnlyProjectOption = False,
    as_of: AsOfOption = None,
    returned: Annotated[
        bool,
        typer.Option(
            "--returned", help="Without --query: also name the queries of the store's sets that return each memory."
        ),
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find the memories that an answer rests on.

    Splits it into claims, says of each whether a memory supports it, which of these the query returns, which is stale or judged irrelevant,
    which memory says otherwise, and what to do next. Nothing is changed.
    """
    chosen = chosen_config(preset, config, changes)
    request = None
    if query is not None:
        request, chosen = request_and_config(query, project, only_project, as_of, None, chosen)
    from cems_workbench.jobs.blaming import blame_answer

    said = sys.stdin.read() if text == "-" else text
    with progress_bar(as_json) as progress, filled_resources(store) as resources:
        warn_unknown_project(resources.store, project, only_project)
        found = blame_answer(said, resources, chosen, request, returned=returned, progress=progress)
    options = given_options(preset, config, changes, store)
    if as_json:
        put_json(found.to_json(options))
    else:
        print_blame(found, options)
        first = [blamed.memories[0] for blamed in found.claims if blamed.memories]
        if not first:
            say_next(words_of("search", query or said.strip(), options=options))
        elif not any(one.next or one.fix for one in first):  # otherwise printed with its reason
            say_next(words_of("memory", first[0].id, options=options))


def print_blame(found: Blame, options: Sequence[str] = ()) -> None:
    """Print each claim with its memories, the words in common in [brackets]."""
    say(found.sentence)
    for blamed in found.claims:
        say()
        if len(found.claims) > 1:
            say(f"“{blamed.claim.text}”" if blamed.supporting else blamed.sentence)
        if not blamed.memories:
            continue
        rows = [[one.id, one.support.score, one.words or None, _marked(one)] for one in blamed.memories]
        print_table(["memory", "support", "what became of it", "text"], rows)
        for one in blamed.memories:
            for other in one.otherwise:
                place = f"; {other.standing.words}" if other.standing else ""
                say(
                    f"{other.memory.id} says otherwise than {one.id} ({other.words}{place}): {_start(other.memory.content)}"
                )
        first = blamed.memories[0]
        for name, following in (("next", first.next), ("fix", first.fix)):
            if following is not None:
                say(f"{name}: {following.words}:")
                say(f"    {command_line(shlex.split(following.command(options)))}")
    say()
    about = f"claims split by {found.split_by}"
    say(f"{about}; config {found.config_name}" if found.query is not None else about)
    for note in found.notes:
        say(f"note: {note}", err=True)


def _marked(one: BlamedMemory) -> str:
    """The stretch of the content with the words in common, each in brackets."""
    from cems_workbench.analysis.support import marked_pieces

    pieces = marked_pieces(one.support.memory.content, one.support.overlap.content, MAX_TEXT, MARGIN)
    return " ".join("".join(f"[{text}]" if common else text for text, common in pieces).split())


def _start(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_TEXT else f"{line[: MAX_TEXT - 1]}…"
