"""What a search of Chroma's graph misses of the exact lists, in the lists and in why."""

from __future__ import annotations

from typing import Any

import pytest

from cems_workbench.analysis.graph_lists import GraphPlace, graph_lists, graph_places
from cems_workbench.analysis.why.report import explain
from cems_workbench.config import preset, with_values
from cems_workbench.pipeline.gather import Request, gather_lists
from cems_workbench.pipeline.resources import Resources, Servers
from cems_workbench.records import Memory
from cems_workbench.store import Store
from cems_workbench.store.search.vector_index import VectorIndex
from tests.planted_source import Counting
from tests.small_store import empty_store, parsed, store

__all__ = ["empty_store", "store"]
CONFIG = with_values(
    preset("cems").config, {"rerank.backend": "none", "judge.backend": "none", "lists.vector.depth": 3}
)
ASKED = Request("a red cache")


@pytest.fixture
def resources(store: Store) -> Resources:
    texts = ("a red cache", "a blue door", "a green hat", "a red hat", "a blue hat")
    store.add(parsed([Memory(f"m{i}", text) for i, text in enumerate(texts)]))
    return Resources(store, Counting(), Servers("", "", "", None, None, None))


def cut(monkeypatch: pytest.MonkeyPatch, without: str) -> list[tuple[Any, ...]]:
    """Have the graph itself lose one memory on the way; returns what it is asked."""
    whole, asked = VectorIndex.approximate, list[tuple[Any, ...]]()

    def approximate(*given: Any) -> Any:
        asked.append(given[2:])
        return [hit for hit in whole(*given) if hit[0] != without]

    monkeypatch.setattr(VectorIndex, "approximate", approximate)
    return asked


def test_why_says_what_a_search_of_the_open_graph_would_have_missed(
    resources: Resources, monkeypatch: pytest.MonkeyPatch
) -> None:
    evidence = gather_lists(ASKED, CONFIG, resources)
    exact = list(dict.fromkeys(hit.memory_id for hit in evidence.lists[0].hits))
    missed, found = exact[1], exact[2]
    asked = cut(monkeypatch, missed)
    assert graph_places(missed, evidence, CONFIG, ASKED, resources) == () and not asked, "Chroma is not opened unasked"
    resources.graph()
    assert graph_places(missed, evidence, CONFIG, ASKED, resources) == (GraphPlace("vector:0", 2, None, 100),)
    assert graph_places(found, evidence, CONFIG, ASKED, resources) == (GraphPlace("vector:0", 3, 2, 100),)
    assert [ef for *_, ef in asked] == [100, 100], "as many as Chroma keeps where nothing is set"
    why = explain(missed, evidence, CONFIG, k=1, request=ASKED, resources=resources)
    line = "vector:0: found exactly at 2; a system that searches the graph with ef 100 would have missed it."
    assert line in why.lines and ("its graph", None, None, line[10:-1]) in why.in_lists.rows
    assert why.to_json()["graph"] == [{"list": "vector:0", "exact": 2, "rank": None, "ef": 100}]
    assert not explain(found, evidence, CONFIG, k=1, request=ASKED, resources=resources).graph_line
    wider = with_values(CONFIG, {"lists.vector.ef_search": 7})
    assert graph_places(missed, evidence, wider, ASKED, resources)[0].ef == 12, "rows enough to reach it"


def test_a_list_has_its_ranks_in_the_graph_and_a_line_on_what_is_missed(
    resources: Resources, monkeypatch: pytest.MonkeyPatch
) -> None:
    evidence = gather_lists(ASKED, CONFIG, resources)
    exact = list(dict.fromkeys(hit.memory_id for hit in evidence.lists[0].hits))
    (whole,) = graph_lists(evidence, CONFIG, ASKED, resources)
    assert (whole.line, list(whole.ranks)) == ("graph: 3 of the 3 nearest", exact)
    cut(monkeypatch, exact[0])
    (found,) = graph_lists(evidence, CONFIG, ASKED, resources)
    assert found.line == f"graph: 2 of the 3 nearest; {exact[0]} missed"
    for other in ({"lists.vector.index": "graph"}, {"lists.candidate_set.mode": "newest_created"}):
        assert not list(graph_lists(evidence, with_values(CONFIG, other), ASKED, resources)), "not an exact list"
