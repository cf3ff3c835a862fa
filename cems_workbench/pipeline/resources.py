"""Resources of gathering: the store, its indexes and the models, opened or loaded at first use."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from cems_workbench.config.sections import BY_LANGUAGE, LexicalList
from cems_workbench.errors import EmbedderMismatchError, ModelError, StoreLockedError
from cems_workbench.models.device import Choice
from cems_workbench.models.embedder import TokenEmbedder
from cems_workbench.models.http import CircuitBreaker
from cems_workbench.models.protocol import Float32, QueryEmbedder
from cems_workbench.platform.atomic_write import write_atomically
from cems_workbench.platform.waiting import WAITING
from cems_workbench.progress import Progress, silent
from cems_workbench.store import Indexes, RefreshReport, Store
from cems_workbench.store.precomputed_embeddings import PrecomputedVectors
from cems_workbench.store.recovery import EXPANSIONS_FILE, TERMS_FILE
from cems_workbench.store.search.entries import ChunkHits
from cems_workbench.store.search.lexical_index import LexicalIndex
from cems_workbench.store.search.stop_lists import stop_list
from cems_workbench.store.search.tokenizer import Analysis
from cems_workbench.store.text_rule import searched_text

if TYPE_CHECKING:
    from cems_workbench.models.late_interaction import LateInteraction, TokenMemory, WordpieceFrequencies
    from cems_workbench.pipeline.live_engine import LiveEngine
    from cems_workbench.sources.address import Address
    from cems_workbench.store.search.postgres import TsRankIndex

Model = TypeVar("Model")
ENTITIES_FILE = "entities.jsonl"
"""The links between entities and memories, in the store's directory."""
MAX_DERIVED = 5
"""Most values that `Resources.derived` keeps."""
MAX_MAKERS = 256
"""Most locks kept of what was made."""
MOST_WAIT, TRY_AGAIN = 0.5, 3.0
"""Seconds that a search waits for another process which builds the indexes, and for which it then uses the previous ones."""
THREAD_WAIT = 0.05
"""Seconds that a search waits for another thread of this process which builds them: a few changed memories take less."""


@dataclass(frozen=True, slots=True)
class Servers:
    """Where models other than the embedder are, as gathering needs it; `settings.Settings` has the defaults."""

    cross_encoder: str
    """Path or hub id."""
    llama_server_url: str
    ollama_url: str
    llm_url: str | None
    """Base URL of an OpenAI-compatible server; None: the chat model is on Ollama."""
    llm_model: str | None
    """The chat model; None: there is none."""
    llm_key: str | None
    device: Choice = "auto"
    """Where a cross-encoder runs."""


