"""`search`, `replay`, `why`, `what-if`, `memory` and `blame`: one query, one memory, and the memories that an agent's answer rests on."""

from __future__ import annotations

import itertools
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from cems_workbench.builtin import preset_names
from cems_workbench.cli import options as cli
from cems_workbench.cli.measuring import JudgeKindOption, default_config, evidence_files
from cems_workbench.cli.terminal import put_json, repeated, request_options, say, say_next, say_wrapped
from cems_workbench.command_words import asked_options, command_line, words_of
from cems_workbench.command_words import why_command as why_words
from cems_workbench.errors import InputError
from cems_workbench.records import RowError

if TYPE_CHECKING:
    from cems_workbench.analysis.blame import Next
    from cems_workbench.analysis.known_mistakes import NextStep
    from cems_workbench.analysis.of_query import Operation
    from cems_workbench.analysis.why.report import Why
    from cems_workbench.api.single_query import Answer, Explanation
    from cems_workbench.evaluation.evidence_file import Header
    from cems_workbench.jobs.memory_use import MemoryReport
    from cems_workbench.pipeline import Evidence, Trace
    from cems_workbench.pipeline.gather import Request


def search_command(
    query: str | None = None,
    *,
    choice: cli.ConfigChoice,
    asked: cli.AskedInFull,
    bundle: Path | None = None,
    redact: bool = False,
    explain: bool = False,
    stages: bool = False,
    explained: str | None = None,
    ids: cli.IdsOption = False,
    store: cli.StoreOption = None,
    as_json: cli.JsonOption = False,
) -> None:
    """Run the pipeline for one query, or what a live system explained of one.

    Shows the ranking first, and what each stage did with --stages.
    """
    if redact and bundle is None:
        raise InputError("--redact needs a --bundle to write")
    if explained is not None:
        asked.fields()  # what a search refuses is refused here too
        return _explained_search(explained, query or "", choice, bundle, redact, explain, stages, ids, as_json)
    if query is None:
        more = command_line(words_of("search", options=["--help"]))
        raise InputError(f"name a query, or with --explained what a live system explained. See {more}")
    with asked.answer(query, choice.read(store), store, as_json, "results") as (opened, answer, _):
        from cems_workbench.analysis.known_mistakes import next_step
        from cems_workbench.analysis.memory_names import in_words
        from cems_workbench.jobs.query_grades import QueryGrades, query_grades

        assert answer.request is not None
        judged = QueryGrades() if as_json and not explain else query_grades(answer.request, opened.resources.store)
    if bundle is not None:
        answer.save(bundle, redact=redact)
    _print(answer, as_json, stages, explain, judged.grades, ids)
    if as_json:
        return
    step = next_step(answer.trace, judged.grades, judged.relevant_from, judged.answerable)
    if step.kind not in ("nothing", "superseded", "expired"):  # printed with the ranking
        say_wrapped(step.words if ids else in_words(step.words, answer.evidence.memories))
    label = words_of("app", options=cli.given_options(store=store)) if step.place == "label" else None
    again = asked_options(**asked.fields(), without=answer.off)
    say_next(*_after_search(step, answer.trace, again, choice.words(store)), label)


def _explained_search(
    name: str,
    query: str,
    choice: cli.ConfigChoice,
    bundle: Path | None,
    redact: bool,
    explain: bool,
    stages: bool,
    ids: bool,
    as_json: bool,
) -> None:
    """Replay what a live system explained, "-" for stdin: one explanation as a search, several as an evidence file."""
    from cems_workbench.api.explained import explained_answers, opened, write_explained

    errors: list[RowError] = []
    with opened(name) as text:
        found = explained_answers(text, name, query.strip(), errors, choice.of)
        answer, second = next(found, None), next(found, None)
        if answer is None:
            raise InputError(str(errors[0]) if errors else f"{name}: no explanation")
        if second is None:
            cli.say_left_out(errors)
            if bundle is not None:
                answer.save(bundle, redact=redact)
            _print(answer, as_json, stages, explain, ids=ids)
            return None if as_json else _after_replay(answer, bundle or Path(name), choice, "" if bundle else query)
        if bundle is None:
            raise InputError(
                f"{name}: has several explanations: name a query of it, its id or its number (#2), or write them all with --bundle FILE"
            )
        report = write_explained(itertools.chain((answer, second), found), bundle, name, errors)
    cli.say_left_out(errors)
    cli.present(report, as_json, words_of("memory", bundle, options=["--hubs"]))


