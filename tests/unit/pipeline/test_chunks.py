"""Which part of a memory a reranker reads (docs/internals/specification.md, "rerank")."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cems_workbench.config import PipelineConfig, with_values
from cems_workbench.pipeline.evidence import Evidence, Hit, RankedList
from cems_workbench.pipeline.scoring import (
    as_read,
    best_chunk,
    passages,
    question_at_end,
    seed_overlap,
    term_overlap,
    text_for_judge,
    texts_for_reranker,
    without_fields,
)
from cems_workbench.records import Memory


def oracle(content: str, query: str, size: int) -> str:
    """The documented words, step by step: split, close, score, take the first best, else the head."""
    terms = {word for word in query.lower().split()}
    chunks: list[tuple[str, list[str]]] = [("", [])]
    for sentence in content.split(". "):
        text, sentences = chunks[-1]
        chunks[-1] = (text + sentence + ". ", [*sentences, sentence.lower()])
        if len(chunks[-1][0]) > size:
            chunks.append(("", []))
    scored = [
        (sum(term in sentence for sentence in sentences for term in terms), text[:size]) for text, sentences in chunks
    ]
    best = max(score for score, _ in scored)
    winner = next(text for score, text in scored if score == best)
    return winner if best > 0 and winner else content[:size]


WORDS = st.lists(st.sampled_from(["redis", "cache", "red", "CI", "ache", "x.", ".", "deploy. Then", "a"]), max_size=25)


@given(WORDS, WORDS.map(lambda words: words[:4]), st.integers(1, 40))
def test_seed_overlap_is_the_plans_algorithm(content: list[str], query: list[str], size: int) -> None:
    text = " ".join(content)
    assert seed_overlap(text, " ".join(query), size) == oracle(text, " ".join(query), size)


def test_seed_overlap_takes_the_chunk_with_the_most_terms() -> None:
    """Chunks: "The sky is blue. " (17 > 10), "Redis cache is slow. " with both terms, cut to 10."""
    content = "The sky is blue. Redis cache is slow. Redis too"
    assert seed_overlap(content, "redis cache", 10) == "Redis cach"


def test_seed_overlap_counts_substrings() -> None:
    """ "ache" stands in "cache": the second sentence wins although no word is "ache"."""
    assert seed_overlap("Nothing here at all. The cache is warm", "ache", 15) == "The cache is wa"


def test_seed_overlap_counts_a_term_once_per_sentence() -> None:
    """ "redis redis redis" is one match; "redis cache" in one sentence is two."""
    content = "redis redis redis redis. redis with a cache inside"
    assert seed_overlap(content, "redis cache", 20) == "redis with a cache i"


def test_seed_overlap_lets_the_first_best_win() -> None:
    assert seed_overlap("cache number one. cache number two", "cache", 10) == "cache numb"


def test_seed_overlap_without_a_match_is_the_head() -> None:
    assert seed_overlap("First sentence. Second sentence", "zebra", 8) == "First se"


def test_seed_overlap_of_short_content_is_the_content_closed_with_a_full_stop() -> None:
    """The plan's function joins with ". " and so adds one at the end; the exact text sent says so."""
    assert seed_overlap("redis cache", "redis", 300) == "redis cache. "


def test_term_overlap_keeps_whole_sentences() -> None:
    content = "The sky is blue. Redis caches expire at night! Nothing else happened."
    assert term_overlap(content, "When does the Redis cache expire?", 40) == "Redis caches expire at night!"


def test_term_overlap_counts_words_not_substrings_and_no_stopwords() -> None:
    """ "ache" is not in "cache"; "the" and "is" count for nothing."""
    content = "The cache is what it is. My ache got better."
    assert term_overlap(content, "is the ache", 25) == "My ache got better."


def test_term_overlap_joins_sentences_while_they_fit() -> None:
    content = "Unrelated words stand here. Redis is slow. The cache is cold. Unrelated again."
    assert term_overlap(content, "redis cache", 40) == "Redis is slow. The cache is cold."


def test_a_long_sentence_is_windowed_around_its_match() -> None:
    content = "word " * 100 + "the elasticsearch cluster broke " + "word " * 100
    chunk = term_overlap(content, "elasticsearch", 60)
    assert "elasticsearch" in chunk
    assert len(chunk) <= 60


@given(st.text(alphabet="abc .!?\n", max_size=200), st.text(alphabet="abc ", max_size=10), st.integers(1, 50))
def test_term_overlap_is_a_part_of_the_content_and_never_longer_than_the_chunk(content, query, size):
    chunk = term_overlap(content, query, size)
    assert len(chunk) <= size
    assert chunk in content


@given(st.integers(20, 120), st.integers(0, 80), st.integers(0, 80))
def test_the_window_of_a_long_sentence_holds_the_match(size: int, before: int, after: int) -> None:
    content = "filler " * before + "needle" + " filler" * after
    assert "needle" in term_overlap(content, "needle", size)


