"""Evidence of query sets: read from a file if it was gathered before, otherwise gathered a query at a time, with resume.

A `QuerySelection` names the queries. The evidence of a selection under a config is a file in the folder `evidence` of the store. Its name
is a digest of all that gathering depends on: store and content version, embedder, gather parameters, queries. So configs with the same
gather parameters share it, and so do pages and commands: `read_evidence` returns the complete evidence, of the selection or of a wider
one of the same set; `gather_evidence` gathers it, or resumes an interrupted gather; `pending_gathers` and `seconds_left` describe what is
missing.

`gather_query_set` gathers into a file of any name. Each query is written once it is finished, so that a later gather resumes after a
cancel or a kill. A query that cannot be searched is left out and reported; a score that fails is flagged in the evidence, as in a
single search.

If a running system answers the lists (`lists.answered_by: source`), its answers may have changed by now. A command therefore asks
again (`ensure_evidence`); a page shows the gathered answers with their date, and `discard_evidence` is its "Ask again". A system that
cannot be asked ends the gather: a measurement is never of the store's lists under that name.
"""

from __future__ import annotations

import hashlib
import random
import re
import shutil
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from cems_workbench import formats
from cems_workbench.config import PipelineConfig, asks_source, portable_yaml
from cems_workbench.config.sections import BY_LANGUAGE
from cems_workbench.errors import InputError
from cems_workbench.evaluation import evidence_file
from cems_workbench.jobs.factory import Cache, uncached
from cems_workbench.jobs.traced_sets import is_external, traced_header
from cems_workbench.jobs.traces import read_traced, require_replayable
from cems_workbench.models.embedder import CachedQueries
from cems_workbench.pipeline import Evidence
from cems_workbench.pipeline.gather import Request, gather, notes_superseded
from cems_workbench.pipeline.list_sources import SOURCES, asked_between
from cems_workbench.pipeline.missing_evidence import portable_parameters
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages import RERANK
from cems_workbench.pipeline.supersession import SUPERSEDED
from cems_workbench.pipeline.understanding import read_dictionary
from cems_workbench.platform.atomic_write import output_path
from cems_workbench.progress import Progress, silent
from cems_workbench.records import ENGLISH, Judgment, Query, RowError
from cems_workbench.sources.source import SourceError
from cems_workbench.store.queries import given_text
from cems_workbench.store.search.stop_lists import NotInstalledError, stop_list

PROGRESS_LABEL = "gathering queries"
EMBED_BATCH_SIZE = 64
"""Queries embedded at a time: with all cores busy, a call of the model for one text takes as long as for sixty."""
EVIDENCE_FOLDER, SUFFIX = "evidence", ".evidence"
MAX_NAME_CHARS = 40
ALL_QUERIES = "all"
"""The name for every query of the store, unless a set has it."""


@dataclass(frozen=True, slots=True)
class QuerySelection:
    """The queries of a set, or some of them, each restricted to its own project or not."""

    query_set: str
    queries: tuple[Query, ...]
    only_project: bool = False

    @property
    def without_project(self) -> str | None:
        """What to say of queries that are to be searched within their project and name none; None if there are none."""
        count, of = sum(query.project is None for query in self.queries), len(self.queries)
        if not self.only_project or not count:
            return None
        who = "no query names a project" if count == of else f"{count} of {of} queries name no project"
        return f"{who}: searched over all memories, as without restricting to projects"


@dataclass(frozen=True, slots=True)
class GatherReport:
    """Result of a gather: queries finished before, gathered now and left out, and the file's content hash."""

    path: Path
    finished_before: int
    gathered: int
    left_out: tuple[RowError, ...]
    content_hash: str
    seconds: float


@dataclass(frozen=True, slots=True)
class PendingGather:
    """A config whose evidence must be gathered: the number of finished queries, and the seconds they took."""

    name: str
    config: PipelineConfig
    total: int
    finished: int = 0
    seconds: float = 0.0

    @property
    def pace(self) -> float | None:
        """Mean seconds per finished query; None before the first."""
        return self.seconds / self.finished if self.finished else None


def judged_selection(
    query_set: str, resources: Resources, judgments: Sequence[Judgment], only_project: bool = False
) -> QuerySelection:
    """The queries of a set of the store that can be measured (`measurable`), in their order."""
    queries = tuple(measurable(resources.store.query_sets.queries(query_set), judgments))
    return QuerySelection(query_set, queries, only_project)


def measurable(queries: Iterable[Query], judgments: Iterable[Judgment]) -> list[Query]:
    """The queries with a judgment, and those that are marked as having no answer."""
    judged = {judgment.qid for judgment in judgments}
    return [query for query in queries if query.qid in judged or query.answerable is False]


