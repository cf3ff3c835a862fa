"""Answers of a live CEMS server by its REST API.

    https://HOST/?max_tokens=4000&mode=vector&…   http://HOST:8765     key: CEMS_API_KEY, as a Bearer token

Each query is one `POST /api/memory/search`, at most `per_second` of them. The API returns neither vectors nor CEMS's lists (those come
from its PostgreSQL) nor its settings, so a recording has none. The server cuts texts to 500 characters.

Source: CEMS 0.9.3, src/cems/api/handlers/memory.py (api_memory_search)
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal

import tenacity
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cems_workbench.errors import InputError, one_line, server_message
from cems_workbench.formats.base.files import type_name
from cems_workbench.formats.responses import parse_rows
from cems_workbench.platform.http_limits import connection_reason
from cems_workbench.progress import Progress, silent
from cems_workbench.records import Query, RecordedAnswer, Recording, RowError
from cems_workbench.sources.address import Address
from cems_workbench.sources.connect import ask
from cems_workbench.sources.source import SourceError

PATH = "/api/memory/search"
MAX_ATTEMPTS = 4
MAX_WAIT_S = 30.0
"""Longest wait between attempts; a server that asks for more is an error."""
CANCEL_POLL_S = 0.5
"""How often a wait checks `progress` for a cancel."""
MAX_CONSECUTIVE_FAILURES = 3
"""After so many consecutive failures the other queries are not asked."""


class SearchOptions(BaseModel):
    """Fields of the request besides the query, with CEMS's defaults except for `limit`, and our rate limit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    limit: int = Field(1_000, ge=1)
    max_tokens: int = Field(4_000, ge=1)
    scope: Literal["personal", "shared", "both"] = "both"
    mode: Literal["auto", "vector", "hybrid"] = "vector"
    raw: bool = False
    enable_graph: bool = True
    enable_query_synthesis: bool = False
    enable_hyde: bool = False
    enable_decomposition: bool = True
    per_second: float = Field(2.0, gt=0, le=1_000)

    def body(self, query: Query) -> dict[str, Any]:
        """The request for a query."""
        body = self.model_dump(exclude={"per_second"}) | {"query": query.query}
        return body | {"project": query.project} if query.project else body


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer, with the mode of the search if CEMS sent it."""

    recorded: RecordedAnswer
    mode: str | None = None
    problems: tuple[RowError, ...] = ()
    """Unusable results; their `row` is the answer's number."""


class _Refused(SourceError):
    """An error that neither a retry nor another query can change."""


class _Transient(SourceError):
    """A transient failure; `wait_s` is the wait that the server asks for."""

    def __init__(self, line: str, wait_s: float = 0.0) -> None:
        super().__init__(line)
        self.wait_s = wait_s


