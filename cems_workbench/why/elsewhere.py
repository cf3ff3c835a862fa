"""Where each list would have ranked the memory, were it as deep as the store: exact cosine, and BM25 over the query's terms."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cems_workbench.config import PipelineConfig, list_depths
from cems_workbench.pipeline.evidence import Evidence, Source
from cems_workbench.pipeline.gather import Request
from cems_workbench.pipeline.resources import Resources
from cems_workbench.store import Filter
from cems_workbench.store.vector_index import EXACT_ROWS
from cems_workbench.why.path import ListPlace
from cems_workbench.why.words import ordinal

Place = tuple[int | None, float | None]
Find = Callable[[str, str, Filter, Resources], Place]


def list_places(
    memory_id: str, evidence: Evidence, config: PipelineConfig, request: Request, resources: Resources
) -> list[ListPlace]:
    """The memory's place in the vector and the lexical list of each variant; also of those that were not searched."""
    where = Filter(request.project, request.project_only, config.query.scope)
    memory = resources.store.memory(memory_id)
    if memory is not None:
        barred = _barred(where, memory.project, memory.scope)
        if barred:
            return [ListPlace("every list", None, None, None, False, barred)]
    returned = {(ranked.source, ranked.variant): {hit.memory_id for hit in ranked.hits} for ranked in evidence.lists}
    depths = list_depths(config)
    finders: tuple[tuple[Source, Find], ...] = (("vector", _by_cosine), ("lexical", _by_terms))
    places = []
    for i, variant in enumerate(evidence.variants):
        for source, find in finders:
            rank, score = find(memory_id, variant.text, where, resources)
            inside = memory_id in returned.get((source, i), set())
            searched = (source, i) in returned
            words = _words(source, rank, score, depths[source], searched, inside)
            places.append(ListPlace(f"{source}:{i}", rank, score, depths[source], inside, words))
    return places


def _barred(where: Filter, project: str | None, scope: str) -> str | None:
    if where.required_project not in (None, project):
        return f"it belongs to {project or 'no project'}, and only {where.required_project} is searched"
    if where.required_scope not in (None, scope):
        return f"its scope is {scope}, and only {where.required_scope} memories are searched"
    return None


def _by_cosine(memory_id: str, text: str, where: Filter, resources: Resources) -> Place:
    """The exact cosine; the rank too where the index is small enough to be searched exactly."""
    vector = resources.embedder.encode_query(text)
    own = resources.cosines(vector, [memory_id])
    if not own:
        return None, None
    vectors = resources.indexes.vectors
    if len(vectors) > EXACT_ROWS:
        return None, own[0][1]
    return _placed(memory_id, vectors.search(vector, len(vectors), where))


def _by_terms(memory_id: str, text: str, where: Filter, resources: Resources) -> Place:
    lexical = resources.indexes.lexical
    rank, score = _placed(memory_id, lexical.search(text, lexical.document_count, where))
    return rank, score or 0.0


def _placed(memory_id: str, hits: Sequence[tuple[str, float]]) -> Place:
    for rank, (key, score) in enumerate(hits, 1):
        if key == memory_id:
            return rank, float(score)
    return None, None


def _words(
    source: Source, rank: int | None, score: float | None, depth: int | None, searched: bool, returned: bool
) -> str:
    if source == "lexical" and not score:
        return "it shares no term with the query"
    if score is None:
        return "it has no embedding"
    measure = f"cosine {score:.3f}" if source == "vector" else f"BM25 {score:.2f}"
    place = (
        f"it would be {ordinal(rank)} ({measure})" if rank is not None else f"its {measure} is not among the nearest"
    )
    if returned:
        return f"{ordinal(rank)} ({measure})" if rank is not None else measure
    if not searched:
        return f"{place}, but this list was not searched"
    return place + (f", past the depth of {depth}" if depth is not None and (rank is None or rank > depth) else "")
