"""A page with nothing but Side by side of 900 candidates, for `bench_side_by_side` and the browser tests."""

from __future__ import annotations

from datetime import UTC, datetime

import streamlit as st

from cems_workbench.config import preset, with_values
from cems_workbench.pipeline import Evidence, Hit, RankedList, Trace, Variant, replay
from cems_workbench.records import Memory
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect.results import draw_grid, message
from cems_workbench.ui.kit.html import begin_page, draw

ROWS = 900
MARKUP = "<img src=x onerror=alert(1)><script>alert(2)</script>"
"""What a memory may hold."""


def trace(rows: int = ROWS, bonus: float = 0.05) -> Trace:
    """A trace of two lists in opposite orders, with a bonus for the first ranks of each: numbers that depend on nothing else."""
    ids = [f"m{number:03}" for number in range(rows)]
    evidence = Evidence(
        query="nine hundred",
        as_of=datetime(2026, 1, 1, tzinfo=UTC),
        memories={name: Memory(name, f"{MARKUP} text of {name}", title=f"Memory <b>{name}</b>") for name in ids},
        variants=(Variant("nine hundred"),),
        lists=(
            RankedList("vector:0", "vector", 0, tuple(Hit(name, 1 - n / rows) for n, name in enumerate(ids))),
            RankedList("lexical:0", "lexical", 0, tuple(Hit(name, 9 - n / rows) for n, name in enumerate(ids[::-3]))),
        ),
    )
    changes = {
        "lists.vector.depth": rows,
        "lists.lexical.depth": rows,
        "fusion.method": "rrf",
        "fusion.top_rank_bonus.rank1": bonus,
        "rerank.backend": "none",
    }
    return replay(evidence, with_values(preset("workbench").config, changes))


def main() -> None:
    """Draw the page, with a slider that moves the ranking."""
    begin_page("Side by side", "inspect")
    bonus = st.slider("Bonus", 0.0, 0.1, 0.05, 0.01)
    found = trace(bonus=bonus)
    data = message(found, {"m000": 3, "m899": 0}, state.followed())
    draw("inspect/side_by_side.html", results=found.results, data=data)
    draw_grid()


if __name__ == "__main__":
    main()
