"""Measures equal ir-measures on SciFact and LoCoMo: real judgments, and BM25 rankings with the ties that they have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from cems_workbench import formats
from cems_workbench.evaluation.grades import agreed_grades
from cems_workbench.evaluation.metrics import graded, standard_measures
from cems_workbench.records import Memory, Query
from cems_workbench.store.search.tokenizer import tokenize
from cems_workbench.store.text_rule import searched_text
from tests.oracle import judged_run, oracle

pytest.importorskip("ir_measures")
DEPTH = 100


def searched(memories: Sequence[Memory], queries: Sequence[Query]) -> dict[str, list[str]]:
    """The best by the number of distinct query terms that a memory holds: a score with many ties, in the order of ids."""
    ordered = sorted(memories, key=lambda memory: memory.id)
    postings: dict[str, list[int]] = {}
    for i, memory in enumerate(ordered):
        for term in set(tokenize(searched_text(memory))):
            postings.setdefault(term, []).append(i)
    found = {}
    for query in queries:
        score = np.zeros(len(ordered))
        for term in set(tokenize(query.query)):
            score[postings.get(term, [])] += 1
        best = np.argsort(-score, kind="stable")[:DEPTH]
        found[query.qid] = [ordered[i].id for i in best if score[i] > 0]
    return found


def compared(rankings: Mapping[str, Sequence[str]], grades: Mapping[str, Mapping[str, int]]) -> None:
    import ir_measures as ir

    qrels, run = judged_run(rankings, grades)
    measures = standard_measures()
    found = graded([rankings[qid] for qid in rankings], [grades[qid] for qid in rankings])
    values = {str(oracle(measure)): measure.values(found) for measure in measures}
    place = {qid: q for q, qid in enumerate(rankings)}
    checked = 0
    for metric in ir.iter_calc([oracle(measure) for measure in measures], qrels, run):
        assert values[str(metric.measure)][place[metric.query_id]] == pytest.approx(metric.value, abs=1e-9)
        checked += 1
    assert checked == len(measures) * len(rankings)
    means = ir.calc_aggregate([oracle(measure) for measure in measures], qrels, run)
    for measure in measures:
        assert values[str(oracle(measure))].mean() == pytest.approx(means[oracle(measure)], abs=1e-9)


@pytest.mark.parametrize("name", ["scifact", "locomo"])
def test_measures_equal_the_oracle(shared: Path, name: str) -> None:
    folder = shared / "data" / name
    if not folder.is_dir():
        pytest.skip(f"{folder.name} is not beside the checkout")
    parsed = formats.read_path(folder)
    grades = agreed_grades(row for one in parsed for row in one.judgments)
    queries = [query for one in parsed for query in one.queries if query.qid in grades]
    assert len(queries) > 200
    compared(searched([memory for one in parsed for memory in one.memories], queries), grades)
