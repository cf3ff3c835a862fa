"""The rows of what a retrieval system answered to a query; those that cannot be used are reported and the others kept.

What engines and memory libraries answer, as rows with their fields side by side: to compare with, and to import as memories.

| from | where its rows are | what a row has |
| Chroma `get`, `query` | `ids` beside `documents`, `metadatas`, `distances`; of `query` a list for each query | |
| Elasticsearch, OpenSearch `_search` | `hits.hits`; of `_msearch` for each of `responses` | `_id`, `_score`, `_source` or `fields` |
| Qdrant REST and client | `result`, `result.points`, `points`; batches and groups | `id`, `score`, `payload` |
| Weaviate GraphQL, REST and client | `data.Get.CLASS`, `objects` | `_additional`, or `uuid`, `properties`, `metadata` |
| Milvus | `data` | `id`, `distance`, `entity` |
| rows of pgvector, LanceDB and others | a list | an id, a text and `distance`, `_distance` or `?column?` |
| Redis `VSIM … WITHSCORES` | a list of id, score, id, score; an object of scores by id from redis-py | |
| LangGraph stores, LangMem | a list, or `items` | `namespace`, `key`, `value` or its `content`; the id is namespace/key, as in its tables |
| LlamaIndex | `source_nodes`, or a list | `node: {id_, text, metadata}`, `score` |
| LangChain, Haystack | `documents`, or a list, also of [document, score] | `id`, `page_content` or `content`, `metadata` |
| mem0 | `results` | `id`, `memory`, `metadata` |
| Graphiti, Zep | `edges`, `facts` | `uuid`, `fact` |
| Letta | `passages` | `id`, `text` |

A distance falls from far to near: its negative is the score, so that more is nearer everywhere. Where the values of the answers of a file
say otherwise they decide, best first: what Milvus calls distance falls if its metric is a similarity, and A-MEM and FalkorDB call their
distances score. All answers of a file have one sign (`responses.oriented`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from cems_workbench.formats.base import payload
from cems_workbench.formats.base.fields import finite
from cems_workbench.formats.base.files import type_name
from cems_workbench.formats.base.names import ANSWER
from cems_workbench.formats.base.payload import NESTED
from cems_workbench.records import Returned, RowError

PARTS_FIELDS = ("score_details", "parts")
"""Where a system that explains its scores puts what they are made of."""
IDS, METADATA_IDS, SCORES, DISTANCES = (ANSWER[each] for each in ("ids", "metadata_ids", "scores", "distances"))
LISTS = ANSWER["lists"]
"""Names under which an answer has its rows, likelier ones first."""
BATCHES = ANSWER["batches"]
"""Names under which there are several answers, or parts of one."""
COLUMNS = ANSWER["columns"]
"""The columns beside Chroma's `ids`, one of each for a row."""
VECTORS = frozenset(("vector", "vectors", "embedding", "embeddings"))
MAX_DEPTH = 4
SEARCH, CHROMA, LETTA, ELASTIC = "a search", "Chroma", "Letta", "Elasticsearch"

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RowShape:
    """How the rows of a system look, and how their fields come to stand side by side."""

    system: str
    fits: Callable[[Row], bool]
    flat: Callable[[Row], dict[str, Any]]


def _object(row: Row, name: str) -> Row:
    value = row.get(name)
    return value if isinstance(value, dict) else {}


def _beside(inner: str) -> Callable[[Row], dict[str, Any]]:
    """The fields of the object under a name, with those beside it, which go first."""
    return lambda row: {**_object(row, inner), **{name: value for name, value in row.items() if name != inner}}


def _hit(row: Row) -> dict[str, Any]:
    said = _object(row, "fields").items()
    fields = {name: value[0] if isinstance(value, list) and len(value) == 1 else value for name, value in said}
    taken = {name: row[f"_{name}"] for name in ("id", "score") if row.get(f"_{name}") is not None}
    return {**fields, **_object(row, "_source"), **taken}


