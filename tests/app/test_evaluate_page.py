"""The Evaluate page: compare, losses, experiments, recorded answers, shipped figures; Inspect opened with what was measured."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pytest
import streamlit
from streamlit.testing.v1 import AppTest

from cems_workbench.analysis.losses_of_set import Losses, losses_of
from cems_workbench.config import PipelineConfig, export_config, preset, with_values
from cems_workbench.evaluation.evaluate import NO_TYPE
from cems_workbench.evaluation.evidence_file import EvidenceSet, read_evidence_file
from cems_workbench.evaluation.metrics import parse_measures
from cems_workbench.formats import read
from cems_workbench.jobs.catalogue import read_figures, sample_figures
from cems_workbench.jobs.evaluation import agreed, evaluate_configs, labelled_file, labelled_selection
from cems_workbench.jobs.factory import open_resources
from cems_workbench.jobs.query_set_evidence import gather_query_set, judged_selection
from cems_workbench.pipeline import replay
from cems_workbench.pipeline.gather import Request, gather
from cems_workbench.records import WHOLE_STORE, Judgment, ParsedInput
from cems_workbench.settings import Settings
from cems_workbench.store import ImportOptions, Store
from cems_workbench.ui.evaluate.page import VIEWS
from cems_workbench.ui.evaluate.setup import DEFAULT_MEASURES
from cems_workbench.ui.kit import session
from cems_workbench.ui.kit.views import views_in
from tests.sample import answered_queries, copied, store_with_set

from .inspect_page import config_of, pinned, set_config
from .pages import OpenPage, all_html, captions, checked, markdown, plainly, press, table_with

QUERIES = 12


@pytest.fixture(scope="module")
def small_store(sample_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample store with a query set "few" of some of its answered queries."""
    return store_with_set(sample_store, tmp_path_factory.mktemp("evaluate"), "few", QUERIES)


@pytest.fixture
def page(open_page: OpenPage, small_store: Path) -> AppTest:
    """The page on the small set, gathered for two presets, which are compared."""
    opened = open_page(small_store, page="evaluate")
    opened.selectbox(key="evaluate:set").select("few").run()
    if any(button.key == "evaluate:gather" for button in opened.button):
        opened.button(key="evaluate:gather").click().run()
    assert opened.session_state["evaluate:view"] == "Compare"  # first with two configs (shot 11)
    return checked(opened)


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
    page = open_page(path, page="evaluate")
    page.selectbox(key="evaluate:set").select("few").run()
    page.multiselect(key="evaluate:configs").set_value(["cems"]).run()
    page.multiselect(key="evaluate:measures").set_value(["hit@5", "noise@5", "AUROC"]).run()
    page.button(key="evaluate:gather").click().run()
    show(page, "Compare")
    assert any("Risk and coverage" in text.value for text in page.markdown)
    assert "means of 2 of 3 judged queries; 1 without an answer counts in noise" in captions(page)
    assert page.dataframe[0].value["noise@5"].tolist() == ["1.000"]


def test_compare_has_means_within_their_intervals_and_differences_with_wins_and_losses(page: AppTest) -> None:
    assert not [button for button in page.button if button.key == "evaluate:gather"], "what is gathered stays"
    means, mean = page.dataframe[0].value.set_index("config"), {}
    assert list(means.index) == ["cems", "recollection"]
    assert (means["ms per query"] > 0).all() and (means["LLM calls"] == 0).all()
    for name, cell in means["nDCG@10"].items():
        mean[name], low, high = map(float, re.fullmatch(r"(.+) \((.+)–(.+)\)", cell).groups())
        assert 0 <= low <= mean[name] <= high <= 1 and low < high
    found = next(row for row in page.dataframe[1].value.to_dict("records") if row["measure"] == "nDCG@10")
    assert found["difference"] == pytest.approx(mean["recollection"] - mean["cems"], abs=1.1e-3)
    assert found["wins"] + found["losses"] + found["ties"] <= QUERIES and 0 < found["p (Holm)"] <= 1
    picture = page.get("plotly_chart")[0]
    bars = json.loads(picture.proto.spec)["data"][0]
    assert len(bars["hovertext"]) == found["wins"] + found["losses"]
    (said,) = (text.value.replace("\\", "") for text in page.markdown if " against cems" in text.value)
    assert f"{found['wins']} better, {found['losses']} worse, {found['ties']} the same" in said

    page.toggle(key="evaluate:power").set_value(True).run()
    first = table_with(checked(page), "pairs")
    (offer,) = (button for button in page.button if button.key == "evaluate:power:label")
    assert offer.label == f"Label {first['pairs'].sum()} pairs of these {len(first)} queries"
    assert (first["lowest"] <= first["highest"]).all() and "Queries until a loss" in all_html(page)


