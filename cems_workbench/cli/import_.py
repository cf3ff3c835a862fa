"""`import`, `imports`, `reindex` and `connect`: data into the store from files and live systems, what was imported, and new vectors.

Bad rows are listed, good rows kept.
"""

from __future__ import annotations

import dataclasses
import filecmp
import os
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand

from cems_workbench.builtin import SAMPLE_DATA
from cems_workbench.cli import options as cli
from cems_workbench.cli.terminal import first_search, repeated, say, say_next, words_of
from cems_workbench.command_words import why_command
from cems_workbench.errors import InputError, counted
from cems_workbench.records import TextRule
from cems_workbench.results import Report, Table

if TYPE_CHECKING:
    from cems_workbench.config.forms.targets import System
    from cems_workbench.jobs.connecting import ConnectReport
    from cems_workbench.settings import Settings
    from cems_workbench.sources.address import Address
    from cems_workbench.store import ImportReport, Store
    from cems_workbench.store.imports import ImportEvent


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
    texts: Path | None = None,
    chunks: str | None = None,
    language: str | None = None,
    text: str | None = None,
    text_fields: list[str] | None = None,
    text_tokens: int | None = None,
    vectors: Path | None = None,
    embedder: str | None = None,
    re_embed: bool = False,
    target: cli.TargetOption = None,
    preset: str | None = None,
    undo: bool = False,
    store: cli.StoreOption = None,
    as_json: cli.JsonOption = False,
) -> None:
    """Import memories, relations, queries, judgments, logs, or traces of another pipeline.

    Exits 2 if rows were left out, if nothing was imported, or if embedding failed.
    """
    if undo:
        _undo(path, store, as_json)
        return
    from cems_workbench.config.forms.targets import OWN
    from cems_workbench.settings import save_target

    place = None if target in (None, OWN) and preset is None else _place(target, preset)
    if target == OWN:
        save_target(cli.settings_for(store).store, None)
        if path is None:
            said = f"runs in a program of your own: ranked with preset {cli.settings_for(store).preset} where none is named"
            return cli.present(Report(lines=[said], values={"lines": [said]}), as_json)
    if path is None and place is not None:
        return _settle(*place, store, as_json)
    if path is None:
        raise InputError("name a file or a directory to import; sample_data is the bundled sample")
    from cems_workbench.jobs import connecting
    from cems_workbench.jobs.factory import open_resources

    if format == "auto" and (address := connecting.folder_address(path, re_embed=re_embed)):
        of_rows, of_texts = (query_set, scale, replace, relevant_from, grade, queue, texts), (text, text_fields, text_tokens)
        if any(each not in (None, False) for each in (*of_rows, *of_texts, chunks, language, vectors)):
            raise InputError(f"{path} is a folder of Chroma: only --embedder, --re-embed and --store are for one")
        settings = _embedding(store, embedder)
        with cli.progress_bar(as_json) as progress, closing(open_resources(settings)) as resources:
            specs = connecting.source_specs(resources, address)
            report = connecting.connect(resources, settings, specs, progress, embedder, only_searchable=True)
            to_search = None if as_json else first_search(resources.store, _given(store))
        return _present_connected(report, to_search, store, as_json)
    if embedder is not None or re_embed:
        raise InputError(f"{path} is no folder of Chroma: --embedder and --re-embed are for one")
    from cems_workbench.jobs.importing import import_inputs, import_options
    from cems_workbench.jobs.targets import choose
    from cems_workbench.jobs.traces import inputs_of
    from cems_workbench.store.precomputed_embeddings import require_file

    if vectors is not None:
        require_file(vectors)
    if path.parts[:1] == (SAMPLE_DATA.name,) and not path.exists():
        path = SAMPLE_DATA.joinpath(*path.parts[1:])
    if query_set is None and os.path.isdir(path):
        query_set = path.resolve().name or None  # a folder's files make one set together
    options = import_options(
        query_set, scale, match, grade or (), relevant_from, replace=replace, queue=queue, texts=texts
    )
    with cli.progress_bar(as_json) as progress:
        inputs = inputs_of(path, format)
        with closing(open_resources(cli.settings_for(store))) as resources:
            settled = choose(resources.store, *place, {}, [path.parent]) if place else []
            given = _given(store)
            rules = chunks, _text_rule(resources.store.texts.rule, text, text_fields, text_tokens), language
            found = import_inputs(path, inputs, resources, options, rules, vectors, progress, briefly=_is_sample(path))
            label = words_of("app", options=cli.given_options(store=store))
            following = [] if as_json else _next_commands(resources.store, found.reports, path, given, label)
    cli.present(found, as_json)
    for line in [] if as_json else settled:
        say(line)
    cli.say_left_out([] if as_json else found.errors)
    for line in found.problems:
        say(f"error: {line}", err=True)
    if not as_json:
        say_next(*([words_of("doctor", options=given)] if found.unsearchable else following))
    if found.problems or any(not error.taken for error in found.errors):
        raise typer.Exit(2)


