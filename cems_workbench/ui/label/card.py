"""Label card: a query, the full memory, and grades as buttons and keys. Blind: no rank, score, config or other grades.

The card is a fragment, so that a key press reruns only the card. Keys press the card's buttons (`ui/assets/label_keys.js`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import streamlit as st
from markupsafe import Markup

from cems_workbench.analysis.memory_names import with_names
from cems_workbench.analysis.supersession import stored_standings
from cems_workbench.errors import WorkbenchError, counted
from cems_workbench.evaluation.labelling.queue import Card, LabelQueue, QueueProgress
from cems_workbench.jobs.foreground import FOREGROUND
from cems_workbench.pipeline.resources import Resources
from cems_workbench.records import ENGLISH, GradeScale, Memory
from cems_workbench.store.search.tokenizer import stop_words
from cems_workbench.ui.kit.html import capital, plain, render
from cems_workbench.ui.kit.tables import HELP
from cems_workbench.ui.label import state

_WORD = re.compile(r"\w+")
CARD_WIDTH_PX = 900
"""Pixels; longer lines are hard to read."""
MIN_MARKED_CHARS = 3
"""Minimum length of a marked word: shorter ones occur in every text."""
DECIDED = "decided"
Answer = tuple[str, str, str, tuple[Any, ...], str]
"""An answer to a pair of memories: its name in label_keys.js, words, key, what a press hands on, and help."""
MOVE_ANSWERS: tuple[Answer, ...] = (
    ("accept", "Accept", "A", ("accept",), "It states what was judged: the labels move to it, each with its author."),
    ("reject", "Reject", "X", ("reject",), "It states something else: the labels stay where they are."),
)
OTHERS_HOLD = (
    "Other reviewers hold the remaining cards. Press Undo to change your last label, or come back in a minute."
)


@st.fragment
def draw(queue: LabelQueue, resources: Resources, reviewer: str, draw_end: Callable[[LabelQueue], None]) -> None:
    """Draw the current card with its buttons and keys, or that none is left, and then what `draw_end` does."""
    with FOREGROUND.foreground_work(), st.container(width=CARD_WIDTH_PX):
        if state.present().problem:
            st.error(plain(state.present().problem), icon=":material/block:")
        try:
            card, snapshot = state.card(queue, reviewer)
        except WorkbenchError as error:  # the page's handler does not run when only the fragment reruns
            if str(error) != state.present().problem:
                draw_lost_connection(error, "label:again")
            return
        shown = state.present()
        progress = queue.progress(reviewer, snapshot)
        # One element, so that the browser never shows a new count with an old card.
        said = f"{DECIDED} by you" if queue.moves else "graded by you"
        st.html(progress_html(progress, said) + ("" if card is None else drawn_card(card, shown.card_no, resources)))
        if card is not None:
            answer = partial(state.answer, resources, reviewer, shown.card_no)
            if queue.moves:
                draw_answers(MOVE_ANSWERS, f"{shown.card_no}", answer)
            else:
                draw_grades(queue.scale(card.query.qid), shown.card_no, answer)
        elif progress.left:
            st.info(OTHERS_HOLD)
        else:
            done = f"{progress.graded} {DECIDED if queue.moves else 'graded'}, {progress.skipped} skipped"
            st.success(f"Nothing is left for you in this queue: {done}.", icon=":material/task_alt:")
            draw_end(queue)
        _draw_other_buttons(card, queue, resources, reviewer)
        if shown.help_open:
            scale = None if card is None else queue.scale(card.query.qid)
            draw_help(HELP["label:moves"] if queue.moves else help_text(scale), partial(state.update, help_open=False))


def draw_lost_connection(error: WorkbenchError, key: str) -> None:
    """Draw why nothing can be read, and a button to try again."""
    st.error(plain(str(error)), icon=":material/cloud_off:")
    st.button("Try again", key=key, icon=":material/refresh:")


def drawn_card(card: Card, card_no: int, resources: Resources) -> Markup:
    """`card_html` now, with the memory that superseded this one when the query was asked, or when it had expired: no rank, so the card
    stays blind."""
    relations, now = resources.store.relations, datetime.now(UTC)
    edges = relations.superseding([card.memory.id])
    standing = stored_standings([card.memory], edges, card.query.as_of or now).get(card.memory.id, "")
    (standing,) = with_names([standing], resources.store)
    return card_html(card, card_no, now, resources.store.language.current, standing)


def card_html(card: Card, card_no: int, now: datetime, language: str = ENGLISH, standing: str = "") -> Markup:
    """The query with its context, and the memory with the query's words marked; a query without a date gets `now`.
    `standing` says that the memory is superseded or has expired."""
    query, memory = card.query, card.memory
    if card.judged:
        return move_html(card, card_no, standing)
    asked = f"asked {query.as_of:%Y-%m-%d}" if query.as_of else f"asked today, {now:%Y-%m-%d}"
    return render(
        "label/card.html",
        card_no=card_no,
        card=card,
        asked=asked,
        written=dates_text(memory, query.as_of or now),
        standing=standing,
        content=mark_words(memory.content, query.query, language),
    )


def move_html(card: Card, card_no: int, standing: str = "") -> Markup:
    """The text as it was judged beside the memory that may have it, with the words that the other one lacks marked."""
    here, judged = card.memory.content, "\n\n".join(card.judged.values())
    words = [{word.casefold() for word in _WORD.findall(text)} for text in (judged, here)]
    sides = []
    for title, text, other in (("As it was judged", judged, words[1]), ("This memory now", here, words[0])):
        lacking = [match.span() for match in _WORD.finditer(text) if match[0].casefold() not in other]
        sides.append((title, in_parts(text, lacking)))
    ids = ", ".join(card.judged), card.memory.id
    return render("label/move.html", card=card, card_no=card_no, sides=sides, ids=ids, standing=standing)


def dates_text(memory: Memory, asked: datetime) -> str:
    """When a memory was written and changed, and how long before the query: reviewers judge whether it is outdated."""
    if memory.created_at is None:
        return "no date"
    parts = [f"written {memory.created_at:%Y-%m-%d}"]
    changed = memory.updated_at
    if changed is not None and changed.date() > memory.created_at.date():
        parts.append(f"changed {changed:%Y-%m-%d}")
    days = (asked.date() - memory.created_at.date()).days
    if days == 0:
        parts.append("on the day of the query")
    else:
        parts.append(f"{counted(abs(days), 'days')} {'before' if days > 0 else 'after'} the query")
    return ", ".join(parts)


def help_text(scale: GradeScale | None) -> str:
    """The meanings of grades and keys."""
    meanings = {} if scale is None else dict(scale.grades)
    grades = "  \n".join(
        f"**{grade}**{_key_of(grade, meanings)} {plain(meaning)}" for grade, meaning in meanings.items()
    )
    return "\n\n".join(part for part in (grades, HELP["label:keys"]) if part)


def _key_of(grade: int, grades: Container[int]) -> str:
    """The key of a grade that is no single digit, as label_keys.js has it."""
    if 0 <= grade <= 9:
        return ""
    if -9 <= grade < 0:
        return f" (keys **Shift {-grade}**)"
    return " (key **0**)" if grade == 10 and 0 not in grades else " (no key)"


def mark_words(text: str, query: str, language: str = ENGLISH) -> list[tuple[str, bool]]:
    """The text in parts, each with whether it is a query word (ignoring case); stop words only if the query has no others."""
    asked = {word.casefold() for word in _WORD.findall(query) if len(word) >= MIN_MARKED_CHARS}
    wanted = asked - stop_words(language) or asked
    return in_parts(text, [match.span() for match in _WORD.finditer(text) if match[0].casefold() in wanted])


def in_parts(text: str, spans: Iterable[tuple[int, int]]) -> list[tuple[str, bool]]:
    """The text in parts, each with whether it is marked; overlapping spans are one, those beyond the text are cut."""
    parts: list[tuple[str, bool]] = []
    end = 0
    for first, last in sorted(spans):
        start, stop = max(first, end), min(last, len(text))
        if start < stop:
            parts += [(text[end:start], False), (text[start:stop], True)]
            end = stop
    return [(part, is_marked) for part, is_marked in (*parts, (text[end:], False)) if part]


def progress_html(progress: QueueProgress, said: str = "graded by you") -> Markup:
    """Progress bar and line: labels done, pace, and time left."""
    done = progress.total - progress.left if progress.total else 0
    share = 100 * done / progress.total if progress.total else 100
    parts = [f"{progress.left} left for you", f"{progress.done_by_all} of {progress.total} done by all"]
    parts += [f"{progress.skipped} skipped"] if progress.skipped else []
    parts += [f"{progress.unclear} queries unclear"] if progress.unclear else []
    count = progress.without_answer
    parts += [f"{count} {'query' if count == 1 else 'queries'} without an answer"] if count else []
    if progress.seconds_per_label is not None and progress.left:
        minutes = (progress.seconds_left or 0) / 60
        parts.append(f"{pace_text(progress.seconds_per_label)} per card, about {max(1, round(minutes))} min left")
    return progress_bar(share, f"{progress.graded}", said, parts)


def pace_text(seconds: float) -> str:
    """ "12 s" a card, or "under 1 s"."""
    return "under 1 s" if seconds < 1 else f"{seconds:.0f} s"


def progress_bar(share: float, count: str, of: str, parts: Sequence[str]) -> Markup:
    """A bar of `share` percent, and a line that begins with a count."""
    return render("label/progress.html", share=f"{share:.1f}", count=count, of=of, parts=parts)


def draw_answers(answers: Sequence[Answer], number: str, press: Callable[..., None]) -> None:
    """One button per answer to a pair of memories; `press` gets its arguments."""
    columns = st.container(key="label:grades").columns(len(answers))
    for column, (name, words, letter, given, about) in zip(columns, answers, strict=True):
        common: dict[str, Any] = {"on_click": press, "args": given, "width": "stretch", "help": about}
        column.button(with_key(words, letter), key=f"label:{name}:{number}", **common)


def draw_grades(scale: GradeScale, card_no: int, press: Callable[[int], None]) -> None:
    """One button per grade, with its meaning; its key is the grade, Shift and the digit for a negative one, 0 for 10."""
    columns = st.container(key="label:grades").columns(len(scale.grades))
    for column, (grade, meaning) in zip(columns, scale.grades, strict=True):
        name, rest = split_meaning(meaning)
        column.button(
            f"**{grade}** {plain(name)}",
            key=f"label:grade:{grade}:{card_no}",
            width="stretch",
            on_click=press,
            args=(grade,),
        )
        column.caption(plain(capital(rest)))


def split_meaning(meaning: str) -> tuple[str, str]:
    """A grade's meaning as a short name and the rest: split at the colon, else after the first word."""
    short, colon, rest = meaning.partition(":")
    return (short.strip(), rest.strip()) if colon else (meaning.split()[0] if meaning.split() else "", meaning)


