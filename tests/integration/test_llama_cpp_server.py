"""The llama_server reranker against a real llama.cpp server: scores, concurrency, and a server that dies and returns.

The model is a small chat model, no reranker: what is tested is the exchange, not whether its judgments are good.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import llama_cpp_server
import pytest
from llama_cpp_server import MODEL, LlamaCpp

from cems_workbench.config import PipelineConfig, with_values
from cems_workbench.errors import ModelError
from cems_workbench.models import llama_server
from cems_workbench.models.llama_server import LlamaServerReranker
from cems_workbench.models.protocol import PairScore
from cems_workbench.pipeline import replay
from cems_workbench.pipeline.gather import Request, gather
from cems_workbench.pipeline.resources import Resources

pytestmark = [
    pytest.mark.skipif(llama_cpp_server.missing() is not None, reason=str(llama_cpp_server.missing())),
]

QUERY = "Who knows Python?"
TEXTS = [
    "Alice has five years of Python experience.",
    "The office cat sleeps on the router.",
    "Deploys happen on Fridays.",
    "日本語のメモ: 「はい」 \U0001f408",
    "yes",
]


@pytest.fixture(scope="session")
def server() -> Iterator[LlamaCpp]:
    with pytest.MonkeyPatch.context() as patch, LlamaCpp() as running:
        patch.setenv("NO_PROXY", "127.0.0.1")
        yield running


def scorer(server: LlamaCpp, max_concurrent: int = 1) -> LlamaServerReranker:
    return LlamaServerReranker(server.url, timeout_s=120, max_concurrent=max_concurrent, sleep=lambda _: None)


@pytest.fixture(scope="session")
def sequential(server: LlamaCpp) -> list[PairScore]:
    return scorer(server).score(QUERY, TEXTS)


def test_every_score_is_a_probability_from_yes_and_no(sequential: list[PairScore]) -> None:
    """This model has both among its 20 likeliest first words, whatever it is asked to judge."""
    assert [pair.error for pair in sequential] == [None] * len(TEXTS)
    assert {(pair.detail or {})["outcome"] for pair in sequential} == {"yes and no"}
    assert all(pair.raw is not None and 0 < pair.raw < 1 for pair in sequential)
    assert len({pair.raw for pair in sequential}) == len(TEXTS)


def test_pairs_asked_at_once_score_as_one_after_the_other(server: LlamaCpp, sequential: list[PairScore]) -> None:
    at_once = scorer(server, max_concurrent=len(TEXTS)).score(QUERY, [*reversed(TEXTS), TEXTS[0]])
    assert [pair.raw for pair in at_once] == [pair.raw for pair in (*reversed(sequential), sequential[0])]


def test_a_text_that_is_too_long_is_flagged_and_half_a_character_is_a_question_mark(
    server: LlamaCpp, sequential: list[PairScore]
) -> None:
    good, too_long, *halves = scorer(server).score(
        QUERY, [TEXTS[0], "word " * 3000, "half a character \ud83d", "half a character ?"]
    )
    assert good.raw == sequential[0].raw
    assert too_long.raw is None and "exceeds the available context size" in str(too_long.error)
    assert halves[0].raw == halves[1].raw is not None


def test_health_and_cache_name_the_model(server: LlamaCpp) -> None:
    model = scorer(server)
    assert model.health() == f"llama.cpp server at {server.url}: ok, serves {MODEL}"
    assert model.cache_model(QUERY).startswith(f"llama_server:{MODEL}:qwen3-reranker/1:")


@pytest.mark.thorough
def test_a_server_killed_within_a_batch_and_started_again(
    server: LlamaCpp, sequential: list[PairScore], monkeypatch: pytest.MonkeyPatch
) -> None:
    replies = 0

    def kill_after_the_second(reply: Any) -> PairScore:
        nonlocal replies
        replies += 1
        if replies == 2:
            server.kill()
        return score_of_reply(reply)

    score_of_reply = llama_server.score_of_reply
    model = scorer(server)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(llama_server, "score_of_reply", kill_after_the_second)
            scored = model.score(QUERY, TEXTS)
        assert [pair.raw for pair in scored] == [sequential[0].raw, sequential[1].raw, None, None, None]
        assert [str(pair.error).split(": ")[0] for pair in scored[2:]] == ["refused"] * 3
        with pytest.raises(ModelError, match=r"No llama.cpp server answers at http://127.0.0.1:\d+: refused: "):
            model.health()
    finally:
        server.kill()
        server.start()
    assert model.score(QUERY, TEXTS[2:3])[0].raw == sequential[2].raw
    assert model.health().startswith("llama.cpp server at ")


def test_a_search_reranks_through_the_server_and_a_second_one_asks_nothing(
    server: LlamaCpp, resources: Resources
) -> None:
    """The evidence says how each score came about and how long it took; the cache answers when the server is gone."""
    resources.servers = replace(resources.servers, llama_server_url=server.url)
    changes = {
        "rerank.backend": "llama_server",
        "rerank.model": MODEL,
        "rerank.raw_scale": "identity",
        "rerank.depth": 4,
        "rerank.max_concurrent": 1,
        "rerank.timeout_s": 120.0,
        "judge.backend": "none",
    }
    config = with_values(PipelineConfig(), changes)
    first = gather(Request("which database did the team choose?"), config, resources)
    scores = first.model_scores[MODEL]
    assert len(scores) == 4 and all(score.raw is not None and score.error is None for score in scores.values())
    assert all(score.detail and score.detail["outcome"] and score.detail["seconds"] > 0 for score in scores.values())
    rows = [row for row in replay(first, config).stage("rerank").rows if row.outcome == "scored"]
    assert {row.memory_id: row.raw for row in rows} == {key: score.raw for key, score in scores.items()}

    resources.servers = replace(resources.servers, llama_server_url="http://127.0.0.1:9")
    again = gather(Request("which database did the team choose?"), config, resources)
    assert {key: score.raw for key, score in again.model_scores[MODEL].items()} == {
        key: score.raw for key, score in scores.items()
    }
    assert all(score.detail and score.detail["cached"] for score in again.model_scores[MODEL].values())
