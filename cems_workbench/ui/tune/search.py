"""The search: its goal and measurement (objectives, guards, groups, folds, the sealed share), and starting, watching and stopping it.

Before it, the search space: parameters chosen from the config's metadata, each with range and step, or choices.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from cems_workbench.config import COST_HELP, FieldSpec, PipelineConfig, field_specs
from cems_workbench.config.fields import short_value
from cems_workbench.config.forms.targets import System, exported
from cems_workbench.config.forms.yaml_form import assigned_value
from cems_workbench.errors import InputError
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.metrics import measures_help, offered_measures
from cems_workbench.jobs.background import STABILITY, BackgroundSearch
from cems_workbench.jobs.tuning import MAIN_SEARCH, PlannedSearch, SearchSettings, TuningData, default_axes, plan_search
from cems_workbench.pipeline.effects import idle_parameters
from cems_workbench.pipeline.list_sources import SOURCES
from cems_workbench.pipeline.stages import RERANK
from cems_workbench.tuning.holdout import GROUP_WORDS, GROUPINGS, groups_of, natural_grouping
from cems_workbench.tuning.objective import RERANKED, Goal, Guard, parse_goal, parse_guard
from cems_workbench.tuning.space import BANDS_PATH, Axis, SearchSpace, axis_for, parse_axis, searchable, value_at
from cems_workbench.ui.inspect.controls import GROUPS
from cems_workbench.ui.kit.address import Part, Values, packed, unpacked, widget
from cems_workbench.ui.kit.charts import LIST_COLOURS, draw_chart, hover, layout
from cems_workbench.ui.kit.html import plain
from cems_workbench.ui.kit.tables import HELP, draw_values
from cems_workbench.ui.kit.widgets import duration, errors_shown, remembered, watch_work
from cems_workbench.ui.tune.state import last_search, page, running_search, scorer_for, start

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


PATHS, FOR, BY_DEFAULT = "tune:paths", "tune:paths_for", "By default"
GROUPED_FOR = "tune:grouped_for"
"""The query set that “Never split” was drawn for."""
ADDRESSED = "address"
"""What the parameters are for that were read from the address: whatever is chosen there."""
COLUMN_WIDTHS = (3.4, 1.4, 4.4, 0.9)
AGE_AND_PROJECT = (
    "adjust.time_decay.mode",
    "adjust.time_decay.half_life_days",
    "adjust.project.same",
    "adjust.project.different",
)


def suggested(data: TuningData, system: System | None) -> dict[str, tuple[str, ...]]:
    """Suggested spaces, by name: first what is searched by default, then by purpose; only parameters with an effect under the baseline."""
    config = data.baseline
    reranks, idle = not RERANK.is_off(config), idle_parameters(config)
    try:
        spaces = {BY_DEFAULT: tuple(axis.path for axis in default_axes(data, system))}
    except InputError:  # the target has nothing to search
        spaces = {BY_DEFAULT: ()}
    if reranks:
        bands = tuple(f"{BANDS_PATH}.{i}" for i in range(len(config.rerank.bands)))
        spaces["Reranker’s blend"] = (*bands, "rerank.retrieval_score", "rerank.depth", "rerank.score_window")
    cut = ("filter.min_score",) if config.filter.min_score is not None else ()
    scored = ("abstain.reranker",) if reranks else ()
    weights = tuple(f"lists.{name}.weight" for name in SOURCES if f"lists.{name}.weight" not in idle)
    return spaces | {
        "Weights of the lists": weights[:3],
        "Age and project": AGE_AND_PROJECT,
        "Superseded memories": ("supersession.mode", "supersession.expired"),
        "Cut-offs": (*cut, "threshold.mode", "gap.ratio", "dedup.similarity"),
        "When nothing is returned": ("abstain.vector", "abstain.lexical", *scored, "abstain.margin"),
    }


def options(config: PipelineConfig) -> dict[str, str]:
    """Every parameter that can be searched on gathered evidence, with its label."""
    named = {spec.path: f"{GROUPS[spec.section]} › {spec.label}" for spec in searchable()}
    if not RERANK.is_off(config):
        first = 1
        for i, band in enumerate(config.rerank.bands):
            ranks = f"ranks {first}–{band.max_rank}" if band.max_rank else f"ranks {first}+"
            named[f"{BANDS_PATH}.{i}"] = f"Rerank › Retrieval share, {ranks}"
            first = (band.max_rank or first) + 1
    return named


def label(path: str, config: PipelineConfig) -> str:
    """The label of a parameter, with its stage."""
    return options(config).get(path, path)


def draw(data: TuningData, system: System | None, starts: tuple[str, ...] = ("",)) -> SearchSpace | None:
    """Draw the space; None while it is invalid, with the error drawn in place. Only parameters that the target has, and
    whose paths start with one of `starts`, are offered; the others are folded."""
    baseline, gathered = data.baseline, data.evidence.header.config
    known = {path: name for path, name in options(baseline).items() if path.startswith(starts)}
    has = None if system is None else {spec.path for spec, _ in exported(system.form)}
    named = {path: name for path, name in known.items() if has is None or path in has}
    spaces = {name: paths for name, paths in suggested(data, system).items() if set(paths) <= set(named)}
    if system is not None:
        spaces = {name: paths for name, paths in spaces.items() if paths}
        missing = [name for path, name in known.items() if path not in named]
        with st.expander(
            f"Not there: {len(missing)} parameters that {system.title} has no setting for", key="tune:not_there"
        ):
            st.caption(plain("; ".join(missing)))
    chosen_for = (system and system.name, baseline)
    kept = st.session_state.get(FOR) in (chosen_for, ADDRESSED)
    if not kept or not set(st.session_state.get(PATHS, ())) <= set(named):
        st.session_state[PATHS] = list(spaces.get(BY_DEFAULT, ()))
    st.session_state[FOR] = chosen_for
    with st.container(horizontal=True, gap="xsmall", vertical_alignment="center"):
        st.caption("Start from", width="content")
        for name, paths in spaces.items():
            help = f"Search {len(paths)} parameters: {', '.join(f'`{path}`' for path in paths)}"
            choose, key = partial(st.session_state.update, {PATHS: list(paths)}), f"tune:space:{name}"
            st.button(name, key=key, on_click=choose, type="tertiary", help=help)
    chosen = st.multiselect(
        "Parameters to search",
        list(named),
        format_func=named.__getitem__,
        label_visibility="collapsed",
        placeholder="Type to find a parameter",
        **remembered(PATHS),
    )
    if not chosen:
        st.info("Choose at least one parameter to search.", icon=":material/tune:")
        return None
    with st.container(gap="xsmall", key="tune-space"):
        boxes = st.columns(COLUMN_WIDTHS)
        boxes[0].caption("parameter")
        boxes[1].caption("baseline")
        for box, text in zip(boxes[2].columns(3), ("from", "to", "step"), strict=True):
            box.caption(text)
        boxes[3].caption("values", text_alignment="right")
        drawn = [_axis_row(path, baseline, gathered, named[path]) for path in chosen]
    axes = [axis for axis in drawn if axis is not None]
    if len(axes) < len(drawn):
        return None
    with errors_shown():
        space = SearchSpace.of(baseline, axes)
        if space.constraints:
            st.caption("Constraints on every config: " + "; ".join(rule.words for rule in space.constraints) + ".")
        fixed = space.fixed()
        title = f"Fixed: {len(fixed)} other parameters, as in the baseline"
        box = st.expander(title, key="tune:fixed", on_change="rerun")
        if box.open:
            with box:
                rows = [(path, short_value(value)) for path, value in fixed]
                draw_values(("parameter", "value"), rows, key="tune:fixed_table", height=280)
        return space
    return None


def _axis_row(path: str, baseline: PipelineConfig, gathered: PipelineConfig, name: str) -> Axis | None:
    """Draw name, baseline value, range and step or choices, and the number of values; None if it is invalid."""
    spec = next((spec for spec in field_specs() if spec.path == path), None)
    unit, about = "", f"The share of the retrieval score at these ranks; the rest is the reranker’s.\n\n`{path}`"
    if spec is not None:
        unit = f" ({spec.unit})" if spec.unit else ""
        about = f"{spec.help}\n\n{COST_HELP[spec.cost]}\n\n`{path}`: {spec.range_text}"
    boxes = st.columns(COLUMN_WIDTHS, vertical_alignment="center")
    boxes[0].markdown(plain(name + unit), help=about)
    boxes[1].markdown(plain(short_value(value_at(baseline, path))))
    whole = axis_for(path, gathered)
    try:
        axis = _choices(whole, boxes[2]) if whole.choices else _range(whole, boxes[2], spec)
    except InputError as error:
        st.error(plain(str(error).removeprefix("--space ")))
        return None
    boxes[3].markdown(f"{axis.size}", text_alignment="right")
    return axis


def _choices(whole: Axis, box: DeltaGenerator) -> Axis:
    chosen = box.pills(
        whole.path,
        whole.choices,
        selection_mode="multi",
        default=whole.choices,
        format_func=short_value,
        label_visibility="collapsed",
        **remembered(f"tune:choices:{whole.path}"),
    )
    if not chosen:
        raise InputError(f"{whole.path}: choose at least one value")
    return Axis(whole.path, choices=tuple(value for value in whole.choices if value in chosen))


def _range(whole: Axis, box: DeltaGenerator, spec: FieldSpec | None) -> Axis:
    """Draw three numbers, validated like the command line's; a deeper value than the evidence's cannot be searched."""
    numbers = []
    kind, form = (int, "%d") if whole.whole else (float, "%g")
    parts = {"from": whole.low, "to": whole.high, "step": whole.step}
    for (part, first), place in zip(parts.items(), box.columns(3), strict=True):
        common: dict[str, Any] = {"step": kind(whole.step), "format": form, "label_visibility": "collapsed"}
        common |= remembered(f"tune:{part}:{whole.path}")
        numbers.append(place.number_input(f"{whole.path} {part}", value=kind(first), **common))
    low, high, step = numbers
    axis = parse_axis(f"{whole.path}={low!r}:{high!r}:{step!r}")
    if spec is not None and spec.cost == "deepen" and high > whole.high:
        raise InputError(
            f"{whole.path}: the evidence was gathered up to {whole.high:g}, the maximum that can be searched"
        )
    return axis


def _axes() -> Values:
    """The chosen parameters as the command line's --space has them; without those whose range was never drawn."""
    box, texts = st.session_state, []
    for path in box.get(PATHS, ()):
        numbers = [box.get(f"tune:{part}:{path}") for part in ("from", "to", "step")]
        if None not in numbers:
            texts.append(f"{path}={':'.join(f'{number:g}' for number in numbers)}")
        elif choices := box.get(f"tune:choices:{path}"):
            texts.append(f"{path}={'|'.join(map(assigned_value, choices))}")
    return {"space": packed(texts)}


