"""The arithmetic and the words of benchmarks and recorders, without models and systems."""

from __future__ import annotations

import json
import math
import random
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.answers import compare, normalised
from benchmarks.bench_decisive import differences, reached, reviewer
from benchmarks.bench_presets import ndcg_at
from benchmarks.deeper_pool import Row, places
from benchmarks.fuzz import Readers, Wrong, inputs, outcome
from benchmarks.planted import cause_of
from benchmarks.planted_faults import Fault, Planted, Right
from benchmarks.record.recording import asked, memories_of, milliseconds, written
from benchmarks.sample_failures import replacements, wrong
from benchmarks.tune_workbench import HEAD, with_again
from cems_workbench.config import EvidenceCard, Measured, import_config
from cems_workbench.errors import InputError
from cems_workbench.evaluation.labelling.pooling import PooledPair, pool, top_first
from cems_workbench.evaluation.labelling.queue import decisive_first
from cems_workbench.pipeline import evidence_from
from cems_workbench.records import Relation
from workbench_fidelity.recordings import read_recording


def test_a_verdict_is_reached_where_the_sign_is_the_last_one_and_stays():
    assert reached([0.0, 0.1, -0.1, 0.2, 0.1]) == 4
    assert reached([0.1, 0.2]) == 1
    assert reached([0.1, 0.0]) == 2
    assert reached([-0.1, -0.1, 0.3]) == 3


def test_the_difference_after_each_label_is_the_one_of_the_formula():
    order = [
        PooledPair("q", "m", {"a": 1, "b": 3}),
        PooledPair("q", "n", {"b": 1}),
        PooledPair("r", "x", {"a": 2, "b": 2}),
    ]
    after = differences(order, {("q", "m"): 1, ("q", "n"): 1, ("r", "x"): 1}, queries=2)
    one, two = 1.0, 1 + 1 / math.log2(3)
    assert after == pytest.approx([(1 - 0.5) / one / 2, (1 - 0.5 - 1) / two / 2, (1 - 0.5 - 1) / two / 2])


def test_on_made_up_rankings_decisive_first_needs_at_most_half_the_labels_of_top_first():
    random_ = random.Random(7)
    shares = []
    for _ in range(20):
        rankings: dict[str, dict[str, list[str]]] = {"a": {}, "b": {}}
        relevant = {}
        for number in range(80):
            qid, found = f"q{number}", [f"m{n}" for n in range(14)]
            relevant[qid] = {found[min(int(random_.expovariate(0.4)), 13)]}
            rankings["a"][qid] = found[:10]
            other = list(found)
            for _ in range(random_.choice((0, 0, 1, 2))):  # many queries on which both rank alike
                at = random_.randrange(12)
                other[at], other[at + 1] = other[at + 1], other[at]
            rankings["b"][qid] = other[:10]
        pairs = pool(rankings, 10)
        said = reviewer(pairs, relevant, 3)
        decisive = decisive_first(pairs, "a", "b")
        kept = {one.pair for one in decisive}
        order = [*decisive, *(one for one in top_first(pairs) if one.pair not in kept)]
        top, first = differences(top_first(pairs), said, 80), differences(order, said, 80)
        assert top[-1] == pytest.approx(first[-1], abs=1e-9)
        shares.append((reached(first), reached(top)))
    assert sum(first for first, _ in shares) <= 0.5 * sum(top for _, top in shares)


def test_a_place_changes_where_the_order_of_two_means_does() -> None:
    def row(name: str, before: list[float], after: list[float]) -> Row:
        values = [np.stack([np.array(of)] * 2, axis=1) for of in (before, after)]
        return Row(name, *values)

    unknown = float("nan")
    still = [row("a", [0.9, 0.5], [0.8, 0.5]), row("b", [0.4, 0.4], [0.4, 0.4])]
    assert places(still, 0) == "By nDCG@10 every place stays as it was."
    moved = [*still, row("c", [0.3, unknown], [0.7, unknown]), row("d", [0.3, 0.3], [0.65, 0.65])]
    said = "By hit@5 these change: c is above a; a and d are level; c is above b; d is above b; c is no longer level with, but above d."
    assert places(moved, 1) == said


