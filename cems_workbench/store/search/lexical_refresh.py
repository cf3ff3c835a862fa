"""Building the lexical index of a content version and putting it in the place of the one before.

A build goes to a directory of its own; `manifest.json`, replaced in one step, names the current one. A crash at any
moment leaves the old index or the new one, never half of either. Beside the BM25 scores it keeps what filters ask of each memory,
and how many memories each word stands in as it is written, for the correction of typos.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cems_workbench.progress import Progress
from cems_workbench.store.search import lexical_index, tokenizer
from cems_workbench.store.search.tokenizer import chunks, terms_of

MANIFEST = "manifest.json"
MAX_WORD = 40
"""Letters of the longest word that is counted as one."""


def plain_words(text_chunks: Iterable[str]) -> set[str]:
    """The words among a text's chunks as they are written, in lower case; no identifiers, numbers or giants."""
    return {chunk.lower() for chunk in text_chunks if len(chunk) <= MAX_WORD and chunk.isalpha()}


def write_scores(target: Path, texts: Iterable[str], words: Counter[str]) -> None:
    """Save the BM25 scores of `texts` to `target` as bm25s does, and count in `words` the texts each word stands in.

    Terms are numbered by first appearance, so the same texts give the same files. Nothing is saved when no text has
    a term, because bm25s has no index of nothing.
    """
    numbers: dict[str, int] = {}
    documents: list[list[int]] = []
    for text in texts:
        text_chunks = chunks(text)
        documents.append([numbers.setdefault(term, len(numbers)) for chunk in text_chunks for term in terms_of(chunk)])
        words.update(plain_words(text_chunks))
    if not numbers:
        return
    import bm25s

    scores = bm25s.BM25(method="lucene", k1=1.5, b=0.75)
    scores.index((documents, numbers), create_empty_token=False, show_progress=False)
    scores.save(target, show_progress=False)


@dataclass(frozen=True, slots=True)
class Manifest:
    """The current index: its directory's name, the content it was built from, the tokenizer, the memories in it."""

    directory: str
    content_version: int
    tokenizer: str
    rows: int

    @property
    def usable(self) -> bool:
        """Whether queries are cut into terms as its documents were."""
        return self.tokenizer == tokenizer.VERSION


@dataclass(frozen=True, slots=True)
class Document:
    """What the index keeps of a memory."""

    id: str
    text: str
    project: str | None
    scope: str


def read_manifest(home: Path) -> Manifest | None:
    """The manifest in `home`, None when there is no index that can be opened."""
    try:
        manifest = Manifest(**json.loads((home / MANIFEST).read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    return manifest if (home / manifest.directory / lexical_index.IDS).exists() else None


def build(home: Path, documents: Iterable[Document], total: int, content_version: int, progress: Progress) -> Manifest:
    """Index `documents` (in the order of their ids) and make the result current.

    Raises what `progress` raises (Cancelled); the index before stays current then.
    """
    home.mkdir(parents=True, exist_ok=True)
    target = home / f"v{content_version}-{os.urandom(3).hex()}"
    target.mkdir()
    try:
        rows = _write(target, documents, total, progress)
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise
    manifest = Manifest(target.name, content_version, tokenizer.VERSION, rows)
    draft = home / f"{MANIFEST}.new"
    draft.write_text(json.dumps(asdict(manifest)), "utf-8")
    os.replace(draft, home / MANIFEST)
    for old in home.iterdir():
        if old.is_dir() and old != target:
            shutil.rmtree(old, ignore_errors=True)
    return manifest


def discard(home: Path) -> None:
    """Remove the index, if there is one: its manifest first, so that no half of it is ever taken for an index."""
    (home / MANIFEST).unlink(missing_ok=True)
    shutil.rmtree(home, ignore_errors=True)


def _write(target: Path, documents: Iterable[Document], total: int, progress: Progress) -> int:
    ids: list[str] = []
    labels: dict[str, dict[str | None, int]] = {"projects": {}, "scopes": {}}
    filters: list[tuple[int, int]] = []
    words: Counter[str] = Counter()

    def texts() -> Iterator[str]:
        for document in documents:
            if len(ids) % 1_000 == 0:
                progress("indexing words", len(ids), total)
            ids.append(document.id)
            filters.append((_code(labels["projects"], document.project), _code(labels["scopes"], document.scope)))
            yield document.text

    write_scores(target, texts(), words)
    _write_json(target / lexical_index.LABELS, {name: list(codes) for name, codes in labels.items()})
    _write_json(target / lexical_index.WORDS, words)
    np.save(target / lexical_index.FILTERS, np.array(filters, np.int32).reshape(-1, 2))
    _write_json(target / lexical_index.IDS, ids)
    progress("indexing words", len(ids), total)
    return len(ids)


def _code(codes: dict[str | None, int], value: str | None) -> int:
    return codes.setdefault(value, len(codes))


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False), "utf-8")
