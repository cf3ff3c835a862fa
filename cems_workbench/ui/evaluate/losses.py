"""Losses: where a config loses the relevant memories of all queries, as a sentence, a picture, and the queries behind each branch.

With several configs the first is shown beside another, with what the other saves and breaks.

Drawing of the loss map: the pipeline from left to right as a band of relevant memories, with a branch where some leave.

Heights are numbers of memories, drawn to one scale for all figures of the page. A click on a branch chooses it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Literal

import streamlit as st

from cems_workbench.analysis.losses import Branch
from cems_workbench.analysis.losses_of_set import (
    DEFAULT_K,
    NO_PROJECT,
    Found,
    LossDifference,
    Losses,
    LostMemory,
    losses_of,
    with_words,
)
from cems_workbench.config import PipelineConfig
from cems_workbench.errors import InputError
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.evaluate import NO_TYPE
from cems_workbench.jobs.evaluation import EvaluatedConfig
from cems_workbench.jobs.query_set_evidence import request_for
from cems_workbench.pipeline.stages import candidate_stages
from cems_workbench.results import Table
from cems_workbench.ui.evaluate.compare import draw_stale
from cems_workbench.ui.evaluate.state import Choice, cached_result
from cems_workbench.ui.inspect.state import TracedQuery, open_in_inspect, open_traced_in_inspect
from cems_workbench.ui.kit.charts import BREAK, HOVERTEXT, LIST_COLOURS, bold, draw_chart, layout, lines
from cems_workbench.ui.kit.html import announce, plain, tick
from cems_workbench.ui.kit.tables import Column, draw_table, pick_row

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
COLOURS = {"never": LIST_COLOURS[7], "depth": LIST_COLOURS[2], "dropped": LIST_COLOURS[1], "below": LIST_COLOURS[3]}
"""By the manner of a branch; its label and its place say the same."""
UNSEEN = {"marker": {"opacity": 0}}
WITHIN, LOSS_FLOW_BRANCH, CHOSEN = 0.38, 0.6, 0.95
"""Opacity of the band, of a branch, and of the chosen one."""


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
    """A branch: columns where it leaves and where it ends, and in pixels its middle where it leaves, thickness, and middle of its label."""

    branch: Branch
    count: int
    column: int
    end: float
    leaves: float
    thickness: float
    label: float

    @property
    def curve(self) -> tuple[list[float], list[float]]:
        """Its middle line, level at both ends."""
        shares = [i / POINTS for i in range(POINTS + 1)]
        x = [self.column + (self.end - self.column) * at for at in shares]
        return x, [self.leaves + at * at * (3 - 2 * at) * DROP_PX for at in shares]

    @property
    def leader(self) -> tuple[float, float]:
        """Upper and lower end of the line that leads to its label."""
        return self.leaves + DROP_PX, max(self.label, self.leaves + DROP_PX)


def flow_figure(flow: Flow, chosen: Branch | None = None, *, widest: int | None = None, narrow: bool = False) -> Figure:
    """The figure; curve i of `clickable` is branch i. `widest` is the number of memories that is drawn at full height.

    A `narrow` one has no names of stages, and labels of several lines.
    """
    import plotly.graph_objects as go

    scale = BAND_HEIGHT_PX / max(widest or flow.relevant, 1)
    labels = {branch: _label(branch, count, flow.k, narrow) for branch, count in flow.branches.items()}
    leaving = _leaving(flow, scale, labels)
    ends = [_hit(one, flow) for one in leaving]
    drawn = [
        _band(flow, scale),
        *(part for one in leaving for part in _ribbon(one, one.branch == chosen)),
        _within(flow, scale),
    ]
    # Points that are clicked come first, so that a curve's number is that of its branch.
    return go.Figure({"data": [*ends, *drawn], "layout": _layout(flow, leaving, labels, scale, narrow)})


def _label(branch: Branch, count: int, k: int, narrow: bool) -> list[str]:
    words = branch.words(k)
    first, *rest = wrap(words, NARROW_CHARS) if narrow else [words]
    return [f"{count:,}  {tick(first, 60)}", *(tick(line, 60) for line in rest)]


def _leaving(flow: Flow, scale: float, labels: Mapping[Branch, list[str]]) -> list[_Leaving]:
    """The label of the first to leave is lowest, so that no branch crosses another or its label."""
    heights = [max(ROW_PX, LINE_PX * len(labels[branch])) for branch in flow.branches]
    top = flow.relevant * scale + DROP_PX + GAP_PX + sum(heights) + GAP_PX * len(heights)
    columns = [_column(branch, flow) for branch in flow.branches]
    within, found = flow.relevant, []
    for i, ((branch, count), height, column) in enumerate(zip(flow.branches.items(), heights, columns, strict=True)):
        within -= count
        top -= height + GAP_PX
        # Of two that leave at the same stage the upper one ends further right, so that its line passes the other.
        end = column + FIRST_END + NEXT_END * columns[:i].count(column)
        leaves = (within + count / 2) * scale
        found.append(_Leaving(branch, count, column, end, leaves, count * scale, top + height / 2))
    return found


def _column(branch: Branch, flow: Flow) -> int:
    """Where it leaves: 0 is before the first stage."""
    return flow.stages.index(branch.stage) + 1 if branch.stage in flow.stages else 0


def _band(flow: Flow, scale: float) -> dict[str, Any]:
    """What is still within reach, from left to right; its lower edge steps up where memories leave."""
    within, x, y = flow.relevant, [0.0], [flow.relevant * scale]
    for branch, count in flow.branches.items():
        column = _column(branch, flow)
        x += [column, column]
        y += [within * scale, (within - count) * scale]
        within -= count
    end = len(flow.stages) + 1
    return {
        "type": "scatter",
        "x": [*x, end, end, 0.0],
        "y": [*y, within * scale, 0.0, 0.0],
        "mode": "lines",
        "fill": "toself",
        "fillcolor": _clear(BAND, WITHIN),
        "line": {"width": 0},
        "hoverinfo": "skip",
    }


def _ribbon(one: _Leaving, chosen: bool) -> list[dict[str, Any]]:
    """The branch as an area, and a line from its end to its label."""
    x, y = one.curve
    colour, half = COLOURS[one.branch.manner], max(one.thickness, MIN_HEIGHT_PX) / 2
    area = {
        "x": [*x, *x[::-1]],
        "y": [middle - half for middle in y] + [middle + half for middle in y[::-1]],
        "fill": "toself",
        "fillcolor": _clear(colour, CHOSEN if chosen else LOSS_FLOW_BRANCH),
        "line": {"width": 0},
    }
    line = {"width": 3 if chosen else 1.5, "color": colour}
    leader = {"x": [one.end] * 3, "y": [one.leader[0] - half, *one.leader], "line": line}
    drawn = {"type": "scatter", "mode": "lines", "hoverinfo": "skip"}
    return [drawn | area, drawn | leader]


def _hit(one: _Leaving, flow: Flow) -> dict[str, Any]:
    """Invisible points along a branch that answer to the pointer, wherever it is on the branch."""
    x, y = one.curve
    top, bottom = one.leader
    down = [top + (bottom - top) * i / POINTS for i in range(1, POINTS + 1)]
    of = f"{one.count:,} of {flow.relevant:,} relevant memories ({one.count / max(flow.relevant, 1):.0%})"
    return {
        "type": "scatter",
        "x": [*x, *[one.end] * len(down)],
        "y": [*y, *down],
        "mode": "markers",
        "marker": {
            "size": [max(one.thickness, ROW_PX)] * len(x) + [ROW_PX] * len(down),
            "opacity": 0,
            "color": COLOURS[one.branch.manner],
        },
        "selected": UNSEEN,
        "unselected": UNSEEN,
        "hovertext": lines(tick(one.branch.words(flow.k), 80), of, "Click to list them"),
        "hovertemplate": HOVERTEXT,
    }


def _within(flow: Flow, scale: float) -> dict[str, Any]:
    """Points at each stage that say how many are still within reach after it."""
    left, x, y, texts = flow.relevant, [], [], []
    lost: dict[str, int] = {}
    for branch, count in flow.branches.items():
        lost[branch.stage] = lost.get(branch.stage, 0) + count
    left -= lost.get("", 0)
    for column, stage in enumerate(flow.stages, 1):
        left -= lost.get(stage, 0)
        x.append(column + 0.25)
        y.append(left * scale / 2)
        texts.append(lines(f"after {tick(stage)}", f"{left:,} of {flow.relevant:,} still within reach"))
    hovered = {"hovertext": texts, "hovertemplate": HOVERTEXT, "selected": UNSEEN, "unselected": UNSEEN}
    return {"type": "scatter", "x": x, "y": y, "mode": "markers", "marker": {"size": 16, "opacity": 0}} | hovered


def _layout(
    flow: Flow, leaving: Sequence[_Leaving], labels: Mapping[Branch, list[str]], scale: float, narrow: bool
) -> dict[str, Any]:
    end = len(flow.stages) + 1
    bottom = max([flow.relevant * scale, *(one.label + ROW_PX / 2 for one in leaving)])
    texts = [_text(one.end, one.label, _count_bold(one.count, labels[one.branch]), "left", 6) for one in leaving]
    kept = [f"{bold(f'{flow.returned:,}')}  in the", f"first {flow.k}"]
    texts.append(_text(end, flow.returned * scale / 2, kept, "left", 8))
    texts.append(_text(0, flow.relevant * scale / 2, [bold(f"{flow.relevant:,}"), "relevant"], "left", 6))
    margin = _margin(leaving, labels, end, narrow)
    names = ["", *(tick(name, 14) for name in flow.stages)]
    above, below = 8 if narrow else 34, 8
    return layout(
        round(bottom + 20 + above + below),  # so that a unit of the axis is a pixel
        {
            "range": [0, end],
            "tickvals": [] if narrow else list(range(len(names))),
            "ticktext": names,
            "side": "top",
            "showgrid": not narrow,
            "tickfont": {"size": 12},
            "tickangle": 0,
        },
        {"range": [bottom + 14, -6], "visible": False},
        margin={"l": 4, "r": margin, "t": above, "b": below},
        dragmode=False,
        clickmode="event+select",
        annotations=texts,
    )


def _margin(leaving: Sequence[_Leaving], labels: Mapping[Branch, list[str]], end: int, narrow: bool) -> int:
    """Pixels for the labels right of the last column, on the narrowest page that is supported."""
    column = (300 if narrow else 620) / end
    needed = [90.0]
    for one in leaving:
        length = max(len(line) for line in labels[one.branch]) * PIXELS_PER_CHAR + 14
        needed.append(length - (end - one.end) * column)
    return round(max(needed))


def _count_bold(count: int, label: Sequence[str]) -> list[str]:
    first, *rest = label
    return [bold(f"{count:,}") + first.removeprefix(f"{count:,}"), *rest]


def _text(x: float, y: float, texts: Sequence[str], anchor: str, shift: int) -> dict[str, Any]:
    return {
        "x": x,
        "y": y,
        "text": BREAK.join(texts),
        "showarrow": False,
        "xanchor": anchor,
        "xshift": shift,
        "align": "left",
        "font": {"size": 12},
        "captureevents": False,
    }


def _clear(colour: str, opacity: float) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"


K, TYPES, PROJECTS = "evaluate:losses:k", "evaluate:losses:types", "evaluate:losses:projects"
BESIDE, LOSSES_BRANCH, GROUPS = "evaluate:losses:beside", "evaluate:losses:branch", "evaluate:losses:groups"
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


def draw(measured: Sequence[EvaluatedConfig], choice: Choice) -> None:
    """Draw the sentence, the controls, the picture, and the queries of the chosen branch."""
    head = st.container()
    k, types, projects, configs = _controls(measured, choice)
    qids = _filtered(measured[0].batch, types, projects)
    if not qids:
        st.caption("No query matches these filters.")
        return
    try:
        losses = _losses(configs, k, types, projects, qids)
    except InputError as error:
        st.info(plain(f"{str(error)[:1].upper()}{str(error)[1:]}."), icon=":material/rule:")
        return
    with head:
        _draw_sentences(losses)
        if not (types or projects):  # it is counted over all queries
            draw_stale([one.evaluation.figures for one in configs])
    if not any(one.lost for one in losses.maps):
        return
    options = _options(losses)
    kept = st.session_state.get(LOSSES_BRANCH)
    chosen: Chosen = kept if kept in options else _largest(options)
    st.session_state[LOSSES_BRANCH] = (
        chosen  # also if unchanged: the browser keeps showing its number of before otherwise
    )
    _draw_figures(configs, losses, chosen)
    if losses.differences:
        _draw_table(losses)
    _draw_groups(losses)
    _draw_rows(configs, losses, options, choice)


def _controls(
    measured: Sequence[EvaluatedConfig], choice: Choice
) -> tuple[int, tuple[str, ...], tuple[str, ...], list[EvaluatedConfig]]:
    """Draw the rank, the filters and the config beside the first; the values of the first three, and the configs to show."""
    boxes = st.columns([1, 2, 2, 2], vertical_alignment="bottom")
    k = boxes[0].number_input(
        "Within the first",
        1,
        1000,
        DEFAULT_K,
        key=K,
        persist_state="session",
        help="A relevant memory is lost if it is not among this many first results.",
    )
    batch = measured[0].batch
    types = boxes[1].multiselect(
        "Types",
        sorted({kind or NO_TYPE for kind in batch.types}),
        key=TYPES,
        placeholder="all",
        persist_state="session",
    )
    projects = boxes[2].multiselect(
        "Projects",
        sorted({query.project or NO_PROJECT for query in batch.queries}),
        key=PROJECTS,
        placeholder="all",
        persist_state="session",
    )
    shown = [measured[0]]
    if len(measured) < 2:
        boxes[3].caption(choice.second("to see what it saves and breaks"))
    else:
        others = {one.name: one for one in measured[1:]}
        name = boxes[3].selectbox(
            f"Beside {plain(measured[0].name)}",
            [*others, NOTHING],
            key=BESIDE,
            persist_state="session",
            help="The config whose losses are shown next to those of the first.",
        )
        shown += [others[name]] if name in others else []
    return int(k), tuple(types), tuple(projects), shown


def _filtered(batch: LabelledBatch, types: Collection[str], projects: Collection[str]) -> frozenset[str]:
    """The qids of the queries of these types and projects; empty collections are all."""
    return frozenset(
        query.qid
        for query in batch.queries
        if (not types or (query.type or NO_TYPE) in types)
        and (not projects or (query.project or NO_PROJECT) in projects)
    )


def _losses(
    configs: Sequence[EvaluatedConfig],
    k: int,
    types: tuple[str, ...],
    projects: tuple[str, ...],
    qids: frozenset[str],
) -> Losses:
    """The losses, cached for the session. Raises InputError if no query has a relevant memory."""
    relevant_from = configs[0].evaluation.relevant_from

    def make() -> Losses:
        batches = [one.batch for one in configs]
        if types or projects:
            parts = {id(batch): batch.of_queries(qids) for batch in batches}  # configs often share a batch
            batches = [parts[id(batch)] for batch in batches]
        return losses_of(batches, [one.evaluation.config for one in configs], relevant_from, k)

    return cached_result(configs, ("losses", k, relevant_from, types, projects), make)


def _draw_sentences(losses: Losses) -> None:
    """Draw what each config loses, and what the other saves and breaks."""
    st.markdown(
        "  \n".join(
            f"**{plain(line[:1].upper() + line[1:] if len(losses.maps) == 1 else line)}.**" for line in losses.sentences
        )
    )
    announce(". ".join(losses.sentences))
    for line in losses.mistakes:
        st.caption(plain(line[:1].upper() + line[1:]))


def _options(losses: Losses) -> dict[Chosen, int]:
    """The branches with queries to list, and how many, in pipeline order."""
    first, *rest = losses.maps
    found = {Chosen("first", branch): count for branch, count in first.branches.items()}
    found |= {Chosen("other", branch): count for one in rest for branch, count in one.branches.items()}
    for difference in losses.differences:
        found |= {Chosen("saved", branch): count for branch, count in difference.saved.items()}
        found |= {Chosen("broken", branch): count for branch, count in difference.broken.items()}
    return found


def _largest(options: Mapping[Chosen, int]) -> Chosen:
    """The branch where the first config loses most; of the other, where the first loses nothing."""
    own = [option for option in options if option.of == "first"]
    return max(own or list(options), key=options.__getitem__)


def shown_stages(config: PipelineConfig, lost: Mapping[Branch, int]) -> list[str]:
    """The columns of a config's figure: the stages that are on, and those that lose a memory."""
    losing = {branch.stage for branch in lost}
    return [stage.name for stage in candidate_stages(config) if stage.name in losing or not stage.is_off(config)]


