"""The Evaluate page: choose, gather, compare, by type and query, compare judges, ablation, experiments."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import duckdb
import pytest
import streamlit
from streamlit.runtime.scriptrunner import StopException
from streamlit.testing.v1 import AppTest

from cems_workbench.analysis.losses_of_set import Losses, losses_of
from cems_workbench.config import PipelineConfig, export_config, preset, with_values
from cems_workbench.evaluation.evaluate import NO_TYPE
from cems_workbench.jobs import query_set_evidence
from cems_workbench.jobs.evaluation import agreed, labelled_selection
from cems_workbench.jobs.query_set_evidence import judged_selection
from cems_workbench.pipeline import Evidence
from cems_workbench.pipeline.gather import Request, gather
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Progress
from cems_workbench.records import WHOLE_STORE, Judgment, ParsedInput
from cems_workbench.store import Store
from cems_workbench.ui.evaluate.page import VIEWS
from cems_workbench.ui.kit import session
from cems_workbench.ui.kit import widgets as kit_progress
from tests.sample import store_with_set

from .inspect_page import config_of, pinned
from .pages import OpenPage, captions, checked, markdown, plainly, table_with

pytestmark = [pytest.mark.models]
QUERIES = 12


@pytest.fixture(scope="module")
def small_store(sample_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample store with a query set "few" of some of its answered queries."""
    return store_with_set(sample_store, tmp_path_factory.mktemp("evaluate"), "few", QUERIES)


@pytest.fixture
def page(open_page: OpenPage, small_store: Path) -> AppTest:
    """The page on the small set, gathered for two presets, which are compared."""
    opened = open_page(small_store).switch_page("pages/evaluate.py").run()
    opened.selectbox(key="evaluate:set").select("few").run()
    if any(button.key == "evaluate:gather" for button in opened.button):
        opened.button(key="evaluate:gather").click().run()
    return show(opened, "Compare")


def show(page: AppTest, view: str) -> AppTest:
    page.session_state["evaluate:view"] = view
    return checked(page.run())


def test_the_risk_of_answering_is_drawn_where_a_query_is_labelled_as_having_no_answer(
    open_page: OpenPage, sample_store: Path, tmp_path: Path
) -> None:
    path = store_with_set(sample_store, tmp_path, "few", 3)
    with Store.open(path) as store:
        qid = store.query_sets.queries("few")[0].qid
        for one in store.judgments.read(qid):
            store.judgments.remove(qid, one.memory_id, one.judge, one.kind)
        store.labels.give(Judgment(qid, WHOLE_STORE, 0, "ada"))
    page = open_page(path).switch_page("pages/evaluate.py").run()
    page.selectbox(key="evaluate:set").select("few").run()
    page.multiselect(key="evaluate:configs").set_value(["cems"]).run()
    page.multiselect(key="evaluate:measures").set_value(["hit@5", "noise@5", "AUROC"]).run()
    page.button(key="evaluate:gather").click().run()
    show(page, "Compare")
    assert any("Risk and coverage" in text.value for text in page.markdown)
    assert "means of 2 of 3 judged queries; 1 without an answer counts in noise" in captions(page)
    assert page.dataframe[0].value["noise@5"].tolist() == ["1.000"]


def test_what_is_missing_is_gathered_once_and_measured_from_then_on(page: AppTest) -> None:
    assert not [button for button in page.button if button.key == "evaluate:gather"]
    means = page.dataframe[0].value
    assert list(means["config"]) == ["cems", "recollection"]
    assert (means["ms per query"] > 0).all() and (means["LLM calls"] == 0).all()


