"""Gathering and tuning on a Dask cluster of two worker processes: the same as on one, also where a worker is killed."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from benchmarks.cluster import CONFIG, NOW
from benchmarks.cluster import SPACE as FREE
from benchmarks.synthetic_queries import fusion_only
from cems_workbench.errors import ClusterError
from cems_workbench.evaluation.evidence_file import read_evidence_file
from cems_workbench.jobs import cluster as module
from cems_workbench.jobs import tuning as tuning_job
from cems_workbench.jobs.cluster import Cluster, cluster_at
from cems_workbench.jobs.evaluation import labelled_file
from cems_workbench.jobs.factory import open_resources
from cems_workbench.jobs.query_set_evidence import gather_query_set
from cems_workbench.jobs.tuning import PlannedSearch, TuningData, planned_search, run_search
from cems_workbench.pipeline import bundle_from
from cems_workbench.progress import Cancelled
from cems_workbench.settings import Settings
from cems_workbench.tuning.objective import parse_goal
from cems_workbench.tuning.scorer import BatchScorer
from cems_workbench.tuning.tune import Tuned
from tests.planted import planted_file

if TYPE_CHECKING:
    pass

distributed = pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A scheduler with two worker processes of one thread each, in a folder that no other cluster of the machine clears."""
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        dashboard_address=None,
        silence_logs=logging.CRITICAL,
        local_directory=str(tmp_path_factory.mktemp("dask")),
    ) as started:
        yield started


def pids(workers: Any) -> list[int]:
    return [worker.process.pid for worker in workers.workers.values() if worker.process is not None]


def kill_one(workers: Any) -> None:
    """As the machine does that runs out of memory: nothing is said to anybody."""
    os.kill(pids(workers)[0], signal.SIGKILL)


def gathered(store: Path, out: Path, dask: str, count: int = 8, progress: Any = None) -> dict[str, Any]:
    """The evidence of the first queries of a copy of a store whose cache holds no scores, as a bundle each."""
    own = Path(shutil.copytree(store, out.with_suffix(".store")))
    resources = open_resources(Settings(store=own, dask=dask))
    try:
        queries = [replace(query, as_of=NOW) for query in resources.store.queries.read()[:count]]
        queries.append(replace(queries[0], qid="again"))  # the same words: its scores are in the cache then
        gather_query_set(out, queries, [], CONFIG, resources, progress=progress or (lambda *_: None))
    finally:
        resources.close()
    return {qid: bundle_from(one) for qid, one in read_evidence_file(out).evidences.items()}


@pytest.mark.thorough  # a search on a cluster gathers too
def test_evidence_gathered_on_two_workers_is_that_of_one_process_though_one_is_killed(
    store: Path, workers: Any, tmp_path: Path
) -> None:
    alone = gathered(store, tmp_path / "alone.evidence", "")
    killed: list[int] = []

    def kill(label: str, done: int, total: int) -> None:
        if done == 2 and not killed:
            killed.append(done)
            kill_one(workers)

    spread = gathered(store, tmp_path / "spread.evidence", workers.scheduler_address, progress=kill)
    assert killed
    assert list(spread) == list(alone)
    assert spread == alone
    assert (
        read_evidence_file(tmp_path / "spread.evidence").replay_hash
        == read_evidence_file(tmp_path / "alone.evidence").replay_hash
    )


