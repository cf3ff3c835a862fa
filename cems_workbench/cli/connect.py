"""`connect`: import the memories of a live system with their vectors."""

from __future__ import annotations

import dataclasses
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand

from cems_workbench.cli.options import (
    JsonOption,
    StoreOption,
    given_options,
    print_table,
    progress_bar,
    say_left_out,
    settings_for,
)
from cems_workbench.cli.terminal import first_search, put_json, say, say_next, words_of
from cems_workbench.errors import InputError

if TYPE_CHECKING:
    from cems_workbench.jobs.connecting import ConnectReport
    from cems_workbench.sources.address import Address
    from cems_workbench.sources.source import SourceInfo


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
    mapping: Path | None = None,
    embedder: str | None = None,
    ask_password: bool = False,
    probe_only: bool = False,
    list_kinds: bool = False,
    forget: bool = False,
    rows_per_second: int | None = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Import memories, chunks, vectors and relations from a live system (read-only).

    Later runs import only changes and deletions. Exit code 2 if rows were left out.
    """
    from cems_workbench.jobs import connecting
    from cems_workbench.jobs.factory import open_resources
    from cems_workbench.platform.parsing import read_text
    from cems_workbench.sources.address import parse

    if list_kinds:
        _print_kinds(as_json)
        return
    columns = (
        None if mapping is None else connecting.read_mapping(read_text(mapping, "mapping"), f"--mapping {mapping}")
    )
    if probe_only:
        if address is None:
            raise InputError("--probe needs an address")
        spec = connecting.SourceSpec(_with_password(parse(address), ask_password), columns)
        _print_info(spec.address.plain, connecting.probe_source(spec), as_json)
        if not as_json:
            options = ["--mapping", str(mapping)] if mapping is not None else []
            say_next(words_of("connect", spec.address.plain, options=[*options, *given_options(store=store)]))
        return
    settings = settings_for(store)
    if embedder is not None:
        settings = settings.model_copy(update={"embedder": embedder})
    with progress_bar(as_json) as progress, closing(open_resources(settings)) as resources:
        specs = connecting.source_specs(resources, address, columns)
        if forget:
            for plain in [each.address.plain for each in specs]:
                count = connecting.forget(resources, settings, plain)
                say(f"{plain}: {count} memories deleted, source removed")
            say_next(first_search(resources.store, given_options(store=store)))
            return
        specs = [dataclasses.replace(each, address=_with_password(each.address, ask_password)) for each in specs]
        report = connecting.connect(resources, settings, specs, progress, embedder, rows_per_second)
        to_search = None if as_json else first_search(resources.store, given_options(store=store))
    _print_report(report, as_json)
    if not as_json:
        given = given_options(store=store)
        again = any(snapshot.origins and snapshot.origins.mismatches for snapshot in report.sources)
        say_next(
            words_of("doctor", options=given) if report.problem else to_search,
            words_of("reindex", options=["--mismatched", *given]) if again and not report.problem else None,
        )
    if report.problem or any(snapshot.problems for snapshot in report.sources):
        raise typer.Exit(2)


def _print_kinds(as_json: bool) -> None:
    from cems_workbench.sources.address import SOURCE_KINDS, importable, installation

    kinds = importable()
    found = [
        {
            "kind": kind.name,
            **{name: getattr(kind, name) for name in ("addresses", "description", "lists")},
            "needs": kind.package or None,
            "missing": installation(kind),
            "from": SOURCE_KINDS.origin(kind.name),
        }
        for kind in kinds
    ]
    if as_json:
        return put_json(found)
    rows = [
        [one["kind"], one["addresses"][0], ", ".join(one["lists"]), one["missing"] or "", one["from"] or ""]
        for one in found
    ]
    print_table(["kind", "address", "live lists", "needs", "added by"], rows)


def _with_password(address: Address, ask: bool) -> Address:
    return address.with_secret(typer.prompt("password or key", hide_input=True), "a prompt") if ask else address


def _print_info(address: str, info: SourceInfo, as_json: bool) -> None:
    if as_json:
        put_json({"address": address, **dataclasses.asdict(info)})
        return
    facts = [("source", f"{info.kind} at {address}"), ("engine", info.engine), *info.facts]
    print_table(["what", "found"], [list(fact) for fact in facts])


def _print_report(report: ConnectReport, as_json: bool) -> None:
    if as_json:
        put_json({"sources": list(map(dataclasses.asdict, report.sources)), "problem": report.problem or None})
        return
    for snapshot in report.sources:
        say(f"{snapshot.address}: {snapshot.probe.kind}, {snapshot.probe.engine}")
        print_table(list(snapshot.counts[0]), [list(row.values()) for row in snapshot.counts])
        read, *notes = snapshot.lines
        say(read)
        for note in notes:
            say(f"note: {note}")
        problems = [f"{snapshot.address}: {each.memory_id}: {each.field}: {each.reason}" for each in snapshot.problems]
        say_left_out(problems, more=snapshot.more_problems)
    if report.problem:
        say(f"not searchable yet: {report.problem}", err=True)
