"""What was said: where the questions of a set lose their facts, as one picture, and each with the turn and the memory side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import streamlit as st

from cems_workbench.config import PipelineConfig
from cems_workbench.jobs.background import BackgroundWork
from cems_workbench.jobs.factory import open_filled
from cems_workbench.jobs.foreground import FOREGROUND
from cems_workbench.jobs.importing import upload
from cems_workbench.jobs.query_set_evidence import request_for
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Progress
from cems_workbench.settings import Settings
from cems_workbench.ui.evaluate.state import config_options
from cems_workbench.ui.inspect.state import open_in_inspect
from cems_workbench.ui.kit.address import go
from cems_workbench.ui.kit.charts import LIST_COLOURS, draw_chart, layout
from cems_workbench.ui.kit.html import plain, render
from cems_workbench.ui.kit.tables import Column, draw_values, pick_row
from cems_workbench.ui.kit.views import View
from cems_workbench.ui.kit.widgets import empty, errors_shown, remembered, switch, watch_work
from workbench_transcripts.answers import read_answers
from workbench_transcripts.coverage_view import draw_notes, open_import
from workbench_transcripts.transcript import opened_transcript, transcript_version
from workbench_transcripts.ways import PLACES, Between, Place, Way, Ways, first_lost, ways_of

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

Found: TypeAlias = tuple[Ways, Between | None]
ABOUT = (
    "Follows each question from the turn that says its answer to what was answered: never said, not written, written wrongly, gone, lost "
    "in retrieval, or returned. Takes seconds to minutes; it goes on while you look at other pages."
)
SETS = "Query sets whose queries have a right answer."
CONFIGS = "The memories are ranked under it, to tell what is lost in retrieval."
ANSWERS = "CSV, JSON lines or JSON with a question or qid and an answer: tells what was returned and not used."
OTHER = "A folder that `import` filled from the same conversations: shows what each store loses that the other has."
FORMS = ["json", "jsonl", "csv"]
LIGHT, DARK, GREY = "#ffffff", "#10151d", "#9aa4b2"
COLOURS = {
    place: (GREY if at is None else LIST_COLOURS[at], LIGHT if at in (0, 3, 6, 7) else DARK)
    for place, at in zip(PLACES, (7, 6, 1, 3, 2, 4, 5, None, 0), strict=True)
}
"""The colours of a bar and of the number in it by place; a place that nobody can tell is grey."""
NUMBER = "workbench_transcripts:bar_number.html"
ROWS: list[Column[Way]] = [
    Column("question", lambda way: way.query.query, 300),
    Column("answer", lambda way: way.query.answer, 140),
    Column("type", lambda way: way.query.type, 90),
    Column("what happened", lambda way: way.reason, 420),
]


@dataclass(eq=False)
class BackgroundWays(BackgroundWork):
    """Follows the questions of a set; `found` is what came of it, for the choices `key`."""

    key: object
    follow: Callable[[Progress], Found]
    found: Found | None = None

    THREAD: ClassVar[str] = "ways"
    STOPPED: ClassVar[str] = "It was stopped before it had followed all questions."

    def work(self) -> None:
        """Follow them, at a pause of the pages."""
        self.found = self.follow(self._watch)

    def _watch(self, label: str, done: int, total: int) -> None:
        FOREGROUND.wait_while_busy()
        super()._watch(label, done, total)


@st.cache_resource(show_spinner=False)
def _works() -> dict[str, BackgroundWays]:
    """The last work of each open store, by its folder; shared by all sessions."""
    return {}


def draw(resources: Resources) -> None:
    """Draw the choice of a set and a config, and where its questions lose their facts."""
    imported = transcript_version(resources.store.path)
    known = resources.store.query_sets.latest() if imported else []
    sets = [one.name for one in known if any(query.answer for query in resources.store.query_sets.queries(one.name))]
    if not sets:
        text = "Import what was said, a file of a conversation, and queries with the right answer: docs/use/ways.md."
        empty("See where each question loses its fact, from the turn to the answer", text)
        if st.button("Import files", "evaluate:ways:import", on_click=open_import, icon=":material/upload_file:"):
            go("pages/memories.py")
        return None
    configs = config_options(resources).configs
    st.caption(ABOUT)
    of_set, of_config, of_file = st.columns([2, 2, 3])
    name = of_set.selectbox("Questions", sets, **remembered("evaluate:ways:set", SETS))
    config = configs[of_config.selectbox("Config", list(configs), **remembered("evaluate:ways:config", CONFIGS))]
    file = of_file.file_uploader("What the system answered, if known", FORMS, key="evaluate:ways:file", help=ANSWERS)
    of_other: Any = {"placeholder": "/data/raw-turns (a store’s folder)", **remembered("evaluate:ways:other", OTHER)}
    other = st.text_input("Another store of the same transcript, such as its raw turns", **of_other).strip()
    # Not by the version of the whole store: scores that are kept meanwhile are writes too.
    read = (
        resources.store.content_version,
        resources.store.query_sets.queries(name),
        resources.store.supersessions.standing(),
    )
    key = (*read, imported, name, config, file and file.getvalue(), other)
    store, told = str(resources.store.path), None if file is None else (file.name, file.getvalue())
    at_work = _works().get(store)
    if at_work is not None and not at_work.over:
        watch_work(_works, store, "evaluate:ways:cancel", "{done} of {total} steps", "Stop")
        return None
    if at_work is None or at_work.key != key or at_work.found is None:
        if at_work is not None and at_work.key == key:
            st.error(plain(at_work.problem), icon=":material/block:")
        if st.button("Follow the facts", "evaluate:ways:go", icon=":material/route:", type="primary"):
            follow = partial(_followed, name, config, told, other, resources)
            _works()[store] = BackgroundWays(key, follow).start()
            st.rerun()
        return None
    found, between = at_work.found
    with errors_shown():
        if between is not None:
            _draw_between(between)
        _draw(found, config, resources)
    return None


def _followed(
    name: str,
    config: PipelineConfig,
    told: tuple[str, bytes] | None,
    other: str,
    resources: Resources,
    progress: Progress,
) -> Found:
    """The ways of a set, and with those in another store; `told` is a file of answers."""
    queries, answers = resources.store.query_sets.queries(name), None
    if told is not None:
        with upload(*told) as path:
            answers = read_answers(path, queries)
    with opened_transcript(resources, Settings()) as turns:
        found = ways_of(name, queries, resources, turns, config, answers, progress)
        if not other:
            return found, None
        with closing(open_filled(Settings(store=Path(other).expanduser()))) as others:
            b = ways_of(name, queries, others, turns, config, None, progress)
        return found, Between(found, b, (resources.store.path.name, Path(other).name))


def _draw_between(found: Between) -> None:
    """What each of two stores loses that the other has, and places by places."""
    st.caption(plain(f"A is {found.names[0]}, B is {found.names[1]}"))
    for line in found.lines:
        st.markdown(plain(line))
    crossed = found.tables[0]
    draw_values(crossed.columns, crossed.rows, key="evaluate:ways:crossed", help={})


def _draw(found: Ways, config: PipelineConfig, resources: Resources) -> None:
    for line in found.lines:
        st.markdown(f"### {plain(line)}")
    draw_chart(_figure(found.counts), key="evaluate:ways:chart", alt="Questions by type and place", table=None)
    draw_notes(found.notes)
    numbers = Counter(way.place for way in found.ways)
    most = sorted(PLACES, key=lambda place: (place == "returned", -numbers[place]))  # the commonest loss first
    labels = {f"{place} · {numbers[place]}": place for place in most if numbers[place]}
    place = labels[switch("Place", list(labels), "evaluate:ways:place")]
    ways = [way for way in found.ways if way.place == place]
    way = pick_row(ways, ROWS, key=f"evaluate:ways:rows:{place}", most=12)
    st.caption("Tick the box of a row to see the turn and the memory side by side.")
    if way is not None:
        _draw_way(way, found.k, config)


def _figure(counts: Counter[tuple[str, Place]]) -> Figure:
    """A bar a type, split by place in the order of the way."""
    import plotly.graph_objects as go

    bars, kinds = [], sorted({kind for kind, _ in counts})
    for place in PLACES:
        values, (bar, text) = [counts[kind, place] for kind in kinds], COLOURS[place]
        about = {"type": "bar", "orientation": "h", "name": place, "hoverinfo": "x+name", "marker": {"color": bar}}
        inside = {"textposition": "inside", "insidetextanchor": "middle"}
        # Streamlit's theme would replace a colour of the font.
        texts = [str(render(NUMBER, colour=text, value=value)) if value else "" for value in values]
        bars += [about | inside | {"x": values, "y": list(kinds), "text": texts}] if any(values) else []
    legend = {"orientation": "h", "y": 1.0, "yanchor": "bottom", "traceorder": "normal"}
    shown = layout(
        34 * len(kinds) + 96, {"title": "questions"}, {"autorange": "reversed"}, barmode="stack", legend=legend
    )
    return go.Figure({"data": bars, "layout": shown | {"showlegend": True}})


def _draw_way(way: Way, k: int, config: PipelineConfig) -> None:
    """One question from the turn to the answer."""
    st.markdown(f"#### {plain(way.query.query)}")
    st.caption(plain(f"Right answer: {way.query.answer}"))
    if not way.held:
        st.caption(plain(way.reason))
    for held in way.held:
        left, right = st.columns(2, border=True)
        left.markdown("**Said**")
        left.markdown(plain(held.turn.content))
        if held.turn.created_at:
            left.caption(f"{held.turn.created_at:%Y-%m-%d %H:%M}")
        right.markdown(f"**Stored** · {held.pair.coverage}")
        right.markdown(plain(held.memory.content) if held.memory else "no memory is near it")
        right.caption(plain(f"{held.place}: {held.reason}"))
    if st.button("Open in Inspect", "evaluate:ways:open", icon=":material/search:"):
        first = first_lost(way)
        why = (first.memory.id, k) if first and first.memory and way.place == "lost" else None
        open_in_inspect(request_for(way.query, datetime.now(UTC)), config, why=why)


VIEW = View("What was said", 25, draw)