def _draw_other_buttons(card: Card | None, queue: LabelQueue, resources: Resources, reviewer: str) -> None:
    box, shown = st.container(horizontal=True, vertical_alignment="center"), state.present()
    undo: dict[str, Any] = {"on_click": state.undo, "args": (resources, queue, reviewer)}
    box.button(with_key("Undo", "U"), key="label:undo", icon=":material/undo:", **undo)
    if card is not None:
        unclear = "It is not clear what the query asks for: you get no more cards of it."
        nothing = "Nothing in the store answers the query. Saved with the memories you looked at; you get no more cards of it."
        rows: tuple[tuple[str, str, str, str, state.Press, str | None], ...] = (
            ("Skip", "S", "skip", ":material/skip_next:", "skip", None),
            ("Query is unclear", "Q", "unclear", ":material/help_center:", "unclear", unclear),
            ("Nothing answers this", "X", "nothing", ":material/block:", "no answer", nothing),
        )
        for words, key, name, icon, press, help in rows[: 1 if queue.moves else None]:
            common: dict[str, Any] = {"on_click": state.answer, "args": (resources, reviewer, shown.card_no, press)}
            box.button(with_key(words, key), key=f"label:{name}:{shown.card_no}", icon=icon, help=help, **common)
        if not queue.moves:
            toggle = partial(state.update, note_open=not shown.note_open)
            box.button(with_key("Note", "N"), key="label:open_note", icon=":material/edit_note:", on_click=toggle)
    box.button(
        with_key("Help", "?"),
        key="label:help",
        icon=":material/keyboard:",
        on_click=partial(state.update, help_open=not shown.help_open),
    )
    box.caption(shown.message)
    if card is not None and shown.note_open and not queue.moves:
        hint, help = "saved with the next label", "Saved with your next grade."
        st.text_area("Note", key=state.NOTE, height=80, placeholder=hint, help=help)


def draw_help(text: str, toggle: Callable[[], None]) -> None:
    """Draw an overlay, last: always visible, and nothing else moves when it opens or closes."""
    box = st.container(key="label:keys")
    box.info(text, icon=":material/keyboard:")
    box.button("Close the help", key="label:keys:close", icon=":material/close:", type="tertiary", on_click=toggle)


def with_key(words: str, key: str) -> str:
    """A button label with its key."""
    return f"{words} :gray-badge[{key}]"
