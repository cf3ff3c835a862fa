"""Evaluation's jobs: scores that are missing, labels, what a store lacks, and the sample's further judgments."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from benchmarks.synthetic_queries import fusion_only
from cems_workbench import formats
from cems_workbench.builtin import SAMPLE_DATA
from cems_workbench.config import PipelineConfig, dump_config, preset, with_values
from cems_workbench.errors import InputError
from cems_workbench.evaluation.batch import missing_score_lines
from cems_workbench.evaluation.evidence_file import EvidenceFile, EvidenceSet, Header, read_evidence_file
from cems_workbench.evaluation.grades import agreed_grades
from cems_workbench.evaluation.labelling.pooling import PooledPair
from cems_workbench.evaluation.labelling.queue import LabelQueue, make_queue
from cems_workbench.evaluation.metrics import parse_measures
from cems_workbench.jobs.evaluation import EvaluationReport, agreed, evaluate_configs, labelled, labelled_file
from cems_workbench.jobs.factory import RecentCache, servers
from cems_workbench.jobs.labelling import add_to_set, give_grade, own_grade
from cems_workbench.jobs.query_grades import stored_query
from cems_workbench.jobs.query_set_evidence import measurable
from cems_workbench.jobs.scoring import score_evidence, score_lacking, why_not_scored
from cems_workbench.jobs.store_status import missing_data
from cems_workbench.models.minilm_judge import MODEL_ID
from cems_workbench.pipeline import Evidence, ModelScore, replay
from cems_workbench.pipeline.gather import Request
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Cancelled
from cems_workbench.records import Judgment, Memory, ParsedInput, Query
from cems_workbench.settings import Settings
from cems_workbench.store import ImportOptions, Store
from cems_workbench.store.importing import set_name
from cems_workbench.ui.evaluate.setup import of_evaluated
from tests.planted import PLANTED, planted_file
from tests.sample import copied
from tests.small_store import HashEmbedder, empty_store, parsed, store

NOW = "2026-09-01T00:00:00+00:00"
TEXTS = {
    "a": "The release goes out on Tuesdays.",
    "b": "Redis evicts keys at 2 GB.",
    "c": "Ada prefers tea.",
    "d": "The cache is warmed at five.",
    "e": "Tests run on two cores.",
    "f": "Lunch is at noon.",
}
QUERIES = [
    Query(f"q{i}", text)
    for i, text in enumerate(("when is the release", "redis limit", "who drinks tea", "lunch", "none"))
]
JUDGMENTS = [
    Judgment("q0", "a", 2),
    Judgment("q1", "b", 1),
    Judgment("q2", "c", 1),
    Judgment("q3", "f", 1),
    Judgment("q4", "a", 0),
]
"""Of q4 nothing is relevant."""
RERANKED = with_values(
    PipelineConfig(),
    {
        "name": "reranked",
        "adjust.priority": False,
        "adjust.time_decay.mode": "none",
        "filter.min_score": None,
        "judge.backend": "none",
        "lists.lexical.enabled": False,
        "rerank.backend": "cross_encoder",
        "rerank.depth": 3,
        "rerank.skip_if_few": False,
    },
)
OTHERWISE = {"gathered": {"rerank.chunk_chars": 999}}
MEASURES = parse_measures("nDCG@10")


def gathered(query: Query, first: int, scored: Mapping[str, float]) -> Evidence:
    """Lists that begin with another memory for each query."""
    from cems_workbench.pipeline import Hit, RankedList, Variant

    ids = list(TEXTS)[first:] + list(TEXTS)[:first]
    hits = tuple(Hit(key, 0.9 - 0.1 * i) for i, key in enumerate(ids))
    return Evidence(
        query=query.query,
        memories={key: Memory(key, text) for key, text in TEXTS.items()},
        variants=(Variant(query.query),),
        lists=(RankedList("vector:0", "vector", 0, hits),),
        model_scores={"cross_encoder": {key: ModelScore(raw, TEXTS[key]) for key, raw in scored.items()}}
        if scored
        else {},
        notes={"rerank_scores": {"scored": len(scored), "cached": 0}},
    )


@pytest.fixture
def resources(empty_store: Path, tmp_path: Path) -> Iterator[Resources]:
    store = Store.open(shutil.copytree(empty_store, tmp_path / "store"))
    opened = Resources(store, HashEmbedder(), servers(Settings(cross_encoder=MODEL_ID)))
    yield opened
    opened.close()


def written(path: Path, evidences: Mapping[str, Evidence], resources: Resources | None = None) -> EvidenceSet:
    """An evidence file, of the store of `resources`."""
    store = ("store1", 1) if resources is None else (resources.store.identity, resources.store.content_version)
    header = Header("small", *store, "hash-16", dump_config(RERANKED), NOW)
    path.unlink(missing_ok=True)
    with EvidenceFile.create(path, header, QUERIES, JUDGMENTS) as file:
        for qid, one in evidences.items():
            file.add(qid, one, 0.5)
        file.finish()
    return read_evidence_file(path)


def banner_lines(lacking):
    """The lines of the page's banner."""
    return missing_score_lines((one.name, one.needs) for one in lacking)


