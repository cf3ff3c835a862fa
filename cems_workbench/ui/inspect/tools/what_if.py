"""What if it were different? Replay with a memory edited, absent, or one that does not exist yet; the store is not changed.

The form has the fields that affect ranking, validated like the import. The outcome shows the rank, lists and stages before and after,
and other results that moved; a button tries the same on all judged queries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import streamlit as st
from markupsafe import Markup

from cems_workbench.analysis.edited_evidence import Edit
from cems_workbench.analysis.ranks import target_rank
from cems_workbench.analysis.what_if import BeforeAfter, MovedMemory, WhatIf, applied, new_memory
from cems_workbench.analysis.what_if_set import SetEffect
from cems_workbench.analysis.why import cause, memory_path
from cems_workbench.errors import InputError
from cems_workbench.evaluation.comparison import interval_words
from cems_workbench.jobs.memory_use import effect_on_queries
from cems_workbench.pipeline.list_sources import list_label, ordinal
from cems_workbench.pipeline.resources import Resources
from cems_workbench.records import IMPORTANCE, Memory
from cems_workbench.ui.inspect.context import InspectContext, View, about
from cems_workbench.ui.inspect.fetch_evidence import evidence_memory
from cems_workbench.ui.inspect.tools import choose_memory
from cems_workbench.ui.kit.forms import DAY_HELP, edited_memory, form_values, optional_choice
from cems_workbench.ui.kit.html import excerpt, plain, render, write_stylesheet
from cems_workbench.ui.kit.tables import short_id
from cems_workbench.ui.kit.widgets import errors_shown, switch, working

TOOL = "what_if"
EDITED, ABSENT, NEW = MODES = ("Other values", "Without it", "A new memory")
MAX_CACHED = 4
"""Maximum outcomes cached."""
MAX_MOVED = 15
"""Maximum moved results listed."""
LABELS = {
    "content": "Text",
    "title": "Title",
    "category": "Category",
    "project": "Project",
    "session": "Session",
    "scope": "Scope",
    "created_at": "Created",
    "last_accessed": "Last accessed",
    "access_count": "Accesses",
    "priority": "Priority",
    "importance": "Importance",
    "pinned": "Pinned",
    "relevant_count": "Found relevant",
    "noise_count": "Found noise",
}
"""Without tags and author, which affect no list or factor, and without the dates of validity."""
TRIED, PROBLEM, GENERATION = "inspect:what_if:tried", "inspect:what_if:problem", "inspect:what_if:turn"


def draw(context: InspectContext) -> None:
    """Draw what is tried, the choice of a memory, the form of its copy, and the outcome."""
    write_stylesheet("what_if")
    mode = switch(
        "What if",
        MODES,
        "inspect:what_if:mode",
        EDITED,
        help="Another text or other values of a memory; the store without it; or a memory that is not stored yet.",
    )
    if mode == NEW:
        _draw_new(context)
        return
    choose_memory.search_box(TOOL)
    choose_memory.offer_matches(context, TOOL)
    lost = choose_memory.missing(context, context.target)
    memory_id = choose_memory.chosen(context, TOOL) or next(iter(lost), None)
    choose_memory.offer(context, TOOL, lost, memory_id)
    if memory_id is None:
        tried = "leave it out" if mode == ABSENT else "try another text, date or priority"
        st.caption(f"Search for a memory, or follow one above, to {tried}.")
        return
    stored = context.resources.store.memories.get(memory_id)
    if stored is None:
        st.info(
            f"{plain(short_id(memory_id))} is no longer in the store. Choose another memory.",
            icon=":material/delete:",
        )
        return
    if mode == ABSENT:
        st.markdown(f"## Without {plain(short_id(memory_id))}")
        _draw_edit(context, Edit(stored, None, context.resources))
        return
    st.markdown(f"## Scratch copy of {plain(short_id(memory_id))}")
    draw_form(context.resources, stored)
    copy = last_edit(memory_id)
    if copy is None or copy == stored:
        st.caption("Change a field and press Try. Nothing is saved.")
        return
    _draw_edit(context, Edit(stored, copy, context.resources))


def _draw_edit(context: InspectContext, edit: Edit) -> None:
    """Draw the outcome of an edit, and what it does to the judged queries once that was asked for."""
    outcome = _outcome(context, edit)
    if outcome is not None:
        _draw_outcome(outcome, context.target)
        _draw_effect(context, edit)


def _draw_new(context: InspectContext) -> None:
    """Draw the form of a memory that does not exist yet, and its outcome: would this note have been found?"""
    facets = context.resources.store.memories.facets()
    st.session_state.setdefault("inspect:what_if:new:project", None)
    with st.form("inspect:what_if:new"):
        st.text_area(
            "Text",
            key="inspect:what_if:new:text",
            height=150,
            placeholder="What the memory would say",
            help="Embedded and searched as the store does it; a long text is cut into chunks.",
        )
        title, project, scope = st.columns(3)
        title.text_input(
            "Title", key="inspect:what_if:new:title", help="Added before the text unless the text starts with it."
        )
        with project:
            optional_choice(
                "Project",
                "inspect:what_if:new:project",
                facets.projects,
                "Adjust compares it with the query’s project.",
            )
        scope.selectbox(
            "Scope",
            ["personal", "shared"],
            key="inspect:what_if:new:scope",
            help="Query → Scope can exclude one of them.",
        )
        tried = st.form_submit_button(
            "Try",
            type="primary",
            key="inspect:what_if:new:try",
            help="Ranks the text for this query as if it were stored. The store is not changed.",
        )
    state = st.session_state
    if tried:
        state["inspect:what_if:new:tried"] = tuple(
            state[f"inspect:what_if:new:{name}"] or None for name in ("text", "title", "project", "scope")
        )
    if "inspect:what_if:new:tried" not in state:
        st.caption("Would this note be found? Write it and press Try. Nothing is saved.")
        return
    text, title_text, of_project, of_scope = state["inspect:what_if:new:tried"]
    with errors_shown():
        new = new_memory(
            text or "", context.resources, title=title_text, project=of_project, scope=of_scope or "personal"
        )
        _draw_edit(context, Edit(None, new, context.resources))


def _outcome(context: InspectContext, edit: Edit) -> WhatIf | None:
    """The outcome, cached by edit, request, config and evidence; None after an error, which is drawn."""
    trace, off = context.trace, context.variants_off
    with working() as progress:

        def make() -> WhatIf:
            return applied(edit, trace.evidence, trace.config, context.request, switched_off=off, progress=progress)

        return context.remembered("what_if:outcomes", make, edit.stored, edit.edited, context.request, most=MAX_CACHED)
    return None


def _draw_effect(context: InspectContext, edit: Edit) -> None:
    """Draw what the edit does to all judged queries; computed after a press, cached like the outcome."""
    st.markdown("## In all judged queries")
    key = ("what_if:effects", edit.stored, edit.edited)
    asked = st.button(
        "Try it on all judged queries",
        key="inspect:what_if:set",
        icon=":material/rule:",
        help="Measures before and after, and the queries that change. Evidence that is missing is gathered first; nothing else is stored.",
    )
    if not asked and not context.is_remembered(*key):
        return
    with working() as progress:
        effect = context.remembered(
            key[0],
            lambda: effect_on_queries(edit, context.trace.config, memory=evidence_memory(), progress=progress),
            *key[1:],
            most=MAX_CACHED,
        )
        st.html(effect_html(effect))
        for note in effect.notes:
            st.caption(plain(note))


def effect_html(effect: SetEffect) -> Markup:
    """The effect in a sentence, the measures before and after, and the queries that change."""
    rows = effect.changed[:MAX_MOVED]
    more = len(effect.changed) - len(rows)
    return render(
        "inspect/what_if/effect.html",
        effect=effect,
        rows=rows,
        measures=effect.comparison.compared[0].differences,
        interval_words=interval_words,
        more=f"and {more} more" if more else "",
    )


def _draw_outcome(outcome: WhatIf, k: int) -> None:
    """Draw the rank before and after, lists and stages, other moved results, and approximations."""
    st.html(outcome_html(outcome, k))
    lists = [pair for pair in outcome.lists() if pair.before is not None or pair.after is not None]
    if lists:
        st.markdown("## In the lists")
        st.html(pairs_html(lists, "list", "Source and query variant"))
    else:
        st.caption("It is in no list, neither as stored nor as tried.")
    stages = [pair for pair in outcome.stages() if pair.before is not None or pair.after is not None]
    if stages:
        st.markdown("## Through the stages")
        st.html(pairs_html(stages, "stage", "In pipeline order"))
    moved = outcome.others()
    st.markdown("## Other results that moved")
    if moved:
        st.html(others_html(outcome, moved))
    more = f"and {len(moved) - MAX_MOVED} more" if len(moved) > MAX_MOVED else ""
    if not moved or more:
        st.caption(more or "None: all other results keep their ranks.")
    st.caption(outcome.certainty)


def last_edit(memory_id: str) -> Memory | None:
    """The last tried edit of a memory, or None."""
    edits: dict[str, Memory] = st.session_state.setdefault(TRIED, {})
    return edits.get(memory_id)


def draw_form(resources: Resources, stored: Memory) -> None:
    """Draw the form, filled with the last tried edit; Try and Start again are handled before the rerun."""
    turn = st.session_state.setdefault(GENERATION, 0)
    keys = {name: f"inspect:what_if:{turn}:{name}:{stored.id}" for name in LABELS}
    for name, value in form_values(last_edit(stored.id) or stored, LABELS).items():
        st.session_state.setdefault(keys[name], value)
    with st.form(f"inspect:what_if:form:{turn}"):
        _draw_fields(resources, keys)
        problem: tuple[str, str] | None = st.session_state.get(PROBLEM)
        if problem is not None and problem[0] == stored.id:
            st.error(plain(problem[1]), icon=":material/block:")
        with st.container(horizontal=True):
            st.form_submit_button(
                "Try",
                type="primary",
                key="inspect:what_if:try",
                on_click=_try,
                args=(stored, keys),
                help="Replays the query with this copy instead of the memory. The store is not changed.",
            )
            st.form_submit_button(
                "Start again",
                key="inspect:what_if:again",
                on_click=_start_again,
                args=(stored.id,),
                icon=":material/undo:",
                help="Restores the stored values.",
            )


def _draw_fields(resources: Resources, keys: Mapping[str, str]) -> None:
    facets = resources.store.memories.facets()
    st.text_area(
        "Text", key=keys["content"], height=150, help="The text that is embedded and searched, after the title."
    )
    title, session = st.columns([2, 1])
    title.text_input("Title", key=keys["title"], help="Added before the text unless the text starts with it.")
    session.text_input("Session", key=keys["session"], help="Assembly for diversity prefers one memory per session.")
    category, project, scope = st.columns(3)
    with category:
        optional_choice("Category", keys["category"], facets.categories, "Time decay can differ by category.")
    with project:
        optional_choice("Project", keys["project"], facets.projects, "Adjust compares it with the query’s project.")
    scope.selectbox("Scope", ["personal", "shared"], key=keys["scope"], help="Query → Scope can exclude one of them.")
    created, accessed, accesses = st.columns(3)
    created.text_input("Created", key=keys["created_at"], help=DAY_HELP)
    accessed.text_input("Last accessed", key=keys["last_accessed"], help=DAY_HELP)
    accesses.number_input("Accesses", 0, None, key=keys["access_count"], help="Determines the rank in the access list.")
    priority, importance, relevant, noise = st.columns(4)
    priority.number_input("Priority", 1.0, 2.0, step=0.1, key=keys["priority"], help="A factor in Adjust.")
    importance.selectbox("Importance", IMPORTANCE, key=keys["importance"], help="Fusion can add a bonus for high.")
    relevant.number_input(
        "Found relevant", 0, None, key=keys["relevant_count"], help="Positive votes, for the feedback factor."
    )
    noise.number_input("Found noise", 0, None, key=keys["noise_count"], help="Negative votes, for the feedback factor.")
    st.toggle("Pinned", key=keys["pinned"], help="Adjust multiplies the score of pinned memories.")


def _try(stored: Memory, keys: Mapping[str, str]) -> None:
    try:
        typed = {name: st.session_state[key] for name, key in keys.items()}
        st.session_state[TRIED][stored.id] = edited_memory(stored, typed, LABELS)
    except InputError as error:
        st.session_state[PROBLEM] = (stored.id, str(error))
        return
    st.session_state[PROBLEM] = None


def _start_again(memory_id: str) -> None:
    """Forget the tried edit; new widget keys reset the fields to the stored values."""
    st.session_state[TRIED].pop(memory_id, None)
    st.session_state[PROBLEM] = None
    st.session_state[GENERATION] += 1


def outcome_html(outcome: WhatIf, k: int | None = None) -> Markup:
    """The rank before and after, why it is not among the first `k` (None: the result limit), and the changed fields."""
    before, after = (("not in the results" if rank is None else ordinal(rank)) for rank in outcome.rank)
    trace, memory_id = outcome.after, outcome.memory_id
    path = memory_path(trace, memory_id, k or target_rank(trace.config))
    reason = "" if path.status == "in the top k" else cause(path, trace)
    if outcome.stored is None or outcome.edited is None:
        reason = outcome.sentence
    changes = "; ".join(_change(*change) for change in outcome.changes)
    return render(
        "inspect/what_if/outcome.html", memory_id=memory_id, before=before, after=after, cause=reason, changes=changes
    )


def _change(name: str, was: Any, now: Any) -> str:
    label = LABELS.get(name, name)
    if name == "content":
        return f"{label} ({len(was):,} → {len(now):,} characters)"
    return f"{label} {_value(was)} → {_value(now)}"


def _value(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    if hasattr(value, "date"):
        return str(value.date().isoformat())
    return excerpt(str(value), 40)


def pairs_html(pairs: Sequence[BeforeAfter], name: str, meaning: str) -> Markup:
    """One row per list or stage, before and after; muted if they are equal. `name` is the heading of the first column."""
    return render(
        "inspect/what_if/pairs.html",
        name=name,
        meaning=meaning,
        pairs=pairs,
        about=about,
        list_label=list_label,
        score=_score,
        move=_move,
    )


def others_html(outcome: WhatIf, moved: Sequence[MovedMemory]) -> Markup:
    """The other results whose ranks changed."""
    memories = {**outcome.before.evidence.memories, **outcome.after.evidence.memories}
    return render("inspect/what_if/others.html", rows=moved[:MAX_MOVED], memories=memories, sign=_sign)


def _score(score: float, name: str) -> str:
    """A date in the recency list, a count in the access list, else four decimals."""
    if name == "recency":
        return datetime.fromtimestamp(score, UTC).date().isoformat()
    return f"{score:.0f}" if name == "access" else f"{score:.4f}"


def _move(pair: BeforeAfter) -> str:
    """Ranks up or down; empty if the stage has no ranks."""
    if all(place is None or (place.kept and place.rank is None) for place in (pair.before, pair.after)):
        return ""
    before = pair.before.rank if pair.before is not None and pair.before.kept else None
    after = pair.after.rank if pair.after is not None and pair.after.kept else None
    if (
        pair.before is not None
        and pair.after is not None
        and pair.before.rank == pair.after.rank
        and pair.before.kept == pair.after.kept
    ):
        return "="
    return _sign(before, after)


def _sign(before: int | None, after: int | None) -> str:
    if before is None or after is None:
        return "new" if after is not None else "gone" if before is not None else "="
    return "=" if before == after else f"▲ {before - after}" if after < before else f"▼ {after - before}"


VIEW = View(
    "What if it were different?",
    20,
    draw,
    "What would another text, date or priority of one memory change, its absence, or a new memory?",
)
