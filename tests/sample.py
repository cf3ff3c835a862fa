"""The sample data as tests need it: its judged queries, and copies of the sample store with query sets of them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import numpy as np

from cems_workbench.builtin import SAMPLE_DATA
from cems_workbench.models.minilm_embedder import MiniLMEmbedder
from cems_workbench.models.protocol import Float32
from cems_workbench.models.resolve import PACKAGED_ID
from cems_workbench.progress import Progress, silent
from cems_workbench.records import Query
from cems_workbench.store import Store

NO_ANSWER = SAMPLE_DATA / "no_answer" / "unanswerable.jsonl"
FAILING = "browser eats all the RAM if I leave it open until evening"
"""A query whose judged memory, m089, preset cems does not return."""
MOVING = "when are we moving house"
"""A query whose judged memory, `STAYING`, preset workbench does not return: the reranker puts it below what it supersedes."""
STAYING = "m312"
STALE = "m249"
"""The memory that `STAYING` supersedes, and that preset workbench returns first."""
LOST = "the reranker gave it 0.298 and put it 12th"
"""What the app says of it, and the guide."""


class SampleEmbedder(MiniLMEmbedder):
    """The embedder, which does not embed the sample's memories once more when they are imported or the index is rebuilt."""

    known: ClassVar[dict[str, list[float]]] = {}

    def encode(self, texts: Sequence[str], progress: Progress = silent) -> Float32:
        if self.model_id != PACKAGED_ID or not self.known.keys() & set(texts):
            return super().encode(texts, progress)
        new = [text for text in dict.fromkeys(texts) if text not in self.known]
        found = {**self.known, **dict(zip(new, super().encode(new, progress).tolist(), strict=True))}
        progress("embedding", len(texts), len(texts))
        return np.array([found[text] for text in texts], np.float32)


@contextmanager
def copied(sample_store: Path, folder: Path) -> Iterator[Store]:
    """The open copy `folder / "store"` of the sample store, to be prepared for a test; it is closed afterwards."""
    with Store.open(Path(shutil.copytree(sample_store, folder / "store"))) as store:
        yield store


def answered_queries(store: Store, first: str = "") -> list[Query]:
    """The queries that have a relevant memory: one of these words first, the others as the store has them."""
    answered = {judgment.qid for judgment in store.judgments.read() if judgment.grade > 0}
    queries = [query for query in store.queries.read() if query.qid in answered]
    return sorted(queries, key=lambda query: query.query != first)


def store_with_set(sample_store: Path, folder: Path, name: str, size: int) -> Path:
    """A closed copy of the sample store with a query set of this many of its answered queries."""
    with copied(sample_store, folder) as store:
        store.query_sets.put(name, answered_queries(store)[:size], "test")
    return folder / "store"
