"""A list of a running system beside the exact one, worked out by hand: what is missing, and what is said of it."""

from __future__ import annotations

import numpy as np
import pytest

from cems_workbench.analysis.engine_check import cause, compare_engine, limiting
from cems_workbench.analysis.vector_origins import ExactRanking
from cems_workbench.pipeline.live_engine import LiveList
from cems_workbench.sources.source import Setting, SourceInfo

EXACT = ExactRanking(tuple("abcdef"), np.array([0.9, 0.8, 0.7, 0.6, 0.5, 0.4]))
EF = Setting("hnsw.ef_search", "3", "rows at most", ("10",))
PROBES = Setting("ivfflat.probes", "10")


def live(hits: str, asked: int = 6, returned: int | None = None) -> LiveList:
    scores = dict(zip(EXACT.ids, EXACT.cosines.tolist(), strict=True)) | {"x": 0.95}
    found = [(each, scores[each], 0) for each in hits]
    return LiveList("vector", asked, len(hits) if returned is None else returned, found, (), 0.01)


def probe(*settings: Setting, index: str | None = "hnsw (v)") -> SourceInfo:
    return SourceInfo("t", "engine", 6, 6, 3, index=index, settings=settings)


def test_what_is_missing_of_the_memories_that_are_kept_is_named() -> None:
    found = compare_engine(live("acd"), EXACT, 4)
    assert (found.deep.k, found.deep.found, [each.memory_id for each in found.deep.missed]) == (4, 3, ["b"])
    assert (found.deep.missed[0].rank, found.near.k, found.near.found, found.whole) == (2, 6, 3, False)
    assert compare_engine(live("abcd"), EXACT, 4).whole


def test_what_the_filter_of_the_query_leaves_out_takes_no_place() -> None:
    found = compare_engine(live("xabc"), EXACT, 3)
    assert found.whole and found.off == pytest.approx(0.0)


def test_the_setting_that_cut_a_list_is_the_cause() -> None:
    short = compare_engine(live("ab"), EXACT, 6)
    assert limiting(short.live, (PROBES, EF)) == EF
    assert cause(short, probe(EF)) == "6 rows were asked for and 2 came: hnsw.ef_search is 3, rows at most."
    assert "filtered afterwards" in cause(short, probe())
    passed_by = compare_engine(live("abcdf", asked=5), EXACT, 5)
    assert "approximate (hnsw (v)) and passed them by" in cause(passed_by, probe(EF))
    assert "changed since the snapshot" in cause(passed_by, probe(index=None))
    assert cause(compare_engine(live("abcdef"), EXACT, 6), probe(EF)) == ""


def test_a_list_that_came_back_whole_was_cut_by_no_setting() -> None:
    whole = compare_engine(live("abcdex", asked=9), EXACT, 6)
    assert limiting(whole.live, (Setting("hnsw.ef_search", "7"),)) is not None
    assert (
        cause(whole, probe(Setting("hnsw.ef_search", "7"))) == "Its index is approximate (hnsw (v)) and passed them by."
    )