def _put_axes(values: Values) -> None:
    axes = [parse_axis(text) for text in unpacked("space", values.get("space", ()))]
    st.session_state.pop(FOR, None)
    if not axes:
        return
    st.session_state[PATHS], st.session_state[FOR] = [axis.path for axis in axes], ADDRESSED
    for axis in axes:
        if axis.choices:
            st.session_state[f"tune:choices:{axis.path}"] = list(axis.choices)
            continue
        for part, number in (("from", axis.low), ("to", axis.high), ("step", axis.step)):
            st.session_state[f"tune:{part}:{axis.path}"] = int(number) if axis.whole else float(number)


GUARDS = ("hit@5", "hit@1", "recall@10", "nDCG@10", "MRR")
NO_ANSWER_GUARDS = ("noise@5", "answered", "refused", "noise@5<=0.5", "refused<=0.05")
"""Guards offered if there are queries without an answer."""
SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def draw_goal(data: TuningData, space: SearchSpace) -> Goal | None:
    """Draw objectives and guards; None if one is invalid, with the error drawn in place."""
    left, right = st.columns(2, vertical_alignment="bottom")
    wanted = left.multiselect(
        "Optimise",
        offered_measures(per_query=True),
        default=["nDCG@10"],
        accept_new_options=True,
        max_selections=3,
        **remembered("tune:objectives", HELP["tune:objectives"] + measures_help()),
    )
    types = sorted({kind for kind in data.batch.types if kind})
    noise = NO_ANSWER_GUARDS if data.batch.without_answer(data.relevant_from).any() else ()
    offered = [*GUARDS, *noise, *(f"{kind}:{GUARDS[0]}" for kind in types)]
    labels = {text: _guard_text(parse_guard(text)) for text in offered}
    texts = right.multiselect(
        "Must not get worse",
        offered,
        accept_new_options=True,
        format_func=lambda text: labels.get(text, text),  # a typed option comes back as its formatted text
        placeholder="no guard",
        **remembered("tune:guards"),
    )
    fewer = any(axis.path in ("rerank.depth", "rerank.score_window") for axis in space.axes) and st.toggle(
        "Fewer candidates to the reranker", **remembered("tune:fewer")
    )
    if not wanted:
        st.info("Choose a measure to maximise.")
        return None
    try:
        goal = parse_goal([*wanted, *([RERANKED] if fewer else [])], texts, data.relevant_from)
    except InputError as error:
        st.error(plain(str(error).removeprefix("--guard ").removeprefix("--metric ")))
        return None
    unknown = sorted({guard.query_type for guard in goal.guards if guard.query_type and guard.query_type not in types})
    if unknown:
        st.warning(f"No query of this set is of type {plain(', '.join(unknown))}: that guard has no effect.")
    return goal


