"""The evidence card of a tuned config.

Keeping a config in the history of a store and taking it back, with a warning where its evidence is of something else.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from cems_workbench import __version__
from cems_workbench.config import EvidenceCard, Measured, PipelineConfig, dump_config, parse_config
from cems_workbench.config.evidence_card import reference
from cems_workbench.config.forms.reading import salvaged
from cems_workbench.errors import InputError
from cems_workbench.evaluation.evidence_file import EvidenceSet
from cems_workbench.tuning.holdout import Gain
from cems_workbench.tuning.tune import Tuned

if TYPE_CHECKING:
    from cems_workbench.store import ConfigRecord, Store


@dataclass(frozen=True, slots=True)
class Restored:
    """A config of the history as this version reads it, its card if it has one, and what to know before using it."""

    config: PipelineConfig
    card: EvidenceCard | None
    warnings: tuple[str, ...]


def corpus_hash(store_id: str, content_version: int) -> str:
    """How a card names the memories that a config was measured on."""
    return f"{store_id}/{content_version}"


def keep(
    store: Store, config: PipelineConfig, *, author: str, why: str = "", base: str | None = None,
    card: EvidenceCard | None = None,
) -> ConfigRecord:  # fmt: skip
    """Add a config to the history, under its own name. Raises InputError for a name, author or reason that cannot be one."""
    values = None if card is None else card.model_dump(mode="json")
    return store.configs.add(config.name, dump_config(config), author=author, why=why, base=base, card=values)


def restored(record: ConfigRecord, store: Store) -> Restored:
    """Read a kept config. What another version of the workbench wrote is read as far as it goes; the rest is named."""
    config, warnings = _config(record)
    card = None
    if record.card is not None:
        try:
            card = EvidenceCard.model_validate(record.card)
        except ValidationError as error:
            field = ".".join(str(part) for part in error.errors()[0]["loc"])
            warnings.append(f"its evidence card cannot be read by this version ({field or 'not a card'})")
    warning = evidence_warning(card, store)
    return Restored(config, card, tuple([*warnings, warning] if warning else warnings))


def evidence_warning(card: EvidenceCard | None, store: Store) -> str | None:
    """One line where the evidence of a config is not of this store as it is; None where it is, or where there is no card."""
    return None if card is None else reference(card).mismatch(store.identity, store.content_version)


def _config(record: ConfigRecord) -> tuple[PipelineConfig, list[str]]:
    import yaml

    try:
        return parse_config(record.config_yaml, f"config {record.id}").model_copy(update={"name": record.name}), []
    except InputError as refused:
        try:
            values: Any = yaml.safe_load(record.config_yaml)
        except (yaml.YAMLError, RecursionError):
            raise refused from None
        if not isinstance(values, Mapping):
            raise
        config, left_out = salvaged({str(key): value for key, value in values.items()})
        words = f"not known, or not allowed, in this version and left out: {', '.join(left_out)}"
        return config.model_copy(update={"name": record.name}), [words]


PACKAGES = ("numpy", "optuna")


def evidence_card(tuned: Tuned, evidence: EvidenceSet, grouping: str, date: str) -> EvidenceCard:
    """What the config was tuned and measured on. `date` is an ISO date, `grouping` what was never split."""
    measure = str(tuned.plan.goal.objectives[0])
    measured = []
    if tuned.validation is not None:
        measured.append(_measured(measure, "cross-validation", tuned.validation))
    if tuned.holdout is not None:
        measured.append(_measured(measure, "hold-out", tuned.holdout))
    split = tuned.plan.split
    header = evidence.header
    return EvidenceCard(
        baseline=tuned.plan.space.baseline.name,
        measured=tuple(measured),
        split=f"{len(split.folds)} folds of {len(split.open)} queries by {grouping}, {len(split.holdout)} held out",
        looks=tuned.looks,
        trials=len(tuned.search.trials) - 1,
        seed=tuned.plan.seed,
        corpus_hash=corpus_hash(header.store_id, header.content_version),
        evidence_hash=evidence.content_hash[:16],
        versions={"cems-workbench": __version__, "python": platform.python_version(), **_versions()},
        date=date,
    )


def _measured(measure: str, where: str, measured: Gain) -> Measured:
    return Measured(
        metric=measure, split=where, queries=measured.queries, baseline=measured.baseline, tuned=measured.tuned,
        low=measured.low, high=measured.high, p=measured.p,
    )  # fmt: skip


def _versions() -> dict[str, str]:
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions
