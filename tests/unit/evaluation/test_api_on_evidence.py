"""The Python API on an evidence file: the figures of `evaluate`, `compare` and `tune`, and what other tools make of its runs."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import pytest
from sets import AS_LISTED, OTHER_WAY, evidence_file

import cems_workbench as cw

MEASURES = "hit@5 recall@5 P@3 MRR nDCG@10 AP"


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> cw.LoadedEvidence:
    return cw.load_evidence(evidence_file(tmp_path_factory.mktemp("api")))


def test_an_evaluation_is_that_of_the_command(loaded, monkeypatch, capsys):
    from cems_workbench.cli import main

    monkeypatch.setattr(sys, "argv", ["cems_workbench", "evaluate", str(loaded.path), "--metric", MEASURES, "--json"])
    with pytest.raises(SystemExit):
        main()
    command = json.loads(capsys.readouterr().out)["evaluations"][0]
    report = cw.evaluate(loaded, measures=MEASURES)
    assert json.loads(json.dumps(report.to_json())) == command
    assert cw.evaluate(loaded.path, measures=MEASURES.split()).means == report.means


def test_ir_measures_gives_the_same_figures(loaded: cw.LoadedEvidence) -> None:
    ir = pytest.importorskip("ir_measures")
    report = cw.evaluate(loaded, measures=MEASURES)
    theirs = [ir.Success @ 5, ir.R @ 5, ir.P @ 3, ir.RR, ir.nDCG @ 10, ir.AP]
    found = ir.calc_aggregate(theirs, report.to_qrels(), report.to_run())
    assert [found[measure] for measure in theirs] == pytest.approx(list(report.means.values()))


def test_ranx_gives_the_same_figures(loaded: cw.LoadedEvidence) -> None:
    ranx = pytest.importorskip("ranx")
    report = cw.evaluate(loaded, measures=MEASURES)
    theirs = ["hit_rate@5", "recall@5", "precision@3", "mrr", "ndcg@10", "map"]
    found = ranx.evaluate(ranx.Qrels(report.to_qrels()), ranx.Run(report.to_run()), theirs, make_comparable=True)
    assert [found[measure] for measure in theirs] == pytest.approx(list(report.means.values()))


def test_a_run_is_written_for_trec_eval(loaded: cw.LoadedEvidence, tmp_path: Path) -> None:
    path = cw.evaluate(loaded).save_run(tmp_path / "run.txt")
    assert path.read_text().splitlines()[0] == "q1 Q0 a 1 1.0 as_listed"


def test_a_comparison_is_that_of_the_command(loaded, tmp_path, monkeypatch, capsys):
    from cems_workbench.cli import main

    a, b = (str(cw.save_config(config, tmp_path / f"{config.name}.yaml")) for config in (AS_LISTED, OTHER_WAY))
    arguments = [
        "compare",
        str(loaded.path),
        "--config",
        a,
        "--config",
        b,
        "--metric",
        "nDCG@10",
        "--metric",
        "hit@1",
        "--json",
    ]
    monkeypatch.setattr(sys, "argv", ["cems_workbench", *arguments])
    with pytest.raises(SystemExit):
        main()
    command = json.loads(capsys.readouterr().out)
    reports = [cw.evaluate(loaded, path, "nDCG@10 hit@1") for path in (a, b)]
    compared = cw.compare(*reports)
    assert json.loads(json.dumps(compared.to_json())).items() <= command.items()
    row = compared.to_pandas().iloc[0]
    assert (row["config"], row["measure"]) == ("other_way", "nDCG@10")
    assert row["value"] - row["baseline"] == pytest.approx(row["difference"])
    changed = compared.changed("hit@1")
    assert [(row[0], row[4], row[5]) for row in changed.rows] == [("q1", 1.0, 0.0)]
    assert "other" in compared.to_markdown() and "won/lost/same" in compared._repr_html_()


def test_what_a_team_asserts_fails_with_a_line_each(loaded: cw.LoadedEvidence) -> None:
    before, after = (cw.evaluate(loaded, config, "hit@1 nDCG@10") for config in (AS_LISTED, OTHER_WAY))
    cw.check(before, "hit@1>=0.2", "temporal:nDCG@10>0.1")
    with pytest.raises(AssertionError, match=r"FAILED: as_listed: hit@1>=0\.9"):
        cw.check(before, "hit@1>=0.9")
    compared = cw.compare(before, after)
    with pytest.raises(
        AssertionError, match=r"by hit@1, other_way against as_listed: -0\.250\. 4 queries cannot exclude"
    ):
        cw.check(compared, "hit@1", tolerance=0.5)
    cw.check(compared, "hit@1", tolerance=0.5, cannot_tell="pass")
    cw.check(compared, "hit@1 p<0.05")
    assert compared.verdict().sentence in " ".join(str(compared).split())
    with pytest.raises(cw.InputError, match=r"tolerance -0\.1: expected a number of at least 0"):
        compared.verdict(tolerance=-0.1)
    with pytest.raises(cw.InputError, match="hit@7: it was not measured"):
        compared.verdict("hit@7")
    with pytest.raises(cw.InputError, match=r"hit@7: it was not measured; there are hit@1, nDCG@10"):
        cw.check(before, "hit@7>=0.9")


def test_a_search_for_a_better_config(loaded: cw.LoadedEvidence, tmp_path: Path) -> None:
    seen: list[str] = []
    report = cw.tune(
        loaded,
        AS_LISTED,
        space=["assembly.limit=1|5|10"],
        folds=2,
        holdout=0.0,
        trials=3,
        progress=lambda label, done, total: seen.append(label),
    )
    assert seen[0] == "search" and report.title.startswith("as_listed: 2 configs tried for nDCG@10")
    assert not report.better and report.config == AS_LISTED and report.changes == {}
    assert report.validation is not None and report.validation.queries == 4
    assert cw.load_config(report.save(tmp_path / "tuned.yaml")).get("assembly.limit") == AS_LISTED.get("assembly.limit")


def test_a_query_of_the_set_is_replayed(loaded: cw.LoadedEvidence) -> None:
    answer = cw.replay(loaded.of("q1"), AS_LISTED)
    assert answer.ids[:3] == ("a", "b", "c") and answer.query == "one"
    assert cw.replay(answer, OTHER_WAY).ids[:3] == ("h", "g", "f")
    assert cw.replay(answer).ids == answer.ids
    assert answer.journey("h").rows[0][0] == "lists"
    assert cw.replay(answer.save(loaded.path.parent / "one.json"), AS_LISTED).ids == answer.ids


def test_why_without_a_store(loaded: cw.LoadedEvidence) -> None:
    answer = cw.replay(loaded.of("q1"), cw.load_config(AS_LISTED, {"assembly.limit": 3}))
    found = cw.why(answer, "h")
    assert found.lost_at == "lists" and found.rank is None
    assert found.cause.startswith("Lost at lists: below 3 in every list (best: ") and found.verdict in " ".join(
        str(found).split()
    )
    assert cw.replay(answer, found.counterfactual()).ids[found.to_pandas()["rank"][0] - 1] == "h"
    with pytest.raises(cw.InputError, match="zz: no such memory"):
        cw.why(answer, "zz")
    with pytest.raises(cw.InputError, match="labelled needs the store"):
        cw.why(answer, "h", labelled=True)


def test_errors_are_one_clear_line(loaded: cw.LoadedEvidence, tmp_path: Path) -> None:
    asked = {
        "no such evidence file": lambda: cw.load_evidence(tmp_path / "none.evidence"),
        "neither a config file nor a preset; presets: ": lambda: cw.load_config("cmes"),
        "fusion.kk": lambda: cw.load_config("cems", {"fusion.kk": 3}),
        "did you mean nDCG": lambda: cw.evaluate(loaded, measures="nDGC@10"),
        "expected human or model": lambda: cw.evaluate(loaded, judges="cat"),
        "at least two reports": lambda: cw.compare(cw.evaluate(loaded)),
        "were not measured alike": lambda: cw.compare(cw.evaluate(loaded), cw.evaluate(loaded, measures="hit@1")),
        "q11: .* did you mean q1": lambda: loaded.of("q11"),
        "there are 1 query variants": lambda: cw.replay(loaded.of("q1"), AS_LISTED, off=[1]),
        "expected a suffix of": lambda: cw.save_config("cems", tmp_path / "config.txt"),
        "is not there|no store": lambda: cw.open_store(tmp_path / "no-store"),
    }
    for words, call in asked.items():
        with pytest.raises(cw.WorkbenchError, match=words) as raised:
            call()
        assert "\n" not in str(raised.value)


def test_what_a_file_cannot_say_is_a_warning(tmp_path: Path) -> None:
    with pytest.warns(cw.WorkbenchWarning, match="cannot say"):
        cw.save_config("workbench", tmp_path / "cems.env")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cw.load_config(cw.save_config("workbench", tmp_path / "all.yaml")) == cw.load_config("workbench")
