"""Rows, judgments and runs written and read again: nothing is lost but what is named."""

from __future__ import annotations

import csv
import io
import re
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records import MEMORIES, QUERIES, RELATIONS, judgments

from cems_workbench.formats import (
    FORMATS,
    DataSet,
    dataset_writers,
    detect,
    judgment_writers,
    read,
    write_dataset,
    write_judgments,
)
from cems_workbench.formats.base import csv_table
from cems_workbench.formats.base.judgments import clean_words
from cems_workbench.formats.base.records import derived_id
from cems_workbench.formats.judgments import Feedback, RunRow, counts, feedback_of, run_text, write_feedback
from cems_workbench.formats.queries import write as queries_written
from cems_workbench.records import Judgment, Query, RowError
from workbench_fidelity.runs import run_of

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
HOSTILE = st.sampled_from(
    ["=1+1", "'=x", "@a", "-2", "+", "\t=", "a,b", '"', "a\nb", "a\r\nb", " x ", "\ufeffx", "query", "ＡＢ", "＝1"]
)
QUERY_WORDS = (TEXT | HOSTILE).filter(lambda text: bool(text.strip()))
NAMES = (TEXT | HOSTILE | st.integers(0, 99).map(str)).filter(
    lambda text: bool(text.strip()) and not any(ord(c) < 32 or ord(c) == 127 for c in text)
)
GRADES = st.integers(-3, 5)
JUDGED_AT = st.none() | st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1)).map(
    lambda when: when.replace(tzinfo=UTC)
)
KINDS = st.sampled_from(["human", "model"])
JUDGMENTS = st.lists(
    st.builds(Judgment, NAMES, NAMES, GRADES, NAMES, KINDS, JUDGED_AT, st.none() | QUERY_WORDS),
    min_size=1,
    max_size=8,
    unique_by=lambda one: (one.qid, one.memory_id, one.judge, one.kind),
)


def reread(text: str, format: str, name: str):
    """Write a file and read it; also say what it is taken for when nobody says."""
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / name
        path.write_bytes(text.encode())
        return read(path, format), detect(path)


def words_of(judgments: list[Judgment], words: list[str]) -> dict[str, Query]:
    """A query for every qid, each with words of its own."""
    qids = sorted({one.qid for one in judgments})
    return {qid: Query(qid, words[n]) for n, qid in enumerate(qids)}


@pytest.mark.parametrize("format", ["judgments-jsonl", "judgments-csv"])
@given(judgments=JUDGMENTS)
def test_jsonl_and_csv_lose_nothing(format, judgments):
    written = write_judgments(format, judgments, {})
    parsed, found = reread(written.text, format, "file.csv" if format.endswith("csv") else "file.jsonl")
    assert parsed.judgments == tuple(judgments)
    assert parsed.errors == () and written.left_out == ()
    assert found == format


@given(judgments=JUDGMENTS)
def test_ranx_holds_one_grade_per_pair(judgments):
    written = write_judgments("ranx-json", judgments, {})
    if not written.text.strip("{}\n"):
        return
    parsed, found = reread(written.text, "ranx-json", "file.json")
    pairs: dict[tuple[str, str], set[int]] = {}
    for one in judgments:
        pairs.setdefault((one.qid, one.memory_id), set()).add(one.grade)
    kept = {(one.qid, one.memory_id): one.grade for one in parsed.judgments}
    assert kept == {pair: min(grades) for pair, grades in pairs.items() if len(grades) == 1}
    assert parsed.errors == () and found == "ranx-json"


@given(judgments=JUDGMENTS)
def test_qrels_hold_one_grade_per_pair_and_name_what_they_cannot_hold(judgments):
    written = write_judgments("qrels", judgments, {})
    if not written.text:
        return
    parsed, found = reread(written.text, "qrels", "file.qrels")
    pairs = {
        (one.qid, one.memory_id): {j.grade for j in judgments if (j.qid, j.memory_id) == (one.qid, one.memory_id)}
        for one in judgments
    }
    kept = {(one.qid, one.memory_id): one.grade for one in parsed.judgments}
    assert all(pairs[pair] == {grade} for pair, grade in kept.items())
    assert parsed.errors == () and found == "qrels"
    left = {
        pair
        for pair, grades in pairs.items()
        if len(grades) > 1 or any(name.split() != [name] or name[0] == "\ufeff" for name in pair)
    }
    assert set(kept) == set(pairs) - left
    assert len(written.left_out) >= len(left)


