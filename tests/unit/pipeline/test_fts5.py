"""FTS5's own table and the published formula are the oracle: Python's sqlite3, whichever SQLite it has."""

from __future__ import annotations

import math
import random
import sqlite3
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from cems_workbench.config.sections.gathering import Fts5Columns, Fts5List
from cems_workbench.errors import InputError
from cems_workbench.pipeline.lexical_engines import Document
from cems_workbench.records import Memory
from cems_workbench.store import Filter
from workbench_engines import fts5
from workbench_engines.fts5 import Fts5Index, Row, match_query

WORDS = [f"word{number}" for number in range(30)]


def texts(count: int, columns: int = 1) -> list[list[str]]:
    rng = random.Random(7)
    frequent = [1 / (number + 1) for number in range(len(WORDS))]
    return [
        [" ".join(rng.choices(WORDS, frequent, k=rng.randint(1, 20))) for _ in range(columns)] for _ in range(count)
    ]


def index(rows: list[list[str]], weights: tuple[float, ...] = (1.0,), chunks: int = 0) -> Fts5Index:
    kept = (
        Row(f"m{i // chunks if chunks else i}", i % chunks if chunks else None, "ab"[i % 2], "personal")
        for i in range(len(rows))
    )
    return Fts5Index(zip(kept, rows, strict=True), weights)


def asked_of_sqlite(rows: list[list[str]], weights: tuple[float, ...], query: str) -> list[tuple[str, float]]:
    """(id, -bm25) from a table that keeps its texts, best first, equal scores by row."""
    names = ", ".join(f"c{i}" for i in range(len(weights)))
    with sqlite3.connect(":memory:") as table:
        table.execute(f"CREATE VIRTUAL TABLE t USING fts5({names})")
        table.executemany(f"INSERT INTO t VALUES ({', '.join('?' * len(weights))})", rows)
        found = table.execute(
            f"SELECT rowid, bm25(t, {', '.join(map(str, weights))}) FROM t WHERE t MATCH ? ORDER BY 2, 1", (query,)
        ).fetchall()
    return [(f"m{row - 1}", -score) for row, score in found]


@pytest.mark.parametrize("weights", [(1.0,), (4.0, 1.0, 0.5)])
@pytest.mark.parametrize("query", ["word0 OR word9 OR word29", "word3 AND word0", '"word1 word0"', "word1*"])
def test_score_is_that_of_the_engine_to_the_last_bit(weights: tuple[float, ...], query: str) -> None:
    rows = texts(300, len(weights))
    found = index(rows, weights).search(query, 1_000)
    assert [(memory_id, score) for memory_id, score, _ in found.hits] == asked_of_sqlite(rows, weights, query)
    assert found.rows == len(found.hits) > 0


def test_score_follows_the_formula_of_the_documentation() -> None:
    rows = texts(200)
    lists = [text.split() for (text,) in rows]
    mean = sum(map(len, lists)) / len(lists)
    asked = ["word2", "word0", "word17"]

    def score(words: list[str]) -> float:
        total = 0.0
        for word in asked:
            n = sum(word in each for each in lists)
            idf = max(math.log((len(lists) - n + 0.5) / (n + 0.5)), 1e-6)
            tf = words.count(word)
            total += idf * tf * 2.2 / (tf + 1.2 * (0.25 + 0.75 * len(words) / mean))
        return total

    for memory_id, found, _ in index(rows).search(" OR ".join(asked), 1_000).hits:
        assert found == pytest.approx(score(lists[int(memory_id[1:])]), rel=1e-12)


