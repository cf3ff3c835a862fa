"""Judgments by words as text: ratings and books of Quepid, ratings of the OpenSearch Search Relevance Workbench, and LTR's lines.

    quepid-csv    `query,docid,rating` under a header: what Quepid exports, and what its other tools take. It leaves the rating of an
                  unrated document empty, and of a query without documents all but its words: such queries are there to be judged. The blank
                  that it puts before text that begins with - = + or @ is taken off
    srw-csv       the same in exactly three columns, the header optional
    quepid-book   `query,docid,<judge>…`: a row per pair, a column per judge, an empty cell where one has not judged. Such a file has no
                  kind of judge, no times and no notes: all judges are read as people
    ltr-text      `grade qid:N # docno words of the query`, a line a judgment, as Quepid exports them; features are not read. Without words
                  the row is left out, as N is the number of the query within the export

A query is named by its words.

Source: https://quepid-docs.dev.o19s.com; Quepid's importer (ratings_importer.rb, angular-csv-import) at f80322f, August 2026, and v8's
export for LTR, in which a tab or a blank stands between docno and words;
https://docs.opensearch.org/latest/search-plugins/search-relevance/judgments, and what reads the file there,
public/components/judgment/utils/judgment_file_processor.ts of dashboards-search-relevance at 15bc179, August 2026.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cems_workbench.errors import InputError
from cems_workbench.formats.base import csv_table
from cems_workbench.formats.base.fields import FieldError, identifier
from cems_workbench.formats.base.files import Sample, data_beside, read_lines
from cems_workbench.formats.base.format import JudgmentWriter, described
from cems_workbench.formats.base.judgments import ByWords, not_by_words
from cems_workbench.formats.base.names import NAMES, RUN, fields_of, plain
from cems_workbench.formats.base.records import Collected, collect_judgments
from cems_workbench.platform.parsing import decimal_number
from cems_workbench.progress import Progress
from cems_workbench.records import Judgment, ParsedInput, RowError

HEADER = ("query", "docid", "rating")
PAIR = HEADER[:2]
COLUMNS = {"query": ("query", "query_text"), "docid": NAMES["memory_id"], "rating": NAMES["grade"]}
"""Their names in Quepid's exports and other tables, as `names.plain` gives them."""
RESERVED = frozenset(data_beside(__file__, "names.json")["javascript"])
"""Names that each object of JavaScript has."""
_LTR = re.compile(r"\s*(\S+)\s+qid:(\S+)[^#]*#\s*([^\t ]+)[\t ]*(.*)")
Cell = tuple[dict[str, str], str, str]
"""A row, the judge of one of its cells, and the cell."""


def _write(judgments: Iterable[Judgment], words: Mapping[str, str]) -> str:
    """The judgments as CSV; `words` are those of each qid. The judge is not written: there must be one grade per pair."""
    return csv_table.written([HEADER, *(_row(each, words[each.qid]) for each in judgments)])


def _row(judgment: Judgment, words: str) -> tuple[str, str, int]:
    return (
        csv_table.guarded(words, csv_table.BLANK),
        csv_table.guarded(judgment.memory_id, csv_table.BLANK),
        judgment.grade,
    )


def _refused_by_quepid(judgment: Judgment, words: str) -> str:
    """Why Quepid's page refuses the row of a judgment, and the whole file with it; empty if it takes it. Its check
    (import_ratings_modal_instance_controller.js, checkCSVBody) takes more than two commas only in a line with two
    quotes."""
    lines = csv_table.written([_row(judgment, words)]).split("\n")
    if any(line.count(",") > 2 and line.count('"') != 2 for line in lines):
        return "a comma beside quotes, or in words and id, for which Quepid's import refuses the whole file"
    return not_by_words(judgment, words)


def _refused_by_srw(judgment: Judgment, words: str) -> str:
    """Why the Search Relevance Workbench cannot read the row of a judgment, empty if it can: it splits lines before cells, and keeps
    queries as the names of an object."""
    if "\n" in words:
        return "a line break in the words, at which the Search Relevance Workbench ends the row"
    if words.strip() in RESERVED:
        return f"the words {words.strip()}, at which the Search Relevance Workbench refuses the whole file"
    return not_by_words(judgment, words)


def _columns(names: Sequence[str]) -> list[str]:
    """The columns of a header: of all exports that begin with it, or Quepid's detailed one (`Query Text`, `Doc ID`, `Rating`)."""
    there: dict[str, str] = {}
    for name in names:
        there.setdefault(plain(name), name)
    parts = {there[name]: part for part, known in COLUMNS.items() for name in reversed(known) if name in there}
    chosen = {part: name for name, part in parts.items()}
    return [part if (part := parts.get(name, "")) and chosen[part] == name else f"other {name}" for name in names]


