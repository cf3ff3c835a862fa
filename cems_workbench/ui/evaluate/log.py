"""Query sets sampled from a log: the most frequent queries, a random sample, or the worst by the judge."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

import streamlit as st
from streamlit.runtime.uploaded_file_manager import UploadedFile

from cems_workbench.errors import InputError, counted
from cems_workbench.evaluation.log_sampling import Strategy, distinct, sampled
from cems_workbench.formats import log_format, logs, read
from cems_workbench.formats.logs import askings, not_recorded
from cems_workbench.jobs.importing import upload as saved
from cems_workbench.pipeline.resources import Resources
from cems_workbench.records import RowError
from cems_workbench.ui.evaluate.state import LogSample, page
from cems_workbench.ui.kit import session
from cems_workbench.ui.kit.html import plain
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
