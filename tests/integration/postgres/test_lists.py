"""Lists that libraries on PostgreSQL answer: by words, fused, and of LangGraph's two tables; what they say is compared with SQL by hand.

The answers of the libraries themselves are in the recorded stores.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np
import pytest
from source_server import Opened, taken

from cems_workbench.errors import InputError
from cems_workbench.sources.source import EngineQuery, Trial

if TYPE_CHECKING:
    from postgres_server import Connection


def written(*numbers: float) -> str:
    return json.dumps(list(numbers))


def answer(source, name, asked, text="", trial=None):
    query = EngineQuery(text, np.array([1.0, 0.0, 0.0], np.float32), {name: asked})
    (found,) = source.search(query, trial or Trial())
    assert (found.name, found.asked) == (name, asked)
    return [(hit.memory_id, hit.score) for hit in found.hits]


STORE = """
CREATE TABLE store (prefix text, key text, value jsonb NOT NULL, created_at timestamptz DEFAULT '2026-01-02', updated_at timestamptz,
    expires_at timestamptz, ttl_minutes int, PRIMARY KEY (prefix, key));
CREATE TABLE store_vectors (prefix text, key text, field_name text, embedding vector(3), PRIMARY KEY (prefix, key, field_name));
CREATE INDEX ON store_vectors USING hnsw (embedding vector_cosine_ops);
INSERT INTO store (prefix, key, value, expires_at) VALUES
    ('memories.jo', 'a', '{"content": "tea", "title": "Drink", "notes": [{"text": "green"}, {"text": "black"}], "user_id": 7}', NULL),
    ('memories.jo', 'b', '{"content": "milk"}', '2020-01-01'),
    ('memories.mira.work', 'c', '{"food": "rice", "rating": 2}', NULL),
    ('memoriesx', 'd', '{"content": "not below memories"}', NULL);
INSERT INTO store_vectors VALUES
    ('memories.jo', 'a', 'content', '[1,1,0]'), ('memories.jo', 'a', 'notes[*].text.0', '[0,0,1]'),
    ('memories.jo', 'a', 'notes[*].text.1', '[1,0,0]'), ('memories.jo', 'a', 'notes[*].text.2', '[0,1,0]'),
    ('memories.jo', 'b', 'content', '[0,1,0]'), ('memories.mira.work', 'c', '$', '[3,4,0]');
"""


def test_items_of_langgraph_have_their_texts_as_chunks(database: Connection, opened: Opened) -> None:
    database.execute(STORE)
    source = opened()
    probe = source.probe()
    assert (probe.kind, probe.memories, probe.vectors, probe.distance) == ("langgraph", 4, 6, "cosine")
    assert any(note.startswith("items past expires_at and not yet swept: 1;") for note in probe.notes)
    assert any(line.startswith("items without a vector: 1,") for line in probe.missing)
    assert any("value.rating" in note for note in probe.notes if note.startswith("not read"))
    batches, found = taken(source)
    tea = found["memories.jo/a"]
    assert (tea.memory.content, tea.memory.title, tea.memory.author) == ("tea", "Drink", "7")
    assert [(chunk.seq, chunk.text, chunk.start) for chunk in tea.chunks] == [
        (0, "tea", 0),
        (1, "green", None),
        (2, "black", None),
    ]
    milk = found["memories.jo/b"]
    assert milk.chunks == () and milk.vector is not None and milk.vector.tolist() == [0, 1, 0]
    assert (milk.memory.author, milk.memory.valid_until) == ("jo", datetime(2020, 1, 1, tzinfo=UTC))
    assert milk.memory.created_at == datetime(2026, 1, 2, tzinfo=UTC)
    rice = found["memories.mira.work/c"]
    assert (rice.memory.content, rice.memory.author) == ('{"food": "rice", "rating": 2}', "work")
    assert rice.chunks == () and rice.vector is not None
    problems = [(problem.memory_id, problem.field) for batch in batches for problem in batch.problems]
    assert problems == [("memories.jo/a", "notes[*].text.2"), ("memoriesx/d", "embedding")]
    database.execute("UPDATE store_vectors SET embedding = '[0,1,1]' WHERE key = 'c'")
    again = taken(source)[1]
    assert [id for id in found if found[id].marker != again[id].marker] == ["memories.mira.work/c"]


def test_namespace_user_and_expiry_of_langgraph_choose_items(database: Connection, opened: Opened) -> None:
    database.execute(STORE)
    half = 2**-0.5
    every = [("memories.jo/a", 1.0), ("memories.jo/a", half), ("memories.mira.work/c", 0.6)]
    assert answer(opened(), "vector", 3) == [(id, pytest.approx(score, abs=1e-6)) for id, score in every]
    (found,) = opened().search(EngineQuery("", np.array([1.0, 0.0, 0.0], np.float32), {"vector": 3}))
    # The chunk of the second note, that of the content, and an item with one text.
    assert [hit.seq for hit in found.hits] == [2, 0, None]
    assert {id for id, _ in answer(opened(namespace="memories"), "vector", 9)} == {
        "memories.jo/a",
        "memories.jo/b",
        "memories.mira.work/c",
    }
    assert {id for id, _ in answer(opened(namespace="memories", omit_expired="true"), "vector", 9)} == {
        "memories.jo/a",
        "memories.mira.work/c",
    }
    assert taken(opened(user="jo"))[1].keys() == {"memories.jo/b"}
    database.execute("UPDATE store SET prefix = '50%s' WHERE prefix = 'memoriesx'")
    database.execute("INSERT INTO store_vectors VALUES ('50%s', 'd', 'content', NULL)")
    assert (answer(opened(namespace="50%s"), "vector", 9), [*taken(opened(namespace="50%s"))[1]]) == ([], ["50%s/d"])
    mapped = {"author": "namespace.2", "project": "namespace"}
    of_label = taken(opened(mapped, user="mira"))[1]["memories.mira.work/c"].memory
    assert (of_label.author, of_label.project) == ("mira", "memories.mira.work")
    with pytest.raises(InputError, match="omit_expired= must be true or false, found 'yes'"):
        opened(omit_expired="yes")


NODES = """
CREATE TABLE data_notes (id bigserial PRIMARY KEY, text varchar NOT NULL, metadata_ json, node_id varchar, embedding vector(3),
    text_search_tsv tsvector GENERATED ALWAYS AS (to_tsvector('german', text)) STORED);
