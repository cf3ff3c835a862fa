"""Results as they are drawn: the chunk that was read, the order before the reranker ends, the grid, tokens of late interaction."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from html import unescape
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.side_by_side_page import MARKUP, trace
from cems_workbench.analysis.ranks import RankComparison
from cems_workbench.analysis.side_by_side import side_by_side
from cems_workbench.config import PipelineConfig, preset, with_values
from cems_workbench.pipeline import Evidence, Hit, ModelScore, RankedList, Variant, replay
from cems_workbench.pipeline.recorded import RECORDED
from cems_workbench.pipeline.scoring import given_chunks
from cems_workbench.records import Chunk, Memory, RecordedList, RecordedStage, RecordedStages
from cems_workbench.ui.inspect.results import message, results_html, settling_html
from cems_workbench.ui.inspect.tables import alignment, alignment_html, token_matches
from cems_workbench.ui.inspect.views.rerank import defaults
from cems_workbench.ui.kit.html import render

TEXTS = ("one ", "two ", "three ")
PLAIN = {
    "rerank.text_source": "chunk",
    "rerank.backend": "cross_encoder",
    "adjust.time_decay.mode": "none",
    "filter.min_score": None,
    "gap.ratio": 0.0,
}


def evidence(*lexical: Hit) -> Evidence:
    """By meaning L's first chunk stands second; all of L's chunks are known and L was scored."""
    return Evidence(
        query="which",
        memories={"A": Memory("A", "whole"), "L": Memory("L", "".join(TEXTS))},
        variants=(Variant("which"),),
        lists=(
            RankedList("vector:0", "vector", 0, (Hit("A", 0.9), Hit("L", 0.8, 0))),
            RankedList("lexical:0", "lexical", 0, lexical),
        ),
        chunks={"L": tuple(Chunk("L", seq, text) for seq, text in enumerate(TEXTS))},
        model_scores={"cross_encoder": {"A": ModelScore(0.1, "whole"), "L": ModelScore(0.9, "three ")}},
    )


def card(given: Evidence, **changes: object) -> str:
    config = with_values(PipelineConfig(), PLAIN | {path.replace("__", "."): value for path, value in changes.items()})
    return str(results_html(replay(given, config), {}))


CHUNK = with_values(PipelineConfig(), {"rerank.text_source": "chunk"})
BY_WORDS = Hit("L", 5.0, 2)


def test_the_chunk_that_a_list_found_which_is_off_is_what_was_read_and_the_card_says_so() -> None:
    assert given_chunks(evidence(BY_WORDS), CHUNK)["L"].seq == 2
    off = card(evidence(BY_WORDS), lists__lexical__enabled=False)
    assert "1st of 3 chunks" in off and "reranker read the 3rd of 3 chunks" in off


@pytest.mark.parametrize(
    "changes",
    [{"rerank__backend": "none"}, {"rerank__depth": 1, "rerank__below_depth": "below"}],
    ids=["off", "past it"],
)
def test_nothing_is_said_of_what_no_reranker_read(changes: dict[str, object]) -> None:
    shown = card(evidence(BY_WORDS), lists__lexical__enabled=False, **changes)
    assert "1st of 3 chunks" in shown and "reranker read" not in shown


def test_a_memory_whose_first_place_is_not_that_of_a_chunk_was_read_whole() -> None:
    whole = evidence(Hit("L", 5.0))
    assert "L" not in given_chunks(whole, CHUNK)
    assert "reranker read the whole memory" in card(whole, lists__lexical__enabled=False)


def test_a_reranker_that_reads_memories_is_given_no_chunk_and_the_card_says_so() -> None:
    assert given_chunks(evidence(BY_WORDS), PipelineConfig()) == {}
    shown = card(evidence(BY_WORDS), rerank__text_source="memory")
    assert "reranker read the whole memory" in shown and "Rerank → Text source" in shown


FOUND = {"a": 0.44, "b": 0.43, "c": 0.31}
READ: dict[str, Any] = {
    "rerank.backend": "cross_encoder",
    "rerank.model": "oracle",
    "abstain.rule": "all",
    "abstain.reranker": 0.0,
    "abstain.vector": 0.5,
}


def unread_evidence(scores: dict[str, float]) -> Evidence:
    hits = tuple(Hit(memory_id, raw) for memory_id, raw in FOUND.items())
    return Evidence(
        query="query",
        as_of=datetime(2026, 1, 1, tzinfo=UTC),
        memories={memory_id: Memory(memory_id, f"text {memory_id}") for memory_id in FOUND},
        variants=(Variant("query"),),
        lists=(RankedList("vector", "vector", 0, hits),),
        model_scores={"oracle": {memory_id: ModelScore(raw) for memory_id, raw in scores.items()}},
    )


def reads(changes: dict[str, Any]) -> PipelineConfig:
    return with_values(preset("ace").config, changes)


def test_what_only_the_reranker_can_decide_takes_no_order_from_the_screen() -> None:
    unread = replay(unread_evidence({}), reads(READ))
    assert unread.needs and not unread.results, "the vector score alone refuses"
    html = settling_html(unread, None)
    assert html.count("wb-soon") == 3 and "Order of the lists" in html and "applied at the end" in html
    read = replay(unread_evidence({"a": 1.0}), reads(READ))
    assert read.results and settling_html(read, (1, 3)).count("wb-soon") == 3


def test_an_order_that_nothing_can_refuse_is_no_open_question() -> None:
    never = {name: value for name, value in READ.items() if not name.startswith("abstain")}
    assert "applied at the end" not in settling_html(replay(unread_evidence({}), reads(never)), None)
    html = settling_html(replay(unread_evidence({}), reads({**never, "filter.min_score": 100})), None)
    assert html == "", "nothing is left to be painted"


class Tags(HTMLParser):
    """The tags of a page, and the text in the one that holds the data."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=False)
        self.tags: list[str] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.text = ""

    def handle_data(self, data: str) -> None:
        self.text += data