def test_cut_by_row_keeps_the_first_rows_and_names_the_best_that_it_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = texts(300)
    table = index(rows)
    every = table.search("word4", 1_000)
    found = table.search("word4", 20, "row")
    first = sorted((hit for hit in every.hits), key=lambda hit: int(hit[0][1:]))[:20]
    assert sorted(found.hits) == sorted(first)
    assert [score for _, score, _ in found.hits] == sorted((score for _, score, _ in first), reverse=True)
    assert all(a[1] > b[1] or int(a[0][1:]) < int(b[0][1:]) for a, b in pairwise(found.hits))
    best = every.hits[0]
    assert (found.rows, found.more) == (every.rows, False)
    assert found.missed == (None if best in found.hits else best[:2])
    monkeypatch.setattr(fts5, "MOST_COUNTED", 30)
    more = table.search("word4", 20, "row")
    assert (more.rows, more.more, more.missed, more.hits) == (30, True, None, found.hits)


def test_depth_counts_memories_that_pass_the_filter() -> None:
    rows = texts(400)
    chunked = index(rows, chunks=4)
    found = chunked.search("word0", 30).hits
    assert len({memory_id for memory_id, _, _ in found}) == 30
    whole = [
        (f"m{int(key[1:]) // 4}", score, int(key[1:]) % 4) for key, score in asked_of_sqlite(rows, (1.0,), "word0")
    ]
    assert found == whole[: len(found)]
    passing = index(rows).search("word0", 30, where=Filter("a", only_project=True)).hits
    asked = [pair for pair in asked_of_sqlite(rows, (1.0,), "word0") if int(pair[0][1:]) % 2 == 0]
    assert [(memory_id, score) for memory_id, score, _ in passing] == asked[:30]


def query(text: str, **changes: Any) -> str:
    return match_query(text, Fts5List(**changes))[0]


def test_query_is_reduced_as_the_parameters_say(tmp_path: Path) -> None:
    file = tmp_path / "words.ts"
    file.write_text("const STOP = new Set(['the', 'is'])", encoding="utf-8")
    text = "The Gdańsk snake_case is NOT back or the Back?"
    assert query(text, outside_ascii="blanked", stop_words=str(file)) == "Gda OR sk OR snake OR case OR back OR Back"
    assert query(text, outside_ascii="blanked", max_words=3) == "The OR Gda OR sk"
    assert query(text, match="all", stop_words=str(file)) == '"Gdańsk" AND "snake_case" AND back AND "Back?"'
    assert query("roll-back v1.2", match="all", prefix=True) == '"roll-back"* AND "v1.2"*'
    assert query("v1.2", match="all", prefix=True, split_at_dots=True) == '"v1"* AND "2"*'
    assert query('say "no" or not', operator_words="searched") == 'say OR """no""" OR "or" OR "not"'
    assert match_query("¿? _ or", Fts5List()) == ("", 0)


def test_query_of_odd_signs_is_searched_and_a_refused_one_is_an_input_error() -> None:
    table = index([["it's a c++ -word* (near) ^caret: {x}"], ["other"]])
    for text in ("c++", "-word*", "(near)", "^caret:", "it's", '"', "{x}"):
        for prefix in (False, True):
            asked = query(text, prefix=prefix, operator_words="searched")
            assert (table.search(asked, 5).rows == 1) if asked else text == '"'
    with pytest.raises(InputError, match="FTS5 refuses"):
        table.search("AND AND", 5)


def test_porter_finds_the_stem_and_unicode61_the_letters() -> None:
    row = Row("m", None, None, "personal")
    assert Fts5Index([(row, ["Releases in Zürich"])], (1.0,), "porter").search("release", 5).hits
    plain = Fts5Index([(row, ["Releases in Zürich"])], (1.0,))
    assert not plain.search("release", 5).hits
    assert plain.search("zurich", 5).hits


def test_every_column_of_the_section_has_a_text() -> None:
    memory = Memory("m1", "the content", title="a title", tags=("one", "two"), category="c", project="p", author="a")
    found = {name: fts5._piece(name, Document(memory, None, "as searched")) for name in Fts5Columns.model_fields}
    assert found == {
        "text": "as searched",
        "id": "m1",
        "content": "the content",
        "title": "a title",
        "tags": "one two",
        "category": "c",
        "project": "p",
        "author": "a",
    }
