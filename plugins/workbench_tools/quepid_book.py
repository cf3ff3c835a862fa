"""A Quepid book as CSV, `query,docid,<judge>…`: a row per pair, a column per judge, an empty cell where one has not judged.

A query is named by its words. Such a file has no kind of judge, no times and no notes: all judges are read as people.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cems_workbench.errors import InputError
from cems_workbench.formats.base import cells
from cems_workbench.formats.base.csv_table import (
    DELIMITERS,
    CsvTable,
    columns_of,
    is_padded,
    open_table,
    read_rows,
    records,
    written,
)
from cems_workbench.formats.base.fields import FieldError, identifier
from cems_workbench.formats.base.files import Sample
from cems_workbench.formats.base.format import Format, JudgmentWriter
from cems_workbench.formats.base.judgment_names import NAMES, plain
from cems_workbench.formats.base.judgments import (
    Unrated,
    judgment_by_words,
    not_by_words,
    parsed_by_words,
    query_words,
)
from cems_workbench.formats.base.records import Collected, collect_judgments
from cems_workbench.platform.parsing import decimal_number
from cems_workbench.progress import Progress
from cems_workbench.records import Judgment, ParsedInput, RowError

NAME = "quepid-book"
PAIR = ("query", "docid")
Cell = tuple[dict[str, str], str, str]
"""A row, the judge of one of its cells, and the cell."""


def write(judgments: Iterable[Judgment], words: Mapping[str, str]) -> str:
    """The judgments as a book; `words` are those of each qid, judges are in the order of their names."""
    table: dict[tuple[str, str], dict[str, int]] = {}
    for judgment in judgments:
        pair = cells.blank_guarded(words[judgment.qid]), cells.blank_guarded(judgment.memory_id)
        table.setdefault(pair, {})[judgment.judge] = judgment.grade
    judges = sorted({judge for grades in table.values() for judge in grades})
    rows = [
        [query, document, *(grades.get(judge, "") for judge in judges)] for (query, document), grades in table.items()
    ]
    return written([[*PAIR, *judges], *rows])


def read(path: Path, progress: Progress) -> ParsedInput:
    """Read a book; raises InputError when its header does not name a query, a docid and a judge at least.

    A first column without a name holds pandas' numbers of the rows, and is not read.
    """
    errors: list[RowError] = []
    words: dict[str, str] = {}
    unrated: list[Unrated] = []
    table, twice = _with_unique_judges(path)
    judges = [name for n, name in enumerate(table.columns) if name.lower() not in PAIR and (name or n)]

    def graded_cells() -> Iterable[tuple[int, Cell]]:
        nonlocal unrated
        for line, row in read_rows(table, errors, progress):
            given = [judge for judge in judges if row[judge].strip()]
            for judge in given:
                yield line, (row, judge, row[judge])
            if not given:
                unrated += _unrated(line, row)

    def parse(cell: Cell) -> Judgment:
        row, judge, grade = cell
        if not judge.strip():
            raise FieldError("", "has a grade in a column without the name of a judge")
        named = {column.lower(): text for column, text in row.items() if column.lower() in PAIR}
        judge = identifier({"judge": judge}, "judge")
        judgment, query = judgment_by_words(named, judge, grade, judge)
        words[judgment.qid] = query
        return judgment

    if not judges:
        return _pairs(table, errors, progress)
    collected = collect_judgments(str(path), graded_cells(), parse, errors)
    if unrated:
        twice.append(f"{len(unrated):,} pairs that nobody has judged; their queries are there to be judged")
    return parsed_by_words(str(path), NAME, collected, words, errors, twice, grade_column="", unrated=unrated)


def _pairs(table: CsvTable, errors: list[RowError], progress: Progress) -> ParsedInput:
    """The queries of a book that nobody has judged."""
    unrated = [each for line, row in read_rows(table, errors, progress, shorter=True) for each in _unrated(line, row)]
    queries = len({words for _, words, _ in unrated})
    note = f"the book has no judge and so no judgment: its {len(unrated):,} pairs name {queries:,} queries to be judged"
    return parsed_by_words(table.source, NAME, Collected(), {}, errors, [note], grade_column="", unrated=unrated)


def _unrated(line: int, row: Mapping[str, str]) -> list[Unrated]:
    """A row that nobody has judged; empty if it names no query."""
    named = {column.lower(): cell for column, cell in row.items()}
    return [(line, query_words(named), named["docid"])] if named["query"].strip() else []


def _with_unique_judges(path: Path) -> tuple[CsvTable, list[str]]:
    """The book with its judges' names made unique, as Quepid allows two of one name, and a note of it. Raises InputError."""
    table = open_table(path, PAIR, unique=False)
    others: dict[str, list[str]] = {}
    columns: list[str] = []
    for name in table.columns:
        unique, number = name, 1
        while unique in columns or (number > 1 and unique in table.columns):
            number += 1
            unique = f"{name} ({number})" if name else " " * number
        columns.append(unique)
        if unique != name:
            others.setdefault(name, []).append(unique)
    again = [name for name in others if name.lower() in PAIR]
    if again:
        raise InputError(f"{path}: the header has the column {ascii(again[0])[:60]} more than once")
    notes = [
        f"{name!r} names {len(more) + 1} judges; the others are {more[0]} and so on"
        for name, more in others.items()
        if name
    ]
    return replace(table, columns=tuple(columns)), notes


def _with_nameable_judges(judgments: Sequence[Judgment], left_out: list[str]) -> list[Judgment]:
    """Those whose judge can head a column: not called like the other two or like ratings, no blanks at the ends, and of one kind."""
    kinds: dict[str, str] = {}
    fitting = []
    for judgment in judgments:
        judge = judgment.judge
        if judge.strip() != judge or plain(judge) in (*PAIR, *NAMES["grade"]):
            left_out.append(f"{judgment.qid} {judgment.memory_id}: a judge called {judge!r} cannot head a column")
        elif kinds.setdefault(judge, judgment.kind) != judgment.kind:
            left_out.append(f"{judgment.qid} {judgment.memory_id}: {judge!r} names both a person and a model")
        else:
            fitting.append(judgment)
    return fitting


def sniff(sample: Sample) -> bool:
    """A header that names query and docid and has no other column but of judges: with grades below it, and not ratings alone."""
    for mark in DELIMITERS:
        names = columns_of(sample.header, mark)
        plain_names = [*map(plain, names)]
        judges = [n for n, name in enumerate(plain_names) if name not in PAIR]
        if not {*PAIR} <= {*plain_names} or (len(judges) == 1 and plain_names[judges[0]] in NAMES["grade"]):
            continue
        below = sample.lines[sample.lines.index(sample.header) + 1 :]
        padded = is_padded(sample.header, mark)
        rows = [row for _, row in records([f"{line}\n" for line in below], 0, mark, padded) if len(row) == len(names)]
        return all(_is_judge([row[n] for row in rows if isinstance(row, list)]) for n in judges)
    return False


def _is_judge(column: Iterable[str]) -> bool:
    """Whether at least half of the cells with anything in them are numbers."""
    given = [cell for cell in column if cell.strip()]
    return sum(decimal_number(cells.restored(cell)) is not None for cell in given) * 2 >= len(given)


FORMAT = Format(
    NAME,
    "a Quepid book: query,docid and a column per judge",
    order=3,
    sniff=sniff,
    read=read,
    suffixes=(".csv",),
    judgments=JudgmentWriter(write, by_words=True, fitting=_with_nameable_judges, refused=not_by_words, place=6),
    place=17,
    shape="a header with query, docid and a column of grades per judge",
    needs=(("query",), ("docid",)),
)
