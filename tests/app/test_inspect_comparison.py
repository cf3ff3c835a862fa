"""What Inspect keeps beside the ranking: a baseline, undo and redo, the rank flow, links; and that a rerun repeats no work."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection
from datetime import date
from typing import Any
from urllib.parse import parse_qs

import pytest
import streamlit as st
from markupsafe import Markup
from streamlit.testing.v1 import AppTest
from typer.testing import CliRunner

from cems_workbench import pipeline
from cems_workbench.cli.main import commands
from cems_workbench.config import difference, preset, with_values
from cems_workbench.jobs.foreground import FOREGROUND
from cems_workbench.pipeline import Trace, gather, replay
from cems_workbench.pipeline.effects import as_of_effect, project_effect
from cems_workbench.store.judgments import Judgments
from cems_workbench.store.queries import Queries
from cems_workbench.ui.inspect import baseline, fetch_evidence, state
from cems_workbench.ui.inspect import page as page_module
from cems_workbench.ui.inspect import state as history
from cems_workbench.ui.inspect.baseline import COLUMN
from cems_workbench.ui.inspect.views import rank_flow as view
from cems_workbench.ui.kit import session

from .conftest import release
from .inspect_page import (
    PLAIN,
    QUERY,
    WIRED,
    config_of,
    configured,
    control,
    evidence_of,
    follow,
    order,
    pinned,
    replayed,
    search,
    set_config,
    set_state,
    show,
    state_of,
)
from .pages import OpenPage, captions, html

MOVED = {"fusion.score_blend": 1.0}


def pin(page: AppTest) -> AppTest:
    """Press the button in the popover; AppTest has no hands to open it."""
    page.session_state["inspect:baseline:False"] = True
    return page.run().button(key="inspect:pin").click().run()


def moved(page: AppTest, changes: dict[str, Any] = MOVED) -> AppTest:
    set_config(page, with_values(config_of(page), changes))
    page.run()
    return page


def deltas(page: AppTest) -> list[str]:
    return re.findall(r'wb-delta" title="[^"]*">(.*?)</span>', html(page, "wb-results"))


def table(page: AppTest, view: str, place: int = 0) -> Any:
    page.session_state["inspect:view"] = view
    page.run()
    return page.dataframe[place].value


def expected(before: list[str], after: list[str]) -> list[str]:
    said = []
    for rank, memory_id in enumerate(after, 1):
        was = before.index(memory_id) + 1 if memory_id in before else None
        said.append(
            "new" if was is None else "=" if was == rank else f"▲ {was - rank}" if was > rank else f"▼ {rank - was}"
        )
    return said


def test_a_moved_slider_shows_places_won_and_lost_and_who_left(open_page: OpenPage) -> None:
    page = pin(search(open_page()))
    before = order(page)[:10]
    assert set(deltas(page)) == {"="} and "0 different parameters" in html(page, "wb-against")
    page = control(page, "slider", "fusion.score_blend").set_value(1.0).run()  # type: ignore[attr-defined]
    page_html = html(page, "wb-results")
    after = re.findall(r"<code>(.+?)</code>", page_html.split('<div class="wb-gone">')[0])
    assert after != before and deltas(page) == expected(before, after)
    assert "<b>cems</b>; 1 different parameter" in html(page, "wb-against")
    gone = page_html.split('<div class="wb-gone">')[1]
    assert re.findall(r"<code>(.+?)</code>", gone) == [memory_id for memory_id in before if memory_id not in after]
    assert "past the result limit of 10" in gone


def test_every_table_has_the_deltas_of_its_own_stage(open_page: OpenPage) -> None:
    page = open_page()
    set_config(page, with_values(preset("qmd").config, {"judge.backend": "auto", "adjust.priority": True}))
    page = moved(pin(search(page)), {"fusion.k": 5, "adjust.priority": False})
    evidence = evidence_of(page)
    former = replay(evidence, pinned(page).config)
    for name, stage, rank in (
        ("Rerank", "rerank", "after"),
        ("Adjust", "adjust", "rank"),
        ("Judge", "assembly", "rank"),
    ):
        frame = table(page, name)
        was = {row.memory_id: row.rank_out for row in former.stage(stage).rows}
        for _, row in frame.dropna(subset=[rank]).head(12).iterrows():
            now, said = int(row[rank]), row[COLUMN]
            before = was.get(row["memory"])
            want = (
                "new" if not before else "=" if before == now else f"{'▲' if before > now else '▼'} {abs(before - now)}"
            )
            assert said == want, (name, row["memory"])
    for name in ("Contributions", "Rank flow"):
        page.session_state["inspect:view"] = name
        page.run()


def test_a_preset_is_pinned_by_name_and_the_diff_names_what_differs(open_page: OpenPage) -> None:
    page = search(open_page())
    page.session_state["inspect:baseline:False"] = True
    page = page.run().selectbox(key="inspect:pin_preset").select("recollection").run()
    page.session_state["inspect:baseline:True"] = True
    page.run()
    rows = page.dataframe[0].value
    wanted = [path for path, *_ in difference(preset("recollection").config, config_of(page))]
    assert list(rows["parameter"]) == wanted and list(rows.columns) == ["parameter", "baseline", "now"]
    assert f"<b>recollection</b>; {len(wanted)} different parameters" in html(page, "wb-against")


def test_a_baseline_that_asks_for_more_than_was_gathered_says_so_in_one_line(open_page: OpenPage) -> None:
    page = search(open_page())
    assert baseline.missing_line(replay(evidence_of(page), preset("cems").config)) == ""
    page.session_state["inspect:baseline:False"] = True
    page = (
        page.run().selectbox(key="inspect:pin_preset").select("ace").run()
    )  # it makes variants of the query, and reranks
    said = html(page, "wb-against")
    assert said.count("⚠") == 1
    assert re.search(r"Not gathered for the baseline: .*; \d+ scores by cross_encoder\S*\. Its ranks", said)


def test_a_baseline_of_other_lists_is_gathered_for_itself(open_page: OpenPage) -> None:
    """Preset `cems` does not gather CEMS's hybrid list: without separately gathered lists the baseline would have none."""
    page = open_page()
    set_config(page, preset("cems_head").config)
    own = order(search(page))
    set_config(page, preset("cems").config)
    page = page.run()
    now = order(page)
    page.session_state["inspect:baseline:False"] = True
    page = page.run().selectbox(key="inspect:pin_preset").select("cems_head").run()
    assert deltas(page) == expected(own, now)
    assert "Not gathered" not in html(page, "wb-against")
    table(page, "Adjust")
    show(page, "Contributions")