def _of_langgraph(row: Row) -> dict[str, Any]:
    namespace = row.get("namespace")
    prefix = ".".join(map(str, namespace)) if isinstance(namespace, list) else str(namespace or "")
    kept = {name: row[name] for name in ("created_at", "updated_at", "score") if row.get(name) is not None}
    value, key = _object(row, "value"), f"{prefix}/{row['key']}" if prefix else row["key"]
    return {"project": prefix or None, **value, **_object(value, "content"), **kept, "id": key}


def _of_node(row: Row) -> dict[str, Any]:
    """LlamaIndex 0.12 keeps the text of a node in `text_resource`; a dump has both."""
    node = dict(_object(row, "node"))
    if not node.get("text"):
        node["text"] = _object(node, "text_resource").get("text")
    return {**node, **{name: value for name, value in row.items() if name != "node"}}


def _of_weaviate(row: Row) -> dict[str, Any]:
    rest = {name: value for name, value in row.items() if name != "_additional"}
    return {**rest, **{name: value for name, value in _object(row, "_additional").items() if value is not None}}


def _of_properties(row: Row) -> dict[str, Any]:
    said = {**_object(row, "additional"), **_object(row, "metadata")}
    scored = {name: said[name] for name in (*SCORES, *DISTANCES) if said.get(name) is not None}
    return {**_object(row, "properties"), **scored, "id": row.get("uuid", row.get("id"))}


SHAPES: tuple[RowShape, ...] = (
    RowShape(
        "LangChain",
        lambda row: "lc" in row and "page_content" in _object(row, "kwargs"),
        lambda row: dict(row["kwargs"]),
    ),
    RowShape(ELASTIC, lambda row: "_id" in row and bool({"_source", "fields"} & row.keys()), _hit),
    RowShape("Qdrant", lambda row: "id" in row and isinstance(row.get("payload"), dict), _beside("payload")),
    RowShape(
        "LangGraph",
        lambda row: {"key", "namespace"} <= row.keys() and isinstance(row.get("value"), dict),
        _of_langgraph,
    ),
    RowShape("LlamaIndex", lambda row: isinstance(row.get("node"), dict), _of_node),
    RowShape("Weaviate", lambda row: isinstance(row.get("_additional"), dict), _of_weaviate),
    RowShape(
        "Weaviate",
        lambda row: isinstance(row.get("properties"), dict) and bool({"uuid", "id"} & row.keys()),
        _of_properties,
    ),
    RowShape("Milvus", lambda row: isinstance(row.get("entity"), dict), _beside("entity")),
    RowShape(SEARCH, lambda row: isinstance(row.get("memory"), dict), _beside("memory")),
    RowShape(SEARCH, lambda row: isinstance(row.get("document"), dict), _beside("document")),
    RowShape("mem0", lambda row: "id" in row and isinstance(row.get("memory"), str), dict),
    RowShape("LangChain", lambda row: isinstance(row.get("page_content"), str), dict),
    RowShape("Graphiti or Zep", lambda row: isinstance(row.get("fact"), str), dict),
)
"""The known shapes of rows, the narrower ones first."""


def shape_of(row: Row) -> RowShape | None:
    """The shape of a row; None for one whose fields stand side by side in no system's own way."""
    return next((shape for shape in SHAPES if shape.fits(row)), None)


def flat(row: Any) -> Any:
    """A row with its fields side by side, the id under one of IDS and without vectors; what is no object as it is."""
    if is_scored(row):
        return {**flat(row[0]), "score": row[1]}
    if not isinstance(row, dict):
        return row
    return flat_of(row, shape_of(row))


def flat_of(row: Row, shape: RowShape | None) -> dict[str, Any]:
    """As `flat`, of a row whose shape is known."""
    fields = dict(row) if shape is None else shape.flat(row)
    return fields if VECTORS.isdisjoint(fields) else {key: value for key, value in fields.items() if key not in VECTORS}


