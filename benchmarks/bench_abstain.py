"""Knowing when there is no answer: what each signal tells, and what the rules of the field let through and refuse.

    python -m benchmarks.bench_abstain [--work .workbench/abstain] [--presets cems,qmd] [--queries 120]
        [--out benchmarks/RESULTS/abstaining.md]

Two data sets: the sample with the questions that were written for it and have no answer, and the development conversations of LoCoMo in
one store, where as many questions are asked of the conversation that they are about as other ones are of the next, which does not
answer them. Every preset gathers for itself, without a judge; one whose model server does not answer is named and left out.

(a) AUROC of each signal of `abstain` as "there is an answer", and of the score of the first result
(b) noise@5 of the questions without an answer where about 5 % of the others are refused, under a threshold on each signal, CEMS's relevance
    threshold, the memory agent's fixed and adaptive one, and as each is documented

A threshold is the largest that refuses at most 5 % of the answerable questions of the other groups (LoCoMo: conversations; sample: five
folds), and is measured on its own group.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.report import DATA, SAMPLE, Dataset, query_set, quiet, reranker
from cems_workbench import formats
from cems_workbench.config import PipelineConfig, preset_names, with_values
from cems_workbench.evaluation.batch import LabelledBatch, Rankings
from cems_workbench.evaluation.evidence_file import read_evidence_file
from cems_workbench.evaluation.metrics import parse_measure
from cems_workbench.evaluation.metrics.confidence import ConfidenceSignal, blocks, roc_values, weighted_mean
from cems_workbench.evaluation.statistics import bootstrap, interval
from cems_workbench.jobs.factory import open_resources
from cems_workbench.jobs.query_set_evidence import gather_query_set, sample_queries
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages.abstain import CONFIDENCE_FEATURES, switched_off
from cems_workbench.pipeline.table import Bools, Floats, Ints
from cems_workbench.records import Judgment, Query
from cems_workbench.settings import Settings
from cems_workbench.tuning.holdout import split

REFUSED = 0.05
"""Share of answerable questions that a rule may refuse where its threshold is chosen."""
TRIED = 80
"""Thresholds that are tried of a signal, at most."""
CUTS = 60
"""Thresholds that are tried of CEMS's rule."""
K = 5
FIRST = "first"
COLUMNS = {FIRST: "first result", **{name: name for name in CONFIDENCE_FEATURES if name != "judge"}}
"""Signals by what the table calls them; no judge is asked."""


@dataclass(frozen=True, eq=False)
class Asked:
    """One preset on one data set: its evidence, replayed without what `abstain` decides in it. (Q) kinds and groups of the questions."""

    preset: PipelineConfig
    config: PipelineConfig
    batch: LabelledBatch
    answerable: Bools
    without: Bools
    folds: tuple[Ints, ...]
    signals: Mapping[str, Floats]
    base: Rankings


@dataclass(frozen=True, eq=False)
class Rule:
    """A rule at some thresholds, the laxest first: (T, Q) what is left of the first K places, and whether anything is returned."""

    name: str
    left: Floats
    answers: Bools
    chosen: bool = True
    """Is the threshold chosen here? Else there is one, the documented."""


def locomo(resources: Resources, count: int, seed: int) -> tuple[list[Query], list[Judgment]]:
    """`count` questions of the conversations, and `count` other ones asked of the conversation after theirs."""
    queries, judgments = query_set(resources, Dataset("locomo", DATA, "", only_project=True))
    own = sample_queries(queries, count, seed)
    taken = {query.qid for query in own}
    others = sample_queries([query for query in queries if query.qid not in taken], count, seed)
    projects = sorted({str(query.project) for query in queries})
    after = dict(zip(projects, [*projects[1:], projects[0]], strict=True))
    moved = [
        replace(
            query,
            qid=f"{query.qid} of {after[str(query.project)]}",
            project=after[str(query.project)],
            answerable=False,
        )
        for query in others
    ]
    return own + moved, [judgment for judgment in judgments if judgment.qid in taken]


def sample(resources: Resources, count: int, seed: int) -> tuple[list[Query], list[Judgment]]:
    """All questions of the sample with something relevant, and those without an answer."""
    judgments = resources.store.judgments.read()
    relevant = {judgment.qid for judgment in judgments if judgment.grade > 0}
    queries = resources.store.queries.read()
    return [query for query in queries if query.qid in relevant or query.answerable is False], judgments


SETS: Mapping[
    str, tuple[str, Callable[[Resources, int, int], tuple[list[Query], list[Judgment]]], tuple[Path, ...], bool]
] = {
    "sample": ("Sample set", sample, (SAMPLE, SAMPLE / "no_answer"), False),
    "locomo": ("LoCoMo, five conversations", locomo, (DATA / "locomo",), True),
}


