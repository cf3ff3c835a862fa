"""A CEMS export: memory_documents and memory_chunks as JSON or JSON lines.

`{documents: [...], chunks: [...]}`, or rows each of which is a document (with its `chunks` in it, perhaps) or, with a
`document_id`, a chunk. The project is that of a `source_ref` "project:ORG/REPO…", the author is user_id, access_count is
shown_count and last_accessed the first there is of last_shown_at, updated_at, created_at. Scopes team and company are
shared. A document without content has that of its chunks, in their order. The chunks of a document are kept as they are, with the place
in its content where each is found; a chunk's `seq` orders it. team_id and source are not kept.

What the hook of CEMS logs on the client, `~/.claude/hooks/logs/hook_events.jsonl`: what was asked, and what came back.

    {"ts", "event": "MemoryRetrieval", "session_id", "query", "result_count", "avg_score", "top_score",
     "details": [{"id", "score", "category", "content"}, …]}

An id is cut to its first 8 characters, a score rounded to three decimals. The hook asks for 5 results, drops those below 0.45 and all but
one of a session, and logs nothing when none is left. `query` is what the user typed; what was searched is that without links, code,
paths and a filler at its beginning (`searched`).

An event RelevanceFeedback counts how many memories helped and does not say which. Only when all that were shown are noise is it a
judgment: of the retrieval before it in the same session, when that showed as many.

Source: CEMS 0.9.3 (MIT, github Chocksy/cems, commit dded756), `hooks/cems_user_prompts_submit.py`, `cems_stop.py`, `utils/hook_logger.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cems_workbench import records
from cems_workbench.errors import counted
from cems_workbench.formats.base import fields
from cems_workbench.formats.base.fields import FieldError
from cems_workbench.formats.base.files import Sample, data_beside, read_objects, read_records, type_name
from cems_workbench.formats.base.format import described
from cems_workbench.formats.base.records import collect, reported
from cems_workbench.formats.judgments import JUDGE
from cems_workbench.formats.logs import parsed_log
from cems_workbench.formats.responses import rows_of_answer
from cems_workbench.progress import Progress

_NAMES: Mapping[str, Any] = data_beside(__file__, "names.json")["cems"]
USED: tuple[str, ...] = _NAMES["used"]
KNOWN = (*USED, "team_id", "source", "content_hash", "content_bytes", "chunks")
POSITION_FIELDS = ("seq", "chunk_index", "index")
_MARKS, _OTHERS = frozenset(_NAMES["marks"]), frozenset(_NAMES["others"])


@dataclass(frozen=True, slots=True)
class _Chunk:
    number: int
    where: str
    row: Any


@dataclass
class _Export:
    """The documents and chunks of a file, before they are joined."""

    source: str
    errors: list[records.RowError] = field(default_factory=list)
    documents: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    chunks: dict[str, list[_Chunk]] = field(default_factory=dict)
    deleted: int = 0
    from_chunks: int = 0

    def report(self, number: int, where: str, reason: str) -> None:
        self.errors.append(records.RowError(self.source, number, reason, where or None))


def parse_document(row: dict[str, Any]) -> records.Memory:
    """One document with content; raises FieldError."""
    name, content = fields.identifier(row, "id"), fields.required_text(row, "content")
    source_ref, user = fields.text(row, "source_ref"), row.get("user_id")
    created, updated, shown = (fields.moment(row, name) for name in ("created_at", "updated_at", "last_shown_at"))
    return records.Memory(
        name,
        content,
        title=fields.text(row, "title"),
        category=fields.text(row, "category"),
        project=records.project_of(source_ref),
        author=None if user in (None, "") else fields.identifier(row, "user_id"),
        tags=fields.tags(row, "tags"),
        created_at=created,
        last_accessed=shown or updated or created,
        access_count=fields.count(row, "shown_count"),
        relevant_count=fields.count(row, "relevant_count"),
        noise_count=fields.count(row, "noise_count"),
        scope=records.CEMS_SCOPES[fields.choice(row, "scope", records.CEMS_SCOPES, "personal")],
        source_ref=source_ref,
        updated_at=updated,
    )


def _read_export(path: Path, progress: Progress) -> records.ParsedInput:
    export = _Export(str(path))
    for number, row in read_records(path, export.errors, progress):
        _sort_in(export, number, row)
    rows = _joined(export)
    collected = collect(str(path), rows, parse_document, lambda memory: memory.id, "id", KNOWN, export.errors)
    chunks, cut_anew = _given(export, collected.records)
    notes = []
    if cut_anew:
        notes.append(f"{counted(cut_anew, 'documents')} with a chunk without text: cut here, as the store cuts others")
    if export.deleted:
        notes.append(f"left out: {counted(export.deleted, 'deleted documents')}")
    if export.from_chunks:
        notes.append(f"{counted(export.from_chunks, 'documents')} in the file only as chunks: put together here")
    return replace(collected.parsed(path, "cems-export", "memories", export.errors, notes), chunks=chunks)


def _sort_in(export: _Export, number: int, row: dict[str, Any]) -> None:
    """Put one row where it belongs; the rows within `documents` and `chunks` are numbered from 1 in each."""
    if isinstance(row.get("documents"), list):
        for kind, add in (("documents", _add_document), ("chunks", _add_chunk)):
            items = row.get(kind)
            for place, item in enumerate(items if isinstance(items, list) else [], start=1):
                if isinstance(item, dict):
                    add(export, place, item, f"{kind}[{place}]")
                else:
                    export.report(place, f"{kind}[{place}]", f"must be an object, found {type_name(item)}")
    elif row.get("document_id") is not None:
        _add_chunk(export, number, row, "")
    else:
        _add_document(export, number, row, "")


def _add_document(export: _Export, number: int, row: dict[str, Any], where: str) -> None:
    export.documents.append((number, row))
    inner = row.get("chunks")
    name = _name(row, "id")
    if isinstance(inner, list) and name:
        chunks = (_Chunk(number, f"{where}.chunks[{n}]".lstrip("."), chunk) for n, chunk in enumerate(inner, start=1))
        export.chunks.setdefault(name, []).extend(chunks)


def _add_chunk(export: _Export, number: int, row: dict[str, Any], where: str) -> None:
    try:
        name = fields.identifier(row, "document_id")
    except FieldError as error:
        export.report(number, f"{where}.document_id".lstrip("."), error.reason)
        return
    export.chunks.setdefault(name, []).append(_Chunk(number, where, row))


def _name(row: dict[str, Any], key: str) -> str | None:
    try:
        return fields.identifier(row, key)
    except FieldError:
        return None


def _joined(export: _Export) -> Iterator[tuple[int, dict[str, Any]]]:
    """Every document that is not deleted, with content where its chunks have it; then those known by chunks alone."""
    seen: set[str] = set()
    for number, row in export.documents:
        name = _name(row, "id")
        seen.update([name] if name else [])
        if row.get("deleted_at") not in (None, "", False):
            export.deleted += 1
            continue
        content = row.get("content")
        if name in export.chunks and (content is None or (isinstance(content, str) and not content.strip())):
            row = {**row, "content": _content(export, export.chunks[name])}
        yield number, row
    for name, chunks in export.chunks.items():
        if name not in seen and (content := _content(export, chunks)):
            export.from_chunks += 1
            # A chunk's own times are the document's, which has no others.
            own = {key: value for key, value in chunks[0].row.items() if key in USED}
            yield chunks[0].number, {**own, "id": name, "content": content}


def _content(export: _Export, chunks: list[_Chunk]) -> str:
    """The text of a document's chunks in their order, a line end between them; a broken chunk is reported."""
    texts: list[tuple[int, str]] = []
    for position, chunk in enumerate(chunks):
        try:
            texts.append(_text(chunk, position))
        except FieldError as error:
            export.report(chunk.number, f"{chunk.where}.{error.field}".strip("."), error.reason)
    return "\n".join(said for _, said in sorted(texts, key=lambda text: text[0]))


