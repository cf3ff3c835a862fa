"""What a config returns differently on two evidence files of the same queries."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cems_workbench.api.configs import load_config
from cems_workbench.api.evidence import LoadedEvidence, load_evidence
from cems_workbench.results import Result, Table

if TYPE_CHECKING:
    from cems_workbench.analysis.drift import Drift
    from cems_workbench.api.configs import ConfigLike


@dataclass(frozen=True, eq=False, repr=False)
class DriftReport(Result):
    """Which queries return something else on other evidence, and how much.

    Attributes:
        found: the drift, a record for each query.
        shown: queries that are listed; None: as many as the surface shows.
    """

    found: Drift
    shown: int | None = None

    @property
    def overlap(self) -> float:
        """The mean rank-biased overlap of the results: 1, nothing changed."""
        return self.found.overlap

    @property
    def title(self) -> str:
        """The config, and the drift in a sentence."""
        return f"{self.found.config}: {self.found.sentence}"

    @property
    def lines(self) -> tuple[str, ...]:
        """What is different between the two gathers."""
        return tuple(f"between them: {line}" for line in self.found.between)

    @property
    def tables(self) -> tuple[Table, ...]:
        """A row for each query, those that changed most first."""
        rows = (
            (
                one.qid,
                one.query,
                one.overlap,
                one.score_change,
                one.first_changed,
                ", ".join(one.came),
                ", ".join(one.left),
                ", ".join(one.new),
            )
            for one in self.found.queries
        )
        columns = ("qid", "query", "overlap", "score change", "other first", "came", "left", "new")
        return (Table(columns, tuple(rows), shown=self.shown),)

    @property
    def notes(self) -> tuple[str, ...]:
        """How to read it, and which queries were not compared."""
        sides = (("before", self.found.only_before), ("after", self.found.only_after))
        return (
            "overlap: rank-biased, 1 the same; new: came and was no candidate before; no judgment is asked",
            *(f"only {words}, not compared: {', '.join(qids)}" for words, qids in sides if qids),
        )

    def to_json(self) -> dict[str, Any]:
        """The drift as plain values, as `drift --json` prints it."""
        return self.found.to_json()


def drift(
    before: LoadedEvidence | str | Path,
    after: LoadedEvidence | str | Path,
    config: ConfigLike | None = None,
    *,
    k: int = 10,
) -> DriftReport:
    """What a config returns differently on two evidence files, as the command `drift` does; no store, no model, no judgment.

    Args:
        before: what `gather` or `load_evidence` gave, or the path of an evidence file.
        after: that of the same queries, gathered later, from another snapshot of the store, or with another embedder.
        config: a config, the name of a preset, or the path of a config file; None is the config that `before` was gathered with.
        k: how many results of each query are compared.

    Raises:
        InputError: a file cannot be read, or they have no query in common.
    """
    from cems_workbench.analysis.drift import drift as drifted

    old, new = (
        evidence if isinstance(evidence, LoadedEvidence) else load_evidence(evidence) for evidence in (before, after)
    )
    chosen = old.config if config is None else load_config(config)
    return DriftReport(drifted(old.evidence, new.evidence, chosen, k))