FAULT = Fault(
    "gap", "", Right(frozenset({"gap"}), ("gap.ratio",), "0.9 × the top"), lambda store, folder: Planted(store)
)


@pytest.mark.parametrize(
    ("answer", "read", "judged"),
    [
        ({"lost_at": "gap", "cause": "score 0.87 is below 0.9 × the top score"}, "", "right"),
        ({"lost_at": "gap", "cause": "dropped", "fix": {"sentence": "", "changes": {"gap.ratio": 0.8}}}, "", "right"),
        ({"lost_at": "gap", "cause": "gap dropped it"}, "", "partly"),
        ({"lost_at": "gap", "cause": "gap dropped it"}, "doctor: gap.ratio is high", "right"),
        ({"lost_at": "gap", "cause": "gap dropped it"}, "known mistake: 0.9 ×\nthe top", "right"),
        ({"lost_at": "fusion", "cause": "gap.ratio"}, "", "wrong"),
        ({"lost_at": None, "status": "returned"}, "", "wrong"),
        ({}, "error", "cannot tell"),
    ],
)
def test_cause_is_judged_by_stage_and_by_what_is_named(answer: dict, read: str, judged: str) -> None:
    assert cause_of(FAULT, answer, read) == judged


@pytest.mark.parametrize(
    ("k", "ranked", "relevant", "expected"),
    [
        (10, "abc", "a", 1.0),
        (10, "abc", "b", 1 / math.log2(3)),  # 0.6309
        (10, "abc", "c", 0.5),  # log2(4) = 2
        (2, "abc", "c", 0.0),
        (10, "abc", "ac", (1 + 0.5) / (1 + 1 / math.log2(3))),  # 0.9197
        (10, "abc", "az", 1 / (1 + 1 / math.log2(3))),  # what was never returned counts in the ideal ranking
        (1, "abc", "az", 1.0),  # the best one place can hold is one relevant id
        (10, "ba", "ab", 1.0),  # binary: the order among the relevant does not matter
        (10, "", "a", 0.0),
        (10, "abc", "", 0.0),
        (10, "aab", "a", 1.0),  # an id counts once
        (10, "abab", "ab", 1.0),
    ],
)
def test_ndcg_by_hand(k: int, ranked: str, relevant: str, expected: float) -> None:
    assert ndcg_at(k, list(ranked), set(relevant)) == pytest.approx(expected, abs=1e-12)


TUNED = Measured(
    metric="nDCG@10", split="cross-validation", queries=9, baseline=0.4, tuned=0.5, low=0.0, high=0.2, p=0.03
)
CARD = EvidenceCard(
    baseline="start",
    measured=(TUNED,),
    split="5 folds",
    looks=0,
    trials=20,
    seed=0,
    corpus_hash="ab/1",
    evidence_hash="cd",
    versions={},
    date="2026-11-22",
)
PAGE = f"{HEAD}\nThe table.\n\n## Evidence card\n\n```\n{CARD.text}\n```\n"
NEW = "\n## Measured again\n"


def measured(tuned: float) -> tuple[Measured]:
    return (TUNED.model_copy(update={"split": "the sample set, measured again", "tuned": tuned}),)


def test_the_section_stands_before_what_was_tuned_and_the_card_has_both() -> None:
    page, card = with_again(PAGE, NEW, CARD, measured(0.6))
    assert card.measured == (TUNED, *measured(0.6))
    assert page.startswith(HEAD + NEW + "\n## As tuned\n\nThe table.")
    assert card.text in page


NOW = datetime(2026, 9, 1, tzinfo=UTC)