def worked(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


@pytest.mark.thorough
def test_what_a_worker_took_with_it_when_it_died_is_done_anew(workers: Any) -> None:
    with cluster_at(workers.scheduler_address) as cluster:
        assert cluster is not None
        task = cluster.submit(worked, 0.4)
        while task.status == "pending":
            time.sleep(0.001)
        (holder,) = workers.scheduler.tasks[task.key].who_has
        dead = next(nanny.process.pid for nanny in workers.workers.values() if nanny.worker_address == holder.address)
        os.kill(dead, signal.SIGKILL)
        while task.status == "finished":
            time.sleep(0.001)
        assert task.status in ("lost", "pending")
        assert cluster.result(task) != dead


@pytest.fixture
def all_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches go to the cluster however soon they would be done here, and parts are few queries."""
    monkeypatch.setattr(tuning_job, "MIN_CLUSTER_S", 0.0)
    monkeypatch.setattr(module, "PARTS_PER_TASK", 2)
    monkeypatch.setattr(BatchScorer.__init__, "__defaults__", (0, 16, lambda config: config))


def searched(
    evidence: Path, space: tuple[str, ...], cluster: Cluster | None = None, stage: Any = None
) -> tuple[PlannedSearch, Tuned]:
    """A search for a better config on a copy of the evidence beside which no scores are kept."""
    read = read_evidence_file(evidence)
    data = TuningData(fusion_only(), read.header.query_set, labelled_file(read, None))
    planned = planned_search(
        data, parse_goal(["nDCG@10"]), space, group_by="query", folds=3, sealed=0.2, trials=12, seed=4
    )
    for kept in evidence.parent.glob("*.npz"):
        kept.unlink()
    result = run_search(planned, stage, cluster) if stage else run_search(planned, cluster=cluster)
    return planned, result.tuned


def same(one: Tuned, other: Tuned) -> None:
    """Every trial with its scores, the proposal and what it is worth."""
    assert [trial.values for trial in one.search.trials] == [trial.values for trial in other.search.trials]
    for had, has in zip(one.search.trials, other.search.trials, strict=True):
        np.testing.assert_array_equal(had.scores, has.scores)
        assert (had.pruned, had.broken, had.phase) == (has.pruned, has.broken, has.phase)
    assert (one.config, one.train, one.validation, one.choices) == (
        other.config,
        other.train,
        other.validation,
        other.choices,
    )


GRID = ("lists.vector.weight=0.5:2.5:0.5", "fusion.score_blend=0:0.5:0.25")


def test_a_search_on_two_workers_is_that_of_one_process_though_one_is_killed(
    workers: Any, tmp_path: Path, all_are_sent: None
) -> None:
    evidence = planted_file(tmp_path, 60)
    _, alone = searched(evidence, FREE)
    killed: list[str] = []

    def stage(name: str) -> Any:
        def watch(done: int, total: int, best: object) -> None:
            if done == 3 and not killed:
                killed.append(name)
                kill_one(workers)

        return watch

    with cluster_at(workers.scheduler_address) as cluster:
        planned, spread = searched(evidence, FREE, cluster, stage)
        assert killed
        assert len(planned.score.parts) == 4
        same(spread, alone)
        assert planned.kept_scores.read()  # so that a process that searches alone goes on with it
        assert planned.score.elsewhere is None
        same(searched(evidence, GRID, cluster)[1], searched(evidence, GRID)[1])


def test_a_search_of_seconds_stays_here_and_says_so(workers: Any, tmp_path: Path) -> None:
    evidence = planted_file(tmp_path, 60)
    with cluster_at(workers.scheduler_address) as cluster:
        assert cluster is not None
        cluster.submit = None  # type: ignore[assignment,method-assign]
        planned, _ = searched(evidence, FREE, cluster)
        said = run_search(planned, cluster=cluster).not_sent
    assert said.startswith("searched here, not on the cluster: it takes at most about ")


@pytest.mark.thorough
def test_a_cancelled_gather_on_a_cluster_keeps_what_is_finished(store: Path, workers: Any, tmp_path: Path) -> None:
    def cancel(label: str, done: int, total: int) -> None:
        if done == 3:
            raise Cancelled

    with pytest.raises(Cancelled):
        gathered(store, tmp_path / "cut.evidence", workers.scheduler_address, progress=cancel)
    assert len(read_evidence_file(tmp_path / "cut.evidence").evidences) == 3
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("gather")]


def nobody() -> str:
    """An address at which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.parametrize("address", ["", "nowhere at all", "tcp://", "http://127.0.0.1:1"])
def test_a_scheduler_that_is_away_is_one_line(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONNECT_TIMEOUT_S", 0.3)
    with pytest.raises(ClusterError, match="no Dask scheduler answers there") as said:
        Cluster(address or nobody())
    assert "\n" not in str(said.value)


@pytest.mark.thorough
def test_a_scheduler_that_goes_away_ends_a_search_in_one_line_and_its_scores_are_kept(
    tmp_path: Path, all_are_sent: None
) -> None:
    evidence = planted_file(tmp_path, 60)
    started = distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None, silence_logs=logging.CRITICAL
    )

    def stage(name: str) -> Any:
        def watch(done: int, total: int, best: object) -> None:
            if name == "search" and done == 4:
                threading.Thread(target=started.close).start()

        return watch

    with (
        pytest.raises(ClusterError, match="the Dask scheduler went away; finished work is kept"),
        cluster_at(started.scheduler_address) as cluster,
    ):
        searched(evidence, FREE, cluster, stage)
    assert list(tmp_path.glob("*.npz"))
