"""A model judges pairs: kept as its own judgments, query by query, and never in place of a person's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from cems_workbench.config import PipelineConfig, with_values
from cems_workbench.errors import InputError, ModelError
from cems_workbench.evaluation.labelling import pooling
from cems_workbench.evaluation.labelling.pooling import prelabel, score_pairs
from cems_workbench.jobs.factory import servers
from cems_workbench.models.protocol import PairScore
from cems_workbench.pipeline.rerankers import ScorerRequest
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Cancelled
from cems_workbench.records import GradeScale, JudgeScale, Judgment, Memory, ParsedInput, Query
from cems_workbench.settings import Settings
from cems_workbench.store import ImportOptions, Store

PAIRS = [("q", "m0"), ("q", "m3"), ("r", "m1")]


class Lengthy:
    """A judge for whom longer is more relevant; it says what it was asked."""

    batch, label, scale = 8, "lengthy", JudgeScale(10.0, (30.0, 10.0, 5.0))

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def cache_model(self, query: str) -> str:
        return "lengthy"

    def score(self, query: str, texts: Sequence[str]) -> list[PairScore]:
        self.asked += [(query, text) for text in texts]
        return [PairScore(None, "empty reply: nothing") if text == "mute" else PairScore(len(text)) for text in texts]


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Lengthy:
    found = Lengthy()

    def instead(backend: str, request: ScorerRequest, use: Callable[[Lengthy], Any]) -> Any:
        return found, None, use(found)

    monkeypatch.setattr(pooling, "score_with", instead)
    return found


@pytest.fixture
def resources(tmp_path: Path) -> Iterator[Resources]:
    with Store.open(tmp_path / "store") as store:
        memories = (*tuple(Memory(f"m{n}", "x" * (10 * n + 1)) for n in range(5)), Memory("silent", "mute"))
        store.add(ParsedInput("t.jsonl", "t", memories=memories, queries=(Query("q", " what? "), Query("r", "who?"))))
        yield Resources(store, None, servers(Settings()))  # type: ignore[arg-type]


def test_scores_are_of_the_stripped_query_and_the_start_of_the_memory(resources: Resources, judge: Lengthy) -> None:
    config = with_values(PipelineConfig(), {"judge.max_chars": 12})
    found = score_pairs(PAIRS, config, resources)
    assert found.scores == {("q", "m0"): 1.0, ("q", "m3"): 12.0, ("r", "m1"): 11.0}
    assert {query for query, _ in judge.asked} == {"what?", "who?"}
    assert resources.store.judgments.read() == []


def test_a_score_is_asked_for_once(resources: Resources, judge: Lengthy) -> None:
    score_pairs(PAIRS, PipelineConfig(), resources)
    score_pairs(PAIRS, PipelineConfig(), resources)
    assert len(judge.asked) == 3


def test_prelabels_are_the_models_by_band_and_beside_a_persons(resources: Resources, judge: Lengthy) -> None:
    resources.store.labels.give(Judgment("q", "m3", 0, "ada"))
    prelabel(PAIRS, PipelineConfig(), resources)
    kept = resources.store.judgments.read(kind="model")
    assert [(one.qid, one.memory_id, one.grade, one.judge) for one in kept] == [
        ("q", "m0", 0, "lengthy"),
        ("q", "m3", 3, "lengthy"),
        ("r", "m1", 2, "lengthy"),
    ]
    assert kept[1].note == "score 31"
    assert [one.grade for one in resources.store.judgments.read(kind="human")] == [0]


def test_prelabels_are_on_the_scale_of_the_querys_set(resources: Resources, judge: Lengthy) -> None:
    yes_no = GradeScale(((0, "no"), (1, "yes")))
    resources.store.add(
        ParsedInput("u.jsonl", "t", queries=(Query("z", "why?"),)), options=ImportOptions("binary", yes_no)
    )
    prelabel([("z", "m0"), ("z", "m1")], PipelineConfig(), resources)
    assert [one.grade for one in resources.store.judgments.read("z")] == [0, 1]


def test_what_was_judged_before_a_cancel_stays(resources: Resources, judge: Lengthy) -> None:
    def cancel(label: str, done: int, total: int) -> None:
        if done == 2:
            raise Cancelled

    with pytest.raises(Cancelled):
        prelabel([*PAIRS, ("r", "m2")], PipelineConfig(), resources, cancel)
    assert [query for query, _ in judge.asked] == ["what?", "what?"]
    prelabel([*PAIRS, ("r", "m2")], PipelineConfig(), resources)
    assert len(judge.asked) == len(resources.store.judgments.read(kind="model")) == 4


def test_a_threshold_and_bands_of_the_config_go_before_the_judges_own(resources: Resources, judge: Lengthy) -> None:
    config = with_values(PipelineConfig(), {"judge.threshold": 3.0, "judge.bands": [40.0, 35.0, 0.0]})
    assert prelabel(PAIRS, config, resources).scale(config.judge) == JudgeScale(3.0, (40.0, 35.0, 0.0))
    assert {one.grade for one in resources.store.judgments.read(kind="model")} == {1}


def test_pairs_without_a_score_are_named_and_a_judge_of_nothing_is_an_error(resources, judge):
    found = prelabel([("q", "m0"), ("q", "silent"), ("gone", "m0"), ("q", "gone")], PipelineConfig(), resources)
    assert (set(found.scores), found.failed) == ({("q", "m0")}, {("q", "silent"): "empty reply: nothing"})
    with pytest.raises(ModelError, match="lengthy judged nothing: empty reply"):
        score_pairs([("q", "silent")], PipelineConfig(), resources)


def test_a_config_without_a_judge_is_refused(resources: Resources) -> None:
    with pytest.raises(InputError, match="the judge is off"):
        prelabel(PAIRS, with_values(PipelineConfig(), {"judge.backend": "none"}), resources)
