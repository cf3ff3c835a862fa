"""`import`, `imports` and `reindex`: data into the store, what was imported, and new vectors; bad rows are listed, good rows kept."""

from __future__ import annotations

import dataclasses
import filecmp
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from cems_workbench.builtin import SAMPLE_DATA
from cems_workbench.cli.options import (
    JsonOption,
    StoreOption,
    filled_resources,
    given_options,
    open_existing_store,
    print_rows,
    print_table,
    progress_bar,
    say_left_out,
    settings_for,
)
from cems_workbench.cli.terminal import first_search, put_json, repeated, say, say_next, words_of
from cems_workbench.command_words import why_command
from cems_workbench.errors import InputError
from cems_workbench.records import RowError, TextRule
from cems_workbench.results import Table

if TYPE_CHECKING:
    from cems_workbench.pipeline.resources import Resources
    from cems_workbench.progress import Progress
    from cems_workbench.store import ImportReport, RefreshReport, Store
    from cems_workbench.store.imports import ImportEvent
    from cems_workbench.store.precomputed_embeddings import PrecomputedVectors


MAX_NAMES = 5
SAMPLE_FILES = ("memories.jsonl", "relations.jsonl", "queries.jsonl", "judgments.qrels")


def import_command(
    path: Path | None = None,
    format: str = "auto",
    query_set: str | None = None,
    scale: str | None = None,
    replace: bool = False,
    relevant_from: int | None = None,
    match: str = "relaxed",
    grade: list[str] | None = None,
    queue: str | None = None,
    chunks: str | None = None,
    language: str | None = None,
    text: str | None = None,
    text_fields: list[str] | None = None,
    text_tokens: int | None = None,
    vectors: Path | None = None,
    undo: bool = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Import memories, relations, queries, judgments, logs, or traces of another pipeline.

    Exits 2 if rows were left out, if nothing was imported, or if embedding failed.
    """
    if undo:
        _undo(path, store, as_json)
        return
    if path is None:
        raise InputError("name a file or a directory to import; sample_data is the bundled sample")
    from cems_workbench.jobs.factory import open_resources
    from cems_workbench.jobs.importing import import_options, took_nothing
    from cems_workbench.jobs.traces import add_input, inputs_of
    from cems_workbench.store.precomputed_embeddings import read_vectors, require_file

    if vectors is not None:
        require_file(vectors)
    if path.parts[:1] == (SAMPLE_DATA.name,) and not path.exists():
        path = SAMPLE_DATA.joinpath(*path.parts[1:])
    if query_set is None and os.path.isdir(path):
        query_set = path.resolve().name or None  # a folder's files make one set together
    options = import_options(query_set, scale, match, grade or (), relevant_from, replace=replace, queue=queue)
    with progress_bar(as_json) as progress:
        inputs = inputs_of(path, format)
        ours = _is_sample(path)
        skipped = () if ours else inputs[0].skipped
        resources = open_resources(settings_for(store))
        try:
            if chunks is not None and resources.store.chunks.choose(chunks) and resources.store.memories.count():
                said = f"memories are cut by the rule {chunks} from now on; what that changes is embedded again"
                say(f"note: {said}", err=as_json)
            rule = _text_rule(resources.store.texts.rule, text, text_fields, text_tokens)
            if resources.store.texts.choose(rule) and resources.store.memories.count():
                say(f"note: searched is {rule} from now on; what that changes is embedded again", err=as_json)
            if language is not None and resources.store.language.choose(language) and resources.store.memories.count():
                say(f"note: lexical search works in {language} from now on; its index is rebuilt", err=as_json)
            reports, brought = [], list[str]()
            for parsed in inputs:
                reports.append(add_input(parsed, resources.store, progress, options))
                brought += [memory.id for memory in parsed.memories] if vectors is not None else []
            given, wrong = None, list[RowError]()

            def read_given() -> PrecomputedVectors | None:
                nonlocal given, wrong
                if vectors is not None:
                    given, wrong = read_vectors(vectors, brought, resources.embedder.dimension)
                    given = given.restrict_to(brought)
                return given

            refreshed, problem = _refresh(resources, progress, read_given)
            told = resources.store.notices
            total = resources.store.memories.count()
            cut = resources.store.chunks.statistics()
            spoken, searched = resources.store.language.choice(), resources.store.texts.rule
            following = [] if as_json else _next_commands(resources.store, reports, path, given_options(store=store))
        finally:
            resources.close()
    left_out = [*(error for report in reports for error in report.errors), *wrong]
    nothing = took_nothing(reports)
    if as_json:
        put_json(
            {
                "inputs": [_plain(report, () if i else skipped) for i, report in enumerate(reports)],
                "errors": [dataclasses.asdict(error) for error in left_out],
                "memories_in_store": total,
                "chunks": dataclasses.asdict(cut),
                "text": dataclasses.asdict(searched),
                "language": dataclasses.asdict(spoken),
                "embedded": refreshed.embedded if refreshed else 0,
                "vectors_taken": given.used if given else 0,
                "problem": problem or nothing or None,
            }
        )
    else:
        rows = tuple(
            (input_name(report.source, path), kind, counts.added, counts.updated, counts.unchanged)
            for report in reports
            for kind, counts in report.counts.items()
            if counts.total
        )
        print_rows(Table(("input", "rows", "added", "updated", "unchanged"), rows))
        for one in {one.name: one for report in reports for one in report.query_sets}.values():
            say(f"query set {one.name}, version {one.version}: {one.size} queries, grades {one.scale}")
        if not ours:
            for form in dict.fromkeys(report.format for report in reports):
                names = [Path(report.source).name for report in reports if report.format == form]
                more = f" and {len(names) - MAX_NAMES} more" if names[MAX_NAMES:] else ""
                say(f"read as {form}: {', '.join(names[:MAX_NAMES])}{more}")
        notes = [f"not imported from {path.name or path}: {line}" for line in skipped]
        notes += [f"{Path(report.source).name}: {note}" for report in reports for note in report.notes]
        for note in dict.fromkeys(
            [*notes, *(line for line in refreshed.notes if line not in told)] if refreshed else notes
        ):
            say(f"note: {note}")
        say_left_out(left_out)
        if not ours:  # of our own sample these are no news
            if cut.chunks:
                say(f"{cut}")
            say(f"language: {spoken}")
        # Without any that are embedded they were known, came with vectors, or an app that has the store open was quicker.
        embedded = f"{refreshed.embedded} embedded now" if refreshed and refreshed.embedded else "nothing left to embed"
        texts = "" if refreshed is None else ", ready to search" if ours else f", {embedded}"
        taken = f", {given.used} of {len(given)} given vectors taken" if given is not None else ""
        say(f"{total} memories in the store{texts}{taken}")
    for line in (problem, nothing):
        if line:
            say(f"error: {line}", err=True)
    if not as_json:
        say_next(*([words_of("doctor", options=given_options(store=store))] if problem else following))
    if problem or nothing or any(not error.taken for error in left_out):
        raise typer.Exit(2)


def _refresh(
    resources: Resources, progress: Progress, given: Callable[[], PrecomputedVectors | None] = lambda: None
) -> tuple[RefreshReport | None, str]:
    """Refresh the indexes; the report, and a line if they could not be: what is in the store stays there all the same."""
    from cems_workbench.errors import EmbedderMismatchError, ModelError

    try:
        refreshed = resources.refresh(progress, given())
    except EmbedderMismatchError as refusal:
        return None, f"not embedded: {refusal}"
    except (InputError, ModelError) as refusal:
        return None, f"not embedded yet, the next search continues: {refusal}"
    return refreshed, ""


def _undo(number: Path | None, store: Path | None, as_json: bool) -> None:
    from cems_workbench.jobs.factory import open_resources
    from cems_workbench.jobs.importing import undo_import

    said = "" if number is None else str(number)
    if said and not said.isdecimal():
        raise InputError(f"--undo: {said!r} is not the number of an import; the command imports lists them")
    with progress_bar(as_json) as progress:
        resources = open_resources(settings_for(store), create=False)
        try:
            done = undo_import(resources.store, int(said) if said else None, progress)
            _, problem = _refresh(resources, progress)
            total = resources.store.memories.count()
        finally:
            resources.close()
    if as_json:
        undone = {"removed": dict(done.removed), "restored": dict(done.restored), "stay": list(done.stay)}
        put_json({**plain_event(done.event), **undone, "memories_in_store": total, "problem": problem or None})
    else:
        say(f"import {done.event.number} ({done.event.name}) is undone: {done.done_words}")
        for line in done.stay:
            say(f"note: {line}")
        say(f"{total} memories in the store")
        if problem:
            say(f"error: {problem}", err=True)
        say_next(words_of("imports", options=given_options(store=store)))
    if problem:
        raise typer.Exit(2)


def imports_command(store: StoreOption = None, as_json: JsonOption = False) -> None:
    """List the imports on record, newest first, with what each brought; import --undo takes one back."""
    with open_existing_store(store) as opened:
        events = opened.imports.read()
    if as_json:
        put_json([plain_event(event) for event in events])
        return
    if not events:
        say("no import is on record")
        return
    rows = [
        [
            event.number,
            f"{event.imported_at:%Y-%m-%d %H:%M}",
            _shortened(event.name),
            event.words + (f"; undone {event.undone_at:%Y-%m-%d %H:%M}" if event.undone_at else ""),
        ]
        for event in events
    ]
    print_table(["import", "when, UTC", "input", "what it did"], rows)
    last = next((event for event in events if event.undone_at is None), None)
    if last is not None:
        say_next(words_of("import", str(last.number), options=["--undo", *given_options(store=store)]))


def plain_event(event: ImportEvent) -> dict[str, Any]:
    """An import on record as JSON values."""
    return {
        "import": event.number,
        "imported_at": event.imported_at.isoformat(),
        "undone_at": event.undone_at.isoformat() if event.undone_at else None,
        "inputs": [
            {
                "name": each.name,
                "format": each.format,
                "counts": each.counts and {kind: dataclasses.asdict(one) for kind, one in each.counts.items()},
                "options": dict(each.options),
            }
            for each in event.inputs
        ],
    }


NAME_CHARS = 28
"""Of an input's name in a table: a longer one loses its middle."""


def input_name(source: str, given: Path) -> str:
    """What an input is called in a table: its path below the directory that was given, else its name, shortened in the middle."""
    path = Path(source)
    below = path.relative_to(given) if path != given and path.is_relative_to(given) else Path(path.name)
    return _shortened(str(below))


def _shortened(name: str) -> str:
    return name if len(name) <= NAME_CHARS else f"{name[: NAME_CHARS // 2 - 1]}…{name[-NAME_CHARS // 2 :]}"


def _plain(report: Any, skipped: tuple[str, ...]) -> dict[str, Any]:
    sets = [{name: getattr(one, name) for name in ("name", "version", "size", "digest")} for one in report.query_sets]
    counts = {kind: dataclasses.asdict(rows) for kind, rows in report.counts.items()}
    notes = [*skipped, *report.notes]
    return {"source": report.source, "format": report.format, **counts, "notes": notes, "query_sets": sets}


def _next_commands(
    store: Store, reports: Sequence[ImportReport], path: Path, options: list[str]
) -> list[list[str] | None]:
    """What to type after an import: the same with --replace where rows of others stayed; a measurement of what was judged, else a search;
    of external traces where they lose memories or why one is lost, and the nearest preset."""
    from cems_workbench.jobs.importing import took_nothing
    from cems_workbench.jobs.traces import is_judged, is_traced

    if any(report.clashes for report in reports):
        return [repeated("--replace")]
    if took_nothing(reports):
        return []
    # Without a new version of the set it is named after the file.
    query_set = next((one.name for report in reports for one in report.query_sets), None)
    query_set = query_set or (path.stem if is_traced(store, path.stem) else None)
    if query_set is None or not is_traced(store, query_set):
        asked = query_set is not None and not any(report.memories.added for report in reports)
        if asked and query_set is not None and store.memories.count() and is_judged(store, query_set):
            return [words_of("evaluate", query_set, options=options)]
        return [first_search(store, options, query_set)]
    return [
        words_of("evaluate", query_set, options=["--losses", *options])
        if is_judged(store, query_set)
        else _why_of_traced(store, query_set, options),
        words_of("fidelity", path, options=["--nearest", *options]),
    ]


LOOKED_AT = 20
"""Traced queries in which a lost memory is looked for."""


def _why_of_traced(store: Store, query_set: str, options: list[str]) -> list[str] | None:
    """`why` for a candidate that the first of these traced queries with one did not return."""
    from cems_workbench.jobs.traces import traced_query
    from cems_workbench.pipeline import replay

    for query in store.query_sets.queries(query_set)[:LOOKED_AT]:
        found = traced_query(store, query_set, query.qid)
        if found is not None:
            trace = replay(*found)
            returned = {row.memory_id for row in trace.results}
            lost = next((memory_id for memory_id in found[0].candidate_ids if memory_id not in returned), None)
            if lost is not None:
                asked = [f"--evidence={query_set}", *options]
                return why_command(found[0].query, lost, options=asked).words()
    return None


def _is_sample(path: Path) -> bool:
    """Whether a folder is the bundled sample, or a copy of it, as in a checkout next to an installed package."""
    if not path.is_dir():
        return False
    same, _, _ = filecmp.cmpfiles(path, SAMPLE_DATA, SAMPLE_FILES, shallow=False)
    return len(same) == len(SAMPLE_FILES)


def _text_rule(present: TextRule, text: str | None, fields: list[str] | None, first_tokens: int | None) -> TextRule:
    """The store's text rule with the options that were given. Raises InputError."""
    from cems_workbench.store.text_rule import known_text_rule

    if text not in (None, "title_content", "content"):
        raise InputError(f"--text: {text!r} is not one of title_content, content")
    return known_text_rule(
        present.title if text is None else text == "title_content",
        present.fields if fields is None else [name for name in fields if name != "none"],
        present.first_tokens if first_tokens is None else first_tokens or None,
    )


def reindex_command(
    memory_ids: list[str] | None = None,
    store: StoreOption = None,
    mismatched: bool = False,
    graph: bool = False,
    as_json: JsonOption = False,
) -> None:
    """Re-embed with the configured model.

    Vectors of the previous model are kept so that you can switch back. Vectors of this model with another dimension are deleted.
    """
    from cems_workbench.analysis.why import require_stored
    from cems_workbench.jobs.embedder_match import mismatched_memories

    with progress_bar(as_json) as progress, filled_resources(store) as resources:
        for memory_id in memory_ids or ():
            require_stored(memory_id, resources.store)
        named = mismatched_memories(resources.store, resources.embedder, progress) if mismatched else []
        resources.store.sources.re_embed([*(memory_ids or ()), *named])
        report = resources.embed_anew(progress)
        if graph:
            resources.store.indexes.graph(resources.embedder, progress)
        told = resources.store.notices
        to_search = first_search(resources.store, given_options(store=store))
        embedder, total = resources.embedder.model_id, resources.store.memories.count()
    embedded = report.embedded if report else 0
    if as_json:
        put_json({"embedder": embedder, "memories_in_store": total, "embedded": embedded})
        return
    for note in report.notes if report else ():
        if note not in told:
            say(f"note: {note}")
    say(f"{total} memories in the store, {embedded} texts embedded now by {embedder}")
    say_next(to_search)
