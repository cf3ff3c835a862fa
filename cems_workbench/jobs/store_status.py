"""Status of a store: its sources (reachable or not, counts, age), the labels of its team, and what a config reads that its memories lack.

Sources are asked in parallel, each for a limited time.
"""

from __future__ import annotations

import glob
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TypeVar

from cems_workbench.analysis.vector_origins import VectorOrigins
from cems_workbench.config import PipelineConfig
from cems_workbench.errors import WorkbenchError, counted
from cems_workbench.jobs.embedder_match import FEW_VECTORS, SourceMatch, match_source, vector_origins
from cems_workbench.models.protocol import Embedder
from cems_workbench.pipeline.resources import ENTITIES_FILE
from cems_workbench.platform.waiting import run_in_thread
from cems_workbench.sources import connect
from cems_workbench.sources.address import Address, parse_saved
from cems_workbench.sources.source import SourceInfo
from cems_workbench.store import Store
from cems_workbench.store.sources import SourceRecord

PROBE_TIMEOUT_S = 4.0
"""Time limit of a probe of a server."""
MATCH_TIMEOUT_S = 20.0
"""Time limit of embedding a sample again, with loading the model; and of a probe on this disk, with loading its client."""
FOLDER_MARKERS = ("chroma.sqlite3", "meta.json")
"""The files by which a folder of Chroma or of Qdrant's local mode is known."""
AGE_UNITS = (
    (timedelta(days=2), timedelta(days=1), "days"),
    (timedelta(hours=2), timedelta(hours=1), "h"),
    (timedelta(minutes=1), timedelta(minutes=1), "min"),
)
"""(least age, unit, name of the unit)."""

T = TypeVar("T")
Compared = tuple[SourceMatch, VectorOrigins]


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """A source: its record in the store, and its `probe` now, or the `problem` if there is none. `match` tells how well
    the embedder `model_id` reproduces its vectors, and `origins` which are not of their texts; if they are None,
    `unmatched` is the reason."""

    record: SourceRecord
    probe: SourceInfo | None
    problem: str
    model_id: str
    match: SourceMatch | None
    unmatched: str
    origins: VectorOrigins | None = None

    @property
    def mismatched(self) -> list[str]:
        """Lines that name the vectors that are not of their texts; empty without any, or if they were not compared."""
        return [] if self.origins is None else self.origins.lines

    @property
    def difference(self) -> int:
        """Memories in the source minus memories in the store, with those deleted here; 0 if the source is not reached."""
        return 0 if self.probe is None else self.probe.memories - self.record.memories - self.record.deleted

    @property
    def rows(self) -> str:
        """Counts in the source and the store."""
        in_source = "" if self.probe is None else f"{self.probe.memories:,} there, "
        deleted = f", {self.record.deleted:,} more deleted here" if self.record.deleted else ""
        return f"memories: {in_source}{self.record.memories:,} here{deleted}"

    @property
    def embedder(self) -> str:
        """The model of its vectors, and whether the embedder reproduces them."""
        record = self.record
        if record.dimension is None:
            return "no vectors"
        made_by = f"{record.dimension} numbers{f' of {record.model_id}' if record.model_id else ''}"
        asked = "" if self.model_id in ("", record.model_id) else f"{self.model_id}: "
        return f"{made_by}; {asked}{self.unmatched if self.match is None else self.match}"

    @property
    def other_embedder(self) -> bool:
        """Whether its vectors cannot be searched: their model is unknown or not the embedder."""
        made_by = self.record.model_id
        return self.record.dimension is not None and (made_by is None or self.model_id not in ("", made_by))

    @property
    def contradicted(self) -> bool:
        """Whether the embedder was compared and seems not to have made the vectors."""
        return self.match is not None and self.match.asked > 0 and not self.match.proven


def snapshot_line(record: SourceRecord, now: datetime) -> str:
    """Whether the last snapshot is complete, and its age."""
    if record.complete and record.taken_at is not None:
        return f"complete, {age(now - record.taken_at)}"
    whole = "" if record.taken_at is None else f"; the last complete one {age(now - record.taken_at)}"
    return f"interrupted {age(now - record.begun_at)}{whole}"


def age(passed: timedelta) -> str:
    """Such as `3 h ago`; `just now` below a minute."""
    for least, unit, name in AGE_UNITS:
        if passed >= least:
            return f"{passed // unit} {name} ago"
    return "just now"


def ask_sources(
    store: Store, embedder: Embedder | None = None, known: Callable[[str], Address | None] = lambda plain: None
) -> Callable[[], list[SourceStatus]]:
    """Start to probe every source of a store; the returned function waits for the answers within the time limits.
    Raises nothing. `embedder`, if not None, is compared with the imported vectors. `known` returns the address with its
    secret for a plain one."""
    started = time.monotonic()
    asked = []
    for record in store.sources.read():
        compared = None if embedder is None or record.dimension is None else partial(_compared, store, record, embedder)
        probing = run_in_thread(partial(_probe, record, known(record.address)))
        asked.append((record, probing, run_in_thread(compared) if compared else None))
    return lambda: [_status(*one, started) for one in asked]


