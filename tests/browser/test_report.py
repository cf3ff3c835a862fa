"""A report opened from disk with networking off: in both themes, at phone width, by whoever cannot see the figures."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from benchmarks.synthetic_queries import fusion_only
from cems_workbench.analysis.why import explain
from cems_workbench.evaluation.comparison import compare
from cems_workbench.evaluation.evidence_file import read_evidence_file
from cems_workbench.evaluation.metrics import parse_measures
from cems_workbench.pipeline import replay
from cems_workbench.progress import silent
from cems_workbench.report.comparison import comparison_report
from cems_workbench.report.investigation import investigation_report
from cems_workbench.report.tuning import tuning_report
from cems_workbench.runs.evaluation import evaluate_configs, labelled_file
from cems_workbench.runs.tuning import SearchResult, TuningData, planned_search, run_search, with_stability
from cems_workbench.tuning.objective import parse_goal
from tests.planted import planted_file

from ..unit.evaluation.sets import AS_LISTED, OTHER_WAY, evidence, evidence_file
from .accessibility import violations

pytestmark = pytest.mark.browser
MOMENT = datetime(2026, 11, 24, 12, tzinfo=UTC)
SHOWN = "[...document.querySelectorAll('.ranking .text')].map(text => text.checkVisibility())"
TOO_WIDE = "document.documentElement.scrollWidth > window.innerWidth"


def searched(folder: Path) -> SearchResult:
    """A search by two objectives on evidence whose best config is known, with the stability of what it proposes."""
    read = read_evidence_file(planted_file(folder, 40))
    data = TuningData(fusion_only(), read.header.query_set, labelled_file(read, None))
    space = ("lists.vector.weight=0.5:2.5:0.5", "fusion.score_blend=0:0.5:0.25", "lists.lexical.normalization")
    planned = planned_search(data, parse_goal(["nDCG@10", "hit@1"]), space, group_by="query", trials=20)
    return with_stability(run_search(planned), silent)


def pages(folder: Path) -> list[Path]:
    """A report of each kind on disk."""
    of_file = labelled_file(read_evidence_file(evidence_file(folder)), None)
    configs = [(config.name, config) for config in (AS_LISTED, OTHER_WAY)]
    measured, _ = evaluate_configs(configs, lambda _: of_file, parse_measures("hit@1 recall@5 nDCG@10", 1))
    asked = evidence("a query " + "without_an_end" * 20)
    texts = {
        "compare": comparison_report(compare([row.evaluation for row in measured]), [of_file, of_file], MOMENT),
        "tune": tuning_report(searched(folder), MOMENT),
        "why": investigation_report(explain("h", asked, AS_LISTED, k=3), replay(asked, AS_LISTED), MOMENT),
    }
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text, "utf-8")
    return [folder / f"{name}.html" for name in texts]


def test_a_report_opens_offline_in_both_themes_and_on_a_phone(browser: Browser, tmp_path: Path) -> None:
    for file in pages(tmp_path):
        with browser.new_context(offline=True, viewport={"width": 390, "height": 800}) as context:
            page, said = context.new_page(), []
            page.on("console", lambda message, said=said: said.append(message.text))
            page.on("pageerror", lambda error, said=said: said.append(str(error)))
            page.goto(file.as_uri())
            assert page.locator("h1").is_visible() and not page.evaluate(TOO_WIDE)
            colours = []
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme=scheme)
                colours.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
            assert colours[0] != colours[1] and not said
            assert not violations(page)
            folded = page.evaluate(SHOWN).count(False)
            page.emulate_media(media="print")
            assert all(page.evaluate(SHOWN)) and (folded > 0) == (file.stem == "compare")
