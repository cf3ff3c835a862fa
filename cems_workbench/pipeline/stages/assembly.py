"""assembly: the results, at most `limit` of them and within `max_tokens`.

`greedy` takes by score, skips what does not fit and tries the next. `mmr` selects by

    MMR = lambda * score - (1 - lambda) * max Jaccard similarity to the selected        ties by score, then id

first over the best memory of each session (phase 1; a memory without a session is its own), then over the rest (phase
2); results are in the order of selection. `auto` is mmr for aggregation queries.

The procedure `cems` is what CEMS runs: memories are grouped by source reference, scores are min-maxed over all that came here, the groups
take turns by their best score (then its tokens), each adding its memory of highest MMR that fits; then the rest by MMR; results
are sorted by score. Words are runs of [a-z0-9] between word boundaries, ties fall to the better ranked.

The procedure `plain` has one phase over all candidates, in which words are runs of [A-Za-z0-9_] in lower case and ties fall to the better
ranked (engram's memory_search).

The procedure `one_pass` selects nothing: it takes the largest similarity to any other candidate, 0 at least, instead of that to the
selected, and sorts once, ties to the better ranked; the results are the first that fit (Graphiti).

`mmr_similarity: cosine` takes the embeddings' cosine for the Jaccard similarity, `mmr_relevance: vector` the score in the vector list for
the score, and with `mmr_min_value` candidates of a lower value are left out.

With `supersession.mode: demote` a memory that mmr chooses before all its successors moves right below the best of those that it chooses
too, so that what that stage did stays. If it chooses none of them, the trace warns of it.

With `min_score` a candidate with a lower score is looked at in its turn, so that those after it differ from it too, and is no result. If
places are free at the end, `fill_from` fills them with candidates below that floor in the order in which they were looked at: all that the
named lists have where no candidate reached the floor, otherwise those that no other list has (OpenClaw). `mmr_relevance: minmax` takes
(score - least) / (largest - least) over all candidates for the score, and `mmr_characters` compares the first characters of the texts.

Where the chunks of a memory are separate candidates (`lists.units: chunks`), each takes a place within the limit; the memory is a
result once, in the place and with the score of the first of them, and costs its whole content once, whichever chunk is chosen first; with
`text: version` it costs each chosen chunk, as the program returns them all (OpenClaw).

With `min_vector_score`, results with a lower score in the vector list are dropped after all this, and nobody moves up (engram's
recollection: a cosine of 0.25 among the first three). The score is the best in the vector lists that take part, within their depth and
before any threshold, on `lists.vector.scale`; without one it is that of a cosine of 0.

Tokens are `chars4`, ceil(characters / 4), or `cl100k`, counted when the evidence was gathered; of the whole content, or with
`text: version` of the text by which a memory scored best in a list.

Source: CEMS retrieval guide, token-budgeted and diverse assembly; OpenClaw 2026.9.6 of npm; docs/internals/specification.md, "assembly".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Literal

import numpy as np

from cems_workbench.config import list_depths
from cems_workbench.config.model import depth_paths
from cems_workbench.config.sections import AssemblyConfig
from cems_workbench.pipeline.evidence import PIECES
from cems_workbench.pipeline.list_sources import SOURCES, VECTOR_SCALES, ordinal, own_scale
from cems_workbench.pipeline.stages.fusion import best_version, by_relations
from cems_workbench.pipeline.stages.query import aggregations
from cems_workbench.pipeline.stages.result import (
    PartColumn,
    StageArrays,
    StageFields,
    StageRow,
    StageTrace,
    field_names,
    plain_fields,
    rows_of,
)
from cems_workbench.pipeline.stages.stage import Stage, StageInput, Switch
from cems_workbench.pipeline.table import (
    Bools,
    CandidateTable,
    Floats,
    Ints,
    Ranking,
    SuccessionTable,
    along,
    chars4,
    chosen_in_order,
    memoized,
    tokens_by_script,
    word_overlaps,
)
from cems_workbench.records import source_reference

WORD = re.compile(r"\b[a-z0-9]+\b")
PLAIN_WORD = re.compile(r"\w+", re.ASCII)
VECTOR = SOURCES.index("vector")
MUCH_MORE = 1.5
"""Times the tokens by chars4 from which on a warning says so: German has 1.0 times, Russian 1.6 times, Chinese 5 times."""


@dataclass(frozen=True, slots=True)
class AssemblyRow(StageRow):
    """Its tokens, its value when mmr looked at it last (None under greedy), and whether it did not fit the token budget."""

    tokens: int
    mmr: float | None
    skipped_for_budget: bool


@dataclass(frozen=True, slots=True)
class AssemblyFields(StageFields):
    """How the results were chosen, the tokens they take, the ids of those that did not fit, sorted, and the budget of this query.

    `budget` is None without one; for an aggregation query it may be more than `max_tokens`. `below_vector_floor` are the ids that were
    chosen and then dropped for their vector score, in the order in which they were chosen.
    """

    strategy: Literal["greedy", "mmr"] = "greedy"
    tokens_used: int = 0
    skipped_for_budget: tuple[str, ...] = ()
    budget: int | None = None
    below_vector_floor: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The fields by name; those below the floor only if there are any."""
        names = field_names(AssemblyFields)
        return plain_fields(self, names if self.below_vector_floor else names[:-1])


