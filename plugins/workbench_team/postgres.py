"""The team's tables in PostgreSQL, for stores on several machines: `CEMS_WORKBENCH_TEAM=postgresql://USER@HOST/DATABASE`.

The tables are in the schema `cems_workbench`, created by the first store that connects. A writer holds an advisory lock during its
transaction: the global one, or one person's, so that reviewers do not wait for each other.

A transaction either commits or raises TeamAwayError. If the connection breaks during COMMIT, the outcome is read afterwards: by the
transaction's id whether it ended, and by a token that it wrote whether it committed. No error message contains the password.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from cems_workbench.errors import InputError, StoreError, WorkbenchError, one_line
from cems_workbench.platform.process_lock import ACQUIRE_TIMEOUT_S
from cems_workbench.platform.waiting import NOTICES, close_socket_after
from cems_workbench.store.claims import CLAIM_TIMEOUT_S, Choose, Pair
from cems_workbench.store.schema.migrations import migrations
from cems_workbench.store.team import ENV_VARIABLE, Row, SharedTables, TeamAwayError, TeamState, TeamTables, counts
from workbench_team.push import missing_queries, push

if TYPE_CHECKING:
    import duckdb
    import psycopg
    import pyarrow as pa

    Connection = psycopg.Connection[Row]


class TableClaims:
    """Claims in the table `label_claims` of a team's database, timed by that server's clock."""

    def __init__(self, team: TeamTables) -> None:
        self._team = team

    def claim(self, reviewer: str, choose: Choose) -> Pair | None:
        return self._team.persist(lambda: self._claimed(reviewer, choose))

    def _claimed(self, reviewer: str, choose: Choose) -> Pair | None:
        # A separate lock: claims wait for each other, not for the labels of other people.
        with self._team.transaction(of="claims") as session:
            rows = session.rows(
                "SELECT reviewer, qid, memory_id FROM label_claims "
                f"WHERE reviewer <> ? AND since > localtimestamp - INTERVAL '{CLAIM_TIMEOUT_S:g} seconds'",
                [reviewer],
            )
            chosen = choose({who: (qid, memory_id) for who, qid, memory_id in rows})
            if chosen is None:
                session.change("DELETE FROM label_claims WHERE reviewer = ?", [reviewer])
            else:
                session.change(
                    "INSERT INTO label_claims VALUES (?, ?, ?, localtimestamp) ON CONFLICT (reviewer) DO UPDATE SET "
                    "qid = excluded.qid, memory_id = excluded.memory_id, since = excluded.since",
                    [reviewer, *chosen],
                )
        return chosen

    def release(self, reviewer: str) -> None:
        def released() -> None:
            with self._team.transaction(of="claims") as session:
                session.change("DELETE FROM label_claims WHERE reviewer = ?", [reviewer])

        self._team.persist(released)


T = TypeVar("T")

SCHEMA = "cems_workbench"
ADDRESS_FORM = "postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
CONNECT_TIMEOUT_S, STATEMENT_TIMEOUT_S, LOCK_TIMEOUT_S, SILENCE_TIMEOUT_S = 5, 60, 30, 15
"""Time limits for connecting, for a statement, for waiting for a lock, and for a silent server beyond the statement's limit."""
MAX_IDLE_CONNECTIONS = 8
"""Idle connections that are kept open."""
RETRY_DELAYS_S = (0.1, 0.3, 0.6, 1.0)
"""Delays between retries; the last one repeats."""
TOKEN_MAX_AGE, PRUNE_INTERVAL = "1 day", 1_000
"""Lifetime of a transaction's token, and transactions between two cleanups by a process; a token is read within a minute."""
AWAY_TIMEOUT_S = 1.0
"""Retry time if the previous call already found the database unreachable."""
_TYPES = {
    "string": "text",
    "int64": "bigint",
    "bool": "boolean",
    "double": "double precision",
    "timestamp[us]": "timestamp",
}
_PERMANENT_ERRORS = ("password authentication failed", "no password supplied", "pg_hba.conf", "does not exist", "SSL")
"""Server messages of permanent errors, which are not retried."""


