"""Lists of other engines: engram's presets against its formulas, mem0's entities, Lucene, ts_rank_cd, sparse vectors, FTS5."""

from __future__ import annotations

import json
import math
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from cems_workbench.analysis.known_mistakes import known_mistakes
from cems_workbench.config import PipelineConfig, preset, with_values
from cems_workbench.errors import InputError
from cems_workbench.jobs.factory import open_resources
from cems_workbench.pipeline import read_bundle, replay, write_bundle
from cems_workbench.pipeline.gather import Request, gather, gather_lists
from cems_workbench.pipeline.mismatches import NO_STOP_WORDS, mismatches_noted
from cems_workbench.pipeline.resources import Resources, Servers
from cems_workbench.pipeline.retrievers.entities import read_links
from cems_workbench.pipeline.text_pieces import fact, without_markdown
from cems_workbench.records import Memory
from cems_workbench.settings import Settings
from cems_workbench.store import Store
from tests.planted_source import Counting
from tests.small_store import empty_store, parsed, store
from workbench_engines import sparse

__all__ = ["empty_store", "store"]

NOW = datetime(2026, 9, 1, tzinfo=UTC)
WORDS = [f"word{number}" for number in range(12)]
QUERY = "word0 or Word3 word7"


def memories() -> list[Memory]:
    rng = random.Random(3)
    return [
        Memory(
            f"m{number:03}",
            " ".join(rng.choices(WORDS, range(12, 0, -1), k=rng.randint(2, 9))),
            importance="high" if number % 7 == 0 else "normal",
            created_at=NOW - timedelta(hours=rng.randint(1, 3_000)),
            last_accessed=NOW - timedelta(hours=rng.randint(1, 3_000)),
            access_count=rng.randint(0, 9),
        )
        for number in range(260)
    ]


@pytest.fixture
def engram(store: Store) -> Resources:
    store.add(parsed(memories()))
    return Resources(store, Counting(), Servers("", "", "", None, None, None))


def engine(own: list[Memory], end: str) -> list[tuple[Memory, float]]:
    """(memory, -bm25) of what has any word of the query."""
    with sqlite3.connect(":memory:") as table:
        table.execute("CREATE VIRTUAL TABLE t USING fts5(text)")
        table.executemany("INSERT INTO t VALUES (?)", [(one.content,) for one in own])
        rows = table.execute(f"SELECT rowid, bm25(t) FROM t WHERE t MATCH 'word0 OR Word3 OR word7' {end}").fetchall()
    return [(own[row - 1], -score) for row, score in rows]


def cosines(engram: Resources, own: list[Memory]) -> dict[str, float]:
    found = engram.cosines(engram.embedder.encode_query(QUERY), [one.id for one in own])
    return {memory_id: cosine for memory_id, cosine, _ in found}


def by_competition(values: dict[str, float]) -> dict[str, int]:
    ranks, place = {}, 1
    for _, group in groupby(sorted(values, key=lambda key: -values[key]), key=values.__getitem__):
        same = list(group)
        ranks |= dict.fromkeys(same, place)
        place += len(same)
    return ranks


def answered(engram: Resources, name: str) -> tuple[dict[str, float], Any]:
    config = preset(name).config
    trace = replay(gather_lists(Request(QUERY, as_of=NOW), config, engram), config)
    return {result.memory_id: result.score for result in trace.results}, config


def test_recollection_fuses_competition_ranks_of_the_pool_and_the_first_rows(engram: Resources) -> None:
    own = memories()
    rows = engine(own, "LIMIT 50")
    newest = sorted(own, key=lambda one: one.last_accessed or NOW, reverse=True)[:200]
    pool = {one.id: one for one in [*newest, *(one for one, _ in rows)]}
    cosine = cosines(engram, list(pool.values()))
    ranked = [
        (0.4, by_competition({one.id: score for one, score in rows})),
        (1.0, by_competition(cosine)),
        (0.6, by_competition({key: (one.created_at or NOW).timestamp() for key, one in pool.items()})),
        (0.4, by_competition({key: one.access_count for key, one in pool.items()})),
    ]
    score = {
        key: sum(weight / (60 + ranks[key]) for weight, ranks in ranked if key in ranks)
        + (1 / 61 - 1 / 71 if one.importance == "high" else 0)
        for key, one in pool.items()
    }
    first = sorted(score, key=lambda key: -score[key])[:3]
    found, _ = answered(engram, "engram_head")
    assert found == pytest.approx({key: score[key] for key in first if cosine[key] >= 0.25}, abs=1e-12)
    assert len(rows) == 50


