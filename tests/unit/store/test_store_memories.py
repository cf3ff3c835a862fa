"""What goes into the store comes out of it: memories, found page by page, counted and changed; their edges, grades and searched texts."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from itertools import product

import pytest

from cems_workbench.errors import InputError, StoreError
from cems_workbench.models.protocol import PairScore
from cems_workbench.progress import Cancelled
from cems_workbench.records import (
    DEFAULT_TEXT_RULE,
    Chunk,
    Judgment,
    Memory,
    ParsedInput,
    Query,
    Relation,
    TextRule,
    titled,
)
from cems_workbench.store import Filter, RowCounts, Selection, Store, chunks, memories
from cems_workbench.store import memories as memories_table
from cems_workbench.store.memories import MANY_IDS
from cems_workbench.store.rows import content_identity, earlier_identity, read_content_version
from cems_workbench.store.statistics import SORTS
from cems_workbench.store.text_rule import chunk_text, known_text_rule, parts_to_cut, rule_suffix, searched_text

NOON = datetime(2024, 5, 8, 12, tzinfo=UTC)
FULL = Memory(
    id="m/1 ünï",
    content="<script>alert('x')</script>\n\x00 'quoted' \"double\" 🦆",
    title="A title",
    category="preferences",
    project="org/repo",
    session="s1",
    author="Ada",
    tags=("a", "b, c", 'd"e'),
    priority=1.75,
    pinned=True,
    importance="high",
    created_at=datetime(2024, 5, 8, 13, 56, 1, 123456, tzinfo=UTC),
    last_accessed=datetime(2025, 1, 1, tzinfo=UTC),
    access_count=7,
    relevant_count=2**63 - 1,
    noise_count=1,
    scope="shared",
    source_ref="project:org/repo:1",
)


def test_every_field_round_trips_exactly(store, rows):
    bare = Memory("bare", "x")
    store.add(rows([FULL, bare]))
    assert store.memories.get(FULL.id) == FULL
    assert store.memories.get("bare") == bare


def test_times_of_other_zones_come_back_as_the_same_moment_in_utc(store, rows):
    local = datetime(2024, 5, 8, 14, tzinfo=timezone(timedelta(hours=2)))
    store.add(rows([Memory("m", "x", created_at=local)]))
    assert store.memories.get("m").created_at == NOON
    assert store.memories.get("m").created_at.tzinfo == UTC


def test_import_counts_added_updated_and_unchanged(store, rows):
    assert store.add(rows([Memory("a", "1"), Memory("b", "2")])).memories == RowCounts(added=2)
    again = store.add(rows([Memory("a", "1"), Memory("b", "changed"), Memory("c", "3")]))
    assert again.memories == RowCounts(added=1, updated=1, unchanged=1)
    assert store.memories.get("b").content == "changed"


def test_content_version_grows_only_when_a_memory_changes(store, rows):
    assert store.content_version == 0
    assert store.add(rows([Memory("a", "1")])).content_version == 1
    assert store.add(rows([Memory("a", "1")])).content_version == 1
    store.memories.delete("a")
    assert store.content_version == 2


def test_memories_come_in_the_order_asked_and_unknown_ids_are_absent(store, rows):
    store.add(rows([Memory(name, name) for name in "abc"]))
    assert list(store.memories.read(["c", "zz", "a", "c"])) == ["c", "a"]
    assert list(store.memories.read()) == ["a", "b", "c"]


@pytest.mark.parametrize("sought", [0, 10**9])
def test_few_are_sought_by_their_key_and_many_among_all_rows_with_one_outcome(store, rows, monkeypatch, sought):
    monkeypatch.setattr(memories_table, "ROWS_PER_LOOKUP", sought)
    monkeypatch.setattr(memories_table, "LOOKUP_BATCH", 2)
    store.add(rows([Memory(f"m{i}", f"text {i}") for i in range(7)]))
    store.memories.delete("m3")
    wanted = ["m5", "m3", "nobody", "m0", "m5", "m6", "m1"]
    assert list(store.memories.read(wanted)) == ["m5", "m0", "m6", "m1"]
    assert store.memories.known(wanted) == {"m5", "m0", "m6", "m1"}
    assert store.memories.read([]) == {} and store.memories.known([]) == set()


def test_cancelling_an_import_leaves_nothing_of_it(store, rows):
    def cancel_at_the_end(label: str, done: int, total: int) -> None:
        if done == total:
            raise Cancelled

    with pytest.raises(Cancelled):
        store.add(rows([Memory("a", "1")]), cancel_at_the_end)
    assert store.memories.count() == 0
    assert store.content_version == 0
    store.add(rows([Memory("a", "1")]))
    assert store.memories.count() == 1


def test_deleted_memories_are_absent_until_restored(store, rows):
    store.add(rows([Memory("a", "1", project="p"), Memory("b", "2")]))
    assert store.memories.delete("a")
    assert not store.memories.delete("a")
    assert (store.memories.get("a"), store.memories.count(), list(store.memories.read())) == (None, 1, ["b"])
    assert store.memories.projects() == [(None, 1)]
    assert store.memories.newest_by_access(5, Filter()) == ["b"]
    assert store.memories.restore("a")
    assert not store.memories.restore("a")
    assert store.memories.get("a").content == "1"


def test_importing_a_deleted_memory_updates_it_and_says_that_it_stays_deleted(store, rows):
    store.add(rows([Memory("a", "1")]))
    store.memories.delete("a")
    report = store.add(rows([Memory("a", "2")]))
    assert report.memories.updated == 1
    assert "stay" in report.notes[0]
    assert store.memories.count() == 0
    store.memories.restore("a")
    assert store.memories.get("a").content == "2"


def test_newest_by_access_falls_back_to_creation_puts_undated_last_and_breaks_ties_by_id(store, rows):
    day = timedelta(days=1)
    store.add(
        rows(
            [
                Memory("undated", "x"),
                Memory("created", "x", created_at=NOON + day),
                Memory("b", "x", created_at=NOON + 9 * day, last_accessed=NOON),
                Memory("a", "x", last_accessed=NOON),
                Memory("newest", "x", last_accessed=NOON + 2 * day, project="p", scope="shared"),
            ]
        )
    )
    assert store.memories.newest_by_access(9, Filter()) == ["newest", "created", "a", "b", "undated"]
    assert store.memories.newest_by_access(2, Filter()) == ["newest", "created"]
    assert store.memories.newest_by_access(9, Filter("p", only_project=True)) == ["newest"]
    assert store.memories.newest_by_access(9, Filter("p")) == store.memories.newest_by_access(9, Filter())
    assert "newest" not in store.memories.newest_by_access(9, Filter(scope="personal"))
    assert store.memories.newest_by_creation(9, Filter()) == ["b", "created", "a", "newest", "undated"]


@pytest.mark.parametrize(
    ("title", "content", "text"),
    [
        (None, "body", "body"),
        ("", "body", "body"),
        ("Title", "body", "Title. body"),
        ("Title", "Title: body", "Title: body"),
    ],
)
def test_searched_text_puts_the_title_first_unless_the_content_opens_with_it(title, content, text):
    assert searched_text(Memory("m", content, title=title)) == text


@pytest.mark.parametrize("portion", [1, 2, 100])
def test_each_memory_comes_once_by_id_whatever_the_portions(store, rows, monkeypatch, portion):
    monkeypatch.setattr(memories_table, "BATCH_ROWS", portion)
    store.add(rows([Memory(name, f"text {name}", project="p" if name in "bd" else None) for name in "dbace"]))
    store.memories.delete("c")
    assert {memory.id: memory for memory in store.memories.iterate()} == store.memories.read()
    assert [memory.id for memory in store.memories.iterate()] == ["a", "b", "d", "e"]
    assert [memory.id for memory in store.memories.iterate("p")] == ["b", "d"]
    assert list(store.memories.iterate("none")) == []


def test_rows_keep_the_order_in_which_they_come(store, rows):
    """A server's table has them so, and orders equal ranks by that."""
    come = [f"m{(7 * n) % 500:03}" for n in range(500)]
    store.add(rows([Memory(name, f"text {name}") for name in come]))
    with store._database.reading() as cursor:
        assert [name for (name,) in cursor.execute("SELECT id FROM memories ORDER BY rowid").fetchall()] == come


