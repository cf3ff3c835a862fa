"""A connection to PostgreSQL that only reads: SELECT, SET LOCAL and the begin and end of READ ONLY transactions are all that it sends.

A transaction sees one moment (REPEATABLE READ). A statement that takes too long is ended by the server, and where the server does not
answer at all, by closing the connection here. Every error is one line that names the source and what to do, without the secret.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, LiteralString, TypeAlias

from cems_workbench.errors import InputError, nearest
from cems_workbench.platform.timeouts import close_socket_after
from cems_workbench.sources.address import Address
from cems_workbench.sources.source import SourceError

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

    Query: TypeAlias = LiteralString | sql.SQL | sql.Composed
    Row = tuple[Any, ...]

CONNECT_TIMEOUT_S = 10
"""Seconds to wait for a connection."""
UNRESPONSIVE_S = 15
"""Seconds past the statement timeout after which a server that does not answer is given up."""
OWN_OPTIONS = ("user", "team", "table")
"""Options of an address that are ours; the others are libpq's."""
LIBPQ_OPTIONS = (
    "host",
    "hostaddr",
    "port",
    "service",
    "passfile",
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "sslcrl",
    "sslnegotiation",
    "channel_binding",
    "require_auth",
    "gssencmode",
    "krbsrvname",
    "target_session_attrs",
    "load_balance_hosts",
)
BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_DENIED = re.compile(r"permission denied for (?:table|view|materialized view|relation|foreign table) (\S+)")
_DENIED_SCHEMA = re.compile(r"permission denied for schema (\S+)")


class Reader:
    """A read-only transaction that is open; all that it reads is of one moment."""

    def __init__(self, connection: psycopg.Connection[Row], seconds: float) -> None:
        self._connection, self._seconds = connection, seconds

    @property
    def role(self) -> str:
        """Who is connected."""
        return self._connection.info.user

    def rows(self, query: Query, parameters: Mapping[str, Any] | None = None) -> list[Row]:
        """All rows of a SELECT; values without a type of psycopg's, as pgvector's, are bytes in the type's binary form."""
        with self._watched(), self._connection.cursor(binary=True) as cursor:
            return cursor.execute(query, parameters).fetchall()

    def row(self, query: Query, parameters: Mapping[str, Any] | None = None) -> Row:
        """The first row."""
        return self.rows(query, parameters)[0]

    def pages(self, query: Query, parameters: Mapping[str, Any] | None, size: int) -> Iterator[list[Row]]:
        """All rows of a SELECT, `size` at a time as they come; nothing else can be read in the meantime."""
        with self._connection.cursor(binary=True) as cursor:
            rows = cursor.stream(query, parameters, size=size)
            while True:
                with self._watched():
                    portion = list(islice(rows, size))
                if not portion:
                    return
                yield portion

    def set(self, name: str, value: str) -> None:
        """Set a parameter of the server until the transaction ends."""
        from psycopg import sql

        statement = sql.SQL("SET LOCAL {} = {}").format(sql.Identifier(*name.split(".")), sql.Literal(value))
        with self._watched():
            self._connection.execute(statement)

    def _watched(self) -> AbstractContextManager[None]:
        """Cut the connection when the server says nothing long after its own time limit: a process that hangs ends nothing itself."""
        return close_socket_after(self._connection.fileno(), self._seconds + UNRESPONSIVE_S)


