"""Setup of the Evaluate page: queries, configs, judgments, and imports from files; its parts are those of Tune too.

An opened evidence file is used if it matches this store; otherwise it is refused, or used read-only on request. Banners say what evidence
lacks, with a button that adds the missing reranker scores, or gathers it with progress, cancel and resume. A query set can be sampled from
a log: the most frequent queries, a random sample, or the worst by the judge.
"""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import IO, Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator
from streamlit.runtime.uploaded_file_manager import UploadedFile

from cems_workbench.config import PipelineConfig, import_config
from cems_workbench.errors import InputError, counted
from cems_workbench.evaluation.batch import missing_score_lines
from cems_workbench.evaluation.evidence_file import Header, read_header
from cems_workbench.evaluation.log_sampling import Strategy, distinct, sampled
from cems_workbench.evaluation.metrics import Measure, measures_help, offered_measures, parse_measures
from cems_workbench.evaluation.report import read_comparison
from cems_workbench.formats import log_format, logs, read
from cems_workbench.formats.logs import askings, not_recorded
from cems_workbench.jobs.access import allowed_path
from cems_workbench.jobs.catalogue import file_name, sample_figures
from cems_workbench.jobs.evaluation import EvaluationReport
from cems_workbench.jobs.importing import upload as saved
from cems_workbench.jobs.query_set_evidence import (
    QuerySelection,
    discard_evidence,
    judged_selection,
    measurable,
    request_for,
    set_relevant_from,
    store_mismatch,
)
from cems_workbench.jobs.scoring import Lacking, score_lacking, why_not_scored
from cems_workbench.jobs.traced_sets import AS_EXPLAINED, is_external, traced_header
from cems_workbench.models.servers import Answers, ask_all
from cems_workbench.pipeline.gather import gather
from cems_workbench.pipeline.resources import Resources
from cems_workbench.platform.atomic_write import output_path
from cems_workbench.platform.bidi import neutralise
from cems_workbench.progress import Progress
from cems_workbench.records import Judgment, RowError
from cems_workbench.settings import Settings
from cems_workbench.store import QuerySet
from cems_workbench.ui.evaluate.compare import draw_saved
from cems_workbench.ui.evaluate.state import (
    JUDGES,
    OPENED_FILE,
    Choice,
    LogSample,
    OpenedFile,
    config_options,
    most_judged,
    page,
    read_file,
    set_widgets,
    usual_configs,
)
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect.fetch_evidence import evidence_memory
from cems_workbench.ui.kit import session, widgets
from cems_workbench.ui.kit.html import capital, plain, render
from cems_workbench.ui.kit.tables import HELP, draw_values
from cems_workbench.ui.kit.widgets import errors_shown, opened_popover, progress_in, switch

STRATEGIES: dict[str, Strategy] = {"Most frequent": "frequent", "At random": "random", "Worst by the judge": "worst"}
SUFFIXES = ["jsonl", "json", "csv", "tsv"]


def draw(resources: Resources) -> None:
    """Draw a popover with the log, the sampling strategy, and the name of the set."""
    help = "Sample a query set from a log of real queries"
    box = opened_popover("Queries of a log", "evaluate:log", ":material/history:", help, width=520)
    if box is None:
        return
    with box:
        upload = st.file_uploader("Log of queries", SUFFIXES, key="evaluate:log_file", help=HELP["evaluate:log_file"])
        ways, key = list(STRATEGIES), "evaluate:log_way"
        way = switch("Choose", ways, key, "Most frequent", labelled=True)
        left, right = st.columns(2)
        size = left.number_input("How many", 1, 10_000, 100, key="evaluate:log_size")
        fixed, help = way != "At random", "The same seed gives the same sample"
        seed = right.number_input("Seed", 0, 2**31 - 1, 0, key="evaluate:log_seed", disabled=fixed, help=help)
        name = st.text_input("Query set", key="evaluate:log_name", max_chars=120, placeholder="bad queries of May")
        place, unready = st.empty(), not (upload and name.strip())
        pressed = st.button("Create query set", key="evaluate:log_make", type="primary", disabled=unready)
        if pressed and upload:
            with place.container():
                _create_query_set(upload, STRATEGIES[way], int(size), int(seed), name.strip(), resources)
        _outcome()