@dataclass
class Selection:
    """The context being filled."""

    limit: float
    max_tokens: float
    costs: Ints
    """(C) the tokens that taking a candidate adds: 0 once its text is in."""
    text_of: Ints
    """(C) whose text is meant: the candidate itself, or the memory of which it is a chunk."""
    chosen: list[int] = field(default_factory=list)
    skipped: list[int] = field(default_factory=list)
    left_out: list[int] = field(default_factory=list)
    """Candidates whose MMR value is below the least."""
    mmr: dict[int, float] = field(default_factory=dict)
    tokens: int = 0
    low: Bools | None = None
    """(C) the candidates below the score floor."""
    passed: list[int] = field(default_factory=list)
    """Those of them that were looked at and are no results, in that order."""

    @property
    def full(self) -> bool:
        """As many results as allowed."""
        return len(self.chosen) >= self.limit

    def take(self, c: int) -> bool:
        """Add a candidate if it fits, otherwise note that it was skipped for the budget; one below the floor is only passed."""
        if self.low is not None and self.low[c]:
            self.passed.append(c)
            return True
        if self.tokens + self.costs[c] > self.max_tokens:
            self.skipped.append(c)
            return False
        self.chosen.append(c)
        self.tokens += int(self.costs[c])
        self.costs[self.text_of == self.text_of[c]] = 0
        return True


@dataclass(frozen=True, eq=False)
class Given:
    """What the results are selected from: `version` (Q, C) is the chunk whose text is meant, -1 for the whole memory, and `text_of` (Q, C)
    the candidate whose text that is, a memory for its chunks if whole memories are meant."""

    table: CandidateTable
    before: Ranking
    config: AssemblyConfig
    version: Ints | None
    text_of: Ints
    budget: Floats
    """(Q) most tokens."""
    relevance: Floats
    """(Q, C) what lambda weights."""
    low: Bools | None
    """(Q, C) below the score floor; None without one."""
    filling: tuple[Bools, Bools] | None
    """(Q, C) the candidates that may fill up where none reaches the floor, and where some do; None if nothing fills up."""

    counted: Callable[[], tuple[Ints, Callable[[int], int]]]

    @property
    def tokens(self) -> Ints:
        """(Q, C) tokens of what is counted."""
        return self.counted()[0]

    def most_tokens(self, lead: Ints) -> Floats:
        """(Q) no fewer tokens than (Q, n) candidates have, uncounted, as a token has at least a byte; inf if that is not known."""
        if self.version is not None or any(type(counts) is dict for counts in self.table.cl100k):
            return np.full(len(lead), np.inf)
        size = self.table.of_memories("bytes", lambda memory: max(1.0, len(memory.content.encode("utf-8", "replace"))))
        most: Floats = np.where(lead >= 0, along(along(size, self.text_of), np.maximum(lead, 0)), 0.0).sum(axis=1)
        return most