def test_what_comes_before_in_a_session(store, rows):
    def at(name, second, session="s", project="p", scope="personal"):
        when = None if second is None else datetime(2026, 3, 1, 8, 0, second, tzinfo=UTC)
        return Memory(name, f"text of {name}", session=session, project=project, created_at=when, scope=scope)

    said = [
        at("b", 2),
        at("a", 1),
        at("c", 4),
        at("d", 4),
        at("e", 5),
        at("f", 6),
        at("g", 7),
        at("other project", 1, project=None),
        at("other session", 1, session="t"),
        at("no time", None),
        at("no session", 3, session=None),
    ]
    store.add(rows(said))
    before = store.memories.before(said)
    assert before == {
        "b": "text of a",
        "c": "text of b",
        "d": "text of b",
        "f": "text of e",
        "g": "text of f",
    }  # two come before e
    store.memories.delete("f")
    assert store.memories.before([at("g", 7), at("later", 9, project=None)]) == {
        "g": "text of e",
        "later": "text of other project",
    }
    assert store.memories.before([at("g", 7, scope="shared")]) == {}
    assert store.memories.before([]) == store.memories.before([Memory("alone", "text")]) == {}


MAY = datetime(2024, 5, 8, 23, 30, tzinfo=UTC)
JUNE = datetime(2024, 6, 1, tzinfo=UTC)