def test_recall_sums_relevance_recency_and_use_of_the_best_and_the_newest(engram: Resources) -> None:
    own = sorted(memories(), key=lambda one: one.created_at or NOW)
    rows = engine(own, "ORDER BY 2, 1 LIMIT 15")
    pool = {one.id: one for one in [*own[-15:], *(one for one, _ in rows)]}
    cosine, bm25 = cosines(engram, list(pool.values())), {one.id: score for one, score in rows}
    least, spread = min(bm25.values()), max(bm25.values()) - min(bm25.values())
    most = max(1, *(one.access_count for one in pool.values()))

    def score(one: Memory) -> float:
        words = (bm25[one.id] - least) / spread if one.id in bm25 else 0.0
        relevance = max(0.7 * cosine[one.id] + 0.3 * words, 0.3 if one.importance == "high" else -math.inf)
        days = (NOW - (one.created_at or NOW)).total_seconds() / 86400
        return 0.5 * relevance + 0.3 * 0.5 ** (days / 30) + 0.2 * (one.access_count + 1) / (most + 1)

    scores = {key: score(one) for key, one in pool.items()}
    best = sorted(scores, key=lambda key: -scores[key])[:5]
    found, _ = answered(engram, "engram_recall")
    assert found == pytest.approx({key: scores[key] for key in best}, abs=1e-12)


def test_search_ranks_the_best_by_words_alone(engram: Resources) -> None:
    own = sorted(memories(), key=lambda one: one.created_at or NOW)
    rows = engine(own, "ORDER BY 2, 1 LIMIT 30")
    bm25 = {one.id: score for one, score in rows}
    cosine = cosines(engram, [one for one, _ in rows])
    least, spread = min(bm25.values()), max(bm25.values()) - min(bm25.values())
    days = {one.id: (NOW - (one.created_at or NOW)).total_seconds() / 86400 for one, _ in rows}
    score = {key: (0.7 * cosine[key] + 0.3 * (bm25[key] - least) / spread) * 0.5 ** (days[key] / 30) for key in bm25}
    found, config = answered(engram, "engram_search")
    assert len(found) == config.assembly.limit == 10
    assert found == pytest.approx({key: score[key] for key in found}, abs=1e-12)
    assert next(iter(found)) == max(score, key=score.__getitem__)
    assert np.isfinite(list(found.values())).all()


CONFIG = with_values(
    PipelineConfig(),
    {
        "lists.entities.enabled": True,
        "lists.entities.min_similarity": 0.999,
        "lists.lexical.enabled": False,
        "variants.original_weight": 1.0,
        "fusion.method": "combsum",
        "fusion.divisor": "active_lists",
        "fusion.normalize": "none",
        "fusion.score_blend": 0.0,
    },
)


@pytest.fixture
def linked(store: Store) -> Resources:
    store.add(parsed([Memory("a", "the invoice of Velmoor"), Memory("b", "a blue door"), Memory("c", "a red cache")]))
    return Resources(store, Counting(), Servers("", "", "", None, None, None))


def link(linked: Resources, **links: Any) -> None:
    rows = [json.dumps({"entity": name, "memories": memories}) for name, memories in links.items()]
    linked.entities_path.write_text("\n".join(rows), encoding="utf-8")


def scores(linked: Resources, query: str) -> dict[str, float]:
    found = gather_lists(Request(query), CONFIG, linked)
    (ranked,) = [ranked for ranked in found.lists if ranked.name == "entities"]
    return {hit.memory_id: hit.score for hit in ranked.hits}


def test_entity_of_many_memories_raises_each_less(linked: Resources) -> None:
    link(linked, Velmoor=["a"], door=["a", "b", "gone"])
    assert scores(linked, "what does velmoor pay") == pytest.approx({"a": 0.5})
    assert scores(linked, "which door") == pytest.approx({"a": 0.5 / 1.004, "b": 0.5 / 1.004})
    assert scores(linked, "an indoor plant") == {}


def test_divisor_counts_the_entities_with_their_largest_score(linked: Resources) -> None:
    link(linked, Velmoor=["a"])
    for query, divisor in (("velmoor", 1.5), ("nothing", 1.0)):
        trace = replay(gather_lists(Request(query), CONFIG, linked), CONFIG)
        (fusion,) = [stage for stage in trace.stages if stage.name == "fusion"]
        assert fusion.fields.divisor == divisor


