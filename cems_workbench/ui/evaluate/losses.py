"""Losses: where a config loses the relevant memories of all queries, as a sentence, a picture, and the queries behind each branch.

With several configs the first is shown beside another, with what the other saves and breaks. The picture is the pipeline from left to right
as a band of relevant memories, with a branch where some leave; heights are numbers of memories, to one scale for all figures of the page.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Literal

import streamlit as st

from cems_workbench.analysis.losses_of_set import DEFAULT_K, NO_PROJECT, Losses, LostMemory, losses_of, with_words
from cems_workbench.analysis.ranks import Branch
from cems_workbench.errors import InputError
from cems_workbench.evaluation.evaluate import NO_TYPE
from cems_workbench.jobs.evaluation import EvaluationReport, evidence_of
from cems_workbench.pipeline.stages import candidate_stages
from cems_workbench.ui.evaluate.compare import draw_stale
from cems_workbench.ui.evaluate.state import Choice, cached_result, open_measured
from cems_workbench.ui.kit.charts import HOVERTEXT, LIST_COLOURS, bold, draw_chart, layout, lines
from cems_workbench.ui.kit.html import announce, capital, plain, tick
from cems_workbench.ui.kit.tables import Column, draw_result, pick_row
from cems_workbench.ui.kit.widgets import remembered

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


BAND_HEIGHT_PX = 170
"""Height of the band where it is widest."""
ROW_PX, LINE_PX, GAP_PX = 18, 14, 10
"""Minimum height of a branch's end, the height of a line of its label, and the space between two ends."""
MIN_HEIGHT_PX = 1.5
"""Minimum height of a branch."""
POINTS = 24
"""Points of a curve: enough to look smooth."""
FIRST_END, NEXT_END = 0.55, 0.2
"""Columns from the stage at which memories leave to the end of the branch; added for the next one at the same stage."""
DROP_PX = 16
"""By how much a branch sinks below the band."""
PIXELS_PER_CHAR = 6.6
NARROW_CHARS = 17
"""Characters of a line of a label in a figure that shares its row with another."""
BAND = LIST_COLOURS[0]
COLOURS = {"never": 7, "graph": 6, "depth": 2, "dropped": 1, "below": 3}
"""By the manner of a branch; its label and its place say the same."""
UNSEEN = {"marker": {"opacity": 0}}
POINTER = {"type": "scatter", "mode": "markers", "hovertemplate": HOVERTEXT, "selected": UNSEEN, "unselected": UNSEEN}
"""Points that are not seen, and answer to the pointer."""
LINE = {"type": "scatter", "mode": "lines", "hoverinfo": "skip"}
AREA = LINE | {"fill": "toself", "line": {"width": 0}}
NOTE = {"showarrow": False, "xanchor": "left", "align": "left", "font": {"size": 12}, "captureevents": False}
BAND_OPACITY, BRANCH_OPACITY, CHOSEN_OPACITY = 0.38, 0.6, 0.95


@dataclass(frozen=True, slots=True)
class Flow:
    """Numbers of a figure: relevant memories, those within the first k, and those that leave at each branch, in pipeline order."""

    stages: Sequence[str]
    """Names of the columns, in the order of the config."""
    relevant: int
    returned: int
    branches: Mapping[Branch, int]
    k: int


@dataclass(frozen=True, slots=True)
class _Leaving:
    """A branch: columns where it leaves and ends, in pixels its middle where it leaves, thickness, and its label's middle and lines."""

    branch: Branch
    count: int
    column: int
    end: float
    leaves: float
    thickness: float
    label: float
    lines: list[str]