def gathered(
    name: str, presets: Sequence[str], work: Path, count: int, seed: int
) -> tuple[dict[str, Asked], dict[str, str]]:
    """Each preset on a data set, and why those that are absent are; what is gathered already is read."""
    _, questions, folders, only_project = SETS[name]
    work.mkdir(parents=True, exist_ok=True)
    found, absent = {}, {}
    with closing(open_resources(Settings(store=work / "store"))) as resources:
        if not resources.store.memories.count():
            for parsed in (part for folder in folders for part in formats.read_path(folder)):
                resources.store.add(parsed)
        resources.refresh()
        queries, judgments = questions(resources, count, seed)
        for each in presets:
            path, config = work / f"{each}.evidence", quiet(each)
            done = gather_query_set(
                path, queries, judgments, config, resources, query_set=name, only_project=only_project
            )
            print(f"{name} {each}: {done.gathered} gathered in {done.seconds:.0f} s", file=sys.stderr, flush=True)
            evidence = read_evidence_file(path)
            failed, _ = reranker(evidence, config)
            if not failed:
                found[each] = asked(LabelledBatch.of(evidence), config, only_project, seed)
                continue
            absent[each] = failed
            if config.threshold.mode == "adaptive":  # its rule is of the lists
                without = with_values(config, {"rerank.backend": "none"})
                found[f"{each} without its reranker"] = asked(LabelledBatch.of(evidence), without, only_project, seed)
    return found, absent


def asked(batch: LabelledBatch, config: PipelineConfig, by_project: bool, seed: int) -> Asked:
    """The questions in folds, with what each signal says of them."""
    groups = [str(query.project) if by_project else query.qid for query in batch.queries]
    own, config = config, switched_off(config)
    base = batch.rankings(config)
    signals = {name: values for name, values in batch.signals(config).items() if name in COLUMNS}
    first = base.graded.signal()
    return Asked(
        own,
        config,
        batch,
        base.graded.answerable(1),
        base.graded.without_answer(1),
        split(groups, 5, 0.0, seed).folds,
        {FIRST: np.where(np.isinf(first), np.nan, first), **signals},
        base,
    )


def rules(one: Asked) -> Iterator[Rule]:
    """Every rule, as documented and with thresholds to choose from."""
    yield at_thresholds("as configured", one, [one.preset.abstain.model_dump()], chosen=False, section="abstain.")
    filled = one.base.graded.filled
    left, answers = filled[:, :K].sum(axis=1) / K, filled.any(axis=1)
    for name, values in one.signals.items():
        if name == FIRST or not np.isfinite(values).any():
            continue
        limits = candidates(values, one.answerable)
        open_ = ~(values < limits[:, None])  # what has no value is let through, as the stage does
        yield Rule(f"{CONFIDENCE_FEATURES[name].title} at least t", left * open_, answers & open_)
    # It cuts the scores from before the reranker, which have a different scale.
    scores = np.geomspace(1e-4, max(1.0, float(np.nanmax(one.signals[FIRST]))), CUTS)
    yield at_thresholds("each score at least t (CEMS's rule)", one, [{"filter.min_score": float(t)} for t in scores])
    if one.config.threshold.mode == "adaptive":
        yield at_thresholds(
            "fixed 0.6, as documented", one, [{"threshold.mode": "fixed", "threshold.fixed": 0.6}], chosen=False
        )
        cosines = candidates(one.signals["vector"], one.answerable)
        yield at_thresholds("fixed t", one, [{"threshold.mode": "fixed", "threshold.fixed": float(t)} for t in cosines])
        adaptive = [
            {"threshold.adaptive.min": float(t), "threshold.adaptive.max": max(0.75, float(t))} for t in cosines
        ]
        yield at_thresholds("adaptive down to t", one, adaptive)
    if one.config.name.startswith("cems"):
        yield at_thresholds("each score at least 0.45, as documented", one, [{"filter.min_score": 0.45}], chosen=False)


def at_thresholds(
    name: str, one: Asked, changes: Sequence[Mapping[str, object]], chosen: bool = True, section: str = ""
) -> Rule:
    """A rule of other stages, replayed at each of its settings."""
    configs = [
        with_values(one.config, {f"{section}{key}": value for key, value in change.items()}) for change in changes
    ]
    filled = [one.batch.rankings(config).graded.filled for config in configs]
    left = np.stack([each[:, :K].sum(axis=1) / K for each in filled])
    return Rule(name, left, np.stack([each.any(axis=1) for each in filled]), chosen)


