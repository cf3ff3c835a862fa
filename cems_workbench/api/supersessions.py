"""Which memories may supersede earlier ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cems_workbench.results import Result, Table

if TYPE_CHECKING:
    from cems_workbench.analysis.proposed_edges import Proposals
    from cems_workbench.api.open_store import OpenStore


@dataclass(frozen=True, eq=False, repr=False)
class SupersessionReport(Result):
    """Proposed `supersedes` edges, best first.

    Attributes:
        found: the proposals, with spans and texts.
    """

    found: Proposals

    @property
    def title(self) -> str:
        """The outcome in a sentence."""
        return self.found.sentence

    @property
    def tables(self) -> tuple[Table, ...]:
        """A row for each proposal."""
        rows = tuple((edge.newer, edge.older, edge.score, edge.why) for edge in self.found.edges)
        return (Table(("newer", "older", "score", "why"), rows),)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out."""
        return self.found.notes

    def to_json(self) -> dict[str, Any]:
        """The proposals as plain values, as `supersessions --json` prints them."""
        return self.found.to_json()


def supersessions(
    store: OpenStore, *, most: int = 200, minimum: float | None = None, contradiction_model: str | None = None
) -> SupersessionReport:
    """Propose which memories supersede earlier ones, as the command `supersessions` does; nothing is stored.

    Args:
        store: an open store. `store.resources.store.supersessions.decide(newer, older, "accepted", author)` accepts a proposal.
        most: the number of proposals at most.
        minimum: the score, 0 to 1, from which a pair is proposed; None is 0.1.
        contradiction_model: a natural language inference cross-encoder that reads the best pairs, a folder or model id.

    Raises:
        InputError: there are no two memories with a date and an embedding, or an argument is out of range.
        ModelError: the model cannot be loaded.
    """
    from cems_workbench.analysis.proposed_edges import MINIMUM, proposed_edges
    from cems_workbench.models.cross_encoder import ContradictionScorer

    model = ContradictionScorer(contradiction_model) if contradiction_model else None
    return SupersessionReport(
        proposed_edges(store.resources, most=most, minimum=MINIMUM if minimum is None else minimum, model=model)
    )