def _draw_figures(configs: Sequence[EvaluatedConfig], losses: Losses, chosen: Chosen) -> None:
    """Draw one figure over the whole width, or two side by side in the same scale."""
    narrow = len(configs) > 1
    widest = max(one.relevant for one in losses.maps)
    places = st.columns(len(configs), gap="medium") if narrow else [st.container()]
    whose: tuple[Literal["first", "other"], ...] = ("first", "other")
    for place, of, config, one in zip(places, whose, configs, losses.maps, strict=False):
        flow = Flow(
            shown_stages(config.evaluation.config, one.branches), one.relevant, one.returned, one.branches, one.k
        )
        branches = list(one.branches)
        same = chosen.of in ((of, "saved") if of == "first" else (of, "broken"))
        # A new key after each choice, since a selected point cannot be selected again.
        key = f"evaluate:losses:{of}:{chosen.of}:{chosen.branch.stage}:{chosen.branch.manner}:{one.k}"
        with place:
            if narrow:
                st.markdown(f"## {plain(config.name)}")
            draw_chart(
                flow_figure(flow, chosen.branch if same else None, widest=widest, narrow=narrow),
                key=key,
                on_select=partial(_choose_clicked, key, of, branches),
                selection_mode="points",
                alt=ALT.format(name=config.name, sentence=one.sentence()),
                table=None if narrow else partial(_records, losses.table()),
            )