def test_memories_are_inserted_in_order_of_creation_and_equal_ones_as_in_the_file(tmp_path: Path) -> None:
    rows = [{"id": "b", "created_at": "2026-02-01"}, {"id": "c", "created_at": "2026-01-01"}, {"id": "a"}]
    rows.append({"id": "d", "created_at": "2026-01-01"})
    (tmp_path / "memories.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert [row["id"] for row in memories_of(tmp_path)] == ["a", "c", "d", "b"]
    assert milliseconds("1970-01-01T00:00:01Z", NOW) == 1000
    assert milliseconds(None, NOW) == 1788220800000


def test_a_recording_is_read_as_that_of_another_system(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    query = {"qid": "q", "query": "x", "as_of": "2026-09-01T00:00:00Z", "type": "t", "project": None}
    count = written(path, "system 1", {"limit": 3}, iter([asked(query, results=["a"])]), clock=lambda: 0.0)
    found = read_recording(path)
    assert (count, found.system, dict(found.own_settings), found.errors) == (1, "system 1", {"limit": "3"}, ())
    assert (found.answers[0].query, found.answers[0].asked_at) == ("x", NOW)
    assert found.answered_at is not None
    assert found.answered_at.year == 1970


def recorded(folder: Path, **answers: str) -> Path:
    for name, text in answers.items():
        path = folder / "commands" / f"{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_missing_new_and_different_answers_are_counted_and_shown(tmp_path, capsys):
    before = recorded(tmp_path / "a", same="x\n", gone="x\n", changed="one\ntwo\n")
    after = recorded(tmp_path / "b", same="x\n", added="x\n", changed="one\nthree\n")
    assert compare(before, before, 9) == 0
    assert compare(before, after, 9) == 3
    said = capsys.readouterr().out
    for line in (
        "missing: commands/gone.txt",
        "new: commands/added.txt",
        "    -two",
        "    +three",
        "3 of 4 answers differ",
    ):
        assert line in said
    assert compare(before, after, 9, "changed") == 1


def test_times_of_today_paths_and_durations_are_replaced_and_others_stay(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    text = f'{tmp_path}/x at {now:%Y-%m-%dT%H:%M:%S}+00:00, as of 2026-09-01, in 2.1 s\n"elapsed_ms": 3.25,\n'
    assert normalised(text, tmp_path) == 'HERE/x at TIME, as of 2026-09-01, in N s\n"elapsed_ms": N,\n'


RELATIONS = [
    Relation("new", "old", "supersedes"),
    Relation("twin", "copy", "duplicates"),
    Relation("a", "b", "related"),
]
REPLACED = replacements(RELATIONS)


def test_an_answer_below_a_duplicate_that_answers_too_is_right() -> None:
    assert not wrong(["copy", "twin"], {"twin": 3, "copy": 3}, REPLACED)
    assert wrong(["copy", "twin"], {"twin": 3, "copy": 0}, REPLACED)


SHARE = {"import": 6, "bundle": 10, "config": 6, "link": 4}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)
FIELDS = (
    "query",
    "as_of",
    "memories",
    "variants",
    "lists",
    "model_scores",
    "embeddings",
    "chunks",
    "relations",
    "tokens",
    "notes",
)


def test_what_was_mutated_is_read_or_refused_by_one_line(tmp_path, shared, monkeypatch):
    readers = Readers(tmp_path, shared / "golden")
    ended = [
        (kind, number, *outcome(partial(readers.read, kind, name, original, raw)))
        for kind, count in SHARE.items()
        for number, name, original, raw in inputs(readers, kind, 19, 0, count)
    ]
    original = dict(readers.seeds["import"])["memories.jsonl"]
    with monkeypatch.context() as patched:
        patched.setattr("benchmarks.fuzz.formats.read_path", lambda path: [])
        with pytest.raises(Wrong, match="rows lost"):  # a reader that loses rows would be found
            readers.read("import", "memories.jsonl", original, original)
    readers.store.close()
    assert not [row for row in ended if "WRONG" in row[2]]
    assert {row[2] for row in ended} == {"read", "refused"}


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.dictionaries(st.sampled_from(FIELDS), VALUES | st.dictionaries(st.text(max_size=3), VALUES, max_size=3)))
def test_no_values_make_a_bundle_or_a_config_end_in_a_traceback(values: dict[str, Any]) -> None:
    for read in (
        lambda: evidence_from(
            {"format": "cems-workbench-evidence/1", "query": "q", "memories": {"a": {"content": "x"}}} | values
        ),
        lambda: import_config(json.dumps(values)),
    ):
        try:
            read()
        except InputError as error:
            assert "\n" not in str(error)
