"""A report opened from disk with networking off: in both themes, at phone width, and for readers who cannot see the charts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from benchmarks.synthetic_queries import fusion_only
from cems_workbench.analysis.why.report import explain
from cems_workbench.evaluation.comparison import compare
from cems_workbench.evaluation.evidence_file import read_evidence_file
from cems_workbench.evaluation.metrics import parse_measures
from cems_workbench.jobs.evaluation import evaluate_configs, labelled_file
from cems_workbench.jobs.tuning import SearchResult, TuningData, planned_search, run_search, with_stability
from cems_workbench.pipeline import replay
from cems_workbench.progress import silent
from cems_workbench.report.comparison import comparison_report
from cems_workbench.report.investigation import investigation_report
from cems_workbench.report.tuning import tuning_report
from cems_workbench.tuning.objective import parse_goal
from tests.planted import planted_file

from ..unit.evaluation.sets import AS_LISTED, OTHER_WAY, evidence, evidence_file
from .accessibility import violations

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


@contextmanager
def opened(browser: Browser, file: Path, *, width: int) -> Iterator[Page]:
    """A page that was loaded without a network and said nothing on its console, also not until the end."""
    with browser.new_context(offline=True, viewport={"width": width, "height": 800}) as context:
        page, said = context.new_page(), []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(file.as_uri())
        yield page
        assert not said


@pytest.mark.thorough
def test_a_report_can_be_pointed_at_sorted_and_searched(browser: Browser, tmp_path: Path) -> None:
    compare, tune, _ = pages(tmp_path)
    with opened(browser, compare, width=1000) as page:
        lost = page.locator("[id^='lost-1-']")
        mark = page.locator(".goes").last
        mark.hover()
        expect(page.locator(".tip")).to_contain_text("→")
        lost.first.evaluate("query => query.open = false")
        mark.click()
        expect(page.locator("summary:focus")).to_be_visible()
        assert page.locator("details:focus-within[open]").count() == 1
        page.get_by_label("Find a query").fill("no such words")
        assert not any(lost.nth(i).is_visible() for i in range(lost.count()))
        page.get_by_label("Find a query").fill("")
        table = page.locator("table", has_text="won / lost / same")
        rows = "table => [...table.tBodies[0].rows].map(row => row.cells[3].textContent)"
        before = table.evaluate(rows)
        differences = table.get_by_role("button", name="difference")
        differences.click()
        assert [figure(words) for words in table.evaluate(rows)] == sorted(map(figure, before), reverse=True)
        differences.click()
        differences.click()
        assert table.evaluate(rows) == before
        page.locator("[data-toggles] button").first.click()
        expect(page.locator("#means .mark[data-series='0']").first).to_be_hidden()
        expect(page.locator("#means .mark[data-series='1']").first).to_be_visible()
    with opened(browser, tune, width=1000) as page:
        page.locator("tr[data-of='front-0']").hover()
        expect(page.locator("svg [data-of='front-0']").first).to_have_class("mark lit")


def figure(words: str) -> float:
    """A figure with a true minus."""
    return float(words.replace("−", "-"))


def test_a_report_opens_offline_in_both_themes_and_on_a_phone(browser: Browser, tmp_path: Path) -> None:
    for file in pages(tmp_path):
        with opened(browser, file, width=390) as page:
            assert page.locator("h1").is_visible() and not page.evaluate(TOO_WIDE)
            colours = []
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme=scheme)
                colours.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
            assert colours[0] != colours[1] and not violations(page)
            folded = page.evaluate(SHOWN).count(False)
            page.emulate_media(media="print")
            assert all(page.evaluate(SHOWN)) and (folded > 0) == (file.stem == "compare")