class PostgresSession:
    """A transaction of a team's database."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        with close_socket_after(self._connection.fileno(), STATEMENT_TIMEOUT_S + SILENCE_TIMEOUT_S):
            return self._connection.execute(_driver_sql(sql), list(values)).fetchall()

    def change(self, sql: str, values: Sequence[Any] = ()) -> int:
        with close_socket_after(self._connection.fileno(), STATEMENT_TIMEOUT_S + SILENCE_TIMEOUT_S):
            return self._connection.execute(_driver_sql(sql), list(values)).rowcount

    @contextmanager
    def staged(self, name: str, table: pa.Table) -> Iterator[None]:
        columns = ", ".join(f"{field.name} {_TYPES[str(field.type)]}" for field in table.schema)
        self.change(f"CREATE TEMPORARY TABLE {name} ({columns}) ON COMMIT DROP")
        with (
            close_socket_after(self._connection.fileno(), STATEMENT_TIMEOUT_S + SILENCE_TIMEOUT_S),
            self._connection.cursor() as cursor,
            cursor.copy(f"COPY {name} FROM STDIN".encode()) as copy,
        ):
            for row in zip(*(column.to_pylist() for column in table.columns), strict=True):
                copy.write_row(row)
        yield
        self.change(f"DROP TABLE {name}")


class PostgresTables:
    """The team's tables in PostgreSQL. It connects on first use."""

    def __init__(self, address: str) -> None:
        """Raises InputError, without the address in its message, for an invalid PostgreSQL address."""
        self._arguments = _arguments(address)
        self.place = _public_address(self._arguments)
        """The address without its password."""
        self.claims = TableClaims(self)
        self._idle: list[Connection] = []
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._prepared = False
        self._away = False
        self._retrying = threading.local()
        self._transactions = count()

    # Retrying

    def persist(self, call: Callable[[], T]) -> T:
        """See TeamTables. Gives up after ACQUIRE_TIMEOUT_S, or AWAY_TIMEOUT_S if the previous call gave up."""
        # A nested call: the outermost one retries, so that no transaction is repeated in part.
        if getattr(self._retrying, "until", None) is not None:
            return call()
        started = time.monotonic()
        waiting_since = NOTICES.clock()
        # While the database is away, each page must not wait the full time.
        self._retrying.until = started + (AWAY_TIMEOUT_S if self._away else ACQUIRE_TIMEOUT_S)
        try:
            for attempt in range(1_000_000):
                try:
                    result = call()
                except TeamAwayError as error:
                    now = time.monotonic()
                    if now > self._retrying.until:
                        self._away = True
                        raise StoreError(f"{error}; nothing was stored, try again when it is back") from None
                    NOTICES.say(self.place, f"the team's database {self.place}", waiting_since)
                    time.sleep(RETRY_DELAYS_S[min(attempt, len(RETRY_DELAYS_S) - 1)])
                else:
                    self._away = False
                    return result
            raise AssertionError("unreachable: the deadline ends the loop")
        finally:
            self._retrying.until = None

    @contextmanager
    def reading(self) -> Iterator[PostgresSession]:
        """See TeamTables. Raises TeamAwayError if a retry can succeed, else StoreError."""
        connection, _ = self._begin("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", "")
        with self._release_after(connection):
            yield PostgresSession(connection)
            self._send(connection, "ROLLBACK")

    @contextmanager
    def transaction(self, of: str = "") -> Iterator[PostgresSession]:
        """See TeamTables. Raises TeamAwayError if a retry can succeed, else StoreError."""
        whole = f"pg_advisory_xact_lock{'_shared' if of else ''}({_lock_number(SCHEMA)})"
        # One person's writer shares the global lock: it waits for global writers, not for other people.
        lock = f"SELECT {whole}" + (f"; SELECT pg_advisory_xact_lock({_lock_number(f'{SCHEMA}/{of}')})" if of else "")
        token = uuid4().hex
        # If the connection breaks during COMMIT, this row tells whether it committed.
        lock += f"; INSERT INTO team_commits VALUES ('{token}', localtimestamp)"
        if next(self._transactions) % PRUNE_INTERVAL == 0:
            lock += (
                "; DELETE FROM team_commits WHERE token IN (SELECT token FROM team_commits "
                # SKIP LOCKED: two cleanups at once must not wait for each other.
                f"WHERE at < localtimestamp - INTERVAL '{TOKEN_MAX_AGE}' FOR UPDATE SKIP LOCKED)"
            )
        connection, number = self._begin("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE", lock)
        with self._release_after(connection):
            yield PostgresSession(connection)
            import psycopg

            try:
                self._send(connection, "COMMIT")
            except psycopg.OperationalError as error:
                if not connection.closed or not self._was_committed(number, token):
                    raise self._convert_error(error) from None

    def beside(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """See TeamTables; always None, because these tables are in another database."""
        return None

    def version(self) -> tuple[object, ...]:
        """See TeamTables: the visible transactions, and the last token, because ids are reused after a crash."""
        with self.reading() as session:
            (found,) = session.rows(
                "SELECT pg_current_snapshot()::text, (SELECT token FROM team_commits ORDER BY at DESC, token LIMIT 1)"
            )
            return found

    def state(self) -> TeamState:
        """See TeamTables; without retries."""
        try:
            with self.reading() as session:
                ((version, schema),) = session.rows(
                    "SELECT current_setting('server_version'), (SELECT value FROM team_meta WHERE key = 'schema')"
                )
                return TeamState(
                    f"in the team's database {self.place}, PostgreSQL {version.split()[0]}, schema {schema}",
                    counts(session),
                )
        except TeamAwayError:
            self._away = True
            raise

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    # Transactions

    def _begin(self, begin: str, lock: str) -> tuple[Connection, str]:
        """A connection in a transaction, and the transaction's id if it writes; a lost idle connection is replaced."""
        import psycopg

        statements = [
            begin,
            f"SET LOCAL search_path = {SCHEMA}",
            f"SET LOCAL statement_timeout = '{STATEMENT_TIMEOUT_S}s'",
            f"SET LOCAL idle_in_transaction_session_timeout = '{STATEMENT_TIMEOUT_S}s'",
            f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_S}s'",
            lock,
            f"SELECT (SELECT value FROM team_meta WHERE key = 'schema'), {'pg_current_xact_id()::text' if lock else 'NULL'}",
        ]
        # One round trip to the server instead of seven.
        text = "; ".join(statement for statement in statements if statement)
        while True:
            kept = self._idle_connection()
            connection = kept or self._connect()
            try:
                with close_socket_after(connection.fileno(), STATEMENT_TIMEOUT_S + SILENCE_TIMEOUT_S):
                    cursor = connection.execute(text.encode())
                # Only the result of the last statement counts.
                while cursor.nextset():
                    pass
                ((schema, number),) = cursor.fetchall()
                _check_schema(schema, self.place)
            except psycopg.OperationalError as error:
                lost = connection.closed
                connection.close()
                # An idle connection may have been dropped long ago; a new one decides.
                if kept is not None and lost:
                    continue
                raise self._convert_error(error) from None
            except BaseException as error:
                connection.close()
                # The schema may have changed: the next connection checks it again.
                self._prepared = False
                if isinstance(error, psycopg.Error):
                    raise self._convert_error(error) from None
                raise
            return connection, str(number)

    @contextmanager
    def _release_after(self, connection: Connection) -> Iterator[None]:
        """Keep the connection if the transaction ended normally; otherwise close it, which ends the transaction."""
        import psycopg

        try:
            yield
        except psycopg.Error as error:
            # Closing it ends the transaction.
            _close_quietly(connection)
            raise self._convert_error(error) from None
        except UnicodeEncodeError:
            _close_quietly(connection)
            raise InputError(f"{self.place}: a text contains a lone surrogate, which PostgreSQL cannot store") from None
        except BaseException:
            _close_quietly(connection)
            raise
        with self._lock:
            if not connection.closed and len(self._idle) < MAX_IDLE_CONNECTIONS:
                self._idle.append(connection)
                return
        connection.close()

    def _send(self, connection: Connection, statement: str) -> None:
        with close_socket_after(connection.fileno(), STATEMENT_TIMEOUT_S + SILENCE_TIMEOUT_S):
            connection.execute(statement.encode())

    def _was_committed(self, number: str, token: str) -> bool:
        """The outcome of a transaction whose connection broke during COMMIT. Raises StoreError if it is not known in
        time. The id alone proves nothing: an id lost in a crash is reused by another transaction."""
        import psycopg

        until = time.monotonic() + ACQUIRE_TIMEOUT_S
        for attempt in range(1_000_000):
            with suppress(TeamAwayError, psycopg.OperationalError):
                connection = self._connect()
                try:
                    ((became,),) = connection.execute(
                        f"SELECT pg_xact_status('{int(number)}'::xid8)".encode()
                    ).fetchall()
                    # A separate statement: the snapshot of the previous one may be older than the status that it returned.
                    ((there,),) = connection.execute(
                        f"SELECT EXISTS (SELECT 1 FROM {SCHEMA}.team_commits WHERE token = %s)".encode(), [token]
                    ).fetchall()
                finally:
                    connection.close()
                if became in ("committed", "aborted"):
                    return bool(there)
            if time.monotonic() > until:
                break
            time.sleep(RETRY_DELAYS_S[min(attempt, len(RETRY_DELAYS_S) - 1)])
        raise StoreError(
            f"{self.place}: the connection broke during a commit, and it is unknown whether the change was stored; "
            "check when the database is back"
        )

    # Connections

    def _idle_connection(self) -> Connection | None:
        with self._lock:
            if self._process != os.getpid():  # forked: these connections are the parent's
                self._process, self._idle = os.getpid(), []
            return self._idle.pop() if self._idle else None

    def _connect(self) -> Connection:
        """A new connection; creates or migrates the tables if necessary."""
        import psycopg

        try:
            # No prepared statements: a pooler may give each transaction another server connection.
            connection = psycopg.connect(**self._arguments, autocommit=True, prepare_threshold=None)
        except psycopg.OperationalError as error:
            raise self._convert_error(error) from None
        if not self._prepared:
            try:
                self._prepare(connection)
                self._prepared = True
            except psycopg.Error as error:
                connection.close()
                raise self._convert_error(error) from None
            except BaseException:
                connection.close()
                raise
        return connection

    def _prepare(self, connection: Connection) -> None:
        """Create the tables, or migrate older ones; safe if several stores connect at once."""
        scripts = migrations("workbench_team")
        latest = max(scripts)
        ((encoding, there),) = connection.execute(
            f"SELECT current_setting('server_encoding'), to_regclass('{SCHEMA}.team_meta') IS NOT NULL".encode()
        ).fetchall()
        if encoding != "UTF8":
            raise StoreError(f"{self.place} has the encoding {encoding}; a team's database must use UTF8")
        if there and self._schema(connection) == latest:
            return
        with connection.transaction():
            connection.execute(f"SELECT pg_advisory_xact_lock({_lock_number(SCHEMA)})".encode())
            ((exists,),) = connection.execute(
                f"SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = '{SCHEMA}')".encode()
            ).fetchall()
            if not exists:
                connection.execute(f"CREATE SCHEMA {SCHEMA}".encode())
            connection.execute(f"SET LOCAL search_path = {SCHEMA}".encode())
            # Again, under the lock: another store may have created the tables meanwhile.
            ((there,),) = connection.execute(
                f"SELECT to_regclass('{SCHEMA}.team_meta') IS NOT NULL".encode()
            ).fetchall()
            version = self._schema(connection) if there else 0
            _check_schema(str(max(version, latest)), self.place)
            for number in range(version + 1, latest + 1):
                connection.execute(scripts[number].read_text("utf-8").encode())
            for key, value in {"schema": str(latest), "team_id": uuid4().hex[:12]}.items():
                connection.execute(
                    b"INSERT INTO team_meta VALUES (%s, %s) ON CONFLICT (key) DO UPDATE SET value = "
                    b"CASE WHEN excluded.key = 'schema' THEN excluded.value ELSE team_meta.value END",
                    [key, value],
                )

    def _schema(self, connection: Connection) -> int:
        ((version,),) = connection.execute(
            f"SELECT value FROM {SCHEMA}.team_meta WHERE key = 'schema'".encode()
        ).fetchall()
        return int(version)

    def _convert_error(self, error: psycopg.Error) -> WorkbenchError:
        """The driver's error as one line without the password; TeamAwayError if a retry can succeed."""
        from psycopg import errors

        text = (error.diag.message_primary or str(error)).strip() or type(error).__name__
        # After attempts at several addresses the last line has the reason, the lines before it the addresses.
        line = one_line(text.splitlines()[0].rpartition("failed: ")[2].removeprefix("FATAL: ").strip())
        secret = str(self._arguments.get("password") or "")
        # No message may repeat the password.
        line = line.replace(secret, "…") if secret else line
        said = f"the team's database {self.place}: {line}"
        if isinstance(error, errors.QueryCanceled):
            return StoreError(
                f"the team's database {self.place} took longer than {STATEMENT_TIMEOUT_S} s; nothing was stored"
            )
        if isinstance(error, errors.LockNotAvailable):
            return StoreError(
                f"the team's database {self.place}: locked by another writer for {LOCK_TIMEOUT_S} s; nothing was stored, try again"
            )
        if isinstance(error, errors.InsufficientPrivilege):
            who = self._arguments.get("user") or "the role"
            return StoreError(f"{said}; {who} needs the right to make and use the schema {SCHEMA} there")
        if isinstance(error, errors.DiskFull):
            return StoreError(f"the team's database {self.place}: its disk is full; nothing was stored")
        if isinstance(error, errors.UndefinedTable | errors.UndefinedColumn | errors.InvalidSchemaName):
            return TeamAwayError(f"{said}; its tables were changed or removed")
        if isinstance(error, errors.DataError):
            return InputError(f"{said}; PostgreSQL cannot store such a text")
        again = (errors.OperationalError, errors.InterfaceError, errors.ReadOnlySqlTransaction)
        if isinstance(error, again) and not any(words in text for words in _PERMANENT_ERRORS):
            return TeamAwayError(f"the team's database {self.place} is away ({line})")
        return StoreError(said)


