"""`transcript` and `ways`: what was said, and where each question loses its fact on the way to its answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cems_workbench.cli.main import Command
from cems_workbench.cli.options import (
    ConfigOption,
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
from cems_workbench.cli.terminal import say, say_next, words_of
from cems_workbench.errors import InputError

if TYPE_CHECKING:
    from cems_workbench.pipeline.resources import Resources

FOLDER = "transcript"
"""Of a store: the store of its turns."""


def transcript_store(store: Path) -> Path:
    """Where the transcript of a store is."""
    return store / FOLDER


@contextmanager
def transcript_of(store: Path | None) -> Iterator[Resources]:
    """The turns of a store's transcript. Raises InputError if it has none."""
    from cems_workbench.jobs.factory import open_filled

    settings = settings_for(store)
    folder = transcript_store(settings.store)
    if not folder.exists():
        raise InputError(f"{settings.store} has no transcript; `transcript FILE` imports one")
    with closing(open_filled(settings.model_copy(update={"store": folder}))) as resources:
        yield resources


def transcript_command(
    path: Path, format: str = "auto", store: StoreOption = None, as_json: JsonOption = False
) -> None:
    """Import what was said: conversations, their questions, and the turns that answer them. The turns never rank among
    memories; the questions also become a query set of the store.

    Exits 2 if rows were left out."""
    import typer

    from cems_workbench.jobs.factory import open_resources
    from cems_workbench.jobs.importing import import_inputs, import_options
    from cems_workbench.jobs.traces import inputs_of
    from cems_workbench.records import ParsedInput

    settings = settings_for(store)
    name = path.stem
    with progress_bar(as_json) as progress:
        inputs = inputs_of(path, format)
        folder = transcript_store(settings.store)
        options = import_options(name)
        with closing(open_resources(settings)) as resources:  # first, as a folder with a transcript alone is no store
            asked = [ParsedInput(one.source, one.format, queries=one.queries) for one in inputs if one.queries]
            left = [error for one in asked for error in resources.store.add(one, progress, options).errors]
        with closing(open_resources(settings.model_copy(update={"store": folder}))) as turns:
            found = import_inputs(path, inputs, turns, options, progress=progress)
    present(found, as_json)
    say_left_out([] if as_json else [*found.errors, *left])
    if not as_json and asked:
        say_next(words_of("ways", name, options=given_options(store=store)))
    elif not as_json and not found.problems:
        say("it has no questions: import a query set whose queries have an `answer`, then")
        say_next(words_of("ways", "QUERY_SET", options=given_options(store=store)))
    if found.problems or found.errors or left:
        raise typer.Exit(2)


def ways_command(
    query_set: str,
    answers: Path | None = None,
    preset_name: PresetOption = None,
    config: ConfigOption = None,
    changes: SetOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Where each question of a set loses its fact: never said, not written, written wrongly, gone, lost by the
    pipeline, or returned and not used. Needs a transcript, and questions with their right answers."""
    from workbench_transcripts.answers import read_answers
    from workbench_transcripts.ways import ways_of

    chosen = chosen_config(preset_name, config, changes, store)
    with filled_resources(store) as resources, transcript_of(store) as transcript, progress_bar(as_json) as progress:
        queries = resources.store.query_sets.queries(query_set)
        said, notes = read_answers(answers, queries) if answers else (None, [])
        found = ways_of(query_set, queries, resources, transcript, chosen, said, progress)
        found = replace(found, remarks=(*found.remarks, *notes))
    present(found, as_json, titled=True)


TRANSCRIPT = Command("transcript", transcript_command, place=21)
WAYS = Command("ways", ways_command, place=178)
