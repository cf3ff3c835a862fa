"""Coverage on Memories: the turns left, the memories right, lines between them, in bands of sessions; a row picked shows both texts.

The rows are HTML with a fixed height, so that the server draws the lines; `ui/assets/coverage.js` tells which row was picked.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import streamlit as st
from streamlit.components.v2.types import ComponentRenderer
from streamlit.delta_generator import DeltaGenerator

from cems_workbench.analysis.supersession_signals import NEGATIONS
from cems_workbench.errors import InputError, counted
from cems_workbench.formats import detect
from cems_workbench.jobs.importing import upload
from cems_workbench.pipeline.resources import Resources
from cems_workbench.records import Memory
from cems_workbench.settings import Settings
from cems_workbench.ui.kit.html import asset, capital, excerpt, plain, write_stylesheet
from cems_workbench.ui.kit.html import draw as draw_template
from cems_workbench.ui.kit.session import is_kept, kept, require
from cems_workbench.ui.kit.views import View
from cems_workbench.ui.kit.widgets import cancellable, empty, errors_shown, remembered, switch
from cems_workbench.ui.memories import state
from workbench_transcripts.coverage import Reading
from workbench_transcripts.transcript import UNFIT, import_beside, opened_transcript, transcript_version
from workbench_transcripts.whole import Link, Stored, TranscriptCoverage, Turn, coverage_of

if TYPE_CHECKING:
    from streamlit.runtime.uploaded_file_manager import UploadedFile

FOUND, KEY = "memories:coverage:found", "memories:coverage:rows"
ROW, MOST_ROWS, MOST_PAIRS, WORDS = 24, 700, 6, 110
"""Height of a row in pixels, turns that are drawn at once, pairs of a picked row, and characters of a row's text."""
SIGNS = {
    "covered": "●",
    "supported": "●",
    "says otherwise": "≠",
    "cannot tell": "?",
    "nothing covers": "○",
    "nothing supports": "○",
    "says little": "·",
}
GAPS = ("nothing covers", "nothing supports", "says otherwise")
LINES = {"covers": "covers", "says otherwise": "otherwise", "cannot tell": "open"}
CONVERSATIONS = ("beam", "convomem", "locomo", "longmemeval", "messages")
"""Formats of what was said."""
ALL, WORST, AS_SAID = "everything", "most gaps first", "as they were said"
_WORD = re.compile(r"[€$£¥]?\w+(?:[.,:'’\-]\w+)*[%€$£¥]?")


@dataclass(frozen=True, slots=True)
class Row:
    """A turn or a memory as a row of a band."""

    id: str
    verdict: str
    words: str

    @property
    def sign(self) -> str:
        """Its verdict as a sign."""
        return SIGNS[self.verdict]

    @property
    def gap(self) -> bool:
        """Whether it is tinted."""
        return self.verdict in GAPS


@dataclass(frozen=True, slots=True)
class Line:
    """A link: its class, and the heights of its ends in pixels."""

    kind: str
    left: int
    right: int


@dataclass(frozen=True, slots=True)
class Band:
    """A session: its rows, and the lines between them."""

    name: str
    counts: str
    turns: Sequence[Row]
    memories: Sequence[Row]
    lines: Sequence[Line]

    @property
    def height(self) -> int:
        """In pixels."""
        return ROW * max(len(self.turns), len(self.memories), 1)


@cache
def _component() -> ComponentRenderer:
    return st.components.v2.component("cems_workbench.coverage", isolate_styles=False, js=asset("coverage.js"))


def open_import() -> None:
    """Have the Memories page open its view Import."""
    st.session_state[state.VIEW] = "Import"


def draw(resources: Resources, place: DeltaGenerator) -> None:
    """Draw the coverage of the store's transcript, or how to get one. Progress is drawn in `place`."""
    version = transcript_version(resources.store.path)
    if not version or not resources.store.memories.count():
        missing = "a transcript: a file of what was said" if not version else "memories"
        empty(
            "See what of a conversation the memories have",
            f"Import {missing}. Each turn is then compared with each memory.",
        )
        st.button("Import files", "memories:coverage:import", on_click=open_import, icon=":material/upload_file:")
        return
    key = (resources.store.path, resources.store.content_version, version)  # labels change nothing here
    asking: Any = {"icon": ":material/compare_arrows:", "type": "primary"}
    begin = st.empty()
    if not is_kept(FOUND, key, shared=True) and not begin.button(
        "Compare turns and memories", "memories:coverage:go", **asking
    ):
        st.caption(
            "Which turns no memory has, which memories no turn supports, and which say otherwise. It takes about as long as the import."
        )
        return
    begin.empty()
    with errors_shown():
        found = kept(FOUND, key, lambda: _found(resources, place), shared=True)
        with opened_transcript(resources, Settings()) as transcript:
            _draw(found, resources, transcript)


def _found(resources: Resources, place: DeltaGenerator) -> TranscriptCoverage:
    with (
        cancellable("memories:coverage:cancel", "Stops now; nothing is kept.", place=place) as progress,
        opened_transcript(resources, Settings()) as transcript,
    ):
        return coverage_of(resources, transcript, progress)


