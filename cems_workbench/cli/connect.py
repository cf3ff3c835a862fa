"""`connect`: take the memories of a running system into the store, with their vectors; read-only there."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cems_workbench.cli.options import JsonOption, StoreOption, print_json, print_table, progress_bar, settings_for
from cems_workbench.errors import InputError, ModelError, StoreError

if TYPE_CHECKING:
    from cems_workbench.runs.connecting import SnapshotReport
    from cems_workbench.sources.address import Address
    from cems_workbench.sources.source import Probe

SHOWN_PROBLEMS = 50


def connect_command(
    address: Annotated[
        str | None,
        typer.Argument(
            help="postgresql://USER@HOST/DATABASE, chroma://HOST:PORT/COLLECTION, qdrant://HOST:PORT/COLLECTION, or env:NAME for the "
            "address in a variable; left out, every source of the store is taken again."
        ),
    ] = None,
    mapping: Annotated[
        Path | None,
        typer.Option("--mapping", help="YAML that says which columns of which table are id, text and vector."),
    ] = None,
    embedder: Annotated[
        str | None,
        typer.Option(
            "--embedder", help="The embedder that made its vectors (default: the one that is set, if it did)."
        ),
    ] = None,
    ask_password: Annotated[bool, typer.Option("--ask-password", help="Ask for the password or key.")] = False,
    probe_only: Annotated[bool, typer.Option("--probe", help="Say what is there and take nothing.")] = False,
    forget: Annotated[
        bool, typer.Option("--forget", help="Delete the source's memories from the store instead.")
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take the memories, chunks, vectors and relations of a running system into the store; nothing there is written.

    What changed or was deleted since the last time is taken, nothing else. Exit code 2 when rows were left out.
    """
    from cems_workbench.runs.connecting import settle_embedder, take_snapshot
    from cems_workbench.runs.opening import embedder as named_embedder
    from cems_workbench.runs.opening import open_resources
    from cems_workbench.sources.address import again, parse
    from cems_workbench.sources.opening import open_source

    columns = None if mapping is None else _mapping(mapping)
    if probe_only:
        if address is None:
            raise InputError("--probe needs an address")
        with closing(open_source(_asked(parse(address), ask_password), columns)) as source:
            _print_probe(source.address, source.probe(), as_json)
        return
    settings = settings_for(store)
    if embedder is not None:
        settings = settings.model_copy(update={"embedder": embedder})
    with progress_bar(as_json) as progress, closing(open_resources(settings)) as resources:
        kept = resources.store.sources.read()
        if address is None and not kept:
            raise InputError("the store has no source yet; name its address")
        if address is None:
            wanted = [(again(each.address, each.secret_from), each.mapping) for each in kept]
        else:
            found = parse(address)
            before = next((each.mapping for each in kept if each.address == found.plain), None)
            wanted = [(found, columns or before)]
        if forget:
            _forget(resources.store, [each.plain for each, _ in wanted])
            return
        reports: list[tuple[SnapshotReport, str]] = []
        for place, read_as in wanted:
            place = _asked(place, ask_password)
            with closing(open_source(place, read_as)) as source:
                report = take_snapshot(resources.store, source, datetime.now(UTC), progress, read_as, place.secret_from)
            record = next(each for each in resources.store.sources.read() if each.id == report.source_id)
            setting = embedder or record.embedder or settings.embedder
            try:
                made_by = named_embedder(settings.model_copy(update={"embedder": setting}))
                said = settle_embedder(resources.store, record, made_by, setting, stated=embedder is not None)
            except ModelError as error:
                said = f"the embedder was not compared: {error}"
            reports.append((report, said))
        problem = ""
        try:
            resources.refresh(progress)
        except (ModelError, StoreError) as failure:  # what was taken is in the store all the same
            problem = str(failure)
    _print(reports, problem, as_json)
    if problem or any(report.problems for report, _ in reports):
        raise typer.Exit(2)


def _mapping(path: Path) -> Mapping[str, Any]:
    """The parsed file; what is in it is checked where the source is opened."""
    import yaml

    try:
        values = yaml.safe_load(path.read_text("utf-8"))
    except OSError as error:
        raise InputError(f"--mapping {path}: {error.strerror}") from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"--mapping {path}: not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise InputError(f"--mapping {path}: must be names and columns, such as `id: uuid`")
    return values


def _asked(address: Address, ask: bool) -> Address:
    return address.with_secret(typer.prompt("password or key", hide_input=True), "a prompt") if ask else address


def _forget(store: Any, addresses: Sequence[str]) -> None:
    records = {each.address: each for each in store.sources.read()}
    for address in addresses:
        if address not in records:
            raise InputError(f"the store has no source {address}; it has {', '.join(records) or 'none'}")
        typer.echo(f"{address}: {store.sources.forget(records[address].id)} memories deleted, the source forgotten")


def _print_probe(address: str, probe: Probe, as_json: bool) -> None:
    if as_json:
        print_json({"address": address, **dataclasses.asdict(probe)})
        return
    rows: list[list[Any]] = [
        ["source", f"{probe.kind} at {address}"],
        ["engine", probe.engine],
        ["memories", f"{probe.memories:,}"],
        ["vectors", f"{probe.vectors:,} of {probe.dimension or '?'} numbers, {probe.distance}"],
        ["index", probe.index or "none: every search is exact"],
        *([["model", probe.model]] if probe.model else []),
        *[[each.name, f"{each.value} {each.unit}".strip()] for each in probe.settings],
        *[["missing", each] for each in probe.missing],
        *[["note", each] for each in probe.notes],
    ]
    print_table(["what", "found"], rows)


def _print(reports: Sequence[tuple[SnapshotReport, str]], problem: str, as_json: bool) -> None:
    if as_json:
        found = [{**dataclasses.asdict(report), "embedder": said} for report, said in reports]
        print_json({"sources": found, "problem": problem or None})
        return
    for report, said in reports:
        counts = report.memories
        typer.echo(f"{report.address}: {report.probe.kind}, {report.probe.engine}")
        rows = [["memories", counts.added, counts.updated, counts.unchanged, report.deleted]]
        edges = report.relations
        if edges.total or report.relations_deleted:
            rows.append(["relations", edges.added, edges.updated, edges.unchanged, report.relations_deleted])
        print_table(["rows", "added", "updated", "unchanged", "deleted"], rows)
        typer.echo(f"{report.read} memories read in {report.seconds:.1f} s, {report.vectors} vectors")
        for note in (*report.probe.missing, *report.probe.notes, *([said] if said else [])):
            typer.echo(f"note: {note}")
        if report.without:
            typer.echo(f"note: {report.without} of the texts read have no vector there; no vector list holds them")
        for each in report.problems[:SHOWN_PROBLEMS]:
            typer.echo(f"left out: {report.address}: {each.memory_id}: {each.field}: {each.reason}", err=True)
        more = len(report.problems) + report.more_problems - SHOWN_PROBLEMS
        if more > 0:
            typer.echo(f"left out: {more} more rows; --json lists the first {len(report.problems)}", err=True)
    if problem:
        typer.echo(f"not searchable yet: {problem}", err=True)