def is_scored(row: Any) -> bool:
    """Whether it is a document with its score beside it, as LangChain's similarity_search_with_score returns it."""
    pair = isinstance(row, list) and len(row) == 2 and isinstance(row[0], dict)
    return pair and isinstance(row[1], int | float) and not isinstance(row[1], bool)


@dataclass(frozen=True, slots=True)
class Answers:
    """The rows of each of the answers of a document, and whose they are; SEARCH where nothing says so."""

    system: str
    rows: Sequence[Sequence[Any]]
    queried: bool = False
    """Whether its form alone says that it is of queries."""

    @property
    def is_of_query(self) -> bool:
        """Whether it is what a query found: it has scores. Elasticsearch gives 1 everywhere where nothing was searched."""
        named = ((row, score_of(row)) for rows in self.rows for row in map(flat, rows))
        listed = (finite(row[score[0]]) == 1 and self.system == ELASTIC for row, score in named if score is not None)
        return self.queried or not all(listed)


def answers_in(document: Any) -> Answers | None:
    """The answers in a document: its own list, or the one under the names it usually has; None where there is no list."""
    found = _lists(document)
    if found is None:
        return None
    if isinstance(document, dict) and _is_columns(document):
        return Answers(CHROMA, found, any(isinstance(each, list) for each in document["ids"]))
    first = next((row for rows in found for row in rows if isinstance(row, dict)), None)
    shape = None if first is None else shape_of(first)
    named = LETTA if isinstance(document, dict) and "passages" in document else SEARCH
    return Answers(named if shape is None else shape.system, found)


def _lists(value: Any, depth: int = MAX_DEPTH) -> list[list[Any]] | None:
    if depth == MAX_DEPTH and (pairs := _pairs(value)):
        return [[{"id": str(key), "score": score} for key, score in pairs]]
    if isinstance(value, list):
        return _batch(value, depth) or [value]
    if not isinstance(value, dict) or not depth:
        return None
    if _is_columns(value):
        return _of_columns(value)
    for name in BATCHES:
        parts = [_lists(part, depth - 1) for part in value[name]] if isinstance(value.get(name), list) else []
        if parts and None not in parts:
            rows = [rows for part in parts for rows in part or ()]
            return rows if name == "responses" else [[row for part in rows for row in part]]
    for name in LISTS:
        inner = value.get(name)
        if name == "Get" and isinstance(inner, dict):
            return [rows for rows in inner.values() if isinstance(rows, list)] or None
        if isinstance(inner, list | dict) and (found := _lists(inner, depth - 1)) is not None:
            return found
    return None


def _pairs(value: Any) -> list[tuple[Any, float]] | None:
    """The (id, score) of Redis' VSIM: scores from 1 to 0 that fall, one of them with a fraction; None for anything else."""
    if isinstance(value, dict) and len(value) > 1:
        flat = [each for pair in value.items() for each in pair]
    elif isinstance(value, list) and len(value) % 2 == 0:
        flat = value
    else:
        return None
    if not flat or not all(isinstance(each, str | int | float) for each in flat):
        return None
    keys, scores = flat[::2], [finite(each) for each in flat[1::2]]
    said = [each for each in scores if each is not None and 0 <= each <= 1]
    falls = len(said) == len(scores) and all(a >= b for a, b in pairwise(said)) and any(each % 1 for each in said)
    names = any((number := finite(key)) is None or number > 1 for key in keys) or isinstance(value, dict)
    return list(zip(keys, said, strict=True)) if falls and names else None


def _batch(value: list[Any], depth: int) -> list[list[Any]] | None:
    """The answers of a list of answers, as Qdrant's batches are; None for a list of rows."""
    if value and all(isinstance(each, list) and not is_scored(each) for each in value):
        return value if all(isinstance(row, dict) or is_scored(row) for rows in value for row in rows) else None
    if value and all(isinstance(each, dict) and each.keys() <= {"points", "hits", "usage", "time"} for each in value):
        parts = [_lists(each, depth - 1) for each in value]
        return None if None in parts else [rows for part in parts for rows in part or ()]
    return None


