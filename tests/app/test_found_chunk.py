"""The matching chunk of a memory: in its result, in Lists, and in the detail of the Memories page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from cems_workbench.config import preset
from cems_workbench.jobs.factory import open_resources
from cems_workbench.models import tokens
from cems_workbench.records import Chunk, Memory, ParsedInput
from cems_workbench.settings import Settings

from .inspect_page import follow, search, set_config, show, tool
from .pages import OpenPage, all_html, captions, drawn, html, table_with

pytestmark = [pytest.mark.models]
PIECES = (
    "The kitchen was painted green in spring. ",
    "The zebra ledger is kept in the blue cabinet. ",
    "Nobody has a key to the cellar.",
)
SHORT = "A cat sleeps on the piano."


@pytest.fixture(params=[True, False], ids=["in its place", "place unknown"])
def placed(request: pytest.FixtureRequest) -> bool:
    """Does the store know where chunks stand?"""
    return bool(request.param)


@pytest.fixture
def chunked(tmp_path: Path, placed: bool) -> Path:
    """A store of a memory in three chunks, and one that is searched as a whole."""
    content = "".join(PIECES) if placed else "A house with much in it."
    starts = [sum(map(len, PIECES[:i])) if placed else None for i in range(3)]
    chunks = tuple(
        Chunk("long", seq, text.strip(), start) for seq, (text, start) in enumerate(zip(PIECES, starts, strict=True))
    )
    opened = open_resources(Settings(store=tmp_path / "small"))
    opened.store.add(ParsedInput("test", "test", (Memory("long", content), Memory("short", SHORT)), chunks=chunks))
    opened.refresh()
    opened.close()
    return tmp_path / "small"


@pytest.fixture
def found(open_page: OpenPage, chunked: Path) -> AppTest:
    """The page after a query that the second chunk answers."""
    page = open_page(chunked)
    set_config(page, preset("cems_head").config)
    return search(page, "where is the zebra ledger")


def test_a_card_says_by_which_chunk_and_shows_it_in_its_place(found: AppTest, placed: bool) -> None:
    cards = html(found, "wb-results")
    assert cards.count("2nd of 3 chunks") == 1
    assert f'<span class="wb-chunk">{PIECES[1].strip()}</span>' in cards
    assert (f'<span class="wb-rest wb-before">{PIECES[0]}</span>' in cards) == placed
    assert "found it by this one" in cards


def test_the_followed_memory_says_it_too(found: AppTest) -> None:
    page = follow(found, "long")
    assert "2nd of 3 chunks" in html(page, "wb-path")


def test_lists_have_a_column_for_the_chunk_and_for_its_own_rank(found: AppTest) -> None:
    table = table_with(show(found, "Lists"), "chunk")
    row = table[table["memory"] == "long"].iloc[0]
    assert (row["chunk"], row["chunk #"]) == ("2 of 3", 1)
    assert PIECES[1].strip() in row["content"]


def test_text_evidence_says_which_chunk_the_words_were_counted_in(found: AppTest) -> None:
    page = tool(found, "Text evidence")
    assert "Counted in the 2nd of 3 chunks" in all_html(page)


def test_the_memories_page_lists_the_chunks_and_the_rule(found: AppTest, placed: bool) -> None:
    page = found.switch_page("pages/memories.py").run()
    page.session_state["memories:state"] = replace(page.session_state["memories:state"], selected="long")
    page = drawn(page.run())
    table = table_with(page, "start")
    assert list(table["#"]) == [1, 2, 3] and list(table["tokens"]) == [tokens.count(text.strip()) for text in PIECES]
    assert list(table["start"].dropna()) == ([0, len(PIECES[0]), len(PIECES[0] + PIECES[1])] if placed else [])
    page.session_state["memories:view"] = "Store"
    page = drawn(page.run())
    assert "Chunks: **embedder**" in captions(
        page
    ) and "1 memory in 3 chunks (3 imported with the memories)" in captions(page)
