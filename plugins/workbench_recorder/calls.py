"""Calls that `record` kept, as a log (`recorded-calls`): each search of an API is a query with its recorded answer.

The query is the text in a request: `query` of mem0 and Hindsight, the matches of Elasticsearch's query language, the document of Qdrant's
own inference. A search by a vector, as of Qdrant and Chroma, has the text that was embedded into just this vector (to 32 bits) in a call
before it in the file: of Ollama, in OpenAI's form, of llama.cpp or TEI. Each search of a batch is a query. `responses.py` reads what was
returned. Calls that search nothing are counted.
"""

from __future__ import annotations

import base64
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from cems_workbench.formats.base import memory_fields
from cems_workbench.formats.base.fields import FieldError
from cems_workbench.formats.base.files import Sample, parse_json, read_records
from cems_workbench.formats.base.format import described
from cems_workbench.formats.base.records import reported
from cems_workbench.formats.logs import parsed_log
from cems_workbench.formats.responses import answers_in, rows_of_answer
from cems_workbench.progress import Progress
from cems_workbench.records import ParsedInput, RecordedAnswer, RowError

NAME, MARK = "recorded-calls", "recorded_call"
TEXTS = frozenset(["query", "q", "query_text", "query_texts", "search_query", "question", "model_text"])
"""Fields of a request that hold the text searched for; so does `text` in the object of one."""
MATCHES = frozenset(["match", "match_phrase", "match_bool_prefix", "match_phrase_prefix"])
"""Queries of Elasticsearch that hold it below the name of a field."""
NOT_SEARCHED = frozenset(
    ["filter", "filters", "must_not", "post_filter", "where", "where_document", "aggs", "highlight", "sort", "metadata"]
)
BATCHES = ("searches", "query_embeddings", "query_texts")
EMBEDDED = ("input", "inputs", "prompt", "content")
OTHER_FORMS = ("/_bulk", "/graphql", "/rerank")
"""Ends of the paths of calls whose request or answer only looks like that of a search."""


def is_call(start: bytes) -> bool:
    """Whether a file that begins so holds recorded calls."""
    return start.startswith(f'{{"{MARK}":'.encode())


def read(path: Path, progress: Progress) -> ParsedInput:
    """Read recorded calls; raises InputError when the file cannot be read."""
    reading = _Reading(str(path))
    for number, row in read_records(path, reading.errors, progress):
        with reported(reading.errors, str(path), number):
            reading.add(number, row)
    return parsed_log(path, NAME, reading.asked, reading.errors, reading.notes(), named=reading.named)


class Calls:
    """The searches of recorded calls, one call after the other; of embeddings their texts are kept."""

    def __init__(self) -> None:
        self._texts: dict[bytes, str] = {}
        """By the digest of a vector the text that was embedded."""

    def searches(self, row: Mapping[str, Any]) -> tuple[list[tuple[bool, str | None]], Any] | None:
        """Of each search of a call whether it is one, and its words where they are known, and the JSON of the answer; None for a call that
        embeds. Raises FieldError for what is no recorded call."""
        if not isinstance(row.get("path"), str) or MARK not in row:
            raise FieldError(MARK, "is no recorded call")
        url = urlsplit(row["path"])
        request, answer = _json(row.get("request"), url.path.endswith("_msearch")), _json(row.get("answer"))
        if embedded := _embedded(request, answer):
            self._texts |= embedded
            return None
        if url.path.rstrip("/").endswith(OTHER_FORMS):
            return [], answer
        parts = _parts(request if request is not None else dict(parse_qsl(url.query)))
        asked = [(next(_texts_in(part), None), [*_vectors_in(part)]) for part in parts]
        known = (
            (text or next((self._texts[each] for each in vectors if each in self._texts), None))
            for text, vectors in asked
        )
        return [(bool(text or vectors), words) for (text, vectors), words in zip(asked, known, strict=True)], answer

    def explained(self, document: Any) -> Any:
        """A recorded search as its query and answer, for a reader of explanations; None for another call, and what is no call as it is."""
        if not isinstance(document, dict) or MARK not in document:
            return document
        found = self.searches(document)
        one = found is not None and len(found[0]) == 1 and found[0][0][0] and (document.get("status") or 500) < 400
        return {"query": found[0][0][1] or "", "answer": found[1]} if found is not None and one else None


