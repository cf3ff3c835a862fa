"""`memory`: one memory across all queries, and the hubs and orphans among the memories."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cems_workbench.builtin import preset_names
from cems_workbench.cli.evaluate import JudgeKindOption, check_judge_kind
from cems_workbench.cli.next_command import say_next
from cems_workbench.cli.options import (
    ConfigOption,
    CutoffOption,
    JsonOption,
    PresetOption,
    SetOption,
    StoreOption,
    chosen_config,
    given_options,
    print_table,
    progress_bar,
    settings_for,
)
from cems_workbench.cli.terminal import put_json, say, say_wrapped
from cems_workbench.command_words import command_line, words_of
from cems_workbench.errors import InputError

if TYPE_CHECKING:
    from cems_workbench.analysis.memory_use import MemoryUse
    from cems_workbench.config import PipelineConfig
    from cems_workbench.jobs.memory_use import UsesOf

MAX_ROWS = 40
"""Rows of a table that are printed; JSON has all."""


def memory_command(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MEMORY_ID [EVIDENCE...|QUERY_SET]",
            help="The memory, then evidence files or a query set (default: all judged queries of the store). "
            "With --hubs or --orphans no memory is named.",
        ),
    ] = None,
    hubs: Annotated[
        bool, typer.Option("--hubs", help="List the memories returned for many queries that judge them irrelevant.")
    ] = False,
    orphans: Annotated[bool, typer.Option("--orphans", help="List the memories that no query returns.")] = False,
    preset: PresetOption = None,
    config: ConfigOption = None,
    changes: SetOption = None,
    cutoff: CutoffOption = None,
    judge_kind: JudgeKindOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show where a memory is wanted, returned, returned although judged irrelevant, and lost, over all queries.

    Evidence files need neither store nor model. Each row ends with the command that explains it.
    """
    check_judge_kind(judge_kind)
    given = list(names or ())
    if not (hubs or orphans) and not given:
        raise InputError("name a memory: memory MEMORY_ID; or ask for --hubs or --orphans")
    memory_id, sources = (None, given) if hubs or orphans else (given[0], given[1:])
    chosen = chosen_config(preset, config, changes) if preset or config else None
    found, used = _uses(sources, chosen, changes, judge_kind, cutoff, memory_id, store, as_json)
    if chosen is None and sources and used.name in preset_names():
        preset = used.name  # of the evidence
    options = given_options(preset, config, changes, store)
    if found.external:  # `why` finds the recorded stages there, and no config changes them
        options = ["--evidence", sources[0], *given_options(None, None, None, store)]
    if memory_id is not None:
        if as_json:
            put_json(found.uses.to_json(memory_id, options))
        else:
            _print_memory(found, memory_id, options)
        return
    if as_json:
        k = found.uses.k
        listed = {"hubs": found.uses.hubs() if hubs else None, "orphans": found.orphans() if orphans else None}
        put_json(
            found.uses.over()
            | {name: [use.to_json(k) for use in uses] for name, uses in listed.items() if uses is not None}
        )
        return
    if hubs:
        _print_uses(found, found.uses.hubs(), found.uses.hubs_sentence)
    if orphans:
        _print_uses(found, found.orphans(), found.orphans_sentence)
    listed_uses = [*(found.uses.hubs() if hubs else ()), *(found.orphans() if orphans else ())]
    if listed_uses:
        say_next(words_of("memory", listed_uses[0].memory_id, *sources, options=options))
    else:
        say_next(words_of("memory", *sources, options=["--orphans" if hubs else "--hubs", *options]))


def _uses(
    sources: Sequence[str],
    chosen: PipelineConfig | None,
    changes: Sequence[str] | None,
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

    followed = () if memory_id is None else (memory_id,)
    paths = [Path(name) for name in sources]
    are_files = [is_evidence_file(path) for path in paths]
    if len(paths) > 1 and not all(are_files):
        raise InputError(f"{paths[are_files.index(False)]}: of several names each has to be an evidence file")
    if paths and all(are_files):
        with EvidenceStream(paths) as stream:
            gathered = stream.header.config
        if chosen is None:
            chosen = with_values(gathered, dict(parse_assignment(text) for text in changes or ()), "--set")
        with progress_bar(quiet) as progress:
            return uses_in_files(paths, chosen, kind=judges, k=k, followed=followed, progress=progress), chosen
    config = chosen or chosen_config(None, None, changes)
    with closing(open_filled(settings_for(store))) as resources, progress_bar(quiet) as progress:
        query_set = sources[0] if sources else ALL_QUERIES
        return (
            uses_in_store(config, resources, query_set, kind=judges, k=k, followed=followed, progress=progress),
            config,
        )


def _print_memory(found: UsesOf, memory_id: str, options: Sequence[str]) -> None:
    uses = found.uses
    say(uses.sentence(memory_id))
    say(f"config {uses.config_name}, {uses.judged:,} of {uses.queries:,} queries have a judged memory")
    rows = uses.rows.get(memory_id, ())
    for row in rows[:MAX_ROWS]:
        grade = "" if row.grade is None else f" (grade {row.grade})"
        say_wrapped(f"{row.status}{grade}: {row.words}")
        # On one line, so that it can be copied.
        say(f"  next: {command_line(shlex.split(row.next_command(options)))}")
    if not rows:
        say_next(words_of("memory", options=["--orphans", *options]))
    if len(rows) > MAX_ROWS:
        say(f"and {len(rows) - MAX_ROWS:,} more; --json lists them all")


def _print_uses(found: UsesOf, uses: Sequence[MemoryUse], sentence: str) -> None:
    say(sentence)
    if not uses:
        return
    rows: list[list[Any]] = [
        [
            use.memory_id,
            use.candidate,
            use.returned,
            use.irrelevant,
            use.wanted,
            use.found,
            ", ".join(f"{count:,} {branch.words(found.uses.k)}" for branch, count in use.lost.items()) or None,
        ]
        for use in uses[:MAX_ROWS]
    ]
    columns = ["memory", "candidate", "returned", "judged irrelevant", "wanted", "found", "lost"]
    print_table(columns, rows)
    if len(uses) > MAX_ROWS:
        say(f"and {len(uses) - MAX_ROWS:,} more; --json lists them all")
