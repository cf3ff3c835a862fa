"""A query on the command line: the options that say how it is asked, and the request they make."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from cems_workbench.errors import InputError

if TYPE_CHECKING:
    from cems_workbench.config import PipelineConfig
    from cems_workbench.pipeline import Evidence
    from cems_workbench.pipeline.gather import Request

ProjectOption = Annotated[str | None, typer.Option("--project", help="The query's project, org/repo.")]
OnlyProjectOption = Annotated[bool, typer.Option("--only-project", help="Search that project's memories only.")]
AsOfOption = Annotated[
    str | None, typer.Option("--as-of", help="Moment ages are counted from, ISO 8601 (default: now).")
]
ExpandOption = Annotated[list[str] | None, typer.Option("--expand", help="A further query variant; repeatable.")]
OffOption = Annotated[
    list[int] | None,
    typer.Option("--off", min=0, help="Leave query variant N out (0: the query itself); repeatable."),
]


def asked(
    query: str, project: str | None, only_project: bool, as_of: str | None, expand: Sequence[str] | None,
    config: PipelineConfig,
) -> tuple[Request, PipelineConfig]:  # fmt: skip
    """The request, and the config with manual expansion on where variants were typed and it was off. Raises InputError."""
    moment = parse_moment(as_of)
    if only_project and not project:
        raise InputError("--only-project needs a --project")
    from cems_workbench.config import with_values
    from cems_workbench.pipeline.gather import Request

    if expand and config.expansion.backend == "none":
        config = with_values(config, {"expansion.backend": "manual"})
    return Request(query, project, moment, only_project, tuple(expand or ())), config


def require_variants(off: Sequence[int] | None, evidence: Evidence) -> tuple[int, ...]:
    """The query variants to leave out; raises InputError when the evidence has no such variant."""
    missing = sorted(number for number in off or () if number >= len(evidence.variants))
    if missing:
        raise InputError(f"--off {missing[0]}: there are {len(evidence.variants)} query variants, counted from 0")
    return tuple(off or ())


def parse_moment(text: str | None) -> datetime | None:
    """An ISO 8601 moment in UTC (a bare date is its midnight). Raises InputError."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise InputError(f"--as-of {text}: expected an ISO 8601 date or time, such as 2026-09-01") from None
