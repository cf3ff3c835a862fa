"""Import and export of judgments: a report for every imported row, and export in the formats of other tools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from cems_workbench.evaluation.labelling.agreement import Chosen, Rule, choose_judgments
from cems_workbench.formats import FORMATS, Written, cems_feedback, judgment_writers, write_judgments
from cems_workbench.jobs.importing import FileImport, import_files
from cems_workbench.pipeline.resources import Resources
from cems_workbench.platform.bidi import neutralise
from cems_workbench.ui.kit import session
from cems_workbench.ui.kit.forms import COUNTS, count_rows, draw_errors, draw_options, notes, problems
from cems_workbench.ui.kit.html import plain
from cems_workbench.ui.kit.tables import draw_table
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
RULE_HELP = (
    "All judges: every judge’s grade. Otherwise one grade per pair: the majority’s, the lowest, or only unanimous grades and named "
    "decisions. Undecided pairs are left out and listed."
)
FEEDBACK = (
    "Sets how often each memory was relevant (grade 2 and up) and noise (grade 0) over the queries of this selection; the factor "
    "“feedback” under Adjust uses these counts. Other memories keep their counts."
)


@dataclass(frozen=True)
class _Choice:
    """The export: the judgments, the written file, and the format's name."""

    chosen: Chosen
    written: Written
    form: str


def draw(resources: Resources) -> None:
    """Draw import and export."""
    st.markdown("## Import judgments")
    if session.draw_right("reviewer"):
        _import(resources)
    st.markdown("## Export judgments")
    choice = _choose(resources)
    if choice is not None:
        _export(choice, resources)


def _import(resources: Resources) -> None:
    files = st.file_uploader(
        "Files with judgments",
        accept_multiple_files=True,
        key=f"label:files:{state.present().uploads}",
        help="Judgments refer to queries and memories in the store; the files may contain queries too. Labels given in this app are never "
        "replaced; earlier imports are, with a note.",
    )
    whose = None if session.may("operator") else session.reviewer()
    if whose is not None:
        st.caption(f"Only your own labels ({plain(whose)}) are imported; an operator can import those of others.")
    kind, button, _ = st.columns([2, 1, 2], vertical_alignment="bottom")
    known = [name for name, form in FORMATS.items() if form.order == JUDGMENTS]
    chosen = kind.selectbox(
        "Format",
        [AUTO, *known],
        key="label:files:format",
        help="\n".join(f"- `{name}`: {plain(FORMATS[name].description)}" for name in known),
    )
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
    _report(state.present().imports)


def _report(imports: Sequence[FileImport]) -> None:
    """Draw the report of the last import: counts, conflicts, and rejected rows with reasons."""
    for line in problems(imports):
        st.error(plain(line), icon=":material/block:")
    if counts := count_rows(imports):
        draw_table(counts, COUNTS, key="label:files:counts", most=len(counts))
    if remarks := notes(imports):
        st.caption(f"{len(remarks)} notes on replaced, repeated or conflicting rows")
        st.code(neutralise("\n".join(remarks)), language=None, wrap_lines=True, height=min(200, 28 + 21 * len(remarks)))
    draw_errors(imports, "{count} left out", "label:files:errors", "left-out-judgments.csv", 8, MAX_ROWS)


def _choose(resources: Resources) -> _Choice | None:
    """The chosen judgments and format; None after an error, which is drawn."""
    boxes = st.columns(5, vertical_alignment="bottom")
    sets = [ALL_QUERIES, *sorted(known.name for known in resources.store.query_sets.latest())]
    query_set = boxes[0].selectbox("Query set", sets, key="label:out:set")
    kind = KINDS[boxes[1].selectbox("Judged by", list(KINDS), key="label:out:kind")]
    judgments = resources.store.judgments.read(kind=None if kind == "all" else kind)
    names = sorted({judgment.judge for judgment in judgments})
    judge = boxes[2].selectbox("Judge", [ANY_JUDGE, *names], key="label:out:judge")
    rule = RULES[boxes[3].selectbox("Grades", list(RULES), key="label:out:rule", help=RULE_HELP)]
    form = boxes[4].selectbox(
        "Format",
        list(judgment_writers()),
        key="label:out:form",
        help="\n".join(f"- `{name}`: {plain(FORMATS[name].description)}" for name in judgment_writers()),
    )
    queries = {query.qid: query for query in resources.store.queries.read()}
    qids = (
        set(queries)
        if query_set == ALL_QUERIES
        else {query.qid for query in resources.store.query_sets.queries(query_set)}
    )
    with errors_shown():
        chosen = choose_judgments(resources.store, qids, None if judge == ANY_JUDGE else judge, kind, rule)
        return _Choice(chosen, write_judgments(form, chosen.judgments, queries), form)
    return None


def _export(choice: _Choice, resources: Resources) -> None:
    written, left_out = choice.written, (*choice.chosen.still_open, *choice.written.left_out)
    line, button, feedback_box = st.columns([2.4, 1, 1.2], vertical_alignment="center")
    line.caption(
        f"{written.rows:,} of {len(choice.chosen.judgments) + len(choice.chosen.still_open):,} judgments can be exported"
        + (f"; {len(left_out):,} are left out, listed below." if left_out else ".")
    )
    suffix = FORMATS[choice.form].suffixes[0]
    download(
        "Download",
        written.text.encode(),
        f"{choice.form}{suffix}",
        "label:out:get",
        type="primary",
        width="stretch",
        disabled=not written.rows,
        box=button,
    )
    feedback = cems_feedback.feedback_of(choice.chosen.judgments)
    if feedback_box.button(
        "Count as feedback",
        key="label:out:feedback",
        icon=":material/thumbs_up_down:",
        width="stretch",
        help=FEEDBACK,
        disabled=not feedback or not session.may("operator"),
    ):
        session.require("operator")
        changed = resources.store.memories.count_feedback(cems_feedback.counts(feedback))
        st.success(
            f"The counts of {changed:,} memories changed; evidence that depends on them will be gathered again.",
            icon=":material/task_alt:",
        )
    if left_out:
        lines = [
            *left_out[:MAX_ROWS],
            *([f"and {len(left_out) - MAX_ROWS:,} more"] if len(left_out) > MAX_ROWS else []),
        ]
        st.code(neutralise("\n".join(lines)), language=None, wrap_lines=True, height=min(220, 28 + 21 * len(lines)))
    with st.expander("Preview"):
        st.code("\n".join(written.text.splitlines()[:12]) or "(nothing)", language=None)