def _create_query_set(
    upload: UploadedFile, way: Strategy, size: int, seed: int, name: str, resources: Resources
) -> None:
    page.update(log_sample=None)
    progress, rejected = progress_in(st.empty()), st.container()
    with errors_shown():
        session.require("reviewer")
        with saved(upload.name, upload.getvalue()) as path:
            parsed = read(path, log_format(path) or logs.NAME, progress)
        with rejected:
            _rejected(parsed.errors)
        if not parsed.queries:
            raise InputError(f"{upload.name} contains no readable query")
        answers = resources.store.recorded_answers.resolved(parsed.answers, parsed.extra.get("id_length"))
        entries = askings(parsed.queries, answers)
        chosen, scores = sampled(entries, way, size, seed, resources, progress)
        if not chosen:
            why = "the judge could not score any query; are its results memories of this store?"
            raise InputError(f"{upload.name}: {why}")
        made = resources.store.query_sets.put(name, [logged.query for logged in chosen], upload.name)
        line = f"Query set {made.name}, version {made.version}: {made.size} of {len(distinct(entries))} queries"
        if len(answers) < len(entries):
            line += f"; {not_recorded(len(entries) - len(answers), len(entries))}"
        sample = LogSample(line, tuple(chosen), scores, tuple(parsed.errors))
        page.update(log_sample=sample, next_query_set=made.name)
        st.rerun()


def _outcome() -> None:
    sample = page.get().log_sample
    if sample is None:
        return
    st.success(plain(sample.line), icon=":material/check:")
    names, rows = ["query", "asked"], [[one.query.query, one.times] for one in sample.chosen]
    if sample.scores:
        names.append("judge")
        rows = [[*row, finite(sample.scores.get(one.query.qid))] for row, one in zip(rows, sample.chosen, strict=True)]
    help = {"asked": "Occurrences in the log", "judge": "The judge’s raw score of its best result"}
    draw_values(names, rows, key="evaluate:log_rows", help=help, format="%.2f", most=6)
    st.page_link("pages/label.py", label="Judge their results on the Label page", icon=":material/rule:")
    _rejected(sample.errors)


def finite(score: float | None) -> float | None:
    """The score; None if it is missing or not finite."""
    return score if score is not None and isfinite(score) else None


def _rejected(errors: Sequence[RowError]) -> None:
    if errors:
        st.caption(f":orange[⚠] {counted(len(errors), 'rows')} of the log left out:")
        rows = [(error.row, error.field, error.reason) for error in errors]
        draw_values(("row", "field", "reason"), rows, key="evaluate:log_errors", most=6)


DEFAULT_MEASURES = ("hit@1", "hit@5", "recall@5", "MRR", "nDCG@10", "Judged@10")