def quepid_reads(text: str) -> list[tuple[str, str, int]]:
    """What Quepid's page and importer make of a CSV of ratings, which is refused as a whole by an AssertionError.

    Quepid at f80322f: import_ratings_modal_instance_controller.js (checkCSVHeaders, checkCSVBody), vendor/angular-csv-import
    (csvToJSON, cleanCsvValue), app/services/ratings_importer.rb (extract_rating_info).
    """
    lines = text.split("\n")
    assert lines[0].split(",") == ["query", "docid", "rating"]
    assert not any(len(line.split(",")) > 3 and line.count('"') != 2 for line in lines[1:])
    outside = '(?![^"]*"(?:(?:[^"]*"){2})*[^"]*$)'
    rows = [re.split(f",{outside}", row) for row in re.split(f"\n{outside}", re.sub("\r\n|\r", "\n", text))[1:]]
    cells = [
        [re.sub('^"|"$', "", trimmed(cell)).replace('""', '"').strip() for cell in row] for row in rows if len(row) == 3
    ]
    return [(query, docid, int(rating)) for query, docid, rating in cells]


def workbench_reads(text: str) -> list[tuple[str, str, int]]:
    """What the Search Relevance Workbench makes of it: judgment_file_processor.ts of dashboards-search-relevance at 15bc179."""
    found = []
    for line in filter(None, map(trimmed, re.split("\r?\n", text))):
        cells = [trimmed(cell) for cell in next(csv.reader([line], strict=True))]
        if [cell.lower() for cell in cells] != ["query", "docid", "rating"]:
            query, docid, rating = cells
            assert query and docid
            found.append((query, docid, int(rating)))
    return found


def trimmed(text: str) -> str:
    """As trim() in JavaScript."""
    return text.strip(
        " \t\n\v\f\r\xa0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(map(chr, range(0x2000, 0x200B)))
    )


@pytest.mark.parametrize(("format", "reader"), [("quepid-csv", quepid_reads), ("srw-csv", workbench_reads)])
@given(
    judgments=JUDGMENTS,
    words=st.lists(QUERY_WORDS.map(clean_words).filter(bool), min_size=8, max_size=8, unique=True),
)
def test_ratings_are_read_by_their_tool_and_here_as_they_were(format, reader, judgments, words):
    first = {(one.qid, one.memory_id): one for one in judgments}
    queries = words_of(judgments, words)
    written = write_judgments(format, list(first.values()), queries)
    left = {line.split(": ")[0] for line in written.left_out}
    kept = [one for one in first.values() if f"{one.qid} {one.memory_id}" not in left]
    if len(kept) != written.rows:  # an id with ": " in it
        return
    expected = [(queries[one.qid].query, one.memory_id, one.grade) for one in kept]
    assert reader(written.text) == expected
    if not kept:
        return
    parsed, found = reread(written.text, format, "file.csv")
    assert [(one.qid, one.memory_id, one.grade) for one in parsed.judgments] == [
        (derived_id("q", query), docid, grade) for query, docid, grade in expected
    ]
    assert {one.query for one in parsed.queries} == {query for query, *_ in expected}
    assert parsed.errors == () and found == "quepid-csv"


@pytest.mark.parametrize("format", ["quepid-json", "srw-json"])
@given(
    judgments=JUDGMENTS,
    words=st.lists(QUERY_WORDS.map(clean_words).filter(bool), min_size=8, max_size=8, unique=True),
)
def test_json_by_words_keeps_every_query_document_and_grade(format, judgments, words):
    first = {(one.qid, one.memory_id): one for one in judgments}
    queries = words_of(judgments, words)
    written = write_judgments(format, list(first.values()), queries)
    assert written.left_out == ()
    parsed, found = reread(written.text, format, "file.json")
    assert {(one.qid, one.memory_id, one.grade) for one in parsed.judgments} == {
        (derived_id("q", queries[one.qid].query), one.memory_id, one.grade) for one in first.values()
    }
    assert parsed.errors == () and found == "quepid-json" and parsed.format == format


