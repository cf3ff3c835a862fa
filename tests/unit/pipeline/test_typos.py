"""Typo correction against the store's words, and expansion (docs/internals/specification.md)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cems_workbench.config.sections import ExpansionConfig, TypoCorrection
from cems_workbench.errors import InputError
from cems_workbench.pipeline.evidence import Variant
from cems_workbench.pipeline.understanding import (
    FEEDBACK_WORDS,
    SHIPPED,
    CorrectedQuery,
    Correction,
    Variants,
    add_expansions,
    correct,
    feedback_words,
    read_dictionary,
    replaced,
    write_dictionary,
)
from cems_workbench.records import Memory
from cems_workbench.store import LearnedPair, Vocabulary
from cems_workbench.store.search.tokenizer import terms_of

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


ACE = "is this wired up and working in production"
ACE_EXPANDED = "is this architecture system integration layer connected storage up and working in production"


def hits(*documents: tuple[str, float]) -> list[tuple[Memory, float]]:
    return [(Memory(f"m{i}", content), score) for i, (content, score) in enumerate(documents)]


def expanded(
    backend: Any,
    query: str = "zebra",
    *,
    typed: Sequence[str] = (),
    found: Sequence[tuple[Memory, float]] = (),
    max_expansions: int = 3,
    dictionary: dict[str, str] | None = None,
) -> tuple[list[str], list[str]]:
    config = ExpansionConfig(backend=backend, max_expansions=max_expansions)
    made = Variants([Variant(query)])
    add_expansions(made, config, typed, lambda: SHIPPED if dictionary is None else dictionary, lambda: found)
    assert {variant.kind for variant in made.found[1:]} <= {"expansion"}
    return [variant.text for variant in made.found[1:]], made.said


def test_the_example_of_ace_gives_its_very_words() -> None:
    assert replaced(ACE, SHIPPED) == [ACE_EXPANDED]
    assert expanded("dictionary", ACE) == ([ACE_EXPANDED], [])


@pytest.mark.parametrize(
    ("query", "variants"),
    [
        ("Wired?", ["X?"]),
        ("rewired wireds", []),
        ("wired wired", ["X wired", "wired X"]),
        ("(wired), up", ["(X), up", "(wired), Y"]),
        ("hard-wired", []),
    ],
)
def test_whole_words_are_replaced_one_at_a_time_whatever_their_case(query: str, variants: list[str]) -> None:
    assert replaced(query, {"WIRED": "X", "up": "Y"}) == variants


def test_an_entry_is_text_and_not_a_pattern() -> None:
    assert replaced("a c++ b", {"c": r"\1$&"}) == [r"a \1$&++ b"]


def test_rm3_by_hand() -> None:
    """stripes 2/4·3/4 = 0.375; grass 1/4·3/4 + 1/4·1/4 = 0.25; lions and rivers 1/4·1/4 = 0.0625, by name."""
    found = hits(("zebra stripes stripes grass", 3.0), ("zebra grass rivers lions", 1.0))
    assert feedback_words("zebra", found) == ["stripes", "grass", "lions", "rivers"]


def test_rm3_follows_the_scores_of_the_documents() -> None:
    """grass 1/4·1/4 + 1/4·3/4 = 0.25; lions and rivers 1/4·3/4 = 0.1875; stripes 2/4·1/4 = 0.125."""
    found = hits(("zebra stripes stripes grass", 1.0), ("zebra grass rivers lions", 3.0))
    assert feedback_words("zebra", found) == ["grass", "lions", "rivers", "stripes"]


def test_rm3_divides_by_the_length_of_the_document() -> None:
    """long: 1/8·1/2 = 0.0625 each; brief 1/2·1/2 = 0.25."""
    found = hits(("zebra alpha bravo charlie delta echo foxtrot golf", 1.0), ("zebra brief", 1.0))
    assert feedback_words("zebra", found)[0] == "brief"


def test_words_of_one_stem_are_counted_together_and_shown_in_the_form_seen_most() -> None:
    assert feedback_words("zebra", hits(("deploys deploying deploys kafka kafka", 1.0))) == ["deploys", "kafka"]


def test_feedback_leaves_out_the_query_in_any_form_stopwords_numbers_and_crumbs() -> None:
    assert feedback_words("zebra", hits(("the zebras are 2024 ab kafka", 1.0))) == ["kafka"]


def test_feedback_adds_a_bounded_number_of_words_to_the_query() -> None:
    words = [f"{letter * 2}word" for letter in "abcdefghijkl"]
    texts, said = expanded("feedback", found=hits((" ".join(words), 1.0)))
    assert texts == [f"zebra {' '.join(sorted(words)[:FEEDBACK_WORDS])}"] and said == []


@pytest.mark.parametrize("found", [[], hits(("zebra", 1.0)), hits(("kafka", 0.0))])
def test_feedback_that_finds_nothing_says_so(found: list[tuple[Memory, float]]) -> None:
    assert expanded("feedback", found=found) == (
        [],
        ["feedback found no further word: the query has too few lexical hits"],
    )


def test_manual_takes_what_was_typed_once_and_without_the_query_itself() -> None:
    assert expanded("manual", typed=[" a ", "zebra", "", "b", "a"]) == (["a", "b"], [])
    assert expanded("manual") == ([], ["expansion is manual, and nothing was typed"])


def test_a_dictionary_without_the_words_says_so() -> None:
    assert expanded("dictionary") == ([], ["no word of the query is in the expansion dictionary"])


@pytest.mark.parametrize("backend", ["none", "llm"])
def test_other_backends_make_none_here(backend: str) -> None:
    assert expanded(backend, ACE, typed=["x"]) == ([], [])


def test_no_more_than_max_expansions_are_used_and_the_rest_is_said() -> None:
    assert expanded("manual", typed=["a", "b", "c"], max_expansions=2) == (
        ["a", "b"],
        ["3 expansion variants were found; the first 2 are used"],
    )


def test_without_a_file_the_dictionary_is_the_shipped_one(tmp_path: Path) -> None:
    assert read_dictionary(tmp_path / "expansions.yaml") == dict(SHIPPED)


@pytest.mark.parametrize("content", ["", "# nothing\n", "{}"])
def test_an_empty_file_is_an_empty_dictionary(tmp_path: Path, content: str) -> None:
    path = tmp_path / "expansions.yaml"
    path.write_text(content)
    assert read_dictionary(path) == {}


@pytest.mark.parametrize(
    "content",
    [
        b"a: [1",
        b"- a\n- b\n",
        b"just text",
        b"a: 1\n",
        b"1: a\n",
        b"a: [x]\n",
        b"yes: a\n",
        b"a: \xff\xfe\n",
        b"a: \x00",
        b"!!python/object/apply:os.system ['true']",
    ],
)
def test_a_broken_file_is_refused_with_its_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "expansions.yaml"
    path.write_bytes(content)
    with pytest.raises(
        InputError, match=r"expansions\.yaml: .*(mapping of word to replacement|readable as YAML|not UTF-8)"
    ):
        read_dictionary(path)


def test_a_folder_in_its_place_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Is a directory"):
        read_dictionary(tmp_path)


ENTRIES = st.dictionaries(
    st.text(st.characters(codec="utf-8"), min_size=1).map(str.strip).filter(bool),
    st.text(st.characters(codec="utf-8"), min_size=1).map(str.strip).filter(bool),
    max_size=4,
)


@given(ENTRIES)
def test_what_is_written_is_read_again(tmp_path_factory: pytest.TempPathFactory, entries: dict[str, str]) -> None:
    path = tmp_path_factory.getbasetemp() / "round_trip.yaml"
    write_dictionary(path, entries)
    assert read_dictionary(path) == entries
    assert not path.with_suffix(".partial").exists()
