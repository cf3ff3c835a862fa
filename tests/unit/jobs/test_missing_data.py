"""What a config reads and the store does not have is said, with its cost; nothing is said of what is there or not read."""

from __future__ import annotations

from datetime import UTC, datetime

from cems_workbench.config import preset, with_values
from cems_workbench.jobs.store_status import missing_data
from cems_workbench.records import Memory
from cems_workbench.store import Store
from tests.small_store import empty_store, parsed, store

__all__ = ["empty_store", "store"]

READS_ALL = with_values(
    preset("recollection").config,
    {"adjust.feedback.enabled": True, "adjust.project.enabled": True, "lists.relations.enabled": True},
)
"""Recency, access, a candidate set by access, the bonus for importance, votes, projects and relations."""


def test_a_bare_store_lacks_what_the_config_reads(store: Store) -> None:
    assert missing_data(READS_ALL, store) == []  # without memories nothing is missing
    store.add(parsed([Memory("a", "one"), Memory("b", "two")]))
    said = missing_data(READS_ALL, store)
    assert [line.split(":")[0] for line in said] == [
        "no date of creation",
        "no access count",
        "no access",
        "no votes",
        "no projects",
        "no memory of high importance",
        "no relations",
    ]
    assert missing_data(preset("letta").config, store) == []


def test_one_memory_with_the_data_is_enough(store: Store) -> None:
    now = datetime(2026, 9, 1, tzinfo=UTC)
    full = Memory(
        "a",
        "one",
        created_at=now,
        access_count=2,
        relevant_count=1,
        project="org/repo",
        importance="high",
    )
    store.add(parsed([full, Memory("b", "two")]))
    assert [line.split(":")[0] for line in missing_data(READS_ALL, store)] == ["no relations"]


def test_entities_need_links(store: Store) -> None:
    store.add(parsed([Memory("a", "one")]))
    (said,) = missing_data(preset("mem0_entities").config, store)
    assert said.startswith("no entity links")
    (store.path / "entities.jsonl").write_text('{"entity": "one", "memories": ["a"]}', encoding="utf-8")
    assert missing_data(preset("mem0_entities").config, store) == []
