"""A team's database: what several stores share, what happens while it is away or falls, and what is never said of it.

`forgotten` on a store whose labels are a team's.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import psycopg
import pytest

from benchmarks.team import measured
from cems_workbench.errors import InputError, StoreError
from cems_workbench.evaluation.labelling.pooling import PooledPair
from cems_workbench.evaluation.labelling.queue import LabelQueue, make_queue
from cems_workbench.jobs.store_status import team_status
from cems_workbench.platform.waiting import NOTICES
from cems_workbench.records import Judgment, Memory, ParsedInput, Query
from cems_workbench.settings import Settings
from cems_workbench.store import Store
from cems_workbench.store.claims import CLAIM_TIMEOUT_S
from cems_workbench.store.team import TABLES, TeamAwayError
from tests.integration.postgres_server import Server
from tests.integration.team.conftest import PASSWORD
from tests.integration.test_audit_servers import ASKED, SAID, imported, memories
from workbench_team import postgres
from workbench_team.postgres import PostgresTables

if TYPE_CHECKING:
    from conftest import Command


Opener = Callable[[str], Store]
MEMORIES = tuple(Memory(f"m{n}", f"text {n}") for n in range(6))
QUERIES = (Query("q", "what?"), Query("r", "who?"))
FILLED = ParsedInput("t.jsonl", "t", memories=MEMORIES, queries=QUERIES)


@pytest.fixture
def two(open_store: Opener) -> tuple[Store, Store]:
    """Two stores of one team, of which the second has the first three memories only."""
    first, second = open_store("first"), open_store("second")
    first.add(FILLED)
    second.add(ParsedInput("t.jsonl", "t", memories=MEMORIES[:3]))
    return first, second


def label(store: Store, memory_id: str, grade: int, judge: str = "Ann", qid: str = "q") -> None:
    store.labels.give(Judgment(qid, memory_id, grade, judge))


def said(store: Store) -> dict[tuple[str, str, str], int]:
    return {(one.qid, one.memory_id, one.judge): one.grade for one in store.judgments.read()}


def test_the_tables_of_a_team_are_those_of_a_store(prepared: str, server: Server, empty_store: Path) -> None:
    """By name, columns, types, what may be null, and keys; which is what one set of statements needs."""
    with duckdb.connect(str(empty_store / "workbench.duckdb"), read_only=True) as own:
        columns = own.execute(
            "SELECT table_name, column_name, data_type, is_nullable FROM duckdb_columns() WHERE table_name IN (SELECT unnest(?))",
            [list(TABLES)],
        ).fetchall()
        keys = dict(
            own.execute(
                "SELECT table_name, constraint_column_names FROM duckdb_constraints() WHERE constraint_type = 'PRIMARY KEY'"
            ).fetchall()
        )
    with server.connect("team") as connection:
        there = connection.execute(
            "SELECT table_name, column_name, data_type, is_nullable = 'YES' FROM information_schema.columns "
            "WHERE table_schema = 'cems_workbench'"
        ).fetchall()
        their_keys = connection.execute(
            "SELECT c.relname, array_agg(a.attname::text ORDER BY array_position(i.indkey::int2[], a.attnum)) FROM pg_index AS i "
            "JOIN pg_class AS c ON c.oid = i.indrelid JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = ANY(i.indkey) "
            "WHERE i.indisprimary AND c.relnamespace = 'cems_workbench'::regnamespace GROUP BY c.relname"
        ).fetchall()
    names = {"VARCHAR": "text", "TIMESTAMP": "timestamp without time zone"}
    assert {(*row[:2], names.get(row[2], row[2].lower()), row[3]) for row in columns} == {
        row for row in there if row[0] in TABLES
    }
    assert {name: keys[name] for name in TABLES} == {name: key for name, key in their_keys if name in TABLES}


def test_a_label_of_one_store_is_seen_in_the_other_which_says_what_it_cannot_show(two) -> None:
    first, second = two
    label(first, "m0", 2)
    label(second, "m1", 3, "Bo")
    label(first, "m5", 1)
    assert said(first) == {("q", "m0", "Ann"): 2, ("q", "m1", "Bo"): 3, ("q", "m5", "Ann"): 1}
    assert said(second) == {("q", "m0", "Ann"): 2, ("q", "m1", "Bo"): 3}
    assert team_status(first) == []
    assert team_status(second) == [
        "kept but not shown here: 1 judgment of the team, of 1 memory that this store does not have"
    ]
    with pytest.raises(InputError, match="no memory 'm5' in the store"):
        label(second, "m5", 0, "Bo")
    second.memories.delete("m0")
    assert ("q", "m0", "Ann") not in said(second) and ("q", "m0", "Ann") in said(first)


def test_two_stores_deal_no_card_twice_and_a_claim_ends_with_time(two, server: Server) -> None:
    first, second = two
    pairs = [PooledPair("q", f"m{n}", {"a": 1}) for n in range(3)]
    first.queues.save(make_queue("work", pairs, "top"))
    one, other = LabelQueue(first, "work"), LabelQueue(second, "work")
    dealt = [one.deal("Ann")[0], other.deal("Bo")[0], one.deal("Cy")[0], other.deal("Di")[0]]
    assert [card and card.memory.id for card in dealt] == ["m0", "m1", "m2", None]
    second.queues.claims.release("Bo")
    assert other.deal("Di")[0] == dealt[1]
    with server.connect("team") as connection:
        connection.execute(
            f"UPDATE cems_workbench.label_claims SET since = since - interval '{CLAIM_TIMEOUT_S} s' WHERE reviewer = 'Cy'"
        )
    assert other.deal("Ed")[0] == dealt[2]


def test_queries_and_judgments_of_an_import_go_to_the_team_and_the_rest_stays(two) -> None:
    first, second = two
    report = second.add(
        ParsedInput(
            "more.jsonl",
            "t",
            memories=(Memory("x", "new"),),
            queries=(Query("s", "where?"),),
            judgments=(Judgment("s", "x", 3, "Bo"), Judgment("s", "nowhere", 1, "Bo")),
        )
    )
    assert (report.memories.added, report.queries.added, report.judgments.added) == (1, 1, 1)
    assert [error.reason for error in report.errors] == ["no memory 'nowhere' in the store; import it first"]
    assert {query.qid for query in first.queries.read()} == {"q", "r", "s"}
    assert first.query_sets.get("more").size == 1 and first.memories.get("x") is None


@contextmanager
def away(server: Server) -> Iterator[threading.Event]:
    """The database lets nobody in, and ends whoever is connected, until the event is set or the block ends."""
    back = threading.Event()
    returning = threading.Thread(target=lambda: (back.wait(), again(server)))
    with server.connect() as connection:
        connection.execute("ALTER DATABASE team ALLOW_CONNECTIONS false")
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'team'")
        returning.start()
        try:
            yield back
        finally:
            back.set()
            returning.join()


def again(server: Server) -> None:
    with server.connect() as connection:
        connection.execute("ALTER DATABASE team ALLOW_CONNECTIONS true")


def test_a_label_given_while_the_database_is_away_is_stored_once_it_is_back(two, server: Server, monkeypatch) -> None:
    first, _ = two
    told: list[str] = []
    with away(server) as back:
        monkeypatch.setattr(NOTICES, "_notifier", lambda line: (told.append(line), back.set()))
        label(first, "m0", 2)
        assert first.labels.undo("Ann") is not None
        label(first, "m1", 1)
    assert said(first) == {("q", "m1", "Ann"): 1}
    assert [event.action for event in first.labels.history("Ann")] == ["label", "undo", "label"]
    assert told and told[0].startswith("waiting for the team's database postgresql://team@/team?host=")


def test_who_waits_too_long_is_told_so_in_a_line_and_at_once_from_then_on(two, server: Server, monkeypatch) -> None:
    first, _ = two
    monkeypatch.setattr(postgres, "ACQUIRE_TIMEOUT_S", 0.2)
    monkeypatch.setattr(postgres, "AWAY_TIMEOUT_S", 0.0)
    with away(server), pytest.raises(StoreError) as caught:
        label(first, "m0", 2)
    words = str(caught.value)
    assert "is away" in words and words.endswith("nothing was stored, try again when it is back")
    assert PASSWORD not in words and caught.value.__cause__ is None
    label(first, "m0", 2)
    assert said(first) == {("q", "m0", "Ann"): 2}


@pytest.mark.parametrize("committed", [True, False])
def test_a_connection_that_breaks_at_the_commit_leaves_one_label(two, monkeypatch, committed: bool) -> None:
    """The server is done or not done with it, and its answer never comes: nothing is lost, and nothing is there twice."""
    first, _ = two
    send, broken = PostgresTables._send, []

    def breaking(self: PostgresTables, connection: psycopg.Connection, statement: str) -> None:
        if statement == "COMMIT" and not broken:
            broken.append(True)
            if committed:
                send(self, connection, statement)
            postgres._close_quietly(connection)
            connection.execute("SELECT 1")
        send(self, connection, statement)

    monkeypatch.setattr(PostgresTables, "_send", breaking)
    first.labels.skip("q", "m0", "Ann")
    assert broken
    assert [event.action for event in first.labels.history("Ann")] == ["skip"]


def test_two_threads_that_give_one_label_make_one_event(two) -> None:
    first, second = two
    start = threading.Barrier(8)

    def give(store: Store) -> None:
        start.wait()
        label(store, "m0", 2)

    threads = [threading.Thread(target=give, args=(store,)) for store in (first, second) * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(first.labels.history("Ann")) == 1


def test_another_version_of_the_tables_is_one_line_also_while_it_is_open(two, server: Server) -> None:
    first, _ = two
    label(first, "m0", 2)
    with server.connect("team") as connection:
        connection.execute("UPDATE cems_workbench.team_meta SET value = '99' WHERE key = 'schema'")
    try:
        for call in (lambda: label(first, "m1", 2), first.judgments.read):
            with pytest.raises(StoreError, match=r"has schema 99, this version reads \d+: update cems-workbench"):
                call()
    finally:
        with server.connect("team") as connection:
            connection.execute(
                "UPDATE cems_workbench.team_meta SET value = %s WHERE key = 'schema'",
                [str(max(postgres.migrations("workbench_team")))],
            )
    assert said(first) == {("q", "m0", "Ann"): 2}


def test_tables_of_an_earlier_version_are_brought_up_to_date(team, server, tmp_path, monkeypatch):
    latest = max(postgres.migrations("workbench_team"))
    (tmp_path / "next.sql").write_text("ALTER TABLE queries ADD COLUMN colour text", "utf-8")
    known = {**postgres.migrations("workbench_team"), latest + 1: tmp_path / "next.sql"}
    monkeypatch.setattr(postgres, "migrations", lambda folder: known)
    try:
        with server.connect("team") as connection:
            assert f"schema {latest + 1}" in PostgresTables(team).state().line
            assert connection.execute("SELECT colour FROM cems_workbench.queries").fetchall() == []
    finally:
        with server.connect("team") as connection:
            connection.execute("ALTER TABLE cems_workbench.queries DROP COLUMN colour")
            connection.execute("UPDATE cems_workbench.team_meta SET value = %s WHERE key = 'schema'", [str(latest)])


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("mysql://u:hunter2@h/d", "is not the address of a PostgreSQL"),
        ("postgresql://u:hunter2@h:port/d", "is not the address of a PostgreSQL"),
        ("postgresql://u:hunter2@h/d?hunter2=1", "is not the address of a PostgreSQL"),
    ],
)
def test_what_is_no_address_is_refused_without_being_repeated(tmp_path: Path, address: str, words: str) -> None:
    with pytest.raises((InputError, StoreError), match=words) as caught:
        Store.open(tmp_path / "s", team=address).judgments.read()
    assert "hunter2" not in repr(caught.value) + repr(caught.value.__cause__)


def test_a_password_is_in_no_message_log_or_error(team: str, empty_store: Path, tmp_path: Path, caplog) -> None:
    wrong = team.replace(PASSWORD, "wrong-secret").replace("team@", "team:wrong-secret@")
    caplog.set_level(logging.DEBUG)
    with Store.open(tmp_path / "s", team=wrong) as store, pytest.raises(StoreError) as caught:
        store.judgments.read()
    error: BaseException | None = caught.value
    while error is not None:
        assert "wrong-secret" not in f"{error!r} {error}" and not isinstance(error, psycopg.Error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    assert "password authentication failed" in str(caught.value) and "wrong-secret" not in caplog.text
    assert PASSWORD not in PostgresTables(team).place
    with Store.open(tmp_path / "s", team=team) as store:
        store.add(FILLED)
        label(store, "m0", 2)
        assert PASSWORD not in f"{store.team.state()} {team_status(store)}"
    assert "hunter2" not in repr(Settings(team=team)) + caplog.text
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and b"hunter2" in file.read_bytes()]


def test_a_text_that_postgres_does_not_keep_is_one_line(two) -> None:
    first, _ = two
    for words in ("a\x00b", "half \ud83d"):
        with pytest.raises((InputError, StoreError), match="PostgreSQL cannot store"):
            first.query_sets.put("set", [Query("bad", words)], "source")
    assert "set" not in [each.name for each in first.query_sets.latest()]


def own_store(folder: Path) -> None:
    """A store that was worked with before there was a team."""
    with Store.open(folder) as own:
        own.add(FILLED)
        own.queues.save(make_queue("work", [PooledPair("q", "m0", {"a": 1})], "top"))
        for memory_id, grade in (("m0", 2), ("m0", 3), ("m1", 1)):
            label(own, memory_id, grade)
        own.labels.undo("Ann")
        own.labels.skip("r", "m2", "Bo")
        own.decisions.decide("q", "m0", 1, "Ann")
        own.configs.add("mine", "name: mine", author="Ann")
        own.holdouts.look("t", ["q"], "Ann")
        own.supersessions.decide("m1", "m0", "accepted", "Ann")
        own.supersessions.decide("m2", "m0", "rejected", "Bo")
        own.supersessions.undo("Bo")


def test_a_push_copies_what_a_store_has_and_again_copies_nothing(team: str, tmp_path: Path) -> None:
    own_store(tmp_path / "s")
    with Store.open(tmp_path / "s", team=team) as store:
        assert team_status(store) and store.judgments.read() == []
        first = {row.what: (row.copied, row.there, row.left) for row in store.push().rows}
        assert first == {
            "queries": (2, 0, 0),
            "query sets": (1, 0, 0),
            "judgments": (1, 0, 0),
            "steps of labels' history": (5, 0, 0),
            "decisions": (1, 0, 0),
            "labelling queues": (1, 0, 0),
            "configs and experiments": (1, 0, 0),
            "counts of looks at hold-outs": (2, 0, 0),
            "decisions on supersession": (2, 0, 0),
        }
        assert [(one.newer, one.author) for one in store.supersessions.standing()] == [("m1", "Ann")]
        assert team_status(store) == [] and said(store) == {("q", "m0", "Ann"): 3}
        before = dict(store.team.state().counts)
        again = store.push()
        assert {row.copied for row in again.rows} == {0} and again.lines == []
        assert dict(store.team.state().counts) == before
        assert store.labels.undo("Ann").grade == 3 and said(store) == {("q", "m0", "Ann"): 2}
        assert [row.copied for row in store.push().rows] == [0] * 9, "what the team took back is not brought back"
        assert said(store) == {("q", "m0", "Ann"): 2} and store.holdouts.count("t", ["q"]) == 1
    with Store.open(tmp_path / "s") as own:
        own.query_sets.put("set", [replace(QUERIES[0], answer="that"), QUERIES[1]], "later")
    with Store.open(tmp_path / "s", team=team) as store:
        assert store.push().rows[0].copied == 1 and store.queries.read()[0].answer == "that"


def test_of_two_states_of_one_label_the_later_stands_and_another_query_of_that_id_stays_behind(two, team, tmp_path):
    first, _ = two
    label(first, "m1", 3)
    own_store(tmp_path / "own")  # later: m0 3, m1 given and taken back
    with Store.open(tmp_path / "own") as own:
        own.query_sets.put("t", [Query("r", "whom?")], "changed")
        label(own, "m3", 1, qid="r")
        own.holdouts.look("t", ["q"])
    label(first, "m0", 0)  # later still
    with Store.open(tmp_path / "own", team=team) as store:
        report = store.push()
        assert said(store) == {("q", "m0", "Ann"): 0}
        assert report.lines == [
            "query r is a different query at the team; it and its judgments are not pushed",
            "Ann gave q m0 3 here, and later 0 there, which stands",
            "Ann's label of q m1 was taken back here, and is now there too",
        ]
        assert [query.query for query in store.query_sets.queries("t")] == ["what?", "who?"]
        assert store.holdouts.count("t", ["q"]) == 2
    with Store.open(tmp_path / "own") as own:
        own.holdouts.look("t", ["q"])
    with Store.open(tmp_path / "own", team=team) as store:
        store.push()
        assert store.holdouts.count("t", ["q"]) == 3


def test_without_a_team_there_is_nothing_to_push_to(empty_store: Path) -> None:
    with Store.open(empty_store) as store, pytest.raises(InputError, match="CEMS_WORKBENCH_TEAM"):
        store.push()


def test_a_database_that_falls_while_eight_people_label_loses_and_doubles_nothing(team, server, tmp_path):
    outcome = measured(48, 2, 8, 0, server, tmp_path, team, kill=False)
    assert (outcome.labels, outcome.lost, outcome.doubled, outcome.unconfirmed) == (48, 0, 0, 0), outcome
    assert len(outcome.restarts) == 1


def test_a_change_that_a_crash_lost_is_not_taken_for_stored_though_its_number_is_another_ones_now(team, server):
    """A number that was not on disk yet is given again after a crash, and what became of it is told of the other one."""
    first, others = PostgresTables(team), PostgresTables(team)

    def last(tables: PostgresTables) -> int:
        with tables.transaction() as session:
            return int(session.rows("SELECT pg_current_xact_id()::text")[0][0])

    def put(number: int) -> None:
        with first.transaction(of="Ann") as session:
            session.change("INSERT INTO label_claims VALUES ('Ann', 'q', 'm', localtimestamp)")
            server.restart("immediate")
            while last(others) < number:
                pass

    with pytest.raises(TeamAwayError):
        put(last(others) + 1)
    with others.reading() as session:
        assert session.rows("SELECT * FROM label_claims") == []
    for tables in (first, others):
        tables.close()


def test_an_erased_memory_is_gone_from_the_labels_of_a_team(
    command: Command, team: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CEMS_WORKBENCH_TEAM", team)
    memories(command, tmp_path)
    imported(command, tmp_path, "queries", ASKED)
    note = f"as it says: {SAID['m2'][1]}"
    judged = {"qid": "q1", "grade": 0, "judge": "me", "kind": "human"}
    imported(
        command,
        tmp_path,
        "judgments",
        judged | {"memory_id": "m2", "note": note},
        judged | {"memory_id": "m1", "note": "right"},
    )
    dry = json.loads(command("forgotten", "m2", "--erase", "--store", tmp_path / "s", "--json").out)["rows"]
    assert dry["team judgments"] == 1 and dry["memories"] == 1
    erased = command("forgotten", "m2", "--erase", "--apply", "--store", tmp_path / "s", "--json")
    receipt = json.loads(erased.out)
    assert erased.code == 0, [one for one in receipt["places"] if one["holds"] or one.get("problem")]
    assert any(one["name"] == "team judgments" and one["names"] == 1 for one in receipt["places"]), "the grade stays"