def with_holes(rng: np.random.Generator) -> dict[str, Evidence]:
    """Each query with the scores of some of its memories."""
    made = {}
    for i, query in enumerate(QUERIES):
        kept = [key for key in TEXTS if rng.random() < 0.75]
        made[query.qid] = gathered(query, i, {key: float(rng.normal()) for key in kept})
    return made


def evaluated(evidence: EvidenceSet, *configs: PipelineConfig) -> list[EvaluationReport]:
    on_file = labelled_file(evidence, None)
    return evaluate_configs([(config.name, config) for config in configs], lambda _: on_file, MEASURES)[0]


def test_scoring_fills_what_the_configs_lack_and_nothing_else(tmp_path: Path, resources: Resources) -> None:
    holed = with_holes(np.random.default_rng(3))
    evidence = written(tmp_path / "holed.evidence", holed, resources)
    deeper = with_values(RERANKED, {"name": "deeper", "rerank.depth": 5})
    rows = evaluated(evidence, RERANKED, deeper)
    assert len(banner_lines(of_evaluated(rows))) == 2
    asked = Settings(cross_encoder=MODEL_ID)
    assert why_not_scored(of_evaluated(rows), resources, asked, lambda: pytest.fail("no server is asked")) is None
    (report,) = score_lacking(of_evaluated(rows), resources)
    filled = read_evidence_file(evidence.path)
    assert filled.complete and report.content_hash == filled.content_hash != evidence.content_hash
    assert banner_lines(of_evaluated(evaluated(filled, RERANKED, deeper))) == []
    added = 0
    for qid, before in holed.items():
        after = filled.evidences[qid]
        head = [hit.memory_id for hit in before.lists[0].hits][:5]
        there = before.model_scores["cross_encoder"]
        assert after.model_scores["cross_encoder"].keys() == there.keys() | set(head)
        assert all(after.model_scores["cross_encoder"][key] == score for key, score in there.items())
        new = [after.model_scores["cross_encoder"][key] for key in head if key not in there]
        assert all(score.good for score in new)
        assert after.notes["rerank_scores"] == before.notes["rerank_scores"], "what gathering took stays"
        assert (after.notes["scored_later"] if new else 0) == len(new)
        added += len(new)
    assert report.pairs == added > 0 and not report.failed
    (row,) = evaluated(filled, RERANKED)
    assert row.evaluation.figures.scored_later == f"{added} pairs that a reranker scored after gathering"
    best = replay(filled.evidences["q0"], RERANKED).results[0]
    assert best.memory_id == "a", "the packaged cross-encoder reads"
    again = score_evidence(filled, [deeper], resources)
    assert (again.pairs, again.content_hash) == (0, filled.content_hash)


