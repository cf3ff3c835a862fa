"""The numbered .sql files: a store that older code left opens with everything it had, and its tables are those of a new one.

`schema_8.sql` is a store of commit c3d5208, the last of schema 8: its tables as DuckDB reports them, and the rows of a small use.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path

import duckdb
import pytest

from cems_workbench.models.protocol import PairScore
from cems_workbench.records import DEFAULT_SCALE, Judgment, Memory, ParsedInput, Query, Relation
from cems_workbench.store import ImportOptions, Selection, Store
from cems_workbench.store.query_sets import digest
from cems_workbench.store.schema import migrations

OLD = Path(__file__).with_name("schema_8.sql")
WHEN = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
DEPLOY = Memory(
    "m1",
    "Deploys run on Fridays",
    title="It's the Größe",
    category="fact",
    project="p",
    session="s",
    author="Ada",
    tags=("a", "ü"),
    priority=0.7,
    pinned=True,
    importance="high",
    created_at=WHEN,
    last_accessed=WHEN,
    access_count=3,
    relevant_count=2,
    noise_count=1,
    scope="shared",
    source_ref="project:x/y",
)
KAFKA = Memory("m2", "Kafka keeps the log")
Q1, Q2 = Query("q1", "when do we deploy?", "p", WHEN, "temporal"), Query("q2", "where is the Kafka log?")


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """The directory of the store of schema 8."""
    with duckdb.connect(str(tmp_path / "workbench.duckdb")) as database:
        database.execute(OLD.read_text("utf-8"))
    return tmp_path


def tables(directory: Path) -> dict[str, str]:
    """The statement that would make each table, by name, as DuckDB reports it."""
    with duckdb.connect(str(directory / "workbench.duckdb")) as database:
        return dict(database.execute("SELECT table_name, sql FROM duckdb_tables()").fetchall())


def test_the_files_number_the_schemas_without_a_gap():
    numbers = sorted(
        int(file.name[:4]) for file in files(migrations.__package__).iterdir() if file.name.endswith(".sql")
    )
    assert numbers == list(migrations.migrations()) == list(range(1, len(numbers) + 1))


def test_the_files_make_the_very_tables_that_schema_8_had(tmp_path, old, store_of_schema):
    store_of_schema(tmp_path / "made", 8)
    assert tables(tmp_path / "made") == tables(old)


def test_an_older_store_has_the_tables_of_a_new_one_once_it_was_opened(tmp_path, old):
    Store.open(old).close()
    Store.open(tmp_path / "new").close()
    assert tables(old) == tables(tmp_path / "new")


def test_what_was_imported_before_imports_were_recorded_is_replaced_only_when_told(old):
    edited, reworded = replace(KAFKA, content="another text"), replace(Q1, query="when are deploys?")
    with Store.open(old) as store:
        left = store.add(ParsedInput("m.jsonl", "t", memories=(DEPLOY, edited)))
        assert [error.reason for error in left.errors] == [
            "would replace memory 'm2', which an import that is not on record brought; --replace takes this row"
        ]
        assert left.memories.unchanged == 1
        taken = store.add(ParsedInput("m.jsonl", "t", memories=(DEPLOY, edited)), options=ImportOptions(replace=True))
        assert (taken.errors, taken.memories.updated) == ((), 1)
        # Of a query it is known which file put it into its set: that file changes it freely.
        asked = ParsedInput("team.jsonl", "t", queries=(reworded,))
        assert store.add(asked).queries.updated == 1
        for kind, former in (("queries", Q1), ("memories", KAFKA)):
            assert store.imports.undo().restored[kind] == 1
            assert former in (*store.queries.read(), *store.memories.read().values())
        assert store.imports.read()[0].undone_at is not None


def test_memories_relations_and_what_is_derived_from_them_stay(old):
    with Store.open(old) as store:
        assert (store.identity, store.content_version) == ("c5e62158c11b", 2)
        assert store.memories.read() == {"m1": DEPLOY, "m2": KAFKA}
        assert [(one.memory.id, one.memory.content) for one in store.memories.deleted(5)[0]] == [("m3", "thrown away")]
        assert [one.id for one in store.memories.find(Selection("gröSSE"), 5).memories] == ["m1"]
        assert [one.id for one in store.memories.find(Selection(sort="length"), 5).memories] == ["m1", "m2"]
        assert store.relations.read() == [Relation("m1", "m2", "related", 0.5)]
        assert store.scores.read("m@1", "q", ["text"]) == [PairScore(0.25, detail={"seconds": 1.5})]
        assert store.replies.read(("m", "p", "sha")) == "said"
        assert store.links.read("z4i4ggjh") == {"query": "q"}
        assert [(one.typo, one.correction, one.refused) for one in store.corrections.read()] == [
            ("kofka", "coffee", True),
            ("modle", "model", False),
        ]


def test_query_sets_stay_in_all_their_versions(old):
    with Store.open(old) as store:
        assert store.queries.read() == store.query_sets.queries("team") == [Q1, Q2]
        assert store.query_sets.queries("team", 1) == [Q1, Query("q2", "where is the log?")]
        latest = store.query_sets.get("team")
        assert (latest.version, latest.sources, latest.scale) == (2, ("team.jsonl", "typed"), DEFAULT_SCALE)
        assert latest.digest == digest([Q1, Q2], DEFAULT_SCALE)


def test_labels_stay_with_their_history_and_can_still_be_undone(old):
    with Store.open(old) as store:
        assert [(one.memory_id, one.judge, one.grade) for one in store.judgments.read("q1")] == [
            ("m1", "Ann", 0),
            ("m1", "human", 3),
            ("m2", "Ann", 1),
        ]
        assert store.judgments.read("q1")[1] == Judgment("q1", "m1", 3, "human", "human", WHEN, "sure")
        assert [(one.action, one.grade) for one in store.labels.history("Ann", "q1", "m2")] == [
            ("label", 0),
            ("label", 1),
        ]
        assert store.labels.marks() == []
        assert [(one.memory_id, one.grade, one.decided_by) for one in store.decisions.read()] == [("m1", 3, "Eve")]
        (queue,) = store.queues.read()
        assert (queue.name, queue.created_at, queue.overlap, queue.settings) == ("first", WHEN, 2, {"depth": 10})
        assert store.queues.pairs("first") == (("q1", "m1"), ("q2", "m2"))
        assert store.queues.rankings("first") == {"cems": {"q1": ("m1", "m2")}}
        assert store.labels.undo("Ann").memory_id == "m1" and store.labels.undo("Ann").memory_id == "m2"
        assert [one.grade for one in store.judgments.read("q1") if one.judge == "Ann"] == [0]


def test_kept_configs_and_experiments_keep_their_numbers_and_go_on_from_there(old):
    with Store.open(old) as store:
        tuned, base = store.configs.history()
        assert (base.id, base.name, base.config_yaml, base.base, base.author) == (
            1,
            "base",
            "name: base\n",
            None,
            "Ada",
        )
        assert (base.saved_at, base.why, base.card) == (WHEN, "", None)
        assert (tuned.id, tuned.base, tuned.author, tuned.why) == (2, "cems", "Bo", "temporal questions")
        assert tuned.card == {"measured": [{"metric": "nDCG@10"}]}
        experiments = store.configs.experiments()
        assert [(one.id, one.name, one.config_yaml) for one in experiments] == [
            (3, "try 3", "name: try3\n"),
            (2, "try 2", "name: try2\n"),
            (1, "try", "name: try\n"),
        ]
        assert (experiments[1].why, experiments[1].card) == (
            "note ü",
            {"configs": [{"config": "a"}], "query_set": "team"},
        )
        assert experiments[1].saved_at == datetime(2026, 11, 22, 18, 14, 53, 143178, tzinfo=UTC)
        assert store.configs.add("third", "", author="Cy").id == 3
        assert store.configs.add_experiment("fourth", "").id == 4
        assert [one.name for one in store.configs.history()] == ["third", "tuned", "base"]
        assert store.holdouts.count("team", ["q1"]) == 1 and store.holdouts.count("team", ["q1", "q2"]) == 2


def test_an_upgrade_that_fails_leaves_the_older_store_as_it_was(old, monkeypatch):
    before = tables(old)
    broken = old / "0009_broken.sql"
    broken.write_text("DROP TABLE experiments; SELECT nonsense FROM nowhere")
    scripts = migrations.migrations() | {9: broken}
    with monkeypatch.context() as patch:
        patch.setattr(migrations, "migrations", lambda: scripts)
        with pytest.raises(duckdb.Error, match="nowhere"):
            Store.open(old)
    assert tables(old) == before
    with Store.open(old) as store:
        assert len(store.configs.experiments()) == 3


def test_memories_of_a_store_without_validity_have_no_bounds_and_can_be_given_some(old):
    with Store.open(old) as store:
        before = store.memories.get("m2")
        assert (before.valid_from, before.valid_until, store.memories.any_validity()) == (None, None, False)
        until = replace(before, valid_until=WHEN)
        assert store.memories.update(until, before)
        assert store.memories.get("m2") == until and store.memories.any_validity()
        assert until.expired(WHEN) and not until.expired(WHEN - timedelta(seconds=1)) and not before.expired(WHEN)