def flow_figure(flow: Flow, chosen: Branch | None = None, *, widest: int | None = None, narrow: bool = False) -> Figure:
    """The figure; curve i of `clickable` is branch i. `widest` is the number of memories that is drawn at full height.
    A `narrow` one has no names of stages, and labels of several lines."""
    import plotly.graph_objects as go

    scale = BAND_HEIGHT_PX / max(widest or flow.relevant, 1)
    leaving = _leaving(flow, scale, narrow)
    after = [flow.relevant - sum(one.count for one in leaving if one.column <= i) for i in range(len(flow.stages) + 1)]
    shapes = [_shapes(one, flow, one.branch == chosen) for one in leaving]
    # What is still within reach, from left to right; its lower edge steps up where memories leave.
    end = len(flow.stages) + 1
    x = [column for column in range(end) for _ in range(2)]
    y = [count * scale for pair in pairwise([flow.relevant, *after]) for count in pair]
    area = {"x": [*x, end, end, 0], "y": [*y, after[-1] * scale, 0.0, 0.0], "fillcolor": BAND, "opacity": BAND_OPACITY}
    drawn = [AREA | area, *(part for _, *parts in shapes for part in parts), _within(flow, after, scale)]
    # Points that are clicked come first, so that a curve's number is that of its branch.
    return go.Figure({"data": [*(hit for hit, *_ in shapes), *drawn], "layout": _layout(flow, leaving, scale, narrow)})


def _leaving(flow: Flow, scale: float, narrow: bool) -> list[_Leaving]:
    """The label of the first to leave is lowest, so that no branch crosses another or its label."""
    labels = []
    for branch, count in flow.branches.items():
        first, *rest = wrap(branch.words(flow.k), NARROW_CHARS if narrow else 1000)
        labels.append([f"{count:,}  {tick(first, 60)}", *(tick(line, 60) for line in rest)])
    heights = [max(ROW_PX, LINE_PX * len(words)) + GAP_PX for words in labels]
    top, within = flow.relevant * scale + DROP_PX + GAP_PX + sum(heights), flow.relevant
    columns = [flow.stages.index(one.stage) + 1 if one.stage in flow.stages else 0 for one in flow.branches]
    found = []
    for i, ((branch, count), words) in enumerate(zip(flow.branches.items(), labels, strict=True)):
        within -= count
        top -= heights[i]
        # Of two that leave at the same stage the upper one ends further right, so that its line passes the other.
        end = columns[i] + FIRST_END + NEXT_END * columns[:i].count(columns[i])
        leaves, label = (within + count / 2) * scale, top + (heights[i] - GAP_PX) / 2
        found.append(_Leaving(branch, count, columns[i], end, leaves, count * scale, label, words))
    return found