def test_a_cancelled_run_leaves_a_valid_file_with_what_was_finished(tmp_path: Path, resources: Resources) -> None:
    evidence = written(
        tmp_path / "bare.evidence", {q.qid: gathered(q, i, {}) for i, q in enumerate(QUERIES)}, resources
    )

    def until_two(label: str, done: int, total: int) -> None:
        if done == 2:
            raise Cancelled

    with pytest.raises(Cancelled):
        score_evidence(evidence, [RERANKED], resources, until_two)
    kept = read_evidence_file(evidence.path)
    assert kept.complete
    assert [bool(one.model_scores) for one in kept.evidences.values()] == [True, True, False, False, False]
    report = score_evidence(kept, [RERANKED], resources)
    assert (report.queries, report.pairs) == (3, 9)
    with pytest.raises(InputError, match="has changed since it was read"):  # of what was read before
        score_evidence(evidence, [RERANKED], resources)
    assert read_evidence_file(evidence.path).content_hash == report.content_hash


def test_scores_of_other_texts_are_not_mixed_with_those_that_are_there(tmp_path: Path, resources: Resources) -> None:
    bare = {q.qid: replace(gathered(q, i, {}), notes=OTHERWISE) for i, q in enumerate(QUERIES)}
    evidence = written(tmp_path / "bare.evidence", bare, resources)
    cut = with_values(RERANKED, {"name": "cut", "rerank.chunk_chars": 10})
    rule = "5 queries lack rerank.chunk_chars: gathered with 999, wanted"
    scores = "5 queries lack reranker scores of some candidates"
    first = of_evaluated(evaluated(evidence, RERANKED, cut))
    assert banner_lines(first) == [
        f"reranked, cut: {scores}",
        f"reranked: {rule} {RERANKED.rerank.chunk_chars}",
        f"cut: {rule} 10",
    ]
    (report,) = score_lacking(first[1:], resources)
    filled = read_evidence_file(evidence.path)
    assert report.pairs == 15 and banner_lines(of_evaluated(evaluated(filled, cut))) == []
    assert (
        max(
            len(score.chunk or "")
            for one in filled.evidences.values()
            for score in one.model_scores["cross_encoder"].values()
        )
        == 10
    )
    (other,) = of_evaluated(evaluated(filled, with_values(RERANKED, {"rerank.depth": 4})))
    assert (
        banner_lines([other])[1]
        == f"reranked: 5 queries lack rerank.chunk_chars: gathered with 10, wanted {RERANKED.rerank.chunk_chars}"
    )
    assert other.unscored == 5 and not other.scorable and score_lacking([other], resources) == []
    assert score_evidence(filled, [other.config], resources).pairs == 0


def test_evidence_of_another_store_is_not_scored_and_the_reason_is_said(tmp_path: Path, resources: Resources) -> None:
    evidence = written(tmp_path / "theirs.evidence", with_holes(np.random.default_rng(3)))
    missing_scores = of_evaluated(evaluated(evidence, RERANKED))
    why = why_not_scored(missing_scores, resources, Settings(), lambda: pytest.fail("no server is asked"))
    assert why is not None and "another store" in why
    with pytest.raises(InputError, match="another store"):
        score_evidence(evidence, [RERANKED], resources)


def test_a_pair_that_the_reranker_fails_on_stays_unscored(tmp_path: Path, resources: Resources) -> None:
    evidence = written(
        tmp_path / "bare.evidence", {q.qid: gathered(q, i, {}) for i, q in enumerate(QUERIES)}, resources
    )
    nobody = with_values(RERANKED, {"rerank.backend": "ollama"})  # without a model that it could ask
    report = score_evidence(evidence, [nobody], resources)
    assert report.pairs == 0 and sum(report.failed.values()) == 15
    assert report.content_hash == read_evidence_file(evidence.path).content_hash == evidence.content_hash


