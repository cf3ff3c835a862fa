"""The guide's case: m312 of July supersedes m249 of January, which is first."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from cems_workbench.analysis.why import cause, memory_path
from cems_workbench.config import preset, with_values
from cems_workbench.pipeline import bundle_from, evidence_from, replay
from cems_workbench.pipeline.gather import Request, gather_lists
from cems_workbench.pipeline.missing_evidence import unmet
from cems_workbench.pipeline.redact import redacted
from cems_workbench.pipeline.resources import Resources

CEMS = with_values(
    preset("cems").config,
    {"adjust.time_decay.mode": "none", "adjust.priority": False, "assembly.limit": 50, "assembly.max_tokens": None},
)
REQUEST = Request("When are we moving house?", as_of=datetime(2026, 8, 20, tzinfo=UTC))


def under(mode):
    return with_values(CEMS, {"supersession.mode": mode})


def ranks(evidence, mode):
    return {result.memory_id: result.rank for result in replay(evidence, under(mode)).results}


def test_stale_first_result_gives_way_to_its_successor(resources: Resources) -> None:
    evidence = gather_lists(REQUEST, CEMS, resources)
    assert [one.memory_id for one in evidence.superseded["m249"]] == ["m312"]
    before = ranks(evidence, "off")
    assert "m249" in before and before["m249"] < before.get("m312", 99)
    follow = ranks(evidence, "follow")
    assert follow["m312"] == before["m249"] and "m249" not in follow
    demote = ranks(evidence, "demote")
    assert demote.get("m249", 99) > demote["m312"]
    trace = replay(evidence, under("follow"))
    assert "supersession dropped it: superseded by m312" in cause(memory_path(trace, "m249", 10), trace)


def test_note_survives_a_bundle_and_redaction(resources: Resources) -> None:
    evidence = gather_lists(REQUEST, CEMS, resources)
    again = evidence_from(bundle_from(evidence))
    assert again.superseded == evidence.superseded
    plain, hidden = (replay(one, under("follow")) for one in (evidence, redacted(evidence, b"key")))
    assert [one.score for one in plain.results] == [one.score for one in hidden.results]


def test_successor_of_later_than_the_query_is_none(resources: Resources) -> None:
    evidence = gather_lists(replace(REQUEST, as_of=datetime(2026, 3, 1, tzinfo=UTC)), CEMS, resources)
    assert "m249" not in evidence.superseded


def test_store_without_edges_has_no_note_until_a_mode_reads_it(resources: Resources) -> None:
    with resources.store._database.transaction() as cursor:
        cursor.execute("DELETE FROM relations")
    resources.store.relations._cache.clear()
    evidence = gather_lists(REQUEST, CEMS, resources)
    assert "superseded" not in evidence.notes and unmet(under("demote"), evidence.notes, evidence.in_brief)
    again = gather_lists(REQUEST, under("demote"), resources)
    assert not unmet(under("demote"), again.notes, again.in_brief)
