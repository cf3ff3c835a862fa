"""Query picker: judged queries and recorded queries of a log, failing ones first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import streamlit as st

from cems_workbench.jobs.traced_sets import traced_sets
from cems_workbench.platform.bidi import neutralise
from cems_workbench.ui.inspect import state

if TYPE_CHECKING:
    from cems_workbench.pipeline.resources import Resources

SET = "inspect:picker_set"
ALL_JUDGED = ""
"""Choice of the judged queries of all sets."""


def draw_picker(resources: Resources) -> None:
    """Draw a popover with all judged and recorded queries; selecting a row searches it. While closed, they are only counted."""
    judged = resources.store.judgments.count_queries("human")
    traced = traced_sets(resources.store)
    recorded = {name: count for name, count in resources.store.recorded_answers.sets().items() if name not in traced}
    if not judged and not recorded and not traced:
        return
    counted = [
        f"{count} {kind}"
        for kind, count in (("judged", judged), ("recorded", sum(recorded.values())), ("traced", sum(traced.values())))
        if count
    ]
    popover = st.popover(
        f"{' · '.join(counted)} queries",
        icon=":material/checklist:",
        key=state.PICKER,
        type="tertiary",
        on_change="rerun",
        help="Queries of this store that people judged, that a live system received, or that were traced in another pipeline.",
    )
    if popover.open:
        from cems_workbench.ui.inspect import picker_tables

        with popover:
            chosen = _chosen_set(judged, recorded, traced)
            if chosen in traced:
                picker_tables.draw_traced(chosen, resources)
            elif chosen == ALL_JUDGED:
                picker_tables.draw_judged(resources)
            else:
                picker_tables.draw_recorded(chosen, resources)


def _chosen_set(judged: int, recorded: Mapping[str, int], traced: Mapping[str, int]) -> str:
    """Draw the choice of the set whose queries are listed."""
    names = [ALL_JUDGED] * bool(judged) + [*recorded, *traced]
    if not recorded and not traced:
        return ALL_JUDGED
    return st.selectbox(
        "Queries",
        names,
        key=SET,
        format_func=lambda name: (
            f"{judged} judged"
            if not name
            else f"{neutralise(name)} · {traced[name]} traced"
            if name in traced
            else f"{neutralise(name)} · {recorded.get(name, 0)} recorded"
        ),
        help="Judged: by people. Recorded: from a log of a live system’s queries and answers. Traced: in another pipeline, with "
        "its stages.",
    )
