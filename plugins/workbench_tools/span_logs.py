"""Retrievals that a tracing system kept, as a log: each is a query with its recorded answer.

    openinference-spans   spans of OpenInference or OTel GenAI, as JSON or a CSV of Phoenix's DataFrame; with stages they are `traces.py`
    observations          observations of Langfuse (type RETRIEVER) and runs of LangSmith (type retriever), as JSON, JSON lines or CSV:
                          rows, a page of the API (`data` and `meta`), several pages, or the JSON of one trace (`observations`)

`spans.py` has the forms of a span, `exports.py` where the spans of a file are, `documents.py` the forms of a document. The start of a span
is the moment of its query. What was returned are `retrieval.documents` in their order, the same of GenAI, else the documents of the output;
a SPAN of Langfuse whose output is a list of documents is a retrieval too. Without any the answer was not recorded; an empty list is an
empty answer. Checked with what the SDKs of Langfuse 5.0 and LangSmith 0.15 write and read.

- Spans of another kind are counted. A retrieval that failed is reported.
- A retrieval whose input has no words, such as an embedding, has those that were embedded in its trace, if these are one text, as where
  Haystack embeds the query in another component; else it is reported, each reason in one line with its count.
- A retrieval directly below another of the same words and documents is that one, which some frameworks record twice; where only the inner
  one says what was returned, or which ids, that counts. With other documents it is a list that the outer one joins, and a note says so.
- A time that cannot be read costs the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from cems_workbench.formats.base.csv_table import DELIMITERS, columns_of, open_table, read_rows
from cems_workbench.formats.base.fields import FieldError
from cems_workbench.formats.base.files import Sample, read_records
from cems_workbench.formats.base.format import described
from cems_workbench.formats.base.records import reported
from cems_workbench.formats.logs import Asked, Asking, parsed_log
from cems_workbench.formats.responses import rows_of_answer
from cems_workbench.progress import Progress
from cems_workbench.records import ParsedInput, RecordedAnswer, RowError
from workbench_tools import spans
from workbench_tools.exports import are_observations, are_spans, spans_of

OBSERVED = ("id", "type", "input", "output")
"""Columns of a CSV of Langfuse."""
RETRIEVER, EMBEDDING = "RETRIEVER", "EMBEDDING"
EMBEDDED = "embedding.embeddings.0.embedding.text"
OPERATION = "gen_ai.operation.name"
GENAI_QUERIES = {"retrieval": "gen_ai.retrieval.query.text", "search_memory": "gen_ai.memory.query.text"}
FOUND_IN = ", ".join(spans.QUERY_FIELDS[:4])
MAX_AROUND, MAX_AROUND_CHARS = 20, 2000
"""Spans around a cut one whose input is looked at, and how long it may be."""
_VECTORS = ("embedding", "vector")


@dataclass(slots=True)
class _Retrieval:
    """One asking, and where its span stands; `wordless` is what is wrong with an input without words, `cut` whether its span was."""

    asked: Asked
    wordless: RowError | None
    cut: bool
    trace: str
    span: str
    parent: str


def _read(format: str, columns: Sequence[str], documents: str, path: Path, progress: Progress) -> ParsedInput:
    """The retrievals of a file, which as a CSV has these columns; `documents` is what it calls a list of documents. Raises InputError."""
    errors: list[RowError] = []
    reading = _Reading(str(path), errors, documents)
    rows: Iterable[tuple[int, Mapping[str, Any]]] = read_records(path, errors, progress)
    if path.suffix.lower() in (".csv", ".tsv"):
        table = read_rows(open_table(path, columns), errors, progress)
        rows = ((line, {name: cell for name, cell in row.items() if cell.strip()}) for line, row in table)
    for number, row in rows:
        for where, span in spans_of(row):
            with reported(errors, str(path), number, where):
                reading.add(number, where, spans.flat(span))
    return parsed_log(path, format, reading.askings(), errors, reading.notes(), results=documents)


class _Reading:
    def __init__(self, source: str, errors: list[RowError], documents: str) -> None:
        self._source, self._errors, self._documents = source, errors, documents
        self._found: list[_Retrieval] = []
        self._others = self._inner = self._joined = self._embedded = 0
        self._lacking: list[str] = []
        """A line for each retrieval that may lack documents."""
        self._around: dict[tuple[str, str], tuple[str, str]] = {}
        """By trace and span the parent and the input of spans of other kinds."""
        self._words: dict[str, set[str]] = {}
        """By trace the texts that were embedded in it as queries."""

    def add(self, number: int, where: str, values: Mapping[str, Any]) -> None:
        """Take a span. Raises FieldError for a retrieval that failed."""
        kind = spans.kind_of(values)
        if kind != RETRIEVER:
            self._others += 1
            if kind == EMBEDDING and (text := _embedded(values)):
                self._words.setdefault(str(spans.first_of(values, spans.TRACE_IDS) or ""), set()).add(text)
            trace, span, parent = _place(values)
            given = values.get(spans.QUERIES[0])
            short = given if isinstance(given, str) and len(given) <= MAX_AROUND_CHARS else ""
            self._around[trace, span] = (parent, short)
            return
        if spans.has_failed(values):
            raise FieldError("status", "the retrieval ended in an error and answered nothing")
        query = next(
            (words for name in spans.QUERIES if (words := spans.words_of_query(values.get(name))) is not None), None
        )
        wordless = None
        if query is None:
            field, reason = _wordless(values)
            reason = f"{reason}: {cut}" if not values.get(field) and (cut := spans.lost_of(values, None)) else reason
            wordless = RowError(self._source, number, reason, f"{where}{field}")
        moment = self._moment(number, where, values)
        lists, unread = spans.listed(values)
        self._errors += [RowError(self._source, number, spans.NO_LIST, f"{where}{name}") for name in unread]
        rows = spans.returned_of(values, RETRIEVER, lists)
        lost = spans.lost_of(values, rows)
        if lost is not None and rows is not None:
            gone = [place for place, row in enumerate(rows) if not (row.get("id") or row.get("content"))]
            for place in gone:  # it keeps its place, so that the others have their ranks
                rows[place] = rows[place] | {"id": f"{spans.NOT_IN_TRACE}{place + 1}"}
            self._lacking.append(f"row {number}: {spans.lacking_line(len(gone), len(rows), lost)}")
        asked: Asked = Asking(number, "", query, None, moment)
        if rows is not None:
            returned = rows_of_answer(rows, number, self._source, self._errors, self._documents)
            asked = RecordedAnswer(number, "", query, None, returned, asked_at=moment)
        self._found.append(_Retrieval(asked, wordless, lost is not None, *_place(values)))

    def _moment(self, number: int, where: str, values: Mapping[str, Any]) -> datetime | None:
        try:
            return spans.moment_of(spans.microseconds(values, spans.START_FIELDS, spans.START_NANOSECOND_FIELDS))
        except FieldError as error:
            self._errors.append(RowError(self._source, number, f"left out: {error.reason}", f"{where}{error.field}"))
            return None

    def askings(self) -> list[Asked]:
        """Each retrieval once, in the order of the file."""
        by_span = {(one.trace, one.span): one for one in self._found if one.span}
        for one in self._found:
            # The query is the first attribute that a tracer drops; the calls around and inside have it.
            if one.wordless is not None and one.cut and (words := self._words_around(one)):
                one.asked, one.wordless = replace(one.asked, query=words), None
            outer = by_span.get((one.trace, one.parent)) if one.parent else None
            if outer is not None and outer.wordless is not None and one.wordless is None:
                outer.asked, outer.wordless = replace(outer.asked, query=one.asked.query), None
        self._find_words()
        kept = []
        for one in self._found:
            outer = by_span.get((one.trace, one.parent)) if one.parent else None
            if outer is None or outer is one or outer.asked.query != one.asked.query:
                kept.append(one)
                continue
            if _other_documents(outer.asked, one.asked):
                self._joined += 1
                continue
            self._inner += 1
            outer.asked = _fuller(outer.asked, one.asked)
        return [one.asked for one in kept]

    def _words_around(self, one: _Retrieval) -> str | None:
        """The words of the next span around it that has some."""
        parent = one.parent
        for _ in range(MAX_AROUND):
            parent, given = self._around.get((one.trace, parent), ("", ""))
            if given and (words := spans.words_of_query(given)):
                return words
        return None

    def _find_words(self) -> None:
        """Give retrievals without words those of their trace; without any they are left out, with a line for each reason."""
        faults: dict[str, list[RowError]] = {}
        for one in self._found:
            words = self._words.get(one.trace, set()) if one.trace else set()
            if one.wordless is None:
                continue
            if len(words) == 1:
                one.asked, one.wordless = replace(one.asked, query=next(iter(words))), None
                self._embedded += 1
            else:
                faults.setdefault(one.wordless.reason, []).append(one.wordless)
        for reason, errors in faults.items():
            several = f"; {len(errors):,} spans have none, this is the first" if len(errors) > 1 else ""
            self._errors.append(replace(errors[0], reason=f"{reason}{several}"))
        self._found = [one for one in self._found if one.wordless is None]

    def notes(self) -> list[str]:
        """What was passed over."""
        notes = [f"{self._others} spans are of another kind than {RETRIEVER}"] if self._others else []
        if self._lacking:
            several = f"; so {len(self._lacking):,} retrievals, this is the first" if len(self._lacking) > 1 else ""
            notes.append(f"{self._lacking[0]}{several}")
        if self._inner:
            notes.append(f"{self._inner} spans are the same retrieval as the one around them, recorded twice")
        if self._joined:
            how = "`import --format explanations` keeps such lists, where the file is a JSON list of runs or one trace"
            notes.append(f"{self._joined} spans are lists that the retrieval around them joins, and are left out; {how}")
        if self._embedded:
            several = "1 retrieval was" if self._embedded == 1 else f"{self._embedded:,} retrievals were"
            notes.append(f"{several} given an embedding: the words are those that the trace embedded")
        return notes


def _place(values: Mapping[str, Any]) -> tuple[str, str, str]:
    trace, span, parent = (
        str(spans.first_of(values, names) or "") for names in (spans.TRACE_IDS, spans.SPAN_IDS, spans.PARENT_IDS)
    )
    return trace, span, parent


def _other_documents(outer: Asked, inner: Asked) -> bool:
    """Whether both say what they returned, and these are neither the same ids nor the same texts in order."""
    if not isinstance(outer, RecordedAnswer) or not isinstance(inner, RecordedAnswer):
        return False
    ids, texts = ([(row.memory_id, row.content)[part] for row in outer.returned] for part in (0, 1))
    same = ids == [row.memory_id for row in inner.returned] and any(ids)
    return not same and texts != [row.content for row in inner.returned]


def _fuller(outer: Asked, inner: Asked) -> Asked:
    """The outer asking, with what the inner one returned where only that is known, or only that has ids."""
    if not isinstance(inner, RecordedAnswer):
        return outer
    if not isinstance(outer, RecordedAnswer):
        return RecordedAnswer(outer.row, "", outer.query, None, inner.returned, asked_at=outer.asked_at)
    nameless = not any(row.memory_id for row in outer.returned)
    if nameless and [row.content for row in outer.returned] == [row.content for row in inner.returned]:
        return replace(outer, returned=inner.returned)
    return outer


def _embedded(values: Mapping[str, Any]) -> str | None:
    """The query that an EMBEDDING span embedded; None for texts, which are documents."""
    given = values.get(EMBEDDED)
    if isinstance(given, str) and f"{EMBEDDED.replace('.0.', '.1.')}" not in values:
        return spans.words_of_query(given)
    return spans.words_of_query(values.get(spans.QUERIES[0]))


def _wordless(values: Mapping[str, Any]) -> tuple[str, str]:
    """The field of an input without words, and what is wrong with it."""
    field = next((name for name in spans.QUERIES if values.get(name) is not None), spans.QUERIES[0])
    if values.get(field) is None and OPERATION in values:  # written on request only
        field = GENAI_QUERIES.get(values[OPERATION], field)
    value = values.get(field)
    if value is None:
        return field, "is missing"
    if isinstance(value, str) and not value.strip():
        return field, "is empty"
    if any(mark in str(value) for mark in _VECTORS):
        return field, f"is an embedding and has no words of a query; looked for {FOUND_IN}"
    return field, f"has no words of a query; looked for {FOUND_IN}"


def _headers(sample: Sample) -> list[set[str]]:
    return [{*columns_of(line, delimiter)} for line in sample.lines[:1] for delimiter in DELIMITERS]


def _sniff_spans(sample: Sample) -> bool:
    """Exports of OTLP, rows with the attributes and the context or begin of a span, or the header of Phoenix's table of spans."""
    if sample.rows or not sample.lines:
        return are_spans(sample.rows)
    return any({"attributes.input.value", "span_kind"} <= names for names in _headers(sample))


def _sniff_observations(sample: Sample) -> bool:
    if sample.rows:
        return are_observations(sample.rows)
    return any(names >= {*OBSERVED} and names & {"traceId", "trace_id"} for names in _headers(sample))


SPANS = described(
    __file__,
    "openinference-spans",
    _sniff_spans,
    partial(_read, "openinference-spans", ("attributes.input.value",), "retrieval.documents"),
)
OBSERVATIONS = described(
    __file__, "observations", _sniff_observations, partial(_read, "observations", OBSERVED, "output")
)
