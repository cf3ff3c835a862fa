"""Memories as memory libraries return or export them, as .json or JSON lines, with their ids; among them memory.jsonl of the MCP
memory server.

`formats/responses.py` has the table of what they return; a file of JSON lines has a row or an answer a line.

Fields are read by the names that `connect` knows (`base/memory_fields.py:NAMES`). Vectors are not taken. An answer with scores is what a
query found, and is taken for memories only with `--format memory-records`.

memory.jsonl has entities with observations and relations between them, an object a line:

    {"type": "entity", "name": "Mira", "entityType": "person", "observations": ["Likes short answers."]}
    {"type": "relation", "from": "Mira", "to": "harbor/api", "relationType": "works on"}

The answer of its `read_graph` or `search_nodes`, `{entities: […], relations: […]}` as .json, is read too.

An entity is a memory, as the server finds and returns whole entities: its name is id and title, its type the category, its observations
the content, one below the other. An entity without observations has its name as content: the server finds it by that too.

Source: files written by @modelcontextprotocol/server-memory 2026.8.31, which also keeps relations to names that are no entity.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any

from cems_workbench.errors import InputError
from cems_workbench.formats import responses
from cems_workbench.formats.base import fields, payload
from cems_workbench.formats.base.fields import FieldError
from cems_workbench.formats.base.files import SAMPLE_LINES, Sample, read_records, type_name
from cems_workbench.formats.base.format import described
from cems_workbench.formats.base.memory_fields import TEXTS
from cems_workbench.formats.base.records import MemoryRead, collect, memories_of
from cems_workbench.progress import Progress
from cems_workbench.records import Memory, ParsedInput, Relation, RowError

ANY_NAME = payload.names_of(None)
IDS = ("id", "_id", "uuid", "uuid_", "id_", "node_id", "memory_id")
"""Of an answer in which an id is that of a chunk or a node, this comes before the memory's."""


def parse_record(row: dict[str, Any]) -> MemoryRead:
    """One memory, and its fields that could not be read; raises FieldError without an id or a text."""
    name = next((name for name in IDS if row.get(name) is not None), IDS[0])
    text = payload.text_of(None, row, ANY_NAME)
    if text is None:
        found = ANY_NAME.found(row, "content")
        raise FieldError(found or "content", "is missing" if found is None else "has no text")
    return payload.memory_of(fields.identifier(row, name), text, row, ANY_NAME)


def unread(row: dict[str, Any]) -> list[str]:
    """The fields of such a row that no field of a memory is read from."""
    return payload.unread(row, ANY_NAME, (*IDS, *responses.SCORES, *responses.DISTANCES, "_node_content"))


def _read_records(path: Path, progress: Progress) -> ParsedInput:
    errors: list[RowError] = []
    collected = memories_of(path, _rows(path, errors, progress), parse_record, unread, errors)
    if not collected.records and not errors:
        raise InputError(f"{path}: has no memory")
    return collected.parsed(path, "memory-records", "memories", errors)


def _rows(path: Path, errors: list[RowError], progress: Progress) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, row in read_records(path, errors, progress):
        shape = responses.shape_of(row)
        found = responses.answers_in(row) if shape is None else None
        if found is None:
            yield number, responses.flat_of(row, shape)
            continue
        items = [item for items in found.rows for item in items]
        for place, item in enumerate(items, start=1):
            if isinstance(item, dict) or responses.is_scored(item):
                yield place, responses.flat(item)
            else:
                errors.append(RowError(str(path), place, f"must be an object, found {type_name(item)}"))


def _has_text(row: Any) -> bool:
    return isinstance(row, dict) and payload.text_of(None, responses.flat(row), ANY_NAME) is not None


def _is_record(row: Any) -> bool:
    """Whether a row is one of a memory library: it has its shape, an id, and a text under a name that says so."""
    if not isinstance(row, dict):
        return False
    if responses.shape_of(row) is None:
        return _has_id(row) and any(isinstance(row.get(name), str) for name in TEXTS)
    return _has_text(row) and _has_id(responses.flat(row))


def _has_id(row: Mapping[str, Any]) -> bool:
    return any(row.get(name) is not None for name in IDS)


def _answers(sample: Sample) -> responses.Answers:
    found = None if sample.document is None else responses.answers_in(sample.document)
    return responses.Answers(responses.SEARCH, [sample.rows]) if found is None else found


def _sniff_records(sample: Sample) -> bool:
    """Rows as above, or an answer with such rows; bare `{id, text}`, which may be anything, in a file called memories alone."""
    found = _answers(sample)
    rows = [row for rows in found.rows for row in rows][:SAMPLE_LINES]
    if found.is_of_query:
        return False
    if found.system in (responses.CHROMA, responses.LETTA):
        return any(map(_has_text, rows))
    bare = {"id", "text"}
    plain = all(isinstance(row, dict) and bare <= row.keys() <= {*bare, "metadata"} for row in rows)
    if plain and sample.path.stem.lower().startswith("memor"):
        return bool(rows)
    return any(map(_is_record, rows))


def doubt(sample: Sample) -> str:
    """What an answer of a query may be, which is not taken for memories without being told."""
    found = _answers(sample)
    rows = [row for rows in found.rows for row in rows][:SAMPLE_LINES]
    if not found.is_of_query or not any(map(_has_text, rows)):
        return ""
    whose = "a query" if found.system == responses.SEARCH else f"a query of {found.system}"
    return f"may be memories, or what {whose} found: fidelity FILE compares that with the results here"


RECORDS = described(__file__, "memory-records", _sniff_records, _read_records, doubt=doubt)


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


def _read_server(path: Path, progress: Progress) -> ParsedInput:
    """Read the entities and relations of a file; raises InputError when it cannot be read."""
    errors: list[RowError] = []
    edges: list[tuple[int, dict[str, Any]]] = []

    def entities() -> Iterator[tuple[int, dict[str, Any]]]:
        for number, row in _parts(path, errors, progress):
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

    key = attrgetter("source_id", "target_id", "kind")
    relations = collect(str(path), edges, between, key, "from, to, relationType", RELATION_FIELDS, errors)
    parsed = memories.parsed(path, "mcp-memory-server", "memories", errors, relations.notes)
    return parsed.with_rows(relations=zip(relations.rows, relations.records, strict=True))


def _parts(path: Path, errors: list[RowError], progress: Progress) -> Iterator[tuple[int, dict[str, Any]]]:
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


def _sniff_server(sample: Sample) -> bool:
    marks = {ENTITY: "observations", RELATION: "relationType"}
    return sample.mostly(lambda row: marks.get(str(row.get("type")), "\0") in row or _is_graph(row))


SERVER = described(__file__, "mcp-memory-server", _sniff_server, _read_server)