def _after_replay(answer: Answer, bundle: Path, choice: cli.ConfigChoice, query: str = "") -> None:
    """Say which changes have no effect, and what explains the first memory that a replay did not return; `query` as it was named."""
    from cems_workbench.config import parse_assignment
    from cems_workbench.pipeline.effects import idle_parameters
    from cems_workbench.pipeline.explained import UNSHOWN

    idle = idle_parameters(answer.config) if choice.changes else {}
    for path in dict(map(parse_assignment, choice.changes or ())):
        if path in idle:
            say(f"--set {path}: {idle[path][0].lower()}{idle[path][1:]}")
    left = (one for one in answer.evidence.memories if one not in answer.ids and not one.startswith(UNSHOWN))
    missing = next(left, None)
    if missing is not None:
        options = ["--evidence", str(bundle), *choice.words()]
        say_next(why_words(query.strip() or answer.evidence.query, missing, options=options).words())


def _after_search(step: NextStep, trace: Trace, asked: Sequence[str], options: Sequence[str]) -> list[list[str]]:
    """What to type after a search: what explains it, or for a query without judgments the first memory that is not returned."""

    def why(memory_id: str, k: int | None = None) -> list[str]:
        return why_words(trace.evidence.query, memory_id, cutoff=k, options=asked).words(options)

    if step.place in ("why", "supersession") and step.memory_id is not None:
        return [why(step.memory_id, step.k)]
    if step.place in ("stages", "lists", "abstain"):
        return [repeated("--stages")] if "--stages" not in sys.argv else [words_of("doctor", options=options)]
    if step.place == "evaluate":
        return [words_of("evaluate", "all", options=["--losses", *options])]
    returned = {row.memory_id for row in trace.results}
    found = (hit.memory_id for ranked in trace.evidence.lists for hit in ranked.hits)
    below = next((memory_id for memory_id in found if memory_id not in returned), None)
    return [why(below)] if below is not None else [words_of("doctor", options=options)]


def replay_command(
    bundle: Path,
    choice: cli.ConfigChoice,
    explain: bool = False,
    stages: bool = False,
    spans: Path | None = None,
    query: str = "",
    ids: cli.IdsOption = False,
    as_json: cli.JsonOption = False,
) -> None:
    """Replay an evidence bundle under a config.

    The same bundle and config give the same trace on any machine. No store and no model is needed.
    """
    from cems_workbench.api.single_query import Answer
    from cems_workbench.pipeline import read_bundle, replay
    from cems_workbench.pipeline.trace_spans import trace_spans
    from cems_workbench.platform.atomic_write import write_text

    evidence = read_bundle(bundle, query.strip())
    answer = Answer(replay(evidence, choice.of(evidence), clock=time.perf_counter))
    if spans is not None:
        write_text(spans, "".join(f"{line}\n" for line in trace_spans(answer.trace)))
    _print(answer, as_json, stages, explain, ids=ids)
    if as_json:
        return
    _after_replay(answer, bundle, choice, query)


def _print(
    answer: Answer,
    as_json: bool,
    stages: bool,
    explain: bool,
    grades: Mapping[str, int] | None = None,
    ids: bool = False,
) -> None:
    """Print an answer, with `explain` the parts of each score, with `stages` a row for each stage; `grades` are by memory id."""
    if as_json and explain:
        from cems_workbench.analysis.side_by_side import side_by_side

        return put_json(answer.to_json() | {"side_by_side": side_by_side(answer.trace, grades).to_json()})
    texts = None if ids else answer.evidence.memories
    cli.present(answer, as_json, also=[answer.parts(grades)] if explain and not as_json else [], memories=texts)
    if (stages or explain) and not as_json:  # the judge changes no ranking: it warns only if the stages are shown
        for line in answer.judge_warnings:
            say(line, err=True)
    if stages and not as_json:
        say()
        cli.print_rows(answer.stages)


def operation_command(operation: Operation) -> Callable[..., None]:
    """The command of an operation on an answered query."""

    def run(
        query: cli.QueryArgument,
        choice: cli.ConfigChoice,
        asked: cli.AskedInFull,
        html: cli.ReportOption = None,
        ids: cli.IdsOption = False,
        store: cli.StoreOption = None,
        as_json: cli.JsonOption = False,
    ) -> None:
        with asked.answer(query, choice.read(store), store, as_json) as (_, answer, _):
            found = answer.ask(operation.name)
        if html is not None:
            from cems_workbench.platform.atomic_write import write_text
            from cems_workbench.report.page import result_report

            write_text(html, result_report(found, datetime.now(UTC)))
        cli.present(found, as_json, memories=None if ids else answer.evidence.memories)

    run.__doc__ = operation.question
    return run


