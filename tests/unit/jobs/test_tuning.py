"""Tuning jobs, and configs: kept, offered, exported with their figures."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from searches import planned

from benchmarks.synthetic_queries import fusion_only
from cems_workbench.config import (
    FORMS,
    EvidenceCard,
    Form,
    PipelineConfig,
    dump_config,
    file_name,
    import_config,
    preset,
    preset_names,
    read_card,
    with_values,
)
from cems_workbench.config.forms.targets import BY_FORM, SYSTEMS, System, base, system_behind, unplaced
from cems_workbench.config.forms.targets import exported as settings_of
from cems_workbench.errors import InputError
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.evaluate import evaluate
from cems_workbench.evaluation.evidence_file import EvidenceSet, read_evidence_file
from cems_workbench.evaluation.metrics import parse_measures
from cems_workbench.jobs.catalogue import (
    PRESENT_NAME,
    catalogue,
    config_named,
    evidence_warning,
    experiment_name,
    history_name,
    keep_config,
    restored_config,
    with_unique_names,
)
from cems_workbench.jobs.evaluation import labelled_file
from cems_workbench.jobs.exporting import exported, measured, write_proposal
from cems_workbench.jobs.tuning import (
    HOW_MANY,
    MAIN_SEARCH,
    SearchSettings,
    TuningData,
    card_of,
    default_axes,
    looks_at,
    open_holdout,
    plan_search,
    planned_search,
    run_search,
    scored_queries,
    store_of,
    tunable,
    with_stability,
)
from cems_workbench.pipeline.effects import idle_parameters
from cems_workbench.pipeline.missing_evidence import gather_parameters
from cems_workbench.progress import Cancelled
from cems_workbench.records import Memory, ParsedInput
from cems_workbench.settings import Settings
from cems_workbench.store import Store
from cems_workbench.tuning.objective import parse_goal
from cems_workbench.tuning.space import SearchSpace, parse_axis
from cems_workbench.tuning.tune import Trial, Watch, corpus_hash, unwatched
from tests.planted import PLANTED, planted_file


@pytest.fixture(scope="module")
def _planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return planted_file(tmp_path_factory.mktemp("planted"), 32)


@pytest.fixture
def evidence(_planted: Path, tmp_path: Path) -> Path:
    """A copy of one's own: scores and looks are kept beside it."""
    return Path(shutil.copy(_planted, tmp_path))


def stopping_after(count: int) -> Watch:
    """A watch that cancels after so many configs."""

    def watch(done: int, total: int, best: Trial) -> None:
        if done >= count:
            raise Cancelled

    return watch


def test_a_grid_finds_the_planted_config_and_scores_each_config_once(evidence: Path) -> None:
    search = planned(evidence)
    result = run_search(search)
    assert search.most_configs == search.plan.space.size == 15
    assert len(result.tuned.search.trials) == 15 and not result.tuned.search.cancelled
    assert result.better and result.needs == () and result.not_kept == ""
    found = result.tuned.config
    assert (found.lists.vector.weight, found.fusion.score_blend) == (
        PLANTED.lists.vector.weight,
        PLANTED.fusion.score_blend,
    )


def test_a_stopped_search_keeps_its_scores_and_the_next_begins_with_them(evidence: Path) -> None:
    search = planned(evidence)
    stopped = run_search(search, lambda name: stopping_after(4) if name == MAIN_SEARCH else unwatched)
    assert stopped.tuned.search.cancelled and stopped.tuned.validation is None
    tried = len(stopped.tuned.search.trials)
    assert 0 < tried < 15
    again = planned(evidence)
    assert len(again.kept_scores.read()) >= tried
    finished = run_search(again)
    whole = run_search(planned(evidence))
    assert finished.tuned.config == whole.tuned.config
    assert finished.tuned.validation == whole.tuned.validation is not None


def test_scores_belong_to_evidence_measures_and_seed_so_that_another_search_has_a_file_of_its_own(evidence):
    search = planned(evidence)
    run_search(search)
    other = planned(evidence, settings=SearchSettings("project", 3, 0.25, 40, seed=1))
    assert other.kept_scores.path != search.kept_scores.path and other.kept_scores.read() == {}
    wider = planned(evidence, "lists.vector.weight=0.5:2.5:0.5")
    assert wider.kept_scores.path == search.kept_scores.path  # the space is not among what scores belong to


