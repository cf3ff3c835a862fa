"""Gathering run: the evidence of a query set, found where it was gathered before, or gathered a query at a time.

A `QuerySelection` says which queries are asked. The evidence of a selection under a config stands in a file on the shelf, the folder
`evidence` beside the store, whose name is a digest of all that gathering depends on: store and content version, embedder, gather
parameters, queries. So configs that ask for the same share it, and so do pages and command line: `read_evidence` gives the complete
evidence, of the selection or of a wider one of the same set; `gather_evidence` gathers it, or goes on with a gather that was broken
off; `pending_gathers` and `seconds_left` say what is missing and about how long that takes.

`gather_query_set` gathers into a file of any name. Each query is in the file as soon as it is there, so that what was finished before a
cancel or a kill stays, and a later gather goes on after it. Queries are embedded some dozens at a time. A query that cannot be searched
is left out and reported; a score that fails is flagged in the evidence, as in a single search.

If a running system answers the lists (`lists.answered_by: source`), its answers may have changed by now. A command therefore asks
again (`ensure_evidence`); a page shows the gathered answers with their date, and `discard_evidence` is its "Ask again". A system that
cannot be asked ends the gather: a measurement is never of the store's lists under that name.
"""

from __future__ import annotations

import hashlib
import random
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from cems_workbench import formats
from cems_workbench.config import PipelineConfig
from cems_workbench.config.renamed import original_parameters
from cems_workbench.errors import InputError
from cems_workbench.evaluation.evidence_file import (
    FORMAT,
    EvidenceFile,
    EvidenceSet,
    Header,
    config_text,
    mismatch,
    read_evidence_file,
    read_header,
    read_progress,
    replace_relevant_from,
)
from cems_workbench.jobs.caching import Cache, uncached
from cems_workbench.jobs.cluster import Cluster, cluster_at
from cems_workbench.models.embedder import RememberedQueries
from cems_workbench.pipeline import Evidence
from cems_workbench.pipeline.gather import Request, gather, gather_lists, gather_scores
from cems_workbench.pipeline.list_provenance import asked_between
from cems_workbench.pipeline.missing_evidence import gather_parameters
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages import RERANK
from cems_workbench.pipeline.variants import read_dictionary
from cems_workbench.progress import Cancelled, Progress, silent
from cems_workbench.records import Judgment, Query, RowError
from cems_workbench.sources.source import SourceError

PROGRESS_LABEL = "gathering queries"
QUERIES_PER_THREAD = 2
"""Queries that wait for each task that a cluster does at once, so that no worker waits for the next."""
EMBED_BATCH_SIZE = 64
"""Queries embedded at a time. Alone each costs a call of the model; with all cores busy a call takes as long as sixty texts."""
EVIDENCE_FOLDER, SUFFIX = "evidence", ".evidence"
MAX_NAME_CHARS = 40
ALL_QUERIES = "all"
"""Every query of the store, where no set is called so."""


@dataclass(frozen=True, slots=True)
class QuerySelection:
    """The queries that are asked: those of a set, or some of them, each within its own project or not."""

    query_set: str
    queries: tuple[Query, ...]
    project_only: bool = False


@dataclass(frozen=True, slots=True)
class GatherReport:
    """What a gather did: queries found finished, gathered now and left out, and the file's content hash."""

    path: Path
    finished_before: int
    gathered: int
    left_out: tuple[RowError, ...]
    content_hash: str
    seconds: float


@dataclass(frozen=True, slots=True)
class PendingGather:
    """A config whose evidence has to be gathered: how many of the queries are there already, and the seconds they took."""

    name: str
    config: PipelineConfig
    total: int
    finished: int = 0
    seconds: float = 0.0

    @property
    def pace(self) -> float | None:
        """Seconds a query took so far; None before the first."""
        return self.seconds / self.finished if self.finished else None


def judged_selection(
    query_set: str, resources: Resources, judgments: Sequence[Judgment], project_only: bool = False
) -> QuerySelection:
    """The queries of a set of the store that can be measured (`measurable`), in their order."""
    queries = tuple(measurable(resources.store.query_sets.queries(query_set), judgments))
    return QuerySelection(query_set, queries, project_only)


def measurable(queries: Iterable[Query], judgments: Iterable[Judgment]) -> list[Query]:
    """Those of the queries that have a judgment, or of which it was said that nothing answers them."""
    judged = {judgment.qid for judgment in judgments}
    return [query for query in queries if query.qid in judged or query.answerable is False]