def why_command(
    query: str,
    memory_id: str,
    choice: cli.ConfigChoice,
    asked: cli.AskedInFull,
    cutoff: cli.CutoffOption = None,
    evidence: Path | None = None,
    labelled: bool = False,
    graph: bool = False,
    ids: cli.IdsOption = False,
    store: cli.StoreOption = None,
    as_json: cli.JsonOption = False,
) -> None:
    """Explain why a memory is missing, and what would return it.

    Names the stage that dropped the memory and the smallest config changes that return it. Nothing is changed.
    """
    if evidence is not None:
        if labelled or graph:
            raise InputError(f"--{'labelled' if labelled else 'graph'} needs the store; leave --evidence out")
        found = _of_evidence(query, memory_id, evidence, choice, asked, cutoff, store, as_json)
    else:
        found = explained(query, memory_id, choice, asked, cutoff, labelled, store, as_json, graph)
    answer = found.answer
    searched = answer.evidence
    if as_json:
        engine = searched.notes.get("engine")
        return put_json(found.to_json() | ({"engine": engine} if engine else {}))
    cli.present(found, memories=None if ids else found.memories)
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
    choice: cli.ConfigChoice,
    asked: cli.AskedInFull,
    cutoff: int | None,
    labelled: bool,
    store: Path | None,
    quiet: bool,
    graph: bool = False,
) -> Explanation:
    """Why a memory is not in the store's answer to a query. A judge is asked only where it decides."""
    with asked.answer(query, choice.read(store), store, quiet) as (opened, answer, progress):
        from cems_workbench.api.single_query import explanation

        return explanation(answer, memory_id, opened, cutoff, labelled, graph, progress=progress)


def _of_evidence(
    query: str,
    memory_id: str,
    name: Path,
    choice: cli.ConfigChoice,
    asked: cli.AskedInFull,
    cutoff: int | None,
    store: Path | None,
    quiet: bool,
) -> Explanation:
    """The same of evidence that was gathered before: of a bundle, an evidence file or a set of external traces."""
    asked.fields()  # what a search refuses is refused here too
    from cems_workbench.analysis.why.path import require_stored
    from cems_workbench.api.single_query import Answer, explanation, known_variants
    from cems_workbench.jobs.traced_sets import require_no_config
    from cems_workbench.jobs.traces import traced_mistakes
    from cems_workbench.pipeline import replay
    from cems_workbench.pipeline.explained import explained

    bundle, own, path = _evidence_of(query, name, store)
    chosen = asked.config(choice.read(store) if explained(bundle) is None else choice.of(bundle))
    if own is not None and bundle.external:
        if choice.words():
            require_no_config(name, own, True, [chosen])
        chosen = own.config
    if memory_id not in bundle.memories and len(memory_id.split()) == 1 and not name.exists():
        with cli.open_existing_store(store) as opened:  # a set of the store: no list of the trace had it
            require_stored(memory_id, opened)
    left_out = known_variants(asked.without or (), len(bundle.variants), "--without-variant")
    answer = Answer(replay(bundle, chosen, switched_off=left_out), off=left_out)
    of_set = traced_mistakes(path) if bundle.external and path is not None else ()
    with cli.progress_bar(quiet) as progress:
        return explanation(answer, memory_id, k=cutoff, of_set=of_set, progress=progress)


def _after_traced(memory_id: str, evidence: Path, store: Path | None) -> list[str]:
    """What a memory does in the other traced queries; without judgments, which preset comes closest."""
    from cems_workbench.jobs.traces import is_judged

    options = cli.given_options(None, None, None, store)
    if not evidence.exists():
        with cli.open_existing_store(store) as opened:
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
    """The evidence of a query in a bundle, an evidence file or a set of external traces, and header and path of the
    file. The query may be named by its id."""
    from cems_workbench.evaluation.evidence_file import is_evidence_file
    from cems_workbench.evaluation.evidence_stream import EvidenceStream
    from cems_workbench.jobs.traced_sets import traced_header, traced_path
    from cems_workbench.pipeline import read_bundle

    folder = cli.settings_for(store).store
    path = name if name.exists() or traced_header(folder, str(name)) is None else traced_path(folder, str(name))
    if not is_evidence_file(path):
        return read_bundle(path, query.strip()), None, None
    with EvidenceStream([path]) as stream:
        found = stream.of_queries(stream.qids_of(query.strip())).evidences
        if not found:
            raise InputError(
                f"{name} has no evidence of the query {query.strip()!r}, neither as its words nor as its id"
            )
        return next(iter(found.values())), stream.header, path