CREATE INDEX ON data_notes USING hnsw (embedding vector_cosine_ops);
INSERT INTO data_notes (text, metadata_, node_id, embedding) VALUES
    ('Häuser und Gärten', '{}', 'n1', '[0,1,0]'), ('ein Haus im Garten', '{}', 'n2', '[1,1,0]'), ('Autos', '{}', 'n3', '[1,0,0]');
"""


def test_nodes_of_llamaindex_are_ranked_by_any_word_in_their_language(database: Connection, opened: Opened) -> None:
    database.execute(NODES)
    source = opened()
    assert source.probe().lists == ("vector", "ts_rank", "source_hybrid")
    by_hand = "SELECT ts_rank(to_tsvector('german', %s), to_tsquery('german', 'haus|autos'))"
    (house,), (car,) = (
        database.execute(by_hand, (text,)).fetchone() or (0,) for text in ("ein Haus im Garten", "Autos")
    )
    words = answer(source, "ts_rank", 9, "haus, (autos)?")
    assert {id: score for id, score in words} == pytest.approx({"n1": house, "n2": house, "n3": car}, abs=1e-6)
    # Two of the vector list with cosines, then what only the other list has.
    fused = answer(source, "source_hybrid", 4, "gärten")
    assert [id for id, _ in fused] == ["n3", "n2", "n1"] and fused[0][1] == 1.0 and fused[2][1] < 0.1
    assert answer(source, "ts_rank", 9, "!!") == []


DOCUMENTS = """
CREATE TABLE notes (langchain_id uuid PRIMARY KEY DEFAULT gen_random_uuid(), content text, embedding vector(3), content_tsv tsvector,
    langchain_metadata json);
INSERT INTO notes (content, embedding, content_tsv) SELECT w, e::vector, to_tsvector('english', w) FROM (VALUES
    ('green tea', '[1,0,0]'), ('black tea', '[1,1,0]'), ('green apples', '[0,1,0]')) AS t (w, e);
"""


def test_documents_of_langchain_are_fused_as_its_config_says(database: Connection, opened: Opened) -> None:
    database.execute(DOCUMENTS)
    texts = {str(id): text for id, text in database.execute("SELECT langchain_id, content FROM notes").fetchall()}

    def fused(trial: Trial, **options: str) -> list[tuple[str, float]]:
        return [(texts[id], score) for id, score in answer(opened(**options), "source_hybrid", 3, "green apple", trial)]

    # Cosines 1, 0.71 and 0 scaled, and the only hit by words, each half.
    scaled = [("green tea", 0.5), ("green apples", 0.5), ("black tea", 0.5 * 2**-0.5)]
    assert fused(Trial()) == [(text, pytest.approx(score, abs=1e-6)) for text, score in scaled]
    ranks = [("green apples", 1 / 62 + 1 / 60), ("green tea", 1 / 60), ("black tea", 1 / 61)]
    expected = [(text, pytest.approx(score)) for text, score in ranks]
    assert fused(Trial({"hybrid.fusion": "rrf"})) == fused(Trial(), **{"hybrid.fusion": "rrf"}) == expected
    one = fused(Trial({"hybrid.primary_top_k": "1"}))
    assert one == [("green tea", 0.5), ("green apples", 0.5)]
    settings = {each.name: each.value for each in opened(**{"hybrid.primary_top_k": "9"}).probe().settings}
    assert settings == {"hybrid.primary_top_k": "9", "hybrid.secondary_top_k": "4", "hybrid.fusion": "weighted_sum"}
    with pytest.raises(InputError, match=r"hybrid\.primary_top_k must be a number of rows, found 'many'"):
        fused(Trial({"hybrid.primary_top_k": "many"}))


def test_a_setting_of_the_address_is_that_of_the_client(database: Connection, opened: Opened) -> None:
    database.execute(NODES)
    stated = opened(**{"hnsw.ef_search": "2"})
    assert next(each.value for each in stated.probe().settings) == "2"
    assert "hnsw.ef_search=2: by the address; live lists use it" in stated.probe().notes
    assert any(note.startswith("LlamaIndex sets hnsw.ef_search") for note in opened().probe().notes)
    database.execute("ALTER DATABASE own SET enable_seqscan = off")
    database.execute("ALTER DATABASE own SET enable_sort = off")
    stated = opened(**{"hnsw.ef_search": "2"})
    assert len(answer(stated, "vector", 3)) == 2
    assert len(answer(stated, "vector", 3, trial=Trial({"hnsw.ef_search": "40"}))) == 3


HINDSIGHT = """
CREATE TABLE memory_units (id uuid PRIMARY KEY, bank_id text, document_id text, text text, embedding vector(3), context text,
    event_date timestamptz, occurred_start timestamptz, mentioned_at timestamptz, fact_type text, metadata jsonb, tags varchar[],
    created_at timestamptz, updated_at timestamptz, proof_count int, search_vector tsvector);
