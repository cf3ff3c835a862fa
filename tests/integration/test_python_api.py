"""The Python API on the sample store: search, why, gathering, and a config as a transformer."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pytest

import cems_workbench as cw
from cems_workbench.records import Memory, ParsedInput
from tests.sample import FAILING

AS_OF = "2026-09-01"
QUIET = {"judge.backend": "none"}
"""The judge changes no ranking, and takes a second."""


@pytest.fixture(scope="module")
def store(sample_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[cw.OpenStore]:
    folder = shutil.copytree(sample_store, tmp_path_factory.mktemp("api") / "store")
    with cw.open_store(folder) as opened:
        yield opened


@pytest.fixture(scope="module")
def cems() -> cw.PipelineConfig:
    return cw.load_config("cems", QUIET)


@pytest.fixture(scope="module")
def answer(store: cw.OpenStore, cems: cw.PipelineConfig) -> cw.Answer:
    return cw.search(store, FAILING, cems, as_of=AS_OF)


def test_a_store_says_what_it_holds(store: cw.OpenStore) -> None:
    assert store.title.endswith(": 438 memories") and store.query_sets == ("sample_data",)
    assert len(store.queries(judged=True)) == 129
    assert store.memory("m089").content.startswith("The dashboard tab grew")
    with pytest.raises(cw.InputError, match="m0899: no such memory; the nearest are m089"):
        store.memory("m0899")


def test_an_import_is_listed_and_undone(store: cw.OpenStore) -> None:
    store.resources.store.add(ParsedInput("late.jsonl", "t", memories=(Memory("late", "a late note"),)))
    assert (store.imports()[0].name, store.plan_undo().words) == ("late.jsonl", "removes 1 memory")
    assert store.undo_import().done_words == "removed 1 memory"
    assert store.imports()[0].undone_at is not None
    with pytest.raises(cw.WorkbenchError, match="no import 77 on record"):
        store.undo_import(77)


def test_search_is_that_of_the_pipeline(store: cw.OpenStore, cems: cw.PipelineConfig, answer: cw.Answer) -> None:
    from cems_workbench.pipeline import replay
    from cems_workbench.pipeline.gather import Request, gather

    evidence = gather(Request(FAILING, as_of=datetime(2026, 9, 1, tzinfo=UTC)), cems, store.resources)
    assert answer.ids == tuple(result.memory_id for result in replay(evidence, cems).results)
    assert list(answer.to_pandas()["memory"]) == list(answer.ids)
    assert not any(note.startswith("warning:") for note in answer.notes)


def test_a_rescue_brings_the_memory_in(store: cw.OpenStore, answer: cw.Answer) -> None:
    assert "m089" not in answer.ids
    found = cw.why(answer, "m089", store=store)
    assert found.lost_at == "adjust" and "time decay" in found.cause
    assert "m089" in cw.replay(answer, found.counterfactual()).ids


def test_what_was_asked_wrongly_is_said(store: cw.OpenStore, cems: cw.PipelineConfig) -> None:
    with pytest.warns(cw.WorkbenchWarning, match=r"no memory of project 'harbor/apo'; did you mean harbor/api"):
        cw.search(store, "pool", cems, project="harbor/apo")
    for words, arguments in {
        "no memory of project": {"project": "harbor/apo", "only_project": True},
        "only_project needs a project": {"only_project": True},
        "expected an ISO 8601": {"as_of": "yesterday"},
        "needs a time zone": {"as_of": datetime(2026, 9, 1)},
    }.items():
        with pytest.raises(cw.InputError, match=words):
            cw.search(store, "pool", cems, **arguments)  # type: ignore[arg-type]


def test_evidence_is_gathered_once_and_measured(store: cw.OpenStore, cems: cw.PipelineConfig, tmp_path: Path) -> None:
    evidence = cw.gather(store, config=cems, limit=12)
    again: list[str] = []
    assert cw.gather(store, config=cems, limit=12, progress=lambda label, *_: again.append(label)).qids == evidence.qids
    assert again == [], "it was on the shelf"
    filed = cw.gather(store, config=cems, limit=12, out=tmp_path / "set.evidence")
    assert cw.evaluate(filed, measures="nDCG@10").means == pytest.approx(
        cw.evaluate(evidence, measures="nDCG@10").means
    )
    assert cw.evaluate(filed.path, measures="nDCG@10").means == cw.evaluate(filed, measures="nDCG@10").means
    slower = cw.load_config(cems, {"adjust.time_decay.half_life_days": 365})
    assert cw.evaluate(evidence, slower, "nDCG@10").evaluation.rankings.needs == {}


def test_a_config_is_a_transformer(store: cw.OpenStore, cems: cw.PipelineConfig) -> None:
    ours = cw.as_transformer(store, cems)
    queries = pd.DataFrame(
        {"qid": ["1", "2"], "query": [FAILING, "who reviews"], "as_of": [AS_OF, None], "mine": [7, 8]}
    )
    found = ours.transform(queries)
    assert list(found.columns) == ["qid", "query", "as_of", "mine", "docno", "score", "rank", "pipeline_score", "text"]
    first = found[found["qid"] == "1"]
    assert tuple(first["docno"]) == cw.search(store, FAILING, cems, as_of=AS_OF).ids
    assert list(first["rank"]) == list(range(len(first))) and first["score"].is_monotonic_decreasing
    assert set(first["mine"]) == {7}
    empty = ours.transform(queries.head(0))
    assert list(empty.columns) == list(found.columns) and empty.dtypes["score"].kind == "f"
    with pytest.raises(cw.InputError, match="expected the columns qid and query; query missing"):
        ours.transform(queries[["qid"]])


def test_it_stands_in_a_pipeline_of_pyterrier(store: cw.OpenStore, cems: cw.PipelineConfig) -> None:
    pt = pytest.importorskip("pyterrier")
    ours = cw.as_transformer(store, cems)
    assert isinstance(ours, pt.Transformer)
    topics = pd.DataFrame([{"qid": query.qid, "query": query.query} for query in store.queries(judged=True)[:4]])
    assert len((ours % 3)(topics)) == 12
    assert set((ours >> pt.apply.score(lambda row: -row["score"])).search(FAILING).columns) >= {
        "qid",
        "docno",
        "score",
        "rank",
    }