def what_if_command(
    query: str | None = None,
    *,
    choice: cli.ConfigChoice,
    asked: cli.Asked,
    without: str | None = None,
    text: str | None = None,
    text_file: Path | None = None,
    title: str | None = None,
    of_project: str | None = None,
    scope: str = "personal",
    queries: str | None = None,
    embedder: str | None = None,
    chunks: str | None = None,
    share: float = 0.1,
    upstream: str | None = None,
    recorded: Path | None = None,
    ids: cli.IdsOption = False,
    store: cli.StoreOption = None,
    as_json: cli.JsonOption = False,
) -> None:
    """Show what comes in a memory's place, whether a new memory would be found, or what another embedder, chunk rule or a mend would do.

    Nothing is stored but evidence. --embedder, --chunks and --upstream take no query, but --queries.
    """
    if sum(given is not None for given in (without, text, text_file, embedder, chunks, upstream)) != 1:
        raise InputError(
            "pass one of --without MEMORY_ID, --with TEXT, --with-file FILE, --embedder MODEL, --chunks RULE and --upstream FAULT"
        )
    if (query is None) != ((embedder or chunks or upstream) is not None):
        raise InputError("name a query" if query is None else "this takes no query; --queries names a set")
    if recorded is not None and upstream is None:
        raise InputError("--recorded: only with --upstream")
    if upstream is not None:
        return _what_if_upstream(upstream, queries, recorded, choice, store, as_json)
    if query is None:
        from cems_workbench.api.memories import what_if_vectors

        config, of = choice.read(store), queries or "all"
        with cli.progress_bar(as_json) as progress, cli.opened_store(store) as opened:
            changed = what_if_vectors(
                opened, embedder=embedder, chunks=chunks, config=config, query_set=of, share=share, progress=progress
            )
        cli.present(changed, as_json, words_of("evaluate", of, options=["--losses", *choice.words(store)]))
        return
    if scope not in ("personal", "shared"):
        raise InputError(f"--scope {scope[:40]}: expected personal or shared")
    with asked.answer(query, choice.read(store), store, as_json) as (opened, answer, progress):
        from cems_workbench.api.memories import what_if
        from cems_workbench.platform.parsing import read_text

        found = what_if(
            opened,
            answer,
            without=without,
            text=text if text_file is None else read_text(text_file, "text of a memory"),
            title=title,
            project=of_project,
            scope=scope,
            queries=queries,
            progress=progress,
        )
        any_judged = not as_json and bool(opened.resources.store.judgments.read())
    assert answer.request is not None
    then = words_of("search", query, options=[*request_options(answer.request), *choice.words(store)])
    then = repeated("--queries", "all") if queries is None and any_judged else then
    cli.present(found, as_json, then, memories=None if ids else answer.evidence.memories)


def _what_if_upstream(
    fault: str,
    queries: str | None,
    recorded: Path | None,
    choice: cli.ConfigChoice,
    store: Path | None,
    as_json: bool,
) -> None:
    from cems_workbench.jobs.query_set_evidence import ALL_QUERIES
    from cems_workbench.jobs.traced_sets import is_external, traced_header
    from cems_workbench.jobs.upstream import fault_named, forecast

    config, query_set = choice.read(store), queries or ALL_QUERIES
    if not (choice.preset or choice.config or recorded):
        own = traced_header(cli.settings_for(store).store, query_set)
        config = config if own is None or is_external(own) else own.config
    known = fault_named(fault, config)
    with cli.progress_bar(as_json) as progress, cli.filled_resources(store) as resources:
        found = forecast(known, config, query_set, resources, progress, recorded)
    then = words_of("evaluate", query_set, options=["--losses", *choice.words(store)])
    if recorded is not None:
        then = words_of("import", recorded, options=cli.given_options(store=store))
    cli.present(found, as_json, then)


