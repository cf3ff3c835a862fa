"""Options, config selection, tables and progress that several commands share."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from functools import cache, wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, get_origin, get_type_hints

import typer

from cems_workbench.builtin import DEFAULT_PRESET, default_preset, preset_names
from cems_workbench.cli.terminal import literal, progress_lines, put_json, say, say_next, say_wrapped
from cems_workbench.errors import InputError
from cems_workbench.progress import Progress
from cems_workbench.records import CHUNK_RULES, DEFAULT_CHUNK_RULE, LANGUAGES, TEXT_FIELDS, RowError

if TYPE_CHECKING:
    from cems_workbench.api.open_store import OpenStore
    from cems_workbench.api.single_query import Answer
    from cems_workbench.config import PipelineConfig
    from cems_workbench.config.forms.targets import System
    from cems_workbench.evaluation.evidence_file import EvidenceSet
    from cems_workbench.pipeline import Evidence
    from cems_workbench.pipeline.gather import JudgeScope
    from cems_workbench.pipeline.resources import Resources
    from cems_workbench.records import Memory, Query
    from cems_workbench.results import Result
    from cems_workbench.results import Table as ResultTable
    from cems_workbench.settings import Settings
    from cems_workbench.store import Store


@cache
def described_in(folder: Path) -> Mapping[str, Mapping[str, Any]]:
    """What options.json in a folder of commands says of each option, as typer takes it: metavar, bounds and help.

    By command (module.function), group of options (module.class) or `shared`. An option is called as its parameter, with two dashes,
    unless it has `names`; `argument` says that it is none. {names} stand for TERMS.
    """
    described: Mapping[str, Mapping[str, Any]] = json.loads((folder / "options.json").read_text("utf-8"))
    return described


SHARED = described_in(Path(__file__).parent)["shared"]
PRESETS = ", ".join(preset_names())
DEFAULT_PRESET_HELP = (
    f"that of the store's target, else {DEFAULT_PRESET}, or what CEMS_WORKBENCH_PRESET names, as in the app"
)
"""The default preset, as help texts state it."""
TERMS = {
    "presets": PRESETS,
    "default_preset": DEFAULT_PRESET_HELP,
    "chunk_rules": "|".join(CHUNK_RULES),
    "chunk_rule": DEFAULT_CHUNK_RULE,
    "languages": ", ".join(LANGUAGES),
    "text_fields": ", ".join(TEXT_FIELDS),
}


def option(name: str, described: Mapping[str, Any] = SHARED) -> Any:
    """The option or argument that options.json describes."""
    about: dict[str, Any] = {
        key: said.format(**TERMS) if isinstance(said, str) else said for key, said in described[name].items()
    }
    names = about.pop("names", ["--" + name.replace("_", "-")])
    return typer.Argument(**about) if about.pop("argument", False) else typer.Option(*names, **about)


StoreOption = Annotated[Path | None, option("StoreOption")]
IdsOption = Annotated[bool, option("IdsOption")]
JsonOption = Annotated[bool, option("JsonOption")]


PresetOption = Annotated[str | None, option("PresetOption")]
ConfigOption = Annotated[Path | None, option("ConfigOption")]
ConfigsOption = Annotated[list[Path] | None, option("ConfigsOption")]
PresetsOption = Annotated[list[str] | None, option("PresetsOption")]
AblateOption = Annotated[str | None, option("AblateOption")]
TargetOption = Annotated[str | None, option("TargetOption")]
SetOption = Annotated[list[str] | None, option("SetOption")]


def settings_for(store: Path | None) -> Settings:
    """The app's settings, with the store of the command line when one was given."""
    from cems_workbench import settings

    return settings.settings_for(store)


def open_existing_store(store: Path | None) -> Store:
    """Open the existing store of the command line. Raises StoreError."""
    from cems_workbench.store import Store

    settings = settings_for(store)
    return Store.open(settings.store, create=False, team=settings.team)