def choose(resources: Resources) -> Choice | None:
    """Draw the setup; None while there is nothing to measure, with the problem drawn in place."""
    set_widgets()
    sets = {query_set.name: query_set for query_set in resources.store.query_sets.latest()}
    file = page.get().opened
    judgments = resources.store.judgments.read()
    if file is None and not (sets and measurable(resources.store.queries.read(), judgments)):
        draw_nothing("Measure configs on judged queries", "evaluate/nothing_judged.html", bool(sets))
        _further(resources)
        return None
    options = ([OPENED_FILE] if file else []) + sorted(sets)
    if st.session_state.get("evaluate:set") not in options:  # it decides whether there are configs to choose
        st.session_state["evaluate:set"] = OPENED_FILE if file else most_judged(resources)
    header = _recorded(st.session_state["evaluate:set"], resources)
    traced = is_external(header)
    configs = ((header.config.name, header.config),) if header and traced else _configs(resources, header)
    boxes = st.columns([3, 2, 2, 2], vertical_alignment="bottom")
    name = set_box(boxes[0], "evaluate", options, sets, file)
    opened = file if name == OPENED_FILE else None
    kind = JUDGES[boxes[1].selectbox("Judgments", list(JUDGES), **widgets.remembered("evaluate:judges"))]
    grade = _relevant_from(boxes[2], name, sets.get(name), opened, resources)
    within_help = HELP["evaluate:only_project"] + " Does not apply to an opened evidence file."
    within = within_box(boxes[3], "evaluate", within_help, disabled=opened is not None) and opened is None
    if not traced:
        widgets.draw_effects(dict(configs), within)
    measures = _measures(grade)
    _further(resources)
    if not configs:
        st.info("Choose a config above. Others are compared with the first.")
        return None
    if measures is None:
        return None
    if opened is not None:
        return _on_file(opened, configs, kind, measures)
    selection = chosen_selection(name, resources, judgments, within)
    return None if selection is None else Choice(selection, configs, kind, measures)


def set_box(
    box: DeltaGenerator, of: str, options: Sequence[str], sets: Mapping[str, QuerySet], file: OpenedFile | None = None
) -> str:
    """Draw the choice of a query set on the page `of`; the opened evidence file is one of the options."""

    def shown(name: str) -> str:
        if file is not None and name == OPENED_FILE:
            return f"file {file.name}"
        return f"{neutralise(name)} · {counted(sets[name].size, 'queries')} · version {sets[name].version}"

    name: str = box.selectbox("Query set", options, format_func=shown, **widgets.remembered(f"{of}:set"))
    return name


def within_box(box: DeltaGenerator, of: str, help: str | None = None, *, disabled: bool = False) -> bool:
    """Draw the choice to search only the project of each query on the page `of`."""
    key = widgets.remembered(f"{of}:only_project", help or HELP["evaluate:only_project"])
    return bool(box.toggle("Within the project", disabled=disabled, **key))


def chosen_selection(
    query_set: str, resources: Resources, judgments: Sequence[Judgment], within: bool
) -> QuerySelection | None:
    """The judged queries of a set; None without one, with a line on how to judge them."""
    selection = judged_selection(query_set, resources, judgments, within)
    if not selection.queries:
        st.info("No query of this set is judged yet. Label some results, or import judgments.", icon=":material/rule:")
        st.page_link("pages/label.py", label="Judge its results on the Label page", icon=":material/rule:")
        return None
    if selection.without_project:
        st.caption(plain(capital(f"{selection.without_project}.")))
    return selection


def draw_nothing(title: str, template: str, has_queries: bool) -> None:
    """Draw an empty state for a store without judged queries."""
    lacking = "None of its queries is judged yet." if has_queries else "This store has no queries yet."
    widgets.empty(title, render(template, lacking=lacking))


def _recorded(query_set: str, resources: Resources) -> Header | None:
    """The header of a set of external traces or explained answers, with what is measured of it; None for another set."""
    header = None if query_set == OPENED_FILE else traced_header(resources.store.path, query_set)
    if is_external(header):
        st.caption(
            f":material/route: {plain(query_set)} was traced in another pipeline: its recorded stages are measured, and no config changes "
            "them. Recorded answers, above, finds the nearest preset."
        )
    elif header is not None:
        st.caption(
            f":material/route: {plain(query_set)} was explained by another system: its recorded lists replay under any config, and the "
            "store is not searched."
        )
    return header


def _configs(resources: Resources, recorded: Header | None) -> tuple[tuple[str, PipelineConfig], ...]:
    """The chosen configs, at first `usual_configs`; of explained answers the one that replays them."""
    options = config_options(resources).configs
    first = usual_configs() if recorded is None else [AS_EXPLAINED.format(recorded.query_set)]
    key = "evaluate:configs" if recorded is None else f"evaluate:configs:{recorded.query_set}"
    names = st.multiselect("Configs", list(options), first, **widgets.remembered("evaluate:configs") | {"key": key})
    return tuple((name, options[name]) for name in names)


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
        help=HELP["evaluate:grade"],
    )
    if query_set is not None and chosen != present:
        set_relevant_from(name, chosen, resources)
    return int(chosen)


