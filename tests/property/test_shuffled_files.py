"""Files as other tools write them: known rows of each format under shuffled columns, other names, separators, guards and number forms.

None is taken for another format, and every row is there with its value, or named in an error.
"""

from __future__ import annotations

import csv
import io
import json
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest

from cems_workbench.formats import FORMATS, read
from cems_workbench.formats.base.csv_table import guarded
from cems_workbench.formats.base.names import NAMES
from tests.thoroughly import THOROUGH, partly

FILES = 500 if THOROUGH else 90
TEXTS = (
    "who hands over the phone",
    "wie werden Rechnungen gerundet, und wann?",
    'a "quoted" cell; with a semicolon',
    "=SUM(A1) is no formula here",
    "-no-cache flag of the build",
    "日本語の 質問",
)
IDS = ("m01", "doc-2", "10", "7/a", "3", "Q0x")
QIDS = ("q1", "PLAIN-4", "11", "2", "301")
WHEN = datetime(2024, 3, 5, 9, 30, tzinfo=UTC)
TIMES = (
    WHEN.isoformat(),
    "2024-03-05T09:30:00Z",
    "2024-03-05 09:30:00",
    WHEN.timestamp(),
    int(WHEN.timestamp() * 1000),
)
NEUTRAL = ("file", "export_3", "data", "queries", "judgments", "memories", "facts_of_may")
"""Names of files, some of which say something else."""
Row = dict[str, Any]


@dataclass(frozen=True)
class Made:
    """A file, the formats that read it alike, and what has to come out of it."""

    name: str
    raw: bytes
    formats: tuple[str, ...]
    rows: frozenset[tuple[Any, ...]]


MAKERS: dict[str, Callable[[Random], Made]] = {}


def makes(form: str, *also: str) -> Callable[[Callable[..., tuple[Any, ...]]], Any]:
    """Register a maker of a format: it returns rows of JSON, or an ending and a file, and then what has to come out of them."""

    def register(make: Callable[..., tuple[Any, ...]]) -> Any:
        def made(random: Random) -> Made:
            *file, found = make(random)
            ending, raw = file if len(file) == 2 else objects(random, file[0])
            return Made(ending, raw, (form, *also), frozenset(found))

        MAKERS[form] = made
        return make

    return register


def spelled(random: Random, name: str) -> str:
    """A column's name in another case, and with a hyphen or a blank for an underscore."""
    name = name.replace("_", random.choice("__- "))
    return random.choice((str, str.upper, str.title))(name)


def shuffled(random: Random, row: Row) -> Row:
    return dict(random.sample([*row.items()], len(row)))


def as_text(random: Random, lines: Sequence[str], comments: bool = False) -> bytes:
    """Lines as a file: either line end, a byte order mark, blank lines, comments above."""
    above = ["# exported by a tool, in March"] if comments and random.random() < 0.3 else []
    spread = [part for line in lines for part in ([line, ""] if random.random() < 0.1 else [line])]
    end = random.choice(("\n", "\r\n"))
    text = end.join([*above, *spread]) + random.choice(("", end, end * 2))
    return (b"\xef\xbb\xbf" if random.random() < 0.3 else b"") + text.encode()


def table(random, rows, columns, number="grade", more=True):
    """(separator, file) of rows under the names of `columns`, in any order, quoted where it has to be or everywhere, perhaps numbered."""
    separator = random.choice(",;\t")
    if more and random.random() < 0.3:
        columns, rows = {**columns, "remark": "Remark"}, [{**row, "remark": random.choice(TEXTS)} for row in rows]
    fields = random.sample([*columns], len(columns))
    quoting = random.choice((csv.QUOTE_MINIMAL, csv.QUOTE_ALL))
    pad = " " if random.random() < 0.2 and separator != "\t" else ""
    index = random.random() < 0.2
    lines = [written([*([""] if index else []), *(columns[field] for field in fields)], separator, quoting, pad)]
    for place, row in enumerate(rows):
        cells = [
            as_number(random, row[field], separator) if field == number else guarded(str(row[field]))
            for field in fields
        ]
        lines.append(written([*([str(place)] if index else []), *cells], separator, quoting, pad))
    return separator, as_text(random, lines, comments=True)


def written(cells: Iterable[str], separator: str, quoting: Any = csv.QUOTE_MINIMAL, pad: str = "") -> str:
    found = []
    for cell in cells:
        line = io.StringIO()
        csv.writer(line, delimiter=separator, quoting=quoting, lineterminator="").writerow([cell, "x"])
        found.append(line.getvalue().removesuffix('"x"').removesuffix("x").removesuffix(separator))
    return f"{separator}{pad}".join(found)