def test_store_without_links_says_what_that_costs(linked: Resources) -> None:
    found = gather_lists(Request("velmoor"), CONFIG, linked)
    assert any(line.startswith("entities: the store links no memory") for line in found.notes["warnings"]["lists"])


def test_line_that_is_no_link_is_named(linked: Resources) -> None:
    linked.entities_path.write_text('{"entity": "x", "memories": ["a"]}\n{"entity": "y"}\n', encoding="utf-8")
    with pytest.raises(InputError, match="line 2"):
        read_links(linked.entities_path)


MEMORIES = [
    Memory("b", "The api needs a key", created_at=datetime(2026, 1, 2, tzinfo=UTC), author="Ana"),
    Memory("a", "The api needs a key", created_at=datetime(2026, 1, 1, tzinfo=UTC), author="Bo"),
    Memory("c", "Keys of the api, its api key", title="Where", category="how_to", author="Ana"),
]
AS_MEMORY_AGENT = {
    "outside_ascii": "removed",
    "min_characters": 2,
    "repeats": False,
    "fuzzy": 2,
    "fields.text": 0.0,
    "fields.fact": 1.0,
    "fields.author": 1.0,
    "fields.object": 1.0,
}


@pytest.fixture
def keys(store: Store) -> Resources:
    store.add(parsed(MEMORIES))
    return Resources(store, Counting(), Servers("", "", "", None, None, None))


def gathered(keys: Resources, engine: str, query: str, **changes: Any) -> Any:
    given = {f"lists.{engine}.enabled": True} | {f"lists.{engine}.{name}": value for name, value in changes.items()}
    return gather_lists(Request(query), with_values(PipelineConfig(), given), keys)


def hits(evidence: Any, engine: str) -> list[str]:
    (ranked,) = [ranked for ranked in evidence.lists if ranked.name == f"{engine}:0"]
    return [hit.memory_id for hit in ranked.hits]


def test_lucene_list_keeps_equal_scores_in_order_of_rows(keys: Resources) -> None:
    assert hits(gathered(keys, "lucene", "key"), "lucene") == ["a", "b", "c"]
    assert hits(gathered(keys, "lucene", "key", rows="store"), "lucene") == ["b", "a", "c"]


def test_lucene_list_of_facts_is_asked_as_the_memory_agent_asks(keys: Resources) -> None:
    found = gathered(keys, "lucene", "Ana’s kéy, a key; Ana's", **AS_MEMORY_AGENT)
    note = found.notes["engines"]["lucene:0"]
    assert note["query"] == "anas OR anas~ ky OR ky~ key OR key~"
    assert (note["words"], note["fields"]) == (3, ["object", "fact", "author"])
    assert hits(found, "lucene") == ["b", "a", "c"]  # the key is in two fields of a and b, and b's author is near anas


def test_words_of_an_installation_that_is_not_there_are_told_unless_the_target_reads_them(keys: Resources) -> None:
    found = gathered(keys, "lucene", "key", stop_words="beside:none/words.ts#STOP_WORDS")
    assert hits(found, "lucene") == ["a", "b", "c"]
    assert any(NO_STOP_WORDS in line for line in mismatches_noted(found.notes))


def test_lucene_list_is_empty_with_a_warning_when_lucene_refuses_the_query(keys: Resources) -> None:
    found = gathered(keys, "lucene", "api --force", **AS_MEMORY_AGENT)
    assert hits(found, "lucene") == []
    assert any(line.startswith("lucene:0 is empty: Lucene reads no query") for line in found.notes["warnings"]["lists"])
    assert hits(gathered(keys, "lucene", "api --force", fuzzy=2), "lucene") != []


def test_a_repeated_wording_is_searched_again_if_the_config_says_so(keys: Resources) -> None:
    asked = Request("key", variants=("key", "Key", "api"))
    by_hand = {"lists.lucene.enabled": True, "expansion.backend": "manual", "expansion.max_expansions": 9}
    once = gather_lists(asked, with_values(PipelineConfig(), by_hand), keys)
    assert [variant.text for variant in once.variants] == ["key", "api"]
    again = gather_lists(asked, with_values(PipelineConfig(), by_hand | {"expansion.repeats": True}), keys)
    assert [variant.text for variant in again.variants] == ["key", "key", "Key", "api"]
    assert [ranked.name for ranked in again.lists if ranked.source in ("vector", "lucene")][:4] == [
        "vector:0", "lucene:0", "vector:1", "lucene:1",
    ]  # fmt: skip


