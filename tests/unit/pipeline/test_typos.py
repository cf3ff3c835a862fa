"""Typo correction against the store's words and learned pairs (docs/internals/specification.md, "query")."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cems_workbench.config.sections.gathering import TypoCorrection
from cems_workbench.pipeline.understanding import CorrectedQuery, Correction, correct
from cems_workbench.store import LearnedPair, Vocabulary
from cems_workbench.store.search.lexical.tokenizer import terms_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)
STORE = Vocabulary({"python": 3, "deployment": 9, "decision": 2, "server": 5, "servers": 1, "kitchen": 1})


def config(threshold: float = 0.80, **changes: Any) -> TypoCorrection:
    return TypoCorrection(enabled=True, similarity_threshold=threshold, **changes)


def learned(typo: str, correction: str, refused: bool = False) -> LearnedPair:
    return LearnedPair(typo, correction, 1, NOW, NOW, refused)


def corrected(query: str, words: Any = STORE, pairs: Any = (), threshold: float = 0.80) -> str:
    return correct(query, Vocabulary(words), pairs, config(threshold)).query


def test_a_correction_says_what_was_replaced_by_what_where_and_how_alike_they_are() -> None:
    assert correct("my Pyhton deploymnet", STORE, [], config()) == CorrectedQuery(
        "my Python deployment",
        (
            Correction("pyhton", "python", pytest.approx(1 - 1 / 6), "store", 3, 9),
            Correction("deploymnet", "deployment", pytest.approx(1 - 1 / 10), "store", 10, 20),
        ),
    )


def test_two_letters_that_changed_places_are_one_step_and_other_pairs_are_two() -> None:
    assert corrected("pyhton") == "python"
    assert corrected("pyhtom") == "pyhtom"  # 1 - 2/6


@pytest.mark.parametrize(("threshold", "result"), [(0.80, "kafka"), (0.81, "kofka")])
def test_the_threshold_is_reached_by_equality(threshold: float, result: str) -> None:
    assert corrected("kofka", {"kafka": 1}, threshold=threshold) == result  # 1 - 1/5


@pytest.mark.parametrize(
    ("words", "result"),
    [
        ({"migrating": 9, "migrationsx": 9, "migration": 1}, "migration"),
        ({"migratioon": 1, "migratiorn": 2}, "migratiorn"),
        ({"migratiorn": 2, "migratioon": 2}, "migratioon"),
    ],
    ids=["similarity", "then frequency", "then alphabet"],
)
def test_the_best_candidate_is_unambiguous(words: dict[str, int], result: str) -> None:
    assert corrected("migratiom", words) == result


@pytest.mark.parametrize(
    "query",
    [
        "python server",
        "PYTHON",
        "pythn",
        "Pythoon2",
        "pyhton3",
        "PYHTON",
        "pyhTon",
        "my_pyhton",
        "`pyhton`",
        "src/pyhton/x",
        "pyhton.py",
        "pyhton()",
        "well-pyhton",
        "pyhton's",
        "12345678",
        "",
        "  ",
        "pyhtoń\u0301",
    ],
)
def test_what_is_left_alone(query: str) -> None:
    words = {"python": 3, "server": 5} if query != "pythn" else {"pythons": 1}
    assert corrected(query, words) == query


def test_words_shorter_than_four_letters_are_left_alone() -> None:
    assert corrected("teh", {"the": 5}, threshold=0.5) == "teh"
    assert corrected("tehm", {"them": 5}, threshold=0.5) == "them"


def test_stopwords_signals_and_technical_terms_are_right_even_if_no_memory_has_them() -> None:
    assert corrected("would recommend kafka", {"could": 9, "recommends": 9, "kafkas": 9}) == "would recommend kafka"


def test_another_form_of_a_word_of_the_store_is_no_typo() -> None:
    assert corrected("decisions") == "decisions"


def test_a_script_without_capitals_is_left_alone() -> None:
    assert corrected("記憶検索結果", {"記憶検索結論": 4}) == "記憶検索結果"


def test_a_learned_pair_comes_first_and_needs_no_similarity() -> None:
    found = correct("Pyhton ktchn", STORE, [learned("pyhton", "kitchen"), learned("ktchn", "kitchen")], config())
    assert found.query == "Kitchen kitchen"
    assert [(one.source, one.similarity) for one in found.corrections] == [
        ("learned", pytest.approx(1 / 7)),
        ("learned", pytest.approx(5 / 7)),
    ]


def test_a_learned_pair_to_a_word_that_is_in_no_memory_any_more_is_not_used() -> None:
    assert corrected("pyhton", pairs=[learned("pyhton", "gone")]) == "python"


def test_a_refused_pair_is_never_made() -> None:
    assert corrected("pyhton", pairs=[learned("pyhton", "python", refused=True)]) == "pyhton"


def test_the_latest_of_two_learned_pairs_counts() -> None:
    assert corrected("srvr", pairs=[learned("srvr", "servers"), learned("srvr", "server")]) == "servers"


def test_a_word_of_the_store_is_not_corrected_even_when_a_pair_was_learned_for_it() -> None:
    assert corrected("kitchen", pairs=[learned("kitchen", "server")]) == "kitchen"


def test_switched_off_or_without_words_nothing_is_corrected() -> None:
    assert correct("pyhton", STORE, [], TypoCorrection(enabled=False)) == CorrectedQuery("pyhton")
    assert corrected("pyhton", {}) == "pyhton"


def test_a_project_dictionary_protects_its_words() -> None:
    assert correct("pyhton", STORE, [], config(), lexicon={"pyhton"}).query == "pyhton"


WORDS = st.text("abcdeé", min_size=1, max_size=9)
VOCABULARIES = st.dictionaries(WORDS, st.integers(1, 5), max_size=25)
PAIRS = st.lists(st.builds(learned, WORDS, WORDS, st.booleans()), max_size=6)
THRESHOLDS = st.sampled_from([0.0, 0.3, 0.5, 0.8, 1.0])


@given(VOCABULARIES, PAIRS, THRESHOLDS, st.data())
def test_a_query_of_known_words_is_never_changed(words, pairs, threshold, data):
    query = " ".join(data.draw(st.lists(st.sampled_from(sorted(words)), max_size=5))) if words else ""
    assert corrected(query, words, pairs, threshold) == query


def plain_osa(a: str, b: str) -> int:
    """Optimal string alignment by its recurrence."""
    rows = [[max(i, j) if not i or not j else 0 for j in range(len(b) + 1)] for i in range(len(a) + 1)]
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            steps = [rows[i - 1][j] + 1, rows[i][j - 1] + 1, rows[i - 1][j - 1] + (a[i - 1] != b[j - 1])]
            if i > 1 and j > 1 and a[i - 1] == b[j - 2] and a[i - 2] == b[j - 1]:
                steps.append(rows[i - 2][j - 2] + 1)
            rows[i][j] = min(steps)
    return rows[-1][-1]


@given(
    st.text("xyzw", min_size=4, max_size=12),
    st.dictionaries(st.text("xyzw", min_size=1, max_size=14), st.integers(1, 3)),
)
@pytest.mark.parametrize("threshold", [0.5, 0.6, 0.75, 0.8, 0.9])
def test_the_store_word_found_is_the_best_of_all_by_a_distance_computed_plainly(threshold, word, words):
    alike = {other: 1 - plain_osa(word, other) / max(len(word), len(other)) for other in words}
    reached = [other for other in words if alike[other] >= threshold - 1e-9]
    best = min(reached, key=lambda other: (-alike[other], -words[other], other), default=word)
    same_stem = any(terms_of(other) == terms_of(word) for other in reached)
    assert corrected(word, words, threshold=threshold) == (word if word in words or same_stem else best)


QUERIES = st.one_of(
    st.lists(WORDS | WORDS.map(str.title), max_size=6).map(" ".join),
    st.text(st.sampled_from("abcdABC é.,_()/-`'1ßǰİ\u0301"), max_size=40),
    st.text(max_size=40),
)


@given(QUERIES, VOCABULARIES | st.dictionaries(st.text(max_size=9), st.integers(1, 5)), PAIRS, THRESHOLDS)
def test_correcting_again_changes_nothing(query, words, pairs, threshold):
    once = correct(query, Vocabulary(words), pairs, config(threshold))
    assert correct(once.query, Vocabulary(words), pairs, config(threshold)) == CorrectedQuery(once.query)
    for one in once.corrections:
        assert 0 <= one.similarity <= 1
        assert 0 <= one.start < one.end <= len(query)
