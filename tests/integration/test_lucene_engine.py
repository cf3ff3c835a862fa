"""The lists of Lucene and of ts_rank_cd: from a query to hits, with the engine's note in the evidence."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from cems_workbench.config import PipelineConfig, with_values
from cems_workbench.pipeline.gather import Request, gather_lists
from cems_workbench.pipeline.lexical_engines import Document
from cems_workbench.pipeline.lexical_engines.lucene import fact, without_markdown
from cems_workbench.pipeline.resources import Resources, Servers
from cems_workbench.records import Memory
from cems_workbench.store import Store
from tests.planted_source import Counting
from tests.small_store import empty_store, parsed, store

__all__ = ["empty_store", "store"]

MEMORIES = [
    Memory("b", "The api needs a key", created_at=datetime(2026, 1, 2, tzinfo=UTC), author="Ana"),
    Memory("a", "The api needs a key", created_at=datetime(2026, 1, 1, tzinfo=UTC), author="Bo"),
    Memory("c", "Keys of the api, its api key", title="Where", category="how_to", author="Ana"),
]
AS_MEMORY_AGENT = {
    "outside_ascii": "removed",
    "min_characters": 2,
    "repeats": False,
    "fuzzy": 2,
    "fields.text": 0.0,
    "fields.fact": 1.0,
    "fields.author": 1.0,
    "fields.object": 1.0,
}


@pytest.fixture
def resources(store: Store) -> Resources:
    store.add(parsed(MEMORIES))
    return Resources(store, Counting(), Servers("", "", "", None, None, None))


def gathered(resources: Resources, engine: str, query: str, **changes: Any) -> Any:
    given = {f"lists.{engine}.enabled": True} | {f"lists.{engine}.{name}": value for name, value in changes.items()}
    return gather_lists(Request(query), with_values(PipelineConfig(), given), resources)


def hits(evidence: Any, engine: str) -> list[str]:
    (ranked,) = [ranked for ranked in evidence.lists if ranked.name == f"{engine}:0"]
    return [hit.memory_id for hit in ranked.hits]


def test_lucene_list_keeps_equal_scores_in_order_of_rows(resources: Resources) -> None:
    assert hits(gathered(resources, "lucene", "key"), "lucene") == ["a", "b", "c"]
    assert hits(gathered(resources, "lucene", "key", rows="store"), "lucene") == ["b", "a", "c"]


def test_lucene_list_of_facts_is_asked_as_the_memory_agent_asks(resources: Resources) -> None:
    found = gathered(resources, "lucene", "Ana’s kéy, a key; Ana's", **AS_MEMORY_AGENT)
    note = found.notes["engines"]["lucene:0"]
    assert note["query"] == "anas OR anas~ ky OR ky~ key OR key~"
    assert (note["words"], note["fields"]) == (3, ["object", "fact", "author"])
    assert hits(found, "lucene") == ["b", "a", "c"]  # the key is in two fields of a and b, and b's author is near anas


def test_lucene_list_is_empty_with_a_warning_when_lucene_refuses_the_query(resources: Resources) -> None:
    found = gathered(resources, "lucene", "api --force", **AS_MEMORY_AGENT)
    assert hits(found, "lucene") == []
    assert any(line.startswith("lucene:0 is empty: Lucene reads no query") for line in found.notes["warnings"]["lists"])
    assert hits(gathered(resources, "lucene", "api --force", fuzzy=2), "lucene") != []


def test_a_fact_is_the_sentence_of_author_category_and_title() -> None:
    assert fact(Document(MEMORIES[2], None, "")) == "Ana how to Where. Evidence: Ana: Keys of the api, its api key"
    assert fact(Document(Memory("d", "Tea at five"), None, "")) == "Tea at five."


def test_markdown_is_left_out_of_plain_text() -> None:
    text = "> see [the *docs*](http://x.yz)\n```\ncode\n``` and `a_b` ~~not~~"
    assert without_markdown(text) == "see the docs and ab not"


def test_ts_rank_cd_list_of_any_and_of_all_words(resources: Resources) -> None:
    assert hits(gathered(resources, "ts_rank_cd", "api needs"), "ts_rank_cd") == ["a", "b", "c"]
    found = gathered(resources, "ts_rank_cd", "api needs", match="all")
    assert hits(found, "ts_rank_cd") == ["a", "b"]
    assert found.notes["engines"]["ts_rank_cd:0"]["query"] == "'api' & 'need'"
    assert hits(gathered(resources, "ts_rank_cd", "api needs", max_words=1), "ts_rank_cd") == ["a", "b"]
    assert hits(gathered(resources, "ts_rank_cd", "its", text_config="simple"), "ts_rank_cd") == ["c"]
