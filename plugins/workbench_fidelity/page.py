"""Fidelity: compare configs with the recorded answers of a live system; differing queries open in Inspect.

A setting combines a file of answers with a config, overridden by the settings stated in the file. Its queries are gathered once, next
to the store, as for any query set. Below, the preset that comes closest to the recorded answers, with its changed parameters.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import streamlit as st

from cems_workbench.config import PipelineConfig, dump_config, preset, preset_names
from cems_workbench.evaluation.evidence_file import EvidenceSet
from cems_workbench.jobs.access import allowed_path
from cems_workbench.jobs.importing import upload
from cems_workbench.jobs.query_set_evidence import QuerySelection, discard_evidence, read_evidence
from cems_workbench.pipeline.resources import Resources
from cems_workbench.platform.bidi import neutralise
from cems_workbench.progress import Progress
from cems_workbench.records import Query, Recording, Returned
from cems_workbench.settings import Settings
from cems_workbench.ui.evaluate.compare import with_interval
from cems_workbench.ui.evaluate.state import config_options, page
from cems_workbench.ui.inspect.state import open_in_inspect
from cems_workbench.ui.kit.html import capital, plain, render
from cems_workbench.ui.kit.session import for_all_sessions
from cems_workbench.ui.kit.tables import Column, draw_result, draw_table, pick_row
from cems_workbench.ui.kit.views import View
from cems_workbench.ui.kit.widgets import (
    cancellable,
    download,
    draw_provenance,
    empty,
    errors_shown,
    offer_gather,
    progress_bar,
    remembered,
    switch,
)
from workbench_fidelity.fidelity import (
    BASE_PRESET,
    Difference,
    FidelitySetting,
    MeasuredFidelity,
    asked_queries,
    bad_rows,
    causes_counted,
    compared,
    explained,
    kept_recording,
    lexical_lists,
    productions_in,
    read_answers,
    recorded_sets,
    require_usable,
    selection_for,
    setting_for,
)
from workbench_fidelity.lists import WhichLists
from workbench_fidelity.measures import MEASURES, SCORE_DIFFERENCE, Lists
from workbench_fidelity.nearest import MAX_PRESETS, Nearest, find_nearest, lists_for

Value = TypeVar("Value")

FOUND, EXPLAINED = "evaluate:nearest_found", "evaluate:fidelity_explained"
FORMS = ["json", "jsonl", "txt", "csv", "tsv", "run", "trec"]
FORMS_HELP = (
    "A recording with its settings, search responses of CEMS (JSON, one or a list), a TREC run on queries of this store, or a list of "
    "ids, one per line; or a log: hook_events.jsonl of CEMS, retriever spans of OpenInference, rows with query and results. The data "
    "stays on this machine."
)
PATH_HELP = "A path on the machine that runs the app: in the folder of its store, or in one of CEMS_WORKBENCH_FOLDERS. "
SETS_HELP = "Imported logs of queries and answers, and external traces (Memories page, or the command `import`)."
CONFIGS_HELP = "Each config is compared with every file. cems_head is CEMS with its default settings."
SETTINGS_HELP = "The CEMS variables and the token budget stated in a file override the config."
SEARCHES_HELP = (
    "Off: what the recording says was searched is taken as given, so that lists and ranking are compared alone."
)
NEAREST_HELP = (
    "Measures every preset, then changes the parameters of the nearest ones, one after the other. Half of the queries are not searched "
    "with: their agreement is the one to believe."
)
EXPLAIN_HELP = "Varies each replay parameter alone over its range: does a value give more queries the recorded order?"
EXPLAINED_HELP = {
    "same order": "Queries with the recorded order: now and changed",
    "RBO": "Mean RBO of the first ten results, with the change",
}
ORDER_LABELS = {"Largest difference first": "departing", "Lowest recorded score first": "lowest"}
LIST_LABELS: Mapping[str, WhichLists] = {
    "our lists": "own",
    "our lists, ties as recorded": "ties",
    "recorded lists": "recorded",
}
LISTS_HELP = (
    "Our lists; ours with equal scores in the recorded order, which nobody can compute; or the recorded lists, so that what comes after "
    "them is compared alone."
)


@dataclass(frozen=True)
class Asked:
    """A recording with the config that it is measured under, its queries, and their evidence, None while it must be gathered."""

    setting: FidelitySetting
    queries: tuple[Query, ...]
    evidence: EvidenceSet | None

    @property
    def selection(self) -> QuerySelection:
        """The queries as they are gathered."""
        return selection_for(self.setting, self.queries)


def draw(resources: Resources) -> None:
    """Draw the choice of recordings and configs, the offer to gather, and the comparison."""
    recordings = _recordings(resources)
    if not recordings:
        empty("Compare a config with a real system", render("workbench_fidelity:no_answers.html"))
        return
    configs, as_chosen = _configs(resources)
    if not configs:
        st.info("Choose a config above.")
        return
    with errors_shown():
        asked = _asked(recordings, configs, as_chosen, resources)
        if (missing := [one for one in asked if one.evidence is None]) and offer_gather(
            "evaluate:fidelity",
            [(one.setting.name, one.setting.searched, one.selection) for one in missing],
            "after that, every change of a weight or threshold is compared immediately",
            resources,
            judgments=(),
        ):
            st.rerun()
        lists = lexical_lists(recordings)
        measured = [_measured(one, one.evidence, resources, lists) for one in asked if one.evidence is not None]
        if measured:
            _draw_provenance(asked, resources)
            _settings(measured)
            _queries(_chosen(measured))
        if asked:
            _nearest(asked[0], as_chosen, lists, resources)


def _recordings(resources: Resources) -> list[Recording]:
    """The recordings chosen from the store, uploads and the path; unusable ones are drawn with the reason."""
    sets = recorded_sets(resources.store)
    chosen_sets: list[str] = []
    if sets:
        chosen_sets = st.multiselect(
            "Query sets with recorded answers",
            list(sets),
            format_func=lambda name: f"{neutralise(name)} · {sets.get(name, 0):,} answers",
            placeholder="Choose a query set",
            **remembered("evaluate:fidelity_sets", SETS_HELP),
        )
    path_box, file_box = st.columns([3, 2])
    key = remembered("evaluate:fidelity_path", PATH_HELP + FORMS_HELP)
    path = path_box.text_input("File of answers", placeholder="/…/answers.json", **key).strip()
    uploads = file_box.file_uploader(
        "Or upload files", FORMS, accept_multiple_files=True, key="evaluate:fidelity_files", help=FORMS_HELP
    )
    with errors_shown():
        recordings = [kept_recording(resources.store, name) for name in chosen_sets]
        if path:
            recordings.append(_read(allowed_path(path, Settings())))
        recordings += [_parsed(upload.name, upload.getvalue()) for upload in uploads]
        for recording in recordings:
            require_usable(recording)
            if line := bad_rows(recording):
                st.caption(f":orange[⚠] {plain(line)}")
        return recordings
    return []


def _read(path: Path) -> Recording:
    """The recording at a path, reread when the file has changed."""
    try:
        changed = path.stat().st_mtime_ns
    except (OSError, ValueError):
        changed = 0
    recording: Recording = page.get().fidelities(("answers", str(path), changed), lambda: read_answers(path))
    return recording


def _parsed(name: str, content: bytes) -> Recording:
    def parse() -> Recording:
        with upload(name, content) as path:
            recording = read_answers(path)
        errors = tuple(replace(error, source=name) for error in recording.errors)
        return replace(recording, name=name, errors=errors)

    recording: Recording = page.get().fidelities(("answers", name, hashlib.sha256(content).digest()), parse)
    return recording


def _configs(resources: Resources) -> tuple[list[tuple[str, PipelineConfig]], bool]:
    """The chosen configs by name, and whether they ignore the settings in the files."""
    options, boxes = config_options(resources).configs, st.columns([3, 2], vertical_alignment="bottom")
    key = remembered("evaluate:fidelity_configs", CONFIGS_HELP)
    names = boxes[0].multiselect("Configs", list(options), default=[BASE_PRESET], **key)
    key = remembered("evaluate:fidelity_settings", SETTINGS_HELP)
    lay_over = boxes[1].toggle("Apply the settings of the answers", value=True, **key)
    return [(name, options[name]) for name in names], not lay_over


def _asked(
    recordings: Sequence[Recording],
    configs: Sequence[tuple[str, PipelineConfig]],
    as_chosen: bool,
    resources: Resources,
) -> list[Asked]:
    """Every file with every config, its queries and their evidence; none while the query of the only answer is not known."""
    typed: str | None = None
    if len(recordings) == 1 and len(recordings[0].answers) == 1 and recordings[0].answers[0].query is None:
        typed = st.text_input(
            "Query of the answer",
            placeholder="the query, or a qid of this store",
            **remembered("evaluate:fidelity_query", "These answers do not contain the query."),
        ).strip()
        if not typed:
            return []
    known = {query.qid: query for query in resources.store.queries.read()}
    which, own_searches = _taken_from(recordings)
    found = []
    for recording in recordings:
        for name, config in configs:
            label = f"{Path(recording.name).stem}, {name}"
            more: Any = {"which_lists": which, "own_searches": own_searches}
            setting = setting_for(recording, config, as_chosen=as_chosen, name=label, **more)
            queries = asked_queries(recording, known, query=typed, setting=setting)
            evidence = read_evidence(setting.searched, selection_for(setting, queries), resources, for_all_sessions)
            found.append(Asked(setting, queries, evidence))
    return found


def _taken_from(recordings: Sequence[Recording]) -> tuple[WhichLists, bool]:
    """Draw what is taken from recordings that have more than results: whose lists, and who makes the searches."""
    answers = [answer for recording in recordings for answer in recording.answers]
    which: WhichLists = "own"
    own_searches = False
    if any(answer.lists for answer in answers):
        which = LIST_LABELS[switch("Lists", list(LIST_LABELS), "evaluate:fidelity_lists")]
        st.caption(LISTS_HELP)
    if any(answer.searched or answer.engine_queries or answer.wordings for answer in answers):
        label = "Make searched texts and wordings with the config"
        own_searches = st.toggle(label, value=False, **remembered("evaluate:fidelity_own_searches", SEARCHES_HELP))
    return which, own_searches


def _measured(one: Asked, evidence: EvidenceSet, resources: Resources, lists: Mapping[str, Lists]) -> MeasuredFidelity:
    """The comparison of a setting, cached for the session."""
    key = ("measured", one.setting, evidence.content_hash, resources.store.content_version, sorted(lists))

    def compare() -> MeasuredFidelity:
        productions = productions_in(resources, one.setting.recording)
        with progress_bar() as progress:
            return compared(one.setting, one.queries, productions, evidence, resources, progress, lists)

    comparison: MeasuredFidelity = page.get().fidelities(_digest(key), compare)
    return comparison


def _digest(key: object) -> str:
    """A digest of configs and recordings: they hold mappings, which are not hashable."""
    return hashlib.sha256(repr(key).encode("utf-8", "backslashreplace")).hexdigest()


def _draw_provenance(asked: Sequence[Asked], resources: Resources) -> None:
    """Draw which lists a live system returned and when, with a button to request them again."""
    live = [(one, one.evidence.answered) for one in asked if one.evidence is not None and one.evidence.answered]

    def ask_again() -> None:
        for one, _ in live:
            discard_evidence(one.setting.searched, one.selection, resources)

    if live:
        said = "; ".join(f"{one.setting.name}: lists {answered}" for one, answered in live)
        draw_provenance("evaluate:fidelity", said, ask_again)


def _settings(measured: Sequence[MeasuredFidelity]) -> None:
    """Draw one row per setting: number of identical queries, and the differences of the others."""
    draw_table(measured, SETTINGS, key="evaluate:fidelity_means", placeholder="–")
    st.caption("In brackets: 95 % interval (bootstrap over queries).")
    for one in measured:
        left_out = [f"{qid} could not be searched and is left out" for qid in one.not_gathered]
        for line in (*one.setting.warnings, *left_out):
            st.caption(f":orange[⚠] {plain(one.setting.name)}: {plain(line)}")


def _counted(name: str, measured: MeasuredFidelity) -> str:
    return f"{measured.fidelity.estimates[name].count} · {_mean(name, measured)}"


def _mean(name: str, measured: MeasuredFidelity) -> str | None:
    one = measured.fidelity.estimates[name]
    return with_interval(one.mean, one.low, one.high)


def _scores(measured: MeasuredFidelity) -> str | None:
    """How many scores are the same, and to which precision; None if none are recorded."""
    fidelity = measured.fidelity
    (same, of), largest, precision = fidelity.precise, fidelity.score_difference, fidelity.precision
    if largest is None:
        return None
    return f"{same} of {of} to {precision:g}" if largest > precision else f"same to {precision:g}"


COUNTED = ("same_order", "up_to_ties", "same_scores", "same_set", "same_first")
MEANS = {"overlap": "overlap@10", "rbo": "RBO"}
SETTINGS: list[Column[MeasuredFidelity]] = [
    Column("answers", lambda one: one.setting.name, 190, pinned=True),
    Column("queries", lambda one: len(one.fidelity.queries), 64),
    *(
        Column(name.replace("_", " "), partial(_counted, name), 170, help=MEASURES[name].capitalize())
        for name in COUNTED
    ),
    *(Column(label, partial(_mean, name), 140, help=MEASURES[name].capitalize()) for name, label in MEANS.items()),
    Column("scores", _scores, 150, help=MEASURES[SCORE_DIFFERENCE].capitalize()),
]


def _chosen(measured: Sequence[MeasuredFidelity]) -> MeasuredFidelity:
    """Draw the choice of the setting whose queries are listed."""
    by_name = {one.setting.name: one for one in measured}
    only = len(measured) == 1
    return measured[0] if only else by_name[st.selectbox("Queries of", list(by_name), key="evaluate:fidelity_setting")]


def _queries(measured: MeasuredFidelity) -> None:
    """Draw the differing queries, failing ones first; a click opens one in Inspect with its recorded answer."""
    if measured.lines:
        st.caption(plain(" · ".join(measured.lines)))
    if not measured.differences:
        st.success("All queries match the recorded order and scores.", icon=":material/check:")
        return
    count = len(measured.differences)
    heading = "1 query differs" if count == 1 else f"{count} queries differ"
    st.markdown(f"## {heading}", help="A cause is named only if the recording proves it.")
    st.caption(plain(" · ".join(f"{number} {words}" for words, number in causes_counted(measured.differences))))
    order = ORDER_LABELS[switch("Order", list(ORDER_LABELS), "evaluate:fidelity_order")]
    differences = measured.listed(order)
    nothing = sum(not one.query.recorded for one in differences)
    if nothing:
        st.caption(f"Listed first: {nothing} without a recorded result.")
    picked = pick_row(differences, QUERIES, key="evaluate:fidelity_queries", most=14, placeholder="–")
    st.caption("Tick the box of a row to open its query in Inspect, with the recorded answer next to the trace.")
    if picked is not None:
        query = picked.query
        answered = [Returned(rank, key, query.recorded_scores.get(key)) for rank, key in enumerate(query.recorded, 1)]
        open_in_inspect(measured.request(query.qid), measured.setting.config, answered=answered)
    _explanations(measured)


QUERIES: list[Column[Difference]] = [
    Column("qid", lambda one: one.query.qid, 64),
    Column("query", lambda one: one.query.query, 230),
    Column(
        "diverges at",
        lambda one: one.parting and one.parting.stage,
        84,
        help="First stage after which the recorded order is no longer possible",
    ),
    Column(
        "memory",
        lambda one: one.parting and one.parting.memory_id,
        100,
        help="The recorded memory that shows the cause",
    ),
    Column("cause", lambda one: one.cause.kind, 116),
    Column("RBO", lambda one: one.query.rbo, 64, "%.3f", MEASURES["rbo"].capitalize()),
    Column("overlap", lambda one: one.query.overlap, 64, "%.2f", "Jaccard overlap of the first ten"),
    Column("top score", lambda one: one.query.top_score, 70, "%.3f", "Highest recorded score"),
    Column("how", lambda one: one.parting.reason if one.parting else one.how, 260),
    Column("because", lambda one: one.cause.text or None, 300),
]


def _on_request(
    slot: str,
    key: str,
    button: str,
    label: str,
    icon: str,
    cancel: str,
    work: Callable[[Progress], Value],
    note: str = "",
) -> Value | None:
    """What `work` found for this key, kept in the session; else a button that starts it, with progress and Cancel, and None."""
    cached: tuple[str, Value] | None = st.session_state.get(slot)
    if cached is None or cached[0] != key:
        place = st.empty()
        if not place.button(label, key=button, icon=icon):
            if note:
                st.caption(note)
            return None
        with cancellable(f"{button}_cancel", cancel, place=place) as progress:
            cached = st.session_state[slot] = (key, work(progress))
    return cached[1]


def _explanations(measured: MeasuredFidelity) -> None:
    """Draw a button that tries every parameter over the whole set, and its results."""
    st.markdown("## Single changes that explain the difference", help=EXPLAIN_HELP)
    key = _digest(("explained", measured.setting, measured.evidence.content_hash))
    found = _on_request(
        EXPLAINED,
        key,
        "evaluate:fidelity_explain",
        "Try every parameter",
        ":material/search:",
        "Nothing is saved.",
        lambda progress: explained(measured, progress),
    )
    if found is None:
        return
    if not found[1]:
        st.caption("No single parameter gives more queries the recorded order.")
        return
    table = replace(measured, explained=found).tables[2]
    draw_result(table, key="evaluate:fidelity_explanations", help=EXPLAINED_HELP, width=900)


def _nearest(asked: Asked, as_chosen: bool, lists: Mapping[str, Lists], resources: Resources) -> None:
    """Draw the search for the preset, with its changed parameters, that comes closest to the first recording."""
    recording, queries = asked.setting.recording, asked.queries
    which, own_searches = lists_for(recording), asked.setting.own_searches

    def setting_of(config: PipelineConfig) -> FidelitySetting:
        return setting_for(recording, config, as_chosen=as_chosen, which_lists=which, own_searches=own_searches)

    def queries_of(setting: FidelitySetting) -> tuple[Query, ...]:
        known = {query.qid: query for query in (*resources.store.queries.read(), *queries)}
        alone = queries[0].query if len(queries) == 1 else None
        return asked_queries(recording, known, query=alone, setting=setting)

    def search(progress: Progress) -> Nearest:
        configs = [preset(name).config for name in preset_names()]
        return find_nearest(recording, configs, setting_of, queries_of, resources, progress, lists)

    st.markdown("## Nearest preset", help=NEAREST_HELP)
    first = setting_of(preset(preset_names()[0]).config)
    found = _on_request(
        FOUND,
        _digest((recording, first, resources.store.content_version)),
        "evaluate:nearest",
        "Find the nearest preset",
        ":material/near_me:",
        "Model scores are kept.",
        search,
        f"Takes some minutes for a hundred queries: {len(preset_names())} presets, then some thousand replays. Recorded lists are used "
        "where there are any.",
    )
    if found is not None:
        _draw_nearest(found)


def _draw_nearest(found: Nearest) -> None:
    """Draw the preset and its changes, the agreement of both halves, and what remains."""
    first, *others = found.lines
    changes, agreement, presets = found.tables
    st.markdown(f"**{plain(capital(first))}**")
    if changes.rows:
        draw_result(changes, key="evaluate:nearest_changes", width=900)
    draw_result(agreement, key="evaluate:nearest_agreement", width=900)
    for line in others:
        st.caption(plain(capital(line) + "."))
    with st.expander(f"{min(MAX_PRESETS, len(presets))} nearest presets, unchanged"):
        draw_result(presets, key="evaluate:nearest_presets")
        for name, why in found.left_out.items():
            st.caption(f":orange[⚠] {plain(name)} is left out: {plain(why)}")
    download(
        "Config (YAML)",
        dump_config(found.config, "\n".join(found.lines)),
        f"nearest-{Path(found.recording.name).stem}.yaml",
        "evaluate:nearest_yaml",
        help="A config file for every command, and for Configs › Upload.",
    )


VIEW = View("Recorded answers", 20, draw)
