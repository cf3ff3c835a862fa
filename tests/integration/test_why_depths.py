"""How deep a list would have to be, worked out by hand on a store of eight memories.

The query is "kiwi". By meaning m1 to m8 stand in this order; of ts_rank m7 has the word twice and m8 once. With share 0.4 and k 60
the hybrid list is

    m7  0.4/67 + 0.6/61 = 0.01581     m8  0.4/68 + 0.6/62 = 0.01556     m1 to m6  0.4/61 to 0.4/66
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cems_workbench.analysis.why import Counterfactual, ListEntry, explain
from cems_workbench.analysis.why.regather import depth_tries, gather_counterfactuals, list_ranks
from cems_workbench.analysis.why.trial import Trials
from cems_workbench.config import PipelineConfig, preset, with_values
from cems_workbench.jobs.factory import servers
from cems_workbench.models.protocol import Float32
from cems_workbench.pipeline import Evidence, replay
from cems_workbench.pipeline.gather import Request, gather_lists
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Progress, silent
from cems_workbench.records import Memory
from cems_workbench.settings import Settings
from cems_workbench.store import Store
from tests.small_store import parsed

ASKED = Request("kiwi")
TEXTS = {f"m{i}": f"text number {i}" for i in range(1, 7)} | {"m7": "kiwi and kiwi", "m8": "one kiwi"}
PLAIN = {
    "filter.min_score": None,
    "gap.ratio": 0.0,
    "adjust.time_decay.mode": "none",
    "lists.relations.enabled": False,
    "lists.ts_rank.enabled": False,
}


class AngleEmbedder:
    """Unit vectors in a plane, the query at 0 and the i-th text at i tenths: so the i-th text is the i-th nearest."""

    model_id, dimension, line = "angles", 2, "angles"

    def encode(self, texts: Sequence[str], progress: Progress = silent) -> Float32:
        places = {text: i for i, text in enumerate(TEXTS.values(), 1)}
        angles = np.array([places.get(text, 0) / 10 for text in texts])
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)

    def encode_query(self, text: str) -> Float32:
        vector: Float32 = self.encode([text])[0]
        return vector


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Resources]:
    with Store.open(tmp_path / "small") as store:
        store.add(parsed([Memory(key, text) for key, text in TEXTS.items()]))
        yield Resources(store, AngleEmbedder(), servers(Settings()))


def config(**changes: Any) -> PipelineConfig:
    return with_values(
        preset("cems_head").config, PLAIN | {key.replace("__", "."): value for key, value in changes.items()}
    )


def places(small: Resources, chosen: PipelineConfig, memory_id: str) -> tuple[Evidence, dict[str, ListEntry]]:
    evidence = gather_lists(ASKED, chosen, small)
    found = list_ranks(memory_id, evidence, chosen, ASKED, small)
    return evidence, {place.list: place for place in found}


def deeper(small: Resources, chosen: PipelineConfig, memory_id: str, k: int) -> dict[tuple[str, ...], Counterfactual]:
    """The rescues by deeper lists that a new gathering confirms, by their parameters."""
    evidence, found = places(small, chosen, memory_id)
    trials = Trials(evidence, memory_id, k)
    tries = list(depth_tries(trials, chosen, ASKED, tuple(found.values())))
    rescues, _ = gather_counterfactuals(trials, chosen, ASKED, small, tries)
    return {
        tuple(rescue.values): rescue for rescue in rescues if all(path.startswith("lists.") for path in rescue.values)
    }


@pytest.mark.parametrize(("memory_id", "rank"), [("m7", 1), ("m8", 2), ("m1", 3), ("m4", 6), ("m6", 8)])
def test_the_hybrid_list_of_the_whole_store(small: Resources, memory_id: str, rank: int) -> None:
    _, found = places(small, config(lists__hybrid__depth=3), memory_id)
    place = found["hybrid:0"]
    assert (place.rank, place.depth, place.chunks, place.returned) == (rank, 3, 6, rank <= 3)
    assert ("past the depth of 3" in place.words) == (rank > 3)


def test_a_hybrid_list_that_is_too_short_is_made_deeper(small: Resources) -> None:
    """m4 is the sixth of the hybrid list, whose lists inside hold all of the store."""
    chosen = config(lists__hybrid__depth=3)
    assert places(small, chosen, "m4")[1]["hybrid:0"].deeper == ({"lists.hybrid.depth": 6},)
    rescue = deeper(small, chosen, "m4", k=6)["lists.hybrid.depth",]
    change = rescue.changes[0]
    assert (change.was, change.now, rescue.gathers, rescue.rank) == (3, 6, True, 6)
    assert change.breakpoint is not None and (change.breakpoint.fails, change.breakpoint.succeeds) == (5, 6)


def test_lists_inside_that_are_too_short_are_made_deeper(small: Resources) -> None:
    """By meaning alone, and half as deep inside as the list of five: of m1 to m8 three are ranked, m7 and m8 follow with nothing.

    A list of seven ranks four of them, and so does a list of five that is as deep inside.
    """
    chosen = config(lists__hybrid__depth=5, lists__hybrid__inner_factor=0.5, lists__hybrid__vector_weight=1.0)
    found = places(small, chosen, "m4")[1]
    assert found["hybrid:0"].deeper == ({"lists.hybrid.depth": 8}, {"lists.hybrid.inner_factor": 1.0})
    assert found["vector:0"].chunks == 3 and not found["vector:0"].returned
    assert "4th of the chunks, past the first 3, of which hybrid:0 is made" in found["vector:0"].words
    rescues = deeper(small, chosen, "m4", k=5)
    depth, factor = rescues["lists.hybrid.depth",].changes[0], rescues["lists.hybrid.inner_factor",].changes[0]
    assert depth.now == 7 and factor.breakpoint is not None
    assert factor.breakpoint.succeeds == pytest.approx(0.6, abs=1e-6)  # ceil(0.6 * 5) is 3, anything more is 4
    for rescue in (rescues["lists.hybrid.depth",], rescues["lists.hybrid.inner_factor",]):
        evidence = gather_lists(ASKED, rescue.config(chosen), small)
        assert "m4" in [row.memory_id for row in replay(evidence, rescue.config(chosen)).results[:5]]


def test_a_ts_rank_list_is_made_deeper_in_memories_and_chunks(small: Resources) -> None:
    only = {"lists__hybrid__enabled": False, "lists__ts_rank__enabled": True}
    shallow = config(lists__ts_rank__depth=1, **only)
    assert places(small, shallow, "m8")[1]["ts_rank:0"].deeper == ({"lists.ts_rank.depth": 2},)
    assert deeper(small, shallow, "m8", k=2)["lists.ts_rank.depth",].values == {"lists.ts_rank.depth": 2}
    both = config(lists__ts_rank__depth=1, lists__ts_rank__chunk_depth=1, **only)
    names = "lists.ts_rank.depth", "lists.ts_rank.chunk_depth"
    assert deeper(small, both, "m8", k=2)[names].values == dict.fromkeys(names, 2)
    assert places(small, both, "m1")[1]["ts_rank:0"].deeper == ()  # it has no word of the query


def test_an_index_of_few_rows_is_no_reason_for_a_deeper_list(small: Resources) -> None:
    """Past the rows of the vector index no depth helps: the memory is in no list inside."""
    _, found = places(small, config(lists__hybrid__depth=3, lists__hybrid__index_rows=2), "m4")
    assert found["hybrid:0"].rank is None and found["hybrid:0"].deeper == ()
    assert found["hybrid:0"].words == "neither list inside has it"


def test_what_was_gathered_deeper_is_replayed(small: Resources) -> None:
    """A depth that was lowered after gathering is raised again without a new search."""
    evidence = gather_lists(ASKED, config(lists__hybrid__depth=8), small)
    found = explain("m4", evidence, config(lists__hybrid__depth=3), k=6)
    depth = next(rescue for rescue in found.counterfactuals if "lists.hybrid.depth" in rescue.values)
    assert depth.values == {"lists.hybrid.depth": 6} and not depth.gathers
