"""The report of a tuning says what the result says, of every kind of end that a search can have."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.synthetic_queries import fusion_only
from cems_workbench.cli.main import commands
from cems_workbench.evaluation.evidence_file import read_evidence_file
from cems_workbench.jobs.evaluation import labelled_file
from cems_workbench.jobs.tuning import (
    ByJudgments,
    SearchResult,
    TuningData,
    card_of,
    open_holdout,
    planned_search,
    run_search,
    with_stability,
)
from cems_workbench.jobs.tuning_summary import headline
from cems_workbench.progress import silent
from cems_workbench.report.figures import number, signed
from cems_workbench.report.tuning import tuning_report
from cems_workbench.tuning.holdout import Gain, LooksFile
from cems_workbench.tuning.objective import parse_goal
from tests.planted import planted_file

MOMENT = datetime(2026, 11, 24, 12, tzinfo=UTC)
SPACE = ("lists.vector.weight=0.5:2.5:0.5", "fusion.score_blend=0:0.5:0.25")


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return planted_file(tmp_path_factory.mktemp("planted"), 40)


def searched(evidence: Path, *metrics: str, space: tuple[str, ...] = SPACE, trials: int = 12) -> SearchResult:
    read = read_evidence_file(evidence)
    data = TuningData(fusion_only(), read.header.query_set, labelled_file(read, None))
    planned = planned_search(
        data, parse_goal(list(metrics), ["recall@10-0.2"]), space, group_by="query", folds=3, trials=trials
    )
    return run_search(planned)


def text_of(page: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", page).split())


def cells(found: Gain, p: bool = True) -> str:
    return (
        f"{found.queries} {number(found.baseline)} {number(found.tuned)} {signed(found.difference)} "
        f"{signed(found.low)} to {signed(found.high)} {number(found.p) if p else '–'}"
    )


def test_gains_looks_stability_and_card_are_those_of_the_result(evidence: Path, tmp_path: Path) -> None:
    result = with_stability(searched(evidence, "nDCG@10", "hit@1"), silent)
    sealed = text_of(tuning_report(result, MOMENT))
    assert f"{len(result.planned.sealed)} queries are sealed; they were not looked at" in sealed
    result = open_holdout(result, LooksFile(tmp_path / "looks.json"))
    said = text_of(tuning_report(result, MOMENT))
    tuned = result.tuned
    assert tuned.validation is not None and tuned.holdout is not None
    assert headline(result) in said and "this was look 1 at them" in said
    assert cells(tuned.validation) in said and cells(tuned.holdout) in said
    assert "Guarded: recall@10" in said
    for region, (path, was, now) in zip(result.regions, changes(result), strict=True):
        assert f"{path} {was:g} {now:g} " in said and f"{region.low:g} to" in said.replace(
            "up to", f"{region.low:g} to"
        )
    assert all(line in said for line in card_of(result, "2026-11-24").text.split("\n")[0:1])
    assert result.planned.data.labelled.content_hash in said and "2026-11-24 12:00 UTC" in said
    assert said.count("nDCG@10 hit@1 lists.vector.weight") == 1  # the front, as a table
    assert said.count(" tried: nDCG@10 ") + said.count(" on the front: nDCG@10 ") >= sum(
        t.usable for t in tuned.search.trials
    )


def changes(result: SearchResult) -> list[tuple[str, float, float]]:
    space = result.planned.plan.space
    own = space.values_of(space.baseline)
    rows = zip(space.axes, own, result.tuned.proposal.values, strict=True)
    return [(axis.path, float(was), float(now)) for axis, was, now in rows]


def test_a_search_that_found_nothing_says_so(evidence: Path) -> None:
    said = text_of(tuning_report(searched(evidence, "nDCG@10", space=("judge.threshold=0.1:0.2:0.1",)), MOMENT))
    assert "the baseline is proposed" in said and "The best config reached" in said
    assert "Pareto" not in said and "Stable:" not in said


def test_what_no_judgment_chose_is_called_so_and_held_against_judgments(evidence: Path) -> None:
    result = searched(evidence, "nDCG@10")
    gains = [Gain(9, 0.4, 0.4 + step, step - 0.01, step + 0.01, 0.01) for step in (0.1, 0.2, 0.3, 0.4)]
    planned = replace(result.planned, data=replace(result.planned.data, stands_in="a <b>reranker</b>"))
    found = ByJudgments("set", *gains, labelled_values={"fusion.k": 30})
    page = tuning_report(replace(result, planned=planned, by_judgments=found), MOMENT)
    said = text_of(page)
    assert "Unlabelled: no judgment chose this. The order of a &lt;b&gt;reranker" in said and "<b>reranker" not in page
    assert [cells(gain) in said for gain in gains] == [True, True, True, False]
    assert cells(gains[3], p=False) in said and "With judgments: fusion.k 30." in said


def test_tune_writes_it(evidence: Path, tmp_path: Path) -> None:
    out, html = tmp_path / "tuned.yaml", tmp_path / "tuned.html"
    options = ["--preset", "cems", "--space", SPACE[0], "--folds", "2", "--group-by", "query", "--trials", "5"]
    ended = CliRunner().invoke(commands, ["tune", str(evidence), "--out", str(out), "--html", str(html), *options])
    assert ended.exit_code == 0, ended.output
    assert "Tuning of cems on planted" in html.read_text("utf-8") and "Stable:" in html.read_text("utf-8")
