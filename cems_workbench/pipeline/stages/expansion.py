"""expansion: the variants that were searched in addition to the query as typed.

Variants are made and searched by gathering (see `pipeline/understanding.py`); here one can only be switched off, which leaves its lists
out of the lists stage. The stage reports that, and the result of the strong-signal probe.

Source: CEMS retrieval guide (query synthesis, strong signal); docs/internals/specification.md, "expansion".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cems_workbench.pipeline.stages.query import no_candidates
from cems_workbench.pipeline.stages.result import StageArrays, StageFields, StageRow
from cems_workbench.pipeline.stages.stage import Stage, StageInput, Switch


@dataclass(frozen=True, slots=True)
class StrongSignal:
    """Result of the strong-signal probe: the scores of the first two lexical hits, raw and scaled, and how far they are from firing."""

    enabled: bool
    scale: str
    raw_top: float
    raw_second: float
    top: float
    second: float
    threshold: float
    gap: float
    fires: bool
    short_of_threshold: float
    short_of_gap: float

    @classmethod
    def read(cls, noted: object) -> StrongSignal | None:
        """The probe from a note of gathering; None if the note is no such record, as in evidence from elsewhere."""
        if not isinstance(noted, Mapping):
            return None
        values: dict[str, Any] = {name: noted.get(name) for name in cls.__slots__}
        fits = all(isinstance(value, NO_NUMBERS.get(name, (int, float))) for name, value in values.items())
        return cls(**values) if fits else None


NO_NUMBERS = {"enabled": bool, "scale": str, "fires": bool}
"""Fields of a strong signal that are something else than a number."""


@dataclass(frozen=True, slots=True)
class ExpansionFields(StageFields):
    """The variants that are switched off, ascending, and what gathering noted of the expansion."""

    switched_off: tuple[int, ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def probe(self) -> StrongSignal | None:
        """Result of the strong-signal probe; None without one."""
        return StrongSignal.read(self.notes.get("probe"))

    def to_json(self) -> dict[str, Any]:
        """The fields and the notes, as plain values."""
        return {"switched_off": list(self.switched_off), **self.notes}


def report_expansion(given: StageInput) -> StageArrays[StageRow, ExpansionFields]:
    """Report the gathered variants; candidates are unchanged."""
    nobody = no_candidates(given.table)
    off = tuple(sorted(given.variants_off))
    return StageArrays(
        entered=nobody.alive,
        before=nobody,
        after=nobody,
        fields=lambda q: ExpansionFields(off, given.table.notes[q].get("expansion", {})),
        passed=True,
    )


EXPANSION = Stage(
    name="expansion",
    title="Expansion",
    description="Query variants that were searched, and the strong-signal probe.",
    works_on="query",
    reads=("expansion",),
    apply=report_expansion,
    when_off=report_expansion,
    row=StageRow,
    fields=ExpansionFields,
    switch=Switch("expansion", {"expansion.backend": "none", "expansion.hyde": False, "expansion.decompose": False}),
)
