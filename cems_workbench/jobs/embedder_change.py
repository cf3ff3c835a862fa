"""Another embedder on the judged queries of a store, before all its memories are embedded: `analysis.embedder_change` has the estimate.

A memory of several chunks has the cosine of its nearest one, as in the vector list.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cems_workbench.analysis.embedder_change import Cosines, EmbedderChange, change_of, chosen_memories
from cems_workbench.errors import InputError
from cems_workbench.jobs import factory
from cems_workbench.jobs.evaluation import agreed
from cems_workbench.jobs.query_set_evidence import selected
from cems_workbench.models.protocol import Float32, QueryEmbedder
from cems_workbench.models.resolve import resolve
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Progress, silent
from cems_workbench.settings import Settings

SHARE = 0.1
"""Of the memories, the share that is embedded."""
PORTION = 2_000
"""Memories whose vectors are read at once."""


def embedder_named(asked: str, settings: Settings) -> QueryEmbedder:
    """The embedder `asked`: a path, a name, or server:model as the setting has it. Raises InputError for one that is not there."""
    named = settings.model_copy(update={"embedder": asked})
    if named.served_embedder is None and resolve(asked).fallback:
        raise InputError(
            f"--embedder {asked[:80]}: not found; name a folder with its weights, the packaged model, or ollama:MODEL"
        )
    return factory.embedder(named)


def embedder_change(
    query_set: str, other: QueryEmbedder, resources: Resources, share: float = SHARE, progress: Progress = silent
) -> EmbedderChange:
    """What another embedder would do to the vector list alone. Embeds the judged queries and a share of the memories; nothing is stored.

    Raises InputError for a set without relevant memories, a share that is too small, and a store whose vectors are of that model;
    ModelError when the embedder fails.
    """
    if not 0 < share <= 1:
        raise InputError(f"--share {share:g}: expected a share of the memories, above 0 and at most 1")
    if other.model_id == resources.embedder.model_id:
        raise InputError(f"--embedder {other.model_id}: the store's vectors are of this model")
    selection, judgments = selected(query_set, resources, judged=True)
    vectors, grades = resources.indexes.vectors, agreed(judgments, None).grades
    ids = vectors.ids()
    place = {key: number for number, key in enumerate(ids)}
    asked = [
        (query.query, {place[key]: grade for key, grade in grades.get(query.qid, {}).items() if key in place})
        for query in selection.queries
    ]
    asked = [(text, own) for text, own in asked if any(grade > 0 for grade in own.values())]
    if not asked:
        raise InputError(f"{query_set}: no query has a relevant memory with a vector")
    texts = [text for text, _ in asked]
    queries = np.stack([resources.embedder.encode_query(text) for text in texts])
    cosines = np.zeros((len(asked), len(ids)), dtype=np.float32)
    for start in range(0, len(ids), PORTION):
        progress("reading vectors", start, len(ids))
        part = ids[start : start + PORTION]
        stored = vectors.chunk_embeddings(part)
        cosines[:, start : start + len(part)] = _nearest(queries, [[*stored[key].values()] for key in part])
    judged = sorted({number for _, own in asked for number in own})
    embedded, own_count = chosen_memories(cosines, judged, max(1, round(share * len(ids))))
    there = _embedded([ids[number] for number in embedded.tolist()], other, resources, progress)
    other_queries = np.stack([other.encode_query(text) for text in texts])
    names = resources.embedder.model_id, other.model_id
    return change_of(names, cosines, (embedded, own_count), _nearest(other_queries, there), [own for _, own in asked])


def _nearest(queries: Cosines, parts: Sequence[Sequence[Float32]]) -> Cosines:
    """(Q, memories) the cosine of each query with the nearest vector of each memory."""
    starts = np.cumsum([0, *(len(of_memory) for of_memory in parts)])[:-1]
    rows = np.stack([vector for of_memory in parts for vector in of_memory])
    found: Cosines = np.maximum.reduceat(queries @ rows.T, starts, axis=1)
    return found


def _embedded(
    ids: Sequence[str], other: QueryEmbedder, resources: Resources, progress: Progress
) -> list[list[Float32]]:
    """The vectors of each memory's entries."""
    texts = resources.store.indexes.texts(ids)
    owners = [key for key in ids for _ in texts[key]]
    rows = other.encode([text for key in ids for text in texts[key].values()], progress)
    found: dict[str, list[Float32]] = {key: [] for key in ids}
    for key, row in zip(owners, rows, strict=True):
        found[key].append(row)
    return list(found.values())
