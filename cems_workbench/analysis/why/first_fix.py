"""The first fix: the one change to try, of those that bring the memory in, and what it does to the judged queries, in one sentence.

A change is chosen by its standing on the judged queries (`evaluation.verdict` of nDCG@10, with the usual tolerated loss):

    holds      pass
    unharmed   cannot tell, without a loss on average
    unknown    not measured: no evidence of judged queries or a change that needs a new search; or reranker scores are missing, and there
               is no loss on average without them
    doubtful   cannot tell or reranker scores are missing, with a loss on average
    harms      fail

The first three are no loss. Among them, the last sentence of a long query comes first, which touches no other query; then those that change
a parameter that the cause names (`causes`); then those that were measured; then those that need no new search; then those that put the
memory above what it supersedes; then the smallest: the fewest parameters and the least distance. Equally small ones are ordered by gain,
the rank of the memory and side effects. Doubtful ones come after, then those that fail, of each the least loss first. Other words in the
query come last: they help only a query that has them. So a change that fails is named only if all fail, and the sentence begins with that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from cems_workbench.analysis.vector_origins import StoredVector
from cems_workbench.analysis.why.counterfactual import GAIN_DIGITS, Counterfactual
from cems_workbench.evaluation.comparison import VALUE_TOLERANCE
from cems_workbench.evaluation.verdict import FAIL, PASS
from cems_workbench.pipeline.list_sources import ordinal

FixStanding = Literal["holds", "unharmed", "unknown", "doubtful", "harms"]
_LOSES: tuple[FixStanding, ...] = ("doubtful", "harms")

NOT_GATHERED = "not gathered yet"
"""Why a change was not checked although queries are judged; the page gathers them, and so does `gather all --judged`."""
NOT_JUDGED = "no query of the store is judged"
NO_STORE = "that needs the store"


@dataclass(frozen=True, slots=True)
class FirstFix:
    """The change to try first; None if nothing that was tried brings the memory in.

    `changes` were to choose from. `unchecked` says why none was measured on judged queries, empty if some were. `above` is the best ranked
    memory that this one supersedes and that is above it now, None without one; `instead` is the best of the changes that put it below,
    if the chosen one does not.
    """

    memory_id: str
    k: int
    change: Counterfactual | None
    changes: int = 0
    unchecked: str = ""
    above: str | None = None
    instead: Counterfactual | None = None
    inside: bool = False
    """Whether the memory is in the first k already, and only below what it supersedes."""
    vector: StoredVector | None = None
    """The vector which, re-embedded, brings the memory in; then there is no `change`."""

    @property
    def standing(self) -> FixStanding:
        """What is known of it on the judged queries; "unknown" without a change."""
        return "unknown" if self.change is None else standing_of(self.change)

    @property
    def sentence(self) -> str:
        """ "Fix: supersession.mode = follow. m312 becomes 1st; on 121 queries with a relevant memory: 50 better, … (pass)." """
        if self.vector is not None:
            return self.vector.fix
        if self.change is None:
            return f"No fix was found: nothing that was tried {self._aim('brings')}."
        guess = "perhaps becomes" if self.change.needs else "becomes"
        moved = f"{self.memory_id} {guess} {ordinal(self.change.rank or 0)}"
        if self.change.needs:
            moved += f" ({self.change.needs} scores of the reranker are missing)"
        return f"{self._head}: {self.change.assigned}. {moved}; {_others(self.change, self.unchecked)}.{self._stale}"

    @property
    def redacted(self) -> FirstFix:
        return replace(
            self,
            change=None if self.change is None else self.change.redacted,
            instead=None if self.instead is None else self.instead.redacted,
        )

    @property
    def _head(self) -> str:
        if self.standing == "harms":
            if self.changes == 1:
                return f"The only change that {self._aim('brings')} fails on the judged queries"
            return f"All {self.changes} changes that {self._aim('bring')} fail on the judged queries; the least loss"
        if self.standing == "doubtful":
            return f"No change that {self._aim('brings')} is known to spare the judged queries; the least loss"
        if self.change is not None and self.change.terms:
            return f"No setting that was tried {self._aim('brings')}; for this query only"
        return "Fix for this query only" if self.change is not None and self.change.searched else "Fix"

    def _aim(self, bring: str) -> str:
        if self.inside:
            return f"{bring.replace('bring', 'put')} {self.memory_id} above {self.above}, which it supersedes"
        return f"{bring} {self.memory_id} into the first {self.k}" if self.k > 1 else f"{bring} {self.memory_id} first"

    @property
    def _stale(self) -> str:
        """The clause about the superseded memory if it stays above."""
        change = self.change
        if change is None or change.stale_above is None:
            return ""
        if self.instead is None:
            return f" No change that was tried puts it above {change.stale_above}, which it supersedes."
        other = f"{self.instead.assigned} would put it above ({_short(self.instead)})"
        return f" {change.stale_above}, which it supersedes, stays above it; {other}."

    def to_json(self) -> dict[str, Any]:
        return {
            "sentence": self.sentence,
            "changes": None if self.change is None else self.change.values,
            "searched": self.change.searched or None if self.change is not None else None,
            "re_embed": None if self.vector is None else self.memory_id,
            "rank": self.vector.then if self.vector is not None else None if self.change is None else self.change.rank,
            "standing": self.standing,
            "unchecked": self.unchecked or None,
            "stale_above": None if self.change is None else self.change.stale_above,
        }


def standing_of(change: Counterfactual) -> FixStanding:
    """What is known of a change on the judged queries."""
    effect = change.labelled
    if effect is None or not effect.queries:
        return "unknown"
    loses = effect.gain < -VALUE_TOLERANCE
    if effect.unscored:
        return "doubtful" if loses else "unknown"
    if effect.verdict.kind == PASS:
        return "holds"
    if effect.verdict.kind == FAIL:
        return "harms"
    return "doubtful" if loses else "unharmed"


def first_fix(
    memory_id: str,
    k: int,
    counterfactuals: Sequence[Counterfactual],
    *,
    unchecked: str = "",
    above: str | None = None,
    inside: bool = False,
    vector: StoredVector | None = None,
) -> FirstFix:
    """The change to try first of `counterfactuals`; the other arguments are those of `FirstFix`. No change of the
    config comes before a vector that is mended: that vector is wrong for every query."""
    if vector is not None and vector.brings_in:
        return FirstFix(memory_id, k, None, len(counterfactuals), unchecked, above, None, inside, vector)
    ranked = sorted(counterfactuals, key=_preference)
    chosen = ranked[0] if ranked else None
    instead = None
    if chosen is not None and chosen.stale_above is not None:
        instead = next((one for one in ranked if one.stale_above is None), None)
    return FirstFix(memory_id, k, chosen, len(ranked), unchecked, above, instead, inside)


def _preference(change: Counterfactual) -> tuple[Any, ...]:
    standing = standing_of(change)
    effect = change.labelled if standing in _LOSES else None
    return (
        bool(change.terms),
        _LOSES.index(standing) if standing in _LOSES else -1,
        change.needs > 0,
        not change.searched,
        not change.of_cause,
        standing == "unknown",
        change.gathers,
        change.stale_above is not None,
        -round(effect.gain, GAIN_DIGITS) if effect is not None else 0.0,
        change.parts,
        change.distance,
        -round(change.labelled.gain, GAIN_DIGITS) if change.labelled is not None else 0.0,
        change.rank or 0,
        -round(change.side_effects.rbo, 2),
        change.words,
    )


def _others(change: Counterfactual, unchecked: str) -> str:
    """What it does to the judged queries, or why that is not known."""
    effect = change.labelled
    if change.searched and not change.changes:
        return "no other query is touched"
    if effect is None or not effect.queries:
        why = "each would need a new search" if change.gathers else unchecked
        return f"not checked on other queries{f': {why}' if why else ''}"
    queries = f"{'query' if effect.queries == 1 and not effect.scope else 'queries'} with a relevant memory"
    drawn = ", drawn at random" if effect.sampled else ""
    unscored = f", with reranker scores missing in {effect.unscored}" if effect.unscored else ""
    return f"on {effect.queries:,}{effect.scope} {queries}{drawn}: {effect.verdict.brief}{unscored}"


def _short(change: Counterfactual) -> str:
    return change.labelled.verdict.brief if change.labelled is not None else "not checked on other queries"