def candidates(values: Floats, answerable: Bools) -> Floats:
    """Thresholds worth trying, ascending: the values of answerable questions up to the fifth that would be refused."""
    known = np.unique(values[answerable & np.isfinite(values)])
    low = known[: max(2, len(known) // 5)]
    chosen: Floats = low[np.unique(np.linspace(0, len(low) - 1, min(TRIED, len(low))).astype(int))]
    return chosen


def measured(one: Asked, rule: Rule) -> tuple[Floats, Floats]:
    """(Q) what is left of the first K places, and whether the question is refused, each under the threshold of the other folds."""
    refused = ~rule.answers
    left, out = np.empty(len(one.answerable)), np.empty(len(one.answerable))
    for fold in one.folds:
        others = one.answerable.copy()
        others[fold] = False
        share = refused[:, others].mean(axis=1)
        within = np.flatnonzero(share <= REFUSED)
        # Where even the laxest refuses more, that one.
        t = int(within[-1]) if rule.chosen and len(within) else 0
        left[fold], out[fold] = rule.left[t, fold], refused[t, fold]
    return left, out


def best_signal(one: Asked, tried: Sequence[Rule]) -> tuple[Floats, Floats]:
    """As `measured`, under the signal of `abstain` that leaves the least noise in the other folds."""
    left, out = np.empty(len(one.answerable)), np.empty(len(one.answerable))
    found = [measured(one, rule) for rule in tried if rule.name.endswith("at least t")]
    for fold in one.folds:
        others = one.without.copy()
        others[fold] = False
        choice = int(np.argmin([values[others].mean() for values, _ in found]))
        left[fold], out[fold] = found[choice][0][fold], found[choice][1][fold]
    return left, out


OURS = ("vector", "reranker")
"""Signals of which both have to be below their thresholds, in the preset `workbench`."""
CAREFUL = 0.02
"""Share of answerable questions that this pair may refuse, in every group that it is chosen on."""
STEPS = 40


@dataclass(frozen=True, eq=False)
class Pair:
    """Thresholds of OURS, and of each group the shares that they refuse of its answerable questions and of the others."""

    thresholds: tuple[float, float]
    refused: Mapping[str, tuple[float, float]]


def pair(sets: Mapping[str, Asked], left_out: str = "") -> Pair:
    """The pair that refuses most questions without an answer while it refuses at most CAREFUL of the others in every group but one.

    A group is a conversation, and a fold of the sample. What refuses equally much is chosen the lowest.
    """
    groups: dict[str, tuple[Floats, Bools, Bools]] = {}
    for name, one in sets.items():
        values = np.stack([one.signals[signal] for signal in OURS])
        for i, fold in enumerate(one.folds):
            groups[f"{name} {i + 1}"] = values[:, fold], one.answerable[fold], one.without[fold]
    every = np.concatenate([values for values, _, _ in groups.values()], axis=1)
    axes = [np.unique(np.quantile(row[~np.isnan(row)], np.linspace(0, 0.6, STEPS)).round(2)) for row in every]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(OURS))
    shares = {}
    for name, (values, answerable, without) in groups.items():
        below: Bools = np.all(values[None] < grid[:, :, None], axis=1)
        shares[name] = np.mean(below[:, answerable], axis=1), np.mean(below[:, without], axis=1)
    others = [name for name in groups if not left_out or not name.startswith(left_out)]
    careful = np.all([shares[name][0] <= CAREFUL for name in others], axis=0)
    gained = np.where(careful, np.mean([shares[name][1] for name in others], axis=0), -1.0)
    chosen = int(gained.argmax())
    vector, scored = grid[chosen].tolist()
    return Pair((vector, scored), {name: (float(of[0][chosen]), float(of[1][chosen])) for name, of in shares.items()})


PAIR = """
## Both data sets, with both signals

`workbench` refuses where the best vector score and the best reranker score are both below a threshold. The thresholds refuse at most
2 % of the answerable questions in every group that they are chosen on, and as many as that allows of those without an answer. Each row
was chosen without its group, the last two without the whole data set.
"""


def both(sets: Mapping[str, Asked], seed: int) -> str:
    """What OURS refuses in each group when it was chosen without it, and the thresholds that are chosen on all."""
    rows = [["chosen without", *OURS, "refused, with an answer", "refused, without"]]
    parts = [f"{name} {i + 1}" for name, one in sets.items() for i in range(len(one.folds))]
    for left_out in (*parts, *sets):
        found = pair(sets, left_out)
        refused = [shares for name, shares in found.refused.items() if name.startswith(left_out)]
        wrong, right = np.mean(refused, axis=0).tolist()
        rows.append([left_out, *(f"{value:.2f}" for value in found.thresholds), f"{wrong:.3f}", f"{right:.3f}"])
    found = pair(sets)
    lines = [
        PAIR,
        table(rows),
        f"Chosen on all: {', '.join(f'{n} {t:.2f}' for n, t in zip(OURS, found.thresholds, strict=True))}.",
    ]
    ndcg = parse_measure("nDCG@10")
    for name, one in sets.items():
        changed = {"abstain.rule": "all", **{f"abstain.{n}": t for n, t in zip(OURS, found.thresholds, strict=True)}}
        after = one.batch.rankings(with_values(one.config, changed)).graded
        was, now = (share(ndcg.values(graded), one.answerable, seed) for graded in (one.base.graded, after))
        before, left = (
            share(graded.filled[:, :K].sum(axis=1) / K, one.without, seed) for graded in (one.base.graded, after)
        )
        lines.append(
            f"{SETS[name][0]}, on what they were chosen on: nDCG@10 {was} → {now}, noise@{K} {before} → {left}."
        )
    return "\n\n".join(lines)


def auroc(values: Floats, one: Asked, seed: int) -> str:
    """The area with its interval; a question that the signal has no value of stands below all."""
    signal = ConfidenceSignal(np.where(np.isnan(values), -np.inf, values), one.answerable, one.without)
    drawn_ = np.random.default_rng(seed).multinomial(len(values), np.full(len(values), 1 / len(values)), size=1000)
    whole = np.ones((1, len(values)))
    (mean,) = weighted_mean(signal, roc_values(signal, signal.value, whole), whole, signal.answerable)
    parts = [
        weighted_mean(signal, roc_values(signal, signal.value, some), some, signal.answerable)
        for some in blocks(drawn_.astype(float))
    ]
    low, high = interval(np.concatenate(parts))
    return f"{mean:.3f} [{low:.3f}, {high:.3f}]"


def share(values: Floats, of: Bools, seed: int) -> str:
    """Mean over some questions with its bootstrap interval."""
    low, high = bootstrap(values[of][:, None], seed)[:, 0]
    return f"{values[of].mean():.3f} [{low:.3f}, {high:.3f}]"


HEAD = """# Knowing when there is no answer

Generated by `python -m benchmarks.bench_abstain`; do not edit.

AUROC says how surely a signal is larger for a question that the store answers than for one that it does not: 0.5 is chance, 1 is always.
noise@5 is the share of the first five places that are filled where nothing answers, and *refused* the share of answerable questions
that get nothing. Each threshold t is the largest that refuses at most 5 % of the answerable questions of the other groups, so that no
figure here was chosen on the data it is measured on. In brackets: 95 % bootstrap intervals over questions. No judge is asked, so its signal
is not here.
"""


def table(rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first row is its head."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (rows[0], ["---"] * len(rows[0]), *rows[1:]))


def section(title: str, found: Mapping[str, Asked], absent: Mapping[str, str], seed: int) -> str:
    """What was measured on one data set."""
    some = next(iter(found.values()))
    about = f"{int(some.answerable.sum())} questions with an answer and {int(some.without.sum())} without, {len(some.folds)} groups."
    areas = [["preset", *COLUMNS.values()]]
    kept = [["preset", "rule", f"noise@{K}", "answered", "refused"]]
    for name, one in found.items():
        areas.append(
            [
                f"`{name}`",
                *(
                    auroc(one.signals[key], one, seed) if np.isfinite(one.signals[key]).any() else "–"
                    for key in COLUMNS
                ),
            ]
        )
        tried = list(rules(one))
        results = [(rule.name, measured(one, rule)) for rule in tried]
        results.append(("signal of `abstain` that was best elsewhere", best_signal(one, tried)))
        for words, (left, out) in results:
            kept.append(
                [
                    f"`{name}`",
                    words,
                    share(left, one.without, seed),
                    f"{(left[one.without] > 0).mean():.3f}",
                    share(out, one.answerable, seed),
                ]
            )
    left_out = "; ".join(f"`{name}`: {why}" for name, why in absent.items())
    return "\n\n".join(
        [
            f"\n## {title}",
            about + (f" Absent: {left_out}." if left_out else ""),
            "### AUROC",
            table(areas),
            f"### noise@{K} at 5 % refused",
            table(kept),
        ]
    )


def main() -> int:
    """Gather what is missing, measure, write the page; 0 also where there is no data."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--work", type=Path, default=Path(".workbench/abstain"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/RESULTS/abstaining.md"))
    parser.add_argument("--presets", default=",".join(preset_names()))
    parser.add_argument("--queries", type=int, default=120, help="questions of each kind drawn of LoCoMo")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    parts, ours = [], dict[str, Asked]()
    for name in options.sets.split(","):
        title, _, folders, _ = SETS[name]
        if not all(folder.exists() for folder in folders):
            print(f"skipped {name}: {folders[0]} is not there", file=sys.stderr)
            continue
        found, absent = gathered(name, options.presets.split(","), options.work / name, options.queries, options.seed)
        parts.append(section(title, found, absent, options.seed))
        if "workbench" in found:
            ours[name] = found["workbench"]
    if len(ours) > 1:
        parts.append(both(ours, options.seed))
    if parts:
        options.out.write_text(HEAD + "\n".join(parts) + "\n", encoding="utf-8")
        print(options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