def _is_columns(value: Row) -> bool:
    return isinstance(value.get("ids"), list) and any(name in value for name in COLUMNS)


def _of_columns(value: Row) -> list[list[Any]]:
    """The rows of Chroma's columns: of get a list of ids, of query one for each query."""
    ids = value["ids"]
    nested = any(isinstance(each, list) for each in ids)
    answers = []
    for number, names in enumerate(ids if nested else [ids]):

        def column(name: str, number: int = number) -> Sequence[Any]:
            cells = value.get(name)
            if nested and isinstance(cells, list):
                cells = cells[number] if number < len(cells) else None
            return cells if isinstance(cells, list) else ()

        texts, metadatas, distances = column("documents"), column("metadatas"), column("distances")
        rows = []
        for place, name in enumerate(names if isinstance(names, list) else ()):
            row = dict(metadatas[place] or {}) if place < len(metadatas) else {}
            row["id"] = name
            row |= {"document": texts[place]} if place < len(texts) and texts[place] is not None else {}
            row |= {"distance": distances[place]} if place < len(distances) else {}
            rows.append(row)
        answers.append(rows)
    return answers


def score_of(row: Any, name: str = "") -> tuple[str, bool] | None:
    """The name of the score of a row that is `flat`, and whether it is called a distance; None without any. `name` goes first."""
    if not isinstance(row, dict):
        return None
    found = next((one for one in (name, *SCORES, *DISTANCES) if row.get(one) is not None), None)
    return None if found is None else (found, found in DISTANCES)


def score_name(rows: Sequence[Any]) -> str:
    """The first name of a score that every row of an answer has, flat; "" without one: a row may have the score of one list beside it."""
    objects = [row for row in rows if isinstance(row, dict)]
    named = (one for one in (*SCORES, *DISTANCES) if objects and all(row.get(one) is not None for row in objects))
    return next(named, "")


def course(values: Sequence[float]) -> int | None:
    """1 for values that rise from the first to the last, -1 for those that fall, 0 for neither; None for fewer than two different."""
    if len(set(values)) < 2:
        return None
    return 1 if all(a <= b for a, b in pairwise(values)) else -1 if all(a >= b for a, b in pairwise(values)) else 0


def oriented(
    answers: Sequence[tuple[Returned, ...]], named: Mapping[str, bool]
) -> tuple[list[tuple[Returned, ...]], tuple[str, ...]]:
    """The answers of one file with scores of which more is nearer, and a line that says what was turned.

    `named` are the fields of their scores and whether each is called a distance, whose negatives the answers have here. All answers of a
    file decide together: scores all of which rise are turned, and those called distances if more answers rise than fall.
    """
    courses = [course([row.score for row in answer if row.score is not None]) for answer in answers]
    rising, others = courses.count(1), courses.count(-1) + courses.count(0)
    called = bool(named) and all(named.values())
    turned = rising > courses.count(-1) if called else bool(rising) and not others and not any(named.values())
    if not any(row.score is not None for answer in answers for row in answer) or not (turned or called):
        return list(answers), ()
    name = " and ".join(sorted(named)) or "score"
    several = f" in {rising:,} of {len(answers):,} answers" if len(answers) > 1 and turned else ""
    if not turned:
        return list(answers), (f"{name} is smaller for what is nearer: its negative was read as the score",)
    goes, as_what, read = ("falls", "a similarity", "it") if called else ("rises", "a distance", "its negative")
    line = f"{name} {goes} from the first to the last result{several}, as {as_what} does: {read} was read as the score"

    def turn(row: Returned) -> Returned:
        return row if row.score is None else replace(row, score=0.0 - row.score)

    return [tuple(map(turn, answer)) for answer in answers], (line,)


