"""An export is measured as whoever it is for reads it: page, card and command give the figures of the config that was read back."""

from __future__ import annotations

import sys

import pytest
from searches import planned

from benchmarks.synthetic_queries import fusion_only
from cems_workbench.cli import main
from cems_workbench.config import (
    FORMS,
    Form,
    PipelineConfig,
    dump_config,
    file_name,
    import_config,
    preset,
    read_back,
    read_card,
    with_values,
)
from cems_workbench.config.fields import TARGET_PRESETS
from cems_workbench.evaluation.evaluate import evaluate
from cems_workbench.evaluation.evidence_file import EvidenceSet, read_evidence_file
from cems_workbench.evaluation.metrics import parse_measures
from cems_workbench.jobs.evaluation import labelled_file
from cems_workbench.jobs.exporting import exported, measured, measured_proposal, write_proposal
from cems_workbench.jobs.tuning import card_of, run_search
from tests.planted import planted_file

MEASURES = parse_measures("nDCG@10 hit@1")
CONFIG = fusion_only({"name": "mine", "fusion.k": 7, "filter.min_score": 0.2, "lists.vector.weight": 2.5})


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> EvidenceSet:
    return read_evidence_file(planted_file(tmp_path_factory.mktemp("planted"), 24))


@pytest.mark.parametrize("form", FORMS)
def test_the_figure_beside_an_export_is_that_of_what_its_reader_ranks_with(evidence: EvidenceSet, form: Form) -> None:
    batch = labelled_file(evidence, None).batch
    export = exported(CONFIG, form)
    ranking = measured(export, batch, MEASURES)
    if form in TARGET_PRESETS:
        usual = preset(TARGET_PRESETS[form]).config
        assert export.lost and (export.read.fusion.k == 7) == (form == "engram"), "only engram's k is a constant"
        nearest = {"threshold.fixed"} if form == "mem0" else set()  # 0 for a config without a threshold
        strange = {
            path for path, value in _values(export.read).items() if value not in (usual.get(path), CONFIG.get(path))
        }
        assert strange == nearest
    else:
        assert export.lost == [] and export.read == CONFIG
        assert all((row.difference, row.low, row.high) == (0, 0, 0) for row in ranking.differences)
    assert import_config(export.text, CONFIG, source=file_name(CONFIG, form)).whole == (not export.lost), (
        "else it is not as measured"
    )
    for config, said in ((CONFIG, ranking.here), (export.read, ranking.there)):
        alone = evaluate(batch, config, MEASURES, with_bounds=False)
        assert [summary.mean for summary in said.summaries] == [summary.mean for summary in alone.summaries]
    assert ranking.lacking == [line for line in ranking.incomplete] and bool(ranking.lacking) == bool(
        ranking.there.rankings.needs
    )


def _values(config: PipelineConfig) -> dict[str, object]:
    from cems_workbench.config import field_specs

    return {spec.path: config.get(spec.path) for spec in field_specs()}


def test_a_variable_that_the_target_does_not_read_yet_changes_nothing_of_how_it_ranks() -> None:
    text = exported(with_values(CONFIG, {"rerank.depth": 17}), "env").text
    assert "CEMS_RERANK_INPUT_LIMIT=17" in text
    usual = preset("cems_head").config
    assert import_config(text, usual, source="x.env").config.rerank.depth == 17
    assert read_back(text, "env", "read").rerank == usual.rerank


def test_the_card_in_an_export_and_the_command_say_the_same_figures(evidence, tmp_path, monkeypatch, capsys):
    result = run_search(planned(evidence.path, "lists.vector.weight=0.5:2.5:1"))
    out = tmp_path / "best.env"
    (ranking,) = write_proposal(result, out, card_of(result, "2026-09-01"))
    assert [row.difference for row in ranking.differences] == [
        row.difference for row in measured_proposal(result, ranking.export)[0].differences
    ]
    assert len(ranking.here.qids) == len(result.planned.plan.split.open), "the sealed queries stay sealed"
    (row,) = ranking.differences
    counted = f"as CEMS reads it: nDCG@10 on the queries searched on ({len(ranking.here.qids)})"
    line = f"{counted}: {row.baseline:.4f} here, {row.value:.4f} there"
    assert line in out.read_text() and read_card(tmp_path / "best.card.json").as_read == tuple(ranking.lines)
    (tmp_path / "mine.yaml").write_text(dump_config(CONFIG))
    asked = [
        "export",
        str(tmp_path / "mine.yaml"),
        "--format",
        "env",
        "--evidence",
        str(evidence.path),
        "--metric",
        "nDCG@10 hit@1",
    ]
    monkeypatch.setattr(sys, "argv", ["cems_workbench", *asked])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    printed = capsys.readouterr()
    assert printed.out == exported(CONFIG, "env").text, "the figures do not get into the file"
    expected = measured(exported(CONFIG, "env"), labelled_file(evidence, None).batch, MEASURES)
    for difference in expected.differences:
        told = next(line.split() for line in printed.err.splitlines() if line.startswith(str(difference.measure)))
        assert told[1:4] == [f"{difference.baseline:.4f}", f"{difference.value:.4f}", f"{difference.difference:+.4f}"]
    assert all(f"warning: {line}" in printed.err for line in expected.lacking)