def _text(chunk: _Chunk, position: int) -> tuple[int, str]:
    """A chunk's place among those of its document, and its text; raises FieldError."""
    row = {"content": chunk.row} if isinstance(chunk.row, str) else chunk.row
    if not isinstance(row, dict):
        raise FieldError("", f"must be an object or a string, found {type_name(row)}")
    place = next((fields.count(row, key) for key in POSITION_FIELDS if row.get(key) is not None), position)
    return place, fields.required_text(row, "content")


def _given(export: _Export, documents: Sequence[records.Memory]) -> tuple[tuple[records.Chunk, ...], int]:
    """The chunks of the documents, in order; and how many documents have none because one of theirs cannot be used."""
    found: list[records.Chunk] = []
    cut_anew = 0
    for memory in documents:
        try:
            texts = [_text(chunk, i) for i, chunk in enumerate(export.chunks.get(memory.id, ()))]
        except FieldError:
            cut_anew += 1
            continue
        start: int | None = 0
        for seq, (_, text) in enumerate(sorted(texts, key=lambda text: text[0])):
            start = records.place_of_chunk(memory.content, text, start or 0)
            found.append(records.Chunk(memory.id, seq, text, start))
    return tuple(found), cut_anew


def _sniff_export(sample: Sample) -> bool:
    """Documents and chunks, or rows most of which have what only CEMS writes."""
    documents = [row["documents"] for row in sample.rows if isinstance(row.get("documents"), list)]
    within = any(isinstance(item, dict) for items in documents for item in items)
    return within or sum(map(_is_cems, sample.rows)) * 2 > len(sample.rows)