def queries_named(name: str, resources: Resources, judged: bool) -> tuple[Sequence[Query], Sequence[Judgment]]:
    """The queries that a name means, a set of the store, `all`, or a file, and the judgments on them; `judged`: only those with one.

    A set of the store goes before a file of that name. Raises InputError when there are no queries.
    """
    names = {known.name for known in resources.store.query_sets.latest()}
    queries: Sequence[Query]
    judgments: list[Judgment] = resources.store.judgments.read()
    if name in names:
        queries = resources.store.query_sets.queries(name)
    elif name == ALL_QUERIES:
        queries = resources.store.queries.read()
    elif Path(name).exists():
        parsed = formats.read_path(Path(name))
        queries = [query for file in parsed for query in file.queries]
        judgments = [row for file in parsed for row in file.judgments] or judgments
    else:
        known = ", ".join(sorted(names | {ALL_QUERIES}))
        raise InputError(f"{name}: neither a query set of the store ({known}) nor a file")
    qids = {query.qid for query in queries}
    judgments = [row for row in judgments if row.qid in qids]
    if judged:
        queries = measurable(queries, judgments)
    if not queries:
        raise InputError(f"{name} has no queries" + (" with a judgment" if judged else ""))
    if len(qids) < len(queries):
        raise InputError(f"{name}: two queries have the same qid")
    return queries, judgments


def sample_queries(queries: Sequence[Query], limit: int | None, seed: int) -> list[Query]:
    """The queries in their order, or `limit` of them drawn without replacement with a seed, in their order."""
    if limit is None or limit >= len(queries):
        return list(queries)
    chosen = sorted(random.Random(seed).sample(range(len(queries)), limit))
    return [queries[i] for i in chosen]


def request_for(query: Query, moment: datetime, project_only: bool = False) -> Request:
    """What is asked for a query of a set: its project alone where it has one and that is wanted; `moment` where it has no as_of."""
    return Request(query.query, query.project, query.as_of or moment, project_only and query.project is not None)


def header_for(
    config: PipelineConfig, resources: Resources, *, query_set: str = "", project_only: bool = False
) -> Header:
    """What a gather with these would write at the head of its file."""
    store = resources.store
    embedder = resources.embedder.model_id
    now = datetime.now(UTC).isoformat()
    return Header(
        query_set,
        store.identity,
        store.content_version,
        embedder,
        config_text(config),
        now,
        project_only,
        store.query_sets.relevant_from(query_set),
    )


def gather_query_set(
    path: Path,
    queries: Sequence[Query],
    judgments: Sequence[Judgment],
    config: PipelineConfig,
    resources: Resources,
    *,
    query_set: str = "",
    project_only: bool = False,
    progress: Progress = silent,
) -> GatherReport:
    """Gather the evidence of every query into the file at `path`, which is made, or gone on with when it is there.

    Raises InputError when the file is of another store, set or config, naming what differs, and SourceError when the running system whose
    lists the config wants cannot be asked. A `Cancelled` from `progress` passes
    through; what was finished by then is in the file.
    """
    started = time.monotonic()
    resources.refresh()
    header = header_for(config, resources, query_set=query_set, project_only=project_only)
    there = path.exists()
    with (
        EvidenceFile.resume(path, header, queries)
        if there
        else EvidenceFile.create(path, header, queries, judgments) as file
    ):
        before = len(file.finished)
        gathered = 0
        left_out: list[RowError] = []
        missing = [(i, query) for i, query in enumerate(queries) if query.qid not in file.finished]
        asked = _QueryGather(queries, config, resources, file.header.moment, project_only)
        with ExitStack() as stack:
            cluster = stack.enter_context(cluster_at(resources.dask))
            for i, query, found in stack.enter_context(
                closing(asked.in_parallel(missing, cluster) if cluster is not None else asked.one_by_one(missing))
            ):
                progress(PROGRESS_LABEL, i, len(queries))
                try:
                    evidence, seconds = found()
                except InputError as error:
                    left_out.append(RowError(query_set or "queries", i + 1, str(error), query.qid))
                    continue
                require_answered(evidence, config)
                file.add(query.qid, evidence, seconds)
                gathered += 1
        mark = file.finish()
        progress(PROGRESS_LABEL, len(queries), len(queries))
    return GatherReport(path, before, gathered, tuple(left_out), mark, time.monotonic() - started)