def test_scores_that_cannot_be_kept_are_said_and_the_search_ends_all_the_same(evidence: Path) -> None:
    search = planned(evidence)
    search.kept_scores.path.mkdir()
    result = run_search(search)
    assert result.not_kept and result.better


def test_every_look_at_the_sealed_queries_is_counted_beside_the_evidence_without_a_store(evidence: Path) -> None:
    search = planned(evidence)
    result = run_search(search)
    assert result.tuned.holdout is None and len(search.sealed) == 8
    for count in (1, 2):
        opened = open_holdout(result, looks_at(search.data, None))
        assert opened.tuned.looks == count and opened.tuned.holdout is not None
        assert opened.tuned.holdout.queries == 8
    assert looks_at(planned(evidence).data, None).count("planted", search.sealed) == 2


def test_no_store_is_taken_for_that_of_the_evidence_but_the_one_it_is_of(evidence: Path, tmp_path: Path) -> None:
    Store.open(tmp_path / "another").close()
    with store_of(planned(evidence).data.evidence, Settings(store=tmp_path / "another")) as found:
        assert found is None


def test_a_proposal_is_written_with_its_card_which_says_what_was_never_split(evidence: Path, tmp_path: Path) -> None:
    result = run_search(planned(evidence))
    card = card_of(result, "2026-11-22")
    out = tmp_path / "best.toml"
    write_proposal(result, out, card)
    assert import_config(out.read_text(encoding="utf-8"), source=str(out)).config == result.tuned.config
    assert read_card(tmp_path / "best.card.json") == card
    assert card.split == "3 folds of 24 queries by project or conversation, 8 held out"
    assert card.trials == 14 and [row.split for row in card.measured] == ["cross-validation"]
    with pytest.raises(InputError, match="cannot be written"):
        write_proposal(result, tmp_path / "no" / "best.yaml", card)


def test_stability_is_measured_for_every_axis_and_left_out_when_it_is_cancelled(evidence: Path) -> None:
    result = run_search(planned(evidence))

    def cancel(label: str, done: int, total: int) -> None:
        raise Cancelled

    assert with_stability(result, cancel).regions == ()
    regions = with_stability(result, lambda label, done, total: None).regions
    assert [region.path for region in regions] == ["lists.vector.weight", "fusion.score_blend"]


def test_too_few_groups_to_seal_so_many_are_refused(evidence: Path) -> None:
    with pytest.raises(InputError, match="8 groups of queries are too few for a hold-out of 90%"):
        planned(evidence, settings=SearchSettings("project", folds=3, sealed=0.9))


MEASURES = parse_measures("nDCG@10 hit@1")
CONFIG = fusion_only({"name": "mine", "fusion.k": 7, "filter.min_score": 0.2, "lists.vector.weight": 2.5})


@pytest.fixture(scope="module")
def labelled_evidence(tmp_path_factory: pytest.TempPathFactory) -> EvidenceSet:
    return read_evidence_file(planted_file(tmp_path_factory.mktemp("planted"), 24))