def test_unpinned_the_page_is_as_before(open_page: OpenPage) -> None:
    page = search(open_page())
    plain = html(page, "wb-results")
    page = moved(pin(page))
    page.session_state["inspect:baseline:True"] = True
    page = page.run().button(key="inspect:to_baseline").click().run()
    assert config_of(page) == preset("cems").config
    page = page.button(key="inspect:unpin").click().run()
    assert html(page, "wb-results") == plain
    assert state_of(page).baseline is None


def test_the_baseline_survives_another_page_and_is_replayed_once_for_all_sliders(open_page: OpenPage) -> None:
    page = moved(pin(search(open_page())))
    kept = replayed(page)
    page = moved(page, {"fusion.k": 20})
    assert replayed(page) is kept
    page = page.switch_page("pages/memories.py").run()
    page = page.switch_page("pages/inspect.py").run()
    assert "wb-delta" in html(page, "wb-results")
    page = search(page, "restart elasticsearch")
    assert replayed(page) is not kept


CEMS = preset("cems").config


def test_every_way_to_change_the_config_is_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: dict[str, object] = {}
    monkeypatch.setattr(state.st, "session_state", kept)
    monkeypatch.setattr(history, "DRAG_S", -1.0)
    other = with_values(CEMS, {"fusion.k": 7})
    for act in (
        lambda: state.change({"fusion.k": 30, "gap.ratio": 0.2}),
        lambda: state.reset_parameter("gap.ratio"),
        lambda: state.use_config(other),
        lambda: state.choose_preset("qmd"),
        lambda: state.reset(),
        lambda: state.change({"fusion.k": -5}),
    ):
        act()
    assert state.present().config_error
    assert [(step.preset, step.config.fusion.k) for step in state.present().history.past] == [
        ("cems", 60),
        ("cems", 30),
        ("cems", 30),
        ("cems", 7),
    ]
    state.undo()
    assert state.present().config_error is None
    assert state.present_config() == other


def rank_flow_of(page: AppTest, query: str = QUERY) -> AppTest:
    page.session_state["inspect:view"] = "Rank flow"
    return search(page, query)


def figure(page: AppTest) -> dict[str, Any]:
    (chart,) = page.get("plotly_chart")
    return dict(json.loads(chart.proto.spec))


def test_a_judged_query_is_drawn_by_human_grade_with_all_its_judged_memories(open_page: OpenPage) -> None:
    page = rank_flow_of(open_page())
    legend = html(page, "wb-legend")
    assert "grade 3, answers it" in legend and "grade 0, not relevant" in legend and "lost there" in legend
    assert "and judged ones" in captions(
        page
    ) and "no change in filter, rerank, supersession, gap, dedup, abstain" in captions(page)
    ranks, names = zip(*(note["text"].split("  ", 1) for note in figure(page)["layout"]["annotations"]), strict=True)
    assert ranks == tuple(str(rank) for rank in range(1, len(order(page)) + 1))
    assert not set(names) & set(order(page)), "they are named by first words"