def found(store, **wanted):
    return [memory.id for memory in store.memories.find(Selection(**wanted), 100).memories]


@pytest.fixture
def filled(store, rows):
    store.add(
        rows(
            [
                Memory(
                    "a", "100% of the Äpfel", title="Fruit", category="fact", project="p", session="s1", created_at=MAY
                ),
                Memory("b", "a_b [x] \\d+", tags=("Garden, shed", 'with "quotes"'), created_at=JUNE, priority=1.5),
                Memory(
                    "c", "third and longest of them all", category="note", project="q", pinned=True, importance="high"
                ),
            ]
        )
    )
    return store


def test_an_empty_selection_lists_every_live_memory_newest_first_undated_last(filled):
    assert found(filled) == ["b", "a", "c"]
    filled.memories.delete("b")
    page = filled.memories.find(Selection(), 10)
    assert ([memory.id for memory in page.memories], page.total) == (["a", "c"], 2)


FOUND = {
    "a": ("äPFEL", "fruit", "FRUIT", "100%", "%"),
    "b": ("a_b", "[x] \\d+", "garden, SHED", '"quotes"'),
    "c": ("third",),
    "": ('", "', "' OR 1=1 --", "fruit100"),
}


def test_text_is_looked_for_literally_in_id_title_content_and_tags(filled):
    for ids, texts in FOUND.items():
        assert {text: found(filled, text=text) for text in texts} == {text: list(ids) for text in texts}


def test_a_change_of_words_is_found_by_the_new_ones_alone(filled):
    assert filled.memories.update(Memory("c", "eine Straße", category="note"))
    assert (found(filled, text="STRASSE"), found(filled, text="third")) == (["c"], [])


def test_filters_combine_and_none_means_has_none(filled):
    assert found(filled, projects=(None,)) == ["b"]
    assert found(filled, projects=("p", None)) == ["b", "a"]
    assert found(filled, categories=("fact", "note"), projects=("q",)) == ["c"]
    assert found(filled, sessions=("s1",)) == ["a"]
    assert found(filled, sessions=("s1",), pinned=True) == []
    assert found(filled, pinned=False) == ["b", "a"]
    assert found(filled, importance=("high", "low")) == ["c"]


def test_an_empty_name_is_not_taken_for_a_missing_one(store, rows):
    store.add(rows([Memory("empty", "x", project=""), Memory("none", "x")]))
    assert found(store, projects=(None,)) == ["none"]


def test_days_of_creation_are_both_included(filled):
    assert found(filled, created_from=date(2024, 5, 8), created_to=date(2024, 5, 8)) == ["a"]
    assert found(filled, created_from=date(2024, 5, 9)) == ["b"]
    assert found(filled, created_to=date(2024, 5, 31)) == ["a"]


def test_sorting_has_missing_values_last_and_ties_by_id(filled):
    assert found(filled, sort="created", descending=False) == ["a", "b", "c"]
    assert found(filled, sort="priority") == ["b", "a", "c"]
    assert found(filled, sort="importance") == ["c", "a", "b"]
    assert found(filled, sort="length") == ["c", "a", "b"]
    assert found(filled, sort="id", descending=False) == ["a", "b", "c"]


def test_pages_cover_the_selection_once(store, rows):
    store.add(rows([Memory(f"m{i:03}", "x") for i in range(25)]))
    pages = [store.memories.find(Selection(sort="id", descending=False), 10, offset) for offset in (0, 10, 20, 30)]
    assert [len(page.memories) for page in pages] == [10, 10, 5, 0]
    assert [memory.id for page in pages for memory in page.memories] == [f"m{i:03}" for i in range(25)]
    assert {page.total for page in pages} == {25}


def test_pages_of_what_a_text_finds_are_those_of_all_in_the_same_order(store, rows):
    def one(i):
        when = [None, MAY, JUNE][i % 3]
        weight, importance = [1.0, 2.5, 0.5, 2.5][i % 4], ["normal", "low", "high"][i % 3]
        return Memory(
            f"m{i * 7 % 30:02}",
            "x" * (i % 5 + 1),
            created_at=when,
            last_accessed=when,
            access_count=i % 4,
            priority=weight,
            importance=importance,
        )

    store.add(rows([one(i) for i in range(30)]))
    for sort, descending, offset in product(SORTS, (True, False), range(0, 35, 7)):
        everything = store.memories.find(Selection(sort=sort, descending=descending), 7, offset)
        assert everything == store.memories.find(Selection("x", sort=sort, descending=descending), 7, offset)


