"""What an experiment is taken away as: each form is read back, and says what was measured."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import ir_measures
import pytest
from sets import AS_LISTED, JUDGMENTS, OTHER_WAY, QUERIES, evidences

from cems_workbench.config import config_hash
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.comparison import Comparison, compare
from cems_workbench.evaluation.evaluate import evaluate
from cems_workbench.evaluation.grades import agreed_grades
from cems_workbench.evaluation.metrics import parse_measures
from cems_workbench.evaluation.report import experiment_card, markdown_report, per_query_rows, trec_run
from cems_workbench.formats.runs import run_of
from cems_workbench.ui.kit.html import csv_bytes

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
    path.write_text(trec_run(batch, evaluation), encoding="utf-8")
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


def test_everything_as_json_gives_the_means_of_the_values_in_it(comparison: Comparison) -> None:
    card = json.loads(json.dumps(experiment_card(comparison, "small", "abc")))
    assert (card["query_set"], card["content_hash"], card["baseline"]) == ("small", "abc", "as_listed")
    for config in card["configs"]:
        values = [row["MRR"] for row in config["per_query"].values() if row["MRR"] is not None]
        assert config["measures"]["MRR"]["mean"] == pytest.approx(sum(values) / len(values))


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
