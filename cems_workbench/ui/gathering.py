"""Evidence for the page: kept while it answers the request, fetched with progress when a parameter asks for more."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from cems_workbench import formats
from cems_workbench.errors import WorkbenchError
from cems_workbench.pipeline import Evidence, replay
from cems_workbench.pipeline.gather import Request, gather
from cems_workbench.pipeline.rescoring import score_missing
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Progress
from cems_workbench.ui import state

SAMPLE_DATA = Path(__file__).resolve().parents[2] / "sample_data"


def evidence(request: Request, resources: Resources) -> Evidence | None:
    """The evidence for a request under the present config; None after an error, which is shown."""
    kept = state.evidence_for(request)
    needs = replay(kept, state.config()).needs if kept is not None else []
    if kept is not None and (not needs or not state.first_attempt(request)):
        return kept
    place = st.empty()
    try:
        fetched = _fetch(request, resources, kept, needs, _progress(place))
    except WorkbenchError as error:
        st.error(str(error))
        return None
    finally:
        place.empty()
    state.keep(request, fetched)
    return fetched


def _fetch(
    request: Request, resources: Resources, kept: Evidence | None, needs: list[dict[str, object]], progress: Progress
) -> Evidence:
    """Only scores when only scores are missing; otherwise the lists again, from the same moment as before."""
    if kept is not None and all("memory_ids" in need for need in needs):
        return score_missing(kept, state.config(), resources, progress)
    moment = request.as_of or (kept.as_of if kept is not None else None)
    again = Request(request.query, request.project, moment, request.project_only, request.manual)
    return gather(again, state.config(), resources, progress)


def _progress(place: st.delta_generator.DeltaGenerator) -> Progress:
    def report(label: str, done: int, total: int) -> None:
        place.progress(done / total if total else 0.0, text=f"{label}: {done} of {total}")

    return report


def grades(request: Request, resources: Resources) -> dict[str, int]:
    """Human grades by memory id, when the query is one of the store's query set.

    Of several with the same words, the one of the same project and moment is meant, else the latest.
    """
    same = [query for query in resources.store.queries() if query.query == request.query]
    if not same:
        return {}
    meant = max(
        same, key=lambda query: (query.as_of == request.as_of, query.project == request.project, str(query.as_of))
    )
    judged = resources.store.judgments(meant.qid)
    return {judgment.memory_id: judgment.grade for judgment in judged if judgment.kind == "human"}


def offer_sample_data(resources: Resources) -> None:
    """The empty store: how to fill it, and one button that does."""
    st.html(
        '<div class="wb-empty"><h3>This store is empty</h3><p>Import your own memories with<br>'
        "<code>python -m cems_workbench import PATH</code><br>while the app is closed, or begin with the sample.</p></div>"
    )
    if SAMPLE_DATA.is_dir() and st.button("Load the sample memories", type="primary"):
        place = st.empty()
        progress = _progress(place)
        for parsed in formats.read_path(SAMPLE_DATA):
            resources.store.add(parsed, progress)
        resources.refresh(progress)
        st.rerun()