def memory_command(
    names: list[str] | None = None,
    *,
    hubs: bool = False,
    orphans: bool = False,
    choice: cli.ConfigChoice,
    cutoff: cli.CutoffOption = None,
    judge_kind: JudgeKindOption = None,
    ids: cli.IdsOption = False,
    store: cli.StoreOption = None,
    as_json: cli.JsonOption = False,
) -> None:
    """Show where a memory is wanted, returned, returned although judged irrelevant, and lost, over all queries.

    Evidence files need neither store nor model. Each row ends with the command that explains it.
    """
    from cems_workbench.analysis.memory_names import table_in_words
    from cems_workbench.api.memories import memory_use
    from cems_workbench.evaluation.evidence_stream import EvidenceStream
    from cems_workbench.jobs.query_set_evidence import ALL_QUERIES

    given, texts = list(names or ()), {}
    if not (hubs or orphans) and not given:
        raise InputError("name a memory: memory MEMORY_ID; or ask for --hubs or --orphans")
    memory_id, sources = (None, given) if hubs or orphans else (given[0], given[1:])
    chosen = choice.read(store) if choice.preset or choice.config else None
    paths = evidence_files(sources) if sources else None
    if paths is not None:
        with EvidenceStream(paths) as stream:
            used = chosen or default_config(stream.header, choice.changes)
        with cli.progress_bar(as_json) as progress:
            found = memory_use(paths, memory_id, used, k=cutoff, judges=judge_kind, progress=progress)
    else:
        used, query_set = (
            chosen or cli.chosen_config(None, None, choice.changes, store),
            sources[0] if sources else ALL_QUERIES,
        )
        with cli.progress_bar(as_json) as progress, cli.opened_store(store) as opened:
            found = memory_use(
                opened, memory_id, used, query_set=query_set, k=cutoff, judges=judge_kind, progress=progress
            )
            if memory_id is None and not ids:
                shown = [row[0] for table in found.tables for row in table.rows[: table.shown]]
                texts = opened.resources.store.memories.read(shown)
    options = choice.words(store)
    if found.external:  # `why` finds the recorded stages there, and no config changes them
        options = ["--evidence", sources[0], *cli.given_options(store=store)]
    elif not (choice.preset or choice.config) and sources and used.name in preset_names():
        options = ["--preset", used.name, *options]  # of the evidence
    found = replace(found, options=tuple(options))
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
        cli.print_rows(table_in_words(table, texts))
    first = next((table.rows[0][0] for *_, table in listed if table), None)
    if first is not None:
        say_next(words_of("memory", first, *sources, options=options))
    else:
        say_next(words_of("memory", *sources, options=["--orphans" if hubs else "--hubs", *options]))


def _print_memory(found: MemoryReport) -> None:
    """Print a line for each query, and on one line, so that it can be copied, the command that explains it."""
    for line in found.lines:
        say(line)
    (table,) = found.tables
    for _, _, status, grade, _, words, command in table.rows[: table.shown]:
        say_wrapped(f"{status}{'' if grade is None else f' (grade {grade})'}: {words}")
        say(f"  next: {command_line(shlex.split(command))}")
    if not table:
        say_next(words_of("memory", options=["--orphans", *found.options]))
    if more := len(table) - len(table.rows[: table.shown]):
        say(f"and {more:,} more; --json lists them all")


def blame_command(
    text: str,
    query: str | None = None,
    *,
    choice: cli.ConfigChoice,
    asked: cli.Asked,
    returned: bool = False,
    store: cli.StoreOption = None,
    as_json: cli.JsonOption = False,
) -> None:
    """Find the memories that an answer rests on.

    Splits it into claims, says of each whether a memory supports it, which of these the query returns, which is stale or judged irrelevant,
    which memory says otherwise, and what to do next. Nothing is changed.
    """
    chosen, request = choice.read(store), None
    if query is not None:
        from cems_workbench.pipeline.evidence import Request

        request = Request(query, **asked.fields())
    from cems_workbench.api.memories import BlameReport
    from cems_workbench.jobs.memory_use import blame_answer

    said = sys.stdin.read() if text == "-" else text
    with cli.progress_bar(as_json) as progress, cli.opened_store(store) as opened:
        asked.check_project(opened.resources.store)
        found = blame_answer(said, opened.resources, chosen, request, returned=returned, progress=progress)
    options = choice.words(store)
    cli.present(BlameReport(found, options=tuple(options)), as_json)
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
