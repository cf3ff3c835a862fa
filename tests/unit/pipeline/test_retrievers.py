"""Retrievers: a failing one, here or in a package, becomes a warning of the stage `lists`."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from cems_workbench.config import PipelineConfig
from cems_workbench.pipeline import retrievers
from cems_workbench.pipeline.retrievers import RETRIEVERS, Retriever, SearchRequest, added_lists
from cems_workbench.store import Filter


def test_failing_retriever_of_ours_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def search(request: SearchRequest) -> Iterable[tuple[str, float]]:
        raise KeyError("no such column")

    monkeypatch.setattr(retrievers, "ADDED_LISTS", ("broken", "fine", "gone"))
    items = {
        "broken": Retriever("broken", search),
        "fine": Retriever("fine", lambda request: [("b", 1.0), ("a", 2.0), ("c", float("nan"))]),
    }
    monkeypatch.setattr(RETRIEVERS, "_items", items)
    request = SearchRequest("q", (), (), PipelineConfig(), None, Filter())  # type: ignore[arg-type]
    lists, warnings = added_lists(request, dict.fromkeys(("broken", "fine", "gone"), 50))
    assert [[hit.memory_id for hit in ranked.hits] for ranked in lists] == [[], ["a", "b"], []]
    assert warnings == [
        "broken failed: KeyError: 'no such column'",
        "retriever gone is not available; `doctor` says why",
    ]
