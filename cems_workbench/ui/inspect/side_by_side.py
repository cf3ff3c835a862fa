"""Side by side: the ranking as a grid in the browser, with a row per memory and a column per stage that did something.

`analysis/side_by_side.py` reads the grid from the trace, this module writes it into the page as JSON, and `ui/assets/side_by_side.js` draws
the rows in view; the component is what reports a click. Streamlit's own table draws on a canvas: it has no stacked bars, no greyed rows,
and no row that stays in view.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import streamlit as st
from streamlit.components.v2.types import ComponentRenderer

from cems_workbench.analysis.ranks import RankComparison
from cems_workbench.analysis.side_by_side import Column, Part, side_by_side
from cems_workbench.analysis.text_evidence import chunks_read, found_chunk
from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.stages.lists import shown_only
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect.results import GRADES, facts_of, pieces_of, shown_title
from cems_workbench.ui.kit.charts import OTHER_PART, PART_COLOURS, list_colour
from cems_workbench.ui.kit.html import asset, draw

KEY = "inspect:side_by_side"


@cache
def _component() -> ComponentRenderer:
    return st.components.v2.component(
        "cems_workbench.side_by_side",
        css=asset("side_by_side.css"),
        js=asset("side_by_side.js"),
        isolate_styles=False,
    )


def draw_side_by_side(
    trace: Trace,
    grades: Mapping[str, int] | None = None,
    followed: str | None = None,
    against: RankComparison | None = None,
) -> None:
    """Draw the ranking of a trace as a grid; a click or Enter on a row follows its memory.

    `grades` are human judgments by id. The `followed` memory is marked and stays in view. Moves are relative to fusion, or to the pinned
    baseline (`against`).
    """
    draw("inspect/side_by_side.html", results=trace.results, data=message(trace, grades or {}, followed, against))
    _component()(key=KEY, on_follow_change=_follow)


def message(
    trace: Trace, grades: Mapping[str, int], followed: str | None, against: RankComparison | None = None
) -> dict[str, Any]:
    """What the grid draws, as plain values: the columns of `SideBySide.to_columns`, and what the page adds to them.

    `colours` are those of the parts of fusion; `detail` is the text of the followed memory, None unless it is a candidate.
    """
    table = side_by_side(trace, grades, None if against is None else against.before)
    fused = next((column for column in table.columns if column.kind == "fusion"), None)
    return table.to_columns() | {
        "query": trace.evidence.query,
        "label": f"The ranking side by side: {len(table)} memories, a column for each stage",
        "compared": table.moved_from if against is None else f"in the baseline {against.name}",
        "followed": followed,
        "detail": _detail(trace, followed, grades.get(followed))
        if followed is not None and followed in trace.columns
        else None,
        "grades": {str(grade): words for grade, words in GRADES.items()},
        "stages": {stage.name: stage.title for stage in trace.run.stages},
        "help": HELP | {column.key: _help(trace, column) for column in table.columns},
        "colours": [] if fused is None else [_colour(part) for part in fused.parts],
    }


HELP = {
    "final": "Rank in the results, and places gained ▲ or lost ▼; ✕ and a stage: the stage that dropped the memory",
    "memory": "The memory, its id, and its grade for this query if people gave one. A click or Enter follows it and opens its text; arrow "
    "keys, Page up and down, Ctrl+Home and Ctrl+End move between rows, Home and End within one",
}


def _help(trace: Trace, column: Column) -> str:
    if column.kind == "list":
        if shown_only(trace.config.lists, (column.list or "").partition(":")[0]):
            return f"{column.title}: rank and score as answered by the source; only shown, as its weight is 0"
        return f"{column.title}: rank and {'' if trace.external else 'normalised '}score in this list"
    return f"{column.title}: rank and score after the stage. {trace.record(column.stage).description}"


def _colour(part: Part) -> str:
    if part.list is None:
        return PART_COLOURS.get(part.kind, OTHER_PART)
    source, _, number = part.list.partition(":")
    return list_colour(source, int(number) if number.isdecimal() else None)


def _detail(trace: Trace, memory_id: str, grade: int | None) -> dict[str, Any]:
    """Facts and whole text of a memory, as on its card."""
    memory = trace.evidence.memories[memory_id]
    found = found_chunk(trace, memory_id)
    tokens = next((result.tokens for result in trace.results if result.memory_id == memory_id), None)
    facts = facts_of(memory, trace, tokens, grade, found, chunks_read(trace))
    pieces = pieces_of(memory.content, found)
    kinds = ("wb-rest", "wb-chunk", "wb-rest")
    return {
        "id": memory_id,
        "title": shown_title(memory),
        "facts": [(fact.meaning, fact.text, FACT_CLASSES.get(fact.kind, "")) for fact in facts],
        "pieces": [("", memory.content)] if pieces is None else list(zip(kinds, pieces, strict=True)),
    }


FACT_CLASSES = {
    "grade": "wb-grade",
    "chunk": "wb-of-chunks",
    "stale": "wb-stale",
    "superseded": "wb-superseded",
}


def _follow() -> None:
    memory_id = st.session_state[KEY].get("follow")
    if isinstance(memory_id, str):
        state.follow(memory_id)
