"""No file, however broken, makes a reader raise anything but InputError, and no good row is lost among bad ones.

Logs of a real system, written as it writes them: every asking is read with its words, moment, ids and scores, in every form.
"""

from __future__ import annotations

import csv
import io
import json
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from records import IDS, WORDS

from cems_workbench.errors import InputError
from cems_workbench.formats import FORMATS, detect, read, read_path
from cems_workbench.formats.base.files import take_sample
from tests.thoroughly import EXAMPLES
from workbench_tools.cems import searched

_NAMES = """
    id content title tags priority pinned importance created_at access_count scope qid query as_of type answerable source_id
    target_id weight kind session_1 session_1_date_time qa evidence question conversation sample_id dia_id speaker text
    _id metadata subject predicate object author role session project documents chunks document_id seq index user_id
    source_ref updated_at shown_count last_shown_at memory_id grade judge judged_at note relevant_ids noise_ids question_id
    haystack_sessions haystack_dates haystack_session_ids answer_session_ids has_answer timestamp sessions turns
    chat probing_questions source_chat_ids docid rating event ts details results scores
    attributes resourceSpans scopeSpans spans context start_time retrieval.documents value key
"""
FIELDS = _NAMES.split()
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.sampled_from(["D1:1", "2024-01-01"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=6),
    max_leaves=12,
)
ROWS = st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=5), VALUES, max_size=8)
TURNS = st.fixed_dictionaries(
    {"speaker": VALUES, "text": VALUES}, optional={"dia_id": VALUES, "timestamp": VALUES, "session_id": VALUES}
)
JSON_LINES = (ROWS | VALUES).map(lambda value: json.dumps(value).encode())
CELLS = st.text(max_size=6) | st.sampled_from(["", "id", "content", '"', "'=1", "[1", "1e999", "true", "a\r\nb"])


def as_csv(cells: list[str], delimiter: str = ",") -> bytes:
    line = io.StringIO()
    csv.writer(line, delimiter=delimiter, lineterminator="").writerow(cells)
    return line.getvalue().encode("utf-8", "replace")


