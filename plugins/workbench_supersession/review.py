"""Review of proposed supersessions: two memories side by side, the older left, and whether the right one replaces it.

Nothing is stored before a verdict; an accepted pair is a relation `supersedes` under the reviewer's name. The pair is a fragment, so that
a key press reruns only the pair. Keys press its buttons (`ui/assets/label_keys.js`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import streamlit as st
from markupsafe import Markup

from cems_workbench.analysis.proposed_edges import MINIMUM, ProposedEdge
from cems_workbench.analysis.supersession_signals import Field, Span
from cems_workbench.errors import InputError, WorkbenchError, counted
from cems_workbench.jobs.foreground import FOREGROUND
from cems_workbench.pipeline.resources import Resources
from cems_workbench.records import Memory
from cems_workbench.store.relations import SupersessionDecision, Verdict
from cems_workbench.ui.kit import session as reviewers
from cems_workbench.ui.kit.html import plain, render, write_script
from cems_workbench.ui.kit.session import PageState
from cems_workbench.ui.kit.views import View
from cems_workbench.ui.kit.widgets import cancellable
from cems_workbench.ui.label.card import (
    Answer,
    draw_answers,
    draw_help,
    draw_lost_connection,
    in_parts,
    progress_bar,
    with_key,
)
from workbench_supersession.proposals import SupersessionReport, proposed_edges
from workbench_supersession.source_script import script_of

MOST = 500
"""Pairs of a review, best first."""
KEYS_HELP = (
    "**A** accepts: the right memory replaces the left one. **X** rejects; the pair is never proposed again. **W** accepts the other way "
    "round: the left one replaces the right one. **S** skips the pair, for you. **U** undoes your last decision. **↑ ↓** scroll long "
    "memories, **?** or **H** shows and hides this help. Each decision is on disk before the next pair appears."
)
_DONE = {"accepted": "Accepted.", "rejected": "Rejected.", "skipped": "Skipped."}


@dataclass(frozen=True, slots=True, eq=False)
class ReviewState:
    """What the view remembers between reruns: proposals of a store, and the pair shown."""

    store: str = ""
    found: SupersessionReport | None = None
    pair: frozenset[str] | None = None
    pair_no: int = 0
    """Number of the pair, part of its buttons' keys, so that a late press cannot reach another pair."""
    message: str = ""
    problem: str = ""
    help_open: bool = False
    decided: tuple[SupersessionDecision, ...] = ()
    """What was decided in this window, which undo takes back first, the last one first."""


_view = PageState("label-superseded", ReviewState)
present, update = _view.get, _view.update


def draw(resources: Resources) -> None:
    """Draw the reviewer's name, the search for pairs, and the pair."""
    write_script("label_keys")  # before the pair, so that no early key press is lost
    name_box, minimum_box, button_box = st.columns([2, 2, 1.4], vertical_alignment="bottom")
    with name_box:
        reviewers.ask()
    help = "Pairs with a lower score are not shown: lower finds more, of which fewer are right."
    of: Any = {"key": "label:superseded:minimum", "help": help}
    minimum = minimum_box.number_input("Minimum score", 0.0, 1.0, MINIMUM, 0.05, **of)
    asked = button_box.button("Find pairs", key="label:superseded:find", width="stretch", icon=":material/search:")
    if asked:
        update(found=None, pair=None, message="", problem="")
        with cancellable("label:superseded:cancel", "Stops now; decisions are kept.") as progress:
            resources.store.supersessions.apply()
            resources.refresh(progress)
            pairs = proposed_edges(resources, most=MOST, minimum=minimum, progress=progress)
            update(store=str(resources.store.path), found=pairs)
    found = present().found if present().store == str(resources.store.path) else None
    if found is None:
        st.info(
            "Finds pairs of memories of which the later one may replace the earlier one, from their texts and dates. "
            "Press Find pairs; nothing changes until you accept a pair.",
            icon=":material/published_with_changes:",
        )
    else:
        st.caption(plain(" · ".join([found.title, *found.notes])))
    name = reviewers.reviewer()
    if found is not None and name is None:
        how = "Sign in" if reviewers.sign_in_configured() else "Enter your name"
        st.info(f"{how} above to start.", icon=":material/badge:")
    if found is None or name is None:
        _draw_script(resources)
    else:
        _draw(found, resources, name)


