"""Keeping a config in the history of a store and taking it back, with a warning where its evidence is of something else.

The card of a config names the corpus as `store/version`: another store is another corpus, and another version of the same store has
had memories added, changed or deleted since. What was measured there need not hold here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from cems_workbench.config import EvidenceCard, PipelineConfig, dump_config, parse_config
from cems_workbench.config.salvage import salvaged
from cems_workbench.errors import InputError

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
    return store.history.add(config.name, dump_config(config), author=author, why=why, base=base, card=values)


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
    if card is None:
        return None
    store_id, separator, version = card.corpus_hash.rpartition("/")
    present = store.content_version
    if card.corpus_hash == corpus_hash(store.identity, present):
        return None
    if not separator or store_id != store.identity:
        return (
            f"its evidence is of another corpus ({card.corpus_hash}, this store is {store.identity}): "
            "what it gains here is not known until it is measured here"
        )
    return (
        f"its evidence is of this store at content version {version}, now at {present}: memories have changed since, "
        "measure it again"
    )


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
