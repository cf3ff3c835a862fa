"""PostgreSQL's lexemes, queries, ranks and order of ties, as the server gave them."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pg_text_search
from pg_text_search.inverted_index import full_order, limited_order
from pg_text_search.parser import stem, tokens
from pg_text_search.ts_rank import (
    Phrase,
    Term,
    TsQueryError,
    lexemes,
    matches,
    or_query,
    ts_query,
    ts_rank,
)
from tests.conftest import ROOT


def kinds(text: str) -> list[str]:
    return [f"{kind} {token}" for kind, token in tokens(text)]


def test_a_compound_stands_before_its_parts() -> None:
    assert kinds("a-b1-c") == ["numhword a-b1-c", "hword_asciipart a", "hword_numpart b1", "hword_asciipart c"]


def test_a_url_stands_before_its_host_and_path() -> None:
    assert kinds("https://foo.bar:80/baz?x=1") == [
        "protocol https://",
        "url foo.bar:80/baz?x=1",
        "host foo.bar:80",
        "url_path /baz?x=1",
    ]


def test_numbers_by_what_they_look_like() -> None:
    assert kinds("7 -7 1.5 -1.5 1.2.3 -1.2.3 1e5 1.5e-3 7a 2024-01-02 10/20") == [
        *(
            "uint 7",
            "int -7",
            "float 1.5",
            "float -1.5",
            "version 1.2.3",
            "version 1.2.3",
            "sfloat 1e5",
            "sfloat 1.5e-3",
        ),
        *("numword 7a", "uint 2024", "int -01", "int -02", "file 10/20"),
    ]


def test_a_hyphen_before_a_number_is_a_minus_unless_a_compound_ends_there() -> None:
    assert kinds("HBR-4417 foo-bar-12") == [
        *("asciiword HBR", "int -4417"),
        *("asciihword foo-bar", "hword_asciipart foo", "hword_asciipart bar", "uint 12"),
    ]


def test_one_letter_after_the_dot_makes_a_file_and_two_make_a_host() -> None:
    assert kinds("a.b a.bc stage.py e.g. v1.2") == ["file a.b", "host a.bc", "host stage.py", "file e.g", "file v1.2"]


def test_an_underscore_parts_words_unless_a_host_comes_of_it() -> None:
    assert kinds("snake_case my_stage.py") == ["asciiword snake", "asciiword case", "host my_stage.py"]


def test_files_by_slashes_and_dots() -> None:
    assert kinds("/usr/bin/x.py CI/CD a/../b ../x x/ é/x") == [
        *("file /usr/bin/x.py", "file CI/CD", "file a/../b", "file /x", "asciiword x", "word é", "file /x"),
    ]


def test_an_email_needs_a_host() -> None:
    assert kinds("a.b@c.de a@b 1é@b.cc") == ["email a.b@c.de", "asciiword a", "asciiword b", "email 1é@b.cc"]


def test_tags_and_entities_are_tokens_and_scripts_are_not_read() -> None:
    assert kinds('<a href="x>y">b</a> &amp; <script>c</script> <1> a<b') == [
        *('tag <a href="x>y">', "asciiword b", "tag </a>", "entity &amp;", "tag <script>", "tag </script>", "uint 1"),
        *("asciiword a", "asciiword b"),
    ]


def test_letters_beyond_ascii_make_words_and_emoji_part_them() -> None:
    assert kinds("naïve 日本語 foo😀bar é1 föö-bar") == [
        *("word naïve", "word 日本語", "asciiword foo", "asciiword bar", "numword é1"),
        *("hword föö-bar", "hword_part föö", "hword_asciipart bar"),
    ]


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        *(("universities", "univers"), ("organized", "organ"), ("geologist", "geologist"), ("evening", "even")),
        *(("vying", "vy"), ("added", "add"), ("hoping", "hope"), ("hopping", "hop"), ("skies", "sky")),
        *(("generously", "generous"), ("ties", "tie"), ("cries", "cri"), ("gas", "gas"), ("proceeds", "proceed")),
        *(("saying", "say"), ("relational", "relat"), ("controll", "control"), ("é", "é")),
    ],
)
def test_stems_are_those_of_snowball_before_version_3(word: str, expected: str) -> None:
    assert stem(word) == expected


def test_stop_words_leave_no_lexeme_but_take_a_position() -> None:
    assert lexemes("The cats and the cat") == {"cat": (2, 5)}


def test_tags_entities_and_protocols_take_no_position() -> None:
    assert lexemes("<b>x</b> &amp; http://y") == {"x": (1,), "y": (2,)}


def test_numbers_and_hosts_are_kept_unstemmed_in_lower_case() -> None:
    assert lexemes("Reports.PY -4417 ABC1s") == {"reports.py": (1,), "-4417": (2,), "abc1s": (3,)}


def test_a_lexeme_has_255_positions_and_the_last_position_is_16383() -> None:
    assert lexemes("x " * 300)["x"] == tuple(range(1, 256))
    assert lexemes("a1 " * 16_390 + "z z")["z"] == (16_383,)


def test_a_token_over_2046_bytes_is_left_out_and_takes_no_position() -> None:
    assert lexemes("x" * 2_047 + " b") == {"b": (1,)}
    assert lexemes("é" * 1_023 + " b")["b"] == (2,)


def test_lower_case_goes_letter_by_letter() -> None:
    assert set(lexemes("ΑΣ İSTANBUL")) == {"ασ", "istanbul"}


def test_the_query_is_the_or_of_the_lexemes_parsed_again() -> None:
    assert str(or_query("Which HBR-4417?")) == "'-4417' | 'hbr'"


def test_a_compound_is_asked_for_as_a_phrase_of_itself_and_its_parts() -> None:
    assert str(or_query("foo-bar/baz")) == "'/baz' | 'bar' | 'foo' | 'foo-bar' <-> 'foo' <-> 'bar'"


def test_stop_words_inside_a_compound_widen_the_phrase() -> None:
    assert str(ts_query("to-the-x-a-y")) == "'to-the-x-a-i' <3> 'x' <2> 'y'"


def test_a_query_of_stop_words_finds_nothing() -> None:
    query = or_query("what is the")
    assert query.node is None
    assert not matches(lexemes("what is the"), query)


@pytest.mark.parametrize("query", ["foo.bar:80", "http://a.bc/d?e=f&g=(h)"])
def test_a_lexeme_that_reads_as_broken_syntax_is_refused_as_the_server_refuses_it(query: str) -> None:
    with pytest.raises(TsQueryError, match="PostgreSQL reads no query"):
        or_query(query)


def test_flags_after_a_colon_are_weights_and_prefixes() -> None:
    assert ts_query("x:*b").node == Term("x", True, "B")
    assert not matches(lexemes("xy"), ts_query("x:*b"))
    assert matches(lexemes("xy"), ts_query("x:*"))


def test_or_and_not_bind_as_ever() -> None:
    query = ts_query("a1 & !b1 | (c1 | the) & d1")
    assert [matches(lexemes(text), query) for text in ("a1", "a1 b1", "c1", "c1 d1")] == [True, False, False, True]


def test_rank_of_one_term_by_how_often_it_stands() -> None:
    # 0.1 / (π²/6), and 0.1 · (1 + 1/4) / (π²/6)
    assert ts_rank(lexemes("cat"), or_query("cat")) == pytest.approx(0.06079271, abs=1e-8)
    assert ts_rank(lexemes("cat cats"), or_query("cat")) == pytest.approx(0.07599089, abs=1e-8)


def test_rank_is_shared_among_the_terms_of_the_query() -> None:
    assert ts_rank(lexemes("cat"), or_query("cat dog")) == pytest.approx(0.06079271 / 2, abs=1e-8)
    assert ts_rank(lexemes("cat dog"), or_query("cat dog")) == pytest.approx(0.06079271, abs=1e-8)


def test_rank_is_a_single_precision_number() -> None:
    rank = ts_rank(lexemes("a1 a1 b1"), or_query("a1 b1 c1"))
    assert rank == float(np.float32(rank))


def test_rank_of_a_phrase_is_by_distance() -> None:
    query = ts_query("a-wa")
    assert query.node == Phrase((Term("a-wa"), Term("wa")), (0, 2))
    # sqrt(0.1 · 0.1 / (1.005 + 0.05 · e^(2/1.5 - 2)))
    assert ts_rank(lexemes("a-wa"), query) == pytest.approx(
        0.1 / math.sqrt(1.005 + 0.05 * math.exp(2 / 1.5 - 2)), abs=1e-6
    )
    assert matches(lexemes("a-wa"), query)
    assert not matches({"a-wa": (1,), "wa": (4,)}, query)


def test_reading_stops_at_a_quote_still_open_where_the_text_ends_with_an_escape() -> None:
    assert kinds('x <a b="c\\d') == ["asciiword x"]
    assert kinds('x <a b="cd') == ["asciiword x", "asciiword a", "asciiword b", "asciiword cd"]


def test_a_host_ends_at_the_last_dot_with_letters_in_a_chain_of_labels() -> None:
    assert kinds("a_b.cc-d_e.f") == ["host a_b.cc", "asciiword d", "file e.f"]
    assert kinds("a_" * 3 + "b.com") == ["host a_a_a_b.com"]


TWELVE = np.array([1, 2, 1, 0, 2, 1, 2, 0, 1, 1, 2, 0], np.float32)
SCORES = st.lists(st.integers(0, 5), max_size=120).map(lambda scores: np.array(scores, np.float32))


@given(SCORES, st.integers(0, 60))
def test_both_orders_are_by_score_and_name_every_place_once(scores, k) -> None:
    for order in (full_order(scores, k), limited_order(scores, k)):
        assert len(order) == len(set(order)) == min(k, len(scores))
        assert sorted(scores, reverse=True)[:k] == [scores[place] for place in order]


@given(SCORES, st.integers(1, 60))
def test_fewer_of_the_full_order_are_its_beginning(scores, k) -> None:
    assert full_order(scores, k) == full_order(scores, len(scores))[:k]


def test_few_rows_and_rows_in_order_keep_their_places_among_equals() -> None:
    assert full_order(np.array([1, 2, 1, 2], np.float32), 4) == [1, 3, 0, 2]
    assert full_order(np.ones(1_000, np.float32), 3) == [0, 1, 2]


def test_equal_rows_fall_as_in_the_server_s_quicksort() -> None:
    assert full_order(TWELVE, 12) == [4, 1, 6, 10, 0, 2, 5, 8, 9, 11, 7, 3]


def test_equal_rows_under_a_limit_fall_as_in_the_server_s_heap() -> None:
    assert limited_order(TWELVE, 4) == [4, 6, 1, 10]


README = Path(str(pg_text_search.__file__)).with_name("README.md").read_text(encoding="utf-8")
LOADED = """
import sys
print(*sorted(name for name in sys.modules if name.startswith("cems_workbench")))
"""


def test_the_example_runs_as_it_says_without_the_rest_of_the_project() -> None:
    example = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    assert example
    ran = subprocess.run(
        [sys.executable, "-c", example[1] + LOADED], cwd=ROOT / "plugins", capture_output=True, text=True, check=True
    )
    *printed, loaded = ran.stdout.splitlines()
    assert printed == [
        "{'move': (1,), 'box': (2,), 'attic': (6,)}",
        "0.0607927106320858",
        "['They move in on the ninth.', 'Moving boxes are in the attic.']",
    ]
    assert loaded == ""