@pytest.mark.parametrize("form", FORMS)
def test_the_figure_beside_an_export_is_that_of_what_its_reader_ranks_with(
    labelled_evidence: EvidenceSet, form: Form
) -> None:
    batch = labelled_file(labelled_evidence, None).batch
    export = exported(CONFIG, form)
    places = unplaced(export.read)
    assert places or form != "engram"
    if export.refused:  # it reads stop words from its installation
        with pytest.raises(InputError, match=r"not measured without the folder of its installation: set lists\."):
            measured(export, batch, MEASURES)
        export = exported(CONFIG, form, folder="/engram")
        assert not export.refused and (form != "engram" or export.read.lists.fts5.stop_words == WORDS)
    ranking = measured(export, batch, MEASURES)
    if form in BY_FORM:
        usual = base(form, CONFIG)
        has = {spec.path for spec, _ in settings_of(form)}
        assert export.lost and (export.read.fusion.k == 7) == ("fusion.k" in has)
        # 0 for a config without a threshold or floor
        nearest = {"threshold.fixed", "assembly.min_score"} & has - (
            {"threshold.fixed"} if form == "langchain" else set()
        )
        strange = {
            path for path, value in _values(export.read).items() if value not in (usual.get(path), CONFIG.get(path))
        }
        assert strange == nearest | {*places}
    else:
        assert export.lost == [] and export.read == CONFIG
        assert all((row.difference, row.low, row.high) == (0, 0, 0) for row in ranking.differences)
    assert import_config(export.text, CONFIG, source=file_name(CONFIG, form)).whole == (not export.lost), (
        "else it is not as measured"
    )
    for config, said in ((CONFIG, ranking.here), (export.read, ranking.there)):
        alone = evaluate(batch, config, MEASURES, with_bounds=False)
        assert [summary.mean for summary in said.summaries] == [summary.mean for summary in alone.summaries]
    assert ranking.lacking == [line for line in ranking.incomplete] and bool(ranking.lacking) == bool(
        ranking.there.rankings.needs
    )


def _values(config: PipelineConfig) -> dict[str, object]:
    from cems_workbench.config import field_specs

    return {spec.path: config.get(spec.path) for spec in field_specs()}


WORDS = "/engram/processor/recollection-writer.ts#STOP_WORDS"


@pytest.mark.parametrize(
    ("name", "changes", "form", "lost"),
    [
        ("mem0_keyword", {"threshold.fixed": 0.25, "assembly.limit": 50}, "mem0", []),
        ("mem0", {"rerank.backend": "cross_encoder", "rerank.model": "m"}, "mem0", []),
        ("engram_head", {"fusion.k": 2, "lists.fts5.stop_words": WORDS}, "engram", []),
        ("engram_head", {"fusion.k": 2}, "engram", ["lists.fts5.stop_words"]),
        ("graphiti_edges_neo4j", {"threshold.fixed": 0.3}, "graphiti", []),
        ("langgraph", {"assembly.limit": 7, "fusion.k": 9}, "langgraph", ["fusion.k"]),
    ],
)
def test_an_export_loses_what_its_program_does_otherwise_and_nothing_that_only_its_settings_change(
    name: str, changes: dict[str, Any], form: Form, lost: list[str]
) -> None:
    export = exported(with_values(preset(name).config, changes), form)
    missed = [path for path, here, there in export.lost if (path, here, there) != ("filter.min_score", None, 0.0)]
    assert missed == lost
    assert import_config(export.text, source="upload").config.threshold == export.read.threshold, (
        "of the program it names"
    )


@pytest.mark.parametrize(
    "system",
    [one for one in SYSTEMS.values() if one.name not in ("memory_agent", "ace", "engram_tools")],
    ids=lambda one: one.name,
)
def test_what_is_searched_by_default_is_set_in_the_target_and_not_idle(
    labelled_evidence: EvidenceSet, system: System
) -> None:
    for name in system.presets:
        baseline = preset(name).config
        data = TuningData(baseline, "q", labelled_file(labelled_evidence, None))
        if name in ("langchain", "langgraph", "mem0_hosted"):
            with pytest.raises(InputError, match=r"by default under \w+; --space names assembly\.limit,"):
                default_axes(data, system)
            continue
        paths = {axis.path for axis in default_axes(data, system_behind(baseline))}
        assert paths <= {spec.path for spec, _ in settings_of(system.form)} and not paths & (
            idle_parameters(baseline).keys() | HOW_MANY
        )


def test_a_target_without_a_setting_that_replay_can_search_says_so(labelled_evidence: EvidenceSet) -> None:
    data = TuningData(preset("ace_head").config, "q", labelled_file(labelled_evidence, None))
    with pytest.raises(InputError, match="ACE has no parameter to tune by default under ace_head; --space names one"):
        default_axes(data, SYSTEMS["ace"])
    assert "lists.fts5.depth" not in tunable(SYSTEMS["engram"], preset("engram_head").config), "its rows are the first"
    of_pool = replace(data, baseline=preset("engram_recall").config)  # its pool is three times its limit
    with pytest.raises(
        InputError, match="memory_search has no parameter to tune by default under engram_recall; --space"
    ):
        default_axes(of_pool, SYSTEMS["engram_tools"])


