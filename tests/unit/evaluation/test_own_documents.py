"""Queries that are documents of the store are no result of their own query (beir PR#91, 2022-04-13; pylate#198, 2026-02-23)."""

from __future__ import annotations

from dataclasses import replace

from cems_workbench.analysis.losses_of_set import losses_of
from cems_workbench.config import parse_config
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.evaluate import evaluate
from cems_workbench.evaluation.metrics import parse_measure
from cems_workbench.pipeline import Evidence, Hit, ModelScore, RankedList, Variant
from cems_workbench.pipeline.stages.rerank import model_key
from cems_workbench.records import Memory, Query

CLAIM, ANSWER = "Homework makes children study on their own.", "Homework is done by parents."
CONFIG = "version: 2\nname: plain\nfusion: {top_rank_bonus: {rank1: 0, rank2_3: 0}}\nrerank: {backend: none}\n"
RERANKED = CONFIG.replace("backend: none", "backend: cross_encoder, depth: 2")
MRR = parse_measure("MRR")


def evidence(query: str, **memories: str) -> Evidence:
    """One list of memories in this order, of which all but the last have a reranker's score."""
    hits = tuple(Hit(key, 1.0 - place / 10) for place, key in enumerate(memories))
    lists = (RankedList("vector:0", "vector", 0, hits),)
    return Evidence(query, {key: Memory(key, text) for key, text in memories.items()}, (Variant(query),), lists)


def measured(evidences: dict[str, Evidence], grades: dict[str, dict[str, int]], config: str = CONFIG):
    queries = [Query(qid, one.query) for qid, one in evidences.items()]
    batch = LabelledBatch(queries, evidences, grades)
    return batch, evaluate(batch, parse_config(config, "test"), [MRR])


def test_a_query_that_is_a_document_is_left_out_of_its_own_results() -> None:
    evidences = {"pro": evidence(CLAIM, pro=CLAIM, con=ANSWER), "q2": evidence("who", con=ANSWER)}
    batch, found = measured(evidences, {"pro": {"con": 1}, "q2": {"con": 1}})
    assert (found.mean(MRR), found.results[0]) == (1.0, ("con",))
    assert found.remarks == [
        "1 of 2 queries are memories of the store, such as pro: each was left out of its own results, as BEIR does"
    ]
    assert losses_of([batch], [found.config], 1, k=1).maps[0].returned == 2
    assert batch.of_queries({"pro"}).left_out == ("pro",)


def test_the_last_candidate_that_moves_up_is_not_called_unscored() -> None:
    given = evidence(CLAIM, pro=CLAIM, con=ANSWER, other="Schools close at four.")
    _, plain = measured({"pro": given}, {"pro": {"con": 1}}, RERANKED)
    assert any("reranker scores" in line for line in plain.remarks)
    scores = {model_key(plain.config.rerank): {name: ModelScore(1.0) for name in ("pro", "con")}}
    _, scored = measured({"pro": replace(given, model_scores=scores)}, {"pro": {"con": 1}}, RERANKED)
    assert not any("reranker scores" in line for line in scored.remarks)


def test_a_document_with_the_id_by_chance_or_judged_relevant_stays() -> None:
    """beir 2.2.0 leaves out every document with the id of the query: 0.0 where both are counted from 1."""
    evidences = {"1": evidence(CLAIM, **{"1": ANSWER, "2": CLAIM}), "3": evidence(CLAIM, **{"3": CLAIM})}
    batch, found = measured(evidences, {"1": {"1": 1}, "3": {"3": 1}})
    assert (found.mean(MRR), batch.left_out, batch.by_chance) == (1.0, (), ("1", "3"))
    _, found = measured({"1": evidence(CLAIM, **{"1": "Schools close at four.", "2": ANSWER})}, {"1": {"2": 1}})
    assert found.mean(MRR) == 0.5
    assert found.remarks[0] == (
        "1 of 1 queries have the id of a memory with another text, or one that is relevant to them (1): it was kept; BEIR leaves out "
        "every document with the id of the query, so its figures differ"
    )
