"""Counting the terms of all documents and turning the counts into BM25 scores, with bm25s."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from cems_workbench.store.tokenizer import chunks, terms_of

MAX_WORD = 40


def plain_words(found: Iterable[str]) -> set[str]:
    """The words among a text's chunks as they are written, in lower case; no identifiers, numbers or giants."""
    return {chunk.lower() for chunk in found if len(chunk) <= MAX_WORD and chunk.isalpha()}


def write_scores(target: Path, texts: Iterable[str], words: Counter[str]) -> None:
    """Save the BM25 scores of `texts` to `target` as bm25s does, and count in `words` the texts each word stands in.

    Terms are numbered by first appearance, so the same texts give the same files. Nothing is saved when no text has
    a term, because bm25s has no index of nothing.
    """
    numbers: dict[str, int] = {}
    documents: list[list[int]] = []
    for text in texts:
        found = chunks(text)
        documents.append([numbers.setdefault(term, len(numbers)) for chunk in found for term in terms_of(chunk)])
        words.update(plain_words(found))
    if not numbers:
        return
    import bm25s

    scores = bm25s.BM25(method="lucene", k1=1.5, b=0.75)
    scores.index((documents, numbers), create_empty_token=False, show_progress=False)
    scores.save(target, show_progress=False)
