"""Addresses of sources, and the kinds of sources that they name: URLs, parsed so that no secret stays in them.

    KIND://USER@HOST:PORT/NAME   KIND:/FOLDER/NAME   env:NAME (the URL in an environment variable)

The kinds of sources say what their addresses look like. A kind is a module of `kinds`, named as it, that declares
`SOURCE = SourceKind(...)`, or an entry point in the group `cems_workbench.sources`, as those of `plugins/workbench_stores/kinds.py` and of
other packages are. Messages, help, pages and docs/reference/sources.md derive from these records. Options follow a `?`: `user=ID` takes
the memories of one user, others are the kind's own.

A password in the URL is moved to `Address.secret`, which stays in memory; so is every query parameter whose name sounds like one. If the
URL has none, it is that of the kind's environment variable, for PostgreSQL also of `.pgpass`, or typed at a prompt.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from pydantic import SecretStr

from cems_workbench import extensions
from cems_workbench.errors import InputError, install_extra

if TYPE_CHECKING:
    from cems_workbench.progress import Progress
    from cems_workbench.records import Query, Recording
    from cems_workbench.sources.source import ListName, Source

FROM_ADDRESS = "the address"
"""`Address.secret_from` of a secret that was in the address itself."""
_SECRET = re.compile(r"pass|pwd|key|token|secret", re.IGNORECASE)
_NUMERIC = re.compile(r"(?<![\w.])[0-9a-fA-F]*[.:][0-9a-fA-F.:]*[0-9a-fA-F:](?!\w)")
"""What may be an address of IPv4 or IPv6."""
_NO_SECRETS = ("sslkey", "passfile", "max_tokens")
"""Options that only sound like secrets: names of files, a number of tokens."""


@dataclass(frozen=True, slots=True)
class Address:
    """A source's address without its secret, and the secret. `plain` may be saved, shown and logged. `path` is what
    follows the host, without the first slash; of a directory it is the whole path."""

    scheme: str
    plain: str
    host: str = ""
    port: int | None = None
    user: str = ""
    path: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    secret: SecretStr | None = None
    secret_from: str = ""
    """Where the secret is from: "the address", "PGPASSWORD", "a prompt"; empty if there is none."""

    @property
    def kind(self) -> str:
        return source_kind(self).name

    def hidden(self, text: str) -> str:
        """The text with the secret replaced by "…"."""
        secret = self.secret.get_secret_value() if self.secret else ""
        return text.replace(secret, "…") if secret else text

    def with_secret(self, secret: str, secret_from: str) -> Address:
        return replace(self, secret=SecretStr(secret), secret_from=secret_from)


ANY = "env:NAME"
"""The address in an environment variable: not of one kind."""


@dataclass(frozen=True, slots=True)
class SourceKind:
    """One kind of source.

    `addresses` are forms of its address, the usual one first, with placeholders in capitals; `description` says what such an address is.
    `open` takes the address, the mapping of its fields if there is one, and the seconds a request may take. It raises InputError if the
    address or the mapping does not fit and SourceError if the source cannot be read. None: the system answers queries and has no
    memories to take. `ask` gives its present answers to queries (`fidelity --ask`), those that failed as errors of the recording; None:
    it cannot be asked. `lists` are the live lists that a source of this kind can answer; a source itself says which (`SourceInfo.lists`).

    Every address that is parsed loads all records, so drivers are imported within `open`.
    """

    name: str
    title: str
    addresses: tuple[str, ...]
    description: str
    schemes: tuple[str, ...]
    open: Callable[[Address, Mapping[str, Any] | None, float], Source] | None
    ask: Callable[[Address, Sequence[Query], Progress], Recording] | None = None
    credential_variable: str = ""
    """The environment variable of its password or key; empty if it has none."""
    package: str = ""
    """What `open` imports that not everybody has installed."""
    extra: str = ""
    """The extra of the workbench that installs it; empty: the package is installed by its name."""
    lists: tuple[ListName, ...] = ("vector",)
    products: Mapping[str, str] = field(default_factory=dict)
    """Names by `SourceInfo.kind`, if sources of this kind say another one than `name`."""
    path_is_name: bool = False
    """Whether the path of an address without a host is a database's name, not a file's path."""
    place: int = extensions.DEFAULT_PLACE


SOURCE_KINDS = extensions.Registry(extensions.SOURCES, SourceKind, "cems_workbench.sources.kinds", "SOURCE")
"""Every kind of source by name."""


def kind_of(scheme: str) -> SourceKind | None:
    """The kind whose addresses begin with a scheme; the first by place if two kinds claim it, ours before others."""
    claims = [kind for kind in SOURCE_KINDS.values() if scheme in kind.schemes]
    return min(claims, key=lambda kind: SOURCE_KINDS.origin(kind.name) is not None, default=None)


def importable() -> list[SourceKind]:
    """The kinds that memories can be taken from."""
    return [kind for kind in SOURCE_KINDS.values() if kind.open is not None]


def askable() -> list[SourceKind]:
    """The kinds that answer queries (`fidelity --ask`)."""
    return [kind for kind in SOURCE_KINDS.values() if kind.ask is not None]


def installation(kind: SourceKind) -> str | None:
    """What has to be installed before a source of a kind can be opened, and how; None if nothing has."""
    if not kind.package or find_spec(kind.package) is not None:
        return None
    if kind.extra:
        return install_extra(kind.package, kind.extra)
    return f"{kind.package} is not installed; {kind.title} needs it"


def address_forms(kinds: Iterable[SourceKind] | None = None) -> str:
    """The usual address of each kind (all unless given) in one line."""
    kinds = SOURCE_KINDS.values() if kinds is None else kinds
    return f"{', '.join(kind.addresses[0] for kind in kinds)} or {ANY}"


def credential_variables() -> list[str]:
    """The environment variables that passwords and keys are read from."""
    return [kind.credential_variable for kind in importable() if kind.credential_variable]


def display_name(kind: str) -> str | None:
    """The product's name of a source by its `SourceInfo.kind`; None if no kind here names it."""
    names = {kind.name: kind.title for kind in SOURCE_KINDS.values() if not kind.products}
    for each in SOURCE_KINDS.values():
        names.update(each.products)
    return names.get(kind)


