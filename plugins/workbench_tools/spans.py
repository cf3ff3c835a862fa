"""Spans of a traced pipeline, from JSON: OpenInference, OTel GenAI, and the attributes of `cems_trace`.

`exports.spans_of` gives the spans of a file. Attributes may be OTLP's `[{key, value: {stringValue}}]`, dotted keys, nested objects, or
columns `attributes.…` of a table, and lists of documents one JSON text.

    openinference.span.kind             RETRIEVER, RERANKER, CHAIN, …
    input.value                         the query; of a JSON object its `query`, `input` or the like, two levels deep
    retrieval.documents.N.document.…    what a retriever, or a stage without a kind, returned: id, content, score, metadata
    reranker.input_documents.N…, reranker.output_documents.N…, reranker.query
    gen_ai.operation.name               retrieval, search_memory: a retriever
    gen_ai.retrieval.documents, gen_ai.retrieval.query.text, gen_ai.memory.records, gen_ai.memory.query.text
    workbench.query.id
    workbench.stage.name, .kind, .results, .ranked, .problem, .input.N.document.id, .dropped.N.document.id | reason | past_limit

The kind, input and output of Langfuse's and MLflow's tracers are those of OpenInference under other names (ALIASES).

A tracer keeps 128 attributes of a span by default, and drops the oldest (Python) or the newest, so that of many documents some lack fields
or are gone; logfire masks values that look like secrets and lists them in `logfire.scrubbed`. A document keeps the place
that its attributes name, one that is gone is a `TracedDocument` without id and text, and `Span.lost` says what happened. Recorded with
opentelemetry-sdk 1.45.2, openinference-instrumentation-langchain 0.1.80 and -llama-index 4.6.1, and logfire 5.4.0.

Source: https://github.com/Arize-ai/openinference/blob/main/spec/semantic_conventions.md, the JSON encoding of OTLP 1, and the semantic
conventions of GenAI 0.1.0 (https://github.com/open-telemetry/semantic-conventions-genai).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from cems_workbench.errors import some
from cems_workbench.formats.base import fields, memory_fields
from cems_workbench.formats.base.fields import finite
from cems_workbench.formats.base.files import data_beside, parse_json
from cems_workbench.formats.base.records import TracedDocument
from cems_workbench.records import STAGE_KINDS
from workbench_tools.documents import document_fields, documents_in, nested, with_ids

KIND = "openinference.span.kind"
KINDS = (KIND, "span_kind")
_NAMES: Mapping[str, Any] = data_beside(__file__, "names.json")["span"]
START_FIELDS, START_NANOSECOND_FIELDS = _NAMES["starts"], _NAMES["starts_in_nanoseconds"]
END_FIELDS, END_NANOSECOND_FIELDS = _NAMES["ends"], _NAMES["ends_in_nanoseconds"]
TRACE_IDS, SPAN_IDS, PARENT_IDS = (_NAMES[each] for each in ("trace_ids", "span_ids", "parent_ids"))
STATUSES, MESSAGES, DROPPED_COUNTS = (_NAMES[each] for each in ("statuses", "messages", "dropped_counts"))
FAILED = ("ERROR", "STATUS_CODE_ERROR", "2")
QUERIES = ("input.value", "reranker.query", "gen_ai.retrieval.query.text", "gen_ai.memory.query.text")
OUTPUT = "output.value"
NOT_IN_TRACE = "not in the trace: "
"""How the id of a document begins that the spans lack; its rank, and in a traced pipeline its list, follow."""
QUERY_OF_BUNDLE = "query_str"
QUERY_FIELDS: Sequence[str] = _NAMES["query_fields"]
"""Fields of a JSON input that may hold the query, likelier ones first."""
MAX_QUERY_DEPTH = 5
ASKERS = frozenset({"user", "human"})
"""Roles of messages that hold the query of a chat."""
RETRIEVED = ("retrieval.documents", "gen_ai.retrieval.documents", "gen_ai.memory.records")
RERANKED, READ = "reranker.output_documents", "reranker.input_documents"
STAGE = "workbench.stage."
SEARCHERS = ("RETRIEVER", "RERANKER")
SEARCHES = frozenset({"retrieval", "search_memory"})
"""Operations of GenAI that return documents."""
COUNTS = (f"{STAGE}results", "gen_ai.memory.record.count")
"""How many documents there were: a list without any has no key where attributes are flat."""
NO_LIST = "is a text that is no JSON list, perhaps cut by a limit of length: what was returned is not known"
MAX_DEPTH = 20
MAX_NAME_CHARS = 80
MAX_DOCUMENTS = 10_000
"""Above it, a number of a document says nothing of others that are missing."""
MOST_NAMED = 3
_ROOTS = frozenset(_NAMES["roots"])
_MASK = re.compile(r"\[Scrubbed due to .*\]")
"""What logfire writes in the place of a value."""
_WHOLE = frozenset({"input.value", OUTPUT})
"""Values that stay as they are where they are no text."""
ALIASES = _NAMES["aliases"]
"""Attributes of other tracers (Langfuse 5.0, MLflow 3), by what OpenInference calls them."""
SCRUBBED = "logfire.scrubbed"
DROPPED = f"{STAGE}dropped"
_LISTS = (*RETRIEVED, RERANKED, READ, f"{STAGE}input", DROPPED)
_PLAIN = frozenset({str, int, float, bool, type(None)})
_USUAL = frozenset({"id", "score", "content"})
_OF_DOCUMENT = re.compile(
    rf"({'|'.join(map(re.escape, _LISTS))})(?:\.([0-9]{{1,6}})(?:\.document)?(?:\.(.+))?)?\Z", re.DOTALL
)
"""A list of documents, the place of one, and the field of it; the list or the place alone where it is one text."""
_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)


Documents = tuple[TracedDocument, ...]


@dataclass(frozen=True, slots=True)
class Span:
    """What of a span is read. `output` and `input` are None where the span has no such documents."""

    row: int
    trace_id: str
    """One of its row where it has none: then the spans of a row are a trace."""
    span_id: str
    parent_id: str
    name: str
    kind: str
    """In upper case; RETRIEVER for the searches of GenAI."""
    start: int | None
    """Microseconds since 1970."""
    ms: float | None
    error: str | None
    """Why it failed, empty without words; None if it did not."""
    query: str | None
    qid: str | None
    output: Documents | None
    input: Documents | None
    stage_name: str | None
    stage_kind: str | None
    ranked: bool
    problem: str | None
    """Why the tracer could not read what it returned or was given."""
    dropped: Mapping[str, tuple[str, bool]] = field(default_factory=dict)
    lost: str | None = None
    """Why fields of it may not be in the file: dropped at a limit, or masked; None if nothing says so."""

    @property
    def has_documents(self) -> bool:
        """Whether it is a list or a stage."""
        recorded = self.output is not None or self.input is not None
        return recorded or self.stage_kind is not None or self.kind in SEARCHERS

    @property
    def ended(self) -> tuple[float, int]:
        """Sort key: stages run in the order of their ends."""
        return (math.inf if self.start is None else self.start + 1000 * (self.ms or 0.0), self.row)


def objects(value: Any) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The objects of a list, with their places."""
    if isinstance(value, list):
        yield from ((i, item) for i, item in enumerate(value) if isinstance(item, dict))