def _shapes(one: _Leaving, flow: Flow, chosen: bool) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Invisible points along a branch that answer to the pointer; the branch as an area; the line from its end to its label."""
    shares = [i / POINTS for i in range(POINTS + 1)]
    x = [one.column + (one.end - one.column) * at for at in shares]
    y = [one.leaves + at * at * (3 - 2 * at) * DROP_PX for at in shares]  # level at both ends
    down = [y[-1] + (max(one.label, y[-1]) - y[-1]) * at for at in shares[1:]]
    colour, half = LIST_COLOURS[COLOURS[one.branch.manner]], max(one.thickness, MIN_HEIGHT_PX) / 2
    area = AREA | {
        "x": [*x, *x[::-1]],
        "y": [*(middle - half for middle in y), *(middle + half for middle in y[::-1])],
        "fillcolor": colour,
        "opacity": CHOSEN_OPACITY if chosen else BRANCH_OPACITY,
    }
    line = {"width": 3 if chosen else 1.5, "color": colour}
    leader = LINE | {"x": [one.end] * 3, "y": [y[-1] - half, y[-1], down[-1]], "line": line}
    size = [max(one.thickness, ROW_PX)] * len(x) + [ROW_PX] * len(down)
    share = f"{one.count:,} of {flow.relevant:,} relevant memories ({one.count / max(flow.relevant, 1):.0%})"
    hit = POINTER | {
        "x": [*x, *[one.end] * len(down)],
        "y": [*y, *down],
        "marker": {"size": size, "opacity": 0, "color": colour},
        "hovertext": lines(tick(one.branch.words(flow.k), 80), share, "Click to list them"),
    }
    return hit, area, leader


def _within(flow: Flow, after: Sequence[int], scale: float) -> dict[str, Any]:
    """Points at each stage that say how many are still within reach after it."""
    left = list(enumerate(zip(flow.stages, after[1:], strict=True), 1))
    return POINTER | {
        "x": [column + 0.25 for column, _ in left],
        "y": [count * scale / 2 for _, (_, count) in left],
        "marker": {"size": 16, "opacity": 0},
        "hovertext": [
            lines(f"after {tick(stage)}", f"{count:,} of {flow.relevant:,} still within reach")
            for _, (stage, count) in left
        ],
    }


def _layout(flow: Flow, leaving: Sequence[_Leaving], scale: float, narrow: bool) -> dict[str, Any]:
    end = len(flow.stages) + 1
    bottom = max([flow.relevant * scale, *(one.label + ROW_PX / 2 for one in leaving)])
    column = (300 if narrow else 620) / end  # on the narrowest page that is supported
    right = [max(map(len, one.lines)) * PIXELS_PER_CHAR + 14 - (end - one.end) * column for one in leaving]
    notes = [
        *((one.end, one.label, one.lines, f"{one.count:,}", 6) for one in leaving),
        (end, flow.returned * scale / 2, [f"{flow.returned:,}  in the", f"first {flow.k}"], f"{flow.returned:,}", 8),
        (0, min(flow.relevant * scale / 2, ROW_PX), [f"{flow.relevant:,}", "relevant"], f"{flow.relevant:,}", 6),
    ]
    above, below = 8 if narrow else 34, 8
    across = {
        "range": [0, end],
        "tickvals": [] if narrow else list(range(end)),
        "ticktext": ["", *(tick(name, 14) for name in flow.stages)],
        "side": "top",
        "showgrid": not narrow,
        "tickfont": {"size": 12},
        "tickangle": 0,
    }
    return layout(
        round(bottom + 20 + above + below),  # so that a unit of the axis is a pixel
        across,
        {"range": [bottom + 14, -6], "visible": False},
        margin={"l": 4, "r": round(max([90.0, *right])), "t": above, "b": below},
        dragmode=False,
        clickmode="event+select",
        annotations=[
            NOTE | {"x": x, "y": y, "text": lines(*texts).replace(count, bold(count), 1), "xshift": shift}
            for x, y, texts, count, shift in notes
        ],
    )


K, TYPES, PROJECTS = "evaluate:losses:k", "evaluate:losses:types", "evaluate:losses:projects"
BESIDE, BRANCH, GROUPS = "evaluate:losses:beside", "evaluate:losses:branch", "evaluate:losses:groups"
NOTHING = "no other config"
MAX_SHOWN = 50
"""Queries of a branch that are listed: each is replayed for the words on what happened."""
MAX_TABLE_ROWS = 12
ALT = (
    "Flow chart of {name}: {sentence}. The band is the relevant memories still within reach, from the lists to the results; "
    "a branch leaves it at each stage that loses some."
)


LOST: list[Column[LostMemory]] = [
    Column("query", lambda row: row.query, 260),
    Column("memory", lambda row: row.memory_id, 84),
    Column("grade", lambda row: row.grade, 58, "%d"),
    Column("what happened", lambda row: row.words, 440),
    Column("qid", lambda row: row.qid, 64),
]


@dataclass(frozen=True, slots=True)
class Chosen:
    """A branch and whose: lost by the first config or the other, or lost by one and returned by the other."""

    of: Literal["first", "other", "saved", "broken"]
    branch: Branch

    @property
    def at(self) -> int:
        """The place of the config that loses its memories."""
        return int(self.of in ("other", "broken"))

    @property
    def key(self) -> str:
        """Part of the keys of widgets that are drawn again after each choice."""
        return f"{self.of}:{self.branch.stage}:{self.branch.manner}"


def draw(measured: Sequence[EvaluationReport], choice: Choice) -> None:
    """Draw the sentence, the controls, the picture, and the queries of the chosen branch."""
    head = st.container()
    k, types, projects, configs = _controls(measured, choice)
    batch = measured[0].batch
    qids = {
        query.qid
        for query in batch.queries
        if (not types or (query.type or NO_TYPE) in types)
        and (not projects or (query.project or NO_PROJECT) in projects)
    }
    if not qids:
        st.caption("No query matches these filters.")
        return
    try:
        losses = _losses(configs, k, types, projects, qids)
    except InputError as error:
        st.info(plain(capital(f"{error}.")), icon=":material/rule:")
        return
    with head:
        said = [capital(line) if len(losses.maps) == 1 else line for line in losses.sentences]
        st.markdown("  \n".join(f"**{plain(line)}.**" for line in said))
        announce(". ".join(losses.sentences))
        for line in losses.mistakes:
            st.caption(plain(capital(line)))
        if not (types or projects):  # it is counted over all queries
            draw_stale([one.evaluation.figures for one in configs])
    if not any(one.lost for one in losses.maps):
        return
    options = _options(losses)
    chosen = st.session_state.get(BRANCH)
    if chosen not in options:  # where the first config loses most; the other, if the first loses nothing
        chosen = max([one for one in options if one.of == "first"] or options, key=options.__getitem__)
    # Also if unchanged: the browser keeps showing its number of before otherwise.
    st.session_state[BRANCH] = chosen
    _draw_figures(configs, losses, chosen)
    if losses.differences:
        _draw_table(losses)
    _draw_groups(losses)
    _draw_rows(configs, losses, options, choice)


def _controls(
    measured: Sequence[EvaluationReport], choice: Choice
) -> tuple[int, tuple[str, ...], tuple[str, ...], list[EvaluationReport]]:
    """Draw the rank, the filters and the config beside the first; the values of the first three, and the configs to show."""
    first, *others = measured
    boxes, queries = st.columns([1, 2, 2, 2], vertical_alignment="bottom"), first.batch.queries
    k = boxes[0].number_input("Within the first", 1, 1000, DEFAULT_K, **remembered(K))
    kinds = sorted({query.type or NO_TYPE for query in queries})
    types = boxes[1].multiselect("Types", kinds, placeholder="all", **remembered(TYPES))
    names = sorted({query.project or NO_PROJECT for query in queries})
    projects = boxes[2].multiselect("Projects", names, placeholder="all", **remembered(PROJECTS))
    beside: str | None = None
    if others:
        options = [*(one.name for one in others), NOTHING]
        beside = boxes[3].selectbox(f"Beside {plain(first.name)}", options, **remembered(BESIDE))
    else:
        boxes[3].caption(choice.second("to see what it saves and breaks"))
    return int(k), tuple(types), tuple(projects), [first, *(one for one in others if one.name == beside)]


def _losses(
    configs: Sequence[EvaluationReport],
    k: int,
    types: tuple[str, ...],
    projects: tuple[str, ...],
    qids: Collection[str],
) -> Losses:
    """The losses, cached for the session. Raises InputError if no query has a relevant memory."""
    relevant_from = configs[0].evaluation.relevant_from

    def make() -> Losses:
        batches = {id(one.batch): one.batch for one in configs}  # configs often share a batch
        if types or projects:
            batches = {key: batch.of_queries(qids) for key, batch in batches.items()}
        shown = [batches[id(one.batch)] for one in configs]
        return losses_of(shown, [one.evaluation.config for one in configs], relevant_from, k)

    return cached_result(configs, ("losses", k, relevant_from, types, projects), make)


def _options(losses: Losses) -> dict[Chosen, int]:
    """The branches with queries to list, and how many, in pipeline order."""
    whose: tuple[Literal["first", "other"], ...] = ("first", "other")
    maps = zip(whose, losses.maps, strict=False)
    found = {Chosen(of, branch): count for of, one in maps for branch, count in one.branches.items()}
    for difference in losses.differences:
        found |= {Chosen("saved", branch): count for branch, count in difference.saved.items()}
        found |= {Chosen("broken", branch): count for branch, count in difference.broken.items()}
    return found


def _draw_figures(configs: Sequence[EvaluationReport], losses: Losses, chosen: Chosen) -> None:
    """Draw one figure over the whole width, or two side by side in the same scale."""
    narrow = len(configs) > 1
    widest = max(one.relevant for one in losses.maps)
    places = st.columns(len(configs), gap="medium") if narrow else [st.container()]
    for at, (place, config, one) in enumerate(zip(places, configs, losses.maps, strict=True)):
        losing, of = {branch.stage for branch in one.branches}, config.evaluation.config
        stages = [stage.name for stage in candidate_stages(of) if stage.name in losing or not stage.is_off(of)]
        flow = Flow(stages, one.relevant, one.returned, one.branches, one.k)
        # A new key after each choice, since a selected point cannot be selected again.
        key = f"evaluate:losses:{'other' if at else 'first'}:{chosen.key}:{one.k}"
        with place:
            if narrow:
                st.markdown(f"## {plain(config.name)}")
            draw_chart(
                flow_figure(flow, chosen.branch if chosen.at == at else None, widest=widest, narrow=narrow),
                key=key,
                on_select=partial(_choose_clicked, key, "other" if at else "first", list(one.branches)),
                selection_mode="points",
                alt=ALT.format(name=config.name, sentence=one.sentence()),
                table=None if narrow else lambda: losses.tables[0].records,
            )


def _choose_clicked(key: str, of: Literal["first", "other"], branches: Sequence[Branch]) -> None:
    """Choose the clicked branch; the figure's first curves are the branches."""
    points = st.session_state[key]["selection"]["points"]
    if points and points[-1]["curve_number"] < len(branches):
        st.session_state[BRANCH] = Chosen(of, branches[points[-1]["curve_number"]])


