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


def expected(rows: Iterable[Row]) -> frozenset[tuple[Any, ...]]:
    return frozenset((row["qid"], row["memory_id"], row["grade"]) for row in rows)


def judgment_names(random: Random) -> dict[str, str]:
    return {field: spelled(random, random.choice(NAMES[field])) for field in ("qid", "memory_id", "grade")}


def judgments_csv(random: Random) -> Made:
    rows, names = pairs(random, QIDS), judgment_names(random)
    if random.random() < 0.4:
        names["iteration"] = random.choice(("iteration", "Q0", "iter"))
        rows = [{**row, "iteration": "0"} for row in rows]
    _, raw = table(random, rows, names)
    return Made(random.choice((".csv", ".tsv", ".txt")), raw, ("judgments-csv", "qrels", "beir"), expected(rows))


def judgments_jsonl(random: Random) -> Made:
    rows, names = pairs(random, QIDS), judgment_names(random)
    given = [
        {names["qid"]: row["qid"], names["memory_id"]: row["memory_id"], names["grade"]: in_json(random, row["grade"])}
        for row in rows
    ]
    ending, raw = objects(random, given)
    return Made(ending, raw, ("judgments-jsonl",), expected(rows))


def qrels(random: Random) -> Made:
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
    lines += [
        blank.join(
            str({**row, "grade": as_number(random, row["grade"], ","), "iteration": mark}[field]) for field in order
        )
        for row in rows
    ]
    return Made(
        random.choice((".qrels", ".txt", ".tsv", ".trec")),
        as_text(random, lines, comments=True),
        ("qrels", "judgments-csv"),
        expected(rows),
    )


def by_words(rows: Iterable[Row]) -> frozenset[tuple[Any, ...]]:
    return frozenset((row["qid"], row["memory_id"], row["grade"]) for row in rows)


def quepid_csv(random: Random) -> Made:
    rows = pairs(random, TEXTS)
    names = {
        "qid": random.choice(("query", "Query", "query_text")),
        "memory_id": spelled(random, "doc_id"),
        "grade": random.choice(("rating", "Rating", "relevance")),
    }
    _, raw = table(random, rows, names)
    return Made(".csv", raw, ("quepid-csv", "srw-csv"), by_words(rows))


def quepid_book(random: Random) -> Made:
    rows = [{**row, "other": row["grade"]} for row in pairs(random, TEXTS)]
    names = {"qid": "query", "memory_id": "docid", "grade": "Ann Lee", "other": "Bo"}
    _, raw = table(random, rows, names, more=False)
    return Made(".csv", raw, ("quepid-book",), by_words(rows))


def srw_csv(random: Random) -> Made:
    rows = pairs(random, TEXTS)
    lines = [
        written([guarded(row["qid"]), row["memory_id"], as_number(random, row["grade"], ",")], ",") for row in rows
    ]
    return Made(".csv", as_text(random, lines), ("srw-csv",), by_words(rows))


def ltr_text(random: Random) -> Made:
    rows = pairs(random, TEXTS)
    blank = random.choice(("\t", " "))
    lines = [
        f"{row['grade']}{blank}qid:{n}{blank}# {row['memory_id']}{blank}{row['qid']}" for n, row in enumerate(rows)
    ]
    return Made(random.choice((".txt", ".ltr")), as_text(random, lines), ("ltr-text",), by_words(rows))


def quepid_json(random: Random) -> Made:
    rows = pairs(random, TEXTS)
    shape = random.choice(("query_doc_pairs", "query_groups", "judgmentRatings"))
    if shape == "query_doc_pairs":
        items = [
            {
                "query_text": row["qid"],
                "doc_id": row["memory_id"],
                "judgements": [{"rating": in_json(random, row["grade"])}],
            }
            for row in rows
        ]
    elif shape == "query_groups":
        items = [
            {"name": row["qid"], "relevant_documents": {row["memory_id"]: {"gain": in_json(random, row["grade"])}}}
            for row in rows
        ]
    else:
        items = [
            {"query": row["qid"], "ratings": [{"docId": row["memory_id"], "rating": in_json(random, row["grade"])}]}
            for row in rows
        ]
    return Made(
        ".json",
        document(random, {"name": "a book", shape: [shuffled(random, item) for item in items]}),
        ("quepid-json",),
        by_words(rows),
    )


