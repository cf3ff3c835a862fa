"""Tables of the app: dense rows, height limited to the content, shortened ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import streamlit as st

from cems_workbench.platform.bidi import BIDI_CONTROLS, REPLACEMENT, neutralise

if TYPE_CHECKING:
    import pyarrow as pa
    from pandas import DataFrame
    from pandas.io.formats.style import Styler

    Rows: TypeAlias = Sequence[Mapping[str, Any]] | DataFrame | Styler | pa.Table

ROW_HEIGHT_PX = 30
"""Height of a table row in pixels."""


def draw_table(
    rows: Rows,
    *,
    key: str | None = None,
    most: int | None = None,
    columns: Mapping[str, Any] | None = None,
    placeholder: str = "",
    **options: Any,
) -> Any:
    """Draw a table and return the value of `st.dataframe`. An Arrow table is passed on without pandas.

    It scrolls after `most` rows (None: Streamlit's default). `columns` are column configs, `placeholder` fills empty cells, and
    `options` are passed to `st.dataframe`.
    """
    if most is not None:
        options["height"] = ROW_HEIGHT_PX * (min(max(_count(rows), 1), most) + 1) + 4  # with the header
    shown = _neutralised(rows)
    return st.dataframe(
        shown,
        hide_index=True,
        row_height=ROW_HEIGHT_PX,
        key=key,
        column_config=columns,
        placeholder=placeholder,
        **options,
    )


def pick_row(rows: Rows, *, key: str, **options: Any) -> int | None:
    """Draw a table with a selectable row; the index of that row, or None. Arguments as for `draw_table`."""
    event = draw_table(rows, key=key, on_select="rerun", selection_mode="single-row", **options)
    picked = event["selection"]["rows"]
    return picked[0] if picked and picked[0] < _count(rows) else None


def _neutralised(rows: Rows) -> Rows:
    """The rows with bidi controls neutralised in every text."""
    if isinstance(rows, Sequence):
        return [{_cell(name): _cell(value) for name, value in row.items()} for row in rows]
    import pyarrow as pa

    if isinstance(rows, pa.Table):
        return _arrow(rows)
    from pandas import DataFrame

    if isinstance(rows, DataFrame):
        return _frame(rows).rename(columns=_cell)
    rows.data = _frame(rows.data)  # type: ignore[union-attr]
    return rows


def _frame(rows: DataFrame) -> DataFrame:
    shown = rows.copy(deep=False)
    for name in rows.select_dtypes(include=["object", "string"]).columns:
        shown[name] = rows[name].map(_cell)
    return shown


def _arrow(rows: pa.Table) -> pa.Table:
    import pyarrow as pa
    from pyarrow import compute

    def shown(column: pa.ChunkedArray) -> pa.ChunkedArray:
        if pa.types.is_string(column.type):
            return compute.replace_substring_regex(column, pattern=BIDI_CONTROLS, replacement=REPLACEMENT)
        if pa.types.is_nested(column.type):
            raise TypeError(f"bidi controls within {column.type} are not neutralised")
        return column

    return pa.table([shown(column) for column in rows.columns], [_cell(name) for name in rows.column_names])


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        return [_cell(each) for each in value]
    return neutralise(value) if isinstance(value, str) else value


def _count(rows: Rows) -> int:
    if isinstance(rows, Sequence):
        return len(rows)
    import pyarrow as pa

    return rows.num_rows if isinstance(rows, pa.Table) else len(rows.index)


def short_id(memory_id: str, length: int = 18) -> str:
    """A long id without its middle: ids differ at their ends."""
    half = length // 2
    return memory_id if len(memory_id) <= length else f"{memory_id[:half]}…{memory_id[half - length + 1 :]}"
