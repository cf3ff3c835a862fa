"""memory.jsonl of the MCP memory server: entities with observations and relations between them, an object a line.

    {"type": "entity", "name": "Mira", "entityType": "person", "observations": ["Likes short answers."]}
    {"type": "relation", "from": "Mira", "to": "harbor/api", "relationType": "works on"}

The answer of its `read_graph` or `search_nodes`, `{entities: […], relations: […]}` as .json, is read too.

An entity is a memory, as the server finds and returns whole entities: its name is id and title, its type the category, its observations
the content, one below the other. An entity without observations has its name as content: the server finds it by that too.

Source: files written by @modelcontextprotocol/server-memory 2026.8.31, which also keeps relations to names that are no entity.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from cems_workbench.formats.base import fields
from cems_workbench.formats.base.fields import FieldError
from cems_workbench.formats.base.files import Sample, read_records, type_name
from cems_workbench.formats.base.format import Format
from cems_workbench.formats.base.records import collect
from cems_workbench.progress import Progress
from cems_workbench.records import Memory, ParsedInput, Relation, RowError

NAME = "mcp-memory-server"
ENTITY, RELATION = "entity", "relation"
ENTITY_FIELDS = ("type", "name", "entityType", "observations")
RELATION_FIELDS = ("type", "from", "to", "relationType")


def parse_entity(row: dict[str, Any]) -> Memory:
    """One entity; raises FieldError."""
    name = fields.identifier(row, "name")
    observations = fields.texts(row, "observations")
    return Memory(name, "\n".join(observations) or name, title=name, category=fields.text(row, "entityType"))


def parse_relation(row: dict[str, Any]) -> Relation:
    """One relation; raises FieldError."""
    kind = fields.text(row, "relationType") or "related"
    return Relation(fields.identifier(row, "from"), fields.identifier(row, "to"), kind)


def read(path: Path, progress: Progress) -> ParsedInput:
    """Read the entities and relations of a file; raises InputError when it cannot be read."""
    errors: list[RowError] = []
    edges: list[tuple[int, dict[str, Any]]] = []

    def entities() -> Iterator[tuple[int, dict[str, Any]]]:
        for number, row in _rows(path, errors, progress):
            if row.get("type") == ENTITY:
                yield number, row
            elif row.get("type") == RELATION:
                edges.append((number, row))
            else:
                errors.append(RowError(str(path), number, f"must be one of {ENTITY}, {RELATION}", "type"))

    memories = collect(str(path), entities(), parse_entity, lambda memory: memory.id, "name", ENTITY_FIELDS, errors)
    known = {memory.id for memory in memories.records}

    def between(row: dict[str, Any]) -> Relation:
        relation = parse_relation(row)
        for field, name in (("from", relation.source_id), ("to", relation.target_id)):
            if name not in known:
                raise FieldError(field, f"no entity of the file is called {name!r}"[:100])
        return relation

    relations = collect(
        str(path),
        edges,
        between,
        lambda edge: (edge.source_id, edge.target_id, edge.kind),
        "from, to, relationType",
        RELATION_FIELDS,
        errors,
    )
    parsed = memories.parsed(path, NAME, "memories", errors, relations.notes)
    rows = {"memories": memories.rows, "relations": relations.rows}
    return replace(parsed, relations=tuple(relations.records), extra={**parsed.extra, "rows": rows})


def _rows(path: Path, errors: list[RowError], progress: Progress) -> Iterator[tuple[int, dict[str, Any]]]:
    """The numbered entities and relations, each with its type, of lines or of a whole graph."""
    for number, row in read_records(path, errors, progress):
        if not _is_graph(row):
            yield number, row
            continue
        for key, kind in (("entities", ENTITY), ("relations", RELATION)):
            for place, item in enumerate(row.get(key) or (), start=1):
                if isinstance(item, dict):
                    yield place, {"type": kind, **item}
                else:
                    errors.append(RowError(str(path), place, f"must be an object, found {type_name(item)}", key))


def _is_graph(row: dict[str, Any]) -> bool:
    entities = row.get("entities")
    return isinstance(entities, list) and any(isinstance(each, dict) and "observations" in each for each in entities)


def sniff(sample: Sample) -> bool:
    """Objects that are entities or relations by their type."""
    return sample.mostly(
        lambda row: (
            (row.get("type") == ENTITY and "observations" in row)
            or (row.get("type") == RELATION and "relationType" in row)
            or _is_graph(row)
        )
    )


FORMAT = Format(
    NAME,
    "memory.jsonl of the MCP memory server: {type: entity, name, entityType, observations}, …",
    order=0,
    sniff=sniff,
    read=read,
    place=10,
    shape="objects of type entity with observations, or of type relation with relationType",
    needs=(("type",), ("observations", "relationType")),
)
