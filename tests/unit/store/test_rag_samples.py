"""Samples of RAGAS 0.4.3 and DeepEval 4.3.1, as their own writers leave them: queries, what answers them, and what was retrieved."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cems_workbench.formats import detect, read
from cems_workbench.records import Memory, ParsedInput
from cems_workbench.store import Store

WORDS = "how are invoices rounded"
TEXT = "The invoice service rounds half up, never banker's rounding."
RAGAS = {
    "user_input": WORDS,
    "retrieved_contexts": ["x", TEXT],
    "reference_contexts": [TEXT],
    "retrieved_context_ids": ["m05", "m06"],
    "reference_context_ids": ["m05"],
    "response": "half up",
}
EMPTY = {"user_input": "who hands over the phone", "retrieved_contexts": [], "reference": "x"}
GOLDEN = {
    "input": WORDS,
    "actual_output": None,
    "expected_output": "half up",
    "retrieval_context": ["a", TEXT],
    "context": [TEXT],
    "additional_metadata": None,
}

UNKNOWN = {**GOLDEN, "input": "b", "retrieval_context": None, "context": ["none"]}


def lines(*rows: object) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def table(*rows: dict[str, object]) -> str:
    names = dict.fromkeys(name for row in rows for name in row)
    return json.dumps({name: {str(n): row.get(name) for n, row in enumerate(rows)} for name in names})


CSV = f"""user_input,retrieved_contexts,reference_contexts,retrieved_context_ids,reference_context_ids,response,reference
{WORDS},"['x', ""{TEXT}""]","[""{TEXT}""]","['m05', 'm06']",['m05'],half up,half up
who hands over the phone,[],,,,,x
"""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.jsonl", lines(RAGAS, EMPTY)),
        ("a.json", json.dumps([RAGAS, EMPTY])),
        ("a.json", table(RAGAS, EMPTY)),
        ("a.csv", CSV),
    ],
    ids=["jsonl", "records", "columns", "csv"],
)
def test_ragas_samples_with_ids(name: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert detect(path) == "rag-samples"
    parsed = read(path)
    first, second = parsed.queries
    assert (first.query, second.query) == (WORDS, "who hands over the phone")
    assert [[row.memory_id for row in answer.returned] for answer in parsed.answers] == [["m05", "m06"], []]
    assert [(one.qid, one.memory_id, one.grade) for one in parsed.judgments] == [(first.qid, "m05", 1)]
    assert not parsed.errors and not parsed.notes


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", json.dumps([GOLDEN, UNKNOWN])),
        (
            "a.jsonl",
            lines({**GOLDEN, "retrieval_context": f"a|{TEXT}", "context": TEXT}, {**UNKNOWN, "context": "none"}),
        ),
    ],
    ids=["json", "jsonl"],
)
def test_deepeval_texts_are_the_memories_with_them(name: str, text: str, tmp_path: Path, store: Store) -> None:
    path = tmp_path / name
    path.write_text(text)
    parsed = read(path, "rag-samples")
    assert [[row.content for row in answer.returned] for answer in parsed.answers] == [["a", TEXT]]
    assert parsed.notes == ("1 query of 2: answer not recorded",)
    store.add(ParsedInput("m", "test", memories=(Memory("m05", f"{TEXT}\n"), Memory("m06", "none of these"))))
    report = store.add(parsed)
    (judged,) = store.judgments.read()
    assert (judged.qid, judged.memory_id, judged.grade) == (parsed.queries[0].qid, "m05", 1)
    assert [(error.row, error.field, error.reason) for error in report.errors] == [
        (2, "context[0]", "no single memory has this text: 'none'")
    ]


def test_ids_beside_a_golden_and_the_samples_of_earlier_versions(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(
        lines(
            {**GOLDEN, "additional_metadata": {"reference_ids": ["m05"]}},
            {**GOLDEN, "input": "b", "custom_column_key_values": '{"reference_context_ids": [7]}'},
            {"question": "c", "contexts": [TEXT], "ground_truth": "half up", "answer": "half up"},
            {"user_input": [{"content": "d", "type": "human"}, {"content": "ok", "type": "ai"}], "response": "x"},
            {**RAGAS, "reference_context_ids": "[1"},
        )
    )
    parsed = read(path)
    assert [query.query for query in parsed.queries] == [WORDS, "b", "c", "d"]
    assert [one.memory_id for one in parsed.judgments] == ["m05", "7"]
    assert [error.field for error in parsed.errors] == ["reference_context_ids"]


def test_a_judged_id_that_the_store_does_not_have_is_named(tmp_path: Path, store: Store) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(lines({**RAGAS, "reference_context_ids": ["m05", "m99"]}))
    store.add(ParsedInput("m", "test", memories=(Memory("m05", TEXT), Memory("m06", "b"))))
    report = store.add(read(path))
    assert [one.memory_id for one in store.judgments.read()] == ["m05"]
    assert any("m99" in str(error) for error in report.errors)
