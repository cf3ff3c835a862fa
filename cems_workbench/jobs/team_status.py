"""Team status: labels of the team that a store cannot show, and labels of the store that the team lacks."""

from __future__ import annotations

from cems_workbench.store import Store

PUSH = "python -m cems_workbench team push"


def team_status(store: Store) -> list[str]:
    """Status lines for the user; none if all is well, or without a team. Raises StoreError."""
    if not store.team.place:
        return []
    lines, strangers, behind = [], store.judgments.strangers(), store.not_pushed()
    if strangers.judgments:
        lines.append(
            f"{strangers.judgments:,} of the team's judgments {'is' if strangers.judgments == 1 else 'are'} of {strangers.memories:,} "
            f"{'memory' if strangers.memories == 1 else 'memories'} that this store does not have: kept, and not shown here"
        )
    if behind:
        lines.append(
            f"{behind:,} {'query' if behind == 1 else 'queries'} of this store's own database, with labels and sets, "
            f"{'is' if behind == 1 else 'are'} not in the team's: {PUSH} copies them"
        )
    return lines
