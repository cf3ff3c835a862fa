"""Kinds of sources: what an address may look like, and what opens it.

A kind is a module here, named as the kind, that declares `SOURCE = SourceKind(...)`, or an entry point in the group
`cems_workbench.sources`, as those of `plugins/workbench_stores/kinds.py` and of other packages are. SOURCE_KINDS finds them; addresses,
messages, help, pages and docs/reference/sources.md derive from these records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from cems_workbench import extensions
from cems_workbench.errors import install_extra

if TYPE_CHECKING:
    from cems_workbench.formats.recorded_answers import Recording
    from cems_workbench.progress import Progress
    from cems_workbench.records import Query
    from cems_workbench.sources.address import Address
    from cems_workbench.sources.source import ListName, Source

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
