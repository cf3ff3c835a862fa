"""`why` and `what-if`: what dropped a memory and what would return it; a query without a memory, or with one that does not exist yet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cems_workbench.cli.next_command import repeated, request_options, say_next
from cems_workbench.cli.options import (
    Asked,
    AskedInFull,
    ConfigChoice,
    CutoffOption,
    JsonOption,
    StoreOption,
    given_options,
    open_existing_store,
    opened_store,
    present,
    progress_bar,
    settings_for,
)
from cems_workbench.cli.terminal import put_json
from cems_workbench.command_words import words_of
from cems_workbench.errors import InputError

if TYPE_CHECKING:
    from cems_workbench.analysis.why import Why
    from cems_workbench.api.single_query import Explanation
    from cems_workbench.evaluation.evidence_file import Header
    from cems_workbench.pipeline import Evidence
    from cems_workbench.pipeline.gather import Request

QueryArgument = Annotated[str, typer.Argument(help="The query.")]
MissingArgument = Annotated[
    str, typer.Argument(metavar="MEMORY", help="The memory that is missing: its id, or a piece of its text.")
]
LabelledOption = Annotated[
    bool, typer.Option("--labelled", help="Sort the changes by their gain on the store's judged queries.")
]


def why_command(
    query: QueryArgument,
    memory_id: MissingArgument,
    choice: ConfigChoice,
    asked: AskedInFull,
    cutoff: CutoffOption = None,
    evidence: Annotated[
        Path | None,
        typer.Option(
            "--evidence",
            metavar="FILE|QUERY_SET",
            help="Use the query's evidence instead of the store: a bundle, an evidence file, or a set of external traces. Only changes "
            "that need no new gather are tried.",
        ),
    ] = None,
    labelled: LabelledOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Explain why a memory is missing, and what would return it.

    Names the stage that dropped the memory and the smallest config changes that return it. Nothing is changed.
    """
    if evidence is not None:
        if labelled:
            raise InputError("--labelled needs the store; leave --evidence out")
        found = _of_evidence(query, memory_id, evidence, choice, asked, cutoff, store, as_json)
    else:
        found = explained(query, memory_id, choice, asked, cutoff, labelled, store, as_json)
    answer = found.answer
    searched = answer.evidence
    if as_json:
        engine = searched.notes.get("engine")
        return put_json(found.to_json() | ({"engine": engine} if engine else {}))
    present(found)
    given = choice.words(store)
    if searched.external and evidence is not None:
        say_next(_after_traced(found.why.path.memory_id, evidence, store))
    elif answer.request is not None:
        say_next(*next_commands(found.why, answer.request, answer.off, given))
    else:
        say_next(
            _applied(found.why, "replay", str(evidence), given) or words_of("replay", str(evidence), options=given)
        )


def explained(
    query: str,
    memory_id: str,
    choice: ConfigChoice,
    asked: AskedInFull,
    cutoff: int | None,
    labelled: bool,
    store: Path | None,
    quiet: bool,
) -> Explanation:
    """Why a memory is not in the store's answer to a query. A judge is asked only where it decides."""
    chosen = asked.config(choice.read())
    from cems_workbench.analysis.why import stored_memory
    from cems_workbench.api.single_query import answered, explanation
    from cems_workbench.pipeline.evidence import Request

    request = Request(query, **asked.fields())
    with progress_bar(quiet) as progress, opened_store(store) as opened:
        stored_memory(memory_id, opened.resources)  # refused before the search
        asked.check_project(opened.resources.store)
        answer = answered(opened, request, chosen, asked.without or (), named="--without-variant", judge="decisive")
        return explanation(answer, memory_id, opened, cutoff, labelled, progress=progress)


def _of_evidence(
    query: str,
    memory_id: str,
    name: Path,
    choice: ConfigChoice,
    asked: AskedInFull,
    cutoff: int | None,
    store: Path | None,
    quiet: bool,
) -> Explanation:
    """The same of evidence that was gathered before: of a bundle, an evidence file or a set of external traces."""
    chosen = asked.config(choice.read())
    asked.fields()  # what a search refuses is refused here too
    from cems_workbench.analysis.why import require_stored
    from cems_workbench.api.single_query import Answer, explanation, known_variants
    from cems_workbench.jobs.traced_sets import require_no_config
    from cems_workbench.jobs.traces import traced_mistakes
    from cems_workbench.pipeline import replay

    bundle, own, path = _evidence_of(query, name, store)
    if own is not None and bundle.external:
        if choice.words():
            require_no_config(name, own, True, [chosen])
        chosen = own.config
    if memory_id not in bundle.memories and len(memory_id.split()) == 1 and not name.exists():
        with open_existing_store(store) as opened:  # a set of the store: no list of the trace had it
            require_stored(memory_id, opened)
    left_out = known_variants(asked.without or (), len(bundle.variants), "--without-variant")
    answer = Answer(replay(bundle, chosen, switched_off=left_out), off=left_out)
    of_set = traced_mistakes(path) if bundle.external and path is not None else ()
    with progress_bar(quiet) as progress:
        return explanation(answer, memory_id, k=cutoff, of_set=of_set, progress=progress)