def read_span(row: int, span: Mapping[str, Any]) -> Span:
    """One span. Raises FieldError for one that cannot be used."""
    values = flat(span)
    kind = kind_of(values)
    lists, unread = listed(values)
    returned = returned_of(values, kind, lists)
    lost = lost_of(values, returned)
    output = _documents(returned, lost is not None)
    read = _documents(lists.get(f"{STAGE}input", lists.get(READ)), lost is not None)
    stage_kind = values.get(f"{STAGE}kind")
    if stage_kind is not None and stage_kind not in STAGE_KINDS:
        stage_kind = "other"
    query = next((words for name in QUERIES if (words := words_of_query(values.get(name))) is not None), None)
    start = microseconds(values, START_FIELDS, START_NANOSECOND_FIELDS)
    end = microseconds(values, END_FIELDS, END_NANOSECOND_FIELDS)
    return Span(
        row,
        _whole(str(first_of(values, TRACE_IDS) or f"row {row}")),
        _whole(str(first_of(values, SPAN_IDS) or f"row {row}")),
        _whole(str(first_of(values, PARENT_IDS) or "")),
        _whole(str(values.get("name") or kind.lower() or "span")[:MAX_NAME_CHARS]),
        kind,
        start,
        None if start is None or end is None else (end - start) / 1000,
        _whole(str(first_of(values, MESSAGES) or "")) if has_failed(values) else None,
        None if query is None else _whole(query),
        _text(values.get("workbench.query.id")),
        output,
        read,
        _text(values.get(f"{STAGE}name")),
        stage_kind,
        values.get(f"{STAGE}ranked") not in (False, "false"),
        _text(values.get(f"{STAGE}problem")) or (f"{unread[0]} {NO_LIST}" if unread else None),
        _dropped(lists.get(DROPPED, ())),
        lost,
    )


