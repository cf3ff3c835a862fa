"""sweep: one query under many configs at once, for a search for changes.

    stage by stage: configs that stand at one ranking and read the same share a run
                    rankings that differ, under configs that read the same, are rows of one batch

Configs that differ from one in a parameter each run a stage once for all that it does not read, where `replay.run` runs it once
each. The numbers are those of `run`, whose batches do not depend on their width.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from cems_workbench.config import PipelineConfig
from cems_workbench.pipeline.stages import stages_in_order
from cems_workbench.pipeline.stages.query import no_candidates
from cems_workbench.pipeline.stages.result import StageArrays, StageFields, StageRow
from cems_workbench.pipeline.stages.stage import AnyStage, StageInput
from cems_workbench.pipeline.table import CandidateTable, Ints, ListArrays, Ranking, gathered_lists, several_lists


@dataclass(frozen=True, eq=False)
class Standing:
    """Where N configs stand after a stage: at one of S rankings, (S, C), and `arrays` of a run of the stage, with the row there."""

    stage: AnyStage
    after: Ranking
    at: Ints
    """(N) the ranking of each config."""
    arrays: Sequence[tuple[StageArrays[StageRow, StageFields], int]]


class _Rankings:
    """Different rankings of one query, with the lists that they came of."""

    def __init__(self) -> None:
        self.rows: list[tuple[Ranking, int]] = []
        self.lists: list[ListArrays] = []
        self._known: dict[Hashable, int] = {}

    def add(self, ranking: Ranking, lists: Sequence[ListArrays]) -> list[int]:
        """The places of the rows of a batch, added unless they are there."""
        what = type(ranking), ranking.stable, ranking.placed
        key = ranking.key
        places = []
        for i, own in enumerate(lists):
            row = (what, id(own), ranking.alive[i].tobytes(), ranking.score[i].tobytes(), key[i].tobytes())
            place = self._known.setdefault(row, len(self.rows))
            if place == len(self.rows):
                self.rows.append((ranking, i))
                self.lists.append(own)
            places.append(place)
        return places

    def taken(self, places: Sequence[int]) -> Ranking:
        """Some of them, as a batch; they are of one kind."""
        chosen = [self.rows[place] for place in places]
        first, place = chosen[0]
        if len(chosen) == 1:
            alive, score, key = first.alive[place, None], first.score[place, None], first.key[place, None]
        elif all(ranking is first for ranking, _ in chosen):
            rows = [i for _, i in chosen]
            alive, score, key = first.alive[rows], first.score[rows], first.key[rows]
        else:
            alive, score, key = (
                np.stack([getattr(ranking, name)[i] for ranking, i in chosen]) for name in ("alive", "score", "key")
            )
        return type(first)(alive, score, lambda: key, stable=first.stable, placed=first.placed)


def sweep(
    table: CandidateTable, configs: Sequence[PipelineConfig], switched_off: Collection[int] = ()
) -> Iterator[Standing]:
    """Every stage that changes candidates, in order, over the table of one query; the configs have their stages in one order."""
    given = StageInput(table, configs[0], frozenset(switched_off), no_candidates(table), gathered_lists(table))
    standing = _Rankings()
    at = standing.add(given.ranking, [given.lists]) * len(configs)
    lists_by_content: dict[Hashable, ListArrays] = {}
    named: dict[Hashable, tuple[Hashable, Hashable]] = {}
    for stage in stages_in_order(configs[0]):
        if stage.works_on in ("query", "results"):
            continue
        after, new = _Rankings(), [0] * len(configs)
        arrays: list[tuple[StageArrays[StageRow, StageFields], int]] = [None] * len(configs)  # type: ignore[list-item]
        for own in _alike(stage, configs, at, standing, named).values():
            places = list(own)
            rows = [standing.lists[place[0]] for place in places]
            several = [configs[members[0]] for members in own.values()]
            done = stage(
                given._replace(
                    table=table.times(len(places)),
                    config=several[0],
                    ranking=standing.taken([place for place, _ in places]),
                    lists=several_lists(rows),
                    by_row=several,
                )
            )
            if done.lists is not None:
                rows = [_shared(done.lists, lists_by_content)]
            for i, (place, members) in enumerate(zip(after.add(done.after, rows), own.values(), strict=True)):
                for member in members:
                    new[member], arrays[member] = place, (done, i)
        standing, at = after, new
        yield Standing(stage, standing.taken(range(len(standing.rows))), np.array(at), arrays)


def _alike(
    stage: AnyStage,
    configs: Sequence[PipelineConfig],
    at: Sequence[int],
    standing: _Rankings,
    named: dict[Hashable, tuple[Hashable, Hashable]],
) -> dict[Hashable, dict[tuple[int, Hashable], list[int]]]:
    """The configs by what their batch has in common, then by row."""
    groups: dict[Hashable, dict[tuple[int, Hashable], list[int]]] = {}
    single = stage.works_on == "lists"
    kinds = [(type(one), one.stable, one.placed) for one, _ in standing.rows]
    sections = attrgetter(*{path.partition(".")[0] for path in (*stage.reads, *stage.reads_by_row, "name")})
    for i, config in enumerate(configs):
        whole = stage, *map(id, sections(config))
        read = named.get(whole)
        if read is None:
            read = named[whole] = stage.shared(config), stage.by_row(config)
        key, row = (read[0], kinds[at[i]]), (at[i], read[1])
        groups.setdefault((key, row) if single else key, {}).setdefault(row, []).append(i)
    return groups


def _shared(lists: ListArrays, known: dict[Hashable, ListArrays]) -> ListArrays:
    """The first lists with the same content."""
    own = b"" if lists.own_scale is None else lists.own_scale.tobytes()
    key = id(lists.places), lists.present.tobytes(), lists.score.tobytes(), lists.active.tobytes(), own
    return known.setdefault(key, lists)