def _choose_clicked(key: str, of: Literal["first", "other"], branches: Sequence[Branch]) -> None:
    """Choose the clicked branch; the figure's first curves are the branches."""
    points = st.session_state[key]["selection"]["points"]
    if points and points[-1]["curve_number"] < len(branches):
        st.session_state[LOSSES_BRANCH] = Chosen(of, branches[points[-1]["curve_number"]])


def _draw_table(losses: Losses) -> None:
    """Draw how many end where; of two configs also what the other saves and breaks there."""
    table = losses.table()
    columns: list[Column[Sequence[Any]]] = [
        Column(
            name, itemgetter(i), 130 if i else 210, help=_table_help(name, losses) if i else None, pinned=not i or None
        )
        for i, name in enumerate(table.columns)
    ]
    draw_table(table.rows, columns, key="evaluate:losses:table", placeholder="–", most=len(table))


def _table_help(name: str, losses: Losses) -> str:
    """What a column of the table counts."""
    if name in {one.config_name for one in losses.maps}:
        return "Relevant memories that end there under this config"
    one = losses.differences[0]
    lost, returned = (one.before, one.after) if name.startswith("saved") else (one.after, one.before)
    return plain(f"Lost there by {lost}, and returned by {returned}")


def _records(table: Table) -> list[dict[str, Any]]:
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def _draw_groups(losses: Losses) -> None:
    """Draw the losses by query type and by project, when they are opened."""
    names = " and ".join(one.config_name for one in losses.maps)
    panel = st.expander(f"{plain(names)} by query type and project", key=GROUPS, type="compact", on_change="rerun")
    if not panel.open:
        return
    with panel:
        for one in losses.maps:
            if len(losses.maps) > 1:
                st.markdown(f"## {plain(one.config_name)}")
            kinds: tuple[Literal["type", "project"], ...] = ("type", "project")
            for by in kinds:
                table = one.groups(by)
                columns: list[Column[Sequence[Any]]] = [
                    Column(name, itemgetter(i), None if i else 150, pinned=not i or None)
                    for i, name in enumerate(table.columns)
                ]
                draw_table(table.rows, columns, key=f"{GROUPS}:{one.config_name}:{by}", most=MAX_TABLE_ROWS)


