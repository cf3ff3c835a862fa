"""`tune` and `export` on the command line, from an evidence file to a `.env`."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks.synthetic_queries import fusion_only
from cems_workbench.cli import tune as tuning
from cems_workbench.config import dump_config, import_config, load_config, preset, read_card
from tests.planted import planted_file

Command = Callable[..., Any]
SPACE = ("--space", "lists.vector.weight=0.5:2.5:0.5", "--space", "fusion.score_blend=0:0.5:0.25")
WIDE = (*SPACE, "--space", "fusion.k=1:121:10", "--space", "fusion.normalize")


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eighty queries whose relevant memories are what a known config ranks first."""
    return planted_file(tmp_path_factory.mktemp("planted"))


@pytest.fixture
def evidence(planted: Path, tmp_path: Path) -> Path:
    """A copy of one's own, beside the baseline."""
    (tmp_path / "base.yaml").write_text(dump_config(fusion_only()), encoding="utf-8")
    return Path(shutil.copy(planted, tmp_path))


def test_tune_writes_a_config_with_its_card_which_export_takes_along(
    command: Command, evidence: Path, tmp_path: Path
) -> None:
    asked = ("tune", evidence, "--config", "base.yaml", "--out", "best.toml", *SPACE, "--folds", "4", "--json")
    finished = command(*asked, "--open-holdout")
    assert finished.code == 0, finished.err
    found = json.loads(finished.out)
    assert found["group_by"] == "project" and found["looks"] == 1 and not found["cancelled"]
    assert found["validation"]["difference"] > 0 and found["validation"]["interval"][0] > 0
    assert found["holdout"]["queries"] + found["validation"]["queries"] == 80
    tuned = load_config(tmp_path / "best.toml")
    assert tuned.name == "cems-tuned" and [path for path, _, _ in found["changes"]]
    card = read_card(tmp_path / "best.card.json")
    assert [row.split for row in card.measured] == ["cross-validation", "hold-out"] and card.looks == 1
    assert json.loads(command(*asked, "--open-holdout").out)["looks"] == 2
    exported = command("export", "best.toml", "--format", "env")
    assert exported.code == 0 and "# Evidence card" in exported.out and "CEMS_HYBRID_VECTOR_WEIGHT=" in exported.out
    assert import_config(exported.out, tuned).config == tuned
    assert command("export", "best.toml", "--format", "json", "--out", "copy.json").code == 0
    assert read_card(tmp_path / "copy.card.json") == read_card(tmp_path / "best.card.json")
    assert "Evidence card" not in command("export", "best.toml", "--set", "fusion.k=3").out


def test_a_query_set_of_the_store_is_named_instead_of_a_file(command: Command, tmp_path: Path) -> None:
    words = ["brown bears", "red foxes", "grey wolves", "black crows"]
    (tmp_path / "m.jsonl").write_text(
        "".join(json.dumps({"id": f"m{i}", "content": f"{text} sleep"}) + "\n" for i, text in enumerate(words))
    )
    (tmp_path / "q.jsonl").write_text(
        "".join(json.dumps({"qid": f"q{i}", "query": text}) + "\n" for i, text in enumerate(words))
    )
    (tmp_path / "j.qrels").write_text("".join(f"q{i} 0 m{i} 1\n" for i in range(4)) + "q0 0 m1 1\n")
    store = ("--store", tmp_path / "named")
    for name in ("m.jsonl", "q.jsonl", "j.qrels"):
        assert command("import", name, "--query-set", "animals", *store).code == 0
    (tmp_path / "animals").mkdir()  # a folder of the set's name is in nobody's way
    tuned = command(
        *("tune", "animals", "--out", "t.yaml", "--trials", "2", "--folds", "2", "--holdout", "0", *store),
        *("--metric", "all@1", "--space", "fusion.k=1:21:10", "--json"),
    )
    assert tuned.code == 0, tuned.err
    assert json.loads(tuned.out)["train"] == 0.75
    both = ("--preset", "cems", "--preset", "workbench", "--metric", "all@2", *store)
    compared = command("compare", "animals", *both, "--json")
    assert compared.code == 0 and json.loads(compared.out)["compared"][0]["measures"]["all@2"]["difference"] == 0
    assert command("report", "compare", "animals", *both, "--out", "page.html").code == 0
    for asked in (("tune", "--out", "x.yaml"), ("compare", *both[:4]), ("evaluate",), ("calibrate",)):
        refused = command(asked[0], "plants", *asked[1:], *store)
        assert refused.code == 2
        assert refused.err.endswith("plants: neither a query set of the store (all, animals) nor a file\n")
    assert "gather animals --out FILE" in command("drift", "animals", "animals").err