class Resources:
    """A store with its models; one per process and store. Methods may be called from several threads."""

    def __init__(self, store: Store, embedder: QueryEmbedder, servers: Servers) -> None:
        self.store = store
        self.embedder = embedder
        self.servers = servers
        self.of_command = False
        """Whether they are closed after a command, which embeds a query once."""
        self.breaker = CircuitBreaker()
        """Circuit breaker of the model servers."""
        self.scoring = threading.Lock()
        """Held while a batch is scored and cached: a job resumed after a cancel waits for the unfinished batch."""
        self._lock = threading.RLock()
        """Held for moments: every page asks for something under it."""
        self._refreshing = threading.RLock()
        """Held by the thread that refreshes the indexes, which may take minutes."""
        self._makers: dict[object, threading.RLock] = {}
        self._indexes: tuple[int, Indexes] | None = None
        self._tried = 0.0
        self._shared: dict[object, Any] = {}
        self._derived: dict[object, tuple[int, Any]] = {}
        self._late_interaction: tuple[int, LateInteraction] | None = None
        self._read_tokens: TokenMemory | None = None
        self._engine: tuple[int, LiveEngine | None] | None = None
        self._addresses: dict[str, Address] = {}

    def close(self) -> None:
        """Release the store, and the running system it was imported from."""
        self._leave_engine()
        self.store.close()

    def rest(self) -> None:
        """Between two commands of one process: leave other systems, and forget which servers failed."""
        with self._lock:
            self._leave_engine()
            self._addresses.clear()
            self.breaker = CircuitBreaker()

    def take_models(self, before: Resources) -> None:
        """Go on with the loaded models of other resources with the same settings."""
        if isinstance(self.embedder, TokenEmbedder) and isinstance(before.embedder, TokenEmbedder):
            if self.embedder.resolved == before.embedder.resolved:
                self.embedder = before.embedder
            self._shared = dict(before._shared)

    @property
    def indexes(self) -> Indexes:
        """The derived indexes, refreshed first if the store has changed. While another process or thread refreshes
        them, the previous ones are returned; `behind` says so."""
        opened = self._indexes
        if opened is not None and self.behind and time.monotonic() <= self._tried + TRY_AGAIN:
            return opened[1]
        if not self._refreshing.acquire(timeout=THREAD_WAIT):
            previous = self._beside()
            if previous is not None:
                return previous
            self._refreshing.acquire()
        try:
            try:
                self._refresh(silent, MOST_WAIT)
            except StoreLockedError:
                if not self._as_before():
                    self.refresh()
            assert self._indexes is not None
            return self._indexes[1]
        finally:
            self._refreshing.release()

    @property
    def behind(self) -> str:
        """Why searches lack the latest changes, one line; empty if they do not."""
        return self.store.indexes.stale_reason

    @property
    def notices(self) -> tuple[str, ...]:
        """The store's notices, and `stand_in`."""
        return (*self.store.notices, *([self.stand_in] if self.stand_in else []))

    @property
    def stand_in(self) -> str:
        """One line if a fallback embeds instead of the requested embedder; otherwise empty."""
        embedder = self.embedder
        return (
            f"embedder: {embedder.line}" if isinstance(embedder, TokenEmbedder) and embedder.resolved.fallback else ""
        )

    def _beside(self) -> Indexes | None:
        """The indexes from before another thread began to refresh them; None if there are none."""
        opened = self._indexes
        if opened is None:
            return self._indexes[1] if self._as_before() and self._indexes is not None else None
        if 0 <= opened[0] < (version := self.store.content_version):
            self._tell_behind("this process", version - opened[0])
        return opened[1]

    def _tell_behind(self, builder: object, late: int) -> None:
        """Say who refreshes the indexes, and how many changes they lack until then."""
        changes = "the latest change is" if late == 1 else f"the latest {late} changes are"
        self._tried = time.monotonic()
        self.store.indexes.stale_reason = f"{builder} is refreshing the indexes: {changes} not found yet"

    def _as_before(self) -> bool:
        """Search with the indexes from before another process began to build; False if there are none."""
        states = self.store.indexes.states(self.embedder.model_id)
        if any(state.version is None or state.damaged for state in states):
            return False
        late = states[0].content_version - min(state.version or 0 for state in states)
        self._indexes = (-1, self.store.indexes.open(self.embedder))
        if not all(state.fresh for state in states):  # else a search lacks nothing
            self._tell_behind(self.store.indexes.builder(), late)
        return True

    def engine(self) -> LiveEngine | None:
        """The running system that the store's memories were imported from, the first of several; None without one."""
        with self._lock:
            version = self.store.content_version
            if self._engine is None or self._engine[0] != version:
                self._leave_engine()
                records = self.store.sources.with_memories()
                found = None
                if records:
                    from cems_workbench.pipeline.live_engine import LiveEngine

                    found = LiveEngine(self.store, records[0], self.breaker, self._addresses.get(records[0].address))
                self._engine = version, found
            return self._engine[1]

    def know_address(self, address: Address) -> None:
        """Connect to the source with this address, which has the secret, until the process ends."""
        with self._lock:
            self._addresses[address.plain] = address
            self._leave_engine()

    def _leave_engine(self) -> None:
        if self._engine is not None and self._engine[1] is not None:
            self._engine[1].close()
        self._engine = None

    def address(self, plain: str) -> Address | None:
        """The address with its secret that was passed for this plain one; None if there is none."""
        return self._addresses.get(plain)

    def use_embedder(self, embedder: QueryEmbedder) -> None:
        """Search with another embedder from now on; reopens the indexes."""
        with self._refreshing:
            self.embedder = embedder
            self._indexes = self._late_interaction = self._read_tokens = None

    def full_text(self, progress: Progress = silent) -> TsRankIndex:
        """PostgreSQL's ts_rank over the store's chunks, refreshed on access."""
        self.refresh(progress)
        return self.store.indexes.full_text(self.embedder.dimension, progress)

    @property
    def indexed(self) -> int | None:
        """The content version that searches are of; None before the first."""
        return self._indexes and self._indexes[0]

    @property
    def graph_open(self) -> bool:
        """Whether this process has Chroma's graph of the vectors open and current: a query of it then loads and writes nothing."""
        with suppress(ModelError):  # a server that does not say which model it has
            return self.store.indexes.open_graph(self.embedder.model_id) is not None
        return False

    def graph(self, progress: Progress = silent) -> None:
        """Make or refresh Chroma's graph of the store's vectors."""
        self.refresh(progress)
        self.store.indexes.graph(self.embedder, progress)

    def refresh(self, progress: Progress = silent, given: PrecomputedVectors | None = None) -> RefreshReport | None:
        """Refresh the indexes; None when they were up to date and open. Waits while another process refreshes them.

        `given` are precomputed vectors of memories, by the same embedder. Raises InputError for one of another embedder.

        Raises EmbedderMismatchError when the store's vectors were made by another embedder; `embed_anew` re-embeds with this one.
        """
        while True:
            try:
                return self._refresh(progress, MOST_WAIT, given)
            except StoreLockedError:
                progress(f"{WAITING}{self.store.indexes.builder()}", 0, 1)

    def _refresh(
        self, progress: Progress, patience: float, given: PrecomputedVectors | None = None
    ) -> RefreshReport | None:
        with self._refreshing:
            version = self.store.content_version
            if self._indexes is not None and self._indexes[0] == version and not self.store.indexes.files_changed():
                return None
            self.check_embedder()
            report = None
            if not all(state.fresh for state in self.store.indexes.states(self.embedder.model_id)):
                report = self._noted(self.store.indexes.refresh(self.embedder, progress, patience, given))
                version = report.content_version  # cutting chunks for another embedder is a change
            self._indexes = (version, self.store.indexes.open(self.embedder))
            self.store.indexes.stale_reason = ""
            return report

    @contextmanager
    def changing(self) -> Iterator[None]:
        """While many memories are changed and indexed by this thread: others search the indexes from before instead of refreshing them."""
        with self._refreshing:
            yield

    def check_embedder(self) -> None:
        """Raises EmbedderMismatchError when the store's vectors were made by another embedder, or have another
        dimension. The weights of a local model are not loaded for that: a different dimension is detected at the first
        search."""
        unread = isinstance(self.embedder, TokenEmbedder) and not self.embedder.loaded
        self.store.indexes.check(self.embedder.model_id, None if unread else self.embedder.dimension)

    def embed_anew(self, progress: Progress = silent) -> RefreshReport | None:
        """As `refresh`, and `rebuild` if the store's vectors are of another embedder: those are kept, unless their dimension differs."""
        try:
            return self.refresh(progress)
        except EmbedderMismatchError:
            return self.rebuild(progress)

    def rebuild(self, progress: Progress = silent) -> RefreshReport:
        """Drop, rebuild and reopen the indexes. After a cancel the next refresh continues."""
        with self._refreshing:
            self._indexes = None
            return self._noted(self.store.indexes.rebuild(self.embedder, progress))

    def _noted(self, report: RefreshReport) -> RefreshReport:
        """The report, with a note if the embedder's device failed."""
        torch = self.embedder.torch if isinstance(self.embedder, TokenEmbedder) else None
        note = (f"the embedder runs {torch.problem}",) if torch and torch.problem else ()
        return replace(report, notes=(*report.notes, *note))

    def repair(self, progress: Progress = silent) -> RefreshReport | None:
        """Verify every file and vector of the indexes, and rebuild the damaged ones; None if there are none."""
        with self._refreshing:
            self._indexes = None
            self.store.indexes.states(self.embedder.model_id, deep=True)
            if self.store.indexes.full_text_state(deep=True).damaged:
                self.store.indexes.full_text(self.embedder.dimension, progress)
            return self.refresh(progress)

    def cosines(self, query: Float32, ids: Sequence[str]) -> ChunkHits:
        """(id, cosine, chunk) of each chunk of `ids` to the query vector, best first, ties by id and chunk; exact."""
        target = np.asarray(query, dtype=np.float64)
        length = float(np.linalg.norm(target))
        scored = []
        for memory_id, parts in self.indexes.vectors.chunk_embeddings(ids).items():
            for chunk, single in parts.items():
                vector = np.asarray(
                    single, dtype=np.float64
                )  # in double precision, as the systems with a candidate set compute it
                lengths = float(np.linalg.norm(vector)) * length
                scored.append((memory_id, float(vector @ target) / lengths if lengths else 0.0, chunk))
        return sorted(scored, key=lambda hit: (-hit[1], hit[0], hit[2] or 0))

    def shared(self, key: object, make: Callable[[], Model]) -> Model:
        """The model made for `key`, once; what `make` raises is raised again at the next call."""
        with self._maker(key):
            if key not in self._shared:
                self._shared[key] = make()
            model: Model = self._shared[key]
            return model

    def derived(self, key: object, make: Callable[[], Model]) -> Model:
        """What `make` derives from the store's content, kept per `key` until the content changes; the last few are kept."""
        with self._maker(key):
            version = self.store.content_version
            known = self._derived.get(key)
            found = known if known is not None and known[0] == version else (version, make())
            with self._lock:
                kept = {other: made for other, made in self._derived.items() if other != key and made[0] == version}
                kept[key] = found  # the latest used is the last
                self._derived = dict(list(kept.items())[-MAX_DERIVED:])
            model: Model = found[1]
            return model

    def _maker(self, key: object) -> threading.RLock:
        """The lock under which something is made for a key: who needs it waits, and nobody else."""
        with self._lock:
            if len(self._makers) >= MAX_MAKERS:
                self._makers.clear()  # what is being made right now may be made twice
            return self._makers.setdefault(key, threading.RLock())

    def lexical(self, section: LexicalList) -> LexicalIndex:
        """The lexical index with the k1, b, stems and stop words of a config's section. Stems and stop words other than
        the language's make an index at their first use. Raises InputError for a file of stop words that cannot be
        read."""
        index = self.indexes.lexical
        if (section.stemming, section.stop_words) != (BY_LANGUAGE, BY_LANGUAGE):
            words = {BY_LANGUAGE: None, "none": frozenset[str]()}
            file = section.stop_words
            analysis = Analysis(
                self.store.language.current,
                section.stemming == BY_LANGUAGE,
                words[file] if file in words else stop_list(file, self.store.path),
            )
            index = self.derived(("lexical", analysis), lambda: self.store.indexes.analysed(analysis))
        return index.weighted(section.k1, section.b)

    def late_interaction(self, progress: Progress = silent) -> LateInteraction:
        """The late-interaction reranker over the store's wordpiece frequencies, counted once per content version.
        Raises ModelError when the embedder gives no token vectors, as one on a server does."""
        embedder = self.embedder
        if not isinstance(embedder, TokenEmbedder):
            raise ModelError(f"late interaction needs token vectors, which {embedder.line} does not give")
        with self._maker("late_interaction"):
            version = self.store.content_version
            if self._late_interaction is None or self._late_interaction[0] != version:
                frequencies = self._frequencies(version, embedder, progress)
                from cems_workbench.models.late_interaction import LateInteraction, TokenMemory

                if self._read_tokens is None:
                    self._read_tokens = TokenMemory(embedder)
                self._late_interaction = (version, LateInteraction(embedder, frequencies, self._read_tokens))
            return self._late_interaction[1]

    def _frequencies(self, version: int, embedder: TokenEmbedder, progress: Progress) -> WordpieceFrequencies:
        from cems_workbench.models.late_interaction import WordpieceFrequencies

        label = f"{version}:{self.store.content_identity}:{embedder.model_id}"
        try:
            kept = json.loads(self._frequency_file.read_text(encoding="utf-8"))
            if kept["label"] == label and kept["check"] == _check(kept["documents"], kept["counts"]):
                return WordpieceFrequencies(kept["documents"], {int(k): v for k, v in kept["counts"].items()})
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            pass  # never counted, or damaged: count again
        rule = self.store.texts.rule
        texts = (searched_text(memory, rule) for memory in self.store.memories.read().values())
        counted = WordpieceFrequencies.of(embedder, texts, progress)
        counts = {str(number): count for number, count in counted.counts.items()}
        content = {
            "label": label,
            "documents": counted.documents,
            "counts": counts,
            "check": _check(counted.documents, counts),
        }
        with suppress(OSError), write_atomically(self._frequency_file) as part:  # it is only kept for the next time
            part.write_text(json.dumps(content), encoding="utf-8")
        return counted

    @cached_property
    def _frequency_file(self) -> Path:
        return self.store.path / "wordpieces.json"

    @property
    def dictionary_path(self) -> Path:
        """The user's expansion dictionary of this store."""
        return self.store.path / EXPANSIONS_FILE

    @property
    def entities_path(self) -> Path:
        """The entities of this store and the memories that each is linked to, a JSON object a line."""
        return self.store.path / ENTITIES_FILE

    @property
    def technical_terms_path(self) -> Path:
        """The user's technical terms of this store, added to the shipped lexicon."""
        return self.store.path / TERMS_FILE


def _check(documents: int, counts: Mapping[str, int]) -> str:
    return hashlib.sha256(json.dumps([documents, counts]).encode()).hexdigest()