def test_values_past_the_gathered_depth_are_named_and_left_out_by_default(labelled_evidence: EvidenceSet) -> None:
    baseline, of_file = preset("mem0").config, labelled_file(labelled_evidence, None)
    record = {"gathered": dict(gather_parameters(baseline))}
    evidences = {qid: replace(one, notes=one.notes | record) for qid, one in labelled_evidence.evidences.items()}
    batch = LabelledBatch(
        of_file.batch.queries, evidences, dict(zip(of_file.batch.qids, of_file.batch.grades, strict=True))
    )
    data = TuningData(baseline, "q", replace(of_file, batch=batch))
    assert [(axis.path, axis.high) for axis in default_axes(data, SYSTEMS["mem0"])] == [("threshold.fixed", 1.0)]
    space, goal = SearchSpace.of(baseline, [parse_axis("assembly.limit=5:100")]), parse_goal(["nDCG@10"], ())
    line, few = plan_search(
        data, scored_queries(data, goal.measures, 0), space, goal, SearchSettings("project", 3)
    ).beyond
    assert few.endswith("cannot tell a gain from chance; seal more, or none, and rely on the cross-validation")
    assert line.startswith(
        "assembly.limit above 20: the evidence lacks lists.vector.depth: gathered with 80, wanted 400"
    )


def test_no_search_without_the_scores_of_the_baseline(labelled_evidence: EvidenceSet) -> None:
    """Ten minutes of search on evidence without scores of 37 of 40 queries ended in "a candidate better" (29 November 2026)."""
    reranked = with_values(preset("mem0").config, {"rerank.backend": "cross_encoder"})
    data = TuningData(reranked, "q", labelled_file(labelled_evidence, None))
    with pytest.raises(
        InputError, match="queries lack reranker scores of some candidates; score them first with fill-scores"
    ):
        planned_search(data, parse_goal(["nDCG@10"], ()))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "store") as opened:
        yield opened


def card(corpus: str, **changes: Any) -> EvidenceCard:
    values: dict[str, Any] = {
        "baseline": "cems",
        "measured": (),
        "split": "5 folds",
        "looks": 1,
        "trials": 20,
        "seed": 0,
        "corpus_hash": corpus,
        "evidence_hash": "e",
        "versions": {},
        "date": "2026-11-22",
    }
    return EvidenceCard(**(values | changes))


def test_a_kept_config_is_restored_as_it_was_with_its_card(store: Store) -> None:
    config = with_values(preset("qmd").config, {"name": "mine: é", "fusion.k": 17, "filter.min_score": None})
    evidence = card(corpus_hash(store.identity, store.content_version))
    kept = keep_config(store, config, author="Ada", why="temporal", base="qmd", card=evidence)
    found = restored_config(store.configs.get(kept.id), store)
    assert found.config == config and found.card == evidence and found.warnings == ()
    renamed = store.configs.reword(kept.id, name="other")
    assert restored_config(renamed, store).config == config.model_copy(update={"name": "other"})
    assert restored_config(keep_config(store, config, author="Ada"), store).card is None


def test_evidence_of_another_corpus_or_of_an_earlier_state_of_this_one_warns_in_one_line(store: Store) -> None:
    now = corpus_hash(store.identity, store.content_version)
    assert evidence_warning(card(now), store) is None and evidence_warning(None, store) is None
    for other in ("elsewhere/0", "c0ffee", f"{store.identity}", ""):
        warning = evidence_warning(card(other), store)
        assert warning and "from another store" in warning and "\n" not in warning
    kept = keep_config(store, preset("cems").config, author="Ada", card=card(now))
    store.add(ParsedInput("t", "t", memories=(Memory("a", "1"),)))
    (warning,) = restored_config(kept, store).warnings
    assert "content version 0, now 1" in warning and "Evaluate it again" in warning


