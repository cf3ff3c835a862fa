"""From search to proposal and report: folds, the sealed hold-out, queries without an answer, and no judgments at all."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from benchmarks.synthetic_queries import NOW, evidences, fusion_only, planted
from cems_workbench.config import PipelineConfig, dump_config, preset, with_values
from cems_workbench.config.evidence_card import parse_card
from cems_workbench.errors import InputError
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.evidence_file import EvidenceSet, Header, read_evidence_file
from cems_workbench.evaluation.metrics import parse_measure
from cems_workbench.jobs import tuning as job
from cems_workbench.jobs.evaluation import labelled_file
from cems_workbench.jobs.tuning import (
    ByJudgments,
    SearchResult,
    SearchSettings,
    TuningData,
    card_of,
    plan_search,
    planned_search,
    run_search,
    scored_queries,
    with_stability,
)
from cems_workbench.jobs.tuning import unlabelled_data as data_of
from cems_workbench.jobs.tuning_summary import headline
from cems_workbench.jobs.unlabelled import by_judgments, with_reference_reranker
from cems_workbench.pipeline import Evidence, Hit, RankedList, Variant
from cems_workbench.pipeline.evidence import ModelScore
from cems_workbench.pipeline.stages import RERANK
from cems_workbench.pipeline.stages.abstain import ABSTAIN
from cems_workbench.pipeline.table import Ints
from cems_workbench.progress import Cancelled, silent
from cems_workbench.records import Judgment, Memory, Query
from cems_workbench.report.page import number, signed
from cems_workbench.report.tuning import tuning_report
from cems_workbench.tuning.holdout import Gain, HoldoutLooks, gain, looks_path, split
from cems_workbench.tuning.objective import Goal, parse_goal, parse_guard
from cems_workbench.tuning.scorer import BatchScorer, measurable
from cems_workbench.tuning.space import SearchSpace, axis_for, parse_axis
from cems_workbench.tuning.tune import Plan, Trial, Tuned, Watch, open_holdout, tune, unwatched
from cems_workbench.tuning.unlabelled import (
    before_reranker,
    list_trust,
    reference_reranker,
    require_tunable_unlabelled,
    reranker_grades,
)
from tests.planted import planted_file

NDCG = parse_measure("nDCG@10")
GRID = ("lists.vector.weight=0.5:2.5:0.5", "fusion.score_blend=0:0.5:0.25")
WIDE = ("lists.vector.weight=0:3", "lists.lexical.weight=0:3", "fusion.k=1:121:5", "fusion.score_blend")


@cache
def batch() -> LabelledBatch:
    best = fusion_only({"lists.vector.weight": 2.5, "fusion.score_blend": 0.0})
    return planted(evidences(200, lists=2, hits=15), best, noise=0.2)


class Recording(BatchScorer):
    """A scorer that remembers which queries it was asked about."""

    asked: set[int] = set()  # noqa: RUF012 - set anew by `recording`

    def __call__(self, config: object, queries: Ints) -> np.ndarray:  # type: ignore[override]
        self.asked |= set(queries.tolist())
        return super().__call__(config, queries)  # type: ignore[arg-type]


def recording() -> Recording:
    score = Recording(batch(), [NDCG])
    score.asked = set()
    return score


def plan(*texts: str, trials: int = 24) -> Plan:
    groups = [f"conversation {row % 10}" for row in range(200)]
    space = SearchSpace.of(fusion_only(), [parse_axis(text) for text in texts])
    return Plan(space, Goal((NDCG,)), split(groups, folds=4, seed=1), [None] * 200, trials=trials, seed=1)


@pytest.mark.parametrize("texts", [GRID, WIDE], ids=["grid", "wide"])
def test_a_real_gain_is_proposed_validated_and_confirmed_on_queries_nobody_saw(texts: tuple[str, ...]) -> None:
    score, one = recording(), plan(*texts)
    tuned = tune(one, score)
    assert not score.asked & set(one.split.holdout.tolist()), "the hold-out stays sealed"
    assert tuned.validation is not None and tuned.validation.queries == len(one.split.open)
    assert tuned.validation.difference > 0 and tuned.validation.p_greater < 0.01 and tuned.validation.low > 0
    assert tuned.holdout is None and tuned.looks == 0
    opened = open_holdout(tuned, score, HoldoutLooks(), "set", [f"q{row}" for row in one.split.holdout.tolist()])
    assert opened.holdout is not None and opened.holdout.queries == len(one.split.holdout)
    assert opened.holdout.p_greater < 0.01 and opened.looks == 1
    assert opened.config.name == "cems-tuned" and opened.config.fusion != one.space.baseline.fusion


def test_a_fold_never_scores_its_queries_before_its_choice_is_made() -> None:
    one, score = plan(*WIDE, trials=12), recording()
    seen: dict[str, set[int]] = {}

    def stage(name: str) -> Watch:
        score.asked = set()

        def watch(done: int, total: int, best: Trial) -> None:
            seen[name] = set(score.asked)

        return watch

    tune(one, score, stage)
    for fold, held in enumerate(one.split.folds):
        assert seen[f"fold {fold + 1}"] == set(one.split.training(fold).tolist())
        assert not seen[f"fold {fold + 1}"] & set(held.tolist())


def test_cancelling_keeps_the_best_so_far_and_says_that_it_is_not_validated() -> None:
    def stage(name: str) -> Watch:
        def stop(done: int, total: int, best: Trial) -> None:
            if name == "fold 2":
                raise Cancelled

        return stop

    tuned = tune(plan(*WIDE, trials=10), BatchScorer(batch(), [NDCG]), stage)
    assert tuned.search.cancelled and tuned.validation is None
    assert len(tuned.search.trials) > 5 and tuned.proposal.usable
    assert stage("search") is not unwatched


def test_looks_are_counted_in_a_file_per_query_set_and_query(tmp_path: Path) -> None:
    path = looks_path(tmp_path / "x.evidence", "my set/v2")
    assert path == tmp_path / "my-set-v2.looks.json" == looks_path(tmp_path / "gathered-again.evidence", "my set/v2")
    assert looks_path(tmp_path / "x.evidence", "") == tmp_path / "x.evidence.looks.json"
    assert HoldoutLooks(path).look("s", ["q2", "q1"]) == 1
    assert HoldoutLooks(path).look("s", ["q1", "q2"]) == 2
    looks = HoldoutLooks(path)
    assert (looks.count("s", ["q2", "q1"]), looks.count("s", ["q3"]), looks.count("other", ["q1"])) == (2, 0, 0)
    assert looks.look("s", ["q2", "q3"]) == 3, "one of these queries was looked at twice before"
    assert (looks.count("s", ["q1"]), looks.count("s", ["q3"]), looks.count("s", [])) == (2, 1, 0)


@pytest.mark.parametrize("text", ["[]", "{", '{"looks": {"s": 3}}', '{"looks": {"s": {"q": "x"}}}', "[" * 100_000])
def test_a_count_of_looks_that_is_not_one_is_refused_and_never_started_anew(tmp_path: Path, text: str) -> None:
    (tmp_path / "looks.json").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"looks\.json: the count of looks cannot be read"):
        HoldoutLooks(tmp_path / "looks.json")


def test_a_gain_has_its_difference_and_a_one_sided_p() -> None:
    better = gain(np.zeros(40), np.full(40, 0.1))
    assert better.difference == pytest.approx(0.1) and better.p_greater < 0.001
    assert gain(np.full(40, 0.1), np.zeros(40)).p_greater > 0.999
    assert gain(np.ones(40), np.ones(40)).p_greater == 0.5


MOMENT = datetime(2026, 11, 24, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return planted_file(tmp_path_factory.mktemp("planted"), 40)


def searched(evidence: Path, *metrics: str, space: tuple[str, ...] = GRID, trials: int = 12) -> SearchResult:
    read = read_evidence_file(evidence)
    data = TuningData(fusion_only(), read.header.query_set, labelled_file(read, None))
    planned = planned_search(
        data, parse_goal(list(metrics), ["recall@10-0.2"]), space, group_by="query", folds=3, trials=trials
    )
    return run_search(planned)


def text_of(page: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", page).split())


def cells(found: Gain, p: bool = True) -> str:
    return (
        f"{found.queries} {number(found.baseline)} {number(found.tuned)} {signed(found.difference)} "
        f"{signed(found.low)} to {signed(found.high)} {number(found.p) if p else '–'}"
    )


def test_gains_looks_stability_and_card_are_those_of_the_result(evidence: Path, tmp_path: Path) -> None:
    result = with_stability(searched(evidence, "nDCG@10", "hit@1"), silent)
    sealed = text_of(tuning_report(result, MOMENT))
    assert f"{len(result.planned.sealed)} queries sealed and not looked at" in sealed
    result = job.open_holdout(result, HoldoutLooks(tmp_path / "looks.json"))
    said = text_of(tuning_report(result, MOMENT))
    tuned = result.tuned
    assert tuned.validation is not None and tuned.holdout is not None
    assert headline(result) in said and "this was look 1" in said
    both = (
        f"{tuned.validation.tuned:.3f} on queries that the search did not see",
        f"on {tuned.holdout.queries} sealed queries",
    )
    assert all(
        part in headline(result) for part in both
    )  # the hold-out replaced the folds' p of 0.021 (29 November 2026)
    kept = replace(result, tuned=replace(tuned, proposal=tuned.search.baseline))
    assert headline(kept).endswith("the baseline is proposed")  # which the hold-out cannot differ from
    assert cells(tuned.validation) in said and cells(tuned.holdout) in said
    assert "Guarded: recall@10" in said
    for region, (path, was, now) in zip(result.regions, changes(result), strict=True):
        assert f"{path} {was:g} {now:g} " in said and f"{region.low:g} to" in said.replace(
            "up to", f"{region.low:g} to"
        )
    assert all(line in said for line in card_of(result, "2026-11-24").text.split("\n")[0:1])
    assert result.planned.data.labelled.content_hash in said and "2026-11-24 12:00 UTC" in said
    assert said.count("nDCG@10 hit@1 lists.vector.weight") == 1  # the front, as a table
    assert said.count(" tried: nDCG@10 ") + said.count(" on the front: nDCG@10 ") >= sum(
        t.usable for t in tuned.search.trials
    )


def changes(result: SearchResult) -> list[tuple[str, float, float]]:
    space = result.planned.plan.space
    own = space.values_of(space.baseline)
    rows = zip(space.axes, own, result.tuned.proposal.values, strict=True)
    return [(axis.path, float(was), float(now)) for axis, was, now in rows]


def test_a_search_that_found_nothing_says_so(evidence: Path) -> None:
    said = text_of(tuning_report(searched(evidence, "nDCG@10", space=("judge.threshold=0.1:0.2:0.1",)), MOMENT))
    assert "the baseline is proposed" in said and "The best config reached" in said
    assert "Pareto" not in said and "Stable:" not in said


def test_what_no_judgment_chose_is_called_so_and_held_against_judgments(evidence: Path) -> None:
    result = searched(evidence, "nDCG@10")
    gains = [Gain(9, 0.4, 0.4 + step, step - 0.01, step + 0.01, 0.01) for step in (0.1, 0.2, 0.3, 0.4)]
    planned = replace(result.planned, data=replace(result.planned.data, stands_in="a <b>reranker</b>"))
    found = ByJudgments("set", *gains, labelled_values={"fusion.k": 30})
    page = tuning_report(replace(result, planned=planned, by_judgments=found), MOMENT)
    said = text_of(page)
    assert "Unlabelled: no judgment chose this. The order of a &lt;b&gt;reranker" in said and "<b>reranker" not in page
    assert [cells(gain) in said for gain in gains] == [True, True, True, False]
    assert cells(gains[3], p=False) in said and "With judgments: fusion.k 30." in said


ONE_AXIS = "abstain.vector=0:1:0.1"


def both_kinds(each: int = 20) -> LabelledBatch:
    """Queries whose first cosine is 0.55 to 0.75 with an answer, and 0.35 to 0.65 without one; the first hit is the answer."""
    queries, evidences, grades = [], {}, {}
    for kind, low, high in ((True, 0.55, 0.75), (False, 0.35, 0.65)):
        for i, top in enumerate(np.linspace(low, high, each)):
            qid, ids = f"{kind}{i}", [f"{kind}{i}-{n}" for n in range(5)]
            hits = tuple(Hit(key, float(top) - n / 100) for n, key in enumerate(ids))
            evidences[qid] = Evidence(
                qid,
                {key: Memory(key, key) for key in ids},
                (Variant(qid),),
                (RankedList("vector:0", "vector", 0, hits),),
                NOW,
            )
            queries.append(Query(qid, qid, answerable=None if kind else False))
            if kind:
                grades[qid] = {ids[0]: 1}
    return LabelledBatch(queries, evidences, grades)


def bounded(goal: Goal, groups: int) -> Tuned:
    """The search over `ONE_AXIS` on both kinds of queries, in so many groups."""
    made = measurable(both_kinds(), goal.measures)
    space, count = SearchSpace.of(fusion_only(), [parse_axis(ONE_AXIS)]), len(made.queries)
    parts = split([f"g{i % groups}" for i in range(count)], 4, 0.0, 1)
    return tune(Plan(space, goal, parts, [None] * count, 20, 1), BatchScorer(made, goal.measures))


def test_means_are_over_the_queries_that_a_measure_is_of() -> None:
    """At 0.6: 5 of 20 answers and 16 of 20 noises have a cosine below it."""
    goal = parse_goal(["hit@1", "noise@5"])
    assert goal.directions.tolist() == [1, -1]
    trials = bounded(goal, 8).search.trials
    assert all(trial.usable for trial in trials)
    reached = {
        trial.values[0] and round(trial.values[0], 1): goal.as_measured(trial.reached).tolist() for trial in trials
    }
    assert reached[None] == [1.0, 1.0] and reached[0.8] == [0.0, 0.0]
    assert reached[0.6] == pytest.approx([0.75, 0.2], abs=0.05)
    assert len(set(map(tuple, reached.values()))) > 3


@pytest.mark.parametrize(
    ("metric", "guard"), [("hit@1", "noise@5<=0.5"), ("noise@5", "hit@1>=0.9"), ("noise@5", "refused<=0.1")]
)
def test_the_best_within_a_bound_is_proposed_and_measured_in_the_measures_own_scale(metric: str, guard: str) -> None:
    goal = parse_goal([metric], [guard])
    tuned = bounded(goal, 8)
    # 0.5 lets half the noise through and refuses no answer; 0.6 refuses a quarter of them.
    assert tuned.proposal.values[0] == pytest.approx(0.5)
    assert tuned.validation is not None
    assert (tuned.validation.queries, tuned.validation.direction) == (20, goal.objectives[0].direction)
    if metric == "noise@5":
        assert tuned.validation.difference < 0 < tuned.validation.improvement
        assert tuned.validation.baseline == 1.0 and tuned.validation.p_greater < 0.01
        assert 0 < tuned.train == pytest.approx(tuned.validation.tuned, abs=0.1)


def test_a_bound_that_nothing_holds_leaves_the_baseline() -> None:
    goal = parse_goal(["hit@1"], ["noise@5<=0.1", "hit@1>=0.9"])
    tuned = bounded(goal, 40)
    assert tuned.kept and {str(guard) for guard in tuned.proposal.broken} == {"noise@5 at most 0.1"}
    assert not any(trial.usable for trial in tuned.search.trials)


def test_queries_without_an_answer_count_only_where_a_measure_is_of_them() -> None:
    sizes = {text: len(measurable(both_kinds(), parse_goal([text]).measures).queries) for text in ("hit@1", "noise@5")}
    assert sizes == {"hit@1": 20, "noise@5": 20}
    assert len(measurable(both_kinds(), parse_goal(["hit@1"], ["answered"]).measures).queries) == 40


@pytest.mark.parametrize(
    ("guard", "says"),
    [
        ("noise@5", "noise@5 not above the baseline"),
        ("temporal:noise@5-0.1", "temporal noise@5 not above the baseline + 0.1"),
        ("noise@5 <= 0.25", "noise@5 at most 0.25"),
        ("hit@1>=.5", "hit@1 at least 0.5"),
    ],
)
def test_guards_say_which_side_is_worse(guard: str, says: str) -> None:
    assert str(parse_guard(guard)) == says


@pytest.mark.parametrize(
    ("guard", "reason"),
    [
        ("noise@5>=0.2", "less of noise@5 is better: write noise@5<=0.2"),
        ("hit@1<=0.2", "more of hit@1 is better"),
        ("hit@1>=1.2.3", "1.2.3 is not a number"),
        ("AUROC>=0.8", "of all queries together"),
    ],
)
def test_a_guard_that_says_nothing_is_one_line(guard: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        parse_guard(guard)


READER = "cross_encoder"


def scored(raw: Mapping[str, float | None], reader: str = READER) -> Evidence:
    """Evidence of one query whose candidates a reranker scored so; None where it failed."""
    scores = {key: ModelScore(value, error=None if value is not None else "refused") for key, value in raw.items()}
    return Evidence("query", {key: Memory(key, key) for key in raw}, model_scores={reader: scores})


def test_the_first_three_of_the_reranker_have_grades_and_equal_scores_have_equal_ones() -> None:
    evidence = scored({"a": 5.0, "b": 4.0, "c": 4.0, "d": 2.0, "e": 1.0})
    assert reranker_grades({"q": evidence}, READER) == {"q": {"a": 3, "b": 2, "c": 2}}


@pytest.mark.parametrize(
    "raw",
    [
        {"a": 3.0, "b": 2.0, "c": 1.0},
        {"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0},
        {"a": 3.0, "b": 2.0, "c": 1.0, "d": None},
    ],
    ids=["three", "equal", "failed"],
)
def test_a_query_that_the_reranker_tells_nothing_of_is_left_out(raw: dict[str, float | None]) -> None:
    assert reranker_grades({"q": scored(raw)}, READER) == {}


def test_the_configs_own_reranker_stands_in_or_else_the_one_that_scored_the_most() -> None:
    own = fusion_only({"rerank.backend": "cross_encoder", "rerank.model": "mine"})
    found = [scored({"a": 1.0}, "small"), scored({"a": 1.0, "b": 2.0}, "large")]
    assert reference_reranker(fusion_only(), found) == "large"
    assert reference_reranker(own, found) is None
    assert reference_reranker(own, [*found, scored({"a": 1.0}, "mine")]) == "mine"


def test_a_reranker_that_reads_with_the_embedder_of_the_vector_list_does_not_stand_in() -> None:
    config = fusion_only({"rerank.backend": "late_interaction"})
    found = [scored({"a": 1.0, "b": 2.0}, "late_interaction"), scored({"a": 1.0}, "small")]
    assert reference_reranker(config, found) == reference_reranker(fusion_only(), found) == "small"
    assert reference_reranker(config, found[:1]) is None
    assert with_reference_reranker(config).rerank.backend == "cross_encoder"


@pytest.mark.parametrize("name", ["workbench", "cems", "ace"])
def test_nothing_after_the_fusion_is_measured(name: str) -> None:
    whole = preset(name).config
    config = before_reranker(whole)
    assert RERANK.is_off(config) and ABSTAIN.is_off(config)
    assert config.filter.min_score is None and not config.adjust.priority and config.assembly.max_tokens is None
    assert (config.lists, config.fusion, config.variants) == (whole.lists, whole.fusion, whole.variants)


@pytest.mark.parametrize("path", ["rerank.bands.0", "rerank.depth", "adjust.project.same", "filter.min_score"])
def test_what_the_order_of_a_reranker_says_nothing_of_is_refused(path: str) -> None:
    require_tunable_unlabelled([axis_for("lists.vector.weight"), axis_for("fusion.k")])
    with pytest.raises(InputError, match="without labels"):
        require_tunable_unlabelled([axis_for("lists.vector.weight"), axis_for(path)])


def two_lists(vector: Mapping[str, float], lexical: Mapping[str, float], raw: Mapping[str, float]) -> Evidence:
    lists = [
        RankedList(f"{name}:0", name, 0, tuple(Hit(key, score) for key, score in hits.items()))
        for name, hits in (("vector", vector), ("lexical", lexical))
    ]
    memories = {key: Memory(key, key) for key in {*vector, *lexical}}
    read = {READER: {key: ModelScore(score) for key, score in raw.items()}}
    return Evidence("query", memories, (Variant("query"),), tuple(lists), NOW, model_scores=read)


def test_trust_in_a_list_is_worked_out_by_hand() -> None:
    """The vector list has the reranker's order, the lexical one its first alone, at rank 2: 3 / log2(3) of 3 + 2 / log2(3) + 1 / 2."""
    vector = {f"m{i}": 1.0 - i / 20 for i in range(10)} | {"m0": 1.5}
    lexical = {"x": 9.0, "m0": 3.0}
    evidence = two_lists(vector, lexical, {"m0": 9.0, "m1": 5.0, "m2": 3.0, "m3": 1.0})
    batch = LabelledBatch([Query("q", "query")], {"q": evidence}, reranker_grades({"q": evidence}, READER))
    rows = {row.source: row for row in list_trust(batch, fusion_only(), READER, parse_measure("nDCG@10"))}
    assert rows["vector"].agreement == pytest.approx(1.0)
    assert rows["lexical"].agreement == pytest.approx((3 / np.log2(3)) / (3 + 2 / np.log2(3) + 1 / 2))
    assert (rows["vector"].read, rows["lexical"].read) == pytest.approx((0.4, 0.5))
    assert (rows["vector"].shared, rows["lexical"].shared) == pytest.approx((0.1, 0.5))


