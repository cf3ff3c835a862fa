"""The list of sparse BM25 vectors: from a query to hits, with the engine's note in the evidence."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cems_workbench.config import PipelineConfig, with_values
from cems_workbench.pipeline.gather import Request, gather_lists
from cems_workbench.pipeline.resources import Resources, Servers
from cems_workbench.records import Memory
from cems_workbench.store import Store
from tests.planted_source import Counting
from tests.small_store import empty_store, parsed, store
from workbench_engines import sparse

__all__ = ["empty_store", "store"]

SERVERS = Servers("", "", "", None, None, None)
MEMORIES = [
    Memory("b", "getUserById fails in the api", created_at=datetime(2026, 1, 2, tzinfo=UTC)),
    Memory("a", "getUserById fails in the api", created_at=datetime(2026, 1, 1, tzinfo=UTC)),
    Memory("c", "the api of the api gateway", created_at=datetime(2026, 1, 3, tzinfo=UTC)),
]


@pytest.fixture
def resources(store: Store) -> Resources:
    store.add(parsed(MEMORIES))
    return Resources(store, Counting(), SERVERS)


def gathered(resources: Resources, query: str, **changes: Any) -> Any:
    given = {"lists.sparse.enabled": True} | {f"lists.sparse.{name}": value for name, value in changes.items()}
    return gather_lists(Request(query), with_values(PipelineConfig(), given), resources)


def hits(evidence: Any) -> list[str]:
    (ranked,) = [ranked for ranked in evidence.lists if ranked.name == "sparse:0"]
    return [hit.memory_id for hit in ranked.hits]


def test_equal_scores_stand_in_order_of_insertion_and_the_note_has_the_query(resources: Resources) -> None:
    found = gathered(resources, "the user", tokens="identifiers", stop_words="english")
    assert hits(found) == ["a", "b"]
    note = found.notes["engines"]["sparse:0"]
    assert (note["query"], note["words"], note["matches"], note["mean_length"]) == ("user", 2, 2, 13 / 3)
    assert hits(gathered(resources, "user", tokens="identifiers", rows="store")) == ["b", "a"]


def test_words_keep_identifiers_whole_and_the_depth_cuts(resources: Resources) -> None:
    assert hits(gathered(resources, "user")) == []
    assert hits(gathered(resources, "api", idf="none", depth=1)) == ["c"]


def test_without_spacy_words_are_searched_as_they_are_and_said_so(
    resources: Resources, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sparse, "MODELS", ("no_such_model",))
    sparse.lemmatizer.cache_clear()
    found = gathered(resources, "fails", lemmas="spacy")
    assert hits(found) == ["a", "b"]
    assert any("without lemmas" in line for line in found.notes["warnings"]["lists"])


def test_stop_words_of_a_file_that_is_missing_empty_the_list_with_a_warning(
    resources: Resources, tmp_path: Path
) -> None:
    found = gathered(resources, "api", stop_words=str(tmp_path / "none.txt"))
    assert hits(found) == []
    assert any(line.startswith("sparse:0 is empty") for line in found.notes["warnings"]["lists"])