def _on_file(
    file: OpenedFile, configs: tuple[tuple[str, PipelineConfig], ...], kind: str | None, measures: tuple[Measure, ...]
) -> Choice | None:
    """Draw the opened file with a button to close it; None if it cannot be read."""
    left, right = st.columns([5, 1], vertical_alignment="center")
    right.button("Close the file", key="evaluate:file_close", on_click=close, width="stretch")
    try:
        evidence = read_file(file)
    except InputError as error:
        left.error(plain(str(error)), icon=":material/block:")
        return None
    header = evidence.header
    searched = f"{len(evidence.evidences)} of {len(evidence.queries)} queries"
    about = f"{searched}, gathered {header.created_at[:10]} for {plain(header.config.name)}"
    why = f" Read-only: {plain(file.reason)}." if file.reason else ""
    left.caption(f"{plain(file.name)}: {about}, with its own judgments.{why}")
    return Choice(QuerySelection(file.name, evidence.queries, header.only_project), configs, kind, measures, file)


def _further(resources: Resources) -> None:
    with st.container(horizontal=True, key="evaluate:further"):
        draw_config_file()
        draw_files(resources)
        draw(resources)


def draw_config_file() -> None:
    """Draw a popover that adds the config of a file to the configs to choose from."""
    help = "Compare a config from a file, in any export format"
    box = widgets.opened_popover("Config file", "evaluate:config", ":material/upload_file:", help, width=360)
    if box is None:
        return
    with box:
        kinds = ["yaml", "yml", "json", "toml", "env", "py"]
        help = "An .env changes only the parameters it names; the others are those set in Inspect."
        upload = st.file_uploader("Config", kinds, key="evaluate:config_file", help=help)
        if upload and st.button("Add to comparison", key="evaluate:config_add", type="primary"):
            with widgets.errors_shown():
                _bring_in(upload.name, upload.getvalue())
        for line in page.get().file_warnings:
            st.warning(plain(line))


def _bring_in(file: str, content: bytes) -> None:
    """Add the config of a file to the chosen ones, under the file's name. Raises InputError."""
    try:
        result = import_config(content.decode("utf-8-sig"), state.present_config(), source=file)
    except UnicodeDecodeError:
        raise InputError(f"{file}: not UTF-8 text") from None
    name = file_name(file)
    chosen = tuple(st.session_state.get("evaluate:configs", ()))
    page.update(
        file_configs={**page.get().file_configs, name: result.config},
        file_warnings=tuple(result.warnings),
        next_configs=chosen if name in chosen else (*chosen, name),
    )
    st.rerun()


def _measures(grade: int) -> tuple[Measure, ...] | None:
    names = st.multiselect(
        "Measures",
        offered_measures(),
        default=list(DEFAULT_MEASURES),
        accept_new_options=True,
        **widgets.remembered("evaluate:measures", f"You can type others, such as hit@3 or nDCG@5. {measures_help()}"),
    )
    with widgets.errors_shown():
        return parse_measures(" ".join(names), grade)
    return None


CHUNK_BYTES = 1 << 20
MAX_UPLOAD_MB = 2000


