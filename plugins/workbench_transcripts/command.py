"""`transcript`, `coverage` and `ways`: what was said, what of it the memories have, and where each question loses its fact."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from cems_workbench.cli.main import Command
from cems_workbench.cli.options import (
    ConfigOption,
    IdsOption,
    JsonOption,
    PresetOption,
    SetOption,
    StoreOption,
    chosen_config,
    filled_resources,
    given_options,
    present,
    progress_bar,
    say_left_out,
    settings_for,
)
from cems_workbench.cli.terminal import request_options, say, say_next, words_of

if TYPE_CHECKING:
    from workbench_transcripts.ways import Ways


def transcript_command(
    path: Path, format: str = "auto", store: StoreOption = None, as_json: JsonOption = False
) -> None:
    """Import what was said: conversations, their questions, and the turns that answer them. The turns never rank among
    memories; the questions also become a query set of the store.

    Exits 2 if rows were left out."""
    from workbench_transcripts.transcript import import_transcript

    with progress_bar(as_json) as progress:
        found, left, asked = import_transcript(path, format, settings_for(store), progress)
    present(found, as_json)
    say_left_out([] if as_json else [*found.errors, *left])
    if not as_json and not found.problems:
        if not asked:
            say("it has no questions: import a query set whose queries have an `answer`, then")
        say_next(words_of("ways", path.stem if asked else "QUERY_SET", options=given_options(store=store)))
    if found.problems or found.errors or left:
        raise typer.Exit(2)


def ways_command(
    query_set: str,
    answers: Path | None = None,
    against: Path | None = None,
    preset_name: PresetOption = None,
    config: ConfigOption = None,
    changes: SetOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Where each question of a set loses its fact: never said, not written, written wrongly, gone, lost by the
    pipeline, or returned and not used. Needs a transcript, and questions with their right answers."""
    from workbench_transcripts.answers import read_answers
    from workbench_transcripts.transcript import opened_transcript
    from workbench_transcripts.ways import Between, ways_of

    chosen = chosen_config(preset_name, config, changes, store)
    with (
        filled_resources(store) as resources,
        opened_transcript(resources, settings_for(store)) as turns,
        progress_bar(as_json) as progress,
    ):
        queries = resources.store.query_sets.queries(query_set)
        said = read_answers(answers, queries) if answers else None
        found = ways_of(query_set, queries, resources, turns, chosen, said, progress)
        if against is None:
            given = given_options(preset_name, config, changes, store)
            return present(found, as_json, *_next_commands(found, given, turns.store.path), titled=True)
        with filled_resources(against) as others:
            b = ways_of(query_set, queries, others, turns, chosen, None, progress)
        names = resources.store.path.name, others.store.path.name
    present(Between(found, b, names), as_json, titled=True)


def _next_commands(found: Ways, of_store: Sequence[str], transcript: Path) -> list[list[str]]:
    """What shows the first question of the place where most are lost: the turn put in, why the memory is lost, how it came to be, or
    the turns nearest to an answer that none has."""
    from cems_workbench.pipeline.gather import Request
    from workbench_transcripts.ways import RECORDED, first_lost

    lost = Counter(way.place for way in found.ways if way.place != "returned")
    for place, _ in lost.most_common():
        way = next(way for way in found.ways if way.place == place)
        held = first_lost(way)
        memory = held.memory if held else None
        options = [*request_options(Request(way.query.query, way.query.project, way.query.as_of)), *of_store]
        if held is None:  # never said, or nobody can tell: what is nearest in the transcript
            return [words_of("search", f"{way.query.query} {way.query.answer}", options=given_options(store=transcript))]
        if place in ("not written", "written wrongly"):
            return [words_of("what-if", way.query.query, options=["--with", held.turn.content, *options])]
        if place in ("lost", "cannot tell") and memory and way.stage != RECORDED:
            return [words_of("why", way.query.query, memory.id, options=options)]
        if memory and place in ("gone", "contradicted", "not used"):
            return [words_of("search", way.query.query, options=options)]
    return []


def coverage_command(ids: IdsOption = False, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """What of the transcript the memories have: turns that nothing covers, memories that nothing supports, and what they
    say otherwise, by session."""
    from workbench_transcripts.transcript import opened_transcript
    from workbench_transcripts.whole import coverage_of

    with (
        filled_resources(store) as resources,
        opened_transcript(resources, settings_for(store)) as turns,
        progress_bar(as_json) as progress,
    ):
        found = coverage_of(resources, turns, progress)
    present(replace(found, words={}) if ids else found, as_json, titled=True)
    if not as_json:
        say_next(words_of("app", options=given_options(store=store)))


COVERAGE = Command("coverage", coverage_command, place=177)
TRANSCRIPT = Command("transcript", transcript_command, place=21)
WAYS = Command("ways", ways_command, place=178)
