"""Lists that replay makes of others, lists of chunks, and those of SQLite's FTS5, by hand."""

from __future__ import annotations

import math
import random
import sqlite3
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cems_workbench.config import PipelineConfig, preset, with_values
from cems_workbench.config.sections import Fts5Columns, Fts5List, Fts5Shares
from cems_workbench.errors import InputError
from cems_workbench.pipeline import Evidence, Trace, bundle_from, evidence_from, replay
from cems_workbench.pipeline.evidence import Hit, RankedList, Variant
from cems_workbench.pipeline.lexical_engines import Document
from cems_workbench.pipeline.redact import redacted
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
from cems_workbench.records import Chunk, Memory, Relation
from cems_workbench.store import Filter
from workbench_engines import fts5
from workbench_engines.fts5 import Fts5Index, Row, Shares, key_words, match_query, path_of

NOW = datetime(2026, 11, 22, tzinfo=UTC)
L2, B, A, L0, C = 0.4 / 61 + 0.6 / 62, 0.4 / 64 + 0.6 / 61, 0.4 / 62, 0.4 / 63, 0.4 / 65 + 0.6 / 63


def memory(name: str, **values: Any) -> Memory:
    return Memory(name, f"{name} " * 20, created_at=NOW, **values)


def evidence(query: str = "where is it", relations: tuple[Relation, ...] = (), **changed: Memory) -> Evidence:
    memories = {name: memory(name) for name in "ABCL"} | changed
    vector = (Hit("L", 0.9, 2), Hit("A", 0.8), Hit("L", 0.7, 0), Hit("B", 0.6), Hit("C", 0.5))
    text = (Hit("B", 0.06), Hit("L", 0.04, 2), Hit("C", 0.04))
    return Evidence(
        query=query,
        memories=memories,
        variants=(Variant(query),),
        lists=(RankedList("vector:0", "vector", 0, vector), RankedList("ts_rank:0", "ts_rank", 0, text)),
        as_of=NOW,
        chunks={"L": tuple(Chunk("L", seq, text, 0) for seq, text in enumerate(("one", "two", "three is long")))},
        relations=relations,
        tokens={"A": (5,), "B": (7,), "C": (4,), "L": (100, 1, 1, 3)},
    )


def config(**changes: Any) -> PipelineConfig:
    plain = {
        "filter.min_score": None,
        "gap.ratio": 0.0,
        "adjust.time_decay.mode": "none",
        "lists.relations.enabled": False,
    }
    return with_values(
        preset("cems_head").config, plain | {key.replace("__", "."): value for key, value in changes.items()}
    )


def hybrid(trace: Trace) -> dict[str, tuple[int, float, int | None]]:
    """Of each memory in the hybrid list, cut to its depth and pool, its rank, score and chunk."""
    entries = [(row.memory_id, entry) for row in trace.stage("lists").rows for entry in row.lists if entry.kept]
    return {key: (entry.rank, entry.raw, entry.chunk) for key, entry in entries if entry.list == "hybrid:0"}


def test_a_memory_stands_in_the_nested_list_by_its_best_chunk() -> None:
    found = hybrid(replay(evidence(), config()))
    expected = {"L": (1, L2, 2), "B": (2, B, None), "C": (3, C, None), "A": (4, A, None)}
    assert {key: (rank, chunk) for key, (rank, _, chunk) in found.items()} == {
        key: (rank, chunk) for key, (rank, _, chunk) in expected.items()
    }
    for key, (_, score, _) in expected.items():
        assert found[key][1] == pytest.approx(score, abs=1e-14)


def test_the_share_the_depths_and_the_pool_are_replayed() -> None:
    by_meaning = hybrid(replay(evidence(), config(lists__hybrid__vector_weight=1.0)))
    assert sorted(by_meaning, key=lambda key: by_meaning[key][0]) == ["L", "A", "B", "C"]
    # depth 1: of each inner list the first 2 chunks count, and one memory is kept
    short = hybrid(replay(evidence(), config(lists__hybrid__depth=1, lists__hybrid__inner_factor=2.0)))
    assert {key: (rank, chunk) for key, (rank, _, chunk) in short.items()} == {"L": (1, 2)}
    # of the best two chunks, both are of one memory when meaning decides and two more are behind
    pooled = hybrid(
        replay(
            evidence(), config(lists__hybrid__depth=2, lists__hybrid__pool_factor=1.0, lists__hybrid__vector_weight=0.4)
        )
    )
    assert set(pooled) == {"L", "B"}


def reasons(trace: Trace) -> dict[str, str | None]:
    """Why the lists dropped a memory."""
    return {row.memory_id: row.reason for row in trace.stage("lists").rows if not row.kept}