def _draw(found: TranscriptCoverage, resources: Resources, transcript: Resources) -> None:
    write_stylesheet("coverage")
    st.markdown(f"## {plain(found.title)}")
    st.caption(plain(" · ".join(found.lines)))
    draw_notes(found.notes)
    counts = Counter[str](turn.verdict for turn in found.turns) + Counter[str](one.verdict for one in found.memories)
    labels = {ALL: ALL} | {f"{gap} · {counts[gap]:,}": gap for gap in GAPS if counts[gap]}
    only = labels[switch("Rows", list(labels), "memories:coverage:only")]
    names = [name for name, _, _ in found.sessions]
    of_sessions, of_order = st.columns([4, 1.4], vertical_alignment="bottom")
    chosen = of_sessions.multiselect("Sessions", names, placeholder="all", **remembered("memories:coverage:sessions"))
    order = of_order.selectbox("Order", [WORST, AS_SAID], **remembered("memories:coverage:order"))
    said = list(dict.fromkeys(turn.session for turn in found.turns))
    wanted = [name for name in (names if order == WORST else said) if name in chosen or not chosen]
    bands, left = bands_of(found, wanted, only, resources, transcript)
    if not bands:
        st.caption("No row is so.")
        return
    draw_template("workbench_transcripts:coverage.html", bands=bands)
    if left:
        st.caption(f"{left:,} more sessions: choose them above.")
    _component()(key=KEY, on_pick_change=_pick)
    _draw_picked(found, resources, transcript)


def draw_notes(notes: Sequence[str]) -> None:
    """Draw notes on a comparison; that the transcript fits none of the memories as a warning."""
    for note in notes:
        if note.startswith(UNFIT):
            st.warning(plain(capital(note)), icon=":material/warning:")
        else:
            st.caption(plain(note))


def bands_of(
    found: TranscriptCoverage, sessions: Sequence[str], only: str, resources: Resources, transcript: Resources
) -> tuple[list[Band], int]:
    """The bands of these sessions with rows of this verdict and what is linked with them; and how many sessions did not fit."""
    turns, memories = defaultdict[str, list[Turn]](list), defaultdict[str, list[Stored]](list)
    linked = {link.turn for link in found.links if _shown(link, only)} | {
        link.memory for link in found.links if _shown(link, only)
    }
    for turn in found.turns:
        if only in (ALL, turn.verdict) or turn.id in linked:
            turns[turn.session].append(turn)
    for memory in found.memories:
        if only in (ALL, memory.verdict) or memory.id in linked:
            memories[memory.session].append(memory)
    names = [
        name
        for name in [*dict.fromkeys([*sessions, *(() if len(sessions) < len(found.sessions) else memories)])]
        if turns[name] or memories[name]
    ]
    drawn, rows = list[str](), 0
    for name in names:
        rows += max(len(turns[name]), len(memories[name]))
        if drawn and rows > MOST_ROWS:
            break
        drawn.append(name)
    said = transcript.store.memories.read([turn.id for name in drawn for turn in turns[name]])
    stored = resources.store.memories.read([one.id for name in drawn for one in memories[name]])
    links = defaultdict[str, list[Link]](list)
    for link in found.links:
        links[link.turn].append(link)
    return [_band(name, turns[name], memories[name], said, stored, links) for name in drawn], len(names) - len(drawn)


def _shown(link: Link, only: str) -> bool:
    return only == "says otherwise" == link.coverage


def _band(
    name: str,
    turns: Sequence[Turn],
    memories: Sequence[Stored],
    said: Mapping[str, Memory],
    stored: Mapping[str, Memory],
    links: Mapping[str, Sequence[Link]],
) -> Band:
    left = [Row(turn.id, turn.verdict, excerpt(said[turn.id].content, WORDS)) for turn in turns if turn.id in said]
    right = [Row(one.id, one.verdict, excerpt(stored[one.id].content, WORDS)) for one in memories if one.id in stored]
    at = {row.id: i for i, row in enumerate(right)}
    lines = [
        Line(
            f"wb-cov-{LINES[link.coverage]}{' wb-cov-recorded' if link.recorded else ''}",
            ROW * i + ROW // 2,
            ROW * at[link.memory] + ROW // 2,
        )
        for i, row in enumerate(left)
        for link in links.get(row.id, ())
        if link.memory in at and link.coverage in LINES
    ]
    counts = Counter(row.verdict for row in (*left, *right))
    gaps = [f"{counts[gap]:,} {gap}" for gap in GAPS if counts[gap]]
    return Band(name, " · ".join([f"{len(left):,} turns, {len(right):,} memories", *gaps]), left, right, lines)


def _pick() -> None:
    picked = st.session_state[KEY].get("pick")
    if isinstance(picked, str):
        st.session_state["memories:coverage:picked"] = picked


