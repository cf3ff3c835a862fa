"""Gathering and tuning on a Dask cluster: the slow parts go to its workers, everything that is kept stays here.

    gather   lists are searched here, since one process at a time has the store; the texts that a cross-encoder reads go to the workers,
             which load the weights of their own installation and give the scores back, to be cached and written here
    tune     the queries go to the workers once, in shares; a task is a config on a share. The searches over all queries and over those
             of each fold run at once, each trial after trial as it does on one machine. A search of some seconds is not sent

So the result is that of one process, to the last bit: tasks are pure, and the order of what depends on what came before is kept here. A
worker that dies has nothing that is not here or with the scheduler, which gives its tasks to another. Where the scheduler itself goes
away, or no worker is left for `NO_WORKER_TIMEOUT_S` seconds, the job ends with one line; finished work is in the evidence or score file.

Workers run the code that they are sent, as Dask has it: a cluster is a trusted place. They need the same version of the workbench
(`cems-workbench[cluster]`), and nothing of the store.
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
"""Seconds until a scheduler that does not answer is taken for away."""
NO_WORKER_TIMEOUT_S = 60.0
"""Seconds that a run waits for a worker where there is none: one that was killed may be started again."""
PARTS_PER_TASK = 4
"""Parts of the queries that are worth a task of their own."""
POLL_INTERVAL_S = 0.5
"""Seconds between two looks whether cluster and run are still there."""


class Cluster:
    """A Dask cluster that is connected; close it. Methods may be called from several threads."""

    def __init__(self, address: str) -> None:
        """Raises ClusterError where `dask.distributed` is not installed, nobody answers at the address, there is no worker, or a worker
        has another version of the workbench."""
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
        except (OSError, ValueError, TypeError, RuntimeError) as error:
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
        """How many tasks the workers do at once."""
        return max(1, sum(map(int, self._client.nthreads().values())))

    def close(self) -> None:
        """Leave it; what it was still doing for this run is let go."""
        self._stopped.set()
        self._client.close(timeout=CONNECT_TIMEOUT_S)

    def submit(self, function: Callable[..., Any], *arguments: Any, key: str | None = None) -> Any:
        """A task of the cluster; its arguments may be others. It is done once, and again only where the worker that did it has died."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that evidence is large is meant
            return self._client.submit(
                function, *arguments, key=key or f"{function.__name__}-{uuid.uuid4().hex}", pure=False
            )

    def result(self, task: Any) -> Any:
        """What a task gives; waits for it. Raises ClusterError where the cluster went away, or killed too many workers with it."""
        from distributed.scheduler import KilledWorker, NoValidWorkerError

        wait: Any = import_module("distributed").wait

        alone_since: float | None = None
        while not self._stopped.is_set():
            try:
                with self._client.as_current():
                    wait(task, timeout=POLL_INTERVAL_S)
            except TimeoutError:
                alone_since = None if self._working() else alone_since or time.monotonic()
                if alone_since is not None and time.monotonic() > alone_since + NO_WORKER_TIMEOUT_S:
                    raise ClusterError(
                        f"{self.address}: no worker is left; what was finished stays, run it again"
                    ) from None
            except (CancelledError, OSError):
                break
            if task.status == "finished":
                return task.result()
            if task.status == "error":
                error = task.exception()
                if isinstance(error, KilledWorker | NoValidWorkerError):
                    raise ClusterError(
                        f"{self.address}: workers die of this work: {one_line(str(error), 160)}"
                    ) from None
                raise error
            if task.status not in ("pending", "lost") or self._client.status not in ("running", "connecting"):
                break  # lost: done by a worker that died before anybody had it; the scheduler has it done anew
        raise ClusterError(f"{self.address}: the Dask scheduler went away; what was finished stays, run it again")

    def _working(self) -> bool:
        """Is the scheduler there, with a worker?"""
        return self._client.status == "running" and bool(self._client.scheduler_info(n_workers=-1)["workers"])

    def score(self, made_by: MadeBy, model: str, query: str, texts: Sequence[str]) -> list[PairScore]:
        """Pairs scored by a worker (`models.protocol.Elsewhere`). Raises ClusterError, also where its weights are others."""
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
        except Exception as error:  # whatever a worker has to say of an import that fails
            raise ClusterError(
                f"{self.address}: a worker cannot load the workbench: {one_line(str(error) or type(error).__name__, 160)}"
            ) from None
        if not versions:
            raise ClusterError(f"{self.address}: no worker is there; start some with: dask worker {self.address}")
        others = sorted({f"{worker}: {has}" for worker, has in versions.items() if has != __version__})
        if others:
            raise ClusterError(
                f"{self.address}: workers have another version than this one, {__version__}: {', '.join(others)}"
            )


@contextmanager
def cluster_at(address: str) -> Iterator[Cluster | None]:
    """The cluster at an address, connected as long as the block runs; None without one. Raises ClusterError."""
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

    Each task of Dask costs some milliseconds, a part of the queries one or two: so parts are sent in shares, as many as the cluster has
    threads where each is worth a task, and a task scores a config on all that is asked of a share.
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
        """Begin with these."""
        with self._changing:
            for numbers in self._by_share(parts):
                if (config, numbers) not in self._asked:
                    self._asked[config, numbers] = self._task(config, numbers)

    def __call__(self, config: PipelineConfig, parts: Sequence[int]) -> list[Floats]:
        """(Qp, M) of each part; shares are scored at once."""
        shares = self._by_share(parts)
        with self._changing:
            tasks = [self._asked.pop((config, numbers), None) or self._task(config, numbers) for numbers in shares]
        scores: dict[int, Floats] = {}
        for numbers, task in zip(shares, tasks, strict=True):
            scores.update(zip(numbers, self._cluster.result(task), strict=True))
        return [scores[number] for number in parts]

    def _by_share(self, parts: Sequence[int]) -> list[tuple[int, ...]]:
        """The parts that are asked for, those of each share together."""
        shares: dict[int, list[int]] = {}
        for number in parts:
            shares.setdefault(self._share[number], []).append(number)
        return [tuple(numbers) for numbers in shares.values()]

    def _task(self, config: PipelineConfig, numbers: tuple[int, ...]) -> Any:
        sent = self._sent[self._share[numbers[0]]]
        return self._cluster.submit(share_scores, sent, config, numbers, self._measures)


def version() -> str:
    """Of the workbench, where this runs."""
    from cems_workbench import __version__

    return __version__


def loaded(pickled: bytes) -> dict[int, LabelledBatch]:
    """The parts of a share by their number, encoded, on the worker that keeps them."""
    batches: dict[int, LabelledBatch] = pickle.loads(pickled)  # noqa: S301 (Dask has sent it, as it sends every task)
    return batches


def share_scores(
    batches: Mapping[int, LabelledBatch], config: PipelineConfig, numbers: Sequence[int], measures: Sequence[Scored]
) -> list[Floats]:
    """(Qp, M) of each of these parts of a share, on a worker."""
    return [part_scores(batches[number], config, measures) for number in numbers]


_scorers: dict[MadeBy, PairScorer] = {}
_making = threading.Lock()


def scored_pairs(made_by: MadeBy, query: str, texts: Sequence[str]) -> tuple[str, list[PairScore]]:
    """On a worker: `cache_model` and scores of the scorer, which is made once in the life of the process."""
    with _making:
        if made_by not in _scorers:
            make, arguments = made_by
            _scorers[made_by] = make(*arguments)
        scorer = _scorers[made_by]
    return scorer.cache_model(query), scorer.score(query, texts)