def test_what_a_hybrid_list_leaves_out_is_told_its_place_there() -> None:
    alone = {"lists__ts_rank__enabled": False}
    # in the order L, B, C, A by their best chunks, of which L/0 is the last
    assert reasons(replay(evidence(), config(lists__hybrid__depth=2, **alone))) == {
        "C": "hybrid:0: rank 3 is past the depth 2",
        "A": "hybrid:0: rank 4 is past the depth 2",
    }
    pooled = config(lists__hybrid__depth=4, lists__hybrid__pool_factor=0.5, **alone)
    assert reasons(replay(evidence(), pooled)) == {
        "C": "hybrid:0: its chunk is 3rd, past the pool of 2",
        "A": "hybrid:0: its chunk is 4th, past the pool of 2",
    }
    shallow = config(lists__hybrid__depth=2, lists__hybrid__inner_factor=1.0, **alone)
    assert reasons(replay(evidence(), shallow)) == {
        "A": "hybrid:0: rank 3 is past the depth 2",
        "C": "hybrid:0: 5th by meaning, past the first 2 and 3rd by ts_rank, past the first 2",
    }
    rows = config(lists__hybrid__index_rows=1, **alone)
    assert reasons(replay(evidence(), rows)) == {"A": "hybrid:0: 2nd by meaning, past the first 1"}


def test_a_seed_past_the_depth_of_the_hybrid_list_is_none() -> None:
    short = config(lists__relations__enabled=True, lists__relations__seeds=2, lists__hybrid__depth=1)
    entries = replay(evidence(relations=EDGES), short).stage("lists").by_id["C"].lists
    assert [entry.list for entry in entries if entry.list.startswith("relations")] == ["relations"]  # of L, not of B


def test_an_index_that_returns_few_rows_leaves_the_rest_to_the_words() -> None:
    found = hybrid(replay(evidence(), config(lists__hybrid__index_rows=1)))
    assert {key: score for key, (_, score, _) in found.items()} == {
        "L": pytest.approx(L2),
        "B": pytest.approx(0.6 / 61),
        "C": pytest.approx(0.6 / 63),
    }


def test_aggregation_queries_go_deeper() -> None:
    some = {"lists__hybrid__depth": 1, "lists__hybrid__inner_factor": 4.0}
    assert len(hybrid(replay(evidence(), config(**some)))) == 1
    assert len(hybrid(replay(evidence("how many are there"), config(**some)))) == 4  # at least 50


def test_ts_rank_keeps_the_order_it_was_given_and_reads_so_many_chunks() -> None:
    trace = replay(evidence(), config(lists__ts_rank__chunk_depth=2))
    listed = {
        row.memory_id: entry for row in trace.stage("lists").rows for entry in row.lists if entry.list == "ts_rank:0"
    }
    assert [(key, listed[key].rank, listed[key].kept) for key in ("B", "L", "C")] == [
        ("B", 1, True),
        ("L", 2, True),
        ("C", 3, False),
    ]
    assert listed["L"].chunk == 2 and listed["L"].normalized == pytest.approx(0.04 / 0.06)


EDGES = (
    Relation("L", "C", "similar", 0.9),
    Relation("L", "A", "similar", 0.3),
    Relation("B", "C", "follows", 0.8),
    Relation("A", "C", "similar", 0.7),
)


def test_a_memory_counts_as_often_as_relations_lead_to_it() -> None:
    trace = replay(evidence(relations=EDGES), config(lists__relations__enabled=True, lists__relations__seeds=2))
    row = trace.stage("fusion").by_id["C"]
    terms = {term.list: (term.rank, term.base, term.bonus) for term in row.contributions}
    # seeds L and B, the first of the hybrid list; their edges in order: C, A, C
    assert terms["relations"] == (1, pytest.approx(0.5 / 61), 0.05)
    assert terms["relations:2"] == (3, pytest.approx(0.5 / 63), 0.02)
    assert terms["hybrid:0"] == (3, pytest.approx(2 / 63), 0.02)
    assert row.raw == pytest.approx(2 / 63 + 0.02 + 2 / 63 + 0.02 + 0.5 / 61 + 0.05 + 0.5 / 63 + 0.02)
    assert row.best_list_score == pytest.approx(
        0.9
    )  # the strength of the relation, above C's share of the best ts_rank


def test_seeds_follow_the_share() -> None:
    shared = config(lists__relations__enabled=True, lists__relations__seeds=2, lists__hybrid__vector_weight=1.0)
    terms = replay(evidence(relations=EDGES), shared).stage("fusion").by_id["C"].contributions
    assert [term.rank for term in terms if term.list.startswith("relations")] == [1, 3]  # of L and A now


def test_the_text_counted_is_the_one_that_scored_best() -> None:
    tokens = {row.memory_id: row.tokens for row in replay(evidence(relations=EDGES), config()).stage("assembly").rows}
    assert tokens == {"L": 3, "A": 5, "B": 7, "C": 4}
    related = replay(evidence(relations=(Relation("B", "L", "similar", 1.0),)), config(lists__relations__enabled=True))
    assert related.stage("assembly").by_id["L"].tokens == 100  # a relation brings the whole memory
    assert replay(evidence(), config(assembly__text="memory")).stage("assembly").by_id["L"].tokens == 100


