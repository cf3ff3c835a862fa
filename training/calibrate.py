"""Fit how a judge's raw scores are read: the threshold of relevance and the bands, on labelled pairs.

    python -m training.calibrate [--out cems_workbench/models/weights/minilm_judge] [--judge cross_encoder]

Pairs are what a judge is shown: the first ten of the hybrid for questions of the LoCoMo conversations in ../shared/data/locomo
(relevant: named by the evidence), and every judged pair of the sample data (relevant: grade 2 or 3). Both weigh the same.
A logistic curve P(relevant | score) is fitted by maximum likelihood; the threshold is the score with the best F1, highly relevant
begins where P is 0.5 (or halfway in P to 1 where the threshold is above that) and weak where P is a third of the threshold's.
What is reported is measured leaving one group out: a conversation, or the sample data. Evidence names few turns, so P is a lower
bound: what nobody named counts as not relevant.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cems_workbench.config import preset
from cems_workbench.pipeline.rerankers import ScorerRequest, score_with
from cems_workbench.pipeline.resources import Resources
from training.candidates import candidates, open_data_set, raw_scores

SHOWN = 10
CHARACTERS = 500
BINS = 10


@dataclass(frozen=True)
class Labelled:
    """Scores and labels of one group of pairs."""

    group: str
    scores: np.ndarray
    relevant: np.ndarray


def locomo(folder: Path, judge: str, count: int) -> list[Labelled]:
    """A group per conversation: the first ten candidates of `count` of its questions."""
    groups = []
    for file in sorted(folder.glob("*.json")):
        with tempfile.TemporaryDirectory() as scratch:
            resources, queries, relevant = open_data_set(file, Path(scratch))
            model = score_with(judge, ScorerRequest(None, preset("ace").config.rerank, resources), lambda made: made)[0]
            drawn = random.Random(f"calibrate/{file.stem}").sample(queries, min(count, len(queries)))
            scores: list[np.ndarray] = []
            labels: list[bool] = []
            for pool in candidates(resources, drawn, relevant):
                scores.append(raw_scores(model, pool.query.query, [text[:CHARACTERS] for text in pool.texts[:SHOWN]]))
                labels += [memory_id in pool.relevant for memory_id in pool.ids[:SHOWN]]
            resources.close()
        groups.append(Labelled(f"LoCoMo {file.stem}", np.concatenate(scores), np.array(labels)))
        print(f"{groups[-1].group}: {len(labels)} pairs, {sum(labels)} relevant", flush=True)
    return groups


def sample(folder: Path, judge: str) -> Labelled:
    """Every judged pair of the sample data; relevant is grade 2 or 3."""
    with tempfile.TemporaryDirectory() as scratch:
        resources, _, _ = open_data_set(folder, Path(scratch))
        model = score_with(judge, ScorerRequest(None, preset("ace").config.rerank, resources), lambda made: made)[0]
        pairs = graded(resources)
        asked = {query.qid: query.query for query in resources.store.queries.read()}
        memories = resources.store.memories.read()
        scores = [
            raw_scores(model, asked[qid], [memories[memory_id].content[:CHARACTERS] for memory_id in grades])
            for qid, grades in pairs.items()
        ]
        resources.close()
    labels = [grade >= 2 for grades in pairs.values() for grade in grades.values()]
    return Labelled("sample data", np.concatenate(scores), np.array(labels))


def graded(resources: Resources) -> dict[str, dict[str, int]]:
    """The grade of every judged memory, by query."""
    grades: dict[str, dict[str, int]] = {}
    for judgment in resources.store.judgments.read():
        grades.setdefault(judgment.qid, {})[judgment.memory_id] = judgment.grade
    return grades


@dataclass(frozen=True)
class Curve:
    """P(relevant | score) = 1 / (1 + e^-(slope * score + offset)), with the threshold and bands taken from it."""

    slope: float
    offset: float
    threshold: float

    def chance(self, scores: np.ndarray) -> np.ndarray:
        """P of each score."""
        return np.asarray(1 / (1 + np.exp(-(self.slope * scores + self.offset))))

    def score_at(self, chance: float) -> float:
        """The score where P is `chance`."""
        return float((np.log(chance / (1 - chance)) - self.offset) / self.slope)

    @property
    def bands(self) -> tuple[float, float, float]:
        """Lower ends of highly relevant, relevant and weak."""
        at = float(self.chance(np.array(self.threshold)))
        return self.score_at(0.5 if at < 0.45 else (1 + at) / 2), self.threshold, self.score_at(at / 3)


def weights(groups: list[Labelled]) -> np.ndarray:
    """LoCoMo and the sample data weigh the same, whatever their sizes."""
    sizes: dict[str, int] = {}
    for group in groups:
        sizes[group.group.split()[0]] = sizes.get(group.group.split()[0], 0) + len(group.scores)
    return np.concatenate([np.full(len(group.scores), 1 / sizes[group.group.split()[0]]) for group in groups])


def fit(groups: list[Labelled]) -> Curve:
    """Newton's method on the weighted likelihood, then the threshold of the best weighted F1."""
    scores, labels = np.concatenate([g.scores for g in groups]), np.concatenate([g.relevant for g in groups])
    weight = weights(groups)
    mean, spread = scores.mean(), scores.std()
    inputs = np.stack(((scores - mean) / spread, np.ones_like(scores)), 1)
    found = np.zeros(2)
    for _ in range(50):
        p = 1 / (1 + np.exp(-inputs @ found))
        gradient = inputs.T @ (weight * (labels - p))
        curvature = (inputs * (weight * p * (1 - p))[:, None]).T @ inputs
        found = found + np.linalg.solve(curvature + 1e-9 * np.eye(2), gradient)
    order = np.argsort(-scores, kind="stable")
    right = np.cumsum(weight[order] * labels[order])
    f1 = 2 * right / (np.cumsum(weight[order]) + right[-1])
    best = int(np.argmax(f1))
    below = scores[order][min(best + 1, len(order) - 1)]
    return Curve(found[0] / spread, found[1] - found[0] * mean / spread, float((scores[order][best] + below) / 2))


