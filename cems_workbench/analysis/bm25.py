"""BM25 of a text that the lexical index does not hold, by the statistics of the index as it is.

    score = sum over the query's terms t, as often as the query has them, of idf(t) * tf / (tf + k1 * (1 - b + b * length / mean length))

The index keeps no lengths, only finished scores. The mean length is read off one of them: with tf, idf and length known, it is
the only unknown in the formula; total length is a whole number, which takes the float32's rounding out again.

Source: Lucene's variant as bm25s computes it (store/terms.py); Robertson and Zaragoza 2009.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from statistics import median

import numpy as np

from cems_workbench.analysis.lexical_evidence import idf
from cems_workbench.records import Memory, indexed_text
from cems_workbench.store.lexical_index import LexicalIndex
from cems_workbench.store.tokenizer import tokenize

K1, B = 1.5, 0.75
"""As store/terms.py indexes."""
READ = 64
"""Scores of one memory that the mean length is read off; their median counts."""


def mean_length(index: LexicalIndex, memories: Iterable[Memory]) -> float | None:
    """Mean number of terms of an indexed memory, read off the longest of `memories` that has a term; None when none has."""
    for memory in sorted(memories, key=lambda memory: -len(memory.content)):
        terms = tokenize(indexed_text(memory))
        counts = Counter(terms)
        parts = index.parts(memory.id, list(counts)[:READ])
        found = [
            mean for term, part in parts.items() if (mean := _mean(index, term, counts[term], part, len(terms))) > 0
        ]
        if found:
            return round(median(found) * index.document_count) / index.document_count
    return None


def _mean(index: LexicalIndex, term: str, tf: int, part: float, length: int) -> float:
    """The formula above, solved for the mean length; 0 where rounding leaves nothing to divide by."""
    relative = (tf * (idf(index.document_frequency(term), index.document_count) / part - 1) / K1 - (1 - B)) / B
    return length / relative if relative > 0 else 0.0


def score(index: LexicalIndex, query: str, text: str, mean: float) -> float:
    """What `text` would score for `query` in the index, 0 without a term in common; float32, as the index adds up.

    A term that no indexed memory has counts as if this text alone had it.
    """
    inside = tokenize(text)
    counts = Counter(inside)
    room = K1 * (1 - B + B * len(inside) / mean)
    total = np.float32(0)
    for term in sorted(tokenize(query)):
        tf = counts[term]
        if tf:
            rare = idf(max(1, index.document_frequency(term)), index.document_count)
            total += np.float32(rare * tf / (tf + room))
    return float(total)