def apply_assembly(given: StageInput) -> StageArrays[AssemblyRow, AssemblyFields]:
    """Select the results."""
    table, before, config = given.table, given.ranking, given.config.assembly
    aggregation = aggregations(table, given.config.query.detectors)
    version = _version(given) if config.text == "version" else None
    reads_vector = config.min_vector_score is not None or config.mmr_relevance == "vector"
    cosines = best_cosines(given) if reads_vector else None
    vector = None if cosines is None else on_scale(cosines, given.config.lists.vector.scale)
    unknown = _without_cosines(given) if reads_vector else None
    demoted = table.succession if given.config.supersession.mode == "demote" else None
    by_mmr = aggregation if config.strategy == "auto" else np.full(len(aggregation), config.strategy == "mmr")
    most = np.inf if config.max_tokens is None else float(config.max_tokens)
    budget = np.where(aggregation, max(most, config.aggregation_tokens), most)
    relevance = _minmax(before) if config.mmr_relevance == "minmax" else before.score
    if config.mmr_relevance == "vector" and vector is not None:
        relevance = vector if unknown is None else np.where(unknown[:, None], before.score, vector)
    floor = None if config.min_score is None else before.alive & (before.score < config.min_score)
    filling = _filling(given) if floor is not None and config.fill_from else None
    pieces, score = pieces_of(table), before.score
    text_of = pieces if version is None else np.broadcast_to(np.arange(table.shape[1]), table.shape)
    pool = Given(
        *(table, before, config, version, text_of, budget, relevance, floor, filling),
        cache(lambda: _tokens(table, config, version, text_of)),
    )
    diverse = _DIVERSE[config.mmr_procedure]

    @cache
    def selection(q: int) -> Selection:
        return _filled(pool, q, (diverse if by_mmr[q] else _greedy)(pool, q))

    chosen = _first_that_fit(pool, ~by_mmr, selection)
    low = np.zeros(table.shape, dtype=bool)
    if config.min_vector_score is not None and vector is not None:
        low = vector < config.min_vector_score
        if unknown is not None:
            low &= ~unknown[:, None]
        chosen = _without(chosen, low)
    if demoted is not None:
        chosen = _below_successors(chosen, demoted, by_mmr)
    if (pieces != np.arange(table.shape[1])).any():
        chosen, score = _whole_memories(chosen, score, pieces)
    queries, places = np.nonzero(chosen >= 0)
    alive = np.zeros(table.shape, dtype=bool)
    alive[queries, chosen[queries, places]] = True

    def reason(q: int, c: int) -> str:
        if c in selection(q).skipped:
            return f"{pool.tokens[q, c]} tokens do not fit the budget of {budget[q]:g}"
        if (whole := int(pieces[q, c])) != c and c in selection(q).chosen:
            return f"{table.ids[q][whole]}, of which it is a chunk, is the result"
        if floor is not None and floor[q, c]:
            return f"score {before.score[q, c]:.4f} is below the floor of {config.min_score:g}"
        if c in selection(q).left_out:
            return f"MMR value {selection(q).mmr[c]:.4f} is below the least of {config.mmr_min_value:g}"
        if low[q, c] and c in selection(q).chosen and cosines is not None and vector is not None:
            none = np.isnan(cosines[q, c])
            had = "no vector list has it, a cosine of 0" if none else f"vector score {vector[q, c]:.4f}"
            return f"{had}: below the floor of {config.min_vector_score:g}, and nobody moves up"
        return f"past the result limit of {config.limit}"

    def past_limit(q: int, c: int) -> bool:
        picked = selection(q)
        dropped = c in picked.skipped or c in picked.left_out or (floor is not None and floor[q, c])
        return not dropped and not (c != pieces[q, c] and c in picked.chosen) and not (low[q, c] and c in picked.chosen)

    def costs(q: int) -> Ints:
        tokens: Ints = pool.tokens[q].copy()
        if version is not None and (pieces[q] != np.arange(table.shape[1])).any():
            taken = [c for c in selection(q).chosen if not low[q, c]]
            tokens[pieces[q, taken]] = 0
            np.add.at(tokens, pieces[q, taken], pool.tokens[q, taken])
        return tokens

    def parts(q: int) -> list[PartColumn]:
        looked_at = selection(q).mmr
        if not looked_at:
            return []
        return [PartColumn("MMR value", None, np.array([looked_at.get(c, np.nan) for c in range(table.shape[1])]))]

    def fields(q: int) -> AssemblyFields:
        skipped = tuple(sorted(table.ids[q][c] for c in selection(q).skipped))
        most = None if np.isinf(budget[q]) else int(budget[q])
        below = [c for c in selection(q).chosen if low[q, c]]
        used = int(pool.tokens[q, sorted({text_of[q, c] for c in selection(q).chosen if not low[q, c]})].sum())
        strategy: Literal["greedy", "mmr"] = "mmr" if by_mmr[q] else "greedy"
        return AssemblyFields(strategy, used, skipped, most, tuple(table.ids[q][c] for c in below))

    def warnings(q: int) -> list[str]:
        found = []
        if uncounted := pool.counted()[1](q):
            found.append(f"no cl100k count in this evidence for {uncounted} of the candidates: chars4 instead")
        found += _undercounted(table, config, q, text_of[q, selection(q).chosen]) if np.isfinite(budget[q]) else []
        if selection(q).skipped and not selection(q).chosen:
            found.append(f"nothing fits the budget of {budget[q]:g} tokens")
        if filled := [c for c in selection(q).chosen if floor is not None and floor[q, c]]:
            some = f"{len(filled)} of the {len(selection(q).chosen)} chosen are below the score floor"
            found.append(f"{some} of {config.min_score:g}: filled up from {', '.join(config.fill_from)}")
        if selection(q).left_out:
            count = len(selection(q).left_out)
            found.append(f"left out: {count} of the candidates, with an MMR value below {config.mmr_min_value:g}")
        if by_mmr[q] and config.mmr_similarity == "cosine":
            bare = int((before.alive[q] & ~table.cosines(q)[1]).sum())
            if bare:
                found.append(
                    f"no embedding for {bare} of the candidates: MMR takes such a candidate to be like no other"
                )
        below = [c for c in selection(q).chosen if low[q, c]]
        if below:
            dropped = f"{len(below)} of the {len(selection(q).chosen)} chosen"
            found.append(f"{dropped} dropped, below the vector floor of {config.min_vector_score:g}; nobody moves up")
        found += _without_successors(table, q, chosen[q], before, demoted)
        if unknown is not None and unknown[q] and config.min_vector_score is not None:
            found.append("the vector list has no cosines: its floor does not apply")
        if below and cosines is not None and np.isnan(cosines[q, before.alive[q]]).all():
            found.append("no candidate has a vector score: all count as a cosine of 0")
        return found

    return StageArrays(
        entered=before.alive,
        before=before,
        after=chosen_in_order(alive, score, chosen),
        row=rows_of(
            AssemblyRow,
            lambda q: costs(q).tolist(),
            lambda q: [selection(q).mmr.get(c) for c in range(table.shape[1])],
            lambda q: [c in selection(q).skipped for c in range(table.shape[1])],
        ),
        fields=fields,
        parts=parts,
        reason=reason,
        past_limit=past_limit,
        warnings=warnings,
    )


