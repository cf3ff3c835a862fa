"""What goes into the store comes out of it."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone

import pytest

from cems_workbench.progress import Cancelled
from cems_workbench.records import Memory, indexed_text
from cems_workbench.store import Filter, RowCounts
from cems_workbench.store import memories as memories_table

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


@pytest.mark.parametrize("change", [{"tags": ("t",)}, {"pinned": True}, {"project": "p"}, {"created_at": NOON}])
def test_a_change_of_any_field_is_an_update(store, rows, change):
    store.add(rows([Memory("a", "1")]))
    assert store.add(rows([Memory("a", "1", **change)])).memories.updated == 1
    assert store.memories.get("a") == Memory("a", "1", **change)


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


def test_content_of_ten_megabytes(store, rows):
    content = "long story " * 1_000_000
    store.add(rows([Memory("big", content)]))
    assert store.memories.get("big").content == content


def test_a_row_repeating_an_id_with_other_values_is_reported_and_the_first_kept(store, rows):
    report = store.add(rows([Memory("a", "first"), Memory("a", "second"), Memory("a", "first")]))
    assert store.memories.get("a").content == "first"
    assert [(error.row, "row 1" in error.reason) for error in report.errors] == [(2, True)]


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


def test_projects_are_counted_most_first(store, rows):
    store.add(rows([Memory(str(i), "x", project=p) for i, p in enumerate(["b", "b", "a", None])]))
    assert store.memories.projects() == [("b", 2), ("a", 1), (None, 1)]


@pytest.mark.parametrize(
    ("title", "content", "text"),
    [
        (None, "body", "body"),
        ("", "body", "body"),
        ("Title", "body", "Title. body"),
        ("Title", "Title: body", "Title: body"),
    ],
)
def test_indexed_text_puts_the_title_first_unless_the_content_opens_with_it(title, content, text):
    assert indexed_text(Memory("m", content, title=title)) == text


def test_bulk_reading_does_not_go_row_by_row(store, rows):
    store.add(rows([Memory(f"m{i:05d}", f"content {i}" * 5) for i in range(20_000)]))
    wanted = [f"m{i:05d}" for i in range(0, 20_000, 67)]
    store.memories.read(wanted)
    started = time.perf_counter()
    assert len(store.memories.read(wanted)) == len(wanted)
    assert time.perf_counter() - started < 0.25, "300 of 20,000 take about 6 ms; row by row they take 300"


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
