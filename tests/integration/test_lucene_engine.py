"""The lists of Lucene and of ts_rank_cd: from a query to hits, with the engine's note in the evidence."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

import pytest

from cems_workbench.config import PipelineConfig, with_values
from cems_workbench.pipeline.gather import Request, gather_lists
from cems_workbench.pipeline.resources import Resources, Servers
from cems_workbench.pipeline.text_pieces import fact, without_markdown
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


def test_a_repeated_wording_is_searched_again_if_the_config_says_so(resources: Resources) -> None:
    asked = Request("key", variants=("key", "Key", "api"))
    by_hand = {"lists.lucene.enabled": True, "expansion.backend": "manual", "expansion.max_expansions": 9}
    once = gather_lists(asked, with_values(PipelineConfig(), by_hand), resources)
    assert [variant.text for variant in once.variants] == ["key", "api"]
    again = gather_lists(asked, with_values(PipelineConfig(), by_hand | {"expansion.repeats": True}), resources)
    assert [variant.text for variant in again.variants] == ["key", "key", "Key", "api"]
    assert [ranked.name for ranked in again.lists if ranked.source in ("vector", "lucene")][:4] == [
        "vector:0", "lucene:0", "vector:1", "lucene:1",
    ]  # fmt: skip


def test_a_fact_is_the_sentence_of_author_category_and_title() -> None:
    assert fact(MEMORIES[2]) == "Ana how to Where. Evidence: Ana: Keys of the api, its api key"
    assert fact(Memory("d", "Tea at five.")) == "Tea at five."


def test_markdown_is_left_out_of_plain_text() -> None:
    text = "> see [the *docs*](http://x.yz)\n```\ncode\n``` and `a_b` ~~not~~ x >= 1"
    assert without_markdown(text) == "see the docs and ab not x >= 1"


def test_vector_list_of_facts_embeds_them_once(resources: Resources) -> None:
    changed = {"lists.vector.text": "fact"}
    first = gather_lists(Request("Ana how to Where"), with_values(PipelineConfig(), changed), resources)
    (ranked,) = [ranked for ranked in first.lists if ranked.name == "vector:0"]
    counting = cast(Counting, resources.embedder)
    [expected] = counting.encode([fact(MEMORIES[2])]) @ counting.encode_query("Ana how to Where")[:, None]
    assert {hit.memory_id: hit.score for hit in ranked.hits}["c"] == pytest.approx(float(expected[0]), abs=1e-6)
    files = list(resources.store.path.glob("vectors_fact_*.npz"))
    assert len(files) == 1
    written = files[0].stat().st_mtime_ns
    again = Resources(resources.store, counting, resources.servers)
    assert gather_lists(Request("tea"), with_values(PipelineConfig(), changed), again).lists[0].hits
    assert files[0].stat().st_mtime_ns == written


def test_ts_rank_cd_list_of_any_and_of_all_words(resources: Resources) -> None:
    assert hits(gathered(resources, "ts_rank_cd", "api needs"), "ts_rank_cd") == ["a", "b", "c"]
    found = gathered(resources, "ts_rank_cd", "api needs", match="all")
    assert hits(found, "ts_rank_cd") == ["a", "b"]
    assert found.notes["engines"]["ts_rank_cd:0"]["query"] == "'api' & 'need'"
    assert hits(gathered(resources, "ts_rank_cd", "api needs", max_words=1), "ts_rank_cd") == ["a", "b"]
    assert hits(gathered(resources, "ts_rank_cd", "its", text_config="simple"), "ts_rank_cd") == ["c"]