def as_number(random: Random, value: int, separator: str) -> str:
    return random.choice((f"{value}", f"{value}.0", f"{value}.00", f"{value},0" if separator != "," else f"{value}"))


def in_json(random: Random, value: int) -> Any:
    return random.choice((value, float(value), str(value), f"{value}.0"))


def objects(random: Random, rows: Sequence[Row], only_lines: bool = False) -> tuple[str, bytes]:
    """(ending, file) of rows as lines of JSON, under any ending, or as a list in a .json file."""
    more = {"remark": random.choice(TEXTS)} if random.random() < 0.3 else {}
    rows = [shuffled(random, {**row, **more}) for row in rows]
    if not only_lines and random.random() < 0.3:
        return ".json", as_text(
            random, json.dumps(rows, indent=random.choice((None, 1)), ensure_ascii=False).split("\n")
        )
    ending = (
        random.choice((".jsonl", ".ndjson", ".txt")) if len(rows) < 2 else random.choice((".jsonl", ".ndjson", ".json"))
    )
    return ending, as_text(random, [json.dumps(row, ensure_ascii=random.random() < 0.5) for row in rows])


def document(random: Random, value: Any) -> bytes:
    return as_text(random, json.dumps(value, indent=random.choice((None, 1)), ensure_ascii=False).split("\n"))


def some(random: Random, values: Sequence[str]) -> list[str]:
    return random.sample(values, random.randint(1, len(values) - 1))


def pairs(random: Random, queries: Sequence[str]) -> list[Row]:
    """Judgments of some pairs: qid (or words), memory_id and grade."""
    return [
        {"qid": query, "memory_id": memory, "grade": random.randint(-1, 5)}
        for query in some(random, queries)
        for memory in random.sample(IDS, random.randint(1, 3))
    ]


def expected(rows: Iterable[Row]) -> set[tuple[Any, ...]]:
    return {(row["qid"], row["memory_id"], row["grade"]) for row in rows}


def judgment_names(random: Random) -> dict[str, str]:
    return {field: spelled(random, random.choice(NAMES[field])) for field in ("qid", "memory_id", "grade")}


def tables(random: Random) -> str:
    return random.choice((".csv", ".tsv", ".txt"))


@makes("judgments-csv", "qrels", "beir")
def judgments_csv(random):
    rows, names = pairs(random, QIDS), judgment_names(random)
    if random.random() < 0.4:
        names["iteration"] = random.choice(("iteration", "Q0", "iter"))
        rows = [{**row, "iteration": "0"} for row in rows]
    return tables(random), table(random, rows, names)[1], expected(rows)


@makes("judgments-jsonl")
def judgments_jsonl(random):
    rows, names = pairs(random, QIDS), judgment_names(random)
    given = [{**row, "grade": in_json(random, row["grade"])} for row in rows]
    return [{names[field]: value for field, value in row.items()} for row in given], expected(rows)


@makes("qrels", "judgments-csv")
def qrels(random):
    rows = pairs(random, ("q1", "PLAIN-4", "topic.7"))
    blank = random.choice((" ", "\t", "   "))
    order = ["qid", "iteration", "memory_id", "grade"]
    lines = []
    if random.random() < 0.4:
        random.shuffle(order)
        names = {**{field: random.choice(NAMES[field]) for field in NAMES}, "iteration": "iteration"}
        lines = [blank.join(names[field] for field in order)]
    elif random.random() < 0.3:
        order.remove("iteration")
    mark = random.choice(("0", "Q0"))
    for row in rows:
        cells = {**row, "grade": as_number(random, row["grade"], ","), "iteration": mark}
        lines.append(blank.join(str(cells[field]) for field in order))
    return random.choice((".qrels", ".txt", ".tsv", ".trec")), as_text(random, lines, comments=True), expected(rows)


@makes("quepid-csv", "srw-csv")
def quepid_csv(random):
    rows = pairs(random, TEXTS)
    words, grade = random.choice(("query", "Query", "query_text")), random.choice(("rating", "Rating", "relevance"))
    names = {"qid": words, "memory_id": spelled(random, "doc_id"), "grade": grade}
    return ".csv", table(random, rows, names)[1], expected(rows)


