"""A search while another session indexes what it imported."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from cems_workbench.models.protocol import Float32
from cems_workbench.pipeline.resources import Resources, Servers
from cems_workbench.progress import Progress, silent
from cems_workbench.records import Memory
from cems_workbench.store import Store
from tests.planted_source import Counting
from tests.small_store import empty_store, parsed, store

__all__ = ["empty_store", "store"]


class Slow(Counting):
    """Embeds once `go` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.go, self.asked = threading.Event(), threading.Event()

    def encode(self, texts: Sequence[str], progress: Progress = silent) -> Float32:
        self.asked.set()
        assert self.go.wait(20)
        return super().encode(texts, progress)


def test_search_uses_the_indexes_from_before_and_says_so(store: Store) -> None:
    embedder = Slow()
    embedder.go.set()
    resources = Resources(store, embedder, Servers("", "", "", None, None, None))
    store.add(parsed([Memory("old", "what was there")]))
    before = resources.indexes
    embedder.go.clear()
    embedder.asked.clear()

    def imports() -> None:
        with resources.changing():
            store.add(parsed([Memory("new", "what came")]))
            resources.refresh()

    session = threading.Thread(target=imports)
    session.start()
    assert embedder.asked.wait(20)
    assert resources.indexes is before
    assert resources.behind == "this process is refreshing the indexes: the latest change is not found yet"
    assert resources.engine() is None, "what every page asks for waits for nobody"
    embedder.go.set()
    session.join(20)
    assert resources.indexes is not before and not resources.behind
