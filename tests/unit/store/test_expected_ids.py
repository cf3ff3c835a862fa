"""A question a row with the ids that should come, in the forms that evaluation sets have it.

tobi/qmd src/bench/fixtures/wiki-v0.json, rajkripal/cashew eval/retrieval_needles.json, NovaSpine, read 2026-11; EmbeddingQAFinetuneDataset
of llama-index-core 0.14.

Samples of RAGAS 0.4.3 and DeepEval 4.3.1, as their own writers leave them: queries, what answers them, and what was retrieved.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cems_workbench.errors import InputError
from cems_workbench.formats import detect, read
from cems_workbench.formats.recorded_answers import read_recording
from cems_workbench.records import Memory, ParsedInput
from cems_workbench.store import Store

KEY, LAMP = "where is the key", "which lamp is broken"
JUDGED = {(KEY, "a", 1), (KEY, "b", 1), (LAMP, "c", 1)}
ROWS = [{"query": KEY, "expected_ids": ["a", "b"]}, {"query": LAMP, "expected_ids": ["c"]}]


def renamed(**names: str) -> list[dict[str, object]]:
    return [{names.get(name, name): value for name, value in row.items()} for row in ROWS]


def lines(rows: list[dict[str, object]]) -> str:
    return "\n".join(map(json.dumps, rows))


def judged(parsed: ParsedInput) -> set[tuple[str, str, int]]:
    words = {query.qid: query.query for query in parsed.queries}
    return {(words[each.qid], each.memory_id, each.grade) for each in parsed.judgments}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.jsonl", lines(ROWS)),
        ("a.json", json.dumps(renamed(expected_ids="relevant_ids"))),
        ("a.jsonl", lines([{"qid": f"q{n}", **row} for n, row in enumerate(renamed(expected_ids="gold_ids"))])),
        ("a.jsonl", lines(renamed(query="question", expected_ids="expectedMemoryIds"))),
        ("a.json", json.dumps({"_comment": "draft", "needles": renamed(expected_ids="expected")})),
        ("a.json", json.dumps({"q1": {**ROWS[0], "type": "alias"}, "q2": ROWS[1]})),
        ("a.json", json.dumps([{**ROWS[0], "expected_ids": "a, b"}, {**ROWS[1], "expected_ids": [{"id": "c"}]}])),
        (
            "a.json",
            json.dumps(
                {"queries": {"1": KEY, "2": LAMP}, "corpus": {}, "relevant_docs": {"1": ["a", "b"], "2": ["c"]}}
            ),
        ),
        ("a.csv", f"id,query,expected_ids\nq1,{KEY},a;b\nq2,{LAMP},c\n"),
        ("a.csv", f"question;gold\n{KEY};a | b\n{LAMP};c\n"),
        ("a.tsv", f'query\trelevant_doc_ids\n{KEY}\t"[""a"", ""b""]"\n{LAMP}\t[\'c\']\n'),
        ("a.csv", f"query,expected_id\n{KEY},a\n{KEY},b\n{LAMP},c\n"),
    ],
)
def test_a_row_with_expected_ids_is_a_query_with_judgments_of_grade_1(name: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    parsed = read(path)
    assert (parsed.format, parsed.errors, judged(parsed)) == ("expected-ids", (), JUDGED)


def test_grades_unwanted_ids_and_the_kind_of_a_query_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    rows: list[dict[str, object]] = [
        {"id": 1, "query": KEY, "relevant": {"a": 3, "b": "1.0"}, "noise_ids": ["c"], "category": "alias"},
        {"id": 2, "query": LAMP, "relevant": [{"doc_id": "c", "relevance": 2}], "top": 5},
        {"id": 3, "query": "who came", "relevant": []},
        {"id": 2, "query": "who left", "relevant": ["a"]},
    ]
    path.write_text(lines(rows))
    parsed = read(path)
    assert judged(parsed) == {(KEY, "a", 3), (KEY, "b", 1), (KEY, "c", 0), (LAMP, "c", 2)}
    assert [(query.qid, query.type) for query in parsed.queries] == [("1", "alias"), ("2", None), ("3", None)]
    assert [error.reason for error in parsed.errors] == ["'2' stands already in row 2 with other words"]
    assert parsed.notes == (
        "field 'top' is not known and was left out (1 rows)",
        '1 query expects nothing, such as 3, and has no judgment; "answerable": false says that the store has no answer',
    )


@pytest.mark.parametrize(
    ("row", "form"),
    [
        ({"qid": "q", "relevant_ids": ["a"], "noise_ids": ["b"]}, "cems-feedback"),
        ({"id": "m", "content": "The lamp is broken.", "evidence_ids": ["t1"]}, "memories-jsonl"),
        ({"user_input": KEY, "reference_context_ids": ["a"]}, "rag-samples"),
        ({"query": KEY, "gold_ids": ["a"], "retrieved_ids": ["b", "a"]}, "rag-samples"),
        ({"query": KEY, "expected_ids": ["a"], "results": ["b", "a"]}, "rag-samples"),
        ({"query": KEY, "results": ["b", "a"]}, "query-log"),
        ({"qid": "q", "docid": "a", "relevance": 1}, "judgments-jsonl"),
    ],
)
def test_rows_of_other_formats_are_taken_for_none(row: dict[str, object], form: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(lines([row]))
    parsed = read(path)
    assert (parsed.format, parsed.errors) == (form, ())
    if "gold_ids" in row:
        assert [row.memory_id for row in parsed.answers[0].returned] == ["b", "a"]
        assert judged(parsed) == {(KEY, "a", 1)}


def test_ranked_ids_by_query_are_a_run_which_import_refuses(tmp_path: Path) -> None:
    path = tmp_path / "retrieved.jsonl"
    path.write_text(lines([{"query_id": "q1", "retrieved_ids": ["b", "a"]}, {"query_id": "q2", "retrieved_ids": []}]))
    with pytest.raises(InputError, match=r"has a column retrieved_ids, so it is a run.*fidelity FILE reads it"):
        read(path)
    answers = read_recording(path).answers
    assert [(one.qid, [row.memory_id for row in one.returned]) for one in answers] == [("q1", ["b", "a"]), ("q2", [])]


def test_expected_files_are_the_notes_of_a_vault_and_unknown_ones_are_counted(store: Store, tmp_path: Path) -> None:
    ids = ["notes/the-key", "old/notes/lamp", "new/notes/lamp"]
    store.add(ParsedInput("vault", "t", memories=tuple(Memory(one, f"Text of {one}.") for one in ids)))
    path = tmp_path / "bench.json"
    wanted = ["notes/The Key.md", "new/notes/lamp.md", "notes/lamp.md", "gone.md"]
    queries = [{"id": "q1", "query": KEY, "expected_files": wanted, "expected_in_top_k": 3}]
    path.write_text(json.dumps({"collection": "depot", "queries": queries}))
    report = store.add(read(path))
    assert {each.memory_id for each in store.judgments.read()} == {"notes/the-key", "new/notes/lamp"}
    assert [error.reason for error in report.errors] == [
        f"no memory {name!r} in the store; import it first" for name in ("notes/lamp.md", "gone.md")
    ]
    said = "2 judgments name 2 ids of memories that the store does not have, such as notes/lamp.md, gone.md"
    assert said in report.notes


def test_a_set_has_the_queries_that_the_store_had_and_ids_of_its_own_stay(store: Store, tmp_path: Path) -> None:
    store.add(ParsedInput("memories", "t", memories=tuple(Memory(one, f"Text {one}.") for one in "abc")))
    for name, rows in (
        ("first", [{"id": "k", **ROWS[0]}]),
        ("second", ROWS),
        ("third", [{"id": f"q{n}", **row} for n, row in enumerate(ROWS)]),
        ("fourth", ROWS),
    ):
        path = tmp_path / f"{name}.jsonl"
        path.write_text(lines(rows))
        assert not store.add(read(path)).errors
    sets = {
        each.name: {query.qid for query in store.query_sets.queries(each.name)} for each in store.query_sets.latest()
    }
    assert sets["first"] == {"k"} and "k" in sets["second"] and len(sets["second"]) == 2
    assert sets["third"] == {"q0", "q1"}
    assert len(sets["fourth"]) == 2 and not sets["fourth"] & {"q0", "q1"}  # its words are of several now


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


def samples(*rows: object) -> str:
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
        ("a.jsonl", samples(RAGAS, EMPTY)),
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
            samples({**GOLDEN, "retrieval_context": f"a|{TEXT}", "context": TEXT}, {**UNKNOWN, "context": "none"}),
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
        samples(
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
    path.write_text(samples({**RAGAS, "reference_context_ids": ["m05", "m99"]}))
    store.add(ParsedInput("m", "test", memories=(Memory("m05", TEXT), Memory("m06", "b"))))
    report = store.add(read(path))
    assert [one.memory_id for one in store.judgments.read()] == ["m05"]
    assert any("m99" in str(error) for error in report.errors)
