"""A document that a search returned, in every shape that frameworks write it: attributes of a span, or the output of a span, an
observation or a run.

    {"id", "content", "score", "metadata"}            OpenInference, OTel GenAI, Haystack
    {"id", "page_content", "metadata"}                LangChain, also in `kwargs` of its serialisation
    {"node": {"id_", "text", "metadata"}, "score"}    LlamaIndex
    [document, score]                                 a document with its score beside it
    <NodeWithScore(node=TextNode(id_=m1), score=1)>   what the instrumentor of LlamaIndex (4.6.1) writes of a node
    Document(id=m1, content: '…', score: 1)           what that of Haystack (0.1.46) writes of a document, the content cut
    any other text                                    its content

A document without an id has that of its metadata, an object or its JSON. A list of documents may stand alone, under one of
`LISTS`, or be JSON text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from cems_workbench.formats.base.files import Sample, as_object, data_beside, parse_literal
from cems_workbench.formats.base.names import ANSWER

_NAMES: Mapping[str, tuple[str, ...]] = data_beside(__file__, "names.json")["document"]
IDS, CONTENTS, SCORES, METADATA = (_NAMES[each] for each in ("ids", "contents", "scores", "metadata"))
PARENTS = _NAMES["parents"]
"""Metadata of a part that names the document which it is a part of: LangChain's ParentDocumentRetriever, LlamaIndex, Haystack."""
INNER = _NAMES["inner"]
"""Objects within a document that hold its fields."""
LISTS = _NAMES["lists"]
"""Names under which a list of documents may stand, likelier ones first."""
MAX_DEPTH = 4
_PREFIX = "document."
_NODE = re.compile(r"<?\w*\(?node=\w+\((?:id_|node_id)=['\"]?([^'\")]+)['\"]?\).*?score=([^)]+)\)>?\Z", re.DOTALL)
_DOCUMENT = re.compile(r"Document\(id=([^,]+),(?:.*\bscore: ([-+0-9.e]+))?.*\)\Z", re.DOTALL)


def documents_in(output: Any, depth: int = 0) -> list[Any] | None:
    """The documents of an output, as they stand there; None where it says nothing of any."""
    if isinstance(output, str) and output.lstrip().startswith(("[", "{")):
        try:
            output = parse_literal(output)
        except ValueError:
            return None
    if isinstance(output, list):
        # Some clients answer several queries at once: the answer to a single one is a list in a list.
        if len(output) == 1 and isinstance(output[0], list) and not _scored(output[0]):
            return documents_in(output[0], depth + 1) if depth < MAX_DEPTH else None
        return output if all(isinstance(one, dict | str) or _scored(one) for one in output) else None
    if isinstance(output, dict) and depth < MAX_DEPTH:
        for name in LISTS:
            found = documents_in(output[name], depth + 1) if isinstance(output.get(name), list | dict | str) else None
            if found is not None:
                return found
    return None


def _scored(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and isinstance(value[0], dict)
        and isinstance(value[1], int | float | str)
    )


def document_fields(value: Any) -> dict[str, Any]:
    """What of a document is there: `id`, `content`, `score` and `title`, unchecked; empty for what is no document."""
    if isinstance(value, str):
        return _of_text(value)
    if isinstance(value, list) and _scored(value):
        return {**document_fields(value[0]), "score": value[1]}
    if not isinstance(value, dict):
        return {}
    if any(key.startswith(_PREFIX) for key in value):
        value = {key.removeprefix(_PREFIX): item for key, item in value.items()}
    inner = next((value[name] for name in INNER if isinstance(value.get(name), dict)), None)
    if inner is not None:
        # The id of LangChain's serialisation is the path of a class.
        own = {key: item for key, item in value.items() if not isinstance(item, list)}
        value = {**inner, **{key: item for key, item in own.items() if item is not inner}}
    metadata = next((found for name in METADATA if (found := as_object(value.get(name)))), {})
    named = _first(value, IDS)
    fields = {
        "id": _first(metadata, ANSWER["metadata_ids"]) if named is None else named,
        "content": _words(value) or _words(metadata),
        "score": _first(value, SCORES),
        "title": _first(value, ("title",)) or _first(metadata, ("title",)),
        "parent": None if named is None else _first(metadata, PARENTS),
    }
    return {name: found for name, found in fields.items() if found is not None}


