"""`config-history`: the saved configs of a store: list, show, restore to a file, add."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cems_workbench.cli.next_command import first_search, say_next, unused, words_of
from cems_workbench.cli.options import (
    JsonOption,
    StoreOption,
    account,
    chosen_config,
    given_options,
    open_existing_store,
    print_table,
)
from cems_workbench.cli.terminal import put, put_json, say
from cems_workbench.errors import InputError
from cems_workbench.platform.atomic_write import write_text

if TYPE_CHECKING:
    from cems_workbench.store import ConfigRecord, Store


def config_history_command(
    number: Annotated[
        int | None, typer.Argument(metavar="[ID]", help="Show this config, or restore it to a file with --out.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Restore to this file; the suffix sets the format.")
    ] = None,
    add: Annotated[
        Path | None,
        typer.Option(
            "--add", metavar="CONFIG", help="Save this config, together with its evidence card if there is one."
        ),
    ] = None,
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="With --add: the reason.")] = "",
    author: Annotated[
        str | None,
        typer.Option("--author", metavar="NAME", help="With --add: the author (default: the name of your account)."),
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List, show, restore or add the store's saved configs.

    The list has the latest first, with author, time and reason.
    """
    if add is not None and (number is not None or out is not None):
        raise InputError("--add saves a config: give neither an ID nor --out")
    if out is not None and number is None:
        raise InputError("--out restores a config: name its ID")
    with open_existing_store(store) as opened:
        if add is not None:
            _add(opened, add, why, author)
            say_next(words_of("config-history", options=given_options(store=store)))
        elif number is not None:
            _show_or_restore(opened, number, out, as_json)
            if out is not None:
                say_next(first_search(opened, given_options(config=out, store=store)))
        else:
            history = opened.configs.history()
            _list(history, as_json)
            if not as_json and history:
                options = ["--out", unused("restored.yaml"), *given_options(store=store)]
                say_next(words_of("config-history", str(history[0].id), options=options))
            elif not as_json:
                options = ["--judged", "--out", unused("all.evidence"), *given_options(store=store)]
                say_next(words_of("gather", "all", options=options) if opened.judgments.read() else None)


def _add(store: Store, path: Path, why: str, author: str | None) -> None:
    from cems_workbench.config import card_path, read_card
    from cems_workbench.jobs.config_history import keep_config

    config = chosen_config(None, path, None)
    card_file = card_path(path)
    card = read_card(card_file) if path.is_file() and card_file.is_file() else None
    base = card.baseline if card else None
    record = keep_config(store, config, author=author or _account(), why=why, base=base, card=card)
    say(f"kept as config {record.id}: {record.name}" + ("" if card else ", without an evidence card"))


def _show_or_restore(store: Store, number: int, out: Path | None, as_json: bool) -> None:
    from cems_workbench.config import card_path, export_config, nested
    from cems_workbench.config.forms.files import SUFFIXES
    from cems_workbench.jobs.config_history import restored_config

    record = store.configs.get(number)
    restored = restored_config(record, store)
    for warning in restored.warnings:
        say(f"warning: {' '.join(warning.split())}", err=True)
    if out is None and as_json:
        return put_json(_row(record) | {"config": nested(restored.config), "card": record.card})
    text = export_config(restored.config, SUFFIXES.get(out.suffix.lower(), "yaml") if out else "yaml", restored.card)
    if out is None:
        return put(text)
    write_text(out, text)
    if restored.card is not None:
        write_text(card_path(out), restored.card.to_json())


def _list(records: list[ConfigRecord], as_json: bool) -> None:
    if as_json:
        return put_json([_row(record) for record in records])
    if not records:
        return say("no config is saved yet; --add CONFIG saves one")
    columns = ["id", "name", "made from", "by", "when (UTC)", "evidence", "why"]
    rows = [
        [
            str(record.id),
            record.name,
            record.base,
            record.author,
            f"{record.saved_at:%Y-%m-%d %H:%M}",
            "card" if record.card else None,
            record.why or None,
        ]
        for record in records
    ]
    print_table(columns, rows)


def _row(record: ConfigRecord) -> dict[str, object]:
    return {
        "id": record.id,
        "name": record.name,
        "base": record.base,
        "author": record.author,
        "saved_at": record.saved_at.isoformat(),
        "why": record.why,
        "evidence": record.card is not None,
    }


def _account() -> str:
    if (name := account()) is None:
        raise InputError("--author: name who saves it")
    return name
