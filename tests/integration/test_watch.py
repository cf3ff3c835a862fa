"""`watch`: a set is measured again, appended and held against the last time; Evaluate draws it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cems_workbench.evaluation.metrics import parse_measure
from cems_workbench.jobs.regression import points
from cems_workbench.store import Store
from cems_workbench.ui.evaluate.experiments import figure
from tests.sample import store_with_set

Command = Callable[..., Any]
pytestmark = [pytest.mark.models]


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
        and "Pass: cems now loses no more than 0 nDCG@10" in again.out
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


def test_one_query_has_no_interval(command: Command, sample_store: Path, tmp_path: Path) -> None:
    store = store_with_set(sample_store, tmp_path, "one", 1)
    asked = ("watch", "one", "--store", store, "--preset", "recollection", "--json")
    assert command(*asked).code == 0
    again = command(*asked)
    rows = json.loads(again.out)["since"]
    assert again.code == 0 and rows and all(row["interval"] == [None, None] for row in rows)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["few", "--cron", "tomorrow"], '--cron "tomorrow": expected five fields of cron'),
        (["few", "--fail-on-regression", "hit"], "needs a cut-off"),
        (["nothing"], "nothing"),
    ],
)
def test_what_cannot_be_watched_is_one_line(
    command: Command, sample_store: Path, tmp_path: Path, arguments: list[str], line: str
) -> None:
    store = store_with_set(sample_store, tmp_path, "few", 2)
    told = command("watch", *arguments, "--store", store)
    assert told.code == 2 and line in told.err and told.err.count("\n") == 1
