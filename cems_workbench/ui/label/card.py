"""The card: a query, a memory in full, and the grades as buttons and keys. Blind: no rank, no score, no config, nobody's grade.

It is a fragment, so that a key press costs the card and nothing else of the page.
"""

from __future__ import annotations

import re
from html import escape

import streamlit as st

from cems_workbench.evaluation.labelling.queue import Card, LabelQueue, QueueProgress
from cems_workbench.pipeline.resources import Resources
from cems_workbench.records import GradeScale
from cems_workbench.store.search.tokenizer import STOPWORDS
from cems_workbench.ui.kit.escape import plain
from cems_workbench.ui.label import state

_WORD = re.compile(r"\w+")
WIDTH = 900
"""Pixels: a line of text that is still easily read."""
LEAST_MARKED = 3
"""Words shorter than this are not marked: they stand in every text."""
HELP = (
    "Keys: the number of a grade gives it. **U** takes the last one back, **S** skips the card, **N** opens the note (Esc leaves it), "
    "**Q** sets the query aside as unclear, **?** or **H** shows this. Each press is on disk before the next card appears."
)


@st.fragment
def draw(at_work: LabelQueue, resources: Resources, who: str) -> None:
    """The card on the table with its buttons, or that there is none left."""
    with st.container(width=WIDTH):
        _draw(at_work, resources, who)


def _draw(at_work: LabelQueue, resources: Resources, who: str) -> None:
    """Progress and card are one element: in the browser the count never runs ahead of the card that a key would answer."""
    one, snapshot = state.card(at_work, who)
    if st.session_state.get(state.PROBLEM):
        st.error(plain(st.session_state[state.PROBLEM]), icon=":material/block:")
    progress = at_work.progress(who, snapshot)
    st.html(progress_html(progress) + (card_html(one, state.turn()) if one is not None else ""))
    if one is None:
        _finished(progress)
    else:
        _grades(scale_of(resources, one.query.qid), resources, who)
    _others(one, at_work, resources, who)


def scale_of(resources: Resources, qid: str) -> GradeScale:
    """The scale of a query, read once a session."""
    scales: dict[str, GradeScale] = st.session_state.setdefault("lb:scales", {})
    if qid not in scales:
        scales[qid] = resources.store.query_sets.scale_of(qid)
    return scales[qid]


def card_html(one: Card, turn: int) -> str:
    """Query with its context, and the memory with the query's words marked; all text is escaped."""
    query, memory = one.query, one.memory
    asked = [f"asked in {query.project}"] if query.project else []
    asked += [f"as of {query.as_of:%Y-%m-%d}"] if query.as_of else []
    facts = [
        memory.category,
        memory.project,
        f"{memory.created_at:%Y-%m-%d}" if memory.created_at else None,
        memory.author,
    ]
    title = f"<h5>{escape(memory.title)}</h5>" if memory.title else ""
    return (
        f'<div class="wb-card" data-turn="{turn}"><div class="wb-card-query"><span>Query</span><p>{escape(query.query)}</p>'
        f"<small>{escape(' · '.join(asked))}</small></div>"
        f'<div class="wb-card-memory"><span>Memory</span>{title}<p>{marked(memory.content, query.query)}</p>'
        f"<details><summary>About this memory</summary><small>{escape(' · '.join(fact for fact in facts if fact))} · "
        f"<code>{escape(memory.id)}</code></small></details></div></div>"
    )


def marked(text: str, query: str) -> str:
    """The text, escaped, with the words of the query marked, whatever their case; stopwords only where the query has no others."""
    asked = {word.casefold() for word in _WORD.findall(query) if len(word) >= LEAST_MARKED}
    wanted = asked - STOPWORDS or asked
    out, end = [], 0
    for match in _WORD.finditer(text):
        if match[0].casefold() in wanted:
            out += [escape(text[end : match.start()]), f"<mark>{escape(match[0])}</mark>"]
            end = match.end()
    return "".join(out) + escape(text[end:])


