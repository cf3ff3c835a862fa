"""Words that a lexical engine gets of a query, and lists of stop words in the user's own files."""

from __future__ import annotations

from pathlib import Path

import pytest

from cems_workbench.errors import InputError
from cems_workbench.store.search.lexical.tokenizer import query_words, stop_list

TYPESCRIPT = """
// words that don't count
const STOP_WORDS: Set<string> = new Set([
  'A', "the", // it's short
  'don\\'t', /* "not one" */
]);
const TABLE = { "a": "b", "c": "d" };
greet("x", "y");
"""
PYTHON = """
# it's a comment with "quotes"
SMALL: frozenset[str] = frozenset({"a", "an"})
LARGE = set('''the of
and'''.split())
"""


@pytest.fixture
def write(tmp_path: Path):
    def written(name: str, text: str) -> str:
        (tmp_path / name).write_text(text, "utf-8")
        return str(tmp_path / name)

    return written


def test_signs_outside_ascii_are_blanked_so_that_a_word_may_become_two() -> None:
    assert query_words("Gdańsk, snake_case?", outside="blanked") == ["Gda", "sk", "snake", "case"]


def test_signs_outside_ascii_are_removed_so_that_two_words_may_become_one() -> None:
    found = query_words("src/main.py it's é top-level", outside="removed", also="-_", min_characters=2)
    assert found == ["srcmainpy", "its", "top-level"]


def test_stop_words_and_repeats_go_before_the_first_words_are_counted() -> None:
    words = query_words("The cat the dog Cat bird", stop_words={"the"}, distinct=True, max_words=3)
    assert words == ["cat", "dog", "bird"]
    assert query_words("The cat The dog", max_words=3) == ["The", "cat", "The"]


def test_stop_list_of_a_plain_file_leaves_out_comments(write) -> None:
    assert stop_list(write("words.txt", "# head\nthe\nOf and\n")) == {"the", "of", "and"}
    assert stop_list(None) == frozenset()


def test_stop_list_of_source_code_is_what_one_name_is_assigned(write) -> None:
    assert stop_list(write("words.ts", TYPESCRIPT)) == {"a", "the", "don't"}
    file = write("words.py", PYTHON)
    assert stop_list(f"{file}#SMALL") == {"a", "an"}
    assert stop_list(f"{file}#LARGE") == {"the", "of", "and"}
    assert stop_list(write("words.json", '{"en": ["The", "a"], "version": 2}')) == {"the", "a"}


def test_stop_list_says_what_to_do_in_one_line(write, tmp_path: Path) -> None:
    file = write("words.py", PYTHON)
    for name, said in {
        file: "2 lists of quoted words; add #NAME, such as LARGE, SMALL",
        f"{file}#SMAL": "did you mean SMALL",
        write("none.ts", "const x = 1;"): "no list of quoted words",
        f"{write('plain', 'the')}#X": "plain list",
        str(tmp_path / "absent"): "no such stop words",
        write("empty", "# nothing\n"): "has no words",
    }.items():
        with pytest.raises(InputError, match=said) as refused:
            stop_list(name)
        assert "\n" not in str(refused.value)


def test_stop_list_follows_a_changed_file(write, tmp_path: Path) -> None:
    import os

    file = write("words.txt", "the")
    assert stop_list(file) == {"the"}
    write("words.txt", "of")
    os.utime(file, ns=(1, 1))
    assert stop_list(file) == {"of"}
