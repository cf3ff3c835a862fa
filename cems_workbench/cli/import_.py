"""`import`: memories, relations, queries and judgments into the store; bad rows are listed, good rows kept."""

from __future__ import annotations

import dataclasses
import filecmp
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cems_workbench.builtin import SAMPLE_DATA
from cems_workbench.cli.next_command import first_search, say_next, words_of
from cems_workbench.cli.options import (
    JsonOption,
    StoreOption,
    given_options,
    print_table,
    progress_bar,
    settings_for,
)
from cems_workbench.cli.terminal import put_json, say
from cems_workbench.command_words import why_command
from cems_workbench.errors import InputError
from cems_workbench.records import (
    CHUNK_RULES,
    DEFAULT_CHUNK_RULE,
    LANGUAGES,
    TEXT_FIELDS,
    RowError,
    TextRule,
)

if TYPE_CHECKING:
    from cems_workbench.store import Store

MAX_PROBLEMS = 50
SAMPLE_FILES = ("memories.jsonl", "relations.jsonl", "queries.jsonl", "judgments.qrels")
KINDS = ("memories", "chunks", "relations", "queries", "answers", "judgments")


def import_command(
    path: Annotated[
        Path,
        typer.Argument(help="A file, or a directory of files in known formats; sample_data is the bundled sample."),
    ],
    format: Annotated[str, typer.Option("--format", help="Input format; auto detects it.")] = "auto",
    query_set: Annotated[
        str | None,
        typer.Option(
            "--query-set", metavar="NAME", help="Query set that receives the queries (default: named after the input)."
        ),
    ] = None,
    scale: Annotated[
        str | None,
        typer.Option(
            "--scale",
            metavar="LOW..HIGH",
            help="Grade scale of that query set, or of the set of the judged queries, such as 0..4 or -2..3; its judgments must fit.",
        ),
    ] = None,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace",
            help="Also change memories and queries that another file, a live source or an edit brought; otherwise they stay "
            "and are listed. A file that was edited changes its own rows either way.",
        ),
    ] = False,
    relevant_from: Annotated[
        int | None,
        typer.Option(
            "--relevant-from", metavar="GRADE", help="Lowest grade of that set that counts as relevant (a new set: 1)."
        ),
    ] = None,
    match: Annotated[
        str,
        typer.Option(
            "--match",
            metavar="relaxed|exact",
            help="Whether a query named by its words is taken for one of the store that differs only by case, blanks or a final mark.",
        ),
    ] = "relaxed",
    grade: Annotated[
        list[str] | None,
        typer.Option(
            "--grade",
            metavar="VALUE=GRADE",
            help="Grade of a rating that is a fraction or a word, or of a range of them: 0.5..1=1, Relevant=2; repeatable.",
        ),
    ] = None,
    chunks: Annotated[
        str | None,
        typer.Option(
            "--chunks",
            metavar="|".join(CHUNK_RULES),
            help="Chunking strategy: whole (none), embedder (its token limit), cems, qmd. "
            f"Saved in the store; a new store starts with {DEFAULT_CHUNK_RULE}.",
        ),
    ] = None,
    language: Annotated[
        str | None,
        typer.Option(
            "--language",
            metavar="auto|english|german|…",
            help=f"Language of the stemmer and stop words: {', '.join(LANGUAGES)}. cjk is Chinese, Japanese and Korean; none "
            "neither stems nor drops words. Saved in the store; auto, the default of a new store, detects it from the first texts.",
        ),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(
            "--text",
            metavar="title_content|content",
            help="Which text of a memory is embedded and searched: with its title first (a new store's default) or the content "
            "alone. Saved in the store.",
        ),
    ] = None,
    text_fields: Annotated[
        list[str] | None,
        typer.Option(
            "--text-field",
            metavar="NAME",
            help=f"A line “NAME: value” before that text: {', '.join(TEXT_FIELDS)}; repeatable, none removes them. Saved in the store.",
        ),
    ] = None,
    text_tokens: Annotated[
        int | None,
        typer.Option(
            "--text-tokens",
            metavar="N",
            min=0,
            help="Only the first N tokens of that text; 0 is all. Saved in the store.",
        ),
    ] = None,
    vectors: Annotated[
        Path | None,
        typer.Option(
            "--vectors",
            metavar="FILE.parquet|FILE.npy",
            help="Precomputed vectors of the memories, by the store's embedder: Parquet with columns id and vector, or one row per "
            "memory. Memories that are split into chunks are embedded regardless.",
        ),
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Import memories, relations, queries, judgments, logs, or traces of another pipeline.

    Exits 2 if rows were left out or if embedding failed.
    """
    from cems_workbench.errors import EmbedderMismatchError, ModelError
    from cems_workbench.jobs.factory import open_resources
    from cems_workbench.jobs.traces import add_input, inputs_of
    from cems_workbench.store.importing import ImportOptions
    from cems_workbench.store.precomputed_embeddings import read_vectors, require_file
    from cems_workbench.store.query_matching import parse_match
    from cems_workbench.store.scales import parse_scale
    from cems_workbench.store.stated_grades import parse_grades

    if vectors is not None:
        require_file(vectors)
    if path.parts[:1] == (SAMPLE_DATA.name,) and not path.exists():
        path = SAMPLE_DATA.joinpath(*path.parts[1:])
    if query_set is not None:
        _check_set_name(query_set)
    elif os.path.isdir(path):
        query_set = path.resolve().name or None  # a folder's files make one set together
    options = ImportOptions(
        query_set,
        None if scale is None else parse_scale(scale),
        datetime.now(UTC),
        match=parse_match(match),
        grades=parse_grades(grade or ()) or None,
        relevant_from=relevant_from,
        replace=replace,
    )
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
            refreshed, problem, given, wrong = None, "", None, list[RowError]()
            try:
                if vectors is not None:
                    given, wrong = read_vectors(vectors, brought, resources.embedder.dimension)
                    given = given.restrict_to(brought)
                refreshed = resources.refresh(progress, given)
                resources.store.indexes.flush(progress)
            except EmbedderMismatchError as refusal:
                problem = f"not embedded: {refusal}"
            except InputError as refusal:
                problem = f"not embedded yet, the next search continues: {refusal}"
            except ModelError as failure:  # what was imported is in the store all the same
                problem = f"not embedded yet, the next search continues: {failure}"
            told = resources.store.notices
            total = resources.store.memories.count()
            cut = resources.store.chunks.statistics()
            spoken, searched = resources.store.language.choice(), resources.store.texts.rule
            brought_set = next((one.name for report in reports for one in report.query_sets), None)
            following = (
                [] if as_json else _next_commands(resources.store, brought_set, path, given_options(store=store))
            )
        finally:
            resources.close()
    left_out = [*(error for report in reports for error in report.errors), *wrong]
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
                "problem": problem or None,
            }
        )
    else:
        rows = [
            [report.source, kind, counts.added, counts.updated, counts.unchanged]
            for report in reports
            for kind in KINDS
            if (counts := getattr(report, kind)).total
        ]
        print_table(["input", "rows", "added", "updated", "unchanged"], rows)
        for one in {one.name: one for report in reports for one in report.query_sets}.values():
            say(f"query set {one.name}, version {one.version}: {one.size} queries, grades {one.scale}")
        for line in skipped:
            say(f"note: not imported from {path.name or path}: {line}")
        for note in dict.fromkeys(f"{Path(report.source).name}: {note}" for report in reports for note in report.notes):
            say(f"note: {note}")
        for note in refreshed.notes if refreshed else ():
            if note not in told:
                say(f"note: {note}")
        for error in left_out[:MAX_PROBLEMS]:
            say(f"left out: {error}", err=True)
        if len(left_out) > MAX_PROBLEMS:
            say(f"left out: {len(left_out) - MAX_PROBLEMS} more rows; --json lists them all", err=True)
        if not ours:  # of our own sample these are no news
            if cut.chunks:
                say(f"{cut}")
            say(f"language: {spoken}")
        if refreshed is None:
            texts = ""
        elif ours:
            texts = ", ready to search"
        elif refreshed.embedded:
            texts = f", {refreshed.embedded} {'texts ' if cut.chunks else ''}embedded now"
        else:  # they were known, came with vectors, or an app that has the store open was quicker
            texts = ", nothing left to embed"
        taken = f", {given.used} of {len(given)} given vectors taken" if given is not None else ""
        say(f"{total} memories in the store{texts}{taken}")
    if problem:
        say(f"error: {problem}", err=True)
    if not as_json:
        say_next(*([words_of("doctor", options=given_options(store=store))] if problem else following))
    if left_out or problem:
        raise typer.Exit(2)


def _plain(report: Any, skipped: tuple[str, ...]) -> dict[str, Any]:
    counts = {kind: dataclasses.asdict(getattr(report, kind)) for kind in KINDS}
    sets = [
        {"name": one.name, "version": one.version, "size": one.size, "digest": one.digest} for one in report.query_sets
    ]
    return {
        "source": report.source,
        "format": report.format,
        **counts,
        "notes": [*skipped, *report.notes],
        "query_sets": sets,
    }


def _next_commands(store: Store, query_set: str | None, path: Path, options: list[str]) -> list[list[str] | None]:
    """A search to begin with; of external traces where they lose memories or why one is lost, and the nearest preset."""
    from cems_workbench.jobs.traces import is_judged, is_traced

    # Without a new version of the set it is named after the file.
    query_set = query_set or (path.stem if is_traced(store, path.stem) else None)
    if query_set is None or not is_traced(store, query_set):
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


def _check_set_name(name: str) -> None:
    from cems_workbench.store.rows import check_name

    check_name(name)


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
