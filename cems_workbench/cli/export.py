"""`export`: a config in another form."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cems_workbench.cli.options import SetOption, chosen_config
from cems_workbench.errors import InputError


class Form(StrEnum):
    """The forms a config can be exported to."""

    yaml = "yaml"
    json = "json"


def export_command(
    config: Annotated[Path, typer.Argument(help="A config file, or the name of a preset.")],
    to: Annotated[Form, typer.Option("--to", help="Form of the output.")] = Form.yaml,
    changes: SetOption = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write to this file instead of printing.")] = None,
) -> None:
    """Write a config with every key stated."""
    from cems_workbench.config import export_config

    text = export_config(chosen_config(None, config, changes), to.value)
    if out is None:
        typer.echo(text, nl=False)
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{out}: cannot be written: {error.strerror}") from None