def queries_named(name: str, resources: Resources, judged: bool) -> tuple[Sequence[Query], Sequence[Judgment]]:
    """The queries of a set of the store, of `all`, or of a file, with their judgments; with `judged` only the
    `measurable` ones. A set of the store takes precedence over a file of that name. Raises InputError if there are no
    queries."""
    names = {known.name for known in resources.store.query_sets.latest()}
    queries: Sequence[Query]
    judgments: list[Judgment] = resources.store.judgments.read()
    if name in names:
        queries = resources.store.query_sets.queries(name)
    elif name == ALL_QUERIES:
        queries = resources.store.queries.read()
    elif Path(name).exists():
        parsed = formats.read_path(Path(name))
        # In the order of a set, so that what is gathered of the file is the evidence of the set that it was imported as.
        queries = sorted((query for file in parsed for query in file.queries), key=lambda query: query.qid)
        judgments = [row for file in parsed for row in file.judgments] or judgments
    else:
        known = ", ".join(sorted(names | {ALL_QUERIES}))
        raise InputError(f"{name}: neither a query set of the store ({known}) nor a file")
    qids = {query.qid for query in queries}
    judgments = [row for row in judgments if row.qid in qids]
    if judged:
        queries = measurable(queries, judgments)
    if not queries:
        lacking = " with a judgment: import some, such as a qrels file of these query ids, or judge results on Label"
        whose = "the store" if name == ALL_QUERIES else name
        raise InputError(f"{whose} has no queries" + (lacking if judged and qids else ": import some first"))
    if len(qids) < len(queries):
        raise InputError(f"{name}: two queries have the same qid")
    return queries, judgments


def sample_queries(queries: Sequence[Query], limit: int | None, seed: int) -> list[Query]:
    """The queries in their order, or `limit` of them drawn without replacement with a seed, in their order."""
    if limit is None or limit >= len(queries):
        return list(queries)
    chosen = sorted(random.Random(seed).sample(range(len(queries)), limit))
    return [queries[i] for i in chosen]


def selected(
    name: str, resources: Resources, judged: bool, only_project: bool = False, limit: int | None = None, seed: int = 0
) -> tuple[QuerySelection, list[Judgment]]:
    """The queries of `queries_named`, or a sample of them, with their judgments. Raises InputError if there are no queries."""
    queries, judgments = queries_named(name, resources, judged)
    selection = QuerySelection(name, tuple(sample_queries(queries, limit, seed)), only_project)
    asked = {query.qid for query in selection.queries}
    return selection, [row for row in judgments if row.qid in asked]


def request_for(query: Query, moment: datetime, only_project: bool = False) -> Request:
    """The request of a query of a set: within its project if `only_project` and it has one; at `moment` if it has no as_of."""
    when, within = query.as_of or moment, only_project and query.project is not None
    return Request(query.query, query.project, when, within, query.wordings, query.searched, query.engine_queries)


def header_for(
    config: PipelineConfig, resources: Resources, *, query_set: str = "", only_project: bool = False
) -> evidence_file.Header:
    """The header of an evidence file that is gathered now."""
    store, embedder, now = resources.store, resources.embedder.model_id, datetime.now(UTC).isoformat()
    state, text, least = store.content_version, portable_yaml(config), store.query_sets.relevant_from(query_set)
    return evidence_file.Header(query_set, store.identity, state, embedder, text, now, only_project, least)


def gather_query_set(
    path: Path,
    queries: Sequence[Query],
    judgments: Sequence[Judgment],
    config: PipelineConfig,
    resources: Resources,
    *,
    query_set: str = "",
    only_project: bool = False,
    progress: Progress = silent,
) -> GatherReport:
    """Gather the evidence of every query into the file at `path`, which is created, or resumed if it exists.

    Raises InputError as `require_words` does, and if the file belongs to another store, set or config, naming the difference;
    SourceError if the running system that the config takes its lists from is unavailable. A `Cancelled` from `progress` passes
    through; finished queries stay in the file.
    """
    require_replayable(query_set, is_external(traced_header(resources.store.path, query_set)), "gathering")
    require_words(config, resources.store.path)
    started = time.monotonic()
    resources.refresh()
    header = header_for(config, resources, query_set=query_set, only_project=only_project)
    with (
        evidence_file.EvidenceFile.resume(path, header, queries)
        if path.exists()
        else evidence_file.EvidenceFile.create(path, header, queries, judgments) as file
    ):
        before, gathered, embedded, left_out = len(file.finished), 0, 0, list[RowError]()
        for i, query in enumerate(queries):
            if query.qid in file.finished:
                continue
            progress(PROGRESS_LABEL, i, len(queries))
            if i >= embedded:
                embedded = i - i % EMBED_BATCH_SIZE + EMBED_BATCH_SIZE
                embed_ahead(queries[i:embedded], resources)
            begun = time.monotonic()
            try:
                evidence = gather(request_for(query, file.header.moment, only_project), config, resources)
            except InputError as error:
                left_out.append(RowError(query_set or "queries", i + 1, str(error), query.qid))
                continue
            require_answered(evidence, config)
            file.add(query.qid, evidence, time.monotonic() - begun)
            gathered += 1
        mark = file.finish()
        progress(PROGRESS_LABEL, len(queries), len(queries))
    return GatherReport(path, before, gathered, tuple(left_out), mark, time.monotonic() - started)