def left_out(groups: list[Labelled]) -> tuple[list[dict[str, object]], np.ndarray, np.ndarray]:
    """Precision and recall of each group at the threshold of the others; predicted P and labels of all."""
    rows, predicted = [], []
    for group in groups:
        curve = fit([other for other in groups if other is not group])
        above = group.scores > curve.threshold
        right = int((above & group.relevant).sum())
        rows.append(
            {
                "group": group.group,
                "pairs": len(above),
                "relevant": int(group.relevant.sum()),
                "threshold": round(curve.threshold, 2),
                "precision": round(right / max(int(above.sum()), 1), 3),
                "recall": round(right / max(int(group.relevant.sum()), 1), 3),
            }
        )
        predicted.append(curve.chance(group.scores))
    return rows, np.concatenate(predicted), np.concatenate([group.relevant for group in groups])


def reliability(predicted: np.ndarray, labels: np.ndarray, weight: np.ndarray) -> list[tuple[float, float, int]]:
    """(mean predicted P, share that is relevant, pairs) of each tenth of the range of P that has pairs."""
    bins = np.minimum((predicted * BINS).astype(int), BINS - 1)
    return [
        (
            float(np.average(predicted[at], weights=weight[at])),
            float(np.average(labels[at], weights=weight[at])),
            int(at.sum()),
        )
        for number in range(BINS)
        if (at := bins == number).any()
    ]


def diagram(points: list[tuple[float, float, int]]) -> str:
    """The reliability diagram as SVG: predicted against observed, the diagonal, the number of pairs at each point."""
    side, edge = 300, 46

    def x(p: float) -> float:
        return edge + p * side

    def y(p: float) -> float:
        return 16 + (1 - p) * side

    ticks = [t / 5 for t in range(6)]
    grid = "".join(
        f'<path d="M{x(0)} {y(t):.0f}H{x(1)}M{x(t):.0f} {y(0)}V{y(1)}" stroke="#8884" fill="none"/>'
        f'<text x="{edge - 6}" y="{y(t) + 4:.0f}" text-anchor="end">{t:g}</text>'
        f'<text x="{x(t):.0f}" y="{y(0) + 16}" text-anchor="middle">{t:g}</text>'
        for t in ticks
    )
    line = " ".join(f"{x(p):.1f},{y(q):.1f}" for p, q, _ in points)
    dots = "".join(
        f'<circle cx="{x(p):.1f}" cy="{y(q):.1f}" r="4" fill="#0072B2"/>'
        f'<text x="{x(p) + 7:.1f}" y="{y(q) + 13:.1f}" font-size="10">{n}</text>'
        for p, q, n in points
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {side + 90} {side + 64}" width="{side + 90}" '
        f'font-family="sans-serif" font-size="11" fill="#444"><rect width="100%" height="100%" fill="#fff"/>{grid}'
        f'<path d="M{x(0)} {y(0)}L{x(1)} {y(1)}" stroke="#888" stroke-dasharray="4 4"/>'
        f'<polyline points="{line}" fill="none" stroke="#0072B2" stroke-width="2"/>{dots}'
        f'<text x="{x(0.5)}" y="{y(0) + 36}" text-anchor="middle">predicted P(relevant), group left out</text>'
        f'<text transform="translate(12 {y(0.5)}) rotate(-90)" text-anchor="middle">share that is relevant</text></svg>\n'
    )


def main() -> int:
    """Fit, report, and write calibration.json and reliability.svg into --out."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--locomo", type=Path, default=Path("../shared/data/locomo"))
    parser.add_argument("--sample", type=Path, default=Path("sample_data"))
    parser.add_argument("--judge", choices=("cross_encoder", "late_interaction"), default="cross_encoder")
    parser.add_argument("--queries", type=int, default=100, help="questions drawn of each conversation")
    parser.add_argument("--out", type=Path, default=None, help="folder to write to; only reported otherwise")
    options = parser.parse_args()
    groups = [*locomo(options.locomo, options.judge, options.queries), sample(options.sample, options.judge)]
    curve = fit(groups)
    rows, predicted, labels = left_out(groups)
    points = reliability(predicted, labels, weights(groups))
    kept = {
        "threshold": round(curve.threshold, 2),
        "bands": [round(low, 2) for low in curve.bands],
        "slope": round(curve.slope, 4),
        "offset": round(curve.offset, 4),
        "left_out": rows,
        "reliability": [[round(p, 3), round(q, 3), n] for p, q, n in points],
    }
    print(json.dumps(kept, indent=1))
    if options.out:
        (options.out / "calibration.json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
        (options.out / "reliability.svg").write_text(diagram(points), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