def nested(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields with dotted names as objects."""
    found: dict[str, Any] = {}
    for name, value in fields.items():
        *path, last = name.split(".")
        at: Any = found
        for part in path:
            at = at.setdefault(part, {})
            if not isinstance(at, dict):
                break
        else:
            at.setdefault(last, value)
    return found


def with_ids(rows: list[dict[str, Any]], output: Any, dropped: Any = None) -> list[dict[str, Any]]:
    """The fields of documents, with those of the documents in the output where only these have them.

    The instrumentor of LangChain (0.1.80) leaves out the ids, which its `output.value` has. Of a span that was cut (`dropped` attributes,
    or an empty row) some documents may be in the output alone. Both lists must agree where both have an id, else a text.
    """
    if all("id" in row for row in rows) and not dropped:
        return rows
    others = [document_fields(one) for one in documents_in(output) or ()]
    cut = bool(dropped) or not all(rows)
    same = [one.get("content") for one in others] == [row.get("content") for row in rows]
    if len(others) < len(rows) or not (cut or same):
        return rows
    pairs = list(zip_longest(others, rows, fillvalue=dict[str, Any]()))
    for name in ("id", "content"):
        if any(name in one and name in row and one[name] != row[name] for one, row in pairs):
            return rows
    return [{**other, **row} for other, row in pairs]


def _of_text(text: str) -> dict[str, Any]:
    if text.lstrip().startswith("{") and (inner := as_object(text)):
        return document_fields(inner)
    if node := _NODE.fullmatch(text):
        return {"id": node[1], "score": node[2]} if node[2] != "None" else {"id": node[1]}
    if found := _DOCUMENT.match(text):  # the content in it may be cut
        return {"id": found[1], "score": found[2]} if found[2] else {"id": found[1]}
    return {"content": text} if text.strip() else {}


def _words(value: Mapping[str, Any]) -> str | None:
    for name in CONTENTS:
        words = value.get(name)
        if isinstance(words, dict):
            words = words.get("text")
        if isinstance(words, str) and words.strip():
            return words
    resource = value.get("text_resource")
    return _words(resource) if isinstance(resource, dict) else None


def _first(values: Mapping[str, Any], names: Sequence[str]) -> Any:
    found = (values.get(name) for name in names)
    plain = (one for one in found if isinstance(one, str | int | float) and not isinstance(one, bool))
    return next((one for one in plain if str(one).strip()), None)


def rows_of_table(value: Mapping[str, Any], known: Collection[str]) -> list[dict[str, Any]] | None:
    """The rows of a table, which has one of the `known` columns; None for an object that is none. Orients of
    `DataFrame.to_json` (pandas 2 and 3): columns, index, split and table; records are a list already."""
    columns, rows = value.get("columns"), value.get("data")
    if isinstance(columns, list) and isinstance(rows, list):
        names = [".".join(map(str, name)) if isinstance(name, list) else str(name) for name in columns]
        return [dict(zip(names, row, strict=False)) for row in rows if isinstance(row, list)]
    if isinstance(value.get("schema"), dict) and isinstance(rows, list):
        return [row for row in rows if isinstance(row, dict)]
    cells = list(value.values())
    if not cells:
        return None
    if not any(name in value for name in known):
        rows = [row for row in cells if isinstance(row, dict)]
        return rows if len(rows) == len(cells) and any(name in rows[0] for name in known) else None
    if all(isinstance(column, dict) and column.keys() == cells[0].keys() for column in cells):
        return [{name: column[key] for name, column in value.items()} for key in cells[0]]
    if all(isinstance(column, list) and len(column) == len(cells[0]) for column in cells) and cells[0]:
        return [dict(zip(value, row, strict=True)) for row in zip(*cells, strict=True)]
    return None


def sampled_rows(sample: Sample, known: Collection[str]) -> list[Mapping[str, Any]]:
    """The first objects of a file; of one that is a table its rows."""
    found: list[Mapping[str, Any]] = []
    for row in sample.rows:
        found += rows_of_table(row, known) or [row]
    return found
