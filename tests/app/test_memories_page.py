"""The Memories page: import, browse, edit, delete and undo, index health, another store; and a store that is damaged."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from cems_workbench.config import preset
from cems_workbench.errors import StoreError
from cems_workbench.formats import read
from cems_workbench.jobs import background
from cems_workbench.jobs.foreground import ForegroundGate
from cems_workbench.pipeline import Evidence
from cems_workbench.pipeline.gather import Request
from cems_workbench.records import Judgment, Memory, ParsedInput
from cems_workbench.store import Store
from cems_workbench.store.query_sets import QuerySets
from cems_workbench.ui.inspect.state import Gathered, InspectState
from cems_workbench.ui.kit import session
from cems_workbench.ui.kit.html import plain

from .conftest import settle
from .inspect_page import STATE, state_of
from .pages import OpenPage, all_html, captions, checked, html, plainly, press


@pytest.fixture(scope="session")
def total(sample_store: Path) -> int:
    """Number of memories of the sample."""
    with Store.open(sample_store) as opened:
        return opened.memories.count()


@pytest.fixture
def copy(sample_store: Path, tmp_path: Path) -> Path:
    """A copy of the sample store that the test may change."""
    return shutil.copytree(sample_store, tmp_path / "store")


@pytest.fixture
def open_memories(open_page: OpenPage, copy: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenPage]:
    """Open the Memories page on the copy, or on another store, in a view; all memories stand on one page of the table."""
    monkeypatch.setattr("cems_workbench.ui.memories.page.PAGE_SIZE", 10_000)

    def start(store: Path = copy, view: str | None = None) -> AppTest:
        page = open_page(store, page="memories")
        return show(page, view) if view else page

    yield start


def show(page: AppTest, view: str) -> AppTest:
    page.session_state["memories:view"] = view
    return page.run()


def pick(page: AppTest, memory_id: str) -> AppTest:
    """What a click on a row does."""
    page.session_state["memories:state"] = replace(page.session_state["memories:state"], selected=memory_id)
    return page.run()


def ids(page: AppTest) -> list[str]:
    return list(page.dataframe[0].value["id"])


def field(page: AppTest, kind: str, name: str) -> Any:
    return next(widget for widget in page.get(kind) if widget.key and widget.key.endswith(f":{name}"))


def store(page: AppTest) -> Store:
    return session.resources().store


def upload(page: AppTest, *files: tuple[str, bytes]) -> AppTest:
    page.file_uploader[0].set_value([(name, content, "application/octet-stream") for name, content in files]).run()
    return page.button(key="memories:import").click().run()


def test_an_import_replaces_only_when_told_and_is_undone_on_the_page(open_memories: OpenPage, total: int) -> None:
    page = show(open_memories(), "Import")
    theirs = ("theirs.jsonl", b'{"id": "m003", "content": "a query of theirs"}\n{"id": "new", "content": "new"}')
    page = upload(page, theirs)
    assert any("1 memory that sample" in caption.value for caption in page.caption)
    assert store(page).memories.read()["m003"].content != "a query of theirs"
    page = upload(page.checkbox(key="memories:import:replace").check().run(), theirs)
    assert store(page).memories.read()["m003"].content == "a query of theirs"
    number = store(page).imports.get().number
    assert any(
        f"The undo of **import {number}**" in text.value and "restores 1 memory" in text.value for text in page.markdown
    )
    page = page.button(key=f"memories:undo:{number}").click().run()
    assert any("restored 1 memory" in message.value for message in page.success)
    assert store(page).memories.read()["m003"].content != "a query of theirs"
    page = page.text_input(key="memories:import:scale").set_value("3..3").run()
    assert any("possible" in message.value for message in page.error)


def test_the_table_lists_every_memory_and_says_how_many(open_memories: OpenPage, total: int) -> None:
    page = open_memories()
    assert len(ids(page)) == total
    assert f"All {total} memories" in all_html(page)
    assert "Select a row" in all_html(page)


def test_search_and_filters_narrow_the_table_and_are_cleared(open_memories: OpenPage, total: int) -> None:
    page = open_memories()
    page = page.text_input(key="memories:find:text").set_value("POETRY").run()
    assert "m003" in ids(page) and len(ids(page)) < 10
    assert f"of {total} memories match" in all_html(page)
    page = page.selectbox(key="memories:find:pinned").set_value("pinned").run()
    assert not page.dataframe or set(page.dataframe[0].value["pinned"]) == {"pinned"}
    page = page.multiselect(key="memories:find:projects").set_value(["(none)"]).run()
    assert not page.dataframe and "No memory matches" in all_html(page) and "Select a row" not in all_html(page)
    page = page.button(key="memories:clear").click().run()
    assert len(ids(page)) == total


def test_more_than_a_page_of_memories_are_shown_in_pages(
    open_memories: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = open_memories()
    every = ids(page)
    monkeypatch.setattr("cems_workbench.ui.memories.page.PAGE_SIZE", 100)
    page = page.run()
    first = ids(page)
    assert first == every[:100] and "1–100 shown" in all_html(page)
    page.session_state["memories:page"] = 2
    page = page.run()
    assert ids(page) == every[100:200] and not set(first) & set(ids(page))
    page = page.text_input(key="memories:find:text").set_value("poetry").run()
    assert "m003" in ids(page), "a new search begins at its first page"


def test_a_picked_memory_shows_its_text_facts_relations_and_judgments(open_memories: OpenPage) -> None:
    page = pick(open_memories(), "m137")
    body = all_html(page)
    assert "State on 27 August" in body and "harbor/api" in body and "session-summary" in body
    headings = [text.value for text in page.markdown]
    relations, judged = store(page).relations.of_memory("m137"), store(page).judgments.of_memory("m137")
    assert relations and judged
    assert f"## Relations ({len(relations)})" in headings and f"## Judgments ({len(judged)})" in headings


def test_an_edit_is_saved_and_the_indexes_follow(open_memories: OpenPage) -> None:
    page = pick(open_memories(), "m003")
    before, version = store(page).memories.get("m003"), store(page).content_version
    page = page.button(key="memories:edit").click().run()
    field(page, "text_area", "content").set_value("Dependencies are added with zebrafish.")
    field(page, "multiselect", "tags").set_value(["python", "new"])
    field(page, "toggle", "pinned").set_value(True)
    page = page.button(key="memories:save").click().run()
    after = store(page).memories.get("m003")
    assert (after.content, after.tags, after.pinned) == (
        "Dependencies are added with zebrafish.",
        ("python", "new"),
        True,
    )
    assert (after.created_at, after.priority, after.title) == (before.created_at, before.priority, before.title)
    assert store(page).content_version == version + 1
    assert all(index.fresh for index in store(page).indexes.states(session.resources().embedder.model_id))
    assert session.resources().indexes.lexical.search("zebrafish", 1)[0][0] == "m003"
    assert "zebrafish" in all_html(page)


def test_a_refused_edit_is_one_clear_line_and_changes_nothing(open_memories: OpenPage) -> None:
    page = pick(open_memories(), "m003")
    before, version = store(page).memories.get("m003"), store(page).content_version
    for kind, name, value, line in (
        ("text_area", "content", "  ", "Content is empty"),
        ("text_input", "created_at", "yesterday", "Created must be an ISO 8601 date"),
    ):
        page = page.button(key="memories:edit").click().run()
        field(page, kind, name).set_value(value)
        page = page.button(key="memories:save").click().run()
        assert line in plainly(page.error[0].value)
        assert field(page, kind, name).value == value, "what was typed stays"
        assert (store(page).memories.get("m003"), store(page).content_version) == (before, version)
        page = checked(page.button(key="memories:edit:cancel").click().run())


def test_an_edit_drops_the_evidence_that_inspect_had_gathered(open_memories: OpenPage) -> None:
    page = pick(open_memories(), "m003")
    gathered = Gathered(Request("a request"), "its store", 0, Evidence("a request", {}))
    page.session_state[STATE] = InspectState("cems", preset("cems").config, gathered=gathered)
    page = page.button(key="memories:delete").click().run()
    assert state_of(page).gathered is None


def test_a_deleted_memory_is_restored_by_undo(open_memories: OpenPage) -> None:
    page = pick(open_memories(), "m003")
    before = store(page).memories.get("m003")
    page = page.button(key="memories:delete").click().run()
    assert "m003" not in ids(page) and store(page).memories.get("m003") is None
    assert "Deleted <code>m003</code>" in all_html(page)
    page = page.button(key="memories:undo:button").click().run()
    assert "m003" in ids(page) and store(page).memories.get("m003") == before
    assert "Deleted <code>" not in all_html(page)
    assert all(index.fresh for index in store(page).indexes.states(session.resources().embedder.model_id))


def test_an_upload_keeps_the_good_rows_and_lists_the_bad_ones(open_memories: OpenPage, total: int) -> None:
    page = open_memories(view="Import")
    lines = ['{"id":"n1","content":"new"}', '{"id":"n2"}', "no json", '{"id":"n3","content":"x","priority":9}']
    page = upload(
        page,
        ("judged.qrels", b"q01 0 n1 2\n"),
        ("rows.jsonl", "\n".join(lines).encode()),
        ("picture.png", b"\x89PNG\x00\x01"),
    )
    assert store(page).memories.get("n1").content == "new"
    counts, errors = page.dataframe[0].value, page.dataframe[1].value
    assert list(counts["file"]) == ["rows.jsonl", "judged.qrels"], "memories come before what refers to them"
    assert (counts.iloc[0]["added"], counts.iloc[0]["left out"]) == (2, 3)
    assert [(row["file"], row["row"]) for _, row in errors.iterrows()] == [("rows.jsonl", n) for n in (2, 3, 4)]
    assert list(counts["format"]) == ["memories-jsonl", "qrels"]
    assert [one.value for one in page.error] == [plain("picture.png: is neither text nor in a known format")]
    assert store(page).memories.count() == total + 2, "a field that cannot be read costs the field"
    assert all(index.fresh for index in store(page).indexes.states(session.resources().embedder.model_id))


def test_an_import_says_what_it_did_to_labels_and_a_person_tells_of_the_doubtful_ones(
    open_memories: OpenPage, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"The warehouse in Graz ships parcels with Hermes on {day} May before lunch." for day in (14, 15)]
    kitten = "Caroline adopted a grey kitten named Biscuit from the shelter in Porto."
    with Store.open(copy) as opened:
        for key in opened.memories.ids():  # labels of the sample have their memories no more
            opened.memories.delete(key)
        judged = tuple(Judgment("q01", key, 2, "mira") for key in ("old1", "old2"))
        opened.add(ParsedInput("old", "x", memories=(Memory("old1", texts[0]), Memory("old2", kitten)), judgments=judged))
        for key in ("old1", "old2"):
            opened.memories.delete(key)
    page = open_memories(view="Import")
    rows = [{"id": "new1", "content": texts[1]}, {"id": "new2", "content": kitten}]
    page = checked(upload(page, ("new.jsonl", "\n".join(map(json.dumps, rows)).encode())))
    said = page.dataframe[1].value
    counts = {row["status"]: row["labels"] for _, row in said.iterrows()}
    assert counts["moved"] == counts["doubtful"] == 1 and counts.keys() == {"moved", "doubtful", "orphaned"}
    monkeypatch.setattr("streamlit.switch_page", lambda page, query_params: None)
    press(page, "memories:labels:decide")

    page = page.switch_page("pages/label.py").run()
    page.text_input(key="reviewer:name").set_value("ada").run()
    body = html(page, "wb-card-query")
    assert "<mark>14</mark>" in body and "<mark>15</mark>" in body  # the old text beside the new one

    def label() -> list[tuple[str, str | None]]:
        found = session.resources().store.judgments.read("q01")
        return [(one.judge, one.note) for one in found if one.memory_id == "new1"]

    press(page, "label:accept")
    assert label() == [("mira", "moved from old1: accepted by ada")]
    press(page, "label:undo")
    assert label() == []
    press(page, "label:reject")
    assert label() == [] and any("Nothing is left" in one.value for one in page.success)


def test_statistics_count(open_memories: OpenPage, total: int) -> None:
    page = open_memories(view="Statistics")
    assert f"<b>{total}</b>" in all_html(page)
    assert [int(table.value["memories"].sum()) for table in page.dataframe] == [total] * 4


def current(page: AppTest) -> list[str]:
    """The indexes that are up to date; not Chroma's collection, which another test of the worker may have written."""
    rows = re.findall(r"<b>([^<]+)</b>(?:(?!</tr>).)*✓ up to date", all_html(page), re.DOTALL)
    return [name for name in rows if name != "Chroma"]