@contextmanager
def filled_resources(store: Path | None) -> Iterator[Resources]:
    """The store of the command line with its models, closed at the end. Raises StoreError if it has no memories."""
    from cems_workbench.jobs.factory import KEPT

    with KEPT.filled(settings_for(store)) as resources:
        if resources.stand_in:
            say(f"warning: {resources.stand_in}", err=True)
        yield resources


@contextmanager
def opened_store(store: Path | None) -> Iterator[OpenStore]:
    """The same as the API takes it."""
    from cems_workbench.api.open_store import OpenStore

    with filled_resources(store) as resources:
        yield OpenStore(resources)


def queries_of(store: Store, query_set: str | None) -> list[Query]:
    """The queries of a set, or all of them when none is named; raises StoreError for a set that is not there."""
    return store.queries.read() if query_set is None else store.query_sets.queries(query_set)


def chosen_config(
    preset_name: str | None, config: Path | None, changes: Sequence[str] | None, store: Path | None = None
) -> PipelineConfig:
    """The config that a command uses, by default that of the store's target, with what the store knows of that; what
    its file could not express is a warning on stderr. Raises InputError when both a preset and a file are named."""
    from cems_workbench.config import parse_assignment, with_values
    from cems_workbench.config.forms.targets import completed
    from cems_workbench.jobs.catalogue import config_named
    from cems_workbench.settings import saved_target

    settings = settings_for(store)
    default, problem = (DEFAULT_PRESET, None) if preset_name or config else default_preset(settings.preset)
    named = config_named(preset_name, config, default)
    for warning in (*([problem] if problem else []), *named.warnings):
        say(f"warning: {' '.join(warning.split())}", err=True)
    assignments = dict(parse_assignment(text) for text in changes or ())
    chosen = completed(named.config, saved_target(settings.store))
    return with_values(chosen, assignments, source="--set") if assignments else chosen


def chosen_target(name: str | None, config: PipelineConfig) -> System | None:
    """The target of this name, else the one that the config's preset is a program of. Raises InputError."""
    from cems_workbench.config.forms.targets import system_behind, system_named

    return system_named(name) if name else system_behind(config)


def read_evidence(path: Path) -> EvidenceSet:
    """Read an evidence file. Raises InputError as `read_evidence_file` does."""
    from cems_workbench.evaluation.evidence_file import read_evidence_file

    if not path.suffix and not path.is_file():  # most likely the name of a query set
        raise InputError(f"{path}: no such evidence file; for a query set, gather {path} --out FILE writes one")
    return read_evidence_file(path)


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], title: str | None = None, *, err: bool = False
) -> None:
    """Print rows as a table, with `err` on stderr; numbers are right-aligned and never broken, and text is shown
    literally. Texts are wrapped at words to fit the terminal. Columns that do not fit continue in a further table that
    repeats the first one."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if title:
        say(title, err=err)
    console = Console(highlight=False, markup=False, emoji=False, stderr=err)
    cells = [[_cell(row[i]) for row in rows] for i in range(len(columns))]
    numeric = [all(isinstance(row[i], (int, float)) or row[i] is None for row in rows) for i in range(len(columns))]
    for group, widths in _layout(columns, cells, console.width):
        table = Table(box=None, pad_edge=False, header_style="bold")
        for i, width in zip(group, widths, strict=True):
            table.add_column(
                literal(columns[i]), justify="right" if numeric[i] else "left", overflow="fold", width=width
            )
        for r in range(len(rows)):
            table.add_row(*[Text(cells[i][r]) for i in group])
        console.print(table)


def present(
    result: Result,
    as_json: bool = False,
    *then: Sequence[str] | None,
    titled: bool = False,
    also: Sequence[ResultTable] = (),
    memories: Mapping[str, Memory] | None = None,
    queries: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Print a result: as JSON, or its lines (with `titled` its title first), its tables and further ones, its notes, and what to type
    next. Lines and tables have the first words of these memories and queries, not their ids."""
    if as_json:
        return put_json(result.to_json())
    lines, tables = [*([result.title] if titled else []), *result.lines], (*result.tables, *also)
    print_parts(lines, tables, result.notes, memories, queries)
    say_next(*then)


