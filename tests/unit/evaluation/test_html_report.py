"""One-file HTML reports: figures are those of the comparison, hostile texts stay text, redaction leaves ids alone."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sets import AS_LISTED, JUDGMENTS, NOW, OTHER_WAY, QUERIES, evidence, evidence_file
from typer.testing import CliRunner

from cems_workbench.analysis.why import explain
from cems_workbench.cli.main import commands
from cems_workbench.config import dump_config
from cems_workbench.evaluation.comparison import Comparison, compare
from cems_workbench.evaluation.evidence_file import EvidenceFile, Header, read_evidence_file
from cems_workbench.evaluation.metrics import parse_measures
from cems_workbench.jobs.evaluation import LabelledEvidence, evaluate_configs, labelled_file
from cems_workbench.pipeline import replay
from cems_workbench.pipeline.evidence import Evidence
from cems_workbench.report.comparison import comparison_report
from cems_workbench.report.figures import number, scale_of, signed
from cems_workbench.report.investigation import investigation_report

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


@pytest.mark.parametrize(
    ("values", "ticks"), [([0.2, 0.9], ["0", "0.2", "0.4", "0.6", "0.8", "1"]), ([float("nan")], None)]
)
def test_a_scale_holds_its_values(values: list[float], ticks: list[str] | None) -> None:
    scale = scale_of(values)
    assert (scale.low, scale.high) == (0, 1) and (ticks is None or [words for _, words in scale.ticks] == ticks)
    around = scale_of([-0.03, 0.1], around_zero=True)
    assert around.share(0) == 50 and 0 < around.share(-0.03) < around.share(0.1) < 100
