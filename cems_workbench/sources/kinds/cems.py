"""A CEMS server's REST API, which gives answers and no memories (`cems_api`); its memories are in its PostgreSQL."""

from __future__ import annotations

from cems_workbench.sources.kinds import SourceKind

SOURCE = SourceKind(
    name="cems",
    title="CEMS server",
    addresses=("https://CEMS-HOST",),
    description="a CEMS server, asked for its answers by `fidelity --ask`",
    schemes=("http", "https"),
    open=None,
    credential_variable="CEMS_API_KEY",
    lists=(),
    place=40,
)
