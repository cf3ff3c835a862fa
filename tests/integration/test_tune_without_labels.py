"""`tune --without-labels` on the command line: from the sample store, by the packaged reranker, to a config that says where it is from."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cems_workbench.config import load_config, preset, read_card
from cems_workbench.evaluation.evidence_file import read_evidence_file
from cems_workbench.jobs.unlabelled import MAX_QUERIES, unlabelled_selection
from cems_workbench.records import ParsedInput, Query
from cems_workbench.store import Store
from tests.sample import answered_queries, copied

pytestmark = [pytest.mark.models]
Command = Callable[..., Any]


@pytest.fixture(scope="module")
def store(sample_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample store with ten of its answered queries as a set."""
    with copied(sample_store, tmp_path_factory.mktemp("unlabelled")) as opened:
        opened.query_sets.put("ten", answered_queries(opened)[:10], "test")
        return opened.path


@pytest.mark.thorough
def test_a_proposal_without_labels_says_so_and_is_held_against_them(
    command: Command, store: Path, tmp_path: Path
) -> None:
    reading = ("--preset", "cems", "--set", "rerank.backend=cross_encoder")
    gathered = command("gather", "ten", "--store", store, "--out", "ten.evidence", *reading)
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
    command: Command, store: Path, tmp_path: Path, added: tuple[str, ...], said: str
) -> None:
    with Store.open(store) as opened:
        scored = "agreeing" in said
        opened.query_sets.put("two", answered_queries(opened)[:2], "test")
    reading = ("--set", "rerank.backend=cross_encoder") if scored else ()
    assert command("gather", "two", "--store", store, "--out", "two.evidence", "--preset", "cems", *reading).code == 0
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