def _place(target: str | None, preset: str | None) -> tuple[System, str]:
    """The target, and the preset of its program, of which either may be named. Raises InputError."""
    from cems_workbench.config.forms.targets import SYSTEMS, system_named

    of_preset = next((one for one in SYSTEMS.values() if preset in one.presets), None)
    system = system_named(target) if target else of_preset
    if system is None or (preset and preset not in system.presets):
        known = ", ".join(name for one in ([system] if system else SYSTEMS.values()) for name in one.presets)
        raise InputError(
            f"--preset {preset}: no program of {system.title if system else target or 'a target'}; known: {known}"
        )
    return system, preset or system.presets[0]


def _settle(system: System, preset: str, store: Path | None, as_json: bool) -> None:
    """Say where the memories of a store are used, and embed them as is done there."""
    from cems_workbench.jobs.factory import open_resources
    from cems_workbench.jobs.importing import refresh
    from cems_workbench.jobs.targets import choose

    with (
        cli.progress_bar(as_json) as progress,
        closing(open_resources(cli.settings_for(store), create=False)) as resources,
    ):
        lines = choose(resources.store, system, preset, {}, [resources.store.path.parent])
        report, problem, late = refresh(resources, progress)
        lines += [f"{report.embedded if report else 0} texts embedded now", *([late] if late else [])]
        to_search = first_search(resources.store, _given(store))
    cli.present(Report(lines=lines, values={"lines": lines, "problem": problem or None}), as_json, to_search)
    if problem:
        raise InputError(problem)


def _given(store: Path | None) -> list[str]:
    """The options that name the store, and the preset of its target."""
    from cems_workbench.settings import saved_target

    runs = saved_target(cli.settings_for(store).store)
    return cli.given_options(preset=runs.preset if runs else None, store=store)


def _undo(number: Path | None, store: Path | None, as_json: bool) -> None:
    from cems_workbench.jobs.factory import open_resources
    from cems_workbench.jobs.importing import refresh, undo_import

    said = "" if number is None else str(number)
    if said and not said.isdecimal():
        raise InputError(f"--undo: {said!r} is not the number of an import; the command imports lists them")
    with (
        cli.progress_bar(as_json) as progress,
        closing(open_resources(cli.settings_for(store), create=False)) as resources,
    ):
        done = undo_import(resources.store, int(said) if said else None, progress)
        _, problem, late = refresh(resources, progress)
        total = resources.store.memories.count()
    undone = {"removed": dict(done.removed), "restored": dict(done.restored), "stay": list(done.stay)}
    report = Report(
        lines=[f"import {done.event.number} ({done.event.name}) is undone: {done.done_words}"],
        notes=[*done.stay, *([late] if late else []), f"{total} memories in the store"],
        values={**plain_event(done.event), **undone, "memories_in_store": total, "problem": problem or None},
    )
    cli.present(report, as_json)
    if problem:
        say(f"error: {problem}", err=True)
    if not as_json:
        say_next(words_of("imports", options=cli.given_options(store=store)))
    if problem:
        raise typer.Exit(2)


def imports_command(store: cli.StoreOption = None, as_json: cli.JsonOption = False) -> None:
    """List the imports on record, newest first, with what each brought; import --undo takes one back."""
    from cems_workbench.jobs.importing import shortened

    with cli.open_existing_store(store) as opened:
        events = opened.imports.read()
    rows = []
    for event in events:
        undone = f"; undone {event.undone_at:%Y-%m-%d %H:%M}" if event.undone_at else ""
        when = f"{event.imported_at:%Y-%m-%d %H:%M}"
        rows.append((event.number, when, shortened(event.name), event.words + undone))
    report = Report(
        lines=() if events else ["no import is on record"],
        tables=[Table(("import", "when, UTC", "input", "what it did"), tuple(rows))],
        values=list(map(plain_event, events)),
    )
    last = next((event for event in events if event.undone_at is None), None)
    undo = ["--undo", *cli.given_options(store=store)]
    cli.present(report, as_json, words_of("import", str(last.number), options=undo) if last else None)