def _draw_rows(
    configs: Sequence[EvaluatedConfig], losses: Losses, options: Mapping[Chosen, int], choice: Choice
) -> None:
    """Draw the choice of a branch and its queries; a ticked row opens in Inspect."""
    names = [one.config_name for one in losses.maps]
    chosen = st.selectbox(
        "Lost memories",
        list(options),
        key=LOSSES_BRANCH,
        format_func=lambda option: _option_text(option, options[option], names, losses.maps[0].k),
        help="Or click a branch of the picture.",
    )
    rows = _rows_in_words(configs, losses, chosen)
    at = 1 if chosen.of in ("other", "broken") else 0
    key = f"evaluate:losses:rows:{chosen.of}:{chosen.branch.stage}:{chosen.branch.manner}"
    picked = pick_row(rows, LOST, key=key, most=MAX_TABLE_ROWS)
    if picked is not None:
        _open(picked, configs, at, losses.maps[0].k)
    first = f"The first {len(rows)} of {options[chosen]:,}. " if len(rows) < options[chosen] else ""
    pinned = f", and {plain(names[1 - at])} pinned as the baseline" if len(configs) > 1 else ""
    read_only = choice.opened is not None and choice.opened.reason is not None
    elsewhere = " Inspect searches the open store, not the one this evidence was gathered from." if read_only else ""
    st.caption(
        f"{first}Tick the box of a row to open its query in Inspect under {plain(names[at])}, with this memory followed and explained"
        f"{pinned}.{elsewhere}"
    )


