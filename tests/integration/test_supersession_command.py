"""`supersessions` on the command line and in Python: proposals, a file of verdicts, and what cannot be proposed in one line."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import cems_workbench as wb
from cems_workbench.records import SUPERSEDES, Relation
from cems_workbench.store import Store

if TYPE_CHECKING:
    from conftest import Command

pytestmark = [pytest.mark.models]


def without_edges(store: Path) -> set[tuple[str, str]]:
    """Remove the stored supersessions, and return them."""
    with Store.open(store) as opened:
        edges = {(one.source_id, one.target_id) for one in opened.relations.read() if one.kind == SUPERSEDES}
        with opened._database.transaction() as cursor:
            cursor.execute("DELETE FROM relations WHERE kind = ?", [SUPERSEDES])
    return edges


def test_proposals_are_written_filled_in_and_become_edges_under_a_name(
    command: Command, store: Path, tmp_path: Path
) -> None:
    known = without_edges(store)
    out = tmp_path / "pairs.csv"
    finished = command("supersessions", "--out", out, "--show", 20, "--store", store)
    assert finished.code == 0 and "pairs of" in finished.out
    with out.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 20 and sum((row["newer"], row["older"]) in known for row in rows) >= 10
    verdicts = {0: "accept", 1: "Reject", 2: "swap", 3: "perhaps"}
    for number, row in enumerate(rows):
        row["verdict"] = verdicts.get(number, "")
    with out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    finished = command("supersessions", "--accept", out, "--reviewer", "Ann", "--store", store)
    assert finished.code == 1 and "2 accepted, 1 rejected, 1 rows not used; saved under Ann" in finished.out
    assert "'perhaps' is not one of accept, reject, swap" in finished.err
    with Store.open(store) as opened:
        edges = [one for one in opened.relations.read() if one.kind == SUPERSEDES]
    one, other = rows[0], rows[2]
    assert sorted(edges, key=str) == sorted(
        [
            Relation(one["newer"], one["older"], SUPERSEDES, 1.0, "Ann"),
            Relation(other["older"], other["newer"], SUPERSEDES, 1.0, "Ann"),
        ],
        key=str,
    )
    again = json.loads(command("supersessions", "--json", "--store", store).out)
    pairs = {frozenset((row["newer"], row["older"])) for row in again["proposals"]}
    assert pairs and not pairs & {frozenset((row["newer"], row["older"])) for row in rows[:3]}
    with wb.open_store(store) as opened:
        report = wb.supersessions(opened, most=50)
    assert report.to_json() == again and report.to_pandas().shape == (len(again["proposals"]), 4)


def notes(path: Path, *rows: dict[str, str]) -> Path:
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


@pytest.mark.parametrize(
    ("rows", "arguments", "words"),
    [
        ([{"id": "a", "content": "one"}], (), "need two memories with dates; the store has 1"),
        (
            [{"id": "a", "content": "one"}, {"id": "b", "content": "two"}],
            (),
            "with a date (created_at); 0 of 2 has one",
        ),
        ([{"id": "a", "content": "one"}], ("--minimum", "7"), "minimum must be between 0 and 1, found 7"),
        ([{"id": "a", "content": "one"}], ("--accept", "no.csv"), "no.csv"),
        (
            [{"id": "a", "content": "one"}],
            ("--contradiction-model", "no/such"),
            "contradiction model no/such was not found",
        ),
    ],
)
def test_what_cannot_be_proposed_is_one_line(
    command: Command, tmp_path: Path, rows, arguments: tuple[str, ...], words: str
) -> None:
    store = tmp_path / "small"
    assert command("import", notes(tmp_path / "memories.jsonl", *rows), "--store", store).code == 0
    finished = command("supersessions", *arguments, "--store", store)
    assert (finished.code, len(finished.err.splitlines())) == (2, 1) and words in finished.err
