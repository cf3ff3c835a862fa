"""Fidelity: compare configs with the recorded answers of a live system; differing queries open in Inspect.

A setting combines a file of answers with a config, overridden by the settings stated in the file. Its queries are gathered once, next
to the store, as for any query set.

Nearest preset: which preset, with which changed parameters, comes closest to the recorded answers; a section of Fidelity.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import streamlit as st

from cems_workbench.analysis.fidelity.causes import Lists
from cems_workbench.analysis.fidelity.explain import Explanation, SetAgreement
from cems_workbench.analysis.fidelity.measures import MEASURES, SCORE_DIFFERENCE, Estimate
from cems_workbench.config import PipelineConfig, dump_config, field_spec, preset, preset_names
from cems_workbench.config.fields import short_value
from cems_workbench.errors import WorkbenchError
from cems_workbench.evaluation.evaluate import number
from cems_workbench.evaluation.evidence_file import EvidenceSet
from cems_workbench.formats.recorded_answers import Recording
from cems_workbench.jobs.access import allowed_path
from cems_workbench.jobs.fidelity import (
    BASE_PRESET,
    Difference,
    FidelitySetting,
    MeasuredFidelity,
    asked_queries,
    bad_rows,
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
from cems_workbench.jobs.importing import upload
from cems_workbench.jobs.nearest import MAX_PRESETS, Nearest, PresetNearness, find_nearest, lists_for
from cems_workbench.jobs.query_set_evidence import discard_evidence, read_evidence
from cems_workbench.jobs.recorded_lists import WhichLists
from cems_workbench.pipeline.resources import Resources
from cems_workbench.platform.bidi import neutralise
from cems_workbench.records import Query, Returned
from cems_workbench.settings import Settings
from cems_workbench.ui.evaluate.state import config_options, page
from cems_workbench.ui.inspect.state import open_in_inspect
from cems_workbench.ui.kit.html import plain, render
from cems_workbench.ui.kit.session import for_all_sessions
from cems_workbench.ui.kit.tables import Column, draw_table, pick_row
from cems_workbench.ui.kit.widgets import (
    cancellable,
    download,
    draw_provenance,
    empty,
    errors_shown,
    offer_gather,
    progress_in,
    switch,
)

FOUND = "evaluate:nearest_found"
PRESETS: list[Column[PresetNearness]] = [
    Column("preset", lambda one: one.name),
    Column("queries", lambda one: one.agreement.queries),
    Column("same order", lambda one: one.agreement.same_order),
    Column("overlap", lambda one: round(one.agreement.overlap, 3)),
    Column("RBO", lambda one: round(one.agreement.rbo, 3)),
]


def draw_nearest(
    recording: Recording,
    setting_of: Callable[[PipelineConfig], FidelitySetting],
    queries_of: Callable[[FidelitySetting], tuple[Query, ...]],
    lists: Mapping[str, Lists],
    resources: Resources,
) -> None:
    """Draw the button that searches, and what the last search for this recording found."""
    st.markdown(
        "## Nearest preset",
        help="Measures every preset, then changes the parameters of the nearest ones, one after the other. Half of the queries are not "
        "searched with: their agreement is the one to believe.",
    )
    key = _nearest_digest(recording, setting_of, resources)
    cached: tuple[str, Nearest] | None = st.session_state.get(FOUND)
    if cached is None or cached[0] != key:
        place = st.empty()
        if not place.button("Find the nearest preset", key="evaluate:nearest", icon=":material/near_me:"):
            st.caption(
                f"Takes some minutes for a hundred queries: {len(preset_names())} presets, then some thousand replays. Recorded lists are "
                "used where there are any."
            )
            return
        configs = [preset(name).config for name in preset_names()]
        with cancellable("evaluate:nearest_cancel", "Model scores are kept.", place=place) as progress:
            cached = (key, find_nearest(recording, configs, setting_of, queries_of, resources, progress, lists))
        st.session_state[FOUND] = cached
    _result(cached[1])


def _nearest_digest(
    recording: Recording, setting_of: Callable[[PipelineConfig], FidelitySetting], resources: Resources
) -> str:
    parts = (recording, setting_of(preset(preset_names()[0]).config), resources.store.content_version)
    return hashlib.sha256(repr(parts).encode("utf-8", "backslashreplace")).hexdigest()


def _result(found: Nearest) -> None:
    """Draw the preset and its changes, the agreement of both halves, and what remains."""
    first, *others = found.lines
    st.markdown(f"**{plain(first[0].upper() + first[1:])}**")
    if found.changes:
        changes: list[Column[tuple[str, Any, Any]]] = [
            Column("parameter", lambda change: _parameter(change[0])),
            Column(found.start, lambda change: short_value(change[1])),
            Column("nearest", lambda change: short_value(change[2])),
        ]
        draw_table(found.changes, changes, key="evaluate:nearest_changes", width=900)
    agreement = found.tables[1]
    columns: list[Column[Sequence[Any]]] = [Column(name, itemgetter(i)) for i, name in enumerate(agreement.columns)]
    draw_table(agreement.rows, columns, key="evaluate:nearest_agreement", width=900)
    for line in others:
        st.caption(plain(line[0].upper() + line[1:] + "."))
    with st.expander(f"{min(MAX_PRESETS, len(found.presets))} nearest presets, unchanged"):
        draw_table(found.presets[:MAX_PRESETS], PRESETS, key="evaluate:nearest_presets")
        for name, why in found.left_out.items():
            st.caption(f":orange[⚠] {plain(name)} is left out: {plain(why)}")
    download(
        "Config (YAML)",
        dump_config(found.config, "\n".join(found.lines)),
        f"nearest-{Path(found.recording.name).stem}.yaml",
        "evaluate:nearest_yaml",
        help="A config file for every command, and for Configs › Upload.",
    )


def _parameter(path: str) -> str:
    return f"{field_spec(path).label} ({path})"


FORMS = ["json", "jsonl", "txt", "csv", "tsv", "run", "trec"]
FORMS_HELP = (
    "A recording with its settings, search responses of CEMS (JSON, one or a list), a TREC run on queries of this store, or a list of "
    "ids, one per line; or a log: hook_events.jsonl of CEMS, retriever spans of OpenInference, rows with query and results. The data "
    "stays on this machine."
)
MAX_EXPLANATIONS = 6
CHOSEN_SETS = "evaluate:fidelity_sets"
ORDER_LABELS = {"departing": "Largest difference first", "lowest": "Lowest recorded score first"}
SettingQueries = tuple[FidelitySetting, tuple[Query, ...]]


def draw(resources: Resources) -> None:
    """Draw the choice of recordings and configs, the offer to gather, and the comparison."""
    recordings = _recordings(resources)
    if not recordings:
        empty("Compare a config with a real system", render("evaluate/no_answers.html"))
        return
    configs, as_chosen = _configs(resources)
    if not configs:
        st.info("Choose a config above.")
        return
    with errors_shown():
        asked = _settings_with_queries(recordings, configs, as_chosen, resources)
        if _gathered(asked, resources):
            st.rerun()
        lists = lexical_lists(recordings)
        measured = [found for one in asked if (found := _measured(one, resources, lists)) is not None]
        if measured:
            _draw_provenance(asked, resources)
            _settings(measured)
            _queries(_chosen(measured))
        if asked:
            _nearest(asked[0], as_chosen, lists, resources)


def _nearest(asked: SettingQueries, as_chosen: bool, lists: Mapping[str, Lists], resources: Resources) -> None:
    """Draw the search for the preset that is nearest to the first recording."""
    first, queries = asked
    recording = first.recording
    by_qid = {query.qid: query for query in queries}

    def setting_of(config: PipelineConfig) -> FidelitySetting:
        return setting_for(
            recording,
            config,
            as_chosen=as_chosen,
            which_lists=lists_for(recording),
            own_searches=first.own_searches,
        )

    def queries_of(setting: FidelitySetting) -> tuple[Query, ...]:
        known = {query.qid: query for query in resources.store.queries.read()} | by_qid
        alone = queries[0].query if len(queries) == 1 else None
        return asked_queries(recording, known, query=alone, setting=setting)

    draw_nearest(recording, setting_of, queries_of, lists, resources)


def _draw_provenance(asked: Sequence[SettingQueries], resources: Resources) -> None:
    """Draw which lists a live system returned and when, with a button to request them again."""
    live = [(one, evidence.answered) for one in asked if (evidence := _evidence(*one, resources)) and evidence.answered]

    def ask_again() -> None:
        for (setting, queries), _ in live:
            discard_evidence(setting.searched, selection_for(setting, queries), resources)

    if live:
        said = "; ".join(f"{setting.name}: lists {answered}" for (setting, _), answered in live)
        draw_provenance("evaluate:fidelity", said, ask_again)


def _recordings(resources: Resources) -> list[Recording]:
    """The recordings chosen from the store, uploads and the path; unusable ones are drawn with the reason."""
    sets = recorded_sets(resources.store)
    chosen_sets = (
        st.multiselect(
            "Query sets with recorded answers",
            list(sets),
            key=CHOSEN_SETS,
            persist_state="session",
            format_func=lambda name: f"{neutralise(name)} · {sets.get(name, 0):,} answers",
            placeholder="Choose a query set",
            help="Imported logs of queries and answers, and external traces (Memories page, or the command `import`).",
        )
        if sets
        else []
    )
    path_box, file_box = st.columns([3, 2])
    path = path_box.text_input(
        "File of answers",
        key="evaluate:fidelity_path",
        placeholder="/…/answers.json",
        persist_state="session",
        help=f"A path on the machine that runs the app: in the folder of its store, or in one of CEMS_WORKBENCH_FOLDERS. {FORMS_HELP}",
    ).strip()
    uploads = file_box.file_uploader(
        "Or upload files", FORMS, accept_multiple_files=True, key="evaluate:fidelity_files", help=FORMS_HELP
    )
    recordings = []
    try:
        recordings += [kept_recording(resources.store, name) for name in chosen_sets]
        if path:
            recordings.append(_read(allowed_path(path, Settings())))
        recordings += [_parsed(upload.name, upload.getvalue()) for upload in uploads]
        for recording in recordings:
            require_usable(recording)
            if line := bad_rows(recording):
                st.caption(f":orange[⚠] {plain(line)}")
    except WorkbenchError as error:
        st.error(plain(str(error)), icon=":material/block:")
        return []
    return recordings


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
    options = config_options(resources).configs
    boxes = st.columns([3, 2], vertical_alignment="bottom")
    names = boxes[0].multiselect(
        "Configs",
        list(options),
        default=[BASE_PRESET],
        key="evaluate:fidelity_configs",
        persist_state="session",
        help="Each config is compared with every file. cems_head is CEMS with its default settings.",
    )
    lay_over = boxes[1].toggle(
        "Apply the settings of the answers",
        value=True,
        key="evaluate:fidelity_settings",
        persist_state="session",
        help="The CEMS variables and the token budget stated in a file override the config.",
    )
    return [(name, options[name]) for name in names], not lay_over


def _settings_with_queries(
    recordings: Sequence[Recording],
    configs: Sequence[tuple[str, PipelineConfig]],
    as_chosen: bool,
    resources: Resources,
) -> list[SettingQueries]:
    """Every file with every config, and its queries."""
    known = {query.qid: query for query in resources.store.queries.read()}
    silent = len(recordings) == 1 and len(recordings[0].answers) == 1 and recordings[0].answers[0].query is None
    typed = _typed_query() if silent else None
    if silent and typed is None:
        return []
    which, own_searches = _taken_from(recordings)
    settings = [
        setting_for(
            recording,
            config,
            as_chosen=as_chosen,
            name=f"{_short(recording)}, {name}",
            which_lists=which,
            own_searches=own_searches,
        )
        for recording in recordings
        for name, config in configs
    ]
    return [(one, asked_queries(one.recording, known, query=typed, setting=one)) for one in settings]


def _taken_from(recordings: Sequence[Recording]) -> tuple[WhichLists, bool]:
    """Draw what is taken from recordings that have more than results: whose lists, and who makes the searches."""
    answers = [answer for recording in recordings for answer in recording.answers]
    which: WhichLists = "own"
    own_searches = False
    if any(answer.lists for answer in answers):
        said = switch("Lists", list(LIST_LABELS.values()), "evaluate:fidelity_lists")
        st.caption(LISTS_HELP)
        which = next(name for name, label in LIST_LABELS.items() if label == said)
    if any(answer.searched or answer.engine_queries or answer.wordings for answer in answers):
        own_searches = st.toggle(
            "Make searched texts and wordings with the config",
            value=False,
            key="evaluate:fidelity_own_searches",
            persist_state="session",
            help="Off: what the recording says was searched is taken as given, so that lists and ranking are compared alone.",
        )
    return which, own_searches


def _typed_query() -> str | None:
    """The query typed for an answer that does not contain one; None while nothing is typed."""
    typed = st.text_input(
        "Query of the answer",
        key="evaluate:fidelity_query",
        placeholder="the query, or a qid of this store",
        help="These answers do not contain the query.",
        persist_state="session",
    ).strip()
    return typed or None


LIST_LABELS: Mapping[WhichLists, str] = {
    "own": "our lists",
    "ties": "our lists, ties as recorded",
    "recorded": "recorded lists",
}
LISTS_HELP = (
    "Our lists; ours with equal scores in the recorded order, which nobody can compute; or the recorded lists, so that what comes after "
    "them is compared alone."
)


def _short(recording: Recording) -> str:
    return Path(recording.name).stem


def _gathered(asked: Sequence[SettingQueries], resources: Resources) -> bool:
    """Draw the offer to gather missing evidence; True once it has been gathered."""
    missing = [(setting, queries) for setting, queries in asked if _evidence(setting, queries, resources) is None]
    return bool(missing) and offer_gather(
        "evaluate:fidelity",
        [(setting.name, setting.searched, selection_for(setting, queries)) for setting, queries in missing],
        "after that, every change of a weight or threshold is compared immediately",
        resources,
        judgments=(),
    )


def _evidence(setting: FidelitySetting, queries: Sequence[Query], resources: Resources) -> EvidenceSet | None:
    return read_evidence(setting.searched, selection_for(setting, queries), resources, for_all_sessions)


def _measured(asked: SettingQueries, resources: Resources, lists: Mapping[str, Lists]) -> MeasuredFidelity | None:
    """The comparison of a setting, cached for the session; None until it is gathered."""
    setting, queries = asked
    evidence = _evidence(setting, queries, resources)
    if evidence is None:
        return None
    key = ("measured", setting, evidence.content_hash, resources.store.content_version, sorted(lists))
    place = st.empty()

    def compare() -> MeasuredFidelity:
        productions = productions_in(resources, setting.recording)
        return compared(setting, queries, productions, evidence, resources, progress_in(place), lists)

    comparison: MeasuredFidelity = page.get().fidelities(_fidelity_digest(key), compare)
    place.empty()
    return comparison


def _fidelity_digest(key: object) -> str:
    """A digest of configs and recordings: they hold mappings, which are not hashable."""
    return hashlib.sha256(repr(key).encode("utf-8", "backslashreplace")).hexdigest()


def _settings(measured: Sequence[MeasuredFidelity]) -> None:
    """Draw one row per setting: number of identical queries, and the differences of the others."""
    draw_table(measured, SETTINGS, key="evaluate:fidelity_means", placeholder="–")
    st.caption("In brackets: 95 % interval (bootstrap over queries).")
    for one in measured:
        for line in (
            *one.setting.warnings,
            *(f"{qid} could not be searched and is left out" for qid in one.not_gathered),
        ):
            st.caption(f":orange[⚠] {plain(one.setting.name)}: {plain(line)}")


def _counted(name: str, measured: MeasuredFidelity) -> str:
    one = measured.fidelity.estimates[name]
    return f"{one.count} · {_with_interval(one)}"


def _scores(measured: MeasuredFidelity) -> str | None:
    """How many scores are the same, and to which precision; None if none are recorded."""
    fidelity = measured.fidelity
    (same, of), largest, precision = fidelity.precise, fidelity.score_difference, fidelity.precision
    if largest is None:
        return None
    return f"{same} of {of} to {precision:g}" if largest > precision else f"same to {precision:g}"


def _with_interval(one: Estimate) -> str | None:
    return None if number(one.mean) is None else f"{one.mean:.3f} ({one.low:.3f}–{one.high:.3f})"


SETTINGS: list[Column[MeasuredFidelity]] = [
    Column("answers", lambda one: one.setting.name, 190, pinned=True),
    Column("queries", lambda one: len(one.fidelity.queries), 64),
    *(
        Column(name.replace("_", " "), partial(_counted, name), 170, help=MEASURES[name].capitalize())
        for name in ("same_order", "up_to_ties", "same_scores", "same_set", "same_first")
    ),
    Column(
        "overlap@10",
        lambda one: _with_interval(one.fidelity.estimates["overlap"]),
        140,
        help=MEASURES["overlap"].capitalize(),
    ),
    Column("RBO", lambda one: _with_interval(one.fidelity.estimates["rbo"]), 140, help=MEASURES["rbo"].capitalize()),
    Column("scores", _scores, 150, help=MEASURES[SCORE_DIFFERENCE].capitalize()),
]


def _chosen(measured: Sequence[MeasuredFidelity]) -> MeasuredFidelity:
    """Draw the choice of the setting whose queries are listed."""
    if len(measured) == 1:
        return measured[0]
    by_name = {one.setting.name: one for one in measured}
    name = st.selectbox("Queries of", list(by_name), key="evaluate:fidelity_setting")
    return by_name[name]


def _queries(measured: MeasuredFidelity) -> None:
    """Draw the differing queries, failing ones first; a click opens one in Inspect with its recorded answer."""
    _applied(measured.setting)
    differences: Sequence[Difference] = measured.differences
    if not differences:
        st.success("All queries match the recorded order and scores.", icon=":material/check:")
        return
    _causes(differences)
    order = switch("Order", list(ORDER_LABELS.values()), "evaluate:fidelity_order")
    differences = measured.listed(next(name for name, said in ORDER_LABELS.items() if said == order))
    nothing = sum(not one.query.recorded for one in differences)
    if nothing:
        st.caption(f"{nothing} without a recorded result {'is' if nothing == 1 else 'are'} listed first.")
    picked = pick_row(differences, QUERIES, key="evaluate:fidelity_queries", most=14, placeholder="–")
    st.caption("Tick the box of a row to open its query in Inspect, with the recorded answer next to the trace.")
    if picked is not None:
        _open(measured, picked)
    _explanations(measured)


def _applied(setting: FidelitySetting) -> None:
    applied = ", ".join(f"{name} {value}" for name, value in setting.applied)
    system = f"Answers of {setting.recording.system}. " if setting.recording.system else ""
    given = ", ".join(f"{name} ({count})" for name, count in setting.given.items())
    taken = f" Taken from the recording (queries): {given}." if given else ""
    if setting.which_lists != "own" and setting.list_map.sources:
        taken += f" Lists: {', '.join(setting.list_map.lines())}."
    config = f"Overrides in the config: {applied}." if applied else "The config is used unchanged."
    st.caption(plain(f"{system}{config}{taken}"))


def _causes(differences: Sequence[Difference]) -> None:
    """Draw the number of differing queries per cause."""
    counts: dict[str, int] = {}
    for one in differences:
        counts[one.cause.kind] = counts.get(one.cause.kind, 0) + 1
    causes = " · ".join(f"{count} {CAUSES[kind]}" for kind, count in sorted(counts.items(), key=lambda item: -item[1]))
    count = len(differences)
    heading = "1 query differs" if count == 1 else f"{count} queries differ"
    st.markdown(f"## {heading}", help="A cause is named only if the recording proves it.")
    st.caption(causes)


CAUSES: Mapping[str, str] = {
    "not here": "with memories that are not in this store",
    "equal scores": "among equal recorded scores",
    "tied lists": "by equal scores of lists",
    "equal relations": "by relations of equal similarity",
    "equal ts_rank": "by equal scores of ts_rank",
    "equal hybrid": "by equal scores of the hybrid list",
    "lexical scores": "with other lexical scores",
    "vector list": "with another vector list",
    "other": "for another cause",
}


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


def _open(measured: MeasuredFidelity, difference: Difference) -> None:
    """Open a query in Inspect with the measured config, and its recorded answer in the comparison tool."""
    query = difference.query
    answered = [Returned(rank, key, query.recorded_scores.get(key)) for rank, key in enumerate(query.recorded, 1)]
    open_in_inspect(measured.request(query.qid), measured.setting.config, answered=answered)


def _explanations(measured: MeasuredFidelity) -> None:
    """Draw a button that tries every parameter over the whole set, and its results."""
    st.markdown(
        "## Single changes that explain the difference",
        help="Varies each replay parameter alone over its range: does a value give more queries the recorded order?",
    )
    key = _fidelity_digest(("explained", measured.setting, measured.evidence.content_hash))
    cached = st.session_state.get("evaluate:fidelity_explained")
    if cached is None or cached[0] != key:
        place = st.empty()
        if not place.button("Try every parameter", key="evaluate:fidelity_explain", icon=":material/search:"):
            return
        with cancellable("evaluate:fidelity_explain_cancel", "Nothing is saved.", place=place) as progress:
            cached = (key, *explained(measured, progress))
        st.session_state["evaluate:fidelity_explained"] = cached
    _, now, explanations = cached
    if not explanations:
        st.caption("No single parameter gives more queries the recorded order.")
        return
    columns: list[Column[Explanation[SetAgreement]]] = [
        Column("parameter", lambda one: _parameter(one.changes[0][0]), 260),
        Column("is", lambda one: short_value(one.changes[0][1])),
        Column("would be", lambda one: short_value(one.changes[0][2])),
        Column(
            "same order",
            lambda one: f"{now.same_order} → {one.agreement.same_order}",
            110,
            help="Queries with the recorded order: now → changed",
        ),
        Column("RBO", lambda one: one.agreement.rbo, 76, "%.3f", "Mean RBO of the first ten results, with the change"),
    ]
    draw_table(explanations[:MAX_EXPLANATIONS], columns, key="evaluate:fidelity_explanations", width=900)
