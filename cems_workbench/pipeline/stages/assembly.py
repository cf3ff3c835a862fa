"""assembly: the results, at most `limit` of them and within `max_tokens`.

`greedy` takes by score, skips what does not fit and tries the next. `mmr` selects by

    MMR = lambda * score - (1 - lambda) * max Jaccard similarity to the selected        ties by score, then id

first over the best memory of each session (phase 1; a memory without a session is its own), then over the rest (phase
2); results stand in the order of selection. `auto` is mmr for aggregation queries. Tokens are `chars4`.

Source: CEMS retrieval guide, token-budgeted and diverse assembly; docs/specification.md, "assembly".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

import numpy as np

from cems_workbench.config.sections.adjusting import AssemblyConfig
from cems_workbench.pipeline.stages.query import aggregations
from cems_workbench.pipeline.stages.result import RowContract, StageArrays, StageFields, StageRow, StageTrace
from cems_workbench.pipeline.stages.stage import Stage, StageInput, Switch, ordinal
from cems_workbench.pipeline.table import Bools, CandidateTable, Ints, Ranking, along, chosen_in_order


@dataclass(frozen=True, slots=True)
class AssemblyRow(StageRow):
    """Its tokens, its value when mmr looked at it last (None under greedy), and whether it did not fit the token budget."""

    tokens: int
    mmr: float | None
    skipped_for_budget: bool


@dataclass(frozen=True, slots=True)
class AssemblyFields(StageFields):
    """How the results were chosen, the tokens they take, and the ids of those that did not fit, sorted."""

    strategy: Literal["greedy", "mmr"] = "greedy"
    tokens_used: int = 0
    skipped_for_budget: tuple[str, ...] = ()


@dataclass
class Selection:
    """The context being filled."""

    limit: float
    max_tokens: float
    chosen: list[int] = field(default_factory=list)
    skipped: list[int] = field(default_factory=list)
    mmr: dict[int, float] = field(default_factory=dict)
    tokens: int = 0

    @property
    def full(self) -> bool:
        """As many results as allowed."""
        return len(self.chosen) >= self.limit

    def take(self, c: int, tokens: int) -> bool:
        """Add a candidate if it fits; otherwise note that it was skipped for the budget."""
        if self.tokens + tokens > self.max_tokens:
            self.skipped.append(c)
            return False
        self.chosen.append(c)
        self.tokens += tokens
        return True


def apply_assembly(
    table: CandidateTable, before: Ranking, config: AssemblyConfig, aggregation: Bools
) -> StageArrays[AssemblyRow, AssemblyFields]:
    """Select the results. `aggregation` (Q) says whether a query asks for an aggregation, for which `auto` takes mmr."""
    by_mmr = aggregation if config.strategy == "auto" else np.full(len(aggregation), config.strategy == "mmr")

    @cache
    def selection(q: int) -> Selection:
        return (_mmr if by_mmr[q] else _greedy)(table, before, config, q)

    chosen = _first_that_fit(table, before, config, ~by_mmr, selection)
    queries, places = np.nonzero(chosen >= 0)
    alive = np.zeros(table.shape, dtype=bool)
    alive[queries, chosen[queries, places]] = True

    def reason(q: int, c: int) -> str:
        if c in selection(q).skipped:
            return f"{table.tokens[q, c]} tokens do not fit the budget of {config.max_tokens}"
        return f"past the result limit of {config.limit}"

    def row(q: int) -> Callable[[int, RowContract], AssemblyRow]:
        tokens, mmr, skipped = table.tokens[q].tolist(), selection(q).mmr, frozenset(selection(q).skipped)
        return lambda c, contract: AssemblyRow(*contract, tokens[c], mmr.get(c), c in skipped)

    def fields(q: int) -> AssemblyFields:
        skipped = tuple(sorted(table.ids[q][c] for c in selection(q).skipped))
        return AssemblyFields("mmr" if by_mmr[q] else "greedy", selection(q).tokens, skipped)

    def warnings(q: int) -> list[str]:
        if before.alive[q].any() and not selection(q).chosen:
            return [f"nothing fits the budget of {config.max_tokens} tokens"]
        return []

    return StageArrays(
        entered=before.alive,
        before=before,
        after=chosen_in_order(alive, before.score, chosen),
        row=row,
        fields=fields,
        reason=reason,
        warnings=warnings,
    )


def _first_that_fit(
    table: CandidateTable,
    before: Ranking,
    config: AssemblyConfig,
    greedy: Bools,
    selection: Callable[[int], Selection],
) -> Ints:
    """(Q, n) the chosen candidates of every query in order, -1 where there are fewer.

    Where the first `limit` fit the budget together, greedy chooses them; only the other queries are filled one by one.
    """
    lead = before.leading(table.shape[1] if config.limit is None else config.limit)
    if greedy.all() and config.max_tokens is None:
        return lead
    tokens = np.where(lead >= 0, along(table.tokens, np.maximum(lead, 0)), 0).sum(axis=1)
    fits = greedy & (tokens <= (np.inf if config.max_tokens is None else config.max_tokens))
    chosen = lead.copy()
    for q in np.flatnonzero(~fits).tolist():
        picked = selection(q).chosen
        chosen[q] = -1
        chosen[q, : len(picked)] = picked
    return chosen


def _empty(config: AssemblyConfig) -> Selection:
    return Selection(
        np.inf if config.limit is None else config.limit, np.inf if config.max_tokens is None else config.max_tokens
    )


def _greedy(table: CandidateTable, before: Ranking, config: AssemblyConfig, q: int) -> Selection:
    selection = _empty(config)
    tokens = table.tokens[q].tolist()
    for c in before.order(q).tolist():
        if selection.full:
            break
        selection.take(c, tokens[c])
    return selection


def _mmr(table: CandidateTable, before: Ranking, config: AssemblyConfig, q: int) -> Selection:
    selection = _empty(config)
    order = before.order(q)
    _, first = np.unique(table.session[q, order], return_index=True)
    best_of_session = np.sort(order[first])
    rest = np.setdiff1d(order, best_of_session)
    closest = np.zeros(table.shape[1])
    for phase in (best_of_session, rest):
        _select(table, before, config, q, phase, selection, closest)
    return selection


def _select(
    table: CandidateTable, before: Ranking, config: AssemblyConfig, q: int, phase: Ints, selection: Selection,
    closest: np.ndarray,
) -> None:  # fmt: skip
    """Move candidates of one phase into the selection. `closest` (C) is the largest similarity to the selected."""
    remaining = phase  # ascending index = ascending id, which settles the last tie
    score = before.score[q]
    while len(remaining) and not selection.full:
        value = config.mmr_lambda * score[remaining] - (1 - config.mmr_lambda) * closest[remaining]
        at = int(np.lexsort((remaining, -score[remaining], -value))[0])
        c = int(remaining[at])
        selection.mmr[c] = float(value[at])
        remaining = np.delete(remaining, at)
        if selection.take(c, int(table.tokens[q, c])):
            np.maximum(closest, table.overlaps(q, c), out=closest)


def _apply(given: StageInput) -> StageArrays[AssemblyRow, AssemblyFields]:
    aggregation = aggregations(given.table, given.config.query.detectors)
    return apply_assembly(given.table, given.ranking, given.config.assembly, aggregation)


def _words(row: AssemblyRow, stage: StageTrace[AssemblyRow, AssemblyFields]) -> str:
    return f"{stage.fields.strategy}, {ordinal(row.rank_out or 0)} of the results"


ASSEMBLY = Stage(
    name="assembly",
    title="Assembly",
    description="The results, within the limit and the token budget.",
    works_on="ranking",
    apply=_apply,
    row=AssemblyRow,
    fields=AssemblyFields,
    parts=(
        Switch("token budget", {"assembly.max_tokens": None}),
        Switch(
            "MMR",
            {"assembly.strategy": "greedy"},
            title="diversity (mmr)",
            idle=lambda fields: fields.strategy != "mmr",
        ),
    ),
    words=_words,
    detail=lambda row, config: f"{row.tokens} tokens",
)
