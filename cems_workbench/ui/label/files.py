"""Import and export of judgments: a report for every imported row, and export in the formats of other tools."""

from __future__ import annotations

from collections.abc import Iterable

import streamlit as st

from cems_workbench.evaluation.labelling.agreement import Rule, choose_judgments
from cems_workbench.formats import FORMATS, judgment_writers, write_judgments
from cems_workbench.formats.judgments import counts, feedback_of
from cems_workbench.jobs.importing import FileImport, import_files
from cems_workbench.pipeline.resources import Resources
from cems_workbench.ui.kit import session
from cems_workbench.ui.kit.forms import draw_lines, draw_options, draw_report
from cems_workbench.ui.kit.html import plain
from cems_workbench.ui.kit.tables import HELP
from cems_workbench.ui.kit.widgets import cancellable, download, errors_shown
from cems_workbench.ui.label import state

MAX_ROWS = 500
JUDGMENTS = 3
"""The order of formats that bring judgments."""
AUTO, ALL_QUERIES, ANY_JUDGE = "recognise", "all queries", "anybody"
KINDS = {"People": "human", "Models": "model", "Both": "all"}
RULES: dict[str, Rule | None] = {
    "All judges": None,
    "Majority": "majority",
    "Strictest": "strictest",
    "Decided": "decided",
}


def draw(resources: Resources) -> None:
    """Draw import and export."""
    st.markdown("## Import judgments")
    if session.draw_right("reviewer"):
        _import(resources)
    st.markdown("## Export judgments")
    with errors_shown():
        _export(resources)


def _import(resources: Resources) -> None:
    key = f"label:files:{state.present().uploads}"
    files = st.file_uploader("Files with judgments", accept_multiple_files=True, key=key, help=HELP["label:files"])
    whose = None if session.may("operator") else session.reviewer()
    if whose is not None:
        st.caption(f"Only your own labels ({plain(whose)}) are imported; an operator can import those of others.")
    kind, button, _ = st.columns([2, 1, 2], vertical_alignment="bottom")
    known = [name for name, form in FORMATS.items() if form.order == JUDGMENTS]
    chosen = kind.selectbox("Format", [AUTO, *known], key="label:files:format", help=_descriptions(known))
    options = draw_options("label:files")
    pressed = button.button("Import", key="label:files:import", type="primary", disabled=not files, width="stretch")
    if pressed and files and options is not None:
        session.require("reviewer")
        with cancellable("label:cancel:import") as progress:
            uploads, form = [(file.name, file) for file in files], "auto" if chosen == AUTO else chosen
            imports: tuple[FileImport, ...] = ()
            for imported in import_files(uploads, resources.store, progress, form, whose, options):
                imports = (*imports, imported)
                state.update(imports=imports)  # an interrupted import reports its finished files
        state.close_queue()
        state.update(uploads=state.present().uploads + 1)
        st.rerun()
    draw_report(state.present().imports, "label:files", "left-out-judgments.csv")


def _descriptions(formats: Iterable[str]) -> str:
    return "\n".join(f"- `{name}`: {plain(FORMATS[name].description)}" for name in formats)


def _export(resources: Resources) -> None:
    """Draw the choice of judgments and format, and their export. Raises InputError."""
    boxes, store = st.columns(5, vertical_alignment="bottom"), resources.store
    sets = [ALL_QUERIES, *sorted(known.name for known in store.query_sets.latest())]
    query_set = boxes[0].selectbox("Query set", sets, key="label:out:set")
    kind = KINDS[boxes[1].selectbox("Judged by", list(KINDS), key="label:out:kind")]
    judgments = store.judgments.read(kind=None if kind == "all" else kind)
    names = sorted({judgment.judge for judgment in judgments})
    judge = boxes[2].selectbox("Judge", [ANY_JUDGE, *names], key="label:out:judge")
    rule = RULES[boxes[3].selectbox("Grades", list(RULES), key="label:out:rule", help=HELP["label:out:rule"])]
    forms = list(judgment_writers())
    form = boxes[4].selectbox("Format", forms, key="label:out:form", help=_descriptions(forms))
    queries = {query.qid: query for query in store.queries.read()}
    qids = set(queries)
    if query_set != ALL_QUERIES:
        qids = {query.qid for query in store.query_sets.queries(query_set)}
    chosen = choose_judgments(store, qids, None if judge == ANY_JUDGE else judge, kind, rule)
    written = write_judgments(form, chosen.judgments, queries)
    left_out = (*chosen.still_open, *written.left_out)
    line, button, feedback_box = st.columns([2.4, 1, 1.2], vertical_alignment="center")
    more = f"; {len(left_out):,} are left out, listed below." if left_out else "."
    total = len(chosen.judgments) + len(chosen.still_open)
    line.caption(f"{written.rows:,} of {total:,} judgments can be exported{more}")
    file, text = f"{form}{FORMATS[form].suffixes[0]}", written.text.encode()
    off = not written.rows
    download("Download", text, file, "label:out:get", button, type="primary", width="stretch", disabled=off)
    feedback, icon = feedback_of(chosen.judgments), ":material/thumbs_up_down:"
    off = not feedback or not session.may("operator")
    if feedback_box.button(
        "Count as feedback",
        key="label:out:feedback",
        icon=icon,
        width="stretch",
        help=HELP["label:out:feedback"],
        disabled=off,
    ):
        session.require("operator")
        changed = store.memories.count_feedback(counts(feedback))
        said = f"The counts of {changed:,} memories changed; evidence that depends on them will be gathered again."
        st.success(said, icon=":material/task_alt:")
    if left_out:
        cut = [f"and {len(left_out) - MAX_ROWS:,} more"] if len(left_out) > MAX_ROWS else []
        draw_lines([*left_out[:MAX_ROWS], *cut])
    with st.expander("Preview"):
        st.code("\n".join(written.text.splitlines()[:12]) or "(nothing)", language=None)