def _arguments(address: str) -> dict[str, Any]:
    """The connection parameters. Raises InputError, without the address in its message."""
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    wrong = InputError(f"{ENV_VARIABLE} is not the address of a PostgreSQL; it should be {ADDRESS_FORM}")
    if not address.startswith(("postgresql://", "postgres://")):
        raise wrong
    try:
        given = dict(conninfo_to_dict(address))
    except psycopg.Error:
        raise wrong from None
    if not all(port.isdigit() for port in str(given.get("port") or "5432").split(",")):
        raise wrong
    silence = round(1000 * (STATEMENT_TIMEOUT_S + SILENCE_TIMEOUT_S))
    limits = {
        "connect_timeout": CONNECT_TIMEOUT_S,
        "keepalives_idle": 15,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": silence,
    }
    return {**limits, "application_name": "cems-workbench", **given, "client_encoding": "utf8"}


def _public_address(arguments: Mapping[str, Any]) -> str:
    """The address without secrets, for display."""
    host, port, user = (str(arguments.get(name) or "") for name in ("host", "port", "user"))
    place, socket = ("", f"?host={host}") if host.startswith("/") else (host, "")
    return f"postgresql://{f'{user}@' if user else ''}{place}{f':{port}' if port else ''}/{arguments.get('dbname') or ''}{socket}"


def _check_schema(version: str, where: str) -> None:
    latest = max(migrations("workbench_team"))
    if int(version) > latest:
        raise StoreError(
            f"the team's database {where} has schema {version}, this version reads {latest}: update cems-workbench, "
            "or name a new database"
        )
    if int(version) < latest:
        raise TeamAwayError(f"the team's database {where} has schema {version} and is being migrated to {latest}")


@lru_cache(512)
def _driver_sql(sql: str) -> bytes:
    """A statement with the driver's placeholders."""
    # The driver reads % as the start of a placeholder.
    return sql.replace("%", "%%").replace("?", "%s").encode()


@lru_cache(1024)
def _lock_number(name: str) -> int:
    """The key of an advisory lock."""
    # Signed: an advisory lock's key is a bigint.
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big", signed=True)


def _close_quietly(connection: Connection) -> None:
    with suppress(Exception):
        connection.close()


SHARED_TABLES = SharedTables("postgresql", ADDRESS_FORM, PostgresTables, push, missing_queries)
