"""Setup of the Evaluate page: queries, configs, judgments, and imports from files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from cems_workbench.config import PipelineConfig, import_config
from cems_workbench.errors import InputError
from cems_workbench.evaluation.evidence_file import read_header
from cems_workbench.evaluation.metrics import Measure, measures_help, offered_measures, parse_measures
from cems_workbench.jobs.catalogue import PRESENT_NAME, file_name
from cems_workbench.jobs.query_set_evidence import QuerySelection, judged_selection, measurable, set_relevant_from
from cems_workbench.jobs.traced_sets import traced_header
from cems_workbench.pipeline.resources import Resources
from cems_workbench.platform.bidi import neutralise
from cems_workbench.store import QuerySet
from cems_workbench.ui.evaluate import files, log
from cems_workbench.ui.evaluate.state import (
    JUDGES,
    OPENED_FILE,
    Choice,
    OpenedFile,
    config_options,
    page,
    read_file,
    set_widgets,
)
from cems_workbench.ui.inspect import state
from cems_workbench.ui.kit.html import plain, render
from cems_workbench.ui.kit.widgets import draw_effects, empty

DEFAULT_MEASURES = ("hit@1", "hit@5", "recall@5", "MRR", "nDCG@10", "Judged@10")
FAST_PRESET = "recollection"
"""A preset without rerank or expansion models, so that a first comparison is fast."""


def choose(resources: Resources) -> Choice | None:
    """Draw the setup; None while there is nothing to measure, with the problem drawn in place."""
    set_widgets()
    sets = {query_set.name: query_set for query_set in resources.store.query_sets.latest()}
    file = page.get().opened
    judgments = resources.store.judgments.read()
    if file is None and not (sets and measurable(resources.store.queries.read(), judgments)):
        _nothing(bool(sets))
        _further(resources)
        return None
    _set_options(sets, file)  # which set is chosen decides whether there are configs to choose
    traced = _traced(st.session_state["evaluate:set"], resources)
    configs = traced or _configs(resources)
    asked = _draw_judging(sets, file, resources)
    if not traced:
        draw_effects(dict(configs), asked.project_only)
    measures = _measures(asked.relevant_from)
    _further(resources)
    if not configs:
        st.info("Choose a config above. Others are compared with the first.")
        return None
    if measures is None:
        return None
    if asked.query_set == OPENED_FILE and file is not None:
        return _on_file(file, configs, asked.kind, measures)
    selection = judged_selection(asked.query_set, resources, judgments, asked.project_only)
    if not selection.queries:
        st.info("No query of this set is judged yet. Label some results, or import judgments.", icon=":material/rule:")
        st.page_link("pages/label.py", label="Judge its results on the Label page", icon=":material/rule:")
        return None
    if selection.without_project:
        st.caption(f"{selection.without_project[0].upper()}{selection.without_project[1:]}.")
    return Choice(selection, configs, asked.kind, measures)


def _set_options(sets: Mapping[str, QuerySet], file: OpenedFile | None) -> list[str]:
    """The choices of queries; the first is chosen if none is."""
    options = ([OPENED_FILE] if file else []) + sorted(sets)
    if st.session_state.get("evaluate:set") not in options:
        st.session_state["evaluate:set"] = options[0]
    return options


def _traced(query_set: str, resources: Resources) -> tuple[tuple[str, PipelineConfig], ...]:
    """The one config of a set of external traces, with the reason why no other can be chosen; empty for another set."""
    header = None if query_set == OPENED_FILE else traced_header(resources.store.path, query_set)
    if header is None:
        return ()
    st.caption(
        f":material/route: {plain(query_set)} was traced in another pipeline: its recorded stages are measured, and no config changes "
        "them. Recorded answers, above, finds the nearest preset."
    )
    return ((header.config.name, header.config),)


def _configs(resources: Resources) -> tuple[tuple[str, PipelineConfig], ...]:
    options = config_options(resources).configs
    names = st.multiselect(
        "Configs",
        list(options),
        default=_first(),
        key="evaluate:configs",
        persist_state="session",
        help="The first is the baseline; the others are compared with it. “As set in Inspect” is the current state of the sliders.",
    )
    return tuple((name, options[name]) for name in names)


@dataclass(frozen=True, slots=True)
class _Judging:
    """The judgments that count: name of the query set, or `OPENED_FILE`; kind of judge; lowest relevant grade."""

    query_set: str
    kind: str | None
    relevant_from: int
    project_only: bool


def _draw_judging(sets: Mapping[str, QuerySet], file: OpenedFile | None, resources: Resources) -> _Judging:
    """Draw the row of boxes under the configs."""

    def shown(name: str) -> str:
        if file is not None and name == OPENED_FILE:
            return f"file {file.name}"
        return f"{neutralise(name)} · {sets[name].size} queries · version {sets[name].version}"

    boxes = st.columns([3, 2, 2, 2], vertical_alignment="bottom")
    name = boxes[0].selectbox(
        "Query set",
        _set_options(sets, file),
        key="evaluate:set",
        persist_state="session",
        format_func=shown,
        help="A named set of queries; each import with changes creates a new version.",
    )
    on_file = name == OPENED_FILE
    kind = boxes[1].selectbox(
        "Judgments",
        list(JUDGES),
        key="evaluate:judges",
        persist_state="session",
        help="Whose grades count. “People, else models” uses a model’s grade only if no person graded the pair.",
    )
    grade = _relevant_from(boxes[2], name, None if on_file else sets[name], file, resources)
    within = boxes[3].toggle(
        "Within the project",
        key="evaluate:project_only",
        persist_state="session",
        disabled=on_file,
        help="Search only the query’s project, if it has one. Does not apply to an opened evidence file.",
    )
    return _Judging(name, JUDGES[kind], int(grade), bool(within) and not on_file)


def _relevant_from(
    box: DeltaGenerator, name: str, query_set: QuerySet | None, file: OpenedFile | None, resources: Resources
) -> int:
    """The relevance grade of the set, which the box changes in the store; that of an opened file is fixed."""
    if query_set is None:
        try:
            present = read_header(file.path).relevant_from if file else 1
        except InputError:
            return 1  # the error is drawn where the file is read
        grades = [present]
    else:
        present = query_set.scale.relevant_from
        grades = sorted({present, *(grade for grade, _ in query_set.scale.grades if grade > 0)})
    key = f"evaluate:grade:{name}"
    if st.session_state.get(key) not in grades:
        st.session_state.pop(key, None)
    chosen = box.selectbox(
        "Relevant from",
        grades,
        grades.index(present),
        key=key,
        disabled=query_set is None,
        format_func="grade {}".format,
        help="The lowest grade that counts as relevant. Only queries with a relevant memory are measured. Saved with the query set and "
        "used by Inspect, Tune, the command line and exports. nDCG uses the grades themselves.",
    )
    if query_set is not None and chosen != present:
        set_relevant_from(name, chosen, resources)
    return chosen


def _on_file(
    file: OpenedFile, configs: tuple[tuple[str, PipelineConfig], ...], kind: str | None, measures: tuple[Measure, ...]
) -> Choice | None:
    """Draw the opened file with a button to close it; None if it cannot be read."""
    try:
        evidence = read_file(file)
    except InputError as error:
        st.error(plain(str(error)), icon=":material/block:")
        st.button("Close the file", key="evaluate:file_close", on_click=files.close)
        return None
    header = evidence.header
    searched = f"{len(evidence.evidences)} of {len(evidence.queries)} queries"
    about = f"{searched}, gathered {header.created_at[:10]} for {plain(header.config.name)}"
    why = f" Read-only: {plain(file.reason)}." if file.reason else ""
    left, right = st.columns([5, 1], vertical_alignment="center")
    left.caption(f"{plain(file.name)}: {about}, with its own judgments.{why}")
    right.button("Close the file", key="evaluate:file_close", on_click=files.close, width="stretch")
    return Choice(QuerySelection(file.name, evidence.queries, header.project_only), configs, kind, measures, file)


def _further(resources: Resources) -> None:
    """Draw the popovers that add configs and queries from files."""
    with st.container(horizontal=True, key="evaluate:further"):
        _config_file()
        files.draw(resources)
        log.draw(resources)


def _config_file() -> None:
    popover = st.popover(
        "Config file",
        icon=":material/upload_file:",
        key="evaluate:config",
        on_change="rerun",
        help="Compare a config from a file, in any export format",
    )
    if not popover.open:
        return
    with popover, st.container(width=360):
        upload = st.file_uploader(
            "Config",
            ["yaml", "yml", "json", "toml", "env", "py"],
            key="evaluate:config_file",
            help="An .env changes only the parameters it names; the others are those set in Inspect.",
        )
        if upload and st.button("Add to comparison", key="evaluate:config_add", type="primary"):
            _bring_in(upload.name, upload.getvalue())
        for line in page.get().file_warnings:
            st.warning(plain(line))


def _bring_in(file: str, content: bytes) -> None:
    """Add the config of a file to the chosen ones, under the file's name."""
    try:
        result = import_config(content.decode("utf-8-sig"), state.present_config(), source=file)
    except UnicodeDecodeError:
        st.error(plain(f"{file}: not UTF-8 text"))
        return
    except InputError as error:
        st.error(plain(str(error)))
        return
    name = file_name(file)
    chosen = tuple(st.session_state.get("evaluate:configs", ()))
    page.update(
        file_configs={**page.get().file_configs, name: result.config},
        file_warnings=tuple(result.warnings),
        next_configs=chosen if name in chosen else (*chosen, name),
    )
    st.rerun()


def _first() -> list[str]:
    """The preset and the config as set in Inspect; while unchanged, another preset."""
    name = state.present_preset()
    return (
        [name, PRESENT_NAME]
        if state.changed_parameters()
        else [name, FAST_PRESET]
        if name != FAST_PRESET
        else [name, "cems"]
    )


def _measures(grade: int) -> tuple[Measure, ...] | None:
    names = st.multiselect(
        "Measures",
        offered_measures(),
        default=list(DEFAULT_MEASURES),
        key="evaluate:measures",
        accept_new_options=True,
        persist_state="session",
        help="You can type others, such as hit@3 or nDCG@5. " + measures_help(),
    )
    try:
        return parse_measures(" ".join(names), grade)
    except InputError as error:
        st.error(plain(str(error)))
        return None


def _nothing(has_queries: bool) -> None:
    lacking = "None of its queries is judged yet." if has_queries else "This store has no queries yet."
    empty("Measure configs on judged queries", render("evaluate/nothing_judged.html", lacking=lacking))