@given(
    judgments=JUDGMENTS,
    words=st.lists(QUERY_WORDS.map(clean_words).filter(bool), min_size=8, max_size=8, unique=True),
)
def test_a_book_keeps_every_judges_grade(judgments, words):
    queries = words_of(judgments, words)
    written = write_judgments("quepid-book", judgments, queries)
    if not written.rows:
        return
    parsed, found = reread(written.text, "quepid-book", "file.csv")
    got = {(one.qid, one.memory_id, one.judge, one.grade) for one in parsed.judgments}
    gone = len(judgments) - len(got)
    assert gone == len(written.left_out)
    assert got <= {(derived_id("q", queries[one.qid].query), one.memory_id, one.judge, one.grade) for one in judgments}
    assert parsed.errors == ()
    assert found in ("quepid-book", "quepid-csv")  # a book of one judge who is called rating


@given(
    queries=st.lists(
        st.builds(
            Query,
            NAMES,
            QUERY_WORDS,
            st.none() | QUERY_WORDS,
            JUDGED_AT,
            st.none() | QUERY_WORDS,
            st.sampled_from((None, True, False)),
        ),
        min_size=1,
        max_size=6,
        unique_by=lambda one: one.qid,
    )
)
def test_queries_lose_nothing(queries):
    parsed, found = reread(queries_written(queries), "queries-jsonl", "file.jsonl")
    assert parsed.queries == tuple(queries)
    assert found == "queries-jsonl"


BARE = NAMES.filter(lambda name: name.split() == [name] and not name.startswith("\ufeff"))


@given(
    rows=st.lists(
        st.builds(RunRow, BARE, BARE, st.integers(0, 10**6), st.floats(allow_nan=False, allow_infinity=False), BARE),
        min_size=1,
        max_size=6,
        unique_by=lambda row: (row.qid, row.docno),
    )
)
def test_runs_lose_no_bit_of_a_score(rows):
    errors: list[RowError] = []
    run = run_of(run_text(rows), "run.txt", errors)
    assert run is not None and errors == []
    scores = {(qid, one.memory_id): one.score for qid, results in run.results.items() for one in results}
    assert scores == {(row.qid, row.docno): row.score for row in rows}


@given(judgments=JUDGMENTS)
def test_feedback_read_back_is_the_same_feedback(judgments):
    feedback = [one for one in feedback_of(judgments) if one.relevant_ids or one.noise_ids]
    if feedback:
        parsed, found = reread(write_feedback(feedback), "cems-feedback", "file.jsonl")
        assert feedback_of(parsed.judgments) == feedback
        assert found == "cems-feedback"


def test_feedback_counts_queries_and_leaves_out_what_is_neither():
    judgments = [
        Judgment("q", "a", 3),
        Judgment("q", "b", 0),
        Judgment("q", "c", 1),
        Judgment("r", "a", 2),
        Judgment("r", "b", 3),
        Judgment("r", "b", 0, "Bo"),
    ]
    feedback = feedback_of(judgments)
    assert feedback_of(judgments[2:3]) == [Feedback("q", ("c",), ())]  # where nothing is graded above 1
    assert feedback == [Feedback("q", ("a",), ("b",)), Feedback("r", ("a", "b"), ())]
    assert counts(feedback) == {"a": (2, 0), "b": (1, 1)}


@given(
    judgments=JUDGMENTS,
    words=st.lists(QUERY_WORDS.map(clean_words).filter(bool), min_size=8, max_size=8, unique=True),
    format=st.sampled_from(["judgments-csv", "quepid-csv", "quepid-book", "srw-csv"]),
)
def test_no_cell_of_a_csv_is_a_formula(judgments, words, format):
    import csv
    import io

    written = write_judgments(format, judgments, words_of(judgments, words))
    numbers = {str(grade) for grade in range(-3, 6)}
    for row in csv.reader(io.StringIO(written.text, newline="")):
        for cell in row:
            assert cell in numbers or not cell.startswith(("=", "+", "-", "@", "\t", "\r"))
            assert cell in numbers or csv_table.guarded(csv_table.restored(cell)) == cell


def test_every_form_is_tested_here():
    assert set(judgment_writers()) == {
        "judgments-jsonl",
        "judgments-csv",
        "qrels",
        "ranx-json",
        "quepid-csv",
        "srw-csv",
        "quepid-book",
        "quepid-json",
        "srw-json",
        "cems-feedback",
    }


