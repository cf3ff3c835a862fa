"""Upstream changes, forecast and as they came: the sign of the change of nDCG@10 of each query, from recordings of both versions.

    python -m benchmarks.bench_upstream RECORDINGS [--data sample_data] [--own] [--fault ID …]

RECORDINGS has for each fault ID.before.json and ID.after.json (or .jsonl): what the version with the fault answered, with its lists, and
what the mended one did. docs/use/recording.md says how they are made; the versions are those that upstream.json names. Of each fault the
lists of the first are replayed as it is and as mended, and compared with both answers. `--own` takes the store's own lists instead.

Run from the checkout, for mem0 of npm in a folder with its node_modules beside, where its stop words are read.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cems_workbench.config import PipelineConfig, preset
from cems_workbench.config.forms.targets import system_behind
from cems_workbench.evaluation.grades import agreed_grades
from cems_workbench.evaluation.metrics import graded, parse_measure
from cems_workbench.jobs.query_set_evidence import ALL_QUERIES, selected
from cems_workbench.jobs.upstream import MEASURE, SHOWN, Fault, faults, forecast, recorded_in
from cems_workbench.pipeline.resources import Resources
from cems_workbench.settings import settings_for
from workbench_fidelity.fidelity import store_of_folder

SAME = 1e-9
"""The largest change of nDCG@10 that is none."""
TEXTS: Mapping[str, Any] = {"chunks": "whole", "title": False}
"""How the recorded systems read a memory: its content alone, as a whole."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """A fault on the judged queries that both recordings answer: by query the change of nDCG@10, recorded and forecast, and whether the
    first ten of both sides are as recorded."""

    fault: Fault
    recorded: np.ndarray[Any, Any]
    predicted: np.ndarray[Any, Any]
    as_it_is: int
    as_mended: int
    moved: int

    @property
    def changed(self) -> np.ndarray[Any, Any]:
        """(Q) whether nDCG@10 changed in the program."""
        return np.asarray(np.abs(self.recorded) > SAME)

    @property
    def right(self) -> int:
        """The changed queries whose forecast has the same sign."""
        signs = [np.sign(np.where(np.abs(one) > SAME, one, 0.0)) for one in (self.recorded, self.predicted)]
        return int((self.changed & (signs[0] == signs[1])).sum())

    def line(self) -> str:
        """A row of the table."""
        count, of = int(self.changed.sum()), len(self.recorded)
        means = f"{self.recorded.mean():+.4f} | {self.predicted.mean():+.4f}"
        return f"| {self.fault.id} | {of} | {count} | {self.right} | {self.as_it_is} | {self.moved} | {self.as_mended} | {means} |"


def recordings(folder: Path, fault: Fault) -> tuple[Path, Path] | None:
    """The recordings of a fault in a folder; None where one is missing."""
    found = [next(iter(sorted(folder.glob(f"{fault.id}.{side}.json*"))), None) for side in ("before", "after")]
    return (found[0], found[1]) if found[0] and found[1] else None


def config_for(fault: Fault) -> PipelineConfig:
    """The preset of the program that was recorded: the last of the fault's."""
    return preset(fault.presets[-1]).config


def measured(fault: Fault, paths: tuple[Path, Path], resources: Resources, own: bool) -> Forecast:
    """Forecast a fault from the recording of before, or from the store's own lists, and compare with that of after."""
    config = config_for(fault)
    queries = selected(ALL_QUERIES, resources, judged=True)[0].queries
    before, after = (
        {} if (found := recorded_in(path, queries, config, resources)) is None else found.answers for path in paths
    )
    comparison = forecast(fault, config, ALL_QUERIES, resources, recorded=None if own else paths[0]).comparison
    assert comparison is not None
    first, second = comparison.evaluations
    relevant = set(first.qids) - set(first.without_relevant)
    qids = [qid for qid in first.qids if qid in relevant and qid in before and qid in after]
    results = [dict(zip(side.qids, side.results, strict=True)) for side in (first, second)]
    grades, measure = agreed_grades(resources.store.judgments.read()), parse_measure(MEASURE)

    def values(orders: Mapping[str, Sequence[str]]) -> np.ndarray[Any, Any]:
        return np.asarray(measure.values(graded([list(orders[qid]) for qid in qids], [grades[qid] for qid in qids])))

    def met(ours: Mapping[str, Sequence[str]], theirs: Mapping[str, Sequence[str]]) -> int:
        return sum(list(ours[qid][:SHOWN]) == list(theirs[qid][:SHOWN]) for qid in qids)

    return Forecast(
        fault,
        values(after) - values(before),
        values(results[1]) - values(results[0]),
        met(results[0], before),
        met(results[1], after),
        sum(list(before[qid][:SHOWN]) != list(after[qid][:SHOWN]) for qid in qids),
    )


def every(folder: Path, data: Path, names: Sequence[str], own: bool) -> Iterator[Forecast]:
    """The faults with both recordings, or the named ones of them, on stores of the folder's memories as each program reads them."""
    with ExitStack() as stack:
        stores: dict[tuple[str, bool], Resources] = {}
        for fault in faults():
            paths = recordings(folder, fault)
            if paths is None or (names and fault.id not in names):
                continue
            system = system_behind(config_for(fault))
            texts = {**TEXTS, **(system.texts if system is not None else {})}
            key = texts["chunks"], texts["title"]
            if key not in stores:
                opened = store_of_folder(data, settings_for(None), chunk_rule=key[0], title=key[1])
                stores[key] = stack.enter_context(opened)[0]
            yield measured(fault, paths, stores[key], own)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", type=Path)
    parser.add_argument("--fault", action="append", default=[], metavar="ID", help="only this one; may be repeated")
    parser.add_argument("--data", type=Path, default=Path("sample_data"))
    parser.add_argument("--own", action="store_true", help="the store's own lists")
    given = parser.parse_args()
    columns = (
        "queries",
        "nDCG@10 changed",
        "sign right",
        "ten as it is",
        "ten changed",
        "ten as mended",
        "gain",
        "forecast",
    )
    print(f"| fault | {' | '.join(columns)} |\n|---{'|---' * len(columns)}|")
    for found in every(given.recordings, given.data, given.fault, given.own):
        print(found.line(), flush=True)


if __name__ == "__main__":
    main()