def test_a_fact_is_the_sentence_of_author_category_and_title() -> None:
    assert fact(MEMORIES[2]) == "Ana how to Where. Evidence: Ana: Keys of the api, its api key"
    assert fact(Memory("d", "Tea at five.")) == "Tea at five."


def test_markdown_is_left_out_of_plain_text() -> None:
    text = "> see [the *docs*](http://x.yz)\n```\ncode\n``` and `a_b` ~~not~~ x >= 1"
    assert without_markdown(text) == "see the docs and ab not x >= 1"


def test_vector_list_of_facts_embeds_them_once(keys: Resources) -> None:
    changed = {"lists.vector.text": "fact"}
    first = gather_lists(Request("Ana how to Where"), with_values(PipelineConfig(), changed), keys)
    (ranked,) = [ranked for ranked in first.lists if ranked.name == "vector:0"]
    counting = cast(Counting, keys.embedder)
    [expected] = counting.encode([fact(MEMORIES[2])]) @ counting.encode_query("Ana how to Where")[:, None]
    assert {hit.memory_id: hit.score for hit in ranked.hits}["c"] == pytest.approx(float(expected[0]), abs=1e-6)
    files = list(keys.store.path.glob("vectors_fact_*.npz"))
    assert len(files) == 1
    written = files[0].stat().st_mtime_ns
    again = Resources(keys.store, counting, keys.servers)
    assert gather_lists(Request("tea"), with_values(PipelineConfig(), changed), again).lists[0].hits
    assert files[0].stat().st_mtime_ns == written


def test_ts_rank_cd_list_of_any_and_of_all_words(keys: Resources) -> None:
    assert hits(gathered(keys, "ts_rank_cd", "api needs"), "ts_rank_cd") == ["a", "b", "c"]
    found = gathered(keys, "ts_rank_cd", "api needs", match="all")
    assert hits(found, "ts_rank_cd") == ["a", "b"]
    assert found.notes["engines"]["ts_rank_cd:0"]["query"] == "'api' & 'need'"
    assert hits(gathered(keys, "ts_rank_cd", "api needs", max_words=1), "ts_rank_cd") == ["a", "b"]
    assert hits(gathered(keys, "ts_rank_cd", "its", text_config="simple"), "ts_rank_cd") == ["c"]


SERVERS = Servers("", "", "", None, None, None)
IDENTIFIERS = [
    Memory("b", "getUserById fails in the api", created_at=datetime(2026, 1, 2, tzinfo=UTC)),
    Memory("a", "getUserById fails in the api", created_at=datetime(2026, 1, 1, tzinfo=UTC)),
    Memory("c", "the api of the api gateway", created_at=datetime(2026, 1, 3, tzinfo=UTC)),
]


@pytest.fixture
def identifiers(store: Store) -> Resources:
    store.add(parsed(IDENTIFIERS))
    return Resources(store, Counting(), SERVERS)


def sparse_list(identifiers: Resources, query: str, **changes: Any) -> Any:
    given = {"lists.sparse.enabled": True} | {f"lists.sparse.{name}": value for name, value in changes.items()}
    return gather_lists(Request(query), with_values(PipelineConfig(), given), identifiers)


def sparse_hits(evidence: Any) -> list[str]:
    (ranked,) = [ranked for ranked in evidence.lists if ranked.name == "sparse:0"]
    return [hit.memory_id for hit in ranked.hits]


def test_equal_scores_stand_in_order_of_insertion_and_the_note_has_the_query(identifiers: Resources) -> None:
    found = sparse_list(identifiers, "the user", tokens="identifiers", stop_words="english")
    assert sparse_hits(found) == ["a", "b"]
    note = found.notes["engines"]["sparse:0"]
    assert (note["query"], note["words"], note["matches"], note["mean_length"]) == ("user", 2, 2, 13 / 3)
    assert sparse_hits(sparse_list(identifiers, "user", tokens="identifiers", rows="store")) == ["b", "a"]


def test_words_keep_identifiers_whole_and_the_depth_cuts(identifiers: Resources) -> None:
    assert sparse_hits(sparse_list(identifiers, "user")) == []
    assert sparse_hits(sparse_list(identifiers, "api", idf="none", depth=1)) == ["c"]