NO_FILE = {"lexical": (BY_LANGUAGE, "none"), "sparse": (ENGLISH,)}
"""Stop words that a list has without a file, by its name."""


def require_words(config: PipelineConfig, store: Path) -> None:
    """Raises InputError if the stop words of a list are named and cannot be read: its list, empty for every query, would count as a
    measurement."""
    for name in SOURCES if not asks_source(config) else ():
        words = getattr(getattr(config.lists, name), "stop_words", None)
        if config.get(f"lists.{name}.enabled") and words is not None and words not in NO_FILE.get(name, ()):
            try:
                stop_list(words, store)
            except InputError as error:
                if isinstance(error, NotInstalledError) and name != "lexical":
                    continue  # an engine searches without its words, with a warning
                raise InputError(f"{config.name}: lists.{name}.stop_words: {error}") from None


def require_answered(evidence: Evidence, config: PipelineConfig) -> None:
    """Raises SourceError, with the reason, if the config wants the lists of a running system and the evidence has the
    store's. A list of it that is only shown may be missing."""
    hybrid = config.lists.source_hybrid
    fused = hybrid.enabled and hybrid.weight > 0
    said = evidence.notes.get("warnings", {}).get("lists", ())
    if fused and not any(ranked.source == "source_hybrid" for ranked in evidence.lists):
        why = next((line for line in said if "source_hybrid" in line), "no running system was asked")
        raise SourceError(f"lists.source_hybrid is on, and of “{evidence.query}” {why}")
    if config.lists.answered_by == "source" and "engine" not in evidence.notes:
        why = next((line for line in said if "the store's own" in line), "no running system was asked")
        raise SourceError(f"lists.answered_by is source, and of “{evidence.query}” {why}")


def embed_ahead(queries: Sequence[Query], resources: Resources) -> None:
    """Embed queries as typed, or the text that is searched instead. Variants and corrected queries are embedded when they are searched."""
    embed_queries([query.searched or query.query for query in queries], resources)


def embed_queries(texts: Sequence[str], resources: Resources) -> None:
    """Embed queries as typed in one batch, if the embedder caches queries."""
    if isinstance(resources.embedder, CachedQueries):
        resources.embedder.remember([text.strip() for text in texts])


def set_relevant_from(query_set: str, grade: int, resources: Resources) -> None:
    """Set the lowest relevant grade of a query set, in the store and in its evidence files. Raises InputError for a
    grade off the set's scale, StoreError for an unknown set."""
    resources.store.query_sets.set_relevant_from(query_set, grade)
    for path in sorted(_shelf(resources).glob(f"*{SUFFIX}")):
        # An open or damaged file keeps its grade; a read through the store uses the store's.
        with suppress(InputError):
            if evidence_file.read_header(path).query_set == query_set:
                evidence_file.replace_relevant_from(path, grade)


def evidence_path(config: PipelineConfig, selection: QuerySelection, resources: Resources) -> Path:
    """The path of a config's evidence, whether it exists or not: the name of the set, and the digest of all that gathering depends on."""
    return _shelf(resources) / _file_name(selection, _digest(config, selection, resources))


def _shelf(resources: Resources) -> Path:
    return resources.store.path / EVIDENCE_FOLDER


def _file_name(selection: QuerySelection, digest: str) -> str:
    # The name comes from a user: no separator and no leading dot may reach the path.
    name = re.sub(r"[^\w.-]+", "-", selection.query_set).strip("-.")[:MAX_NAME_CHARS] or "queries"
    return f"{name}-{digest}{SUFFIX}"