def _guard_text(guard: Guard) -> str:
    if guard.bound is not None:
        return str(guard)
    less = f", less {guard.tolerance:g}" if guard.tolerance else ""
    return f"{guard.measure} of {guard.query_type}{less}" if guard.query_type else f"{guard.measure}{less}"


def draw_plan(data: TuningData, space: SearchSpace, goal: Goal) -> PlannedSearch | None:
    """The planned search; None if the queries cannot be split as set, with the error drawn in place."""
    batch = scorer_for(data, goal.measures, int(st.session_state.get("tune:seed", 0))).batch
    if not batch.queries:
        st.info(
            "None of the judged queries has a relevant memory under these measures, so all configs score the same. "
            "Label some relevant memories on the Label page."
        )
        return None
    settings = _settings(batch, can_seal=not data.stands_in)
    try:
        planned = plan_search(data, scorer_for(data, goal.measures, settings.seed), space, goal, settings)
    except InputError as error:
        st.warning(plain(str(error)), icon=":material/call_split:")
        return None
    for line in (*data.batch.mismatches, *planned.beyond):
        st.warning(plain(line), icon=":material/warning:")
    st.caption(f"{planned.relevance}. {split_text(planned, settings.folds)}")
    return planned


NUMBERS: Mapping[str, tuple[str, float, tuple[Any, ...]]] = {
    "folds": ("Folds", 1.5, (2, 20, 5)),
    "sealed": ("Sealed share", 1.7, (0.0, 0.8, 0.2, 0.05)),
    "trials": ("Configs", 1.7, (10, 20_000, 200, 50)),
    "seed": ("Seed", 1.5, (0, 2**31 - 1, 0)),
}
"""Settings of a search: label, width of the box, its range, value and step."""