def test_a_click_follows_the_memory_of_that_line(monkeypatch: pytest.MonkeyPatch) -> None:
    state: dict[str, Any] = {"chart": {"selection": {"points": [{"curve_number": 1}]}}, "inspect:follow": None}
    monkeypatch.setattr(st, "session_state", state)
    view.follow_selected("chart", ("m1", "m2"))
    assert state["inspect:follow"] == "m2"
    state["chart"] = {"selection": {"points": []}}
    view.follow_selected("chart", ("m1", "m2"))
    assert state["inspect:follow"] == "m2"  # clearing the selection changes nothing
    state["chart"] = {"selection": {"points": [{"curve_number": 2}]}}
    view.follow_selected("chart", ("m1", "m2"))
    assert state["inspect:follow"] == "m2"  # a line without a memory


def test_nothing_to_draw_is_said(open_page: OpenPage) -> None:
    page = open_page()
    off = {f"lists.{name}.enabled": False for name in ("vector", "lexical", "recency", "access", "relations")}
    set_config(page, with_values(preset("cems").config, off))
    page = rank_flow_of(page)
    assert "No enabled list has candidates" in captions(page)
    assert not page.get("plotly_chart")


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A name for every replay: `gather`, `page` or `baseline`."""
    seen: list[str] = []
    modules = (("gather", gather), ("page", fetch_evidence), ("baseline", pipeline))
    for name, module in modules:

        def counted(*args: Any, of: str = name, **options: Any) -> Any:
            seen.append(of)
            return replay(*args, **options)

        monkeypatch.setattr(module, "replay", counted)
    return seen


def slide(page: AppTest) -> None:
    control(page, "slider", "fusion.score_blend").set_value(1.0).run()  # type: ignore[attr-defined]


def test_a_new_query_without_a_reranker_replays_once_and_so_does_a_moved_slider(
    open_page: OpenPage, replays: list[str]
) -> None:
    page = search(open_page(), "a query that nobody has asked before")
    assert replays == ["gather"]
    slide(page)
    assert replays == ["gather", "page"]


def test_a_new_query_with_a_reranker_replays_once_more_for_each_order_on_screen_and_with_all_scores(
    open_page: OpenPage, replays: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    painted: list[tuple[int, int] | None] = []
    monkeypatch.setattr(fetch_evidence, "settling_html", lambda trace, read, off: painted.append(read) or Markup(""))  # type: ignore[func-returns-value]
    page = open_page()
    set_config(page, preset("qmd").config)
    search(page.run(), "another query that nobody has asked before")
    batches = [read for read in painted if read is not None]
    assert painted[0] is None and batches == sorted(set(batches)) and len(batches) == len(painted) - 1
    assert replays == ["gather"] * (1 + len(batches)) + ["page"]


@pytest.mark.parametrize("loaded", [True, False])
def test_the_order_of_the_lists_is_painted_before_the_controls_where_it_is_there_at_once(
    open_page: OpenPage, monkeypatch: pytest.MonkeyPatch, loaded: bool
) -> None:
    page, real = open_page().run(), page_module._draw_sidebar
    drawn: list[object] = []
    monkeypatch.setattr(session.warm_up_state(), "state", "ready" if loaded else "loading")
    monkeypatch.setattr(page_module, "_draw_sidebar", lambda *on: (drawn.append("controls"), real(*on)))

    def painted(trace: Trace, read: tuple[int, int] | None, off: Collection[int]) -> Markup:
        drawn.append("lists" if read is None else read)
        assert FOREGROUND.active == 1, "what is done in the background gives way to a page"
        return Markup("<p></p>")

    monkeypatch.setattr(fetch_evidence, "settling_html", painted)
    monkeypatch.setattr(fetch_evidence, "MAX_STALE_CONTROLS_S", 600)
    set_config(page, preset("qmd").config)
    search(page, "another query that nobody has asked before")
    assert drawn[:2] == (["lists", "controls"] if loaded else ["controls", "lists"]) and drawn.count("controls") == 1
    assert FOREGROUND.active == 0


def test_a_moved_slider_reads_no_whole_query_set(open_page: OpenPage, monkeypatch: pytest.MonkeyPatch) -> None:
    page = search(open_page())
    asked: list[tuple[object, ...]] = []
    read = Judgments.read

    def counted(self: Judgments, qid: str | None = None, kind: str | None = None) -> Any:
        asked.append((qid, kind))
        return read(self, qid, kind)

    monkeypatch.setattr(Judgments, "read", counted)
    monkeypatch.setattr(Queries, "read", lambda self: pytest.fail("every query was read"))
    slide(page)
    assert not asked


def reloaded(page: AppTest, **address: str | list[str]) -> AppTest:
    """A new session that opens the address of a page, or this one."""
    fresh = AppTest.from_file(page._script_path, default_timeout=60)
    for name, value in (address or page.query_params).items():
        fresh.query_params[name] = value
    return fresh.run()


def said(page: AppTest) -> list[str]:
    return [info.value.replace("\\", "") for info in page.info]


def test_a_reload_brings_back_query_settings_and_what_was_looked_at(open_page: OpenPage) -> None:
    page = configured(open_page(), {"expansion.backend": "manual", "fusion.k": 17, **PLAIN}, "recollection")
    set_state(page, preset="recollection")
    page = search(page)
    page.text_area(key="inspect:manual").set_value("doctor visits\nclinics").run()
    page.selectbox(key="inspect:project").select_index(0).run()
    page.toggle(key="inspect:only_project").set_value(False).run()
    page.date_input(key="inspect:as_of").set_value(date(2026, 8, 1)).run()
    assert as_of_effect(config_of(page)).words in captions(page)
    assert project_effect(config_of(page)).words in captions(page)
    page = follow(page, order(page)[2])
    page.session_state["inspect:section"] = "What happened"
    page.session_state["inspect:view"] = "Query"
    page.session_state["inspect:share"] = True
    page.run()
    switches = [toggle for toggle in page.toggle if toggle.key and toggle.key.startswith("inspect:variant:")]
    page = switches[2].set_value(False).run()
    shown = next(code.value for code in page.code if "query=" in code.value)
    assert parse_qs(shown.partition("?")[2]) == {
        name: value if isinstance(value, list) else [value] for name, value in page.query_params.items()
    }
    fresh = reloaded(page)
    assert order(fresh) == order(page)
    assert html(fresh, "wb-path") == html(page, "wb-path")
    assert state_of(fresh).setting == state_of(page).setting
    for name in ("query", "project", "as_of", "manual", "follow", "form", "view"):
        assert fresh.session_state[f"inspect:{name}"] == page.session_state[f"inspect:{name}"], name
    switches = [toggle for toggle in fresh.toggle if toggle.key and toggle.key.startswith("inspect:variant:")]
    assert [switch.value for switch in switches] == [True, True, False]
    assert said(fresh) == []


def test_an_address_that_cannot_be_read_is_one_line_and_the_page_opens_as_far_as_it_can(open_page: OpenPage) -> None:
    wrong = {
        "form": "Cards",
        "query": QUERY,
        "set": ["fusion.k=30", "gap.ratio=7"],
        "memory": "nowhere<b>",
        "view": "None such",
        "state": "abc",
        "off": "9" * 5000,
    }
    fresh = reloaded(open_page(), **wrong)
    assert order(fresh) and config_of(fresh) == with_values(preset(state_of(fresh).preset).config, {"fusion.k": 30})
    (line,) = said(fresh)
    for part in ("gap.ratio", "memory=nowhere<b>", "view=None such", "state (not known here)", "off=999"):
        assert part in line
    assert "memory" not in fresh.query_params and "state" not in fresh.query_params


@pytest.mark.parametrize(
    ("name", "changes", "query"),
    [
        ("cems", {"fusion.k": 7, "adjust.time_decay.half_life_days": 12.5}, QUERY),
        ("recollection", {"assembly.limit": 6, "expansion.backend": "dictionary", **PLAIN}, WIRED),
    ],
)
def test_the_command_line_of_the_page_gives_its_ranking(
    open_page: OpenPage, name: str, changes: dict[str, object], query: str
) -> None:
    page = configured(open_page(), changes, name)
    set_state(page, preset=name)
    page.session_state["inspect:share"] = True
    page = search(page, query)
    if "expansion.backend" in changes:
        page.session_state["inspect:view"] = "Query"
        page.run()
        switches = [toggle for toggle in page.toggle if toggle.key and toggle.key.startswith("inspect:variant:")]
        page = switches[1].set_value(False).run()
    ranked, scores = order(page), re.findall(r"after the last stage: ([^\"]+)", html(page, "wb-results"))
    command = next(code.value for code in page.code if code.value.startswith("python -m cems_workbench search"))
    release()
    result = CliRunner().invoke(commands, [*shlex.split(command)[3:], "--json"])
    assert result.exit_code == 0, result.output
    trace = json.loads(result.stdout)
    assert [row["memory_id"] for row in trace["results"]] == ranked
    assert [row["score"] for row in trace["results"]] == [float(score) for score in scores]
