"""What if this memory were different? A scratch copy is edited and tried in the memory's place; the store stays as it is."""

from __future__ import annotations

from typing import Any

import streamlit as st

from cems_workbench.analysis.what_if import WhatIf, what_if
from cems_workbench.errors import WorkbenchError
from cems_workbench.evaluation.query_status import K
from cems_workbench.pipeline import Evidence
from cems_workbench.records import Memory
from cems_workbench.ui import gathering, state
from cems_workbench.ui.look import Look
from cems_workbench.ui.memories_escape import plain
from cems_workbench.ui.tables import short_id
from cems_workbench.ui.tools import choosing, what_if_html
from cems_workbench.ui.tools.what_if_form import draw_form, tried

TOOL = "what_if"
KEPT = 4


def draw(look: Look) -> None:
    """Choose a memory, edit its copy, and see what that alone does."""
    st.html(what_if_html.STYLESHEET)
    choosing.search_box(TOOL)
    choosing.offer_matches(look, TOOL)
    lost = choosing.missing(look, K)
    memory_id = choosing.chosen(look, TOOL) or next(iter(lost), None)
    choosing.offer(look, TOOL, lost, memory_id)
    if memory_id is None:
        st.caption("Search for a memory, or follow one above, to try another text, date or priority of it.")
        return
    stored = look.resources.store.memory(memory_id)
    if stored is None:
        st.info(
            f"{plain(short_id(memory_id))} is not in the store any more. Choose another memory.",
            icon=":material/delete:",
        )
        return
    st.markdown(f"###### Scratch copy of {plain(short_id(memory_id))}")
    draw_form(look.resources, stored)
    copy = tried(memory_id)
    if copy is None or copy == stored:
        st.caption("Change a field and press Try. Nothing is saved.")
        return
    found = _outcome(look, copy)
    if found is not None:
        _draw_outcome(found)


def _outcome(look: Look, copy: Memory) -> WhatIf | None:
    """The outcome, kept while copy, request, config and evidence are the same; None after an error, which is shown."""
    off = state.switched_off(look.request)
    evidence = look.trace.evidence
    key = (copy, look.request, look.trace.config, off)
    outcomes: dict[Any, tuple[Evidence, WhatIf]] = st.session_state.setdefault("what_if:outcomes", {})
    kept = outcomes.get(key)
    if kept is not None and kept[0] is evidence:
        return kept[1]
    place = st.empty()
    try:
        found = what_if(
            copy, evidence, look.trace.config, look.request, look.resources, switched_off=off,
            progress=gathering.progress_in(place),
        )  # fmt: skip
    except WorkbenchError as error:
        st.error(plain(str(error)))
        return None
    finally:
        place.empty()
    outcomes.pop(key, None)
    outcomes[key] = (evidence, found)
    while len(outcomes) > KEPT:
        outcomes.pop(next(iter(outcomes)))
    return found


def _draw_outcome(found: WhatIf) -> None:
    """The headline, lists and stages side by side, who else moved, and what is approximated."""
    st.html(what_if_html.outcome_html(found))
    lists = [pair for pair in found.lists() if pair.before is not None or pair.after is not None]
    if lists:
        st.markdown("###### In the lists")
        st.html(what_if_html.pairs_html(lists, "list", "Source and query variant"))
    else:
        st.caption("Neither the stored memory nor the copy is in any list.")
    stages = [pair for pair in found.stages() if pair.before is not None or pair.after is not None]
    if stages:
        st.markdown("###### Through the stages")
        st.html(what_if_html.pairs_html(stages, "stage", "In the order of the pipeline"))
    moved = found.others()
    st.markdown("###### Other results that moved")
    if moved:
        st.html(what_if_html.others_html(found, moved))
    more = f"and {len(moved) - what_if_html.MOST} more" if len(moved) > what_if_html.MOST else ""
    if not moved or more:
        st.caption(more or "None: every other result stays at its rank.")
    if found.approximated:
        st.caption(" ".join(("Approximated.", *found.approximated)))