@makes("quepid-book")
def quepid_book(random):
    rows = [{**row, "other": row["grade"]} for row in pairs(random, TEXTS)]
    names = {"qid": "query", "memory_id": "docid", "grade": "Ann Lee", "other": "Bo"}
    return ".csv", table(random, rows, names, more=False)[1], expected(rows)


@makes("srw-csv")
def srw_csv(random):
    rows = pairs(random, TEXTS)
    cells = ([guarded(row["qid"]), row["memory_id"], as_number(random, row["grade"], ",")] for row in rows)
    return ".csv", as_text(random, [written(row, ",") for row in cells]), expected(rows)


@makes("ltr-text")
def ltr_text(random):
    rows = pairs(random, TEXTS)
    blank = random.choice(("\t", " "))
    cells = ((str(row["grade"]), f"qid:{n}", f"# {row['memory_id']}", row["qid"]) for n, row in enumerate(rows))
    return random.choice((".txt", ".ltr")), as_text(random, [blank.join(row) for row in cells]), expected(rows)


@makes("quepid-json")
def quepid_json(random):
    rows = pairs(random, TEXTS)
    shape = random.choice(("query_doc_pairs", "query_groups", "judgmentRatings"))

    def item(words: str, memory_id: str, grade: Any) -> Row:
        if shape == "query_doc_pairs":
            return {"query_text": words, "doc_id": memory_id, "judgements": [{"rating": grade}]}
        if shape == "query_groups":
            return {"name": words, "relevant_documents": {memory_id: {"gain": grade}}}
        return {"query": words, "ratings": [{"docId": memory_id, "rating": grade}]}

    items = [shuffled(random, item(row["qid"], row["memory_id"], in_json(random, row["grade"]))) for row in rows]
    return ".json", document(random, {"name": "a book", shape: items}), expected(rows)


@makes("ranx-json")
def ranx_json(random):
    rows = pairs(random, QIDS)
    grades: dict[str, Row] = {}
    for row in rows:
        grades.setdefault(row["qid"], {})[row["memory_id"]] = random.choice((row["grade"], float(row["grade"])))
    return ".json", document(random, grades), expected(rows)


@makes("cems-feedback")
def cems_feedback(random):
    rows = [{"qid": qid, "relevant_ids": [IDS[0]], "noise_ids": [IDS[1], IDS[2]]} for qid in some(random, QIDS)]
    return rows, {(row["qid"], one, 2 * (one == IDS[0])) for row in rows for one in IDS[:3]}


def memories(random: Random) -> list[Row]:
    def memory(name: str) -> Row:
        content, title = random.choice(TEXTS), random.choice(TEXTS)
        return {"id": name, "content": content, "title": title, "author": "Ann", "created_at": random.choice(TIMES)}

    return [memory(name) for name in some(random, IDS)]


OTHER = {"author": ("author", "user_id", "agent_id"), "created_at": ("created_at", "createdAt", "timestamp", "date")}


def kept(rows: Iterable[Row]) -> set[tuple[Any, ...]]:
    return {(row["id"], row["content"], row.get("title"), row.get("author"), WHEN) for row in rows}


@makes("memories-csv")
def memories_csv(random):
    rows = memories(random)
    names = {field: random.choice(OTHER.get(field, (field,))) for field in rows[0]}
    names |= {"content": random.choice(("content", "memory", "page_content")), "id": random.choice(("id", "uuid"))}
    names = {field: random.choice((str, str.upper, str.title))(name) for field, name in names.items()}
    return tables(random), table(random, rows, names)[1], kept(rows)


@makes("memories-jsonl", "messages-jsonl")
def memories_jsonl(random):
    rows = memories(random)
    return [{random.choice(OTHER.get(field, (field,))): row[field] for field in row} for row in rows], kept(rows)


@makes("memory-records")
def memory_records(random):
    rows = memories(random)
    text, name = random.choice(("memory", "page_content", "fact", "data")), random.choice(("id", "uuid", "_id"))

    def record(row: Row) -> Row:
        about = {"user_id": "Ann", "created_at": row["created_at"]}
        return {name: row["id"], text: row["content"], "title": row["title"], "metadata": about}

    given = [record(row) for row in rows]
    if random.random() < 0.3:
        return ".json", document(random, {random.choice(("results", "memories", "items")): given}), kept(rows)
    return given, kept(rows)