def print_parts(
    lines: Iterable[str],
    tables: Iterable[ResultTable],
    notes: Iterable[str],
    memories: Mapping[str, Memory] | None = None,
    queries: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Print the parts of a result; warnings and notes that begin so go to stderr. Texts of `memories` and `queries` stand for their ids."""
    lines, tables, notes = list(lines), [table for table in tables if table], list(notes)
    if memories:
        from cems_workbench.analysis.memory_names import in_words, table_in_words

        lines = [in_words(line, memories) for line in lines]
        tables = [table_in_words(table, memories, queries) for table in tables]
    aside = ("warning:", "note:")
    for line in lines:
        say_wrapped(line)
    for place, table in enumerate(tables):
        if place or lines:
            say()
        print_rows(table)
    if (lines or tables) and not all(note.startswith(aside) for note in notes):
        say()
    for note in notes:
        say_wrapped(note, err=note.startswith(aside))


MAX_PROBLEMS = 50
"""Rows that were left out that are named."""


def say_left_out(lines: Sequence[object], *, more: int = 0, all_in_json: bool = True) -> None:
    """Say on stderr which rows were left out, the first ones; `more` were left out that have no line, and are not in JSON either."""
    for line in lines[:MAX_PROBLEMS]:
        taken = isinstance(line, RowError) and line.taken
        say(f"{'taken in part' if taken else 'left out'}: {line}", err=True)
    if (rest := len(lines) - MAX_PROBLEMS + more) > 0:
        listed = f"; --json lists {f'the first {len(lines)}' if more else 'them all'}" if all_in_json else ""
        say(f"left out: {rest} more rows{listed}", err=True)


def print_rows(table: ResultTable) -> None:
    """Print the rows of a table that are shown, and how many more there are; nothing without rows."""
    if table:
        drawn = table.drawn
        print_table(drawn.columns, drawn.rows, drawn.title or None)
        if drawn.left_out:
            say(f"and {drawn.left_out} more; --json lists them all")


COLUMN_GAP = 2
MAX_WORD_WIDTH = 28
"""Longer words may be broken."""
MAX_WORD_CHARS = 160
"""Characters of a word, such as an id; a longer one is truncated. JSON has it whole."""
_LONG_WORD = re.compile(rf"\S{{{MAX_WORD_CHARS + 1},}}")


def _layout(columns: Sequence[str], cells: Sequence[Sequence[str]], width: int) -> list[tuple[list[int], list[int]]]:
    """The columns of each table and their widths, each at least its narrowest."""
    natural = [
        max(len(line) for text in (name, *column) for line in text.split("\n"))
        for name, column in zip(columns, cells, strict=True)
    ]
    narrowest = [
        max(_narrowest(name), *map(_narrowest, column), 0) for name, column in zip(columns, cells, strict=True)
    ]
    groups: list[list[int]] = [[]]
    for i in range(len(columns)):
        if (
            groups[-1]
            and sum(narrowest[j] + COLUMN_GAP for j in groups[-1]) + narrowest[i] > width
            and groups[-1] != [0]
        ):
            groups.append([0])
        groups[-1].append(i)
    return [(group, _widths([narrowest[i] for i in group], [natural[i] for i in group], width)) for group in groups]


def _narrowest(text: str) -> int:
    """The width at which nothing is broken: all of a number or a range, the longest word of a text."""
    if text[:1] in "+-−–0123456789" and len(text) <= MAX_WORD_WIDTH:
        return len(text)
    return min(max(map(len, text.split()), default=0), MAX_WORD_WIDTH)


def _widths(narrowest: list[int], natural: list[int], width: int) -> list[int]:
    widths = list(narrowest)
    room = width - sum(widths) - COLUMN_GAP * (len(widths) - 1)
    while room > 0 and widths != natural:
        i = max(range(len(widths)), key=lambda i: natural[i] / max(widths[i], 1))
        if natural[i] <= widths[i]:
            break
        widths[i] += 1
        room -= 1
    return widths


def _cell(value: Any) -> str:
    if value is None or value != value:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4f}"
    return _LONG_WORD.sub(lambda word: f"{word[0][: MAX_WORD_CHARS - 1]}…", literal(str(value)))


@contextmanager
def progress_bar(quiet: bool = False) -> Iterator[Progress]:
    """A progress bar on stderr with a count and an estimate, plain lines if stderr is not a terminal; nothing if `quiet`."""
    if not quiet and not sys.stderr.isatty():
        with progress_lines(lambda line: say(line, err=True)) as report_lines:
            yield report_lines
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with RichProgress(*columns, console=console, transient=True, disable=quiet) as bar:
        tasks: dict[str, Any] = {}

        def report(label: str, done: int, total: int) -> None:
            if label not in tasks:
                tasks[label] = bar.add_task(literal(label), total=total)
            bar.update(tasks[label], completed=done, total=total)

        yield report


ProjectOption = Annotated[str | None, option("ProjectOption")]
OnlyProjectOption = Annotated[bool, option("OnlyProjectOption")]
AsOfOption = Annotated[str | None, option("AsOfOption")]
QueryArgument = Annotated[str, option("QueryArgument")]
ReportOption = Annotated[Path | None, option("ReportOption")]
VariantOption = Annotated[list[str] | None, option("VariantOption")]
SearchedOption = Annotated[str | None, option("SearchedOption")]
EngineQueryOption = Annotated[list[str] | None, option("EngineQueryOption")]
WithoutVariantOption = Annotated[list[int] | None, option("WithoutVariantOption")]
CutoffOption = Annotated[int | None, option("CutoffOption")]


@dataclass(frozen=True)
class ConfigChoice:
    """The config of a command."""

    preset: PresetOption = None
    config: ConfigOption = None
    changes: SetOption = None

    def read(self, store: Path | None = None) -> PipelineConfig:
        """The chosen config, on this store. Raises InputError as `chosen_config` does."""
        return chosen_config(self.preset, self.config, self.changes, store)

    def of(self, evidence: Evidence) -> PipelineConfig:
        """As `read`, for evidence without a store: of an explanation without a named config the one that it says, with the changes."""
        from cems_workbench.config import parse_assignment, with_values
        from cems_workbench.pipeline.explained import explained_config

        said = None if self.preset or self.config else explained_config(evidence)
        if said is None:
            return self.read()
        changes = dict(map(parse_assignment, self.changes or ()))
        return with_values(said, changes, source="--set") if changes else said

    def words(self, store: Path | None = None) -> list[str]:
        """The options that were given, and the store, as words for the command that goes on."""
        return given_options(self.preset, self.config, self.changes, store)


@dataclass(frozen=True)
class Asked:
    """What a query is asked with."""

    project: ProjectOption = None
    only_project: OnlyProjectOption = False
    as_of: AsOfOption = None

    def fields(self) -> dict[str, Any]:
        """The fields of the request besides the query: `Request(query, **asked.fields())`. Raises InputError."""
        if self.only_project and not self.project:
            raise InputError("--only-project needs a --project")
        return {"project": self.project, "as_of": parse_as_of(self.as_of), "only_project": self.only_project}

    def config(self, config: PipelineConfig) -> PipelineConfig:
        """The config that is searched under."""
        return config

    @property
    def left_out(self) -> Sequence[int]:
        """The query variants that are left out."""
        return ()

    @contextmanager
    def answer(
        self, query: str, config: PipelineConfig, store: Path | None, quiet: bool, judge: JudgeScope = "decisive"
    ) -> Iterator[tuple[OpenStore, Answer, Progress]]:
        """The open store and its answer to the query, with a progress bar. Raises InputError, also for what does not fit."""
        config = self.config(config)
        from cems_workbench.api.single_query import answered
        from cems_workbench.pipeline.evidence import Request

        request = Request(query, **self.fields())
        with progress_bar(quiet) as progress, opened_store(store) as opened:
            self.check_project(opened.resources.store)
            named = "--without-variant"
            yield (
                opened,
                answered(opened, request, config, self.left_out, named=named, judge=judge, progress=progress),
                progress,
            )

    def check_project(self, store: Store) -> None:
        """Warn that no memory is in the project, with the nearest name; InputError if the search is restricted to it."""
        problem = store.memories.project_problem(self.project)
        if problem and self.only_project:
            raise InputError(f"--project: {problem}")
        if problem:
            say(f"warning: --project: {problem}", err=True)


@dataclass(frozen=True)
class AskedInFull(Asked):
    """What a query is asked with, its variants and texts for engines too."""

    variants: VariantOption = None
    searched: SearchedOption = None
    engine_queries: EngineQueryOption = None
    without: WithoutVariantOption = None

    def fields(self) -> dict[str, Any]:
        """As of `Asked`, with variants and texts for engines."""
        by_list = dict(_engine_query(text) for text in self.engine_queries or ())
        also = {"variants": tuple(self.variants or ()), "searched": self.searched, "engine_queries": by_list}
        return super().fields() | also

    def config(self, config: PipelineConfig) -> PipelineConfig:
        """The config, with manual expansion if variants are given."""
        from cems_workbench.config import with_values

        manual = self.variants and config.expansion.backend == "none"
        return with_values(config, {"expansion.backend": "manual"}) if manual else config

    @property
    def left_out(self) -> Sequence[int]:
        """The query variants that are left out."""
        return self.without or ()


def _described(hint: Any, name: str, *owners: Any) -> Any:
    """The type of a parameter with its option, which the type of a shared option has already."""
    if get_origin(hint) is Annotated:
        return hint
    places = (
        described_in(Path(sys.modules[owner.__module__].__file__ or "").parent).get(
            f"{owner.__module__.rpartition('.')[2].rstrip('_')}.{owner.__name__}", {}
        )
        for owner in owners
    )
    return Annotated[hint, option(name, next(place for place in places if name in place))]


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """A command for typer: a parameter that is a dataclass of options is replaced by its fields; options.json describes the options."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    parameters: list[Parameter] = []
    for one in signature(command).parameters.values():
        if one.name in groups:
            types = get_type_hints(groups[one.name], include_extras=True)
            parameters += [
                Parameter(
                    field.name,
                    Parameter.KEYWORD_ONLY,
                    default=field.default,
                    annotation=_described(types[field.name], field.name, *groups[one.name].__mro__),
                )
                for field in fields(groups[one.name])
            ]
        else:
            annotation = _described(hints[one.name], one.name, command)
            parameters.append(one.replace(kind=Parameter.KEYWORD_ONLY, annotation=annotation))

    @wraps(command)
    def run(**given: Any) -> None:
        for name, kind in groups.items():
            given[name] = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
        command(**given)

    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def given_options(
    preset: str | None = None,
    config: Path | None = None,
    changes: Sequence[str] | None = None,
    store: Path | None = None,
) -> list[str]:
    """The options that chose config and store, as words for the command that goes on."""
    given = [
        ("--preset", preset),
        ("--config", config),
        *(("--set", change) for change in changes or ()),
        ("--store", store),
    ]
    return [word for name, value in given if value is not None for word in (name, str(value))]


def _engine_query(text: str) -> tuple[str, str]:
    """(list, text) of LIST=TEXT. Raises InputError."""
    name, equals, query = text.partition("=")
    if not equals:
        raise InputError(f"--engine-query {text[:60]}: write LIST=TEXT, such as lexical=WORDS")
    return name.strip(), query


def parse_as_of(text: str | None) -> datetime | None:
    """An ISO 8601 moment in UTC (a bare date is its midnight). Raises InputError."""
    from cems_workbench.platform.parsing import parse_datetime

    return None if text is None else parse_datetime(text, "--as-of")


def account() -> str | None:
    """The name of the current account; None if it has none, as in a container."""
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a number without a name
        return None
