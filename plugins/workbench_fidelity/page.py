"""Fidelity: compare configs with the recorded answers of a live system, or the gain that a tuned config predicts with the recorded one;
differing queries open in Inspect.

A setting combines a file of answers with a config, overridden by the settings stated in the file. Its queries are gathered once, next
to the store, as for any query set. Below, the preset that comes closest to the recorded answers, with its changed parameters.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import streamlit as st

from cems_workbench.config import PipelineConfig, dump_config, preset, preset_names
from cems_workbench.errors import counted
from cems_workbench.evaluation.evidence_file import EvidenceSet
from cems_workbench.evaluation.grades import agreed_grades
from cems_workbench.evaluation.metrics import Measure, parse_measure
from cems_workbench.formats.base.files import data_beside
from cems_workbench.jobs.access import allowed_path
from cems_workbench.jobs.importing import upload
from cems_workbench.jobs.query_set_evidence import QuerySelection, discard_evidence, read_evidence
from cems_workbench.pipeline.resources import Resources
from cems_workbench.platform.bidi import neutralise
from cems_workbench.progress import Progress
from cems_workbench.records import Query, Recording, Returned
from cems_workbench.settings import Settings
from cems_workbench.ui.evaluate.compare import with_interval
from cems_workbench.ui.evaluate.setup import draw_config_file
from cems_workbench.ui.evaluate.state import config_options, page
from cems_workbench.ui.inspect.state import open_in_inspect
from cems_workbench.ui.kit.html import capital, plain, render
from cems_workbench.ui.kit.session import for_all_sessions
from cems_workbench.ui.kit.tables import Column, draw_result, draw_values, pick_row
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
    show,
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
from workbench_fidelity.measures import MEASURES, SCORE_DIFFERENCE, Lists, SetFidelity
from workbench_fidelity.nearest import MAX_PRESETS, Nearest, find_nearest, lists_for
from workbench_fidelity.promise import SIDES, before_tuning, promise_of

Value = TypeVar("Value")

FOUND, EXPLAINED = "evaluate:nearest_found", "evaluate:fidelity_explained"
FORMS = ["json", "jsonl", "txt", "csv", "tsv", "run", "trec"]
HELP: Mapping[str, Any] = data_beside(__file__, "help.json")
"""Tooltips by the key of a widget, and of a table those of its columns."""
ORDER_LABELS = {"Largest difference first": "departing", "Lowest recorded score first": "lowest"}
LIST_LABELS: Mapping[str, WhichLists] = {
    "our lists": "own",
    "our lists, ties as recorded": "ties",
    "recorded lists": "recorded",
}
COMPARED = ("Order and scores", "Gain after tuning")
Compared = tuple[Recording, str, PipelineConfig]
"""A recording with the name of a config and the config."""


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
    with st.container(horizontal=True, vertical_alignment="center"):
        tuned = switch("Compare", COMPARED, "evaluate:fidelity_compare", help=HELP["promise:compare"]) == COMPARED[1]
        draw_config_file()
    with errors_shown():
        of_both, measure = _before_and_after(recordings, resources) if tuned else ([], None)
        configs, as_chosen = (of_both, False) if tuned else _configs(recordings, resources)
        if not configs:
            return
        asked = _asked(configs, as_chosen, resources)
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
            if measure is None:
                _settings(measured)
            elif len(measured) == len(SIDES):
                grades = agreed_grades(resources.store.judgments.read())
                promise = promise_of((measured[0], measured[1]), grades, measure)
                show(promise.lines, promise.tables[:1], promise.notes)
            by_name = {one.setting.name: one for one in measured}
            box = len(measured) > 1 and st.selectbox("Queries of", list(by_name), key="evaluate:fidelity_setting")
            _queries(by_name[box] if box else measured[0])
        if measure is None:
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
            **_remembered("evaluate:fidelity_sets"),
        )
    path_box, file_box = st.columns([3, 2])
    key = _remembered("evaluate:fidelity_path")
    path = path_box.text_input("File of answers", placeholder="/…/answers.json", **key).strip()
    forms: Any = {"key": "evaluate:fidelity_files", "help": HELP["evaluate:fidelity_forms"]}
    uploads = file_box.file_uploader("Or upload files", FORMS, accept_multiple_files=True, **forms)
    with errors_shown():
        recordings = [kept_recording(resources.store, name) for name in chosen_sets]
        if path:
            file = allowed_path(path, Settings())
            changed = file.stat().st_mtime_ns if file.exists() else 0
            recordings.append(page.get().fidelities(("answers", str(file), changed), lambda: read_answers(file)))
        recordings += [_parsed(upload.name, upload.getvalue()) for upload in uploads]
        for recording in recordings:
            require_usable(recording)
            if line := bad_rows(recording):
                st.caption(f":orange[⚠] {plain(line)}")
        return recordings
    return []


def _remembered(key: str) -> dict[str, Any]:
    return remembered(key, HELP[key])


def _parsed(name: str, content: bytes) -> Recording:
    def parse() -> Recording:
        with upload(name, content) as path:
            recording = read_answers(path)
        errors = tuple(replace(error, source=name) for error in recording.errors)
        return replace(recording, name=name, errors=errors)

    recording: Recording = page.get().fidelities(("answers", name, hashlib.sha256(content).digest()), parse)
    return recording


def _before_and_after(recordings: Sequence[Recording], resources: Resources) -> tuple[list[Compared], Measure | None]:
    """The recordings of before and after with what ran then, and the measure of the gain; none until all are chosen."""
    if len(recordings) < len(SIDES):
        st.info("Add a second file above: the answers to the same queries after the system's settings were changed.")
        return [], None
    options, boxes, more = config_options(resources).configs, st.columns(2), st.columns([3, 3, 2])
    names, shown, found = list(options), dict[str, Any](), list[Recording]()
    shown["format_func"] = [neutralise(Path(one.name).stem) for one in recordings].__getitem__
    for i, side in enumerate(SIDES):
        chosen = boxes[i].selectbox(
            f"Recorded {side}", range(len(recordings)), i, **shown, **_remembered(f"promise:{side}")
        )
        found.append(recordings[chosen])
    tuned = more[1].selectbox("Tuned config", names, None, **_remembered("promise:config"))
    untuned = before_tuning(options[tuned]) if tuned else None
    shown = {"key": f"promise:preset:{untuned and untuned.name}"}  # so that another config begins with its own
    start = names.index(untuned.name) if untuned and untuned.name in options else None
    name = more[0].selectbox("Config before", names, start, help=HELP["promise:preset"], **shown)
    measure = parse_measure(more[2].text_input("Measure", "nDCG@10", **_remembered("promise:measure")))
    if not (tuned and name) or found[0] is found[1]:
        st.info("Choose two files, the config that was tuned, and what ran before it.")
        return [], None
    before = untuned if untuned is not None and untuned.name == name else options[name]
    return [(found[0], name, before), (found[1], tuned, options[tuned])], measure


def _configs(recordings: Sequence[Recording], resources: Resources) -> tuple[list[Compared], bool]:
    """Every recording with every chosen config, and whether these ignore the settings in the files."""
    options, boxes = config_options(resources).configs, st.columns([3, 2], vertical_alignment="bottom")
    shown = _remembered("evaluate:fidelity_configs")
    names = boxes[0].multiselect("Configs", list(options), default=[BASE_PRESET], **shown)
    shown = _remembered("evaluate:fidelity_settings")
    lay_over = boxes[1].toggle("Apply the settings of the answers", value=True, **shown)
    if not names:
        st.info("Choose a config above.")
    return [(one, name, options[name]) for one in recordings for name in names], not lay_over


def _asked(compared: Sequence[Compared], as_chosen: bool, resources: Resources) -> list[Asked]:
    """Each recording under its config, its queries and their evidence; none while the query of the only answer is not known."""
    typed: str | None = None
    recordings = list({id(one): one for one, _, _ in compared}.values())
    if len(recordings) == 1 and len(recordings[0].answers) == 1 and recordings[0].answers[0].query is None:
        key = _remembered("evaluate:fidelity_query")
        typed = st.text_input("Query of the answer", placeholder="the query, or a qid of this store", **key).strip()
        if not typed:
            return []
    known = {query.qid: query for query in resources.store.queries.read()}
    which, own_searches = _taken_from(recordings)
    found = []
    for recording, name, config in compared:
        more: Any = {"name": f"{Path(recording.name).stem}, {name}", "as_chosen": as_chosen}
        setting = setting_for(recording, config, which_lists=which, own_searches=own_searches, **more)
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
        st.caption(HELP["evaluate:fidelity_lists"])
    if any(answer.searched or answer.engine_queries or answer.wordings for answer in answers):
        label = "Make searched texts and wordings with the config"
        own_searches = st.toggle(label, value=False, **_remembered("evaluate:fidelity_own_searches"))
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
    names = ("answers", "queries", *(COLUMNS.get(name, name.replace("_", " ")) for name in MEASURES))
    rows = [
        (one.setting.name, len(one.fidelity.queries), *(_cell(name, one.fidelity) for name in MEASURES))
        for one in measured
    ]
    about = dict(zip(names[2:], map(str.capitalize, MEASURES.values()), strict=True))
    draw_values(names, rows, key="evaluate:fidelity_means", help=about, first=190, others=150)
    st.caption("In brackets: 95 % interval (bootstrap over queries).")
    for one in measured:
        for line in one.notes:
            st.caption(f":orange[⚠] {plain(one.setting.name)}: {plain(line.removeprefix('warning: '))}")


def _cell(name: str, fidelity: SetFidelity) -> str | None:
    """A measure with its interval, of a share also the count; of scores how many are the same, and to which precision."""
    if name == SCORE_DIFFERENCE:
        (same, of), largest, to = fidelity.precise, fidelity.score_difference, f"to {fidelity.precision:g}"
        return None if largest is None else f"{same} of {of} {to}" if largest > fidelity.precision else f"same {to}"
    one = fidelity.estimates[name]
    mean = with_interval(one.mean, one.low, one.high)
    return mean if one.count is None else f"{one.count} · {mean}"


COLUMNS = {"overlap": "overlap@10", "rbo": "RBO", SCORE_DIFFERENCE: "scores"}
"""Measures that are not called by their names."""


def _queries(measured: MeasuredFidelity) -> None:
    """Draw the differing queries, failing ones first; a click opens one in Inspect with its recorded answer."""
    if measured.lines:
        st.caption(plain(" · ".join(measured.lines)))
    if not measured.differences:
        st.success("All queries match the recorded order and scores.", icon=":material/check:")
        return
    about = "A cause is named only if the recording proves it."
    st.markdown(f"## Queries that differ: {len(measured.differences)}", help=about)
    st.caption(plain(" · ".join(f"{number} {words}" for words, number in causes_counted(measured.differences))))
    order = ORDER_LABELS[switch("Order", list(ORDER_LABELS), "evaluate:fidelity_order")]
    differences = measured.listed(order)
    nothing = sum(not one.query.recorded for one in differences)
    if nothing:
        st.caption(f"First in the list: {counted(nothing, 'queries')} without a recorded result.")
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
    Column("diverges at", lambda one: one.parting and one.parting.stage, 84, help=HELP["evaluate:fidelity_diverges"]),
    Column("memory", lambda one: one.parting and one.parting.memory_id, 100, help="The recorded one that parts"),
    Column("cause", lambda one: one.cause.kind, 116),
    Column("RBO", lambda one: one.query.rbo, 64, "%.3f", MEASURES["rbo"].capitalize()),
    Column("overlap", lambda one: one.query.overlap, 64, "%.2f", "Jaccard overlap of the first ten"),
    Column("top score", lambda one: one.query.top_score, 70, "%.3f", "Highest recorded score"),
    Column("how", lambda one: one.parting.reason if one.parting else one.how, 260),
    Column("because", lambda one: one.cause.text or None, 300),
]


def _on_request(
    slot: str, key: str, button: tuple[str, str, str, str], work: Callable[[Progress], Value], note: str = ""
) -> Value | None:
    """What `work` found for this key, kept in the session; else a button that starts it, with progress and Cancel, and
    None. `button` is its key, label and icon, and what is kept when it is cancelled."""
    name, label, icon, cancel = button
    cached: tuple[str, Value] | None = st.session_state.get(slot)
    if cached is None or cached[0] != key:
        place = st.empty()
        if not place.button(label, key=name, icon=icon):
            if note:
                st.caption(note)
            return None
        with cancellable(f"{name}_cancel", cancel, place=place) as progress:
            cached = st.session_state[slot] = (key, work(progress))
    return cached[1]


def _explanations(measured: MeasuredFidelity) -> None:
    """Draw a button that tries every parameter over the whole set, and its results."""
    st.markdown("## Single changes that explain the difference", help=HELP["evaluate:fidelity_explain"])
    key = _digest(("explained", measured.setting, measured.evidence.content_hash))
    button = ("evaluate:fidelity_explain", "Try every parameter", ":material/search:", "Nothing is saved.")
    found = _on_request(EXPLAINED, key, button, lambda progress: explained(measured, progress))
    if found is None:
        return
    if not found[1]:
        st.caption("No single parameter gives more queries the recorded order.")
        return
    table = replace(measured, explained=found).tables[2]
    draw_result(table, key="evaluate:fidelity_explanations", help=HELP["evaluate:fidelity_explanations"], width=900)


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

    st.markdown("## Nearest preset", help=HELP["evaluate:nearest"])
    first = setting_of(preset(preset_names()[0]).config)
    key = _digest((recording, first, resources.store.content_version))
    button = ("evaluate:nearest", "Find the nearest preset", ":material/near_me:", "Model scores are kept.")
    note = HELP["evaluate:nearest_takes"].format(presets=len(preset_names()))
    found = _on_request(FOUND, key, button, search, note)
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