def test_facets_count_live_memories_and_name_what_has_none(filled):
    facets = filled.memories.facets()
    assert facets.projects == (("p", 1), ("q", 1), (None, 1))
    assert facets.sessions == ((None, 2), ("s1", 1))
    assert len(filled.memories.facets(1).categories) == 1


def test_an_update_replaces_the_memory_and_raises_the_content_version_once(filled):
    before, version = filled.memories.get("a"), filled.content_version
    after = Memory("a", "new", tags=("t",), pinned=True, created_at=MAY)
    assert filled.memories.update(after, before)
    assert (filled.memories.get("a"), filled.content_version) == (after, version + 1)
    assert not filled.memories.update(after)
    assert filled.content_version == version + 1


def test_an_update_of_a_memory_that_is_not_there_or_has_changed_is_refused(filled):
    before, version = filled.memories.get("a"), filled.content_version
    with pytest.raises(StoreError, match="no longer exists"):
        filled.memories.update(Memory("unknown", "x"))
    filled.memories.delete("b")
    with pytest.raises(StoreError, match="no longer exists"):
        filled.memories.update(Memory("b", "x"))
    filled.memories.update(Memory("a", "someone else's"), before)
    with pytest.raises(StoreError, match="was changed while you edited it"):
        filled.memories.update(Memory("a", "mine"), before)
    assert filled.memories.get("a").content == "someone else's"
    assert filled.content_version == version + 2


def test_after_an_update_a_refresh_embeds_that_memory_alone(filled, embedder):
    filled.indexes.refresh(embedder)
    filled.memories.update(Memory("a", "quite another text"))
    assert filled.indexes.refresh(embedder).embedded == 1
    assert filled.indexes.open(embedder).lexical.search("quite another", 5)[0][0] == "a"


def test_deleted_memories_are_listed_latest_first_until_restored(filled):
    whole = filled.memories.get("a")
    filled.memories.delete("a")
    filled.memories.delete("b")
    listed, total = filled.memories.deleted(10)
    assert ([entry.memory.id for entry in listed], total) == (["b", "a"], 2)
    assert listed[1].memory == whole
    assert listed[0].deleted_at.tzinfo == UTC
    assert len(filled.memories.deleted(1)[0]) == 1
    filled.memories.restore("a")
    assert filled.memories.get("a") == whole
    assert filled.memories.deleted(10)[1] == 1


def test_relations_and_judgments_of_a_memory(filled, rows):
    filled.add(
        rows(
            relations=[
                Relation("a", "b", "follows", 0.5),
                Relation("c", "a"),
                Relation("b", "c"),
                Relation("a", "c", "x", 0.9),
            ],
            queries=[Query("q1", "what fruit?"), Query("q2", "which?")],
            judgments=[Judgment("q1", "a", 1), Judgment("q2", "a", 3), Judgment("q1", "b", 2)],
        )
    )
    touching = filled.relations.of_memory("a")
    assert [(edge.source_id, edge.target_id) for edge in touching] == [("a", "c"), ("a", "b"), ("c", "a")]
    assert [(judgment.grade, query) for judgment, query in filled.judgments.of_memory("a")] == [
        (3, "which?"),
        (1, "what fruit?"),
    ]
    filled.memories.delete("c")
    assert [edge.target_id for edge in filled.relations.of_memory("a")] == ["b"]


NOW = datetime(2024, 8, 1, tzinfo=UTC)


def test_months_have_no_gaps_and_undated_memories_are_counted_apart(store, rows):
    days = [datetime(2023, 12, 31, 23, tzinfo=UTC), datetime(2024, 3, 1, tzinfo=UTC), datetime(2024, 3, 31, tzinfo=UTC)]
    store.add(rows([*(Memory(f"m{i}", "x", created_at=day) for i, day in enumerate(days)), Memory("n", "x")]))
    statistics = store.memories.statistics()
    assert statistics.months == (
        (date(2023, 12, 1), 1),
        (date(2024, 1, 1), 0),
        (date(2024, 2, 1), 0),
        (date(2024, 3, 1), 2),
    )
    assert statistics.undated == 1
    assert (statistics.first_created, statistics.last_created) == (days[0], days[2])


