"""What a config file says of the evidence it was tuned on: store, content version, evidence hash, date.

Read from the evidence card in the comments of YAML, TOML, .env and Python, or from the card's own JSON file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pydantic import ValidationError

from cems_workbench.config.evidence_card import EvidenceCard
from cems_workbench.errors import InputError

_DATE = re.compile(r"^# *Evidence card, (\d{4}-\d{2}-\d{2}):", re.MULTILINE)
_HASHES = re.compile(r"^# *corpus (\S{1,120})/(\d{1,18}), evidence ([0-9a-f]{8,64});", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class CardReference:
    """The store and its content version, and the evidence, that a config was tuned on."""

    store_id: str
    content_version: int
    evidence_hash: str
    date: str

    def mismatch(self, store_id: str, content_version: int) -> str | None:
        """One line where the store at hand is not what the config was tuned on; None where it is."""
        if store_id != self.store_id:
            return (
                f"Its evidence card of {self.date} is from another store ({self.store_id[:12]}): what it was measured to gain "
                "says nothing of this one. Tune again, or evaluate it here."
            )
        if content_version != self.content_version:
            return (
                f"The store has changed since its evidence card of {self.date} (content version {self.content_version}, now "
                f"{content_version}): what it was measured to gain may no longer hold. Evaluate it again."
            )
        return None


def cited(text: str) -> CardReference | None:
    """The reference in the comments of a config file; None where there is no card."""
    date, hashes = _DATE.search(text), _HASHES.search(text)
    if date is None or hashes is None:
        return None
    return CardReference(hashes[1], int(hashes[2]), hashes[3], date[1])


def parse_card(text: str, source: str) -> EvidenceCard:
    """A card from the text of its JSON file. Raises InputError naming the file."""
    try:
        return EvidenceCard.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise InputError(f"{source}: {field or 'the card'}: {first['msg'][:1].lower()}{first['msg'][1:]}") from None


def reference(card: EvidenceCard) -> CardReference:
    """What a card refers to."""
    store_id, _, version = card.corpus_hash.rpartition("/")
    return CardReference(store_id, int(version) if version.isdigit() else -1, card.evidence_hash, card.date)