GatherCall = Callable[[], tuple[Evidence, float]]
"""Gives the evidence of a query and the seconds it took; raises InputError where it cannot be searched."""


@dataclass
class _QueryGather:
    """The queries of a set as they are asked: in their order, embedded some dozens at a time."""

    queries: Sequence[Query]
    config: PipelineConfig
    resources: Resources
    moment: datetime
    project_only: bool
    embedded: int = 0
    """Queries before this one are embedded, or were finished."""
    over: bool = False
    """Nobody waits for what is still scored."""

    def one_by_one(self, missing: Sequence[tuple[int, Query]]) -> Generator[tuple[int, Query, GatherCall], None, None]:
        """Each query, gathered when it is asked for."""
        for i, query in missing:
            yield i, query, partial(self._gathered, i, query)

    def in_parallel(
        self, missing: Sequence[tuple[int, Query]], cluster: Cluster
    ) -> Generator[tuple[int, Query, GatherCall], None, None]:
        """Each query in the same order, while those after it are scored by the cluster.

        Lists are searched one query after the other, as ever. Two queries of one text are not scored at once: the second finds the
        scores of the first in the cache, as on one machine.
        """
        waiting: deque[tuple[int, Query, Future[tuple[Evidence, float]]]] = deque()
        pool = ThreadPoolExecutor(most := QUERIES_PER_THREAD * cluster.threads, thread_name_prefix="gather")
        self.resources.elsewhere = cluster.score
        try:
            for i, query in missing:
                while waiting and (len(waiting) >= most or query.query in {asked.query for _, asked, _ in waiting}):
                    at, first, scored = waiting.popleft()
                    yield at, first, scored.result
                try:
                    task = pool.submit(self._scored, *self._lists(i, query))
                except InputError as error:
                    task = Future()
                    task.set_exception(error)
                waiting.append((i, query, task))
            while waiting:
                at, first, scored = waiting.popleft()
                yield at, first, scored.result
        finally:
            self.over = True
            pool.shutdown(cancel_futures=True)  # the batches under way are waited for: they are in the cache then
            self.resources.elsewhere = None

    def _gathered(self, i: int, query: Query) -> tuple[Evidence, float]:
        request, begun = self._request(i, query), time.monotonic()
        return gather(request, self.config, self.resources), time.monotonic() - begun

    def _lists(self, i: int, query: Query) -> tuple[Evidence, float]:
        request, begun = self._request(i, query), time.monotonic()
        return gather_lists(request, self.config, self.resources), time.monotonic() - begun

    def _request(self, i: int, query: Query) -> Request:
        """What is asked; its query, and those after it, are embedded."""
        if i >= self.embedded:
            self.embedded = i - i % EMBED_BATCH_SIZE + EMBED_BATCH_SIZE
            embed_ahead(self.queries[i : self.embedded], self.resources)
        return request_for(query, self.moment, self.project_only)

    def _scored(self, lists: Evidence, seconds: float) -> tuple[Evidence, float]:
        begun = time.monotonic()
        evidence = gather_scores(lists, self.config, self.resources, self._unless_over)
        return evidence, seconds + time.monotonic() - begun

    def _unless_over(self, label: str, done: int, total: int) -> None:
        if self.over:
            raise Cancelled


def require_answered(evidence: Evidence, config: PipelineConfig) -> None:
    """Raises SourceError where the config wants the lists of a running system and the evidence has the store's, with the reason."""
    if config.lists.answered_by == "source" and "engine" not in evidence.notes:
        said = evidence.notes.get("warnings", {}).get("lists", ())
        why = next((line for line in said if "the store's own" in line), "no running system was asked")
        raise SourceError(f"lists.answered_by is source, and of “{evidence.query}” {why}")


def embed_ahead(queries: Sequence[Query], resources: Resources) -> None:
    """Variants and corrected queries are embedded when they are searched; those as typed are known before."""
    embed_queries([query.query for query in queries], resources)


def embed_queries(texts: Sequence[str], resources: Resources) -> None:
    """Embed queries as they were typed, all at once, where the embedder remembers them."""
    if isinstance(resources.embedder, RememberedQueries):
        resources.embedder.remember([text.strip() for text in texts])


def set_relevant_from(query_set: str, grade: int, resources: Resources) -> None:
    """Count this grade of a set and higher ones as relevant from now on: in the store, and in the evidence that stands beside it.

    Raises InputError off the set's scale, StoreError without such a set.
    """
    resources.store.query_sets.set_relevant_from(query_set, grade)
    for path in sorted(_shelf(resources).glob(f"*{SUFFIX}")):
        with suppress(
            InputError
        ):  # it is open elsewhere, or damaged; who reads it through the store has the store's grade
            if read_header(path).query_set == query_set:
                replace_relevant_from(path, grade)