@makes("facts-jsonl")
def facts_jsonl(random):
    told = {"subject": "Ann", "predicate": "says"}
    rows = [
        {"id": name, **told, "object": random.choice(TEXTS), "created_at": random.choice(TIMES)}
        for name in some(random, IDS)
    ]
    return rows, {(row["id"], f"Ann says {row['object']}", None, None, WHEN) for row in rows}


@makes("messages-jsonl")
def messages_jsonl(random):
    speaker, text = random.choice(("role", "speaker")), random.choice(("content", "text"))
    rows = [
        {"id": name, speaker: "Ann", text: random.choice(TEXTS), "created_at": random.choice(TIMES)}
        for name in some(random, IDS)
    ]
    return rows, {(row["id"], f"Ann: {row[text]}", None, "Ann", WHEN) for row in rows}


@makes("messages")
def messages(random):
    rows = [
        {"type": "user", "uuid": name, "timestamp": random.choice(TIMES), "message": {"role": "user", "content": text}}
        for name, text in zip(some(random, IDS), random.choices(TEXTS, k=len(IDS)), strict=False)
    ]
    return rows, {(row["uuid"], f"user: {row['message']['content']}", None, "user", WHEN) for row in rows}


@makes("mcp-memory-server")
def memory_server(random):
    rows = [
        {"type": "entity", "name": name, "entityType": "person", "observations": [random.choice(TEXTS)]}
        for name in some(random, IDS)
    ]
    edges = [{"type": "relation", "from": rows[0]["name"], "to": rows[-1]["name"], "relationType": "knows"}]
    found = {(row["name"], row["observations"][0], row["name"], None, None) for row in rows}
    if random.random() < 0.3:
        return ".json", document(random, {"entities": rows, "relations": edges}), found
    return random.sample([*rows, *edges], len(rows) + 1), found


@makes("cems-export")
def cems_export(random):
    same = {"title": "T", "team_id": None, "shown_count": 2}
    rows = [
        {"id": name, "content": random.choice(TEXTS), **same, "created_at": random.choice(TIMES[:2])}
        for name in some(random, IDS)
    ]
    if random.random() < 0.3:
        return ".json", document(random, {"documents": rows, "chunks": []}), kept(rows)
    return rows, kept(rows)


@makes("beir", "judgments-csv")
def beir(random):
    if random.random() < 0.3:
        rows = pairs(random, QIDS)
        cells = ((row["qid"], row["memory_id"], as_number(random, row["grade"], ",")) for row in rows)
        return ".tsv", as_text(random, ["query-id\tcorpus-id\tscore", *map("\t".join, cells)]), expected(rows)
    if random.random() < 0.5:
        rows = [{"_id": name, "title": "T", "text": random.choice(TEXTS), "metadata": {}} for name in some(random, IDS)]
        ending, raw = objects(random, rows)
        return f"dev{ending}", raw, {(row["_id"], row["text"], "T", None, None) for row in rows}
    rows = [{"_id": name, "text": random.choice(TEXTS), "title": ""} for name in some(random, QIDS)]
    ending, raw = objects(random, rows)
    return f"nf_queries{ending}", raw, {(row["_id"], row["text"]) for row in rows}


@makes("queries-jsonl")
def queries_jsonl(random):
    rows = [{"qid": name, "query": random.choice(TEXTS), "project": "p", "type": "t"} for name in some(random, QIDS)]
    return rows, {(row["qid"], row["query"]) for row in rows}


@makes("queries-csv")
def queries_csv(random):
    names = {"qid": random.choice(NAMES["qid"]), "query": random.choice(("query", "query_text", "question", "text"))}
    rows = [{"qid": name, "query": random.choice(TEXTS)} for name in some(random, QIDS)]
    _, raw = table(random, rows, {field: spelled(random, name) for field, name in names.items()})
    return tables(random), raw, {(row["qid"], row["query"]) for row in rows}


@makes("relations-jsonl")
def relations_jsonl(random):
    rows = [{"source_id": name, "target_id": "other", "kind": "knows", "weight": 0.5} for name in some(random, IDS)]
    return rows, {(row["source_id"], "other", "knows") for row in rows}


@makes("query-log")
def query_log(random):
    words = random.choice(("query", "q", "text"))
    rows = [{"qid": f"q{n}", words: text, "results": [*IDS[:2]], "time": TIMES[0]} for n, text in enumerate(TEXTS)]
    found = {(row["qid"], row[words]) for row in rows}
    if random.random() < 0.4:
        given = [{**row, "results": json.dumps(row["results"])} for row in rows]
        _, raw = table(random, given, {field: random.choice((str, str.upper))(field) for field in given[0]})
        return tables(random), raw, found
    return rows, found


