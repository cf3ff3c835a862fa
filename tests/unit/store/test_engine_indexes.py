"""Indexes of other engines: Lucene, sparse BM25, PostgreSQL's ts_rank. Oracles: the engines' own answers, and every text compared."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cems_workbench.builtin import SAMPLE_DATA
from cems_workbench.errors import StoreError
from cems_workbench.models.chunking import cems_pieces
from cems_workbench.platform.sparse_terms import SparseAnalysis, without_suffix
from cems_workbench.progress import silent
from cems_workbench.store.filter import Filter
from cems_workbench.store.search import postgres
from cems_workbench.store.search.directory import read_manifest
from cems_workbench.store.search.entries import WHOLE_MEMORY, ChunkHits
from cems_workbench.store.search.postgres import Chunk, TsRankIndex
from pg_text_search.heap import HeapRow, heap_order
from pg_text_search.inverted_index import full_order, limited_order
from pg_text_search.parser import stem
from pg_text_search.ts_rank import lexemes, matches, or_query, ts_query, ts_rank
from workbench_engines.lucene_index import (
    LENGTHS,
    LuceneIndex,
    LuceneQueryError,
    LuceneRow,
    best_first,
    fuzzy_words,
    length_byte,
    lucene_query,
    read_query,
    standard_words,
)
from workbench_engines.sparse import SparseIndex, SparseWeighting, term_number

TEXTS = (
    "Alice keeps a red bicycle in the shed; the bicycle is old.",
    "The red door of the shed was painted by Bo.",
    "Bo rides a bike, not a bicycle, to the old mill.",
    "it's hbr-4417 again: foo_bar failed at 3.14",
    "Reading " + "very " * 44 + "long red lines",
    "dor mill bicycles",
)
PEOPLE = ("Alice", "Bo", "Bo", "Ana", "Ana Bo", None)


@pytest.fixture(scope="module")
def index() -> LuceneIndex:
    return LuceneIndex([LuceneRow(str(i), None, pair) for i, pair in enumerate(zip(TEXTS, PEOPLE, strict=True))])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("It's foo_bar 3.14 a,b 1,000 a.b.c HBR-4417 don’t",
         ["it's", "foo_bar", "3.14", "a", "b", "1,000", "a.b.c", "hbr", "4417", "don’t"]),
        ("naïve 日本語 カタカナ_ab 한국어abc ไทยสวัสดี", ["naïve", "日", "本", "語", "カタカナ_ab", "한국어abc", "ไทยสวัสดี"]),
        ("_ __ a_ .5 user@host.org AT&T C++ 50%", ["a_", "5", "user", "host.org", "at", "t", "c", "50"]),
        ("✓ ❤ 😀 🇩🇪 👩‍👩‍👧", ["❤", "😀", "🇩🇪", "👩‍👩‍👧"]),
        ("x" * 300, ["x" * 255, "x" * 45]),
    ],
)  # fmt: skip
def test_words_are_those_of_the_standard_analyzer(text: str, words: list[str]) -> None:
    assert standard_words(text) == words


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("red", [("1", 0.36733606457710266), ("0", 0.3458217978477478), ("4", 0.16834616661071777)]),
        ("bo", [("1", 0.8085759878158569), ("2", 0.7921149730682373), ("4", 0.19249877333641052)]),
        ("bicycle OR red OR the",
         [("0", 1.4926707744598389), ("2", 0.8854442834854126), ("1", 0.847528338432312), ("4", 0.16834616661071777)]),
        ("hbr-4417 OR foo_bar", [("3", 2.611565351486206)]),
        ("door OR door~", [("1", 1.6327297687530518), ("5", 0.6957336664199829)]),
        ("bycicle OR bycicle~", [("0", 0.48958539962768555), ("2", 0.37799277901649475)]),
        ("bo OR bo~",
         [("1", 1.8899773359298706), ("2", 1.8488249778747559), ("4", 0.38499754667282104), ("0", 0.0), ("3", 0.0), ("5", 0.0)]),
        ("red OR red~1", [("1", 0.7346721291542053), ("0", 0.6916435956954956), ("4", 0.33669233322143555)]),
        ("red OR red~ -bo", [("0", 0.9221914410591125)]),
    ],
)  # fmt: skip
def test_scores_are_lucenes_to_the_last_bit(index: LuceneIndex, query: str, expected: list[tuple[str, float]]) -> None:
    hits, matching = index.search(read_query(query), None)
    assert [(index.row(place).memory_id, score) for place, score in hits] == expected
    assert matching == len(expected)


def test_more_clauses_than_lucene_takes_are_refused(index: LuceneIndex) -> None:
    clauses = read_query(lucene_query(["bo", "red"], 2))
    scores, _ = index.scores(clauses)
    with pytest.raises(LuceneQueryError, match="more than 10 clauses"):
        index.scores(clauses, max_clauses=10)
    assert np.array_equal(index.scores(clauses, max_clauses=None)[0], scores)


def test_fuzzy_words_are_the_nearest_fifty_by_boost_and_code_point() -> None:
    words = [f"ab{chr(code)}" for code in range(ord("Ā"), ord("Ā") + 80)] + ["ba", "abc", "ab"]
    found = fuzzy_words("ab", words, 2)
    assert len(found) == 50
    assert {("ab", 1.0), ("abc", 0.5), ("abĀ", 0.5)} <= {(word, float(boost)) for word, boost in found}
    assert not {"ba", f"ab{words[79][2]}"} & {word for word, _ in found}


@pytest.mark.parametrize(("length", "held"), [(39, 39), (40, 40), (41, 40), (48, 48), (100, 96), (1_000, 984)])
def test_lengths_lose_their_last_bits(length: int, held: int) -> None:
    assert LENGTHS[length_byte(length)] == held


def test_equal_scores_stand_as_a_heap_leaves_them() -> None:
    scores = np.array([1, 2, 2, 2, 1, 2], np.float32)
    assert best_first(scores, 6, "insertion").tolist() == [1, 2, 3, 5, 0, 4]
    assert best_first(scores, 6, "heap").tolist() == [1, 5, 3, 2, 0, 4]


@pytest.mark.parametrize("query", ["--force", "a -", 'a "b c"', "w~3", "a AND b"])
def test_what_is_not_read_is_refused(query: str) -> None:
    with pytest.raises(LuceneQueryError):
        read_query(query)


SPARSE_TEXTS = ("deploy the api", "the api of the api gateway", "logs of the gateway", "")
ACE = SparseWeighting(k1=1.5, b=0.75, mean_length=50, idf="none", query_weight="document")
FASTEMBED = SparseWeighting(k1=1.2, b=0.75, mean_length=256, idf="lucene", query_weight="document")


def test_identifiers_part_at_capitals_and_underscores_and_lose_short_words() -> None:
    analysis = SparseAnalysis("identifiers", stop_words=frozenset({"the"}), min_length=2)
    assert analysis.terms("The getUserById of HTTPServer, MAX_CONN_2: a Gdańsk") == [
        *("get", "user", "by", "id", "of", "httpserver", "max", "conn", "gda", "sk")
    ]


def test_words_are_unicode_runs_cut_by_length_before_they_are_stemmed() -> None:
    analysis = SparseAnalysis("words", "english", frozenset({"the"}), max_length=8)
    assert analysis.terms("The getUserById of Gdańsk's _ logs, memories_x deploying") == ["of", "gdańsk", "s", "log"]
    assert analysis.terms("added running") == ["ad", "run"]


def test_ascii_words_lose_one_suffix_and_keep_their_ing() -> None:
    analysis = SparseAnalysis("ascii", "suffixes", frozenset({"the"}), keep_ing=True)
    assert analysis.terms("The get_User's queries, testing boxes of dresses!") == [
        *("get", "user", "s", "queri", "test", "testing", "boxe", "of", "dress")
    ]
    stems = {"organization": "organize", "harness": "har", "deployment": "deploy", "wasted": "wast", "red": "red"}
    stems |= {"quickly": "quick", "user": "user", "ring": "ring", "latest": "lat", "glass": "glass", "ness": ""}
    assert {word: without_suffix(word) for word in stems} == stems
    assert analysis.terms("Привет, мир") == ["привет,", "мир"]


def test_porter_stems_are_those_of_1980() -> None:
    assert SparseAnalysis("ascii", "porter").terms("relational hopping is etiology incredibly") == [
        *("relat", "hop", "is", "etiolog", "incred")
    ]


def test_query_words_count_as_often_as_they_stand() -> None:
    """ln(1 + 2.5/2.5) · 2.5·2/(2 + 1.5·(0.25 + 0.75·6/3.25)), twice for a word that is asked twice."""
    index = SparseIndex([text.split() for text in SPARSE_TEXTS], SparseWeighting(k1=1.5, query_weight="count"))
    once = math.log(2) * 5 / (2 + 1.5 * (0.25 + 0.75 * 6 / 3.25))
    assert index.search(["api"])[1][0] == pytest.approx(once, rel=1e-6)
    assert index.search(["api", "api"])[1][0] == pytest.approx(2 * once, rel=1e-6)


def test_whole_doubles_is_the_rule_of_2019() -> None:
    assert (stem("added"), stem("added", whole_doubles=False), stem("hopped", whole_doubles=False)) == (
        *("add", "ad"),
        "hop",
    )


def test_weight_without_idf_counts_frequency_and_the_constant_length_alone() -> None:
    index = SparseIndex([text.split() for text in SPARSE_TEXTS], ACE)
    rows, scores = index.search(["api", "unknown"])

    def weight(frequency: int, length: int) -> float:
        return frequency * 2.5 / (frequency + 1.5 * (0.25 + 0.75 * length / 50))

    asked = weight(1, 2)
    assert rows.tolist() == [1, 0]
    assert scores.tolist() == pytest.approx([asked * weight(2, 6), asked * weight(1, 3)])


def test_query_weight_one_ignores_repetitions_and_the_true_mean_is_that_of_the_texts() -> None:
    index = SparseIndex([text.split() for text in SPARSE_TEXTS], SparseWeighting(mean_length=None, idf="none"))
    assert index.mean_length == 13 / 4
    assert index.query_weights(["api", "api", "gateway"]) == {"api": 1.0, "gateway": 1.0}
    assert index.search(["api", "api"])[1].tolist() == index.search(["api"])[1].tolist()


def test_equal_scores_stand_by_row_and_a_text_without_terms_counts_in_n() -> None:
    index = SparseIndex([["a"], ["b"], ["a"], []], FASTEMBED)
    assert index.search(["a"])[0].tolist() == [0, 2]
    asked = 2.2 / (1 + 1.2 * (0.25 + 0.75 / 256))
    assert index.query_weights(["a"]) == {"a": pytest.approx(asked * math.log(1 + 2.5 / 2.5))}


def test_contributions_sum_to_the_score() -> None:
    index = SparseIndex([text.split() for text in SPARSE_TEXTS], FASTEMBED)
    rows, scores = index.search(["gateway", "api", "the"])
    for row, score in zip(rows.tolist(), scores.tolist(), strict=True):
        parts = index.contributions(row, ["gateway", "api", "the"])
        assert sum(parts.values()) == pytest.approx(score, rel=1e-6)
    assert set(index.contributions(2, ["api", "gateway"])) == {"gateway"}


@pytest.mark.parametrize("weighting", [ACE, FASTEMBED])
def test_scores_are_those_of_qdrant(weighting: SparseWeighting) -> None:
    from qdrant_client import QdrantClient, models

    texts = [text.split() for text in SPARSE_TEXTS[:3]]
    client = QdrantClient(":memory:")
    modifier = models.Modifier.IDF if weighting.idf == "lucene" else None
    client.create_collection(
        "memories", vectors_config={}, sparse_vectors_config={"bm25": models.SparseVectorParams(modifier=modifier)}
    )

    def vector(words: list[str]) -> models.SparseVector:
        weights = {word: weighting.weight(words.count(word), len(words), 1.0 * weighting.mean_length) for word in words}  # type: ignore[operator]
        return models.SparseVector(indices=[term_number(word) for word in weights], values=list(weights.values()))

    points = [models.PointStruct(id=row, vector={"bm25": vector(words)}) for row, words in enumerate(texts)]
    client.upsert("memories", points)
    asked = ["api", "gateway", "api", "the"]
    found = client.query_points("memories", query=vector(asked), using="bm25", limit=10).points
    rows, scores = SparseIndex(texts, weighting).search(asked)
    assert {point.id: point.score for point in found} == pytest.approx(
        dict(zip(rows.tolist(), scores.tolist(), strict=True)), rel=1e-6
    )
    assert np.all(np.diff(scores) <= 0)


PETS = [
    *("the cat sat", "cats and a dog", "a dog", "re-rank the list", "rank of a list", "re", "cat cat dog", ""),
    *("foo.bar/baz", "a.bc/x", "dog dog dog", "cat"),
]


def build(home: Path, chunks: list[Chunk], hidden: frozenset[str] = frozenset()) -> TsRankIndex:
    manifest = postgres.build(home, chunks, len(chunks), 1, silent)
    assert read_manifest(home) == manifest
    return TsRankIndex(home / manifest.segments[0][0], hidden)


def chunks_of(texts: list[str]) -> list[Chunk]:
    scopes = ("personal", "shared")
    return [Chunk(f"m{99 - i // 2}", i % 2, text, f"p{i % 3}", scopes[i % 2]) for i, text in enumerate(texts)]


def by_hand(texts: list[str], query: str, k: int, order: str) -> ChunkHits:
    asked = or_query(query)
    found = [(chunk, lexemes(chunk.text)) for chunk in chunks_of(texts)]
    ranked = [(c.memory_id, ts_rank(words, asked), c.number) for c, words in found if matches(words, asked)]
    scores = np.array([hit[1] for hit in ranked], np.float32)
    if order == "id":
        return sorted(ranked, key=lambda hit: (-hit[1], hit[0], hit[2] or 0))[:k]
    places = limited_order(scores, k) if order == "limit" else full_order(scores, k)
    return [ranked[place] for place in places]


@pytest.fixture(scope="module")
def ranked(tmp_path_factory: pytest.TempPathFactory) -> TsRankIndex:
    return build(tmp_path_factory.mktemp("ts_rank"), chunks_of(PETS))


WORDS = st.lists(
    st.sampled_from(["cat", "dog", "re-rank", "rank", "the", "list", "foo.bar/baz", "-7", "zebra"]), max_size=5
)


@given(WORDS.map(" ".join), st.integers(0, 9), st.sampled_from(["id", "limit", "window"]))
def test_the_index_returns_what_every_text_compared_gives(ranked, query, k, order) -> None:
    assert ranked.search(query, k, ties=order) == by_hand(PETS, query, k, order)


@given(st.lists(WORDS.map(" ".join), max_size=12), WORDS.map(" ".join))
def test_any_texts_are_found_as_they_compare(tmp_path_factory, texts, query) -> None:
    ranked = build(tmp_path_factory.mktemp("any"), chunks_of(texts))
    assert ranked.search(query, 20) == by_hand(texts, query, 20, "id")


def test_ranks_by_hand(ranked) -> None:
    cat, dog = 0.1, 0.1 * (1 + 1 / 4 + 1 / 9)
    zeta = 1.64493406685
    hits = ranked.search("cat dog", 3)
    assert [(memory_id, chunk) for memory_id, _, chunk in hits] == [("m96", 0), ("m99", 1), ("m94", 0)]
    expected = [(0.125 + cat) / 2, (cat + cat) / 2, dog / 2]
    assert [score for _, score, _ in hits] == pytest.approx([value / zeta for value in expected], abs=1e-7)


def test_a_filter_and_hidden_memories_leave_the_order_of_the_others(tmp_path: Path) -> None:
    ranked = build(tmp_path, chunks_of(PETS), hidden=frozenset({"m99"}))
    everything = by_hand(PETS, "cat dog", 99, "id")
    shared = [hit for hit in everything if hit[2] == 1 and hit[0] != "m99"]
    assert ranked.search("cat dog", 99, Filter(scope="shared")) == shared
    assert ranked.search("cat dog", 99, Filter("nowhere", True)) == []


def test_phrases_prefixes_and_conjunctions_are_answered_from_positions(ranked) -> None:
    found = [
        [memory_id for memory_id, _, _ in ranked.search(ts_query(query), 9)]
        for query in ("re-rank", "c1 | dog:*", "cat & dog")
    ]
    assert found == [["m98"], ["m94", "m96", "m98", "m99"], ["m96", "m99"]]


def test_a_memory_that_is_searched_as_one_text_is_found_without_a_chunk(tmp_path: Path) -> None:
    ranked = build(
        tmp_path, [Chunk("whole", WHOLE_MEMORY, "cat", None, "shared"), Chunk("cut", 0, "cat", None, "shared")]
    )
    assert [(memory_id, chunk) for memory_id, _, chunk in ranked.search("cat", 9)] == [
        ("cut", 0),
        ("whole", None),
    ]


def test_an_index_of_nothing_finds_nothing(tmp_path: Path) -> None:
    assert TsRankIndex(None).search("cat", 3) == []
    assert build(tmp_path, []).search("cat", 3) == []
    assert build(tmp_path, chunks_of(["", "the"])).search("cat the", 3) == []


def test_a_damaged_index_says_so(tmp_path: Path) -> None:
    (tmp_path / "index").write_text("[]")
    with pytest.raises(StoreError, match="is damaged"):
        TsRankIndex(tmp_path / "index")


@pytest.mark.parametrize(
    ("recording", "memories"),
    [("sample", SAMPLE_DATA / "memories.jsonl"), ("sessions", Path("sessions/memories.jsonl"))],
    ids=["sample", "sessions"],
)
def test_recorded_lexical_lists_of_cems_come_out_to_the_score_and_the_place(shared, tmp_path, recording, memories):
    answers = json.loads((shared / "cems" / f"{recording}.json").read_text("utf-8"))["answers"]
    rows = [json.loads(line) for line in (shared / "cems" / memories).read_text("utf-8").splitlines()]
    chunks = [
        (row["id"], number, piece.text) for row in rows for number, piece in enumerate(cems_pieces(row["content"]))
    ]
    order = heap_order([HeapRow(text, 384, lexemes(text)) for _, _, text in chunks])
    index = indexed(tmp_path, [chunks[place] for place in order])
    for answer in answers:
        recorded = [(memory_id, score) for memory_id, score in answer["lists"]["lexical"][-1]]
        best: dict[str, float] = {}
        for memory_id, score, _ in index.search(answer["query"], 100, ties="limit"):
            best.setdefault(memory_id, score)
        assert list(best.items())[:50] == [(m, pytest.approx(score, abs=1e-6)) for m, score in recorded], answer[
            "query"
        ]
    assert len(answers) > 100


def indexed(home: Path, chunks: list[tuple[str, int, str]]) -> TsRankIndex:
    entries = [postgres.Chunk(memory_id, number, text, None, "personal") for memory_id, number, text in chunks]
    return build(home, entries)