def test_the_button_of_the_banner_scores_and_the_banner_is_gone(tmp_path: Path, resources: Resources) -> None:
    from streamlit.testing.v1 import AppTest

    def banner(path: "Path", resources: "Resources", locked: "str | None") -> None:  # noqa: UP037
        import streamlit as st
        from test_scoring import RERANKED, evaluated

        from cems_workbench.evaluation.evidence_file import read_evidence_file
        from cems_workbench.ui.evaluate import setup

        rows = setup.of_evaluated(evaluated(read_evidence_file(path), RERANKED))
        if setup.draw_missing_scores("test", rows, resources, locked=locked):
            st.rerun()

    evidence = written(tmp_path / "holed.evidence", with_holes(np.random.default_rng(3)), resources)
    (expected,) = banner_lines(of_evaluated(evaluated(evidence, RERANKED)))
    given = {"path": evidence.path, "resources": resources}
    shut = AppTest.from_function(banner, kwargs={**given, "locked": "the file is read-only"}).run()
    assert not shut.exception and not shut.button
    assert "cannot be added here: the file is read" in shut.warning[0].value.replace("\\", "")
    page = AppTest.from_function(banner, kwargs={**given, "locked": None}).run()
    assert expected in page.warning[0].value.replace("\\", "")
    page.button(key="test:score").click().run(timeout=20)
    assert not page.exception and not page.warning and not page.button
    assert read_evidence_file(evidence.path).content_hash != evidence.content_hash


MEASURED = parse_measures("hit@1 recall@3")


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> EvidenceSet:
    return read_evidence_file(planted_file(tmp_path_factory.mktemp("planted"), 16))


def test_a_person_goes_before_a_model_unless_one_kind_is_asked_for() -> None:
    judgments = [Judgment("q", "a", 0), Judgment("q", "a", 3, "m", "model"), Judgment("q", "b", 2, "m", "model")]
    assert agreed(judgments, None).grades == {"q": {"a": 0, "b": 2}}
    assert agreed(judgments, "human").grades == {"q": {"a": 0}}
    assert agreed(judgments, "model").grades == {"q": {"a": 3, "b": 2}}


def test_the_config_that_labels_were_planted_by_finds_all_of_them(evidence: EvidenceSet) -> None:
    on_file = labelled_file(evidence, None)
    measured, missing = evaluate_configs([("planted", PLANTED), ("plain", fusion_only())], lambda _: on_file, MEASURED)
    assert missing == [] and [row.name for row in measured] == ["planted", "plain"]
    best, plain = (row.evaluation for row in measured)
    assert [summary.mean for summary in best.summaries] == [1.0, 1.0]
    assert plain.summaries[1].mean < 1.0
    assert best.config.name == "planted" and measured[0].content_hash == evidence.content_hash


def test_a_config_whose_evidence_is_not_there_is_named_and_the_others_are_measured(evidence: EvidenceSet) -> None:
    on_file = labelled_file(evidence, None)
    measured, missing = evaluate_configs(
        [("deep", fusion_only({"lists.vector.depth": 7})), ("planted", PLANTED)],
        lambda config: None if config.lists.vector.depth == 7 else on_file,
        MEASURED,
    )
    assert [row.name for row in measured] == ["planted"]
    assert [(name, config.lists.vector.depth) for name, config in missing] == [("deep", 7)]


def test_a_cache_gives_the_batch_and_the_evaluation_again_until_a_grade_changes(evidence: EvidenceSet) -> None:
    cache = RecentCache(8)
    first, second = (labelled(evidence, agreed(evidence.judgments, None), cache) for _ in range(2))
    assert second.batch is first.batch
    changed = labelled(evidence, agreed(evidence.judgments[1:], None), cache)
    assert changed.batch is not first.batch and changed.key != first.key
    (once,), _ = evaluate_configs([("a", PLANTED)], lambda _: first, MEASURED, cache=cache)
    (again,), _ = evaluate_configs([("a", PLANTED)], lambda _: second, MEASURED, cache=cache)
    assert again.evaluation is once.evaluation
    (renamed,), _ = evaluate_configs([("b", PLANTED)], lambda _: first, MEASURED, cache=cache)
    assert renamed.evaluation.config.name == "b"