def draw_files(resources: Resources) -> None:
    """Draw a popover with a path and an upload, and the reason if the file is refused."""
    help = "Measure on a file written by the command gather, here or elsewhere; no models are called"
    box = widgets.opened_popover("Evidence file", "evaluate:file", ":material/folder_open:", help, width=420)
    if box is None:
        return
    with box:
        typed = widgets.remembered("evaluate:file_path")
        path = st.text_input("Path", placeholder="/…/team.evidence", **typed).strip()
        upload = st.file_uploader("or upload it", key="evaluate:file_upload", max_upload_size=MAX_UPLOAD_MB)
        if st.button("Open the file", key="evaluate:file_open", disabled=not (path or upload)):
            page.update(offered=None)
            with widgets.errors_shown():
                _offer(path, upload, resources)
        offered = page.get().offered
        if offered is None:
            return
        st.warning(plain(f"{offered.name} does not match this store: {offered.reason}."), icon=":material/block:")
        act: Any = {"on_click": use, "args": (offered,), "help": HELP["evaluate:file_use"]}
        st.button("Use it read-only", key="evaluate:file_use", type="primary", **act)


def _offer(typed: str, upload: IO[bytes] | None, resources: Resources) -> None:
    """Check the file: use it if it matches this store, else remember the reason. Raises WorkbenchError."""
    path = allowed_path(typed, Settings()) if typed else None
    name = path.name if path else str(getattr(upload, "name", "upload"))
    place = path or _saved(upload)
    try:
        evidence = read_file(OpenedFile(place, name, None))
    except InputError as error:
        raise InputError(str(error).replace(str(place), name)) from None
    if not evidence.judgments:
        raise InputError(f"{name}: it contains no judgments, so nothing can be measured on it")
    file = OpenedFile(place, name, store_mismatch(evidence.header, resources))
    if file.reason is None:
        use(file)
        st.rerun()
    page.update(offered=file)


def use(file: OpenedFile) -> None:
    """Measure on this file."""
    page.update(opened=file, offered=None, next_query_set=OPENED_FILE, close_file_box=True)


def close() -> None:
    """Measure on the store's query sets again."""
    page.update(opened=None)
    st.session_state.pop("evaluate:set", None)


def _saved(upload: IO[bytes] | None) -> Path:
    """Save the upload to a file for DuckDB, named by its hash; deleted with the session."""
    assert upload is not None
    folder = page.get().uploads or tempfile.TemporaryDirectory(prefix="cems-evidence-")
    page.update(uploads=folder)
    digest = hashlib.sha256()
    upload.seek(0)
    whole = Path(folder.name) / "upload"
    with output_path(whole) as part, part.open("wb") as out:
        while chunk := upload.read(CHUNK_BYTES):
            digest.update(chunk)
            out.write(chunk)
    return whole.replace(Path(folder.name) / f"{digest.hexdigest()[:16]}.evidence")


ICON = ":material/warning:"
MAX_BANNER_LINES = 3
"""Maximum lines in the banner; if there are more, all are listed below it."""
SERVER_CACHE_S = 30
"""Cache time of the servers' availability."""


def of_evaluated(measured: Sequence[EvaluationReport]) -> list[Lacking]:
    """The missing scores of each config that has any."""
    found = ((row.evaluation, row.labelled.evidence) for row in measured if row.evaluation.rankings.needs)
    return [Lacking(one.config.name, one.config, of, one.rankings.needs, one.qids) for one, of in found]


def draw_missing_scores(
    key: str, lacking: Sequence[Lacking], resources: Resources, *, label: str = "Score them", locked: str | None = None
) -> bool:
    """Draw the banner if anything is missing; True once the missing pairs have been scored. `locked`: why the evidence
    must not change. If nothing can be scored, the reason replaces the button."""
    lines = [f"- {plain(line)}" for line in missing_score_lines((one.name, one.needs) for one in lacking)]
    if not lines:
        return False
    scorable = [one for one in lacking if one.scorable]
    why_not = (locked or why_not_scored(scorable, resources, Settings(), server_answers)) if scorable else None
    more = len(lines) > MAX_BANNER_LINES + 1
    shown = [*lines[:MAX_BANNER_LINES], f"- and {len(lines) - MAX_BANNER_LINES} more, below"] if more else lines
    parts = ["The evidence is incomplete. The numbers use the available part.", "\n".join(shown)]
    if why_not:
        parts.append(f"The scores cannot be added here: {plain(why_not)}.")
    if any(len(one.needs) > one.scorable for one in lacking):
        parts.append("Evidence gathered with other values must be gathered again for that config.")
    message = "\n\n".join(parts)

    def score(progress: Progress) -> None:
        for report in score_lacking(scorable, resources, progress):
            for why, count in report.failed.items():
                st.toast(plain(f"no score for {counted(count, 'pairs')}: {why}"), icon=ICON)

    done, kept = False, "Computed scores are kept; scoring can be resumed."
    if scorable and not why_not:
        about: Any = {"icon": ICON, "warn": True, "kept": kept, "help": HELP["evaluate:score"]}
        done = widgets.offer_job(f"{key}:score", message, label, score, **about)
    else:
        st.warning(message, icon=ICON)
    if more:
        with st.expander(f"The evidence has {counted(len(lines), 'gaps')}"):
            st.markdown("\n".join(lines))
    return done