def _is_cems(row: dict[str, Any]) -> bool:
    keys = row.keys()
    if "document_id" in keys:
        return "content" in keys
    whole = "id" in keys and bool({"content", "chunks", "deleted_at"} & keys)
    return whole and bool(keys & _MARKS) and not keys & _OTHERS


EXPORT = described(__file__, "cems-export", _sniff_export, _read_export)


RETRIEVAL, FEEDBACK, PROMPT = "MemoryRetrieval", "RelevanceFeedback", "UserPromptSubmit"
ID_LENGTH = 8
DETAILS = "details"
"""The field of what was returned."""
MIN_QUERY_CHARS = 10
"""Characters that must be left of what was typed; else all of it is searched."""
_NOISE = tuple((re.compile(pattern), instead) for pattern, instead in _NAMES["noise"])


def searched(typed: str) -> str:
    """What the hook searches for what a user typed."""
    cleaned = typed
    for noise, instead in _NOISE:
        cleaned = noise.sub(instead, cleaned)
    cleaned = " ".join(cleaned.split())
    return typed.strip() if len(cleaned) < MIN_QUERY_CHARS else cleaned


def _read_events(path: Path, progress: Progress) -> records.ParsedInput:
    errors: list[records.RowError] = []
    answers: list[records.RecordedAnswer] = []
    last: dict[str, records.RecordedAnswer] = {}
    noise: dict[int, records.RecordedAnswer] = {}
    others = open_feedback = 0
    for number, row in read_objects(path, errors, progress):
        event, session = row.get("event"), str(row.get("session_id"))
        if event == RETRIEVAL:
            with reported(errors, str(path), number):
                answers.append(_answer(number, row, str(path), errors))
                last[session] = answers[-1]
            continue
        others += 1
        if event == PROMPT:
            last.pop(session, None)
        elif event == FEEDBACK:
            shown = last.pop(session, None)
            if shown is not None and row.get("all_noise") is True and row.get("noise_count") == len(shown.returned):
                noise[number] = shown
            else:
                open_feedback += 1
    notes = [f"{others} events are no {RETRIEVAL} and have no query"] if others else []
    if open_feedback:
        notes.append(f"{open_feedback} events {FEEDBACK} do not say which memories helped; no judgment is made of them")
    parsed = parsed_log(path, "cems-hook-events", answers, errors, notes, ID_LENGTH, DETAILS)
    qids = {answer.row: answer.qid for answer in parsed.answers}
    judged = [
        (number, records.Judgment(qids[shown.row], row.memory_id, 0, JUDGE, "model"))
        for number, shown in noise.items()
        for row in shown.returned
        if row.memory_id is not None
    ]
    return parsed.with_rows(judgments=judged)


def _answer(number: int, row: Mapping[str, Any], source: str, errors: list[records.RowError]) -> records.RecordedAnswer:
    """One retrieval; raises FieldError for an event that has none, and reports results that cannot be used."""
    details = row.get(DETAILS)
    if not isinstance(details, list):
        raise fields.FieldError(DETAILS, f"must be a list of results, found {type_name(details)}")
    query = searched(fields.required_text(row, "query"))
    moment = fields.moment(row, "ts")
    returned = rows_of_answer(details, number, source, errors, DETAILS)
    return records.RecordedAnswer(number, "", query, None, returned, asked_at=moment)


def _sniff_events(sample: Sample) -> bool:
    """Rows with the event, moment and session of the hook's log."""
    marks = {"ts", "event", "session_id"}
    return sum(marks <= row.keys() for row in sample.objects) * 2 > len(sample.objects)


HOOK_EVENTS = described(__file__, "cems-hook-events", _sniff_events, _read_events)
