"""Config history: saving a config in a store, and restoring one, with a warning if its evidence is of another store or state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from cems_workbench.config import EvidenceCard, PipelineConfig, dump_config, parse_config
from cems_workbench.config.evidence_card import card_reference
from cems_workbench.config.forms.files import salvaged
from cems_workbench.errors import InputError
from cems_workbench.jobs.catalogue import named
from cems_workbench.platform.parsing import yaml_values

if TYPE_CHECKING:
    from cems_workbench.store import ConfigRecord, Store


@dataclass(frozen=True, slots=True)
class RestoredConfig:
    """A restored config, its card if it has one, and warnings."""

    config: PipelineConfig
    card: EvidenceCard | None
    warnings: tuple[str, ...]


def keep_config(
    store: Store,
    config: PipelineConfig,
    *,
    author: str,
    why: str = "",
    base: str | None = None,
    card: EvidenceCard | None = None,
) -> ConfigRecord:
    """Add a config to the history, under its own name. Raises InputError for an invalid name, author or reason."""
    values = None if card is None else card.model_dump(mode="json")
    return store.configs.add(config.name, dump_config(config), author=author, why=why, base=base, card=values)


def restored_config(record: ConfigRecord, store: Store) -> RestoredConfig:
    """Restore a saved config. Parameters of another version of the workbench that cannot be read become warnings."""
    config, warnings = _config(record)
    card, unreadable = kept_card(record)
    if warnings and card is not None:
        warnings.append("its evidence card is of the whole config: what is here is not what was measured")
    warnings += [warning for warning in (unreadable, evidence_warning(card, store)) if warning]
    return RestoredConfig(config, card, tuple(warnings))


def kept_card(record: ConfigRecord) -> tuple[EvidenceCard | None, str | None]:
    """The evidence card of a saved config, None without one, and a warning if this version cannot read it."""
    if record.card is None:
        return None, None
    try:
        return EvidenceCard.model_validate(record.card), None
    except ValidationError as error:
        field = ".".join(str(part) for part in error.errors()[0]["loc"])
        return None, f"its evidence card cannot be read by this version ({field or 'not a card'})"


def evidence_warning(card: EvidenceCard | None, store: Store) -> str | None:
    """A warning if the evidence of a config is not of this store in its present state; None otherwise, and without a card."""
    return None if card is None else card_reference(card).mismatch(store.identity, store.content_version)


def _config(record: ConfigRecord) -> tuple[PipelineConfig, list[str]]:
    try:
        return named(record.name, parse_config(record.config_yaml, f"config {record.id}")), []
    except InputError as refused:
        try:
            values: Any = yaml_values(record.config_yaml, f"config {record.id}")
        except InputError:
            raise refused from None
        if not isinstance(values, Mapping):
            raise
        config, left_out = salvaged({str(key): value for key, value in values.items()})
        words = f"not known, or not allowed, in this version and left out: {', '.join(left_out)}"
        return named(record.name, config), [words]