def evidence_path(config: PipelineConfig, selection: QuerySelection, resources: Resources) -> Path:
    """Where the evidence of a config is, or would be; the name says what it is of, the digest what it was gathered with."""
    return _shelf(resources) / _file_name(selection, _digest(config, selection, resources))


def _shelf(resources: Resources) -> Path:
    return resources.store.path / EVIDENCE_FOLDER


def _file_name(selection: QuerySelection, digest: str) -> str:
    name = re.sub(r"[^\w.-]+", "-", selection.query_set).strip("-.")[:MAX_NAME_CHARS] or "queries"
    return f"{name}-{digest}{SUFFIX}"


def _digest(config: PipelineConfig, selection: QuerySelection, resources: Resources) -> str:
    """Of all that gathering depends on; how the set is called is no part of it."""
    store = resources.store
    parts: tuple[object, ...] = (
        store.identity,
        store.content_version,
        resources.embedder.model_id,
        selection.project_only,
        sorted(original_parameters(gather_parameters(config)).items()),
        selection.queries,
        FORMAT,
    )
    words = dictionary_entries(config, resources)
    if words is not None:
        parts += (words,)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


def dictionary_entries(config: PipelineConfig, resources: Resources) -> Sequence[tuple[str, str]] | None:
    """The words that expansion looks up, which make other variants when one is added; None where it does not."""
    return (
        sorted(read_dictionary(resources.dictionary_path).items()) if config.expansion.backend == "dictionary" else None
    )


def store_mismatch(header: Header, resources: Resources) -> str | None:
    """Why a file is not evidence of the open store as it is now; None when it is."""
    here = header_for(header.config, resources, query_set=header.query_set, project_only=header.project_only)
    return mismatch(header, here)


class _Incomplete(Exception):
    """A gather was broken off; no cache keeps that."""


def read_evidence(
    config: PipelineConfig, selection: QuerySelection, resources: Resources, cache: Cache = uncached
) -> EvidenceSet | None:
    """The complete evidence of a config, None while there is none. Raises InputError for a file that is damaged.

    Where only a wider selection of the same set was gathered, it is that one's, with the asked queries alone. `cache` keeps what was
    read as long as its file is unchanged.
    """
    evidence = read_exact_evidence(config, selection, resources, cache)
    if evidence is not None:
        return evidence
    for wider in _wider_selections(selection, resources):
        evidence = read_exact_evidence(config, wider, resources, cache)
        if evidence is not None:
            return restricted(evidence, selection.queries)
    return None


def read_exact_evidence(
    config: PipelineConfig, selection: QuerySelection, resources: Resources, cache: Cache = uncached
) -> EvidenceSet | None:
    """The complete evidence of just these queries; that of a set of another name with the same queries is as good."""
    here = header_for(config, resources, query_set=selection.query_set, project_only=selection.project_only)
    digest = _digest(config, selection, resources)
    own = _file_name(selection, digest)
    for path in sorted(_shelf(resources).glob(f"*-{digest}{SUFFIX}"), key=lambda path: path.name != own):

        def read(path: Path = path) -> EvidenceSet:
            evidence = read_evidence_file(path)
            if not evidence.complete or mismatch(evidence.header, here) is not None:
                raise _Incomplete
            return evidence

        with suppress(_Incomplete, FileNotFoundError):
            return cache(("evidence", path, path.stat().st_mtime_ns), read)
    return None


def _wider_selections(selection: QuerySelection, resources: Resources) -> Iterator[QuerySelection]:
    """What else may have been gathered of the same set that holds every query of the selection: the judged ones, and all of it."""
    store = resources.store
    if selection.query_set not in {known.name for known in store.query_sets.latest()}:
        return
    whole = tuple(store.query_sets.queries(selection.query_set))
    asked = set(selection.queries)
    for queries in (tuple(measurable(whole, store.judgments.read())), whole):
        if queries != selection.queries and asked.issubset(queries):
            yield replace(selection, queries=queries)


