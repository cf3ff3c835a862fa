"""`connect`: take the memories of a running system into the store, with their vectors; read-only there."""

from __future__ import annotations

import dataclasses
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cems_workbench.cli.options import JsonOption, StoreOption, print_table, progress_bar, settings_for
from cems_workbench.cli.terminal import put_json, say
from cems_workbench.errors import InputError

if TYPE_CHECKING:
    from cems_workbench.jobs.connecting import ConnectReport
    from cems_workbench.sources.address import Address
    from cems_workbench.sources.source import SourceInfo

MAX_PROBLEMS = 50


def connect_command(
    address: Annotated[
        str | None,
        typer.Argument(
            help="postgresql://USER@HOST/DATABASE, chroma://HOST:PORT/COLLECTION, qdrant://HOST:PORT/COLLECTION, or env:NAME for the "
            "address in a variable; without an address, every source of the store is updated."
        ),
    ] = None,
    mapping: Annotated[
        Path | None,
        typer.Option("--mapping", help="YAML that says which columns of which table are id, text and vector."),
    ] = None,
    embedder: Annotated[
        str | None,
        typer.Option(
            "--embedder", help="The embedder that made its vectors (default: the configured one, if it made them)."
        ),
    ] = None,
    ask_password: Annotated[bool, typer.Option("--ask-password", help="Ask for the password or key.")] = False,
    probe_only: Annotated[bool, typer.Option("--probe", help="Report what is there and take nothing.")] = False,
    forget: Annotated[
        bool, typer.Option("--forget", help="Delete the source's memories from the store instead.")
    ] = False,
    rows_per_second: Annotated[
        int | None,
        typer.Option(
            "--rows-per-second", min=1, help="Read at most this many rows a second on average (default: no limit)."
        ),
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take the memories, chunks, vectors and relations of a running system into the store; nothing there is written.

    What changed or was deleted since the last time is taken, nothing else. Exit code 2 when rows were left out.
    """
    from cems_workbench.jobs import connecting
    from cems_workbench.jobs.factory import open_resources
    from cems_workbench.sources.address import parse

    columns = None if mapping is None else connecting.read_mapping(_text(mapping), f"--mapping {mapping}")
    if probe_only:
        if address is None:
            raise InputError("--probe needs an address")
        there = connecting.SourceSpec(_asked(parse(address), ask_password), columns)
        _print_probe(there.address.plain, connecting.probe_source(there), as_json)
        return
    settings = settings_for(store)
    if embedder is not None:
        settings = settings.model_copy(update={"embedder": embedder})
    with progress_bar(as_json) as progress, closing(open_resources(settings)) as resources:
        wanted = connecting.source_specs(resources, address, columns)
        if forget:
            for plain in [each.address.plain for each in wanted]:
                count = connecting.forget(resources, settings, plain)
                say(f"{plain}: {count} memories deleted, the source forgotten")
            return
        wanted = [dataclasses.replace(each, address=_asked(each.address, ask_password)) for each in wanted]
        found = connecting.connect(resources, settings, wanted, progress, embedder, rows_per_second)
    _print(found, as_json)
    if found.problem or any(report.problems for report, _ in found.sources):
        raise typer.Exit(2)


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise InputError(f"--mapping {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"--mapping {path}: not UTF-8: {error.reason}") from None


def _asked(address: Address, ask: bool) -> Address:
    return address.with_secret(typer.prompt("password or key", hide_input=True), "a prompt") if ask else address


def _print_probe(address: str, probe: SourceInfo, as_json: bool) -> None:
    if as_json:
        put_json({"address": address, **dataclasses.asdict(probe)})
        return
    facts = [("source", f"{probe.kind} at {address}"), ("engine", probe.engine), *probe.facts]
    print_table(["what", "found"], [list(fact) for fact in facts])


def _print(found: ConnectReport, as_json: bool) -> None:
    if as_json:
        reports = [{**dataclasses.asdict(report), "embedder": said} for report, said in found.sources]
        put_json({"sources": reports, "problem": found.problem or None})
        return
    for report, said in found.sources:
        say(f"{report.address}: {report.probe.kind}, {report.probe.engine}")
        print_table(list(report.counts[0]), [list(row.values()) for row in report.counts])
        read, *notes = report.lines
        say(read)
        for note in (*([said] if said else []), *notes):
            say(f"note: {note}")
        for each in report.problems[:MAX_PROBLEMS]:
            say(f"left out: {report.address}: {each.memory_id}: {each.field}: {each.reason}", err=True)
        more = len(report.problems) + report.more_problems - MAX_PROBLEMS
        if more > 0:
            say(f"left out: {more} more rows; --json lists the first {len(report.problems)}", err=True)
    if found.problem:
        say(f"not searchable yet: {found.problem}", err=True)