def test_message_columns_are_those_of_the_trace() -> None:
    found = trace(30)
    given = message(found, {"m003": 2}, "m003")
    table = side_by_side(found, {"m003": 2}).to_columns()
    assert {name: given[name] for name in table} == table
    assert len(given["colours"]) == len(next(each for each in given["columns"] if each["kind"] == "fusion")["parts"])
    assert given["detail"]["id"] == "m003" and MARKUP in "".join(text for _, text in given["detail"]["pieces"])
    assert ("Grade by a person for this query", "grade 2, helps", "wb-grade") in given["detail"]["facts"]
    assert message(found, {}, "elsewhere")["detail"] is None


def test_message_moves_are_from_the_baseline() -> None:
    now, before = trace(30), trace(30, bonus=0.0)
    given = message(now, {}, None, RankComparison("plain", now=now, before=before))
    ranks = {result.memory_id: result.rank for result in before.results}
    assert given["former_rank"] == [ranks.get(memory_id) for memory_id in given["memory_id"]]
    assert "baseline plain" in given["compared"]


def test_message_text_is_no_markup() -> None:
    found = trace(3)
    html = render("inspect/side_by_side.html", results=found.results, data=message(found, {}, "m001"))
    page = Tags(html)
    assert page.tags == ["p", "div"]
    assert json.loads(unescape(page.text))["detail"]["pieces"] == [["", f"{MARKUP} text of m001"]]


def test_message_of_an_external_trace() -> None:
    hits = (("a", 0.9), ("b", 0.8), ("c", 0.7))
    stages = (RecordedStage("rrf", "fusion", hits[:2]), RecordedStage("first", "assembly", hits[:1]))
    recorded = RecordedStages((RecordedList("bm25", hits),), stages)
    memories = {name: Memory(name, f"text of {name}") for name, _ in hits}
    found = replay(Evidence("q", memories, notes={RECORDED: recorded.to_json()}), PipelineConfig())
    given = message(found, {}, "c")
    assert given["memory_id"] == ["a", "b", "c"]
    assert given["dropped_by"] == [None, "first", "rrf"]
    assert given["detail"]["pieces"] == [("", "text of c")]


def entry(query: str, text: str = "word", cosine: float = 0.5, idf: float = 1.0) -> dict[str, Any]:
    return {"query": query, "text": text, "cosine": cosine, "idf": idf}


def score(kept: Any) -> ModelScore:
    return ModelScore(0.5, "text", None, {"alignment": kept})


def test_pieces_of_a_word_are_shown_within_the_word() -> None:
    found = token_matches([entry("the"), entry("elastic"), entry("##sea"), entry("##rch"), entry("?")])
    assert [(met["before"], met["piece"], met["after"]) for met in found] == [
        ("", "the", ""),
        ("", "elastic", "search"),
        ("elastic", "sea", "rch"),
        ("elasticsea", "rch", ""),
        ("", "?", ""),
    ]
    assert [met["query"] for met in found][2] == "##sea"


def test_what_a_token_adds_is_its_idf_times_its_cosine_over_all_idf() -> None:
    found = token_matches([entry("a", cosine=0.8, idf=3.0), entry("b", cosine=0.4, idf=1.0)])
    assert [met["adds"] for met in found] == pytest.approx([0.6, 0.1])
    assert "0.7000" in alignment_html(score([entry("a", cosine=0.8, idf=3.0), entry("b", cosine=0.4, idf=1.0)]))


@given(st.lists(st.tuples(st.floats(-1, 1), st.floats(0.01, 20)), min_size=1, max_size=30))
def test_the_additions_sum_to_the_weighted_mean_of_the_cosines(pairs: list[tuple[float, float]]) -> None:
    found = token_matches([entry("t", cosine=cosine, idf=idf) for cosine, idf in pairs])
    mean = sum(cosine * idf for cosine, idf in pairs) / sum(idf for _, idf in pairs)
    assert sum(met["adds"] for met in found) == pytest.approx(mean, abs=1e-9)


def test_tokens_are_escaped_and_a_piece_within_a_word_says_so() -> None:
    body = alignment_html(score([entry("<b>", "##<i>x")]))
    assert "<b>&lt;b&gt;</b>" in body
    assert "…</span>&lt;i&gt;x" in body
    assert 'title="##&lt;i&gt;x"' in body


@pytest.mark.parametrize(
    "kept",
    [None, "x", 3, [None], [{}], [entry("a") | {"idf": float("nan")}], [entry("a") | {"cosine": "1"}], [{"query": 1}]],
)
def test_what_cannot_be_read_is_no_token(kept: Any) -> None:
    assert alignment(score(kept)) == []


def test_the_best_stands_beside_the_followed_one_or_the_second() -> None:
    assert defaults(["a", "b", "c"], None) == ("a", "b")
    assert defaults(["a", "b", "c"], "c") == ("a", "c")
    assert defaults(["a", "b", "c"], "a") == ("a", "b")
    assert defaults(["a"], "gone") == ("a", None)