def _undercounted(table: CandidateTable, config: AssemblyConfig, q: int, chosen: Ints) -> list[str]:
    """A line where chars4 counts what was packed as much fewer tokens than its scripts have, as of Chinese."""
    packed = [table.memories[q][c].content for c in set(chosen.tolist())]
    if config.token_counter != "chars4" or all(map(str.isascii, packed)):
        return []
    counted, likely = sum(map(chars4, packed)), sum(map(tokens_by_script, packed))
    if likely < MUCH_MORE * counted:
        return []
    return [
        f"chars4 counts {counted:,} tokens for the texts of the {len(packed)} chosen, which have about {likely:,.0f} by their scripts; "
        "assembly.token_counter=cl100k counts them"
    ]


def _tokens(
    table: CandidateTable, config: AssemblyConfig, version: Ints | None, text_of: Ints
) -> tuple[Ints, Callable[[int], int]]:
    """(Q, C) tokens of what is counted, and how many living candidates of a query have no count by the chosen counter."""
    if config.token_counter == "chars4" and version is None:
        return along(table.tokens, text_of), lambda q: 0
    start, counts, known = memoized(
        table.memo, "tokens", config.token_counter, lambda: _counts(table, config.token_counter)
    )
    whole = np.full(table.shape, -1) if version is None else version
    tokens: Ints = counts[start + 1 + whole] if len(counts) else np.zeros(table.shape, dtype=np.int64)
    return along(tokens, text_of), lambda q: int((table.valid[q] & ~known[q]).sum())


