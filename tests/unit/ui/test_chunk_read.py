"""A result names the matching chunk, and the chunk read by the reranker if it differs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cems_workbench.config import PipelineConfig, with_values
from cems_workbench.pipeline import Evidence, replay
from cems_workbench.pipeline.evidence import Hit, ModelScore, RankedList, Variant
from cems_workbench.pipeline.scoring import given_chunks
from cems_workbench.records import Chunk, Memory
from cems_workbench.ui.inspect.results import results_html

TEXTS = ("one ", "two ", "three ")
PLAIN = {
    "rerank.text_source": "chunk",
    "rerank.backend": "cross_encoder",
    "adjust.time_decay.mode": "none",
    "filter.min_score": None,
    "gap.ratio": 0.0,
}


def evidence(*lexical: Hit) -> Evidence:
    """By meaning L's first chunk stands second; all of L's chunks are known and L was scored."""
    return Evidence(
        query="which",
        memories={"A": Memory("A", "whole"), "L": Memory("L", "".join(TEXTS))},
        variants=(Variant("which"),),
        lists=(
            RankedList("vector:0", "vector", 0, (Hit("A", 0.9), Hit("L", 0.8, 0))),
            RankedList("lexical:0", "lexical", 0, lexical),
        ),
        chunks={"L": tuple(Chunk("L", seq, text) for seq, text in enumerate(TEXTS))},
        model_scores={"cross_encoder": {"A": ModelScore(0.1, "whole"), "L": ModelScore(0.9, "three ")}},
    )


def card(given: Evidence, **changes: object) -> str:
    config = with_values(PipelineConfig(), PLAIN | {path.replace("__", "."): value for path, value in changes.items()})
    return str(results_html(replay(given, config), {}))


CHUNK = with_values(PipelineConfig(), {"rerank.text_source": "chunk"})
BY_WORDS = Hit("L", 5.0, 2)


def test_the_chunk_that_a_list_found_which_is_off_is_what_was_read_and_the_card_says_so() -> None:
    assert given_chunks(evidence(BY_WORDS), CHUNK)["L"].seq == 2
    off = card(evidence(BY_WORDS), lists__lexical__enabled=False)
    assert "1st of 3 chunks" in off and "reranker read the 3rd of 3 chunks" in off


def test_nothing_is_added_where_it_is_the_chunk_that_was_found() -> None:
    on = card(evidence(BY_WORDS))
    assert "3rd of 3 chunks" in on and "reranker read" not in on


@pytest.mark.parametrize(
    "changes",
    [{"rerank__backend": "none"}, {"rerank__depth": 1, "rerank__below_depth": "below"}],
    ids=["off", "past it"],
)
def test_nothing_is_said_of_what_no_reranker_read(changes: dict[str, object]) -> None:
    shown = card(evidence(BY_WORDS), lists__lexical__enabled=False, **changes)
    assert "1st of 3 chunks" in shown and "reranker read" not in shown


def test_a_memory_whose_first_place_is_not_that_of_a_chunk_was_read_whole() -> None:
    whole = evidence(Hit("L", 5.0))
    assert "L" not in given_chunks(whole, CHUNK)
    assert "reranker read the whole memory" in card(whole, lists__lexical__enabled=False)


def test_a_reranker_that_reads_memories_is_given_no_chunk_and_the_card_says_so() -> None:
    assert given_chunks(evidence(BY_WORDS), PipelineConfig()) == {}
    shown = card(evidence(BY_WORDS), rerank__text_source="memory")
    assert "reranker read the whole memory" in shown and "Rerank → Text source" in shown


def test_a_memory_of_one_chunk_needs_no_word() -> None:
    one = replace(evidence(BY_WORDS), chunks={"L": (Chunk("L", 2, "three "),)})
    assert "reranker read" not in card(one, lists__lexical__enabled=False)
