"""`tune`, with and without labels, `export`, `config-history` and `watch` on the command line."""

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
from cems_workbench.config import (
    EvidenceCard,
    card_path,
    dump_config,
    import_config,
    load_config,
    preset,
    read_card,
    with_values,
)
from cems_workbench.evaluation.evidence_file import read_evidence_file
from cems_workbench.evaluation.metrics import parse_measure
from cems_workbench.jobs.regression import points
from cems_workbench.jobs.unlabelled import MAX_QUERIES, unlabelled_selection
from cems_workbench.records import ParsedInput, Query
from cems_workbench.store import Store
from cems_workbench.ui.evaluate.experiments import figure
from tests.planted import planted_file
from tests.sample import answered_queries, copied, store_with_set

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


def test_a_baseline_that_is_no_program_of_the_target_is_a_warning(command: Command, evidence: Path) -> None:
    asked = ("tune", evidence, "--preset", "cems_head", "--out", "t.yaml", "--trials", "2", "--target")
    line = "warning: baseline cems_head is no program of LangGraph's store; its presets: langgraph"
    assert line in " ".join(command(*asked, "langgraph", "--space", "assembly.limit").err.split())
    assert "no program" not in command(*asked, "cems").err
    assert "langchain, own" in command(*asked, "graph").err


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
    (tmp_path / "cut.yaml").write_text("{version: 2, extends: cems, assembly: {limit: 1}}")
    for typed, first, second in (
        (("--preset=cems", "--config", "cut.yaml"), "cems", "cems-cut"),
        (("--config", "cut.yaml", "--preset", "cems"), "cems-cut", "cems"),
    ):
        assert f"{second} against {first}: " in command("compare", "animals", *typed, *both[4:]).out
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


