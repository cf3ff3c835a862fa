"""Evidence of words and vectors: terms and marks, tokens, texts as they are read, and checks of lists against exact search and engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cems_workbench.analysis.fusion_comparison import compared
from cems_workbench.analysis.graph_lists import ExactRanking, Missed, recall_at
from cems_workbench.analysis.text_evidence import matches
from cems_workbench.models.late_interaction import TokenCosines
from cems_workbench.models.protocol import Float32
from cems_workbench.pipeline.live_engine import LiveList
from cems_workbench.pipeline.scoring import best_chunk
from cems_workbench.progress import silent
from cems_workbench.records import Memory
from cems_workbench.sources.source import Setting, SourceInfo
from cems_workbench.store.search import lexical_segment
from cems_workbench.store.search.directory import segments_of
from cems_workbench.store.search.entries import Document
from cems_workbench.store.search.lexical_index import LexicalIndex
from cems_workbench.store.search.postgres import TsRankIndex
from cems_workbench.store.search.tokenizer import tokenize
from cems_workbench.store.text_rule import searched_text
from workbench_inspect import index_check as exact_search
from workbench_inspect.index_check import (
    cause,
    compare_engine,
    exact_ranking,
    largest_difference,
    limiting,
)
from workbench_inspect.text_evidence import (
    Room,
    chunk_place,
    lexeme_matches,
    lexical_evidence,
    rank_evidence,
    read_until,
    token_similarity,
)

FOX, DOG, BIRD = Memory("a", "red fox"), Memory("b", "red red dog jumps"), Memory("c", "bird of the blue", title="Sky")


@pytest.fixture
def index(tmp_path: Path) -> LexicalIndex:
    """Three memories of 2, 4 and 3 terms: the mean length is 3."""
    rows = [Document(memory.id, searched_text(memory), None, "personal") for memory in (FOX, DOG, BIRD)]
    manifest = lexical_segment.update(tmp_path, (), (), iter(rows), len(rows), 1, silent)
    return LexicalIndex.open(tmp_path, segments_of(manifest))


def test_a_term_gives_idf_times_its_saturated_frequency(index: LexicalIndex) -> None:
    found = lexical_evidence(index, "a red dog", DOG)
    red, dog = found.terms
    rare = log(1 + 1.5 / 2.5)  # in 2 of 3
    assert (red.term, red.count, red.holding, red.asked) == ("red", 2, 2, 1)
    assert red.idf == pytest.approx(rare)
    assert red.part == pytest.approx(rare * 2 / (2 + 1.5 * (0.25 + 0.75 * 4 / 3)))
    assert (dog.count, dog.holding) == (1, 1)
    assert dog.part == pytest.approx(log(1 + 2.5 / 1.5) * 1 / (1 + 1.5 * (0.25 + 0.75 * 4 / 3)))
    assert [term.term for term in found.matched] == ["dog", "red"]  # the rarer one gives more
    assert found.share(red) + found.share(dog) == pytest.approx(1)


def test_the_parts_sum_to_the_score_in_the_list(index: LexicalIndex) -> None:
    for query in ("red dog", "red red dog", "jumping red foxes", "blue sky bird"):
        scores = dict(index.search(query, 10))
        assert scores
        for memory in (FOX, DOG, BIRD):
            score = lexical_evidence(index, query, memory).score
            assert score == pytest.approx(scores.get(memory.id, 0.0), abs=1e-6)


def test_a_word_asked_twice_counts_twice_in_one_row(index: LexicalIndex) -> None:
    once, twice = (lexical_evidence(index, query, FOX).terms[0] for query in ("red", "red and red"))
    assert twice.asked == 2
    assert twice.part == pytest.approx(2 * once.part)


def test_unmatched_terms_and_stop_words_are_named(index: LexicalIndex) -> None:
    found = lexical_evidence(index, "where is the blue fox or wolf", FOX)
    assert [(term.term, term.holding) for term in found.unmatched] == [("blue", 1), ("wolf", 0)]
    assert found.stop_words == ("where", "is", "the", "or")
    assert [term.term for term in found.matched] == ["fox"]


def test_a_memory_that_is_not_indexed_has_no_part(index: LexicalIndex) -> None:
    found = lexical_evidence(index, "red", Memory("new", "red"))
    assert (found.score, found.matched) == (0, ())
    assert lexical_evidence(LexicalIndex(), "red", FOX).score == 0


def test_matches_are_the_words_as_they_stand() -> None:
    text = "Jumping <b>dogs</b> jumped; getUserById did not"
    found = matches(text, {"jump", "dog", "user"})
    assert [(text[match.start : match.end], match.terms) for match in found] == [
        ("Jumping", ("jump",)),
        ("dogs", ("dog",)),
        ("jumped", ("jump",)),
        ("getUserById", ("user",)),
    ]


def test_a_text_that_nfkc_changes_keeps_its_own_positions() -> None:
    text = "the \ufb01sh … swims"  # the ligature fi is one character, two after NFKC
    assert [(text[match.start : match.end], match.terms) for match in matches(text, {"fish", "swim"})] == [
        ("\ufb01sh", ("fish",)),
        ("swims", ("swim",)),
    ]


@given(st.text(max_size=120))
def test_every_match_gives_its_terms_and_none_overlaps_another(text: str) -> None:
    wanted = set(tokenize(text))
    found = matches(text, wanted)
    ends = [0, *(match.end for match in found)]
    for match, before in zip(found, ends, strict=False):
        assert before <= match.start < match.end <= len(text)
        assert set(match.terms) <= set(tokenize(text[match.start : match.end]))
    assert {term for match in found for term in match.terms} == wanted or any(ord(c) > 127 for c in text)


EMPTY = TsRankIndex(None)
ONCE = 0.1 / 1.64493406685
TWICE = 0.1 * (1 + 1 / 4) / 1.64493406685


def test_each_lexeme_gives_its_gain_over_the_number_asked_for() -> None:
    found = rank_evidence(EMPTY, "which foxes jumped the moon", {None: "A fox and another fox: they jump."})
    assert [(one.term, one.words, one.count) for one in found.terms] == [
        ("fox", ("foxes",), 2),
        ("jump", ("jumped",), 1),
        ("moon", ("moon",), 0),
    ]
    assert [one.part for one in found.terms] == pytest.approx([TWICE / 3, ONCE / 3, 0.0])
    assert found.score == pytest.approx((TWICE + ONCE) / 3)
    assert found.share(found.terms[0]) == pytest.approx(1.25 / 2.25)
    assert [one.term for one in found.matched] == ["fox", "jump"]
    assert [one.term for one in found.unmatched] == ["moon"]
    assert found.stop_words == ("which", "the") and found.chunk is None


def test_of_a_memorys_chunks_the_best_is_shown() -> None:
    found = rank_evidence(EMPTY, "fox moon", {0: "a fox", 1: "fox and moon", 2: "nothing"})
    assert found.chunk == 1 and found.score == pytest.approx(2 * ONCE / 2)


def test_a_query_ranked_by_distance_has_a_rank_and_no_parts() -> None:
    """One lexeme that is parsed into several is a phrase: `a-wa`, which is what `a-was` leaves, asks for a compound and its parts."""
    found = rank_evidence(EMPTY, "re-rank", {None: "to re-rank twice"})
    assert {one.term for one in found.matched} == {"re-rank", "re", "rank"}
    phrase = rank_evidence(EMPTY, "a-was", {None: "a-was and a-was"})
    assert phrase.by_distance and all(one.part == 0 for one in phrase.terms)


def test_a_query_of_stop_words_asks_for_nothing() -> None:
    found = rank_evidence(EMPTY, "what is the", {None: "what is the time"})
    assert not found.terms and not found.score and found.stop_words == ("what", "is", "the")


def test_marks_are_the_words_that_give_the_lexemes() -> None:
    text = "The foxes, a fox's den; HBR-4417!"
    found = lexeme_matches(text, ["fox", "hbr"])
    assert [(text[match.start : match.end], match.terms) for match in found] == [
        ("foxes", ("fox",)),
        ("fox's", ("fox",)),
        ("HBR-4417", ("hbr",)),
    ]


COSINES = TokenCosines(
    ("rare", "common"), np.array([4.0, 1.0]), ("x", "y", "z"), np.array([[0.5, 0.1, -0.3], [0.2, 0.8, 0.6]])
)


@pytest.mark.parametrize(
    ("only", "strength", "nearest", "met_by"),
    [
        # Of all: max of 0.5 and 0.2/4, of 0.1 and 0.8/4, of 0 and 0.6/4.
        (None, [0.5, 0.2, 0.15], [0, 1, 1], ((0,), (1,), ())),
        (0, [0.5, 0.1, 0.0], [0, 0, 0], ((0,), (), ())),
    ],
    ids=["a rare token warms more than a common one", "one token alone shows its own cosines"],
)
def test_heat_of_query_tokens(only, strength, nearest, met_by) -> None:
    heat = token_similarity(COSINES, only)
    assert heat.strength.tolist() == pytest.approx(strength)
    assert (heat.nearest.tolist(), heat.met_by) == (nearest, met_by)
    assert heat.cosine.tolist() == pytest.approx([COSINES.cosine[token, i] for i, token in enumerate(nearest)])


def test_words_without_any_rarity_leave_the_text_cold() -> None:
    heat = token_similarity(TokenCosines(("a",), np.array([0.0]), ("x",), np.array([[0.9]])))
    assert heat.strength.tolist() == [0.0]


def words(tokens: int) -> Room:
    """A model that counts every word as one token."""
    return Room(tokens, lambda text: len(text.split()))


@pytest.mark.parametrize("selection", ["seed_overlap", "term_overlap", "head"])
@pytest.mark.parametrize("size", [20, 26, 27, 28, 45, 300])
def test_a_chunk_is_found_where_it_was_cut(selection: str, size: int) -> None:
    content = "The first sentence is here. We roll back the deploy at once. Nothing else."
    chunk = best_chunk(content, "roll back a deploy", size, selection)
    place = chunk_place(content, chunk)
    assert place is not None
    assert chunk.startswith(content[place[0] : place[1]])
    assert chunk[place[1] - place[0] :] in ("", ".", ". ")


@pytest.mark.parametrize(
    ("content", "chunk", "place"),
    [
        ("what it says now", "what it said", None),
        ("one. two", "two. ", (5, 8)),  # an end that was put there is no part of the place
        ("one. two", "one. two.", (0, 8)),
    ],
)
def test_the_place_of_a_chunk(content, chunk, place) -> None:
    assert chunk_place(content, chunk) == place


def test_the_cut_is_the_end_of_the_last_word_that_fits() -> None:
    text = "one two  three four"
    assert read_until(text, words(3)) == len("one two  three")
    assert read_until(text, words(4)) is None
    assert read_until(text, words(0)) == 0


def test_a_word_of_several_tokens_counts_as_such() -> None:
    room = Room(5, lambda text: len(text.replace(" ", "")))
    assert read_until("ab cd ef", room) == len("ab cd")


@given(st.lists(st.text("abc", min_size=1, max_size=6), max_size=40), st.integers(0, 45))
def test_what_is_read_fits_and_one_word_more_does_not(listed: list[str], tokens: int) -> None:
    text, room = " ".join(listed), words(tokens)
    cut = read_until(text, room)
    if cut is None:
        assert len(listed) <= tokens
    else:
        assert room.count(text[:cut]) == tokens


VECTORS: dict[str, list[float]] = {"a": [3, 4], "b": [4, 3], "c": [0, 2], "d": [1, 0]}
"""Cosines with (1, 0): d 1, b 0.8, a 0.6, c 0."""


def embeddings(ids: Sequence[str]) -> Mapping[str, Float32]:
    return {key: np.array(VECTORS[key], np.float32) for key in ids if key in VECTORS}


def ranking(*cosines: float) -> ExactRanking:
    return ExactRanking(tuple(f"m{i}" for i in range(1, len(cosines) + 1)), np.array(cosines))


def test_every_embedding_is_ranked_by_its_cosine() -> None:
    found = exact_ranking(np.array([2, 0], np.float32), ["a", "b", "c", "d", "bare"], embeddings)
    assert found.ids == ("d", "b", "a", "c")
    assert found.cosines.tolist() == pytest.approx([1, 0.8, 0.6, 0])


def test_blocks_give_the_same_and_say_how_far_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_search, "BLOCK_ROWS", 3)
    said: list[tuple[str, int, int]] = []
    found = exact_ranking(np.array([1, 0], np.float32), list("abcd"), embeddings, lambda *report: said.append(report))
    assert found.ids == ("d", "b", "a", "c")
    assert said == [("comparing embeddings", 3, 4), ("comparing embeddings", 4, 4)]


@pytest.mark.parametrize(
    ("cosines", "answer", "k", "missed"),
    [
        ((0.9, 0.8, 0.7, 0.6), "m1 m3 m4", 3, (Missed("m2", 2, 0.8),)),
        ((0.9, 0.8, 0.7), "m3 m2 m1", 1, (Missed("m1", 1, 0.9),)),  # only the first k of the answer count
        ((0.9, 0.5, 0.5, 0.5), "m1 m4", 2, ()),  # of memories that tie with the last place any will do
        ((0.9, 0.5, 0.5, 0.5), "m1", 3, (Missed("m2", 2, 0.5), Missed("m3", 3, 0.5))),
    ],
)
def test_who_was_missed_is_named_with_rank_and_cosine(cosines, answer, k, missed) -> None:
    found = recall_at(ranking(*cosines), [(name, 0.0) for name in answer.split()], k)
    assert (found.k, found.found, found.missed) == (k, k - len(missed), missed)
    assert found.value == pytest.approx(found.found / k)


def test_the_largest_difference_of_scores_is_found() -> None:
    exact = ranking(0.9, 0.8)
    assert largest_difference(exact, [("m1", 0.9), ("m2", 0.75), ("elsewhere", 3.0)]) == pytest.approx(0.05)
    assert largest_difference(exact, []) == 0


@given(st.lists(st.integers(0, 6), min_size=1, max_size=12), st.data())
def test_found_and_missed_add_up_and_a_perfect_answer_misses_nothing(levels: list[int], data: st.DataObject) -> None:
    exact = ranking(*(level / 10 for level in sorted(levels, reverse=True)))
    pairs = list(zip(exact.ids, exact.cosines.tolist(), strict=True))
    k = data.draw(st.integers(1, 15))
    assert recall_at(exact, pairs, k).missed == ()
    some = data.draw(st.lists(st.sampled_from(pairs), unique=True))
    found = recall_at(exact, some, k)
    assert found.found + len(found.missed) == found.k == min(k, len(pairs))
    assert not {missed.memory_id for missed in found.missed} & {memory_id for memory_id, _ in some[:k]}


EXACT = ExactRanking(tuple("abcdef"), np.array([0.9, 0.8, 0.7, 0.6, 0.5, 0.4]))
EF = Setting("hnsw.ef_search", "3", "rows at most", ("10",))
PROBES = Setting("ivfflat.probes", "10")


def live(hits: str, asked: int = 6, returned: int | None = None) -> LiveList:
    scores = dict(zip(EXACT.ids, EXACT.cosines.tolist(), strict=True)) | {"x": 0.95}
    found = [(each, scores[each], 0) for each in hits]
    return LiveList("vector", asked, len(hits) if returned is None else returned, found, (), 0.01)


def probe(*settings: Setting, index: str | None = "hnsw (v)") -> SourceInfo:
    return SourceInfo("t", "engine", 6, 6, 3, index=index, settings=settings)


def test_what_is_missing_of_the_memories_that_are_kept_is_named() -> None:
    found = compare_engine(live("acd"), EXACT, 4)
    assert (found.deep.k, found.deep.found, [each.memory_id for each in found.deep.missed]) == (4, 3, ["b"])
    assert (found.deep.missed[0].rank, found.near.k, found.near.found, found.whole) == (2, 6, 3, False)
    assert compare_engine(live("abcd"), EXACT, 4).whole


def test_what_the_filter_of_the_query_leaves_out_takes_no_place() -> None:
    found = compare_engine(live("xabc"), EXACT, 3)
    assert found.whole and found.off == pytest.approx(0.0)


def test_the_setting_that_cut_a_list_is_the_cause() -> None:
    short = compare_engine(live("ab"), EXACT, 6)
    assert limiting(short.live, (PROBES, EF)) == EF
    assert cause(short, probe(EF)) == "6 rows were asked for and 2 came: hnsw.ef_search is 3, rows at most."
    assert "filtered afterwards" in cause(short, probe())
    passed_by = compare_engine(live("abcdf", asked=5), EXACT, 5)
    assert "approximate (hnsw (v)) and passed them by" in cause(passed_by, probe(EF))
    assert "changed since the snapshot" in cause(passed_by, probe(index=None))
    assert cause(compare_engine(live("abcdef"), EXACT, 6), probe(EF)) == ""


def test_a_list_that_came_back_whole_was_cut_by_no_setting() -> None:
    whole = compare_engine(live("abcdex", asked=9), EXACT, 6)
    assert limiting(whole.live, (Setting("hnsw.ef_search", "7"),)) is not None
    assert (
        cause(whole, probe(Setting("hnsw.ef_search", "7"))) == "Its index is approximate (hnsw (v)) and passed them by."
    )


OURS = [("a", 0.9), ("b", 0.8), ("c", 0.7), ("d", 0.6)]


@pytest.mark.parametrize(
    ("engine", "cut", "sorts", "words"),
    [
        ([("a", 5.0), ("b", 4.0), ("c", 3.0)], False, ("", "", ""), "the same first 3"),
        ([("a", 5.0), ("c", 4.0), ("b", 4.0)], False, ("", "", "cb"), "the same first 3, 2 only tied"),
        (
            [("a", 5.0), ("c", 4.0), ("b", 3.0)],
            False,
            ("", "cb", ""),
            "the same first 3, 2 at other places",
        ),
        (
            [("b", 5.0), ("c", 4.0), ("a", 4.0)],
            False,
            ("", "ba", "c"),
            "the same first 3, 2 at other places, 1 only tied",
        ),
        # d is our fourth: where the answer was cut, others may tie with it there, so that it may be fourth there too.
        ([("a", 5.0), ("b", 4.0), ("d", 3.0)], False, ("d", "", ""), "1 of the first 3 are others"),
        ([("a", 5.0), ("b", 4.0), ("d", 3.0)], True, ("", "", "d"), "the same first 3, 1 only tied"),
        ([("a", 5.0), ("x", 4.0), ("b", 4.0)], False, ("x", "", "b"), "1 of the first 3 are others, 1 only tied"),
    ],
)
def test_places_differ_unless_equal_scores_explain_them(engine, cut, sorts, words):
    found = compared("source_hybrid:0", engine, OURS, 10, cut)
    assert ("".join(found.others), "".join(found.moved), "".join(found.tied)) == sorts
    assert found.line == f"Fused by the source (source_hybrid:0) and fused here: {words}"


def test_our_equal_scores_are_ties_too() -> None:
    found = compared("source_hybrid:0", [("a", 5.0), ("b", 4.0)], [("b", 0.5), ("a", 0.5 + 1e-9)])
    assert (found.k, found.others, found.moved, found.tied) == (2, (), (), ("a", "b"))