def on_losses(page: AppTest) -> AppTest:
    """The view of losses, the first one."""
    assert next(iter(views_in("evaluate", *VIEWS))) == "Losses"
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
    page.session_state["evaluate:losses:groups"] = True
    groups = table_with(checked(page.run()), "type")
    assert dict(zip(groups["type"], groups["returned"], strict=True)) == {kind: losses.maps[0].by_type[kind].returned}


def test_a_lost_memory_opens_in_inspect_where_it_is_explained(page: AppTest, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(streamlit, "switch_page", lambda page, query_params: opened.append(page))
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


def test_each_other_view_has_its_rows(page: AppTest) -> None:
    assert show(page, "By type").dataframe[0].value["queries"].sum() == QUERIES
    change = show(page, "By query").dataframe[0].value["difference"].abs().fillna(0).tolist()
    assert change == sorted(change, reverse=True) and len(change) == QUERIES
    assert {"people", "cosine ≥ 0.45"} <= set(show(page, "Compare judges").dataframe[0].value["judge"])
    assert "answerable: false" in show(page, "Calibrate").info[0].value
    rows = show(page, "Ablation").dataframe[0].value["row"]
    assert rows.iloc[0] == "cems" and "without lexical list" in set(rows)
    show(page, "Graph recall").button(key="evaluate:graph:search").click().run()
    checked(page)
    assert not [button for button in page.button if button.key == "evaluate:graph:search"]
    assert f"memories of {QUERIES} queries" in all_html(page)
    assert "a temporary copy of its files was searched" in captions(page)


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
    assert "another store: theirs, then" in plainly(page.warning[0].value)
    assert page.selectbox(key="evaluate:set").value == "few"
    page.button(key="evaluate:file_use").click().run()
    checked(page)
    assert all(said in captions(page) for said in (f"{QUERIES} of {QUERIES} queries", "Read-only: another store"))
    page.session_state["evaluate:configs"] = ["cems", "qmd", "ace"]
    checked(page.run())
    assert list(page.dataframe[0].value["config"]) == ["cems", "qmd", "ace"]
    assert not [button for button in page.button if button.key == "evaluate:gather"], "nothing is gathered for a file"
    assert file.read_bytes() == before
    page.button(key="evaluate:file_close").click().run()
    assert page.selectbox(key="evaluate:set").value == "sample_data"  # most of its queries are judged
    checked(page)


@pytest.mark.parametrize(("name", "reason"), [("none", "no longer exists"), ("text", "not an evidence file")])
def test_what_is_no_evidence_file_is_one_line(page: AppTest, tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "text").write_text("hello")
    page.session_state["evaluate:file"] = True
    page.run()
    page.text_input(key="evaluate:file_path").set_value(str(tmp_path / name)).run()
    page.button(key="evaluate:file_open").click().run()
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
    page = open_page(small_store, page="evaluate")
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


def test_a_store_without_judgments_says_how_to_begin(open_page: OpenPage, tmp_path: Path) -> None:
    with Store.open(tmp_path / "empty") as store:
        store.add(ParsedInput("none", "jsonl"))
    page = checked(open_page(tmp_path / "empty", page="evaluate"))
    assert "no queries yet" in " ".join(str(element.proto) for element in page.get("html"))


RECORDING = Path(__file__).resolve().parents[1] / "recordings" / "sample_cut.json"
RECORDED = 10


@pytest.fixture(scope="module")
def own_store(sample_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample store, in which this module gathers."""
    return shutil.copytree(sample_store, tmp_path_factory.mktemp("fidelity") / "store")


@pytest.fixture
def recorded(open_page: OpenPage, own_store: Path) -> AppTest:
    """The view, with nothing brought yet."""
    opened = open_page(own_store).switch_page("pages/evaluate.py")
    opened.session_state["evaluate:against"] = "Recorded answers"
    return checked(opened.run())


def brought(recorded: AppTest, path: Path) -> AppTest:
    recorded.text_input(key="evaluate:fidelity_path").set_value(str(path)).run()
    if any(button.key == "evaluate:fidelity:gather" for button in recorded.button):
        press(recorded, "evaluate:fidelity:gather")
    return recorded


def test_with_nothing_brought_the_page_says_what_to_bring(recorded: AppTest) -> None:
    assert "Compare a config with a real system" in all_html(recorded)
    assert "TREC run" in all_html(recorded)
    assert not recorded.dataframe


def test_what_is_asked_is_gathered_once_and_measured_by_setting(recorded: AppTest) -> None:
    checked(brought(recorded, RECORDING))
    row = table_with(recorded, "same order").iloc[0]
    assert (row["answers"], row["queries"]) == ("sample_cut, cems_head", RECORDED)
    assert row["same first"].split(" · ")[0].isdigit()
    assert "laid over cems_head: max_tokens 4000" in captions(recorded)
    recorded.multiselect(key="evaluate:fidelity_configs").select("recollection").run()
    if any(button.key == "evaluate:fidelity:gather" for button in recorded.button):
        press(recorded, "evaluate:fidelity:gather")
    assert list(table_with(recorded, "same order")["answers"]) == ["sample_cut, cems_head", "sample_cut, recollection"]
    recorded.selectbox(key="evaluate:fidelity_setting").select("sample_cut, recollection").run()
    listed = table_with(checked(recorded), "diverges at")
    assert list(listed["RBO"]) == sorted(listed["RBO"])
    assert set(listed["cause"]) <= {"lexical scores", "other", "equal relations", "equal scores"}


def test_a_single_change_that_explains_the_answers_is_found(recorded: AppTest, tmp_path: Path) -> None:
    config = with_values(preset("cems_head").config, {"gap.ratio": 0.0})
    query = "how do we roll back a failed deploy?"
    resources = session.resources()
    found = replay(gather(Request(query), config, resources), config).results
    answers = [{"qid": "x", "query": query, "results": [row.memory_id for row in found]}]
    path = tmp_path / "gap.json"
    path.write_text(json.dumps({"answers": answers}))
    brought(recorded, path)
    press(recorded, "evaluate:fidelity_explain")
    assert "0 to 1" in set(table_with(recorded, "would be")["same order"])


def test_the_gain_after_tuning_is_that_of_the_command(recorded: AppTest) -> None:
    resources, tuned = session.resources(), with_values(preset("mem0").config, {"threshold.fixed": 0.45})
    queries = [query for query in answered_queries(resources.store) if query.project is None][:3]
    moment = datetime(2026, 11, 22, tzinfo=UTC)

    def content(config: PipelineConfig) -> bytes:
        answers = []
        for query in queries:
            found = replay(gather(Request(query.query, as_of=moment), config, resources), config).results
            results = [{"id": row.memory_id, "score": row.score} for row in found]
            answers.append({"qid": query.qid, "query": query.query, "results": results})
        return json.dumps({"answered_at": "2026-11-22", "answers": answers}).encode()

    files = [
        (name, content(config), "application/json")
        for name, config in (("before.json", preset("mem0").config), ("after.json", tuned))
    ]
    recorded.file_uploader(key="evaluate:fidelity_files").set_value(files[:1]).run()
    recorded.session_state["evaluate:fidelity_compare"] = "Gain after tuning"
    assert "Add a second file" in checked(recorded.run()).info[0].value
    recorded.session_state["evaluate:config"] = True
    recorded.run()
    recorded.file_uploader(key="evaluate:config_file").upload(
        "tuned.yaml", export_config(tuned, "yaml").encode(), "text/yaml"
    ).run()
    press(recorded, "evaluate:config_add")
    recorded.file_uploader(key="evaluate:fidelity_files").set_value(files).run()
    recorded.selectbox(key="promise:config").select("tuned.yaml (file)").run()
    assert recorded.selectbox(key="promise:preset:mem0").value == "mem0", "what its target does"
    press(recorded, "evaluate:fidelity:gather")
    shown = all_html(checked(recorded))
    assert "the promise is kept" in shown and "recorded gain" in shown
    recorded.selectbox(key="promise:before").select("after").run()
    assert "Choose two files" in checked(recorded).info[0].value


def test_bad_input_is_one_line(recorded: AppTest, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    for text, line in (
        (
            '{"answers": [{"qid": "q1", "query": "x", "results": [{"score": 1}]}]}',
            "bad.json:1: results[0]: has neither an id",
        ),
        (
            '{"answers": [{"qid": "q1", "query": "x", "results": ["elsewhere"]}]}',
            "none of its memories is in the store",
        ),
    ):
        path.write_text(text)
        brought_anyway(recorded, path)
        assert [line in plainly(error.value) for error in recorded.error] == [True], text
    brought_anyway(recorded, tmp_path / "none.json")
    assert "does not exist" in plainly(recorded.error[0].value)


def brought_anyway(recorded: AppTest, path: Path) -> AppTest:
    """Bring a file that may be refused."""
    recorded.text_input(key="evaluate:fidelity_path").set_value("").run()
    recorded.text_input(key="evaluate:fidelity_path").set_value(str(path)).run()
    for button in recorded.button:
        if button.key == "evaluate:fidelity:gather":
            button.click().run()
            break
    return recorded


ASKED = [
    ("how do we roll back a failed deploy?", ["m002", "m001"], [0.9, 0.4]),
    ("how do I run the tests?", [], []),
    ("who is on call this week?", ["m003", "elsewhere"], [0.2, 0.1]),
]


@pytest.fixture(scope="module")
def logged_store(sample_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample store with a log of three questions."""
    folder = tmp_path_factory.mktemp("logged")
    path = folder / "production.jsonl"
    rows = [
        {"time": f"2026-11-22T10:0{n}:00Z", "query": query, "results": ids, "scores": scores}
        for n, (query, ids, scores) in enumerate(ASKED)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    place = shutil.copytree(sample_store, folder / "store")
    with Store.open(place) as store:
        store.add(read(path))
    return place


def evaluated(open_page: OpenPage, store: Path) -> AppTest:
    page = open_page(store).switch_page("pages/evaluate.py")
    page.session_state["evaluate:against"] = "Recorded answers"
    checked(page.run())
    page.multiselect(key="evaluate:fidelity_sets").select("production").run()
    if any(button.key == "evaluate:fidelity:gather" for button in page.button):
        press(page, "evaluate:fidelity:gather")
    return checked(page)


def test_a_kept_set_is_measured_and_its_failing_queries_stand_first(open_page: OpenPage, logged_store: Path) -> None:
    page = evaluated(open_page, logged_store)
    row = table_with(page, "same order").iloc[0]
    assert (row["answers"], row["queries"]) == ("production, cems_head", 3)
    listed = table_with(page, "diverges at")
    assert listed["query"][0] == "how do I run the tests?"
    assert "1 query without a recorded result" in captions(page)
    assert list(listed["RBO"][1:]) == sorted(listed["RBO"][1:])
    page.session_state["evaluate:fidelity_order"] = "Lowest recorded score first"
    listed = table_with(checked(page.run()), "diverges at")
    assert list(listed["query"]) == [ASKED[1][0], ASKED[2][0], ASKED[0][0]]
    assert listed["cause"][1] == "not here"


@pytest.mark.thorough
def test_recorded_queries_are_listed_failing_first_and_beside_the_config_on_request(
    open_page: OpenPage, logged_store: Path
) -> None:
    page = open_page(logged_store)
    page.session_state["inspect:picker"] = True
    page.run()
    picker = page.selectbox(key="inspect:picker_set")
    assert picker.options[1] == "production · 3 recorded"
    picker.select("production").run()
    listed = table_with(checked(page), "top score")
    assert list(listed["query"]) == [ASKED[1][0], ASKED[2][0], ASKED[0][0]]
    assert "Without a result: 1, first; then the lowest scores." in captions(page)
    press(page, "inspect:picker_compare")
    listed = table_with(page, "RBO")
    assert listed["query"][0] == ASKED[1][0]
    assert list(listed["RBO"][1:]) == sorted(listed["RBO"][1:])


FEWER = 8
TYPED = preset("cems").config.model_copy(update={"name": "typed"})
"""Further queries are typed by hand under it."""


@pytest.fixture(scope="module")
def store(sample_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample store with a set of answered queries that have a project; the first of them has no time."""
    folder = tmp_path_factory.mktemp("request")
    with copied(sample_store, folder) as opened:
        first, *others = [query for query in answered_queries(opened) if query.project][:FEWER]
        opened.query_sets.put("fewer", [replace(first, as_of=None), *others], "test")
    return folder / "store"


@pytest.fixture
def inspected(open_page: OpenPage, store: Path, monkeypatch: pytest.MonkeyPatch) -> AppTest:
    """Inspect after a search in all projects with a further typed query."""
    monkeypatch.setattr(streamlit, "switch_page", lambda target, query_params: None)  # AppTest goes there itself
    opened = open_page(store)
    set_config(opened, with_values(TYPED, {"expansion.backend": "manual"}))
    opened.run()
    labelled(opened, "text_input", "Query").set_value("who pays?")
    labelled(opened, "text_area", "Further queries, one per line").set_value("billing by seats")
    return checked(opened.run())


def labelled(inspected: AppTest, kind: str, label: str):  # type: ignore[no-untyped-def]
    """The one widget of a kind that bears a label."""
    (widget,) = [widget for widget in inspected.get(kind) if widget.label == label]
    return widget


def gather_missing(inspected: AppTest) -> None:
    """Gather what is missing."""
    labelled(inspected, "button", "Gather").click().run()


def measured(store: Path) -> EvidenceSet:
    """The evidence that was gathered within projects for the typed config."""
    (evidence,) = [
        evidence
        for file in (store / "evidence").glob("*.evidence")
        if (evidence := read_evidence_file(file)).header.only_project and evidence.header.config.name == "typed"
    ]
    return evidence


def assert_shows(inspected: AppTest, evidence: EvidenceSet, query: str) -> None:
    """Inspect has the request of the evidence in its boxes, and ranks what that evidence gives under the config on the sliders."""
    qid = next(known.qid for known in evidence.queries if known.query == query)
    gathered = evidence.evidences[qid]
    inspected = checked(inspected.switch_page("pages/inspect.py").run())
    assert labelled(inspected, "text_input", "Query").value == query
    assert labelled(inspected, "toggle", "Only this project").value is True
    assert labelled(inspected, "text_area", "Further queries, one per line").value == ""
    assert labelled(inspected, "date_input", "As of").value == gathered.as_of.date()  # type: ignore[union-attr]
    (results,) = [str(html.proto.body) for html in inspected.get("html") if 'class="wb-results"' in html.proto.body]
    expected = [row.memory_id for row in replay(gathered, config_of(inspected)).results]
    shown = re.findall(r"<code>(.+?)</code>", results)[: len(expected)]  # what is missing is named behind them
    assert shown == expected


def test_a_query_of_evaluate_opens_as_it_was_measured(inspected: AppTest, store: Path) -> None:
    inspected.switch_page("pages/evaluate.py").run()
    labelled(inspected, "selectbox", "Query set").select("fewer")
    labelled(inspected, "toggle", "Within the project").set_value(True)
    labelled(inspected, "multiselect", "Configs").set_value(["cems", "as set in Inspect"]).run()
    gather_missing(inspected)
    labelled(inspected, "segmented_control", "View").set_value("By query").run()
    evidence = measured(store)
    (query,) = [query.query for query in evidence.queries if query.as_of is None]
    row = list(checked(inspected).dataframe[0].value["query"]).index(query)
    inspected.session_state["evaluate:queries"] = {"selection": {"rows": [row], "columns": [], "cells": []}}
    checked(inspected.run())
    assert_shows(inspected, evidence, query)


CHEAP, MEASURED = "recollection", 12
AGAIN = "the shipped figures are of something else by now: python -m benchmarks.sample_figures makes them again"


def test_the_shipped_figures_are_what_is_measured(sample_store: Path, tmp_path: Path) -> None:
    with copied(sample_store, tmp_path):
        pass
    resources = open_resources(Settings(store=tmp_path / "store"))
    try:
        figures = sample_figures(resources)
        assert figures is not None, AGAIN
        judgments = resources.store.judgments.read()
        queries = judged_selection("sample_data", resources, judgments).queries[:: 129 // MEASURED][:MEASURED]
        file, config = tmp_path / "few.evidence", preset(CHEAP).config
        gather_query_set(file, queries, judgments, config, resources, query_set="sample_data")
        resources.store.judgments.record([Judgment(queries[0].qid, "m001", 1, "a judge", "model")], "test")
        assert sample_figures(resources) is None, "they are not of a store with another label"
    finally:
        resources.close()
    assert figures.experiment.card is not None
    shipped = next(config for config in figures.experiment.card["configs"] if config["config"] == CHEAP)["per_query"]
    shipped = {query.qid: shipped[query.qid] for query in queries}

    measures = parse_measures(" ".join(DEFAULT_MEASURES))
    on_file = labelled_file(read_evidence_file(file), None)
    (evaluated,), _ = evaluate_configs([(CHEAP, config)], lambda _: on_file, measures)
    assert _rounded(evaluated.to_json()["per_query"]) == _rounded(shipped), AGAIN


def _rounded(values: dict[str, dict[str, float | None]]) -> dict[str, dict[str, float | None]]:
    return {
        qid: {name: None if value is None else round(value, 9) for name, value in row.items()}
        for qid, row in values.items()
    }


def test_the_first_screens_show_the_shipped_figures_of_the_sample_set(
    open_page: OpenPage, sample_store: Path, tmp_path: Path
) -> None:
    with copied(sample_store, tmp_path):
        pass
    figures = read_figures()
    assert figures.experiment.card is not None and figures.tuned.card is not None
    page = checked(open_page(tmp_path / "store", page="evaluate"))
    means = page.dataframe[0].value
    assert list(means["config"]) == list(figures.measured.presets)
    for shown, config in zip(means["nDCG@10"], figures.experiment.card["configs"], strict=True):
        assert shown.startswith(f"{config['measures']['nDCG@10']['mean']:.3f} (")
    mark = (
        f"Measured with CEMS Workbench {figures.version} on {figures.day}; these results are bundled with the project"
    )
    assert mark in captions(page)
    page.button(key="evaluate:shipped").click().run()
    assert page.multiselect(key="evaluate:configs").value == list(figures.measured.presets)

    page = checked(page.switch_page("pages/tune.py").run())
    gained = figures.tuned.card["measured"][0]
    assert mark in captions(page)
    assert f"nDCG@10 {gained['baseline']:.3f} → {gained['tuned']:.3f}" in all_html(page)


def test_another_store_has_its_verdict_the_causes_and_both_texts(open_page: OpenPage, small_store: Path, tmp_path: Path) -> None:
    other = shutil.copytree(small_store, tmp_path / "now")
    with Store.open(other) as store:
        before = store.imports.get().number
        judged = {one.memory_id for one in store.judgments.read() if one.grade}
        texts = tuple(replace(one, content="Nothing is known of it.") for one in store.memories.read(judged).values())
        store.add(ParsedInput("later", "memories-jsonl", memories=texts), options=ImportOptions(replace=True))
    page = open_page(other).switch_page("pages/evaluate.py")
    page.session_state["evaluate:against"] = "Another store"
    page.run()
    page.selectbox(key="evaluate:stores:set").select("few").run()
    page.selectbox(key="evaluate:stores:other").select(f"@{before}").run()
    page.button(key="evaluate:stores:compare").click().run()
    assert not [button for button in page.button if button.key == "evaluate:stores:compare"]  # it is kept
    (rows,) = (table.value for table in page.dataframe if "cause" in table.value.columns)
    assert len(rows) and set(rows["cause"]) == {"memory texts"}
    assert any("against" in text.value for text in page.markdown) and any("changed" in text.value for text in page.caption)
