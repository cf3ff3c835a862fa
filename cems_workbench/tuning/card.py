"""Evidence card of a tuned config: the evidence and queries it was tuned and measured on, the looks at the hold-out, and versions."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from cems_workbench import __version__
from cems_workbench.config import EvidenceCard, Measured
from cems_workbench.evaluation.evidence_file import Header
from cems_workbench.tuning.holdout import Gain
from cems_workbench.tuning.tune import Tuned
from cems_workbench.tuning.unlabelled import AGAINST_RERANKER

PACKAGES = ("numpy", "optuna")


def corpus_hash(store_id: str, content_version: int) -> str:
    """Identifier on a card of the memories that a config was measured on."""
    return f"{store_id}/{content_version}"


def evidence_card(
    tuned: Tuned,
    header: Header,
    content_hash: str,
    grouping: str,
    date: str,
    relevance: str = "",
    lacking: Sequence[str] = (),
    *,
    unlabelled: Sequence[str] = (),
    by_judgments: Sequence[tuple[str, Gain]] = (),
) -> EvidenceCard:
    """The card of a proposal, from the header of the evidence and the hash of evidence and judgments.

    `date` is an ISO date, `grouping` what was never split, `relevance` describes grade and denominator, `lacking` what the evidence does
    not hold. `unlabelled` are the lines for a config that was tuned without judgments, `by_judgments` its gains by judgments.
    """
    objective = str(tuned.plan.goal.objectives[0])
    measure = objective + (AGAINST_RERANKER if unlabelled else "")
    measured = []
    if tuned.validation is not None:
        measured.append(_measured(measure, "cross-validation", tuned.validation))
    if tuned.holdout is not None:
        measured.append(_measured(measure, "hold-out", tuned.holdout))
    measured += [_measured(objective, where, gained) for where, gained in by_judgments]
    split = tuned.plan.split
    return EvidenceCard(
        baseline=tuned.plan.space.baseline.name,
        measured=tuple(measured),
        split=f"{len(split.folds)} folds of {len(split.open)} queries by {grouping}, {len(split.holdout)} held out",
        looks=tuned.looks,
        trials=len(tuned.search.trials) - 1,
        seed=tuned.plan.seed,
        corpus_hash=corpus_hash(header.store_id, header.content_version),
        evidence_hash=content_hash[:16],
        versions={"cems-workbench": __version__, "python": platform.python_version(), **_versions()},
        date=date,
        kept=tuned.kept,
        relevance=relevance,
        lacking=tuple(lacking),
        unlabelled=tuple(unlabelled),
    )


def _measured(measure: str, where: str, measured: Gain) -> Measured:
    return Measured(
        metric=measure,
        split=where,
        queries=measured.queries,
        baseline=measured.baseline,
        tuned=measured.tuned,
        low=measured.low,
        high=measured.high,
        p=measured.p,
    )


def _versions() -> dict[str, str]:
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions
