"""Query sets sampled from a log: the most frequent queries, a random sample, or the worst by the judge."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

import streamlit as st
from streamlit.runtime.uploaded_file_manager import UploadedFile

from cems_workbench.errors import InputError, WorkbenchError
from cems_workbench.evaluation.log_sampling import LoggedQuery, Strategy, distinct, sampled
from cems_workbench.formats import log_format, logs, read
from cems_workbench.formats.logs import askings, not_recorded
from cems_workbench.jobs.importing import upload as saved
from cems_workbench.pipeline.resources import Resources
from cems_workbench.records import RowError
from cems_workbench.ui.evaluate.state import LogSample, page
from cems_workbench.ui.kit import session
from cems_workbench.ui.kit.html import plain
from cems_workbench.ui.kit.tables import Column, draw_table
from cems_workbench.ui.kit.widgets import opened_popover, progress_in, switch

STRATEGIES: dict[str, Strategy] = {"Most frequent": "frequent", "At random": "random", "Worst by the judge": "worst"}
SUFFIXES = ["jsonl", "json", "csv", "tsv"]
ERRORS: list[Column[RowError]] = [
    Column("row", lambda error: error.row, 60),
    Column("field", lambda error: error.field),
    Column("reason", lambda error: error.reason, "large"),
]


def draw(resources: Resources) -> None:
    """Draw a popover with the log, the sampling strategy, and the name of the set."""
    box = opened_popover(
        "Queries of a log",
        "evaluate:log",
        ":material/history:",
        "Sample a query set from a log of real queries",
        width=520,
    )
    if box is None:
        return
    with box:
        upload = st.file_uploader(
            "Log of queries",
            SUFFIXES,
            key="evaluate:log_file",
            help="JSON lines or CSV with query and, optionally, time, project and results (memory ids, best first); "
            "hook_events.jsonl of CEMS; retriever spans of OpenInference.",
        )
        way = switch(
            "Choose",
            list(STRATEGIES),
            "evaluate:log_way",
            "Most frequent",
            help="At random: in proportion to frequency. Worst by the judge: queries whose best result has the lowest score from "
            "the model judge; a query without results counts as worst.",
            labelled=True,
        )
        left, right = st.columns(2)
        size = left.number_input("How many", 1, 10_000, 100, key="evaluate:log_size")
        seed = right.number_input(
            "Seed",
            0,
            2**31 - 1,
            0,
            key="evaluate:log_seed",
            disabled=way != "At random",
            help="The same seed gives the same sample",
        )
        name = st.text_input("Query set", key="evaluate:log_name", max_chars=120, placeholder="bad queries of May")
        place = st.empty()
        pressed = st.button(
            "Create query set", key="evaluate:log_make", type="primary", disabled=not (upload and name.strip())
        )
        if pressed and upload:
            with place.container():
                _create_query_set(upload, STRATEGIES[way], int(size), int(seed), name.strip(), resources)
        _outcome()


def _create_query_set(
    upload: UploadedFile, way: Strategy, size: int, seed: int, name: str, resources: Resources
) -> None:
    page.update(log_sample=None)
    progress = progress_in(st.empty())
    errors: list[RowError] = []
    try:
        session.require("reviewer")
        with saved(upload.name, upload.getvalue()) as path:
            parsed = read(path, log_format(path) or logs.NAME, progress)
        errors = list(parsed.errors)
        if not parsed.queries:
            raise InputError(f"{upload.name} contains no readable query")
        answers = resources.store.recorded_answers.resolved(parsed.answers, parsed.extra.get("id_length"))
        entries = askings(parsed.queries, answers)
        chosen, scores = sampled(entries, way, size, seed, resources, progress)
        if not chosen:
            raise InputError(
                f"{upload.name}: the judge could not score any query; are its results memories of this store?"
            )
        query_set = resources.store.query_sets.put(name, [logged.query for logged in chosen], upload.name)
    except WorkbenchError as error:
        st.error(plain(str(error)), icon=":material/block:")
        if errors:
            _rejected(errors)
        return
    line = (
        f"Query set {query_set.name}, version {query_set.version}: {query_set.size} of {len(distinct(entries))} queries"
    )
    if len(answers) < len(entries):
        line += f"; {not_recorded(len(entries) - len(answers), len(entries))}"
    page.update(log_sample=LogSample(line, tuple(chosen), scores, tuple(errors)), next_query_set=query_set.name)
    st.rerun()


def _outcome() -> None:
    """Draw the created set, and rejected rows with their reasons."""
    sample = page.get().log_sample
    if sample is None:
        return
    st.success(plain(sample.line), icon=":material/check:")
    scores = sample.scores
    columns: list[Column[LoggedQuery]] = [
        Column("query", lambda logged: logged.query.query, "large"),
        Column("asked", lambda logged: logged.times, help="Occurrences in the log"),
    ]
    if scores:
        about = "The judge’s raw score of its best result"
        columns.append(Column("judge", lambda logged: finite(scores.get(logged.query.qid)), None, "%.2f", about))
    draw_table(sample.chosen, columns, key="evaluate:log_rows", most=6, placeholder="–")
    st.page_link("pages/label.py", label="Judge their results on the Label page", icon=":material/rule:")
    if sample.errors:
        _rejected(sample.errors)


def finite(score: float | None) -> float | None:
    """The score; None if it is missing or not finite."""
    return score if score is not None and isfinite(score) else None


def _rejected(errors: Sequence[RowError]) -> None:
    st.caption(f":orange[⚠] {len(errors):,} row{'s' if len(errors) != 1 else ''} of the log left out:")
    draw_table(errors, ERRORS, key="evaluate:log_errors", most=6, placeholder="–")