def _read_srw(path: Path, progress: Progress) -> ParsedInput:
    """Read ratings of exactly three columns, with or without a header; raises InputError."""
    lines = csv_table.read_csv_lines(path)
    start = next((n for n, line in enumerate(lines) if line.strip()), None)
    if start is None:
        raise InputError(f"{path} is empty")
    below = start + 1 if _is_header(lines[start]) else start
    return _ratings(csv_table.CsvTable(str(path), lines, below, ",", HEADER, header=HEADER), "srw-csv", progress)


def _is_header(line: str) -> bool:
    return [name.lower() for name in csv_table.columns_of(line, ",")] == [*HEADER]


def _ratings(table: csv_table.CsvTable, name: str, progress: Progress) -> ParsedInput:
    """The ratings of a table with the three columns, as a format of this name. A row without a document or a rating
    names a query to be judged; so does, in Quepid's export, one that ends before them."""
    errors: list[RowError] = []
    by_words = ByWords()
    count = 0
    called = table.called

    def rated() -> Iterator[tuple[int, dict[str, str]]]:
        nonlocal count
        for line, row in csv_table.read_rows(table, errors, progress, shorter=name == "quepid-csv"):
            if row["rating"].strip():
                yield line, row
                continue
            count += 1
            if row["query"].strip():
                by_words.unrate(line, row)

    def parse(row: dict[str, str]) -> Judgment:
        return by_words.judgment(row, called["rating"], row["rating"])

    collected = collect_judgments(table.source, rated(), parse, errors)
    many = f"{count:,} rows have no rating; their queries are there to be judged"
    notes = [many if count > 1 else "1 row has no rating; its query is there to be judged"] if count else []
    other = [name for column, name in called.items() if column not in HEADER]
    notes += [f"columns not read: {', '.join(map(ascii, other))}"] if other else []
    return by_words.parsed(table.source, name, collected, errors, notes)


def _write_book(judgments: Iterable[Judgment], words: Mapping[str, str]) -> str:
    """The judgments as a book; `words` are those of each qid, judges are in the order of their names."""
    table: dict[tuple[str, str], dict[str, int]] = {}
    for judgment in judgments:
        pair = _row(judgment, words[judgment.qid])[:2]
        table.setdefault(pair, {})[judgment.judge] = judgment.grade
    judges = sorted({judge for grades in table.values() for judge in grades})
    rows = [[*pair, *(grades.get(judge, "") for judge in judges)] for pair, grades in table.items()]
    return csv_table.written([[*PAIR, *judges], *rows])


def _read_book(path: Path, progress: Progress) -> ParsedInput:
    """Read a book; raises InputError when its header does not name a query, a docid and a judge at least. A first
    column without a name holds pandas' numbers of the rows, and is not read."""
    errors: list[RowError] = []
    by_words = ByWords()
    table, notes = _with_unique_judges(path)
    judges = [name for n, name in enumerate(table.columns) if name.lower() not in PAIR and (name or n)]

    def graded_cells() -> Iterator[tuple[int, Cell]]:
        for line, row in csv_table.read_rows(table, errors, progress, shorter=not judges):
            given = [judge for judge in judges if row[judge].strip()]
            named = {column.lower(): text for column, text in row.items() if column.lower() in PAIR}
            yield from ((line, (named, judge, row[judge])) for judge in given)
            if not given and named["query"].strip():
                by_words.unrate(line, named)

    def parse(cell: Cell) -> Judgment:
        row, judge, grade = cell
        if not judge.strip():
            raise FieldError("", "has a grade in a column without the name of a judge")
        return by_words.judgment(row, judge, grade, identifier({"judge": judge}, "judge"))

    collected: Collected[Judgment] = collect_judgments(str(path), graded_cells(), parse, errors)
    unrated = by_words.unrated
    if not judges:
        named = f"its {len(unrated):,} pairs name {len({words for _, words, _ in unrated}):,} queries to be judged"
        notes = [f"the book has no judge and so no judgment: {named}"]
    elif unrated:
        notes.append(f"{len(unrated):,} pairs that nobody has judged; their queries are there to be judged")
    return by_words.parsed(str(path), "quepid-book", collected, errors, notes, grade_column="")


def _with_unique_judges(path: Path) -> tuple[csv_table.CsvTable, list[str]]:
    """The book with its judges' names made unique, as Quepid allows two of one name, and a note of it. Raises InputError."""
    table = csv_table.open_table(path, PAIR, unique=False)
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
    line = "{!r} names {} judges; the others are {} and so on"
    notes = [line.format(name, len(more) + 1, more[0]) for name, more in others.items() if name]
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