AS_OF = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture
def small(tmp_path: Path) -> Store:
    opened = Store.open(tmp_path / "store")
    opened.add(
        ParsedInput("t.jsonl", "t", memories=(Memory("a", "one"), Memory("b", "two")), queries=(Query("q", "which?"),))
    )
    return opened


def test_a_grade_is_the_same_label_on_inspect_and_on_label(small: Store) -> None:
    """The two pages differ in what they noted as shown; grade, author, kind, and the way to take it back are one."""
    asked = Request("which?")
    meant = stored_query(asked, small)
    assert meant is not None and meant.qid == "q"
    give_grade(small, "q", "a", 2, "ada")
    give_grade(small, "q", "b", 2, "ada", shown={"card": "seen on Label"})
    first, second = small.judgments.read("q")
    assert (first.grade, first.judge, first.kind, first.note) == (second.grade, second.judge, second.kind, second.note)
    assert [event.action for event in small.labels.history("ada")] == ["label", "label"]
    assert own_grade(small, "q", "a", "ada") == 2 and own_grade(small, "q", "a", "bob") is None
    with pytest.raises(InputError):
        give_grade(small, "q", "a", 9, "ada")
    small.labels.undo("ada")
    assert [one.memory_id for one in small.judgments.read("q")] == ["a"]


def test_what_inspect_graded_is_not_dealt_on_label(small: Store) -> None:
    queue = make_queue("mine", [PooledPair("q", "a", {"c": 1}), PooledPair("q", "b", {"c": 2})], "top", 1, 0, {}, {})
    small.queues.save(queue)
    give_grade(small, "q", "a", 3, "ada")
    card, _ = LabelQueue(small, "mine").deal("ada")
    assert card is not None and card.memory.id == "b"


def test_a_typed_query_is_added_once_and_others_stay(small: Store) -> None:
    small.query_sets.put("old", [Query("q", "which?")], "t.jsonl")
    before = small.content_version
    asked = Request("typed here", "web", AS_OF)
    assert stored_query(asked, small) is None
    query = add_to_set(asked, "old", small)
    assert add_to_set(asked, "old", small) == query == stored_query(asked, small)
    assert {one.query for one in small.query_sets.queries("old")} == {"which?", "typed here"}
    other = add_to_set(Request("typed here", "api", AS_OF), "new", small)
    assert other.qid != query.qid and small.query_sets.holding(other.qid) == ["new"]
    assert stored_query(asked, small) == query
    assert small.content_version == before  # what was gathered stays
    give_grade(small, query.qid, "a", 1, "ada")
    assert small.judgments.read(query.qid) == [
        Judgment(query.qid, "a", 1, "ada", judged_at=small.judgments.read(query.qid)[0].judged_at)
    ]
    with pytest.raises(InputError, match="is not a name"):
        add_to_set(asked, " ", small)


__all__ = ["empty_store", "store"]

READS_ALL = with_values(
    preset("recollection").config,
    {"adjust.feedback.enabled": True, "adjust.project.enabled": True, "lists.relations.enabled": True},
)
"""Recency, access, a candidate set by access, the bonus for importance, votes, projects and relations."""


def test_a_bare_store_lacks_what_the_config_reads(store: Store) -> None:
    assert missing_data(READS_ALL, store) == []  # without memories nothing is missing
    store.add(parsed([Memory("a", "one"), Memory("b", "two")]))
    said = missing_data(READS_ALL, store)
    assert [line.split(":")[0] for line in said] == [
        "no date of creation",
        "no access count",
        "no access",
        "no votes",
        "no projects",
        "no memory of high importance",
        "no relations",
    ]
    assert missing_data(preset("letta").config, store) == []


