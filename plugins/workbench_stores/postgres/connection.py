"""Read-only connections to PostgreSQL: they send SELECT, EXPLAIN of one, SET LOCAL, and the BEGIN
and ROLLBACK of READ ONLY transactions.

A transaction sees one snapshot (REPEATABLE READ). The server ends a statement that takes too long; if the server does not respond at all,
the connection is closed here. Every error is one line that names the source and the remedy, without the secret.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import islice
from typing import Any, LiteralString, TypeAlias

import psycopg
from psycopg import errors, sql

from cems_workbench.errors import InputError, did_you_mean
from cems_workbench.formats.base.files import data_beside
from cems_workbench.platform.waiting import close_socket_after
from cems_workbench.sources.address import Address
from cems_workbench.sources.source import SourceError

Query: TypeAlias = LiteralString | sql.SQL | sql.Composed
Row = tuple[Any, ...]

CONNECT_TIMEOUT_S = 10
"""How long to wait for a connection."""
UNRESPONSIVE_S = 15
"""How long after the statement timeout a server that does not respond is given up."""
_OPTIONS: Mapping[str, tuple[str, ...]] = data_beside(__file__, "names.json")["options"]
OWN_OPTIONS = _OPTIONS["own"]
"""Options of an address that the workbench defines; the others are libpq's."""
SETTING_OPTIONS = _OPTIONS["settings"]
"""Settings of pgvector that an address may state: those that the client of a system sets, which the database does not record."""
FUSION_OPTIONS = _OPTIONS["fusion"]
"""What the client of a system fuses its lists with."""
LIBPQ_OPTIONS = _OPTIONS["libpq"]
BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_DENIED = re.compile(r"permission denied for (?:table|view|materialized view|relation|foreign table) (\S+)")
_DENIED_SCHEMA = re.compile(r"permission denied for schema (\S+)")


class Reader:
    """An open read-only transaction; everything it reads is of one snapshot."""

    def __init__(self, connection: psycopg.Connection[Row], seconds: float) -> None:
        self._connection, self._seconds = connection, seconds

    @property
    def role(self) -> str:
        """The connected role."""
        return self._connection.info.user

    def rows(self, query: Query, parameters: Mapping[str, Any] | None = None) -> list[Row]:
        """All rows of a SELECT; values of types unknown to psycopg, such as pgvector's, are bytes in the type's binary form."""
        # Binary, because `source.vectors` reads pgvector's binary form.
        with self._watched(), self._connection.cursor(binary=True) as cursor:
            return cursor.execute(self._sent(query, parameters), parameters).fetchall()

    def row(self, query: Query, parameters: Mapping[str, Any] | None = None) -> Row:
        """The first row."""
        return self.rows(query, parameters)[0]

    def pages(self, query: Query, parameters: Mapping[str, Any] | None, size: int) -> Iterator[list[Row]]:
        """All rows of a SELECT in pages of `size`, as they arrive; nothing else can be read meanwhile."""
        with self._connection.cursor(binary=True) as cursor:
            rows = cursor.stream(self._sent(query, parameters), parameters, size=size)
            while True:
                with self._watched():
                    portion = list(islice(rows, size))
                if not portion:
                    return
                yield portion

    def set(self, name: str, value: str) -> None:
        """Set a server parameter until the transaction ends."""
        statement = sql.SQL("SET LOCAL {} = {}").format(sql.Identifier(*name.split(".")), sql.Literal(value))
        with self._watched():
            self._connection.execute(statement)

    def _sent(self, query: Query, parameters: Mapping[str, Any] | None) -> Query:
        """The query with % doubled in names and values, where psycopg takes it for a placeholder: if there are parameters."""

        def escaped(part: sql.Composable) -> sql.SQL | sql.Composed:
            if isinstance(part, sql.Composed):
                return sql.Composed([escaped(each) for each in part])
            return part if isinstance(part, sql.SQL) else sql.SQL(part.as_string(self._connection).replace("%", "%%"))

        return query if parameters is None or not isinstance(query, sql.Composed) else escaped(query)

    def _watched(self) -> AbstractContextManager[None]:
        """Close the connection if the server stays silent long after its own time limit, as a hanging process does."""
        return close_socket_after(self._connection.fileno(), self._seconds + UNRESPONSIVE_S)