def _counts(table: CandidateTable, counter: str) -> tuple[Ints, Ints, Bools]:
    """(Q, C) where each candidate's counts begin, the counts (content, then each chunk), and (Q, C) whose are by this counter."""
    start, known = np.zeros(table.shape, dtype=np.int64), np.ones(table.shape, dtype=bool)
    counts = [0]
    for q, row in enumerate(table.memories):
        for c, memory in enumerate(row):
            start[q, c] = len(counts)
            counted = table.cl100k[q].get(memory.id) if counter == "cl100k" else None
            if counted is None:
                known[q, c] = counter != "cl100k"
                texts = [memory.content, *(chunk.text for chunk in table.chunks[q].get(memory.id, ()))]
                counted = tuple(map(chars4, texts))
            counts += counted
    return start, np.array(counts, dtype=np.int64), known


def _first_that_fit(given: Given, greedy: Bools, selection: Callable[[int], Selection]) -> Ints:
    """(Q, n) the chosen candidates of every query in order, -1 for padding. If the first `limit` fit the budget
    together, greedy chooses them; only the other queries are filled one by one."""
    config = given.config
    lead = given.before.leading(given.table.shape[1] if config.limit is None else config.limit)
    if given.low is not None:
        greedy = greedy & ~np.take_along_axis(given.low, np.maximum(lead, 0), axis=1).any(axis=1)
    # Counting cl100k tokens loads their encoder, which takes longer than a search.
    if greedy.all() and (given.most_tokens(lead) <= given.budget).all():
        return lead
    fits = greedy & (np.where(lead >= 0, along(given.tokens, np.maximum(lead, 0)), 0).sum(axis=1) <= given.budget)
    chosen = lead.copy()
    for q in np.flatnonzero(~fits).tolist():
        picked = selection(q).chosen
        chosen[q] = -1
        chosen[q, : len(picked)] = picked
    return chosen


def _without(chosen: Ints, dropped: Bools) -> Ints:
    """(Q, n) the chosen without the dropped (Q, C), in their order, -1 for padding."""
    left = np.where((chosen >= 0) & ~np.take_along_axis(dropped, np.maximum(chosen, 0), axis=1), chosen, -1)
    return along(left, np.argsort(left < 0, axis=1, kind="stable"))


def _below_successors(chosen: Ints, demoted: SuccessionTable, queries: Bools) -> Ints:
    """(Q, n) the chosen of some queries (Q), each older one that is ahead of all its chosen successors right below the best of them."""
    out = chosen.copy()
    for q in sorted(set(demoted.query[queries[demoted.query]].tolist())):
        order = [c for c in chosen[q].tolist() if c >= 0]
        # Successors first, so that what is moved below one stays below it: the number of successors grows along a chain.
        for older, newer in _successors(demoted, q):
            ahead = [order.index(c) for c in newer if c in order]
            if older in order and ahead and order.index(older) < min(ahead):
                best = order[min(ahead)]
                order.remove(older)
                order.insert(order.index(best) + 1, older)
        out[q, : len(order)] = order
    return out


def _successors(pairs: SuccessionTable, q: int) -> list[tuple[int, set[int]]]:
    """Of a query the older candidates with their successors, those with the fewest first."""
    own = np.flatnonzero(pairs.query == q)
    newer: dict[int, set[int]] = {}
    for i in own[np.argsort(pairs.level[own], kind="stable")].tolist():
        newer.setdefault(int(pairs.older[i]), set()).add(int(pairs.newer[i]))
    return list(newer.items())


def _without_successors(
    table: CandidateTable, q: int, chosen: Ints, before: Ranking, demoted: SuccessionTable | None
) -> list[str]:
    """A warning for results (n) whose successors were ranked above them, none of which is among the results."""
    order, ids = set(chosen[chosen >= 0].tolist()), table.ids[q]
    found = []
    for older, newer in _successors(demoted, q) if demoted is not None else []:
        ranked = [c for c in newer if before.alive[q, c] and before.rank[q, c] < before.rank[q, older]]
        if older in order and ranked and not order & newer:
            best = min(ranked, key=lambda c: int(before.rank[q, c]))
            found.append(f"{ids[older]} is chosen without {ids[best]}, which supersedes it and was ranked above it")
    return found