class _Reading:
    def __init__(self, source: str) -> None:
        self.source = source
        self.errors: list[RowError] = []
        self.asked: list[RecordedAnswer] = []
        self.named: dict[str, bool] = {}
        self._calls = Calls()
        self._others: Counter[str] = Counter()
        self._apis: Counter[str] = Counter()

    def add(self, number: int, row: Mapping[str, Any]) -> None:
        """Take a call. Raises FieldError for one that cannot be read."""
        called = self._calls.searches(row)
        moment = memory_fields.moment(row, "time")
        if called is None:
            self._others["embed texts"] += 1
            return
        searched, answer = called
        found = answers_in(answer)
        if not any(search for search, _ in searched):
            self._others["search nothing"] += 1
        elif row.get("left_out") or row.get("cut") or (row.get("status") or 500) >= 400:
            self._others["failed, were cut or were too long to record"] += 1
        elif found is None or len(found.rows) != len(searched):
            self._others["search nothing"] += 1
        else:
            self._apis[str(row.get("to"))] += 1
            for (_, words), rows in zip(searched, found.rows, strict=True):
                if words is None:
                    self._others["search by a vector that no call before them embedded: record the embedder too"] += 1
                    continue
                returned = rows_of_answer(rows, number, self.source, self.errors, named=self.named)
                self.asked.append(RecordedAnswer(number, "", words, None, returned, asked_at=moment))

    def notes(self) -> list[str]:
        """What was passed over, a line each."""
        notes = [f"{count:,} calls {what}" for what, count in self._others.items()]
        if len(self._apis) > 1:
            notes.append(
                f"{' and '.join(self._apis)} were searched; where one asks the other, record each in its own file"
            )
        return notes


def _json(text: Any, lines: bool = False) -> Any:
    """The JSON of a body, of `lines` every second one, which is a request of _msearch; None for another."""
    try:
        if lines and isinstance(text, str):
            return {"searches": [parse_json(line) for line in text.splitlines() if line.strip()][1::2]}
        return parse_json(text) if isinstance(text, str) else None
    except ValueError:
        return None


def _parts(request: Any) -> Sequence[Any]:
    """The searches of a request."""
    for name in BATCHES:
        if isinstance(request, dict) and isinstance(request.get(name), list) and request[name]:
            return request[name] if name == BATCHES[0] else [{name: each} for each in request[name]]
    return [request]


def _texts_in(value: Any) -> Iterator[str]:
    """The texts searched for, in the order of the request."""
    for name, inner in value.items() if isinstance(value, dict) else ():
        if isinstance(inner, str):
            if name in TEXTS and inner.strip():
                yield inner
        elif name in MATCHES and isinstance(inner, dict):
            for one in inner.values():
                yield from _texts_in(one if isinstance(one, dict) else {"query": one})
        elif name in TEXTS and isinstance(inner, dict) and isinstance(inner.get("text"), str):
            yield inner["text"]
        elif name not in NOT_SEARCHED:
            for one in inner if isinstance(inner, list) else [inner]:
                yield from _texts_in(one)


def _vectors_in(value: Any) -> Iterator[bytes]:
    """The digests of the vectors searched for."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name not in NOT_SEARCHED:
                yield from _vectors_in(inner)
    elif isinstance(value, list):
        if (digest := _digest(value)) is not None:
            yield digest
        else:
            for inner in value:
                yield from _vectors_in(inner)


def _embedded(request: Any, answer: Any) -> dict[bytes, str]:
    """What a call embedded, the text by its vector's digest; empty for another call."""
    if not isinstance(request, dict):
        return {}
    given = next((request[name] for name in EMBEDDED if name in request), None)
    texts = [given] if isinstance(given, str) else given
    said = answer
    if isinstance(answer, dict):
        said = next((answer[name] for name in ("embeddings", "data") if isinstance(answer.get(name), list)), [answer])
    rows = said if isinstance(said, list) else []
    if all(isinstance(row, dict) and isinstance(row.get("index"), int) for row in rows):
        rows = sorted(rows, key=lambda row: int(row["index"]))
    digests = [_digest(row.get("embedding") if isinstance(row, dict) else row) for row in rows]
    if not isinstance(texts, list) or len(texts) != len(digests):
        return {}
    pairs = zip(digests, texts, strict=True)
    return {digest: text for digest, text in pairs if digest is not None and isinstance(text, str)}


def _digest(vector: Any) -> bytes | None:
    """The digest of a list of numbers, or of base64 of them, in 32 bits; None for anything else."""
    if isinstance(vector, list) and len(vector) == 1 and isinstance(vector[0], list):
        return _digest(vector[0])
    try:
        raw = base64.b64decode(vector, validate=True) if isinstance(vector, str) else array("f", vector).tobytes()
    except (TypeError, ValueError, OverflowError):
        return None
    return blake2b(raw, digest_size=16).digest() if len(raw) > 4 else None


def _sniff(sample: Sample) -> bool:
    return sample.mostly(lambda row: MARK in row)


FORMAT = described(__file__, NAME, _sniff, read)
