"""Tables of memories: the followed one is marked, a selected one is followed, and columns on staleness and the pinned baseline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, TypeVar

from cems_workbench.analysis.ranks import RankComparison
from cems_workbench.analysis.supersession import stale_words
from cems_workbench.pipeline import Trace
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect.baseline import COLUMN, HELP, delta_sign
from cems_workbench.ui.kit.html import excerpt
from cems_workbench.ui.kit.tables import Column, draw_table

OUT_OF_DATE = "out of date"
Row = TypeVar("Row")
OF_ROW: Callable[[Any], str] = attrgetter("memory_id")
"""The memory of a stage's row."""


def follow_table(
    rows: Sequence[Row],
    columns: Sequence[Column[Row]],
    followed: str | None,
    *,
    memory: Callable[[Row], str] = OF_ROW,
    **options: Any,
) -> None:
    """Draw a table of memories, which has a column "memory"; the followed one is marked, and a selected row is
    followed. `memory` is the id of a row's memory; `options` are those of `draw_table`."""

    def signed(row: Row) -> str:
        return f"◆ {memory(row)}" if memory(row) == followed else memory(row)

    draw_table(
        rows,
        [replace(column, cell=signed) if column.name == "memory" else column for column in columns],
        on_pick=lambda row: state.follow(memory(row)),
        marked=lambda row: memory(row) == followed,
        **options,
    )


def stale_columns(trace: Trace, rows: Sequence[Row], memory: Callable[[Row], str] = OF_ROW) -> list[Column[Row]]:
    """A column that says by which memory each one is superseded, or that it has expired; none if none is."""
    words = {memory(row): stale_words(trace, memory(row)) for row in rows}
    if not any(words.values()):
        return []
    help = "By which memory it is superseded, and where that one is; or when it expired"
    return [Column(OUT_OF_DATE, lambda row: words[memory(row)], 300, help=help)]


def delta_columns(against: RankComparison | None, name: str) -> list[Column[Any]]:
    """A column with each memory's rank difference from the baseline in the list or stage `name`; none without a baseline."""
    if against is None:
        return []
    return [Column(COLUMN, lambda row: delta_sign(against.delta(OF_ROW(row), name)), 96, help=HELP)]


def content_column(trace: Trace, width: int) -> Column[Any]:
    """The first words of each memory."""
    return Column("content", lambda row: excerpt(trace.evidence.memories[OF_ROW(row)].content), width)