READ_ALONE = """queries-csv facts-jsonl messages messages-jsonl cems-export convomem markdown-notes mcp-memory-server memory-records
memoryagentbench ltr-text locomo longmemeval beam cems-hook-events openinference-spans openinference-traces query-log
observations expected-ids rag-samples recorded-calls explanations"""


def test_every_form_that_is_read_is_written_but_those_that_only_make_memories_and_logs():
    assert set(FORMATS) == {*dataset_writers(), *judgment_writers(), *READ_ALONE.split()}
    assert not set(dataset_writers()) & set(judgment_writers())


SUFFIX = {"memories-csv": "csv", "beir": "folder", "mteb": "folder"}
SOME_MEMORIES = st.lists(MEMORIES, min_size=1, max_size=5, unique_by=lambda one: one.id)
SOME_QUERIES = st.lists(QUERIES, max_size=4, unique_by=lambda one: one.qid)


def through(form, dataset):
    """What was said of the writing, what is read again, and what the file is taken for when nobody says."""
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / f"file.{SUFFIX.get(form, 'jsonl')}"
        done = write_dataset(form, dataset, path)
        return done, read(path, form), form if path.is_dir() else detect(path)


@pytest.mark.parametrize("form", ["memories-jsonl", "memories-csv"])
@given(memories=SOME_MEMORIES)
def test_memories_lose_nothing(form, memories):
    done, parsed, found = through(form, DataSet(memories))
    assert parsed.memories == tuple(memories)
    assert (done.left_out, done.not_kept, parsed.errors, parsed.notes) == ((), (), (), ())
    assert (done.rows, found) == ({"memories": len(memories)}, form)


@given(queries=st.lists(QUERIES, min_size=1, max_size=5, unique_by=lambda one: one.qid))
def test_rows_of_queries_lose_nothing(queries):
    done, parsed, found = through("queries-jsonl", DataSet((), queries=queries))
    assert parsed.queries == tuple(queries)
    assert (done.left_out, done.not_kept, parsed.errors, found) == ((), (), (), "queries-jsonl")


@given(
    relations=st.lists(
        RELATIONS, min_size=1, max_size=5, unique_by=lambda one: (one.source_id, one.target_id, one.kind)
    )
)
def test_relations_lose_nothing(relations):
    done, parsed, found = through("relations-jsonl", DataSet((), relations=relations))
    assert parsed.relations == tuple(relations)
    assert (done.left_out, done.not_kept, parsed.errors, found) == ((), (), (), "relations-jsonl")


@pytest.mark.parametrize("form", ["beir", "mteb"])
@given(data=st.data(), memories=SOME_MEMORIES, queries=SOME_QUERIES)
def test_beir_and_mteb_lose_nothing_of_memories_and_queries_and_of_judgments_only_what_they_name(
    form, data, memories, queries
):
    labels = []
    if queries:
        pairs = judgments(st.sampled_from([one.qid for one in queries]), st.sampled_from([one.id for one in memories]))
        labels = data.draw(st.lists(pairs, max_size=5, unique_by=lambda one: (one.qid, one.memory_id, one.judge)))
    done, parsed, _ = through(form, DataSet(memories, queries=queries, judgments=labels))
    assert (parsed.memories, parsed.queries, parsed.errors) == (tuple(memories), tuple(queries), ())
    assert all("judgments" in line for line in done.not_kept)
    grades = {}
    for one in labels:
        grades.setdefault((one.qid, one.memory_id), set()).add(one.grade)
    back = {(one.qid, one.memory_id): one.grade for one in parsed.judgments}
    assert all(grades[pair] == {grade} for pair, grade in back.items())
    missing = {pair for pair in grades if pair not in back}
    assert len(missing) == len(done.left_out)
    for qid, memory_id in missing:  # judges differ, or a line of columns cannot hold the id
        blank = any(name.strip() != name for name in (qid, memory_id))
        assert len(grades[qid, memory_id]) > 1 or blank


@given(memories=SOME_MEMORIES)
def test_no_cell_of_the_memories_is_a_formula(memories):
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "m.csv"
        write_dataset("memories-csv", DataSet(memories), path)
        rows = list(csv.reader(io.StringIO(path.read_bytes().decode(), newline="")))
    for row in rows:
        for cell in row:
            assert not cell.startswith(("=", "+", "-", "@", "\t", "\r"))
            assert csv_table.guarded(csv_table.restored(cell)) == cell
