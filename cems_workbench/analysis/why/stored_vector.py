"""Whether the vector that came with a memory from its source is that of its text, and where the memory would be if it were.

The vector is replaced by the one that the embedder gives the text, and the query is ranked again (`edited_evidence`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

from cems_workbench.analysis.edited_evidence import Edit, answered_elsewhere, edited_evidence
from cems_workbench.analysis.vector_origins import Mismatch, VectorOrigins, origins
from cems_workbench.analysis.why.path import MemoryPath, memory_path
from cems_workbench.config import PipelineConfig
from cems_workbench.models.embedder_match import MATCH_COSINE, cosine
from cems_workbench.pipeline import replay
from cems_workbench.pipeline.evidence import Evidence
from cems_workbench.pipeline.gather import Request, gather_scores
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.wording import list_label, ordinal
from cems_workbench.progress import Progress, silent
from cems_workbench.store.sources import CONTENT, UNPROVEN

OTHER_TEXTS = 20
"""Texts of other memories with which a vector that is not of its text is compared."""


@dataclass(frozen=True, slots=True)
class StoredVector:
    """A vector of a memory that is not of its text, and what re-embedding changes.

    `lists` are (list, rank, rank then) of the lists of vectors; `rank` and `then` those among the results. None: in none; `then` is None
    too if a running system answers such a list (`replayed` is False): only that system can re-embed it there.
    """

    mismatch: Mismatch
    k: int
    rank: int | None
    lists: tuple[tuple[str, int | None, int | None], ...] = ()
    then: int | None = None
    replayed: bool = True
    of_source: str = ""
    """What `connect` found of the other vectors of its source; empty if they are of their texts."""

    @property
    def brings_in(self) -> bool:
        """Whether re-embedding brings the memory into the first k."""
        return self.then is not None and self.then <= self.k and (self.rank is None or self.rank > self.k)

    @property
    def sentence(self) -> str:
        """What the vector is of, and the ranks with the one that the text gives."""
        told = f"The stored vector of {self.mismatch.place} {self.mismatch.sentence}.{self.of_source}"
        if not self.replayed:
            return (
                f"{told} Its system answers the list of vectors, so only re-embedding it there would show the effect."
            )
        moved = [f"{_rank(then)} in {list_label(name)} ({_rank(now)} now)" for name, now, then in self.lists]
        results = f"{_rank(self.then)} of the results ({_rank(self.rank)} now)"
        return f"{told} With the vector of its text it is {', '.join([*moved, results])}."

    @property
    def fix(self) -> str:
        """The fix that it is, if it brings the memory in."""
        name = self.mismatch.memory_id
        return f"Fix: re-embed {name}. {name} becomes {_rank(self.then)}; not checked on other queries."

    def to_json(self) -> dict[str, Any]:
        """Plain values, with the sentence."""
        return {**asdict(self), "sentence": self.sentence}


def stored_vector(
    path: MemoryPath,
    evidence: Evidence,
    config: PipelineConfig,
    request: Request,
    resources: Resources,
    switched_off: Collection[int] = (),
    progress: Progress = silent,
) -> StoredVector | None:
    """The first vector of the memory that is not of its text, replaced; None if all are, or are not from a source.

    Raises ModelError if the embedder fails.
    """
    named = _mismatch(path.memory_id, resources)
    memory = resources.store.memories.get(path.memory_id)
    if named is None or memory is None:
        return None
    found, of_source = named
    vectors = [ranked for ranked in evidence.lists if ranked.source == "vector"]
    if any(answered_elsewhere(evidence, ranked.name) for ranked in vectors):
        return StoredVector(found, path.k, path.rank, replayed=False, of_source=of_source)
    edit = Edit(memory, memory, resources, again=True)
    changed = edited_evidence(edit, evidence, config, request)
    changed = gather_scores(changed, config, resources, progress, only="rerank", switched_off=switched_off)
    then = memory_path(replay(changed, config, switched_off=switched_off), path.memory_id, path.k)
    now = {place.list: place.rank for place in path.places}
    lists = []
    for ranked in changed.lists:
        if ranked.source == "vector":
            order = list(dict.fromkeys(hit.memory_id for hit in ranked.hits))
            place = order.index(path.memory_id) + 1 if path.memory_id in order else None
            lists.append((ranked.name, now.get(ranked.name), place))
    return StoredVector(found, path.k, path.rank, tuple(lists), then.rank, of_source=of_source)


def _mismatch(memory_id: str, resources: Resources) -> tuple[Mismatch, str] | None:
    """The first vector that is not of its text, and the sentence about the source's vectors."""
    sources, embedder = resources.store.sources, resources.embedder
    for record, row in sources.memories_embedded([memory_id]):
        if record.model_id != embedder.model_id or record.text_form is None:
            continue
        form = CONTENT if record.text_form == UNPROVEN else record.text_form
        if row.vector.any() and cosine(embedder.encode([row.of(form)])[0], row.vector) >= MATCH_COSINE:
            continue
        kept = sources.kept_origins(record.id)
        known = None if kept is None else VectorOrigins.of_json(kept).only(sources.entries(record.id))
        found = next((one for one in known.mismatches if (one.memory_id, one.chunk) == row.id), None) if known else None
        if not row.vector.any():
            found = Mismatch(*row.id, "zeros")
        elif found is None:  # of a large source not all vectors were compared, and of one that no text reproduces none
            rows = [each for each in sources.embedded(record.id, OTHER_TEXTS, [row.id]) if each.vector.any()]
            named = origins(rows, embedder, form)
            found = next((one for one in named if (one.memory_id, one.chunk) == row.id), None)
        if found is not None:
            alone = known is None or not (known.sample or len(known.mismatches) > 1)
            return found, "" if known is None or alone else f" Of its source: {known.summary}."
    return None


def _rank(rank: int | None) -> str:
    return "not" if rank is None else ordinal(rank)