class CemsApi(AbstractContextManager["CemsApi"]):
    """Client of a CEMS server; a context manager."""

    def __init__(
        self,
        address: Address,
        options: SearchOptions | None = None,
        timeout: float = 30.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`options` override those of the address. Raises InputError for an unknown option, and without a key."""
        import httpx

        from cems_workbench.platform.http_limits import HEADERS, event_hooks, ssl_context

        if address.secret is None:
            raise InputError(f"{address.plain}: a CEMS server needs a key: set CEMS_API_KEY")
        key = address.secret.get_secret_value()
        if not key.isascii() or not key.isprintable():
            raise InputError(f"{address.plain}: the key has characters that no key has; was it pasted whole?")
        self.options = options or options_of(address)
        self._address, self._timeout, self._sleep = address, timeout, sleep
        host = f"[{address.host}]" if ":" in address.host else address.host
        place = f"{address.scheme}://{host}" + (f":{address.port}" if address.port else "")
        self._url = f"{place}/{address.path.strip('/')}".rstrip("/") + PATH
        self._client = httpx.Client(
            timeout=timeout,
            headers={"Authorization": f"Bearer {key}", **HEADERS},
            follow_redirects=False,
            event_hooks=event_hooks(),
            verify=ssl_context(),
        )
        self._next = 0.0
        self._go_on: Callable[[], None] = lambda: None

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def answers(self, queries: Sequence[Query], progress: Progress = silent) -> Iterator[Answer | RowError]:
        """The answer to each query in order, or a RowError with the query's number as its row. Raises what `progress`
        raises, and SourceError if the server is unreachable or refuses the key, or after several consecutive failures:
        the other queries are not asked."""
        failures = 0
        for number, query in enumerate(queries, 1):
            self._go_on = partial(progress, "asking CEMS", number - 1, len(queries))
            self._go_on()
            try:
                yield self._answer(number, query)
                failures = 0
            except _Refused:
                raise
            except SourceError as error:
                failures += 1
                if len(queries) == 1:
                    raise
                if failures >= min(MAX_CONSECUTIVE_FAILURES, len(queries)):
                    raise SourceError(
                        f"{error}; {failures} queries in a row failed, so the others are not asked"
                    ) from None
                yield RowError(
                    self._address.plain, number, str(error).removeprefix(f"{self._address.plain}: "), query.qid
                )
        progress("asking CEMS", len(queries), len(queries))

    def recording(self, results: Sequence[Answer | RowError], answered_at: datetime | None = None) -> Recording:
        """The answers as a recording for `fidelity`; `answered_at` is the time of the requests (default: now)."""
        answers = [each for each in results if isinstance(each, Answer)]
        modes = {each.mode for each in answers}
        errors = [error for each in results for error in ([each] if isinstance(each, RowError) else each.problems)]
        return Recording(
            name=self._address.plain,
            form="answers of a CEMS server",
            answers=tuple(each.recorded for each in answers),
            max_tokens=None if self.options.raw else self.options.max_tokens,
            answered_at=answered_at or datetime.now(UTC),
            system="CEMS",
            mode=modes.pop() if len(modes) == 1 else None,
            whole=all(len(each.recorded.returned) < self.options.limit for each in answers),
            errors=tuple(errors),
        )

    def _answer(self, number: int, query: Query) -> Answer:
        if not query.query.strip():
            raise SourceError(f"{self._address.plain}: the query is empty; it was not asked")
        body = self.options.body(query)
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(_Transient),
            stop=tenacity.stop_after_attempt(MAX_ATTEMPTS),
            wait=_wait,
            sleep=self._pause,
            reraise=True,
        )
        return self._read(number, query, retrying(self._ask, body))

    def _ask(self, body: dict[str, Any]) -> Any:
        """The JSON reply to one request, sent when the rate limit allows it. Raises SourceError."""
        now = time.monotonic()
        if now < self._next:
            self._pause(self._next - now)
        # `max`: after a long answer the next requests must not come in a burst.
        self._next = max(now, self._next) + 1 / self.options.per_second
        response = ask(self._address, self._timeout, lambda: self._client.post(self._url, json=body), _reason)
        status = response.status_code
        if status != 200:
            message = one_line(self._address.hidden(server_message(response.text)))
            if status in (401, 403):
                raise _Refused(f"{self._address.plain}: the key in {self._address.secret_from} is refused: {message}")
            if status == 429:
                after = response.headers.get("retry-after", "")
                # A date, or anything else, counts as no wish.
                wait = float(after) if after.isascii() and after.isdigit() else 0.0
                line = f"{self._address.plain}: too many requests (HTTP 429: {message}); lower per_second"
                if wait > MAX_WAIT_S:
                    raise _Refused(f"{line}; it asks to wait {wait:g} s")
                raise _Transient(line, wait)
            if status >= 500:
                raise _Transient(f"{self._address.plain}: HTTP {status}: {message}")
            if status in (301, 302, 307, 308, 404, 405):
                raise _Refused(f"{self._address.plain}: HTTP {status} at {PATH}: is a CEMS server there?")
            raise SourceError(f"{self._address.plain}: HTTP {status}: {message}")
        try:
            # Redacted first: answers are stored.
            return json.loads(self._address.hidden(response.text))
        except (ValueError, RecursionError):
            found = one_line(self._address.hidden(response.text), 60)
            raise SourceError(f"{self._address.plain}: its answer is not JSON: {found}") from None

    def _pause(self, seconds: float) -> None:
        """Wait; raises what `progress` raises."""
        while seconds > 0:
            self._sleep(min(CANCEL_POLL_S, seconds))
            seconds -= CANCEL_POLL_S
            self._go_on()

    def _read(self, number: int, query: Query, reply: Any) -> Answer:
        if not isinstance(reply, dict) or not isinstance(reply.get("results"), list):
            found = type_name(reply) if not isinstance(reply, dict) else f"results {type_name(reply.get('results'))}"
            raise SourceError(f"{self._address.plain}: its answer has no list of results, found {found}")
        problems: list[RowError] = []
        returned = parse_rows(reply["results"], self._address.plain, problems)
        recorded = RecordedAnswer(number, query.qid, query.query, query.project, returned, asked_at=datetime.now(UTC))
        return Answer(
            recorded,
            mode=mode if isinstance(mode := reply.get("mode"), str) and mode else None,
            problems=tuple(
                replace(one, row=number, reason=f"results[{one.row - 1}]: {one.reason}") for one in problems
            ),
        )


def options_of(address: Address) -> SearchOptions:
    """The options of an address. Raises InputError for an unknown option or an invalid value."""
    try:
        return SearchOptions.model_validate(dict(address.options))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(map(str, first["loc"]))
        line = f"{name}: {first['msg'][0].lower()}{first['msg'][1:]}, found {first['input']}"
        if first["type"] == "extra_forbidden":
            line = f"{name} is not an option of a CEMS server; options: {', '.join(SearchOptions.model_fields)}"
        raise InputError(f"{address.plain}: {line}") from None


def _wait(state: tenacity.RetryCallState) -> float:
    failure = state.outcome.exception() if state.outcome else None
    asked = failure.wait_s if isinstance(failure, _Transient) else 0.0
    return max(asked, tenacity.wait_exponential(0.5, MAX_WAIT_S)(state))


def _reason(error: Exception) -> str | None:
    import httpx

    if (message := connection_reason(error)) is not None:
        return message
    return f"it cannot be asked: {error}" if isinstance(error, (httpx.HTTPError, httpx.InvalidURL)) else None
