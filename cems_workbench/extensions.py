"""Extension points: registries of what this package and other packages add to the workbench.

A registry holds the extensions of one kind by name: those of this package, one module each in one folder, and those of other packages,
declared as entry points of one group (Python packaging guide, "Creating and discovering plugins"):

    [project.entry-points."cems_workbench.measures"]
    gain = "a_package.gain:MEASURE"

The packages of `plugins/` declare theirs the same way, in the pyproject.toml of this distribution, and are loaded the same way.

Reading the names runs no code of another package; an extension is loaded on first use. One that cannot be used is left out, never an error:
a line that names its package is printed once on stderr and listed by `doctor`.
"""

from __future__ import annotations

import pkgutil
import re
import sys
import threading
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module, metadata
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, Protocol, TypeVar

from cems_workbench import PLUGINS
from cems_workbench.errors import WorkbenchError
from cems_workbench.progress import Cancelled

COMMANDS = "cems_workbench.commands"
EXPLANATIONS = "cems_workbench.explanations"
FORMATS = "cems_workbench.formats"
MEASURES = "cems_workbench.measures"
OPERATIONS = "cems_workbench.operations"
RECORDINGS = "cems_workbench.recordings"
RERANKERS = "cems_workbench.rerankers"
RETRIEVERS = "cems_workbench.retrievers"
SOURCES = "cems_workbench.sources"
FUSION_METHODS = "cems_workbench.fusion_methods"
LEXICAL_ENGINES = "cems_workbench.lexical_engines"
TEAMS = "cems_workbench.teams"
TOOLS = "cems_workbench.tools"
VIEWS = "cems_workbench.views"
VIEWS_OF = ("inspect.views", "inspect.tools", "evaluate", "evaluate.against", "label", "memories", "memories.import")
"""Where pages show views: a group of entry points each, such as `cems_workbench.views.label`, so that a page loads its own alone."""
WORDS = r"[a-z][a-z0-9]*(-[a-z0-9]+)*"
PATTERNS: Mapping[str, str] = {
    COMMANDS: WORDS,
    EXPLANATIONS: WORDS,
    FORMATS: WORDS,
    MEASURES: r"[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)*",
    OPERATIONS: WORDS,
    RECORDINGS: WORDS,
    **dict.fromkeys(
        (RERANKERS, RETRIEVERS, SOURCES, FUSION_METHODS, LEXICAL_ENGINES, TEAMS, TOOLS), r"[a-z][a-z0-9]*(_[a-z0-9]+)*"
    ),
    **{f"{VIEWS}.{place}": WORDS for place in VIEWS_OF},
}
"""The groups of entry points, and what a name in each of them may look like."""

APP_NAME = "CEMS Workbench"
DISTRIBUTION = "cems-workbench"
DEFAULT_PLACE = 100
"""The `place` of an extension that states none."""

_problems: dict[str, None] = {}
_lock = threading.RLock()


class Extension(Protocol):
    """What a registry holds: something with a name. It may have a `place` in lists of such things, lowest first."""

    @property
    def name(self) -> str: ...


Item = TypeVar("Item", bound=Extension)


def problems() -> tuple[str, ...]:
    """What was left out so far, a line each that names the package; a registry that nobody has asked anything is not in it."""
    return tuple(_problems)


@cache
def module_names(package: str) -> tuple[str, ...]:
    """The public modules directly in a package of ours, by name, none of an empty name; nothing is imported."""
    if not package:
        return ()
    folder = Path(__file__).parent.joinpath(*package.split(".")[1:])
    return tuple(sorted(found.name for found in pkgutil.iter_modules([str(folder)]) if not found.name.startswith("_")))


def summaries(package: str) -> Mapping[str, str]:
    """The first line of each module of ours in a package, which opens its docstring; nothing is imported."""
    folder = Path(__file__).parent.joinpath(*package.split(".")[1:])
    found = {}
    for name in module_names(package):
        with (folder / f"{name}.py").open(encoding="utf-8") as file:
            found[name] = file.readline().strip().strip('"')
    return found


def names(group: str, package: str, first: Sequence[str] = (), also_taken: Iterable[str] = ()) -> tuple[str, ...]:
    """The names of what is ours, where each module of `package` is called as what it adds, then of what other packages add.

    Ours are in the order of `first`, those that are not in it after them. `also_taken` are names that nothing else may have. Nothing is
    imported.
    """
    ours = module_names(package)
    ordered = [*(name for name in first if name in ours), *(name for name in ours if name not in first)]
    return (*ordered, *declared(group, {*ours, *also_taken}))


def declared(group: str, taken: Iterable[str] = ()) -> Mapping[str, EntryPoint]:
    """The entry points of a group by name, none of them loaded: those with a fit name that nobody else has.

    `taken` are the names that are ours.
    """
    return _declared(group, frozenset(taken))


def strangers(group: str) -> Mapping[str, str]:
    """What other packages declare in a group, and which package each is from; none of it is loaded."""
    return {name: _package(entry) for name, entry in declared(group).items() if not _is_ours(entry)}


@cache
def _installed() -> metadata.EntryPoints:
    """All entry points of the packages that have one for us: to parse those of every package takes three times as long."""
    ours: dict[str, metadata.Distribution] = {}
    for package in metadata.distributions():
        if "cems_workbench" in (package.read_text("entry_points.txt") or ""):
            ours.setdefault(package.name, package)
    return metadata.EntryPoints(entry for package in ours.values() for entry in package.entry_points)


def _is_ours(entry: EntryPoint) -> bool:
    return entry.dist is None or entry.dist.name == DISTRIBUTION


