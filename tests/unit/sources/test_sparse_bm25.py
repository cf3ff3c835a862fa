"""Sparse BM25 vectors: those that fastembed 0.9.1 made, number by number, and which stored ones count as such."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from workbench_stores.qdrant import document_vector, query_vector, reproduced

RECORDED = json.loads((Path(__file__).parents[2] / "recordings" / "fastembed_bm25.json").read_text("utf-8"))["texts"]


def test_vectors_are_those_that_fastembed_made(subtests: pytest.Subtests) -> None:
    for each in RECORDED:
        with subtests.test(text=each["text"]):
            made = {int(number): weight for number, weight in each["document"].items()}
            assert document_vector(each["text"]) == pytest.approx(made, rel=1e-12)
            assert query_vector(each["text"], "one") == dict.fromkeys(each["query"], 1.0)
            assert query_vector(each["text"], "document") == document_vector(each["text"])


def test_stored_vectors_count_as_reproduced_if_every_one_has_the_words_of_its_text() -> None:
    stored = [(each["text"], document_vector(each["text"])) for each in RECORDED]
    found = reproduced(stored)
    count = sum(1 for each in RECORDED if each["document"])
    assert 0 < count < len(RECORDED)  # of some texts no word is left
    assert found.known and (found.compared, found.words, found.weights) == (count, count, count)
    heavier = [(text, {number: 2 * weight for number, weight in vector.items()}) for text, vector in stored]
    assert reproduced(heavier).known and reproduced(heavier).weights == 0
    assert not reproduced([*stored, ("another text", {7: 1.0})]).known
    assert not reproduced([]).known