def lost_of(values: Mapping[str, Any], rows: Sequence[Mapping[str, Any]] | None) -> str | None:
    """Why fields of a span that returned these documents may not be in the file; None if nothing says so, or its output has them all."""
    masked = values.get(SCRUBBED)
    said = [f"logfire masked {masked}"] if masked and isinstance(masked, str) else []
    count = str(first_of(values, DROPPED_COUNTS) or 0)
    whole = rows and all(row.get("id") for row in rows) and len(documents_in(values.get(OUTPUT)) or ()) == len(rows)
    if count.isdigit() and int(count) and not whole:
        said.append(f"{int(count):,} attributes of the span were dropped at the tracer's limit, 128 by default")
    elif not said and any(not row for row in rows or ()):
        said.append("numbers between those of its documents are left out, as a tracer's limit of 128 attributes does")
    return "; ".join(said) or None


def lacking_line(gone: int, documents: int, lost: str) -> str:
    """How many of the documents of a span are not in the file, and why."""
    which = f"{gone:,} of its {documents:,} documents are" if gone else "documents may be"
    return f"{which} missing in the file: {lost}"


def kind_of(values: Mapping[str, Any]) -> str:
    """The kind of a span in upper case; RETRIEVER for the searches of GenAI."""
    kind = str(first_of(values, KINDS) or "").upper()
    return "RETRIEVER" if not kind and values.get("gen_ai.operation.name") in SEARCHES else kind


def has_failed(values: Mapping[str, Any]) -> bool:
    """Whether a span ended in an error."""
    return str(first_of(values, STATUSES) or "").upper().removeprefix("STATUSCODE.") in FAILED


def flat(span: Mapping[str, Any]) -> dict[str, Any]:
    """What is read of a span by its dotted name; attributes under their own. Raises FieldError."""
    values: dict[str, Any] = {}
    for name, value in span.items():
        if name in ("attributes", "events", "links"):
            continue
        own = name.removeprefix("attributes.")
        if not isinstance(value, dict | list):
            values[own] = value
        elif own.partition(".")[0] in _ROOTS:
            flatten(own, value, values, 0)
    attributes = span.get("attributes")
    if isinstance(attributes, list):
        attributes = {str(pair.get("key")): otlp(pair.get("value"), 0) for _, pair in objects(attributes)}
    if isinstance(attributes, dict):
        if set(map(type, attributes.values())) <= _PLAIN:
            return _with_known_names(_unmasked(values | attributes))
        for name, value in attributes.items():
            if not isinstance(value, dict | list):
                values[name] = value
            elif name.partition(".")[0] in _ROOTS:
                flatten(name, value, values, 0)
    return _with_known_names(_unmasked(values))


def _unmasked(values: dict[str, Any]) -> dict[str, Any]:
    """The values without those that logfire masked, whose names and words are then the value of SCRUBBED."""
    try:
        masked = parse_json(values[SCRUBBED]) if isinstance(values.get(SCRUBBED), str) else values.get(SCRUBBED)
    except ValueError:
        masked = None
    said = []
    for _, one in objects(masked):
        path = given if isinstance(given := one.get("path"), list) else []
        keys = list(map(str, path[1:]))
        # Of flat attributes the first key is the whole name, of lists and objects they are its parts.
        for end in range(len(keys), 0, -1):
            if (name := ".".join(keys[:end])) in values:
                values[name] = _without(values[name], path[1 + end :])
                said.append(f"{name} ({one.get('matched_substring')!r})")
                break
    if said:
        values[SCRUBBED] = some(said, MOST_NAMED)
    return values


def _without(value: Any, path: Sequence[Any]) -> Any:
    """The value, also the JSON text of one, without what is at a path; "" without a path, or for one that is not there."""
    if not path:
        return ""
    try:
        whole = at = parse_json(value) if isinstance(value, str) else value
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = None
    except (ValueError, TypeError, KeyError, IndexError):
        return ""
    return json.dumps(whole, ensure_ascii=False) if isinstance(value, str) else whole


