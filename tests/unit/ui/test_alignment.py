"""The token table of late interaction: words reassembled from tokens, contributions, and escaping."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cems_workbench.pipeline.evidence import ModelScore
from cems_workbench.ui.inspect.alignment import alignment, alignment_html, token_matches
from cems_workbench.ui.inspect.views.rerank import defaults


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


def test_a_bar_never_leaves_its_box_and_its_number_stands_beside_it() -> None:
    body = alignment_html(score([entry("a", cosine=-0.2), entry("b", cosine=1.0001)]))
    assert "width:0%" in body
    assert "width:100%" in body
    assert "-0.200" in body


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


def test_a_pair_without_tokens_has_none() -> None:
    assert alignment(None) == []
    assert alignment(ModelScore(0.5, "text", None, None)) == []
    assert token_matches([]) == []


def test_the_best_stands_beside_the_followed_one_or_the_second() -> None:
    assert defaults(["a", "b", "c"], None) == ("a", "b")
    assert defaults(["a", "b", "c"], "c") == ("a", "c")
    assert defaults(["a", "b", "c"], "a") == ("a", "b")
    assert defaults(["a"], "gone") == ("a", None)
