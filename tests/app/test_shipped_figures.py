"""The bundled results of the sample set: they equal a new measurement, and are shown on the first screens."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from cems_workbench.cli import main
from cems_workbench.config import preset
from cems_workbench.evaluation.evidence_file import read_evidence_file
from cems_workbench.evaluation.metrics import parse_measures
from cems_workbench.jobs.catalogue import read_figures, sample_figures
from cems_workbench.jobs.evaluation import evaluate_configs, labelled_file
from cems_workbench.jobs.factory import open_resources
from cems_workbench.jobs.query_set_evidence import gather_query_set, judged_selection
from cems_workbench.records import Judgment
from cems_workbench.settings import Settings
from cems_workbench.ui.evaluate.setup import DEFAULT_MEASURES
from tests.sample import copied

from .pages import OpenPage, all_html, captions, checked

pytestmark = [pytest.mark.models]
CHEAP, QUERIES = "recollection", 12
AGAIN = "the shipped figures are of something else by now: python -m benchmarks.sample_figures makes them again"


def test_the_shipped_figures_are_what_page_and_command_measure(
    sample_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with copied(sample_store, tmp_path):
        pass
    resources = open_resources(Settings(store=tmp_path / "store"))
    try:
        figures = sample_figures(resources)
        assert figures is not None, AGAIN
        judgments = resources.store.judgments.read()
        queries = judged_selection("sample_data", resources, judgments).queries[:: 129 // QUERIES][:QUERIES]
        file, config = tmp_path / "few.evidence", preset(CHEAP).config
        gather_query_set(file, queries, judgments, config, resources, query_set="sample_data")
        resources.store.judgments.record([Judgment(queries[0].qid, "m001", 1, "a judge", "model")], "test")
        assert sample_figures(resources) is None, "they are not of a store with another label"
    finally:
        resources.close()
    assert figures.experiment.card is not None
    shipped = next(config for config in figures.experiment.card["configs"] if config["config"] == CHEAP)["per_query"]
    shipped = {query.qid: shipped[query.qid] for query in queries}

    measures = parse_measures(" ".join(DEFAULT_MEASURES))
    on_file = labelled_file(read_evidence_file(file), None)
    (evaluated,), _ = evaluate_configs([(CHEAP, config)], lambda _: on_file, measures)
    assert _rounded(evaluated.to_json()["per_query"]) == _rounded(shipped), AGAIN

    monkeypatch.setattr(
        sys,
        "argv",
        [*f"cems_workbench evaluate {file} --preset {CHEAP} --json --metric".split(), " ".join(DEFAULT_MEASURES)],
    )
    with pytest.raises(SystemExit):
        main()
    assert _rounded(json.loads(capsys.readouterr().out)["evaluations"][0]["per_query"]) == _rounded(shipped)


def _rounded(values: dict[str, dict[str, float | None]]) -> dict[str, dict[str, float | None]]:
    return {
        qid: {name: None if value is None else round(value, 9) for name, value in row.items()}
        for qid, row in values.items()
    }


def test_the_first_screens_show_the_shipped_figures_of_the_sample_set(
    open_page: OpenPage, sample_store: Path, tmp_path: Path
) -> None:
    with copied(sample_store, tmp_path):
        pass
    figures = read_figures()
    assert figures.experiment.card is not None and figures.tuned.card is not None
    page = checked(open_page(tmp_path / "store").switch_page("pages/evaluate.py").run())
    means = page.dataframe[0].value
    assert list(means["config"]) == list(figures.measured.presets)
    for shown, config in zip(means["nDCG@10"], figures.experiment.card["configs"], strict=True):
        assert shown.startswith(f"{config['measures']['nDCG@10']['mean']:.3f} (")
    mark = (
        f"Measured with CEMS Workbench {figures.version} on {figures.day}; these results are bundled with the project"
    )
    assert mark in captions(page)
    page.button(key="evaluate:shipped").click().run()
    assert page.multiselect(key="evaluate:configs").value == list(figures.measured.presets)

    page = checked(page.switch_page("pages/tune.py").run())
    gained = figures.tuned.card["measured"][0]
    assert mark in captions(page)
    assert f"nDCG@10 {gained['baseline']:.3f} → {gained['tuned']:.3f}" in all_html(page)
