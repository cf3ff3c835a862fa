"""What a system answered, and what it had been given, as files have it: JSON lines, JSON and tables.

answer      response (RAGAS), actual_output (DeepEval), prediction, hypothesis (LongMemEval, memorybench), output, …
question    qid, question_id, …, or its words: user_input, question, query
context     retrieved_contexts (RAGAS), retrieval_context, searchResults (memorybench), results, … as texts, ids or rows
memorybench a report has its rows in `evaluations`, a checkpoint in `questions` by id, with search and answer in their phases
spans       of a trace (cems_trace, OpenInference, OTLP, Langfuse, …): the outermost with an answer, and what its retrievers returned
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cems_workbench.errors import InputError, counted
from cems_workbench.formats.base import csv_table
from cems_workbench.formats.base.fields import FieldError, items_in
from cems_workbench.formats.base.files import read_records
from cems_workbench.formats.responses import rows_of_answer
from cems_workbench.progress import silent
from cems_workbench.records import Query, Returned, RowError
from workbench_tools.exports import spans_of
from workbench_tools.spans import flat, read_span, words_of_query

TEXTS = ("answer", "response", "prediction", "hypothesis", "actual_output", "output", "generated_answer")
QUESTIONS = ("qid", "query_id", "question_id", "questionId", "id", "query", "question", "user_input", "input")
CONTEXTS = (
    "retrieved_contexts",
    "retrieval_context",
    "contexts",
    "retrieved_context_ids",
    "searchResults",
    "results",
    "memories",
)
SPANS = ("resourceSpans", "resource_spans", "batches", "spans", "attributes")
"""Fields of a row that has spans or is one."""


@dataclass(frozen=True)
class Answers:
    """What a system answered, by qid, notes on rows that were left out, and what it was given, where that is known."""

    by_qid: Mapping[str, str]
    notes: Sequence[str] = ()
    contexts: Mapping[str, Sequence[Returned]] = field(default_factory=dict)


def read_answers(path: Path, queries: Sequence[Query]) -> Answers:
    """The answers of a file, matched by qid or by the question's words. Raises InputError if none is of a query."""
    qids = {query.qid for query in queries}
    of_words: dict[str, list[str]] = {}
    for query in queries:
        of_words.setdefault(query.query.strip(), []).append(query.qid)
    errors: list[RowError] = []
    found: dict[str, str] = {}
    contexts: dict[str, Sequence[Returned]] = {}
    unknown, ambiguous, twice = 0, 0, 0
    for number, row in _rows(path, errors):
        names = [str(row[name]).strip() for name in QUESTIONS if row.get(name) not in (None, "")]
        text = next((str(row[name]) for name in TEXTS if row.get(name) not in (None, "")), None)
        asked = next(([one] if one in qids else of_words[one] for one in names if one in qids or one in of_words), [])
        unknown += not asked or text is None
        ambiguous += len(asked) > 1
        if text is not None and len(asked) == 1:
            twice += (again := asked[0] in found)
            found.setdefault(asked[0], text)
            given = None if again else _context(row, number, str(path), errors)
            contexts |= {} if given is None else {asked[0]: given}
    if not found:
        why = (
            str(errors[0])
            if errors
            else f"no row has one of {', '.join(QUESTIONS)} that the set has, and one of {', '.join(TEXTS)}"
        )
        raise InputError(f"{path}: {why}")
    notes = [str(error) for error in errors[:3]] + (
        [f"{len(errors) - 3:,} more rows cannot be read"] if errors[3:] else []
    )
    for count, reason in (
        (unknown, "no question of the set, or no answer"),
        (ambiguous, "several questions have these words; name them by qid"),
        (twice, "the question has an answer already"),
    ):
        notes += [f"left out of {path.name}: {counted(count, 'rows')}: {reason}"] if count else []
    return Answers(found, notes, contexts)


def _context(row: Mapping[str, Any], number: int, source: str, errors: list[RowError]) -> Sequence[Returned] | None:
    """What a row says that the system was given, None where it does not say; what cannot be read goes to `errors`."""
    name = next((name for name in CONTEXTS if row.get(name) not in (None, "")), None)
    if name is None:
        return None
    try:
        given = items_in(name, row[name], "[|]") if isinstance(row[name], str) else row[name]
    except FieldError as error:
        errors.append(RowError(source, number, error.reason, error.field))
        return None
    if isinstance(given, Mapping):
        given = next((given[inner] for inner in CONTEXTS if isinstance(given.get(inner), list)), None)
    if not isinstance(given, list):
        return None
    text = "memory_id" if name.endswith("_ids") else "content"
    return rows_of_answer([{text: one} if isinstance(one, str) else one for one in given], number, source, errors, name)


def _rows(path: Path, errors: list[RowError]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    if path.suffix in (".csv", ".tsv"):
        yield from csv_table.read_rows(csv_table.open_table(path, ()), errors, silent)
        return
    traces: dict[str, dict[str, Any]] = {}
    for number, row in read_records(path, errors, silent):
        if isinstance(row.get("evaluations"), list):
            yield from ((place, one) for place, one in enumerate(row["evaluations"], 1) if isinstance(one, dict))
        elif isinstance(row.get("questions"), dict):
            for place, one in enumerate(row["questions"].values(), 1):
                phases = one.get("phases", {}) if isinstance(one, dict) else {}
                yield place, {**one, **phases.get("search", {}), **phases.get("answer", {})} if phases else {}
        elif any(isinstance(row.get(name), list | dict) for name in SPANS):
            _add_spans(number, row, traces)
        else:
            yield number, row
    yield from ((trace["row"], trace) for trace in traces.values())


def _add_spans(number: int, row: Mapping[str, Any], traces: dict[str, dict[str, Any]]) -> None:
    """Add the spans of a row to the questions of their traces, by trace: the outermost answer, and the last list of documents."""
    for _, values in spans_of(row):
        try:
            span, fields = read_span(number, values), flat(values)
        except FieldError:
            continue
        trace = traces.setdefault(span.trace_id, {"row": number})
        if span.output is not None and trace.get("ended", (0.0, 0)) <= span.ended:
            given = [{"id": one.id, "content": one.content} for one in span.output]
            trace |= {"results": given, "ended": span.ended}
        said = None if span.output is not None else words_of_query(fields.get("output.value"))
        if said is not None and span.query is not None and ("answer" not in trace or not span.parent_id):
            trace |= {"answer": said, "query": span.query} | ({"qid": span.qid} if span.qid else {})