@cache
def _declared_here() -> Mapping[str, Mapping[str, str]] | None:
    """The entry points that pyproject.toml of a checkout declares, by group and name; None in an installation."""
    if not PLUGINS:
        return None
    project = tomllib.loads(Path(PLUGINS).with_name("pyproject.toml").read_text("utf-8"))["project"]
    groups: Mapping[str, Mapping[str, str]] = project["entry-points"]
    return groups


def entry_points(group: str) -> Iterable[EntryPoint]:
    """The entry points of a group; installed packages are read once for all groups, which takes longer than most commands' work.

    Ours are those of the checkout that runs, whichever version may be installed too.
    """
    found: Iterable[EntryPoint] = _installed().select(group=group)
    here = _declared_here()
    if here is None:
        return found
    ours = [EntryPoint(name, value, group) for name, value in here.get(group, {}).items()]
    return [*ours, *(entry for entry in found if not _is_ours(entry))]


@cache
def _declared(group: str, taken: frozenset[str]) -> Mapping[str, EntryPoint]:
    by_name: dict[str, list[EntryPoint]] = {}
    usable = {}
    for entry in entry_points(group=group):
        if _is_ours(entry):
            usable[entry.name] = entry
        else:
            by_name.setdefault(entry.name, []).append(entry)
    taken |= usable.keys()
    for name, entries in sorted(by_name.items()):
        packages = " and ".join(sorted(map(_package, entries)))
        if name in taken:
            _report(f"{group}: {name} of {packages} is left out: {APP_NAME} has a {name} itself")
        elif len(entries) > 1:
            _report(f"{group}: {name} is left out: {packages} both have one")
        elif not re.fullmatch(PATTERNS[group], name):
            _report(f"{group}: {name!r} of {packages} is left out: a name here looks like {PATTERNS[group]}")
        else:
            usable[name] = entries[0]
    return usable


class Registry(Mapping[str, Item]):
    """The things of one kind by name, in the order of their places, where they have one, then names; loaded when first asked for.

    Asked for a name that is that of a module of ours, it loads that module alone.
    `attribute` is what a module in `package` calls its thing of this `kind`, or a tuple of such things; without a package all are
    entry points, and one is loaded alone. `taken` are names of ours that the registry does not hold. KeyError for a name that is not known.
    """

    def __init__(
        self, group: str, kind: type[Item], package: str = "", attribute: str = "", taken: Iterable[str] = ()
    ) -> None:
        self._group, self._kind, self._package, self._attribute = group, kind, package, attribute
        self._taken = frozenset(taken)
        self._items: dict[str, Item] | None = None
        self._origins: dict[str, str] = {}

    def __getitem__(self, name: str) -> Item:
        if self._items is None and name in module_names(self._package):
            item = getattr(import_module(f"{self._package}.{name}"), self._attribute, None)
            if isinstance(item, self._kind) and item.name == name:
                return item
        if self._items is None and not self._package:
            entry = declared(self._group, self._taken).get(name)
            if entry is not None and (item := self._load(entry)) is not None:
                return item
        return self._loaded()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._loaded())

    def __len__(self) -> int:
        return len(self._loaded())

    def origin(self, name: str) -> str | None:
        """The package that added something, with its version; None for what is ours."""
        self._loaded()
        return self._origins.get(name)

    @property
    def origins(self) -> Mapping[str, str]:
        """What other packages added, and which package each is from."""
        self._loaded()
        return self._origins

    @contextmanager
    def guarded(self, name: str, raises: type[WorkbenchError], *, own: bool = False) -> Iterator[None]:
        """Runs code of an extension: an unexpected exception in another package's code becomes an error that names the package.

        Exceptions in our own code are bugs and pass through, unless `own`.
        """
        try:
            yield
        except (WorkbenchError, Cancelled):
            raise
        except Exception as error:
            origin = self.origin(name)
            if origin is None and not own:
                raise
            where = name if origin is None else f"{name} of {origin}"
            raise raises(f"{where} failed: {type(error).__name__}: {error}") from error

    def _loaded(self) -> dict[str, Item]:
        if self._items is not None:
            return self._items
        with _lock:
            if self._items is None:
                items = self._ours()
                for name, entry in declared(self._group, {*items, *self._taken}).items():
                    item = self._load(entry)
                    if item is not None:
                        items[name] = item
                        if not _is_ours(entry):
                            self._origins[name] = _package(entry)
                self._items = dict(
                    sorted(items.items(), key=lambda pair: (getattr(pair[1], "place", DEFAULT_PLACE), pair[0]))
                )
            return self._items

    def _ours(self) -> dict[str, Item]:
        modules = (import_module(f"{self._package}.{name}") for name in module_names(self._package))
        found = [getattr(module, self._attribute, None) for module in modules]
        items = [item for each in found for item in (each if isinstance(each, tuple) else [each])]
        return {item.name: item for item in items if isinstance(item, self._kind)}

    def _load(self, entry: EntryPoint) -> Item | None:
        where = f"{self._group}: {entry.name} of {_package(entry)} is left out"
        try:
            item: Any = entry.load()
        except Exception as error:
            _report(f"{where}: {entry.value} does not load: {type(error).__name__}: {error}")
            return None
        if not isinstance(item, self._kind):
            _report(f"{where}: {entry.value} is no {self._kind.__name__}, but {type(item).__name__}")
            return None
        if item.name != entry.name:
            _report(f"{where}: {entry.value} calls itself {item.name!r}")
            return None
        return item


def _package(entry: EntryPoint) -> str:
    return entry.value if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"


def _report(problem: str) -> None:
    if problem not in _problems:
        _problems[problem] = None
        print(f"warning: {problem}", file=sys.stderr)
