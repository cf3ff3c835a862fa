"""`memory` and `blame`: one memory across all queries, hubs and orphans; and the memories that an answer of an agent rests on."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cems_workbench.builtin import preset_names
from cems_workbench.cli.measuring import JudgeKindOption, check_judge_kind
from cems_workbench.cli.next_command import say_next
from cems_workbench.cli.options import (
    Asked,
    ConfigChoice,
    CutoffOption,
    JsonOption,
    StoreOption,
    chosen_config,
    given_options,
    opened_store,
    present,
    print_rows,
    progress_bar,
    settings_for,
)
from cems_workbench.cli.terminal import put_json, say, say_wrapped
from cems_workbench.command_words import command_line, words_of
from cems_workbench.errors import InputError

if TYPE_CHECKING:
    from cems_workbench.analysis.blame import Next
    from cems_workbench.api.memories import MemoryReport
    from cems_workbench.config import PipelineConfig
    from cems_workbench.jobs.memory_use import UsesOf


def memory_command(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MEMORY_ID [EVIDENCE...|QUERY_SET]",
            help="The memory, then evidence files or a query set (default: all judged queries of the store). "
            "With --hubs or --orphans no memory is named.",
        ),
    ] = None,
    *,
    hubs: Annotated[
        bool, typer.Option("--hubs", help="List the memories returned for many queries that judge them irrelevant.")
    ] = False,
    orphans: Annotated[bool, typer.Option("--orphans", help="List the memories that no query returns.")] = False,
    choice: ConfigChoice,
    cutoff: CutoffOption = None,
    judge_kind: JudgeKindOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show where a memory is wanted, returned, returned although judged irrelevant, and lost, over all queries.

    Evidence files need neither store nor model. Each row ends with the command that explains it.
    """
    from cems_workbench.api.memories import MemoryReport

    check_judge_kind(judge_kind)
    given = list(names or ())
    if not (hubs or orphans) and not given:
        raise InputError("name a memory: memory MEMORY_ID; or ask for --hubs or --orphans")
    memory_id, sources = (None, given) if hubs or orphans else (given[0], given[1:])
    uses, used = _uses(sources, choice, judge_kind, cutoff, memory_id, store, as_json)
    options = choice.words(store)
    if uses.external:  # `why` finds the recorded stages there, and no config changes them
        options = ["--evidence", sources[0], *given_options(store=store)]
    elif not (choice.preset or choice.config) and sources and used.name in preset_names():
        options = ["--preset", used.name, *options]  # of the evidence
    found = MemoryReport(uses, memory_id, tuple(options))
    if memory_id is not None:
        return put_json(found.to_json()) if as_json else _print_memory(found)
    listed = (
        *([("hubs", found.lines[0], found.hubs)] if hubs else []),
        *([("orphans", found.lines[1], found.orphans)] if orphans else []),
    )
    if as_json:
        left_out = {"hubs", "orphans"} - {name for name, *_ in listed}
        return put_json({name: value for name, value in found.to_json().items() if name not in left_out})
    for _, sentence, table in listed:
        say(sentence)
        print_rows(table)
    first = next((table.rows[0][0] for *_, table in listed if table), None)
    if first is not None:
        say_next(words_of("memory", first, *sources, options=options))
    else:
        say_next(words_of("memory", *sources, options=["--orphans" if hubs else "--hubs", *options]))


def _uses(
    sources: Sequence[str],
    choice: ConfigChoice,
    judges: str | None,
    k: int | None,
    memory_id: str | None,
    store: Path | None,
    quiet: bool,
) -> tuple[UsesOf, PipelineConfig]:
    """The uses by the named files, query set or all judged queries, and the config."""
    from cems_workbench.config import parse_assignment, with_values
    from cems_workbench.evaluation.evidence_file import is_evidence_file
    from cems_workbench.evaluation.evidence_stream import EvidenceStream
    from cems_workbench.jobs.factory import open_filled
    from cems_workbench.jobs.memory_use import uses_in_files, uses_in_store
    from cems_workbench.jobs.query_set_evidence import ALL_QUERIES

    chosen = choice.read() if choice.preset or choice.config else None
    followed = () if memory_id is None else (memory_id,)
    paths = [Path(name) for name in sources]
    are_files = [is_evidence_file(path) for path in paths]
    if len(paths) > 1 and not all(are_files):
        raise InputError(f"{paths[are_files.index(False)]}: of several names each has to be an evidence file")
    if paths and all(are_files):
        with EvidenceStream(paths) as stream:
            gathered = stream.header.config
        if chosen is None:
            chosen = with_values(gathered, dict(parse_assignment(text) for text in choice.changes or ()), "--set")
        with progress_bar(quiet) as progress:
            return uses_in_files(paths, chosen, kind=judges, k=k, followed=followed, progress=progress), chosen
    config = chosen or chosen_config(None, None, choice.changes)
    with closing(open_filled(settings_for(store))) as resources, progress_bar(quiet) as progress:
        query_set = sources[0] if sources else ALL_QUERIES
        return (
            uses_in_store(config, resources, query_set, kind=judges, k=k, followed=followed, progress=progress),
            config,
        )


def _print_memory(found: MemoryReport) -> None:
    """Print a line for each query, and on one line, so that it can be copied, the command that explains it."""
    for line in found.lines:
        say(line)
    (table,) = found.tables
    for _, status, grade, _, words, command in table.rows[: table.shown]:
        say_wrapped(f"{status}{'' if grade is None else f' (grade {grade})'}: {words}")
        say(f"  next: {command_line(shlex.split(command))}")
    if not table:
        say_next(words_of("memory", options=["--orphans", *found.options]))
    if more := len(table) - len(table.rows[: table.shown]):
        say(f"and {more:,} more; --json lists them all")


def blame_command(
    text: Annotated[str, typer.Argument(help="What the agent said, one sentence or more; - reads it from stdin.")],
    query: Annotated[
        str | None,
        typer.Option("--query", metavar="QUERY", help="What it was asked: also say what became of each memory for it."),
    ] = None,
    *,
    choice: ConfigChoice,
    asked: Asked,
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
    chosen, request = choice.read(), None
    if query is not None:
        from cems_workbench.pipeline.evidence import Request

        request = Request(query, **asked.fields())
    from cems_workbench.api.blame import BlameReport
    from cems_workbench.jobs.memory_use import blame_answer

    said = sys.stdin.read() if text == "-" else text
    with progress_bar(as_json) as progress, opened_store(store) as opened:
        asked.check_project(opened.resources.store)
        found = blame_answer(said, opened.resources, chosen, request, returned=returned, progress=progress)
    options = choice.words(store)
    present(BlameReport(found, options=tuple(options)), as_json)
    if as_json:
        return
    first = [blamed.memories[0] for blamed in found.claims if blamed.memories]
    for one in first:
        _say_following("next", one.next, options)
        _say_following("fix", one.fix, options)
    if not first:
        say_next(words_of("search", query or said.strip(), options=options))
    elif not any(one.next or one.fix for one in first):  # otherwise printed with its reason
        say_next(words_of("memory", first[0].id, options=options))


def _say_following(name: str, following: Next | None, options: Sequence[str]) -> None:
    """Say what to do now, and on one line, so that it can be copied, the command."""
    if following is not None:
        say(f"{name}: {following.words}:")
        say(f"    {command_line(shlex.split(following.command(options)))}")
