"""The tool "Text evidence": words in common, the whole text with its marks, and the tokens."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from cems_workbench.jobs.factory import open_resources
from cems_workbench.records import Memory, ParsedInput
from cems_workbench.settings import Settings
from cems_workbench.ui.kit import session

from .inspect_page import DEPLOY, PLAIN, configured, evidence_of, follow, order, search, tool
from .pages import OpenPage, bodies, captions, html

pytestmark = [pytest.mark.models]


def chosen(page: AppTest) -> str:
    key = next(box.key for box in page.selectbox if box.key and box.key.startswith("inspect:text_evidence:"))
    return str(page.session_state[key])


def test_the_parts_of_the_first_result_sum_to_its_score_in_the_list(open_page: OpenPage) -> None:
    page = tool(search(open_page(), DEPLOY), "Text evidence")
    first = order(page)[0]
    assert chosen(page) == first
    evidence = evidence_of(page)
    raw = next(
        hit.score
        for ranked in evidence.lists
        if ranked.name == "lexical:0"
        for hit in ranked.hits
        if hit.memory_id == first
    )
    terms = html(page, "wb-terms")
    parts = [float(value) for value in re.findall(r'title="([0-9.]+)">[0-9.]+</td><td class="wb-bar-cell"><div', terms)]
    assert sum(parts) == pytest.approx(raw, rel=1e-6)
    assert f"{raw:.4f}</td><td>100 %" in terms
    assert "Stop words, never searched: how, do, we, a" in html(page, "wb-said")
    assert "<mark" in html(page, "wb-whole")


def test_the_followed_memory_is_looked_at_and_its_terms_are_marked(open_page: OpenPage) -> None:
    page = search(open_page(), DEPLOY)
    third = order(page)[2]
    page = tool(follow(page, third), "Text evidence")
    assert chosen(page) == third
    marked = re.findall(r"<mark[^>]*>(.*?)</mark>", html(page, "wb-whole").partition('class="wb-whole"')[2])
    assert marked
    assert all(re.match(r"(?i)roll|back|fail|.*deploy", word) for word in marked)


def test_a_memory_without_a_word_in_common_says_so(open_page: OpenPage) -> None:
    page = search(open_page(), DEPLOY)
    evidence = evidence_of(page)
    with_words = {hit.memory_id for ranked in evidence.lists if ranked.source == "lexical" for hit in ranked.hits}
    page = tool(follow(page, sorted(set(evidence.memories) - with_words)[0]), "Text evidence")
    assert "wb-terms" not in html(page, "wb-said")
    assert "No word in common" in html(page, "wb-said")
    assert "<mark" not in html(page, "wb-whole")


def test_a_query_of_stop_words_has_no_search_term(open_page: OpenPage) -> None:
    page = tool(search(open_page(), "what did they do"), "Text evidence")
    assert "only stop words" in html(page, "wb-said")
    assert "Stop words, never searched: what, did, they, do" in html(page, "wb-said")


def test_tokens_are_compared_on_request(open_page: OpenPage) -> None:
    page = tool(search(open_page(), DEPLOY), "Text evidence")
    assert "reranking is off" in captions(page)
    assert not [body for body in bodies(page) if "wb-heat-text" in body]
    page = page.button(key="inspect:token_heat").click().run()
    assert not page.exception
    heat = html(page, "wb-heat-text")
    numbers = {int(number) for found in re.findall(r"<sup>([0-9, ]+)</sup>", heat) for number in found.split(", ")}
    asked = html(page, "wb-tokens").partition("<tbody>")[2].count("<tr><th title=")
    assert numbers == set(range(1, asked + 1))  # every query token met one text token
    assert "Late-interaction score" in captions(page)


def test_the_part_that_the_reranker_read_stands_between_its_edges(open_page: OpenPage) -> None:
    changes = {"rerank.chunk_chars": 60, "rerank.chunk_selection": "term_overlap"}
    page = search(configured(open_page(), changes, "qmd"), DEPLOY)
    evidence = evidence_of(page)
    scored = evidence.model_scores["late_interaction"]
    page = tool(page, "Text evidence")
    memory = evidence.memories[chosen(page)]
    whole = re.sub(r"<[^>]+>", "", html(page, 'class="wb-whole"'))
    between = whole[whole.rindex("reranker ▸") + len("reranker ▸") : whole.rindex("◂ reranker")]
    assert between.split() == scored[memory.id].chunk.split()
    assert f"of {len(memory.content):,} characters" in captions(page)
    assert html(page, "wb-heat-text")  # the score has its tokens, nothing was asked for


def test_a_memory_whose_score_is_that_with_its_question_shows_both(open_page: OpenPage, tmp_path: Path) -> None:
    question, answer = "Where did you spend the summer holidays?", "By the lake, as ever."
    said = [
        Memory(f"t{n}", text, session="s", created_at=datetime(2026, 1, 1, 9, n, tzinfo=UTC))
        for n, text in enumerate((question, answer))
    ]
    changes = {"rerank.prepend_question": True, "filter.min_score": None, "rerank.score_window": 1.0}
    page = search(configured(open_page(with_memories(tmp_path, said)), changes, "workbench"), "summer holidays")
    scored = evidence_of(page).model_scores["workbench/minilm-judge"]
    assert scored["t1"].chunk == f"{question}\n{answer}"  # alone it says nothing of holidays
    page = tool(follow(page, "t1"), "Text evidence")
    assert "Scored together with the preceding question" in captions(page)
    assert "read all of it" in captions(page) and captions(page).count("the preceding question") == 1
    assert question in [block.value for block in page.code]
    assert (
        answer.split()
        == re.sub(r"<[^>]+>|[▸◂]|reranker", "", html(page, 'class="wb-whole"')).split()[-len(answer.split()) :]
    )


def test_each_variant_has_words_of_its_own(open_page: OpenPage) -> None:
    page = configured(open_page(), {**PLAIN, "expansion.backend": "manual"})
    page = search(page, DEPLOY)
    page = tool(page.text_area(key="inspect:manual").set_value("undo a release").run(), "Text evidence")
    box = next(box for box in page.selectbox if box.label == "Query variant")
    assert len(box.options) == 2
    page = box.select_index(1).run()
    assert not page.exception
    assert "a" in html(page, "wb-said").partition("Stop words")[2]


def test_memories_with_markup_are_shown_and_never_rendered(open_page: OpenPage) -> None:
    page = open_page()
    memories = session.resources().store.memories.read()
    wild = next(memory for memory in memories.values() if "<" in memory.content and ">" in memory.content)
    page = tool(follow(search(page, wild.content[:80]), wild.id), "Text evidence")
    body = re.sub(r"</?(div|mark|span|b)( [^>]*)?>", "", html(page, 'class="wb-whole"'))
    assert "<" not in body
    assert "&lt;" in body


def test_no_candidate_at_all_is_said(open_page: OpenPage, tmp_path: Path) -> None:
    page = open_page(stored(tmp_path, {"one": "the only memory is personal"}))
    page = tool(search(configured(page, {"query.scope": "shared"}), "only memory"), "Text evidence")
    assert not evidence_of(page).memories
    assert any("no candidates" in info.value for info in page.info)


def stored(folder: Path, texts: Mapping[str, str]) -> Path:
    """A closed store of memories with these texts, indexed."""
    return with_memories(folder, [Memory(key, text) for key, text in texts.items()])


def with_memories(folder: Path, memories: Sequence[Memory]) -> Path:
    """A closed store of these memories, indexed."""
    opened = open_resources(Settings(store=folder / "small"))
    opened.store.add(ParsedInput("test", "test", tuple(memories)))
    opened.refresh()
    opened.close()
    return folder / "small"
