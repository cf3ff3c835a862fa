"""The Evaluate page: choose, gather, compare, by type and query, honest view, ablation, experiments."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from cems_workbench.records import ParsedInput
from cems_workbench.store import Store
from cems_workbench.ui import handles

pytestmark = [pytest.mark.models, pytest.mark.xdist_group("app")]
OpenPage = Callable[..., AppTest]
QUERIES = 12


@pytest.fixture(scope="module")
def small_store(sample_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample store with a query set "few" of some of its judged queries."""
    path = shutil.copytree(sample_store, tmp_path_factory.mktemp("evaluate") / "store")
    with Store.open(path) as store:
        judged = {judgment.qid for judgment in store.judgments()}
        few = [query for query in store.queries() if query.qid in judged][:QUERIES]
        store.sets.put("few", few, "test")
    return path


@pytest.fixture
def page(open_page: OpenPage, small_store: Path) -> AppTest:
    """The page on the small set, gathered for two presets."""
    opened = open_page(small_store).switch_page("pages/evaluate.py").run()
    opened.selectbox(key="ev:set").select("few").run()
    if any(button.key == "ev:gather" for button in opened.button):
        opened.button(key="ev:gather").click().run()
    return checked(opened)


def checked(page: AppTest) -> AppTest:
    assert not page.exception, page.exception
    assert not page.error, page.error
    return page


def show(page: AppTest, view: str) -> AppTest:
    page.session_state["ev:view"] = view
    return checked(page.run())


def test_what_is_missing_is_gathered_once_and_measured_from_then_on(page: AppTest) -> None:
    assert not [button for button in page.button if button.key == "ev:gather"]
    means = page.dataframe[0].value
    assert list(means["config"]) == ["cems", "recollection"]
    assert ((means["nDCG@10"] > 0) & (means["nDCG@10"] <= 1)).all()


def test_a_difference_is_that_of_the_means_and_names_its_wins_and_losses(page: AppTest) -> None:
    mean = dict(zip(page.dataframe[0].value["config"], page.dataframe[0].value["nDCG@10"], strict=True))
    found = next(row for row in page.dataframe[1].value.to_dict("records") if row["measure"] == "nDCG@10")
    assert found["difference"] == pytest.approx(mean["recollection"] - mean["cems"])
    assert found["wins"] + found["losses"] + found["ties"] <= QUERIES
    assert 0 < found["p (Holm)"] <= 1


def test_by_type_counts_every_query_of_the_set(page: AppTest) -> None:
    show(page, "By type")
    assert page.dataframe[0].value["queries"].sum() == QUERIES


def test_by_query_shows_the_largest_change_first(page: AppTest) -> None:
    show(page, "By query")
    change = page.dataframe[0].value["difference"].abs().fillna(0).tolist()
    assert change == sorted(change, reverse=True)
    assert len(change) == QUERIES


def test_the_honest_view_stands_people_beside_cosine(page: AppTest) -> None:
    show(page, "Honest view")
    assert {"people", "cosine ≥ 0.45"} <= set(page.dataframe[0].value["judge"])


def test_each_stage_off_is_compared_with_the_config_itself(page: AppTest) -> None:
    show(page, "Ablation")
    rows = page.dataframe[0].value
    assert rows["row"].iloc[0] == "cems"
    assert "without lexical list" in set(rows["row"])


def test_an_experiment_is_kept_and_its_config_can_be_measured_again(page: AppTest) -> None:
    show(page, "Experiments")
    keep = next(button for button in page.button if button.label == "Keep")
    page.text_input[0].set_value("my try")
    keep.click()
    checked(page.run())
    kept = handles.resources().store.experiments()[0]
    assert (kept.name, kept.evidence["query_set"]) == ("my try", "few")
    assert len(kept.evidence["configs"][0]["per_query"]) == QUERIES
    page.run()
    assert f"my try (kept {kept.id})" in page.multiselect(key="ev:configs").options


def test_a_measure_that_is_none_is_named(page: AppTest) -> None:
    page.session_state["ev:measures"] = ["hit@1", "R@5"]
    page.run()
    assert "write hit@5" in page.error[0].value.replace("\\", "")


def test_a_store_without_judgments_says_how_to_begin(open_page: OpenPage, tmp_path: Path) -> None:
    with Store.open(tmp_path / "empty") as store:
        store.add(ParsedInput("none", "jsonl"))
    page = checked(open_page(tmp_path / "empty").switch_page("pages/evaluate.py").run())
    assert "no queries yet" in " ".join(str(element.proto) for element in page.get("html"))