CSV_ROWS = st.one_of(
    st.builds(as_csv, st.lists(CELLS, min_size=1, max_size=5), st.sampled_from(",;\t")),
    st.lists(CELLS, max_size=5).map(lambda cells: ",".join(cells).encode("utf-8", "replace")),
)
GARBAGE = st.one_of(
    st.binary(max_size=60).map(lambda raw: raw.replace(b"\n", b" ")),
    JSON_LINES,
    JSON_LINES.map(lambda line: line[: len(line) // 2]),
    st.sampled_from([b"", b"[" * 50_000, b'{"a":' * 50_000, b'{"id": "\\ud800", "content": "x"}']),
    st.sampled_from([b"q 0 d 1", b"q 0 d x", b"q\td\t1", b"query-id\tcorpus-id\tscore", b"id,content", b'a,"', b'",']),
    CSV_ROWS,
)
FILES = st.binary(max_size=200) | st.lists(GARBAGE, max_size=8).map(b"\n".join)
twice = settings(max_examples=2 * EXAMPLES)
"""Garbage has more forms than records have."""


def read_bytes(raw: bytes, format: str, name: str = "file.jsonl"):
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / name
        path.write_bytes(raw)
        if format == "detect":
            return detect(path)
        return read(path, format)


@twice
@given(raw=FILES, suffix=st.sampled_from([".jsonl", ".json", ".csv", ".tsv"]))
def test_no_reader_raises_anything_but_input_errors(raw, suffix):
    for format in ("detect", "auto", *FORMATS):  # making a file up takes longer than reading it
        try:
            read_bytes(raw, format, f"file{suffix}")
        except InputError as error:
            assert "\n" not in str(error)


@twice
@given(raw=FILES, suffix=st.sampled_from([".jsonl", ".json", ".csv"]))
def test_recognising_a_format_never_raises(raw, suffix):
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / f"file{suffix}"
        path.write_bytes(raw)
        try:
            sample = take_sample(path)
        except InputError:
            return
        for reader in FORMATS.values():
            assert reader.sniff(sample) in (True, False)


@twice
@given(
    document=VALUES
    | ROWS
    | st.fixed_dictionaries({"session_1": st.lists(ROWS, min_size=1), "qa": VALUES})
    | st.fixed_dictionaries({"conversation": st.lists(TURNS | ROWS), "question": st.lists(TURNS | ROWS)})
)
def test_locomo_reads_any_json_document_or_says_why_not(document):
    try:
        read_bytes(json.dumps(document).encode(), "locomo", "file.json")
    except InputError as error:
        assert "\n" not in str(error)


@twice
@given(
    rows=st.lists(
        ROWS
        | st.fixed_dictionaries(
            {"haystack_sessions": VALUES, "question": VALUES},
            optional={
                "question_id": VALUES,
                "answer_session_ids": VALUES,
                "haystack_dates": VALUES,
                "question_date": VALUES,
            },
        ),
        max_size=4,
    )
)
def test_longmemeval_keeps_its_good_questions_whatever_stands_beside_them(rows):
    good = {"question_id": "good", "question": "kept?", "haystack_sessions": [[{"role": "user", "content": "kept"}]]}
    parsed = read_bytes(json.dumps([*rows, good]).encode(), "longmemeval", "file.json")
    assert "good" in {query.qid for query in parsed.queries}
    assert "good/session_1/1" in {memory.id for memory in parsed.memories}


@twice
@given(chat=st.lists(ROWS | VALUES, max_size=4), questions=st.dictionaries(st.text(max_size=4), VALUES, max_size=3))
def test_beam_keeps_its_good_turns_and_questions_whatever_stands_beside_them(chat, questions):
    chat = [*chat, {"turns": [[{"id": 10**9, "role": "user", "content": "kept"}]]}]
    item = {"question": "kept?", "source_chat_ids": {"a": [10**9]}}
    row = {"conversation_id": "c", "chat": chat, "probing_questions": {**questions, "good": [item]}}
    parsed = read_bytes(json.dumps(row).encode(), "beam", "file.json")
    assert "c/good-1" in {query.qid for query in parsed.queries}
    assert {f"c/{10**9}", f"c/{10**9}.2"} & {memory.id for memory in parsed.memories}


@twice
@given(items=st.lists(ROWS | VALUES, max_size=3), conversations=st.lists(ROWS | VALUES, max_size=3))
def test_convomem_keeps_its_good_items_whatever_stands_beside_them(items, conversations):
    said = [{"messages": [*conversations, {"speaker": "User", "text": "kept"}]}]
    good = {"question": "kept?", "message_evidences": [{"speaker": "User", "text": "kept"}], "conversations": said}
    parsed = read_bytes(json.dumps({"evidence_items": [*items, good]}).encode(), "convomem", "file.json")
    assert f"file-1-{len(items) + 1}/q1" in {judgment.qid for judgment in parsed.judgments}


@twice
@given(questions=st.lists(VALUES, max_size=3), metadata=VALUES | ROWS, context=st.text(max_size=30))
def test_memoryagentbench_keeps_its_good_questions_whatever_stands_beside_them(questions, metadata, context):
    bad = {"context": context, "questions": questions, "answers": [], "metadata": metadata}
    good = {"context": "kept", "questions": [*questions, "kept?"], "answers": []}
    parsed = read_bytes(json.dumps([bad, good]).encode(), "memoryagentbench", "file.json")
    assert f"file-2/q{len(questions) + 1}" in {query.qid for query in parsed.queries}
    assert "kept" in {memory.content for memory in parsed.memories}


DOCUMENTS = st.fixed_dictionaries(
    {"documents": st.lists(ROWS | VALUES, max_size=4)}, optional={"chunks": st.lists(ROWS | VALUES, max_size=4)}
)


@twice
@given(export=DOCUMENTS, chunk=VALUES)
def test_a_cems_export_keeps_its_good_documents_whatever_stands_beside_them(export, chunk):
    export["documents"].append({"id": "good-whole", "content": "kept", "chunks": chunk})
    export["documents"].append({"id": "good-parts", "chunks": ["kept", chunk]})
    parsed = read_bytes(json.dumps(export).encode(), "cems-export", "file.json")
    found = {memory.id: memory.content.split("\n")[0] for memory in parsed.memories}
    assert found.items() >= {"good-whole": "kept", "good-parts": "kept"}.items()


@twice
@given(corpus=FILES, queries=FILES, qrels=FILES)
def test_a_folder_of_garbage_is_read_or_said_to_be_none(corpus, queries, qrels):
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        (folder / "qrels").mkdir()
        (folder / "corpus.jsonl").write_bytes(b'{"_id": "good", "text": "kept"}\n' + corpus)
        (folder / "queries.jsonl").write_bytes(queries or b" ")
        (folder / "qrels" / "test.tsv").write_bytes(qrels)
        try:
            parsed = read_path(folder)
        except InputError as error:
            assert "\n" not in str(error)
        else:
            assert parsed[0].memories[0].id == "good"


GOOD = json.loads(Path(__file__).with_name("good_rows.json").read_text("utf-8"))
"""A good row of each format: its file's name, the kind of record, perhaps a header, and the row of NAME. `unnumbered`: not every line is
a row of its own, or a row may be kept without a part of it that is reported."""


IN_PART = ("memories-jsonl", "facts-jsonl", "messages-jsonl")
"""Formats in which a row may be kept without a field that is reported."""


def test_every_format_is_fuzzed():
    assert {name.split()[0] for name in GOOD} | {
        "locomo",
        "longmemeval",
        "beam",
        "convomem",
        "memoryagentbench",
        "markdown-notes",
        "ranx-json",
        "quepid-json",
        "recorded-calls",
        *("mteb", "srw-json"),  # written; read as beir and quepid-json
    } == set(FORMATS)


@twice
@given(garbage=st.lists(GARBAGE, min_size=1, max_size=8))
def test_good_rows_among_garbage_are_all_kept_and_no_row_disappears(garbage):
    assume(not garbage[0].startswith((b"\xff\xfe", b"\xfe\xff")))  # The mark of UTF-16, refused as a whole.
    for case in GOOD:
        check_good_rows_are_kept(case, garbage)


def check_good_rows_are_kept(case, garbage):
    good = GOOD[case]
    name, kind, header = good["file"], good["kind"], good.get("header", "").encode()
    row = good["row"] if isinstance(good["row"], str) else json.dumps(good["row"])

    def make(name):
        return row.replace("NAME", name).encode()

    lines = [line for n, bad in enumerate(garbage) for line in (bad, make(f"good-{n}"))]
    raw = b"\n".join([header, *lines] if header else lines)
    lines = raw.split(b"\n")
    parsed = read_bytes(raw, case.split()[0], name)
    rows = getattr(parsed, kind)
    names = {getattr(row, field, None) for row in rows for field in ("id", "qid", "memory_id", "source_id", "query")}
    assert {f"good-{n}" for n in range(len(garbage))} <= names
    reported = {error.row for error in parsed.errors}
    kept = set(parsed.extra["rows"][kind])
    assert len(parsed.extra["rows"][kind]) == len(rows)
    if good.get("unnumbered"):
        return
    assert case in IN_PART or not reported & kept
    blank = {n for n, line in enumerate(lines, start=1) if is_blank(line, first=n == 1)}
    repeated = {n for n, line in enumerate(lines, start=1) if kind == "judgments" and line in lines[: n - 1]}
    head = {1} if header else set()
    assert reported | kept | blank | repeated | head >= set(range(1, len(lines) + 1))


def is_blank(line: bytes, first: bool) -> bool:
    try:
        return not (line.removeprefix(b"\xef\xbb\xbf") if first else line).decode().strip()
    except UnicodeDecodeError:
        return False


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
