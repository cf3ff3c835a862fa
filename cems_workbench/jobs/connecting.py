"""Taking the memories of a running system into the store: a snapshot in batches, that goes on where it was broken off.

    probe -> every memory that is new or changed, with chunks and vectors -> what is gone there is deleted here -> relations

Nothing is embedded and nothing is written to the source. Only what has another marker than at the last snapshot is read, no faster than
`rows_per_second` where that is set. `connect` is all of it: open, take, find out which embedder made the vectors, search with that one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

import pyarrow as pa

from cems_workbench.errors import InputError, ModelError, StoreError
from cems_workbench.jobs import factory
from cems_workbench.jobs.embedder_match import match_embedder
from cems_workbench.models.protocol import QueryEmbedder
from cems_workbench.pipeline.resources import Resources
from cems_workbench.platform import gc_tuning
from cems_workbench.platform.parsing import yaml_values
from cems_workbench.progress import Progress, silent
from cems_workbench.settings import Settings
from cems_workbench.sources import connect as sources
from cems_workbench.sources.address import FROM_ADDRESS, Address, parse, parse_saved
from cems_workbench.sources.source import Batch, RowProblem, Source, SourceError, SourceInfo
from cems_workbench.store import Store
from cems_workbench.store.rows import NO_ROWS, RowCounts
from cems_workbench.store.sources import ImportRows, SourceRecord

Item = TypeVar("Item")

CANCEL_POLL_S = 0.5
"""Seconds of a wait for the rate after which a cancel is looked for."""
MAX_PROBLEMS = 1_000
"""Problems of rows that a report lists; the rest is counted."""


@dataclass(frozen=True, slots=True)
class SnapshotReport:
    """What a snapshot did. `read` memories came over the wire; `vectors` of their texts came with a vector, `without` did not."""

    source_id: int
    address: str
    probe: SourceInfo
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

    @property
    def counts(self) -> list[dict[str, str | int]]:
        """A row for memories, and one for relations where there are any: what was added, updated, unchanged and deleted."""
        kinds = [("memories", self.memories, self.deleted)]
        if self.relations.total or self.relations_deleted:
            kinds.append(("relations", self.relations, self.relations_deleted))
        return [
            {"rows": name, "added": of.added, "updated": of.updated, "unchanged": of.unchanged, "deleted": deleted}
            for name, of, deleted in kinds
        ]

    @property
    def lines(self) -> list[str]:
        """What was read, and what the source lacks, a line each."""
        read = f"{self.read:,} memories read in {self.seconds:.1f} s, {self.vectors:,} vectors"
        without = f"{self.without:,} of the texts read have no vector there; no vector list holds them"
        return [read, *([without] if self.without else []), *self.probe.missing, *self.probe.notes]


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """A source to be taken: its address, and which columns are which where it is a table of its own."""

    address: Address
    mapping: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ConnectReport:
    """What connecting came to: of each source its report and a line about the embedder, empty where there is nothing to say.

    `problem` is why what was taken cannot be searched; empty when it can.
    """

    sources: tuple[tuple[SnapshotReport, str], ...]
    problem: str = ""


def source_specs(resources: Resources, typed: str | None, mapping: Mapping[str, Any] | None = None) -> list[SourceSpec]:
    """The source at an address as it was typed, or every source of the store without one. Raises InputError, also where there is none.

    A secret that is known already, and a mapping that the store remembers, need not be given again.
    """
    kept = resources.store.sources.read()
    if typed is None:
        if not kept:
            raise InputError("the store has no source yet; name its address")
        return [saved_spec(resources, each) for each in kept]
    address = parse(typed)
    if address.secret_from != FROM_ADDRESS:
        address = resources.address(address.plain) or address
    return [
        SourceSpec(address, mapping or next((each.mapping for each in kept if each.address == address.plain), None))
    ]


def saved_spec(resources: Resources, record: SourceRecord) -> SourceSpec:
    """A source of the store, with its secret looked for where it was found. Raises InputError."""
    return SourceSpec(
        resources.address(record.address) or parse_saved(record.address, record.secret_from), record.mapping
    )


def read_mapping(text: str, named: str) -> Mapping[str, Any]:
    """A mapping from YAML; what is in it is checked where the source is opened. Raises InputError, which calls it `named`."""
    values = yaml_values(text, named)
    if not isinstance(values, dict):
        raise InputError(f"{named}: must be names and columns, such as `id: uuid`")
    return values


def probe_source(there: SourceSpec) -> SourceInfo:
    """What is at a source, without taking anything. Raises InputError and SourceError."""
    with closing(sources.open_source(there.address, there.mapping)) as source:
        return source.probe()


def connect(
    resources: Resources,
    settings: Settings,
    wanted: Sequence[SourceSpec],
    progress: Progress = silent,
    embedder: str | None = None,
    rows_per_second: float | None = None,
) -> ConnectReport:
    """Take these sources into the store, settle who made their vectors, and search with that embedder from now on.

    `embedder` is the setting of the one that is stated to have made them. Their secrets are known to `resources` as long as it lives.
    Raises as `take_snapshot` does, and InputError; what was taken by then stays.
    """
    before = factory.for_store(settings, resources.store).embedder
    found = []
    try:
        for there in wanted:
            resources.know_address(there.address)
            found.append(_import_source(resources, settings, there, progress, embedder, rows_per_second))
    finally:
        follow_embedder(resources, settings, before)
    try:
        resources.refresh(progress)
    except (ModelError, StoreError) as failure:  # what was taken is in the store all the same
        return ConnectReport(tuple(found), str(failure))
    return ConnectReport(tuple(found))


def forget(resources: Resources, settings: Settings, address: str) -> int:
    """Delete the memories of the source at this plain address and forget it; returns how many. Raises InputError when there is none."""
    kept = {each.address: each.id for each in resources.store.sources.read()}
    if address not in kept:
        raise InputError(f"the store has no source {address}; it has {', '.join(kept) or 'none'}")
    before = factory.for_store(settings, resources.store).embedder
    count = resources.store.sources.forget(kept[address])
    follow_embedder(resources, settings, before)
    return count


def follow_embedder(resources: Resources, settings: Settings, before: str) -> None:
    """Search with the embedder that the store asks for now; `before` is the setting of the one it asked for until now."""
    now = factory.for_store(settings, resources.store)
    if now.embedder != before:
        resources.use_embedder(factory.embedder(now))


def _import_source(
    resources: Resources,
    settings: Settings,
    there: SourceSpec,
    progress: Progress,
    stated: str | None,
    rows_per_second: float | None,
) -> tuple[SnapshotReport, str]:
    """The snapshot of one source, and what is to be said of its embedder."""
    store = resources.store
    with closing(sources.open_source(there.address, there.mapping)) as source:
        report = take_snapshot(
            store, source, datetime.now(UTC), progress, there.mapping, there.address.secret_from, rows_per_second
        )
    record = next(each for each in store.sources.read() if each.id == report.source_id)
    setting = stated or record.embedder or settings.embedder
    loaded = resources.embedder if setting == factory.for_store(settings, store).embedder else None
    progress("comparing vectors", 0, 0)
    try:
        made_by = loaded or factory.embedder(settings.model_copy(update={"embedder": setting}))
        return report, identify_embedder(store, record, made_by, setting, stated=stated is not None)
    except ModelError as error:
        return report, f"the embedder was not compared: {error}"


@dataclass
class _Tally:
    """What is counted while batches come in."""

    seen: list[Any] = field(default_factory=list)
    there: int = 0
    same: int = 0
    read: int = 0
    added: int = 0
    updated: int = 0
    vectors: int = 0
    without: int = 0
    problems: list[RowProblem] = field(default_factory=list)
    more_problems: int = 0


def take_snapshot(
    store: Store,
    source: Source,
    when: datetime,
    progress: Progress = silent,
    mapping: Mapping[str, Any] | None = None,
    secret_from: str = "",
    rows_per_second: float | None = None,
) -> SnapshotReport:
    """Bring the store to the source's memories as they are. `when` is the moment the snapshot is begun.

    No more than `rows_per_second` rows (chunks, or memories without any) are read in the mean: a batch comes at once, and the next is asked
    for when its time has come. Relations are one statement, whose time limit would run meanwhile: they come at once.

    Every batch is committed by itself. Raises what `progress` raises, SourceError when the source fails on the way and StoreError when
    its vectors do not fit the store's; what was taken by then stays, and the next snapshot goes on from there.
    """
    started = time.perf_counter()
    progress("asking what is there", 0, 0)
    probe = source.probe()
    source_id = store.sources.begin(source.address, asdict(probe), probe.dimension, mapping, secret_from, when)
    tally = _Tally()

    def changed(ids: Sequence[str], markers: Sequence[str]) -> Sequence[str]:
        wanted = store.sources.changed(source_id, ids, markers)
        tally.same += len(ids) - len(wanted)
        return wanted

    try:
        with gc_tuning.paused(), store.sources.bulk_writes(), source.snapshot() as snapshot:
            progress("taking memories", 0, snapshot.total)

            def pause(seconds: float) -> None:
                progress("taking memories", tally.same + tally.read, snapshot.total)
                time.sleep(min(seconds, CANCEL_POLL_S))

            batches = snapshot.batches(changed)
            given = rate_limited(batches, rows_per_second, pause) if rows_per_second else batches
            for batch, rows in to_rows(given) if rows_per_second else prefetched(to_rows(given)):
                _count(tally, batch.seen, batch.problems)
                counts = store.sources.put(source_id, rows)
                tally.read += len(batch.taken)
                tally.added, tally.updated = tally.added + counts.added, tally.updated + counts.updated
                for taken in batch.taken:
                    vectors = [chunk.vector for chunk in taken.chunks] or [taken.vector]
                    have = sum(vector is not None for vector in vectors)
                    tally.vectors, tally.without = tally.vectors + have, tally.without + len(vectors) - have
                progress("taking memories", tally.same + tally.read, snapshot.total)
            deleted = store.sources.remove_absent(source_id, tally.seen)
            progress("taking relations", 0, 0)
            edges, edges_deleted = store.sources.put_relations(source_id, snapshot.relations())
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


@contextmanager
def _closed(items: Iterator[Any]) -> Iterator[None]:
    """Close them at the end where they are a generator's."""
    try:
        yield
    finally:
        if isinstance(items, Generator):
            items.close()