def _draw_picked(found: TranscriptCoverage, resources: Resources, transcript: Resources) -> None:
    """Draw the picked turn or memory beside what it is linked with."""
    picked = st.session_state.get("memories:coverage:picked", "")
    side, name = picked[:1], picked[1:]
    rows: Sequence[Turn | Stored] = found.turns if side == "t" else found.memories
    verdicts = {one.id: one.verdict for one in rows}
    if name not in verdicts:
        st.caption("Click a turn or a memory to see both texts side by side; arrow keys move, Enter picks.")
        return
    links = [link for link in found.links if name == (link.turn if side == "t" else link.memory)]
    links = sorted(links, key=lambda link: list(LINES).index(link.coverage) if link.coverage in LINES else len(LINES))[
        :MOST_PAIRS
    ]
    pairs: list[tuple[str, str, Link | None]] = [(link.turn, link.memory, link) for link in links] or [
        (name, "", None) if side == "t" else ("", name, None)
    ]
    said = transcript.store.memories.read([turn for turn, _, _ in pairs if turn])
    stored = resources.store.memories.read([memory for _, memory, _ in pairs if memory])
    reading = Reading(lambda _: 1.0, resources.store.language.current, resources.indexes.lexical.language)
    for turn_id, memory_id, link in pairs:
        turn, memory = said.get(turn_id), stored.get(memory_id)
        if link is None:
            verdict = (
                verdicts[name]
                if side == "m"
                else {"nothing covers": "No memory covers this turn."}.get(verdicts[name], verdicts[name])
            )
        else:
            verdict = f"{link.coverage}{', recorded' if link.recorded else ', inferred'}: {link.reason}"
        draw_template(
            "workbench_transcripts:coverage_pair.html",
            turn=turn,
            memory=memory,
            verdict=verdict,
            said=marked(turn, memory, reading),
            stored=marked(memory, turn, reading),
        )
        if memory is not None:
            st.button(
                "Open in Browse",
                f"memories:coverage:open:{memory_id}",
                on_click=state.show_in_browse,
                args=(memory_id,),
            )


def marked(text: Memory | None, beside: Memory | None, reading: Reading) -> list[tuple[str, str]]:
    """A text in pieces, each with "same" where the other text has its words, "other" for a value or a negation that it has not, or ""."""
    if text is None:
        return []
    theirs = reading.terms(beside.content) if beside else set[str]()
    pieces, end = list[tuple[str, str]](), 0
    for match in _WORD.finditer(text.content):
        kind, terms = "", reading.terms(match[0])
        if beside and terms:
            kind = "same" if terms <= theirs else "other" if any(char.isdecimal() for char in match[0]) else ""
        if beside and not kind and match[0].lower() in NEGATIONS and not NEGATIONS & {*beside.content.lower().split()}:
            kind = "other"
        pieces += [(text.content[end : match.start()], ""), (match[0], kind)]
        end = match.end()
    joined = list[tuple[str, str]]()
    for piece, kind in [*pieces, (text.content[end:], "")]:
        if joined and joined[-1][1] == kind:
            joined[-1] = (joined[-1][0] + piece, kind)
        elif piece:
            joined.append((piece, kind))
    return joined


def offer(files: Sequence[UploadedFile], resources: Resources, place: DeltaGenerator) -> None:
    """Offer to import the chosen files that are conversations as what was said. Progress is drawn in `place`."""
    key = tuple((file.file_id, file.name) for file in files)
    spoken = kept(
        "memories:transcript:forms", key, lambda: [(file, form) for file in files if (form := _conversation(file))]
    )
    if done := st.session_state.pop("memories:transcript:done", ""):
        st.success(plain(done), icon=":material/forum:")
    if not spoken:
        return
    names = ", ".join(plain(file.name) for file, _ in spoken)
    text, button = st.columns([4, 1.4], vertical_alignment="center")
    text.info(
        f"{names}: a conversation. What was said stands beside the memories, and no search returns it.",
        icon=":material/forum:",
    )
    of_button: Any = {"type": "primary", "width": "stretch"}
    if not button.button("Import as what was said", "memories:transcript:import", **of_button):
        return
    require("operator")
    with errors_shown():
        lines = []
        for file, form in spoken:
            with (
                upload(file.name, file.getvalue()) as path,
                resources.changing(),
                cancellable(
                    "memories:transcript:cancel", "Stops now; what was imported stays.", place=place
                ) as progress,
            ):
                found, left, _ = import_beside(path, form, resources, Settings(), progress)
            turns = sum(report.counts["memories"].total for report in found.reports)
            wrong = len(found.errors) + len(left)
            lines.append(
                f"{file.name}: {turns:,} turns"
                + (f", {counted(wrong, 'rows')} left out: {[*found.errors, *left][0]}" if wrong else "")
            )
        st.session_state["memories:transcript:done"] = f"Imported as what was said. {'; '.join(lines)}. See Coverage."
        st.rerun()


def _conversation(file: UploadedFile) -> str:
    """The form of a file if it is a conversation; empty if it is another, or none."""
    with suppress(InputError), upload(file.name, file.getvalue()) as path:
        form = detect(path)
        return form if form in CONVERSATIONS else ""
    return ""


OFFER = View("What was said", 10, offer)
VIEW = View("Coverage", 45, draw)