def ranx_json(random: Random) -> Made:
    rows = pairs(random, QIDS)
    grades: dict[str, Row] = {}
    for row in rows:
        grades.setdefault(row["qid"], {})[row["memory_id"]] = random.choice((row["grade"], float(row["grade"])))
    return Made(".json", document(random, grades), ("ranx-json",), expected(rows))


def cems_feedback(random: Random) -> Made:
    rows = [{"qid": qid, "relevant_ids": [IDS[0]], "noise_ids": [IDS[1], IDS[2]]} for qid in some(random, QIDS)]
    ending, raw = objects(random, rows)
    found = {(row["qid"], one, 2 * (one == IDS[0])) for row in rows for one in IDS[:3]}
    return Made(ending, raw, ("cems-feedback",), frozenset(found))


def memories(random: Random) -> list[Row]:
    return [
        {
            "id": name,
            "content": random.choice(TEXTS),
            "title": random.choice(TEXTS),
            "author": "Ann",
            "created_at": random.choice(TIMES),
        }
        for name in some(random, IDS)
    ]


OTHER = {"author": ("author", "user_id", "agent_id"), "created_at": ("created_at", "createdAt", "timestamp", "date")}


def kept(rows: Iterable[Row]) -> frozenset[tuple[Any, ...]]:
    return frozenset(
        (row["id"], row["content"], row.get("title"), row.get("author"), WHEN if "created_at" in row else None)
        for row in rows
    )


def memories_csv(random: Random) -> Made:
    rows = memories(random)
    names = {field: random.choice(OTHER.get(field, (field,))) for field in rows[0]}
    names |= {"content": random.choice(("content", "memory", "page_content")), "id": random.choice(("id", "uuid"))}
    _, raw = table(
        random, rows, {field: random.choice((str, str.upper, str.title))(name) for field, name in names.items()}
    )
    return Made(random.choice((".csv", ".tsv", ".txt")), raw, ("memories-csv",), kept(rows))


def memories_jsonl(random: Random) -> Made:
    rows = memories(random)
    ending, raw = objects(
        random, [{random.choice(OTHER.get(field, (field,))): value for field, value in row.items()} for row in rows]
    )
    return Made(ending, raw, ("memories-jsonl", "messages-jsonl"), kept(rows))


def memory_records(random: Random) -> Made:
    rows = memories(random)
    text, name = random.choice(("memory", "page_content", "fact", "data")), random.choice(("id", "uuid", "_id"))
    given = [
        {
            name: row["id"],
            text: row["content"],
            "title": row["title"],
            "metadata": {"user_id": "Ann", "created_at": row["created_at"]},
        }
        for row in rows
    ]
    if random.random() < 0.3:
        return Made(
            ".json",
            document(random, {random.choice(("results", "memories", "items")): given}),
            ("memory-records",),
            kept(rows),
        )
    ending, raw = objects(random, given)
    return Made(ending, raw, ("memory-records",), kept(rows))


def facts_jsonl(random: Random) -> Made:
    rows = [
        {
            "id": name,
            "subject": "Ann",
            "predicate": "says",
            "object": random.choice(TEXTS),
            "created_at": random.choice(TIMES),
        }
        for name in some(random, IDS)
    ]
    ending, raw = objects(random, rows)
    found = frozenset((row["id"], f"Ann says {row['object']}", None, None, WHEN) for row in rows)
    return Made(ending, raw, ("facts-jsonl",), found)


def messages_jsonl(random: Random) -> Made:
    speaker, text = random.choice(("role", "speaker")), random.choice(("content", "text"))
    rows = [
        {"id": name, speaker: "Ann", text: random.choice(TEXTS), "created_at": random.choice(TIMES)}
        for name in some(random, IDS)
    ]
    ending, raw = objects(random, rows)
    found = frozenset((row["id"], f"Ann: {row[text]}", None, "Ann", WHEN) for row in rows)
    return Made(ending, raw, ("messages-jsonl",), found)