def _status(
    record: SourceRecord, probing: Future[SourceInfo], matching: Future[Compared] | None, started: float
) -> SourceStatus:
    limit = _limit(record)
    probe = _answer(probing, started + limit, f"no answer within {limit:g} s")
    reached, problem = (None, probe) if isinstance(probe, str) else (probe, "")
    if matching is None:
        return SourceStatus(record, reached, problem, "", None, "not compared")
    late = f"not compared: the embedder took longer than {MATCH_TIMEOUT_S:g} s"
    compared = _answer(matching, started + MATCH_TIMEOUT_S, late)
    if isinstance(compared, str):
        return SourceStatus(record, reached, problem, "", None, compared)
    match, origins = compared
    return SourceStatus(record, reached, problem, origins.model_id, match, "", origins)


def _probe(record: SourceRecord, address: Address | None) -> SourceInfo:
    address = address or parse_saved(record.address, record.secret_from)
    if _limit(record) == MATCH_TIMEOUT_S and record.complete and _unchanged(Path(address.path), record.begun_at):
        # Its client would be loaded, and a folder copied, to say the same again.
        return SourceInfo(**{**record.probe, "settings": ()})
    with closing(connect.open_source(address, record.mapping, _limit(record))) as source:
        return source.probe()


def _limit(record: SourceRecord) -> float:
    """Seconds for a probe: longer on this disk, where the client is loaded and the folder copied."""
    return PROBE_TIMEOUT_S if "://" in record.address else MATCH_TIMEOUT_S


def _unchanged(path: Path, since: datetime) -> bool:
    """Whether no file of a place is newer than a moment: of a folder, of the folder that a collection is in, or a database's. False if the
    place is gone."""
    inside = path.is_dir() or any((path.parent / each).is_file() for each in FOLDER_MARKERS)
    folder = path if path.is_dir() else path.parent
    files = list(folder.rglob("*") if inside else folder.glob(f"{glob.escape(path.name)}*"))
    return bool(files) and all(each.stat().st_mtime < since.timestamp() for each in files)


def _compared(store: Store, record: SourceRecord, embedder: Embedder) -> Compared:
    match = match_source(store, record, embedder)
    return match, vector_origins(store, record, embedder, match, FEW_VECTORS)


def _answer(asked: Future[T], until: float, late: str) -> T | str:
    """The answer, or the reason why there is none."""
    try:
        return asked.result(max(0.0, until - time.monotonic()))
    except TimeoutError:
        return late
    except WorkbenchError as error:
        return str(error)


PUSH = "python -m cems_workbench team push"


def team_status(store: Store) -> list[str]:
    """Status lines for the user; none if all is well, or without a team. Raises StoreError."""
    if not store.team.place:
        return []
    lines, strangers, behind = [], store.judgments.strangers(), store.not_pushed()
    if strangers.judgments:
        lines.append(
            f"kept but not shown here: {counted(strangers.judgments, 'judgments')} of the team, of "
            f"{counted(strangers.memories, 'memories')} that this store does not have"
        )
    if behind:
        lines.append(
            f"the team's database does not have {counted(behind, 'queries')} of this store's own database, with labels and "
            f"sets; {PUSH} copies what is missing"
        )
    return lines


def missing_data(config: PipelineConfig, store: Store) -> list[str]:
    """A line for each kind of data that the config reads and no memory of the store has; empty without memories."""
    total = store.memories.count()
    if not total:
        return []
    has = store.memories.filled()
    lacks = {name for name, count in has.items() if not count}
    if config.lists.relations.enabled and not store.relations.read():
        lacks.add("relations")
    if config.lists.entities.enabled and not (store.path / ENTITIES_FILE).is_file():
        lacks.add("entities")
    return [line for lacking, reads, line in _reads(config) if reads and lacking <= lacks]


def _reads(config: PipelineConfig) -> list[tuple[set[str], object, str]]:
    """What data the config reads, whether it does, and what comes of it where there is none."""
    lists, adjust, fusion = config.lists, config.adjust, config.fusion
    candidates, bonus = lists.candidate_set.mode, fusion.importance_bonus_ranks or fusion.importance_floor is not None
    undated, unread, dates = {"dates"}, {"accesses"}, {"dates", "accesses"}
    newest, links = candidates in ("newest_created", "lexical_or_newest"), f"no entity links ({ENTITIES_FILE})"
    access = "the access list gives all the same value, and tells nothing apart"
    project = f"a query with a project multiplies all by {adjust.project.untagged:g}"
    return [
        (undated, lists.recency.enabled, "no date of creation: the recency list is empty, and its weight does nothing"),
        (dates, adjust.time_decay.mode != "none", "no date: time decay is the same for all"),
        (undated, newest, "no date of creation: the newest of the candidate set are the first by id"),
        (unread, lists.access.enabled, f"no access count: {access}"),
        (unread, adjust.count.of == "accesses", "no access count: the count factor is 1 for all"),
        (unread, candidates == "recent_access", "no access: the candidate set is the newest by creation"),
        ({"votes"}, adjust.feedback.enabled, "no votes: the feedback factor does nothing"),
        ({"votes"}, adjust.count.of == "relevant", "no votes: the count factor is 1 for all"),
        ({"projects"}, adjust.project.enabled, f"no projects: {project}"),
        ({"high importance"}, bonus, "no memory of high importance: the bonus for it does nothing"),
        ({"entities"}, True, f"{links}: the entities list is empty, and no memory is raised by one"),
        ({"relations"}, True, "no relations: the relations list is empty, and its weight does nothing"),
    ]
