"""Logs of a real system, written as it writes them: every asking is read with its words, moment, ids and scores, in every form."""

from __future__ import annotations

import json
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from records import IDS, WORDS

from cems_workbench.formats import detect, read
from workbench_tools.cems import searched

MOMENTS = st.datetimes(datetime(1990, 1, 1), datetime(2100, 1, 1)).map(lambda moment: moment.replace(tzinfo=UTC))
SECONDS = MOMENTS.map(lambda moment: moment.replace(microsecond=0))
SCORES = st.floats(-1e6, 1e6)
RESULTS = st.lists(st.tuples(IDS, SCORES), max_size=4, unique_by=lambda pair: pair[0])
ASKINGS = st.lists(st.tuples(WORDS, MOMENTS, RESULTS), min_size=1, max_size=4)
ANSWERED = ASKINGS.filter(lambda asked: all(results for _, _, results in asked))
"""Flat attributes have no key for a list without documents, and do not say that it is empty."""


def through(suffix, *rows):
    """What the rows are taken for, and what is read of them."""
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / f"log.{suffix}"
        path.write_text("\n".join(map(json.dumps, rows)))
        return detect(path), read(path)


def askings(parsed):
    return [
        (query.query, query.as_of, [(row.memory_id, row.score) for row in answer.returned])
        for query, answer in zip(parsed.queries, parsed.answers, strict=True)
    ]


def whole(parsed):
    """Nothing is reported, and each answer is that of its query."""
    assert not parsed.errors
    assert [query.qid for query in parsed.queries] == [answer.qid for answer in parsed.answers]
    return len({query.qid for query in parsed.queries}) == len(parsed.queries)


@given(asked=ASKINGS, moments=st.data())
def test_what_the_hook_logged_is_read(asked, moments):
    asked = [(words, moments.draw(SECONDS), results) for words, _, results in asked]
    rows = [
        {
            "ts": moment.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "event": "MemoryRetrieval",
            "session_id": "s",
            "query": words,
            "details": [{"id": key, "score": score, "category": "c", "content": "x"} for key, score in results],
        }
        for words, moment, results in asked
    ]
    form, parsed = through("jsonl", *rows)
    assert form == "cems-hook-events" and whole(parsed)
    assert askings(parsed) == [(searched(words), moment, results) for words, moment, results in asked]


def nested(name, value):
    """A dotted name as objects in objects."""
    for part in reversed(name.split(".")):
        value = {part: value}
    return value


def merged(one, other):
    if not isinstance(one, dict) or not isinstance(other, dict):
        return other
    return one | {key: merged(one[key], value) if key in one else value for key, value in other.items()}


def as_nested(flat):
    objects = {}
    for name, value in flat.items():
        objects = merged(objects, nested(name, value))
    return {"attributes": objects}


def as_columns(flat):
    return {f"attributes.{name}": value for name, value in flat.items()}


def as_otlp(flat):
    def any_value(value):
        return {"doubleValue" if isinstance(value, float) else "stringValue": value}

    return {"attributes": [{"key": name, "value": any_value(value)} for name, value in flat.items()]}


FORMS = [lambda flat: {"attributes": flat}, as_nested, as_columns, as_otlp]


@given(asked=ANSWERED, form=st.sampled_from(FORMS), exported=st.booleans())
def test_retriever_spans_are_read_whatever_form_their_attributes_have(asked, form, exported):
    spans = []
    for words, moment, results in asked:
        flat = {"openinference.span.kind": "RETRIEVER", "input.value": json.dumps(words)}
        for n, (key, score) in enumerate(results):
            flat |= {f"retrieval.documents.{n}.document.id": key, f"retrieval.documents.{n}.document.score": score}
        since = moment - datetime(1970, 1, 1, tzinfo=UTC)
        nanoseconds = ((since.days * 86_400 + since.seconds) * 10**6 + since.microseconds) * 1000
        start = {"startTimeUnixNano": str(nanoseconds)} if exported else {"start_time": moment.isoformat()}
        spans.append(form(flat) | start)
    rows = [{"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}] if exported else spans
    found, parsed = through("jsonl", *rows)
    assert found == "openinference-spans" and whole(parsed)
    assert askings(parsed) == asked


@given(asked=ASKINGS, beside=st.booleans())
def test_rows_of_queries_with_results_are_read(asked, beside):
    def row(words, moment, results):
        if beside:
            told = {"results": [key for key, _ in results], "scores": [score for _, score in results]}
        else:
            told = {"results": [{"id": key, "score": score} for key, score in results]}
        return {"query": words, "time": moment.isoformat(), **told}

    form, parsed = through("jsonl", *(row(*asking) for asking in asked))
    assert form == "query-log" and whole(parsed)
    # Of any engine: scores that rise in every answer with two different ones are distances.
    scores = [[score for _, score in results] for _, _, results in asked]
    telling = [one for one in scores if len(set(one)) > 1]
    sign = -1 if telling and all(one == sorted(one) for one in telling) else 1
    assert askings(parsed) == [
        (words, moment, [(key, sign * score) for key, score in results]) for words, moment, results in asked
    ]
