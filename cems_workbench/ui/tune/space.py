"""Search space: parameters chosen from the config's metadata, each with range and step, or choices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from cems_workbench.config import COST_HELP, FieldSpec, PipelineConfig, field_spec, field_specs
from cems_workbench.config.fields import short_value
from cems_workbench.errors import InputError
from cems_workbench.pipeline.fusion_methods import fusion_method
from cems_workbench.pipeline.list_sources import SOURCES
from cems_workbench.pipeline.stages import RERANK
from cems_workbench.tuning.space import BANDS_PATH, Axis, SearchSpace, axis_for, parse_axis, searchable
from cems_workbench.ui.inspect.controls import GROUPS
from cems_workbench.ui.kit.html import plain
from cems_workbench.ui.kit.tables import Column, draw_table

PATHS = "tune:paths"
COLUMN_WIDTHS = (3.4, 1.4, 4.4, 0.9)
WEIGHTS = "Weights of the lists"


def suggested(config: PipelineConfig) -> dict[str, tuple[str, ...]]:
    """Suggested spaces, by name: only parameters with an effect under this config."""
    lists = [name for name in SOURCES if config.get(f"lists.{name}.enabled")]
    weights = tuple(f"lists.{name}.weight" for name in lists)
    method = fusion_method(config.fusion)
    k = ("fusion.k",) if method.uses("fusion.k") else ()
    bonus = ("fusion.top_rank_bonus.rank1",) if method.uses("fusion.top_rank_bonus") else ()
    scaled = ("lists.lexical.normalization",) if "lexical" in lists else ()
    if method.reads == "scores" and "vector" in lists:
        scaled = ("lists.vector.normalization", *scaled)
    fused = (*weights, *k, *bonus, "fusion.score_blend", *scaled)
    spaces = {"Weights and fusion": fused, WEIGHTS: weights[:3]}
    if not RERANK.is_off(config):
        bands = tuple(f"{BANDS_PATH}.{i}" for i in range(len(config.rerank.bands)))
        spaces["Reranker’s blend"] = (*bands, "rerank.retrieval_score", "rerank.depth", "rerank.score_window")
    factors = (
        "adjust.time_decay.mode",
        "adjust.time_decay.half_life_days",
        "adjust.project.same",
        "adjust.project.different",
    )
    spaces["Age and project"] = factors
    cut = ("filter.min_score",) if config.filter.min_score is not None else ()
    spaces["Superseded memories"] = ("supersession.mode", "supersession.expired")
    spaces["Cut-offs"] = (*cut, "threshold.mode", "gap.ratio", "dedup.similarity")
    scored = ("abstain.reranker",) if not RERANK.is_off(config) else ()
    spaces["When nothing is returned"] = ("abstain.vector", "abstain.lexical", *scored, "abstain.margin")
    return spaces


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


def draw(baseline: PipelineConfig, gathered: PipelineConfig, starts: tuple[str, ...] = ("",)) -> SearchSpace | None:
    """Draw the space; None while it is invalid, with the error drawn in place.

    Only parameters whose paths start with one of `starts` are offered.
    """
    named = {path: name for path, name in options(baseline).items() if path.startswith(starts)}
    spaces = {name: paths for name, paths in suggested(baseline).items() if set(paths) <= set(named)}
    if PATHS not in st.session_state or not set(st.session_state[PATHS]) <= set(named):
        st.session_state[PATHS] = list(spaces["Weights and fusion"])
    _suggestions(spaces)
    paths = st.multiselect(
        "Parameters to search",
        list(named),
        key=PATHS,
        format_func=named.__getitem__,
        label_visibility="collapsed",
        placeholder="Type to find a parameter",
        persist_state="session",
    )
    if not paths:
        st.info("Choose at least one parameter to search.", icon=":material/tune:")
        return None
    axes = _axes(paths, baseline, gathered, named)
    if axes is None:
        return None
    try:
        space = SearchSpace.of(baseline, axes)
    except InputError as error:
        st.error(plain(str(error)))
        return None
    if space.constraints:
        st.caption("Constraints on every config: " + "; ".join(rule.words for rule in space.constraints) + ".")
    _fixed(space)
    return space


def _suggestions(spaces: dict[str, tuple[str, ...]]) -> None:
    with st.container(horizontal=True, gap="xsmall", vertical_alignment="center"):
        st.caption("Start from", width="content")
        for name, paths in spaces.items():
            st.button(
                name,
                key=f"tune:space:{name}",
                on_click=_choose,
                args=(paths,),
                type="tertiary",
                help=f"Search {len(paths)} parameters: {', '.join(f'`{path}`' for path in paths)}",
            )


def _choose(paths: Sequence[str]) -> None:
    st.session_state[PATHS] = list(paths)


def _axes(
    paths: Sequence[str], baseline: PipelineConfig, gathered: PipelineConfig, named: dict[str, str]
) -> list[Axis] | None:
    """Draw one row per axis; None if one is invalid."""
    known = {spec.path: spec for spec in field_specs()}
    with st.container(gap="xsmall", key="tune-space"):
        _heads()
        axes = [_axis_row(path, known.get(path), baseline, gathered, named[path]) for path in paths]
    return [axis for axis in axes if axis is not None] if None not in axes else None


def _heads() -> None:
    boxes = st.columns(COLUMN_WIDTHS)
    boxes[0].caption("parameter")
    boxes[1].caption("baseline")
    for box, text in zip(boxes[2].columns(3), ("from", "to", "step"), strict=True):
        box.caption(text)
    boxes[3].caption("values", text_alignment="right")


def _axis_row(
    path: str, spec: FieldSpec | None, baseline: PipelineConfig, gathered: PipelineConfig, name: str
) -> Axis | None:
    """Draw name, baseline value, range and step or choices, and the number of values."""
    boxes = st.columns(COLUMN_WIDTHS, vertical_alignment="center")
    unit = f" ({spec.unit})" if spec is not None and spec.unit else ""
    boxes[0].markdown(plain(name + unit), help=_about(path, spec))
    boxes[1].markdown(plain(short_value(value_at(baseline, path))))
    whole = axis_for(path, gathered)
    try:
        axis = _choices(whole, boxes[2]) if whole.choices else _range(whole, boxes[2])
    except InputError as error:
        st.error(plain(str(error).removeprefix("--space ")))
        return None
    boxes[3].markdown(f"{axis.size}", text_alignment="right")
    return axis


def _about(path: str, spec: FieldSpec | None) -> str:
    if spec is None:
        return f"The share of the retrieval score at these ranks; the rest is the reranker’s.\n\n`{path}`"
    return f"{spec.help}\n\n{COST_HELP[spec.cost]}\n\n`{path}`: {spec.range_text}"


def value_at(config: PipelineConfig, path: str) -> Any:
    """The value of a parameter; blend bands of the reranker are addressed by index."""
    if path.startswith(f"{BANDS_PATH}."):
        return config.rerank.bands[int(path.rpartition(".")[2])].retrieval
    return config.get(path)


def _choices(whole: Axis, box: DeltaGenerator) -> Axis:
    chosen = box.pills(
        whole.path,
        whole.choices,
        selection_mode="multi",
        default=whole.choices,
        key=f"tune:choices:{whole.path}",
        format_func=short_value,
        label_visibility="collapsed",
        persist_state="session",
    )
    if not chosen:
        raise InputError(f"{whole.path}: choose at least one value")
    return Axis(whole.path, choices=tuple(value for value in whole.choices if value in chosen))


def _range(whole: Axis, box: DeltaGenerator) -> Axis:
    """Draw three numbers, validated like the command line's."""
    numbers = []
    kind, form = (int, "%d") if whole.whole else (float, "%g")
    for part, start, place in zip(
        ("from", "to", "step"), (whole.low, whole.high, whole.step), box.columns(3), strict=True
    ):
        numbers.append(
            place.number_input(
                f"{whole.path} {part}",
                value=kind(start),
                step=kind(whole.step),
                format=form,
                label_visibility="collapsed",
                key=f"tune:{part}:{whole.path}",
                persist_state="session",
            )
        )
    low, high, step = numbers
    axis = parse_axis(f"{whole.path}={low!r}:{high!r}:{step!r}")
    if _kind(whole.path) == "deepen" and high > whole.high:
        raise InputError(
            f"{whole.path}: the evidence was gathered up to {whole.high:g}, the maximum that can be searched"
        )
    return axis


def _kind(path: str) -> str:
    """The cost of a parameter: replay, or replay up to the gathered depth."""
    return "replay" if path.startswith(f"{BANDS_PATH}.") else field_spec(path).cost


def _fixed(space: SearchSpace) -> None:
    fixed = space.fixed()
    box = st.expander(f"Fixed: {len(fixed)} other parameters, as in the baseline", key="tune:fixed", on_change="rerun")
    if box.open:
        columns: list[Column[tuple[str, Any]]] = [
            Column("parameter", lambda row: row[0]),
            Column("value", lambda row: short_value(row[1])),
        ]
        with box:
            draw_table(fixed, columns, key="tune:fixed_table", height=280)
