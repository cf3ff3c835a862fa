"""Dask cluster: gathering and tuning with the slow parts on its workers; all state stays in this process.

    gather   lists are searched here, because one process at a time holds the store; the texts that a cross-encoder reads go to the workers,
             which load their own weights and return the scores, to be cached and written here
    tune     the queries go to the workers once, in shares; a task is a config on a share. The searches over all queries and of the folds
             run at the same time, each of them sequentially as on one machine. A search of some seconds stays here

The result equals that of one process to the last bit: tasks are pure, and everything that depends on order happens here. The scheduler
repeats the tasks of a dead worker. If the scheduler dies, or there is no worker for `NO_WORKER_TIMEOUT_S` seconds, the job ends with one
line; finished work is in the evidence or score file.

Dask workers run any code that they are sent: the cluster must be trusted. They need the same version of the workbench
(`cems-workbench[cluster]`), but no store.
"""

from __future__ import annotations

import pickle
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from cems_workbench.config import PipelineConfig
from cems_workbench.errors import ClusterError, ModelError, install_extra, one_line
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.models.protocol import MadeBy, PairScore, PairScorer
from cems_workbench.pipeline.table import Floats
from cems_workbench.tuning.objective import Scored
from cems_workbench.tuning.scorer import part_scores

CONNECT_TIMEOUT_S = 5.0
"""Timeout of the connection to a scheduler."""
NO_WORKER_TIMEOUT_S = 60.0
"""Seconds that a job waits without a worker: a killed one may be restarted."""
PARTS_PER_TASK = 4
"""Minimum number of parts in a share."""
POLL_INTERVAL_S = 0.5
"""Seconds between two checks of cluster and job."""