def test_a_rebuild_makes_both_indexes_anew_and_says_how_long_it_took(open_memories: OpenPage, total: int) -> None:
    page = open_memories(view="Store")
    assert len(current(page)) == 2
    page = page.button(key="memories:rebuild").click().run(timeout=120)
    texts = len(session.resources().indexes.vectors)
    assert texts > total, "some of the sample's memories have chunks"
    assert any("Rebuilt in" in text.value and f"{texts} texts embedded" in text.value for text in page.caption)
    assert len(current(page)) == 2
    assert session.resources().indexes.lexical.search("poetry", 1)


def test_another_language_builds_the_index_of_words_anew_and_says_so(open_memories: OpenPage, total: int) -> None:
    page = open_memories(view="Store")
    assert page.button(key="memories:language:change").disabled, "english it is"
    vectors = len(session.resources().indexes.vectors)
    page.selectbox(key="memories:language:english").set_value("german").run()
    page = page.button(key="memories:language:change").click().run(timeout=120)
    assert any(text.value.startswith("Language: **german**, as chosen") for text in page.caption)
    assert "now uses german; its index is being rebuilt" in captions(page)
    page = page.run(timeout=120)
    assert len(current(page)) == 2
    assert session.resources().indexes.lexical.language == "german"
    assert len(session.resources().indexes.vectors) == vectors, "nothing is embedded again"
    assert store(page).memories.count() == total


