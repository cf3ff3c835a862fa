"""Refresh of the lexical index: writes a segment for changed memories and marks the replaced ones as deleted.

Tiered merging, as in Lucene: FANOUT segments of one size class make one of the next, so that a memory is rewritten about once per class.
The size of a merge is limited by that of the change, so an edit never waits for a large merge; a later, larger change does it, unless
there are more than MAX_SEGMENTS.
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
from cems_workbench.store.search.lexical.lexical_segment import SegmentDraft, open_segment
from cems_workbench.store.search.lexical.tokenizer import Language

PROGRESS_LABEL = "indexing words"
MAX_TOKENS = 6_000_000
"""Terms and words held in memory until a segment is written: about 75,000 memories of 40 words, 300 MB."""
FANOUT = 8
MIN_MERGE_LIMIT = 30_000
"""Texts that even the smallest change may merge, in half a second."""
MAX_SEGMENTS = 40
"""With more segments, any pending merge is done."""


def build(
    directory: Path,
    documents: Iterable[Document],
    total: int,
    content_version: int,
    progress: Progress,
    identity: str = "",
    language: str = ENGLISH,
) -> Manifest:
    """Build the index of `documents`, the content with this identity, in a language, and replace the previous one.

    Raises what `progress` raises (Cancelled), and StoreError if it cannot be written; the previous index then stays current.
    """
    return update(directory, (), (), documents, total, content_version, progress, identity, language)


def update(
    directory: Path,
    segments: Sequence[Segment],
    changed: Sequence[str],
    documents: Iterable[Document],
    total: int,
    content_version: int,
    progress: Progress,
    identity: str = "",
    language: str = ENGLISH,
) -> Manifest:
    """Remove the memories `changed` from `segments` and add `documents` (in any order, `total` of them).

    Raises as `build` does.
    """

    def write() -> tuple[list[Segment], int]:
        before = [_delete(directory, each, changed) for each in segments]
        drafted = write_segments(directory, documents, total, progress, language)
        kept = _merge_segments(directory, [*before, *drafted], sum(_live_texts(directory, each) for each in drafted))
        return kept, sum(_live_texts(directory, each) for each in kept)

    return publish(directory, content_version, tokenizer.version(language), identity, write)


def write_segments(
    directory: Path, documents: Iterable[Document], total: int, progress: Progress, language: Language
) -> list[Segment]:
    """Write segments of about MAX_TOKENS each. Raises OSError."""
    made: list[Segment] = []
    draft, done = SegmentDraft(language), 0
    for document in documents:
        if done % 1_000 == 0:
            progress(PROGRESS_LABEL, done, total)
        done += 1
        draft.add(document)
        if draft.tokens >= MAX_TOKENS:
            made.append(_write_segment(directory, draft))
            draft = SegmentDraft(language)
    if len(draft):
        made.append(_write_segment(directory, draft))
    progress(PROGRESS_LABEL, done, total)
    return made


def _write_segment(directory: Path, draft: SegmentDraft) -> Segment:
    segment = new_segment()
    draft.write(directory / segment.name)
    return segment


def _delete(directory: Path, segment: Segment, changed: Sequence[str]) -> Segment:
    """The segment with these memories marked as deleted."""
    places = open_segment(directory / segment.name).ids.find_all(changed)
    deleted = read_deleted(directory, segment)
    now = np.union1d(deleted, places)
    return segment if len(now) == len(deleted) else write_deleted(directory, segment, now)


def _live(directory: Path, segment: Segment) -> LiveSegment:
    return LiveSegment(open_segment(directory / segment.name), read_deleted(directory, segment))


def _live_texts(directory: Path, segment: Segment) -> int:
    """Number of texts that are not deleted."""
    live = _live(directory, segment)
    return live.segment.size - len(live.segment.all_texts(live.deleted))


def _merge_segments(directory: Path, segments: Sequence[Segment], new: int) -> list[Segment]:
    """The segments after merging, limited by the `new` texts of this change."""
    sizes = {each: _live_texts(directory, each) for each in segments}
    kept = [each for each in segments if sizes[each]]
    # An edit must not wait for a large merge; a later, larger change does it.
    allowed = max(MIN_MERGE_LIMIT, FANOUT * new)
    while True:
        choice = _choose_merge(directory, kept, sizes)
        if not choice or (sum(sizes[each] for each in choice) > allowed and len(kept) <= MAX_SEGMENTS):
            return kept
        segment = new_segment()
        merge(directory / segment.name, [_live(directory, each) for each in choice])
        sizes[segment] = sum(sizes[each] for each in choice)
        kept = [each for each in kept if each not in choice] + [segment]


def _choose_merge(directory: Path, kept: Sequence[Segment], sizes: dict[Segment, int]) -> list[Segment]:
    """The segments to merge next: FANOUT of the smallest full size class, or one that is more than half deleted."""
    classes: dict[int, list[Segment]] = {}
    for each in kept:
        # 1e-9: the logarithm of an exact power may be just below the whole number.
        classes.setdefault(int(np.log(sizes[each]) / np.log(FANOUT) + 1e-9), []).append(each)
    full = [classes[number] for number in sorted(classes) if len(classes[number]) >= FANOUT]
    if full:
        return full[0]
    return next(([each] for each in kept if open_segment(directory / each.name).size > 2 * sizes[each]), [])