@pytest.mark.thorough
def test_a_gather_that_was_cancelled_goes_on_after_what_it_had_finished(
    open_page: OpenPage, small_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Streamlit ends a run from within the progress, as it does when Cancel is pressed."""
    asked: list[str] = []

    def counted(request: Request, config: PipelineConfig, resources: Resources) -> Evidence:
        asked.append(request.query)
        return gather(request, config, resources)

    def until_five(_: object) -> Progress:
        def report(label: str, done: int, total: int) -> None:
            if done == 5:
                raise StopException

        return report

    monkeypatch.setattr(query_set_evidence, "gather", counted)
    page = open_page(small_store).switch_page("pages/evaluate.py").run()
    page.selectbox(key="evaluate:set").select("few").run()
    page.session_state["evaluate:configs"] = ["cems_head"]
    checked(page.run())
    with monkeypatch.context() as cancelled:
        cancelled.setattr(kit_progress, "progress_in", until_five)
        page.button(key="evaluate:gather").click().run()
    checked(page.run())
    assert f"cems_head (5 of {QUERIES} are there)" in plainly(page.info[0].value)
    assert page.button(key="evaluate:gather").label == "Resume"
    page.button(key="evaluate:gather").click().run()
    show(page, "Compare")
    assert list(page.dataframe[0].value["config"]) == ["cems_head"]
    assert len(asked) == len(set(asked)) == QUERIES, "a query was searched twice"


def test_a_mean_lies_within_the_interval_beside_it(page: AppTest) -> None:
    for cell in page.dataframe[0].value["nDCG@10"]:
        mean, low, high = (float(number) for number in re.fullmatch(r"(.+) \((.+)–(.+)\)", cell).groups())  # type: ignore[union-attr]
        assert 0 <= low <= mean <= high <= 1 and low < high


def test_a_difference_is_that_of_the_means_and_names_its_wins_and_losses(page: AppTest) -> None:
    mean = dict(zip(page.dataframe[0].value["config"], page.dataframe[0].value["nDCG@10"], strict=True))
    found = next(row for row in page.dataframe[1].value.to_dict("records") if row["measure"] == "nDCG@10")
    assert found["difference"] == pytest.approx(
        float(mean["recollection"].split()[0]) - float(mean["cems"].split()[0]), abs=1.1e-3
    )
    assert found["wins"] + found["losses"] + found["ties"] <= QUERIES
    assert 0 < found["p (Holm)"] <= 1


def on_losses(page: AppTest) -> AppTest:
    """The view of losses, the first one."""
    assert next(iter(VIEWS)) == "Losses"
    return show(page, "Losses")


def counted(page: AppTest, k: int = 10, qids: set[str] | None = None) -> Losses:
    """The losses of both configs as the core counts them on the evidence that the page gathered."""
    resources = session.resources()
    selection = judged_selection("few", resources, resources.store.judgments.read())
    grades = agreed(resources.store.judgments.read(), None)
    batches = []
    for name in ("cems", "recollection"):
        labelled = labelled_selection(preset(name).config, selection, grades, resources)
        assert labelled is not None
        batches.append(labelled.batch if qids is None else labelled.batch.of_queries(qids))
    configs = [preset(name).config for name in ("cems", "recollection")]
    return losses_of(batches, configs, resources.store.query_sets.relevant_from("few"), k)


def test_the_losses_of_two_configs_stand_first_with_what_the_other_saves_and_breaks(page: AppTest) -> None:
    on_losses(page)
    losses = counted(page)
    assert all(sentence in markdown(page) for sentence in losses.sentences)
    table = losses.table()
    shown = table_with(page, "saved by recollection")
    assert list(shown.columns) == list(table.columns)
    assert [tuple(row[:3]) for row in shown.itertuples(index=False)] == [row[:3] for row in table.rows]
    assert min(one.lost for one in losses.maps) > 0
    assert "a stale memory in the first 10" in captions(page)


def test_rank_and_query_type_choose_which_memories_count_as_lost(page: AppTest) -> None:
    on_losses(page)
    page.number_input(key="evaluate:losses:k").set_value(3).run()
    kind = page.multiselect(key="evaluate:losses:types").options[0]
    page.multiselect(key="evaluate:losses:types").set_value([kind]).run()
    queries = session.resources().store.query_sets.queries("few")
    losses = counted(checked(page), 3, {query.qid for query in queries if (query.type or NO_TYPE) == kind})
    assert losses.maps[0].sentence() in markdown(page)
    assert table_with(page, "saved by recollection")["cems"].iloc[-1] == losses.maps[0].relevant


def test_where_nothing_is_lost_one_line_says_so(open_page: OpenPage, sample_store: Path, tmp_path: Path) -> None:
    page = open_page(store_with_set(sample_store, tmp_path, "few", 1)).switch_page("pages/evaluate.py").run()
    page.selectbox(key="evaluate:set").select("few").run()
    page.multiselect(key="evaluate:configs").set_value(["cems"]).run()
    page.button(key="evaluate:gather").click().run()
    store = session.resources().store
    qid = store.query_sets.queries("few")[0].qid
    first = found_first(qid)
    for one in store.judgments.read(qid):
        store.judgments.remove(qid, one.memory_id, one.judge, one.kind)
    store.labels.give(Judgment(qid, first, 3, "ada"))
    checked(page.run())
    assert "Lost 0 of 1 relevant memories from the first 10." in markdown(page)
    assert "evaluate:losses:branch" not in {box.key for box in page.selectbox}


def found_first(qid: str) -> str:
    """The first result of a query of the set under preset cems."""
    resources = session.resources()
    judgments = resources.store.judgments.read()
    selection = judged_selection("few", resources, judgments)
    labelled = labelled_selection(preset("cems").config, selection, agreed(judgments, None), resources)
    assert labelled is not None
    batch = labelled.batch
    return batch.result_ids(batch.rankings(preset("cems").config))[batch.qids.index(qid)][0]


def test_one_config_alone_is_drawn_with_its_groups(page: AppTest) -> None:
    on_losses(page)
    page.selectbox(key="evaluate:losses:beside").select("no other config").run()
    page.session_state["evaluate:losses:groups"] = True
    (one, _) = counted(checked(page.run())).maps
    assert one.sentence()[1:] in markdown(page)
    groups = table_with(page, "type")
    assert dict(zip(groups["type"], groups["returned"], strict=True)) == {
        name: counts.returned for name, counts in one.by_type.items()
    }


def test_a_lost_memory_opens_in_inspect_where_it_is_explained(page: AppTest, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(streamlit, "switch_page", opened.append)
    on_losses(page)
    chosen = page.selectbox(key="evaluate:losses:branch").value
    assert chosen.of == "first"
    key = f"evaluate:losses:rows:{chosen.of}:{chosen.branch.stage}:{chosen.branch.manner}"
    page.session_state[key] = {"selection": {"rows": [0], "columns": [], "cells": []}}
    checked(page.run())
    lost = counted(page).maps[0].rows_of(chosen.branch)[0]
    row = table_with(page, "memory").iloc[0]
    assert (row["query"], row["memory"], row["grade"]) == (lost.query, lost.memory_id, lost.grade)
    assert lost.memory_id in row["what happened"]
    assert opened == ["pages/inspect.py"]
    assert page.session_state["inspect:query"] == lost.query
    assert page.session_state["inspect:why:chosen"] == (lost.query, lost.memory_id)
    assert page.session_state["inspect:why:k"] == 10
    assert (config_of(page).name, pinned(page).name) == ("cems", "recollection")


def test_by_type_counts_every_query_of_the_set(page: AppTest) -> None:
    show(page, "By type")
    assert page.dataframe[0].value["queries"].sum() == QUERIES


def test_by_query_shows_the_largest_change_first(page: AppTest) -> None:
    show(page, "By query")
    change = page.dataframe[0].value["difference"].abs().fillna(0).tolist()
    assert change == sorted(change, reverse=True)
    assert len(change) == QUERIES


def test_the_honest_view_stands_people_beside_cosine(page: AppTest) -> None:
    show(page, "Compare judges")
    assert {"people", "cosine ≥ 0.45"} <= set(page.dataframe[0].value["judge"])


def test_without_queries_that_nothing_answers_there_is_nothing_to_calibrate_on(page: AppTest) -> None:
    show(page, "Calibrate")
    assert "Nothing to calibrate on" in page.info[0].value and "answerable: false" in page.info[0].value


def test_each_stage_off_is_compared_with_the_config_itself(page: AppTest) -> None:
    show(page, "Ablation")
    rows = page.dataframe[0].value
    assert rows["row"].iloc[0] == "cems"
    assert "without lexical list" in set(rows["row"])


def test_an_experiment_is_kept_and_its_config_can_be_measured_again(page: AppTest) -> None:
    show(page, "Experiments")
    keep = next(button for button in page.button if button.label == "Save")
    page.text_input[0].set_value("my try")
    keep.click()
    checked(page.run())
    kept = session.resources().store.configs.experiments()[0]
    assert (kept.name, kept.card["query_set"]) == ("my try", "few")
    assert len(kept.card["configs"][0]["per_query"]) == QUERIES
    page.run()
    assert f"my try (kept {kept.id})" in page.multiselect(key="evaluate:configs").options


def test_a_measure_that_is_none_is_named(page: AppTest) -> None:
    page.session_state["evaluate:measures"] = ["hit@1", "R@5"]
    page.run()
    assert "write hit@5" in page.error[0].value.replace("\\", "")


def test_a_query_that_is_picked_opens_in_inspect_with_both_configs(
    page: AppTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(streamlit, "switch_page", opened.append)
    page.session_state["evaluate:queries"] = {"selection": {"rows": [0], "columns": [], "cells": []}}
    show(page, "By query")
    first = page.dataframe[0].value.iloc[0]
    assert opened == ["pages/inspect.py"]
    assert page.session_state["inspect:query"] == first["query"]
    assert config_of(page).name == "recollection"
    assert pinned(page).name == "cems"


def from_elsewhere(store: Path, folder: Path) -> Path:
    """The evidence that was gathered for the page, as another store would have it."""
    file = shutil.copy(next((store / "evidence").glob("*.evidence")), folder / "team.evidence")
    with duckdb.connect(str(file)) as connection:
        (text,) = connection.execute("SELECT value FROM meta WHERE key = 'header'").fetchall()[0]
        changed = json.dumps(json.loads(text) | {"store_id": "theirs"})
        connection.execute("UPDATE meta SET value = ? WHERE key = 'header'", [changed])
    return Path(file)


def test_evidence_of_another_store_is_refused_with_the_reason_and_used_read_only_on_request(
    page: AppTest, small_store: Path, tmp_path: Path
) -> None:
    file = from_elsewhere(small_store, tmp_path)
    before = file.read_bytes()
    page.session_state["evaluate:file"] = True
    page.run()
    page.text_input(key="evaluate:file_path").set_value(str(file)).run()
    page.button(key="evaluate:file_open").click().run()
    checked(page)
    assert "from another store (theirs; this one is" in plainly(page.warning[0].value)
    assert page.selectbox(key="evaluate:set").value == "few"
    page.button(key="evaluate:file_use").click().run()
    checked(page)
    assert f"{QUERIES} of {QUERIES} queries" in captions(
        page
    ) and "Read-only: it was gathered from another" in captions(page)
    page.session_state["evaluate:configs"] = ["cems", "qmd", "ace"]
    checked(page.run())
    assert list(page.dataframe[0].value["config"]) == ["cems", "qmd", "ace"]
    assert not [button for button in page.button if button.key == "evaluate:gather"], "nothing is gathered for a file"
    assert file.read_bytes() == before
    page.button(key="evaluate:file_close").click().run()
    assert page.selectbox(key="evaluate:set").value in ("all", "few")
    checked(page)


@pytest.mark.parametrize(("name", "reason"), [("none", "no longer exists"), ("text", "not an evidence file")])
def test_what_is_no_evidence_file_is_one_line(page: AppTest, tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "text").write_text("hello")
    page.session_state["evaluate:file"] = True
    page.run()
    page.text_input(key="evaluate:file_path").set_value(str(tmp_path / name)).run()
    page.button(key="evaluate:file_open").click().run()
    assert not page.exception
    assert reason in page.error[0].value


def test_a_config_of_a_file_is_compared_with_the_others(page: AppTest) -> None:
    config = with_values(preset("cems").config, {"fusion.k": 7})
    page.session_state["evaluate:config"] = True
    page.run()
    page.file_uploader(key="evaluate:config_file").upload(
        "mine.yaml", export_config(config, "yaml").encode(), "text/yaml"
    ).run()
    page.button(key="evaluate:config_add").click().run()
    checked(page)
    assert list(page.dataframe[0].value["config"]) == ["cems", "recollection", "mine.yaml (file)"]


LOG = b"""{"query": "how do releases reach the cluster", "time": "2026-05-01T10:00:00Z", "results": ["m001"]}
{"query": "How do  releases reach the cluster", "time": "2026-05-02T10:00:00Z"}
{"query": "who is on call"}
{"query": 7}
not json
"""


def test_a_log_becomes_a_query_set_and_its_bad_rows_are_named(open_page: OpenPage, small_store: Path) -> None:
    page = open_page(small_store).switch_page("pages/evaluate.py").run()
    page.session_state["evaluate:log"] = True
    page.run()
    page.file_uploader(key="evaluate:log_file").upload("may.jsonl", LOG, "application/jsonl").run()
    page.text_input(key="evaluate:log_name").set_value("bad queries").run()
    page.number_input(key="evaluate:log_size").set_value(1).run()
    page.button(key="evaluate:log_make").click().run()
    checked(page)
    made = session.resources().store.query_sets.queries("bad queries")
    assert [query.query for query in made] == ["How do  releases reach the cluster"], "asked twice, in its latest words"
    assert "Query set bad queries, version 1: 1 of 2 queries" in plainly(page.success[0].value)
    tables = {tuple(table.value.columns): table.value for table in page.dataframe}
    errors = tables["row", "field", "reason"]
    assert errors["row"].tolist() == [4, 5]
    assert page.selectbox(key="evaluate:set").value == "bad queries"
    assert "No query of this set is judged yet" in page.info[0].value


WORST = b"""{"query": "short paragraphs instead of bullets", "results": ["m001"]}
{"query": "rain in Lisbon", "results": ["m001"]}
{"query": "nothing came", "results": []}
"""


def test_the_worst_queries_of_a_log_are_those_that_returned_nothing_or_little(
    open_page: OpenPage, small_store: Path
) -> None:
    page = open_page(small_store).switch_page("pages/evaluate.py").run()
    page.session_state["evaluate:log"] = True
    page.run()
    page.file_uploader(key="evaluate:log_file").upload("may.jsonl", WORST, "application/jsonl").run()
    page.text_input(key="evaluate:log_name").set_value("worst").run()
    page.segmented_control(key="evaluate:log_way").select("Worst by the judge").run()
    page.number_input(key="evaluate:log_size").set_value(2).run()
    page.button(key="evaluate:log_make").click().run()
    checked(page)
    assert {query.query for query in session.resources().store.query_sets.queries("worst")} == {
        "nothing came",
        "rain in Lisbon",
    }


def test_a_store_without_judgments_says_how_to_begin(open_page: OpenPage, tmp_path: Path) -> None:
    with Store.open(tmp_path / "empty") as store:
        store.add(ParsedInput("none", "jsonl"))
    page = checked(open_page(tmp_path / "empty").switch_page("pages/evaluate.py").run())
    assert "no queries yet" in " ".join(str(element.proto) for element in page.get("html"))
