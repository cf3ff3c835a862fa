"""Sources on the pages, on a real Chroma directory, and stores whose vectors are of an unknown or another embedder."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from model_server import ModelServer, Reply, sent, serving
from streamlit.testing.v1 import AppTest

from cems_workbench.jobs.connecting import take_snapshot
from cems_workbench.models.resolve import PACKAGED_ID
from cems_workbench.records import Judgment, Query
from cems_workbench.sources import connect as sources
from cems_workbench.sources.address import Address
from cems_workbench.sources.source import RowProblem, SourceError
from cems_workbench.store import Store
from cems_workbench.ui.kit import session
from cems_workbench.ui.memories.sources import OTHER
from tests.planted_source import Planted, planted, taken
from tests.small_store import empty_store, parsed

from .inspect_page import order, search
from .pages import OpenPage, all_html, captions, checked, html, markdown, plainly, press, table_with

__all__ = ["empty_store"]

TEXTS = {
    "deploy": "Deploy the harbor dashboard with make ship, never by hand.",
    "tea": "She drinks <b>green</b> tea in the morning.",
    "keys": "The deploy keys are in the vault of the infrastructure team.",
}
Collection = Any


@pytest.fixture
def app_store(empty_store: Path) -> Path:
    """Empty, since no page here shows the sample data: making its store takes half a minute."""
    return empty_store


@pytest.fixture
def sample_vectors() -> dict[str, list[float]]:
    return {}


@pytest.fixture
def collection(tmp_path: Path, make_collection: Callable[[Path], Collection]) -> Collection:
    """A collection of a directory of Chroma with `TEXTS`, embedded by the packaged embedder."""
    return make_collection(tmp_path / "chroma")


@pytest.fixture
def make_collection(open_page: OpenPage) -> Callable[[Path], Collection]:
    def make(folder: Path) -> Collection:
        import chromadb
        from chromadb.config import Settings

        client = chromadb.PersistentClient(str(folder), Settings(anonymized_telemetry=False))
        made = client.create_collection("notes", configuration={"hnsw": {"space": "cosine"}}, embedding_function=None)
        add(made, TEXTS)
        return made

    return make


def add(collection: Collection, texts: dict[str, str]) -> None:
    from cems_workbench.settings import Settings

    from .conftest import loaded_once

    vectors = loaded_once(Settings()).encode(list(texts.values()))
    collection.add(ids=list(texts), documents=list(texts.values()), embeddings=vectors.tolist())


@pytest.fixture
def page(open_page: OpenPage, empty_store: Path, tmp_path: Path) -> AppTest:
    """The view, on an empty store."""
    opened = open_page(Path(shutil.copytree(empty_store, tmp_path / "store")), page="memories")
    opened.session_state["memories:view"] = "Sources"
    return checked(opened.run())


def typed(page: AppTest, address: str, password: str = "") -> AppTest:
    page.selectbox(key="memories:source:kind").set_value(OTHER)
    page.run().text_input(key="memories:source:address").set_value(address)
    page.text_input(key="memories:source:password").set_value(password)
    return page.run()


def go(page: AppTest, button: str) -> AppTest:
    return page.button(key=f"memories:source:{button}").click().run()


def notes(tmp_path: Path) -> str:
    return f"chroma:{tmp_path}/chroma/notes"


def test_a_store_without_a_source_says_what_addresses_look_like(page: AppTest) -> None:
    box = page.selectbox(key="memories:source:kind")
    assert not [one for one in page.text_input if one.key == "memories:source:address"], "the kind comes first"
    page = box.select_index(next(at for at, label in enumerate(box.options) if label.startswith("SQLite"))).run()
    assert page.text_input(key="memories:source:address").placeholder == "sqlite:/FOLDER/FILE"
    assert "As sqlite:/FOLDER/FILE or sqlite:/FOLDER/FILE?table=TABLE" in captions(page)
    assert not [one for one in page.text_input if one.key == "memories:source:password"], "a file has none"
    assert "nothing is written to the source" in captions(page)
    assert page.button(key="memories:source:look").disabled and page.button(key="memories:source:take").disabled
    page.text_input(key="memories:source:address").set_value("/nowhere/memory.db").run()
    page = go(page, "look")  # a path alone is of the chosen kind
    assert page.text_input(key="memories:source:address").value == "sqlite:/nowhere/memory.db"
    assert "names no kind of source" not in page.error[0].value


def test_memories_are_taken_searched_and_taken_again_where_they_changed(
    page: AppTest, collection: Collection, tmp_path: Path
) -> None:
    page = checked(go(typed(page, notes(tmp_path)), "take"))
    counts = table_with(page, "added").iloc[0]
    assert (counts["added"], counts["unchanged"]) == (3, 0)
    card = html(page, "wb-mem-source")
    assert "✓</span> answers" in card and "3 there, 3 here" in card and "complete, just now" in card
    assert "3 of 3 stored vectors reproduced, lowest cosine 1.0000" in card and "⚠" not in card
    resources = session.resources()
    hits = resources.indexes.vectors.search(resources.embedder.encode_query("vault of deploy keys"), 1)
    assert [hit[0] for hit in hits] == ["keys"]

    add(collection, {"new": "A new note."})
    collection.delete(ids=["tea"])
    page = checked(go(page, "ask"))
    page = checked(go(page, "1:take"))
    counts = table_with(page, "added").iloc[0]
    assert (counts["added"], counts["unchanged"], counts["deleted"]) == (1, 2, 1)
    assert resources.store.memories.ids() == ["deploy", "keys", "new"]

    page = checked(page.button(key="memories:source:1:forget").click().run())
    assert resources.store.memories.count() == 0 and "No live system is connected yet" in captions(page)


def test_a_password_is_taken_out_of_the_page(page: AppTest, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Address] = []

    def opened(address: Address, mapping: object = None, timeout: float = 0) -> Planted:
        asked.append(address)
        raise SourceError(f"{address.plain}: password authentication failed")

    monkeypatch.setattr(sources, "open_source", opened)
    page = go(typed(page, "postgresql://me:in-the-address@here/cems"), "look")
    page = go(typed(page, "postgresql://me@here/cems", "typed-beside"), "look")
    secrets = [each.secret.get_secret_value() for each in asked if each.secret is not None]
    assert secrets == ["in-the-address", "typed-beside"]
    assert page.text_input(key="memories:source:address").value == "postgresql://me@here/cems"
    assert page.text_input(key="memories:source:password").value == ""
    assert "password authentication failed" in page.error[0].value
    everything = repr(page.session_state) + str(page.main) + all_html(page)
    assert "in-the-address" not in everything and "typed-beside" not in everything


def test_what_cannot_be_used_is_one_line(page: AppTest) -> None:
    page = page.selectbox(key="memories:source:kind").set_value(OTHER).run()
    for address, mapping, said in (
        ("mysql://here/x", "", "begins with 'mysql'"),
        ("chroma:/nowhere/at/all", "", "nowhere"),
        ("postgresql://here/x", "- a list", "Mapping: must be names and columns"),
    ):
        page.text_area(key="memories:source:mapping").set_value(mapping)
        for button in ("look", "take"):
            (error,) = go(typed(page, address), button).error
            assert said in plainly(error.value) and "\n" not in error.value


def test_a_snapshot_that_breaks_off_is_gone_on_with_and_problems_are_listed(
    page: AppTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    problems = [RowProblem("<i>x</i>", "text", "it is NULL")]
    source = Planted({name: taken(name) for name in "abcd"}, problems=problems, fails_after=2)
    planted(monkeypatch, source)
    page = go(typed(page, source.address), "take")
    assert "2 memories were imported, connect again to resume" in plainly(page.error[0].value)
    assert "⚠ interrupted just now" in html(page, "wb-mem-source")
    assert page.button(key="memories:source:1:take").label == "Resume"
    source.fails_after = None
    page = go(page, "1:take")
    assert not page.error and source.read == ["c", "d"]
    assert list(table_with(page, "reason").iloc[0]) == ["<i>x</i>", "text", "it is NULL"]
    assert "1 row left out" in markdown(page)
    # The vectors are of nobody that is known: what to do stands on the page, and on the card.
    assert "Not searchable yet" in page.warning[0].value
    page.session_state["memories:view"] = "Browse"
    assert len(checked(page.run()).dataframe[0].value) == 4


def test_an_embedder_is_named_on_the_card(page: AppTest, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Planted({"a": taken("a")})
    planted(monkeypatch, source)
    page = go(typed(page, source.address), "take")
    assert "makes 384 numbers, the source has 3" in all_html(page)
    page = page.text_input(key="memories:source:1:embedder").set_value("nobody/nothing").run()
    page = press(page, "memories:source:1:name")
    assert "makes 384 numbers, the source has 3" in all_html(page)


@pytest.fixture
def unnamed(open_page: OpenPage, empty_store: Path, tmp_path: Path) -> AppTest:
    """The Inspect page on a store whose memories came with vectors that nobody named the embedder of."""
    folder = Path(shutil.copytree(empty_store, tmp_path / "store"))
    with Store.open(folder) as store:
        take_snapshot(store, Planted({name: taken(name, f"{name} deploys often") for name in "abc"}), datetime.now(UTC))
        queries = [Query("q1", "who deploys"), Query("q2", "how often")]
        judged = [Judgment(query.qid, "a", 3, judge="ada", kind="human") for query in queries]
        store.add(parsed(queries=queries, judgments=judged))
    return open_page(folder)


def refused(unnamed: AppTest) -> None:
    assert len(unnamed.error) == 1
    said = plainly(unnamed.error[0].value)
    assert "nothing says which model made the 3 numbers" in said and "\n" not in said
    assert "--embedder MODEL, or Sources on the Memories page" in said


def test_a_page_that_searches_refuses_in_one_line(unnamed: AppTest) -> None:
    refused(unnamed.text_input(key="inspect:query").set_value("who deploys").run())
    for name in ("evaluate", "tune"):
        opened = unnamed.switch_page(f"pages/{name}.py").run()
        refused(opened.button(key=f"{name}:gather").click().run())
    opened = unnamed.switch_page("pages/label.py").run()
    refused(opened.button(key="label:unjudged").click().run())


def test_memories_can_be_looked_at_and_the_store_view_says_it(unnamed: AppTest) -> None:
    opened = unnamed.switch_page("pages/memories.py").run()
    assert not opened.error and len(opened.dataframe[0].value) == 3
    opened.session_state["memories:view"] = "Store"
    refused(opened.run())
    assert "Sources" in markdown(opened)  # the rest of the view is there
    opened = opened.button(key="memories:rebuild").click().run()
    assert {plainly(error.value).removeprefix("No search is possible: ") for error in opened.error} == {
        plainly(opened.error[-1].value)
    }


QUERY = "which database did the team choose?"


def answer(path: str, body: dict[str, Any], earlier: int) -> Reply:
    """Vectors of eight values."""
    rows = [[float(len(text)), *(float(text.count(letter)) for letter in "etaoins")] for text in body.get("input", [])]
    return sent({"data": [{"index": i, "embedding": row} for i, row in enumerate(rows)]})


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    monkeypatch.setenv("NO_PROXY", "*")
    with serving(answer) as running:
        monkeypatch.setenv("CEMS_WORKBENCH_EMBEDDER", "openai:mini")
        monkeypatch.setenv("CEMS_WORKBENCH_EMBEDDING_URL", running.url)
        yield running


def test_a_search_is_refused_in_one_line_and_goes_once_everything_is_embedded_anew(
    open_page: OpenPage, server: ModelServer, sample_store: Path, tmp_path: Path
) -> None:
    page = search(open_page(shutil.copytree(sample_store, tmp_path / "store")), QUERY)
    (refusal,) = page.error
    for said in (PACKAGED_ID, "384 values", "openai:mini", "CEMS_WORKBENCH_EMBEDDING_SAME_AS"):
        assert said in plainly(refusal.value)
    assert "wb-results" not in all_html(page)
    assert QUERY not in str(server.asked)

    page = page.switch_page("pages/memories.py").run()
    page.session_state["memories:view"] = "Store"
    page = page.run()
    assert PACKAGED_ID in plainly(page.error[0].value)
    assert "never built" in all_html(page)
    page = page.button(key="memories:refresh").click().run(timeout=120)
    assert not page.error
    assert all_html(page).count("✓ up to date") == 2

    page = search(page.switch_page("pages/inspect.py").run(), QUERY)
    assert not page.error
    assert order(page)


def test_one_that_is_not_found_is_said_on_the_page(
    open_page: OpenPage, sample_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CEMS_WORKBENCH_EMBEDDER", "no/such-model")
    page = search(open_page(sample_store), QUERY)
    assert order(page)
    (warning,) = page.warning
    assert "no/such-model was not found; using" in plainly(warning.value) and PACKAGED_ID in plainly(warning.value)
