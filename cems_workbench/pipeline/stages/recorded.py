"""Recorded stages: those of a pipeline that is not ours, as records that replay runs like every other stage.

Nothing is computed: ranks, scores and reasons are those of the trace (`pipeline/recorded.py`), whatever the config says. The lists are a
stage of the same name and rows as ours, so that everything that reads lists reads them too; every other stage has its traced name and the
row contract alone.
"""

from __future__ import annotations

from functools import lru_cache, partial

import numpy as np

from cems_workbench.pipeline.list_sources import equal_scores, ordinal
from cems_workbench.pipeline.recorded import NOT_KEPT, StageHead
from cems_workbench.pipeline.stages.lists import LISTS, ListEntry, ListsFields, ListsRow, ListUse, ranks_text
from cems_workbench.pipeline.stages.result import StageArrays, StageFields, StageRow, StageTrace
from cems_workbench.pipeline.stages.stage import AnyStage, Stage, StageInput
from cems_workbench.pipeline.table import CandidateTable, GivenRanking, RecordedTable, RecordedWay, unranked
from cems_workbench.records import StageKind

DESCRIPTIONS: dict[StageKind, str] = {
    "list": "A list of the traced pipeline.",
    "fusion": "Joins lists, as traced.",
    "filter": "Drops candidates, as traced.",
    "rerank": "Orders candidates again, as traced.",
    "adjust": "Changes scores, as traced.",
    "dedup": "Drops duplicates, as traced.",
    "assembly": "Chooses what is returned, as traced.",
    "other": "A stage of the traced pipeline.",
}


@lru_cache(maxsize=256)
def recorded_stages(heads: tuple[StageHead, ...]) -> tuple[AnyStage, ...]:
    """The records of the recorded stages, the lists first; those that can drop a memory and those that rank, as of ours."""
    return (_LISTS, *(_stage(i, head, heads[i - 1] if i else None) for i, head in enumerate(heads)))


def _stage(
    i: int, head: StageHead, before: StageHead | None
) -> Stage[StageRow, StageFields, StageArrays[StageRow, StageFields]]:
    return Stage(
        name=head.name,
        title=head.name,
        description=DESCRIPTIONS[head.kind],
        works_on="ranking" if head.ranks_out else "lists",
        apply=partial(_apply, i),
        row=StageRow,
        fields=StageFields,
        words=_words,
        detail=lambda row, config: "" if row.score is None else f"score {row.score:.4g}",
    )


def _apply(i: int, given: StageInput) -> StageArrays[StageRow, StageFields]:
    way = _recorded(given.table).ways[i]
    return StageArrays(
        entered=way.entered,
        before=_before(way),
        after=_after(way),
        reason=lambda q, c: way.lost[q].get(c, (None, False))[0],
        past_limit=lambda q, c: way.lost[q].get(c, ("", False))[1],
        warnings=partial(_equal_scores, way),
        waiting=way.waiting if way.waiting.any() else None,
    )


def _equal_scores(way: RecordedWay, q: int) -> list[str]:
    scores = way.score_out[q, way.alive[q]]
    equal = way.head.kind == "rerank" and len(scores) > 1 and scores.min() == scores.max()  # false of NaN
    return [equal_scores(len(scores), float(scores[0]))] if equal else []


def _before(way: RecordedWay) -> GivenRanking:
    there = way.entered & (way.rank_in > 0)
    ranks = way.rank_in if way.head.ranks_in else np.zeros_like(way.rank_in)
    return GivenRanking(there, way.score_in, lambda: ranks)


def _after(way: RecordedWay) -> GivenRanking:
    ranks = way.rank_out if way.head.ranks_out else np.zeros_like(way.rank_out)
    return GivenRanking(way.alive, way.score_out, lambda: ranks)


def _words(row: StageRow, stage: StageTrace[StageRow, StageFields]) -> str:
    if row.rank_out is None:
        return "kept"
    scored = "" if row.score is None else f" ({row.score:.4g})"
    if row.rank_in is None:
        return f"put it {ordinal(row.rank_out)}{scored}"
    return (
        f"kept it {ordinal(row.rank_out)}{scored}"
        if row.rank_in == row.rank_out
        else f"put it {ordinal(row.rank_out)}{scored}"
    )


def _recorded(table: CandidateTable) -> RecordedTable:
    if table.recorded is None:
        raise ValueError("the table has no recorded stages")
    return table.recorded


def _found(given: StageInput) -> StageArrays[ListsRow, ListsFields]:
    table = _recorded(given.table)
    no_score = np.full(table.found.shape, np.nan)

    def entries(q: int, c: int) -> tuple[ListEntry, ...]:
        return tuple(
            ListEntry(
                ranked.name, *ranked.rank[c], ranked.rank[c][1], bool(table.kept[q, c]) and c not in ranked.left_out
            )
            for ranked in table.lists[q]
            if c in ranked.rank
        )

    return StageArrays(
        entered=table.found,
        before=unranked(table.found, no_score),
        after=unranked(table.kept, no_score),
        row=lambda q: lambda c, contract: ListsRow(*contract, entries(q, c)),
        fields=lambda q: ListsFields(
            tuple(
                ListUse(one.name, one.name, None, True, len(one.rank), len(one.rank) - len(one.left_out))
                for one in table.lists[q]
            )
        ),
        reason=lambda q, c: NOT_KEPT,
    )


_LISTS = Stage(
    name=LISTS.name,
    title=LISTS.title,
    description="The lists of the traced pipeline, as they were found.",
    works_on="lists",
    apply=_found,
    row=ListsRow,
    fields=ListsFields,
    words=lambda row, stage: ranks_text(stage.fields, row),
)