def plain_event(event: ImportEvent) -> dict[str, Any]:
    """An import on record as JSON values."""
    inputs = []
    for each in event.inputs:
        counts: Any = each.counts and {kind: dataclasses.asdict(one) for kind, one in each.counts.items()}
        inputs.append({"name": each.name, "format": each.format, "counts": counts, "options": dict(each.options)})
    undone = event.undone_at.isoformat() if event.undone_at else None
    made = {"import": event.number, "imported_at": event.imported_at.isoformat(), "undone_at": undone}
    return made | {"inputs": inputs}


def _next_commands(
    store: Store, reports: Sequence[ImportReport], path: Path, options: list[str], label: list[str]
) -> list[list[str] | None]:
    """What to type after an import: the same with --replace where rows of others stayed; a measurement of what was judged, else a search;
    of external traces where they lose memories or why one is lost, and the nearest preset; else `label`, the app to judge results in."""
    from cems_workbench.jobs.importing import took_nothing
    from cems_workbench.jobs.traced_sets import is_external
    from cems_workbench.jobs.traces import is_judged, is_traced, traced_header

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
    judged = is_judged(store, query_set)
    first = (
        words_of("evaluate", query_set, options=["--losses", *options])
        if judged
        else _why_of_traced(store, query_set, options) or label
    )
    if is_external(traced_header(store.path, query_set)):
        return [first, words_of("fidelity", path, options=["--nearest", *options])]
    return [first, words_of("tune", query_set, options=["--out=tuned.yaml", *options]) if judged else None]


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
    store: cli.StoreOption = None,
    mismatched: bool = False,
    chroma: bool = False,
    ef_search: int | None = None,
    ef_construction: int | None = None,
    max_neighbors: int | None = None,
    as_json: cli.JsonOption = False,
) -> None:
    """Re-embed with the configured model.

    Vectors of the previous model are kept so that you can switch back. Vectors of this model with another dimension are deleted.
    """
    from cems_workbench.analysis.why.path import require_stored
    from cems_workbench.jobs.embedder_match import mismatched_memories

    asked = {"ef_search": ef_search, "ef_construction": ef_construction, "max_neighbors": max_neighbors}
    hnsw = {name: value for name, value in asked.items() if value is not None}
    if hnsw and not chroma:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in hnsw)
        raise InputError(
            f"{options}: the graph is made with the Chroma collection; add --chroma, which writes it again"
        )
    with cli.progress_bar(as_json) as progress, cli.filled_resources(store) as resources:
        for memory_id in memory_ids or ():
            require_stored(memory_id, resources.store)
        named = mismatched_memories(resources.store, resources.embedder, progress) if mismatched else []
        named = [*(memory_ids or ()), *named]
        resources.store.sources.re_embed(named)
        elsewhere = len(resources.store.sources.addresses(named))
        report = resources.embed_anew(progress)
        indexes, embedder = resources.store.indexes, resources.embedder.model_id
        late = indexes.renew_chroma(embedder, progress, hnsw) if chroma else indexes.catch_up_chroma(embedder, progress)
        told = resources.store.notices
        to_search = first_search(resources.store, cli.given_options(store=store))
        total = resources.store.memories.count()
    embedded = report.embedded if report else 0
    found = Report(
        notes=[
            *(note for note in (report.notes if report else ()) if note not in told),
            *([late] if late else []),
            *([f"the source of {elsewhere} keeps their vectors: {OWN_UPDATE}"] if elsewhere else []),
            f"{total} memories in the store, {embedded} texts embedded now by {embedder}",
        ],
        values={"embedder": embedder, "memories_in_store": total, "embedded": embedded, "chroma": late or None},
    )
    cli.present(found, as_json, to_search)


OWN_UPDATE = "update them in that system, such as with mem0's Memory.update(ID, text=TEXT)"


class ConnectCommand(TyperCommand):
    """The command, whose help lists the addresses of all kinds of sources, loaded only then."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the addresses below the options."""
        from cems_workbench.sources.address import ANY, importable

        rows = [(form, kind.description) for kind in importable() for form in kind.addresses]
        with formatter.section("Addresses"):
            formatter.write_dl([*rows, (ANY, "the address in the environment variable NAME")])