def memory_server(random: Random) -> Made:
    rows = [
        {"type": "entity", "name": name, "entityType": "person", "observations": [random.choice(TEXTS)]}
        for name in some(random, IDS)
    ]
    edges = [{"type": "relation", "from": rows[0]["name"], "to": rows[-1]["name"], "relationType": "knows"}]
    if random.random() < 0.3:
        raw, ending = document(random, {"entities": rows, "relations": edges}), ".json"
    else:
        ending, raw = objects(random, random.sample([*rows, *edges], len(rows) + 1))
    found = frozenset((row["name"], row["observations"][0], row["name"], None, None) for row in rows)
    return Made(ending, raw, ("mcp-memory-server",), found)


def cems_export(random: Random) -> Made:
    rows = [
        {
            "id": name,
            "content": random.choice(TEXTS),
            "title": "T",
            "team_id": None,
            "shown_count": 2,
            "created_at": random.choice(TIMES[:2]),
        }
        for name in some(random, IDS)
    ]
    found = kept(rows)
    if random.random() < 0.3:
        return Made(".json", document(random, {"documents": rows, "chunks": []}), ("cems-export",), found)
    ending, raw = objects(random, rows)
    return Made(ending, raw, ("cems-export",), found)


def beir(random: Random) -> Made:
    if random.random() < 0.3:
        rows = pairs(random, QIDS)
        lines = [
            "query-id\tcorpus-id\tscore",
            *(f"{row['qid']}\t{row['memory_id']}\t{as_number(random, row['grade'], ',')}" for row in rows),
        ]
        return Made(".tsv", as_text(random, lines), ("beir", "judgments-csv"), expected(rows))
    if random.random() < 0.5:
        rows = [{"_id": name, "title": "T", "text": random.choice(TEXTS), "metadata": {}} for name in some(random, IDS)]
        ending, raw = objects(random, rows)
        return Made(
            f"dev{ending}", raw, ("beir",), frozenset((row["_id"], row["text"], "T", None, None) for row in rows)
        )
    rows = [{"_id": name, "text": random.choice(TEXTS), "title": ""} for name in some(random, QIDS)]
    ending, raw = objects(random, rows)
    return Made(f"nf_queries{ending}", raw, ("beir",), frozenset((row["_id"], row["text"]) for row in rows))


def queries_jsonl(random: Random) -> Made:
    rows = [{"qid": name, "query": random.choice(TEXTS), "project": "p", "type": "t"} for name in some(random, QIDS)]
    ending, raw = objects(random, rows)
    return Made(ending, raw, ("queries-jsonl",), frozenset((row["qid"], row["query"]) for row in rows))


def queries_csv(random: Random) -> Made:
    names = {"qid": random.choice(NAMES["qid"]), "query": random.choice(("query", "query_text", "question", "text"))}
    rows = [{"qid": name, "query": random.choice(TEXTS)} for name in some(random, QIDS)]
    _, raw = table(random, rows, {field: spelled(random, name) for field, name in names.items()})
    ending = random.choice((".csv", ".tsv", ".txt"))
    return Made(ending, raw, ("queries-csv",), frozenset((row["qid"], row["query"]) for row in rows))


def relations_jsonl(random: Random) -> Made:
    rows = [{"source_id": name, "target_id": "other", "kind": "knows", "weight": 0.5} for name in some(random, IDS)]
    ending, raw = objects(random, rows)
    return Made(ending, raw, ("relations-jsonl",), frozenset((row["source_id"], "other", "knows") for row in rows))


def query_log(random: Random) -> Made:
    words = random.choice(("query", "q", "text"))
    rows = [{"qid": f"q{n}", words: text, "results": [*IDS[:2]], "time": TIMES[0]} for n, text in enumerate(TEXTS)]
    found = frozenset((row["qid"], row[words]) for row in rows)
    if random.random() < 0.4:
        given = [{**row, "results": json.dumps(row["results"])} for row in rows]
        _, raw = table(random, given, {field: random.choice((str, str.upper))(field) for field in given[0]})
        return Made(random.choice((".csv", ".tsv", ".txt")), raw, ("query-log",), found)
    ending, raw = objects(random, rows)
    return Made(ending, raw, ("query-log",), found)