def prefetched(items: Iterator[Item]) -> Iterator[Item]:
    """The same items, the next of which is fetched in a thread while one is worked on; closed, it waits for that one."""
    with _closed(items), ThreadPoolExecutor(1, "ahead") as pool:
        coming = pool.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = pool.submit(next, items, None)
            yield item


def to_rows(batches: Iterator[Batch]) -> Iterator[tuple[Batch, ImportRows]]:
    """Batches with their memories as rows of the store."""
    with _closed(batches):
        for batch in batches:
            yield batch, ImportRows.of(batch.taken)


def rate_limited(
    batches: Iterator[Batch],
    rows_per_second: float,
    pause: Callable[[float], None],
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Batch]:
    """The same batches, the next of which is asked for when the rows of those before have had their time.

    `pause` is given the seconds that are left and may wait less; what it raises passes through.
    """
    begun, rows = clock(), 0
    with _closed(batches):
        for batch in batches:
            yield batch
            rows += sum(max(1, len(each.chunks)) for each in batch.taken)
            while (left := begun + rows / rows_per_second - clock()) > 0:
                pause(left)


def _count(tally: _Tally, seen: Sequence[str], problems: Sequence[RowProblem]) -> None:
    if seen:
        tally.seen.append(pa.array(seen, pa.string()))
        tally.there += len(seen)
    room = MAX_PROBLEMS - len(tally.problems)
    tally.problems += problems[:room]
    tally.more_problems += max(0, len(problems) - room)


def identify_embedder(store: Store, record: SourceRecord, embedder: QueryEmbedder, setting: str, stated: bool) -> str:
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
