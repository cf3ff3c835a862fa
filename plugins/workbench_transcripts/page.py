"""What was said: where the questions of a set lose their facts, as one picture, and each with the turn and the memory side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import streamlit as st

from cems_workbench.jobs.factory import open_filled
from cems_workbench.jobs.importing import upload
from cems_workbench.jobs.query_set_evidence import request_for
from cems_workbench.pipeline.resources import Resources
from cems_workbench.settings import Settings
from cems_workbench.ui.evaluate.state import config_options
from cems_workbench.ui.inspect.state import open_in_inspect
from cems_workbench.ui.kit.charts import LIST_COLOURS, draw_chart, layout
from cems_workbench.ui.kit.html import literal, plain
from cems_workbench.ui.kit.session import is_kept, kept
from cems_workbench.ui.kit.tables import Column, pick_row
from cems_workbench.ui.kit.views import View
from cems_workbench.ui.kit.widgets import cancellable, empty, errors_shown, remembered, switch
from workbench_transcripts.answers import read_answers
from workbench_transcripts.command import transcript_store
from workbench_transcripts.ways import PLACES, Held, Place, Way, Ways, first_lost, ways_of

FOUND = "evaluate:ways:found"
COLOURS = dict(zip(PLACES, (7, 6, 1, 3, 2, 4, 5, None, 0), strict=True))
"""By place; a place that nobody can tell is grey."""
TEXT = {1: "#10151d", 2: "#10151d", 4: "#10151d", 5: "#10151d", None: "#10151d"}
"""The colour of a number on a light bar."""
ROWS: list[Column[Way]] = [
    Column("question", lambda way: way.query.query, 300),
    Column("answer", lambda way: way.query.answer, 140),
    Column("type", lambda way: way.query.type, 90),
    Column("what happened", lambda way: way.reason, 420),
]


def draw(resources: Resources) -> None:
    """Draw the choice of a set and a config, and where its questions lose their facts."""
    folder = transcript_store(resources.store.path)
    known = resources.store.query_sets.latest() if folder.exists() else []
    sets = [one.name for one in known if _asked(one.name, resources)]
    if not sets:
        text = "Import what was said with `transcript FILE`, and queries with the right `answer`: docs/use/ways.md."
        return empty("See where each question loses its fact, from the turn to the answer", text)
    configs = config_options(resources).configs
    of_set, of_config, of_file = st.columns([2, 2, 3])
    name = of_set.selectbox("Questions", sets, **remembered("evaluate:ways:set"))
    chosen = of_config.selectbox("Config", list(configs), **remembered("evaluate:ways:config"))
    file = of_file.file_uploader(
        "What the system answered, if known", ["json", "jsonl", "csv"], key="evaluate:ways:file"
    )
    config = configs[chosen]
    key = (str(resources.store.path), resources.store.content_version, name, config, file and file.getvalue())
    place = st.empty()
    if not is_kept(FOUND, key):
        if not place.button("Follow the facts", "evaluate:ways:go", icon=":material/route:", type="primary"):
            return None
        with errors_shown():
            queries, content = resources.store.query_sets.queries(name), file.getvalue() if file else b""
            answers, notes = None, list[str]()
            if file:
                with upload(file.name, content) as path:
                    answers, notes = read_answers(path, queries)
            settings = Settings().model_copy(update={"store": folder})
            with cancellable("evaluate:ways:cancel", place=place) as progress, closing(open_filled(settings)) as turns:
                made = ways_of(name, queries, resources, turns, config, answers, progress)
            kept(FOUND, key, lambda: replace(made, remarks=(*made.remarks, *notes)))
    if is_kept(FOUND, key):
        _draw(kept(FOUND, key, _never), resources)
    return None


def _never() -> Ways:
    raise AssertionError("it is kept")


def _asked(name: str, resources: Resources) -> bool:
    return any(query.answer for query in resources.store.query_sets.queries(name))


def _draw(found: Ways, resources: Resources) -> None:
    for line in found.lines:
        st.markdown(f"### {plain(line)}")
    counts = Counter((way.query.type or "all", way.place) for way in found.ways)
    kinds = sorted({kind for kind, _ in counts})
    draw_chart(_figure(kinds, counts), key="evaluate:ways:chart", alt="Questions by type and place", table=None)
    for note in found.notes:
        st.caption(plain(note))
    lost = [place for place in PLACES if any(way.place == place for way in found.ways)]
    numbers = Counter(way.place for way in found.ways)
    labels = {f"{place} · {numbers[place]}": place for place in lost}
    place = labels[switch("Place", list(labels), "evaluate:ways:place")]
    ways = [way for way in found.ways if way.place == place]
    way = pick_row(ways, ROWS, key=f"evaluate:ways:rows:{place}", most=12)
    st.caption("Tick the box of a row to see the turn and the memory side by side.")
    if way is not None:
        _draw_way(way, found, resources)


def _figure(kinds: Sequence[str], counts: Counter[tuple[str, Place]]) -> Any:
    """A bar a type, split by place in the order of the way."""
    import plotly.graph_objects as go

    bars = []
    for place in PLACES:
        if not any(counts[kind, place] for kind in kinds):
            continue
        values, colour = [counts[kind, place] for kind in kinds], COLOURS[place]
        marker = {"color": "#9aa4b2" if colour is None else LIST_COLOURS[colour % len(LIST_COLOURS)]}
        texts = [str(value) if value else "" for value in values]
        bars.append(
            {"type": "bar", "orientation": "h", "name": place, "x": values, "y": list(kinds), "text": texts}
            | {
                "marker": marker,
                "textposition": "inside",
                "insidetextanchor": "middle",
                "insidetextfont": {"color": TEXT.get(colour, "#ffffff")},
                "hoverinfo": "x+name",
            }
        )
    shown = layout(34 * len(kinds) + 96, {"title": "questions"}, {"autorange": "reversed"}, barmode="stack")
    return go.Figure(
        {
            "data": bars,
            "layout": shown
            | {
                "showlegend": True,
                "legend": {"orientation": "h", "y": 1.0, "yanchor": "bottom", "traceorder": "normal"},
            },
        }
    )


def _draw_way(way: Way, found: Ways, resources: Resources) -> None:
    """One question from the turn to the answer."""
    st.markdown(f"#### {plain(way.query.query)}")
    st.caption(plain(f"Right answer: {way.query.answer}"))
    for held in way.held or (None,):
        left, right = st.columns(2, border=True)
        left.markdown("**Said**")
        left.markdown(literal(held.turn.content) if held else "no turn was found")
        if held and held.turn.created_at:
            left.caption(f"{held.turn.created_at:%Y-%m-%d %H:%M}")
        right.markdown(" · ".join(("**Stored**", *filter(None, (_coverage(held),)))))
        right.markdown(literal(held.memory.content) if held and held.memory else "nothing near it")
        if held:
            right.caption(plain(f"{held.place}: {held.reason}"))
    if st.button("Open in Inspect", "evaluate:ways:open", icon=":material/search:"):
        config = next((one for one in config_options(resources).configs.values() if one.name == found.config), None)
        held = first_lost(way)
        why = (held.memory.id, found.k) if held and held.memory and way.place == "lost" else None
        if config is not None:
            open_in_inspect(request_for(way.query, datetime.now(UTC)), config, why=why)


def _coverage(held: Held | None) -> str:
    words = {"covers": "it says so", "says otherwise": "it says otherwise", "left out": "without the answer"}
    return (
        words.get(held.pair.coverage, "cannot tell" if held.pair.coverage == "cannot tell" else "nothing near it")
        if held
        else ""
    )


VIEW = View("What was said", 25, draw)