def test_a_config_of_another_version_is_read_as_far_as_it_goes(store: Store) -> None:
    text = "version: 1\nname: old\nfusion:\n  k: 21\n  warp: 3\ngap:\n  ratio: 7\n"
    found = restored_config(store.configs.add("old", text, author="Ada", card={"looks": 1}), store)
    assert found.config.fusion.k == 21 and found.config.name == "old"
    assert found.card is None and len(found.warnings) == 2
    assert "fusion.warp" in found.warnings[0] and "gap.ratio" in found.warnings[0]
    assert found.warnings[1] == "its evidence card cannot be read by this version (baseline)"
    now = card(corpus_hash(store.identity, store.content_version)).model_dump(mode="json")
    carded = restored_config(store.configs.add("old", text, author="Ada", card=now), store)
    assert "what is here is not what was measured" in carded.warnings[1]


@pytest.mark.parametrize("text", ["[1, 2]", "a: [", "x: !!python/object:os.system {}"])
def test_what_is_no_config_at_all_is_refused(store: Store, text: str) -> None:
    record = store.configs.add("broken", text, author="Ada")
    with pytest.raises(InputError, match=f"config {record.id}"):
        restored_config(record, store)


SET = with_values(preset("cems").config, {"fusion.k": 17})


def test_the_present_config_comes_first_then_presets_files_history_and_experiments(store: Store) -> None:
    older, newer = (store.configs.add("blend", dump_config(SET), author="Ada") for _ in range(2))
    kept = store.configs.add_experiment("try", dump_config(SET), "", {})
    offered = catalogue(store, SET, {"mine.yaml (file)": SET})
    assert list(offered.configs) == [
        PRESENT_NAME,
        *preset_names(),
        "mine.yaml (file)",
        history_name("blend", newer.id),
        history_name("blend", older.id),
        experiment_name("try", kept.id),
    ]
    assert offered.problems == ()
    assert PRESENT_NAME not in catalogue(store).configs


def test_a_config_goes_under_the_name_that_it_was_chosen_by_but_for_the_one_that_is_set(store: Store) -> None:
    kept = store.configs.add("blend", dump_config(SET), author="Ada")
    offered = catalogue(store, SET)
    name = history_name("blend", kept.id)
    assert offered.under_its_name(name) == SET.model_copy(update={"name": name})
    assert offered.under_its_name(PRESENT_NAME) == SET
    with pytest.raises(KeyError):
        offered.under_its_name("no such config")


def test_what_this_version_cannot_read_is_not_offered_and_an_experiment_is_a_problem(store: Store) -> None:
    text = "version: 1\nname: old\nfusion:\n  warp: 3\n"
    store.configs.add("old", text, author="Ada")
    lost = store.configs.add_experiment("try", text, "", {})
    offered = catalogue(store)
    assert list(offered.configs) == list(preset_names())
    (problem,) = offered.problems
    assert problem.startswith(f"{experiment_name('try', lost.id)} cannot be read: ") and "warp" in problem


def test_on_the_command_line_a_file_goes_before_a_preset_of_the_same_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert config_named(None, Path("qmd"), "cems").config == preset("qmd").config
    Path("qmd").write_text(dump_config(SET), encoding="utf-8")
    assert config_named(None, Path("qmd"), "cems").config.fusion.k == 17
    assert config_named("qmd", None, "cems").config == preset("qmd").config
    assert config_named(None, None, "ace").config == preset("ace").config
    with pytest.raises(InputError, match="not both"):
        config_named("qmd", Path("qmd"), "cems")
    with pytest.raises(InputError, match="neither a config file nor a preset; presets: "):
        config_named(None, Path("qdm"), "cems")


def test_configs_of_one_name_are_numbered_and_none_takes_the_name_of_another() -> None:
    named = [SET.model_copy(update={"name": name}) for name in ("a", "a", "a (2)", "b", "a")]
    assert [config.name for config in with_unique_names(named)] == ["a", "a (2)", "a (2) (2)", "b", "a (3)"]
    assert {config.fusion.k for config in with_unique_names(named)} == {17}