class Database:
    """A database, connected on first use and again after a lost connection. One thread at a time; others wait."""

    def __init__(self, address: Address, timeout: float) -> None:
        known = (*OWN_OPTIONS, *SETTING_OPTIONS, *FUSION_OPTIONS, *LIBPQ_OPTIONS)
        unknown = [name for name in address.options if name not in known]
        if unknown:
            hint = did_you_mean(unknown[0], known)
            raise InputError(f"{address.plain}: unknown option {unknown[0]!r}{hint}; known are {', '.join(known)}")
        self.address, self.timeout = address, timeout
        self._connection: psycopg.Connection[Row] | None = None
        self._lock = threading.RLock()

    @contextmanager
    def transaction(self) -> Iterator[Reader]:
        """A transaction of one snapshot. Raises SourceError, also for psycopg's errors in the block."""
        with self._lock:
            try:
                connection = self._begin_transaction()
                try:
                    yield Reader(connection, self.timeout)
                finally:
                    # The connection may be lost; that error was raised already.
                    with suppress(psycopg.Error):
                        connection.execute("ROLLBACK")
            except psycopg.Error as error:
                raise self.problem(error) from None

    def problem(self, error: psycopg.Error) -> SourceError:
        """psycopg's error as one line that names the source and the remedy."""
        lost = self._connection is not None and self._connection.closed
        line = self.address.hidden(_error_line(error, self.address, self.timeout, lost))
        return SourceError(f"{self.address.plain}: {line}")

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _begin_transaction(self) -> psycopg.Connection[Row]:
        kept = self._connection
        if kept is not None and not kept.closed:
            try:
                return self._begin(kept)
            except psycopg.OperationalError:
                pass  # Lost while idle: connect again.
            kept.close()
        self._connection = None
        self._connection = self._connect()
        return self._begin(self._connection)

    def _begin(self, connection: psycopg.Connection[Row]) -> psycopg.Connection[Row]:
        connection.execute(BEGIN)
        Reader(connection, self.timeout).set("statement_timeout", str(max(1, math.ceil(self.timeout * 1000))))
        return connection

    def _connect(self) -> psycopg.Connection[Row]:
        """A new connection; without options if a pooler refuses them: each transaction is READ ONLY anyway."""
        arguments = self._arguments() | {"autocommit": True, "prepare_threshold": None}
        try:
            return psycopg.connect(**arguments, options="-c default_transaction_read_only=on -c TimeZone=UTC")
        except psycopg.OperationalError as error:
            if "unsupported startup parameter" not in str(error):
                raise
        return psycopg.connect(**arguments)

    def _arguments(self) -> dict[str, Any]:
        address = self.address
        given: dict[str, Any] = {name: value for name, value in address.options.items() if name in LIBPQ_OPTIONS}
        parts = {"host": address.host, "port": address.port, "user": address.user, "dbname": address.path}
        given |= {name: value for name, value in parts.items() if value}
        if address.secret is not None:
            given["password"] = address.secret.get_secret_value()
        return given | {
            "application_name": "cems-workbench",
            "client_encoding": "utf8",
            "connect_timeout": CONNECT_TIMEOUT_S,
            "keepalives_idle": 15,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": round((self.timeout + UNRESPONSIVE_S) * 1000),
        }


def _error_line(error: psycopg.Error, address: Address, timeout: float, lost: bool) -> str:
    message = (error.diag.message_primary or str(error)).strip()
    line = " ".join(message.splitlines()[0].split()) if message else type(error).__name__
    if isinstance(error, errors.InsufficientPrivilege):
        return _missing_privilege(line, address.user or "the role")
    if isinstance(error, errors.QueryCanceled):
        return f"a statement was ended after {timeout:g} s ({line}); the server may be busy"
    if lost or isinstance(error, errors.AdminShutdown | errors.CrashShutdown | errors.IdleInTransactionSessionTimeout):
        return f"the connection was lost ({_short(line)}); connect again to resume"
    if isinstance(error, errors.ConnectionTimeout) or "timeout expired" in line:
        return f"no answer within {CONNECT_TIMEOUT_S} s from {_server(address)}"
    if isinstance(error, errors.OperationalError):
        return _connection_problem(str(error), line, address)
    return line


def _missing_privilege(line: str, role: str) -> str:
    denied, schema = _DENIED.search(line), _DENIED_SCHEMA.search(line)
    grant = f"GRANT SELECT ON {denied[1]} TO {role}" if denied else ""
    grant = f"GRANT USAGE ON SCHEMA {schema[1]} TO {role}" if schema else grant
    return f"{role} may not read it ({line})" + (f"; to allow it: {grant}" if grant else "")


def _connection_problem(message: str, line: str, address: Address) -> str:
    where, who = _server(address), address.user or "this user"
    if "no password supplied" in message:
        return f"{where} asks for {who}'s password; set PGPASSWORD or use .pgpass"
    if "password authentication failed" in message:
        return f"{where} refused {who}'s password" + (f" (from {address.secret_from})" if address.secret_from else "")
    if "does not exist" in message and "database" in message:
        return f"there is no database {address.path or who!r} on {where}"
    if "does not exist" in message and "role" in message:
        return f"there is no role {who!r} on {where}"
    unknown = ("translate host name", "failed to resolve", "Name or service not known", "Errno -")
    if any(words in message for words in unknown):
        return f"the host {address.host or address.options.get('host', '')!r} is not known"
    if "Connection refused" in message or "No such file or directory" in message:
        return f"nothing listens on {where}"
    if "pg_hba.conf" in message:
        return f"{where} does not admit {who} from here ({_short(line)})"
    return _short(line)


def _short(line: str) -> str:
    return re.sub(r"^(connection failed: )?connection to server .*? failed: ", "", line).removeprefix("FATAL: ").strip()


def _server(address: Address) -> str:
    place = address.host or address.options.get("host", "") or "the local server"
    return f"{place}:{address.port}" if address.port else place