@st.cache_resource(ttl=SERVER_CACHE_S, show_spinner=False)
def server_answers() -> Answers:
    """Which servers are reachable."""
    settings = Settings()
    return ask_all(settings.llama_server_url, settings.ollama_url, settings.llm_url, settings.llm_key, None)()


Missing = Sequence[tuple[str, PipelineConfig]]


def offer(missing: Missing, measured: Sequence[EvaluationReport], choice: Choice, resources: Resources) -> bool:
    """Show what is missing and gather it on request; True once everything is gathered."""
    rows = [(row.evaluation.config, row.evaluation.cost.get("ms_per_query")) for row in measured]
    paces, then = [(config, pace / 1000) for config, pace in rows if pace], ""
    for name, config in missing:
        if evidence_memory().searched(choice.selection, config, resources):
            paces = [*paces, (config, _pace(config, choice, resources))]
            scores = "" if config.rerank.backend == "none" else ", and their reranker scores are kept"
            then += f"{plain(name)}: Inspect has searched them for itself{scores}; "
    return bool(missing) and widgets.offer_gather(
        "evaluate",
        [(name, config, choice.selection) for name, config in missing],
        f"{then}after that every change of a weight or threshold is measured at once",
        resources,
        paces=paces,
    )


def _pace(config: PipelineConfig, choice: Choice, resources: Resources) -> float:
    """Seconds of a query whose scores are kept, measured on the first of the choice."""

    def timed() -> float:
        started, when = time.perf_counter(), datetime.now(UTC)
        gather(request_for(choice.selection.queries[0], when, choice.selection.only_project), config, resources)
        return time.perf_counter() - started

    return session.kept("evaluate:pace", (evidence_memory().key(config, resources), choice.selection.query_set), timed)


def draw_answered(measured: Sequence[EvaluationReport], choice: Choice, resources: Resources) -> None:
    """Show the configs whose lists a running system answered, and when, with a button to ask again, except for an evidence file."""
    asked = [row for row in measured if row.answered]
    if not asked:
        return

    def ask_again() -> None:
        for row in asked:
            discard_evidence(row.evaluation.config, choice.selection, resources)

    said = "; ".join(f"{row.name}: lists {row.answered}" for row in asked)
    widgets.draw_provenance("evaluate", said, None if choice.opened is not None else ask_again)


def draw_sample(choice: Choice, resources: Resources) -> None:
    """Draw the bundled comparison, until something is measured here, if the store holds the unmodified sample set; else nothing."""
    if choice.opened is not None or choice.selection.only_project or choice.kind == "model":
        return
    figures = sample_figures(resources, choice.selection.query_set)
    if figures is None:
        return
    st.markdown("## Presets on the sample set")
    widgets.draw_bundled_notice(
        "evaluate",
        figures,
        "Gather measures the configs chosen above on this machine.",
        "Choose these presets",
        lambda: st.session_state.update({"evaluate:configs": list(figures.measured.presets)}),
    )
    draw_saved(read_comparison(figures.experiment.card or {}))
