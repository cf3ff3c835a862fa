"""`blame` on the sample data: from a wrong answer to the stale memory behind it, by the command and from Python, in the same words."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks.bench_support import judged_pairs, pairs, precision
from cems_workbench.analysis.ranks import loss
from cems_workbench.config import preset
from cems_workbench.jobs.memory_use import blame_answer
from cems_workbench.pipeline import replay
from cems_workbench.pipeline.gather import Request, gather
from cems_workbench.pipeline.resources import Resources
from tests.sample import MOVING, STAYING

if TYPE_CHECKING:
    from conftest import Command

WRONG = "You are moving in November."
AS_OF = datetime(2026, 9, 1, tzinfo=UTC)
WORKBENCH = preset("workbench").config


def test_what_became_of_the_memory_is_what_why_says(resources: Resources) -> None:
    request = Request(MOVING, None, AS_OF)
    trace = replay(gather(request, WORKBENCH, resources), WORKBENCH)
    found = blame_answer(WRONG, resources, WORKBENCH, request, trace=trace)
    first = found.claims[0].memories[0]
    assert first.id == "m249" == trace.results[0].memory_id
    assert first.standing is not None and first.standing.rank == 1
    assert first.stale is not None and first.stale.startswith(f"superseded by {STAYING} (157 days later)")
    assert first.irrelevant
    (other,) = first.otherwise
    lost = loss(trace, STAYING)
    assert lost is not None and other.standing is not None
    assert (other.memory.id, other.source, other.newer) == (STAYING, "edge", True)
    assert (other.standing.rank, other.standing.lost_at, other.standing.reason) == (None, lost.stage, lost.reason)
    assert first.next is not None
    assert first.next.command() == f"why 'when are we moving house' {STAYING} --as-of=2026-09-01T00:00:00+00:00"


def test_before_the_successor_was_written_the_memory_is_not_stale(resources: Resources) -> None:
    request = Request(MOVING, None, datetime(2026, 3, 1, tzinfo=UTC))
    first = blame_answer(WRONG, resources, WORKBENCH, request).claims[0].memories[0]
    assert first.id == "m249" and first.stale is None
    assert all(other.source == "near" for other in first.otherwise)


def test_without_an_edge_near_memories_that_differ_say_otherwise(
    resources: Resources, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources.store.relations, "superseding", lambda ids: [])
    found = blame_answer("Each tenant may send 600 requests per minute.", resources, WORKBENCH)
    first = found.claims[0].memories[0]
    assert first.id == "m023" and first.stale is None
    other = next(one for one in first.otherwise if one.memory.id == "m074")
    assert other.source == "near" and other.newer and "600 → 1200" in other.words
    assert other.memory.title is not None
    assert "1200" in [other.memory.title[start:end] for start, end in other.title_spans]


def test_a_claim_without_a_memory_says_so(resources: Resources) -> None:
    found = blame_answer("You play the cello in an amateur orchestra.", resources, WORKBENCH)
    assert not found.claims[0].memories
    assert found.sentence == "No memory supports this: “You play the cello in an amateur orchestra.”"


def test_a_note_with_the_same_words_does_not_support_a_claim(resources: Resources) -> None:
    """Issue 66, 2026-11-29: an on-call note with "noticing" and "July" was said to support it too."""
    (claim,) = blame_answer("Notice for ours must be out by the end of July.", resources, WORKBENCH).claims
    verdicts = {one.id: one.support.verdict for one in claim.memories}
    assert verdicts.pop("m249") == "supports" and "supports" not in verdicts.values()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "Each tenant may send 800 requests per minute.",
            "No memory supports this: “Each tenant may send 800 requests per minute.”; "
            "the closest is m023: not in the passage: 800; there it is 600 requests",
        ),
        (
            "You may force-push to main.",
            "Cannot tell whether a memory supports this: “You may force-push to main.”; "
            "the closest is m250: “force-push” is negated in one of the two",
        ),
    ],
)
def test_a_near_miss_is_named_with_what_differs(resources: Resources, text: str, sentence: str) -> None:
    found = blame_answer(text, resources, WORKBENCH)
    assert found.sentence == sentence and found.claims[0].supporting is None


def test_memories_that_are_said_to_support_a_claim_do(resources: Resources) -> None:
    """Pairs that set no threshold; precision by benchmarks/bench_support.py."""
    right, said = precision(judged_pairs([pair for pair in pairs(True) if pair.part == "held out"], resources))
    assert said >= 20 and right / said >= 0.95


def test_the_command_prints_the_sentence_and_the_next_command(command: Command, store: Path) -> None:
    asked = ["blame", WRONG, "--query", MOVING, "--preset", "workbench", "--as-of", "2026-09-01", "--store", store]
    said = command(*asked)
    assert said.code == 0
    assert " ".join(said.out.split()).startswith(
        f"m249 supports “{WRONG}”: 1st of 10 results; superseded by {STAYING} (157 days later)"
    )
    assert f"why 'when are we moving house' {STAYING} --as-of=2026-09-01T00:00:00+00:00 --preset workbench" in said.out
    as_json = json.loads(command(*asked, "--json").out)
    memory = as_json["claims"][0]["memories"][0]
    assert memory["memory_id"] == "m249" and memory["rank"] == 1
    assert [memory["content"][start:end] for start, end in memory["content_spans"]] == ["move:", "November"]