def test_without_spacy_words_are_searched_as_they_are_and_said_so(
    identifiers: Resources, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sparse, "MODELS", ("no_such_model",))
    sparse.lemmatizer.cache_clear()
    found = sparse_list(identifiers, "fails", lemmas="spacy")
    assert sparse_hits(found) == ["a", "b"]
    assert any("without lemmas" in line for line in found.notes["warnings"]["lists"])


def test_stop_words_of_a_file_that_is_missing_empty_the_list_with_a_warning(
    identifiers: Resources, tmp_path: Path
) -> None:
    found = sparse_list(identifiers, "api", stop_words=str(tmp_path / "none.txt"))
    assert sparse_hits(found) == []
    assert any(line.startswith("sparse:0 is empty") for line in found.notes["warnings"]["lists"])


OF_NPM = {"tokens": "ascii", "stems": "suffixes", "keep_ing": True, "query_weight": "count", "words_counted": "terms"}


def test_statistics_may_be_those_of_the_memories_that_pass_the_filter(store: Store) -> None:
    """Of project p alone N 2, n 1, mean 2: ln(1 + 1.5/1.5) · tf part of 3 of 2 words. "testing" counts twice, in length and bands."""
    texts = {"m1": ("p", "tests testing"), "m2": ("p", "fox"), "m3": ("q", "tests")}
    store.add(parsed([Memory(key, text, project=project) for key, (project, text) in texts.items()]))
    resources = Resources(store, Counting(), SERVERS)
    given = {"lists.sparse.enabled": True} | {f"lists.sparse.{name}": value for name, value in OF_NPM.items()}

    def asked(statistics: str) -> Any:
        config = with_values(PipelineConfig(), {**given, "lists.sparse.k1": 1.5, "lists.sparse.statistics": statistics})
        found = gather_lists(Request("testing", "p", only_project=True), config, resources)
        return found.notes["engines"]["sparse:0"]["words"], next(
            one for one in found.lists if one.source == "sparse"
        ).hits

    weight = 2.5 / (1 + 1.5 * (0.25 + 0.75 * 3 / 2))
    words, (hit,) = asked("filtered")
    assert (words, hit.memory_id) == (2, "m1")
    twice = 2 * 2.5 / (2 + 1.5 * (0.25 + 0.75 * 3 / 2))
    assert hit.score == pytest.approx(math.log(2) * (twice + weight), rel=1e-6)
    of_all = asked("store")[1][0].score
    assert of_all == pytest.approx(
        math.log(1.6) * 2 * 2.5 / (2 + 1.5 * (0.25 + 0.75 * 9 / 5))
        + math.log(1 + 2.5 / 1.5) * 2.5 / (1 + 1.5 * (0.25 + 0.75 * 9 / 5)),
        rel=1e-6,
    )


NOTES = {"m1": "alpha beta", "m2": "alpha gamma gamma", "m3": "beta", "m4": "delta", "m5": "delta delta"}
EACH = {"match": "all_then_each", "parted_at": "signs", "operator_words": "searched", "rows": "store"}


@pytest.fixture
def notes(store: Store) -> Resources:
    store.add(parsed([Memory(key, text) for key, text in NOTES.items()]))
    return Resources(store, Counting(), SERVERS)


def fts5_hits(notes: Resources, query: str, **changes: Any) -> dict[str, float]:
    given = {"lists.fts5.enabled": True} | {f"lists.fts5.{name}": value for name, value in {**EACH, **changes}.items()}
    found = gather_lists(Request(query), with_values(PipelineConfig(), given), notes)
    return {hit.memory_id: hit.score for one in found.lists if one.source == "fts5" for hit in one.hits}


def of_sqlite(query: str) -> dict[str, float]:
    with sqlite3.connect(":memory:") as table:
        table.execute("CREATE VIRTUAL TABLE t USING fts5(text)")
        table.executemany("INSERT INTO t VALUES (?)", [(text,) for text in NOTES.values()])
        rows = table.execute("SELECT rowid, bm25(t) FROM t WHERE t MATCH ? ORDER BY 2", (query,)).fetchall()
    return {f"m{row}": -score for row, score in rows}


def test_each_key_word_is_asked_alone_where_all_together_find_too_little(notes: Resources, tmp_path: Path) -> None:
    """ "the" is in no memory, so that all words find none; m1 has the larger of its two scores, not their sum."""
    (tmp_path / "words.txt").write_text("the", encoding="utf-8")
    alone = of_sqlite("alpha"), of_sqlite("beta")
    largest = {key: max(one.get(key, 0.0) for one in alone) for key in ("m1", "m2", "m3")}
    assert fts5_hits(notes, "the alpha beta", stop_words=str(tmp_path / "words.txt")) == pytest.approx(largest)
    # All words are key words and found something: none is asked alone.
    assert fts5_hits(notes, "alpha beta") == pytest.approx(of_sqlite("alpha AND beta"))
    assert fts5_hits(notes, "the alpha beta", max_key_words=1) == {}


