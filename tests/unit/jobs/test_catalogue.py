"""The catalogue: every config that can be chosen by a name, where the name leads, and what cannot be read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cems_workbench.config import dump_config, preset, preset_names, with_values
from cems_workbench.errors import InputError
from cems_workbench.jobs.catalogue import (
    PRESENT_NAME,
    catalogue,
    config_named,
    experiment_name,
    history_name,
    with_unique_names,
)
from cems_workbench.store import Store

SET = with_values(preset("cems").config, {"fusion.k": 17})


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "store") as opened:
        yield opened


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