def test_length_classes_double_and_counts_leave_deleted_memories_out(store, rows):
    lengths = [Memory(f"m{length}", "x" * length, access_count=1) for length in (1, 49, 50, 99, 100, 399)]
    new = {"created_at": NOW, "last_accessed": NOW}  # as CEMS writes a memory that it has not returned yet
    store.add(rows([*lengths, Memory("b", "x" * 99, pinned=True, category="fact", **new), Memory("d", "x")]))
    store.memories.delete("d")
    found = store.memories.statistics()
    assert found.lengths == (("0–49", 2), ("50–99", 3), ("100–199", 1), ("200–399", 1))
    assert (found.median_length, found.longest) == (99, 399)
    assert (found.memories, found.deleted, found.pinned, found.never_accessed) == (7, 1, 1, 1)
    assert found.categories == ((None, 6), ("fact", 1))


def test_exact_duplicates_are_equal_to_the_character(store, rows):
    texts = {"a": "same", "b": "same", "c": "Same", "d": "other", "e": "other", "f": "other", "g": "same"}
    store.add(rows([Memory(name, text) for name, text in texts.items()]))
    store.memories.delete("g")
    groups, total = store.memories.exact_duplicates(10)
    assert [(group.content, group.ids) for group in groups] == [("other", ("d", "e", "f")), ("same", ("a", "b"))]
    assert total == 2
    assert len(store.memories.exact_duplicates(1)[0]) == 1


def changed(store: Store, since: int) -> list[str]:
    with store._database.reading() as cursor:
        return memories.changed_since(cursor, since)


def test_a_memory_changes_when_its_text_labels_or_chunks_do_and_when_it_leaves_or_comes_back(store, rows):
    first = [Memory(name, f"text of {name}") for name in "abcde"]
    since = store.add(rows(first)).content_version
    assert changed(store, since - 1) == list("abcde") and changed(store, since) == []
    store.add(rows([replace(first[0], content="another"), replace(first[1], project="p"), *first[2:]]))
    assert changed(store, since) == ["a", "b"]
    since = store.content_version
    store.memories.delete("c")
    assert changed(store, since) == ["c"]
    since = store.content_version
    store.memories.restore("c")
    store.memories.update(replace(first[3], title="a title"))
    assert changed(store, since) == ["c", "d"]
    since = store.content_version
    store.add(ParsedInput("chunks", "test", chunks=(Chunk("e", 0, "text"), Chunk("e", 1, "of e"))))
    assert changed(store, since) == ["e"]


def test_what_no_search_reads_is_no_change(store: Store, rows) -> None:
    memory = Memory("a", "text", access_count=1)
    store.add(rows([memory]))
    since = store.content_version
    store.memories.count_feedback({"a": (2, 1)})
    store.add(rows([replace(memory, access_count=7, tags=("t",))]))
    assert store.content_version == since + 2 and changed(store, since) == []


def test_a_memory_that_is_cut_changes_and_is_looked_at_once(store: Store, embedder, rows) -> None:
    store.chunks.choose("cems")
    store.add(rows([Memory("long", "A sentence of some words. " * 300), Memory("short", "text")]))
    version = store.content_version
    chunks.refresh_chunks(store._database, embedder, lambda *_: None)
    with store._database.transaction() as cursor:
        assert len(chunks.read(cursor, ["long"])["long"]) > 1
        cursor.execute("DELETE FROM chunked")  # nobody does that; it would be seen if all were looked at again
    store.add(rows([Memory("longer", "Another sentence of some words. " * 300)]))
    chunks.refresh_chunks(store._database, embedder, lambda *_: None)
    with store._database.reading() as cursor:
        assert [row[0] for row in cursor.execute("SELECT memory_id FROM chunked").fetchall()] == ["longer"]
    assert changed(store, version) == ["longer"]


def test_the_store_knows_which_contents_it_has_had(store: Store, rows) -> None:
    store.add(rows([Memory("a", "text")]))
    with store._database.reading() as cursor:
        version, identity = read_content_version(cursor), content_identity(cursor)
    store.add(rows([Memory("b", "text")]))
    with store._database.reading() as cursor:
        assert earlier_identity(cursor, version) == identity != content_identity(cursor)
        assert earlier_identity(cursor, version + 1) == content_identity(cursor)
        assert earlier_identity(cursor, version + 2) is None


MEMORIES = [Memory(name, name) for name in "abcd"]


