"""What every result of the API can do: print itself as tables, show itself in a notebook, and become a data frame.

A result says what its title, lines, tables and notes are; how these are drawn is here and nowhere else. Texts of memories are shown
literally: HTML comes from one template that escapes every value.
"""

from __future__ import annotations

import math
import textwrap
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cems_workbench.errors import one_line
from cems_workbench.platform.bidi import neutralise

if TYPE_CHECKING:
    import pandas as pd
    from jinja2 import Template

MAX_ROWS = 20
"""Rows of a table that are printed; `to_pandas` has them all."""
MAX_CELL_CHARS = 120
"""Characters of a cell that are printed."""
LINE_CHARS = 110
"""Characters of a line of text."""


class WorkbenchWarning(UserWarning):
    """What a result should be read with: a fallback, a skipped row, what a config file could not say."""


_collected: ContextVar[list[str] | None] = ContextVar("noted", default=None)


def warn(line: str) -> None:
    """Warn the caller of the API through `warnings`, or through `collect_warnings` if that is active."""
    noted = _collected.get()
    if noted is None:
        warnings.warn(one_line(line, 500), WorkbenchWarning, stacklevel=3)
    else:
        noted.append(one_line(line, 500))


@contextmanager
def collect_warnings() -> Iterator[list[str]]:
    """Collect this thread's warnings in the yielded list; `warnings.catch_warnings` would affect all threads."""
    lines: list[str] = []
    token = _collected.set(lines)
    try:
        yield lines
    finally:
        _collected.reset(token)


@dataclass(frozen=True, slots=True)
class Table:
    """A table with named columns, as plain values: text, numbers, truth values or None.

    Attributes:
        columns: the names of the columns.
        rows: the rows, a value for each column.
        title: shown above it; empty for none.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    title: str = ""

    def to_pandas(self) -> pd.DataFrame:
        """The table as a data frame of as many rows and columns; an empty one keeps the columns."""
        import pandas as pd

        return pd.DataFrame(list(self.rows), columns=list(self.columns))

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self.rows)

    def __str__(self) -> str:
        """The table as text, its first rows."""
        return "\n".join(_text_lines(self))

    def __repr__(self) -> str:
        """What it is a table of, in one line."""
        return f"<Table{f' {self.title!r}' if self.title else ''}: {len(self)} rows of {', '.join(self.columns)}>"

    def _repr_html_(self) -> str:
        """The table as a notebook shows it."""
        return _html("", (), (self,), ())


class Result(ABC):
    """A result of the API: a title, what it says in lines, its tables, and notes that it should be read with."""

    @property
    @abstractmethod
    def title(self) -> str:
        """What it is, in one line."""

    @property
    @abstractmethod
    def tables(self) -> tuple[Table, ...]:
        """Its tables, the main one first."""

    @property
    def lines(self) -> tuple[str, ...]:
        """What it says before its tables, a sentence each."""
        return ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What it should be read with: warnings, what was left out, what the evidence lacks."""
        return ()

    def to_pandas(self) -> pd.DataFrame:
        """The main table as a data frame."""
        return self.tables[0].to_pandas()

    def __repr__(self) -> str:
        """What it is, in one line; `print` shows the tables."""
        return f"<{type(self).__name__}: {self.title}>"

    def __str__(self) -> str:
        """The whole result as text."""
        parts = [self.title, *(_wrapped(line) for line in self.lines)]
        for table in filter(len, self.tables):
            parts += ["", *_text_lines(table)]
        return "\n".join([*parts, *([""] if self.notes else []), *(_wrapped(note) for note in self.notes)])

    def _repr_html_(self) -> str:
        """The whole result as a notebook shows it."""
        return _html(self.title, self.lines, self.tables, self.notes)


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A table for display: cells as text, the alignment of each column, and the number of rows that are not shown.

    Empty columns are left out; `to_pandas` has them.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    sides: Sequence[str]
    left_out: int

    @property
    def wraps(self) -> list[str]:
        """How each column wraps: numbers never."""
        return ["nowrap" if side == "right" else "normal" for side in self.sides]


def _drawn(table: Table) -> _Drawn:
    shown = table.rows[:MAX_ROWS]
    said = [i for i in range(len(table.columns)) if not shown or any(row[i] is not None for row in shown)]
    sides = ["right" if shown and all(_is_number(row[i]) or row[i] is None for row in shown) else "left" for i in said]
    rows = [[cell(row[i]) for i in said] for row in shown]
    return _Drawn(table.title, [table.columns[i] for i in said], rows, sides, len(table) - len(shown))


def cell(value: Any) -> str:
    """The display text of a value: four digits, a dash for None, texts on one line and truncated."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4f}"
    return one_line(neutralise(str(value)), MAX_CELL_CHARS)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text_lines(table: Table) -> list[str]:
    drawn = _drawn(table)
    widths = [
        max(len(name), *(len(row[i]) for row in drawn.rows), 0) if drawn.rows else len(name)
        for i, name in enumerate(drawn.columns)
    ]

    def line(cells: Sequence[str]) -> str:
        placed = (
            text.rjust(width) if side == "right" else text.ljust(width)
            for text, width, side in zip(cells, widths, drawn.sides, strict=True)
        )
        return "  ".join(placed).rstrip()

    lines = [drawn.title] if drawn.title else []
    lines += [line(drawn.columns), *(line(row) for row in drawn.rows)]
    return [*lines, f"and {drawn.left_out} more; to_pandas() has them all"] if drawn.left_out else lines


def _wrapped(text: str) -> str:
    return textwrap.fill(one_line(neutralise(text), 2000), LINE_CHARS, subsequent_indent="  ")


def _html(title: str, lines: Sequence[str], tables: Sequence[Table], notes: Sequence[str]) -> str:
    return _template().render(
        title=neutralise(title),
        lines=[neutralise(line) for line in lines],
        tables=[_drawn(table) for table in tables if table],
        notes=[neutralise(note) for note in notes],
    )


@cache
def _template() -> Template:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    folder = Path(__file__).resolve().parent / "templates"
    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("result.html")
