"""Building the lexical index of a content version; index_directory.py puts it in the place of the one before.

Beside the BM25 scores of each chunk or whole memory it keeps what filters ask of them, and how many memories each word stands in as it
is written, for the correction of typos.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from cems_workbench.progress import Progress
from cems_workbench.records import ENGLISH
from cems_workbench.store.search import lexical_index, tokenizer
from cems_workbench.store.search.entries import WHOLE, Document
from cems_workbench.store.search.index_directory import Manifest, publish, write_json
from cems_workbench.store.search.tokenizer import chunks, terms_of

MAX_WORD = 40
"""Letters of the longest word that is counted as one."""


def plain_words(text_chunks: Iterable[str]) -> set[str]:
    """The words among a text's chunks as they are written, in lower case; no identifiers, numbers or giants."""
    return {chunk.lower() for chunk in text_chunks if len(chunk) <= MAX_WORD and chunk.isalpha()}


def write_scores(
    target: Path, memories: Iterable[tuple[str, Sequence[str]]], words: Counter[str], language: str = ENGLISH
) -> None:
    """Save BM25 scores to `target` as bm25s does, and count in `words` the memories each word stands in.

    A memory is its text and those of its chunks: each of these is scored as a text, and the memory's own where it has none.

    Terms are numbered by first appearance, so the same texts give the same files. Nothing is saved when no text has
    a term, because bm25s has no index of nothing.
    """
    numbers: dict[str, int] = {}
    documents: list[list[int]] = []
    of = partial(terms_of, language=language)
    for text, parts in memories:
        whole = chunks(text)
        words.update(plain_words(whole))
        for part in map(chunks, parts) if parts else (whole,):
            documents.append([numbers.setdefault(term, len(numbers)) for chunk in part for term in of(chunk)])
    if not numbers:
        return
    import bm25s

    scores = bm25s.BM25(method="lucene", k1=1.5, b=0.75)
    scores.index((documents, numbers), create_empty_token=False, show_progress=False)
    scores.save(target, show_progress=False)


def build(
    home: Path, documents: Iterable[Document], total: int, content_version: int, progress: Progress, identity: str = "",
    language: str = ENGLISH,
) -> Manifest:  # fmt: skip
    """Index `documents` (in the order of their ids), the content of this identity, by the words of a language, and make it current.

    Raises what `progress` raises (Cancelled), StoreError where it cannot be written; the index before stays current then.
    """
    return publish(
        home,
        content_version,
        tokenizer.version(language),
        lambda target: _write(target, documents, total, progress, language),
        identity,
    )


def _write(target: Path, documents: Iterable[Document], total: int, progress: Progress, language: str) -> int:
    ids: list[str] = []
    seqs: list[int] = []
    done = 0
    labels: dict[str, dict[str | None, int]] = {"projects": {}, "scopes": {}}
    filters: list[tuple[int, int]] = []
    words: Counter[str] = Counter()

    def texts() -> Iterator[tuple[str, Sequence[str]]]:
        nonlocal done
        for document in documents:
            if done % 1_000 == 0:
                progress("indexing words", done, total)
            done += 1
            label = _code(labels["projects"], document.project), _code(labels["scopes"], document.scope)
            for seq in [seq for seq, _ in document.chunks] or [WHOLE]:
                ids.append(document.id)
                seqs.append(seq)
                filters.append(label)
            yield document.text, [text for _, text in document.chunks]

    write_scores(target, texts(), words, language)
    if any(seq != WHOLE for seq in seqs):
        np.save(target / lexical_index.CHUNKS, np.array(seqs, np.int32))
    write_json(target / lexical_index.LABELS, {name: list(codes) for name, codes in labels.items()})
    write_json(target / lexical_index.WORDS, words)
    np.save(target / lexical_index.FILTERS, np.array(filters, np.int32).reshape(-1, 2))
    write_json(target / lexical_index.IDS, ids)
    progress("indexing words", done, total)
    return len(ids)


def _code(codes: dict[str | None, int], value: str | None) -> int:
    return codes.setdefault(value, len(codes))