def restricted(evidence: EvidenceSet, queries: Sequence[Query]) -> EvidenceSet:
    """The evidence of some of its queries; the time is their share of all, since a file does not say it of each."""
    evidences = {query.qid: evidence.evidences[query.qid] for query in queries if query.qid in evidence.evidences}
    share = len(evidences) / len(evidence.evidences) if evidence.evidences else 0.0
    return replace(evidence, queries=tuple(queries), evidences=evidences, seconds=evidence.seconds * share)


def gather_evidence(
    config: PipelineConfig,
    selection: QuerySelection,
    judgments: Sequence[Judgment],
    resources: Resources,
    progress: Progress = silent,
) -> GatherReport:
    """Gather the evidence of a config into its file, or go on with it.

    Raises as `gather_query_set` does, and InputError while another thread of this process gathers the same.
    """
    path = evidence_path(config, selection, resources)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path.parent}: cannot be made: {error.strerror}") from None
    with exclusive(path):
        return gather_query_set(
            path,
            selection.queries,
            judgments,
            config,
            resources,
            query_set=selection.query_set,
            project_only=selection.project_only,
            progress=progress,
        )


def ensure_evidence(
    config: PipelineConfig,
    selection: QuerySelection,
    judgments: Sequence[Judgment],
    resources: Resources,
    progress: Progress = silent,
    cache: Cache = uncached,
    since: datetime | None = None,
) -> EvidenceSet:
    """The evidence of a config: that which is there, else gathered first. Raises as `gather_evidence` does.

    Lists of a running system are asked for anew, unless they were answered after `since`; None is now.
    """
    since = since or datetime.now(UTC)
    evidence = read_evidence(config, selection, resources, cache)
    if evidence is not None and config.lists.answered_by == "source":
        asked = asked_between(evidence.evidences.values())
        if asked is None or asked[1] < since:
            discard_evidence(config, selection, resources)
            evidence = None
    if evidence is None:
        gather_evidence(config, selection, judgments, resources, progress)
        evidence = read_evidence(config, selection, resources, cache)
    if evidence is None:
        raise InputError(f"{config.name}: its evidence could not be gathered")
    return evidence


def discard_evidence(config: PipelineConfig, selection: QuerySelection, resources: Resources) -> None:
    """Delete what `read_evidence` would give, so that it is gathered anew. Raises InputError while another thread gathers it."""
    for one in (selection, *_wider_selections(selection, resources)):
        for path in _shelf(resources).glob(f"*-{_digest(config, one, resources)}{SUFFIX}"):
            with exclusive(path):
                path.unlink(missing_ok=True)


_under_way: set[Path] = set()
_changing = threading.Lock()


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Nobody else of this process writes to an evidence file meanwhile: two windows would gather the same queries. Raises InputError."""
    with _changing:
        if path in _under_way:
            raise InputError("another window gathers or scores just this; wait until it is done, or cancel it there")
        _under_way.add(path)
    try:
        yield
    finally:
        with _changing:
            _under_way.discard(path)


def pending_gathers(
    configs: Sequence[tuple[str, PipelineConfig]], selection: QuerySelection, resources: Resources
) -> list[PendingGather]:
    """How far the gather of each of these named configs had come when it was broken off."""
    pending = []
    for name, config in configs:
        finished, seconds = _progress_of(evidence_path(config, selection, resources))
        pending.append(PendingGather(name, config, len(selection.queries), finished, seconds))
    return pending


def _progress_of(path: Path) -> tuple[int, float]:
    try:
        return read_progress(path) if path.is_file() else (0, 0.0)
    except InputError:  # it is being gathered right now, or is damaged, which a gather says
        return 0, 0.0


def seconds_left(pending: Sequence[PendingGather], paces: Sequence[tuple[PipelineConfig, float]] = ()) -> float | None:
    """About how many seconds the pending gathers take together; None while that would be a guess.

    A gather that has begun goes on at its own pace. One that has not goes at the slowest of `paces`, seconds a query by config, among
    those with the same reranker, judge and expansion, which are what takes long.
    """
    left = 0.0
    for gather_begun in pending:
        pace = gather_begun.pace
        if pace is None:
            alike = [seconds for config, seconds in paces if _slow_parts(config) == _slow_parts(gather_begun.config)]
            if not alike:
                return None
            pace = max(alike)
        left += pace * (gather_begun.total - gather_begun.finished)
    return left


def _slow_parts(config: PipelineConfig) -> tuple[object, ...]:
    rerank = config.rerank
    head = (rerank.model, rerank.depth) if not RERANK.is_off(config) else ()
    return rerank.backend, *head, config.judge.backend, config.expansion.backend