def rag_samples(random: Random) -> Made:
    rows = [
        {"user_input": text, "reference_context_ids": [IDS[0]], "retrieved_context_ids": [*IDS[:2]], "response": "r"}
        for text in some(random, TEXTS)
    ]
    found = frozenset((None, row["user_input"]) for row in rows)
    if random.random() < 0.4:
        given = [
            {name: json.dumps(value) if isinstance(value, list) else value for name, value in row.items()}
            for row in rows
        ]
        _, raw = table(random, given, {name: name for name in given[0]})
        return Made(random.choice((".csv", ".tsv")), raw, ("rag-samples",), found)
    ending, raw = objects(random, rows)
    return Made(ending, raw, ("rag-samples",), found)


def expected_ids(random: Random) -> Made:
    name = random.choice(("expected_ids", "relevant_ids", "gold_ids", "expectedMemoryIds"))
    rows: list[Row] = [{"query": text, name: random.sample(IDS[:4], 2)} for text in some(random, TEXTS)]
    found = frozenset((row["query"], one, 1) for row in rows for one in row[name])
    if random.random() < 0.4:
        given = [{**row, name: ";".join(row[name])} for row in rows]
        _, raw = table(random, given, {"query": "query", name: spelled(random, name)})
        return Made(random.choice((".csv", ".tsv")), raw, ("expected-ids",), found)
    ending, raw = objects(random, rows)
    return Made(ending, raw, ("expected-ids",), found)


def observations(random: Random) -> Made:
    rows: list[Row] = []
    for n, text in enumerate(some(random, TEXTS)):
        found: Row = {"id": f"o{n}", "traceId": "t", "startTime": TIMES[0], "type": "RETRIEVER", "input": text}
        rows.append({**found, "output": [{"id": "m01", "content": "c"}]})
    expected_rows = frozenset((None, row["input"]) for row in rows)
    if random.random() < 0.3:
        given = [{**row, "output": json.dumps(row["output"])} for row in rows]
        _, raw = table(random, given, {name: name for name in given[0]})
        return Made(random.choice((".csv", ".tsv")), raw, ("observations",), expected_rows)
    if random.random() < 0.3:
        page = {"data": rows, "meta": {"page": 1}}
        return Made(".json", document(random, page), ("observations",), expected_rows)
    ending, raw = objects(random, rows)
    return Made(ending, raw, ("observations",), expected_rows)


def hook_events(random: Random) -> Made:
    rows = [
        {
            "ts": TIMES[0],
            "event": "MemoryRetrieval",
            "session_id": "s",
            "query": text,
            "details": [{"id": "m01", "score": 0.5}],
        }
        for text in some(random, TEXTS)
    ]
    ending, raw = objects(random, rows, only_lines=True)
    return Made(ending, raw, ("cems-hook-events",), frozenset((None, row["query"]) for row in rows))


def spans(random: Random, **stage: object) -> Made:
    rows = [
        {
            "name": "retrieve",
            "context": {"trace_id": f"t{n}", "span_id": f"s{n}"},
            "start_time": WHEN.isoformat(),
            "attributes": shuffled(
                random,
                {
                    "openinference.span.kind": "RETRIEVER",
                    "input.value": text,
                    "retrieval.documents.0.document.id": "m01",
                    **stage,
                },
            ),
        }
        for n, text in enumerate(some(random, TEXTS))
    ]
    ending, raw = objects(random, rows)
    found = frozenset((None, row["attributes"]["input.value"]) for row in rows)
    return Made(ending, raw, ("openinference-traces",) if stage else ("openinference-spans",), found)


def traces(random: Random) -> Made:
    return spans(random, **{"workbench.stage.kind": "list", "workbench.stage.results": 1})