def reading(evidence: Evidence, source: str) -> Evidence:
    """Evidence whose reranker thinks as one of the lists does."""
    hits = next(ranked.hits for ranked in evidence.lists if ranked.source == source)
    return replace(evidence, model_scores={READER: {hit.memory_id: ModelScore(hit.score) for hit in hits}})


def evidence_set(tmp_path: Path, config: PipelineConfig, teacher: str, judge: str) -> EvidenceSet:
    """Sixty queries whose reranker thinks as one list does, and judgments that prefer the first hits of one."""
    made = [reading(one, teacher) for one in evidences(60, lists=2, hits=12)]
    queries = tuple(Query(f"q{i}", one.query, project=f"p{i % 8}") for i, one in enumerate(made))
    judgments = tuple(
        Judgment(query.qid, hit.memory_id, 1)
        for query, one in zip(queries, made, strict=True)
        for hit in next(ranked.hits for ranked in one.lists if ranked.source == judge)[:2]
    )
    header = Header("made up", "store1", 1, "none", dump_config(config), NOW.isoformat())
    found = {query.qid: one for query, one in zip(queries, made, strict=True)}
    return EvidenceSet(tmp_path / "set.evidence", header, queries, judgments, found, "hash", True, 1.0)


def proposal(evidence: EvidenceSet, config: PipelineConfig) -> SearchResult:
    """What is proposed without judgments of the weights of both lists."""
    data = data_of(config, "made up", evidence)
    goal = parse_goal(["nDCG@10"])
    axes = [parse_axis(f"lists.{name}.weight=0:2:0.5") for name in ("vector", "lexical")]
    settings = SearchSettings("query", sealed=0.0)
    queries = scored_queries(data, goal.measures, 0)
    return run_search(plan_search(data, queries, SearchSpace.of(config, axes), goal, settings))


