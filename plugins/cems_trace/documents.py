"""What a stage returned, read as a ranking: ids, scores and texts, whatever kind of object a library makes of them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral, Real
from typing import Any, NamedTuple

IDS = ("id", "_id", "id_", "node_id", "doc_id", "document_id", "memory_id", "chunk_id", "docno", "key")
SCORES = ("score", "_relevance_score", "_score", "relevance_score", "similarity")
TEXTS = ("text", "content", "page_content", "document")
METADATA = ("metadata", "payload")

Key = Callable[[Any], Any]
"""From one result to something that `read_document` takes, such as (id, score)."""


class UnreadableResultError(ValueError):
    """A result whose id cannot be found."""


class Document(NamedTuple):
    """One result of a stage; its rank is its position. `score` is None if the stage gave none, or no finite one."""

    id: str
    score: float | None = None
    text: str | None = None
    metadata: Mapping[str, Any] | None = None


def read_documents(results: Any, key: Key | None = None) -> list[Document]:
    """The results in their order. A mapping from id to score counts as pairs. Raises UnreadableResultError."""
    if hasattr(results, "iterrows"):  # a data frame, a row a result
        results = results.to_dict("records")
    if isinstance(results, str | bytes) or not isinstance(results, Iterable):
        raise UnreadableResultError(f"{_short(results)} is not a list of results")
    if isinstance(results, Mapping):
        if not all(_number(value) for value in results.values()):
            raise UnreadableResultError(f"{_short(results)} is a mapping, but not from ids to scores")
        results = results.items()
    return [read_document(result if key is None else key(result)) for result in results]


def read_document(result: Any) -> Document:
    """One result. Raises UnreadableResultError."""
    if type(result) is str and result:
        return Document(result)
    if isinstance(result, Document):
        return result
    if isinstance(result, tuple | list):
        return _of_pair(result)
    if _id(result):
        return Document(str(result))
    if isinstance(result, Mapping):
        return _of_fields(result, result.get)
    if result is None or isinstance(result, Real | bytes):
        raise UnreadableResultError(f"{_short(result)} is no id")
    node = getattr(result, "node", None)
    if node is not None:  # LlamaIndex's NodeWithScore
        inner = read_document(node)
        return Document(inner.id, _score(getattr(result, "score", None)), inner.text, inner.metadata)
    return _of_fields(result, lambda name: getattr(result, name, None))


def _of_pair(pair: tuple[Any, ...] | list[Any]) -> Document:
    """(id, score), (id, score, text), or a result with its score as LangChain's `similarity_search_with_score` returns it."""
    if len(pair) not in (2, 3) or not (pair[1] is None or _number(pair[1])):
        raise UnreadableResultError(f"{_short(pair)} is not (id, score)")
    first = pair[0]
    if type(first) is str and first and len(pair) == 2:
        return Document(first, _score(pair[1]))
    inner = read_document(first)
    text = pair[2] if len(pair) == 3 and isinstance(pair[2], str) else inner.text
    return Document(inner.id, _score(pair[1]), text, inner.metadata)


def _of_fields(result: Any, field: Callable[[str], Any]) -> Document:
    found, score, text = _first(IDS, field, _id), _first(SCORES, field, _number), _first(TEXTS, field, _text)
    metadata = _first(METADATA, field, _mapping)
    if metadata is not None:
        found = found if found is not None else _first(IDS, metadata.get, _id)
        score = score if score is not None else _first(SCORES, metadata.get, _number)
        text = text if text is not None else _first(TEXTS, metadata.get, _text)
    if found is None and text is not None:
        found = f"sha256:{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:16]}"
    if found is None:
        raise UnreadableResultError(f"{_short(result)} has no id ({', '.join(IDS)}) and no text ({', '.join(TEXTS)})")
    return Document(str(found), _score(score), text, metadata)


def _first(names: Iterable[str], field: Callable[[str], Any], fits: Callable[[Any], bool]) -> Any:
    for name in names:
        value = field(name)
        if value is not None and fits(value):
            return value
    return None


def _mapping(value: Any) -> bool:
    return isinstance(value, Mapping) and bool(value)


def _text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _id(value: Any) -> bool:
    """Texts and whole numbers; numpy's are registered as `Integral`."""
    if isinstance(value, str):
        return bool(value)
    return isinstance(value, Integral) and not isinstance(value, bool)


def _number(value: Any) -> bool:
    if type(value) is float:  # an abstract class takes ten times as long
        return True
    return isinstance(value, Real) and not isinstance(value, bool)


def _score(value: Any) -> float | None:
    if not _number(value):
        return None
    number = float(value)
    return number if math.isfinite(number) else None


def _short(value: Any) -> str:
    """How an unreadable result is called: its type and not what it holds, which may be anybody's text."""
    if isinstance(value, tuple | list):
        return f"({', '.join(type(part).__name__ for part in value[:4])})"
    return f"a {type(value).__name__}"
