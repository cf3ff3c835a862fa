"""The command line that does what the page shows: `python -m cems_workbench search …`, quoted for a shell."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

from cems_workbench.config import PipelineConfig, difference, nested, preset
from cems_workbench.pipeline.gather import Request
from cems_workbench.settings import Settings


def search_command(
    request: Request,
    name: str,
    config: PipelineConfig,
    *,
    as_of: datetime | None = None,
    off: Iterable[int] = (),
    store: Path | None = None,
) -> str:
    """The command, on one line.

    `name` is the preset that `config` is compared with; `as_of` is the moment of the evidence (None: the request's). `store` is
    named unless it is the one the command would take by itself.
    """
    moment = as_of or request.as_of
    words = ["python", "-m", "cems_workbench", "search", "--preset", name]
    for path, _, _ in difference(preset(name).config, config):
        words += ["--set", f"{path}={assigned(config, path)}"]
    if request.project is not None:
        words.append(f"--project={request.project}")
    words += ["--only-project"] if request.project_only else []
    words += [f"--as-of={moment.isoformat()}"] if moment else []
    words += [f"--expand={text}" for text in request.manual]
    words += [f"--off={number}" for number in sorted(off)]
    if store is not None and store.resolve() != Path(Settings.model_fields["store"].default).resolve():
        words.append(f"--store={store.resolve()}")
    words += ["--", request.query] if request.query.startswith("-") else [request.query]
    return shlex.join(words)


def assigned(config: PipelineConfig, path: str) -> str:
    """A parameter's value as `--set` reads it: JSON, which is YAML but for characters that YAML wants escaped."""
    value: Any = nested(config)
    for segment in path.split("."):
        value = value[segment]
    if (
        isinstance(value, str)
        and value.isidentifier()
        and value.lower() not in ("null", "true", "false", "yes", "no", "on", "off", "y", "n")
    ):
        return value  # a choice is readable without quotes
    text = json.dumps(value, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in text)
