"""Which kind of source a database is: by its tables, or as the caller says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cems_workbench.sources.address import Address
from cems_workbench.sources.postgres import catalog
from cems_workbench.sources.postgres.cems import TABLES, CemsSource
from cems_workbench.sources.postgres.connection import Database
from cems_workbench.sources.source import Source, SourceError


def open_address(address: Address, mapping: Mapping[str, Any] | None, timeout: float) -> Source:
    """Open a database as CEMS's. Raises InputError and SourceError."""
    database = Database(address, timeout)
    with database.reading() as reader:
        catalog.engine(reader, database)
        if all(catalog.table(reader, name) for name in TABLES):
            return CemsSource(database)
    raise SourceError(f"{address.plain}: has not the tables of CEMS, {' and '.join(TABLES)}")
