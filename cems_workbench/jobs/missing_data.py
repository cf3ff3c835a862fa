"""What a config reads of memories and a store does not have: dates, counts, votes, projects, high importance, relations.

Nothing of this stops a query: a list without data is empty or ties, a factor is 1. Each line says what is absent and what that costs; the
stages say the same of the candidates of a query.
"""

from __future__ import annotations

from collections.abc import Iterator

from cems_workbench.config import PipelineConfig
from cems_workbench.pipeline.resources import ENTITIES_FILE
from cems_workbench.store import Store


def missing_data(config: PipelineConfig, store: Store) -> list[str]:
    """A line for each kind of data that the config reads and no memory of the store has; empty without memories."""
    total = store.memories.count()
    if not total:
        return []
    has = store.memories.filled()
    lacks = {name for name, count in has.items() if not count}
    if config.lists.relations.enabled and not store.relations.read():
        lacks.add("relations")
    if config.lists.entities.enabled and not (store.path / ENTITIES_FILE).is_file():
        lacks.add("entities")
    return list(_lines(config, lacks))


def _lines(config: PipelineConfig, lacks: set[str]) -> Iterator[str]:
    lists, adjust, fusion = config.lists, config.adjust, config.fusion
    if "dates" in lacks:
        if lists.recency.enabled:
            yield "no date of creation: the recency list is empty, and its weight does nothing"
        if adjust.time_decay.mode != "none" and "accesses" in lacks:
            yield "no date: time decay is the same for all"
        if lists.candidate_set.mode in ("newest_created", "lexical_or_newest"):
            yield "no date of creation: the newest of the candidate set are the first by id"
    if "accesses" in lacks:
        if lists.access.enabled:
            yield "no access count: the access list gives all the same value, and tells nothing apart"
        if adjust.count.of == "accesses":
            yield "no access count: the count factor is 1 for all"
        if lists.candidate_set.mode == "recent_access":
            yield "no access: the candidate set is the newest by creation"
    if "votes" in lacks:
        if adjust.feedback.enabled:
            yield "no votes: the feedback factor does nothing"
        if adjust.count.of == "relevant":
            yield "no votes: the count factor is 1 for all"
    if "projects" in lacks and adjust.project.enabled:
        yield f"no projects: a query with a project multiplies all by {adjust.project.untagged:g}"
    if "high importance" in lacks and (fusion.importance_bonus_ranks or fusion.importance_floor is not None):
        yield "no memory of high importance: the bonus for it does nothing"
    if "entities" in lacks:
        yield f"no entity links ({ENTITIES_FILE}): the entities list is empty, and no memory is raised by one"
    if "relations" in lacks:
        yield "no relations: the relations list is empty, and its weight does nothing"
