"""The three retrievers of examples/, over two queries of the sample each."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STAGES = {
    "plain_python": ["bm25", "chroma", "rrf", "cross-encoder", "minimum score"],
    "langchain_pipeline": ["Bm25Retriever", "InMemoryVectorStore", "EnsembleRetriever", "CrossEncoderReranker"],
    "llama_index_pipeline": [
        "Bm25Retriever",
        "VectorIndexRetriever",
        "QueryFusionRetriever",
        "SimilarityPostprocessor",
        "CrossEncoderRerank",
    ],
}


@pytest.mark.thorough
@pytest.mark.models
@pytest.mark.parametrize("example", STAGES)
def test_example(example: str, tmp_path: Path) -> None:
    file = tmp_path / "trace.jsonl"
    subprocess.run([sys.executable, "-m", f"examples.{example}", str(file), "2"], cwd=ROOT, check=True)
    spans = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    count = len(STAGES[example]) + 1
    assert len(spans) == 2 * count
    for query in (spans[:count], spans[count:]):
        assert [span["attributes"].get("workbench.stage.name") for span in query] == [*STAGES[example], None]
        assert all(span["attributes"]["workbench.stage.results"] > 0 for span in query)
        assert query[-1]["attributes"]["workbench.stage.results"] == 5
