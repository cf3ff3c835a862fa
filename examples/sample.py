"""What the three examples share: the sample's memories and queries, and two models that need no download."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import bm25s

from cems_workbench import trace
from cems_workbench.models.minilm_embedder import local_embedder
from cems_workbench.models.minilm_judge import MiniLMJudge
from cems_workbench.models.resolve import PACKAGED_ID

SAMPLE = Path(__file__).resolve().parents[1] / "sample_data"


def memories() -> dict[str, str]:
    """By id the text of every memory, its title first."""
    rows = (json.loads(line) for line in (SAMPLE / "memories.jsonl").read_text("utf-8").splitlines())
    return {row["id"]: f"{row.get('title') or ''}\n{row['content']}".strip() for row in rows}


def queries() -> list[tuple[str, str]]:
    """Id and text of every query."""
    rows = (json.loads(line) for line in (SAMPLE / "queries.jsonl").read_text("utf-8").splitlines())
    return [(row["qid"], row["query"]) for row in rows]


embedder = local_embedder(PACKAGED_ID)


def embed(texts: Sequence[str]) -> list[list[float]]:
    """Vectors of all-MiniLM-L6-v2, which the workbench carries."""
    return [[float(value) for value in vector] for vector in embedder.encode(texts)]


cross_encoder = MiniLMJudge()


def relevance(query: str, texts: Sequence[str]) -> list[float]:
    """Scores of the cross-encoder that the workbench carries."""
    return [score.raw or 0.0 for score in cross_encoder.score(query, texts)]


class Bm25:
    """A BM25 index of texts by their id."""

    def __init__(self, texts: dict[str, str]) -> None:
        self._ids = list(texts)
        self._index = bm25s.BM25()
        self._index.index(bm25s.tokenize(list(texts.values()), show_progress=False), show_progress=False)

    def search(self, query: str, rows: int) -> list[tuple[str, float]]:
        """The best ids with their scores, without those that share no word with the query."""
        words = bm25s.tokenize(query, show_progress=False)
        places, scores = self._index.retrieve(words, k=min(rows, len(self._ids)), show_progress=False)
        return [
            (self._ids[place], float(score)) for place, score in zip(places[0], scores[0], strict=True) if score > 0
        ]


def run(retrieve: Callable[[str], object]) -> None:
    """Trace the sample's queries into the file named on the command line, the first N with a second argument."""
    if len(sys.argv) not in (2, 3):
        raise SystemExit(f"usage: python -m examples.{Path(sys.argv[0]).stem} FILE.jsonl [QUERIES]")
    asked = queries()[: int(sys.argv[2]) if len(sys.argv) == 3 else None]
    with trace.to(sys.argv[1]):
        for qid, query in asked:
            with trace.query_id(qid):
                retrieve(query)
    print(f"{len(asked)} queries traced in {sys.argv[1]}")