def _option_text(option: Chosen, count: int, names: Sequence[str], k: int) -> str:
    words = f"{count:,} {option.branch.words(k)}"
    if len(names) == 1:
        return words
    if option.of in ("first", "other"):
        return f"{names[option.of == 'other']}: {words}"
    return f"{option.of} by {names[1]}: {words}"


def _rows_in_words(configs: Sequence[EvaluatedConfig], losses: Losses, chosen: Chosen) -> tuple[LostMemory, ...]:
    """The first rows of the chosen branch with what happened, cached for the session."""
    rows = _rows_of(losses, chosen)[:MAX_SHOWN]
    config = configs[1 if chosen.of in ("other", "broken") else 0]

    def make() -> tuple[LostMemory, ...]:
        alone = Losses((replace(losses.maps[0], rows=rows),), ())
        return with_words(alone, [config.evaluation.config], [_found(config)], MAX_SHOWN).maps[0].rows

    return cached_result([config], ("loss words", losses.maps[0].k, rows), make)


def _rows_of(losses: Losses, chosen: Chosen) -> tuple[LostMemory, ...]:
    if chosen.of in ("first", "other"):
        return tuple(losses.maps[chosen.of == "other"].rows_of(chosen.branch))
    difference: LossDifference = losses.differences[0]
    rows = difference.saved_rows if chosen.of == "saved" else difference.broken_rows
    return tuple(row for row in rows if row.branch == chosen.branch)


def _found(config: EvaluatedConfig) -> Found:
    known = config.labelled.evidence.evidences
    return lambda qids: {qid: known[qid] for qid in qids}


def _open(row: LostMemory, configs: Sequence[EvaluatedConfig], at: int, k: int) -> None:
    """Open a query in Inspect as measured: the config that loses the memory on the sliders, the other one pinned."""
    config = configs[at]
    query = next(one for one in config.batch.queries if one.qid == row.qid)
    header = config.labelled.evidence.header
    if config.labelled.evidence.external:
        open_traced_in_inspect(TracedQuery(header.query_set, query.qid, query.query), why=(row.memory_id, k))
    request = request_for(query, header.moment, header.only_project)
    other = (configs[1 - at].name, configs[1 - at].evaluation.config) if len(configs) > 1 else None
    open_in_inspect(request, config.evaluation.config, other, why=(row.memory_id, k))