def test_what_a_relation_found_is_as_old_as_its_update_and_has_no_feedback() -> None:
    old = replace(
        memory("C", relevant_count=9, noise_count=1),
        created_at=NOW - timedelta(days=120),
        last_accessed=NOW,
        updated_at=NOW - timedelta(days=60),
    )
    given = evidence(relations=(Relation("L", "C", "similar", 1.0),), C=old)
    decay = {"adjust__time_decay__mode": "hyperbolic"}
    related = replay(given, config(lists__relations__enabled=True, **decay)).stage("adjust").by_id["C"]
    assert related.factors == {"time_decay": 0.5}
    searched = replay(given, config(**decay)).stage("adjust").by_id["C"]
    assert searched.factors["time_decay"] == 1.0 and searched.factors["feedback"] == pytest.approx(0.85 + 0.3 * 0.9)


def test_one_list_is_left_alone_only_when_no_other_was_searched() -> None:
    empty = replace(evidence(), lists=(evidence().lists[0], RankedList("ts_rank:0", "ts_rank", 0, ())))
    assert not replay(empty, config()).stage("fusion").fields.bypassed
    assert replay(empty, config(lists__ts_rank__enabled=False)).stage("fusion").fields.bypassed
    assert replay(empty, config(fusion__single_list="bypass")).stage("fusion").fields.bypassed


@pytest.mark.parametrize(
    ("source_ref", "project", "factor"),
    [
        ("project:org/repo2:file", None, 1.3),
        (None, "org/repo2", 1.3),
        ("project:other", "org/repo", 0.8),
        ("notes.md", "org/repo", 0.9),
        (None, None, 0.9),
    ],
)
def test_projects_are_compared_as_source_references_begin(source_ref, project, factor):
    given = evidence(A=memory("A", source_ref=source_ref, project=project))
    asked = replace(given, project="org/repo")
    for seen, key in ((asked, "A"), (redacted(asked, b"k" * 32), "m-001")):
        assert replay(seen, config()).stage("adjust").by_id[key].factors["project"] == factor


def test_a_bundle_and_one_without_texts_give_the_same_numbers() -> None:
    given, shown = evidence("how many are there", EDGES), config(lists__relations__enabled=True)
    scores = [row.score for row in replay(given, shown).stage("assembly").kept]
    for again in (evidence_from(bundle_from(given)), redacted(given, b"k" * 32)):
        assert [row.score for row in replay(again, shown).stage("assembly").kept] == scores


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


def test_seed_overlap_lets_the_first_best_win() -> None:
    assert seed_overlap("cache number one. cache number two", "cache", 10) == "cache numb"


def test_seed_overlap_without_a_match_is_the_head() -> None:
    assert seed_overlap("First sentence. Second sentence", "zebra", 8) == "First se"


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


FTS5_WORDS = [f"word{number}" for number in range(30)]


def texts(count: int, columns: int = 1) -> list[list[str]]:
    rng = random.Random(7)
    frequent = [1 / (number + 1) for number in range(len(FTS5_WORDS))]
    return [
        [" ".join(rng.choices(FTS5_WORDS, frequent, k=rng.randint(1, 20))) for _ in range(columns)]
        for _ in range(count)
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


def test_key_words_are_parted_at_punctuation_and_lose_what_says_little() -> None:
    asked = "What is the Port_8080 ⌘ of DB-2's 42 api, the API?"
    assert key_words(asked, {"what", "the"}, 6) == ["port", "api"]
    assert key_words(asked, {"what", "the"}, 1) == ["port"]
    assert key_words("api", (), 6) == []
    assert (
        query("snake_case don't", parted_at="signs", match="all", operator_words="searched")
        == '"snake_case" AND don AND t'
    )


def test_shares_add_to_the_saturated_score() -> None:
    """bm25 0.25 is 0.2; 2 of 3 words asked, 4 words in the text, 1 in the path, 22 characters: 0.1375 of at most 0.18."""
    section = Fts5Shares(words=0.45, density=0.2, path=0.18, length=0.18)
    shares = Shares(section, ("red", "pie", "sky"), lambda key: path_of("notes/{id}.md", key))
    row = Row("Pie-1", None, None, "personal", "Red apples and red pie")
    assert shares.score(row, 0.25) == pytest.approx(0.2 + 0.45 * 2 / 3 + 0.2 * 2 / 4 + 0.18 + 22 / 160)
    assert shares.score(row, 9.0) == 1.0
    assert path_of("notes/{id}.md", "notes/b.md") == path_of("notes/{id}.md", "b") == "notes/b.md"


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
