"""A question a row with the ids that should come, in the forms that evaluation sets have it.

tobi/qmd src/bench/fixtures/wiki-v0.json, rajkripal/cashew eval/retrieval_needles.json, NovaSpine, read 2026-11; EmbeddingQAFinetuneDataset
of llama-index-core 0.14.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cems_workbench.errors import InputError
from cems_workbench.formats import read
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