def test_neighbours_count_in_both_directions_best_first_ties_by_id(store, rows):
    edges = [Relation("a", "b", weight=0.5), Relation("c", "a", weight=0.9), Relation("a", "d", weight=0.5)]
    store.add(rows(MEMORIES, edges))
    assert store.relations.neighbours(["a"], 9) == [("a", "c", 0.9), ("a", "b", 0.5), ("a", "d", 0.5)]
    assert store.relations.neighbours(["d", "a"], 1) == [("d", "a", 0.5), ("a", "c", 0.9)]
    assert store.relations.neighbours([], 5) == []


def test_edges_lead_one_way_each_by_itself_equal_ones_as_imported(store, rows):
    edges = [
        Relation("d", "c", "near", 0.5),
        Relation("d", "a", "near", 0.5),
        Relation("d", "a", "cites", 0.9),
        Relation("a", "b", "near", 0.4),
        Relation("c", "d", "near", 1.0),
    ]
    store.add(rows([Memory("c", "c"), Memory("b", "b"), Memory("a", "a"), Memory("d", "d")], edges))
    found = [(edge.source_id, edge.target_id, edge.weight) for edge in store.relations.leading_from(["a", "d"], 2)]
    assert found == [("a", "b", 0.4), ("d", "a", 0.9), ("d", "c", 0.5)]  # c was imported before a
    store.memories.delete("a")
    assert [edge.target_id for edge in store.relations.leading_from(["d"], 2)] == ["c"]


def test_a_pair_joined_twice_is_a_neighbour_once_by_its_best_weight(store, rows):
    edges = [Relation("a", "b", "cites", 0.2), Relation("b", "a", "near", 0.8), Relation("a", "a", "self", 1.0)]
    store.add(rows(MEMORIES, edges))
    assert store.relations.neighbours(["a"], 9) == [("a", "b", 0.8)]


def test_a_deleted_memory_is_nobodys_neighbour(store, rows):
    store.add(rows(MEMORIES, [Relation("a", "b")]))
    store.memories.delete("b")
    assert store.relations.neighbours(["a"], 9) == []


def test_relations_to_unknown_memories_are_reported_and_kept_out(store, rows):
    report = store.add(rows(MEMORIES, [Relation("a", "b"), Relation("a", "nobody"), Relation("nobody", "a")]))
    assert report.relations == RowCounts(added=1)
    assert [(error.row, error.field) for error in report.errors] == [(2, "target_id"), (3, "source_id")]
    assert "'nobody'" in report.errors[0].reason


def test_a_new_weight_updates_the_edge(store, rows):
    store.add(rows(MEMORIES, [Relation("a", "b", weight=0.5), Relation("a", "c")]))
    report = store.add(rows((), [Relation("a", "b", weight=0.7), Relation("a", "c")]))
    assert report.relations == RowCounts(updated=1, unchanged=1)
    assert store.relations.neighbours(["b"], 1) == [("b", "a", 0.7)]


def test_judgments_naming_unknown_queries_or_memories_are_reported(store, rows):
    judgments = [Judgment("q", "a", 1), Judgment("q?", "a", 1), Judgment("q", "m?", 1)]
    report = store.add(rows(MEMORIES, (), [Query("q", "text")], judgments))
    assert store.judgments.read() == [Judgment("q", "a", 1)]
    assert [(error.row, error.field) for error in report.errors] == [(2, "qid"), (3, "memory_id")]


def test_another_grade_of_the_same_judge_replaces_the_old_one_with_a_note(store, rows):
    store.add(rows(MEMORIES, (), [Query("q", "text")], [Judgment("q", "a", 1), Judgment("q", "b", 0)]))
    report = store.add(rows((), (), (), [Judgment("q", "a", 3), Judgment("q", "a", 2, "Bo"), Judgment("q", "b", 0)]))
    assert report.judgments == RowCounts(added=1, updated=1, unchanged=1)
    assert report.notes == ("judgment q / a by human: grade 1 (from test) replaced by 3",)
    assert store.judgments.read("q") == [Judgment("q", "a", 2, "Bo"), Judgment("q", "a", 3), Judgment("q", "b", 0)]
    assert store.judgments.read("other") == []


def test_a_judgment_can_be_taken_back(store, rows):
    store.add(rows(MEMORIES, (), [Query("q", "text")], [Judgment("q", "a", 2)]))
    assert store.judgments.remove("q", "a")
    assert not store.judgments.remove("q", "a")
    assert store.judgments.read() == []


def test_judgments_of_deleted_memories_are_absent(store, rows):
    store.add(rows(MEMORIES, (), [Query("q", "text")], [Judgment("q", "a", 1)]))
    store.memories.delete("a")
    assert store.judgments.read() == []