def test_one_memory_with_the_data_is_enough(store: Store) -> None:
    now = datetime(2026, 9, 1, tzinfo=UTC)
    full = Memory(
        "a",
        "one",
        created_at=now,
        access_count=2,
        relevant_count=1,
        project="org/repo",
        importance="high",
    )
    store.add(parsed([full, Memory("b", "two")]))
    assert [line.split(":")[0] for line in missing_data(READS_ALL, store)] == ["no relations"]


FOLDER = SAMPLE_DATA / "deeper_pool"


def test_it_judges_what_nobody_had_judged_and_nothing_that_did_not_exist_yet_is_relevant() -> None:
    parsed, sample = formats.read(FOLDER / "judgments.jsonl"), list(formats.read_path(SAMPLE_DATA))
    assert (len(parsed.judgments), parsed.errors, parsed.notes) == (2504, (), ())
    assert {(judgment.judge, judgment.kind) for judgment in parsed.judgments} == {("deeper-pool", "model")}
    pairs = [(judgment.qid, judgment.memory_id) for judgment in parsed.judgments]
    assert pairs == sorted(set(pairs))
    assert not set(pairs) & {(judgment.qid, judgment.memory_id) for file in sample for judgment in file.judgments}
    asked = {query.qid: query for file in sample for query in file.queries}
    written = {memory.id: memory.created_at for file in sample for memory in file.memories}
    assert {judgment.grade for judgment in parsed.judgments} == {0, 1, 2}
    for judgment in parsed.judgments:
        query, at = asked[judgment.qid], written[judgment.memory_id]
        relevant_is_out = query.type == "no-answer" or (query.as_of is not None and at is not None and at > query.as_of)
        assert not (judgment.grade and relevant_is_out), judgment


@pytest.mark.thorough
def test_it_is_read_only_where_it_is_asked_for_and_then_joins_the_set_as_a_models(sample_store, tmp_path):
    with copied(sample_store, tmp_path) as store:
        before = store.judgments.read()
        assert (len(before), {judgment.kind for judgment in before}) == (1241, {"human"})
        version = store.query_sets.get("sample_data").version
        for parsed in formats.read_path(FOLDER):
            report = store.add(parsed, options=ImportOptions("sample_data"))
        assert (report.errors, store.query_sets.get("sample_data").version) == ((), version)
        assert (len(store.judgments.read()), len(store.judgments.read(kind="model"))) == (3745, 2504)
        people, everybody = agreed_grades(before), agreed_grades(store.judgments.read())
        assert all(everybody[qid][key] == grade for qid, of in people.items() for key, grade in of.items())
        assert (people["q100"].get("m352"), everybody["q100"]["m352"]) == (None, 2)
        assert agreed_grades(store.judgments.read(), "human") == people


PATH = SAMPLE_DATA / "no_answer" / "unanswerable.jsonl"


def test_the_sample_has_questions_of_every_sort_of_near_miss_that_nothing_answers() -> None:
    parsed = formats.read(PATH)
    assert (len(parsed.queries), parsed.errors, parsed.notes) == (68, (), ())
    assert {(query.answerable, query.type) for query in parsed.queries} == {(False, "unanswerable")}
    sorts = Counter(json.loads(line)["note"].partition(":")[0] for line in PATH.read_text("utf-8").splitlines())
    assert min(sorts.values()) >= 4 and len(sorts) == 6
    assert set_name(str(PATH)) == "unanswerable"


def test_they_are_apart_from_the_others_and_no_judgment_is_needed_to_measure_them() -> None:
    others = [query for file in formats.read_path(SAMPLE_DATA) for query in file.queries]
    queries = formats.read(PATH).queries
    assert len(others) == 129 and not {query.qid for query in others} & {query.qid for query in queries}
    assert not {query.query.lower() for query in others} & {query.query.lower() for query in queries}
    assert measurable([*others[:2], *queries[:2]], [Judgment(others[1].qid, "m001", 0)]) == [others[1], *queries[:2]]