def _after_traced(memory_id: str, evidence: Path, store: Path | None) -> list[str]:
    """What a memory does in the other traced queries; without judgments, which preset comes closest."""
    from cems_workbench.jobs.traces import is_judged

    options = given_options(None, None, None, store)
    if not evidence.exists():
        with open_existing_store(store) as opened:
            if not is_judged(opened, str(evidence)):
                return words_of("fidelity", options=[f"--recorded={evidence}", "--nearest", *options])
    return words_of("memory", memory_id, evidence, options=options)


def next_commands(found: Why, request: Request, without: Sequence[int], given: Sequence[str]) -> list[list[str] | None]:
    """The query under the fix, and gathering the judged queries if that would check it; without a fix, what is known of the memory."""
    from cems_workbench.analysis.why.first_fix import NOT_GATHERED

    fix, memory_id = found.fix, found.path.memory_id
    if found.vector is not None and (fix is None or fix.vector is not None):
        store = given[given.index("--store") :] if "--store" in given else ()
        return [words_of("reindex", memory_id, options=store)]
    if fix is None or fix.change is None:
        return [words_of("memory", memory_id, options=given)]
    gather = fix.unchecked == NOT_GATHERED and not fix.change.gathers
    asked = request_options(fix.change.request(request), without)
    return [
        _applied(found, "search", request.query, [*asked, *given]),
        words_of("gather", "all", options=["--judged", *given]) if gather else None,
    ]


def _applied(found: Why, name: str, argument: str, options: Sequence[str]) -> list[str] | None:
    """The command that shows the results under the fix; None without one."""
    from cems_workbench.config import assigned_value

    if found.fix is None or found.fix.change is None:
        return None
    values = found.fix.change.values
    changes = [f"--set={path}={assigned_value(value)}" for path, value in values.items()]
    return words_of(name, argument, options=[*options, *changes])


def _evidence_of(query: str, name: Path, store: Path | None) -> tuple[Evidence, Header | None, Path | None]:
    """The evidence of a query in a bundle, an evidence file or a set of external traces, and header and path of the file.

    The query may be named by its id.
    """
    from cems_workbench.evaluation.evidence_file import is_evidence_file
    from cems_workbench.evaluation.evidence_stream import EvidenceStream
    from cems_workbench.jobs.traced_sets import traced_header, traced_path
    from cems_workbench.pipeline import read_bundle

    folder = settings_for(store).store
    path = name if name.exists() or traced_header(folder, str(name)) is None else traced_path(folder, str(name))
    if not is_evidence_file(path):
        bundle = read_bundle(path)
        if query.strip() != bundle.query:
            raise InputError(f"{path} holds the evidence of another query: {bundle.query}")
        return bundle, None, None
    with EvidenceStream([path]) as stream:
        found = stream.of_queries(stream.qids_of(query.strip())).evidences
        if not found:
            raise InputError(
                f"{name} has no evidence of the query {query.strip()!r}, neither as its words nor as its id"
            )
        return next(iter(found.values())), stream.header, path


def what_if_command(
    query: QueryArgument,
    choice: ConfigChoice,
    asked: Asked,
    without: Annotated[
        str | None, typer.Option("--without", metavar="MEMORY_ID", help="Leave this memory out.")
    ] = None,
    text: Annotated[
        str | None, typer.Option("--with", metavar="TEXT", help="Add a memory with this text that does not exist yet.")
    ] = None,
    text_file: Annotated[
        Path | None, typer.Option("--with-file", metavar="FILE", help="Add a memory with the text of this file.")
    ] = None,
    title: Annotated[str | None, typer.Option("--title", metavar="TEXT", help="Title of the new memory.")] = None,
    of_project: Annotated[
        str | None, typer.Option("--memory-project", metavar="ORG/REPO", help="Project of the new memory.")
    ] = None,
    scope: Annotated[str, typer.Option("--scope", help="Scope of the new memory: personal or shared.")] = "personal",
    queries: Annotated[
        str | None,
        typer.Option("--queries", metavar="QUERY_SET", help="Also try it on the judged queries of a set, or of all."),
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what comes in a memory's place, or whether a new memory would be found. Nothing is stored."""
    if sum(given is not None for given in (without, text, text_file)) != 1:
        raise InputError("pass one of --without MEMORY_ID, --with TEXT and --with-file FILE")
    if scope not in ("personal", "shared"):
        raise InputError(f"--scope {scope[:40]}: expected personal or shared")
    chosen = choice.read()
    from cems_workbench.api.memories import what_if
    from cems_workbench.api.single_query import answered
    from cems_workbench.pipeline.evidence import Request
    from cems_workbench.platform.parsing import read_text

    request = Request(query, **asked.fields())
    with progress_bar(as_json) as progress, opened_store(store) as opened:
        asked.check_project(opened.resources.store)
        found = what_if(
            opened,
            answered(opened, request, chosen, judge="decisive"),
            without=without,
            text=text if text_file is None else read_text(text_file, "text of a memory"),
            title=title,
            project=of_project,
            scope=scope,
            queries=queries,
            progress=progress,
        )
        any_judged = not as_json and bool(opened.resources.store.judgments.read())
    present(found, as_json)
    if as_json:
        return
    if queries is None and any_judged:
        say_next(repeated("--queries", "all"))
    else:
        say_next(words_of("search", query, options=[*request_options(request), *choice.words(store)]))