@pytest.fixture(scope="module")
def ten_store(sample_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample store with ten of its answered queries as a set."""
    with copied(sample_store, tmp_path_factory.mktemp("unlabelled")) as opened:
        opened.query_sets.put("ten", answered_queries(opened)[:10], "test")
        return opened.path


@pytest.mark.thorough
def test_a_proposal_without_labels_says_so_and_is_held_against_them(
    command: Command, ten_store: Path, tmp_path: Path
) -> None:
    reading = ("--preset", "cems", "--set", "rerank.backend=cross_encoder")
    gathered = command("gather", "ten", "--store", ten_store, "--out", "ten.evidence", *reading)
    assert gathered.code == 0, gathered.err
    asked = (
        "tune",
        "ten.evidence",
        *reading,
        "--without-labels",
        "--out",
        "best.yaml",
        "--group-by",
        "query",
        "--folds",
        "3",
    )
    before = read_evidence_file(tmp_path / "ten.evidence").content_hash
    finished = command(*asked, "--json")
    assert finished.code == 0, finished.err
    found = json.loads(finished.out)
    assert found["unlabelled"]["stands_in"] == "cross_encoder" and found["holdout"] is None and found["looks"] == 0
    assert [row["source"] for row in found["unlabelled"]["lists"]] == ["vector", "lexical"]
    held = found["unlabelled"]["by_judgments"]
    assert held["proposal"]["queries"] == held["labelled"]["queries"] == 8  # a fifth of ten stays sealed
    assert {path for path, _, _ in found["changes"]} <= {"lists.vector.weight", "lists.lexical.weight", "name"}
    tuned = load_config(tmp_path / "best.yaml")
    assert tuned.rerank == preset("cems").config.rerank.model_copy(update={"backend": "cross_encoder"})
    head = (tmp_path / "best.yaml").read_text(encoding="utf-8").partition("\nversion")[0]
    assert "no judgment chose it" in head and "tuned against" not in head
    card = read_card(tmp_path / "best.card.json")
    assert card.unlabelled and card.looks == 0 and card.measured[0].metric.endswith("against the reranker’s order")
    assert read_evidence_file(tmp_path / "ten.evidence").content_hash == before
    shown = command(*asked)
    assert shown.code == 0 and "UNLABELLED" in shown.out and "each list alone" in shown.out


@pytest.mark.parametrize(
    ("added", "said"),
    [
        (("--without-labels", "--open-holdout"), "nothing is sealed"),
        (("--without-labels", "--space", "rerank.depth"), "agreeing with itself"),
        (("--without-labels", "--preset", "cems"), "no reranker whose order can replace judgments"),
    ],
)
def test_what_cannot_be_done_without_labels_is_refused_in_a_line(
    command: Command, ten_store: Path, tmp_path: Path, added: tuple[str, ...], said: str
) -> None:
    with Store.open(ten_store) as opened:
        scored = "agreeing" in said
        opened.query_sets.put("two", answered_queries(opened)[:2], "test")
    reading = ("--set", "rerank.backend=cross_encoder") if scored else ()
    assert (
        command("gather", "two", "--store", ten_store, "--out", "two.evidence", "--preset", "cems", *reading).code == 0
    )
    own = () if "--preset" in added else ("--preset", "cems", *reading)
    refused = command("tune", "two.evidence", "--out", "best.yaml", *own, *added)
    assert refused.code == 2 and said in " ".join(refused.err.split()) and not (tmp_path / "best.yaml").exists()


def test_of_a_large_set_the_same_sample_is_asked_each_time_and_of_a_small_one_all(tmp_path: Path) -> None:
    queries = tuple(Query(f"q{i}", f"query {i}") for i in range(MAX_QUERIES + 50))
    with Store.open(tmp_path / "large") as large:
        large.add(ParsedInput("large", "jsonl", queries=queries))
        large.query_sets.put("large", queries, "test")
        large.query_sets.put("small", queries[:7], "test")
        one, again = (unlabelled_selection("large", large).queries for _ in range(2))
        assert one == again and len(one) == MAX_QUERIES and set(one) < set(queries)
        assert len(unlabelled_selection("small", large).queries) == 7


CARD = EvidenceCard(
    baseline="cems",
    measured=(),
    split="5 folds",
    looks=1,
    trials=20,
    seed=0,
    corpus_hash="elsewhere/3",
    evidence_hash="e",
    versions={},
    date="2026-11-22",
)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A store, and a tuned config beside its card."""
    Store.open(tmp_path / "store").close()
    config = with_values(preset("cems").config, {"name": "cems-tuned", "fusion.k": 17})
    (tmp_path / "best.yaml").write_text(dump_config(config), encoding="utf-8")
    card_path(tmp_path / "best.yaml").write_text(CARD.to_json(), encoding="utf-8")
    return tmp_path


def test_a_config_is_kept_listed_shown_and_restored(command: Command, place: Path) -> None:
    asked = ("config-history", "--store", "store")
    assert "no config is saved yet" in command(*asked).out
    kept = command(*asked, "--add", "best.yaml", "--why", "temporal questions", "--author", "Ada")
    assert kept.code == 0 and kept.out.startswith("kept as config 1: cems-tuned\n")
    assert "without an evidence card" in command(*asked, "--add", "qmd", "--author", "Bo").out
    listed = command(*asked)
    assert listed.code == 0 and all(word in listed.out for word in ("cems-tuned", "Ada", "temporal", "qmd", "Bo"))
    rows = json.loads(command(*asked, "--json").out)
    assert [(row["id"], row["name"], row["base"], row["evidence"]) for row in rows] == [
        (2, "qmd", None, False),
        (1, "cems-tuned", "cems", True),
    ]
    shown = command(*asked, "1")
    assert "k: 17" in shown.out and "# Evidence card" in shown.out
    assert shown.err.startswith("warning: Its evidence card of 2026-11-22 is from another store (elsewhere)")
    assert json.loads(command(*asked, "1", "--json").out)["config"]["fusion"]["k"] == 17
    assert command(*asked, "1", "--out", "back.toml").code == 0
    assert load_config(place / "back.toml") == load_config(place / "best.yaml")
    assert read_card(place / "back.card.json") == CARD


def test_a_loss_since_the_last_time_fails_and_what_changed_is_named(
    command: Command, sample_store: Path, tmp_path: Path
) -> None:
    store = store_with_set(sample_store, tmp_path, "few", 12)
    asked = ("watch", "few", "--store", store, "--preset", "cems", "--fail-on-regression", "nDCG@10 p<0.05")
    first = command(*asked, "--json")
    assert first.code == 0 and json.loads(first.out)["last"] is None and json.loads(first.out)["assertions"] == []
    again = command(*asked)
    assert (
        again.code == 0
        and "changed since: nothing" in again.out
        and ". Pass: no result changed." in " ".join(again.out.split())
    )
    (tmp_path / "one.jsonl").write_text('{"id": "added", "content": "one more memory"}\n')
    assert command("import", "one.jsonl", "--store", store).code == 0
    worse = command(
        *asked, "--set", "lists.vector.enabled=false", "--set", "lists.lexical.depth=1", "--note", "one hit", "--json"
    )
    values = json.loads(worse.out)
    assert worse.code == 1 and values["changed"] == ["memories", "config"]
    (row,) = [row for row in values["since"] if row["measure"] == "nDCG@10"]
    assert row["now"] < row["before"] and row["interval"][1] < 0 and row["p"] < 0.05 and row["queries"] == 12
    assert values["assertions"][0]["line"].startswith("Fail: cems now loses nDCG@10 against ")
    other = command("watch", "few", "--store", store, "--preset", "recollection", "--json")
    assert other.code == 0 and json.loads(other.out)["last"] is None  # another config begins anew
    with Store.open(store) as opened:
        found = points(opened.configs.watched(), "few", parse_measure("nDCG@10"))
    assert [(point.name, point.changed) for point in found] == [
        ("cems", None),
        ("cems", ()),
        ("cems", ("memories", "config")),
        ("recollection", None),
    ]
    assert [point.mean for point in found[:3]] == pytest.approx([row["before"]] * 2 + [row["now"]])
    lines = figure(found, "nDCG@10").data
    assert [line.name for line in lines] == ["cems", "recollection"]
    assert list(lines[0].marker.symbol) == ["circle", "circle", "circle-open"]
    nothing = command(
        *asked[:-1], "no-such-type:nDCG@10", "--json"
    )  # without a p: a gate must not pass for want of queries
    assert nothing.code == 3 and [one["verdict"] for one in json.loads(nothing.out)["assertions"]] == ["cannot tell"]
