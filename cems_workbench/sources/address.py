"""Where a source is: a URL, taken apart so that its secrets never stay in it.

    postgresql://user@host:5432/database   chroma://host:8000/collection   chroma:/directory/collection
    qdrant://host:6333/collection          qdrant:/directory/collection    http(s)://host:8765 (a CEMS server, for its answers)
    env:NAME                               the URL that stands in an environment variable

Options follow a `?`: `user=ID` takes the memories of one user, `team=ID` with those that
the team shares, `table=NAME` those of one table; others are those of the client (`sslmode`, `host`).

A password in the URL is taken out and kept in memory only; so is every query parameter that names one. Where the URL has none, it is
that of the environment (PGPASSWORD, CHROMA_API_KEY, QDRANT_API_KEY, CEMS_API_KEY), for PostgreSQL also of `.pgpass`, or a prompt's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from pydantic import SecretStr

from cems_workbench.errors import InputError

SCHEMES = {
    "postgresql": "postgresql",
    "postgres": "postgresql",
    "chroma": "chroma",
    "chroma+https": "chroma",
    "qdrant": "qdrant",
    "qdrant+https": "qdrant",
    "http": "cems",
    "https": "cems",
}
VARIABLES: Mapping[str, str] = {
    "postgresql": "PGPASSWORD",
    "chroma": "CHROMA_API_KEY",
    "qdrant": "QDRANT_API_KEY",
    "cems": "CEMS_API_KEY",
}
"""Where the secret of each kind of source is looked for."""
FORMS = "postgresql://USER@HOST/DATABASE, chroma://HOST:PORT/COLLECTION, qdrant://HOST:PORT/COLLECTION, https://CEMS-HOST or env:NAME"
FROM_ADDRESS = "the address"
"""What a secret was found in that stood in the address itself."""
_SECRET = re.compile(r"pass|pwd|key|token|secret", re.IGNORECASE)
_NUMERIC = re.compile(r"(?<![\w.])[0-9a-fA-F]*[.:][0-9a-fA-F.:]*[0-9a-fA-F:](?!\w)")
"""What may be an address of IPv4 or IPv6."""
_HARMLESS = ("sslkey", "passfile", "max_tokens")
"""Options that are none: a file in which a secret stands, a number of tokens."""


@dataclass(frozen=True, slots=True)
class Address:
    """A source's address without its secrets, and the secret beside it.

    `plain` may be kept, shown and logged. `path` is what follows the host, without the first slash; of a directory it is the path.
    """

    scheme: str
    plain: str
    host: str = ""
    port: int | None = None
    user: str = ""
    path: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    secret: SecretStr | None = None
    secret_from: str = ""
    """What the secret was found in: "the address", "PGPASSWORD", "a prompt"; empty when there is none."""

    @property
    def kind(self) -> str:
        """postgresql, chroma, qdrant or cems."""
        return SCHEMES[self.scheme]

    def hidden(self, text: str) -> str:
        """A text without the secret, should it stand in there."""
        secret = self.secret.get_secret_value() if self.secret else ""
        return text.replace(secret, "…") if secret else text

    def with_secret(self, secret: str, found_in: str) -> Address:
        """The same address with this secret."""
        return replace(self, secret=SecretStr(secret), secret_from=found_in)


def parse(text: str, environment: Mapping[str, str] = os.environ) -> Address:
    """Take an address apart; raises InputError, which never repeats a secret."""
    given = text.strip()
    if given.startswith("env:"):
        name = given.removeprefix("env:")
        value = environment.get(name, "").strip()
        if not value or value.startswith("env:"):
            raise InputError(f"address env:{name}: the variable {name} holds no address; it should be one of {FORMS}")
        return replace(_parsed(value, environment, f"the variable {name}"), secret_from=f"env:{name}")
    return _parsed(given, environment, FROM_ADDRESS)


def _parsed(text: str, environment: Mapping[str, str], where: str) -> Address:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise InputError(f"{where} is not an address ({_reason(error)}); it should be one of {FORMS}") from None
    scheme = parts.scheme.lower()
    if scheme not in SCHEMES:
        raise InputError(f"{where} begins with {scheme or 'no scheme'!r}; it should be one of {FORMS}")
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    options = {name: value for name, value in pairs if name in _HARMLESS or not _SECRET.search(name)}
    secrets = [value for name, value in pairs if name not in options and value]
    password = unquote(parts.password) if parts.password else next(iter(secrets), "")
    user = unquote(parts.username or "")
    host = parts.hostname or ""
    path = unquote(parts.path)
    plain = f"{scheme}:" + ("//" if text[len(scheme) :].startswith("://") else "")
    plain += (f"{parts.username}@" if parts.username else "") + (f"[{host}]" if ":" in host else host)
    plain += (f":{port}" if port else "") + parts.path + (f"?{urlencode(options)}" if options else "")
    if parts.netloc or SCHEMES[scheme] == "postgresql":
        path = path.removeprefix("/")
    address = Address(scheme, plain, host, port, user, path, options)
    if password:
        return address.with_secret(password, where)
    variable = VARIABLES[address.kind]
    return address.with_secret(environment[variable], variable) if environment.get(variable) else address


def _reason(error: ValueError) -> str:
    """What urllib says, without what it quotes: that may be a password."""
    return re.sub(r"['\"].*['\"]", "…", str(error)).splitlines()[0]


def parse_saved(plain: str, secret_from: str, environment: Mapping[str, str] = os.environ) -> Address:
    """The address that was kept as `plain`, with its secret looked for where it was found; raises InputError."""
    if secret_from.startswith("env:"):
        named = parse(secret_from, environment)
        if named.plain == plain:
            return named
    return parse(plain, environment)


def short_name(plain: str) -> str:
    """What a source is called in short: its database or collection, never where that is; "the source" where the address has none."""
    try:
        path = unquote(urlsplit(plain).path)
    except ValueError:
        path = ""
    return path.rstrip("/").rpartition("/")[2] or "the source"


def redact_address(text: str, plain: str) -> str:
    """A text without what a plain address says: the address, its host, port, user, directory, name and options become "…".

    So do all numeric addresses: a server's own words name them. For texts that leave this machine.
    """
    address = _parsed(plain, {}, "the address")
    directory, _, name = address.path.rpartition("/")
    values = (address.host, address.user, directory, name, *address.options.values())
    text = text.replace(plain, "…")
    for value in sorted({each for each in values if each}, key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", "…", text)
    if address.port:
        text = re.sub(rf"\bport {address.port}\b|:{address.port}\b", "…", text)
    return _NUMERIC.sub(lambda found: "…" if _is_numeric_address(found[0]) else found[0], text)


def _is_numeric_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