def plain_table(random: Random, rows: Sequence[Row]) -> tuple[str, bytes]:
    """(ending, file) of rows whose lists are JSON in their cells."""
    given = [
        {name: json.dumps(value) if isinstance(value, list) else value for name, value in row.items()} for row in rows
    ]
    return random.choice((".csv", ".tsv")), table(random, given, {name: name for name in given[0]})[1]


@makes("rag-samples")
def rag_samples(random):
    rows = [
        {"user_input": text, "reference_context_ids": [IDS[0]], "retrieved_context_ids": [*IDS[:2]], "response": "r"}
        for text in some(random, TEXTS)
    ]
    found = {(None, row["user_input"]) for row in rows}
    return (*plain_table(random, rows), found) if random.random() < 0.4 else (rows, found)


@makes("expected-ids")
def expected_ids(random):
    name = random.choice(("expected_ids", "relevant_ids", "gold_ids", "expectedMemoryIds"))
    rows: list[Row] = [{"query": text, name: random.sample(IDS[:4], 2)} for text in some(random, TEXTS)]
    found = {(row["query"], one, 1) for row in rows for one in row[name]}
    if random.random() < 0.4:
        given = [{**row, name: ";".join(row[name])} for row in rows]
        _, raw = table(random, given, {"query": "query", name: spelled(random, name)})
        return random.choice((".csv", ".tsv")), raw, found
    return rows, found


@makes("observations")
def observations(random):
    same = {"traceId": "t", "startTime": TIMES[0], "type": "RETRIEVER", "output": [{"id": "m01", "content": "c"}]}
    rows = [{"id": f"o{n}", **same, "input": text} for n, text in enumerate(some(random, TEXTS))]
    found = {(None, row["input"]) for row in rows}
    if random.random() < 0.3:
        return *plain_table(random, rows), found
    if random.random() < 0.3:
        return ".json", document(random, {"data": rows, "meta": {"page": 1}}), found
    return rows, found


@makes("cems-hook-events")
def hook_events(random):
    same = {"ts": TIMES[0], "event": "MemoryRetrieval", "session_id": "s", "details": [{"id": "m01", "score": 0.5}]}
    rows = [{**same, "query": text} for text in some(random, TEXTS)]
    return *objects(random, rows, only_lines=True), {(None, row["query"]) for row in rows}


@makes("explanations")
def explained_answers(random):
    def row(text: str) -> Row:
        said = {"semantic_score": 0.5, "bm25_score": 0.0, "entity_boost": 0.0, "max_possible_score": 1.0, "threshold": 0.1}
        found = {"id": "m01", "memory": "a", "score": 0.5, "score_details": shuffled(random, said)}
        return {"query": text, "results": [shuffled(random, found)]}

    texts = some(random, TEXTS)
    return list(map(row, texts)), {(None, text) for text in texts}


@makes("recorded-calls")
def recorded_calls(random):
    answer = json.dumps({"results": [{"id": "m01", "score": 0.5}]})
    same = {
        "recorded_call": 1,
        "time": TIMES[0],
        "to": "http://api",
        "method": "POST",
        "path": "/search",
        "status": 200,
    }
    texts = some(random, TEXTS)
    rows = [{**same, "request": json.dumps({"query": text}), "answer": answer} for text in texts]
    return *objects(random, rows, only_lines=True), {(None, text) for text in texts}


@makes("openinference-spans")
def spans(random, **stage: object):
    def span(n: int, text: str) -> Row:
        said = {"openinference.span.kind": "RETRIEVER", "input.value": text, "retrieval.documents.0.document.id": "m01"}
        context = {"trace_id": f"t{n}", "span_id": f"s{n}"}
        attributes = shuffled(random, {**said, **stage})
        return {"name": "retrieve", "context": context, "start_time": WHEN.isoformat(), "attributes": attributes}

    rows = [span(n, text) for n, text in enumerate(some(random, TEXTS))]
    return rows, {(None, row["attributes"]["input.value"]) for row in rows}


@makes("openinference-traces")
def traces(random):
    return spans(random, **{"workbench.stage.kind": "list", "workbench.stage.results": 1})


def one_row(random: Random, row: Row) -> bytes:
    return document(random, [shuffled(random, row)])