def connect_command(
    address: str | None = None,
    mapping: str | None = None,
    embedder: str | None = None,
    target: cli.TargetOption = None,
    ask_password: bool = False,
    probe_only: bool = False,
    list_kinds: bool = False,
    forget: bool = False,
    rows_per_second: int | None = None,
    store: cli.StoreOption = None,
    as_json: cli.JsonOption = False,
) -> None:
    """Import memories, chunks, vectors and relations from a live system (read-only).

    Later runs import only changes and deletions. Exit code 2 if rows were left out.
    """
    from cems_workbench.jobs import connecting
    from cems_workbench.jobs.factory import open_resources
    from cems_workbench.platform.parsing import read_text
    from cems_workbench.sources.address import parse

    if list_kinds:
        return cli.present(_kinds(), as_json)
    columns = None
    if mapping is not None:
        given = mapping if ":" in mapping and not Path(mapping).exists() else read_text(Path(mapping), "mapping")
        columns = connecting.read_mapping(given, f"--mapping {mapping}")
    if probe_only:
        if address is None:
            raise InputError("--probe needs an address")
        spec = connecting.SourceSpec(_with_password(parse(address), ask_password), columns)
        plain, found = spec.address.plain, connecting.probe_source(spec)
        facts = (("source", f"{found.kind} at {plain}"), ("engine", found.engine), *found.facts)
        values = {"address": plain, **dataclasses.asdict(found)}
        options = [*(["--mapping", mapping] if mapping is not None else []), *cli.given_options(store=store)]
        report = Report(tables=[Table(("what", "found"), facts)], values=values)
        return cli.present(report, as_json, words_of("connect", plain, options=options))
    settings = _embedding(store, embedder)
    with cli.progress_bar(as_json) as progress, closing(open_resources(settings)) as resources:
        specs = connecting.source_specs(resources, address, columns)
        if forget:
            for plain in [each.address.plain for each in specs]:
                count = connecting.forget(resources, settings, plain)
                say(f"{plain}: {counted(count, 'memories')} deleted, source removed")
            say_next(first_search(resources.store, cli.given_options(store=store)))
            return
        specs = [dataclasses.replace(each, address=_with_password(each.address, ask_password)) for each in specs]
        connected = connecting.connect(resources, settings, specs, progress, embedder, rows_per_second, target=target)
        to_search = None if as_json else first_search(resources.store, _given(store))
    _present_connected(connected, to_search, store, as_json)


def _embedding(store: Path | None, embedder: str | None) -> Settings:
    """The settings, with an embedder if the command names one."""
    settings = cli.settings_for(store)
    return settings if embedder is None else settings.model_copy(update={"embedder": embedder})


def _present_connected(report: ConnectReport, to_search: list[str] | None, store: Path | None, as_json: bool) -> None:
    """Print what was taken of sources; exits 2 if rows were left out."""
    cli.present(report, as_json)
    if not as_json:
        for snapshot in report.sources:
            problems = [f"{snapshot.address}: {one.memory_id}: {one.field}: {one.reason}" for one in snapshot.problems]
            cli.say_left_out(problems, more=snapshot.more_problems)
        if report.problem:
            say(f"not searchable yet: {report.problem}", err=True)
        given = cli.given_options(store=store)
        again = any(snapshot.origins and snapshot.origins.mismatches for snapshot in report.sources)
        say_next(
            words_of("doctor", options=given) if report.problem else to_search,
            words_of("reindex", options=["--mismatched", *given]) if again and not report.problem else None,
        )
    if report.problem or any(snapshot.problems for snapshot in report.sources):
        raise typer.Exit(2)


def _kinds() -> Report:
    from cems_workbench.sources.address import SOURCE_KINDS, importable, installation

    found, rows = list[dict[str, Any]](), list[tuple[str, ...]]()
    for kind in importable():
        missing, origin = installation(kind), SOURCE_KINDS.origin(kind.name)
        about = {"kind": kind.name, "addresses": kind.addresses, "description": kind.description, "lists": kind.lists}
        found.append(about | {"needs": kind.package or None, "missing": missing, "from": origin})
        rows.append((kind.name, kind.addresses[0], ", ".join(kind.lists), missing or "", origin or ""))
    return Report(tables=[Table(("kind", "address", "live lists", "needs", "added by"), tuple(rows))], values=found)


def _with_password(address: Address, ask: bool) -> Address:
    return address.with_secret(typer.prompt("password or key", hide_input=True), "a prompt") if ask else address