def test_another_store_is_created_and_the_first_one_opened_again(
    open_memories: OpenPage, total: int, copy: Path, tmp_path: Path
) -> None:
    page = open_memories(view="Store")
    embedder = session.resources().embedder
    page.session_state["inspect:query"] = "a query of the old store"
    page.text_input(key="memories:folder").set_value(str(tmp_path / "new"))
    page = page.button(key="memories:folder:create").click().run()
    assert store(page).path == tmp_path / "new" and store(page).memories.count() == 0
    assert session.resources().embedder is embedder, "the loaded model goes over"
    assert "inspect:query" not in page.session_state
    assert "This store is empty" in all_html(show(page, "Browse"))
    page = show(page, "Store")
    page.text_input(key="memories:folder").set_value(str(copy))
    page = page.button(key="memories:folder:open").click().run()
    assert store(page).memories.count() == total
    with Store.open(tmp_path / "new"):
        pass  # it was released


def test_a_folder_that_cannot_be_opened_is_one_line_and_the_store_stays_open(
    open_memories: OpenPage, total: int, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("x")
    page = open_memories(view="Store")
    for typed, button in (
        (str(tmp_path / "nowhere"), "open"),
        (str(tmp_path / "file"), "create"),
        (str(tmp_path / "full"), "create"),
        ("", "open"),
        ("a\0b", "open"),
    ):
        page.text_input(key="memories:folder").set_value(typed)
        (error,) = page.button(key=f"memories:folder:{button}").click().run().error
        assert "\n" not in error.value and store(page).memories.count() == total
    assert not (tmp_path / "nowhere").exists()


def test_the_store_picker_is_there_when_the_store_cannot_be_opened(
    open_memories: OpenPage, total: int, tmp_path: Path, copy: Path
) -> None:
    (tmp_path / "file").write_text("not a store")
    page = open_memories(tmp_path / "file")
    assert "is a file" in page.error[0].value
    page.text_input(key="memories:folder").set_value(str(copy))
    page = page.button(key="memories:folder:open").click().run()
    assert f"All {total} memories" in all_html(page)


def test_the_empty_store_offers_import_and_sample(open_memories: OpenPage, total: int, tmp_path: Path) -> None:
    page = open_memories(tmp_path / "empty")
    assert "This store is empty" in all_html(page)
    for view in ("Import", "Statistics", "Deleted", "Store"):
        page = show(page, view)
    page = show(page, "Browse")
    page = page.button(key="memories:sample:start").click().run(timeout=120)
    assert len(ids(page)) == total


def test_markup_in_a_memory_is_shown_literally_in_every_view(open_memories: OpenPage, tmp_path: Path) -> None:
    evil = "<script>alert(1)</script> **bold** $x$ :red[r] <img src=x onerror=alert(2)>"
    rows = [
        {"id": f"<u>{i}</u>", "content": evil, "title": "<i>t</i>", "category": evil, "project": evil, "tags": [evil]}
        for i in (1, 2)
    ]
    source = tmp_path / "memories.jsonl"
    source.write_text("\n".join(json.dumps(row) for row in rows))
    with Store.open(tmp_path / "evil") as opened:
        opened.add(read(source))
    page = pick(open_memories(tmp_path / "evil"), "<u>1</u>")
    bodies = all_html(page)
    assert "&lt;script&gt;alert(1)&lt;/script&gt; **bold**" in bodies
    page = page.button(key="memories:edit").click().run()
    page = page.button(key="memories:edit:cancel").click().run()
    page = page.button(key="memories:delete").click().run()
    bodies += all_html(page)
    for view in ("Deleted", "Statistics", "Store"):
        page = show(page, view)
        bodies += all_html(page)
    assert "<script>alert" not in bodies and "<img" not in bodies and "<i>t</i>" not in bodies and "<u>" not in bodies
    shown = [text.value for text in (*page.markdown, *page.caption)] + [button.label for button in page.button]
    assert not any("**bold**" in text for text in shown), "Markdown is never made of what a memory says"


def test_a_damaged_block_met_while_a_page_is_drawn_is_one_line(
    open_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(self: QuerySets) -> None:
        raise StoreError("store s is damaged: workbench.duckdb cannot be read (block 7); doctor --recover-to NEW_STORE")

    monkeypatch.setattr(QuerySets, "latest", damaged)
    page = open_page(page="evaluate")
    assert [plainly(error.value) for error in page.error] == [
        "store s is damaged: workbench.duckdb cannot be read (block 7); doctor --recover-to NEW_STORE"
    ]


KEEP_CHROMA = session._keep_chroma


def test_the_app_keeps_the_chroma_collection_current_and_tells_of_it(
    open_memories: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_keep_chroma", KEEP_CHROMA)
    monkeypatch.setattr(background, "FOREGROUND", ForegroundGate(quiet_s=0))
    page = open_memories(view="Store")
    settle()
    resources, state = session.resources(), session.warm_up_state()
    records = written(state)
    assert resources.graph_open and records == len(resources.indexes.vectors)
    table = html(page.run(), "wb-mem-table")
    assert "Chroma" in table and "behind" not in table and str(resources.store.path / "chroma") in table
    press(pick(show(page, "Browse"), "m001"), "memories:delete")

    assert written(state) == records - 1 and resources.graph_open
    monkeypatch.setattr(session, "_keep_chroma", lambda opened, state: None)
    resources.store.memories.delete("m002")
    resources.refresh()
    table = html(show(page, "Store"), "wb-mem-table")
    assert "behind" in table and "1 change not written yet; reindex --chroma" in table
    assert state.chroma is not None
    state.chroma.problem = "it is damaged"
    assert "graph cannot be searched: it is damaged." in captions(page.run())


def written(state: session.WarmUpState) -> int:
    """The records in Chroma once what writes there has ended."""
    assert state.chroma is not None
    state.chroma.wait(60)
    assert state.chroma.over and not state.chroma.problem
    return session.resources().store.indexes.graph(session.resources().embedder).count()
