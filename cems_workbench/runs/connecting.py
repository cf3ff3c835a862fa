"""Taking the memories of a running system into the store: a snapshot in batches, that goes on where it was broken off.

    probe -> every memory that is new or changed, with chunks and vectors -> what is gone there is deleted here -> relations

Nothing is embedded and nothing is written to the source. Only what has another marker than at the last snapshot is read.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

import pyarrow as pa

from cems_workbench.models.protocol import QueryEmbedder
from cems_workbench.progress import Progress, silent
from cems_workbench.runs.embedder_match import match_embedder
from cems_workbench.sources.source import Probe, RowProblem, Source, SourceError
from cems_workbench.store import Store
from cems_workbench.store.rows import NO_ROWS, RowCounts
from cems_workbench.store.sources import SourceRecord

SHOWN_PROBLEMS = 1_000
"""Problems of rows that a report lists; the rest is counted."""


@dataclass(frozen=True, slots=True)
class SnapshotReport:
    """What a snapshot did. `read` memories came over the wire; `vectors` of their texts came with a vector, `without` did not."""

    source_id: int
    address: str
    probe: Probe
    memories: RowCounts = NO_ROWS
    read: int = 0
    deleted: int = 0
    vectors: int = 0
    without: int = 0
    relations: RowCounts = NO_ROWS
    relations_deleted: int = 0
    problems: tuple[RowProblem, ...] = ()
    more_problems: int = 0
    seconds: float = 0.0


@dataclass
class _Tally:
    """What is counted while batches come in."""

    seen: list[Any] = field(default_factory=list)
    there: int = 0
    read: int = 0
    added: int = 0
    updated: int = 0
    vectors: int = 0
    without: int = 0
    problems: list[RowProblem] = field(default_factory=list)
    more_problems: int = 0


def take_snapshot(
    store: Store, source: Source, when: datetime, progress: Progress = silent, mapping: Mapping[str, Any] | None = None,
    secret_from: str = "",
) -> SnapshotReport:  # fmt: skip
    """Bring the store to the source's memories as they are. `when` is the moment the snapshot is begun.

    Every batch is committed by itself. Raises what `progress` raises, SourceError when the source fails on the way and StoreError when
    its vectors do not fit the store's; what was taken by then stays, and the next snapshot goes on from there.
    """
    started = time.perf_counter()
    progress("asking what is there", 0, 0)
    probe = source.probe()
    source_id = store.sources.begin(source.address, asdict(probe), probe.dimension, mapping, secret_from, when)
    tally = _Tally()
    try:
        with store.sources.taking(), source.snapshot() as snapshot:
            progress("taking memories", 0, snapshot.total)
            for batch in snapshot.batches(lambda ids, markers: store.sources.changed(source_id, ids, markers)):
                _count(tally, batch.seen, batch.problems)
                counts = store.sources.put(source_id, batch.taken)
                tally.read += len(batch.taken)
                tally.added, tally.updated = tally.added + counts.added, tally.updated + counts.updated
                for taken in batch.taken:
                    vectors = [chunk.vector for chunk in taken.chunks] or [taken.vector]
                    have = sum(vector is not None for vector in vectors)
                    tally.vectors, tally.without = tally.vectors + have, tally.without + len(vectors) - have
                progress("taking memories", tally.there, snapshot.total)
            deleted = store.sources.remove_absent(source_id, tally.seen)
            progress("taking relations", 0, 0)
            edges, edges_deleted = store.sources.relate(source_id, snapshot.relations())
    except SourceError as error:
        if not tally.read:
            raise
        raise SourceError(f"{error}; {tally.read} memories were taken, connect again to go on") from None
    store.sources.finish(source_id, when)
    return SnapshotReport(
        source_id=source_id,
        address=source.address,
        probe=probe,
        memories=RowCounts(tally.added, tally.updated, tally.there - tally.added - tally.updated),
        read=tally.read,
        deleted=deleted,
        vectors=tally.vectors,
        without=tally.without,
        relations=edges,
        relations_deleted=edges_deleted,
        problems=tuple(tally.problems),
        more_problems=tally.more_problems,
        seconds=time.perf_counter() - started,
    )


def _count(tally: _Tally, seen: Sequence[str], problems: Sequence[RowProblem]) -> None:
    if seen:
        tally.seen.append(pa.array(seen, pa.string()))
        tally.there += len(seen)
    room = SHOWN_PROBLEMS - len(tally.problems)
    tally.problems += problems[:room]
    tally.more_problems += max(0, len(problems) - room)


def settle_embedder(store: Store, record: SourceRecord, embedder: QueryEmbedder, setting: str, stated: bool) -> str:
    """Note the embedder of a source where it is known: as stated, or because it makes the same vectors. Returns a line about it.

    `setting` is what names it in the settings. One that was stated is believed when its dimension fits, and the line says how well it
    reproduces. Raises ModelError when it cannot be asked.
    """
    if record.dimension is None:
        return ""
    if embedder.dimension != record.dimension:
        return f"the embedder {embedder.model_id} makes {embedder.dimension} numbers, the source has {record.dimension}"
    match = match_embedder(store, record.id, embedder)
    if match.same or stated:
        if (record.embedder, record.model_id) != (setting, embedder.model_id):
            store.sources.name_embedder(record.id, setting, embedder.model_id)
        doubt = (
            "" if match.same or not match.asked else ": another model, or another text than the content was embedded"
        )
        return f"embedder {embedder.model_id}: {match}{doubt}"
    return f"{embedder.model_id} is not the embedder: {match}"
