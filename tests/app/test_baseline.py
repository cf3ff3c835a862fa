"""A pinned baseline: deltas on the results and in every table, lost results, the config diff, and restoring it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from cems_workbench.config import difference, preset, with_values
from cems_workbench.pipeline import replay
from cems_workbench.ui.inspect import baseline
from cems_workbench.ui.inspect.baseline import COLUMN

from .inspect_page import (
    config_of,
    control,
    evidence_of,
    order,
    pinned,
    ranks,
    replayed,
    search,
    set_config,
    show,
    state_of,
)
from .pages import OpenPage, html

pytestmark = [pytest.mark.models]
MOVED = {"fusion.score_blend": 1.0}


def pin(page: AppTest) -> AppTest:
    """Press the button in the popover; AppTest has no hands to open it."""
    page.session_state["inspect:baseline:False"] = True
    page = page.run().button(key="inspect:pin").click().run()
    assert not page.exception
    return page


def moved(page: AppTest, changes: dict[str, Any] = MOVED) -> AppTest:
    set_config(page, with_values(config_of(page), changes))
    page.run()
    assert not page.exception
    return page


def deltas(page: AppTest) -> list[str]:
    return re.findall(r'wb-delta" title="[^"]*">(.*?)</span>', html(page, "wb-results"))


def table(page: AppTest, view: str, place: int = 0) -> Any:
    page.session_state["inspect:view"] = view
    page.run()
    assert not page.exception, view
    return page.dataframe[place].value


def expected(before: list[str], after: list[str]) -> list[str]:
    said = []
    for rank, memory_id in enumerate(after, 1):
        was = before.index(memory_id) + 1 if memory_id in before else None
        said.append(
            "new" if was is None else "=" if was == rank else f"▲ {was - rank}" if was > rank else f"▼ {rank - was}"
        )
    return said


def test_nothing_is_compared_until_a_baseline_is_pinned(open_page: OpenPage) -> None:
    page = search(open_page())
    assert "wb-delta" not in html(page, "wb-results")
    assert state_of(page).baseline_replay is None
    assert COLUMN not in ranks(page).columns


def test_a_moved_slider_shows_places_won_and_lost_and_who_left(open_page: OpenPage) -> None:
    page = pin(search(open_page()))
    before = order(page)[:10]
    assert set(deltas(page)) == {"="} and "no parameters differ" in html(page, "wb-against")
    page = control(page, "slider", "fusion.score_blend").set_value(1.0).run()  # type: ignore[attr-defined]
    page_html = html(page, "wb-results")
    after = re.findall(r"<code>(.+?)</code>", page_html.split('<div class="wb-gone">')[0])
    assert after != before and deltas(page) == expected(before, after)
    assert "<b>cems</b>: 1 parameter differs" in html(page, "wb-against")
    gone = page_html.split('<div class="wb-gone">')[1]
    assert re.findall(r"<code>(.+?)</code>", gone) == [memory_id for memory_id in before if memory_id not in after]
    assert "past the result limit of 10" in gone


def test_every_table_has_the_deltas_of_its_own_stage(open_page: OpenPage) -> None:
    page = open_page()
    set_config(page, with_values(preset("qmd").config, {"judge.backend": "auto", "adjust.priority": True}))
    page = moved(pin(search(page)), {"fusion.k": 5, "adjust.priority": False})
    evidence = evidence_of(page)
    former = replay(evidence, pinned(page).config)
    for view, stage, rank in (
        ("Rerank", "rerank", "after"),
        ("Adjust", "adjust", "rank"),
        ("Judge", "assembly", "rank"),
    ):
        frame = table(page, view)
        was = {row.memory_id: row.rank_out for row in former.stage(stage).rows}
        for _, row in frame.dropna(subset=[rank]).head(12).iterrows():
            now, said = int(row[rank]), row[COLUMN]
            before = was.get(row["memory"])
            want = (
                "new" if not before else "=" if before == now else f"{'▲' if before > now else '▼'} {abs(before - now)}"
            )
            assert said == want, (view, row["memory"])
    frame = ranks(page).set_index("memory")
    gone = {row.memory_id for row in former.results} - set(order(page))
    assert all(str(frame.loc[memory_id, COLUMN]).startswith("gone, was ") for memory_id in gone)
    for view in ("Contributions", "Rank flow"):
        page.session_state["inspect:view"] = view
        assert not page.run().exception


def test_a_preset_is_pinned_by_name_and_the_diff_names_what_differs(open_page: OpenPage) -> None:
    page = search(open_page())
    page.session_state["inspect:baseline:False"] = True
    page = page.run().selectbox(key="inspect:pin_preset").select("recollection").run()
    assert not page.exception
    page.session_state["inspect:baseline:True"] = True
    page.run()
    rows = page.dataframe[0].value
    wanted = [path for path, *_ in difference(preset("recollection").config, config_of(page))]
    assert list(rows["parameter"]) == wanted and list(rows.columns) == ["parameter", "baseline", "now"]
    assert f"<b>recollection</b>: {len(wanted)} parameters differ" in html(page, "wb-against")


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
    assert not page.exception
    assert deltas(page) == expected(own, now)
    assert "Not gathered" not in html(page, "wb-against")
    table(page, "Adjust")
    show(page, "Contributions")
    assert set(own) - set(now) <= set(ranks(page)["memory"])


def test_unpinned_the_page_is_as_before(open_page: OpenPage) -> None:
    page = search(open_page())
    plain = html(page, "wb-results")
    page = moved(pin(page))
    page.session_state["inspect:baseline:True"] = True
    page = page.run().button(key="inspect:to_baseline").click().run()
    assert config_of(page) == preset("cems").config
    page = page.button(key="inspect:unpin").click().run()
    assert not page.exception
    assert html(page, "wb-results") == plain
    assert state_of(page).baseline is None and state_of(page).baseline_replay is None


def test_the_baseline_survives_another_page_and_is_replayed_once_for_all_sliders(open_page: OpenPage) -> None:
    page = moved(pin(search(open_page())))
    kept = replayed(page)
    page = moved(page, {"fusion.k": 20})
    assert replayed(page) is kept
    page = page.switch_page("pages/memories.py").run()
    page = page.switch_page("pages/inspect.py").run()
    assert not page.exception
    assert "wb-delta" in html(page, "wb-results")
    page = search(page, "restart elasticsearch")
    assert replayed(page) is not kept


def test_a_config_that_leaves_nothing_lists_all_that_is_gone(open_page: OpenPage) -> None:
    page = moved(pin(search(open_page())), {"filter.min_score": 2.0})
    gone = html(page, "wb-gone")
    assert "Left the top k: 10 results of the baseline cems" in gone and gone.count("lost at ") == 10
