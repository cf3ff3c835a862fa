"""The entities list: boosts of linked memories by mem0's formula, and a divisor that counts the list with half its weight."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cems_workbench.config import PipelineConfig, with_values
from cems_workbench.errors import InputError
from cems_workbench.pipeline import replay
from cems_workbench.pipeline.gather import Request, gather_lists
from cems_workbench.pipeline.resources import Resources, Servers
from cems_workbench.pipeline.retrievers.entities import read_links
from cems_workbench.records import Memory
from cems_workbench.store import Store
from tests.planted_source import Counting
from tests.small_store import empty_store, parsed, store

__all__ = ["empty_store", "store"]
CONFIG = with_values(
    PipelineConfig(),
    {
        "lists.entities.enabled": True,
        "lists.entities.min_similarity": 0.999,
        "lists.lexical.enabled": False,
        "variants.original_weight": 1.0,
        "fusion.method": "combsum",
        "fusion.divisor": "active_lists",
        "fusion.normalize": "none",
        "fusion.score_blend": 0.0,
    },
)


@pytest.fixture
def resources(store: Store) -> Resources:
    store.add(parsed([Memory("a", "the invoice of Velmoor"), Memory("b", "a blue door"), Memory("c", "a red cache")]))
    return Resources(store, Counting(), Servers("", "", "", None, None, None))


def link(resources: Resources, **links: Any) -> None:
    rows = [json.dumps({"entity": name, "memories": memories}) for name, memories in links.items()]
    resources.entities_path.write_text("\n".join(rows), encoding="utf-8")


def scores(resources: Resources, query: str) -> dict[str, float]:
    found = gather_lists(Request(query), CONFIG, resources)
    (ranked,) = [ranked for ranked in found.lists if ranked.name == "entities"]
    return {hit.memory_id: hit.score for hit in ranked.hits}


def test_entity_of_many_memories_raises_each_less(resources: Resources) -> None:
    link(resources, Velmoor=["a"], door=["a", "b", "gone"])
    assert scores(resources, "what does velmoor pay") == pytest.approx({"a": 0.5})
    assert scores(resources, "which door") == pytest.approx({"a": 0.5 / 1.004, "b": 0.5 / 1.004})
    assert scores(resources, "an indoor plant") == {}


def test_divisor_counts_the_entities_with_their_largest_score(resources: Resources) -> None:
    link(resources, Velmoor=["a"])
    for query, divisor in (("velmoor", 1.5), ("nothing", 1.0)):
        trace = replay(gather_lists(Request(query), CONFIG, resources), CONFIG)
        (fusion,) = [stage for stage in trace.stages if stage.name == "fusion"]
        assert fusion.fields.divisor == divisor


def test_store_without_links_says_what_that_costs(resources: Resources) -> None:
    found = gather_lists(Request("velmoor"), CONFIG, resources)
    assert any(line.startswith("entities: the store links no memory") for line in found.notes["warnings"]["lists"])


def test_line_that_is_no_link_is_named(resources: Resources) -> None:
    resources.entities_path.write_text('{"entity": "x", "memories": ["a"]}\n{"entity": "y"}\n', encoding="utf-8")
    with pytest.raises(InputError, match="line 2"):
        read_links(resources.entities_path)