CREATE TABLE memory_links (from_unit_id uuid, to_unit_id uuid, link_type text, entity_id uuid, weight float8, bank_id text);
CREATE TABLE unit_entities (unit_id uuid, entity_id uuid);
INSERT INTO memory_units (id, bank_id, document_id, text, embedding, fact_type, tags, mentioned_at, search_vector)
    SELECT (repeat(n::text, 8) || '-0000-0000-0000-000000000000')::uuid, bank, 'd' || n, t, e::vector, f, '{x}', '2026-03-04',
        to_tsvector('english', t)
    FROM (VALUES (1, 'ann', 'tea is green', '[1,0,0]', 'world'), (2, 'ann', 'I made tea', '[1,1,0]', 'experience'),
        (3, 'ann', 'tea teas', '[0,1,0]', 'opinion'), (4, 'bob', 'tea', '[1,0,0]', 'world')) AS v (n, bank, t, e, f);
INSERT INTO memory_links SELECT a.id, b.id, 'semantic', NULL, 1.5, 'ann' FROM memory_units a, memory_units b
    WHERE a.document_id = 'd1' AND b.document_id IN ('d2', 'd4');
INSERT INTO unit_entities SELECT u.id, gen.e FROM memory_units u, (SELECT gen_random_uuid() AS e FROM generate_series(1, 2)) gen
    WHERE document_id IN ('d2', 'd3');
CREATE INDEX ON memory_units USING hnsw (embedding vector_cosine_ops) WHERE fact_type = 'world' AND bank_id = 'ann';
"""


def test_facts_of_a_hindsight_bank_are_searched_by_kind_and_related(database: Connection, opened: Opened) -> None:
    database.execute(HINDSIGHT)
    with pytest.raises(InputError, match=r"several banks: ann \(3\), bob \(1\); \?bank=NAME chooses one"):
        opened()
    with pytest.raises(InputError, match="there is no bank 'anna' \\(did you mean ann\\?\\)"):
        opened(bank="anna")
    source = opened(bank="ann")
    probe = source.probe()
    assert (probe.kind, probe.memories, probe.lists) == ("hindsight", 3, ("vector", "ts_rank_cd"))
    assert probe.index is not None and "WHERE ((fact_type = 'world'::text) AND (bank_id = 'ann'::text))" in probe.index
    one, two, three = (f"{str(n) * 8}-0000-0000-0000-000000000000" for n in (1, 2, 3))
    # An opinion is no kind of fact that Hindsight searches.
    assert answer(source, "vector", 9) == [(one, 1.0), (two, pytest.approx(2**-0.5, abs=1e-6))]
    rank = "SELECT ts_rank_cd(to_tsvector('english', %s), to_tsquery('english', 'green | tea'))"
    by_hand = {
        id: (database.execute(rank, (text,)).fetchone() or (0,))[0]
        for id, text in ((one, "tea is green"), (two, "I made tea"))
    }
    assert dict(answer(source, "ts_rank_cd", 9, "Green, tea!")) == pytest.approx(by_hand, abs=1e-6)
    memory = taken(source)[1][two].memory
    assert (memory.category, memory.project, memory.tags, memory.source_ref) == ("experience", "ann", ("x",), "d2")
    assert memory.created_at == datetime(2026, 3, 4, tzinfo=UTC)
    with source.snapshot() as snapshot:
        edges = [edge for portion in snapshot.relations() for edge in portion]
    assert [(edge.source_id, edge.target_id, edge.kind) for edge in edges] == [
        (one, two, "semantic"),
        (two, three, "entity"),
    ]
    # A weight above 1 counts as 1; two shared entities as tanh(0.5 × 2).
    assert [edge.weight for edge in edges] == [1.0, pytest.approx(0.761594, abs=1e-6)]