class Database:
    """Connects when something is read, and again when the connection was lost in between. For one thread at a time; others wait."""

    def __init__(self, address: Address, timeout: float) -> None:
        unknown = [name for name in address.options if name not in (*OWN_OPTIONS, *LIBPQ_OPTIONS)]
        if unknown:
            like = nearest(unknown[0], (*OWN_OPTIONS, *LIBPQ_OPTIONS))
            hint = f" (did you mean {like}?)" if like else ""
            raise InputError(
                f"{address.plain}: unknown option {unknown[0]!r}{hint}; known are {', '.join((*OWN_OPTIONS, *LIBPQ_OPTIONS))}"
            )
        self.address, self.timeout = address, timeout
        self._connection: psycopg.Connection[Row] | None = None
        self._lock = threading.RLock()

    def new_connection(self) -> Database:
        """The same place with a connection of its own."""
        return Database(self.address, self.timeout)

    @contextmanager
    def transaction(self) -> Iterator[Reader]:
        """A transaction of one moment. Raises SourceError, also for what goes wrong in the block."""
        import psycopg

        with self._lock:
            try:
                connection = self._begin_transaction()
                try:
                    yield Reader(connection, self.timeout)
                finally:
                    with suppress(psycopg.Error):
                        connection.execute("ROLLBACK")
            except psycopg.Error as error:
                raise self.problem(error) from None

    def problem(self, error: psycopg.Error) -> SourceError:
        """What psycopg says, as a line that names the source and what to do."""
        lost = self._connection is not None and self._connection.closed
        return SourceError(
            f"{self.address.plain}: {self.address.hidden(_error_line(error, self.address, self.timeout, lost))}"
        )

    def close(self) -> None:
        """Let go of the connection."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _begin_transaction(self) -> psycopg.Connection[Row]:
        import psycopg

        kept = self._connection
        if kept is not None and not kept.closed:
            try:
                return self._begin(kept)
            except psycopg.OperationalError:
                pass  # It was lost while nothing was read.
            kept.close()
        self._connection = None
        self._connection = self._connect()
        return self._begin(self._connection)

    def _begin(self, connection: psycopg.Connection[Row]) -> psycopg.Connection[Row]:
        connection.execute(BEGIN)
        Reader(connection, self.timeout).set("statement_timeout", str(max(1, math.ceil(self.timeout * 1000))))
        return connection

    def _connect(self) -> psycopg.Connection[Row]:
        """A new connection. A pooler that takes no options is connected to without: each transaction is READ ONLY anyway."""
        import psycopg

        arguments = self._arguments()
        try:
            return psycopg.connect(
                **arguments,
                options="-c default_transaction_read_only=on -c TimeZone=UTC",
                autocommit=True,
                prepare_threshold=None,
            )
        except psycopg.OperationalError as error:
            if "unsupported startup parameter" not in str(error):
                raise
        return psycopg.connect(**arguments, autocommit=True, prepare_threshold=None)

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
    """One line of what went wrong and what to do."""
    from psycopg import errors

    said = (error.diag.message_primary or str(error)).strip()
    line = " ".join(said.splitlines()[0].split()) if said else type(error).__name__
    if isinstance(error, errors.InsufficientPrivilege):
        return _missing_privilege(line, address.user or "the role")
    if isinstance(error, errors.QueryCanceled):
        return f"a statement was ended after {timeout:g} s ({line}); allow more time, or ask what the server is doing"
    if lost or isinstance(error, errors.AdminShutdown | errors.CrashShutdown | errors.IdleInTransactionSessionTimeout):
        return f"the connection was lost on the way ({_short(line)}); connect again to go on"
    if isinstance(error, errors.ConnectionTimeout) or "timeout expired" in line:
        return f"no answer within {CONNECT_TIMEOUT_S} s from {_server(address)}"
    if isinstance(error, errors.OperationalError):
        return _connection_problem(str(error), line, address)
    return line


def _missing_privilege(line: str, role: str) -> str:
    denied, schema = _DENIED.search(line), _DENIED_SCHEMA.search(line)
    grant = f"GRANT SELECT ON {denied[1]} TO {role}" if denied else ""
    grant = f"GRANT USAGE ON SCHEMA {schema[1]} TO {role}" if schema else grant
    return f"{role} may not read it ({line})" + (f"; what gives the right: {grant}" if grant else "")


def _connection_problem(said: str, line: str, address: Address) -> str:
    where, who = _server(address), address.user or "this user"
    if "no password supplied" in said:
        return f"{where} asks for {who}'s password; it may stand in PGPASSWORD or .pgpass"
    if "password authentication failed" in said:
        return f"{where} refused {who}'s password" + (f" (from {address.secret_from})" if address.secret_from else "")
    if "does not exist" in said and "database" in said:
        return f"there is no database {address.path or who!r} on {where}"
    if "does not exist" in said and "role" in said:
        return f"there is no role {who!r} on {where}"
    if any(
        known in said for known in ("translate host name", "failed to resolve", "Name or service not known", "Errno -")
    ):
        return f"the host {address.host or address.options.get('host', '')!r} is not known"
    if "Connection refused" in said or "No such file or directory" in said:
        return f"nothing listens on {where}"
    if "pg_hba.conf" in said:
        return f"{where} does not admit {who} from here ({_short(line)})"
    return _short(line)


def _short(line: str) -> str:
    """A message without the name of the server that libpq puts before it, which we name already."""
    return re.sub(r"^(connection failed: )?connection to server .*? failed: ", "", line).removeprefix("FATAL: ").strip()


def _server(address: Address) -> str:
    place = address.host or address.options.get("host", "") or "the local server"
    return f"{place}:{address.port}" if address.port else place