def progress_html(progress: QueueProgress) -> str:
    """A bar and a line: how much is done, at what pace, and what is left."""
    done = progress.total - progress.left if progress.total else 0
    share = 100 * done / progress.total if progress.total else 100
    parts = [
        f"<b>{progress.graded}</b> graded by you",
        f"{progress.left} left for you",
        f"{progress.done_by_all} of {progress.total} done by all",
    ]
    parts += [f"{progress.skipped} skipped"] if progress.skipped else []
    parts += [f"{progress.unclear} queries unclear"] if progress.unclear else []
    if progress.seconds_per_label is not None and progress.left:
        minutes = (progress.seconds_left or 0) / 60
        parts.append(f"{progress.seconds_per_label:.0f} s a card, about {max(1, round(minutes))} min left")
    return f'<div class="wb-card-progress"><div><i style="width:{share:.1f}%"></i></div><span>{" · ".join(parts)}</span></div>'


def _grades(scale: GradeScale, resources: Resources, who: str) -> None:
    """A button a grade with its meaning; the key is the grade itself."""
    columns, turn = st.container(key="lb:grades").columns(len(scale.grades)), state.turn()
    for column, (grade, meaning) in zip(columns, scale.grades, strict=True):
        short, rest = name_of(meaning)
        column.button(
            f"**{grade}** {plain(short)}", key=f"lb:grade:{grade}:{turn}", width="stretch",
            on_click=state.label, args=(resources, who, turn, grade),
        )  # fmt: skip
        column.caption(plain(rest))


def name_of(meaning: str) -> tuple[str, str]:
    """A grade's meaning as a short name and the rest: cut at the colon, else after its first word."""
    short, colon, rest = meaning.partition(":")
    return (short.strip(), rest.strip()) if colon else (meaning.split()[0] if meaning.split() else "", meaning)


def _others(one: Card | None, at_work: LabelQueue, resources: Resources, who: str) -> None:
    box, turn = st.container(horizontal=True, vertical_alignment="center"), state.turn()
    box.button(
        named("Undo", "U"), key="lb:undo", icon=":material/undo:", on_click=state.undo, args=(resources, at_work, who)
    )
    if one is not None:
        box.button(
            named("Skip", "S"), key=f"lb:skip:{turn}", icon=":material/skip_next:", on_click=state.skip,
            args=(resources, who, turn),
        )  # fmt: skip
        box.button(
            named("Query is unclear", "Q"), key=f"lb:unclear:{turn}", icon=":material/help_center:", on_click=state.unclear,
            args=(resources, who, turn), help="What it asks for cannot be told: all its cards are put aside for you.",
        )  # fmt: skip
        box.button(
            named("Note", "N"), key="lb:open_note", icon=":material/edit_note:", on_click=_toggle, args=("lb:noting",)
        )
    box.button(named("Help", "?"), key="lb:help", icon=":material/keyboard:", on_click=_toggle, args=("lb:helping",))
    box.caption(st.session_state.get(state.SAID) or "")
    if one is not None and st.session_state.get("lb:noting"):
        st.text_area(
            "Note",
            key=state.NOTE,
            height=80,
            placeholder="kept with the next label",
            help="Kept with the grade you give next.",
        )
    if st.session_state.get("lb:helping"):
        st.info(HELP, icon=":material/keyboard:")


def named(what: str, key: str) -> str:
    """A button's words with the key that presses it."""
    return f"{what} :gray-badge[{key}]"


def _toggle(key: str) -> None:
    st.session_state[key] = not st.session_state.get(key)


def _finished(progress: QueueProgress) -> None:
    if progress.left:
        st.info("Other reviewers look at what is left. Press Undo to change your last label, or come back in a minute.")
        return
    st.success(
        f"Nothing is left for you in this queue: {progress.graded} graded, {progress.skipped} skipped.",
        icon=":material/task_alt:",
    )