RERANKING = {"rerank.backend": "cross_encoder", "rerank.model": None, "fusion.score_blend": 0.0}


@pytest.mark.parametrize(("teacher", "other"), [("vector", "lexical"), ("lexical", "vector")])
def test_the_list_that_the_reranker_agrees_with_is_given_more_weight_also_where_it_reranks(tmp_path, teacher, other):
    config = fusion_only(RERANKING)
    result = proposal(evidence_set(tmp_path, config, teacher, teacher), config)
    found = result.tuned.config
    assert found.get(f"lists.{teacher}.weight") > found.get(f"lists.{other}.weight")
    assert found.name == "cems-unlabelled" and found.rerank == config.rerank
    assert result.planned.sealed == []


def test_judgments_choose_nothing_and_are_not_rewritten(tmp_path: Path) -> None:
    config = fusion_only(RERANKING)
    one, other = (proposal(evidence_set(tmp_path, config, "vector", judge), config) for judge in ("vector", "lexical"))
    assert one.tuned.config == other.tuned.config and one.tuned.train == other.tuned.train
    assert one.planned.data.labelled.grades.judgments == one.planned.data.evidence.judgments


def test_a_proposal_is_held_against_judgments_and_its_card_never_says_tuned(tmp_path: Path) -> None:
    config = fusion_only(RERANKING)
    evidence = evidence_set(tmp_path, config, "vector", "vector")
    before = proposal(evidence, config)
    assert "it was not measured by judgments" in card_of(before, "2026-11-23").text
    result = by_judgments(before, labelled_file(evidence, None), SearchSettings("query"))
    held = result.by_judgments
    assert held is not None and held.proposal.queries == 48 and held.proposal.low > 0  # a fifth stays sealed
    assert held.share == pytest.approx(held.proposal.improvement / held.hindsight.improvement)
    card = card_of(result, "2026-11-23")
    assert "UNLABELLED" in card.text and "tuned against" not in card.text
    assert [row.metric for row in card.measured] == ["nDCG@10 against the reranker’s order", "nDCG@10", "nDCG@10"]
    assert "chose nothing" in card.measured[1].split and parse_card(card.to_json(), "card") == card


def test_a_reranker_that_is_wrong_gains_nothing_by_judgments(tmp_path: Path) -> None:
    config = fusion_only(RERANKING)
    evidence = evidence_set(tmp_path, config, "vector", "lexical")
    result = by_judgments(proposal(evidence, config), labelled_file(evidence, None), SearchSettings("query"))
    assert result.by_judgments is not None
    assert result.by_judgments.proposal.high < 0 < result.by_judgments.labelled.low
    assert result.by_judgments.share is not None and result.by_judgments.share < 0


def test_evidence_without_scores_of_the_reranker_says_what_to_do(tmp_path: Path) -> None:
    config = fusion_only(RERANKING)
    other = with_values(config, {"rerank.model": "another"})
    with pytest.raises(InputError, match=r"rerank\.backend=cross_encoder"):
        data_of(other, "made up", evidence_set(tmp_path, config, "vector", "vector"))
