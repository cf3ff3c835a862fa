"""Against production: what the real system returned for this query, where this trace departs from it, and what would explain that."""

from __future__ import annotations

import streamlit as st

from cems_workbench.analysis.fidelity import Answer, Production, agreement, matched, results_of
from cems_workbench.errors import InputError
from cems_workbench.formats.responses import Response, parse_response
from cems_workbench.ui.look import Look
from cems_workbench.ui.memories_escape import plain
from cems_workbench.ui.tools.production_explained import draw_explanations
from cems_workbench.ui.tools.production_tables import draw_placements, draw_scores, draw_stages, numbers_html

PLACEHOLDER = '{"results": [{"memory_id": "m1", "content": "…", "score": 0.82}, …]}\n\nor an id and its score a line:\nm1, 0.82\nm2, 0.77'
FORMS_HELP = (
    "A CEMS search response (JSON), a list of ids, one a line, with or without scores (CSV too), or a TREC run. The order is that of "
    "the input; a run is ordered by rank. A memory is found by its id, else by its text."
)


def draw(look: Look) -> None:
    """The input, then how far it agrees, who is where, stage by stage, scores, and what would explain the difference."""
    response = _response(look)
    if response is None:
        st.caption("Paste what the real system answered to this query, or upload it. Nothing is sent anywhere.")
        return
    production = _matched(response, look)
    _left_out(response)
    if not production.order:
        st.warning("None of these memories is in this store, by id or by text: is it the store that production has?")
        draw_placements(look, production)
        return
    ours = results_of(look.trace)
    found = agreement(production.order, ours)
    st.html(numbers_html(production, ours, found))
    same = list(production.order) == ours[: len(production.order)]
    st.markdown(_verdict(production, ours, same))
    draw_placements(look, production)
    draw_stages(look, production)
    draw_scores(look, production)
    if same:
        st.caption("The order is production’s: there is nothing to explain.")
    else:
        draw_explanations(look, production, found)


def _response(look: Look) -> Response | None:
    """What was pasted or uploaded for this query; None when there is nothing, or nothing that can be read, which is said."""
    key = f"production:{abs(hash(look.request.query))}"
    text_box, file_box = st.columns([3, 2])
    pasted = text_box.text_area(
        "What production returned", key=f"{key}:text", height=150, placeholder=PLACEHOLDER, help=FORMS_HELP,
        persist_state="session",
    )  # fmt: skip
    upload = file_box.file_uploader(
        "Or a file", ["json", "jsonl", "txt", "csv", "tsv", "run", "trec"], key=f"{key}:file"
    )
    source, text = "pasted", pasted
    try:
        if upload is not None:
            source, text = upload.name, upload.getvalue().decode("utf-8-sig")
        elif not pasted.strip():
            return None
        response = parse_response(text, source)
    except UnicodeDecodeError:
        st.error(f"{plain(source)}: not UTF-8 text")
        return None
    except InputError as error:
        st.error(plain(str(error)))
        return None
    return _of_query(response, look, key)


def _of_query(response: Response, look: Look, key: str) -> Response:
    """Of a run with several queries, that of this one, or the one that is chosen."""
    if response.runs is None or len(response.runs) < 2:
        return response
    qids = list(response.runs)
    own = {query.qid for query in look.resources.store.queries() if query.query == look.request.query}
    at = next((i for i, qid in enumerate(qids) if qid in own), 0)
    qid = st.selectbox(
        "Query of the run", qids, at, key=f"{key}:qid", help="The run answers several queries: which is this one?"
    )
    return Response(response.form, response.runs[qid], response.errors, response.runs)


def _matched(response: Response, look: Look) -> Production:
    """The response in terms of this store, looked up once."""
    store = look.resources.store
    key = (response.returned, str(store.path), store.content_version)
    kept = st.session_state.get("production:matched")
    if kept is None or kept[0] != key:
        answers = [Answer(one.memory_id, one.content, one.score) for one in response.returned]
        kept = st.session_state["production:matched"] = (key, matched(answers, store.memories))
    production: Production = kept[1]
    return production


def _left_out(response: Response) -> None:
    """Rows that could not be used, a line each."""
    if not response.errors:
        return
    count = len(response.errors)
    with st.expander(f"{count} row{'s' if count != 1 else ''} could not be used in full", icon=":material/warning:"):
        st.code("\n".join(str(error) for error in response.errors[:200]), language=None)


def _verdict(production: Production, ours: list[str], same: bool) -> str:
    """One sentence on where the two part."""
    if same:
        return f"**The first {len(production.order)} are the same, in the same order.**"
    first = next(
        (i for i, (theirs, own) in enumerate(zip(production.order, ours, strict=False)) if theirs != own),
        min(len(production.order), len(ours)),
    )
    if first == len(ours):
        return f"**Ours ends after {first}; so far it is the same.** A result limit or a token budget that is smaller here?"
    theirs, own = plain(production.order[first]), plain(ours[first])
    return f"**They part at rank {first + 1}:** production has {theirs}, we have {own}."
