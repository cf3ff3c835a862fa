"""Query variants: typed, from the dictionary, or by feedback (docs/internals/specification.md, "expansion")."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cems_workbench.config.sections.gathering import ExpansionConfig
from cems_workbench.errors import InputError
from cems_workbench.pipeline.understanding import (
    FEEDBACK_WORDS,
    SHIPPED,
    expansions,
    feedback_words,
    read_dictionary,
    replaced,
    write_dictionary,
)
from cems_workbench.records import Memory

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
    variants, said = expansions(query, config, typed, SHIPPED if dictionary is None else dictionary, found)
    assert {variant.kind for variant in variants} <= {"expansion"}
    return [variant.text for variant in variants], said


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
        ["3 expansions were found; the first 2 are used"],
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
