"""A search as a run: it goes on with what an earlier one tried, keeps what it has when it is stopped, and counts looks."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from searches import planned

from cems_workbench.config import import_config, read_card
from cems_workbench.errors import InputError
from cems_workbench.jobs.exporting import write_proposal
from cems_workbench.jobs.tuning import (
    MAIN_SEARCH,
    SearchSettings,
    card_of,
    looks_at,
    open_holdout,
    run_search,
    store_of,
    with_stability,
)
from cems_workbench.progress import Cancelled
from cems_workbench.settings import Settings
from cems_workbench.tuning.optimizer import Trial, Watch, unwatched
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
    from cems_workbench.store import Store

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