def test_an_interrupted_tune_keeps_the_best_and_goes_on_to_the_same_end(
    command: Command, evidence: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ("tune", evidence, "--config", "base.yaml", *WIDE, "--trials", "24", "--folds", "2", "--json")
    whole = command(*asked, "--out", "whole.yaml")
    forget_scores(tmp_path)

    @contextmanager
    def pressing(quiet: bool = False) -> Iterator[Callable[[str, int, int], None]]:
        yield lambda label, done, total: signal.raise_signal(signal.SIGINT) if done == 7 else None

    with monkeypatch.context() as patch:
        patch.setattr(tuning, "progress_bar", pressing)
        cut = command(*asked, "--out", "best.yaml")
    assert cut.code == 130 and "finished work is kept" in cut.err
    found = json.loads(cut.out)
    assert found["cancelled"] and found["trials"] == 6 and found["validation"] is None
    assert load_config(tmp_path / "best.yaml") and len(list(tmp_path.glob("set.*.scores.npz"))) == 1
    again = command(*asked, "--out", "best.yaml")
    assert json.loads(again.out) == json.loads(whole.out)
    assert (tmp_path / "best.yaml").read_text() == (tmp_path / "whole.yaml").read_text()


def forget_scores(folder: Path) -> None:
    """So that a search begins anew."""
    for kept in folder.glob("*.scores.npz"):
        kept.unlink()


def test_two_objectives_print_the_front_and_its_configs(command: Command, evidence: Path) -> None:
    asked = (
        "tune",
        evidence,
        "--config",
        "base.yaml",
        "--out",
        "best.yaml",
        *SPACE,
        "--metric",
        "nDCG@10",
        "--metric",
        "hit@1",
    )
    front = json.loads(command(*asked, "--json").out)["pareto_front"]
    assert front and set(front[0]) == {"nDCG@10", "hit@1", "lists.vector.weight", "fusion.score_blend"}
    assert [point["nDCG@10"] for point in front] == sorted((point["nDCG@10"] for point in front), reverse=True)
    assert [point["hit@1"] for point in front] == sorted(point["hit@1"] for point in front)
    assert "Pareto front" in command(*asked).out


def test_scores_that_were_kept_are_not_used_once_somebody_judged_anew(
    command: Command, evidence: Path, tmp_path: Path
) -> None:
    from cems_workbench.evaluation.batch import LabelledBatch
    from cems_workbench.evaluation.evidence_file import read_evidence_file
    from cems_workbench.tuning.scorer import search_marks

    found = read_evidence_file(evidence)
    batch = LabelledBatch.of(found)
    grades = dict(zip(batch.qids, batch.grades, strict=True))
    again = LabelledBatch.of(found)
    first = batch.qids[0]
    other = batch.regraded(grades | {first: {key: 2 for key in grades[first]}})
    marks = search_marks(found.replay_hash, batch, ["nDCG@10"], 0)
    assert search_marks(found.replay_hash, again, ["nDCG@10"], 0) == marks
    assert search_marks(found.replay_hash, other, ["nDCG@10"], 0) != marks


BAD = {
    "a cost alone": (("--metric", "reranked"), "name a measure too"),
    "no such parameter": (("--space", "fusion.kk"), "the nearest known one is fusion.k"),
    "a gather parameter": (("--space", "rerank.backend"), "needs new evidence"),
    "a bad measure": (("--metric", "R@5"), "write hit@5"),
    "a bad guard": (("--guard", "a:b:c"), "--guard a:b:c"),
    "one group": (("--group-by", "type", "--folds", "3", "--holdout", "0.7"), None),
}


@pytest.mark.parametrize(("arguments", "part"), BAD.values(), ids=BAD.keys())
def test_what_cannot_be_tuned_is_one_line(
    command: Command, evidence: Path, arguments: tuple[str, ...], part: str | None
) -> None:
    finished = command("tune", evidence, "--out", "x.yaml", "--trials", "3", *arguments)
    if part is None:  # queries without a type are groups of their own, which can be split
        assert finished.code == 0
    else:
        assert finished.code == 2 and part in finished.err and finished.err.count("\n") == 1


def test_whatever_takes_a_config_takes_each_form(command: Command, tmp_path: Path) -> None:
    for form, name in (("toml", "c.toml"), ("python", "c.py"), ("json", "c"), ("yaml", "d"), ("toml", "e")):
        assert command("export", "qmd", "--format", form, "--out", name).code == 0
        again = command("export", name, "--format", "yaml")
        assert import_config(again.out).config == preset("qmd").config, name
    (tmp_path / ".env").unlink(missing_ok=True)
    (tmp_path / "x.env").write_text("CEMS_SCORE_GAP_RATIO=0.4\nCEMS_SCORE_GAPS=1\n")
    read = command("export", "x.env")
    assert read.code == 0 and import_config(read.out).config.gap.ratio == 0.4
    assert read.err.startswith("warning: x.env: line 2: CEMS_SCORE_GAPS: no parameter")
