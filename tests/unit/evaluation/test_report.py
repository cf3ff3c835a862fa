"""What is said of an evaluation: verdicts, statuses of queries, runs, tables and reports."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree as XML

import ir_measures
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sets import AS_LISTED, JUDGMENTS, NOW, OTHER_WAY, QUERIES, evidence, evidence_file, evidences
from typer.testing import CliRunner

from cems_workbench.analysis.why.report import explain
from cems_workbench.cli.main import commands
from cems_workbench.config import PipelineConfig, config_hash, dump_config, with_values
from cems_workbench.errors import InputError
from cems_workbench.evaluation.assertions import NoLoss, junit_xml
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.comparison import Comparison, compare
from cems_workbench.evaluation.evaluate import evaluate
from cems_workbench.evaluation.evidence_file import EvidenceFile, Header, read_evidence_file
from cems_workbench.evaluation.grades import K, QueryStatus, agreed_grades, query_statuses, relevant
from cems_workbench.evaluation.metrics import parse_measure, parse_measures
from cems_workbench.evaluation.report import markdown_report, per_query_rows, run_lines
from cems_workbench.evaluation.statistics import paired_interval
from cems_workbench.evaluation.verdict import Verdict, unseen, verdict_of_values
from cems_workbench.jobs.evaluation import LabelledEvidence, evaluate_configs, labelled_file
from cems_workbench.pipeline import Hit, RankedList, Variant, replay
from cems_workbench.pipeline.evidence import Evidence
from cems_workbench.records import Memory, Query
from cems_workbench.report.comparison import comparison_report
from cems_workbench.report.investigation import investigation_report
from cems_workbench.report.page import number, signed
from cems_workbench.ui.kit.html import csv_bytes
from workbench_fidelity.runs import run_of

MEASURES = parse_measures("hit@1 MRR nDCG@10")
NASTY = "a | b\n**c**"


@pytest.fixture
def batch() -> LabelledBatch:
    return LabelledBatch(QUERIES, evidences(), agreed_grades(JUDGMENTS), seconds_per_query=0.1)


@pytest.fixture
def comparison(batch: LabelledBatch) -> Comparison:
    other = OTHER_WAY.model_copy(update={"name": NASTY})
    return compare([evaluate(batch, one, MEASURES) for one in (AS_LISTED, other)])


def test_a_run_is_read_back_and_measures_the_same_elsewhere(batch: LabelledBatch, tmp_path: Path) -> None:
    evaluation = evaluate(batch, AS_LISTED, MEASURES)
    path = tmp_path / "results.run"
    path.write_text(run_lines(batch, evaluation.rankings), encoding="utf-8")
    run = run_of(path.read_text(encoding="utf-8"), str(path), [])
    assert run is not None
    for qid, results in zip(batch.qids, evaluation.results, strict=True):
        assert tuple(row.memory_id for row in run.results.get(qid, ())) == results
    grades = [
        (qid, key, grade) for qid, given in zip(batch.qids, batch.grades, strict=True) for key, grade in given.items()
    ]
    qrels = [ir_measures.Qrel(*row) for row in grades if row[0] not in evaluation.without_relevant]
    found = ir_measures.calc_aggregate(
        [ir_measures.RR, ir_measures.nDCG @ 10], qrels, ir_measures.read_trec_run(str(path))
    )
    means = {str(one.measure): one.mean for one in evaluation.summaries}
    assert found[ir_measures.RR] == pytest.approx(means["MRR"])
    assert found[ir_measures.nDCG @ 10] == pytest.approx(means["nDCG@10"])


def test_a_table_of_queries_has_a_row_a_query_and_config_and_opens_as_csv(comparison: Comparison) -> None:
    text = csv_bytes(*per_query_rows(comparison)).decode("utf-8-sig")
    header, *rows = csv.reader(io.StringIO(text))
    assert header == ["qid", "type", "config", "hit@1", "MRR", "nDCG@10"]
    assert len(rows) == 2 * len(comparison.evaluations[0].qids)
    found = {(qid, config): line for qid, _, config, *line in rows}
    assert found["q1", "as_listed"] == ["1.0", "1.0", "1.0"]
    assert found["q5", NASTY] == ["", "", ""], "nothing is relevant to it"


def test_a_report_is_markdown_whose_tables_hold_together_whatever_a_config_is_called(comparison: Comparison) -> None:
    report = markdown_report(comparison, "small | set", "0123456789abcdef0", "a note")
    tables = [block.splitlines() for block in report.split("\n\n") if block.startswith("|")]
    assert len(tables) == 3
    for lines in tables:
        assert len({line.replace("\\|", "").count("|") for line in lines}) == 1
    assert "# small \\| set: 5 queries" in report and "a note" in report
    means, _, difference = tables
    assert means[2].startswith("| as_listed | 0.250 (") and means[2].endswith("| 100 | 0 | 0 |")
    assert difference[2].startswith("| hit@1 | -0.250 |")
    assert f"Evidence 0123456789abcdef; as_listed {config_hash(AS_LISTED)[:16]}, " in report
    hostile = markdown_report(comparison, "![x](//h/i.png)<img src=x> `a`\x1b[31m", "0" * 64, "<script>")
    assert not re.search(r"(?<!\\)[<>!\[`]|\x1b", hostile.split("\n\n|")[0])


MOMENT = datetime(2026, 11, 24, 12, tzinfo=UTC)
HOSTILE = "</style></title><script>alert(1)</script><img src=x onerror=alert(2)> {{ 7 * 7 }} \u202egnp.exe"
SECRET = "zanzibar"


def hostile(query: str) -> Evidence:
    """Evidence whose memories say what nobody should obey, and a secret."""
    found = evidence(query)
    memories = {
        key: replace(memory, content=f"{HOSTILE} {SECRET} of {key}", title=f"{SECRET} {HOSTILE}")
        for key, memory in found.memories.items()
    }
    return replace(found, memories=memories)


def hostile_file(folder: Path) -> Path:
    path = folder / "hostile.evidence"
    header = Header("small", "store1", 1, "minilm", dump_config(AS_LISTED), NOW.isoformat())
    queries = [replace(query, query=f"{query.query} {SECRET} {HOSTILE}") for query in QUERIES]
    with EvidenceFile.create(path, header, queries, JUDGMENTS) as file:
        for query in queries:
            file.add(query.qid, hostile(query.query), 0.1)
        file.finish()
    return path


def compared(path: Path) -> tuple[Comparison, LabelledEvidence]:
    of_file = labelled_file(read_evidence_file(path), None)
    configs = [(config.name, config) for config in (AS_LISTED, OTHER_WAY)]
    measured, _ = evaluate_configs(configs, lambda _: of_file, parse_measures("hit@1 nDCG@10", 1))
    return compare([row.evaluation for row in measured]), of_file


def rows(page: str) -> list[list[str]]:
    """The cells of every row of every table, without tags."""
    found = re.findall(r"<tr[^>]*>(.*?)</tr>", page, re.DOTALL)
    return [re.findall(r"<t[hd][^>]*>([^<]*)</t[hd]>", row) for row in found]


def test_every_figure_is_that_of_the_comparison(tmp_path: Path) -> None:
    comparison, of_file = compared(evidence_file(tmp_path))
    page = comparison_report(comparison, [of_file, of_file], MOMENT)
    cells = rows(page)
    for one in comparison.compared[0].differences:
        assert one.losses
        assert [
            str(one.measure),
            number(one.baseline),
            number(one.value),
            signed(one.difference),
            f"{signed(one.low)} to {signed(one.high)}",
            number(one.p_holm),
            number(one.effect, ".2f"),
            f"{len(one.wins)} / {len(one.losses)} / {one.ties}",
        ] in [row[:8] for row in cells]
    for m, measure in enumerate(comparison.evaluations[0].measures):
        summaries = [evaluation.summaries[m] for evaluation in comparison.evaluations]
        said = [f"{number(row.mean)} ({number(row.low)} to {number(row.high)})" for row in summaries]
        assert [str(measure), *said] in cells
    assert of_file.content_hash in page and "2026-11-24 12:00 UTC" in page
    assert re.findall(r'<summary>.*?<span class="id">(\w+)</span>', page) == ["q1", "q3"]  # q2 won, q4 has no results
    assert "text a" in page and "grade 3, relevant" in page and "8th in the other" in page


def test_a_hostile_text_is_text_and_a_redacted_one_is_not_there(tmp_path: Path) -> None:
    comparison, of_file = compared(hostile_file(tmp_path))
    found = hostile(f"{SECRET} {HOSTILE}")
    why = explain("h", found, AS_LISTED, k=3)
    trace = replay(found, AS_LISTED)
    pages = [comparison_report(comparison, [of_file, of_file], MOMENT), investigation_report(why, trace, MOMENT)]
    for page in pages:
        assert "&lt;script&gt;alert(1)" in page and "{{ 7 * 7 }}" in page
        assert not re.search(r"<img|\u202e", page) and page.count("</style>") == 1
        (script,) = re.findall(r"<script[^>]*>(.*?)</script>", page, re.S)
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert re.search(f"default-src 'none'; [^>]*script-src 'sha256-{re.escape(digest)}';", page)
        assert not re.search(r"""(src|href)=|url\(|@import""", page.replace("src=x onerror", ""))
        assert len(page.encode()) < 5_000_000
    assert why.cause in pages[1] and f"{trace.results[0].score:.4f}" in pages[1]
    redacted = [
        comparison_report(comparison, [of_file, of_file], MOMENT, redact=True),
        investigation_report(why, trace, MOMENT, redact=True),
    ]
    for page in redacted:
        assert SECRET not in page and "alert(" not in page and "Texts were left out" in page
    assert ">q1<" in redacted[0] and '<span class="id">a</span>' in redacted[0] and ">h<" in redacted[1]


def test_the_command_writes_the_page_and_says_what_it_cannot(tmp_path: Path) -> None:
    path, out = str(evidence_file(tmp_path)), tmp_path / "report.html"
    files = []
    for config in (AS_LISTED, OTHER_WAY):
        files += ["--config", str(tmp_path / f"{config.name}.yaml")]
        Path(files[-1]).write_text(dump_config(config))
    ended = CliRunner().invoke(commands, ["report", "compare", path, *files, "--out", str(out)])
    assert ended.exit_code == 0 and "other_way against as_listed" in out.read_text("utf-8")
    alone = CliRunner().invoke(commands, ["report", "compare", path, *files[:2], "--out", str(out)])
    assert "at least two configs" in str(alone.exception)
    other = CliRunner().invoke(commands, ["report", "compare", path, *files, "--out", str(out), "--sort-by", "MRR@3"])
    assert "--sort-by MRR@3: it was not measured" in str(other.exception)


NDCG, NOISE = parse_measure("nDCG@10"), parse_measure("noise@5")
NAMES = ("new", "old")


def verdict(differences: list[float], tolerance: float = 0.01, measure: object = NDCG) -> Verdict:
    return verdict_of_values(NAMES, measure, np.array(differences, dtype=float), None, tolerance)  # type: ignore[arg-type]


def test_student_interval_by_hand() -> None:
    low, high = paired_interval(np.array([[1.0], [2.0], [3.0], [np.nan]]))[:, 0]
    assert (low, high) == pytest.approx((2 - 4.30265 / math.sqrt(3), 2 + 4.30265 / math.sqrt(3)), abs=1e-4)
    assert np.isnan(paired_interval(np.array([[0.3]]))).all()


@pytest.mark.parametrize(
    ("differences", "kind", "said"),
    [
        ([0.2, 0.1] * 30, "pass",
         "60 better, 0 worse, 0 the same of 60 queries by nDCG@10, new against old: +0.150 [+0.137, +0.163], 95 % interval. "
         "Pass: it is better."),
        ([0.002, -0.002] * 80, "pass", "+0.000 [-0.000, +0.000], 95 % interval. Pass: a loss of more than 0.01 is excluded."),
        ([-0.3, -0.1] * 30, "fail", "-0.200 [-0.226, -0.174], 95 % interval. Fail: a loss of more than 0.01 is shown."),
        ([0.5, -0.5, 0, 0] * 10, "cannot tell", "40 queries cannot exclude a loss of more than 0.01; about 10,000 queries would tell."),
        ([0.0] * 60, "cannot tell", "60 queries cannot exclude that 5% of all queries lose everything; about 150 queries would tell."),
        ([0.0] * 59 + [0.1], "cannot tell", 
         "1 better, 0 worse, 59 the same of 60 queries by nDCG@10, new against old: +0.002 [-0.002, +0.005], 95 % interval. "
         "60 queries cannot exclude that 5% of all queries lose everything; about 160 queries would tell"),
        ([0.002, -0.002] * 30, "cannot tell", "cannot exclude that 5% of all queries lose everything; about 150 queries would tell"),
        ([0.0] * 150, "pass", "Pass: a loss of more than 0.01 is excluded"),
        ([0.3] * 9, "cannot tell", "+0.300. It looks better. 9 queries cannot exclude a loss of more than 0.01; at least 10 are needed."),
        ([-0.9, -0.1, -0.2, -0.4, 0.1, 0.2], "cannot tell", "It looks worse. 6 queries cannot exclude a loss of more than 0.01"),
        ([-0.006, -0.004] * 6, "cannot tell", "It looks worse. 12 queries cannot"),
        ([-0.9], "cannot tell", "-0.900. 1 query cannot exclude a loss of more than 0.01; at least 10 are needed."),
        ([], "cannot tell", "no query has a value under both. 0 queries cannot"),
    ],
)  # fmt: skip
def test_kind_and_sentence(differences: list[float], kind: str, said: str) -> None:
    found = verdict(differences)
    assert (found.kind, said in found.sentence) == (kind, True), found.sentence
    assert ("lose everything" in found.brief) == ("lose everything" in found.sentence)


@pytest.mark.parametrize(
    ("differences", "p", "line", "lacking"),
    [
        ([-0.15, 0.08] * 60, 0.004, "Fail: new loses nDCG@10 against old: -0.035 over 120 queries, p 0.004, below 0.05.", ()),
        ([-0.15, 0.08] * 60, 0.3,
         "Pass: new shows no significant loss of nDCG@10 against old: -0.035 over 120 queries, p 0.3, not below 0.05.", ()),
        ([0.0] * 60, 1.0, "Pass: new loses no nDCG@10 against old: +0.000 over 60 queries.", ()),
        ([0.01, 0.0] * 20, 0.0, "Pass: new loses no nDCG@10 against old: +0.005 over 40 queries.", ()),
        ([-0.15, 0.08] * 60, 0.004, "Not measured: new: 7 queries lack scores. Without that: 60 better, 60 worse, 0 the same of "
         "120 queries by nDCG@10, new against old: -0.035 [-0.056, -0.014], 95 % interval.", ("new: 7 queries lack scores",)),
    ],
)  # fmt: skip
def test_a_test_is_the_only_verdict_and_what_was_not_measured_comes_first(differences, p, line, lacking):
    """`ci check` said "cannot tell", then "LOSS, sure", and last what was not measured (found beside peers, 29 November 2026)."""
    guard = NoLoss(NDCG, level=0.05)
    found = verdict_of_values(NAMES, NDCG, np.array(differences), None, 0.0, False, lacking)
    outcome = guard.decided(guard.tested(found, lambda: p), "pass")
    assert outcome.line == line and outcome.verdict is not None and outcome.verdict.sentence == line
    assert outcome.holds is line.startswith("Pass") and not outcome.undecided


def test_what_was_not_measured_leaves_the_verdict_open() -> None:
    found = verdict_of_values(NAMES, NDCG, np.full(60, 0.2), lacking=("new: 7 queries lack scores",))
    assert (found.kind, found.queries_needed, found.unmeasured) == ("cannot tell", None, True)


def test_results_that_are_the_same_pass_however_few() -> None:
    found = verdict_of_values(NAMES, NDCG, np.zeros(2), None, 0.0, same_results=True)
    assert (
        found.sentence
        == "0 better, 0 worse, 2 the same of 2 queries by nDCG@10, new against old: +0.000. Pass: no result changed."
    )
    nothing = verdict_of_values(NAMES, NDCG, np.zeros(0), same_results=True)
    assert nothing.kind == "cannot tell" and "no query has a value under both" in nothing.sentence


def test_queries_needed_follow_from_the_spread() -> None:
    differences = [0.4, -0.4] * 50
    deviation = np.std(differences, ddof=1)
    assert verdict(differences).queries_needed == math.ceil(((1.959964 + 0.841621) * deviation / 0.01) ** 2)
    close = [-0.02, -0.005] * 150 + [-0.02] * 4  # at the tolerance itself a loss of 0 was excluded long ago
    assert verdict(close, 0.0125).sentence.endswith("queries would tell a loss as large as this one.")
    assert "; more than 100,000 queries would be needed" in verdict([0.9, -0.9] * 20, 0.005).sentence
    assert unseen(0.01) == 299 and math.isinf(unseen(0))


@given(
    st.lists(st.floats(-1, 1, allow_subnormal=False), min_size=10, max_size=60),
    st.sampled_from([0.0, 0.005, 0.01, 0.1]),
)
def test_harm_is_judged_the_other_way_round(differences: list[float], tolerance: float) -> None:
    gained, harmed = verdict(differences, tolerance), verdict([-one for one in differences], tolerance, NOISE)
    assert (gained.kind, gained.queries_needed) == (harmed.kind, harmed.queries_needed)
    assert gained.low == pytest.approx(-harmed.high)


@given(st.lists(st.floats(-1, 1, allow_subnormal=False), min_size=10, max_size=60))
def test_a_larger_tolerance_never_turns_a_pass_into_a_loss(differences: list[float]) -> None:
    order = ["fail", "cannot tell", "pass"]
    kinds = [order.index(verdict(differences, tolerance).kind) for tolerance in (0.0, 0.01, 0.1, 1.0)]
    assert kinds == sorted(kinds)


@pytest.mark.parametrize("queries", [30, 129, 400])
def test_a_loss_of_a_few_queries_that_lose_all_hardly_passes(queries: int) -> None:
    drawn = np.random.default_rng(5)
    size = np.where(drawn.random((600, queries)) < 0.05, 0.3, 0.0) * drawn.choice([-1, 1], (600, queries))
    lost = np.where(drawn.random((600, queries)) < 0.02, -1.0, size)  # a true loss of 0.02, twice the tolerance
    assert [verdict_of_values(NAMES, NDCG, one).kind for one in lost].count("pass") <= 30  # 5 %


@pytest.mark.parametrize("tolerance", [-0.01, math.nan, math.inf])
def test_a_tolerance_is_a_number_of_at_least_0(tolerance: float) -> None:
    with pytest.raises(InputError, match="expected a number of at least 0, in units of the measure"):
        verdict([0.1] * 20, tolerance)


def test_junit_has_what_cannot_be_told_as_skipped() -> None:
    found, guard = verdict([0.5, -0.5] * 10), NoLoss(NDCG)
    suite = XML.fromstring(
        junit_xml([guard.decided(found), guard.decided(found, "fail"), guard.decided(found, "pass")], "x")
    )
    assert (suite.get("failures"), suite.get("skipped")) == ("1", "1")
    told = suite[0].find("skipped")
    assert told is not None and told.get("message") == found.sentence


RANKED_AS_LISTED = with_values(
    PipelineConfig(), {"adjust.priority": False, "adjust.time_decay.mode": "none", "filter.min_score": None}
)
RESULTS = "abcdefgh"


def status_evidence(results: Sequence[str] = RESULTS) -> Evidence:
    hits = tuple(Hit(key, 0.9 - 0.01 * i) for i, key in enumerate(results))
    return Evidence(
        query="q",
        memories={key: Memory(key, f"text {key}") for key in results},
        variants=(Variant("q"),),
        lists=(RankedList("vector:0", "vector", 0, hits),),
    )


def status(grades: Mapping[str, int], results: Sequence[str] = RESULTS, relevant_from: int = 2) -> QueryStatus:
    (row,) = query_statuses(
        [Query("q1", "q")], [status_evidence(results)], {"q1": grades}, RANKED_AS_LISTED, {"q1": relevant_from}
    )
    return row


def said(row: QueryStatus) -> tuple[str, int | None]:
    return row.status, row.best_rank


@pytest.mark.parametrize(
    ("grades", "expected"),
    [
        ({"a": 3}, ("found", 1)),
        ({"c": 3, "d": 2}, ("found", 3)),
        ({"b": 3, "c": 3}, ("found", 2)),
        ({"e": 2}, ("found", 5)),
        ({"a": 2, "b": 3}, ("low", 1)),
        ({"a": 0, "b": 3}, ("low", 2)),
        ({"a": 1, "b": 3}, ("low", 2)),
        ({"a": 2, "absent": 3}, ("low", 1)),
        ({"f": 3}, ("missed", 6)),
        ({"a": 1, "f": 2}, ("missed", 6)),
        ({"absent": 3}, ("missed", None)),
        ({"a": 0}, ("none known", None)),
        ({}, ("none known", None)),
    ],
)
def test_statuses(grades: dict[str, int], expected: tuple[str, int | None]) -> None:
    """Results are a, b, c, ... in this order, and K is 5."""
    assert K == 5
    assert said(status(grades)) == expected


@pytest.mark.parametrize(("relevant_from", "expected"), [(1, ("low", 1)), (2, ("low", 2)), (3, ("missed", 6))])
def test_the_query_set_says_from_which_grade_on_is_relevant(relevant_from, expected):
    grades = {"a": 1, "b": 2, "f": 3}
    assert relevant(grades, relevant_from) == {"f"} | ({"b"} if relevant_from < 3 else set()) | (
        {"a"} if relevant_from < 2 else set()
    )
    assert said(status(grades, relevant_from=relevant_from)) == expected


def test_failing_queries_come_first_then_by_qid() -> None:
    grades: dict[str, dict[str, int]] = {
        "q1": {"a": 3},
        "q2": {},
        "q3": {"a": 2, "b": 3},
        "q4": {"absent": 2},
        "q5": {"a": 3},
        "q0": {"h": 3},
    }
    queries = [Query(qid, "q") for qid in grades]
    rows = query_statuses(
        queries, [status_evidence() for _ in queries], grades, RANKED_AS_LISTED, dict.fromkeys(grades, 1)
    )
    assert [(row.query.qid, row.status) for row in rows] == [
        ("q0", "missed"),
        ("q4", "missed"),
        ("q3", "low"),
        ("q1", "found"),
        ("q5", "found"),
        ("q2", "none known"),
    ]


def test_that_there_is_no_answer_is_said_and_a_relevant_judgment_wins() -> None:
    grades: dict[str, dict[str, int]] = {"q1": {"a": 0}, "q2": {}, "q3": {"a": 3}}
    queries = [Query(qid, "q", answerable=False) for qid in grades]
    rows = query_statuses(
        queries, [status_evidence() for _ in queries], grades, RANKED_AS_LISTED, dict.fromkeys(grades, 1)
    )
    assert [(row.query.qid, row.status) for row in rows] == [("q3", "found"), ("q1", "no answer"), ("q2", "no answer")]