def test_judged_queries_are_counted_anew_only_where_something_was_written(store, rows, monkeypatch):
    judgments = [Judgment("q", "a", 1), Judgment("r", "b", 1)]
    store.add(rows(MEMORIES, (), [Query("q", "text"), Query("r", "other")], judgments))
    assert store.judgments.count_queries("human") == 2
    with monkeypatch.context() as patch:
        patch.setattr("cems_workbench.store.memories.live", lambda *_: pytest.fail("they were counted again"))
        assert store.judgments.count_queries("human") == 2
    store.judgments.remove("q", "a")
    assert store.judgments.count_queries("human") == 1
    store.memories.delete("b")
    assert store.judgments.count_queries("human") == 0
    store.add(rows((), (), [Query("s", "Where is Ann?", answerable=False)], []))
    assert store.judgments.count_queries("human") == 1
    assert [query.qid for query in store.queries.with_words("where is ann")] == ["s"]


def test_queries_round_trip_and_update(store, rows):
    from datetime import UTC, datetime

    asked = [Query("q1", "when?", "p", datetime(2024, 1, 1, tzinfo=UTC), "temporal"), Query("q2", "what?")]
    assert store.add(rows((), (), asked)).queries == RowCounts(added=2)
    assert store.queries.read() == asked
    assert store.add(rows((), (), [Query("q2", "how?")])).queries == RowCounts(updated=1)
    assert store.queries.read()[1] == Query("q2", "how?")


def test_scores_are_cached_by_model_query_and_exact_text_with_what_the_model_said(store):
    half, low = PairScore(0.5, detail={"outcome": "yes and no"}), PairScore(-3.0)
    store.scores.of("model@1", "q").write([("text", half), ("other", low)])
    assert store.scores.of("model@1", "q").read(["other", "text", "Text", "text"]) == [low, half, None, half]
    assert store.scores.of("model@2", "q").read(["text"]) == [None]
    assert store.scores.of("model@1", "r").read(["text"]) == [None]
    store.scores.of("model@1", "q").write([("text", PairScore(0.75))])
    assert store.scores.of("model@1", "q").read(["text"]) == [PairScore(0.75)]


def test_a_score_that_an_earlier_version_kept_for_a_reply_without_an_answer_is_asked_anew(store):
    kept = [
        ("text", PairScore(0.5, detail={"outcome": "uncertain"})),
        ("read", PairScore(0.8, detail={"truncated": True})),
    ]
    store.scores.of("m", "q").write(kept)
    assert store.scores.of("m", "q").read(["text", "read"]) == [None, kept[1][1]]


@pytest.mark.parametrize(
    "bad",
    [PairScore(math.nan), PairScore(math.inf), PairScore(-math.inf), PairScore(None), PairScore(0.5, "timeout: 30 s")],
)
def test_failures_and_scores_that_are_not_finite_are_never_cached(store, bad):
    store.scores.of("m", "q").write([("bad", bad), ("good", PairScore(1.0))])
    assert store.scores.of("m", "q").read(["bad", "good"]) == [None, PairScore(1.0)]


def test_of_many_judged_memories_the_deleted_ones_are_left_out_too(store, rows):
    names = [f"m{number}" for number in range(MANY_IDS + 1)]
    judged = [Judgment("q", name, 1) for name in names]
    store.add(rows([Memory(name, name) for name in names], queries=[Query("q", "what?")], judgments=judged))
    store.memories.delete("m7")
    assert {one.memory_id for one in store.judgments.read()} == {*names} - {"m7"}


@pytest.mark.parametrize("most", [0, 250_000])
def test_superseding_edges_are_read_along_the_chain_in_every_kind(store, rows, monkeypatch, most):
    monkeypatch.setattr("cems_workbench.store.relations.MOST_CACHED", most)
    memories = tuple(Memory(name, f"text of {name}", project="p") for name in "abcde")
    edges = [
        Relation("b", "a", "supersedes"),
        Relation("b", "c", "replaced_by"),
        Relation("d", "c", "related"),
        Relation("a", "e", "superseded_by"),
    ]
    store.add(rows(memories, edges))
    assert store.relations.has_superseding()
    found = store.relations.superseding(["a", "d"])
    assert [(edge.older, edge.newer, edge.kind) for edge in found] == [
        ("a", "b", "supersedes"),
        ("a", "e", "superseded_by"),
        ("b", "c", "replaced_by"),
    ]
    assert {(edge.live, edge.project, edge.scope) for edge in found} == {(True, "p", "personal")}
    store.memories.delete("b")
    assert [edge.newer for edge in store.relations.superseding(["a"]) if edge.live] == ["e", "c"]
    assert store.relations.superseding(["d"]) == []