def _digest(config: PipelineConfig, selection: QuerySelection, resources: Resources) -> str:
    """Digest of all that gathering depends on, without the name of the set."""
    store = resources.store
    parts: tuple[object, ...] = (
        store.identity,
        store.content_version,
        resources.embedder.model_id,
        selection.only_project,
        sorted(portable_parameters(config).items()),
        selection.queries,
        [given_text(replace(query, answer=None)) for query in selection.queries],
        evidence_file.FORMAT,
    )
    if (words := dictionary_entries(config, resources)) is not None:
        parts += (words,)
    if notes_superseded(config, resources):
        parts += (SUPERSEDED,)
    # The name of the set is left out, so that sets of the same queries share a file.
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


def dictionary_entries(config: PipelineConfig, resources: Resources) -> Sequence[tuple[str, str]] | None:
    """The dictionary that expansion uses: a new entry changes variants. None if the config does not use it."""
    used = config.expansion.backend == "dictionary"
    return sorted(read_dictionary(resources.dictionary_path).items()) if used else None


def store_mismatch(header: evidence_file.Header, resources: Resources) -> str | None:
    """Why a file is not evidence of the open store in its present state; None if it is."""
    here = header_for(header.config, resources, query_set=header.query_set, only_project=header.only_project)
    return evidence_file.mismatch(header, here)


class _Incomplete(Exception):
    """The gather was interrupted; never cached."""


def read_evidence(
    config: PipelineConfig, selection: QuerySelection, resources: Resources, cache: Cache = uncached
) -> evidence_file.EvidenceSet | None:
    """The complete evidence of a config; None if there is none. Raises InputError for a damaged file. If only a wider
    selection of the same set was gathered, it is restricted to the queries. Of a set of external traces or explained
    answers it is what was recorded, under any config. `cache` keeps the evidence as long as its file is unchanged."""
    traced = read_traced(resources.store, selection.query_set, selection.queries, cache)
    if found := traced or read_exact_evidence(config, selection, resources, cache):
        return found
    for wider in _wider_selections(selection, resources):
        if evidence := read_exact_evidence(config, wider, resources, cache):
            return restricted(evidence, selection.queries)
    return None


def read_exact_evidence(
    config: PipelineConfig, selection: QuerySelection, resources: Resources, cache: Cache = uncached
) -> evidence_file.EvidenceSet | None:
    """The complete evidence of exactly these queries, under this set's name or another's."""
    here = header_for(config, resources, query_set=selection.query_set, only_project=selection.only_project)
    digest = _digest(config, selection, resources)
    own = _file_name(selection, digest)
    # False sorts first: the file under this set's own name is preferred.
    for path in sorted(_shelf(resources).glob(f"*-{digest}{SUFFIX}"), key=lambda path: path.name != own):

        def read(path: Path = path) -> evidence_file.EvidenceSet:
            evidence = evidence_file.read_evidence_file(path)
            if not evidence.complete or evidence_file.mismatch(evidence.header, here) is not None:
                raise _Incomplete
            return evidence

        with suppress(_Incomplete, FileNotFoundError):
            # A rewritten file has another time, so the cache never returns its old content.
            return cache(("evidence", path, path.stat().st_mtime_ns), read)
    return None


def read_some_evidence(
    config: PipelineConfig, selection: QuerySelection, qids: Collection[str], resources: Resources
) -> Mapping[str, Evidence] | None:
    """The evidence of some of exactly these queries, by qid, in time that a file's other queries do not change; None if
    there is none. Raises InputError for a damaged file."""
    here = header_for(config, resources, query_set=selection.query_set, only_project=selection.only_project)
    for path in sorted(_shelf(resources).glob(f"*-{_digest(config, selection, resources)}{SUFFIX}")):
        if (found := evidence_file.read_some(path, qids, here)) is not None:
            return found
    return None


def evidence_files(resources: Resources) -> list[Path]:
    """The files of all evidence that was gathered next to the store."""
    return list(_shelf(resources).glob(f"*{SUFFIX}"))


def _wider_selections(selection: QuerySelection, resources: Resources) -> Iterator[QuerySelection]:
    """Wider selections of the same set that contain every query of this one: the judged queries, and the whole set."""
    store = resources.store
    if selection.query_set not in {known.name for known in store.query_sets.latest()}:
        return
    whole = tuple(store.query_sets.queries(selection.query_set))
    asked = set(selection.queries)
    for queries in (tuple(measurable(whole, store.judgments.read())), whole):
        if queries != selection.queries and asked.issubset(queries):
            yield replace(selection, queries=queries)


def restricted(evidence: evidence_file.EvidenceSet, queries: Sequence[Query]) -> evidence_file.EvidenceSet:
    """The evidence of some of its queries. Its time is their share of the total, because a file has no time per query."""
    evidences = {query.qid: evidence.evidences[query.qid] for query in queries if query.qid in evidence.evidences}
    share = len(evidences) / len(evidence.evidences) if evidence.evidences else 0.0
    return replace(evidence, queries=tuple(queries), evidences=evidences, seconds=evidence.seconds * share)