def _with_known_names(values: dict[str, Any]) -> dict[str, Any]:
    """The values, those of ALIASES also under the names of OpenInference."""
    if KIND not in values:
        for alias in ALIASES.keys() & values.keys():
            value = values[alias]
            # MLflow writes every attribute as JSON.
            values.setdefault(ALIASES[alias], str(value).strip('"') if ALIASES[alias] == KIND else value)
    return values


def flatten(name: str, value: Any, values: dict[str, Any], depth: int) -> None:
    """Add everything in a value under its dotted name; an empty list as []. Raises FieldError for one that is nested too deeply."""
    if depth > MAX_DEPTH:
        raise fields.FieldError("attributes", f"are nested deeper than {MAX_DEPTH} levels")
    if name in _WHOLE or not isinstance(value, dict | list) or value == []:
        values[name] = value
        return
    inner: Iterable[tuple[Any, Any]] = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in inner:
        flatten(f"{name}.{key}" if name else str(key), item, values, depth + 1)


def otlp(value: Any, depth: int) -> Any:
    """The plain value of an AnyValue of OTLP. Raises FieldError."""
    if depth > MAX_DEPTH:
        raise fields.FieldError("attributes", f"are nested deeper than {MAX_DEPTH} levels")
    if not isinstance(value, dict):
        return value
    for name in ("stringValue", "doubleValue", "boolValue", "intValue"):
        if name in value:
            return value[name]
    array, pairs = value.get("arrayValue"), value.get("kvlistValue")
    if isinstance(array, dict):
        return [otlp(item, depth + 1) for item in array.get("values") or []]
    if isinstance(pairs, dict):
        return {str(pair.get("key")): otlp(pair.get("value"), depth + 1) for _, pair in objects(pairs.get("values"))}
    return None


def words_of_query(value: Any, depth: int = 0) -> str | None:
    """The words of the query in an input that is text, JSON or its text; None for one without any, such as an embedding
    or a mask. Of a chat that is what its last user said."""
    if isinstance(value, str):
        if _MASK.fullmatch(value.strip()):
            return None
        if not value.lstrip().startswith(("{", "[", '"')):
            return value if value.strip() else None
        try:
            inner = parse_json(value)
        except ValueError:
            return value
        if isinstance(inner, str):
            return inner if inner.strip() else None
        return words_of_query(inner, depth + 1) if isinstance(inner, dict | list) else value
    if depth > MAX_QUERY_DEPTH:
        return None
    if isinstance(value, dict):
        # LlamaIndex' instrumentor names arguments as the retriever does: its QueryBundle is known by what it has.
        bundles = (name for name, inner in value.items() if isinstance(inner, dict) and QUERY_OF_BUNDLE in inner)
        names = dict.fromkeys((*(name for name in QUERY_FIELDS if name in value), *bundles))
        found = (words_of_query(value[name], depth + 1) for name in names)
        return next((words for words in found if words is not None), None)
    if isinstance(value, list):
        said = [one for one in value if not isinstance(one, dict) or (_role(one) or "user") in ASKERS]
        found = (words_of_query(one, depth + 1) for one in reversed(said))
        return next((words for words in found if words is not None), None)
    return None


def _role(message: Mapping[str, Any]) -> str | None:
    inner = message.get("kwargs")
    named = message.get("role", message.get("type", inner.get("type") if isinstance(inner, dict) else None))
    return named.lower() if isinstance(named, str) and named != "text" else None


def microseconds(values: Mapping[str, Any], names: Sequence[str], nanoseconds: Sequence[str]) -> int | None:
    """A moment in microseconds since 1970; None without one. Raises FieldError."""
    name = next((name for name in nanoseconds if values.get(name) is not None), None)
    if name is not None:
        try:
            return int(values[name]) // 1000
        except (TypeError, ValueError, OverflowError):
            raise fields.FieldError(name, f"must be nanoseconds since 1970, found {ascii(values[name])[:60]}") from None
    name = next((name for name in names if values.get(name) is not None), None)
    if name is None:
        return None
    moment = memory_fields.moment(values, name)
    return None if moment is None else (moment - _EPOCH) // _MICROSECOND


def moment_of(start: int | None) -> datetime | None:
    """The moment of microseconds since 1970; None for one outside the calendar."""
    try:
        return None if start is None else _EPOCH + start * _MICROSECOND
    except OverflowError:
        return None