@makes("locomo")
def locomo(random):
    turns = [{"speaker": "Ann", "dia_id": f"D1:{n}", "text": text} for n, text in enumerate(TEXTS, start=1)]
    body = {"session_1": turns, "session_1_date_time": "1:56 pm on 8 May, 2023", "speaker_a": "Ann", "speaker_b": "Bo"}
    qa = [{"question": "who?", "evidence": ["D1:1"], "category": 4}]
    raw = one_row(random, {"sample_id": "c-1", "qa": qa, "conversation": shuffled(random, body)})
    return ".json", raw, {("c-1/q001", "c-1/D1:1", 1)}


@makes("longmemeval")
def longmemeval(random):
    turns = [{"role": "user", "content": text, "has_answer": n == 0} for n, text in enumerate(TEXTS)]
    asked = {"question_id": "a1", "question_type": "t", "question": "who?", "haystack_sessions": [turns]}
    row = {**asked, "haystack_session_ids": ["s1"], "haystack_dates": ["2023/05/20 (Sat) 02:21"]}
    return ".json", one_row(random, row), {("a1", "a1/s1/1", 1)}


@makes("beam")
def beam(random):
    turns = [{"id": n, "role": "user", "content": text} for n, text in enumerate(TEXTS)]
    asked = {"abstention": [{"question": "who?", "source_chat_ids": {"a": [0]}}]}
    row = {"conversation_id": "c", "chat": [{"turns": [turns]}], "probing_questions": asked}
    return ".json", one_row(random, row), {("c/abstention-1", "c/0", 1)}


@makes("convomem")
def convomem(random):
    said = [{"messages": [{"speaker": "User", "text": text} for text in TEXTS], "id": "c"}]
    item = {"question": "who?", "message_evidences": [{"speaker": "User", "text": TEXTS[0]}], "conversations": said}
    row = {random.choice(("evidence_items", "evidenceItems")): [shuffled(random, item)]}
    return "case.json", one_row(random, row), {("case-1-1/q1", "case-1-1/1/1", 1)}


@makes("memoryagentbench")
def memoryagentbench(random):
    context = "\n".join(["Here is a list of facts:", *(f"{n}. {text}" for n, text in enumerate(TEXTS))])
    row = {"context": context, "questions": ["who?"], "answers": [["?"]], "metadata": {"source": "facts"}}
    return ".json", one_row(random, row), {("facts/q1", "who?")}


@makes("markdown-notes")
def markdown(random):
    front = random.sample(["title: T", "permalink: notes/a", "created: 2024-03-05T09:30:00+00:00"], 3)
    return ".md", as_text(random, ["---", *front, "---", "", random.choice(TEXTS)]), {("notes/a",)}


READ_AS = {"mteb": "beir", "srw-json": "quepid-json"}
"""Formats that are written, and read as another."""


def test_every_format_has_shuffled_files():
    assert {*MAKERS, *READ_AS} == {*FORMATS} and {*READ_AS.values()} <= {*MAKERS}


def found_in(parsed, like: tuple[Any, ...]) -> set[tuple[Any, ...]]:
    """What was read, in the form of an expected row."""
    words = {query.qid: query.query for query in parsed.queries} if parsed.extra.get("queries_by_words") else {}
    judged = {(words.get(one.qid, one.qid), one.memory_id, one.grade) for one in parsed.judgments}
    if len(like) == 3:
        return judged or {(edge.source_id, edge.target_id, edge.kind) for edge in parsed.relations}
    if len(like) == 2:
        return {(query.qid if like[0] is not None else None, query.query) for query in parsed.queries}
    whole = {(one.id, one.content, one.title, one.author, one.created_at) for one in parsed.memories}
    return whole if len(like) == 5 else {(one[0],) for one in whole}


@partly
@pytest.mark.parametrize("format", MAKERS)
def test_a_shuffled_file_is_taken_for_no_other_format_and_no_row_is_lost(format: str) -> None:
    with tempfile.TemporaryDirectory() as home:
        for number in range(-(-FILES // len(MAKERS))):
            random = Random(f"{format} {number}")
            made = MAKERS[format](random)
            name = made.name if "." in made.name.lstrip(".") else f"{random.choice(NEUTRAL)}{made.name}"
            path = Path(home) / name
            path.write_bytes(made.raw)
            parsed = read(path)
            assert parsed.format in made.formats, (number, name, made.raw)
            assert parsed.errors == (), (number, name, made.raw)
            assert found_in(parsed, next(iter(made.rows))) == made.rows, (number, name, made.raw)
