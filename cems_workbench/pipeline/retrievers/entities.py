"""The entities list: memories that the store links to an entity of the query.

    score = max over linked entities e of  similarity(e) * 0.5 / (1 + 0.001 * (links(e) - 1)^2),   similarity(e) >= min_similarity

similarity(e) is the largest cosine of e and an entity of the query; an entity of many memories says little. Links are in
`entities.jsonl` in the store's directory, a line each: {"entity": "Velmoor", "memories": ["m1", "m2"]}.

Entities of the query are the stored entities that are written in it, quoted text, identifiers, and runs of capitalised words. mem0 finds
more by a language model's parse of the query (named entities, noun phrases), so its boosts differ where those do.

Source: mem0 2.2.1, search (0.5, 0.001, threshold 0.5, first 8).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cems_workbench.errors import InputError
from cems_workbench.models.protocol import Float32
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.retrievers import Retriever, SearchRequest
from cems_workbench.platform.parsing import json_values, read_text

LARGEST, PER_LINK = 0.5, 0.001
MAX_BYTES = 200_000_000
ABSENT = (
    "entities: the store links no memory to an entity (entities.jsonl), so none is raised by one; in a recording of mem0 the first "
    "result was then another one for 11 % of the queries"
)
_QUOTED = re.compile(r"\"([^\"]{3,100})\"|(?<!\w)'([^']{3,100})'(?!\w)")
_IDENTIFIER = re.compile(r"\b\w*(?:[._/-]\w+)+\b|\b[A-Za-z]+\d\w*\b|\b[a-z]+[A-Z]\w*\b")
_CAPITALISED = re.compile(r"(?<=\s)[A-Z]\w+(?:\s+[A-Z]\w+)*")


@dataclass(frozen=True, eq=False)
class EntityLinks:
    """Entities with the memories of each, and their unit vectors, (entities, dimension)."""

    names: Sequence[str]
    memories: Sequence[Sequence[str]]
    vectors: Float32

    def query_entities(self, query: str, most: int) -> list[str]:
        """The first entities of a query, in its order, by the lower-cased text once each."""
        text = " ".join(query.lower().split())
        places = [(place, name) for name in self.names if (place := _place(name, text)) >= 0]
        places += [(match.start(), next(filter(None, match.groups()))) for match in _QUOTED.finditer(query)]
        places += [
            (match.start(), match[0]) for found in (_IDENTIFIER, _CAPITALISED) for match in found.finditer(query)
        ]
        ordered = sorted(places, key=lambda pair: pair[0])
        return list({name.lower(): name for _, name in reversed(ordered)}.values())[::-1][:most]

    def boosts(self, vectors: Float32, min_similarity: float) -> dict[str, float]:
        """The score of each memory for the vectors of the query's entities."""
        found: dict[str, float] = {}
        if not len(vectors) or not len(self.names):
            return found
        similarity = (self.vectors @ vectors.T).max(axis=1)
        for i in np.flatnonzero(similarity >= min_similarity).tolist():
            score = float(similarity[i]) * LARGEST / (1 + PER_LINK * (len(self.memories[i]) - 1) ** 2)
            for memory in self.memories[i]:
                found[memory] = max(score, found.get(memory, 0.0))
        return found


def _place(name: str, text: str) -> int:
    """Where an entity is written in a lower-cased query as whole words; -1 if it is not."""
    match = re.search(rf"(?<!\w){re.escape(name.lower())}(?!\w)", text) if name.lower() in text else None
    return match.start() if match else -1


def read_links(path: Path) -> tuple[list[str], list[list[str]]]:
    """Entities and the memories of each. Raises InputError with the line that cannot be read."""
    names, memories = [], []
    for number, row in _rows(path):
        name, linked = row.get("entity"), row.get("memories")
        if not isinstance(name, str) or not name.strip() or not isinstance(linked, list) or not linked:
            raise InputError(f"{path}, line {number}: must be {{entity: text, memories: [id, …]}}")
        names.append(name.strip())
        memories.append([str(memory) for memory in linked])
    return names, memories


def _rows(path: Path) -> Iterator[tuple[int, dict[str, object]]]:
    for number, line in enumerate(read_text(path, "entities", MAX_BYTES).splitlines(), 1):
        if line.strip():
            row = json_values(line, f"{path}, line {number}", MAX_BYTES)
            if not isinstance(row, dict):
                raise InputError(f"{path}, line {number}: must be an object")
            yield number, row


def _links(resources: Resources) -> EntityLinks:
    path = resources.entities_path
    if not path.is_file():
        raise InputError(ABSENT)

    def build() -> EntityLinks:
        names, memories = read_links(path)
        return EntityLinks(names, memories, resources.embedder.encode(names))

    return resources.derived(("entities", path.stat().st_mtime_ns, resources.embedder.model_id), build)


def search(request: SearchRequest) -> Iterable[tuple[str, float]]:
    """Each linked memory with its score. Raises InputError if the store has no links."""
    section, embedder = request.config.lists.entities, request.resources.embedder
    links = _links(request.resources)
    entities = links.query_entities(request.query, section.max_entities)
    vectors = embedder.encode(entities) if entities else np.zeros((0, 1), np.float32)
    known = request.resources.store.memories.read(set().union(*links.memories))
    return [(key, score) for key, score in links.boosts(vectors, section.min_similarity).items() if key in known]


RETRIEVER = Retriever("entities", search)