def _read_ltr(path: Path, progress: Progress) -> ParsedInput:
    errors: list[RowError] = []
    by_words = ByWords()

    def parse(line: str) -> Judgment:
        found = _LTR.fullmatch(line)
        if found is None:
            raise FieldError("", "must be of the form: grade qid:N # docno words of the query")
        grade, _, docno, query = found.groups()
        return by_words.judgment({"query": query, "docid": docno}, "grade", grade)

    lines = (line for line in read_lines(path, errors, progress) if not line[1].lstrip().startswith("#"))
    collected = collect_judgments(str(path), lines, parse, errors)
    return by_words.parsed(str(path), "ltr-text", collected, errors, grade_column="grade")


def _sniff_quepid(sample: Sample) -> bool:
    """A header that names the words of a query, a document and its rating, no id of the query, and nothing of a run."""
    return any(
        {*HEADER} <= {*_columns(names)} and "qid" not in fields_of(names) and not {*map(plain, names)} & {*RUN}
        for names in csv_table.headers(sample.header)
    )


def _sniff_book(sample: Sample) -> bool:
    """A header that names query and docid and has no other column but of judges: with grades below it, and not ratings alone."""
    for mark, names in zip(csv_table.DELIMITERS, csv_table.headers(sample.header), strict=True):
        plain_names = [*map(plain, names)]
        judges = [n for n, name in enumerate(plain_names) if name not in PAIR]
        if not {*PAIR} <= {*plain_names} or (len(judges) == 1 and plain_names[judges[0]] in NAMES["grade"]):
            continue
        below = sample.lines[sample.lines.index(sample.header) + 1 :]
        padded = csv_table.is_padded(sample.header, mark)
        rows = [
            row
            for _, row in csv_table.records([f"{line}\n" for line in below], 0, mark, padded)
            if len(row) == len(names)
        ]
        below_judges = [[row[n] for row in rows if isinstance(row, list) and row[n].strip()] for n in judges]
        return all(sum(map(_is_rating, cells)) * 2 >= len(cells) for cells in below_judges)
    return False


def _is_rating(cell: str) -> bool:
    return decimal_number(csv_table.restored(cell)) is not None


def _has_shape(sample: Sample) -> bool:
    known = {name for each in NAMES.values() for name in each}
    for first in sample.lines[:1]:  # a line that names columns, and not those of ratings
        if len({*map(plain, csv_table.columns_of(first, ","))} & known) > 1 and not _is_header(first):
            return False
    rows = _first_rows(sample)
    return sum(isinstance(row, list) and len(row) == 3 and _is_rating(row[2]) for row in rows) * 2 > max(len(rows), 1)


def _first_rows(sample: Sample) -> list[list[str] | str]:
    return [row for _, row in csv_table.records([f"{line}\n" for line in sample.lines], 0, ",")]


def _doubt(sample: Sample) -> str:
    """What else three columns without a header may be, if no first cell has two words or a question mark."""
    if not _has_shape(sample) or _is_header(sample.lines[0]):
        return ""
    first = [row[0].strip() for row in _first_rows(sample) if isinstance(row, list) and row]
    if any(len(cell.split()) > 1 or cell.endswith("?") for cell in first):
        return ""
    return (
        f"three columns without a header: {ascii(first[0])[:40]} may be the words of a query or its id. A first line query,docid,rating "
        "makes it words, qid,memory_id,grade an id"
    )


QUEPID = described(
    __file__,
    "quepid-csv",
    _sniff_quepid,
    lambda path, progress: _ratings(csv_table.open_table(path, HEADER, columns=_columns), "quepid-csv", progress),
    judgments=JudgmentWriter(_write, by_words=True, judges=False, refused=_refused_by_quepid, place=4),
    needs=tuple((name, *others) for name, others in COLUMNS.items()),
)
SRW = described(
    __file__,
    "srw-csv",
    lambda sample: _has_shape(sample) and not _doubt(sample),
    _read_srw,
    judgments=JudgmentWriter(_write, by_words=True, judges=False, refused=_refused_by_srw, place=5),
    doubt=_doubt,
)
BOOK = described(
    __file__,
    "quepid-book",
    _sniff_book,
    _read_book,
    judgments=JudgmentWriter(_write_book, by_words=True, fitting=_with_nameable_judges, refused=not_by_words, place=6),
)
LTR = described(
    __file__,
    "ltr-text",
    lambda sample: sum(map(bool, map(_LTR.fullmatch, sample.lines))) * 2 > len(sample.lines),
    _read_ltr,
)
