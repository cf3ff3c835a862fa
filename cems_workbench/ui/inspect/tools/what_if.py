"""What if this memory were different? A scratch copy is edited and tried in the memory's place; the store stays as it is.

The copy is a form over what the ranking reads of a memory, checked by the rules of the import. The outcome: where the memory stands
then and why, lists and stages before and after, and the others that moved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import streamlit as st
from markupsafe import Markup

from cems_workbench.analysis.what_if import Moved, Pair, Place, WhatIf, what_if
from cems_workbench.analysis.why import cause, memory_path
from cems_workbench.errors import InputError, WorkbenchError
from cems_workbench.evaluation.grades import K
from cems_workbench.pipeline import Evidence
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages.stage import ordinal
from cems_workbench.records import Memory
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect.glossary import about
from cems_workbench.ui.inspect.look import Look
from cems_workbench.ui.inspect.tools import choosing
from cems_workbench.ui.kit.assets import write_stylesheet
from cems_workbench.ui.kit.escape import excerpt, plain
from cems_workbench.ui.kit.memory_form import DAY_HELP, edited_memory, form_values, optional_choice
from cems_workbench.ui.kit.progress import progress_in
from cems_workbench.ui.kit.tables import short_id
from cems_workbench.ui.kit.templates import render

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
"""Tags and author stand in no list and no factor, so they are not here."""
TRIED = "what_if:tried"
PROBLEM = "what_if:problem"


def tried(memory_id: str) -> Memory | None:
    """The edit of a memory that was last tried, None when there is none."""
    edits: dict[str, Memory] = st.session_state.setdefault(TRIED, {})
    return edits.get(memory_id)


def draw_form(resources: Resources, stored: Memory) -> None:
    """The form, with what was last tried in it; Try and Start again happen before the page is drawn again."""
    turn = st.session_state.setdefault("what_if:turn", 0)
    keys = {name: f"what_if:{turn}:{name}:{stored.id}" for name in LABELS}
    for name, value in form_values(tried(stored.id) or stored, LABELS).items():
        st.session_state.setdefault(keys[name], value)
    with st.form(f"what_if:form:{turn}"):
        _fields(resources, keys)
        problem: tuple[str, str] | None = st.session_state.get(PROBLEM)
        if problem is not None and problem[0] == stored.id:
            st.error(plain(problem[1]), icon=":material/block:")
        with st.container(horizontal=True):
            st.form_submit_button(
                "Try", type="primary", key="what_if:try", on_click=_try, args=(stored, keys),
                help="Replays the query with this copy in the memory’s place. The store is not written.",
            )  # fmt: skip
            st.form_submit_button(
                "Start again", key="what_if:again", on_click=_start_again, args=(stored.id,), icon=":material/undo:",
                help="Back to the memory as it is stored.",
            )  # fmt: skip


def _fields(resources: Resources, keys: Mapping[str, str]) -> None:
    facets = resources.store.memories.facets()
    st.text_area(
        "Text", key=keys["content"], height=150, help="What is embedded and searched, with the title before it."
    )
    title, session = st.columns([2, 1])
    title.text_input("Title", key=keys["title"], help="Stands before the text where the text does not begin with it.")
    session.text_input(
        "Session", key=keys["session"], help="Assembly for diversity shows one memory of a session first."
    )
    category, project, scope = st.columns(3)
    with category:
        optional_choice("Category", keys["category"], facets.categories, "Time decay can differ by category.")
    with project:
        optional_choice(
            "Project",
            keys["project"],
            facets.projects,
            "Adjust compares it with the query’s project.",
        )
    scope.selectbox("Scope", ["personal", "shared"], key=keys["scope"], help="Query → Scope can leave one of them out.")
    created, accessed, accesses = st.columns(3)
    created.text_input("Created", key=keys["created_at"], help=DAY_HELP)
    accessed.text_input("Last accessed", key=keys["last_accessed"], help=DAY_HELP)
    accesses.number_input("Accesses", 0, None, key=keys["access_count"], help="Rank in the access list.")
    priority, importance, relevant, noise = st.columns(4)
    priority.number_input("Priority", 1.0, 2.0, step=0.1, key=keys["priority"], help="A factor of the score in Adjust.")
    importance.selectbox(
        "Importance", ["low", "normal", "high"], key=keys["importance"], help="Fusion can give high a bonus."
    )
    relevant.number_input(
        "Found relevant", 0, None, key=keys["relevant_count"], help="Votes for it, for the feedback factor."
    )
    noise.number_input(
        "Found noise", 0, None, key=keys["noise_count"], help="Votes against it, for the feedback factor."
    )
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
    """Forget what was tried; the fields get new keys, and with them the stored values."""
    st.session_state[TRIED].pop(memory_id, None)
    st.session_state[PROBLEM] = None
    st.session_state["what_if:turn"] += 1


MOST = 15
RANKS = (
    ("rank", "Rank with the memory as it is stored"),
    ("score", "Score with the memory as it is stored"),
    ("new rank", "Rank with the edited copy"),
    ("new score", "Score with the edited copy"),
)
MOVED = ("moved", "Up or down by so many ranks")


def outcome_html(found: WhatIf) -> Markup:
    """Where it stood and where it would stand, why, and what was changed."""
    before, after = (("not in the results" if rank is None else ordinal(rank)) for rank in found.rank)
    trace = found.after
    path = memory_path(trace, found.edited.id, max(1, len(trace.results)))
    return render(
        "inspect/tools/what_if_outcome.html",
        memory_id=found.edited.id,
        before=before,
        after=after,
        cause="" if path.status == "in the top k" else cause(path, trace),
        changes="; ".join(_change(*change) for change in found.changes),
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


def pairs_html(pairs: Sequence[Pair], name: str, of: str) -> Markup:
    """Lists or stages a row, before and after; where nothing is different the row is quiet."""
    rows = [
        {
            "name": pair.name,
            "about": about(pair.name),
            "same": pair.same,
            "before": _cells(pair.before, pair.name),
            "after": _cells(pair.after, pair.name),
            "move": _move(pair),
            "words": "" if pair.after is None else pair.after.words,
        }
        for pair in pairs
        if pair.before is not None or pair.after is not None
    ]
    columns = _columns((*RANKS, MOVED, ("in words", "What is done with the copy")))
    return render("inspect/tools/what_if_pairs.html", name=name, about=of, columns=columns, rows=rows)


def others_html(found: WhatIf, moved: Sequence[Moved]) -> Markup:
    """The other results whose rank is another one."""
    rows = []
    for move in moved[:MOST]:
        evidence = (found.after if move.memory_id in found.after.evidence.memories else found.before).evidence
        rows.append(
            {
                "before": _number(move.before),
                "after": _number(move.after),
                "sign": _sign(move.before, move.after),
                "memory_id": move.memory_id,
                "short": short_id(move.memory_id),
                "text": excerpt(evidence.memories[move.memory_id].content, 110),
            }
        )
    columns = _columns((RANKS[0], RANKS[2], MOVED, ("memory", "Id of the memory"), ("text", "How it begins")))
    return render("inspect/tools/what_if_others.html", columns=columns, rows=rows)


def _columns(columns: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """Header cells for the template, with their tooltips; numbers stand to the right."""
    return [{"name": name, "about": about, "number": (name, about) in RANKS} for name, about in columns]


def _cells(place: Place | None, name: str) -> dict[str, Any] | None:
    """Rank and score of a place for the template; None where the memory does not get there."""
    if place is None:
        return None
    score = "–" if place.score is None else _score(place.score, name)
    rank = _number(place.rank) if place.kept else "✕"
    return {"kept": place.kept, "rank": rank, "score": score, "exact": repr(place.score)}


def _score(score: float, name: str) -> str:
    """A date in the recency list, a count in the access list, else four digits."""
    if name == "recency":
        return datetime.fromtimestamp(score, UTC).date().isoformat()
    return f"{score:.0f}" if name == "access" else f"{score:.4f}"


def _move(pair: Pair) -> str:
    """Ranks up or down; nothing where the stage has no ranks."""
    if all(one is None or (one.kept and one.rank is None) for one in (pair.before, pair.after)):
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


def _number(rank: int | None) -> str:
    return "–" if rank is None else str(rank)


TOOL = "what_if"
KEPT = 4


def draw(look: Look) -> None:
    """Choose a memory, edit its copy, and see what that alone does."""
    write_stylesheet("what_if")
    choosing.search_box(TOOL)
    choosing.offer_matches(look, TOOL)
    lost = choosing.missing(look, K)
    memory_id = choosing.chosen(look, TOOL) or next(iter(lost), None)
    choosing.offer(look, TOOL, lost, memory_id)
    if memory_id is None:
        st.caption("Search for a memory, or follow one above, to try another text, date or priority of it.")
        return
    stored = look.resources.store.memories.get(memory_id)
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
    off = state.variants_off(look.request)
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
            progress=progress_in(place),
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
    st.html(outcome_html(found))
    lists = [pair for pair in found.lists() if pair.before is not None or pair.after is not None]
    if lists:
        st.markdown("###### In the lists")
        st.html(pairs_html(lists, "list", "Source and query variant"))
    else:
        st.caption("Neither the stored memory nor the copy is in any list.")
    stages = [pair for pair in found.stages() if pair.before is not None or pair.after is not None]
    if stages:
        st.markdown("###### Through the stages")
        st.html(pairs_html(stages, "stage", "In the order of the pipeline"))
    moved = found.others()
    st.markdown("###### Other results that moved")
    if moved:
        st.html(others_html(found, moved))
    more = f"and {len(moved) - MOST} more" if len(moved) > MOST else ""
    if not moved or more:
        st.caption(more or "None: every other result stays at its rank.")
    if found.approximated:
        st.caption(" ".join(("Approximated.", *found.approximated)))
