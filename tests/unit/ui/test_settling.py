"""The intermediate order drawn while the reranker runs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from cems_workbench.config import PipelineConfig, preset, with_values
from cems_workbench.pipeline import Evidence, Hit, ModelScore, RankedList, Variant, replay
from cems_workbench.records import Memory
from cems_workbench.ui.inspect.results import settling_html

FOUND = {"a": 0.44, "b": 0.43, "c": 0.31}
READ: dict[str, Any] = {
    "rerank.backend": "cross_encoder",
    "rerank.model": "oracle",
    "abstain.rule": "all",
    "abstain.reranker": 0.0,
    "abstain.vector": 0.5,
}


def evidence(scores: dict[str, float]) -> Evidence:
    hits = tuple(Hit(memory_id, raw) for memory_id, raw in FOUND.items())
    return Evidence(
        query="query",
        as_of=datetime(2026, 1, 1, tzinfo=UTC),
        memories={memory_id: Memory(memory_id, f"text {memory_id}") for memory_id in FOUND},
        variants=(Variant("query"),),
        lists=(RankedList("vector", "vector", 0, hits),),
        model_scores={"oracle": {memory_id: ModelScore(raw) for memory_id, raw in scores.items()}},
    )


def configured(changes: dict[str, Any]) -> PipelineConfig:
    return with_values(preset("ace").config, changes)


def test_what_only_the_reranker_can_decide_takes_no_order_from_the_screen() -> None:
    unread = replay(evidence({}), configured(READ))
    assert unread.needs and not unread.results, "the vector score alone refuses"
    html = settling_html(unread, None)
    assert html.count("wb-soon") == 3 and "Order of the lists" in html and "applied at the end" in html
    read = replay(evidence({"a": 1.0}), configured(READ))
    assert read.results and settling_html(read, (1, 3)).count("wb-soon") == 3


def test_an_order_that_nothing_can_refuse_is_no_open_question() -> None:
    never = {name: value for name, value in READ.items() if not name.startswith("abstain")}
    assert "applied at the end" not in settling_html(replay(evidence({}), configured(never)), None)
    html = settling_html(replay(evidence({}), configured({**never, "filter.min_score": 100})), None)
    assert html == "", "nothing is left to be painted"
