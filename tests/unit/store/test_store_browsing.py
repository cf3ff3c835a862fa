"""Finding memories by literal text and filters, page by page; editing one; listing what was deleted."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from cems_workbench.errors import StoreError
from cems_workbench.records import Judgment, Memory, Query, Relation
from cems_workbench.store import Selection, Store, memories
from cems_workbench.store.statistics import SORTS

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


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("äPFEL", ["a"]),
        ("fruit", ["a"]),
        ("100%", ["a"]),
        ("%", ["a"]),
        ("a_b", ["b"]),
        ("[x] \\d+", ["b"]),
        ("garden, SHED", ["b"]),
        ('"quotes"', ["b"]),
        ('", "', []),
        ("' OR 1=1 --", []),
        ("third", ["c"]),
        ("fruit100", []),
        ("FRUIT", ["a"]),
    ],
)
def test_text_is_looked_for_literally_in_id_title_content_and_tags(filled, text, ids):
    assert found(filled, text=text) == ids


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


@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize("sort", SORTS)
def test_pages_of_what_a_text_finds_are_those_of_all_in_the_same_order_and_so_are_early_pages(
    store, rows, sort, descending, monkeypatch
):
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
    for offset in range(0, 35, 7):
        everything = store.memories.find(Selection(sort=sort, descending=descending), 7, offset)
        assert everything == store.memories.find(Selection("x", sort=sort, descending=descending), 7, offset)
        with monkeypatch.context() as early:
            early.setattr(memories, "EARLY_PAGE_FACTOR", 0)
            store.memories.forget()
            assert everything == store.memories.find(Selection(sort=sort, descending=descending), 7, offset)


@pytest.mark.parametrize("sort", SORTS)
def test_of_a_text_that_many_have_a_page_is_there_before_they_are_counted(store, rows, sort, monkeypatch):
    store.add(rows([Memory(f"m{i * 7 % 30:02}", "x" * (i % 5 + 1), access_count=i % 4) for i in range(30)]))
    selection = Selection("XX", sort=sort)
    assert store.memories.soon(selection, 7) is None  # so few are looked through as soon
    pages = [store.memories.find(selection, 7, offset) for offset in range(0, 28, 7)]
    assert [len(page.memories) for page in pages] == [7, 7, 7, 3]
    monkeypatch.setattr(memories, "LARGE_STORE_ROWS", 0)
    store.memories.forget()
    soon = [store.memories.soon(selection, 7, offset) for offset in range(0, 28, 7)]
    assert soon[0] == pages[0].memories and soon[3] is None
    assert all(rows is None or rows == page.memories for rows, page in zip(soon, pages, strict=True))
    assert store.memories.soon(Selection("xxxxx", projects=("none",)), 7) is None
    assert [store.memories.find(selection, 7, offset) for offset in range(0, 28, 7)] == pages


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


def test_a_store_is_recognised_by_its_file(store, tmp_path):
    assert Store.exists(store.path)
    assert not Store.exists(tmp_path / "elsewhere")