def _draw_table(losses: Losses) -> None:
    table, (change,) = losses.table(), losses.differences
    names = table.columns
    help = dict.fromkeys(names[1:3], "Relevant memories that end there under this config")
    help[names[3]] = plain(f"Lost there by {change.before}, and returned by {change.after}")
    help[names[4]] = plain(f"Lost there by {change.after}, and returned by {change.before}")
    draw_result(table, key="evaluate:losses:table", help=help, first=210, others=130, most=len(table))


def _draw_groups(losses: Losses) -> None:
    names = " and ".join(one.config_name for one in losses.maps)
    panel = st.expander(f"{plain(names)} by query type and project", key=GROUPS, type="compact", on_change="rerun")
    if not panel.open:
        return
    with panel:
        for one in losses.maps:
            if len(losses.maps) > 1:
                st.markdown(f"## {plain(one.config_name)}")
            for by, table in (("type", one.groups("type")), ("project", one.groups("project"))):
                draw_result(table, key=f"{GROUPS}:{one.config_name}:{by}", first=150, most=MAX_TABLE_ROWS)


def _draw_rows(
    configs: Sequence[EvaluationReport], losses: Losses, options: Mapping[Chosen, int], choice: Choice
) -> None:
    """Draw the choice of a branch and its queries; a ticked row opens in Inspect as measured, the other config pinned."""
    names, k = [one.config_name for one in losses.maps], losses.maps[0].k

    def text(option: Chosen) -> str:
        words = f"{options[option]:,} {option.branch.words(k)}"
        if len(names) == 1:
            return words
        whose = names[option.at] if option.of in ("first", "other") else f"{option.of} by {names[1]}"
        return f"{whose}: {words}"

    help = "Or click a branch of the picture."
    chosen = st.selectbox("Lost memories", list(options), key=BRANCH, format_func=text, help=help)
    rows = _rows_in_words(configs[chosen.at], losses, chosen)
    picked = pick_row(rows, LOST, key=f"evaluate:losses:rows:{chosen.key}", most=MAX_TABLE_ROWS)
    other = configs[1 - chosen.at] if len(configs) > 1 else None
    if picked is not None:
        config = configs[chosen.at]
        query = next(one for one in config.batch.queries if one.qid == picked.qid)
        open_measured(query, config, other, why=(picked.memory_id, k))
    first = f"The first {len(rows)} of {options[chosen]:,}. " if len(rows) < options[chosen] else ""
    pinned = f", and {plain(names[1 - chosen.at])} pinned as the baseline" if other else ""
    st.caption(
        f"{first}Tick the box of a row to open its query in Inspect under {plain(names[chosen.at])}, with this memory followed and "
        f"explained{pinned}.{choice.elsewhere}"
    )


def _rows_in_words(config: EvaluationReport, losses: Losses, chosen: Chosen) -> tuple[LostMemory, ...]:
    """The first rows of the chosen branch with what happened, cached for the session."""
    if chosen.of in ("first", "other"):
        found: Sequence[LostMemory] = losses.maps[chosen.at].rows
    else:
        change = losses.differences[0]
        found = change.saved_rows if chosen.of == "saved" else change.broken_rows
    rows = tuple(row for row in found if row.branch == chosen.branch)[:MAX_SHOWN]

    def make() -> tuple[LostMemory, ...]:
        alone = Losses((replace(losses.maps[0], rows=rows),), ())
        return with_words(alone, [config.config], [evidence_of(config)], MAX_SHOWN).maps[0].rows

    return cached_result([config], ("loss words", losses.maps[0].k, rows), make)
