"""Ratings as CSV, `query,docid,rating` under a header: what Quepid exports, and what its other tools take.

A query is named by its words. Quepid leaves the rating of an unrated document empty, and of a query without documents all but its words:
such queries are there to be judged. The blank that it puts before text that begins with - = + or @ is taken off.

Source: https://quepid-docs.dev.o19s.com; Quepid's importer (ratings_importer.rb, angular-csv-import) at f80322f, August 2026.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from cems_workbench.errors import InputError
from cems_workbench.formats.base import cells
from cems_workbench.formats.base.csv_table import (
    DELIMITERS,
    CsvTable,
    columns_of,
    header_line,
    open_table,
    read_csv_lines,
    read_rows,
    written,
)
from cems_workbench.formats.base.files import Sample
from cems_workbench.formats.base.format import Format, JudgmentWriter
from cems_workbench.formats.base.judgment_names import NAMES, RUN, fields_of, plain
from cems_workbench.formats.base.judgments import (
    Unrated,
    judgment_by_words,
    not_by_words,
    parsed_by_words,
    query_words,
)
from cems_workbench.formats.base.records import collect_judgments
from cems_workbench.progress import Progress
from cems_workbench.records import Judgment, ParsedInput, RowError

NAME = "quepid-csv"
HEADER = ("query", "docid", "rating")
COLUMNS = {"query": ("query", "query_text"), "docid": NAMES["memory_id"], "rating": NAMES["grade"]}
"""Their names in Quepid's exports and other tables, as `judgment_names.plain` gives them."""


def write(judgments: Iterable[Judgment], words: Mapping[str, str]) -> str:
    """The judgments as CSV; `words` are those of each qid. The judge is not written: there must be one grade per pair."""
    return written([HEADER, *(_row(each, words[each.qid]) for each in judgments)])


def _row(judgment: Judgment, words: str) -> tuple[str, str, int]:
    return cells.blank_guarded(words), cells.blank_guarded(judgment.memory_id), judgment.grade


def refused(judgment: Judgment, words: str) -> str:
    """Why Quepid's page refuses the row of a judgment, and the whole file with it; empty if it takes it.

    Its check (import_ratings_modal_instance_controller.js, checkCSVBody) takes more than two commas only in a line with two quotes.
    """
    lines = written([_row(judgment, words)]).split("\n")
    if any(line.count(",") > 2 and line.count('"') != 2 for line in lines):
        return "a comma beside quotes, or in words and id, for which Quepid's import refuses the whole file"
    return not_by_words(judgment, words)


def read(path: Path, progress: Progress) -> ParsedInput:
    """Read ratings under a header that names the three columns; raises InputError."""
    lines = read_csv_lines(path)
    start = header_line(path, lines)
    columns = max((columns_of(lines[start], mark) for mark in DELIMITERS), key=lambda names: len(_parts(names)))
    missing = [name for name in HEADER if name not in _parts(columns)]
    if missing:
        raise InputError(f"{path}:{start + 1}: the header has no column {' and no column '.join(missing)}")
    return read_ratings(open_table(path, [_parts(columns)[name].lower() for name in HEADER]), NAME, progress)


def _parts(names: Iterable[str]) -> dict[str, str]:
    """The column of each of the three: of all exports that begin with it, or Quepid's detailed one (`Query Text`, `Doc ID`, `Rating`)."""
    there: dict[str, str] = {}
    for name in names:
        there.setdefault(plain(name), name)
    return {part: there[name] for part, known in COLUMNS.items() for name in reversed(known) if name in there}


def read_ratings(table: CsvTable, name: str, progress: Progress) -> ParsedInput:
    """The ratings of a table with the three columns, as a format of this name.

    A row without a document or a rating names a query to be judged; so does, in Quepid's export, one that ends before them.
    """
    errors: list[RowError] = []
    words: dict[str, str] = {}
    unrated: list[Unrated] = []
    count = 0
    parts = _parts(table.columns)
    other = [name for name in table.columns if name not in parts.values()]

    def parse(row: dict[str, str]) -> Judgment:
        judgment, query = judgment_by_words(row, parts["rating"], row["rating"])
        words[judgment.qid] = query
        return judgment

    def rated(rows: Iterable[tuple[int, dict[str, str]]]) -> Iterator[tuple[int, dict[str, str]]]:
        nonlocal count
        for line, row in rows:
            named = {part: row[column] for part, column in parts.items()}
            if named["rating"].strip():
                yield line, named
                continue
            count += 1
            if named["query"].strip():
                unrated.append((line, query_words(named), named["docid"]))

    collected = collect_judgments(
        table.source, rated(read_rows(table, errors, progress, shorter=name == NAME)), parse, errors
    )
    many = f"{count:,} rows have no rating; their queries are there to be judged"
    notes = [many if count > 1 else "1 row has no rating; its query is there to be judged"] if count else []
    if other:
        notes.append(f"columns not read: {', '.join(map(ascii, other))}")
    return parsed_by_words(table.source, name, collected, words, errors, notes, unrated=unrated)


def sniff(sample: Sample) -> bool:
    """A header that names the words of a query, a document and its rating, no id of the query, and nothing of a run."""
    tried = [columns_of(sample.header, mark) for mark in DELIMITERS]
    return any(
        _parts(names).keys() == {*HEADER} and "qid" not in fields_of(names) and not {*map(plain, names)} & {*RUN}
        for names in tried
    )


FORMAT = Format(
    NAME,
    "Quepid ratings: query,docid,rating under a header",
    order=3,
    sniff=sniff,
    read=read,
    suffixes=(".csv",),
    judgments=JudgmentWriter(write, by_words=True, judges=False, refused=refused, place=4),
    place=15,
    shape="a header with query, docid and rating, and no id of the query",
    needs=tuple((name, *others) for name, others in COLUMNS.items()),
)