def pieces_of(table: CandidateTable) -> Ints:
    """(Q, C) of each candidate itself, or the memory of which it is a chunk (`lists.units: chunks`)."""

    def made() -> Ints:
        found = np.tile(np.arange(table.shape[1]), (table.shape[0], 1))
        for q, notes in enumerate(table.notes):
            place = {key: c for c, key in enumerate(table.ids[q])} if PIECES in notes else {}
            for piece, memory_id in notes.get(PIECES, {}).items():
                if piece in place and memory_id in place:
                    found[q, place[piece]] = place[memory_id]
        return found

    return memoized(table.memo, "pieces", None, made)


def _whole_memories(chosen: Ints, score: Floats, pieces: Ints) -> tuple[Ints, Floats]:
    """(Q, n) each memory once, in the place of its first chunk, and (Q, C) scores, of these that chunk's."""
    out, scores = np.full_like(chosen, -1), score.copy()
    for q, row in enumerate(chosen.tolist()):
        first: dict[int, int] = {}
        for c in row:
            if c >= 0:
                first.setdefault(int(pieces[q, c]), c)
        out[q, : len(first)] = list(first)
        scores[q, list(first)] = score[q, list(first.values())]
    return out, scores


def _minmax(before: Ranking) -> Floats:
    """(Q, C) scores between the least and the largest of the living, 1 where all are equal."""
    low = np.where(before.alive, before.score, np.inf).min(axis=1, initial=np.inf, keepdims=True)
    high = np.where(before.alive, before.score, -np.inf).max(axis=1, initial=-np.inf, keepdims=True)
    spread = np.where(high > low, high - low, 0.0)
    above = np.where(before.alive, before.score, 0.0) - np.where(np.isfinite(low), low, 0.0)
    scaled: Floats = np.divide(above, spread, out=np.ones_like(above), where=spread > 0)
    return scaled


def _filling(given: StageInput) -> tuple[Bools, Bools]:
    """(Q, C) who is in a list that fills up, and who is in no other."""
    own = np.array([*(name in given.config.assembly.fill_from for name in SOURCES), False])[given.table.lists.source]
    inside: Bools = (given.lists.present & own[:, :, None]).any(axis=1)
    elsewhere: Bools = (given.lists.present & ~own[:, :, None]).any(axis=1)
    return inside, inside & ~elsewhere


def _filled(given: Given, q: int, selection: Selection) -> Selection:
    """The selection with candidates below the floor in the places that are free, in the order in which they were looked at."""
    if given.filling is not None:
        may = given.filling[1 if selection.chosen else 0][q]
        selection.low = None
        for c in [c for c in selection.passed if may[c]]:
            if selection.full:
                break
            if selection.take(c):
                selection.passed.remove(c)
    return selection


def _empty(given: Given, q: int) -> Selection:
    low = None if given.low is None else given.low[q]
    limit = np.inf if given.config.limit is None else given.config.limit
    return Selection(limit, float(given.budget[q]), given.tokens[q].copy(), given.text_of[q], low=low)


def _greedy(given: Given, q: int) -> Selection:
    selection = _empty(given, q)
    for c in given.before.order(q).tolist():
        if selection.full:
            break
        selection.take(c)
    return selection


def _mmr(given: Given, q: int) -> Selection:
    selection = _empty(given, q)
    order = given.before.order(q)
    _, first = np.unique(given.table.session[q, order], return_index=True)
    # _select settles its last tie by ascending index.
    best_of_session = np.sort(order[first])
    rest = np.setdiff1d(order, best_of_session)
    closest = np.zeros(given.table.shape[1])
    for phase in (best_of_session, rest):
        _select(given, q, phase, selection, closest)
    return selection


