"""Is the gain that we predict the gain of the real answers? nDCG@10 of recorded answers of CEMS against ours, setting by setting.

The first recording is the base; every other one is another setting of the same queries. The promise of a tuned config is the
difference of ours; what CEMS did is the difference of the recorded answers; the difference of the two should be nothing.

Run from the checkout: python -m benchmarks.bench_promise ../shared/cems/sample.json ../shared/cems/sample_{b,c,d}.json
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from cems_workbench.builtin import SAMPLE_DATA
from cems_workbench.config import preset
from cems_workbench.evaluation.grades import agreed_grades
from cems_workbench.evaluation.metrics import graded
from cems_workbench.evaluation.metrics.ranked import ndcg
from cems_workbench.settings import Settings
from workbench_fidelity.fidelity import asked_queries, measure_fidelity, setting_for, store_of_folder
from workbench_fidelity.recordings import read_recording

MOST = 0.005
"""The most that prediction and record may differ."""


def ndcg_at_10(ids: Sequence[str], grades: Mapping[str, int]) -> float:
    """nDCG@10 of one query; 0 where nothing was judged relevant."""
    return float(ndcg(graded([ids], [grades]), 10, 1)[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recordings", nargs="+", type=Path, help="the base, then the other settings")
    parser.add_argument(
        "--data", type=Path, default=SAMPLE_DATA, help="a folder with memories, relations, queries, judgments"
    )
    given = parser.parse_args()
    head = preset("cems_head").config
    worst = 0.0
    base: dict[str, tuple[float, float]] = {}
    with store_of_folder(given.data, Settings()) as (resources, known):
        grades = agreed_grades(resources.store.judgments.read())
        print(
            f"{'recording':12s} queries  nDCG@10 recorded   ours   gain recorded  predicted  difference  largest of a query"
        )
        for path in given.recordings:
            setting = setting_for(read_recording(path), head)
            measured = measure_fidelity(setting, asked_queries(setting.recording, known), resources)
            scores = {
                query.qid: (ndcg_at_10(query.recorded, grades[query.qid]), ndcg_at_10(query.ours, grades[query.qid]))
                for query in measured.fidelity.queries
                if query.qid in grades
            }
            base = base or scores
            theirs, ours = np.array([scores[qid] for qid in base]).T
            before, ours_before = np.array(list(base.values())).T
            gain, predicted = float((theirs - before).mean()), float((ours - ours_before).mean())
            apart = np.abs((theirs - before) - (ours - ours_before)).max()
            worst = max(worst, abs(gain - predicted))
            print(
                f"{path.stem:12s} {len(scores):7d}  {theirs.mean():16.4f} {ours.mean():6.4f}  {gain:+14.4f} {predicted:+10.4f} "
                f"{predicted - gain:+11.5f}  {apart:18.4f}"
            )
    print(f"largest difference of the differences {worst:.5f} (at most {MOST})")
    if worst > MOST:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
