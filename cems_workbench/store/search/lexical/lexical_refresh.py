"""Bringing the lexical index to the store's content: a segment of what changed, and a list of what it replaces.

Segments are merged as there become more of them (tiers, as in Lucene): FANOUT of one size class make one of the next, so that a memory is
written about once for each class. A merge is bounded by what the change itself has to write: an edit never waits for a large one, which
a later, larger change makes; only where very many segments wait is it made at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from cems_workbench.progress import Progress
from cems_workbench.records import ENGLISH
from cems_workbench.store.search.directory.index_directory import Manifest
from cems_workbench.store.search.directory.segment_directory import (
    Segment,
    new_segment,
    publish,
    read_deleted,
    write_deleted,
)
from cems_workbench.store.search.entries import Document
from cems_workbench.store.search.lexical import tokenizer
from cems_workbench.store.search.lexical.lexical_merge import LiveSegment, merge
from cems_workbench.store.search.lexical.lexical_segment import SegmentDraft, opened

LABEL = "indexing words"
TOKENS = 6_000_000
"""Terms and words of the texts that are kept in memory until they make a segment: about 75,000 memories of 40 words, 300 MB."""
FANOUT = 8
AT_ONCE = 30_000
"""Texts that even the smallest change may merge: half a second."""
MOST = 40
"""Segments beyond which any merge that waits is made."""


def build(
    home: Path,
    documents: Iterable[Document],
    total: int,
    content_version: int,
    progress: Progress,
    identity: str = "",
    language: str = ENGLISH,
) -> Manifest:
    """Index `documents`, the content of this identity, by the words of a language, and make that current in place of all there was.

    Raises what `progress` raises (Cancelled), StoreError where it cannot be written; the index before stays current then.
    """
    return update(home, (), (), documents, total, content_version, progress, identity, language)


def update(
    home: Path,
    segments: Sequence[Segment],
    changed: Sequence[str],
    documents: Iterable[Document],
    total: int,
    content_version: int,
    progress: Progress,
    identity: str = "",
    language: str = ENGLISH,
) -> Manifest:
    """Make an index of `segments` without the memories `changed`, and of `documents`, which are in any order, `total` of them.

    Raises as `build` does.
    """

    def write() -> tuple[list[Segment], int]:
        before = [_without(home, each, changed) for each in segments]
        drafted = _drafted(home, documents, total, progress, language)
        kept = _merged(home, [*before, *drafted], sum(_rows(home, each) for each in drafted))
        return kept, sum(_rows(home, each) for each in kept)

    return publish(home, content_version, tokenizer.version(language), identity, write)


def _drafted(home: Path, documents: Iterable[Document], total: int, progress: Progress, language: str) -> list[Segment]:
    """Segments of these memories, of about TOKENS each."""
    made: list[Segment] = []
    draft, done = SegmentDraft(language), 0
    for document in documents:
        if done % 1_000 == 0:
            progress(LABEL, done, total)
        done += 1
        draft.add(document)
        if draft.tokens >= TOKENS:
            made.append(_written(home, draft))
            draft = SegmentDraft(language)
    if len(draft):
        made.append(_written(home, draft))
    progress(LABEL, done, total)
    return made


def _written(home: Path, draft: SegmentDraft) -> Segment:
    segment = new_segment()
    draft.write(home / segment.name)
    return segment


def _without(home: Path, segment: Segment, changed: Sequence[str]) -> Segment:
    """The segment with these memories deleted too."""
    places = opened(home / segment.name).ids.find_all(changed)
    deleted = read_deleted(home, segment)
    now = np.union1d(deleted, places)
    return segment if len(now) == len(deleted) else write_deleted(home, segment, now)


def _live(home: Path, segment: Segment) -> LiveSegment:
    return LiveSegment(opened(home / segment.name), read_deleted(home, segment))


def _rows(home: Path, segment: Segment) -> int:
    """Number of texts that are not deleted."""
    live = _live(home, segment)
    return live.segment.size - len(live.segment.all_texts(live.deleted))


def _merged(home: Path, segments: Sequence[Segment], new: int) -> list[Segment]:
    """The segments, some of them merged, where `new` texts were written anyhow."""
    sizes = {each: _rows(home, each) for each in segments}
    kept = [each for each in segments if sizes[each]]
    allowed = max(AT_ONCE, FANOUT * new)
    while True:
        choice = _choice(home, kept, sizes)
        if not choice or (sum(sizes[each] for each in choice) > allowed and len(kept) <= MOST):
            return kept
        segment = new_segment()
        merge(home / segment.name, [_live(home, each) for each in choice])
        sizes[segment] = sum(sizes[each] for each in choice)
        kept = [each for each in kept if each not in choice] + [segment]


def _choice(home: Path, kept: Sequence[Segment], sizes: dict[Segment, int]) -> list[Segment]:
    """The segments to be merged next, the smallest first: as many of one class as make one of the next, or one that is half deleted."""
    classes: dict[int, list[Segment]] = {}
    for each in kept:
        classes.setdefault(int(np.log(sizes[each]) / np.log(FANOUT) + 1e-9), []).append(each)
    full = [classes[number] for number in sorted(classes) if len(classes[number]) >= FANOUT]
    if full:
        return full[0]
    return next(([each] for each in kept if opened(home / each.name).size > 2 * sizes[each]), [])
