"""Drift: what a config returns differently on two evidence files of the same queries."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from sets import AS_LISTED, NOW, QUERIES, evidence, evidence_file

import cems_workbench as cw
from cems_workbench.cli import main
from cems_workbench.config import dump_config
from cems_workbench.evaluation.evidence_file import EvidenceFile, Header
from cems_workbench.records import Query


def gathered_later(path, queries, cosines, version=2):
    """A file of these queries after the store has changed; `cosines` are the lists of some of them."""
    header = Header("small", "store1", version, "minilm-2", dump_config(AS_LISTED), NOW.isoformat())
    with EvidenceFile.create(path, header, queries, []) as file:
        for query in queries:
            file.add(query.qid, evidence(query.query, cosines=cosines.get(query.qid)), 0.1)
        file.finish()
    return path


@pytest.fixture
def before(tmp_path: Path) -> Path:
    return evidence_file(tmp_path)


@pytest.fixture
def after(tmp_path: Path) -> Path:
    """q1 has the new memory z on top; b and a of q2 have changed places; q3 and q5 are the same, q6 is worded otherwise, q4 is gone."""
    falling = {key: 0.8 - 0.1 * i for i, key in enumerate("abcdefgh")}
    swapped = falling | {"a": falling["b"], "b": falling["a"]}
    queries = [query for query in QUERIES if query.qid not in ("q4", "q6")] + [Query("q6", "half a dozen")]
    cosines = {"q1": {"z": 0.9} | falling, "q2": dict(sorted(swapped.items(), key=lambda row: -row[1]))}
    return gathered_later(tmp_path / "later.evidence", queries, cosines)


def test_the_queries_that_changed_most_come_first(before: Path, after: Path) -> None:
    report = cw.drift(before, after, k=3)
    assert [query.qid for query in report.found.queries] == ["q1", "q2", "q3", "q5"]
    first, second, third, _ = report.found.queries
    assert (first.came, first.left, first.new, first.first_changed) == (("z",), ("c",), ("z",), True)
    assert (second.came, second.left, second.first_changed) == ((), (), True)
    assert (third.overlap, third.score_change, third.first_changed) == (1.0, 0.0, False)
    assert first.overlap == pytest.approx(0.1 / 0.9 * (0.9 * 0 + 0.81 * 1 / 2 + 0.729 * 2 / 3) + 2 / 3 * 0.729)
    assert report.overlap == pytest.approx((first.overlap + second.overlap + 2) / 4)
    assert report.title.startswith("as_listed: 2 of 4 queries return something else in their first 3, 2 have another")


def test_queries_that_are_not_the_same_are_named(before: Path, after: Path) -> None:
    found = cw.drift(before, after).found
    assert (found.only_before, found.only_after) == (("q4", "q6"), ("q6",))


def test_what_is_different_between_the_gathers_is_said(before: Path, after: Path) -> None:
    lines = cw.drift(before, after).lines
    assert lines == (
        "between them: content of the store: version 1, then 2",
        "between them: embedder: minilm, then minilm-2",
    )


def test_a_file_does_not_drift_from_itself(before: Path) -> None:
    report = cw.drift(before, before)
    assert report.overlap == 1.0 and report.found.changed == 0 and report.lines == ()


def test_files_without_a_common_query_are_refused(before: Path, tmp_path: Path) -> None:
    other = gathered_later(tmp_path / "other.evidence", [Query("x", "else")], {})
    with pytest.raises(cw.InputError, match="have no query in common"):
        cw.drift(before, other)


def test_the_command_says_it_and_asserts(before, after, monkeypatch, capsys):
    def command(*further: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["cems_workbench", "drift", str(before), str(after), *further])
        with pytest.raises(SystemExit) as stopped:
            main()
        return int(stopped.value.code or 0), capsys.readouterr().out

    code, said = command("--cutoff", "3")
    assert code == 0 and "2 of 4 queries return something else" in said and "only before, not compared: q4, q6" in said
    code, said = command("--cutoff", "3", "--json")
    drifted = json.loads(json.dumps(cw.drift(before, after, k=3).to_json()))
    assert json.loads(said) == drifted | {"assertions": []}
    assert "q1" not in command("--show", "0", "--preset", "cems")[1]
    assert command("--assert-overlap", "0.99")[0] == 1 and command("--assert-overlap", "0.5")[0] == 0