def _settings(batch: LabelledBatch, can_seal: bool) -> SearchSettings:
    counts = {by: len(set(groups_of(batch, by))) for by in GROUPINGS}
    asked = st.session_state.get("tune:set")
    if st.session_state.get(GROUPED_FOR, asked) != asked:  # another set has its own natural grouping
        st.session_state["tune:group_by"] = natural_grouping(batch)
    st.session_state[GROUPED_FOR] = asked
    numbers = {name: row for name, row in NUMBERS.items() if can_seal or name != "sealed"}
    first, *boxes = st.columns([3, *(width for _, width, _ in numbers.values())], vertical_alignment="bottom")
    by = first.selectbox(
        "Never split",
        GROUPINGS,
        GROUPINGS.index(natural_grouping(batch)),
        format_func=lambda grouping: f"{GROUP_WORDS[grouping]} · {counts[grouping]}",
        **remembered("tune:group_by"),
    )
    typed: dict[str, Any] = {"sealed": 0.0}
    for box, (name, (label, _, bounds)) in zip(boxes, numbers.items(), strict=True):
        typed[name] = box.number_input(label, *bounds, **remembered(f"tune:{name}"))
    return SearchSettings(by, **typed)


ADDRESS = (
    Part(("space",), _axes, _put_axes),
    widget("optimise", "tune:objectives", many=3, usual=["nDCG@10"]),
    widget("guard", "tune:guards", many=20),
    widget("fewer", "tune:fewer", bool),
    widget("group_by", "tune:group_by", choices=lambda: GROUPINGS),
    *(
        widget(name, f"tune:{name}", type(bounds[2]), usual=bounds[2], span=bounds[:2])
        for name, (_, _, bounds) in NUMBERS.items()
    ),
)
"""What is searched, for which goal and how."""


def split_text(planned: PlannedSearch, wanted_folds: int) -> str:
    """One line: number of tuning queries, folds, and sealed queries."""
    parts = planned.plan.split
    folds, sealed = len(parts.folds), len(parts.holdout)
    unsealed = (
        "there are no judgments to seal"
        if planned.data.stands_in
        else "the proposal cannot be measured on unseen queries"
    )
    held = f"{sealed} sealed" if sealed else f"none sealed: {unsealed}"
    few = f" There are only enough groups for {folds} folds; choose finer groups under “Never split” for more."
    return f"{len(parts.open)} queries in {folds} folds, {held}.{few if folds < wanted_folds else ''}"


