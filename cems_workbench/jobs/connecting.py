"""Import from a live source: a snapshot in batches, which can be resumed.

    probe -> new and changed memories with chunks and vectors -> deletion of memories that the source no longer has -> relations

The source is read-only, and nothing is embedded if it has vectors. Only memories whose marker differs from that of the last snapshot are
read, at most `rows_per_second`. `connect` is the whole job: import, identify the embedder of the vectors, and search with it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import pyarrow as pa

from cems_workbench.analysis.vector_origins import VectorOrigins
from cems_workbench.config.forms.targets import OWN, system_named
from cems_workbench.errors import InputError, ModelError, StoreError
from cems_workbench.jobs import embedder_match, factory, importing, targets
from cems_workbench.models.embedder_match import candidates
from cems_workbench.models.protocol import QueryEmbedder
from cems_workbench.pipeline.live_engine import scale_note
from cems_workbench.pipeline.resources import Resources
from cems_workbench.platform import start_up
from cems_workbench.platform.parsing import yaml_values
from cems_workbench.progress import Progress, silent
from cems_workbench.records import DEFAULT_TEXT_RULE, TakenMemory, TextRule
from cems_workbench.results import Report, Table
from cems_workbench.settings import Settings, save_target, saved_target
from cems_workbench.sources import connect as sources
from cems_workbench.sources.address import FROM_ADDRESS, Address, parse, parse_saved
from cems_workbench.sources.chroma import MARKER
from cems_workbench.sources.collection import NO_VECTORS, VECTORS
from cems_workbench.sources.source import Batch, RowProblem, Source, SourceError, SourceInfo
from cems_workbench.store import Store
from cems_workbench.store.rows import NO_ROWS, RowCounts
from cems_workbench.store.sources import CONTENT, PREFIX_FORMS, UNPROVEN, ImportRows, SourceRecord, VectorLengths

Item = TypeVar("Item")

CANCEL_POLL_S = 0.5
"""How often a wait for the rate limit checks for a cancel."""
MAX_PROBLEMS = 1_000
"""Most problems that a report lists; the rest is counted."""


@dataclass(frozen=True, slots=True)
class SnapshotReport:
    """The result of a snapshot. `read` memories were transferred; `vectors` of their texts have a vector, `without` have none."""

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
    expired: int = 0
    """Memories that are past their valid_until when the snapshot begins."""
    deleted_there: int = 0
    """Memories that the source keeps as deleted, which are imported as deleted."""
    duplicates: int = 0
    """Rows with the id of another row, which are left out."""
    replaced: Mapping[str, int] = field(default_factory=dict)
    """Memories of other sources that had the same ids, by address."""
    lengths: VectorLengths = field(default_factory=VectorLengths)
    """The lengths of all vectors that the store has of the source."""
    origins: VectorOrigins | None = None
    """Which of them are not of their texts; None of a source without vectors."""
    embedder: str = ""
    """What is known of the embedder that made them."""
    runs: Sequence[str] = ()
    """In which target it is used, and what that changes in the store."""

    @property
    def table(self) -> Table:
        """A row for memories, and one for relations if there are any: added, updated, unchanged, deleted."""
        kinds = [("memories", self.memories, self.deleted)]
        if self.relations.total or self.relations_deleted:
            kinds.append(("relations", self.relations, self.relations_deleted))
        rows = tuple((name, of.added, of.updated, of.unchanged, deleted) for name, of, deleted in kinds)
        columns = ("rows", "added", "updated", "unchanged", "deleted")
        return Table(columns, rows, f"{self.address}: {self.probe.kind}, {self.probe.engine}")

    @property
    def lines(self) -> list[str]:
        """Lines about what was read, and what the source lacks."""
        read = f"{self.read:,} memories read in {self.seconds:.1f} s, {self.vectors:,} vectors"
        without = f"{self.without:,} of the texts read have no vector, so they are in no vector list"
        if self.probe.dimension is None:
            without = "no vectors of the source: its texts are embedded here, by the store's embedder"
        counted = {
            "expired there; imported with valid_until, and left out of searches with supersession.expired: drop": self.expired,
            "deleted there; imported as deleted, to be restored on Memories": self.deleted_there,
            **{
                f"with the id of a memory of {address}, which they replaced: a source whose ids are the same needs another --store": count
                for address, count in self.replaced.items()
            },
            "with the id of another row: the first of each was imported": self.duplicates,
            "with a vector of zeros, which has no cosine: left out of live lists, and counted as a cosine of 0 in a vector list of the "
            "workbench": self.lengths.zeros,
        }
        scale = scale_note(self.probe.distance, self.lengths)
        return [
            read,
            *self.runs,
            *([self.embedder] if self.embedder else []),
            *([] if self.origins is None else self.origins.lines),
            *([without] if self.without else []),
            *(f"{count:,} {what}" for what, count in counted.items() if count),
            *(f"the engine's scores, {line}" for line in self.probe.score_lines),
            *([scale] if scale else []),
            *self.probe.missing,
            *self.probe.notes,
        ]


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """A source to import: address and mapping of columns or fields."""

    address: Address
    mapping: Mapping[str, Any] | None = None


@dataclass(frozen=True, eq=False, repr=False)
class ConnectReport(Report):
    """The result of `connect`: the report of each source. `problem` is the reason why the imported memories cannot be
    searched; empty if they can."""

    sources: Sequence[SnapshotReport] = ()
    problem: str = ""


def _connected(
    sources: Sequence[SnapshotReport], problem: str = "", late: str = "", labels: Sequence[str] = ()
) -> ConnectReport:
    title, several = ", ".join(one.address for one in sources), len(sources) > 1
    notes = [f"{one.address}: {line}" if several else line for one in sources for line in one.lines]
    notes += [*labels, *([late] if late else [])]
    values = {"sources": list(map(asdict, sources)), "problem": problem or None}
    return ConnectReport(title, (), [one.table for one in sources], notes, values, sources, problem)


def source_specs(resources: Resources, typed: str | None, mapping: Mapping[str, Any] | None = None) -> list[SourceSpec]:
    """The source at a typed address, or every source of the store if None. Raises InputError, also for a store without
    sources. Secrets known to `resources` and mappings saved in the store are used again."""
    saved = resources.store.sources.read()
    if typed is None:
        if not saved:
            raise InputError("the store has no source yet; name its address")
        return [saved_spec(resources, each) for each in saved]
    address = parse(typed)
    if address.secret_from != FROM_ADDRESS:
        address = resources.address(address.plain) or address
    before = next((each.mapping for each in saved if each.address == address.plain), None)
    return [SourceSpec(address, mapping or before)]


def saved_spec(resources: Resources, record: SourceRecord) -> SourceSpec:
    """A source of the store, with its secret from where it was found before. Raises InputError."""
    address = resources.address(record.address) or parse_saved(record.address, record.secret_from)
    return SourceSpec(address, record.mapping)


def read_mapping(text: str, named: str) -> Mapping[str, Any]:
    """A mapping from YAML, validated when the source is opened. Raises InputError, which calls it `named`."""
    values = yaml_values(text, named)
    if not isinstance(values, dict):
        raise InputError(f"{named}: must be names and columns, such as `id: uuid`")
    return values


def probe_source(spec: SourceSpec) -> SourceInfo:
    """Describe a source without importing anything. Raises InputError and SourceError."""
    with closing(sources.open_source(spec.address, spec.mapping)) as source:
        return source.probe()


def connect(
    resources: Resources,
    settings: Settings,
    specs: Sequence[SourceSpec],
    progress: Progress = silent,
    embedder: str | None = None,
    rows_per_second: float | None = None,
    *,
    only_searchable: bool = False,
    target: str | None = None,
) -> ConnectReport:
    """Import these sources, identify the embedder of their vectors, and search with it from now on.

    The target that wrote the rows, or `target`, is saved with a store that has none. `embedder` is the setting of the embedder that the
    caller says made them. `resources` keep the secrets in memory. `only_searchable` imports nothing of a source whose vectors the store's
    embedder did not make, unless `embedder` names another.
    Raises InputError and what `take_snapshot` raises; what was imported by then stays.
    """
    before = factory.for_store(settings, resources.store).embedder
    imported = []
    try:
        for spec in specs:
            resources.know_address(spec.address)
            report = _import_source(resources, settings, spec, progress, embedder, rows_per_second, only_searchable)
            imported.append(replace(report, runs=_target_of(resources.store, spec, report.probe, target)))
    finally:
        follow_embedder(resources, settings, before)
    labels = importing.follow(resources.store) if any(one.memories.added or one.deleted for one in imported) else []
    try:
        resources.refresh(progress)
    except (ModelError, StoreError) as failure:  # the import itself is complete
        return _connected(imported, str(failure), labels=labels)
    return _connected(imported, labels=labels, late=resources.store.indexes.catch_up_chroma(resources.embedder.model_id, progress))


def _target_of(store: Store, spec: SourceSpec, probe: SourceInfo, named: str | None) -> list[str]:
    """Save the target of a source with the store, unless it has one; returns lines about it. Raises InputError for an unknown name."""
    if named == OWN:
        save_target(store.path, None)
        return []
    system = system_named(named) if named else None
    found = (system, system.presets[0], {}) if system else targets.of_probe(probe)
    if found is None or (saved_target(store.path) is not None and system is None):
        return []
    alone = store.memories.count() == sum(each.memories for each in store.sources.read())
    return targets.choose(store, *found, [] if spec.address.host else [Path(spec.address.path).parent], texts=alone)


def forget(resources: Resources, settings: Settings, address: str) -> int:
    """Remove the source at this plain address with its memories; returns their number. Raises InputError if there is none."""
    saved = {each.address: each.id for each in resources.store.sources.read()}
    if address not in saved:
        raise InputError(f"the store has no source {address}; it has {', '.join(saved) or 'none'}")
    before = factory.for_store(settings, resources.store).embedder
    count = resources.store.sources.forget(saved[address])
    follow_embedder(resources, settings, before)
    return count


def follow_embedder(resources: Resources, settings: Settings, before: str) -> None:
    """Search with the embedder that the store needs now; `before` is the setting of the previous one."""
    now = factory.for_store(settings, resources.store)
    if now.embedder != before:
        resources.use_embedder(factory.embedder(now))


def _import_source(
    resources: Resources,
    settings: Settings,
    spec: SourceSpec,
    progress: Progress,
    stated: str | None,
    rows_per_second: float | None,
    only_searchable: bool,
) -> SnapshotReport:
    """The snapshot of one source, and what is known of its embedder."""
    store = resources.store
    known = {each.address: each.embedder for each in store.sources.read()}
    address, secret_from = spec.address.plain, spec.address.secret_from
    first = resources.embedder if only_searchable and not (stated or known.get(address)) else None
    try:
        with closing(sources.open_source(spec.address, spec.mapping)) as source:
            when = datetime.now(UTC)
            report = take_snapshot(store, source, when, progress, spec.mapping, secret_from, rows_per_second, first)
    except (InputError, SourceError):
        for each in store.sources.read() if only_searchable else ():
            if each.address == address and address not in known and not each.memories:
                store.sources.forget(each.id)
        raise
    record = next(each for each in store.sources.read() if each.id == report.source_id)
    setting = stated or record.embedder or settings.embedder
    loaded = resources.embedder if setting == factory.for_store(settings, store).embedder else None
    progress("comparing vectors", 0, 0)
    try:
        made_by = loaded or factory.embedder(settings.model_copy(update={"embedder": setting}))
        line = identify_embedder(store, record, made_by, setting, stated is not None, progress)
    except ModelError as error:
        return replace(report, embedder=f"the embedder was not compared: {error}")
    kept = store.sources.kept_origins(record.id)
    return replace(report, origins=None if kept is None else VectorOrigins.of_json(kept), embedder=line)


def take_snapshot(
    store: Store,
    source: Source,
    when: datetime,
    progress: Progress = silent,
    mapping: Mapping[str, Any] | None = None,
    secret_from: str = "",
    rows_per_second: float | None = None,
    made_by: QueryEmbedder | None = None,
) -> SnapshotReport:
    """Refresh the source's memories in the store. `when` is the start of the snapshot.

    At most `rows_per_second` rows (chunks, or memories without chunks) are read on average: a batch is read at once, and the next one when
    its time has come. Relations are not limited: they are one statement, whose own time limit would expire.

    With `made_by` nothing is written, and InputError raised, if this embedder did not make the vectors of the first rows.

    Each batch is one commit. Raises what `progress` raises, SourceError if the source fails and StoreError if its vectors do not fit the
    store's; earlier batches stay, and the next snapshot resumes after them.
    """
    started = time.perf_counter()
    progress("asking the source", 0, 0)
    probe = source.probe()
    if made_by is not None and not probe.memories:
        raise InputError(f"{source.address} has no rows; nothing was imported")
    source_id = store.sources.begin(source.address, asdict(probe), probe.dimension, mapping, secret_from, when)
    counts: Counter[str] = Counter()
    seen: list[pa.Array] = []
    problems: list[RowProblem] = []
    replaced: Counter[str] = Counter()

    def changed(ids: Sequence[str], markers: Sequence[str]) -> Sequence[str]:
        wanted = store.sources.changed(source_id, ids, markers)
        counts["same"] += len(ids) - len(wanted)
        return wanted

    try:
        with start_up.paused(), store.sources.bulk_writes(), source.snapshot() as snapshot:
            progress("importing memories", 0, snapshot.total)

            def pause(seconds: float) -> None:
                progress("importing memories", counts["same"] + counts["read"], snapshot.total)
                time.sleep(min(seconds, CANCEL_POLL_S))

            batches, rule = snapshot.batches(changed), store.texts.rule
            # Prefetching would request the next batch before its time.
            limited = rate_limited(batches, rows_per_second, pause) if rows_per_second else batches
            rows_of = to_rows(limited, rule) if rows_per_second else prefetched(to_rows(batches, rule))
            for batch, rows in rows_of:
                seen += [pa.array(batch.seen, pa.string())] if batch.seen else []
                problems += batch.problems[: MAX_PROBLEMS - len(problems)]
                if made_by is not None and batch.taken:
                    require_made_by(made_by, source.address, probe, batch.taken)
                    made_by = None
                others = store.sources.addresses(rows.ids).values()
                replaced.update(each for each in others if each != source.address)
                written = store.sources.put(source_id, rows)
                texts, have = _texts(batch.taken)
                counts.update(
                    there=len(batch.seen),
                    read=len(batch.taken),
                    added=written.added,
                    updated=written.updated,
                    vectors=have,
                    without=texts - have,
                    problems=len(batch.problems),
                    duplicates=sum(each.duplicate for each in batch.problems),
                )
                progress("importing memories", counts["same"] + counts["read"], snapshot.total)
            deleted = store.sources.remove_absent(source_id, seen)
            progress("importing relations", 0, 0)
            edges, edges_deleted = store.sources.put_relations(source_id, snapshot.relations())
    except SourceError as error:
        if not counts["read"]:
            raise
        raise SourceError(f"{error}; {counts['read']} memories were imported, connect again to resume") from None
    store.sources.finish(source_id, when)
    for each in store.sources.read():
        # A folder and its only collection are one place, whichever of the two addresses was typed.
        place, other = (one.partition("?")[0].rstrip("/") for one in (source.address, each.address))
        emptied = each.id != source_id and each.probe.get("memories") and not each.memories + each.deleted
        if emptied and counts["there"] and f"{place}/".startswith(f"{other}/") | f"{other}/".startswith(f"{place}/"):
            store.sources.forget(each.id)
            replaced.pop(each.address, None)
    expired, deleted_there = store.sources.hidden_there(source_id, when)
    return SnapshotReport(
        source_id=source_id,
        address=source.address,
        probe=probe,
        memories=RowCounts(counts["added"], counts["updated"], counts["there"] - counts["added"] - counts["updated"]),
        read=counts["read"],
        deleted=deleted,
        vectors=counts["vectors"],
        without=counts["without"],
        relations=edges,
        relations_deleted=edges_deleted,
        problems=tuple(problems),
        more_problems=counts["problems"] - len(problems),
        seconds=time.perf_counter() - started,
        expired=expired,
        deleted_there=deleted_there,
        duplicates=counts["duplicates"],
        replaced=replaced,
        lengths=store.sources.vector_lengths(source_id),
    )


def require_made_by(embedder: QueryEmbedder, address: str, probe: SourceInfo, taken: Sequence[TakenMemory]) -> None:
    """Raise InputError unless these memories have no vectors, or those of this embedder. Raises ModelError."""
    if probe.dimension is None:
        return
    found = f"has vectors of {probe.dimension:,} numbers, and {embedder.model_id} makes {embedder.dimension:,}"
    if probe.dimension == embedder.dimension:
        match = embedder_match.match_texts(embedder_match.taken_texts(taken), embedder)
        if not match.asked or match.proven or match.likely:
            return
        found = f"has vectors of another embedder than {embedder.model_id}: {match}"
    named = f"; it names {probe.model}" if probe.model else ""
    raise InputError(
        f"{address} {found}{named}; nothing was imported: --embedder MODEL names the one that made them "
        f"({candidates(probe.dimension)}), --re-embed takes the texts alone and embeds them"
    )


def folder_address(path: Path, *, re_embed: bool = False) -> str | None:
    """The address of a folder that Chroma wrote, or of a collection in one; None of any other path."""
    folder = path.parent if path.name == MARKER else path
    if folder.is_file() or not any((each / MARKER).is_file() for each in (folder, folder.parent)):
        return None
    return f"chroma:{quote(str(folder.absolute()))}{f'?{VECTORS}={NO_VECTORS}' if re_embed else ''}"


@contextmanager
def _closed(items: Iterator[Any]) -> Iterator[None]:
    try:
        yield
    finally:
        if isinstance(items, Generator):
            items.close()


def prefetched(items: Iterator[Item]) -> Iterator[Item]:
    """The same items; a thread fetches the next one while one is processed. Closing waits for it."""
    with _closed(items), ThreadPoolExecutor(1, "ahead") as pool:
        following = pool.submit(next, items, None)
        while (item := following.result()) is not None:
            following = pool.submit(next, items, None)
            yield item


def to_rows(batches: Iterator[Batch], rule: TextRule = DEFAULT_TEXT_RULE) -> Iterator[tuple[Batch, ImportRows]]:
    """Batches, each with its memories as rows of the store, whose text rule is `rule`."""
    with _closed(batches):
        for batch in batches:
            yield batch, ImportRows.of(batch.taken, rule)


def rate_limited(
    batches: Iterator[Batch],
    rows_per_second: float,
    pause: Callable[[float], None],
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Batch]:
    """The same batches; the next one is requested when the rows so far are within the rate. `pause` gets the remaining
    seconds and may wait less; its exceptions pass through."""
    started, rows = clock(), 0
    with _closed(batches):
        for batch in batches:
            yield batch
            rows += _texts(batch.taken)[0]
            while (left := started + rows / rows_per_second - clock()) > 0:
                pause(left)


def _texts(taken: Sequence[TakenMemory]) -> tuple[int, int]:
    """How many texts these memories have (chunks, or the memory without any), and how many of them have a vector."""
    texts = have = 0
    for each in taken:
        vectors = [chunk.vector for chunk in each.chunks] or [each.vector]
        texts += len(vectors)
        have += sum(vector is not None for vector in vectors)
    return texts, have


def identify_embedder(
    store: Store, record: SourceRecord, embedder: QueryEmbedder, setting: str, stated: bool, progress: Progress = silent
) -> str:
    """Save the embedder of a source if it is known: `stated` by the user, or it reproduces vectors. Returns a line about it.

    `setting` names it in the settings. A stated embedder is accepted if its dimension fits; the line shows how well it reproduces the
    vectors. One that reproduces some of them is taken, and what is known of the origins of the others is kept in the store. One whose
    vectors are near those of the source is taken too, with a warning in the line: another text may have been embedded. Raises ModelError if
    it does not answer, and what `progress` raises.
    """
    if record.dimension is None:
        return ""
    fits = embedder.dimension == record.dimension
    match = embedder_match.match_source(store, record, embedder) if fits else embedder_match.NOT_COMPARED
    origins = embedder_match.vector_origins(store, record, embedder, match, embedder_match.MOST_VECTORS, progress)
    store.sources.keep_origins(record.id, origins.to_json())
    if not fits:
        return (
            f"the embedder {embedder.model_id} makes {embedder.dimension} numbers, the source has {record.dimension}: "
            f"{candidates(record.dimension)}; name the one that made them: {embedder_match.naming(record.address)}"
        )
    if not match.asked and not stated:
        return f"the embedder was not compared: {match}; {candidates(record.dimension)}; {embedder_match.naming(record.address)}"
    if match.proven or match.likely or stated:
        form = match.form if match.proven else UNPROVEN
        if (record.embedder, record.model_id, record.text_form) != (setting, embedder.model_id, form):
            store.sources.name_embedder(record.id, setting, embedder.model_id, form)
        return f"embedder {embedder.model_id}: {match}{_doubt(match, stated, record.address)}"
    return f"{embedder.model_id} is not the embedder: {match}; {candidates(record.dimension)}; {embedder_match.naming(record.address)}"


PREFIXED = (
    "; such a model wants another prefix before queries, which are embedded without one: only an embedder on a server adds prefixes "
    "(CEMS_WORKBENCH_EMBEDDING_TEXT_PREFIX and CEMS_WORKBENCH_EMBEDDING_QUERY_PREFIX)"
)


def _doubt(match: embedder_match.SourceMatch, stated: bool, address: str) -> str:
    """What to think of vectors that were not reproduced; empty if they were, or none was compared."""
    if match.proven or not match.asked:
        queries = "" if match.form not in PREFIX_FORMS else PREFIXED
        edited = f"; memories that are edited here are embedded so too{queries}" if match.form != CONTENT else ""
        few = 2 * match.match.reproduced < match.asked and not stated
        return edited + (f"; if another model embeds the queries: {embedder_match.naming(address)}" if few else "")
    if match.likely:
        another = "" if stated else f"; if another model made them: {embedder_match.naming(address)}"
        return f": it is searched with, and edited memories are embedded by the store's own text rule{another}"
    return "; it is searched with as you named it, though another model seems to have made the vectors"