class Cluster:
    """A connected Dask cluster; close it after use. Methods may be called from several threads."""

    def __init__(self, address: str) -> None:
        """Raises ClusterError if `dask.distributed` is not installed, no scheduler answers, there is no worker, or a worker has another
        version of the workbench."""
        try:
            distributed: Any = import_module("distributed")
        except ImportError:
            raise ClusterError(install_extra("dask.distributed", "cluster")) from None
        self.address = address
        self._stopped = threading.Event()
        try:
            self._client: Any = distributed.Client(
                address, timeout=CONNECT_TIMEOUT_S, set_as_default=False, name="cems-workbench"
            )
        except (OSError, ValueError, TypeError, RuntimeError, AssertionError) as error:
            # An assertion: on a busy machine its own event loop may not start within ten seconds.
            raise ClusterError(
                f"{one_line(address)}: no Dask scheduler answers there ({one_line(str(error) or type(error).__name__, 120)})"
            ) from None
        try:
            self._require_alike()
        except BaseException:
            self.close()
            raise

    @property
    def threads(self) -> int:
        """Number of tasks that the workers run at the same time."""
        return max(1, sum(map(int, self._client.nthreads().values())))

    def close(self) -> None:
        """Disconnect, and drop the pending tasks."""
        self._stopped.set()
        self._client.close(timeout=CONNECT_TIMEOUT_S)

    def submit(self, function: Callable[..., Any], *arguments: Any, key: str | None = None) -> Any:
        """Submit a task; its arguments may be tasks. It is repeated only if its worker dies."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # large arguments are intended
            # Dask would return the known result of an equal key, so each task gets a separate one.
            return self._client.submit(
                function, *arguments, key=key or f"{function.__name__}-{uuid.uuid4().hex}", pure=False
            )

    def result(self, task: Any) -> Any:
        """Wait for the result of a task. Raises ClusterError if the cluster goes away, or the task has killed too many workers."""
        from distributed.scheduler import KilledWorker, NoValidWorkerError

        wait: Any = import_module("distributed").wait

        alone_since: float | None = None
        while not self._stopped.is_set():
            try:
                with self._client.as_current():
                    # Short waits let `close` from another thread end this loop.
                    wait(task, timeout=POLL_INTERVAL_S)
            except TimeoutError:
                alone_since = None if self._working() else alone_since or time.monotonic()
                if alone_since is not None and time.monotonic() > alone_since + NO_WORKER_TIMEOUT_S:
                    raise ClusterError(
                        f"{self.address}: no worker is left; finished work is kept, run it again"
                    ) from None
            except (CancelledError, OSError):
                break
            if task.status == "finished":
                return task.result()
            if task.status == "error":
                error = task.exception()
                if isinstance(error, KilledWorker | NoValidWorkerError):
                    raise ClusterError(
                        f"{self.address}: workers die while running these tasks: {one_line(str(error), 160)}"
                    ) from None
                raise error
            if task.status not in ("pending", "lost") or self._client.status not in ("running", "connecting"):
                break  # lost: its worker died with the result; the scheduler repeats the task
        raise ClusterError(f"{self.address}: the Dask scheduler went away; finished work is kept, run it again")

    def _working(self) -> bool:
        """Whether there is a scheduler with a worker."""
        return self._client.status == "running" and bool(self._client.scheduler_info(n_workers=-1)["workers"])

    def score(self, made_by: MadeBy, model: str, query: str, texts: Sequence[str]) -> list[PairScore]:
        """Score pairs on a worker (`models.protocol.Elsewhere`). Raises ClusterError, also if its weights differ."""
        try:
            has, scores = self.result(self.submit(scored_pairs, made_by, query, tuple(texts)))
        except ModelError as error:
            raise ClusterError(f"{self.address}: a worker cannot score: {error}") from None
        if has != model:
            raise ClusterError(f"{self.address}: a worker has other weights ({has}, here {model})")
        found: list[PairScore] = scores
        return found

    def _require_alike(self) -> None:
        from cems_workbench import __version__

        try:
            versions = self._client.run(version)
        except Exception as error:  # a failing import on a worker may raise anything
            raise ClusterError(
                f"{self.address}: a worker cannot load the workbench: {one_line(str(error) or type(error).__name__, 160)}"
            ) from None
        if not versions:
            raise ClusterError(f"{self.address}: there is no worker; start some with: dask worker {self.address}")
        others = sorted({f"{worker}: {has}" for worker, has in versions.items() if has != __version__})
        if others:
            raise ClusterError(
                f"{self.address}: workers have another version than this one, {__version__}: {', '.join(others)}"
            )


@contextmanager
def cluster_at(address: str) -> Iterator[Cluster | None]:
    """The cluster at an address, connected within the block; None for an empty address. Raises ClusterError."""
    if not address:
        yield None
        return
    cluster = Cluster(address)
    try:
        yield cluster
    finally:
        cluster.close()


class ClusterParts:
    """Scores the parts of a query set on a cluster (`tuning.scorer.PartScorer`).

    A Dask task costs some milliseconds, scoring a part one or two. So parts are grouped in shares, up to one per thread of the cluster,
    and a task scores a config on all requested parts of a share.
    """

    def __init__(self, cluster: Cluster, batches: Sequence[LabelledBatch], measures: Sequence[Scored]) -> None:
        self._cluster = cluster
        self._measures = tuple(measures)
        shares = max(1, min(cluster.threads, len(batches) // PARTS_PER_TASK))
        self._share = [number % shares for number in range(len(batches))]
        self._sent = [
            cluster.submit(loaded, pickle.dumps({n: batches[n] for n in range(share, len(batches), shares)}))
            for share in range(shares)
        ]
        self._asked: dict[tuple[PipelineConfig, tuple[int, ...]], Any] = {}
        self._changing = threading.Lock()

    def prefetch(self, config: PipelineConfig, parts: Sequence[int]) -> None:
        """Start scoring these parts."""
        with self._changing:
            for numbers in self._by_share(parts):
                if (config, numbers) not in self._asked:
                    self._asked[config, numbers] = self._task(config, numbers)

    def __call__(self, config: PipelineConfig, parts: Sequence[int]) -> list[Floats]:
        """(Qp, M) of each part; shares are scored in parallel."""
        shares = self._by_share(parts)
        with self._changing:
            tasks = [self._asked.pop((config, numbers), None) or self._task(config, numbers) for numbers in shares]
        scores: dict[int, Floats] = {}
        for numbers, task in zip(shares, tasks, strict=True):
            scores.update(zip(numbers, self._cluster.result(task), strict=True))
        return [scores[number] for number in parts]

    def _by_share(self, parts: Sequence[int]) -> list[tuple[int, ...]]:
        """The requested parts, grouped by share."""
        shares: dict[int, list[int]] = {}
        for number in parts:
            shares.setdefault(self._share[number], []).append(number)
        return [tuple(numbers) for numbers in shares.values()]

    def _task(self, config: PipelineConfig, numbers: tuple[int, ...]) -> Any:
        sent = self._sent[self._share[numbers[0]]]
        return self._cluster.submit(share_scores, sent, config, numbers, self._measures)


def version() -> str:
    """The workbench version of the worker."""
    from cems_workbench import __version__

    return __version__


def loaded(pickled: bytes) -> dict[int, LabelledBatch]:
    """On a worker: unpickle the parts of a share, by number."""
    batches: dict[int, LabelledBatch] = pickle.loads(pickled)  # noqa: S301 (Dask has sent it, as it sends every task)
    return batches


def share_scores(
    batches: Mapping[int, LabelledBatch], config: PipelineConfig, numbers: Sequence[int], measures: Sequence[Scored]
) -> list[Floats]:
    """On a worker: (Qp, M) of each of these parts of a share."""
    return [part_scores(batches[number], config, measures) for number in numbers]


_scorers: dict[MadeBy, PairScorer] = {}
_making = threading.Lock()


def scored_pairs(made_by: MadeBy, query: str, texts: Sequence[str]) -> tuple[str, list[PairScore]]:
    """On a worker: `cache_model` and scores of the scorer, which is made once per process."""
    with _making:
        if made_by not in _scorers:
            make, arguments = made_by
            _scorers[made_by] = make(*arguments)
        scorer = _scorers[made_by]
    return scorer.cache_model(query), scorer.score(query, texts)