def test_a_word_of_the_path_finds_a_memory_by_its_path(notes: Resources) -> None:
    found = fts5_hits(notes, "m4 alpha", path="notes/{id}.md", **{"shares.words": 0.5})
    assert {key: score for key, score in found.items() if key != "m4"} == pytest.approx(
        {key: score / (1 + score) + 0.25 for key, score in of_sqlite("alpha").items()}
    )
    idf = math.log((5 - 1 + 0.5) / (1 + 0.5))
    assert found["m4"] == pytest.approx(idf / (1 + idf))  # every path has three words: the length counts for nothing


def test_chunks_are_candidates_whose_scores_are_summed_alone(store: Store, tmp_path: Path) -> None:
    """Of a note of two pieces each has its own cosine and words; replay of the bundle is the gathered ranking."""
    store.chunks.choose("openclaw")
    long = "\n".join(["alpha " * 15] * 17 + ["beta " * 18] * 4)
    store.add(parsed([Memory("note", long), Memory("other", "alpha beta")]))
    config = with_values(preset("openclaw").config, {"lists.fts5.stop_words": None, "judge.backend": "none"})
    evidence = gather(Request("beta", as_of=NOW), config, Resources(store, Counting(), SERVERS))
    assert evidence.notes["pieces"] == {"note#0": "note"}  # the nearer one is the memory itself
    assert set(evidence.memories["note#0"].content.split()) == {"alpha"}
    trace = replay(evidence, config)
    fused = {row.memory_id: {one.list for one in row.contributions} for row in trace.stage("fusion").rows}
    assert fused["note#0"] == {"vector:0"} and fused["note"] == fused["other"] == {"vector:0", "fts5:0"}
    assert "note#0" not in {row.memory_id for row in trace.results}
    write_bundle(evidence, tmp_path / "bundle.json")
    assert replay(read_bundle(tmp_path / "bundle.json"), config).results == trace.results


Command = Callable[..., Any]
ROLL_BACK = "how do we roll back a failed deploy?"
AS_OF = datetime(2026, 9, 1, tzinfo=UTC)
BY_ROW = {"lists.fts5.enabled": True, "lists.fts5.cut": "row", "lists.fts5.depth": 20}


@pytest.fixture(scope="module")
def folder(sample_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shutil.copytree(sample_store, tmp_path_factory.mktemp("opened") / "store")


@pytest.fixture(scope="module")
def opened(folder: Path) -> Iterator[Resources]:
    resources = open_resources(Settings(store=folder))
    yield resources
    resources.close()


def words(resources: Resources, **changes: object) -> list[str]:
    config = with_values(PipelineConfig(), changes)
    return [
        mistake.words
        for mistake in known_mistakes(replay(gather(Request(ROLL_BACK, as_of=AS_OF), config, resources), config))
    ]


def test_oldest_matches_replace_the_best(opened: Resources) -> None:
    by_score = gather(
        Request(ROLL_BACK, as_of=AS_OF), with_values(PipelineConfig(), {**BY_ROW, "lists.fts5.cut": "score"}), opened
    )
    best = next(ranked for ranked in by_score.lists if ranked.name == "fts5:0").hits[0].memory_id
    count = by_score.notes["engines"]["fts5:0"]["matches"]
    assert words(opened, **BY_ROW) == [
        f"fts5:0 holds the 20 oldest of {count} matches; the best match, {best}, is not among them"
    ]


def test_every_word_must_occur(opened: Resources) -> None:
    found = words(opened, **{"lists.fts5.enabled": True, "lists.fts5.match": "all"})
    assert found == ["fts5:0 is empty: all 8 words must occur in one memory"]


def test_search_has_them_as_a_field(folder: Path, opened: Resources, module_command: Command) -> None:
    changes = [part for path, value in BY_ROW.items() for part in ("--set", f"{path}={json.dumps(value)}")]
    finished = module_command("search", ROLL_BACK, "--store", folder, "--as-of", "2026-09-01", "--json", *changes)
    found = json.loads(finished.out)["known_mistakes"]
    assert [(row["stage"], row["parameter"]) for row in found] == [("lists", "lists.fts5.cut")]