def effort(planned: PlannedSearch) -> str:
    """How the space is searched, as a sentence."""
    space, plan, size = planned.plan.space, planned.plan, planned.plan.space.size
    if space.is_grid:
        points = min(size, sum(1 for _ in space.grid(plan.trials)))
        every = "all of them" if points == size else "spread evenly"
        return f"Grid: {points:,} of {size:,} combinations, {every}; the folds reuse them."
    large = f"{size:,}" if size < 1_000_000 else f"some 10{str(len(str(size)) - 1).translate(SUPERSCRIPTS)}"
    return (
        f"{len(space.axes)} parameters, {large} combinations: TPE tries {plan.trials:,} configs, the last quarter near the best; then as "
        f"many for each of the {len(plan.split.folds)} folds."
    )


def draw_start(planned: PlannedSearch) -> None:
    """Draw the planned effort and the start button."""
    left, right = st.columns([1, 3], vertical_alignment="center")
    left.button(
        "Start the search",
        key="tune:start",
        type="primary",
        icon=":material/play_arrow:",
        width="stretch",
        on_click=start,
        args=(planned,),
        help="Runs in the background. You can stop and resume it; tried configs are kept.",
    )
    planned.score(planned.plan.space.baseline, planned.plan.split.open)  # the first of the search, and its pace
    pace = planned.score.seconds_per_config
    took = f" A config takes {pace:.2g} s here: {duration(pace * planned.most_configs)} at most." if pace else ""
    right.caption(effort(planned) + took)
    if problem := page.get().problem:
        st.error(plain(problem))
        page.update(problem="")


def draw_running() -> bool:
    """Draw the running search of the store, if any; True while it runs. The result of one that was watched is opened, if
    it is of what is chosen."""
    at_work = running_search()
    if at_work is None:
        watched = page.get().watched
        if watched is not None and watched is last_search():
            own = watched.result is not None and watched.result.planned is watched.planned
            page.update(watched=None, problem=watched.problem, next_view="Result" if own else None)
            st.rerun()
        return False
    page.update(watched=at_work)
    text, more = partial(_progress_text, at_work), partial(_best_so_far, at_work)
    with st.container(key="tune-panel"):
        watch_work(lambda: {"search": at_work}, "search", "tune:stop", text, "Stop", "Tried configs are kept.", more)
    return True


def _best_so_far(at_work: BackgroundSearch) -> None:
    """Draw the best value after each config; nothing before the second."""
    best = list(at_work.best)
    if len(best) < 2:
        return
    measure = str(at_work.planned.plan.goal.objectives[0])
    draw_chart(
        curve_figure(best, measure, at_work.planned.plan.trials + 1),
        key="tune:curve",
        alt=f"Line chart: best {measure} so far, by configs tried.",
        table=lambda: [{"configs tried": tried, f"best {measure}": value} for tried, value in enumerate(best)],
    )
    st.caption(
        f"Best {measure} so far {best[-1]:.4f}, {best[-1] - best[0]:+.4f} relative to the baseline, on the tuning queries. "
        "The best of many is partly luck: only the folds and the sealed queries give an unbiased estimate."
    )


def _progress_text(at_work: BackgroundSearch) -> str:
    """What is done, with the time left."""
    part = {MAIN_SEARCH: "Searching", STABILITY: "Measuring the stability of each value"}.get(at_work.part, "")
    part = part or f"Cross-validating, {at_work.part} of {len(at_work.planned.plan.split.folds)}"
    left = at_work.seconds_left
    return f"{part}: {at_work.done} of {at_work.total}{f' · about {duration(left)} left in all' if left else ''}"


def curve_figure(curve: list[float], measure: str, total: int) -> Figure:
    """Best value so far as a step line by configs tried, with the baseline."""
    import plotly.graph_objects as go

    chart = go.Figure()
    chart.add_scatter(
        x=list(range(len(curve))),
        y=curve,
        mode="lines",
        line={"color": LIST_COLOURS[0], "width": 2.5, "shape": "hv"},
        hovertemplate=hover("after %{x} configs", f"{measure} %{{y:.4f}}"),
    )
    baseline = {"annotation_text": "baseline", "annotation_position": "bottom right", "annotation_font_size": 12}
    chart.add_hline(y=curve[0], line={"color": "#7B848D", "width": 1, "dash": "dash"}, **baseline)
    x = {"title": "configs tried", "range": [0, max(total - 1, len(curve))], "showgrid": False}
    chart.update_layout(layout(230, x, {"title": measure, "tickformat": ".3f"}, uirevision="curve"))
    return chart
