"""Which vector index a search statement uses, as PostgreSQL itself plans it: EXPLAIN of the very statement.

The planner looks through views, joins and partitions, and knows partial indexes and those over expressions. It is asked twice: as it
searches now, and with sorting discouraged, which shows an index that it may use another time (with more rows, or a lower LIMIT).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from psycopg import sql

from cems_workbench.sources.source import Distance
from workbench_stores.postgres import catalog
from workbench_stores.postgres.catalog import VectorIndex
from workbench_stores.postgres.connection import Reader

PLANNED_ROWS = 40
"""LIMIT of the statements that are planned."""
FOREIGN = "unknown: the rows are of another server, which may search them by an index"
"""The index line of a search that a foreign server answers."""
_DISCOURAGED = ("enable_seqscan", "enable_sort", "enable_bitmapscan")

Statement = Callable[[Distance], "sql.Composed"]
"""The search statement for a distance, with its parameters still named."""


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """The distance of searches, and the vector index that they can use.

    `used` is whether one of PLANNED_ROWS rows uses it now; `other` is an index that orders by another distance; `foreign` is whether
    another server answers.
    """

    distance: Distance
    index: VectorIndex | None
    used: bool = False
    other: VectorIndex | None = None
    foreign: bool = False

    @property
    def index_line(self) -> str | None:
        """What `SourceInfo.index` says: None only if every search is exact."""
        return self.index.definition if self.index else FOREIGN if self.foreign else None

    def notes(self, rows: int) -> list[str]:
        """What a user should know of it, a line each, where the source has so many rows."""
        found = []
        # A table of so few rows is listed whole either way.
        if self.index is not None and not self.used and rows > PLANNED_ROWS:
            found.append(
                f"PostgreSQL does not use the index for a search of {PLANNED_ROWS} rows now (EXPLAIN): such a search is exact"
            )
        if self.other is not None:
            found.append(
                f"the index {self.other.definition} orders by {self.other.distance}, not by {self.distance}, so it is not used"
            )
        return found


def plan(reader: Reader, statement: Statement, values: Mapping[str, Any], declared: Distance | None) -> SearchPlan:
    """The plan of searches by `statement`; without a declared distance it is that of an index that a search can use, else cosine."""
    order: list[Distance] = [declared] if declared else []
    order += [each for each in catalog.OPERATORS if each not in order]
    usable: dict[Distance, VectorIndex] = {}
    foreign = False
    with _sorting_discouraged(reader):
        for each in order:
            nodes = _nodes(reader, statement(each), values)
            foreign = foreign or any(node["Node Type"] == "Foreign Scan" for node in nodes)
            if (index := _vector_index(reader, nodes)) is not None:
                usable[each] = index
                break
    distance = declared if declared is not None else next(iter(usable)) if usable else "cosine"
    index = usable.pop(distance, None)
    used = index is not None and _vector_index(reader, _nodes(reader, statement(distance), values)) is not None
    return SearchPlan(distance, index, used, next(iter(usable.values()), None), foreign)


def _nodes(reader: Reader, statement: sql.Composed, values: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """All nodes of a statement's plan."""
    (plans,) = reader.row(sql.SQL("EXPLAIN (FORMAT JSON) {}").format(statement), values)
    return list(_flat(plans[0]["Plan"]))


def _flat(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield node
    for each in node.get("Plans", ()):
        yield from _flat(each)


def _vector_index(reader: Reader, nodes: Sequence[Mapping[str, Any]]) -> VectorIndex | None:
    """The first vector index that a plan scans in its order."""
    names = [node["Index Name"] for node in nodes if "Index Name" in node]
    return catalog.vector_index_named(reader, names) if names else None


@contextmanager
def _sorting_discouraged(reader: Reader) -> Iterator[None]:
    """Statements are planned as if sorting all rows cost too much; the settings are restored."""
    before = {name: reader.row("SELECT current_setting(%(name)s)", {"name": name})[0] for name in _DISCOURAGED}
    for name in _DISCOURAGED:
        reader.set(name, "off")
    yield
    for name, value in before.items():
        reader.set(name, value)