def _select(given: Given, q: int, phase: Ints, selection: Selection, closest: np.ndarray) -> None:
    """Move candidates of one phase into the selection. `closest` (C) is the largest similarity to the selected."""
    config, remaining = given.config, phase  # ascending index = ascending id, which settles the last tie
    score, alike = given.relevance[q], _similarity(given, q)
    ties = given.before.rank[q] if given.before.placed else np.arange(len(score))
    while len(remaining) and not selection.full:
        value = config.mmr_lambda * score[remaining] - (1 - config.mmr_lambda) * closest[remaining]
        # lexsort takes the last key first: the MMR value, then the score, then the id or rank.
        at = int(np.lexsort((ties[remaining], -score[remaining], -value))[0])
        c = int(remaining[at])
        selection.mmr[c] = float(value[at])
        remaining = np.delete(remaining, at)
        if _too_low(given, selection, c):
            continue
        # A memory that did not fit is no result, so the others need not differ from it.
        if selection.take(c):
            np.maximum(closest, alike(c), out=closest)


def _similarity(given: Given, q: int) -> Callable[[int], Floats]:
    """c -> (C) similarity of every candidate to candidate c, with itself 0 or 1."""
    if given.config.mmr_similarity == "cosine":
        cosines = given.table.cosines(q)[0]
        return lambda c: cosines[c]
    return lambda c: given.table.overlaps(q, c)


def _similarity_of_texts(given: Given, q: int, word: re.Pattern[str]) -> Callable[[int], Floats]:
    """c -> (C) similarity of every candidate to candidate c; Jaccard's is of the `word`s of the texts that are meant."""
    if given.config.mmr_similarity == "cosine":
        cosines = given.table.cosines(q)[0]
        return lambda c: cosines[c]
    table, version, most = given.table, given.version, given.config.mmr_characters
    overlaps = memoized(
        table.memo,
        "word overlaps",
        (word, most, None if version is None else version.tobytes()),
        lambda: word_overlaps(
            lambda q, c: _text(table, version, q, c)[:most], [*map(len, table.memories)], table.shape[1], word
        ),
    )
    return partial(overlaps, q)


def _too_low(given: Given, selection: Selection, c: int) -> bool:
    least = given.config.mmr_min_value
    if least is None or selection.mmr[c] >= least:
        return False
    selection.left_out.append(c)
    return True


def _mmr_of_cems(given: Given, q: int) -> Selection:
    selection = _empty(given, q)
    order = given.before.order(q).tolist()
    score, tokens, share = given.before.score[q], selection.costs, given.config.mmr_lambda
    if not order:
        return selection
    raw = given.relevance[q]
    low, high = float(raw[order].min()), float(raw[order].max())
    relevance = {c: (float(raw[c]) - low) / (high - low if high > low else 1.0) for c in order}
    alike = _similarity_of_texts(given, q, WORD)
    closest = dict.fromkeys(order, 0.0)

    def take_best(members: Sequence[int]) -> bool:
        fitting = [c for c in members if c not in taken and selection.tokens + tokens[c] <= selection.max_tokens]
        if not fitting or selection.full:
            return False
        for c in fitting:
            selection.mmr[c] = share * relevance[c] - (1 - share) * closest[c]
        best = max(fitting, key=lambda c: selection.mmr[c])  # the first of equals
        taken.add(best)
        if _too_low(given, selection, best):
            return True
        selection.take(best)
        nearer = alike(best)
        for c in order:
            closest[c] = max(closest[c], float(nearer[c]))
        return True

    taken: set[int] = set()
    groups: dict[str | None, list[int]] = {}
    for c in order:
        groups.setdefault(source_reference(given.table.memories[q][c]), []).append(c)
    for members in sorted(groups.values(), key=lambda members: (-float(score[members[0]]), tokens[members[0]])):
        take_best(members)
    while take_best(order):
        pass
    selection.skipped += [c for c in order if c not in taken] if not selection.full else []
    selection.chosen.sort(key=lambda c: -float(score[c]))
    return selection


def _mmr_plain(given: Given, q: int) -> Selection:
    selection = _empty(given, q)
    share = given.config.mmr_lambda
    order = given.before.order(q)
    relevance, left = given.relevance[q, order], np.ones(len(order), dtype=bool)
    alike = _similarity_of_texts(given, q, PLAIN_WORD)
    closest, seen = np.zeros(len(order)), np.full(len(order), np.nan)
    while left.any() and not selection.full:
        seen[left] = (share * relevance - (1 - share) * closest)[left]
        at = int(np.argmax(np.where(left, seen, -np.inf)))  # the first of equals
        left[at], c = False, int(order[at])
        selection.mmr[c] = float(seen[at])
        if not _too_low(given, selection, c) and selection.take(c):
            closest = np.maximum(closest, alike(c)[order])
    selection.mmr = {int(c): float(value) for c, value in zip(order, seen, strict=True) if not np.isnan(value)}
    return selection


