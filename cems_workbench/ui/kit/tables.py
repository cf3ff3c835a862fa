"""Tables of the app: a column declared once, dense rows, height limited to the content, shortened ids."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import streamlit as st

from cems_workbench.platform.bidi import neutralise
from cems_workbench.results import Table

if TYPE_CHECKING:
    import pyarrow as pa

HELP: Mapping[str, Any] = json.loads(Path(__file__).parent.with_name("help.json").read_text("utf-8"))
"""Tooltips by the key of a widget, and of a table those of its columns by name; texts of a page that have no widget are there too."""
ROW_HEIGHT_PX = 30
"""Height of a table row in pixels."""
TINT = "rgba(0, 114, 178, 0.16)"
"""Of a marked row, which also has a sign."""

Row = TypeVar("Row")
Shown = TypeVar("Shown", contravariant=True)


@dataclass(frozen=True)
class Column(Generic[Shown]):
    """A column of a table: its name, what it shows of a row (None: nothing), and how. `width` is in pixels (None: by
    the contents). `format` is Streamlit's of a number, such as "%.3f", or of a date, such as "YYYY-MM-DD". `help` is
    the tooltip of the name. Numbers from 0 to `bar` are drawn as bars."""

    name: str
    cell: Callable[[Shown], Any]
    width: int | Literal["small", "medium", "large"] | None = None
    format: str | None = None
    help: str | None = None
    pinned: bool | None = None
    bar: float | None = None
    colour: str = "#0072B2"

    @property
    def config(self) -> Any:
        """Streamlit's description of the column."""
        kinds, common = st.column_config, {"width": self.width, "help": self.help, "pinned": self.pinned}
        if self.bar is not None:
            bar: Any = {"min_value": 0, "max_value": self.bar, "color": self.colour} | common
            return kinds.ProgressColumn(self.name, format=self.format, **bar)
        if self.format is None:
            return kinds.Column(self.name, **common)  # type: ignore[arg-type]
        kind: Any = kinds.NumberColumn
        if self.format.startswith("YYYY"):
            kind = kinds.DatetimeColumn if "HH" in self.format else kinds.DateColumn
        return kind(self.name, format=self.format, **common)


def _columns_of(rows: Iterable[Any]) -> list[Column[Any]]:
    """A column for each key of rows that are mappings, in the order in which they first occur."""
    names = dict.fromkeys(name for row in rows for name in row)
    return [Column(name, lambda row, name=name: row.get(name)) for name in names]  # type: ignore[misc]


def draw_table(
    rows: Sequence[Row],
    columns: Sequence[Column[Row]] | None = None,
    *,
    key: str | None = None,
    most: int | None = None,
    on_pick: Callable[[Row], None] | None = None,
    marked: Callable[[Row], bool] | None = None,
    placeholder: str = "",
    **options: Any,
) -> Any:
    """Draw a table and return the value of `st.dataframe`, which receives `options`. Without `columns` the rows are
    mappings. It scrolls after `most` rows (None: Streamlit's default). `on_pick` is called with a selected row, before
    the next run of the page. Rows that are `marked` are tinted; `placeholder` fills empty cells."""
    if columns is None:
        columns = _columns_of(rows)
    if most is not None:
        options["height"] = ROW_HEIGHT_PX * (min(max(len(rows), 1), most) + 1) + 4  # with the header
    if on_pick is not None:

        def picked() -> None:
            if (row := _selected(rows, st.session_state[str(key)])) is not None:
                on_pick(row)

        options |= {"on_select": picked, "selection_mode": "single-row"}
    return st.dataframe(
        _tinted(rows, columns, marked),
        hide_index=True,
        row_height=ROW_HEIGHT_PX,
        key=key,
        placeholder=placeholder,
        column_config={neutralise(column.name): column.config for column in columns},
        **options,
    )


def draw_values(
    names: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    key: str,
    help: Mapping[str, str] | None = None,
    first: int | None = None,
    others: int | None = None,
    format: str | Mapping[str, str] = "%.3f",
    **options: Any,
) -> None:
    """Draw rows that have a value for each name, such as those of a `results.Table`; `format` is of real numbers.

    `help` are tooltips by name; without it those of the key in help.json.

    A format by name leaves the others at three digits. `first` and `others` are widths; if `first` is given, the first column is pinned.
    Options as for `draw_table`.
    """
    about, columns = help or HELP.get(key, {}), list[Column[Sequence[Any]]]()
    for i, name in enumerate(names):
        form = format if isinstance(format, str) else format.get(name, "%.3f")
        real = any(isinstance(row[i], float) for row in rows)
        wide = first if first is not None and not i else others
        pinned = True if first is not None and not i else None
        columns.append(Column(name, itemgetter(i), wide, form if real else None, about.get(name), pinned))
    draw_table(rows, columns, key=key, placeholder="–", **options)


def draw_result(table: Table, *, key: str, **options: Any) -> None:
    """Draw what a person is shown of a result's table, to sort and search; options as for `draw_values`. `widgets.show` wraps texts."""
    drawn = table.drawn
    draw_values(drawn.columns, drawn.rows, key=key, **options)
    if drawn.left_out:
        st.caption(f"and {drawn.left_out} more")


def pick_row(
    rows: Sequence[Row], columns: Sequence[Column[Row]] | None = None, *, key: str, **options: Any
) -> Row | None:
    """Draw a table with a selectable row; that row, or None. Arguments as for `draw_table`."""
    return _selected(
        rows, draw_table(rows, columns, key=key, on_select="rerun", selection_mode="single-row", **options)
    )


def _selected(rows: Sequence[Row], event: Any) -> Row | None:
    """The selected row; None if there is none, or none any more."""
    places = event["selection"]["rows"]
    return rows[places[0]] if places and places[0] < len(rows) else None


def arrow_table(rows: Sequence[Row], columns: Sequence[Column[Row]]) -> pa.Table:
    """The cells of the rows, bidi controls in their texts neutralised; without pandas, whose import takes long."""
    import pyarrow as pa

    def array(values: list[Any]) -> pa.Array:
        try:
            return pa.array(values, from_pandas=True)  # not a number: nothing
        except (pa.ArrowInvalid, pa.ArrowTypeError):  # of several types
            return pa.array([None if value is None else str(value) for value in values])

    return pa.table({_text(column.name): array([_text(column.cell(row)) for row in rows]) for column in columns})


def _tinted(rows: Sequence[Row], columns: Sequence[Column[Row]], marked: Callable[[Row], bool] | None) -> Any:
    """The table, as a styled frame if a row is marked."""
    table, tints = (
        arrow_table(rows, columns),
        [f"background-color: {TINT}" if marked and marked(row) else "" for row in rows],
    )
    if not any(tints):
        return table
    import pandas as pd
    import pyarrow as pa

    frame = table.to_pandas(
        types_mapper={pa.int64(): pd.Int64Dtype()}.get
    )  # a whole number stays one beside an empty cell
    return frame.style.apply(lambda column: tints, axis=0)


def _text(value: Any) -> Any:
    if isinstance(value, list):
        return [_text(each) for each in value]
    return neutralise(value) if isinstance(value, str) else value


def short_id(memory_id: str, length: int = 18) -> str:
    """A long id without its middle: ids differ at their ends."""
    half = length // 2
    return memory_id if len(memory_id) <= length else f"{memory_id[:half]}…{memory_id[half - length + 1 :]}"