@st.fragment
def _draw(found: SupersessionReport, resources: Resources, name: str) -> None:
    with FOREGROUND.foreground_work():
        shown = present()
        if shown.problem:
            st.error(plain(shown.problem), icon=":material/block:")
        try:
            pending, counts = review_of(found, resources, name)
            dealt = _deal(pending, resources)
        except WorkbenchError as error:  # the page's handler does not run when only the fragment reruns
            draw_lost_connection(error, "label:superseded:again")
            return
        total = len(found.edges)
        share = 100 * (total - len(pending)) / total if total else 100
        skipped = [f"{counts['skipped']} skipped"] if counts["skipped"] else []
        earlier = before(found, resources)
        parts = [f"{counts['rejected']} rejected", *skipped, f"{len(pending)} left", *earlier]
        progress = progress_bar(share, f"{counts['accepted']}", "accepted", parts)
        if dealt is not None:
            edge, older, newer = dealt
            # One element, so that the browser never shows a new count with an old pair.
            st.html(progress + pair_html(edge, older, newer, present().pair_no))
            _draw_answers(edge, resources, name)
        else:
            st.html(progress)
            if found.edges:
                done = ", ".join(f"{counts[verdict]} {verdict}" for verdict in ("accepted", "rejected", "skipped"))
                st.success(f"Nothing is left for you: {done}.", icon=":material/task_alt:")
            else:
                more = "further pair" if earlier else "pair"
                words = f"No {more} reaches the minimum score. Lower it to see weaker ones."
                st.info(words, icon=":material/task_alt:")
        _draw_script(resources)
        box = st.container(horizontal=True, vertical_alignment="center")
        common: dict[str, Any] = {"icon": ":material/undo:", "on_click": undo, "args": (resources, name)}
        box.button(with_key("Undo", "U"), key="label:undo", **common)
        box.button(with_key("Help", "?"), key="label:help", icon=":material/keyboard:", on_click=toggle_help)
        box.caption(plain(present().message))
        if present().help_open:
            draw_help(KEYS_HELP, toggle_help)


def review_of(found: SupersessionReport, resources: Resources, name: str) -> tuple[list[ProposedEdge], Counter[str]]:
    """What is left for a reviewer, in order, and the counts of verdicts. Raises StoreError if the team's database is unreachable."""
    supersessions = resources.store.supersessions
    verdicts: dict[frozenset[str], str] = {one.pair: "skipped" for one in supersessions.skipped(name)}
    verdicts |= {one.pair: one.verdict for one in supersessions.standing()}
    pending = [edge for edge in found.edges if edge.pair not in verdicts]
    return pending, Counter(verdicts[edge.pair] for edge in found.edges if edge.pair in verdicts)


def before(found: SupersessionReport, resources: Resources) -> list[str]:
    """How many pairs were decided before these were looked for, by verdict: those are not proposed again."""
    proposed = {edge.pair for edge in found.edges}
    counts = Counter(one.verdict for one in resources.store.supersessions.standing() if one.pair not in proposed)
    return [f"{counts[verdict]} {verdict} before" for verdict in ("accepted", "rejected") if counts[verdict]]


def _draw_script(resources: Resources) -> None:
    """Draw the download of the script for all pairs accepted so far, of anybody, where their source takes one."""
    with suppress(InputError):  # nothing is accepted, or its source takes no script
        text, count = script_of(resources.store)
        help = "Python: prints what would change; --apply changes it, --undo puts back what was there."
        words = f"Script that retires {counted(count, 'memories')} where they are from"
        icon = ":material/download:"
        st.download_button(words, text, "retire.py", key="label:superseded:script", help=help, icon=icon)