def gather_evidence(
    config: PipelineConfig,
    selection: QuerySelection,
    judgments: Sequence[Judgment],
    resources: Resources,
    progress: Progress = silent,
    out: Path | None = None,
) -> GatherReport:
    """Gather the evidence of a config into its file, or resume it. With `out` that file gets it too: from the store if it
    was gathered there, and the store from it otherwise. Raises as `gather_query_set` does, and InputError while another
    thread of this process gathers the same."""
    own = evidence_path(config, selection, resources)
    path, live = out or own, asks_source(config)
    queries, name, within = selection.queries, selection.query_set, selection.only_project
    try:
        own.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{own.parent}: cannot be made: {error.strerror}") from None
    with exclusive(path):
        if path != own and not path.exists() and not live and _is_complete(own):
            with output_path(path) as part:
                shutil.copyfile(own, part)
            evidence_file.replace_judgments(path, judgments)
        report = gather_query_set(
            path, queries, judgments, config, resources, query_set=name, only_project=within, progress=progress
        )
    if path != own and (live or not _is_complete(own)):
        with exclusive(own), output_path(own) as part:
            shutil.copyfile(path, part)
            own.with_name(f"{own.name}.wal").unlink(missing_ok=True)
    return report


def _is_complete(path: Path) -> bool:
    """Whether there is complete evidence. Raises InputError for a damaged file, and one that another process gathers."""
    if not path.is_file():
        return False
    with closing(evidence_file.PortionedFile(path)) as file:
        return file.complete


def ensure_evidence(
    config: PipelineConfig,
    selection: QuerySelection,
    judgments: Sequence[Judgment],
    resources: Resources,
    progress: Progress = silent,
    cache: Cache = uncached,
    since: datetime | None = None,
) -> evidence_file.EvidenceSet:
    """The evidence of a config, gathered first if there is none. Raises as `gather_evidence` does. Lists of a running
    system are gathered again unless they were answered after `since`; None is now."""
    since = since or datetime.now(UTC)
    evidence = read_evidence(config, selection, resources, cache)
    if evidence is not None and asks_source(config):
        asked = asked_between(one.notes for one in evidence.evidences.values())
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
    """Delete the evidence that `read_evidence` would return. Raises InputError while another thread gathers it."""
    for one in (selection, *_wider_selections(selection, resources)):
        for path in _shelf(resources).glob(f"*-{_digest(config, one, resources)}{SUFFIX}"):
            with exclusive(path):
                path.unlink(missing_ok=True)


_under_way: set[Path] = set()
_changing = threading.Lock()


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Exclusive write access to an evidence file within this process. Raises InputError if another window has it."""
    with _changing:
        if path in _under_way:
            told = "another window gathers or scores the same evidence; wait until it is done, or cancel it there"
            raise InputError(told)
        _under_way.add(path)
    try:
        yield
    finally:
        with _changing:
            _under_way.discard(path)


def pending_gathers(
    configs: Sequence[tuple[str, PipelineConfig]], selection: QuerySelection, resources: Resources
) -> list[PendingGather]:
    """The progress of the interrupted gathers of these named configs."""
    pending = []
    for name, config in configs:
        path, finished, seconds = evidence_path(config, selection, resources), 0, 0.0
        with suppress(InputError):  # being gathered now, or damaged, which a gather reports
            finished, seconds = evidence_file.read_progress(path) if path.is_file() else (0, 0.0)
        pending.append(PendingGather(name, config, len(selection.queries), finished, seconds))
    return pending


def seconds_left(pending: Sequence[PendingGather], paces: Sequence[tuple[PipelineConfig, float]] = ()) -> float | None:
    """Estimated seconds of the pending gathers together; None without a basis. A gather that has started continues at
    its own pace. Another has the slowest of `paces`, seconds per query by config, among the configs with the same
    reranker, judge and expansion, which take most of the time."""
    left = 0.0
    for one in pending:
        alike = [seconds for config, seconds in paces if _slow_parts(config) == _slow_parts(one.config)]
        if (pace := max(alike, default=None) if one.pace is None else one.pace) is None:
            return None
        left += pace * (one.total - one.finished)
    return left


def _slow_parts(config: PipelineConfig) -> tuple[object, ...]:
    rerank = config.rerank
    head = (rerank.model, rerank.depth) if not RERANK.is_off(config) else ()
    return rerank.backend, *head, config.judge.backend, config.expansion.backend
