"""Evidence card: the store, evidence and figures that a tuned config comes from, written into its file.

It is a comment at the head of YAML, TOML, .env and Python, and a second file `NAME.card.json` for JSON, which has no comments.
`CardReference` is what is read from it again: store, content version, evidence hash and date.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from cems_workbench.errors import InputError, counted
from cems_workbench.platform.parsing import json_values, read_text


class Measured(BaseModel):
    """One metric of baseline and tuned config on the same queries, with the interval and p of their difference.
    `low`..`high` hold the mean difference with 95 % confidence; `p` is of the paired test; `split` says which
    queries."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    metric: str
    split: str
    queries: int
    baseline: float
    tuned: float
    low: float
    high: float
    p: float

    @property
    def line(self) -> str:
        """`nDCG@10 on hold-out (312 queries): 0.4012 → 0.4377, difference +0.0365 [+0.0121, +0.0604], p = 0.0034`."""
        return (
            f"{self.metric} on {self.split} ({self.queries} queries): {self.baseline:.4f} → {self.tuned:.4f}, "
            f"difference {self.tuned - self.baseline:+.4f} [{self.low:+.4f}, {self.high:+.4f}], p = {self.p:.4g}"
        )


class EvidenceCard(BaseModel):
    """Where a config's numbers come from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    baseline: str
    measured: tuple[Measured, ...]
    split: str
    looks: int
    """How often the sealed hold-out was scored, this time included."""
    trials: int
    seed: int
    corpus_hash: str
    evidence_hash: str
    versions: dict[str, str]
    date: str
    kept: bool = False
    """No trial was significantly better: the config is the baseline."""
    relevance: str = ""
    """The relevance grade and which queries count, in words."""
    lacking: tuple[str, ...] = ()
    """What was missing from the evidence, a line each; the figures are of the rest."""
    as_read: tuple[str, ...] = ()
    """The figures of the config as the target of this export ranks, compared with those here, a line each."""
    unlabelled: tuple[str, ...] = ()
    """For a config that was tuned without judgments: what it was tuned on, and its figures by judgments, a line each; else empty."""

    @property
    def text(self) -> str:
        looks = "never opened" if self.looks == 0 else f"opened {counted(self.looks, 'times')}"
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        how = "UNLABELLED, proposed beside" if self.unlabelled else "tuned against"
        what = f"{self.baseline} kept, none of" if self.kept else f"{how} {self.baseline} with"
        tried = f"{what} {self.trials} trials{' surely better' if self.kept else ''}, seed {self.seed}"
        lines = [
            f"Evidence card, {self.date}: {tried}",
            *(f"  unlabelled: {line}" for line in self.unlabelled),
            *(f"  {row.line}" for row in self.measured),
            *([f"  {self.relevance}"] if self.relevance else []),
            *(f"  not complete: {line}" for line in self.lacking),
            *(f"  {line}" for line in self.as_read),
            f"  split: {self.split}; hold-out {looks}",
            f"  corpus {self.corpus_hash}, evidence {self.evidence_hash}; {versions}",
        ]
        return "\n".join(lines)

    def to_json(self) -> str:
        """The card as JSON; `read_card` gives it back."""
        return self.model_dump_json(indent=2) + "\n"


def card_path(config: Path) -> Path:
    """Path of the card of a config file: `best.yaml` has `best.card.json`."""
    return config.with_name(f"{config.stem}.card.json")


def read_card(path: Path) -> EvidenceCard:
    """Read a card. Raises InputError naming file and field."""
    return parse_card(read_text(path, "evidence card"), str(path))


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
        """One line if this store, or its content, is not what the config was tuned on; else None."""
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


def cited_card(text: str) -> CardReference | None:
    """The reference in the comments of a config file; None if it has no card."""
    date, hashes = _DATE.search(text), _HASHES.search(text)
    if date is None or hashes is None:
        return None
    return CardReference(hashes[1], int(hashes[2]), hashes[3], date[1])


def parse_card(text: str, source: str) -> EvidenceCard:
    """A card from the text of its JSON file. Raises InputError naming the file."""
    try:
        return EvidenceCard.model_validate(json_values(text, source))
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise InputError(f"{source}: {field or 'the card'}: {first['msg'][:1].lower()}{first['msg'][1:]}") from None


def card_reference(card: EvidenceCard) -> CardReference:
    """What a card refers to."""
    store_id, _, version = card.corpus_hash.rpartition("/")
    return CardReference(store_id, int(version) if version.isdigit() else -1, card.evidence_hash, card.date)