def _deal(pending: Sequence[ProposedEdge], resources: Resources) -> tuple[ProposedEdge, Memory, Memory] | None:
    """The pair shown and its memories as they are now, older first; the shown one stays while it is pending."""
    shown = present()
    for edge in sorted(pending, key=lambda edge: edge.pair != shown.pair):
        texts = resources.store.memories.read([edge.older, edge.newer])
        if len(texts) == 2:  # neither was deleted meanwhile
            if edge.pair != shown.pair:
                update(pair=edge.pair, pair_no=shown.pair_no + 1)
            return edge, texts[edge.older], texts[edge.newer]
    return None


def pair_html(edge: ProposedEdge, older: Memory, newer: Memory, pair_no: int) -> Markup:
    """The two memories with their dates and the marked parts, and the reasons."""
    sides = [("Older", older, edge.signals.older_spans, ""), ("Newer", newer, edge.signals.newer_spans, edge.later)]
    return render(
        "workbench_supersession:superseded.html", pair_no=f"p{pair_no}", edge=edge, sides=sides, marked=marked_parts
    )


def marked_parts(text: str, spans: Sequence[Span], field: Field) -> list[tuple[str, bool]]:
    """The text in parts, each with whether a span of this field marks it."""
    return in_parts(text, [(span.start, span.end) for span in spans if span.field == field])


def _draw_answers(edge: ProposedEdge, resources: Resources, name: str) -> None:
    number = present().pair_no
    answers: list[Answer] = [
        ("accept", "Accept", "A", ("accepted",), "The newer memory replaces the older one."),
        ("reject", "Reject", "X", ("rejected",), "Neither replaces the other."),
        ("swap", "Other way", "W", ("accepted", True), "The older memory replaces the newer one."),
        ("skip", "Skip", "S", ("skipped",), "Leave the pair to others."),
    ]
    draw_answers(answers, f"p{number}", partial(decide, resources, name, number, edge))


def decide(
    resources: Resources, name: str, pair_no: int, edge: ProposedEdge, verdict: Verdict, swapped: bool = False
) -> None:
    """Save a verdict on the pair shown; the next one is dealt once it is on disk."""
    if present().pair_no != pair_no:
        update(message="Ignored: that pair is no longer shown.")
        return
    newer, older = (edge.older, edge.newer) if swapped else (edge.newer, edge.older)
    try:
        reviewers.require("reviewer")
        meanwhile = resources.store.supersessions.standing_of(edge.pair)
        given = resources.store.supersessions.decide(newer, older, verdict, name, edge.why)
    except WorkbenchError as error:
        update(problem=str(error), pair_no=pair_no + 1)  # the pair stays, and can be answered again
        return
    message = f"Accepted the other way round: {newer} replaces {older}." if swapped else _DONE[verdict]
    if meanwhile is not None:
        message += (
            f" In another window {meanwhile.author} had {meanwhile.verdict} this pair; undo makes that count again."
        )
    update(pair=None, problem="", message=message, decided=(*present().decided, given))


def undo(resources: Resources, name: str) -> None:
    """Undo the last decision of this window, else the reviewer's last one, and show its pair again, if it is among the proposals."""
    with _view.guarded("reviewer"):
        *earlier, own = present().decided or (None,)
        undone = resources.store.supersessions.undo(own.author if own else name, own)
        update(decided=tuple(earlier))
        if undone is None:
            update(message="There is nothing to undo." if own is None else "It was undone in another window.")
            return
        found, words = present().found, "Undone." if own else "Undone: your last decision, of another window."
        if (now := resources.store.supersessions.standing_of(undone.pair)) is not None:
            words += f" The pair stays {now.verdict}, as {now.author} decided."
        elif found is None or all(undone.pair != edge.pair for edge in found.edges):
            words += f" Find pairs again to see {undone.newer} and {undone.older}."
        update(pair=undone.pair, pair_no=present().pair_no + 1, message=words, problem="")


def toggle_help() -> None:
    """Show or hide the help."""
    update(help_open=not present().help_open)


VIEW = View("Superseded", 30, draw)