def parse_rows(
    values: Iterable[Any], source: str, errors: list[RowError], named: dict[str, bool] | None = None
) -> tuple[Returned, ...]:
    """The rows of one answer that is JSON already, each memory once; what cannot be used goes to `errors`, rows counted
    from 1. A field that a score is from is put into `named`, and whether it is called a distance, for `oriented`."""
    return unique(items_of(list(enumerate(values, 1)), source, errors, {} if named is None else named), source, errors)


def rows_of_answer(
    values: Iterable[Any],
    n: int,
    source: str,
    errors: list[RowError],
    field: str = "results",
    named: dict[str, bool] | None = None,
) -> tuple[Returned, ...]:
    """As `parse_rows`, of the answer number `n` of several: errors of a row are reported under that number, as `results[0].score`."""
    found: list[RowError] = []
    returned = parse_rows(values, source, found, named)
    for error in found:
        part = f"{field}[{error.row - 1}]"
        errors.append(RowError(source, n, error.reason, f"{part}.{error.field}" if error.field else part))
    return returned


def items_of(
    rows: Sequence[tuple[int, Any]], source: str, errors: list[RowError], named: dict[str, bool]
) -> list[Returned]:
    """As `parse_rows`, of values with the numbers of their rows; a memory may stand several times."""
    fields = [flat(value) for _, value in rows]
    name = score_name(fields)
    pairs = zip(rows, fields, strict=True)
    items = (_item(row, value, each, name, source, errors, named) for (row, value), each in pairs)
    return [one for one in items if one is not None]


def _item(
    row: int, value: Any, fields: Any, scored: str, source: str, errors: list[RowError], named: dict[str, bool]
) -> Returned | None:
    if isinstance(value, str) and not value.strip():
        errors.append(RowError(source, row, "must not be empty"))
        return None
    if isinstance(value, str | int) and not isinstance(value, bool):
        return Returned(row, str(value))
    if not isinstance(value, dict) and not is_scored(value):
        errors.append(RowError(source, row, f"must be an object or an id, found {type_name(value)}"))
        return None
    inner: Row = next((fields[name] for name in NESTED if isinstance(fields.get(name), dict)), {})
    places = (*((fields, name) for name in IDS), *((inner, name) for name in METADATA_IDS))
    memory_id = next((str(place[name]) for place, name in places if isinstance(place.get(name), str | int)), None)
    content = payload.text_of(None, fields, payload.ANY_NAMES)
    if not memory_id and not content:
        errors.append(RowError(source, row, f"has neither an id ({', '.join(IDS[:3])}, …) nor a content"))
        return None
    name, distance = score_of(fields, scored) or ("", False)
    score = finite(fields[name]) if name else None
    if name and score is None:
        reason = f"must be a finite number, found {ascii(fields[name])[:60]}; it has no score"
        errors.append(RowError(source, row, reason, name))
    elif name:
        named[name] = distance
    return Returned(row, memory_id or None, -score if distance and score else score, content, _parts(fields))


def _parts(fields: Mapping[str, Any]) -> dict[str, float]:
    """The numbers that a score was made of, by name; what is no number is no part."""
    said: Mapping[str, Any] = next((fields[name] for name in PARTS_FIELDS if isinstance(fields.get(name), dict)), {})
    numbers = ((str(name), finite(value)) for name, value in said.items() if isinstance(value, int | float))
    return {name: number for name, number in numbers if number is not None}


def unique(rows: Iterable[Returned], source: str, errors: list[RowError]) -> tuple[Returned, ...]:
    """Each memory once, where it stands first; the others go to `errors`."""
    first: dict[str, Returned] = {}
    for row in rows:
        key = row.memory_id if row.memory_id is not None else f"\0{row.content}"
        if key in first:
            shown = ascii(row.memory_id or row.content)[:60]
            errors.append(RowError(source, row.row, f"{shown} stands already in row {first[key].row}"))
        else:
            first[key] = row
    return tuple(first.values())