def locomo(random: Random) -> Made:
    turns = [{"speaker": "Ann", "dia_id": f"D1:{n}", "text": text} for n, text in enumerate(TEXTS, start=1)]
    body = {"session_1": turns, "session_1_date_time": "1:56 pm on 8 May, 2023", "speaker_a": "Ann", "speaker_b": "Bo"}
    row = {
        "sample_id": "c-1",
        "qa": [{"question": "who?", "evidence": ["D1:1"], "category": 4}],
        "conversation": shuffled(random, body),
    }
    return Made(
        ".json", document(random, [shuffled(random, row)]), ("locomo",), frozenset({("c-1/q001", "c-1/D1:1", 1)})
    )


def longmemeval(random: Random) -> Made:
    turns = [{"role": "user", "content": text, "has_answer": n == 0} for n, text in enumerate(TEXTS)]
    row = {
        "question_id": "a1",
        "question_type": "t",
        "question": "who?",
        "haystack_session_ids": ["s1"],
        "haystack_dates": ["2023/05/20 (Sat) 02:21"],
        "haystack_sessions": [turns],
    }
    return Made(".json", document(random, [shuffled(random, row)]), ("longmemeval",), frozenset({("a1", "a1/s1/1", 1)}))


def beam(random: Random) -> Made:
    turns = [{"id": n, "role": "user", "content": text} for n, text in enumerate(TEXTS)]
    row = {
        "conversation_id": "c",
        "chat": [{"turns": [turns]}],
        "probing_questions": {"abstention": [{"question": "who?", "source_chat_ids": {"a": [0]}}]},
    }
    return Made(
        ".json", document(random, [shuffled(random, row)]), ("beam",), frozenset({("c/abstention-1", "c/0", 1)})
    )


def convomem(random: Random) -> Made:
    said = [{"messages": [{"speaker": "User", "text": text} for text in TEXTS], "id": "c"}]
    item = {"question": "who?", "message_evidences": [{"speaker": "User", "text": TEXTS[0]}], "conversations": said}
    row = {random.choice(("evidence_items", "evidenceItems")): [shuffled(random, item)]}
    raw = document(random, [shuffled(random, row)])
    return Made("case.json", raw, ("convomem",), frozenset({("case-1-1/q1", "case-1-1/1/1", 1)}))


def memoryagentbench(random: Random) -> Made:
    context = "\n".join(["Here is a list of facts:", *(f"{n}. {text}" for n, text in enumerate(TEXTS))])
    row = {"context": context, "questions": ["who?"], "answers": [["?"]], "metadata": {"source": "facts"}}
    rows = frozenset({("facts/q1", "who?")})
    return Made(".json", document(random, [shuffled(random, row)]), ("memoryagentbench",), rows)


def markdown(random: Random) -> Made:
    front = random.sample(["title: T", "permalink: notes/a", "created: 2024-03-05T09:30:00+00:00"], 3)
    raw = as_text(random, ["---", *front, "---", "", random.choice(TEXTS)])
    return Made(".md", raw, ("markdown-notes",), frozenset({("notes/a",)}))


MAKERS: dict[str, Callable[[Random], Made]] = {
    "beam": beam,
    "beir": beir,
    "cems-export": cems_export,
    "cems-feedback": cems_feedback,
    "cems-hook-events": hook_events,
    "convomem": convomem,
    "facts-jsonl": facts_jsonl,
    "judgments-csv": judgments_csv,
    "judgments-jsonl": judgments_jsonl,
    "locomo": locomo,
    "longmemeval": longmemeval,
    "ltr-text": ltr_text,
    "markdown-notes": markdown,
    "mcp-memory-server": memory_server,
    "memories-csv": memories_csv,
    "memories-jsonl": memories_jsonl,
    "memory-records": memory_records,
    "memoryagentbench": memoryagentbench,
    "messages-jsonl": messages_jsonl,
    "openinference-spans": spans,
    "openinference-traces": traces,
    "qrels": qrels,
    "quepid-book": quepid_book,
    "quepid-csv": quepid_csv,
    "quepid-json": quepid_json,
    "queries-jsonl": queries_jsonl,
    "queries-csv": queries_csv,
    "query-log": query_log,
    "rag-samples": rag_samples,
    "expected-ids": expected_ids,
    "observations": observations,
    "ranx-json": ranx_json,
    "relations-jsonl": relations_jsonl,
    "srw-csv": srw_csv,
}


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