@lru_cache(maxsize=20_000)
def _place(name: str) -> tuple[str, int | None, str] | None:
    """The list that an attribute is of, the place of its document and the field of that; the spans of a file have the same names."""
    if (found := _OF_DOCUMENT.match(name)) is None:
        return None
    return found[1], None if found[2] is None else int(found[2]), found[3] or ""


def listed(values: Mapping[str, Any]) -> tuple[dict[str, list[dict[str, Any]]], list[str]]:
    """The fields of every document, by list and in its order, and the lists that are a text which is no JSON list. A
    list that is there without documents is empty."""
    rows: dict[str, dict[int, dict[str, Any]]] = {}
    unread = []
    for name, value in values.items():
        found = _place(name)
        if found is None or value is None:
            continue
        listed_in, place, what = found
        if place is None:
            items = documents_in(value)
            if items is None:
                unread.append(name)
            else:
                rows.setdefault(listed_in, {}).update((i, {"": item}) for i, item in enumerate(items))
            continue
        rows.setdefault(listed_in, {}).setdefault(place, {})[what] = value
    # A number that is missing below another one is a document that was dropped: the others keep their places.
    return {
        name: [_fields(name, own[place]) if place in own else {} for place in _places(name, own)]
        for name, own in rows.items()
    }, unread


def _places(name: str, own: Mapping[int, Any]) -> Iterable[int]:
    most = max(own, default=-1)
    # Somebody may count from 1.
    whole = name == DROPPED or most >= MAX_DOCUMENTS or (0 not in own and len(own) == most)
    return sorted(own) if whole else range(most + 1)


def _fields(name: str, row: dict[str, Any]) -> dict[str, Any]:
    if name == DROPPED or (row.keys() <= _USUAL and row.get("id")):
        return row
    return document_fields(row[""] if "" in row else nested(row))


def returned_of(
    values: Mapping[str, Any], kind: str, lists: Mapping[str, list[dict[str, Any]]]
) -> list[dict[str, Any]] | None:
    """The fields of the documents that a span returned, empty where it says that there were none; None where it does not say."""
    names = (RERANKED, *RETRIEVED) if kind == "RERANKER" else (*RETRIEVED, RERANKED)
    name = next((name for name in names if name in lists), None)
    # Of another kind the output is an answer, not a list.
    output = values.get(OUTPUT) if kind in SEARCHERS else None
    if name is not None:
        return lists[name] if output is None else with_ids(lists[name], output, first_of(values, DROPPED_COUNTS))
    found = documents_in(output)
    if found is not None:
        return list(map(document_fields, found))
    return [] if any(str(values.get(count)) == "0" for count in COUNTS) else None


def _documents(rows: Sequence[Mapping[str, Any]] | None, whole: bool) -> Documents | None:
    """The documents; what has neither id nor content is left out unless it stands for one that is lost (`whole`)."""
    if rows is None:
        return None
    lost = (TracedDocument(None, finite(row.get("score"))) if whole else None for row in rows)
    return tuple(found for row, gone in zip(rows, lost, strict=True) if (found := _document(row) or gone) is not None)


def _document(values: Mapping[str, Any]) -> TracedDocument | None:
    named, content, title = values.get("id"), values.get("content"), values.get("title")
    text = _whole(content) if isinstance(content, str) and content.strip() else None
    named = None if isinstance(named, bool) or not isinstance(named, str | int) or not str(named).strip() else named
    if named is None and text is None:
        return None
    return TracedDocument(
        None if named is None else _whole(str(named)),
        finite(values.get("score")),
        text,
        _whole(title)[:1000] if isinstance(title, str) and title.strip() else None,
        _text(values.get("parent")),
    )


def _dropped(rows: Iterable[Mapping[str, Any]]) -> dict[str, tuple[str, bool]]:
    found = {}
    for row in rows:
        if isinstance(row.get("id"), str | int):
            reason = _whole(str(row.get("reason") or "dropped")[:1000])
            found[_whole(str(row["id"]))] = (reason, row.get("past_limit") in (True, "true"))
    return found


def first_of(values: Mapping[str, Any], names: Sequence[str]) -> Any:
    """The value of the first of these names that there is; None without any."""
    return next((values[name] for name in names if values.get(name) is not None), None)


def _text(value: Any) -> str | None:
    return _whole(str(value)[:MAX_NAME_CHARS]) if isinstance(value, str | int) and str(value).strip() else None


def _whole(text: str) -> str:
    """The text, with a question mark for each half of a surrogate pair: no store could hold that."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
