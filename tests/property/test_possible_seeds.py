"""No share, k or depth makes a seed of a memory whose relations were not gathered."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cems_workbench.config import preset, with_values
from cems_workbench.pipeline import Evidence, replay
from cems_workbench.pipeline.evidence import Hit, RankedList, Variant
from cems_workbench.pipeline.relations import possible_seeds
from cems_workbench.records import Chunk, Memory

CHUNKS = [(memory_id, chunk) for memory_id in "ABCDEF" for chunk in (0, 1)]
ORDERS = st.permutations(CHUNKS).flatmap(lambda order: st.integers(0, len(order)).map(lambda size: order[:size]))


@given(
    meaning=ORDERS,
    text=ORDERS,
    share=st.floats(0, 1),
    k=st.integers(0, 100),
    depth=st.integers(1, 6),
    seeds=st.integers(1, 3),
)
def test_every_seed_is_among_the_possible_ones(meaning, text, share, k, depth, seeds):
    lists = tuple(
        RankedList(
            f"{source}:0", source, 0, tuple(Hit(key, 1 - i / 100, chunk) for i, (key, chunk) in enumerate(order))
        )
        for source, order in (("vector", meaning), ("ts_rank", text))
    )
    evidence = Evidence(
        "q",
        {key: Memory(key, key) for key in "ABCDEF"},
        (Variant("q"),),
        lists,
        chunks={key: tuple(Chunk(key, seq, key) for seq in (0, 1)) for key in "ABCDEF"},
    )
    config = with_values(
        preset("cems_head").config,
        {"lists.hybrid.vector_weight": share, "lists.hybrid.k": k, "lists.hybrid.depth": depth},
    )
    found = [
        (entry.rank, row.memory_id)
        for row in replay(evidence, config).stage("lists").rows
        for entry in row.lists
        if entry.list == "hybrid:0"
    ]
    possible = possible_seeds(lists, seeds)
    # Where the share leaves one list out, chunks that only it has stand last, equal; any of them may come first.
    assert {key for rank, key in found if rank <= seeds} <= set(possible) or share in (0.0, 1.0)