def _one_pass(given: Given, q: int) -> Selection:
    selection = _empty(given, q)
    share, score = given.config.mmr_lambda, given.relevance[q]
    order = given.before.order(q)
    alike = _similarity_of_texts(given, q, PLAIN_WORD)
    for c in order.tolist():
        closest = alike(c)[order[order != c]].max(initial=0.0)
        selection.mmr[c] = share * float(score[c]) - (1 - share) * float(closest)
    for c in sorted(order.tolist(), key=lambda c: -selection.mmr[c]):  # stable: the better ranked of equals first
        if selection.full:
            break
        if not _too_low(given, selection, c):
            selection.take(c)
    return selection


_DIVERSE: Mapping[str, Callable[[Given, int], Selection]] = {
    "guide": _mmr,
    "cems": _mmr_of_cems,
    "plain": _mmr_plain,
    "one_pass": _one_pass,
}


def _text(table: CandidateTable, version: Ints | None, q: int, c: int) -> str:
    memory = table.memories[q][c]
    chunk = -1 if version is None else int(version[q, c])
    return memory.content if chunk < 0 else table.chunks[q][memory.id][chunk].text


def _version(given: StageInput) -> Ints:
    """(Q, C) the chunk by which each candidate scored best, -1 for the whole memory."""
    of = given.config.fusion.blend_with
    row = best_version(given.table, given.lists, of)
    chunk = given.lists.places.chunk
    if chunk is None:
        return np.full(row.shape, -1)
    found = np.take_along_axis(chunk, np.maximum(row, 0)[:, None, :], axis=1)[:, 0, :] if chunk.shape[1] else row
    version: Ints = np.where((row >= 0) & ~by_relations(given.table, given.lists, of), found, -1)
    return version


def on_scale(cosine: Floats, scale: str) -> Floats:
    """(Q, C) cosines, NaN where there is none, as vector scores; none is a cosine of 0."""
    return VECTOR_SCALES[scale].of_cosine(np.nan_to_num(cosine, nan=0.0))


def best_cosines(given: StageInput) -> Floats:
    """(Q, C) the best cosine in the vector lists that take part, within their depth; NaN without one."""
    places, depth = given.lists.places, list_depths(given.config)["vector"]
    # A threshold may have cut the hit from the list; its score is known nevertheless.
    listed = (given.table.lists.source == VECTOR) & given.lists.active & ~own_scale(given.table)
    inside = listed[:, :, None] & (places.position > 0) & (places.position <= (np.inf if depth is None else depth))
    best = np.where(inside, places.raw, -np.inf).max(axis=1, initial=-np.inf)
    return np.where(np.isfinite(best), best, np.nan)


def _without_cosines(given: StageInput) -> Bools | None:
    """(Q) whose vector lists are all on their source's own scale; None: no query."""
    own = own_scale(given.table)
    if not own.any():
        return None
    listed = (given.table.lists.source == VECTOR) & given.lists.active
    found: Bools = listed.any(axis=1) & ~(listed & ~own).any(axis=1)
    return found


def _words(row: AssemblyRow, stage: StageTrace[AssemblyRow, AssemblyFields]) -> str:
    return f"{stage.fields.strategy}, {ordinal(row.rank_out or 0)} of the results"


ASSEMBLY = Stage(
    name="assembly",
    title="Assembly",
    description="The results, within the limit and the token budget.",
    reads=(
        "assembly",
        "query.detectors",
        "lists.vector.scale",
        *depth_paths("vector"),
        "supersession.mode",
        "fusion.blend_with",
    ),
    apply=apply_assembly,
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
        Switch("vector floor", {"assembly.min_vector_score": None}, idle=lambda fields: not fields.below_vector_floor),
    ),
    words=_words,
    detail=lambda row, config: f"{row.tokens} tokens",
)