MEMORY = Memory(
    "m1",
    "Run make ship, then watch the logs.",
    "Deploy",
    category="howto",
    project="acme/web",
    tags=("ops", "ci"),
    created_at=datetime(2026, 3, 1, 12, tzinfo=UTC),
)
CONTENT = TextRule(title=False)


def texts(store) -> dict[str, str]:
    return {document.id: document.text for document in store.indexes.documents()}


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (DEFAULT_TEXT_RULE, "Deploy. Run make ship, then watch the logs."),
        (CONTENT, "Run make ship, then watch the logs."),
        (
            TextRule(fields=("category", "author", "tags", "created_at")),
            "category: howto\ntags: ops, ci\ncreated_at: 2026-03-01T12:00:00+00:00\nDeploy. Run make ship, then watch the logs.",
        ),
        (TextRule(title=False, first_tokens=3), "Run make ship"),
        (TextRule(fields=("project",), title=False, first_tokens=7), "project: acme/web\nRun"),
    ],
)
def test_searched_text_follows_the_rule(rule: TextRule, text: str) -> None:
    assert searched_text(MEMORY, rule) == text


def test_the_default_rule_makes_the_texts_of_before_and_the_same_labels_of_chunks() -> None:
    for memory in (MEMORY, replace(MEMORY, title=None), replace(MEMORY, content="Deploy now")):
        assert searched_text(memory) == titled(memory.title, memory.content)
        assert parts_to_cut(memory) == (memory.title, memory.content)
    assert rule_suffix(DEFAULT_TEXT_RULE) == "" != rule_suffix(CONTENT)


def test_chunks_have_lines_and_title_before_them_and_end_with_the_first_tokens() -> None:
    rule = TextRule(fields=("project",), first_tokens=9)
    assert chunk_text(MEMORY, "watch", rule) == "project: acme/web\nDeploy. watch"
    head, content = parts_to_cut(MEMORY, rule)
    assert head == "project: acme/web\nDeploy"
    assert MEMORY.content.startswith(content) and searched_text(MEMORY, rule).endswith(content) and content


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((True, ("projct",), None), "did you mean project"),
        ((True, ("tags", "tags"), None), "tags is there twice"),
        ((True, (), 0), "is not in 1 to"),
    ],
)
def test_a_rule_that_cannot_be_is_one_line(arguments, said: str) -> None:
    with pytest.raises(InputError, match=said):
        known_text_rule(*arguments)


def test_a_chosen_rule_is_kept_and_changes_what_is_searched(store) -> None:
    plain = Memory("m2", "No title at all.")
    store.add(ParsedInput("a.jsonl", "memories-jsonl", memories=(MEMORY, plain)))
    version = store.content_version
    assert store.texts.rule == DEFAULT_TEXT_RULE and not store.texts.choose(DEFAULT_TEXT_RULE)
    assert store.texts.choose(CONTENT) and store.texts.rule == CONTENT
    assert store.content_version == version + 1
    assert texts(store) == {"m1": MEMORY.content, "m2": plain.content}
    # An input that was imported before is unchanged under the new rule too.
    assert store.add(ParsedInput("a.jsonl", "memories-jsonl", memories=(MEMORY, plain))).memories.unchanged == 2
    assert store.texts.choose(TextRule(fields=("project",)))
    assert texts(store)["m1"] == "project: acme/web\nDeploy. Run make ship, then watch the logs."
    store.memories.update(replace(MEMORY, project="acme/api"), MEMORY)
    assert texts(store)["m1"].startswith("project: acme/api\n")


def test_a_change_past_the_first_tokens_is_stored(store) -> None:
    store.texts.choose(TextRule(title=False, first_tokens=2))
    store.add(ParsedInput("a.jsonl", "memories-jsonl", memories=(Memory("m", "one two three four"),)))
    report = store.add(ParsedInput("a.jsonl", "memories-jsonl", memories=(Memory("m", "one two three five"),)))
    assert report.memories.updated == 1
    assert store.memories.read()["m"].content == "one two three five"


def test_scores_written_together_are_known_at_once_and_cached_also_after_an_error(store):
    cache = store.scores.of("m", "q")
    with pytest.raises(KeyboardInterrupt), cache.together(3):
        for n in range(4):
            cache.write([(f"text {n}", PairScore(float(n)))])
            assert cache.read([f"text {n}"]) == [PairScore(float(n))]
            cached = store.scores.of("m", "q").read([f"text {each}" for each in range(4)])
            assert cached == [PairScore(float(each)) if n >= 2 and each <= 2 else None for each in range(4)]
        raise KeyboardInterrupt
    assert store.scores.of("m", "q").read(["text 3"]) == [PairScore(3.0)]
