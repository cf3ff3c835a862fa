"""What an operation returns, for every surface: a title, lines, tables and notes, which print themselves and show themselves in a notebook.

A command prints a `Result`, a script and a notebook show it, a report and a tool take its tables. Texts of memories are shown
literally: HTML comes from one template that escapes every value.
"""

from __future__ import annotations

import math
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
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
EXCERPT_CHARS = 160
"""Characters of a memory's content that are shown."""
MAX_CELL_CHARS = 120
"""Characters of a cell that are printed."""
LINE_CHARS = 110
"""Characters of a line of text."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table with named columns, as plain values: text, numbers, truth values or None.

    Attributes:
        columns: the names of the columns.
        rows: the rows, a value for each column.
        title: shown above it; empty for none.
        shown: rows that a person is shown; None: as many as the surface shows.
        unshown: columns that only a data frame has.
        left_out: rows that it does not have.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    title: str = ""
    shown: int | None = None
    unshown: tuple[str, ...] = ()
    left_out: int = 0

    @property
    def drawn(self) -> Table:
        """What a person is shown: the first rows, of each memory's content the beginning, and no column that is empty in all of them."""
        rows = self.rows[: self.shown]
        columns = [
            i
            for i, name in enumerate(self.columns)
            if name not in self.unshown and (not rows or any(row[i] is not None for row in rows))
        ]
        cut = [EXCERPT_CHARS if self.columns[i] == "content" else None for i in columns]
        cells = (
            tuple(row[i] if chars is None else one_line(row[i], chars) for i, chars in zip(columns, cut, strict=True))
            for row in rows
        )
        left_out = self.left_out + len(self) - len(rows)
        return Table(tuple(self.columns[i] for i in columns), tuple(cells), self.title, left_out=left_out)

    @property
    def records(self) -> list[dict[str, Any]]:
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def to_pandas(self) -> pd.DataFrame:
        """The table as a data frame of as many rows and columns; an empty one keeps the columns."""
        import pandas as pd

        return pd.DataFrame(list(self.rows), columns=list(self.columns))

    def __len__(self) -> int:
        return len(self.rows)

    def __str__(self) -> str:
        return "\n".join(_text_lines(self))

    def __repr__(self) -> str:
        """What it is a table of, in one line."""
        return f"<Table{f' {self.title!r}' if self.title else ''}: {len(self)} rows of {', '.join(self.columns)}>"

    def _repr_html_(self) -> str:
        return _html("", (), (self,), ())


class Result(ABC):
    """A result of the API: a title, what it says in lines, its tables, and notes that it should be read with."""

    @property
    @abstractmethod
    def title(self) -> str:
        """What it is, in one line."""

    @property
    @abstractmethod
    def tables(self) -> Sequence[Table]:
        """Its tables, the main one first."""

    @property
    def lines(self) -> Sequence[str]:
        """What it says before its tables, a sentence each."""
        return ()

    @property
    def notes(self) -> Sequence[str]:
        """What it should be read with: warnings, what was left out, what the evidence lacks."""
        return ()

    def to_json(self) -> Any:
        """What --json prints, as plain values; by default what the text says."""
        tables = [{"title": one.title, "columns": one.columns, "rows": one.rows} for one in self.tables]
        return {"title": self.title, "lines": self.lines, "tables": tables, "notes": self.notes}

    def to_pandas(self) -> pd.DataFrame:
        return self.tables[0].to_pandas()

    def __repr__(self) -> str:
        """What it is, in one line; `print` shows the tables."""
        return f"<{type(self).__name__}: {self.title}>"

    def __str__(self) -> str:
        parts = [self.title, *(_wrapped(line) for line in self.lines)]
        for table in filter(len, self.tables):
            parts += ["", *_text_lines(table)]
        return "\n".join([*parts, *([""] if self.notes else []), *(_wrapped(note) for note in self.notes)])

    def _repr_html_(self) -> str:
        return _html(self.title, self.lines, self.tables, self.notes)


@dataclass(frozen=True, eq=False, repr=False)
class Report(Result):
    """A result that has nothing but its parts.

    Attributes:
        values: what --json prints; None: what the text says.
    """

    title: str = ""
    lines: Sequence[str] = ()
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()
    values: Any = None

    def to_json(self) -> Any:
        """What --json prints."""
        return super().to_json() if self.values is None else self.values


def as_text(table: Table) -> tuple[Table, list[str]]:
    """The table for display, its cells as text, and the alignment of each column."""
    shown = replace(table, shown=MAX_ROWS if table.shown is None else table.shown).drawn
    sides = [
        "right" if shown.rows and all(_is_number(row[i]) or row[i] is None for row in shown.rows) else "left"
        for i in range(len(shown.columns))
    ]
    return replace(shown, rows=tuple(tuple(map(cell, row)) for row in shown.rows)), sides


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
    drawn, sides = as_text(table)
    widths = [
        max(len(name), *(len(row[i]) for row in drawn.rows), 0) if drawn.rows else len(name)
        for i, name in enumerate(drawn.columns)
    ]

    def line(cells: Sequence[str]) -> str:
        placed = (
            text.rjust(width) if side == "right" else text.ljust(width)
            for text, width, side in zip(cells, widths, sides, strict=True)
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
        tables=[as_text(table) for table in tables if table],
        notes=[neutralise(note) for note in notes],
    )


@cache
def _template() -> Template:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).resolve().parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("result.html")
