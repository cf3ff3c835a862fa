"""The options of an import, the same on every page that imports: those of the command `import`, in the same words."""

from __future__ import annotations

import streamlit as st

from cems_workbench.errors import InputError
from cems_workbench.jobs.importing import import_options
from cems_workbench.store import ImportOptions
from cems_workbench.store.query_matching import MATCHES
from cems_workbench.ui.kit.escape import plain

REPLACE_HELP = (
    "Also change memories and queries that another file, a live source or an edit brought (`--replace`). Otherwise they stay and are "
    "listed. A file that was edited changes its own rows either way."
)
MATCH_HELP = (
    "Whether a query that a file names by its words is taken for one of the store that differs only by case, blanks or a final mark "
    "(`--match`)."
)


def draw(key: str) -> ImportOptions | None:
    """Draw the options of an import; None after an error, which is drawn. `key` begins the keys of the widgets."""
    replace = st.checkbox("Replace what others brought", key=f"{key}:replace", help=REPLACE_HELP)
    with st.expander("Query set, scale and grades", key=f"{key}:more"):
        name, scale, relevant, match, grades, queue = st.columns(
            [1.2, 0.8, 0.9, 0.9, 1.5, 1], vertical_alignment="bottom"
        )
        texts = {
            "query_set": name.text_input(
                "Query set",
                key=f"{key}:set",
                placeholder="as the file",
                help="Query set that receives the queries (`--query-set`).",
            ),
            "scale": scale.text_input(
                "Scale",
                key=f"{key}:scale",
                placeholder="0..3",
                help="Grade scale of the set, LOW..HIGH, such as -2..3 (`--scale`).",
            ),
            "relevant_from": relevant.text_input(
                "Relevant from",
                key=f"{key}:relevant",
                placeholder="1",
                help="Lowest grade of the set that counts as relevant (`--relevant-from`).",
            ),
            "match": match.selectbox("Match", MATCHES, key=f"{key}:match", help=MATCH_HELP),
            "queue": queue.text_input(
                "Queue",
                key=f"{key}:queue",
                placeholder="none",
                help="Labelling queue to make of the pairs that the file lists without a judgment (`--queue`).",
            ),
            "grades": grades.text_input(
                "Grades",
                key=f"{key}:grades",
                placeholder="0.5..1=1, Relevant=2",
                help="Grades of ratings that are fractions or words, VALUE=GRADE, with commas between them (`--grade`).",
            ),
        }
    try:
        return import_options(
            texts["query_set"].strip() or None,
            texts["scale"].strip() or None,
            texts["match"],
            [each.strip() for each in texts["grades"].split(",") if each.strip()],
            texts["relevant_from"].strip() or None,
            replace=replace,
            queue=texts["queue"].strip() or None,
        )
    except InputError as error:
        st.error(plain(str(error)), icon=":material/block:")
        return None
