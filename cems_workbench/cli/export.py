"""`export`: a config in another form, with the evidence for it."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cems_workbench.cli.options import PRESETS, SetOption, chosen_config
from cems_workbench.errors import InputError

if TYPE_CHECKING:
    from cems_workbench.config import EvidenceCard


class Form(StrEnum):
    """The forms a config can be exported to."""

    yaml = "yaml"
    json = "json"
    toml = "toml"
    env = "env"
    reranker_env = "reranker-env"
    python = "python"


def export_command(
    config: Annotated[Path, typer.Argument(help=f"A config file of any of these forms, or a preset: {PRESETS}.")],
    to: Annotated[
        Form, typer.Option("--to", help="Form of the output; env is the .env of CEMS, reranker-env the memory agent's.")
    ] = Form.yaml,
    changes: SetOption = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write to this file instead of printing.")] = None,
    card: Annotated[
        Path | None,
        typer.Option("--card", help="Evidence card (default: NAME.card.json beside the config, where there is one)."),
    ] = None,
) -> None:
    """Write a config with every key stated; what the form cannot express is listed in comments."""
    from cems_workbench.config import card_path, export_config

    chosen = chosen_config(None, config, changes)
    evidence = None if changes and card is None else _card(config, card)
    text = export_config(chosen, to.value, evidence)
    if out is None:
        typer.echo(text, nl=False)
        return
    _write(out, text)
    if to is Form.json and evidence is not None:  # JSON has no comments
        _write(card_path(out), evidence.to_json())


def _card(config: Path, card: Path | None) -> EvidenceCard | None:
    """The card named, or the one beside the config; a config changed on the way (`--set`) has left its evidence."""
    from cems_workbench.config import card_path, read_card

    beside = card_path(config)
    if card is None and not (config.is_file() and beside.is_file()):
        return None
    return read_card(card or beside)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None
