"""Files of public reports, as people have them: what each brings into a store of twelve memories and six queries, and what is said of it.

The inputs are small ones written after the reports (tests/recordings/reports); a case names its report and the day it was made.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cems_workbench.errors import InputError
from cems_workbench.jobs.traces import add_input, inputs_of
from cems_workbench.records import GradeScale
from cems_workbench.store import ImportOptions, Store

REPORTS = Path(__file__).parent.parent / "recordings" / "reports"
PLAIN = ImportOptions()
Grades = Mapping[tuple[str, ...], int]


def graded(grades: Iterable[int]) -> GradeScale:
    return GradeScale(tuple((grade, f"Grade {grade}") for grade in grades))


@dataclass(frozen=True)
class Case:
    """`path` below the folder of reports, `report` and its day; then the rows that are new, and the words of what is said.

    `grades` are all judgments by the words of the query, the memory and, where there are several, the judge;
    `answers` the ids that were recorded, `queries` the words of the new queries.
    """

    path: str
    report: str
    memories: int = 0
    queries: tuple[str, ...] = ()
    grades: Grades = field(default_factory=dict)
    answers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    said: tuple[str, ...] = ()
    refused: str = ""
    options: ImportOptions = PLAIN


RELEASES, STAGING, CACHE = (
    "how do releases reach the cluster",
    "when is the staging database restored",
    "-no-cache image build",
)
INVOICES, KEYS, PHONE = "how are invoices rounded", "where are deploy keys kept", "iPhone on call handover"
SPEED, SHOP = "What speed is my new internet plan?", "Which shop did I visit?"
GROUP, FIRST, SEA = "When did Ana go to the group?", "What did Ana do first and then?", "Which sea did Mel swim in?"
BOTH = {(RELEASES, "m01"): 2, (STAGING, "m02"): 1}
CASES = [
    Case(
        "01-quepid-unrated-queries/case_12_judgements.csv",
        "quepid#364, 2021-05-28",
        queries=("who hands over the phone",),
        grades={(RELEASES, "m01"): 3},
        said=("3 rows have no rating",),
    ),
    Case(
        "02-quepid-blank-guard/case_13_judgements.csv",
        "quepid's exports, seen 2026-11",
        grades={(RELEASES, "m01"): 3, (CACHE, "m04"): 3, (CACHE, "m01"): 0},
    ),
    Case(
        "04-quepid-book-no-judges/book_4_export.csv",
        "quepid's book without judges, seen 2026-11",
        said=("the book has no judge", "2 queries to be judged"),
    ),
    Case(
        "03-quepid-book-same-name/book_3_export.csv",
        "quepid#758, 2023-06-13",
        grades={
            (RELEASES, "m01", "Kim Lee"): 3,
            (RELEASES, "m07", "Kim Lee"): 1,
            (RELEASES, "m01", "Kim Lee (2)"): 2,
            (RELEASES, "m07", "Kim Lee (2)"): 0,
            (RELEASES, "m07", "Unknown"): 1,
        },
        said=("'Kim Lee' names 2 judges",),
    ),
    Case("06-quepid-other-exports/book_5.json", "quepid's book JSON", grades={(INVOICES, "m05"): 3}),
    Case(
        "06-quepid-other-exports/case_15_ltr.txt",
        "quepid's LTR export",
        grades={(RELEASES, "m01"): 3, (RELEASES, "m07"): 0, (INVOICES, "m05"): 2},
    ),
    Case(
        "06-quepid-other-exports/case_15_rre.json",
        "quepid's RRE export",
        grades={(INVOICES, "m05"): 3, (INVOICES, "m06"): 1},
    ),
    Case(
        "07-srw-llm-floats/judgments.json",
        "search-relevance#44, 2025-06-03",
        grades={(RELEASES, "m01"): 1, (INVOICES, "m05"): 3, (INVOICES, "m06"): 0},
        left_out=("--grade",),
    ),
    Case(
        "07-srw-llm-floats/judgments.json",
        "search-relevance#44, 2025-06-03, with its grades stated",
        grades={(RELEASES, "m01"): 1, (RELEASES, "m07"): 1, (INVOICES, "m05"): 3, (INVOICES, "m06"): 0},
        options=ImportOptions(grades={"0..0.5": 0, "0.5..1": 1}),
    ),
    Case(
        "09-mteb-jsonl-qrels/ds",
        "the card of mteb/nfcorpus, seen 2026-11",
        memories=4,
        queries=("what lowers blood pressure", "what raises the pulse"),
        grades={("what lowers blood pressure", "d2"): 1, ("what raises the pulse", "4"): 1},
        said=("qrels/test.jsonl",),
    ),
    Case(
        "12-longmemeval-variants/lme_iso_session_level.json",
        "LongMemEval#10, 2025-08-25, and mteb#4415, 2026-04-17",
        memories=5,
        queries=(SPEED, SHOP),
        grades={(SPEED, "cc33/s_gold/1"): 1, (SPEED, "cc33/s_gold/2"): 1, (SHOP, "dd44/s_g2/1"): 1},
        said=("2 questions name sessions in answer_session_ids",),
    ),
    *(
        Case(
            f"13-longmemeval-v2/{path}", "LongMemEval-V2, seen 2026-11", refused="LongMemEval-V2, which names no memory"
        )
        for path in ("haystacks", "questions.jsonl", "trajectories.jsonl")
    ),
    Case(
        "14-locomo-refined/locomo_refined.json",
        "the refined LoCoMo, seen 2026-11",
        memories=4,
        queries=(GROUP, "What did Ana paint?", FIRST, SEA, "String category?"),
        grades={
            (GROUP, "conv-26r/D1:1"): 1,
            (FIRST, "conv-26r/D1:1"): 1,
            (FIRST, "conv-26r/D2:1"): 1,
            (SEA, "conv-26r/D2:2"): 1,
            ("String category?", "conv-26r/D2:2"): 1,
        },
        said=("1 questions name no turn that answers them",),
    ),
    Case(
        "14-locomo-refined/locomo10_rag.json",
        "the form that mem0's evaluation makes of LoCoMo, seen 2026-11",
        memories=1,
        queries=(GROUP,),
    ),
    Case("20-memory-system-exports/mem0_get_all.json", "what mem0 returns, seen 2026-11", memories=1, said=("hash",)),
    Case("20-memory-system-exports/mem0_list.json", "what mem0 returns, seen 2026-11", memories=1, said=("hash",)),
    Case("20-memory-system-exports/langgraph_items.json", "what LangGraph returns, seen 2026-11", memories=1),
    Case("20-memory-system-exports/graphiti_edges.json", "what Graphiti returns, seen 2026-11", memories=1),
    Case("20-memory-system-exports/openbrain.jsonl", "rows with epoch times, seen 2026-11", memories=4),
    Case(
        "21-ragas-deepeval/goldens.json",
        "DeepEval's goldens, seen 2026-11",
        grades={(INVOICES, "m05"): 1},
        said=("answer not recorded",),
    ),
    *(
        Case(f"22-runs/{name}.run", report, refused="is a TREC run.*fidelity FILE reads it")
        for name, report in (("conflict", "trec_eval#22, 2020-03-16"), ("rank0", "beir#212, 2026-03-24"))
    ),
    Case(
        "21-ragas-deepeval/ragas.jsonl",
        "RAGAS sets with ids, seen 2026-11",
        grades={(INVOICES, "m05"): 1},
        answers={INVOICES: ("m05", "m06")},
    ),
    Case(
        "23-csv-locale/blanks.csv",
        "blanks after commas, seen 2026-11",
        grades={(RELEASES, "m01"): 2, (INVOICES, "m05"): 3},
    ),
    Case(
        "23-csv-locale/excel_de.csv",
        "a German Excel, seen 2026-11",
        grades={(RELEASES, "m01"): 2, (INVOICES, "m05"): 3},
    ),
    Case(
        "24-overwrite-by-queries/nf_queries.jsonl",
        "BEIR's queries with a column of titles, seen 2026-11",
        queries=("what lowers blood pressure", "does salt raise the pulse"),
    ),
    Case(
        "25-locomo-project/locomo10.json",
        "basic-memory#617, 2026-02-27",
        memories=9,
        queries=("What is the name of the dog that was adopted?",),
        grades={("What is the name of the dog that was adopted?", f"conv-{each}/D1:1"): 1 for each in (1, 2, 3)},
        said=("each query names the project of its conversation",),
    ),
    Case("26-payload-times/times.jsonl", "epoch times of datasets and pandas, seen 2026-11", memories=5),
    *(
        Case(f"27-qrels-in-the-wild/{name}", f"qrels of {tool}, seen 2026-11", grades=grades)
        for name, tool, grades in (
            ("comment.qrels", "TREC with a comment", BOTH),
            ("header.qrels", "TREC with a header", BOTH),
            ("headerless.tsv", "a table without a header", BOTH | {(KEYS, "m11"): 2}),
            ("irds.jsonl", "ir_datasets", BOTH),
            ("irds.tsv", "ir_datasets", BOTH),
            ("pyterrier.csv", "PyTerrier", BOTH),
            ("quepid_detailed.csv", "Quepid's detailed export", {(RELEASES, "m01"): 3}),
            ("quepid_ltr.txt", "Quepid's LTR export", {(RELEASES, "m01"): 3, (RELEASES, "m07"): 0}),
            ("ranx_qrels.json", "ranx", BOTH | {(RELEASES, "m07"): 0}),
        )
    ),
    Case(
        "27-qrels-in-the-wild/irds_numeric.tsv",
        "qrels of ir_datasets for queries that are not there",
        left_out=("no query '10' in the store", "no query '11' in the store"),
    ),
    Case(
        "27-qrels-in-the-wild/quepid_trec.txt",
        "Quepid's TREC export, which numbers its queries",
        left_out=("no query '1' in the store", "no query '1' in the store", "no query '2' in the store"),
    ),
    Case(
        "27-qrels-in-the-wild/numeric",
        "a corpus and queries with numbers as ids, seen 2026-11",
        memories=4,
        queries=("what lowers blood pressure", "what raises the pulse"),
    ),
    Case(
        "29-openinference-inputs/spans.jsonl",
        "openinference#883, seen 2026-11",
        answers={RELEASES: ("m01",)},
        left_out=("has no words of a query",),
    ),
    Case(
        "10-qrels-negative-grades/web.qrels",
        "trec_eval#29, 2020-11-25",
        grades={(RELEASES, "m01"): 2, (STAGING, "m02"): 1, (KEYS, "m11"): 2, (KEYS, "m04"): 0},
        left_out=("--scale -2..3", "--scale -2..3", "--scale -2..3"),
    ),
    Case(
        "10-qrels-negative-grades/web.qrels",
        "trec_eval#29, 2020-11-25, with its scale",
        grades={
            (RELEASES, "m01"): 2,
            (RELEASES, "m07"): -1,
            (RELEASES, "m09"): -2,
            (STAGING, "m02"): 1,
            (STAGING, "m09"): -2,
            (KEYS, "m11"): 2,
            (KEYS, "m04"): 0,
        },
        options=ImportOptions(query_set="base", scale=graded(range(-2, 4))),
    ),
    Case(
        "16-openinference-json-string/spans.jsonl", "openinference#2627, 2026-01-20", answers={RELEASES: ("m01", "m07")}
    ),
    Case(
        "15-otel-genai/otlp.json",
        "semantic-conventions-genai#139, 2026-05-11, and jaeger-ui#4434, 2026-09-04",
        answers={RELEASES: ("m01", "m07"), INVOICES: ("m05",)},
    ),
    Case("18-phoenix-rest-page/spans.json", "Phoenix's REST page", answers={RELEASES: ("m01",)}),
    *(
        Case(f"34-engine-answers/{name}.json", report, left_out=("would replace memory",) * rows)
        for name, report, rows in (
            ("a_mem_distance_score", "A-mem#23, 2026-02-28", 2),
            ("chroma_get", "Chroma's get(), seen 2026-11", 2),
            ("pgvector_rows", "rows of pgvector, seen 2026-11", 2),
            ("letta_passages", "Letta's passages, seen 2026-11", 1),
        )
    ),
    *(
        Case(
            f"34-engine-answers/{name}.json",
            "what an engine found, seen 2026-11",
            refused="may be memories, or what a query",
        )
        for name in (
            "chroma_query",
            "elastic",
            "graphiti_edges",
            "langgraph_search",
            "llamaindex_nodes",
            "mem0_search",
            "qdrant_rest",
            "weaviate",
        )
    ),
    Case("34-engine-answers/zep_facts.json", "Zep's facts, seen 2026-11", memories=1),
]


def rows_of(store: Store) -> tuple[int, dict[str, str], dict[tuple[str, str, str], int]]:
    words = {query.qid: query.query for query in store.queries.read()}
    grades = {(words[each.qid], each.memory_id, each.judge): each.grade for each in store.judgments.read()}
    return store.memories.count(), words, grades


@pytest.fixture(scope="module")
def base_store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base") / "store"
    with Store.open(folder) as store:
        for name, query_set in (("memories.jsonl", None), ("queries.jsonl", "base")):
            for parsed in inputs_of(REPORTS / "base" / name, "auto"):
                add_input(parsed, store, options=ImportOptions(query_set=query_set))
    return folder


@pytest.fixture
def base(base_store, tmp_path):
    with Store.open(shutil.copytree(base_store, tmp_path / "store")) as store:
        yield store


def imported(base, path, options=PLAIN):
    reports = [add_input(parsed, base, options=options) for parsed in inputs_of(REPORTS / path, "auto")]
    return [str(error) for each in reports for error in each.errors], [note for each in reports for note in each.notes]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.path)
def test_file_of_a_report(base, case):
    before, known, _ = rows_of(base)
    if case.refused:
        with pytest.raises(InputError, match=case.refused):
            imported(base, case.path, case.options)
        return
    left_out, notes = imported(base, case.path, case.options)
    memories, words, grades = rows_of(base)
    assert memories - before == case.memories
    assert set(words.values()) - set(known.values()) == set(case.queries)
    length = max(map(len, case.grades), default=2)
    assert {key[:length]: grade for key, grade in grades.items()} == dict(case.grades)
    recorded = {
        words[one.qid]: tuple(each.memory_id for each in one.returned)
        for name in base.recorded_answers.sets()
        for one in base.recorded_answers.read(name)
    }
    assert recorded == dict(case.answers)
    assert len(left_out) == len(case.left_out) and all(
        said in line for said, line in zip(case.left_out, left_out, strict=True)
    )
    for said in case.said:
        assert any(said in note for note in notes), notes


def test_what_another_import_brought_is_replaced_only_on_demand(base):
    path = "34-engine-answers/chroma_get.json"  # Chroma's get(), seen 2026-11
    before = base.memories.read(["m01", "m07"])
    notes = imported(base, path)[1]
    assert any("2 memories would be replaced, which base/memories.jsonl brought" in note for note in notes), notes
    assert base.memories.read(["m01", "m07"]) == before
    assert imported(base, path, ImportOptions(replace=True))[0] == []
    assert base.memories.read(["m07"])["m07"].content == "The rollback command"