@pytest.mark.parametrize("selection", ["seed_overlap", "term_overlap", "head"])
def test_empty_content_gives_an_empty_chunk_or_only_the_seeds_full_stop(selection: str) -> None:
    assert best_chunk("", "query", 300, selection).strip(". ") == ""


def test_head_is_the_beginning() -> None:
    assert best_chunk("abcdef", "f", 3, "head") == "abc"


@given(WORDS.map(" ".join), st.integers(1, 60))
def test_passages_are_the_whole_text_in_parts_that_fit(content: str, size: int) -> None:
    found = passages(content, "redis cache", size)
    assert all(len(passage) <= size and passage in content for passage in found)
    assert sorted("".join("".join(found).split())) == sorted("".join(content.split()))
    assert found == (content,) or len(content) > size


def test_passages_with_most_words_of_the_query_come_first() -> None:
    content = "The kitchen closes at two. Redis is the cache. Nobody knows. The cache is warmed at night."
    found = passages(content, "redis cache", 40)
    assert found == ("Redis is the cache. Nobody knows.", "The cache is warmed at night.", "The kitchen closes at two.")
    assert best_chunk(content, "redis cache", 40, "passages") == found[0]


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("I painted it. Do you like it?", "I painted it. Do you like it?"),
        ("Do you like it? [image: a lake at dawn]", "Do you like it? [image: a lake at dawn]"),
        ("我画的。你喜欢吗？", "我画的。你喜欢吗？"),
        ("Why not? " + "Because it rained all day long, and nobody had thought of an umbrella.", ""),
        ("No question.", ""),
        ("Fetch it with GET /captures?key=7 and compare.", ""),
        ("", ""),
        ("x" * 200 + ". " + "y" * 150 + ". And you?", "y" * 150 + ". And you?"),
        ("z" * 400 + "?", "z" * 299 + "?"),
    ],
)
def test_the_question_that_a_text_ends_with(text: str, question: str) -> None:
    assert question_at_end(text) == question


@pytest.mark.parametrize("selection", ["head", "passages"])
def test_a_text_is_also_read_with_the_question_before_it_where_that_is_asked_for(selection: str) -> None:
    asked = with_values(
        PipelineConfig(),
        {
            "rerank.chunk_selection": selection,
            "rerank.chunk_chars": 12,
            "rerank.passages": 2,
            "rerank.prepend_question": True,
        },
    )
    texts = texts_for_reranker("One is here. Two is there. Three.", "two", asked, question="Which?")
    alone = texts_for_reranker("One is here. Two is there. Three.", "two", asked)
    assert texts == (*alone, f"Which?\n{alone[0]}")
    assert texts_for_reranker(
        "Two.", "two", with_values(asked, {"rerank.prepend_question": False}), question="Which?"
    ) == ("Two.",)


def _candidates(*lengths: int) -> Evidence:
    memories = [Memory(f"m{n}", "x" * length) for n, length in enumerate(lengths)]
    hits = tuple(Hit(memory.id, 0.5) for memory in memories)
    return Evidence("q", {memory.id: memory for memory in memories}, lists=(RankedList("vector:0", "vector", 0, hits),))


def test_one_passage_of_a_long_memory_is_read_in_brief_and_the_question_only_where_all_of_it_fits() -> None:
    config = with_values(
        PipelineConfig(),
        {
            "rerank.chunk_selection": "passages",
            "rerank.chunk_chars": 20,
            "rerank.passages": 2,
            "rerank.prepend_question": True,
            "rerank.brief.long_chars": 30,
            "rerank.brief.chunk_chars": 14,
        },
    )
    long, short = "One is here. Two is there. Three.", "Two is there."
    assert as_read(config, _candidates(9, 9, 9, 30)) is config
    assert texts_for_reranker(long, "three", config, question="Which?")[1:] == (
        "One is here.",
        "Which?\nTwo is there. Three.",
    )
    brief = as_read(config, _candidates(9, 9, 9, 31))
    assert texts_for_reranker(long, "three", brief, question="Which?") == ("Three.",)
    assert texts_for_reranker(short, "three", brief, question="Which?") == (short, f"Which?\n{short}")


def test_a_reranker_reads_the_fields_that_are_asked_for_before_each_part():
    memory = Memory("m", "One is here. Two is there.", "Numbers", category="fact", project="acme/web")
    plain = with_values(PipelineConfig(), {"rerank.chunk_selection": "head"})
    config = with_values(plain, {"rerank.text_fields": ("title", "category", "author")})
    (read,) = texts_for_reranker(memory.content, "two", config, memory=memory)
    assert read == "category: fact\nNumbers. One is here. Two is there."
    assert without_fields(read, memory, config.rerank.text_fields) == memory.content
    assert text_for_judge(memory.content, memory.content, "two", config, record=memory) == read
    (alone,) = texts_for_reranker(memory.content, "two", plain, memory=memory)
    assert alone == memory.content