def source_kind(address: Address, where: str = "") -> SourceKind:
    """The kind of source at an address, which the error calls `where`. Raises InputError if none is known, as without its package."""
    kind = kind_of(address.scheme)
    if kind is None:
        said = f"begins with {address.scheme!r}" if address.scheme else "names no kind of source, as sqlite:/FILE does"
        raise InputError(f"{where or address.plain} {said}; it should be one of {address_forms()}")
    return kind


def parse(text: str, environment: Mapping[str, str] = os.environ) -> Address:
    """Parse an address; raises InputError, which never repeats a secret."""
    text = text.strip()
    if text.startswith("env:"):
        name = text.removeprefix("env:")
        value = environment.get(name, "").strip()
        # A variable that names a variable could end in a cycle.
        if not value or value.startswith("env:"):
            raise InputError(
                f"address env:{name}: the variable {name} holds no address; it should be one of {address_forms()}"
            )
        return replace(_parse_url(value, environment, f"the variable {name}"), secret_from=f"env:{name}")
    return _parse_url(text, environment, FROM_ADDRESS)


def _parse_url(text: str, environment: Mapping[str, str], where: str) -> Address:
    address = _split(text, where)
    kind = source_kind(address, where)
    if kind.path_is_name:
        address = replace(address, path=address.path.removeprefix("/"))
    secret = environment.get(kind.credential_variable) if kind.credential_variable else None
    return address.with_secret(secret, kind.credential_variable) if address.secret is None and secret else address


def _split(text: str, where: str) -> Address:
    """The parts of an address of any scheme, with the secret that is in it. Raises InputError."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise InputError(
            f"{where} is not an address ({_reason(error)}); it should be one of {address_forms()}"
        ) from None
    scheme = parts.scheme.lower()
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    options = {name: value for name, value in pairs if name in _NO_SECRETS or not _SECRET.search(name)}
    secrets = [value for name, value in pairs if name not in options and value]
    password = unquote(parts.password) if parts.password else next(iter(secrets), "")
    user = unquote(parts.username or "")
    host = parts.hostname or ""
    path = unquote(parts.path)
    plain = f"{scheme}:" + ("//" if text[len(scheme) :].startswith("://") else "")
    plain += (f"{parts.username}@" if parts.username else "") + (f"[{host}]" if ":" in host else host)
    plain += (f":{port}" if port else "") + parts.path + (f"?{urlencode(options)}" if options else "")
    if parts.netloc:
        path = path.removeprefix("/")
    address = Address(scheme, plain, host, port, user, path, options)
    return address.with_secret(password, where) if password else address


def _reason(error: ValueError) -> str:
    """urllib's message without its quotations, which may contain a password."""
    return re.sub(r"['\"].*['\"]", "…", str(error)).splitlines()[0]


def parse_saved(plain: str, secret_from: str, environment: Mapping[str, str] = os.environ) -> Address:
    """The address saved as `plain`, with its secret from where it was found before; raises InputError."""
    if secret_from.startswith("env:"):
        named = parse(secret_from, environment)
        if named.plain == plain:
            return named
    return parse(plain, environment)


def short_name(plain: str) -> str:
    """The name of the database or collection, without host or folder; "the source" if the address has none."""
    try:
        path = unquote(urlsplit(plain).path)
    except ValueError:
        path = ""
    return path.rstrip("/").rpartition("/")[2] or "the source"


def redact_address(text: str, plain: str) -> str:
    """The text with "…" for every part of a plain address: host, port, user, directory, name and options. So too for
    every numeric address: servers name them in their messages. For texts that leave this machine."""
    address = _split(plain, FROM_ADDRESS)
    directory, _, name = address.path.rpartition("/")
    values = (address.host, address.user, directory, name, *address.options.values())
    text = text.replace(plain, "…")
    # Longest first: a value that contains another one is replaced whole.
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
